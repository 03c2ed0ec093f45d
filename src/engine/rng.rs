//! The engine's only randomness: SplitMix64 (Steele, Lea, Flood 2014), seeded at construction (I9).

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..=max`; the bias of the multiplication is below 2⁻³⁰ for spans of minutes.
    pub(super) fn up_to(&mut self, max: u64) -> u64 {
        let product = u128::from(self.next()) * (u128::from(max) + 1);
        u64::try_from(product >> 64).unwrap_or(max)
    }

    /// Uniform between zero and `span`.
    pub(super) fn part_of(&mut self, span: Duration) -> Duration {
        Duration::from_micros(self.up_to(u64::try_from(span.as_micros()).unwrap_or(u64::MAX - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_all_of_the_span() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let drawn: Vec<u64> = (0..1_000).map(|_| a.up_to(9)).collect();
        assert_eq!(drawn, (0..1_000).map(|_| b.up_to(9)).collect::<Vec<_>>());
        for wanted in 0..=9 {
            let count = drawn.iter().filter(|n| **n == wanted).count();
            assert!((60..140).contains(&count), "{wanted} came {count} times of 1,000");
        }
    }
}
