//! What people are told of the upstream: how it answered last, and one line of the log for each change of a breaker.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Dedication, Ending, Engine, Notice};
use crate::event::{Group, Mono, Wall};
use crate::metrics::Metrics;

/// Lines about breakers of groups in one second; further changes are counted and said in one line. When a receiver that all groups
/// share fails, all their breakers open at about the same time.
const LINES_MAX: u32 = 4;

/// A failure, and when it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When the attempt ended.
    pub at: Wall,
    /// What went wrong, in words.
    pub error: Box<str>,
}

/// How the upstream answered most recently, since this process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAnswers {
    /// When an attempt last succeeded.
    pub success: Option<Wall>,
    /// What last failed.
    pub failure: Option<Failure>,
}

/// Watches attempts, breakers and dedicated slots for people.
#[derive(Debug)]
pub(super) struct Watch {
    metrics: Arc<Metrics>,
    last: LastAnswers,
    /// Lines about groups in this second.
    lines: u32,
    /// Changes of groups' breakers in this second without a line of their own.
    opened: u32,
    closed: u32,
    /// Groups got slots of their own, or gave them back.
    promoted: bool,
}

impl Watch {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, last: LastAnswers::default(), lines: 0, opened: 0, closed: 0, promoted: false }
    }

    /// Whether groups got slots of their own, or gave them back, since the last call.
    pub(super) fn has_promoted(&mut self) -> bool {
        std::mem::take(&mut self.promoted)
    }

    /// An attempt ended, with this error where it failed.
    pub(super) fn ended(&mut self, ending: Ending, error: &str, now: Wall) {
        match ending {
            Ending::Success => self.last.success = Some(now),
            // Neither says anything about the upstream.
            Ending::Cancelled | Ending::NotSent | Ending::Never(None) => {}
            Ending::Client(_) | Ending::Server { .. } | Ending::NoAnswer | Ending::Never(Some(_)) => {
                self.last.failure = Some(Failure { at: now, error: error.into() });
            }
        }
    }

    /// How it answered most recently.
    pub(super) fn last(&self) -> &LastAnswers {
        &self.last
    }

    /// Says what changed since the last call.
    pub(super) fn say(&mut self, engine: &mut Engine, now: Mono) {
        while let Some(notice) = engine.poll_notice() {
            self.say_one(&notice, now);
        }
    }

    fn say_one(&mut self, notice: &Notice, now: Mono) {
        let last_error = self.last.failure.as_ref().map_or("", |failure| &*failure.error);
        let tries_again_in_s = |until: &Mono| rounded(until.since(now));
        match notice {
            Notice::UpstreamOpened { until, failures, groups } => {
                let tries_again_in_s = tries_again_in_s(until);
                tracing::warn!(
                    last_error,
                    failures,
                    groups,
                    tries_again_in_s,
                    "the upstream's breaker opened: events wait; none is lost"
                );
            }
            Notice::UpstreamClosed { after } => {
                tracing::info!(after_s = rounded(*after), "the upstream answers again: its breaker is closed");
            }
            Notice::GroupOpened { .. } if self.lines >= LINES_MAX => self.opened += 1,
            Notice::GroupClosed { .. } if self.lines >= LINES_MAX => self.closed += 1,
            Notice::GroupOpened { group, until, failures } => {
                self.lines += 1;
                let tries_again_in_s = tries_again_in_s(until);
                tracing::warn!(
                    %group,
                    last_error,
                    failures,
                    tries_again_in_s,
                    "a group's breaker opened: its events wait; none is lost"
                );
            }
            Notice::GroupClosed { group, after } => {
                self.lines += 1;
                tracing::info!(%group, after_s = rounded(*after), "a group's breaker is closed: its events go again");
            }
            Notice::Dedication { group, from, to, demand, backlog } => {
                self.metrics.dedicated(to.as_str());
                self.promoted |= from.has_slots() != to.has_slots();
                say_dedication(group, (*from, *to), *demand, *backlog);
            }
            Notice::Shedding { group, above: Some(backlog) } => {
                tracing::warn!(%group, backlog, "a group has outgrown what it can be given: what would make its backlog larger is refused");
            }
            Notice::Shedding { group, above: None } => {
                tracing::info!(%group, "nothing of a group is refused any more for having outgrown what it can be given");
            }
        }
    }

    /// A second is over.
    pub(super) fn tick(&mut self) {
        let (opened, closed) = (std::mem::take(&mut self.opened), std::mem::take(&mut self.closed));
        self.lines = 0;
        if opened > 0 {
            tracing::warn!(opened, closed, "further groups' breakers opened or closed; their events wait");
        } else if closed > 0 {
            tracing::info!(closed, "further groups' breakers are closed");
        }
    }
}

/// One line for each change of how a group stands with slots of its own.
fn say_dedication(group: &Group, (from, to): (Dedication, Dedication), demand: f64, backlog: u64) {
    let demand = (demand * 1_000.0).round() / 1_000.0;
    let (from, moved) = (from.as_str(), (from, to));
    let to = to.as_str();
    match moved {
        (_, Dedication::Watching) => {
            tracing::info!(%group, from, to, demand, backlog, "a group demands a large part of all slots: it is watched");
        }
        (Dedication::Cooling, Dedication::Promoted) => {
            tracing::info!(%group, from, to, demand, backlog, "a group demands more again: it keeps its own slots");
        }
        (_, Dedication::Promoted) => {
            tracing::info!(%group, from, to, demand, backlog, "a group has slots of its own now");
        }
        (_, Dedication::Cooling) => {
            tracing::info!(%group, from, to, demand, backlog, "a group with slots of its own demands little");
        }
        (_, Dedication::NoLane) => {
            tracing::warn!(%group, from, to, demand, backlog, "a group outgrows its share and all dedicated slots are taken: it goes no faster");
        }
        (Dedication::Promoted | Dedication::Cooling, Dedication::Steady) => {
            tracing::info!(%group, from, to, demand, backlog, "a group gave its own slots back");
        }
        (_, Dedication::Steady) => {
            tracing::info!(%group, from, to, demand, backlog, "a group demands no large part of the slots any more");
        }
    }
}

/// Whole seconds, at least one.
fn rounded(span: Duration) -> u64 {
    span.as_secs_f64().round().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Group;

    #[test]
    fn of_many_groups_a_few_have_lines_and_the_others_are_counted_until_the_second_is_over() {
        let mut watch = Watch::new(Arc::new(Metrics::new("none")));
        for number in 0..100 {
            let group = Group::of(&[format!("g{number}")]);
            watch.say_one(&Notice::GroupOpened { group: group.clone(), until: Mono(9), failures: 10 }, Mono(1));
            watch.say_one(&Notice::GroupClosed { group, after: Duration::ZERO }, Mono(1));
        }
        assert_eq!((watch.lines, watch.opened, watch.closed), (LINES_MAX, 98, 98));
        watch.tick();
        assert_eq!((watch.lines, watch.opened, watch.closed), (0, 0, 0));
    }

    #[test]
    fn what_says_nothing_about_the_upstream_is_no_answer_of_its() {
        let mut watch = Watch::new(Arc::new(Metrics::new("none")));
        for ending in [Ending::Cancelled, Ending::NotSent, Ending::Never(None)] {
            watch.ended(ending, "cancelled", Wall(1));
        }
        assert_eq!(*watch.last(), LastAnswers::default());
        watch.ended(Ending::Client(404), "the upstream answered 404", Wall(2));
        watch.ended(Ending::Success, "", Wall(3));
        let failure = Failure { at: Wall(2), error: "the upstream answered 404".into() };
        assert_eq!(*watch.last(), LastAnswers { success: Some(Wall(3)), failure: Some(failure) });
    }
}
