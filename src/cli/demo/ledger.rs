//! What every event of the demo did: when it was posted, answered and delivered, and whether all of it fits together.
//!
//! An event's place in the ledger stands in its `X-Shopify-Webhook-Id`, so that the receiver finds it without asking anybody.

use parking_lot::Mutex;

use crate::event::{EventId, Mono};

/// The quiet stores, in the order of the table.
pub(super) const QUIET: [&str; 9] =
    ["fern", "harbour", "juniper", "lantern", "mallow", "orchard", "pebble", "quill", "tidewater"];

/// The store that floods.
pub(super) const FLOODING: &str = "megamart";

/// The store at `index`: the quiet ones, then the one that floods.
pub(super) fn store(index: usize) -> &'static str {
    QUIET.get(index).copied().unwrap_or(FLOODING)
}

/// The index of the store that floods.
pub(super) const FLOODING_INDEX: usize = QUIET.len();

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Which phase of the demo it belongs to.
    pub(super) phase: usize,
    /// The index of its store.
    pub(super) store: usize,
    /// Which of its store's orders it belongs to.
    pub(super) order: u64,
    /// When the store posted it; if its connection was still busy, when it would have.
    pub(super) posted: Mono,
    /// When the store had read the 2xx; `None`: there was none.
    pub(super) answered: Option<Mono>,
    /// The name that the gateway gave it with the 2xx.
    pub(super) accepted_as: Option<EventId>,
    /// When the receiver had read the whole of it for the first time.
    pub(super) arrived: Option<Mono>,
    /// The name that it arrived under.
    pub(super) arrived_as: Option<EventId>,
    /// How often it arrived.
    pub(super) deliveries: u32,
}

impl Entry {
    fn floods(&self) -> bool {
        self.store == FLOODING_INDEX
    }

    /// Accepted, and not there yet.
    fn is_owed(&self) -> bool {
        self.accepted_as.is_some() && self.arrived.is_none()
    }
}

/// How the present phase stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// Events of the flood that were accepted.
    pub(super) flood_accepted: u64,
    /// Those of them that have not arrived.
    pub(super) flood_owed: u64,
    /// Events of the quiet stores that arrived.
    pub(super) quiet_arrived: u64,
    /// Events of the quiet stores that were accepted and have not arrived.
    pub(super) quiet_owed: u64,
    /// How long the last event of a quiet store took from post to arrival, in microseconds.
    pub(super) quiet_latest_us: u64,
    /// Everything that arrived, to see whether anything moves.
    pub(super) arrivals: u64,
}

/// What the demo found out besides single events.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Posts that were answered with another status than 2xx, by status.
    pub(super) refused: Vec<u16>,
    /// Deliveries whose `Fairlane-Signature` was not right.
    pub(super) unsigned: u64,
    /// Deliveries that nobody had posted.
    pub(super) unknown: u64,
}

#[derive(Debug, Default)]
struct Book {
    phase: usize,
    entries: Vec<Entry>,
    standing: Standing,
    found: Found,
}

/// The ledger; senders and receiver write into it, the demo reads.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Book>);

impl Ledger {
    /// Begins the next phase.
    pub(super) fn begin(&self, phase: usize) {
        let mut book = self.0.lock();
        book.phase = phase;
        book.standing = Standing::default();
    }

    /// An event that is about to be posted; the answer is its place.
    pub(super) fn posted(&self, store: usize, order: u64, posted: Mono) -> usize {
        let mut book = self.0.lock();
        let phase = book.phase;
        book.entries.push(Entry {
            phase,
            store,
            order,
            posted,
            answered: None,
            accepted_as: None,
            arrived: None,
            arrived_as: None,
            deliveries: 0,
        });
        book.entries.len() - 1
    }

    /// The 2xx came.
    pub(super) fn accepted(&self, place: usize, id: EventId, at: Mono) {
        let book = &mut *self.0.lock();
        let Some(entry) = book.entries.get_mut(place) else { return };
        entry.answered = Some(at);
        entry.accepted_as = Some(id);
        // It may have arrived before the store had read its answer.
        let owed = u64::from(entry.is_owed());
        if entry.floods() {
            book.standing.flood_accepted += 1;
            book.standing.flood_owed += owed;
        } else {
            book.standing.quiet_owed += owed;
        }
    }

    /// Another answer came.
    pub(super) fn refused(&self, status: u16) {
        self.0.lock().found.refused.push(status);
    }

    /// The receiver was given an event; `signed` tells whether the gateway's signature is right.
    pub(super) fn arrived(&self, place: Option<usize>, id: Option<EventId>, signed: bool, at: Mono) {
        let book = &mut *self.0.lock();
        book.standing.arrivals += 1;
        book.found.unsigned += u64::from(!signed);
        let Some(entry) = place.and_then(|place| book.entries.get_mut(place)) else {
            book.found.unknown += 1;
            return;
        };
        let owed = u64::from(entry.is_owed());
        entry.deliveries += 1;
        if entry.arrived.is_some() {
            return;
        }
        entry.arrived = Some(at);
        entry.arrived_as = id;
        if entry.floods() {
            book.standing.flood_owed -= owed;
        } else {
            book.standing.quiet_owed -= owed;
            book.standing.quiet_arrived += 1;
            book.standing.quiet_latest_us = at.0.saturating_sub(entry.posted.0);
        }
    }

    /// How the present phase stands.
    pub(super) fn standing(&self) -> Standing {
        self.0.lock().standing
    }

    /// Everything that was written.
    pub(super) fn read(&self) -> (Vec<Entry>, Found) {
        let book = self.0.lock();
        (book.entries.clone(), book.found.clone())
    }
}

/// `X-Shopify-Webhook-Id` of the event at `place`: a UUID in form, as Shopify's are.
pub(super) fn webhook_id(seed: u64, place: usize) -> String {
    format!("{:08x}-0000-4000-8000-{place:012x}", seed & 0xffff_ffff)
}

/// The place that [`webhook_id`] wrote.
pub(super) fn place(webhook_id: &str) -> Option<usize> {
    usize::from_str_radix(webhook_id.rsplit_once('-')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EventId = EventId([1; 16]);

    #[test]
    fn an_event_is_found_again_by_its_webhook_id() {
        assert_eq!(webhook_id(7, 0x1f), "00000007-0000-4000-8000-00000000001f");
        assert_eq!(place(&webhook_id(u64::MAX, 123_456)), Some(123_456));
        assert_eq!(place("b54557e4"), None);
    }

    #[test]
    fn what_is_owed_counts_in_either_order_of_answer_and_arrival() {
        let ledger = Ledger::default();
        let quiet = ledger.posted(0, 0, Mono(10));
        let flood = ledger.posted(FLOODING_INDEX, 0, Mono(10));
        ledger.accepted(flood, ID, Mono(20));
        assert_eq!((ledger.standing().flood_accepted, ledger.standing().flood_owed), (1, 1));
        ledger.arrived(Some(quiet), Some(ID), true, Mono(25));
        ledger.accepted(quiet, ID, Mono(30));
        ledger.arrived(Some(flood), Some(ID), true, Mono(40));
        let standing = ledger.standing();
        assert_eq!((standing.flood_owed, standing.quiet_owed, standing.quiet_latest_us), (0, 0, 15));
        ledger.arrived(Some(flood), Some(ID), false, Mono(50));
        ledger.arrived(Some(99), None, true, Mono(50));
        let (entries, found) = ledger.read();
        assert_eq!((entries[flood].deliveries, entries[flood].arrived), (2, Some(Mono(40))));
        assert_eq!((found.unsigned, found.unknown), (1, 1));
    }
}
