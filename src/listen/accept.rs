//! THE INGEST PATH ON ONE SCREEN: from a request to an answer.
//!
//! [`ingest`] is the road's first half, step by step; everything before `store` decides or refuses, and nobody gets a 2xx
//! before the event is durable (I7). A source with `respond: upstream` leaves it before `store`, for [`live`].

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Version};
use hyper::body::{Body as _, Incoming};
use parking_lot::{Mutex, RwLock};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use tower::{Service, ServiceBuilder};

use super::body::{self, BodyFault, BodyLimits};
use super::compact::compact;
use super::connection::{Connection, Counts};
use super::group::Grouped;
use super::handshake;
use super::head::{self, Malformed};
use super::life::{Life, Stage};
use super::live;
use super::record::Came;
use super::reply::{self, Refused, Reply};
use super::route::{Pattern, Router};
use super::served::{Judged, Served, aside};
use super::spans::{Known, Road};
use super::{Fetch, Limits, Settings, Source};
use crate::clock::Clock;
use crate::driver::{Budget, Charge, Crowded, Handle, Shed, Unanswered};
use crate::event::{Event, EventId, Mono, Trace, Wall};
use crate::key;
use crate::verify;
use crate::verify::scheme::Scheme;

/// What all connections share.
pub struct Front {
    pub(super) handle: Handle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counts: Arc<Counts>,
    pub(super) life: Life,
    pub(super) fetch: Fetch,
    pub(super) budget: Budget,
    random: Mutex<SmallRng>,
    table: RwLock<Arc<Table>>,
}

/// How long the path of a source that was removed answers 503 instead of 404, which would make some providers drop the
/// subscription.
const GONE_FOR: Duration = Duration::from_hours(1);

/// What a configuration says, exchanged as a whole.
pub(super) struct Table {
    pub(super) settings: Settings,
    router: Router,
    sources: Vec<Served>,
    /// Headers in which some source expects its secret or its signature: nobody gets to read them, wherever they were sent.
    pub(super) carriers: Vec<HeaderName>,
    /// Paths of sources that were removed, and until when they are remembered.
    gone: Vec<(Pattern, Mono)>,
}

impl Front {
    /// A front for `sources`; `fetch` gets the keys that requests name, `seed` makes its event ids.
    #[must_use]
    pub fn new(
        settings: Settings,
        sources: Vec<Source>,
        handle: Handle,
        clock: Arc<dyn Clock>,
        fetch: Fetch,
        seed: [u8; 32],
    ) -> Self {
        let budget = Budget::new(settings.limits.buffered);
        let table = RwLock::new(Arc::new(Table::new(settings, sources, Vec::new(), &handle)));
        let random = Mutex::new(SmallRng::from_seed(seed));
        Self { handle, clock, fetch, counts: Arc::default(), life: Life::new(), budget, random, table }
    }

    /// Serves other sources and limits from the next request on. The paths of sources that are no longer there answer 503 for an
    /// hour.
    pub fn replace(&self, settings: Settings, sources: Vec<Source>) {
        let now = self.clock.now().mono;
        let mut table = self.table.write();
        let removed = table.sources.iter().map(|source| &source.path);
        let removed = removed.filter(|path| !sources.iter().any(|source| source.path.conflicts(path)));
        let gone = removed.map(|path| (path.clone(), now.plus(GONE_FOR)));
        let gone = table.gone.iter().filter(|(_, until)| *until > now).cloned().chain(gone).collect();
        *table = Arc::new(Table::new(settings, sources, gone, &self.handle));
    }

    /// Shows its sizes in the metrics.
    pub fn show_sizes(&self) {
        let metrics = self.handle.metrics();
        metrics.connections.set(i64::try_from(self.counts.open()).unwrap_or(i64::MAX));
        metrics.buffered_bytes.set(i64::try_from(self.budget.used()).unwrap_or(i64::MAX));
    }

    pub(super) fn limits(&self) -> Limits {
        self.table.read().settings.limits.clone()
    }

    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        head::is_in(peer, &self.table.read().settings.trusted_proxies)
    }

    fn new_id(&self, received: Wall) -> EventId {
        let mut random = [0; 10];
        self.random.lock().fill_bytes(&mut random);
        EventId::new(received, &random)
    }

    fn random(&self) -> [u8; 16] {
        self.random.lock().random()
    }

    pub(super) fn jitter(&self) -> f64 {
        self.random.lock().random()
    }
}

impl Table {
    fn new(settings: Settings, sources: Vec<Source>, gone: Vec<(Pattern, Mono)>, handle: &Handle) -> Self {
        let router = Router::new(sources.iter().map(|source| &source.path));
        let schemes = sources.iter().flat_map(|source| &source.senders).map(|sender| sender.verifier.scheme());
        let carriers = schemes.flat_map(carriers).collect();
        let served = |source: Source| {
            let metrics = handle.metrics().source(&source.name);
            metrics.begin(&reply::REJECTED, &Shed::NAMES);
            if source.senders.iter().any(|sender| sender.verifier.answers_handshakes()) {
                metrics.begin_handshakes();
            }
            if source.relay.is_some() {
                handle.metrics().begin_live(["relayed", "gone"].into_iter().chain(Unanswered::NAMES));
            }
            Served::new(source, metrics)
        };
        let sources = sources.into_iter().map(served).collect();
        Self { settings, router, sources, carriers, gone }
    }

    /// A path as records show it: as it came where a source takes it, for then it is what the file says.
    pub(super) fn shown(&self, path: &str, is_known: bool) -> String {
        if is_known { head::shown(path.as_bytes()) } else { head::shown(self.router.masked(path).as_bytes()) }
    }

    fn find<'t, 'p>(&'t self, path: &'p str, now: Mono) -> Result<Found<'t, 'p>, Refused> {
        let Some(found) = self.router.find(path) else {
            let gone = Router::new(self.gone.iter().filter(|(_, until)| *until > now).map(|(path, _)| path));
            return Err(if gone.find(path).is_some() { Refused::Removed } else { Refused::UnknownPath });
        };
        let source = self.sources.get(found.index).expect("the router was built from these sources");
        Ok(Found { source, names: found.names })
    }
}

/// The headers in which a scheme expects the secret or the signature. Those that are known by a number are no names, and have
/// `signature` in them, which is telling enough.
fn carriers(scheme: &Scheme) -> Vec<HeaderName> {
    scheme.headers().carriers.iter().filter_map(|name| name.parse().ok()).collect()
}

/// The source of a request.
pub(super) struct Found<'t, 'p> {
    pub(super) source: &'t Served,
    names: Vec<(&'t str, &'p str)>,
}

/// The service of one connection: the ingest path under the layers that every answer passes.
pub(super) fn service(
    front: Arc<Front>,
    connection: Arc<Connection>,
) -> impl Service<Request<Incoming>, Response = Reply, Error = Infallible, Future: Send> + Clone + Send {
    let ending = Arc::clone(&front);
    ServiceBuilder::new()
        .map_response(move |reply| if ending.life.stage() == Stage::Open { reply } else { closing(reply) })
        .service_fn(move |request| {
            let (front, connection) = (Arc::clone(&front), Arc::clone(&connection));
            async move { Ok(answer(&front, &connection, request).await) }
        })
}

/// While we end, or a successor is about to take over, each answer is the last of its connection.
fn closing(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

async fn answer(front: &Front, connection: &Connection, request: Request<Incoming>) -> Reply {
    let _active = connection.begin();
    let table = Arc::clone(&front.table.read());
    let (mut parts, mut body) = request.into_parts();
    let mut seen = 0;
    let mut reply = match ingest(front, &table, connection, &mut parts, &mut body, &mut seen).await {
        Ok(reply) => reply,
        Err(refused) => {
            let found = table.find(parts.uri.path(), front.clock.now().mono).ok();
            let came =
                Came { front, table: &table, connection, parts: &parts, found: found.as_ref(), body_bytes: seen };
            came.refused(&refused);
            // A client that waits for 100 (RFC 9110 §10.1.1) sends nothing before it; others are heard out for a while.
            if !parts.headers.contains_key(EXPECT) {
                body::discard(&mut body).await;
            }
            reply::refused(&refused, found.map(|f| &f.source.answers), front.jitter())
        }
    };
    if parts.version == Version::HTTP_2 {
        // Connection headers do not exist there (RFC 9113 §8.2.2).
        reply.headers_mut().remove(CONNECTION);
    }
    reply
}

/// One request on its way to being an event.
async fn ingest(
    front: &Front,
    table: &Table,
    connection: &Connection,
    parts: &mut Parts,
    body: &mut Incoming,
    seen_bytes: &mut usize,
) -> Result<Reply, Refused> {
    // listen
    let head_limit = table.settings.limits.headers;
    if head::is_too_large(parts, head_limit) {
        return Err(Refused::HeadTooLarge(head_limit));
    }
    head::check(parts).map_err(|Malformed(why)| Refused::Malformed(why))?;
    let mut road = Road::begin(front.handle.spans(), &parts.headers, || front.random());
    let path = parts.uri.path().to_owned();
    let found = table.find(&path, front.clock.now().mono)?;
    let source = found.source;
    let from = head::sender(&parts.headers, connection.peer, &table.settings.trusted_proxies);
    source.allows(from)?;
    let seen = head::seen(parts, connection.tls, connection.trusted);

    // A provider's question, whatever its method; one without a body whatever the store does.
    let asks = handshake::may_ask(&found, &seen, parts);
    let mut answer = None;
    if asks && body.is_end_stream() {
        answer = handshake::answer(front, &found, &seen, parts, (from, b"")).await?;
    }
    if let Some(answer) = answer.take_if(|_| !source.forward_handshakes) {
        return Ok(reply::handshake(answer));
    }
    if !asks {
        takes(source, parts)?;
    }
    let (body, charge) = receive(front, table, source, body).await?;
    *seen_bytes = body.len();
    step(&mut road, "listen");
    let now = front.clock.now();
    if asks && answer.is_none() {
        answer = handshake::answer(front, &found, &seen, parts, (from, &body)).await?;
    }
    match &answer {
        Some(_) if !source.forward_handshakes => return Ok(reply::handshake(answer.take().expect("it is there"))),
        Some(_) => {}
        None => takes(source, parts)?,
    }

    // verify, group
    let judged = source.judge(&front.fetch, &as_request(&seen, parts, &body), now).await;
    let standing = match judged {
        Ok(judged) => {
            connection.verified();
            Standing::Genuine(judged)
        }
        Err(_) if answer.is_some() => Standing::Unverified("a handshake, answered already".to_owned()),
        Err(refused) if !source.enforces() && !refused.is_shed() => {
            let why = refused.message();
            source.metrics.unverified(refused.reason());
            let came = Came { front, table, connection, parts, found: Some(&found), body_bytes: body.len() };
            came.keep(refused.reason(), format!("let through, for enforce is false: {why}"));
            Standing::Unverified(why)
        }
        Err(refused) => return Err(refused),
    };
    step(&mut road, "verify");
    let trace = road.as_ref().map(Road::context);
    let event = aside(body.len(), || {
        head::clean(parts, connection.trusted);
        let arrival = Arrival { peer: connection.peer, https: seen.https, received: now.wall, trace };
        group(front, &found, arrival, parts, body, &standing)
    });
    step(&mut road, "group");
    let known = road.as_ref().map(|_| Known::of(&event));

    // A handshake that is delivered as well has its answer already.
    if let (Some(timeout), None) = (source.relay, &answer) {
        let call = live::Call { event, charge, deadline: now.mono.plus(timeout) };
        let reply = live::relay(front, table.settings.limits.buffered, connection, source, call, parts.version).await;
        end(road, known);
        return Ok(reply);
    }

    // admit, store
    let id = event.id;
    let stored = front.handle.submit(Arc::new(event), charge);
    match tokio::time::timeout(source.answer_timeout, stored).await {
        Ok(Ok(stored)) => {
            step(&mut road, "store");
            end(road, known);
            Ok(answer.map_or_else(|| reply::accepted(source, id, stored.duplicate_of), reply::handshake))
        }
        Ok(Err(shed)) => Err(Refused::Shed(shed)),
        Err(_elapsed) => {
            // It may be stored, and is delivered then.
            end(road, known);
            Err(Refused::Shed(Shed::TooSlow))
        }
    }
}

/// A step of the road has ended, where that is recorded.
fn step(road: &mut Option<Road<'_>>, name: &'static str) {
    if let Some(road) = road {
        road.step(name);
    }
}

fn end(road: Option<Road<'_>>, known: Option<Known>) {
    if let (Some(road), Some(known)) = (road, known) {
        road.ended(&known);
    }
}

fn takes(source: &Source, parts: &Parts) -> Result<(), Refused> {
    if source.methods.contains(&parts.method) { Ok(()) } else { Err(Refused::Method(source.methods.clone())) }
}

/// Reads the body within its limits. Whether there is room at all is asked before any of it is read.
async fn receive(
    front: &Front,
    table: &Table,
    source: &Source,
    body: &mut Incoming,
) -> Result<(Bytes, Charge), Refused> {
    let limits = &table.settings.limits;
    let declared = body::declared(body);
    if declared.is_some_and(|bytes| bytes > limits.body) {
        return Err(Refused::TooLarge(limits.body));
    }
    front.handle.takes(&source.name, source.relay.is_some()).map_err(Refused::Shed)?;
    let ready = if source.relay.is_some() { front.handle.ready_live() } else { front.handle.ready() };
    ready.map_err(Refused::Shed)?;
    let budget = front.budget.with_limit(limits.buffered);
    let mut charge = budget.open(declared).map_err(|Crowded| Refused::Crowded)?;
    let body_limits = BodyLimits { bytes: limits.body, timeout: limits.body_timeout };
    match body::read(body, &mut charge, body_limits, &*front.clock).await {
        Ok(bytes) => Ok((bytes, charge)),
        Err(BodyFault::TooLarge) => Err(Refused::TooLarge(limits.body)),
        Err(BodyFault::TooSlow(received)) => Err(Refused::TooSlow(received)),
        Err(BodyFault::Crowded) => Err(Refused::Crowded),
        Err(BodyFault::Broken) => Err(Refused::Broken),
    }
}

/// The request as signatures cover it: the exact bytes received, before anything is parsed.
pub(super) fn as_request<'r>(seen: &'r head::Seen, parts: &'r Parts, body: &'r [u8]) -> verify::Request<'r> {
    verify::Request {
        method: &parts.method,
        target: target(parts),
        seen_url: seen.url.as_deref(),
        headers: &parts.headers,
        body,
    }
}

/// What came of the judgement of a request that goes on.
enum Standing<'s> {
    Genuine(Judged<'s>),
    /// Let through all the same; why it is not genuine.
    Unverified(String),
}

/// From whom, how and when a request came.
struct Arrival {
    peer: IpAddr,
    https: bool,
    received: Wall,
    trace: Option<Trace>,
}

/// Whose it is, and everything else that is kept with it.
fn group(
    front: &Front,
    found: &Found<'_, '_>,
    arrival: Arrival,
    parts: &mut Parts,
    mut body: Bytes,
    standing: &Standing<'_>,
) -> Event {
    let source = found.source;
    let (grouped, verified) = match standing {
        Standing::Genuine(judged) => {
            let grouped = judged.rules.find(&key::Input {
                headers: &parts.headers,
                path: parts.uri.path(),
                names: &found.names,
                query: parts.uri.query(),
                body: &body,
            });
            (grouped, Arc::clone(judged.verified.label()))
        }
        // Nothing that it says is believed: it cannot choose a lane, and nothing waits for it.
        Standing::Unverified(why) => (Grouped::unverified(), unverified(why)),
    };
    let fingerprint = grouped.fingerprint.unwrap_or_else(|missing| {
        source.metrics.not_deduplicated(missing);
        None
    });
    // Nothing reads them after this.
    let mut headers = std::mem::take(&mut parts.headers);
    compact(&mut headers, &mut body);
    Event {
        id: front.new_id(arrival.received),
        received: arrival.received,
        source: Arc::clone(&source.name),
        lane: grouped.lane,
        owner: None,
        key_source: grouped.key_source,
        order: grouped.order,
        fingerprint,
        trace: arrival.trace,
        verified,
        provider_event_id: grouped.event_id,
        event_type: grouped.event_type,
        method: parts.method.clone(),
        target: target(parts).into(),
        forward: source.forward_path.as_deref().map(|path| forward(path, parts.uri.query())),
        peer: arrival.peer,
        https: arrival.https,
        headers,
        body,
    }
}

/// What `Fairlane-Verified` says of what was let through: one line, not longer than a header should be.
fn unverified(why: &str) -> Arc<str> {
    const CHARS_MAX: usize = 300;
    format!("false: {}", why.chars().take(CHARS_MAX).collect::<String>()).into()
}

pub(super) fn target(parts: &Parts) -> &str {
    parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
}

pub(super) fn forward(path: &str, query: Option<&str>) -> Box<str> {
    query.map_or_else(|| path.into(), |query| format!("{path}?{query}").into())
}
