//! From a host's name to a connection: lookup, TCP, TLS, and the mark that tells a kept connection from a new one.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceBuilder};

use super::trace::{self, Phase, Trace};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes connections to the upstream.
pub(super) type Connector = BoxCloneSyncService<Uri, TokioIo<Watched>, BoxError>;

/// A connection, with TLS where the address asks for it.
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The connector's stack, outermost first: what is watched is the plain text, for a TLS server says goodbye in bytes of its own.
pub(super) fn connector(tls: ClientConfig, timeout: Duration, gate: Gate) -> Connector {
    let tls = Arc::new(tls);
    let mut http = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
    // The layer above decides about the scheme.
    http.enforce_http(false);
    http.set_nodelay(true);
    // Shared by all addresses of a name, so that one that swallows packets leaves time for the others.
    http.set_connect_timeout(Some(timeout));
    let stack = ServiceBuilder::new()
        .map_response(move |stream| Watched::new(stream, Arc::clone(&gate)))
        .map_future(move |connecting| within(timeout, connecting))
        .layer_fn(move |tcp| HttpsConnector::from((tcp, Arc::clone(&tls))))
        .map_future(before_tls)
        .service(http);
    BoxCloneSyncService::new(stack)
}

/// Bounds a whole connect. An attempt that finds another connection first leaves this one to the background, where the
/// attempt's deadline does not reach.
fn within<T>(
    timeout: Duration,
    connecting: impl Future<Output = Result<T, BoxError>> + Send + 'static,
) -> BoxFuture<'static, Result<T, BoxError>> {
    Box::pin(async move { tokio::time::timeout(timeout, connecting).await.map_err(io::Error::from)? })
}

/// Tells the attempt that TCP stands and TLS, where there is any, begins.
fn before_tls<T, E>(
    connecting: impl Future<Output = Result<T, E>> + Send + 'static,
) -> BoxFuture<'static, Result<T, BoxError>>
where
    BoxError: From<E>,
{
    Box::pin(async move {
        let stream = connecting.await?;
        trace::enter(Phase::Tls);
        Ok(stream)
    })
}

/// The system's name lookup, which tells the attempt when it begins and what it found.
#[derive(Clone)]
pub(super) struct Resolver(GaiResolver);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        trace::enter(Phase::Lookup);
        let lookup = self.0.call(name);
        Box::pin(async move {
            let addresses: Vec<_> = lookup.await?.collect();
            trace::found(&addresses);
            Ok(addresses.into_iter())
        })
    }
}

/// What a connection says about itself to the attempt that uses it.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    made_for: Option<Arc<Trace>>,
    /// When it stood.
    pub(super) since: Instant,
    heard: Arc<AtomicBool>,
}

impl Mark {
    /// Whether the connection stood before `trace` needed one.
    pub(super) fn is_reused_by(&self, trace: &Arc<Trace>) -> bool {
        self.made_for.as_ref().is_none_or(|made_for| !Arc::ptr_eq(made_for, trace))
    }

    /// Whether any byte came since the present request began to be written.
    pub(super) fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

/// Whether a request may begin, where somebody has set that; asked directly before its first byte.
pub(super) type Gate = Arc<OnceLock<super::MaySend>>;

/// The gate was closed: nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("nothing was sent: this node's lease had run out")]
pub(super) struct Closed;

/// A connection that knows for whom it was made and whether an answer has begun.
///
/// A write after a read begins the next request. So a server that sends a part of a head while the request is still being
/// written, and closes before the rest, counts as one that said nothing; the repeat is then one delivery more, which at-least-once
/// allows.
///
/// It ends a connection that says far more than any answer that is read: interim answers (1xx) without end would otherwise keep a
/// processor busy until the deadline.
pub(super) struct Watched {
    stream: TokioIo<Stream>,
    mark: Mark,
    gate: Gate,
    /// The next write begins a request.
    between: bool,
    /// A request was answered over it.
    used: bool,
    /// Bytes that came since the present request began to be written.
    heard: usize,
    /// Nothing is read before this is over.
    rest: Option<Pin<Box<Sleep>>>,
}

/// Bytes after which a connection rests, so that others have their turn: what comes is parsed while it is read, and of small interim
/// answers this much takes a millisecond. An answer whose body is only drained has no more.
const TURN: usize = 64 * 1024;
/// How long. A task that were only put behind the others would still keep the runtime from looking after its sockets.
const REST: Duration = Duration::from_millis(1);

/// Bytes of one answer, interim ones and framing included: a relayed body has a mebibyte at most, and chunks of a few bytes
/// make up to four times as much of it.
const HEARD_MAX: usize = 4 << 20;

/// Why a connection was ended that said more than [`HEARD_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("it sent more than {} MiB for one request", HEARD_MAX >> 20)]
pub(super) struct TooMuch;

/// Why a kept connection is not used for the next request: something lies in it that would be taken for that one's answer, or its end.
#[derive(Debug, thiserror::Error)]
#[error("it said something, or closed, before the request")]
struct SaidMore;

/// Whether anything came, or the end, that was not read yet. The kernel is asked: the runtime hears of it a moment later, and in that
/// moment a second answer to one request would pass for the answer to the next. Under TLS it may be a message of TLS itself; then a
/// connection is given up for nothing.
fn has_more(stream: &Stream) -> bool {
    let tcp = match stream {
        MaybeHttpsStream::Http(tcp) => tcp,
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner(),
    };
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // Would block: nothing came. Any other error shows when it is written to.
    rustix::net::recv(tcp.inner(), &mut [0u8; 1], flags).is_ok()
}

/// Whether the first line is one of a request.
fn begins_a_request(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\r').next().is_some_and(|line| line.ends_with(b" HTTP/1.1"))
}

impl Watched {
    fn new(stream: Stream, gate: Gate) -> TokioIo<Self> {
        // The timer knows what time it is for timers; it never runs.
        let since = tokio::time::sleep(Duration::ZERO).deadline();
        let mark = Mark { made_for: trace::current(), since, heard: Arc::default() };
        let stream = TokioIo::new(stream);
        TokioIo::new(Self { stream, mark, gate, between: true, used: false, heard: 0, rest: None })
    }

    /// `begins`: whether what is to be written is the beginning of a request. It need not be, where an answer came before the whole
    /// request had gone out.
    fn next_request(&mut self, begins: impl FnOnce() -> bool) -> io::Result<()> {
        self.heard = 0;
        self.mark.heard.store(false, Ordering::Relaxed);
        if !std::mem::replace(&mut self.between, false) {
            return Ok(());
        }
        if self.gate.get().is_some_and(|may_send| !may_send()) {
            return Err(io::Error::other(Closed));
        }
        if self.used && begins() && has_more(self.stream.inner()) {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, SaidMore));
        }
        Ok(())
    }
}

impl Connection for Watched {
    fn connected(&self) -> Connected {
        self.stream.inner().connected().extra(self.mark.clone())
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(context));
            self.rest = None;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = buffer.filled().len().saturating_sub(before);
        if came > 0 {
            self.mark.heard.store(true, Ordering::Relaxed);
            (self.between, self.used) = (true, true);
        }
        let turns = self.heard / TURN;
        self.heard = self.heard.saturating_add(came);
        if self.heard / TURN > turns {
            self.rest = Some(Box::pin(tokio::time::sleep(REST)));
        }
        if self.heard > HEARD_MAX {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, TooMuch)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.next_request(|| begins_a_request(bytes))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.next_request(|| pieces.first().is_some_and(|piece| begins_a_request(piece)))?;
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
