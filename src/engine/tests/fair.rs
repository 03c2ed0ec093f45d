//! Fairness: weights, head start, slow groups, the table of DESIGN.md §3.

use std::time::Duration;

use super::rig::{Dice, Rig, lane, ms, quantile};
use crate::engine::*;
use crate::event::Mono;

fn endless(rig: &mut Rig) {
    rig.refill = Some(Box::new(|_| true));
}

/// `floods` groups that always have 20 events waiting, `quiet` groups with a burst of `burst` events every 6 s · `burst`.
fn floods_and_quiet(floods: usize, quiet: usize, burst: usize, span: Duration) -> Vec<Duration> {
    let mut dice = Dice(0x9E37_79B9);
    let mut rig = Rig::new(Settings::default()).answering(move |_, _| (dice.exponential(ms(50)), Ending::Success));
    rig.refill = Some(Box::new(|lane| lane.group.as_str().starts_with("flood")));
    for n in 0..floods {
        rig.append(&lane(&format!("flood-{n}")), 20);
    }
    let mut dice = Dice(77);
    for n in 0..quiet {
        let lane = lane(&format!("quiet-{n}"));
        let period = ms(6_000) * burst as u32;
        let mut at = rig.now.plus(dice.between(ms(0), period));
        while at < rig.now.plus(span) {
            (0..burst).for_each(|_| rig.arrive_at(&lane, at));
            at = at.plus(dice.exponential(period));
        }
    }
    rig.run(ms(10_000));
    eprintln!("after 5 s {:?}", {
        let mut w: Vec<_> = rig
            .got
            .iter()
            .filter(|(g, _)| g.as_str().starts_with("quiet"))
            .flat_map(|(_, g)| g.waits.clone())
            .collect();
        (w.len(), quantile(&mut w, 0.5), quantile(&mut w, 0.9), quantile(&mut w, 0.99), quantile(&mut w, 1.0))
    });
    rig.got.values_mut().for_each(|got| got.waits.clear());
    rig.run(span - ms(10_000));
    eprintln!("steps {}", rig.engine.steps());
    let quiet = rig.got.iter().filter(|(group, _)| group.as_str().starts_with("quiet"));
    quiet.flat_map(|(_, got)| got.waits.clone()).collect()
}

#[test]
fn quiet_groups_wait_no_longer_than_one_attempt_beside_500_floods() {
    let mut waits = floods_and_quiet(500, 500, 1, ms(20_000));
    assert!(waits.len() > 1_000);
    eprintln!(
        "{:?}",
        (quantile(&mut waits, 0.5), quantile(&mut waits, 0.9), quantile(&mut waits, 0.99), quantile(&mut waits, 1.0))
    );
    let (p50, p99) = (quantile(&mut waits, 0.5), quantile(&mut waits, 0.99));
    assert!(p50 <= ms(3), "p50 {p50:?}");
    assert!(p99 <= ms(50), "p99 {p99:?}");
}
