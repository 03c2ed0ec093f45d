//! Outbreaks (R4b): very many groups turn slow at once, faster than they can be found out.
//!
//! A group counts as slow once one of its attempts has been slow. Until then each may take slots, and where hundreds turn slow at the same
//! moment those first attempts hold all of them. Slow groups with clearly more slots than they may take are an *outbreak*: from then on,
//! until no further group is found to be slow for a while, groups are told apart by what they did *since it began*, for what they were
//! before says nothing now. Those of which an attempt has ended quickly are *quick*. All others are tried, beyond three quarters of
//! the slots only while as many stay free as the quick hold, so that what is left of the slots goes to those who give them back.
//! Nothing can find out faster who has turned slow than by trying: each try holds its slot for as long as it takes.
//!
//! Outside an outbreak nobody is quick, nothing is remembered and nobody waits for any of this.

use std::collections::HashSet;
use std::time::Duration;

use super::Engine;
use crate::event::{Group, Mono};

/// Quick groups without pending events that are remembered; of further ones it is forgotten that they were, and they show it again.
const NAMES_MAX: usize = 65_536;

/// A quick attempt takes less than this part of a slow one: of calls that are slow on average, few are so short.
const QUICK: u32 = 4;

/// In an outbreak this part of the slots is left to quick groups even when none of them is under way.
const SPARE: u32 = 16;

/// The present outbreak, and which groups have shown to be quick in it.
#[derive(Debug, Default)]
pub(super) struct Outbreak {
    /// It is over then, unless another group turns out to be slow.
    until: Option<Mono>,
    /// How many there were.
    number: u32,
    /// Slots held by quick groups.
    pub(super) quick: u32,
    /// Quick groups that are not in memory.
    names: HashSet<Group>,
}

impl Outbreak {
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// When it is over.
    pub(super) fn until(&self) -> Option<Mono> {
        self.until
    }

    /// Whether a group that was quick in the outbreak of that number is so now.
    pub(super) fn is_quick(&self, number: u32) -> bool {
        self.is_on() && number == self.number
    }

    fn begin(&mut self, until: Mono) {
        if self.until.replace(until).is_none() {
            // One each second for a century.
            self.number = self.number.wrapping_add(1);
        }
    }

    fn end(&mut self) {
        self.until = None;
        self.quick = 0;
        self.names = HashSet::new();
    }

    /// A quick group leaves memory.
    pub(super) fn remember(&mut self, name: &Group, number: u32) {
        if self.is_quick(number) && self.names.len() < NAMES_MAX {
            self.names.insert(name.clone());
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.names.len()
    }

    /// A group comes into memory: the number of the outbreak that it was quick in.
    pub(super) fn recall(&mut self, name: &Group) -> u32 {
        if self.names.remove(name) { self.number } else { 0 }
    }
}

impl Engine {
    /// Whether very many groups have turned slow at once, and are being told from the others.
    #[must_use]
    pub fn in_outbreak(&self) -> bool {
        self.upstream.outbreak.is_on()
    }

    /// Whether a group that has not shown to be quick may take a slot: in an outbreak such groups share three quarters of the slots, and
    /// take further ones while as many stay free as the quick hold.
    pub(super) fn takes_unknown(&self) -> bool {
        let (slots, quick) = (self.shared_slots(), self.upstream.outbreak.quick);
        let busy = self.shared_busy();
        let spare = quick.max(slots / SPARE).max(1);
        !self.in_outbreak() || busy - quick < slots - slots / 4 || busy + spare < slots
    }

    /// An outbreak ends when its time is over.
    pub(super) fn outbreak_timer(&mut self, now: Mono) {
        if self.upstream.outbreak.until.is_some_and(|until| until <= now) {
            self.upstream.outbreak.end();
        }
    }

    /// A group was found to be slow.
    pub(super) fn found_slow(&mut self, gid: u32) {
        self.set_quick(gid, false);
        // Slow groups hold more than their part when some take slots before they are known. One alone, with all its cap, is none.
        let most = self.settings.slow_slots(self.shared_slots());
        let many = if self.in_outbreak() { most } else { most + self.settings.default_cap() };
        if self.leases.slow > many {
            // By then every attempt that is under way has shown what it is, and those that come after it.
            let until = self.now.plus(self.settings.timeout.saturating_mul(2));
            self.upstream.outbreak.begin(until);
        }
    }

    /// An attempt of a group that is not slow ended after `took`.
    pub(super) fn shows_quick(&mut self, gid: u32, took: Duration) {
        if self.in_outbreak() && took < self.upstream.durations.slow_after(&self.settings) / QUICK {
            self.set_quick(gid, true);
        }
    }

    pub(super) fn set_quick(&mut self, gid: u32, quick: bool) {
        let outbreak = &mut self.upstream.outbreak;
        let Some(group) = self.groups.get_mut(gid) else { return };
        // With slots of its own a group takes none from others, and is none of those that are told apart.
        let quick = quick && group.own.is_none();
        let was = outbreak.is_quick(group.quick);
        group.quick = if quick { outbreak.number } else { 0 };
        match (was, outbreak.is_quick(group.quick)) {
            (false, true) => outbreak.quick += group.in_flight(),
            (true, false) => outbreak.quick -= group.in_flight(),
            _ => {}
        }
    }
}
