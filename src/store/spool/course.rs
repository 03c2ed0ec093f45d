//! How far the mover has come through the spool, and what it left behind on its way.
//!
//! It goes through the spool once, from the oldest event on. What the remote refuses is *held*: a part that is away, or one group whose
//! backlog is full. The mover passes by the rest of whatever is held, so that nothing waits behind it, and remembers where each hold
//! began; from there it goes on when that first event, which alone is tried again, has been taken. So the order within a lane
//! is kept, and no event is looked at again and again while it cannot go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::event::{Group, Mono, Seq};

/// Holds at most: groups whose backlog is full. With more of them the mover goes no further until some are taken.
const HELD_MAX: usize = 10_000;

/// What the remote does not take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// A part of it that is away or full.
    Part(u16),
    /// A group that has as many events pending as it may.
    Group(Group),
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The first event that was refused.
    first: Seq,
    /// When it is tried again.
    again: Mono,
}

/// Seqs are the spool's own.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Everything up to here has moved or is held.
    behind: Seq,
    held: BTreeMap<Held, Hold>,
    /// How far it had come before it went back for what was let go. Up to there, nothing else is left.
    turned: Seq,
    /// What it went back for.
    loose: BTreeSet<Held>,
}

impl Course {
    /// Events above this are looked at next; `None` where nothing more may be held.
    pub(super) fn behind(&self) -> Option<Seq> {
        (self.held.len() < HELD_MAX).then_some(self.behind)
    }

    /// It has come to here.
    pub(super) fn came_to(&mut self, seq: Seq) {
        self.behind = self.behind.max(seq);
        if self.behind >= self.turned {
            self.loose.clear();
        }
    }

    /// Whether the event at `seq` has to stay. What keeps it then begins there at the latest.
    pub(super) fn holds(&mut self, part: u16, group: &Group, seq: Seq) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let what = [Held::Part(part), Held::Group(group.clone())].into_iter().find(|what| self.held.contains_key(what));
        let Some(hold) = what.and_then(|what| self.held.get_mut(&what)) else { return false };
        hold.first = hold.first.min(seq);
        true
    }

    /// The event at `seq` was refused; it is tried again in a while.
    pub(super) fn hold(&mut self, what: Held, seq: Seq, again: Mono) {
        // What it went back for is held again: there is nothing to do on the way to where it turned.
        if self.loose.remove(&what) && self.loose.is_empty() {
            self.behind = self.behind.max(self.turned);
        }
        let hold = self.held.entry(what).or_insert(Hold { first: seq, again });
        hold.first = hold.first.min(seq);
        hold.again = again;
    }

    /// The first events of what may be tried again, at most `limit`.
    pub(super) fn due(&self, now: Mono, limit: usize) -> Vec<(Held, Seq)> {
        let due = self.held.iter().filter(|(_, hold)| hold.again <= now);
        due.take(limit).map(|(what, hold)| (what.clone(), hold.first)).collect()
    }

    /// What was held may go on, from its first event.
    pub(super) fn let_go(&mut self, what: &Held) {
        if let Some(hold) = self.held.remove(what) {
            self.turned = self.turned.max(self.behind);
            self.behind = self.behind.min(Seq(hold.first.0.saturating_sub(1)));
            self.loose.insert(what.clone());
        }
    }

    /// How long until something is due, where anything is held.
    pub(super) fn rests(&self, now: Mono) -> Option<Duration> {
        self.held.values().map(|hold| hold.again.since(now)).min()
    }

    /// The spool is empty: whatever was held is not there.
    pub(super) fn emptied(&mut self) {
        self.held.clear();
        self.loose.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> Group {
        Group::of(&[name])
    }

    #[test]
    fn what_is_held_is_passed_by_and_taken_up_from_its_first_event() {
        let mut course = Course::default();
        course.hold(Held::Part(7), Seq(3), Mono(100));
        course.hold(Held::Group(group("a")), Seq(5), Mono(50));
        course.came_to(Seq(20));
        let seq = Seq(20);
        assert!(course.holds(7, &group("b"), seq) && course.holds(1, &group("a"), seq));
        assert!(!course.holds(1, &group("b"), seq));
        assert_eq!(course.due(Mono(60), 9), [(Held::Group(group("a")), Seq(5))]);
        assert_eq!(course.rests(Mono(60)), Some(Duration::ZERO));
        course.let_go(&Held::Group(group("a")));
        assert_eq!(course.behind(), Some(Seq(4)));
        assert_eq!(course.rests(Mono(60)), Some(Duration::from_micros(40)));
        course.came_to(Seq(30));
        course.let_go(&Held::Part(7));
        assert_eq!((course.behind(), course.rests(Mono(60))), (Some(Seq(2)), None));
        course.let_go(&Held::Part(7));
        assert_eq!(course.behind(), Some(Seq(2)));
    }

    #[test]
    fn a_hold_stays_where_it_began() {
        let mut course = Course::default();
        course.hold(Held::Part(7), Seq(3), Mono(100));
        course.hold(Held::Part(7), Seq(9), Mono(200));
        assert_eq!(course.due(Mono(199), 9), []);
        assert_eq!(course.due(Mono(200), 9), [(Held::Part(7), Seq(3))]);
    }

    /// A group that is at its bound takes one event a second: its long queue must not be walked through each time.
    #[test]
    fn what_is_held_again_sends_it_back_to_where_it_turned() {
        let mut course = Course::default();
        let a = Held::Group(group("a"));
        course.hold(a.clone(), Seq(3), Mono(0));
        course.came_to(Seq(1_000_000));
        course.let_go(&a);
        assert_eq!(course.behind(), Some(Seq(2)));
        course.hold(a.clone(), Seq(4), Mono(1));
        assert_eq!(course.behind(), Some(Seq(1_000_000)));
        course.let_go(&a);
        assert_eq!(course.behind(), Some(Seq(3)));
        course.hold(Held::Part(9), Seq(5), Mono(1));
        assert_eq!(course.behind(), Some(Seq(3)), "it still has the group's events before it");
    }

    /// The group's events would be passed by for ever, were the part to begin behind them.
    #[test]
    fn an_event_that_two_things_hold_is_found_again_by_the_one_that_is_left() {
        let mut course = Course::default();
        course.hold(Held::Group(group("a")), Seq(5), Mono(0));
        course.hold(Held::Part(7), Seq(10), Mono(0));
        course.came_to(Seq(20));
        course.let_go(&Held::Group(group("a")));
        assert!(course.holds(7, &group("a"), Seq(6)));
        course.came_to(Seq(20));
        course.let_go(&Held::Part(7));
        assert_eq!(course.behind(), Some(Seq(5)));
    }

    #[test]
    fn holds_are_bounded() {
        let mut course = Course::default();
        for number in 0..HELD_MAX {
            assert!(course.behind().is_some());
            course.hold(Held::Group(group(&number.to_string())), Seq(number as u64), Mono(0));
        }
        assert_eq!(course.behind(), None);
        assert_eq!(course.due(Mono(0), 100).len(), 100);
        course.emptied();
        assert!(course.behind().is_some());
    }
}
