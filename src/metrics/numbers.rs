//! What a source has counted so far, read back: alerts are judged by it, and people see it.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Metrics, ReasonLabel, SecretLabel, SourceLabel};
use crate::event::Missing;

/// Reasons of refusals that another secret, or an ended one, would have mended.
const SIGNATURE: [&str; 2] = ["bad_signature", "secrets_expired"];

/// A source's counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceNumbers {
    /// Events that became durable.
    pub accepted: u64,
    /// Of them, those that the upstream has.
    pub delivered: u64,
    /// Those that went to the dead letters.
    pub dead: u64,
    /// Those that repeat another one and were kept from delivery.
    pub suppressed: u64,
    /// Of them, those without a key although there is a rule, by reason.
    pub fallback: Vec<(&'static str, u64)>,
    /// Requests refused for their signature.
    pub refused: u64,
    /// By secret, how often it matched.
    pub matches: Vec<u64>,
    /// The sender's clock minus ours at its last signed time, seconds.
    pub skew_s: f64,
}

impl Metrics {
    /// The counters of a source that has so many secrets.
    #[must_use]
    pub fn numbers_of(&self, source: &str, secrets: usize) -> SourceNumbers {
        let label = SourceLabel { source: source.to_owned() };
        let reason = |reason: &str| ReasonLabel { source: source.to_owned(), reason: reason.to_owned() };
        let fallback = |missing: Missing| {
            let count = self.fallback.get(&reason(missing.as_str())).map_or(0, |counter| counter.get());
            (missing.as_str(), count)
        };
        let events = |family: &Family<SourceLabel, Counter>| family.get(&label).map_or(0, |counter| counter.get());
        let refused = |name: &str| self.rejected.get(&reason(name)).map_or(0, |counter| counter.get());
        let matches = |index: usize| {
            let label = SecretLabel { source: source.to_owned(), index: u64::try_from(index).unwrap_or(u64::MAX) };
            self.secrets.get(&label).map_or(0, |counter| counter.get())
        };
        SourceNumbers {
            accepted: self.accepted_of(source),
            delivered: events(&self.delivered),
            dead: events(&self.dead),
            suppressed: events(&self.suppressed),
            fallback: Missing::ALL.into_iter().map(fallback).collect(),
            refused: SIGNATURE.into_iter().map(refused).sum(),
            matches: (0..secrets).map(matches).collect(),
            skew_s: self.skew.get(&label).map_or(0.0, |gauge| gauge.get()),
        }
    }
}
