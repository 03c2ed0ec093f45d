//! Which parts of the remote are asked to store new events, and which are left alone for a while.
//!
//! A part that did not take an append is *away* until its pause is over: new events do not wait for it but go to the spool. After that it
//! is tried again, by whoever comes first: the mover with events that it has in the spool, or, where there are none, the next
//! new one. While the mover tries, the pause goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::Mono;

/// Bounded by the number of parts.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Until when no new event tries a part.
    parts: BTreeMap<u16, Mono>,
    /// The same for all of them.
    all: Option<Mono>,
    /// What the log was told last.
    told: Told,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Well,
    Spooling,
}

impl Standing {
    /// `spooling`: there are events in the spool already.
    pub(super) fn new(spooling: bool) -> Self {
        let told = if spooling { Told::Spooling } else { Told::Well };
        Self { told, ..Self::default() }
    }

    /// Whether new events of a part are tried at the remote.
    pub(super) fn takes(&self, part: u16, now: Mono) -> bool {
        let over = |until: &Mono| *until <= now;
        self.all.as_ref().is_none_or(over) && self.parts.get(&part).is_none_or(over)
    }

    /// A part did not take an append.
    pub(super) fn failed(&mut self, part: u16, now: Mono, pause: Duration) {
        self.parts.insert(part, now.plus(pause));
    }

    /// A part that is away is being tried, which may take so long.
    pub(super) fn trying(&mut self, part: u16, now: Mono, patience: Duration) {
        if let Some(until) = self.parts.get_mut(&part) {
            *until = (*until).max(now.plus(patience));
        }
    }

    /// A part took an append.
    pub(super) fn took(&mut self, part: u16) {
        self.parts.remove(&part);
    }

    /// The remote does not answer at all.
    pub(super) fn silent(&mut self, now: Mono, pause: Duration) {
        self.all = Some(now.plus(pause));
    }

    /// It answers. That does not say which of its parts do.
    pub(super) fn answers(&mut self) {
        self.all = None;
    }

    /// Events go into the spool. True once, until the spool is empty again.
    pub(super) fn begins_to_spool(&mut self) -> bool {
        std::mem::replace(&mut self.told, Told::Spooling) == Told::Well
    }

    /// The spool is empty. True once.
    pub(super) fn ends_to_spool(&mut self) -> bool {
        std::mem::replace(&mut self.told, Told::Well) == Told::Spooling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000)
    }

    #[test]
    fn a_part_that_failed_is_left_alone_until_its_pause_is_over_and_the_others_are_not() {
        let mut standing = Standing::default();
        standing.failed(3, at(0), PAUSE);
        assert_eq!([2, 3].map(|part| standing.takes(part, at(999))), [true, false]);
        assert!(standing.takes(3, at(1_000)));
        standing.failed(3, at(1_000), PAUSE);
        standing.took(3);
        assert!(standing.takes(3, at(1_000)), "one that took an append is there at once");
    }

    #[test]
    fn while_the_mover_tries_nobody_else_does() {
        let mut standing = Standing::default();
        standing.failed(3, at(0), PAUSE);
        standing.trying(3, at(900), PAUSE * 5);
        standing.trying(4, at(900), PAUSE * 5);
        assert_eq!([3, 4].map(|part| standing.takes(part, at(5_800))), [false, true], "a part that is there stays so");
        assert!(standing.takes(3, at(5_900)));
    }

    #[test]
    fn a_silent_remote_is_left_alone_as_a_whole_and_its_answer_does_not_speak_for_its_parts() {
        let mut standing = Standing::default();
        standing.failed(3, at(0), PAUSE * 10);
        standing.silent(at(0), PAUSE);
        assert_eq!([2, 3].map(|part| standing.takes(part, at(10))), [false, false]);
        standing.answers();
        assert_eq!([2, 3].map(|part| standing.takes(part, at(10))), [true, false]);
    }

    #[test]
    fn an_outage_is_told_of_once_and_so_is_its_end() {
        let mut standing = Standing::default();
        assert!(!standing.ends_to_spool());
        assert_eq!([standing.begins_to_spool(), standing.begins_to_spool()], [true, false]);
        assert_eq!([standing.ends_to_spool(), standing.ends_to_spool()], [true, false]);
        assert!(Standing::new(true).ends_to_spool(), "what an earlier process began is ended by this one");
    }
}
