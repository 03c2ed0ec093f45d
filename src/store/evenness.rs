//! Whether the wall clock may be believed about how old something is.
//!
//! Retention counts days of the wall clock, and what it gives up does not come back: a clock that was set to a wrong date must not take all
//! history with it. So nothing is given up for its age until the clock has run evenly, beside the one that nobody can set, for
//! [`EVEN_FOR`].

use std::time::Duration;

use crate::event::{Mono, Now};

/// Whoever set a clock wrong, or NTP, has had the time to put it right.
const EVEN_FOR: Duration = Duration::from_mins(10);

/// More than NTP corrects by itself in a step.
const SET_BY: Duration = Duration::from_mins(1);

/// How the wall clock has run so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evenness {
    /// A moment from which on it has run evenly.
    from: Option<Now>,
    /// When it was set, as far as that counts.
    set: Option<Mono>,
}

impl Evenness {
    /// Looks at the clocks: whether what the wall clock says of an age counts.
    pub(super) fn holds(&mut self, now: Now) -> bool {
        let from = *self.from.get_or_insert(now);
        let expected = from.wall.plus(now.mono.since(from.mono));
        let (ahead, behind) = (now.wall.since(expected), expected.since(now.wall));
        if ahead.max(behind) >= SET_BY {
            tracing::warn!(
                ahead_s = ahead.as_secs(),
                behind_s = behind.as_secs(),
                "the clock was set: for ten minutes no event is given up for its age"
            );
            *self = Self { from: Some(now), set: Some(now.mono) };
        }
        self.set = self.set.filter(|at| now.mono.since(*at) < EVEN_FOR);
        self.set.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Wall;

    fn at(mono_s: u64, wall_s: i64) -> Now {
        Now { mono: Mono(mono_s * 1_000_000), wall: Wall::from_unix_s(wall_s) }
    }

    #[test]
    fn a_clock_that_was_set_is_believed_when_it_has_run_evenly_for_ten_minutes() {
        let mut clock = Evenness::default();
        assert!(clock.holds(at(0, 1_000_000)));
        assert!(clock.holds(at(5_000, 1_005_020)), "NTP puts it right by seconds");
        assert!(!clock.holds(at(5_001, 9_000_000)), "forth");
        assert!(!clock.holds(at(5_300, 9_000_299)));
        assert!(!clock.holds(at(5_301, 1_005_301)), "and back: the ten minutes begin anew");
        assert!(!clock.holds(at(5_900, 1_005_900)));
        assert!(clock.holds(at(5_901, 1_005_901)));
    }

    #[test]
    fn days_of_sleep_are_no_setting() {
        let mut clock = Evenness::default();
        assert!(clock.holds(at(0, 0)));
        assert!(clock.holds(at(864_000, 864_000)), "the monotonic clock counts them too");
    }
}
