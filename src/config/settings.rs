//! What `upstream`, `groups` and `log` say, as plain values. Where a stage has a type for it, it is that one; `delivery.rs` makes the
//! stages' settings of the rest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::scalar::Rate;
use crate::deliver;
use crate::engine::{Backoff, Charge, GroupBreaker, UpstreamBreaker};
use crate::event::Secret;
use crate::store::{Retention, embedded, redis};

/// The receiver (`upstream` in the configuration).
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Where events are delivered to, at least one: scheme, host, port, and a path that goes before the request's.
    pub addresses: Vec<deliver::Address>,
    /// A group's events go to one address while it is healthy.
    pub sticky: bool,
    /// How several addresses are asked how they are.
    pub health: Option<deliver::Health>,
    /// When one of several addresses is left out.
    pub ejection: deliver::Ejection,
    /// TLS towards them.
    pub tls: deliver::Tls,
    /// Requests in flight at one time.
    pub concurrency: u32,
    /// Requests per time.
    pub rate: Option<Rate>,
    /// One deadline over name lookup, connect, head and body.
    pub timeout: Duration,
    /// Idle connections are closed after this.
    pub idle: Duration,
    /// Added to every attempt.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Signs every attempt.
    pub signing_secret: Option<Secret>,
    /// When to hold back from all groups.
    pub breaker: UpstreamBreaker,
    /// When to hold back from one group.
    pub group_breaker: GroupBreaker,
    /// When to try again.
    pub retry: Retry,
}

/// When to try again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Attempts that may end in a 4xx other than 408, 425 and 429.
    pub attempts: u32,
    /// From the first attempt.
    pub max_age: Duration,
    /// How long to wait.
    pub backoff: Backoff,
    /// Statuses that go straight to the dead letters; none is a 2xx.
    pub never: Vec<u16>,
    /// Slots that retries may hold together.
    pub concurrency: u32,
}

/// Fairness between groups (`groups` in the configuration); the key rule is in the sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Groups {
    /// What holds for a group without an override.
    pub defaults: Policy,
    /// The lane of events without a key; it has no backlog cap and no rate of its own.
    pub fallback: Policy,
    /// Groups that differ; the first match counts.
    pub overrides: Vec<Override>,
    /// What a turn costs.
    pub charge: Charge,
    /// Worker time that a quiet group is served ahead.
    pub burst: Duration,
    /// What is slow, and what slow lanes share.
    pub slow: Slow,
    /// Lane records in memory.
    pub max_active: usize,
    /// New groups a source from unsigned keys.
    pub new_groups: Option<Rate>,
    /// Whether a group that outgrows its dedicated slots is refused.
    pub shed: bool,
    /// Slots of its own for a group that keeps growing.
    pub dedicated: Dedicated,
}

/// How one group is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Its share where groups compete, 0.01 to 1000.
    pub weight: f64,
    /// Slots that it may hold.
    pub concurrency: u32,
    /// Deliveries per time.
    pub rate: Option<Rate>,
    /// Events that may wait.
    pub backlog: Option<u64>,
}

/// What survives a crash (`store` in the configuration).
#[derive(Clone, Debug, PartialEq)]
pub enum Store {
    /// A log and an index in a folder of this machine.
    Embedded(embedded::Settings),
    /// Redis, shared by many nodes.
    Redis(Box<redis::Settings>),
}

impl Store {
    /// The folder that is this process's alone: the store itself, or what a node keeps beside Redis; the token and the notebooks in any case.
    #[must_use]
    pub fn folder(&self) -> &Path {
        match self {
            Self::Embedded(settings) => &settings.path,
            Self::Redis(settings) => &settings.folder,
        }
    }

    /// Another folder instead.
    pub fn set_folder(&mut self, folder: PathBuf) {
        match self {
            Self::Embedded(settings) => settings.path = folder,
            Self::Redis(settings) => settings.folder = folder,
        }
    }

    /// The field that names the folder.
    #[must_use]
    pub fn folder_field(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "store.embedded.path",
            Self::Redis(_) => "store.redis.spool",
        }
    }

    /// How long ended events stay readable.
    #[must_use]
    pub fn retention(&self) -> &Retention {
        match self {
            Self::Embedded(settings) => &settings.retention,
            Self::Redis(settings) => &settings.retention,
        }
    }

    /// What a 2xx means, in a word: `fsync`, `os`, `aof`, `replicas` or `memory`.
    #[must_use]
    pub fn durability(&self) -> &'static str {
        match self {
            Self::Embedded(settings) => settings.durability.as_str(),
            Self::Redis(settings) => settings.ack.as_str(),
        }
    }
}

/// Groups that differ from the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// A pattern on the written form: `*` is any text, `?` one character.
    pub matches: String,
    /// How they are treated, what is not given taken from the defaults.
    pub policy: Policy,
}

/// What is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slow {
    /// Longer than this
    pub after: Duration,
    /// and than so many medians of the upstream.
    pub factor: f64,
    /// The share of the slots that slow lanes hold together at most (0 to 1).
    pub slots: f64,
}

/// Slots of its own for a group that keeps growing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dedicated {
    /// Groups at one time; 0: off.
    pub max: u32,
    /// Slots of each.
    pub concurrency: u32,
    /// Promotes at this share (0 to 1)
    pub promote_share: f64,
    /// and demotes below this one
    pub demote_share: f64,
    /// after so long
    pub promote_after: Duration,
    /// and so long.
    pub demote_after: Duration,
}

/// The log (`log` in the configuration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How lines are written.
    pub format: LogFormat,
    /// What is worth a line.
    pub level: tracing::Level,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Text,
    /// For programs.
    Json,
}
