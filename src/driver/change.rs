//! What a person changes while the gateway runs, of a group or of the upstream, and when each part of it ends.
//!
//! Each change brings its own end, and acts on the parts that it names alone: a pause for an hour leaves a weight for good as it is. So
//! what is in force is a list of changes, each of which keeps the parts that no later one has named.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::event::Wall;

/// How long a change lasts where it does not say.
const LASTS: Duration = Duration::from_hours(24);

/// A change of one group, each part of it kept from before where it is not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Whether it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Its share relative to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Its attempts in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Its attempts a time: how many, in how many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<(u32, u64)>,
    /// Its events that may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u32>,
}

/// A change of the upstream, each part of it kept from before where it is not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamChange {
    /// Whether nobody's events are attempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Attempts in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Attempts a time: how many, in how many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<(u32, u64)>,
}

/// A change that is made of parts, each given or not.
pub trait InParts: Copy + Default + PartialEq {
    /// The names of those that are given, as the API writes them.
    fn given(&self) -> Vec<&'static str>;

    /// This change, and of `before` what it does not give.
    #[must_use]
    fn over(self, before: Self) -> Self;

    /// This change without the parts that `other` gives.
    #[must_use]
    fn without(self, other: &Self) -> Self;

    /// The part of this name alone.
    #[must_use]
    fn only(self, part: &str) -> Self;

    /// Only whether it waits.
    fn pause(paused: bool) -> Self;

    /// A change that gives the part of this name, with whatever value; `None`: there is no such part.
    fn part(name: &str) -> Option<Self>;

    /// The names of all parts.
    const PARTS: &'static [&'static str];
}

/// `part` unless the other gives it too.
fn unless<T, U>(part: Option<T>, other: Option<U>) -> Option<T> {
    part.filter(|_| other.is_none())
}

/// The names of the parts that are given.
fn names<const N: usize>(parts: [(&'static str, bool); N]) -> Vec<&'static str> {
    parts.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

impl InParts for Change {
    fn given(&self) -> Vec<&'static str> {
        names([
            ("paused", self.paused.is_some()),
            ("weight", self.weight.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("rate", self.rate.is_some()),
            ("backlog", self.backlog.is_some()),
        ])
    }

    fn over(self, before: Self) -> Self {
        Self {
            paused: self.paused.or(before.paused),
            weight: self.weight.or(before.weight),
            concurrency: self.concurrency.or(before.concurrency),
            rate: self.rate.or(before.rate),
            backlog: self.backlog.or(before.backlog),
        }
    }

    fn without(self, other: &Self) -> Self {
        Self {
            paused: unless(self.paused, other.paused),
            weight: unless(self.weight, other.weight),
            concurrency: unless(self.concurrency, other.concurrency),
            rate: unless(self.rate, other.rate),
            backlog: unless(self.backlog, other.backlog),
        }
    }

    fn only(self, part: &str) -> Self {
        Self {
            paused: self.paused.filter(|_| part == "paused"),
            weight: self.weight.filter(|_| part == "weight"),
            concurrency: self.concurrency.filter(|_| part == "concurrency"),
            rate: self.rate.filter(|_| part == "rate"),
            backlog: self.backlog.filter(|_| part == "backlog"),
        }
    }

    fn pause(paused: bool) -> Self {
        Self { paused: Some(paused), ..Self::default() }
    }

    fn part(name: &str) -> Option<Self> {
        let none = Self::default();
        Some(match name {
            "paused" => Self::pause(false),
            "weight" => Self { weight: Some(1.0), ..none },
            "concurrency" => Self { concurrency: Some(1), ..none },
            "rate" => Self { rate: Some((1, 1)), ..none },
            "backlog" => Self { backlog: Some(1), ..none },
            _ => return None,
        })
    }

    const PARTS: &'static [&'static str] = &["paused", "weight", "concurrency", "rate", "backlog"];
}

impl InParts for UpstreamChange {
    fn given(&self) -> Vec<&'static str> {
        names([
            ("paused", self.paused.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("rate", self.rate.is_some()),
        ])
    }

    fn over(self, before: Self) -> Self {
        Self {
            paused: self.paused.or(before.paused),
            concurrency: self.concurrency.or(before.concurrency),
            rate: self.rate.or(before.rate),
        }
    }

    fn without(self, other: &Self) -> Self {
        Self {
            paused: unless(self.paused, other.paused),
            concurrency: unless(self.concurrency, other.concurrency),
            rate: unless(self.rate, other.rate),
        }
    }

    fn only(self, part: &str) -> Self {
        Self {
            paused: self.paused.filter(|_| part == "paused"),
            concurrency: self.concurrency.filter(|_| part == "concurrency"),
            rate: self.rate.filter(|_| part == "rate"),
        }
    }

    fn pause(paused: bool) -> Self {
        Self { paused: Some(paused), ..Self::default() }
    }

    fn part(name: &str) -> Option<Self> {
        let none = Self::default();
        Some(match name {
            "paused" => Self::pause(false),
            "concurrency" => Self { concurrency: Some(1), ..none },
            "rate" => Self { rate: Some((1, 1)), ..none },
            _ => return None,
        })
    }

    const PARTS: &'static [&'static str] = &["paused", "concurrency", "rate"];
}

/// A change that is in force, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dated<C> {
    /// What it changes.
    pub change: C,
    /// When it ends, microseconds since 1970; `None`: never.
    pub expires: Option<u64>,
}

/// All that is in force, of a group or of the upstream. No part is given by two of its changes, and none of them is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Noted<C>", bound(serialize = "C: Serialize", deserialize = "C: DeserializeOwned + InParts"))]
pub struct Live<C = Change>(Vec<Dated<C>>);

/// How it stands in a notebook.
#[derive(Deserialize)]
#[serde(untagged)]
enum Noted<C> {
    Each(Vec<Dated<C>>),
    /// One end of all parts, as it was written before each had its own.
    Together(Dated<C>),
    Nothing,
}

impl<C: InParts> From<Noted<C>> for Live<C> {
    fn from(noted: Noted<C>) -> Self {
        let all = match noted {
            Noted::Each(all) => all,
            Noted::Together(one) => vec![one],
            Noted::Nothing => Vec::new(),
        };
        let mut live = Self::default();
        all.into_iter().for_each(|one| live.add(one.change, one.expires));
        live
    }
}

impl<C: InParts> Live<C> {
    /// What is changed altogether.
    #[must_use]
    pub fn change(&self) -> C {
        self.0.iter().fold(C::default(), |sum, dated| dated.change.over(sum))
    }

    /// Each part that is changed, by its name, and when that ends, microseconds since 1970; `None`: never.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> {
        self.0.iter().flat_map(|dated| dated.change.given().into_iter().map(|name| (name, dated.expires)))
    }

    /// When the first part ends, microseconds since 1970; `None`: none ever does.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        self.0.iter().filter_map(|dated| dated.expires).min()
    }

    /// The changes, each with its end.
    pub fn dated(&self) -> impl Iterator<Item = &Dated<C>> {
        self.0.iter()
    }

    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A person's change: what it names holds until its end. `pauses`: whether the file pauses it; where not, a resume has nothing to
    /// say against the file, and takes the pause away.
    pub(super) fn put(&mut self, change: C, expiry: Expiry, pauses: bool, now: Wall) {
        self.strike(&change);
        let resume = C::pause(false);
        let resumes = resume.over(change) == change;
        let kept = if resumes && !pauses { change.without(&resume) } else { change };
        self.add(kept, expiry.ends(now));
    }

    pub(super) fn add(&mut self, change: C, expires: Option<u64>) {
        self.strike(&change);
        if change != C::default() {
            self.0.push(Dated { change, expires });
        }
    }

    /// Takes it all back, or only the parts that `only` gives; whether that changed anything.
    pub(super) fn take_back(&mut self, only: Option<&C>) -> bool {
        let before = self.ends().count();
        match only {
            None => self.0.clear(),
            Some(parts) => self.strike(parts),
        }
        self.ends().count() < before
    }

    /// Takes the parts that `other` gives out.
    fn strike(&mut self, other: &C) {
        self.0.iter_mut().for_each(|dated| dated.change = dated.change.without(other));
        self.0.retain(|dated| dated.change != C::default());
    }

    /// Whether a part has expired.
    pub(super) fn is_over(&self, now: Wall) -> bool {
        self.expires().is_some_and(|at| at <= now.0)
    }

    /// Without what has expired.
    pub(super) fn left(mut self, now: Wall) -> Self {
        self.0.retain(|dated| dated.expires.is_none_or(|at| at > now.0));
        self
    }
}

/// When a change ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// After a day.
    Usual,
    /// At this time.
    At(Wall),
    /// When somebody takes it back.
    Never,
}

impl Expiry {
    /// When that is, microseconds since 1970, for a change made `now`.
    pub(super) fn ends(self, now: Wall) -> Option<u64> {
        match self {
            Self::Usual => Some(now.plus(LASTS).0),
            Self::At(at) => Some(at.0),
            Self::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Wall = Wall(1_000_000_000);

    fn weight(weight: f64) -> Change {
        Change { weight: Some(weight), ..Change::default() }
    }

    #[test]
    fn each_part_ends_by_itself() {
        let mut live = Live::default();
        live.put(weight(4.0), Expiry::Never, false, NOW);
        live.put(Change::pause(true), Expiry::At(NOW.plus(Duration::from_secs(4))), false, NOW);
        assert_eq!(live.expires(), Some(NOW.plus(Duration::from_secs(4)).0));
        let ends: Vec<_> = live.ends().collect();
        assert_eq!(ends, [("weight", None), ("paused", Some(NOW.plus(Duration::from_secs(4)).0))]);
        let later = NOW.plus(Duration::from_secs(4));
        assert!(live.is_over(later) && !live.is_over(NOW));
        let left = live.left(later);
        assert_eq!((left.change(), left.expires()), (weight(4.0), None));
    }

    #[test]
    fn a_later_change_of_a_part_brings_its_end() {
        let mut live = Live::default();
        live.put(Change { paused: Some(true), ..weight(4.0) }, Expiry::Never, false, NOW);
        live.put(weight(2.0), Expiry::Usual, false, NOW);
        let ends: Vec<_> = live.ends().collect();
        assert_eq!(ends, [("paused", None), ("weight", Some(NOW.plus(LASTS).0))]);
        assert_eq!(live.change(), Change { paused: Some(true), ..weight(2.0) });
    }

    #[test]
    fn a_resume_takes_the_pause_away_and_speaks_only_against_a_file_that_pauses() {
        let mut live = Live::default();
        live.put(weight(4.0), Expiry::Never, false, NOW);
        live.put(Change::pause(true), Expiry::Usual, false, NOW);
        live.put(Change::pause(false), Expiry::Usual, false, NOW);
        assert_eq!((live.change(), live.expires()), (weight(4.0), None));
        let mut none = Live::default();
        none.put(Change::pause(false), Expiry::Usual, false, NOW);
        assert!(none.is_empty());
        none.put(Change { paused: Some(false), ..weight(2.0) }, Expiry::Usual, false, NOW);
        assert_eq!(none.change(), weight(2.0));
        none.put(Change::pause(false), Expiry::Usual, true, NOW);
        assert_eq!(none.change(), Change { paused: Some(false), ..weight(2.0) });
    }

    #[test]
    fn one_part_is_taken_back_and_the_others_stay() {
        let mut live = Live::default();
        live.put(Change { paused: Some(true), ..weight(4.0) }, Expiry::Never, false, NOW);
        assert!(!live.take_back(Change::part("rate").as_ref()));
        assert!(live.take_back(Change::part("paused").as_ref()));
        assert_eq!(live.change(), weight(4.0));
        assert!(live.take_back(None) && live.is_empty() && !live.take_back(None));
        // Every part has a name that gives it, and no other.
        for name in Change::PARTS {
            assert_eq!(Change::part(name).unwrap().given(), [*name]);
        }
        for name in UpstreamChange::PARTS {
            assert_eq!(UpstreamChange::part(name).unwrap().given(), [*name]);
        }
        assert_eq!(UpstreamChange::part("weight"), None);
    }

    #[test]
    fn the_form_before_is_still_read() {
        let old = r#"{"change":{"paused":true,"rate":[5,1000000]},"expires":7}"#;
        let live: Live = serde_json::from_str(old).unwrap();
        assert_eq!(live.ends().collect::<Vec<_>>(), [("paused", Some(7)), ("rate", Some(7))]);
        let text = serde_json::to_string(&live).unwrap();
        assert_eq!(text, format!("[{old}]"));
        assert_eq!(serde_json::from_str::<Live>(&text).unwrap(), live);
        assert!(serde_json::from_str::<Live<UpstreamChange>>("null").unwrap().is_empty());
    }
}
