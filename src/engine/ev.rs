//! A pending event as it is kept in memory, and the line of time on which its moments lie.

use std::time::Duration;

use super::Queued;
use super::overflow::Member;
use super::working::Held;
use crate::event::{Group, Lane, Mono, Now, Seq, Wall};

/// A pending event in memory. A million are, so it is small: what most do not have is apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ev {
    pub(super) seq: Seq,
    /// Since when it waits, on the line of [`Mono`], which began before this process for some.
    pub(super) since: i64,
    /// When it was received, on the same line.
    pub(super) received: i64,
    /// When its first attempt began, on the same line; [`NEVER`] before it did.
    first: i64,
    pub(super) attempts: u32,
    /// How often it was made pending again.
    pub(super) replays: u32,
    /// It found its group within its head start.
    pub(super) quiet: bool,
    /// The store has it as retrying.
    pub(super) retrying: bool,
    rare: Option<Box<Rare>>,
}

/// What few events have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rare {
    order: Option<Group>,
    refused: u32,
    /// Since when it holds its order key, as far as that counts: it has failed in this process.
    holds: Option<Held>,
    /// How long it waited for an earlier event of its order key.
    held_ms: u32,
    /// Whose it is, if it waits in an overflow lane.
    member: Member,
}

/// No moment of the line.
const NEVER: i64 = i64::MIN;

impl Ev {
    pub(super) fn new(seq: Seq) -> Self {
        Self {
            seq,
            since: 0,
            received: 0,
            first: NEVER,
            attempts: 0,
            replays: 0,
            quiet: false,
            retrying: false,
            rare: None,
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
        let rare = Rare { order, member, refused: event.refused, ..Rare::default() };
        let ev = Self {
            since: on_line(now, event.received),
            received: on_line(now, event.received),
            first: event.first_attempt.map_or(NEVER, |at| on_line(now, at)),
            attempts: event.attempts,
            replays: event.replays,
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            ..Self::new(event.seq)
        };
        (event.lane, ev)
    }

    /// Whether it is a replay (R6).
    pub(super) fn is_replay(&self) -> bool {
        self.replays > 0
    }

    #[cfg(test)]
    pub(super) fn ordered(mut self, key: Group) -> Self {
        self.rare.get_or_insert_default().order = Some(key);
        self
    }

    /// One that had so many attempts, the first of them then on the line, and was refused so often.
    #[cfg(test)]
    pub(super) fn tried(attempts: u32, first: i64, refused: u32) -> Self {
        let rare = Some(Box::new(Rare { refused, ..Rare::default() }));
        Self { attempts, first, rare, ..Self::new(Seq(1)) }
    }

    /// What it shares with those that go one after another with it (R7).
    pub(super) fn order(&self) -> Option<&Group> {
        self.rare.as_ref()?.order.as_ref()
    }

    /// Whose it is, if it waits in an overflow lane.
    pub(super) fn member(&self) -> Member {
        self.rare.as_ref().map_or_else(Member::default, |rare| rare.member)
    }

    /// Attempts that were answered with a refusal.
    pub(super) fn refused(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.refused)
    }

    /// Another one was.
    pub(super) fn refuse(&mut self) {
        let rare = self.rare.get_or_insert_default();
        rare.refused = rare.refused.saturating_add(1);
    }

    /// Whether it has failed in this process and holds its order key since.
    pub(super) fn is_holding(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.holds.is_some())
    }

    /// Since when it holds its order key, for one that has one.
    pub(super) fn holds(&mut self) -> &mut Option<Held> {
        &mut self.rare.get_or_insert_default().holds
    }

    /// How long it waited for an earlier event of its order key.
    pub(super) fn held(&self) -> Duration {
        Duration::from_millis(self.rare.as_ref().map_or(0, |rare| rare.held_ms.into()))
    }

    /// The event before it with its order key has ended: it may go from now on.
    pub(super) fn freed(mut self, now: Mono) -> Self {
        let held = since_line(self.since, now).as_millis();
        self.rare.get_or_insert_default().held_ms = u32::try_from(held).unwrap_or(u32::MAX);
        self
    }

    /// It waits for its time, to be tried again.
    pub(super) fn retries(mut self) -> Self {
        self.retrying = true;
        if let Some(rare) = &mut self.rare {
            rare.held_ms = 0;
        }
        self
    }

    /// It goes back to its place, as if it had not been tried.
    pub(super) fn waits_again(mut self) -> Self {
        self.retrying = false;
        self
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, now: Mono) {
        self.attempts = self.attempts.saturating_add(1);
        if self.first == NEVER {
            self.first = line(now);
        }
    }

    /// When its first attempt began, on the line.
    pub(super) fn first(&self) -> Option<i64> {
        (self.first != NEVER).then_some(self.first)
    }

    /// How long ago its first attempt began.
    pub(super) fn age(&self, now: Mono) -> Duration {
        since_line(self.first().unwrap_or_else(|| line(now)), now)
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
