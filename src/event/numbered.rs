//! Maps by numbers that we give out ourselves.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by seqs, tickets or event ids. Nobody outside chooses these, so nobody can make them collide, and a multiplication is as good as the
/// keyed hash that names from outside need.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Numbered>>;

/// Spreads such numbers over a map.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbered(u64);

impl Hasher for Numbered {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut number = [0; 8];
            number.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The odd number is 2^64 / φ, which puts neighbours far apart (Knuth, The Art of Computer Programming 3, §6.4); both halves of the
        // product count, since numbers may differ in their high bits alone.
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;
    use crate::event::{EventId, Seq, Wall};

    fn hash(key: impl Hash) -> u64 {
        BuildHasherDefault::<Numbered>::default().hash_one(key)
    }

    /// How many of 65,536 places that many keys take: some 41,400 where they fall by chance.
    fn places(hashes: impl Iterator<Item = u64>) -> usize {
        hashes.map(|hash| hash & 0xFFFF).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn numbers_that_follow_one_another_are_spread_as_well_as_by_chance() {
        for step in [1, 2, 64, 1 << 16, 1 << 43] {
            let taken = places((0..65_536_u64).map(|number| hash(Seq(number.wrapping_mul(step)))));
            assert!(taken > 35_000, "{taken} places for steps of {step}");
        }
    }

    #[test]
    fn ids_of_one_moment_are_spread_too() {
        let id = |number: u64| {
            let mut random = [0; 10];
            random[2..].copy_from_slice(&number.wrapping_mul(0x5851_F42D_4C95_7F2D).to_le_bytes());
            EventId::new(Wall::from_unix_s(1_700_000_000), &random)
        };
        let taken = places((0..65_536).map(|number| hash(id(number))));
        assert!(taken > 35_000, "{taken} places");
    }
}
