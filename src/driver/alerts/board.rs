//! From conditions to alerts: each fires once, when its condition has held long enough, and resolves once, when it has been gone long
//! enough.

use std::collections::{BTreeMap, VecDeque};

use super::catalog::Kind;
use super::{Alert, Settings};
use crate::event::{Mono, Now, Wall};

/// Alerts that resolved and are still shown.
const RESOLVED_MAX: usize = 100;

/// Conditions that are followed at most: kinds without a subject, and twenty subjects of each of the others, with room for sources.
const FOLLOWED_MAX: usize = 1_000;

/// A condition that holds now, in words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// Which group or source, where there may be several.
    pub(super) subject: Option<Box<str>>,
    /// Whether it is beyond the mark; false: near it, which keeps an alert and makes none.
    pub(super) beyond: bool,
    pub(super) groups: Vec<String>,
    pub(super) what: String,
    pub(super) command: String,
}

type Key = (Kind, Option<Box<str>>);

#[derive(Clone, Debug)]
struct Followed {
    finding: Finding,
    since: Now,
    fired: Option<Wall>,
    /// Since when its condition is gone.
    gone: Option<Mono>,
}

/// What is followed, and what resolved.
#[derive(Debug, Default)]
pub(super) struct Board {
    followed: BTreeMap<Key, Followed>,
    resolved: VecDeque<Alert>,
}

impl Board {
    /// Takes up what was found now. `judged` says whether a kind could be judged at all; those that could not stay as they are. The
    /// answer is what fired and what resolved.
    pub(super) fn see(
        &mut self,
        findings: Vec<Finding>,
        judged: impl Fn(Kind) -> bool,
        settings: &Settings,
        now: Now,
    ) -> Vec<Alert> {
        let mut gone: Vec<Key> = self.followed.keys().filter(|(kind, _)| judged(*kind)).cloned().collect();
        for finding in findings {
            let key = (finding.kind, finding.subject.clone());
            gone.retain(|other| *other != key);
            self.found(key, finding, now);
        }
        let mut changed = Vec::new();
        for key in gone {
            changed.extend(self.missed(&key, settings, now));
        }
        for followed in self.followed.values_mut() {
            let held = now.mono.since(followed.since.mono);
            if followed.fired.is_none() && held >= settings.after(followed.finding.kind) {
                followed.fired = Some(now.wall);
                changed.extend(alert(followed));
            }
        }
        changed
    }

    fn found(&mut self, key: Key, finding: Finding, now: Now) {
        if let Some(known) = self.followed.get_mut(&key) {
            if known.fired.is_some() || finding.beyond {
                known.gone = None;
                known.finding = finding;
            } else {
                self.followed.remove(&key);
            }
        } else if finding.beyond && self.followed.len() < FOLLOWED_MAX {
            self.followed.insert(key, Followed { finding, since: now, fired: None, gone: None });
        }
    }

    /// The condition of a key does not hold: what did not fire is forgotten, what fired resolves after a while.
    fn missed(&mut self, key: &Key, settings: &Settings, now: Now) -> Option<Alert> {
        let known = self.followed.get_mut(key)?;
        let gone = *known.gone.get_or_insert(now.mono);
        if known.fired.is_some() && now.mono.since(gone) < settings.clear(key.0) {
            return None;
        }
        let alert = self.followed.remove(key).as_ref().and_then(alert)?;
        let alert = Alert { resolved: Some(now.wall), ..alert };
        self.resolved.push_front(alert.clone());
        self.resolved.truncate(RESOLVED_MAX);
        Some(alert)
    }

    /// Takes up an alert from before a restart, those that came first last. One that fires resolves when its condition is gone, like any other.
    pub(super) fn recall(&mut self, kind: Kind, alert: Alert, now: Now) {
        if alert.resolved.is_some() {
            self.resolved.push_back(alert);
            return;
        }
        let Alert { subject, groups, what, command, .. } = alert;
        let since = Now { wall: alert.since, mono: now.mono };
        let finding = Finding { kind, subject: subject.clone(), beyond: true, groups, what, command };
        self.followed.insert((kind, subject), Followed { finding, since, fired: Some(alert.fired), gone: None });
    }

    /// How many alerts of a kind fire.
    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.followed.iter().filter(|((other, _), followed)| *other == kind && followed.fired.is_some()).count() as u64
    }

    /// Whether the alert of a kind fires that is about this.
    pub(super) fn fires(&self, kind: Kind, subject: Option<&str>) -> bool {
        self.followed.get(&(kind, subject.map(Into::into))).is_some_and(|followed| followed.fired.is_some())
    }

    /// What fires, pages first, then the latest first.
    pub(super) fn firing(&self) -> Vec<Alert> {
        let mut firing: Vec<Alert> = self.followed.values().filter_map(alert).collect();
        firing.sort_by_key(|alert| (std::cmp::Reverse(alert.severity), std::cmp::Reverse(alert.fired)));
        firing
    }

    /// What resolved, the latest first.
    pub(super) fn resolved(&self) -> Vec<Alert> {
        self.resolved.iter().cloned().collect()
    }
}

/// The alert, where it has fired.
fn alert(followed: &Followed) -> Option<Alert> {
    let Finding { kind, subject, groups, what, command, .. } = &followed.finding;
    let row = kind.row();
    Some(Alert {
        name: row.name,
        severity: row.severity,
        subject: subject.clone(),
        groups: groups.clone(),
        since: followed.since.wall,
        fired: followed.fired?,
        resolved: None,
        what: what.clone(),
        means: row.means,
        remedy: row.remedy,
        command: command.clone(),
    })
}
