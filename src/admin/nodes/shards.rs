//! The shards one by one, and how unevenly what waits is spread over them.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::Admin;
use super::super::problem::Problem;
use crate::driver::{Seat, SectionView, ShardStanding};

/// A shard, as its owner has it.
#[derive(Debug, Serialize, ToSchema)]
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

#[derive(Debug, Serialize, ToSchema)]
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
pub(super) async fn own(admin: &Arc<Admin>, seat: &Seat) -> Result<Vec<ShardJson>, Problem> {
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

/// Puts the shards of all nodes' answers in order, and says how they differ.
pub(super) fn finish(sum: &mut Value) {
    let number = |shard: &Value, name: &str| shard.get(name).and_then(Value::as_u64).unwrap_or(0);
    let Some(shards) = sum.get_mut("by_shard").and_then(Value::as_array_mut) else { return };
    // While a shard changes hands both may show it: the later owner is right.
    shards.sort_by_key(|shard| (number(shard, "shard"), std::cmp::Reverse(number(shard, "epoch"))));
    shards.dedup_by_key(|shard| number(shard, "shard"));
    let each = shards
        .iter()
        .map(|shard| (u16::try_from(number(shard, "shard")).unwrap_or(u16::MAX), number(shard, "backlog")));
    let skew = json!(skew(each));
    if let Some(sum) = sum.as_object_mut() {
        sum.insert("skew".to_owned(), skew);
    }
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
    fn shards_of_several_answers_are_put_in_order_and_each_is_there_once() {
        let shard =
            |number: u16, epoch: u64, backlog: u64| json!({ "shard": number, "epoch": epoch, "backlog": backlog });
        let mut sum = json!({ "by_shard": [shard(2, 1, 5), shard(0, 3, 1), shard(2, 2, 9), shard(1, 1, 1)] });
        finish(&mut sum);
        assert_eq!(sum["by_shard"], json!([shard(0, 3, 1), shard(1, 1, 1), shard(2, 2, 9)]));
        assert_eq!((&sum["skew"]["shard"], &sum["skew"]["ratio"]), (&json!(2), &json!(9.0)));
    }
}
