//! Whose turn it is: standing in the field, the head start, the pick (R1, R3, R4, R4b, R8, R11).

use std::sync::Arc;
use std::time::Duration;

use super::counts::Stage;
use super::ev::Ev;
use super::field::Class;
use super::group::{GroupState, Standing};
use super::lane::LaneState;
use super::lease::{Lease, Work};
use super::live::Call;
use super::own::Within;
use super::price::price;
use super::request::{BreakerState, Settle, Ticket, Verdict};
use super::settle::After;
use super::slab::Slab;
use super::tags::{Tag, Turn, Weight};
use super::wait::Cause;
use super::{Engine, LOADS_MAX, Settings, micros, section};
use crate::event::{Mono, Now};

/// While the upstream recovers, an attempt older than this does not count against the few slots: one that hangs must not
/// keep everybody out.
pub(super) const SLOW_START_PATIENCE: Duration = Duration::from_secs(1);

/// The longest that a group's wake-up is put off, so that groups whose tokens come at once do not all come at once.
const WAKE_JITTER: Duration = Duration::from_millis(50);

/// The head start of a lane of that weight.
pub(super) fn burst(settings: &Settings, weight: Weight) -> Tag {
    Tag::of(micros(settings.burst), weight)
}

/// The paused source that a lane of the group waits with.
pub(super) fn parked_by<'a>(lanes: &'a Slab<LaneState>, group: &GroupState) -> Option<&'a Arc<str>> {
    group.lanes().find_map(|lid| lanes.get(lid)?.rare.parked.as_ref())
}

/// Which slots are free for what is attempted again: of those that retries share, of the part of them that slow groups share (R4b), and
/// of those for replays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) retry: bool,
    pub(super) slow_retry: bool,
    pub(super) replay: bool,
}

impl Again {
    /// Whether a retry of a group that is slow, or not, finds a slot.
    pub(super) fn retry_for(self, slow: bool) -> bool {
        if slow { self.slow_retry } else { self.retry }
    }

    /// Whether what a group of this class has to do finds one.
    pub(super) fn has_slot(self, class: Class) -> bool {
        class.has_slot(self.retry_for(class.has(Class::SLOW)), self.replay)
    }
}

/// What a group passes on its way to a lease, besides its own cap, rate and breaker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    slow: bool,
    ramp: bool,
    again: Again,
    unknown: bool,
    closed: bool,
    probe: bool,
}

impl Gates {
    /// Whether all of them are open to this class; while the upstream's breaker is half open, to one that has not probed in this round.
    pub(super) fn open(&self, class: Class, side: bool) -> bool {
        let passes = |bit: Class, open: bool| open || !class.has(bit);
        let trusted = self.closed || !class.has(Class::SUSPECT) || (self.probe && class.has(Class::SIDE) != side);
        passes(Class::SLOW, self.slow)
            && passes(Class::RAMP, self.ramp)
            && self.again.has_slot(class)
            && passes(Class::UNKNOWN, self.unknown)
            && trusted
    }
}

impl Engine {
    /// Puts a lane where it belongs inside its group.
    pub(super) fn stand_lane(&mut self, lid: u32) {
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        let Some(group) = self.groups.get_mut(lane.group) else { return };
        let places = &mut self.inner_places;
        if let Some(kind) = lane.kind() {
            if lane.since == 0 {
                // R3, inside: raised when it becomes ready, by nothing else and never lowered.
                lane.tag = lane.tag.max(group.v.minus(burst(&self.settings, Weight::ONE)));
                self.step += 1;
                lane.since = self.step;
            }
            let turn = Turn { tag: lane.tag, since: lane.since };
            group.inside.set(places, turn, lid, kind, lane.inner.is_none());
        } else {
            group.inside.remove(places, lid, lane.inner.is_none());
            lane.since = 0;
        }
        if group.inside.is_empty() {
            group.v = group.v.max(group.top);
        }
    }

    /// Puts a group where it belongs: into the field, or out of it with a time to look again.
    pub(super) fn refresh(&mut self, gid: u32, now: Mono) {
        let Some(group) = self.groups.get_mut(gid) else { return };
        let (standing, wake) = group.stand(&self.settings, &self.upstream, now);
        let was = std::mem::replace(&mut group.standing, standing);
        if let (Standing::Ready(old), true) = (was, was != standing) {
            self.field.remove(old, gid);
        }
        if let Standing::Ready(class) = standing {
            if !matches!(was, Standing::Ready(_)) {
                // R3: for whatever reason it was away.
                group.tag = group.tag.max(self.v.minus(burst(&self.settings, group.weight)));
                self.step += 1;
                group.since = self.step;
                group.gated = false;
            }
            group.gated |= class.is_gated();
            // Most changes of a group leave its turn, and then its place need not be looked at.
            if was != standing || std::mem::take(&mut group.moved) {
                group.moved = false;
                self.field.set(class, group.turn(), gid);
                if !self.field.holds(class, gid) {
                    self.violation("I2: a ready group is not in the field");
                }
            }
        }
        let Some(group) = self.groups.get_mut(gid) else { return };
        let wish = section::wish(standing, group.weight);
        self.sections.wants(std::mem::replace(&mut group.wish, wish), wish);
        let parked = self.parked > 0 && standing == Standing::Idle && parked_by(&self.lanes, group).is_some();
        group.stops.note(Cause::of(standing, group.counts.queued > 0, parked), now);
        match wake {
            Some(at) => {
                let jitter = if standing == Standing::Limited { self.rng.part_of(WAKE_JITTER) } else { Duration::ZERO };
                group.wakes = true;
                self.wakes.set(&mut self.wake_places, at.plus(jitter), gid);
            }
            None if group.wakes => {
                group.wakes = false;
                self.wakes.remove(&mut self.wake_places, gid);
            }
            None => {}
        }
    }

    /// Gives one lease, or asks for the event that it would be for. False when nothing may go now.
    pub(super) fn lease_next(&mut self, now: Now) -> bool {
        self.upstream.wake = None;
        self.rest();
        if self.draining || self.nobody_ready() {
            return false;
        }
        if let Some(wake) = self.closed(now.mono) {
            self.upstream.wake = wake;
            return false;
        }
        if self.free_slots(now.mono) == 0 {
            return false;
        }
        let picked = if self.events_held { self.pick_live() } else { self.pick(now.mono) };
        let Some((standing, gid)) = picked else {
            self.upstream.wake = self.upstream.breaker.wake();
            return false;
        };
        // Ramp, suspicion and slowness change with time and the upstream's median: one who was at the head may have to move.
        let Some(group) = self.groups.get(gid) else { return false };
        let stands = group.stand(&self.settings, &self.upstream, now.mono).0;
        let (true, Standing::Ready(class) | Standing::Own(class)) = (stands == standing, stands) else {
            self.refresh(gid, now.mono);
            return true;
        };
        self.warm_next(class);
        self.take_turn(gid, class, now)
    }

    /// No group has something to do that could go, in the rotation or on slots of its own.
    pub(super) fn nobody_ready(&self) -> bool {
        self.field.is_empty() && !self.own_ready()
    }

    /// Nobody of the rotation is ready while a slot of it is free: all that was charged is in the past (R3).
    fn rest(&mut self) {
        if self.field.is_empty() && self.shared_busy() < self.shared_slots() {
            self.v = self.v.max(self.top);
        }
    }

    /// Whether the upstream as a whole takes nothing now, and when that is over.
    fn closed(&mut self, now: Mono) -> Option<Option<Mono>> {
        self.upstream.breaker.tick(now);
        if self.upstream.paused {
            return Some(None);
        }
        if self.upstream.breaker.is_held(now) {
            return Some(self.upstream.breaker.wake());
        }
        let at = self.settings.rate.and_then(|rate| self.upstream.rate.ready(rate, now).err())?;
        Some(Some(at))
    }

    /// Slots that may be taken now. Fewer than there are while the upstream recovers (R8).
    pub(super) fn free_slots(&mut self, now: Mono) -> u32 {
        let busy = self.leases.len() as u32;
        let free = self.settings.slots.saturating_sub(busy);
        let BreakerState::SlowStart { slots } = self.upstream.breaker.state() else { return free };
        let (young, oldest) = self.leases.younger_than(SLOW_START_PATIENCE, now);
        let free = free.min(slots.saturating_sub(young));
        if free == 0 {
            self.upstream.wake = oldest.map(|at| at.plus(SLOW_START_PATIENCE));
        }
        free
    }

    /// Whose turn it is, and how it stands: of those whose gates are open the group with the lowest tag, before it one with slots of its
    /// own, and after it one that had its part of the upstream's rate.
    fn pick(&mut self, now: Mono) -> Option<(Standing, u32)> {
        let (shared, busy) = (self.shared_slots(), self.shared_busy());
        let gates = self.gates();
        let (closed, probe) = (gates.closed, gates.probe);
        if !closed || self.upstream.outbreak.is_on() {
            self.upstream.unclosed = self.step;
        }
        let side = self.upstream.breaker.side;
        let found = self.first(|class| gates.open(class, side), busy < shared, now);
        if found.is_some() || !probe {
            return found;
        }
        // Everybody who could has probed in this round: another round begins.
        let found = self.first(|class| gates.open(class, !side), busy < shared, now);
        if found.is_some() {
            self.upstream.breaker.side = !side;
        }
        found
    }

    /// What is open at the moment.
    pub(super) fn gates(&self) -> Gates {
        let shared = self.shared_slots();
        Gates {
            slow: self.leases.slow < self.settings.slow_slots(shared),
            ramp: self.shared_busy().saturating_mul(2) < shared,
            again: self.free_for_again(),
            unknown: self.takes_unknown(),
            closed: self.upstream.breaker.is_closed(),
            probe: self.upstream.breaker.may_probe(),
        }
    }

    /// Through these gates; `shared`: a slot of the rotation is free.
    fn first(&mut self, open: impl Fn(Class) -> bool, shared: bool, now: Mono) -> Option<(Standing, u32)> {
        if self.dedicated.active.is_empty() {
            return if shared { self.first_shared(open) } else { None };
        }
        self.own_turn(Within::Part, &open, now)
            .or_else(|| if shared { self.first_shared(&open) } else { None })
            .or_else(|| self.own_turn(Within::All, &open, now))
    }

    fn first_shared(&mut self, open: impl Fn(Class) -> bool) -> Option<(Standing, u32)> {
        self.field.first(open).map(|(class, gid)| (Standing::Ready(class), gid))
    }

    /// Which slots of those for retries and replays are free (R6).
    pub(super) fn free_for_again(&self) -> Again {
        let retry = self.leases.retry < self.settings.retry_slots();
        Again {
            retry,
            slow_retry: retry && self.leases.slow_retry < self.settings.slow_retry_slots(),
            replay: self.leases.replay < self.settings.replay_slots(),
        }
    }

    /// The group's turn: a live request, or the lane whose turn it is inside, the event whose turn it is in the lane, and its lease.
    fn take_turn(&mut self, gid: u32, class: Class, now: Now) -> bool {
        if self.live_turn(gid, class, now) {
            return true;
        }
        if self.events_held {
            return false;
        }
        let again = self.free_for_again();
        let Some(group) = self.groups.get_mut(gid) else { return false };
        let replay_ok = again.replay;
        let retry_ok =
            again.retry_for(group.shares_slow()) && group.retry_in_flight < self.settings.group_retry_slots();
        let open = group.inside.first_open();
        let due = group.inside.first_retry().filter(|_| retry_ok);
        let replay = group.inside.first_replay().filter(|_| replay_ok);
        let Some((turn, lid)) = [open, due, replay].into_iter().flatten().min() else { return false };
        let Some(lane) = self.lanes.get_mut(lid) else { return false };
        let Some(ev) = lane.next(retry_ok, replay_ok) else {
            if self.loads >= LOADS_MAX {
                return false;
            }
            lane.loading = Some(super::lane::Load::Fresh);
            self.ask(lid);
            self.stand_lane(lid);
            self.refresh(gid, now.mono);
            return true;
        };
        // R1: V is the highest tag ever chosen, of groups and of the lanes in each.
        group.v = group.v.max(turn.tag);
        if group.own.is_none() {
            self.v = self.v.max(group.tag);
        }
        let guess = lane.estimate.micros().unwrap_or_else(|| self.upstream.durations.guess_us());
        let cost = price(&self.settings, guess);
        let lease = Lease::new(gid, Work::Event(lid, ev), group.weight, now.mono);
        self.grant(lease, class, cost, now);
        true
    }

    pub(super) fn grant(&mut self, mut lease: Lease, class: Class, cost: u64, now: Now) {
        let gid = lease.gid;
        lease.probe = class.has(Class::SUSPECT) && !self.upstream.breaker.is_closed();
        if lease.probe {
            self.upstream.breaker.probe();
        }
        lease.split = self.split_wait(&lease, now.mono);
        self.waited.add(&lease.split, now.mono);
        let own = self.groups.get(gid).is_some_and(|group| group.own.is_some());
        lease.price.own = own;
        self.leases.own += u32::from(own);
        self.enter_flight(&mut lease, now.mono);
        self.charge(&mut lease, cost);
        if let Some(rate) = self.settings.rate {
            self.upstream.rate.take(rate, now.mono);
        }
        self.leases.retry += u32::from(lease.retry);
        let leases = self.totals.leases;
        self.leases.replay += u32::from(lease.replay);
        let cap_ok = self.groups.get_mut(gid).is_none_or(|group| {
            if let Some(own) = &mut group.own {
                own.took(&self.settings, leases, now.mono);
            }
            if let Some(rate) = group.policy.rate {
                group.rate.get_or_insert_default().take(rate, now.mono);
            }
            group.retry_in_flight += u32::from(lease.retry);
            if let Some(stats) = &mut group.ledger.stats
                && !lease.replay
            {
                stats.waits.add(lease.wait);
                stats.waited(&lease.split, now.mono);
            }
            if lease.probe {
                group.side = self.upstream.breaker.side;
            }
            self.leases.slow += u32::from(group.shares_slow());
            self.leases.slow_retry += u32::from(group.shares_slow() && lease.retry);
            let outbreak = &mut self.upstream.outbreak;
            outbreak.quick += u32::from(outbreak.is_quick(group.quick));
            group.in_flight() + u32::from(group.foreign) <= group.cap(&self.settings)
        });
        // The lease itself is not among them yet, and counts as an own one already.
        let shared_ok = own || self.leases.len() as u32 - self.leases.own < self.shared_slots();
        if !cap_ok || !shared_ok || self.leases.len() as u32 >= self.settings.slots {
            self.violation("I5: more in flight than a cap or the slots allow");
        }
        self.totals.leases += 1;
        let retry = lease.retry;
        match lease.work {
            Work::Event(lid, Ev { seq, .. }) => {
                let ticket = self.leases.insert(lease);
                self.leased(ticket, seq, retry, now);
                self.touch(lid, now.mono);
            }
            Work::Live(Call { id, .. }) => {
                let ticket = self.leases.insert(lease);
                self.call_leased(ticket, id, now.mono);
                self.touch_group(gid, now.mono);
            }
        }
    }

    /// What is leased counts as in flight from here
    fn enter_flight(&mut self, lease: &mut Lease, now: Mono) {
        match &mut lease.work {
            Work::Event(lid, ev) => {
                ev.begin(now);
                self.overflow.waits(ev.member(), false);
                let from = if lease.retry { Stage::Retrying } else { Stage::Queued };
                self.shift(*lid, Some(from), Some(Stage::InFlight), 1);
            }
            Work::Live(_) => {
                if let Some(group) = self.groups.get_mut(lease.gid) {
                    group.live.in_flight += 1;
                }
            }
        }
    }

    /// to here.
    pub(super) fn leave_flight(&mut self, lease: &Lease) {
        match &lease.work {
            Work::Event(lid, _) => self.shift(*lid, Some(Stage::InFlight), Some(Stage::Settling), 1),
            Work::Live(_) => {
                if let Some(group) = self.groups.get_mut(lease.gid) {
                    group.live.in_flight = group.live.in_flight.saturating_sub(1);
                }
            }
        }
    }

    /// The attempt counts, durably, and is made: in this order, where that is wanted (I7).
    fn leased(&mut self, ticket: Ticket, seq: crate::event::Seq, retry: bool, now: Now) {
        if self.retries.lease(seq, ticket, retry).is_err() {
            self.violation("I3: an event was leased twice");
        }
        let begun = Settle { seq, at: now.wall, verdict: Verdict::Begun };
        if self.settings.begun_first {
            self.outbox.push(begun, After::Begun(ticket));
        } else {
            self.outbox.push(begun, After::Nothing);
            self.dispatch(ticket, now.mono);
        }
    }
}
