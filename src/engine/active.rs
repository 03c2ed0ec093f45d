//! Groups and lanes come into memory and leave it.

use super::Engine;
use super::group::GroupState;
use super::lane::LaneState;
use super::ledger::{Ledger, STATS_MAX};
use crate::event::{Group, Lane};

impl Engine {
    pub(super) fn find(&self, lane: &Lane) -> Option<u32> {
        let gid = self.names.get(&lane.group)?;
        self.groups.get(*gid)?.lane(lane.inner.as_ref())
    }

    /// The group and lane of that name, made when they are not there.
    pub(super) fn lane_for(&mut self, name: &Lane) -> (u32, u32) {
        let gid = self.group_for(&name.group);
        if let Some(lid) = self.groups.get(gid).and_then(|group| group.lane(name.inner.as_ref())) {
            return (gid, lid);
        }
        let mut lane = LaneState::new(gid, name.inner.clone());
        let Some(group) = self.groups.get_mut(gid) else { return (gid, 0) };
        match &name.inner {
            None => lane.estimate = group.estimate,
            Some(inner) => {
                if let Some((tag, estimate)) = group.debts.take(inner) {
                    lane.tag = tag;
                    lane.estimate = estimate;
                }
            }
        }
        self.overflow.lanes += usize::from(name.group.is_overflow());
        let lid = self.lanes.insert(lane);
        match &name.inner {
            None => group.plain = Some(lid),
            Some(inner) => {
                group.parts.insert(inner.clone(), lid);
            }
        }
        (gid, lid)
    }

    /// The group of that name, made when it is not there.
    pub(super) fn group_for(&mut self, name: &Group) -> u32 {
        if let Some(gid) = self.names.get(name) {
            return *gid;
        }
        let mut group = GroupState::new(name.clone(), (self.policies)(name));
        group.paused = self.paused.contains(name);
        group.side = !self.upstream.breaker.side;
        group.foreign = self.sections.foreign_of(name);
        group.ledger = self.ledgers.take(name).unwrap_or_else(|| Ledger::new(self.now));
        if self.groups.len() < STATS_MAX {
            group.ledger.stats.get_or_insert_default();
        }
        self.dormant.wake(&mut group);
        group.quick = self.upstream.outbreak.recall(name);
        let gid = self.groups.insert(group);
        self.names.insert(name.clone(), gid);
        if self.dedicated.has_slots(name) {
            self.settle_on_own(gid);
        }
        gid
    }

    /// A lane without pending events leaves memory.
    pub(super) fn retire(&mut self, lid: u32) {
        let done = |lane: &LaneState| lane.counts.total() == 0 && lane.loading.is_none();
        if !self.lanes.get(lid).is_some_and(done) {
            return;
        }
        let Some(lane) = self.lanes.remove(lid) else { return };
        self.parked -= usize::from(lane.is_parked());
        let gid = lane.group;
        let Some(group) = self.groups.get_mut(gid) else { return };
        // Its number will be another lane's: nothing may stand under it any more.
        group.inside.remove(&mut self.inner_places, lid, lane.inner.is_none());
        self.overflow.lanes -= usize::from(group.name.is_overflow());
        match lane.inner {
            None => group.plain = None,
            Some(inner) => {
                group.parts.remove(&inner);
                group.debts.put(inner, lane.tag, lane.estimate, group.v);
            }
        }
    }

    /// And a group without lanes and live requests.
    pub(super) fn retire_group(&mut self, gid: u32) {
        if !self.groups.get(gid).is_some_and(GroupState::is_done) {
            return;
        }
        self.wakes.remove(&mut self.wake_places, gid);
        if let Some(mut group) = self.groups.remove(gid) {
            self.names.remove(&group.name);
            if group.own.is_some() {
                self.dedicated.active.retain(|active| *active != gid);
            }
            self.upstream.outbreak.remember(&group.name, group.quick);
            self.ledgers.put(group.name.clone(), std::mem::take(&mut group.ledger));
            self.dormant.put(group, self.moment());
        }
    }
}
