//! What a group did in the last minute, for people and alerts. Nothing here decides anything.

use std::time::Duration;

use super::price::{bucket, bucket_top};
use super::wait::RecentWaits;
use crate::event::{Mono, WaitSplit};

/// A minute in six parts; the oldest is forgotten as a whole.
const PARTS: usize = 6;
const PART_US: u64 = 10_000_000;

/// The shortest time that rates are made of, seconds.
const SPAN_MIN_S: f64 = 5.0;

/// Waits beyond this bucket (19 minutes) count as this long.
const WAIT_BUCKETS: usize = 120;

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    number: u64,
    arrived: u32,
    ended: u32,
    worker_us: u64,
}

/// Counters in parts of a minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Minute {
    parts: [Part; PARTS],
    /// When it began to count; 0 before anything was.
    began: Mono,
}

impl Minute {
    fn part(&mut self, now: Mono) -> Option<&mut Part> {
        if self.began == Mono(0) {
            self.began = now;
        }
        let number = now.0 / PART_US;
        let part = self.parts.get_mut((number % PARTS as u64) as usize)?;
        if part.number != number {
            *part = Part { number, ..Part::default() };
        }
        Some(part)
    }

    pub(super) fn arrived(&mut self, now: Mono) {
        if let Some(part) = self.part(now) {
            part.arrived = part.arrived.saturating_add(1);
        }
    }

    pub(super) fn ended(&mut self, now: Mono) {
        if let Some(part) = self.part(now) {
            part.ended = part.ended.saturating_add(1);
        }
    }

    pub(super) fn worked(&mut self, us: u64, now: Mono) {
        if let Some(part) = self.part(now) {
            part.worker_us = part.worker_us.saturating_add(us);
        }
    }

    fn recent(&self, now: Mono) -> impl Iterator<Item = &Part> {
        let number = now.0 / PART_US;
        self.parts.iter().filter(move |part| part.number + PARTS as u64 > number && part.number <= number)
    }

    /// The part of the last minute that these counters cover, in seconds: five whole parts and the one that runs, or what has passed since
    /// they began. What came in less than a few seconds says nothing about a second.
    fn span_s(&self, now: Mono) -> f64 {
        let running = (now.0 % PART_US) as f64 / 1e6;
        let counted = now.since(self.began).as_secs_f64().max(SPAN_MIN_S);
        ((PARTS - 1) as f64 * PART_US as f64 / 1e6 + running).min(counted)
    }

    pub(super) fn worker_us(&self, now: Mono) -> u64 {
        self.recent(now).map(|part| part.worker_us).sum()
    }

    /// Events a second.
    pub(super) fn arrival_rate(&self, now: Mono) -> f64 {
        self.recent(now).map(|part| u64::from(part.arrived)).sum::<u64>() as f64 / self.span_s(now)
    }

    /// Events a second.
    pub(super) fn drain_rate(&self, now: Mono) -> f64 {
        self.recent(now).map(|part| u64::from(part.ended)).sum::<u64>() as f64 / self.span_s(now)
    }
}

/// Arrivals, those that were refused with them: in the running part of time, and all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    part: u64,
    in_part: u32,
    pub(super) all: u64,
}

impl Demand {
    /// One came in this part; how many so far.
    pub(super) fn arrived(&mut self, part: u64) -> u32 {
        if self.part != part {
            (self.part, self.in_part) = (part, 0);
        }
        self.in_part = self.in_part.saturating_add(1);
        self.all += 1;
        self.in_part
    }
}

/// What is kept of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    pub(super) minute: Minute,
    /// Counted while there may be dedicated slots (R12).
    pub(super) demand: Demand,
    pub(super) waits: Waits,
    /// Made when an event waits: most quiet groups never have it.
    pub(super) by_reason: Option<Box<RecentWaits>>,
}

impl Stats {
    /// An event got its lease after this wait.
    pub(super) fn waited(&mut self, split: &WaitSplit, now: Mono) {
        if split.iter().next().is_some() {
            self.by_reason.get_or_insert_default().add(split, now);
        }
    }
}

/// Waits, in buckets of at most a fifth; the past counts half after every thousand.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    counts: Vec<u16>,
    total: u32,
}

impl Waits {
    pub(super) fn add(&mut self, wait: Duration) {
        let index = bucket(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)).min(WAIT_BUCKETS - 1);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
            self.total += 1;
        }
        if self.total >= 1_000 {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|count| u32::from(*count)).sum();
        }
    }

    pub(super) fn p99(&self) -> Option<Duration> {
        let wanted = (self.total * 99).div_ceil(100).max(1);
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += u32::from(*count);
            seen >= wanted
        })?;
        Some(Duration::from_micros(bucket_top(index)))
    }
}

/// Attempts that ended in the last second, to an eighth of it (R4b's ramp).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastSecond {
    counts: [u16; 8],
    /// The eighth that the last count is in.
    tick: u64,
}

impl LastSecond {
    const TICK_US: u64 = 125_000;

    pub(super) fn add(&mut self, now: Mono) {
        self.forget(now);
        if let Some(count) = self.counts.get_mut((self.tick % 8) as usize) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn count(&self, now: Mono) -> u32 {
        let mut recent = *self;
        recent.forget(now);
        recent.counts.iter().map(|count| u32::from(*count)).sum()
    }

    fn forget(&mut self, now: Mono) {
        let tick = now.0 / Self::TICK_US;
        for old in self.tick.max(tick.saturating_sub(8))..tick {
            if let Some(count) = self.counts.get_mut(((old + 1) % 8) as usize) {
                *count = 0;
            }
        }
        self.tick = self.tick.max(tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn a_second_later_nothing_is_counted() {
        let mut last = LastSecond::default();
        for ms in 0..10 {
            last.add(Mono(100 * S + ms * 1_000));
        }
        assert_eq!(last.count(Mono(100 * S + S / 2)), 10);
        assert_eq!(last.count(Mono(101 * S)), 0);
        assert_eq!(last.count(Mono(900 * S)), 0);
    }

    #[test]
    fn a_minute_has_rates_and_forgets() {
        let mut minute = Minute::default();
        for s in 1_000..1_060 {
            minute.arrived(Mono(s * S));
            minute.worked(500_000, Mono(s * S));
        }
        let rate = minute.arrival_rate(Mono(1_059 * S + S - 1));
        assert!((0.95..1.05).contains(&rate), "{rate}");
        assert_eq!(minute.worker_us(Mono(1_059 * S)), 30 * S);
        assert_eq!(minute.worker_us(Mono(1_200 * S)), 0);
        // The sum of no floats is -0.0, which people would get to see.
        assert!(
            minute.arrival_rate(Mono(1_200 * S)).is_sign_positive()
                && minute.drain_rate(Mono(1_200 * S)).is_sign_positive()
        );
    }

    #[test]
    fn a_rate_is_over_what_has_passed_in_the_first_minute() {
        let mut minute = Minute::default();
        for tenth in 0..100 {
            minute.arrived(Mono(1_000 * S + tenth * S / 10));
        }
        let rate = minute.arrival_rate(Mono(1_010 * S));
        assert!((9.5..10.5).contains(&rate), "ten a second for ten seconds: {rate}");
        let mut minute = Minute::default();
        minute.arrived(Mono(1_000 * S));
        assert!(minute.arrival_rate(Mono(1_000 * S + 1)) <= 0.2, "one is no flood");
    }

    #[test]
    fn the_99th_of_a_hundred_waits_is_the_long_one() {
        let mut waits = Waits::default();
        assert_eq!(waits.p99(), None);
        for _ in 0..98 {
            waits.add(Duration::from_millis(1));
        }
        waits.add(Duration::from_secs(2));
        waits.add(Duration::from_secs(2));
        assert!(waits.p99().unwrap() >= Duration::from_secs(2));
    }
}
