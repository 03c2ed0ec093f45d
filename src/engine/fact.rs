//! What the engine is told: events that are durable, attempts that ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::Verdict;
use crate::event::{Group, Lane, Seq, Wall};

/// A pending event as the engine needs it: where it waits and what was tried, no headers and no body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Its place in the store's order of commits.
    pub seq: Seq,
    /// Where it waits.
    pub lane: Lane,
    /// The lane that it belongs to, where it waits in an overflow lane instead ([`Engine::place`](super::Engine::places)).
    pub owner: Option<Lane>,
    /// Events of one group that share this go one after another (R7).
    pub order: Option<Group>,
    /// When it was received; of a replay, when it was made pending again. Its age is counted from here.
    pub received: Wall,
    /// How often it was made pending again; it is a replay where that is not 0.
    pub replays: u32,
    /// Attempts begun so far.
    pub attempts: u32,
    /// Of them, those that ended with an answer that refuses the event (4xx other than 408, 425, 429).
    pub refused: u32,
    /// When the first of them began.
    pub first_attempt: Option<Wall>,
    /// When it may be tried again; `None` while it is fresh.
    pub due: Option<Wall>,
}

/// What an attempt gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A 2xx: the upstream has it.
    Success,
    /// An answer that refuses the event: a 4xx other than 408, 425 and 429. It counts against `retry.attempts`, and no breaker counts it.
    Client(u16),
    /// Any other answer: 5xx, 408, 425, 429, a redirect. Only the age of the event limits how often it is tried.
    Server {
        /// The status.
        status: u16,
        /// What its `Retry-After` asks for.
        retry_after: Option<RetryAfter>,
    },
    /// No answer: name lookup, refused, TLS, reset, timeout, malformed.
    NoAnswer,
    /// The upstream does not want it ever: a status of `retry.never`, or `Retry-After: -1`.
    ///
    /// `None`: there was no answer, for it cannot be sent at all.
    Never(Option<u16>),
    /// The attempt was cancelled, by [`Request::Cancel`](super::Request::Cancel) or otherwise, after it may have been sent.
    Cancelled,
    /// Not one byte was sent; the attempt did not happen.
    NotSent,
}

/// A `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter {
    /// How long from the answer. Bounded here: an hour for a group, a minute for the upstream.
    pub delay: Duration,
    /// Whom it holds back.
    pub scope: Scope,
}

/// Whom a `Retry-After` holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The event's group; on a 503 the upstream too, when three groups got one within ten seconds.
    Auto,
    /// The event's group alone.
    Group,
    /// The upstream.
    Upstream,
}

/// How a person ends an event without delivering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Removal {
    /// To the dead letters, so that the events behind it go on (R7).
    Skip,
    /// To the dead letters, to be replayed from there when its group is well.
    Divert,
    /// Thrown away.
    Discard,
    /// Its replay is taken back.
    Withdraw(Was),
}

/// What is said of a dead letter whose replay was taken back, by whoever does not know why it had died.
pub const WITHDRAWN: &str = "its replay was cancelled before an attempt";

/// How a replayed event had ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Was {
    /// The upstream had it.
    Delivered,
    /// It was in the dead letters.
    Dead,
    /// A person had thrown it away.
    Discarded,
}

/// The reason of a dead letter that was [diverted](Removal::Divert).
pub const DIVERTED: &str = "diverted by an operator";

impl Removal {
    /// What is written of the event.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Skip => Verdict::Dead("skipped by an operator".into()),
            Self::Divert => Verdict::Dead(DIVERTED.into()),
            Self::Discard | Self::Withdraw(Was::Discarded) => Verdict::Discarded,
            Self::Withdraw(Was::Dead) => Verdict::Dead(WITHDRAWN.into()),
            Self::Withdraw(Was::Delivered) => Verdict::Delivered,
        }
    }
}

impl Ending {
    /// Whether the upstream's breaker counts it: no answer, and every 5xx.
    pub(super) fn fails_upstream(self) -> bool {
        matches!(self, Self::NoAnswer | Self::Server { status: 500.., .. })
    }

    /// Whether the group's breaker counts it: every failure but a 4xx.
    pub(super) fn fails_group(self) -> bool {
        match self {
            Self::NoAnswer => true,
            Self::Server { status, .. } => !(400..500).contains(&status),
            Self::Success | Self::Client(_) | Self::Never(_) | Self::Cancelled | Self::NotSent => false,
        }
    }

    /// Whether the upstream said anything at all.
    pub(super) fn is_answer(self) -> bool {
        !matches!(self, Self::NoAnswer | Self::Never(None) | Self::Cancelled | Self::NotSent)
    }

    /// The status that refused it or that failed, where there was one.
    pub(super) fn status(self) -> Option<u16> {
        match self {
            Self::Client(status) | Self::Server { status, .. } | Self::Never(Some(status)) => Some(status),
            Self::Success | Self::NoAnswer | Self::Never(None) | Self::Cancelled | Self::NotSent => None,
        }
    }

    /// In words, for the reason of a dead letter.
    pub(super) fn words(self) -> String {
        match self {
            Self::Success => "was delivered".into(),
            Self::Client(status) | Self::Server { status, .. } | Self::Never(Some(status)) => {
                format!("was answered with {status}")
            }
            Self::Never(None) => "cannot be sent".into(),
            Self::NoAnswer => "got no answer".into(),
            Self::Cancelled => "was cancelled".into(),
            Self::NotSent => "was not sent".into(),
        }
    }
}
