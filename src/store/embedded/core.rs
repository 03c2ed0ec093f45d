//! What all parts of an open store share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::watch;

use super::checkpoint::{Checkpoint, Files};
use super::directory::Lock;
use super::marks::{Admission, Measured};
use super::{Options, Settings};
use crate::clock::Clock;
use crate::event::{EventId, Lane, Seq};
use crate::store::evenness::Evenness;
use crate::store::index::Index;
use crate::store::log::{Cursor, Reserve, Segments};
use crate::store::repeats::{Hash, Known};
use crate::store::row::Row;
use crate::store::state::{Base, Counts, Delta, Fetched, Seen, State};
use crate::store::{Error, Status};

/// Shared by the handle, the writer, the checkpointer, the upkeep and all reads.
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) index_dir: PathBuf,
    pub(super) segments: Arc<Segments>,
    pub(super) reserve: Arc<Reserve>,
    pub(super) files: Files,
    pub(super) state: Mutex<State>,
    /// `None` while it is opened again, and after the end.
    pub(super) index: RwLock<Option<Index>>,
    pub(super) poison: watch::Sender<Option<String>>,
    pub(super) admission: RwLock<Admission>,
    pub(super) measured: Mutex<Measured>,
    pub(super) evenness: Mutex<Evenness>,
    pub(super) work: Mutex<Work>,
    /// Told when `work` changes.
    pub(super) changed: Condvar,
    pub(super) ended: AtomicBool,
    pub(super) lock: Mutex<Option<Lock>>,
    /// Events of which it was said that they are damaged.
    pub(super) damaged: Mutex<BTreeSet<Seq>>,
}

/// Damaged events that a line in the log is written about in one process. A disk that is broken has millions, and these do.
const DAMAGE_LINES_MAX: usize = 1_000;

/// What goes between the writer, the checkpointer and the upkeep.
#[derive(Default)]
pub(super) struct Work {
    /// A checkpoint that is to be brought in, or is under way.
    pub(super) job: Option<Job>,
    /// The last checkpoint that the index has.
    pub(super) done: u64,
    /// Tries of the present job that failed.
    pub(super) failures: u32,
    /// Segments before the last checkpoint in which nothing was live at it.
    pub(super) empty: Vec<u32>,
    /// Where the last checkpoint is.
    pub(super) cursor: Option<Cursor>,
    /// The present segment, which the reserve has to follow.
    pub(super) head: u32,
    /// Segments that were copied forward in vain, with the bytes that are needed of them all the same.
    pub(super) stuck: BTreeMap<u32, u64>,
    /// A test stopped the checkpointer for good.
    pub(super) halted: bool,
}

/// A checkpoint on its way.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) delta: Arc<Delta>,
    pub(super) empty: Vec<u32>,
}

impl Core {
    /// Whether the store was closed or dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Tells all threads to end.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let work = self.work.lock();
        self.changed.notify_all();
        drop(work);
    }

    /// Lets go of files and of the lock, after all threads have ended.
    pub(super) fn let_go(&self) {
        drop(self.index.write().take());
        drop(self.lock.lock().take());
    }

    pub(super) fn poison(&self) -> Option<String> {
        self.poison.borrow().clone()
    }

    /// Takes no more writes in this process.
    pub(super) fn set_poison(&self, reason: &str) {
        if self.poison().is_none() {
            tracing::error!(
                reason,
                "the store takes no more writes; the process has to end, a restart reads what is there"
            );
            self.poison.send_replace(Some(reason.into()));
        }
    }

    /// Why a call is not served any more.
    pub(super) fn ended(&self) -> Error {
        match self.poison() {
            Some(reason) => Error::Poisoned(reason),
            None => Error::Unavailable("it is closed".into()),
        }
    }

    /// Does something with the index.
    pub(super) fn with_index<T>(&self, act: impl FnOnce(&Index) -> Result<T, Error>) -> Result<T, Error> {
        let done = match &*self.index.read() {
            Some(index) => act(index),
            None => Err(Error::Unavailable("the index is not open; it is tried again every second".into())),
        };
        if let Err(Error::Corrupt(reason)) = &done {
            self.condemn_index(reason);
        }
        done
    }

    /// The index is damaged: without a checkpoint in force the next opening builds it again from the whole log.
    pub(super) fn condemn_index(&self, reason: &str) {
        if self.poison().is_none() {
            // First, so that the checkpointer, which looks behind its own write, takes away what it writes meanwhile.
            self.set_poison(reason);
            if let Err(error) = self.files.remove(&*self.options.disk) {
                tracing::error!(%error, "delete `checkpoint` in the data directory, so that the index is built again");
            }
        }
    }

    /// One line in the log for each event that turns out to be damaged when it is read.
    pub(super) fn report_damage<T>(&self, row: &Row, read: &Result<T, Error>) {
        let Err(Error::Corrupt(what)) = read else { return };
        let mut damaged = self.damaged.lock();
        if damaged.len() < DAMAGE_LINES_MAX && damaged.insert(row.seq) {
            tracing::error!(
                event = %row.id,
                seq = row.seq.0,
                segment = row.place.segment,
                offset = row.place.offset,
                what,
                "an event in the store is damaged and cannot be read; `fairlane doctor --store` looks at all of them"
            );
        }
    }

    /// The writer goes on in another segment.
    pub(super) fn tell_head(&self, segment: u32) {
        self.work.lock().head = segment;
    }

    /// Reads memory and index so that they fit together: `ask` reads the index, `answer` then looks at the memory. When a
    /// checkpoint came in between, both are done again.
    pub(super) fn consistently<A, T>(
        &self,
        ask: impl Fn(&Index) -> Result<A, Error>,
        answer: impl Fn(&State, A) -> T,
    ) -> Result<T, Error> {
        loop {
            let epoch = self.state.lock().epoch;
            let asked = self.with_index(&ask)?;
            let state = self.state.lock();
            if state.epoch == epoch {
                return Ok(answer(&state, asked));
            }
        }
    }

    /// The event that has a fingerprint, whether or not its window is over.
    pub(super) fn known(&self, hash: &Hash) -> Result<Option<Known>, Error> {
        self.consistently(|index| index.known(hash), |state, asked| state.known(hash, asked))
    }

    /// Whether an event is among the dead letters. One that is not known any more is none.
    pub(super) fn is_dead(&self, id: EventId) -> Result<bool, Error> {
        self.consistently(
            |index| index.has_dead(id),
            |state, asked| match state.deltas().find_map(|delta| delta.ids.get(&id)) {
                Some(&seq) => matches!(state.see(seq), Seen::Row(row) if row.status() == Status::Dead),
                None => asked,
            },
        )
    }

    /// The row of an event, pending or ended, whether or not it is past retention.
    pub(super) fn row(&self, seq: Seq) -> Result<Option<Row>, Error> {
        if let Some(known) = memory_row(&self.state.lock(), seq) {
            return Ok(known);
        }
        self.consistently(|index| index.row(seq), |state, asked| memory_row(state, seq).unwrap_or(asked))
    }

    /// The row of an event that the active delta does not have, with how the index has it. For the writer alone: between this
    /// and the change nobody else changes the active delta.
    pub(super) fn fetch(&self, seq: Seq, ended_too: bool) -> Result<Fetched, Error> {
        let thawing = |state: &State| state.thawing(seq);
        if let Some(known) = thawing(&self.state.lock()) {
            return Ok(known);
        }
        let ask = |index: &Index| match index.pending_row(seq)? {
            None if ended_too => index.ended_row(seq),
            other => Ok(other),
        };
        let row = self.consistently(ask, |state, asked| match thawing(state) {
            Some(known) => known,
            None => asked.map(|row| {
                let base = Base::of(&row);
                Box::new((row, base))
            }),
        })?;
        Ok(row)
    }

    /// Makes sure that the active delta knows a lane's counts. For the writer alone.
    pub(super) fn learn_lane(&self, lane: &Lane) -> Result<(), Error> {
        {
            let mut state = self.state.lock();
            if state.active.lanes.contains_key(lane) {
                return Ok(());
            }
            if let Some(counts) = state.counts(lane) {
                state.learn_lane(lane, counts);
                return Ok(());
            }
        }
        let counts: Counts =
            self.consistently(|index| index.counts(lane), |state, asked| state.counts(lane).unwrap_or(asked))?;
        self.state.lock().learn_lane(lane, counts);
        Ok(())
    }

    /// Freezes what happened so far and hands it to the checkpointer. False when one is under way or nothing happened.
    pub(super) fn begin_checkpoint(&self, cursor: Cursor) -> bool {
        let mut work = self.work.lock();
        if work.job.is_some() || work.halted {
            return false;
        }
        let mut state = self.state.lock();
        if state.frozen.is_some() || state.active.len() == 0 {
            return false;
        }
        let sums = state.sums.clone();
        let live = sums.live();
        // A segment that could be the only one to know the next seq and batch is kept.
        let end = if cursor.offset == 0 { cursor.segment.saturating_sub(1) } else { cursor.segment };
        let numbers = self.segments.numbers().into_iter();
        let empty = numbers.filter(|&segment| segment < end && !live.contains_key(&segment)).collect();
        let delta = state.freeze();
        let checkpoint = Arc::new(Checkpoint { number: work.done + 1, cursor, sums });
        work.job = Some(Job { checkpoint, delta, empty });
        work.failures = 0;
        self.changed.notify_all();
        true
    }

    /// Waits until no checkpoint is under way. False when it failed (it is tried again) or the store ends.
    pub(super) fn await_checkpoint(&self) -> bool {
        let mut work = self.work.lock();
        while work.job.is_some() && work.failures == 0 && !work.halted && self.poison().is_none() {
            if self.is_closed() {
                return false;
            }
            // Poisoning does not tell this condition; a second is soon enough for that.
            self.changed.wait_for(&mut work, Duration::from_secs(1));
        }
        work.job.is_none()
    }
}

/// What memory says of a seq: `None` when the index has to be asked.
fn memory_row(state: &State, seq: Seq) -> Option<Option<Row>> {
    match state.see(seq) {
        Seen::Row(row) => Some(Some(row.clone())),
        Seen::Gone => Some(None),
        Seen::AskIndex => None,
    }
}
