//! What an attempt gave, and what follows from it: one rule, shown as one table.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::retry_after::{RetryAfter, RetryScope};
use crate::event::Wall;

/// What one attempt gave. A closed set: whoever adds one is led by the compiler to its name and to what follows, and adds it to
/// `WITHOUT_ANSWER`, which the table is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A 2xx: the upstream has it.
    Delivered(StatusCode),
    /// Any other final status, redirects included.
    Status(StatusCode),
    /// No connection could be made: the port is closed, or there is no way to the address.
    Refused,
    /// The connection broke before a whole head of an answer had come.
    Reset,
    /// The deadline passed while the name was looked up.
    TimeoutDns,
    /// The deadline passed while the connection was made, TLS included.
    TimeoutConnect,
    /// The deadline passed while the request was sent or the answer's head was awaited.
    TimeoutHead,
    /// TLS failed: an unknown issuer, another name, an expired certificate, no common version.
    Tls,
    /// The name could not be looked up.
    Dns,
    /// What came is not an HTTP/1.1 answer.
    Malformed,
    /// The attempt was given up from our side.
    Cancelled,
    /// The event cannot be written as a request to this upstream; trying again gives the same.
    Unsendable,
    /// Nothing was sent, for another node may have the event by now.
    Withheld,
}

impl Outcome {
    /// The outcome of an answer with this status.
    #[must_use]
    pub fn of(status: StatusCode) -> Self {
        if status.is_success() { Self::Delivered(status) } else { Self::Status(status) }
    }

    /// Its name in the API, in the store and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered(_) => "delivered",
            Self::Status(_) => "status",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::TimeoutDns => "timeout_dns",
            Self::TimeoutConnect => "timeout_connect",
            Self::TimeoutHead => "timeout_head",
            Self::Tls => "tls",
            Self::Dns => "dns",
            Self::Malformed => "malformed",
            Self::Cancelled => "cancelled",
            Self::Unsendable => "unsendable",
            Self::Withheld => "withheld",
        }
    }

    /// The status, where the upstream answered.
    #[must_use]
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Delivered(status) | Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the upstream has the event.
    #[must_use]
    pub fn is_delivered(self) -> bool {
        matches!(self, Self::Delivered(_))
    }

    /// The name of every outcome.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["delivered", "status"].into_iter().chain(Self::WITHOUT_ANSWER.into_iter().map(Self::name))
    }

    /// Every outcome without an answer, in the order of the documentation.
    const WITHOUT_ANSWER: [Self; 11] = [
        Self::Refused,
        Self::Reset,
        Self::TimeoutDns,
        Self::TimeoutConnect,
        Self::TimeoutHead,
        Self::Tls,
        Self::Dns,
        Self::Malformed,
        Self::Cancelled,
        Self::Unsendable,
        Self::Withheld,
    ];
}

/// What follows for the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Follows {
    /// It is delivered.
    Settled,
    /// It is tried again until this is used up, then it is dead.
    Retried(Limit),
    /// It is dead at once; a person can replay it.
    Dead,
}

/// What ends the retries of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// `retry.attempts`, and `retry.max_age`: the upstream looked at this event and does not want it.
    Attempts,
    /// `retry.max_age` alone: the fault is not the event's, and a night of it must lose nothing.
    Age,
}

impl fmt::Display for Follows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settled => "settled",
            Self::Retried(Limit::Attempts) => "retried, at most retry.attempts times and retry.max_age long",
            Self::Retried(Limit::Age) => "retried, retry.max_age long",
            Self::Dead => "dead letter at once",
        })
    }
}

/// What follows from `outcome`, where `never` lists the statuses that are not retried and `retry_after` is what the answer said.
/// A 2xx is settled whatever the rules say.
#[must_use]
pub fn follows(outcome: Outcome, never: &[u16], retry_after: Option<RetryAfter>) -> Follows {
    match outcome {
        Outcome::Delivered(_) => Follows::Settled,
        Outcome::Status(_) if retry_after == Some(RetryAfter::Never) => Follows::Dead,
        Outcome::Status(status) if never.contains(&status.as_u16()) => Follows::Dead,
        // 408, 425 and 429 say "not now" and nothing about the event (RFC 9110 §15.5.9, RFC 8470 §5.2, RFC 6585 §4).
        Outcome::Status(status) if matches!(status.as_u16(), 408 | 425 | 429) => Follows::Retried(Limit::Age),
        Outcome::Status(status) if status.is_client_error() => Follows::Retried(Limit::Attempts),
        Outcome::Status(_)
        | Outcome::Refused
        | Outcome::Reset
        | Outcome::TimeoutDns
        | Outcome::TimeoutConnect
        | Outcome::TimeoutHead
        | Outcome::Tls
        | Outcome::Dns
        | Outcome::Malformed
        | Outcome::Cancelled
        | Outcome::Withheld => Follows::Retried(Limit::Age),
        Outcome::Unsendable => Follows::Dead,
    }
}

/// One line of the table from outcomes to what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A status, a range of them, or an outcome's name.
    pub outcome: String,
    /// What follows.
    pub follows: Follows,
}

/// The whole rule as a table, computed from [`follows`] itself, for `fairlane check` to print.
#[must_use]
pub fn table(never: &[u16]) -> Vec<Row> {
    let statuses = (200..=599).filter_map(|code| StatusCode::from_u16(code).ok());
    let mut ranges: Vec<(u16, u16, Follows)> = Vec::new();
    for status in statuses {
        let (code, follows) = (status.as_u16(), follows(Outcome::of(status), never, None));
        match ranges.last_mut() {
            Some((_, last, same)) if *same == follows => *last = code,
            _ => ranges.push((code, code, follows)),
        }
    }
    let answered = ranges.into_iter().map(|(first, last, follows)| {
        let outcome = if first == last { first.to_string() } else { format!("{first}-{last}") };
        Row { outcome, follows }
    });
    let unwanted = Row {
        outcome: "any failure with Retry-After: -1".to_owned(),
        follows: follows(Outcome::Status(StatusCode::SERVICE_UNAVAILABLE), never, Some(RetryAfter::Never)),
    };
    let unanswered = Outcome::WITHOUT_ANSWER
        .into_iter()
        .map(|outcome| Row { outcome: outcome.name().to_owned(), follows: follows(outcome, never, None) });
    answered.chain([unwanted]).chain(unanswered).collect()
}

/// One attempt that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The how-manieth, from 1.
    pub number: u32,
    /// When it began.
    pub started: Wall,
    /// How long it held its slot.
    pub took: Duration,
    /// What it gave.
    pub outcome: Outcome,
    /// What follows from that.
    pub follows: Follows,
    /// What went wrong, in words for a person; empty where nothing did.
    pub error: Box<str>,
    /// When the upstream wants to be asked again; only read from failures.
    pub retry_after: Option<RetryAfter>,
    /// Whom it holds back, where the upstream says so.
    pub retry_scope: Option<RetryScope>,
    /// What the upstream answered.
    pub answer: Option<Answer>,
}

impl Attempt {
    /// The attempt that the driver notes after it has dropped an attempt's future.
    #[must_use]
    pub fn cancelled(number: u32, started: Wall, took: Duration, why: &str) -> Self {
        Self::without_answer(number, started, took, Outcome::Cancelled, why)
    }

    /// The attempt that the driver notes when there is nothing that could be sent, and never will be.
    #[must_use]
    pub fn unsendable(number: u32, why: &str) -> Self {
        Self::without_answer(number, Wall(0), Duration::ZERO, Outcome::Unsendable, why)
    }

    /// The attempt that is not made, since this node's lease has run out.
    #[must_use]
    pub fn withheld(number: u32) -> Self {
        let why = "nothing was sent: this node's lease had run out";
        Self::without_answer(number, Wall(0), Duration::ZERO, Outcome::Withheld, why)
    }

    fn without_answer(number: u32, started: Wall, took: Duration, outcome: Outcome, why: &str) -> Self {
        Self {
            number,
            started,
            took,
            outcome,
            follows: follows(outcome, &[], None),
            error: why.into(),
            retry_after: None,
            retry_scope: None,
            answer: None,
        }
    }
}

/// An answer, as much of it as was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its header lines, as they came.
    pub headers: HeaderMap,
    /// The beginning of its body, at most [`super::Job::keep_bytes`].
    pub body: Bytes,
    /// What came of the rest.
    pub end: BodyEnd,
}

/// How far the body of an answer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it is there.
    Whole,
    /// It is longer than what was to be kept.
    TooLong,
    /// The connection broke, or its framing is wrong.
    BrokeOff,
    /// The deadline passed.
    Late,
}
