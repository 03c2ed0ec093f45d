//! What arrives: every event as the few numbers that the scheduler needs, in the order of time.

use std::collections::HashMap;
use std::time::Duration;

use crate::event::{Group, Lane};

/// More events are no what-if but a run of hours; they take some 170 bytes each, all that a run needs counted.
pub(super) const EVENTS_MAX: usize = 20_000_000;

/// How its attempts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// With this status, every time.
    Status(u16),
    /// Not at all: each runs into the timeout or breaks off.
    None,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Microseconds from the first one.
    pub(super) at_us: u64,
    /// Which of [`Traffic::lanes`].
    pub(super) lane: u32,
    /// How long the receiver takes, in microseconds; 0: drawn at random.
    pub(super) call_us: u32,
    /// Events of a lane that share it go one after another; 0: none. From [`Traffic::order`].
    pub(super) order: u32,
    pub(super) answer: Answer,
}

/// Everything that arrives.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    pub(super) arrivals: Vec<Arrival>,
    pub(super) lanes: Vec<Lane>,
    /// What kind of lane each is, where that is known; its figures are shown by kind then.
    pub(super) kinds: Vec<&'static str>,
    numbers: HashMap<Lane, u32>,
    orders: HashMap<(u32, Group), u32>,
}

impl Traffic {
    /// The number of this lane, which is made where it is new.
    pub(super) fn lane(&mut self, lane: &Lane) -> u32 {
        if let Some(number) = self.numbers.get(lane) {
            return *number;
        }
        let number = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        self.lanes.push(lane.clone());
        self.numbers.insert(lane.clone(), number);
        number
    }

    /// The number of this order key of a lane, from 1.
    pub(super) fn order(&mut self, lane: u32, key: Group) -> u32 {
        let next = u32::try_from(self.orders.len() + 1).unwrap_or(u32::MAX);
        *self.orders.entry((lane, key)).or_insert(next)
    }

    /// How many order keys there are.
    pub(super) fn orders(&self) -> usize {
        self.orders.len()
    }

    /// A new lane of this kind.
    pub(super) fn lane_of(&mut self, kind: &'static str, group: &str, inner: Option<&str>) -> u32 {
        let lane = Lane { group: Group::of(&[group]), inner: inner.map(|inner| Group::of(&[inner])) };
        let number = self.lane(&lane);
        self.kinds.resize(self.lanes.len(), kind);
        number
    }

    /// Adds an event.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn add(&mut self, arrival: Arrival) -> Result<(), String> {
        if self.arrivals.len() >= EVENTS_MAX {
            return Err(format!("more than {EVENTS_MAX} events: take a part of them"));
        }
        self.arrivals.push(arrival);
        Ok(())
    }

    /// Whether some times count from 1970 and others from somewhere else: together they are an order that never was.
    pub(super) fn is_mixed(&self) -> bool {
        /// September 2001: no file's own clock runs for so long, and no capture is as old.
        const DATED_US: u64 = 1_000_000_000_000_000;
        let dated = self.arrivals.iter().filter(|arrival| arrival.at_us >= DATED_US).count();
        dated > 0 && dated < self.arrivals.len()
    }

    /// Puts everything in order and lets time begin with the first event.
    pub(super) fn in_order(mut self) -> Self {
        self.arrivals.sort_by_key(|arrival| arrival.at_us);
        let first = self.arrivals.first().map_or(0, |arrival| arrival.at_us);
        self.arrivals.iter_mut().for_each(|arrival| arrival.at_us -= first);
        self
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        let groups: std::collections::HashSet<&Group> = self.lanes.iter().map(|lane| &lane.group).collect();
        groups.len()
    }

    /// From the first event to the last.
    pub(super) fn span(&self) -> Duration {
        Duration::from_micros(self.arrivals.last().map_or(0, |arrival| arrival.at_us))
    }
}
