//! Where an event waits that is about to be stored: in its own lane, or in one that it shares (R10). Decided once, in the order in which
//! events become durable, for the place is stored with the event.

use std::sync::Arc;

use super::newcomers::Newcomers;
use super::{Shared, Shed};
use crate::engine::{Engine, Wanted};
use crate::event::{Event, Group, Lane, Now};

/// Why an event is in an overflow lane, as its counter says.
fn reason(place: &Lane) -> &'static str {
    match (place.inner.is_some(), place.group.overflow_part().is_some()) {
        (true, _) => "within",
        (false, true) => "new_groups",
        (false, false) => "max_active",
    }
}

/// The last question before the store.
pub(super) struct Admission {
    shared: Arc<Shared>,
    pub(super) newcomers: Newcomers,
}

impl Admission {
    pub(super) fn new(shared: Arc<Shared>, newcomers: Newcomers) -> Self {
        Self { shared, newcomers }
    }

    /// Where the events of the next batch have to wait instead of in their own lanes, one answer each; an empty list when all have their
    /// own. An error where the overflow lane holds too much of the little room that is left in the store.
    pub(super) fn places<'a>(
        &mut self,
        batch: impl Iterator<Item = &'a Event> + Clone,
        engine: &mut Engine,
        now: Now,
    ) -> Vec<Result<Option<Lane>, Shed>> {
        let wanted: Vec<Wanted<'a>> =
            batch.clone().map(|event| Wanted { lane: &event.lane, part: self.newcomers.judge(event, now) }).collect();
        let places = engine.places(&wanted);
        batch.zip(places).map(|(event, place)| place.map(|place| self.admits(event, place)).transpose()).collect()
    }

    fn admits(&self, event: &Event, place: Lane) -> Result<Lane, Shed> {
        if place.group != event.lane.group {
            self.shared.store.admits(&place.group)?;
        }
        self.shared.metrics.overflowed(&event.source, reason(&place));
        Ok(place)
    }
}

/// The name of a source as a part of overflow lanes.
pub(super) fn part(source: &str) -> Group {
    /// A name that is longer than this goes by its hash: the lane's own name has to fit a stored one.
    const LONG: usize = 512;
    let part = Group::of(&[source]);
    if part.as_str().len() <= LONG {
        return part;
    }
    Group::of(&[format!("{:016x}", xxhash_rust::xxh3::xxh3_64(source.as_bytes()))])
}
