//! One lane: the events of it that are in memory, and how far its scan of the store has come.
//!
//! The fresh events in memory are a contiguous prefix of those in the store: everything up to `cursor` has been looked at, nothing
//! behind it has. An event behind the prefix only sets `more`. Events behind an order key are passed by and found again ([`Keys`]). Replays
//! without an order key are a scan of their own (`replay_seen`, `replay_from`), so that they need not wait behind all fresh ones, nor these
//! behind a large replay. Those with an order key come with the scan of the fresh ones, for the key's sake, and wait with the replays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::counts::Counts;
use super::ev::Ev;
use super::inside::Kind;
use super::lazy::{Empty, Lazy};
use super::order::Keys;
use super::price::Ewma;
use super::tags::{Tag, Turn};
use crate::event::{Group, Mono, Seq, Wall};

/// Retrying events without an order key that one lane keeps in memory; more are found again in the store.
pub(super) const RETRIES_MAX: usize = 64;

/// Order keys of one lane that may be under way or held; then the lane takes in no further ones.
pub(super) const KEYS_MAX: usize = 10_000;

/// Every so-manieth lease of a lane goes to a due retry, if there is one (R6).
const RETRY_EVERY: u32 = 4;

/// And every so-manieth to a replay.
const REPLAY_EVERY: u32 = 10;

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
}

/// A lane.
#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) group: u32,
    /// Which part of its group.
    pub(super) inner: Option<Group>,
    /// The section that it comes and goes with.
    pub(super) section: u16,
    /// No event of it gets a lease now: its section is about to go.
    pub(super) held: bool,

    // R1–R3 inside the group.
    pub(super) tag: Tag,
    pub(super) turn: Option<Turn>,
    pub(super) estimate: Ewma,

    /// Fresh events that may go, a prefix of those in the store.
    fresh: VecDeque<Ev>,
    /// Up to where the scan has come, and whether there is more.
    pub(super) cursor: Seq,
    pub(super) more: bool,
    /// What of it is only in the store was received no earlier than this, on the line.
    pub(super) stored_from: i64,
    /// It was found at the start and has not been read to its end: what lies between is unknown.
    pub(super) unread: bool,
    pub(super) loading: Option<Load>,
    appended_while_loading: bool,
    /// The scan waits for keys to be freed, or for retrying events to be read.
    blocked: bool,
    /// Retrying events from before the start have not all been read; until then no ordered event is taken in, for its key may be held.
    pub(super) unread_retries: bool,

    /// Pending events, in memory or not.
    pub(super) counts: Counts,

    pub(super) rare: Lazy<Rare>,
}

/// What a lane needs that has more than fresh events without an order key.
#[derive(Debug)]
pub(super) struct Rare {
    // Further events that may go, by the kind of their turn.
    heads: BTreeMap<Seq, Ev>,
    replays: VecDeque<Ev>,
    due_keyed: BTreeMap<(Mono, Seq), Ev>,
    due: BTreeMap<(Mono, Seq), Ev>,
    /// Retrying events without an order key that wait for their time, in memory.
    pub(super) waiting: usize,
    since_retry: u32,
    since_replay: u32,

    pub(super) keys: Keys,

    /// Up to here every replay has been taken into memory.
    replay_seen: Seq,
    /// From here on there are replays that have not.
    replay_from: Option<Seq>,
    replay_while_loading: Option<Seq>,
    /// Fresh events that a person ended before they were read; true when that is durable.
    gone: BTreeMap<Seq, bool>,
    /// Events that were handed back, or are under way, and that the scan has not come to: it passes them by.
    ahead: BTreeSet<Seq>,
    /// Retrying events of this lane from here on are not all in memory; with when to look for them.
    pub(super) missed: Option<((Wall, Seq), Mono)>,
    /// Its next event is of something that a person paused, by this name: the lane waits with it.
    pub(super) parked: Option<Arc<str>>,
}

impl Rare {
    const fn new() -> Self {
        Self {
            heads: BTreeMap::new(),
            replays: VecDeque::new(),
            due_keyed: BTreeMap::new(),
            due: BTreeMap::new(),
            waiting: 0,
            since_retry: 0,
            since_replay: 0,
            keys: Keys::new(),
            replay_seen: Seq(0),
            replay_from: None,
            replay_while_loading: None,
            gone: BTreeMap::new(),
            ahead: BTreeSet::new(),
            missed: None,
            parked: None,
        }
    }
}

impl Empty for Rare {
    const EMPTY: &'static Self = &Self::new();

    fn fresh() -> Self {
        Self::new()
    }
}

impl LaneState {
    pub(super) fn new(group: u32, inner: Option<Group>) -> Self {
        Self {
            group,
            inner,
            section: 0,
            held: false,
            tag: Tag::LOWEST,
            turn: None,
            estimate: Ewma::default(),
            fresh: VecDeque::new(),
            cursor: Seq(0),
            more: false,
            stored_from: 0,
            unread: false,
            loading: None,
            appended_while_loading: false,
            blocked: false,
            unread_retries: false,
            counts: Counts::default(),
            rare: Lazy::default(),
        }
    }

    /// What it has to do; `None` when nothing may go.
    pub(super) fn kind(&self) -> Option<Kind> {
        if self.held || self.is_parked() {
            return None;
        }
        match (self.has_open(), self.has_due(), self.has_replay()) {
            (true, ..) => Some(Kind::Open),
            (false, true, true) => Some(Kind::Either),
            (false, true, false) => Some(Kind::Retry),
            (false, false, true) => Some(Kind::Replay),
            (false, false, false) => None,
        }
    }

    /// Something other than retries and replays may go, though it may have to be read first.
    fn has_open(&self) -> bool {
        self.has_fresh() || (self.more && self.counts.queued > 0 && !self.blocked && self.loading.is_none())
    }

    /// Something other than retries and replays is in memory and may go.
    fn has_fresh(&self) -> bool {
        !(self.rare.heads.is_empty() && self.fresh.is_empty())
    }

    /// A replay may go.
    fn has_replay(&self) -> bool {
        !self.rare.replays.is_empty()
    }

    /// A retry may go.
    fn has_due(&self) -> bool {
        !(self.rare.due.is_empty() && self.rare.due_keyed.is_empty())
    }

    /// Room for a retrying event without an order key.
    pub(super) fn has_retry_room(&self) -> bool {
        self.retries() < RETRIES_MAX
    }

    /// Retrying events without an order key in memory.
    pub(super) fn retries(&self) -> usize {
        self.rare.due.len() + self.rare.waiting
    }

    /// Its next events are being read, or have to be before any may go.
    pub(super) fn is_reading(&self) -> bool {
        self.loading.is_some() || (self.unread_retries && self.blocked)
    }

    /// It waits for a person to end a pause.
    pub(super) fn is_parked(&self) -> bool {
        self.rare.parked.is_some()
    }

    /// The order keys are as many as may be.
    pub(super) fn is_held(&self) -> bool {
        self.rare.keys.len() >= KEYS_MAX
    }

    /// When the oldest event was received that may go or is only in the store; of the latter it is known from when on at the earliest.
    /// Those that are leased or wait for their time are elsewhere.
    pub(super) fn oldest(&self) -> Option<i64> {
        let firsts = [self.rare.heads.values().next(), self.fresh.front(), self.rare.replays.front()];
        let due = self.rare.due.values().chain(self.rare.due_keyed.values());
        let stored = self.has_stored().then_some(self.stored_from);
        firsts.into_iter().flatten().chain(due).map(|ev| ev.received).chain(stored).min()
    }

    /// Events of it are only in the store.
    fn has_stored(&self) -> bool {
        self.more || self.appended_while_loading || self.has_stored_retries()
    }

    fn has_stored_retries(&self) -> bool {
        self.unread_retries || self.rare.missed.is_some()
    }

    /// An event received then is only in the store from now on.
    pub(super) fn note_stored(&mut self, received: i64) {
        self.stored_from = if self.has_stored() { self.stored_from.min(received) } else { received };
    }

    /// A newly durable event. Told in commit order.
    pub(super) fn append(&mut self, ev: Ev, limits: Limits) {
        if !self.has_stored() {
            self.stored_from = ev.received;
        }
        let alone = ev.is_replay() && ev.order.is_none() && !self.unread;
        if self.loading.is_some() {
            self.appended_while_loading = true;
            if alone {
                self.rare.replay_while_loading.get_or_insert(ev.seq);
            }
        } else if alone && self.more {
            self.take_replay(ev, limits);
        } else if self.more || self.blocked || !self.take_in(ev, limits) {
            self.more = true;
        }
    }

    /// Whether what is read with this seq is not to be taken in.
    fn passes_by(&self, seq: Seq) -> bool {
        self.rare.gone.contains_key(&seq) || self.rare.ahead.contains(&seq)
    }

    /// A replay without an order key that may not have been seen yet.
    fn take_replay(&mut self, ev: Ev, limits: Limits) {
        if ev.seq <= self.rare.replay_seen {
            return;
        }
        if self.rare.replay_from.is_none() && self.rare.replays.len() < limits.window {
            self.rare.replay_seen = ev.seq;
            self.rare.replays.push_back(ev);
        } else {
            self.rare.replay_from.get_or_insert(ev.seq);
        }
    }

    /// The scan comes to `ev`. False when it stops before it.
    fn take_in(&mut self, ev: Ev, limits: Limits) -> bool {
        if !self.has_stored_retries() {
            self.stored_from = ev.received;
        }
        if self.passes_by(ev.seq) {
            self.cursor = ev.seq;
            return true;
        }
        let room = self.fresh.len() < limits.window;
        match &ev.order {
            Some(key) => {
                let known = self.rare.keys.holds(key);
                if self.unread_retries || (!known && self.is_held()) {
                    self.blocked = true;
                    return false;
                }
                // A replay does not stop the scan: what is behind it may go before it. Its key is one of a bounded number.
                if !known && !room && !ev.is_replay() {
                    return false;
                }
                let scanned = std::mem::replace(&mut self.cursor, ev.seq);
                let key = key.clone();
                let behind_room = self.rare.keys.behind() < limits.window;
                match self.rare.keys.arrive(&key, ev, scanned, behind_room) {
                    Some(ev) if ev.is_replay() => self.rare.replays.push_back(ev),
                    Some(ev) => self.fresh.push_back(ev),
                    None => {}
                }
            }
            None if ev.is_replay() => {
                self.cursor = ev.seq;
                self.take_replay(ev, limits);
            }
            None => {
                if !room {
                    return false;
                }
                self.cursor = ev.seq;
                if self.fresh.capacity() == 0 {
                    // Most lanes of a million have one event.
                    self.fresh.reserve_exact(1);
                }
                self.fresh.push_back(ev);
            }
        }
        true
    }

    /// What to read next, if anything.
    pub(super) fn wants(&self, limits: Limits) -> Option<Load> {
        if self.loading.is_some() || self.held {
            return None;
        }
        if let Some(from) = self.rare.keys.looks_from() {
            return Some(Load::Keys(from));
        }
        let soon = self.fresh.len() + self.rare.heads.len() + self.rare.keys.behind();
        if self.more && !self.blocked && soon <= limits.window / 2 {
            return Some(Load::Fresh);
        }
        self.rare.replay_from.filter(|_| self.rare.replays.len() <= limits.window / 2).map(Load::Replays)
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

    /// What was read. `more` when the store has further ones behind the last; `known` are those that are under way, which a read may
    /// show as fresh when it was faster than the report of their settlement.
    pub(super) fn loaded(&mut self, events: Vec<Ev>, more: bool, known: Vec<Seq>, limits: Limits, now: Mono) {
        if !known.is_empty() {
            self.rare.ahead.extend(known);
        }
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
                let events = events.into_iter().filter(|ev| !self.passes_by(ev.seq)).collect();
                for head in self.rare.keys.found(from, events, seen, self.cursor) {
                    self.take_head(head.freed(now));
                }
            }
            Load::Replays(from) => self.replays_found(from, events, more, limits),
        }
        self.more |= std::mem::take(&mut self.appended_while_loading);
        let cursor = self.cursor;
        let Some(rare) = self.rare.made() else { return };
        if let Some(seq) = rare.replay_while_loading.take().filter(|seq| *seq > rare.replay_seen) {
            rare.replay_from.get_or_insert(seq);
        }
        rare.gone.retain(|_, durable| !*durable);
        let passed = if rare.replay_from.is_none() { cursor } else { cursor.min(rare.replay_seen) };
        while rare.ahead.first().is_some_and(|seq| *seq <= passed) {
            rare.ahead.pop_first();
        }
    }

    fn replays_found(&mut self, from: Seq, events: Vec<Ev>, more: bool, limits: Limits) {
        self.rare.replay_from = events.last().filter(|_| more).map(|last| Seq(last.seq.0 + 1));
        for ev in events {
            let ours = ev.is_replay() && ev.order.is_none() && ev.seq >= from && ev.seq > self.rare.replay_seen;
            if !ours || self.passes_by(ev.seq) {
                continue;
            }
            if self.rare.replays.len() >= limits.window {
                self.rare.replay_from = Some(ev.seq);
                break;
            }
            self.rare.replay_seen = ev.seq;
            self.rare.replays.push_back(ev);
        }
    }

    /// An event whose order key is free may go.
    fn take_head(&mut self, head: Ev) {
        if head.is_replay() {
            self.rare.replays.push_back(head);
        } else {
            self.rare.heads.insert(head.seq, head);
        }
    }

    /// The scan may go on: all retrying events were read, or a key is free.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// The event whose turn it is (R6): held heads, fresh, retries, replays, but a retry at every 4th lease and a replay at
    /// every 10th.
    pub(super) fn next(&mut self, retry_ok: bool, replay_ok: bool) -> Option<Ev> {
        if !self.rare.is_made() {
            return self.fresh.pop_front();
        }
        let retry_ok = retry_ok && self.has_due();
        let retry_turn = retry_ok && (self.rare.since_retry + 1 >= RETRY_EVERY || !self.rare.due_keyed.is_empty());
        let replay_ok = replay_ok && self.has_replay();
        let replay_turn = replay_ok && self.rare.since_replay + 1 >= REPLAY_EVERY;
        let ev = if retry_turn {
            self.pop_due()
        } else if replay_turn {
            self.rare.replays.pop_front()
        } else if let Some((_, ev)) = self.rare.heads.pop_first() {
            Some(ev)
        } else if let Some(ev) = self.fresh.pop_front() {
            Some(ev)
        } else if retry_ok {
            self.pop_due()
        } else if replay_ok {
            self.rare.replays.pop_front()
        } else {
            None
        }?;
        self.rare.since_retry =
            if ev.retrying || !self.has_due() { 0 } else { self.rare.since_retry.saturating_add(1) };
        let replayed = ev.is_replay() && !ev.retrying;
        self.rare.since_replay =
            if replayed || self.rare.replays.is_empty() { 0 } else { self.rare.since_replay.saturating_add(1) };
        Some(ev)
    }

    fn pop_due(&mut self) -> Option<Ev> {
        self.rare.due_keyed.pop_first().or_else(|| self.rare.due.pop_first()).map(|(_, ev)| ev)
    }

    /// A retrying event's time has come.
    pub(super) fn fall_due(&mut self, at: Mono, ev: Ev) {
        let set = if ev.order.is_some() { &mut self.rare.due_keyed } else { &mut self.rare.due };
        set.insert((at, ev.seq), ev);
    }

    /// An event that was not sent goes back to its place, before what came after it.
    pub(super) fn put_back(&mut self, ev: Ev) {
        self.rare.ahead.insert(ev.seq);
        if ev.is_replay() {
            self.rare.replays.push_front(ev);
        } else {
            self.rare.heads.insert(ev.seq, ev);
        }
    }

    /// The head of an order key has ended, durably.
    pub(super) fn free_key(&mut self, key: &Group, now: Mono) {
        if let Some(next) = self.rare.keys.free(key, self.cursor) {
            self.take_head(next.freed(now));
        }
        if !self.unread_retries && !self.is_held() {
            self.blocked = false;
        }
    }

    /// Takes a fresh event out for good. True when it was in memory; else it is remembered, and passed by when it is read.
    pub(super) fn remove_fresh(&mut self, seq: Seq) -> Option<Ev> {
        let found = self.rare.heads.remove(&seq).or_else(|| {
            let list = [&mut self.fresh, &mut self.rare.replays]
                .into_iter()
                .find(|list| list.iter().any(|ev| ev.seq == seq))?;
            let index = list.iter().position(|ev| ev.seq == seq)?;
            list.remove(index)
        });
        if found.is_none() {
            if self.rare.keys.behind() > 0
                && seq <= self.cursor
                && let Some(key) = self.rare.keys.key_behind(seq)
            {
                self.rare.keys.remove_behind(&key, seq);
            }
            self.rare.gone.insert(seq, false);
        }
        found
    }

    /// Takes a due event out for good.
    pub(super) fn remove_due(&mut self, at: Mono, seq: Seq) -> Option<Ev> {
        self.rare.due.remove(&(at, seq)).or_else(|| self.rare.due_keyed.remove(&(at, seq)))
    }

    /// The end of an event that was not in memory is durable.
    pub(super) fn gone_durably(&mut self, seq: Seq) {
        if self.loading.is_none() {
            self.rare.gone.remove(&seq);
        } else if let Some(durable) = self.rare.gone.get_mut(&seq) {
            *durable = true;
        }
    }

    /// Nothing is in memory, nothing under way and nothing to be read, yet events should be queued: the number is wrong.
    pub(super) fn is_lost(&self) -> bool {
        self.counts.queued > 0
            && self.loading.is_none()
            && !self.more
            && self.rare.replay_from.is_none()
            && !self.has_fresh()
            && !self.has_replay()
            && self.rare.keys.is_empty()
            && self.rare.gone.is_empty()
    }

    /// Due events whose time was more than `late` before `now`.
    pub(super) fn due_before(&self, now: Mono, late: Duration) -> u64 {
        let all = self.rare.due.keys().chain(self.rare.due_keyed.keys());
        all.filter(|(at, _)| now.since(*at) > late).count() as u64
    }

    /// Seqs of the events in memory that may go, for the invariant checks.
    pub(super) fn runnable(&self) -> impl Iterator<Item = &Ev> {
        self.rare
            .heads
            .values()
            .chain(self.fresh.iter())
            .chain(self.rare.replays.iter())
            .chain(self.rare.due.values())
            .chain(self.rare.due_keyed.values())
    }

    /// An event that is in it twice, for the invariant checks.
    pub(super) fn twin(&self) -> Option<&Ev> {
        let mut seen = BTreeSet::new();
        self.runnable().find(|ev| !seen.insert(ev.seq))
    }
}
