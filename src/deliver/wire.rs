//! One request over the wire: which connection, until when, and the one repeat.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::connect::{Connector, Gate, connector};
use super::fault::{Fault, Seen, Target};
use super::request::{Maker, Unsendable};
use super::settings::Settings;
use super::trace::Trace;

type Http = Client<Connector, Full<Bytes>>;

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
}

/// The connections to the upstream.
pub(super) struct Wire {
    /// Keeps connections for later requests.
    kept: Http,
    /// Makes a connection for each request.
    fresh: Http,
    target: Target,
}

impl Wire {
    pub(super) fn new(settings: &Settings, maker: &Maker, tls: rustls::ClientConfig, gate: Gate) -> Self {
        let connector = connector(tls, settings.timeout, gate);
        Self {
            kept: http(settings, connector.clone(), true),
            fresh: http(settings, connector, false),
            target: maker.target(),
        }
    }

    /// Sends what `make` makes and waits for the answer's head. `make` is called a second time, for the same attempt, where a kept
    /// connection turned out to be closed.
    pub(super) async fn send(
        &self,
        make: impl Fn() -> Result<Request<Full<Bytes>>, Unsendable>,
        deadline: Deadline,
    ) -> Result<Response<Incoming>, Fault> {
        match self.exchange(&self.kept, make()?, deadline).await {
            Err(Failed { stale: true, .. }) => {
                self.exchange(&self.fresh, make()?, deadline).await.map_err(|failed| failed.fault)
            }
            answer => answer.map_err(|failed| failed.fault),
        }
    }

    async fn exchange(
        &self,
        http: &Http,
        mut request: Request<Full<Bytes>>,
        deadline: Deadline,
    ) -> Result<Response<Incoming>, Failed> {
        let trace = Trace::new();
        let connection = capture_connection(&mut request);
        let answer = tokio::time::timeout_at(deadline.at, trace.scope(http.request(request))).await;
        let seen = || Seen::new(&self.target, &trace, connection.connection_metadata().as_ref());
        match answer {
            Ok(Ok(response)) => {
                seen().check(&response).map_or(Ok(response), |fault| Err(Failed { fault, stale: false }))
            }
            Ok(Err(error)) => {
                let seen = seen();
                Err(Failed { fault: seen.broken(&error, deadline.timeout), stale: seen.is_stale(&error) })
            }
            Err(_elapsed) => Err(Failed { fault: seen().late(deadline.timeout), stale: false }),
        }
    }
}

struct Failed {
    fault: Fault,
    /// The connection was kept from before and closed without a byte.
    stale: bool,
}

fn http(settings: &Settings, connector: Connector, keep: bool) -> Http {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle)
        .set_host(false)
        // The status decides. An application that writes a line of its head badly has the event all the same.
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true);
    if !keep {
        builder.pool_max_idle_per_host(0);
    }
    builder.build(connector)
}
