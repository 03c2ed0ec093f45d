//! A row: where one event stands, without its headers and body.
//!
//! Everything the store answers about an event, apart from the event itself and its notes, stands in its row; these are read
//! from the log by the places that the row has. The row also says which segments the event needs (*pins*) and
//! which ones could bring it into being when the log is read again (*births*).

use std::sync::Arc;

use super::bucket::{Bucket, Family};
use super::log::Place;
use super::record::{self, State};
use super::wire::{Damaged, Reader, put_number, put_option, put_place, put_text, put_wall};
use super::{AttemptNote, Pending, Query, Record, Retention, Status, Verdict};
use crate::event::{Event, EventId, Group, KeySource, Lane, Seq, Wall};

/// Notes that a row keeps the places of, the newest: 256 attempts are a night of one a minute and more.
pub(super) const NOTES_MAX: usize = 256;

/// Where one event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) seq: Seq,
    pub(super) id: EventId,
    pub(super) lane: Lane,
    pub(super) owner: Option<Lane>,
    pub(super) key_source: KeySource,
    pub(super) source: Arc<str>,
    pub(super) order: Option<Group>,
    pub(super) received: Wall,
    pub(super) provider_event_id: Option<Box<str>>,
    pub(super) event_type: Option<Box<str>>,
    pub(super) body_bytes: u32,
    pub(super) trace: Option<[u8; 16]>,
    /// The record that has the event.
    pub(super) place: Place,
    pub(super) state: State,
    /// Where it is kept since it ended; `None` while it is pending.
    pub(super) bucket: Option<Bucket>,
    /// Records with its notes, oldest first.
    pub(super) notes: Vec<Place>,
    /// Bytes of its records by segment, other than the one at `place`.
    pub(super) pins: Vec<(u32, u64)>,
    /// Segments other than that of `place` with a birth.
    pub(super) births: Vec<u32>,
}

/// What a row needs to know of an attempt's note, which stays in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) refused: bool,
}

impl Noted {
    pub(super) fn of(note: &AttemptNote) -> Self {
        Self { refused: note.refused }
    }
}

impl Row {
    /// The row of an event that was just accepted.
    pub(super) fn accepted(seq: Seq, event: &Event, place: Place) -> Self {
        let state = State {
            status: Status::Queued,
            due: None,
            attempts: 0,
            first_attempt: None,
            interrupted: 0,
            settled: None,
            replays: 0,
            requeued: None,
            bytes: place.length,
            reason: Box::default(),
            refused: 0,
            duplicate_of: None,
        };
        Self::of(seq, event, place, state)
    }

    /// The row of an event whose state is known.
    pub(super) fn of(seq: Seq, event: &Event, place: Place, state: State) -> Self {
        Self {
            seq,
            id: event.id,
            lane: event.lane.clone(),
            owner: event.owner.clone(),
            key_source: event.key_source.clone(),
            source: Arc::clone(&event.source),
            order: event.order.clone(),
            received: event.received,
            provider_event_id: event.provider_event_id.clone(),
            event_type: event.event_type.clone(),
            body_bytes: u32::try_from(event.body.len()).unwrap_or(u32::MAX),
            trace: event.trace.map(|trace| trace.id),
            place,
            state,
            bucket: None,
            notes: Vec::new(),
            pins: Vec::new(),
            births: Vec::new(),
        }
    }

    /// The lane that it belongs to, wherever it waits.
    pub(super) fn home(&self) -> &Lane {
        self.owner.as_ref().unwrap_or(&self.lane)
    }

    pub(super) fn status(&self) -> Status {
        self.state.status
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state.status.is_pending()
    }

    /// Since when it waits while it is pending: its receipt, or its last requeue.
    pub(super) fn waits_from(&self) -> Wall {
        self.state.requeued.unwrap_or(self.received)
    }

    /// When an ended event ended.
    pub(super) fn ended(&self) -> Wall {
        self.state.settled.unwrap_or(self.received)
    }

    /// Puts an event that has ended into its bucket.
    pub(super) fn file(&mut self, retention: &Retention) {
        let ended = self.ended();
        self.bucket = Family::of(self.status()).map(|family| Bucket::at(family, ended, retention));
    }

    /// Whether it may still be shown at `now`.
    pub(super) fn is_kept(&self, retention: &Retention, now: Wall) -> bool {
        let Some(family) = Family::of(self.status()) else { return true };
        self.ended().plus(family.retention(retention)) > now
    }

    /// Bytes by segment that the event needs.
    pub(super) fn all_pins(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        std::iter::once((self.place.segment, u64::from(self.place.length))).chain(self.pins.iter().copied())
    }

    fn pin(&mut self, segment: u32, bytes: u32) {
        let bytes = u64::from(bytes);
        match self.pins.iter_mut().find(|(there, _)| *there == segment) {
            Some((_, sum)) => *sum += bytes,
            None => self.pins.push((segment, bytes)),
        }
    }

    /// Segments with a birth, other than `own`.
    pub(super) fn births_outside(&self, own: u32) -> Vec<u32> {
        let all = self.births.iter().copied().chain(std::iter::once(self.place.segment));
        all.filter(|&segment| segment != own).collect()
    }

    /// What a settlement (other than a requeue, which is a copy) makes of it. `place` is the settlement's record, `noted` its note.
    pub(super) fn settle(&mut self, at: Wall, verdict: &Verdict, place: Place, noted: Option<Noted>) {
        self.pin(place.segment, place.length);
        if let Some(noted) = noted {
            self.state.refused = self.state.refused.saturating_add(u32::from(noted.refused));
            if self.notes.len() >= NOTES_MAX {
                self.notes.remove(0);
            }
            self.notes.push(place);
        }
        let state = &mut self.state;
        state.settled = Some(at);
        state.due = None;
        // An interruption is the one end of an attempt that does not break the row of them.
        if !matches!(verdict, Verdict::Begun | Verdict::Interrupted) {
            state.interrupted = 0;
        }
        match verdict {
            Verdict::Begun => {
                state.attempts = state.attempts.saturating_add(1);
                state.first_attempt = state.first_attempt.or(Some(at));
                state.status = Status::InFlight;
            }
            Verdict::Interrupted => {
                state.interrupted = state.interrupted.saturating_add(1);
                state.status = Status::Retrying;
                state.due = Some(at);
            }
            Verdict::RetryAt(due) => {
                state.status = Status::Retrying;
                state.due = Some(*due);
            }
            Verdict::Released => state.status = Status::Queued,
            Verdict::Delivered => state.status = Status::Delivered,
            Verdict::Dead(reason) => {
                state.status = Status::Dead;
                state.reason = reason.clone();
            }
            Verdict::Discarded => state.status = Status::Discarded,
            // A requeue changes the seq, so it is written as a copy; nothing follows from one here.
            Verdict::Requeued => {}
        }
    }

    /// What the scheduler sees of it.
    pub(super) fn pending(&self) -> Pending {
        Pending {
            seq: self.seq,
            id: self.id,
            lane: self.lane.clone(),
            owner: self.owner.clone(),
            order: self.order.clone(),
            received: self.received,
            attempts: self.state.attempts,
            first_attempt: self.state.first_attempt,
            due: self.state.due,
            open: self.status() == Status::InFlight,
            interrupted: self.state.interrupted,
            refused: self.state.refused,
            bytes: self.state.bytes,
            replays: self.state.replays,
            requeued: self.state.requeued,
        }
    }

    /// What a list shows of it.
    pub(super) fn record(&self) -> Record {
        Record {
            seq: self.seq,
            id: self.id,
            lane: self.lane.clone(),
            order: self.order.clone(),
            owner: self.owner.clone(),
            key_source: self.key_source.clone(),
            source: Arc::clone(&self.source),
            received: self.received,
            provider_event_id: self.provider_event_id.clone(),
            event_type: self.event_type.clone(),
            status: self.status(),
            attempts: self.state.attempts,
            settled: self.state.settled,
            due: self.state.due,
            reason: self.state.reason.clone(),
            body_bytes: self.body_bytes,
            replays: self.state.replays,
            duplicate_of: self.state.duplicate_of,
            trace: self.trace,
        }
    }

    /// Whether a query asks for it (`behind` and `limit` apart).
    pub(super) fn matches(&self, query: &Query) -> bool {
        query.group.as_ref().is_none_or(|group| *group == self.home().group)
            && query.source.as_ref().is_none_or(|source| *source == self.source)
            && (query.status.is_empty() || query.status.contains(&self.status()))
            && query.since.is_none_or(|since| self.received >= since)
            && query.until.is_none_or(|until| self.received < until)
            && query.provider_event_id.as_ref().is_none_or(|id| self.provider_event_id.as_ref() == Some(id))
    }

    /// Writes it.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.seq.0);
        out.extend_from_slice(&self.id.0);
        put_place(out, &self.lane, self.owner.as_ref());
        record::put_key_source(out, &self.key_source);
        put_text(out, &self.source);
        put_option(out, self.order.as_ref(), |out, order| put_text(out, order.as_str()));
        put_wall(out, self.received);
        put_option(out, self.provider_event_id.as_deref(), put_text);
        put_option(out, self.event_type.as_deref(), put_text);
        put_number(out, u64::from(self.body_bytes));
        put_option(out, self.trace, |out, id| out.extend_from_slice(&id));
        self.place.put(out);
        record::put_state(out, &self.state);
        put_option(out, self.bucket, |out, bucket| bucket.put(out));
        put_number(out, self.notes.len() as u64);
        self.notes.iter().for_each(|note| note.put(out));
        put_number(out, self.pins.len() as u64);
        for &(segment, bytes) in &self.pins {
            put_number(out, u64::from(segment));
            put_number(out, bytes);
        }
        put_number(out, self.births.len() as u64);
        self.births.iter().for_each(|&segment| put_number(out, u64::from(segment)));
    }

    /// Reads one.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (seq, id) = (Seq(reader.number("a seq")?), record::read_id(reader)?);
        let (lane, owner) = reader.place()?;
        Ok(Self {
            seq,
            id,
            lane,
            owner,
            key_source: record::read_key_source(reader)?,
            source: reader.shared_text("the source")?,
            order: reader.option("the order key", |r| r.group("the order key"))?,
            received: reader.wall("the time of receipt")?,
            provider_event_id: reader.option("the provider's id", |r| r.text("the provider's id").map(Into::into))?,
            event_type: reader.option("the event type", |r| r.text("the event type").map(Into::into))?,
            body_bytes: reader.number_u32("the body's length")?,
            trace: reader.option("the trace", |r| record::read_array(r, "the trace"))?,
            place: Place::read(reader)?,
            state: record::read_state(reader, record::Form::Present)?,
            bucket: reader.option("a bucket", Bucket::read)?,
            notes: reader.list("the notes", Place::read)?,
            pins: reader.list("the pins", |r| Ok((r.number_u32("a pin")?, r.number("a pin")?)))?,
            births: reader.list("the births", |r| r.number_u32("a birth"))?,
        })
    }
}
