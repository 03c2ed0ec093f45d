//! Whether an event may come in: the cap of its group's backlog, and what a group has outgrown.
//!
//! Asked before an event is written, in the step that owns the counts, so that a cap is exact however many requests come at once: what
//! was admitted and is not durable yet counts as if it were here. Events in flight do not count, since most of them never come back;
//! those that do may put a group over its cap, which then refuses until it is below it. What waits in an overflow lane counts for the group
//! that it belongs to.

use std::collections::HashMap;
use std::time::Duration;

use super::Engine;
use super::group::{GroupState, Standing};
use crate::event::{Group, Now};

/// The longest that a sender is asked to stay away: by then a person has looked, or the backlog has another pace.
const AGAIN_MAX: Duration = Duration::from_secs(3_600);

/// A second is the least that `Retry-After` can say.
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// What keeps an event out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// As many events of its group wait as may ([`Policy::backlog`](super::Policy::backlog)).
    Backlog,
    /// Its group has outgrown what it can be given ([`Settings::shed`](super::Settings::shed)).
    Outgrown,
}

/// An event that may not come in now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Why.
    pub over: Over,
    /// When there is room again at the group's present pace, 1 s to an hour.
    pub again: Duration,
}

/// An event that may come in; given back with [`Engine::on_came`] when it is durable or will never be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    counted: bool,
}

/// Events that were admitted and are not durable yet, of groups with a limit; as many as one driver has on their way.
#[derive(Debug, Default)]
pub(super) struct Coming(HashMap<Group, u64>);

impl Coming {
    pub(super) fn of(&self, group: &Group) -> u64 {
        self.0.get(group).copied().unwrap_or_default()
    }

    fn add(&mut self, group: &Group) {
        match self.0.get_mut(group) {
            Some(count) => *count += 1,
            None => {
                self.0.insert(group.clone(), 1);
            }
        }
    }

    fn remove(&mut self, group: &Group) {
        if let Some(count) = self.0.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(group);
            }
        }
    }
}

impl Engine {
    /// Whether an event of `group` may be written.
    ///
    /// # Errors
    /// Why not, and when to come again. Nothing is remembered of it.
    pub fn admit(&mut self, group: &Group, now: Now) -> Result<Admitted, Excess> {
        let now = self.tick(now);
        let active = self.group_of(group);
        let cap = active.map_or_else(|| (self.policies)(group).backlog, |active| active.policy.backlog);
        let limits = [(cap.map(u64::from), Over::Backlog), (self.dedicated.sheds_above(group), Over::Outgrown)];
        // Of two the one that leaves less.
        let limits = limits.into_iter().filter_map(|(limit, over)| Some((limit?, over)));
        let Some((limit, over)) = limits.min_by_key(|(limit, _)| *limit) else {
            // One that is looked at may get a limit at any time, and then what is on its way counts.
            let counted = self.dedicated.records.contains_key(group);
            if counted {
                self.coming.add(group);
            }
            return Ok(Admitted { counted });
        };
        let shared = self.overflow.waiting(group);
        let waiting = active.map_or(0, |active| active.counts.waiting()) + shared + self.coming.of(group);
        if waiting < limit {
            self.coming.add(group);
            return Ok(Admitted { counted: true });
        }
        let lane = (active.is_none() && shared > 0).then(|| self.overflow_of(group)).flatten();
        let again = match active.or_else(|| self.group_of(&lane?)) {
            Some(active) => self.time_for(active, waiting + 1 - limit, now),
            // All of it is on its way in.
            None if self.paused.contains(group) || (self.policies)(group).paused => AGAIN_MAX,
            None => AGAIN_MIN,
        };
        if let Some(gid) = self.gid_of(group) {
            self.note_demand(gid, now.mono);
        }
        Err(Excess { over, again })
    }

    /// An admitted event is durable, and told right after this with [`on_appended`](Self::on_appended), or will never be.
    pub fn on_came(&mut self, group: &Group, admitted: Admitted) {
        if admitted.counted {
            self.coming.remove(group);
        }
    }

    /// How long until `n` events of the group have ended, at its pace of the last minute; of one that has none yet, at the pace of its
    /// slots. One that does not run at all is looked at again after an hour.
    fn time_for(&self, group: &GroupState, n: u64, now: Now) -> Duration {
        let ended = group.ledger.stats.as_ref().map_or(0.0, |stats| stats.minute.drain_rate(now.mono));
        let pace = if group.is_paused() || self.upstream.paused {
            0.0
        } else if ended > 0.0 {
            ended
        } else {
            let estimate = group.estimate.micros().unwrap_or_else(|| self.upstream.durations.guess_us());
            let runs =
                matches!(group.standing, Standing::Ready(_) | Standing::Own(_) | Standing::Capped | Standing::Limited);
            f64::from(u8::from(runs)) * f64::from(group.cap(&self.settings)) * 1e6 / estimate.max(1) as f64
        };
        let time = Duration::try_from_secs_f64(n as f64 / pace).unwrap_or(AGAIN_MAX);
        time.clamp(AGAIN_MIN, AGAIN_MAX)
    }
}
