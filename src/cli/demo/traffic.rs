//! The stores of the demo: nine that sell now and then, and one that posts all it has at once.
//!
//! Real sockets with keep-alive, real signatures. A store never waits for one webhook's answer before it posts the next: the five of
//! an order go out together, over five connections, as the provider's own senders would do it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::ledger::{self, FLOODING_INDEX, Ledger, QUIET};
use super::orders::{self, TOPICS};
use crate::app;
use crate::event::{EventId, Mono};
use crate::verify::{Outgoing, Verifier};

/// Where the gateway takes the webhooks.
pub(super) const PATH: &str = "/webhooks/shopify";

/// Connections of the flood: enough to be accepted as fast as the gateway can.
pub(super) const FLOOD_CONNECTIONS: u64 = 64;

/// Between two orders of a quiet store, in milliseconds.
const BETWEEN_MS: std::ops::Range<u64> = 350..650;

/// Longer than the gateway takes for any answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What all senders of a phase share.
#[derive(Clone)]
pub(super) struct Traffic {
    pub(super) gateway: SocketAddr,
    pub(super) signer: Arc<Verifier>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) seed: u64,
    /// When the phase began.
    pub(super) began: Mono,
    /// When the quiet stores stop to sell: a [`Mono`], so that all five webhooks of an order go out or none does.
    pub(super) end: Arc<AtomicU64>,
}

/// The senders that run; each ends with nothing, or with what kept it from posting.
pub(super) type Senders = JoinSet<anyhow::Result<()>>;

impl Traffic {
    /// The quiet stores begin to sell, until [`Self::end`].
    pub(super) fn sell(&self) -> Senders {
        let mut senders = Senders::new();
        for store in 0..QUIET.len() {
            for (turn, topic) in (1..).zip(TOPICS) {
                let traffic = self.clone();
                // The same for all five, so that they agree on the orders and their times.
                let times = SmallRng::seed_from_u64(mixed(self.seed, store, 0));
                let random = SmallRng::seed_from_u64(mixed(self.seed, store, turn));
                senders.spawn(async move { traffic.sell_one(store, topic, times, random).await });
            }
        }
        senders
    }

    /// No further orders from now on.
    pub(super) fn end(&self) {
        self.end.store(app::now().mono.0, Ordering::Relaxed);
    }

    /// One topic of one store.
    async fn sell_one(
        &self,
        store: usize,
        topic: &'static str,
        mut times: SmallRng,
        mut random: SmallRng,
    ) -> anyhow::Result<()> {
        let mut post = Post::open(self, store).await?;
        let mut due = self.began.plus(Duration::from_millis(times.random_range(0..BETWEEN_MS.end)));
        for order in 0.. {
            let wait = due.since(app::now().mono);
            tokio::time::sleep(wait).await;
            if due.0 >= self.end.load(Ordering::Relaxed) {
                break;
            }
            // Held up by the answer before, it counts from when it would have been posted.
            let posted = if wait.is_zero() { due } else { app::now().mono };
            post.send(topic, order, posted, &mut random).await?;
            due = due.plus(Duration::from_millis(times.random_range(BETWEEN_MS)));
        }
        Ok(())
    }

    /// The flooding store begins to post `count` events, as fast as they are answered.
    pub(super) fn flood(&self, count: u64) -> Senders {
        let mut senders = Senders::new();
        let taken = Arc::new(AtomicU64::new(0));
        for connection in 0..FLOOD_CONNECTIONS.min(count) {
            let (traffic, taken) = (self.clone(), Arc::clone(&taken));
            let mut random = SmallRng::seed_from_u64(mixed(self.seed, FLOODING_INDEX, connection));
            senders.spawn(async move {
                let mut post = Post::open(&traffic, FLOODING_INDEX).await?;
                loop {
                    let order = taken.fetch_add(1, Ordering::Relaxed);
                    if order >= count {
                        return Ok(());
                    }
                    post.send("orders/updated", order, app::now().mono, &mut random).await?;
                }
            });
        }
        senders
    }
}

/// A seed for every sender; different ones for neighbours.
fn mixed(seed: u64, store: usize, sender: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((store as u64) << 32 | sender)
}

/// One connection of a store.
struct Post<'a> {
    traffic: &'a Traffic,
    store: usize,
    shop: HeaderValue,
    url: String,
    connection: SendRequest<Full<Bytes>>,
    _io: JoinSet<hyper::Result<()>>,
}

impl<'a> Post<'a> {
    async fn open(traffic: &'a Traffic, store: usize) -> anyhow::Result<Self> {
        let name = ledger::store(store);
        let stream = TcpStream::connect(traffic.gateway)
            .await
            .with_context(|| format!("{name} cannot connect to the gateway at {}", traffic.gateway))?;
        stream.set_nodelay(true)?;
        let (connection, io) = handshake(TokioIo::new(stream)).await?;
        let mut running = JoinSet::new();
        running.spawn(io);
        Ok(Self {
            traffic,
            store,
            shop: HeaderValue::from_str(&format!("{name}.myshopify.com"))?,
            url: format!("http://{}{PATH}", traffic.gateway),
            connection,
            _io: running,
        })
    }

    /// Posts one event and writes its answer into the ledger.
    async fn send(
        &mut self,
        topic: &'static str,
        order: u64,
        posted: Mono,
        random: &mut SmallRng,
    ) -> anyhow::Result<()> {
        let ledger = &self.traffic.ledger;
        let body = orders::body(random, ledger::store(self.store), order);
        let place = ledger.posted(self.store, order, posted);
        let request = self.request(topic, place, body)?;
        let lost = || format!("the gateway gave {} no answer", ledger::store(self.store));
        let exchange = async {
            self.connection.ready().await?;
            let answer = self.connection.send_request(request).await?;
            let (head, mut body) = answer.into_parts();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            Ok::<_, hyper::Error>(head)
        };
        let head = tokio::time::timeout(TIMEOUT, exchange).await.with_context(lost)?.with_context(lost)?;
        let at = app::now().mono;
        if !head.status.is_success() {
            ledger.refused(head.status.as_u16());
            return Ok(());
        }
        let id = head.headers.get("fairlane-event-id").and_then(|id| id.to_str().ok()?.parse::<EventId>().ok());
        ledger.accepted(place, id.context("the gateway accepted an event without naming it")?, at);
        Ok(())
    }

    fn request(&self, topic: &'static str, place: usize, body: Vec<u8>) -> anyhow::Result<Request<Full<Bytes>>> {
        let id = ledger::webhook_id(self.traffic.seed, place);
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value| headers.insert(HeaderName::from_static(name), value);
        put("host", HeaderValue::from_str(&self.traffic.gateway.to_string())?);
        put("content-type", HeaderValue::from_static("application/json"));
        put("user-agent", HeaderValue::from_static("Shopify-Captain-Hook"));
        put("x-shopify-api-version", HeaderValue::from_static("2026-10"));
        put("x-shopify-event-id", HeaderValue::from_str(&id)?);
        put("x-shopify-shop-domain", self.shop.clone());
        put("x-shopify-topic", HeaderValue::from_static(topic));
        put("x-shopify-webhook-id", HeaderValue::from_str(&id)?);
        let outgoing = Outgoing { method: &Method::POST, url: &self.url, body: &body, now: app::now().wall, id: &id };
        self.traffic.signer.sign(&outgoing, &mut headers)?;
        let mut request = Request::post(PATH).body(Full::new(Bytes::from(body)))?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}
