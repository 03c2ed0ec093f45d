//! Bringing a checkpoint into the index.

use std::collections::HashMap;

use fjall::{Keyspace, PersistMode};

use super::super::bucket::Bucket;
use super::super::row::Row;
use super::super::state::{Base, Counts, Delta, Entry};
use super::super::wire::{self, Reader};
use super::keys::{common_keys, id_key, lane_key, place_key, put_counts, seq_key, timed_bytes};
use super::{Index, options};
use crate::event::Lane;

/// What bringing a checkpoint in did not finish with.
#[derive(Debug)]
pub(in crate::store) enum ApplyError {
    /// The index failed.
    Index(String),
    /// A test stopped it half-way.
    Halted,
}

impl Index {
    /// Brings a checkpoint in: all rows and lanes of its delta, its number last, all durable at the end. `step` is asked before each
    /// commit.
    ///
    /// # Errors
    ///
    /// After either error a part may be in; bringing it in again is right.
    pub(in crate::store) fn apply(
        &self,
        number: u64,
        delta: &Delta,
        step: &mut dyn FnMut() -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        self.change_floors(delta);
        let done = self.apply_all(number, delta, step);
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
    }

    fn apply_all(
        &self,
        number: u64,
        delta: &Delta,
        step: &mut dyn FnMut() -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        let mut batch = Batch::new(self, step);
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

/// Changes on their way in. What belongs to one event is committed together.
struct Batch<'a> {
    index: &'a Index,
    batch: fjall::OwnedWriteBatch,
    step: &'a mut dyn FnMut() -> Result<(), ApplyError>,
    row: Vec<u8>,
    buckets: HashMap<Bucket, Keyspace>,
}

impl<'a> Batch<'a> {
    fn new(index: &'a Index, step: &'a mut dyn FnMut() -> Result<(), ApplyError>) -> Self {
        Self { index, batch: index.db.batch(), step, row: Vec::new(), buckets: HashMap::new() }
    }

    fn insert(&mut self, keyspace: &Keyspace, key: impl Into<fjall::UserKey>, value: impl Into<fjall::UserValue>) {
        self.batch.insert(keyspace, key, value);
    }

    fn commit(&mut self) -> Result<(), ApplyError> {
        (self.step)()?;
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
        if other.and_then(|seq| delta.rows.get(&seq.0)).is_some_and(|other| is_here(other)) {
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
