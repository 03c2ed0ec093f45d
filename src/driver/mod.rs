//! Joining decisions to effects: the one task that owns the delivery path, and the handle that all others hold.
//!
//! [`run::Driver`] is the loop. Everybody else speaks to it through a [`Handle`]: bounded channels in, answers out. No
//! lock guards a decision; what the handle shares besides the channel are counters and read-only lists.

mod admission;
mod agreed;
pub mod alerts;
mod append;
mod backlog;
pub mod budget;
pub mod change;
mod command;
mod commits;
mod dedicated;
mod delivery;
pub mod elsewhere;
mod followed;
mod handover;
pub mod job;
pub mod live;
mod newcomers;
mod nodes;
mod nodes_turn;
mod outcome;
pub mod policy;
mod recover;
pub mod rejections;
mod release;
pub mod removal;
pub mod replay;
mod requeue;
mod run;
mod sources;
#[cfg(test)]
mod tests;
mod traced;
mod upstream;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderName;
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::cluster::News;
pub use crate::cluster::{Pin, Seat, ShardStanding, board::NodeView};
pub use crate::deliver::{AddressState, AddressView, Relay};
use crate::deliver::{Addresses, Deliver};
use crate::engine::{Admitted, Engine, Excess, Over, Settings};
pub use crate::engine::{
    BreakerState, DedicatedInfo, DedicatedView, Dedication, GroupView, Held, HungAttempts, Policy, Rate, Removal,
    SectionView, Slots, Sort, Survey,
};
use crate::event::{Event, EventId, Group, Mono, Now, Seq, WaitSplit, Wall};
use crate::metrics::Metrics;
use crate::spans::Recorder;
pub use crate::store::notebook::Notebook;
pub use crate::store::redis::Shard;
pub use crate::store::spool::is_spooled;
pub use crate::store::{AttemptNote, Error, Page, Query, Record, SpoolUsage, Status, Story, Usage};
use crate::store::{LaneStore, Refusal};

pub use alerts::{Alert, Alerts, Tested};
use backlog::Backlogs;
pub use budget::{Budget, Charge, Crowded};
pub use change::{Change, Dated, Expiry, InParts, Live, UpstreamChange};
use command::Command;
pub use command::UpstreamInfo;
use commits::Commits;
use dedicated::Promoted;
use elsewhere::Others;
pub use elsewhere::RemoveThere;
use job::Jobs;
pub use job::{Action, Job, JobRefusal, JobState};
pub use live::{Answered, Unanswered};
pub use newcomers::NewGroups;
use newcomers::Newcomers;
use nodes::Nodes;
pub use policy::FilePolicies;
use policy::PolicyTable;
pub use rejections::{Rejection, Rejections};
use release::Release;
pub use release::Unreleased;
pub use removal::{Removed, Target};
use replay::Replays;
pub use replay::{Filter, NoReplay, Plan, ReplayView, Standing};
pub use requeue::{NotReplayed, Replayed};
pub use run::Driver;
use sources::SourceTable;
pub use sources::{Hold, SourceHold};
use upstream::UpstreamTable;
pub use watch::{Failure, LastAnswers};

/// Submissions that may wait for the driver. More than the connections that may be open by default, so that on HTTP/1.1
/// the connection limit is met first.
const WAITING_MAX: usize = 16_384;

/// Live requests that may wait for the driver to take them up, which takes one turn of its loop; the queues are the engine's. Theirs is a
/// channel of its own, for submissions wait in the other one while the disk is slow.
const CALLS_MAX: usize = 1_024;

/// When a sender may try again whose group's backlog was found full by the store: the pace of that group is known to the node that
/// delivers for it, which need not be this one.
const BACKLOG_AGAIN: Duration = Duration::from_secs(5);

/// The driver made no turn for this long: something holds it, and `/healthz` says so.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// A verified event on its way into the store, and who waits for the answer.
struct Submission {
    event: Arc<Event>,
    reply: oneshot::Sender<Result<Stored, Shed>>,
    /// That its group had room for it.
    admitted: Admitted,
    /// Given back when the event is stored or refused, not when its sender stops waiting.
    _charge: Charge,
}

/// An event that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place.
    pub seq: Seq,
    /// The event that it repeats, for which it was stored as suppressed.
    pub duplicate_of: Option<EventId>,
}

enum Fact {
    Submitted(Submission),
    Requeue(requeue::Requeue),
    Release(Release),
    Command(Box<Command>),
    Step(handover::Step),
    Stop,
}

/// A genuine event that was not stored, and why. Sending it again is safe: nothing was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shed {
    /// No room for new events of anybody.
    #[error("there is no room for new events")]
    Full,
    /// This group holds too much of the little room left.
    #[error("this group holds too much of the room that is left")]
    GroupTooLarge,
    /// As many events of this group wait as may; there is room again after so long at its present pace.
    #[error("as many events of this group wait as may (groups: backlog)")]
    Backlog(Duration),
    /// This group sends more than the slots of its own can take; the same.
    #[error("this group sends more than its own slots can take (groups.shed)")]
    Outgrown(Duration),
    /// More wait than we can store in time.
    #[error("too many requests are waiting")]
    Busy,
    /// The store takes no writes.
    #[error("the store is unavailable")]
    Unavailable,
    /// The store does not answer, and the spool of this node has no room.
    #[error("the store does not answer, and this node's spool is full (store.redis.spool_max_bytes, or its disk)")]
    SpoolFull,
    /// This node is ending.
    #[error("this node is ending")]
    Draining,
    /// A person lets this source run dry.
    #[error("this source takes no requests for now")]
    SourceDraining,
    /// A person paused this source, and nothing of a request that waits for its answer can be kept.
    #[error("this source is paused")]
    SourcePaused,
    /// The store did not say in time, or failed before it could, whether it has the event; it may have been stored all the same.
    #[error("the store did not say in time whether it has it")]
    TooSlow,
}

impl Shed {
    /// The name of every reason.
    pub const NAMES: [&'static str; 11] = [
        "full",
        "group_too_large",
        "backlog",
        "outgrown",
        "busy",
        "unavailable",
        "spool_full",
        "draining",
        "source_draining",
        "source_paused",
        "too_slow",
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::GroupTooLarge => "group_too_large",
            Self::Backlog(_) => "backlog",
            Self::Outgrown(_) => "outgrown",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::SpoolFull => "spool_full",
            Self::Draining => "draining",
            Self::SourceDraining => "source_draining",
            Self::SourcePaused => "source_paused",
            Self::TooSlow => "too_slow",
        }
    }
}

impl From<Excess> for Shed {
    fn from(excess: Excess) -> Self {
        match excess.over {
            Over::Backlog => Self::Backlog(excess.again),
            Over::Outgrown => Self::Outgrown(excess.again),
        }
    }
}

impl From<Refusal> for Shed {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full => Self::Full,
            Refusal::GroupTooLarge => Self::GroupTooLarge,
            Refusal::Backlog => Self::Backlog(BACKLOG_AGAIN),
            Refusal::Unavailable | Refusal::Moving => Self::Unavailable,
            Refusal::SpoolFull => Self::SpoolFull,
            Refusal::Unknown => Self::TooSlow,
        }
    }
}

/// A source as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// Its name.
    pub name: Arc<str>,
    /// The paths it takes.
    pub path: String,
    /// The methods it takes.
    pub methods: Vec<String>,
    /// Its verifier's name.
    pub verify: String,
    /// Its key rule, as written.
    pub key: Option<String>,
    /// Whether the signature covers every place that the rule reads.
    pub key_signed: bool,
    /// When each of its secrets ends, in the order in which metrics count them.
    pub secrets: Vec<Option<Wall>>,
    /// Headers in which its senders' secrets stand: no page shows them.
    pub secret_headers: Vec<HeaderName>,
}

impl SourceInfo {
    /// One of which nothing is known but its name.
    fn gone(name: Arc<str>) -> Self {
        let (path, verify) = (String::new(), String::new());
        Self {
            name,
            path,
            methods: Vec::new(),
            verify,
            key: None,
            key_signed: false,
            secrets: Vec::new(),
            secret_headers: Vec::new(),
        }
    }

    /// Whether it is served no more: no path leads to it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.path.is_empty()
    }
}

struct Shared {
    store: Arc<dyn LaneStore>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// The driver's last turn, [`Mono`] microseconds.
    beat: AtomicU64,
    commits: Commits,
    draining: AtomicBool,
    sources: RwLock<Arc<[SourceInfo]>>,
    addresses: RwLock<Option<Addresses>>,
    held: Arc<SourceTable>,
    /// Where changes of groups, of the upstream and of sources are remembered.
    notebooks: [Notebook; 3],
    backlogs: Arc<Backlogs>,
    rejections: Rejections,
    replays: Arc<Replays>,
    jobs: Jobs,
    others: OnceLock<Others>,
    alerts: Alerts,
    /// A group to ask the store about when none is known yet; kept, for it is asked with every request.
    anybody: Group,
    started: Now,
    spans: Arc<Recorder>,
}

/// What every other part holds of the driver.
#[derive(Clone)]
pub struct Handle {
    facts: mpsc::Sender<Fact>,
    calls: mpsc::Sender<live::Call>,
    shared: Arc<Shared>,
}

/// What a driver is made of.
pub struct Parts {
    /// Where events are.
    pub store: Arc<dyn LaneStore>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// What everybody counts in.
    pub metrics: Arc<Metrics>,
    /// How an attempt is made.
    pub deliver: Deliver,
    /// The engine's numbers.
    pub settings: Settings,
    /// How groups are treated, by the file.
    pub policies: FilePolicies,
    /// Where a person's changes of groups are remembered; those of the upstream go beside it.
    pub notebook: Notebook,
    /// The engine's only randomness.
    pub seed: u64,
    /// This node's seat among others, and what it is told; `None`: it is alone.
    pub cluster: Option<(Arc<Seat>, mpsc::Receiver<News>)>,
}

/// A driver and the handle to it. The caller lets it recover and runs it.
///
/// # Errors
/// What was remembered of a person's changes cannot be read, in words.
pub fn new(parts: Parts) -> Result<(Driver, Handle), String> {
    let (facts, receiver) = mpsc::channel(WAITING_MAX);
    let (calls, called) = mpsc::channel(CALLS_MAX);
    let started = parts.clock.now();
    let (on_upstream, on_sources) = (parts.notebook.beside("upstream.json"), parts.notebook.beside("sources.json"));
    let replays = Replays::open(parts.notebook.beside("replays.json"), started.mono)?;
    let jobs = Jobs::open(parts.notebook.beside("jobs.json"))?;
    let spans = Arc::new(Recorder::new(Arc::clone(&parts.clock), parts.metrics.spans_dropped.clone()));
    let (promoted, groups) = Promoted::open(parts.notebook.beside("dedicated.json"))?;
    let known = parts.notebook.beside("known-groups");
    let newcomers =
        Newcomers::open(parts.policies.new_groups, known, Arc::clone(&parts.metrics), parts.seed, started.wall);
    let alerts = Alerts::open(parts.notebook.beside("alerts.json"), started);
    let notebooks = [parts.notebook.clone(), on_upstream.clone(), on_sources.clone()];
    let upstream = UpstreamTable::open(parts.settings, on_upstream)?;
    let held = Arc::new(SourceTable::open(on_sources)?);
    let policies = PolicyTable::open(parts.policies, parts.notebook)?;
    let nodes = parts.cluster.map(|cluster| Nodes::new(cluster, Arc::clone(&parts.store), Arc::clone(&policies)));
    let settings = upstream.settings();
    let settings = match &nodes {
        Some(nodes) => nodes.own(settings),
        None => settings,
    };
    let mut engine = Engine::new(settings, policies.policies(), parts.seed);
    engine.set_upstream_paused(upstream.is_paused());
    engine.restore_promoted(groups, started);
    let shared = Arc::new(Shared {
        store: parts.store,
        clock: parts.clock,
        metrics: parts.metrics,
        beat: AtomicU64::new(started.mono.0),
        commits: Commits::default(),
        draining: AtomicBool::new(false),
        sources: RwLock::new(Arc::from([])),
        addresses: RwLock::new(None),
        held,
        notebooks,
        backlogs: Arc::default(),
        rejections: Rejections::default(),
        replays,
        jobs,
        others: OnceLock::new(),
        alerts,
        anybody: Group::fallback(),
        started,
        spans,
    });
    let channels = (receiver, called, facts.downgrade());
    let tables = (policies, upstream, promoted, newcomers);
    let driver = Driver::new(channels, Arc::clone(&shared), engine, tables, parts.deliver, nodes);
    Ok((driver, Handle { facts, calls, shared }))
}

/// What of all that is remembered beside `notebook` cannot be read, each in words, without taking any of it up: another process may have it
/// in use. A start depends on these.
#[must_use]
pub fn unreadable(settings: Settings, policies: FilePolicies, notebook: &Notebook) -> Vec<String> {
    let read = [
        UpstreamTable::open(settings, notebook.beside("upstream.json")).err(),
        Replays::open(notebook.beside("replays.json"), Mono(0)).err(),
        Jobs::open(notebook.beside("jobs.json")).err(),
        Promoted::open(notebook.beside("dedicated.json")).err(),
        SourceTable::open(notebook.beside("sources.json")).err(),
        PolicyTable::open(policies, notebook.clone()).err(),
    ];
    read.into_iter().flatten().collect()
}

/// The driver has ended, so there is nobody to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver has ended")]
pub struct Ended;

impl Handle {
    /// What of a person's changes would come back with a restart, since its end could not be written down yet, in words.
    #[must_use]
    pub fn unwritten(&self) -> Option<String> {
        let why = self.shared.notebooks.iter().find_map(Notebook::is_behind)?;
        Some(format!(
            "what was taken back holds, but is not written down: a restart brings it back until it is. {why}; it is tried again every second"
        ))
    }

    /// Whether a person lets this source take requests; `live`: one that waits for the upstream's answer, of which nothing is kept.
    ///
    /// # Errors
    /// Why not; the sender gets it as its answer.
    pub fn takes(&self, source: &str, live: bool) -> Result<(), Shed> {
        match self.shared.held.of(source).map(|hold| hold.held) {
            Some(Hold::Draining) => Err(Shed::SourceDraining),
            Some(Hold::Paused) if live => Err(Shed::SourcePaused),
            _ => Ok(()),
        }
    }

    /// Whether a live request could be taken now, asked before its body is read. It needs no room in the store.
    ///
    /// # Errors
    /// Why not; the sender gets it as its answer.
    pub fn ready_live(&self) -> Result<(), Shed> {
        if self.calls.is_closed() { Err(Shed::Draining) } else { Ok(()) }
    }

    /// Whether an event could be taken now, asked before a body is read.
    ///
    /// # Errors
    /// Why not; the sender gets it as its answer.
    pub fn ready(&self) -> Result<(), Shed> {
        if self.facts.is_closed() {
            return Err(Shed::Draining);
        }
        if self.facts.capacity() == 0 {
            return Err(Shed::Busy);
        }
        if self.shared.commits.are_late(self.last_turn()) {
            return Err(Shed::Unavailable);
        }
        match self.shared.store.admits(&self.shared.anybody) {
            // That one is too large says nothing about the others; each is asked about when its event comes.
            Ok(()) | Err(Refusal::GroupTooLarge) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Has the event stored. Resolves when it is durable (I7), with its place.
    ///
    /// # Errors
    /// Why it was not stored. With anything but [`Shed::TooSlow`], nothing of it was kept.
    pub async fn submit(&self, event: Arc<Event>, charge: Charge) -> Result<Stored, Shed> {
        self.shared.store.admits(&event.lane.group)?;
        let (reply, answer) = oneshot::channel();
        let submission = Fact::Submitted(Submission { event, reply, admitted: Admitted::default(), _charge: charge });
        match self.facts.try_send(submission) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(Shed::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(Shed::Draining),
        }
        // Whoever is not answered was on his way when the driver was ended in the middle, by a store that failed.
        answer.await.unwrap_or(Err(Shed::TooSlow))
    }

    /// Lets a suppressed event go to the upstream after all: it goes to the end of its lane like one that was just accepted. Resolves
    /// when that is durable (I7), with its place.
    ///
    /// # Errors
    /// Why it was not released.
    pub async fn release(&self, id: EventId) -> Result<Seq, Unreleased> {
        let (reply, answer) = oneshot::channel();
        let sent = self.facts.send(Fact::Release(Release { id, reply })).await;
        sent.map_err(|_| Unreleased::Draining)?;
        answer.await.unwrap_or(Err(Unreleased::Draining))
    }

    /// Has a live request answered by the upstream, by `deadline`. Dropping the future means that nobody waits any more: the request
    /// leaves its queue, or its attempt is cancelled.
    ///
    /// # Errors
    /// Why there is no answer to relay.
    pub async fn live(&self, event: Arc<Event>, deadline: Mono) -> Result<Answered, Unanswered> {
        if self.is_draining() {
            return Err(Unanswered::Draining);
        }
        let (reply, answer) = oneshot::channel();
        match self.calls.try_send(live::Call { event, deadline, reply }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(Unanswered::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(Unanswered::Draining),
        }
        answer.await.unwrap_or(Err(Unanswered::Draining))
    }

    /// From now on this node is not ready; what is on its way in is still stored.
    pub fn begin_drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
    }

    /// Whether this node is ending.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// Lets the driver end when everything submitted before is answered.
    pub async fn stop(&self) {
        self.begin_drain();
        if self.facts.send(Fact::Stop).await.is_err() {
            tracing::debug!("the driver has stopped already");
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Ended> {
        let (reply, answer) = oneshot::channel();
        self.facts.send(Fact::Command(Box::new(command(reply)))).await.map_err(|_| Ended)?;
        answer.await.map_err(|_| Ended)
    }

    /// Active groups in this order, at most `limit`.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn groups(&self, sort: Sort, limit: usize) -> Result<Vec<GroupView>, Ended> {
        self.ask(|reply| Command::Groups(sort, limit, reply)).await
    }

    /// Brings the metrics of the backlog up to date; gives the groups with most pending events, at most `top`.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn show_backlog(&self, top: usize) -> Result<Vec<GroupView>, Ended> {
        self.ask(|reply| Command::ShowBacklog(top, reply)).await
    }

    /// What waits on this node, by shard.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn sections(&self) -> Result<BTreeMap<u16, SectionView>, Ended> {
        self.ask(Command::Sections).await
    }

    /// Everything that waits at one look, for alerts: a group is late when its oldest event is older than `late`. Also the time that the
    /// driver took for it.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn survey(&self, late: Duration) -> Result<(Survey, Duration), Ended> {
        self.ask(|reply| Command::Survey(late, reply)).await
    }

    /// One group, active or not.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn group(&self, group: Group) -> Result<GroupView, Ended> {
        self.ask(|reply| Command::Group(group, reply)).await
    }

    /// Changes a group from the next lease on, on what is queued too; remembered over a restart. The inner error says why it could
    /// not be written down.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn change(&self, group: Group, change: Change, expiry: Expiry) -> Result<Result<(), String>, Ended> {
        self.ask(|reply| Command::Change(group, change, expiry, reply)).await
    }

    /// Takes a change back, or only the parts that `only` gives; false when there is none. The inner error says why it could not be written down.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn take_back(&self, group: Group, only: Option<Change>) -> Result<bool, Ended> {
        self.ask(|reply| Command::TakeBack(group, only, reply)).await
    }

    /// Closes the breaker of this group, or the upstream's, and ends a `Retry-After`; false when nothing held it.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn close_breaker(&self, group: Option<Group>) -> Result<bool, Ended> {
        self.ask(|reply| Command::CloseBreaker(group, reply)).await
    }

    /// The changes in force.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn changes(&self) -> Result<Vec<(Group, Live)>, Ended> {
        self.ask(Command::Live).await
    }

    /// Ends the attempts of a group that are in flight; their events are retried. The answer is how many.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn cancel(&self, group: Group) -> Result<usize, Ended> {
        self.ask(|reply| Command::Cancel(group, reply)).await
    }

    /// Groups with attempts that have been under way for `older`, those that hold their slots longest first.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn hung_attempts(&self, older: Duration) -> Result<Vec<HungAttempts>, Ended> {
        self.ask(|reply| Command::Hung(older, reply)).await
    }

    /// What events and live requests of all groups waited for that got their lease in the last minute.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn waited(&self) -> Result<WaitSplit, Ended> {
        self.ask(Command::Waited).await
    }

    /// Order keys of a group whose head waits for a further attempt, or is one: those that have waited longest, and how many there are.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn held(&self, group: Group, limit: usize) -> Result<(Vec<Held>, usize), Ended> {
        self.ask(|reply| Command::Held(group, limit, reply)).await
    }

    /// The new groups of every source whose key the signature does not cover, by source.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn new_groups(&self) -> Result<Vec<NewGroups>, Ended> {
        self.ask(Command::NewGroups).await
    }

    /// The upstream as a whole.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn upstream(&self) -> Result<UpstreamInfo, Ended> {
        self.ask(Command::Upstream).await
    }

    /// Changes the upstream from the next lease on, on what is queued too; remembered over a restart. The inner error says why it could
    /// not be written down.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn change_upstream(&self, change: UpstreamChange, expiry: Expiry) -> Result<Result<(), String>, Ended> {
        self.ask(|reply| Command::ChangeUpstream(change, expiry, reply)).await
    }

    /// Takes such a change back, or only the parts that `only` gives; false when there is none. The inner error says why it could not be
    /// written down.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn take_back_upstream(&self, only: Option<UpstreamChange>) -> Result<bool, Ended> {
        self.ask(|reply| Command::TakeBackUpstream(only, reply)).await
    }

    /// How a person holds a source back; `None`: it runs.
    #[must_use]
    pub fn held_source(&self, source: &str) -> Option<SourceHold> {
        self.shared.held.of(source)
    }

    /// Pending events of a source; `None` while those from before the start are being counted.
    #[must_use]
    pub fn backlog_of(&self, source: &str) -> Option<u64> {
        self.shared.backlogs.pending(source)
    }

    /// Holds a source back from now on, on what is queued too; remembered over a restart. `by` says who. The inner error says why it
    /// could not be written down.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn hold_source(
        &self,
        source: Arc<str>,
        held: Hold,
        by: String,
        expiry: Expiry,
    ) -> Result<Result<(), String>, Ended> {
        self.ask(|reply| Command::HoldSource((source, held), by, expiry, reply)).await
    }

    /// Lets a source run again; false when it did. It holds in any case: [`Handle::unwritten`] says whether it is written down.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn resume_source(&self, source: Arc<str>) -> Result<bool, Ended> {
        self.ask(|reply| Command::ResumeSource(source, reply)).await
    }

    /// Other numbers, policies and another way to the upstream, from the next lease on.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn reload(&self, settings: Settings, policies: FilePolicies, deliver: Deliver) -> Result<(), Ended> {
        self.ask(|reply| Command::Reload(Box::new(settings), policies, deliver, reply)).await
    }

    /// Whether the driver still makes turns.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.beat_age() < STALLED_AFTER
    }

    /// How long ago the driver's last turn was.
    #[must_use]
    pub fn beat_age(&self) -> Duration {
        self.shared.clock.now().mono.since(self.last_turn())
    }

    /// When the driver's last turn was: a second ago at most, while it is alive.
    fn last_turn(&self) -> Mono {
        Mono(self.shared.beat.load(Ordering::Relaxed))
    }

    /// When this handle's driver was made.
    #[must_use]
    pub fn started(&self) -> Now {
        self.shared.started
    }

    /// Events, pending and ended, newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn events(&self, query: Query) -> Result<Page, Error> {
        self.shared.store.list(query).await
    }

    /// One event with its attempts.
    ///
    /// # Errors
    /// The store's.
    pub async fn event(&self, id: EventId) -> Result<Option<Story>, Error> {
        self.shared.store.find(id).await
    }

    /// An event itself, body included; `None` when it is unknown or past retention.
    ///
    /// # Errors
    /// The store's.
    pub async fn whole(&self, id: EventId) -> Result<Option<Arc<Event>>, Error> {
        let Some(story) = self.shared.store.find(id).await? else { return Ok(None) };
        let found = self.shared.store.read(vec![story.record.seq]).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// For how long a store that is elsewhere has not answered this node, by its sizes; zero for one that is here.
    #[must_use]
    pub fn store_silence(&self, usage: &Usage) -> Duration {
        usage.answered.map_or(Duration::ZERO, |answered| self.now().mono.since(answered))
    }

    /// The store's sizes.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.store.usage()
    }

    /// The sources that are served, in the order of the configuration.
    #[must_use]
    pub fn sources(&self) -> Arc<[SourceInfo]> {
        Arc::clone(&self.shared.sources.read())
    }

    /// Sources that are served no more and have something left here: they are held, or events of them are pending. By name.
    #[must_use]
    pub fn sources_gone(&self) -> Vec<SourceInfo> {
        let served = self.sources();
        let mut names = self.shared.held.names();
        names.extend(self.shared.backlogs.owing());
        let gone = names.into_iter().filter(|name| !served.iter().any(|source| source.name == *name));
        gone.map(SourceInfo::gone).collect()
    }

    /// Replaces the list of sources.
    pub fn set_sources(&self, sources: Vec<SourceInfo>) {
        *self.shared.sources.write() = sources.into();
    }

    /// How each address of the upstream stands, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> Vec<AddressView> {
        let addresses = self.shared.addresses.read().clone();
        addresses.map(|addresses| addresses.views()).unwrap_or_default()
    }

    /// Other addresses, or the same ones anew.
    pub fn set_addresses(&self, addresses: Addresses) {
        *self.shared.addresses.write() = Some(addresses);
    }

    /// Writes how the addresses stand into the metrics.
    pub fn show_addresses(&self) {
        let views = self.addresses();
        self.shared.metrics.addresses.show(views.iter().map(|view| (&*view.address, view.share, view.in_flight)));
    }

    /// The refusals of late.
    #[must_use]
    pub fn rejections(&self) -> &Rejections {
        &self.shared.rejections
    }

    /// What fires, what fired, and by which settings.
    #[must_use]
    pub fn alerts(&self) -> &Alerts {
        &self.shared.alerts
    }

    /// The metrics that all parts count in.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// Where spans go.
    #[must_use]
    pub fn spans(&self) -> &Arc<Recorder> {
        &self.shared.spans
    }

    /// The clock that all parts share.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// What that clock says.
    #[must_use]
    pub fn now(&self) -> Now {
        self.shared.clock.now()
    }
}
