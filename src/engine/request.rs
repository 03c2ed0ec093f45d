//! What the engine asks for: attempts, settlements, events from the store.

use std::time::Duration;

use super::live::{LiveId, Unserved};
use crate::event::{Group, Lane, Mono, Seq, WaitSplit, Wall};

/// Names one lease. Tickets grow and are never used again, so a late report about an old one cannot touch a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names one batch of settlements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Batch(pub u64);

/// One thing to do. Each is answered by the fact named with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Make one attempt; then [`on_finished`](super::Engine::on_finished).
    Dispatch(Dispatch),
    /// Make one attempt for a sender that waits for its answer; then [`on_finished`](super::Engine::on_finished).
    Live(LiveDispatch),
    /// A live request gets no attempt: its sender is told so. The engine has forgotten it.
    Unserved {
        /// Which.
        live: LiveId,
        /// Why.
        why: Unserved,
    },
    /// Make these durable, whole and in this order; then [`on_settled`](super::Engine::on_settled) or
    /// [`on_settle_failed`](super::Engine::on_settle_failed). One batch is under way at a time.
    Settle {
        /// Its name. A batch that failed comes again under the same.
        batch: Batch,
        /// What to write.
        settlements: Vec<Settle>,
    },
    /// Read a lane's fresh events; then [`on_loaded`](super::Engine::on_loaded). One a lane at a time.
    Load {
        /// Which lane.
        lane: Lane,
        /// Only those with a seq above this.
        after: Seq,
        /// At most so many.
        n: usize,
    },
    /// Read retrying events of all lanes in the order of (due, seq); then [`on_due_loaded`](super::Engine::on_due_loaded). One at a
    /// time.
    LoadDue {
        /// Only those after this.
        after: Option<(Wall, Seq)>,
        /// At most so many.
        n: usize,
    },
    /// End this attempt now. Its end is reported like any other.
    Cancel {
        /// Which.
        ticket: Ticket,
    },
}

/// One attempt to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The lease.
    pub ticket: Ticket,
    /// Of which event.
    pub seq: Seq,
    /// Of which lane.
    pub lane: Lane,
    /// The how-manieth attempt of the event, from 1.
    pub attempt: u32,
    /// How often the event was made pending again.
    pub replays: u32,
    /// Whether any failure that is not final would be followed by another attempt.
    pub will_retry: bool,
    /// From the durable commit (for a retry: from its due time) to the lease.
    pub wait: Duration,
    /// What it waited for; adds up to `wait`.
    pub split: WaitSplit,
    /// Whether the event found its lane within its head start: what is promised to the quiet is measured on these.
    pub quiet: bool,
    /// When the attempt must have ended.
    pub deadline: Mono,
}

/// One attempt of a live request: its first and only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDispatch {
    /// The lease.
    pub ticket: Ticket,
    /// Of which live request.
    pub live: LiveId,
    /// Of which group.
    pub group: Group,
    /// From its arrival to the lease.
    pub wait: Duration,
    /// What it waited for; adds up to `wait`.
    pub split: WaitSplit,
    /// How long the attempt may take.
    pub timeout: Duration,
}

/// What follows for an event; to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Which event.
    pub seq: Seq,
    /// When this was decided.
    pub at: Wall,
    /// What follows.
    pub verdict: Verdict,
}

/// What follows for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An attempt begins, and counts.
    Begun,
    /// Try again, not before this time.
    RetryAt(Wall),
    /// Handed back without an attempt: fresh again, at its old place.
    Released,
    /// The upstream has it.
    Delivered,
    /// Given up; why, in words.
    Dead(Box<str>),
    /// Thrown away by a person.
    Discarded,
}

/// The order in which [`Engine::groups`](super::Engine::groups) lists them; each descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// By the age of the oldest pending event.
    Age,
    /// By pending events.
    Depth,
    /// By worker time in the last minute.
    Seconds,
    /// By arrivals in the last minute.
    Rate,
}

/// Where a group stands. A group is in exactly one of these (I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has nothing that could go.
    Idle,
    /// It waits for its turn.
    Ready,
    /// Its attempts in flight are as many as its cap.
    Capped,
    /// Its rate has no token.
    Limited,
    /// A person paused it.
    Paused,
    /// Its breaker is open, or the upstream's.
    Broken,
    /// A `Retry-After`, or an order key, holds it back.
    Held,
    /// Slow groups hold all the slots they may.
    Slow,
    /// It has only retries or replays, and they hold all the slots they may.
    RetrySlots,
    /// It runs on slots of its own (R12).
    Dedicated,
}

impl State {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Capped => "capped",
            Self::Limited => "limited",
            Self::Paused => "paused",
            Self::Broken => "broken",
            Self::Held => "held",
            Self::Slow => "slow",
            Self::RetrySlots => "retry_slots",
            Self::Dedicated => "dedicated",
        }
    }
}

/// A group as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupView {
    /// Which.
    pub group: Group,
    /// Where it stands.
    pub state: State,
    /// Why it does not run, in words; empty when it may.
    pub reason: String,
    /// Its weight.
    pub weight: f64,
    /// Its cap, the default put in.
    pub concurrency: u32,
    /// Its rate.
    pub rate: Option<super::Rate>,
    /// Whether it is paused.
    pub paused: bool,
    /// Its events that may wait; `None`: any number.
    pub backlog: Option<u32>,
    /// Where it stands with slots of its own; `None`: it demands no more than others.
    pub dedicated: Option<super::DedicatedView>,
    /// Fresh events.
    pub queued: u64,
    /// Events that wait for a further attempt.
    pub retrying: u64,
    /// Live requests that wait for their turn.
    pub live: u32,
    /// Attempts in flight, those of live requests with them.
    pub in_flight: u32,
    /// How long ago its oldest pending event was received; too long for a group that works off tried events of which some are only in
    /// the store.
    pub oldest: Duration,
    /// Worker time since it is counted.
    pub worker_time: Duration,
    /// Its part of all worker time in the last minute, 0 to 1.
    pub share: f64,
    /// Events a second that arrived in the last minute.
    pub arrival_rate: f64,
    /// Events a second that ended in the last minute.
    pub drain_rate: f64,
    /// The 99th percentile of waits in the last minutes; `None` before the first lease.
    pub wait_p99: Option<Duration>,
    /// What its events and live requests waited for, of those that got their lease in the last minute (in the last half minute at
    /// least). Empty where none of them waited.
    pub waited: WaitSplit,
    /// How long until its backlog is gone at these rates; `None` when it does not shrink, or nothing of it may go now.
    pub eta: Option<Duration>,
    /// Events that became durable since it is counted; replays are none.
    pub accepted: u64,
    /// Of its events, those that were delivered since then, durably.
    pub delivered: u64,
    /// Those that went to the dead letters.
    pub dead: u64,
    /// Since how long it is counted: from its first event in this process, or its first after it was forgotten for being idle longer
    /// than 10,000 others. `None` where nothing is known of it.
    pub counted: Option<Duration>,
    /// The overflow lane in which its events wait, or its next one would: there are too many groups for a lane each (R10).
    pub overflow: Option<Group>,
}

/// An order key that is held: its head has failed and will be tried again, and the events behind it wait for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The key.
    pub key: Group,
    /// The part of the group that it is in.
    pub inner: Option<Group>,
    /// Its head.
    pub seq: Seq,
    /// How long ago its head's first attempt began.
    pub since: Duration,
    /// Attempts of it so far.
    pub attempts: u32,
    /// When the next one may begin; `None` where that time has come.
    pub due: Option<Duration>,
}

/// Who holds the slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Attempts in flight.
    pub busy: u32,
    /// Of them, those of slow groups.
    pub slow: u32,
    /// Of them, retries.
    pub retry: u32,
    /// Of them, replays.
    pub replay: u32,
    /// Those that could be taken now by any group: fewer than the rest during slow start.
    pub free: u32,
    /// Those taken out of the total for groups that have slots of their own, used or not.
    pub dedicated: u32,
}

/// A breaker's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Attempts go.
    Closed,
    /// Attempts go, few at first.
    SlowStart {
        /// How many at a time.
        slots: u32,
    },
    /// One attempt at a time, to see.
    HalfOpen,
    /// No attempts before this time.
    Open {
        /// When the first attempt may go.
        until: Mono,
    },
}

/// Cumulative counters and what stands; I1 is an equation between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events that were appended while the engine ran, replays and released ones with them.
    pub appended: u64,
    /// Events that were found pending at the start.
    pub recovered: u64,
    /// Pending events that another node has taken over.
    pub moved: u64,
    /// Durably delivered.
    pub delivered: u64,
    /// Durably dead.
    pub dead: u64,
    /// Durably discarded.
    pub discarded: u64,
    /// Fresh events.
    pub queued: u64,
    /// Events that wait for a further attempt.
    pub retrying: u64,
    /// Events with a lease, or whose settlement is not durable yet.
    pub in_flight: u64,
    /// Leases ever given, those of live requests with them.
    pub leases: u64,
}
