//! One request over the wire: which connection, until when, and the one repeat.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::connect::{Connector, Gate, connector};
use super::fault::{Fault, Seen, Target};
use super::request::Unsendable;
use super::settings::Settings;
use super::trace::Trace;

type Http = Client<Connector, Full<Bytes>>;

/// Longest head of an answer, and most that is read of a connection at a time, in bytes: as long as the longest head that senders may have by
/// default. What is read at a time is parsed in one go, and other connections wait for it.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long one of several addresses may take to be connected to before the attempt tries another: longer than two lost handshakes take to
/// be repeated (1 s and 2 s, RFC 6298).
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// When an attempt has to be over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) timeout: Duration,
    pub(super) at: Instant,
}

impl Deadline {
    pub(super) fn starting_now(timeout: Duration) -> Self {
        // The timer knows what time it is for timers, in tests as well; a sleep that is never polled costs nothing.
        Self { timeout, at: tokio::time::sleep(timeout).deadline() }
    }

    /// When the attempt began.
    fn began(&self) -> Instant {
        self.at.checked_sub(self.timeout).unwrap_or(self.at)
    }
}

/// The connections to the upstream.
pub(super) struct Wire {
    /// Keeps connections for later requests.
    kept: Http,
    /// Makes a connection for each request.
    fresh: Http,
    /// How long a connection may take to stand.
    connect: Duration,
    /// How long one is used for further requests.
    renew: Duration,
}

impl Wire {
    /// `plural`: whether an attempt may go to another address, for which it then needs time.
    pub(super) fn new(settings: &Settings, plural: bool, tls: rustls::ClientConfig, gate: Gate) -> Self {
        let connect = if plural { CONNECT_MAX.min(settings.timeout / 2) } else { settings.timeout };
        let connector = connector(tls, connect, gate);
        let (kept, fresh) = (http(settings, connector.clone(), true), http(settings, connector, false));
        Self { kept, fresh, connect, renew: settings.renew }
    }

    /// Sends what `make` makes to `target` and waits for the answer's head. `make` is called a second time, for the same attempt, where
    /// a kept connection turned out to be closed.
    pub(super) async fn send(
        &self,
        target: &Target,
        make: impl Fn() -> Result<Request<Full<Bytes>>, Unsendable>,
        deadline: Deadline,
    ) -> Result<Response<Incoming>, Failed> {
        match self.exchange(&self.kept, target, make()?, deadline).await {
            Err(Failed { stale: true, .. }) => self.exchange(&self.fresh, target, make()?, deadline).await,
            answer => answer,
        }
    }

    /// Sends one request on a connection of its own and waits for the answer's head.
    pub(super) async fn send_apart(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        deadline: Deadline,
    ) -> Result<Response<Incoming>, Fault> {
        self.exchange(&self.fresh, target, request, deadline).await.map_err(|failed| failed.fault)
    }

    async fn exchange(
        &self,
        http: &Http,
        target: &Target,
        mut request: Request<Full<Bytes>>,
        deadline: Deadline,
    ) -> Result<Response<Incoming>, Failed> {
        let trace = Trace::new();
        let connection = capture_connection(&mut request);
        let answer = tokio::time::timeout_at(deadline.at, trace.scope(http.request(request))).await;
        let seen = || Seen::new(target, &trace, connection.connection_metadata().as_ref());
        match answer {
            Ok(Ok(response)) => {
                if seen().is_older(deadline.began(), self.renew)
                    && let Some(connected) = connection.connection_metadata().as_ref()
                {
                    // The pool takes it for nobody after this.
                    connected.poison();
                }
                match response.status() {
                    StatusCode::SWITCHING_PROTOCOLS => Err(seen().switched().into()),
                    _ => Ok(response),
                }
            }
            Ok(Err(error)) => {
                let seen = seen();
                let fault = seen.broken(&error, self.connect);
                Err(Failed { fault, stale: seen.is_stale(&error), unsent: error.is_connect() })
            }
            Err(_elapsed) => Err(seen().late(deadline.timeout).into()),
        }
    }
}

/// An exchange without an answer.
pub(super) struct Failed {
    pub(super) fault: Fault,
    /// The connection was kept from before and closed without a byte.
    stale: bool,
    /// There was no connection, so no byte of the request left, and it may go elsewhere.
    pub(super) unsent: bool,
}

impl<F: Into<Fault>> From<F> for Failed {
    fn from(fault: F) -> Self {
        Self { fault: fault.into(), stale: false, unsent: false }
    }
}

fn http(settings: &Settings, connector: Connector, keep: bool) -> Http {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle)
        .set_host(false)
        .http1_max_buf_size(HEAD_BYTES_MAX)
        // The status decides. An application that writes a line of its head badly has the event all the same.
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true);
    if !keep {
        builder.pool_max_idle_per_host(0);
    }
    builder.build(connector)
}
