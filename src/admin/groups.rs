//! The calls about groups: how they stand, and changes that act from the next lease on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api::{Waited, rfc3339, unreadable};
use super::audit::Who;
use super::dedicated::DedicatedJson;
use super::expiry::{self, expiry};
use super::inside::{self, Inside};
use super::name;
use super::nodes::whole::{self, Missing, Whole};
use super::nodes::{self, Wanted};
use super::pins::{self, PinJson};
use super::problem::{Problem, Refusal};
use super::upstream::SLOTS_MAX;
use super::{Admin, tenant, unseen, words};
use crate::driver::{Change, Expiry, GroupView, InParts, Live, Rate, Sort};
use crate::event::{Group, Wall};

type Shared = State<Arc<Admin>>;

/// Rows where the caller names no limit.
const LIMIT: usize = 100;

/// A cap of the backlog at most, as in the configuration; as good as none.
const BACKLOG_MAX: u32 = 1_000_000_000;

/// Rows at most.
const LIMIT_MAX: usize = 10_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupsQuery {
    /// By the age of the oldest event (when left out), pending events, worker time or arrivals of the last minute.
    #[param(pattern = "^(age|depth|seconds|rate)$")]
    sort: Option<String>,
    /// Rows at most; 100 when left out.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct GroupsView {
    /// What to know besides: events wait in this node's spool, which are in no group's queue yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    groups: Vec<GroupJson>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// A group as the API shows it.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupJson {
    group: String,
    weight: f64,
    concurrency: u32,
    rate: Option<String>,
    paused: bool,
    /// Events that may wait; null: any number.
    backlog: Option<u32>,
    /// Null: it demands no more than others.
    dedicated: Option<DedicatedJson>,
    state: &'static str,
    reason: String,
    queued: u64,
    retrying: u64,
    /// Live requests that wait for their turn; those in flight are in `in_flight`.
    live: u32,
    in_flight: u32,
    oldest_age_s: f64,
    wait_p99_ms: Option<f64>,
    worker_seconds: f64,
    share: f64,
    arrival_rate: f64,
    drain_rate: f64,
    eta_s: Option<f64>,
    accepted: u64,
    delivered: u64,
    dead: u64,
    /// Null: nothing is known of it.
    counted_since: Option<String>,
    /// Milliseconds by what its events and live requests waited for, of those that got their lease in the last minute.
    waited_ms: Waited,
    /// The overflow lane that it shares, for it has none of its own; left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<String>,
    /// What people changed of it; null: it is treated as the file says.
    r#override: Option<ChangeJson>,
    /// Where it is pinned to; left out where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<PinJson>,
    /// What whoever changes it should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Only where one group is asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    inside: Option<Inside>,
}

/// Groups with pending events, and how each stands.
#[utoipa::path(get, path = "/api/v1/groups", tag = "groups", params(GroupsQuery), responses((status = 200, description = "The first of them", body = GroupsView)))]
pub(super) async fn list(
    State(admin): Shared,
    query: Result<Query<GroupsQuery>, QueryRejection>,
) -> Result<Json<GroupsView>, Problem> {
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    let sort = sorted_by(query.sort.as_deref())?;
    let limit = query.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::Parameter(format!("limit: expected 1 to {LIMIT_MAX}, found {limit}")));
    }
    let whole = whole::ask(&admin, Wanted { groups: vec![(sort, limit)], ..Wanted::default() }).await?;
    let changes: HashMap<Group, Live> = admin.handle.changes().await?.into_iter().collect();
    let now = admin.handle.now().wall;
    let json = |view: GroupView| {
        let change = changes.get(&view.group);
        GroupJson::of(view, change, now)
    };
    let groups = whole.groups(0, sort, limit).into_iter().map(json).collect();
    Ok(Json(GroupsView { note: spooled(&whole), groups, missing: whole.missing }))
}

/// What waits besides the queues of groups.
fn spooled(whole: &Whole) -> Option<String> {
    let events = whole.spool()?.events;
    let are = if events == 1 { "is" } else { "are" };
    (events > 0).then(|| {
        let what = words::many(events, "event");
        format!("{what} {are} in a node's spool and in no group's queue yet: Redis does not have them")
    })
}

/// The order that a list is asked for in: by age when it is not said.
pub(super) fn sorted_by(text: Option<&str>) -> Result<Sort, Problem> {
    match text {
        None | Some("age") => Ok(Sort::Age),
        Some("depth") => Ok(Sort::Depth),
        Some("seconds") => Ok(Sort::Seconds),
        Some("rate") => Ok(Sort::Rate),
        Some(other) => Err(Problem::Parameter(format!("sort: expected age, depth, seconds or rate, found {other:?}"))),
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupQuery {
    /// The group, in the written form.
    #[param(pattern = r"^([A-Za-z0-9._:@-]+|~[a-z0-9-]+)$", max_length = 769, example = "quiet-store.myshopify.com")]
    name: String,
}

impl GroupQuery {
    pub(super) fn group(query: Result<Query<Self>, QueryRejection>) -> Result<Group, Problem> {
        let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
        name::group("name", &query.name)
    }
}

/// One group, active or not.
#[utoipa::path(get, path = "/api/v1/group", tag = "groups", params(GroupQuery), responses((status = 200, description = "The group", body = GroupJson)))]
pub(super) async fn one(
    State(admin): Shared,
    query: Result<Query<GroupQuery>, QueryRejection>,
) -> Result<Json<GroupJson>, Problem> {
    let group = GroupQuery::group(query)?;
    let inside = inside::of(&admin, &group).await?;
    let mut json = shown(&admin, group.clone()).await?;
    if json.note.is_none() && json.counted_since.is_none() {
        json.note = unseen::note(&admin, &group).await?;
    }
    Ok(Json(GroupJson { inside: Some(inside), ..json }))
}

async fn shown(admin: &Admin, group: Group) -> Result<GroupJson, Problem> {
    let change = in_force(admin, &group).await?;
    let view = admin.handle.group(group).await?;
    let note = match admin.handle.unwritten() {
        Some(unwritten) => Some(unwritten),
        None => shared_lane(admin, &view).await?.or_else(|| nodes::ownerless(admin, &view.group)),
    };
    let pin = pins::of(admin, &view.group);
    Ok(GroupJson { note, pin, ..GroupJson::of(view, change.as_ref(), admin.handle.now().wall) })
}

/// What to know of changes of a group that has no lane of its own.
pub(super) async fn shared_lane(admin: &Admin, view: &GroupView) -> Result<Option<String>, Problem> {
    let Some(lane) = &view.overflow else { return Ok(None) };
    let shared = admin.handle.group(lane.clone()).await?;
    let pending = words::many(shared.queued + shared.retrying + u64::from(shared.in_flight), "event");
    Ok(Some(format!(
        "it has no lane of its own and shares {lane}, where {pending} wait: changes of its weight, caps, rate and pause act once it has one; until then {lane} can be changed, with all that share it"
    )))
}

/// Refuses what is about the queue of a group that has none.
///
/// # Errors
/// It shares an overflow lane.
pub(super) fn has_its_queue(view: &GroupView) -> Result<(), Problem> {
    let Some(lane) = &view.overflow else { return Ok(()) };
    let name = &view.group;
    Err(Problem::Conflict(format!(
        "{name} has no lane of its own: what waits of it waits in {lane} with events of others, and goes from there; end events of it one by one: fairlane events --group {name} --status queued lists them, fairlane events skip ID ends one"
    )))
}

/// What may be changed of a group; what is left out stays as it is.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<bool>,
    #[schema(minimum = 0.01, maximum = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<f64>,
    #[schema(minimum = 1, maximum = 100_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency: Option<u32>,
    /// Attempts a time.
    #[schema(pattern = "^[1-9][0-9]{0,8}/[smh]$", example = "500/s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backlog: Option<u32>,
    /// When what is named here ends, RFC 3339, a span such as `2h`, or `never`; a day when left out. What is not named keeps its end.
    #[schema(pattern = "^(never|[1-9][0-9]{0,2}[smhd])$", example = "2h")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<String>,
}

impl GroupPatch {
    fn checked(self, now: Wall) -> Result<(Change, Expiry), Problem> {
        if self.weight.is_some_and(|weight| !(0.01..=1000.0).contains(&weight)) {
            return Err(Problem::Parameter("weight: expected 0.01 to 1000".to_owned()));
        }
        if self.concurrency.is_some_and(|slots| !(1..=SLOTS_MAX).contains(&slots)) {
            let expected = format!("concurrency: expected 1 to {SLOTS_MAX}; pause the group to stop it");
            return Err(Problem::Parameter(expected));
        }
        let rate = self.rate.as_deref().map(rate).transpose()?;
        let expiry = expiry(self.expires.as_deref(), now)?;
        if self.backlog.is_some_and(|events| !(1..=BACKLOG_MAX).contains(&events)) {
            return Err(Problem::Parameter(format!(
                "backlog: expected 1 to {BACKLOG_MAX} events; take the changes back for the file's cap"
            )));
        }
        let change = Change {
            paused: self.paused,
            weight: self.weight,
            concurrency: self.concurrency,
            rate,
            backlog: self.backlog,
        };
        if change == Change::default() {
            let expected = "expected one of paused, weight, concurrency, rate, backlog";
            return Err(Problem::Parameter(format!("nothing is changed: {expected}")));
        }
        Ok((change, expiry))
    }
}

/// `500/s`, `10000/m`, `7/h`: how many, in how many microseconds.
pub(super) fn rate(text: &str) -> Result<(u32, u64), Problem> {
    let wrong = || Problem::Parameter(format!("rate: expected a rate such as 500/s, 10000/m or 7/h, found {text:?}"));
    let (events, unit) = text.split_once('/').ok_or_else(wrong)?;
    let per = match unit.trim() {
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(wrong()),
    };
    let events = events.trim().parse().ok().filter(|events| *events > 0).ok_or_else(wrong)?;
    Ok((events, per))
}

/// Changes a group from the next lease on, on queued events too.
#[utoipa::path(patch, path = "/api/v1/group", tag = "groups", params(GroupQuery), request_body = GroupPatch, responses((status = 200, description = "The group as it is treated now", body = GroupJson)))]
pub(super) async fn patch(
    State(admin): Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<GroupJson>, Problem> {
    let body = body?;
    let group = GroupQuery::group(query)?;
    change(&admin, who, &group, json(&body)?).await?;
    let json = shown(&admin, group.clone()).await?;
    if json.note.is_some() || json.counted_since.is_some() {
        return Ok(Json(json));
    }
    let note = unseen::note(&admin, &group).await?;
    Ok(Json(GroupJson { note, ..json }))
}

/// Changes a group, and leaves a line in the log.
pub(super) async fn change(admin: &Admin, who: Who, group: &Group, patch: GroupPatch) -> Result<(), Problem> {
    let told = told(&patch);
    let (change, expiry) = patch.checked(admin.handle.now().wall)?;
    let before = in_force(admin, group).await?;
    admin.handle.change(group.clone(), change, expiry).await?.map_err(Problem::Store)?;
    // Who lets a group go on that nobody paused has changed nothing.
    if in_force(admin, group).await? != before {
        admin.audit(who, group.as_str(), &format!("changed: {told}"));
    }
    Ok(())
}

/// What people changed of a group.
async fn in_force(admin: &Admin, group: &Group) -> Result<Option<Live>, Problem> {
    let changes = admin.handle.changes().await?;
    Ok(changes.into_iter().find(|(whose, _)| whose == group).map(|(_, live)| live))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreQuery {
    /// The group, in the written form.
    #[param(pattern = r"^([A-Za-z0-9._:@-]+|~[a-z0-9-]+)$", max_length = 769, example = "quiet-store.myshopify.com")]
    name: String,
    /// Only these parts of what was changed, several with commas; all when left out.
    #[param(pattern = "^(paused|weight|concurrency|rate|backlog)(,(paused|weight|concurrency|rate|backlog))*$")]
    only: Option<String>,
}

/// Takes the changes of a group back, or only some parts of them.
#[utoipa::path(delete, path = "/api/v1/group", tag = "groups", params(RestoreQuery), responses((status = 200, description = "The group as it is treated now", body = GroupJson)))]
pub(super) async fn restore(
    State(admin): Shared,
    who: Who,
    query: Result<Query<RestoreQuery>, QueryRejection>,
) -> Result<Json<GroupJson>, Problem> {
    let Query(RestoreQuery { name, only }) = query.map_err(|rejection| unreadable(&rejection))?;
    let group = name::group("name", &name)?;
    take_back(&admin, who, &group, only.as_deref()).await?;
    shown(&admin, group).await.map(Json)
}

/// The same, without the answer.
pub(super) async fn take_back(admin: &Admin, who: Who, group: &Group, only: Option<&str>) -> Result<(), Problem> {
    let parts = only.map(parts).transpose()?;
    if admin.handle.take_back(group.clone(), parts).await? {
        admin.audit(who, group.as_str(), &taken_back(only));
    }
    Ok(())
}

/// Parts of a change by their names, with commas between them.
///
/// # Errors
/// There is no such part; which there are.
pub(super) fn parts<C: InParts>(only: &str) -> Result<C, Problem> {
    only.split(',').map(str::trim).try_fold(C::default(), |sum, name| {
        let part = C::part(name).ok_or_else(|| {
            Problem::Parameter(format!("only: expected one of {}, found {name:?}", C::PARTS.join(", ")))
        })?;
        Ok(part.over(sum))
    })
}

/// What the list of changes says.
pub(super) fn taken_back(only: Option<&str>) -> String {
    only.map_or_else(|| "changes taken back".to_owned(), |only| format!("changes taken back: {only}"))
}

#[derive(Serialize, ToSchema)]
pub(super) struct Closed {
    /// Whether its breaker was open, or a `Retry-After` held it.
    pub(super) closed: bool,
    /// Nodes on which it is not closed, for they did not answer; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<Missing>,
}

/// Closes the group's breaker, and ends a `Retry-After` that holds it.
#[utoipa::path(post, path = "/api/v1/group/close-breaker", tag = "groups", params(GroupQuery), responses((status = 200, description = "Whether anything held it", body = Closed)))]
pub(super) async fn close_breaker(
    State(admin): Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
) -> Result<Json<Closed>, Problem> {
    let group = GroupQuery::group(query)?;
    Ok(Json(Closed { closed: close(&admin, who, &group).await?, missing: Vec::new() }))
}

/// The same, without the answer.
pub(super) async fn close(admin: &Admin, who: Who, group: &Group) -> Result<bool, Problem> {
    let closed = admin.handle.close_breaker(Some(group.clone())).await?;
    if closed {
        admin.audit(who, group.as_str(), "breaker closed by hand");
    }
    Ok(closed)
}

#[derive(Serialize, ToSchema)]
pub(super) struct Cancelled {
    cancelled: usize,
}

/// Ends the attempts of a group that are in flight; their events are retried.
#[utoipa::path(post, path = "/api/v1/group/cancel", tag = "groups", params(GroupQuery), responses((status = 200, description = "How many", body = Cancelled)))]
pub(super) async fn cancel(
    State(admin): Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
) -> Result<Json<Cancelled>, Problem> {
    let group = GroupQuery::group(query)?;
    Ok(Json(Cancelled { cancelled: cancel_attempts(&admin, who, &group).await? }))
}

/// Ends the attempts of a group that are in flight; the answer is how many.
pub(super) async fn cancel_attempts(admin: &Admin, who: Who, group: &Group) -> Result<usize, Problem> {
    let cancelled = admin.handle.cancel(group.clone()).await?;
    if cancelled > 0 {
        admin.audit(who, group.as_str(), &format!("{cancelled} attempts cancelled; their events are retried"));
    }
    Ok(cancelled)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkAsked {
    /// RFC 3339 or a span such as `30d`; a minute to a year ahead.
    #[schema(pattern = "^[1-9][0-9]{0,2}[smhd]$", example = "30d")]
    expires: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Link {
    group: String,
    url: String,
    expires: String,
}

/// Makes a link to the group's page for its tenant.
#[utoipa::path(post, path = "/api/v1/group/link", tag = "groups", params(GroupQuery), request_body = LinkAsked, responses(
    (status = 200, description = "The link, and when it ends", body = Link),
    (status = 409, description = "Tenants have no pages here", body = Refusal)
))]
pub(super) async fn link(
    State(admin): Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Link>, Problem> {
    let asked: LinkAsked = json(&body?)?;
    let group = GroupQuery::group(query)?;
    let now = admin.handle.now().wall;
    if asked.expires == "never" {
        return Err(Problem::Parameter(
            "expires: a link cannot be called back, so it has to end; found \"never\"".to_owned(),
        ));
    }
    let until = expiry::end(&asked.expires, now)?;
    if !tenant::LASTS.contains(&until.since(now)) {
        return Err(Problem::Parameter(format!(
            "expires: expected a minute to a year ahead, found {:?}",
            asked.expires
        )));
    }
    let url = admin.tenants.as_ref().and_then(|tenants| tenants.link(&group, until)).ok_or(Problem::NoTenantPages)?;
    let expires = rfc3339(until);
    admin.audit(who, group.as_str(), &format!("a link for its tenant, good until {expires}"));
    Ok(Json(Link { group: group.to_string(), url, expires }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct OverridesView {
    overrides: Vec<OverrideJson>,
    /// Groups that are pinned to a shard, and those on their way back; none with an embedded store.
    pins: Vec<PinJson>,
}

#[derive(Serialize, ToSchema)]
struct OverrideJson {
    group: String,
    #[serde(flatten)]
    change: ChangeJson,
}

#[derive(Serialize, ToSchema)]
#[schema(as = GroupChange)]
struct ChangeJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<u32>,
    /// When the first of them ends; null: none ever does.
    expires: Option<String>,
    /// When each of them ends; null: never.
    #[schema(value_type = Object)]
    ends: Ends,
}

/// By the name of what is changed, when that ends.
pub(super) type Ends = BTreeMap<&'static str, Option<String>>;

/// When each part of changes ends.
pub(super) fn ends<C: InParts>(live: &Live<C>) -> Ends {
    live.ends().map(|(name, end)| (name, end.map(|at| rfc3339(Wall(at))))).collect()
}

impl ChangeJson {
    fn of(live: &Live) -> Self {
        let change = live.change();
        Self {
            paused: change.paused,
            weight: change.weight,
            concurrency: change.concurrency,
            rate: change.rate.map(|(events, micros)| written(events, Duration::from_micros(micros))),
            backlog: change.backlog,
            expires: live.expires().map(|at| rfc3339(Wall(at))),
            ends: ends(live),
        }
    }
}

/// The changes of groups that are in force, and the pins.
#[utoipa::path(get, path = "/api/v1/overrides", tag = "groups", responses((status = 200, description = "All of them", body = OverridesView)))]
pub(super) async fn overrides(State(admin): Shared) -> Result<Json<OverridesView>, Problem> {
    let changes = admin.handle.changes().await?;
    let view = |(group, live): (Group, Live)| OverrideJson { group: group.to_string(), change: ChangeJson::of(&live) };
    Ok(Json(OverridesView { overrides: changes.into_iter().map(view).collect(), pins: pins::all(&admin) }))
}

/// A change as it stands in the log.
pub(super) fn told<T: Serialize>(patch: &T) -> String {
    serde_json::to_string(patch).unwrap_or_default()
}

pub(super) fn json<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Problem> {
    let wrong = |what: String| Problem::Parameter(format!("the body is not the JSON expected here: {what}"));
    // A list would be read as a record's fields in their order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(wrong("an object is expected, found a list".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))
}

pub(super) fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

pub(super) fn written(events: u32, per: Duration) -> String {
    match per.as_secs() {
        1 => format!("{events}/s"),
        60 => format!("{events}/m"),
        3_600 => format!("{events}/h"),
        seconds => format!("{events}/{seconds}s"),
    }
}

impl GroupJson {
    fn of(view: GroupView, change: Option<&Live>, now: Wall) -> Self {
        Self {
            group: view.group.to_string(),
            weight: view.weight,
            concurrency: view.concurrency,
            rate: view.rate.map(|Rate { events, per }| written(events, per)),
            paused: view.paused,
            backlog: view.backlog,
            dedicated: view.dedicated.as_ref().map(|view| DedicatedJson::of(view, now)),
            state: view.state.as_str(),
            reason: view.reason,
            queued: view.queued,
            retrying: view.retrying,
            live: view.live,
            in_flight: view.in_flight,
            oldest_age_s: view.oldest.as_secs_f64(),
            wait_p99_ms: view.wait_p99.map(ms),
            worker_seconds: view.worker_time.as_secs_f64(),
            share: view.share,
            arrival_rate: view.arrival_rate,
            drain_rate: view.drain_rate,
            eta_s: view.eta.map(|eta| eta.as_secs_f64()),
            accepted: view.accepted,
            delivered: view.delivered,
            dead: view.dead,
            counted_since: view.counted.map(|span| rfc3339(now.minus(span))),
            waited_ms: Waited(view.waited),
            overflow: view.overflow.map(|lane| lane.to_string()),
            r#override: change.map(ChangeJson::of),
            pin: None,
            note: None,
            inside: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_whole_or_refused_with_the_reason() {
        let now = Wall::from_unix_s(1_000);
        let read = |text: &str| {
            let patch: GroupPatch = json(text.as_bytes()).map_err(|problem| format!("{problem:?}"))?;
            patch.checked(now).map_err(|problem| format!("{problem:?}"))
        };
        let (change, expiry) = read(r#"{"paused":true,"rate":"500/s","expires":"2h"}"#).unwrap();
        assert_eq!(change, Change { paused: Some(true), rate: Some((500, 1_000_000)), ..Change::default() });
        assert_eq!(expiry, Expiry::At(Wall::from_unix_s(1_000 + 7_200)));
        assert_eq!(read(r#"{"paused":false}"#).unwrap().1, Expiry::Usual);
        assert_eq!(read(r#"{"weight":2,"expires":"never"}"#).unwrap().1, Expiry::Never);
        for (text, why) in [
            (r#"{"weight":-1}"#, "0.01 to 1000"),
            (r#"{"concurrency":0}"#, "pause"),
            (r#"{"backlog":0}"#, "1 to 1000000000"),
            (r#"{"rate":"fast"}"#, "500/s"),
            (r#"{"rate":"0/s"}"#, "500/s"),
            (r#"{"expires":"soon"}"#, "never"),
            ("{}", "nothing is changed"),
            (r#"{"weigth":1}"#, "weigth"),
            ("{", "JSON"),
            ("[true,null,null,null,null,null]", "a list"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_query_is_refused_in_our_own_words() {
        for (text, why) in
            [("sort=age&limit=many", "limit: expected a whole number"), ("name=a", "unknown field `name`")]
        {
            let uri = format!("http://h/?{text}").parse().unwrap();
            let refused = Query::<GroupsQuery>::try_from_uri(&uri).map_err(|rejection| unreadable(&rejection));
            let error = format!("{:?}", refused.err().unwrap());
            assert!(error.contains(why) && !error.contains("deserialize"), "{error}");
        }
    }
}
