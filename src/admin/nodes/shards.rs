//! The shards one by one, and how unevenly what waits is spread over them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::Admin;
use super::super::problem::Problem;
use crate::driver::{Seat, SectionView, ShardStanding};

/// A shard, as its owner has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(in crate::admin) struct ShardJson {
    shard: u16,
    /// The node that owns it.
    node: String,
    /// How often it has changed hands.
    epoch: u64,
    /// Groups with pending events.
    groups: u64,
    /// Pending events.
    backlog: u64,
    /// The group with most of them; null: none waits.
    largest: Option<LargestJson>,
    /// Events in it that its owner's scheduler does not know of yet.
    unread: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
struct LargestJson {
    group: String,
    events: u64,
    /// Of all that waits in the shard.
    share: f64,
}

/// How unevenly what waits is spread over the shards that have an owner.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(in crate::admin) struct SkewJson {
    /// The shard with most pending events; null: nothing waits.
    shard: Option<u16>,
    /// Its pending events.
    max: u64,
    /// Those of the shard in the middle.
    median: u64,
    /// How often the latter, at least one event, goes into the former.
    ratio: f64,
}

impl ShardJson {
    /// Its number, and its pending events.
    pub(super) fn waiting(&self) -> (u16, u64) {
        (self.shard, self.backlog)
    }
}

/// The shards that this node owns.
pub(super) async fn own(admin: &Admin, seat: &Seat) -> Result<Vec<ShardJson>, Problem> {
    let waiting = admin.handle.sections().await?;
    let json = |standing: ShardStanding| {
        let none = SectionView::default();
        let view = waiting.get(&standing.shard.0).unwrap_or(&none);
        let largest = view.largest.as_ref().map(|(group, events)| LargestJson {
            group: group.to_string(),
            events: *events,
            share: *events as f64 / view.events.max(1) as f64,
        });
        ShardJson {
            shard: standing.shard.0,
            node: seat.node().to_string(),
            epoch: standing.epoch.0,
            groups: view.groups,
            backlog: standing.pending,
            largest,
            unread: standing.unread,
        }
    };
    Ok(seat.standings().into_iter().map(json).collect())
}

/// The skew of these shards, each with its pending events.
pub(super) fn skew(shards: impl Iterator<Item = (u16, u64)>) -> SkewJson {
    let mut sorted: Vec<(u64, u16)> = shards.map(|(shard, events)| (events, shard)).collect();
    sorted.sort_unstable();
    let Some((max, shard)) = sorted.last().copied() else { return SkewJson::default() };
    let median = sorted.get((sorted.len() - 1) / 2).map_or(0, |(events, _)| *events);
    SkewJson { shard: (max > 0).then_some(shard), max, median, ratio: max as f64 / median.max(1) as f64 }
}

/// The shards of all nodes' reports, by number.
pub(super) fn in_order(mut shards: Vec<ShardJson>) -> Vec<ShardJson> {
    // While a shard changes hands both may show it: the later owner is right.
    shards.sort_by_key(|shard| (shard.shard, std::cmp::Reverse(shard.epoch)));
    shards.dedup_by_key(|shard| shard.shard);
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_shard_is_set_against_the_one_in_the_middle() {
        let of = |events: &[u64]| skew((0..).zip(events.iter().copied()));
        let SkewJson { shard, max, median, ratio } = of(&[4, 90, 10, 2]);
        assert_eq!((shard, max, median, ratio), (Some(1), 90, 4, 22.5));
        assert_eq!((of(&[0, 0]).shard, of(&[0, 0]).ratio, of(&[]).shard), (None, 0.0, None));
    }

    #[test]
    fn shards_of_several_nodes_are_put_in_order_and_each_is_there_once() {
        let shard = |shard: u16, epoch: u64, backlog: u64| ShardJson {
            shard,
            node: "a".to_owned(),
            epoch,
            groups: 1,
            backlog,
            largest: None,
            unread: 0,
        };
        let sorted = in_order(vec![shard(2, 1, 5), shard(0, 3, 1), shard(2, 2, 9), shard(1, 1, 1)]);
        assert_eq!(sorted, [shard(0, 3, 1), shard(1, 1, 1), shard(2, 2, 9)]);
    }
}
