//! `make bench`: what an event costs beside nginx, and what quiet stores wait, on the same machine in the same run.
//!
//! `BENCH` names the parts, with commas between them; without it the first one is measured, in about five minutes:
//!
//! - `budgets` ([`budgets`]): accepting, the whole road and quiet stores ([`quiet`]), with a line for each budget.
//! - `bodies`, `connections`, `tls`, `groups` ([`sweep`]): what accepting costs under other loads.
//! - `backlog` ([`backlog`]): millions of events that wait, and a restart with them. An hour, and 10 GB.
//! - `rivals` ([`rivals`]): the same with Node, BullMQ and Redis.
//!
//! The load of everything is wrk, or a sender with a fixed schedule, with signed posts over 64 connections. All traffic stays on the loopback;
//! everything that is written lies in a folder under `target/` that is gone afterwards.
//!
//! `BENCH_ROUNDS` (3, of the budgets), `BENCH_SECONDS` (4, of each measurement), `BENCH_ONLY` (`nginx` or `fairlane`), `BENCH_SHOPS` (256 that
//! send in turn), `BENCH_BODY` (1024 bytes) and `BENCH_EVENTS` (10,000,000, of the backlog) change it.

#![expect(clippy::print_stdout, reason = "it prints tables")]

mod backlog;
mod budgets;
mod disk;
mod load;
mod plan;
mod quiet;
mod receiver;
mod report;
mod rivals;
mod server;
mod sweep;
mod whole;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use load::Post;
use plan::{Part, Plan};
use server::{Kind, Server, Setup};

/// Connections of a measurement that is not about them: enough that a batch gathers while one is being made durable, few enough that
/// latency is not queueing alone.
const CONNECTIONS: usize = 64;

/// How long a server runs before it is measured: caches, first allocations, first segment.
const WARM_UP: Duration = Duration::from_secs(1);

fn main() -> anyhow::Result<()> {
    let plan = Plan::from_environment()?;
    // Under target/, so on the disk that the project itself lies on: /tmp may be memory.
    let folder = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    report::print_machine(&mut std::io::stdout().lock())?;
    for part in &plan.parts {
        run(*part, &plan, folder.path(), &runtime)?;
    }
    Ok(())
}

fn run(part: Part, plan: &Plan, folder: &Path, runtime: &Runtime) -> anyhow::Result<()> {
    println!();
    match part {
        Part::Budgets => budgets::run(plan, folder, runtime),
        Part::Bodies | Part::Connections | Part::Tls | Part::Groups => sweep::run(part, plan, folder, runtime),
        Part::Backlog => backlog::run(plan, folder, runtime),
        Part::Rivals => rivals::run(plan, folder, runtime),
    }
}

/// A server that has stored nothing yet, with its folder.
struct Fresh {
    server: Server,
    folder: PathBuf,
}

impl Fresh {
    /// Starts one and waits until it answers.
    fn start(kind: Kind, folder: PathBuf, setup: &Setup, runtime: &Runtime, post: &Post) -> anyhow::Result<Self> {
        std::fs::create_dir(&folder)?;
        let server = Server::start(kind, &folder, setup).with_context(|| format!("{} did not start", kind.name()))?;
        runtime.block_on(load::wait_until_ready(&server, post))?;
        Ok(Self { server, folder })
    }

    /// Ends it in order and takes its files away: gigabytes would gather over the rounds.
    fn end(self) -> anyhow::Result<()> {
        self.server.stop()?;
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
    }
}
