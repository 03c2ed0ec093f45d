//! One run: arrivals go in, the engine decides, a receiver that is a few numbers answers, and time jumps to the next thing that happens.
//!
//! The engine is the gateway's own, driven as the driver does: facts in, requests out, until none is left. What is durable is so at once,
//! so a wait here is the scheduler's part of it, without the disk's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::arrivals::{Answer, Traffic};
use super::dice::Dice;
use super::shelf::Shelf;
use super::variant::Variant;
use crate::engine::{Dispatch, Ending, Engine, Request, Ticket};
use crate::event::{Mono, Now, Seq, Wall};

/// Time on the engine's clock when the first event arrives, and what the wall clock says then (2026-01-01).
const BEGINNING: Mono = Mono(3_600_000_000);
const EPOCH_US: u64 = 1_767_225_600_000_000;

/// Events that are told together when they arrive at the same moment.
const BATCH: usize = 256;

/// The wait of an event that was never leased.
pub(super) const NEVER: f32 = f32::INFINITY;

/// How the receiver and the run are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) seed: u64,
    /// The mean of a call whose length the arrival does not say.
    pub(super) call: Duration,
    /// So long after the last arrival the run ends, whatever waits.
    pub(super) drain: Duration,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// From arrival to first lease in seconds, an event each; [`NEVER`] where there was none.
    pub(super) waits: Vec<f32>,
    pub(super) delivered: u64,
    pub(super) dead: u64,
    /// Events that still waited at the end.
    pub(super) left: u64,
    pub(super) attempts: u64,
    /// Time that slots were held, in all.
    pub(super) worker: Duration,
    /// From the first arrival to the end.
    pub(super) took: Duration,
    /// Invariants of the engine that did not hold; always 0.
    pub(super) violations: u64,
}

struct Flight {
    seq: Seq,
    began: Mono,
    took: Duration,
    ending: Ending,
}

struct World<'t> {
    traffic: &'t Traffic,
    variant: &'t Variant,
    conditions: Conditions,
    engine: Engine,
    shelf: Shelf<'t>,
    now: Mono,
    flying: HashMap<Ticket, Flight>,
    ends: BinaryHeap<Reverse<(Mono, Ticket)>>,
    waits: Vec<f32>,
    attempts: u64,
    worker: Duration,
}

/// Runs `traffic` through `variant`.
pub(super) fn run(traffic: &Traffic, variant: &Variant, conditions: Conditions) -> Outcome {
    let mut world = World {
        traffic,
        variant,
        conditions,
        engine: Engine::new(variant.settings.clone(), variant.policies(), conditions.seed),
        shelf: Shelf::new(traffic, wall(BEGINNING), |lane| variant.lane(lane)),
        now: BEGINNING,
        flying: HashMap::new(),
        ends: BinaryHeap::new(),
        waits: vec![NEVER; traffic.arrivals.len()],
        attempts: 0,
        worker: Duration::ZERO,
    };
    world.play();
    world.outcome()
}

impl World<'_> {
    fn at(&self) -> Now {
        Now { mono: self.now, wall: wall(self.now) }
    }

    fn play(&mut self) {
        let end = BEGINNING.plus(self.traffic.span()).plus(self.conditions.drain);
        loop {
            self.execute();
            if self.shelf.len() == self.traffic.arrivals.len() && self.shelf.pending() == 0 {
                return;
            }
            let timeout = self.engine.poll_timeout();
            let ended = self.ends.peek().map(|Reverse((at, _))| *at);
            let Some(next) = [timeout, ended, self.next_arrival()].into_iter().flatten().min() else { return };
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if timeout.is_some_and(|at| at <= self.now) {
                self.engine.on_timeout(self.at());
            }
            self.end_one();
            self.arrive();
        }
    }

    fn next_arrival(&self) -> Option<Mono> {
        self.shelf.next().map(|at| Mono(at.0 - EPOCH_US))
    }

    /// Tells of the events that have arrived by now.
    fn arrive(&mut self) {
        let now = self.at();
        let mut batch = Vec::new();
        while batch.len() < BATCH && self.shelf.next().is_some_and(|at| at <= now.wall) {
            batch.extend(self.shelf.append());
        }
        if !batch.is_empty() {
            self.engine.on_appended(batch, now);
        }
    }

    /// Tells of an attempt that has ended by now.
    fn end_one(&mut self) {
        let Some(Reverse((_, ticket))) = self.ends.peek().copied().filter(|Reverse((at, _))| *at <= self.now) else {
            return;
        };
        self.ends.pop();
        // One that was cancelled ended before.
        let Some(flight) = self.flying.remove(&ticket) else { return };
        self.worker += flight.took;
        if matches!(flight.ending, Ending::Client(_)) {
            self.shelf.refused(flight.seq);
        }
        self.engine.on_finished(ticket, flight.ending, flight.took, self.at());
    }

    fn execute(&mut self) {
        while let Some(request) = self.engine.poll_request(self.at()) {
            let now = self.at();
            match request {
                Request::Dispatch(dispatch) => self.dispatch(&dispatch),
                Request::Settle { batch, settlements } => {
                    settlements.iter().for_each(|settle| self.shelf.settle(settle));
                    self.engine.on_settled(batch, now);
                }
                Request::Load { lane, after, n } => {
                    let (events, more) = self.shelf.load(&lane, after, n);
                    self.engine.on_loaded(&lane, events, more, now);
                }
                Request::LoadDue { after, n } => {
                    let (events, more) = self.shelf.due(after, n);
                    self.engine.on_due_loaded(events, more, now);
                }
                Request::Cancel { ticket } => self.cancel(ticket),
                // Nobody waits for an answer here.
                Request::Live(_) | Request::Unserved { .. } => {}
            }
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) {
        let place = usize::try_from(dispatch.seq.0).unwrap_or(usize::MAX).wrapping_sub(1);
        let Some(arrival) = self.traffic.arrivals.get(place) else { return };
        self.attempts += 1;
        if let Some(wait) = self.waits.get_mut(place).filter(|wait| **wait == NEVER) {
            *wait = dispatch.wait.as_secs_f32();
        }
        let call = match arrival.call_us {
            // By event and attempt, so that it takes as long under every configuration.
            0 => Dice::of(&[self.conditions.seed, dispatch.seq.0, u64::from(dispatch.attempt)])
                .exponential(self.conditions.call),
            micros => Duration::from_micros(u64::from(micros)),
        };
        let timeout = self.variant.settings.timeout;
        let (took, ending) = match arrival.answer {
            _ if call >= timeout => (timeout, Ending::NoAnswer),
            Answer::None => (call, Ending::NoAnswer),
            Answer::Status(status) => (call, ending(status)),
        };
        let flight = Flight { seq: dispatch.seq, began: self.now, took, ending };
        self.ends.push(Reverse((self.now.plus(took), dispatch.ticket)));
        self.flying.insert(dispatch.ticket, flight);
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some(flight) = self.flying.get_mut(&ticket) {
            flight.took = self.now.since(flight.began);
            flight.ending = Ending::Cancelled;
            self.ends.push(Reverse((self.now, ticket)));
        }
    }

    fn outcome(self) -> Outcome {
        // What is in flight at the end held its slot until then.
        let flying: Duration = self.flying.values().map(|flight| self.now.since(flight.began)).sum();
        Outcome {
            waits: self.waits,
            delivered: self.shelf.delivered,
            dead: self.shelf.dead,
            left: self.shelf.pending(),
            attempts: self.attempts,
            worker: self.worker + flying,
            took: self.now.since(BEGINNING),
            violations: self.engine.violations(),
        }
    }
}

/// What the wall clock says then.
fn wall(at: Mono) -> Wall {
    Wall(EPOCH_US + at.0)
}

/// What a status means for an event, as the deliverer sees it: `docs/delivery.md`.
fn ending(status: u16) -> Ending {
    match status {
        200..=299 => Ending::Success,
        408 | 425 | 429 => Ending::Server { status, retry_after: None },
        410 => Ending::Never(Some(status)),
        400..=499 => Ending::Client(status),
        _ => Ending::Server { status, retry_after: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::simulate::arrivals::Arrival;
    use crate::cli::simulate::variant::VariantArguments;

    fn variant() -> Variant {
        let variants = VariantArguments::default().variants();
        variants.unwrap_or_else(|_| panic!("variants")).remove(0)
    }

    const CONDITIONS: Conditions =
        Conditions { seed: 1, call: Duration::from_millis(50), drain: Duration::from_secs(600) };

    fn traffic(events: &[(u64, &str, u32, Answer)]) -> Traffic {
        let mut traffic = Traffic::default();
        for (at_ms, group, call_ms, answer) in events {
            let lane = traffic.lane_of("kind", group, None);
            let arrival = Arrival { at_us: at_ms * 1_000, lane, call_us: call_ms * 1_000, order: 0, answer: *answer };
            traffic.add(arrival).unwrap();
        }
        traffic.in_order()
    }

    #[test]
    fn a_lone_group_has_its_cap_and_no_more() {
        let all: Vec<_> = (0..16).map(|_| (0, "a", 100, Answer::Status(200))).collect();
        let outcome = run(&traffic(&all), &variant(), CONDITIONS);
        // Eight of 64 slots: the second eight wait for the first.
        assert_eq!(outcome.waits.iter().filter(|wait| **wait == 0.0).count(), 8);
        assert_eq!(outcome.waits.iter().filter(|wait| **wait == 0.1).count(), 8);
        assert_eq!((outcome.delivered, outcome.left, outcome.attempts), (16, 0, 16));
        assert_eq!((outcome.took, outcome.worker), (Duration::from_millis(200), Duration::from_millis(1_600)));
    }

    #[test]
    fn what_fails_is_tried_again_dies_or_is_left() {
        let events = [
            (0, "a", 10, Answer::Status(410)),
            (0, "b", 10, Answer::Status(404)),
            (0, "c", 10, Answer::Status(500)),
            (0, "d", 10, Answer::None),
            (0, "e", 40_000, Answer::Status(200)),
        ];
        let long = Conditions { drain: Duration::from_secs(5 * 86_400), ..CONDITIONS };
        let outcome = run(&traffic(&events), &variant(), long);
        assert_eq!((outcome.delivered, outcome.dead, outcome.left, outcome.violations), (0, 5, 0, 0));
        // After twelve refusals, or three days.
        assert!(outcome.took > Duration::from_secs(3 * 86_400 - 3_600), "{:?}", outcome.took);
        assert!((100..1_000).contains(&outcome.attempts), "{}", outcome.attempts);
        let short = run(&traffic(&events), &variant(), CONDITIONS);
        assert_eq!((short.dead, short.left), (1, 4));
    }
}
