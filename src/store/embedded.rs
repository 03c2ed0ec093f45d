//! The embedded store: a commit log, and an index that it can be built from.
//!
//! The log is the truth (`store/log`). One thread writes it (`writer.rs`): it takes everything that waits, appends and
//! settlements alike, into one batch, one write, one `fdatasync`, and then answers all. What happened since the last
//! checkpoint is in memory (`store/state.rs`); a second thread (`checkpointer.rs`) brings it into the index (`store/index.rs`) and notes from
//! where the log has to be read again. A third (`upkeep.rs`) lets go of what is past retention, deletes segments and watches the
//! disk. Reads (`read.rs`) look into memory first and the index then. Opening is `recover.rs`.
//!
//! # Files
//!
//! `FORMAT` (version and salt), `lock`, `log/NNNNNNNN.seg`, `checkpoint`, `applied`, `index/` (fjall's). The index may be deleted while the
//! store is closed; so may `checkpoint` and `applied`. Everything else is needed.

mod checkpoint;
mod checkpointer;
mod core;
mod directory;
mod list;
mod marks;
mod read;
mod recover;
mod stage;
mod upkeep;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use std::sync::mpsc::{SyncSender, TrySendError};
use tokio::sync::oneshot;

pub(in crate::store) use self::checkpoint::cursor as checkpoint_cursor;
use self::core::Core;
pub use self::directory::FORMAT;
pub(in crate::store) use self::directory::salt;
use self::writer::Request;
use super::disk::{Disk, Real};
use super::index::{ApplyError, Sizes};
use super::{
    Appended, BoxFuture, Durability, Error, LaneStore, LaneSummary, Page, Pending, Query, Refusal, Retention,
    Settlement, Story, Usage,
};
use crate::clock::Clock;
use crate::event::{Event, EventId, Group, Lane, Seq, Wall};

/// The embedded store's settings (`store` in the configuration).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data directory; made when it does not exist.
    pub path: PathBuf,
    /// When an append counts as done.
    pub durability: Durability,
    /// Bytes that the store may take on disk; `None`: what the disk has.
    pub max_bytes: Option<u64>,
    /// Free bytes below which new events are refused.
    pub min_free: u64,
    /// How long ended events stay readable.
    pub retention: Retention,
}

/// Segments that an empty store has: the one that is written, and the next one.
const EMPTY_SEGMENTS: u64 = 2;

/// Bytes of an empty store's index: fjall takes the room of a journal at once.
const EMPTY_INDEX_BYTES: u64 = 64 << 20;

impl Settings {
    /// The smallest [`Settings::max_bytes`] with which a store takes events: an empty store, one segment of events, and the margin of
    /// room below which nobody's are taken. A whole number of MiB.
    #[must_use]
    pub fn least_bytes(min_free: u64) -> u64 {
        let taken = (EMPTY_SEGMENTS + 1) * Options::default().segment_bytes + EMPTY_INDEX_BYTES;
        // The margin is at most an eighth of the whole, which is a seventh of the rest.
        (taken + min_free.min(taken.div_ceil(7))).next_multiple_of(1 << 20)
    }
}

/// What tests and the spool set differently; the defaults are those of the store that serves.
#[derive(Clone)]
pub struct Options {
    /// Where segments and checkpoints are.
    pub disk: Arc<dyn Disk>,
    /// Bytes of a log segment, a multiple of 64, below 4 GiB.
    pub segment_bytes: u64,
    /// A checkpoint is made after this many bytes of log …
    pub checkpoint_bytes: u64,
    /// … or this many changed events …
    pub checkpoint_entries: usize,
    /// … or this long after the last one.
    pub checkpoint_after: Duration,
    /// Changed events in memory above which new ones wait for the checkpoint under way.
    pub entries_max: usize,
    /// How often the upkeep runs; `None`: only by [`Embedded::upkeep`].
    pub upkeep_every: Option<Duration>,
    /// Changes that go into the index in one commit.
    pub index_batch: usize,
    /// From how many changes on they go into the index as a table of their own.
    pub index_bulk: usize,
    /// Between two tries of a checkpoint that failed.
    pub checkpoint_pause: Duration,
    /// Asked before each step of the index what becomes of it.
    pub index_faults: Option<IndexFaults>,
    /// Whether an event that repeats another one is stored as suppressed. Where the events go on to another store, that one decides.
    pub suppress_repeats: bool,
}

/// A step of the index that a test may let fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexStep {
    /// It is opened again after it failed.
    Open,
    /// Changes go in.
    Commit,
}

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFault {
    /// It fails, as on a full disk.
    Fails,
    /// The checkpointer stops there, as if the process had died.
    Dies,
}

/// What becomes of each step; `None`: what the file system makes of it.
pub type IndexFaults = Arc<dyn Fn(IndexStep) -> Option<IndexFault> + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            disk: Arc::new(Real),
            segment_bytes: 64 << 20,
            // A restart reads this much log again: well below a second.
            checkpoint_bytes: 64 << 20,
            // A row takes some 700 bytes in memory, and there are two deltas.
            checkpoint_entries: 30_000,
            checkpoint_after: Duration::from_secs(10),
            entries_max: 90_000,
            upkeep_every: Some(Duration::from_secs(1)),
            index_batch: 4_000,
            index_bulk: 4_000,
            checkpoint_pause: Duration::from_secs(1),
            index_faults: None,
            suppress_repeats: true,
        }
    }
}

impl Options {
    fn index_sizes(&self) -> Sizes {
        Sizes { batch: self.index_batch, bulk: self.index_bulk }
    }

    /// Whether a step of the index may happen.
    fn may(&self, step: IndexStep) -> Result<(), ApplyError> {
        match self.index_faults.as_ref().and_then(|faults| faults(step)) {
            None => Ok(()),
            Some(IndexFault::Fails) => Err(ApplyError::Index(format!("{step:?}: a test lets it fail"))),
            Some(IndexFault::Dies) => Err(ApplyError::Halted),
        }
    }
}

/// Requests that may wait for the writer. The driver has two at most, the upkeep one.
const REQUESTS: usize = 64;

/// An open store. Dropping it without [`LaneStore::close`] is like `kill -9`: nothing acknowledged is lost, the next
/// opening reads a little more log.
pub struct Embedded {
    core: Arc<Core>,
    requests: SyncSender<Request>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the store in `settings.path`, or makes one there. Blocks while the log is read again.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] when another process has it, [`Error::Corrupt`] for damage in the middle of the log,
    /// [`Error::Unavailable`] when the directory holds something else or cannot be used, [`Error::Full`] when not even the
    /// first segment fits.
    pub fn open(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Self::open_with(settings, clock, Options::default())
    }

    /// Whether this version reads what lies in `path`, which another process may have open. Changes nothing; a folder without a store
    /// is none that could not be read.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when there is a store of another version, or it cannot be looked at.
    pub fn check(path: &Path) -> Result<(), Error> {
        if path.join("FORMAT").exists() { salt(path).map(drop) } else { Ok(()) }
    }

    /// Whether nobody has the store in `path` open, if there is one. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] names who has it.
    pub fn is_free(path: &Path) -> Result<(), Error> {
        directory::is_free(path)
    }

    /// [`Embedded::open`] with other `options`, for tests.
    ///
    /// # Errors
    ///
    /// Those of [`Embedded::open`].
    pub fn open_with(settings: Settings, clock: Arc<dyn Clock>, options: Options) -> Result<Self, Error> {
        let (core, log) = recover::open(settings, clock, options)?;
        let core = Arc::new(core);
        let (requests, waiting) = std::sync::mpsc::sync_channel(REQUESTS);
        let mut threads = Vec::new();
        let writer = writer::Writer::new(Arc::clone(&core), log);
        threads.push(spawn("fairlane-log", move || writer.run(&waiting))?);
        let shared = Arc::clone(&core);
        threads.push(spawn("fairlane-index", move || checkpointer::run(&shared))?);
        if let Some(every) = core.options.upkeep_every {
            let (shared, requests) = (Arc::clone(&core), requests.clone());
            threads.push(spawn("fairlane-upkeep", move || upkeep::run(&shared, &requests, every))?);
        }
        Ok(Self { core, requests, threads: Mutex::new(threads) })
    }

    /// Does one round of upkeep: retention, segments, disk marks. Blocks until it is done. For tests that own the clock.
    ///
    /// # Errors
    ///
    /// What kept it from finishing; the next round tries again.
    pub fn upkeep(&self) -> Result<(), Error> {
        upkeep::round(&self.core, &self.requests)
    }

    /// Makes a checkpoint and waits until the index has it. For tests.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when it did not come about.
    pub fn checkpoint(&self) -> Result<(), Error> {
        upkeep::checkpoint(&self.core, &self.requests)
    }

    /// Segments of the log that exist. For tests and `doctor`.
    #[must_use]
    pub fn segments(&self) -> Vec<u32> {
        self.core.segments.numbers()
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Request,
    ) -> BoxFuture<'_, Result<T, Error>> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.try_send(request(reply));
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or_else(|_| Err(self.core.ended())),
                Err(TrySendError::Full(_)) => Err(Error::Unavailable(format!("{REQUESTS} calls are waiting already"))),
                Err(TrySendError::Disconnected(_)) => Err(self.core.ended()),
            }
        })
    }

    /// Reads touch the disk, so they run where blocking is allowed.
    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Core) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, Error>> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            if core.is_closed() {
                return Err(core.ended());
            }
            let task = tokio::task::spawn_blocking(move || look(&core));
            task.await.unwrap_or_else(|error| Err(Error::Unavailable(format!("a read did not end: {error}"))))
        })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|error| Error::Unavailable(format!("cannot start a thread: {error}")))
}

impl LaneStore for Embedded {
    fn append(&self, batch: Vec<Arc<Event>>) -> BoxFuture<'_, Result<Appended, Error>> {
        self.ask(|reply| Request::Append { batch, reply })
    }

    fn settle(&self, batch: Vec<Settlement>) -> BoxFuture<'_, Result<usize, Error>> {
        self.ask(|reply| Request::Settle { batch, reply })
    }

    fn requeue(&self, seqs: Vec<Seq>, at: Wall) -> BoxFuture<'_, Result<Vec<Option<Pending>>, Error>> {
        self.ask(|reply| Request::Requeue { seqs, at, reply })
    }

    fn lanes(&self, after: Option<Lane>, limit: usize) -> BoxFuture<'_, Result<Vec<LaneSummary>, Error>> {
        self.look(move |core| read::lanes(core, after.as_ref(), limit))
    }

    fn load(&self, lane: Lane, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.look(move |core| read::load(core, &lane, after, limit))
    }

    fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.look(move |core| read::due(core, after, limit))
    }

    fn open(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.look(move |core| read::open(core, after, limit))
    }

    fn read(&self, seqs: Vec<Seq>) -> BoxFuture<'_, Result<Vec<Option<Arc<Event>>>, Error>> {
        self.look(move |core| read::events(core, &seqs))
    }

    fn find(&self, id: EventId) -> BoxFuture<'_, Result<Option<Story>, Error>> {
        self.look(move |core| read::find(core, id))
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Page, Error>> {
        self.look(move |core| list::list(core, &query))
    }

    fn admits(&self, group: &Group) -> Result<(), Refusal> {
        if self.core.is_closed() || self.core.poison().is_some() {
            return Err(Refusal::Unavailable);
        }
        self.core.admission.read().admits(group)
    }

    fn usage(&self) -> Usage {
        if self.core.is_closed() { Usage::default() } else { read::usage(&self.core) }
    }

    fn poisoned(&self) -> BoxFuture<'_, String> {
        let mut poison = self.core.poison.subscribe();
        Box::pin(async move {
            if let Ok(reason) = poison.wait_for(Option::is_some).await
                && let Some(reason) = reason.clone()
            {
                return reason;
            }
            // The sender lives as long as this store: nothing can come any more.
            std::future::pending().await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        let asked = self.ask(|reply| Request::Close { reply });
        Box::pin(async move {
            asked.await?;
            let threads = std::mem::take(&mut *self.threads.lock());
            let core = Arc::clone(&self.core);
            let let_go = tokio::task::spawn_blocking(move || {
                core.end();
                join(threads);
                core.let_go();
            });
            let_go.await.map_err(|error| Error::Unavailable(format!("the store did not end: {error}")))
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.core.end();
        // Any request wakes the writer, which then sees that the store has ended; when there is one already, that does.
        let (reply, _answer) = std::sync::mpsc::sync_channel(1);
        drop(self.requests.try_send(Request::Checkpoint { reply }));
        join(std::mem::take(&mut *self.threads.lock()));
        self.core.let_go();
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // A thread that panicked has printed why; there is nothing left to do with it here.
        drop(thread.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn open(dir: &Path, max_bytes: u64, min_free: u64) -> Embedded {
        let day = Duration::from_hours(24);
        let settings = Settings {
            path: dir.join("data"),
            durability: Durability::Os,
            max_bytes: Some(max_bytes),
            min_free,
            retention: Retention { delivered: day, dead: day, suppressed: day },
        };
        let store = Embedded::open(settings, Arc::new(SystemClock)).unwrap();
        store.upkeep().unwrap();
        store
    }

    #[test]
    fn the_smallest_store_takes_events_and_an_empty_one_is_as_large_as_is_said() {
        for min_free in [0, 5 << 20, 100 << 20] {
            let dir = tempfile::tempdir().unwrap();
            let least = Settings::least_bytes(min_free);
            let store = open(dir.path(), least, min_free);
            assert_eq!(store.admits(&Group::fallback()), Ok(()), "{least} with {min_free} free");
            let empty = EMPTY_SEGMENTS * store.core.options.segment_bytes + EMPTY_INDEX_BYTES;
            assert_eq!(store.usage().bytes.next_multiple_of(1 << 20), empty);
            drop(store);
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(open(dir.path(), empty, min_free).admits(&Group::fallback()), Err(Refusal::Full));
        }
    }
}
