//! What attempts take: estimates for the price of a lease (R2), the upstream's median for what is slow (R4b).

use std::time::Duration;

use super::{Charge, Rate, Settings};

/// The price of a first attempt to an upstream nobody has called yet.
const FIRST_GUESS_US: u64 = 50_000;

/// Cost of one lease with [`Charge::Events`].
const EVENT_US: u64 = 1_000_000;

/// A moving average of durations: α = 0.2, the first sample replaces it. Whole microseconds; [`NONE`] before the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ewma(u64);

const NONE: u64 = u64::MAX;

impl Default for Ewma {
    fn default() -> Self {
        Self(NONE)
    }
}

impl Ewma {
    pub(super) fn add(&mut self, sample_us: u64) {
        self.0 = match self.0 {
            NONE => sample_us,
            old => (old * 4 + sample_us) / 5,
        };
    }

    pub(super) fn micros(self) -> Option<u64> {
        (self.0 != NONE).then_some(self.0)
    }
}

/// What a lease with an attempt of `time_us` costs, in microseconds of one slot.
pub(super) fn price(settings: &Settings, time_us: u64) -> u64 {
    match settings.charge {
        Charge::Events => EVENT_US,
        Charge::Time => keeps(settings, time_us),
    }
}

/// For how long an attempt of `time_us` keeps a slot, or the part of the rate that stands for one, from others.
pub(super) fn keeps(settings: &Settings, time_us: u64) -> u64 {
    time_us.max(settings.rate.map_or(0, |rate| rate_price(settings.slots, rate)))
}

/// Where a rate binds and not the slots, an attempt takes its part of the rate: the time for which it would hold one of
/// `slots` if they were what binds.
fn rate_price(slots: u32, rate: Rate) -> u64 {
    let price = rate.per.as_micros() * u128::from(slots) / u128::from(rate.events.max(1));
    u64::try_from(price).unwrap_or(u64::MAX)
}

/// Buckets a doubling: a bucket is at most 19 % wide, which is plenty for a median that is multiplied by four.
const PER_DOUBLING: usize = 4;
const BUCKETS: usize = 40 * PER_DOUBLING;

/// So many samples, then all count half: the median follows the last few thousand attempts.
const SAMPLES_MAX: u32 = 4_096;

/// How long attempts of the whole upstream take, as a histogram with four buckets a doubling.
#[derive(Debug)]
pub(super) struct Durations {
    counts: Vec<u32>,
    total: u32,
    median_us: Option<u64>,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, median_us: None }
    }
}

impl Durations {
    pub(super) fn add(&mut self, sample_us: u64) {
        if let Some(count) = self.counts.get_mut(bucket(sample_us)) {
            *count += 1;
            self.total += 1;
        }
        if self.total >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        // Few samples: each counts. Many: the median hardly moves, and walking the buckets is not free.
        if self.total < 64 || self.total.is_multiple_of(32) {
            self.median_us = Some(self.quantile(1, 2));
        }
    }

    /// `None` before the first sample.
    pub(super) fn median_us(&self) -> Option<u64> {
        self.median_us
    }

    fn quantile(&self, part: u32, of: u32) -> u64 {
        let wanted = (u64::from(self.total) * u64::from(part)).div_ceil(u64::from(of)).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return bucket_top(index);
            }
        }
        0
    }

    /// What a lane without samples of its own is thought to take. The median and not a mean: eight groups that hang must
    /// not make the first event of everybody else dear.
    pub(super) fn guess_us(&self) -> u64 {
        self.median_us.unwrap_or(FIRST_GUESS_US)
    }

    /// From how long on an attempt is slow.
    pub(super) fn slow_after(&self, settings: &Settings) -> Duration {
        let relative = self.median_us.unwrap_or(0).saturating_mul(u64::from(settings.slow.factor));
        settings.slow.after.max(Duration::from_micros(relative))
    }
}

/// The bucket of a duration: its power of two and the two bits below.
pub(super) fn bucket(us: u64) -> usize {
    if us < PER_DOUBLING as u64 {
        return us as usize;
    }
    let power = us.ilog2() as usize;
    let quarter = ((us >> (power - 2)) & 3) as usize;
    ((power - 1) * PER_DOUBLING + quarter).min(BUCKETS - 1)
}

/// The largest duration of a bucket.
pub(super) fn bucket_top(index: usize) -> u64 {
    if index < PER_DOUBLING {
        return index as u64;
    }
    let (power, quarter) = (index / PER_DOUBLING + 1, (index % PER_DOUBLING) as u64);
    ((5 + quarter) << (power - 2)) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_holds_what_falls_into_it(us in 0u64..(1 << 40)) {
            let index = bucket(us);
            prop_assert!(us <= bucket_top(index));
            prop_assert!(index == 0 || us > bucket_top(index - 1));
            prop_assert!(bucket_top(index) as f64 <= us as f64 * 1.25 + 1.0);
        }
    }

    #[test]
    fn the_median_follows_and_outliers_do_not_move_it() {
        let mut durations = Durations::default();
        assert_eq!(durations.guess_us(), FIRST_GUESS_US);
        for i in 0..10_000 {
            durations.add(if i % 10 == 0 { 20_000_000 } else { 50_000 });
        }
        let median = durations.median_us().unwrap();
        assert!((50_000..62_500).contains(&median), "{median}");
        assert_eq!(durations.slow_after(&Settings::default()), Duration::from_secs(1));
    }

    #[test]
    fn a_price_is_the_time_or_the_part_of_the_rate() {
        let mut settings = Settings::default();
        assert_eq!(price(&settings, 20_000), 20_000);
        settings.rate = Some(Rate { events: 500, per: Duration::from_secs(1) });
        assert_eq!(price(&settings, 20_000), 128_000);
        assert_eq!(price(&settings, 200_000), 200_000);
        settings.charge = Charge::Events;
        assert_eq!(price(&settings, 200_000), 1_000_000);
    }

    #[test]
    fn the_first_sample_replaces_the_average() {
        let mut ewma = Ewma::default();
        ewma.add(1_000);
        assert_eq!(ewma.micros(), Some(1_000));
        ewma.add(2_000);
        assert_eq!(ewma.micros(), Some(1_200));
    }
}
