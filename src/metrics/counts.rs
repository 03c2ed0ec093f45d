//! What was counted of a source, read back for people.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Metrics, ReasonLabel, SecretLabel, SourceLabel};
use crate::event::Missing;

/// Secrets of a source whose use is looked up; nobody rotates through more.
const SECRETS_MAX: u64 = 32;

/// A source's events, counted since this process began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Became durable.
    pub accepted: u64,
    /// Delivered, durably.
    pub delivered: u64,
    /// Went to the dead letters.
    pub dead: u64,
    /// Have no key, by the reason's name.
    pub fallback: Vec<(&'static str, u64)>,
    /// Verified with the secret at this place of the list, by place.
    pub secrets: Vec<(u64, u64)>,
    /// The sender's clock against ours, seconds; 0 where it states no time.
    pub skew_s: f64,
}

/// How long quiet groups waited: a histogram does not say what it holds.
#[derive(Debug, Default)]
pub(super) struct QuietWaits {
    micros: AtomicU64,
    count: AtomicU64,
}

impl QuietWaits {
    pub(super) fn add(&self, wait: Duration) {
        self.micros.fetch_add(u64::try_from(wait.as_micros()).unwrap_or(0), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> (Duration, u64) {
        (Duration::from_micros(self.micros.load(Ordering::Relaxed)), self.count.load(Ordering::Relaxed))
    }
}

impl Metrics {
    /// What was counted of the source with this name; zeros for one that nothing came for.
    #[must_use]
    pub fn counts_of(&self, source: &str) -> Counts {
        let label = SourceLabel { source: source.to_owned() };
        let reasons = Missing::ALL.map(Missing::as_str).into_iter().chain(["no_rule"]);
        let secrets = (0..SECRETS_MAX).filter_map(|index| {
            let label = SecretLabel { source: source.to_owned(), index };
            self.secrets.get(&label).map(|counter| (index, counter.get()))
        });
        Counts {
            accepted: self.accepted_of(source),
            delivered: self.delivered.get(&label).map_or(0, |counter| counter.get()),
            dead: self.dead.get(&label).map_or(0, |counter| counter.get()),
            fallback: reasons.filter_map(|reason| self.fallback_of(source, reason)).collect(),
            secrets: secrets.collect(),
            skew_s: self.skew.get(&label).map_or(0.0, |gauge| gauge.get()),
        }
    }

    fn fallback_of(&self, source: &str, reason: &'static str) -> Option<(&'static str, u64)> {
        let label = ReasonLabel { source: source.to_owned(), reason: reason.to_owned() };
        self.fallback.get(&label).map(|counter| (reason, counter.get()))
    }

    /// Waits of events that found their lane within its burst, so far: all of them together, and how many.
    #[must_use]
    pub fn quiet_waits(&self) -> (Duration, u64) {
        self.quiet.read()
    }
}
