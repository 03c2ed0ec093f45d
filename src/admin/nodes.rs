//! One node among others: any of them shows the whole cluster, and takes what is asked of it.
//!
//! What concerns one group is answered by the node that owns it, which is asked in the name of whoever asks here. What one node alone knows
//! (a replay, a job, an event in its spool) is answered here, or else by whoever knows it. Lists and sums are made of what every node
//! [reports](report); one that does not is named in `missing` ([`whole`]). A node answers for itself alone where the request comes from
//! another node.

mod report;
mod shards;
pub(super) mod whole;

use std::sync::{Arc, OnceLock, Weak};

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_TYPE, HOST, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit::Who;
use super::pins::{self, PinJson};
use super::problem::Problem;
use super::{Admin, BODY_MAX, Peer, words};
use crate::driver::{NodeView, Relay, Removal, RemoveThere, Removed, Seat, Target};
use crate::event::{EventId, Group, Seq};
pub(super) use report::{Report, SourceReport, Wanted};
use shards::{ShardJson, SkewJson};
use whole::Missing;

/// What marks a request of another node: it is answered for this node alone. Its value says who asked there, where somebody did.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("fairlane-forwarded");

/// Where nodes ask each other how they stand.
pub(super) const REPORT: &str = "/api/v1/nodes/report";

/// And have each other end events.
pub(super) const REMOVE: &str = "/api/v1/nodes/remove";

/// The longest of those questions, bytes: a batch of events of which each has the longest names.
pub(super) const REMOVE_BYTES_MAX: usize = 2 << 20;

/// The others, and the way to them; set once, on a node that is not alone.
pub(super) type Others = OnceLock<(Arc<Seat>, Relay)>;

type Shared = State<Arc<Admin>>;

#[derive(Default, Serialize, ToSchema)]
pub(super) struct NodesView {
    /// What to know besides: Redis does not answer, so this is how the nodes stood when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    nodes: Vec<NodeJson>,
    /// Shards there are; 0 with an embedded store.
    shards: u16,
    /// Shards that no living node says it owns.
    unowned: Vec<u16>,
    /// Each shard as its owner has it, by number.
    by_shard: Vec<ShardJson>,
    skew: SkewJson,
    /// Groups that are pinned to a shard, and those on their way back.
    pins: Vec<PinJson>,
    /// Nodes whose shards are not in `by_shard`, and why; left out where all are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

#[derive(Serialize, ToSchema)]
struct NodeJson {
    node: String,
    /// Whether it is the one that answers.
    this: bool,
    admin: String,
    version: String,
    /// Whether it is about to end.
    leaving: bool,
    /// How long ago it said that it lives.
    silent_s: f64,
    /// Of `upstream.concurrency`, what it may use now.
    slots: u32,
    busy: u32,
    /// The weights of the groups that wait there and could use a slot.
    weight: f64,
    shards: Vec<u16>,
    /// Those of them that it is giving up.
    moving: Vec<u16>,
}

/// The nodes that live, the shards that each owns, and what waits in each.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "node", responses((status = 200, description = "By name; empty with an embedded store", body = NodesView)))]
pub(super) async fn list(State(admin): Shared) -> Result<Json<NodesView>, Problem> {
    let Some((seat, _)) = admin.others.get() else { return Ok(Json(NodesView::default())) };
    let nodes = seat.nodes();
    let owned = |shard: &u16| nodes.iter().any(|node| node.held.contains(shard));
    let unowned = (0..seat.shards()).filter(|shard| !owned(shard)).collect();
    let json = |node: &NodeView| NodeJson {
        node: node.about.node.clone(),
        this: node.about.node == seat.node().as_str(),
        admin: node.about.admin.clone(),
        version: node.about.version.clone(),
        leaving: node.about.leaving,
        silent_s: node.silent.as_secs_f64(),
        slots: node.slots,
        busy: node.about.busy,
        weight: node.about.weight as f64 / 1_000.0,
        shards: node.held.clone(),
        moving: node.about.moving.clone(),
    };
    let whole = whole::ask(&admin, Wanted { shards: true, ..Wanted::default() }).await?;
    let by_shard = shards::in_order(whole.each(|report| &report.shards).map(|of| of.it).collect());
    let skew = shards::skew(by_shard.iter().map(ShardJson::waiting));
    let (nodes, pins) = (nodes.iter().map(json).collect(), pins::all(&admin));
    let missing = whole.missing.into_iter().filter(|missing| missing.node.is_some()).collect();
    let note = words::away(admin.handle.store_silence(&admin.handle.usage()));
    Ok(Json(NodesView { note, nodes, shards: seat.shards(), unowned, by_shard, skew, pins, missing }))
}

/// Who answers a request.
enum Whose {
    /// This node.
    Ours,
    /// This other one.
    Theirs(Box<NodeView>),
    /// This node, where it knows of it; else whoever does.
    Whoever,
}

impl Whose {
    async fn of(admin: &Admin, path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        if let Some(rest) = path.strip_prefix("/api/v1/group")
            && matches!(rest, "" | "/cancel" | "/divert" | "/discard" | "/close-breaker")
        {
            let mut parts = form_urlencoded::parse(query.as_bytes());
            let name = parts.find(|(key, _)| key == "name").map(|(_, value)| value);
            return name
                .and_then(|name| Group::from_written(&name))
                .map_or(Self::Ours, |group| Self::owner(admin, &group));
        }
        if let Some(rest) = path.strip_prefix("/api/v1/events/") {
            let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
            let Ok(id) = id.parse::<EventId>() else { return Self::Ours };
            if !matches!(action, "skip" | "discard") {
                return Self::Whoever;
            }
            return match admin.handle.event(id).await {
                // Its shard, and not its group's: a group's older events may be in another one.
                Ok(Some(story)) => Self::owner_of_event(admin, story.record.seq),
                _ => Self::Whoever,
            };
        }
        let one_of = |list: &str| path.strip_prefix(list).is_some_and(|id| !id.is_empty());
        if one_of("/api/v1/replays/") || one_of("/api/v1/jobs/") {
            return Self::Whoever;
        }
        Self::Ours
    }

    fn owner(admin: &Admin, group: &Group) -> Self {
        owner_elsewhere(admin, group).map_or(Self::Ours, |node| Self::Theirs(Box::new(node)))
    }

    fn owner_of_event(admin: &Admin, seq: Seq) -> Self {
        let owner = admin.others.get().and_then(|(seat, _)| elsewhere_of(seat, seat.holder_of_event(seq)));
        owner.map_or(Self::Ours, |node| Self::Theirs(Box::new(node)))
    }
}

/// The node that owns a group, where that is another one.
pub(super) fn owner_elsewhere(admin: &Admin, group: &Group) -> Option<NodeView> {
    let (seat, _) = admin.others.get()?;
    elsewhere_of(seat, seat.owner_of(group))
}

fn elsewhere_of(seat: &Seat, owner: Option<NodeView>) -> Option<NodeView> {
    owner.filter(|owner| owner.about.node != seat.node().as_str())
}

/// What to know of a group whose shard no node owns now.
pub(super) fn ownerless(admin: &Admin, group: &Group) -> Option<String> {
    let (seat, _) = admin.others.get()?;
    seat.owner_of(group)
        .is_none()
        .then(|| "no node owns its shard now: what waits of it is not shown, and waits for the next owner".to_owned())
}

/// Lets a request be answered by whom it concerns.
pub(super) async fn answer(State(admin): Shared, request: Request, next: Next) -> Response {
    if admin.others.get().is_none() || request.headers().contains_key(FORWARDED) {
        return next.run(request).await;
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let whose = Whose::of(&admin, &path).await;
    if matches!(whose, Whose::Ours) {
        return next.run(request).await;
    }
    let who = Who::through("api", request.extensions().get::<Peer>().map(|peer| peer.0));
    let (head, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await else { return Problem::TooLarge.into_response() };
    let asked = Asked { who, method: head.method.clone(), path, body: body.clone() };
    match whose {
        Whose::Theirs(node) => of_one(&admin, &node, &asked).await.map_or_else(IntoResponse::into_response, response),
        _ => {
            let here = next.run(Request::from_parts(head, Body::from(body))).await;
            if here.status() != StatusCode::NOT_FOUND {
                return here;
            }
            let there = of_whoever(&admin, &asked).await;
            there.map_or_else(IntoResponse::into_response, |answer| answer.map_or(here, response))
        }
    }
}

/// What somebody asks.
struct Asked {
    who: Who,
    method: Method,
    path: String,
    body: Bytes,
}

fn response(answer: http::Response<Bytes>) -> Response {
    let (head, body) = answer.into_parts();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = head.status;
    for name in [CONTENT_TYPE, CONTENT_DISPOSITION, X_CONTENT_TYPE_OPTIONS] {
        if let Some(value) = head.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// What a person presses on a page, asked of the node that it concerns as the API would; `None`: it is this one's to do.
///
/// # Errors
/// That node refuses it, or does not answer.
pub(super) async fn elsewhere(
    admin: &Admin,
    who: Who,
    call: &str,
    body: serde_json::Value,
) -> Result<Option<serde_json::Value>, Problem> {
    let (method, path) = call.split_once(' ').unwrap_or(("GET", call));
    if admin.others.get().is_none() || knows(admin, path).await {
        return Ok(None);
    }
    let whose = Whose::of(admin, path).await;
    let (method, path) = (Method::from_bytes(method.as_bytes()).unwrap_or_default(), path.to_owned());
    let asked = Asked { who, method, path, body: body.to_string().into() };
    let answer = match whose {
        Whose::Ours => return Ok(None),
        Whose::Theirs(node) => of_one(admin, &node, &asked).await?,
        Whose::Whoever => match of_whoever(admin, &asked).await? {
            Some(answer) => answer,
            None => return Ok(None),
        },
    };
    let said: serde_json::Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    if answer.status().is_success() {
        return Ok(Some(said));
    }
    let error = said.get("error").and_then(serde_json::Value::as_str).unwrap_or("another node refused it");
    Err(Problem::Elsewhere(answer.status(), error.to_owned()))
}

/// Whether this node knows of a replay, a job or an event that a path names.
async fn knows(admin: &Admin, path: &str) -> bool {
    let rest = |list| path.strip_prefix(list).map(|rest: &str| rest.split('/').next().unwrap_or(rest));
    if let Some(replay) = rest("/api/v1/replays/") {
        let number = replay.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse();
        return number.is_ok_and(|number| admin.handle.replay_view(number).is_ok());
    }
    if let Some(job) = rest("/api/v1/jobs/") {
        return job.parse().is_ok_and(|id| admin.handle.job(id).is_some());
    }
    false
}

/// Asks one node.
async fn of_one(admin: &Admin, node: &NodeView, asked: &Asked) -> Result<http::Response<Bytes>, Problem> {
    let Some((_, relay)) = admin.others.get() else { return Err(Problem::Store("this node is alone".to_owned())) };
    let Asked { who, method, path, body } = asked;
    let answer = ask(admin, relay, node, Some(*who), method.clone(), path, body.clone()).await;
    answer.map_err(|why| Problem::Store(unasked(node, &why)))
}

fn unasked(node: &NodeView, why: &str) -> String {
    let (name, admin) = (&node.about.node, &node.about.admin);
    format!("the node {name}, which owns it, could not be asked at {admin}: {why}")
}

/// Asks all others; the answer of the one that knows of it.
async fn of_whoever(admin: &Admin, asked: &Asked) -> Result<Option<http::Response<Bytes>>, Problem> {
    let (answers, missing) = of_others(admin, asked).await;
    let known = answers.into_iter().find(|answer| answer.status() != StatusCode::NOT_FOUND);
    match (known, missing.first()) {
        (Some(answer), _) => Ok(Some(answer)),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let missing: Vec<String> = missing.iter().map(Missing::in_words).collect();
            Err(Problem::Store(format!("no node that answers knows of it; {}", missing.join("; "))))
        }
    }
}

async fn of_others(admin: &Admin, asked: &Asked) -> (Vec<http::Response<Bytes>>, Vec<Missing>) {
    let Some((seat, relay)) = admin.others.get() else { return (Vec::new(), Vec::new()) };
    let nodes = seat.nodes();
    let others = nodes.iter().filter(|node| node.about.node != seat.node().as_str());
    let asking = others.map(|node| async move {
        let Asked { who, method, path, body } = asked;
        let answer = ask(admin, relay, node, Some(*who), method.clone(), path, body.clone()).await;
        answer.map_err(|why| Missing { node: Some(node.about.node.clone()), why })
    });
    let (mut answers, mut missing) = (Vec::new(), Vec::new());
    for answer in join_all(asking).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(one) => missing.push(one),
        }
    }
    (answers, missing)
}

/// Has all other nodes do what was done here; their answers, and who did not answer or refused.
pub(super) async fn tell_others(
    admin: &Admin,
    who: Who,
    (method, path): (Method, &str),
    body: &serde_json::Value,
) -> (Vec<serde_json::Value>, Vec<Missing>) {
    if who.is_relayed {
        return (Vec::new(), Vec::new());
    }
    let asked = Asked { who, method, path: path.to_owned(), body: body.to_string().into() };
    let (answers, missing) = of_others(admin, &asked).await;
    let read = |answer: http::Response<Bytes>| serde_json::from_slice(answer.body()).unwrap_or_default();
    (answers.into_iter().map(read).collect(), missing)
}

async fn ask(
    admin: &Admin,
    relay: &Relay,
    node: &NodeView,
    who: Option<Who>,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<http::Response<Bytes>, String> {
    let mut token = b"Bearer ".to_vec();
    token.extend_from_slice(admin.access().token.expose());
    let token = HeaderValue::from_bytes(&token).map_err(|_| "admin.token cannot stand in a header".to_owned())?;
    let request = http::Request::builder()
        .method(method)
        .uri(format!("http://{}{path}", node.about.admin))
        // Its own name is not among those that it takes; every node is reached by itself.
        .header(HOST, "localhost")
        .header(AUTHORIZATION, token)
        .header(CONTENT_TYPE, "application/json")
        .header(FORWARDED, who.map_or_else(|| "node".to_owned(), Who::as_header))
        .body(body)
        .map_err(|error| error.to_string())?;
    let answer = relay(request).await?;
    if answer.status() == StatusCode::UNAUTHORIZED {
        return Err("its admin token is another one: give all nodes the same admin.token".to_owned());
    }
    Ok(answer)
}

/// Events that the owner of their shard is to end.
#[derive(Serialize, Deserialize)]
pub(super) struct Remove {
    targets: Vec<Target>,
    removal: Removal,
}

/// Ends events of a shard of this node for another one, which works on a job or calls a replay off.
pub(super) async fn remove(State(admin): Shared, Json(ask): Json<Remove>) -> Result<Json<Vec<Removed>>, Problem> {
    Ok(Json(admin.handle.remove(ask.targets, ask.removal).await?))
}

/// As the driver asks for that.
pub(super) fn remover(admin: Weak<Admin>) -> RemoveThere {
    Arc::new(move |shard, targets, removal| {
        let admin = admin.upgrade();
        Box::pin(async move {
            let admin = admin.ok_or_else(|| "this node is ending".to_owned())?;
            let (seat, relay) = admin.others.get().ok_or_else(|| "this node is alone".to_owned())?;
            let owner = elsewhere_of(seat, seat.holder_of(shard));
            let owner = owner.ok_or_else(|| format!("the shard {shard} has no owner now"))?;
            let body = serde_json::to_vec(&Remove { targets, removal }).map_err(|error| error.to_string())?;
            let answer = ask(&admin, relay, &owner, None, Method::POST, REMOVE, body.into()).await;
            let answer = answer.map_err(|why| unasked(&owner, &why))?;
            serde_json::from_slice(answer.body())
                .map_err(|_| unasked(&owner, &format!("it answered {}", answer.status().as_u16())))
        })
    })
}

/// How this node stands, for another one.
pub(super) async fn report(State(admin): Shared, Json(wanted): Json<Wanted>) -> Result<Json<Report>, Problem> {
    Report::own(&admin, &wanted).await.map(Json)
}
