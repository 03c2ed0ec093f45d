//! The marks that every store with a limit of room keeps: below which something goes or is refused, and whom that concerns.
//!
//! Room is counted in thousandths of a *margin*; how large one is each store says itself.

use std::collections::{BTreeMap, HashSet};

use crate::event::Group;

/// One margin, in the thousandths that room is counted in. Below it nobody's events are taken.
pub(super) const MARGIN: u64 = 1_000;
/// Below this the oldest delivered history goes.
pub(super) const GIVE_UP_BELOW: u64 = 2 * MARGIN;
/// Below this the largest groups are refused.
pub(super) const REFUSE_LARGE_BELOW: u64 = MARGIN + MARGIN / 2;
/// Groups that are named in memory at most.
const REFUSED_MAX: usize = 10_000;

/// Of groups with the bytes that they hold, those that hold most: as many as hold a share of all that grows from a quarter to all as
/// room goes from 1.5 margins to 1, and always the largest one.
pub(super) fn largest(groups: BTreeMap<Group, u64>, room: u64) -> HashSet<Group> {
    let all: u64 = groups.values().sum();
    let missing = REFUSE_LARGE_BELOW.saturating_sub(room.max(MARGIN));
    let share = MARGIN / 4 + missing * 3 / 2;
    let wanted = u64::try_from(u128::from(all) * u128::from(share) / u128::from(MARGIN)).unwrap_or(u64::MAX);
    let mut by_size: Vec<(Group, u64)> = groups.into_iter().collect();
    by_size.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut sum = 0;
    let mut refused = HashSet::new();
    for (group, bytes) in by_size.into_iter().take(REFUSED_MAX) {
        if sum >= wanted && !refused.is_empty() {
            break;
        }
        sum += bytes;
        refused.insert(group);
    }
    refused
}
