//! What people should hear of: breakers that open and close, groups that get slots of their own and give them back. One notice a change, not one an attempt.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Dedication, Engine};
use crate::event::{Group, Mono};

/// More than one turn of a driver makes. Where nobody polls, the oldest are dropped.
const KEPT_MAX: usize = 4_096;

/// Something changed that people should hear of.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The upstream's opened.
    UpstreamOpened {
        /// When it tries again.
        until: Mono,
        /// Attempts that failed in its window.
        failures: u32,
        /// Groups with pending events of which one failed in its window.
        groups: usize,
    },
    /// The upstream's closed.
    UpstreamClosed {
        /// How long it was not.
        after: Duration,
    },
    /// A group's opened.
    GroupOpened {
        /// Whose.
        group: Group,
        /// When it tries again.
        until: Mono,
        /// Failures in a row.
        failures: u32,
    },
    /// A group's closed.
    GroupClosed {
        /// Whose.
        group: Group,
        /// How long it was not.
        after: Duration,
    },
    /// A group stands otherwise with slots of its own (R12).
    Dedication {
        /// Which.
        group: Group,
        /// How it stood,
        from: Dedication,
        /// and stands.
        to: Dedication,
        /// What it demands, as a part of all slots.
        demand: f64,
        /// Events that wait.
        backlog: u64,
    },
    /// A group is refused what it has outgrown from now on, or no longer.
    Shedding {
        /// Which.
        group: Group,
        /// From which backlog on; `None`: no longer.
        above: Option<u64>,
    },
}

/// Notices that nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Notices(VecDeque<Notice>);

impl Notices {
    pub(super) fn push(&mut self, notice: Notice) {
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(notice);
    }
}

/// Whether breakers were closed, before something happened that may change that.
#[derive(Clone, Copy)]
pub(super) struct Before {
    upstream: bool,
    group: Option<Mono>,
}

impl Engine {
    /// The next change that was not taken yet; in order. Optional: nothing waits for it.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.0.pop_front()
    }

    pub(super) fn before(&self, gid: u32) -> Before {
        let group = self.groups.get(gid).and_then(|group| group.breaker.opened());
        Before { upstream: self.upstream.breaker.is_closed(), group }
    }

    /// Notes what is different from `before`.
    pub(super) fn notice(&mut self, gid: u32, before: Before, now: Mono) {
        match (before.upstream, self.upstream.breaker.is_closed()) {
            (true, false) => {
                let window = self.settings.breakers.upstream.window;
                let failed = |at: Mono| now.since(at) <= window;
                let groups = self.groups.iter().filter(|(_, group)| group.failed.is_some_and(failed)).count();
                let until = self.upstream.breaker.wake().unwrap_or(now);
                let failures = self.upstream.breaker.failures();
                self.notices.push(Notice::UpstreamOpened { until, failures, groups });
            }
            (false, true) => {
                let after = now.since(self.upstream.breaker.opened());
                self.notices.push(Notice::UpstreamClosed { after });
            }
            _ => {}
        }
        let Some(group) = self.groups.get(gid) else { return };
        match (before.group, group.breaker.opened()) {
            (None, Some(_)) => {
                let until = group.breaker.may_go(0, now).err().flatten().unwrap_or(now);
                let failures = self.settings.breakers.group.failures.max(1);
                self.notices.push(Notice::GroupOpened { group: group.name.clone(), until, failures });
            }
            (Some(opened), None) => {
                self.notices.push(Notice::GroupClosed { group: group.name.clone(), after: now.since(opened) });
            }
            _ => {}
        }
    }
}
