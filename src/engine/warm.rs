//! Reading ahead. Where there are very many groups, each record that a step needs is far from the processor, and a step that comes to one
//! line of it after the other waits for each. So before a batch of events is taken in, and now and then before a lease is given, one
//! field in each line of all the records concerned is read: these reads do not depend on each other, so the waits overlap. Nothing here
//! decides or changes anything.

use std::hint::black_box;

use super::field::Class;
use super::group::GroupState;
use super::lane::LaneState;
use super::{Engine, Queued};

/// With fewer groups than this their records stay near by themselves.
const FEW: usize = 2_000;

/// Leases from one reading ahead to the next, and groups that are read.
const EVERY: usize = 16;

impl Engine {
    /// Of the groups of a batch that comes; with those that are there already.
    pub(super) fn warm_batch(&self, events: &[Queued]) -> Vec<Option<u32>> {
        let hashes: Vec<u64> = events.iter().map(|event| self.names.hash(&event.lane.group)).collect();
        if self.groups.len() >= FEW {
            let likely: Vec<u32> = hashes.iter().filter_map(|hash| self.names.likely(*hash)).collect();
            self.warm(|| likely.iter().copied());
        }
        let each = events.iter().zip(hashes);
        each.map(|(event, hash)| self.names.get_hashed(hash, &event.lane.group, &self.groups)).collect()
    }

    /// Of the groups of this class that come next.
    pub(super) fn warm_next(&self, class: Class) {
        if self.groups.len() >= FEW && self.totals.leases.is_multiple_of(EVERY as u64) {
            let gids = self.field.soon(class, EVERY);
            self.warm(|| gids.iter().copied());
        }
    }

    /// First all groups, then all of what these lead to, so that no read waits for another of its stage.
    fn warm<I: Iterator<Item = u32>>(&self, gids: impl Fn() -> I) {
        let groups = || gids().filter_map(|gid| self.groups.get(gid));
        let lanes = || groups().filter_map(|group| self.lanes.get(group.plain?));
        black_box(groups().map(GroupState::lines).fold(0, u64::wrapping_add));
        black_box(lanes().map(LaneState::lines).fold(0, u64::wrapping_add));
        black_box(lanes().map(LaneState::line_behind).fold(0, u64::wrapping_add));
        black_box(groups().map(GroupState::line_of_name).fold(0, u64::wrapping_add));
        black_box(groups().map(GroupState::lines_behind).fold(0, u64::wrapping_add));
    }
}
