//! The configuration written again: every default filled in, secrets masked, and what a null stands for beside it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use super::scalar;
use super::value::{Key, Slot, Value};
use crate::verify;

/// What stands for a secret.
pub(super) const MASK: &str = "***";

/// The whole configuration as YAML. `meanings` says, by path, what a null comes to.
pub(super) fn yaml(root: &Slot, meanings: &HashMap<String, String>) -> String {
    let mut writer = Writer { out: String::new(), meanings };
    writer.members(root, "", 0);
    writer.out
}

struct Writer<'m> {
    out: String,
    meanings: &'m HashMap<String, String>,
}

impl Writer<'_> {
    fn members(&mut self, map: &Slot, path: &str, depth: usize) {
        for (name, slot) in map.members() {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            self.out.push_str(&"  ".repeat(depth));
            self.out.push_str(&word(name));
            self.out.push(':');
            self.below(slot, &path, depth);
        }
    }

    /// What comes behind a name or a dash.
    fn below(&mut self, slot: &Slot, path: &str, depth: usize) {
        match &slot.value {
            Value::Map(members) if !members.is_empty() => {
                self.out.push('\n');
                self.members(slot, path, depth + 1);
            }
            Value::List(items) if items.iter().any(|item| matches!(item.value, Value::Map(_))) => {
                self.out.push('\n');
                for (i, item) in items.iter().enumerate() {
                    self.item(item, &format!("{path}[{i}]"), depth + 1);
                }
            }
            value => {
                self.out.push(' ');
                self.out.push_str(&line(value));
                if let (Value::Null, Some(meaning)) = (value, self.meanings.get(path)) {
                    // A comment ends with its line, whatever is in it.
                    let meaning: String = meaning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                    self.out.push_str(&format!("  # {meaning}"));
                }
                self.out.push('\n');
            }
        }
    }

    /// A map in a list: its first name goes behind the dash.
    fn item(&mut self, item: &Slot, path: &str, depth: usize) {
        let start = self.out.len();
        self.members(item, path, depth + 1);
        let dash = start + 2 * depth;
        self.out.replace_range(dash..dash + 2, "- ");
    }
}

/// A value on one line, secrets masked.
pub(super) fn line(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Number(n) => n.to_string(),
        Value::Duration(d) => scalar::show_duration(*d),
        Value::Size(n) => scalar::show_size(*n),
        Value::Rate(rate) => rate.to_string(),
        Value::Text(text) => word(&without_password(text)),
        Value::Secret(_) => format!("\"{MASK}\""),
        Value::Key(key) => key_line(key),
        Value::List(items) => format!("[{}]", joined(items.iter().map(|item| line(&item.value)))),
        Value::Map(members) if members.is_empty() => "{}".to_owned(),
        Value::Map(members) => {
            let members = members.iter().map(|(name, slot)| format!("{}: {}", word(name), line(&slot.value)));
            format!("{{ {} }}", joined(members))
        }
    }
}

/// A value for a program, secrets masked; durations, sizes and rates as they are written in the file.
pub(super) fn json(value: &Value) -> serde_json::Value {
    use serde_json::{Value as Json, json};
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => json!(b),
        Value::Int(n) | Value::Size(n) => json!(n),
        Value::Number(n) => json!(n),
        Value::Duration(d) => json!(scalar::show_duration(*d)),
        Value::Rate(rate) => json!(rate.to_string()),
        Value::Text(text) => json!(without_password(text)),
        Value::Secret(_) => json!(MASK),
        Value::Key(key) => key_json(key),
        Value::List(items) => items.iter().map(|item| json(&item.value)).collect(),
        Value::Map(members) => {
            Json::Object(members.iter().map(|(name, slot)| (name.clone(), json(&slot.value))).collect())
        }
    }
}

/// An address with what stands for its user and password, if it has them.
fn without_password(text: &str) -> Cow<'_, str> {
    match verify::without_user(text) {
        Cow::Borrowed(same) => Cow::Borrowed(same),
        Cow::Owned(bare) => Cow::Owned(bare.replacen("://", &format!("://{MASK}@"), 1)),
    }
}

fn key_json(key: &Key) -> serde_json::Value {
    match key {
        Key::One(text) => serde_json::json!(text),
        Key::First(parts) => parts.iter().map(key_json).collect(),
        Key::Join(parts) => serde_json::json!({ "join": parts.iter().map(key_json).collect::<Vec<_>>() }),
    }
}

/// A key rule as it is written.
fn key_line(key: &Key) -> String {
    match key {
        Key::One(text) => word(text),
        Key::First(parts) => format!("[{}]", joined(parts.iter().map(key_line))),
        Key::Join(parts) => format!("{{ join: [{}] }}", joined(parts.iter().map(key_line))),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Text so that YAML reads it back as this text, and no variable is seen in it. Plain where that is safe anywhere.
fn word(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/' | b'+');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '.');
    if begins
        && text.bytes().all(|b| plain(b) || b == b':')
        && !text.ends_with(':')
        && !matches!(text, "null" | "Null" | "NULL")
    {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '$' if matches!(chars.peek(), Some('$' | '{')) => out.push_str("$$"),
            // Control, direction and line characters, as YAML escapes them.
            c if c.is_control() || matches!(u32::from(c), 0x2028..=0x202E | 0x2066..=0x2069 | 0xFEFF) => {
                write!(out, "\\u{:04X}", u32::from(c)).expect("invariant: a String takes every write");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{raw, secret};
    use super::*;

    proptest! {
        #[test]
        fn text_is_read_back_as_it_was(text in "\\PC{0,20}|[\\x00-\\x7f]{0,12}|[$\\{\\}a:# -]{0,12}|(true|no|1e3|0x1F|null|~)") {
            for document in [format!("k: {}", word(&text)), format!("{{ k: {} }}", word(&text)), format!("k: [{}]", word(&text))] {
                let root = raw::parse(&document, "f").unwrap_or_else(|p| panic!("{document}: {p}"));
                let raw::Is::Map(mut entries) = root.is else { panic!("{document}") };
                let node = match entries.remove(0).value.is {
                    raw::Is::List(mut items) => items.remove(0).is,
                    other => other,
                };
                let raw::Is::Scalar(read) = node else { panic!("{document}") };
                prop_assert_eq!(secret::expand(&read, &|_| None), Ok(text.clone()), "{}", document);
            }
        }
    }
}
