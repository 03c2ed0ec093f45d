//! Which address an attempt goes to.
//!
//! Without `sticky` the addresses take turns by weight, smoothly: each turn every address is credited its weight, the one with most is
//! chosen and pays what all were credited, so that 2 to 1 goes a b a and not a a b. Of that Pingora's own weighted choice was not
//! taken: it gives an address all of its weight in one run, looks past the weights when its first choice is out, and cannot
//! change a weight without being built anew, which a slow start does all the time.
//!
//! With `sticky: group` the group decides, on Pingora's ketama ring: a group's first address there is its home, and while that is out the
//! next one on the ring takes its place, so that the groups of a lost address spread over all the others.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use pingora_load_balancing::Backend;
use pingora_load_balancing::selection::{BackendIter as _, BackendSelection as _, Consistent};
use sha2::{Digest as _, Sha256};

use crate::event::Group;

/// Points on the ring are weight times 160; so much weight of one address is enough to tell shares of a fiftieth.
const RING_WEIGHT_MAX: u32 = 50;

/// Without `sticky`, an address may have this many times its share of what is in flight, and [`SPARE`] more. One that hangs would
/// otherwise gather every slot, one turn after the other.
const LOAD: f64 = 1.5;
/// Attempts in flight that are no pattern yet.
const SPARE: f64 = 2.0;

/// An address that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) index: usize,
    /// What it is owed from earlier turns.
    pub(super) credit: f64,
    /// Its weight as it counts now, above 0.
    pub(super) weight: f64,
    pub(super) in_flight: u32,
}

/// Takes the next turn: who is chosen, with everybody's credit brought up to date. None only among none.
pub(super) fn by_turns(candidates: &mut [Candidate]) -> Option<usize> {
    let weights: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let load: f64 = candidates.iter().map(|candidate| f64::from(candidate.in_flight)).sum();
    for candidate in candidates.iter_mut() {
        candidate.credit = (candidate.credit + candidate.weight).min(weights);
    }
    let fits = |c: &&mut Candidate| f64::from(c.in_flight) <= LOAD * load * c.weight / weights + SPARE;
    // Not all can have more than their share, so there is always one that fits.
    let chosen = candidates.iter_mut().filter(fits).max_by(|a, b| a.credit.total_cmp(&b.credit))?;
    // Credit is bounded both ways: one that was passed over for its load does not come back to a long run of turns.
    chosen.credit = (chosen.credit - weights).max(-weights);
    Some(chosen.index)
}

/// The homes of groups.
pub(super) struct Ring {
    ring: Arc<Consistent>,
    places: HashMap<SocketAddr, usize>,
}

impl Ring {
    /// A ring of these addresses and their weights.
    pub(super) fn new<'a>(addresses: impl Iterator<Item = (&'a str, u32)> + Clone) -> Self {
        let most = addresses.clone().map(|(_, weight)| weight).max().unwrap_or(1);
        let weight = |weight: u32| (weight * RING_WEIGHT_MAX.min(most)).div_ceil(most).max(1);
        let of = |(label, own): (&str, u32)| backend(label, weight(own));
        let backends: BTreeSet<Backend> = addresses.clone().map(of).collect();
        let places = addresses.enumerate().map(|(index, (label, _))| (stand_in(label), index)).collect();
        Self { ring: Arc::new(Consistent::build(&backends)), places }
    }

    /// The first address on the way round from the group's place that `takes` it.
    pub(super) fn home(&self, group: &Group, mut takes: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut way = self.ring.iter(group.as_str().as_bytes());
        let mut met = vec![false; self.places.len()];
        let mut left = met.len();
        while left > 0 {
            let index = *self.places.get(way.next()?.addr.as_inet()?)?;
            match met.get_mut(index) {
                Some(met) if !*met => *met = true,
                _ => continue,
            }
            if takes(index) {
                return Some(index);
            }
            left -= 1;
        }
        None
    }
}

/// Where a group stands between 0 and 1 for an address that grows: below its share it goes home already, so that its groups come back
/// one after the other, and each once.
pub(super) fn rank(group: &Group, address: &str) -> f64 {
    let mut hash = DefaultHasher::new();
    (group, address).hash(&mut hash);
    let bits = u32::try_from(hash.finish() >> 32).unwrap_or(u32::MAX);
    f64::from(bits) / f64::from(u32::MAX)
}

/// An address as the library knows one.
pub(super) fn backend(label: &str, weight: u32) -> Backend {
    let weight = usize::try_from(weight).unwrap_or(usize::MAX);
    Backend { addr: stand_in(label).into(), weight, ext: http::Extensions::new() }
}

/// The library tells addresses apart by socket address; ours may be names, which are looked up anew for each connection, and two may
/// differ by path alone. So each gets one of its own out of the range that no network routes (RFC 4193), the same in every process.
fn stand_in(label: &str) -> SocketAddr {
    let digest = Sha256::digest(label.as_bytes());
    let mut bytes = [0xfd; 16];
    for (to, from) in bytes.iter_mut().skip(1).zip(digest) {
        *to = from;
    }
    SocketAddr::from((Ipv6Addr::from(bytes), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[f64]) -> Vec<Candidate> {
        let of = |(index, weight): (usize, &f64)| Candidate { index, credit: 0.0, weight: *weight, in_flight: 0 };
        weights.iter().enumerate().map(of).collect()
    }

    fn turns(candidates: &mut [Candidate], count: usize) -> Vec<usize> {
        (0..count).map(|_| by_turns(candidates).unwrap()).collect()
    }

    #[test]
    fn turns_are_shared_by_weight_without_runs() {
        assert_eq!(turns(&mut candidates(&[2.0, 1.0]), 6), [0, 1, 0, 0, 1, 0]);
        let chosen = turns(&mut candidates(&[1.0, 2.0, 5.0]), 800);
        let counts = [0, 1, 2].map(|index| chosen.iter().filter(|other| **other == index).count());
        assert_eq!(counts, [100, 200, 500]);
        assert_eq!(by_turns(&mut []), None);
    }

    #[test]
    fn one_that_hangs_does_not_gather_every_slot() {
        let mut two = candidates(&[1.0, 1.0]);
        for _ in 0..1_000 {
            // The second one answers at once.
            if by_turns(&mut two) == Some(0) {
                two[0].in_flight += 1;
            }
        }
        assert!(two[0].in_flight < 10, "{}", two[0].in_flight);
        // Well again, it has its turns and no more.
        two[0].in_flight = 0;
        let chosen = turns(&mut two, 100);
        assert!(chosen.iter().filter(|index| **index == 0).count() < 55, "{chosen:?}");
    }

    const LABELS: [(&str, u32); 3] = [("http://a", 1), ("http://b", 1), ("http://c", 2)];

    fn group(number: usize) -> Group {
        Group::of(&[format!("shop-{number}.myshopify.com")])
    }

    #[test]
    fn a_group_has_one_home_and_homes_are_shared_by_weight() {
        let ring = Ring::new(LABELS.into_iter());
        let homes: Vec<usize> = (0..4_000).map(|n| ring.home(&group(n), |_| true).unwrap()).collect();
        assert_eq!(homes, (0..4_000).map(|n| ring.home(&group(n), |_| true).unwrap()).collect::<Vec<_>>());
        let counts = [0, 1, 2].map(|index| homes.iter().filter(|home| **home == index).count());
        for (count, fair) in counts.into_iter().zip([1_000, 1_000, 2_000_usize]) {
            assert!(count.abs_diff(fair) < fair / 4, "{counts:?}");
        }
    }

    #[test]
    fn only_the_groups_of_a_lost_address_move_and_they_move_to_all_others() {
        let ring = Ring::new(LABELS.into_iter());
        let mut moved = [0; 3];
        for n in 0..1_000 {
            let home = ring.home(&group(n), |_| true).unwrap();
            let now = ring.home(&group(n), |index| index != 0).unwrap();
            assert!(home == now || home == 0);
            if home == 0 {
                moved[now] += 1;
            }
        }
        assert!(moved[0] == 0 && moved[1] > 0 && moved[2] > 0, "{moved:?}");
        assert_eq!(ring.home(&group(0), |_| false), None);
    }

    #[test]
    fn any_weights_make_a_ring_of_a_bounded_size() {
        let ring = Ring::new([("http://a", 1_000), ("http://b", 1)].into_iter());
        let home = |n| ring.home(&group(n), |_| true).unwrap();
        assert!((0..10_000).map(home).any(|home| home == 1));
    }

    #[test]
    fn ranks_are_spread() {
        let low = (0..1_000).filter(|n| rank(&group(*n), "http://a") <= 0.1).count();
        assert!((50..200).contains(&low), "{low}");
    }
}
