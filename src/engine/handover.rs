//! Before the store goes to a successor: no event has an attempt under way, while senders that wait for an answer are served on.
//!
//! Events get no further lease, and wait for whoever has the store next; that can be taken back. Live requests are nobody's but this
//! process's, since they are not stored: they go on in the order of their deadlines, through the same gates as ever.

use super::Engine;
use super::group::Standing;
use super::live::Place;
use crate::event::Now;

impl Engine {
    /// Whether events get no further lease from now on. Live requests do.
    pub fn hold_events(&mut self, held: bool) {
        self.events_held = held;
    }

    /// Whether nothing of any event is under way: no attempt, and every settlement durable.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.leases.iter().all(|(_, lease)| lease.work.event().is_none())
    }

    /// Whether there is no live request.
    #[must_use]
    pub fn has_no_live(&self) -> bool {
        self.live.is_empty()
    }

    /// Asks for the end of every attempt of an event that is in flight; how many those are. They are retried.
    pub fn cancel_events(&mut self, now: Now) -> usize {
        self.tick(now);
        let events = self.leases.iter().filter(|(_, lease)| lease.work.event().is_some());
        let tickets: Vec<_> = events.map(|(ticket, _)| ticket).collect();
        for ticket in &tickets {
            self.cancel_lease(*ticket);
        }
        tickets.len()
    }

    /// Of the live requests that wait the one with the earliest deadline whose group may go. At most
    /// [`WAITING_MAX`](super::live::WAITING_MAX) are looked at, and only while events are held.
    pub(super) fn pick_live(&self) -> Option<(Standing, u32)> {
        let gates = self.gates();
        let shared = self.shared_busy() < self.shared_slots();
        let opens = |class| gates.open(class, true) || gates.open(class, false);
        self.live.in_line().find_map(|place| {
            let Place::Waiting(gid) = place else { return None };
            let standing = self.groups.get(gid)?.standing;
            let goes = match standing {
                Standing::Ready(class) => shared && opens(class),
                Standing::Own(class) => opens(class),
                _ => false,
            };
            goes.then_some((standing, gid))
        })
    }
}
