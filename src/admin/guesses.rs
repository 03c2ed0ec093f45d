//! Wrong tokens are answered late: so that guessing takes for ever, and whoever has the right one never waits.
//!
//! Some may be wrong at once: people mistype. Then each answer of the address is held back, a second longer each time, up to a few. The right
//! token is looked at first and is never late, so nobody can lock the owner out, not even from the same address; how many answers are held
//! back at a time is bounded by the connections without a token ([`super::connections`]).

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use crate::event::Mono;

/// Wrong tokens of an address that are answered at once.
const FREE: u32 = 10;

/// After this long one more is.
const EVERY: Duration = Duration::from_secs(1);

/// No answer is held back longer: a script with an old token should still get to see why it fails.
const LATE_MAX: Duration = Duration::from_secs(5);

/// Addresses share so many accounts, so that no number of them takes more memory.
const ACCOUNTS: usize = 256;

/// How late the next wrong token of each address is answered.
pub(super) struct Guesses {
    /// When everything wrong so far is paid for.
    due: Mutex<Box<[Mono]>>,
    hash: RandomState,
}

impl Default for Guesses {
    fn default() -> Self {
        Self { due: Mutex::new(vec![Mono(0); ACCOUNTS].into()), hash: RandomState::new() }
    }
}

impl Guesses {
    /// A wrong token came from there: how long to hold the answer back.
    pub(super) fn wrong(&self, from: Option<IpAddr>, now: Mono) -> Duration {
        let place = usize::try_from(self.hash.hash_one(from) % ACCOUNTS as u64).unwrap_or(0);
        let mut all = self.due.lock();
        let Some(due) = all.get_mut(place) else { return Duration::ZERO };
        let owed = due.since(now);
        let late = owed.saturating_sub(EVERY * (FREE - 1)).min(LATE_MAX);
        *due = now.plus(owed.saturating_add(EVERY).min(EVERY * FREE + LATE_MAX));
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_answered_at_once_then_later_and_later_and_never_very_late() {
        let guesses = Guesses::default();
        let from = Some(IpAddr::from([10, 0, 0, 1]));
        let now = Mono(1_000_000_000);
        let late: Vec<u64> = (0..20).map(|_| guesses.wrong(from, now).as_secs()).collect();
        assert_eq!(late[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(late[19], LATE_MAX.as_secs());
        // Whatever was tried, it is soon forgotten.
        assert_eq!(guesses.wrong(from, now.plus(Duration::from_secs(16))), Duration::ZERO);
    }
}
