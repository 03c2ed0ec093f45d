//! The figures of one rule.
//!
//! # The expected wait
//!
//! As if all requests came at once, which is what a flood looks like from behind. The receiver takes `concurrency` at a time, each for
//! `call`, so it begins one every `call ÷ concurrency`.
//!
//! - **One queue**: half of all events stand before any event, on average.
//! - **Lanes**: groups take turns, so the k-th event of a group waits for the first k of every other. That is exact for equal calls and
//!   weights; with it goes the average over all events of *small* groups, those whose events fit into the head start.
//!
//! An unbounded key shows in it by itself: every event is the first of its group, and lanes are one queue again.

use std::time::Duration;

use super::count::{Count, SHARDS, Tally};
use crate::cli::rules::Asked;
use crate::engine::Settings;
use crate::event::Group;

/// So many of the largest groups are named.
const LARGEST: usize = 5;

/// However short the calls, no group with more events is called small.
const SMALL_MAX: f64 = 10_000.0;

/// The receiver that the expected waits are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Receiver {
    pub(super) concurrency: u32,
    pub(super) call: Duration,
    /// A group with so many events or fewer is small: its calls fit into `groups.burst` as it is by default.
    pub(super) small: u64,
}

impl Receiver {
    pub(super) fn of(concurrency: u32, call: Duration) -> Self {
        let burst = Settings::default().burst.as_secs_f64();
        Self { concurrency, call, small: (burst / call.as_secs_f64()).floor().clamp(1.0, SMALL_MAX) as u64 }
    }

    /// How long it takes to begin `events` calls, one after the other in all its slots.
    fn through(self, events: f64) -> Duration {
        Duration::try_from_secs_f64(self.call.as_secs_f64() * events / f64::from(self.concurrency))
            .unwrap_or(Duration::MAX)
    }
}

/// A group and how many events it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Big {
    pub(super) group: Group,
    pub(super) events: u64,
}

/// One of the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) events: u64,
    pub(super) largest: Vec<Big>,
}

/// The figures of one rule.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) name: String,
    /// Whether the rule makes one key of several.
    pub(super) is_join: bool,
    /// Whether it is a list of expressions already.
    pub(super) is_list: bool,
    /// Requests that the rule is for.
    pub(super) events: u64,
    /// Groups that were told apart.
    pub(super) groups: u64,
    /// Whether there were more.
    pub(super) is_over: bool,
    /// Groups with one event.
    pub(super) single: u64,
    /// Lanes within the groups, where they are split.
    pub(super) lanes: Option<u64>,
    /// Events without a key, by the reason, most first.
    pub(super) missing: Vec<(&'static str, u64)>,
    pub(super) largest: Vec<Big>,
    pub(super) shards: Vec<Shard>,
    /// Groups that are small.
    pub(super) small: u64,
    /// An event's expected wait behind all others.
    pub(super) one_queue: Duration,
    /// That of a small group's in lanes; `None` where no group is small.
    pub(super) in_lanes: Option<Duration>,
}

impl Summary {
    pub(super) fn of(asked: &Asked, count: &Count, receiver: Receiver) -> Self {
        let mut missing: Vec<(&'static str, u64)> = count.missing.iter().map(|(why, events)| (*why, *events)).collect();
        missing.sort_by_key(|(_, events)| std::cmp::Reverse(*events));
        let count_if = |what: &dyn Fn(u64) -> bool| count.groups.values().filter(|tally| what(tally.events)).count();
        Self {
            name: asked.name.clone(),
            is_join: asked.is_join,
            is_list: asked.is_list,
            events: count.events,
            groups: count.groups.len() as u64,
            is_over: count.is_over(),
            single: count_if(&|events| events == 1) as u64,
            lanes: (!count.lanes.is_empty()).then_some(count.lanes.len() as u64),
            missing,
            largest: largest(count, |_| true),
            shards: shards(count),
            small: count_if(&|events| events <= receiver.small) as u64,
            one_queue: receiver.through(count.events as f64 / 2.0),
            in_lanes: in_lanes(count, receiver),
        }
    }

    /// Events without a key.
    pub(super) fn missing(&self) -> u64 {
        self.missing.iter().map(|(_, events)| events).sum()
    }

    /// A part of this rule's events, 0 to 1.
    pub(super) fn share(&self, events: u64) -> f64 {
        if self.events == 0 { 0.0 } else { events as f64 / self.events as f64 }
    }

    /// The largest group's part of the events.
    pub(super) fn largest_share(&self) -> f64 {
        self.largest.first().map_or(0.0, |big| self.share(big.events))
    }

    /// The number of the shard with most events.
    pub(super) fn fullest(&self) -> Option<(usize, &Shard)> {
        self.shards.iter().enumerate().rev().max_by_key(|(_, shard)| shard.events)
    }

    /// The median of the shards' events.
    pub(super) fn median(&self) -> f64 {
        let mut events: Vec<u64> = self.shards.iter().map(|shard| shard.events).collect();
        events.sort_unstable();
        let middle = events.len() / 2;
        let two = events.get(middle.saturating_sub(1)..=middle).unwrap_or_default();
        two.iter().sum::<u64>() as f64 / two.len().max(1) as f64
    }

    /// The fullest shard against the median; `None` where at least half of the shards are empty.
    pub(super) fn skew(&self) -> Option<f64> {
        let most = self.fullest()?.1.events;
        let median = self.median();
        (median > 0.0).then(|| most as f64 / median)
    }
}

/// The largest groups among those that `which` takes, by events and then by name.
fn largest(count: &Count, which: impl Fn(&Tally) -> bool) -> Vec<Big> {
    let mut top: Vec<(&Group, u64)> = Vec::with_capacity(LARGEST + 1);
    for (group, tally) in count.groups.iter().filter(|(_, tally)| which(tally)) {
        let at = top.partition_point(|(other, events)| (*events, group) > (tally.events, *other));
        if at < LARGEST {
            top.insert(at, (group, tally.events));
            top.truncate(LARGEST);
        }
    }
    top.into_iter().map(|(group, events)| Big { group: group.clone(), events }).collect()
}

fn shards(count: &Count) -> Vec<Shard> {
    let shard = |(number, events): (u16, &u64)| Shard {
        events: *events,
        largest: largest(count, |tally| tally.shard == number),
    };
    (0..SHARDS).zip(&count.shards).map(shard).collect()
}

/// The average wait of all events of small groups, when groups take turns.
fn in_lanes(count: &Count, receiver: Receiver) -> Option<Duration> {
    // How many groups have so many events; the last place has all that are not small, and the fallback lane is a group too.
    let mut having = vec![0_u64; usize::try_from(receiver.small + 2).unwrap_or(2)];
    let fallback = count.missing.values().sum::<u64>();
    for events in count.groups.values().map(|tally| tally.events).chain(std::iter::once(fallback)) {
        let place = usize::try_from(events.min(receiver.small + 1)).unwrap_or_default();
        having.get_mut(place).into_iter().for_each(|groups| *groups += 1);
    }
    // Of groups beyond the limit nothing is known but that each has a first event.
    let large = having.pop().unwrap_or_default();
    let mut round = having.iter().skip(1).sum::<u64>() + large + count.beyond;
    let mut small = count.groups.values().filter(|tally| tally.events <= receiver.small).count() as u64;
    let (mut before, mut waited, mut events) = (0.0, 0.0, 0_u64);
    for (k, ending) in (1_u64..).zip(having.into_iter().skip(1)) {
        // Its place within the round is as likely early as late.
        waited += small as f64 * (before + round as f64 / 2.0);
        events += small;
        before += round as f64;
        round -= ending + if k == 1 { count.beyond } else { 0 };
        small -= ending - u64::from(k == fallback);
    }
    (events > 0).then(|| receiver.through(waited / events as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Lane;

    fn counted(groups: &[(&str, u64)]) -> Count {
        let mut count = Count::default();
        for (group, events) in groups {
            for _ in 0..*events {
                count.add(Ok(Lane { group: Group::of(&[group]), inner: None }));
            }
        }
        count
    }

    /// 100 calls a second.
    fn receiver() -> Receiver {
        Receiver::of(5, Duration::from_millis(50))
    }

    #[test]
    fn the_largest_come_first_and_equal_ones_by_name() {
        let count = counted(&[("b", 2), ("a", 2), ("c", 9), ("d", 1), ("e", 1), ("f", 1)]);
        let names: Vec<String> = largest(&count, |_| true).iter().map(|big| big.group.to_string()).collect();
        assert_eq!(names, ["c", "a", "b", "d", "e"]);
    }

    #[test]
    fn a_small_group_waits_for_the_first_events_of_the_others_alone() {
        let count = counted(&[("flood", 1_000), ("small", 2)]);
        // Rounds of two: half a round before the first, a round and a half before the second.
        assert_eq!(in_lanes(&count, receiver()), Some(Duration::from_millis(20)));
        assert_eq!(receiver().through(501.0), Duration::from_millis(5_010));
    }

    #[test]
    fn an_unbounded_key_is_one_queue_again() {
        let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
        let each: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        assert_eq!(in_lanes(&counted(&each), receiver()), Some(Duration::from_secs(5)));
    }

    #[test]
    fn without_small_groups_there_is_nothing_to_say() {
        assert_eq!(receiver().small, 10);
        assert_eq!(in_lanes(&counted(&[("flood", 11)]), receiver()), None);
        assert_eq!(in_lanes(&Count::default(), receiver()), None);
    }
}
