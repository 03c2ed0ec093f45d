//! Work that takes a while, has progress and can be called off: a group's whole queue diverted or discarded.
//!
//! A job is written down before whoever asked is told of it, and taken up again after a restart: it ends what was queued when it was
//! asked for and nothing later, so doing a part of it twice changes nothing. It goes in small batches, each durable before the next one is
//! asked for, so that settlements of living traffic never wait for more than one of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::WeakSender;

use super::removal::{Removed, Target};
use super::{Ended, Fact, Handle, Shared};
use crate::engine::Removal;
use crate::event::{Group, Mono, Seq, Wall};
use crate::store::notebook::Notebook;
use crate::store::{Query, Status};

/// Events of one batch: a quarter of what the store writes in one piece.
const BATCH: usize = 256;

/// Jobs that are remembered after their end.
const ENDED_MAX: usize = 100;

/// How often progress is written down; a restart counts on from there.
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
    /// Its name: jobs are numbered from 1 and no number is used again.
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
    /// Events that it passed by, for an attempt of them was under way or they had just ended.
    pub skipped: u64,
    /// When it began, microseconds since 1970.
    pub began: u64,
    /// When it ended.
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

/// Every job that is running, and the last ones that have ended.
#[derive(Debug)]
pub(super) struct Jobs {
    all: Mutex<BTreeMap<u64, Job>>,
    notebook: Notebook,
}

impl Jobs {
    /// Those that `notebook` remembers.
    pub(super) fn open(notebook: Notebook) -> Result<Self, String> {
        let bytes = notebook.read()?;
        let noted: Vec<Job> = if bytes.is_empty() {
            Vec::new()
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{notebook}: {error}; remove the file to begin without them"))?
        };
        Ok(Self { all: Mutex::new(noted.into_iter().map(|job| (job.id, job)).collect()), notebook })
    }

    fn list(&self) -> Vec<Job> {
        self.all.lock().values().rev().cloned().collect()
    }

    fn get(&self, id: u64) -> Option<Job> {
        self.all.lock().get(&id).cloned()
    }

    /// Durable when this returns; nothing has changed when it fails.
    fn begin(&self, job: Job) -> Result<Job, JobRefusal> {
        let mut all = self.all.lock();
        let running = |other: &&Job| other.state == JobState::Running && other.group == job.group;
        if let Some(other) = all.values().find(running) {
            return Err(JobRefusal::Running(other.id));
        }
        let mut next = all.clone();
        let id = next.last_key_value().map_or(1, |(last, _)| last + 1);
        let job = Job { id, ..job };
        next.insert(id, job.clone());
        // The newest one stays in any case: its number says which the next one is.
        while next.len() > ENDED_MAX
            && let Some(old) =
                next.values().find(|job| job.state != JobState::Running && job.id != id).map(|job| job.id)
        {
            next.remove(&old);
        }
        self.write(&next).map_err(JobRefusal::Unwritten)?;
        *all = next;
        Ok(job)
    }

    fn end(&self, id: u64, state: JobState, now: Wall) -> Result<Job, JobRefusal> {
        let mut all = self.all.lock();
        let mut next = all.clone();
        let job = next.get_mut(&id).ok_or(JobRefusal::Unknown)?;
        if job.state != JobState::Running {
            return Err(JobRefusal::Over);
        }
        (job.state, job.ended) = (state, Some(now.0));
        let job = job.clone();
        self.write(&next).map_err(JobRefusal::Unwritten)?;
        *all = next;
        Ok(job)
    }

    /// A batch is through. False when the job is not running any more.
    fn went_on(&self, id: u64, results: &[Removed]) -> bool {
        let mut all = self.all.lock();
        let Some(job) = all.get_mut(&id) else { return false };
        let done = results.iter().filter(|result| **result == Removed::Ended).count();
        job.done += done as u64;
        job.skipped += (results.len() - done) as u64;
        job.state == JobState::Running
    }

    fn note(&self) {
        let all = self.all.lock();
        if let Err(error) = self.write(&all) {
            tracing::warn!(error, "the progress of jobs could not be written down; it is tried again");
        }
    }

    fn write(&self, all: &BTreeMap<u64, Job>) -> Result<(), String> {
        let jobs: Vec<&Job> = all.values().collect();
        let bytes = serde_json::to_vec_pretty(&jobs).map_err(|error| error.to_string())?;
        self.notebook.write(&bytes)
    }

    /// Those that have to be taken up.
    pub(super) fn running(&self) -> Vec<Job> {
        self.list().into_iter().filter(|job| job.state == JobState::Running).collect()
    }
}

/// Does a job, to its end or until it is called off. The sender is weak: a job keeps no driver running.
pub(super) async fn work(job: Job, facts: WeakSender<Fact>, shared: Arc<Shared>) {
    let Some(group) = Group::from_written(&job.group) else { return };
    let mut query = Query {
        group: Some(group.clone()),
        status: vec![Status::Queued, Status::Retrying],
        behind: Some(Seq(job.up_to.saturating_add(1))),
        limit: BATCH,
        ..Query::default()
    };
    let mut noted = Mono(0);
    loop {
        let page = match shared.store.list(query.clone()).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, job = job.id, "a job could not read the store; it is tried again");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let targets = page.records.iter().filter_map(Target::of).collect();
        // The driver is ending: the job goes on after the next start.
        let Ok(results) = remove(&facts, targets, job.action.removal()).await else { return };
        if !shared.jobs.went_on(job.id, &results) {
            return;
        }
        let now = shared.clock.now();
        match page.next {
            Some(next) => query.behind = Some(next),
            None => return finished(&job, &shared, now.wall),
        }
        if now.mono.since(noted) >= NOTE_EVERY {
            noted = now.mono;
            shared.jobs.note();
        }
    }
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

fn finished(job: &Job, shared: &Shared, now: Wall) {
    match shared.jobs.end(job.id, JobState::Done, now) {
        Ok(job) => {
            let Job { id, action, group, done, skipped, .. } = job;
            tracing::info!(job = id, action = action.as_str(), group, done, skipped, "a job is done");
        }
        // Called off in the same moment; or not written down, and then the next start goes through it again and finds nothing.
        Err(why) => tracing::debug!(?why, job = job.id, "a job's end was not noted"),
    }
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
        let job = self.shared.jobs.begin(job)?;
        self.ask(|reply| super::command::Command::Work(job.clone(), reply)).await.map_err(|Ended| JobRefusal::Ended)?;
        Ok(job)
    }

    /// Calls a job off; the batch under way is still ended, and what has ended stays so.
    ///
    /// # Errors
    /// Why not.
    pub fn cancel_job(&self, id: u64) -> Result<Job, JobRefusal> {
        self.shared.jobs.end(id, JobState::Cancelled, self.now().wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(group: &str) -> Job {
        let (action, state) = (Action::Divert, JobState::Running);
        Job {
            id: 0,
            action,
            group: group.to_owned(),
            up_to: 9,
            state,
            total: 3,
            done: 0,
            skipped: 0,
            began: 1,
            ended: None,
            by: String::new(),
        }
    }

    #[test]
    fn jobs_are_remembered_one_a_group_runs_and_numbers_are_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("jobs.json"));
        let jobs = Jobs::open(notebook.clone()).unwrap();
        assert_eq!(jobs.begin(job("a")).map(|job| job.id), Ok(1));
        assert_eq!(jobs.begin(job("a")), Err(JobRefusal::Running(1)));
        assert_eq!(jobs.begin(job("b")).map(|job| job.id), Ok(2));
        assert!(jobs.went_on(1, &[Removed::Ended, Removed::Gone, Removed::Ended]));
        jobs.note();
        let jobs = Jobs::open(notebook).unwrap();
        assert_eq!(
            jobs.running().iter().map(|job| (job.id, job.done, job.skipped)).collect::<Vec<_>>(),
            [(2, 0, 0), (1, 2, 1)]
        );
        assert_eq!(jobs.end(1, JobState::Cancelled, Wall(7)).map(|job| job.ended), Ok(Some(7)));
        assert_eq!(jobs.end(1, JobState::Done, Wall(8)), Err(JobRefusal::Over));
        assert_eq!(jobs.end(9, JobState::Done, Wall(8)), Err(JobRefusal::Unknown));
        assert!(!jobs.went_on(1, &[Removed::Ended]), "a batch that was under way still counts, and no other follows");
        for _ in 0..2 * ENDED_MAX {
            let id = jobs.begin(job("a")).unwrap().id;
            jobs.end(id, JobState::Done, Wall(9)).unwrap();
        }
        assert_eq!((jobs.list().len(), jobs.list()[0].id), (ENDED_MAX, 2 + 2 * ENDED_MAX as u64));
        assert_eq!(jobs.running().len(), 1);
    }
}
