//! The metrics of many nodes: what this one owns, and what came and went.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::names::Names;

/// What is counted of a node among others; all zero on one that is alone.
#[derive(Debug)]
pub struct ClusterMetrics {
    nodes: Gauge,
    owned: Gauge,
    unowned: Gauge,
    slots: Gauge,
    moves: Counter,
    losses: Counter,
    group_moves: Counter,
    unowned_seconds: Gauge<f64, AtomicU64>,
}

impl ClusterMetrics {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            nodes: names.add(
                "cluster_nodes",
                &[],
                "Nodes that live, as this one sees it; 0 with an embedded store",
                Gauge::default(),
            ),
            owned: names.add("cluster_shards_owned", &[], "Shards that this node owns", Gauge::default()),
            unowned: names.add(
                "cluster_shards_unowned",
                &[],
                "Shards that no living node says it owns",
                Gauge::default(),
            ),
            slots: names.add(
                "cluster_slots",
                &[],
                "Of upstream.concurrency, what this node may use now",
                Gauge::default(),
            ),
            moves: names.add(
                "cluster_moves",
                &[],
                "Shards that this node took over, in order or after a loss",
                Counter::default(),
            ),
            losses: names.add(
                "cluster_epoch_losses",
                &[],
                "Shards that another node took over while this one held them",
                Counter::default(),
            ),
            group_moves: names.add(
                "cluster_group_moves",
                &[],
                "Groups that left a shard of this node for another one, because of a pin",
                Counter::default(),
            ),
            unowned_seconds: names.add(
                "cluster_unowned_seconds",
                &[],
                "How long the shard had been without an owner that this node last took over after a loss",
                Gauge::default(),
            ),
        }
    }

    /// What a beat found: nodes that live, shards that are this node's, shards that are nobody's, slots of this node.
    pub fn seen(&self, nodes: usize, owned: usize, unowned: usize, slots: u32) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.nodes.set(number(nodes));
        self.owned.set(number(owned));
        self.unowned.set(number(unowned));
        self.slots.set(i64::from(slots));
    }

    /// A shard was taken over; after a loss, which had been without an owner for so long.
    pub fn gained(&self, unowned: Option<Duration>) {
        self.moves.inc();
        if let Some(span) = unowned {
            self.unowned_seconds.set(span.as_secs_f64());
        }
    }

    /// A group has moved from a shard of this node to another one.
    pub fn group_moved(&self) {
        self.group_moves.inc();
    }

    /// A shard was taken over by another node.
    pub fn lost(&self) {
        self.losses.inc();
    }
}
