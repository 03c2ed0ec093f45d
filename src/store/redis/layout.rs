//! Where everything lies in Redis, and how it is written.
//!
//! All keys of a shard are in one hash tag, `{<namespace>:<shard>}`, so that one script sees them all and no cluster splits them. *n* is an
//! event's number in its shard, from 1 without a gap; in fields, members and values it has six bytes, high ones first. A *lane* is written
//! as its group, a zero byte, and its inner lane where it has one.
//!
//! | key | kind | what |
//! | --- | --- | --- |
//! | `:m` | text | the shard's sums, nine little-endian doubles: last n, time of the last commit, pending events, their bytes, lanes with some, epoch, number of the last settlement in it, its answer, end of the owner's lease |
//! | `:owner` | hash | `node`, `claim` (what a repeated claim is known by), `before`, `since`, `released` |
//! | `:s` | hash | n → state (below) |
//! | `:i` | hash | event id → n |
//! | `:p:<page>` | hash | 256 events each: `h` and the last byte of n → head, `b` … → rest, `a` … and k → the k-th note, modulo 256 |
//! | `:pages` | sorted set | pages there are, by their numbers |
//! | `:times` | sorted set | the same by the time of their first commit |
//! | `:q:<lane>` | sorted set | pending events of a lane, by n |
//! | `:x:<lane>` | sorted set | those of them that wait since before a younger n, by that time |
//! | `:l` | hash | lane → pending, retrying, entries of `:x` (u32 each), bytes, the latest time since when one waits (doubles) |
//! | `:h` | sorted set | lanes with pending events, by a time that is never later than the one since when their oldest waits |
//! | `:g` | hash | group → pending events in its inner lanes |
//! | `:o` | sorted set | open events, by n |
//! | `:r` | sorted set | retrying events, as due time (u64) and n, in the order of bytes |
//! | `:e:d` `:e:x` `:e:s` | sorted set | delivered or discarded, dead, suppressed events, by their ends |
//! | `:k` | sorted set | dead events, by n: they are listed often and are few among many |
//! | `:d:<fingerprint>` | text, expires | the end of its window (double) and the id of the event that repeats are known by |
//! | `:w` | hash | group that leaves this shard, or has left it → how far that is (1 moving, 2 closing, 3 gone) and the shard where it goes |
//! | `:c:<receipt>` | text, expires | what a requeue gave, for its repetition |
//!
//! A shard without events has `:m` and `:owner`, the first one `:shards` (how many there are) and `:layout` ([`LAYOUT`]) besides; a lane without pending events has
//! nothing.
//!
//! # A state
//!
//! 68 bytes and what follows, big-endian: time of the commit (8) · status (1, as `record.rs` numbers them) · since when it waits (8: its receipt, or its
//! requeue) · time of its last settlement (8) · due (8, while it retries) · first attempt (8, once there is one) · attempts, interrupted,
//! refused, replays, bytes, notes (4 each) · flags (1: requeued, 2: it repeats or repeated another one) · length of the lane (2) · lane · the id
//! that it repeats (16, by its flag) · why it is dead.
//!
//! # A head and a rest
//!
//! A head is 1 (its version), then `record::put_head`, the body's length, the trace's id; a rest is 1, then `record::put_rest`: together they
//! have each byte of an event once.

use bytes::Bytes;
use redis::Value;

use super::shard::Shard;
use crate::event::{Event, EventId, Group, Lane, Seq, Wall};
use crate::store::log::Place;
use crate::store::record::{self, Head, State};
use crate::store::row::Row;
use crate::store::wire::{Damaged, Reader, put_number, put_option};
use crate::store::{Error, Status};

/// The number of all this: another one means keys or scripts that this version does not have. It stands in `:layout` of the first shard, and
/// nodes of two numbers never share a store. What is added so that nodes without it go on as before does not raise it.
pub(super) const LAYOUT: u64 = 1;
/// The version of heads and rests.
const VERSION: u8 = 1;
/// Bytes of a state before its lane.
const STATE_BYTES: usize = 68;
const REQUEUED: u8 = 1;
const REPEATS: u8 = 2;
/// Times that a double has exactly; later ones are as good as never.
const TIME_MAX: u64 = 1 << 53;

/// A number as it stands in fields, members and values.
pub(super) fn written(number: u64) -> [u8; 6] {
    let [_, _, rest @ ..] = number.to_be_bytes();
    rest
}

/// The reverse of [`written`].
pub(super) fn number(bytes: &[u8]) -> Result<u64, Error> {
    let six: [u8; 6] = bytes.try_into().map_err(|_| damaged(Damaged("a number")))?;
    let mut eight = [0; 8];
    for (place, byte) in eight.iter_mut().skip(2).zip(six) {
        *place = byte;
    }
    Ok(u64::from_be_bytes(eight))
}

/// A time as scripts reckon with it.
#[expect(clippy::cast_precision_loss, reason = "no more than 53 bits, which a double has")]
pub(super) fn time(at: Wall) -> f64 {
    at.0.min(TIME_MAX) as f64
}

/// What a script reckoned; what is negative is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, at least 0 and at most 53 bits")]
pub(super) fn whole(value: f64) -> Option<u64> {
    (value >= 0.0).then_some(value as u64)
}

/// A lane as it is written.
pub(super) fn lane_name(lane: &Lane) -> Vec<u8> {
    let inner = lane.inner.as_ref().map_or("", Group::as_str);
    [lane.group.as_str().as_bytes(), b"\0", inner.as_bytes()].concat()
}

/// The reverse of [`lane_name`].
pub(super) fn lane(name: &[u8]) -> Result<Lane, Error> {
    let read = || {
        let (group, inner) = std::str::from_utf8(name).ok()?.split_once('\0')?;
        let inner = if inner.is_empty() { None } else { Some(Group::from_written(inner)?) };
        Some(Lane { group: Group::from_written(group)?, inner })
    };
    read().ok_or_else(|| damaged(Damaged("a lane's name")))
}

/// The state of an event that is fresh, without the time of its commit.
pub(super) fn put_fresh(out: &mut Vec<u8>, event: &Event, bytes: u32) {
    let name = lane_name(&event.lane);
    out.push(1);
    out.extend_from_slice(&event.received.0.to_be_bytes());
    // Settled, due, first attempt; attempts, interrupted, refused, replays.
    out.extend_from_slice(&[0; 3 * 8 + 4 * 4]);
    out.extend_from_slice(&bytes.to_be_bytes());
    // Notes, flags.
    out.extend_from_slice(&[0; 4 + 1]);
    // A lane has two groups at most, which fit 16 bits with room to spare.
    out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&name);
}

/// The head of an event.
pub(super) fn head(event: &Event) -> Vec<u8> {
    let mut out = vec![VERSION];
    record::put_head(&mut out, event);
    put_number(&mut out, event.body.len() as u64);
    put_option(&mut out, event.trace, |out, trace| out.extend_from_slice(&trace.id));
    out
}

/// The rest of an event.
pub(super) fn rest(event: &Event) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.body.len() + 256);
    out.push(VERSION);
    record::put_rest(&mut out, event);
    out
}

/// An event's row, and what only its state says.
pub(super) struct Found {
    pub(super) row: Row,
    /// When it was committed.
    pub(super) t: u64,
}

/// Reads a state and a head.
///
/// # Errors
///
/// [`Error::Corrupt`] names the part that is not as it was written.
pub(super) fn found(shard: Shard, number: u64, state: &[u8], head: &[u8]) -> Result<Found, Error> {
    let (t, state) = read_state(state).map_err(damaged)?;
    let (head, body_bytes, trace) = read_head(head).map_err(damaged)?;
    let row = Row {
        seq: shard.seq(number),
        id: head.id,
        lane: head.lane,
        owner: head.owner,
        key_source: head.key_source,
        source: head.source,
        order: head.order,
        received: head.received,
        provider_event_id: head.provider_event_id,
        event_type: head.event_type,
        body_bytes,
        trace,
        // What is in Redis is found by its number.
        place: Place { segment: 0, offset: 0, length: 0 },
        state,
        bucket: None,
        notes: Vec::new(),
        pins: Vec::new(),
        births: Vec::new(),
    };
    Ok(Found { row, t })
}

/// Reads an event whole.
///
/// # Errors
///
/// As [`found`].
pub(super) fn event(head: &[u8], rest: Vec<u8>) -> Result<Event, Error> {
    let read = || {
        let (head, _, _) = read_head(head)?;
        let rest = Bytes::from(rest);
        let mut reader = Reader::new(&rest);
        version(&mut reader)?;
        let event = record::read_rest(&mut reader, &rest, head, record::Form::Present)?;
        reader.end()?;
        Ok(event)
    };
    read().map_err(damaged)
}

fn version(reader: &mut Reader<'_>) -> Result<(), Damaged> {
    if reader.byte("a version")? == VERSION { Ok(()) } else { Err(Damaged("a version")) }
}

fn read_head(bytes: &[u8]) -> Result<(Head, u32, Option<[u8; 16]>), Damaged> {
    let mut reader = Reader::new(bytes);
    version(&mut reader)?;
    let head = record::read_head(&mut reader)?;
    let body_bytes = reader.number_u32("the body's length")?;
    let trace = reader.option("the trace", |r| record::read_array(r, "the trace"))?;
    reader.end()?;
    Ok((head, body_bytes, trace))
}

fn read_state(text: &[u8]) -> Result<(u64, State), Damaged> {
    const WHAT: &str = "a state";
    let mut reader = Reader::new(text);
    let long = |reader: &mut Reader<'_>| record::read_array(reader, WHAT).map(u64::from_be_bytes);
    let short = |reader: &mut Reader<'_>| record::read_array(reader, WHAT).map(u32::from_be_bytes);
    let t = long(&mut reader)?;
    let status = record::read_status(&mut reader)?;
    let waits_from = Wall(long(&mut reader)?);
    let settled = Some(Wall(long(&mut reader)?)).filter(|at| at.0 > 0);
    let due = Some(Wall(long(&mut reader)?)).filter(|_| status == Status::Retrying);
    let first_attempt = Wall(long(&mut reader)?);
    let [attempts, interrupted, refused, replays, bytes, _notes] = {
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = short(&mut reader)?;
        }
        numbers
    };
    let flags = reader.byte(WHAT)?;
    let lane = usize::from(u16::from_be_bytes(record::read_array(&mut reader, WHAT)?));
    reader.take(lane, WHAT)?;
    let duplicate_of = (flags & REPEATS != 0).then(|| record::read_id(&mut reader)).transpose()?;
    let reason = std::str::from_utf8(bytes_left(text, STATE_BYTES + lane + duplicate_of.map_or(0, |_| 16)))
        .map_err(|_| Damaged("a reason"))?;
    let state = State {
        status,
        due,
        attempts,
        first_attempt: Some(first_attempt).filter(|_| attempts > 0),
        interrupted,
        settled,
        replays,
        requeued: (flags & REQUEUED != 0).then_some(waits_from),
        bytes,
        reason: if status == Status::Dead { reason.into() } else { Box::default() },
        refused,
        duplicate_of,
    };
    Ok((t, state))
}

fn bytes_left(bytes: &[u8], from: usize) -> &[u8] {
    bytes.get(from..).unwrap_or_default()
}

pub(super) fn damaged(damaged: Damaged) -> Error {
    Error::Corrupt(format!("in Redis, {damaged}"))
}

/// A script's answer that is not what the script gives.
pub(super) fn strange(what: &'static str) -> Error {
    Error::Corrupt(format!("Redis answered {what} in a form that no script of ours gives"))
}

/// Bytes of an answer; nothing for nil.
pub(super) fn bytes(value: Value) -> Result<Vec<u8>, Error> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Nil => Ok(Vec::new()),
        _ => Err(strange("a text")),
    }
}

/// The parts of an answer; none for nil.
pub(super) fn parts(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(parts) => Ok(parts),
        Value::Nil => Ok(Vec::new()),
        _ => Err(strange("a list")),
    }
}

/// A whole number of an answer.
pub(super) fn count(value: &Value) -> Result<u64, Error> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| strange("a number")),
        Value::BulkString(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| strange("a number"))
        }
        _ => Err(strange("a number")),
    }
}

/// `N` doubles of an answer.
pub(super) fn doubles<const N: usize>(bytes: &[u8]) -> Result<[f64; N], Error> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let numbers: Vec<f64> = chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect();
    if rest.is_empty() { numbers.try_into().map_err(|_| strange("sums")) } else { Err(strange("sums")) }
}

/// Takes `N` parts off an answer.
pub(super) fn exactly<const N: usize>(value: Value, what: &'static str) -> Result<[Value; N], Error> {
    parts(value)?.try_into().map_err(|_| strange(what))
}

/// Rows: number, state and head of each event, one after another; those that are not there are empty.
pub(super) fn rows(shard: Shard, value: Value) -> Result<Vec<Option<Found>>, Error> {
    let mut parts = parts(value)?.into_iter();
    let mut rows = Vec::with_capacity(parts.len() / 3);
    while let (Some(n), Some(state), Some(head)) = (parts.next(), parts.next(), parts.next()) {
        let (n, state, head) = (bytes(n)?, bytes(state)?, bytes(head)?);
        let there = !n.is_empty() && !state.is_empty();
        rows.push(if there { Some(found(shard, number(&n)?, &state, &head)?) } else { None });
    }
    Ok(rows)
}

/// An id of an answer; all zeros are none.
pub(super) fn id(bytes: &[u8]) -> Option<EventId> {
    let id: [u8; 16] = bytes.try_into().ok()?;
    (id != [0; 16]).then_some(EventId(id))
}

/// A seq's shard and number, where there is such a shard.
pub(super) fn place(seq: Seq, shards: u16) -> Option<(Shard, u64)> {
    let (shard, number) = Shard::of(seq);
    (shard.0 < shards && seq.0 < 1 << 53).then_some((shard, number))
}

#[cfg(test)]
mod tests;
