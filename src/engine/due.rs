//! Events that wait for a further attempt: those in memory, by their time, and those that are only in the store.
//!
//! A lane keeps at most [`RETRIES_MAX`](super::lane::RETRIES_MAX) of them in memory, so that a paused group with a million retries
//! costs others nothing; of those with an order key it keeps every one, for the key has to be known. When a lane has
//! room again, the store's due index is read from the first event that it missed. Such a *pass* sees events of other lanes too, and
//! stale ones; what is known, and what ended while the read was under way, is passed by.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::ev::Ev;
use super::lane::RETRIES_MAX;
use super::lease::due_on_mono;
use super::request::{Request, Ticket};
use super::{Engine, Queued, Settings};
use crate::event::{Mono, Now, Seq, Wall};

/// Events of one read.
const READ_MAX: usize = 512;

/// Missed events are read so long before their time, and a pass ends at those that have longer.
const AHEAD: Duration = Duration::from_secs(60);

/// A lane with this many or fewer retrying events in memory has room for those that it missed.
const HUNGRY: usize = RETRIES_MAX / 4;

/// Something that could not be taken in is looked for again after this long.
const LATER: Duration = Duration::from_secs(5);

/// Where an event is that is not simply queued. One event is in one place (I2, I3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Leased(Ticket),
    /// What follows for it is not durable yet.
    Settling,
    /// In `waiting`.
    Waiting(Mono),
    /// In its lane, as due since then.
    Due(Mono),
}

/// A read of the due index, from a place to where nobody needs more.
#[derive(Debug)]
struct Pass {
    after: Option<(Wall, Seq)>,
    /// Lanes that it is for; when each is full again it ends.
    lanes: Vec<u32>,
    /// It reads everything, for lanes that were found at the start.
    whole: bool,
    /// A stored time, and when that is.
    anchor: Option<(Wall, Mono)>,
}

impl Pass {
    /// When a stored due time is. What was known of it before counts where that is earlier: a wall clock that was set back since would
    /// otherwise have it recede for as long as that clock is behind.
    fn due_at(&self, settings: &Settings, due: Wall, now: Now) -> Mono {
        let told = due_on_mono(settings, due, now);
        match self.anchor {
            Some((stored, at)) if stored <= due => told.min(at.plus(due.since(stored))),
            _ => told,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Retries {
    waiting: BTreeMap<(Mono, Seq), (u32, Ev, Wall)>,
    places: HashMap<Seq, Place>,
    pass: Option<Pass>,
    loading: bool,
    /// When a failed read comes again.
    again: Option<Mono>,
    /// Events that are retrying no more since the read under way was asked for.
    ended: HashSet<Seq>,
    /// Lanes found at the start whose retrying events have not been read.
    recovered: Vec<u32>,
    /// Lanes with room that missed events, by when to read.
    hungry: BTreeSet<(Mono, u32)>,
}

impl Retries {
    pub(super) fn place(&self, seq: Seq) -> Option<Place> {
        self.places.get(&seq).copied()
    }

    pub(super) fn recover(&mut self, lid: u32) {
        self.recovered.push(lid);
    }

    /// An event is leased. It must not have been elsewhere than due.
    pub(super) fn lease(&mut self, seq: Seq, ticket: Ticket, retry: bool) -> Result<(), Place> {
        match self.places.insert(seq, Place::Leased(ticket)) {
            None if !retry => Ok(()),
            Some(Place::Due(_)) if retry => Ok(()),
            Some(place) => Err(place),
            None => Err(Place::Settling),
        }
    }

    pub(super) fn settle(&mut self, seq: Seq) {
        self.places.insert(seq, Place::Settling);
    }

    /// An event has ended or is fresh again.
    pub(super) fn forget(&mut self, seq: Seq) {
        self.places.remove(&seq);
        if self.loading {
            self.ended.insert(seq);
        }
    }

    /// These lanes leave memory; what waits of them is another node's.
    pub(super) fn drop_lanes(&mut self, lanes: &BTreeSet<u32>) {
        let dropped: Vec<(Mono, Seq)> =
            self.waiting.iter().filter(|(_, (lid, ..))| lanes.contains(lid)).map(|(key, _)| *key).collect();
        for (at, seq) in dropped {
            self.waiting.remove(&(at, seq));
            self.forget(seq);
        }
        let stays = |lid: &u32| !lanes.contains(lid);
        self.recovered.retain(stays);
        self.hungry.retain(|(_, lid)| stays(lid));
        if let Some(pass) = &mut self.pass {
            pass.lanes.retain(stays);
        }
    }

    pub(super) fn wake(&self) -> Option<Mono> {
        let waiting = self.waiting.first_key_value().map(|((at, _), _)| *at);
        let hungry = if self.pass.is_none() { self.hungry.first().map(|(at, _)| *at) } else { None };
        [waiting, hungry, self.again].into_iter().flatten().min()
    }

    /// Takes out an event that waits.
    pub(super) fn take_waiting(&mut self, at: Mono, seq: Seq) -> Option<(u32, Ev)> {
        self.waiting.remove(&(at, seq)).map(|(lid, ev, _)| (lid, ev))
    }

    /// Every event that waits, until when, and of which lane; the next one first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Mono, u32, &Ev)> {
        self.waiting.iter().map(|((at, _), (lid, ev, _))| (*at, *lid, ev))
    }

    pub(super) fn places(&self) -> usize {
        self.places.len()
    }
}

impl Engine {
    /// What [`Request::LoadDue`] found, in the order of (due, seq); `more` when the store has further ones behind the last.
    pub fn on_due_loaded(&mut self, events: Vec<Queued>, more: bool, now: Now) {
        let now = self.tick(now);
        self.retries.loading = false;
        let ended = std::mem::take(&mut self.retries.ended);
        let Some(mut pass) = self.retries.pass.take() else { return };
        let mut far = None;
        for event in events {
            let due = event.due.unwrap_or(now.wall);
            let key = (due, event.seq);
            let at = pass.due_at(&self.settings, due, now);
            if !pass.whole && at > now.mono.plus(AHEAD) {
                far = Some((key, at));
                break;
            }
            pass.after = Some(key);
            if !ended.contains(&event.seq) && self.retries.place(event.seq).is_none() {
                self.take_retrying(event, due, at, now);
            }
        }
        let full = |lid: &u32| self.lanes.get(*lid).is_none_or(|lane| lane.rare.missed.is_some());
        if !more || far.is_some() || (!pass.whole && pass.lanes.iter().all(full)) {
            self.pass_ended(pass, far, now);
        } else {
            self.retries.pass = Some(pass);
        }
    }

    /// A [`Request::LoadDue`] failed; it is asked for again a little later.
    pub fn on_due_load_failed(&mut self, now: Now) {
        let now = self.tick(now);
        self.retries.loading = false;
        self.retries.ended.clear();
        self.retries.again = Some(now.mono.plus(super::LOAD_AGAIN));
    }

    /// An event of the due index that is in none of our places.
    fn take_retrying(&mut self, event: Queued, due: Wall, at: Mono, now: Now) {
        let Some(lid) = self.find(&event.lane) else { return };
        let (_, mut ev) = Ev::from_queued(event, now);
        ev.retrying = true;
        ev.since = super::ev::line(at);
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        if let Some(key) = ev.order() {
            if lane.rare.keys.holds(key) {
                // Another event of the key is under way; this one has to wait for it, wherever it came from.
                lane.note_stored(ev.received);
                // It is read as long before the time that is given here.
                return self.miss(lid, (due, ev.seq), now.mono.plus(AHEAD / 2 + LATER));
            }
            lane.rare.keys.recover(key);
        }
        self.wait_for(lid, at, due, ev);
        self.touch(lid, now.mono);
    }

    /// Nothing more is to be read in this pass; `far` is the first event that has long, and when that is due.
    fn pass_ended(&mut self, pass: Pass, far: Option<((Wall, Seq), Mono)>, now: Now) {
        for lid in pass.lanes {
            if pass.whole {
                if let Some(lane) = self.lanes.get_mut(lid) {
                    lane.unread_retries = false;
                    lane.unblock();
                }
                self.touch(lid, now.mono);
            } else if let Some((key, at)) = far {
                self.miss(lid, key, at);
            }
        }
    }

    /// An event waits for its time: in memory, where its lane has room and none that is only in the store is due before it. (Otherwise those
    /// in memory, failing again and again, would keep the others from ever being read.)
    pub(super) fn wait_for(&mut self, lid: u32, at: Mono, due: Wall, mut ev: Ev) {
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        ev.since = super::ev::line(at);
        let seq = ev.seq;
        if ev.order().is_none() {
            let is_behind = lane.rare.missed.is_some_and(|(_, missed)| missed <= at);
            if is_behind || !lane.has_retry_room() {
                lane.note_stored(ev.received);
                self.retries.places.remove(&seq);
                return self.miss(lid, (due, seq), at);
            }
            lane.rare.waiting += 1;
        }
        self.retries.places.insert(seq, Place::Waiting(at));
        self.retries.waiting.insert((at, seq), (lid, ev, due));
    }

    /// Events of the lane from `key` on are only in the store; the first of them is due `at`.
    fn miss(&mut self, lid: u32, key: (Wall, Seq), at: Mono) {
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        if lane.rare.missed.is_none_or(|(known, _)| key < known) {
            lane.rare.missed = Some((key, at));
        }
        self.feed(lid);
    }

    /// A lane that missed events and has room is to be read for.
    pub(super) fn feed(&mut self, lid: u32) {
        let Some(lane) = self.lanes.get(lid) else { return };
        if let Some((_, at)) = lane.rare.missed
            && lane.retries() <= HUNGRY
        {
            let before = Mono(at.0.saturating_sub(u64::try_from((AHEAD / 2).as_micros()).unwrap_or(0)));
            self.retries.hungry.insert((before, lid));
        }
    }

    /// Moves what is due to its lane.
    pub(super) fn fall_due(&mut self, now: Mono) {
        while let Some(entry) = self.retries.waiting.first_entry() {
            let (at, seq) = *entry.key();
            if at > now {
                break;
            }
            let (lid, ev, _) = entry.remove();
            self.retries.places.insert(seq, Place::Due(at));
            if let Some(lane) = self.lanes.get_mut(lid) {
                lane.rare.waiting -= usize::from(ev.order().is_none());
                lane.fall_due(at, ev);
            }
            self.touch(lid, now);
        }
        if self.retries.again.is_some_and(|at| at <= now) {
            self.retries.again = None;
        }
    }

    /// The next read of the due index, if one is wanted.
    pub(super) fn next_due_load(&mut self, now: Now) -> Option<Request> {
        if self.retries.loading || self.retries.again.is_some() {
            return None;
        }
        if self.retries.pass.is_none() {
            self.retries.pass = self.whole_pass().or_else(|| self.hungry_pass(now.mono));
        }
        let after = self.retries.pass.as_ref()?.after;
        self.retries.loading = true;
        Some(Request::LoadDue { after, n: READ_MAX })
    }

    fn whole_pass(&mut self) -> Option<Pass> {
        let lanes = std::mem::take(&mut self.retries.recovered);
        (!lanes.is_empty()).then_some(Pass { after: None, lanes, whole: true, anchor: None })
    }

    fn hungry_pass(&mut self, now: Mono) -> Option<Pass> {
        let mut lanes = Vec::new();
        let mut from: Option<((Wall, Seq), Mono)> = None;
        while let Some((at, lid)) = self.retries.hungry.first().copied() {
            if at > now {
                break;
            }
            self.retries.hungry.remove(&(at, lid));
            let Some(lane) = self.lanes.get_mut(lid).filter(|lane| lane.retries() <= HUNGRY) else { continue };
            let Some(missed) = lane.rare.missed.take() else { continue };
            from = Some(from.map_or(missed, |from| from.min(missed)));
            lanes.push(lid);
        }
        let ((due, seq), at) = from?;
        let after = Some((due, Seq(seq.0.saturating_sub(1))));
        Some(Pass { after, lanes, whole: false, anchor: Some((due, at)) })
    }
}
