//! Who should own what: pure functions of the nodes that live. Every node computes them by itself, from what all of them see.
//!
//! *Shards*: rendezvous hashing (Thaler and Ravishankar 1998) of node and shard, so that a node that comes or goes moves only the shards
//! that must move. *Slots*: a floor for every node, the rest by the weight of the groups that wait there.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64;

/// The node that should own `shard`: XXH3-64 with seed 0 over the node's name and the shard's number (two bytes, little endian); the
/// highest value wins, of equal ones the name that sorts first. `None` without nodes.
#[must_use]
pub fn target<'a>(shard: u16, nodes: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let drawn = nodes.into_iter().map(|node| {
        let input: Vec<u8> = node.bytes().chain(shard.to_le_bytes()).collect();
        (xxh3_64(&input), std::cmp::Reverse(node))
    });
    drawn.max().map(|(_, std::cmp::Reverse(node))| node)
}

/// The nodes that own shards: those that live and stay, but no more than there are slots, for one without a slot delivers nothing.
#[must_use]
pub fn owners<'a>(staying: &BTreeSet<&'a str>, slots: u32) -> BTreeSet<&'a str> {
    staying.iter().copied().take(usize::try_from(slots).unwrap_or(usize::MAX)).collect()
}

/// What one node has to do about shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// To ask for: they should be its own, and nobody says that they are his.
    pub claim: BTreeSet<u16>,
    /// To give up, in order: they should be another one's that is there to take them.
    pub leave: BTreeSet<u16>,
}

/// What `node` has to do with `shards` shards: `held` are its own, `others` those that other living nodes say they hold. A node that is
/// not among `owners` claims nothing and leaves everything that somebody else can take.
#[must_use]
pub fn moves(node: &str, shards: u16, owners: &BTreeSet<&str>, held: &BTreeSet<u16>, others: &BTreeSet<u16>) -> Moves {
    let mut moves = Moves::default();
    for shard in 0..shards {
        let ours = target(shard, owners.iter().copied()).map(|target| target == node);
        match (ours, held.contains(&shard)) {
            (Some(true), false) if !others.contains(&shard) => drop(moves.claim.insert(shard)),
            (Some(false), true) => drop(moves.leave.insert(shard)),
            _ => {}
        }
    }
    moves
}

/// Splits `slots` among nodes by their weights: each gets `max(1, slots / (4 · nodes))`, the rest goes by weight, evenly where nobody has
/// any. Adds up to `slots` exactly. With more nodes than slots the first ones by name get one each.
#[must_use]
pub fn split<'a>(slots: u32, weights: &BTreeMap<&'a str, u64>) -> BTreeMap<&'a str, u32> {
    let nodes = u32::try_from(weights.len()).unwrap_or(u32::MAX);
    if nodes >= slots {
        let one = |(at, node): (usize, &&'a str)| (*node, u32::from(at < usize::try_from(slots).unwrap_or(usize::MAX)));
        return weights.keys().enumerate().map(one).collect();
    }
    let floor = (slots / nodes.saturating_mul(4).max(1)).max(1);
    let rest = u128::from(slots - floor * nodes);
    let sum: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
    let part = |weight: u64| {
        let (weight, sum) = if sum == 0 { (1, u128::from(nodes)) } else { (u128::from(weight), sum) };
        ((rest * weight / sum), (rest * weight % sum))
    };
    let mut shares: BTreeMap<&str, u32> = BTreeMap::new();
    let mut remainders = Vec::new();
    for (node, weight) in weights {
        let (whole, remainder) = part(*weight);
        shares.insert(node, floor + u32::try_from(whole).unwrap_or(u32::MAX));
        remainders.push((std::cmp::Reverse(remainder), *node));
    }
    remainders.sort_unstable();
    let given: u32 = shares.values().sum();
    for (_, node) in remainders.into_iter().take((slots - given) as usize) {
        *shares.entry(node).or_default() += 1;
    }
    shares
}

/// A node's part of the slots as it moves: what it may use changes at once only downwards, and upwards when the others have made room.
/// This is the rule of the step in Redis; it is here so that it can be tested for every sequence.
///
/// `total`: all slots. `others`: what all others may use at most, lost ones included while they rest. `had`: what this node was granted
/// before. `busy`: its attempts in flight. `wants`: what it should have.
#[must_use]
pub fn grant(total: u32, others: u32, had: u32, busy: u32, wants: u32) -> u32 {
    let free = total.saturating_sub(others);
    // What is in flight cannot be given back before it ends; it was granted once.
    wants.min(free).max(busy.min(had))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fixed for ever: with another answer two versions would both think that a shard is theirs, and it would move for ever.
    #[test]
    fn the_owner_of_a_shard_is_agreed_on() {
        let three = ["node-a", "node-b", "node-c"];
        let found: Vec<&str> = (0..8).filter_map(|shard| target(shard, three)).collect();
        assert_eq!(found, OWNERS);
        assert_eq!(target(7, ["x"]), Some("x"));
        assert_eq!(target(7, []), None);
    }

    const OWNERS: [&str; 8] = ["node-a", "node-a", "node-c", "node-b", "node-b", "node-c", "node-b", "node-b"];

    #[test]
    fn slots_go_by_weight_above_a_floor() {
        let split = |slots, weights: &[(&'static str, u64)]| -> Vec<u32> {
            split(slots, &weights.iter().copied().collect()).into_values().collect()
        };
        assert_eq!(split(64, &[("a", 1)]), [64]);
        assert_eq!(split(64, &[("a", 0), ("b", 0)]), [32, 32]);
        assert_eq!(split(64, &[("a", 0), ("b", 0), ("c", 0)]), [22, 21, 21]);
        assert_eq!(split(64, &[("a", 1_000), ("b", 0)]), [56, 8], "the floor is an eighth with two nodes");
        assert_eq!(split(64, &[("a", 1_000), ("b", 3_000)]), [20, 44]);
        assert_eq!(split(2, &[("a", 5), ("b", 5), ("c", 5)]), [1, 1, 0]);
        assert_eq!(split(3, &[("a", 5), ("b", 0)]), [2, 1]);
        assert_eq!(split(8, &[]), [0; 0]);
    }

    fn nodes() -> impl Strategy<Value = BTreeMap<String, u64>> {
        prop::collection::btree_map("[a-z]{1,6}", prop_oneof![Just(0), 0u64..100_000], 1..12)
    }

    proptest! {
        /// Everything is given out, nobody gets less than the floor, and more weight never means fewer slots.
        #[test]
        fn a_split_is_whole_and_fair(slots in 1u32..500, weights in nodes()) {
            let weights: BTreeMap<&str, u64> = weights.iter().map(|(node, weight)| (node.as_str(), *weight)).collect();
            let shares = split(slots, &weights);
            prop_assert_eq!(shares.values().sum::<u32>(), slots);
            let nodes = weights.len() as u32;
            if nodes < slots {
                let floor = (slots / (4 * nodes)).max(1);
                prop_assert!(shares.values().all(|share| *share >= floor));
                for (a, heavy) in &weights {
                    for (b, light) in &weights {
                        prop_assert!(heavy <= light || shares[a] >= shares[b], "{} {} {:?}", a, b, shares);
                    }
                }
            }
        }

        /// A node that comes takes shards and gives none around; one that goes gives its own away and no others move.
        #[test]
        fn only_what_must_move_moves(names in prop::collection::btree_set("[a-z]{1,6}", 2..9), shards in 1u16..200) {
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            let (gone, rest) = all.split_first().unwrap();
            for shard in 0..shards {
                let with = target(shard, all.iter().copied()).unwrap();
                let without = target(shard, rest.iter().copied()).unwrap();
                prop_assert!(with == without || with == *gone);
            }
        }

        /// When everybody sees the same, each shard is claimed or kept by exactly one node, and nobody leaves what nobody takes.
        #[test]
        fn every_shard_finds_one_owner(names in prop::collection::btree_set("[a-z]{1,6}", 1..7), shards in 1u16..100, at in any::<u64>()) {
            let owners: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            let all: Vec<&str> = owners.iter().copied().collect();
            // Anybody holds anything to begin with.
            let mut held: BTreeMap<&str, BTreeSet<u16>> = all.iter().map(|node| (*node, BTreeSet::new())).collect();
            for shard in 0..shards {
                let node = all[(xxh3_64(&shard.to_le_bytes()).wrapping_add(at) % (all.len() as u64 + 1)) as usize % all.len()];
                held.get_mut(node).unwrap().insert(shard);
            }
            for _ in 0..2 {
                let before = held.clone();
                for node in &all {
                    let others = before.iter().filter(|(other, _)| *other != node).flat_map(|(_, held)| held).copied().collect();
                    let moves = moves(node, shards, &owners, &before[node], &others);
                    let mine = held.get_mut(node).unwrap();
                    mine.retain(|shard| !moves.leave.contains(shard));
                    mine.extend(moves.claim);
                }
            }
            let mut owned: Vec<u16> = held.values().flatten().copied().collect();
            owned.sort_unstable();
            prop_assert_eq!(owned, (0..shards).collect::<Vec<_>>());
        }

        /// Whatever the nodes want and whenever they ask, crash and end: together they never have more than there is, and in the end each
        /// has what it should have.
        #[test]
        fn grants_never_exceed_the_total(
            total in 1u32..80,
            asks in prop::collection::vec((0usize..4, 0u64..50, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let names = ["a", "b", "c", "d"];
            let mut had = [0u32; 4];
            let mut busy = [0u32; 4];
            let mut resting: Vec<u32> = Vec::new();
            let mut weights = [0u64; 4];
            for (node, weight, crashes, rests) in asks {
                weights[node] = weight;
                if crashes {
                    resting.push(std::mem::take(&mut had[node]));
                    busy[node] = 0;
                }
                if rests {
                    resting.pop();
                }
                let wanted = split(total, &names.iter().copied().zip(weights).collect());
                let others = had.iter().sum::<u32>() - had[node] + resting.iter().sum::<u32>();
                had[node] = grant(total, others, had[node], busy[node], wanted[names[node]]);
                busy[node] = busy[node].max(had[node].saturating_sub((weight % 3) as u32)).min(had[node]);
                prop_assert!(had.iter().sum::<u32>() + resting.iter().sum::<u32>() <= total);
            }
            resting.clear();
            busy = [0; 4];
            let wanted = split(total, &names.iter().copied().zip(weights).collect());
            for _ in 0..2 {
                for node in 0..4 {
                    let others = had.iter().sum::<u32>() - had[node];
                    had[node] = grant(total, others, had[node], busy[node], wanted[names[node]]);
                }
            }
            prop_assert_eq!(names.map(|name| wanted[name]), had);
        }
    }
}
