//! Which groups a source has had before, where anybody who holds one valid request can make up new ones (R10).
//!
//! Where the signature does not cover the place of the key, one sender can spread its events over as many groups as it likes, each with a
//! share like that of a tenant. The groups of a source that are known are remembered in a Bloom filter, and when more unknown ones come
//! than `groups.new_groups` allows, these share the source's overflow lanes: they are delivered, and together they get what 64
//! groups get. Nobody is judged in the first day of a source, in which every group is new.
//!
//! Memory is bounded and old groups are forgotten: there are two filters a source, and when the younger one is a week old or full, it takes
//! the place of the older. A group is known while either has it. What is known is written beside the store every ten minutes
//! and at the end; a crash forgets what came since then, no more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastbloom::BloomFilter;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::admission::part;
use crate::clock::Seldom;
use crate::engine::Rate;
use crate::event::{Event, Group, KeySource, Mono, Now, Wall};
use crate::metrics::Metrics;
use crate::store::notebook::Notebook;

/// A source is judged after so long: a day has every tenant that sends daily.
const LEARNS: Duration = Duration::from_hours(24);

/// A filter takes in groups for so long; a tenant that was silent for twice as long is new again.
const GENERATION: Duration = Duration::from_hours(7 * 24);

/// Of a hundred unknown groups one passes for a known one.
const FALSE_POSITIVES: f64 = 0.01;

/// Groups that the first filter of a source has room for, 120 KB; one that is full within its week is followed by one four times as large.
const GROUPS_FIRST: usize = 100_000;

/// And the largest: 1.9 MB.
const GROUPS_MAX: usize = 1_600_000;

/// All filters together; beyond it they grow no more.
const BYTES_MAX: usize = 16 << 20;

/// Sources that are watched; further ones are not judged.
const SOURCES_MAX: usize = 64;

/// How often what is known is written down.
const SAVED_EVERY: Duration = Duration::from_mins(10);

/// How the file begins. The form of the filters is that of the crate, so its version is part of it: another one begins anew.
const MAGIC: &[u8] = b"fairlane known groups 1, fastbloom 0.17\n";

/// What stands about a source's new groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewGroups {
    /// Which source.
    #[serde(with = "crate::event::written::shared")]
    pub source: Arc<str>,
    /// Groups that it never had before, in the last whole minute or in the one that runs, whichever had more. One that is in overflow
    /// counts with each of its events.
    pub per_minute: u32,
    /// Whether it is known for long enough that the figure says something.
    pub learned: bool,
}

/// The groups of one period.
struct Generation {
    began: Wall,
    groups: usize,
    room: usize,
    filter: BloomFilter,
}

impl Generation {
    fn new(room: usize, began: Wall) -> Self {
        Self { began, groups: 0, room, filter: BloomFilter::with_false_pos(FALSE_POSITIVES).expected_items(room) }
    }

    fn bytes(room: usize) -> usize {
        fastbloom::optimal_size(room, FALSE_POSITIVES) / 8
    }

    fn insert(&mut self, hash: u64) {
        self.groups += usize::from(!self.filter.insert_hash(hash));
    }

    fn is_over(&self, now: Wall) -> bool {
        self.groups >= self.room || now.since(self.began) > GENERATION
    }
}

/// How many there were in the minute that runs and in the one before.
#[derive(Default)]
struct Minutes {
    minute: u64,
    counts: [u32; 2],
}

impl Minutes {
    fn go_on(&mut self, now: Mono) {
        let minute = now.0 / 60_000_000;
        if minute != self.minute {
            let [last, _] = self.counts;
            self.counts = [0, if minute == self.minute + 1 { last } else { 0 }];
            self.minute = minute;
        }
    }

    fn add(&mut self, now: Mono) {
        self.go_on(now);
        let [current, _] = &mut self.counts;
        *current = current.saturating_add(1);
    }
}

/// One source.
struct Known {
    part: Group,
    since: Wall,
    young: Generation,
    old: Option<Generation>,
    minutes: Minutes,
    /// Groups that were let in since this time, one span of the rate at a time.
    window: (Mono, u32),
}

impl Known {
    fn new(source: &str, now: Wall) -> Self {
        let young = Generation::new(GROUPS_FIRST, now);
        Self { part: part(source), since: now, young, old: None, minutes: Minutes::default(), window: (Mono(0), 0) }
    }

    fn has(&mut self, hash: u64) -> bool {
        if self.young.filter.contains_hash(hash) {
            return true;
        }
        let old = self.old.as_ref().is_some_and(|old| old.filter.contains_hash(hash));
        if old {
            self.young.insert(hash);
        }
        old
    }

    fn learned(&self, now: Wall) -> bool {
        now.since(self.since) >= LEARNS
    }

    /// Whether another new group may come in now.
    fn lets_in(&mut self, rate: Rate, now: Mono) -> bool {
        let (began, count) = &mut self.window;
        if now.since(*began) >= rate.per || *began == Mono(0) {
            (*began, *count) = (now, 0);
        }
        let lets_in = *count < rate.events;
        *count += u32::from(lets_in);
        lets_in
    }

    fn bytes(&self) -> usize {
        let generations = [Some(&self.young), self.old.as_ref()];
        generations.into_iter().flatten().map(|generation| Generation::bytes(generation.room)).sum()
    }

    /// The younger filter becomes the older one. `grow` when there is memory for a larger one.
    fn rotate(&mut self, grow: bool, now: Wall) {
        let full = self.young.groups >= self.young.room;
        let room = if full && grow { (self.young.room * 4).min(GROUPS_MAX) } else { self.young.room };
        self.old = Some(std::mem::replace(&mut self.young, Generation::new(room, now)));
    }
}

/// All sources that take their key from a place that the signature does not cover.
pub(super) struct Newcomers {
    limit: Option<Rate>,
    sources: HashMap<Arc<str>, Known>,
    /// So that nobody can look for keys that pass for known ones.
    seed: u64,
    notebook: Notebook,
    metrics: Arc<Metrics>,
    saved: Wall,
    changed: bool,
    said: Seldom,
}

impl Newcomers {
    /// Those that `notebook` remembers; a file that cannot be read is begun anew, and that is logged.
    pub(super) fn open(limit: Option<Rate>, notebook: Notebook, metrics: Arc<Metrics>, seed: u64, now: Wall) -> Self {
        let mut newcomers = Self {
            limit,
            sources: HashMap::new(),
            seed,
            notebook,
            metrics,
            saved: now,
            changed: false,
            said: Seldom::default(),
        };
        match newcomers.notebook.read().map(|bytes| newcomers.restore(&bytes)) {
            Ok(Some(())) => {}
            Ok(None) => {
                tracing::warn!(file = %newcomers.notebook, "the known groups cannot be read; they are learned anew")
            }
            Err(error) => tracing::warn!(error, "the known groups cannot be read; they are learned anew"),
        }
        newcomers
    }

    /// Another rate, from the next event on.
    pub(super) fn set_limit(&mut self, limit: Option<Rate>) {
        self.limit = limit;
    }

    /// The part of the overflow lanes where this event belongs, when its group is unknown and one too many.
    pub(super) fn judge(&mut self, event: &Event, now: Now) -> Option<Group> {
        let KeySource::Rule { signed: false, .. } = event.key_source else { return None };
        if event.lane.group.is_reserved() {
            return None;
        }
        let hash = xxh3_64_with_seed(event.lane.group.as_str().as_bytes(), self.seed);
        let limit = self.limit;
        let known = self.known(&event.source, now)?;
        if known.has(hash) {
            return None;
        }
        known.minutes.add(now.mono);
        if known.learned(now.wall)
            && let Some(rate) = limit
            && !known.lets_in(rate, now.mono)
        {
            return Some(known.part.clone());
        }
        known.young.insert(hash);
        if known.young.is_over(now.wall) {
            self.rotate(&event.source, now.wall);
        }
        self.changed = true;
        self.metrics.new_group(&event.source);
        None
    }

    fn known(&mut self, source: &Arc<str>, now: Now) -> Option<&mut Known> {
        if !self.sources.contains_key(source) {
            if self.sources.len() >= SOURCES_MAX {
                if self.said.pass(now.mono).is_some() {
                    tracing::warn!(%source, watched = SOURCES_MAX, "too many sources with keys that are not signed: this one's new groups are not judged");
                }
                return None;
            }
            self.sources.insert(Arc::clone(source), Known::new(source, now.wall));
        }
        self.sources.get_mut(source)
    }

    fn rotate(&mut self, source: &str, now: Wall) {
        let others: usize = self.sources.values().map(Known::bytes).sum();
        let Some(known) = self.sources.get_mut(source) else { return };
        let next = Generation::bytes(known.young.room * 4);
        known.rotate(others + next <= BYTES_MAX, now);
    }

    /// What stands about every source.
    pub(super) fn all(&mut self, now: Now) -> Vec<NewGroups> {
        let each = |(source, known): (&Arc<str>, &mut Known)| {
            known.minutes.go_on(now.mono);
            let per_minute = known.minutes.counts.into_iter().max().unwrap_or(0);
            NewGroups { source: Arc::clone(source), per_minute, learned: known.learned(now.wall) }
        };
        let mut all: Vec<NewGroups> = self.sources.iter_mut().map(each).collect();
        all.sort_by(|a, b| a.source.cmp(&b.source));
        all
    }

    /// Writes down what is known, when it is time to; the writing itself is the caller's, for it takes a disk's time.
    pub(super) fn due(&mut self, now: Wall) -> Option<(Notebook, Vec<u8>)> {
        if !self.changed || now.since(self.saved) < SAVED_EVERY {
            return None;
        }
        self.saved = now;
        self.changed = false;
        Some((self.notebook.clone(), self.written()))
    }

    /// Writes it down at the end.
    pub(super) fn close(&self) {
        if self.changed
            && let Err(error) = self.notebook.write(&self.written())
        {
            tracing::warn!(error, "the groups that came in the last minutes will be new again");
        }
    }

    fn written(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let mut sources: Vec<_> = self.sources.iter().collect();
        sources.sort_by_key(|(name, _)| Arc::clone(name));
        put(&mut out, self.seed);
        put(&mut out, sources.len() as u64);
        for (name, known) in sources {
            put(&mut out, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
            put(&mut out, known.since.0);
            for generation in [Some(&known.young), known.old.as_ref()] {
                let Some(generation) = generation else {
                    put(&mut out, 0);
                    continue;
                };
                put(&mut out, generation.room as u64);
                put(&mut out, generation.began.0);
                put(&mut out, generation.groups as u64);
                generation.filter.as_slice().iter().for_each(|word| put(&mut out, *word));
            }
        }
        out
    }

    /// `None` when this is not what was written. An empty file is one that was never written.
    fn restore(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let seed = take(&mut rest)?;
        let mut sources = HashMap::new();
        for _ in 0..take(&mut rest)?.min(SOURCES_MAX as u64) {
            let length = usize::try_from(take(&mut rest)?).ok()?;
            let (name, tail) = rest.split_at_checked(length)?;
            rest = tail;
            let name = std::str::from_utf8(name).ok()?;
            let since = Wall(take(&mut rest)?);
            let young = read(&mut rest)??;
            let old = read(&mut rest)?;
            sources.insert(Arc::from(name), Known { young, old, ..Known::new(name, since) });
        }
        (self.seed, self.sources) = (seed, sources);
        Some(())
    }
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(u64::from_le_bytes(*bytes))
}

/// A filter, or `Some(None)` where none was written.
fn read(rest: &mut &[u8]) -> Option<Option<Generation>> {
    let room = usize::try_from(take(rest)?).ok()?;
    if room == 0 {
        return Some(None);
    }
    if room > GROUPS_MAX {
        return None;
    }
    let mut generation = Generation::new(room, Wall(take(rest)?));
    generation.groups = usize::try_from(take(rest)?).ok()?;
    let words: Option<Vec<u64>> = generation.filter.as_slice().iter().map(|_| take(rest)).collect();
    generation.filter = BloomFilter::from_vec(words?).hashes(generation.filter.num_hashes());
    Some(Some(generation))
}

#[cfg(test)]
#[path = "newcomers/tests.rs"]
mod tests;
