//! A store that is elsewhere, with a spool on this machine for the time in which it does not answer.
//!
//! [`Spooled`] is a [`LaneStore`] around another one. While that one, the *remote*, answers, everything goes there and nothing here. When
//! an append fails as [`Error::Unavailable`] or does not answer within [`Settings::deadline`], its events go into the *spool*, an
//! [`Embedded`] store of their own, and are answered as stored once they are durable there. When the remote answers again they are
//! appended to it in the order in which they came, batch by batch, and then struck out in the spool.
//!
//! # What holds
//!
//! - **Nothing is lost.** An event is struck out only when the remote has said that it has it. A process that dies in between appends it
//!   once more at its next start; the remote's append has to be *idempotent by the event's id*, and then there is still one.
//!   (`store::redis` is. Asking such a store first whether it has each event would cost a round trip for every one of them and be no
//!   safer, so nothing here asks.)
//! - **Order keys are kept.** Whoever sends an event with an order key while the remote is away is told that it was not stored: from the
//!   spool it would come behind events that another node took meanwhile. Everybody else is promised the order of commits, and an event
//!   commits when the remote has it. Within a lane the events of one spool keep their order; a new one that finds the remote there does
//!   not wait behind them.
//! - **Parts.** A remote in shards fails shard by shard. Each is a *part* with a standing of its own (`standing.rs`), so that one that is
//!   away costs the others nothing. What moves and what stays in the spool is decided in `course.rs`, done in `mover.rs`.
//! - **Bounds.** The spool is bounded as any embedded store is: `max_bytes`, `min_free`. Beyond that, or without a spool, events are
//!   refused as unavailable.
//! - **Repeats** are looked for by the remote alone, when it gets the event: the sender of one that is in the spool is not told.
//!
//! # Seqs
//!
//! An event in the spool has a seq above all those of the remote ([`FIRST`]), and gets another one from the remote when it moves. The
//! engine never hears of the former: it learns of events from the remote. For people it is one store: [`LaneStore::find`], `list` and `read`
//! show what is in the spool as queued (`look.rs`).

mod append;
mod course;
mod look;
mod mover;
mod standing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::course::Course;
use self::standing::Standing;
use super::embedded::{self, Embedded};
use super::redis::{self, Redis, SHARDS_MAX};
use super::{
    Appended, BoxFuture, Durability, Error, LaneStore, LaneSummary, Page, Pending, Query, Refusal, Retention,
    Settlement, SpoolUsage, Story, Usage,
};
use crate::clock::Clock;
use crate::event::{Event, EventId, Group, Lane, Mono, Seq, Wall};
use crate::metrics::Metrics;

/// The seqs of the spool are above this one: those of a shard after the last, still exact in a JSON number (below 2^53).
const FIRST: u64 = (SHARDS_MAX as u64) << 43;

/// Bytes of the disk that the spool of a store in Redis leaves free.
const MIN_FREE: u64 = 1 << 30;

/// How the two are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long the remote may take for an append before the batch goes to the spool. A sender may come while a batch is under way and
    /// then wait for its own, so twice this has to be less than what senders are given (`listen.limits.answer_timeout`).
    pub deadline: Duration,
    /// How long after a part did not take an append events of the spool try it again. New ones leave it alone for twice as long.
    pub pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        // Senders are given 2.5 s at the least (a provider that waits for 3 s), 4 s where nothing else is known.
        Self { deadline: Duration::from_millis(1_200), pause: Duration::from_secs(1) }
    }
}

/// Which part of the remote a group's events lie in: parts fail one by one. A store that fails as a whole has one.
pub type PartOf = Box<dyn Fn(&Group) -> u16 + Send + Sync>;

/// A store that is elsewhere, and the spool before it.
pub struct Spooled {
    remote: Arc<dyn LaneStore>,
    part_of: PartOf,
    /// `None`: what the remote does not take is refused.
    local: Option<Embedded>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    settings: Settings,
    standing: Mutex<Standing>,
    course: Mutex<Course>,
    /// When the remote last answered a call of ours, [`Mono`] microseconds.
    answered: AtomicU64,
    closed: watch::Sender<bool>,
}

/// Opens the spool in `settings.path`, or makes one there. Blocks while its log is read again. What `settings` says of retention does not
/// count: nobody looks for an event here that the remote has.
///
/// # Errors
///
/// Those of [`Embedded::open`]; [`Error::Locked`] when another process has this spool.
pub fn open(settings: embedded::Settings, clock: Arc<dyn Clock>) -> Result<Embedded, Error> {
    // Long enough for who has just found an event here to read it.
    let span = Duration::from_secs(10);
    let retention = Retention { delivered: span, dead: span, suppressed: span };
    let options = embedded::Options {
        // Space comes back by segments.
        segment_bytes: 16 << 20,
        suppress_repeats: false,
        ..embedded::Options::default()
    };
    Embedded::open_with(embedded::Settings { retention, ..settings }, clock, options)
}

/// Puts the spool that `settings` ask for before a store in Redis. Blocks while the spool's log is read again.
///
/// # Errors
///
/// Those of [`open`].
pub fn before_redis(
    redis: &Arc<Redis>,
    settings: &redis::Settings,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
) -> Result<Arc<Spooled>, Error> {
    let shard_of = Arc::clone(redis);
    let part_of: PartOf = Box::new(move |group| shard_of.shard_of(group).0);
    let local = settings.spool.then(|| {
        let spool = embedded::Settings {
            // Beside the node's name and token.
            path: settings.folder.join("spool"),
            durability: Durability::Fsync,
            max_bytes: None,
            min_free: MIN_FREE,
            retention: settings.retention,
        };
        open(spool, Arc::clone(&clock))
    });
    let remote = Arc::clone(redis) as Arc<dyn LaneStore>;
    Ok(Spooled::new((remote, part_of), local.transpose()?, clock, metrics, Settings::default()))
}

impl Spooled {
    /// Puts `local` before `remote`. What an earlier process left in it is taken up by [`Spooled::run`], which the caller has to run.
    #[must_use]
    pub fn new(
        (remote, part_of): (Arc<dyn LaneStore>, PartOf),
        local: Option<Embedded>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        settings: Settings,
    ) -> Arc<Self> {
        let left = local.as_ref().map_or(0, |local| local.usage().pending);
        if left > 0 {
            tracing::info!(
                events = left,
                "the spool has events of an earlier run; they go to the store when it answers"
            );
        }
        let answered = AtomicU64::new(clock.now().mono.0);
        Arc::new(Self {
            remote,
            part_of,
            local,
            clock,
            metrics,
            settings,
            standing: Mutex::new(Standing::new(left > 0)),
            course: Mutex::default(),
            answered,
            closed: watch::channel(false).0,
        })
    }

    fn now(&self) -> Mono {
        self.clock.now().mono
    }

    /// The remote answered, whatever it said.
    fn heard(&self) {
        self.answered.store(self.now().0, Ordering::Relaxed);
    }

    /// When the remote last answered anybody on this node.
    fn answered(&self) -> Mono {
        let ours = Mono(self.answered.load(Ordering::Relaxed));
        self.remote.usage().answered.map_or(ours, |theirs| theirs.max(ours))
    }

    /// Asks the remote something, for `patience` at most, and takes note of whether it answers.
    async fn ask<T>(&self, patience: Duration, call: BoxFuture<'_, Result<T, Error>>) -> Result<T, Error> {
        let answer = tokio::time::timeout(patience, call).await.unwrap_or_else(|_| {
            Err(Error::Unavailable(format!("it did not answer within {} ms", patience.as_millis())))
        });
        if !matches!(answer, Err(Error::Unavailable(_))) {
            self.heard();
        }
        answer
    }

    /// Whether it answered nobody for so long.
    fn is_silent(&self, span: Duration) -> bool {
        self.now().since(self.answered()) >= span
    }

    /// Events that are in the spool.
    fn waiting(&self) -> u64 {
        self.local.as_ref().map_or(0, |local| local.usage().pending)
    }

    fn spool_usage(&self) -> Option<SpoolUsage> {
        let usage = self.local.as_ref()?.usage();
        Some(SpoolUsage {
            events: usage.pending,
            bytes: usage.bytes,
            room_bytes: usage.room_bytes,
            oldest: usage.oldest,
        })
    }
}

/// Whether a seq is one of a spool's: the store does not have the event yet.
#[must_use]
pub fn is_spooled(seq: Seq) -> bool {
    seq.0 >= FIRST
}

/// What the spool's own seq is for everybody else.
fn outer(seq: Seq) -> Seq {
    Seq(FIRST.saturating_add(seq.0))
}

/// The other way round.
fn inner(seq: Seq) -> Seq {
    Seq(seq.0.saturating_sub(FIRST))
}

impl LaneStore for Spooled {
    fn append(&self, batch: Vec<Arc<Event>>) -> BoxFuture<'_, Result<Appended, Error>> {
        Box::pin(self.append_batch(batch))
    }

    /// Nothing but the remote gives leases, so a settlement of an event in the spool is about none.
    fn settle(&self, mut batch: Vec<Settlement>) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(async move {
            let asked = batch.len();
            batch.retain(|settlement| !is_spooled(settlement.seq));
            let left_out = asked - batch.len();
            Ok(self.remote.settle(batch).await? + left_out)
        })
    }

    /// What is in the spool has not ended.
    fn requeue(&self, seqs: Vec<Seq>, at: Wall) -> BoxFuture<'_, Result<Vec<Option<Pending>>, Error>> {
        Box::pin(async move {
            let theirs = seqs.iter().copied().filter(|seq| !is_spooled(*seq)).collect();
            let mut requeued = self.remote.requeue(theirs, at).await?.into_iter();
            Ok(seqs.into_iter().map(|seq| if is_spooled(seq) { None } else { requeued.next().flatten() }).collect())
        })
    }

    fn lanes(&self, after: Option<Lane>, limit: usize) -> BoxFuture<'_, Result<Vec<LaneSummary>, Error>> {
        self.remote.lanes(after, limit)
    }

    fn load(&self, lane: Lane, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.remote.load(lane, after, limit)
    }

    fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.remote.due(after, limit)
    }

    fn open(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.remote.open(after, limit)
    }

    fn read(&self, seqs: Vec<Seq>) -> BoxFuture<'_, Result<Vec<Option<Arc<Event>>>, Error>> {
        Box::pin(self.look_at(seqs))
    }

    fn find(&self, id: EventId) -> BoxFuture<'_, Result<Option<Story>, Error>> {
        Box::pin(self.look_for(id))
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.look_through(query))
    }

    /// Of the remote: what is in the spool has not ended.
    fn newest(&self) -> BoxFuture<'_, Result<Vec<Seq>, Error>> {
        self.remote.newest()
    }

    fn admits(&self, group: &Group) -> Result<(), Refusal> {
        let theirs = if self.standing.lock().takes((self.part_of)(group), self.now()) {
            self.remote.admits(group)
        } else {
            Err(Refusal::Unavailable)
        };
        match (theirs, &self.local) {
            (Err(Refusal::Unavailable), Some(local)) => local.admits(group),
            (theirs, _) => theirs,
        }
    }

    fn usage(&self) -> Usage {
        Usage { answered: Some(self.answered()), spool: self.spool_usage(), ..self.remote.usage() }
    }

    fn poisoned(&self) -> BoxFuture<'_, String> {
        Box::pin(async move {
            let ours = async {
                match &self.local {
                    Some(local) => format!("the spool: {}", local.poisoned().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reason = self.remote.poisoned() => reason,
                reason = ours => reason,
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.closed.send_replace(true);
            let left = self.waiting();
            if left > 0 {
                tracing::warn!(
                    events = left,
                    "the spool still has events; they go to the store after the next start here"
                );
            }
            // Whatever becomes of the remote, what is here is put away in order.
            let here = match &self.local {
                Some(local) => local.close().await,
                None => Ok(()),
            };
            self.remote.close().await.and(here)
        })
    }
}
