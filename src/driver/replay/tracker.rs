//! What a replay has under way: events that were made pending for it and whose first attempt has not ended.
//!
//! The driver says what becomes of each; the replay's task looks how many there are of a group before it takes more. What is to be retried
//! is not followed any further, so that a group that fails for days keeps nothing in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::event::{EventId, Group, Lane, Seq};
use crate::store::{Pending, Record, Status};

/// One event under way.
#[derive(Clone, Debug)]
pub(in crate::driver) struct Out {
    pub(in crate::driver) id: EventId,
    /// Where it stands now.
    pub(in crate::driver) seq: Seq,
    pub(in crate::driver) lane: Lane,
    pub(in crate::driver) source: Arc<str>,
    /// What it had ended as before.
    pub(in crate::driver) was: Status,
    /// Why it had died; empty where it had not, and after a restart.
    pub(in crate::driver) reason: Box<str>,
}

/// What became of the events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Made pending again.
    pub requeued: u64,
    /// Delivered by the first attempt after that.
    pub delivered: u64,
    /// Back in the dead letters after it.
    pub dead: u64,
    /// It failed and is to be retried, like any other event.
    pub retrying: u64,
    /// Taken back before an attempt, mostly because the replay was cancelled: they stand as before.
    pub withdrawn: u64,
    /// No longer there when their turn came: past retention, or replayed otherwise. Those that the list never came to, since their
    /// places were given up by then, are known when the replay is done.
    pub missed: u64,
}

impl Tally {
    /// Events of which it is known what became of them.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.delivered + self.dead + self.retrying + self.withdrawn + self.missed
    }
}

/// How the first attempt of a replayed event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum End {
    Delivered,
    Dead,
    Retrying,
    Withdrawn,
}

#[derive(Debug, Default)]
struct Inner {
    out: BTreeMap<Seq, Out>,
    by_group: HashMap<Group, usize>,
    tally: Tally,
}

/// Shared by the driver and the replay's task.
#[derive(Debug, Default)]
pub struct Tracker {
    inner: Mutex<Inner>,
    /// Told when something ended, and when a person wants something.
    pub(super) changed: Notify,
}

impl Tracker {
    /// A tracker that goes on where one before the restart was.
    pub(super) fn from(tally: Tally) -> Self {
        Self { inner: Mutex::new(Inner { tally, ..Inner::default() }), changed: Notify::new() }
    }

    /// An event was made pending; without `pending` it could not be.
    pub(in crate::driver) fn entered(&self, record: &Record, pending: Option<&Pending>) {
        let mut inner = self.inner.lock();
        let Some(pending) = pending else {
            inner.tally.missed += 1;
            return;
        };
        inner.tally.requeued += 1;
        let (lane, reason) = (pending.lane.clone(), record.reason.clone());
        let source = Arc::clone(&record.source);
        inner.put(Out { id: record.id, seq: pending.seq, lane, source, was: record.status, reason });
    }

    /// An event that was under way before the restart still is.
    pub(super) fn resume(&self, out: Out) {
        self.inner.lock().put(out);
    }

    /// Counts what became of an event while nobody followed it.
    pub(super) fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.inner.lock().tally);
    }

    /// The first attempt of an event ended, durably, or it was taken back.
    pub(in crate::driver) fn ended(&self, seq: Seq, end: End) {
        let mut inner = self.inner.lock();
        let Some(out) = inner.out.remove(&seq) else { return };
        let group = out.lane.group;
        let left = inner.by_group.get(&group).map_or(0, |count| count - 1);
        if left == 0 {
            inner.by_group.remove(&group);
        } else {
            inner.by_group.insert(group, left);
        }
        let tally = &mut inner.tally;
        match end {
            End::Delivered => tally.delivered += 1,
            End::Dead => tally.dead += 1,
            End::Retrying => tally.retrying += 1,
            End::Withdrawn => tally.withdrawn += 1,
        }
        drop(inner);
        self.changed.notify_one();
    }

    pub(super) fn tally(&self) -> Tally {
        self.inner.lock().tally
    }

    /// Events under way of a group.
    pub(super) fn of(&self, group: &Group) -> usize {
        self.inner.lock().by_group.get(group).copied().unwrap_or(0)
    }

    /// Groups with events under way.
    pub(super) fn groups(&self) -> usize {
        self.inner.lock().by_group.len()
    }

    /// Events under way.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().out.len()
    }

    /// Why an event under way had died before, where that is known.
    pub(in crate::driver) fn reason(&self, seq: Seq) -> Option<Box<str>> {
        let inner = self.inner.lock();
        inner.out.get(&seq).map(|out| out.reason.clone()).filter(|reason| !reason.is_empty())
    }

    /// One under way.
    pub(in crate::driver) fn of_seq(&self, seq: Seq) -> Option<Out> {
        self.inner.lock().out.get(&seq).cloned()
    }

    /// All of them.
    pub(in crate::driver) fn out(&self) -> Vec<Out> {
        self.inner.lock().out.values().cloned().collect()
    }

    /// The groups with most events under way, at most `limit`.
    pub(super) fn most(&self, limit: usize) -> Vec<(Group, usize)> {
        let mut all: Vec<(Group, usize)> =
            self.inner.lock().by_group.iter().map(|(group, count)| (group.clone(), *count)).collect();
        all.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        all.truncate(limit);
        all
    }
}

impl Inner {
    fn put(&mut self, out: Out) {
        *self.by_group.entry(out.lane.group.clone()).or_default() += 1;
        self.out.insert(out.seq, out);
    }
}
