//! How each group is treated: what the file says, and what a person said since.
//!
//! A person's word wins over the file's until it expires. It is written down before it is answered, so that a restart does not
//! forget it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::agreed::differing;
use super::change::{Change, Expiry, InParts as _, Live};
use crate::engine::{Policies, Policy, Rate};
use crate::event::{Group, Wall};
use crate::store::notebook::Notebook;

/// What the file says.
#[derive(Clone, Debug, Default)]
pub struct FilePolicies {
    /// Groups without an override.
    pub defaults: Policy,
    /// The fallback lane.
    pub fallback: Policy,
    /// A glob on the written form, and the policy of those it matches; the first match counts.
    pub overrides: Vec<(String, Policy)>,
    /// New groups a time of one source, where its key is not signed; beyond it they share overflow lanes. `None`: as many as come.
    pub new_groups: Option<Rate>,
    /// By a source's name: how long an event of it may hold its order key.
    pub order_max_hold: HashMap<Arc<str>, Duration>,
}

/// What holds for whom; shared between the engine, which asks, and the driver, which changes it.
#[derive(Debug)]
pub(super) struct PolicyTable {
    file: RwLock<FilePolicies>,
    live: RwLock<BTreeMap<Group, Live>>,
    /// Whether any group has a cap of its backlog: most gateways have none, and then nobody is asked.
    capped: AtomicBool,
    notebook: Notebook,
}

impl PolicyTable {
    /// The table of `file`, with the changes that `notebook` remembers.
    pub(super) fn open(file: FilePolicies, notebook: Notebook) -> Result<Arc<Self>, String> {
        let bytes = notebook.read()?;
        let noted: BTreeMap<String, Live> = if bytes.is_empty() {
            BTreeMap::new()
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{notebook}: {error}; remove the file to begin without them"))?
        };
        let live = noted.into_iter().filter_map(|(name, live)| Some((Group::from_written(&name)?, live))).collect();
        let table = Self { file: RwLock::new(file), live: RwLock::new(live), capped: AtomicBool::new(false), notebook };
        table.note_caps();
        Ok(Arc::new(table))
    }

    /// The function that the engine asks.
    pub(super) fn policies(self: &Arc<Self>) -> Policies {
        let table = Arc::clone(self);
        Box::new(move |group| table.of(group))
    }

    pub(super) fn replace(&self, file: FilePolicies) {
        *self.file.write() = file;
        self.note_caps();
    }

    fn note_caps(&self) {
        let by_file = self.file.read().caps_backlogs();
        let capped = by_file || self.live.read().values().any(|live| live.change().backlog.is_some());
        self.capped.store(capped, Ordering::Relaxed);
    }

    /// Whether any group has a cap of its backlog.
    pub(super) fn caps_backlogs(&self) -> bool {
        self.capped.load(Ordering::Relaxed)
    }

    /// What holds for `group`.
    pub(super) fn of(&self, group: &Group) -> Policy {
        let mut policy = self.file.read().of(group);
        if let Some(live) = self.live.read().get(group) {
            live.change().apply(&mut policy);
            policy.named = true;
        }
        policy
    }

    /// How long an event of `source` may hold its order key; `None` for a source that is no longer there.
    pub(super) fn order_max_hold(&self, source: &str) -> Option<Duration> {
        self.file.read().order_max_hold.get(source).copied()
    }

    /// The changes in force.
    pub(super) fn live(&self) -> Vec<(Group, Live)> {
        self.live.read().iter().map(|(group, live)| (group.clone(), live.clone())).collect()
    }

    /// The changes of one group in force.
    pub(super) fn live_of(&self, group: &Group) -> Live {
        self.live.read().get(group).cloned().unwrap_or_default()
    }

    /// These changes are in force, in place of those before; gives the groups for which that is another thing. All nodes remember them.
    pub(super) fn adopt(&self, next: BTreeMap<Group, Live>) -> BTreeSet<Group> {
        let changed = differing(&self.live.read(), &next);
        if !changed.is_empty() {
            self.hold(next);
        }
        changed
    }

    /// Adds to what was changed before, whose ends stay; durable when this returns, but for a resume, which holds in any case.
    ///
    /// # Errors
    /// It could not be written down, in words; nothing changed.
    pub(super) fn change(&self, group: &Group, change: Change, expiry: Expiry, now: Wall) -> Result<(), String> {
        let mut next = self.live.read().clone();
        let mut live = next.remove(group).unwrap_or_default();
        live.put(change, expiry, self.file.read().of(group).paused, now);
        if !live.is_empty() {
            next.insert(group.clone(), live);
        }
        if change == Change::pause(false) {
            self.hold(next);
            return Ok(());
        }
        self.keep(next)
    }

    /// Takes a change back, or only the parts of it that `only` gives; false when there is none. It holds also where it cannot be
    /// written: a disk may be full of what only this lets go on.
    pub(super) fn take_back(&self, group: &Group, only: Option<&Change>) -> bool {
        let mut next = self.live.read().clone();
        let Some(mut live) = next.remove(group) else { return false };
        let taken = live.take_back(only);
        if !live.is_empty() {
            next.insert(group.clone(), live);
        }
        self.hold(next);
        taken
    }

    /// Ends the parts of changes that have expired, and says for whom.
    pub(super) fn expire(&self, now: Wall) -> Vec<Group> {
        let live = self.live.read().clone();
        let expired: Vec<Group> =
            live.iter().filter(|(_, live)| live.is_over(now)).map(|(group, _)| group.clone()).collect();
        if !expired.is_empty() {
            let left = live.into_iter().map(|(group, live)| (group, live.left(now)));
            let next = left.filter(|(_, live)| !live.is_empty()).collect();
            // A restart finds their end past again.
            self.hold(next);
        }
        expired
    }

    fn keep(&self, next: BTreeMap<Group, Live>) -> Result<(), String> {
        self.notebook.write(&noted(&next))?;
        self.put(next);
        Ok(())
    }

    /// The same for what holds also where it cannot be written yet.
    fn hold(&self, next: BTreeMap<Group, Live>) {
        self.notebook.write_when_possible(noted(&next));
        self.put(next);
    }

    fn put(&self, next: BTreeMap<Group, Live>) {
        *self.live.write() = next;
        self.note_caps();
    }
}

/// As the notebook has them.
fn noted(all: &BTreeMap<Group, Live>) -> Vec<u8> {
    let noted: BTreeMap<&str, &Live> = all.iter().map(|(group, live)| (group.as_str(), live)).collect();
    serde_json::to_vec_pretty(&noted).expect("names and numbers have a form in JSON")
}

impl FilePolicies {
    fn caps_backlogs(&self) -> bool {
        let overrides = self.overrides.iter().map(|(_, policy)| policy);
        overrides.chain([&self.defaults, &self.fallback]).any(|policy| policy.backlog.is_some())
    }

    /// What the file says about `group`.
    #[must_use]
    pub fn of(&self, group: &Group) -> Policy {
        if *group == Group::fallback() {
            return self.fallback;
        }
        let matching = self.matching(group).and_then(|at| self.overrides.get(at));
        // There is no end of groups that a pattern matches.
        let named = |glob: &str| !glob.contains(['*', '?']);
        matching.map_or(self.defaults, |(glob, policy)| Policy { named: named(glob), ..*policy })
    }

    /// The place of the override that `group` matches. The fallback lane has a policy of its own and matches none.
    #[must_use]
    pub fn matching(&self, group: &Group) -> Option<usize> {
        let mut globs = self.overrides.iter().map(|(glob, _)| glob.as_bytes());
        globs.position(|glob| *group != Group::fallback() && matches(glob, group.as_str().as_bytes()))
    }
}

impl Change {
    fn apply(&self, policy: &mut Policy) {
        policy.paused = self.paused.unwrap_or(policy.paused);
        policy.weight = self.weight.unwrap_or(policy.weight);
        policy.concurrency = self.concurrency.or(policy.concurrency);
        policy.chosen |= self.concurrency.is_some();
        policy.backlog = self.backlog.or(policy.backlog);
        if let Some((events, micros)) = self.rate {
            policy.rate = Some(Rate { events, per: Duration::from_micros(micros) });
        }
    }
}

/// `*` is any text, `?` one character (a written form is ASCII). Linear but for one place to come back to.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(byte) if *byte == b'?' || text.get(t) == Some(byte) => {
                g += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                g = at + 1;
                t = from + 1;
            }
        }
    }
    glob.get(g..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (glob, text, expected) in [
            ("plus-*.myshopify.com", "plus-a.myshopify.com", true),
            ("plus-*.myshopify.com", "plus-a.myshopify.com.evil", false),
            ("*", "", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xaxxbx", true),
            ("*a*b", "xaxxbx", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), text.as_bytes()), expected, "{glob} {text}");
        }
    }

    #[test]
    fn a_persons_word_wins_adds_up_and_expires() {
        let file = FilePolicies {
            overrides: vec![("big-*".into(), Policy { weight: 4.0, ..Policy::default() })],
            fallback: Policy { weight: 0.5, ..Policy::default() },
            ..FilePolicies::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let notebook = || Notebook::at(folder.path().join("overrides.json"));
        let table = PolicyTable::open(file.clone(), notebook()).unwrap();
        let (big, now) = (Group::of(&["big-a"]), Wall::from_unix_s(1_000));
        assert_eq!(table.of(&big).weight, 4.0);
        assert_eq!(table.of(&Group::fallback()).weight, 0.5);
        table.change(&big, Change { paused: Some(true), ..Change::default() }, Expiry::Usual, now).unwrap();
        table.change(&big, Change { weight: Some(2.0), ..Change::default() }, Expiry::Never, now).unwrap();

        let again = PolicyTable::open(file, notebook()).unwrap();
        assert_eq!(again.of(&big), Policy { paused: true, weight: 2.0, named: true, ..Policy::default() });
        assert!(again.expire(now.plus(Duration::from_hours(23))).is_empty());
        assert_eq!(again.expire(now.plus(Duration::from_hours(24))), std::slice::from_ref(&big));
        assert_eq!(again.of(&big), Policy { weight: 2.0, named: true, ..Policy::default() });
        assert!(again.take_back(&big, None));
        assert_eq!(again.of(&big).weight, 4.0);
        again.change(&big, Change { paused: Some(false), ..Change::default() }, Expiry::Usual, now).unwrap();
        assert!(again.live().is_empty(), "it runs by the file");
    }

    #[test]
    fn a_pause_ends_also_where_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("overrides.json"));
        let table = PolicyTable::open(FilePolicies::default(), notebook.clone()).unwrap();
        let now = Wall::from_unix_s(1_000);
        let [a, b, c] = ["a", "b", "c"].map(|name| Group::of(&[name]));
        for (group, expiry) in [(&a, Expiry::Never), (&b, Expiry::Never), (&c, Expiry::Usual)] {
            table.change(group, Change::pause(true), expiry, now).unwrap();
        }
        std::fs::create_dir(folder.path().join("overrides.new")).unwrap();
        assert!(table.change(&a, Change { weight: Some(2.0), ..Change::default() }, Expiry::Never, now).is_err());
        table.change(&a, Change::pause(false), Expiry::Usual, now).unwrap();
        assert!(table.take_back(&b, None));
        assert_eq!(table.expire(now.plus(Duration::from_hours(24))), std::slice::from_ref(&c));
        assert!([a, b, c].iter().all(|group| !table.of(group).paused));
        assert!(notebook.is_behind().unwrap().contains("cannot be written"));
        std::fs::remove_dir(folder.path().join("overrides.new")).unwrap();
        notebook.catch_up();
        assert!(PolicyTable::open(FilePolicies::default(), notebook).unwrap().live().is_empty());
    }
}
