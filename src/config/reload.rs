//! What changed between two configurations, and whether a running process can take it.

use super::Config;
use super::effective;
use super::problem::Problem;
use super::value::{Slot, Value};

/// What a running process cannot change, and why not.
const FIXED: [(&str, &str); 6] = [
    ("listen.address", "senders are connected to it"),
    ("listen.tls", "a listener is plain or TLS from its start; changed files are read again without a reload"),
    ("listen.h2c", "a listener's protocols are those of its start"),
    ("admin.address", "the admin listener is bound to it"),
    ("tenant_pages.address", "the listener of tenants' pages is bound to it"),
    ("store", "events are in it"),
];

/// What changed from `old` to `new`, one line each, secrets masked; empty when nothing did.
///
/// # Errors
///
/// Every change that needs a restart, at its place in the new file. Then nothing of the new configuration may be applied.
pub fn reload(old: &Config, new: &Config) -> Result<Vec<String>, Vec<Problem>> {
    let mut diff = Diff { file: &new.file, lines: Vec::new(), refused: Vec::new() };
    diff.maps("", &old.tree, &new.tree);
    if diff.refused.is_empty() { Ok(diff.lines) } else { Err(diff.refused) }
}

struct Diff<'n> {
    file: &'n str,
    lines: Vec<String>,
    refused: Vec<Problem>,
}

impl Diff<'_> {
    fn maps(&mut self, path: &str, old: &Slot, new: &Slot) {
        for (name, slot) in new.members() {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            match old.members().find(|(n, _)| *n == name) {
                Some((_, before)) => self.slots(&path, before, slot),
                None => self.lines.push(format!("{path}: added")),
            }
        }
        for (name, _) in old.members().filter(|(name, _)| new.members().all(|(n, _)| n != *name)) {
            self.lines.push(format!("{path}.{name}: removed"));
        }
    }

    fn slots(&mut self, path: &str, old: &Slot, new: &Slot) {
        if old == new {
            return;
        }
        if let Some((_, why)) = FIXED.iter().find(|(fixed, _)| *fixed == path) {
            if let ("listen.tls", Value::Map(_), Value::Map(_)) = (path, &old.value, &new.value) {
                self.maps(path, old, new);
            } else {
                self.refuse(path, new, why);
            }
            return;
        }
        match (&old.value, &new.value) {
            (Value::Map(_), Value::Map(_)) => self.maps(path, old, new),
            (Value::List(before), Value::List(after)) if path == "sources" => self.sources(before, after),
            (before, after) => {
                let (before, after) = (effective::line(before), effective::line(after));
                // Two secrets look the same.
                let line =
                    if before == after { format!("{path}: changed") } else { format!("{path}: {before} → {after}") };
                self.lines.push(line);
            }
        }
    }

    /// Sources are the same while their names are.
    fn sources(&mut self, old: &[Slot], new: &[Slot]) {
        for source in new {
            let path = format!("sources[{}]", name(source));
            match old.iter().find(|other| name(other) == name(source)) {
                Some(before) => self.maps(&path, before, source),
                None => self.lines.push(format!("{path}: added")),
            }
        }
        for source in old.iter().filter(|source| new.iter().all(|other| name(other) != name(source))) {
            self.lines.push(format!("sources[{}]: removed", name(source)));
        }
        let order = |list: &[Slot]| list.iter().map(name).collect::<Vec<_>>();
        if self.lines.is_empty() && order(old) != order(new) {
            self.lines.push("sources: in another order".to_owned());
        }
    }

    fn refuse(&mut self, path: &str, slot: &Slot, why: &str) {
        let problem = Problem::new(self.file, slot.place, path, &format!("cannot change while running: {why}"));
        self.refused.push(problem.hint("restart fairlane to change it"));
    }
}

fn name(source: &Slot) -> String {
    let name = source.at("name").maybe().or_else(|| source.at("path").maybe());
    name.expect("invariant: a source that was loaded has a path")
}
