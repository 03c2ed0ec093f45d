//! The log: the truth of the embedded store.
//!
//! Segment files, each filled from front to back with batches (`batch.rs`); `scan.rs` reads them again after a restart. One thread
//! writes, through [`Log`]; everybody reads, through [`Segments`].
//!
//! # What holds
//!
//! - A batch lies whole in one segment. The next segment exists before the present one is full (the *reserve*), so that a
//!   full disk does not stop settlements.
//! - Behind the last batch of a segment are zeros, or the rest of a write that failed; nothing there passes for a batch.
//! - After a failed sync nothing is ever written again.

pub(in crate::store) mod batch;
pub(in crate::store) mod scan;
pub(in crate::store) mod segments;

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::DiskFile;
use super::{Error, wire};
use batch::{END, HEADER_BYTES, Header, align};
pub(in crate::store) use segments::Segments;

/// Where a record's frame stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::store) struct Place {
    /// The segment's number.
    pub(in crate::store) segment: u32,
    /// The frame's first byte in it.
    pub(in crate::store) offset: u32,
    /// The frame's length.
    pub(in crate::store) length: u32,
}

impl Place {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        wire::put_number(out, u64::from(self.segment));
        wire::put_number(out, u64::from(self.offset));
        wire::put_number(out, u64::from(self.length));
    }

    pub(super) fn read(reader: &mut wire::Reader<'_>) -> Result<Self, wire::Damaged> {
        Ok(Self {
            segment: reader.number_u32("a place")?,
            offset: reader.number_u32("a place")?,
            length: reader.number_u32("a place")?,
        })
    }
}

/// A point between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Cursor {
    /// The segment of the next batch.
    pub(in crate::store) segment: u32,
    /// Its offset.
    pub(in crate::store) offset: u32,
    /// Its number.
    pub(in crate::store) batch: u64,
    /// The last batch known to be durable.
    pub(in crate::store) durable: u64,
    /// The seq that the next event gets.
    pub(in crate::store) next_seq: u64,
    /// The offset of the batch before, where that stands in the same segment.
    pub(in crate::store) before: u32,
}

impl Cursor {
    /// The beginning of a log that has no batch yet.
    pub(in crate::store) const START: Self =
        Self { segment: 1, offset: 0, batch: 1, durable: 0, next_seq: 1, before: 0 };
}

/// What became of a write.
#[derive(Debug)]
pub(in crate::store) enum WriteError {
    /// Nothing of it is in the log; there is no room.
    Full(String),
    /// Nothing of it is in the log; another try may succeed.
    Later(String),
    /// Unknown; nothing may be written any more.
    Broken(String),
}

impl WriteError {
    /// What an error of a write says. Only where the file system took nothing, or is known to have taken a part alone, may it be tried
    /// again.
    fn of(error: &io::Error) -> Self {
        let said = format!("cannot write to the log: {error}");
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(said),
            io::ErrorKind::ReadOnlyFilesystem => Self::Later(said),
            _ => Self::Broken(said),
        }
    }

    /// The same of a segment that could not be made: nothing was written to the log.
    fn of_segment(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(format!("no room for a log segment: {error}"))
            }
            _ => Self::Later(format!("cannot make a log segment: {error}")),
        }
    }
}

/// The segment that comes next, made ahead. The upkeep fills it, the writer takes it.
#[derive(Default)]
pub(in crate::store) struct Reserve {
    next: Mutex<Option<(u32, Arc<dyn DiskFile>)>>,
}

impl Reserve {
    /// Makes segment `number` unless it is there.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(in crate::store) fn fill(&self, segments: &Segments, number: u32, size: u64) -> io::Result<()> {
        let mut next = self.next.lock();
        // The upkeep may ask for a segment that the writer has entered meanwhile: the later number stays.
        if next.as_ref().is_none_or(|(there, _)| *there < number) {
            *next = Some((number, segments.provide(number, size)?));
        }
        Ok(())
    }

    fn take(&self, number: u32) -> Option<Arc<dyn DiskFile>> {
        self.next.lock().take_if(|(there, _)| *there == number).map(|(_, file)| file)
    }
}

/// The writing end of the log.
pub(in crate::store) struct Log {
    segments: Arc<Segments>,
    reserve: Arc<Reserve>,
    segment_bytes: u64,
    head: Arc<dyn DiskFile>,
    head_size: u64,
    at: Cursor,
    /// Bytes behind the end that a failed write may have left.
    unclean: usize,
}

impl Log {
    /// Opens the log for writing at `at`, the end that a scan found. The present segment and the reserve exist afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::Unavailable`], as the file system says.
    pub(in crate::store) fn open(
        segments: Arc<Segments>,
        reserve: Arc<Reserve>,
        segment_bytes: u64,
        at: Cursor,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull => Error::Full(format!("no room for a log segment: {error}")),
            _ => Error::Unavailable(format!("cannot open {}: {error}", segments.path(at.segment).display())),
        };
        if !segments.has(at.segment) {
            segments.create(at.segment, segment_bytes).map_err(failed)?;
        } else if segments.size(at.segment) < segment_bytes {
            segments.lengthen(at.segment, segment_bytes).map_err(failed)?;
        }
        let head = segments.open(at.segment).map_err(failed)?;
        // What was read may be in the page cache alone, and from here on it counts as durable. (What a failed sync may have left there
        // was written again: `scan::write_again`.)
        head.sync().map_err(failed)?;
        let at = Cursor { durable: at.batch - 1, ..at };
        let head_size = segments.size(at.segment);
        // A full disk must not keep a store from opening: it opens to be emptied.
        match reserve.fill(&segments, at.segment + 1, segment_bytes) {
            Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(failed(error)),
            _ => {}
        }
        Ok(Self { segments, reserve, segment_bytes, head, head_size, at, unclean: 0 })
    }

    /// Where the next batch goes.
    #[must_use]
    pub(in crate::store) fn cursor(&self) -> Cursor {
        self.at
    }

    /// Whether a batch with this much payload fits the present segment.
    #[must_use]
    pub(in crate::store) fn fits(&self, payload: usize) -> bool {
        u64::from(self.at.offset) + (HEADER_BYTES + payload + 1) as u64 <= self.head_size
    }

    /// Goes on in the next segment, which will take a batch with `payload` bytes. With `spare` another one must exist
    /// behind it, so that new events never take the last room of settlements.
    ///
    /// # Errors
    ///
    /// [`WriteError::Full`] and [`WriteError::Later`]: nothing has changed.
    pub(in crate::store) fn roll(&mut self, payload: usize, spare: bool) -> Result<(), WriteError> {
        // A segment that is left is durable, whatever `durability` says: only the last one can have an end that is torn.
        self.sync()?;
        self.clean()?;
        let number = self.at.segment + 1;
        let needed = align((HEADER_BYTES + payload + 1) as u64);
        let failed = |error: io::Error| WriteError::of_segment(&error);
        if needed > self.segment_bytes {
            return self.roll_large(number, needed).map_err(failed);
        }
        self.reserve.fill(&self.segments, number, self.segment_bytes).map_err(failed)?;
        let Some(file) = self.reserve.take(number) else {
            return Err(WriteError::Full("no log segment is left".into()));
        };
        // Made now, in this thread, only when the upkeep was too slow, or the disk is nearly full.
        if let Err(error) = self.reserve.fill(&self.segments, number + 1, self.segment_bytes)
            && spare
        {
            *self.reserve.next.lock() = Some((number, file));
            return Err(failed(error));
        }
        self.enter(number, file, self.segment_bytes);
        Ok(())
    }

    /// One event larger than a segment gets a segment of its size, in the reserve's place.
    fn roll_large(&mut self, number: u32, size: u64) -> io::Result<()> {
        let made = {
            let mut next = self.reserve.next.lock();
            *next = None;
            self.segments.create(number, size)
        };
        match made {
            Ok(file) => self.enter(number, file, size),
            Err(error) => {
                drop(self.reserve.fill(&self.segments, number, self.segment_bytes));
                return Err(error);
            }
        }
        drop(self.reserve.fill(&self.segments, number + 1, self.segment_bytes));
        Ok(())
    }

    fn enter(&mut self, number: u32, file: Arc<dyn DiskFile>, size: u64) {
        self.head = file;
        self.head_size = size;
        self.at.segment = number;
        self.at.offset = 0;
        self.at.before = 0;
    }

    /// Writes a batch: `bytes` has [`HEADER_BYTES`] of room before the payload. Not synced yet.
    ///
    /// # Errors
    ///
    /// After [`WriteError::Full`] and [`WriteError::Later`] the log is as it was.
    pub(in crate::store) fn write(
        &mut self,
        bytes: &mut Vec<u8>,
        records: u32,
        next_seq: u64,
    ) -> Result<(), WriteError> {
        self.clean()?;
        bytes.push(END);
        let length = u32::try_from(bytes.len().saturating_sub(HEADER_BYTES))
            .map_err(|_| WriteError::Broken("a batch of more than 4 GiB".into()))?;
        let header = Header {
            length,
            records,
            segment: self.at.segment,
            offset: self.at.offset,
            number: self.at.batch,
            durable: self.at.durable,
            next_seq,
        };
        header.seal(bytes, self.segments.salt);
        if let Err(error) = self.head.write_at(bytes, u64::from(self.at.offset)) {
            let failed = WriteError::of(&error);
            if !matches!(failed, WriteError::Broken(_)) {
                // What was written of it is not a batch, since its last byte was not. It goes all the same, before anything
                // else is written; when that fails too, the next write begins with it.
                self.unclean = bytes.len();
                drop(self.clean());
            }
            return Err(failed);
        }
        self.at.before = self.at.offset;
        self.at.offset = u32::try_from(header.end()).unwrap_or(u32::MAX);
        self.at.batch += 1;
        self.at.next_seq = next_seq;
        Ok(())
    }

    /// Zeros where a failed write was.
    fn clean(&mut self) -> Result<(), WriteError> {
        if self.unclean == 0 {
            return Ok(());
        }
        let zeros = vec![0; self.unclean];
        self.head.write_at(&zeros, u64::from(self.at.offset)).map_err(|error| WriteError::of(&error))?;
        self.unclean = 0;
        Ok(())
    }

    /// Whether the disk takes writes, without writing anything: zeros go where there are zeros. A batch with no payload must
    /// [fit](Self::fits).
    ///
    /// # Errors
    ///
    /// Those of [`Self::write`].
    pub(in crate::store) fn probe(&mut self) -> Result<(), WriteError> {
        self.clean()?;
        self.head.write_at(&[0; HEADER_BYTES], u64::from(self.at.offset)).map_err(|error| WriteError::of(&error))
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    ///
    /// [`WriteError::Broken`] always: the pages may be gone, and another sync would prove nothing.
    pub(in crate::store) fn sync(&mut self) -> Result<(), WriteError> {
        if self.at.durable + 1 == self.at.batch {
            return Ok(());
        }
        self.head.sync().map_err(|error| WriteError::Broken(format!("fdatasync failed: {error}")))?;
        self.at.durable = self.at.batch - 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
