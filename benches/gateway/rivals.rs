//! What one would write oneself: Node's HTTP server with a BullMQ queue in Redis (`benches/rivals/bullmq`), driven with the same load.
//!
//! Redis keeps every write in its append-only file, once with `appendfsync everysec` (its default; a power cut loses a second) and once with
//! `always`, which is what the gateway does. The CPU is that of Node and Redis together.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fairlane::clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;

use crate::load::{self, Measured, Post, SECRET};
use crate::plan::Plan;
use crate::report::{Cells, table};
use crate::server::{Kind, Server, Setup, free_address};
use crate::{CONNECTIONS, Fresh, WARM_UP, whole};

/// Its source.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rivals/bullmq");

/// How long what was accepted may take to be delivered.
const DELIVER_LIMIT: Duration = Duration::from_secs(600);

/// Measures and prints: ours first, then the rival with each way of keeping.
pub(crate) fn run(plan: &Plan, folder: &Path, runtime: &Runtime) -> anyhow::Result<()> {
    let post = Post::signed(plan.shops, plan.body);
    let mut rows = Vec::new();
    if plan.has(Kind::Fairlane) {
        let server = Fresh::start(Kind::Fairlane, folder.join("ours"), &Setup::default(), runtime, &post)?;
        load::saturate(&server.server, &post, &server.folder, WARM_UP.as_secs())?;
        rows.push((
            "accepted".to_owned(),
            "fairlane",
            load::saturate(&server.server, &post, &server.folder, plan.seconds)?,
        ));
        server.end()?;
        let road = whole::measure(Kind::Fairlane, folder, runtime, &post, plan.seconds)?;
        rows.push(("end to end".to_owned(), "fairlane", road));
    }
    let rival = install(folder)?;
    for (fsync, name) in [("everysec", "bullmq"), ("always", "bullmq")] {
        let accepted = accepting(&rival, fsync, folder, runtime, &post, plan.seconds)?;
        rows.push((format!("accepted, fsync {fsync}"), name, accepted));
        let road = end_to_end(&rival, fsync, folder, runtime, &post, plan.seconds)?;
        rows.push((format!("end to end, fsync {fsync}"), name, road));
    }
    let mut out = std::io::stdout().lock();
    table(&mut out, &rows.iter().map(|(name, who, row)| Cells::of(name, who, row)).collect::<Vec<_>>())?;
    Ok(())
}

/// A copy of the source with what it needs; it is gone with the rest of what is measured.
fn install(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let place = folder.join("bullmq");
    std::fs::create_dir(&place)?;
    for file in ["package.json", "server.mjs"] {
        std::fs::copy(Path::new(SOURCE).join(file), place.join(file))?;
    }
    let npm = Command::new("npm")
        .args(["install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"])
        .current_dir(&place)
        .status()
        .context("npm cannot be started: this part needs Node 20 with npm, and redis-server")?;
    if !npm.success() {
        bail!("npm could not install what benches/rivals/bullmq/package.json names");
    }
    Ok(place)
}

/// Node and Redis; `upstream` is where a worker posts what comes, where there is one.
fn start(
    rival: &Path,
    fsync: &str,
    folder: &Path,
    upstream: Option<&Server>,
    runtime: &Runtime,
    post: &Post,
) -> anyhow::Result<Server> {
    std::fs::create_dir_all(folder)?;
    let (address, keeps) = (free_address()?, free_address()?);
    let mut redis = Command::new("redis-server");
    redis.args(["--port", &keeps.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
    redis.args(["--appendfsync", fsync, "--dir"]).arg(folder);
    let mut node = Command::new("node");
    node.arg("server.mjs").current_dir(rival).env("PORT", address.port().to_string()).env("SECRET", SECRET);
    node.env("REDIS_PORT", keeps.port().to_string()).env("CONCURRENCY", CONNECTIONS.to_string());
    node.env("UPSTREAM", upstream.map(|server| format!("http://{}", server.address())).unwrap_or_default());
    let server = Server::of("bullmq", address, folder, [node, redis])?;
    runtime.block_on(load::wait_until_answered(server.address(), post))?;
    Ok(server)
}

fn accepting(
    rival: &Path,
    fsync: &str,
    folder: &Path,
    runtime: &Runtime,
    post: &Post,
    seconds: u64,
) -> anyhow::Result<Measured> {
    let place = folder.join(format!("bullmq-{fsync}"));
    let server = start(rival, fsync, &place, None, runtime, post)?;
    load::saturate(&server, post, &place, WARM_UP.as_secs())?;
    let measured = load::saturate(&server, post, &place, seconds)?;
    server.stop()?;
    std::fs::remove_dir_all(&place)?;
    Ok(measured)
}

/// Until the last event is delivered.
fn end_to_end(
    rival: &Path,
    fsync: &str,
    folder: &Path,
    runtime: &Runtime,
    post: &Post,
    seconds: u64,
) -> anyhow::Result<Measured> {
    let receiver = Fresh::start(Kind::Nginx, folder.join("receiver"), &Setup::default(), runtime, post)?;
    let place = folder.join(format!("bullmq-{fsync}"));
    let server = start(rival, fsync, &place, Some(&receiver.server), runtime, post)?;
    let one = |seconds| -> anyhow::Result<Measured> {
        let (before, began, cpu) = (counts(&server, runtime)?.0, SystemClock.now().mono, server.cpu()?);
        let sent = load::saturate(&server, post, &place, seconds)?;
        let accepted = delivered(&server, runtime)? - before;
        Ok(Measured { accepted, took: SystemClock.now().mono.since(began), cpu: server.cpu()? - cpu, ..sent })
    };
    one(WARM_UP.as_secs())?;
    let measured = one(seconds)?;
    server.stop()?;
    std::fs::remove_dir_all(&place)?;
    receiver.end()?;
    Ok(measured)
}

/// Waits until everything that was accepted is delivered; how much that is.
fn delivered(server: &Server, runtime: &Runtime) -> anyhow::Result<u64> {
    let began = SystemClock.now().mono;
    loop {
        let (accepted, delivered) = counts(server, runtime)?;
        if accepted == delivered {
            return Ok(accepted);
        }
        if SystemClock.now().mono.since(began) > DELIVER_LIMIT {
            bail!("{delivered} of {accepted} jobs were done within {DELIVER_LIMIT:?}: {}", server.last_words());
        }
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    }
}

/// What it has accepted and delivered.
fn counts(server: &Server, runtime: &Runtime) -> anyhow::Result<(u64, u64)> {
    let text = runtime.block_on(load::get(server.address(), "/counts"))?;
    let counts: serde_json::Value = serde_json::from_str(&text)?;
    let number = |name: &str| counts.get(name).and_then(serde_json::Value::as_u64);
    number("accepted").zip(number("delivered")).with_context(|| format!("no counts in {text}"))
}
