//! One node among others: any of them shows the whole cluster.
//!
//! What concerns one group is answered by the node that owns it, which is asked in the name of whoever asks here. Lists and sums are
//! made of what every node answers; one that does not answer is named in `missing`. A node answers for itself alone where the request
//! comes from another node.

mod merge;
mod shards;

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use serde::Serialize;
use utoipa::ToSchema;

use super::pins::{self, PinJson};
use super::problem::Problem;
use super::{Admin, BODY_MAX, words};
use crate::driver::{NodeView, Relay, Seat};
use crate::event::{EventId, Group};
use merge::Merge;
use shards::{ShardJson, SkewJson};

/// What marks a request of another node: it is answered for this node alone.
const FORWARDED: HeaderName = HeaderName::from_static("fairlane-forwarded");

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
    let by_shard = shards::own(&admin, seat).await?;
    let skew = shards::skew(by_shard.iter().map(ShardJson::waiting));
    let (nodes, pins) = (nodes.iter().map(json).collect(), pins::all(&admin));
    let note = words::away(admin.handle.store_silence(&admin.handle.usage()));
    Ok(Json(NodesView { note, nodes, shards: seat.shards(), unowned, by_shard, skew, pins }))
}

/// Who has to answer a request.
enum Whose {
    /// This node.
    Ours,
    /// The node that owns this group.
    Owner(Group),
    /// The one that owns the group of this event.
    OwnerOf(EventId),
    /// All of them, put together.
    All(Merge),
}

impl Whose {
    fn of(method: &Method, uri: &Uri) -> Self {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let part = |name: &str| {
            let parts = query.split('&').filter_map(|part| part.split_once('='));
            parts.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        if let Some(rest) = path.strip_prefix("/api/v1/group")
            && matches!(rest, "" | "/cancel" | "/divert" | "/discard")
        {
            let name = percent_encoding::percent_decode_str(part("name").unwrap_or_default()).decode_utf8();
            return name.ok().and_then(|name| Group::from_written(&name)).map_or(Self::Ours, Self::Owner);
        }
        if let Some((id, "skip" | "discard")) =
            path.strip_prefix("/api/v1/events/").and_then(|rest| rest.split_once('/'))
            && let Ok(id) = id.parse()
        {
            return Self::OwnerOf(id);
        }
        match (method, path) {
            (&Method::GET, "/api/v1/groups") => Self::All(Merge::groups(part("sort"), part("limit"))),
            (&Method::GET, "/api/v1/upstream") => Self::All(Merge::Upstream),
            (&Method::GET, "/api/v1/nodes") => Self::All(Merge::Shards),
            _ => Self::Ours,
        }
    }
}

/// Lets a request be answered by whom it concerns.
pub(super) async fn answer(State(admin): Shared, request: Request, next: Next) -> Response {
    let Some((seat, relay)) = admin.others.get() else { return next.run(request).await };
    if request.headers().contains_key(FORWARDED) {
        return next.run(request).await;
    }
    let group = match Whose::of(request.method(), request.uri()) {
        Whose::Ours => return next.run(request).await,
        Whose::All(merge) => return all(&admin, seat, relay, merge, request, next).await,
        Whose::Owner(group) => group,
        Whose::OwnerOf(id) => match admin.handle.event(id).await {
            Ok(Some(story)) => story.record.home().group.clone(),
            _ => return next.run(request).await,
        },
    };
    match seat.owner_of(&group).filter(|owner| owner.about.node != seat.node().as_str()) {
        Some(owner) => pass_on(&admin, relay, &owner, request).await.unwrap_or_else(IntoResponse::into_response),
        None => next.run(request).await,
    }
}

/// The same request to another node, and its answer.
async fn pass_on(admin: &Admin, relay: &Relay, node: &NodeView, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, BODY_MAX).await.map_err(|_| Problem::TooLarge)?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let answer = ask(admin, relay, node, head.method, path, body).await;
    let (head, body) = answer.map_err(|why| Problem::Store(unasked(node, &why)))?.into_parts();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    Ok(response)
}

fn unasked(node: &NodeView, why: &str) -> String {
    let (name, admin) = (&node.about.node, &node.about.admin);
    format!("the node {name}, which owns it, could not be asked at {admin}: {why}")
}

async fn ask(
    admin: &Admin,
    relay: &Relay,
    node: &NodeView,
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
        .header(FORWARDED, "1")
        .body(body)
        .map_err(|error| error.to_string())?;
    let answer = relay(request).await?;
    if answer.status() == StatusCode::UNAUTHORIZED {
        return Err("its admin token is another one: give all nodes the same admin.token".to_owned());
    }
    Ok(answer)
}

/// What all nodes answer, put together.
async fn all(admin: &Admin, seat: &Seat, relay: &Relay, merge: Merge, request: Request, next: Next) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let nodes = seat.nodes();
    let others = nodes.iter().filter(|node| node.about.node != seat.node().as_str());
    let asked = others.map(|node| {
        let asking = ask(admin, relay, node, Method::GET, &path, Bytes::new());
        async move { (node, asking.await) }
    });
    let (ours, theirs) = tokio::join!(next.run(request), join_all(asked));
    let (head, body) = ours.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    let Some(mut sum) = serde_json::from_slice::<serde_json::Value>(&body).ok().filter(|_| head.status.is_success())
    else {
        return Response::from_parts(head, Body::from(body));
    };
    let mut missing = Vec::new();
    for (node, answer) in theirs {
        let answer = answer.and_then(|answer| match serde_json::from_slice(answer.body()) {
            Ok(json) if answer.status().is_success() => Ok(json),
            _ => Err(format!("it answered {}", answer.status().as_u16())),
        });
        match answer {
            Ok(json) => merge.add(&mut sum, json),
            Err(why) => missing.push(serde_json::json!({ "node": node.about.node, "why": why })),
        }
    }
    merge.finish(&mut sum);
    if let Some(sum) = sum.as_object_mut().filter(|_| !missing.is_empty()) {
        sum.insert("missing".to_owned(), missing.into());
    }
    Json(sum).into_response()
}
