//! Groups without a pending event that still matter: they owe worker time, or a rate, failures, a breaker or a `Retry-After` still
//! bind them. A record goes when forgetting it changes nothing (R3); two are looked at in every step, so that none of them is long.

use std::hash::{BuildHasher as _, RandomState};

use super::breaker::OfGroup;
use super::group::GroupState;
use super::index::Index;
use super::lazy::Lazy;
use super::price::Ewma;
use super::rate::Gcra;
use super::slab::Slab;
use super::tags::Tag;
use crate::event::Mono;

/// Looked at in one step: two, so that the sweep is faster than groups can fall asleep.
const LOOKS: usize = 2;

/// Records at most: at 48 bytes each and 16 to find it by, 1 M groups that still owe take less than 100 MB.
const RECORDS_MAX: usize = 1_000_000;

#[derive(Debug)]
struct Record {
    /// What stands for the name, which would take more than all the rest: 64 bits of a hash that nobody can foresee. That two of a million
    /// groups share one happens once in 40 million such gateways, and then one of them has the debt of the other.
    name: u64,
    tag: Tag,
    estimate: Ewma,
    slow: bool,
    /// What binds it beyond its tag; most have nothing.
    bound: Option<Box<Bound>>,
}

#[derive(Debug)]
struct Bound {
    rate: Option<Box<Gcra>>,
    held_until: Mono,
    breaker: Lazy<OfGroup>,
    failed: Option<Mono>,
}

/// What decides whether a record still matters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) v: Tag,
    pub(super) now: Mono,
    /// Failures from before this mean nothing to any breaker.
    pub(super) past: Mono,
}

impl Bound {
    fn of(group: &mut GroupState, moment: Moment) -> Option<Box<Self>> {
        let bound = Self {
            rate: group.rate.take(),
            held_until: group.held_until,
            breaker: std::mem::take(&mut group.breaker),
            failed: group.failed,
        };
        (!bound.is_over(moment)).then(|| Box::new(bound))
    }

    fn is_over(&self, Moment { now, past, .. }: Moment) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.is_rested(now))
            && self.held_until <= now
            && self.breaker.is_rested(past)
            && self.failed.is_none_or(|at| at < past)
    }
}

/// The records, and a hand that goes around them.
#[derive(Debug, Default)]
pub(super) struct Dormant {
    hasher: RandomState,
    index: Index,
    records: Slab<Record>,
    hand: u32,
}

impl Dormant {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// A group falls asleep.
    pub(super) fn put(&mut self, mut group: GroupState, moment: Moment) {
        let bound = Bound::of(&mut group, moment);
        if group.tag <= moment.v && bound.is_none() {
            return;
        }
        let name = self.hasher.hash_one(&group.name);
        drop(self.take(name));
        if self.len() >= RECORDS_MAX {
            self.forget_next();
        }
        let record = Record { name, tag: group.tag, estimate: group.estimate, slow: group.slow, bound };
        let number = self.records.insert(record);
        let records = &self.records;
        self.index.insert(name, number, |number| name_of(records, number));
    }

    /// A group wakes up: what was remembered of it is put into `group`.
    pub(super) fn wake(&mut self, group: &mut GroupState) {
        if self.len() == 0 {
            return;
        }
        let Some(record) = self.take(self.hasher.hash_one(&group.name)) else { return };
        group.tag = record.tag;
        group.changed = true;
        group.estimate = record.estimate;
        group.slow = record.slow;
        if let Some(bound) = record.bound {
            group.rate = bound.rate;
            group.held_until = bound.held_until;
            group.breaker = bound.breaker;
            group.failed = bound.failed;
        }
    }

    /// Forgets those of the next few that owe nothing more.
    pub(super) fn sweep(&mut self, moment: Moment) {
        if self.len() == 0 {
            return;
        }
        for _ in 0..LOOKS {
            let number = self.turn();
            let Some(record) = self.records.get(number) else { continue };
            if record.tag <= moment.v && record.bound.as_ref().is_none_or(|bound| bound.is_over(moment)) {
                self.remove(record.name, number);
            }
        }
        if self.len() == 0 {
            // What very many took is given back.
            (self.index, self.records, self.hand) = (Index::default(), Slab::default(), 0);
        }
    }

    /// Where the hand is; it goes on.
    fn turn(&mut self) -> u32 {
        let number = self.hand;
        self.hand = if (number as usize) + 1 < self.records.places() { number + 1 } else { 0 };
        number
    }

    /// With as many records as may be, every place is taken: the one that was looked at longest ago is forgiven what it owes.
    fn forget_next(&mut self) {
        let number = self.turn();
        if let Some(record) = self.records.get(number) {
            self.remove(record.name, number);
        }
    }

    fn take(&mut self, name: u64) -> Option<Record> {
        let number = self
            .index
            .numbers(name)
            .find(|number| self.records.get(*number).is_some_and(|record| record.name == name))?;
        self.remove(name, number)
    }

    fn remove(&mut self, name: u64, number: u32) -> Option<Record> {
        let records = &self.records;
        self.index.remove(name, number, |number| name_of(records, number));
        self.records.remove(number)
    }
}

fn name_of(records: &Slab<Record>, number: u32) -> u64 {
    records.get(number).map_or(0, |record| record.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Policy;
    use crate::event::Group;

    const NOTHING: Moment = Moment { v: Tag::LOWEST, now: Mono(0), past: Mono(0) };

    fn group(n: usize, tag: Tag) -> GroupState {
        let mut group = GroupState::new(Group::of(&[n.to_string()]), Policy::default());
        group.tag = tag;
        group
    }

    fn owes(us: u64) -> Tag {
        Tag::of(us, super::super::tags::Weight::ONE)
    }

    #[test]
    fn a_million_debts_are_kept_and_no_more_and_what_is_kept_comes_back() {
        let mut dormant = Dormant::default();
        for n in 0..RECORDS_MAX + 10 {
            dormant.put(group(n, owes(n as u64)), NOTHING);
        }
        assert_eq!((dormant.len(), dormant.records.places()), (RECORDS_MAX, RECORDS_MAX));
        let mut woken = |n: usize| {
            let mut group = group(n, Tag::LOWEST);
            dormant.wake(&mut group);
            group.tag
        };
        // The first ten made room for the last.
        assert_eq!((woken(9), woken(10)), (Tag::LOWEST, owes(10)));
        assert_eq!(woken(RECORDS_MAX + 9), owes(RECORDS_MAX as u64 + 9));
        assert_eq!(woken(10), Tag::LOWEST, "a debt is taken along once");
        assert_eq!(dormant.len(), RECORDS_MAX - 2);
        let paid = Moment { v: owes(u64::MAX), ..NOTHING };
        for _ in 0..RECORDS_MAX.div_ceil(LOOKS) {
            dormant.sweep(paid);
        }
        assert_eq!((dormant.len(), dormant.records.places()), (0, 0), "memory and all");
    }

    /// Who grows a record has to say so here: a million of them must fit.
    #[test]
    fn a_record_is_small() {
        assert_eq!(size_of::<Option<Record>>(), 48);
    }
}
