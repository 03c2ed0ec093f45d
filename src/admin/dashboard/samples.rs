//! The last hour, for charts: the whole gateway, and the groups with the most pending events.
//!
//! A look costs time in the number of active groups, so looks are further apart where one takes long. What is kept is bounded: so many
//! points, of so many groups.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::admin::Admin;
use crate::admin::nodes::whole::{self, Whole};
use crate::admin::nodes::{Report, Wanted};
use crate::driver::{GroupView, Sort};
use crate::event::{Group, Now, Wall};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// So much of the driver's time at most: a hundredth.
const RESTS: u32 = 100;

/// But of several nodes, for which most of it is waiting, no longer than this.
const RESTS_MAX: Duration = Duration::from_secs(15);

/// Points kept: an hour.
const POINTS_MAX: usize = 720;

/// Groups whose points are kept; those with the fewest pending events are forgotten first.
const GROUPS_MAX: usize = 64;

/// The whole gateway at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) at: Wall,
    pub(super) backlog: u64,
    /// Age of the oldest pending event, seconds.
    pub(super) oldest_s: f64,
    /// Events a second since the point before.
    pub(super) accepted: f64,
    pub(super) delivered: f64,
    /// Mean wait of the events since then that found their lane within its burst, seconds; none when there was none.
    pub(super) quiet_wait_s: Option<f64>,
}

/// A group at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPoint {
    pub(super) at: Wall,
    pub(super) backlog: u64,
    /// The 99th percentile of its late waits, seconds.
    pub(super) wait_s: f64,
}

#[derive(Default)]
struct Kept {
    points: VecDeque<Point>,
    groups: HashMap<Group, VecDeque<GroupPoint>>,
    before: Option<Counters>,
    /// Alerts that fired on any node.
    firing: usize,
}

/// Counters as they stood at a look, of each node that answered.
#[derive(Clone)]
struct Counters {
    at: Now,
    nodes: BTreeMap<String, Counts>,
}

/// What a node counts.
#[derive(Clone, Copy)]
struct Counts {
    accepted: u64,
    delivered: u64,
    quiet: (Duration, u64),
}

/// What was seen.
#[derive(Default)]
pub(super) struct Samples(Mutex<Kept>);

impl Samples {
    /// The whole gateway, oldest first.
    pub(super) fn points(&self) -> Vec<Point> {
        self.0.lock().points.iter().copied().collect()
    }

    /// The newest point.
    pub(super) fn latest(&self) -> Option<Point> {
        self.0.lock().points.back().copied()
    }

    /// One group, oldest first; empty for one that is not among those with most pending events.
    pub(super) fn of(&self, group: &Group) -> Vec<GroupPoint> {
        self.0.lock().groups.get(group).into_iter().flatten().copied().collect()
    }

    /// Alerts that fired on any node at the last look.
    pub(super) fn firing(&self) -> usize {
        self.0.lock().firing
    }

    fn add(&self, counters: &Counters, backlog: u64, oldest: Duration, groups: &[GroupView]) {
        let mut kept = self.0.lock();
        if let Some(before) = kept.before.replace(counters.clone()) {
            let point = Point { backlog, oldest_s: oldest.as_secs_f64(), ..counters.since(&before) };
            kept.points.push_back(point);
            if kept.points.len() > POINTS_MAX {
                kept.points.pop_front();
            }
        }
        kept.add_groups(counters.at.wall, groups);
    }
}

impl Kept {
    fn add_groups(&mut self, at: Wall, groups: &[GroupView]) {
        for view in groups {
            let points = self.groups.entry(view.group.clone()).or_default();
            let wait_s = view.wait_p99.map_or(0.0, |wait| wait.as_secs_f64());
            points.push_back(GroupPoint { at, backlog: super::groups::pending(view), wait_s });
        }
        // Fewer than were asked for are all that have anything; the others have nothing.
        let all = groups.len() < GROUPS_MAX;
        for points in self.groups.values_mut() {
            if all && points.back().is_none_or(|last| last.at != at) {
                points.push_back(GroupPoint { at, backlog: 0, wait_s: 0.0 });
            }
            if points.len() > POINTS_MAX {
                points.pop_front();
            }
        }
        // One that had nothing for the whole hour is of no interest any more.
        self.groups.retain(|_, points| points.iter().any(|point| point.backlog > 0));
        while self.groups.len() > GROUPS_MAX {
            let last = |points: &VecDeque<GroupPoint>| points.back().map(|point| (point.at, point.backlog));
            let least = self.groups.iter().min_by_key(|(_, points)| last(points)).map(|(group, _)| group.clone());
            let Some(least) = least else { break };
            self.groups.remove(&least);
        }
    }
}

impl Counters {
    fn of(whole: &Whole, at: Now) -> Self {
        let counts = |report: &Report| {
            let stands = &report.stands;
            let counts = Counts { accepted: stands.accepted, delivered: stands.delivered, quiet: stands.quiet };
            (report.node.clone(), counts)
        };
        Self { at, nodes: whole.reports().iter().map(counts).collect() }
    }

    /// What happened since `before` on nodes that answered both times; backlog and age are the caller's.
    fn since(&self, before: &Self) -> Point {
        let seconds = self.at.mono.since(before.at.mono).as_secs_f64().max(0.001);
        let both = || self.nodes.iter().filter_map(|(node, now)| Some((now, before.nodes.get(node)?)));
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let rate = |of: fn(&Counts) -> u64| {
            both().map(|(now, then)| of(now).saturating_sub(of(then))).sum::<u64>() as f64 / seconds
        };
        let waited: Duration = both().map(|(now, then)| now.quiet.0.saturating_sub(then.quiet.0)).sum();
        let waits: u64 = both().map(|(now, then)| now.quiet.1.saturating_sub(then.quiet.1)).sum();
        #[expect(clippy::cast_precision_loss, reason = "likewise")]
        let quiet_wait_s = (waits > 0).then(|| waited.as_secs_f64() / waits as f64);
        Point {
            at: self.at.wall,
            backlog: 0,
            oldest_s: 0.0,
            accepted: rate(|counts| counts.accepted),
            delivered: rate(|counts| counts.delivered),
            quiet_wait_s,
        }
    }
}

/// Looks again and again; ends when the driver has ended.
pub(in crate::admin) async fn keep(admin: Arc<Admin>) {
    loop {
        let began = admin.handle.now();
        let wanted = Wanted { groups: vec![(Sort::Depth, GROUPS_MAX)], alerts: true, ..Wanted::default() };
        let Ok(whole) = whole::ask(&admin, wanted).await else { return };
        let counters = Counters::of(&whole, admin.handle.now());
        let oldest = whole.oldest().map_or(Duration::ZERO, |oldest| counters.at.wall.since(oldest));
        let groups = whole.groups(0, Sort::Depth, GROUPS_MAX);
        admin.dashboard.samples.add(&counters, whole.backlog().0, oldest, &groups);
        admin.dashboard.samples.0.lock().firing = whole.firing().len();
        let took = counters.at.mono.since(began.mono);
        let rest = if admin.others.get().is_some() { (took * RESTS).min(RESTS_MAX) } else { took * RESTS };
        tokio::time::sleep(EVERY.max(rest)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Mono;

    fn counters(second: u64, accepted: u64, (quiet_ms, waits): (u64, u64)) -> Counters {
        let at = Now { mono: Mono(second * 1_000_000), wall: Wall(second * 1_000_000) };
        let counts = Counts { accepted, delivered: 0, quiet: (Duration::from_millis(quiet_ms), waits) };
        Counters { at, nodes: BTreeMap::from([(String::new(), counts)]) }
    }

    #[test]
    fn a_node_that_was_not_seen_before_adds_nothing_that_happened_before() {
        let (mut one, mut two) = (counters(0, 100, (0, 0)), counters(5, 150, (0, 0)));
        two.nodes.insert("late".to_owned(), Counts { accepted: 9_000, delivered: 9_000, quiet: (Duration::ZERO, 0) });
        assert_eq!((two.since(&one).accepted, two.since(&one).delivered), (10.0, 0.0));
        one.nodes.insert("late".to_owned(), Counts { accepted: 8_950, delivered: 0, quiet: (Duration::ZERO, 0) });
        assert_eq!(two.since(&one).accepted, 20.0);
    }

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let samples = Samples::default();
        samples.add(&counters(0, 100, (1_000, 10)), 7, Duration::from_secs(1), &[]);
        assert!(samples.latest().is_none(), "one look is no rate");
        samples.add(&counters(5, 150, (1_500, 15)), 9, Duration::from_secs(2), &[]);
        let point = samples.latest().unwrap();
        assert_eq!((point.accepted, point.delivered, point.backlog), (10.0, 0.0, 9));
        assert_eq!((point.quiet_wait_s, point.oldest_s), (Some(0.1), 2.0));
        // A source that was removed takes its counter along.
        samples.add(&counters(10, 20, (1_500, 15)), 9, Duration::ZERO, &[]);
        let point = samples.latest().unwrap();
        assert_eq!((point.accepted, point.quiet_wait_s), (0.0, None));
        for second in 3..1_000 {
            samples.add(&counters(second * 5, 0, (0, 0)), 0, Duration::ZERO, &[]);
        }
        assert_eq!(samples.points().len(), POINTS_MAX);
    }
}
