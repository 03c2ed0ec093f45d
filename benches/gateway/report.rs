//! What was measured, as tables that can be quoted: machine and date, the numbers, and how they stand to the budgets.

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

/// CPU of an event end to end with 100,000 groups over that with one.
const GROUPS_RATIO_LIMIT: f64 = 1.3;

/// What an answer at half load may take beyond two fdatasyncs (the one that was under way, and its own).
const ANSWER_BEYOND_DISK: Duration = Duration::from_millis(2);

/// Memory of a gateway that has nothing to do.
const IDLE_LIMIT: f64 = 40e6;

/// Less than this share of the full rate is not half of it: the machine had no time for the sender.
const HALF_AT_LEAST: f64 = 0.45;

/// A load average above it, before a run, belongs to somebody who will go on while it is measured.
const IDLE_LOAD: f64 = 0.5;

/// Budgets that other commands measure.
const ELSEWHERE: [(&str, &str); 4] = [
    ("engine CPU, and memory of groups", "make bench-engine"),
    ("memory and restart with 10 M queued", "make bench BENCH=backlog"),
    ("nothing lost: 100 x kill -9", "make crash"),
    ("nothing lost: 200 x simulated power cuts", "cargo test --test store"),
];

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

/// Everything that the budgets are about, measured in one run.
pub(crate) struct Results {
    disk: Latencies,
    rounds: BTreeMap<(Load, Kind), Vec<Measured>>,
    waits: Vec<(Scene, Latencies)>,
    /// Bytes of a gateway that has nothing to do.
    idle: Vec<u64>,
    /// End to end with one group and with very many.
    groups: Option<(Measured, Measured)>,
}

impl Results {
    pub(crate) fn new(disk: Latencies) -> Self {
        Self { disk, rounds: BTreeMap::new(), waits: Vec::new(), idle: Vec::new(), groups: None }
    }

    pub(crate) fn add(&mut self, kind: Kind, load: Load, measured: Measured) {
        self.rounds.entry((load, kind)).or_default().push(measured);
    }

    /// What quiet stores waited.
    pub(crate) fn add_waits(&mut self, scene: Scene, waits: Latencies) {
        self.waits.push((scene, waits));
    }

    /// Bytes of memory before any load.
    pub(crate) fn add_idle(&mut self, bytes: u64) {
        self.idle.push(bytes);
    }

    /// End to end with one group, and with 100,000.
    pub(crate) fn set_groups(&mut self, one: Measured, many: Measured) {
        self.groups = Some((one, many));
    }

    /// The median over the rounds of one number.
    fn median<T: PartialOrd + Copy>(&self, load: Load, kind: Kind, of: impl Fn(&Measured) -> T) -> Option<T> {
        median(self.rounds.get(&(load, kind))?.iter().map(of))
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (p50, p99) = (self.disk.quantile(0.5), self.disk.quantile(0.99));
        let (p50, p99, count) = (short(p50), short(p99), self.disk.count());
        writeln!(out, "disk: append of 1 KB with fdatasync: p50 {p50}, p99 {p99} (of {count})")?;
        let rounds = self.rounds.values().map(Vec::len).max().unwrap_or(0);
        writeln!(out, "load: {} connections, medians of {rounds} rounds\n", crate::CONNECTIONS)?;
        let rows = self.rounds.iter().map(|((load, kind), rounds)| Cells::medians(load.name(), kind.name(), rounds));
        table(out, &rows.collect::<Vec<_>>())?;
        self.print_budgets(out)?;
        self.print_doubts(out)
    }

    fn print_budgets(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut rows: Vec<Budget> = Vec::new();
        rows.extend(self.ratio("CPU per accepted event, against nginx return 200", Load::Full, CPU_RATIO_LIMIT));
        rows.extend(self.ratio("CPU per event end to end, against nginx proxy_pass", Load::Whole, ROAD_RATIO_LIMIT));
        rows.extend(self.median(Load::Half, Kind::Fairlane, |round| round.p99).map(|p99| {
            let limit = self.disk.quantile(0.99) * 2 + ANSWER_BEYOND_DISK;
            Budget::of_time("time to 2xx, p99 at half load (2 x fdatasync p99 + 2 ms)", p99, limit)
        }));
        rows.extend(
            self.waits.iter().filter(|(scene, _)| scene.floods > 0).map(|(scene, waits)| self.wait(*scene, waits)),
        );
        rows.extend(self.groups.as_ref().map(|(one, many)| {
            let ratio = many.cpu_each().as_secs_f64() / one.cpu_each().as_secs_f64().max(1e-9);
            Budget::of_ratio("CPU per event end to end, 100,000 groups against one", ratio, GROUPS_RATIO_LIMIT)
        }));
        rows.extend(median(self.idle.iter().copied()).map(|bytes| {
            Budget::new("memory of an idle process", (bytes as f64, IDLE_LIMIT), |bytes| megabytes(bytes as u64))
        }));
        let width = rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
        writeln!(out, "\n{:width$} {:>12} {:>12}", "budget", "measured", "at most")?;
        for row in &rows {
            writeln!(out, "{:width$} {:>12} {:>12}  {}", row.what, row.measured, row.limit, row.verdict)?;
        }
        for (what, command) in ELSEWHERE {
            writeln!(out, "{what:width$} {command}")?;
        }
        Ok(())
    }

    fn ratio(&self, what: &str, load: Load, limit: f64) -> Option<Budget> {
        let of = |kind| self.median(load, kind, Measured::cpu_each).filter(|each| !each.is_zero());
        let ratio = of(Kind::Fairlane)?.as_secs_f64() / of(Kind::Nginx)?.as_secs_f64();
        Some(Budget::of_ratio(what, ratio, limit))
    }

    /// What quiet stores wait, against what they wait without floods.
    fn wait(&self, scene: Scene, waits: &Latencies) -> Budget {
        let alone = self.waits.iter().find(|(other, _)| other.floods == 0 && other.burst == scene.burst);
        let alone = alone.map_or(Duration::ZERO, |(_, waits)| waits.quantile(0.99));
        let limit = alone + quiet::ATTEMPT * scene.attempts_allowed();
        let Scene { floods, burst } = scene;
        let what = format!("wait of quiet stores, p99 of {}, {burst} at a time, {floods} floods", waits.count());
        Budget::of_time(&what, waits.quantile(0.99), limit)
    }

    /// What makes the numbers above worth less than they look.
    fn print_doubts(&self, out: &mut impl Write) -> std::io::Result<()> {
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

/// How one number stands to what it may be.
struct Budget {
    what: String,
    measured: String,
    limit: String,
    verdict: String,
}

impl Budget {
    fn new(what: &str, (measured, limit): (f64, f64), show: impl Fn(f64) -> String) -> Self {
        let (measured, limit, verdict) = (show(measured), show(limit), verdict(measured, limit));
        Self { what: what.to_owned(), measured, limit, verdict }
    }

    fn of_ratio(what: &str, ratio: f64, limit: f64) -> Self {
        Self::new(what, (ratio, limit), |ratio| format!("{ratio:.2} x"))
    }

    fn of_time(what: &str, measured: Duration, limit: Duration) -> Self {
        let show = |seconds| short(Duration::from_secs_f64(seconds));
        Self::new(what, (measured.as_secs_f64(), limit.as_secs_f64()), show)
    }
}

fn verdict(measured: f64, limit: f64) -> String {
    if measured <= limit { "held".to_owned() } else { format!("MISSED by {:.0} %", (measured / limit - 1.0) * 100.0) }
}

/// A number beside what it may be, both as they are shown, in one line.
pub(crate) fn against(measured: f64, limit: f64, show: impl Fn(f64) -> String) -> String {
    format!("{} (at most {}: {})", show(measured), show(limit), verdict(measured, limit))
}

/// A row of [`table`]: what was done, by whom, and what came of it.
pub(crate) struct Cells([String; 7]);

impl Cells {
    /// One measurement.
    pub(crate) fn of(what: &str, who: &str, measured: &Measured) -> Self {
        Self::medians(what, who, std::slice::from_ref(measured))
    }

    fn medians(what: &str, who: &str, rounds: &[Measured]) -> Self {
        let time = |of: &dyn Fn(&Measured) -> Duration| median(rounds.iter().map(of)).map(short).unwrap_or_default();
        let rate = median(rounds.iter().map(Measured::per_second)).unwrap_or_default();
        let failed: u64 = rounds.iter().map(|round| round.failed).sum();
        Self([
            what.to_owned(),
            who.to_owned(),
            format!("{rate:.0}"),
            time(&Measured::cpu_each),
            time(&|round| round.p50),
            time(&|round| round.p99),
            failed.to_string(),
        ])
    }
}

/// Prints measurements below each other.
pub(crate) fn table(out: &mut impl Write, rows: &[Cells]) -> std::io::Result<()> {
    let head = ["", "", "requests/s", "CPU/request", "p50", "p99", "not 2xx"].map(str::to_owned);
    let width = rows.iter().map(|Cells(cells)| cells.first().map_or(0, String::len)).max().unwrap_or(0);
    for cells in std::iter::once(&head).chain(rows.iter().map(|Cells(cells)| cells)) {
        let [what, who, numbers @ ..] = cells;
        let numbers: String = numbers.iter().map(|number| format!("{number:>12}")).collect();
        writeln!(out, "{what:width$} {who:10}{numbers}")?;
    }
    Ok(())
}

fn median<T: PartialOrd + Copy>(numbers: impl Iterator<Item = T>) -> Option<T> {
    let mut numbers: Vec<T> = numbers.collect();
    numbers.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    numbers.get(numbers.len() / 2).copied()
}

/// In microseconds up to a millisecond, in milliseconds beyond, with three digits or four.
pub(crate) fn short(span: Duration) -> String {
    let micros = span.as_secs_f64() * 1e6;
    match micros {
        ..100.0 => format!("{micros:.1} µs"),
        ..1000.0 => format!("{micros:.0} µs"),
        _ => format!("{:.2} ms", micros / 1e3),
    }
}

/// Bytes in millions.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The machine's load average over the last minute; 0 where it cannot be read.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Says where and when this is measured: numbers mean nothing without the machine and the day.
pub(crate) fn print_machine(out: &mut impl Write) -> std::io::Result<()> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let day = i64::try_from(SystemClock.now().wall.0).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    let day = day.map_or_else(String::new, |at| at.strftime("%Y-%m-%d").to_string());
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), load_average());
    writeln!(out, "{day}, {cores} cores ({model}), Linux {}", kernel.trim())?;
    if load > IDLE_LOAD {
        writeln!(out, "doubtful: the machine is busy with other things (load average {load})")?;
    }
    Ok(())
}
