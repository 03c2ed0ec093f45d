//! A pending event as it is kept in memory, and the line of time on which its moments lie.

use std::time::Duration;

use super::Queued;
use super::overflow::Member;
use crate::event::{Group, Lane, Mono, Now, Seq, Wall};

/// A pending event in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ev {
    pub(super) seq: Seq,
    pub(super) order: Option<Group>,
    /// Since when it waits, on the line of [`Mono`], which began before this process for some.
    pub(super) since: i64,
    /// When it was received, on the same line.
    pub(super) received: i64,
    /// When its first attempt began, on the same line.
    pub(super) first: Option<i64>,
    pub(super) attempts: u32,
    pub(super) refused: u32,
    /// What the hold clock of its group showed when it began to hold its order key.
    pub(super) held_from: Option<u64>,
    /// How often it was made pending again.
    pub(super) replays: u32,
    /// It found its group within its head start.
    pub(super) quiet: bool,
    /// How long it waited for an earlier event of its order key; four bytes, for a million events are in memory.
    pub(super) held_ms: u32,
    /// The store has it as retrying.
    pub(super) retrying: bool,
    /// Whose it is, if it waits in an overflow lane.
    pub(super) member: Member,
}

impl Ev {
    pub(super) fn new(seq: Seq) -> Self {
        Self {
            seq,
            order: None,
            since: 0,
            received: 0,
            first: None,
            attempts: 0,
            refused: 0,
            held_from: None,
            replays: 0,
            quiet: false,
            held_ms: 0,
            retrying: false,
            member: Member::default(),
        }
    }

    /// From what the store says.
    pub(super) fn from_queued(event: Queued, now: Now) -> (Lane, Self) {
        let member = Member::of(&event.lane, event.owner.as_ref());
        // In a lane that others share, order keys of different owners are different.
        let order = match (event.order, &event.owner) {
            (Some(key), Some(owner)) => {
                Some(Group::joined([&owner.group].into_iter().chain(&owner.inner).chain([&key])))
            }
            (order, _) => order,
        };
        let ev = Self {
            order,
            member,
            since: on_line(now, event.received),
            received: on_line(now, event.received),
            first: event.first_attempt.map(|at| on_line(now, at)),
            attempts: event.attempts,
            refused: event.refused,
            replays: event.replays,
            ..Self::new(event.seq)
        };
        (event.lane, ev)
    }

    /// Whether it is a replay (R6).
    pub(super) fn is_replay(&self) -> bool {
        self.replays > 0
    }

    /// The event before it with its order key has ended: it may go from now on.
    pub(super) fn freed(self, now: Mono) -> Self {
        let held = since_line(self.since, now).as_millis();
        Self { held_ms: u32::try_from(held).unwrap_or(u32::MAX), ..self }
    }

    /// How long ago its first attempt began.
    pub(super) fn age(&self, now: Mono) -> Duration {
        since_line(self.first.unwrap_or_else(|| line(now)), now)
    }
}

/// A moment as a place on a line that reaches back before the machine started.
pub(super) fn line(at: Mono) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

pub(super) fn since_line(from: i64, now: Mono) -> Duration {
    Duration::from_micros(u64::try_from(line(now).saturating_sub(from)).unwrap_or(0))
}

/// A stored time on the line; one that lies ahead, after a clock was set back, is now.
pub(super) fn on_line(now: Now, wall: Wall) -> i64 {
    let ago = i64::try_from(now.wall.0.saturating_sub(wall.0)).unwrap_or(i64::MAX);
    line(now.mono).saturating_sub(ago)
}
