//! `make bench-redis`: what an event costs on nodes that share a Redis, beside raw pipelined XADD and XDEL of the same size on the same server
//! in the same run.
//!
//! The whole road: signed 1 KB posts over 64 connections for each node, accepted into Redis with `ack: aof` (it syncs each write), delivered to an
//! nginx that answers 200, and settled. A measurement goes on until the last event is settled. One machine has all of it, so what three nodes
//! have over one is CPU and commands per event, not events per second.
//!
//! Commands are counted by `INFO commandstats`: what is sent for events are scripts (`evalsha`); the last column has what scripts carry out as
//! well.
//!
//! `BENCH_SECONDS` (5, of each measurement) and `BENCH_SHOPS` (256 that send in turn) change it.

#[path = "../gateway/load.rs"]
#[expect(dead_code, reason = "the other bench paces its load as well")]
mod load;
mod raw;
mod redis_server;
mod report;
#[path = "../gateway/server.rs"]
#[expect(dead_code, reason = "the other bench compares all kinds of servers")]
mod server;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fairlane::clock::{Clock as _, SystemClock};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use load::Post;
use redis_server::Redis;
use report::Row;
use server::{Kind, Server, Setup};

/// Connections to each node.
const CONNECTIONS: usize = 64;

/// Bytes of a body, and of an entry of the raw stream.
const BODY_BYTES: usize = 1024;

/// Nodes of each measurement.
const NODES: [usize; 2] = [1, 3];

/// How long a measurement may take beyond its load until the last event is settled.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// Often enough that the last event is not waited for in vain, seldom enough that asking costs nothing.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long nodes run before they are measured.
const WARM_UP: u64 = 1;

fn main() -> anyhow::Result<()> {
    let (seconds, shops) = (number("BENCH_SECONDS", 5)?, number("BENCH_SHOPS", 256)?);
    // Under target/, so on the disk that the project itself lies on: /tmp may be memory.
    let folder = TempDir::with_prefix_in("bench-redis-", env!("CARGO_TARGET_TMPDIR"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let load_before = report::load_average();
    let post = Post::signed(shops, BODY_BYTES);
    let mut rows = Vec::new();
    let redis = Redis::start(&folder.path().join("raw"))?;
    rows.push(raw::measure(&redis, BODY_BYTES, Duration::from_secs(seconds))?);
    let version = redis.version()?;
    drop(redis);
    for nodes in NODES {
        rows.push(measure(nodes, &folder.path().join(format!("nodes-{nodes}")), &runtime, &post, seconds)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let head = format!("Redis {version}, {cores} cores, bodies of {BODY_BYTES} bytes, load before it {load_before:.1}");
    report::print(&rows, &head, &mut std::io::stdout().lock())?;
    Ok(())
}

/// A whole number from 1 on in the environment.
fn number(name: &str, default: u64) -> anyhow::Result<u64> {
    let Ok(text) = std::env::var(name) else { return Ok(default) };
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .with_context(|| format!("{name} is a whole number from 1 on, not {text:?}"))
}

/// So many nodes over a Redis of their own.
fn measure(nodes: usize, folder: &Path, runtime: &Runtime, post: &Post, seconds: u64) -> anyhow::Result<Row> {
    let redis = Redis::start(&folder.join("redis"))?;
    let receiver = folder.join("receiver");
    std::fs::create_dir_all(&receiver)?;
    let receiver = Server::start(Kind::Nginx, &receiver, &Setup::default())?;
    runtime.block_on(load::wait_until_answered(receiver.address(), post))?;
    let more = format!("store: {{ redis: {{ url: \"{}\" }} }}\n", redis.url());
    let setup = Setup { more, ..Setup::to(receiver.address()) };
    let start = |number: usize| {
        let folder = folder.join(format!("node-{number}"));
        std::fs::create_dir_all(&folder)?;
        let node = Server::start(Kind::Fairlane, &folder, &setup)?;
        runtime.block_on(load::wait_until_answered(node.address(), post))?;
        Ok(Node { server: node, folder })
    };
    let nodes: Vec<Node> = (0..nodes).map(start).collect::<anyhow::Result<_>>()?;
    drive(&nodes, runtime, post, WARM_UP)?;
    let (work, cpu, before, began) =
        (redis.work()?, cpu(&nodes)?, Settled::of(&nodes, runtime)?, SystemClock.now().mono);
    let after = drive(&nodes, runtime, post, seconds)?;
    let took = SystemClock.now().mono.since(began);
    let (work, cpu) = (redis.work()?.since(&work), self::cpu(&nodes)?.saturating_sub(cpu));
    let row = Row {
        name: if nodes.len() == 1 { "one node".to_owned() } else { format!("{} nodes", nodes.len()) },
        events: after.accepted - before.accepted,
        took,
        redis: work.cpu,
        nodes: Some(cpu),
        sent: work.of("evalsha"),
        within: work.all(),
    };
    for node in nodes {
        node.server.stop()?;
    }
    receiver.stop()?;
    Ok(row)
}

/// A gateway, and where it is.
struct Node {
    server: Server,
    folder: std::path::PathBuf,
}

fn cpu(nodes: &[Node]) -> anyhow::Result<Duration> {
    nodes.iter().map(|node| node.server.cpu()).sum()
}

/// Drives all nodes at once as fast as they answer, and waits until everything is settled.
fn drive(nodes: &[Node], runtime: &Runtime, post: &Post, seconds: u64) -> anyhow::Result<Settled> {
    std::thread::scope(|scope| {
        let one = |node: &Node| load::saturate(&node.server, post, &node.folder, seconds).map(drop);
        let driving: Vec<_> = nodes.iter().map(|node| scope.spawn(move || one(node))).collect();
        driving.into_iter().try_for_each(|driven| driven.join().unwrap_or_else(|_| bail!("a sender panicked")))
    })?;
    let began = SystemClock.now().mono;
    loop {
        let settled = Settled::of(nodes, runtime)?;
        if settled.delivered == settled.accepted {
            return Ok(settled);
        }
        if SystemClock.now().mono.since(began) > SETTLE_LIMIT {
            let Settled { accepted, delivered } = settled;
            bail!("{delivered} of {accepted} events were delivered within {SETTLE_LIMIT:?}");
        }
        std::thread::park_timeout(ASK_EVERY);
    }
}

/// What all nodes count together: an event is accepted by one and delivered by another.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    accepted: u64,
    delivered: u64,
}

impl Settled {
    fn of(nodes: &[Node], runtime: &Runtime) -> anyhow::Result<Self> {
        let mut sum = Self::default();
        for node in nodes {
            let admin = node.server.admin().context("a gateway has an admin side")?;
            let text = runtime.block_on(load::get(admin, "/metrics"))?;
            let number = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once("} "));
                line.and_then(|(_, number)| number.parse::<u64>().ok()).unwrap_or(0)
            };
            sum.accepted += number("fairlane_events_accepted_total");
            sum.delivered += number("fairlane_events_delivered_total");
        }
        Ok(sum)
    }
}
