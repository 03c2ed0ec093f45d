//! Letting go: of history past retention, of segments that nobody needs, and of history when the disk is nearly full.
//!
//! # When a segment may go
//!
//! Nothing in it is needed by a pending event or one that is kept (at the last checkpoint, since a restart begins there), *and*
//! whatever it says of an event that was born in an older segment that still exists is said again further on: a mark that the
//! event is gone. Without it, reading the whole log again would find the birth and not the end, and deliver a second time. When
//! little of an old segment is needed, that little is copied forward first.
//!
//! # When the clock is set
//!
//! Retention counts days of the wall clock, and what it gives up does not come back. A clock that was set to a wrong date must not take all
//! history with it, so nothing is given up for its age until the clock has run evenly for a while (`store/evenness.rs`).

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::core::Core;
use super::marks::{self, Measured};
use super::writer::Request;
use crate::event::Seq;
use crate::store::Error;
use crate::store::bucket::{Bucket, Family};
use crate::store::log::scan;
use crate::store::record::{Record, Settled};
use crate::store::room::GIVE_UP_BELOW;

/// Marks, or copies, of one request.
const CHUNK: usize = 256;
/// Bytes copied in one request.
const CHUNK_BYTES: u64 = 4 << 20;
/// A segment of which less than this percentage is needed is copied forward, once it is [`OLD`].
const LITTLE: u64 = 25;
/// The same when room is short; age does not count then.
const LITTLE_WHEN_SHORT: u64 = 75;
/// How many segments a segment must be behind: what was just stored is likely to end soon by itself.
const OLD: u32 = 4;

/// Runs rounds until the store ends.
pub(super) fn run(core: &Core, requests: &SyncSender<Request>, every: Duration) {
    while !core.is_closed() {
        if let Err(error) = round(core, requests)
            && !core.is_closed()
        {
            tracing::warn!(%error, "upkeep of the store failed; it is tried again");
        }
        let mut work = core.work.lock();
        if !core.is_closed() {
            core.changed.wait_for(&mut work, every);
        }
    }
}

/// One round of everything. What fails does not keep the disk marks from being looked at.
pub(super) fn round(core: &Core, requests: &SyncSender<Request>) -> Result<(), Error> {
    measure(core);
    fill_reserve(core);
    if core.admission.read().failing.is_some() {
        // Why not was said when it began.
        drop(ask(core, requests, |reply| Request::Probe { reply }));
    }
    let let_go = let_go(core, requests);
    measure(core);
    let decided = marks::decide(core);
    let_go.and(decided)
}

fn let_go(core: &Core, requests: &SyncSender<Request>) -> Result<(), Error> {
    if give_up_history(core, requests)? {
        checkpoint(core, requests)?;
    }
    delete_empty(core, requests)?;
    if copy_forward(core, requests)? {
        checkpoint(core, requests)?;
        delete_empty(core, requests)?;
    }
    Ok(())
}

/// Looks how much room there is.
pub(super) fn measure(core: &Core) {
    let free = core.options.disk.free(&core.settings.path);
    note_lost(core, free.as_ref().err());
    // What cannot be measured refuses by another name, and gives up no history.
    let free = free.unwrap_or(u64::MAX);
    let index_bytes = core.index.read().as_ref().map_or(0, crate::store::index::Index::bytes);
    *core.measured.lock() = Measured { free, index_bytes };
}

/// Notes whether what is written now would be found again; said once, and once more when it would.
fn note_lost(core: &Core, unmeasured: Option<&io::Error>) {
    let lost = lost(core, unmeasured);
    let mut admission = core.admission.write();
    match (&admission.lost, &lost) {
        (None, Some(reason)) => tracing::error!(
            reason,
            "new events are refused: nobody would find them after this process. Put the folder back where it was; where it was deleted, \
             what is waiting is in this process alone: let it be delivered, then start again"
        ),
        (Some(_), None) => tracing::info!("the store's files are where they were: new events are taken again"),
        _ => {}
    }
    admission.lost = lost;
}

fn lost(core: &Core, unmeasured: Option<&io::Error>) -> Option<String> {
    let folder = core.settings.path.display();
    let head = core.work.lock().head;
    let lock = core.lock.lock().as_ref().map_or(Ok(true), |lock| lock.is_in_place(&core.settings.path));
    match lock.and_then(|there| Ok(there && core.segments.is_in_place(head)?)) {
        Ok(true) => unmeasured.map(|error| format!("nothing can be learned of the disk of {folder}: {error}")),
        Ok(false) => {
            Some(format!("{folder} is no longer what it was: it was deleted, moved or replaced, or its files were"))
        }
        Err(error) => Some(format!("{folder} cannot be looked at: {error}")),
    }
}

fn fill_reserve(core: &Core) {
    let head = core.work.lock().head;
    // Without room for it the writer finds out by itself, and says so.
    drop(core.reserve.fill(&core.segments, head + 1, core.options.segment_bytes));
}

fn ask(
    core: &Core,
    requests: &SyncSender<Request>,
    request: impl FnOnce(SyncSender<Result<(), Error>>) -> Request,
) -> Result<(), Error> {
    let (reply, answer) = std::sync::mpsc::sync_channel(1);
    requests.send(request(reply)).map_err(|_| core.ended())?;
    answer.recv().unwrap_or_else(|_| Err(core.ended()))
}

/// Makes a checkpoint of all that happened so far, and waits for it.
pub(super) fn checkpoint(core: &Core, requests: &SyncSender<Request>) -> Result<(), Error> {
    let failed = || Error::Unavailable("the checkpoint did not come about; it is tried again".into());
    // One that is under way does not have the latest changes.
    if !core.await_checkpoint() {
        return Err(failed());
    }
    let (reply, answer) = std::sync::mpsc::sync_channel(1);
    requests.send(Request::Checkpoint { reply }).map_err(|_| core.ended())?;
    answer.recv().map_err(|_| core.ended())?;
    if core.await_checkpoint() { Ok(()) } else { Err(failed()) }
}

/// Drops buckets past retention, and one more of delivered events when room is short. Whether any was dropped.
fn give_up_history(core: &Core, requests: &SyncSender<Request>) -> Result<bool, Error> {
    let now = core.clock.now();
    let is_even = core.evenness.lock().holds(now);
    let now = now.wall;
    let held: Vec<Bucket> = core.state.lock().sums.held.keys().copied().flatten().collect();
    let (mut over, kept): (Vec<Bucket>, Vec<Bucket>) =
        held.into_iter().partition(|bucket| is_even && bucket.until(&core.settings.retention) <= now);
    if marks::room(core) < GIVE_UP_BELOW {
        // One that lies ahead was filled while the clock was wrong.
        let is_present = |bucket: &Bucket| (bucket.start..bucket.start.saturating_add(bucket.width)).contains(&now.0);
        let complete = |bucket: &&Bucket| bucket.family == Family::Delivered && !is_present(bucket);
        // One a round: what it gives back is only seen after its segments are deleted.
        if let Some(bucket) = kept.iter().filter(complete).min_by_key(|bucket| bucket.start) {
            tracing::warn!(
                from = bucket.start,
                "room is short: the oldest delivered events are given up before their time"
            );
            over.push(*bucket);
        }
    }
    for &bucket in &over {
        ask(core, requests, |reply| Request::Drop { bucket, reply })?;
    }
    Ok(!over.is_empty())
}

fn delete_empty(core: &Core, requests: &SyncSender<Request>) -> Result<(), Error> {
    let empty = std::mem::take(&mut core.work.lock().empty);
    let mut left = empty.into_iter();
    while let Some(segment) = left.next() {
        if let Err(error) = delete(core, requests, segment) {
            let mut work = core.work.lock();
            // A checkpoint that came in meanwhile knows them anyway.
            if work.empty.is_empty() {
                work.empty = std::iter::once(segment).chain(left).collect();
            }
            return Err(error);
        }
    }
    Ok(())
}

fn delete(core: &Core, requests: &SyncSender<Request>, segment: u32) -> Result<(), Error> {
    if !core.segments.has(segment) {
        return Ok(());
    }
    for marks in marks_of(core, segment)?.chunks(CHUNK) {
        let marks = marks.to_vec();
        ask(core, requests, |reply| Request::Gone { marks, reply })?;
    }
    let deleted = core.segments.delete(segment);
    deleted.map_err(|error| Error::Unavailable(format!("{}: {error}", core.segments.path(segment).display())))?;
    core.state.lock().sums.forget(segment);
    Ok(())
}

/// What has to be said again of events that were born in older segments.
fn marks_of(core: &Core, segment: u32) -> Result<Vec<(Seq, Vec<u32>)>, Error> {
    let older: Vec<u32> = {
        let state = core.state.lock();
        let births = state.sums.refs.get(&segment).into_iter().flatten().copied();
        births.filter(|&birth| birth != segment && core.segments.has(birth)).collect()
    };
    let mut marks: Vec<(Seq, Vec<u32>)> = Vec::new();
    if older.is_empty() {
        return Ok(marks);
    }
    scan::segment(&core.segments, segment, |record, _| {
        let (seq, births) = match record {
            Record::Accepted { .. } => return Ok(()),
            Record::Settled(Settled { seq, births, .. }) | Record::Gone { seq, births } => (seq, births),
            Record::Copied { seq, replaces, births, .. } => (replaces.unwrap_or(seq), births),
        };
        let births: Vec<u32> = births.into_iter().filter(|birth| older.contains(birth)).collect();
        if !births.is_empty() {
            marks.push((seq, births));
        }
        Ok(())
    })?;
    // An event is settled more than once; one mark says it.
    marks.sort();
    marks.dedup();
    Ok(marks)
}

/// Copies what is needed of one segment that has little of it. Whether one was found.
fn copy_forward(core: &Core, requests: &SyncSender<Request>) -> Result<bool, Error> {
    let short = marks::room(core) < GIVE_UP_BELOW;
    let (little, old) = if short { (LITTLE_WHEN_SHORT, 1) } else { (LITTLE, OLD) };
    let head = core.work.lock().head;
    let live = core.state.lock().sums.live();
    let stuck = core.work.lock().stuck.clone();
    let candidate = core.segments.numbers().into_iter().find(|segment| {
        let needed = live.get(segment).copied().unwrap_or(0);
        let is_little = needed > 0 && needed * 100 < core.segments.size(*segment) * little;
        is_little && segment.saturating_add(old) <= head && stuck.get(segment) != Some(&needed)
    });
    let Some(segment) = candidate else { return Ok(false) };
    copy_segment(core, requests, segment)?;
    let left = core.state.lock().sums.live().get(&segment).copied();
    if let Some(left) = left {
        // Events that are about to go by themselves, or cannot be read. It is tried again when they are fewer.
        core.work.lock().stuck.insert(segment, left);
    }
    Ok(true)
}

/// Copies what is needed of a segment.
fn copy_segment(core: &Core, requests: &SyncSender<Request>, segment: u32) -> Result<(), Error> {
    let now = core.clock.now().wall;
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for seq in needed_of(core, segment)? {
        let Some(row) = core.row(seq)? else { continue };
        let needs = row.all_pins().any(|(pinned, _)| pinned == segment);
        if !needs || !row.is_kept(&core.settings.retention, now) {
            continue;
        }
        chunk.push(seq);
        bytes += row.all_pins().map(|(_, bytes)| bytes).sum::<u64>();
        if chunk.len() >= CHUNK || bytes >= CHUNK_BYTES {
            copy(core, requests, segment, &mut chunk)?;
            bytes = 0;
        }
    }
    copy(core, requests, segment, &mut chunk)
}

fn copy(core: &Core, requests: &SyncSender<Request>, segment: u32, chunk: &mut Vec<Seq>) -> Result<(), Error> {
    let seqs = std::mem::take(chunk);
    if seqs.is_empty() { Ok(()) } else { ask(core, requests, |reply| Request::Copy { seqs, segment, reply }) }
}

/// Events that a segment has records of.
fn needed_of(core: &Core, segment: u32) -> Result<BTreeSet<Seq>, Error> {
    let mut seqs = BTreeSet::new();
    scan::segment(&core.segments, segment, |record, _| {
        match record {
            Record::Accepted { seq, .. } | Record::Copied { seq, .. } => seqs.insert(seq),
            Record::Settled(settled) => seqs.insert(settled.seq),
            Record::Gone { .. } => false,
        };
        Ok(())
    })?;
    Ok(seqs)
}
