//! Until when this node may send, by its own clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::event::Mono;
use crate::store::redis::Shard;

/// The part of a lease that is not used, so that a clock that runs slow, and the time from the check to the first byte, stay within it.
const MARGIN: u32 = 10;

/// Leases as their holder may use them. Read before every attempt, from any task.
#[derive(Debug)]
pub(super) struct Permits {
    /// Of the node itself: of its slots.
    node: AtomicU64,
    shards: Vec<AtomicU64>,
}

impl Permits {
    pub(super) fn new(shards: u16) -> Self {
        Self { node: AtomicU64::new(0), shards: (0..shards).map(|_| AtomicU64::new(0)).collect() }
    }

    /// When a lease that was asked for at `sent` is over here.
    fn until(sent: Mono, lease: Duration) -> u64 {
        sent.plus(lease.saturating_sub(lease / MARGIN)).0
    }

    /// The node's own lease was renewed by what was sent then.
    pub(super) fn renew_node(&self, sent: Mono, lease: Duration) {
        self.node.fetch_max(Self::until(sent, lease), Ordering::Release);
    }

    /// And that of a shard.
    pub(super) fn renew(&self, shard: Shard, sent: Mono, lease: Duration) {
        if let Some(until) = self.shards.get(usize::from(shard.0)) {
            until.fetch_max(Self::until(sent, lease), Ordering::Release);
        }
    }

    /// It is not ours any more.
    pub(super) fn revoke(&self, shard: Shard) {
        if let Some(until) = self.shards.get(usize::from(shard.0)) {
            until.store(0, Ordering::Release);
        }
    }

    /// Whether this node may send at all.
    pub(super) fn node_holds(&self, now: Mono) -> bool {
        now.0 < self.node.load(Ordering::Acquire)
    }

    /// Whether it may send for this shard.
    pub(super) fn holds(&self, shard: Shard, now: Mono) -> bool {
        let until = self.shards.get(usize::from(shard.0)).map_or(0, |until| until.load(Ordering::Acquire));
        now.0 < until && self.node_holds(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_when_it_was_asked_for_and_less_than_whole() {
        let permits = Permits::new(2);
        let (lease, at) = (Duration::from_secs(10), |ms: u64| Mono(ms * 1_000));
        assert!(!permits.holds(Shard(0), at(1)), "nothing was ever granted");
        permits.renew(Shard(0), at(1_000), lease);
        assert!(!permits.holds(Shard(0), at(1_001)), "the node has no slots yet");
        permits.renew_node(at(2_000), lease);
        assert!(permits.holds(Shard(0), at(9_999)) && !permits.holds(Shard(0), at(10_000)));
        assert!(!permits.holds(Shard(1), at(3_000)) && !permits.holds(Shard(9), at(3_000)));
        permits.renew(Shard(0), at(500), lease);
        assert!(permits.holds(Shard(0), at(9_999)), "an older renewal that comes late takes nothing away");
        permits.revoke(Shard(0));
        assert!(!permits.holds(Shard(0), at(3_000)));
        permits.renew(Shard(1), at(8_000), lease);
        assert!(permits.holds(Shard(1), at(10_999)) && !permits.holds(Shard(1), at(11_000)), "nor past the node's own");
    }
}
