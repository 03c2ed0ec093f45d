//! From the waits of a run to what is shown of it. Pure: the same run gives the same figures.

use std::collections::HashMap;
use std::time::Duration;

use super::arrivals::{Arrival, Traffic};
use super::variant::Variant;
use super::world::{NEVER, Outcome};
use crate::cli::panels::Dot;
use crate::event::Group;

/// So many groups have a row of their own; the others share one.
const GROUPS_SHOWN: usize = 10;

/// Dots of one row in the picture: its shape needs no more.
const DOTS: usize = 300;

/// How long events waited, from arrival to first lease.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) events: u64,
    /// Of them, those that were never leased; they count as the longest waits.
    pub(super) never: u64,
    /// `None` where that event was never leased.
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
    pub(super) max: Option<Duration>,
}

impl Spread {
    /// Puts `waits` in another order: for three of ten millions nobody has to sort them.
    fn of(waits: &mut [f32]) -> Self {
        // Nearest rank: the smallest wait that so many hundredths of all are at or below.
        let mut at = |percent: usize| {
            let place = (waits.len() * percent).div_ceil(100).saturating_sub(1);
            if waits.is_empty() {
                return None;
            }
            let (_, wait, _) = waits.select_nth_unstable_by(place, f32::total_cmp);
            (*wait != NEVER).then(|| Duration::from_secs_f32(*wait))
        };
        let (p50, p99, max) = (at(50), at(99), at(100));
        let never = waits.iter().filter(|wait| **wait == NEVER).count() as u64;
        Self { events: waits.len() as u64, never, p50, p99, max }
    }
}

/// Who stands in a row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) groups: usize,
}

/// Which row each lane belongs to; the same for all runs.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) who: Vec<Who>,
    of_lane: Vec<usize>,
}

impl Rows {
    /// By kind where kinds are known, else the groups with most events and the rest together.
    pub(super) fn of(traffic: &Traffic) -> Self {
        let names = if traffic.kinds.is_empty() { largest(traffic) } else { kinds(traffic) };
        let mut rows = Self { who: Vec::new(), of_lane: Vec::new() };
        let mut groups: HashMap<(usize, &Group), ()> = HashMap::new();
        for (lane, name) in traffic.lanes.iter().zip(names) {
            let at = rows.who.iter().position(|who| who.name == name).unwrap_or_else(|| {
                rows.who.push(Who { name, groups: 0 });
                rows.who.len() - 1
            });
            rows.of_lane.push(at);
            groups.insert((at, &lane.group), ());
        }
        for (at, _) in groups.into_keys() {
            rows.who.get_mut(at).into_iter().for_each(|who| who.groups += 1);
        }
        rows
    }
}

fn kinds(traffic: &Traffic) -> Vec<String> {
    traffic.kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

/// Each lane's group where that is one of the largest.
fn largest(traffic: &Traffic) -> Vec<String> {
    let mut events: HashMap<&Group, u64> = HashMap::new();
    for arrival in &traffic.arrivals {
        if let Some(lane) = traffic.lanes.get(arrival.lane as usize) {
            *events.entry(&lane.group).or_default() += 1;
        }
    }
    let mut ranked: Vec<(&Group, u64)> = events.into_iter().collect();
    ranked.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
    // A single one more is shown rather than hidden under another name.
    let shown = if ranked.len() <= GROUPS_SHOWN + 1 { ranked.len() } else { GROUPS_SHOWN };
    let shown: Vec<&Group> = ranked.into_iter().take(shown).map(|(group, _)| group).collect();
    let name = |group: &Group| if shown.contains(&group) { group.to_string() } else { "(others)".to_owned() };
    traffic.lanes.iter().map(|lane| name(&lane.group)).collect()
}

/// What is shown of one run.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) name: String,
    pub(super) slots: u32,
    pub(super) outcome: Totals,
    /// As many as the rows, in their order.
    pub(super) spreads: Vec<Spread>,
    pub(super) all: Spread,
    /// A row's events over time, some of them.
    pub(super) dots: Vec<Vec<Dot>>,
}

/// The run as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Totals {
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) left: u64,
    pub(super) attempts: u64,
    pub(super) took: Duration,
    /// Delivered events a second.
    pub(super) throughput: f64,
    /// The part of the slots that was held on average, 0 to 1.
    pub(super) slot_use: f64,
    pub(super) violations: u64,
}

impl Figures {
    pub(super) fn of(traffic: &Traffic, rows: &Rows, variant: &Variant, mut outcome: Outcome) -> Self {
        let row = |arrival: &Arrival| rows.of_lane.get(arrival.lane as usize).copied().unwrap_or_default();
        let mut counts = vec![0_usize; rows.who.len()];
        for arrival in &traffic.arrivals {
            counts.get_mut(row(arrival)).into_iter().for_each(|count| *count += 1);
        }
        let mut parts: Vec<Part> = counts.into_iter().map(Part::new).collect();
        for (arrival, wait) in traffic.arrivals.iter().zip(&outcome.waits) {
            parts.get_mut(row(arrival)).into_iter().for_each(|part| part.add(arrival, *wait));
        }
        let seconds = outcome.took.as_secs_f64().max(1e-6);
        Self {
            name: variant.name.clone(),
            slots: variant.settings.slots,
            outcome: Totals {
                delivered: outcome.delivered,
                dead: outcome.dead,
                left: outcome.left,
                attempts: outcome.attempts,
                took: outcome.took,
                throughput: outcome.delivered as f64 / seconds,
                slot_use: outcome.worker.as_secs_f64() / seconds / f64::from(variant.settings.slots),
                violations: outcome.violations,
            },
            spreads: parts.iter_mut().map(|part| Spread::of(&mut part.waits)).collect(),
            dots: parts.into_iter().map(|part| part.dots).collect(),
            all: Spread::of(&mut outcome.waits),
        }
    }
}

/// What is gathered for one row.
struct Part {
    waits: Vec<f32>,
    dots: Vec<Dot>,
    /// Every so-manieth event has a dot.
    every: usize,
}

impl Part {
    fn new(events: usize) -> Self {
        Self { waits: Vec::with_capacity(events), dots: Vec::new(), every: events.div_ceil(DOTS).max(1) }
    }

    fn add(&mut self, arrival: &Arrival, wait: f32) {
        if wait != NEVER && self.waits.len().is_multiple_of(self.every) {
            self.dots.push(Dot { at_s: arrival.at_us as f64 / 1e6, wait_s: f64::from(wait) });
        }
        self.waits.push(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Lane;

    #[test]
    fn a_wait_that_never_ends_is_longer_than_any() {
        let spread = Spread::of(&mut [3.0, NEVER, 1.0, 2.0]);
        assert_eq!((spread.events, spread.never), (4, 1));
        assert_eq!((spread.p50, spread.p99), (Some(Duration::from_secs(2)), None));
        assert_eq!(Spread::of(&mut []), Spread::default());
        let hundred = Spread::of(&mut (1..=100).map(|n| n as f32).collect::<Vec<_>>());
        assert_eq!((hundred.p50, hundred.p99), (Some(Duration::from_secs(50)), Some(Duration::from_secs(99))));
    }

    #[test]
    fn the_largest_groups_have_rows_and_the_rest_shares_one() {
        use crate::cli::simulate::arrivals::Answer;
        let mut traffic = Traffic::default();
        for number in 0..13_u32 {
            for inner in ["x", "y"] {
                let group = Group::of(&[format!("g{number}")]);
                let lane = traffic.lane(&Lane { group, inner: Some(Group::of(&[inner])) });
                for _ in 0..=number {
                    let arrival = Arrival { at_us: 0, lane, call_us: 0, order: 0, answer: Answer::Status(200) };
                    traffic.add(arrival).unwrap();
                }
            }
        }
        let rows = Rows::of(&traffic);
        assert_eq!(rows.who.len(), 11);
        assert_eq!(rows.who[0], Who { name: "(others)".into(), groups: 3 });
        assert_eq!(rows.who[10], Who { name: "g12".into(), groups: 1 });
    }
}
