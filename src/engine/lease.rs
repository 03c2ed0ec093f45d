//! Leases (R4): the right to one attempt, with an owner and a deadline, charged as it runs (R2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ev::Ev;
use super::fact::{Ending, Removal, Scope};
use super::group::GroupState;
use super::live::Call;
use super::price::price;
use super::request::{BreakerState, Dispatch, Request, Settle, Ticket, Verdict};
use super::retry::{self, Next};
use super::settle::After;
use super::tags::{Tag, Weight};
use super::working::Held;
use super::{Charge, Engine, Settings, breaker, ev, micros};
use crate::event::{Mono, Now, WaitSplit, Wall};

/// A lease may outlive `timeout` by so much before it is cancelled, and as much again before it is taken back.
const GRACE: Duration = Duration::from_secs(5);

/// A running attempt is charged every so often.
const CHARGE_EVERY: Duration = Duration::from_secs(1);

/// What a lease has cost so far, and whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    /// The group's at the time of the lease: a charge and its correction must be of one kind (I4).
    pub(super) weight: Weight,
    pub(super) charged_us: u64,
    /// It was given on slots of the group's own, outside the rotation: its tag does not move (R12).
    pub(super) own: bool,
}

/// What an attempt is made for.
#[derive(Debug)]
pub(super) enum Work {
    /// An event of this lane.
    Event(u32, Ev),
    /// A live request.
    Live(Call),
}

impl Work {
    pub(super) fn event(&self) -> Option<(u32, &Ev)> {
        if let Self::Event(lid, ev) = self { Some((*lid, ev)) } else { None }
    }

    pub(super) fn call(&self) -> Option<&Call> {
        if let Self::Live(call) = self { Some(call) } else { None }
    }

    /// Since when it has waited, on the line of [`ev::line`].
    pub(super) fn since(&self) -> i64 {
        match self {
            Self::Event(_, ev) => ev.since,
            Self::Live(call) => ev::line(call.since),
        }
    }
}

/// The right to one attempt.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) gid: u32,
    pub(super) work: Work,
    pub(super) price: Price,
    pub(super) at: Mono,
    /// When its attempt was asked for; until then its beginning is not durable.
    pub(super) sent: Option<Mono>,
    pub(super) retry: bool,
    /// The first attempt of a replay, or one that follows none that happened.
    pub(super) replay: bool,
    /// It was let through to see whether the upstream is back.
    pub(super) probe: bool,
    pub(super) wait: Duration,
    /// What the wait was for, until the attempt is asked for.
    pub(super) split: WaitSplit,
    /// It is longer than what is slow.
    long: bool,
    /// A person wants it to end.
    cancelled: bool,
    /// It outlived its timeout and was cancelled for that.
    overdue: bool,
    /// What a person wants of its event.
    pub(super) removal: Option<Removal>,
    /// What of it is in the books that people read.
    worked_us: u64,
    /// How long its event may hold its order key, where its source says so.
    hold_max: Option<Duration>,
    timer: Mono,
}

impl Lease {
    pub(super) fn new(gid: u32, work: Work, weight: Weight, now: Mono) -> Self {
        Self {
            gid,
            price: Price { weight, charged_us: 0, own: false },
            at: now,
            sent: None,
            retry: work.event().is_some_and(|(_, ev)| ev.retrying),
            replay: work.event().is_some_and(|(_, ev)| ev.is_replay() && !ev.retrying),
            probe: false,
            wait: ev::since_line(work.since(), now),
            split: WaitSplit::default(),
            long: false,
            cancelled: false,
            overdue: false,
            removal: None,
            worked_us: 0,
            hold_max: None,
            timer: Mono(u64::MAX),
            work,
        }
    }

    /// When to look at it next.
    fn next_timer(&self, settings: &Settings, slow_after: Duration) -> Mono {
        let Some(sent) = self.sent else { return Mono(u64::MAX) };
        let overdue = sent.plus(settings.timeout).plus(GRACE);
        let mut at = if self.overdue { overdue.plus(GRACE) } else { overdue };
        if settings.charge == Charge::Time {
            at = at.min(sent.plus(Duration::from_micros(self.price.charged_us)).plus(CHARGE_EVERY));
        }
        if self.long { at } else { at.min(sent.plus(slow_after)) }
    }
}

/// What was said of an event while it was leased.
#[derive(Clone, Copy, Debug)]
struct Said {
    removal: Option<Removal>,
    hold_max: Option<Duration>,
}

/// Every lease, by ticket and so by the time it was given.
#[derive(Debug, Default)]
pub(super) struct Leases {
    all: BTreeMap<Ticket, Lease>,
    timers: BTreeSet<(Mono, Ticket)>,
    last: u64,
    /// Held by slow groups.
    pub(super) slow: u32,
    /// Held by retries,
    pub(super) retry: u32,
    /// and by those of slow groups.
    pub(super) slow_retry: u32,
    /// Held by groups that have slots of their own.
    pub(super) own: u32,
    /// Held by replays.
    pub(super) replay: u32,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn insert(&mut self, lease: Lease) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.all.insert(ticket, lease);
        ticket
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Lease> {
        self.all.get_mut(&ticket)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &Lease)> {
        self.all.iter().map(|(ticket, lease)| (*ticket, lease))
    }

    /// What the group holds counts as held by slow ones,
    pub(super) fn turn_slow(&mut self, group: &GroupState) {
        self.slow += group.in_flight();
        self.slow_retry += group.retry_in_flight;
    }

    /// or no longer.
    pub(super) fn turn_quick(&mut self, group: &GroupState) {
        self.slow = self.slow.saturating_sub(group.in_flight());
        self.slow_retry = self.slow_retry.saturating_sub(group.retry_in_flight);
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Lease> {
        let lease = self.all.remove(&ticket)?;
        self.timers.remove(&(lease.timer, ticket));
        Some(lease)
    }

    /// How many were given within `span`, and when the first of them was.
    pub(super) fn younger_than(&self, span: Duration, now: Mono) -> (u32, Option<Mono>) {
        let young = self.all.values().rev().map(|lease| lease.at).take_while(|at| now.since(*at) < span);
        young.fold((0, None), |(count, _), at| (count + 1, Some(at)))
    }

    pub(super) fn wake(&self) -> Option<Mono> {
        self.timers.first().map(|(at, _)| *at).filter(|at| *at < Mono(u64::MAX))
    }

    pub(super) fn set_timer(&mut self, ticket: Ticket, settings: &Settings, slow_after: Duration) {
        if let Some(lease) = self.all.get_mut(&ticket) {
            self.timers.remove(&(lease.timer, ticket));
            lease.timer = lease.next_timer(settings, slow_after);
            self.timers.insert((lease.timer, ticket));
        }
    }
}

impl Engine {
    /// An attempt ended: how, and how long it took. False when the ticket is not under way (any more); such a report changes nothing.
    pub fn on_finished(&mut self, ticket: Ticket, ending: Ending, took: Duration, now: Now) -> bool {
        let now = self.tick(now);
        let Some(lease) = self.leases.remove(ticket) else { return false };
        self.finish(lease, ending, took, now);
        true
    }

    /// How long the event of this lease may hold its order key, where its source says otherwise than
    /// [`Settings::order_max_hold`]. Told before the attempt's end, which may need it; the source is known to who has the event.
    pub fn may_hold(&mut self, ticket: Ticket, max: Duration) {
        if let Some(lease) = self.leases.get_mut(ticket) {
            lease.hold_max = Some(max);
        }
    }

    /// The attempt may be made: its beginning is durable, or need not be.
    pub(super) fn dispatch(&mut self, ticket: Ticket, now: Mono) {
        let slow_after = self.upstream.durations.slow_after(&self.settings);
        let Some(lease) = self.leases.get_mut(ticket) else { return };
        let Work::Event(lid, ev) = &lease.work else { return };
        lease.sent = Some(now);
        let (Some(group), Some(lane)) = (self.groups.get(lease.gid), self.lanes.get(*lid)) else { return };
        self.requests.push_back(Request::Dispatch(Dispatch {
            ticket,
            seq: ev.seq,
            lane: crate::event::Lane { group: group.name.clone(), inner: lane.inner.clone() },
            attempt: ev.attempts,
            replays: ev.replays,
            will_retry: retry::will_retry(&self.settings.retry, ev, now),
            wait: lease.wait,
            split: std::mem::take(&mut lease.split),
            quiet: ev.quiet && !lease.retry && !lease.replay,
            deadline: now.plus(self.settings.timeout),
        }));
        self.leases.set_timer(ticket, &self.settings, slow_after);
    }

    /// The beginning of an attempt is durable.
    pub(super) fn begun(&mut self, ticket: Ticket, now: Now) {
        match self.leases.get_mut(ticket) {
            Some(lease) if lease.cancelled => {
                if let Some(lease) = self.leases.remove(ticket) {
                    self.finish(lease, Ending::NotSent, Duration::ZERO, now);
                }
            }
            Some(_) => self.dispatch(ticket, now.mono),
            None => {}
        }
    }

    /// Sets what a lease costs: the difference to what it cost before is charged, or given back.
    pub(super) fn charge(&mut self, lease: &mut Lease, cost: u64) {
        let old = std::mem::replace(&mut lease.price.charged_us, cost);
        let weight = lease.price.weight;
        self.longest_us = self.longest_us.max(cost);
        if let Some(group) = self.groups.get_mut(lease.gid) {
            if !lease.price.own && cost != old {
                group.moved = true;
                group.tag = group.tag.plus(Tag::of(cost, weight)).minus(Tag::of(old, weight));
                self.top = self.top.max(group.tag);
            }
            group.charged_us = (group.charged_us + cost).saturating_sub(old);
            let lane = lease.work.event().and_then(|(lid, _)| self.lanes.get_mut(lid));
            if let Some(lane) = lane {
                lane.tag = lane.tag.plus(Tag::of(cost, Weight::ONE)).minus(Tag::of(old, Weight::ONE));
                group.top = group.top.max(lane.tag);
            }
        }
    }

    /// Leases whose time has come: to be charged, to make their group slow, to be cancelled, to be taken back.
    pub(super) fn lease_timers(&mut self, now: Now) {
        while let Some((at, ticket)) = self.leases.timers.first().copied() {
            if at > now.mono {
                break;
            }
            self.leases.timers.remove(&(at, ticket));
            self.lease_timer(ticket, now);
        }
    }

    fn lease_timer(&mut self, ticket: Ticket, now: Now) {
        let slow_after = self.upstream.durations.slow_after(&self.settings);
        let Some(mut lease) = self.leases.all.remove(&ticket) else { return };
        let Some(sent) = lease.sent else {
            self.leases.all.insert(ticket, lease);
            return;
        };
        let ran = now.mono.since(sent);
        let limit = self.settings.timeout.saturating_add(GRACE);
        if ran >= limit.saturating_add(GRACE) {
            // It was cancelled and nobody reported: the slot is not lost to it for ever. A late report finds no lease.
            self.finish(lease, Ending::NoAnswer, ran, now);
            return;
        }
        if ran >= limit && !lease.overdue {
            lease.overdue = true;
            self.requests.push_back(Request::Cancel { ticket });
            self.violation("R4: a lease outlived its timeout by five seconds");
        }
        if self.settings.charge == Charge::Time {
            let cost = price(&self.settings, micros(ran));
            self.worked(&mut lease, cost, now.mono);
            let charged = lease.price.charged_us;
            self.charge(&mut lease, cost.max(charged));
        }
        let (gid, lid) = (lease.gid, lease.work.event().map(|(lid, _)| lid));
        if !lease.long && ran >= slow_after {
            lease.long = true;
            if let Some(group) = self.groups.get_mut(gid) {
                group.long += 1;
            }
        }
        self.leases.all.insert(ticket, lease);
        self.leases.set_timer(ticket, &self.settings, slow_after);
        self.judge_slow(gid);
        match lid {
            Some(lid) => self.touch(lid, now.mono),
            None => self.touch_group(gid, now.mono),
        }
    }

    /// Whether the group is slow (R4b); its slots change sides when that changes.
    pub(super) fn judge_slow(&mut self, gid: u32) {
        let slow_after = micros(self.upstream.durations.slow_after(&self.settings));
        let Some(group) = self.groups.get_mut(gid) else { return };
        let slow = group.long > 0 || group.estimate.micros().is_some_and(|us| us > slow_after);
        if slow != group.slow {
            group.slow = slow;
            if group.own.is_some() {
                return;
            }
            if slow {
                self.leases.turn_slow(group);
                self.found_slow(gid);
            } else {
                self.leases.turn_quick(group);
            }
        }
    }

    /// The lease is over: its price is settled, what it says about lane, group and upstream is taken in, and what follows for its event
    /// goes out to be made durable. A live request is over with its lease.
    fn finish(&mut self, mut lease: Lease, ending: Ending, took: Duration, now: Now) {
        let gid = lease.gid;
        let happened = ending != Ending::NotSent;
        // Whoever cancels an attempt does not know what it took; its slot was held all the same.
        let held =
            lease.sent.filter(|_| ending == Ending::Cancelled).map_or(Duration::ZERO, |sent| now.mono.since(sent));
        let took = took.max(held);
        let cost = if happened { price(&self.settings, micros(took)) } else { 0 };
        self.charge(&mut lease, cost);
        self.leave_flight(&lease);
        self.leases.retry -= u32::from(lease.retry);
        self.leases.replay -= u32::from(lease.replay);
        if let Some(group) = self.groups.get_mut(gid) {
            self.leases.slow -= u32::from(group.shares_slow());
            self.leases.slow_retry -= u32::from(group.shares_slow() && lease.retry);
            self.leases.own -= u32::from(group.own.is_some());
            let outbreak = &mut self.upstream.outbreak;
            outbreak.quick -= u32::from(outbreak.is_quick(group.quick));
            group.retry_in_flight -= u32::from(lease.retry);
            group.long -= u32::from(lease.long);
            group.served_us += cost;
            group.ended.add(now.mono);
        }
        self.worked(&mut lease, cost, now.mono);
        if happened {
            self.sample(&lease, micros(took));
        }
        self.learn(&lease, ending, now.mono);
        self.judge_slow(gid);
        if happened && self.groups.get(gid).is_some_and(|group| !group.slow) {
            self.shows_quick(gid, took);
        }
        let (work, said) = (lease.work, Said { removal: lease.removal, hold_max: lease.hold_max });
        match work {
            Work::Event(lid, ev) => {
                self.follow((lid, ev), said, ending, now);
                self.touch(lid, now.mono);
            }
            Work::Live(call) => self.call_ended(gid, call.id, now.mono),
        }
        if matches!(self.breaker(), BreakerState::Open { .. }) {
            self.turn_all_away(now.mono);
        }
    }

    /// What a lease has taken so far, for the books that people read: as it runs, so that a group whose attempts hang is seen at once.
    fn worked(&mut self, lease: &mut Lease, cost: u64, now: Mono) {
        let more = cost.saturating_sub(lease.worked_us);
        lease.worked_us += more;
        self.minute.worked(more, now);
        if let Some(group) = self.groups.get_mut(lease.gid) {
            group.ledger.worked(more, now);
        }
    }

    fn sample(&mut self, lease: &Lease, took_us: u64) {
        let gid = lease.gid;
        self.upstream.durations.add(took_us);
        let lane = lease.work.event().and_then(|(lid, _)| self.lanes.get_mut(lid));
        if let Some(lane) = lane {
            lane.estimate.add(took_us);
        }
        if let Some(group) = self.groups.get_mut(gid) {
            group.estimate.add(took_us);
        }
    }

    /// What the end says about the group and the upstream (R8).
    fn learn(&mut self, lease: &Lease, ending: Ending, now: Mono) {
        if matches!(ending, Ending::Cancelled | Ending::NotSent) {
            if lease.probe {
                self.upstream.breaker.unprobe();
            }
            return;
        }
        let before = self.before(lease.gid);
        let settings = self.settings.breakers;
        let failed = ending.fails_upstream();
        let answered = ending.is_answer();
        let end = breaker::End { group: lease.gid, began: lease.at, probe: lease.probe, failed, answered };
        self.upstream.breaker.ended(&settings.upstream, self.settings.slots, end, now);
        let Some(group) = self.groups.get_mut(lease.gid) else { return };
        if group.breaker.is_made() || ending.fails_group() {
            group.breaker.ended(&settings.group, ending.fails_group(), lease.at, now);
        }
        if failed {
            group.failed = Some(now);
        }
        if ending != Ending::Success {
            group.last_failure = Some(ending.status());
        }
        let event = lease.work.event().map(|(_, ev)| ev);
        // Of a retry it is news where it holds an order key and did not fail in this process yet: then it fails as after a restart.
        let is_news = |ev: &Ev| if ev.order().is_some() { !ev.is_holding() } else { !lease.retry };
        self.upstream.working.ended(ending, event.is_some_and(is_news), now);
        if !self.upstream.breaker.is_closed() {
            self.upstream.working.doubt(now);
        }
        self.hold_back(lease.gid, ending, now);
        self.notice(lease.gid, before, now);
    }

    /// A `Retry-After` of a 429 or a 503.
    fn hold_back(&mut self, gid: u32, ending: Ending, now: Mono) {
        let Ending::Server { status: status @ (429 | 503), retry_after: Some(asked) } = ending else { return };
        let settings = self.settings.breakers.upstream;
        if asked.scope != Scope::Upstream
            && let Some(group) = self.groups.get_mut(gid)
        {
            group.held_until = group.held_until.max(now.plus(asked.delay.min(retry::GROUP_HOLD_MAX)));
        }
        if asked.scope == Scope::Upstream || (asked.scope == Scope::Auto && status == 503) {
            let alone = asked.scope == Scope::Upstream;
            self.upstream.breaker.asked(&settings, gid, asked.delay, alone, now);
        }
    }

    /// What follows for the event.
    fn follow(&mut self, (lid, mut ev): (u32, Ev), said: Said, ending: Ending, now: Now) {
        let Said { removal, hold_max } = said;
        if matches!(ending, Ending::Client(_)) {
            ev.refuse();
        }
        let seq = ev.seq;
        let hold_left = self.hold_left(&mut ev, hold_max, ending);
        let next = retry::next(&self.settings.retry, &ev, ending, hold_left, now.mono, &mut self.rng);
        self.retries.settle(seq);
        let (verdict, after) = match (next, removal) {
            (Next::Delivered, _) => (Verdict::Delivered, After::ended(lid, ev)),
            (_, Some(removal)) => (removal.verdict(), After::ended(lid, ev)),
            (Next::Dead(reason), None) => (Verdict::Dead(reason), After::ended(lid, ev)),
            (Next::Back, None) => {
                ev.attempts = ev.attempts.saturating_sub(1);
                (Verdict::Released, After::Back { lid, ev: Box::new(ev) })
            }
            (Next::Again(delay), None) => {
                if let (Some(key), Some(lane)) = (ev.order(), self.lanes.get_mut(lid)) {
                    lane.rare.keys.hold(key);
                }
                if ev.is_holding()
                    && let Some(held) = ev.holds()
                {
                    // With its group's breaker open it waits for the upstream still; longer only for something else, such as a pause.
                    let broken = self.settings.breakers.group.open_max;
                    held.waits(delay.saturating_add(self.settings.timeout).saturating_add(broken));
                }
                let due = now.wall.plus(delay);
                (Verdict::RetryAt(due), After::Retry { lid, at: now.mono.plus(delay), due, ev: Box::new(ev) })
            }
        };
        self.outbox.push(Settle { seq, at: now.wall, verdict }, after);
    }

    /// How much longer the event may hold its order key: from its first failure, counting only time in which the upstream worked (R7).
    fn hold_left(&self, ev: &mut Ev, max: Option<Duration>, ending: Ending) -> Option<Duration> {
        if matches!(ending, Ending::Success | Ending::NotSent) || ev.order().is_none() {
            return None;
        }
        let working = &self.upstream.working;
        let holds = ev.holds();
        let held = match holds {
            Some(held) => held.failed(ending, working),
            None => {
                *holds = Some(Held::begin(working));
                Duration::ZERO
            }
        };
        Some(max.unwrap_or(self.settings.order_max_hold).saturating_sub(held))
    }

    /// Asks for the end of an attempt, or ends a lease whose attempt has not been asked for.
    pub(super) fn cancel_lease(&mut self, ticket: Ticket) {
        let Some(lease) = self.leases.get_mut(ticket) else { return };
        if !lease.cancelled {
            lease.cancelled = true;
            if lease.sent.is_some() {
                self.requests.push_back(Request::Cancel { ticket });
            }
        }
    }
}

/// A due time of the store on the monotonic clock: never further away than the longest delay, whatever a clock was set to.
pub(super) fn due_on_mono(settings: &Settings, due: Wall, now: Now) -> Mono {
    now.mono.plus(due.since(now.wall).min(settings.retry.backoff.max))
}
