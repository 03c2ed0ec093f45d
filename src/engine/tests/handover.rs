//! Before the store goes to a successor: events wait, senders that wait for an answer do not.

use std::time::Duration;

use super::rig::{Rig, lane, ms};
use crate::engine::*;

const PATIENCE: Duration = Duration::from_secs(2);

fn check(rig: &mut Rig) {
    rig.engine.check_invariants().unwrap();
    assert_eq!(rig.engine.violations(), 0, "{:?}", rig.engine.last_violation());
}

#[test]
fn events_that_are_held_wait_while_live_requests_go_and_go_on_when_that_is_taken_back() {
    let mut rig = Rig::with(Settings { slots: 4, ..Settings::default() }, |_| Policy::default());
    rig.append(&lane("busy"), 3);
    rig.run(ms(10));
    let leased = rig.turns.len();
    assert!(leased > 0 && !rig.engine.is_quiet());
    rig.engine.hold_events(true);
    rig.append(&lane("other"), 5);
    rig.append(&lane("both"), 1);
    for group in ["both", "alone", "both"] {
        rig.call(group, PATIENCE).unwrap();
    }
    rig.run(ms(300));
    let live = |rig: &Rig| rig.turns.iter().filter(|(_, live)| *live).count();
    assert_eq!((rig.turns.len() - leased, live(&rig)), (3, 3), "only live requests had turns");
    assert!(rig.engine.is_quiet() && rig.engine.has_no_live());
    check(&mut rig);
    rig.engine.hold_events(false);
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 9);
    check(&mut rig);
}

#[test]
fn what_is_in_flight_can_be_ended_and_is_tried_again() {
    let mut rig = Rig::new(Settings::default());
    rig.append(&lane("a"), 1);
    rig.run(ms(10));
    rig.engine.hold_events(true);
    let now = rig.at();
    assert_eq!(rig.engine.cancel_events(now), 1);
    rig.run(ms(10));
    assert!(rig.engine.is_quiet(), "its end is durable");
    assert_eq!(rig.view("a").retrying, 1);
    rig.engine.hold_events(false);
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 1);
    check(&mut rig);
}
