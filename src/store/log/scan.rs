//! Reading the log again: batch after batch to its end, and telling a torn end from damage.
//!
//! A batch that is missing or damaged, with a valid one behind it that was written when the missing one was known to be
//! durable, is damage in the middle: reported with its place, never skipped. Anything else that is not a batch is taken for the
//! torn end of a write that nobody was told of: [`cut`] turns it into zeros, and whoever calls it says so, since a last batch that the
//! disk damaged after it was acknowledged looks the same. (With `durability: os` batches behind the torn
//! one may have reached the disk before it; nobody was promised that they would survive a power cut, so they are cut too.)

use bytes::Bytes;

use super::batch::{ALIGN, HEADER_BYTES, Header};
use super::segments::Segments;
use super::{Cursor, Place};
use crate::store::Error;
use crate::store::disk::DiskFile;
use crate::store::record::{self, FRAME_BYTES, Record};
use crate::store::wire::Damaged;

/// How much of a segment is looked at in one read when a later batch is searched.
const WINDOW_BYTES: usize = 1 << 20;

/// Most of a segment is still as it was made. To compare a window with this takes a fraction of a look at each byte, and whoever waits for the
/// store to open waits for that.
static ZEROS: [u8; WINDOW_BYTES] = [0; WINDOW_BYTES];

fn is_untouched(bytes: &[u8]) -> bool {
    ZEROS.get(..bytes.len()).is_some_and(|zeros| zeros == bytes)
}

/// Reads all batches from `from` on and gives each record with its place to `visit`; `done` is told after each batch. The answer is
/// where the next batch belongs.
///
/// # Errors
///
/// [`Error::Corrupt`] for damage in the middle, and those of the visitors.
pub(in crate::store) fn scan(
    segments: &Segments,
    from: Cursor,
    mut visit: impl FnMut(Record, Place) -> Result<(), Error>,
    mut done: impl FnMut(&Cursor) -> Result<(), Error>,
) -> Result<Cursor, Error> {
    let mut at = from;
    loop {
        while let Some((header, payload)) = valid_batch(segments, at.segment, at.offset)? {
            if header.number != at.batch {
                break;
            }
            each_record(segments, &header, &payload, &mut visit)?;
            at.batch += 1;
            at.next_seq = at.next_seq.max(header.next_seq);
            at.durable = at.durable.max(header.durable);
            // A segment that is full to its last byte is followed by the next one.
            at.before = at.offset;
            at.offset = header.next_offset();
            done(&at)?;
        }
        match follower(segments, &at)? {
            Some(segment) => {
                at.offset = 0;
                at.before = 0;
                at.segment = segment.0;
                at.batch = segment.1;
            }
            None => return Ok(at),
        }
    }
}

/// The segment in which the log goes on after `at`, and the number of its first batch.
fn follower(segments: &Segments, at: &Cursor) -> Result<Option<(u32, u64)>, Error> {
    let later = first_valid(segments, at)?;
    let Some(header) = later else { return Ok(None) };
    let gap = (at.segment.saturating_add(1)..header.segment).any(|number| !segments.has(number));
    if header.offset == 0
        && header.segment > at.segment
        && (header.number == at.batch || (gap && header.number > at.batch))
    {
        return Ok(Some((header.segment, header.number)));
    }
    if header.durable < at.batch {
        return Ok(None);
    }
    Err(Error::Corrupt(format!(
        "{} at offset {}: batch {} is missing or damaged, while batch {} behind it ({} at offset {}) is whole; \
         restore a copy, or move the store away and begin a new one",
        segments.path(at.segment).display(),
        at.offset,
        at.batch,
        header.number,
        segments.path(header.segment).display(),
        header.offset,
    )))
}

/// The first valid batch behind `at`.
fn first_valid(segments: &Segments, at: &Cursor) -> Result<Option<Header>, Error> {
    for segment in segments.numbers().into_iter().filter(|&number| number >= at.segment) {
        let from = if segment == at.segment { at.offset } else { 0 };
        if let Some(header) = search(segments, segment, from, at.batch)? {
            return Ok(Some(header));
        }
    }
    Ok(None)
}

/// The first valid batch in a segment at `from` or behind, with a number of `least` or above.
fn search(segments: &Segments, segment: u32, from: u32, least: u64) -> Result<Option<Header>, Error> {
    let file = open(segments, segment)?;
    let size = file.size().map_err(|error| unreadable(segments, segment, 0, &error))?;
    let mut window = vec![0; WINDOW_BYTES];
    let mut start = u64::from(from);
    while start < size {
        let length = usize::try_from(size - start).unwrap_or(usize::MAX).min(WINDOW_BYTES);
        let bytes = window.get_mut(..length).expect("no longer than the window");
        file.read_at(bytes, start).map_err(|error| unreadable(segments, segment, start, &error))?;
        let looked_at = if is_untouched(bytes) { &[] } else { &*bytes };
        for (index, chunk) in looked_at.chunks(ALIGN as usize).enumerate() {
            if chunk.first() != Some(&b'F') {
                continue;
            }
            let offset = u32::try_from(start + index as u64 * u64::from(ALIGN)).unwrap_or(u32::MAX);
            if let Some((header, _)) = valid_batch(segments, segment, offset)?
                && header.number >= least
            {
                return Ok(Some(header));
            }
        }
        start += length as u64;
    }
    Ok(None)
}

fn open(segments: &Segments, segment: u32) -> Result<std::sync::Arc<dyn DiskFile>, Error> {
    segments.open(segment).map_err(|error| unreadable(segments, segment, 0, &error))
}

fn unreadable(segments: &Segments, segment: u32, offset: u64, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("cannot read {} at {offset}: {error}", segments.path(segment).display()))
}

/// The number of the first batch of the log that begins in `segment`; `None` when it has none. A beginning that is damaged counts from
/// the batch behind it, and the scan then finds what is missing.
///
/// # Errors
///
/// [`Error::Corrupt`] when the segment does not begin with a batch, and there are batches.
pub(in crate::store) fn first_number(segments: &Segments, segment: u32) -> Result<Option<u64>, Error> {
    if let Some((header, _)) = valid_batch(segments, segment, 0)? {
        return Ok(Some(header.number));
    }
    let start = Cursor { segment, batch: 0, ..Cursor::START };
    match first_valid(segments, &start)? {
        Some(header) if header.offset == 0 && segment_is_empty(segments, segment)? => Ok(Some(header.number)),
        Some(header) if header.durable > 0 => Err(Error::Corrupt(format!(
            "{} at offset 0: the first batch of the log is damaged, while batch {} behind it is whole",
            segments.path(segment).display(),
            header.number,
        ))),
        _ => Ok(None),
    }
}

fn segment_is_empty(segments: &Segments, segment: u32) -> Result<bool, Error> {
    let file = open(segments, segment)?;
    let mut head = [0; HEADER_BYTES];
    let read = file.read_at(&mut head, 0);
    Ok(read.is_err() || head == [0; HEADER_BYTES])
}

/// The batch at a place, if there is one and its checksum holds.
pub(super) fn valid_batch(segments: &Segments, segment: u32, offset: u32) -> Result<Option<(Header, Bytes)>, Error> {
    if !segments.has(segment) {
        return Ok(None);
    }
    let file = open(segments, segment)?;
    let size = file.size().map_err(|error| unreadable(segments, segment, 0, &error))?;
    let start = u64::from(offset);
    if start + HEADER_BYTES as u64 > size {
        return Ok(None);
    }
    let mut head = [0; HEADER_BYTES];
    file.read_at(&mut head, start).map_err(|error| unreadable(segments, segment, start, &error))?;
    let Some(header) = Header::read(&head, segment, offset) else { return Ok(None) };
    let body = start + HEADER_BYTES as u64;
    // The length is not trusted before the checksum is.
    if body + u64::from(header.length) > size {
        return Ok(None);
    }
    let mut payload = vec![0; header.length as usize];
    file.read_at(&mut payload, body).map_err(|error| unreadable(segments, segment, body, &error))?;
    Ok(Header::holds(&head, &payload, segments.salt).then(|| (header, Bytes::from(payload))))
}

/// Gives every record of the batch at a place to `visit`; its numbers, or `None` when there is none.
///
/// # Errors
///
/// [`Error::Corrupt`] when a record in it cannot be read; those of the visitor.
pub(in crate::store) fn batch(
    segments: &Segments,
    segment: u32,
    offset: u32,
    mut visit: impl FnMut(Record, Place) -> Result<(), Error>,
) -> Result<Option<Header>, Error> {
    let Some((header, payload)) = valid_batch(segments, segment, offset)? else { return Ok(None) };
    each_record(segments, &header, &payload, &mut visit)?;
    Ok(Some(header))
}

/// The numbers of the batch at a place, whatever its records say.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn header(segments: &Segments, segment: u32, offset: u32) -> Result<Option<Header>, Error> {
    Ok(valid_batch(segments, segment, offset)?.map(|(header, _)| header))
}

/// The first valid batch of a segment at `from` or behind.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn next_batch(segments: &Segments, segment: u32, from: u32) -> Result<Option<u32>, Error> {
    Ok(search(segments, segment, from, 0)?.map(|header| header.offset))
}

/// What keeps the log from reaching as far as `at`, with the offset in `at`'s segment; `None` when the batch before is there and whole.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn short_of(segments: &Segments, at: &Cursor) -> Result<Option<(u32, String)>, Error> {
    if at.offset == 0 {
        return Ok((!segments.has(at.segment)).then(|| (0, "the segment is missing".into())));
    }
    let before = valid_batch(segments, at.segment, at.before)?;
    if before.is_some_and(|(header, _)| header.number + 1 == at.batch && header.end() == u64::from(at.offset)) {
        return Ok(None);
    }
    let number = at.batch.saturating_sub(1);
    Ok(Some((at.before, format!("batch {number} is missing or damaged, and the last checkpoint found it durable"))))
}

/// Gives every record of one segment to `visit`, wherever the log begins.
///
/// # Errors
///
/// [`Error::Corrupt`] when there are batches behind its last good one; those of the visitor.
pub(in crate::store) fn segment(
    segments: &Segments,
    number: u32,
    mut visit: impl FnMut(Record, Place) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut offset = 0;
    while let Some((header, payload)) = valid_batch(segments, number, offset)? {
        each_record(segments, &header, &payload, &mut visit)?;
        offset = header.next_offset();
    }
    match search(segments, number, offset, 0)? {
        None => Ok(()),
        Some(later) => Err(Error::Corrupt(format!(
            "{} at offset {offset}: no valid batch, while there is one at offset {}",
            segments.path(number).display(),
            later.offset,
        ))),
    }
}

/// Gives every record of a batch to `visit`.
pub(super) fn each_record(
    segments: &Segments,
    header: &Header,
    payload: &Bytes,
    visit: &mut impl FnMut(Record, Place) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = 0;
    for _ in 0..header.records {
        let place_offset = u64::from(header.offset) + (HEADER_BYTES + at) as u64;
        let damaged = |Damaged(what): Damaged| {
            // The batch's checksum holds, so this was written so: a newer version, or a fault of ours.
            let path = segments.path(header.segment);
            Error::Corrupt(format!("{} at offset {place_offset}: {what}; is it of a newer version?", path.display()))
        };
        let frame = payload.slice(at.min(payload.len())..);
        let read = record::frame_payload(&frame).and_then(|p| record::decode(&p).map(|record| (record, p.len())));
        let (record, length) = read.map_err(damaged)?;
        let length = length + FRAME_BYTES;
        let place = Place {
            segment: header.segment,
            offset: u32::try_from(place_offset).unwrap_or(u32::MAX),
            length: u32::try_from(length).unwrap_or(u32::MAX),
        };
        visit(record, place)?;
        at += length;
    }
    Ok(())
}

/// Turns everything behind the end of the log into zeros, durably. The answer is how many bytes were not.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn cut(segments: &Segments, end: &Cursor) -> Result<u64, Error> {
    let mut removed = 0;
    for segment in segments.numbers().into_iter().filter(|&number| number >= end.segment) {
        let from = if segment == end.segment { u64::from(end.offset) } else { 0 };
        removed += zero(segments, segment, from).map_err(|error| unreadable(segments, segment, from, &error))?;
    }
    Ok(removed)
}

fn zero(segments: &Segments, segment: u32, from: u64) -> std::io::Result<u64> {
    let file = segments.open(segment)?;
    let mut removed = 0;
    each_window(&*file, from, |start, bytes| {
        let dirty = dirty(bytes);
        if dirty > 0 {
            bytes.fill(0);
            file.write_at(bytes, start)?;
            removed += dirty;
        }
        Ok(())
    })?;
    if removed > 0 {
        file.sync()?;
    }
    Ok(removed)
}

/// Writes a part of a segment again as it is, durably. After a sync that failed the kernel takes pages for clean that never reached the
/// disk: they are read as if they had, and another sync has nothing to do. Only what is written again is on its way to the disk.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn write_again(
    segments: &Segments,
    segment: u32,
    part: std::ops::Range<u32>,
) -> Result<(), Error> {
    if part.is_empty() {
        return Ok(());
    }
    let file = open(segments, segment)?;
    let mut bytes = vec![0; part.len()];
    let start = u64::from(part.start);
    file.read_at(&mut bytes, start).map_err(|error| unreadable(segments, segment, start, &error))?;
    file.write_at(&bytes, start).and_then(|()| file.sync()).map_err(|error| {
        Error::Unavailable(format!("cannot write to {} at {start}: {error}", segments.path(segment).display()))
    })
}

/// How many bytes of a segment at `from` or behind are not zeros: what [`cut`] would remove there.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn rest(segments: &Segments, segment: u32, from: u32) -> Result<u64, Error> {
    let mut rest = 0;
    let read = each_window(&*open(segments, segment)?, u64::from(from), |_, bytes| {
        rest += dirty(bytes);
        Ok(())
    });
    read.map_err(|error| unreadable(segments, segment, u64::from(from), &error))?;
    Ok(rest)
}

fn dirty(bytes: &[u8]) -> u64 {
    if is_untouched(bytes) {
        return 0;
    }
    bytes.iter().filter(|byte| **byte != 0).count() as u64
}

/// Reads a file from `from` to its end and gives it in parts, each with its offset.
fn each_window(
    file: &dyn DiskFile,
    from: u64,
    mut visit: impl FnMut(u64, &mut [u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let size = file.size()?;
    let mut window = vec![0; WINDOW_BYTES];
    let mut start = from;
    while start < size {
        let length = usize::try_from(size - start).unwrap_or(usize::MAX).min(WINDOW_BYTES);
        let bytes = window.get_mut(..length).expect("no longer than the window");
        file.read_at(bytes, start)?;
        visit(start, bytes)?;
        start += length as u64;
    }
    Ok(())
}
