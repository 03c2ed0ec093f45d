//! The checkpoint file: from where the log is read again, and what the index has up to there.
//!
//! A checkpoint is written whole, with all rows of its delta, *before* any of it goes into the index, and is in force as soon
//! as it has its name. If the process dies while the index takes it in, the next one takes it in again from the
//! file: everything in it is absolute, so a half that is there already does no harm. The index is thus
//! always exactly at a checkpoint when the log is read on from there, and nothing else has to care about halves.
//! (The delta is written once more for that: about 200 bytes an event, in sequence, once a checkpoint.)
//!
//! `checkpoint` is the file, `applied` has the number of the one that the index has durably.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::event::Wall;
use crate::store::Error;
use crate::store::bucket::Bucket;
use crate::store::disk::Disk;
use crate::store::index::{counts_from, put_counts};
use crate::store::log::Cursor;
use crate::store::moments::Moments;
use crate::store::repeats;
use crate::store::row::Row;
use crate::store::state::{Base, Delta, Entry, Held, LaneEntry, Sums};
use crate::store::wire::{Damaged, Reader, put_lane, put_number, put_option};

/// The last letter is the version, of this file and of the index: one of another version is built again from the log.
const MARK: &[u8; 8] = b"FLCHECK5";

/// What stands in the file.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// The how-manieth.
    pub(super) number: u64,
    /// Where the log goes on.
    pub(super) cursor: Cursor,
    /// Sums over all events at that point.
    pub(super) sums: Sums,
}

/// The two files.
pub(super) struct Files {
    checkpoint: PathBuf,
    applied: PathBuf,
}

impl Files {
    pub(super) fn in_dir(dir: &Path) -> Self {
        Self { checkpoint: dir.join("checkpoint"), applied: dir.join("applied") }
    }

    /// Puts a checkpoint into force.
    ///
    /// # Errors
    ///
    /// Those of the file system; the one before is then still in force.
    pub(super) fn write(&self, disk: &dyn Disk, checkpoint: &Checkpoint, delta: &Delta) -> std::io::Result<()> {
        disk.replace(&self.checkpoint, &seal(&encode(checkpoint, delta)))
    }

    /// Notes that the index has it.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn write_applied(&self, disk: &dyn Disk, number: u64) -> std::io::Result<()> {
        disk.replace(&self.applied, &seal(&number.to_le_bytes()))
    }

    /// Reads the checkpoint in force, with the delta that belongs into the index; `None` when there is none, or not a whole one.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn read(&self, disk: &dyn Disk) -> Result<Option<(Checkpoint, Delta)>, Error> {
        let bytes = read_file(disk, &self.checkpoint)?;
        Ok(bytes.as_deref().and_then(unseal).and_then(|body| decode(body).ok()))
    }

    /// The number of the checkpoint that the index has durably; 0 for none.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn applied(&self, disk: &dyn Disk) -> Result<u64, Error> {
        let bytes = read_file(disk, &self.applied)?;
        let number = bytes.as_deref().and_then(unseal).and_then(|body| body.try_into().ok());
        Ok(number.map_or(0, u64::from_le_bytes))
    }

    /// Takes both away: the index will be built from the whole log.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn remove(&self, disk: &dyn Disk) -> Result<(), Error> {
        for path in [&self.checkpoint, &self.applied] {
            match disk.remove(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(path, &error)),
                _ => {}
            }
        }
        let dir = self.checkpoint.parent().unwrap_or_else(|| Path::new("."));
        disk.sync_dir(dir).map_err(|error| unavailable(dir, &error))
    }
}

/// The place of the checkpoint in force in a data directory; `None` when there is none.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn cursor(dir: &Path, disk: &dyn Disk) -> Result<Option<Cursor>, Error> {
    Ok(Files::in_dir(dir).read(disk)?.map(|(checkpoint, _)| checkpoint.cursor))
}

fn unavailable(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}

fn read_file(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let file = match disk.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| unavailable(path, &error))?,
    };
    let size = file.size().map_err(|error| unavailable(path, &error))?;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_at(&mut bytes, 0).map_err(|error| unavailable(path, &error))?;
    Ok(Some(bytes))
}

/// Mark, length and checksum before the body.
fn seal(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 20);
    bytes.extend_from_slice(MARK);
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.strip_prefix(MARK)?.split_first_chunk::<8>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let body = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*crc)).then_some(body)
}

fn encode(checkpoint: &Checkpoint, delta: &Delta) -> Vec<u8> {
    let mut out = Vec::with_capacity(delta.rows.len() * 256 + 4096);
    let Cursor { segment, offset, batch, durable, next_seq, before } = checkpoint.cursor;
    put_number(&mut out, checkpoint.number);
    for number in [u64::from(segment), u64::from(offset), batch, durable, next_seq, u64::from(before)] {
        put_number(&mut out, number);
    }
    put_sums(&mut out, &checkpoint.sums);
    put_number(&mut out, delta.lanes.len() as u64);
    for (lane, entry) in &delta.lanes {
        put_lane(&mut out, lane);
        put_counts(&mut out, &entry.counts);
    }
    put_number(&mut out, delta.rows.len() as u64);
    for entry in delta.rows.values() {
        put_entry(&mut out, entry);
    }
    put_number(&mut out, delta.known.len() as u64);
    for (hash, known) in &delta.known {
        repeats::put(&mut out, hash, known);
    }
    out
}

fn decode(body: &[u8]) -> Result<(Checkpoint, Delta), Damaged> {
    let mut reader = Reader::new(body);
    let number = reader.number("a checkpoint's number")?;
    let cursor = Cursor {
        segment: reader.number_u32("a segment")?,
        offset: reader.number_u32("an offset")?,
        batch: reader.number("a batch's number")?,
        durable: reader.number("a batch's number")?,
        next_seq: reader.number("a seq")?,
        before: reader.number_u32("an offset")?,
    };
    let sums = read_sums(&mut reader)?;
    let mut delta = Delta::default();
    for (lane, counts) in reader.list("the lanes", |r| Ok((r.lane()?, counts_from(r)?)))? {
        delta.lanes.insert(lane, LaneEntry { counts, fresh: BTreeSet::new() });
    }
    for entry in reader.list("the rows", read_entry)? {
        if !entry.gone {
            delta.ids.insert(entry.row.id, entry.row.seq);
        }
        if entry.row.is_pending() && !entry.gone {
            delta.due.extend(entry.row.state.due.map(|due| (due, entry.row.seq.0)));
        }
        delta.rows.insert(entry.row.seq.0, Box::new(entry));
    }
    delta.known.extend(reader.list("the fingerprints", repeats::read)?);
    reader.end()?;
    Ok((Checkpoint { number, cursor, sums }, delta))
}

fn put_sums(out: &mut Vec<u8>, sums: &Sums) {
    put_number(out, sums.lanes);
    sums.received.put(out);
    put_number(out, sums.held.len() as u64);
    for (bucket, held) in &sums.held {
        put_option(out, *bucket, |out, bucket| bucket.put(out));
        put_number(out, held.rows);
        held.ends.put(out);
        put_number(out, held.pins.len() as u64);
        for (&segment, &bytes) in &held.pins {
            put_number(out, u64::from(segment));
            put_number(out, bytes);
        }
    }
    put_number(out, sums.refs.len() as u64);
    for (&segment, births) in &sums.refs {
        put_number(out, u64::from(segment));
        put_number(out, births.len() as u64);
        births.iter().for_each(|&birth| put_number(out, u64::from(birth)));
    }
}

fn read_sums(reader: &mut Reader<'_>) -> Result<Sums, Damaged> {
    let lanes = reader.number("the lanes")?;
    let received = Moments::read(reader)?;
    let held = reader.list("the sums", |r| {
        let bucket = r.option("a bucket", Bucket::read)?;
        let rows = r.number("a sum")?;
        let ends = Moments::read(r)?;
        let pins: BTreeMap<u32, u64> =
            r.list("the pins", |r| Ok((r.number_u32("a pin")?, r.number("a pin")?)))?.into_iter().collect();
        Ok((bucket, Held { rows, pins, ends }))
    })?;
    let refs = reader.list("the births", |r| {
        let segment = r.number_u32("a segment")?;
        let births: BTreeSet<u32> = r.list("the births", |r| r.number_u32("a birth"))?.into_iter().collect();
        Ok((segment, births))
    })?;
    Ok(Sums { lanes, received, held: held.into_iter().collect(), refs: refs.into_iter().collect() })
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.push(u8::from(entry.gone));
    put_option(out, entry.base, |out, base| match base {
        Base::Fresh => out.push(1),
        Base::Open => out.push(2),
        Base::Due(Wall(due)) => {
            out.push(3);
            put_number(out, due);
        }
        Base::Ended(bucket) => {
            out.push(4);
            bucket.put(out);
        }
    });
    entry.row.put(out);
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, Damaged> {
    let gone = reader.flag("a row's mark")?;
    let base = reader.option("a row's base", |r| {
        Ok(match r.byte("a row's base")? {
            1 => Base::Fresh,
            2 => Base::Open,
            3 => Base::Due(r.wall("a due time")?),
            4 => Base::Ended(Bucket::read(r)?),
            _ => return Err(Damaged("a row's base")),
        })
    })?;
    Ok(Entry { row: Row::read(reader)?, base, gone })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::sim::Sim;

    #[test]
    fn a_checkpoint_is_read_back_and_a_damaged_one_is_none() {
        let disk = Sim::new();
        let files = Files::in_dir(Path::new("/d"));
        assert!(files.read(&disk).expect("readable").is_none());
        let mut sums = Sums { lanes: 3, ..Sums::default() };
        sums.held.insert(None, Held { rows: 5, pins: BTreeMap::from([(1, 70), (9, 1)]), ends: Moments::default() });
        sums.refer(4, &[2, 3]);
        let checkpoint = Checkpoint { number: 8, cursor: Cursor { next_seq: 77, ..Cursor::START }, sums };
        files.write(&disk, &checkpoint, &Delta::default()).expect("written");
        let (read, delta) = files.read(&disk).expect("readable").expect("whole");
        assert_eq!((read.number, read.cursor, read.sums), (8, checkpoint.cursor, checkpoint.sums));
        assert!(delta.rows.is_empty());
        let path = Path::new("/d/checkpoint");
        let length = disk.bytes(path).expect("there").len();
        for at in 0..length {
            let copy = disk.copy();
            copy.damage(path, |bytes| bytes[at] ^= 1);
            assert!(files.read(&copy).expect("readable").is_none(), "byte {at}");
        }
        files.write_applied(&disk, 8).expect("written");
        assert_eq!(files.applied(&disk), Ok(8));
    }
}
