//! The thread that brings checkpoints into the index.
//!
//! Accepting goes on meanwhile: the index is behind, memory has what it lacks. When the index fails (a full disk
//! poisons it for good), it takes no more writes, but it is still read; before the next try its handles are dropped and it is
//! opened again, and the checkpoint is brought in anew.

use super::IndexStep;
use super::core::{Core, Job};
use crate::store::index::{ApplyError, Index};

/// Tries of opening the index again before the process is better off beginning anew (which builds the index from the log).
const REOPENINGS: u32 = 60;

enum Outcome {
    Done,
    Failed(String),
    Halted,
}

/// Serves checkpoints until the store ends.
pub(super) fn run(core: &Core) {
    Checkpointer::new(core).run();
}

/// Brings the waiting checkpoint in, in the caller's thread: while the store opens.
pub(super) fn once(core: &Core) -> Result<(), String> {
    let job = core.work.lock().job.clone();
    let Some(job) = job else { return Ok(()) };
    match Checkpointer::new(core).bring_in(&job) {
        Outcome::Done => {
            finish(core, job);
            Ok(())
        }
        Outcome::Failed(reason) => Err(reason),
        Outcome::Halted => Err("stopped by a test".into()),
    }
}

struct Checkpointer<'a> {
    core: &'a Core,
    /// The index takes no more writes before it is opened again.
    index_failed: bool,
    /// How often in a row it could not be opened.
    unopened: u32,
}

impl<'a> Checkpointer<'a> {
    fn new(core: &'a Core) -> Self {
        Self { core, index_failed: false, unopened: 0 }
    }

    fn run(mut self) {
        let core = self.core;
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
            match self.bring_in(&job) {
                Outcome::Done => finish(core, job),
                Outcome::Failed(reason) => {
                    if !self.pause(&reason) {
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

    fn bring_in(&mut self, job: &Job) -> Outcome {
        let core = self.core;
        let disk = &*core.options.disk;
        let number = job.checkpoint.number;
        // First of all: while not even this fits the disk, an index that is still read is not closed.
        if let Err(error) = core.files.write(disk, &job.checkpoint, &job.delta) {
            return Outcome::Failed(format!("cannot write the checkpoint: {error}"));
        }
        if let Some(reason) = core.poison() {
            // The index was found damaged meanwhile: no checkpoint may speak for it.
            let removed = core.files.remove(disk).err().map_or_else(String::new, |error| format!("; {error}"));
            return Outcome::Failed(format!("{reason}{removed}"));
        }
        if self.index_failed
            && let Err(reason) = self.reopen(number)
        {
            return Outcome::Failed(reason);
        }
        let mut step = || if core.is_closed() { Err(ApplyError::Halted) } else { core.options.may(IndexStep::Commit) };
        let applied = match &*core.index.read() {
            Some(index) => index.apply(number, &job.delta, &mut step),
            None => return Outcome::Failed("the index is not open".into()),
        };
        match applied {
            Ok(()) => {}
            Err(ApplyError::Halted) => return Outcome::Halted,
            Err(ApplyError::Index(reason)) => {
                self.index_failed = true;
                return Outcome::Failed(format!("the index failed: {reason}"));
            }
        }
        match core.files.write_applied(disk, number) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(format!("cannot note the checkpoint: {error}")),
        }
    }

    /// Opens the index again after it failed. It must be where it was: at the checkpoint before `number`, or partly at that.
    fn reopen(&mut self, number: u64) -> Result<(), String> {
        let core = self.core;
        let may = core.options.may(IndexStep::Open);
        // Held until the end: a read waits for the index and is not told that there is none.
        let mut place = core.index.write();
        // fjall's lock goes with the last handle.
        drop(place.take());
        let opened = may.map_err(|fault| format!("{fault:?}")).and_then(|()| {
            let index = Index::open(&core.index_dir, core.options.index_sizes())?;
            let there = index.number().map_err(|error| error.to_string())?;
            Ok((index, there))
        });
        let (index, there) = opened.map_err(|error| {
            self.unopened += 1;
            format!("the index does not open again: {error}")
        })?;
        self.unopened = 0;
        if there != number && there + 1 != number {
            let reason = format!(
                "the index is at checkpoint {there} instead of {number}; a restart builds it again from the log"
            );
            core.condemn_index(&reason);
            return Err(reason);
        }
        *place = Some(index);
        self.index_failed = false;
        tracing::info!("the index is open again");
        Ok(())
    }

    /// Waits before the next try. False when the store ends.
    fn pause(&self, reason: &str) -> bool {
        let core = self.core;
        let mut work = core.work.lock();
        work.failures += 1;
        if work.failures == 1 {
            tracing::warn!(reason, "a checkpoint failed; events are safe in the log, it is tried again every second");
        }
        if self.unopened >= REOPENINGS {
            core.set_poison(&format!("{reason}; a restart builds the index again from the log"));
        }
        core.changed.notify_all();
        if !core.is_closed() {
            core.changed.wait_for(&mut work, core.options.checkpoint_pause);
        }
        !core.is_closed()
    }
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
        let now = core.clock.now();
        let is_even = core.evenness.lock().holds(now);
        if is_even && let Err(error) = index.drop_spans(now.wall) {
            tracing::warn!(%error, "fingerprints of events whose windows are over could not be dropped; they stay until a restart");
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
