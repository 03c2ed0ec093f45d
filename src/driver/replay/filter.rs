//! Which ended events a replay is about, and what one would be: a plan is a count, nothing is changed by it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::book::Upto;
use crate::driver::{Ended, Handle};
use crate::event::{Group, Seq, Wall};
use crate::store::{Error, LaneStore, Query, Record, Status};

/// Records of one read.
const PAGE: usize = 1_000;

/// A count takes so long at most; then the plan says that there are more.
const COUNT_MAX: Duration = Duration::from_secs(10);

/// Groups that a plan tells apart.
const GROUPS_MAX: usize = 100_000;

/// Which ended events. Every condition that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Only of this group (all its lanes).
    pub group: Option<Group>,
    /// Only of this source.
    #[serde(with = "crate::event::written::shared_or_none")]
    pub source: Option<Arc<str>>,
    /// Those that ended so: `dead`, `delivered`, `discarded`.
    pub status: Vec<Status>,
    /// Received at this time or later.
    pub since: Option<Wall>,
    /// Received before this time.
    pub until: Option<Wall>,
    /// Only with this id of the sender's.
    pub provider_event_id: Option<Box<str>>,
}

impl Default for Filter {
    /// All dead letters.
    fn default() -> Self {
        Self {
            group: None,
            source: None,
            status: vec![Status::Dead],
            since: None,
            until: None,
            provider_event_id: None,
        }
    }
}

impl Filter {
    /// The list of what it is about, oldest first, behind a place.
    pub(super) fn query(&self, behind: Seq, limit: usize) -> Query {
        Query {
            group: self.group.clone(),
            source: self.source.clone(),
            status: self.status.clone(),
            since: self.since,
            until: self.until,
            provider_event_id: self.provider_event_id.clone(),
            oldest_first: true,
            behind: Some(behind),
            limit,
        }
    }
}

/// What a replay would be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Events.
    pub count: u64,
    /// False when the count was given up: there are more.
    pub complete: bool,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Groups that they are of.
    pub groups: u64,
    /// The group with most of them.
    pub largest: Option<(Group, u64)>,
    /// Those of them that have an order key.
    pub ordered: u64,
    /// When the first and the last of them were received.
    pub span: Option<(Wall, Wall)>,
    /// How long it takes with the slots that replays may hold and attempts as long as they are now; `None` before the first attempt.
    pub expected: Option<Duration>,
}

impl Handle {
    /// What a replay of these would be, at the present rates.
    ///
    /// # Errors
    /// The store's, in words, or that the driver has ended.
    pub async fn plan_replay(&self, filter: &Filter) -> Result<Plan, String> {
        let began = self.now().mono;
        let mut sum = Sum::default();
        let in_time = || self.now().mono.since(began) < COUNT_MAX;
        let complete =
            count(&*self.shared.store, filter, None, &mut sum, in_time).await.map_err(|error| error.to_string())?;
        let mut plan = sum.plan(complete);
        plan.expected = self.expected(&plan).await.map_err(|error| error.to_string())?;
        Ok(plan)
    }

    /// How many there are up to a place, as far as they are counted in time.
    pub(super) async fn count_replay(&self, filter: &Filter, upto: &Upto) -> Result<u64, Error> {
        let began = self.now().mono;
        let mut sum = Sum::default();
        let in_time = || self.now().mono.since(began) < COUNT_MAX;
        count(&*self.shared.store, filter, Some(upto), &mut sum, in_time).await?;
        Ok(sum.count)
    }

    async fn expected(&self, plan: &Plan) -> Result<Option<Duration>, Ended> {
        let upstream = self.upstream().await?;
        let Some(median) = upstream.median else { return Ok(None) };
        let slots = upstream.replay_slots;
        let all = rounds(plan.count, slots, median);
        let Some((group, count)) = &plan.largest else { return Ok(Some(all)) };
        let cap = self.group(group.clone()).await?.concurrency;
        Ok(Some(all.max(rounds(*count, slots.min(cap), median))))
    }
}

/// So many attempts, so many at a time.
fn rounds(count: u64, slots: u32, each: Duration) -> Duration {
    let micros = u64::try_from(each.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(count.saturating_mul(micros) / u64::from(slots.max(1)))
}

#[derive(Default)]
struct Sum {
    count: u64,
    ordered: u64,
    bytes: u64,
    groups: HashMap<Group, u64>,
    span: Option<(Wall, Wall)>,
}

impl Sum {
    fn add(&mut self, record: &Record) {
        self.count += 1;
        self.ordered += u64::from(record.order.is_some());
        self.bytes += u64::from(record.body_bytes);
        let at = record.received;
        self.span = Some(self.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        if let Some(count) = self.groups.get_mut(&record.home().group) {
            *count += 1;
        } else if self.groups.len() < GROUPS_MAX {
            self.groups.insert(record.home().group.clone(), 1);
        }
    }

    fn plan(self, complete: bool) -> Plan {
        let largest = self.groups.iter().max_by(|one, other| one.1.cmp(other.1).then_with(|| other.0.cmp(one.0)));
        Plan {
            count: self.count,
            complete,
            bytes: self.bytes,
            groups: self.groups.len() as u64,
            largest: largest.map(|(group, count)| (group.clone(), *count)),
            ordered: self.ordered,
            span: self.span,
            expected: None,
        }
    }
}

/// Looks at all of them up to a place. False when it was given up.
async fn count(
    store: &dyn LaneStore,
    filter: &Filter,
    upto: Option<&Upto>,
    sum: &mut Sum,
    in_time: impl Fn() -> bool,
) -> Result<bool, Error> {
    let mut behind = Seq(0);
    loop {
        let page = store.list(filter.query(behind, PAGE)).await?;
        let before = page.records.iter().filter(|record| upto.is_none_or(|upto| upto.has(record.seq)));
        let counted = before.inspect(|record| sum.add(record)).count();
        match page.next {
            None => return Ok(true),
            // What comes later in the order of commits is younger.
            Some(_) if counted == 0 && !page.records.is_empty() => return Ok(true),
            Some(_) if !in_time() => return Ok(false),
            Some(next) => behind = next,
        }
    }
}
