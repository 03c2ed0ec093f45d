//! Groups without a pending event that still matter: they owe worker time, or a rate, failures, a breaker or a `Retry-After` still
//! bind them. A record goes when forgetting it changes nothing (R3); two are looked at in every step, so that none of them is long.

use std::collections::{HashMap, VecDeque};

use super::breaker::OfGroup;
use super::group::GroupState;
use super::price::Ewma;
use super::rate::Gcra;
use super::tags::Tag;
use crate::event::{Group, Mono};

/// Looked at in one step: two, so that the sweep is faster than groups can fall asleep.
const LOOKS: usize = 2;

/// Records at most: at some 100 bytes each and two for its name, 1 M groups that still owe take less than 100 MB.
const RECORDS_MAX: usize = 1_000_000;

#[derive(Debug)]
struct Record {
    /// Which sleep this is: an older entry in the order is void.
    sleep: u64,
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
    breaker: OfGroup,
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
    records: HashMap<Group, Record>,
    order: VecDeque<(Group, u64)>,
    sleeps: u64,
}

impl Dormant {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// A group falls asleep.
    pub(super) fn put(&mut self, mut group: GroupState, moment: Moment) {
        let bound = Bound::of(&mut group, moment);
        if group.tag <= moment.v && bound.is_none() {
            return;
        }
        self.sleeps += 1;
        let sleep = self.sleeps;
        let record = Record { sleep, tag: group.tag, estimate: group.estimate, slow: group.slow, bound };
        self.order.push_back((group.name.clone(), sleep));
        self.records.insert(group.name, record);
        while self.order.len() > RECORDS_MAX {
            self.forget_oldest();
        }
    }

    /// The one that has been asleep longest is forgiven what it owes.
    fn forget_oldest(&mut self) {
        let Some((name, sleep)) = self.order.pop_front() else { return };
        if self.records.get(&name).is_some_and(|record| record.sleep == sleep) {
            self.records.remove(&name);
        }
    }

    /// A group wakes up: what was remembered of it is put into `group`.
    pub(super) fn wake(&mut self, group: &mut GroupState) {
        let Some(record) = self.records.remove(&group.name) else { return };
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
        for _ in 0..LOOKS {
            let Some((name, sleep)) = self.order.pop_front() else { return };
            let Some(record) = self.records.get(&name).filter(|record| record.sleep == sleep) else { continue };
            if record.tag <= moment.v && record.bound.as_ref().is_none_or(|bound| bound.is_over(moment)) {
                self.records.remove(&name);
            } else {
                self.order.push_back((name, sleep));
            }
        }
    }
}
