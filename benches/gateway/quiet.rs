//! How long quiet stores wait: alone, beside one flood and beside five hundred.
//!
//! The receiver takes 50 ms for each event, as an application would. First the floods send what keeps the gateway busy for longer than
//! the measurement; then quiet stores send single events, or bursts of five, at less than half of their share. The waits are
//! the gateway's own (`Fairlane-Wait-Ms`): from the durable commit to the attempt.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use fairlane::clock::{Clock as _, SystemClock};
use fairlane::event::Mono;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::load::{Connection, Latencies, Post};
use crate::receiver::{Look, receive};
use crate::server::{Kind, Setup};
use crate::{CONNECTIONS, Fresh};

/// What the receiver takes for an event: the median attempt.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(50);

/// How long the last events of quiet stores may take.
const ARRIVE_LIMIT: Duration = Duration::from_secs(60);

/// Quiet stores; each sends an event a second on average. With 64 slots of 50 ms and 550 stores a share is 2.3 a second.
const STORES: usize = 50;

/// How the quiet ones send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scene {
    /// Stores that flood.
    pub(crate) floods: usize,
    /// Events of a quiet store at one time.
    pub(crate) burst: usize,
}

impl Scene {
    pub(crate) const ALL: [Self; 6] = [
        Self { floods: 0, burst: 1 },
        Self { floods: 1, burst: 1 },
        Self { floods: 500, burst: 1 },
        Self { floods: 0, burst: 5 },
        Self { floods: 1, burst: 5 },
        Self { floods: 500, burst: 5 },
    ];

    /// What its p99 may have beyond that of the same without floods, in attempts.
    pub(crate) fn attempts_allowed(self) -> u32 {
        if self.burst == 1 { 1 } else { 4 }
    }
}

/// The waits of quiet stores in `scene`, over `span`.
pub(crate) fn measure(
    scene: Scene,
    folder: &Path,
    runtime: &Runtime,
    post: &Post,
    span: Duration,
) -> anyhow::Result<Latencies> {
    let waits = Arc::new(Mutex::new(Latencies::default()));
    let mut receiver = JoinSet::new();
    let upstream = runtime.block_on(receive(&mut receiver, ATTEMPT, look(Arc::clone(&waits))))?;
    let server = Fresh::start(Kind::Fairlane, folder.join("quiet"), &Setup::to(upstream), runtime, post)?;
    let address = server.server.address();
    runtime.block_on(async {
        // 64 slots of 50 ms take 1,280 a second; one store may hold an eighth of them.
        let rate = if scene.floods == 1 { 160 } else { 1_280 };
        if scene.floods > 0 {
            flood(address, post, scene.floods, rate * (span.as_secs() as usize + 5) * 2).await?;
        }
        let sent = send_quietly(address, post, scene.burst, span).await?;
        arrived(&waits, sent).await
    })?;
    server.end()?;
    let waits = std::mem::take(&mut *waits.lock());
    Ok(waits)
}

/// Waits for every last one: those that wait longest are what is measured.
async fn arrived(waits: &Mutex<Latencies>, sent: usize) -> anyhow::Result<()> {
    let began = SystemClock.now().mono;
    while waits.lock().count() < sent {
        if SystemClock.now().mono.since(began) > ARRIVE_LIMIT {
            bail!("{} of {sent} events of quiet stores came within {ARRIVE_LIMIT:?}", waits.lock().count());
        }
        tokio::time::sleep(ATTEMPT).await;
    }
    Ok(())
}

/// Remembers what quiet stores waited.
fn look(waits: Arc<Mutex<Latencies>>) -> Look {
    Arc::new(move |headers| {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if header("fairlane-group").starts_with("quiet")
            && let Ok(ms) = header("fairlane-wait-ms").parse()
        {
            waits.lock().add(Duration::from_millis(ms));
        }
    })
}

/// `events` of that many stores, as fast as they are taken.
async fn flood(address: SocketAddr, post: &Post, stores: usize, events: usize) -> anyhow::Result<()> {
    let mut senders = JoinSet::new();
    for sender in 0..CONNECTIONS {
        let requests: Vec<_> = (sender..events.max(CONNECTIONS))
            .step_by(CONNECTIONS)
            .map(|n| post.request_of(&format!("flood-{}", n % stores)))
            .collect::<anyhow::Result<_>>()?;
        senders.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for request in requests {
                let status = connection.send(request).await?;
                anyhow::ensure!(status.is_success(), "a flooding store got {status}");
            }
            Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    Ok(())
}

/// Each quiet store on a connection of its own, spread evenly over its period. How many events they sent.
async fn send_quietly(address: SocketAddr, post: &Post, burst: usize, span: Duration) -> anyhow::Result<usize> {
    let period = Duration::from_secs(burst as u64);
    let began = SystemClock.now().mono;
    let mut senders = JoinSet::new();
    for store in 0..STORES {
        let request = post.request_of(&format!("quiet-{store}"))?;
        let first = began.plus(period.mul_f64(store as f64 / STORES as f64));
        senders.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let (mut due, mut count) = (first, 0);
            while due < began.plus(span) {
                sleep_until(due).await;
                for _ in 0..burst {
                    let status = connection.send(request.clone()).await?;
                    anyhow::ensure!(status.is_success(), "a quiet store got {status}");
                    count += 1;
                }
                due = due.plus(period);
            }
            Ok(count)
        });
    }
    let mut all = 0;
    while let Some(sent) = senders.join_next().await {
        all += sent??;
    }
    Ok(all)
}

async fn sleep_until(due: Mono) {
    tokio::time::sleep(due.since(SystemClock.now().mono)).await;
}
