//! How often something may happen: so many at once, then one every so long.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use crate::event::Mono;

/// A limit on how often something happens (GCRA: one moment is all it remembers).
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    /// What may come at once, as the time that it is worth.
    ahead: Duration,
    /// When everything that happened so far is paid for.
    due: Mutex<Mono>,
}

impl Pace {
    /// `at_once` of them, then one `every` so long.
    pub(super) fn new(at_once: u32, every: Duration) -> Self {
        Self { every, ahead: every.saturating_mul(at_once.saturating_sub(1)), due: Mutex::default() }
    }

    /// Whether it may happen now; then it counts as having happened.
    pub(super) fn take(&self, now: Mono) -> bool {
        let mut due = self.due.lock();
        let start = (*due).max(now);
        let may = start.since(now) <= self.ahead;
        if may {
            *due = start.plus(self.every);
        }
        may
    }
}

/// Paces of addresses: each address has always the same one of a fixed number, so that one that asks too much takes nothing from
/// most others, and no number of addresses takes more memory.
#[derive(Debug)]
pub(super) struct PaceByAddress {
    paces: Box<[Pace]>,
    /// Its own in every process: nobody can choose an address that shares another's pace.
    hash: RandomState,
}

impl PaceByAddress {
    /// So many paces: a stranger has one chance in so many to share a provider's.
    const PACES: u64 = 64;

    /// A [`Pace`] of this kind for each address.
    pub(super) fn new(at_once: u32, every: Duration) -> Self {
        Self { paces: (0..Self::PACES).map(|_| Pace::new(at_once, every)).collect(), hash: RandomState::new() }
    }

    /// [`Pace::take`] for `address`; IPv6 networks of 64 bits count as one address, for they are given to one.
    pub(super) fn take(&self, address: IpAddr, now: Mono) -> bool {
        let whose = match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).expect("invariant: half of 128 bits"),
        };
        let place = usize::try_from(self.hash.hash_one(whose) % Self::PACES).expect("invariant: a small number");
        self.paces.get(place).is_some_and(|pace| pace.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_once_then_one_every_so_long() {
        let second = Duration::from_secs(1);
        let pace = Pace::new(3, second);
        let begin = Mono(5_000_000);
        let taken = |now: Mono| (0..10).filter(|_| pace.take(now)).count();
        assert_eq!(taken(begin), 3);
        assert_eq!(taken(begin.plus(second / 2)), 0);
        assert_eq!(taken(begin.plus(second)), 1);
        assert_eq!(taken(begin.plus(second * 100)), 3, "a long pause earns no more");
    }

    #[test]
    fn one_address_takes_nothing_from_most_others() {
        let paces = PaceByAddress::new(3, Duration::from_secs(1));
        let now = Mono(5_000_000);
        let stranger = IpAddr::from([203, 0, 113, 7]);
        assert_eq!((0..100).filter(|_| paces.take(stranger, now)).count(), 3);
        let others = (0..200).filter(|n| paces.take(IpAddr::from([198, 51, 100, *n]), now)).count();
        assert!(others > 100, "{others} of 200");
        let paces = PaceByAddress::new(3, Duration::from_secs(1));
        // A network of one owner is one.
        let [a, b]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::ffff:1"].map(|text| text.parse().unwrap());
        assert_eq!((0..10).filter(|n| paces.take(if n % 2 == 0 { a } else { b }, now)).count(), 3);
    }
}
