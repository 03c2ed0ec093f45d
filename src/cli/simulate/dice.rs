//! Numbers that look random and are the same for the same seed.

use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): any seed gives a good sequence, and any two neighbouring ones different sequences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// From several numbers at once.
    pub(super) fn of(parts: &[u64]) -> Self {
        let mut dice = Self(0);
        for part in parts {
            dice = Self(dice.next() ^ part);
        }
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to just below 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// With this mean, and the shape of times between independent things.
    pub(super) fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_the_mean_and_neighbours_differ() {
        let mut dice = Dice::of(&[7]);
        let mean = Duration::from_millis(50);
        let sum: Duration = (0..20_000).map(|_| dice.exponential(mean)).sum();
        let got = sum.as_secs_f64() / 20_000.0;
        assert!((0.049..0.051).contains(&got), "{got}");
        assert_ne!(Dice::of(&[1, 2]).next(), Dice::of(&[1, 3]).next());
        assert_ne!(Dice::of(&[1, 2]).next(), Dice::of(&[2, 1]).next());
    }
}
