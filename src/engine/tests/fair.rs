//! Fairness: the table of DESIGN.md §3, weights, head start, slow groups, two levels.

use std::time::Duration;

use super::rig::{Answer, Dice, Rig, inner, lane, ms, quantile, row, row_of_waits};
use crate::engine::*;

fn exponential(seed: u64) -> Answer {
    let mut dice = Dice(seed);
    Box::new(move |_, _| (dice.exponential(ms(50)), Ending::Success))
}

/// Every flood always has 20 events waiting.
fn flood(rig: &mut Rig, count: usize) {
    rig.refill = Some(Box::new(|lane| lane.group.as_str().starts_with("flood")));
    for n in 0..count {
        rig.append(&lane(&format!("flood-{n}")), 20);
    }
}

/// `count` groups with an event every six seconds on average, in bursts.
fn trickle(rig: &mut Rig, count: usize, burst: u32, span: Duration) {
    let mut dice = Dice(77);
    let period = ms(6_000) * burst;
    for n in 0..count {
        let lane = lane(&format!("quiet-{n}"));
        let mut at = rig.now.plus(dice.between(ms(0), period));
        while at < rig.now.plus(span) {
            (0..burst).for_each(|_| rig.arrive_at(&lane, at));
            at = at.plus(dice.exponential(period));
        }
    }
}

fn quiet_waits(rig: &Rig) -> Vec<Duration> {
    let quiet = rig.got.iter().filter(|(group, _)| group.as_str().starts_with("quiet"));
    quiet.flat_map(|(_, got)| got.waits.clone()).collect()
}

/// What 500 quiet groups wait beside `floods`, after the first round: in that everybody is new and nobody has a head start before others.
pub(super) fn floods_and_bursts(rig: &mut Rig, floods: usize, burst: u32) -> Vec<Duration> {
    flood(rig, floods);
    trickle(rig, 500, burst, ms(35_000));
    rig.run(ms(5_000));
    rig.got.values_mut().for_each(|got| got.waits.clear());
    rig.run(ms(30_000));
    quiet_waits(rig)
}

/// The last row of the table: 64 slots, exponential calls of 50 ms, 500 floods, 500 quiet groups.
fn beside_floods(floods: usize, burst: u32) -> Vec<Duration> {
    let mut rig = Rig::new(Settings::default()).answering(exponential(0x9E37_79B9));
    let mut waits = floods_and_bursts(&mut rig, floods, burst);
    row_of_waits(&format!("{floods} floods, 500 quiet groups, {burst} at a time"), &mut waits);
    waits
}

#[test]
fn quiet_groups_beside_500_floods_wait_no_longer_than_an_attempt() {
    beside_floods(0, 1);
    beside_floods(1, 1);
    let mut waits = beside_floods(500, 1);
    assert!(waits.len() > 2_000, "{}", waits.len());
    let (p50, p90, p99) = (quantile(&mut waits, 0.5), quantile(&mut waits, 0.9), quantile(&mut waits, 0.99));
    assert!(p50 <= ms(1) && p90 <= ms(3) && p99 <= ms(10), "p50 {p50:?} p90 {p90:?} p99 {p99:?}");
}

#[test]
fn bursts_of_five_wait_no_longer_than_four_attempts() {
    beside_floods(0, 5);
    let mut waits = beside_floods(500, 5);
    assert!(waits.len() > 1_500, "{}", waits.len());
    let (p50, p99) = (quantile(&mut waits, 0.5), quantile(&mut waits, 0.99));
    assert!(p50 <= ms(20) && p99 <= 4 * ms(50), "p50 {p50:?} p99 {p99:?}");
}

#[test]
fn eight_groups_that_hang_do_not_hold_up_the_others() {
    let mut dice = Dice(5);
    let mut rig = Rig::new(Settings::default()).answering(move |dispatch, _| {
        let hangs = dispatch.lane.group.as_str().starts_with("flood");
        (if hangs { ms(20_000) } else { dice.exponential(ms(50)) }, Ending::Success)
    });
    trickle(&mut rig, 500, 1, ms(60_000));
    rig.run(ms(2_000));
    flood(&mut rig, 8);
    rig.run(ms(58_000));
    let mut waits = quiet_waits(&rig);
    row_of_waits("8 groups whose calls take 20 s, 500 quiet", &mut waits);
    assert!(waits.len() > 3_000, "{}", waits.len());
    let p99 = quantile(&mut waits, 0.99);
    assert!(p99 <= ms(35), "p99 {p99:?}, more than one median attempt");
    assert!(rig.engine.slots().slow <= 32);
}

#[test]
fn eight_groups_that_hang_cost_steady_ones_half_a_second_at_most_at_half_load() {
    let mut dice = Dice(51);
    let mut rig = Rig::new(Settings::default()).answering(move |dispatch, _| {
        let hangs = dispatch.lane.group.as_str().starts_with("flood");
        (if hangs { ms(20_000) } else { dice.exponential(ms(50)) }, Ending::Success)
    });
    let start = rig.now;
    let mut dice = Dice(52);
    for n in 0..100 {
        // A hundred times six calls of 50 ms a second: 31 of 64 slots.
        let mut at = start;
        while at < start.plus(ms(60_000)) {
            rig.arrive_at(&lane(&format!("steady-{n}")), at);
            at = at.plus(dice.exponential(ms(163)));
        }
    }
    rig.run(ms(5_000));
    flood(&mut rig, 8);
    rig.got.values_mut().for_each(|got| got.waits.clear());
    rig.run(ms(55_000));
    let steady = rig.got.iter().filter(|(group, _)| group.as_str().starts_with("steady"));
    let mut waits: Vec<_> = steady.flat_map(|(_, got)| got.waits.clone()).collect();
    row_of_waits("8 groups whose calls take 20 s, 100 steady ones at 48 % load", &mut waits);
    let p99 = quantile(&mut waits, 0.99);
    assert!(p99 <= ms(500), "p99 {p99:?}");
}

#[test]
fn groups_that_begin_to_hang_at_high_load_are_stopped_by_the_ramp() {
    // Steady groups keep most slots busy; eight others have ten calls a second each, until these begin to hang.
    let start = Mono(3_600_000_000);
    let hang_at = start.plus(ms(15_000));
    let mut dice = Dice(11);
    let mut rig = Rig::new(Settings::default()).answering(move |dispatch, now| {
        let hangs = now >= hang_at && dispatch.lane.group.as_str().starts_with("turning");
        (if hangs { ms(20_000) } else { dice.exponential(ms(50)) }, Ending::Success)
    });
    trickle(&mut rig, 100, 1, ms(45_000));
    let mut dice = Dice(12);
    let mut steady = |rig: &mut Rig, name: String, mean: Duration| {
        let lane = lane(&name);
        let mut at = start;
        while at < start.plus(ms(45_000)) {
            rig.arrive_at(&lane, at);
            at = at.plus(dice.exponential(mean));
        }
    };
    (0..8).for_each(|n| steady(&mut rig, format!("turning-{n}"), ms(95)));
    (0..100).for_each(|n| steady(&mut rig, format!("steady-{n}"), ms(125)));
    rig.run(ms(14_000));
    rig.got.values_mut().for_each(|got| got.waits.clear());
    rig.run(ms(4_000));
    let slots = rig.engine.slots();
    assert!(slots.slow <= 24 && slots.busy < 64, "those that hang hold {} of {}", slots.slow, slots.busy);
    rig.run(ms(27_000));
    let mut waits = quiet_waits(&rig);
    let p99 = quantile(&mut waits, 0.99);
    assert!(p99 <= ms(35), "p99 {p99:?}, more than one median attempt");
}

fn endless(rig: &mut Rig) {
    rig.refill = Some(Box::new(|_| true));
}

#[test]
fn weights_of_1_2_4_give_1_2_4_of_the_time_though_calls_take_2_ms_to_2_s() {
    let mut dice = Dice(3);
    // Nobody is slow here: what slow groups may hold is another rule.
    let slow = Slow { after: ms(5_000), ..Settings::default().slow };
    let settings = Settings { slots: 8, slow, ..Settings::default() };
    let policy =
        |group: &Group| Policy { weight: group.as_str().parse().unwrap(), concurrency: Some(8), ..Policy::default() };
    let mut rig = Rig::with(settings, policy).answering(move |_, _| {
        // Log-uniform: as many calls around 20 ms as around 200 ms.
        (ms(2).mul_f64(1_000f64.powf(dice.unit())), Ending::Success)
    });
    endless(&mut rig);
    for weight in ["1", "2", "4"] {
        rig.append(&lane(weight), 50);
    }
    rig.run(ms(1_200_000));
    let base = rig.got("1").worker_us as f64;
    for (weight, part) in [("2", 2.0), ("4", 4.0)] {
        let share = rig.got(weight).worker_us as f64 / base;
        row(&format!("worker time of weight {weight} over that of weight 1"), &format!("{share:.3}"));
        assert!((part * 0.98..part * 1.02).contains(&share), "weight {weight} got {share:.3}");
    }
}

/// A group that offers exactly its share, or sleeps, or splits its calls, beside a backlogged one of the same weight.
fn beside_one_flood(other: &str, span: Duration, arrivals: impl Fn(&mut Rig)) -> (f64, f64) {
    let settings = Settings { slots: 8, ..Settings::default() };
    let policy = |_: &Group| Policy { concurrency: Some(8), ..Policy::default() };
    let mut rig = Rig::with(settings, policy).answering(exponential(9));
    flood(&mut rig, 1);
    arrivals(&mut rig);
    rig.run(span);
    (rig.got(other).worker_us as f64 / 1e6, rig.got("flood-0").worker_us as f64 / 1e6)
}

#[test]
fn a_group_that_trickles_faster_than_its_share_gets_its_share_and_one_burst() {
    let span = ms(200_000);
    let (trickler, flood) = beside_one_flood("trickler", span, |rig| {
        // One and a half times its half of the slots, evenly.
        for n in 0..24_000 {
            rig.arrive_at(&lane("trickler"), rig.now.plus(Duration::from_micros(n * 8_333)));
        }
    });
    row("a trickler's part of the time, its share being 0.5", &format!("{:.3}", trickler / (trickler + flood)));
    assert!(trickler <= (trickler + flood) / 2.0 * 1.02 + 0.5, "{trickler:.1} of {:.1} s", trickler + flood);
    assert!(trickler >= (trickler + flood) / 2.0 * 0.97, "{trickler:.1} of {:.1} s", trickler + flood);
}

#[test]
fn sleeping_and_coming_back_with_a_pile_earns_nothing_beyond_one_burst() {
    let span = ms(100_000);
    let (sleeper, flood) = beside_one_flood("sleeper", span, |rig| {
        for _ in 0..20_000 {
            rig.arrive_at(&lane("sleeper"), rig.now.plus(ms(50_000)));
        }
    });
    let shared = flood + sleeper - 8.0 * 50.0;
    assert!(sleeper <= shared / 2.0 * 1.02 + 0.5 + 0.4, "{sleeper:.1} of {shared:.1} s");
}

#[test]
fn a_lower_cap_gives_a_noisy_group_no_more() {
    let with_cap = |cap| {
        let settings = Settings { slots: 8, ..Settings::default() };
        let policy = move |group: &Group| Policy {
            concurrency: Some(if group.as_str() == "flood-0" { cap } else { 8 }),
            ..Policy::default()
        };
        let mut rig = Rig::with(settings, policy).answering(exponential(21));
        flood(&mut rig, 4);
        rig.run(ms(60_000));
        rig.got("flood-0").worker_us
    };
    let (full, lower, lowest) = (with_cap(8), with_cap(2), with_cap(1));
    row(
        "worker time with cap 8, 2 and 1 of 8 slots beside three others",
        &format!("{full} µs, {lower} µs, {lowest} µs"),
    );
    assert!(lower as f64 <= full as f64 * 1.02, "cap 2 gave {lower} µs, cap 8 {full}");
    assert!(lowest <= lower, "cap 1 gave {lowest} µs, cap 2 {lower}");
}

#[test]
fn nobody_starves_beside_groups_of_any_weight() {
    let policy =
        |group: &Group| Policy { weight: if group.as_str() == "least" { 0.01 } else { 100.0 }, ..Policy::default() };
    let mut rig = Rig::with(Settings { slots: 8, ..Settings::default() }, policy).answering(exponential(31));
    rig.refill = Some(Box::new(|lane| lane.group.as_str() != "least"));
    rig.append(&lane("least"), 3);
    (0..3).for_each(|n| rig.append(&lane(&format!("heavy-{n}")), 20));
    rig.run(ms(600_000));
    // Its share is 1/30,001 of 4,800 s of worker time, and its head start is 0.5 s ÷ 0.01.
    assert!(rig.got("least").attempts >= 1);
}

#[test]
fn charging_events_gives_equal_counts_however_long_they_take() {
    let settings = Settings { slots: 8, charge: Charge::Events, burst: Duration::from_secs(10), ..Settings::default() };
    let policy = |_: &Group| Policy { concurrency: Some(8), ..Policy::default() };
    let mut rig = Rig::with(settings, policy).answering(|dispatch, _| {
        (if dispatch.lane.group.as_str() == "long" { ms(100) } else { ms(10) }, Ending::Success)
    });
    endless(&mut rig);
    rig.append(&lane("long"), 30);
    rig.append(&lane("short"), 30);
    rig.run(ms(120_000));
    let (long, short) = (rig.got("long").attempts as f64, rig.got("short").attempts as f64);
    assert!((long / short - 1.0).abs() < 0.02, "{long} long, {short} short");
}

#[test]
fn splitting_a_group_into_lanes_gains_nothing_and_its_lanes_share_evenly() {
    let settings = Settings { slots: 8, ..Settings::default() };
    let policy = |_: &Group| Policy { concurrency: Some(8), ..Policy::default() };
    let mut rig = Rig::with(settings, policy).answering(exponential(41));
    endless(&mut rig);
    rig.append(&lane("whole"), 30);
    for n in 0..20 {
        rig.append(&inner("split", &format!("part-{n}")), 10);
    }
    rig.trace = Some(Vec::new());
    rig.run(ms(100_000));
    let (whole, split) = (rig.got("whole").worker_us as f64, rig.got("split").worker_us as f64);
    assert!((split / whole - 1.0).abs() < 0.02, "whole {whole}, split {split}");
    let mut parts = std::collections::BTreeMap::<_, u32>::new();
    for (_, dispatch) in rig.trace.iter().flatten().filter(|(_, d)| d.lane.inner.is_some()) {
        *parts.entry(dispatch.lane.inner.clone()).or_default() += 1;
    }
    let (least, most) = (parts.values().min().unwrap(), parts.values().max().unwrap());
    assert!(parts.len() == 20 && f64::from(*most) < f64::from(*least) * 1.4, "{least} to {most} attempts");
}

#[test]
fn a_groups_own_flood_of_one_topic_does_not_bury_another_topic() {
    let mut rig = Rig::new(Settings::default()).answering(exponential(43));
    let (updates, creates) = (inner("store", "products-update"), inner("store", "orders-create"));
    rig.refill = Some(Box::new(|lane| lane.inner.as_ref().is_some_and(|topic| topic.as_str() == "products-update")));
    rig.append(&updates, 2_000);
    rig.trace = Some(Vec::new());
    for n in 1..50 {
        rig.arrive_at(&creates, rig.now.plus(ms(n * 1_000)));
    }
    rig.run(ms(55_000));
    let trace = rig.trace.iter().flatten();
    let mut waits: Vec<_> = trace.filter(|(_, d)| d.lane == creates).map(|(_, d)| d.wait).collect();
    assert_eq!(waits.len(), 49);
    let p99 = quantile(&mut waits, 0.99);
    assert!(p99 <= ms(100), "it waits for one of its group's eight attempts: {p99:?}");
}

#[test]
fn a_rate_for_the_upstream_is_shared_by_weight_too() {
    let settings = Settings { rate: Some(Rate { events: 100, per: ms(1_000) }), ..Settings::default() };
    let policy =
        |group: &Group| Policy { weight: if group.as_str() == "double" { 2.0 } else { 1.0 }, ..Policy::default() };
    let mut rig = Rig::with(settings, policy).answering(|_, _| (ms(5), Ending::Success));
    endless(&mut rig);
    rig.append(&lane("single"), 20);
    rig.append(&lane("double"), 20);
    rig.run(ms(60_000));
    let (single, double) = (rig.got("single").attempts, rig.got("double").attempts);
    assert!((5_980..=6_010).contains(&(single + double)), "{} in a minute", single + double);
    assert!((double as f64 / single as f64 - 2.0).abs() < 0.05, "{single} and {double}");
}
