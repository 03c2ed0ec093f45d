//! How jobs are remembered over a restart: one file, replaced as a whole.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Job, JobRefusal, JobState};
use crate::driver::removal::Removed;
use crate::event::Wall;
use crate::store::notebook::Notebook;

/// Jobs that are remembered after their end.
const ENDED_MAX: usize = 100;

/// Every job that has not ended, and the last ones that have ended.
#[derive(Debug)]
pub(in crate::driver) struct Jobs {
    all: Mutex<BTreeMap<u64, Job>>,
    notebook: Notebook,
    /// Told when one has ended.
    changed: Notify,
}

impl Jobs {
    /// Those that `notebook` remembers.
    pub(in crate::driver) fn open(notebook: Notebook) -> Result<Self, String> {
        let bytes = notebook.read()?;
        let noted: Vec<Job> = if bytes.is_empty() {
            Vec::new()
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{notebook}: {error}; remove the file to begin without them"))?
        };
        Ok(Self {
            all: Mutex::new(noted.into_iter().map(|job| (job.id, job)).collect()),
            notebook,
            changed: Notify::new(),
        })
    }

    pub(super) fn list(&self) -> Vec<Job> {
        self.all.lock().values().rev().cloned().collect()
    }

    /// The highest number that was ever given here.
    pub(super) fn last(&self) -> u64 {
        self.all.lock().last_key_value().map_or(0, |(last, _)| *last)
    }

    pub(super) fn get(&self, id: u64) -> Option<Job> {
        self.all.lock().get(&id).cloned()
    }

    /// Durable when this returns; nothing has changed when it fails.
    pub(super) fn begin(&self, job: Job) -> Result<Job, JobRefusal> {
        let mut all = self.all.lock();
        let running = |other: &&Job| other.ended.is_none() && other.group == job.group;
        if let Some(other) = all.values().find(running) {
            return Err(JobRefusal::Running(other.id));
        }
        let mut next = all.clone();
        // Of two that were begun at the same time the later one gives way.
        let is_free = job.id > 0 && !all.contains_key(&job.id);
        let id = if is_free { job.id } else { all.last_key_value().map_or(1, |(last, _)| last + 1) };
        let job = Job { id, ..job };
        next.insert(id, job.clone());
        // The newest one stays in any case: its number says which the next one is.
        while next.len() > ENDED_MAX
            && let Some(old) = next.values().find(|job| job.ended.is_some() && job.id != id).map(|job| job.id)
        {
            next.remove(&old);
        }
        self.write(&next).map_err(JobRefusal::Unwritten)?;
        *all = next;
        Ok(job)
    }

    /// Durable when this returns; nothing has changed when it fails. It has ended when the batch under way is through.
    pub(super) fn call_off(&self, id: u64) -> Result<(), JobRefusal> {
        let mut all = self.all.lock();
        let mut next = all.clone();
        let job = next.get_mut(&id).ok_or(JobRefusal::Unknown)?;
        if job.state != JobState::Running {
            return Err(JobRefusal::Over);
        }
        job.state = JobState::Cancelled;
        self.write(&next).map_err(JobRefusal::Unwritten)?;
        *all = next;
        Ok(())
    }

    /// Nothing more comes of it: it was called off, or it has been through everything, and then what it has not ended it has passed by.
    pub(super) fn end(&self, id: u64, now: Wall) {
        let mut all = self.all.lock();
        let Some(job) = all.get_mut(&id) else { return };
        if job.state == JobState::Running {
            job.state = JobState::Done;
            job.skipped = job.skipped.max(job.total.saturating_sub(job.done));
        }
        job.ended = Some(now.0);
        let Job { action, ref group, state, done, skipped, .. } = *job;
        tracing::info!(job = id, action = action.as_str(), group, done, skipped, "a job is {}", state.as_str());
        if let Err(error) = self.write(&all) {
            tracing::warn!(
                error,
                job = id,
                "a job's end could not be written down; the next start goes through it again"
            );
        }
        drop(all);
        self.changed.notify_waiters();
    }

    /// Resolves when it has ended.
    pub(super) async fn ended(&self, id: u64) {
        loop {
            let changed = self.changed.notified();
            if self.get(id).is_none_or(|job| job.ended.is_some()) {
                return;
            }
            changed.await;
        }
    }

    /// What it had ended before this start. What it had passed by by then it meets again, or it has ended otherwise.
    pub(super) fn recounted(&self, id: u64, done: u64) {
        if let Some(job) = self.all.lock().get_mut(&id) {
            (job.done, job.skipped) = (job.done.max(done), 0);
        }
    }

    /// Whether another batch of it may follow.
    pub(super) fn goes_on(&self, id: u64) -> bool {
        self.get(id).is_some_and(|job| job.state == JobState::Running)
    }

    /// A batch is through.
    pub(super) fn went_on(&self, id: u64, results: &[Removed]) {
        let mut all = self.all.lock();
        let Some(job) = all.get_mut(&id) else { return };
        let done = results.iter().filter(|result| **result == Removed::Ended).count();
        job.done += done as u64;
        job.skipped += (results.len() - done) as u64;
    }

    pub(super) fn note(&self) {
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

    /// Those that have to be taken up. One that was called off is among them when it is not known what its last batch did.
    pub(in crate::driver) fn unfinished(&self) -> Vec<Job> {
        self.list().into_iter().filter(|job| job.ended.is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Action;

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
        jobs.went_on(1, &[Removed::Ended, Removed::Gone, Removed::Ended]);
        jobs.note();
        let jobs = Jobs::open(notebook.clone()).unwrap();
        assert_eq!(
            jobs.unfinished().iter().map(|job| (job.id, job.done, job.skipped)).collect::<Vec<_>>(),
            [(2, 0, 0), (1, 2, 1)]
        );
        assert_eq!(jobs.call_off(1), Ok(()));
        assert_eq!((jobs.call_off(1), jobs.call_off(9)), (Err(JobRefusal::Over), Err(JobRefusal::Unknown)));
        assert!(!jobs.goes_on(1) && jobs.goes_on(2));
        // A batch that was under way still counts: until it is through, or was looked up after a restart, the job has not ended.
        let jobs = Jobs::open(notebook.clone()).unwrap();
        assert_eq!(jobs.unfinished().len(), 2);
        jobs.recounted(1, 3);
        jobs.end(1, Wall(7));
        jobs.went_on(2, &[Removed::Ended]);
        jobs.end(2, Wall(8));
        let jobs = Jobs::open(notebook).unwrap();
        let ended = jobs.list().into_iter().map(|job| (job.state, job.done, job.skipped, job.ended));
        let expected = [(JobState::Done, 1, 2, Some(8)), (JobState::Cancelled, 3, 0, Some(7))];
        assert_eq!(ended.collect::<Vec<_>>(), expected, "what a job has been through and not ended, it has passed by");
        jobs.begin(job("b")).unwrap();
        for _ in 0..2 * ENDED_MAX {
            let id = jobs.begin(job("a")).unwrap().id;
            jobs.end(id, Wall(9));
        }
        assert_eq!((jobs.list().len(), jobs.list()[0].id), (ENDED_MAX, 3 + 2 * ENDED_MAX as u64));
        assert_eq!(jobs.unfinished().len(), 1);
    }
}
