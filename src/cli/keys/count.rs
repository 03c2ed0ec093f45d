//! Counting the groups that one rule makes, within a limit.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cli::rules::Answer;
use crate::event::{Group, Lane};
use crate::key::shard;

/// Groups that are told apart for one rule, as many as `groups.max_active` keeps by default: some 100 MB of names and counts. What
/// further groups send is counted together.
pub(super) const GROUPS_MAX: usize = 1_000_000;

/// Shards that the groups are spread over, to see how even a rule is.
pub(super) const SHARDS: u16 = 32;

/// One group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) events: u64,
    pub(super) shard: u16,
}

/// What one rule made of all requests so far.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) events: u64,
    pub(super) groups: HashMap<Group, Tally>,
    /// Events of groups that came when [`GROUPS_MAX`] were known.
    pub(super) beyond: u64,
    /// Lanes within groups, up to [`GROUPS_MAX`] too; none where groups are not split.
    pub(super) lanes: HashSet<Lane>,
    /// Events without a key, by the reason; they share the fallback lane.
    pub(super) missing: BTreeMap<&'static str, u64>,
    /// Events in each shard, those without a key and those beyond with them.
    pub(super) shards: Vec<u64>,
    groups_max: usize,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            events: 0,
            groups: HashMap::new(),
            beyond: 0,
            lanes: HashSet::new(),
            missing: BTreeMap::new(),
            shards: vec![0; usize::from(SHARDS)],
            groups_max: GROUPS_MAX,
        }
    }
}

impl Count {
    /// Adds one request.
    pub(super) fn add(&mut self, answer: Answer) {
        self.events += 1;
        let number = match answer {
            Ok(lane) => {
                let number = self.group(&lane.group);
                if lane.inner.is_some() && self.lanes.len() < self.groups_max {
                    self.lanes.insert(lane);
                }
                number
            }
            Err(reason) => {
                *self.missing.entry(reason).or_default() += 1;
                shard(&Group::fallback(), SHARDS)
            }
        };
        if let Some(events) = self.shards.get_mut(usize::from(number)) {
            *events += 1;
        }
    }

    /// Counts an event of this group; the answer is its shard.
    fn group(&mut self, group: &Group) -> u16 {
        if let Some(tally) = self.groups.get_mut(group) {
            tally.events += 1;
            return tally.shard;
        }
        let shard = shard(group, SHARDS);
        if self.groups.len() < self.groups_max {
            self.groups.insert(group.clone(), Tally { events: 1, shard });
        } else {
            self.beyond += 1;
        }
        shard
    }

    /// Whether there were more groups than could be told apart.
    pub(super) fn is_over(&self) -> bool {
        self.beyond > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_counted_together_and_every_shard_is_right() {
        let mut count = Count { groups_max: 3, ..Count::default() };
        for number in [0, 1, 2, 3, 4, 4, 0] {
            count.add(Ok(Lane { group: Group::of(&[format!("g{number}")]), inner: None }));
        }
        count.add(Err("absent"));
        assert_eq!((count.events, count.groups.len(), count.beyond), (8, 3, 3));
        assert_eq!(count.groups[&Group::of(&["g0"])].events, 2);
        assert_eq!((count.missing["absent"], count.shards.iter().sum::<u64>()), (1, 8));
        assert!(count.is_over() && count.lanes.is_empty());
    }
}
