//! How replays are remembered over a restart: one file, replaced as a whole before each batch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::tracker::Tally;
use crate::event::{EventId, Group, Seq, Wall};
use crate::store::Status;

/// Where a replay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It goes on.
    Running,
    /// A person paused it.
    Paused,
    /// A person ended it; what was delivered is delivered.
    Cancelled,
    /// Everything it was about has had its first attempt.
    Done,
}

impl Standing {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        }
    }

    /// Whether nothing more comes of it.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Cancelled | Self::Done)
    }
}

/// How far the list of a replay has been worked through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Everything up to here was taken, or is of a group in `parked`.
    pub(super) behind: u64,
    /// There is nothing more behind that.
    pub(super) through: bool,
    /// Groups that had enough under way when they were met, and up to where their events were taken.
    pub(super) parked: BTreeMap<Group, u64>,
}

/// A replay as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) number: u64,
    filter: NotedFilter,
    pub(super) created: u64,
    /// The highest seq that it is about: what is requeued gets a higher one and is not met again.
    pub(super) upto: u64,
    /// The same of further sections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    further: Vec<u64>,
    pub(super) planned: u64,
    pub(super) standing: Standing,
    pub(super) ended: Option<u64>,
    pub(super) tally: Tally,
    behind: u64,
    through: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parked: BTreeMap<String, u64>,
    /// Under way, and about to be: each an id and how it had ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    out: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct NotedFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    status: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider_event_id: Option<Box<str>>,
}

/// The highest seq of each section that a replay is about: sections are numbered by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Upto(pub(super) Vec<Seq>);

impl Upto {
    /// Whether it is about an event there.
    pub(super) fn has(&self, seq: Seq) -> bool {
        self.0.iter().any(|last| last.section() == seq.section() && seq <= *last)
    }
}

/// What of a replay never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) number: u64,
    pub(super) filter: Filter,
    pub(super) created: Wall,
    pub(super) upto: Upto,
    pub(super) planned: u64,
}

/// What of it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) standing: Standing,
    pub(super) ended: Option<Wall>,
    pub(super) place: Place,
    /// Events under way when it was last written down, with how they had ended before.
    pub(super) out: Vec<(EventId, Status)>,
    /// Those that were about to be requeued then.
    pub(super) next: Vec<(EventId, Status)>,
}

impl Noted {
    pub(super) fn of(terms: &Terms, course: &Course, tally: Tally) -> Self {
        let filter = &terms.filter;
        Self {
            number: terms.number,
            filter: NotedFilter {
                group: filter.group.as_ref().map(ToString::to_string),
                source: filter.source.as_ref().map(ToString::to_string),
                status: filter.status.iter().map(|status| status.as_str().to_owned()).collect(),
                since: filter.since.map(|at| at.0),
                until: filter.until.map(|at| at.0),
                provider_event_id: filter.provider_event_id.clone(),
            },
            created: terms.created.0,
            upto: terms.upto.0.first().map_or(0, |seq| seq.0),
            further: terms.upto.0.iter().skip(1).map(|seq| seq.0).collect(),
            planned: terms.planned,
            standing: course.standing,
            ended: course.ended.map(|at| at.0),
            tally,
            behind: course.place.behind,
            through: course.place.through,
            parked: course.place.parked.iter().map(|(group, at)| (group.to_string(), *at)).collect(),
            out: written(&course.out),
            next: written(&course.next),
        }
    }

    /// `None` where it is not as it was written.
    pub(super) fn read(self) -> Option<(Terms, Course, Tally)> {
        let filter = self.filter;
        let filter = Filter {
            group: filter.group.map(|text| Group::from_written(&text).ok_or(())).transpose().ok()?,
            source: filter.source.map(Into::into),
            status: filter.status.iter().map(|name| status(name)).collect::<Option<_>>()?,
            since: filter.since.map(Wall),
            until: filter.until.map(Wall),
            provider_event_id: filter.provider_event_id,
        };
        let parked = self.parked.iter().map(|(group, at)| Some((Group::from_written(group)?, *at)));
        let place = Place { behind: self.behind, through: self.through, parked: parked.collect::<Option<_>>()? };
        let (out, next) = (read(&self.out)?, read(&self.next)?);
        let terms = Terms {
            number: self.number,
            filter,
            created: Wall(self.created),
            upto: Upto(std::iter::once(self.upto).chain(self.further).map(Seq).collect()),
            planned: self.planned,
        };
        Some((terms, Course { standing: self.standing, ended: self.ended.map(Wall), place, out, next }, self.tally))
    }
}

fn status(name: &str) -> Option<Status> {
    Status::ALL.into_iter().find(|status| status.as_str() == name)
}

fn written(events: &[(EventId, Status)]) -> Vec<String> {
    events.iter().map(|(id, was)| format!("{id} {}", was.as_str())).collect()
}

fn read(events: &[String]) -> Option<Vec<(EventId, Status)>> {
    let one = |text: &String| {
        let (id, was) = text.split_once(' ')?;
        Some((id.parse().ok()?, status(was)?))
    };
    events.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let group = Group::of(&["a.myshopify.com"]);
        let terms = Terms {
            number: 7,
            filter: Filter { group: Some(group.clone()), since: Some(Wall(5)), ..Filter::default() },
            created: Wall(9),
            upto: Upto(vec![Seq(100), Seq((1 << Seq::SECTION_SHIFT) + 7)]),
            planned: 40,
        };
        let place = Place { behind: 12, through: false, parked: BTreeMap::from([(group, 10)]) };
        let course = Course {
            standing: Standing::Paused,
            ended: None,
            place,
            out: vec![(EventId::new(Wall(1), &[3; 10]), Status::Dead)],
            next: vec![(EventId::new(Wall(2), &[4; 10]), Status::Delivered)],
        };
        let tally = Tally { requeued: 3, delivered: 1, ..Tally::default() };
        let text = serde_json::to_string(&Noted::of(&terms, &course, tally)).unwrap();
        let noted: Noted = serde_json::from_str(&text).unwrap();
        assert_eq!(noted.read(), Some((terms, course, tally)));
    }
}
