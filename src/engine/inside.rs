//! The lanes of one group that may go (R11): those with something to do, and those with only retries to do.
//!
//! Most groups have one lane, without a name; it needs no heap.

use super::tags::{Heap, Places, Turn};

#[derive(Debug, Default)]
pub(super) struct Inside {
    /// The lane without a name, where it may go; true when it has more to do than retries.
    plain: Option<(Turn, u32, bool)>,
    parts: Option<Box<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    open: Heap<Turn>,
    retry_only: Heap<Turn>,
}

impl Inside {
    /// Puts a lane where it belongs; `open` when it has more to do than retries, `plain` when it has no name.
    pub(super) fn set(&mut self, places: &mut Places, turn: Turn, lid: u32, open: bool, plain: bool) {
        if plain {
            self.plain = Some((turn, lid, open));
            return;
        }
        let Parts { open: to, retry_only: from } = &mut **self.parts.get_or_insert_default();
        let (to, from) = if open { (to, from) } else { (from, to) };
        from.remove(places, lid);
        to.set(places, turn, lid);
    }

    /// Takes a lane out.
    pub(super) fn remove(&mut self, places: &mut Places, lid: u32, plain: bool) {
        if plain {
            self.plain = None;
        } else if let Some(parts) = &mut self.parts {
            parts.open.remove(places, lid);
            parts.retry_only.remove(places, lid);
            if parts.open.is_empty() && parts.retry_only.is_empty() {
                self.parts = None;
            }
        }
    }

    /// The lane whose turn it is among those with more to do than retries.
    pub(super) fn first_open(&self) -> Option<(Turn, u32)> {
        let plain = self.plain.filter(|(.., open)| *open).map(|(turn, lid, _)| (turn, lid));
        let part = self.parts.as_ref().and_then(|parts| parts.open.first());
        plain.into_iter().chain(part).min()
    }

    /// The lane whose turn it is among those with only retries.
    pub(super) fn first_retry(&self) -> Option<(Turn, u32)> {
        let plain = self.plain.filter(|(.., open)| !*open).map(|(turn, lid, _)| (turn, lid));
        let part = self.parts.as_ref().and_then(|parts| parts.retry_only.first());
        plain.into_iter().chain(part).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_none() && self.parts.is_none()
    }
}
