//! What each group has had: events accepted, delivered, dead, worker time, and its last minute. Nothing here decides anything.
//!
//! A ledger goes with its group while the group is active. Of idle ones the last [`IDLE_MAX`] are kept, so that an hour later a person
//! still sees what a group had; `since` says from when on it counts, so that nobody takes a young number for an old one.

use std::collections::{BTreeMap, HashMap};

use super::stats::Stats;
use crate::event::{Group, Mono};

/// Ledgers of idle groups. At some 500 bytes each they stay within what idle groups may take in all (10 MB).
pub(super) const IDLE_MAX: usize = 10_000;

/// With more active groups than this only those with [`STATS_EVENTS`] events at a time get statistics: a million with one event each must
/// fit, and what an event of them costs is how much of memory it touches.
pub(super) const STATS_MAX: usize = 10_000;

/// So many events of one group are more than what one change at a tenant's makes: a backlog begins.
pub(super) const STATS_EVENTS: u64 = 5;

/// One group's sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// When it began to count.
    pub(super) since: Mono,
    /// Events that became durable; replays are none.
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) worker_us: u64,
    pub(super) stats: Option<Box<Stats>>,
}

impl Ledger {
    pub(super) fn new(since: Mono) -> Self {
        Self { since, ..Self::default() }
    }

    /// An event ended: delivered, dead, or neither.
    pub(super) fn ended(&mut self, delivered: u64, dead: u64, now: Mono) {
        self.delivered += delivered;
        self.dead += dead;
        if let Some(stats) = &mut self.stats {
            stats.minute.ended(now);
        }
    }

    /// Time of a worker, in microseconds.
    pub(super) fn worked(&mut self, us: u64, now: Mono) {
        self.worker_us += us;
        if let Some(stats) = &mut self.stats {
            stats.minute.worked(us, now);
        }
    }
}

/// Those of idle groups, the one that has been idle longest first to go.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    idle: HashMap<Group, (u64, Ledger)>,
    /// By when they fell asleep.
    order: BTreeMap<u64, Group>,
    last: u64,
}

impl Ledgers {
    /// A group became idle.
    pub(super) fn put(&mut self, name: Group, ledger: Ledger) {
        if self.idle.len() >= IDLE_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.idle.remove(&oldest);
        }
        self.last += 1;
        self.order.insert(self.last, name.clone());
        if let Some((old, _)) = self.idle.insert(name, (self.last, ledger)) {
            self.order.remove(&old);
        }
    }

    /// A group became active.
    pub(super) fn take(&mut self, name: &Group) -> Option<Ledger> {
        let (number, ledger) = self.idle.remove(name)?;
        self.order.remove(&number);
        Some(ledger)
    }

    pub(super) fn get(&self, name: &Group) -> Option<&Ledger> {
        self.idle.get(name).map(|(_, ledger)| ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_is_forgotten_first_and_no_more_are_kept_than_may_be() {
        let name = |n: usize| Group::of(&[n.to_string()]);
        let mut ledgers = Ledgers::default();
        for n in 0..IDLE_MAX {
            ledgers.put(name(n), Ledger::new(Mono(n as u64)));
        }
        // The first was active again: it is the youngest now.
        let first = ledgers.take(&name(0)).unwrap();
        ledgers.put(name(0), first);
        ledgers.put(name(IDLE_MAX), Ledger::new(Mono(7)));
        assert!(ledgers.get(&name(1)).is_none());
        assert_eq!(ledgers.get(&name(0)).map(|ledger| ledger.since), Some(Mono(0)));
        assert_eq!((ledgers.idle.len(), ledgers.order.len()), (IDLE_MAX, IDLE_MAX));
    }
}
