//! Cost: what a step takes does not depend on how many groups are blocked, idle or in debt, and grows with the logarithm of those
//! that are ready.

use super::rig::{Rig, lane, ms, row};
use crate::engine::*;

/// Steps of the ready structure for each lease, with `groups` ready groups.
fn steps_a_lease(groups: usize) -> f64 {
    let mut rig = Rig::new(Settings::default());
    for n in 0..groups {
        rig.append(&lane(&format!("g{n}")), 2);
    }
    rig.refill = Some(Box::new(|_| true));
    rig.run(ms(100));
    let (steps, leases) = (rig.engine.steps(), rig.engine.totals().leases);
    rig.run(ms(1_000));
    (rig.engine.steps() - steps) as f64 / (rig.engine.totals().leases - leases) as f64
}

#[test]
fn a_lease_takes_steps_with_the_logarithm_of_ready_groups() {
    let (one, thousand, many) = (steps_a_lease(1), steps_a_lease(1_000), steps_a_lease(100_000));
    row("steps a lease with 1, 1,000 and 100,000 ready groups", &format!("{one:.1}, {thousand:.1}, {many:.1}"));
    // A heap with four children a node is 1, 5 and 9 levels deep; a lease, an end and a settlement move a group a few times.
    assert!(one <= 12.0, "1 group: {one:.1} steps");
    assert!(thousand <= 12.0 + 4.0 * 4.0 * 5.0, "1,000 groups: {thousand:.1} steps");
    assert!(many <= 12.0 + 4.0 * 4.0 * 9.0, "100,000 groups: {many:.1} steps");
    assert!(many <= thousand * 2.5, "100 times the groups: {thousand:.1}, then {many:.1} steps");
}

#[test]
fn ten_thousand_limited_groups_cost_a_free_one_nothing() {
    let policy = |group: &Group| Policy {
        rate: (group.as_str() != "free").then_some(Rate { events: 1, per: ms(3_600_000) }),
        ..Policy::default()
    };
    let mut rig = Rig::with(Settings::default(), policy);
    for n in 0..10_000 {
        rig.append(&lane(&format!("limited-{n}")), 2);
    }
    rig.run(ms(20_000));
    let (steps, leases) = (rig.engine.steps(), rig.engine.totals().leases);
    rig.refill = Some(Box::new(|lane| lane.group.as_str() == "free"));
    rig.append(&lane("free"), 1);
    rig.run(ms(10_000));
    let leases = rig.engine.totals().leases - leases;
    assert!(leases >= 190, "{leases} leases of one attempt after another");
    let each = (rig.engine.steps() - steps) as f64 / leases as f64;
    assert!(each <= 6.0, "{each:.1} steps a lease");
    let mut waits = rig.got("free").waits;
    let longest = super::rig::quantile(&mut waits, 1.0);
    row("10,000 limited groups and a free one: its longest wait, steps a lease", &format!("{longest:?}, {each:.1}"));
    assert!(longest < ms(1), "{waits:?}");
}

#[test]
fn idle_groups_leave_memory_and_debts_go_when_they_are_paid() {
    let mut rig = Rig::new(Settings::default());
    for n in 0..2_000 {
        rig.append(&lane(&format!("g{n}")), 1);
    }
    rig.drain();
    assert_eq!(rig.engine.active_groups(), 0);
    assert_eq!(rig.engine.active_lanes(), 0);
    rig.append(&lane("last"), 40);
    rig.drain();
    // Two records are looked at in every step.
    rig.append(&lane("last"), 500);
    rig.drain();
    assert_eq!(rig.engine.dormant_groups(), 0, "nobody competed, so nobody owes");
}

#[test]
fn a_lane_keeps_its_window_in_memory_and_reads_the_rest() {
    let mut rig = Rig::new(Settings { window: 16, ..Settings::default() });
    rig.append(&lane("deep"), 5_000);
    rig.trace = Some(Vec::new());
    rig.drain();
    assert_eq!(rig.order(), (1..=5_000).collect::<Vec<_>>(), "in the order of commits");
}
