//! How one address stands: pure. Facts go in with their time, and out comes whether it is used, and how much.
//!
//! An address is *out* while its checks fail, and for a time after too many failures in a row. What ends that is time, or a check that
//! is passed; then its share grows from a tenth to the whole during the slow start, and another failure to connect in that time takes it
//! out again at once, for twice as long.
//!
//! # Whose fault a failure is
//!
//! Where no connection could be made, nothing of an event was read: that is the address. A 5xx, a reset or a silence may be the
//! event's own doing, and one tenant whose events always fail must not take addresses from the others. So of those a run counts only
//! when it is not one group's alone, or when that group does well elsewhere meanwhile.

use std::time::Duration;

use crate::deliver::outcome::Outcome;
use crate::deliver::settings::Ejection;
use crate::event::{Group, Mono};

/// The share of an address that has just come back. Less would tell too late whether it is well.
const FIRST_SHARE: f64 = 0.1;

/// What an attempt says about the address that it went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// It answers.
    Well,
    /// No connection: the address.
    Unreachable,
    /// It failed with this event.
    Failed,
    /// Nothing: it was given up, or could not be sent to anybody.
    Nothing,
}

impl Says {
    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Delivered(_) => Self::Well,
            Outcome::Status(status) if status.is_server_error() => Self::Failed,
            Outcome::Status(_) => Self::Well,
            Outcome::Refused | Outcome::Dns | Outcome::Tls | Outcome::TimeoutDns | Outcome::TimeoutConnect => {
                Self::Unreachable
            }
            Outcome::Reset | Outcome::TimeoutHead | Outcome::Malformed => Self::Failed,
            Outcome::Cancelled | Outcome::Unsendable | Outcome::Withheld => Self::Nothing,
        }
    }
}

/// Failures of one address in a row.
#[derive(Clone, Debug, Default)]
struct Run {
    /// All of them.
    all: u32,
    /// Those without a connection.
    unreachable: u32,
    /// Whose the first one was.
    group: Option<Group>,
    /// It is more than one group's own trouble.
    shared: bool,
}

/// How one address stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    run: Run,
    /// Left out for its failures until then.
    out_until: Option<Mono>,
    /// How often in a row it was.
    times: u32,
    /// Its checks fail.
    unwell: bool,
    /// Since when its share grows.
    back: Option<Mono>,
    /// What smooth weighted choice owes it; see [`super::choice`].
    pub(super) credit: f64,
}

/// What changed about an address that a person should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is left out for so long, after so many failures in a row.
    Ejected(Duration, u32),
    /// It is left out since its checks fail.
    Unwell,
    /// It is used again.
    Back,
}

/// Why an address is not used, or not wholly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is used.
    Used,
    /// Its share grows.
    SlowStart,
    /// It is out for its failures until then.
    Ejected(Mono),
    /// It is out since its checks fail.
    Unwell,
}

impl Standing {
    /// An address that is new beside others: its share grows as if it had come back.
    pub(super) fn new_beside_others(now: Mono) -> Self {
        Self { back: Some(now), ..Self::default() }
    }

    /// Takes up what time alone has changed. Every other question is asked after this.
    pub(super) fn at(&mut self, now: Mono, rules: Ejection) -> Option<Turn> {
        let mut turn = None;
        if let Some(until) = self.out_until.filter(|until| *until <= now) {
            self.out_until = None;
            turn = self.returns(until);
        }
        if self.back.is_some_and(|back| now.since(back) >= rules.slow_start) && !self.is_out() {
            self.back = None;
            self.times = 0;
        }
        turn
    }

    pub(super) fn is_out(&self) -> bool {
        self.unwell || self.out_until.is_some()
    }

    pub(super) fn state(&self) -> State {
        match (self.out_until, self.back) {
            (Some(until), _) => State::Ejected(until),
            _ if self.unwell => State::Unwell,
            (None, Some(_)) => State::SlowStart,
            (None, None) => State::Used,
        }
    }

    /// Its share of its weight, above 0 and at most 1.
    pub(super) fn share(&self, now: Mono, rules: Ejection) -> f64 {
        let Some(back) = self.back else { return 1.0 };
        let passed = now.since(back).as_secs_f64() / rules.slow_start.as_secs_f64().max(f64::MIN_POSITIVE);
        passed.clamp(FIRST_SHARE, 1.0)
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.run.all
    }

    /// It answered.
    pub(super) fn is_well(&mut self) {
        self.run = Run::default();
    }

    /// `group` does well at another address.
    pub(super) fn does_well_elsewhere(&mut self, group: &Group) {
        if self.run.group.as_ref() == Some(group) {
            self.run.shared = true;
        }
    }

    /// It failed with an event of `group`.
    pub(super) fn failed(&mut self, unreachable: bool, group: &Group, now: Mono, rules: Ejection) -> Option<Turn> {
        let is_out = self.is_out();
        let run = &mut self.run;
        run.all = run.all.saturating_add(1);
        run.unreachable = run.unreachable.saturating_add(u32::from(unreachable));
        run.shared |= run.group.get_or_insert_with(|| group.clone()) != group;
        let counted = if run.shared { run.all } else { run.unreachable };
        let again = unreachable && self.back.is_some();
        // What was on its way when it was taken out says nothing new.
        if is_out || (counted < rules.failures && !again) {
            return None;
        }
        let failures = std::mem::take(run).all;
        let out = (rules.open * 2_u32.saturating_pow(self.times.min(16))).min(rules.open_max);
        self.times = self.times.saturating_add(1);
        self.out_until = Some(now.plus(out));
        self.back = None;
        Some(Turn::Ejected(out, failures))
    }

    /// Nobody asks it any more.
    pub(super) fn is_unwatched(&mut self, now: Mono) {
        self.checked(true, now);
    }

    /// What its checks have come to.
    pub(super) fn checked(&mut self, well: bool, now: Mono) -> Option<Turn> {
        let was_out = self.is_out();
        if self.unwell != well {
            return None;
        }
        self.unwell = !well;
        match (was_out, self.is_out()) {
            (false, true) => {
                self.back = None;
                Some(Turn::Unwell)
            }
            (true, false) => self.returns(now),
            _ => None,
        }
    }

    fn returns(&mut self, since: Mono) -> Option<Turn> {
        if self.is_out() {
            return None;
        }
        self.run = Run::default();
        self.back = Some(since);
        self.credit = 0.0;
        Some(Turn::Back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Ejection = Ejection {
        failures: 3,
        open: Duration::from_secs(5),
        open_max: Duration::from_secs(15),
        slow_start: Duration::from_secs(30),
    };

    fn s(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000)
    }

    fn group(name: &str) -> Group {
        Group::of(&[name])
    }

    fn out(seconds: u64) -> Option<Turn> {
        Some(Turn::Ejected(Duration::from_secs(seconds), 3))
    }

    /// Fails as often as it takes, with nobody reached.
    fn ejected(standing: &mut Standing, at: Mono) {
        while !standing.is_out() {
            standing.failed(true, &group("a"), at, RULES);
        }
    }

    #[test]
    fn refusals_in_a_row_take_it_out_whoever_s_they_are_and_an_answer_between_them_does_not() {
        let mut standing = Standing::default();
        for _ in 0..2 {
            assert_eq!(standing.failed(true, &group("a"), s(0), RULES), None);
        }
        standing.is_well();
        for _ in 0..2 {
            assert_eq!(standing.failed(true, &group("a"), s(0), RULES), None);
        }
        assert_eq!(standing.failed(true, &group("a"), s(0), RULES), out(5));
        assert_eq!(standing.state(), State::Ejected(s(5)));
    }

    #[test]
    fn failures_of_one_group_alone_are_its_own() {
        let mut standing = Standing::default();
        for _ in 0..100 {
            assert_eq!(standing.failed(false, &group("poisoned"), s(0), RULES), None);
        }
        standing.does_well_elsewhere(&group("another"));
        assert_eq!(standing.failed(false, &group("poisoned"), s(0), RULES), None);
        standing.does_well_elsewhere(&group("poisoned"));
        assert!(matches!(standing.failed(false, &group("poisoned"), s(0), RULES), Some(Turn::Ejected(..))));
    }

    #[test]
    fn failures_of_two_groups_are_the_address_s() {
        let mut standing = Standing::default();
        standing.failed(false, &group("a"), s(0), RULES);
        standing.failed(false, &group("b"), s(0), RULES);
        assert_eq!(standing.failed(false, &group("a"), s(0), RULES), out(5));
    }

    #[test]
    fn it_comes_back_with_a_growing_share_and_goes_for_twice_as_long() {
        let mut standing = Standing::default();
        ejected(&mut standing, s(0));
        assert_eq!(standing.at(s(4), RULES), None);
        assert_eq!(standing.at(s(5), RULES), Some(Turn::Back));
        assert_eq!(standing.state(), State::SlowStart);
        let shares = [5, 20, 35].map(|at| (standing.share(s(at), RULES) * 10.0).round());
        assert_eq!(shares, [1.0, 5.0, 10.0]);
        // One refusal is enough now, and twice as long; then the longest there is.
        assert_eq!(standing.failed(true, &group("a"), s(6), RULES), Some(Turn::Ejected(Duration::from_secs(10), 1)));
        assert_eq!(standing.at(s(16), RULES), Some(Turn::Back));
        assert_eq!(standing.failed(true, &group("a"), s(16), RULES), Some(Turn::Ejected(Duration::from_secs(15), 1)));
        assert_eq!(standing.at(s(31), RULES), Some(Turn::Back));
        // A whole slow start without trouble, and all is as before.
        standing.at(s(61), RULES);
        assert_eq!((standing.state(), standing.share(s(61), RULES)), (State::Used, 1.0));
        standing.failed(true, &group("a"), s(62), RULES);
        standing.failed(true, &group("a"), s(62), RULES);
        assert_eq!(standing.failed(true, &group("a"), s(62), RULES), out(5));
    }

    #[test]
    fn what_was_on_its_way_when_it_was_taken_out_does_not_count_again() {
        let mut standing = Standing::default();
        ejected(&mut standing, s(0));
        for _ in 0..10 {
            assert_eq!(standing.failed(true, &group("a"), s(1), RULES), None);
        }
        assert_eq!(standing.at(s(5), RULES), Some(Turn::Back));
        assert_eq!(standing.failures(), 0);
    }

    #[test]
    fn checks_and_failures_hold_it_out_both_and_the_last_one_to_end_lets_it_back() {
        let mut standing = Standing::default();
        assert_eq!(standing.checked(false, s(0)), Some(Turn::Unwell));
        assert_eq!(standing.checked(false, s(1)), None);
        assert_eq!(standing.at(s(100), RULES), None, "time alone does not make it well");
        assert_eq!(standing.checked(true, s(100)), Some(Turn::Back));
        ejected(&mut standing, s(101));
        assert_eq!(standing.checked(false, s(102)), None);
        assert_eq!(standing.at(s(110), RULES), None);
        assert_eq!(standing.state(), State::Unwell);
        assert_eq!(standing.checked(true, s(111)), Some(Turn::Back));
    }
}
