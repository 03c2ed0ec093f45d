//! When the events of a bucket ended: how many of them are still kept, without a row each.
//!
//! Moments are counted exactly as long as there are few different ones; beyond that, neighbours are counted together, and an event may
//! be counted a little longer than it is shown.

use std::collections::BTreeMap;

use super::wire::{Damaged, Reader, put_number};

/// Different moments that are told apart in one bucket.
const MOMENTS_MAX: usize = 256;

/// Counts of ends by moment, in microseconds from the bucket's beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// How many low bits of a moment are not told apart.
    shift: u32,
    counts: BTreeMap<u64, u64>,
}

impl Ends {
    pub(super) fn add(&mut self, moment: u64) {
        *self.counts.entry(moment >> self.shift).or_default() += 1;
        while self.counts.len() > MOMENTS_MAX {
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
            }
        }
    }

    /// How many ended after `moment`.
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
        let shift = reader.number_u32("ends")?;
        if shift >= u64::BITS {
            return Err(Damaged("ends"));
        }
        let counts = reader.list("ends", |r| Ok((r.number("ends")?, r.number("ends")?)))?;
        Ok(Self { shift, counts: counts.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_moments_are_counted_exactly() {
        let mut ends = Ends::default();
        for moment in [5, 5, 9] {
            ends.add(moment);
        }
        assert_eq!([ends.after(4), ends.after(5), ends.after(9)], [3, 1, 0]);
        ends.remove(5);
        assert_eq!(ends.after(0), 2);
        let mut out = Vec::new();
        ends.put(&mut out);
        assert_eq!(Ends::read(&mut Reader::new(&out)), Ok(ends));
    }

    #[test]
    fn many_moments_take_bounded_room_and_none_is_lost() {
        let mut ends = Ends::default();
        (0..100_000).for_each(|moment| ends.add(moment));
        assert!(ends.counts.len() <= MOMENTS_MAX);
        assert_eq!(ends.after(0), 100_000);
        let late = ends.after(50_000);
        assert!((49_999..51_000).contains(&late), "{late}");
        (0..100_000).for_each(|moment| ends.remove(moment));
        assert_eq!(ends.after(0), 0);
    }
}
