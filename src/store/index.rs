//! The index: fjall, written at checkpoints only and given back by the log when it is lost.
//!
//! One keyspace, `pending`, for events that wait, and one for each bucket of ended ones, so that giving up a bucket is
//! dropping a keyspace. Keys begin with a letter:
//!
//! | letter | key | value | where |
//! | --- | --- | --- | --- |
//! | `r` | seq | row | both |
//! | `i` | event id | seq | both |
//! | `g` | hash of the group, seq | | both |
//! | `p` | hash of the provider's id, seq | | both |
//! | `f` | hash of the lane, seq | | pending: fresh |
//! | `d` | due time, seq | | pending: retrying |
//! | `o` | seq | | pending: open |
//! | `l` | lane's name | its counts | pending |
//! | `z` | number of a block of seqs | when the first and the last event in it were received | both |
//! | `m` | | number of the checkpoint that was brought in last | pending |
//!
//! And one for each span of time in which windows of fingerprints end (`repeats.rs`): the keys are the hashes, the values what is known by them.
//!
//! Everything that goes in is absolute: bringing a checkpoint in twice, or half and then whole, gives the same.

mod apply;
mod keys;
mod walk;
mod zones;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::PartitioningPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use parking_lot::{Mutex, RwLock};

use super::Error;
use super::bucket::{Bucket, Family};
use super::repeats::{Hash, Known, Span};
use super::row::Row;
use super::state::Counts;
use super::wire::{self, Reader};
use crate::event::{EventId, Lane, Seq, Wall};

pub(super) use apply::ApplyError;
pub(super) use keys::{counts_from, put_counts};
use keys::{
    hash_key, id_key, lane_hash, lane_key, last_seq, read_counts, read_lane_key, read_timed, seq_key, timed_bytes,
    timed_key,
};
pub(super) use walk::{Walk, Wanted};

/// Small memtables shorten the stalls of their flushes (and are frozen in the keyspace at its creation).
const MEMTABLE_BYTES: u64 = 8 << 20;
/// Opening replays the journal: 64 MiB of it keep that below a second.
const JOURNAL_BYTES: u64 = 64 << 20;
/// The descriptor cache never forgets files of dropped keyspaces; a small one gives their space back.
const CACHED_FILES: usize = 32;
/// Tables of a keyspace, one a checkpoint, that are merged into its older ones at a time. Their keys lie all over those of the older ones, so
/// a merge writes these again too: the more are merged at once, the less often that is. What is read looks into each of them.
const FRESH_TABLES: u8 = 8;
/// Blocks of the index in memory.
const CACHE_BYTES: u64 = 32 << 20;

/// How changes go in; see [`Options`](super::embedded::Options).
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Changes that are committed together.
    pub(super) batch: usize,
    /// From how many changes on a keyspace's share goes in as a table of its own.
    pub(super) bulk: usize,
}

/// An open index.
pub(super) struct Index {
    sizes: Sizes,
    db: Database,
    pending: Keyspace,
    buckets: RwLock<BTreeMap<Bucket, Keyspace>>,
    spans: RwLock<BTreeMap<Span, Keyspace>>,
    floors: Mutex<Floors>,
}

/// Below this key there is nothing, so that a scan does not wade through what was deleted at the front of the queue.
#[derive(Default)]
struct Floors {
    changes: u64,
    due: [u8; 16],
}

fn failed(error: &fjall::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        // The file system's troubles pass or are seen elsewhere; anything else is about what the files say.
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && !matches!(io.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
        {
            return Error::Unavailable(format!("the index cannot be read: {io}"));
        }
        cause = inner.source();
    }
    Error::Corrupt(format!("the index cannot be read ({error}); a restart builds it again from the log"))
}

fn damaged(what: wire::Damaged) -> Error {
    Error::Corrupt(format!("the index is damaged ({what}); a restart builds it again from the log"))
}

/// Filters and block indexes come in parts: a whole filter of a large table is more than the cache takes, and would be read
/// and checked again for every key that is asked for (1.2 ms each).
fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(FRESH_TABLES)))
        .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
}

impl Index {
    /// Opens the index in `path`, or makes one there.
    ///
    /// # Errors
    ///
    /// Whatever fjall says, in words: the caller builds the index anew.
    pub(super) fn open(path: &Path, sizes: Sizes) -> Result<Self, String> {
        Self::try_open(path, sizes).map_err(|error| error.to_string())
    }

    fn try_open(path: &Path, sizes: Sizes) -> Result<Self, fjall::Error> {
        let db = Database::builder(path)
            .max_journaling_size(JOURNAL_BYTES)
            .max_cached_files(Some(CACHED_FILES))
            .cache_size(CACHE_BYTES)
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()?;
        let pending = db.keyspace("pending", options)?;
        let (mut buckets, mut spans) = (BTreeMap::new(), BTreeMap::new());
        for name in db.list_keyspace_names() {
            if let Some(bucket) = Bucket::from_name(&name) {
                buckets.insert(bucket, db.keyspace(&name, options)?);
            } else if let Some(span) = Span::from_name(&name) {
                spans.insert(span, db.keyspace(&name, options)?);
            }
        }
        zones::forget_before_first(&pending)?;
        Ok(Self {
            sizes,
            db,
            pending,
            buckets: RwLock::new(buckets),
            spans: RwLock::new(spans),
            floors: Mutex::default(),
        })
    }

    /// The checkpoint that was brought in last; 0 for a new index.
    pub(super) fn number(&self) -> Result<u64, Error> {
        let value = self.pending.get(b"m").map_err(|error| failed(&error))?;
        let Some(value) = value else { return Ok(0) };
        Reader::new(&value).number("the index's number").map_err(damaged)
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.db.disk_space().unwrap_or(0)
    }

    /// Buckets that have a keyspace.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        self.buckets.read().keys().copied().collect()
    }

    /// Drops a bucket's keyspace.
    pub(super) fn drop_bucket(&self, bucket: Bucket) -> Result<(), Error> {
        let Some(keyspace) = self.buckets.write().remove(&bucket) else { return Ok(()) };
        self.db.delete_keyspace(keyspace).map_err(|error| failed(&error))
    }

    /// Drops the keyspaces of fingerprints whose windows are all over at `now`.
    pub(super) fn drop_spans(&self, now: Wall) -> Result<(), Error> {
        let over: Vec<Span> = self.spans.read().keys().filter(|span| span.end() <= now).copied().collect();
        for span in over {
            let Some(keyspace) = self.spans.write().remove(&span) else { continue };
            self.db.delete_keyspace(keyspace).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    // Reading.

    /// The event that has a fingerprint. Nearly every new one has none, and the filters of at most three keyspaces say so.
    pub(super) fn known(&self, hash: &Hash) -> Result<Option<Known>, Error> {
        let mut found = None;
        for keyspace in self.spans.read().values() {
            let value = keyspace.get(hash).map_err(|error| failed(&error))?;
            let known = value.map(|value| Known::read(&mut Reader::new(&value)).map_err(damaged)).transpose()?;
            found = found.max(known);
        }
        Ok(found)
    }

    /// Whether an event is among the dead letters.
    pub(super) fn has_dead(&self, id: EventId) -> Result<bool, Error> {
        let key = id_key(id);
        for (_, keyspace) in self.buckets.read().iter().filter(|(bucket, _)| bucket.family == Family::Dead) {
            if keyspace.contains_key(key).map_err(|error| failed(&error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn get_row(keyspace: &Keyspace, seq: Seq) -> Result<Option<Row>, Error> {
        let value = keyspace.get(seq_key(b'r', seq)).map_err(|error| failed(&error))?;
        value.map(|value| Row::read(&mut Reader::new(&value)).map_err(damaged)).transpose()
    }

    /// The row of a pending event.
    pub(super) fn pending_row(&self, seq: Seq) -> Result<Option<Row>, Error> {
        Self::get_row(&self.pending, seq)
    }

    /// The row of an ended event.
    pub(super) fn ended_row(&self, seq: Seq) -> Result<Option<Row>, Error> {
        for keyspace in self.buckets.read().values().rev() {
            if let Some(row) = Self::get_row(keyspace, seq)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// The row of an event, pending or ended.
    pub(super) fn row(&self, seq: Seq) -> Result<Option<Row>, Error> {
        match self.pending_row(seq)? {
            Some(row) => Ok(Some(row)),
            None => self.ended_row(seq),
        }
    }

    /// The seqs under which an event id is known: one, or two while a requeue is on its way in.
    pub(super) fn seqs_of(&self, id: EventId) -> Result<Vec<Seq>, Error> {
        let key = id_key(id);
        let mut seqs = Vec::new();
        let buckets = self.buckets.read();
        for keyspace in std::iter::once(&self.pending).chain(buckets.values().rev()) {
            if let Some(value) = keyspace.get(key).map_err(|error| failed(&error))? {
                seqs.push(Seq(Reader::new(&value).number("a seq").map_err(damaged)?));
            }
        }
        Ok(seqs)
    }

    /// A lane's counts; zeros when it has no pending event here.
    pub(super) fn counts(&self, lane: &Lane) -> Result<Counts, Error> {
        let value = self.pending.get(lane_key(lane)).map_err(|error| failed(&error))?;
        let Some(value) = value else { return Ok(Counts::default()) };
        read_counts(&value).map_err(damaged)
    }

    /// Lanes after `after` in the order of their names, at most `limit`.
    pub(super) fn lanes(&self, after: Option<&Lane>, limit: usize) -> Result<Vec<(Lane, Counts)>, Error> {
        let from = after.map_or_else(
            || b"l".to_vec(),
            |lane| {
                // No name begins with another whole one, so the next key is the first behind it.
                let mut key = lane_key(lane);
                key.push(0);
                key
            },
        );
        let mut lanes = Vec::new();
        for guard in self.pending.range(from..b"m".to_vec()).take(limit) {
            let (key, value) = guard.into_inner().map_err(|error| failed(&error))?;
            let lane = read_lane_key(&key).ok_or(wire::Damaged("a lane's name")).map_err(damaged)?;
            lanes.push((lane, read_counts(&value).map_err(damaged)?));
        }
        Ok(lanes)
    }

    /// Seqs of a lane's fresh events above `after`, ascending, at most `limit`.
    pub(super) fn fresh(&self, lane: &Lane, after: Seq, limit: usize) -> Result<Vec<Seq>, Error> {
        let hash = lane_hash(lane);
        let range = hash_key(b'f', hash, after.0.saturating_add(1))..=hash_key(b'f', hash, u64::MAX);
        self.seqs(self.pending.range(range), limit)
    }

    /// Seqs of open events above `after`, ascending, at most `limit`.
    pub(super) fn open_seqs(&self, after: Seq, limit: usize) -> Result<Vec<Seq>, Error> {
        let range = seq_key(b'o', Seq(after.0.saturating_add(1)))..=seq_key(b'o', Seq(u64::MAX));
        self.seqs(self.pending.range(range), limit)
    }

    fn seqs(&self, iter: fjall::Iter, limit: usize) -> Result<Vec<Seq>, Error> {
        iter.take(limit)
            .map(|guard| {
                let key = guard.key().map_err(|error| failed(&error))?;
                last_seq(&key).ok_or(wire::Damaged("a key")).map_err(damaged)
            })
            .collect()
    }

    /// Due times and seqs of retrying events after `after`, ascending, at most `limit`.
    pub(super) fn due(&self, after: (Wall, Seq), limit: usize) -> Result<Vec<(Wall, Seq)>, Error> {
        let (changes, low) = {
            let floors = self.floors.lock();
            (floors.changes, floors.due)
        };
        let wanted = timed_bytes(after.0, after.1.0.saturating_add(1));
        let from = timed_key(b'd', low.max(wanted));
        let mut found = Vec::new();
        for guard in self.pending.range(from..=timed_key(b'd', [0xFF; 16])).take(limit) {
            let key = guard.key().map_err(|error| failed(&error))?;
            let timed = read_timed(&key).ok_or(wire::Damaged("a key")).map_err(damaged)?;
            if found.is_empty() && wanted <= low {
                let mut floors = self.floors.lock();
                // While a checkpoint was coming in, a lower key may have come that this scan did not see.
                if floors.changes == changes && changes.is_multiple_of(2) {
                    floors.due = timed_bytes(timed.0, timed.1.0);
                }
            }
            found.push(timed);
        }
        Ok(found)
    }
}
