//! Millions of events that wait: how the gateway takes them in, what they take in memory and on disk, how long a restart with them is, and
//! how fast they leave.
//!
//! The upstream refuses connections while they come. Then the gateway is killed and started again with one that answers; the time until
//! the first event arrives there counts from the start of the process. It is ended in order, and started once more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use fairlane::clock::{Clock as _, SystemClock};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::load::{self, Post};
use crate::plan::Plan;
use crate::receiver::{Look, receive};
use crate::report::{against, megabytes, short};
use crate::server::{Kind, Server, Setup};
use crate::whole::Settled;
use crate::{CONNECTIONS, Fresh};

/// Lines of the table in which the backlog grows.
const STEPS: u64 = 10;

/// How long a drain is looked at.
const DRAIN: Duration = Duration::from_secs(20);

/// How long a first delivery may take.
const START_LIMIT: Duration = Duration::from_secs(300);

/// DESIGN.md §10, for ten million events of 1 KB.
const RESIDENT_LIMIT: f64 = 600e6;

/// Lanes of a backlog, by name, and how long a restart with ten million events may take.
const LANES: [(&str, u64, Duration); 2] =
    [("one lane", 1, Duration::from_secs(3)), ("a million lanes", 1_000_000, Duration::from_secs(10))];

/// Measures and prints.
pub(crate) fn run(plan: &Plan, folder: &Path, runtime: &Runtime) -> anyhow::Result<()> {
    for (name, shops, limit) in LANES {
        println!("\nbacklog of {} events of {} bytes, {name}:", plan.events, plan.body);
        let post = Post::signed(shops, plan.body);
        let server = Fresh::start(Kind::Fairlane, folder.join("backlog"), &Setup::default(), runtime, &post)?;
        fill(&server, plan.events, &post, runtime)?;
        let Fresh { server, folder } = server;
        server.kill()?;
        println!("on disk: {}", megabytes(size_of(&folder)?));

        let (server, took) = restart(&folder, runtime)?;
        println!("first delivery after kill -9 and start: {}", in_time(took, limit));
        server.stop()?;
        let (server, took) = restart(&folder, runtime)?;
        println!("the same after an end in order: {}", in_time(took, limit));
        server.stop()?;
        drain(&folder, runtime)?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Sends `events`, and prints how it goes.
fn fill(server: &Fresh, events: u64, post: &Post, runtime: &Runtime) -> anyhow::Result<()> {
    println!("{:>12} {:>12} {:>12} {:>12} {:>12}", "waiting", "accepted/s", "CPU/event", "p99", "RSS");
    let mut waiting = 0;
    let mut most = 0;
    for step in 1..=STEPS {
        let (mut accepted, mut took, mut cpu, mut p99) = (0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        while waiting < events * step / STEPS {
            let some = load::saturate_over(CONNECTIONS, &server.server, post, &server.folder, 5)?;
            if some.accepted == 0 {
                bail!("it takes nothing any more: {}", server.server.last_words());
            }
            waiting += some.accepted;
            accepted += some.accepted;
            took += some.took;
            cpu += some.cpu;
            p99 = p99.max(some.p99);
        }
        let resident = server.server.resident()?;
        most = most.max(resident);
        let rate = accepted as f64 / took.as_secs_f64().max(1e-9);
        let each = cpu.div_f64(accepted.max(1) as f64);
        println!("{waiting:>12} {rate:>12.0} {:>12} {:>12} {:>12}", short(each), short(p99), megabytes(resident));
    }
    if let Some(admin) = server.server.admin() {
        let Settled { accepted, delivered } = Settled::ask(admin, runtime)?;
        println!("accepted {accepted}, delivered {delivered}");
    }
    println!("memory at most: {}", against(most as f64, RESIDENT_LIMIT, |bytes| megabytes(bytes as u64)));
    Ok(())
}

fn in_time(took: Duration, limit: Duration) -> String {
    against(took.as_secs_f64(), limit.as_secs_f64(), |seconds| format!("{seconds:.2} s"))
}

/// Starts the gateway on what is there, with a receiver; the time until the first event arrives.
fn restart(folder: &Path, runtime: &Runtime) -> anyhow::Result<(Server, Duration)> {
    let receiver = Receiver::start(runtime)?;
    let began = SystemClock.now().mono;
    let server = Server::start(Kind::Fairlane, folder, &Setup::to(receiver.address))?;
    while receiver.taken() == 0 {
        if SystemClock.now().mono.since(began) > START_LIMIT {
            bail!("nothing was delivered within {START_LIMIT:?}: {}", server.last_words());
        }
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
    Ok((server, SystemClock.now().mono.since(began)))
}

/// How fast the backlog leaves.
fn drain(folder: &Path, runtime: &Runtime) -> anyhow::Result<()> {
    let receiver = Receiver::start(runtime)?;
    let server = Server::start(Kind::Fairlane, folder, &Setup::to(receiver.address))?;
    while receiver.taken() == 0 {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
    let (began, cpu, before) = (SystemClock.now().mono, server.cpu()?, receiver.taken());
    runtime.block_on(async { tokio::time::sleep(DRAIN).await });
    let took = SystemClock.now().mono.since(began);
    let delivered = receiver.taken() - before;
    let each = (server.cpu()? - cpu).div_f64(delivered.max(1) as f64);
    let rate = delivered as f64 / took.as_secs_f64();
    println!("drain: {rate:.0} events/s, CPU {} an event, RSS {}", short(each), megabytes(server.resident()?));
    server.stop()
}

/// A receiver that counts.
struct Receiver {
    address: std::net::SocketAddr,
    taken: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    fn start(runtime: &Runtime) -> anyhow::Result<Self> {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&taken);
        let look: Look = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let mut tasks = JoinSet::new();
        let address = runtime.block_on(receive(&mut tasks, Duration::ZERO, look))?;
        Ok(Self { address, taken, _tasks: tasks })
    }

    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Bytes of all files in a folder.
fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { size_of(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
