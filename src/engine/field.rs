//! Where ready groups stand: one heap for each set of gates that a group has to pass.
//!
//! Some conditions concern everybody at once: slow groups hold half of the slots, the slots are half busy, retries hold theirs,
//! the upstream's breaker is not closed. When such a gate closes or opens, no group may have to be looked at. So a ready group stands in
//! the heap of the gates that it needs open, and a pick compares the first of those heaps whose gates are: at most
//! a hundred and twenty-eight, however many groups there are.

use super::inside::Kind;
use super::tags::{Heap, Places, Turn};

/// The gates that a group needs open, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// A slot for slow groups (R4b).
    pub(super) const SLOW: Self = Self(1);
    /// Less than half of the slots busy (R4b, ramp).
    pub(super) const RAMP: Self = Self(2);
    /// A slot for retries (R6); with [`REPLAY`](Self::REPLAY), one of the two.
    pub(super) const RETRY: Self = Self(4);
    /// A closed breaker, or the turn of a probe (R8).
    pub(super) const SUSPECT: Self = Self(8);
    /// Not a gate: on which side of the round of probes it stands.
    pub(super) const SIDE: Self = Self(16);
    /// Not known to be quick in an outbreak (R4b).
    pub(super) const UNKNOWN: Self = Self(32);
    /// A slot for replays (R6).
    pub(super) const REPLAY: Self = Self(64);
    const COUNT: u8 = 128;

    pub(super) fn with(self, bit: Self, on: bool) -> Self {
        if on { Self(self.0 | bit.0) } else { self }
    }

    /// Of a group that has only this to do.
    pub(super) fn again(kind: Kind) -> Self {
        Self::default()
            .with(Self::RETRY, matches!(kind, Kind::Retry | Kind::Either))
            .with(Self::REPLAY, matches!(kind, Kind::Replay | Kind::Either))
    }

    /// Whether it needs a gate that may be closed while the upstream is well.
    pub(super) fn is_gated(self) -> bool {
        self.has(Self::SLOW) || self.has(Self::RAMP) || self.has(Self::RETRY) || self.has(Self::REPLAY)
    }

    /// Whether what it has to do finds a slot, where there is one for retries, or for replays.
    pub(super) fn has_slot(self, retry: bool, replay: bool) -> bool {
        match (self.has(Self::RETRY), self.has(Self::REPLAY)) {
            (false, false) => true,
            (for_retry, for_replay) => (for_retry && retry) || (for_replay && replay),
        }
    }

    pub(super) fn has(self, bit: Self) -> bool {
        self.0 & bit.0 != 0
    }
}

/// All ready groups.
#[derive(Debug)]
pub(super) struct Field {
    heaps: Vec<Heap<Turn>>,
    places: Places,
    /// Which heaps have somebody in them.
    occupied: u128,
    peeks: u64,
}

impl Default for Field {
    fn default() -> Self {
        Self {
            heaps: (0..Class::COUNT).map(|_| Heap::default()).collect(),
            places: Places::default(),
            occupied: 0,
            peeks: 0,
        }
    }
}

impl Field {
    pub(super) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Puts `id` into the heap of `class`, or moves it there within it.
    pub(super) fn set(&mut self, class: Class, turn: Turn, id: u32) {
        if let Some(heap) = self.heaps.get_mut(usize::from(class.0)) {
            heap.set(&mut self.places, turn, id);
            self.occupied |= 1 << class.0;
        }
    }

    /// Takes `id` out of the heap of `class`.
    pub(super) fn remove(&mut self, class: Class, id: u32) {
        if let Some(heap) = self.heaps.get_mut(usize::from(class.0)) {
            heap.remove(&mut self.places, id);
            if heap.is_empty() {
                self.occupied &= !(1 << class.0);
            }
        }
    }

    /// The lowest turn among the heaps whose gates are open.
    pub(super) fn first(&mut self, open: impl Fn(Class) -> bool) -> Option<(Class, u32)> {
        let mut rest = self.occupied;
        let mut best: Option<(Turn, u32, Class)> = None;
        while rest != 0 {
            let class = Class(rest.trailing_zeros() as u8);
            rest &= rest - 1;
            if !open(class) {
                continue;
            }
            self.peeks += 1;
            let found = self.heaps.get(usize::from(class.0)).and_then(Heap::first);
            if let Some((turn, id)) = found
                && best.is_none_or(|(other, other_id, _)| (turn, id) < (other, other_id))
            {
                best = Some((turn, id, class));
            }
        }
        best.map(|(_, id, class)| (class, id))
    }

    /// Nearly all of the next `n` groups of that class.
    pub(super) fn soon(&self, class: Class, n: usize) -> Vec<u32> {
        self.heaps.get(usize::from(class.0)).map(|heap| heap.soon(n)).unwrap_or_default()
    }

    /// Whether `id` stands in the heap of `class`, and there only.
    pub(super) fn holds(&self, class: Class, id: u32) -> bool {
        self.heaps.get(usize::from(class.0)).is_some_and(|heap| heap.holds(&self.places, id))
    }

    /// Whether `id` stands anywhere.
    pub(super) fn holds_anywhere(&self, id: u32) -> bool {
        self.heaps.iter().any(|heap| heap.holds(&self.places, id))
    }

    pub(super) fn len(&self) -> usize {
        self.heaps.iter().map(Heap::len).sum()
    }

    /// Comparisons and peeks so far.
    pub(super) fn steps(&self) -> u64 {
        self.peeks + self.heaps.iter().map(Heap::steps).sum::<u64>()
    }
}
