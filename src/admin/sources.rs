//! The calls about sources: what came through each, and holding one back as a whole.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Admin;
use super::api::{rfc3339, unreadable};
use super::audit::Who;
use super::expiry::expiry;
use super::groups::json;
use super::nodes::Wanted;
use super::nodes::whole::{self, Missing, Whole};
use super::problem::{Problem, Refusal};
use super::unseen::nearest;
use crate::driver::{Hold, SourceHold, SourceInfo};
use crate::event::Wall;

type Shared = State<Arc<Admin>>;

#[derive(Serialize, ToSchema)]
pub(super) struct SourcesView {
    sources: Vec<SourceView>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// A source as the API shows it.
#[derive(Serialize, ToSchema)]
pub(super) struct SourceView {
    name: String,
    /// Whether it is not in the configuration any more: it takes no requests and has no path; what is left of it here goes on, or waits until
    /// it is resumed.
    removed: bool,
    path: String,
    methods: Vec<String>,
    verify: String,
    key: Option<String>,
    key_signed: bool,
    /// `running`, `paused` (its events are accepted and wait) or `draining` (its requests are refused with 503, its events go on).
    state: &'static str,
    /// Who holds it, since when and until when; null: it runs.
    held: Option<HeldView>,
    /// Its pending events; null while those from before the start are being counted, and with a store in Redis, which does not count them.
    backlog: Option<u64>,
    accepted: u64,
    /// Groups that it had never had before, in the last minute; null where the signature covers the key, or none came.
    new_groups_per_minute: Option<u32>,
    /// What whoever changes it should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SourceHold)]
struct HeldView {
    since: String,
    /// Null: until it is resumed.
    expires: Option<String>,
    /// The way, and the address that it came from.
    by: String,
}

impl SourceView {
    fn of(admin: &Admin, source: &SourceInfo, whole: &Whole) -> Self {
        let hold = admin.handle.held_source(&source.name);
        let counts = whole.source(&source.name);
        Self {
            name: source.name.to_string(),
            removed: source.is_gone(),
            path: source.path.clone(),
            methods: source.methods.clone(),
            verify: source.verify.clone(),
            key: source.key.clone(),
            key_signed: source.key_signed,
            state: state(hold.as_ref()),
            held: hold.map(HeldView::from),
            backlog: counts.backlog,
            accepted: counts.accepted,
            note: None,
            new_groups_per_minute: counts.new_groups,
        }
    }
}

/// Its name for how a source stands.
pub(super) fn state(hold: Option<&SourceHold>) -> &'static str {
    match hold.map(|hold| hold.held) {
        None => "running",
        Some(Hold::Paused) => "paused",
        Some(Hold::Draining) => "draining",
    }
}

impl From<SourceHold> for HeldView {
    fn from(hold: SourceHold) -> Self {
        Self { since: rfc3339(Wall(hold.since)), expires: hold.ends.map(|at| rfc3339(Wall(at))), by: hold.by }
    }
}

/// The sources that are served; behind them those that were removed and are held, or have events left.
#[utoipa::path(get, path = "/api/v1/sources", tag = "sources", responses((status = 200, description = "In the order of the configuration; removed ones by name", body = SourcesView)))]
pub(super) async fn list(State(admin): Shared) -> Result<Json<SourcesView>, Problem> {
    let whole = whole::ask(&admin, Wanted { sources: true, ..Wanted::default() }).await?;
    let view = |source: &SourceInfo| SourceView::of(&admin, source, &whole);
    let sources = all(&admin).iter().map(view).collect();
    Ok(Json(SourcesView { sources, missing: whole.missing }))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceQuery {
    /// The source, as lists show it.
    #[param(example = "/webhooks/shopify")]
    name: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcePatch {
    /// `running`, `paused` or `draining`.
    #[schema(pattern = "^(running|paused|draining)$")]
    state: String,
    /// When a pause or a drain ends, RFC 3339, a span such as `2h`, or `never`; a day when left out.
    #[schema(pattern = "^(never|[1-9][0-9]{0,2}[smhd])$", example = "2h")]
    expires: Option<String>,
}

/// Pauses a source, lets it run dry, or lets it run again.
#[utoipa::path(patch, path = "/api/v1/source", tag = "sources", params(SourceQuery), request_body = SourcePatch, responses(
    (status = 200, description = "How it stands now", body = SourceView),
    (status = 404, description = "No source has this name", body = Refusal)))]
pub(super) async fn patch(
    State(admin): Shared,
    who: Who,
    query: Result<Query<SourceQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<SourceView>, Problem> {
    let patch: SourcePatch = json(&body?)?;
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    // Before the change: one that is gone may have nothing left afterwards.
    let source = known(&admin, &query.name)?;
    change(&admin, who, &query.name, &patch.state, patch.expires.as_deref()).await?;
    let whole = whole::ask(&admin, Wanted { sources: true, ..Wanted::default() }).await?;
    Ok(Json(SourceView { note: admin.handle.unwritten(), ..SourceView::of(&admin, &source, &whole) }))
}

/// Has a source run, wait or run dry, and leaves a line in the list of changes.
///
/// # Errors
/// There is no such source or state, or it could not be written down.
pub(super) async fn change(
    admin: &Admin,
    who: Who,
    name: &str,
    state: &str,
    expires: Option<&str>,
) -> Result<(), Problem> {
    let source = known(admin, name)?;
    let gone = source.is_gone();
    let source = source.name;
    let held = match state {
        "draining" if gone => {
            return Err(Problem::Parameter(format!(
                "state: {source} was removed and takes no requests: there is nothing to refuse"
            )));
        }
        "running" if expires.is_some() => {
            return Err(Problem::Parameter("expires: what runs has no end; leave it out".to_owned()));
        }
        "running" => None,
        "paused" => Some(Hold::Paused),
        "draining" => Some(Hold::Draining),
        other => {
            return Err(Problem::Parameter(format!("state: expected running, paused or draining, found {other:?}")));
        }
    };
    let told = match held {
        None => {
            if !admin.handle.resume_source(Arc::clone(&source)).await? {
                return Ok(());
            }
            "runs again".to_owned()
        }
        Some(held) => {
            let expiry = expiry(expires, admin.handle.now().wall)?;
            let by = who.in_words();
            admin.handle.hold_source(Arc::clone(&source), held, by, expiry).await?.map_err(Problem::Store)?;
            format!("{state}, for {}", expires.unwrap_or("24h"))
        }
    };
    admin.audit(who, &format!("source {source}"), &told);
    Ok(())
}

/// What is refused without being listed: a source that runs dry refuses everything, and a list of it would push out what a person needs to
/// see. `None`: no source of those asked for does.
pub(super) fn draining(admin: &Admin, only: Option<&str>) -> Option<String> {
    let sources = admin.handle.sources();
    let drains = |source: &&SourceInfo| {
        only.is_none_or(|only| only == &*source.name)
            && admin.handle.held_source(&source.name).is_some_and(|hold| hold.held == Hold::Draining)
    };
    let names: Vec<&str> = sources.iter().filter(drains).map(|source| &*source.name).collect();
    (!names.is_empty()).then(|| {
        let (names, what) = (names.join(", "), "what comes gets 503, and is counted (fairlane_shed_total), not listed");
        format!("draining: {names}; {what}; fairlane sources resume NAME ends it")
    })
}

/// Those that are served, and behind them those that are not and have something left here.
pub(super) fn all(admin: &Admin) -> Vec<SourceInfo> {
    let served = admin.handle.sources();
    served.iter().cloned().chain(admin.handle.sources_gone()).collect()
}

/// The source of this name, served or with something left here.
///
/// # Errors
/// There is none; which there are.
pub(super) fn known(admin: &Admin, name: &str) -> Result<SourceInfo, Problem> {
    let sources = all(admin);
    if let Some(source) = sources.iter().find(|source| *source.name == *name) {
        return Ok(source.clone());
    }
    let meant = nearest(name, sources.iter().map(|source| &*source.name));
    let there = || sources.iter().map(|source| &*source.name).collect::<Vec<_>>().join(", ");
    Err(Problem::NoSource(match meant {
        Some(meant) => format!("no source is called {name:?}; did you mean {meant:?}?"),
        None => format!("no source is called {name:?}; there are: {}", there()),
    }))
}
