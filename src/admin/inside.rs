//! What is inside one group, looked up when somebody asks about it: the kinds of its events, its order keys, and which of those are held.

use std::collections::HashMap;

use serde::Serialize;

use super::Admin;
use super::api::rfc3339;
use super::problem::Problem;
use crate::driver::{Held, Query, Record, Status};
use crate::event::{Group, Seq};

/// Pending events that are looked at, the newest.
const SCANNED_MAX: usize = 500;

/// Kinds and keys that are named.
const NAMED_MAX: usize = 8;

/// Held order keys that are named, those held longest.
pub(super) const HELD_MAX: usize = 10;

/// What stands in a group's lanes.
#[derive(Serialize)]
pub(super) struct Inside {
    /// What its newest pending events are.
    pub(super) top: Top,
    /// Order keys whose head has failed and goes again; the events behind it wait.
    pub(super) held: Vec<HeldJson>,
    /// How many there are.
    pub(super) held_count: usize,
}

#[derive(Serialize)]
pub(super) struct Top {
    /// So many pending events were looked at, the newest; there may be more.
    pub(super) scanned: usize,
    pub(super) types: Vec<Count>,
    pub(super) order_keys: Vec<Count>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) name: String,
    pub(super) count: usize,
}

#[derive(Serialize)]
pub(super) struct HeldJson {
    pub(super) order: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) within: Option<String>,
    /// The event that holds it; null when it has just ended.
    pub(super) event: Option<String>,
    /// When its first attempt began.
    pub(super) since: String,
    pub(super) attempts: u32,
    /// Null: it may go now, or goes.
    pub(super) next_attempt_s: Option<f64>,
}

/// Looks at the group's newest pending events and at its held keys; how much is bounded.
pub(super) async fn of(admin: &Admin, group: &Group) -> Result<Inside, Problem> {
    let held = admin.handle.held(group.clone(), HELD_MAX).await?;
    with(admin, group, held).await
}

/// The same with the held keys as the group's owner knows them: the first, and how many there are.
pub(super) async fn with(admin: &Admin, group: &Group, held: (Vec<Held>, usize)) -> Result<Inside, Problem> {
    let status = vec![Status::Queued, Status::InFlight, Status::Retrying];
    let query = Query { group: Some(group.clone()), status, limit: SCANNED_MAX, ..Query::default() };
    let records = admin.handle.events(query).await?.records;
    let (keys, held_count) = held;
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        held.push(shown(admin, group, key).await?);
    }
    let types = most(records.iter().filter_map(|record: &Record| record.event_type.as_deref()));
    let order_keys = most(records.iter().filter_map(|record| record.order.as_ref().map(Group::as_str)));
    Ok(Inside { top: Top { scanned: records.len(), types, order_keys }, held, held_count })
}

async fn shown(admin: &Admin, group: &Group, held: Held) -> Result<HeldJson, Problem> {
    // The newest of the group up to the head's place is the head, while it is pending.
    let behind = Some(Seq(held.seq.0.saturating_add(1)));
    let head = Query { group: Some(group.clone()), behind, limit: 1, ..Query::default() };
    let record = admin.handle.events(head).await?.records.into_iter().find(|record| record.seq == held.seq);
    Ok(HeldJson {
        order: held.key.to_string(),
        within: held.inner.map(|inner| inner.to_string()),
        event: record.map(|record| record.id.to_string()),
        since: rfc3339(admin.handle.now().wall.minus(held.since)),
        attempts: held.attempts,
        next_attempt_s: held.due.map(|left| left.as_secs_f64()),
    })
}

/// The most frequent names, equal ones by name.
fn most<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Count> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    let named = counts.into_iter().take(NAMED_MAX);
    named.map(|(name, count)| Count { name: name.to_owned(), count }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_come_first_and_no_more_are_named_than_may_be() {
        let names = ["b", "a", "c", "a", "b", "a"];
        let found = most(names.into_iter().chain(["d", "e", "f", "g", "h", "i"]));
        let first: Vec<(&str, usize)> = found.iter().take(3).map(|count| (&*count.name, count.count)).collect();
        assert_eq!(first, [("a", 3), ("b", 2), ("c", 1)]);
        assert_eq!(found.len(), NAMED_MAX);
    }
}
