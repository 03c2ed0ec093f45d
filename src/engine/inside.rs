//! The lanes of one group that may go (R11), by what they have to do: anything, or only retries, only replays, only those two.
//!
//! Most groups have one lane, without a name; it needs no heap.

use super::tags::{Heap, Places, Turn};

/// What a lane or a group has to do; retries and replays need slots of their own (R6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// More than retries and replays.
    Open,
    /// Retries alone.
    Retry,
    /// Replays alone.
    Replay,
    /// Retries and replays.
    Either,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Open, Self::Retry, Self::Replay, Self::Either];
}

#[derive(Debug, Default)]
pub(super) struct Inside {
    /// The lane without a name, where it may go.
    plain: Option<(Turn, u32, Kind)>,
    parts: Option<Box<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    open: Heap<Turn>,
    retry: Heap<Turn>,
    replay: Heap<Turn>,
    either: Heap<Turn>,
}

impl Parts {
    fn of(&self, kind: Kind) -> &Heap<Turn> {
        match kind {
            Kind::Open => &self.open,
            Kind::Retry => &self.retry,
            Kind::Replay => &self.replay,
            Kind::Either => &self.either,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Heap<Turn> {
        match kind {
            Kind::Open => &mut self.open,
            Kind::Retry => &mut self.retry,
            Kind::Replay => &mut self.replay,
            Kind::Either => &mut self.either,
        }
    }
}

impl Inside {
    /// Puts a lane where it belongs; `plain` when it has no name.
    pub(super) fn set(&mut self, places: &mut Places, turn: Turn, lid: u32, kind: Kind, plain: bool) {
        if plain {
            self.plain = Some((turn, lid, kind));
            return;
        }
        let parts = self.parts.get_or_insert_default();
        for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
            parts.of_mut(other).remove(places, lid);
        }
        parts.of_mut(kind).set(places, turn, lid);
    }

    /// Takes a lane out.
    pub(super) fn remove(&mut self, places: &mut Places, lid: u32, plain: bool) {
        if plain {
            self.plain = None;
        } else if let Some(parts) = &mut self.parts {
            Kind::ALL.into_iter().for_each(|kind| parts.of_mut(kind).remove(places, lid));
            if Kind::ALL.into_iter().all(|kind| parts.of(kind).is_empty()) {
                self.parts = None;
            }
        }
    }

    /// The lane whose turn it is among those that have more to do than retries and replays.
    pub(super) fn first_open(&self) -> Option<(Turn, u32)> {
        self.first(Kind::Open)
    }

    /// The lane whose turn it is among the others that have a retry.
    pub(super) fn first_retry(&self) -> Option<(Turn, u32)> {
        self.first(Kind::Retry).into_iter().chain(self.first(Kind::Either)).min()
    }

    /// The lane whose turn it is among the others that have a replay.
    pub(super) fn first_replay(&self) -> Option<(Turn, u32)> {
        self.first(Kind::Replay).into_iter().chain(self.first(Kind::Either)).min()
    }

    fn first(&self, kind: Kind) -> Option<(Turn, u32)> {
        let plain = self.plain.filter(|(.., of)| *of == kind).map(|(turn, lid, _)| (turn, lid));
        let part = self.parts.as_ref().and_then(|parts| parts.of(kind).first());
        plain.into_iter().chain(part).min()
    }

    /// What all of them together have to do.
    pub(super) fn kind(&self) -> Kind {
        if self.first_open().is_some() {
            return Kind::Open;
        }
        match (self.first_retry().is_some(), self.first_replay().is_some()) {
            (true, true) => Kind::Either,
            (false, true) => Kind::Replay,
            (_, false) => Kind::Retry,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_none() && self.parts.is_none()
    }
}
