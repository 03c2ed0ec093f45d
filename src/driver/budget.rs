//! How much memory bodies may take until they are stored.
//!
//! One number for all connections. A [`Charge`] takes its share while a body arrives and gives it back when it is
//! dropped, wherever that happens, so nothing can be counted twice or leak.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Above this share of the budget, in percent, bodies that are not small are refused, so that small ones still pass.
const CROWDED_PERCENT: usize = 80;

/// A body up to this size is small: most webhooks are.
const SMALL_BYTES: usize = 64 * 1024;

/// The shared budget.
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

/// There is no room for more bodies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { used: Arc::default(), limit }
    }

    /// Another limit for the same bytes (a reload).
    #[must_use]
    pub fn with_limit(&self, limit: usize) -> Self {
        Self { used: Arc::clone(&self.used), limit }
    }

    /// Bytes taken now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// An empty charge for a body of `expected` bytes (`None`: unknown), before any of it is read.
    ///
    /// # Errors
    /// The budget is crowded and the body is not known to be small, or has no room at all.
    pub fn open(&self, expected: Option<usize>) -> Result<Charge, Crowded> {
        let used = self.used();
        let crowded = used > self.limit / 100 * CROWDED_PERCENT;
        let small = expected.is_some_and(|bytes| bytes <= SMALL_BYTES);
        if (crowded && !small) || used.saturating_add(expected.unwrap_or(0)) > self.limit {
            return Err(Crowded);
        }
        Ok(Charge { budget: self.clone(), bytes: 0 })
    }
}

/// The share of one body.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: usize,
}

impl Charge {
    /// Takes `more` bytes.
    ///
    /// # Errors
    /// There is no room for them; nothing was taken.
    pub fn grow(&mut self, more: usize) -> Result<(), Crowded> {
        let before = self.budget.used.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.budget.limit {
            self.budget.used.fetch_sub(more, Ordering::Relaxed);
            return Err(Crowded);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_gives_back_what_it_took() {
        let budget = Budget::new(1000);
        let mut charge = budget.open(Some(600)).unwrap();
        charge.grow(600).unwrap();
        assert_eq!(charge.grow(500), Err(Crowded));
        assert_eq!(budget.used(), 600);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn when_it_is_crowded_small_bodies_still_pass() {
        let budget = Budget::new(10_000_000);
        let mut most = budget.open(Some(8_500_000)).unwrap();
        most.grow(8_500_000).unwrap();
        assert!(budget.open(Some(1000)).is_ok());
        assert_eq!(budget.open(Some(100_000)).unwrap_err(), Crowded);
        assert_eq!(budget.open(None).unwrap_err(), Crowded);
    }
}
