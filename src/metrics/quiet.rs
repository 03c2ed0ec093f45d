//! How long events of quiet groups waited, for who wants a mean over some seconds: a histogram does not say what it holds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Metrics;

/// All waits together, and how many.
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
    /// Waits of events that found their lane within its burst, so far: all of them together, and how many.
    #[must_use]
    pub fn quiet_waits(&self) -> (Duration, u64) {
        self.quiet.read()
    }
}
