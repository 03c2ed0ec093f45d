//! What people and the configuration want (R5).

use std::sync::Arc;

use super::counts::Stage;
use super::due::Place;
use super::fact::{Removal, Was};
use super::notice::Notice;
use super::overflow::Member;
use super::request::Settle;
use super::settle::After;
use super::tags::Weight;
use super::{Engine, Policies, Policy, Settings};
use crate::event::{Group, Lane, Mono, Now, Seq};

impl Engine {
    /// Other numbers for everybody, from the next lease on.
    pub fn set_settings(&mut self, settings: Settings, now: Now) {
        let now = self.tick(now);
        self.settings = settings;
        self.fit_dedicated(now.mono);
        self.refresh_all(now);
    }

    /// Another source of policies: every active group is asked for anew. Takes time in the number of active groups; for one of them
    /// see [`set_policy`](Self::set_policy).
    pub fn set_policies(&mut self, policies: Policies, now: Now) {
        let now = self.tick(now);
        self.policies = policies;
        let active: Vec<u32> = self.groups.iter().map(|(gid, _)| gid).collect();
        for gid in active {
            let Some(policy) = self.groups.get(gid).map(|group| (self.policies)(&group.name)) else { continue };
            self.apply(gid, policy);
        }
        self.fit_dedicated(now.mono);
        self.refresh_all(now);
    }

    /// Another policy for one group while it is active. The source of policies has to give the same from now on.
    pub fn set_policy(&mut self, group: &Group, policy: Policy, now: Now) {
        let now = self.tick(now);
        if let Some(gid) = self.gid_of(group) {
            self.apply(gid, policy);
            self.touch_group(gid, now.mono);
        }
        self.fit_dedicated(now.mono);
    }

    fn apply(&mut self, gid: u32, policy: Policy) {
        if let Some(group) = self.groups.get_mut(gid) {
            group.weight = Weight::from_f64(policy.weight);
            group.policy = policy;
            group.changed = true;
        }
    }

    fn refresh_all(&mut self, now: Now) {
        let active: Vec<u32> = self.groups.iter().map(|(gid, _)| gid).collect();
        for gid in active {
            self.judge_slow(gid);
            self.touch_group(gid, now.mono);
        }
    }

    /// No further attempt of the group until [`resume`](Self::resume), active or not. What is in flight goes on.
    pub fn pause(&mut self, group: &Group, now: Now) {
        self.paused.insert(group.clone());
        self.set_paused(group, true, now);
    }

    /// Ends a [`pause`](Self::pause). A policy that pauses the group is another matter.
    pub fn resume(&mut self, group: &Group, now: Now) {
        self.paused.remove(group);
        self.set_paused(group, false, now);
    }

    /// The lane's next event is of a source that a person paused: the lane waits, with all that stands behind that event, until
    /// [`unpark`](Self::unpark). Whoever finds that out has the event's lease, and gives it back with [`Ending::NotSent`](super::Ending::NotSent)
    /// afterwards, so that the lane is not served once more in between. Other lanes of its group and live requests go on.
    pub fn park(&mut self, lane: &Lane, source: Arc<str>, now: Now) {
        let now = self.tick(now);
        let Some(lid) = self.find(lane) else { return };
        if let Some(lane) = self.lanes.get_mut(lid) {
            self.parked += usize::from(!lane.is_parked());
            lane.rare.parked = Some(source);
        }
        self.touch(lid, now.mono);
    }

    /// The lane goes on.
    pub fn unpark(&mut self, lane: &Lane, now: Now) {
        let now = self.tick(now);
        let Some(lid) = self.find(lane) else { return };
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        if lane.is_parked() {
            lane.rare.parked = None;
            self.parked -= 1;
            self.touch(lid, now.mono);
        }
    }

    fn set_paused(&mut self, group: &Group, paused: bool, now: Now) {
        let now = self.tick(now);
        let Some(gid) = self.gid_of(group) else { return };
        if let Some(group) = self.groups.get_mut(gid) {
            group.paused = paused;
        }
        self.touch_group(gid, now.mono);
    }

    /// No further attempt of anybody, or attempts again.
    pub fn set_upstream_paused(&mut self, paused: bool) {
        self.upstream.paused = paused;
        if paused {
            self.turn_all_away(self.now);
        }
    }

    /// A person knows that the upstream is well: its breaker closes, and a `Retry-After` of it is over. Attempts come back as after any
    /// closing, few at first. False when nothing held it.
    pub fn close_breaker(&mut self, now: Now) -> bool {
        let now = self.tick(now);
        let was_closed = self.upstream.breaker.is_closed();
        let held = self.upstream.breaker.close_by_hand(self.settings.slots, now.mono);
        if !was_closed {
            let after = now.mono.since(self.upstream.breaker.opened());
            self.notices.push(Notice::UpstreamClosed { after });
        }
        held
    }

    /// The same of one group's breaker, and of a `Retry-After` that holds it. False when nothing held it.
    pub fn close_group_breaker(&mut self, group: &Group, now: Now) -> bool {
        let now = self.tick(now);
        let Some(gid) = self.gid_of(group) else { return false };
        let Some(group) = self.groups.get_mut(gid) else { return false };
        let opened = std::mem::take(&mut group.breaker).opened();
        let held = std::mem::replace(&mut group.held_until, Mono(0)) > now.mono;
        if let Some(opened) = opened {
            let after = now.mono.since(opened);
            self.notices.push(Notice::GroupClosed { group: group.name.clone(), after });
        }
        self.touch_group(gid, now.mono);
        opened.is_some() || held
    }

    /// No further lease, for good. What is in flight ends and is settled; see [`is_drained`](Self::is_drained).
    pub fn begin_drain(&mut self) {
        self.draining = true;
        self.turn_all_away(self.now);
    }

    /// Asks for the end of every attempt of the group that is in flight; how many those are. Their events are retried, live
    /// requests are not.
    pub fn cancel(&mut self, group: &Group, now: Now) -> usize {
        self.tick(now);
        let Some(gid) = self.gid_of(group) else { return 0 };
        let tickets: Vec<_> =
            self.leases.iter().filter(|(_, lease)| lease.gid == gid).map(|(ticket, _)| ticket).collect();
        for ticket in &tickets {
            self.cancel_lease(*ticket);
        }
        tickets.len()
    }

    /// Takes a replay back that no attempt was made of yet: the event ends as it had ended. False when it is in flight, has been, or is not
    /// here.
    pub fn withdraw(&mut self, lane: &Lane, seq: Seq, was: Was, now: Now) -> bool {
        self.retries.place(seq).is_none() && self.remove(lane, seq, Removal::Withdraw(was), false, now)
    }

    /// Whether an attempt of the event is under way, or what follows for it is not durable yet.
    #[must_use]
    pub fn is_under_way(&self, seq: Seq) -> bool {
        matches!(self.retries.place(seq), Some(Place::Leased(_) | Place::Settling))
    }

    /// Ends one event without delivering it. `retrying` says how the store has it, for one that is not in memory. An attempt in flight
    /// is cancelled first, and if it succeeds nevertheless the event is delivered. False when the engine has no such event, or it is
    /// ending already.
    pub fn remove(&mut self, lane: &Lane, seq: Seq, removal: Removal, retrying: bool, now: Now) -> bool {
        let now = self.tick(now);
        let Some(lid) = self.find(lane) else { return false };
        let (from, after) = match self.retries.place(seq) {
            Some(Place::Settling) => return false,
            Some(Place::Leased(ticket)) => {
                if let Some(lease) = self.leases.get_mut(ticket) {
                    lease.removal = Some(removal);
                }
                self.cancel_lease(ticket);
                return true;
            }
            Some(Place::Waiting(at)) => {
                let Some((lid, ev)) = self.retries.take_waiting(at, seq) else { return false };
                if let Some(lane) = self.lanes.get_mut(lid) {
                    lane.rare.waiting -= usize::from(ev.order().is_none());
                }
                (Stage::Retrying, After::ended(lid, ev))
            }
            Some(Place::Due(at)) => {
                let Some(ev) = self.lanes.get_mut(lid).and_then(|lane| lane.remove_due(at, seq)) else { return false };
                (Stage::Retrying, After::ended(lid, ev))
            }
            None => {
                let Some(lane) = self.lanes.get_mut(lid) else { return false };
                let from = if retrying { Stage::Retrying } else { Stage::Queued };
                if lane.counts.at(from) == 0 {
                    return false;
                }
                match if retrying { None } else { lane.remove_fresh(seq) } {
                    Some(ev) => (from, After::ended(lid, ev)),
                    None => (from, After::Ended { lid, key: None, unread: true, member: Member::default() }),
                }
            }
        };
        if let After::Ended { member, .. } = &after {
            self.overflow.waits(*member, false);
        }
        self.retries.settle(seq);
        self.shift(lid, Some(from), Some(Stage::Settling), 1);
        self.outbox.push(Settle { seq, at: now.wall, verdict: removal.verdict() }, after);
        self.touch(lid, now.mono);
        true
    }
}
