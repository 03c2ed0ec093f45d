//! Properties: what holds for any weights, calls and sequences, not only for those that somebody thought of.

use std::time::Duration;

use proptest::prelude::*;

use super::rig::{Dice, Rig, inner, lane, ms};
use crate::engine::*;

/// A group of the fairness property: weight in quarters, cap, its calls' length in milliseconds.
fn contender() -> impl Strategy<Value = (u32, u32, u64)> {
    (1u32..17, 1u32..6, 2u64..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// I6: of groups that have something to do all the time, no two are further apart in time per weight than their head starts and
    /// what each may have in flight; and each is charged what it was served (I4), within its cap (I5).
    #[test]
    fn groups_that_are_always_ready_stay_together(groups in prop::collection::vec(contender(), 2..6), slots in 2u32..9) {
        let contenders = groups.clone();
        let slow = Slow { after: Duration::from_secs(100), ..Settings::default().slow };
        let settings = Settings { slots, slow, ..Settings::default() };
        let policy = move |group: &Group| {
            let (weight, ..) = contenders[group.as_str().parse::<usize>().unwrap()];
            // Caps of all the slots: otherwise a group is not ready all the time.
            Policy { weight: f64::from(weight) / 4.0, concurrency: Some(slots), ..Policy::default() }
        };
        let calls = groups.clone();
        let mut dice = Dice(42);
        let mut rig = Rig::with(settings, policy).answering(move |dispatch, _| {
            let (.., call) = calls[dispatch.lane.group.as_str().parse::<usize>().unwrap()];
            (dice.between(ms(1), ms(call)), Ending::Success)
        });
        rig.refill = Some(Box::new(|_| true));
        for n in 0..groups.len() {
            rig.append(&lane(&n.to_string()), 2 * slots as usize + 2);
        }
        rig.run(ms(20_000));
        prop_assert!(rig.engine.check_invariants().is_ok());
        let time = |n: usize| rig.got(&n.to_string()).worker_us as f64 / (f64::from(groups[n].0) / 4.0);
        for a in 0..groups.len() {
            for b in 0..groups.len() {
                let lightest = f64::from(groups[a].0.min(groups[b].0)) / 4.0;
                let bound = (500_000.0 + f64::from(slots) * 400_000.0) / lightest;
                prop_assert!((time(a) - time(b)).abs() <= bound, "{} and {} µs, bound {bound}", time(a), time(b));
            }
        }
        for (n, _) in groups.iter().enumerate() {
            prop_assert!(rig.got(&n.to_string()).most_in_flight <= slots);
        }
    }

    /// R7: whatever fails, whatever the window, each key's events are first leased in commit order, and everything ends.
    #[test]
    fn keys_keep_their_order(
        events in prop::collection::vec((0usize..4, prop::option::weighted(0.8, 0u32..5), any::<bool>()), 1..150),
        window in 2usize..20,
        bad in 0u32..60,
        seed in 1u64..1_000_000,
    ) {
        let mut settings = Settings { window, ..Settings::default() };
        settings.breakers.group.failures = u32::MAX;
        settings.breakers.upstream.failures = u32::MAX;
        settings.retry.backoff.initial = ms(300);
        let mut dice = Dice(seed);
        let mut rig = Rig::new(settings).answering(move |_, _| {
            let fails = dice.unit() * 100.0 < f64::from(bad);
            (dice.between(ms(1), ms(50)), if fails { Ending::NoAnswer } else { Ending::Success })
        });
        let lanes = [lane("a"), inner("a", "x"), inner("a", "y"), lane("b")];
        let mut expected = std::collections::BTreeMap::<_, Vec<u64>>::new();
        for (n, (index, key, replay)) in events.iter().enumerate() {
            let name = key.map(|key| format!("k{key}"));
            rig.append_as(&lanes[*index], 1, name.as_deref(), *replay);
            if let Some(key) = key {
                expected.entry((*index, *key)).or_default().push(n as u64 + 1);
            }
        }
        rig.trace = Some(Vec::new());
        rig.drain();
        prop_assert!(rig.engine.check_invariants().is_ok());
        prop_assert_eq!(rig.engine.totals().delivered, events.len() as u64);
        for (_, seqs) in expected {
            let mut leased: Vec<u64> = rig.order().into_iter().filter(|seq| seqs.contains(seq)).collect();
            leased.dedup();
            prop_assert_eq!(leased, seqs);
        }
    }

    /// Nothing that is told out of place moves anything: unknown tickets, batches, lanes and events, and clocks that run back.
    #[test]
    fn nonsense_changes_nothing(calls in prop::collection::vec((0u8..12, 0u64..50), 1..200)) {
        let mut rig = Rig::new(Settings::default());
        rig.append(&lane("a"), 20);
        rig.run(ms(60));
        let before = rig.engine.totals();
        for (call, n) in calls {
            let now = Now { mono: Mono(rig.now.0 - n), wall: Wall(n) };
            match call {
                0 => prop_assert!(!rig.engine.on_finished(Ticket(1_000 + n), Ending::Success, ms(n), now)),
                1 => prop_assert!(!rig.engine.on_settled(Batch(1_000 + n), now)),
                2 => prop_assert!(!rig.engine.on_settle_failed(Batch(1_000 + n), now)),
                3 => rig.engine.on_loaded(&lane("nobody"), Vec::new(), true, now),
                4 => rig.engine.on_load_failed(&lane("nobody"), now),
                5 => rig.engine.on_due_loaded(Vec::new(), n % 2 == 0, now),
                6 => rig.engine.on_timeout(now),
                7 => prop_assert!(!rig.engine.remove(&lane("nobody"), Seq(n), Removal::Discard, false, now)),
                8 => prop_assert_eq!(rig.engine.cancel(&lane("nobody").group, now), 0),
                9 => rig.engine.set_policy(&lane("nobody").group, Policy::default(), now),
                10 => rig.engine.resume(&lane("a").group, now),
                _ => prop_assert!(rig.engine.poll_timeout().is_none_or(|at| at >= rig.now)),
            }
            prop_assert!(rig.engine.check_invariants().is_ok());
        }
        prop_assert_eq!(rig.engine.totals(), before);
        rig.drain();
    }
}
