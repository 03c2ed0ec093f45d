//! One sender's connection: how many there may be, how long it may take, how it ends.
//!
//! hyper has one timer for the head and for the pause between requests, and it closes silently. The pause is left to it;
//! here stands what it cannot do: a deadline for the first request and for each head, the end of idle HTTP/2
//! connections, and a drain that answers what was read.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::unconstrained;

use super::Limits;
use super::accept::Front;
use super::life::Stay;
use super::socket::Socket;
use crate::clock::Clock;
use crate::event::Mono;

/// More header lines than any sender has.
const HEADER_LINES_MAX: usize = 256;

/// The least that hyper accepts as a limit for a head.
const HEAD_BYTES_MIN: usize = 8 * 1024;

/// An HTTP/2 peer that does not answer a ping is gone.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 200;

/// How long whoever had begun a head may take to finish it, once a listener ends or is about to. Nobody else is waited for so idly: a
/// sender whose request was not read repeats it, elsewhere or later.
const LAST_HEAD: Duration = Duration::from_secs(1);

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2, agreed by ALPN.
    Http2,
    /// Whatever the client begins with (`h2c`).
    Either,
}

/// Counts of open connections.
#[derive(Debug, Default)]
pub(super) struct Counts {
    open: AtomicUsize,
    /// Connections by address that had no verified request yet.
    strangers: Mutex<HashMap<IpAddr, usize>>,
}

/// A place among the open connections; given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    counts: Arc<Counts>,
    stranger: Mutex<Option<IpAddr>>,
}

impl Counts {
    /// A place for a connection from `peer`; `None` when there are too many. The peers of trusted proxies are many senders
    /// behind one address and are not counted by it.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr, trusted: bool, limits: &Limits) -> Option<Place> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= limits.connections {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let place = Place { counts: Arc::clone(self), stranger: Mutex::new(None) };
        if !trusted {
            let address = counted_as(peer);
            let mut strangers = self.strangers.lock();
            let count = strangers.entry(address).or_default();
            if *count >= limits.connections_per_ip {
                return None;
            }
            *count += 1;
            *place.stranger.lock() = Some(address);
        }
        Some(place)
    }

    /// Connections open now.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Place {
    /// A genuine request came over it: it no longer counts against its address.
    fn known(&self) {
        let Some(address) = self.stranger.lock().take() else { return };
        let mut strangers = self.counts.strangers.lock();
        if let Some(count) = strangers.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&address);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.known();
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A host of IPv6 has a whole /64 at its disposal; that is one address here.
fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// What a connection is doing, seen by its requests, its socket and its watchdog.
pub(super) struct Connection {
    /// The other end.
    pub(super) peer: IpAddr,
    /// Whether it is a proxy whose forwarded headers count.
    pub(super) trusted: bool,
    /// Whether it is encrypted.
    pub(super) tls: bool,
    clock: Arc<dyn Clock>,
    place: Place,
    stay: Stay,
    known: AtomicBool,
    active: AtomicUsize,
    /// When its last request ended, or it was accepted.
    idle_since: AtomicU64,
    /// When the first byte of a head came that is not a request yet; 0: none.
    head_since: AtomicU64,
    requests: AtomicU64,
    /// Requests whose sender waits for a relayed answer.
    held: AtomicUsize,
}

/// A request under way; ends on drop.
pub(super) struct Active<'c>(&'c Connection);

/// A request whose sender waits for a relayed answer; ends on drop.
pub(super) struct Held<'c>(&'c Connection);

impl Connection {
    pub(super) fn new(
        peer: IpAddr,
        (trusted, tls): (bool, bool),
        (place, stay): (Place, Stay),
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.now().mono.0;
        Self {
            peer,
            trusted,
            tls,
            clock,
            place,
            stay,
            known: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            idle_since: AtomicU64::new(now),
            head_since: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            held: AtomicUsize::new(0),
        }
    }

    /// A sender waits for a relayed answer on this HTTP/1 connection: should it close meanwhile, the connection ends.
    pub(super) fn hold(&self) -> Held<'_> {
        self.held.fetch_add(1, Ordering::Relaxed);
        self.stay.waits_alone();
        Held(self)
    }

    /// Whether one does.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// Whether a request of it was ever read.
    fn has_asked(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// A head was read.
    pub(super) fn begin(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        Active(self)
    }

    /// A genuine request came.
    pub(super) fn verified(&self) {
        if !self.known.swap(true, Ordering::Relaxed) {
            self.place.known();
        }
    }

    pub(super) fn bytes_came(&self) {
        if self.active.load(Ordering::Relaxed) == 0 && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.clock.now().mono.0, Ordering::Relaxed);
        }
    }

    /// Whether all that is under way is a head that has not come whole.
    fn is_in_a_head(&self, protocol: Protocol) -> bool {
        // On HTTP/2 bytes between requests are mostly not a head, and an answer may still be going out.
        let between = self.head_since.load(Ordering::Relaxed) > 0 && protocol == Protocol::Http1;
        self.active.load(Ordering::Relaxed) == 0 && (between || !self.has_asked())
    }

    /// What the watchdog has to do now, and when it has to look again.
    fn judge(&self, limits: &Limits, protocol: Protocol) -> Watch {
        let now = self.clock.now().mono;
        let until = |since: u64, allowed: Duration, over: Watch| match allowed.checked_sub(now.since(Mono(since))) {
            Some(left) if !left.is_zero() => Watch::Again(left),
            _ => over,
        };
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        if self.active.load(Ordering::Relaxed) > 0 {
            return Watch::Again(limits.header_timeout);
        }
        if !self.has_asked() {
            return until(idle_since, limits.header_timeout, Watch::Cut);
        }
        let head_since = self.head_since.load(Ordering::Relaxed);
        // On HTTP/2 bytes between requests are mostly not a head: pings, window updates.
        if head_since > 0 && protocol == Protocol::Http1 {
            return until(head_since, limits.header_timeout, Watch::Cut);
        }
        match until(idle_since, limits.idle_timeout, Watch::End) {
            Watch::Again(left) => Watch::Again(left.min(limits.header_timeout)),
            over => over,
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.clock.now().mono.0, Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// All is well; look again then.
    Again(Duration),
    /// Idle for too long: let it end in order.
    End,
    /// Too slow: close it.
    Cut,
}

/// Serves a connection until it ends, in order where its listener does.
pub(super) async fn serve<S>(stream: S, connection: Arc<Connection>, protocol: Protocol, front: Arc<Front>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = front.limits();
    let builder = builder(&limits, protocol);
    let socket = Socket::new(stream, Arc::clone(&connection));
    let io = TokioIo::new(socket.clone());
    let service = TowerToHyperService::new(super::accept::service(front, Arc::clone(&connection)));
    let mut served = pin!(builder.serve_connection(io, service));
    // Neither this nor the watch below may wait for a turn's budget: what a sender pours in may use it up every time.
    let mut over = pin!(unconstrained(connection.stay.over(|| connection.has_asked(), || connection.is_held())));
    let mut look = Duration::ZERO;
    let mut ending = false;
    loop {
        tokio::select! {
            // In this order: the watch for the sender's end acts on what its requests have just said.
            biased;
            result = &mut served => {
                if let Err(error) = result {
                    tracing::debug!(peer = %connection.peer, %error, "a sender's connection ended with an error");
                }
                return;
            }
            () = poll_fn(|cx| socket.poll_gone(cx)) => {
                tracing::debug!(peer = %connection.peer, "a sender went away while it waited for a relayed answer");
                return;
            }
            () = &mut over, if !ending => {
                ending = true;
                look = LAST_HEAD;
                served.as_mut().graceful_shutdown();
            }
            () = unconstrained(tokio::time::sleep(look)) => match connection.judge(&limits, protocol) {
                _ if ending && connection.is_in_a_head(protocol) => return,
                Watch::Again(after) => look = after,
                Watch::Cut => return,
                Watch::End if ending => return,
                Watch::End => {
                    ending = true;
                    look = limits.header_timeout;
                    served.as_mut().graceful_shutdown();
                }
            },
        }
    }
}

fn builder(limits: &Limits, protocol: Protocol) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
        Protocol::Either => builder,
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_buf_size(limits.headers.max(HEAD_BYTES_MIN))
        .max_headers(HEADER_LINES_MAX)
        // Whoever has said everything may close that half (`nc -N`, some HTTP/1.0 clients) and still wants the answer.
        .half_close(true)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(limits.headers).unwrap_or(u32::MAX));
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::event::Wall;
    use crate::listen::life::Life;

    fn limits() -> Limits {
        Limits {
            body: 1,
            headers: 65_536,
            connections: 3,
            connections_per_ip: 2,
            buffered: 1,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn strangers_are_counted_by_address_until_they_are_known() {
        let counts = Arc::new(Counts::default());
        let first = counts.enter(address(1), false, &limits()).unwrap();
        let second = counts.enter(address(1), false, &limits()).unwrap();
        assert!(counts.enter(address(1), false, &limits()).is_none());
        assert_eq!(counts.open(), 2);
        first.known();
        let third = counts.enter(address(1), false, &limits()).unwrap();
        assert!(counts.enter(address(2), false, &limits()).is_none(), "three are open");
        drop((first, second, third));
        assert_eq!(counts.open(), 0);
        assert!(counts.strangers.lock().is_empty());
    }

    #[test]
    fn a_trusted_proxy_is_not_counted_by_address_and_a_prefix_of_ipv6_is_one() {
        let counts = Arc::new(Counts::default());
        let places: Vec<_> = (0..3).map(|_| counts.enter(address(1), true, &limits()).unwrap()).collect();
        assert_eq!(places.len(), 3);
        drop(places);
        let v6 = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
        let places: Vec<_> = (0..2).map(|n| counts.enter(v6(n), false, &limits()).unwrap()).collect();
        assert!(counts.enter(v6(7), false, &limits()).is_none());
        drop(places);
    }

    fn connection(clock: &Arc<TestClock>) -> Connection {
        let place = Arc::new(Counts::default()).enter(address(1), false, &limits()).unwrap();
        let places = (place, Life::new().enter());
        Connection::new(address(1), (false, false), places, Arc::clone(clock) as Arc<dyn Clock>)
    }

    #[test]
    fn a_connection_without_a_first_request_is_cut() {
        let clock = Arc::new(TestClock::at(Wall::from_unix_s(1)));
        let c = connection(&clock);
        assert_eq!(c.judge(&limits(), Protocol::Http1), Watch::Again(Duration::from_secs(10)));
        clock.advance(Duration::from_secs(4));
        c.bytes_came();
        assert_eq!(c.judge(&limits(), Protocol::Http1), Watch::Again(Duration::from_secs(6)));
        clock.advance(Duration::from_secs(6));
        assert_eq!(c.judge(&limits(), Protocol::Http1), Watch::Cut);
    }

    #[test]
    fn half_a_head_does_not_hold_up_the_end() {
        let clock = Arc::new(TestClock::at(Wall::from_unix_s(1)));
        let c = connection(&clock);
        assert!(c.is_in_a_head(Protocol::Http1) && c.is_in_a_head(Protocol::Http2), "its first request is not there");
        let active = c.begin();
        assert!(!c.is_in_a_head(Protocol::Http1), "one was read, and its body may come");
        drop(active);
        assert!(!c.is_in_a_head(Protocol::Http1), "its answer may still be going out");
        c.bytes_came();
        assert!(c.is_in_a_head(Protocol::Http1) && !c.is_in_a_head(Protocol::Http2));
    }

    #[test]
    fn a_slow_head_between_requests_is_cut_and_an_idle_connection_ends() {
        let clock = Arc::new(TestClock::at(Wall::from_unix_s(1)));
        let c = connection(&clock);
        {
            let _active = c.begin();
            clock.advance(Duration::from_secs(60));
            assert_eq!(c.judge(&limits(), Protocol::Http1), Watch::Again(Duration::from_secs(10)));
        }
        clock.advance(Duration::from_secs(60));
        c.bytes_came();
        clock.advance(Duration::from_secs(10));
        assert_eq!(c.judge(&limits(), Protocol::Http1), Watch::Cut);
        assert_eq!(c.judge(&limits(), Protocol::Http2), Watch::Again(Duration::from_secs(5)));
        clock.advance(Duration::from_secs(5));
        assert_eq!(c.judge(&limits(), Protocol::Http2), Watch::End);
    }
}
