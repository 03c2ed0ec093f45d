//! One attempt to the upstream: the only place that sends an event anywhere; and the fetching of providers' keys.
//!
//! A [`Client`] is made once from its [`Settings`]. [`Client::attempt`] takes a [`Job`], sends one HTTP/1.1 request and tells
//! what came of it as an [`Attempt`]; a failure is an [`Outcome`], never an error. It decides nothing about *when*: turns,
//! caps, backoff and breakers are the engine's, which is told. The rest of the gateway knows only [`Deliver`], a function.
//!
//! # What holds
//!
//! 1. **One deadline** covers name lookup, connect, TLS, head and body. Dropping the future closes its connection and counts as
//!    `cancelled`.
//! 2. **One request is one attempt**, with two exceptions. A connection kept from an earlier attempt that closes before any byte of an
//!    answer is replaced by a new one, once, at once: the close raced with our request, and most such requests were never read. And
//!    of several addresses one that cannot be connected to is left for another, since nothing was sent.
//! 3. **The status decides.** 2xx settles whatever follows the head; a body that drags on or is longer than 64 KiB only costs the
//!    connection. Redirects are not followed: they are failures. Interim answers (1xx) are ignored.
//! 4. **The body goes out byte for byte** as it came, with one `Content-Length` of ours; header lines go out as they came but for
//!    those of one connection and those that could pass for ours.
//!
//! # A fresh signature
//!
//! With `signing_secret` each attempt carries `Fairlane-Timestamp` and `Fairlane-Signature: v1,<base64>`, the HMAC-SHA256 of
//! `<Fairlane-Event-Id>.<Fairlane-Timestamp>.<body>`. A Standard Webhooks library verifies it when it is given these three
//! headers as `webhook-id`, `webhook-timestamp` and `webhook-signature`. The secret is what those libraries take:
//! `whsec_` and base64, or the base64 alone; the *decoded* bytes are the key. Text that is not base64 is refused at start, since
//! no such library could verify with it.

mod answer;
mod connect;
mod fault;
mod fetch;
mod outcome;
mod place;
mod pool;
mod post;
mod relay;
mod request;
mod retry_after;
mod settings;
mod tls;
mod trace;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Clock;
use crate::event::{Event, Now, Trace, WaitSplit};
use crate::metrics::Metrics;

pub use fetch::{Fetcher, Fetching, Resolve, Unfetched};
pub use outcome::{Answer, Attempt, BodyEnd, Follows, Limit, Outcome, Row, follows, table};
pub use pool::{AddressState, AddressView, Addresses};
pub use post::{Post, Poster};
pub use relay::{Relay, relay};
pub use retry_after::{RetryAfter, RetryScope};
pub use settings::{Address, Ejection, Health, RENEW, Resign, Settings, SettingsError};
pub use tls::{Identity, Tls};

use connect::Gate;
use fault::Fault;
use place::Place;
use pool::{Pick, Pool};
use request::Maker;
use wire::Wire;

/// Delivers: from a job to what came of it. The client in the gateway, a closure in tests.
pub type Deliver = Arc<dyn Fn(Job) -> BoxFuture<'static, Attempt> + Send + Sync>;

/// Whether this process may send something now.
pub type MaySend = Arc<dyn Fn() -> bool + Send + Sync>;

/// How much of an answer's body is kept for people, in bytes: enough for an error message or the head of a stack trace.
pub const EXCERPT_BYTES_MAX: usize = 4096;

/// One attempt to make.
#[derive(Clone, Debug)]
pub struct Job {
    /// What to send.
    pub event: Arc<Event>,
    /// The how-manieth attempt this is, from 1.
    pub attempt: u32,
    /// Whether another attempt would follow a failure of this one.
    pub will_retry: bool,
    /// How long the event waited: from its commit, for a retry from its due time, to the lease.
    pub wait: Duration,
    /// What it waited for.
    pub waited: WaitSplit,
    /// Whether a person asked for it again.
    pub replays: u32,
    /// A deadline of its own, from now, where it is earlier than the settings' (a sender that waits for the answer).
    pub timeout: Option<Duration>,
    /// Bytes of the answer's body to keep: [`EXCERPT_BYTES_MAX`], more where the answer is to be relayed.
    pub keep_bytes: usize,
    /// The trace and the span that the upstream's work is a part of; `None`: what the sender said of traces goes as it came.
    pub trace: Option<Trace>,
}

impl Job {
    /// The first attempt of `event`, which did not wait, with no further one to follow.
    #[must_use]
    pub fn new(event: Arc<Event>) -> Self {
        Self {
            trace: event.trace,
            event,
            attempt: 1,
            will_retry: false,
            wait: Duration::ZERO,
            waited: WaitSplit::default(),
            replays: 0,
            timeout: None,
            keep_bytes: EXCERPT_BYTES_MAX,
        }
    }
}

/// The one that sends. Clones share connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    settings: Settings,
    maker: Maker,
    pool: Arc<Pool>,
    wire: Wire,
    gate: Gate,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Client {
    /// A client for one upstream. Where an address is `https` and no roots are given, the operating system's are read here, once.
    ///
    /// # Errors
    /// A setting that cannot work, in words for who wrote it.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Result<Self, SettingsError> {
        Self::build(settings, None, clock, metrics)
    }

    /// A client with other settings that knows what this one knows of the addresses that both have. This one is not changed, and goes on.
    ///
    /// # Errors
    /// A setting that cannot work, in words for who wrote it.
    pub fn successor(&self, settings: Settings) -> Result<Self, SettingsError> {
        let Inner { pool, clock, metrics, .. } = &*self.0;
        let successor = Self::build(settings, Some(pool), Arc::clone(clock), Arc::clone(metrics))?;
        Ok(match self.0.gate.get() {
            Some(may_send) => successor.gated(Arc::clone(may_send)),
            None => successor,
        })
    }

    fn build(
        settings: Settings,
        before: Option<&Pool>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, SettingsError> {
        let maker = Maker::new(&settings)?;
        let pool = Pool::new(&settings, before, Arc::clone(&clock), &metrics)?;
        let gate = Gate::default();
        let wire = Wire::new(&settings, pool.is_plural(), settings.tls.client(pool.is_https())?, Arc::clone(&gate));
        Ok(Self(Arc::new(Inner { settings, maker, pool: Arc::new(pool), wire, gate, clock, metrics })))
    }

    /// From now on a request begins only when `may_send` says so, asked directly before its first byte. Set once; what it keeps back is
    /// [`Outcome::Withheld`].
    #[must_use]
    pub fn gated(self, may_send: MaySend) -> Self {
        self.0.gate.get_or_init(|| may_send);
        self
    }

    /// The upstream's addresses, as they stand at any time.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses(Arc::clone(&self.0.pool))
    }

    /// Asks several addresses how they are, until the future is dropped; where nothing is to be asked, it ends at once.
    pub fn watch(&self) -> impl Future<Output = ()> + Send + use<> {
        pool::watch(Arc::clone(&self.0))
    }

    /// Makes one attempt. It begins when the future is first polled; dropping the future closes the connection.
    pub fn attempt(&self, job: Job) -> impl Future<Output = Attempt> + Send + use<> {
        let inner = Arc::clone(&self.0);
        async move { inner.attempt(&job).await }
    }

    /// This client as the function that the driver calls.
    #[must_use]
    pub fn deliver(self) -> Deliver {
        Arc::new(move |job| Box::pin(self.attempt(job)))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.0.settings).finish()
    }
}

impl Inner {
    async fn attempt(&self, job: &Job) -> Attempt {
        let began = self.clock.now();
        let count = Count { inner: self, began, outcome: Outcome::Cancelled };
        let (outcome, error, answer) = match self.exchange(job, began).await {
            Ok(answer) => {
                let outcome = Outcome::of(answer.status);
                (outcome, fault::words_of(&answer), Some(answer))
            }
            Err(fault) => (fault.outcome, fault.words, None),
        };
        let took = count.end(outcome);
        let headers = answer.as_ref().filter(|_| !outcome.is_delivered()).map(|answer| &answer.headers);
        let retry_after = headers.and_then(|headers| RetryAfter::read(headers, self.clock.now().wall));
        Attempt {
            number: job.attempt,
            started: began.wall,
            took,
            outcome,
            follows: follows(outcome, &self.settings.never, retry_after),
            error: error.into(),
            retry_after,
            retry_scope: headers.and_then(RetryScope::read),
            answer,
        }
    }

    /// Sends the request and reads the answer, all before one deadline. Where an address cannot be reached, so that nothing was sent, the
    /// attempt goes on at another one.
    async fn exchange(&self, job: &Job, now: Now) -> Result<Answer, Fault> {
        let own = job.timeout.unwrap_or(Duration::MAX);
        let deadline = wire::Deadline::starting_now(self.settings.timeout.min(own));
        let (mut tried, mut faults) = (Vec::new(), Vec::new());
        while let Some(pick) = self.pool.pick(job.event.group(), &tried) {
            match self.exchange_at(&pick, job, now, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => {
                    tried.push(pick.index);
                    faults.push(failed.fault);
                    if !failed.unsent {
                        break;
                    }
                }
            }
        }
        Err(Fault::last_of(faults))
    }

    async fn exchange_at(
        &self,
        pick: &Pick<'_>,
        job: &Job,
        now: Now,
        deadline: wire::Deadline,
    ) -> Result<Answer, wire::Failed> {
        let (place, group) = (pick.place(), job.event.group());
        let sent = self.wire.send(place.target(), || self.maker.make(job, place, now.wall), deadline).await;
        match sent {
            Ok(response) => {
                let status = response.status();
                pick.ended(group, Outcome::of(status), format_args!("answered {status}"));
                Ok(answer::read(response, job.keep_bytes, deadline).await)
            }
            Err(failed) => {
                pick.ended(group, failed.fault.outcome, &failed.fault.words);
                Err(failed)
            }
        }
    }

    /// Asks one address how it is; an error is words.
    async fn ask(&self, place: &Place, health: &Health) -> Result<(), String> {
        let deadline = wire::Deadline::starting_now(health.timeout);
        let request = self.maker.check(place, &health.path).map_err(|error| error.to_string())?;
        let response = self.wire.send_apart(place.target(), request, deadline).await.map_err(|fault| fault.words)?;
        let status = answer::read(response, 0, deadline).await.status;
        if status.is_success() || status.is_redirection() {
            Ok(())
        } else {
            Err(format!("{} answered {status}", health.path))
        }
    }
}

/// Counts an attempt however it ends, also when its future is dropped.
struct Count<'a> {
    inner: &'a Inner,
    began: Now,
    outcome: Outcome,
}

impl Count<'_> {
    /// It ended like this; gives how long it took.
    fn end(mut self, outcome: Outcome) -> Duration {
        self.outcome = outcome;
        self.took()
    }

    fn took(&self) -> Duration {
        self.inner.clock.now().mono.since(self.began.mono)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.inner.metrics.attempted(self.outcome.name(), self.took());
    }
}
