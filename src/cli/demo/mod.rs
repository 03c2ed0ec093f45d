//! `fairlane demo`: THE WHOLE STORY IN ONE COMMAND.
//!
//! A receiver that works 5 ms on every event, 16 at a time; a gateway before it, which is this program as a process of its own with
//! its durable store; and ten stores that post signed Shopify orders over real sockets. First nine of them alone, then with the
//! tenth's flood, and with `--compare` once more through one queue for all. Everything is on the loopback, at ports that are free,
//! and in a temporary folder that goes with the demo (after a `kill -9`: with the next one). What stays is two pictures.
//!
//! Here is the order of things; `traffic` posts, `receiver` receives, both write into the `ledger`, `figures` makes of it what
//! `table` and `plot` show.

mod figures;
mod folder;
mod gateway;
mod ledger;
mod orders;
mod plot;
mod receiver;
mod screen;
mod table;
mod traffic;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::figures::{Figures, Phase};
use self::folder::Folder;
use self::gateway::{Gateway, MIN_FREE_MIB, Queues, SLOTS, Secrets};
use self::ledger::{FLOODING, Ledger, QUIET};
use self::receiver::{Receiver, WORK};
use self::screen::{Loud, Screen};
use self::traffic::{Senders, Traffic};
use super::table::{span, thousands};
use super::{FAILED, complain, print};
use crate::app;
use crate::event::{Mono, Secret};
use crate::verify::{Choice, SecretSpec, Spec, Verifier};

/// How long the quiet stores sell before the flood, and after its last delivery.
const AROUND_THE_FLOOD: Duration = Duration::from_secs(1);

/// How long nothing may arrive while something is owed, before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often the moving line moves, and the gateway is looked after.
const TICK: Duration = Duration::from_millis(100);

/// Sockets and files of this process and of the gateway: 110 connections, their other ends, and what a store needs.
const DESCRIPTORS: usize = 256;

/// Of disk for an event: the longest order, its headers and its row in the index.
const DISK_BYTES_AN_EVENT: u64 = 12 << 10;

/// The arguments of `fairlane demo`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// How many orders the flooding store posts
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flood: u64,
    /// Do it once more with all stores in one shared queue
    #[arg(long)]
    compare: bool,
    /// Where the pictures go
    #[arg(long, value_name = "DIR", default_value = "fairlane-demo")]
    out: PathBuf,
    /// How long the quiet stores are watched alone, in seconds
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=300))]
    seconds: u64,
    /// Another number makes other orders at other times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the figures as JSON; what is told meanwhile goes to standard error
    #[arg(long)]
    json: bool,
}

/// Runs the demo; the answer is the exit code: 1 where an event was lost or delivered wrongly, or it could not be run.
pub(super) fn run(arguments: &Arguments) -> u8 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("the demo cannot start: {error}"), FAILED),
    };
    let had_folder = arguments.out.exists();
    // On this thread, since the gateway ends with the thread that started it.
    let ended = runtime.block_on(async {
        // Before anything is made that a signal would leave behind.
        let mut signals = Signals::new()?;
        tokio::select! {
            ended = demo(arguments) => ended,
            name = signals.any() => bail!("{name}: ended early; nothing is left behind"),
        }
    });
    match ended {
        Ok(code) => code,
        Err(error) => {
            if !had_folder {
                // Only an empty one goes.
                std::fs::remove_dir(&arguments.out).ok();
            }
            complain(&format!("{error:#}"), FAILED)
        }
    }
}

/// The signals that end us.
struct Signals {
    interrupt: Signal,
    term: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let [interrupt, term, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { interrupt: interrupt?, term: term?, hangup: hangup? })
    }

    async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.term.recv() => "told to end",
            _ = self.hangup.recv() => "the terminal is gone",
        }
    }
}

async fn demo(arguments: &Arguments) -> anyhow::Result<u8> {
    let screen = Screen::new(arguments.json);
    let folder = prepared(arguments)?;
    let mut stage = Stage::set(arguments, &screen, folder).await?;
    stage.introduce();

    let mut gateway = stage.gateway(Queues::Lanes)?;
    stage.play(&mut gateway, Phase::Quiet).await?;
    stage.play(&mut gateway, Phase::Flood).await?;
    gateway.stop().await?;
    if arguments.compare {
        let mut gateway = stage.gateway(Queues::Shared)?;
        stage.play(&mut gateway, Phase::Shared).await?;
        gateway.stop().await?;
    }
    // A gateway that has ended delivers nothing more: what is in the ledger now is all.
    let right = stage.conclude()?;
    let folder = stage.folder;
    let place = folder.path().display().to_string();
    folder.close().with_context(|| format!("{place} cannot be removed"))?;
    Ok(if right { 0 } else { FAILED })
}

/// Makes sure, before anything starts, that it can end well; the answer is the temporary folder.
fn prepared(arguments: &Arguments) -> anyhow::Result<Folder> {
    let out = &arguments.out;
    let unwritable = || format!("cannot write into {} (--out DIR names another folder)", out.display());
    std::fs::create_dir_all(out).with_context(unwritable)?;
    tempfile::tempfile_in(out).with_context(unwritable)?;
    if let Some(allowed) = app::raise_descriptors() {
        ensure!(
            allowed >= DESCRIPTORS,
            "the demo opens some {DESCRIPTORS} files and sockets, and this process may open only {allowed}: raise the limit, \
             e.g. ulimit -n 1024"
        );
    }
    let folder = Folder::make_in(&std::env::temp_dir()).with_context(|| {
        format!("cannot make a folder in {} (TMPDIR=DIR names another place)", std::env::temp_dir().display())
    })?;
    enough_room(folder.path(), arguments)?;
    Ok(folder)
}

fn enough_room(folder: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let disk = rustix::fs::statvfs(folder).context("the disk cannot be asked how full it is")?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let floods = if arguments.compare { 2 } else { 1 };
    let needed = ((2 * MIN_FREE_MIB) << 20) + floods * arguments.flood * DISK_BYTES_AN_EVENT;
    ensure!(
        free >= needed,
        "the demo needs {} MiB in {}, and only {} MiB are free there (TMPDIR=DIR names another place, --flood N makes it smaller)",
        needed >> 20,
        std::env::temp_dir().display(),
        free >> 20
    );
    Ok(())
}

/// What the whole demo shares, and what it found so far.
struct Stage<'a> {
    arguments: &'a Arguments,
    screen: &'a Screen,
    secrets: Secrets,
    signer: Arc<Verifier>,
    ledger: Arc<Ledger>,
    receiver: Receiver,
    /// Each phase that was played, and when it began.
    played: Vec<(Phase, Mono)>,
    folder: Folder,
}

impl<'a> Stage<'a> {
    async fn set(arguments: &'a Arguments, screen: &'a Screen, folder: Folder) -> anyhow::Result<Self> {
        let hex = |bytes: [u8; 24]| bytes.map(|byte| format!("{byte:02x}")).concat();
        // Hexadecimal digits are base64 too, which this kind of secret has to be.
        let secrets = Secrets { provider: hex(rand::random()), delivery: format!("whsec_{}", hex(rand::random())) };
        let spec = Spec::new(Choice::Preset("shopify".into()), vec![SecretSpec::new(Secret::new(&*secrets.provider))]);
        let signer = Arc::new(Verifier::new(spec).context("the demo's orders cannot be signed")?);
        let ledger = Arc::new(Ledger::default());
        let receiver = Receiver::start(&Secret::new(&*secrets.delivery), Arc::clone(&ledger)).await?;
        Ok(Self { arguments, screen, secrets, signer, ledger, receiver, played: Vec::new(), folder })
    }

    fn introduce(&self) {
        self.screen.tell(&format!(
            "Ten stores post signed Shopify orders to one gateway, which delivers them to one receiver: {} ms of work an event, \
             {SLOTS} at a time. Each event is on disk (fsync) before its 2xx.",
            WORK.as_millis()
        ));
        if is_in_memory(self.folder.path()) {
            self.screen.tell(&format!(
                "({} is in memory, so an fsync costs nothing there; TMPDIR=DIR names a folder on a disk.)",
                std::env::temp_dir().display()
            ));
        }
    }

    fn gateway(&self, queues: Queues) -> anyhow::Result<Gateway> {
        let name = match queues {
            Queues::Lanes => "lanes",
            Queues::Shared => "shared",
        };
        Gateway::start(&self.folder.path().join(name), self.receiver.address, &self.secrets, queues)
    }

    /// One phase, until everything that was accepted in it has been delivered.
    async fn play(&mut self, gateway: &mut Gateway, phase: Phase) -> anyhow::Result<()> {
        self.announce(phase);
        let began = app::now().mono;
        self.ledger.begin(self.played.len());
        self.played.push((phase, began));
        let traffic = Traffic {
            gateway: gateway.address,
            signer: Arc::clone(&self.signer),
            ledger: Arc::clone(&self.ledger),
            seed: self.arguments.seed,
            began,
            end: Arc::new(AtomicU64::new(u64::MAX)),
        };
        let mut quiet = traffic.sell();
        if phase == Phase::Quiet {
            self.watch(gateway, sleep(Duration::from_secs(self.arguments.seconds))).await?;
        } else {
            self.watch(gateway, sleep(AROUND_THE_FLOOD)).await?;
            let mut flood = traffic.flood(self.arguments.flood);
            self.watch(gateway, all(&mut flood)).await?;
            let ledger = Arc::clone(&self.ledger);
            self.watch(gateway, settled(&ledger, |standing| standing.flood_owed)).await?;
            self.watch(gateway, sleep(AROUND_THE_FLOOD)).await?;
        }
        traffic.end();
        self.watch(gateway, all(&mut quiet)).await?;
        let ledger = Arc::clone(&self.ledger);
        self.watch(gateway, settled(&ledger, |standing| standing.quiet_owed)).await?;
        self.screen.still();
        self.report();
        Ok(())
    }

    /// Waits for `what`; meanwhile moves the line, and fails as soon as it cannot go on.
    async fn watch(
        &mut self,
        gateway: &mut Gateway,
        what: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        tokio::pin!(what);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                done = &mut what => {
                    // That it has ended is a better reason than the broken connection that came of it.
                    gateway.check()?;
                    return done;
                }
                _ = tick.tick() => {
                    gateway.check()?;
                    ensure!(!self.receiver.has_ended(), "the receiver ended in the middle of it");
                    self.screen.moving(&self.line());
                }
            }
        }
    }

    fn announce(&self, phase: Phase) {
        let step = self.played.len() + 1;
        let text = match phase {
            Phase::Quiet => format!("Nine quiet stores alone, for {} s", self.arguments.seconds),
            Phase::Flood => {
                format!("The same nine, while {FLOODING} posts {} orders at once", thousands(self.arguments.flood))
            }
            Phase::Shared => "The same traffic through one shared queue, first in, first out".to_owned(),
        };
        self.screen.say("");
        self.screen.tell_loudly(&format!("{step}. {text}"), Loud::Heading);
    }

    /// The moving line.
    fn line(&self) -> String {
        let Some((phase, began)) = self.played.last() else { return String::new() };
        let elapsed = app::now().mono.since(*began);
        let standing = self.ledger.standing();
        let latest = if standing.quiet_arrived == 0 {
            String::new()
        } else {
            format!("  quiet now: {}", span(Duration::from_micros(standing.quiet_latest_us)))
        };
        if *phase == Phase::Quiet {
            let whole = Duration::from_secs(self.arguments.seconds);
            let share = elapsed.as_secs_f64() / whole.as_secs_f64();
            format!("   {} {} events{latest}", bar(share), thousands(standing.quiet_arrived))
        } else {
            let delivered = standing.flood_accepted - standing.flood_owed;
            let share = delivered as f64 / self.arguments.flood as f64;
            format!("   {} {} waiting{latest}", bar(share), thousands(standing.flood_owed))
        }
    }

    fn phases(&self) -> (Vec<Figures>, ledger::Found) {
        let (entries, found) = self.ledger.read();
        let figures = |(index, (phase, began)): (usize, &(Phase, Mono))| {
            let own: Vec<&ledger::Entry> = entries.iter().filter(|entry| entry.phase == index).collect();
            Figures::of(*phase, *began, &own)
        };
        (self.played.iter().enumerate().map(figures).collect(), found)
    }

    /// Says how the last phase went.
    fn report(&self) {
        let (phases, _) = self.phases();
        let Some(phase) = phases.last() else { return };
        let mut lines = Vec::new();
        if let Some(flood) = phase.flood {
            lines.push(format!(
                "the flood: accepted in {}, the last of it delivered after {}",
                span(flood.accepted - flood.posted),
                span(flood.delivered - flood.posted)
            ));
        }
        lines.push(format!(
            "the quiet stores: {} events, a 2xx within {}, at the receiver within {} (99 of 100)",
            thousands(phase.quiet.count as u64),
            span(phase.quiet_answer.p99),
            span(phase.quiet.p99)
        ));
        for line in lines {
            self.screen.tell_indented(&line);
        }
    }

    /// Shows everything; the answer is whether everything is right.
    fn conclude(&self) -> anyhow::Result<bool> {
        let (phases, found) = self.phases();
        let right = figures::is_right(&phases, &found);
        let screen = self.screen;
        screen.say("");
        screen.tell(
            "Wait: from the store's post to the whole event at the receiver; the 2xx, fsync included, is in it. \
             Events: those of the phase with the flood.",
        );
        screen.say("");
        for (index, line) in table::table(&phases).into_iter().enumerate() {
            screen.say(&if index < 2 { screen.loud(&line, Loud::Heading) } else { line });
        }
        screen.say("");
        let verdict = figures::verdict(&phases, &found);
        for (index, line) in verdict.iter().enumerate() {
            match index {
                0 if right => screen.tell_loudly(line, Loud::Good),
                _ if line.starts_with(figures::FAULT) => screen.tell_loudly(line, Loud::Bad),
                _ => screen.tell(line),
            }
        }
        let files = plot::write(&self.arguments.out, &phases)?;
        screen.say("");
        screen.say(&format!("Pictures: {}", files.join(", ")));
        self.next();
        if self.arguments.json {
            let run = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "seed": self.arguments.seed,
                "slots": SLOTS,
                "work_ms": WORK.as_millis() as u64,
                "quiet_stores": QUIET.len(),
                "flood": self.arguments.flood,
                "durability": "fsync",
                "store_in_memory": is_in_memory(self.folder.path()),
            });
            print(format!("{:#}\n", table::as_json(&phases, &found, &run, &files)).as_bytes());
        }
        Ok(right)
    }

    /// What a newcomer may do next.
    fn next(&self) {
        let program = program();
        self.screen.say("");
        self.screen.tell_loudly("Next", Loud::Heading);
        if !self.arguments.compare {
            self.screen.tell_indented(&format!(
                "The same through one shared queue, for comparison: {program} demo --compare (make demo DEMO_ARGS=--compare)"
            ));
        }
        for line in [
            format!("1. Write gateway.yaml; {program} providers shopify prints a source for it."),
            format!("2. Start it: {program} run -c gateway.yaml"),
            "3. Read on: README.md, and docs/ on keys, verification, delivery, guarantees.".to_owned(),
        ] {
            self.screen.tell_indented(&line);
        }
    }
}

/// How this program was called: newcomers have it in the build's folder, and not on their path.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "fairlane".to_owned())
}

/// Whether a folder lies in memory (tmpfs), where nothing is durable.
fn is_in_memory(folder: &Path) -> bool {
    // TMPFS_MAGIC of statfs(2).
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|disk| disk.f_type == TMPFS)
}

async fn sleep(span: Duration) -> anyhow::Result<()> {
    tokio::time::sleep(span).await;
    Ok(())
}

/// Waits until all have posted what they had to; the first that could not ends it.
async fn all(senders: &mut Senders) -> anyhow::Result<()> {
    while let Some(sent) = senders.join_next().await {
        sent.context("a sender broke off")??;
    }
    Ok(())
}

/// Waits until nothing is `owed`, or until nothing has moved for so long that it never will; then the figures say so.
async fn settled(ledger: &Ledger, owed: impl Fn(&ledger::Standing) -> u64) -> anyhow::Result<()> {
    let (mut arrivals, mut moved) = (0, app::now().mono);
    loop {
        let standing = ledger.standing();
        let now = app::now().mono;
        if standing.arrivals != arrivals {
            (arrivals, moved) = (standing.arrivals, now);
        }
        if owed(&standing) == 0 || now.since(moved) > PATIENCE {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How much of the whole is done.
fn bar(share: f64) -> String {
    const CELLS: usize = 16;
    let done = (share.clamp(0.0, 1.0) * CELLS as f64).round() as usize;
    format!("{}{}", "█".repeat(done), "░".repeat(CELLS - done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;

    #[test]
    fn a_bar_shows_the_share() {
        assert_eq!(bar(0.5), "████████░░░░░░░░");
        assert_eq!(bar(7.0), "█".repeat(16));
        assert_eq!(bar(f64::NAN), "░".repeat(16));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_owed_is_waited_for() {
        let ledger = Ledger::default();
        let place = ledger.posted(QUIET.len(), 0, Mono(1));
        settled(&ledger, |standing| standing.flood_owed).await.unwrap();
        ledger.accepted(place, EventId([0; 16]), Mono(2));
        let mut waiting = std::pin::pin!(settled(&ledger, |standing| standing.flood_owed));
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        ledger.arrived(Some(place), None, true, Mono(3));
        waiting.await.unwrap();
    }
}
