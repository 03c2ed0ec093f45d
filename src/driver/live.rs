//! Live requests: one task each, from its arrival to its answer.
//!
//! The task holds the request and whoever waits for the answer. It ends when the answer is given, when the engine refuses it, or when
//! nobody waits any more; a sender that goes away while the attempt is under way cancels it. Nothing of it reaches the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::delivery::{Done, LiveEnd, attempt};
use super::outcome;
use crate::deliver::{Answer, Attempt, BodyEnd, Deliver, Job, Outcome};
use crate::engine::{Ending, Engine, LiveDispatch, LiveId, Unserved};
use crate::event::{Event, Mono, Now, Wall};

/// The longest answer that is relayed. It is held in memory as a whole before its first byte goes out, for an answer that breaks off
/// half-way is none; what a person or a telephone call waits for is a thousandth of it.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A live request, and who waits for its answer.
pub(super) struct Call {
    pub(super) event: Arc<Event>,
    pub(super) deadline: Mono,
    pub(super) reply: oneshot::Sender<Result<Answered, Unanswered>>,
}

/// The upstream's answer, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Its status.
    pub status: StatusCode,
    /// Its header lines, as they came.
    pub headers: HeaderMap,
    /// Its body, at most [`ANSWER_BYTES_MAX`] bytes.
    pub body: Bytes,
}

/// Why there is no answer to relay. Nothing was stored and nothing will be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Its group is paused, or the upstream.
    #[error("deliveries of this group are paused")]
    Paused,
    /// A breaker is open, or the upstream asked to be left alone, for so long.
    #[error("the application has failed of late and is left alone for a while")]
    Broken(Duration),
    /// As many wait as may.
    #[error("too many requests wait for the application")]
    Full,
    /// It would have waited for about so long, which is longer than it can.
    #[error("it would have to wait for the application for longer than it can")]
    WouldWait(Duration),
    /// This node is ending.
    #[error("this node is ending")]
    Draining,
    /// It waited for its turn for as long as it can.
    #[error("it waited for its turn for as long as it can")]
    Waited,
    /// The time was over before the whole answer was there.
    #[error("the application did not answer in time")]
    Timeout,
    /// The answer is longer than [`ANSWER_BYTES_MAX`].
    #[error("the application's answer is longer than 1 MiB")]
    TooLong,
    /// The memory for bodies is taken.
    #[error("the memory for bodies is taken (listen.limits.buffered)")]
    Memory,
    /// The answer's body broke off.
    #[error("the application's answer broke off")]
    BrokeOff,
    /// The answer's status is none that an answer may end with (RFC 9110 §15).
    #[error("the application answered with a status that is none (below 200, or above 599)")]
    NoStatus,
    /// There was no answer: the outcome's name, and what it means.
    #[error("{words}")]
    Failed {
        /// As attempts have it: `refused`, `reset`, `tls` …
        outcome: &'static str,
        /// In words.
        words: &'static str,
    },
}

impl Unanswered {
    /// The names of all but those that attempts have.
    pub const NAMES: [&'static str; 11] = [
        "paused",
        "breaker",
        "full",
        "would_wait",
        "draining",
        "waited",
        "timeout",
        "answer_too_long",
        "memory",
        "answer_broke_off",
        "answer_no_status",
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Broken(_) => "breaker",
            Self::Full => "full",
            Self::WouldWait(_) => "would_wait",
            Self::Draining => "draining",
            Self::Waited => "waited",
            Self::Timeout => "timeout",
            Self::TooLong => "answer_too_long",
            Self::Memory => "memory",
            Self::BrokeOff => "answer_broke_off",
            Self::NoStatus => "answer_no_status",
            Self::Failed { outcome, .. } => outcome,
        }
    }
}

impl From<Unserved> for Unanswered {
    fn from(why: Unserved) -> Self {
        match why {
            Unserved::Paused => Self::Paused,
            Unserved::Broken(left) => Self::Broken(left),
            Unserved::Full => Self::Full,
            Unserved::WouldWait(wait) => Self::WouldWait(wait),
            Unserved::Late => Self::Waited,
            Unserved::Draining => Self::Draining,
        }
    }
}

/// What a waiting task is told.
enum Turn {
    /// Make the attempt.
    Go { dispatch: LiveDispatch, deliver: Deliver, cancelled: oneshot::Receiver<()> },
    /// There will be none.
    Unserved(Unserved),
}

/// The tasks that wait for their turn.
#[derive(Default)]
pub(super) struct Calls(HashMap<LiveId, oneshot::Sender<Turn>>);

impl Calls {
    /// Takes a request to the engine, and begins its task unless it is refused at once.
    pub(super) fn take(&mut self, call: Call, work: &mut JoinSet<Done>, engine: &mut Engine, now: Now) {
        if call.reply.is_closed() {
            return;
        }
        match engine.on_live(&call.event.lane.group, call.deadline, now) {
            Ok(id) => {
                let (turn, waits) = oneshot::channel();
                self.0.insert(id, turn);
                work.spawn(serve(id, call, waits));
            }
            Err(why) => answer(call.reply, Err(why.into())),
        }
    }

    /// Its turn has come. Should its sender have gone in the same moment, the lease ends unused.
    pub(super) fn go(
        &mut self,
        dispatch: LiveDispatch,
        deliver: Deliver,
        cancelled: oneshot::Receiver<()>,
        work: &mut JoinSet<Done>,
    ) {
        let ticket = dispatch.ticket;
        let turn = self.0.remove(&dispatch.live);
        let turn = turn.map(|turn| turn.send(Turn::Go { dispatch, deliver, cancelled }));
        if !matches!(turn, Some(Ok(()))) {
            let (ending, took) = (Ending::NotSent, Duration::ZERO);
            work.spawn(async move { Done::Live(Some(LiveEnd { ticket, ending, took, error: Box::default() })) });
        }
    }

    /// It will have no turn.
    pub(super) fn refuse(&mut self, live: LiveId, why: Unserved) {
        let turn = self.0.remove(&live);
        if turn.is_some_and(|turn| turn.send(Turn::Unserved(why)).is_err()) {
            tracing::debug!(live = live.0, "a live request's sender had gone before it was refused");
        }
    }

    /// Its sender has gone.
    pub(super) fn forget(&mut self, live: LiveId) {
        self.0.remove(&live);
    }
}

/// One live request's task.
async fn serve(id: LiveId, call: Call, turn: oneshot::Receiver<Turn>) -> Done {
    let Call { event, mut reply, .. } = call;
    let turn = tokio::select! {
        biased;
        turn = turn => turn,
        () = reply.closed() => return Done::LiveGone(id),
    };
    match turn {
        Ok(Turn::Go { dispatch, deliver, cancelled }) => go(event, reply, dispatch, &deliver, cancelled).await,
        Ok(Turn::Unserved(why)) => {
            answer(reply, Err(why.into()));
            Done::Live(None)
        }
        // The driver is ending; dropping `reply` says so.
        Err(_) => Done::Live(None),
    }
}

async fn go(
    event: Arc<Event>,
    mut reply: oneshot::Sender<Result<Answered, Unanswered>>,
    dispatch: LiveDispatch,
    deliver: &Deliver,
    cancelled: oneshot::Receiver<()>,
) -> Done {
    let job = Job {
        wait: dispatch.wait,
        waited: dispatch.split,
        timeout: Some(dispatch.timeout),
        keep_bytes: ANSWER_BYTES_MAX,
        ..Job::new(Arc::clone(&event))
    };
    let attempt = tokio::select! {
        biased;
        attempt = attempt(deliver, job, cancelled) => attempt,
        () = reply.closed() => Attempt::cancelled(1, Wall(0), Duration::ZERO, "its sender has gone"),
    };
    let (ending, took) = (outcome::live_ending(&attempt, dispatch.wait), attempt.took);
    let ended = LiveEnd { ticket: dispatch.ticket, ending, took, error: attempt.error.clone() };
    let answered = answered(attempt);
    if let Err(why) = answered
        && !reply.is_closed()
    {
        // It leaves no record anywhere but here.
        let (source, group) = (&*event.source, &event.lane.group);
        tracing::warn!(source, %group, outcome = why.as_str(), error = &*ended.error, "a live request has no answer to relay");
    }
    answer(reply, answered);
    Done::Live(Some(ended))
}

fn answered(attempt: Attempt) -> Result<Answered, Unanswered> {
    match (attempt.outcome, attempt.answer) {
        // A sender's library takes such a status for a broken answer, or waits for another one.
        (_, Some(Answer { status, .. })) if !(200..=599).contains(&status.as_u16()) => Err(Unanswered::NoStatus),
        (_, Some(Answer { status, headers, body, end })) => match end {
            BodyEnd::Whole => Ok(Answered { status, headers, body }),
            BodyEnd::TooLong => Err(Unanswered::TooLong),
            BodyEnd::BrokeOff => Err(Unanswered::BrokeOff),
            BodyEnd::Late => Err(Unanswered::Timeout),
        },
        (Outcome::TimeoutDns | Outcome::TimeoutConnect | Outcome::TimeoutHead, None) => Err(Unanswered::Timeout),
        (outcome, None) => Err(Unanswered::Failed { outcome: outcome.name(), words: words(outcome) }),
    }
}

/// What an outcome without an answer means, for a sender. Where the upstream is stays our own business.
fn words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Refused => "no connection to the application could be made",
        Outcome::Reset => "the application closed the connection without an answer",
        Outcome::Tls => "TLS with the application failed",
        Outcome::Dns => "the application's name could not be looked up",
        Outcome::Malformed => "what the application sent is not an HTTP answer",
        Outcome::Cancelled => "the attempt was ended by an operator",
        Outcome::Withheld => "this node may not send now; another one may",
        Outcome::Unsendable => "the request cannot be sent to the application as it is",
        // These have an answer, or are timeouts.
        Outcome::Delivered(_)
        | Outcome::Status(_)
        | Outcome::TimeoutDns
        | Outcome::TimeoutConnect
        | Outcome::TimeoutHead => "the application gave no answer",
    }
}

fn answer(reply: oneshot::Sender<Result<Answered, Unanswered>>, answer: Result<Answered, Unanswered>) {
    if reply.send(answer).is_err() {
        tracing::debug!("a live request's sender had gone before it was answered");
    }
}
