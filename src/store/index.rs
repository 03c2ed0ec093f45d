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
//! | `a` | time of receipt, seq | | pending |
//! | `l` | lane's name | its counts | pending |
//! | `m` | | number of the checkpoint that was brought in last | pending |
//!
//! Everything that goes in is absolute: bringing a checkpoint in twice, or half and then whole, gives the same.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::{Mutex, RwLock};

use super::Error;
use super::row::{Bucket, Row};
use super::state::{Base, Counts, Delta, Entry};
use super::wire::{self, Reader};
use crate::event::{EventId, Group, Lane, Seq, Wall};

/// Small memtables shorten the stalls of their flushes (and are frozen in the keyspace at its creation).
const MEMTABLE_BYTES: u64 = 8 << 20;
/// Opening replays the journal: 64 MiB of it keep that below a second.
const JOURNAL_BYTES: u64 = 64 << 20;
/// The descriptor cache never forgets files of dropped keyspaces; a small one gives their space back.
const CACHED_FILES: usize = 32;
/// Blocks of the index in memory.
const CACHE_BYTES: u64 = 32 << 20;
/// What bringing a checkpoint in did not finish with.
#[derive(Debug)]
pub(super) enum ApplyError {
    /// The index failed.
    Index(String),
    /// A test stopped it half-way.
    Halted,
}

/// An open index.
pub(super) struct Index {
    /// Changes that are committed together.
    batch: usize,
    db: Database,
    pending: Keyspace,
    buckets: RwLock<BTreeMap<Bucket, Keyspace>>,
    floors: Mutex<Floors>,
}

/// Below these keys there is nothing, so that a scan does not wade through what was deleted at the front of a queue.
#[derive(Default)]
struct Floors {
    changes: u64,
    due: [u8; 16],
    received: [u8; 16],
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

fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES)
}

impl Index {
    /// Opens the index in `path`, or makes one there.
    ///
    /// # Errors
    ///
    /// Whatever fjall says, in words: the caller builds the index anew.
    pub(super) fn open(path: &Path, batch: usize) -> Result<Self, String> {
        Self::try_open(path, batch).map_err(|error| error.to_string())
    }

    fn try_open(path: &Path, batch: usize) -> Result<Self, fjall::Error> {
        let db = Database::builder(path)
            .max_journaling_size(JOURNAL_BYTES)
            .max_cached_files(Some(CACHED_FILES))
            .cache_size(CACHE_BYTES)
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()?;
        let pending = db.keyspace("pending", options)?;
        let mut buckets = BTreeMap::new();
        for name in db.list_keyspace_names() {
            if let Some(bucket) = Bucket::from_name(&name) {
                buckets.insert(bucket, db.keyspace(&name, options)?);
            }
        }
        Ok(Self { batch, db, pending, buckets: RwLock::new(buckets), floors: Mutex::default() })
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

    // Reading.

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
    pub(super) fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> Result<Vec<(Wall, Seq)>, Error> {
        self.timed(b'd', |floors| &mut floors.due, after, limit)
    }

    /// Times of receipt and seqs of pending events, the oldest first, at most `limit`.
    pub(super) fn oldest(&self, after: Option<(Wall, Seq)>, limit: usize) -> Result<Vec<(Wall, Seq)>, Error> {
        self.timed(b'a', |floors| &mut floors.received, after, limit)
    }

    fn timed(
        &self,
        letter: u8,
        floor: impl Fn(&mut Floors) -> &mut [u8; 16],
        after: Option<(Wall, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Wall, Seq)>, Error> {
        let (changes, low) = {
            let mut floors = self.floors.lock();
            (floors.changes, *floor(&mut floors))
        };
        let wanted = after.map_or([0; 16], |(at, seq)| timed_bytes(at, seq.0.saturating_add(1)));
        let from = timed_key(letter, low.max(wanted));
        let mut found = Vec::new();
        for guard in self.pending.range(from..=timed_key(letter, [0xFF; 16])).take(limit) {
            let key = guard.key().map_err(|error| failed(&error))?;
            let timed = read_timed(&key).ok_or(wire::Damaged("a key")).map_err(damaged)?;
            if found.is_empty() && wanted <= low {
                let mut floors = self.floors.lock();
                // While a checkpoint was coming in, a lower key may have come that this scan did not see.
                if floors.changes == changes && changes.is_multiple_of(2) {
                    *floor(&mut floors) = timed_bytes(timed.0, timed.1.0);
                }
            }
            found.push(timed);
        }
        Ok(found)
    }

    /// An iterator over rows' seqs below `before`, newest first, in each keyspace that a list needs.
    pub(super) fn newest_first(&self, wanted: &Wanted<'_>, before: Seq) -> Vec<Descending> {
        let (low, high) = match (wanted.provider, wanted.group) {
            (Some(id), _) => {
                let hash = hash(id.as_bytes());
                (hash_key(b'p', hash, 0).to_vec(), hash_key(b'p', hash, before.0).to_vec())
            }
            (None, Some(group)) => {
                let hash = hash(group.as_str().as_bytes());
                (hash_key(b'g', hash, 0).to_vec(), hash_key(b'g', hash, before.0).to_vec())
            }
            (None, None) => (seq_key(b'r', Seq(0)).to_vec(), seq_key(b'r', before).to_vec()),
        };
        let buckets = self.buckets.read();
        let ended = buckets.iter().filter(|(bucket, _)| (wanted.bucket)(bucket)).map(|(_, keyspace)| keyspace);
        let pending = wanted.pending.then_some(&self.pending);
        pending
            .into_iter()
            .chain(ended)
            .map(|keyspace| Descending {
                iter: keyspace.range(low.clone()..high.clone()),
                keyspace: keyspace.clone(),
                next: None,
            })
            .collect()
    }

    // Writing.

    /// Brings a checkpoint in: all rows and lanes of its delta, its number last, all durable at the end. `steps` is how many commits
    /// a test allows.
    ///
    /// # Errors
    ///
    /// After either error a part may be in; bringing it in again is right.
    pub(super) fn apply(&self, number: u64, delta: &Delta, steps: &mut dyn FnMut() -> bool) -> Result<(), ApplyError> {
        self.change_floors(delta);
        let done = self.apply_all(number, delta, steps);
        self.floors.lock().changes += 1;
        done
    }

    fn change_floors(&self, delta: &Delta) {
        let mut floors = self.floors.lock();
        floors.changes += 1;
        // Only an odd number says that a checkpoint is under way; one that failed before left it odd.
        floors.changes |= 1;
        if let Some(&(due, seq)) = delta.due.first() {
            floors.due = floors.due.min(timed_bytes(due, seq));
        }
        if let Some(&(received, seq)) = delta.received.first() {
            floors.received = floors.received.min(timed_bytes(received, seq));
        }
    }

    fn apply_all(&self, number: u64, delta: &Delta, steps: &mut dyn FnMut() -> bool) -> Result<(), ApplyError> {
        let mut batch = Batch::new(self, steps);
        for entry in delta.rows.values() {
            batch.entry(entry, delta)?;
        }
        for (lane, entry) in &delta.lanes {
            batch.lane(lane, &entry.counts)?;
        }
        let mut value = Vec::new();
        wire::put_number(&mut value, number);
        batch.insert(&self.pending, b"m".to_vec(), value);
        batch.commit()?;
        self.db.persist(PersistMode::SyncAll).map_err(|error| ApplyError::Index(error.to_string()))
    }

    fn bucket(&self, bucket: Bucket) -> Result<Keyspace, ApplyError> {
        if let Some(keyspace) = self.buckets.read().get(&bucket) {
            return Ok(keyspace.clone());
        }
        let made = self.db.keyspace(&bucket.name(), options);
        let keyspace = made.map_err(|error| ApplyError::Index(error.to_string()))?;
        self.buckets.write().insert(bucket, keyspace.clone());
        Ok(keyspace)
    }
}

/// Which entries a list looks at.
pub(super) struct Wanted<'a> {
    pub(super) provider: Option<&'a str>,
    pub(super) group: Option<&'a Group>,
    pub(super) pending: bool,
    pub(super) bucket: &'a dyn Fn(&Bucket) -> bool,
}

/// Seqs of one keyspace, newest first.
pub(super) struct Descending {
    iter: fjall::Iter,
    keyspace: Keyspace,
    next: Option<Seq>,
}

impl Descending {
    /// The next seq, without taking it.
    pub(super) fn peek(&mut self) -> Result<Option<Seq>, Error> {
        if self.next.is_none()
            && let Some(guard) = self.iter.next_back()
        {
            let key = guard.key().map_err(|error| failed(&error))?;
            self.next = Some(last_seq(&key).ok_or(wire::Damaged("a key")).map_err(damaged)?);
        }
        Ok(self.next)
    }

    /// Takes the next seq.
    pub(super) fn skip(&mut self) {
        self.next = None;
    }

    /// Takes the next seq with its row.
    pub(super) fn take(&mut self) -> Result<Option<Row>, Error> {
        match self.peek()? {
            Some(seq) => {
                self.next = None;
                Index::get_row(&self.keyspace, seq)
            }
            None => Ok(None),
        }
    }
}

/// Changes on their way in. What belongs to one event is committed together.
struct Batch<'a> {
    index: &'a Index,
    batch: fjall::OwnedWriteBatch,
    steps: &'a mut dyn FnMut() -> bool,
    row: Vec<u8>,
    buckets: HashMap<Bucket, Keyspace>,
}

impl<'a> Batch<'a> {
    fn new(index: &'a Index, steps: &'a mut dyn FnMut() -> bool) -> Self {
        Self { index, batch: index.db.batch(), steps, row: Vec::new(), buckets: HashMap::new() }
    }

    fn insert(&mut self, keyspace: &Keyspace, key: impl Into<fjall::UserKey>, value: impl Into<fjall::UserValue>) {
        self.batch.insert(keyspace, key, value);
    }

    fn commit(&mut self) -> Result<(), ApplyError> {
        if !(self.steps)() {
            return Err(ApplyError::Halted);
        }
        let batch = std::mem::replace(&mut self.batch, self.index.db.batch());
        batch.commit().map_err(|error| ApplyError::Index(error.to_string()))
    }

    fn commit_when_large(&mut self) -> Result<(), ApplyError> {
        if self.batch.len() >= self.index.batch { self.commit() } else { Ok(()) }
    }

    fn keyspace(&mut self, bucket: Bucket) -> Result<Keyspace, ApplyError> {
        if let Some(keyspace) = self.buckets.get(&bucket) {
            return Ok(keyspace.clone());
        }
        let keyspace = self.index.bucket(bucket)?;
        self.buckets.insert(bucket, keyspace.clone());
        Ok(keyspace)
    }

    fn entry(&mut self, entry: &Entry, delta: &Delta) -> Result<(), ApplyError> {
        let row = &entry.row;
        let now = (!entry.gone).then(|| Base::of(row));
        let pending = self.index.pending.clone();
        let stays = match (entry.base, now) {
            (Some(Base::Ended(was)), Some(Base::Ended(is))) => was == is,
            (Some(Base::Ended(_)), _) | (None, _) | (_, None | Some(Base::Ended(_))) => false,
            (Some(was), Some(is)) => {
                if was != is {
                    self.batch.remove(&pending, place_key(row, was));
                }
                true
            }
        };
        if let Some(was) = entry.base
            && !stays
        {
            let keep_id = entry.gone && self.has_other_seq(row, was, delta)?;
            self.remove(row, was, keep_id)?;
        }
        if let Some(is) = now {
            self.put(row, is, stays)?;
        }
        self.commit_when_large()
    }

    /// Whether the keyspace that an event leaves has, or is about to get, its id under another seq: it was requeued, and has
    /// ended in the same bucket again. (One key must not be removed and inserted in one batch either.)
    fn has_other_seq(&mut self, row: &Row, was: Base, delta: &Delta) -> Result<bool, ApplyError> {
        let is_here = |other: &Entry| match was {
            Base::Ended(bucket) => other.row.bucket == Some(bucket),
            _ => other.row.bucket.is_none(),
        };
        let other = delta.ids.get(&row.id).filter(|seq| **seq != row.seq);
        if other.and_then(|seq| delta.rows.get(&seq.0)).is_some_and(is_here) {
            return Ok(true);
        }
        let keyspace = match was {
            Base::Ended(bucket) => self.index.buckets.read().get(&bucket).cloned(),
            _ => Some(self.index.pending.clone()),
        };
        let Some(keyspace) = keyspace else { return Ok(false) };
        let value = keyspace.get(id_key(row.id)).map_err(|error| ApplyError::Index(error.to_string()))?;
        let seq = value.map(|value| Reader::new(&value).number("a seq"));
        Ok(seq.is_some_and(|seq| seq != Ok(row.seq.0)))
    }

    fn remove(&mut self, row: &Row, was: Base, keep_id: bool) -> Result<(), ApplyError> {
        let keyspace = match was {
            Base::Ended(bucket) => {
                // Nothing is removed from a bucket that was dropped; making it again would leave it behind.
                if !self.buckets.contains_key(&bucket) && !self.index.buckets.read().contains_key(&bucket) {
                    return Ok(());
                }
                self.keyspace(bucket)?
            }
            _ => {
                let pending = self.index.pending.clone();
                self.batch.remove(&pending, place_key(row, was));
                self.batch.remove(&pending, timed_key(b'a', timed_bytes(row.received, row.seq.0)));
                pending
            }
        };
        let skip = usize::from(keep_id);
        for (key, _) in common_keys(row).skip(skip) {
            self.batch.remove(&keyspace, key);
        }
        self.batch.remove(&keyspace, seq_key(b'r', row.seq));
        Ok(())
    }

    /// With `stays` the keys that never change are there already.
    fn put(&mut self, row: &Row, is: Base, stays: bool) -> Result<(), ApplyError> {
        self.row.clear();
        row.put(&mut self.row);
        let value = self.row.as_slice().to_vec();
        let keyspace = match is {
            Base::Ended(bucket) => self.keyspace(bucket)?,
            _ => {
                let pending = self.index.pending.clone();
                self.insert(&pending, place_key(row, is), []);
                if !stays {
                    self.insert(&pending, timed_key(b'a', timed_bytes(row.received, row.seq.0)), []);
                }
                pending
            }
        };
        if !stays {
            for (key, value) in common_keys(row) {
                self.insert(&keyspace, key, value);
            }
        }
        self.insert(&keyspace, seq_key(b'r', row.seq), value);
        Ok(())
    }

    fn lane(&mut self, lane: &Lane, counts: &Counts) -> Result<(), ApplyError> {
        let pending = self.index.pending.clone();
        if counts.pending() == 0 {
            self.batch.remove(&pending, lane_key(lane));
        } else {
            let mut value = Vec::new();
            put_counts(&mut value, counts);
            self.insert(&pending, lane_key(lane), value);
        }
        self.commit_when_large()
    }
}

fn id_key(id: EventId) -> [u8; 17] {
    timed_key(b'i', id.0)
}

/// The keys that an event has in every keyspace, its row apart, with their values; that of its id first.
fn common_keys(row: &Row) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let id = id_key(row.id).to_vec();
    let mut seq = Vec::new();
    wire::put_number(&mut seq, row.seq.0);
    let group = hash_key(b'g', hash(row.lane.group.as_str().as_bytes()), row.seq.0).to_vec();
    let provider = row.provider_event_id.as_deref();
    let provider = provider.map(|id| (hash_key(b'p', hash(id.as_bytes()), row.seq.0).to_vec(), Vec::new()));
    [(id, seq), (group, Vec::new())].into_iter().chain(provider)
}

fn place_key(row: &Row, base: Base) -> Vec<u8> {
    match base {
        Base::Due(due) => timed_key(b'd', timed_bytes(due, row.seq.0)).to_vec(),
        Base::Open => seq_key(b'o', row.seq).to_vec(),
        Base::Fresh | Base::Ended(_) => hash_key(b'f', lane_hash(&row.lane), row.seq.0).to_vec(),
    }
}

fn seq_key(letter: u8, seq: Seq) -> [u8; 9] {
    let mut key = [letter; 9];
    key.get_mut(1..).expect("eight bytes are left").copy_from_slice(&seq.0.to_be_bytes());
    key
}

fn hash_key(letter: u8, hash: u64, seq: u64) -> [u8; 17] {
    timed_key(letter, timed_bytes(Wall(hash), seq))
}

fn timed_bytes(at: Wall, seq: u64) -> [u8; 16] {
    ((u128::from(at.0) << 64) | u128::from(seq)).to_be_bytes()
}

fn timed_key(letter: u8, bytes: [u8; 16]) -> [u8; 17] {
    let mut key = [letter; 17];
    key.get_mut(1..).expect("sixteen bytes are left").copy_from_slice(&bytes);
    key
}

fn read_timed(key: &[u8]) -> Option<(Wall, Seq)> {
    let number = u128::from_be_bytes(*key.get(1..)?.first_chunk()?);
    Some((Wall(u64::try_from(number >> 64).ok()?), last_seq(key)?))
}

fn last_seq(key: &[u8]) -> Option<Seq> {
    Some(Seq(u64::from_be_bytes(*key.last_chunk()?)))
}

/// FNV-1a. It is in files, so it never changes; rows that only share a hash are told apart by their text.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

fn lane_hash(lane: &Lane) -> u64 {
    hash(&lane_key(lane))
}

/// A lane's name so that keys sort as lanes do. No byte of a written form is below 3.
fn lane_key(lane: &Lane) -> Vec<u8> {
    let mut key = vec![b'l'];
    key.extend_from_slice(lane.group.as_str().as_bytes());
    match &lane.inner {
        None => key.extend_from_slice(&[0, 1]),
        Some(inner) => {
            key.extend_from_slice(&[0, 2]);
            key.extend_from_slice(inner.as_str().as_bytes());
            key.push(0);
        }
    }
    key
}

fn read_lane_key(key: &[u8]) -> Option<Lane> {
    let text = std::str::from_utf8(key.get(1..)?).ok()?;
    let (group, rest) = text.split_once('\0')?;
    let inner = match rest.strip_prefix('\u{2}') {
        Some(inner) => Some(Group::from_written(inner.strip_suffix('\0')?)?),
        None => None,
    };
    Some(Lane { group: Group::from_written(group)?, inner })
}

pub(super) fn put_counts(out: &mut Vec<u8>, counts: &Counts) {
    for number in [counts.fresh, counts.retrying, counts.open, counts.bytes] {
        wire::put_number(out, number);
    }
}

pub(super) fn read_counts(bytes: &[u8]) -> Result<Counts, wire::Damaged> {
    counts_from(&mut Reader::new(bytes))
}

pub(super) fn counts_from(reader: &mut Reader<'_>) -> Result<Counts, wire::Damaged> {
    let mut number = || reader.number("a lane's counts");
    Ok(Counts { fresh: number()?, retrying: number()?, open: number()?, bytes: number()? })
}
