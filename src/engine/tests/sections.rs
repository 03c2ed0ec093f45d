//! Sections that come and go: several engines over one store, as nodes are, with shards that move in order, nodes that die and nodes that
//! find out late that they have lost theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::model::Model;
use super::rig::{Dice, Rig, lane, ms};
use crate::engine::*;
use crate::event::{Group, Lane, Mono, Now, Seq, Wall};

const SECTIONS: u64 = 3;
const GROUPS: u64 = 7;
const CAP: u32 = 2;
const TIMEOUT: Duration = Duration::from_secs(2);

/// An attempt that is under way at the upstream, whoever still cares.
#[derive(Clone, Debug)]
struct Flight {
    node: usize,
    life: u64,
    ticket: Ticket,
    seq: Seq,
    group: Group,
    ends: Mono,
}

struct Node {
    engine: Engine,
    life: u64,
    /// Sections that it believes to own.
    owns: BTreeSet<u16>,
    /// Those of them that it gives up, and to whom.
    leaving: BTreeMap<u16, usize>,
    /// Those that it has lost and still has something of.
    lost: BTreeSet<u16>,
}

/// Nodes, their store and what the upstream sees.
struct World {
    nodes: Vec<Node>,
    store: Model,
    owner: BTreeMap<u16, usize>,
    flights: Vec<Flight>,
    now: Mono,
    dice: Dice,
    /// In the order of their first attempts, by order key.
    first: BTreeMap<(Group, Group), Vec<Seq>>,
    keys: BTreeMap<Seq, (Group, Group)>,
    delivered: BTreeMap<Seq, u32>,
    /// Events that were under way when their section was lost: the only ones that may be sent twice.
    interrupted: BTreeSet<Seq>,
    /// What lost nodes may still have at the upstream: written down, so that the next owner but one knows of it too.
    foreign: Vec<(u16, Group, Mono)>,
    /// What came to a section while its owner gave it up, and was not told.
    untold: BTreeMap<u16, Vec<Queued>>,
}

fn engine() -> Engine {
    let mut settings = Settings { slots: 6, timeout: TIMEOUT, window: 4, ..Settings::default() };
    settings.breakers.group.failures = u32::MAX;
    settings.breakers.upstream.failures = u32::MAX;
    settings.retry.backoff.initial = ms(300);
    let policy = |_: &Group| Policy { concurrency: Some(CAP), ..Policy::default() };
    Engine::new(settings, Box::new(policy), 1)
}

fn section_of(group: u64) -> u64 {
    group % SECTIONS
}

impl World {
    fn new(seed: u64) -> Self {
        let node = |n: usize| Node {
            engine: engine(),
            life: 0,
            owns: (0..SECTIONS as u16).filter(|section| usize::from(*section) % 2 == n).collect(),
            leaving: BTreeMap::new(),
            lost: BTreeSet::new(),
        };
        Self {
            nodes: (0..2).map(node).collect(),
            store: Model::default(),
            owner: (0..SECTIONS as u16).map(|section| (section, usize::from(section) % 2)).collect(),
            flights: Vec::new(),
            now: Mono(3_600_000_000),
            dice: Dice(seed),
            first: BTreeMap::new(),
            keys: BTreeMap::new(),
            delivered: BTreeMap::new(),
            interrupted: BTreeSet::new(),
            untold: BTreeMap::new(),
            foreign: Vec::new(),
        }
    }

    fn at(&self) -> Now {
        Now { mono: self.now, wall: Wall(1_767_225_600_000_000 + self.now.0) }
    }

    fn append(&mut self) {
        let group = self.dice.below(GROUPS);
        let section = section_of(group);
        let lane = lane(&group.to_string());
        let key = (self.dice.below(3) > 0).then(|| Group::of(&[format!("k{}", self.dice.below(2))]));
        let event = self.store.append_in(section, &lane, None, key.clone(), false, self.at().wall);
        if let Some(key) = key {
            self.keys.insert(event.seq, (lane.group, key));
        }
        let now = self.at();
        let owner = self.owner[&(section as u16)];
        let node = &mut self.nodes[owner];
        // One that gives the section up reads no more of it; the next owner finds it.
        if node.leaving.contains_key(&(section as u16)) {
            self.untold.entry(section as u16).or_default().push(event);
        } else {
            node.engine.on_appended(vec![event], now);
        }
    }

    /// A section begins its way to the other node, when its owner has nothing left of an earlier one.
    fn leave(&mut self) {
        let section = self.dice.below(SECTIONS) as u16;
        let (from, now) = (self.owner[&section], self.at());
        let to = 1 - from;
        if self.nodes[from].leaving.contains_key(&section) || self.nodes[to].lost.contains(&section) {
            return;
        }
        self.nodes[from].engine.hold(section, now);
        self.nodes[from].leaving.insert(section, to);
    }

    /// It stays after all.
    fn stay(&mut self) {
        let node = self.dice.below(2) as usize;
        let now = self.at();
        let Some((section, _)) = self.nodes[node].leaving.pop_first() else { return };
        let engine = &mut self.nodes[node].engine;
        engine.release_hold(section, now);
        engine.on_appended(self.untold.remove(&section).unwrap_or_default(), now);
    }

    fn gain(&mut self, node: usize, section: u16) {
        let now = self.at();
        self.owner.insert(section, node);
        self.untold.remove(&section);
        self.nodes[node].owns.insert(section);
        let engine = &mut self.nodes[node].engine;
        for (_, group, until) in self.foreign.iter().filter(|(of, ..)| *of == section) {
            engine.on_foreign(section, group, 1, *until, now);
        }
        for (lane, (fresh, retrying, oldest)) in self.store.lanes() {
            if self.store.pending.values().any(|row| row.event.lane == lane && row.event.seq.section() == section) {
                engine.on_gained(section, &lane, (fresh, retrying), oldest, now);
            }
        }
    }

    /// The other node takes a section without being given it: the owner has died, or was away.
    fn take(&mut self, section: u16, to: usize) {
        let now = self.at();
        let open: Vec<(Seq, Group)> = self
            .store
            .pending
            .values()
            .filter(|row| row.open)
            .map(|row| (row.event.seq, row.event.lane.group.clone()))
            .collect();
        for (seq, group) in open.into_iter().filter(|(seq, _)| seq.section() == section) {
            self.store.settle(&Settle { seq, at: now.wall, verdict: Verdict::RetryAt(now.wall) });
            self.foreign.push((section, group, now.mono.plus(TIMEOUT)));
            self.interrupted.insert(seq);
        }
        self.gain(to, section);
    }

    fn crash(&mut self) {
        let node = self.dice.below(2) as usize;
        self.nodes[node].engine = engine();
        self.nodes[node].life += 1;
        self.nodes[node].leaving.clear();
        self.nodes[node].lost.clear();
        for section in std::mem::take(&mut self.nodes[node].owns) {
            // One that has not let go of what it lost before cannot take it; then the node itself comes back.
            let to = if self.nodes[1 - node].lost.contains(&section) { node } else { 1 - node };
            self.take(section, to);
        }
    }

    /// A node was away for so long that the other one has taken a section; it learns of that now.
    fn lose(&mut self) {
        let section = self.dice.below(SECTIONS) as u16;
        let (from, now) = (self.owner[&section], self.at());
        if self.nodes[1 - from].lost.contains(&section) {
            return;
        }
        self.take(section, 1 - from);
        let node = &mut self.nodes[from];
        node.owns.remove(&section);
        node.leaving.remove(&section);
        node.lost.insert(section);
        node.engine.hold(section, now);
        node.engine.cancel_section(section, now);
    }

    /// What the engines ask for, until they ask for nothing; then the next thing in time. False when nothing will ever happen.
    fn step(&mut self) -> bool {
        let now = self.at();
        for n in 0..self.nodes.len() {
            let mut asked = 0;
            while let Some(request) = self.nodes[n].engine.poll_request(now) {
                asked += 1;
                assert!(asked < 10_000, "it asks without end: {request:?}");
                self.execute(n, request, now);
            }
            self.moves(n, now);
            let engine = &mut self.nodes[n].engine;
            assert_eq!(engine.check_invariants(), Ok(()));
            assert_eq!((engine.violations(), engine.last_violation()), (0, None));
        }
        let flight = self.flights.iter().map(|flight| flight.ends);
        let times = self.nodes.iter().filter_map(|node| node.engine.poll_timeout()).chain(flight);
        let Some(next) = times.min() else { return false };
        self.now = self.now.max(next);
        let now = self.at();
        let (over, rest) = std::mem::take(&mut self.flights).into_iter().partition(|flight| flight.ends <= now.mono);
        self.flights = rest;
        for flight in over {
            self.landed(flight, now);
        }
        for node in &mut self.nodes {
            node.engine.on_timeout(now);
        }
        true
    }

    fn landed(&mut self, flight: Flight, now: Now) {
        let fails = self.dice.below(5) == 0;
        if !fails {
            *self.delivered.entry(flight.seq).or_default() += 1;
        }
        let node = &mut self.nodes[flight.node];
        if node.life == flight.life {
            let ending = if fails { Ending::NoAnswer } else { Ending::Success };
            node.engine.on_finished(flight.ticket, ending, ms(20), now);
        }
    }

    fn execute(&mut self, n: usize, request: Request, now: Now) {
        match request {
            Request::Dispatch(dispatch) => self.dispatch(n, &dispatch, now),
            Request::Settle { batch, settlements } => {
                for settle in &settlements {
                    // Fenced: who does not own it any more changes nothing.
                    if self.owner[&settle.seq.section()] == n {
                        self.store.settle(settle);
                    }
                }
                assert!(self.nodes[n].engine.on_settled(batch, now));
            }
            Request::Load { lane, after, n: limit } => {
                let (events, more) = self.store.load(&lane, after, limit);
                self.nodes[n].engine.on_loaded(&lane, events, more, now);
            }
            Request::LoadDue { after, n: limit } => {
                let (events, more) = self.store.due(after, limit);
                let owned = |event: &Queued| self.owner[&event.seq.section()] == n;
                let events = events.into_iter().filter(owned).collect();
                self.nodes[n].engine.on_due_loaded(events, more, now);
            }
            Request::Cancel { ticket } => {
                let place = self.flights.iter().position(|flight| flight.node == n && flight.ticket == ticket);
                if let Some(place) = place {
                    self.flights.remove(place);
                }
                self.nodes[n].engine.on_finished(ticket, Ending::Cancelled, Duration::ZERO, now);
            }
            Request::Live(_) | Request::Unserved { .. } => unreachable!("nobody calls"),
        }
    }

    fn dispatch(&mut self, n: usize, dispatch: &Dispatch, now: Now) {
        let (seq, ticket, group) = (dispatch.seq, dispatch.ticket, dispatch.lane.group.clone());
        // The check directly before the first byte.
        if self.owner[&seq.section()] != n {
            self.nodes[n].engine.on_finished(ticket, Ending::NotSent, Duration::ZERO, now);
            return;
        }
        assert!(!self.nodes[n].lost.contains(&seq.section()), "{seq} of a lost section is sent");
        if self.delivered.contains_key(&seq) {
            assert!(self.interrupted.contains(&seq), "{seq} was delivered and never interrupted");
        }
        if let Some(key) = self.keys.get(&seq) {
            let sent = self.first.entry(key.clone()).or_default();
            if sent.last().is_none_or(|last| *last < seq) {
                sent.push(seq);
            } else {
                assert!(sent.last() == Some(&seq), "{seq} goes after {sent:?} of its order key {key:?}");
            }
        }
        let ends = now.mono.plus(ms(1 + self.dice.below(60)));
        self.flights.push(Flight { node: n, life: self.nodes[n].life, ticket, seq, group: group.clone(), ends });
        let in_flight = self.flights.iter().filter(|flight| flight.group == group).count();
        assert!(in_flight <= CAP as usize, "{in_flight} attempts of {group} at once, faults included");
    }

    /// Sections whose end has come leave; those that were given go on to the other node.
    fn moves(&mut self, n: usize, now: Now) {
        while let Some(section) = self.nodes[n].engine.poll_quiet() {
            assert!(self.nodes[n].engine.forget(section, now).is_some());
            if let Some(to) = self.nodes[n].leaving.remove(&section) {
                self.nodes[n].owns.remove(&section);
                self.gain(to, section);
            } else {
                self.nodes[n].lost.remove(&section);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever moves whenever: every event is delivered, twice only where its section was lost in between; order keys keep their order
    /// over all nodes; no group has more attempts under way than its cap.
    #[test]
    fn shards_come_and_go(things in prop::collection::vec(0u8..40, 1..300), seed in 1u64..1_000_000) {
        let mut world = World::new(seed);
        for thing in things {
            match thing {
                0..20 => world.append(),
                20..23 => world.leave(),
                23 => world.stay(),
                24 => world.crash(),
                25..27 => world.lose(),
                _ => { world.step(); }
            }
        }
        let mut steps = 0;
        while !world.store.pending.is_empty() {
            prop_assert!(world.step() || world.store.pending.is_empty(), "nothing will ever happen: {:?}", world.store.pending);
            steps += 1;
            prop_assert!(steps < 200_000, "does not drain");
        }
        prop_assert!(world.store.ended.keys().all(|seq| world.delivered.contains_key(seq)));
        let twice = world.delivered.iter().filter(|(_, count)| **count > 1).map(|(seq, _)| *seq);
        prop_assert!(twice.into_iter().all(|seq| world.interrupted.contains(&seq)));
    }
}

#[test]
fn a_section_that_is_held_ends_what_is_in_flight_and_leaves_nothing_behind() {
    let mut rig = Rig::new(Settings { slots: 2, ..Settings::default() });
    rig.append(&lane("a"), 10);
    rig.run(ms(10));
    let now = rig.at();
    rig.engine.hold(0, now);
    assert_eq!(rig.engine.poll_quiet(), None, "attempts are in flight");
    assert_eq!(rig.engine.forget(0, now), None);
    rig.run(ms(200));
    let moved = rig.engine.totals().queued;
    assert_eq!(rig.engine.group(&lane("a").group, rig.now).state, State::Held);
    assert!(rig.engine.group(&lane("a").group, rig.now).reason.contains("another node"));
    assert_eq!(rig.engine.poll_quiet(), Some(0));
    assert_eq!(rig.engine.forget(0, rig.at()), Some(moved));
    let totals = rig.engine.totals();
    assert_eq!((totals.queued, totals.moved, rig.engine.active_lanes()), (0, moved, 0));
    assert_eq!(rig.engine.wanted_weight(), 0);
    rig.engine.check_invariants().unwrap();
}

#[test]
fn a_section_that_stays_goes_on() {
    let mut rig = Rig::new(Settings::default());
    rig.append(&lane("a"), 10);
    rig.engine.hold(0, rig.at());
    rig.run(ms(500));
    assert_eq!(rig.engine.totals().delivered, 0);
    rig.engine.release_hold(0, rig.at());
    rig.drain();
    assert_eq!(rig.engine.totals().delivered, 10);
}

#[test]
fn leases_of_a_lost_node_count_in_the_cap_until_their_time() {
    let mut rig = Rig::with(Settings::default(), |_| Policy { concurrency: Some(3), ..Policy::default() });
    let name: Lane = lane("a");
    rig.engine.on_foreign(0, &name.group, 2, rig.now.plus(ms(1_000)), rig.at());
    rig.append(&name, 40);
    rig.run(ms(900));
    assert_eq!(rig.got("a").most_in_flight, 1);
    rig.run(ms(300));
    assert_eq!(rig.got("a").most_in_flight, 3);
    rig.engine.check_invariants().unwrap();
}
