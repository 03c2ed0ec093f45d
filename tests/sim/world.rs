//! The world of one run: what happens when, what is durable, what the upstream does, and what must hold.

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use super::engine::*;
use super::event::{Group, Lane, Mono, Now, Seq, Wall};
use super::model::Model;

/// A promise that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// None is.
    None,
    /// The store says that a batch is durable and has lost the end of an event.
    LostSettlement,
    /// An attempt's end is told for another one's ticket.
    DoubleReport,
    /// A read leaves out an event and says that there are no more.
    LostLoad,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) promoted: u64,
    pub(super) demoted: u64,
    pub(super) not_admitted: u64,
    pub(super) discarded: u64,
    pub(super) attempts: u64,
    pub(super) crashes: u64,
    pub(super) failed_settles: u64,
    pub(super) failed_loads: u64,
    pub(super) cancelled: u64,
    pub(super) live_served: u64,
    pub(super) live_refused: u64,
    pub(super) live_late: u64,
    pub(super) live_gone: u64,
    pub(super) overflowed: u64,
    pub(super) steps: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.dead += other.dead;
        self.promoted += other.promoted;
        self.demoted += other.demoted;
        self.not_admitted += other.not_admitted;
        self.discarded += other.discarded;
        self.attempts += other.attempts;
        self.crashes += other.crashes;
        self.failed_settles += other.failed_settles;
        self.failed_loads += other.failed_loads;
        self.cancelled += other.cancelled;
        self.live_served += other.live_served;
        self.live_refused += other.live_refused;
        self.live_late += other.live_late;
        self.live_gone += other.live_gone;
        self.overflowed += other.overflowed;
        self.steps += other.steps;
    }
}

/// How likely each thing is in this run, in thousandths: drawn anew for every seed, many of them zero, so that runs differ in kind
/// ("swarm testing", Groce and others 2012).
#[derive(Clone, Debug)]
struct Weights {
    groups: u64,
    keys: u64,
    inner: u64,
    ordered: u64,
    replay: u64,
    append_fails: u64,
    settle_fails: u64,
    load_fails: u64,
    bad: u64,
    refused: u64,
    asked: u64,
    no_answer: u64,
    hang: u64,
    not_sent: u64,
    never: u64,
    crash: u64,
    command: u64,
    rated: u64,
    named: u64,
    unknown: u64,
    stale: u64,
    live: u64,
    leaves: u64,
}

/// An event on its way into the store: whose it is, where it was told to wait, its order key, whether it is a replay, what it was
/// admitted with.
#[derive(Clone, Debug)]
struct Arrival {
    home: Lane,
    place: Option<Lane>,
    key: Option<Group>,
    replay: bool,
    admitted: Admitted,
}

#[derive(Debug)]
enum Thing {
    Arrive,
    Appended(Vec<Arrival>),
    Settled(Batch, Vec<Settle>),
    Loaded(Lane, Seq, usize, Option<(Vec<Queued>, bool)>),
    DueLoaded(Option<(Wall, Seq)>, usize, Option<(Vec<Queued>, bool)>),
    Ended(Ticket, Duration, Ending),
    Call,
    Left(LiveId),
    Command,
    Crash,
    Calm,
}

struct Flight {
    dispatch: Dispatch,
    order: Option<Group>,
    /// Whose event it is, wherever it waits.
    home: Lane,
    life: u64,
}

pub(super) struct World {
    engine: Engine,
    settings: Settings,
    store: Model,
    dice: Dice,
    weights: Weights,
    sabotage: Sabotage,
    now: Mono,
    things: BinaryHeap<Reverse<(u64, u64)>>,
    what: BTreeMap<(u64, u64), (u64, Thing)>,
    number: u64,
    /// Which process this is: what an older one asked for comes to nothing.
    life: u64,
    flying: BTreeMap<Ticket, Flight>,
    /// Live requests that wait, by when they have to be answered.
    waiting: BTreeMap<LiveId, Mono>,
    /// Attempts of live requests, with whose they are.
    held: BTreeMap<Ticket, (LiveId, Group)>,
    paused: BTreeSet<Group>,
    /// Those that had slots of their own.
    promoted: BTreeSet<Group>,
    /// A batch is being made durable: one at a time.
    appending: bool,
    calm: bool,
    sabotaged: bool,
    appended: u64,
    tally: Tally,
    pub(super) step: u64,
    pub(super) trace: u64,
}

const EPOCH_US: u64 = 1_767_225_600_000_000;

/// When the faults stop.
const FAULTS: Duration = Duration::from_secs(240);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.next();
        }
        let weights = Weights::draw(&mut dice);
        let settings = settings(&mut dice);
        let swayed = (weights.rated, weights.named);
        let engine = Engine::new(settings.clone(), Box::new(move |group| policy(group, swayed)), seed);
        let mut world = Self {
            engine,
            settings,
            store: Model::default(),
            dice,
            weights,
            sabotage,
            now: Mono(3_600_000_000),
            things: BinaryHeap::new(),
            what: BTreeMap::new(),
            number: 0,
            life: 0,
            flying: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            paused: BTreeSet::new(),
            promoted: BTreeSet::new(),
            appending: false,
            calm: false,
            sabotaged: false,
            appended: 0,
            tally: Tally::default(),
            step: 0,
            trace: 0,
        };
        world.plan(ms(0), Thing::Arrive);
        world.plan(ms(0), Thing::Call);
        world.plan(ms(500), Thing::Command);
        world.plan(ms(20_000), Thing::Crash);
        world.plan(FAULTS, Thing::Calm);
        world
    }

    fn at(&self) -> Now {
        Now { mono: self.now, wall: Wall(EPOCH_US + self.now.0) }
    }

    fn plan(&mut self, after: Duration, thing: Thing) {
        self.number += 1;
        let key = (self.now.plus(after).0, self.number);
        self.things.push(Reverse(key));
        self.what.insert(key, (self.life, thing));
    }

    fn note(&mut self, what: impl std::fmt::Debug) {
        let mut hasher = DefaultHasher::new();
        (self.trace, self.now.0, format!("{what:?}")).hash(&mut hasher);
        self.trace = hasher.finish();
    }

    fn happens(&mut self, weight: u64) -> bool {
        !self.calm && self.dice.below(1_000) < weight
    }

    /// Runs until all is drained.
    pub(super) fn run(&mut self) -> Result<Tally, String> {
        loop {
            self.count_moves();
            self.execute()?;
            self.engine.check_invariants()?;
            let (held, may) = (self.engine.slots().replay, self.settings.replay_slots());
            if held > may {
                return Err(format!("R6: replays hold {held} of {may} slots"));
            }
            if self.engine.violations() > 0 {
                return Err(format!("a violation: {:?}", self.engine.last_violation()));
            }
            let events_done = self.store.pending.is_empty() && self.engine.totals().in_flight == 0;
            let calls_done = self.waiting.is_empty() && self.held.is_empty();
            if self.calm && events_done && calls_done && self.quiet() {
                return self.finished();
            }
            self.step += 1;
            if self.step > 400_000 || self.now.since(Mono(0)) > Duration::from_secs(20 * 86_400) {
                return Err(format!(
                    "does not drain: {:?}, {} in store",
                    self.engine.totals(),
                    self.store.pending.len()
                ));
            }
            self.advance()?;
        }
    }

    fn count_moves(&mut self) {
        while let Some(notice) = self.engine.poll_notice() {
            if let Notice::Dedication { group, from, to, .. } = notice {
                if to.has_slots() {
                    self.promoted.insert(group);
                }
                self.tally.promoted += u64::from(!from.has_slots() && to.has_slots());
                self.tally.demoted += u64::from(from.has_slots() && !to.has_slots());
            }
        }
    }

    /// Nothing is under way that the engine will be told of.
    fn quiet(&self) -> bool {
        let waits = |(life, thing): &(u64, Thing)| match thing {
            Thing::Appended(..) => true,
            Thing::Settled(..) | Thing::Loaded(..) | Thing::DueLoaded(..) => *life == self.life,
            Thing::Arrive | Thing::Ended(..) | Thing::Command | Thing::Crash | Thing::Calm => false,
            Thing::Call | Thing::Left(_) => false,
        };
        !self.what.values().any(waits)
    }

    fn finished(&mut self) -> Result<Tally, String> {
        let totals = self.engine.totals();
        let here = totals.queued + totals.retrying + totals.in_flight;
        if here > 0 || self.engine.active_groups() > 0 || self.engine.slots().busy > 0 {
            return Err(format!("all is settled, yet the engine has {totals:?}"));
        }
        if self.store.ended.len() as u64 != self.appended {
            return Err(format!("I1: {} appended, {} ended", self.appended, self.store.ended.len()));
        }
        for verdict in self.store.ended.values() {
            match verdict {
                Verdict::Delivered => self.tally.delivered += 1,
                Verdict::Dead(_) => self.tally.dead += 1,
                _ => self.tally.discarded += 1,
            }
        }
        self.tally.steps = self.step;
        Ok(self.tally.clone())
    }

    fn advance(&mut self) -> Result<(), String> {
        let timeout = self.engine.poll_timeout();
        let next = self.things.peek().map(|Reverse((at, _))| Mono(*at));
        let Some(at) = [timeout, next].into_iter().flatten().min() else {
            return Err(format!("nothing will ever happen: {:?}", self.engine.totals()));
        };
        // The driver may be late, and its clock is read before it waits for its turn.
        self.now = self.now.max(at);
        if timeout.is_some_and(|timeout| timeout <= self.now) {
            let now = self.at();
            self.engine.on_timeout(now);
        }
        if next.is_some_and(|next| next <= self.now)
            && let Some(Reverse(key)) = self.things.pop()
            && let Some((life, thing)) = self.what.remove(&key)
        {
            self.happen(life, thing)?;
        }
        Ok(())
    }

    fn happen(&mut self, life: u64, thing: Thing) -> Result<(), String> {
        let old = life != self.life;
        match thing {
            Thing::Arrive => self.arrive(),
            Thing::Appended(batch) => self.appended(batch, !old)?,
            Thing::Settled(batch, settlements) if !old => self.settled(batch, &settlements)?,
            Thing::Loaded(lane, after, n, early) if !old => self.loaded(&lane, after, n, early),
            Thing::DueLoaded(after, n, early) if !old => self.due_loaded(after, n, early),
            Thing::Ended(ticket, took, ending) if !old => self.ended(ticket, took, ending)?,
            Thing::Call => self.call(),
            Thing::Left(live) if !old => self.leaves(live)?,
            Thing::Command => self.command(),
            Thing::Crash => {
                if self.happens(self.weights.crash) {
                    self.crash()?;
                }
                if !self.calm {
                    self.plan(ms(20_000), Thing::Crash);
                }
            }
            Thing::Calm => self.grow_calm(),
            _ => {}
        }
        Ok(())
    }

    fn grow_calm(&mut self) {
        self.calm = true;
        let now = self.at();
        for group in std::mem::take(&mut self.paused) {
            self.engine.resume(&group, now);
        }
        self.engine.set_upstream_paused(false);
    }

    // ---- arrivals ----------------------------------------------------------------------------------------------

    fn arrive(&mut self) {
        if !self.appending {
            self.begin_append();
        }
        if !self.calm {
            let pause = ms(50 + self.dice.below(1_500));
            self.plan(pause, Thing::Arrive);
        }
    }

    /// Asks for room: a group with a cap of its backlog never has more waiting than that when it is given some.
    fn admitted(&mut self, group: &Group) -> Option<Admitted> {
        let now = self.at();
        let view = self.engine.group(group, now.mono);
        let full = view.backlog.is_some_and(|most| view.queued + view.retrying >= u64::from(most));
        let asked = self.engine.admit(group, now);
        self.note(asked.is_ok());
        assert!(!(full && asked.is_ok()), "{group} is over its cap and was given room");
        self.tally.not_admitted += u64::from(asked.is_err());
        asked.ok()
    }

    /// A batch on its way: of one lane, or of many.
    fn begin_append(&mut self) {
        let most = if self.dice.below(20) == 0 { 60 } else { 4 };
        let burst = 1 + self.dice.below(most);
        let mixed = self.dice.below(3) == 0;
        let lane = self.some_lane();
        let (mut batch, mut parts) = (Vec::new(), Vec::new());
        for _ in 0..burst {
            let home = if mixed { self.some_lane() } else { lane.clone() };
            let key = self.happens(self.weights.ordered).then(|| self.some_key());
            let replay = self.happens(self.weights.replay);
            let wanted = self.happens(self.weights.unknown).then(|| Group::of(&[format!("s{}", self.dice.below(2))]));
            if let Some(admitted) = self.admitted(&home.group) {
                // A source whose new groups are too many has lanes of its own.
                parts.push(wanted);
                batch.push(Arrival { home, place: None, key, replay, admitted });
            }
        }
        let wanted: Vec<Wanted<'_>> =
            batch.iter().zip(parts).map(|(arrival, part)| Wanted { lane: &arrival.home, part }).collect();
        let places = self.engine.places(&wanted);
        self.note(&places);
        batch.iter_mut().zip(places).for_each(|(arrival, place)| arrival.place = place);
        self.appending = true;
        let delay = ms(self.dice.below(20));
        self.plan(delay, Thing::Appended(batch));
    }

    fn some_lane(&mut self) -> Lane {
        let group = Group::of(&[format!("g{}", self.dice.below(self.weights.groups))]);
        let inner = self.happens(self.weights.inner).then(|| Group::of(&[format!("t{}", self.dice.below(3))]));
        Lane { group, inner }
    }

    fn some_key(&mut self) -> Group {
        Group::of(&[format!("k{}", self.dice.below(self.weights.keys))])
    }

    /// A batch became durable or did not; `waited` unless it was a former life that asked for room for it.
    fn appended(&mut self, batch: Vec<Arrival>, waited: bool) -> Result<(), String> {
        self.appending = false;
        for arrival in batch.iter().filter(|_| waited) {
            self.engine.on_came(&arrival.home.group, arrival.admitted);
        }
        if self.happens(self.weights.append_fails) {
            return Ok(());
        }
        let now = self.at();
        let mut events = Vec::new();
        for arrival in batch {
            events.push(self.store_arrival(arrival)?);
        }
        self.engine.on_appended(events, now);
        self.within_bounds()
    }

    /// R10: an event waits where others wait that belong to the same lane.
    fn store_arrival(&mut self, Arrival { home, place, key, replay, .. }: Arrival) -> Result<Queued, String> {
        self.tally.overflowed += u64::from(place.is_some());
        self.appended += 1;
        let received = self.at().wall;
        let event = self.store.append(&home, place, key, replay, received);
        let mut others = self.store.pending.values().map(|row| &row.event);
        match others.find(|other| home_of(other) == &home && other.lane != event.lane) {
            Some(other) => {
                Err(format!("R10: {} waits in {:?}, {} in {:?}", event.seq, event.lane, other.seq, other.lane))
            }
            None => Ok(event),
        }
    }

    /// R10: no more lanes than may be, but for those that are shared.
    fn within_bounds(&self) -> Result<(), String> {
        let lanes = self.store.lanes();
        let own = lanes.keys().filter(|lane| !lane.inner.as_ref().unwrap_or(&lane.group).is_overflow());
        let (mut count, mut inside) = (0, BTreeMap::<&Group, usize>::new());
        for lane in own {
            count += 1;
            *inside.entry(&lane.group).or_default() += usize::from(lane.inner.is_some());
        }
        let named = self.weights.groups as usize * 4;
        let most = inside.values().copied().max().unwrap_or_default();
        if count > self.settings.max_active + named || most > self.settings.inner_active.max(1) {
            return Err(format!("R10: {count} lanes, {most} in one group"));
        }
        if self.weights.named == 0 && count > self.settings.max_active {
            return Err(format!("R10: {count} lanes, {} may be", self.settings.max_active));
        }
        Ok(())
    }

    // ---- senders that wait for an answer -----------------------------------------------------------------------

    fn call(&mut self) {
        if self.calm {
            return;
        }
        let pause = ms(20 + self.dice.below(2_000));
        self.plan(pause, Thing::Call);
        let most = if self.dice.below(10) == 0 { 40 } else { 3 };
        for _ in 0..=self.dice.below(most) {
            if !self.happens(self.weights.live) {
                continue;
            }
            let (group, now) = (self.some_lane().group, self.at());
            let deadline = now.mono.plus(ms(1 + self.dice.below(4_000)));
            let asked = self.engine.on_live(&group, deadline, now);
            self.note(asked);
            let Ok(live) = asked else {
                self.tally.live_refused += 1;
                continue;
            };
            self.waiting.insert(live, deadline);
            if self.happens(self.weights.leaves) {
                let after = ms(self.dice.below(3_000));
                self.plan(after, Thing::Left(live));
            }
        }
    }

    fn leaves(&mut self, live: LiveId) -> Result<(), String> {
        let waited = self.waiting.remove(&live).is_some();
        let known = waited || self.held.values().any(|(held, _)| *held == live);
        self.tally.live_gone += u64::from(known);
        let now = self.at();
        if self.engine.on_live_gone(live, now) != known {
            return Err(format!("{live:?} was there: {known}; the engine says otherwise"));
        }
        Ok(())
    }

    fn serve(&mut self, dispatch: &LiveDispatch) -> Result<(), String> {
        let LiveDispatch { ticket, live, group, timeout, .. } = dispatch;
        let Some(deadline) = self.waiting.remove(live) else {
            return Err(format!("{live:?} was leased and does not wait"));
        };
        if timeout.is_zero() || self.now.plus(*timeout) > deadline || *timeout > self.settings.timeout {
            return Err(format!("{live:?} may take {timeout:?} at {:?}, with a deadline at {deadline:?}", self.now));
        }
        self.within_caps(group)?;
        self.tally.live_served += 1;
        let (took, ending) = self.answer(group);
        let (took, ending) = if took >= *timeout { (*timeout, Ending::NoAnswer) } else { (took, ending) };
        self.plan(took, Thing::Ended(*ticket, took, ending));
        self.held.insert(*ticket, (*live, group.clone()));
        Ok(())
    }

    fn unserved(&mut self, live: LiveId, why: Unserved) -> Result<(), String> {
        let Some(deadline) = self.waiting.remove(&live) else {
            return Err(format!("{live:?} was refused ({why:?}) and does not wait"));
        };
        self.tally.live_refused += 1;
        self.tally.live_late += u64::from(why == Unserved::Late);
        if (why == Unserved::Late) != (deadline <= self.now) {
            return Err(format!("{live:?} was refused ({why:?}) at {:?}, its deadline is {deadline:?}", self.now));
        }
        Ok(())
    }

    // ---- requests ----------------------------------------------------------------------------------------------

    fn execute(&mut self) -> Result<(), String> {
        while let Some(request) = self.engine.poll_request(self.at()) {
            self.note(&request);
            match request {
                Request::Dispatch(dispatch) => self.dispatch(dispatch)?,
                Request::Live(dispatch) => self.serve(&dispatch)?,
                Request::Unserved { live, why } => self.unserved(live, why)?,
                Request::Settle { batch, settlements } => {
                    let delay = ms(self.dice.below(10));
                    self.plan(delay, Thing::Settled(batch, settlements));
                }
                Request::Load { lane, after, n } => {
                    // A read sees the store as it is at some moment between the request and the answer.
                    let early = self.happens(self.weights.stale).then(|| self.store.load(&lane, after, n));
                    let delay = ms(self.dice.below(30));
                    self.plan(delay, Thing::Loaded(lane, after, n, early));
                }
                Request::LoadDue { after, n } => {
                    let n = n.min(1 + self.dice.below(n as u64) as usize);
                    let early = self.happens(self.weights.stale).then(|| self.store.due(after, n));
                    let delay = ms(self.dice.below(30));
                    self.plan(delay, Thing::DueLoaded(after, n, early));
                }
                Request::Cancel { ticket } => self.cancel(ticket),
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), String> {
        self.tally.attempts += 1;
        let seq = dispatch.seq;
        let Some(row) = self.store.pending.get(&seq) else {
            return Err(format!("I7: event {seq} was dispatched and is not pending"));
        };
        if self.settings.begun_first && (!row.open || row.event.attempts != dispatch.attempt) {
            return Err(format!("I7: attempt {} of event {seq} began before that was durable", dispatch.attempt));
        }
        if row.event.lane != dispatch.lane {
            return Err(format!("event {seq} was dispatched for lane {:?}", dispatch.lane));
        }
        if dispatch.split.total() != dispatch.wait {
            return Err(format!("event {seq} waited {:?}, and that for {:?}", dispatch.wait, dispatch.split));
        }
        let (order, home) = (row.event.order.clone(), home_of(&row.event).clone());
        self.in_order(&dispatch, order.as_ref(), &home)?;
        self.within_caps(&dispatch.lane.group)?;
        let (took, ending) = self.answer(&dispatch.lane.group);
        self.plan(took, Thing::Ended(dispatch.ticket, took, ending));
        self.flying.insert(dispatch.ticket, Flight { dispatch, order, home, life: self.life });
        Ok(())
    }

    /// I3, R7: the event is not under way already, nor another of its key, and none of its key before it is pending.
    fn in_order(&self, dispatch: &Dispatch, order: Option<&Group>, home: &Lane) -> Result<(), String> {
        for flight in self.flying.values() {
            let same_key = order.is_some() && flight.order.as_ref() == order && flight.home == *home;
            if flight.dispatch.seq == dispatch.seq || same_key {
                return Err(format!("I3: {} goes beside {}", dispatch.seq, flight.dispatch.seq));
            }
        }
        let Some(key) = order else { return Ok(()) };
        let before = self.store.pending.range(..dispatch.seq);
        match before.map(|(_, row)| &row.event).find(|e| e.order.as_ref() == Some(key) && home_of(e) == home) {
            Some(event) => Err(format!("R7: {} goes before {} of the same key", dispatch.seq, event.seq)),
            None => Ok(()),
        }
    }

    /// I5, whatever the attempts are made for.
    fn within_caps(&self, group: &Group) -> Result<(), String> {
        let events = self.flying.values().filter(|flight| flight.dispatch.lane.group == *group).count();
        let beside = (events + self.held.values().filter(|(_, other)| other == group).count()) as u32;
        let all = (self.flying.len() + self.held.len()) as u32;
        let cap = policy(group, (0, 0)).concurrency.unwrap_or_else(|| (self.settings.slots / 8).max(1));
        // What was leased on slots of its own may go after these were given back.
        let own = if self.promoted.contains(group) { self.settings.dedicated.slots } else { 0 };
        let cap = cap.max(own);
        if beside + 1 > cap || all + 1 > self.settings.slots {
            return Err(format!("I5: {} of {group} in flight, {} in all", beside + 1, all + 1));
        }
        Ok(())
    }

    fn answer(&mut self, group: &Group) -> (Duration, Ending) {
        let quick = ms(1 + self.dice.below(200));
        if self.calm {
            return (quick, Ending::Success);
        }
        let poisoned = group.as_str() == "g0";
        let (w, draw) = (self.weights.clone(), self.dice.below(1_000));
        let mut edge = 0;
        let mut hit = |weight: u64| {
            edge += weight;
            draw < edge
        };
        if hit(if poisoned { w.bad * 3 } else { w.bad }) {
            return (quick, Ending::Server { status: 500, retry_after: None });
        }
        if hit(w.refused) {
            return (quick, Ending::Client(422));
        }
        if hit(w.asked) {
            let delay = Duration::from_secs(1 + self.dice.below(40));
            let status = if self.dice.below(2) == 0 { 429 } else { 503 };
            let scope = if self.dice.below(5) == 0 { Scope::Upstream } else { Scope::Auto };
            return (quick, Ending::Server { status, retry_after: Some(RetryAfter { delay, scope }) });
        }
        if hit(w.no_answer) {
            return (quick, Ending::NoAnswer);
        }
        if hit(w.hang) {
            return (self.settings.timeout, Ending::NoAnswer);
        }
        if hit(w.not_sent) {
            return (ms(0), Ending::NotSent);
        }
        if hit(w.never) {
            return (quick, Ending::Never(Some(410)));
        }
        (quick, Ending::Success)
    }

    fn cancel(&mut self, ticket: Ticket) {
        if self.flying.contains_key(&ticket) || self.held.contains_key(&ticket) {
            self.tally.cancelled += 1;
            // The report of the attempt itself may come first.
            let delay = ms(self.dice.below(5));
            self.plan(delay, Thing::Ended(ticket, delay, Ending::Cancelled));
        }
    }

    // ---- answers -----------------------------------------------------------------------------------------------

    fn ended(&mut self, ticket: Ticket, took: Duration, ending: Ending) -> Result<(), String> {
        let known = self.flying.remove(&ticket).is_some_and(|flight| flight.life == self.life);
        let known = self.held.remove(&ticket).is_some() || known;
        let now = self.at();
        let taken = self.engine.on_finished(ticket, ending, took, now);
        if known != taken {
            return Err(format!("{ticket:?} was under way: {known}; the engine took its end: {taken}"));
        }
        if self.sabotage == Sabotage::DoubleReport
            && let Some(other) = self.flying.keys().next().copied()
        {
            self.engine.on_finished(other, ending, took, now);
        }
        Ok(())
    }

    fn settled(&mut self, batch: Batch, settlements: &[Settle]) -> Result<(), String> {
        let now = self.at();
        if self.happens(self.weights.settle_fails) {
            self.tally.failed_settles += 1;
            self.engine.on_settle_failed(batch, now);
            return Ok(());
        }
        for settle in settlements {
            let ends = matches!(settle.verdict, Verdict::Delivered | Verdict::Dead(_) | Verdict::Discarded);
            if self.sabotage == Sabotage::LostSettlement && ends && !self.sabotaged {
                self.sabotaged = true;
                continue;
            }
            if !self.store.settle(settle) {
                return Err(format!("{settle:?} is about an event that is not pending"));
            }
        }
        if !self.engine.on_settled(batch, now) {
            return Err(format!("{batch:?} was not under way"));
        }
        Ok(())
    }

    fn loaded(&mut self, lane: &Lane, after: Seq, n: usize, early: Option<(Vec<Queued>, bool)>) {
        let now = self.at();
        if self.happens(self.weights.load_fails) {
            self.tally.failed_loads += 1;
            self.engine.on_load_failed(lane, now);
            return;
        }
        let (mut events, mut more) = early.unwrap_or_else(|| self.store.load(lane, after, n));
        if self.sabotage == Sabotage::LostLoad && !self.sabotaged && !events.is_empty() {
            self.sabotaged = true;
            events.remove(0);
            more = false;
        }
        self.engine.on_loaded(lane, events, more, now);
    }

    fn due_loaded(&mut self, after: Option<(Wall, Seq)>, n: usize, early: Option<(Vec<Queued>, bool)>) {
        let now = self.at();
        if self.happens(self.weights.load_fails) {
            self.tally.failed_loads += 1;
            self.engine.on_due_load_failed(now);
            return;
        }
        let (events, more) = early.unwrap_or_else(|| self.store.due(after, n));
        self.engine.on_due_loaded(events, more, now);
    }

    // ---- people, and worse -------------------------------------------------------------------------------------

    fn command(&mut self) {
        if self.calm {
            return;
        }
        let pause = ms(200 + self.dice.below(2_000));
        self.plan(pause, Thing::Command);
        if !self.happens(self.weights.command) {
            return;
        }
        let now = self.at();
        let group = Group::of(&[format!("g{}", self.dice.below(self.weights.groups))]);
        match self.dice.below(9) {
            0 => {
                self.paused.insert(group.clone());
                self.engine.pause(&group, now);
            }
            1 | 2 => {
                self.paused.remove(&group);
                self.engine.resume(&group, now);
            }
            3 => {
                self.engine.cancel(&group, now);
            }
            4 => self.engine.set_upstream_paused(true),
            5 | 6 => self.engine.set_upstream_paused(false),
            7 => {
                let weight = 0.25 * (1 + self.dice.below(16)) as f64;
                let policy = Policy { weight, ..policy(&group, (self.weights.rated, self.weights.named)) };
                self.engine.set_policy(&group, policy, now);
            }
            _ => self.remove_some(now),
        }
    }

    fn remove_some(&mut self, now: Now) {
        let count = self.store.pending.len() as u64;
        if count == 0 {
            return;
        }
        let nth = self.dice.below(count) as usize;
        let Some(row) = self.store.pending.values().nth(nth) else { return };
        let (lane, seq, retrying) = (row.event.lane.clone(), row.event.seq, row.event.due.is_some());
        let removal = match self.dice.below(3) {
            0 => Removal::Skip,
            1 => Removal::Divert,
            _ => Removal::Discard,
        };
        let known = self.engine.remove(&lane, seq, removal, retrying, now);
        self.note((seq, known));
    }

    /// The process dies: what is durable stays, all else goes. Attempts under way end somewhere, and nobody hears of it.
    fn crash(&mut self) -> Result<(), String> {
        self.tally.crashes += 1;
        self.flying.clear();
        // Their connections break with the process, and nobody hears of them again.
        self.waiting.clear();
        self.held.clear();
        // What was being written may have been written.
        let writes = self.what.values().filter_map(|(_, thing)| match thing {
            Thing::Settled(_, settlements) => Some(settlements.clone()),
            _ => None,
        });
        for settlements in writes.collect::<Vec<_>>() {
            if self.dice.below(2) == 0 {
                settlements.iter().for_each(|settle| {
                    self.store.settle(settle);
                });
            }
        }
        let appends = self.what.values().filter_map(|(_, thing)| match thing {
            Thing::Appended(batch) => Some(batch.clone()),
            _ => None,
        });
        for batch in appends.collect::<Vec<_>>() {
            if self.dice.below(2) == 0 {
                for arrival in batch {
                    drop(self.store_arrival(arrival)?);
                }
            }
        }
        self.appending = false;
        self.life += 1;
        self.what.retain(|_, (_, thing)| !matches!(thing, Thing::Settled(..) | Thing::Appended(_)));
        let now = self.at();
        // It takes a while to come back.
        self.now = self.now.plus(ms(self.dice.below(5_000)));
        self.store.interrupt(now.wall);
        let (swayed, seed) = ((self.weights.rated, self.weights.named), self.life);
        let promoted = self.engine.promoted();
        self.engine = Engine::new(self.settings.clone(), Box::new(move |group| policy(group, swayed)), seed);
        self.paused.clear();
        let now = self.at();
        self.engine.restore_promoted(promoted, now);
        for (lane, (fresh, retrying, oldest)) in self.store.lanes() {
            self.engine.on_recovered(&lane, fresh, retrying, oldest, now);
        }
        for event in self.store.pending.values().map(|row| &row.event) {
            if let Some(owner) = &event.owner {
                self.engine.on_overflowed(&event.lane, owner);
            }
        }
        Ok(())
    }
}

/// The lane that an event belongs to, wherever it waits.
fn home_of(event: &Queued) -> &Lane {
    event.owner.as_ref().unwrap_or(&event.lane)
}

fn policy(group: &Group, (rated, named): (u64, u64)) -> Policy {
    let n: u64 = group.as_str().trim_start_matches('g').parse().unwrap_or(0);
    Policy {
        weight: 1.0 + (n % 3) as f64,
        concurrency: (n % 4 == 1).then_some(1 + (n % 3) as u32),
        rate: (n % 5 == 2 && rated > 0).then_some(Rate { events: 5, per: ms(1_000) }),
        backlog: (n % 7 == 3).then_some(20),
        chosen: n % 4 == 1,
        named: n % 7 == 3 && named > 0,
        ..Policy::default()
    }
}

fn settings(dice: &mut Dice) -> Settings {
    let mut settings = Settings {
        slots: 4 + dice.below(20) as u32,
        timeout: ms(10_000),
        window: 2 + dice.below(40) as usize,
        begun_first: dice.below(4) > 0,
        charge: if dice.below(4) == 0 { Charge::Events } else { Charge::Time },
        rate: (dice.below(4) == 0).then_some(Rate { events: 60, per: ms(1_000) }),
        order_max_hold: ms(20_000 + dice.below(100_000)),
        max_active: if dice.below(3) == 0 { 1_000_000 } else { 1 + dice.below(12) as usize },
        inner_active: if dice.below(3) == 0 { 10_000 } else { 1 + dice.below(3) as usize },
        ..Settings::default()
    };
    settings.retry.attempts = 2 + dice.below(6) as u32;
    settings.retry.max_age = ms(60_000 + dice.below(600_000));
    settings.retry.backoff = Backoff { initial: ms(500), factor: 2.0, max: ms(30_000) };
    // Little is much here, so that groups get slots of their own and give them back within a run.
    settings.dedicated = Dedicated {
        max: dice.below(4) as u32,
        slots: 1 + dice.below(3) as u32,
        promote_share: 0.001,
        demote_share: 0.000_5,
        promote_after: ms(8_000 + dice.below(12_000)),
        demote_after: ms(5_000 + dice.below(10_000)),
    };
    settings.shed = dice.below(2) == 0;
    settings.replay_share = dice.below(11) as f64 / 10.0;
    settings
}

impl Weights {
    fn draw(dice: &mut Dice) -> Self {
        // Each is off in a third of all runs.
        let mut some = |most: u64| if dice.below(3) == 0 { 0 } else { dice.below(most + 1) };
        Self {
            groups: 1 + some(30),
            keys: 1 + some(12),
            inner: some(500),
            ordered: some(900),
            replay: some(300),
            append_fails: some(100),
            settle_fails: some(200),
            load_fails: some(300),
            bad: some(300),
            refused: some(200),
            asked: some(60),
            no_answer: some(150),
            hang: some(60),
            not_sent: some(50),
            never: some(30),
            crash: some(800),
            command: some(700),
            rated: some(1),
            named: some(1),
            unknown: some(300),
            stale: some(700),
            live: some(900),
            leaves: some(500),
        }
    }
}

/// xorshift64*.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }
}
