//! The only `now()`.
//!
//! Two readings of one moment: `mono` (CLOCK_BOOTTIME, which also counts a machine's sleep)
//! for everything that waits, `wall` for what is stamped. A clock that is set back or forth
//! changes stamps and nothing else.

use crate::event::{Mono, Now, Wall};

/// Where time comes from. Two implementors: the system, and one that tests move by hand.
pub trait Clock: Send + Sync + 'static {
    /// Both readings of this moment.
    fn now(&self) -> Now;
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Now { mono: Mono(micros(&boot)), wall: wall() }
    }
}

/// Through the C library, as all other readings of this clock in the process (TLS, the runtime's): whoever puts another wall clock under a
/// process, as `tests/clock_steps.rs` does, does so there, and nobody is to see a second one.
#[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else uses")]
fn wall() -> Wall {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    // Before 1970 it is 1970.
    Wall(since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX)))
}

fn micros(time: &rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}

/// Lets one through a second: for lines of the log that senders, or a fault, could otherwise cause by the thousand.
#[derive(Debug, Default)]
pub struct Seldom {
    last: Option<Mono>,
    left_out: u64,
}

impl Seldom {
    /// Whether it may be said `now`; the answer is how often it was left out since it was said last.
    pub fn pass(&mut self, now: Mono) -> Option<u64> {
        if self.last.is_some_and(|last| now.since(last) < std::time::Duration::from_secs(1)) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct TestClock {
    now: parking_lot::Mutex<Now>,
}

impl TestClock {
    /// A clock at `wall`, its monotonic reading at one hour, so that tests may look back.
    #[must_use]
    pub fn at(wall: Wall) -> Self {
        Self { now: parking_lot::Mutex::new(Now { mono: Mono(3_600_000_000), wall }) }
    }

    /// Lets `span` pass on both readings.
    pub fn advance(&self, span: std::time::Duration) {
        let mut now = self.now.lock();
        *now = Now { mono: now.mono.plus(span), wall: now.wall.plus(span) };
    }

    /// Sets the wall clock alone, as an operator or NTP would.
    pub fn set_wall(&self, wall: Wall) {
        self.now.lock().wall = wall;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        *self.now.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_test_clock_moves_only_by_hand() {
        let clock = TestClock::at(Wall::from_unix_s(1_000));
        let before = clock.now();
        clock.advance(Duration::from_secs(5));
        clock.set_wall(Wall::from_unix_s(10));
        assert_eq!(clock.now().mono.since(before.mono), Duration::from_secs(5));
        assert_eq!(clock.now().wall, Wall::from_unix_s(10));
    }

    #[test]
    fn what_is_said_seldom_is_said_once_a_second_with_how_often_it_was_not() {
        let mut seldom = Seldom::default();
        let passed: Vec<Option<u64>> = [0, 60, 999, 1_000, 1_060, 2_500].map(|ms| seldom.pass(Mono(ms * 1_000))).into();
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn the_system_clock_is_in_this_century_and_never_runs_back() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(second.mono >= first.mono);
        assert!(first.wall > Wall::from_unix_s(1_700_000_000));
    }
}
