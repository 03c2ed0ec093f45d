//! Where a group stands with slots of its own (R12), and what moves it: numbers in, a state out. `dedicated` acts on it, `own` says how such
//! slots are used.
//!
//! A group *demands* its arrivals × the time that each keeps a slot, as a part of all slots; refused arrivals count. Every so often, and
//! not with every event, the few groups that demanded [`Dedicated::promote_share`] of late are looked at:
//!
//! - *steady* → *watching*: it demands that much.
//! - *watching* → *promoted*: it did for [`Dedicated::promote_after`], and all that time its backlog stood above its lowest. Where all such
//!   slots are taken: *no lane available*, where it stays as it was until one is free or its demand falls.
//! - *promoted* → *cooling*: it demands less than [`Dedicated::demote_share`]; back when it demands more again.
//! - *cooling* → *steady*: it did for [`Dedicated::demote_after`].
//!
//! Between the two shares nothing happens, so a demand that goes up and down around either gives one promotion. A group that does not run
//! for another reason than slots (paused, its breaker, a `Retry-After`, its rate) demands nothing meanwhile, and while the upstream is
//! paused or not well all clocks stand still: more slots would help neither.
//!
//! With [`Settings::shed`](super::Settings::shed) a group has *outgrown* what it can be given when its backlog, promoted or with no lane
//! available, went on growing for [`Dedicated::promote_after`]. From then on its backlog may not rise above where it stood at that
//! moment, until it has fallen to half of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::settings::Dedicated;
use crate::event::{Group, Mono};

/// The average that is looked at follows within this part of the shorter of the two times: a minute and a half as documented, which evens
/// out the arrivals of a group with few and long calls.
const AVERAGE_PART: u32 = 10;
const AVERAGE_MIN: Duration = Duration::from_millis(300);

/// Looks in that time.
const LOOKS: u32 = 9;

/// Between two looks: not so often that it is felt, not so seldom that a second is missed by much.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Where a group stands with slots of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dedication {
    /// It demands no more than others.
    Steady,
    /// It demands much, and is watched.
    Watching,
    /// It has slots of its own.
    Promoted,
    /// It has them, and demands little.
    Cooling,
    /// It would be promoted, and all such slots are taken.
    NoLane,
}

impl Dedication {
    /// Its name in the API, in metrics and in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Watching => "watching",
            Self::Promoted => "promoted",
            Self::Cooling => "cooling",
            Self::NoLane => "no_lane_available",
        }
    }

    /// Whether it has slots of its own.
    #[must_use]
    pub fn has_slots(self) -> bool {
        matches!(self, Self::Promoted | Self::Cooling)
    }
}

/// A group that demands much, as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DedicatedView {
    /// Where it stands.
    pub state: Dedication,
    /// Since how long.
    pub since: Duration,
    /// What it demands, as a part of all slots (more than 1 is possible).
    pub demand: f64,
    /// Slots of its own; 0 without.
    pub slots: u32,
    /// It is refused what would make its backlog larger than this.
    pub shed_above: Option<u64>,
}

/// Dedicated slots as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DedicatedInfo {
    /// Groups that may have slots of their own at one time; 0: off.
    pub max: u32,
    /// Slots of each.
    pub slots: u32,
    /// Slots taken out of the total for them now.
    pub taken: u32,
    /// The groups that are looked at, by name.
    pub groups: Vec<(Group, DedicatedView)>,
    /// No further group can get any: as many have them as may, or half of the slots are taken.
    pub at_ceiling: bool,
}

/// What is known of a group that demands much.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) state: Dedication,
    /// Of the state.
    pub(super) since: Mono,
    pub(super) demand: f64,
    /// Arrivals up to the last look, and when that was.
    arrived: u64,
    looked: Mono,
    /// Its lowest backlog, and since when it stands above.
    low: u64,
    grows: Mono,
    pub(super) shed_above: Option<u64>,
}

/// What a look finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) arrived: u64,
    /// What one arrival keeps a slot for, microseconds; 0 for a group that does not run for another reason than slots.
    pub(super) keeps_us: u64,
    pub(super) backlog: u64,
}

impl Record {
    pub(super) fn new(state: Dedication, demand: f64, arrived: u64, now: Mono) -> Self {
        Self { state, since: now, demand, arrived, looked: now, low: u64::MAX, grows: now, shed_above: None }
    }

    /// Takes in what was found.
    pub(super) fn see(&mut self, settings: &Dedicated, slots: u32, found: Found, now: Mono) {
        let span = now.since(self.looked);
        let arrived = found.arrived.saturating_sub(self.arrived);
        (self.arrived, self.looked) = (found.arrived, now);
        if span.is_zero() {
            return;
        }
        let keeps_s = found.keeps_us as f64 / 1e6;
        let sample = arrived as f64 * keeps_s / span.as_secs_f64() / f64::from(slots.max(1));
        let part = span.as_secs_f64() / settings.average().as_secs_f64();
        self.demand += (sample - self.demand) * part.min(1.0);
        if found.backlog <= self.low {
            (self.low, self.grows) = (found.backlog, now);
        }
    }

    /// What follows from that. `room`: there are slots for one more.
    pub(super) fn next(&self, settings: &Dedicated, room: bool, now: Mono) -> Dedication {
        let long = |from: Mono, span: Duration| now.since(from) >= span;
        let (much, little) = (self.demand >= settings.promote_share, self.demand < settings.demote_share);
        match self.state {
            Dedication::Steady | Dedication::Watching | Dedication::NoLane if !much => Dedication::Steady,
            Dedication::Steady => Dedication::Watching,
            Dedication::Watching if !(long(self.since, settings.promote_after) && self.outgrows(settings, now)) => {
                Dedication::Watching
            }
            Dedication::Watching | Dedication::NoLane if room => Dedication::Promoted,
            Dedication::Watching | Dedication::NoLane => Dedication::NoLane,
            Dedication::Cooling if little && long(self.since, settings.demote_after) => Dedication::Steady,
            Dedication::Promoted | Dedication::Cooling if little => Dedication::Cooling,
            Dedication::Promoted | Dedication::Cooling => Dedication::Promoted,
        }
    }

    /// Its backlog has stood above its lowest for as long as it takes.
    fn outgrows(&self, settings: &Dedicated, now: Mono) -> bool {
        now.since(self.grows) >= settings.promote_after
    }

    pub(super) fn enter(&mut self, state: Dedication, now: Mono) {
        if state == Dedication::Promoted && !self.state.has_slots() {
            // How it does with them begins anew.
            (self.low, self.grows, self.shed_above) = (u64::MAX, now, None);
        }
        (self.state, self.since) = (state, now);
    }

    /// From which backlog on it is refused, and whether that changed.
    pub(super) fn sheds(&mut self, settings: &Dedicated, on: bool, backlog: u64, now: Mono) -> bool {
        let was = self.shed_above;
        let may = on && (self.state.has_slots() || self.state == Dedication::NoLane);
        self.shed_above = match was {
            _ if !may => None,
            None => self.outgrows(settings, now).then_some(backlog.max(1)),
            Some(above) if backlog <= above / 2 => {
                (self.low, self.grows) = (backlog, now);
                None
            }
            Some(above) => Some(above),
        };
        was != self.shed_above
    }

    /// Nothing of this time counts.
    pub(super) fn stand_still(&mut self, arrived: u64, now: Mono) {
        let span = now.since(self.looked);
        (self.since, self.grows) = (self.since.plus(span), self.grows.plus(span));
        (self.arrived, self.looked) = (arrived, now);
    }
}

impl Dedicated {
    /// What the average of the demand follows within.
    fn average(&self) -> Duration {
        (self.promote_after.min(self.demote_after) / AVERAGE_PART).max(AVERAGE_MIN)
    }

    pub(super) fn look_every(&self) -> Duration {
        (self.average() / LOOKS).clamp(LOOK_MIN, LOOK_MAX)
    }
}

/// The groups that demand much, and those that have slots of their own.
#[derive(Debug, Default)]
pub(super) struct Dedications {
    pub(super) records: BTreeMap<Group, Record>,
    /// Active groups with slots of their own.
    pub(super) active: Vec<u32>,
    /// When to look again.
    pub(super) wake: Option<Mono>,
    /// Some group is refused what it has outgrown.
    pub(super) shedding: bool,
}

impl Dedications {
    /// Groups that have slots of their own, active or not.
    pub(super) fn promoted(&self) -> u32 {
        self.records.values().filter(|record| record.state.has_slots()).count() as u32
    }

    pub(super) fn has_slots(&self, group: &Group) -> bool {
        !self.records.is_empty() && self.records.get(group).is_some_and(|record| record.state.has_slots())
    }

    /// The backlog from which on the group is refused what it has outgrown.
    pub(super) fn sheds_above(&self, group: &Group) -> Option<u64> {
        if self.shedding { self.records.get(group)?.shed_above } else { None }
    }

    pub(super) fn view(&self, group: &Group, slots: u32, now: Mono) -> Option<DedicatedView> {
        self.records.get(group).map(|record| record.view(slots, now))
    }
}

impl Record {
    pub(super) fn view(&self, slots: u32, now: Mono) -> DedicatedView {
        DedicatedView {
            state: self.state,
            since: now.since(self.since),
            demand: self.demand,
            slots: if self.state.has_slots() { slots } else { 0 },
            shed_above: self.shed_above,
        }
    }
}
