//! What repeats are known by: for each fingerprint the event that has it, for as long as its window lasts.
//!
//! That an event is known is not a record of its own: it follows from the event's own record, so the two cannot come apart. What
//! is known of late stands in the deltas (`state.rs`), the rest in the index, by spans of time in which windows end: a span is given up as a
//! whole. Of two events with one fingerprint the one that was received later counts, in whatever order they are learned; so reading the
//! log again gives the same.

use std::time::Duration;

use super::record::{State, put_span, read_array, read_id, read_span};
use super::wire::{Damaged, Reader, put_wall};
use super::{Appended, Refusal, Status};
use crate::event::{Event, EventId, Seq, Wall};

/// A fingerprint's hash.
pub(super) type Hash = [u8; 16];

/// The event that has a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    received: Wall,
    pub(super) id: EventId,
    window: Duration,
}

impl Known {
    /// What is known from now on by an event that is no repeat.
    pub(super) fn of(event: &Event) -> Option<(Hash, Self)> {
        let fingerprint = event.fingerprint?;
        Some((fingerprint.hash, Self { received: event.received, id: event.id, window: fingerprint.window }))
    }

    /// What a copy of an event says: a repeat, released or not, is known by the event that it repeats.
    pub(super) fn of_copy(event: &Event, state: &State) -> Option<(Hash, Self)> {
        if state.duplicate_of.is_some() || state.status == Status::Suppressed { None } else { Self::of(event) }
    }

    /// Whether an event received at `at` comes within the window.
    pub(super) fn covers(&self, at: Wall) -> bool {
        at < self.received.plus(self.window)
    }

    pub(super) fn span(&self) -> Span {
        Span::of(self.received.plus(self.window), self.window)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_wall(out, self.received);
        out.extend_from_slice(&self.id.0);
        put_span(out, self.window);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        const WHAT: &str = "what is known of a fingerprint";
        Ok(Self { received: reader.wall(WHAT)?, id: read_id(reader)?, window: read_span(reader, WHAT)? })
    }
}

/// A hash with what is known by it, as a checkpoint has it.
pub(super) fn put(out: &mut Vec<u8>, hash: &Hash, known: &Known) {
    out.extend_from_slice(hash);
    known.put(out);
}

/// Reads what [`put`] wrote.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Hash, Known), Damaged> {
    Ok((read_array(reader, "a fingerprint")?, Known::read(reader)?))
}

/// The span of time in which the windows of some events end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    /// Its beginning, in microseconds since 1970.
    start: u64,
    /// Its length, in microseconds.
    width: u64,
}

/// Narrowest span: narrower ones cost files.
const WIDTH_MIN: Duration = Duration::from_secs(60);

impl Span {
    /// A window is cut into two, so that three spans at most can have what a new event asks for, and what is over is kept for half a
    /// window at most.
    fn of(until: Wall, window: Duration) -> Self {
        let width = u64::try_from((window / 2).max(WIDTH_MIN).as_micros()).unwrap_or(u64::MAX);
        Self { start: until.0 - until.0 % width, width }
    }

    /// When all windows in it are over.
    pub(super) fn end(&self) -> Wall {
        Wall(self.start.saturating_add(self.width))
    }

    /// Its keyspace's name.
    pub(super) fn name(&self) -> String {
        format!("k-{}-{}", self.start, self.width)
    }

    /// From a keyspace's name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let (start, width) = name.strip_prefix("k-")?.split_once('-')?;
        Some(Self { start: start.parse().ok()?, width: width.parse().ok()? })
    }
}

impl Appended {
    /// Whether the `number`-th event of the batch, from 0, is a repeat, and of which event.
    #[must_use]
    pub fn repeat(&self, number: usize) -> Option<EventId> {
        let at = self.repeats.binary_search_by_key(&number, |repeat| repeat.number).ok()?;
        self.repeats.get(at).map(|repeat| repeat.of)
    }

    /// Where the `number`-th event of the batch, from 0, was stored, or why it was not.
    ///
    /// # Errors
    ///
    /// Nothing of that event was kept; sending it again is safe.
    pub fn place(&self, number: usize) -> Result<Seq, Refusal> {
        match self.places.get(number) {
            Some(place) => *place,
            None if self.places.is_empty() => Ok(Seq(self.first.0 + number as u64)),
            None => Err(Refusal::Unavailable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_span_is_named_and_found_by_its_name_and_holds_the_window_s_end() {
        for (until, window) in [(7_300, HOUR), (3_599, HOUR), (90, Duration::from_secs(1)), (1_000_000, HOUR * 720)] {
            let until = Wall::from_unix_s(until);
            let span = Span::of(until, window);
            assert_eq!(Span::from_name(&span.name()), Some(span));
            assert!(span.start <= until.0 && until < span.end(), "{span:?}");
            assert!(span.width <= u64::try_from((window / 2).max(WIDTH_MIN).as_micros()).unwrap());
        }
        assert_eq!(Span::from_name("s-1-2"), None);
        assert_eq!(Span::from_name("k-1"), None);
    }

    #[test]
    fn each_event_of_a_batch_has_its_place() {
        let follows = Appended::from(Seq(7));
        assert_eq!((follows.place(0), follows.place(3)), (Ok(Seq(7)), Ok(Seq(10))));
        let places = vec![Err(Refusal::Backlog), Ok(Seq(9))];
        let apart = Appended { places, ..Appended::from(Seq(9)) };
        assert_eq!((apart.place(0), apart.place(1)), (Err(Refusal::Backlog), Ok(Seq(9))));
        assert_eq!(apart.place(2), Err(Refusal::Unavailable), "there is no such event");
    }

    #[test]
    fn the_one_received_later_counts() {
        let known = |at, id| Known { received: Wall(at), id: EventId([id; 16]), window: HOUR };
        assert!(known(2, 1) > known(1, 9));
    }
}
