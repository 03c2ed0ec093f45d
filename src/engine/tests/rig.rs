//! A world for tests of single rules: a store that is always there, an upstream that is a closure, and time that jumps to the next thing
//! that happens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::model::Model;
use crate::engine::*;
use crate::event::{Group, Lane, Mono, Now, Wall};

/// What happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Ended(Ticket, usize),
    Tick,
    Arrive(usize),
}

/// How an attempt goes.
pub(super) type Answer = Box<dyn FnMut(&Dispatch, Mono) -> (Duration, Ending)>;

/// How the attempt of a live request goes.
pub(super) type LiveAnswer = Box<dyn FnMut(&LiveDispatch) -> (Duration, Ending)>;

/// Whether another event takes the place of one that ended.
pub(super) type Refill = Box<dyn Fn(&Lane) -> bool>;

/// The part of the overflow lanes for an event of that lane, if its group is one too many.
pub(super) type Part = Box<dyn Fn(&Lane) -> Option<Group>>;

/// What a lane's source says of order keys.
pub(super) type Hold = Box<dyn Fn(&Lane) -> Option<Duration>>;

/// What a group got.
#[derive(Clone, Debug, Default)]
pub(super) struct Got {
    pub(super) attempts: u64,
    pub(super) delivered: u64,
    pub(super) worker_us: u64,
    pub(super) waits: Vec<Duration>,
    pub(super) most_in_flight: u32,
    in_flight: u32,
}

pub(super) struct Rig {
    pub(super) engine: Engine,
    pub(super) store: Model,
    pub(super) now: Mono,
    pub(super) answer: Answer,
    pub(super) live_answer: LiveAnswer,
    /// What became of live requests: refused, or leased and how their attempts ended.
    pub(super) refused: Vec<(LiveId, Unserved)>,
    pub(super) served: Vec<(LiveId, Ending)>,
    /// Every attempt's group in order, and whether it was a live request's.
    pub(super) turns: Vec<(Group, bool)>,
    pub(super) got: BTreeMap<Group, Got>,
    /// Every dispatch, in order, when wanted.
    pub(super) trace: Option<Vec<(Mono, Dispatch)>>,
    /// Told of every event that ended: what to append instead of it.
    pub(super) refill: Option<Refill>,
    /// The part of the overflow lanes for an event of that lane, where its group is one too many.
    pub(super) part: Option<Part>,
    /// How long an event may hold its order key, where its source says.
    pub(super) hold: Option<Hold>,
    pub(super) cancelled: Vec<Ticket>,
    /// By how much the wall clock was set, in microseconds.
    pub(super) set_by_us: i64,
    /// Reads of the due index.
    pub(super) due_loads: u64,
    arrivals: Vec<Lane>,
    things: BinaryHeap<Reverse<(u64, u64, Thing)>>,
    flying: BTreeMap<Ticket, (Lane, Option<LiveId>, Duration, Ending)>,
    number: u64,
}

/// 2026-01-01, so that due times look like some.
const EPOCH_US: u64 = 1_767_225_600_000_000;

pub(super) fn lane(name: &str) -> Lane {
    Lane { group: Group::of(&[name]), inner: None }
}

pub(super) fn inner(group: &str, name: &str) -> Lane {
    Lane { group: Group::of(&[group]), inner: Some(Group::of(&[name])) }
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl Rig {
    pub(super) fn new(settings: Settings) -> Self {
        Self::with(settings, |_| Policy::default())
    }

    pub(super) fn with(settings: Settings, policy: impl Fn(&Group) -> Policy + Send + 'static) -> Self {
        Self {
            engine: Engine::new(settings, Box::new(policy), 1),
            store: Model::default(),
            now: Mono(3_600_000_000),
            answer: Box::new(|_, _| (ms(50), Ending::Success)),
            live_answer: Box::new(|_| (ms(50), Ending::Success)),
            refused: Vec::new(),
            served: Vec::new(),
            turns: Vec::new(),
            got: BTreeMap::new(),
            trace: None,
            refill: None,
            part: None,
            hold: None,
            cancelled: Vec::new(),
            set_by_us: 0,
            due_loads: 0,
            arrivals: Vec::new(),
            things: BinaryHeap::new(),
            flying: BTreeMap::new(),
            number: 0,
        }
    }

    pub(super) fn answering(mut self, answer: impl FnMut(&Dispatch, Mono) -> (Duration, Ending) + 'static) -> Self {
        self.answer = Box::new(answer);
        self
    }

    pub(super) fn at(&self) -> Now {
        Now { mono: self.now, wall: Wall((EPOCH_US + self.now.0).saturating_add_signed(self.set_by_us)) }
    }

    pub(super) fn append(&mut self, lane: &Lane, count: usize) {
        self.append_as(lane, count, None, false);
    }

    pub(super) fn append_as(&mut self, lane: &Lane, count: usize, order: Option<&str>, replay: bool) {
        let key = order.map(|key| Group::of(&[key]));
        let part = self.part.as_ref().and_then(|part| part(lane));
        let arrivals = vec![(lane.clone(), part, key); count];
        self.arrive(arrivals, replay);
    }

    /// A batch of events: whose, the part where their group is one too many, and their order keys. They wait where the engine says.
    pub(super) fn arrive(&mut self, batch: Vec<(Lane, Option<Group>, Option<Group>)>, replay: bool) {
        let now = self.at();
        let wanted: Vec<Wanted<'_>> = batch.iter().map(|(lane, part, _)| Wanted { lane, part: part.clone() }).collect();
        let places = self.engine.places(&wanted).into_iter().chain(std::iter::repeat(None));
        let store = &mut self.store;
        let stored = |((home, _, key), place): ((Lane, _, Option<Group>), Option<Lane>)| {
            store.append(&home, place, key, replay, now.wall)
        };
        let events = batch.into_iter().zip(places).map(stored).collect();
        self.engine.on_appended(events, now);
    }

    /// The process dies and comes back: what is durable is found, all else is gone.
    pub(super) fn restart(&mut self, policy: impl Fn(&Group) -> Policy + Send + 'static, settings: Settings) {
        self.flying.clear();
        self.things.clear();
        let now = self.at();
        self.store.interrupt(now.wall);
        self.engine = Engine::new(settings, Box::new(policy), 2);
        for (lane, (fresh, retrying, oldest)) in self.store.lanes() {
            self.engine.on_recovered(&lane, fresh, retrying, oldest, now);
        }
        for event in self.store.pending.values().map(|row| &row.event) {
            if let Some(owner) = &event.owner {
                self.engine.on_overflowed(&event.lane, owner);
            }
        }
    }

    /// A live request of `group` that can wait for `patience`.
    pub(super) fn call(&mut self, group: &str, patience: Duration) -> Result<LiveId, Unserved> {
        let now = self.at();
        self.engine.on_live(&Group::of(&[group]), now.mono.plus(patience), now)
    }

    /// One event of `lane` at `at`.
    pub(super) fn arrive_at(&mut self, lane: &Lane, at: Mono) {
        self.arrivals.push(lane.clone());
        self.plan(at, Thing::Arrive(self.arrivals.len() - 1));
    }

    fn plan(&mut self, at: Mono, thing: Thing) {
        self.number += 1;
        self.things.push(Reverse((at.0, self.number, thing)));
    }

    /// Lets `span` pass.
    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now.plus(span);
        self.plan(end, Thing::Tick);
        while self.now < end {
            assert!(self.step(), "nothing will ever happen");
        }
    }

    /// Until nothing is pending.
    pub(super) fn drain(&mut self) {
        let mut steps = 0;
        while !self.store.pending.is_empty() {
            let goes_on = self.step();
            steps += 1;
            assert!(goes_on || self.store.pending.is_empty(), "nothing will ever happen: {:?}", self.engine.totals());
            assert!(steps < 10_000_000, "does not drain: {:?}", self.engine.totals());
        }
    }

    /// Executes all requests, then goes to the next thing that happens. False when nothing will.
    fn step(&mut self) -> bool {
        self.execute();
        let timeout = self.engine.poll_timeout();
        let next = self.things.peek().map(|Reverse((at, ..))| Mono(*at));
        let Some(at) = [timeout, next].into_iter().flatten().min() else { return false };
        self.now = self.now.max(at);
        if timeout.is_some_and(|timeout| timeout <= self.now) {
            let now = self.at();
            self.engine.on_timeout(now);
        }
        if next.is_some_and(|next| next <= self.now)
            && let Some(Reverse((.., thing))) = self.things.pop()
        {
            self.happen(thing);
        }
        assert_eq!(self.engine.violations(), 0, "{:?}", self.engine.last_violation());
        true
    }

    fn happen(&mut self, thing: Thing) {
        match thing {
            Thing::Tick => {}
            Thing::Arrive(index) => {
                let lane = self.arrivals[index].clone();
                self.append(&lane, 1);
            }
            Thing::Ended(ticket, _) => {
                let Some((lane, live, took, ending)) = self.flying.remove(&ticket) else { return };
                let got = self.got.entry(lane.group.clone()).or_default();
                got.in_flight -= 1;
                got.worker_us += took.as_micros() as u64;
                got.delivered += u64::from(ending == Ending::Success);
                let now = self.at();
                if let Some(max) = self.hold.as_ref().and_then(|hold| hold(&lane)) {
                    self.engine.may_hold(ticket, max);
                }
                self.engine.on_finished(ticket, ending, took, now);
                if let Some(live) = live {
                    self.served.push((live, ending));
                } else if self.refill.as_ref().is_some_and(|refill| refill(&lane)) {
                    self.append(&lane, 1);
                }
            }
        }
    }

    pub(super) fn execute(&mut self) {
        let loads = self.due_loads;
        while let Some(request) = self.engine.poll_request(self.at()) {
            let now = self.at();
            match request {
                Request::Dispatch(dispatch) => self.dispatch(dispatch),
                Request::Live(dispatch) => self.dispatch_live(&dispatch),
                Request::Unserved { live, why } => self.refused.push((live, why)),
                Request::Settle { batch, settlements } => {
                    for settle in &settlements {
                        assert!(self.store.settle(settle), "{settle:?} is about an event that is not pending");
                    }
                    self.engine.on_settled(batch, now);
                }
                Request::Load { lane, after, n } => {
                    let (events, more) = self.store.load(&lane, after, n);
                    self.engine.on_loaded(&lane, events, more, now);
                }
                Request::LoadDue { after, n } => {
                    self.due_loads += 1;
                    assert!(self.due_loads < loads + 1_000, "it is read again and again, and nothing happens");
                    let (events, more) = self.store.due(after, n);
                    self.engine.on_due_loaded(events, more, now);
                }
                Request::Cancel { ticket } => {
                    self.cancelled.push(ticket);
                    if let Some((.., ending)) = self.flying.get_mut(&ticket) {
                        *ending = Ending::Cancelled;
                        self.plan(self.now, Thing::Ended(ticket, 0));
                    }
                }
            }
        }
    }

    fn dispatch(&mut self, dispatch: Dispatch) {
        let (took, ending) = (self.answer)(&dispatch, self.now);
        self.fly(dispatch.ticket, dispatch.lane.clone(), None, dispatch.wait, (took, ending));
        if let Some(trace) = &mut self.trace {
            trace.push((self.now, dispatch));
        }
    }

    /// Successful attempts of all groups.
    pub(super) fn delivered(&self) -> u64 {
        self.got.values().map(|got| got.delivered).sum()
    }

    fn dispatch_live(&mut self, dispatch: &LiveDispatch) {
        let answer = (self.live_answer)(dispatch);
        let lane = Lane { group: dispatch.group.clone(), inner: None };
        self.fly(dispatch.ticket, lane, Some(dispatch.live), dispatch.wait, answer);
    }

    fn fly(&mut self, ticket: Ticket, lane: Lane, live: Option<LiveId>, wait: Duration, answer: (Duration, Ending)) {
        let (took, ending) = answer;
        let got = self.got.entry(lane.group.clone()).or_default();
        got.attempts += 1;
        got.waits.push(wait);
        got.in_flight += 1;
        got.most_in_flight = got.most_in_flight.max(got.in_flight);
        self.turns.push((lane.group.clone(), live.is_some()));
        self.flying.insert(ticket, (lane, live, took, ending));
        self.plan(self.now.plus(took), Thing::Ended(ticket, 1));
    }

    pub(super) fn got(&self, group: &str) -> Got {
        self.got.get(&Group::of(&[group])).cloned().unwrap_or_default()
    }

    pub(super) fn view(&self, group: &str) -> GroupView {
        self.engine.group(&Group::of(&[group]), self.now)
    }

    /// The dispatched seqs so far.
    pub(super) fn order(&self) -> Vec<u64> {
        self.trace.as_ref().unwrap().iter().map(|(_, dispatch)| dispatch.seq.0).collect()
    }
}

/// A line of the table that a run with `--nocapture` prints: what was measured, in virtual time.
pub(super) fn row(what: &str, found: &str) {
    println!("| {what} | {found} |");
}

/// The same for waits: p50, p90 and p99.
pub(super) fn row_of_waits(what: &str, waits: &mut [Duration]) {
    let of = [0.5, 0.9, 0.99].map(|q| format!("{:.1} ms", quantile(waits, q).as_secs_f64() * 1e3));
    row(what, &of.join(" | "));
}

/// The `q`-th quantile.
pub(super) fn quantile(waits: &mut [Duration], q: f64) -> Duration {
    assert!(!waits.is_empty());
    waits.sort_unstable();
    waits[((waits.len() - 1) as f64 * q).round() as usize]
}

/// Numbers for tests, exponential and otherwise.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        (self.unit() * n as f64) as u64
    }

    pub(super) fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }

    pub(super) fn between(&mut self, low: Duration, high: Duration) -> Duration {
        low + (high - low).mul_f64(self.unit())
    }
}
