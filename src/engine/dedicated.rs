//! Looking at the groups that demand much, giving them slots of their own and taking those back (R12). What moves a group is in `dedication`.
//!
//! An event costs a count and a comparison; everything else happens at looks, over at most [`RECORDS_MAX`] groups.

use super::dedication::{DedicatedInfo, Dedication, Found, Record};
use super::notice::Notice;
use super::{Engine, price};
use crate::event::{Group, Mono, Now};

/// Groups of their own slots at most, whatever is set: all together hold at most half of the slots.
const GROUPS_MAX: u32 = 8;

/// Groups looked at. Each demands a good part of all slots: with more of them the upstream is overloaded many times over, and slots for
/// eight help nobody.
const RECORDS_MAX: usize = 64;

impl Engine {
    /// Dedicated slots as a whole.
    #[must_use]
    pub fn dedicated(&self, now: Mono) -> DedicatedInfo {
        let settings = &self.settings.dedicated;
        let groups = self.dedicated.records.iter();
        DedicatedInfo {
            max: settings.max,
            slots: settings.slots,
            taken: self.dedicated_slots(),
            groups: groups.map(|(name, record)| (name.clone(), record.view(settings.slots, now))).collect(),
            at_ceiling: settings.max > 0 && !self.has_slots_for(1),
        }
    }

    /// Whether some group is refused what it has outgrown, or may be: then [`admit`](Self::admit) is to be asked for every event, for
    /// what is on its way in counts.
    #[must_use]
    pub fn counts_coming(&self) -> bool {
        !self.dedicated.records.is_empty()
    }

    /// Whether so many further groups could get slots of their own.
    fn has_slots_for(&self, more: u32) -> bool {
        let groups = self.dedicated.promoted() + more;
        let most = self.settings.dedicated.max.min(GROUPS_MAX);
        groups <= most && groups.saturating_mul(self.settings.dedicated.slots) <= self.settings.slots / 2
    }

    /// An event of the group came, taken in or refused.
    pub(super) fn note_demand(&mut self, gid: u32, now: Mono) {
        let settings = self.settings.dedicated;
        if settings.max == 0 {
            return;
        }
        let guess = self.upstream.durations.guess_us();
        let Some(group) = self.groups.get_mut(gid) else { return };
        let estimate = group.estimate.micros().unwrap_or(guess);
        let Some(stats) = &mut group.ledger.stats else { return };
        let every = settings.look_every();
        let arrived = stats.demand.arrived(now.0 / super::micros(every).max(1));
        let demand = arrived as f64 * price::keeps(&self.settings, estimate) as f64
            / (super::micros(every) as f64 * f64::from(self.settings.slots.max(1)));
        if demand < settings.promote_share || group.policy.chosen || group.name == Group::unverified() {
            return;
        }
        let full = self.dedicated.records.len() >= RECORDS_MAX;
        if !full && !self.dedicated.records.contains_key(&group.name) {
            let record = Record::new(Dedication::Steady, demand, stats.demand.all, now);
            self.dedicated.records.insert(group.name.clone(), record);
            self.dedicated.wake.get_or_insert_with(|| now.plus(every));
        }
    }

    /// Looks at the groups that demand much, when it is time.
    pub(super) fn look_at_demands(&mut self, now: Mono) {
        if self.dedicated.wake.is_none_or(|at| at > now) {
            return;
        }
        let mut looked = std::mem::take(&mut self.dedicated.records);
        let stands_still =
            self.upstream.paused || self.upstream.breaker.is_held(now) || !self.upstream.breaker.is_closed();
        for (name, record) in &mut looked {
            let found = self.found(name);
            if stands_still {
                record.stand_still(found.arrived, now);
            } else {
                record.see(&self.settings.dedicated, self.settings.slots, found, now);
            }
        }
        self.dedicated.records = looked;
        if !stands_still {
            self.give_and_take(now);
        }
        self.dedicated.shedding = self.dedicated.records.values().any(|record| record.shed_above.is_some());
        let every = self.settings.dedicated.look_every();
        self.dedicated.wake = (!self.dedicated.records.is_empty()).then(|| now.plus(every));
    }

    /// First who gives slots back, then who has waited longest for some.
    fn give_and_take(&mut self, now: Mono) {
        let mut names: Vec<(bool, Mono, Group)> = Vec::with_capacity(self.dedicated.records.len());
        for (name, record) in &self.dedicated.records {
            names.push((!record.state.has_slots(), record.since, name.clone()));
        }
        names.sort();
        for (_, _, name) in names {
            let room = self.has_slots_for(1);
            let Some(record) = self.dedicated.records.get(&name) else { continue };
            let next = record.next(&self.settings.dedicated, room, now);
            self.enter(&name, next, now);
            self.judge_shedding(&name, now);
        }
    }

    fn judge_shedding(&mut self, name: &Group, now: Mono) {
        let (backlog, on) = (self.found(name).backlog + self.coming.of(name), self.settings.shed);
        let Some(record) = self.dedicated.records.get_mut(name) else { return };
        if record.sheds(&self.settings.dedicated, on, backlog, now) {
            let above = record.shed_above;
            self.notices.push(Notice::Shedding { group: name.clone(), above });
        }
    }

    /// What the group has had and has now, active or not.
    fn found(&self, name: &Group) -> Found {
        let guess = self.upstream.durations.guess_us();
        let Some(group) = self.group_of(name) else {
            let stats = self.ledgers.get(name).and_then(|ledger| ledger.stats.as_ref());
            return Found { arrived: stats.map_or(0, |stats| stats.demand.all), keeps_us: guess, backlog: 0 };
        };
        let estimate = group.estimate.micros().unwrap_or(guess);
        Found {
            arrived: group.ledger.stats.as_ref().map_or(0, |stats| stats.demand.all),
            keeps_us: if group.is_held_back() { 0 } else { price::keeps(&self.settings, estimate) },
            backlog: group.counts.waiting(),
        }
    }

    /// The group stands so from now on, and people hear of it where that is new.
    fn enter(&mut self, name: &Group, next: Dedication, now: Mono) {
        let Some(record) = self.dedicated.records.get_mut(name) else { return };
        let (was, demand) = (record.state, record.demand);
        if was == next {
            if next == Dedication::Steady {
                self.dedicated.records.remove(name);
            }
            return;
        }
        record.enter(next, now);
        if next == Dedication::Steady {
            self.dedicated.records.remove(name);
        }
        match (was.has_slots(), next.has_slots()) {
            (false, true) => self.give_slots(name, now),
            (true, false) => self.take_slots(name, now),
            _ => {}
        }
        let backlog = self.found(name).backlog;
        self.notices.push(Notice::Dedication { group: name.clone(), from: was, to: next, demand, backlog });
    }

    /// Gives these groups slots of their own again, as before a restart; as many as there is room for. Their clocks begin anew.
    pub fn restore_promoted(&mut self, groups: Vec<Group>, now: Now) {
        let now = self.tick(now).mono;
        for name in groups {
            if self.has_slots_for(1) && !(self.policies)(&name).chosen {
                let demand = self.settings.dedicated.promote_share;
                self.dedicated.records.insert(name.clone(), Record::new(Dedication::Promoted, demand, 0, now));
                self.give_slots(&name, now);
                let every = self.settings.dedicated.look_every();
                self.dedicated.wake.get_or_insert_with(|| now.plus(every));
            }
        }
    }

    /// The groups that have slots of their own, to be remembered over a restart.
    #[must_use]
    pub fn promoted(&self) -> Vec<Group> {
        let records = self.dedicated.records.iter();
        records.filter(|(_, record)| record.state.has_slots()).map(|(name, _)| name.clone()).collect()
    }

    /// Other settings, or other policies: who may no longer have slots of its own gives them back at once, the youngest first.
    pub(super) fn fit_dedicated(&mut self, now: Mono) {
        if self.settings.dedicated.max == 0 {
            for name in self.dedicated.records.keys().cloned().collect::<Vec<_>>() {
                self.enter(&name, Dedication::Steady, now);
            }
            self.dedicated.shedding = false;
            self.dedicated.wake = None;
        }
        while !self.has_slots_for(0) {
            let promoted = self.dedicated.records.iter().filter(|(_, record)| record.state.has_slots());
            let Some(youngest) = promoted.max_by_key(|(_, record)| record.since).map(|(name, _)| name.clone()) else {
                break;
            };
            self.enter(&youngest, Dedication::Steady, now);
        }
        for name in self.dedicated.records.keys().cloned().collect::<Vec<_>>() {
            if (self.policies)(&name).chosen {
                self.enter(&name, Dedication::Steady, now);
            }
        }
        self.resize_own();
    }
}
