//! The calls that put a group into a shard of a person's choice, and take that back.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Admin;
use super::audit::Who;
use super::groups::{GroupQuery, json};
use super::problem::{Problem, Refusal};
use crate::driver::{Pin, Seat, Shard};
use crate::event::Group;

type Shared = State<Arc<Admin>>;

/// Where a group should be, and where it is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PinJson {
    group: String,
    /// The shard that it is pinned to; null: its pin was taken away, and it goes back to where it hashes to.
    pinned: Option<u16>,
    /// The shard that it is in.
    shard: u16,
    /// Whether it is on its way to another one.
    moving: bool,
}

impl PinJson {
    fn of(pin: &Pin) -> Self {
        let pinned = pin.shard.map(|shard| shard.0);
        Self { group: pin.group.to_string(), pinned, shard: pin.at.0, moving: pin.at != pin.wanted }
    }
}

impl PinJson {
    /// For a page.
    pub(super) fn in_words(&self) -> String {
        let at = self.shard;
        match (self.pinned, self.moving) {
            (Some(shard), true) => format!("{at}, on its way to {shard}, where it is pinned"),
            (Some(_), false) => format!("{at}, where it is pinned"),
            (None, _) => format!("{at}, on its way back to its own"),
        }
    }
}

/// Every group that is pinned or on its way back; none on a node that is alone.
pub(super) fn all(admin: &Admin) -> Vec<PinJson> {
    let seat = admin.others.get().map(|(seat, _)| seat);
    seat.map_or_else(Vec::new, |seat| seat.pins().iter().map(PinJson::of).collect())
}

/// A group's pin; `None` where it has none and is where it hashes to.
pub(super) fn of(admin: &Admin, group: &Group) -> Option<PinJson> {
    let (seat, _) = admin.others.get()?;
    seat.pins().iter().find(|pin| pin.group == *group).map(PinJson::of)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PinAsked {
    /// From 0; below `store.redis.shards`.
    #[schema(minimum = 0, maximum = 1022)]
    shard: u16,
}

/// Pins a group to a shard until that is taken back. What waits of it moves there as soon as nothing of its shard is in flight.
#[utoipa::path(post, path = "/api/v1/group/pin", tag = "groups", params(GroupQuery), request_body = PinAsked, responses(
    (status = 200, description = "Where it is to be, and where it is", body = PinJson),
    (status = 409, description = "There are no shards: the store is embedded", body = Refusal)
))]
pub(super) async fn pin(
    State(admin): Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<PinJson>, Problem> {
    let PinAsked { shard } = json(&body?)?;
    let group = GroupQuery::group(query)?;
    let seat = shards(&admin)?;
    if shard >= seat.shards() {
        let last = seat.shards() - 1;
        return Err(Problem::Parameter(format!("shard: expected 0 to {last} (store.redis.shards), found {shard}")));
    }
    put(&admin, seat, who, &group, Some(Shard(shard))).await
}

/// Takes a pin away: the group goes back to where it hashes to.
#[utoipa::path(delete, path = "/api/v1/group/pin", tag = "groups", params(GroupQuery), responses(
    (status = 200, description = "Where it is to be, and where it is", body = PinJson),
    (status = 409, description = "It is not pinned, or there are no shards", body = Refusal)
))]
pub(super) async fn unpin(
    State(admin): Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
) -> Result<Json<PinJson>, Problem> {
    let group = GroupQuery::group(query)?;
    let seat = shards(&admin)?;
    if !seat.pins().iter().any(|pin| pin.group == group && pin.shard.is_some()) {
        return Err(Problem::Conflict(format!("{group} is not pinned: fairlane groups overrides lists what is")));
    }
    put(&admin, seat, who, &group, None).await
}

async fn put(
    admin: &Admin,
    seat: &Seat,
    who: Who,
    group: &Group,
    shard: Option<Shard>,
) -> Result<Json<PinJson>, Problem> {
    seat.pin(group, shard).await?;
    let told = shard.map_or_else(|| "its pin taken away".to_owned(), |shard| format!("pinned to shard {shard}"));
    admin.audit(who, group.as_str(), &told);
    let (at, wanted) = (seat.shard_of(group), shard.unwrap_or_else(|| seat.home_of(group)));
    Ok(Json(PinJson::of(&Pin { group: group.clone(), shard, wanted, at })))
}

fn shards(admin: &Admin) -> Result<&Seat, Problem> {
    let alone = || {
        Problem::Conflict("there are no shards here: pins are for nodes that share a store (store.redis)".to_owned())
    };
    admin.others.get().map(|(seat, _)| &**seat).ok_or_else(alone)
}
