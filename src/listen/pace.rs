//! How often something may happen: so many at once, then one every so long.

use std::time::Duration;

use parking_lot::Mutex;

use crate::event::Mono;

/// A limit on how often something happens (GCRA: one moment is all it remembers).
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    /// What may come at once, as the time that it is worth.
    ahead: Duration,
    /// When everything that happened so far is paid for.
    due: Mutex<Mono>,
}

impl Pace {
    /// `at_once` of them, then one `every` so long.
    pub(super) fn new(at_once: u32, every: Duration) -> Self {
        Self { every, ahead: every.saturating_mul(at_once.saturating_sub(1)), due: Mutex::default() }
    }

    /// Whether it may happen now; then it counts as having happened.
    pub(super) fn take(&self, now: Mono) -> bool {
        let mut due = self.due.lock();
        let start = (*due).max(now);
        let may = start.since(now) <= self.ahead;
        if may {
            *due = start.plus(self.every);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_once_then_one_every_so_long() {
        let second = Duration::from_secs(1);
        let pace = Pace::new(3, second);
        let begin = Mono(5_000_000);
        let taken = |now: Mono| (0..10).filter(|_| pace.take(now)).count();
        assert_eq!(taken(begin), 3);
        assert_eq!(taken(begin.plus(second / 2)), 0);
        assert_eq!(taken(begin.plus(second)), 1);
        assert_eq!(taken(begin.plus(second * 100)), 3, "a long pause earns no more");
    }
}
