//! The records of the log: what one says and how it is written.
//!
//! A record stands in a *frame*: length of its payload (u32, little-endian), CRC-32C of the payload (u32), payload. The batch
//! around it has a checksum of its own (`log/batch.rs`); the one here lets a single record be read by its place. A payload begins with
//! its kind, which is also its version: a changed form gets a new number, and the old one stays readable.
//!
//! | kind | says |
//! | --- | --- |
//! | 7 accepted | seq and the whole event |
//! | 4 gone | an event whose end stood in a segment that was deleted, while an older segment still has its birth |
//! | 5 settled | seq, time, verdict, the attempt's note |
//! | 8 copied | an event that lives on here, whole, with its state and notes; after a requeue under a new seq. A repeat that is suppressed begins so |
//! | 1, 6 | accepted and copied before there were fingerprints and traces, and before replays were counted: a replay in them was one |
//! | 2, 3 | settled and copied before refusals were counted: no attempt in them was one |
//!
//! *Births* are the segments, other than the record's own, with a record that would bring the event into being when the
//! log is read again. As long as one of them exists, something later in the log must say what became of the event.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::wire::{Damaged, GROUP_BYTES_MAX, Reader, put_bytes, put_number, put_option, put_place, put_text, put_wall};
use super::{AttemptNote, Status, Verdict};
use crate::event::{
    Event, EventId, Fingerprint, Group, KeySource, Lane, Missing, Seq, Trace, WaitReason, WaitSplit, Wall,
};

/// Bytes of a frame before its payload.
pub(super) const FRAME_BYTES: usize = 8;

const ACCEPTED: u8 = 7;
const GONE: u8 = 4;
const SETTLED: u8 = 5;
const COPIED: u8 = 8;
/// Without fingerprints and traces; they are only read.
const ACCEPTED_2: u8 = 1;
const COPIED_2: u8 = 6;
/// Without refusals; they are only read.
const SETTLED_1: u8 = 2;
const COPIED_1: u8 = 3;

/// How events, notes and states in a record were written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// Without refusals.
    First,
    /// Without fingerprints and traces, and with a mark in place of the number of replays.
    Second,
    /// As they are now.
    Present,
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    /// An event was accepted.
    Accepted {
        /// Its place in the order of commits.
        seq: Seq,
        /// All of it.
        event: Event,
    },
    /// Something became of an event.
    Settled(Settled),
    /// An event lives on here; what older segments say of it is superseded.
    Copied {
        /// Its seq from here on.
        seq: Seq,
        /// Its seq before, where that was another one: it was requeued.
        replaces: Option<Seq>,
        /// All of it.
        event: Event,
        /// Where it stands.
        state: State,
        /// Its attempts that ended, oldest first.
        notes: Vec<AttemptNote>,
        /// Segments with an older birth.
        births: Vec<u32>,
    },
    /// An event is gone, if its birth is in one of these segments.
    Gone {
        /// Its seq.
        seq: Seq,
        /// Segments with a birth.
        births: Vec<u32>,
    },
}

/// A settlement as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// Which event.
    pub(super) seq: Seq,
    /// When this was decided.
    pub(super) at: Wall,
    /// What follows.
    pub(super) verdict: Verdict,
    /// What the attempt gave.
    pub(super) note: Option<AttemptNote>,
    /// Segments, other than the record's own, with a birth.
    pub(super) births: Vec<u32>,
}

/// Where a copied event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Its status.
    pub(super) status: Status,
    /// When it may be tried again, while it is retrying.
    pub(super) due: Option<Wall>,
    /// Attempts begun.
    pub(super) attempts: u32,
    /// When the first of them began.
    pub(super) first_attempt: Option<Wall>,
    /// Attempts in a row that ended with the process.
    pub(super) interrupted: u32,
    /// When its status last changed.
    pub(super) settled: Option<Wall>,
    /// How often it was requeued, and when last.
    pub(super) replays: u32,
    pub(super) requeued: Option<Wall>,
    /// Bytes that it counts for: those of the record it was accepted with, wherever it is copied.
    pub(super) bytes: u32,
    /// Why it is dead.
    pub(super) reason: Box<str>,
    /// Attempts that were refused.
    pub(super) refused: u32,
    /// The event that it repeats, of one that was suppressed.
    pub(super) duplicate_of: Option<EventId>,
}

/// Writes a frame whose payload `write` appends to `out`; gives the frame's length.
///
/// # Errors
///
/// [`TooLong`] when the payload does not fit 32 bits; `out` is then as it was.
pub(super) fn put_frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<u32, TooLong> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    write(out);
    let frame = out.get_mut(start..).unwrap_or_default();
    let whole = u32::try_from(frame.len());
    let Some((head, payload)) = frame.split_first_chunk_mut::<FRAME_BYTES>() else { return Err(TooLong) };
    let (Ok(whole), Ok(length)) = (whole, u32::try_from(payload.len())) else {
        out.truncate(start);
        return Err(TooLong);
    };
    let (length_bytes, crc_bytes) = head.split_at_mut(4);
    length_bytes.copy_from_slice(&length.to_le_bytes());
    crc_bytes.copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    Ok(whole)
}

/// A record that no frame can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record is longer than 4 GiB")]
pub(super) struct TooLong;

/// The payload of the frame at the beginning of `bytes`, its checksum verified.
pub(super) fn frame_payload(bytes: &Bytes) -> Result<Bytes, Damaged> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_BYTES>().ok_or(Damaged("a record's frame"))?;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let payload = rest.get(..length).ok_or(Damaged("a record's length"))?;
    if crc32c::crc32c(payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(Damaged("a record's checksum"));
    }
    Ok(bytes.slice(FRAME_BYTES..FRAME_BYTES + length))
}

/// Writes an accepted event.
pub(super) fn put_accepted(out: &mut Vec<u8>, seq: Seq, event: &Event) {
    out.push(ACCEPTED);
    put_number(out, seq.0);
    put_event(out, event);
}

/// Writes a settlement.
pub(super) fn put_settled(out: &mut Vec<u8>, settled: &Settled) {
    out.push(SETTLED);
    put_number(out, settled.seq.0);
    put_wall(out, settled.at);
    put_verdict(out, &settled.verdict);
    put_option(out, settled.note.as_ref(), put_note);
    put_births(out, &settled.births);
}

/// A copy before it is written; the parts are those of [`Record::Copied`].
pub(super) struct Copy<'a> {
    pub(super) seq: Seq,
    pub(super) replaces: Option<Seq>,
    pub(super) event: &'a Event,
    pub(super) state: &'a State,
    pub(super) notes: &'a [AttemptNote],
    pub(super) births: &'a [u32],
}

/// Writes a copied event.
pub(super) fn put_copied(out: &mut Vec<u8>, copy: &Copy<'_>) {
    out.push(COPIED);
    put_number(out, copy.seq.0);
    put_option(out, copy.replaces, |out, seq| put_number(out, seq.0));
    put_state(out, copy.state);
    put_births(out, copy.births);
    put_number(out, copy.notes.len() as u64);
    for note in copy.notes {
        put_note(out, note);
    }
    put_event(out, copy.event);
}

/// Writes that an event is gone.
pub(super) fn put_gone(out: &mut Vec<u8>, seq: Seq, births: &[u32]) {
    out.push(GONE);
    put_number(out, seq.0);
    put_births(out, births);
}

fn put_births(out: &mut Vec<u8>, births: &[u32]) {
    put_number(out, births.len() as u64);
    for &segment in births {
        put_number(out, u64::from(segment));
    }
}

/// Reads a record's payload. Bodies share its memory.
///
/// # Errors
///
/// [`Damaged`] names the first part that is not as it was written.
pub(super) fn decode(payload: &Bytes) -> Result<Record, Damaged> {
    let mut reader = Reader::new(payload);
    let kind = reader.byte("a record's kind")?;
    let seq = Seq(reader.number("a seq")?);
    let record = match kind {
        ACCEPTED_2 | ACCEPTED => Record::Accepted { seq, event: read_event(&mut reader, payload, form(kind))? },
        SETTLED_1 | SETTLED => Record::Settled(read_settled(&mut reader, seq, form(kind))?),
        COPIED_1 | COPIED_2 | COPIED => {
            let replaces = reader.option("the seq before", |r| r.number("the seq before").map(Seq))?;
            let state = read_state(&mut reader, form(kind))?;
            let births = read_births(&mut reader)?;
            let notes = reader.list("the notes", |r| read_note(r, form(kind)))?;
            let event = read_event(&mut reader, payload, form(kind))?;
            Record::Copied { seq, replaces, event, state, notes, births }
        }
        GONE => Record::Gone { seq, births: read_births(&mut reader)? },
        _ => return Err(Damaged("a record's kind")),
    };
    reader.end()?;
    Ok(record)
}

fn form(kind: u8) -> Form {
    match kind {
        SETTLED_1 | COPIED_1 => Form::First,
        ACCEPTED_2 | COPIED_2 => Form::Second,
        _ => Form::Present,
    }
}

fn read_births(reader: &mut Reader<'_>) -> Result<Vec<u32>, Damaged> {
    reader.list("the births", |r| r.number_u32("a birth"))
}

fn read_settled(reader: &mut Reader<'_>, seq: Seq, form: Form) -> Result<Settled, Damaged> {
    Ok(Settled {
        seq,
        at: reader.wall("a settlement's time")?,
        verdict: read_verdict(reader)?,
        note: reader.option("a note", |r| read_note(r, form))?,
        births: read_births(reader)?,
    })
}

fn put_verdict(out: &mut Vec<u8>, verdict: &Verdict) {
    match verdict {
        Verdict::Begun => out.push(1),
        Verdict::Interrupted => out.push(2),
        Verdict::RetryAt(due) => {
            out.push(3);
            put_wall(out, *due);
        }
        Verdict::Released => out.push(4),
        Verdict::Delivered => out.push(5),
        Verdict::Dead(reason) => {
            out.push(6);
            put_text(out, reason);
        }
        Verdict::Discarded => out.push(7),
        Verdict::Requeued => out.push(8),
    }
}

fn read_verdict(reader: &mut Reader<'_>) -> Result<Verdict, Damaged> {
    Ok(match reader.byte("a verdict")? {
        1 => Verdict::Begun,
        2 => Verdict::Interrupted,
        3 => Verdict::RetryAt(reader.wall("a due time")?),
        4 => Verdict::Released,
        5 => Verdict::Delivered,
        6 => Verdict::Dead(reader.text("a reason")?.into()),
        7 => Verdict::Discarded,
        8 => Verdict::Requeued,
        _ => return Err(Damaged("a verdict")),
    })
}

pub(super) fn put_note(out: &mut Vec<u8>, note: &AttemptNote) {
    put_number(out, u64::from(note.number));
    put_wall(out, note.started);
    put_number(out, note.took.as_secs());
    put_number(out, u64::from(note.took.subsec_nanos()));
    put_text(out, &note.outcome);
    put_option(out, note.status, |out, status| put_number(out, u64::from(status)));
    put_text(out, &note.error);
    put_bytes(out, &note.excerpt);
    put_marks(out, note);
}

/// What was waited for stands only where something was: most events wait for nothing.
fn put_marks(out: &mut Vec<u8>, note: &AttemptNote) {
    let parts = note.waited.iter().count() as u64;
    out.push(u8::from(note.refused) | if parts > 0 { WAITED } else { 0 });
    if parts > 0 {
        put_number(out, parts);
        for (reason, span) in note.waited.iter() {
            out.push(reason_number(reason));
            put_number(out, u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
        }
    }
}

/// In a note's last byte: it was refused.
const REFUSED: u8 = 1;

/// In a note's last byte: what was waited for follows. Notes from before waits were split have none.
const WAITED: u8 = 2;

pub(super) fn read_note(reader: &mut Reader<'_>, form: Form) -> Result<AttemptNote, Damaged> {
    let number = reader.number_u32("an attempt's number")?;
    let started = reader.wall("an attempt's start")?;
    let seconds = reader.number("an attempt's length")?;
    let nanos = reader.number_u32("an attempt's length")?;
    if nanos >= 1_000_000_000 {
        return Err(Damaged("an attempt's length"));
    }
    let mut note = AttemptNote {
        number,
        started,
        took: Duration::new(seconds, nanos),
        outcome: reader.text("an outcome")?.into(),
        status: reader.option("a status", |r| u16::try_from(r.number("a status")?).map_err(|_| Damaged("a status")))?,
        error: reader.text("an error")?.into(),
        excerpt: Bytes::copy_from_slice(reader.bytes("an excerpt")?),
        refused: false,
        waited: WaitSplit::default(),
    };
    if form >= Form::Second {
        let marks = reader.byte("a note's marks")?;
        if marks & !(REFUSED | WAITED) != 0 {
            return Err(Damaged("a note's marks"));
        }
        note.refused = marks & REFUSED != 0;
        if marks & WAITED != 0 {
            note.waited = read_waited(reader)?;
        }
    }
    Ok(note)
}

fn read_waited(reader: &mut Reader<'_>) -> Result<WaitSplit, Damaged> {
    const WHAT: Damaged = Damaged("what was waited for");
    let parts = reader.list(WHAT.0, |r| {
        let number = r.byte(WHAT.0)?;
        let reason = WaitReason::ALL.into_iter().find(|reason| reason_number(*reason) == number);
        Ok((reason.ok_or(WHAT)?, Duration::from_micros(r.number(WHAT.0)?)))
    })?;
    Ok(parts.into_iter().collect())
}

/// Numbers of their own, so that an order of declaration is not a file format.
fn reason_number(reason: WaitReason) -> u8 {
    match reason {
        WaitReason::OwnLane => 1,
        WaitReason::Order => 2,
        WaitReason::GroupCap => 3,
        WaitReason::GroupRate => 4,
        WaitReason::GroupPaused => 5,
        WaitReason::GroupBreaker => 6,
        WaitReason::RetryAfter => 7,
        WaitReason::Slots => 8,
        WaitReason::Slow => 9,
        WaitReason::RetrySlots => 10,
        WaitReason::UpstreamRate => 11,
        WaitReason::UpstreamPaused => 12,
        WaitReason::UpstreamBreaker => 13,
        WaitReason::Store => 14,
        WaitReason::BeforeRestart => 15,
        WaitReason::Gateway => 16,
        WaitReason::ReplaySlots => 17,
    }
}

pub(super) fn put_status(out: &mut Vec<u8>, status: Status) {
    out.push(match status {
        Status::Queued => 1,
        Status::InFlight => 2,
        Status::Retrying => 3,
        Status::Delivered => 4,
        Status::Dead => 5,
        Status::Suppressed => 6,
        Status::Discarded => 7,
    });
}

pub(super) fn read_status(reader: &mut Reader<'_>) -> Result<Status, Damaged> {
    let number = usize::from(reader.byte("a status")?);
    Status::ALL.get(number.wrapping_sub(1)).copied().ok_or(Damaged("a status"))
}

pub(super) fn put_state(out: &mut Vec<u8>, state: &State) {
    put_status(out, state.status);
    put_option(out, state.due, put_wall);
    put_number(out, u64::from(state.attempts));
    put_option(out, state.first_attempt, put_wall);
    put_number(out, u64::from(state.interrupted));
    put_option(out, state.settled, put_wall);
    put_number(out, u64::from(state.replays));
    put_option(out, state.requeued, put_wall);
    put_number(out, u64::from(state.bytes));
    put_text(out, &state.reason);
    put_number(out, u64::from(state.refused));
    put_option(out, state.duplicate_of, |out, id| out.extend_from_slice(&id.0));
}

pub(super) fn read_state(reader: &mut Reader<'_>, form: Form) -> Result<State, Damaged> {
    Ok(State {
        status: read_status(reader)?,
        due: reader.option("a due time", |r| r.wall("a due time"))?,
        attempts: reader.number_u32("the attempts")?,
        first_attempt: reader.option("the first attempt", |r| r.wall("the first attempt"))?,
        interrupted: reader.number_u32("the interruptions")?,
        settled: reader.option("a settlement's time", |r| r.wall("a settlement's time"))?,
        replays: match form {
            Form::First | Form::Second => u32::from(reader.flag("a replay's mark")?),
            Form::Present => reader.number_u32("the replays")?,
        },
        requeued: match form {
            Form::First | Form::Second => None,
            Form::Present => reader.option("the time of a replay", |r| r.wall("the time of a replay"))?,
        },
        bytes: reader.number_u32("the bytes")?,
        reason: reader.text("a reason")?.into(),
        refused: if form >= Form::Second { reader.number_u32("the refusals")? } else { 0 },
        duplicate_of: if form >= Form::Present { reader.option("the event it repeats", read_id)? } else { None },
    })
}

/// Why an event cannot be written so that it can be read back.
///
/// # Errors
///
/// The text names the part and its length.
pub(super) fn check(event: &Event) -> Result<(), String> {
    let lanes = [Some(&event.lane), event.owner.as_ref()];
    let groups = lanes.into_iter().flatten().flat_map(|lane| [Some(&lane.group), lane.inner.as_ref()]);
    for group in groups.chain([event.order.as_ref()]).flatten() {
        let length = group.as_str().len();
        if length == 0 || length > GROUP_BYTES_MAX {
            return Err(format!("event {}: a key of {length} bytes; 1 to {GROUP_BYTES_MAX} can be stored", event.id));
        }
    }
    if event.body.len() > BODY_BYTES_MAX {
        let length = event.body.len();
        return Err(format!("event {}: a body of {length} bytes; up to {BODY_BYTES_MAX} can be stored", event.id));
    }
    Ok(())
}

/// Bytes that a suppressed event counts for, whose record is not the one of an accepted event: what is long in it.
pub(super) fn weight(event: &Event) -> u32 {
    let lines = event.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    u32::try_from(event.body.len() + event.target.len() + lines.sum::<usize>()).unwrap_or(u32::MAX)
}

/// Largest body that is taken: a segment is made for it alone, and offsets in a segment have 32 bits.
pub(super) const BODY_BYTES_MAX: usize = 1 << 30;

fn put_event(out: &mut Vec<u8>, event: &Event) {
    put_head(out, event);
    put_rest(out, event);
}

/// The first part of an event: what lists and schedulers need of it.
pub(super) fn put_head(out: &mut Vec<u8>, event: &Event) {
    out.extend_from_slice(&event.id.0);
    put_wall(out, event.received);
    put_text(out, &event.source);
    put_place(out, &event.lane, event.owner.as_ref());
    put_key_source(out, &event.key_source);
    put_option(out, event.order.as_ref(), |out, order| put_text(out, order.as_str()));
    put_text(out, &event.verified);
    put_option(out, event.provider_event_id.as_deref(), put_text);
    put_option(out, event.event_type.as_deref(), put_text);
}

/// The second part: what is sent on.
pub(super) fn put_rest(out: &mut Vec<u8>, event: &Event) {
    put_text(out, event.method.as_str());
    put_text(out, &event.target);
    put_option(out, event.forward.as_deref(), put_text);
    match event.peer {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(6);
            out.extend_from_slice(&address.octets());
        }
    }
    out.push(u8::from(event.https));
    put_number(out, event.headers.len() as u64);
    for (name, value) in &event.headers {
        put_text(out, name.as_str());
        put_bytes(out, value.as_bytes());
    }
    put_option(out, event.fingerprint, |out, fingerprint| {
        out.extend_from_slice(&fingerprint.hash);
        put_span(out, fingerprint.window);
    });
    put_option(out, event.trace, |out, trace| {
        out.extend_from_slice(&trace.id);
        out.extend_from_slice(&trace.span);
        out.push(trace.flags);
    });
    put_bytes(out, &event.body);
}

fn read_event(reader: &mut Reader<'_>, payload: &Bytes, form: Form) -> Result<Event, Damaged> {
    let head = read_head(reader)?;
    read_rest(reader, payload, head, form)
}

/// What [`put_head`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) id: EventId,
    pub(super) received: Wall,
    pub(super) source: Arc<str>,
    pub(super) lane: Lane,
    pub(super) owner: Option<Lane>,
    pub(super) key_source: KeySource,
    pub(super) order: Option<Group>,
    pub(super) verified: Arc<str>,
    pub(super) provider_event_id: Option<Box<str>>,
    pub(super) event_type: Option<Box<str>>,
}

pub(super) fn read_head(reader: &mut Reader<'_>) -> Result<Head, Damaged> {
    let (id, received, source) =
        (read_id(reader)?, reader.wall("the time of receipt")?, reader.shared_text("the source")?);
    let (lane, owner) = reader.place()?;
    Ok(Head {
        id,
        received,
        source,
        lane,
        owner,
        key_source: read_key_source(reader)?,
        order: reader.option("the order key", |r| r.group("the order key"))?,
        verified: reader.shared_text("the verification")?,
        provider_event_id: reader.option("the provider's id", |r| r.text("the provider's id").map(Into::into))?,
        event_type: reader.option("the event type", |r| r.text("the event type").map(Into::into))?,
    })
}

/// What [`put_rest`] wrote, joined to its head. The body shares the memory of `payload`, which `reader` reads.
pub(super) fn read_rest(reader: &mut Reader<'_>, payload: &Bytes, head: Head, form: Form) -> Result<Event, Damaged> {
    let known = form >= Form::Present;
    Ok(Event {
        id: head.id,
        received: head.received,
        source: head.source,
        lane: head.lane,
        owner: head.owner,
        key_source: head.key_source,
        order: head.order,
        verified: head.verified,
        provider_event_id: head.provider_event_id,
        event_type: head.event_type,
        method: Method::from_bytes(reader.bytes("the method")?).map_err(|_| Damaged("the method"))?,
        target: reader.text("the target")?.into(),
        forward: reader.option("the forward path", |r| r.text("the forward path").map(Into::into))?,
        peer: read_peer(reader)?,
        https: reader.flag("the scheme")?,
        headers: read_headers(reader)?,
        fingerprint: if known { reader.option("a fingerprint", read_fingerprint)? } else { None },
        trace: if known { reader.option("a trace", read_trace)? } else { None },
        body: payload.slice_ref(reader.bytes("the body")?),
    })
}

/// A length of time, in whole microseconds.
pub(super) fn put_span(out: &mut Vec<u8>, span: Duration) {
    put_number(out, u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
}

pub(super) fn read_span(reader: &mut Reader<'_>, what: &'static str) -> Result<Duration, Damaged> {
    reader.number(what).map(Duration::from_micros)
}

fn read_fingerprint(reader: &mut Reader<'_>) -> Result<Fingerprint, Damaged> {
    const WHAT: &str = "a fingerprint";
    Ok(Fingerprint { hash: read_array(reader, WHAT)?, window: read_span(reader, WHAT)? })
}

fn read_trace(reader: &mut Reader<'_>) -> Result<Trace, Damaged> {
    const WHAT: &str = "a trace";
    Ok(Trace { id: read_array(reader, WHAT)?, span: read_array(reader, WHAT)?, flags: reader.byte(WHAT)? })
}

pub(super) fn read_array<const N: usize>(reader: &mut Reader<'_>, what: &'static str) -> Result<[u8; N], Damaged> {
    reader.take(N, what)?.try_into().map_err(|_| Damaged(what))
}

pub(super) fn read_id(reader: &mut Reader<'_>) -> Result<EventId, Damaged> {
    read_array(reader, "an event id").map(EventId)
}

fn read_peer(reader: &mut Reader<'_>) -> Result<IpAddr, Damaged> {
    const WHAT: Damaged = Damaged("the peer");
    match reader.byte(WHAT.0)? {
        4 => {
            let octets: [u8; 4] = reader.take(4, WHAT.0)?.try_into().map_err(|_| WHAT)?;
            Ok(Ipv4Addr::from(octets).into())
        }
        6 => {
            let octets: [u8; 16] = reader.take(16, WHAT.0)?.try_into().map_err(|_| WHAT)?;
            Ok(Ipv6Addr::from(octets).into())
        }
        _ => Err(WHAT),
    }
}

fn read_headers(reader: &mut Reader<'_>) -> Result<HeaderMap, Damaged> {
    const WHAT: Damaged = Damaged("the headers");
    let count = reader.count(WHAT.0)?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(reader.bytes(WHAT.0)?).map_err(|_| WHAT)?;
        let value = HeaderValue::from_bytes(reader.bytes(WHAT.0)?).map_err(|_| WHAT)?;
        headers.try_append(name, value).map_err(|_| WHAT)?;
    }
    Ok(headers)
}

pub(super) fn put_key_source(out: &mut Vec<u8>, source: &KeySource) {
    match source {
        KeySource::Rule { rule, signed } => {
            out.push(if *signed { 1 } else { 2 });
            put_text(out, rule);
        }
        KeySource::Missing(missing) => {
            out.push(3);
            out.push(missing_number(*missing));
        }
        KeySource::NoRule => out.push(4),
    }
}

pub(super) fn read_key_source(reader: &mut Reader<'_>) -> Result<KeySource, Damaged> {
    const WHAT: Damaged = Damaged("the key's source");
    Ok(match reader.byte(WHAT.0)? {
        signed @ (1 | 2) => KeySource::Rule { rule: reader.shared_text(WHAT.0)?, signed: signed == 1 },
        3 => {
            let number = reader.byte(WHAT.0)?;
            let missing = Missing::ALL.into_iter().find(|missing| missing_number(*missing) == number);
            KeySource::Missing(missing.ok_or(WHAT)?)
        }
        4 => KeySource::NoRule,
        _ => return Err(WHAT),
    })
}

/// Numbers of their own, so that an order of declaration is not a file format.
fn missing_number(missing: Missing) -> u8 {
    match missing {
        Missing::Absent => 1,
        Missing::Empty => 2,
        Missing::NotScalar => 3,
        Missing::NotJson => 4,
        Missing::TooLong => 5,
        Missing::TooDeep => 6,
        Missing::TooBig => 7,
        Missing::BadEncoding => 8,
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
