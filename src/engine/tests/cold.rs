//! Cold start: very many groups turn slow at the same time, before any of them is known to be slow (R4b, `outbreak`).

use std::time::Duration;

use super::rig::{Dice, Rig, lane, ms, quantile, row};
use crate::engine::*;
use crate::event::Mono;

const TENANTS: u64 = 1_000;
const START: Mono = Mono(3_600_000_000);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Before the change, and how long it lasts.
const WARM: Duration = Duration::from_secs(10);
const SICK: Duration = Duration::from_secs(60);

/// A thousand tenants with 320 calls of 50 ms a second, a quarter of what 64 slots take. Then every second one turns, within three seconds:
/// so many of four do not answer any more, the others take 3 s on average.
fn outbreak(hang: usize) -> Rig {
    let change = START.plus(WARM);
    let mut dice = Dice(91);
    let turns: Vec<Mono> = (0..TENANTS).map(|_| change.plus(dice.between(ms(0), ms(3_000)))).collect();
    let mut rig = Rig::new(Settings { timeout: TIMEOUT, ..Settings::default() }).answering(move |dispatch, now| {
        let number = dispatch.lane.group.as_str().strip_prefix("sick-").map(|number| number.parse::<usize>().unwrap());
        match number {
            Some(number) if now >= turns[number] && now < change.plus(SICK) => {
                if number / 2 % 4 < hang {
                    (TIMEOUT, Ending::NoAnswer)
                } else {
                    (dice.exponential(ms(3_000)).min(TIMEOUT), Ending::Success)
                }
            }
            _ => (dice.exponential(ms(50)), Ending::Success),
        }
    });
    let mut dice = Dice(92);
    for number in 0..TENANTS {
        let lane = lane(&format!("{}-{number}", if number % 2 == 0 { "sick" } else { "quiet" }));
        let mut at = START.plus(dice.exponential(ms(3_125)));
        while at < change.plus(SICK) {
            rig.arrive_at(&lane, at);
            at = at.plus(dice.exponential(ms(3_125)));
        }
    }
    rig.trace = Some(Vec::new());
    rig
}

/// How long events of the quiet waited that came between these seconds after the change.
fn quiet_waits(rig: &Rig, from: u64, to: u64) -> Vec<Duration> {
    let first = rig.trace.iter().flatten().filter(|(_, dispatch)| dispatch.attempt == 1);
    let quiet = first.filter(|(_, dispatch)| dispatch.lane.group.as_str().starts_with("quiet"));
    let change = START.plus(WARM);
    let (from, to) = (change.plus(ms(from * 1_000)), change.plus(ms(to * 1_000)));
    let came = |at: Mono, wait: Duration| Mono(at.0.saturating_sub(wait.as_micros() as u64));
    quiet.filter(|(at, d)| (from..to).contains(&came(*at, d.wait))).map(|(_, d)| d.wait).collect()
}

/// The median wait of the others' events that came 0 to 10, 10 to 20, 20 to 30 and 30 to 60 s after the change.
fn medians(what: &str, hang: usize) -> Vec<f64> {
    let mut rig = outbreak(hang);
    rig.run(WARM);
    assert!(!rig.engine.in_outbreak());
    rig.run(ms(5_000));
    assert!(rig.engine.in_outbreak());
    rig.run(SICK + ms(60_000));
    assert!(!rig.engine.in_outbreak(), "over a while after the last was found");
    let waits = [(0, 10), (10, 20), (20, 30), (30, 60)].map(|(from, to)| quiet_waits(&rig, from, to));
    let of = |q| waits.clone().map(|mut waits| quantile(&mut waits, q).as_secs_f64());
    let (p50, p99) = (of(0.5), of(0.99));
    let cells: Vec<String> = p50.iter().zip(p99).map(|(p50, p99)| format!("{p50:.2} s, {p99:.0} s")).collect();
    row(&format!("500 of 1,000 groups {what}: p50, p99 of the others"), &cells.join(" | "));
    p50.to_vec()
}

#[test]
fn half_of_a_thousand_groups_that_turn_slow_at_once_do_not_keep_the_others_waiting_for_long() {
    let slow = medians("take 3 s", 0);
    assert!(slow[0] < 6.0 && slow[1] < 6.0 && slow[2] < 0.1 && slow[3] < 0.01, "{slow:?}");
    let mixed = medians("take 3 s or hang for 10 s", 2);
    assert!(mixed[0] < 16.0 && mixed[1] < 20.0 && mixed[2] < 10.0 && mixed[3] < 0.1, "{mixed:?}");
    medians("hang for 10 s", 4);
}

#[test]
fn in_an_outbreak_nearly_all_slots_work_though_nobody_is_quick() {
    // Nobody comes twice, and everybody takes a second and a half: nobody is ever quick.
    let mut rig = Rig::new(Settings::default());
    for number in 0..1_000 {
        rig.append(&lane(&format!("quick-{number}")), 1);
    }
    rig.drain();
    rig.answer = Box::new(|_, _| (ms(1_500), Ending::Success));
    for number in 0..2_000 {
        rig.append(&lane(&format!("slow-{number}")), 1);
    }
    rig.run(ms(1_100));
    assert!(rig.engine.in_outbreak());
    rig.run(ms(1_000));
    assert_eq!(rig.engine.slots().busy, 60);
    rig.drain();
}

#[test]
fn ordinary_life_is_no_outbreak() {
    let mut dice = Dice(17);
    // Eight groups take 20 s a call, the others are at full load with calls of 2 ms to 900 ms.
    let mut rig = Rig::new(Settings::default()).answering(move |dispatch, _| {
        let slow = dispatch.lane.group.as_str().starts_with("slow");
        (if slow { ms(20_000) } else { ms(2).mul_f64(450f64.powf(dice.unit())) }, Ending::Success)
    });
    rig.refill = Some(Box::new(|_| true));
    (0..100).for_each(|number| rig.append(&lane(&format!("busy-{number}")), 10));
    rig.run(ms(1_000));
    (0..8).for_each(|number| rig.append(&lane(&format!("slow-{number}")), 10));
    for _ in 0..60 {
        rig.run(ms(1_000));
        assert!(!rig.engine.in_outbreak());
        assert_eq!(rig.engine.slots().busy, 64);
    }
}

#[test]
fn a_quick_group_is_remembered_while_it_is_away_and_forgotten_with_the_outbreak() {
    let mut rig = outbreak(2);
    rig.run(WARM + ms(20_000));
    let away = rig.engine.upstream.outbreak.remembered();
    assert!((50..550).contains(&away), "{away}");
    assert_eq!(rig.engine.check_invariants(), Ok(()));
    rig.run(SICK + ms(60_000));
    assert_eq!(rig.engine.upstream.outbreak.remembered(), 0);
}
