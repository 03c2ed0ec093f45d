//! The table of fields as a page for people, in Markdown: `docs/configuration.md`.
//!
//! A section for every map, a row for every field. What a row says comes from the table alone, so that the page, the schema
//! and the checker cannot disagree.

use super::fields::{Default, Field, Kind, Map, ROOT};
use super::scalar::{show_duration, show_size};
use super::words::expected;

const HEAD: &str = "\
# Configuration, field by field

Written by `fairlane schema --markdown` from the table that the checker walks; not to be edited by hand. [gateway.yaml](../gateway.yaml) has the same
fields with their defaults as one file, to be copied.

Everything has a default but `sources`, and of a source only `path` and `verify` are needed. `fairlane check` says everything that is wrong at once, or prints
what a file comes to. How values are written:

| kind | written |
| --- | --- |
| duration | `500ms`, `10s`, `5m`, `1h30m`, `3d` |
| size | `64KiB`, `26MiB`, `2GiB` (1024), `1GB` (1000), or plain bytes |
| rate | `500/s`, `10000/m` |
| key | an expression such as `body.account.id`, a list of them (the first that finds something), or `{ join: [a, b] }` (all of them); see [keys](keys.md) |
| secret | text, `\"${NAME}\"` or `file:/path`, which is read again when it changes |
| anywhere | `${NAME}` is an environment variable, `${NAME:-default}` one that may be missing, `$$` a literal `$`; inside `{ }` and `[ ]` it needs quotes |

A changed file is applied while running, whole or not at all. `listen.address`, `listen.tls` (on or off), `listen.h2c`, `admin.address`, `tenant_pages.address` and `store` need a restart.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    section(&ROOT, "", &mut page);
    page
}

/// The section of a map and, after it, those of the maps in it.
fn section(map: &'static Map, path: &str, page: &mut String) {
    let title = if path.is_empty() { "The whole file" } else { path };
    page.push_str(&format!("\n## {title}\n\n"));
    if let Some(short) = map.short {
        page.push_str(&format!("A plain value in place of the map is its `{short}`.\n\n"));
    }
    if map.fields.is_empty() {
        page.push_str("It has no fields: `{}`.\n");
        return;
    }
    page.push_str("| field | takes | default | meaning |\n| --- | --- | --- | --- |\n");
    for field in map.fields {
        let path = below(path, field);
        let row =
            [format!("`{}`", field.name), takes(&field.kind, &path), default(&field.default), field.doc.to_owned()];
        page.push_str(&format!("| {} |\n", row.map(|cell| cell.replace('|', "\\|")).join(" | ")));
    }
    for field in map.fields {
        match &field.kind {
            Kind::Map(inner) => section(inner, &below(path, field), page),
            Kind::List(Kind::Map(inner), _) => section(inner, &format!("{}[]", below(path, field)), page),
            _ => {}
        }
    }
}

fn below(path: &str, field: &Field) -> String {
    if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) }
}

/// What a field takes, short; a map is a link to its section.
fn takes(kind: &Kind, path: &str) -> String {
    match kind {
        Kind::Map(_) => format!("[map](#{})", anchor(path)),
        Kind::List(Kind::Map(_), _) => format!("[list of maps](#{})", anchor(path)),
        Kind::List(of, _) => format!("list: {}", takes(of, path)),
        Kind::Dict { name, .. } => format!("map from {}", name.expected),
        Kind::Int(min, max) => format!("{min} to {max}"),
        Kind::Number(min, max) => format!("{min} to {max}, fractions too"),
        Kind::Duration(min, max) => format!("duration, {} to {}", show_duration(*min), show_duration(*max)),
        Kind::Size(min, max) => format!("size, {} to {}", show_size(*min), show_size(*max)),
        Kind::Rate => "rate".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Secret(None) => "secret".to_owned(),
        Kind::Secret(Some(form)) => format!("secret: {}", form.expected),
        Kind::Key => "key".to_owned(),
        Kind::Order => "`group`, or a key".to_owned(),
        Kind::Bool | Kind::Text(_) | Kind::Provider => expected(kind),
    }
}

fn default(default: &Default) -> String {
    match default {
        Default::Required => "required".to_owned(),
        Default::Parts => "its fields'".to_owned(),
        Default::Is(text) | Default::OrNull(text) => format!("`{text}`"),
    }
}

/// The anchor that a heading gets where Markdown is shown: small letters, digits, `-` and `_` are left of it.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::paths;

    #[test]
    fn every_field_has_a_row_and_every_map_a_section_of_its_own() {
        let page = page();
        let (mut path, mut rows, mut anchors) = (String::new(), BTreeSet::new(), BTreeSet::new());
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                path = if title == "The whole file" { String::new() } else { format!("{title}.") };
                assert!(anchors.insert(anchor(title)), "{title}");
            } else if let Some(row) = line.strip_prefix("| `") {
                rows.insert(format!("{path}{}", row.split('`').next().unwrap()));
                assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{line}");
            }
        }
        assert_eq!(rows, paths().into_iter().collect());
        let links = page.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap());
        for link in links {
            assert!(anchors.contains(link), "{link} leads nowhere");
        }
    }
}
