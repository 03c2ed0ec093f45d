//! Inbound HTTP: what a sender may send, and what it is answered.

mod accept;
mod body;
mod compact;
mod connection;
mod examine;
mod group;
mod handshake;
mod head;
mod life;
mod live;
mod pace;
mod record;
mod reply;
pub mod route;
mod serve;
mod served;
mod socket;
mod spans;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};

use crate::key;
use crate::verify::Verifier;

pub use accept::Front;
pub use examine::{Claimed, Examined, Refusal, Via, examine};
pub use life::Those;
pub use serve::{Bound, Leftover, Serving, start};
pub use tls::Certificates;

/// The listener's settings (`listen` in the configuration).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Serve TLS with these files.
    pub tls: Option<Tls>,
    /// Take HTTP/2 with prior knowledge on a plain port.
    pub h2c: bool,
    /// Peers whose `X-Forwarded-*` headers count.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// What is too much.
    pub limits: Limits,
    /// Rejection records kept in memory, per source.
    pub rejections: usize,
}

/// Files of a TLS listener; read at start, and again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Certificates that may sign a client's, PEM; with it, clients must show one.
    pub client_ca: Option<PathBuf>,
}

/// What is too much, and too slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of a request's head.
    pub headers: usize,
    /// Open connections.
    pub connections: usize,
    /// Open connections of one address that had no verified request yet.
    pub connections_per_ip: usize,
    /// Bytes of all bodies in memory that are not stored yet.
    pub buffered: usize,
    /// From the first byte of a head, or from the connection, to the head's end.
    pub header_timeout: Duration,
    /// For a whole body.
    pub body_timeout: Duration,
    /// Between requests of one connection.
    pub idle_timeout: Duration,
}

/// A source as the listener needs it: where it is, what it accepts, what it answers.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, in metrics, headers and lists.
    pub name: Arc<str>,
    /// The paths it takes.
    pub path: route::Pattern,
    /// The methods it takes.
    pub methods: Vec<Method>,
    /// Who may send to it, at least one; the first for whom a request is genuine has it.
    pub senders: Vec<Sender>,
    /// The networks that requests may come from; empty: any.
    pub allow_ips: Vec<ipnet::IpNet>,
    /// Handshakes that are answered here are delivered as well.
    pub forward_handshakes: bool,
    /// Which part of the group's lane.
    pub within: Option<key::Rule>,
    /// What must stay in order.
    pub order: Option<Order>,
    /// What keeps a sender's repeats from being delivered.
    pub dedupe: Option<Dedupe>,
    /// Replaces the matched path towards the upstream.
    pub forward_path: Option<Box<str>>,
    /// How long a commit may take before the sender gets 503.
    pub answer_timeout: Duration,
    /// Store nothing; hold each request and relay the upstream's answer, within this time.
    pub relay: Option<Duration>,
    /// The answer to an accepted request.
    pub ack: Ack,
    /// The answers to refused ones.
    pub answers: Answers,
}

/// Fetches a key of a provider's, or asks for an address that confirms a subscription.
pub type Fetch = Arc<dyn Fn(&str) -> BoxFuture<'static, Result<Bytes, NoKey>> + Send + Sync>;

/// Why something was not fetched, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// Its provider says that there is none.
    NotThere(String),
    /// It could not be found out.
    Failed(String),
}

/// One who may send to a source, and what is known about its requests.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Knows its requests.
    pub verifier: Arc<Verifier>,
    /// Whose an event is; `None`: no rule, everything to the fallback lane.
    pub key: Option<KeyRule>,
    /// Its events are signed again, freshly, at each attempt.
    pub resign: bool,
    /// The sender's own id for an event.
    pub event_id: Option<key::Rule>,
    /// The sender's name for what happened.
    pub event_type: Option<key::Rule>,
}

/// A source's key rule and what is known about it.
#[derive(Clone, Debug)]
pub struct KeyRule {
    /// The rule.
    pub rule: key::Rule,
    /// Put before the key as a part of its own.
    pub namespace: Option<Arc<str>>,
    /// The reserved group of events without a key where the provider gives that a meaning
    /// (Stripe's own account is `~platform`); otherwise they go to the fallback lane.
    pub reserved: Option<&'static str>,
    /// Whether the provider's signature covers every place that the rule reads.
    pub signed: bool,
}

/// What must stay in order within a group.
#[derive(Clone, Debug)]
pub enum Order {
    /// Everything.
    Group,
    /// Events with the same key.
    Key(key::Rule),
}

impl Order {
    /// The rule that finds the key; `None` where everything of a group stays in order.
    #[must_use]
    pub fn rule(&self) -> Option<&key::Rule> {
        if let Self::Key(rule) = self { Some(rule) } else { None }
    }
}

/// What a sender's repeats are known by.
#[derive(Clone, Debug)]
pub struct Dedupe {
    /// Finds what two repeats share; an event in which it finds nothing is no repeat.
    pub rule: key::Rule,
    /// How long after the first one a repeat counts as one.
    pub window: Duration,
}

/// The answer to an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
    /// Its headers.
    pub headers: HeaderMap,
}

/// Statuses of refusals that a source may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Bad, missing or stale signature.
    pub bad_signature: StatusCode,
    /// The group is shed.
    pub shed: StatusCode,
    /// We cannot store it now.
    pub unavailable: StatusCode,
}
