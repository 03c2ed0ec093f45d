//! I1–I9: what must hold after every step.
//!
//! What concerns one group is checked whenever the group was touched, in service too: it costs a few comparisons. Everything
//! is checked by [`Engine::check_invariants`], in simulation after every step. A violation is counted, not a panic: `violations` must stay 0.
//! I7 is the store's side of things and is checked by the simulation, which knows what is durable; I9 by running twice.

use super::Engine;
use super::counts::Counts;
use super::due::Place;
use super::group::{GroupState, Standing};
use super::tags::Tag;

impl Engine {
    /// How often an invariant did not hold since the start.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Which one it was the last time.
    #[must_use]
    pub fn last_violation(&self) -> Option<&'static str> {
        self.last_violation
    }

    /// What concerns the group that was just touched.
    pub(super) fn check_group(&mut self, gid: u32) {
        let Some(group) = self.groups.get(gid) else { return };
        // I4: a charge and its corrections add up. I2 is checked where a group is put into the field.
        if group.in_flight() == 0 && group.charged_us != group.served_us {
            self.violation("I4: with nothing in flight a group was charged other than it was served");
        }
    }

    /// Checks everything, in time linear in what is in memory.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words. It is counted, too.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        let found = self.accounts().and_then(|()| self.placed()).and_then(|()| self.leases_sound());
        let found = found.and_then(|()| self.calls_sound()).and_then(|()| self.own_sound()).and_then(|()| self.fair());
        if found.is_err() {
            self.violation("found by a full check");
        }
        found
    }

    /// I1, and that the three books agree.
    fn accounts(&self) -> Result<(), String> {
        let totals = self.totals();
        let came = totals.appended + totals.recovered;
        let went = totals.delivered + totals.dead + totals.discarded + totals.moved;
        ensure(came == went + self.counts.total(), || {
            format!("I1: {came} came, {went} went, {:?} are here", self.counts)
        })?;
        let mut all = Counts::default();
        for (_, group) in self.groups.iter() {
            let mut sum = Counts::default();
            for lane in group.lanes().filter_map(|lid| self.lanes.get(lid)) {
                sum.add(&lane.counts);
            }
            ensure(sum == group.counts, || format!("I1: {} counts {:?}, its lanes {sum:?}", group.name, group.counts))?;
            all.add(&sum);
        }
        self.overflow_counts()?;
        self.sections_sound()?;
        ensure(all == self.counts, || format!("I1: counted {:?}, the groups have {all:?}", self.counts))
    }

    /// What is counted of sections that are about to go, and of what groups want, is what is there.
    fn sections_sound(&self) -> Result<(), String> {
        let mut busy = std::collections::BTreeMap::<u16, u64>::new();
        for (_, lane) in self.lanes.iter().filter(|(_, lane)| lane.held) {
            *busy.entry(lane.section).or_default() +=
                u64::from(lane.counts.in_flight) + u64::from(lane.counts.settling);
        }
        for (section, counted) in self.sections.held() {
            let found = busy.remove(&section).unwrap_or(0);
            ensure(found == counted, || {
                format!("I1: {counted} events of section {section} counted busy, {found} are")
            })?;
        }
        ensure(busy.is_empty(), || format!("I2: lanes are held whose section is not: {busy:?}"))?;
        let wished: u64 = self.groups.iter().map(|(_, group)| u64::from(group.wish)).sum();
        let counted = self.wanted_weight();
        ensure(wished == counted, || format!("I2: groups want {wished}, counted {counted}"))
    }

    /// R10: what is known about overflow lanes is what is in them.
    fn overflow_counts(&self) -> Result<(), String> {
        let shared = self.groups.iter().filter(|(_, group)| group.name.is_overflow());
        let (counted, found): (u64, u64) =
            (self.overflow_events(), shared.map(|(_, group)| group.counts.total()).sum());
        ensure(counted == found, || format!("R10: counted {counted} in overflow lanes, found {found}"))?;
        let shared = self.groups.iter().filter(|(_, group)| group.name.is_overflow());
        let (found, settling) = shared.fold((0, 0), |(waiting, settling), (_, group)| {
            (waiting + group.counts.waiting(), settling + u64::from(group.counts.settling))
        });
        // Of one that was ended unread it is not known whose it was, and it counts as waiting until all are gone.
        let sound = |counted: u64| (found..=found + settling).contains(&counted);
        let counted = self.overflow.waiting_of_all();
        ensure(counted.is_none_or(sound), || format!("R10: counted {counted:?} that wait there, found {found}"))
    }

    /// I2, I3: everything is in one place.
    fn placed(&self) -> Result<(), String> {
        let mut ready = 0;
        for (gid, group) in self.groups.iter() {
            match group.standing {
                Standing::Ready(class) => {
                    ready += 1;
                    ensure(self.field.holds(class, gid), || {
                        format!("I2: {} is ready and not in its heap", group.name)
                    })?;
                }
                _ => ensure(!self.field.holds_anywhere(gid), || {
                    format!("I2: {} is in the field and not ready", group.name)
                })?,
            }
        }
        ensure(ready == self.field.len(), || format!("I2: {ready} ready, {} in the field", self.field.len()))?;
        let leased = self.leases.iter().filter(|(_, lease)| lease.work.event().is_some()).count();
        let mut found = self.retries.waiting().count() + leased + self.counts.settling as usize;
        for (_, lane) in self.lanes.iter() {
            ensure(lane.rare.keys.is_sound(), || "I3: an order key has no head and does not look for one".into())?;
            ensure(lane.twin().is_none(), || format!("I2: an event is twice in its lane: {:?}", lane.twin()))?;
            for ev in lane.runnable() {
                let place = self.retries.place(ev.seq);
                found += usize::from(ev.retrying);
                ensure(
                    matches!(place, Some(Place::Due(_))) == ev.retrying && (ev.retrying || place.is_none()),
                    || format!("I2: event {} may go and is {place:?}", ev.seq),
                )?;
            }
        }
        ensure(found == self.retries.places(), || format!("I2: {found} events placed, {} known", self.retries.places()))
    }

    /// I3, I5: leases against counts and keys.
    fn leases_sound(&self) -> Result<(), String> {
        let mut keys = std::collections::BTreeSet::new();
        let (mut slow, mut slow_retry, mut quick, mut retry, mut replay, mut events) = (0, 0, 0, 0, 0, 0);
        let outbreak = &self.upstream.outbreak;
        for (ticket, lease) in self.leases.iter() {
            if let Some((lid, ev)) = lease.work.event() {
                events += 1;
                ensure(self.retries.place(ev.seq) == Some(Place::Leased(ticket)), || {
                    format!("I3: event {} has a lease and is elsewhere", ev.seq)
                })?;
                ensure(ev.order().is_none_or(|key| keys.insert((lid, key.clone()))), || {
                    format!("I3: two leases of one order key, {:?}", ev.order())
                })?;
            }
            let group = self.groups.get(lease.gid);
            let is_slow = group.is_some_and(GroupState::shares_slow);
            slow += u32::from(is_slow);
            slow_retry += u32::from(is_slow && lease.retry);
            quick += u32::from(group.is_some_and(|group| outbreak.is_quick(group.quick)));
            retry += u32::from(lease.retry);
            replay += u32::from(lease.replay);
        }
        let (leases, counts) = (&self.leases, &self.counts);
        let slow_ones = (leases.slow, leases.slow_retry);
        let counted = (slow_ones, outbreak.quick, leases.retry, leases.replay, counts.in_flight);
        let found = ((slow, slow_retry), quick, retry, replay, events);
        ensure(counted == found, || format!("I5: counted {counted:?}, found {found:?}"))
    }

    /// I6: the tag of a group that could go all the time is no further from virtual time than its head start, and what
    /// its cap lets it be charged at once, explain; so two such groups are no further apart than both.
    fn fair(&self) -> Result<(), String> {
        for (_, group) in self.groups.iter() {
            let cap = u64::from(group.cap(&self.settings));
            let charges = Tag::of(self.longest_us.saturating_mul(cap), group.weight);
            // Behind a closed gate others go on without it: then it was not ready all the time.
            let gated = group.gated || group.changed || group.since <= self.upstream.unclosed;
            if gated || !matches!(group.standing, Standing::Ready(_)) {
                continue;
            }
            let floor = self.v.minus(super::schedule::burst(&self.settings, group.weight)).minus(charges);
            ensure(group.tag >= floor, || {
                format!("I6: {} is at {} µs, virtual time at {} µs", group.name, group.tag.micros(), self.v.micros())
            })?;
            ensure(group.tag <= self.v.plus(charges), || {
                format!("I6: {} is ahead of what it was charged", group.name)
            })?;
        }
        Ok(())
    }
}

fn ensure(holds: bool, say: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(say()) }
}
