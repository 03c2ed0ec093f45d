//! A batch in the making: requests become records in a buffer, and the steps that memory takes once they are durable.
//!
//! A record says in which segments its event was born, other than the one it stands in itself; so a batch is staged for a
//! segment, and staged anew when it turns out to go into the next one.

use std::collections::HashMap;
use std::sync::Arc;

use super::core::Core;
use crate::event::{Event, EventId, NumberMap, Seq, Wall};
use crate::store::log::Place;
use crate::store::log::batch::HEADER_BYTES;
use crate::store::record::{self, Copy, Settled, State as Standing};
use crate::store::repeats::{Hash, Known};
use crate::store::row::{Noted, Row};
use crate::store::state::{Entry, Fetched, Settle, State, Step};
use crate::store::{Appended, AttemptNote, Error, Pending, Repeat, Settlement, Status, Verdict};

/// A batch that is being made for one place in the log.
pub(super) struct Stage<'a> {
    core: &'a Core,
    segment: u32,
    offset: u32,
    pub(super) next_seq: u64,
    /// Room for the batch's header, then frames.
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) records: u32,
    pub(super) steps: Vec<Step>,
    /// Where events stand after what is staged already, and where they were born.
    changed: NumberMap<u64, Changed>,
    /// Fingerprints of what is staged already.
    known: HashMap<Hash, Known>,
}

struct Changed {
    stand: Stand,
    births: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Pending,
    Ended,
    /// It goes on under another seq.
    Gone,
}

impl Stand {
    fn of(pending: bool) -> Self {
        if pending { Self::Pending } else { Self::Ended }
    }
}

/// What a settlement needs to know of its event.
struct Found {
    pending: bool,
    births: Vec<u32>,
    fetched: Fetched,
}

impl<'a> Stage<'a> {
    /// An empty batch that goes to `offset` in `segment`. `bytes` is emptied.
    pub(super) fn new(core: &'a Core, segment: u32, offset: u32, next_seq: u64, bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        Self {
            core,
            segment,
            offset,
            next_seq,
            bytes,
            records: 0,
            steps: Vec::new(),
            changed: NumberMap::default(),
            known: HashMap::new(),
        }
    }

    /// Bytes of payload so far.
    pub(super) fn payload(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER_BYTES)
    }

    /// Appends one record; where it will stand.
    fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<Place, Error> {
        let at = self.bytes.len();
        let length = record::put_frame(self.bytes, write).map_err(|error| Error::Unavailable(error.to_string()))?;
        let offset = u64::from(self.offset) + at as u64;
        let offset = u32::try_from(offset).map_err(|_| Error::Unavailable("a batch of more than 4 GiB".into()))?;
        self.records += 1;
        Ok(Place { segment: self.segment, offset, length })
    }

    /// Stages the events of an append; the seq of the first, and which are repeats.
    pub(super) fn append(&mut self, events: &[Arc<Event>]) -> Result<Appended, Error> {
        let mut appended = Appended::from(Seq(self.next_seq));
        self.steps.reserve(events.len());
        for event in events {
            record::check(event).map_err(Error::Unavailable)?;
        }
        for (number, event) in events.iter().enumerate() {
            let seq = Seq(self.next_seq);
            match self.repeated(event)? {
                Some(of) => {
                    self.suppress(seq, event, of)?;
                    appended.repeats.push(Repeat { number, of });
                }
                None => self.accept(seq, event)?,
            }
            self.next_seq += 1;
        }
        Ok(appended)
    }

    fn accept(&mut self, seq: Seq, event: &Event) -> Result<(), Error> {
        self.core.learn_lane(&event.lane)?;
        let place = self.frame(|out| record::put_accepted(out, seq, event))?;
        let known = Known::of(event);
        self.known.extend(known);
        self.steps.push(Step::Accept(Entry::accepted(Row::accepted(seq, event, place)), known));
        Ok(())
    }

    /// The event that this one repeats. The dead one was never delivered, so what repeats it is wanted.
    fn repeated(&self, event: &Event) -> Result<Option<EventId>, Error> {
        let Some(fingerprint) = event.fingerprint.as_ref().filter(|_| self.core.options.suppress_repeats) else {
            return Ok(None);
        };
        let known = match self.known.get(&fingerprint.hash) {
            Some(known) => Some(*known),
            None => self.core.known(&fingerprint.hash)?,
        };
        let Some(known) = known.filter(|known| known.covers(event.received)) else { return Ok(None) };
        Ok((!self.core.is_dead(known.id)?).then_some(known.id))
    }

    /// A repeat has ended when it begins, and is written as what it is: one record, so that it can never be found pending.
    fn suppress(&mut self, seq: Seq, event: &Event, of: EventId) -> Result<(), Error> {
        let state = Standing {
            status: Status::Suppressed,
            due: None,
            attempts: 0,
            first_attempt: None,
            interrupted: 0,
            settled: Some(event.received),
            replays: 0,
            requeued: None,
            bytes: record::weight(event),
            reason: Box::default(),
            refused: 0,
            duplicate_of: Some(of),
        };
        let copy = Copy { seq, replaces: None, event, state: &state, notes: &[], births: &[] };
        let place = self.frame(|out| record::put_copied(out, &copy))?;
        self.changed.insert(seq.0, Changed { stand: Stand::Ended, births: Vec::new() });
        self.steps.push(copied(seq, seq, event, state, false, Vec::new(), place, None));
        Ok(())
    }

    /// Stages settlements; how many of them change nothing.
    pub(super) fn settle(&mut self, batch: &[Settlement]) -> Result<usize, Error> {
        let mut ignored = 0;
        self.steps.reserve(batch.len());
        for settlement in batch {
            let changes = match settlement.verdict {
                Verdict::Requeued => self.requeue(settlement)?.is_some(),
                _ => self.settle_one(settlement)?,
            };
            ignored += usize::from(!changes);
        }
        Ok(ignored)
    }

    /// Stages the requeues of ended events; how each is pending then.
    pub(super) fn requeue_all(&mut self, seqs: &[Seq], at: Wall) -> Result<Vec<Option<Pending>>, Error> {
        let settlement = |seq| Settlement { seq, at, verdict: Verdict::Requeued, attempt: None };
        seqs.iter().map(|&seq| self.requeue(&settlement(seq))).collect()
    }

    fn settle_one(&mut self, settlement: &Settlement) -> Result<bool, Error> {
        let seq = settlement.seq;
        let Some(found) = self.find(seq, false)? else { return Ok(false) };
        if !found.pending {
            return Ok(false);
        }
        let settled = Settled {
            seq,
            at: settlement.at,
            verdict: settlement.verdict.clone(),
            note: settlement.attempt.clone(),
            births: found.births.clone(),
        };
        let place = self.frame(|out| record::put_settled(out, &settled))?;
        let Settled { at, verdict, note, births, .. } = settled;
        self.changed.insert(seq.0, Changed { stand: Stand::of(!verdict.ends()), births: found.births });
        let settle =
            Settle { seq, at, verdict, place, noted: note.as_ref().map(Noted::of), births, fetched: found.fetched };
        self.steps.push(Step::Settle(settle));
        Ok(true)
    }

    /// What is known of an event: from this batch, the active delta, or fetched.
    fn find(&self, seq: Seq, ended_too: bool) -> Result<Option<Found>, Error> {
        if let Some(changed) = self.changed.get(&seq.0) {
            let pending = changed.stand == Stand::Pending;
            return Ok(Some(Found { pending, births: changed.births.clone(), fetched: None }));
        }
        if let Some(entry) = self.core.state.lock().active.rows.get(&seq.0) {
            let births = entry.row.births_outside(self.segment);
            return Ok((!entry.gone).then(|| Found { pending: entry.row.is_pending(), births, fetched: None }));
        }
        let Some(fetched) = self.core.fetch(seq, ended_too)? else { return Ok(None) };
        let row = &fetched.0;
        self.core.learn_lane(&row.lane)?;
        let (pending, births) = (row.is_pending(), row.births_outside(self.segment));
        Ok(Some(Found { pending, births, fetched: Some(fetched) }))
    }

    /// An ended event goes to the end of its lane: it is written whole, under a new seq.
    fn requeue(&mut self, settlement: &Settlement) -> Result<Option<Pending>, Error> {
        // Its row is needed whole; in the rare case that this batch has changed it, it is not known before the batch is durable.
        match self.changed.get(&settlement.seq.0).map(|changed| changed.stand) {
            Some(Stand::Ended) => return self.requeue_changed(settlement),
            Some(Stand::Pending | Stand::Gone) => return Ok(None),
            None => {}
        }
        let Some((row, fetched)) = self.whole_row(settlement.seq)? else { return Ok(None) };
        if row.is_pending() || !row.is_kept(&self.core.settings.retention, self.core.clock.now().wall) {
            return Ok(None);
        }
        self.requeue_row(settlement, row, fetched)
    }

    /// This batch has changed the event: what it made of it is computed ahead.
    fn requeue_changed(&mut self, settlement: &Settlement) -> Result<Option<Pending>, Error> {
        let seq = settlement.seq;
        let known = self.core.state.lock().active.rows.get(&seq.0).filter(|entry| !entry.gone).map(|e| e.row.clone());
        let mut row = known;
        for step in &self.steps {
            match step {
                Step::Settle(settle) if settle.seq == seq => {
                    if row.is_none() {
                        row = settle.fetched.as_ref().map(|fetched| fetched.0.clone());
                    }
                    if let Some(row) = &mut row {
                        row.settle(settle.at, &settle.verdict, settle.place, settle.noted);
                    }
                }
                Step::Copy { row: copy, .. } if copy.seq == seq => row = Some(copy.as_ref().clone()),
                _ => {}
            }
        }
        match row {
            Some(row) if !row.is_pending() => self.requeue_row(settlement, row, None),
            _ => Ok(None),
        }
    }

    fn requeue_row(&mut self, settlement: &Settlement, row: Row, fetched: Fetched) -> Result<Option<Pending>, Error> {
        let Some((event, mut notes)) = self.read_whole(&row)? else { return Ok(None) };
        notes.extend(settlement.attempt.clone());
        let state = Standing {
            status: Status::Queued,
            due: None,
            attempts: 0,
            first_attempt: None,
            interrupted: 0,
            settled: Some(settlement.at),
            replays: row.state.replays.saturating_add(u32::from(row.status() != Status::Suppressed)),
            requeued: Some(settlement.at),
            bytes: row.state.bytes,
            reason: Box::default(),
            refused: 0,
            duplicate_of: row.state.duplicate_of,
        };
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        self.changed.insert(row.seq.0, Changed { stand: Stand::Gone, births: Vec::new() });
        self.changed.insert(seq.0, Changed { stand: Stand::Pending, births: Vec::new() });
        let pending = Row::of(seq, &event, row.place, state.clone()).pending();
        self.copy(seq, &row, &event, state, &notes, fetched)?;
        Ok(Some(pending))
    }

    /// Stages the copy of an event into the present segment, so that older ones can go. False when it is gone.
    pub(super) fn copy_forward(&mut self, seq: Seq, segment: u32) -> Result<bool, Error> {
        if self.changed.contains_key(&seq.0) {
            return Ok(false);
        }
        let Some((row, fetched)) = self.whole_row(seq)? else { return Ok(false) };
        if !row.all_pins().any(|(pinned, _)| pinned == segment) {
            return Ok(false);
        }
        let Some((event, notes)) = self.read_whole(&row)? else { return Ok(false) };
        let state = row.state.clone();
        self.changed
            .insert(seq.0, Changed { stand: Stand::of(row.is_pending()), births: row.births_outside(self.segment) });
        self.copy(seq, &row, &event, state, &notes, fetched)?;
        Ok(true)
    }

    fn copy(
        &mut self,
        seq: Seq,
        row: &Row,
        event: &Event,
        state: Standing,
        notes: &[AttemptNote],
        fetched: Fetched,
    ) -> Result<(), Error> {
        self.core.learn_lane(&row.lane)?;
        let mut births = row.births_outside(self.segment);
        births.retain(|&segment| self.core.segments.has(segment));
        births.sort_unstable();
        births.dedup();
        let was = row.seq;
        let replaces = (was != seq).then_some(was);
        let copy = Copy { seq, replaces, event, state: &state, notes, births: &births };
        let place = self.frame(|out| record::put_copied(out, &copy))?;
        self.steps.push(copied(seq, was, event, state, !notes.is_empty(), births, place, fetched));
        Ok(())
    }

    /// Stages the mark that an event is gone, as far as it was born in one of these segments.
    pub(super) fn gone(&mut self, seq: Seq, births: Vec<u32>) -> Result<(), Error> {
        self.frame(|out| record::put_gone(out, seq, &births))?;
        // Such an event is not known any more: only the segments that the mark is about have to be remembered.
        self.steps.push(Step::Gone { seq, births, segment: self.segment, fetched: None });
        Ok(())
    }

    /// A row from the active delta, or fetched; of a bucket that is still held.
    fn whole_row(&self, seq: Seq) -> Result<Option<(Row, Fetched)>, Error> {
        let held = |state: &State, row: &Row| row.is_pending() || state.sums.held.contains_key(&row.bucket);
        {
            let state = self.core.state.lock();
            if let Some(entry) = state.active.rows.get(&seq.0) {
                return Ok((!entry.gone && held(&state, &entry.row)).then(|| (entry.row.clone(), None)));
            }
        }
        let Some(fetched) = self.core.fetch(seq, true)? else { return Ok(None) };
        // A bucket that was given up may still be in the index; its segments may not be there any more.
        let held = held(&self.core.state.lock(), &fetched.0);
        Ok(held.then(|| (fetched.0.clone(), Some(fetched))))
    }

    /// The record at a place of the log, or of this batch.
    fn record_at(&self, place: Place) -> Result<Option<record::Record>, Error> {
        let start = place.offset.checked_sub(self.offset).filter(|_| place.segment == self.segment);
        let Some(start) = start.map(|start| start as usize) else { return self.core.segments.read(place) };
        let frame = self.bytes.get(start..start.saturating_add(place.length as usize)).unwrap_or_default();
        let payload = record::frame_payload(&bytes::Bytes::copy_from_slice(frame));
        let record = payload.and_then(|payload| record::decode(&payload));
        record.map(Some).map_err(|damaged| Error::Corrupt(format!("a batch in the making: {damaged}")))
    }

    /// An event and its notes; `None`, with a line in the log, when they cannot be read.
    fn read_whole(&self, row: &Row) -> Result<Option<(Event, Vec<AttemptNote>)>, Error> {
        let whole = super::read::whole(self.core, row, |place| self.record_at(place));
        self.core.report_damage(row, &whole);
        match whole {
            Err(Error::Corrupt(_)) => Ok(None),
            other => other,
        }
    }
}

/// The step that a copy is, live and when it is read again.
pub(super) fn copied(
    seq: Seq,
    was: Seq,
    event: &Event,
    state: Standing,
    noted: bool,
    births: Vec<u32>,
    place: Place,
    fetched: Fetched,
) -> Step {
    let known = Known::of_copy(event, &state);
    let mut row = Row::of(seq, event, place, state);
    if noted {
        row.notes.push(place);
    }
    // Under a new seq it is born here for the first time.
    if was == seq {
        row.births.clone_from(&births);
    }
    Step::Copy { row: Box::new(row), was, births, known, fetched }
}
