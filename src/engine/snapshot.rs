//! What stands, for people, metrics and the driver. Nothing here changes anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::field::Class;
use super::group::{GroupState, Standing};
use super::request::{BreakerState, GroupView, Held, Slots, Sort, State, Totals};
use super::schedule::parked_by;
use super::stats::Minute;
use super::{Engine, ev, lane};
use crate::event::{Group, Mono, WaitSplit};

/// A group's last minute; all zeros for one of very many that never had several events at a time.
fn minute(group: &GroupState) -> Minute {
    group.ledger.stats.as_ref().map(|stats| stats.minute.clone()).unwrap_or_default()
}

/// What its events waited for in the last minute.
fn by_reason(group: &GroupState, now: Mono) -> WaitSplit {
    let recent = group.ledger.stats.as_ref().and_then(|stats| stats.by_reason.as_ref());
    recent.map(|recent| recent.sum(now)).unwrap_or_default()
}

/// What is known of the events of a group that are in no lane: leased, or waiting for their time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Away {
    /// When the oldest of them was received, on the line.
    received: Option<i64>,
    /// When the next retry is due.
    due: Option<Mono>,
}

/// By group.
pub(super) type Elsewhere = HashMap<u32, Away>;

/// The earlier of two times, where there are any.
fn earlier<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

impl Engine {
    /// Counters, and where all pending events stand (I1).
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            queued: self.counts.queued,
            retrying: self.counts.retrying,
            in_flight: u64::from(self.counts.in_flight) + u64::from(self.counts.settling),
            ..self.totals
        }
    }

    /// Who holds the slots.
    #[must_use]
    pub fn slots(&self) -> Slots {
        let busy = self.leases.len() as u32;
        let limit = self.upstream.breaker.slow_start().unwrap_or(u32::MAX).min(self.settings.slots);
        let shared = self.shared_slots().saturating_sub(self.shared_busy());
        Slots {
            busy,
            slow: self.leases.slow,
            retry: self.leases.retry,
            replay: self.leases.replay,
            free: limit.saturating_sub(busy).min(shared),
            dedicated: self.dedicated_slots(),
        }
    }

    /// What events and live requests of all groups waited for that got their lease in the last minute (in the last half minute at
    /// least).
    #[must_use]
    pub fn waited(&self, now: Mono) -> WaitSplit {
        self.waited.sum(now)
    }

    /// Where the upstream's breaker stands.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.upstream.breaker.state()
    }

    /// The upstream's median attempt; `None` before the first.
    #[must_use]
    pub fn median(&self) -> Option<Duration> {
        self.upstream.durations.median_us().map(Duration::from_micros)
    }

    /// Worker time of all groups in the last minute.
    #[must_use]
    pub fn worker_time(&self, now: Mono) -> Duration {
        Duration::from_micros(self.minute.worker_us(now))
    }

    /// Groups with pending events or live requests.
    #[must_use]
    pub fn active_groups(&self) -> usize {
        self.groups.len()
    }

    /// Lanes with pending events.
    #[must_use]
    pub fn active_lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Groups without pending events of which something is remembered: what they owe, or what binds them.
    #[must_use]
    pub fn dormant_groups(&self) -> usize {
        self.dormant.len()
    }

    /// Whether a drain has come to its end: no attempt in flight, and every settlement durable.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && self.leases.len() == 0 && self.outbox.is_empty()
    }

    /// Retrying events whose time came more than `late` ago and that could go: a slot is free, no gate is closed to them and they are not
    /// leased. Takes time in the number of active lanes.
    #[must_use]
    pub fn retries_overdue(&self, late: Duration) -> u64 {
        if !self.takes_retries() {
            return 0;
        }
        let ramp = self.shared_busy().saturating_mul(2) < self.shared_slots();
        let ready = |lane: &&lane::LaneState| {
            self.groups.get(lane.group).is_some_and(|group| match group.standing {
                Standing::Ready(class) if class.has(Class::RAMP) && !ramp => false,
                Standing::Own(_) => self.state(group) == State::Dedicated,
                Standing::Ready(_) => {
                    self.state(group) == State::Ready && group.retry_in_flight < self.settings.group_retry_slots()
                }
                _ => false,
            })
        };
        let lanes = self.lanes.iter().map(|(_, lane)| lane).filter(ready);
        lanes.map(|lane| lane.due_before(self.now, late)).sum()
    }

    /// Whether the upstream as a whole would take a retry now.
    fn takes_retries(&self) -> bool {
        let rate = self.settings.rate.is_none_or(|rate| self.upstream.rate.ready(rate, self.now).is_ok());
        let held = self.upstream.breaker.is_held(self.now);
        let slot = self.slots().free > 0 && self.leases.retry < self.settings.retry_slots();
        rate && slot && !held && !self.draining
    }

    /// Comparisons made so far to keep ready groups in order and to pick from them (R1).
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.field.steps()
    }

    /// One group, active or not.
    #[must_use]
    pub fn group(&self, name: &Group, now: Mono) -> GroupView {
        let active = self.gid_of(name).and_then(|gid| Some((gid, self.groups.get(gid)?)));
        if let Some((gid, group)) = active {
            let elsewhere = self.elsewhere(Some(gid));
            let oldest = self.oldest(gid, group, &elsewhere, now);
            return self.view(group, oldest, self.next_due(gid, group, &elsewhere), now);
        }
        let mut idle = GroupState::new(name.clone(), (self.policies)(name));
        idle.paused = self.paused.contains(name);
        let ledger = self.ledgers.get(name);
        idle.ledger = ledger.cloned().unwrap_or_default();
        let view = self.view(&idle, Duration::ZERO, None, now);
        let overflow = self.overflow_of(name);
        // How it stands is how the lane stands that it shares: what holds for the group itself does not act there.
        let (state, reason) =
            overflow.as_ref().map_or_else(|| (view.state, view.reason.clone()), |lane| self.shares(lane));
        GroupView { counted: ledger.map(|ledger| now.since(ledger.since)), overflow, state, reason, ..view }
    }

    /// The first `limit` active groups in that order; equal ones by name. Takes time in the number of active groups.
    #[must_use]
    pub fn groups(&self, sort: Sort, limit: usize, now: Mono) -> Vec<GroupView> {
        let elsewhere = self.elsewhere(None);
        let mut all: Vec<(u64, Duration, u32, &GroupState)> = Vec::with_capacity(self.groups.len());
        for (gid, group) in self.groups.iter() {
            let oldest = self.oldest(gid, group, &elsewhere, now);
            let key = match sort {
                Sort::Age => super::micros(oldest),
                Sort::Depth => group.counts.total() + group.live.waiting.len() as u64,
                Sort::Seconds => minute(group).worker_us(now),
                Sort::Rate => (minute(group).arrival_rate(now) * 1_000.0) as u64,
            };
            all.push((key, oldest, gid, group));
        }
        all.sort_unstable_by(|(a, _, _, one), (b, _, _, other)| b.cmp(a).then_with(|| one.name.cmp(&other.name)));
        let view = |(_, oldest, gid, group): (u64, Duration, u32, &GroupState)| {
            self.view(group, oldest, self.next_due(gid, group, &elsewhere), now)
        };
        all.into_iter().take(limit).map(view).collect()
    }

    /// How long the oldest pending event of each active group has waited since it was received. Takes time in the number of active
    /// groups.
    pub fn ages(&self, now: Mono) -> impl Iterator<Item = Duration> {
        let elsewhere = self.elsewhere(None);
        self.groups.iter().map(move |(gid, group)| self.oldest(gid, group, &elsewhere, now))
    }

    /// Order keys of the group whose head has failed and goes again: the first `limit`, those that have waited longest first, and how
    /// many there are. Takes time in the number of all retries in memory.
    #[must_use]
    pub fn held(&self, name: &Group, limit: usize, now: Mono) -> (Vec<Held>, usize) {
        let Some(gid) = self.gid_of(name) else { return (Vec::new(), 0) };
        let lane = |lid: u32| self.lanes.get(lid).filter(|lane| lane.group == gid);
        let view = |lid: u32, ev: &ev::Ev, due: Option<Mono>| {
            let (lane, key) = (lane(lid)?, ev.order()?.clone());
            let due = due.map(|at| at.since(now)).filter(|left| !left.is_zero());
            let since = ev::since_line(ev.first().unwrap_or(ev.received), now);
            Some(Held { key, inner: lane.inner.clone(), seq: ev.seq, since, attempts: ev.attempts, due })
        };
        let waiting = self.retries.waiting().filter_map(|(at, lid, ev)| view(lid, ev, Some(at)));
        let leased = self.leases.iter().filter(|(_, lease)| lease.retry).filter_map(|(_, lease)| lease.work.event());
        let leased = leased.filter_map(|(lid, ev)| view(lid, ev, None));
        let lanes = self.groups.get(gid).into_iter().flat_map(GroupState::lanes);
        let due = lanes.filter_map(|lid| Some((lid, self.lanes.get(lid)?)));
        let due = due.flat_map(|(lid, lane)| lane.runnable().filter(|ev| ev.retrying).map(move |ev| (lid, ev)));
        let due = due.filter_map(|(lid, ev)| view(lid, ev, None));
        let mut held: Vec<Held> = waiting.chain(leased).chain(due).collect();
        held.sort_by(|one, other| other.since.cmp(&one.since).then(one.seq.cmp(&other.seq)));
        let count = held.len();
        held.truncate(limit);
        (held, count)
    }

    /// How the lane stands that a group without one of its own shares, and why nothing is known of the group, in words.
    fn shares(&self, lane: &Group) -> (State, String) {
        let shared = self.group_of(lane);
        let pending = shared.map_or(0, |group| group.counts.total());
        let reason = format!("it has no lane of its own and shares {lane} with others: {pending} events wait there");
        (shared.map_or(State::Idle, |group| self.state(group)), reason)
    }

    /// Of all groups, or of one.
    pub(super) fn elsewhere(&self, wanted: Option<u32>) -> Elsewhere {
        let mut away = Elsewhere::new();
        let leased =
            self.leases.iter().filter_map(|(_, lease)| Some((lease.gid, lease.work.event()?.1.received, None)));
        let group = |lid| self.lanes.get(lid).map(|lane| lane.group);
        let waiting = self.retries.waiting().filter_map(|(at, lid, ev)| Some((group(lid)?, ev.received, Some(at))));
        let all = leased.chain(waiting).filter(|(gid, ..)| wanted.is_none_or(|wanted| *gid == wanted));
        for (gid, received, due) in all {
            let known = away.entry(gid).or_default();
            *known = Away { received: earlier(known.received, Some(received)), due: earlier(known.due, due) };
        }
        away
    }

    /// When the next retry of the group is due that waits for its time, in memory or in the store.
    pub(super) fn next_due(&self, gid: u32, group: &GroupState, elsewhere: &Elsewhere) -> Option<Mono> {
        let stored = group.lanes().filter_map(|lid| Some(self.lanes.get(lid)?.rare.missed?.1)).min();
        earlier(elsewhere.get(&gid).and_then(|away| away.due), stored)
    }

    pub(super) fn oldest(&self, gid: u32, group: &GroupState, elsewhere: &Elsewhere, now: Mono) -> Duration {
        let lanes = group.lanes().filter_map(|lid| self.lanes.get(lid));
        let away = elsewhere.get(&gid).and_then(|away| away.received);
        let received = lanes.filter_map(lane::LaneState::oldest).chain(away).min();
        received.map_or(Duration::ZERO, |at| ev::since_line(at, now))
    }

    /// Whether its next events are not in memory yet: it is neither idle nor held.
    fn is_reading(&self, group: &GroupState) -> bool {
        group.lanes().filter_map(|lid| self.lanes.get(lid)).any(lane::LaneState::is_reading)
    }

    pub(super) fn view(&self, group: &GroupState, oldest: Duration, due: Option<Mono>, now: Mono) -> GroupView {
        let state = self.state(group);
        let minute = minute(group);
        let (arrival_rate, drain_rate) = (minute.arrival_rate(now), minute.drain_rate(now));
        let all_us = self.minute.worker_us(now);
        let pending = group.counts.queued + group.counts.retrying;
        GroupView {
            group: group.name.clone(),
            state,
            reason: self.reason(group, state, due, now),
            weight: group.policy.weight,
            concurrency: group.cap(&self.settings),
            rate: group.policy.rate,
            paused: group.is_paused(),
            backlog: group.policy.backlog,
            dedicated: self.dedicated.view(&group.name, self.settings.dedicated.slots, now),
            queued: group.counts.queued,
            retrying: group.counts.retrying,
            live: group.live.waiting.len() as u32,
            in_flight: group.in_flight(),
            oldest,
            worker_time: Duration::from_micros(group.ledger.worker_us),
            share: if all_us == 0 { 0.0 } else { minute.worker_us(now) as f64 / all_us as f64 },
            arrival_rate,
            drain_rate,
            wait_p99: group.ledger.stats.as_ref().and_then(|stats| stats.waits.p99()),
            waited: by_reason(group, now),
            eta: (drain_rate > arrival_rate && self.goes_on(group, state, now))
                .then(|| Duration::try_from_secs_f64(pending as f64 / (drain_rate - arrival_rate)).ok())
                .flatten(),
            accepted: group.ledger.accepted,
            delivered: group.ledger.delivered,
            dead: group.ledger.dead,
            counted: Some(now.since(group.ledger.since)),
            overflow: None,
        }
    }

    /// Whether its rates of the last minute say anything about the next one: what waits for a breaker, a person or a `Retry-After` does not go
    /// at them.
    fn goes_on(&self, group: &GroupState, state: State, now: Mono) -> bool {
        match state {
            State::Paused | State::Held | State::Broken => false,
            // Its retries will wait for what holds the others, once they are due.
            State::Idle => {
                let upstream = &self.upstream;
                let held = upstream.paused || !upstream.breaker.is_closed() || upstream.breaker.is_held(now);
                !held && group.breaker.may_go(0, now).is_ok()
            }
            _ => !self.draining,
        }
    }

    fn state(&self, group: &GroupState) -> State {
        let slow_full = self.leases.slow >= self.settings.slow_slots(self.shared_slots());
        let again = self.free_for_again();
        let closed = self.upstream.breaker.is_closed();
        match group.standing {
            Standing::Idle if group.is_paused() => State::Paused,
            Standing::Ready(_) | Standing::Own(_) if self.upstream.paused => State::Paused,
            Standing::Ready(_) | Standing::Own(_) if self.upstream.breaker.is_held(self.now) => State::Held,
            Standing::Idle if group.counts.queued > 0 && self.upstream.paused => State::Paused,
            Standing::Idle if self.parked_by(group).is_some() => State::Paused,
            Standing::Idle if group.counts.queued > 0 && self.is_reading(group) => State::Ready,
            Standing::Idle if group.counts.queued > 0 => State::Held,
            Standing::Idle => State::Idle,
            Standing::Ready(class) | Standing::Own(class) if class.has(Class::SUSPECT) && !closed => State::Broken,
            Standing::Ready(class) if class.has(Class::SLOW) && slow_full => State::Slow,
            Standing::Ready(class) if class.has(Class::UNKNOWN) && !self.takes_unknown() => State::Slow,
            Standing::Ready(class) | Standing::Own(class) if !again.has_slot(class) => State::RetrySlots,
            Standing::Ready(_) => State::Ready,
            Standing::Own(_) => State::Dedicated,
            Standing::Capped if group.own.is_some() => State::Dedicated,
            Standing::Capped => State::Capped,
            Standing::Limited => State::Limited,
            Standing::Paused => State::Paused,
            Standing::Broken => State::Broken,
            Standing::RetryAfter => State::Held,
            Standing::RetrySlots => State::RetrySlots,
        }
    }

    /// The paused source that a lane of the group waits with.
    pub(super) fn parked_by(&self, group: &GroupState) -> Option<&Arc<str>> {
        if self.parked == 0 { None } else { parked_by(&self.lanes, group) }
    }

    /// Why a group does not run, in words.
    fn reason(&self, group: &GroupState, state: State, due: Option<Mono>, now: Mono) -> String {
        let left = |until: Mono| until.since(now).as_millis().div_ceil(1_000);
        let held = group.held_until.max(self.upstream.breaker.held_until());
        match state {
            State::Idle if group.counts.retrying > 0 => retries_wait(group, due.map(left)),
            State::Idle => String::new(),
            State::Ready if self.draining => "draining: no further attempt is made".into(),
            State::Ready if group.standing == Standing::Idle => "its next events are being read from the store".into(),
            State::Ready => String::new(),
            State::Dedicated if group.standing == Standing::Capped => {
                format!("{} attempts in flight, on as many slots of its own", group.in_flight())
            }
            State::Dedicated => String::new(),
            State::Capped => format!("{} attempts in flight, its cap", group.in_flight()),
            State::Limited => "its rate has no token now".into(),
            State::Paused if group.is_paused() => UNTIL_RESUMED.into(),
            State::Paused if !self.upstream.paused => match self.parked_by(group) {
                Some(source) => format!("its next event is of the source {source}, which is paused"),
                None => UNTIL_RESUMED.into(),
            },
            State::Paused => "the upstream is paused".into(),
            State::Broken => {
                let breaker = match (group.breaker.may_go(0, now), self.breaker()) {
                    (Err(Some(until)), _) => format!("its breaker is open for {} s more", left(until)),
                    (Ok(()), BreakerState::Open { until }) => {
                        format!("the upstream's breaker is open for {} s more", left(until))
                    }
                    (Ok(()), BreakerState::HalfOpen) => {
                        "the upstream's breaker lets one attempt through at a time".into()
                    }
                    _ => "its breaker lets one attempt through at a time".into(),
                };
                with_last_failure(breaker, group)
            }
            State::Held if held > now => {
                format!("the upstream asked to wait (Retry-After), {} s more", left(held))
            }
            State::Held if self.is_moving(group) => "it moves to another node: what is in flight ends first".into(),
            State::Held => "its events wait behind their order keys".into(),
            State::Slow if !group.slow => {
                "many groups turned slow at once, and it has not shown to be quick since".into()
            }
            State::Slow => "slow groups hold all the slots they may".into(),
            State::RetrySlots => match group.standing {
                Standing::Ready(class) if class.has(Class::REPLAY) => "replays hold all the slots they may".into(),
                _ => "retries hold all the slots they may".into(),
            },
        }
    }
}

/// Why a paused group does not run; its state says the rest.
const UNTIL_RESUMED: &str = "no further attempt until it is resumed";

/// A group all of whose events wait for a further attempt, the next one in so many seconds.
fn retries_wait(group: &GroupState, left: Option<u128>) -> String {
    let next = match (group.counts.retrying, left) {
        (_, None) => "its retries are not due yet".to_owned(),
        (1, Some(left)) => format!("1 retry, in {left} s"),
        (n, Some(left)) => format!("{n} retries, the next in {left} s"),
    };
    with_last_failure(next, group)
}

/// What its last failure was, behind what follows from it.
fn with_last_failure(said: String, group: &GroupState) -> String {
    match group.last_failure {
        None => said,
        Some(None) => format!("{said}; the last failure got no answer"),
        Some(Some(status)) => format!("{said}; the last failure was answered with {status}"),
    }
}
