//! What was measured, as a table that can be quoted: machine and date, the numbers, and how they stand to the budgets.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};

use crate::load::{Latencies, Measured};
use crate::quiet::{self, Scene};
use crate::server::Kind;

/// CPU of an accepted event over CPU of a request that nginx answers with 200 and forgets.
const CPU_RATIO_LIMIT: f64 = 2.2;

/// CPU of an event that was accepted, stored, delivered and settled over CPU of a request that nginx hands on and forgets.
const ROAD_RATIO_LIMIT: f64 = 2.0;

/// What an answer at half load may take beyond two fdatasyncs (the one that was under way, and its own).
const ANSWER_BEYOND_DISK: Duration = Duration::from_millis(2);

/// Less than this share of the full rate is not half of it: the machine had no time for the sender.
const HALF_AT_LEAST: f64 = 0.45;

/// A load average above it, before a run, belongs to somebody who will go on while it is measured.
const IDLE_LOAD: f64 = 0.5;

/// How hard a server was driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    /// As fast as it answered.
    Full,
    /// At half of that.
    Half,
    /// As fast as it answered, with a receiver behind it, until the last event is settled.
    Whole,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "saturated",
            Self::Half => "half of it",
            Self::Whole => "end to end",
        }
    }
}

/// Everything that was measured in one run.
pub(crate) struct Results {
    /// Of the last minute before the run.
    load_before: f64,
    disk: Latencies,
    rounds: BTreeMap<(Load, Kind), Vec<Measured>>,
    waits: Vec<(Scene, Latencies)>,
}

impl Results {
    /// `load_before` as [`load_average`] gave it before anything was measured.
    pub(crate) fn new(load_before: f64, disk: Latencies) -> Self {
        Self { load_before, disk, rounds: BTreeMap::new(), waits: Vec::new() }
    }

    pub(crate) fn add(&mut self, kind: Kind, load: Load, measured: Measured) {
        self.rounds.entry((load, kind)).or_default().push(measured);
    }

    /// What quiet stores waited.
    pub(crate) fn add_waits(&mut self, scene: Scene, waits: Latencies) {
        self.waits.push((scene, waits));
    }

    /// The median over the rounds of one number.
    fn median<T: PartialOrd + Copy>(&self, load: Load, kind: Kind, of: impl Fn(&Measured) -> T) -> Option<T> {
        let mut all: Vec<T> = self.rounds.get(&(load, kind))?.iter().map(of).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        all.get(all.len() / 2).copied()
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (p50, p99) = (self.disk.quantile(0.5), self.disk.quantile(0.99));
        writeln!(out, "\n{}", machine())?;
        writeln!(
            out,
            "disk: append of 1 KB with fdatasync: p50 {}, p99 {} (of {})",
            short(p50),
            short(p99),
            self.disk.count()
        )?;
        writeln!(
            out,
            "load: signed posts of 1 KB, {} connections, medians of {} rounds\n",
            crate::CONNECTIONS,
            self.rounds.values().map(Vec::len).max().unwrap_or(0)
        )?;
        let head = ["requests/s", "CPU/request", "p50", "p99", "not 2xx"];
        writeln!(out, "{:24} {}", "", head.map(|name| format!("{name:>12}")).join(""))?;
        for ((load, kind), rounds) in &self.rounds {
            self.print_row(out, *load, *kind, rounds.iter().map(|round| round.failed).sum())?;
        }
        writeln!(out)?;
        self.print_ratios(out, p99)?;
        self.print_waits(out)?;
        self.print_doubts(out)
    }

    fn print_row(&self, out: &mut impl Write, load: Load, kind: Kind, failed: u64) -> std::io::Result<()> {
        let cells = [
            self.median(load, kind, Measured::per_second).map(|rate| format!("{rate:.0}")),
            self.median(load, kind, Measured::cpu_each).map(short),
            self.median(load, kind, |round| round.p50).map(short),
            self.median(load, kind, |round| round.p99).map(short),
            Some(failed.to_string()),
        ];
        let cells = cells.map(|cell| format!("{:>12}", cell.unwrap_or_default()));
        writeln!(out, "{:12}{:12} {}", load.name(), kind.name(), cells.join(""))
    }

    fn print_ratios(&self, out: &mut impl Write, disk_p99: Duration) -> std::io::Result<()> {
        for load in [Load::Full, Load::Half, Load::Whole] {
            let name = load.name();
            let of = |kind| self.median(load, kind, Measured::cpu_each);
            let (Some(ours), Some(measure)) = (of(Kind::Fairlane), of(Kind::Nginx)) else { continue };
            if measure.is_zero() {
                writeln!(out, "CPU, {name}: nginx used too little to compare with; give BENCH_SECONDS more")?;
                continue;
            }
            let ratio = ours.as_secs_f64() / measure.as_secs_f64();
            // The budget is stated for saturation; at half load batches are smaller and both wake up more often.
            let budget = |limit: f64| format!("  budget {limit:.1} x: {}", verdict(ratio <= limit));
            let (what, against) = match load {
                Load::Full => ("CPU per accepted event", budget(CPU_RATIO_LIMIT)),
                Load::Half => ("CPU per accepted event", String::new()),
                Load::Whole => ("CPU per event", budget(ROAD_RATIO_LIMIT)),
            };
            writeln!(out, "{what}, {name}: {ratio:.2} x nginx{against}")?;
        }
        if let Some(p99) = self.median(Load::Half, Kind::Fairlane, |round| round.p99) {
            let limit = disk_p99 * 2 + ANSWER_BEYOND_DISK;
            writeln!(
                out,
                "time to 2xx, p99 at half load: {}  budget {} (2 x fdatasync p99 + 2 ms): {}",
                short(p99),
                short(limit),
                verdict(p99 <= limit)
            )?;
        }
        Ok(())
    }

    /// What quiet stores wait, against what they wait without floods.
    fn print_waits(&self, out: &mut impl Write) -> std::io::Result<()> {
        if self.waits.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nquiet stores' waits, attempts of {}, 64 slots:", short(quiet::ATTEMPT))?;
        for (scene, waits) in &self.waits {
            let alone = self.waits.iter().find(|(other, _)| other.floods == 0 && other.burst == scene.burst);
            let alone = alone.map_or(Duration::ZERO, |(_, waits)| waits.quantile(0.99));
            let limit = alone + quiet::ATTEMPT * scene.attempts_allowed();
            let (p50, p99) = (waits.quantile(0.5), waits.quantile(0.99));
            let against = match scene.floods {
                0 => String::new(),
                _ => format!("  budget p99 {}: {}", millis(limit), verdict(p99 <= limit)),
            };
            let Scene { floods, burst } = scene;
            let (p50, p99, count) = (millis(p50), millis(p99), waits.count());
            writeln!(out, "{floods:>4} floods, {burst} at a time: p50 {p50}, p99 {p99} (of {count}){against}")?;
        }
        Ok(())
    }

    /// What makes the numbers above worth less than they look.
    fn print_doubts(&self, out: &mut impl Write) -> std::io::Result<()> {
        if self.load_before > IDLE_LOAD {
            let load = self.load_before;
            writeln!(out, "doubtful: the machine was busy with other things (load average {load} before the run)")?;
        }
        for kind in Kind::ALL {
            let rate = |load| self.median(load, kind, Measured::per_second);
            let (Some(full), Some(half)) = (rate(Load::Full), rate(Load::Half)) else { continue };
            if half < full * HALF_AT_LEAST {
                let name = kind.name();
                writeln!(
                    out,
                    "doubtful: half load of {name} came to {half:.0} of {full:.0}/s; the sender fell behind"
                )?;
            }
        }
        let failed: u64 = self.rounds.values().flatten().map(|round| round.failed).sum();
        if failed > 0 {
            writeln!(out, "doubtful: {failed} requests were not answered with 2xx")?;
        }
        Ok(())
    }
}

/// The gateway says waits in whole milliseconds.
fn millis(span: Duration) -> String {
    format!("{} ms", span.as_millis())
}

fn verdict(kept: bool) -> &'static str {
    if kept { "kept" } else { "OVER" }
}

/// In microseconds up to a millisecond, in milliseconds beyond, with three digits or four.
fn short(span: Duration) -> String {
    let micros = span.as_secs_f64() * 1e6;
    match micros {
        ..100.0 => format!("{micros:.1} µs"),
        ..1000.0 => format!("{micros:.0} µs"),
        _ => format!("{:.2} ms", micros / 1e3),
    }
}

/// The machine's load average over the last minute; 0 where it cannot be read.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Numbers mean nothing without the machine and the day.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let day = i64::try_from(SystemClock.now().wall.0).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    let day = day.map_or_else(String::new, |at| at.strftime("%Y-%m-%d").to_string());
    format!("{day}, {cores} cores ({model}), Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
