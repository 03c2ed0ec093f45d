//! Settlements on their way to the store: one batch at a time, the next one gathers meanwhile; what they mean for the engine happens
//! when they are durable and not before (I7).

use std::time::Duration;

use super::Engine;
use super::counts::Stage;
use super::ev::Ev;
use super::overflow::Member;
use super::request::{Batch, Request, Settle, Ticket, Verdict};
use crate::event::{Group, Mono, Now, Wall};

/// Settlements of one batch; the store writes them in one piece.
const BATCH_MAX: usize = 1_024;

/// A batch that failed comes again after this long, doubling to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// What happens when a settlement is durable.
#[derive(Debug)]
pub(super) enum After {
    /// The attempt is made.
    Begun(Ticket),
    /// Nothing.
    Nothing,
    /// The event is forgotten.
    Ended {
        lid: u32,
        /// The order key whose head it was.
        key: Option<Group>,
        /// It was not in memory when it was ended.
        unread: bool,
        /// Whose it was, if it waited in an overflow lane.
        member: Member,
    },
    /// The event waits for its time.
    Retry { lid: u32, at: Mono, due: Wall, ev: Box<Ev> },
    /// The event goes back to its place.
    Back { lid: u32, ev: Box<Ev> },
}

impl After {
    /// The end of an event that was leased, or waited in memory.
    pub(super) fn ended(lid: u32, ev: Ev) -> Self {
        Self::Ended { lid, key: ev.order().cloned(), unread: false, member: ev.member() }
    }
}

/// Settlements that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    gathering: Vec<(Settle, After)>,
    under_way: Vec<(Settle, After)>,
    last: u64,
    /// The batch under way has been asked for and not answered.
    asked: bool,
    /// It failed so often, and comes again then.
    failures: u32,
    again: Option<Mono>,
}

impl Outbox {
    pub(super) fn push(&mut self, settle: Settle, after: After) {
        self.gathering.push((settle, after));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathering.is_empty() && self.under_way.is_empty()
    }

    /// The batch to write now, if one is to be written.
    pub(super) fn next(&mut self) -> Option<Request> {
        if self.asked || self.again.is_some() {
            return None;
        }
        if self.under_way.is_empty() {
            let rest = self.gathering.split_off(self.gathering.len().min(BATCH_MAX));
            self.under_way = std::mem::replace(&mut self.gathering, rest);
            self.last += u64::from(!self.under_way.is_empty());
        }
        if self.under_way.is_empty() {
            return None;
        }
        self.asked = true;
        let settlements = self.under_way.iter().map(|(settle, _)| settle.clone()).collect();
        Some(Request::Settle { batch: Batch(self.last), settlements })
    }

    fn is_asked(&self, batch: Batch) -> bool {
        self.asked && batch == Batch(self.last)
    }

    pub(super) fn wake(&self) -> Option<Mono> {
        self.again
    }

    pub(super) fn tick(&mut self, now: Mono) {
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
        }
    }
}

impl Engine {
    /// A batch is durable. False when it is not the one under way; such a report changes nothing.
    pub fn on_settled(&mut self, batch: Batch, now: Now) -> bool {
        let now = self.tick(now);
        if !self.outbox.is_asked(batch) {
            return false;
        }
        self.outbox.asked = false;
        self.outbox.failures = 0;
        for (settle, after) in std::mem::take(&mut self.outbox.under_way) {
            self.settled(settle, after, now);
        }
        true
    }

    /// A batch could not be written; nothing of it is durable. It comes again, whole, until it is.
    pub fn on_settle_failed(&mut self, batch: Batch, now: Now) -> bool {
        let now = self.tick(now);
        if !self.outbox.is_asked(batch) {
            return false;
        }
        self.outbox.asked = false;
        let pause = AGAIN.saturating_mul(1 << self.outbox.failures.min(10)).min(AGAIN_MAX);
        self.outbox.failures = self.outbox.failures.saturating_add(1);
        self.outbox.again = Some(now.mono.plus(pause));
        true
    }

    fn settled(&mut self, settle: Settle, after: After, now: Now) {
        let seq = settle.seq;
        let lid = match after {
            After::Nothing => return,
            After::Begun(ticket) => return self.begun(ticket, now),
            After::Ended { lid, key, unread, member } => {
                self.overflow.leave(member);
                self.shift(lid, Some(Stage::Settling), None, 1);
                self.retries.forget(seq);
                self.count_end(lid, &settle.verdict, now.mono);
                if let Some(lane) = self.lanes.get_mut(lid) {
                    if let Some(key) = key {
                        lane.free_key(&key, now.mono);
                    }
                    if unread {
                        if self.groups.get(lane.group).is_some_and(|group| group.name.is_overflow()) {
                            self.overflow.leave_unread();
                        }
                        lane.gone_durably(seq);
                    }
                }
                lid
            }
            After::Retry { lid, at, due, ev } => {
                self.overflow.waits(ev.member(), true);
                self.shift(lid, Some(Stage::Settling), Some(Stage::Retrying), 1);
                self.wait_for(lid, at, due, ev.retries());
                lid
            }
            After::Back { lid, ev } => {
                self.overflow.waits(ev.member(), true);
                self.shift(lid, Some(Stage::Settling), Some(Stage::Queued), 1);
                self.retries.forget(seq);
                if let Some(lane) = self.lanes.get_mut(lid) {
                    lane.put_back(ev.waits_again());
                }
                lid
            }
        };
        self.touch(lid, now.mono);
    }

    fn count_end(&mut self, lid: u32, verdict: &Verdict, now: Mono) {
        let (delivered, dead, discarded) = match verdict {
            Verdict::Delivered => (1, 0, 0),
            Verdict::Dead(_) => (0, 1, 0),
            Verdict::Discarded => (0, 0, 1),
            Verdict::Begun | Verdict::RetryAt(_) | Verdict::Released => return,
        };
        self.totals.delivered += delivered;
        self.totals.dead += dead;
        self.totals.discarded += discarded;
        let gid = self.lanes.get(lid).map(|lane| lane.group);
        if let Some(group) = gid.and_then(|gid| self.groups.get_mut(gid)) {
            group.ledger.ended(delivered, dead, now);
        }
    }
}
