//! By which rules the events of each source were put into lanes and in order, remembered over a restart.
//!
//! Of a source with `order`, queued and new events of one order key must meet in one lane, or they run side by side. So its `key`, `within`
//! and `order` do not change while it has a backlog, whether the file changes under a gateway that runs or between two runs: both are
//! refused with the same words. A notebook beside the others (`rules.json`) has the rules that were last in force.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Options;
use crate::config::{Config, Problem};
use crate::driver::{Handle, Query, Status};
use crate::listen::{Order, Source};
use crate::store;
use crate::store::notebook::Notebook;

/// The notebook's name.
pub(super) const FILE: &str = "rules.json";

/// What decides the lane and the order of a source's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Rule {
    /// A source that gets another name is still the one of its path.
    path: String,
    key: Option<String>,
    within: Option<String>,
    order: Option<String>,
}

impl Rule {
    fn of(source: &Source) -> Self {
        let key = |sender: &crate::listen::Sender| {
            let key = sender.key.as_ref()?;
            let namespace = key.namespace.as_ref().map(|namespace| format!("{namespace}~"));
            Some(format!("{}{}", namespace.unwrap_or_default(), key.rule.text()))
        };
        let keys: Vec<Option<String>> = source.senders.iter().map(key).collect();
        let has_key = keys.iter().any(Option::is_some);
        let keys: Vec<String> = keys.into_iter().map(|key| key.unwrap_or_else(|| NONE.to_owned())).collect();
        Self {
            path: source.path.as_str().to_owned(),
            key: has_key.then(|| keys.join(", ")),
            within: source.within.as_ref().map(|rule| rule.text().to_owned()),
            order: source.order.as_ref().map(|order| match order {
                Order::Group => "group".to_owned(),
                Order::Key(rule) => rule.text().to_owned(),
            }),
        }
    }

    /// How queued and new events of one order key could end up beside each other; empty where they cannot.
    fn reordered_by(&self, new: &Self) -> Vec<String> {
        if self.order.is_none() {
            return Vec::new();
        }
        let fields =
            [("key", &self.key, &new.key), ("within", &self.within, &new.within), ("order", &self.order, &new.order)];
        let shown = |rule: &Option<String>| rule.as_deref().unwrap_or(NONE).to_owned();
        let changed = fields.into_iter().filter(|(_, old, new)| old != new);
        changed.map(|(name, old, new)| format!("{name}: {} -> {}", shown(old), shown(new))).collect()
    }
}

/// No rule.
const NONE: &str = "none";

/// The rules that are in force, by a source's name. Those of sources that are gone stay: their events may still be queued.
pub(super) struct Rules {
    known: BTreeMap<String, Rule>,
    notebook: Notebook,
}

impl Rules {
    /// What `notebook` remembers; nothing is known where nothing was ever written.
    ///
    /// # Errors
    /// It cannot be read, in words.
    pub(super) fn open(notebook: Notebook) -> Result<Self, String> {
        let bytes = notebook.read()?;
        let known = if bytes.is_empty() {
            BTreeMap::new()
        } else {
            serde_json::from_slice(&bytes).map_err(|error| {
                format!(
                    "{notebook}: {error}; remove the file to begin without it: a changed key, within or order of a source with `order` is then \
                     not noticed"
                )
            })?
        };
        Ok(Self { known, notebook })
    }

    /// Refuses rules that would take queued events out of their order, unless that is accepted.
    ///
    /// # Errors
    /// Of each source that has a backlog what changed, and what to do; or that it could not be read whether it has one.
    pub(super) async fn guard(&self, new: &Config, options: &Options, handle: &Handle) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        for (name, rule) in self.known.iter().filter(|_| !options.accept_reorder) {
            let Some(now) = successor(name, rule, &new.sources).map(Rule::of) else { continue };
            let changed = rule.reordered_by(&now);
            if changed.is_empty() {
                continue;
            }
            match has_backlog(handle, &Arc::from(name.as_str())).await {
                Ok(false) => {}
                Ok(true) => problems.push(format!(
                    "source {name} has `order` and a backlog, so its key, within and order cannot change ({}): drain it by the rules that it \
                     had, or start with --accept-reorder",
                    changed.join("; ")
                )),
                Err(error) => problems.push(format!(
                    "source {name} has `order`, and whether it has a backlog could not be read, so its key, within and order cannot change ({}): \
                     {error}",
                    changed.join("; ")
                )),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// These rules are in force from now on. Where that cannot be written down it is said: a start may then ask for what was answered before.
    pub(super) fn remember(&mut self, config: &Config) {
        let mut next = self.known.clone();
        for (name, rule) in &mut next {
            if let Some(source) = successor(name, rule, &config.sources) {
                *rule = Rule::of(source);
            }
        }
        next.extend(config.sources.iter().map(|source| (source.name.to_string(), Rule::of(source))));
        if next == self.known {
            return;
        }
        self.known = next;
        let bytes = serde_json::to_vec_pretty(&self.known).map_err(|error| error.to_string());
        if let Err(error) = bytes.and_then(|bytes| self.notebook.write(&bytes)) {
            tracing::warn!(
                error,
                "the rules of the sources could not be written down: the next start compares the file with those before"
            );
        }
    }
}

/// What the source is now: the one of its name, else the one of its path.
fn successor<'s>(name: &str, rule: &Rule, sources: &'s [Source]) -> Option<&'s Source> {
    let named = sources.iter().find(|source| *source.name == *name);
    named.or_else(|| sources.iter().find(|source| source.path.as_str() == rule.path))
}

/// Whether events of a source are pending.
///
/// # Errors
/// The store's.
pub(super) async fn has_backlog(handle: &Handle, source: &Arc<str>) -> Result<bool, store::Error> {
    let status = Status::ALL.into_iter().filter(|status| status.is_pending()).collect();
    let mut query = Query { source: Some(Arc::clone(source)), status, limit: 1, ..Query::default() };
    loop {
        let page = handle.events(query.clone()).await?;
        match (page.records.is_empty(), page.next) {
            (false, _) => return Ok(true),
            (true, None) => return Ok(false),
            (true, next) => query.behind = next,
        }
    }
}

/// A start that the file's rules do not fit; ends as a configuration with problems does.
#[derive(Debug)]
pub(super) struct Unfit(pub(super) Vec<Problem>);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&problems.join("\n"))
    }
}

impl std::error::Error for Unfit {}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sources: &str) -> Config {
        let text = format!("upstream: http://127.0.0.1:9\nsources:\n{sources}");
        crate::config::load(&text, "test", &|_| None, &|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
    }

    fn rule(source: &str) -> Rule {
        Rule::of(&config(&format!("  - {{ path: /h, verify: none, {source} }}\n")).sources[0])
    }

    #[test]
    fn what_reorders_a_source_is_named() {
        let ordered = rule("key: headers.g, order: headers.o");
        assert_eq!(ordered.reordered_by(&ordered), Vec::<String>::new());
        assert_eq!(
            ordered.reordered_by(&rule("key: body.g, within: headers.w, order: headers.o")),
            ["key: headers.g -> body.g", "within: none -> headers.w"]
        );
        assert_eq!(ordered.reordered_by(&rule("key: headers.g")), ["order: headers.o -> none"]);
        assert_eq!(ordered.reordered_by(&rule("key: headers.g, order: group")), ["order: headers.o -> group"]);
        assert_eq!(
            ordered.reordered_by(&rule("key: headers.g, order: headers.o, namespace: ns")),
            ["key: headers.g -> ns~headers.g"]
        );
        assert!(rule("key: headers.g").reordered_by(&ordered).is_empty(), "what is queued has no order to keep");
    }

    #[test]
    fn they_are_remembered_by_name_and_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Rules::open(Notebook::at(folder.path().join(FILE))).unwrap();
        let mut rules = open();
        rules.remember(&config("  - { path: /h, verify: none, key: headers.g, order: headers.o }\n"));
        let renamed = config("  - { path: /h, name: n, verify: none, key: headers.g, order: group }\n");
        let read = open();
        let (name, old) = read.known.first_key_value().unwrap();
        assert_eq!(old.reordered_by(&Rule::of(successor(name, old, &renamed.sources).unwrap())).len(), 1);
        // What was accepted is not asked for again.
        rules.remember(&renamed);
        let read = open();
        assert!(read.known.len() == 2 && read.known.values().all(|rule| *rule == Rule::of(&renamed.sources[0])));
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Rules::open(Notebook::at(folder.path().join(FILE))).is_err());
    }
}
