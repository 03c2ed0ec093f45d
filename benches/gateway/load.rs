//! The load: the workload's request, wrk for saturation, and a sender with a schedule for everything below it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use bytes::Bytes;
use fairlane::clock::{Clock as _, SystemClock};
use fairlane::event::Mono;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::CONNECTIONS;
use crate::server::Server;

pub(crate) const PATH: &str = "/webhooks/shopify";
pub(crate) const SECRET: &str = "bench-secret";

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The workload's request: an order as Shopify would post it, signed.
pub(crate) struct Post {
    body: String,
    signature: String,
    /// Shops that send in turn, so that events go to many lanes as they would.
    shops: u64,
}

impl Post {
    /// One of so many bytes, a hundred at least.
    pub(crate) fn signed(shops: u64, bytes: usize) -> Self {
        let start = r#"{"id":820982911946154508,"email":"jon@example.com","total_price":"403.00","note":""#;
        let fill = bytes.saturating_sub(start.len() + 2);
        let body = format!("{start}{}\"}}", "n".repeat(fill));
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("HMAC takes a key of any length");
        mac.update(body.as_bytes());
        let signature = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
        Self { body, signature, shops }
    }

    fn headers(&self, shop: &str) -> [(&'static str, String); 5] {
        [
            ("content-type", "application/json".into()),
            ("x-shopify-topic", "orders/create".into()),
            ("x-shopify-shop-domain", format!("{shop}.myshopify.com")),
            ("x-shopify-webhook-id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043".into()),
            ("x-shopify-hmac-sha256", self.signature.clone()),
        ]
    }

    fn request(&self, shop: usize) -> anyhow::Result<http::Request<Full<Bytes>>> {
        self.request_of(&format!("shop-{shop}"))
    }

    /// The workload's request of that shop.
    pub(crate) fn request_of(&self, shop: &str) -> anyhow::Result<http::Request<Full<Bytes>>> {
        let mut request = http::Request::post(PATH).header("host", "bench.example");
        for (name, value) in self.headers(shop) {
            request = request.header(name, value);
        }
        Ok(request.body(Full::new(Bytes::from(self.body.clone())))?)
    }

    /// The same requests for wrk, all but the shop's number made before the first of them is sent; its last line is one that we can read.
    fn script(&self) -> String {
        let headers = self.headers("shop-@").map(|(name, value)| format!("[\"{name}\"]=\"{value}\"")).join(",");
        let shops = self.shops;
        format!(
            "local body = [==[{}]==]\nlocal head, tail, last\n\
             setup = function(thread) first = (first or -7919) + 7919 thread:set('start', first) end\n\
             init = function()\n\
             \x20 local text = wrk.format('POST', '{PATH}', {{{headers}}}, body)\n\
             \x20 local at = text:find('shop-@', 1, true) + 4\n\
             \x20 head, tail, last = text:sub(1, at), text:sub(at + 2), start % {shops}\n\
             end\n\
             request = function() last = (last + 1) % {shops} return head .. last .. tail end\n\
             done = function(all, latency)\n\
             \x20 local e = all.errors\n\
             \x20 print(string.format('RESULT %d %d %d %d %d %d', all.requests, e.status,\n\
             \x20   e.connect + e.read + e.write + e.timeout, all.duration, latency:percentile(50), latency:percentile(99)))\n\
             end\n",
            self.body
        )
    }
}

/// What one measurement gave.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Requests that were answered with 2xx.
    pub(crate) accepted: u64,
    /// Requests that were answered otherwise, or not at all.
    pub(crate) failed: u64,
    pub(crate) took: Duration,
    /// CPU time of the server.
    pub(crate) cpu: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Measured {
    pub(crate) fn per_second(&self) -> f64 {
        self.accepted as f64 / self.took.as_secs_f64()
    }

    /// CPU time of the server for one accepted request.
    pub(crate) fn cpu_each(&self) -> Duration {
        self.cpu.div_f64(self.accepted.max(1) as f64)
    }
}

/// Times of single requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency that this share (0 to 1) of all is at or below; zero when there is none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// Waits until the server answers with 2xx; it opens its store before that. One that speaks TLS is asked at its admin side, or only whether
/// it is there.
pub(crate) async fn wait_until_ready(server: &Server, post: &Post) -> anyhow::Result<()> {
    match server.admin() {
        Some(admin) if server.is_tls() => until(async || get(admin, "/readyz").await.map(drop)).await,
        None if server.is_tls() => until(async || Ok(TcpStream::connect(server.address()).await.map(drop)?)).await,
        _ => wait_until_answered(server.address(), post).await,
    }
}

/// Sends a request until the answer is 2xx.
pub(crate) async fn wait_until_answered(address: SocketAddr, post: &Post) -> anyhow::Result<()> {
    until(async || match try_once(address, post).await? {
        status if status.is_success() => Ok(()),
        status => bail!("{address} answers {status}"),
    })
    .await
}

/// Tries until it succeeds.
async fn until(mut once: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let began = SystemClock.now().mono;
    loop {
        let Err(failure) = once().await else { return Ok(()) };
        if SystemClock.now().mono.since(began) > START_LIMIT {
            return Err(failure.context(format!("not ready within {START_LIMIT:?}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn try_once(address: SocketAddr, post: &Post) -> anyhow::Result<http::StatusCode> {
    let mut connection = Connection::open(address).await?;
    connection.send(post.request(0)?).await
}

/// Drives the server as fast as it answers for that many seconds, over [`CONNECTIONS`].
pub(crate) fn saturate(server: &Server, post: &Post, folder: &Path, seconds: u64) -> anyhow::Result<Measured> {
    saturate_over(CONNECTIONS, server, post, folder, seconds)
}

/// The same over so many connections.
pub(crate) fn saturate_over(
    connections: usize,
    server: &Server,
    post: &Post,
    folder: &Path,
    seconds: u64,
) -> anyhow::Result<Measured> {
    let script = folder.join("wrk.lua");
    std::fs::write(&script, post.script())?;
    let before = server.cpu()?;
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "-s"])
        .arg(&script)
        .arg(server.url())
        .output()
        .context("wrk cannot be started; `.ci/setup bench` installs it")?;
    let cpu = server.cpu()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let numbers: Vec<u64> = result.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    let [requests, refused, errors, micros, p50, p99] = numbers[..] else {
        bail!("wrk gave no result: {text}{}", String::from_utf8_lossy(&output.stderr));
    };
    Ok(Measured {
        accepted: requests.saturating_sub(refused),
        failed: refused + errors,
        took: Duration::from_micros(micros),
        cpu,
        p50: Duration::from_micros(p50),
        p99: Duration::from_micros(p99),
    })
}

/// Drives the server with `per_second` requests, spread evenly over the connections, for `span`.
pub(crate) async fn pace(server: &Server, post: &Post, per_second: f64, span: Duration) -> anyhow::Result<Measured> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(server.address()).await?);
    }
    let before = server.cpu()?;
    let began = SystemClock.now().mono;
    let between = Duration::from_secs_f64(CONNECTIONS as f64 / per_second);
    // Requests stand ready, so each connection has a part of very many shops.
    let shops = usize::try_from(post.shops)?;
    let each = (shops / CONNECTIONS).clamp(1, 64);
    let mut senders = JoinSet::new();
    for (index, connection) in connections.into_iter().enumerate() {
        let requests = (0..each).map(|i| post.request((index + i * CONNECTIONS) % shops)).collect::<Result<_, _>>()?;
        let first = began.plus(between.mul_f64(index as f64 / CONNECTIONS as f64));
        senders.spawn(send_by_schedule(connection, requests, first, between, began.plus(span)));
    }
    let (mut latencies, mut failed) = (Latencies::default(), 0);
    while let Some(sent) = senders.join_next().await {
        let (sent, refused) = sent??;
        latencies.0.extend(sent.0);
        failed += refused;
    }
    Ok(Measured {
        accepted: latencies.count() as u64,
        failed,
        took: SystemClock.now().mono.since(began),
        cpu: server.cpu()? - before,
        p50: latencies.quantile(0.5),
        p99: latencies.quantile(0.99),
    })
}

/// Sends at `first`, and then every `between`, until `end`; the latencies of what was accepted, and how many were not.
///
/// A request whose time came while the one before was still unanswered counts from that time: a server that stalls
/// must not slow down those who measure it. One that found the connection idle counts from when it was sent, since
/// the timer's coarse milliseconds are ours.
async fn send_by_schedule(
    mut connection: Connection,
    requests: Vec<http::Request<Full<Bytes>>>,
    first: Mono,
    between: Duration,
    end: Mono,
) -> anyhow::Result<(Latencies, u64)> {
    let (mut latencies, mut failed) = (Latencies::default(), 0);
    let mut due = first;
    for request in requests.iter().cycle() {
        if due >= end {
            break;
        }
        let wait = due.since(SystemClock.now().mono);
        let from = if wait.is_zero() {
            due
        } else {
            tokio::time::sleep(wait).await;
            SystemClock.now().mono
        };
        let status = connection.send(request.clone()).await?;
        if status.is_success() {
            latencies.add(SystemClock.now().mono.since(from));
        } else {
            failed += 1;
        }
        due = due.plus(between);
    }
    Ok((latencies, failed))
}

/// The text at `path`, asked for on a connection of its own.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let request = http::Request::get(path).header("host", address.to_string()).body(Full::default())?;
    let (status, text) = Connection::open(address).await?.read(request).await?;
    anyhow::ensure!(status.is_success(), "{path}: {status} {text}");
    Ok(text)
}

/// One client connection, with the task that moves its bytes.
pub(crate) struct Connection {
    send: SendRequest<Full<Bytes>>,
    _io: JoinSet<hyper::Result<()>>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (send, connection) = handshake(TokioIo::new(stream)).await?;
        let mut io = JoinSet::new();
        io.spawn(connection);
        Ok(Self { send, _io: io })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&mut self, request: http::Request<Full<Bytes>>) -> anyhow::Result<http::StatusCode> {
        Ok(self.read(request).await?.0)
    }

    /// The same, with the answer's text.
    async fn read(&mut self, request: http::Request<Full<Bytes>>) -> anyhow::Result<(http::StatusCode, String)> {
        self.send.ready().await?;
        let mut answer = self.send.send_request(request).await?;
        let mut body = Vec::new();
        while let Some(frame) = answer.body_mut().frame().await {
            if let Ok(data) = frame?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        Ok((answer.status(), String::from_utf8_lossy(&body).into_owned()))
    }
}
