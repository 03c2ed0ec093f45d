//! THE INGEST PATH ON ONE SCREEN: from a request to an answer.
//!
//! [`ingest`] is the road's first half, step by step; everything before `store` decides or refuses, and nobody gets a 2xx
//! before the event is durable (I7). A source with `respond: upstream` leaves it before `store`, for [`live`].

use std::convert::Infallible;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Version};
use hyper::body::Incoming;
use parking_lot::{Mutex, RwLock};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use tower::{Service, ServiceBuilder};

use super::body::{self, BodyFault, BodyLimits};
use super::connection::{Connection, Counts};
use super::group::Rules;
use super::head::{self, Malformed};
use super::live;
use super::reply::{self, Refused, Reply};
use super::route::{Pattern, Router};
use super::{Limits, Settings, Source};
use crate::clock::Clock;
use crate::driver::{Budget, Charge, Crowded, Handle, Rejection, Shed};
use crate::event::{Event, EventId, Mono, Now, Wall};
use crate::key;
use crate::metrics::SourceMetrics;
use crate::verify;
use crate::verify::scheme::Scheme;

/// Bodies above this size are verified and read for their key aside, so that their cost (some 10 ms a megabyte at worst) holds up
/// nobody's small ones.
const ASIDE_BYTES: usize = 256 * 1024;

/// What all connections share.
pub struct Front {
    pub(super) handle: Handle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counts: Arc<Counts>,
    pub(super) budget: Budget,
    random: Mutex<SmallRng>,
    table: RwLock<Arc<Table>>,
}

/// How long the path of a source that was removed answers 503 instead of 404, which would make some providers drop the
/// subscription.
const GONE_FOR: Duration = Duration::from_hours(1);

/// What a configuration says, exchanged as a whole.
struct Table {
    settings: Settings,
    router: Router,
    sources: Vec<Served>,
    /// Headers in which some source expects its secret or its signature: nobody gets to read them, wherever they were sent.
    carriers: Vec<HeaderName>,
    /// Paths of sources that were removed, and until when they are remembered.
    gone: Vec<(Pattern, Mono)>,
}

impl Front {
    /// A front for `sources`; `seed` makes its event ids.
    #[must_use]
    pub fn new(
        settings: Settings,
        sources: Vec<Source>,
        handle: Handle,
        clock: Arc<dyn Clock>,
        seed: [u8; 32],
    ) -> Self {
        let budget = Budget::new(settings.limits.buffered);
        let table = RwLock::new(Arc::new(Table::new(settings, sources, Vec::new(), &handle)));
        let random = Mutex::new(SmallRng::from_seed(seed));
        Self { handle, clock, counts: Arc::default(), budget, random, table }
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
        head::is_trusted(peer, &self.table.read().settings.trusted_proxies)
    }

    fn new_id(&self, received: Wall) -> EventId {
        let mut random = [0; 10];
        self.random.lock().fill_bytes(&mut random);
        EventId::new(received, &random)
    }

    pub(super) fn jitter(&self) -> f64 {
        self.random.lock().random()
    }
}

impl Table {
    fn new(settings: Settings, sources: Vec<Source>, gone: Vec<(Pattern, Mono)>, handle: &Handle) -> Self {
        let router = Router::new(sources.iter().map(|source| &source.path));
        let carriers = sources.iter().flat_map(|source| carriers(source.verifier.scheme())).collect();
        let served = |source: Source| {
            let metrics = handle.metrics().source(&source.name);
            Served { rules: Rules::of(&source), source, metrics }
        };
        let sources = sources.into_iter().map(served).collect();
        Self { settings, router, sources, carriers, gone }
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

/// A source with what is made ready of it.
struct Served {
    source: Source,
    rules: Rules,
    metrics: SourceMetrics,
}

impl Deref for Served {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

/// The source of a request.
struct Found<'t, 'p> {
    source: &'t Served,
    names: Vec<(&'t str, &'p str)>,
}

/// The service of one connection: the ingest path under the layers that every answer passes.
pub(super) fn service(
    front: Arc<Front>,
    connection: Arc<Connection>,
) -> impl Service<Request<Incoming>, Response = Reply, Error = Infallible, Future: Send> + Clone + Send {
    let draining = Arc::clone(&front);
    ServiceBuilder::new()
        .map_response(move |reply| if draining.handle.is_draining() { closing(reply) } else { reply })
        .service_fn(move |request| {
            let (front, connection) = (Arc::clone(&front), Arc::clone(&connection));
            async move { Ok(answer(&front, &connection, request).await) }
        })
}

/// While we drain, each answer is the last of its connection.
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
            record(front, &table, connection, &parts, &refused, found.as_ref(), seen);
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
    let path = parts.uri.path().to_owned();
    let found = table.find(&path, front.clock.now().mono)?;
    let source = found.source;
    if !source.methods.contains(&parts.method) {
        return Err(Refused::Method(source.methods.clone()));
    }
    let (body, charge) = receive(front, table, source, body).await?;
    *seen_bytes = body.len();
    let Now { mono, wall: received } = front.clock.now();

    // verify, group
    let mut decide = || {
        let seen = head::seen(parts, connection.tls, connection.trusted);
        let verified = verify(&found, &seen, parts, &body, received)?;
        connection.verified();
        head::clean(parts, connection.trusted);
        let arrival = Arrival { peer: connection.peer, https: seen.https, received };
        Ok(group(front, &found, arrival, parts, body.clone(), &verified))
    };
    let event: Event = if body.len() > ASIDE_BYTES { tokio::task::block_in_place(decide)? } else { decide()? };

    if let Some(timeout) = source.relay {
        let call = live::Call { event, charge, deadline: mono.plus(timeout) };
        return Ok(live::relay(front, table.settings.limits.buffered, connection, source, call, parts.version).await);
    }

    // admit, store
    let id = event.id;
    let stored = front.handle.submit(Arc::new(event), charge);
    match tokio::time::timeout(source.answer_timeout, stored).await {
        Ok(Ok(_seq)) => {}
        Ok(Err(shed)) => return Err(Refused::Shed(shed)),
        Err(_elapsed) => return Err(Refused::Shed(Shed::TooSlow)),
    }
    Ok(reply::accepted(source, id))
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

/// The signature, over the exact bytes received and before anything is parsed.
fn verify(
    found: &Found<'_, '_>,
    seen: &head::Seen,
    parts: &Parts,
    body: &[u8],
    now: Wall,
) -> Result<verify::Verified, Refused> {
    let request = verify::Request {
        method: &parts.method,
        target: target(parts),
        seen_url: seen.url.as_deref(),
        headers: &parts.headers,
        body,
    };
    let verified = found.source.verifier.judge(&request, now).map_err(Refused::Unverified)?;
    if let Some(index) = verified.secret {
        found.source.metrics.secret_matched(index);
    }
    if let Some(skew) = verified.skew_s {
        found.source.metrics.skew(skew);
    }
    Ok(verified)
}

/// From whom, how and when a request came.
struct Arrival {
    peer: IpAddr,
    https: bool,
    received: Wall,
}

/// Whose it is, and everything else that is kept with it.
fn group(
    front: &Front,
    found: &Found<'_, '_>,
    arrival: Arrival,
    parts: &mut Parts,
    body: Bytes,
    verified: &verify::Verified,
) -> Event {
    let source = found.source;
    let grouped = source.rules.find(&key::Input {
        headers: &parts.headers,
        path: parts.uri.path(),
        names: &found.names,
        query: parts.uri.query(),
        body: &body,
    });
    Event {
        id: front.new_id(arrival.received),
        received: arrival.received,
        source: Arc::clone(&source.name),
        lane: grouped.lane,
        key_source: grouped.key_source,
        order: grouped.order,
        verified: Arc::clone(verified.label()),
        provider_event_id: grouped.event_id,
        event_type: grouped.event_type,
        method: parts.method.clone(),
        target: target(parts).into(),
        forward: source.forward_path.as_deref().map(|path| forward(path, parts.uri.query())),
        peer: arrival.peer,
        https: arrival.https,
        // Nothing reads them after this, and copying them costs more than the signature.
        headers: std::mem::take(&mut parts.headers),
        body,
    }
}

pub(super) fn target(parts: &Parts) -> &str {
    parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
}

pub(super) fn forward(path: &str, query: Option<&str>) -> Box<str> {
    query.map_or_else(|| path.into(), |query| format!("{path}?{query}").into())
}

/// Counts a refusal and leaves a masked record of it in memory. Refusals for want of room are only counted: a flood of them must
/// not push out what a person needs to see.
fn record(
    front: &Front,
    table: &Table,
    connection: &Connection,
    parts: &Parts,
    refused: &Refused,
    found: Option<&Found<'_, '_>>,
    body_bytes: usize,
) {
    match found {
        Some(found) if refused.is_shed() => return found.source.metrics.shed(refused.reason()),
        Some(found) => found.source.metrics.rejected(refused.reason()),
        None => front.handle.metrics().rejected_without_source(refused.reason()),
    }
    let rejection = Rejection {
        at: front.clock.now().wall,
        source: found.map_or_else(|| Arc::from(""), |found| Arc::clone(&found.source.name)),
        peer: connection.peer,
        reason: refused.reason(),
        message: refused.message(),
        method: head::shown(parts.method.as_str().as_bytes()),
        path: head::shown(parts.uri.path().as_bytes()),
        headers: head::masked(&parts.headers, &table.carriers),
        body_bytes,
    };
    front.handle.rejections().push(rejection, table.settings.rejections);
}
