//! What survives a crash: the contract that every store keeps.
//!
//! A store holds *events* in *lanes* and learns what became of them. It decides nothing: it does not
//! know what a turn, a cap or a retry rule is. Its caller is the driver alone, which starts at most one
//! `append` or `requeue` and one `settle` at a time; reads may run beside them.
//!
//! # The contract
//!
//! 1. **Append.** A batch becomes durable whole or not at all. Events get consecutive [`Seq`]s in the order
//!    given, across batches in the order of the calls. When the future resolves with `Ok`, the events survive
//!    `kill -9` and (with `durability: fsync`) a power cut. A batch that failed with [`Error::Full`] or
//!    [`Error::Unavailable`] left nothing behind; after any other error the outcome is unknown and the store
//!    takes no more writes.
//!    *Repeats*: an event whose [`Fingerprint`](crate::event::Fingerprint) that of an earlier one equals, in the same batch or before, is
//!    stored as [suppressed](Status::Suppressed), in the same step; which ones those are is in the answer. It is none when it was received
//!    after the earlier one's window, or the earlier one is dead.
//! 2. **Settle.** The same for a batch of [`Settlement`]s. One about an event that is not pending (never
//!    existed, or settled before) changes nothing and is counted in the answer: a settlement may be repeated.
//! 3. **Pending.** An event is pending from its append until a settlement ends it ([`Verdict::ends`]). Pending events of a
//!    lane are *fresh* (never leased, or handed back) or *retrying* (have a due time). [`LaneStore::load`]
//!    gives a lane's fresh events in the order of their seqs; [`LaneStore::due`] gives the retrying ones of all lanes in the order of
//!    their due times.
//! 4. **Leases.** [`Verdict::Begun`] counts an attempt before its first byte is sent and leaves the event open: until another
//!    settlement it is neither fresh nor retrying (no list but [`LaneStore::open`] has it, and its due time is `None`). An event
//!    found open after a restart was in flight when the process died; it is still pending, its attempt counted.
//!    The driver answers with [`Verdict::Interrupted`].
//! 5. **History.** An ended event stays readable, body included, until its retention is over; a pending one always is.
//!    Nothing that is pending is ever given up for space.
//! 6. **Reopening** gives exactly what was durable: same seqs, lanes, counts, attempts, due times, statuses and bytes.
//!
//! [`memory::Memory`] is the contract in its simplest form, with faults on demand; [`embedded::Embedded`] is the one
//! that serves on one machine, [`redis::Redis`] the one that many nodes share. `tests/store.rs` runs one suite over all of them.
//! [`spool::Spooled`] stands before one that is elsewhere.

pub mod arrivals;
mod bucket;
pub mod disk;
pub mod doctor;
pub mod embedded;
mod index;
mod log;
pub mod memory;
mod moments;
pub mod notebook;
mod record;
pub mod redis;
mod repeats;
mod room;
mod row;
pub mod spool;
mod state;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::{Event, EventId, Group, KeySource, Lane, Mono, Seq, WaitSplit, Wall};

/// A boxed future: one allocation a batch, and no generics that spread upwards.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What every store does. See the contract at the top of this module.
pub trait LaneStore: Send + Sync + 'static {
    /// Makes `batch` durable, whole or not at all, and numbers it: the answer has the seq of the first event, the
    /// others follow without a gap. An empty batch is an error of the caller and gives the next free seq.
    /// A store in shards does so shard by shard, and says for each event what became of it ([`Appended::places`]).
    fn append(&self, batch: Vec<Arc<Event>>) -> BoxFuture<'_, Result<Appended, Error>>;

    /// Makes `batch` durable, whole or not at all. The answer is how many of them were about an event that
    /// is not pending (and changed nothing).
    fn settle(&self, batch: Vec<Settlement>) -> BoxFuture<'_, Result<usize, Error>>;

    /// Makes ended events pending again, as [`Verdict::Requeued`] says, whole or not at all, with consecutive seqs in the order given. One
    /// answer a seq: the event as it is pending now; `None` for one that is not there, not ended or past retention, and stays as it is.
    fn requeue(&self, seqs: Vec<Seq>, at: Wall) -> BoxFuture<'_, Result<Vec<Option<Pending>>, Error>>;

    /// Lanes with pending events, in the order of their names, those after `after`, at most `limit`.
    fn lanes(&self, after: Option<Lane>, limit: usize) -> BoxFuture<'_, Result<Vec<LaneSummary>, Error>>;

    /// A lane's fresh events with a seq above `after`, in the order of their seqs, at most `limit`.
    fn load(&self, lane: Lane, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>>;

    /// Retrying events of all lanes in the order of (due time, seq), those after `after`, at most `limit`.
    fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>>;

    /// Events with an open lease, in the order of their seqs, those after `after`, at most `limit`: after a restart, those
    /// that were in flight.
    fn open(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>>;

    /// The events themselves, bodies included, one answer a seq; `None` for one that is gone.
    fn read(&self, seqs: Vec<Seq>) -> BoxFuture<'_, Result<Vec<Option<Arc<Event>>>, Error>>;

    /// Where an event stands, by its id, with its attempts; `None` when it is unknown or past retention.
    fn find(&self, id: EventId) -> BoxFuture<'_, Result<Option<Story>, Error>>;

    /// Events, pending and ended, in the order of their seqs.
    fn list(&self, query: Query) -> BoxFuture<'_, Result<Page, Error>>;

    /// The seq of the youngest event there is; of a store in shards, of each shard that has had events.
    fn newest(&self) -> BoxFuture<'_, Result<Vec<Seq>, Error>> {
        let list = self.list(Query { limit: 1, ..Query::default() });
        Box::pin(async move { Ok(list.await?.records.iter().map(|record| record.seq).collect()) })
    }

    /// Whether an event of `group` may be stored now. Answers from memory, without waiting.
    fn admits(&self, group: &Group) -> Result<(), Refusal>;

    /// Sizes, for metrics and marks. Answers from memory, without waiting.
    fn usage(&self) -> Usage;

    /// Resolves when the store can take no more writes in this process (a failed fsync, damage while running), with the
    /// reason. The process has to end.
    fn poisoned(&self) -> BoxFuture<'_, String>;

    /// Makes everything durable and lets go of files. Later calls fail with [`Error::Unavailable`].
    fn close(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// A batch that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The seq of its first event that was stored; of a batch without any, the next free one.
    pub first: Seq,
    /// Those of its events that were stored as suppressed, in their order.
    pub repeats: Vec<Repeat>,
    /// What became of each event, where they do not just follow `first` without a gap: a store in shards numbers each shard on its own
    /// and may refuse a part of a batch. Empty otherwise. [`Appended::place`] answers for both.
    pub places: Vec<Result<Seq, Refusal>>,
}

/// An event that repeats another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Its place in the batch, from 0.
    pub number: usize,
    /// The event that it repeats.
    pub of: EventId,
}

impl From<Seq> for Appended {
    /// A batch without repeats whose events follow one another.
    fn from(first: Seq) -> Self {
        Self { first, repeats: Vec::new(), places: Vec::new() }
    }
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// Which event.
    pub seq: Seq,
    /// When this was decided.
    pub at: Wall,
    /// What follows.
    pub verdict: Verdict,
    /// What the attempt gave, where one ended.
    pub attempt: Option<AttemptNote>,
}

/// What follows for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An attempt begins; it is counted, and the event is open until another settlement.
    Begun,
    /// The open attempt ended with the process; it stays counted, and the event is retrying, due at once.
    /// The count of interruptions in a row grows; any other end of an attempt sets it to 0.
    Interrupted,
    /// Try again, not before this time.
    RetryAt(Wall),
    /// Handed back: fresh again, at its old place. An attempt that was begun stays counted; the count of interruptions is 0.
    Released,
    /// The upstream has it.
    Delivered,
    /// Given up; why, in words.
    Dead(Box<str>),
    /// Thrown away by a person.
    Discarded,
    /// An ended event becomes pending again under a new seq at the end of its lane, attempts and refusals counted anew, its id and
    /// history kept, marked as a [replay](Pending::replays) unless it was suppressed, for then it goes to the upstream for the first time.
    /// The one verdict that is about an event that is *not* pending.
    Requeued,
}

impl Verdict {
    /// Whether the event is no longer pending after it.
    #[must_use]
    pub fn ends(&self) -> bool {
        match self {
            Self::Begun | Self::Interrupted | Self::RetryAt(_) | Self::Released | Self::Requeued => false,
            Self::Delivered | Self::Dead(_) | Self::Discarded => true,
        }
    }
}

/// What one attempt gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptNote {
    /// The how-manieth, from 1.
    pub number: u32,
    /// When it began.
    pub started: Wall,
    /// How long it took.
    pub took: Duration,
    /// Its outcome's name, e.g. `delivered`, `refused`, `timeout_head`, `status`.
    pub outcome: Box<str>,
    /// The upstream's status, where it answered.
    pub status: Option<u16>,
    /// What went wrong, in words; empty where nothing did.
    pub error: Box<str>,
    /// The beginning of the answer's body, at most [`EXCERPT_BYTES_MAX`].
    pub excerpt: Bytes,
    /// Whether it counts against `retry.attempts`: the upstream refused the event.
    pub refused: bool,
    /// What the event waited for before it.
    pub waited: WaitSplit,
}

/// Longest part of an upstream's answer that is kept with an attempt.
pub const EXCERPT_BYTES_MAX: usize = 4096;

/// A pending event as the scheduler needs it: no headers, no body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its place.
    pub seq: Seq,
    /// Its name.
    pub id: EventId,
    /// Where it waits.
    pub lane: Lane,
    /// The lane that it belongs to, where it waits in an overflow lane instead.
    pub owner: Option<Lane>,
    /// Its order key.
    pub order: Option<Group>,
    /// When it was received.
    pub received: Wall,
    /// Attempts begun so far.
    pub attempts: u32,
    /// When the first of them began; retries are limited by age from here.
    pub first_attempt: Option<Wall>,
    /// When it may be tried again; `None` while it is fresh or open.
    pub due: Option<Wall>,
    /// Whether an attempt has begun and not ended.
    pub open: bool,
    /// Attempts in a row that ended with the process.
    pub interrupted: u32,
    /// Attempts whose note says that they were [refused](AttemptNote::refused).
    pub refused: u32,
    /// Bytes of its record, for limits.
    pub bytes: u32,
    /// How often it was [requeued](Verdict::Requeued), other than from suppressed; it is a replay where that is not 0.
    pub replays: u32,
    /// When it was requeued last.
    pub requeued: Option<Wall>,
}

/// A lane that has pending events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSummary {
    /// Which.
    pub lane: Lane,
    /// Pending events that are fresh.
    pub fresh: u64,
    /// Pending events that are retrying.
    pub retrying: u64,
    /// Bytes of all their records.
    pub bytes: u64,
    /// Since when the pending event of the lane that waits longest waits (its receipt, or its requeue), open ones included; in a lane with many it may be shortly before
    /// that (by less than a sixteenth of the time between its oldest and its newest).
    pub oldest: Wall,
}

/// Where an event stands, with what a list shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub seq: Seq,
    /// Its name.
    pub id: EventId,
    /// Where it waits, or waited.
    pub lane: Lane,
    /// Its order key.
    pub order: Option<Group>,
    /// The lane that it belongs to, where that is an overflow lane.
    pub owner: Option<Lane>,
    /// Where its key came from.
    pub key_source: KeySource,
    /// The source that took it.
    pub source: Arc<str>,
    /// When it was received.
    pub received: Wall,
    /// The sender's own id for it.
    pub provider_event_id: Option<Box<str>>,
    /// The sender's name for what happened.
    pub event_type: Option<Box<str>>,
    /// Where it stands.
    pub status: Status,
    /// Attempts begun so far.
    pub attempts: u32,
    /// When the status was last changed by a settlement.
    pub settled: Option<Wall>,
    /// When it may be tried again, while it is retrying.
    pub due: Option<Wall>,
    /// Why it is dead; empty otherwise.
    pub reason: Box<str>,
    /// Bytes of its body.
    pub body_bytes: u32,
    /// How often it was [requeued](Verdict::Requeued).
    pub replays: u32,
    /// The event that it repeats, of one that is or was suppressed.
    pub duplicate_of: Option<EventId>,
    /// The trace that it belongs to.
    pub trace: Option<[u8; 16]>,
}

impl Record {
    /// The lane that it belongs to, wherever it waits.
    #[must_use]
    pub fn home(&self) -> &Lane {
        self.owner.as_ref().unwrap_or(&self.lane)
    }
}

/// An event's record with all that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Where it stands.
    pub record: Record,
    /// Its attempts that ended, oldest first.
    pub attempts: Vec<AttemptNote>,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Waits for its first attempt.
    Queued,
    /// An attempt is under way.
    InFlight,
    /// Waits for a further attempt.
    Retrying,
    /// The upstream has it.
    Delivered,
    /// Given up.
    Dead,
    /// A duplicate, kept and not delivered.
    Suppressed,
    /// Thrown away by a person.
    Discarded,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::InFlight, Self::Retrying, Self::Delivered, Self::Dead, Self::Suppressed, Self::Discarded];

    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InFlight => "in_flight",
            Self::Retrying => "retrying",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Suppressed => "suppressed",
            Self::Discarded => "discarded",
        }
    }

    /// Whether an event that stands here is pending.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::InFlight | Self::Retrying)
    }
}

/// Which events to list. Every condition that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only of this group (all its lanes, and what of it waits in an overflow lane).
    pub group: Option<Group>,
    /// Only of this source.
    pub source: Option<Arc<str>>,
    /// Only in one of these; all when empty.
    pub status: Vec<Status>,
    /// Received at this time or later.
    pub since: Option<Wall>,
    /// Received before this time.
    pub until: Option<Wall>,
    /// Only with this id of the sender's.
    pub provider_event_id: Option<Box<str>>,
    /// Oldest (lowest seq) first, instead of newest first.
    pub oldest_first: bool,
    /// Where the page before ended: only events behind it, with a lower seq, or a higher one when the oldest comes first.
    pub behind: Option<Seq>,
    /// At most this many, 1 to 1,000.
    pub limit: usize,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order of their seqs, as the query says.
    pub records: Vec<Record>,
    /// Give this as [`Query::behind`] for the next page; `None` when this was the last. A page may be short, even empty, and
    /// not the last: one call scans a bounded number of entries.
    pub next: Option<Seq>,
    /// When the last event was received that was looked at; `None` when this was the last page.
    pub reached: Option<Wall>,
}

/// Why an event may not be stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room for new events of anybody: answer 503.
    Full,
    /// This group holds so much of the little room left that others would suffer: answer 429.
    GroupTooLarge,
    /// As many events of this group are pending as may be: answer 429.
    Backlog,
    /// The store takes no writes: answer 503.
    Unavailable,
    /// The store did not say in time whether it has the event: answer 503. It may be stored all the same.
    Unknown,
}

/// Sizes of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pending events.
    pub pending: u64,
    /// Ended events still readable.
    pub history: u64,
    /// Lanes with pending events.
    pub lanes: u64,
    /// Bytes on disk, or in memory for one that has no disk.
    pub bytes: u64,
    /// Bytes free on the file system; `u64::MAX` for one that has no disk.
    pub free: u64,
    /// Since when the pending event that waits longest waits: its receipt, or its requeue.
    pub oldest: Option<Wall>,
    /// Room in thousandths of what must stay free: below 2000 the oldest delivered history goes, below 1500 the groups that hold most are
    /// refused, below 1000 everybody is. [`Usage::UNLIMITED`] for one that has no such marks.
    pub room: u64,
    /// Bytes that may still be taken before everybody is refused.
    pub room_bytes: u64,
    /// When it last answered, of a store that is elsewhere.
    pub answered: Option<Mono>,
    /// What waits on this machine for a store that is elsewhere, where there is a [spool](spool).
    pub spool: Option<SpoolUsage>,
}

/// Sizes of a spool. None of it counts in the [`Usage`] of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolUsage {
    /// Events that the store does not have yet.
    pub events: u64,
    /// Bytes on disk, room that is set aside included.
    pub bytes: u64,
    /// Bytes that may still be taken before events are refused while the store is away.
    pub room_bytes: u64,
    /// When the oldest of its events was received.
    pub oldest: Option<Wall>,
}

impl Usage {
    /// The room of a store without marks.
    pub const UNLIMITED: u64 = u64::MAX;
}

/// How long ended events stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Delivered and discarded ones, from their end.
    pub delivered: Duration,
    /// Dead ones.
    pub dead: Duration,
    /// Suppressed ones.
    pub suppressed: Duration,
}

/// When an append counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync`: survives a power cut.
    Fsync,
    /// After `write`: survives the process, not the machine.
    Os,
}

impl Durability {
    /// Its name in the configuration and in `fairlane_build_info`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
        }
    }
}

/// Why a store could not do what it was asked. Each is a different thing that the caller does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was written; try again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Nothing was written; there is no room. Refuse new events until there is.
    #[error("the store is full: {0}")]
    Full(String),
    /// What is on disk is damaged in the middle. Stop and let a person look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Whether the last batch is durable is unknown. End the process; a restart reads what is there.
    #[error("the store takes no more writes: {0}")]
    Poisoned(String),
    /// Another process has it open.
    #[error("the store is in use: {0}")]
    Locked(String),
}
