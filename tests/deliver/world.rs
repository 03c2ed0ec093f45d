//! A client, its clock and its metrics, and the events it is given.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlane::clock::TestClock;
use fairlane::deliver::{Attempt, Client, Job, Settings, Tls};
use fairlane::event::{Event, EventId, Group, KeySource, Lane, Wall};
use fairlane::metrics::Metrics;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// When every test takes place: Thu, 28 May 2026 20:26:40 GMT.
pub(crate) const NOW: Wall = Wall(1_780_000_000_000_000);

/// Long enough that a test that meets it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Short enough to be met on purpose.
pub(crate) const SHORT: Duration = Duration::from_millis(150);

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) metrics: Arc<Metrics>,
}

impl World {
    /// A client of this address.
    pub(crate) fn new(url: &str) -> Self {
        Self::with(settings(url))
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let metrics = Arc::new(Metrics::new("fsync"));
        let client = Client::new(settings, Arc::new(TestClock::at(NOW)), Arc::clone(&metrics)).unwrap();
        Self { client, metrics }
    }

    /// A client that trusts the certificates of this PEM.
    pub(crate) fn trusting(settings: Settings, ca: &str) -> Self {
        Self::with(Settings { tls: Tls { ca: Some(ca.into()), identity: None }, ..settings })
    }

    /// One attempt of a small event, after which the client's own tasks have had their turn: a connection that is to be kept is
    /// kept then.
    pub(crate) async fn attempt(&self) -> Attempt {
        self.attempt_of(event()).await
    }

    pub(crate) async fn attempt_of(&self, event: Event) -> Attempt {
        let attempt = self.client.attempt(Job::new(Arc::new(event))).await;
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        attempt
    }

    /// How many attempts ended with this outcome.
    pub(crate) fn counted(&self, outcome: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = format!("fairlane_attempts_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|l| l.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
    }
}

pub(crate) fn settings(url: &str) -> Settings {
    Settings { timeout: LONG, idle: LONG, ..Settings::to(url.parse().unwrap()) }
}

/// The same, in a hurry.
pub(crate) fn hurried(url: &str) -> Settings {
    Settings { timeout: SHORT, ..settings(url) }
}

pub(crate) fn event() -> Event {
    event_of("application/json", b"{\"id\":1}")
}

pub(crate) fn event_of(content_type: &str, body: &[u8]) -> Event {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("hooks.example"));
    headers.insert("content-type", content_type.parse().unwrap());
    Event {
        id: EventId::new(NOW, &[7; 10]),
        received: NOW,
        source: "/hooks".into(),
        lane: Lane { group: Group::of(&["a"]), inner: None },
        owner: None,
        key_source: KeySource::NoRule,
        order: None,
        fingerprint: None,
        trace: None,
        verified: "none".into(),
        provider_event_id: None,
        event_type: None,
        method: Method::POST,
        target: "/hooks?a=%20b&c".into(),
        forward: None,
        peer: IpAddr::from([203, 0, 113, 7]),
        https: false,
        headers,
        body: Bytes::copy_from_slice(body),
    }
}

pub(crate) fn header(name: &'static str, value: &str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
}

/// An address of this machine where nobody listens.
pub(crate) fn closed_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
