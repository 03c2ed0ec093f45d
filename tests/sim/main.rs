//! The engine with a model store and a model upstream in virtual time, with faults: one seed, one run.
//!
//! First a phase with everything that can go wrong: live requests that come, wait and go away, appends and settlements that are slow or fail, reads that fail or are stale, an upstream
//! that answers 500, 404, 429, hangs or refuses, commands by people, backlogs at their caps, groups that get slots of their own and give them back, and crashes after which a new engine finds what is durable. Then
//! the faults stop, and everything must drain. After every step the engine's invariants are checked against what the model knows.
//!
//! `SIM_SEED=n` runs one seed, `SIM_SEEDS=n` so many; a failure prints its seed and step.

#[path = "../../src/engine/tests/model.rs"]
mod model;
mod world;

use fairlane::{engine, event};
use world::{Sabotage, World};

/// Seeds of a plain run: a few seconds in a debug build.
const SEEDS: u64 = 16;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn everything_drains_and_no_invariant_breaks() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let mut total = world::Tally::default();
    for seed in seeds {
        let mut world = World::new(seed, Sabotage::None);
        match world.run() {
            Ok(tally) => total.add(&tally),
            Err(what) => panic!("SIM_SEED={seed} fails at step {}: {what}", world.step),
        }
    }
    // What a run is for must have happened.
    println!("{total:?}");
    if number("SIM_SEED").is_none() {
        assert!(total.delivered > 1_000 && total.dead > 0 && total.discarded > 0 && total.crashes > 0, "{total:?}");
        assert!(total.failed_settles > 0 && total.failed_loads > 0 && total.cancelled > 0, "{total:?}");
        assert!(total.live_served > 100 && total.live_refused > 10 && total.live_late > 0, "{total:?}");
        assert!(total.live_gone > 10, "{total:?}");
        assert!(total.promoted > 0 && total.demoted > 0 && total.not_admitted > 0, "{total:?}");
        assert!(total.live_gone > 10 && total.overflowed > 1_000, "{total:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3] {
        let run = || {
            let mut world = World::new(seed, Sabotage::None);
            world.run().expect("it passes above");
            world.trace
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Each is a store or a driver that breaks its promise; the simulation must see it, or it could not see anything.
#[test]
fn broken_promises_are_found() {
    for sabotage in [Sabotage::LostSettlement, Sabotage::DoubleReport, Sabotage::LostLoad] {
        let found = (0..20).any(|seed| World::new(seed, sabotage).run().is_err());
        assert!(found, "{sabotage:?} went unseen in 20 seeds");
    }
}
