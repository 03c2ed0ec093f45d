//! Work that takes a while, has progress and can be called off: a group's whole queue diverted or discarded.
//!
//! A job is written down before whoever asked is told of it, and taken up again after a restart: it ends what was queued when it was
//! asked for and nothing later, so doing a part of it twice changes nothing. It goes in small batches, each durable before the next one is
//! asked for, so that settlements of living traffic never wait for more than one of them.

mod book;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::WeakSender;

pub(super) use self::book::Jobs;
use super::removal::{Removed, Target};
use super::{Ended, Fact, Handle, Shared};
use crate::engine::{DIVERTED, Removal};
use crate::event::{Group, Mono, Seq};
use crate::store::{Error, LaneStore, Query, Record, Status};

/// Events of one batch: a quarter of what the store writes in one piece.
const BATCH: usize = 256;

/// Records of one read where they are only counted.
const PAGE: usize = 1_000;

/// Whoever calls a job off waits so long at most for the batch under way: a disk that hangs must not hang them.
const LAST_BATCH_MAX: Duration = Duration::from_secs(5);

/// How often progress is written down. A restart counts what was ended since then.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// A store that cannot be read is asked again after this long.
const AGAIN: Duration = Duration::from_secs(1);

/// What a job does with the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// To the dead letters, from where they can be replayed.
    Divert,
    /// Thrown away.
    Discard,
}

impl Action {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Divert => "divert",
            Self::Discard => "discard",
        }
    }

    fn removal(self) -> Removal {
        match self {
            Self::Divert => Removal::Divert,
            Self::Discard => Removal::Discard,
        }
    }

    /// Whether such a job has ended this event, by what is written of it.
    fn has_ended(self, record: &Record) -> bool {
        match self {
            Self::Divert => record.status == Status::Dead && &*record.reason == DIVERTED,
            Self::Discard => record.status == Status::Discarded,
        }
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It goes on, over a restart too.
    Running,
    /// It has been through everything.
    Done,
    /// A person called it off; what it had done stays done.
    Cancelled,
}

impl JobState {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its name: jobs of all nodes are numbered from 1 and no number is used again.
    pub id: u64,
    /// What it does.
    pub action: Action,
    /// Whose events, in written form.
    pub group: String,
    /// Only those with this seq or a lower one: what came later was not asked about.
    pub up_to: u64,
    /// Where it stands.
    pub state: JobState,
    /// Events that waited when it was asked for.
    pub total: u64,
    /// Events that it has ended.
    pub done: u64,
    /// Events that it passed by: an attempt of them was under way, or they had ended otherwise when their turn came. When it is done, all
    /// that it has not ended.
    pub skipped: u64,
    /// When it began, microseconds since 1970.
    pub began: u64,
    /// When it ended. `None` although it was called off: its last batch is not through.
    pub ended: Option<u64>,
    /// Who asked, as they called themselves.
    pub by: String,
}

/// Why a job was not begun, or not called off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRefusal {
    /// One of the group is running; its id.
    Running(u64),
    /// It has ended already.
    Over,
    /// There is none of that id.
    Unknown,
    /// It could not be written down, or the store could not be read, in words.
    Unwritten(String),
    /// The driver has ended.
    Ended,
}

/// Does a job, to its end or until it is called off. The sender is weak: a job keeps no driver running.
pub(super) async fn work(job: Job, facts: WeakSender<Fact>, shared: Arc<Shared>) {
    let mut query = list_of(&job, vec![Status::Queued, Status::Retrying], BATCH);
    let mut noted = Mono(0);
    while shared.jobs.goes_on(job.id) {
        let page = match shared.store.list(query.clone()).await {
            Ok(page) => page,
            Err(error) => {
                later(&job, &error).await;
                continue;
            }
        };
        let targets = page.records.iter().filter_map(Target::of).collect();
        // The driver is ending: the job goes on after the next start.
        let Ok(all) = batch(&job, &facts, targets, &shared).await else { return };
        if !all {
            // Whose owner could not be asked waits still: the same page has it again, and nothing else.
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        let Some(next) = page.next else { break };
        query.behind = Some(next);
        let now = shared.clock.now().mono;
        if now.since(noted) >= NOTE_EVERY {
            noted = now;
            shared.jobs.note();
        }
    }
    shared.jobs.end(job.id, shared.clock.now().wall);
}

/// The same for a job from before a restart. What is noted of its progress may be older than its last batches, so the store is asked.
pub(super) async fn resume(job: Job, facts: WeakSender<Fact>, shared: Arc<Shared>) {
    let done = loop {
        match ended_by(&job, &*shared.store).await {
            Ok(done) => break done,
            Err(error) => later(&job, &error).await,
        }
    };
    shared.jobs.recounted(job.id, done);
    work(job, facts, shared).await;
}

/// How many events a job has ended, as long as they stand so: what was replayed since, or is past its retention, is not among them. What a
/// person discarded one by one meanwhile is.
async fn ended_by(job: &Job, store: &dyn LaneStore) -> Result<u64, Error> {
    let mut query = list_of(job, vec![Status::Dead, Status::Discarded], PAGE);
    let by_it =
        |record: &&Record| job.action.has_ended(record) && record.settled.is_some_and(|settled| settled.0 >= job.began);
    let mut count = 0;
    loop {
        let page = store.list(query.clone()).await?;
        count += page.records.iter().filter(by_it).count() as u64;
        let Some(next) = page.next else { return Ok(count) };
        query.behind = Some(next);
    }
}

/// Events that a job is about, the newest first.
fn list_of(job: &Job, status: Vec<Status>, limit: usize) -> Query {
    let group = Some(Group::from_written(&job.group).expect("a job is written with the name of a group"));
    Query { group, status, behind: Some(Seq(job.up_to.saturating_add(1))), limit, ..Query::default() }
}

async fn later(job: &Job, error: &Error) {
    tracing::warn!(%error, job = job.id, "a job could not read the store; it is tried again");
    tokio::time::sleep(AGAIN).await;
}

/// Ends a page of events, each where its shard is. False when some of them have to be asked for again.
async fn batch(job: &Job, facts: &WeakSender<Fact>, targets: Vec<Target>, shared: &Shared) -> Result<bool, Ended> {
    let (here, there) = shared.sorted(targets);
    let mut results = remove(facts, here, job.action.removal()).await?;
    let mut all = true;
    for (section, targets) in there {
        match shared.remove_there(section, targets, job.action.removal()).await {
            Ok(ended) => results.extend(ended),
            Err(why) => {
                all = false;
                tracing::warn!(job = job.id, shard = section, why, "a part of a job waits for the owner of a shard");
            }
        }
    }
    let before = results.len();
    results.retain(|result| *result != Removed::Moved);
    shared.jobs.went_on(job.id, &results);
    Ok(all && results.len() == before)
}

async fn remove(facts: &WeakSender<Fact>, targets: Vec<Target>, removal: Removal) -> Result<Vec<Removed>, Ended> {
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let facts = facts.upgrade().ok_or(Ended)?;
    let (reply, answer) = tokio::sync::oneshot::channel();
    let command = super::command::Command::Remove(targets, removal, reply);
    facts.send(Fact::Command(Box::new(command))).await.map_err(|_| Ended)?;
    // It is held only for the moment of asking.
    drop(facts);
    answer.await.map_err(|_| Ended)
}

impl Handle {
    /// Jobs, the newest first.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        self.shared.jobs.list()
    }

    /// One job.
    #[must_use]
    pub fn job(&self, id: u64) -> Option<Job> {
        self.shared.jobs.get(id)
    }

    /// Begins to divert or discard everything of `group` that waits for an attempt now. Written down before this returns; a restart
    /// takes it up.
    ///
    /// # Errors
    /// Why it was not begun.
    pub async fn begin_job(&self, group: &Group, action: Action, by: String) -> Result<Job, JobRefusal> {
        let view = self.group(group.clone()).await.map_err(|Ended| JobRefusal::Ended)?;
        let newest = Query { group: Some(group.clone()), limit: 1, ..Query::default() };
        let page = self.events(newest).await.map_err(|error| JobRefusal::Unwritten(error.to_string()))?;
        // Nothing of the group is on the first page: what waits, if anything, is older than that.
        let up_to = page.records.first().map(|record| record.seq).or(page.next).map_or(0, |seq| seq.0);
        let job = Job {
            id: 0,
            action,
            group: group.to_string(),
            up_to,
            state: JobState::Running,
            total: view.queued + view.retrying,
            done: 0,
            skipped: 0,
            began: self.now().wall.0,
            ended: None,
            by,
        };
        let last = self.shared.jobs.last();
        let id = self.shared.next_number("jobs", last).await.map_err(JobRefusal::Unwritten)?;
        let job = self.shared.jobs.begin(Job { id, ..job })?;
        self.ask(|reply| super::command::Command::Work(job.clone(), reply)).await.map_err(|Ended| JobRefusal::Ended)?;
        Ok(job)
    }

    /// Calls a job off; what has ended stays so. The batch under way is still ended, and waited for: where it takes very long, the answer
    /// has no [end](Job::ended).
    ///
    /// # Errors
    /// Why not.
    pub async fn cancel_job(&self, id: u64) -> Result<Job, JobRefusal> {
        let jobs = &self.shared.jobs;
        jobs.call_off(id)?;
        if tokio::time::timeout(LAST_BATCH_MAX, jobs.ended(id)).await.is_err() {
            tracing::warn!(job = id, "the last batch of a job that was called off is not through yet");
        }
        jobs.get(id).ok_or(JobRefusal::Unknown)
    }
}
