//! From the ledger to figures, and from figures to a verdict. Pure: what is said at the end is computed here and nowhere else.
//!
//! **The wait of an event** is the time from the moment the store posts it to the moment the receiver has read the whole of it, on one
//! clock: the gateway's answer with its fsync, the turn in the lane, and the way to the receiver are all in it. The time to the
//! store's 2xx is kept apart as well.

use std::time::Duration;

use super::ledger::{Entry, FLOODING_INDEX, Found, QUIET, store};
use crate::cli::panels::Dot;
use crate::cli::table::{span, thousands};
use crate::event::Mono;

/// The phases, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The quiet stores alone.
    Quiet,
    /// One store floods; a lane for each.
    Flood,
    /// The same through one queue for all.
    Shared,
}

impl Phase {
    /// Its name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Quiet => "without_flood",
            Self::Flood => "with_flood",
            Self::Shared => "shared_queue",
        }
    }
}

/// How times are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) count: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        // Nearest rank: the smallest time that so many hundredths of all are at or below.
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Self {
            count: times.len(),
            p50: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
            max: times.last().copied().unwrap_or_default(),
        }
    }
}

/// One store in one phase.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) name: &'static str,
    pub(super) floods: bool,
    /// From post to arrival.
    pub(super) wait: Spread,
    /// From post to 2xx.
    pub(super) answer: Spread,
}

/// When the flood was where, from the beginning of its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood {
    /// Its first post.
    pub(super) posted: Duration,
    /// Its last 2xx.
    pub(super) accepted: Duration,
    /// Its last arrival.
    pub(super) delivered: Duration,
}

/// One phase.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) phase: Phase,
    /// From the beginning to the last arrival.
    pub(super) took: Duration,
    /// In the order of the table; the flooding store last, where it took part.
    pub(super) stores: Vec<Store>,
    /// The quiet stores together.
    pub(super) quiet: Spread,
    pub(super) quiet_answer: Spread,
    pub(super) flood: Option<Flood>,
    pub(super) accepted: u64,
    pub(super) delivered: u64,
    /// Accepted and never delivered.
    pub(super) lost: u64,
    /// Deliveries beyond the first.
    pub(super) duplicates: u64,
    /// Delivered under another name than it was accepted under.
    pub(super) renamed: u64,
    pub(super) quiet_dots: Vec<Dot>,
    pub(super) flood_dots: Vec<Dot>,
}

impl Figures {
    /// The figures of `phase`, which began at `began`, from the entries that are its.
    pub(super) fn of(phase: Phase, began: Mono, entries: &[&Entry]) -> Self {
        let accepted: Vec<&Entry> = entries.iter().copied().filter(|entry| entry.accepted_as.is_some()).collect();
        let quiet: Vec<&Entry> = accepted.iter().copied().filter(|entry| entry.store != FLOODING_INDEX).collect();
        let flood: Vec<&Entry> = accepted.iter().copied().filter(|entry| entry.store == FLOODING_INDEX).collect();
        let last = accepted.iter().filter_map(|entry| entry.arrived).max().unwrap_or(began);
        let count = |what: &dyn Fn(&Entry) -> bool| accepted.iter().filter(|entry| what(entry)).count() as u64;
        Self {
            phase,
            took: last.since(began),
            stores: stores(&accepted),
            quiet: Spread::of(quiet.iter().filter_map(|entry| wait(entry)).collect()),
            quiet_answer: Spread::of(quiet.iter().filter_map(|entry| answer(entry)).collect()),
            flood: flood_times(began, &flood),
            accepted: accepted.len() as u64,
            delivered: count(&|entry| entry.arrived.is_some()),
            lost: count(&|entry| entry.arrived.is_none()),
            duplicates: entries.iter().map(|entry| u64::from(entry.deliveries.saturating_sub(1))).sum(),
            renamed: count(&|entry| entry.arrived.is_some() && entry.arrived_as != entry.accepted_as),
            quiet_dots: order_dots(began, &quiet),
            flood_dots: sample(began, &flood),
        }
    }

    /// The flooding store.
    pub(super) fn flooding(&self) -> Option<&Store> {
        self.stores.iter().find(|store| store.floods)
    }
}

fn wait(entry: &Entry) -> Option<Duration> {
    Some(entry.arrived?.since(entry.posted))
}

fn answer(entry: &Entry) -> Option<Duration> {
    Some(entry.answered?.since(entry.posted))
}

fn stores(accepted: &[&Entry]) -> Vec<Store> {
    let figures = |index: usize| {
        let own: Vec<&Entry> = accepted.iter().copied().filter(|entry| entry.store == index).collect();
        let floods = index == FLOODING_INDEX;
        // A quiet store that got nothing through stands in the table all the same.
        (!floods || !own.is_empty()).then(|| Store {
            name: store(index),
            floods,
            wait: Spread::of(own.iter().filter_map(|entry| wait(entry)).collect()),
            answer: Spread::of(own.iter().filter_map(|entry| answer(entry)).collect()),
        })
    };
    (0..=QUIET.len()).filter_map(figures).collect()
}

fn flood_times(began: Mono, flood: &[&Entry]) -> Option<Flood> {
    let posted = flood.iter().map(|entry| entry.posted).min()?;
    let accepted = flood.iter().filter_map(|entry| entry.answered).max()?;
    let delivered = flood.iter().filter_map(|entry| entry.arrived).max().unwrap_or(accepted);
    let at = |moment: Mono| moment.since(began);
    Some(Flood { posted: at(posted), accepted: at(accepted), delivered: at(delivered) })
}

/// One dot for each order: its first post, and the longest wait of its webhooks.
fn order_dots(began: Mono, quiet: &[&Entry]) -> Vec<Dot> {
    let mut orders = std::collections::BTreeMap::new();
    for entry in quiet {
        let Some(wait) = wait(entry) else { continue };
        let order = orders.entry((entry.store, entry.order)).or_insert((entry.posted, wait));
        *order = (order.0.min(entry.posted), order.1.max(wait));
    }
    orders.into_values().map(|(posted, wait)| dot(began, posted, wait)).collect()
}

/// Some of a flood: its shape needs no more, and a picture of everything would be large.
fn sample(began: Mono, flood: &[&Entry]) -> Vec<Dot> {
    const DOTS: usize = 250;
    let every = flood.len().div_ceil(DOTS).max(1);
    flood.iter().step_by(every).filter_map(|entry| Some(dot(began, entry.posted, wait(entry)?))).collect()
}

fn dot(began: Mono, posted: Mono, wait: Duration) -> Dot {
    Dot { at_s: posted.since(began).as_secs_f64(), wait_s: wait.as_secs_f64() }
}

/// Whether everything that was accepted was delivered once, as it was.
pub(super) fn is_right(phases: &[Figures], found: &Found) -> bool {
    let wrong: u64 = phases.iter().map(|phase| phase.lost + phase.duplicates + phase.renamed).sum();
    wrong + found.unsigned + found.unknown == 0
}

/// How the sentence begins that tells of lost or wrong events.
pub(super) const FAULT: &str = "THIS IS A FAULT";

/// What it comes to, in sentences.
pub(super) fn verdict(phases: &[Figures], found: &Found) -> Vec<String> {
    let mut lines = fairness(phases);
    lines.push(if is_right(phases, found) { kept(phases) } else { broken(phases, found) });
    if let Some(status) = found.refused.first() {
        let count = thousands(found.refused.len() as u64);
        lines.push(format!("{count} posts were refused (the first with {status}) and are in no figure above."));
    }
    lines
}

/// Who waited for whom.
fn fairness(phases: &[Figures]) -> Vec<String> {
    let find = |which| phases.iter().find(|figures| figures.phase == which);
    let (Some(quiet), Some(flood)) = (find(Phase::Quiet), find(Phase::Flood)) else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(flooding) = flood.flooding() {
        let (own, others) = (flooding.wait.max, flood.quiet.max);
        // A quarter of the flood's own wait: nobody would call that "behind itself".
        let felt = others * 4 > own && others > quiet.quiet.max;
        lines.push(if felt {
            format!(
                "The flood waited up to {}, and the quiet stores felt it: up to {}. A flood this short, or a machine this busy, shows little; \
                 try --flood with a larger number.",
                span(own),
                span(others)
            )
        } else {
            format!("The flood waited up to {}; nobody else waited longer than {}.", span(own), span(others))
        });
    }
    lines.push(format!(
        "The quiet stores' p99: {} without the flood, {} with it.",
        span(quiet.quiet.p99),
        span(flood.quiet.p99)
    ));
    if let Some(shared) = find(Phase::Shared) {
        lines.push(format!(
            "Through one shared queue the same stores waited up to {} (p99 {}).",
            span(shared.quiet.max),
            span(shared.quiet.p99)
        ));
    }
    lines
}

fn kept(phases: &[Figures]) -> String {
    let accepted = phases.iter().map(|phase| phase.accepted).sum();
    let delivered = phases.iter().map(|phase| phase.delivered).sum();
    format!("{} events accepted, {} delivered; none lost, none twice.", thousands(accepted), thousands(delivered))
}

fn broken(phases: &[Figures], found: &Found) -> String {
    let sum = |what: fn(&Figures) -> u64| phases.iter().map(what).sum::<u64>();
    let counts = [
        (sum(|phase| phase.lost), "accepted and not delivered"),
        (sum(|phase| phase.duplicates), "delivered again"),
        (sum(|phase| phase.renamed), "delivered under another event id"),
        (found.unsigned, "delivered with a wrong Fairlane-Signature"),
        (found.unknown, "delivered that nobody posted"),
    ];
    let said: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", thousands(*count)))
        .collect();
    format!("{FAULT}: of {} accepted events: {}.", thousands(sum(|phase| phase.accepted)), said.join(", "))
}

#[cfg(test)]
mod tests;
