//! Metrics with a `group` label: only of a few groups, and only for those who hold the token, since names of tenants are in them.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::names::Names;

/// So many groups have metrics of their own: those with most pending events.
pub const TOP: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    group: String,
}

type Numbers = Family<GroupLabel, Gauge<f64, AtomicU64>>;

/// How one group stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupNumbers {
    /// Its written form.
    pub group: String,
    /// Events accepted and not settled.
    pub backlog: u64,
    /// Age of the oldest of them, seconds.
    pub oldest_age_s: f64,
    /// Attempts in flight.
    pub in_flight: u32,
    /// Its part of all worker time in the last minute, 0 to 1.
    pub share: f64,
    /// Events a second that arrived in the last minute.
    pub arrival_rate: f64,
    /// Events a second that ended in the last minute.
    pub drain_rate: f64,
    /// The 99th percentile of its waits, seconds; `None` before the first.
    pub wait_p99_s: Option<f64>,
}

/// The metrics of these groups, made anew for each scrape: which groups they are changes.
#[derive(Debug)]
pub(super) struct GroupMetrics {
    names: Names,
    backlog: Numbers,
    oldest_age: Numbers,
    in_flight: Numbers,
    share: Numbers,
    arrival_rate: Numbers,
    drain_rate: Numbers,
    wait_p99: Numbers,
}

impl GroupMetrics {
    pub(super) fn new() -> Self {
        let mut names = Names::new();
        let mut add = |name, help| names.add(name, &["group"], help, Numbers::default());
        Self {
            backlog: add("group_backlog_events", "Its events accepted and not settled"),
            oldest_age: add("group_oldest_age_seconds", "Age of its oldest pending event"),
            in_flight: add("group_in_flight", "Its attempts in flight"),
            share: add("group_share", "Its part of all worker time in the last minute, 0 to 1"),
            arrival_rate: add("group_arrival_rate", "Events a second that arrived in the last minute"),
            drain_rate: add("group_drain_rate", "Events a second that ended in the last minute"),
            wait_p99: add("group_wait_p99_seconds", "The 99th percentile of its last thousand waits or so"),
            names,
        }
    }

    pub(super) fn set(&self, group: &GroupNumbers) {
        let label = GroupLabel { group: group.group.clone() };
        let numbers = [
            (&self.backlog, Some(group.backlog as f64)),
            (&self.oldest_age, Some(group.oldest_age_s)),
            (&self.in_flight, Some(f64::from(group.in_flight))),
            (&self.share, Some(group.share)),
            (&self.arrival_rate, Some(group.arrival_rate)),
            (&self.drain_rate, Some(group.drain_rate)),
            (&self.wait_p99, group.wait_p99_s),
        ];
        for (family, number) in numbers {
            if let Some(number) = number {
                family.get_or_create(&label).set(number);
            }
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        self.names.registry()
    }

    pub(super) fn rows(&self) -> String {
        self.names.rows()
    }
}
