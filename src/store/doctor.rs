//! Looking at a store without changing it: every checksum, and what is there (`fairlane doctor --store`).
//!
//! It reads the log, which is all that counts: the index can be built from it. The checkpoint says how far the log must reach. A store that is open at the same time may look
//! torn at its very end.

use std::path::Path;
use std::sync::Arc;

use super::Error;
use super::disk::{Disk, Real};
use super::embedded::{checkpoint_cursor, salt};
use super::log::batch::Header;
use super::log::{Cursor, Segments, scan};
use super::record::Record;

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As it should be.
    Good,
    /// It works; somebody should know.
    Note,
    /// It does not work, or will not for long.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What, e.g. `files`, `disk`, `clock`, `upstream`, `eviction`.
    pub what: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// What was found and, where it is not as it should be, what to do.
    pub text: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorReport {
    /// Segment files.
    pub segments: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// Valid batches.
    pub batches: u64,
    /// Records of accepted events in them.
    pub accepted: u64,
    /// Settlements.
    pub settled: u64,
    /// Events that were copied forward or requeued.
    pub copied: u64,
    /// Marks of events that are gone.
    pub gone: u64,
    /// Places where something is not as it was written, in the order of the log.
    pub damage: Vec<Damage>,
    /// Bytes at the end of the log that no checksum is about.
    pub tail: Option<Tail>,
}

/// What lies behind the last batch of the log and is no batch: a write that a crash broke off, one that goes on at this moment, or a last
/// batch that the disk damaged. Nothing tells them apart; the next start cuts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The file where it begins.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// How many bytes there are not zeros.
    pub bytes: u64,
}

/// A place that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What was expected there, or what a read said.
    pub what: String,
}

impl DoctorReport {
    /// Whether every checksum holds. A [tail](Self::tail) is what any crash leaves, and the next start deals with it; it is no damage
    /// as far as anybody can know.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.damage.is_empty()
    }

    /// Adds what is wrong at a place, in the order of the log, where nothing is said of that place yet.
    fn add(&mut self, segments: &Segments, segment: u32, offset: u64, what: String) {
        let file = segments.path(segment).display().to_string();
        if !self.damage.iter().any(|damage| damage.file == file && damage.offset == offset) {
            self.damage.push(Damage { file, offset, what });
            self.damage.sort_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
        }
    }
}

/// Examines the store in `path`, reading all of its log. Blocks. Changes nothing.
///
/// # Errors
///
/// [`Error::Unavailable`] when there is no store, or its files cannot be read. Damage is not an error: it is in the report.
pub fn doctor(path: &Path) -> Result<DoctorReport, Error> {
    examine(path, Arc::new(Real))
}

/// [`doctor`] on another disk, for tests.
///
/// # Errors
///
/// Those of [`doctor`].
pub fn examine(path: &Path, disk: Arc<dyn Disk>) -> Result<DoctorReport, Error> {
    let salt = salt(path)?;
    let checkpoint = checkpoint_cursor(path, &*disk)?;
    let segments = Segments::list(disk, &path.join("log"), salt)?;
    let numbers = segments.numbers();
    let mut report = DoctorReport { segments: numbers.len(), bytes: segments.bytes(), ..DoctorReport::default() };
    let (mut end, mut last) = (Cursor::START, None);
    for number in numbers {
        let (batches, damage) = (report.batches, report.damage.len());
        let offset = examine_segment(&segments, number, &mut last, &mut report)?;
        if (report.batches, report.damage.len()) != (batches, damage) || end == Cursor::START {
            end = Cursor { segment: number, offset, ..end };
        }
    }
    if let Some(first) = segments.numbers().first() {
        match scan::first_number(&segments, *first) {
            Err(Error::Corrupt(what)) => report.add(&segments, *first, 0, what),
            other => drop(other?),
        }
    }
    report.tail = examine_tail(&segments, &end)?;
    if let Some(at) = checkpoint {
        examine_end(&segments, &at, &mut report)?;
    }
    Ok(report)
}

/// The log must reach as far as the checkpoint: a batch that is missing there has none behind it that would tell.
fn examine_end(segments: &Segments, at: &Cursor, report: &mut DoctorReport) -> Result<(), Error> {
    let Some((offset, what)) = scan::short_of(segments, at)? else { return Ok(()) };
    report.add(segments, at.segment, u64::from(offset), what);
    Ok(())
}

/// Batches are numbered without a gap, also from one segment to the next: whatever lies between two that are whole and do not follow one
/// another was there. Where a whole segment is missing between them, it may have been deleted as one that nobody needed any more.
fn examine_gap(segments: &Segments, last: &Header, next: &Header, report: &mut DoctorReport) {
    let deleted = (last.segment.saturating_add(1)..next.segment).any(|number| !segments.has(number));
    if next.number == last.number.saturating_add(1) || deleted {
        return;
    }
    let behind =
        format!("batch {} behind it ({} at {})", next.number, segments.path(next.segment).display(), next.offset);
    let what = format!("batch {} is missing or damaged, while {behind} is whole", last.number.saturating_add(1));
    report.add(segments, last.segment, last.end(), what);
}

/// What is not zeros behind the `end` of the log.
fn examine_tail(segments: &Segments, end: &Cursor) -> Result<Option<Tail>, Error> {
    let mut tail: Option<Tail> = None;
    for number in segments.numbers().into_iter().filter(|&number| number >= end.segment) {
        let from = if number == end.segment { end.offset } else { 0 };
        let bytes = scan::rest(segments, number, from)?;
        if bytes > 0 {
            let file = segments.path(number).display().to_string();
            tail.get_or_insert_with(|| Tail { file, offset: u64::from(from), bytes: 0 }).bytes += bytes;
        }
    }
    Ok(tail)
}

/// Looks at the batches of a segment; the answer is where the last of them ends. `last` is the last whole batch so far.
fn examine_segment(
    segments: &Segments,
    number: u32,
    last: &mut Option<Header>,
    report: &mut DoctorReport,
) -> Result<u32, Error> {
    let damage = |offset: u32, what: String| Damage {
        file: segments.path(number).display().to_string(),
        offset: u64::from(offset),
        what,
    };
    let mut offset = 0;
    loop {
        while let Some(header) = examine_batch(segments, number, offset, report, &damage)? {
            if let Some(last) = last {
                examine_gap(segments, last, &header, report);
            }
            offset = header.next_offset();
            *last = Some(header);
        }
        // Behind the last batch are zeros, or the rest of a write that failed. A further batch means that one before it is damaged.
        match scan::next_batch(segments, number, offset)? {
            Some(next) => {
                report.damage.push(damage(offset, format!("no valid batch here, while there is one at {next}")));
                offset = next;
            }
            None => return Ok(offset),
        }
    }
}

/// The numbers of the batch at `offset`; `None` when there is none.
fn examine_batch(
    segments: &Segments,
    number: u32,
    offset: u32,
    report: &mut DoctorReport,
    damage: &impl Fn(u32, String) -> Damage,
) -> Result<Option<Header>, Error> {
    let mut counts = [0_u64; 4];
    let read = scan::batch(segments, number, offset, |record, _| {
        let kind = match record {
            Record::Accepted { .. } => 0,
            Record::Settled(_) => 1,
            Record::Copied { .. } => 2,
            Record::Gone { .. } => 3,
        };
        if let Some(count) = counts.get_mut(kind) {
            *count += 1;
        }
        Ok(())
    });
    let header = match read {
        Ok(None) => return Ok(None),
        Ok(Some(header)) => header,
        Err(Error::Corrupt(what)) => {
            report.damage.push(damage(offset, what));
            // The batch's own checksum holds, so its length does.
            match scan::header(segments, number, offset)? {
                Some(header) => header,
                None => return Ok(None),
            }
        }
        Err(error) => return Err(error),
    };
    let [accepted, settled, copied, gone] = counts;
    report.batches += 1;
    report.accepted += accepted;
    report.settled += settled;
    report.copied += copied;
    report.gone += gone;
    Ok(Some(header))
}
