//! A wall clock that is set by hours while retries wait, in memory and in the store alone; and how often the store is read for them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::rig::{Rig, lane, ms};
use crate::engine::{Ending, Policy, Settings};

const HOUR: Duration = Duration::from_secs(3_600);
const SIX_HOURS_US: i64 = 6 * 3_600_000_000;

/// More than a lane keeps in memory.
const EVENTS: usize = 200;

/// A lane whose events fail until the switch is on, an hour of failures behind them: their retries are about an hour apart.
fn an_hour_of_failures() -> (Rig, Rc<Cell<bool>>) {
    let works = Rc::new(Cell::new(false));
    let switch = Rc::clone(&works);
    let ending = move || if switch.get() { Ending::Success } else { Ending::Server { status: 429, retry_after: None } };
    let mut rig = Rig::new(Settings::default()).answering(move |_, _| (ms(50), ending()));
    rig.append(&lane("a"), EVENTS);
    rig.run(2 * HOUR);
    assert!(rig.view("a").retrying as usize > EVENTS - 16, "{}", rig.view("a").retrying);
    (rig, works)
}

fn attempts(rig: &Rig) -> u64 {
    rig.got("a").attempts
}

/// Runs until nothing is pending; how long that took.
fn drain(rig: &mut Rig) -> Duration {
    let from = rig.now;
    rig.drain();
    rig.now.since(from)
}

#[test]
fn what_is_only_in_the_store_is_read_when_it_is_near_and_not_again_and_again() {
    let (mut rig, _) = an_hour_of_failures();
    let (loads, before) = (rig.due_loads, attempts(&rig));
    rig.run(6 * HOUR);
    let (loads, attempts) = (rig.due_loads - loads, attempts(&rig) - before);
    // Delays are half an hour to an hour: each comes six times at least, those in memory no more often than the others.
    assert!((6 * EVENTS as u64..12 * EVENTS as u64).contains(&attempts), "{attempts}");
    assert!(loads < attempts, "{loads} reads for {attempts} attempts");
}

#[test]
fn retries_come_in_time_when_the_clock_is_set_back() {
    let (mut rig, works) = an_hour_of_failures();
    rig.set_by_us = -SIX_HOURS_US;
    works.set(true);
    let took = drain(&mut rig);
    assert!(took <= HOUR + Duration::from_mins(2), "{took:?}");
}

#[test]
fn retries_that_failed_before_and_after_the_clock_was_set_back_come_in_time() {
    let (mut rig, works) = an_hour_of_failures();
    rig.set_by_us = -SIX_HOURS_US;
    rig.run(Duration::from_mins(20));
    rig.set_by_us /= 2;
    rig.run(Duration::from_mins(20));
    works.set(true);
    let took = drain(&mut rig);
    assert!(took <= 2 * HOUR, "{took:?}");
}

#[test]
fn a_start_after_the_clock_was_set_back_waits_no_longer_than_two_of_the_longest_delays() {
    let (mut rig, works) = an_hour_of_failures();
    rig.set_by_us = -SIX_HOURS_US;
    rig.restart(|_| Policy::default(), Settings::default());
    works.set(true);
    let took = drain(&mut rig);
    assert!(took <= 2 * HOUR + Duration::from_mins(2), "{took:?}");
}

#[test]
fn when_the_clock_is_set_forth_retries_do_not_come_all_at_once() {
    let settings = Settings::default();
    let (mut rig, _) = an_hour_of_failures();
    rig.set_by_us = SIX_HOURS_US;
    let before = attempts(&rig);
    rig.run(Duration::from_secs(1));
    let at_once = attempts(&rig) - before;
    assert!(at_once < 20, "{at_once} of {EVENTS}");

    // After a restart all of them are due: they come by turns, as many at a time as retries may be.
    rig.restart(|_| Policy::default(), settings);
    let before = attempts(&rig);
    rig.got.clear();
    rig.run(Duration::from_secs(1));
    assert!(rig.got("a").most_in_flight <= 4, "a quarter of a quarter of 64 slots: {}", rig.got("a").most_in_flight);
    rig.run(HOUR);
    assert!(attempts(&rig) < 3 * EVENTS as u64, "{} after {before}", attempts(&rig));
}

#[test]
fn events_that_always_fail_do_not_keep_the_others_of_their_lane_from_being_tried_again() {
    // As many as a lane keeps in memory fail for ever, the others once.
    let mut rig = Rig::new(Settings::default()).answering(|dispatch, _| {
        let fails = dispatch.seq.0 <= 64 || dispatch.attempt == 1;
        (ms(50), if fails { Ending::Server { status: 429, retry_after: None } } else { Ending::Success })
    });
    rig.append(&lane("a"), EVENTS);
    rig.run(Duration::from_mins(1));
    assert_eq!(rig.got("a").delivered as usize, EVENTS - 64, "their first retry is due after 5 s at the latest");
}
