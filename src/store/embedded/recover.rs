//! Opening: the checkpoint, the index, and the rest of the log.
//!
//! 1. A checkpoint in force and an index that fits: when the index does not have all of the checkpoint yet, it takes it
//!    in again from the file. Then the log is read from the checkpoint's place on.
//! 2. Anything else (no checkpoint, a damaged one, an index that is missing, damaged, of another number): the index is deleted and
//!    built from the whole log, with checkpoints in between, so that memory has a bound.
//!
//! The torn end of the log is cut. Damage in its middle is an error; nothing is changed then. A log that ends before the
//! checkpoint's place is damaged too: up to there it was durable.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::watch;

use super::checkpoint::{Checkpoint, Files};
use super::core::{Core, Work};
use super::marks::{Admission, Measured};
use super::stage::copied;
use super::{IndexStep, Options, Settings, directory};
use crate::clock::Clock;
use crate::event::Seq;
use crate::store::index::{ApplyError, Index};
use crate::store::log::{Cursor, Log, Place, Reserve, Segments, scan};
use crate::store::record::{Record, Settled};
use crate::store::repeats::Known;
use crate::store::row::{Noted, Row};
use crate::store::state::{Entry, Settle, State, Step, Sums};
use crate::store::{Durability, Error};

/// Opens everything; the threads are not started yet.
pub(super) fn open(settings: Settings, clock: Arc<dyn Clock>, options: Options) -> Result<(Core, Log), Error> {
    let (lock, salt) = directory::enter(&settings.path)?;
    let disk = Arc::clone(&options.disk);
    disk.make_dir(&settings.path)
        .map_err(|error| Error::Unavailable(format!("{}: {error}", settings.path.display())))?;
    let segments = Arc::new(Segments::list(Arc::clone(&disk), &settings.path.join("log"), salt)?);
    let files = Files::in_dir(&settings.path);
    let index_dir = settings.path.join("index");
    let (index, cursor, done, sums) = match resume(&files, &index_dir, &segments, &settings, &options)? {
        Some((index, checkpoint)) => (index, checkpoint.cursor, checkpoint.number, checkpoint.sums),
        None => {
            let index = begin_anew(&files, &index_dir, &segments, &options)?;
            (index, first_cursor(&segments)?, 0, Sums::default())
        }
    };
    let retention = settings.retention;
    let core = Core {
        index_dir,
        segments,
        reserve: Arc::new(Reserve::default()),
        files,
        state: Mutex::new(State::new(retention, sums)),
        index: RwLock::new(Some(index)),
        poison: watch::channel(None).0,
        admission: RwLock::new(Admission::default()),
        measured: Mutex::new(Measured::default()),
        evenness: Mutex::default(),
        work: Mutex::new(Work { done, ..Work::default() }),
        changed: Condvar::new(),
        ended: false.into(),
        lock: Mutex::new(Some(lock)),
        damaged: Mutex::default(),
        settings,
        options,
        clock,
    };
    // What is read from now on counts, so it must be durable, names included.
    core.segments.sync_names().map_err(|error| Error::Unavailable(format!("cannot sync the log's folder: {error}")))?;
    let end = replay(&core, cursor)?;
    let removed = scan::cut(&core.segments, &end)?;
    if removed > 0 {
        tracing::warn!(
            file = %core.segments.path(end.segment).display(),
            offset = end.offset,
            bytes = removed,
            "the bytes at the end of the log do not make a whole batch, and were cut: after a crash this is a write that was not \
             finished; if the disk damaged them, events acknowledged in it are gone"
        );
    }
    let log = Log::open(Arc::clone(&core.segments), Arc::clone(&core.reserve), core.options.segment_bytes, end)?;
    core.tell_head(end.segment);
    super::upkeep::measure(&core);
    Ok((core, log))
}

/// The index at the checkpoint in force; `None` when it has to be built anew.
fn resume(
    files: &Files,
    index_dir: &Path,
    segments: &Segments,
    settings: &Settings,
    options: &Options,
) -> Result<Option<(Index, Checkpoint)>, Error> {
    let anew = |reason: &str| {
        tracing::warn!(reason, "the index is built again from the whole log");
        Ok(None)
    };
    let Some((checkpoint, delta)) = files.read(&*options.disk)? else {
        // A store that never stored anything has made none.
        return if is_empty(segments)? { Ok(None) } else { anew("there is no valid checkpoint") };
    };
    if let Some((offset, what)) = scan::short_of(segments, &checkpoint.cursor)? {
        let path = segments.path(checkpoint.cursor.segment);
        let what = format!("{} at offset {offset}: {what}", path.display());
        return match settings.durability {
            Durability::Fsync => {
                Err(Error::Corrupt(format!("{what}; restore a copy, or move the store away and begin a new one")))
            }
            // What the disk promised then was not much; going on loses what is missing and nothing else.
            Durability::Os => {
                anew(&format!("{what}; with `durability: os` a power cut may do that, and what it said is lost"))
            }
        };
    }
    if !index_dir.exists() {
        return anew("there is no index");
    }
    let index = match Index::open(index_dir, options.index_sizes()) {
        Ok(index) => index,
        Err(error) => return anew(&format!("the index does not open: {error}")),
    };
    let (number, applied) = (checkpoint.number, files.applied(&*options.disk)?);
    let Ok(there) = index.number() else { return anew("the index is damaged") };
    if applied == number && there == number {
        return Ok(Some((index, checkpoint)));
    }
    if applied + 1 != number || (there != number && there != applied) {
        return anew(&format!("the index is at checkpoint {there}, {applied} and {number} were written"));
    }
    match index.apply(number, &delta, &mut || options.may(IndexStep::Commit)) {
        Ok(()) => {}
        Err(ApplyError::Halted) => return Err(Error::Unavailable("stopped by a test".into())),
        Err(ApplyError::Index(error)) => return anew(&format!("the index failed: {error}")),
    }
    let noted = files.write_applied(&*options.disk, number);
    noted.map_err(|error| Error::Unavailable(format!("cannot note the checkpoint: {error}")))?;
    Ok(Some((index, checkpoint)))
}

fn begin_anew(files: &Files, index_dir: &Path, segments: &Segments, options: &Options) -> Result<Index, Error> {
    // In this order: an index that is half gone must not find a checkpoint that it seems to fit.
    files.remove(&*options.disk)?;
    match std::fs::remove_dir_all(index_dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::Unavailable(format!("cannot delete {}: {error}", index_dir.display())));
        }
        _ => {}
    }
    if !is_empty(segments)? {
        tracing::info!(segments = segments.numbers().len(), bytes = segments.bytes(), "reading the whole log");
    }
    Index::open(index_dir, options.index_sizes())
        .map_err(|error| Error::Unavailable(format!("cannot make the index {}: {error}", index_dir.display())))
}

/// Whether the log has no batch at all.
fn is_empty(segments: &Segments) -> Result<bool, Error> {
    match segments.numbers().first() {
        Some(&first) => Ok(scan::first_number(segments, first)?.is_none()),
        None => Ok(true),
    }
}

/// Where the whole log begins.
fn first_cursor(segments: &Segments) -> Result<Cursor, Error> {
    let Some(first) = segments.numbers().first().copied() else { return Ok(Cursor::START) };
    // Older segments may have been deleted: the first batch that there is says its number.
    let batch = scan::first_number(segments, first)?;
    Ok(Cursor { segment: first, batch: batch.unwrap_or(1), ..Cursor::START })
}

/// Reads the log from `cursor` on into memory; where it ends. All of it is durable then.
fn replay(core: &Core, cursor: Cursor) -> Result<Cursor, Error> {
    let mut doubtful = Doubtful::default();
    let end = scan::scan(
        &core.segments,
        cursor,
        |record, place| {
            if let Some(step) = step(core, record, place)? {
                core.state.lock().apply(step);
            }
            Ok(())
        },
        |at| {
            doubtful.see(at);
            let entries = core.state.lock().active.len();
            if entries < core.options.checkpoint_entries {
                return Ok(());
            }
            // The index must never be ahead of the durable log.
            doubtful.write_again(&core.segments, at)?;
            checkpoint(core, *at)
        },
    )?;
    doubtful.write_again(&core.segments, &end)?;
    Ok(end)
}

/// The last batches that were read, as far as none behind them says that they are durable.
#[derive(Default)]
struct Doubtful {
    /// Number, segment, offset.
    batches: VecDeque<(u64, u32, u32)>,
}

impl Doubtful {
    /// A batch was read, which ends at `at` and says up to which one all are durable.
    fn see(&mut self, at: &Cursor) {
        self.batches.push_back((at.batch - 1, at.segment, at.before));
        while self.batches.front().is_some_and(|(number, ..)| *number <= at.durable) {
            self.batches.pop_front();
        }
    }

    /// Makes them durable. Those of segments before that of `at` became so when their segment was left.
    fn write_again(&mut self, segments: &Segments, at: &Cursor) -> Result<(), Error> {
        let first = self.batches.iter().find(|(_, segment, _)| *segment == at.segment);
        if let Some(&(_, segment, from)) = first {
            scan::write_again(segments, segment, from..at.offset)?;
        }
        self.batches.clear();
        Ok(())
    }
}

/// What a record does, with what it needs of the index.
fn step(core: &Core, record: Record, place: Place) -> Result<Option<Step>, Error> {
    let fetch = |seq: Seq, ended_too| {
        if core.state.lock().active.rows.contains_key(&seq.0) {
            return Ok(None);
        }
        let fetched = core.fetch(seq, ended_too)?;
        if let Some(fetched) = &fetched {
            core.learn_lane(&fetched.0.lane)?;
        }
        Ok(fetched)
    };
    Ok(Some(match record {
        Record::Accepted { seq, event } => {
            core.learn_lane(&event.lane)?;
            Step::Accept(Entry::accepted(Row::accepted(seq, &event, place)), Known::of(&event))
        }
        Record::Settled(Settled { seq, at, verdict, note, births }) => {
            let fetched = fetch(seq, false)?;
            Step::Settle(Settle { seq, at, verdict, place, noted: note.as_ref().map(Noted::of), births, fetched })
        }
        Record::Copied { seq, replaces, event, state, notes, births } => {
            let was = replaces.unwrap_or(seq);
            let fetched = fetch(was, true)?;
            core.learn_lane(&event.lane)?;
            copied(seq, was, &event, state, !notes.is_empty(), births, place, fetched)
        }
        Record::Gone { seq, births } => {
            // Nothing was born in a segment that is not there; most marks are about such by now.
            let fetched = if births.iter().any(|&birth| core.segments.has(birth)) { fetch(seq, true)? } else { None };
            Step::Gone { seq, births, segment: place.segment, fetched }
        }
    }))
}

/// A checkpoint while the whole log is read: nobody waits, so it is done at once.
fn checkpoint(core: &Core, cursor: Cursor) -> Result<(), Error> {
    if !core.begin_checkpoint(cursor) {
        return Ok(());
    }
    match super::checkpointer::once(core) {
        Ok(()) => Ok(()),
        Err(reason) => Err(Error::Unavailable(format!("the index cannot be built: {reason}"))),
    }
}
