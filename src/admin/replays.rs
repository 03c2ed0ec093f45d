//! The calls about replays: one event, and many by a filter (plan, then begin, then watch, pause or cancel).

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Admin;
use super::api::{event_id, rfc3339, statuses, time};
use super::groups::json;
use super::name;
use super::problem::Problem;
use crate::driver::replay::{Filter, NoReplay, Plan, ReplayView};
use crate::driver::{NotReplayed, Status};
use crate::event::Group;

type Shared = State<Arc<Admin>>;

/// What a replay is named by.
const PREFIX: &str = "replay-";

/// A wish for a replay.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    group: Option<String>,
    source: Option<String>,
    status: Option<Statuses>,
    since: Option<String>,
    until: Option<String>,
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

#[derive(Serialize)]
struct PlanView {
    plan: PlanJson,
}

#[derive(Serialize)]
struct PlanJson {
    filter: FilterJson,
    count: u64,
    /// False when the count was given up: there are more.
    complete: bool,
    bytes: u64,
    groups: u64,
    largest: Option<Share>,
    /// When the first and the last of them were received.
    span: Option<Span>,
    expected_s: Option<f64>,
}

#[derive(Serialize)]
struct Share {
    group: String,
    count: u64,
}

#[derive(Serialize)]
struct Span {
    from: String,
    to: String,
}

#[derive(Serialize)]
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
#[derive(Serialize)]
pub(super) struct ReplayJson {
    id: String,
    state: &'static str,
    filter: FilterJson,
    created_at: String,
    ended_at: Option<String>,
    planned: u64,
    requeued: u64,
    under_way: usize,
    delivered: u64,
    dead: u64,
    retrying: u64,
    withdrawn: u64,
    missed: u64,
    /// The groups with most events under way.
    waiting: Vec<Share>,
    rate: f64,
    eta_s: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct ReplaysView {
    replays: Vec<ReplayJson>,
}

#[derive(Serialize)]
pub(super) struct Requeued {
    id: String,
    seq: u64,
    status: &'static str,
    replays: u32,
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
pub(super) async fn event(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Requeued>, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    let replayed = admin.handle.replay(event_id(&id)?).await.map_err(|error| match error {
        NotReplayed::Unknown => Problem::Unknown(id),
        NotReplayed::Pending(_) | NotReplayed::Suppressed => Problem::Conflict(error.to_string()),
        NotReplayed::Store(error) => error.into(),
        NotReplayed::Gone(ended) => ended.into(),
    })?;
    tracing::info!(audit = true, event = %replayed.id, "an event is replayed");
    Ok(Json(Requeued {
        id: replayed.id.to_string(),
        seq: replayed.seq.0,
        status: Status::Queued.as_str(),
        replays: replayed.replays,
    }))
}

/// Says what a replay would be, or begins it.
pub(super) async fn create(State(admin): Shared, body: Result<Bytes, BytesRejection>) -> Result<Response, Problem> {
    let body = body?;
    let wish: Wish = json(if body.is_empty() { b"{}" } else { &body })?;
    let only_plan = wish.plan;
    let filter = wish.filter()?;
    if only_plan {
        let plan = admin.handle.plan_replay(&filter).await.map_err(Problem::Store)?;
        return Ok(Json(PlanView { plan: PlanJson::of(&filter, plan) }).into_response());
    }
    let view = admin.handle.start_replay(filter).await?;
    let filter = String::from_utf8_lossy(&body);
    tracing::info!(audit = true, replay = view.number, planned = view.planned, %filter, "a replay is begun");
    Ok((StatusCode::CREATED, Json(ReplayJson::from(view))).into_response())
}

pub(super) async fn list(State(admin): Shared) -> Json<ReplaysView> {
    Json(ReplaysView { replays: admin.handle.replays().into_iter().map(ReplayJson::from).collect() })
}

pub(super) async fn one(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ReplayJson>, Problem> {
    Ok(Json(admin.handle.replay_view(number(id)?)?.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    paused: bool,
}

/// Lets a replay wait, or go on.
pub(super) async fn patch(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ReplayJson>, Problem> {
    let number = number(id)?;
    let Patch { paused } = json(&body?)?;
    let view = admin.handle.pause_replay(number, paused).await?;
    tracing::info!(audit = true, replay = number, paused, "a replay was paused or goes on");
    Ok(Json(view.into()))
}

/// Ends a replay.
pub(super) async fn cancel(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ReplayJson>, Problem> {
    let number = number(id)?;
    let view = admin.handle.cancel_replay(number).await?;
    tracing::info!(audit = true, replay = number, "a replay was cancelled");
    Ok(Json(view.into()))
}

fn number(id: Result<Path<String>, PathRejection>) -> Result<u64, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    let number = id.strip_prefix(PREFIX).unwrap_or(&id).parse();
    number.map_err(|_| Problem::Parameter(format!("a replay is named {PREFIX}1, {PREFIX}2 …; found {id:?}")))
}

impl Wish {
    fn filter(self) -> Result<Filter, Problem> {
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
        let eta = (view.rate > 0.0 && !view.standing.is_over()).then(|| view.left as f64 / view.rate);
        Self {
            id: format!("{PREFIX}{}", view.number),
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
