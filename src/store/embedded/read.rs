//! Reads: what memory says, and what the index says of the rest.
//!
//! A read asks the index first and memory then, under one lock. Memory wins by seq: what the index has of an event
//! that stands in a delta is not looked at. When a checkpoint came into the index in between, both are asked again
//! ([`Core::consistently`]), so an answer is one that was true at the moment of the lock.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::core::Core;
use super::marks;
use crate::event::{Event, EventId, Lane, Seq, Wall};
use crate::store::index::Index;
use crate::store::log::Place;
use crate::store::record::Record as LogRecord;
use crate::store::row::Row;
use crate::store::state::{Counts, Delta, State};
use crate::store::{AttemptNote, Error, LaneSummary, Pending, Story, Usage};

/// What is asked of the index at least: memory may hide a part of it.
const CHUNK: usize = 64;

/// Whether memory knows better than the index about a seq.
pub(super) fn in_memory(state: &State, seq: u64) -> bool {
    state.deltas().any(|delta| delta.rows.contains_key(&seq))
}

/// Pages through one queue: `ask` gives the index's keys behind a key, `memory` those of a delta; both in order, at most so many.
fn queue<K: Ord + Copy>(
    core: &Core,
    after: K,
    limit: usize,
    seq_of: impl Fn(&K) -> Seq,
    ask: impl Fn(&Index, K, usize) -> Result<Vec<K>, Error>,
    memory: impl Fn(&Delta, K, usize) -> Vec<K>,
) -> Result<Vec<Pending>, Error> {
    let mut found: Vec<Pending> = Vec::new();
    let mut after = after;
    while found.len() < limit {
        let wanted = (limit - found.len()).max(CHUNK);
        let (page, last) = core.consistently(
            |index| {
                let keys = ask(index, after, wanted)?;
                let rows: Result<Vec<(K, Option<Row>)>, Error> =
                    keys.into_iter().map(|key| Ok((key, index.pending_row(seq_of(&key))?))).collect();
                rows
            },
            |state, asked| {
                // Behind the last key of an answer that is full, nothing is known of who gave it.
                let full = |keys: usize, last: Option<K>| if keys < wanted { None } else { last };
                let mut last = full(asked.len(), asked.last().map(|(key, _)| *key));
                let mut page: BTreeMap<K, Pending> = asked
                    .into_iter()
                    .filter(|(key, _)| !in_memory(state, seq_of(key).0))
                    .filter_map(|(key, row)| Some((key, row?.pending())))
                    .collect();
                for delta in state.deltas() {
                    let keys = memory(delta, after, wanted);
                    let bound = full(keys.len(), keys.last().copied());
                    last = last.into_iter().chain(bound).min();
                    page.extend(keys.into_iter().filter_map(|key| {
                        let seq = seq_of(&key);
                        Some((key, shown(state, delta, seq)?.pending()))
                    }));
                }
                page.retain(|key, _| last.is_none_or(|last| *key <= last));
                (page, last)
            },
        )?;
        found.extend(page.into_values());
        match last {
            Some(last) => after = last,
            None => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The row of a delta, unless a newer delta has the event.
pub(super) fn shown<'a>(state: &State, delta: &'a Delta, seq: Seq) -> Option<&'a Row> {
    let newest = std::ptr::eq(delta, &state.active) || !state.active.rows.contains_key(&seq.0);
    delta.rows.get(&seq.0).filter(|entry| newest && !entry.gone).map(|entry| &entry.row)
}

/// [`crate::store::LaneStore::load`].
pub(super) fn load(core: &Core, lane: &Lane, after: Seq, limit: usize) -> Result<Vec<Pending>, Error> {
    let memory = |delta: &Delta, after: Seq, wanted: usize| {
        let Some(entry) = delta.lanes.get(lane) else { return Vec::new() };
        entry.fresh.range(after.0.saturating_add(1)..).take(wanted).map(|&seq| Seq(seq)).collect()
    };
    let ask = |index: &Index, after, wanted| index.fresh(lane, after, wanted);
    match queue(core, after, limit, |seq| *seq, ask, memory) {
        Ok(mut found) => {
            // Lanes share a hash about never; when they do, each still gets its own events alone.
            found.retain(|pending| pending.lane == *lane);
            Ok(found)
        }
        Err(Error::Unavailable(why)) => {
            fresh_in_memory(&core.state.lock(), lane, after, limit).ok_or(Error::Unavailable(why))
        }
        Err(other) => Err(other),
    }
}

/// A lane's fresh events without the index; `None` unless memory has them all.
fn fresh_in_memory(state: &State, lane: &Lane, after: Seq, limit: usize) -> Option<Vec<Pending>> {
    let rows: BTreeMap<u64, &Row> = state
        .deltas()
        .filter_map(|delta| Some((delta, &delta.lanes.get(lane)?.fresh)))
        .flat_map(|(delta, fresh)| fresh.iter().filter_map(move |&seq| Some((seq, shown(state, delta, Seq(seq))?))))
        .collect();
    let complete = rows.len() as u64 == state.counts(lane)?.fresh;
    complete.then(|| rows.range(after.0.saturating_add(1)..).take(limit).map(|(_, row)| row.pending()).collect())
}

/// [`crate::store::LaneStore::due`].
pub(super) fn due(core: &Core, after: Option<(Wall, Seq)>, limit: usize) -> Result<Vec<Pending>, Error> {
    let memory = |delta: &Delta, after: (Wall, Seq), wanted: usize| {
        let behind = delta.due.range((Excluded((after.0, after.1.0)), Unbounded));
        behind.take(wanted).map(|&(due, seq)| (due, Seq(seq))).collect()
    };
    // No event has the seq 0, so this lies before all.
    let after = after.unwrap_or((Wall(0), Seq(0)));
    queue(core, after, limit, |key| key.1, Index::due, memory)
}

/// [`crate::store::LaneStore::open`].
pub(super) fn open(core: &Core, after: Seq, limit: usize) -> Result<Vec<Pending>, Error> {
    let memory = |delta: &Delta, after: Seq, wanted: usize| {
        delta.open.range(after.0.saturating_add(1)..).take(wanted).map(|&seq| Seq(seq)).collect()
    };
    queue(core, after, limit, |seq| *seq, Index::open_seqs, memory)
}

/// [`crate::store::LaneStore::lanes`].
pub(super) fn lanes(core: &Core, after: Option<&Lane>, limit: usize) -> Result<Vec<LaneSummary>, Error> {
    let mut found: Vec<LaneSummary> = Vec::new();
    let mut after = after.cloned();
    while found.len() < limit {
        let wanted = (limit - found.len()).max(CHUNK);
        let (page, last) = core.consistently(
            |index| index.lanes(after.as_ref(), wanted),
            |state, asked| {
                let last = if asked.len() < wanted { None } else { asked.last().map(|(lane, _)| lane.clone()) };
                (merge_lanes(state, asked, after.as_ref(), last.as_ref()), last)
            },
        )?;
        let pending = page.into_iter().filter(|(_, counts)| counts.pending() > 0);
        found.extend(pending.map(|(lane, counts)| LaneSummary {
            lane,
            fresh: counts.fresh,
            retrying: counts.retrying,
            bytes: counts.bytes,
            oldest: counts.received.first().map_or(Wall(0), Wall),
        }));
        match last {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}

fn merge_lanes(
    state: &State,
    asked: Vec<(Lane, Counts)>,
    after: Option<&Lane>,
    last: Option<&Lane>,
) -> BTreeMap<Lane, Counts> {
    let mut page: BTreeMap<Lane, Counts> = asked.into_iter().collect();
    for delta in [state.frozen.as_deref(), Some(&state.active)].into_iter().flatten() {
        for (lane, entry) in &delta.lanes {
            if after.is_none_or(|after| lane > after) && last.is_none_or(|last| lane <= last) {
                page.insert(lane.clone(), entry.counts.clone());
            }
        }
    }
    page
}

/// [`crate::store::LaneStore::read`].
pub(super) fn events(core: &Core, seqs: &[Seq]) -> Result<Vec<Option<Arc<Event>>>, Error> {
    let now = core.clock.now().wall;
    seqs.iter()
        .map(|&seq| {
            let row = core.row(seq)?.filter(|row| row.is_kept(&core.settings.retention, now));
            let Some(row) = row else { return Ok(None) };
            let event = core.segments.read(row.place).and_then(|record| event_from(core, &row, record));
            core.report_damage(&row, &event);
            Ok(event?.map(Arc::new))
        })
        .collect()
}

fn event_from(core: &Core, row: &Row, record: Option<LogRecord>) -> Result<Option<Event>, Error> {
    match record {
        Some(LogRecord::Accepted { event, .. } | LogRecord::Copied { event, .. }) if event.id == row.id => {
            Ok(Some(event))
        }
        // Its segment was deleted since the row was read: it is past retention.
        None => Ok(None),
        Some(_) => Err(misplaced(core, row.place)),
    }
}

fn misplaced(core: &Core, place: Place) -> Error {
    let path = core.segments.path(place.segment);
    Error::Corrupt(format!("{} at offset {}: expected another record", path.display(), place.offset))
}

/// The notes of an event, oldest first; `read` gives the record at a place.
fn notes(
    core: &Core,
    row: &Row,
    read: impl Fn(Place) -> Result<Option<LogRecord>, Error>,
) -> Result<Vec<AttemptNote>, Error> {
    let mut notes = Vec::new();
    for &place in &row.notes {
        match read(place)? {
            Some(LogRecord::Settled(settled)) => notes.extend(settled.note),
            Some(LogRecord::Copied { notes: copied, .. }) => notes.extend(copied),
            Some(_) => return Err(misplaced(core, place)),
            None => {}
        }
    }
    Ok(notes)
}

/// An event with its notes, from the records that `read` gives; `None` when it is past retention.
pub(super) fn whole(
    core: &Core,
    row: &Row,
    read: impl Fn(Place) -> Result<Option<LogRecord>, Error>,
) -> Result<Option<(Event, Vec<AttemptNote>)>, Error> {
    let Some(event) = event_from(core, row, read(row.place)?)? else { return Ok(None) };
    Ok(Some((event, notes(core, row, read)?)))
}

/// [`crate::store::LaneStore::find`].
pub(super) fn find(core: &Core, id: EventId) -> Result<Option<Story>, Error> {
    let memory = |state: &State| {
        let seq = state.deltas().find_map(|delta| delta.ids.get(&id)).copied();
        seq.and_then(|seq| match state.see(seq) {
            crate::store::state::Seen::Row(row) => Some(row.clone()),
            _ => None,
        })
    };
    let ask = |index: &Index| {
        let rows: Result<Vec<Option<Row>>, Error> = index.seqs_of(id)?.into_iter().map(|seq| index.row(seq)).collect();
        rows
    };
    // What memory has is the truth, and is told whether or not the index is there.
    let known = memory(&core.state.lock());
    let row = match known {
        Some(row) => Some(row),
        None => core.consistently(ask, |state, asked| {
            let rest = |row: &Row| !in_memory(state, row.seq.0) && row.id == id;
            memory(state).or_else(|| asked.into_iter().flatten().find(rest))
        })?,
    };
    let now = core.clock.now().wall;
    let Some(row) = row.filter(|row| row.is_kept(&core.settings.retention, now)) else { return Ok(None) };
    let attempts = notes(core, &row, |place| core.segments.read(place));
    core.report_damage(&row, &attempts);
    Ok(Some(Story { record: row.record(), attempts: attempts? }))
}

/// [`crate::store::LaneStore::usage`].
pub(super) fn usage(core: &Core) -> Usage {
    let (room, room_bytes) = (marks::room(core), marks::room_bytes(core));
    let measured = *core.measured.lock();
    let now = core.clock.now().wall;
    let state = core.state.lock();
    Usage {
        pending: state.sums.pending(),
        history: state.sums.history(&core.settings.retention, now),
        lanes: state.sums.lanes,
        bytes: core.segments.bytes() + measured.index_bytes,
        free: measured.free,
        oldest: state.sums.received.first().map(Wall),
        room,
        room_bytes,
        answered: None,
        spool: None,
        failing: core.admission.read().failing(),
    }
}
