//! `make bench-engine`: what the engine alone costs an event, by the number of groups that always have events; and what groups take in
//! memory. It needs no network, no disk and no other program.
//!
//! *Cost.* An event is everything that the engine does for one: appended, leased, its beginning settled, finished, its end settled. It goes
//! through in batches of 64 as in the driver, with names that were made anew as a listener makes them; neither those nor the requests that
//! come out are made or dropped on the engine's time. Every group keeps one or two events (a single group 256, and all slots), and a
//! group's next event comes an eighth of a round after its last, so that groups neither come nor go and each event is the same work,
//! whatever the number of groups. Calls take random times, so turns soon lose the order in which records lie in memory.
//!
//! *Floor.* What one read of a random place in memory takes on this machine, one after the other and many at once: an event of a group that
//! was not touched for 100,000 others cannot do without some of the former, and reading ahead turns the rest into the latter.
//!
//! *Memory.* What this process holds more once groups were there: a million that are idle, a million that still owe worker time, a million
//! with an event each.

#![expect(clippy::print_stdout, reason = "it prints a table")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fairlane::engine::{Dispatch, Ending, Engine, Policy, Queued, Request, Settings, Ticket};
use fairlane::event::{Group, Lane, Mono, Now, Seq, Wall};

/// The one of the binary: where records lie decides what they cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Appends, and attempts that end, at a time.
const BATCH: usize = 64;

/// How often each number of groups is measured, over how many events.
const ROUNDS: usize = 5;
const EVENTS: usize = 50_000;

const SIZES: [usize; 4] = [1, 1_000, 100_000, 1_000_000];

/// The group that always has events, where the others come and go.
const BUSY: usize = 9_999_999;

/// What an event's time is spent on.
const PARTS: [&str; 4] = ["append", "poll", "finish", "settle"];

/// A deterministic dice (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }
}

/// An engine whose groups always have events.
struct Pace {
    engine: Engine,
    groups: usize,
    now: Mono,
    seq: u64,
    dice: Dice,
    flying: Vec<Dispatch>,
    /// Groups whose next event is to come.
    owed: VecDeque<usize>,
    /// Of the turn, by [`PARTS`].
    spent: [Duration; PARTS.len()],
}

fn lane_of(group: usize) -> Lane {
    Lane { group: Group::of(&["shop", &format!("{group:07}.example")]), inner: None }
}

fn number(group: &Group) -> anyhow::Result<usize> {
    let digits: String = group.as_str().chars().filter(char::is_ascii_digit).collect();
    digits.parse().context("a name that was not made by lane_of")
}

impl Pace {
    fn new(groups: usize) -> Self {
        Self::holding(groups, if groups == 1 { 256 } else { 2 })
    }

    /// With `each` events of every group.
    fn holding(groups: usize, each: usize) -> Self {
        let busy = lane_of(BUSY).group;
        let policy = move |group: &Group| {
            let cap = if groups == 1 || *group == busy { BATCH as u32 } else { 8 };
            Policy { concurrency: Some(cap), weight: if *group == busy { 1e6 } else { 1.0 }, ..Policy::default() }
        };
        let mut pace = Self {
            engine: Engine::new(Settings::default(), Box::new(policy), 1),
            groups,
            now: Mono(3_600_000_000),
            seq: 0,
            dice: Dice(7),
            flying: Vec::new(),
            owed: VecDeque::new(),
            spent: Default::default(),
        };
        for first in (0..groups).step_by(BATCH) {
            for _ in 0..each {
                pace.append((first..groups.min(first + BATCH)).collect());
            }
        }
        pace
    }

    fn at(&self) -> Now {
        Now { mono: self.now, wall: Wall(1_767_225_600_000_000 + self.now.0) }
    }

    /// On the engine's time, as that part.
    fn timed<T>(&mut self, part: usize, run: impl FnOnce(&mut Engine, Now) -> T) -> T {
        let now = self.at();
        let began = Instant::now();
        let found = run(&mut self.engine, now);
        let took = began.elapsed();
        if let Some(spent) = self.spent.get_mut(part) {
            *spent += took;
        }
        found
    }

    fn append(&mut self, groups: Vec<usize>) {
        let received = self.at().wall;
        let events: Vec<Queued> = groups
            .into_iter()
            .map(|group| {
                self.seq += 1;
                Queued {
                    seq: Seq(self.seq),
                    lane: lane_of(group),
                    owner: None,
                    order: None,
                    received,
                    replays: 0,
                    attempts: 0,
                    refused: 0,
                    first_attempt: None,
                    due: None,
                }
            })
            .collect();
        self.timed(0, |engine, now| engine.on_appended(events, now));
    }

    /// Everything the engine asks for.
    fn poll(&mut self) -> anyhow::Result<()> {
        loop {
            let mut requests = Vec::with_capacity(2 * BATCH);
            self.timed(1, |engine, now| {
                while let Some(request) = engine.poll_request(now) {
                    requests.push(request);
                }
            });
            if requests.is_empty() {
                return Ok(());
            }
            for request in requests {
                match request {
                    Request::Dispatch(dispatch) => self.flying.push(dispatch),
                    Request::Settle { batch, .. } => {
                        ensure!(self.timed(3, |engine, now| engine.on_settled(batch, now)), "a batch nobody knows");
                    }
                    other => anyhow::bail!("{other:?} is not the same work"),
                }
            }
        }
    }

    /// All attempts under way end, each after a time of up to `longest`.
    fn end(&mut self, longest: Duration) -> anyhow::Result<Vec<usize>> {
        let ended = std::mem::take(&mut self.flying);
        self.now = self.now.plus(Duration::from_millis(50));
        if self.engine.poll_timeout().is_some_and(|at| at <= self.now) {
            self.timed(1, |engine, now| engine.on_timeout(now));
        }
        let mut ends: Vec<(Ticket, Duration)> = Vec::with_capacity(ended.len());
        for dispatch in &ended {
            let took = self.dice.between(longest.as_micros() as u64 / 2, longest.as_micros() as u64);
            ends.push((dispatch.ticket, Duration::from_micros(took)));
        }
        self.timed(2, |engine, now| {
            for (ticket, took) in ends {
                engine.on_finished(ticket, Ending::Success, took, now);
            }
        });
        ended.iter().map(|dispatch| number(&dispatch.lane.group)).collect()
    }

    /// All attempts under way end, and as many events come.
    fn turn(&mut self) -> anyhow::Result<usize> {
        self.poll()?;
        let ended = self.end(Duration::from_millis(70))?;
        self.owed.extend(&ended);
        let come = self.owed.len().saturating_sub(self.groups / 8);
        let groups = self.owed.drain(..come).collect();
        self.append(groups);
        Ok(ended.len())
    }

    /// Nanoseconds an event of each turn, by [`PARTS`], over so many events.
    fn measure(&mut self, events: usize) -> anyhow::Result<Vec<[f64; PARTS.len()]>> {
        let mut turns = Vec::new();
        let mut done = 0;
        while done < events {
            self.spent = Default::default();
            let ended = self.turn()?;
            turns.push(self.spent.map(|spent| spent.as_secs_f64() * 1e9 / ended.max(1) as f64));
            done += ended;
        }
        Ok(turns)
    }
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn cost(sizes: &[usize]) -> anyhow::Result<()> {
    println!("active groups     an event    times  {}", PARTS.map(|part| format!("{part:>8}")).join(""));
    let mut paces: Vec<Pace> = sizes.iter().map(|groups| Pace::new(*groups)).collect();
    for pace in &mut paces {
        // Every group had a turn: their order is their tags' and not that of memory.
        pace.measure(pace.groups + 10_000)?;
    }
    // In rounds, so that a busy moment of the machine does not meet one number alone; of all turns the median, for others use it too.
    let mut turns = vec![Vec::new(); paces.len()];
    for _ in 0..ROUNDS {
        for (pace, turns) in paces.iter_mut().zip(&mut turns) {
            turns.extend(pace.measure(EVENTS)?);
        }
    }
    let mut first = None;
    for (pace, turns) in paces.iter().zip(&turns) {
        ensure!(pace.engine.violations() == 0, "{:?}", pace.engine.last_violation());
        let whole = median(turns.iter().map(|parts| parts.iter().sum()));
        let times = whole / *first.get_or_insert(whole);
        let part = |at: usize| median(turns.iter().filter_map(|parts| parts.get(at).copied()));
        let parts: String = (0..PARTS.len()).map(|at| format!("{:>8.0}", part(at))).collect();
        println!("{:>13}  {whole:>8.0} ns  {times:>5.2} x {parts}", pace.engine.active_groups());
    }
    Ok(())
}

/// Nanoseconds of this thread's time.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What a read of a random line of 1 GB takes: each only after the one before, and many at once.
fn floor() -> anyhow::Result<()> {
    const LINE: usize = 8;
    const LINES: usize = 1 << 24;
    const READS: usize = 2_000_000;
    let memory: Vec<u64> = (0..LINE * LINES).map(|at| at as u64).collect();
    let read = |mixed: u64| memory.get(mixed as usize % LINES * LINE).copied().unwrap_or_default();
    let timed = |reads: &dyn Fn() -> u64| {
        let began = thread_ns();
        black_box(reads());
        (thread_ns() - began) as f64 / READS as f64
    };
    let alone = timed(&|| {
        let mut dice = Dice(3);
        (0..READS).fold(0, |last: u64, _| {
            dice.0 = dice.0.wrapping_add(last);
            read(dice.next())
        })
    });
    let many = timed(&|| {
        let mut dice = Dice(5);
        (0..READS).map(|_| read(dice.next())).fold(0, u64::wrapping_add)
    });
    println!("a read of a random place in 1 GB: {alone:.0} ns one after the other, {many:.0} ns many at once");
    Ok(())
}

/// Memory of this process in use, in MB, as Linux says.
fn resident() -> anyhow::Result<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").context("needs Linux")?;
    let pages: f64 = statm.split_whitespace().nth(1).context("no second number")?.parse()?;
    Ok(pages * 4_096.0 / 1e6)
}

/// A million groups that come one batch after the other, have one event whose attempt takes up to `longest`, and go.
fn gone(longest: Duration) -> anyhow::Result<Pace> {
    let mut pace = Pace::holding(0, 0);
    // Somebody of great weight always competes: without that nobody owes anything.
    let mut busy = vec![BUSY; 2 * BATCH];
    for first in (0..1_000_000).step_by(BATCH) {
        pace.append(busy);
        pace.append((first..first + BATCH).collect());
        pace.poll()?;
        busy = pace.end(longest)?.into_iter().filter(|group| *group == BUSY).collect();
    }
    pace.poll()?;
    Ok(pace)
}

fn memory(what: &str) -> anyhow::Result<()> {
    // The process itself, and what it needs for any number of groups.
    drop(Pace::new(1_000));
    let before = resident()?;
    let kept = match what {
        "active" => Pace::holding(1_000_000, 1),
        "idle" => gone(Duration::from_millis(70))?,
        "owing" => gone(Duration::from_secs(3))?,
        other => anyhow::bail!("{other}: idle, owing or active"),
    };
    println!(
        "{what}: {:.1} MB more; {} groups active, {} owe",
        resident()? - before,
        kept.engine.active_groups(),
        kept.engine.dormant_groups()
    );
    Ok(())
}

/// Each in a process of its own: what one run gave back is not the next one's.
fn memories() -> anyhow::Result<()> {
    for what in ["idle", "owing", "active"] {
        let this = std::env::current_exe()?;
        ensure!(std::process::Command::new(this).args(["memory", what]).status()?.success(), "{what} failed");
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    match asked.as_slice() {
        [] => floor().and_then(|()| cost(&SIZES)).and_then(|()| memories()),
        ["floor"] => floor(),
        ["cost"] => cost(&SIZES),
        ["cost", sizes @ ..] => cost(&sizes.iter().map(|size| size.parse()).collect::<Result<Vec<_>, _>>()?),
        ["memory"] => memories(),
        ["memory", what] => memory(what),
        other => anyhow::bail!("{other:?}: nothing, floor, cost [GROUPS …], or memory [idle|owing|active]"),
    }
}
