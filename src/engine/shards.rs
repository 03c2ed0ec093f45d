//! One look at sections: how the groups that wait are spread over them, for people.

use std::collections::BTreeMap;

use super::Engine;
use crate::event::Group;

/// What waits of one section here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SectionView {
    /// Groups with pending events.
    pub groups: u64,
    /// Pending events.
    pub events: u64,
    /// The group with most of them, and how many.
    pub largest: Option<(Group, u64)>,
}

impl Engine {
    /// What waits, by section. Takes time in the number of active groups.
    #[must_use]
    pub fn sections(&self) -> BTreeMap<u16, SectionView> {
        let mut sections: BTreeMap<u16, SectionView> = BTreeMap::new();
        for (_, group) in self.groups.iter() {
            let pending = group.counts.total();
            // A group is in one section at a time.
            let lane = group.lanes().find_map(|lid| self.lanes.get(lid));
            let Some(section) = lane.map(|lane| lane.section).filter(|_| pending > 0) else { continue };
            let view = sections.entry(section).or_default();
            view.groups += 1;
            view.events += pending;
            if view.largest.as_ref().is_none_or(|(_, most)| pending > *most) {
                view.largest = Some((group.name.clone(), pending));
            }
        }
        sections
    }
}
