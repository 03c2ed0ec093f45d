//! From a hash to a number, eight bytes each: the table holds a part of the hash and the number, and what is meant is where the number
//! says, to be looked at when the hashes agree. A million take 16 MB, and what is not here is found out within one cache line.

/// A number, and a part of its hash that is not what its place follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    mark: u32,
    /// The number and 1; 0 where nobody is.
    number: u32,
}

impl Entry {
    fn number(self) -> Option<u32> {
        self.number.checked_sub(1)
    }
}

/// The smallest table.
const LEAST: usize = 64;

/// Open addressing: a number stands at its place or as near behind it as there was room, without a gap.
#[derive(Debug)]
pub(super) struct Index {
    /// As many as a power of two, at most five eighths full.
    entries: Vec<Entry>,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { entries: vec![Entry::default(); LEAST], len: 0 }
    }
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Those that have this hash, or nearly: mostly one, or nobody.
    pub(super) fn numbers(&self, hash: u64) -> impl Iterator<Item = u32> {
        self.marked(hash).map(|(_, number)| number)
    }

    /// A number that is not here yet.
    pub(super) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 8 > self.entries.len() * 5 {
            let double = vec![Entry::default(); self.entries.len() * 2];
            let old = std::mem::replace(&mut self.entries, double);
            old.into_iter().filter_map(Entry::number).for_each(|number| self.put(hash_of(number), number));
        }
        self.put(hash, number);
        self.len += 1;
    }

    /// Takes a number out. Those behind it move up, so that no gap is left before any of them.
    pub(super) fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let found = self.marked(hash).find(|(_, found)| *found == number).map(|(place, _)| place);
        let Some(mut gap) = found else { return };
        self.len -= 1;
        let mut place = gap;
        loop {
            place = (place + 1) & self.mask();
            let Some(entry) = self.entries.get(place).copied() else { break };
            let Some(number) = entry.number() else { break };
            let home = self.home(hash_of(number));
            // Is the gap on the way from its home to where it stands?
            if (place.wrapping_sub(home) & self.mask()) >= (place.wrapping_sub(gap) & self.mask()) {
                self.set(gap, entry);
                gap = place;
            }
        }
        self.set(gap, Entry::default());
    }

    /// Entries with the mark of `hash`, from its home on: places and numbers.
    fn marked(&self, hash: u64) -> impl Iterator<Item = (usize, u32)> {
        let (home, mark) = (self.home(hash), mark(hash));
        let places = (0..self.entries.len()).map(move |step| (home + step) & self.mask());
        let run = places.map_while(|place| {
            let entry = self.entries.get(place)?;
            Some((place, entry.mark, entry.number()?))
        });
        run.filter(move |(_, found, _)| *found == mark).map(|(place, _, number)| (place, number))
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask()
    }

    fn set(&mut self, place: usize, entry: Entry) {
        if let Some(here) = self.entries.get_mut(place) {
            *here = entry;
        }
    }

    fn put(&mut self, hash: u64, number: u32) {
        let mut place = self.home(hash);
        while self.entries.get(place).is_some_and(|entry| entry.number > 0) {
            place = (place + 1) & self.mask();
        }
        self.set(place, Entry { mark: mark(hash), number: number + 1 });
    }
}

fn mark(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Few homes and fewer marks, so that numbers meet all the time; the first six have the same hash.
    fn hash(number: u32) -> u64 {
        let n = u64::from(number / 6);
        ((n % 5) << 32) | (n * 7)
    }

    proptest! {
        #[test]
        fn it_finds_what_a_set_has(ops in prop::collection::vec((0u32..300, any::<bool>()), 0..900)) {
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            for (number, put) in ops {
                if put && model.insert(number) {
                    index.insert(hash(number), number, hash);
                } else if !put && model.remove(&number) {
                    index.remove(hash(number), number, hash);
                }
            }
            prop_assert_eq!(index.len(), model.len());
            for number in 0..300 {
                prop_assert_eq!(index.numbers(hash(number)).filter(|found| *found == number).count(), usize::from(model.contains(&number)));
            }
        }
    }
}
