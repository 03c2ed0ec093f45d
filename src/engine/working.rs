//! For how long an event holds its order key: only time in which the upstream worked counts (R7).
//!
//! What is asked is whether the event is to blame, or the upstream. A success says that the upstream works: the clock of [`Working`] runs
//! from then on, in whatever group it was, until [`DOUBT`] events have failed for the first time without a success in between: that is what
//! an outage looks like. Further failures of an event that is known to fail say nothing new, however often it is repeated.
//!
//! An event that is alone has nobody to be compared with: what it was answered itself decides. A 500 to it alone is taken for its own fault.
//! No answer at all, or a 429, 502, 503 or 504, is what an upstream gives that is away or has too much to do: it counts only where another
//! event succeeded since the attempt before.

use std::time::Duration;

use super::fact::Ending;
use super::micros;
use crate::event::Mono;

/// So many events that fail for the first time, with no success in between, are taken for an outage. One is what a single event that can
/// never succeed looks like.
const DOUBT: u32 = 2;

/// The time in which the upstream worked.
#[derive(Debug, Default)]
pub(super) struct Working {
    /// Until when it was added up.
    at: Mono,
    us: u64,
    successes: u64,
    /// Events that failed for the first time since the last success.
    failed: u32,
}

impl Working {
    fn works(&self) -> bool {
        self.failed < DOUBT
    }

    fn advance(&mut self, now: Mono) {
        if self.works() {
            self.us += micros(now.since(self.at));
        }
        self.at = self.at.max(now);
    }

    /// An attempt ended: how, and whether the failure of what it was for is news.
    pub(super) fn ended(&mut self, ending: Ending, news: bool, now: Mono) {
        self.advance(now);
        if ending == Ending::Success {
            self.successes += 1;
            self.failed = 0;
        } else if news && matches!(ending, Ending::Server { .. } | Ending::NoAnswer) {
            self.failed = self.failed.saturating_add(1);
        }
    }

    /// The upstream's breaker is not closed.
    pub(super) fn doubt(&mut self, now: Mono) {
        self.advance(now);
        self.failed = self.failed.max(DOUBT);
    }
}

/// What is known of an event that holds its order key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// How long it has, as far as that counts.
    us: u64,
    /// What the clock showed at its last failure, and how many successes there were until then.
    clock_us: u64,
    successes: u64,
    /// At most so much of the time until the next one counts: what it waits beyond that is not for the upstream.
    most: Duration,
}

impl Held {
    /// The event fails for the first time in this process, and begins to hold its key.
    pub(super) fn begin(working: &Working) -> Self {
        Self { us: 0, clock_us: working.us, successes: working.successes, most: Duration::MAX }
    }

    /// It failed once more, this way; the answer is how long it has held its key.
    pub(super) fn failed(&mut self, ending: Ending, working: &Working) -> Duration {
        let alone = working.successes == self.successes;
        if !(alone && is_away(ending)) {
            self.us += working.us.saturating_sub(self.clock_us).min(micros(self.most));
        }
        self.clock_us = working.us;
        self.successes = working.successes;
        Duration::from_micros(self.us)
    }

    /// Its next attempt ends within this, unless it is kept from beginning.
    pub(super) fn waits(&mut self, most: Duration) {
        self.most = most;
    }
}

/// Whether that is what an upstream gives that is away, or has too much to do, and not one that cannot do with an event.
fn is_away(ending: Ending) -> bool {
    matches!(ending, Ending::NoAnswer | Ending::Cancelled | Ending::Server { status: 429 | 502..=504, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: Ending = Ending::Server { status: 500, retry_after: None };

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000)
    }

    /// An event that fails first at 0 and then at `again`, in a world where `others` end so.
    fn held(ending: Ending, others: &[(u64, Ending)], again: u64) -> u64 {
        let mut working = Working::default();
        working.ended(ending, true, at(0));
        let mut held = Held::begin(&working);
        for (when, ending) in others {
            working.ended(*ending, true, at(*when));
        }
        working.ended(ending, false, at(again));
        held.failed(ending, &working).as_secs()
    }

    #[test]
    fn alone_its_own_answer_decides() {
        assert_eq!(held(BAD, &[], 100), 100);
        assert_eq!(held(Ending::Client(404), &[], 100), 100);
        assert_eq!(held(Ending::NoAnswer, &[], 100), 0);
        for status in [429, 502, 503, 504] {
            assert_eq!(held(Ending::Server { status, retry_after: None }, &[], 100), 0, "{status}");
        }
    }

    #[test]
    fn beside_others_their_answers_decide() {
        assert_eq!(held(Ending::NoAnswer, &[(50, Ending::Success)], 100), 100);
        // Two failed, and nobody succeeded in between: an outage, until somebody does.
        assert_eq!(held(BAD, &[(30, BAD)], 100), 30);
        assert_eq!(held(BAD, &[(30, BAD), (80, Ending::Success)], 100), 50);
        // A refusal of another event says nothing about the upstream.
        assert_eq!(held(BAD, &[(30, Ending::Client(404))], 100), 100);
    }

    #[test]
    fn what_it_is_kept_waiting_for_beyond_its_time_does_not_count() {
        let mut working = Working::default();
        working.ended(BAD, true, at(0));
        let mut held = Held::begin(&working);
        held.waits(Duration::from_secs(10));
        working.ended(BAD, false, at(7_200));
        assert_eq!(held.failed(BAD, &working), Duration::from_secs(10));
    }

    #[test]
    fn with_the_breaker_open_no_time_counts() {
        let mut working = Working::default();
        working.ended(BAD, true, at(0));
        let mut held = Held::begin(&working);
        working.doubt(at(20));
        working.ended(BAD, false, at(100));
        assert_eq!(held.failed(BAD, &working), Duration::from_secs(20));
    }
}
