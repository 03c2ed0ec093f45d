//! Rates, by the generic cell rate algorithm (ITU-T I.371): one number a limited thing, exact, nothing to refill.
//!
//! The number is the *theoretical arrival time* of the next event. It is kept in parts of a microsecond of which one event
//! takes a whole number, so that `10000/m` or `7/s` drift by nothing. A token may be taken up to [`TOLERANCE`] early, so that
//! a timer that fires late costs no throughput; over any span an upstream sees at most the rate and what fits the tolerance.

use std::time::Duration;

use super::Rate;
use crate::event::Mono;

/// Longer than timers are late, shorter than an upstream's own window.
const TOLERANCE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gcra {
    /// Theoretical arrival time, in microseconds × `events`.
    next: u128,
    events: u32,
}

impl Gcra {
    /// When a token can be had: `Ok` now, else the moment.
    pub(super) fn ready(&self, rate: Rate, now: Mono) -> Result<(), Mono> {
        let events = u128::from(rate.events.max(1));
        let early = self.next_in(rate).saturating_sub(slack(rate) * events);
        if early <= u128::from(now.0) * events {
            return Ok(());
        }
        Err(Mono(u64::try_from(early.div_ceil(events)).unwrap_or(u64::MAX)))
    }

    /// Takes a token, whether or not one could be had.
    pub(super) fn take(&mut self, rate: Rate, now: Mono) {
        let events = u128::from(rate.events.max(1));
        let start = self.next_in(rate).max(u128::from(now.0) * events);
        self.next = start + rate.per.as_micros().max(1);
        self.events = rate.events.max(1);
    }

    /// Whether forgetting it would change anything at `now`.
    pub(super) fn is_rested(&self, now: Mono) -> bool {
        self.next <= u128::from(now.0) * u128::from(self.events.max(1))
    }

    /// The time in the parts of `rate`; a changed rate keeps the moment.
    fn next_in(&self, rate: Rate) -> u128 {
        let (old, new) = (u128::from(self.events.max(1)), u128::from(rate.events.max(1)));
        if old == new { self.next } else { self.next * new / old }
    }
}

/// The tolerance, less the first event's own place in it.
fn slack(rate: Rate) -> u128 {
    let one = rate.per.as_micros() / u128::from(rate.events.max(1));
    TOLERANCE.as_micros().saturating_sub(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(events: u32, per_ms: u64) -> Rate {
        Rate { events, per: Duration::from_millis(per_ms) }
    }

    fn taken(gcra: &mut Gcra, rate: Rate, from: u64, span_ms: u64) -> u64 {
        let (mut now, mut count) = (Mono(from), 0);
        while now.0 < from + span_ms * 1_000 {
            match gcra.ready(rate, now) {
                Ok(()) => {
                    gcra.take(rate, now);
                    count += 1;
                }
                Err(at) => now = at,
            }
        }
        count
    }

    #[test]
    fn over_a_minute_exactly_the_rate_goes_and_one_tolerance() {
        assert_eq!(taken(&mut Gcra::default(), rate(7, 1_000), 1_000_000, 60_000), 420);
        assert_eq!(taken(&mut Gcra::default(), rate(500, 1_000), 1_000_000, 60_000), 30_000 + 49);
        assert_eq!(taken(&mut Gcra::default(), rate(10_000, 60_000), 1_000_000, 60_000), 10_000 + 16);
    }

    #[test]
    fn a_rest_earns_no_more_than_the_tolerance() {
        let (mut gcra, r) = (Gcra::default(), rate(100, 1_000));
        gcra.take(r, Mono(0));
        assert!(gcra.is_rested(Mono(10_000)));
        assert_eq!(taken(&mut gcra, r, 3_600_000_000, 1_000), 100 + 9);
    }

    #[test]
    fn a_changed_rate_keeps_the_moment() {
        let mut gcra = Gcra::default();
        gcra.take(rate(1, 10_000), Mono(0));
        assert_eq!(gcra.ready(rate(2, 10_000), Mono(0)), Err(Mono(10_000_000)));
    }
}
