//! Shards, and the seqs of a store in shards.

use std::fmt;

use crate::event::Seq;

/// Bits of a seq that number the events of one shard; ten more above them say which shard. 53 bits in all are exact in JSON and in the
/// doubles of Redis and its scripts.
const NUMBER_BITS: u32 = 43;

/// Shards there may be. Seqs of the one after the last are those of a node's spool.
pub const SHARDS_MAX: u16 = (1 << (53 - NUMBER_BITS)) - 1;

/// A fixed slice of all groups, from 0: the unit that moves between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The seq of its `number`-th event, from 1; 0 stands before all of them.
    #[must_use]
    pub fn seq(self, number: u64) -> Seq {
        Seq((u64::from(self.0) << NUMBER_BITS) | (number & NUMBER_MAX))
    }

    /// Where a seq is, and its number there. A seq that no store in shards gives is in a shard that does not exist.
    #[must_use]
    pub fn of(seq: Seq) -> (Self, u64) {
        let shard = u16::try_from(seq.0 >> NUMBER_BITS).unwrap_or(u16::MAX);
        (Self(shard), seq.0 & NUMBER_MAX)
    }
}

/// The last number of a shard.
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seq_says_its_shard_and_number() {
        for shard in [0, 1, 63, SHARDS_MAX - 1].map(Shard) {
            for number in [0, 1, 1 << 40, NUMBER_MAX] {
                let seq = shard.seq(number);
                assert_eq!(Shard::of(seq), (shard, number));
                assert!(seq.0 < 1 << 53, "{seq}");
            }
        }
        assert_eq!(Shard(0).seq(7), Seq(7), "with one shard they are those of any other store");
        assert_eq!(Shard::of(Seq(u64::MAX)).0, Shard(u16::MAX));
    }
}
