//! Why an event waited: its wait, split by what it was for.
//!
//! An event keeps nothing for this but how long it stood behind its order key. What its group and the upstream stood still for is kept with
//! them, in the order of time, and looked up when the event gets its lease:
//!
//! - Until the last lease of its group before its own, others of the group went first: that is its *own lane*, but for the time in which the
//!   group or the upstream took nothing at all, whoever's turn it was.
//! - From then on it was next: what its group waited for, it waited for.
//!
//! A change of a group's standing costs one comparison, and a record when the group stood still for any time; a group that never does
//! has none. Both memories are bounded: what is long ago is told with less precision, and the parts always add up to the wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::field::Class;
use super::group::Standing;
use super::lazy::{Empty, Lazy};
use super::lease::Lease;
use super::request::BreakerState;
use super::{Engine, ev};
use crate::event::{Mono, WaitReason, WaitSplit};

/// Times that a group stood still that are remembered; the two oldest become one beyond that.
const STOPS_MAX: usize = 32;

/// Changes of the upstream's condition that are remembered; beyond that every second of the older half is dropped.
const MARKS_MAX: usize = 256;

/// What keeps a group's next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Nothing of the group's own: it waits for its turn, if for anything.
    Runs,
    /// A gate that concerns all groups of a class.
    Gated(Class),
    /// The group stands still.
    Stopped(WaitReason),
}

impl Cause {
    /// Of a group that stands there; `queued` when it has fresh events, `parked` when one of its lanes waits with a source's pause.
    pub(super) fn of(standing: Standing, queued: bool, parked: bool) -> Self {
        match standing {
            // A pause, whoever it is meant for.
            Standing::Idle if parked => Self::Stopped(WaitReason::GroupPaused),
            // With something to do and nothing at hand, its events are being read.
            Standing::Idle if queued => Self::Stopped(WaitReason::Store),
            Standing::Ready(class) | Standing::Own(class) if class.is_gated() => Self::Gated(class),
            Standing::Idle | Standing::Ready(_) | Standing::Own(_) => Self::Runs,
            Standing::Capped => Self::Stopped(WaitReason::GroupCap),
            Standing::Limited => Self::Stopped(WaitReason::GroupRate),
            Standing::Paused => Self::Stopped(WaitReason::GroupPaused),
            Standing::Broken => Self::Stopped(WaitReason::GroupBreaker),
            Standing::RetryAfter => Self::Stopped(WaitReason::RetryAfter),
            Standing::RetrySlots => Self::Stopped(WaitReason::RetrySlots),
        }
    }

    /// Why every event of the group waits, whatever its place: the end of the others would not have helped it.
    fn holds_all(self) -> Option<WaitReason> {
        match self {
            Self::Stopped(reason @ (WaitReason::GroupPaused | WaitReason::GroupBreaker | WaitReason::RetryAfter)) => {
                Some(reason)
            }
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    cause: Cause,
    from: Mono,
    to: Mono,
}

/// Times that a group stood still.
#[derive(Debug)]
struct Past(VecDeque<Stop>);

impl Empty for Past {
    const EMPTY: &'static Self = &Self(VecDeque::new());

    fn fresh() -> Self {
        Self(VecDeque::new())
    }
}

/// What a group stood still for, and when its last lease was.
#[derive(Debug)]
pub(super) struct Stops {
    cause: Cause,
    since: Mono,
    leased: Mono,
    /// In the order of time. Of what is older than the last lease only what held all events of the group.
    past: Lazy<Past>,
}

impl Default for Stops {
    fn default() -> Self {
        Self { cause: Cause::Runs, since: Mono(0), leased: Mono(0), past: Lazy::default() }
    }
}

impl Stops {
    /// This is what keeps it from `now` on.
    pub(super) fn note(&mut self, cause: Cause, now: Mono) {
        if cause == self.cause {
            return;
        }
        if self.cause != Cause::Runs && self.since < now {
            let Past(past) = &mut *self.past;
            if past.len() >= STOPS_MAX {
                merge_oldest(past);
            }
            past.push_back(Stop { cause: self.cause, from: self.since, to: now });
        }
        self.cause = cause;
        self.since = now;
    }

    /// An event of it got a lease.
    fn leased(&mut self, now: Mono) {
        self.leased = now;
        if let Some(Past(past)) = self.past.made() {
            past.retain(|stop| stop.cause.holds_all().is_some());
        }
    }

    /// The time from `from` to `to`, cut where what keeps the group changed.
    fn pieces(&self, from: Mono, to: Mono, mut see: impl FnMut(Stop)) {
        let mut at = from;
        let present = Stop { cause: self.cause, from: self.since, to };
        for stop in self.past.0.iter().chain([&present]) {
            let (begins, ends) = (stop.from.max(at), stop.to.min(to));
            if begins >= ends || stop.cause == Cause::Runs {
                continue;
            }
            if at < begins {
                see(Stop { cause: Cause::Runs, from: at, to: begins });
            }
            see(Stop { cause: stop.cause, from: begins, to: ends });
            at = ends;
        }
        if at < to {
            see(Stop { cause: Cause::Runs, from: at, to });
        }
    }
}

/// Makes one of the two oldest, as long as both, of the longer one's cause.
fn merge_oldest(past: &mut VecDeque<Stop>) {
    let (Some(first), Some(second)) = (past.pop_front(), past.pop_front()) else { return };
    let long = |stop: &Stop| stop.to.0.saturating_sub(stop.from.0);
    let cause = if long(&first) > long(&second) { first.cause } else { second.cause };
    let from = Mono(second.to.0.saturating_sub(long(&first) + long(&second)));
    past.push_front(Stop { cause, from, to: second.to });
}

/// What held from when on, in the order of time.
#[derive(Debug)]
struct Timeline<T>(VecDeque<(Mono, T)>);

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy + PartialEq> Timeline<T> {
    fn note(&mut self, from: Mono, what: T) {
        if self.0.back().is_some_and(|(_, last)| *last == what) {
            return;
        }
        if self.0.len() >= MARKS_MAX {
            self.thin();
        }
        self.0.push_back((from, what));
    }

    /// Of each two in the older half the longer one stands for both.
    fn thin(&mut self) {
        let marks: Vec<(Mono, T)> = self.0.drain(..).collect();
        let ends = |place: usize| marks.get(place).map_or(u64::MAX, |(at, _)| at.0);
        let mut place = 0;
        while let Some((from, what)) = marks.get(place).copied() {
            let pair = marks.get(place + 1).filter(|_| place + 1 < MARKS_MAX / 2);
            let what = match pair {
                Some((second, longer)) if ends(place + 2) - second.0 > second.0 - from.0 => *longer,
                _ => what,
            };
            if self.0.back().is_none_or(|(_, last)| *last != what) {
                self.0.push_back((from, what));
            }
            place += if pair.is_some() { 2 } else { 1 };
        }
    }

    /// What held from `from` to `to`, and for how long each; `None` before the first mark.
    fn over(&self, from: Mono, to: Mono, mut see: impl FnMut(Option<T>, Duration)) {
        let first = self.0.partition_point(|(at, _)| *at <= from);
        let mut held = first.checked_sub(1).and_then(|place| self.0.get(place)).map(|(_, what)| *what);
        let mut at = from;
        for (next, what) in self.0.range(first.min(self.0.len())..) {
            if *next >= to {
                break;
            }
            see(held, next.since(at));
            (at, held) = (*next, Some(*what));
        }
        see(held, to.since(at));
    }
}

/// What keeps ready groups at a moment: all of them, and those of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    all: Option<WaitReason>,
    closed: Class,
    /// Slow groups hold their part of the slots for retries.
    slow_retries: bool,
}

impl Condition {
    /// What a ready group waits for then, given what gates it stands before.
    fn reason(self, class: Class) -> WaitReason {
        let closed = |gate: Class| class.has(gate) && self.closed.has(gate);
        match self.all {
            Some(reason @ (WaitReason::UpstreamPaused | WaitReason::RetryAfter)) => reason,
            // Its gate would keep it when there were slots, too.
            _ if closed(Class::SLOW) || closed(Class::RAMP) => WaitReason::Slow,
            _ if closed(Class::REPLAY) => WaitReason::ReplaySlots,
            _ if closed(Class::RETRY) => WaitReason::RetrySlots,
            _ if self.slow_retries && class.has(Class::SLOW) && class.has(Class::RETRY) => WaitReason::RetrySlots,
            Some(reason) => reason,
            // With slots to be had, a ready group that does not go is a suspect.
            None if self.closed.has(Class::SUSPECT) => WaitReason::UpstreamBreaker,
            // Or one that has not shown to be quick, in an outbreak of slowness.
            None if self.closed.has(Class::UNKNOWN) => WaitReason::Slow,
            None => WaitReason::Gateway,
        }
    }
}

/// What the upstream as a whole stood still for.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// What the engine was made at; nothing is known of before.
    began: Option<Mono>,
    /// What kept ready groups. Looked up for the time since a group's last lease.
    gates: Timeline<Condition>,
    /// What kept everybody, whoever's turn it was. Changes rarely, so it reaches far back.
    halts: Timeline<Option<WaitReason>>,
}

impl Engine {
    /// Time goes on to `now`: until then everything stood as it stands.
    pub(super) fn note_condition(&mut self, now: Mono) {
        self.conditions.began.get_or_insert(now);
        if now <= self.now {
            return;
        }
        let (since, busy, shared) = (self.now, self.shared_busy(), self.shared_slots());
        let breaker = &self.upstream.breaker;
        let halt = match () {
            () if self.upstream.paused => Some(WaitReason::UpstreamPaused),
            () if breaker.is_held(since) => Some(WaitReason::RetryAfter),
            () if matches!(breaker.state(), BreakerState::Open { .. } | BreakerState::HalfOpen) => {
                Some(WaitReason::UpstreamBreaker)
            }
            () => None,
        };
        self.conditions.halts.note(since, halt);
        if self.nobody_ready() {
            // Nobody is ready: nobody waits for a gate.
            return;
        }
        let rated = self.settings.rate.is_some_and(|rate| self.upstream.rate.ready(rate, since).is_err());
        let all = match halt {
            Some(WaitReason::UpstreamPaused | WaitReason::RetryAfter) => halt,
            _ if rated => Some(WaitReason::UpstreamRate),
            _ if busy >= shared => Some(WaitReason::Slots),
            _ if self.recovers_slowly(since) => Some(WaitReason::UpstreamBreaker),
            _ => None,
        };
        let closed = Class::default()
            .with(Class::SLOW, self.leases.slow >= self.settings.slow_slots(shared))
            .with(Class::RAMP, busy.saturating_mul(2) >= shared)
            .with(Class::RETRY, self.leases.retry >= self.settings.retry_slots())
            .with(Class::REPLAY, self.leases.replay >= self.settings.replay_slots())
            .with(Class::SUSPECT, !self.upstream.breaker.is_closed())
            .with(Class::UNKNOWN, !self.takes_unknown());
        let slow_retries = !self.free_for_again().slow_retry;
        self.conditions.gates.note(since, Condition { all, closed, slow_retries });
    }

    /// Whether the few slots of a recovering upstream are taken.
    fn recovers_slowly(&self, now: Mono) -> bool {
        let BreakerState::SlowStart { slots } = self.upstream.breaker.state() else { return false };
        self.leases.younger_than(super::schedule::SLOW_START_PATIENCE, now).0 >= slots
    }

    /// What the work of a lease that is given `now` waited for; and for the next one, that it was.
    pub(super) fn split_wait(&mut self, lease: &Lease, now: Mono) -> WaitSplit {
        let mut split = WaitSplit::default();
        let Some(group) = self.groups.get_mut(lease.gid) else { return split };
        if !lease.wait.is_zero() {
            let conditions = &self.conditions;
            let from = before_its_turn(lease, conditions.began.unwrap_or(now), now, &mut split);
            let next = group.stops.leased.clamp(from, now);
            group.stops.pieces(from, next, |piece| match piece.cause.holds_all() {
                Some(reason) => split.add(reason, piece.to.since(piece.from)),
                None => conditions.behind_its_own(&piece, gate_of(lease.retry, lease.replay), &mut split),
            });
            group.stops.pieces(next, now, |piece| conditions.as_the_next(&piece, &mut split));
        }
        group.stops.leased(now);
        split
    }
}

/// Takes out what was before this process, and behind its order key; from when on the rest is.
fn before_its_turn(lease: &Lease, began: Mono, now: Mono, split: &mut WaitSplit) -> Mono {
    let since = lease.work.since();
    split.add(WaitReason::BeforeRestart, ev::since_line(since, began.min(now)));
    let known = Mono(u64::try_from(since).unwrap_or(0)).max(began).min(now);
    let behind = lease.work.event().map_or(Duration::ZERO, |(_, ev)| ev.held());
    let freed = i64::try_from(behind.as_micros()).map_or(i64::MAX, |us| since.saturating_add(us));
    let from = Mono(u64::try_from(freed).unwrap_or(0)).clamp(known, now);
    split.add(WaitReason::Order, from.since(known));
    from
}

/// The gate of a retry or a replay, and what it waits for there.
fn gate_of(retry: bool, replay: bool) -> Option<(Class, WaitReason)> {
    match (retry, replay) {
        (true, _) => Some((Class::RETRY, WaitReason::RetrySlots)),
        (false, true) => Some((Class::REPLAY, WaitReason::ReplaySlots)),
        (false, false) => None,
    }
}

impl Conditions {
    /// While others of its group went first.
    fn behind_its_own(&self, piece: &Stop, again: Option<(Class, WaitReason)>, split: &mut WaitSplit) {
        if let Some((gate, reason)) = again {
            // Fresh events of its lane go before it anyway (R6), but it could not have gone without them either.
            self.gates.over(piece.from, piece.to, |condition, span| {
                let held = condition.is_some_and(|condition| condition.closed.has(gate));
                split.add(if held { reason } else { WaitReason::OwnLane }, span);
            });
            return;
        }
        self.halts.over(piece.from, piece.to, |halt, span| {
            split.add(halt.flatten().unwrap_or(WaitReason::OwnLane), span);
        });
    }

    /// While it was the next of its group.
    fn as_the_next(&self, piece: &Stop, split: &mut WaitSplit) {
        let class = match piece.cause {
            Cause::Stopped(reason) => return split.add(reason, piece.to.since(piece.from)),
            Cause::Gated(class) => class,
            Cause::Runs => Class::default(),
        };
        self.gates.over(piece.from, piece.to, |condition, span| {
            split.add(condition.map_or(WaitReason::Gateway, |condition| condition.reason(class)), span);
        });
    }
}

/// Waits by reason in the last minute, in halves; the older one is forgotten as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentWaits([Half; 2]);

const HALF_US: u64 = 30_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Half {
    number: u64,
    us: [u64; WaitReason::COUNT],
}

impl RecentWaits {
    pub(super) fn add(&mut self, split: &WaitSplit, now: Mono) {
        let number = now.0 / HALF_US;
        let Some(half) = self.0.get_mut((number % 2) as usize) else { return };
        if half.number != number {
            *half = Half { number, ..Half::default() };
        }
        for (reason, span) in split.iter() {
            if let Some(sum) = half.us.get_mut(reason as usize) {
                *sum = sum.saturating_add(super::micros(span));
            }
        }
    }

    /// Those of this half minute and the one before.
    pub(super) fn sum(&self, now: Mono) -> WaitSplit {
        let number = now.0 / HALF_US;
        let recent = self.0.iter().filter(|half| half.number == number || half.number + 1 == number);
        let parts = recent.flat_map(|half| WaitReason::ALL.into_iter().zip(half.us));
        parts.map(|(reason, us)| (reason, Duration::from_micros(us))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However many changes there were, what is looked up covers exactly the time that was asked for.
        #[test]
        fn a_timeline_covers_what_is_asked_for(
            steps in prop::collection::vec((1u64..100, 0u8..5), 1..1_500),
            from in 0u64..60_000,
            long in 0u64..60_000,
        ) {
            let mut timeline = Timeline::default();
            let mut at = 0;
            for (step, what) in steps {
                at += step;
                timeline.note(Mono(at), what);
                prop_assert!(timeline.0.len() <= MARKS_MAX);
            }
            let mut sum = Duration::ZERO;
            timeline.over(Mono(from), Mono(from + long), |_, span| sum += span);
            prop_assert_eq!(sum, Duration::from_micros(long));
            prop_assert!(timeline.0.iter().zip(timeline.0.iter().skip(1)).all(|(one, next)| one.0 < next.0 && one.1 != next.1));
        }

        /// The same of what a group stood still for; and what held it in all stays as long as it was.
        #[test]
        fn stops_cover_what_is_asked_for(steps in prop::collection::vec((0u64..100, 0usize..4), 1..300), from in 0u64..30_000) {
            let causes = [
                Cause::Runs,
                Cause::Stopped(WaitReason::GroupPaused),
                Cause::Stopped(WaitReason::GroupBreaker),
                Cause::Stopped(WaitReason::RetryAfter),
            ];
            let mut stops = Stops::default();
            let (mut at, mut stood) = (0, 0);
            for (step, cause) in steps {
                stood += if stops.cause == Cause::Runs { 0 } else { step };
                at += step;
                stops.note(causes[cause], Mono(at));
            }
            let covered = |pieces: &[Stop]| pieces.iter().map(|piece| piece.to.0 - piece.from.0).sum::<u64>();
            let pieces = |from, to| {
                let mut pieces = Vec::new();
                stops.pieces(from, to, |piece| pieces.push(piece));
                pieces
            };
            let all = pieces(Mono(0), Mono(at));
            prop_assert_eq!(covered(&all), at);
            let still: Vec<Stop> = all.into_iter().filter(|piece| piece.cause != Cause::Runs).collect();
            prop_assert_eq!(covered(&still), stood);
            prop_assert_eq!(covered(&pieces(Mono(from.min(at)), Mono(at))), at - from.min(at));
        }
    }

    #[test]
    fn waits_are_forgotten_after_a_minute() {
        let mut recent = RecentWaits::default();
        let split: WaitSplit = [(WaitReason::Slots, Duration::from_secs(3))].into_iter().collect();
        recent.add(&split, Mono(HALF_US * 7));
        recent.add(&split, Mono(HALF_US * 8));
        assert_eq!(recent.sum(Mono(HALF_US * 8 + 5)).total(), Duration::from_secs(6));
        assert_eq!(recent.sum(Mono(HALF_US * 9)).total(), Duration::from_secs(3));
        assert_eq!(recent.sum(Mono(HALF_US * 11)).total(), Duration::ZERO);
    }
}
