//! Built-in scenarios: what happened to others, as arrivals. The same seed gives the same events.
//!
//! All are for a receiver with the default 64 slots and calls of 50 ms, 1,280 a second, and last a minute, `storm` five. Quiet groups send an
//! event every six seconds on average.

use std::time::Duration;

use clap::ValueEnum;

use super::arrivals::{Answer, Arrival, Traffic};
use super::dice::Dice;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// One group sends 30,000 events within five seconds; fifty are quiet
    Flood,
    /// 500 groups send more than the receiver takes, all the time; 500 are quiet
    #[value(name = "500-floods")]
    FiveHundredFloods,
    /// Eight of 108 steady groups begin to hang for 20 s a call, at half the capacity; a hundred are quiet
    Hang,
    /// One group imports 20,000 products and goes on selling; fifty are quiet
    Import,
    /// Half of a thousand groups turn slow (3 s a call) or hang (10 s) within three seconds, for half a minute
    Outbreak,
    /// One of 300 stores sends ten million events in five minutes
    Storm,
}

const QUIET: &str = "quiet";

/// The length of all but one.
const LENGTH: Duration = Duration::from_secs(60);

/// The length of that one.
const STORM: Duration = Duration::from_secs(300);

/// Between two events of a quiet group.
const QUIET_EVERY: Duration = Duration::from_secs(6);

/// How long a call takes that hangs.
const HANGING: Duration = Duration::from_secs(20);

/// Between two events of a steady group: a hundred of them keep 30 of the 64 slots busy, which leaves half for those that are slow.
const STEADY_EVERY: Duration = Duration::from_millis(165);

/// Between two events of a group that hangs: before, it holds half a slot on average, far from its cap of eight.
const HANGING_EVERY: Duration = Duration::from_millis(95);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Scenario {
    /// Its events.
    pub(super) fn traffic(self, seed: u64) -> Traffic {
        let mut stage = Stage { traffic: Traffic::default(), dice: Dice::of(&[seed, self as u64]) };
        match self {
            Self::Flood => {
                stage.quiet(50);
                let flood = stage.traffic.lane_of("the flood", "flood", None);
                stage.evenly(flood, s(10)..s(15), 30_000);
            }
            Self::FiveHundredFloods => {
                stage.quiet(500);
                for number in 0..500 {
                    let lane = stage.traffic.lane_of("the floods", &format!("flood-{number}"), None);
                    stage.now_and_then(lane, s(0)..LENGTH, Duration::from_millis(250), None);
                }
            }
            Self::Hang => {
                stage.quiet(100);
                for number in 0..100 {
                    let lane = stage.traffic.lane_of("steady", &format!("steady-{number}"), None);
                    stage.now_and_then(lane, s(0)..LENGTH, STEADY_EVERY, None);
                }
                for number in 0..8 {
                    let lane = stage.traffic.lane_of("those that hang", &format!("hanging-{number}"), None);
                    stage.now_and_then(lane, s(0)..s(20), HANGING_EVERY, None);
                    stage.now_and_then(lane, s(20)..s(40), HANGING_EVERY, Some(HANGING));
                    stage.now_and_then(lane, s(40)..LENGTH, HANGING_EVERY, None);
                }
            }
            Self::Import => {
                stage.quiet(50);
                let (group, products, orders) = ("importer", "products/update", "orders/create");
                let lane = stage.traffic.lane_of("the import", group, Some(products));
                stage.evenly(lane, s(10)..s(20), 20_000);
                let lane = stage.traffic.lane_of("its own orders", group, Some(orders));
                stage.now_and_then(lane, s(0)..LENGTH, s(1), None);
            }
            Self::Outbreak => {
                for number in 0..1_000_u32 {
                    // A quarter of what the receiver takes.
                    let every = Duration::from_millis(3_125);
                    if !number.is_multiple_of(2) {
                        let lane = stage.traffic.lane_of(QUIET, &format!("quiet-{number}"), None);
                        stage.now_and_then(lane, s(0)..LENGTH, every, None);
                        continue;
                    }
                    let lane = stage.traffic.lane_of("those that turn", &format!("turning-{number}"), None);
                    let turns = s(10) + s(3).mul_f64(stage.dice.unit());
                    let call = if number.is_multiple_of(4) { s(3) } else { s(10) };
                    stage.now_and_then(lane, s(0)..turns, every, None);
                    stage.now_and_then(lane, turns..s(40), every, Some(call));
                    stage.now_and_then(lane, s(40)..LENGTH, every, None);
                }
            }
            Self::Storm => {
                for number in 0..299 {
                    let lane = stage.traffic.lane_of(QUIET, &format!("store-{number}"), Some("orders/create"));
                    stage.now_and_then(lane, s(0)..STORM, s(2), None);
                }
                let lane = stage.traffic.lane_of("the storm", "storm", Some("products/update"));
                stage.evenly(lane, s(0)..STORM, 10_000_000);
                let lane = stage.traffic.lane_of("its own orders", "storm", Some("orders/create"));
                stage.now_and_then(lane, s(0)..STORM, s(2), None);
            }
        }
        stage.traffic.in_order()
    }
}

struct Stage {
    traffic: Traffic,
    dice: Dice,
}

impl Stage {
    fn quiet(&mut self, groups: u32) {
        for number in 0..groups {
            let lane = self.traffic.lane_of(QUIET, &format!("quiet-{number}"), None);
            self.now_and_then(lane, s(0)..LENGTH, QUIET_EVERY, None);
        }
    }

    /// Events that know nothing of each other.
    fn now_and_then(&mut self, lane: u32, during: std::ops::Range<Duration>, every: Duration, call: Option<Duration>) {
        let mut at = during.start + self.dice.exponential(every);
        while at < during.end {
            self.event(lane, at, call);
            at += self.dice.exponential(every);
        }
    }

    /// So many events, one after the other.
    fn evenly(&mut self, lane: u32, during: std::ops::Range<Duration>, events: u32) {
        let step = (during.end - during.start) / events;
        for number in 0..events {
            self.event(lane, during.start + step * number, None);
        }
    }

    fn event(&mut self, lane: u32, at: Duration, call: Option<Duration>) {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let call_us = call.map_or(0, |call| u32::try_from(call.as_micros()).unwrap_or(u32::MAX));
        let arrival = Arrival { at_us: micros(at), lane, call_us, order: 0, answer: Answer::Status(200) };
        self.traffic.add(arrival).expect("invariant: scenarios are far smaller than the limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_its_seed_and_in_order() {
        // The storm is too large to be made four times here, and is made as the others are.
        for scenario in Scenario::value_variants().iter().filter(|scenario| **scenario != Scenario::Storm) {
            let (one, again, other) = (scenario.traffic(1), scenario.traffic(1), scenario.traffic(2));
            assert_eq!(one.arrivals, again.arrivals);
            assert_ne!(one.arrivals, other.arrivals);
            assert!(one.arrivals.is_sorted_by_key(|arrival| arrival.at_us), "{scenario:?}");
            assert_eq!(one.kinds.len(), one.lanes.len());
            assert!(one.kinds.contains(&QUIET));
        }
    }
}
