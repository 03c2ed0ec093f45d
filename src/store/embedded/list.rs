//! Lists of events, pending and ended: what the index says and what memory says, merged by seq.
//!
//! One call looks at a bounded number of entries, wherever they are, and says how far it has come.

use std::collections::BTreeMap;
use std::ops::Range;

use super::core::Core;
use super::read::{in_memory, shown};
use crate::event::{Seq, Wall};
use crate::store::bucket::Family;
use crate::store::index::{Index, Walk, Wanted};
use crate::store::row::Row;
use crate::store::state::State;
use crate::store::{Error, Page, Query, Record, Status};

/// Entries that one call looks at, so that nobody waits for a scan; see [`Page::next`].
const SCAN_MAX: usize = 10_000;

/// What one look at the index gave.
#[derive(Default)]
struct Scanned {
    rows: Vec<Row>,
    /// How far it came, where there is more behind.
    edge: Option<Edge>,
}

/// The last entry that was looked at.
#[derive(Clone, Copy)]
struct Edge {
    seq: Seq,
    received: Wall,
}

/// What is asked, in the order of the walk.
struct Walking<'a> {
    query: &'a Query,
    limit: usize,
    /// The seqs that are left.
    seqs: Range<u64>,
}

impl Walking<'_> {
    fn new(query: &Query) -> Walking<'_> {
        let seqs = match query.behind {
            None => 0..u64::MAX,
            Some(seq) if query.oldest_first => seq.0.saturating_add(1)..u64::MAX,
            Some(seq) => 0..seq.0,
        };
        Walking { query, limit: query.limit.clamp(1, 1_000), seqs }
    }

    /// Whether `one` comes before `other`.
    fn is_before(&self, one: Seq, other: Seq) -> bool {
        if self.query.oldest_first { one < other } else { one > other }
    }

    /// The seqs up to `edge`, which is one of them.
    fn up_to(&self, edge: Option<Edge>) -> Range<u64> {
        match edge {
            None => self.seqs.clone(),
            Some(edge) if self.query.oldest_first => self.seqs.start..edge.seq.0.saturating_add(1),
            Some(edge) => edge.seq.0..self.seqs.end,
        }
    }

    /// `items` in the order of the walk, which come in that of their seqs.
    fn walk<'i, T: 'i>(&self, items: impl DoubleEndedIterator<Item = T> + 'i) -> Box<dyn Iterator<Item = T> + 'i> {
        if self.query.oldest_first { Box::new(items) } else { Box::new(items.rev()) }
    }
}

/// [`crate::store::LaneStore::list`].
pub(super) fn list(core: &Core, query: &Query) -> Result<Page, Error> {
    let walking = Walking::new(query);
    let now = core.clock.now().wall;
    let retention = &core.settings.retention;
    let fits = |row: &Row| row.matches(query) && row.is_kept(retention, now);
    core.consistently(
        // Rows that memory hides are not worth reading; which they are may change until the lock, so they are only skipped here.
        |index| scan(index, &walking, &fits, &|seq| hidden(&core.state.lock(), seq)),
        |state, scanned| merge(state, &scanned, &walking, &fits),
    )
}

/// When an event was received of which memory knows better than the index.
fn hidden(state: &State, seq: Seq) -> Option<Wall> {
    state.deltas().find_map(|delta| delta.rows.get(&seq.0)).map(|entry| entry.row.received)
}

fn merge(state: &State, scanned: &Scanned, walking: &Walking<'_>, fits: &impl Fn(&Row) -> bool) -> Page {
    let mut edge = scanned.edge;
    let mut found: BTreeMap<u64, Record> = BTreeMap::new();
    let from_index = scanned.rows.iter().filter(|row| !in_memory(state, row.seq.0));
    found.extend(from_index.map(|row| (row.seq.0, row.record())));
    for delta in state.deltas() {
        let mut last = None;
        for (looked, (&seq, entry)) in walking.walk(delta.rows.range(walking.up_to(edge))).enumerate() {
            if looked == SCAN_MAX {
                edge = last;
                break;
            }
            last = Some(Edge { seq: Seq(seq), received: entry.row.received });
            if let Some(row) = shown(state, delta, Seq(seq)).filter(|row| fits(row)) {
                found.insert(seq, row.record());
            }
        }
    }
    let within = walking.up_to(edge);
    let more = found.range(within.clone()).count() > walking.limit;
    let records: Vec<Record> =
        walking.walk(found.range(within)).take(walking.limit).map(|(_, record)| record.clone()).collect();
    let last = records.last().map(|record| Edge { seq: record.seq, received: record.received });
    let end = if more { last } else { edge };
    Page { records, next: end.map(|edge| edge.seq), reached: end.map(|edge| edge.received) }
}

fn scan(
    index: &Index,
    walking: &Walking<'_>,
    fits: &dyn Fn(&Row) -> bool,
    hidden: &dyn Fn(Seq) -> Option<Wall>,
) -> Result<Scanned, Error> {
    let query = walking.query;
    let asks = |status: Status| query.status.is_empty() || query.status.contains(&status);
    let asks_pending = Status::ALL.into_iter().any(|status| status.is_pending() && asks(status));
    let families: Vec<Family> = Status::ALL.into_iter().filter(|&s| asks(s)).filter_map(Family::of).collect();
    let wanted = Wanted {
        provider: query.provider_event_id.as_deref(),
        group: query.group.as_ref(),
        pending: asks_pending,
        bucket: &|bucket| families.contains(&bucket.family),
        received: (query.since, query.until),
        seqs: walking.seqs.clone(),
        oldest_first: query.oldest_first,
    };
    let mut walks = index.walks(&wanted)?;
    let mut scanned = Scanned::default();
    let mut received = Wall(0);
    for _ in 0..SCAN_MAX {
        let Some((seq, walk)) = first(&mut walks, walking)? else {
            scanned.edge = None;
            return Ok(scanned);
        };
        if scanned.rows.len() > walking.limit {
            break;
        }
        if let Some(at) = hidden(seq) {
            walk.skip();
            received = at;
        } else if let Some(row) = walk.take()? {
            received = row.received;
            scanned.rows.extend(Some(row).filter(|row| fits(row)));
        }
        scanned.edge = Some(Edge { seq, received });
    }
    if first(&mut walks, walking)?.is_none() {
        scanned.edge = None;
    }
    Ok(scanned)
}

/// The walk whose next seq is first.
fn first<'w>(walks: &'w mut [Walk], walking: &Walking<'_>) -> Result<Option<(Seq, &'w mut Walk)>, Error> {
    let mut best: Option<(Seq, usize)> = None;
    for (number, walk) in walks.iter_mut().enumerate() {
        if let Some(seq) = walk.peek()?
            && best.is_none_or(|(first, _)| walking.is_before(seq, first))
        {
            best = Some((seq, number));
        }
    }
    Ok(best.and_then(|(seq, number)| Some((seq, walks.get_mut(number)?))))
}
