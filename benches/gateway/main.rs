//! `make bench`: what an event costs beside nginx, and what quiet stores wait, on the same machine in the same run.
//!
//! *Accepting*: both servers in turn, several rounds: wrk drives each to saturation with signed 1 KB posts over 64 connections, then a sender with
//! a fixed schedule drives it at half of that. The disk is measured in the same run, for a durable answer cannot be faster.
//! *The whole road* ([`whole`]): nginx hands on, the gateway stores, delivers and settles, both to the same receiver. *Quiet stores*
//! ([`quiet`]): what they wait beside no flood, one and five hundred.
//! All traffic stays on the loopback; everything that is written lies in a folder under `target/` that is gone afterwards.
//!
//! `BENCH_ROUNDS` (3), `BENCH_SECONDS` (4, of each measurement), `BENCH_ONLY` (`nginx` or `fairlane`) and `BENCH_SHOPS` (256 that send in
//! turn) change it.

mod disk;
mod load;
mod quiet;
mod report;
mod server;
mod whole;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use load::Post;
use quiet::Scene;
use server::{Kind, Server};

/// Connections of every measurement: enough that a batch gathers while one is being made durable, few enough that
/// latency is not queueing alone.
const CONNECTIONS: usize = 64;

/// How long a server runs before it is measured: caches, first allocations, first segment.
const WARM_UP: Duration = Duration::from_secs(1);

fn main() -> anyhow::Result<()> {
    let plan = Plan::from_environment()?;
    // Under target/, so on the disk that the project itself lies on: /tmp may be memory.
    let folder = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let load_before = report::load_average();
    let disk = disk::measure(folder.path(), Duration::from_secs(plan.seconds))?;
    let post = Post::signed(plan.shops);
    let mut results = report::Results::new(load_before, disk);
    for round in 1..=plan.rounds {
        for kind in &plan.kinds {
            let name = kind.name();
            let server =
                Fresh::start(*kind, folder.path().join(format!("{name}-{round}-full")), None, &runtime, &post)?;
            load::saturate(&server.server, &post, &server.folder, WARM_UP.as_secs())?;
            let full = load::saturate(&server.server, &post, &server.folder, plan.seconds)?;
            server.end()?;

            // On a server of its own: what the one before still has to tidy up is not this load's.
            let half = full.per_second() / 2.0;
            let server =
                Fresh::start(*kind, folder.path().join(format!("{name}-{round}-half")), None, &runtime, &post)?;
            let paced = async {
                load::pace(&server.server, &post, half, WARM_UP).await?;
                load::pace(&server.server, &post, half, Duration::from_secs(plan.seconds)).await
            };
            let paced = runtime.block_on(paced)?;
            server.end()?;
            results.add(*kind, report::Load::Full, full);
            results.add(*kind, report::Load::Half, paced);
            let road = whole::measure(*kind, folder.path(), &runtime, &post, plan.seconds)?;
            results.add(*kind, report::Load::Whole, road);
        }
    }
    if plan.kinds.contains(&Kind::Fairlane) {
        for scene in Scene::ALL {
            let span = Duration::from_secs(plan.seconds * 2);
            results.add_waits(scene, quiet::measure(scene, folder.path(), &runtime, &post, span)?);
        }
    }
    results.print(&mut std::io::stdout().lock())?;
    Ok(())
}

/// A server that has stored nothing yet, with its folder.
struct Fresh {
    server: Server,
    folder: PathBuf,
}

impl Fresh {
    /// Starts one and waits until it answers.
    fn start(
        kind: Kind,
        folder: PathBuf,
        upstream: Option<SocketAddr>,
        runtime: &Runtime,
        post: &Post,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir(&folder)?;
        let server =
            Server::start(kind, &folder, upstream).with_context(|| format!("{} did not start", kind.name()))?;
        runtime.block_on(load::wait_until_answered(server.address(), post))?;
        Ok(Self { server, folder })
    }

    /// Ends it in order and takes its files away: gigabytes would gather over the rounds.
    fn end(self) -> anyhow::Result<()> {
        self.server.stop()?;
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
    }
}

/// What is to be measured.
struct Plan {
    rounds: u32,
    /// Of each measurement.
    seconds: u64,
    kinds: Vec<Kind>,
    /// That send in turn.
    shops: u64,
}

impl Plan {
    fn from_environment() -> anyhow::Result<Self> {
        let kinds = match std::env::var("BENCH_ONLY").as_deref() {
            Err(_) | Ok("") => Kind::ALL.to_vec(),
            Ok(name) => match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
                Some(kind) => vec![kind],
                None => bail!("BENCH_ONLY is nginx or fairlane, not {name:?}"),
            },
        };
        let rounds = u32::try_from(number("BENCH_ROUNDS", 3, 600)?)?;
        let shops = number("BENCH_SHOPS", 256, 1_000_000)?;
        Ok(Self { rounds, seconds: number("BENCH_SECONDS", 4, 600)?, kinds, shops })
    }
}

/// A whole number from 1 to `most` in the environment.
fn number(name: &str, default: u64, most: u64) -> anyhow::Result<u64> {
    let Ok(text) = std::env::var(name) else { return Ok(default) };
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => bail!("{name} is a whole number from 1 to {most}, not {text:?}"),
    }
}
