//! What a person does with a source as a whole while the gateway runs: hold its events back, or take no more of them.
//!
//! *Paused*: its requests are accepted and stored as ever, and answered with 2xx; its events are not attempted. *Draining*: its requests are
//! answered with 503, which its provider repeats; its events go on. Both are written down before they are answered, end by themselves, and
//! are known again after a restart.
//!
//! A pause acts where an event is about to be attempted, for only there its source is known: the engine has lanes, and a lane may be
//! fed by several sources. The event gives its lease back and its lane is *parked* ([`Engine::park`]) until the pause ends. So a pause costs one
//! lease that comes to nothing for each lane that meets it, not one for each event, and nothing at all for lanes that are not served meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use super::change::Expiry;
use crate::engine::Engine;
use crate::event::{Lane, Now, Wall};
use crate::store::notebook::Notebook;

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// Its events are not attempted.
    Paused,
    /// Its requests are not taken.
    Draining,
}

/// How a person holds a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceHold {
    /// What is held.
    pub held: Hold,
    /// Since when, microseconds since 1970.
    pub since: u64,
    /// Until when, the same; `None`: until somebody resumes it.
    pub ends: Option<u64>,
    /// Who began it: the way, and the address it came from where that is known.
    pub by: String,
}

impl SourceHold {
    /// Whether its end has come.
    pub(super) fn is_over(&self, now: Wall) -> bool {
        self.ends.is_some_and(|at| at <= now.0)
    }
}

/// The sources that are held; shared with those who take requests and those who make attempts.
#[derive(Debug)]
pub(super) struct SourceTable {
    held: RwLock<BTreeMap<String, SourceHold>>,
    /// Lanes whose next event is of a paused source.
    parked: Mutex<HashMap<Arc<str>, HashSet<Lane>>>,
    notebook: Notebook,
}

impl SourceTable {
    /// What `notebook` remembers.
    ///
    /// # Errors
    /// It cannot be read, in words.
    pub(super) fn open(notebook: Notebook) -> Result<Self, String> {
        let bytes = notebook.read()?;
        let held = if bytes.is_empty() {
            BTreeMap::new()
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{notebook}: {error}; remove the file to begin without it"))?
        };
        Ok(Self { held: RwLock::new(held), parked: Mutex::default(), notebook })
    }

    /// How this source is held; `None`: it is not.
    pub(super) fn of(&self, source: &str) -> Option<SourceHold> {
        self.held.read().get(source).cloned()
    }

    /// Those that are held.
    pub(super) fn names(&self) -> BTreeSet<Arc<str>> {
        self.held.read().keys().map(|name| Arc::from(name.as_str())).collect()
    }

    pub(super) fn is(&self, source: &str, held: Hold) -> bool {
        let all = self.held.read();
        !all.is_empty() && all.get(source).is_some_and(|hold| hold.held == held)
    }

    /// Holds a source in this way instead of any other; durable when this returns.
    ///
    /// # Errors
    /// It could not be written down, in words; nothing changed.
    pub(super) fn hold(
        &self,
        (source, held): (Arc<str>, Hold),
        by: String,
        expiry: Expiry,
        engine: &mut Engine,
        now: Now,
    ) -> Result<(), String> {
        let mut next = self.held.read().clone();
        let ends = expiry.ends(now.wall);
        // Whoever says it again sets another end.
        let since = next.get(&*source).filter(|before| before.held == held).map_or(now.wall.0, |before| before.since);
        next.insert(source.to_string(), SourceHold { held, since, ends, by });
        self.keep(next)?;
        if held == Hold::Draining {
            self.unpark(&source, engine, now);
        }
        Ok(())
    }

    /// Lets a source run again; false when it did. It holds also where it cannot be written: a disk may be full of what only this lets
    /// go on.
    pub(super) fn resume(&self, source: &str, engine: &mut Engine, now: Now) -> bool {
        let mut next = self.held.read().clone();
        let there = next.remove(source).is_some();
        self.put(next);
        self.unpark(source, engine, now);
        there
    }

    /// Ends what has expired, and says whose it was.
    pub(super) fn expire(&self, engine: &mut Engine, now: Now) -> Vec<String> {
        let (over, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.held.read().clone().into_iter().partition(|(_, hold)| hold.is_over(now.wall));
        if over.is_empty() {
            return Vec::new();
        }
        // A restart finds their end past again.
        self.put(left);
        let expired: Vec<String> = over.into_keys().collect();
        expired.iter().for_each(|source| self.unpark(source, engine, now));
        expired
    }

    /// These are held from now on and no others, as all nodes have agreed, who remember it.
    pub(super) fn adopt(&self, next: BTreeMap<String, SourceHold>, engine: &mut Engine, now: Now) {
        let before = self.held.read().clone();
        if before == next {
            return;
        }
        let paused = |all: &BTreeMap<String, SourceHold>, name: &str| {
            all.get(name).is_some_and(|hold| hold.held == Hold::Paused)
        };
        let freed: Vec<String> = before.keys().filter(|name| !paused(&next, name)).cloned().collect();
        self.put(next);
        freed.iter().for_each(|source| self.unpark(source, engine, now));
    }

    fn keep(&self, next: BTreeMap<String, SourceHold>) -> Result<(), String> {
        self.notebook.write(&noted(&next))?;
        *self.held.write() = next;
        Ok(())
    }

    /// The same for what holds also where it cannot be written yet.
    fn put(&self, next: BTreeMap<String, SourceHold>) {
        self.notebook.write_when_possible(noted(&next));
        *self.held.write() = next;
    }

    /// An attempt met the pause of its event's source: its lane waits. Not when the pause has ended since.
    pub(super) fn park(&self, source: &Arc<str>, lane: Lane, engine: &mut Engine, now: Now) {
        if self.is(source, Hold::Paused) {
            engine.park(&lane, Arc::clone(source), now);
            self.parked.lock().entry(Arc::clone(source)).or_default().insert(lane);
        }
    }

    fn unpark(&self, source: &str, engine: &mut Engine, now: Now) {
        for lane in self.parked.lock().remove(source).into_iter().flatten() {
            engine.unpark(&lane, now);
        }
    }
}

/// As the notebook has them.
fn noted(all: &BTreeMap<String, SourceHold>) -> Vec<u8> {
    serde_json::to_vec_pretty(all).expect("names and numbers have a form in JSON")
}
