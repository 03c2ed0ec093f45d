//! Live requests: senders that wait for the upstream's own answer.
//!
//! They are never stored, so nothing here is about durability, and I1 does not know them. Each group has a queue of them that goes before
//! its stored events. A live request takes a lease in its group's turn and is charged like an event (R1–R5, R8), so it costs its own
//! group and nobody else; it belongs to the group as a whole and not to a lane of it, and the tags inside (R11) do not move.
//!
//! A sender that waits wants to know at once that waiting is in vain. So a request is refused on arrival, or as soon as that is so, when
//! its group or the upstream is paused or their breaker is open, and on arrival when it would wait longer than it can.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::field::Class;
use super::group::{GroupState, Standing};
use super::inside::Kind;
use super::lazy::Empty;
use super::lease::{Lease, Work};
use super::request::{LiveDispatch, Request, Ticket};
use super::schedule::burst;
use super::tags::Tag;
use super::{Engine, price};
use crate::event::{Group, Mono, Now};

/// Live requests of one group that may wait. With the default cap of eight and calls of 50 ms the last of them waits 0.8 s, with
/// calls of 150 ms 2.4 s, about what the most hurried provider leaves (Slack: 3 s). Longer calls meet the expected wait first.
pub(super) const WAITING_OF_GROUP_MAX: usize = 128;

/// Live requests of all groups that may wait: sixteen full queues. Each holds a connection of a sender, and a fifth of the 10,000 that
/// may be open by default leaves room for those whose events are stored.
pub(super) const WAITING_MAX: usize = 2_048;

/// Names one live request. Numbers grow and are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveId(pub u64);

/// Why a live request gets no attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// Its group is paused, or the upstream.
    Paused,
    /// Its group's breaker is open or the upstream's, or the upstream asked to be left alone, for so long.
    Broken(Duration),
    /// As many wait as may, of its group or of all.
    Full,
    /// It would wait for about so long, which is longer than it can.
    WouldWait(Duration),
    /// It waited for as long as it can.
    Late,
    /// No further attempts are made here.
    Draining,
}

/// A live request, waiting or leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: LiveId,
    pub(super) since: Mono,
    pub(super) deadline: Mono,
}

/// The live requests of one group.
#[derive(Debug)]
pub(super) struct Calls {
    /// In the order of their arrival.
    pub(super) waiting: VecDeque<Call>,
    pub(super) in_flight: u32,
}

impl Empty for Calls {
    const EMPTY: &'static Self = &Self { waiting: VecDeque::new(), in_flight: 0 };

    fn fresh() -> Self {
        Self { waiting: VecDeque::new(), in_flight: 0 }
    }
}

/// Where a live request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the queue of this group.
    Waiting(u32),
    Leased(Ticket),
}

/// All live requests.
#[derive(Debug, Default)]
pub(super) struct Live {
    places: BTreeMap<LiveId, Place>,
    /// When those that wait have to be answered.
    deadlines: BTreeSet<(Mono, LiveId)>,
    last: u64,
}

impl Live {
    /// When one of them has waited for as long as it can.
    pub(super) fn wake(&self) -> Option<Mono> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where those are that wait, by their deadlines.
    pub(super) fn in_line(&self) -> impl Iterator<Item = Place> {
        self.deadlines.iter().filter_map(|(_, id)| self.places.get(id).copied())
    }
}

impl Engine {
    /// A live request of `group` has come and has to be answered by `deadline`. It waits for a [`Request::Live`], or for a
    /// [`Request::Unserved`] that says that there will be none.
    ///
    /// # Errors
    /// Why it will not be served; the engine knows nothing of it then.
    pub fn on_live(&mut self, group: &Group, deadline: Mono, now: Now) -> Result<LiveId, Unserved> {
        let now = self.tick(now).mono;
        self.upstream.breaker.tick(now);
        let gid = self.group_for(group);
        let taken = self.admit_call(gid, deadline, now).map(|()| self.queue(gid, deadline, now));
        self.touch_group(gid, now);
        taken
    }

    /// Nobody waits for the answer of a live request any more: it leaves the queue, or its attempt is cancelled. False when the engine has
    /// no such request (any more).
    pub fn on_live_gone(&mut self, id: LiveId, now: Now) -> bool {
        let now = self.tick(now).mono;
        match self.live.places.get(&id).copied() {
            None => return false,
            Some(Place::Leased(ticket)) => self.cancel_lease(ticket),
            Some(Place::Waiting(gid)) => {
                self.unqueue(gid, id);
                self.touch_group(gid, now);
            }
        }
        true
    }

    fn admit_call(&self, gid: u32, deadline: Mono, now: Mono) -> Result<(), Unserved> {
        let group = self.groups.get(gid).ok_or(Unserved::Full)?;
        if let Some(why) = self.shuts_out(group, now) {
            return Err(why);
        }
        if self.live.deadlines.len() >= WAITING_MAX || group.live.waiting.len() >= WAITING_OF_GROUP_MAX {
            return Err(Unserved::Full);
        }
        let wait = self.expected_wait(group, now);
        if wait > deadline.since(now) { Err(Unserved::WouldWait(wait)) } else { Ok(()) }
    }

    fn queue(&mut self, gid: u32, deadline: Mono, now: Mono) -> LiveId {
        self.live.last += 1;
        let id = LiveId(self.live.last);
        if let Some(group) = self.groups.get_mut(gid) {
            group.live.waiting.push_back(Call { id, since: now, deadline });
        }
        self.live.places.insert(id, Place::Waiting(gid));
        self.live.deadlines.insert((deadline, id));
        id
    }

    /// Takes a waiting request out of its queue, for good.
    fn unqueue(&mut self, gid: u32, id: LiveId) {
        let waiting = self.groups.get_mut(gid).and_then(|group| group.live.made()).map(|calls| &mut calls.waiting);
        if let Some(waiting) = waiting
            && let Some(index) = waiting.iter().position(|call| call.id == id)
            && let Some(call) = waiting.remove(index)
        {
            self.live.deadlines.remove(&(call.deadline, id));
        }
        self.live.places.remove(&id);
    }

    fn unserved(&mut self, live: LiveId, why: Unserved) {
        self.live.places.remove(&live);
        self.requests.push_back(Request::Unserved { live, why });
    }

    // ---- its turn, and its end ---------------------------------------------------------------------------------

    /// Its group's turn, when a live request of it waits: that one's lease. True when something was done.
    pub(super) fn live_turn(&mut self, gid: u32, class: Class, now: Now) -> bool {
        let Some(group) = self.groups.get_mut(gid) else { return false };
        let Some(call) = group.live.made().and_then(|calls| calls.waiting.pop_front()) else { return false };
        self.live.deadlines.remove(&(call.deadline, call.id));
        if call.deadline <= now.mono {
            self.unserved(call.id, Unserved::Late);
            self.touch_group(gid, now.mono);
            return true;
        }
        if group.own.is_none() {
            self.v = self.v.max(group.tag);
        }
        let guess = group.estimate.micros().unwrap_or_else(|| self.upstream.durations.guess_us());
        let (cost, weight) = (price::price(&self.settings, guess), group.weight);
        self.grant(Lease::new(gid, Work::Live(call), weight, now.mono), class, cost, now);
        true
    }

    /// A live request was leased: its attempt is made at once, for there is nothing to write before.
    pub(super) fn call_leased(&mut self, ticket: Ticket, id: LiveId, now: Mono) {
        self.live.places.insert(id, Place::Leased(ticket));
        let slow_after = self.upstream.durations.slow_after(&self.settings);
        let Some(lease) = self.leases.get_mut(ticket) else { return };
        let (Work::Live(call), Some(group)) = (&lease.work, self.groups.get(lease.gid)) else { return };
        lease.sent = Some(now);
        self.requests.push_back(Request::Live(LiveDispatch {
            ticket,
            live: id,
            group: group.name.clone(),
            wait: lease.wait,
            split: std::mem::take(&mut lease.split),
            timeout: call.deadline.since(now).min(self.settings.timeout),
        }));
        self.leases.set_timer(ticket, &self.settings, slow_after);
    }

    /// The attempt of a live request ended, and with it all that the engine knows of it.
    pub(super) fn call_ended(&mut self, gid: u32, id: LiveId, now: Mono) {
        self.live.places.remove(&id);
        self.touch_group(gid, now);
    }

    /// Answers those that have waited for as long as they can.
    pub(super) fn live_timers(&mut self, now: Mono) {
        while let Some((at, id)) = self.live.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.live.deadlines.remove(&(at, id));
            let Some(Place::Waiting(gid)) = self.live.places.get(&id).copied() else { continue };
            self.unqueue(gid, id);
            self.unserved(id, Unserved::Late);
            self.touch_group(gid, now);
        }
    }

    // ---- waiting in vain ---------------------------------------------------------------------------------------

    /// Why no live request of the group can be served soon, whoever comes before it.
    fn shuts_out(&self, group: &GroupState, now: Mono) -> Option<Unserved> {
        let breaker = &self.upstream.breaker;
        if self.draining {
            return Some(Unserved::Draining);
        }
        if self.upstream.paused {
            return Some(Unserved::Paused);
        }
        match group.gates(&self.settings, &self.upstream, Kind::Open, now) {
            (Standing::Paused, _) => return Some(Unserved::Paused),
            // Half-open: the one attempt that is under way may close it at any moment.
            (Standing::Broken, None) => return None,
            (Standing::Broken, Some(until)) => return Some(Unserved::Broken(until.since(now))),
            _ => {}
        }
        let until = breaker.wake()?;
        let waits = breaker.is_held(now) || group.is_suspect(&self.settings, &self.upstream, now);
        waits.then(|| Unserved::Broken(until.since(now)))
    }

    /// Refuses the group's waiting requests when it has become certain that they wait in vain. True when there were any.
    pub(super) fn turn_away(&mut self, gid: u32, now: Mono) -> bool {
        let Some(group) = self.groups.get(gid).filter(|group| !group.live.waiting.is_empty()) else { return false };
        let Some(why) = self.shuts_out(group, now) else { return false };
        let calls = self.groups.get_mut(gid).and_then(|group| group.live.made());
        for call in calls.map(|calls| std::mem::take(&mut calls.waiting)).unwrap_or_default() {
            self.live.deadlines.remove(&(call.deadline, call.id));
            self.unserved(call.id, why);
        }
        true
    }

    /// The upstream as a whole takes nothing any more, or less: every group with waiting requests is looked at.
    pub(super) fn turn_all_away(&mut self, now: Mono) {
        let waiting = self.live.places.values();
        let groups: BTreeSet<u32> =
            waiting.filter_map(|place| if let Place::Waiting(gid) = place { Some(*gid) } else { None }).collect();
        for gid in groups {
            self.touch_group(gid, now);
        }
    }

    /// How long one more live request of the group would wait, as things stand: for its cap, for its rate, and for its turn among the
    /// others when the slots are taken. It is a guess from the same estimates that leases are charged by.
    fn expected_wait(&self, group: &GroupState, now: Mono) -> Duration {
        let before = group.live.waiting.len() as u64;
        let cap = u64::from(group.cap(&self.settings));
        let one = group.estimate.micros().unwrap_or_else(|| self.upstream.durations.guess_us());
        let over = (u64::from(group.in_flight()) + before + 1).saturating_sub(cap);
        let for_cap = Duration::from_micros(one.saturating_mul(over) / cap);
        for_cap.max(self.wait_for_rate(group, before, now)).max(self.wait_for_turn(group, before, now))
    }

    /// Until a `Retry-After` and the group's own rate let it go.
    fn wait_for_rate(&self, group: &GroupState, before: u64, now: Mono) -> Duration {
        let held = group.held_until.since(now);
        let Some(rate) = group.policy.rate else { return held };
        let next =
            group.rate.as_ref().and_then(|gcra| gcra.ready(rate, now).err()).map_or(Duration::ZERO, |at| at.since(now));
        let each = rate.per / rate.events.max(1);
        held.max(next.saturating_add(each.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX))))
    }

    /// Until virtual time has come to its tag. It moves by the worker time that the slots give, spread over the ready groups; while there
    /// is a free slot nobody waits for it.
    fn wait_for_turn(&self, group: &GroupState, before: u64, now: Mono) -> Duration {
        if group.own.is_some() {
            return Duration::ZERO;
        }
        let slots = u64::from(self.shared_slots().max(1));
        let limited = self.settings.rate.is_some_and(|rate| self.upstream.rate.ready(rate, now).is_err());
        if u64::from(self.shared_busy()) + before < slots && !limited {
            return Duration::ZERO;
        }
        let one = group.estimate.micros().unwrap_or_else(|| self.upstream.durations.guess_us());
        let cost = price::price(&self.settings, one);
        let start = group.tag.max(self.v.minus(burst(&self.settings, group.weight)));
        let lead = start.plus(Tag::of(cost.saturating_mul(before), group.weight)).minus(self.v).micros();
        let lead = u128::try_from(lead).unwrap_or(0);
        // What a lease costs in tags, and how long it keeps a slot, or the rate: not the same with `charge: events`.
        let keeps = price::keeps(&self.settings, one);
        let ready = self.field.len().max(1) as u128;
        let wait = lead * ready * u128::from(keeps) / u128::from(cost.max(1)) / u128::from(slots);
        Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    // ---- invariants --------------------------------------------------------------------------------------------

    /// Every live request is in one place, and within the bounds.
    pub(super) fn calls_sound(&self) -> Result<(), String> {
        let (mut waiting, mut leased) = (0, 0);
        for (gid, group) in self.groups.iter() {
            let calls = &*group.live;
            waiting += calls.waiting.len();
            leased += calls.in_flight as usize;
            for call in &calls.waiting {
                let known = self.live.places.get(&call.id) == Some(&Place::Waiting(gid));
                if !known || !self.live.deadlines.contains(&(call.deadline, call.id)) {
                    return Err(format!("I2: live request {:?} waits and is not known to", call.id));
                }
            }
            if calls.waiting.len() > WAITING_OF_GROUP_MAX {
                return Err(format!("{} live requests of {} wait", calls.waiting.len(), group.name));
            }
        }
        let calls = self.leases.iter().filter_map(|(ticket, lease)| lease.work.call().map(|call| (ticket, call)));
        let sound =
            calls.filter(|(ticket, call)| self.live.places.get(&call.id) == Some(&Place::Leased(*ticket))).count();
        let known = (self.live.deadlines.len(), self.live.places.len());
        if (waiting, waiting + leased) != known || sound != leased || waiting > WAITING_MAX {
            return Err(format!(
                "I3: {waiting} live requests wait, {leased} are leased ({sound} soundly), {known:?} known"
            ));
        }
        Ok(())
    }
}
