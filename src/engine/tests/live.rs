//! Senders that wait for an answer: before their group's events, at their group's cost, and never for longer than they can.

use std::time::Duration;

use proptest::prelude::*;

use super::rig::{Dice, Rig, inner, lane, ms};
use crate::engine::live::{WAITING_MAX, WAITING_OF_GROUP_MAX};
use crate::engine::*;

const PATIENCE: Duration = Duration::from_secs(2);

const BAD: Ending = Ending::Server { status: 500, retry_after: None };

fn capped(cap: u32) -> Rig {
    Rig::with(Settings::default(), move |_| Policy { concurrency: Some(cap), ..Policy::default() })
}

/// Whether each attempt so far was a live request's.
fn live_turns(rig: &Rig) -> Vec<bool> {
    rig.turns.iter().map(|(_, live)| *live).collect()
}

fn check(rig: &mut Rig) {
    rig.engine.check_invariants().unwrap();
    assert_eq!(rig.engine.violations(), 0, "{:?}", rig.engine.last_violation());
}

#[test]
fn a_live_request_goes_before_its_group_s_own_backlog() {
    let mut rig = capped(1);
    rig.append(&lane("a"), 5);
    rig.append(&inner("a", "x"), 5);
    rig.run(ms(10));
    assert_eq!(live_turns(&rig), [false]);
    rig.call("a", PATIENCE).unwrap();
    rig.call("a", PATIENCE).unwrap();
    let view = rig.view("a");
    assert_eq!((view.live, view.in_flight, view.queued), (2, 1, 9));
    rig.run(ms(220));
    assert_eq!(live_turns(&rig), [false, true, true, false, false]);
    assert_eq!(rig.served.len(), 2);
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 10, "live requests are none of the books");
    assert_eq!(rig.engine.active_groups(), 0);
    check(&mut rig);
}

#[test]
fn a_group_with_live_requests_alone_comes_and_goes() {
    let mut rig = Rig::new(Settings::default());
    let first = rig.call("a", PATIENCE).unwrap();
    rig.run(ms(200));
    assert_eq!(rig.served, [(first, Ending::Success)]);
    assert_eq!((rig.engine.active_groups(), rig.engine.slots().busy), (0, 0));
    let second = rig.call("a", PATIENCE).unwrap();
    assert!(second > first, "numbers are never used again");
    rig.run(ms(200));
    check(&mut rig);
}

#[test]
fn a_flood_of_live_requests_costs_its_own_group_and_nobody_else() {
    let settings = Settings { slots: 8, ..Settings::default() };
    let mut rig = Rig::with(settings, |_| Policy { concurrency: Some(8), ..Policy::default() });
    rig.refill = Some(Box::new(|lane| lane.group.as_str() != "quiet"));
    rig.append(&lane("other"), 20);
    for _ in 0..20 {
        // Always as many live requests as are taken.
        while rig.call("flood", PATIENCE).is_ok() {}
        rig.run(ms(500));
        rig.append(&lane("quiet"), 1);
    }
    rig.run(ms(50));
    let (flood, other) = (rig.got("flood"), rig.got("other"));
    let (flood, other) = (flood.worker_us as f64, other.worker_us as f64);
    assert!((flood / other - 1.0).abs() < 0.1, "{flood} and {other} µs: two groups of one weight share alike");
    let longest = rig.got("quiet").waits.into_iter().max().unwrap();
    assert!(longest <= ms(50), "a quiet group waits for one attempt at most, not {longest:?}");
    check(&mut rig);
}

#[test]
fn live_requests_count_in_caps_and_are_charged() {
    let mut rig = capped(3);
    for _ in 0..20 {
        rig.call("a", PATIENCE).unwrap();
    }
    rig.run(ms(60));
    assert_eq!(rig.got("a").most_in_flight, 3);
    assert_eq!(rig.view("a").state, State::Capped);
    rig.run(ms(400));
    assert_eq!((rig.served.len(), rig.got("a").most_in_flight), (20, 3));
    assert_eq!(rig.got("a").worker_us, 20 * 50_000);
    check(&mut rig);
}

#[test]
fn its_time_over_it_is_refused_and_the_attempt_has_what_is_left() {
    let mut rig = capped(1);
    let left = std::rc::Rc::new(std::cell::Cell::new(Duration::ZERO));
    let seen = std::rc::Rc::clone(&left);
    rig.live_answer = Box::new(move |dispatch| {
        seen.set(dispatch.timeout);
        (ms(700), Ending::Success)
    });
    rig.call("a", ms(1_000)).unwrap();
    // The estimate is 50 ms: nobody knows yet that it takes longer.
    let second = rig.call("a", ms(1_000)).unwrap();
    let third = rig.call("a", ms(500)).unwrap();
    rig.run(ms(600));
    assert_eq!(rig.refused, [(third, Unserved::Late)]);
    rig.run(ms(150));
    assert_eq!(left.get(), ms(300));
    rig.run(ms(700));
    assert_eq!(rig.served.last().unwrap().0, second);
    assert_eq!(rig.call("a", ms(600)).map(drop), Ok(()), "nobody is before it");
    let known = rig.call("a", ms(600));
    assert!(matches!(known, Err(Unserved::WouldWait(wait)) if wait >= ms(700)), "by now it is known: {known:?}");
    check(&mut rig);
}

#[test]
fn who_is_gone_frees_its_place_and_its_slot_and_its_attempt_is_paid_for() {
    let mut rig = capped(1);
    rig.live_answer = Box::new(|_| (ms(20_000), Ending::Success));
    let first = rig.call("a", PATIENCE).unwrap();
    let second = rig.call("a", PATIENCE).unwrap();
    rig.run(ms(400));
    let now = rig.at();
    assert!(rig.engine.on_live_gone(second, now));
    assert_eq!(rig.view("a").live, 0);
    assert!(!rig.engine.on_live_gone(second, now), "once");
    assert!(rig.engine.on_live_gone(first, now));
    rig.run(ms(10));
    assert_eq!(rig.served, [(first, Ending::Cancelled)]);
    assert_eq!((rig.engine.slots().busy, rig.engine.active_groups()), (0, 0));
    rig.append(&lane("a"), 2);
    rig.execute();
    let paid = rig.view("a").worker_time;
    assert_eq!(paid, ms(20_000), "as long as it was said to take, and kept while the group was idle");
    check(&mut rig);
}

#[test]
fn a_cancelled_attempt_costs_the_time_that_it_held_its_slot() {
    let mut rig = capped(1).answering(|_, _| (ms(20_000), Ending::Success));
    rig.append(&lane("a"), 2);
    rig.run(ms(400));
    let now = rig.at();
    rig.engine.cancel(&lane("a").group, now);
    rig.execute();
    let ticket = rig.cancelled[0];
    // As the driver reports it: it does not know what the attempt took.
    rig.engine.on_finished(ticket, Ending::Cancelled, Duration::ZERO, now);
    assert_eq!(rig.view("a").worker_time, ms(400));
}

#[test]
fn nobody_waits_in_vain() {
    let mut rig = capped(1);
    let now = rig.at();
    rig.engine.pause(&lane("a").group, now);
    assert_eq!(rig.call("a", PATIENCE), Err(Unserved::Paused));
    assert_eq!(rig.engine.active_groups(), 0, "nothing is kept of it");
    rig.engine.resume(&lane("a").group, now);
    rig.call("a", PATIENCE).unwrap();
    let waits = rig.call("a", PATIENCE).unwrap();
    rig.run(ms(10));
    let now = rig.at();
    rig.engine.pause(&lane("a").group, now);
    rig.execute();
    assert_eq!(rig.refused, [(waits, Unserved::Paused)], "what is in flight goes on");
    rig.engine.resume(&lane("a").group, now);
    let waits = rig.call("a", PATIENCE).unwrap();
    rig.engine.set_upstream_paused(true);
    rig.execute();
    assert_eq!(rig.refused.last(), Some(&(waits, Unserved::Paused)));
    assert_eq!(rig.call("b", PATIENCE), Err(Unserved::Paused));
    rig.engine.set_upstream_paused(false);
    let waits = rig.call("a", PATIENCE).unwrap();
    rig.engine.begin_drain();
    rig.execute();
    assert_eq!(rig.refused.last(), Some(&(waits, Unserved::Draining)));
    assert_eq!(rig.call("b", PATIENCE), Err(Unserved::Draining));
    rig.run(ms(100));
    assert!(rig.engine.is_drained());
    check(&mut rig);
}

#[test]
fn an_open_breaker_refuses_at_once_and_a_half_open_one_tries() {
    let mut rig = capped(2);
    rig.live_answer = Box::new(|_| (ms(10), BAD));
    for _ in 0..9 {
        rig.call("a", PATIENCE).unwrap();
        rig.run(ms(20));
    }
    let waits = (0..3).map(|_| rig.call("a", PATIENCE).unwrap()).last().unwrap();
    rig.run(ms(20));
    let Some((refused, Unserved::Broken(left))) = rig.refused.last().copied() else { panic!("{:?}", rig.refused) };
    assert_eq!(refused, waits, "the tenth failure in a row opens it for those that wait, too");
    assert!(left <= Duration::from_secs(5) && left > Duration::from_secs(4), "{left:?}");
    assert!(matches!(rig.call("a", PATIENCE), Err(Unserved::Broken(_))));
    assert_eq!(rig.call("b", PATIENCE).map(drop), Ok(()), "its own breaker and nobody else's");
    rig.run(ms(5_100));
    rig.live_answer = Box::new(|_| (ms(10), Ending::Success));
    let probe = rig.call("a", PATIENCE).unwrap();
    let behind = rig.call("a", PATIENCE).unwrap();
    rig.run(ms(100));
    assert_eq!(rig.served[rig.served.len() - 2..], [(probe, Ending::Success), (behind, Ending::Success)]);
    check(&mut rig);
}

#[test]
fn the_upstream_s_breaker_lets_a_group_without_a_failure_try_one() {
    let mut rig = capped(8);
    rig.live_answer = Box::new(|dispatch| {
        let well = dispatch.group.as_str() == "well";
        (ms(10), if well { Ending::Success } else { Ending::NoAnswer })
    });
    for n in 0..24 {
        rig.call(&format!("bad{}", n % 4), PATIENCE).unwrap();
    }
    rig.run(ms(5));
    rig.run(ms(200));
    assert!(matches!(rig.engine.breaker(), BreakerState::Open { .. }), "{:?}", rig.engine.breaker());
    assert!(matches!(rig.call("bad0", PATIENCE), Err(Unserved::Broken(_))));
    let well = rig.call("well", PATIENCE).unwrap();
    rig.run(ms(100));
    assert!(rig.served.contains(&(well, Ending::Success)));
    check(&mut rig);
}

#[test]
fn queues_are_bounded_of_a_group_and_of_all() {
    let long = Duration::from_secs(3_600);
    let mut rig = Rig::new(Settings::default());
    // One attempt is in flight from here on and never ends, so everybody else waits.
    let settings = Settings { slots: 1, ..Settings::default() };
    let now = rig.at();
    rig.engine.set_settings(settings, now);
    rig.live_answer = Box::new(|_| (Duration::from_secs(20), Ending::Success));
    rig.call("first", long).unwrap();
    rig.execute();
    let groups = WAITING_MAX / WAITING_OF_GROUP_MAX;
    for n in 0..groups {
        for _ in 0..WAITING_OF_GROUP_MAX {
            rig.call(&format!("g{n}"), long).unwrap();
        }
        assert_eq!(rig.call(&format!("g{n}"), long), Err(Unserved::Full));
    }
    assert_eq!(rig.call("another", long), Err(Unserved::Full));
    check(&mut rig);
}

#[test]
fn the_expected_wait_knows_head_starts_and_rates() {
    let rate = |group: &Group| {
        let limited = group.as_str() == "limited";
        Policy { rate: limited.then_some(Rate { events: 1, per: Duration::from_secs(1) }), ..Policy::default() }
    };
    let mut rig = Rig::with(Settings { slots: 4, ..Settings::default() }, rate);
    rig.refill = Some(Box::new(|lane| lane.group.as_str() != "limited"));
    for n in 0..400 {
        rig.append(&lane(&format!("flood-{n}")), 3);
    }
    rig.run(ms(20_000));
    // A round of 400 groups takes five seconds. Who has its head start is not behind them; who has used it up is.
    let patience = ms(1_000);
    let taken = (0..100).take_while(|_| rig.call("quiet", patience).is_ok()).count();
    assert!((9..20).contains(&taken), "{taken} fit into half a second of worker time and a second of waiting");
    assert!(matches!(rig.call("quiet", patience), Err(Unserved::WouldWait(wait)) if wait > patience));
    let mut rig = Rig::with(Settings::default(), rate);
    assert_eq!(rig.call("limited", PATIENCE).map(drop), Ok(()));
    rig.run(ms(60));
    assert_eq!(rig.call("limited", PATIENCE).map(drop), Ok(()));
    assert_eq!(rig.call("limited", PATIENCE).map(drop), Ok(()));
    assert!(matches!(rig.call("limited", PATIENCE), Err(Unserved::WouldWait(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever comes, goes away, fails and is paused in whatever order: each live request has exactly one end and in time, no slot is
    /// lost, and stored events go on.
    #[test]
    fn every_live_request_has_one_end(
        steps in prop::collection::vec((0u8..10, 0usize..3, 1u64..400), 1..120),
        slots in 1u32..5,
        seed in 1u64..1_000_000,
    ) {
        let mut dice = Dice(seed);
        let mut rig = Rig::with(Settings { slots, ..Settings::default() }, |_| Policy::default());
        let mut luck = Dice(seed + 1);
        rig.live_answer = Box::new(move |dispatch| {
            let took = dice.between(ms(1), ms(900)).min(dispatch.timeout);
            (took, if took == dispatch.timeout { Ending::NoAnswer } else { Ending::Success })
        });
        let names = ["a", "b", "c"];
        let (mut asked, mut deadlines) = (Vec::new(), std::collections::BTreeMap::new());
        for (what, group, n) in steps {
            let group = names[group];
            let now = rig.at();
            match what {
                0..=4 => {
                    if let Ok(live) = rig.call(group, ms(n * 5)) {
                        asked.push(live);
                        deadlines.insert(live, now.mono.plus(ms(n * 5)));
                    }
                }
                5 => rig.append(&lane(group), 1 + n as usize % 3),
                6 if !asked.is_empty() => {
                    let live = asked[(luck.unit() * asked.len() as f64) as usize];
                    if rig.engine.on_live_gone(live, now) {
                        rig.execute();
                    }
                    // Nobody is told of those who left their queue.
                    let told = rig.refused.iter().any(|(id, _)| *id == live) || rig.served.iter().any(|(id, _)| *id == live);
                    if !told && !rig.engine.on_live_gone(live, now) {
                        asked.retain(|id| *id != live);
                    }
                }
                7 => rig.engine.pause(&lane(group).group, now),
                8 => rig.engine.resume(&lane(group).group, now),
                _ => rig.run(ms(n)),
            }
            rig.execute();
            prop_assert!(rig.engine.check_invariants().is_ok());
        }
        for name in names {
            let now = rig.at();
            rig.engine.resume(&lane(name).group, now);
        }
        rig.drain();
        rig.run(ms(2_500));
        let mut ended: Vec<LiveId> =
            rig.refused.iter().map(|(id, _)| *id).chain(rig.served.iter().map(|(id, _)| *id)).collect();
        ended.sort_unstable();
        prop_assert_eq!(ended, asked);
        prop_assert_eq!((rig.engine.slots().busy, rig.engine.active_groups()), (0, 0));
        prop_assert!(rig.engine.check_invariants().is_ok());
    }
}
