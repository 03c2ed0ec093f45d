//! Slots of a group's own (R12): how a promoted group runs on them, apart from the rotation.
//!
//! They are taken out of the total: what the others share is so much less, and half of it is what slow groups and the ramp go by. A
//! promoted group may lease while it holds fewer than its own, whatever others hold; its cap is their number. It stands in no heap, is
//! neither slow nor on the ramp there (it takes nothing from anybody), moves virtual time nowhere and has no charges on its tag, so
//! that it neither owes for them later nor pushes others ahead. Its breaker, a `Retry-After`, pauses, its rate and the bounds on retries
//! hold as before, and the lanes inside it take turns as before.
//!
//! What is not slots is still shared. Of `upstream.rate` a promoted group goes first within the part that its slots are of all, and after the
//! others beyond it; while the upstream recovers, promoted groups hold at most half of the few slots, as they do of all.

use super::Engine;
use super::field::Class;
use super::group::{GroupState, Standing};
use super::inside::Kind;
use super::rate::Gcra;
use super::{Rate, Settings, Upstream};
use crate::event::{Group, Mono};

/// What a group has that has slots of its own.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// How many.
    pub(super) slots: u32,
    /// Its part of the upstream's rate.
    rate: Gcra,
    /// When it had its last turn, in leases: promoted groups go round.
    turn: u64,
}

impl Own {
    /// The part of the upstream's rate that its slots are of all.
    fn part(&self, settings: &Settings) -> Option<Rate> {
        let Rate { events, per } = settings.rate?;
        Some(Rate { events: events.saturating_mul(self.slots), per: per.saturating_mul(settings.slots.max(1)) })
    }

    fn is_within(&self, settings: &Settings, now: Mono) -> bool {
        self.part(settings).is_none_or(|part| self.rate.ready(part, now).is_ok())
    }

    /// A lease was given.
    pub(super) fn took(&mut self, settings: &Settings, turn: u64, now: Mono) {
        self.turn = turn;
        if let Some(part) = self.part(settings) {
            self.rate.take(part, now);
        }
    }
}

/// Whose turn among promoted groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// Only those that have not had their part of the upstream's rate.
    Part,
    /// All.
    All,
}

impl GroupState {
    /// Holds slots that slow groups share.
    pub(super) fn shares_slow(&self) -> bool {
        self.slow && self.own.is_none()
    }

    /// It does not run for another reason than slots.
    pub(super) fn is_held_back(&self) -> bool {
        let waits = matches!(self.standing, Standing::Broken | Standing::RetryAfter | Standing::Limited);
        waits || self.is_paused()
    }
}

impl Engine {
    /// Slots taken out of the total.
    pub(super) fn dedicated_slots(&self) -> u32 {
        self.dedicated.promoted().saturating_mul(self.settings.dedicated.slots)
    }

    /// Slots that all groups without slots of their own share.
    pub(super) fn shared_slots(&self) -> u32 {
        if self.dedicated.records.is_empty() {
            return self.settings.slots;
        }
        self.settings.slots.saturating_sub(self.dedicated_slots())
    }

    /// Those of them that are held.
    pub(super) fn shared_busy(&self) -> u32 {
        (self.leases.len() as u32).saturating_sub(self.leases.own)
    }

    /// Whether a promoted group has something to do and a slot of its own for it.
    pub(super) fn own_ready(&self) -> bool {
        let mut active = self.dedicated.active.iter().filter_map(|gid| self.groups.get(*gid));
        active.any(|group| matches!(group.standing, Standing::Own(_)))
    }

    /// The promoted group whose turn it is, among those whose gates are open.
    pub(super) fn own_turn(&self, within: Within, open: impl Fn(Class) -> bool, now: Mono) -> Option<(Standing, u32)> {
        if self.upstream.breaker.slow_start().is_some_and(|slots| self.leases.own >= (slots / 2).max(1)) {
            return None;
        }
        let turn = |gid: &u32| {
            let group = self.groups.get(*gid)?;
            let (Standing::Own(class), Some(own)) = (group.standing, &group.own) else { return None };
            let goes = open(class) && (within == Within::All || own.is_within(&self.settings, now));
            goes.then_some((own.turn, *gid, group.standing))
        };
        let first = self.dedicated.active.iter().filter_map(turn).min_by_key(|(turn, gid, _)| (*turn, *gid));
        first.map(|(_, gid, standing)| (standing, gid))
    }

    /// The group runs on slots of its own from now on. What it holds is on them.
    pub(super) fn give_slots(&mut self, name: &Group, now: Mono) {
        let Some(gid) = self.gid_of(name) else { return };
        self.settle_on_own(gid);
        self.touch_group(gid, now);
    }

    /// A promoted group that is active, or becomes so.
    pub(super) fn settle_on_own(&mut self, gid: u32) {
        let slots = self.settings.dedicated.slots;
        // What an outbreak goes by is who shares slots with whom.
        self.set_quick(gid, false);
        let Some(group) = self.groups.get_mut(gid) else { return };
        if group.slow {
            self.leases.turn_quick(group);
        }
        self.leases.own += group.in_flight();
        group.own = Some(Box::new(Own { slots, ..Own::default() }));
        self.dedicated.active.push(gid);
    }

    /// The group is back in the rotation. What it holds counts there, and its tag is raised as that of any group that was away (R3).
    pub(super) fn take_slots(&mut self, name: &Group, now: Mono) {
        let Some(gid) = self.gid_of(name) else { return };
        let Some(group) = self.groups.get_mut(gid) else { return };
        group.own = None;
        self.leases.own = self.leases.own.saturating_sub(group.in_flight());
        if group.slow {
            self.leases.turn_slow(group);
        }
        self.dedicated.active.retain(|active| *active != gid);
        self.touch_group(gid, now);
    }

    /// Another number of slots each.
    pub(super) fn resize_own(&mut self) {
        let slots = self.settings.dedicated.slots;
        for gid in &self.dedicated.active {
            if let Some(own) = self.groups.get_mut(*gid).and_then(|group| group.own.as_mut()) {
                own.slots = slots;
            }
        }
    }

    /// Leases of promoted groups are counted, and they are who they are said to be.
    pub(super) fn own_sound(&self) -> Result<(), String> {
        let own = |gid: u32| self.groups.get(gid).filter(|group| group.own.is_some());
        let held: u32 = self.groups.iter().filter_map(|(gid, _)| own(gid)).map(GroupState::in_flight).sum();
        let active = self.groups.iter().filter(|(gid, _)| own(*gid).is_some()).count();
        let listed = self.dedicated.active.iter().filter(|gid| own(**gid).is_some()).count();
        let named = self.groups.iter().filter(|(_, group)| self.dedicated.has_slots(&group.name)).count();
        if held != self.leases.own || active != listed || listed != self.dedicated.active.len() || named != active {
            return Err(format!(
                "I5: {held} leases on own slots, {} counted; {active} groups with them, {listed} listed, {named} named",
                self.leases.own
            ));
        }
        if self.dedicated_slots() > self.settings.slots / 2 {
            return Err(format!("I5: {} of {} slots are dedicated", self.dedicated_slots(), self.settings.slots));
        }
        Ok(())
    }
}

/// Where a group with slots of its own stands that may go.
pub(super) fn standing(
    group: &GroupState,
    settings: &Settings,
    upstream: &Upstream,
    kind: Kind,
    now: Mono,
) -> Standing {
    let suspect = group.is_suspect(settings, upstream, now);
    let class = Class::again(kind).with(Class::SUSPECT, suspect);
    Standing::Own(class.with(Class::SIDE, suspect && group.side))
}
