//! Which shard a group belongs to. Shards are fixed slices of all groups, the unit that moves between nodes; this function is fixed for
//! ever, since what lies in a shard stays there.
//!
//! Rendezvous hashing (Thaler and Ravishankar 1998): each shard draws a number for the key, the highest one wins. A different count of
//! shards moves only the keys that have to move.

use xxhash_rust::xxh3::xxh3_64;

use super::{Group, KEY_BYTES_MAX};

/// The number of a shard, and the longest written form: three bytes for each of the key's, and a mark.
const INPUT_BYTES_MAX: usize = 2 + 3 * KEY_BYTES_MAX + 1;

/// The shard of `group` among `shards` of them, from 0: XXH3-64 with seed 0 over the shard's number (two bytes, little endian) and the
/// bytes of the group's written form; the highest value wins, of equal ones the lower shard. With no shards the answer is 0.
#[must_use]
pub fn shard(group: &Group, shards: u16) -> u16 {
    let mut input = Vec::with_capacity(INPUT_BYTES_MAX);
    input.extend_from_slice(&[0; 2]);
    input.extend_from_slice(group.as_str().as_bytes());
    let mut best = (0, 0);
    for number in 0..shards {
        for (place, byte) in input.iter_mut().zip(number.to_le_bytes()) {
            *place = byte;
        }
        let drawn = xxh3_64(&input);
        if number == 0 || drawn > best.0 {
            best = (drawn, number);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // The empty input's value, from the algorithm's own test vectors.
        assert_eq!(xxh3_64(b""), 0x2D06_8005_38D3_94C2);
    }

    /// Fixed for ever: a change of this table would be another place for every group there is.
    #[test]
    fn groups_stay_where_they_are() {
        let at = |name: &str, shards| shard(&Group::from_written(name).unwrap(), shards);
        let found: Vec<(u16, u16)> =
            ["a.myshopify.com", "github~77", "caf%C3%A9", "~fallback"].map(|name| (at(name, 32), at(name, 64))).into();
        assert_eq!(found, VECTORS);
        assert_eq!((at("a", 1), at("a", 0)), (0, 0));
    }

    const VECTORS: [(u16, u16); 4] = [(22, 22), (4, 61), (23, 23), (20, 35)];

    #[test]
    fn more_shards_move_only_what_goes_to_the_new_ones() {
        for number in 0..2_000 {
            let group = Group::of(&[format!("store-{number}")]);
            let (before, after) = (shard(&group, 32), shard(&group, 40));
            assert!(after == before || after >= 32, "{group}: {before} to {after}");
        }
    }

    #[test]
    fn every_shard_gets_its_part() {
        let mut counts = [0_u32; 32];
        for number in 0..32_000 {
            counts[usize::from(shard(&Group::of(&[number.to_string()]), 32))] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
