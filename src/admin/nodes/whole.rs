//! All nodes as one: what each of them says, put together, and which of them said nothing.
//!
//! Nodes are asked at the same time, each for a limited one. Whoever does not answer is named, with the reason, and so are shards that
//! no node owns: a page shows less, but never in silence. A node that is alone is a whole of one.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::report::{Report, SourceReport, Wanted};
use super::{REPORT, ask as ask_node};
use crate::admin::Admin;
use crate::admin::problem::Problem;
use crate::driver::{
    AddressView, Alert, BreakerState, GroupView, HungAttempts, Job, NodeView, Rejection, Relay, ReplayView, Seat,
    Slots, Sort, SpoolUsage, UpstreamInfo,
};
use crate::event::{Group, Mono, WaitSplit, Wall};

/// A node says what it has in memory at once. A page that waited longer for one that hangs would be of no use.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who has not said for this long that it lives is not asked: four times a second is how often nodes do.
const SILENT: Duration = Duration::from_secs(2);

/// What is not in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MissingNode)]
pub(in crate::admin) struct Missing {
    /// A node; null: it is about shards that no node owns.
    pub(in crate::admin) node: Option<String>,
    pub(in crate::admin) why: String,
}

impl Missing {
    /// For people.
    pub(in crate::admin) fn in_words(&self) -> String {
        match &self.node {
            Some(node) => format!("{node} is not in this: {}", self.why),
            None => self.why.clone(),
        }
    }
}

/// What all nodes say.
pub(in crate::admin) struct Whole {
    /// This node first.
    reports: Vec<Report>,
    pub(in crate::admin) missing: Vec<Missing>,
}

/// Asks all nodes.
///
/// # Errors
/// This node's own driver has ended.
pub(in crate::admin) async fn ask(admin: &Admin, wanted: Wanted) -> Result<Whole, Problem> {
    let own = Report::own(admin, &wanted);
    let Some((seat, relay)) = admin.others.get() else {
        return Ok(Whole { reports: vec![own.await?], missing: Vec::new() });
    };
    let nodes = seat.nodes();
    let body = Bytes::from(serde_json::to_vec(&wanted).map_err(|error| Problem::Store(error.to_string()))?);
    let others = nodes.iter().filter(|node| node.about.node != seat.node().as_str());
    let asked = others.map(|node| report_of(admin, relay, node, body.clone()));
    let (own, theirs) = tokio::join!(own, join_all(asked));
    let (mut reports, mut missing) = (vec![own?], unowned(seat, &nodes));
    for answer in theirs {
        match answer {
            Ok(report) => reports.push(report),
            Err(one) => missing.push(one),
        }
    }
    Ok(Whole { reports, missing })
}

async fn report_of(admin: &Admin, relay: &Relay, node: &NodeView, body: Bytes) -> Result<Report, Missing> {
    let missing = |why| Missing { node: Some(node.about.node.clone()), why };
    if node.silent > SILENT {
        return Err(missing(format!("it has not said that it lives for {} s", node.silent.as_secs())));
    }
    let asking = ask_node(admin, relay, node, None, Method::POST, REPORT, body);
    let answer = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer.map_err(missing)?,
        Err(_elapsed) => return Err(missing(format!("no answer within {} s", PATIENCE.as_secs()))),
    };
    if !answer.status().is_success() {
        return Err(missing(format!("it answered {}", answer.status().as_u16())));
    }
    let unreadable = |error| missing(format!("its answer cannot be read; is it of another version? ({error})"));
    serde_json::from_slice(answer.body()).map_err(unreadable)
}

fn unowned(seat: &Seat, nodes: &[NodeView]) -> Vec<Missing> {
    let all = usize::from(seat.shards());
    let owned: usize = nodes.iter().map(|node| node.held.len()).sum();
    let unowned = all.saturating_sub(owned);
    let why = format!("{unowned} of {all} shards have no owner now: what waits there is not in this");
    (unowned > 0).then_some(Missing { node: None, why }).into_iter().collect()
}

/// One group, as the node that owns it says.
///
/// # Errors
/// That node does not answer.
pub(in crate::admin) async fn of_group(admin: &Admin, group: &Group, wanted: Wanted) -> Result<Report, Problem> {
    let wanted = Wanted { group: Some(group.clone()), ..wanted };
    let owner = super::owner_elsewhere(admin, group);
    let (Some(owner), Some((_, relay))) = (owner, admin.others.get()) else {
        return Report::own(admin, &wanted).await;
    };
    let body = serde_json::to_vec(&wanted).map_err(|error| Problem::Store(error.to_string()))?;
    let answer = report_of(admin, relay, &owner, body.into()).await;
    answer.map_err(|missing| Problem::Store(super::unasked(&owner, &missing.why)))
}

/// What lists of events do not have: they are in Redis, which every node reads, but for those that wait in other nodes' spools.
///
/// # Errors
/// This node's own driver has ended.
pub(in crate::admin) async fn spooled_elsewhere(admin: &Admin) -> Result<Vec<Missing>, Problem> {
    if admin.others.get().is_none() {
        return Ok(Vec::new());
    }
    let whole = ask(admin, Wanted::default()).await?;
    let silent = whole.missing.into_iter().filter(|missing| missing.node.is_some());
    let silent =
        silent.map(|missing| Missing { why: format!("its spool, where it has one: {}", missing.why), ..missing });
    let spooled = whole.reports.iter().skip(1).filter_map(|report| {
        let events = report.stands.spool.map_or(0, |spool| spool.events);
        let why = format!("{events} events in its spool, which wait for Redis: ask it");
        (events > 0).then(|| Missing { node: Some(report.node.clone()), why })
    });
    Ok(silent.chain(spooled).collect())
}

/// A node's part of something.
pub(in crate::admin) struct Of<T> {
    /// Its name; empty where there is one node.
    pub(in crate::admin) node: String,
    pub(in crate::admin) it: T,
}

impl Whole {
    /// Every node that answered, this one first.
    pub(in crate::admin) fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// For people: what is not in this.
    pub(in crate::admin) fn missing_words(&self) -> Vec<String> {
        self.missing.iter().map(Missing::in_words).collect()
    }

    /// What each node lists, in the order of nodes.
    pub(in crate::admin) fn each<'w, T: Clone + 'w>(
        &'w self,
        list: impl Fn(&'w Report) -> &'w [T] + 'w,
    ) -> impl Iterator<Item = Of<T>> + 'w {
        self.reports
            .iter()
            .flat_map(move |report| list(report).iter().map(|it| Of { node: report.node.clone(), it: it.clone() }))
    }

    /// The `at`th list of groups that was wanted, `limit` of them.
    pub(in crate::admin) fn groups(&self, at: usize, sort: Sort, limit: usize) -> Vec<GroupView> {
        let worker = |report: &Report| report.upstream.as_ref().map_or(Duration::ZERO, |info| info.worker);
        let all: Duration = self.reports.iter().map(worker).sum();
        let mut groups: BTreeMap<Group, GroupView> = BTreeMap::new();
        for report in &self.reports {
            let part = if all.is_zero() { 0.0 } else { worker(report).as_secs_f64() / all.as_secs_f64() };
            for view in report.groups.get(at).into_iter().flatten() {
                let view = GroupView { share: view.share * part, ..view.clone() };
                match groups.remove(&view.group) {
                    None => drop(groups.insert(view.group.clone(), view)),
                    Some(known) => drop(groups.insert(view.group.clone(), together(known, view))),
                }
            }
        }
        let mut groups: Vec<GroupView> = groups.into_values().collect();
        let key = |view: &GroupView| match sort {
            Sort::Age => view.oldest.as_secs_f64(),
            #[expect(clippy::cast_precision_loss, reason = "compared, and equal ones by name")]
            Sort::Depth => pending(view) as f64,
            Sort::Seconds => view.share,
            Sort::Rate => view.arrival_rate,
        };
        // Stable, and they come by name.
        groups.sort_by(|one, other| key(other).total_cmp(&key(one)));
        groups.truncate(limit);
        groups
    }

    /// The upstream as all nodes together see it. What people set is the same on all of them.
    pub(in crate::admin) fn upstream(&self) -> Option<UpstreamInfo> {
        let here = self.reports.first()?.now;
        let mut infos =
            self.reports.iter().filter_map(|report| Some(seen_from(report.upstream.clone()?, report.now, here)));
        let first = infos.next()?;
        let mut medians: Vec<Duration> = first.median.into_iter().collect();
        let mut sum = infos.fold(first, |mut sum, info| {
            medians.extend(info.median);
            sum.last.success = sum.last.success.max(info.last.success);
            let at = |last: &crate::driver::LastAnswers| last.failure.as_ref().map(|failure| failure.at);
            if at(&info.last) > at(&sum.last) {
                sum.last.failure = info.last.failure;
            }
            if severity(info.breaker) > severity(sum.breaker) {
                sum.breaker = info.breaker;
            }
            sum.slots = added(sum.slots, info.slots);
            sum.outbreak |= info.outbreak;
            sum.active_groups += info.active_groups;
            sum.worker += info.worker;
            sum
        });
        medians.sort_unstable();
        sum.median = medians.get(medians.len() / 2).copied();
        Some(sum)
    }

    /// The upstream as each of several nodes sees it.
    pub(in crate::admin) fn upstreams(&self) -> Vec<Of<UpstreamInfo>> {
        let here = self.reports.first().map_or(Mono(0), |report| report.now);
        let named = self.reports.iter().filter(|report| !report.node.is_empty());
        let of = |report: &Report| {
            let it = seen_from(report.upstream.clone()?, report.now, here);
            Some(Of { node: report.node.clone(), it })
        };
        named.filter_map(of).collect()
    }

    /// Each address of the upstream as the node sees it that sees it worst; attempts under way are those of all.
    pub(in crate::admin) fn addresses(&self) -> Vec<AddressView> {
        let mut sum: Vec<AddressView> = Vec::new();
        for view in self.reports.iter().flat_map(|report| &report.addresses) {
            let Some(known) = sum.iter_mut().find(|known| known.address == view.address) else {
                sum.push(view.clone());
                continue;
            };
            let in_flight = known.in_flight + view.in_flight;
            let at = |view: &AddressView| view.last_failure.as_ref().map(|(at, _)| *at);
            let last_failure = if at(view) > at(known) { &view.last_failure } else { &known.last_failure }.clone();
            if view.share < known.share {
                *known = view.clone();
            }
            (known.in_flight, known.last_failure) = (in_flight, last_failure);
        }
        sum
    }

    /// Groups with attempts under way for long, those that hold longest first.
    pub(in crate::admin) fn hung(&self) -> Vec<HungAttempts> {
        let mut groups: BTreeMap<&Group, HungAttempts> = BTreeMap::new();
        for hung in self.reports.iter().flat_map(|report| &report.hung) {
            let sum = groups.entry(&hung.group).or_insert_with(|| HungAttempts { attempts: 0, ..hung.clone() });
            sum.attempts += hung.attempts;
            sum.oldest = sum.oldest.max(hung.oldest);
        }
        let mut hung: Vec<HungAttempts> = groups.into_values().collect();
        hung.sort_by_key(|hung| std::cmp::Reverse(hung.oldest));
        hung
    }

    /// What was waited for; none where no node said in time.
    pub(in crate::admin) fn waited(&self) -> Option<WaitSplit> {
        let waits: Vec<&WaitSplit> = self.reports.iter().filter_map(|report| report.waited.as_ref()).collect();
        let mut sum = WaitSplit::default();
        waits.iter().flat_map(|split| split.iter()).for_each(|(reason, span)| sum.add(reason, span));
        (!waits.is_empty()).then_some(sum)
    }

    /// What came through a source on all nodes.
    pub(in crate::admin) fn source(&self, name: &str) -> SourceReport {
        let mut reports =
            self.reports.iter().filter_map(|report| report.sources.iter().find(|source| source.name == name));
        let first = reports.next().cloned().unwrap_or_default();
        reports.fold(first, |mut sum, report| {
            sum.backlog = sum.backlog.zip(report.backlog).map(|(one, other)| one + other);
            sum.accepted += report.accepted;
            sum.delivered += report.delivered;
            sum.dead += report.dead;
            sum.suppressed += report.suppressed;
            for (reason, count) in &report.fallback {
                match sum.fallback.iter_mut().find(|(known, _)| known == reason) {
                    Some((_, known)) => *known += count,
                    None => sum.fallback.push((reason.clone(), *count)),
                }
            }
            sum.matches.iter_mut().zip(&report.matches).for_each(|(sum, count)| *sum += count);
            if report.skew_s.abs() > sum.skew_s.abs() {
                sum.skew_s = report.skew_s;
            }
            sum.new_groups = sum.new_groups.into_iter().chain(report.new_groups).reduce(|one, other| one + other);
            sum
        })
    }

    /// Alerts of all nodes that fire, pages first, then the latest first.
    pub(in crate::admin) fn firing(&self) -> Vec<Of<Alert>> {
        let mut firing: Vec<Of<Alert>> = self.each(|report| &report.firing).collect();
        firing.sort_by_key(|alert| (std::cmp::Reverse(alert.it.severity), std::cmp::Reverse(alert.it.fired)));
        firing
    }

    /// Those that resolved of late, the latest first.
    pub(in crate::admin) fn resolved(&self) -> Vec<Of<Alert>> {
        let mut resolved: Vec<Of<Alert>> = self.each(|report| &report.resolved).collect();
        resolved.sort_by_key(|alert| std::cmp::Reverse(alert.it.resolved));
        resolved
    }

    /// Replays, the newest first.
    pub(in crate::admin) fn replays(&self) -> Vec<Of<ReplayView>> {
        let mut replays: Vec<Of<ReplayView>> = self.each(|report| &report.replays).collect();
        replays.sort_by_key(|replay| std::cmp::Reverse((replay.it.created, replay.it.number)));
        replays
    }

    /// Jobs, the newest first.
    pub(in crate::admin) fn jobs(&self) -> Vec<Of<Job>> {
        let mut jobs: Vec<Of<Job>> = self.each(|report| &report.jobs).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse((job.it.began, job.it.id)));
        jobs
    }

    /// Requests that were refused, the newest first, `limit` of them.
    pub(in crate::admin) fn rejections(&self, limit: usize) -> Vec<Of<Rejection>> {
        let mut all: Vec<Of<Rejection>> = self.each(|report| &report.rejections).collect();
        all.sort_by_key(|rejection| std::cmp::Reverse(rejection.it.at));
        all.truncate(limit);
        all
    }

    /// Pending events, and lanes that have some.
    pub(in crate::admin) fn backlog(&self) -> (u64, u64) {
        self.reports
            .iter()
            .fold((0, 0), |(events, lanes), report| (events + report.stands.pending, lanes + report.stands.lanes))
    }

    /// When the oldest pending event was received.
    pub(in crate::admin) fn oldest(&self) -> Option<Wall> {
        self.reports.iter().filter_map(|report| report.stands.oldest).min()
    }

    /// What waits in all spools; none where there is no spool.
    pub(in crate::admin) fn spool(&self) -> Option<SpoolUsage> {
        let spools = self.reports.iter().filter_map(|report| report.stands.spool);
        spools.reduce(|one, other| SpoolUsage {
            events: one.events + other.events,
            bytes: one.bytes + other.bytes,
            room_bytes: one.room_bytes + other.room_bytes,
            oldest: one.oldest.into_iter().chain(other.oldest).min(),
        })
    }

    /// For how long the store has not answered the node that it has not answered for longest; none where the store is here.
    pub(in crate::admin) fn silent(&self) -> Option<Duration> {
        self.reports.iter().filter_map(|report| report.stands.silent).max()
    }
}

/// Events of a group that wait, or are under way.
fn pending(view: &GroupView) -> u64 {
    view.queued + view.retrying + u64::from(view.in_flight)
}

/// One group on two nodes: its events are its owner's, live requests are where they came in.
fn together(one: GroupView, other: GroupView) -> GroupView {
    let (main, more) = if pending(&other) > pending(&one) { (other, one) } else { (one, other) };
    GroupView {
        queued: main.queued + more.queued,
        retrying: main.retrying + more.retrying,
        live: main.live + more.live,
        in_flight: main.in_flight + more.in_flight,
        oldest: main.oldest.max(more.oldest),
        worker_time: main.worker_time + more.worker_time,
        share: main.share + more.share,
        arrival_rate: main.arrival_rate + more.arrival_rate,
        drain_rate: main.drain_rate + more.drain_rate,
        wait_p99: main.wait_p99.max(more.wait_p99),
        accepted: main.accepted + more.accepted,
        delivered: main.delivered + more.delivered,
        dead: main.dead + more.dead,
        ..main
    }
}

/// What another node says by its own clock, by ours.
fn seen_from(info: UpstreamInfo, its_now: Mono, here: Mono) -> UpstreamInfo {
    let breaker = match info.breaker {
        BreakerState::Open { until } => BreakerState::Open { until: here.plus(until.since(its_now)) },
        other => other,
    };
    UpstreamInfo { breaker, ..info }
}

/// How bad a breaker's position is; of two that are open the one that opens later again.
fn severity(breaker: BreakerState) -> (u8, Mono) {
    match breaker {
        BreakerState::Closed => (0, Mono(0)),
        BreakerState::SlowStart { .. } => (1, Mono(0)),
        BreakerState::HalfOpen => (2, Mono(0)),
        BreakerState::Open { until } => (3, until),
    }
}

fn added(one: Slots, other: Slots) -> Slots {
    Slots {
        busy: one.busy + other.busy,
        slow: one.slow + other.slow,
        retry: one.retry + other.retry,
        replay: one.replay + other.replay,
        free: one.free + other.free,
        dedicated: one.dedicated + other.dedicated,
    }
}
