//! The tree of the file against the table of fields: every name known, every value of its type and within its bounds, defaults
//! filled in. All problems are collected; a value that has one is replaced by its default, so that checking goes on.
//!
//! What depends on several fields at once is in `settings.rs` and `sources.rs`.

use std::collections::HashMap;

use zeroize::Zeroizing;

use super::fields::{Default, Field, Kind, Map, ROOT};
use super::nearest;
use super::problem::{Place, Problem};
use super::raw::{self, Entry, Is, Node};
use super::secret::{self, Incomplete, Outside};
use super::text::Text;
use super::value::{Key, Slot, Value, quoted};
use super::words::{expected, map_expected, needed, required_hint, shown};
use super::{providers, scalar};
use crate::event::Secret;

/// Key rules nested deeper than this are a mistake.
const KEY_DEPTH_MAX: usize = 4;

/// The checker, its problems, and where it stands.
pub(super) struct Checker<'a> {
    file: &'a str,
    outside: Outside<'a>,
    /// The path of the field at hand, e.g. `sources[0].verify`.
    path: String,
    /// What was found so far.
    pub(super) problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    /// A checker of `file` (its name, for problems).
    pub(super) fn new(file: &'a str, outside: Outside<'a>) -> Self {
        Self { file, outside, path: String::new(), problems: Vec::new() }
    }

    /// The file's name.
    pub(super) fn file(&self) -> &'a str {
        self.file
    }

    /// Reads a file only to see whether it can be.
    pub(super) fn read_file(&self, path: &std::path::Path) -> std::io::Result<()> {
        (self.outside.files)(path).map(|_| ())
    }

    /// The text of a file that a field names.
    pub(super) fn text_of(&self, path: &std::path::Path) -> std::io::Result<String> {
        (self.outside.files)(path)
    }

    /// Checks the whole document.
    pub(super) fn root(&mut self, node: &Node) -> Slot {
        let value = match &node.is {
            Is::Null => self.map(&[], &ROOT, node.place),
            Is::Map(entries) => self.map(entries, &ROOT, node.place),
            Is::Scalar(_) | Is::List(_) => {
                self.problem(node.place, &format!("found {}", node.kind())).expected = Some(map_expected(&ROOT));
                defaults(&ROOT, node.place)
            }
        };
        Slot { place: node.place, given: true, value }
    }

    /// Notes a problem with the field at hand.
    pub(super) fn problem(&mut self, place: Place, found: &str) -> &mut Problem {
        let problem = Problem::new(self.file, place, &self.path, found);
        self.problems.push(problem);
        self.problems.last_mut().expect("invariant: one was pushed")
    }

    /// Notes a problem with another field.
    pub(super) fn problem_at(&mut self, path: &str, place: Place, found: &str) -> &mut Problem {
        let problem = Problem::new(self.file, place, path, found);
        self.problems.push(problem);
        self.problems.last_mut().expect("invariant: one was pushed")
    }

    /// Whether something is wrong at `path` or below it, so that what follows from it need not be said.
    pub(super) fn is_broken(&self, path: &str) -> bool {
        self.problems
            .iter()
            .any(|p| p.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
    }

    fn inside<T>(&mut self, step: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let len = self.path.len();
        self.path.push_str(if self.path.is_empty() { step.trim_start_matches('.') } else { step });
        let result = work(self);
        self.path.truncate(len);
        result
    }

    fn map(&mut self, entries: &[Entry], map: &'static Map, place: Place) -> Value {
        let given = self.known(entries, map);
        let members = map.fields.iter().map(|field| {
            let entry = given.get(field.name).copied();
            let slot = self.inside(&format!(".{}", field.name), |c| c.field(entry, field, place));
            (field.name.to_owned(), slot)
        });
        Value::Map(members.collect())
    }

    /// The entries by name; unknown and repeated ones become problems.
    fn known<'e>(&mut self, entries: &'e [Entry], map: &'static Map) -> HashMap<&'e str, &'e Entry> {
        let mut given: HashMap<&str, &Entry> = HashMap::new();
        for entry in entries {
            if map.field(&entry.name).is_none() {
                self.unknown(entry, map);
            } else if let Some(first) = given.get(entry.name.as_str()) {
                let found = format!("given twice, first on line {}", first.place.line);
                // `fairlane providers NAME >> gateway.yaml`, a second time.
                let hint = match entry.name.as_str() {
                    "sources" => {
                        "move the entries under the first `sources:` (`fairlane providers NAME --item` prints one without it)"
                    }
                    _ => "keep one",
                };
                self.inside(&format!(".{}", entry.name), |c| {
                    c.problem(entry.place, &found).hint = Some(hint.to_owned());
                });
            } else {
                given.insert(&entry.name, entry);
            }
        }
        given
    }

    fn unknown(&mut self, entry: &Entry, map: &'static Map) {
        let names: Vec<&str> = map.fields.iter().map(|f| f.name).collect();
        let expected = format!("one of {}", names.join(", "));
        if map.secret {
            // `{ hunter2 }` is a map with the key hunter2.
            let problem = self.problem(entry.place, "an unknown key");
            problem.expected = Some(expected);
            problem.hint = Some("inside { … } a secret needs quotes".to_owned());
            return;
        }
        // `secret:hunter2` without its blank is one long key, and half of it is a value.
        let (step, hint) = match entry.name.split_once(':') {
            Some((name, _)) => {
                let name = name.escape_debug();
                (format!(".{name}:…"), Some(format!("a blank belongs between the colon and the value: {name}: …")))
            }
            None => {
                let hint = nearest::hint(&entry.name, &names).or_else(|| nearest::elsewhere(&entry.name));
                (format!(".{}", entry.name.escape_debug()), hint)
            }
        };
        self.inside(&step, |c| {
            let problem = c.problem(entry.place, "unknown key");
            problem.expected = Some(expected);
            problem.hint = hint;
        });
    }

    fn field(&mut self, entry: Option<&Entry>, field: &'static Field, map: Place) -> Slot {
        let Some(entry) = entry else {
            if matches!(field.default, Default::Required) {
                self.missing(field, map);
            }
            return default(field, map);
        };
        let node = &entry.value;
        if matches!(node.is, Is::Null) {
            self.null(entry, field);
            if matches!(field.default, Default::OrNull(_)) {
                return Slot { place: node.place, given: true, value: Value::Null };
            }
            return default(field, node.place);
        }
        let Some(value) = self.value(node, &field.kind) else { return default(field, node.place) };
        Slot { place: node.place, given: true, value }
    }

    fn missing(&mut self, field: &Field, map: Place) {
        let problem = self.problem(map, "is missing");
        problem.expected = Some(expected(&field.kind));
        problem.hint = required_hint(field);
    }

    /// `null`, or a name with nothing behind it.
    fn null(&mut self, entry: &Entry, field: &Field) {
        let default = match field.default {
            Default::Required => required_hint(field),
            Default::Is("null") | Default::Parts | Default::OrNull(_) => return,
            Default::Is(text) => Some(format!("leave it out for the default, {text}")),
        };
        let problem = self.problem(entry.value.place, "nothing stands here");
        problem.expected = Some(expected(&field.kind));
        problem.hint = default;
    }

    /// The value of a node; `None` when it has a problem that leaves nothing of it.
    fn value(&mut self, node: &Node, kind: &'static Kind) -> Option<Value> {
        match (kind, &node.is) {
            (Kind::Map(map), Is::Map(entries)) => Some(self.map(entries, map, node.place)),
            (Kind::Map(map), Is::Scalar(_)) if map.short.is_some() => self.short(node, map),
            (Kind::List(of, least), Is::List(items)) => self.list(node, items, of, *least),
            (Kind::Dict { name, value }, Is::Map(entries)) => Some(self.dict(entries, name, value)),
            (Kind::Key | Kind::Order, _) => self.key(node, matches!(kind, Kind::Order)),
            (Kind::Map(_) | Kind::List(..) | Kind::Dict { .. }, _) => self.wrong_kind(node, kind),
            (_, Is::Scalar(text)) => self.scalar(node, text, kind),
            (_, Is::Null | Is::List(_) | Is::Map(_)) => self.wrong_kind(node, kind),
        }
    }

    fn wrong_kind(&mut self, node: &Node, kind: &Kind) -> Option<Value> {
        let (found, hint) = match (&node.is, kind) {
            (Is::Scalar(text), Kind::List(Kind::Text(_) | Kind::Int(..), _)) if !text.contains("${") => {
                (quoted(text), Some(format!("a list is written [{text}]")))
            }
            (Is::Map(_), Kind::List(..)) => ("a map".to_owned(), Some("each item of a list begins with -".to_owned())),
            _ => (node.kind().to_owned(), None),
        };
        let problem = self.problem(node.place, &format!("found {found}"));
        problem.expected = Some(expected(kind));
        problem.hint = hint;
        None
    }

    /// A plain value in place of a map stands for one of its fields.
    fn short(&mut self, node: &Node, map: &'static Map) -> Option<Value> {
        let field = map.short.and_then(|name| map.field(name))?;
        let value = self.value(node, &field.kind)?;
        let Value::Map(mut members) = defaults(map, node.place) else { return None };
        if let Some((_, slot)) = members.iter_mut().find(|(name, _)| name == field.name) {
            *slot = Slot { place: node.place, given: true, value };
        }
        Some(Value::Map(members))
    }

    fn list(&mut self, node: &Node, items: &[Node], of: &'static Kind, least: usize) -> Option<Value> {
        if items.len() < least {
            let least = if let Kind::Map(map) = of { format!("a map with {}", needed(map)) } else { expected(of) };
            self.problem(node.place, "the list is empty").expected = Some(format!("at least one item: {least}"));
            return None;
        }
        let mut slots = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let value = self.inside(&format!("[{i}]"), |c| c.value(item, of));
            if let Some(value) = value {
                slots.push(Slot { place: item.place, given: true, value });
            }
        }
        Some(Value::List(slots))
    }

    fn dict(&mut self, entries: &[Entry], name: &'static Text, value: &'static Kind) -> Value {
        let mut members: Vec<(String, Slot)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(written) = self.dict_name(entry, name, value) else { continue };
            let slot = self.inside(&format!(".{written}"), |c| c.dict_value(entry, value));
            if members.iter().any(|(name, _)| *name == written) {
                let step = format!(".{written}");
                self.inside(&step, |c| c.problem(entry.place, "given twice").hint = Some("keep one".to_owned()));
            } else if let Some(slot) = slot {
                members.push((written, slot));
            }
        }
        Value::Map(members)
    }

    /// A wrong name is not shown where values are secret: `{ "Authorization: x" }` is a name without a value.
    fn dict_name(&mut self, entry: &Entry, form: &'static Text, value: &'static Kind) -> Option<String> {
        let secret = matches!(value, Kind::Secret(_));
        match (form.read)(&entry.name) {
            Ok(name) => Some(name),
            Err(hint) => {
                let found = if secret {
                    "found a name that is none (not shown)".to_owned()
                } else {
                    format!("found {}", quoted(&entry.name))
                };
                self.refused(entry.place, &found, form.expected, hint);
                None
            }
        }
    }

    fn dict_value(&mut self, entry: &Entry, kind: &'static Kind) -> Option<Slot> {
        if matches!(entry.value.is, Is::Null) {
            self.problem(entry.value.place, "nothing stands here").expected = Some(expected(kind));
            return None;
        }
        let value = self.value(&entry.value, kind)?;
        Some(Slot { place: entry.value.place, given: true, value })
    }

    /// A key rule. Whether its expressions can be parsed is found out where the rule is made.
    fn key(&mut self, node: &Node, or_group: bool) -> Option<Value> {
        let key = self.key_part(node, KEY_DEPTH_MAX)?;
        match key {
            Key::One(text) if or_group && text == "group" => Some(Value::Text(text)),
            key => Some(Value::Key(key)),
        }
    }

    fn key_part(&mut self, node: &Node, depth: usize) -> Option<Key> {
        match &node.is {
            Is::Scalar(text) => self.expand(node.place, text).map(Key::One),
            Is::List(items) if depth > 0 && !items.is_empty() => self.key_parts(items, depth).map(Key::First),
            Is::Map(entries) if depth > 0 => match entries.as_slice() {
                [Entry { name, value: Node { is: Is::List(items), .. }, .. }]
                    if name == "join" && !items.is_empty() =>
                {
                    self.inside(".join", |c| c.key_parts(items, depth)).map(Key::Join)
                }
                _ => self.no_key(node),
            },
            Is::Null | Is::List(_) | Is::Map(_) => self.no_key(node),
        }
    }

    fn key_parts(&mut self, items: &[Node], depth: usize) -> Option<Vec<Key>> {
        let mut parts = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            parts.push(self.inside(&format!("[{i}]"), |c| c.key_part(item, depth - 1)));
        }
        parts.into_iter().collect()
    }

    fn no_key(&mut self, node: &Node) -> Option<Key> {
        self.problem(node.place, &format!("found {}", node.kind())).expected = Some(expected(&Kind::Key));
        None
    }

    fn scalar(&mut self, node: &Node, written: &str, kind: &'static Kind) -> Option<Value> {
        let text = self.expand(node.place, written)?;
        let read = match kind {
            Kind::Bool => match text.as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(String::new()),
            },
            Kind::Int(min, max) => bounded(text.parse().map_err(|_| String::new()), min, max).map(Value::Int),
            Kind::Number(min, max) => {
                let number = text.parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(String::new);
                bounded(number, min, max).map(Value::Number)
            }
            Kind::Duration(min, max) => bounded(scalar::duration(&text), min, max).map(Value::Duration),
            Kind::Size(min, max) => bounded(scalar::size(&text), min, max).map(Value::Size),
            Kind::Rate => text.parse().map(Value::Rate),
            Kind::Choice(words) if words.contains(&text.as_str()) => Ok(Value::Text(text.clone())),
            Kind::Choice(words) => Err(nearest::hint(&text, words).unwrap_or_default()),
            Kind::Text(form) => (form.read)(&text).map(Value::Text),
            Kind::Provider if providers::is_known(&text) => Ok(Value::Text(text.clone())),
            Kind::Provider => Err(providers::hint(&text)),
            Kind::Secret(form) => return self.secret(node.place, &text, *form),
            Kind::Map(_) | Kind::List(..) | Kind::Dict { .. } | Kind::Key | Kind::Order => {
                return self.wrong_kind(node, kind);
            }
        };
        match read {
            Ok(value) => Some(value),
            Err(hint) => {
                let shown = shown(&text, written, kind);
                self.refused(node.place, &format!("found {shown}"), &expected(kind), hint);
                None
            }
        }
    }

    fn refused(&mut self, place: Place, found: &str, expected: &str, hint: String) {
        let problem = self.problem(place, found);
        problem.expected = Some(expected.to_owned());
        problem.hint = Some(hint).filter(|h| !h.is_empty());
    }

    fn secret(&mut self, place: Place, text: &str, form: Option<&'static Text>) -> Option<Value> {
        let text = match secret::secret(text, self.outside.files) {
            Ok(text) => Zeroizing::new(text),
            Err(incomplete) => return self.incomplete(place, incomplete),
        };
        match form.map(|form| (form, (form.read)(&text))) {
            Some((form, Err(hint))) => {
                // A hint may repeat a part of the value.
                let hint = if hint.contains(text.as_str()) || text.contains('@') { String::new() } else { hint };
                self.refused(place, "found something else (not shown)", form.expected, hint);
                None
            }
            Some((_, Ok(text))) => Some(Value::Secret(Secret::new(text))),
            None if text.is_empty() => {
                self.problem(place, "the secret is empty").hint =
                    Some("with an empty secret anybody can sign".to_owned());
                None
            }
            None => Some(Value::Secret(Secret::new(text.as_bytes()))),
        }
    }

    fn expand(&mut self, place: Place, text: &str) -> Option<String> {
        match secret::expand(text, self.outside.env) {
            Ok(text) => Some(text),
            Err(incomplete) => {
                self.incomplete(place, incomplete);
                None
            }
        }
    }

    fn incomplete(&mut self, place: Place, incomplete: Incomplete) -> Option<Value> {
        self.problem(place, &incomplete.found).hint = Some(incomplete.hint);
        None
    }
}

fn bounded<T: PartialOrd>(value: Result<T, String>, min: &T, max: &T) -> Result<T, String> {
    let value = value?;
    if value < *min || value > *max { Err(String::new()) } else { Ok(value) }
}

/// A field's default, as if it stood at `place`.
pub(super) fn default(field: &'static Field, place: Place) -> Slot {
    let value = match (&field.default, &field.kind) {
        (Default::Parts, Kind::Map(map)) => defaults(map, place),
        (Default::OrNull(text), kind) => written_default(text, kind),
        (Default::Is(text), kind) if *text != "null" => written_default(text, kind),
        _ => Value::Null,
    };
    Slot { place, given: false, value }
}

/// A map in which nothing is given.
fn defaults(map: &'static Map, place: Place) -> Value {
    Value::Map(map.fields.iter().map(|field| (field.name.to_owned(), default(field, place))).collect())
}

/// The value of a field that is written so.
pub(super) fn written_default(text: &str, kind: &'static Kind) -> Value {
    let outside = Outside { env: &|_| None, files: &|_| Err(std::io::ErrorKind::NotFound.into()) };
    let node = if text.starts_with(['[', '{', '"']) {
        raw::parse(text, "default").map_err(|p| p.text()).expect("invariant: defaults are YAML")
    } else {
        // Most are plain scalars, and every load makes all of them: a parser for each would be felt.
        Node { place: Place::START, is: Is::Scalar(text.to_owned()) }
    };
    Checker::new("default", outside).value(&node, kind).expect("invariant: a default is a value of its field")
}
