//! The calls. Each reads what the driver's handle gives and writes it as JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::Admin;
use super::alerts::{Firing, firing};
use super::dedicated::StatusJson;
use super::name;
use super::nodes::whole::{self, Missing, Of, Whole};
use super::nodes::{Report, Wanted};
use super::problem::{Problem, Refusal};
use super::{sources, unseen, words};
use crate::driver::{self, AttemptNote, GroupView, Record, SpoolUsage, Status, Story, Usage};
use crate::event::{EventId, KeySource, Seq, WaitSplit, Wall};
use crate::metrics::{GroupNumbers, TOP};

/// Rows of a page where the caller names no limit.
const LIMIT: usize = 100;

/// Rows of a page at most.
const LIMIT_MAX: usize = 1000;

/// Metrics come also when the driver is held up, which is when they are looked at; what only it knows is then as it was.
const BACKLOG_PATIENCE: Duration = Duration::from_secs(1);

type Shared = State<Arc<Admin>>;

/// Red only if the driver made no turn for ten seconds.
#[utoipa::path(get, path = "/healthz", tag = "node", responses(
    (status = 200, description = "It does", body = String, content_type = "text/plain"),
    (status = 503, description = "It does not, and for how long", body = String, content_type = "text/plain")
))]
pub(super) async fn healthz(State(admin): Shared) -> Response {
    let age = admin.handle.beat_age();
    if admin.handle.is_alive() {
        "ok\n".into_response()
    } else {
        let text = format!("the delivery loop made no turn for {} s\n", age.as_secs());
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

/// Can this node take an event durably now?
#[utoipa::path(get, path = "/readyz", tag = "node", responses(
    (status = 200, description = "It can; whether into its spool alone, for Redis is away", body = String, content_type = "text/plain"),
    (status = 503, description = "It cannot, and why", body = String, content_type = "text/plain")
))]
pub(super) async fn readyz(State(admin): Shared) -> Response {
    match not_ready(&admin) {
        None => spooling(&admin).unwrap_or_else(|| "ready\n".to_owned()).into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

/// What to know of a node that is ready although the store does not answer.
fn spooling(admin: &Admin) -> Option<String> {
    let usage = admin.handle.usage();
    let (spool, silence) = (usage.spool?, admin.handle.store_silence(&usage));
    let waiting = words::many(spool.events, "event");
    let seconds = silence.as_secs();
    (silence > words::SILENT).then(|| {
        format!("ready: Redis has not answered for {seconds} s, and events are kept in this node's spool ({waiting} so far)\n")
    })
}

pub(super) fn not_ready(admin: &Admin) -> Option<String> {
    if admin.handle.is_draining() {
        return Some("this node is ending".to_owned());
    }
    let unstored = admin.handle.unstored(&admin.handle.usage());
    unstored.or_else(|| admin.handle.ready().err().map(|shed| shed.to_string()))
}

/// Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "node", responses(
    (status = 200, description = "OpenMetrics text; docs/metrics.md lists all", body = String,
        content_type = "application/openmetrics-text"),
    (status = 503, description = "They cannot be written", body = Refusal)
))]
pub(super) async fn metrics(State(admin): Shared) -> Result<Response, Problem> {
    (admin.refresh)();
    let metrics = admin.handle.metrics();
    let silence = admin.handle.store_silence(&admin.handle.usage());
    metrics.store_poll_age.set(admin.handle.beat_age().max(silence).as_secs_f64());
    // Names of tenants are for those who hold the token.
    let top = if admin.access().open_metrics { 0 } else { TOP };
    let asked = tokio::time::timeout(BACKLOG_PATIENCE, admin.handle.show_backlog(top)).await;
    let groups: Vec<GroupNumbers> = asked.into_iter().flatten().flatten().map(numbers).collect();
    let text = metrics.encode_with(&groups).map_err(|error| Problem::Store(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn numbers(view: GroupView) -> GroupNumbers {
    GroupNumbers {
        group: view.group.to_string(),
        backlog: view.queued + view.retrying + u64::from(view.in_flight),
        oldest_age_s: view.oldest.as_secs_f64(),
        in_flight: view.in_flight,
        share: view.share,
        arrival_rate: view.arrival_rate,
        drain_rate: view.drain_rate,
        wait_p99_s: view.wait_p99.map(|wait| wait.as_secs_f64()),
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct StatusView {
    version: &'static str,
    started_at: String,
    uptime_s: u64,
    ready: bool,
    not_ready_reason: Option<String>,
    draining: bool,
    durability: &'static str,
    sources: usize,
    backlog: BacklogView,
    /// Milliseconds by what was waited for, of all that got their lease in the last minute; null when the driver does not answer.
    waited_ms: Option<Waited>,
    /// Null: the driver does not say in time.
    dedicated: Option<StatusJson>,
    store: StoreView,
    /// What fires, pages first; `/alerts` has all of it.
    alerts: Vec<Firing>,
    /// Of many nodes, how each stands; left out where there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<NodeStatus>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// How one node of several stands.
#[derive(Serialize, ToSchema)]
struct NodeStatus {
    node: String,
    /// Whether it is the one that answers.
    this: bool,
    version: String,
    uptime_s: u64,
    ready: bool,
    not_ready_reason: Option<String>,
    draining: bool,
    /// Pending events of its shards.
    events: u64,
    /// Since Redis last answered it.
    silent_s: Option<f64>,
    /// Null where there is none.
    spool: Option<SpoolView>,
}

impl NodeStatus {
    /// None where there is one node.
    fn of_all(whole: &Whole, now: Wall) -> Vec<Self> {
        let named = whole.reports().iter().enumerate().filter(|(_, report)| !report.node.is_empty());
        named.map(|(at, report)| Self::of(at == 0, report, now)).collect()
    }

    fn of(this: bool, report: &Report, now: Wall) -> Self {
        let stands = &report.stands;
        Self {
            node: report.node.clone(),
            this,
            version: stands.version.clone(),
            uptime_s: stands.up.as_secs(),
            ready: stands.not_ready.is_none(),
            not_ready_reason: stands.not_ready.clone(),
            draining: stands.draining,
            events: stands.pending,
            silent_s: stands.silent.map(|silent| silent.as_secs_f64()),
            spool: stands.spool.map(|spool| SpoolView::of(spool, now)),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct BacklogView {
    events: u64,
    lanes: u64,
    /// Of them, those that wait in lanes that groups share.
    overflow_events: i64,
    oldest_age_s: f64,
}

#[derive(Serialize, ToSchema)]
struct StoreView {
    bytes: u64,
    /// Null: nothing limits it (a Redis without `maxmemory`).
    free_bytes: Option<u64>,
    history_events: u64,
    /// Since Redis last answered the node that it has not answered for longest; null where the store is here.
    silent_s: Option<f64>,
    /// Null where there is none.
    spool: Option<SpoolView>,
}

/// What waits on nodes for Redis to answer again.
#[derive(Serialize, ToSchema)]
struct SpoolView {
    events: u64,
    bytes: u64,
    room_bytes: u64,
    oldest_age_s: f64,
}

impl SpoolView {
    fn of(spool: SpoolUsage, now: Wall) -> Self {
        let age = spool.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
        Self { events: spool.events, bytes: spool.bytes, room_bytes: spool.room_bytes, oldest_age_s: age.as_secs_f64() }
    }
}

impl StoreView {
    fn of(whole: &Whole, usage: &Usage, now: Wall) -> Self {
        let sum = |of: fn(&Report) -> u64| whole.reports().iter().map(of).sum();
        Self {
            bytes: sum(|report| report.stands.bytes),
            free_bytes: Some(usage.free).filter(|free| *free != u64::MAX),
            history_events: sum(|report| report.stands.history),
            silent_s: whole.silent().map(|silent| silent.as_secs_f64()),
            spool: whole.spool().map(|spool| SpoolView::of(spool, now)),
        }
    }
}

/// How the gateway stands: version, readiness and uptime are this node's, all else is of all nodes.
#[utoipa::path(get, path = "/api/v1/status", tag = "node", responses((status = 200, description = "How it stands", body = StatusView)))]
pub(super) async fn status(State(admin): Shared) -> Result<Json<StatusView>, Problem> {
    let (handle, usage, now) = (&admin.handle, admin.handle.usage(), admin.handle.now());
    let started = handle.started();
    let not_ready_reason = not_ready(&admin);
    let whole = whole::ask(&admin, Wanted { waited: true, alerts: true, ..Wanted::default() }).await?;
    let (events, lanes) = whole.backlog();
    // The status comes also when the driver is held up.
    let upstream = tokio::time::timeout(BACKLOG_PATIENCE, handle.upstream()).await;
    let dedicated = upstream.into_iter().flatten().next().map(|info| StatusJson::of(&info.dedicated, now.wall));
    Ok(Json(StatusView {
        version: env!("CARGO_PKG_VERSION"),
        started_at: rfc3339(started.wall),
        uptime_s: now.mono.since(started.mono).as_secs(),
        ready: not_ready_reason.is_none(),
        not_ready_reason,
        draining: handle.is_draining(),
        durability: admin.durability,
        sources: handle.sources().len(),
        backlog: BacklogView {
            events,
            lanes,
            overflow_events: whole.reports().iter().map(|report| report.stands.overflow).sum(),
            oldest_age_s: whole.oldest().map_or(Duration::ZERO, |oldest| now.wall.since(oldest)).as_secs_f64(),
        },
        waited_ms: whole.waited().map(Waited),
        dedicated,
        store: StoreView::of(&whole, &usage, now.wall),
        alerts: firing(&whole),
        nodes: NodeStatus::of_all(&whole, now.wall),
        missing: whole.missing,
    }))
}

/// The parameters of `/events`.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only of this group, in the written form.
    #[param(pattern = r"^([A-Za-z0-9._:@-]+|~[a-z0-9-]+)$", max_length = 769, example = "quiet-store.myshopify.com")]
    pub(super) group: Option<String>,
    /// Only of this source.
    pub(super) source: Option<String>,
    /// Only in these states; several with commas.
    #[param(
        pattern = r"^(queued|in_flight|retrying|delivered|dead|suppressed|discarded)(,(queued|in_flight|retrying|delivered|dead|suppressed|discarded))*$"
    )]
    pub(super) status: Option<String>,
    /// Received at this time or later, RFC 3339.
    #[param(format = DateTime)]
    pub(super) since: Option<String>,
    /// Received before this time, RFC 3339.
    #[param(format = DateTime)]
    pub(super) until: Option<String>,
    /// Only with this id of the provider's own.
    pub(super) provider_event_id: Option<String>,
    /// `newest` (unless said) or `oldest` first.
    #[param(pattern = "^(newest|oldest)$")]
    pub(super) order: Option<String>,
    /// The `next` of the page before.
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    /// Rows at most; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
}

/// Which event.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it stands for the path in the description; handlers take the text")]
pub(super) struct EventPath {
    /// Its name: `evt_` and a UUID.
    #[param(pattern = "^evt_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
    id: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct EventsView {
    events: Vec<EventView>,
    /// Give it as `cursor` for the next page; null on the last.
    next: Option<u64>,
    /// When the last event was received that was looked at; null on the last page.
    searched_to: Option<String>,
    /// What to know where nothing was found: no source or group of this name was ever seen, and which may be meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Nodes that have events in their spools, which are not in this; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct EventView {
    id: String,
    seq: u64,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<String>,
    /// The overflow lane in which it waits or waited; left out where it had a lane of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<String>,
    key_source: KeySourceView,
    source: String,
    status: &'static str,
    /// It is in this node's spool, for Redis does not answer: nobody delivers it yet. Left out where it is not.
    #[serde(skip_serializing_if = "is_false")]
    spooled: bool,
    received_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "type")]
    event_type: Option<String>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_at: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    body_bytes: u32,
    /// How often it was made pending again.
    #[serde(skip_serializing_if = "is_zero")]
    replays: u32,
    /// The event that it repeats, of one that is or was suppressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

fn is_false(is: &bool) -> bool {
    !is
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Where the key came from, and whether the sender's signature covers that place.
#[derive(Serialize, ToSchema)]
struct KeySourceView {
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'static str>,
}

/// Events, newest first, by page.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventsQuery), responses(
    (status = 200, description = "A page", body = EventsView), (status = 500, description = "The store is damaged, with the place", body = Refusal)))]
pub(super) async fn events(
    State(admin): Shared,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Json<EventsView>, Problem> {
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    let (source, query) = (query.source.clone(), query.checked()?);
    let group = query.group.clone();
    let page = admin.handle.events(query).await?;
    let nothing = page.records.is_empty() && page.next.is_none();
    let note = if nothing { unseen::why_nothing(&admin, source.as_deref(), group.as_ref()).await? } else { None };
    Ok(Json(EventsView {
        note,
        missing: whole::spooled_elsewhere(&admin).await?,
        events: page.records.into_iter().map(EventView::from).collect(),
        next: page.next.map(|seq| seq.0),
        searched_to: page.reached.map(rfc3339),
    }))
}

impl EventsQuery {
    pub(super) fn checked(self) -> Result<driver::Query, Problem> {
        let limit = checked(self.limit)?;
        let oldest_first = match self.order.as_deref() {
            None | Some("newest") => false,
            Some("oldest") => true,
            Some(other) => {
                return Err(Problem::Parameter(format!("order: expected newest or oldest, found {other:?}")));
            }
        };
        Ok(driver::Query {
            group: self.group.map(|text| name::group("group", &text)).transpose()?,
            source: self.source.map(Into::into),
            status: self.status.as_deref().map(statuses).transpose()?.unwrap_or_default(),
            since: self.since.as_deref().map(|text| time("since", text)).transpose()?,
            until: self.until.as_deref().map(|text| time("until", text)).transpose()?,
            provider_event_id: self.provider_event_id.map(Into::into),
            oldest_first,
            behind: self.cursor.map(Seq),
            limit,
        })
    }
}

/// What the standard library says of a text that is no number or no truth value, and what a caller of the API is told instead.
const PARSERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number, found nothing"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("provided string was not `true` or `false`", "expected true or false"),
];

/// What is wrong with a query, without the words that only a programmer of this would understand.
pub(super) fn unreadable(rejection: &QueryRejection) -> Problem {
    let text = rejection.body_text();
    let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text).to_owned();
    Problem::Parameter(PARSERS.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours)))
}

/// How many rows a page has.
fn checked(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(LIMIT) {
        limit if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
        limit => Err(Problem::Parameter(format!("limit: expected 1 to {LIMIT_MAX}, found {limit}"))),
    }
}

pub(super) fn statuses(text: &str) -> Result<Vec<Status>, Problem> {
    let known = || Status::ALL.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
    let one = |name: &str| {
        Status::ALL
            .into_iter()
            .find(|status| status.as_str() == name)
            .ok_or_else(|| Problem::Parameter(format!("status: {name:?} is none of {}", known())))
    };
    text.split(',').map(str::trim).map(one).collect()
}

pub(super) fn time(name: &str, text: &str) -> Result<Wall, Problem> {
    Wall::read(text).ok_or_else(|| {
        Problem::Parameter(format!("{name}: expected a time such as 2026-01-31T08:00:00Z (RFC 3339), found {text:?}"))
    })
}

#[derive(Serialize, ToSchema)]
pub(super) struct StoryView {
    #[serde(flatten)]
    event: EventView,
    tries: Vec<AttemptView>,
}

#[derive(Serialize, ToSchema)]
struct AttemptView {
    number: u32,
    started_at: String,
    took_ms: u64,
    outcome: String,
    status: Option<u16>,
    error: String,
    answer: String,
    /// How long the event waited before it, and what for.
    wait_ms: u64,
    waited_ms: Waited,
}

/// A wait as an object: milliseconds by reason, the longest first.
#[derive(ToSchema)]
#[schema(value_type = BTreeMap<String, u64>)]
pub(super) struct Waited(pub(super) WaitSplit);

impl Serialize for Waited {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.millis().into_iter().map(|(reason, ms)| (reason.as_str(), ms)))
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct AttemptsView {
    attempts: Vec<AttemptView>,
}

impl From<AttemptNote> for AttemptView {
    fn from(note: AttemptNote) -> Self {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            number: note.number,
            started_at: rfc3339(note.started),
            took_ms: ms(note.took),
            outcome: note.outcome.into(),
            status: note.status,
            error: note.error.into(),
            answer: String::from_utf8_lossy(&note.excerpt).into_owned(),
            wait_ms: ms(note.waited.total()),
            waited_ms: Waited(note.waited),
        }
    }
}

/// One event with the attempts that ended.
#[utoipa::path(get, path = "/api/v1/events/{id}", tag = "events", params(EventPath), responses(
    (status = 200, description = "The event", body = StoryView), (status = 404, description = "It is unknown, or past retention", body = Refusal),
    (status = 500, description = "It is damaged on the disk, with the place", body = Refusal)))]
pub(super) async fn event(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<StoryView>, Problem> {
    let Story { record, attempts } = story(&admin, id).await?;
    Ok(Json(StoryView { event: record.into(), tries: attempts.into_iter().map(AttemptView::from).collect() }))
}

/// An event's attempts that ended, oldest first.
#[utoipa::path(get, path = "/api/v1/events/{id}/attempts", tag = "events", params(EventPath), responses(
    (status = 200, description = "All of them", body = AttemptsView),
    (status = 404, description = "The event is unknown, or past retention", body = Refusal),
    (status = 500, description = "It is damaged on the disk, with the place", body = Refusal)
))]
pub(super) async fn attempts(
    State(admin): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<AttemptsView>, Problem> {
    let attempts = story(&admin, id).await?.attempts;
    Ok(Json(AttemptsView { attempts: attempts.into_iter().map(AttemptView::from).collect() }))
}

async fn story(admin: &Admin, id: Result<Path<String>, PathRejection>) -> Result<Story, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    admin.handle.event(event_id(&id)?).await?.ok_or(Problem::Unknown(id))
}

/// The body's exact bytes. They are a stranger's: no browser may take them for a page.
#[utoipa::path(get, path = "/api/v1/events/{id}/body", tag = "events", params(EventPath), responses(
    (status = 200, description = "Byte for byte as it came", content_type = "application/octet-stream", body = Vec<u8>),
    (status = 404, description = "The event is unknown, or past retention", body = Refusal),
    (status = 500, description = "It is damaged on the disk, with the place", body = Refusal)))]
pub(super) async fn body(State(admin): Shared, id: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let Path(id) = id.map_err(|rejection| Problem::Parameter(rejection.body_text()))?;
    let event = admin.handle.whole(event_id(&id)?).await?;
    let event = event.ok_or(Problem::Unknown(id))?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    Ok((headers, event.body.clone()).into_response())
}

pub(super) fn event_id(text: &str) -> Result<EventId, Problem> {
    text.parse().map_err(|error| Problem::Parameter(format!("{text:?}: {error}")))
}

impl From<Record> for EventView {
    fn from(record: Record) -> Self {
        Self {
            id: record.id.to_string(),
            seq: record.seq.0,
            order: record.order.as_ref().map(ToString::to_string),
            group: record.home().group.to_string(),
            within: record.home().inner.as_ref().map(ToString::to_string),
            overflow: record
                .owner
                .is_some()
                .then(|| record.lane.inner.as_ref().unwrap_or(&record.lane.group).to_string()),
            key_source: (&record.key_source).into(),
            source: record.source.to_string(),
            status: record.status.as_str(),
            spooled: driver::is_spooled(record.seq),
            received_at: rfc3339(record.received),
            provider_event_id: record.provider_event_id.map(Into::into),
            event_type: record.event_type.map(Into::into),
            attempts: record.attempts,
            due_at: record.due.map(rfc3339),
            settled_at: record.settled.map(rfc3339),
            reason: record.reason.into(),
            body_bytes: record.body_bytes,
            replays: record.replays,
            duplicate_of: record.duplicate_of.map(|id| id.to_string()),
            trace_id: record.trace.map(|id| uuid::Uuid::from_bytes(id).as_simple().to_string()),
        }
    }
}

impl From<&KeySource> for KeySourceView {
    fn from(source: &KeySource) -> Self {
        match source {
            KeySource::Rule { rule, signed } => {
                Self { rule: Some(rule.to_string()), signed: Some(*signed), missing: None }
            }
            KeySource::Missing(missing) => Self { rule: None, signed: None, missing: Some(missing.as_str()) },
            KeySource::NoRule => Self { rule: None, signed: None, missing: Some("no_rule") },
        }
    }
}

/// The parameters of `/rejections`.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectionsQuery {
    /// Only of this source.
    source: Option<String>,
    /// Rows at most; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct RejectionsView {
    /// What to know besides: no source of this name is there, and which may be meant; or which source runs dry, for what is refused then is
    /// counted and not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    rejections: Vec<RejectionView>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

#[derive(Serialize, ToSchema)]
struct RejectionView {
    at: String,
    /// The node that refused it; left out where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    source: String,
    peer: String,
    reason: String,
    message: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body_bytes: usize,
}

/// Requests that were refused of late, newest first; values that may hold a secret are masked.
#[utoipa::path(get, path = "/api/v1/rejections", tag = "events", params(RejectionsQuery), responses((status = 200, description = "The newest", body = RejectionsView)))]
pub(super) async fn rejections(
    State(admin): Shared,
    query: Result<Query<RejectionsQuery>, QueryRejection>,
) -> Result<Json<RejectionsView>, Problem> {
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    let limit = checked(query.limit)?;
    let view = |Of { node, it: rejection }: Of<driver::Rejection>| RejectionView {
        at: rfc3339(rejection.at),
        node,
        source: rejection.source.to_string(),
        peer: rejection.peer.to_string(),
        reason: rejection.reason.into(),
        message: rejection.message,
        method: rejection.method,
        path: rejection.path,
        headers: rejection.headers,
        body_bytes: rejection.body_bytes,
    };
    let wanted = Wanted { rejections: Some((query.source.clone(), limit)), ..Wanted::default() };
    let whole = whole::ask(&admin, wanted).await?;
    let rejections: Vec<RejectionView> = whole.rejections(limit).into_iter().map(view).collect();
    let source = query.source.as_deref().filter(|_| rejections.is_empty());
    let unknown = unseen::why_nothing(&admin, source, None).await?;
    let note = unknown.or_else(|| sources::draining(&admin, query.source.as_deref()));
    Ok(Json(RejectionsView { note, rejections, missing: whole.missing }))
}

/// The configuration in force, secrets masked.
#[utoipa::path(get, path = "/api/v1/config", tag = "node", responses(
    (status = 200, description = "As it could stand in a file; docs/configuration.md says what each field is", body = Object)))]
pub(super) async fn config(State(admin): Shared) -> Json<serde_json::Value> {
    Json(admin.configuration().json.clone())
}

pub(super) async fn unknown(uri: Uri) -> Problem {
    Problem::Unknown(uri.path().to_owned())
}

pub(super) async fn method_not_allowed() -> Problem {
    Problem::Method
}

pub(super) fn rfc3339(wall: Wall) -> String {
    // What lies behind the year 9999 has no such form; the last moment that has one is as good as never.
    let time = i64::try_from(wall.0).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<driver::Query, String> {
        let uri = format!("http://h/?{text}").parse().unwrap();
        let read = Query::<EventsQuery>::try_from_uri(&uri);
        let Query(query) = read.map_err(|rejection| format!("{:?}", unreadable(&rejection)))?;
        query.checked().map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn a_query_is_read_whole_or_refused_with_the_reason() {
        let q = query("group=caf%25C3%25A9&status=queued,dead&since=2026-01-31T08:00:00Z&limit=5&cursor=9").unwrap();
        assert_eq!(q.group.unwrap().as_str(), "caf%C3%A9");
        assert_eq!(q.status, [Status::Queued, Status::Dead]);
        assert_eq!((q.limit, q.behind), (5, Some(Seq(9))));
        assert_eq!(q.since.map(rfc3339).as_deref(), Some("2026-01-31T08:00:00.000Z"));
        for (text, why) in [
            ("group=a%20b", "written form"),
            ("status=waiting", "queued, in_flight"),
            ("since=yesterday", "RFC 3339"),
            ("limit=0", "1 to 1000"),
            ("limit=1001", "1 to 1000"),
            ("cursor=", "cursor: expected a whole number, found nothing"),
            ("limit=", "limit: expected a whole number, found nothing"),
            ("limit=-1", "limit: expected a whole number"),
            ("limit=99999999999999999999", "limit: the number is too large"),
            ("grup=a", "unknown field `grup`"),
        ] {
            let error = query(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
