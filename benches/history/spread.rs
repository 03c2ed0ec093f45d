//! How times are told: the usual places of their distribution, and the longest.

use std::time::Duration;

/// Milliseconds at 50 %, 95 % and 99 %, and of the longest.
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) longest: f64,
    pub(crate) count: usize,
}

impl Spread {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |permille: usize| {
            let found = times.get(times.len() * permille / 1_000).or_else(|| times.last());
            found.map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Self { p50: at(500), p95: at(950), p99: at(990), longest: at(1_000), count: times.len() }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50, p95, p99, longest, count } = self;
        write!(f, "{p50:.1} ms | {p95:.1} ms | {p99:.1} ms | {longest:.1} ms | {count}")
    }
}
