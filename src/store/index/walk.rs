//! Walks over the seqs of a keyspace, for lists.

use std::collections::VecDeque;
use std::ops::Range;

use fjall::Keyspace;

use super::keys::{hash, hash_key, last_seq, seq_key};
use super::{Index, damaged, failed, zones};
use crate::event::{Group, Seq, Wall};
use crate::store::Error;
use crate::store::bucket::Bucket;
use crate::store::row::Row;
use crate::store::wire::{self, Reader};

/// Which entries a list looks at.
pub(in crate::store) struct Wanted<'a> {
    pub(in crate::store) provider: Option<&'a str>,
    pub(in crate::store) group: Option<&'a Group>,
    pub(in crate::store) pending: bool,
    pub(in crate::store) bucket: &'a dyn Fn(&Bucket) -> bool,
    /// Only blocks of seqs with an event that was received at this time or later, and one before that time.
    pub(in crate::store) received: (Option<Wall>, Option<Wall>),
    pub(in crate::store) seqs: Range<u64>,
    pub(in crate::store) oldest_first: bool,
}

/// The letter, and for all but rows the hash, that keys begin with.
#[derive(Clone, Copy)]
struct Prefix(u8, Option<u64>);

impl Prefix {
    fn of(wanted: &Wanted<'_>) -> Self {
        match (wanted.provider, wanted.group) {
            (Some(id), _) => Self(b'p', Some(hash(id.as_bytes()))),
            (None, Some(group)) => Self(b'g', Some(hash(group.as_str().as_bytes()))),
            (None, None) => Self(b'r', None),
        }
    }

    fn key(self, seq: u64) -> Vec<u8> {
        match self {
            Self(letter, Some(hash)) => hash_key(letter, hash, seq).to_vec(),
            Self(letter, None) => seq_key(letter, Seq(seq)).to_vec(),
        }
    }
}

impl Index {
    /// The seqs that are wanted, in their order or against it, in each keyspace that has some.
    pub(in crate::store) fn walks(&self, wanted: &Wanted<'_>) -> Result<Vec<Walk>, Error> {
        let buckets = self.buckets.read();
        let ended = buckets.iter().filter(|(bucket, _)| (wanted.bucket)(bucket)).map(|(_, keyspace)| keyspace);
        let pending = wanted.pending.then_some(&self.pending);
        pending.into_iter().chain(ended).map(|keyspace| Walk::new(keyspace, wanted)).collect()
    }
}

/// Seqs of one keyspace in their order, or against it.
pub(in crate::store) struct Walk {
    keyspace: Keyspace,
    prefix: Prefix,
    oldest_first: bool,
    /// What is left, the next first.
    ranges: VecDeque<Range<u64>>,
    iter: Option<fjall::Iter>,
    next: Option<(Seq, Option<fjall::UserValue>)>,
}

impl Walk {
    fn new(keyspace: &Keyspace, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let ranges = match wanted.received {
            (None, None) => vec![wanted.seqs.clone()],
            (since, until) => zones::within(keyspace, &wanted.seqs, since, until)?,
        };
        let mut ranges: VecDeque<Range<u64>> = ranges.into();
        if !wanted.oldest_first {
            ranges.make_contiguous().reverse();
        }
        let (prefix, oldest_first) = (Prefix::of(wanted), wanted.oldest_first);
        Ok(Self { keyspace: keyspace.clone(), prefix, oldest_first, ranges, iter: None, next: None })
    }

    /// The next seq, without taking it.
    pub(in crate::store) fn peek(&mut self) -> Result<Option<Seq>, Error> {
        while self.next.is_none() {
            let Some(iter) = &mut self.iter else {
                let Some(range) = self.ranges.pop_front() else { return Ok(None) };
                self.iter = Some(self.keyspace.range(self.prefix.key(range.start)..self.prefix.key(range.end)));
                continue;
            };
            let Some(guard) = (if self.oldest_first { iter.next() } else { iter.next_back() }) else {
                self.iter = None;
                continue;
            };
            // Where the rows themselves are walked over, they need not be looked for.
            let (key, row) = if matches!(self.prefix, Prefix(b'r', _)) {
                guard.into_inner().map(|(key, value)| (key, Some(value)))
            } else {
                guard.key().map(|key| (key, None))
            }
            .map_err(|error| failed(&error))?;
            self.next = Some((last_seq(&key).ok_or(wire::Damaged("a key")).map_err(damaged)?, row));
        }
        Ok(self.next.as_ref().map(|(seq, _)| *seq))
    }

    /// Takes the next seq.
    pub(in crate::store) fn skip(&mut self) {
        self.next = None;
    }

    /// Takes the next seq with its row.
    pub(in crate::store) fn take(&mut self) -> Result<Option<Row>, Error> {
        self.peek()?;
        match self.next.take() {
            Some((_, Some(row))) => Row::read(&mut Reader::new(&row)).map(Some).map_err(damaged),
            Some((seq, None)) => Index::get_row(&self.keyspace, seq),
            None => Ok(None),
        }
    }
}
