//! Attempts that hold their slots for long: at three in the morning these are the ones to see, and to end.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Engine;
use crate::event::{Group, Mono};

/// A group's attempts that have been under way for long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HungAttempts {
    /// Whose.
    pub group: Group,
    /// How many.
    pub attempts: u32,
    /// Since when the oldest of them is under way.
    pub oldest: Duration,
}

impl Engine {
    /// Groups with attempts that were sent `older` ago or earlier, those that hold longest first. Takes time in the number of slots.
    #[must_use]
    pub fn hung_attempts(&self, older: Duration, now: Mono) -> Vec<HungAttempts> {
        let sent = self.leases.iter().filter_map(|(_, lease)| Some((lease.gid, now.since(lease.sent?))));
        let mut by_group: HashMap<u32, (u32, Duration)> = HashMap::new();
        for (gid, age) in sent.filter(|(_, age)| *age >= older) {
            let (attempts, oldest) = by_group.entry(gid).or_default();
            *attempts += 1;
            *oldest = age.max(*oldest);
        }
        let named = |(gid, (attempts, oldest)): (u32, (u32, Duration))| {
            Some(HungAttempts { group: self.groups.get(gid)?.name.clone(), attempts, oldest })
        };
        let mut held: Vec<HungAttempts> = by_group.into_iter().filter_map(named).collect();
        held.sort_unstable_by(|a, b| b.oldest.cmp(&a.oldest).then_with(|| a.group.cmp(&b.group)));
        held
    }
}
