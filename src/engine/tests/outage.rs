//! A night without the upstream: six hours, one event a second, and what happens when it is back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::rig::{Dice, Rig, lane, ms, quantile, row};
use crate::engine::*;

const GROUPS: u64 = 50;
const DOWN: Duration = Duration::from_secs(6 * 3_600);
const START: Mono = Mono(3_600_000_000);

/// Six hours of refused connections, then calls of 50 ms; another hour of arrivals.
fn night() -> Rig {
    let back = START.plus(DOWN);
    let mut dice = Dice(17);
    let mut rig = Rig::new(Settings::default()).answering(move |_, now| {
        if now < back { (ms(1), Ending::NoAnswer) } else { (dice.exponential(ms(50)), Ending::Success) }
    });
    rig.trace = Some(Vec::new());
    for n in 0..DOWN.as_secs() + 3_600 {
        rig.arrive_at(&lane(&format!("g{}", n % GROUPS)), START.plus(Duration::from_secs(n)).plus(ms(500)));
    }
    // It has nothing to do with the night: its first event comes a minute after the end.
    for n in 60..120 {
        rig.arrive_at(&lane("newcomer"), back.plus(Duration::from_secs(n)));
    }
    rig
}

#[test]
fn a_night_without_the_upstream_loses_nothing_and_ends_without_a_wave() {
    let mut rig = night();
    rig.run(DOWN);
    let waiting = rig.engine.totals();
    assert_eq!(waiting.dead, 0);
    assert_eq!(waiting.queued + waiting.retrying + waiting.in_flight, DOWN.as_secs());
    let during = rig.trace.as_ref().map_or(0, Vec::len);
    // A group that has not failed of late may try one, the others a probe at a time: some attempts a minute, not a storm.
    assert!(during < DOWN.as_secs() as usize / 2, "{during} attempts in vain");

    let back = rig.now;
    let (mut ended, mut started) = (rig.delivered(), during);
    // In steps of a millisecond: never more in flight than four and one for each success since.
    while rig.engine.slots().busy < 60 {
        rig.run(ms(1));
        let (slots, delivered) = (rig.engine.slots(), rig.delivered());
        let allowed = 4 + (delivered - ended);
        assert!(u64::from(slots.busy) <= allowed, "{} in flight after {} successes", slots.busy, delivered - ended);
        assert!(rig.now < back.plus(Duration::from_secs(120)), "it does not recover: {slots:?}");
    }
    let recovered = rig.now.since(back);
    rig.run(Duration::from_secs(3_600));
    rig.drain();
    let totals = rig.engine.totals();
    assert_eq!((totals.dead, totals.delivered), (0, DOWN.as_secs() + 3_600 + 60));
    (ended, started) = (rig.delivered() - ended, rig.trace.as_ref().map_or(0, Vec::len) - started);
    assert_eq!(ended, started as u64, "every attempt after the night is a delivery");
    row("6 h without upstream: attempts in vain", &during.to_string());
    row("6 h without upstream: all slots busy after", &format!("{recovered:?}"));

    let trace = rig.trace.iter().flatten();
    let after = |name: &'static str| trace.clone().filter(move |(at, d)| *at > back && d.lane.group.as_str() == name);
    let mut waits: Vec<Duration> = after("newcomer").map(|(_, d)| d.wait).collect();
    assert_eq!(waits.len(), 60);
    let p99 = quantile(&mut waits, 0.99);
    row("6 h without upstream: p99 wait of a newcomer a minute later", &format!("{p99:?}"));
    assert!(p99 <= ms(50), "{p99:?}");
}

#[test]
fn after_a_night_fresh_events_go_first_and_retries_are_not_starved() {
    let mut rig = night();
    rig.run(DOWN);
    let back = rig.now;
    let retrying: BTreeSet<_> =
        rig.store.pending.iter().filter(|(_, row)| row.event.due.is_some()).map(|(seq, _)| *seq).collect();
    assert!(retrying.len() > 200, "{} of them", retrying.len());
    rig.run(Duration::from_secs(3_600));
    // By lane, in the order of leases: whether each was a retry.
    let mut leases: BTreeMap<Group, Vec<bool>> = BTreeMap::new();
    for (_, dispatch) in rig.trace.iter().flatten().filter(|(at, _)| *at >= back) {
        leases.entry(dispatch.lane.group.clone()).or_default().push(dispatch.attempt > 1);
    }
    let mut mixed = 0;
    for (group, leases) in &leases {
        let last_fresh = leases.iter().rposition(|retry| !retry).unwrap_or(0);
        // While a backlog of fresh events was there; the hour's own arrivals come later, one by one.
        let backlog = &leases[..last_fresh.min(300)];
        for four in backlog.windows(4) {
            let retries = four.iter().filter(|retry| **retry).count();
            assert!(retries <= 1, "{group}: retries before fresh events: {four:?}");
        }
        mixed += backlog.iter().filter(|retry| **retry).count();
    }
    assert!(mixed > 50, "only {mixed} retries went while fresh events waited");
    let late = rig.engine.retries_overdue(Duration::from_secs(10));
    assert_eq!(late, 0);
    assert!(retrying.iter().all(|seq| !rig.store.pending.contains_key(seq)), "every one was tried again");
}
