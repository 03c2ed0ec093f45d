//! The words of the checker: what a field takes, and how a refused value may be shown.

use super::fields::{Default, Field, Kind, Map};
use super::scalar;
use super::value::quoted;

/// What a field takes, in words.
pub(super) fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Map(map) => map_expected(map),
        Kind::List(Kind::Map(map), _) if map.short.is_none() => format!("a list of maps, each with {}", needed(map)),
        Kind::List(of, _) => format!("a list, each item {}", expected(of)),
        Kind::Dict { name, .. } => format!("a map, each name {}", name.expected),
        Kind::Bool => "true or false".to_owned(),
        Kind::Int(min, max) => format!("a whole number from {min} to {max}"),
        Kind::Number(min, max) => format!("a number from {min} to {max}"),
        Kind::Duration(min, max) => {
            let (min, max) = (scalar::show_duration(*min), scalar::show_duration(*max));
            format!("a duration from {min} to {max}, e.g. 500ms, 10s, 1h30m")
        }
        Kind::Size(min, max) => {
            format!("a size from {} to {}, e.g. 64KiB, 26MiB, 1GB", scalar::show_size(*min), scalar::show_size(*max))
        }
        Kind::Rate => "a rate such as 500/s or 10000/m".to_owned(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::Text(form) => form.expected.to_owned(),
        Kind::Secret(form) => form.map_or("a secret: text, \"${NAME}\" or file:/path", |form| form.expected).to_owned(),
        Kind::Key => "a key expression such as body.account.id, a list of them, or { join: [a, b] }".to_owned(),
        Kind::Order => "group, or a key expression such as body.id".to_owned(),
        Kind::Provider => "the name of a provider, or none".to_owned(),
    }
}

/// What a map cannot do without.
pub(super) fn needed(map: &Map) -> String {
    let names: Vec<&str> =
        map.fields.iter().filter(|f| matches!(f.default, Default::Required)).map(|f| f.name).collect();
    names.join(" and ")
}

/// What a map takes, in words.
pub(super) fn map_expected(map: &Map) -> String {
    let names: Vec<&str> = map.fields.iter().map(|f| f.name).collect();
    match map.short.and_then(|name| map.field(name)) {
        Some(field) => format!("{}, or a map with {}", expected(&field.kind), names.join(", ")),
        None => format!("a map with {}", names.join(", ")),
    }
}

/// A refused value as a problem may show it: what a variable gave is not shown, its name is; nor is what could hold a password.
pub(super) fn shown(text: &str, written: &str, kind: &Kind) -> String {
    let like_a_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if text != written {
        format!("the value of {}", quoted(written))
    } else if text.contains("://") && text.contains('@') {
        "a URL with an @".to_owned()
    } else if matches!(kind, Kind::Provider) && (text.len() > 32 || !text.bytes().all(like_a_name)) {
        "an unknown name (not shown)".to_owned()
    } else {
        quoted(text)
    }
}

/// What to do about a field that has to be given.
pub(super) fn required_hint(field: &Field) -> Option<String> {
    (field.name == "verify").then(|| "write verify: none if anybody may send".to_owned())
}
