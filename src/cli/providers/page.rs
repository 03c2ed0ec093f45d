//! The page about all providers: `docs/providers.md`.

use serde_json::Value;

use super::{documented, facts, source, variable};
use crate::verify::{Preset, presets};

const INTRODUCTION: &str = "\
# Providers

The providers that are known by name: `verify: { provider: NAME, secret: … }`. This page is made from the table in `src/verify/preset`
by `fairlane providers --markdown > docs/providers.md`, and a test holds it. *Not documented* means that neither the provider's
documentation nor its libraries say so, as far as they were read; it does not mean *none*.

*Leaves open* is what somebody who holds one genuine request could change and send again, unnoticed. A group key that stands there
(a header, where only the body is signed) can be forged by such a person; `fairlane events` shows it as `key_source`.
";

/// The whole page.
pub(super) fn page() -> String {
    let mut text = format!(
        "{INTRODUCTION}\n| name | provider | group key | leaves open | waits | after failures |\n|{}\n",
        " --- |".repeat(6)
    );
    for preset in presets() {
        let facts = facts(preset);
        let cell = |field: &str| documented(facts.get(field).unwrap_or(&Value::Null)).replace('|', "\\|");
        let key = preset
            .natural_key
            .first()
            .map_or_else(|| "none".to_owned(), |key| format!("`{}`", key.replace('|', "\\|")));
        let waits =
            preset.answer_limit.map_or_else(|| "not documented".to_owned(), |limit| format!("{} s", limit.as_secs()));
        text.push_str(&format!(
            "| [`{name}`](#{name}) | {} | {key} | {} | {waits} | {} |\n",
            preset.title,
            nothing(&cell("leaves_open")),
            cell("failures"),
            name = preset.name,
        ));
    }
    for preset in presets() {
        text.push_str(&format!("\n## {}\n\n{}\n\n", preset.name, preset.title));
        for (what, words) in lines(preset) {
            text.push_str(&format!("- {what}: {}\n", literal(&words)));
        }
        text.push_str(&format!("\n```yaml\n{}```\n", source(preset)));
    }
    text
}

/// What is known of one, by name.
pub(super) fn lines(preset: &Preset) -> Vec<(&'static str, String)> {
    let facts = facts(preset);
    let said = |field: &str| documented(facts.get(field).unwrap_or(&Value::Null));
    let none =
        |field: &str, none: &str| Some(said(field)).filter(|said| said != "-").unwrap_or_else(|| none.to_owned());
    let key = match preset.natural_key {
        [] => "none of its own".to_owned(),
        keys => {
            let namespace = preset.namespace.map_or_else(String::new, |namespace| format!(", behind {namespace}~"));
            let signed = if preset.key_signed { "covered by the signature" } else { "not covered by the signature" };
            let reserved = preset.reserved_lane.map_or_else(String::new, |lane| format!(", else the lane ~{lane}"));
            format!("{}{reserved}{namespace}; {signed}", keys.join(", else "))
        }
    };
    vec![
        ("signs", said("signs")),
        ("leaves open", nothing(&said("leaves_open"))),
        ("time window", facts.get("window").and_then(Value::as_str).unwrap_or("no time is signed").to_owned()),
        ("secret", said("secret")),
        ("group key", key),
        ("event id", said("event_id")),
        ("event type", said("event_type")),
        (
            "waits",
            preset
                .answer_limit
                .map_or_else(|| "not documented".to_owned(), |limit| format!("{} s for an answer", limit.as_secs())),
        ),
        ("accepts", said("ack")),
        ("failures", said("failures")),
        ("asks first", none("handshakes", "nothing that is known")),
        ("note", said("note")),
        (
            "test event",
            format!(
                "fairlane send --provider {} --secret env:{} --to URL < body",
                preset.name,
                variable(preset.name, "SECRET")
            ),
        ),
    ]
}

fn nothing(open: &str) -> String {
    if open == "-" { "nothing".to_owned() } else { open.to_owned() }
}

/// Text in which Markdown sees nothing of its own.
fn literal(text: &str) -> String {
    text.replace('<', "\\<").replace('*', "\\*").replace('_', "\\_").replace('~', "\\~")
}
