//! Bounds (R10): lanes that are shared when there would be too many for one each.
//!
//! With [`Settings::max_active`](super::Settings::max_active) lanes in memory, a further one is not made: its events wait in one of 64
//! overflow lanes, found by the rendezvous hash of its group's name. Inside a group (R11) it is the same from
//! [`Settings::inner_active`](super::Settings::inner_active) lanes on, with eight of its own. An event that waits in an overflow lane has an
//! *owner*, the lane that it belongs to.
//!
//! *Staying*: while events of a group are in an overflow lane, its further ones go there too, but for those whose own lane is there: events
//! of one order key must not overtake each other. Inside a group that is simple: as long as it has such lanes, further parts go there. Of
//! the 64, one has to know whose events are there: a number and a hash for each such group, a tenth of a lane's record, for at most a million
//! groups. While there are more than that, every group without a lane of its own is taken to be there.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

use super::Engine;
use super::group::GroupState;
use crate::event::{Group, Lane, shard};

/// Overflow lanes of all groups; as many for each part of them.
pub const OVERFLOW_LANES: u16 = 64;

/// Overflow lanes inside one group.
const INNER_LANES: u16 = 8;

/// Groups that are known to be in overflow, at most; some 32 bytes each.
const MEMBERS_MAX: usize = 1_000_000;

/// Whose event it is that waits in one of the 64, by a hash of the group's name: 0 for all other events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Member(u64);

impl Member {
    /// The one of an event of `owner` that waits in `lane`.
    pub(super) fn of(lane: &Lane, owner: Option<&Lane>) -> Self {
        owner.filter(|_| lane.group.is_overflow()).map_or_else(Self::default, |owner| Self::of_group(&owner.group))
    }

    fn of_group(group: &Group) -> Self {
        Self(xxh3_64(group.as_str().as_bytes()).max(1))
    }
}

/// One of them.
#[derive(Debug, Default)]
struct Known {
    /// Its pending events there.
    events: u32,
    /// Of them, those that do not wait: they are leased, or their end is not durable yet.
    away: u32,
    /// Those of the batch under way that will be there.
    held: u32,
    /// In which part of the lanes they all are.
    part: u16,
}

/// Whose events are in the 64 lanes.
#[derive(Debug, Default)]
struct Members {
    known: HashMap<Member, Known>,
    /// Events there of groups that are not known one by one; all of these are in the common lanes.
    others: u64,
    /// Events there of whomever.
    events: u64,
}

impl Members {
    fn is_empty(&self) -> bool {
        self.known.is_empty() && self.others == 0
    }

    /// In which part a group's events are.
    fn part(&self, member: Member) -> Option<u16> {
        let crowded = self.others > 0 || self.known.len() >= MEMBERS_MAX;
        self.known.get(&member).map(|known| known.part).or_else(|| crowded.then_some(0))
    }

    /// One more, counted by what `count` picks.
    fn add(&mut self, member: Member, in_part: u16, count: impl Fn(&mut Known) -> &mut u32) {
        let unknown = !self.known.contains_key(&member);
        if unknown && self.part(member).is_some() {
            self.others += 1;
            return;
        }
        let known = self.known.entry(member).or_default();
        *count(known) += 1;
        known.part = in_part;
    }

    /// One less.
    fn take(&mut self, member: Member, count: impl Fn(&mut Known) -> &mut u32) {
        let Some(known) = self.known.get_mut(&member) else {
            self.others = self.others.saturating_sub(1);
            return;
        };
        let count = count(known);
        *count = count.saturating_sub(1);
        if known.events == 0 && known.held == 0 {
            self.known.remove(&member);
        }
    }

    /// What a removal could not say of its event goes, too.
    fn clear_if_empty(&mut self) {
        if self.events == 0 {
            (self.known, self.others) = (HashMap::new(), 0);
        }
    }
}

/// An event that is about to be stored.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The lane that it belongs to.
    pub lane: &'a Lane,
    /// It is not to get a lane of its own, however many there are: it goes to the overflow lanes of this part, unless its group has events
    /// elsewhere.
    pub part: Option<Group>,
}

/// The lanes of one group that a batch will make.
#[derive(Debug, Default)]
struct Promised {
    plain: bool,
    inside: HashSet<Group>,
    /// Some of those inside are shared.
    shared: bool,
}

/// What is known about overflow lanes.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    members: Members,
    /// Overflow lanes in memory: they come on top of those that may be.
    pub(super) lanes: usize,
    /// Parts of the overflow lanes beside the common one, by their number less one.
    parts: Vec<Group>,
    /// Lanes that events of the batch under way will make or find, by group; and how many.
    promised: HashMap<Group, Promised>,
    promises: usize,
    /// Whose events of that batch will be there.
    held: Vec<Member>,
}

impl Overflow {
    /// An event of an overflow lane became durable, or was found there.
    pub(super) fn enter(&mut self, member: Member, lane: &Lane) {
        if member != Member::default() {
            let part = self.part_number(lane.group.overflow_part());
            self.members.events += 1;
            self.members.add(member, part, |known| &mut known.events);
        }
    }

    /// It ended, after it did not wait any more.
    pub(super) fn leave(&mut self, member: Member) {
        if member != Member::default() {
            self.waits(member, true);
            self.members.take(member, |known| &mut known.events);
            self.leave_unread();
        }
    }

    /// It waits again, or does not any more.
    pub(super) fn waits(&mut self, member: Member, again: bool) {
        if member != Member::default()
            && let Some(known) = self.members.known.get_mut(&member)
        {
            known.away = if again { known.away.saturating_sub(1) } else { known.away + 1 };
        }
    }

    /// Events of `group` that wait in one of the 64; none where it is not known one by one whose are there.
    pub(super) fn waiting(&self, group: &Group) -> u64 {
        if self.members.known.is_empty() {
            return 0;
        }
        let known = self.members.known.get(&Member::of_group(group));
        known.map_or(0, |known| known.events.saturating_sub(known.away).into())
    }

    /// One ended of which it is not known whose it was: its group is taken to be there until all are gone.
    pub(super) fn leave_unread(&mut self) {
        self.members.events = self.members.events.saturating_sub(1);
        self.members.clear_if_empty();
    }

    /// Events that wait in the 64, where it is known of each whose it is.
    pub(super) fn waiting_of_all(&self) -> Option<u64> {
        let known = self.members.known.values();
        let sum = |count: fn(&Known) -> u32| known.clone().map(|known| u64::from(count(known))).sum::<u64>();
        let (events, away) = (sum(|known| known.events), sum(|known| known.away));
        (self.members.others == 0 && events == self.members.events).then(|| events.saturating_sub(away))
    }

    /// Another batch: what became of the one before is known.
    fn begin(&mut self) {
        self.promised.clear();
        self.promises = 0;
        for member in std::mem::take(&mut self.held) {
            self.members.take(member, |known| &mut known.held);
        }
        self.members.clear_if_empty();
    }

    fn part_number(&mut self, part: Option<Group>) -> u16 {
        let Some(part) = part else { return 0 };
        let number = self.parts.iter().position(|known| *known == part).unwrap_or(self.parts.len());
        // There are as many as sources; beyond what fits they share the common lanes.
        let Ok(number) = u16::try_from(number + 1) else { return 0 };
        if usize::from(number) > self.parts.len() {
            self.parts.push(part);
        }
        number
    }

    fn lane(&self, group: &Group, part: u16) -> Lane {
        let part = usize::from(part).checked_sub(1).and_then(|at| self.parts.get(at));
        Lane { group: Group::overflow(shard(group, OVERFLOW_LANES), part), inner: None }
    }

    /// Where events of `group` are that are in one of the 64.
    fn stays(&self, group: &Group) -> Option<Lane> {
        let part = self.members.part(Member::of_group(group))?;
        Some(self.lane(group, part))
    }

    fn is_promised(&self, lane: &Lane) -> bool {
        self.promised.get(&lane.group).is_some_and(|promised| match &lane.inner {
            None => promised.plain,
            Some(inner) => promised.inside.contains(inner),
        })
    }

    fn promise(&mut self, lane: Lane) {
        let promised = self.promised.entry(lane.group).or_default();
        let new = match lane.inner {
            None => !std::mem::replace(&mut promised.plain, true),
            Some(inner) => {
                promised.shared |= inner.is_overflow();
                promised.inside.insert(inner)
            }
        };
        self.promises += usize::from(new);
    }
}

impl Engine {
    /// Where the events of the next batch have to wait instead of in their own lanes, one answer each; an empty list when all have their own.
    /// Asked once for each batch, before it is made durable and after everything is known of the one before. An event's place is durable
    /// with it and never changes.
    pub fn places(&mut self, batch: &[Wanted<'_>]) -> Vec<Option<Lane>> {
        self.overflow.begin();
        if self.has_room(batch) {
            return Vec::new();
        }
        batch.iter().map(|wanted| self.place(wanted)).collect()
    }

    /// No bound is near and nothing overflows: nearly always.
    fn has_room(&self, batch: &[Wanted<'_>]) -> bool {
        let lanes = self.own_lanes() + batch.len();
        let outer = self.overflow.members.is_empty() && lanes <= self.settings.max_active;
        let plain = |wanted: &Wanted<'_>| {
            wanted.part.is_none() && (lanes <= self.settings.inner_active || wanted.lane.inner.is_none())
        };
        outer && batch.iter().all(plain)
    }

    fn place(&mut self, wanted: &Wanted<'_>) -> Option<Lane> {
        let lane = wanted.lane;
        // Our own lanes are few; one that is there costs nothing more.
        if lane.group.is_reserved() || self.find(lane).is_some() || self.overflow.is_promised(lane) {
            return None;
        }
        let (inside, shared) = self.inside(lane);
        let common = if shared { None } else { self.outer_place(lane, wanted.part.as_ref()) };
        if let Some(place) = common {
            let member = Member::of_group(&lane.group);
            let part = self.overflow.part_number(place.group.overflow_part());
            self.overflow.members.add(member, part, |known| &mut known.held);
            self.overflow.held.push(member);
            return Some(place);
        }
        let own = lane.inner.as_ref().filter(|_| shared || inside >= self.settings.inner_active);
        let own = own.map(|inner| Group::overflow(shard(inner, INNER_LANES), None));
        let place = own.map(|own| Lane { group: lane.group.clone(), inner: Some(own) });
        self.overflow.promise(place.as_ref().unwrap_or(lane).clone());
        place
    }

    /// How many lanes the lane's group has inside and will have with this batch, and whether it shares some of them.
    fn inside(&self, lane: &Lane) -> (usize, bool) {
        let group = self.group_of(&lane.group);
        let (own, shared) = group.map_or((0, false), GroupState::inside_lanes);
        if lane.inner.is_none() {
            return (own, false);
        }
        match self.overflow.promised.get(&lane.group) {
            None => (own, shared),
            Some(promised) => (own + promised.inside.len(), shared || promised.shared),
        }
    }

    fn own_lanes(&self) -> usize {
        self.lanes.len() - self.overflow.lanes
    }

    fn outer_place(&mut self, lane: &Lane, part: Option<&Group>) -> Option<Lane> {
        if let Some(place) = self.overflow.stays(&lane.group) {
            return Some(place);
        }
        let full = self.own_lanes() + self.overflow.promises >= self.settings.max_active;
        if (part.is_none() && !full) || (self.policies)(&lane.group).named {
            return None;
        }
        let part = self.overflow.part_number(part.cloned());
        Some(self.overflow.lane(&lane.group, part))
    }

    /// A pending event that was found at the start in an overflow lane, and whose it is; told of each of them.
    pub fn on_overflowed(&mut self, lane: &Lane, owner: &Lane) {
        self.overflow.enter(Member::of(lane, Some(owner)), lane);
    }

    /// The overflow lane in which events of `group` are, or its next one would be; `None` for a group with a lane of its own.
    #[must_use]
    pub fn overflow_of(&self, group: &Group) -> Option<Group> {
        if group.is_reserved() || self.gid_of(group).is_some() {
            return None;
        }
        let full = || self.own_lanes() >= self.settings.max_active && !(self.policies)(group).named;
        let place = self.overflow.stays(group).or_else(|| full().then(|| self.overflow.lane(group, 0)))?;
        Some(place.group)
    }

    /// Events that wait in the 64 overflow lanes, those of parts with them.
    #[must_use]
    pub fn overflow_events(&self) -> u64 {
        self.overflow.members.events
    }
}
