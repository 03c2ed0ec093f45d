//! One look over everything that waits, for alerts: counts, and the few groups that are worth naming. Nothing here changes anything.

use std::collections::BTreeSet;
use std::time::Duration;

use super::request::{BreakerState, GroupView};
use super::{DedicatedInfo, Engine, price};
use crate::event::{Group, Mono};

/// Groups that are named of each kind: more than a person acts on at a time.
const NAMED_MAX: usize = 20;

/// Groups with most pending events that are counted one by one; the others are taken together.
const LARGEST_MAX: usize = 1_000;

/// Groups of one kind: how many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// How many.
    pub count: u64,
    /// The first of them, twenty at most.
    pub named: Vec<GroupView>,
}

/// What [`Engine::survey`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// Groups whose oldest pending event is older than was asked for, the oldest first. Those that a person paused, or whose source, wait because
    /// they are to, and those whose own breaker is not closed are among the `broken`: neither is here.
    pub late: Found,
    /// Groups whose breaker is not closed, those with most pending events first.
    pub broken: Found,
    /// Groups of which a lane has as many order keys as may be, those with most pending events first.
    pub held: Found,
    /// The groups with most pending events but for paused ones, a thousand at most: how many each has, and how old its oldest is.
    pub largest: Vec<(Group, u64, Duration)>,
    /// Pending events of all groups.
    pub pending: u64,
    /// Those of groups that nobody paused, nor their sources.
    pub unpaused: u64,
    /// Retries that could go and are too late.
    pub overdue: u64,
    /// Slots that the arrivals of the last minute ask for: how many came a second, times how long each takes.
    pub demand: f64,
    /// Slots that there are.
    pub slots: u32,
    /// Slots that anybody could take now.
    pub free: u32,
    /// Dedicated slots, and the groups that would get some where none is free.
    pub dedicated: DedicatedInfo,
    /// The upstream's breaker.
    pub breaker: BreakerState,
    /// Invariants found broken so far.
    pub violations: u64,
    /// The most recent one.
    pub last_violation: Option<&'static str>,
}

/// The ids with the highest keys, so many of them at most.
struct Top<K> {
    kept: BTreeSet<(K, u32)>,
    max: usize,
    seen: u64,
}

impl<K: Ord + Copy> Top<K> {
    fn of(max: usize) -> Self {
        Self { kept: BTreeSet::new(), max, seen: 0 }
    }

    fn see(&mut self, key: K, id: u32) {
        self.seen += 1;
        // Nearly all of very many end here.
        if self.kept.len() == self.max && self.kept.first().is_some_and(|least| (key, id) <= *least) {
            return;
        }
        self.kept.insert((key, id));
        if self.kept.len() > self.max {
            self.kept.pop_first();
        }
    }

    /// Highest first.
    fn ids(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().rev().map(|(_, id)| *id)
    }
}

impl Engine {
    /// Everything that waits, in one pass: which groups are `late` (their oldest pending event is older), which are stuck, which are
    /// largest; and retries that are `overdue`. Takes time in the number of active groups and lanes.
    #[must_use]
    pub fn survey(&self, late: Duration, overdue: Duration, now: Mono) -> Survey {
        let elsewhere = self.elsewhere(None);
        let oldest =
            |gid| self.groups.get(gid).map_or(Duration::ZERO, |group| self.oldest(gid, group, &elsewhere, now));
        let (mut old, mut largest) = (Top::of(NAMED_MAX), Top::of(LARGEST_MAX));
        let (mut broken, mut held) = (Top::of(NAMED_MAX), Top::of(NAMED_MAX));
        let (mut pending, mut unpaused) = (0, 0);
        for (gid, group) in self.groups.iter() {
            let (age, depth) = (oldest(gid), group.counts.total());
            pending += depth;
            let is_broken = group.breaker.opened().is_some();
            if !group.is_paused() && self.parked_by(group).is_none() {
                unpaused += depth;
                largest.see(depth, gid);
                if age > late && !is_broken {
                    old.see(age, gid);
                }
            }
            if is_broken {
                broken.see(depth, gid);
            }
            if group.lanes().filter_map(|lid| self.lanes.get(lid)).any(super::LaneState::is_held) {
                held.see(depth, gid);
            }
        }
        let view = |gid| {
            let group = self.groups.get(gid)?;
            Some(self.view(group, oldest(gid), self.next_due(gid, group, &elsewhere), now))
        };
        let by_depth = |top: &Top<u64>| Found { count: top.seen, named: top.ids().filter_map(view).collect() };
        let sized = |gid| {
            let group = self.groups.get(gid)?;
            Some((group.name.clone(), group.counts.total(), oldest(gid)))
        };
        Survey {
            late: Found { count: old.seen, named: old.ids().filter_map(view).collect() },
            broken: by_depth(&broken),
            held: by_depth(&held),
            largest: largest.ids().filter_map(sized).collect(),
            pending,
            unpaused,
            overdue: self.retries_overdue(overdue),
            demand: self.demand(now),
            slots: self.settings.slots,
            free: self.slots().free,
            dedicated: self.dedicated(now),
            breaker: self.breaker(),
            violations: self.violations,
            last_violation: self.last_violation,
        }
    }

    /// Slots that the arrivals of the last minute ask for. A group's own estimate prices its arrivals; those of groups that never had two
    /// events at a time are known in sum, and priced as the upstream's attempts are.
    fn demand(&self, now: Mono) -> f64 {
        let guess = self.upstream.durations.guess_us();
        let seconds = |time_us| price::keeps(&self.settings, time_us) as f64 / 1e6;
        let (mut known, mut demand) = (0.0, 0.0);
        for (_, group) in self.groups.iter() {
            let Some(stats) = &group.ledger.stats else { continue };
            let rate = stats.minute.arrival_rate(now);
            known += rate;
            demand += rate * seconds(group.estimate.micros().unwrap_or(guess));
        }
        let others = (self.minute.arrival_rate(now) - known).max(0.0);
        demand + others * seconds(guess)
    }
}
