//! Keys and small values of the index. They are in files: none of these forms ever changes.

use fjall::UserKey;

use super::super::moments::Moments;
use super::super::row::Row;
use super::super::state::{Base, Counts};
use super::super::wire::{self, Reader};
use crate::event::{EventId, Group, Lane, Seq, Wall};

pub(super) fn id_key(id: EventId) -> [u8; 17] {
    timed_key(b'i', id.0)
}

/// The keys by which an event is found by names that are not its own: its group's, and its provider's for it.
pub(super) fn name_keys(row: &Row) -> impl Iterator<Item = [u8; 17]> {
    let group = hash_key(b'g', hash(row.home().group.as_str().as_bytes()), row.seq.0);
    let provider = row.provider_event_id.as_deref();
    std::iter::once(group).chain(provider.map(|id| hash_key(b'p', hash(id.as_bytes()), row.seq.0)))
}

pub(super) fn place_key(row: &Row, base: Base) -> UserKey {
    match base {
        Base::Due(due) => timed_key(b'd', timed_bytes(due, row.seq.0)).into(),
        Base::Open => seq_key(b'o', row.seq).into(),
        Base::Fresh | Base::Ended(_) => hash_key(b'f', lane_hash(&row.lane), row.seq.0).into(),
    }
}

pub(super) fn seq_key(letter: u8, seq: Seq) -> [u8; 9] {
    let mut key = [letter; 9];
    key.get_mut(1..).expect("eight bytes are left").copy_from_slice(&seq.0.to_be_bytes());
    key
}

pub(super) fn hash_key(letter: u8, hash: u64, seq: u64) -> [u8; 17] {
    timed_key(letter, timed_bytes(Wall(hash), seq))
}

pub(super) fn timed_bytes(at: Wall, seq: u64) -> [u8; 16] {
    ((u128::from(at.0) << 64) | u128::from(seq)).to_be_bytes()
}

pub(super) fn timed_key(letter: u8, bytes: [u8; 16]) -> [u8; 17] {
    let mut key = [letter; 17];
    key.get_mut(1..).expect("sixteen bytes are left").copy_from_slice(&bytes);
    key
}

pub(super) fn read_timed(key: &[u8]) -> Option<(Wall, Seq)> {
    let number = u128::from_be_bytes(*key.get(1..)?.first_chunk()?);
    Some((Wall(u64::try_from(number >> 64).ok()?), last_seq(key)?))
}

pub(super) fn last_seq(key: &[u8]) -> Option<Seq> {
    Some(Seq(u64::from_be_bytes(*key.last_chunk()?)))
}

/// FNV-1a. It is in files, so it never changes; rows that only share a hash are told apart by their text.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

pub(super) fn lane_hash(lane: &Lane) -> u64 {
    hash(&lane_key(lane))
}

/// A lane's name so that keys sort as lanes do. No byte of a written form is below 3.
pub(super) fn lane_key(lane: &Lane) -> Vec<u8> {
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

pub(super) fn read_lane_key(key: &[u8]) -> Option<Lane> {
    let text = std::str::from_utf8(key.get(1..)?).ok()?;
    let (group, rest) = text.split_once('\0')?;
    let inner = match rest.strip_prefix('\u{2}') {
        Some(inner) => Some(Group::from_written(inner.strip_suffix('\0')?)?),
        None => None,
    };
    Some(Lane { group: Group::from_written(group)?, inner })
}

pub(in crate::store) fn put_counts(out: &mut Vec<u8>, counts: &Counts) {
    for number in [counts.fresh, counts.retrying, counts.open, counts.bytes] {
        wire::put_number(out, number);
    }
    counts.received.put(out);
}

pub(super) fn read_counts(bytes: &[u8]) -> Result<Counts, wire::Damaged> {
    counts_from(&mut Reader::new(bytes))
}

pub(in crate::store) fn counts_from(reader: &mut Reader<'_>) -> Result<Counts, wire::Damaged> {
    let mut number = || reader.number("a lane's counts");
    let (fresh, retrying, open, bytes) = (number()?, number()?, number()?, number()?);
    Ok(Counts { fresh, retrying, open, bytes, received: Moments::read(reader)? })
}
