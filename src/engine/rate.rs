//! Rates, by the generic cell rate algorithm (ITU-T I.371): one number a limited thing, exact, nothing to refill.
//!
//! The number is the *theoretical arrival time* of the next event. It is kept in parts of a microsecond of which one event
//! takes a whole number, so that `10000/m` or `7/s` drift by nothing. A token may be taken up to [`TOLERANCE`] early, so that
//! a timer that fires late costs no throughput; in any span an upstream sees at most one more than the rate allows in the span and the tolerance.

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
        let early = self.next_in(rate).saturating_sub(TOLERANCE.as_micros() * events);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn over_a_minute_exactly_the_rate_goes_and_what_fits_the_tolerance() {
        assert_eq!(taken(&mut Gcra::default(), rate(7, 1_000), 1_000_000, 60_000), 421);
        assert_eq!(taken(&mut Gcra::default(), rate(500, 1_000), 1_000_000, 60_000), 30_050);
        assert_eq!(taken(&mut Gcra::default(), rate(10_000, 60_000), 1_000_000, 60_000), 10_017);
    }

    #[test]
    fn a_rest_earns_no_more_than_the_tolerance() {
        let (mut gcra, r) = (Gcra::default(), rate(100, 1_000));
        gcra.take(r, Mono(0));
        assert!(gcra.is_rested(Mono(10_000)));
        assert_eq!(taken(&mut gcra, r, 3_600_000_000, 1_000), 100 + 10);
    }

    #[test]
    fn a_changed_rate_keeps_the_moment() {
        let mut gcra = Gcra::default();
        gcra.take(rate(1, 10_000), Mono(0));
        assert_eq!(gcra.ready(rate(2, 10_000), Mono(0)), Err(Mono(9_900_000)));
    }

    proptest! {
        /// However its users come, early, late or in piles: no span has more than the rate and the tolerance allow.
        #[test]
        fn no_span_has_more_than_the_rate(events in 1u32..2_000, per_ms in 100u64..100_000, steps in prop::collection::vec(0u64..300_000, 1..200)) {
            let (mut gcra, r) = (Gcra::default(), rate(events, per_ms));
            let mut now = Mono(1_000_000);
            let mut taken = Vec::new();
            for step in steps {
                now = Mono(now.0 + step);
                while taken.len() < 2_000 && gcra.ready(r, now).is_ok() {
                    gcra.take(r, now);
                    taken.push(now.0);
                }
            }
            let one_us = per_ms as f64 * 1_000.0 / f64::from(events);
            for (i, from) in taken.iter().enumerate() {
                for (j, to) in taken.iter().enumerate().skip(i) {
                    let allowed = (to - from) as f64 / one_us + 100_000.0 / one_us + 1.0;
                    prop_assert!((j - i + 1) as f64 <= allowed + 1e-6);
                    if j > i + 50 { break; }
                }
            }
        }

        /// A user who always wants one, and is up to 50 ms late, loses nothing.
        #[test]
        fn lateness_within_the_tolerance_costs_nothing(events in 1u32..50, late in prop::collection::vec(0u64..50_000, 400)) {
            let (mut gcra, r) = (Gcra::default(), rate(events, 1_000));
            let mut now = Mono(1_000_000);
            for late in &late {
                if let Err(at) = gcra.ready(r, now) {
                    now = Mono(at.0 + late);
                }
                prop_assert!(gcra.ready(r, now).is_ok());
                gcra.take(r, now);
            }
            let fair = 1_000_000.0 / f64::from(events) * 399.0;
            prop_assert!((now.0 - 1_000_000) as f64 <= fair + 50_000.0);
        }
    }
}
