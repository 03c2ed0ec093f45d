//! Bringing a checkpoint into the index.

use std::collections::BTreeMap;

use fjall::{Keyspace, PersistMode, UserKey, UserValue};

use super::super::bucket::Bucket;
use super::super::repeats::{Known, Span};
use super::super::row::Row;
use super::super::state::{Base, Counts, Delta, Entry};
use super::super::wire::{self, Reader};
use super::keys::{id_key, lane_key, name_keys, place_key, put_counts, seq_key, timed_bytes};
use super::zones::{self, Zone};
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

/// Asked before each commit whether it may be done.
pub(in crate::store) type Step<'a> = dyn FnMut() -> Result<(), ApplyError> + 'a;

impl Index {
    /// Brings a checkpoint in: all rows and lanes of its delta, its number last, all durable at the end. `step` is asked before each
    /// commit.
    ///
    /// # Errors
    ///
    /// After either error a part may be in; bringing it in again is right.
    pub(in crate::store) fn apply(&self, number: u64, delta: &Delta, step: &mut Step<'_>) -> Result<(), ApplyError> {
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

    fn apply_all(&self, number: u64, delta: &Delta, step: &mut Step<'_>) -> Result<(), ApplyError> {
        let mut changes = Changes::new(self);
        for entry in delta.rows.values() {
            changes.entry(entry, delta)?;
        }
        for (lane, entry) in &delta.lanes {
            changes.lane(lane, &entry.counts);
        }
        let mut value = Vec::new();
        wire::put_number(&mut value, number);
        changes.insert(None, b"m".as_slice(), value);
        changes.zones()?;
        // The number stands in `pending`, and so goes in last.
        let pending = changes.by_bucket.remove(&None);
        for (bucket, letters) in changes.by_bucket.into_iter().chain(pending.map(|letters| (None, letters))) {
            let keyspace = match bucket {
                Some(bucket) => self.bucket(bucket)?,
                None => self.pending.clone(),
            };
            self.take_in(&keyspace, sorted(letters), step)?;
        }
        self.learn(delta, step)?;
        self.db.persist(PersistMode::SyncAll).map_err(failed)
    }

    /// Brings fingerprints in. What is there already and was received later stays.
    fn learn(&self, delta: &Delta, step: &mut Step<'_>) -> Result<(), ApplyError> {
        let mut by_span: BTreeMap<Span, Vec<Change>> = BTreeMap::new();
        for (hash, known) in &delta.known {
            let span = known.span();
            let there = self.spans.read().get(&span).map(|keyspace| keyspace.get(hash)).transpose().map_err(failed)?;
            let there = there.flatten().and_then(|value| Known::read(&mut Reader::new(&value)).ok());
            if there.is_none_or(|there| there < *known) {
                let mut value = Vec::new();
                known.put(&mut value);
                by_span.entry(span).or_default().push((hash.into(), Some(value.into())));
            }
        }
        for (span, mut list) in by_span {
            let keyspace = self.span(span)?;
            sort(&mut list);
            self.take_in(&keyspace, list, step)?;
        }
        Ok(())
    }

    fn span(&self, span: Span) -> Result<Keyspace, ApplyError> {
        if let Some(keyspace) = self.spans.read().get(&span) {
            return Ok(keyspace.clone());
        }
        let keyspace = self.db.keyspace(&span.name(), options).map_err(failed)?;
        self.spans.write().insert(span, keyspace.clone());
        Ok(keyspace)
    }

    /// Brings the changes of one keyspace in, in the order of their keys. Many go in as a table of their own, which is durable at once:
    /// that costs half of what the way through journal and memtable does. Few go that way, since a table has a price.
    fn take_in(&self, keyspace: &Keyspace, list: Vec<Change>, step: &mut Step<'_>) -> Result<(), ApplyError> {
        if list.len() < self.sizes.bulk {
            for chunk in list.chunks(self.sizes.batch) {
                self.commit(keyspace, chunk, step)?;
            }
            return Ok(());
        }
        step()?;
        let mut bulk = keyspace.start_ingestion().map_err(failed)?;
        for (key, value) in list {
            match value {
                Some(value) => bulk.write(key, value),
                None => bulk.write_tombstone(key),
            }
            .map_err(failed)?;
        }
        bulk.finish().map_err(failed)
    }

    fn commit(&self, keyspace: &Keyspace, chunk: &[Change], step: &mut Step<'_>) -> Result<(), ApplyError> {
        step()?;
        let mut batch = self.db.batch();
        for (key, value) in chunk {
            match value {
                Some(value) => batch.insert(keyspace, key.clone(), value.clone()),
                None => batch.remove(keyspace, key.clone()),
            }
        }
        batch.commit().map_err(failed)
    }

    fn bucket(&self, bucket: Bucket) -> Result<Keyspace, ApplyError> {
        if let Some(keyspace) = self.buckets.read().get(&bucket) {
            return Ok(keyspace.clone());
        }
        let made = self.db.keyspace(&bucket.name(), options);
        let keyspace = made.map_err(failed)?;
        self.buckets.write().insert(bucket, keyspace.clone());
        Ok(keyspace)
    }
}

/// A key, and its value or that it goes. Keys of this length cost no allocation.
type Change = (UserKey, Option<UserValue>);

/// Changes by the letter of their keys: each list is short, and those of seqs and ids come in order already.
type Letters = BTreeMap<u8, Vec<Change>>;

/// All changes in the order of their keys.
fn sorted(letters: Letters) -> Vec<Change> {
    let mut all = Vec::with_capacity(letters.values().map(Vec::len).sum());
    for mut list in letters.into_values() {
        sort(&mut list);
        all.append(&mut list);
    }
    all
}

/// Of two changes of one key the later one counts, and it goes in alone: in one batch they would be as old as each other.
fn sort(list: &mut Vec<Change>) {
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

fn failed(error: fjall::Error) -> ApplyError {
    ApplyError::Index(error.to_string())
}

/// What a checkpoint changes: in `pending` (`None`), and in buckets.
struct Changes<'a> {
    index: &'a Index,
    by_bucket: BTreeMap<Option<Bucket>, Letters>,
    zones: BTreeMap<(Option<Bucket>, u64), Zone>,
}

impl<'a> Changes<'a> {
    fn new(index: &'a Index) -> Self {
        Self { index, by_bucket: BTreeMap::new(), zones: BTreeMap::new() }
    }

    fn insert(&mut self, bucket: Option<Bucket>, key: impl Into<UserKey>, value: impl Into<UserValue>) {
        self.change(bucket, key.into(), Some(value.into()));
    }

    fn erase(&mut self, bucket: Option<Bucket>, key: impl Into<UserKey>) {
        self.change(bucket, key.into(), None);
    }

    fn change(&mut self, bucket: Option<Bucket>, key: UserKey, value: Option<UserValue>) {
        let letter = key.first().copied().unwrap_or_default();
        self.by_bucket.entry(bucket).or_default().entry(letter).or_default().push((key, value));
    }

    fn entry(&mut self, entry: &Entry, delta: &Delta) -> Result<(), ApplyError> {
        let row = &entry.row;
        let now = (!entry.gone).then(|| Base::of(row));
        let stays = match (entry.base, now) {
            (Some(Base::Ended(was)), Some(Base::Ended(is))) => was == is,
            (Some(Base::Ended(_)), _) | (None, _) | (_, None | Some(Base::Ended(_))) => false,
            (Some(was), Some(is)) => {
                if was != is {
                    self.erase(None, place_key(row, was));
                }
                true
            }
        };
        if let Some(was) = entry.base
            && !stays
        {
            let keep_id = entry.gone && self.has_other_seq(row, was, delta)?;
            self.remove(row, was, keep_id);
        }
        if let Some(is) = now {
            self.put(row, is, stays);
        }
        Ok(())
    }

    /// Whether the keyspace that an event leaves has, or is about to get, its id under another seq: it was requeued, and has
    /// ended in the same bucket again.
    fn has_other_seq(&self, row: &Row, was: Base, delta: &Delta) -> Result<bool, ApplyError> {
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
        let value = keyspace.get(id_key(row.id)).map_err(failed)?;
        let seq = value.map(|value| Reader::new(&value).number("a seq"));
        Ok(seq.is_some_and(|seq| seq != Ok(row.seq.0)))
    }

    fn remove(&mut self, row: &Row, was: Base, keep_id: bool) {
        let bucket = match was {
            Base::Ended(bucket) => Some(bucket),
            _ => None,
        };
        // Nothing is removed from a bucket that was dropped; making it again would leave it behind.
        if bucket.is_some_and(|bucket| !self.index.buckets.read().contains_key(&bucket)) {
            return;
        }
        if bucket.is_none() {
            self.erase(None, place_key(row, was));
        }
        if !keep_id {
            self.erase(bucket, id_key(row.id));
        }
        for key in name_keys(row) {
            self.erase(bucket, key);
        }
        self.erase(bucket, seq_key(b'r', row.seq));
    }

    /// With `stays` the keys that never change are there already.
    fn put(&mut self, row: &Row, is: Base, stays: bool) {
        let bucket = match is {
            Base::Ended(bucket) => Some(bucket),
            _ => None,
        };
        if bucket.is_none() {
            self.insert(None, place_key(row, is), UserValue::empty());
        }
        if !stays {
            let mut seq = Vec::with_capacity(10);
            wire::put_number(&mut seq, row.seq.0);
            self.insert(bucket, id_key(row.id), seq);
            for key in name_keys(row) {
                self.insert(bucket, key, UserValue::empty());
            }
            let zone = Zone::at(row.received);
            let known = self.zones.entry((bucket, zones::block(row.seq))).or_insert(zone);
            *known = known.and(zone);
        }
        let mut value = Vec::with_capacity(256);
        row.put(&mut value);
        self.insert(bucket, seq_key(b'r', row.seq), value);
    }

    /// The zones of all blocks that something was put into, with what was known of them.
    fn zones(&mut self) -> Result<(), ApplyError> {
        for ((bucket, block), zone) in std::mem::take(&mut self.zones) {
            let keyspace = match bucket {
                Some(bucket) => self.index.buckets.read().get(&bucket).cloned(),
                None => Some(self.index.pending.clone()),
            };
            let before = keyspace.map(|keyspace| zones::of(&keyspace, block)).transpose();
            let before = before.map_err(|error| ApplyError::Index(error.to_string()))?.flatten();
            let zone = before.map_or(zone, |before| before.and(zone));
            self.insert(bucket, zones::key(block), zone.put());
        }
        Ok(())
    }

    fn lane(&mut self, lane: &Lane, counts: &Counts) {
        if counts.pending() == 0 {
            self.erase(None, lane_key(lane));
        } else {
            let mut value = Vec::new();
            put_counts(&mut value, counts);
            self.insert(None, lane_key(lane), value);
        }
    }
}
