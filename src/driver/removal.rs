//! Events that a person ends without delivering them: skipped, diverted, discarded.
//!
//! Whoever asks is answered when the end of each is durable, or when it turns out that it cannot be ended. The engine decides; this
//! remembers who waits, and what the metrics and the log have to know of an event that had no attempt.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::command::Command;
use super::replay::Out;
use super::{Ended, Handle};
use crate::engine::{Engine, Removal};
use crate::event::{EventId, Group, Lane, Now, Seq};
use crate::store::{Record, Status};

/// One event to end, as the store has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    seq: Seq,
    id: EventId,
    lane: Lane,
    #[serde(with = "crate::event::written::shared")]
    source: Arc<str>,
    retrying: bool,
    /// Why it had died, of one whose replay is taken back.
    reason: Box<str>,
}

impl Target {
    /// The event of this record; `None` unless it waits for an attempt.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        let retrying = match record.status {
            Status::Queued => false,
            Status::Retrying => true,
            Status::InFlight | Status::Delivered | Status::Dead | Status::Suppressed | Status::Discarded => {
                return None;
            }
        };
        let (id, lane, source) = (record.id, record.lane.clone(), Arc::clone(&record.source));
        Some(Self { seq: record.seq, id, lane, source, retrying, reason: Box::default() })
    }

    /// An event that a replay has under way, to be taken back before its attempt.
    pub(super) fn of_replay(out: Out) -> Self {
        let Out { seq, id, lane, source, reason, .. } = out;
        Self { seq, id, lane, source, retrying: false, reason }
    }

    pub(super) fn seq(&self) -> Seq {
        self.seq
    }
}

/// What became of the wish to end an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removed {
    /// It has ended, durably; where it held an order key, the next event of that goes on.
    Ended,
    /// An attempt of it is under way, or what follows that is being written.
    InFlight,
    /// It waits for nothing any more.
    Gone,
    /// Its shard is another node's, or is just being taken over: whoever owns it can end it.
    Moved,
}

/// Who is answered with what, when all of a batch are durable.
struct Batch {
    results: Vec<Removed>,
    left: usize,
    reply: oneshot::Sender<Vec<Removed>>,
}

/// What is known of an event whose end is on its way.
pub(super) struct Ending {
    pub(super) source: Arc<str>,
    pub(super) id: EventId,
    pub(super) group: Group,
    reason: Box<str>,
    batch: u64,
}

/// Ends that are not durable yet.
#[derive(Default)]
pub(super) struct Removals {
    ending: HashMap<Seq, Ending>,
    batches: HashMap<u64, Batch>,
    last: u64,
}

impl Removals {
    /// Has these ended, and answers when all that can be are.
    pub(super) fn begin(
        &mut self,
        targets: Vec<Target>,
        removal: Removal,
        reply: oneshot::Sender<Vec<Removed>>,
        (engine, is_here): (&mut Engine, impl Fn(Seq) -> bool),
        now: Now,
    ) {
        let ends = |engine: &mut Engine, target: &Target| match removal {
            Removal::Withdraw(was) => engine.withdraw(&target.lane, target.seq, was, now),
            _ => engine.remove(&target.lane, target.seq, removal, target.retrying, now),
        };
        self.last += 1;
        let mut batch = Batch { results: Vec::with_capacity(targets.len()), left: 0, reply };
        for target in targets {
            let result = if !is_here(target.seq) {
                Removed::Moved
            } else if engine.is_under_way(target.seq) {
                Removed::InFlight
            } else if ends(engine, &target) {
                batch.left += 1;
                let Target { seq, id, lane, source, reason, .. } = target;
                self.ending.insert(seq, Ending { source, id, group: lane.group, reason, batch: self.last });
                Removed::Ended
            } else {
                Removed::Gone
            };
            batch.results.push(result);
        }
        self.batches.insert(self.last, batch);
        self.answer(self.last);
    }

    /// Why an event had died whose replay is being taken back for another node; `None` where nobody said so.
    pub(super) fn reason(&self, seq: Seq) -> Option<Box<str>> {
        self.ending.get(&seq).map(|ending| ending.reason.clone()).filter(|reason| !reason.is_empty())
    }

    /// The end of an event is durable: what is known of it, where a person had it ended.
    pub(super) fn ended(&mut self, seq: Seq) -> Option<Ending> {
        let ending = self.ending.remove(&seq)?;
        if let Some(batch) = self.batches.get_mut(&ending.batch) {
            batch.left -= 1;
        }
        self.answer(ending.batch);
        Some(ending)
    }

    fn answer(&mut self, number: u64) {
        if self.batches.get(&number).is_some_and(|batch| batch.left == 0)
            && let Some(Batch { results, reply, .. }) = self.batches.remove(&number)
            && reply.send(results).is_err()
        {
            tracing::debug!("whoever had events ended has gone");
        }
    }
}

impl Handle {
    /// Ends events without delivering them; one answer an event, when every end is durable.
    ///
    /// # Errors
    /// The driver has ended; what is durable by then has ended, the rest has not.
    pub async fn remove(&self, targets: Vec<Target>, removal: Removal) -> Result<Vec<Removed>, Ended> {
        self.ask(|reply| Command::Remove(targets, removal, reply)).await
    }
}
