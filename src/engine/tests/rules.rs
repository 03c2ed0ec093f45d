//! One test for each thing that a rule promises.

use std::time::Duration;

use super::rig::{Dice, Rig, lane, ms};
use crate::engine::*;
use crate::event::Seq;

const BAD: Ending = Ending::Server { status: 500, retry_after: None };

fn asks(status: u16, seconds: u64, scope: Scope) -> Ending {
    Ending::Server { status, retry_after: Some(RetryAfter { delay: Duration::from_secs(seconds), scope }) }
}

fn group(name: &str) -> Group {
    Group::of(&[name])
}

/// No breaker is in the way.
fn unbroken() -> Settings {
    let mut settings = Settings::default();
    settings.breakers.group.failures = u32::MAX;
    settings.breakers.upstream.failures = u32::MAX;
    settings
}

// ---- I7: durable first ------------------------------------------------------------------------------------------

#[test]
fn an_attempt_is_made_only_after_its_beginning_is_durable() {
    let mut rig = Rig::new(Settings::default());
    rig.append(&lane("a"), 1);
    let now = rig.at();
    let Some(Request::Settle { batch, settlements }) = rig.engine.poll_request(now) else { panic!("settle first") };
    assert_eq!(settlements[0].verdict, Verdict::Begun);
    assert_eq!(rig.engine.poll_request(now), None);
    assert!(rig.engine.on_settle_failed(batch, now));
    assert_eq!(rig.engine.poll_request(now), None, "not at once");
    rig.now = rig.engine.poll_timeout().unwrap();
    let now = rig.at();
    rig.engine.on_timeout(now);
    let again = rig.engine.poll_request(now);
    assert_eq!(again, Some(Request::Settle { batch, settlements }), "the same batch again");
    assert!(rig.engine.on_settled(batch, now));
    assert!(!rig.engine.on_settled(batch, now), "a batch is settled once");
    assert!(matches!(rig.engine.poll_request(now), Some(Request::Dispatch(Dispatch { attempt: 1, .. }))));
}

#[test]
fn with_begun_first_off_the_attempt_goes_out_beside_its_settlement() {
    let mut rig = Rig::new(Settings { begun_first: false, ..Settings::default() });
    rig.append(&lane("a"), 1);
    let now = rig.at();
    assert!(matches!(rig.engine.poll_request(now), Some(Request::Dispatch(_))));
    assert!(matches!(rig.engine.poll_request(now), Some(Request::Settle { .. })));
}

#[test]
fn an_event_is_not_forgotten_before_its_end_is_durable() {
    let mut rig = Rig::new(Settings { begun_first: false, ..Settings::default() });
    rig.append(&lane("a"), 1);
    let now = rig.at();
    let Some(Request::Dispatch(dispatch)) = rig.engine.poll_request(now) else { panic!() };
    assert!(rig.engine.on_finished(dispatch.ticket, Ending::Success, ms(5), now));
    assert!(!rig.engine.on_finished(dispatch.ticket, Ending::Success, ms(5), now), "a ticket is finished once");
    assert_eq!(rig.engine.totals().in_flight, 1);
    assert_eq!(rig.engine.totals().delivered, 0);
    rig.execute();
    assert_eq!(rig.engine.totals().delivered, 1);
    assert_eq!(rig.engine.active_groups(), 0);
}

// ---- R4, R5: caps, pauses, rates --------------------------------------------------------------------------------

#[test]
fn caps_and_slots_hold_and_a_change_acts_on_queued_events() {
    let mut rig = Rig::with(Settings::default(), |_| Policy { concurrency: Some(5), ..Policy::default() });
    rig.append(&lane("a"), 200);
    rig.run(ms(500));
    assert_eq!(rig.got("a").most_in_flight, 5);
    assert_eq!(rig.view("a").state, State::Capped);
    let now = rig.at();
    rig.engine.set_policy(&group("a"), Policy { concurrency: Some(2), ..Policy::default() }, now);
    rig.run(ms(200));
    rig.got.clear();
    // What is in flight now began under the new cap; two remain.
    assert_eq!(rig.view("a").in_flight, 2);
}

#[test]
fn a_paused_group_starts_nothing_and_comes_back_without_credit() {
    let policy = |_: &Group| Policy { concurrency: Some(8), ..Policy::default() };
    let mut rig = Rig::with(Settings { slots: 8, ..Settings::default() }, policy);
    rig.refill = Some(Box::new(|_| true));
    rig.append(&lane("a"), 20);
    rig.append(&lane("b"), 20);
    let now = rig.at();
    rig.engine.pause(&group("a"), now);
    rig.run(ms(10_000));
    assert_eq!(rig.got("a").attempts, 0);
    assert_eq!(rig.view("a").state, State::Paused);
    let now = rig.at();
    rig.engine.resume(&group("a"), now);
    rig.run(ms(20_000));
    let (a, b) = (rig.got("a").worker_us as f64 / 1e6, rig.got("b").worker_us as f64 / 1e6);
    assert!((79.0..=80.0 + 0.5 + 0.4).contains(&a), "of 160 s after its pause a got {a:.2}, b {b:.2} in all");
}

#[test]
fn a_pause_outlives_the_groups_absence() {
    let mut rig = Rig::new(Settings::default());
    let now = rig.at();
    rig.engine.pause(&group("a"), now);
    rig.append(&lane("a"), 1);
    rig.run(ms(100));
    assert_eq!(rig.got("a").attempts, 0);
}

#[test]
fn a_groups_rate_is_kept_and_binds_it_across_idle_times() {
    let rate = Some(Rate { events: 10, per: ms(1_000) });
    let mut rig = Rig::with(Settings::default(), move |_| Policy { rate, ..Policy::default() });
    rig.answer = Box::new(|_, _| (ms(1), Ending::Success));
    for n in 0..3_000 {
        rig.arrive_at(&lane("a"), rig.now.plus(ms(n * 10)));
    }
    rig.run(ms(30_000));
    let attempts = rig.got("a").attempts;
    assert!((285..=301).contains(&attempts), "{attempts} in 30 s");
    assert_eq!(rig.view("a").state, State::Limited);
    // One event at a time: the group leaves memory in between, its rate does not.
    let mut rig = Rig::with(Settings::default(), move |_| Policy { rate, ..Policy::default() });
    rig.answer = Box::new(|_, _| (ms(1), Ending::Success));
    for n in 0..100 {
        rig.arrive_at(&lane("a"), rig.now.plus(ms(n * 5)));
    }
    rig.run(ms(500));
    assert!(rig.got("a").attempts <= 6);
}

#[test]
fn a_hung_lease_is_cancelled_and_then_taken_back() {
    let mut rig = Rig::new(Settings { timeout: ms(1_000), ..unbroken() });
    rig.append(&lane("a"), 1);
    let now = rig.at();
    let Some(Request::Settle { batch, .. }) = rig.engine.poll_request(now) else { panic!() };
    rig.engine.on_settled(batch, now);
    let Some(Request::Dispatch(dispatch)) = rig.engine.poll_request(now) else { panic!() };
    let mut cancelled_at = None;
    for _ in 0..40 {
        let Some(at) = rig.engine.poll_timeout() else { break };
        rig.now = at;
        let now = rig.at();
        rig.engine.on_timeout(now);
        while let Some(request) = rig.engine.poll_request(now) {
            match request {
                Request::Cancel { ticket } => {
                    assert_eq!(ticket, dispatch.ticket);
                    cancelled_at = Some(at);
                }
                Request::Settle { batch, .. } => {
                    rig.engine.on_settled(batch, now);
                }
                other => panic!("{other:?}"),
            }
        }
        if rig.engine.slots().busy == 0 {
            break;
        }
    }
    let began = dispatch.deadline.0 - 1_000_000;
    assert_eq!(cancelled_at.map(|at| at.0 - began), Some(6_000_000), "timeout and five seconds");
    assert_eq!(rig.now.0 - began, 11_000_000, "and five more, when nobody reports");
    assert_eq!(rig.engine.violations(), 1);
    assert_eq!(rig.engine.totals().retrying, 1);
    let now = rig.at();
    assert!(!rig.engine.on_finished(dispatch.ticket, Ending::Success, ms(11_000), now), "the late report is void");
}

#[test]
fn cancelling_a_group_frees_its_slots_and_retries_its_events() {
    let mut rig = Rig::new(Settings::default())
        .answering(|dispatch, _| (if dispatch.attempt == 1 { ms(25_000) } else { ms(5) }, Ending::Success));
    rig.append(&lane("a"), 3);
    rig.run(ms(2_000));
    let now = rig.at();
    assert_eq!(rig.engine.cancel(&group("a"), now), 3);
    rig.run(ms(1));
    assert_eq!(rig.cancelled.len(), 3);
    assert_eq!(rig.engine.slots().busy, 0);
    assert_eq!(rig.engine.totals().retrying, 3);
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 3);
}

// ---- R6: fresh, retries, replays --------------------------------------------------------------------------------

#[test]
fn a_replay_gets_every_tenth_lease_beside_fresh_events_and_the_rest_when_there_are_none() {
    for fresh_first in [true, false] {
        let policy = |_: &Group| Policy { concurrency: Some(1), ..Policy::default() };
        let mut rig = Rig::with(unbroken(), policy);
        rig.answer = Box::new(|_, _| (ms(10), Ending::Success));
        let now = rig.at();
        rig.engine.pause(&group("a"), now);
        // Both are more than fit into the window.
        for fresh in [fresh_first, !fresh_first] {
            rig.append_as(&lane("a"), 700, None, !fresh);
        }
        rig.engine.resume(&group("a"), now);
        rig.trace = Some(Vec::new());
        rig.drain();
        let order = rig.order();
        assert_eq!(order.len(), 1_400);
        for leases in order[..700].chunks(100) {
            let replays = leases.iter().filter(|seq| (**seq > 700) == fresh_first).count();
            assert!((9..=11).contains(&replays), "{replays} replays of 100 leases, fresh first: {fresh_first}");
        }
    }
}

#[test]
fn retries_go_at_least_every_fourth_time() {
    let mut settings = unbroken();
    settings.retry.backoff.initial = ms(500);
    let mut rig = Rig::with(settings, |_| Policy { concurrency: Some(1), ..Policy::default() });
    rig.answer = Box::new(|dispatch, _| {
        (ms(10), if dispatch.seq.0 <= 40 && dispatch.attempt == 1 { BAD } else { Ending::Success })
    });
    rig.append(&lane("a"), 2_000);
    rig.trace = Some(Vec::new());
    rig.run(ms(12_000));
    let trace = rig.trace.take().unwrap();
    let attempts: Vec<u32> = trace.iter().map(|(_, dispatch)| dispatch.attempt).collect();
    let first = attempts.iter().position(|attempt| *attempt == 2).expect("a retry");
    let last = attempts.iter().rposition(|attempt| *attempt == 2).unwrap();
    let retries = attempts[first..=last].iter().filter(|attempt| **attempt == 2).count();
    assert_eq!(retries, 40, "all of them beside 2,000 fresh ones");
    assert!(last - first <= 4 * 40 + 40, "{} leases for forty retries", last - first);
    rig.drain();
}

#[test]
fn retries_hold_no_more_slots_than_they_may() {
    let mut rig = Rig::new(unbroken());
    let mut most = 0;
    rig.answer = Box::new(|dispatch, _| (ms(if dispatch.attempt > 1 { 2_000 } else { 5 }), BAD));
    for n in 0..20 {
        rig.append(&lane(&format!("g{n}")), 30);
    }
    for _ in 0..60 {
        rig.run(ms(500));
        let slots = rig.engine.slots();
        most = most.max(slots.retry);
        assert!(slots.retry <= 16);
        for n in 0..20 {
            let view = rig.view(&format!("g{n}"));
            assert!(view.queued > 0 || view.in_flight <= 4, "a quarter of sixteen for one group");
        }
    }
    assert_eq!(most, 16, "and they are used");
}

#[test]
fn replays_hold_no_more_slots_than_they_may_and_none_that_fresh_events_need() {
    // With a hundred thousand replays in the same lanes, fresh events wait as they do without.
    let late = |replays: bool| {
        let policy = |_: &Group| Policy { concurrency: Some(16), ..Policy::default() };
        let mut rig = Rig::with(unbroken(), policy);
        let mut number = 0_u64;
        rig.answer = Box::new(move |_, _| {
            number += 1;
            (ms(20 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 60), Ending::Success)
        });
        rig.trace = Some(Vec::new());
        for n in 0..50 {
            if replays {
                rig.append_as(&lane(&format!("g{n}")), 2_000, None, true);
            }
            // Fifty groups with 16 events a second: two thirds of 64 slots.
            for beat in 0..160_u64 {
                rig.arrive_at(&lane(&format!("g{n}")), Mono(rig.now.0 + beat * 62_500 + n * 1_250));
            }
        }
        let mut most = 0;
        for _ in 0..500 {
            rig.run(ms(20));
            let slots = rig.engine.slots();
            assert!(slots.replay <= 6, "a tenth of 64: {slots:?}");
            most = most.max(slots.replay);
        }
        assert_eq!(most, if replays { 6 } else { 0 }, "and they are used");
        rig.engine.check_invariants().unwrap();
        let trace = rig.trace.take().unwrap();
        let (again, fresh): (Vec<_>, Vec<_>) = trace.into_iter().map(|(_, one)| one).partition(|one| one.replays > 0);
        assert!(
            fresh.len() >= 7_900 && again.len() >= if replays { 800 } else { 0 },
            "{} {}",
            fresh.len(),
            again.len()
        );
        let mut waits: Vec<Duration> = fresh.into_iter().map(|one| one.wait).collect();
        waits.sort();
        waits[waits.len() * 99 / 100]
    };
    let (without, with) = (late(false), late(true));
    assert!(with <= without + without / 10 + ms(1), "{without:?} without replays, {with:?} with them");
}

#[test]
fn replays_of_order_keys_stop_no_fresh_event_of_their_lane() {
    let policy = |_: &Group| Policy { concurrency: Some(4), ..Policy::default() };
    let mut rig = Rig::with(unbroken(), policy);
    rig.answer = Box::new(|_, _| (ms(10), Ending::Success));
    let now = rig.at();
    rig.engine.pause(&group("a"), now);
    // More keys than the window has places.
    for n in 0..600 {
        rig.append_as(&lane("a"), 1, Some(&format!("k{n}")), true);
    }
    rig.append(&lane("a"), 100);
    rig.engine.resume(&group("a"), now);
    rig.trace = Some(Vec::new());
    rig.drain();
    let fresh_at: Vec<usize> =
        rig.order().iter().enumerate().filter(|(_, seq)| **seq > 600).map(|(at, _)| at).collect();
    assert_eq!(fresh_at.len(), 100);
    assert!(fresh_at[99] < 115, "the last fresh one came at place {}", fresh_at[99]);
    rig.engine.check_invariants().unwrap();
}

#[test]
fn a_replay_is_taken_back_before_an_attempt_and_never_in_one() {
    let mut rig = Rig::new(unbroken());
    let now = rig.at();
    rig.append_as(&lane("a"), 1, None, true);
    rig.engine.pause(&group("b"), now);
    for _ in 0..3 {
        rig.append_as(&lane("b"), 1, None, true);
    }
    rig.answer = Box::new(|_, _| (ms(50), Ending::Success));
    rig.run(ms(10));
    let now = rig.at();
    assert!(!rig.engine.withdraw(&lane("a"), Seq(1), Was::Dead, now), "it is in flight");
    for (seq, was) in [(2, Was::Dead), (3, Was::Delivered), (4, Was::Discarded)] {
        assert!(rig.engine.withdraw(&lane("b"), Seq(seq), was, now));
        assert!(!rig.engine.withdraw(&lane("b"), Seq(seq), was, now), "once");
    }
    rig.drain();
    let totals = rig.engine.totals();
    assert_eq!((totals.delivered, totals.dead, totals.discarded, totals.leases), (2, 1, 1, 1));
    rig.engine.check_invariants().unwrap();
}

#[test]
fn more_retries_than_fit_in_memory_are_found_again_and_all_tried() {
    let mut settings = unbroken();
    settings.retry.backoff = Backoff { initial: ms(2_000), factor: 2.0, max: ms(60_000) };
    let mut rig = Rig::new(settings);
    rig.answer = Box::new(|dispatch, _| (ms(2), if dispatch.attempt <= 2 { BAD } else { Ending::Success }));
    for n in 0..5 {
        rig.append(&lane(&format!("g{n}")), 1_000);
    }
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 5_000);
    assert_eq!(rig.got.values().map(|got| got.attempts).sum::<u64>(), 15_000);
    rig.engine.check_invariants().unwrap();
}

// ---- R7: order --------------------------------------------------------------------------------------------------

#[test]
fn events_of_a_key_go_one_at_a_time_in_commit_order_and_others_pass_by() {
    let mut rig = Rig::new(Settings { window: 8, ..unbroken() });
    let mut dice = Dice(99);
    rig.answer = Box::new(move |dispatch, _| {
        let fails = dispatch.attempt == 1 && dispatch.seq.0 % 7 == 0;
        (dice.exponential(ms(20)), if fails { BAD } else { Ending::Success })
    });
    for n in 0..600 {
        let key = ["x", "y", "z", "u", "v"][n % 5];
        rig.append_as(&lane("a"), 1, (n % 6 != 0).then_some(key), false);
    }
    rig.trace = Some(Vec::new());
    rig.drain();
    let trace = rig.trace.take().unwrap();
    for key in 0..5u64 {
        let mut last = 0;
        for (_, dispatch) in trace.iter().filter(|(_, d)| (d.seq.0 - 1) % 5 == key && (d.seq.0 - 1) % 6 != 0) {
            assert!(dispatch.seq.0 >= last, "{} after {last}", dispatch.seq.0);
            last = dispatch.seq.0;
        }
    }
    assert_eq!(rig.engine.totals().delivered, 600);
}

#[test]
fn a_retry_holds_its_key_and_nothing_else() {
    let mut rig = Rig::new(unbroken());
    rig.answer = Box::new(|dispatch, _| (ms(5), if dispatch.seq.0 == 1 { BAD } else { Ending::Success }));
    rig.append_as(&lane("a"), 50, Some("held"), false);
    rig.append_as(&lane("a"), 50, Some("free"), false);
    rig.append(&lane("a"), 50);
    rig.run(ms(20_000));
    assert_eq!(rig.got("a").delivered, 100);
    let view = rig.view("a");
    assert_eq!((view.queued, view.retrying), (49, 1));
    assert_eq!(view.state, State::Held);
    // A person skips the head: the key moves on, knowingly.
    let now = rig.at();
    assert!(rig.engine.remove(&lane("a"), Seq(1), Removal::Skip, true, now));
    rig.drain();
    assert_eq!(rig.engine.totals().dead, 1);
    assert_eq!(rig.engine.totals().delivered, 149);
}

/// How many events of a key are given up in five minutes where each may hold it for one. The first of three fails so; where `all` do, the
/// other two as well, and the `others` that come into a lane every so many seconds.
fn given_up(bad: Ending, all: bool, others: Option<(&str, usize)>, backoff_max: u64) -> u64 {
    let mut settings = unbroken();
    settings.order_max_hold = ms(60_000);
    settings.retry.backoff.max = ms(backoff_max);
    let fails = move |dispatch: &Dispatch| all || dispatch.seq.0 == 1;
    let mut rig =
        Rig::new(settings).answering(move |dispatch, _| (ms(5), if fails(dispatch) { bad } else { Ending::Success }));
    rig.append_as(&lane("a"), 3, Some("k"), false);
    if let Some((beside, every)) = others {
        (every..300).step_by(every).for_each(|n| rig.arrive_at(&lane(beside), rig.now.plus(ms(n as u64 * 1_000))));
    }
    rig.run(ms(300_000));
    rig.engine.check_invariants().unwrap();
    rig.engine.totals().dead
}

#[test]
fn a_key_is_given_up_after_an_hour_in_which_the_upstream_worked_for_others() {
    let away = Ending::Server { status: 503, retry_after: None };
    for bad in [BAD, away, Ending::NoAnswer] {
        assert_eq!(given_up(bad, false, Some(("b", 1)), 10_000), 1, "{bad:?}, others are well");
        assert_eq!(given_up(bad, false, Some(("a", 1)), 10_000), 1, "{bad:?}, what else the tenant has is well");
        assert_eq!(given_up(bad, false, Some(("b", 20)), 10_000), 1, "{bad:?}, others come rarely");
        assert_eq!(
            given_up(bad, false, Some(("b", 20)), 20_000),
            1,
            "{bad:?}, others come rarely, and it is tried rarely"
        );
    }
    // However often it is tried, that leaves the others' success what it is.
    assert_eq!(given_up(BAD, false, Some(("b", 20)), 200), 1);
}

#[test]
fn an_event_that_fails_alone_is_judged_by_its_own_answer() {
    let alone = |bad| given_up(bad, false, None, 10_000);
    assert_eq!(alone(BAD), 1, "an answer to this event");
    assert_eq!(alone(Ending::NoAnswer), 0, "the upstream may be down");
    for status in [429, 502, 503, 504] {
        assert_eq!(alone(Ending::Server { status, retry_after: None }), 0, "{status}: the upstream may be down");
    }
}

#[test]
fn an_outage_gives_no_key_up() {
    for bad in [BAD, Ending::NoAnswer] {
        assert_eq!(given_up(bad, true, Some(("b", 1)), 10_000), 0, "{bad:?} to all");
        assert_eq!(given_up(bad, true, Some(("a", 30)), 10_000), 0, "{bad:?} to all of one tenant");
    }
    // With one key and nobody else, a second event in a row that fails is what tells an outage from an event.
    assert_eq!(given_up(BAD, true, None, 10_000), 1);
}

#[test]
fn slow_retries_leave_retry_slots_to_others() {
    let mut settings = unbroken();
    settings.retry.backoff = Backoff { initial: ms(500), factor: 2.0, max: ms(2_000) };
    let busy = Ending::Server { status: 429, retry_after: None };
    let mut rig = Rig::new(settings).answering(move |dispatch, _| match dispatch.attempt {
        1 => (ms(5), busy),
        _ if dispatch.lane.group.as_str().starts_with("slow") => (ms(6_000), Ending::Success),
        _ => (ms(5), Ending::Success),
    });
    (0..4).for_each(|n| rig.append(&lane(&format!("slow{n}")), 100));
    // By then it is known that they are slow.
    rig.run(ms(20_000));
    rig.trace = Some(Vec::new());
    (0..20).for_each(|n| rig.arrive_at(&lane(&format!("quiet{n}")), rig.now.plus(ms(n * 500))));
    rig.run(ms(15_000));
    rig.engine.check_invariants().unwrap();
    let trace = rig.trace.take().unwrap();
    let quiet = |dispatch: &&Dispatch| dispatch.lane.group.as_str().starts_with("quiet") && dispatch.attempt == 2;
    let waits: Vec<Duration> = trace.iter().map(|(_, dispatch)| dispatch).filter(quiet).map(|d| d.wait).collect();
    assert_eq!(waits.len(), 20);
    assert!(waits.iter().all(|wait| *wait < ms(100)), "{waits:?}");
    let got = |n: u64| rig.got(&format!("slow{n}")).most_in_flight;
    assert!(rig.view("slow0").retrying > 0 && (0..4).all(|n| got(n) <= 8));
}

#[test]
fn each_source_has_its_own_hold_and_a_restart_keeps_it() {
    let mut settings = unbroken();
    settings.retry.backoff.max = ms(10_000);
    // Events of `short` come from a source that allows a minute; the others have the usual hour.
    let world = || {
        let mut rig = Rig::new(settings.clone());
        rig.hold = Some(Box::new(|lane| (lane.group.as_str() == "short").then_some(ms(60_000))));
        rig.answer = Box::new(|dispatch, _| (ms(5), if dispatch.seq.0 <= 2 { BAD } else { Ending::Success }));
        (0..400).for_each(|n| rig.arrive_at(&lane("b"), rig.now.plus(ms(n * 1_000))));
        rig
    };
    let mut rig = world();
    rig.append_as(&lane("short"), 1, Some("k"), false);
    rig.append_as(&lane("usual"), 1, Some("k"), false);
    rig.run(ms(10_000));
    assert_eq!(rig.engine.totals().dead, 0);
    let mut after = world();
    after.store = rig.store.clone();
    let now = after.at();
    for (lane, (fresh, retrying, oldest)) in after.store.lanes() {
        after.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    after.run(ms(300_000));
    assert_eq!((after.view("short").dead, after.view("usual").dead, after.view("usual").retrying), (1, 0, 1));
}

#[test]
fn keys_recovered_as_retrying_hold_their_events() {
    let mut rig = Rig::new(unbroken());
    rig.answer = Box::new(|dispatch, _| (ms(5), if dispatch.seq.0 == 1 { BAD } else { Ending::Success }));
    rig.append_as(&lane("a"), 5, Some("k"), false);
    rig.append(&lane("a"), 5);
    rig.run(ms(1_000));
    // The process dies; a new engine finds what is in the store.
    let mut after = Rig::new(unbroken());
    after.store = rig.store.clone();
    after.trace = Some(Vec::new());
    let now = after.at();
    for (lane, (fresh, retrying, oldest)) in after.store.lanes() {
        after.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    after.drain();
    assert_eq!(after.order(), [1, 2, 3, 4, 5]);
}

// ---- R8: breakers, Retry-After ----------------------------------------------------------------------------------

#[test]
fn one_poisoned_tenant_stops_itself_and_nobody_else() {
    let mut rig = Rig::new(Settings::default());
    rig.answer =
        Box::new(|dispatch, _| (ms(5), if dispatch.lane.group.as_str() == "poisoned" { BAD } else { Ending::Success }));
    rig.append(&lane("poisoned"), 1_000);
    for n in 0..2_000 {
        rig.arrive_at(&lane(&format!("g{}", n % 20)), rig.now.plus(ms(n * 10)));
    }
    rig.run(ms(25_000));
    assert_eq!(rig.engine.breaker(), BreakerState::Closed);
    assert_eq!((0..20).map(|n| rig.got(&format!("g{n}")).delivered).sum::<u64>(), 2_000);
    // Ten at first (and what was in flight with them), then one at 5 s, 15 s …
    assert!(rig.got("poisoned").attempts <= 10 + 8 + 3, "{}", rig.got("poisoned").attempts);
    assert_eq!(rig.view("poisoned").state, State::Broken);
}

#[test]
fn an_outage_is_probed_by_one_group_after_another_and_recovers_slowly() {
    let down_until = Mono(3_600_000_000).plus(ms(60_000));
    let mut rig = Rig::new(Settings::default());
    rig.answer =
        Box::new(move |_, now| if now < down_until { (ms(1), Ending::NoAnswer) } else { (ms(200), Ending::Success) });
    for n in 0..10 {
        rig.append(&lane(&format!("g{n}")), 100);
    }
    rig.run(ms(1_000));
    assert!(matches!(rig.engine.breaker(), BreakerState::Open { .. }));
    rig.trace = Some(Vec::new());
    let before = rig.engine.totals().leases;
    rig.run(ms(58_000));
    let probes = rig.engine.totals().leases - before;
    assert!((2..=5).contains(&probes), "{probes} attempts in a minute of an outage");
    let groups: BTreeSet<_> = rig.trace.iter().flatten().map(|(_, d)| d.lane.group.clone()).collect();
    assert_eq!(groups.len() as u64, probes, "another group each time");
    let mut slots = Vec::new();
    for _ in 0..100 {
        rig.run(ms(500));
        slots.push(rig.engine.slots().busy);
    }
    let first = slots.iter().find(|busy| **busy > 1).unwrap();
    assert!(*first <= 8, "{slots:?}");
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 1_000);
}

#[test]
fn a_group_that_has_not_failed_may_lease_one_attempt_while_the_breaker_is_open() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|dispatch, _| {
        let well = dispatch.lane.group.as_str() == "well";
        (ms(10), if well { Ending::Success } else { Ending::NoAnswer })
    });
    for n in 0..3 {
        rig.append(&lane(&format!("g{n}")), 100);
    }
    rig.run(ms(500));
    assert!(matches!(rig.engine.breaker(), BreakerState::Open { .. }));
    rig.append(&lane("well"), 1);
    rig.run(ms(20));
    assert_eq!(rig.got("well").delivered, 1);
    assert!(matches!(rig.engine.breaker(), BreakerState::SlowStart { .. }), "a success closes it");
}

#[test]
fn retry_after_holds_the_group_and_three_of_them_the_upstream() {
    let mut rig = Rig::new(unbroken());
    rig.answer = Box::new(|dispatch, _| {
        (ms(5), if dispatch.attempt == 1 { asks(429, 30, Scope::Auto) } else { Ending::Success })
    });
    rig.append(&lane("a"), 1);
    rig.run(ms(100));
    rig.append(&lane("a"), 5);
    rig.run(ms(20_000));
    assert_eq!(rig.got("a").attempts, 1, "its fresh events wait too");
    assert_eq!(rig.view("a").state, State::Held);
    for name in ["b", "c", "d", "e"] {
        rig.append(&lane(name), 1);
    }
    rig.run(ms(50));
    assert_eq!(rig.engine.breaker(), BreakerState::Closed, "a 429 is the group's own matter");
    rig.answer = Box::new(|_, _| (ms(5), asks(503, 30, Scope::Auto)));
    for name in ["f", "g", "h"] {
        rig.append(&lane(name), 1);
    }
    rig.run(ms(50));
    assert!(matches!(rig.engine.breaker(), BreakerState::Open { .. }));
    rig.answer = Box::new(|_, _| (ms(5), Ending::Success));
    rig.append(&lane("innocent"), 1);
    rig.run(ms(20_000));
    assert_eq!(rig.got("innocent").attempts, 0, "the upstream itself asked for rest");
    rig.drain();
}

#[test]
fn refusals_are_dead_after_twelve_and_never_means_never() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|dispatch, _| {
        (ms(5), if dispatch.seq.0 == 1 { Ending::Client(404) } else { Ending::Never(Some(410)) })
    });
    rig.append(&lane("a"), 2);
    rig.trace = Some(Vec::new());
    rig.drain();
    assert_eq!(rig.engine.totals().dead, 2);
    let trace = rig.trace.take().unwrap();
    let will: Vec<bool> = trace.iter().filter(|(_, d)| d.seq.0 == 1).map(|(_, d)| d.will_retry).collect();
    assert_eq!(will.len(), 12);
    assert!(will[..11].iter().all(|will| *will) && !will[11]);
}

// ---- draining, removing, recovering ------------------------------------------------------------------------------

#[test]
fn a_drain_starts_nothing_and_ends_when_all_is_settled() {
    let mut rig = Rig::new(Settings::default());
    rig.append(&lane("a"), 100);
    rig.run(ms(30));
    rig.engine.begin_drain();
    assert!(!rig.engine.is_drained());
    let leases = rig.engine.totals().leases;
    rig.run(ms(200));
    assert_eq!(rig.engine.totals().leases, leases);
    assert!(rig.engine.is_drained());
    assert_eq!(rig.engine.totals().queued, 100 - leases);
}

#[test]
fn events_can_be_removed_wherever_they_are() {
    let mut rig = Rig::new(Settings { window: 4, ..unbroken() });
    rig.answer = Box::new(|dispatch, _| (ms(20_000), if dispatch.seq.0 == 2 { BAD } else { Ending::Success }));
    rig.append(&lane("a"), 40);
    rig.run(ms(10));
    let now = rig.at();
    let seq = Seq;
    for n in [1, 10, 39, 39] {
        let known = rig.engine.remove(&lane("a"), seq(n), Removal::Discard, false, now);
        assert!(known || n == 39, "{n}");
    }
    assert!(!rig.engine.remove(&lane("nobody"), seq(1), Removal::Discard, false, now));
    rig.run(ms(100));
    assert_eq!(rig.cancelled.len(), 1);
    rig.engine.check_invariants().unwrap();
    rig.answer = Box::new(|_, _| (ms(5), Ending::Success));
    rig.drain();
    let totals = rig.engine.totals();
    assert_eq!((totals.discarded, totals.delivered), (3, 37));
}

#[test]
fn a_lane_that_is_emptied_before_anything_of_it_was_read_leaves_nothing_behind() {
    let mut rig = Rig::new(Settings::default());
    for _ in 0..3 {
        rig.store.append(&lane("a"), None, None, false, Wall(1_767_225_600_000_000));
    }
    let now = rig.at();
    rig.engine.set_upstream_paused(true);
    for (lane, (fresh, retrying, oldest)) in rig.store.lanes() {
        rig.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    for n in 1..=3 {
        assert!(rig.engine.remove(&lane("a"), Seq(n), Removal::Skip, false, now));
    }
    rig.run(ms(100));
    // Its number is another lane's now, and its group's another group's, which waits for other gates.
    rig.append_as(&lane("b"), 3, None, true);
    rig.engine.check_invariants().unwrap();
    rig.engine.set_upstream_paused(false);
    rig.drain();
    assert_eq!((rig.engine.totals().dead, rig.engine.totals().delivered), (3, 3));
}

#[test]
fn a_restart_reads_heads_when_their_turn_comes() {
    let mut rig = Rig::new(Settings::default());
    for n in 0..500 {
        rig.store.append(&lane(&format!("g{n}")), None, None, false, Wall(1_767_225_600_000_000));
    }
    let now = rig.at();
    for (lane, (fresh, retrying, oldest)) in rig.store.lanes() {
        rig.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    let mut loads = 0;
    while let Some(request) = rig.engine.poll_request(now) {
        assert!(matches!(request, Request::Load { .. }), "{request:?}");
        loads += 1;
    }
    assert!(loads <= 64, "{loads} reads at once for 500 lanes");
    // Those requests are lost with the poll above; a fresh engine over the same store delivers all.
    let mut rig2 = Rig::new(Settings::default());
    rig2.store = rig.store.clone();
    for (lane, (fresh, retrying, oldest)) in rig2.store.lanes() {
        rig2.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    rig2.drain();
    assert_eq!(rig2.engine.totals().delivered, 500);
    assert_eq!(rig2.engine.totals().recovered, 500);
}

#[test]
fn an_attempt_that_died_with_the_process_is_repeated_before_the_rest_of_its_key() {
    let mut rig = Rig::new(unbroken());
    rig.answer = Box::new(|_, _| (ms(20_000), Ending::Success));
    rig.append_as(&lane("a"), 4, Some("k"), false);
    rig.run(ms(1_000));
    let mut after = Rig::new(unbroken());
    after.store = rig.store.clone();
    after.trace = Some(Vec::new());
    let now = after.at();
    after.store.interrupt(now.wall);
    for (lane, (fresh, retrying, oldest)) in after.store.lanes() {
        assert_eq!((fresh, retrying), (3, 1));
        after.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    after.drain();
    assert_eq!(after.order(), [1, 2, 3, 4]);
    assert_eq!(after.trace.iter().flatten().map(|(_, d)| d.attempt).collect::<Vec<_>>(), [2, 1, 1, 1]);
}

#[test]
fn the_same_seed_and_facts_give_the_same_trace() {
    let run = || {
        let mut rig = Rig::new(Settings::default());
        let mut dice = Dice(4);
        rig.answer = Box::new(move |_, _| {
            let bad = dice.unit() < 0.3;
            (dice.exponential(ms(30)), if bad { BAD } else { Ending::Success })
        });
        for n in 0..40 {
            rig.append(&lane(&format!("g{n}")), 50);
        }
        rig.trace = Some(Vec::new());
        rig.run(ms(60_000));
        rig.trace.unwrap()
    };
    assert_eq!(run(), run());
}
