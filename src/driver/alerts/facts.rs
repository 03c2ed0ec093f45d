//! What alerts are judged by: numbers of one moment, and what is remembered of earlier ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::deliver::AddressView;
use crate::engine::Survey;
use crate::event::{Mono, Now, Wall};
use crate::store::SpoolUsage;

/// Numbers of one moment.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// What the driver says; `None` when it did not answer in time.
    pub(super) survey: Option<Survey>,
    /// How long ago the driver's last turn was.
    pub(super) beat_age: Duration,
    /// What each source has counted.
    pub(super) sources: Vec<SourceFacts>,
    /// Room in thousandths of `min_free`; see [`crate::store::Usage`].
    pub(super) room: u64,
    /// Bytes until everybody is refused.
    pub(super) room_bytes: u64,
    /// Why new events cannot be stored just now, in words.
    pub(super) unstored: Option<String>,
    /// For how long a store that is elsewhere has not answered; zero for one that is here.
    pub(super) silent: Duration,
    /// What is in the spool, where there is one.
    pub(super) spool: Option<SpoolUsage>,
    /// Whether the file on disk is what runs.
    pub(super) config_ok: bool,
    /// How the upstream's addresses stand.
    pub(super) addresses: Vec<AddressView>,
}

/// What a source has counted so far.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceFacts {
    pub(super) name: Arc<str>,
    /// Whether it has a rule for the key.
    pub(super) has_key: bool,
    pub(super) accepted: u64,
    /// Events without a key although there is a rule, by reason.
    pub(super) fallback: Vec<(&'static str, u64)>,
    /// Requests refused for their signature.
    pub(super) refused: u64,
    /// Each secret's end of use, and how often it matched.
    pub(super) secrets: Vec<(Option<Wall>, u64)>,
    /// The sender's clock minus ours, seconds, at its last signed time.
    pub(super) skew_s: f64,
}

/// The time that shares and rates are taken over.
pub(super) const WINDOW: Duration = Duration::from_mins(10);
/// A share of fewer events says nothing.
pub(super) const EVENTS_MIN: u64 = 100;
/// Moments are kept this far apart: twenty of a window.
const APART: Duration = Duration::from_secs(30);
/// And so many events: twenty of the smallest number that says something.
const EVENTS_APART: u64 = EVENTS_MIN / 20;
/// Signed times whose median is taken.
const SKEWS_MAX: usize = 20;

/// What is remembered from one moment to the next. Bounded: by source some dozens of numbers.
#[derive(Debug, Default)]
pub(super) struct History {
    sources: HashMap<Arc<str>, OfSource>,
    room: VecDeque<(Mono, u64)>,
    violations: u64,
    violated: Option<Now>,
}

#[derive(Debug, Default)]
struct OfSource {
    accepted: u64,
    marks: VecDeque<Mark>,
    /// By secret: how often it had matched, and when that last grew.
    secrets: Vec<(u64, Option<Wall>)>,
    refused: u64,
    refused_at: Option<Wall>,
    skews: VecDeque<f64>,
}

#[derive(Debug)]
struct Mark {
    at: Mono,
    accepted: u64,
    fallback: Vec<(&'static str, u64)>,
}

/// What the last events of a source were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recent {
    pub(super) events: u64,
    pub(super) without_key: u64,
    /// The most frequent reasons first.
    pub(super) reasons: Vec<(&'static str, u64)>,
}

impl History {
    /// Takes up the numbers of this moment.
    pub(super) fn see(&mut self, facts: &Facts, now: Now) {
        self.sources.retain(|name, _| facts.sources.iter().any(|source| source.name == *name));
        for source in &facts.sources {
            self.sources.entry(Arc::clone(&source.name)).or_default().see(source, now);
        }
        mark(&mut self.room, now.mono, facts.room_bytes);
        if let Some(survey) = &facts.survey {
            if survey.violations > self.violations {
                self.violated = Some(now);
            }
            self.violations = survey.violations;
        }
    }

    /// When an invariant was last found broken, and how often one was.
    pub(super) fn violated(&self) -> Option<(Now, u64)> {
        self.violated.map(|at| (at, self.violations))
    }

    /// The events of a source in the last [`WINDOW`], or since so long ago that there are [`EVENTS_MIN`]; `None` when there are fewer.
    pub(super) fn recent(&self, source: &SourceFacts) -> Option<Recent> {
        let since = self.sources.get(&source.name)?.marks.front()?;
        let events = source.accepted.saturating_sub(since.accepted);
        let before = |reason| since.fallback.iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count);
        let mut reasons: Vec<(&'static str, u64)> =
            source.fallback.iter().map(|(name, count)| (*name, count.saturating_sub(before(*name)))).collect();
        reasons.retain(|(_, count)| *count > 0);
        reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let without_key = reasons.iter().map(|(_, count)| count).sum();
        (events >= EVENTS_MIN).then_some(Recent { events, without_key, reasons })
    }

    /// When a secret was last seen to match.
    pub(super) fn matched(&self, source: &str, secret: usize) -> Option<Wall> {
        self.sources.get(source)?.secrets.get(secret)?.1
    }

    /// When a request of a source was last refused for its signature.
    pub(super) fn refused(&self, source: &str) -> Option<Wall> {
        self.sources.get(source)?.refused_at
    }

    /// The median of a source's last skews, seconds; `None` before there are some.
    pub(super) fn skew(&self, source: &str) -> Option<f64> {
        let skews = &self.sources.get(source)?.skews;
        let mut sorted: Vec<f64> = skews.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().filter(|_| skews.len() >= SKEWS_MAX / 4)
    }

    /// How long until there is no room, at the rate of the last minutes; `None` where it is not known or does not shrink.
    pub(super) fn full_in(&self, room: u64, now: Mono) -> Option<Duration> {
        let (since, before) = self.room.front()?;
        let span = now.since(*since);
        let taken = before.checked_sub(room).filter(|taken| *taken > 0 && room > 0)?;
        let seconds = room as f64 / (taken as f64 / span.as_secs_f64());
        if span < WINDOW / 2 { None } else { Duration::try_from_secs_f64(seconds).ok() }
    }
}

/// Keeps a number of this moment, and those of the last window.
fn mark(marks: &mut VecDeque<(Mono, u64)>, now: Mono, value: u64) {
    if marks.back().is_none_or(|(at, _)| now.since(*at) >= APART) {
        marks.push_back((now, value));
    }
    while marks.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
        marks.pop_front();
    }
}

impl OfSource {
    fn see(&mut self, source: &SourceFacts, now: Now) {
        let is_new = self.marks.is_empty();
        let sent = source.accepted > std::mem::replace(&mut self.accepted, source.accepted);
        if sent && !is_new {
            self.skews.push_back(source.skew_s);
            if self.skews.len() > SKEWS_MAX {
                self.skews.pop_front();
            }
        }
        self.secrets.resize(source.secrets.len(), (0, None));
        for ((known, at), (_, count)) in self.secrets.iter_mut().zip(&source.secrets) {
            if count > known {
                *at = Some(now.wall);
            }
            *known = *count;
        }
        // What was refused before anybody looked says nothing about when.
        if source.refused > self.refused && !is_new {
            self.refused_at = Some(now.wall);
        }
        self.refused = source.refused;
        self.keep(source, now.mono);
    }

    /// Keeps a mark of now, and drops those that are not needed for a window of ten minutes and a hundred events: some forty stay.
    fn keep(&mut self, source: &SourceFacts, now: Mono) {
        let events = |mark: &Mark| source.accepted.saturating_sub(mark.accepted);
        if self.marks.back().is_none_or(|mark| now.since(mark.at) >= APART && events(mark) >= EVENTS_APART) {
            let fallback = source.fallback.clone();
            self.marks.push_back(Mark { at: now, accepted: source.accepted, fallback });
        }
        while self.marks.get(1).is_some_and(|mark| now.since(mark.at) >= WINDOW && events(mark) >= EVENTS_MIN) {
            self.marks.pop_front();
        }
    }
}
