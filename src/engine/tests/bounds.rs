//! Bounds (R10): lanes that are shared, who stays in them, and what they may cost.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::rig::{Dice, Rig, inner, lane, ms, quantile, row_of_waits};
use crate::engine::*;
use crate::event::{Group, Lane, shard};

fn bounded(max_active: usize, inner_active: usize) -> Settings {
    Settings { max_active, inner_active, ..Settings::default() }
}

/// Where the pending events of a group wait.
fn places(rig: &Rig, group: &str) -> Vec<String> {
    let whose = |event: &Queued| event.owner.as_ref().unwrap_or(&event.lane).group.as_str() == group;
    let mut found: Vec<String> = rig
        .store
        .pending
        .values()
        .map(|row| &row.event)
        .filter(|event| whose(event))
        .map(|event| {
            let Lane { group, inner } = &event.lane;
            inner.as_ref().map_or_else(|| group.to_string(), |inner| format!("{group}/{inner}"))
        })
        .collect();
    found.dedup();
    found
}

fn overflow(group: &str) -> String {
    Group::overflow(shard(&Group::of(&[group]), OVERFLOW_LANES), None).to_string()
}

#[test]
fn groups_beyond_the_bound_share_and_stay_until_their_events_are_gone() {
    let mut rig = Rig::new(bounded(2, 100));
    rig.engine.set_upstream_paused(true);
    for group in ["a", "b", "c", "d"] {
        rig.append(&lane(group), 2);
    }
    assert_eq!((places(&rig, "a"), places(&rig, "b")), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!((places(&rig, "c"), places(&rig, "d")), (vec![overflow("c")], vec![overflow("d")]));
    let seen = rig.view("c");
    assert_eq!(seen.overflow.map(|lane| lane.to_string()), Some(overflow("c")));
    assert!(seen.reason.contains(&overflow("c")) && seen.reason.contains("2 events wait there"), "{}", seen.reason);
    assert_eq!(rig.view("a").overflow, None);
    assert_eq!(rig.engine.overflow_events(), 4);

    // Room comes while one of c's events waits: it stays.
    for seq in [1, 2, 3, 4, 5] {
        let event = rig.store.pending[&Seq(seq)].event.clone();
        let now = rig.at();
        assert!(rig.engine.remove(&event.lane, event.seq, Removal::Discard, false, now));
    }
    rig.execute();
    assert_eq!(rig.engine.active_lanes(), 2);
    rig.append(&lane("c"), 1);
    rig.append(&lane("e"), 1);
    assert_eq!(
        (places(&rig, "c"), places(&rig, "e")),
        (vec![overflow("c")], vec!["e".to_owned()]),
        "e never was there"
    );
    rig.restart(|_| Policy::default(), bounded(2, 100));
    rig.engine.set_upstream_paused(true);
    rig.append(&lane("c"), 1);
    assert_eq!(places(&rig, "c"), [overflow("c")], "after a restart, too");
    rig.engine.set_upstream_paused(false);
    rig.drain();
    rig.engine.set_upstream_paused(true);
    rig.append(&lane("c"), 1);
    assert_eq!(places(&rig, "c"), ["c"], "all its events there are gone");
    assert_eq!(rig.view("c").overflow, None);
}

#[test]
fn a_cap_of_the_backlog_is_exact_in_a_shared_lane_too() {
    let capped = |_: &Group| Policy { backlog: Some(3), ..Policy::default() };
    let mut rig = Rig::with(bounded(1, 100), capped)
        .answering(|_, _| (ms(400), Ending::Server { status: 500, retry_after: None }));
    let may = |rig: &mut Rig, group: &str| {
        let (group, now) = (Group::of(&[group]), rig.at());
        rig.engine.admit(&group, now).map(|admitted| rig.engine.on_came(&group, admitted))
    };
    rig.engine.set_upstream_paused(true);
    rig.append(&lane("a"), 1);
    for _ in 0..3 {
        may(&mut rig, "c").unwrap();
        rig.append(&lane("c"), 1);
    }
    rig.append(&lane("d"), 2);
    assert_eq!((places(&rig, "c"), rig.engine.overflow_events()), (vec![overflow("c")], 5));
    assert_eq!(may(&mut rig, "c").unwrap_err().over, Over::Backlog);
    may(&mut rig, "d").unwrap();
    rig.restart(capped, bounded(1, 100));
    assert!(may(&mut rig, "c").is_err() && may(&mut rig, "d").is_ok(), "after a restart, too");
    // What is under way does not wait, until it is to be tried again.
    rig.run(ms(100));
    may(&mut rig, "c").unwrap();
    rig.run(ms(500));
    assert_eq!(rig.engine.totals().retrying, 6);
    assert!(may(&mut rig, "c").is_err() && may(&mut rig, "d").is_ok());
    rig.engine.check_invariants().unwrap();
    // One less waits, and one more may.
    let event = rig
        .store
        .pending
        .values()
        .map(|row| &row.event)
        .find(|event| event.owner.as_ref().is_some_and(|owner| owner.group.as_str() == "c"));
    let (place, seq, now) = (event.unwrap().lane.clone(), event.unwrap().seq, rig.at());
    assert!(rig.engine.remove(&place, seq, Removal::Discard, true, now));
    may(&mut rig, "c").unwrap();
    rig.execute();
    may(&mut rig, "c").unwrap();
    rig.engine.check_invariants().unwrap();
}

#[test]
fn who_is_named_and_our_own_lanes_never_share() {
    let policy = |group: &Group| Policy { named: group.as_str() == "vip", ..Policy::default() };
    let mut rig = Rig::with(bounded(1, 100), policy);
    rig.engine.set_upstream_paused(true);
    rig.append(&lane("a"), 1);
    let part = Some(Group::of(&["/shop"]));
    let fallback = Lane { group: Group::fallback(), inner: None };
    rig.arrive(vec![(lane("vip"), part.clone(), None), (fallback, part.clone(), None), (lane("b"), part, None)], false);
    assert_eq!(
        (places(&rig, "vip"), places(&rig, "~fallback")),
        (vec!["vip".to_owned()], vec!["~fallback".to_owned()])
    );
    let own = format!("{}~%2Fshop", overflow("b"));
    assert_eq!(places(&rig, "b"), std::slice::from_ref(&own));
    // Through another source it stays where it is: its events keep their order.
    rig.append(&lane("b"), 1);
    assert_eq!(places(&rig, "b"), std::slice::from_ref(&own));
    rig.restart(policy, bounded(1_000, 100));
    rig.append(&lane("b"), 1);
    assert_eq!(places(&rig, "b"), [own]);
    rig.drain();
}

#[test]
fn one_groups_many_parts_share_its_own_lanes_and_nobody_elses() {
    let mut rig = Rig::new(bounded(1_000, 5));
    rig.engine.set_upstream_paused(true);
    for n in 0..200 {
        rig.append(&inner("flood", &format!("t{n}")), 1);
    }
    rig.append(&inner("other", "t7"), 1);
    // Five of its own, and eight that the others share.
    assert_eq!(rig.engine.active_lanes(), 5 + 8 + 1);
    assert!(places(&rig, "other") == ["other/t7"] && rig.view("flood").queued == 200);
    rig.engine.set_upstream_paused(false);
    rig.drain();
    assert_eq!((rig.engine.active_lanes(), rig.engine.overflow_events()), (0, 0));
}

/// How long a hundred quiet groups wait (99th percentile) beside one sender that takes 195 % of what 64 slots can do and names every
/// event's lane anew.
fn beside_a_splitter(what: &str, mut rig: Rig, name: impl Fn(u32) -> Lane) -> Duration {
    let mut dice = Dice(71);
    let start = rig.now;
    let (mut at, mut number) = (start, 0);
    while at < start.plus(ms(20_000)) {
        rig.arrive_at(&name(number), at);
        number += 1;
        at = at.plus(dice.exponential(ms(50) / 64).mul_f64(1.0 / 1.95));
    }
    for n in 0..100 {
        let mut at = start.plus(dice.between(ms(0), ms(3_000)));
        while at < start.plus(ms(20_000)) {
            rig.arrive_at(&lane(&format!("quiet-{n}")), at);
            at = at.plus(dice.exponential(ms(3_000)));
        }
    }
    rig.run(ms(20_000));
    let quiet = rig.got.iter().filter(|(group, _)| group.as_str().starts_with("quiet"));
    let mut waits: Vec<Duration> = quiet.flat_map(|(_, got)| got.waits.clone()).collect();
    // Those that still wait have waited at least so long.
    let now = rig.at().wall;
    let pending = rig.store.pending.values().map(|row| &row.event).filter(|event| event.due.is_none());
    let quiet = pending.filter(|event| home(event).group.as_str().starts_with("quiet") && event.attempts == 0);
    waits.extend(quiet.map(|event| now.since(event.received)));
    row_of_waits(what, &mut waits);
    assert!(waits.len() > 400, "{}", waits.len());
    quantile(&mut waits, 0.99)
}

fn calls_of_50_ms(settings: Settings) -> Rig {
    let mut dice = Dice(72);
    Rig::new(settings).answering(move |_, _| (dice.exponential(ms(50)), Ending::Success))
}

#[test]
fn a_new_part_for_every_event_costs_nobody_else_anything() {
    let rig = calls_of_50_ms(Settings { inner_active: 1_000, ..Settings::default() });
    let p99 = beside_a_splitter("a new inner key for every event", rig, |n| inner("splitter", &format!("t{n}")));
    assert!(p99 < ms(100), "{p99:?}");
}

/// What no scheduler can tell apart from as many small tenants it serves like them. Whoever signs nothing is told apart by the rate.
#[test]
fn a_new_group_for_every_event_is_as_many_tenants_unless_their_rate_is_limited() {
    let of = |n: u32| lane(&format!("new-{n}"));
    let plain = beside_a_splitter("a new group for every event", calls_of_50_ms(Settings::default()), of);
    assert!(plain > ms(1_000), "it would need no protection: {plain:?}");
    let rig = calls_of_50_ms(Settings { max_active: 1_000, ..Settings::default() });
    let bounded = beside_a_splitter("the same, with max_active 1,000", rig, of);
    assert!(bounded > ms(1_000), "a bound on memory that protects, too: {bounded:?}");
    let mut rig = calls_of_50_ms(Settings::default());
    rig.part = Some(Box::new(|lane| lane.group.as_str().starts_with("new").then(|| Group::of(&["shop"]))));
    let shared = beside_a_splitter("the same, all of them unknown beyond new_groups", rig, of);
    assert!(shared < ms(100), "{shared:?}");
}

/// An event: group, part of the group, whether its group is one too many, order key, and how much time passes before it.
type Step = (u8, Option<u8>, bool, Option<u8>, u16);

fn step() -> impl Strategy<Value = Step> {
    let key = prop::option::weighted(0.6, 0u8..3);
    (0u8..7, prop::option::weighted(0.4, 0u8..4), prop::bool::weighted(0.15), key, 0u16..400)
}

fn home(event: &Queued) -> Lane {
    event.owner.clone().unwrap_or_else(|| event.lane.clone())
}

proptest! {
    // `PROPTEST_CASES=5000` makes ten thousand of them.
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    /// Nothing is lost, no bound is passed, whoever shares stays, and each order key keeps the order of commits, whatever fails and
    /// whenever the process dies.
    #[test]
    fn shared_lanes_lose_nothing_and_keep_the_order(
        steps in prop::collection::vec(step(), 1..30),
        (max_active, inner_active) in (1usize..6, 1usize..3),
        crash in prop::option::of(0usize..30),
        bad in 0u64..40,
    ) {
        let mut settings = Settings { slots: 3, window: 4, ..bounded(max_active, inner_active) };
        settings.breakers.group.failures = u32::MAX;
        settings.breakers.upstream.failures = u32::MAX;
        settings.retry.backoff.initial = ms(200);
        let mut count = 0;
        let mut rig = Rig::new(settings.clone()).answering(move |_, _| {
            count = (count + 37) % 100;
            (ms(10 + count), if count < bad { Ending::NoAnswer } else { Ending::Success })
        });
        rig.trace = Some(Vec::new());
        let mut expected = BTreeMap::<(Lane, Group), Vec<u64>>::new();
        for (n, (group, part, many, key, pause)) in steps.iter().enumerate() {
            if crash == Some(n) {
                rig.restart(|_| Policy::default(), settings.clone());
            }
            rig.run(ms(u64::from(*pause)));
            let name = format!("g{group}");
            let of = part.map_or_else(|| lane(&name), |part| inner(&name, &format!("t{part}")));
            let order = key.map(|key| Group::of(&[format!("k{key}")]));
            rig.arrive(vec![(of.clone(), many.then(|| Group::of(&["s"])), order.clone())], false);
            if let Some(order) = order {
                expected.entry((of, order)).or_default().push(n as u64 + 1);
            }
            // Staying.
            let mut seen = BTreeMap::new();
            for event in rig.store.pending.values().map(|row| &row.event) {
                let place = seen.entry(home(event)).or_insert_with(|| event.lane.clone());
                prop_assert_eq!(&*place, &event.lane, "events of one lane in two places");
            }
            let own = rig.store.lanes().into_keys().filter(|lane| !lane.inner.as_ref().unwrap_or(&lane.group).is_overflow());
            prop_assert!(own.count() <= max_active);
            prop_assert!(rig.engine.check_invariants().is_ok(), "{:?}", rig.engine.last_violation());
        }
        rig.drain();
        prop_assert!(rig.engine.check_invariants().is_ok());
        prop_assert_eq!(rig.store.ended.len(), steps.len());
        prop_assert_eq!((rig.engine.active_lanes(), rig.engine.overflow_events()), (0, 0));
        for (whose, seqs) in expected {
            let mut leased: Vec<u64> = rig.order().into_iter().filter(|seq| seqs.contains(seq)).collect();
            leased.dedup();
            prop_assert_eq!(leased, seqs, "{:?}", whose);
        }
    }
}
