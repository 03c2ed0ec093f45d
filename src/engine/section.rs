//! Sections: the part of all lanes that comes and goes as one, because another node takes it over.
//!
//! Which section an event is of stands in its seq ([`Seq::section`](crate::event::Seq::section)); the engine asks no more about it. A
//! section comes with [`Engine::on_gained`], lane by lane. It goes in two steps: [`Engine::hold`] gives no new lease to its events, while
//! what is in flight ends and is settled; then [`Engine::forget`] takes all of it out of memory and of every count. What a lost node
//! still has at the upstream is a *foreign* lease: it counts in its group's cap until the time at which it must be over.

use std::collections::BTreeMap;

use super::counts::Stage;
use super::group::{GroupState, Standing};
use super::lease::Work;
use super::tags::Weight;
use super::{Engine, Settings, Ticket};
use crate::event::{Group, Lane, Mono, Now, Wall};

/// What is known of sections: nothing, on a node that is alone.
#[derive(Debug, Default)]
pub(super) struct Sections {
    /// Those that are held, with how many of their events are in flight or not settled durably.
    held: BTreeMap<u16, u64>,
    /// Leases of lost nodes, by when they are over.
    foreign: BTreeMap<(Mono, u16, Group), u32>,
    /// The weights of all groups that want slots, in thousandths.
    wanted: u64,
}

impl Sections {
    pub(super) fn holds(&self, section: u16) -> bool {
        !self.held.is_empty() && self.held.contains_key(&section)
    }

    /// Those that are held, with how many of their events are under way.
    pub(super) fn held(&self) -> impl Iterator<Item = (u16, u64)> {
        self.held.iter().map(|(section, busy)| (*section, *busy))
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// `n` events of a held section moved on; what is in flight or settling is what its end waits for.
    pub(super) fn shift(&mut self, section: u16, from: Option<Stage>, to: Option<Stage>, n: u64) {
        let Some(left) = self.held.get_mut(&section) else { return };
        let busy = |stage: Option<Stage>| matches!(stage, Some(Stage::InFlight | Stage::Settling));
        match (busy(from), busy(to)) {
            (true, false) => *left = left.saturating_sub(n),
            (false, true) => *left += n,
            _ => {}
        }
    }

    pub(super) fn wake(&self) -> Option<Mono> {
        self.foreign.first_key_value().map(|((until, ..), _)| *until)
    }

    /// Leases of lost nodes that count in the group's cap.
    pub(super) fn foreign_of(&self, group: &Group) -> u16 {
        if self.foreign.is_empty() {
            return 0;
        }
        let count = self.foreign.iter().filter(|((.., whose), _)| whose == group).map(|(_, count)| *count).sum::<u32>();
        u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// A group wants slots of this weight (in thousandths) instead of that.
    pub(super) fn wants(&mut self, before: u32, after: u32) {
        self.wanted = (self.wanted + u64::from(after)).saturating_sub(u64::from(before));
    }
}

/// What a group that stands like this wants of the slots: its weight in thousandths, or nothing.
pub(super) fn wish(standing: Standing, weight: Weight) -> u32 {
    match standing {
        Standing::Ready(_) | Standing::Own(_) | Standing::Capped => weight.thousandths(),
        _ => 0,
    }
}

impl Engine {
    /// A lane of a section that this node has taken over, as [`on_recovered`](Self::on_recovered) says. Told of each of them before any
    /// later event of the section.
    pub fn on_gained(&mut self, section: u16, lane: &Lane, (fresh, retrying): (u64, u64), oldest: Wall, now: Now) {
        self.on_recovered(lane, fresh, retrying, oldest, now);
        if let Some(lane) = self.find(lane).and_then(|lid| self.lanes.get_mut(lid)) {
            lane.section = section;
        }
    }

    /// No new lease for events of this section. What is in flight goes on; [`poll_quiet`](Self::poll_quiet) says when it is over. Takes
    /// time in the number of lanes.
    pub fn hold(&mut self, section: u16, now: Now) {
        let now = self.tick(now);
        let lanes = self.lanes_of(section);
        let busy = |lid: &u32| {
            let counts = self.lanes.get(*lid)?.counts;
            Some(u64::from(counts.in_flight) + u64::from(counts.settling))
        };
        let busy = lanes.iter().filter_map(busy).sum();
        self.sections.held.entry(section).or_insert(busy);
        self.set_held(&lanes, true, now.mono);
    }

    /// The section stays after all: its events may go again.
    pub fn release_hold(&mut self, section: u16, now: Now) {
        let now = self.tick(now);
        if self.sections.held.remove(&section).is_some() {
            let lanes = self.lanes_of(section);
            self.set_held(&lanes, false, now.mono);
        }
    }

    fn set_held(&mut self, lanes: &[u32], held: bool, now: Mono) {
        for lid in lanes {
            if let Some(lane) = self.lanes.get_mut(*lid) {
                lane.held = held;
            }
            self.touch(*lid, now);
        }
    }

    /// Asks for the end of every attempt of the section's events: another node has it already. Called after [`hold`](Self::hold).
    pub fn cancel_section(&mut self, section: u16, now: Now) -> usize {
        self.tick(now);
        let ours = |work: &Work| {
            let lane = work.event().and_then(|(lid, _)| self.lanes.get(lid));
            lane.is_some_and(|lane| lane.section == section)
        };
        let tickets: Vec<Ticket> =
            self.leases.iter().filter(|(_, lease)| ours(&lease.work)).map(|(ticket, _)| ticket).collect();
        for ticket in &tickets {
            self.cancel_lease(*ticket);
        }
        tickets.len()
    }

    /// A held section of which nothing is in flight and everything is settled, not asked about after [`forget`](Self::forget) or
    /// [`release_hold`](Self::release_hold).
    #[must_use]
    pub fn poll_quiet(&self) -> Option<u16> {
        self.sections.held.iter().find(|(_, busy)| **busy == 0).map(|(section, _)| *section)
    }

    /// Takes a held section out of memory and of every count; its pending events are another node's. The answer is how many those are;
    /// `None`, and nothing changes, while some of it is under way. A [`Load`](super::Request::Load) of it that is under way is not to be
    /// told any more but with [`on_load_void`](Self::on_load_void). Takes time in the number of lanes and of retries in memory.
    pub fn forget(&mut self, section: u16, now: Now) -> Option<u64> {
        let now = self.tick(now);
        if self.sections.held.get(&section) != Some(&0) {
            return None;
        }
        let lanes = self.lanes_of(section);
        let gone: std::collections::BTreeSet<u32> = lanes.iter().copied().collect();
        self.retries.drop_lanes(&gone);
        self.reloads.retain(|(_, lid)| !gone.contains(lid));
        let mut moved = 0;
        for lid in lanes {
            moved += self.forget_lane(lid, now.mono);
        }
        self.forget_foreign(section, now.mono);
        self.sections.held.remove(&section);
        self.totals.moved += moved;
        Some(moved)
    }

    fn forget_lane(&mut self, lid: u32, now: Mono) -> u64 {
        let Some(lane) = self.lanes.get_mut(lid) else { return 0 };
        let (gid, counts) = (lane.group, lane.counts);
        lane.loading = None;
        let places: Vec<_> = lane.runnable().filter(|ev| ev.retrying).map(|ev| ev.seq).collect();
        for seq in places {
            self.retries.forget(seq);
        }
        self.shift(lid, Some(Stage::Queued), None, counts.queued);
        self.shift(lid, Some(Stage::Retrying), None, counts.retrying);
        if self.groups.get(gid).is_some_and(|group| group.name.is_overflow()) {
            (0..counts.total()).for_each(|_| self.overflow.leave_unread());
        }
        self.retire(lid);
        self.touch_group(gid, now);
        counts.total()
    }

    /// The answer to a [`Load`](super::Request::Load) that is of no use any more: its section has moved since.
    pub fn on_load_void(&mut self) {
        self.loads = self.loads.saturating_sub(1);
    }

    fn lanes_of(&self, section: u16) -> Vec<u32> {
        self.lanes.iter().filter(|(_, lane)| lane.section == section).map(|(lid, _)| lid).collect()
    }

    /// A node was lost with `count` attempts for events of `group`, in this section, under way. They count in the group's cap until
    /// `until`, or until the section is forgotten.
    pub fn on_foreign(&mut self, section: u16, group: &Group, count: u32, until: Mono, now: Now) {
        let now = self.tick(now);
        if count == 0 || until <= now.mono {
            return;
        }
        *self.sections.foreign.entry((until, section, group.clone())).or_default() += count;
        self.recount_foreign(group, now.mono);
    }

    /// Leases of lost nodes whose time is over count no more.
    pub(super) fn foreign_timers(&mut self, now: Mono) {
        while let Some(entry) = self.sections.foreign.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ((.., group), _) = entry.remove_entry();
            self.recount_foreign(&group, now);
        }
    }

    fn forget_foreign(&mut self, section: u16, now: Mono) {
        let theirs: Vec<(Mono, u16, Group)> =
            self.sections.foreign.keys().filter(|(_, of, _)| *of == section).cloned().collect();
        for key in theirs {
            self.sections.foreign.remove(&key);
            self.recount_foreign(&key.2, now);
        }
    }

    fn recount_foreign(&mut self, name: &Group, now: Mono) {
        let Some(gid) = self.gid_of(name) else { return };
        if let Some(group) = self.groups.get_mut(gid) {
            group.foreign = self.sections.foreign_of(name);
        }
        self.touch_group(gid, now);
    }

    /// Other numbers of slots and rates from the next lease on, in place: the part of this node has changed, and nothing else has. Those
    /// of all nodes stay what [`set_settings`](Self::set_settings) said.
    pub fn set_share(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The weights of all groups that have something to do and could use a slot, in thousandths: what this node's part of the slots
    /// is measured by.
    #[must_use]
    pub fn wanted_weight(&self) -> u64 {
        self.sections.wanted
    }

    /// Whether some of the group waits for another node.
    pub(super) fn is_moving(&self, group: &GroupState) -> bool {
        self.sections.holds_any() && group.lanes().filter_map(|lid| self.lanes.get(lid)).any(|lane| lane.held)
    }
}
