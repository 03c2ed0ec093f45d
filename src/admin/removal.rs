//! The calls that end events without delivering them: one that is stuck, or a group's whole queue.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Admin;
use super::api::{EventPath, EventView, event_id, rfc3339};
use super::audit::Who;
use super::groups::{GroupQuery, has_its_queue, json};
use super::nodes::Wanted;
use super::nodes::whole::{self, Missing, Of};
use super::problem::{Problem, Refusal};
use crate::driver::{Action, Job, JobRefusal, Record, Removal, Removed, Status, Target};
use crate::event::{Group, Wall};

type Shared = State<Arc<Admin>>;

/// An end is durable within a batch or two of the disk; a store that takes longer is in trouble.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest name of whoever asks, characters.
const BY_MAX: usize = 64;

/// Moves an event that waits to the dead letters; answered when that is durable.
#[utoipa::path(post, path = "/api/v1/events/{id}/skip", tag = "events", params(EventPath), responses(
    (status = 200, description = "The event as it stands then", body = EventView),
    (status = 404, description = "It is unknown, or past retention", body = Refusal),
    (status = 409, description = "It cannot be ended as it stands, and why", body = Refusal),
    (status = 500, description = "It is damaged on the disk, with the place", body = Refusal)
))]
pub(super) async fn skip(
    State(admin): Shared,
    who: Who,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<EventView>, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    end(&admin, who, &id, Removal::Skip).await.map(|record| Json(record.into()))
}

/// Throws an event that waits away; answered when that is durable.
#[utoipa::path(post, path = "/api/v1/events/{id}/discard", tag = "events", params(EventPath), responses(
    (status = 200, description = "The event as it stands then", body = EventView),
    (status = 404, description = "It is unknown, or past retention", body = Refusal),
    (status = 409, description = "It cannot be ended as it stands, and why", body = Refusal),
    (status = 500, description = "It is damaged on the disk, with the place", body = Refusal)
))]
pub(super) async fn discard(
    State(admin): Shared,
    who: Who,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<EventView>, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    end(&admin, who, &id, Removal::Discard).await.map(|record| Json(record.into()))
}

/// Ends one event; answered when that is durable, with the event as it stands then.
pub(super) async fn end(admin: &Admin, who: Who, id: &str, removal: Removal) -> Result<Record, Problem> {
    let record = found(admin, id).await?;
    let target = Target::of(&record).ok_or_else(|| conflict(&record))?;
    let asked = tokio::time::timeout(PATIENCE, admin.handle.remove(vec![target], removal)).await;
    let results = asked.map_err(|_| Problem::Store("its end is being written, and that takes long".to_owned()))??;
    let record = found(admin, id).await?;
    match results.first() {
        Some(Removed::Ended) => {
            admin.audit(who, id, &format!("ended without a delivery: {}", record.status.as_str()));
            Ok(record)
        }
        Some(Removed::InFlight) => Err(conflict(&Record { status: Status::InFlight, ..record })),
        Some(Removed::Moved) => Err(Problem::Store(format!("the shard of {id} is just moving to another node"))),
        Some(Removed::Gone) | None => Err(conflict(&record)),
    }
}

async fn found(admin: &Admin, id: &str) -> Result<Record, Problem> {
    let story = admin.handle.event(event_id(id)?).await?;
    story.map(|story| story.record).ok_or_else(|| Problem::Unknown(id.to_owned()))
}

/// Why an event that stands there cannot be ended.
fn conflict(record: &Record) -> Problem {
    let id = record.id;
    Problem::Conflict(match record.status {
        Status::InFlight => format!(
            "{id} is in flight: an attempt is under way, and only an event that waits can be ended; ask again when it has failed, or end the attempt: fairlane groups cancel {}",
            record.lane.group
        ),
        Status::Queued | Status::Retrying => format!("{id} has just gone on; ask again"),
        ended => format!("{id} is {} already: nothing is to be ended", ended.as_str()),
    })
}

/// What is asked about a whole queue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask {
    /// Only say what would happen.
    #[serde(default)]
    plan: bool,
    /// The group's name again, for what cannot be taken back.
    confirm: Option<String>,
    /// Who asks.
    #[schema(min_length = 1, max_length = 64)]
    by: Option<String>,
}

/// What would happen.
#[derive(Serialize, ToSchema)]
pub(super) struct Plan {
    plan: bool,
    action: &'static str,
    group: String,
    /// Events that would be ended: those that are queued and those that wait for a further attempt.
    total: u64,
    queued: u64,
    retrying: u64,
    /// Events that would not be: their attempts end by themselves.
    in_flight: u32,
    oldest_age_s: f64,
    /// Whether it can be taken back, by a replay.
    reversible: bool,
}

/// A job as the API shows it.
#[derive(Serialize, ToSchema)]
pub(super) struct JobJson {
    id: u64,
    /// The node that works on it; left out where there is one, and where it alone is asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    action: &'static str,
    group: String,
    state: &'static str,
    total: u64,
    done: u64,
    skipped: u64,
    began_at: String,
    ended_at: Option<String>,
    by: String,
}

impl From<Job> for JobJson {
    fn from(job: Job) -> Self {
        Self {
            id: job.id,
            node: String::new(),
            action: job.action.as_str(),
            group: job.group,
            state: job.state.as_str(),
            total: job.total,
            done: job.done,
            skipped: job.skipped,
            began_at: rfc3339(Wall(job.began)),
            ended_at: job.ended.map(|at| rfc3339(Wall(at))),
            by: job.by,
        }
    }
}

impl From<JobRefusal> for Problem {
    fn from(refusal: JobRefusal) -> Self {
        match refusal {
            JobRefusal::Running(id) => Self::Conflict(format!(
                "job {id} of this group is running; wait for it, or call it off: DELETE /api/v1/jobs/{id}"
            )),
            JobRefusal::Over => Self::Conflict("that job has ended already".to_owned()),
            JobRefusal::Unknown => Self::Unknown("that job".to_owned()),
            JobRefusal::Unwritten(why) => Self::Store(why),
            JobRefusal::Ended => Self::Store("the driver has ended".to_owned()),
        }
    }
}

/// Moves the whole queue of a group to the dead letters, as a job.
#[utoipa::path(post, path = "/api/v1/group/divert", tag = "groups", params(GroupQuery), request_body = Ask, responses(
    (status = 200, description = "What would happen (`plan`)", body = Plan),
    (status = 202, description = "It has begun", body = JobJson),
    (status = 409, description = "A job of this group is running, or it has no lane of its own", body = Refusal)
))]
pub(super) async fn divert_all(
    admin: Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    end_all(&admin, who, query, body, Action::Divert).await
}

/// Throws the whole queue of a group away, as a job; `confirm` has to be the group's name.
#[utoipa::path(post, path = "/api/v1/group/discard", tag = "groups", params(GroupQuery), request_body = Ask, responses(
    (status = 200, description = "What would happen (`plan`)", body = Plan),
    (status = 202, description = "It has begun", body = JobJson),
    (status = 409, description = "A job of this group is running, or it has no lane of its own", body = Refusal)
))]
pub(super) async fn discard_all(
    admin: Shared,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    end_all(&admin, who, query, body, Action::Discard).await
}

async fn end_all(
    admin: &Admin,
    who: Who,
    query: Result<Query<GroupQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
    action: Action,
) -> Result<Response, Problem> {
    let group = GroupQuery::group(query)?;
    let ask: Ask = json(&body?)?;
    let by = ask.by.unwrap_or_else(|| "api".to_owned());
    if by.is_empty() || by.chars().count() > BY_MAX || by.chars().any(char::is_control) {
        return Err(Problem::Parameter(format!("by: expected 1 to {BY_MAX} printable characters, found {by:?}")));
    }
    let view = admin.handle.group(group.clone()).await?;
    has_its_queue(&view)?;
    if ask.plan {
        return Ok(Json(Plan {
            plan: true,
            action: action.as_str(),
            group: group.to_string(),
            total: view.queued + view.retrying,
            queued: view.queued,
            retrying: view.retrying,
            in_flight: view.in_flight,
            oldest_age_s: view.oldest.as_secs_f64(),
            reversible: action == Action::Divert,
        })
        .into_response());
    }
    if action == Action::Discard && ask.confirm.as_deref() != Some(group.as_str()) {
        return Err(Problem::Parameter(format!(
            "confirm: expected the group's name, {group:?}: what is discarded is delivered again only by a replay that asks for `discarded` events; to keep it among the dead letters, divert the group",
            group = group.as_str()
        )));
    }
    let job = begin(admin, who, &group, action, by).await?;
    Ok((StatusCode::ACCEPTED, Json(JobJson::from(job))).into_response())
}

/// Begins to end everything of a group that waits.
pub(super) async fn begin(admin: &Admin, who: Who, group: &Group, action: Action, by: String) -> Result<Job, Problem> {
    has_its_queue(&admin.handle.group(group.clone()).await?)?;
    let job = admin.handle.begin_job(group, action, by).await?;
    let Job { id, total, by, .. } = &job;
    admin.audit(who, group.as_str(), &format!("job {id} of {by}: {} {total} events that wait", action.as_str()));
    Ok(job)
}

#[derive(Serialize, ToSchema)]
pub(super) struct JobsJson {
    jobs: Vec<JobJson>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// Jobs that run, and that ended of late.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "groups", responses((status = 200, description = "All of them", body = JobsJson)))]
pub(super) async fn jobs(State(admin): Shared) -> Result<Json<JobsJson>, Problem> {
    let whole = whole::ask(&admin, Wanted { jobs: true, ..Wanted::default() }).await?;
    let json = |Of { node, it }: Of<Job>| JobJson { node, ..it.into() };
    let jobs = whole.jobs().into_iter().map(json).collect();
    Ok(Json(JobsJson { jobs, missing: whole.missing }))
}

/// Which job.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it stands for the path in the description; handlers take the text")]
pub(super) struct JobPath {
    /// Its number.
    id: u64,
}

fn job_id(id: Result<Path<String>, PathRejection>) -> Result<u64, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    id.parse().map_err(|_| Problem::Parameter(format!("{id:?}: a job's id is a whole number")))
}

/// One job.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "groups", params(JobPath), responses(
    (status = 200, description = "The job", body = JobJson), (status = 404, description = "It is unknown", body = Refusal)
))]
pub(super) async fn job(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<JobJson>, Problem> {
    let id = job_id(id)?;
    admin.handle.job(id).map(|job| Json(job.into())).ok_or_else(|| Problem::Unknown(format!("/api/v1/jobs/{id}")))
}

/// Calls a job off; what it has ended stays so.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "groups", params(JobPath), responses(
    (status = 200, description = "The job", body = JobJson), (status = 404, description = "It is unknown", body = Refusal),
    (status = 409, description = "It has ended already", body = Refusal)
))]
pub(super) async fn cancel(
    State(admin): Shared,
    who: Who,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<JobJson>, Problem> {
    call_off(&admin, who, job_id(id)?).await.map(|job| Json(job.into()))
}

/// Calls a running job off.
pub(super) async fn call_off(admin: &Admin, who: Who, id: u64) -> Result<Job, Problem> {
    let job = admin.handle.cancel_job(id).await?;
    let Job { id, group, done, total, ended, .. } = &job;
    let rest = if ended.is_some() { "" } else { "; its last batch is still being written" };
    admin.audit(who, group, &format!("job {id} called off after {done} of {total} events{rest}"));
    Ok(job)
}
