//! Order keys of one lane (R7): one event of a key at a time, in commit order, the next only after the durable
//! settlement.
//!
//! A key has a record here while one of its events is its *head*: queued in memory, leased, being settled or waiting for a
//! retry. Events behind the head wait in a short list; beyond it, and behind a key that is held by a retry, they cost nothing: the
//! key remembers a seq from which its next event is to be found in the store (`more_from`), and looks there when its head is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ev::Ev;
use crate::event::{Group, Seq};

/// Events behind one key that are kept in memory, so that a lane that is one key needs a read every so many events.
const BEHIND_MAX: usize = 32;

#[derive(Debug, Default)]
struct Key {
    /// One of its events is under way or may go; when false, the key looks for its next one.
    head: bool,
    /// Its head waits for a retry, or is one.
    held: bool,
    behind: VecDeque<Ev>,
    /// No event of the key from here on is in memory; some may be in the store. A lower bound.
    more_from: Option<Seq>,
}

/// The keys of a lane.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: BTreeMap<Group, Key>,
    /// Keys without a head, by where they look for their next event.
    looking: BTreeSet<(Seq, Group)>,
    behind: usize,
}

impl Keys {
    pub(super) const fn new() -> Self {
        Self { keys: BTreeMap::new(), looking: BTreeSet::new(), behind: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Events that wait in memory behind their key.
    pub(super) fn behind(&self) -> usize {
        self.behind
    }

    /// Whether events of this key go after one that is there already.
    pub(super) fn holds(&self, key: &Group) -> bool {
        self.keys.contains_key(key)
    }

    /// The lane's scan, which has seen everything up to `scanned`, comes to `ev`, whose key is `key`. Gives it back when it may go.
    pub(super) fn arrive(&mut self, key: &Group, ev: Ev, scanned: Seq, room: bool) -> Option<Ev> {
        let Some(known) = self.keys.get_mut(key) else {
            self.keys.insert(key.clone(), Key { head: true, ..Key::default() });
            return Some(ev);
        };
        if known.more_from.is_some_and(|from| from <= scanned) {
            return None;
        }
        known.more_from = None;
        if room && !known.held && known.behind.len() < BEHIND_MAX {
            known.behind.push_back(ev);
            self.behind += 1;
        } else {
            known.more_from = Some(ev.seq);
        }
        None
    }

    /// A retrying event of this key was found in the store, before any other of it was seen.
    pub(super) fn recover(&mut self, key: &Group) {
        self.keys.entry(key.clone()).or_default().head = true;
        self.hold(key);
    }

    /// The head waits for a retry: what is behind it leaves memory.
    pub(super) fn hold(&mut self, key: &Group) {
        let Some(known) = self.keys.get_mut(key) else { return };
        known.held = true;
        self.behind -= known.behind.len();
        if let Some(first) = known.behind.drain(..).next() {
            known.more_from = Some(first.seq);
        }
    }

    /// The head has ended, durably. Gives the key's next event, which may go before fresh ones. Behind `scanned` nothing is ours yet.
    pub(super) fn free(&mut self, key: &Group, scanned: Seq) -> Option<Ev> {
        let known = self.keys.get_mut(key)?;
        known.held = false;
        if let Some(next) = known.behind.pop_front() {
            self.behind -= 1;
            return Some(next);
        }
        match known.more_from.filter(|from| *from <= scanned) {
            Some(from) => {
                known.head = false;
                self.looking.insert((from, key.clone()));
            }
            None => {
                self.keys.remove(key);
            }
        }
        None
    }

    /// Takes an event out that waits behind its key.
    pub(super) fn remove_behind(&mut self, key: &Group, seq: Seq) -> bool {
        let Some(known) = self.keys.get_mut(key) else { return false };
        let before = known.behind.len();
        known.behind.retain(|ev| ev.seq != seq);
        self.behind -= before - known.behind.len();
        known.behind.len() < before
    }

    /// Every event behind a key that has one with this seq. For removal by seq alone, which is rare.
    pub(super) fn key_behind(&self, seq: Seq) -> Option<Group> {
        self.keys.iter().find(|(_, key)| key.behind.iter().any(|ev| ev.seq == seq)).map(|(name, _)| name.clone())
    }

    /// Where the earliest key looks for its next event.
    pub(super) fn looks_from(&self) -> Option<Seq> {
        self.looking.first().map(|(from, _)| *from)
    }

    /// What was read for the keys that look at `from` or later: `events` in order, all there are up to `seen`. The lane's scan has come
    /// to `cursor`; beyond it nothing is ours yet. Gives the heads that were found.
    pub(super) fn found(&mut self, from: Seq, events: Vec<Ev>, seen: Seq, cursor: Seq) -> Vec<Ev> {
        let mut heads = Vec::new();
        for ev in events.into_iter().take_while(|ev| ev.seq <= cursor) {
            let Some(name) = ev.order().cloned() else { continue };
            let Some(key) = self.keys.get_mut(&name) else { continue };
            let Some(more) = key.more_from.filter(|more| *more >= from && *more <= ev.seq) else { continue };
            if key.head {
                if !key.held && key.behind.len() < BEHIND_MAX && key.behind.back().is_none_or(|last| last.seq < ev.seq)
                {
                    key.more_from = Some(Seq(ev.seq.0 + 1));
                    key.behind.push_back(ev);
                    self.behind += 1;
                } else {
                    // Full: from its list's end on everything is still in the store, so `more_from` stays.
                    continue;
                }
            } else {
                key.head = true;
                key.more_from = Some(Seq(ev.seq.0 + 1));
                self.looking.remove(&(more, name));
                heads.push(ev);
            }
        }
        self.look_on(from, seen, cursor);
        heads
    }

    /// Keys that looked in `from..=seen` and found nothing look on behind it, or are done when nothing is behind it.
    fn look_on(&mut self, from: Seq, seen: Seq, cursor: Seq) {
        let done: Vec<(Seq, Group)> =
            self.looking.iter().skip_while(|(at, _)| *at < from).take_while(|(at, _)| *at <= seen).cloned().collect();
        for entry in done {
            self.looking.remove(&entry);
            let (_, name) = entry;
            if seen >= cursor {
                self.keys.remove(&name);
            } else if let Some(key) = self.keys.get_mut(&name) {
                key.more_from = Some(Seq(seen.0 + 1));
                self.looking.insert((Seq(seen.0 + 1), name));
            }
        }
    }

    /// I3 and I2 for keys, for the invariant checks: every key has a head or looks, never both.
    pub(super) fn is_sound(&self) -> bool {
        self.keys.iter().all(|(name, key)| {
            let looks = key.more_from.is_some_and(|from| self.looking.contains(&(from, name.clone())));
            key.head != looks && (key.head || key.behind.is_empty())
        }) && self.behind == self.keys.values().map(|key| key.behind.len()).sum::<usize>()
            && self.looking.len() == self.keys.values().filter(|key| !key.head).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Group {
        Group::of(&[name])
    }

    fn ev(seq: u64, name: &str) -> Ev {
        Ev::new(Seq(seq)).ordered(key(name))
    }

    const SCANNED: Seq = Seq(6);

    fn arrive(keys: &mut Keys, seq: u64, name: &str) -> Option<u64> {
        keys.arrive(&key(name), ev(seq, name), Seq(seq - 1), true).map(|ev| ev.seq.0)
    }

    #[test]
    fn one_event_of_a_key_goes_at_a_time() {
        let mut keys = Keys::default();
        assert_eq!(arrive(&mut keys, 1, "a"), Some(1));
        assert_eq!(arrive(&mut keys, 2, "b"), Some(2));
        assert_eq!(arrive(&mut keys, 3, "a"), None);
        assert_eq!(keys.free(&key("a"), SCANNED).map(|ev| ev.seq.0), Some(3));
        assert_eq!(keys.free(&key("a"), SCANNED), None);
        assert!(!keys.holds(&key("a")));
        assert!(keys.is_sound());
    }

    #[test]
    fn behind_a_held_key_nothing_is_kept_and_its_next_event_is_looked_for() {
        let mut keys = Keys::default();
        for seq in 1..=5 {
            arrive(&mut keys, seq, "a");
        }
        keys.hold(&key("a"));
        assert_eq!(keys.behind(), 0);
        arrive(&mut keys, 6, "a");
        assert_eq!(keys.free(&key("a"), SCANNED), None);
        assert_eq!(keys.looks_from(), Some(Seq(2)));
        let heads = keys.found(Seq(2), (2..=6).map(|seq| ev(seq, "a")).collect(), Seq(6), Seq(6));
        assert_eq!(heads.iter().map(|ev| ev.seq.0).collect::<Vec<_>>(), [2]);
        assert_eq!(keys.behind(), 4);
        for next in 3..=6 {
            assert_eq!(keys.free(&key("a"), SCANNED).map(|ev| ev.seq.0), Some(next));
        }
        keys.free(&key("a"), SCANNED);
        assert!(keys.is_empty() && keys.is_sound());
    }

    #[test]
    fn a_key_looks_on_until_the_scan_and_then_is_done() {
        let mut keys = Keys::default();
        for seq in 1..=3 {
            arrive(&mut keys, seq, "a");
        }
        keys.hold(&key("a"));
        keys.free(&key("a"), SCANNED);
        assert_eq!(keys.found(Seq(2), vec![ev(9, "b")], Seq(50), Seq(100)), []);
        assert_eq!(keys.looks_from(), Some(Seq(51)));
        assert_eq!(keys.found(Seq(51), vec![], Seq(100), Seq(100)), []);
        assert!(keys.is_empty() && keys.is_sound());
    }
}
