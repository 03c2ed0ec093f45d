//! How many events there are by moment, without a row each: when those of a bucket ended, when those that wait were received.
//!
//! Moments are told apart exactly as long as there are few different ones; beyond that, neighbours are counted together.

use std::collections::BTreeMap;

use super::wire::{Damaged, Reader, put_number};

/// Counts by moment in microseconds, of at most `MAX` moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moments<const MAX: usize> {
    /// How many low bits of a moment are not told apart.
    shift: u32,
    counts: BTreeMap<u64, u64>,
}

impl<const MAX: usize> Moments<MAX> {
    pub(super) fn add(&mut self, moment: u64) {
        *self.counts.entry(moment >> self.shift).or_default() += 1;
        while self.counts.len() > MAX {
            self.shift += 1;
            let fine = std::mem::take(&mut self.counts);
            for (moment, count) in fine {
                *self.counts.entry(moment >> 1).or_default() += count;
            }
        }
    }

    pub(super) fn remove(&mut self, moment: u64) {
        let key = moment >> self.shift;
        if let Some(count) = self.counts.get_mut(&key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&key);
                if self.counts.is_empty() {
                    self.shift = 0;
                }
            }
        }
    }

    /// The first moment, or one shortly before it.
    pub(super) fn first(&self) -> Option<u64> {
        self.counts.keys().next().map(|key| key << self.shift)
    }

    /// How many there are after `moment`, or shortly before it.
    pub(super) fn after(&self, moment: u64) -> u64 {
        let later = |key: u64| ((u128::from(key) + 1) << self.shift) - 1 > u128::from(moment);
        self.counts.iter().filter(|(key, _)| later(**key)).map(|(_, count)| count).sum()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, u64::from(self.shift));
        put_number(out, self.counts.len() as u64);
        for (&moment, &count) in &self.counts {
            put_number(out, moment);
            put_number(out, count);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let shift = reader.number_u32("the moments")?;
        if shift >= u64::BITS {
            return Err(Damaged("the moments"));
        }
        let counts = reader.list("the moments", |r| Ok((r.number("the moments")?, r.number("the moments")?)))?;
        Ok(Self { shift, counts: counts.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_moments_are_counted_exactly() {
        let mut ends = Moments::<256>::default();
        for moment in [5, 5, 9] {
            ends.add(moment);
        }
        assert_eq!([ends.after(4), ends.after(5), ends.after(9)], [3, 1, 0]);
        ends.remove(5);
        assert_eq!(ends.after(0), 2);
        let mut out = Vec::new();
        ends.put(&mut out);
        assert_eq!(Moments::read(&mut Reader::new(&out)), Ok(ends));
    }

    #[test]
    fn many_moments_take_bounded_room_and_none_is_lost() {
        let mut ends = Moments::<256>::default();
        (0..100_000).for_each(|moment| ends.add(moment));
        assert!(ends.counts.len() <= 256);
        assert_eq!(ends.after(0), 100_000);
        let late = ends.after(50_000);
        assert!((49_999..51_000).contains(&late), "{late}");
        let first = ends.first();
        (0..100_000).for_each(|moment| ends.remove(moment));
        assert_eq!((first, ends.after(0), ends.first()), (Some(0), 0, None));
        ends.add(77);
        assert_eq!(ends.first(), Some(77), "exact again");
    }
}
