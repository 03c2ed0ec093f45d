//! The thread that brings checkpoints into the index.
//!
//! Accepting goes on meanwhile: the index is behind, memory has what it lacks. When the index fails (a full disk
//! poisons it for good), its handles are dropped and it is opened again, and the checkpoint is brought in anew.

use std::time::Duration;

use super::core::{Core, Job};
use crate::store::index::{ApplyError, Index};

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// Tries of opening the index again before the process is better off beginning anew (which builds the index from the log).
const REOPENINGS: u32 = 60;

enum Outcome {
    Done,
    Failed(String),
    Halted,
}

/// Serves checkpoints until the store ends.
pub(super) fn run(core: &Core) {
    loop {
        let job = {
            let mut work = core.work.lock();
            while work.job.is_none() && !core.is_closed() {
                core.changed.wait(&mut work);
            }
            work.job.clone()
        };
        // A store that is dropped does not finish: the log has everything.
        let Some(job) = job.filter(|_| !core.is_closed()) else { return };
        match bring_in(core, &job) {
            Outcome::Done => finish(core, job),
            Outcome::Failed(reason) => {
                if !pause(core, &reason) {
                    return;
                }
            }
            Outcome::Halted => {
                core.work.lock().halted = true;
                core.changed.notify_all();
                return;
            }
        }
    }
}

/// Brings the waiting checkpoint in, in the caller's thread: while the store opens.
pub(super) fn once(core: &Core) -> Result<(), String> {
    let job = core.work.lock().job.clone();
    let Some(job) = job else { return Ok(()) };
    match bring_in(core, &job) {
        Outcome::Done => {
            finish(core, job);
            Ok(())
        }
        Outcome::Failed(reason) => Err(reason),
        Outcome::Halted => Err("stopped by a test".into()),
    }
}

fn bring_in(core: &Core, job: &Job) -> Outcome {
    let disk = &*core.options.disk;
    let number = job.checkpoint.number;
    if let Err(reason) = reopen_if_needed(core, number) {
        return Outcome::Failed(reason);
    }
    if let Err(error) = core.files.write(disk, &job.checkpoint, &job.delta) {
        return Outcome::Failed(format!("cannot write the checkpoint: {error}"));
    }
    if let Some(reason) = core.poison() {
        // The index was found damaged meanwhile: no checkpoint may speak for it.
        let removed = core.files.remove(disk).err().map_or_else(String::new, |error| format!("; {error}"));
        return Outcome::Failed(format!("{reason}{removed}"));
    }
    let mut steps = || core.options.allow_index_commit() && !core.is_closed();
    let applied = match &*core.index.read() {
        Some(index) => index.apply(number, &job.delta, &mut steps),
        None => return Outcome::Failed("the index is not open".into()),
    };
    match applied {
        Ok(()) => {}
        Err(ApplyError::Halted) => return Outcome::Halted,
        Err(ApplyError::Index(reason)) => {
            drop(core.index.write().take());
            return Outcome::Failed(format!("the index failed: {reason}"));
        }
    }
    match core.files.write_applied(disk, number) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(format!("cannot note the checkpoint: {error}")),
    }
}

/// Opens the index again after it failed. It must be where it was: at the checkpoint before `number`, or partly at that.
fn reopen_if_needed(core: &Core, number: u64) -> Result<(), String> {
    let mut index = core.index.write();
    if index.is_some() {
        return Ok(());
    }
    let opened = Index::open(&core.index_dir, core.options.index_batch)
        .map_err(|error| format!("the index does not open again: {error}"))?;
    let there = opened.number().map_err(|error| error.to_string())?;
    if there != number && there + 1 != number {
        let reason =
            format!("the index is at checkpoint {there} instead of {number}; a restart builds it again from the log");
        core.condemn_index(&reason);
        return Err(reason);
    }
    *index = Some(opened);
    tracing::info!("the index is open again");
    Ok(())
}

fn finish(core: &Core, job: Job) {
    let held: Vec<_> = {
        let mut state = core.state.lock();
        state.thaw();
        state.sums.held.keys().copied().collect()
    };
    // Keyspaces are made by this thread alone, so one that nothing is held in can be dropped here: neither now, nor at the
    // checkpoint, from which a restart would begin.
    if let Some(index) = &*core.index.read() {
        for bucket in index.buckets() {
            if !held.contains(&Some(bucket))
                && !job.checkpoint.sums.held.contains_key(&Some(bucket))
                && let Err(error) = index.drop_bucket(bucket)
            {
                tracing::warn!(%error, "a bucket of history could not be dropped; it is tried again");
            }
        }
    }
    let mut work = core.work.lock();
    work.done = job.checkpoint.number;
    work.cursor = Some(job.checkpoint.cursor);
    work.empty = job.empty;
    work.job = None;
    work.failures = 0;
    core.changed.notify_all();
}

/// Waits before the next try. False when the store ends.
fn pause(core: &Core, reason: &str) -> bool {
    let mut work = core.work.lock();
    work.failures += 1;
    if work.failures == 1 {
        tracing::warn!(reason, "a checkpoint failed; events are safe in the log, it is tried again every second");
    }
    if work.failures >= REOPENINGS && core.index.read().is_none() {
        core.set_poison(&format!("{reason}; a restart builds the index again from the log"));
    }
    core.changed.notify_all();
    if !core.is_closed() {
        core.changed.wait_for(&mut work, PAUSE);
    }
    !core.is_closed()
}
