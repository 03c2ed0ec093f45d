//! Breakers (R8): one for the upstream, one a group.
//!
//! The upstream's must not be opened by one poisoned tenant, so it wants failures of several groups, and a group that has
//! not failed may always lease one attempt. It opens at a share of failures within its window; and at a row of failures that no success
//! interrupts, for where every group's own breaker opens first, few attempts are left to make a share of. While it is not closed the others are *suspects*: they wait, and when its time
//! is over they go one at a time, another group each time.

use std::collections::VecDeque;
use std::time::Duration;

use super::lazy::Empty;
use super::request::BreakerState;
use super::{Breakers, GroupBreaker, UpstreamBreaker};
use crate::event::Mono;

/// Slots right after closing.
const SLOW_START: u32 = 4;

/// The upstream's breaker counts in so many parts of its window.
const PARTS: u64 = 10;

/// A row of failures counts when it is no longer than so many windows: three tenants that are retried by the hour say nothing of the others.
const ROW_WINDOWS: u32 = 6;

/// `Retry-After`s from so many groups within [`ASK_WINDOW`] hold the upstream back.
const ASKS: usize = 3;
const ASK_WINDOW: Duration = Duration::from_secs(10);
/// A longer one is taken for this: then one probe decides.
const ASK_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Closed,
    Open { until: Mono },
    HalfOpen { probe: bool },
}

/// The upstream's breaker.
#[derive(Debug)]
pub(super) struct Upstream {
    position: Position,
    /// When it left `Closed`; what failed within the window before, or since, is suspect.
    opened: Mono,
    /// Openings in a row without a full recovery; the time open doubles with each.
    openings: u32,
    /// (part of time, attempts, failures), oldest first; at most [`PARTS`] + 1.
    counts: VecDeque<(u64, u32, u32)>,
    /// The last groups that failed, each once, oldest first; as many as must have failed.
    failed: VecDeque<(u32, Mono)>,
    /// When the last failures were that no success came between, oldest first; as many as must have failed.
    row: VecDeque<Mono>,
    /// When that row began.
    row_began: Mono,
    /// The last groups whose 503 had a `Retry-After`.
    asked: VecDeque<(u32, Mono)>,
    /// The upstream itself asked to be left alone until then: nobody goes, suspect or not.
    held_until: Mono,
    /// While it recovers: slots, and successes until they double.
    slow_start: Option<(u32, u32)>,
    /// Which of two sides stands for "has probed in this round".
    pub(super) side: bool,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            position: Position::Closed,
            opened: Mono(0),
            openings: 0,
            counts: VecDeque::new(),
            failed: VecDeque::new(),
            row: VecDeque::new(),
            row_began: Mono(0),
            asked: VecDeque::new(),
            held_until: Mono(0),
            slow_start: None,
            side: true,
        }
    }
}

/// Remembers that `group` did something at `now`; keeps the last `keep` distinct groups.
fn remember(list: &mut VecDeque<(u32, Mono)>, group: u32, now: Mono, keep: usize) {
    list.retain(|(known, _)| *known != group);
    list.push_back((group, now));
    while list.len() > keep.max(1) {
        list.pop_front();
    }
}

/// Whether `keep` groups are in the list, all within `window`.
fn all_within(list: &VecDeque<(u32, Mono)>, keep: usize, now: Mono, window: Duration) -> bool {
    list.len() >= keep && list.front().is_none_or(|(_, at)| now.since(*at) <= window)
}

impl Upstream {
    /// Moves from open to half-open when its time is over.
    pub(super) fn tick(&mut self, now: Mono) {
        if matches!(self.position, Position::Open { until } if until <= now) {
            self.position = Position::HalfOpen { probe: false };
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.position == Position::Closed
    }

    /// Whether a suspect may go as a probe.
    pub(super) fn may_probe(&self) -> bool {
        self.position == Position::HalfOpen { probe: false }
    }

    /// A suspect goes.
    pub(super) fn probe(&mut self) {
        self.position = Position::HalfOpen { probe: true };
    }

    /// The probe came to nothing that says anything; another may go.
    pub(super) fn unprobe(&mut self) {
        if self.position == (Position::HalfOpen { probe: true }) {
            self.position = Position::HalfOpen { probe: false };
        }
    }

    /// When it opened most recently.
    pub(super) fn opened(&self) -> Mono {
        self.opened
    }

    /// Failures in its window.
    pub(super) fn failures(&self) -> u32 {
        self.counts.iter().map(|(.., failures)| failures).sum()
    }

    /// When it will change by itself.
    pub(super) fn wake(&self) -> Option<Mono> {
        match self.position {
            Position::Open { until } => Some(until),
            Position::Closed | Position::HalfOpen { .. } => None,
        }
    }

    /// Failures from before this make nobody suspect, nor do they count for a group's own breaker.
    pub(super) fn past(&self, settings: &Breakers, now: Mono) -> Mono {
        let window = settings.upstream.window.max(settings.group.window);
        let from = if self.is_closed() { now } else { self.opened };
        Mono(from.0.saturating_sub(u64::try_from(window.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Whether a group that failed last at `failed` has to wait while this is not closed.
    pub(super) fn suspects(&self, settings: &UpstreamBreaker, failed: Option<Mono>, now: Mono) -> bool {
        let from = if self.is_closed() { now } else { self.opened };
        failed.is_some_and(|at| at >= from || from.since(at) <= settings.window)
    }

    /// An attempt ended. `began` is when it was leased, `probe` whether it was let through to see.
    pub(super) fn ended(&mut self, settings: &UpstreamBreaker, slots: u32, end: End, now: Mono) {
        self.count(settings, end, now);
        match self.position {
            Position::Closed if end.failed => {
                if self.is_over(settings, now) {
                    self.open(settings, now, None);
                }
            }
            Position::Closed => {
                if end.answered {
                    self.grow(slots);
                }
            }
            Position::Open { .. } | Position::HalfOpen { .. } => {
                if end.answered && !end.failed && end.began >= self.opened {
                    self.close(slots);
                } else if end.probe && end.failed {
                    self.open(settings, now, None);
                }
            }
        }
    }

    /// A person knows that it is well: it closes, and what it asked for itself is over. False when it was closed.
    pub(super) fn close_by_hand(&mut self, slots: u32, now: Mono) -> bool {
        let holds = !self.is_closed() || self.is_held(now);
        self.held_until = Mono(0);
        if !self.is_closed() {
            self.openings = 0;
            self.close(slots);
        }
        holds
    }

    /// A 503 of `group` had a `Retry-After`; `alone` when its scope said that it is meant for the upstream.
    pub(super) fn asked(&mut self, settings: &UpstreamBreaker, group: u32, delay: Duration, alone: bool, now: Mono) {
        remember(&mut self.asked, group, now, ASKS);
        if alone || all_within(&self.asked, ASKS, now, ASK_WINDOW) {
            let delay = delay.min(ASK_MAX);
            self.held_until = self.held_until.max(now.plus(delay));
            self.open(settings, now, Some(delay));
        }
    }

    /// Whether the upstream itself asked that nobody goes.
    pub(super) fn is_held(&self, now: Mono) -> bool {
        self.held_until > now
    }

    /// Until when it asked for that.
    pub(super) fn held_until(&self) -> Mono {
        self.held_until
    }

    pub(super) fn state(&self) -> BreakerState {
        match (self.position, self.slow_start) {
            (Position::Open { until }, _) => BreakerState::Open { until },
            (Position::HalfOpen { .. }, _) => BreakerState::HalfOpen,
            (Position::Closed, Some((slots, _))) => BreakerState::SlowStart { slots },
            (Position::Closed, None) => BreakerState::Closed,
        }
    }

    /// Slots while it recovers.
    pub(super) fn slow_start(&self) -> Option<u32> {
        self.slow_start.map(|(slots, _)| slots)
    }

    fn count(&mut self, settings: &UpstreamBreaker, end: End, now: Mono) {
        let part = now.0 / part_us(settings);
        if self.counts.back().is_none_or(|(last, ..)| *last != part) {
            self.counts.push_back((part, 0, 0));
        }
        while self.counts.front().is_some_and(|(first, ..)| *first + PARTS < part) {
            self.counts.pop_front();
        }
        if let Some((_, attempts, failures)) = self.counts.back_mut() {
            *attempts += 1;
            *failures += u32::from(end.failed);
        }
        if !end.failed {
            // What was cancelled says nothing.
            if end.answered {
                self.row.clear();
            }
            return;
        }
        remember(&mut self.failed, end.group, now, settings.groups as usize);
        if self.row.is_empty() {
            self.row_began = now;
        }
        self.row.push_back(now);
        while self.row.len() > settings.failures.max(1) as usize {
            self.row.pop_front();
        }
    }

    fn is_over(&self, settings: &UpstreamBreaker, now: Mono) -> bool {
        self.fails_in_part(settings, now) || self.fails_in_a_row(settings, now)
    }

    fn fails_in_part(&self, settings: &UpstreamBreaker, now: Mono) -> bool {
        let attempts: u32 = self.counts.iter().map(|(_, attempts, _)| attempts).sum();
        let failures = self.failures();
        failures >= settings.failures
            && f64::from(failures) >= f64::from(attempts) * settings.ratio
            && all_within(&self.failed, settings.groups as usize, now, settings.window)
    }

    fn fails_in_a_row(&self, settings: &UpstreamBreaker, now: Mono) -> bool {
        let window = settings.window.saturating_mul(ROW_WINDOWS).min(now.since(self.row_began));
        self.row.len() >= settings.failures as usize
            && self.row.front().is_some_and(|first| now.since(*first) <= window)
            && all_within(&self.failed, settings.groups as usize, now, window)
    }

    fn open(&mut self, settings: &UpstreamBreaker, now: Mono, hold: Option<Duration>) {
        if self.is_closed() {
            self.opened = now;
        }
        let open = hold.unwrap_or_else(|| doubled(settings.open, self.openings, settings.open_max));
        if hold.is_none() {
            self.openings = self.openings.saturating_add(1);
        }
        let until = match self.position {
            Position::Open { until } => until.max(now.plus(open)),
            Position::Closed | Position::HalfOpen { .. } => now.plus(open),
        };
        self.position = Position::Open { until };
    }

    fn close(&mut self, slots: u32) {
        self.position = Position::Closed;
        self.counts.clear();
        self.failed.clear();
        self.row.clear();
        self.asked.clear();
        let first = SLOW_START.min(slots);
        self.slow_start = Some((first, first));
    }

    /// A success while it recovers: as many as there are slots double them.
    fn grow(&mut self, slots: u32) {
        let Some((size, left)) = self.slow_start else { return };
        self.slow_start = match left {
            2.. => Some((size, left - 1)),
            _ if size.saturating_mul(2) >= slots => {
                self.openings = 0;
                None
            }
            _ => Some((size * 2, size * 2)),
        };
    }
}

/// How an attempt ended, for the upstream's breaker.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) group: u32,
    pub(super) began: Mono,
    pub(super) probe: bool,
    /// The breaker counts it.
    pub(super) failed: bool,
    /// The upstream answered.
    pub(super) answered: bool,
}

fn part_us(settings: &UpstreamBreaker) -> u64 {
    u64::try_from(settings.window.as_micros()).unwrap_or(u64::MAX).div_ceil(PARTS).max(1)
}

/// `first`, doubled `times`, at most `max`.
fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(1u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}

/// A group's breaker: failures in a row.
#[derive(Clone, Debug)]
pub(super) struct OfGroup {
    /// When the failures of the row were, oldest first, within the window; fewer than open it.
    row: VecDeque<Mono>,
    openings: u32,
    /// Since when it is not closed.
    opened: Option<Mono>,
    /// Open until then, half-open from then on.
    until: Option<Mono>,
}

impl Empty for OfGroup {
    const EMPTY: &'static Self = &Self::new();

    fn fresh() -> Self {
        Self::new()
    }
}

impl OfGroup {
    const fn new() -> Self {
        Self { row: VecDeque::new(), openings: 0, opened: None, until: None }
    }

    /// Whether an attempt may go when `in_flight` are under way; else when it may, where time alone decides.
    pub(super) fn may_go(&self, in_flight: u32, now: Mono) -> Result<(), Option<Mono>> {
        match self.until {
            None => Ok(()),
            Some(until) if until > now => Err(Some(until)),
            Some(_) if in_flight > 0 => Err(None),
            Some(_) => Ok(()),
        }
    }

    /// Since when it is not closed; `None` while it is.
    pub(super) fn opened(&self) -> Option<Mono> {
        self.opened
    }

    /// Whether forgetting it would change nothing, when failures from before `past` mean nothing any more.
    pub(super) fn is_rested(&self, past: Mono) -> bool {
        self.until.is_none() && self.row.back().is_none_or(|last| *last < past)
    }

    /// An attempt of the group, leased at `began`, ended with an answer or a failure.
    pub(super) fn ended(&mut self, settings: &GroupBreaker, failed: bool, began: Mono, now: Mono) {
        match self.until {
            // An attempt from before the opening says nothing about now.
            Some(until) if began < until => {}
            Some(_) if failed => self.open(settings, now),
            Some(_) => *self = Self::new(),
            None if failed => {
                self.row.push_back(now);
                while self.row.front().is_some_and(|first| now.since(*first) > settings.window) {
                    self.row.pop_front();
                }
                if self.row.len() >= settings.failures.max(1) as usize {
                    self.open(settings, now);
                }
            }
            None => self.row.clear(),
        }
    }

    fn open(&mut self, settings: &GroupBreaker, now: Mono) {
        self.opened.get_or_insert(now);
        self.until = Some(now.plus(doubled(settings.open, self.openings, settings.open_max)));
        self.openings = self.openings.saturating_add(1);
        self.row.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Settings;

    const S: u64 = 1_000_000;

    fn end(group: u32, began: u64, failed: bool) -> End {
        End { group, began: Mono(began), probe: false, failed, answered: !failed }
    }

    fn fail(breaker: &mut Upstream, groups: u32, count: u32, now: u64) {
        let settings = Settings::default().breakers.upstream;
        for i in 0..count {
            breaker.ended(&settings, 64, end(i % groups, now, true), Mono(now));
        }
    }

    #[test]
    fn one_poisoned_tenant_or_two_do_not_open_it_for_all() {
        let mut breaker = Upstream::default();
        fail(&mut breaker, 2, 1_000, S);
        assert_eq!(breaker.state(), BreakerState::Closed);
        fail(&mut breaker, 3, 3, 2 * S);
        assert_eq!(breaker.state(), BreakerState::Open { until: Mono(7 * S) });
    }

    #[test]
    fn nineteen_failures_or_less_than_half_do_not_open_it() {
        let settings = Settings::default().breakers.upstream;
        let mut breaker = Upstream::default();
        fail(&mut breaker, 5, 19, S);
        assert!(breaker.is_closed());
        let mut breaker = Upstream::default();
        let succeed = |breaker: &mut Upstream| breaker.ended(&settings, 64, end(9, S, false), Mono(S));
        (0..95).for_each(|_| succeed(&mut breaker));
        for _ in 0..5 {
            fail(&mut breaker, 5, 19, S);
            succeed(&mut breaker);
        }
        fail(&mut breaker, 5, 4, S);
        assert!(breaker.is_closed(), "99 of 199");
        fail(&mut breaker, 5, 1, S);
        assert!(!breaker.is_closed(), "100 of 200");
    }

    #[test]
    fn a_row_of_failures_of_several_groups_opens_it_whatever_succeeded_before() {
        let settings = Settings::default().breakers.upstream;
        let after_successes = || {
            let mut breaker = Upstream::default();
            for i in 0..1_000 {
                breaker.ended(&settings, 64, end(i % 3, S, false), Mono(S));
            }
            breaker
        };
        let mut breaker = after_successes();
        fail(&mut breaker, 3, 19, 2 * S);
        assert!(breaker.is_closed());
        fail(&mut breaker, 3, 1, 3 * S);
        assert!(!breaker.is_closed(), "20 of 1,020, and none succeeded since the first of them");

        let mut breaker = after_successes();
        fail(&mut breaker, 3, 19, 2 * S);
        breaker.ended(&settings, 64, end(0, 2 * S, false), Mono(2 * S));
        fail(&mut breaker, 2, 19, 3 * S);
        fail(&mut breaker, 2, 30, 4 * S);
        assert!(breaker.is_closed(), "the third group failed before the last success");

        let mut breaker = after_successes();
        for minute in 1..30 {
            fail(&mut breaker, 3, 3, minute * 60 * S);
        }
        assert!(breaker.is_closed(), "three a minute, which are retries");
    }

    #[test]
    fn failures_of_long_ago_do_not_count() {
        let mut breaker = Upstream::default();
        fail(&mut breaker, 5, 19, S);
        fail(&mut breaker, 5, 1, 63 * S);
        assert!(breaker.is_closed());
    }

    #[test]
    fn it_opens_twice_as_long_each_time_and_one_probe_goes_at_a_time() {
        let settings = Settings::default().breakers.upstream;
        let mut breaker = Upstream::default();
        fail(&mut breaker, 3, 20, S);
        let mut now = S;
        for open in [5, 10, 20, 40, 60, 60] {
            assert_eq!(breaker.state(), BreakerState::Open { until: Mono(now + open * S) });
            now += open * S;
            breaker.tick(Mono(now));
            assert!(breaker.may_probe());
            breaker.probe();
            assert!(!breaker.may_probe());
            let probe = End { probe: true, ..end(0, now, true) };
            breaker.ended(&settings, 64, probe, Mono(now));
        }
    }

    #[test]
    fn a_success_closes_it_and_slots_come_back_by_doubling() {
        let settings = Settings::default().breakers.upstream;
        let mut breaker = Upstream::default();
        fail(&mut breaker, 3, 20, S);
        breaker.ended(&settings, 64, end(9, 0, false), Mono(2 * S));
        assert!(!breaker.is_closed(), "an attempt from before the opening says nothing");
        breaker.ended(&settings, 64, end(9, 2 * S, false), Mono(3 * S));
        for slots in [4, 8, 16, 32] {
            assert_eq!(breaker.state(), BreakerState::SlowStart { slots });
            for _ in 0..slots {
                breaker.ended(&settings, 64, end(9, 3 * S, false), Mono(4 * S));
            }
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_cancelled_probe_decides_nothing() {
        let mut breaker = Upstream::default();
        fail(&mut breaker, 3, 20, S);
        breaker.tick(Mono(6 * S));
        breaker.probe();
        breaker.unprobe();
        assert!(breaker.may_probe());
    }

    #[test]
    fn suspects_are_those_that_failed_in_the_window_before_or_since() {
        let settings = Settings::default().breakers.upstream;
        let mut breaker = Upstream::default();
        fail(&mut breaker, 3, 20, 20 * S);
        for (failed, suspect) in [(None, false), (Some(9 * S), false), (Some(11 * S), true), (Some(30 * S), true)] {
            assert_eq!(breaker.suspects(&settings, failed.map(Mono), Mono(60 * S)), suspect, "{failed:?}");
        }
    }

    #[test]
    fn three_groups_that_are_asked_to_wait_hold_the_upstream_a_minute_at_most() {
        let settings = Settings::default().breakers.upstream;
        let mut breaker = Upstream::default();
        for (group, at) in [(1, S), (1, 2 * S), (2, 3 * S)] {
            breaker.asked(&settings, group, Duration::from_secs(3_600), false, Mono(at));
            assert!(breaker.is_closed());
        }
        breaker.asked(&settings, 3, Duration::from_secs(3_600), false, Mono(4 * S));
        assert_eq!(breaker.state(), BreakerState::Open { until: Mono(64 * S) });
    }

    #[test]
    fn a_group_opens_at_ten_in_a_row_and_an_answer_ends_the_row() {
        let settings = Settings::default().breakers.group;
        let mut breaker = OfGroup::new();
        for _ in 0..9 {
            breaker.ended(&settings, true, Mono(S), Mono(S));
        }
        breaker.ended(&settings, false, Mono(S), Mono(S));
        for _ in 0..9 {
            breaker.ended(&settings, true, Mono(S), Mono(S));
        }
        assert_eq!(breaker.may_go(5, Mono(S)), Ok(()));
        breaker.ended(&settings, true, Mono(S), Mono(S));
        assert_eq!(breaker.may_go(0, Mono(S)), Err(Some(Mono(6 * S))));
        assert_eq!(breaker.may_go(0, Mono(2 * S)), Err(Some(Mono(6 * S))));
        assert_eq!(breaker.may_go(0, Mono(6 * S)), Ok(()));
        assert_eq!(breaker.may_go(1, Mono(6 * S)), Err(None));
        breaker.ended(&settings, true, Mono(6 * S), Mono(7 * S));
        assert_eq!(breaker.may_go(0, Mono(7 * S)), Err(Some(Mono(17 * S))));
        breaker.ended(&settings, true, Mono(S), Mono(8 * S));
        assert_eq!(breaker.may_go(0, Mono(8 * S)), Err(Some(Mono(17 * S))), "an old one says nothing");
        breaker.ended(&settings, false, Mono(17 * S), Mono(18 * S));
        assert_eq!(breaker.may_go(5, Mono(18 * S)), Ok(()));
    }

    #[test]
    fn ten_failures_spread_over_more_than_a_minute_do_not_open_a_group() {
        let settings = Settings::default().breakers.group;
        let mut breaker = OfGroup::new();
        for i in 0..30 {
            breaker.ended(&settings, true, Mono(i * 10 * S), Mono(i * 10 * S));
        }
        assert_eq!(breaker.may_go(5, Mono(300 * S)), Ok(()));
    }
}
