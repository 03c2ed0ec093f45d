//! The calls about replays: one event, and many by a filter (plan, then begin, then watch, pause or cancel).

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Admin;
use super::api::{EventPath, event_id, rfc3339, statuses, time};
use super::audit::Who;
use super::groups::{json, told};
use super::nodes::Wanted;
use super::nodes::whole::{self, Missing, Of};
use super::problem::{Problem, Refusal};
use super::{name, openapi, unseen};
use crate::driver::{self, Filter, NoReplay, NotReplayed, Plan, ReplayView, Replayed, Status};
use crate::event::Group;

type Shared = State<Arc<Admin>>;

/// What a replay is named by.
const PREFIX: &str = "replay-";

/// A wish for a replay: of the ended events that fit everything that is given.
#[derive(Deserialize, ToSchema)]
#[schema(as = ReplayWish)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// The group, in the written form.
    #[schema(pattern = r"^([A-Za-z0-9._:@-]+|~[a-z0-9-]+)$", max_length = 769)]
    group: Option<String>,
    source: Option<String>,
    #[schema(schema_with = openapi::ended_statuses, required = false)]
    status: Option<Statuses>,
    /// Received at this time or later, RFC 3339.
    #[schema(format = DateTime)]
    since: Option<String>,
    /// Received before this time, RFC 3339.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// Only with this id of the provider's own.
    provider_event_id: Option<String>,
    /// True: count, and change nothing.
    #[serde(default)]
    plan: bool,
}

/// `"dead"`, `"dead,delivered"` or `["dead"]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Statuses {
    One(String),
    Many(Vec<String>),
}

#[derive(Serialize, ToSchema)]
#[schema(as = ReplayPlanned)]
pub(super) struct PlanView {
    /// What to know where nothing fits: no source or group of this name was ever seen, and which may be meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    plan: PlanJson,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ReplayPlan)]
struct PlanJson {
    filter: FilterJson,
    count: u64,
    /// False when the count was given up: there are more.
    complete: bool,
    bytes: u64,
    groups: u64,
    /// The group with most of them.
    largest: Option<Share>,
    /// Those of them that have an order key. Fresh events of the same keys go before what the replay has not yet put back into its lane, where
    /// 16 of a group wait at a time (64 where it is about one group): where that matters, drain the source until the replay is done.
    ordered: u64,
    /// When the first and the last of them were received.
    span: Option<Span>,
    /// Null: nothing was delivered of late to tell by.
    expected_s: Option<f64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = GroupCount)]
struct Share {
    group: String,
    count: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TimeSpan)]
struct Span {
    from: String,
    to: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ReplayFilter)]
struct FilterJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    status: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_event_id: Option<String>,
}

/// A replay as the API shows it.
#[derive(Serialize, ToSchema)]
#[schema(as = Replay)]
pub(super) struct ReplayJson {
    id: String,
    /// The node that works on it; left out where there is one, and where it alone is asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    /// `running`, `paused`, `cancelled` or `done`.
    state: &'static str,
    filter: FilterJson,
    created_at: String,
    ended_at: Option<String>,
    /// Events that it found when it was begun.
    planned: u64,
    /// Put back into their lanes so far.
    requeued: u64,
    /// Of them, those before the end of their first attempt.
    under_way: usize,
    delivered: u64,
    dead: u64,
    retrying: u64,
    /// Taken back before an attempt.
    withdrawn: u64,
    /// No longer there when their turn came.
    missed: u64,
    /// The groups with most events under way.
    waiting: Vec<Share>,
    /// Events a second that had their attempt.
    rate: f64,
    eta_s: Option<f64>,
    /// Of one that is cancelled, what could not be taken back, and why; left out where all of it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ReplaysView {
    replays: Vec<ReplayJson>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// An event that is pending again.
#[derive(Serialize, ToSchema)]
pub(super) struct Requeued {
    id: String,
    seq: u64,
    status: &'static str,
    /// How often it was made pending again, this time with it.
    replays: u32,
}

/// Which replay.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it stands for the path in the description; handlers take the text")]
pub(super) struct ReplayPath {
    /// Its name, or only the number.
    #[param(pattern = "^(replay-)?[0-9]{1,18}$", example = "replay-1")]
    id: String,
}

impl From<NoReplay> for Problem {
    fn from(error: NoReplay) -> Self {
        match error {
            NoReplay::TooMany | NoReplay::Over { .. } => Self::Conflict(error.to_string()),
            NoReplay::Unknown(number) => Self::Unknown(format!("{PREFIX}{number}")),
            NoReplay::Failed(_) | NoReplay::Gone(_) => Self::Store(error.to_string()),
        }
    }
}

/// Makes one ended event pending again.
#[utoipa::path(post, path = "/api/v1/events/{id}/replay", tag = "events", params(EventPath), responses(
    (status = 200, description = "It is queued", body = Requeued),
    (status = 404, description = "It is unknown, or past retention", body = Refusal),
    (status = 409, description = "It is pending, or a suppressed duplicate", body = Refusal),
    (status = 500, description = "It is damaged on the disk, with the place", body = Refusal)
))]
pub(super) async fn event(
    State(admin): Shared,
    who: Who,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Requeued>, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    let replayed = again(&admin, who, &id).await?;
    Ok(Json(Requeued {
        id: replayed.id.to_string(),
        seq: replayed.seq.0,
        status: Status::Queued.as_str(),
        replays: replayed.replays,
    }))
}

/// Makes the event with this id pending again.
pub(super) async fn again(admin: &Admin, who: Who, id: &str) -> Result<Replayed, Problem> {
    let replayed = admin.handle.replay(event_id(id)?).await.map_err(|error| match error {
        NotReplayed::Unknown => Problem::Unknown(id.to_owned()),
        NotReplayed::Pending(_) | NotReplayed::Suppressed => Problem::Conflict(error.to_string()),
        NotReplayed::Store(error) => error.into(),
        NotReplayed::Gone(ended) => ended.into(),
    })?;
    admin.audit(who, id, "replayed");
    Ok(replayed)
}

/// Says what a replay of many events would be (`plan`), or begins it.
#[utoipa::path(post, path = "/api/v1/replays", tag = "replays", request_body = Wish, responses(
    (status = 200, description = "What it would be (`plan`)", body = PlanView),
    (status = 201, description = "It has begun", body = ReplayJson),
    (status = 404, description = "No source or group of this name was ever seen", body = Refusal),
    (status = 409, description = "Too many are not over", body = Refusal)
))]
pub(super) async fn create(
    State(admin): Shared,
    who: Who,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let wish: Wish = json(&body?)?;
    let only_plan = wish.plan;
    let filter = wish.filter()?;
    if only_plan {
        let plan = planned(&admin, &filter).await?;
        let note = if plan.count == 0 { unseen::why_never(&admin, &filter).await? } else { None };
        return Ok(Json(PlanView { note, plan: PlanJson::of(&filter, plan) }).into_response());
    }
    let view = begin(&admin, who, filter).await?;
    Ok((StatusCode::CREATED, Json(ReplayJson::from(view))).into_response())
}

/// What a replay of these would be.
pub(super) async fn planned(admin: &Admin, filter: &Filter) -> Result<Plan, Problem> {
    admin.handle.plan_replay(filter).await.map_err(Problem::Store)
}

/// Begins a replay.
pub(super) async fn begin(admin: &Admin, who: Who, filter: Filter) -> Result<ReplayView, Problem> {
    if let Some(why) = unseen::why_never(admin, &filter).await? {
        return Err(Problem::Nothing(why));
    }
    let told = told(&FilterJson::of(&filter));
    let view = admin.handle.start_replay(filter).await?;
    admin.audit(who, &name_of(&view), &format!("begun, {} events: {told}", view.planned));
    Ok(view)
}

/// Replays, the newest first; of those that are over, the last hundred.
#[utoipa::path(get, path = "/api/v1/replays", tag = "replays", responses((status = 200, description = "All of them", body = ReplaysView)))]
pub(super) async fn list(State(admin): Shared) -> Result<Json<ReplaysView>, Problem> {
    let whole = whole::ask(&admin, Wanted { replays: true, ..Wanted::default() }).await?;
    let json = |Of { node, it }: Of<ReplayView>| ReplayJson { node, ..it.into() };
    let replays = whole.replays().into_iter().map(json).collect();
    Ok(Json(ReplaysView { replays, missing: whole.missing }))
}

/// One replay.
#[utoipa::path(get, path = "/api/v1/replays/{id}", tag = "replays", params(ReplayPath), responses(
    (status = 200, description = "How far it is", body = ReplayJson), (status = 404, description = "It is unknown", body = Refusal)
))]
pub(super) async fn one(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ReplayJson>, Problem> {
    Ok(Json(admin.handle.replay_view(number(id)?)?.into()))
}

/// What may be changed of a replay.
#[derive(Deserialize, ToSchema)]
#[schema(as = ReplayPatch)]
#[serde(deny_unknown_fields)]
pub(super) struct Patch {
    paused: bool,
}

/// Lets a replay wait, or go on.
#[utoipa::path(patch, path = "/api/v1/replays/{id}", tag = "replays", params(ReplayPath), request_body = Patch, responses(
    (status = 200, description = "The replay", body = ReplayJson), (status = 404, description = "It is unknown", body = Refusal),
    (status = 409, description = "It is over", body = Refusal)
))]
pub(super) async fn patch(
    State(admin): Shared,
    who: Who,
    id: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ReplayJson>, Problem> {
    let number = number(id)?;
    let Patch { paused } = json(&body?)?;
    Ok(Json(pause(&admin, who, number, paused).await?.into()))
}

/// Lets a replay wait (`paused`), or go on.
pub(super) async fn pause(admin: &Admin, who: Who, number: u64, paused: bool) -> Result<ReplayView, Problem> {
    let view = admin.handle.pause_replay(number, paused).await?;
    admin.audit(who, &name_of(&view), if paused { "paused" } else { "goes on" });
    Ok(view)
}

/// Ends a replay; what was not attempted stands as before.
#[utoipa::path(delete, path = "/api/v1/replays/{id}", tag = "replays", params(ReplayPath), responses(
    (status = 200, description = "The replay", body = ReplayJson), (status = 404, description = "It is unknown", body = Refusal),
    (status = 409, description = "It is over", body = Refusal)
))]
pub(super) async fn cancel(
    State(admin): Shared,
    who: Who,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ReplayJson>, Problem> {
    let (view, note) = end(&admin, who, number(id)?).await?;
    Ok(Json(ReplayJson { note, ..view.into() }))
}

/// Ends a replay. With it, what of it goes on nevertheless.
pub(super) async fn end(admin: &Admin, who: Who, number: u64) -> Result<(ReplayView, Option<String>), Problem> {
    let (view, note) = admin.handle.cancel_replay(number).await?;
    admin.audit(who, &name_of(&view), "cancelled");
    Ok((view, note))
}

/// What a replay is called.
pub(super) fn name_of(view: &ReplayView) -> String {
    named(view.number)
}

/// The same by its number.
pub(super) fn named(number: u64) -> String {
    format!("{PREFIX}{number}")
}

fn number(id: Result<Path<String>, PathRejection>) -> Result<u64, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    let number = id.strip_prefix(PREFIX).unwrap_or(&id).parse();
    number.map_err(|_| Problem::Parameter(format!("a replay is named {PREFIX}1, {PREFIX}2 …; found {id:?}")))
}

impl Wish {
    /// Of fields: `field` gives what was filled in under a condition's name.
    pub(super) fn of<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Self {
        let text = |name: &str| field(name).map(str::to_owned);
        Self {
            group: text("group"),
            source: text("source"),
            status: text("status").map(Statuses::One),
            since: text("since"),
            until: text("until"),
            provider_event_id: text("provider_event_id"),
            plan: false,
        }
    }

    /// What it is about.
    pub(super) fn filter(self) -> Result<Filter, Problem> {
        let status = match self.status {
            None => vec![Status::Dead],
            Some(Statuses::One(text)) => statuses(&text)?,
            Some(Statuses::Many(texts)) => statuses(&texts.join(","))?,
        };
        if let Some(status) = status.iter().find(|status| !is_replayed(**status)) {
            let why = match status {
                Status::Suppressed => "a suppressed event is released, one by one",
                _ => "such an event will be delivered anyway",
            };
            let expected = "expected dead, delivered or discarded";
            return Err(Problem::Parameter(format!("status: {expected}, found {}: {why}", status.as_str())));
        }
        Ok(Filter {
            group: self.group.map(|text| name::group("group", &text)).transpose()?,
            source: self.source.map(Into::into),
            status,
            since: self.since.as_deref().map(|text| time("since", text)).transpose()?,
            until: self.until.as_deref().map(|text| time("until", text)).transpose()?,
            provider_event_id: self.provider_event_id.map(Into::into),
        })
    }
}

/// Whether events that ended so may be replayed.
fn is_replayed(status: Status) -> bool {
    matches!(status, Status::Dead | Status::Delivered | Status::Discarded)
}

impl PlanJson {
    fn of(filter: &Filter, plan: Plan) -> Self {
        Self {
            filter: FilterJson::of(filter),
            count: plan.count,
            complete: plan.complete,
            bytes: plan.bytes,
            groups: plan.groups,
            largest: plan.largest.map(|(group, count)| Share { group: group.to_string(), count }),
            ordered: plan.ordered,
            span: plan.span.map(|(from, to)| Span { from: rfc3339(from), to: rfc3339(to) }),
            expected_s: plan.expected.map(|span| span.as_secs_f64()),
        }
    }
}

impl FilterJson {
    fn of(filter: &Filter) -> Self {
        Self {
            group: filter.group.as_ref().map(Group::to_string),
            source: filter.source.as_ref().map(ToString::to_string),
            status: filter.status.iter().map(|status| status.as_str()).collect(),
            since: filter.since.map(rfc3339),
            until: filter.until.map(rfc3339),
            provider_event_id: filter.provider_event_id.as_deref().map(str::to_owned),
        }
    }
}

impl From<ReplayView> for ReplayJson {
    fn from(view: ReplayView) -> Self {
        let tally = view.tally;
        #[expect(clippy::cast_precision_loss, reason = "shown, not computed with")]
        let eta = (view.rate > 0.0 && view.standing == driver::Standing::Running).then(|| view.left as f64 / view.rate);
        Self {
            id: name_of(&view),
            node: String::new(),
            state: view.standing.as_str(),
            filter: FilterJson::of(&view.filter),
            created_at: rfc3339(view.created),
            ended_at: view.ended.map(rfc3339),
            planned: view.planned,
            requeued: tally.requeued,
            under_way: view.under_way,
            delivered: tally.delivered,
            dead: tally.dead,
            retrying: tally.retrying,
            withdrawn: tally.withdrawn,
            missed: tally.missed,
            waiting: view
                .waiting
                .into_iter()
                .map(|(group, count)| Share { group: group.to_string(), count: count as u64 })
                .collect(),
            rate: view.rate,
            eta_s: eta,
            note: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Wall;

    fn filter(text: &str) -> Result<Filter, String> {
        let wish: Wish = json(text.as_bytes()).map_err(|problem| format!("{problem:?}"))?;
        wish.filter().map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn a_wish_is_about_dead_letters_unless_it_says_otherwise() {
        assert_eq!(filter("{}"), Ok(Filter::default()));
        let both = Ok(vec![Status::Dead, Status::Delivered]);
        assert_eq!(filter(r#"{"status":"dead,delivered"}"#).map(|filter| filter.status), both);
        assert_eq!(filter(r#"{"status":["dead","delivered"],"plan":true}"#).map(|filter| filter.status), both);
        let found = filter(r#"{"group":"a","since":"2026-01-31T08:00:00Z"}"#).unwrap();
        assert_eq!((found.group, found.since), (Some(Group::of(&["a"])), Some(Wall(1_769_846_400_000_000))));
        for (text, why) in [
            (r#"{"status":"queued"}"#, "delivered anyway"),
            (r#"{"status":"suppressed"}"#, "released"),
            (r#"{"status":"lost"}"#, "none of"),
            (r#"{"groups":"a"}"#, "groups"),
            (r#"{"since":"yesterday"}"#, "RFC 3339"),
        ] {
            let error = filter(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
