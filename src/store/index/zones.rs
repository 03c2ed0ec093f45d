//! Zones: for each block of seqs, when the first and the last event in it were received.
//!
//! Seqs follow the time of receipt but for replays, which are old and have high ones. So a list of a span of time passes by all blocks that
//! have nothing of it, and finds what lies far back as fast as what is new. A zone may be wider than what is in its block; it
//! is never narrower.

use std::ops::Range;

use fjall::Keyspace;

use super::keys::{last_seq, seq_key};
use super::{damaged, failed};
use crate::event::{Seq, Wall};
use crate::store::Error;
use crate::store::wire::{self, Reader, put_wall};

/// Seqs of one block. Ten million events have some 2,400 of them.
const BLOCK: u64 = 4_096;

/// When the first and the last event of a block were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) first: Wall,
    pub(super) last: Wall,
}

impl Zone {
    pub(super) fn at(received: Wall) -> Self {
        Self { first: received, last: received }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    pub(super) fn put(self) -> Vec<u8> {
        let mut value = Vec::with_capacity(20);
        put_wall(&mut value, self.first);
        put_wall(&mut value, self.last);
        value
    }

    fn read(bytes: &[u8]) -> Result<Self, wire::Damaged> {
        let mut reader = Reader::new(bytes);
        Ok(Self { first: reader.wall("a zone")?, last: reader.wall("a zone")? })
    }
}

/// The block that a seq is in.
pub(super) fn block(seq: Seq) -> u64 {
    seq.0 / BLOCK
}

pub(super) fn key(block: u64) -> [u8; 9] {
    seq_key(b'z', Seq(block))
}

/// What is known of a block so far.
pub(super) fn of(keyspace: &Keyspace, block: u64) -> Result<Option<Zone>, Error> {
    let value = keyspace.get(key(block)).map_err(|error| failed(&error))?;
    value.map(|value| Zone::read(&value).map_err(damaged)).transpose()
}

/// The parts of `seqs`, ascending, in whose blocks something may have been received at `since` or later and before `until`.
pub(super) fn within(
    keyspace: &Keyspace,
    seqs: &Range<u64>,
    since: Option<Wall>,
    until: Option<Wall>,
) -> Result<Vec<Range<u64>>, Error> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    for guard in keyspace.range(key(seqs.start / BLOCK)..=key(seqs.end / BLOCK)) {
        let (key, value) = guard.into_inner().map_err(|error| failed(&error))?;
        let block = last_seq(&key).ok_or(wire::Damaged("a key")).map_err(damaged)?.0;
        let zone = Zone::read(&value).map_err(damaged)?;
        if since.is_some_and(|since| zone.last < since) || until.is_some_and(|until| zone.first >= until) {
            continue;
        }
        let start = block.saturating_mul(BLOCK).max(seqs.start);
        let end = (block + 1).saturating_mul(BLOCK).min(seqs.end);
        match parts.last_mut() {
            Some(before) if before.end == start => before.end = end,
            _ => parts.push(start..end),
        }
    }
    Ok(parts)
}

/// Pending events go, and the zones of their blocks with them, at the next start: no seq comes again.
pub(super) fn forget_before_first(pending: &Keyspace) -> Result<(), fjall::Error> {
    let first = match pending.range(seq_key(b'r', Seq(0))..=seq_key(b'r', Seq(u64::MAX))).next() {
        Some(guard) => last_seq(&guard.key()?).map_or(0, block),
        None => u64::MAX,
    };
    for guard in pending.range(key(0)..key(first)) {
        pending.remove(guard.key()?)?;
    }
    Ok(())
}
