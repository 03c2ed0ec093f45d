//! The numbers the engine is given: plain structs, no parsing, no defaults from files.
//!
//! [`Settings`] holds for everybody, a [`Policy`] for one group. Both may change while the engine runs; a change
//! acts on queued events from the next lease on (R5).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What holds for everybody. [`Settings::default`] is the documented configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Attempts that may be in flight at once; at least 1.
    pub slots: u32,
    /// The slots of all nodes together, which the default cap is an eighth of; `None`: [`slots`](Self::slots) are all.
    pub slots_of_all: Option<u32>,
    /// The one deadline of an attempt. A lease that outlives it by five seconds is a violation.
    pub timeout: Duration,
    /// Attempts a time for the whole upstream.
    pub rate: Option<Rate>,
    /// What a lease costs.
    pub charge: Charge,
    /// The head start of a lane that becomes ready (R3), in worker time. With [`Charge::Events`] one second stands for
    /// one event.
    pub burst: Duration,
    /// When a group is slow, and what slow groups share.
    pub slow: Slow,
    /// What follows a failed attempt.
    pub retry: Retry,
    /// When failures stop attempts.
    pub breakers: Breakers,
    /// How long an event may hold its order key, counting only time in which the upstream answered other groups; for those of whose
    /// source nothing else is told ([`Engine::may_hold`](super::Engine::may_hold)).
    pub order_max_hold: Duration,
    /// The part of the slots that replays may hold together, 0 to 1; never less than one slot.
    pub replay_share: f64,
    /// Events of one lane kept in memory; the rest waits in the store.
    pub window: usize,
    /// Slots of their own for groups that keep demanding more than their share (R12).
    pub dedicated: Dedicated,
    /// Whether a group that outgrows even those is refused at admission.
    pub shed: bool,
    /// Lanes in memory at most; the events of further ones wait in overflow lanes (R10). Those that are found at the start come on top.
    pub max_active: usize,
    /// Lanes inside one group at most, before it gets overflow lanes of its own.
    pub inner_active: usize,
    /// Whether an attempt waits until its beginning is durable (I7). Without it both go out at once, and a crash may leave
    /// an attempt that was begun and not counted.
    pub begun_first: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 64,
            slots_of_all: None,
            timeout: Duration::from_secs(30),
            rate: None,
            charge: Charge::Time,
            burst: Duration::from_millis(500),
            slow: Slow { after: Duration::from_secs(1), factor: 4, share: 0.5 },
            retry: Retry {
                attempts: 12,
                max_age: Duration::from_secs(3 * 86_400),
                backoff: Backoff { initial: Duration::from_secs(5), factor: 2.0, max: Duration::from_secs(3_600) },
                concurrency: None,
            },
            breakers: Breakers {
                upstream: UpstreamBreaker {
                    failures: 20,
                    ratio: 0.5,
                    groups: 3,
                    window: Duration::from_secs(10),
                    open: Duration::from_secs(5),
                    open_max: Duration::from_secs(60),
                },
                group: GroupBreaker {
                    failures: 10,
                    window: Duration::from_secs(60),
                    open: Duration::from_secs(5),
                    open_max: Duration::from_secs(60),
                },
            },
            order_max_hold: Duration::from_secs(3_600),
            replay_share: 0.1,
            window: 256,
            dedicated: Dedicated {
                max: 0,
                slots: 8,
                promote_share: 0.3,
                demote_share: 0.1,
                promote_after: Duration::from_mins(15),
                demote_after: Duration::from_hours(1),
            },
            shed: false,
            max_active: 1_000_000,
            inner_active: 10_000,
            begun_first: true,
        }
    }
}

impl Settings {
    /// Slots that slow groups may hold together, of those that all share.
    pub(super) fn slow_slots(&self, shared: u32) -> u32 {
        part(shared, self.slow.share)
    }

    /// Slots that retries may hold together.
    pub(super) fn retry_slots(&self) -> u32 {
        self.retry.concurrency.unwrap_or(self.slots / 4).max(1)
    }

    /// Those of them that slow groups may hold together: the same part as of all slots.
    pub(super) fn slow_retry_slots(&self) -> u32 {
        part(self.retry_slots(), self.slow.share)
    }

    /// Slots that the retries of one group may hold.
    pub(super) fn group_retry_slots(&self) -> u32 {
        (self.retry_slots() / 4).max(1)
    }

    /// The cap of a group whose policy names none: an eighth of the slots, at least one.
    #[must_use]
    pub fn default_cap(&self) -> u32 {
        (self.slots_of_all.unwrap_or(self.slots) / 8).max(1)
    }

    /// Slots that replays may hold together. Retries of replays are retries.
    #[must_use]
    pub fn replay_slots(&self) -> u32 {
        part(self.slots, self.replay_share)
    }
}

/// A part of the slots, at least one.
fn part(slots: u32, share: f64) -> u32 {
    ((f64::from(slots) * share.clamp(0.0, 1.0)) as u32).max(1)
}

/// So many events in such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many; at least 1.
    pub events: u32,
    /// In how long; more than zero.
    pub per: Duration,
}

/// What a lease costs its lane (R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The time that it holds a slot.
    Time,
    /// The same for every attempt.
    Events,
}

/// R4b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slow {
    /// No lane with shorter attempts is slow.
    pub after: Duration,
    /// Nor one within so many times the upstream's median.
    pub factor: u32,
    /// The part of the slots that slow groups share, 0 to 1; never less than one slot.
    pub share: f64,
}

/// R12.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dedicated {
    /// Groups that may have slots of their own at one time, at most 8; 0: off.
    pub max: u32,
    /// Slots of each; all together never hold more than half of all.
    pub slots: u32,
    /// Who demands this part of all slots is promoted, 0 to 1,
    pub promote_share: f64,
    /// and who demands less than this is demoted,
    pub demote_share: f64,
    /// after so long, while its backlog grew,
    pub promote_after: Duration,
    /// and after so long.
    pub demote_after: Duration,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// After so many answers that refuse the event (4xx other than 408, 425, 429) it is dead.
    pub attempts: u32,
    /// So long after its first attempt it is dead.
    pub max_age: Duration,
    /// How long it waits in between.
    pub backoff: Backoff,
    /// Slots that all retries may hold; a quarter of the slots when not given.
    pub concurrency: Option<u32>,
}

/// After the n-th failure uniform in [0.5, 1] × min(initial · factorⁿ⁻¹, max).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// After the first.
    pub initial: Duration,
    /// How it grows; at least 1.
    pub factor: f64,
    /// Where it ends.
    pub max: Duration,
}

/// R8, both of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breakers {
    /// For the whole upstream.
    pub upstream: UpstreamBreaker,
    /// For one group.
    pub group: GroupBreaker,
}

/// Opens at `failures` within `window` that are `ratio` of the attempts and come from `groups` groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpstreamBreaker {
    /// How many failures.
    pub failures: u32,
    /// Which part of the attempts, 0 to 1.
    pub ratio: f64,
    /// From how many groups.
    pub groups: u32,
    /// Within how long.
    pub window: Duration,
    /// How long it stays open the first time.
    pub open: Duration,
    /// What the doubling ends at.
    pub open_max: Duration,
}

/// Opens at `failures` in a row within `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBreaker {
    /// How many failures.
    pub failures: u32,
    /// Within how long.
    pub window: Duration,
    /// How long it stays open the first time.
    pub open: Duration,
    /// What the doubling ends at.
    pub open_max: Duration,
}

/// What holds for one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Its share relative to others; 0.001 to 1,000,000, in steps of a thousandth.
    pub weight: f64,
    /// Its attempts in flight; an eighth of the slots when not given.
    pub concurrency: Option<u32>,
    /// Its attempts a time.
    pub rate: Option<Rate>,
    /// Whether it waits.
    pub paused: bool,
    /// Its events that may wait; beyond it [`Engine::admit`](super::Engine::admit) takes no more. No cap when not given.
    pub backlog: Option<u32>,
    /// Whether somebody chose its cap for it: then no slots of its own take the place of that (R12).
    pub chosen: bool,
    /// Whether somebody has named exactly this group: then it gets a lane of its own, however many there are (R10).
    pub named: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { weight: 1.0, concurrency: None, rate: None, paused: false, backlog: None, chosen: false, named: false }
    }
}
