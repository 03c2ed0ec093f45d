//! One lane: the events of it that are in memory, and how far its scan of the store has come.
//!
//! The fresh events in memory are a contiguous prefix of those in the store: everything up to `cursor` has been looked at, nothing
//! behind it has. An event behind the prefix only sets `more`. Events behind an order key are passed by and found again ([`Keys`]). Replays
//! without an order key are a scan of their own (`replay_seen`, `replay_from`), so that they need not wait behind all fresh ones, nor these
//! behind a large replay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::order::Keys;
use super::price::Ewma;
use super::tags::{Tag, Turn};
use crate::event::{Group, Mono, Now, Seq, Wall};

/// Retrying events without an order key that one lane keeps in memory; more are found again in the store.
pub(super) const RETRIES_MAX: usize = 64;

/// Order keys of one lane that may be under way or held; then the lane takes in no further ones.
pub(super) const KEYS_MAX: usize = 10_000;

/// Every so-manieth lease of a lane goes to a due retry, if there is one (R6).
const RETRY_EVERY: u32 = 4;

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
    pub(super) replay: bool,
    /// It found its group within its head start.
    pub(super) quiet: bool,
    /// It found others of its lane before it.
    pub(super) behind: bool,
    /// It waited for an earlier event of its order key.
    pub(super) keyed: bool,
    /// The store has it as retrying.
    pub(super) retrying: bool,
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
            replay: false,
            quiet: false,
            behind: true,
            keyed: false,
            retrying: false,
        }
    }

    /// From what the store says.
    pub(super) fn from_queued(event: super::Queued, now: Now) -> (crate::event::Lane, Self) {
        let ev = Self {
            order: event.order,
            since: on_line(now, event.received),
            received: on_line(now, event.received),
            first: event.first_attempt.map(|at| on_line(now, at)),
            attempts: event.attempts,
            refused: event.refused,
            replay: event.replay,
            ..Self::new(event.seq)
        };
        (event.lane, ev)
    }

    /// How long ago its first attempt began.
    pub(super) fn age(&self, now: Mono) -> Duration {
        since_line(self.first.unwrap_or_else(|| line(now)), now)
    }

    /// How long it has waited.
    pub(super) fn wait(&self, now: Mono) -> Duration {
        since_line(self.since, now)
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
fn on_line(now: Now, wall: Wall) -> i64 {
    let ago = i64::try_from(now.wall.0.saturating_sub(wall.0)).unwrap_or(i64::MAX);
    line(now.mono).saturating_sub(ago)
}

/// Where a pending event stands, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Fresh in the store.
    Queued,
    /// Retrying in the store.
    Retrying,
    /// Leased.
    InFlight,
    /// Its lease has ended and what follows is not durable yet.
    Settling,
}

/// Pending events by stage. Kept for each lane, each group and all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) queued: u64,
    pub(super) retrying: u64,
    pub(super) in_flight: u32,
    pub(super) settling: u32,
}

impl Counts {
    pub(super) fn at(&self, stage: Stage) -> u64 {
        match stage {
            Stage::Queued => self.queued,
            Stage::Retrying => self.retrying,
            Stage::InFlight => u64::from(self.in_flight),
            Stage::Settling => u64::from(self.settling),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        self.retrying += other.retrying;
        self.in_flight += other.in_flight;
        self.settling += other.settling;
    }

    pub(super) fn total(&self) -> u64 {
        self.queued + self.retrying + u64::from(self.in_flight) + u64::from(self.settling)
    }

    /// Moves `n` events; `None` stands for outside. False when there were not so many.
    pub(super) fn shift(&mut self, from: Option<Stage>, to: Option<Stage>, n: u64) -> bool {
        let small = u32::try_from(n).unwrap_or(u32::MAX);
        let enough = match from {
            None => true,
            Some(Stage::Queued) => take(&mut self.queued, n),
            Some(Stage::Retrying) => take(&mut self.retrying, n),
            Some(Stage::InFlight) => self.in_flight.checked_sub(small).map(|left| self.in_flight = left).is_some(),
            Some(Stage::Settling) => self.settling.checked_sub(small).map(|left| self.settling = left).is_some(),
        };
        match to {
            None => {}
            Some(Stage::Queued) => self.queued += n,
            Some(Stage::Retrying) => self.retrying += n,
            Some(Stage::InFlight) => self.in_flight += small,
            Some(Stage::Settling) => self.settling += small,
        }
        enough
    }
}

fn take(count: &mut u64, n: u64) -> bool {
    count.checked_sub(n).map(|left| *count = left).is_some()
}

/// What is being read for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// The next fresh events behind the cursor.
    Fresh,
    /// Events of order keys that look for their next one.
    Keys(Seq),
    /// Replays that the scan passed.
    Replays(Seq),
}

/// Limits that a lane needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) window: usize,
    pub(super) replay_every: u32,
}

/// A lane.
#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) group: u32,
    /// Which part of its group.
    pub(super) inner: Option<Group>,

    // R1–R3 inside the group.
    pub(super) tag: Tag,
    pub(super) turn: Option<Turn>,
    pub(super) estimate: Ewma,

    // Events that may go, by the kind of their turn.
    heads: BTreeMap<Seq, Ev>,
    fresh: VecDeque<Ev>,
    replays: VecDeque<Ev>,
    due_keyed: BTreeMap<(Mono, Seq), Ev>,
    due: BTreeMap<(Mono, Seq), Ev>,
    /// Retrying events without an order key that wait for their time, in memory.
    pub(super) waiting: usize,

    pub(super) keys: Keys,

    // Where the scan is.
    pub(super) cursor: Seq,
    pub(super) more: bool,
    /// Up to here every replay has been taken into memory.
    replay_seen: Seq,
    /// From here on there are replays that have not.
    replay_from: Option<Seq>,
    /// It was found at the start and has not been read to its end: what lies between is unknown.
    pub(super) unread: bool,
    pub(super) loading: Option<Load>,
    appended_while_loading: bool,
    replay_while_loading: Option<Seq>,
    /// The scan waits for keys to be freed, or for retrying events to be read.
    blocked: bool,
    /// Retrying events from before the start have not all been read; until then no ordered event is taken in, for its key may be held.
    pub(super) unread_retries: bool,
    /// Fresh events that a person ended before they were read; true when that is durable.
    gone: BTreeMap<Seq, bool>,
    /// Retrying events of this lane from here on are not all in memory; with when to look for them.
    pub(super) missed: Option<((Wall, Seq), Mono)>,

    /// Pending events, in memory or not.
    pub(super) counts: Counts,

    since_retry: u32,
    since_replay: u32,
}

impl LaneState {
    pub(super) fn new(group: u32, inner: Option<Group>) -> Self {
        Self {
            group,
            inner,
            tag: Tag::LOWEST,
            turn: None,
            estimate: Ewma::default(),
            heads: BTreeMap::new(),
            fresh: VecDeque::new(),
            replays: VecDeque::new(),
            due_keyed: BTreeMap::new(),
            due: BTreeMap::new(),
            waiting: 0,
            keys: Keys::default(),
            cursor: Seq(0),
            more: false,
            replay_seen: Seq(0),
            replay_from: None,
            unread: false,
            loading: None,
            appended_while_loading: false,
            replay_while_loading: None,
            blocked: false,
            unread_retries: false,
            gone: BTreeMap::new(),
            missed: None,
            counts: Counts::default(),
            since_retry: 0,
            since_replay: 0,
        }
    }

    /// Something other than a retry may go, though it may have to be read first.
    pub(super) fn has_open(&self) -> bool {
        self.has_fresh() || (self.more && !self.blocked && self.loading.is_none())
    }

    /// Something other than a retry is in memory and may go.
    fn has_fresh(&self) -> bool {
        !(self.heads.is_empty() && self.fresh.is_empty() && self.replays.is_empty())
    }

    /// A retry may go.
    pub(super) fn has_due(&self) -> bool {
        !(self.due.is_empty() && self.due_keyed.is_empty())
    }

    /// Room for a retrying event without an order key.
    pub(super) fn has_retry_room(&self) -> bool {
        self.retries() < RETRIES_MAX
    }

    /// Retrying events without an order key in memory.
    pub(super) fn retries(&self) -> usize {
        self.due.len() + self.waiting
    }

    /// The order keys are as many as may be.
    pub(super) fn is_held(&self) -> bool {
        self.keys.len() >= KEYS_MAX
    }

    /// When the oldest event in memory that may go was received.
    pub(super) fn oldest(&self) -> Option<i64> {
        let firsts = [self.heads.values().next(), self.fresh.front(), self.replays.front()];
        let due = self.due.values().chain(self.due_keyed.values());
        firsts.into_iter().flatten().chain(due).map(|ev| ev.received).min()
    }

    /// A newly durable event. Told in commit order.
    pub(super) fn append(&mut self, ev: Ev, limits: Limits) {
        let alone = ev.replay && ev.order.is_none() && !self.unread;
        if self.loading.is_some() {
            self.appended_while_loading = true;
            if alone {
                self.replay_while_loading.get_or_insert(ev.seq);
            }
        } else if alone && self.more {
            self.take_replay(ev, limits);
        } else if self.more || self.blocked || !self.take_in(ev, limits) {
            self.more = true;
        }
    }

    /// A replay without an order key that may not have been seen yet.
    fn take_replay(&mut self, ev: Ev, limits: Limits) {
        if ev.seq <= self.replay_seen {
            return;
        }
        if self.replay_from.is_none() && self.replays.len() < limits.window {
            self.replay_seen = ev.seq;
            self.replays.push_back(ev);
        } else {
            self.replay_from.get_or_insert(ev.seq);
        }
    }

    /// The scan comes to `ev`. False when it stops before it.
    fn take_in(&mut self, ev: Ev, limits: Limits) -> bool {
        if self.gone.contains_key(&ev.seq) {
            self.cursor = ev.seq;
            return true;
        }
        let room = self.fresh.len() < limits.window;
        match &ev.order {
            Some(key) => {
                let known = self.keys.holds(key);
                if self.unread_retries || (!known && self.is_held()) {
                    self.blocked = true;
                    return false;
                }
                if !known && !room {
                    return false;
                }
                let scanned = std::mem::replace(&mut self.cursor, ev.seq);
                let key = key.clone();
                let behind_room = self.keys.behind() < limits.window;
                if let Some(ev) = self.keys.arrive(&key, ev, scanned, behind_room) {
                    self.fresh.push_back(ev);
                }
            }
            None if ev.replay => {
                self.cursor = ev.seq;
                self.take_replay(ev, limits);
            }
            None => {
                if !room {
                    return false;
                }
                self.cursor = ev.seq;
                self.fresh.push_back(ev);
            }
        }
        true
    }

    /// What to read next, if anything.
    pub(super) fn wants(&self, limits: Limits) -> Option<Load> {
        if self.loading.is_some() {
            return None;
        }
        if let Some(from) = self.keys.looks_from() {
            return Some(Load::Keys(from));
        }
        let soon = self.fresh.len() + self.heads.len() + self.keys.behind();
        if self.more && !self.blocked && soon <= limits.window / 2 {
            return Some(Load::Fresh);
        }
        self.replay_from.filter(|_| self.replays.len() <= limits.window / 2).map(Load::Replays)
    }

    /// The seq after which what is being loaded begins.
    pub(super) fn loads_after(&self) -> Option<Seq> {
        self.loading.map(|load| match load {
            Load::Fresh => self.cursor,
            Load::Keys(from) | Load::Replays(from) => Seq(from.0.saturating_sub(1)),
        })
    }

    /// Whether anything of it has been read or appended. Lanes found at the start are read when their turn comes.
    pub(super) fn was_read(&self) -> bool {
        self.cursor > Seq(0)
    }

    /// What was read. `more` when the store has further ones behind the last.
    pub(super) fn loaded(&mut self, events: Vec<Ev>, more: bool, limits: Limits) {
        let Some(load) = self.loading.take() else { return };
        let last = events.last().map(|ev| ev.seq);
        // Everything up to here has been seen.
        let seen = last.filter(|_| more).map_or(self.cursor, |last| last.min(self.cursor));
        match load {
            Load::Fresh => {
                let mut stopped = false;
                for ev in events {
                    if ev.seq > self.cursor && !self.take_in(ev, limits) {
                        stopped = true;
                        break;
                    }
                }
                self.more = stopped || more;
                self.unread &= self.more;
            }
            Load::Keys(from) => {
                let events = events.into_iter().filter(|ev| !self.gone.contains_key(&ev.seq)).collect();
                for head in self.keys.found(from, events, seen, self.cursor) {
                    self.heads.insert(head.seq, Ev { keyed: true, ..head });
                }
            }
            Load::Replays(from) => self.replays_found(from, events, more, limits),
        }
        self.more |= std::mem::take(&mut self.appended_while_loading);
        if let Some(seq) = self.replay_while_loading.take().filter(|seq| *seq > self.replay_seen) {
            self.replay_from.get_or_insert(seq);
        }
        self.gone.retain(|_, durable| !*durable);
    }

    fn replays_found(&mut self, from: Seq, events: Vec<Ev>, more: bool, limits: Limits) {
        self.replay_from = events.last().filter(|_| more).map(|last| Seq(last.seq.0 + 1));
        for ev in events {
            let ours = ev.replay && ev.order.is_none() && ev.seq >= from && ev.seq > self.replay_seen;
            if !ours || self.gone.contains_key(&ev.seq) {
                continue;
            }
            if self.replays.len() >= limits.window {
                self.replay_from = Some(ev.seq);
                break;
            }
            self.replay_seen = ev.seq;
            self.replays.push_back(ev);
        }
    }

    /// The scan may go on: all retrying events were read, or a key is free.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// The event whose turn it is (R6): held heads, fresh, retries, replays, but a retry at every 4th lease and a replay at
    /// every 10th.
    pub(super) fn next(&mut self, retry_ok: bool, limits: Limits) -> Option<Ev> {
        let retry_ok = retry_ok && self.has_due();
        let retry_turn = retry_ok && (self.since_retry + 1 >= RETRY_EVERY || !self.due_keyed.is_empty());
        let replay_turn = self.since_replay + 1 >= limits.replay_every;
        let ev = if retry_turn {
            self.pop_due()
        } else if let Some(ev) = replay_turn.then(|| self.replays.pop_front()).flatten() {
            Some(ev)
        } else if let Some((_, ev)) = self.heads.pop_first() {
            Some(ev)
        } else if let Some(ev) = self.fresh.pop_front() {
            Some(ev)
        } else if retry_ok {
            self.pop_due()
        } else {
            self.replays.pop_front()
        }?;
        self.since_retry = if ev.retrying || !self.has_due() { 0 } else { self.since_retry.saturating_add(1) };
        let replayed = ev.replay && !ev.retrying;
        self.since_replay = if replayed || self.replays.is_empty() { 0 } else { self.since_replay.saturating_add(1) };
        Some(ev)
    }

    fn pop_due(&mut self) -> Option<Ev> {
        self.due_keyed.pop_first().or_else(|| self.due.pop_first()).map(|(_, ev)| ev)
    }

    /// A retrying event's time has come.
    pub(super) fn fall_due(&mut self, at: Mono, ev: Ev) {
        let set = if ev.order.is_some() { &mut self.due_keyed } else { &mut self.due };
        set.insert((at, ev.seq), ev);
    }

    /// An event that was not sent goes back to its place, before what came after it.
    pub(super) fn put_back(&mut self, ev: Ev) {
        self.heads.insert(ev.seq, ev);
    }

    /// The head of an order key has ended, durably.
    pub(super) fn free_key(&mut self, key: &Group) {
        if let Some(next) = self.keys.free(key, self.cursor) {
            self.heads.insert(next.seq, Ev { keyed: true, ..next });
        }
        if !self.unread_retries && !self.is_held() {
            self.blocked = false;
        }
    }

    /// Takes a fresh event out for good. True when it was in memory; else it is remembered, and passed by when it is read.
    pub(super) fn remove_fresh(&mut self, seq: Seq) -> Option<Ev> {
        let found = self.heads.remove(&seq).or_else(|| {
            let list =
                [&mut self.fresh, &mut self.replays].into_iter().find(|list| list.iter().any(|ev| ev.seq == seq))?;
            let index = list.iter().position(|ev| ev.seq == seq)?;
            list.remove(index)
        });
        if found.is_none() {
            if let Some(key) = self.keys.key_behind(seq) {
                self.keys.remove_behind(&key, seq);
            }
            self.gone.insert(seq, false);
        }
        found
    }

    /// Takes a due event out for good.
    pub(super) fn remove_due(&mut self, at: Mono, seq: Seq) -> Option<Ev> {
        self.due.remove(&(at, seq)).or_else(|| self.due_keyed.remove(&(at, seq)))
    }

    /// The end of an event that was not in memory is durable.
    pub(super) fn gone_durably(&mut self, seq: Seq) {
        if self.loading.is_none() {
            self.gone.remove(&seq);
        } else if let Some(durable) = self.gone.get_mut(&seq) {
            *durable = true;
        }
    }

    /// Nothing is in memory, nothing under way and nothing to be read, yet events should be queued: the number is wrong.
    pub(super) fn is_lost(&self) -> bool {
        self.counts.queued > 0
            && self.loading.is_none()
            && !self.more
            && self.replay_from.is_none()
            && !self.has_fresh()
            && self.keys.is_empty()
            && self.gone.is_empty()
    }

    /// Due events whose time was more than `late` before `now`.
    pub(super) fn due_before(&self, now: Mono, late: Duration) -> u64 {
        let all = self.due.keys().chain(self.due_keyed.keys());
        all.filter(|(at, _)| now.since(*at) > late).count() as u64
    }

    /// Seqs of the events in memory that may go, for the invariant checks.
    pub(super) fn runnable(&self) -> impl Iterator<Item = &Ev> {
        self.heads
            .values()
            .chain(self.fresh.iter())
            .chain(self.replays.iter())
            .chain(self.due.values())
            .chain(self.due_keyed.values())
    }

    /// Seqs seen twice, for the invariant checks.
    pub(super) fn has_twins(&self) -> bool {
        let mut seen = BTreeSet::new();
        !self.runnable().all(|ev| seen.insert(ev.seq))
    }
}
