//! What people ask of the running driver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::agreed;
use super::change::{Change, Expiry, InParts as _, Live, UpstreamChange};
use super::job::Job;
use super::newcomers::NewGroups;
use super::policy::FilePolicies;
use super::removal::{Removed, Target};
use super::replay::{Out, Replay, Tracker};
use super::run::{Driver, OVERDUE};
use super::sources::Hold;
use super::traced::traced;
use super::watch::LastAnswers;
use crate::deliver::Deliver;
use crate::engine::{
    BreakerState, DedicatedInfo, GroupView, Held, HungAttempts, Rate, Removal, SectionView, Settings, Slots, Sort,
    Survey,
};
use crate::event::{Group, Now, WaitSplit};

/// One wish; each answers over its own channel.
pub(super) enum Command {
    /// List active groups.
    Groups(Sort, usize, oneshot::Sender<Vec<GroupView>>),
    /// Show the backlog's ages in the metrics; the groups with most pending events, so many.
    ShowBacklog(usize, oneshot::Sender<Vec<GroupView>>),
    /// Everything that waits at one look, and what looking took; groups are late beyond this age.
    Survey(Duration, oneshot::Sender<(Survey, Duration)>),
    /// What waits, by section.
    Sections(oneshot::Sender<BTreeMap<u16, SectionView>>),
    /// One group.
    Group(Group, oneshot::Sender<GroupView>),
    /// Change one group, on what is queued too.
    Change(Group, Change, Expiry, oneshot::Sender<Result<(), String>>),
    /// Take such a change back, or only these parts of it; false when there is none.
    TakeBack(Group, Option<Change>, oneshot::Sender<bool>),
    /// The changes in force.
    Live(oneshot::Sender<Vec<(Group, Live)>>),
    /// End the attempts of a group that are in flight; how many.
    Cancel(Group, oneshot::Sender<usize>),
    /// Groups with attempts that are under way for this long.
    Hung(Duration, oneshot::Sender<Vec<HungAttempts>>),
    /// End events without delivering them.
    Remove(Vec<Target>, Removal, oneshot::Sender<Vec<Removed>>),
    /// Do this job, which is written down.
    Work(Job, oneshot::Sender<()>),
    /// What was waited for in the last minute.
    Waited(oneshot::Sender<WaitSplit>),
    /// Order keys of a group that are held, at most so many, and how many there are.
    Held(Group, usize, oneshot::Sender<(Vec<Held>, usize)>),
    /// The new groups of sources whose keys are not signed.
    NewGroups(oneshot::Sender<Vec<NewGroups>>),
    /// The upstream as a whole.
    Upstream(oneshot::Sender<UpstreamInfo>),
    /// Change it, on what is queued too.
    ChangeUpstream(UpstreamChange, Expiry, oneshot::Sender<Result<(), String>>),
    /// Take such a change back, or only these parts of it; false when there is none.
    TakeBackUpstream(Option<UpstreamChange>, oneshot::Sender<bool>),
    /// Close the breaker of this group, or the upstream's; false when nothing held it.
    CloseBreaker(Option<Group>, oneshot::Sender<bool>),
    /// Hold a source back, on what is queued too.
    HoldSource((Arc<str>, Hold), String, Expiry, oneshot::Sender<Result<(), String>>),
    /// Let it run again; false when it did.
    ResumeSource(Arc<str>, oneshot::Sender<bool>),
    /// Work on this replay from now on.
    Replay(Arc<Replay>, oneshot::Sender<()>),
    /// Go on with this replay from before, which has this under way.
    TakeUp(Arc<Replay>, Vec<Out>),
    /// Take back what a replay has in lanes.
    Withdraw(Arc<Tracker>, oneshot::Sender<()>),
    /// Another configuration.
    Reload(Box<Settings>, FilePolicies, Deliver, oneshot::Sender<()>),
}

/// The upstream as a whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpstreamInfo {
    /// Whether a person paused it.
    pub paused: bool,
    /// Attempts that may be in flight.
    pub concurrency: u32,
    /// Attempts a time.
    pub rate: Option<Rate>,
    /// Slots that replays may hold together.
    pub replay_slots: u32,
    /// What a person changed.
    pub live: Live<UpstreamChange>,
    /// How it answered most recently.
    pub last: LastAnswers,
    /// Its breaker.
    pub breaker: BreakerState,
    /// Who holds the slots.
    pub slots: Slots,
    /// Whether very many groups have turned slow at once.
    pub outbreak: bool,
    /// The median of late attempts.
    pub median: Option<Duration>,
    /// Worker time of all groups in the last minute: their shares are parts of it.
    pub worker: Duration,
    /// Groups with pending events.
    pub active_groups: usize,
    /// Dedicated slots.
    pub dedicated: DedicatedInfo,
}

/// Does what is asked. Whoever asked and went away misses the answer and nothing else.
pub(super) fn obey(driver: &mut Driver, command: Command, now: Now) {
    match command {
        Command::Groups(sort, limit, reply) => answer(reply, driver.engine.groups(sort, limit, now.mono)),
        Command::ShowBacklog(top, reply) => {
            driver.show_backlog(now);
            let groups = if top == 0 { Vec::new() } else { driver.engine.groups(Sort::Depth, top, now.mono) };
            answer(reply, groups);
        }
        Command::Survey(late, reply) => {
            let survey = driver.engine.survey(late, OVERDUE, now.mono);
            answer(reply, (survey, driver.shared.clock.now().mono.since(now.mono)));
        }
        Command::Sections(reply) => answer(reply, driver.engine.sections()),
        Command::Group(group, reply) => answer(reply, driver.engine.group(&group, now.mono)),
        Command::Change(group, change, expiry, reply) => {
            let changed = driver.policies.change(&group, change, expiry, now.wall);
            driver.engine.set_policy(&group, driver.policies.of(&group), now);
            driver.agree_on_group(&group, change.given());
            answer(reply, changed);
        }
        Command::TakeBack(group, only, reply) => {
            let parts = agreed::parts_of(&driver.policies.live_of(&group));
            let taken = driver.policies.take_back(&group, only.as_ref());
            driver.engine.set_policy(&group, driver.policies.of(&group), now);
            driver.agree_on_group(&group, parts);
            answer(reply, taken);
        }
        Command::Live(reply) => answer(reply, driver.policies.live()),
        Command::NewGroups(reply) => answer(reply, driver.admission.newcomers.all(now)),
        Command::Cancel(group, reply) => answer(reply, driver.engine.cancel(&group, now)),
        Command::Hung(older, reply) => answer(reply, driver.engine.hung_attempts(older, now.mono)),
        Command::Remove(targets, removal, reply) => {
            let nodes = driver.nodes.as_ref();
            let is_here = |seq| nodes.is_none_or(|nodes| nodes.has(seq));
            driver.delivery.removals.begin(targets, removal, reply, (&mut driver.engine, is_here), now);
        }
        Command::Work(job, reply) => {
            driver.begin(job);
            answer(reply, ());
        }
        Command::Waited(reply) => answer(reply, driver.engine.waited(now.mono)),
        Command::Held(group, limit, reply) => answer(reply, driver.engine.held(&group, limit, now.mono)),
        Command::Upstream(reply) => {
            let (engine, settings) = (&driver.engine, driver.upstream.settings());
            let info = UpstreamInfo {
                paused: driver.upstream.is_paused(),
                concurrency: settings.slots,
                rate: settings.rate,
                replay_slots: settings.replay_slots(),
                live: driver.upstream.live(),
                last: driver.delivery.watch.last().clone(),
                breaker: engine.breaker(),
                slots: engine.slots(),
                outbreak: engine.in_outbreak(),
                median: engine.median(),
                worker: engine.worker_time(now.mono),
                active_groups: engine.active_groups(),
                dedicated: engine.dedicated(now.mono),
            };
            answer(reply, info);
        }
        Command::ChangeUpstream(change, expiry, reply) => {
            let changed = driver.upstream.change(change, expiry, now.wall);
            driver.apply_upstream(now);
            driver.agree_on_upstream(change.given());
            answer(reply, changed);
        }
        Command::TakeBackUpstream(only, reply) => {
            let parts: Vec<_> = driver.upstream.live().ends().map(|(part, _)| part).collect();
            let taken = driver.upstream.take_back(only.as_ref());
            driver.apply_upstream(now);
            driver.agree_on_upstream(parts);
            answer(reply, taken);
        }
        Command::CloseBreaker(Some(group), reply) => answer(reply, driver.engine.close_group_breaker(&group, now)),
        Command::CloseBreaker(None, reply) => answer(reply, driver.engine.close_breaker(now)),
        Command::HoldSource(what, by, expiry, reply) => {
            let source = Arc::clone(&what.0);
            let held = driver.shared.held.hold(what, by, expiry, &mut driver.engine, now);
            driver.agree_on_source(&source);
            answer(reply, held);
        }
        Command::ResumeSource(source, reply) => {
            let resumed = driver.shared.held.resume(&source, &mut driver.engine, now);
            driver.agree_on_source(&source);
            answer(reply, resumed);
        }
        Command::Replay(job, reply) => {
            driver.work_on(job);
            answer(reply, ());
        }
        Command::TakeUp(job, out) => driver.take_up(job, &out),
        Command::Withdraw(tracker, reply) => {
            driver.withdraw(&tracker, now);
            answer(reply, ());
        }
        Command::Reload(settings, file, deliver, reply) => {
            driver.admission.newcomers.set_limit(file.new_groups);
            driver.policies.replace(file);
            driver.upstream.replace(*settings);
            driver.apply_upstream(now);
            driver.engine.set_policies(driver.policies.policies(), now);
            driver.delivery.replace(traced(deliver, Arc::clone(&driver.shared.spans)));
            answer(reply, ());
        }
    }
}

fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    if reply.send(value).is_err() {
        tracing::debug!("whoever asked the driver has gone");
    }
}
