//! `fairlane providers`: who is known by name, what to know about each, and a source block to begin with.
//!
//! All of it is made from the one table of presets; `docs/providers.md` is the same once more, as a page.

mod page;

use clap::Args;
use serde_json::{Value, json};

use super::table::{Column, cell, table};
use super::{USAGE, complain, print};
use crate::event::Secret;
use crate::verify::fetched::Of;
use crate::verify::handshake::questions;
use crate::verify::scheme::Scheme;
use crate::verify::{Choice, Preset, SecretSpec, Spec, Verifier, preset, presets};

/// The arguments of `fairlane providers`.
#[derive(Debug, Args)]
pub(super) struct Providers {
    /// Which one; all of them where this is left out
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only the entry of the list, for a file that has `sources:` already
    #[arg(long, requires = "name", conflicts_with = "json")]
    item: bool,
    /// Print all of them as a page of Markdown, as docs/providers.md has it
    #[arg(long, conflicts_with_all = ["name", "json"])]
    markdown: bool,
}

const COLUMNS: [Column; 7] = [
    ("NAME", "name", false),
    ("SIGNS BY", "kind", false),
    ("GROUP KEY", "key", false),
    ("LEAVES OPEN", "leaves_open", false),
    ("LIMIT s", "answer_limit_s", true),
    ("ASKS FIRST", "asks", false),
    ("AFTER FAILURES", "failures", false),
];

/// Lists all, or prints what is known of one with a ready source block; the answer is the exit code.
pub(super) fn run(arguments: &Providers) -> u8 {
    let Some(name) = &arguments.name else {
        return print(
            match (arguments.markdown, arguments.json) {
                (true, _) => page::page().into_bytes(),
                (_, true) => format!("{:#}\n", json!({ "providers": presets().iter().map(facts).collect::<Vec<_>>() }))
                    .into_bytes(),
                _ => list().into_bytes(),
            }
            .as_slice(),
        );
    };
    match preset(name) {
        Some(preset) if arguments.json => {
            let mut facts = facts(preset);
            if let Some(facts) = facts.as_object_mut() {
                facts.insert("source".to_owned(), json!(source(preset)));
            }
            print(format!("{facts:#}\n").as_bytes())
        }
        Some(preset) if arguments.item => print(item(preset).as_bytes()),
        Some(preset) => print(block(preset).as_bytes()),
        None => complain(&unknown(name), USAGE),
    }
}

/// What to say about a name that nobody has; the verifier's own words name the nearest.
fn unknown(name: &str) -> String {
    let spec = Spec::new(Choice::Preset(name.to_owned()), vec![SecretSpec::new(Secret::new("none"))]);
    Verifier::new(spec).err().map_or_else(|| format!("unknown provider {name:?}"), |error| error.to_string())
}

/// All that is known of one; null is "not documented".
fn facts(preset: &Preset) -> Value {
    json!({
        "name": preset.name,
        "title": preset.title,
        "signs": preset.scheme.in_words(),
        "secret": preset.secret,
        "window": preset.scheme.window_in_words(),
        "leaves_open": preset.scheme.leaves_open(),
        "natural_key": preset.natural_key,
        "namespace": preset.namespace,
        "reserved_lane": preset.reserved_lane.map(|lane| format!("~{lane}")),
        "key_signed": preset.key_signed,
        "event_id": preset.event_id,
        "event_type": preset.event_type,
        "answer_limit_s": preset.answer_limit.map(|limit| limit.as_secs_f64()),
        "ack": preset.ack,
        "repeats": preset.repeats,
        "failures": preset.failures,
        "handshakes": questions(preset.name),
        "note": preset.note,
    })
}

fn list() -> String {
    let row = |preset: &Preset| {
        let more = preset.natural_key.len().saturating_sub(1);
        let key =
            preset.natural_key.first().map(|key| if more > 0 { format!("{key} (+{more})") } else { (*key).to_owned() });
        json!({
            "name": preset.name,
            "kind": preset.scheme.kind(),
            "key": key,
            "leaves_open": preset.scheme.leaves_open(),
            "answer_limit_s": preset.answer_limit.map(|limit| limit.as_secs()),
            "asks": if questions(preset.name).is_empty() { None } else { Some("yes") },
            "failures": preset.failures,
        })
    };
    let rows: Vec<Value> = presets().iter().map(row).collect();
    let text = table(&json!({ "providers": rows }), "providers", &COLUMNS);
    format!("{text}\n- is not documented, or none. `fairlane providers NAME` says more and prints a source block.\n")
}

/// What is known, as comments, and the source.
fn block(preset: &Preset) -> String {
    let mut text = format!("# {}\n", preset.title);
    for (what, words) in page::lines(preset) {
        text.push_str(&format!("#   {what:<11} {words}\n"));
    }
    text + &source(preset)
}

/// Providers that show what the application itself answers: to whom the answer matters, and what it is.
const RELAYED: [(&str, &str); 3] =
    [("discord", "interactions"), ("slack", "the answers of slash commands"), ("twilio", "TwiML")];

/// A source block to begin with.
fn source(preset: &Preset) -> String {
    format!("sources:\n{}", item(preset))
}

/// The same without the head of the list.
fn item(preset: &Preset) -> String {
    let Preset { name, natural_key, key_signed, .. } = preset;
    let variable = |what| variable(name, what);
    let proof = match proof(preset) {
        "topics" => format!("topics: [\"${{{}}}\"]", variable("TOPIC")),
        field => format!("{field}: \"${{{}}}\"", variable(&field.to_uppercase())),
    };
    let verify = if preset.scheme.covers_url() {
        let url =
            "public_url: https://hooks.example.com    # scheme and host as configured at the provider: they are signed";
        format!("    verify:\n      provider: {name}\n      {proof}\n      {url}\n")
    } else {
        format!("    verify: {{ provider: {name}, {proof} }}\n")
    };
    let key = match natural_key {
        [] => "    key: body.tenant            # this provider names no tenant of its own: say where yours stands\n"
            .to_owned(),
        key if *key_signed => format!("    # grouped by {}, which the signature covers\n", key.join(", else ")),
        key => format!("    # grouped by {}; the signature does not cover it\n", key.join(", else ")),
    };
    let relayed = RELAYED.iter().find(|(relayed, _)| relayed == name).map_or_else(String::new, |(_, what)| {
        format!("    # respond: upstream         # where the application's own answer goes back: {what}\n")
    });
    format!("  - path: /webhooks/{name}\n{verify}{key}{relayed}")
}

/// The field of `verify` that says by what a provider's requests are judged.
pub(super) fn proof(preset: &Preset) -> &'static str {
    match &preset.scheme {
        Scheme::Fetched(fetched) if fetched.of == Of::Sns => "topics",
        Scheme::Fetched(_) => "webhook_id",
        _ => "secret",
    }
}

fn variable(name: &str, what: &str) -> String {
    format!("{}_{what}", name.to_uppercase().replace('-', "_"))
}

/// A value in words: null is "not documented".
fn documented(value: &Value) -> String {
    if value.is_null() { "not documented".to_owned() } else { cell(Some(value)) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_block_is_a_configuration_that_loads() {
        for preset in presets() {
            let text = format!("upstream: http://127.0.0.1:9\n{}", block(preset));
            // A secret in each form that some provider has.
            let secrets =
                ["hush-a-test-secret", "whsec_aHVzaC1hLXRlc3Qtc2VjcmV0", "68757368", "aHVzaC1hLXRlc3Q=", "user:hush"];
            let loads = |text: &str, secret: &&str| {
                let environment = |_: &str| Some((*secret).to_owned());
                let no_files = |_: &Path| Err(std::io::Error::other("no files here"));
                crate::config::load(text, "block.yaml", &environment, &no_files).is_ok()
            };
            let public_key = format!("{:?}", preset.scheme).contains("Public");
            assert!(public_key || secrets.iter().any(|secret| loads(&text, secret)), "{text}");
            assert!(list().contains(preset.name));
            assert_eq!(source(preset).contains("public_url"), preset.scheme.covers_url(), "{text}");
            let again = text.clone() + &item(preset).replacen("/webhooks/", "/again/", 1);
            assert_eq!(again.matches("sources:").count(), 1);
            assert!(public_key || secrets.iter().any(|secret| loads(&again, secret)), "{again}");
        }
    }

    #[test]
    fn an_answer_that_has_to_be_relayed_is_one_that_can_be() {
        for (name, _) in RELAYED {
            let text = format!("upstream: http://127.0.0.1:9\n{}", source(preset(name).unwrap()));
            let relaying = text.replace("# respond: upstream", "respond: upstream");
            assert_ne!(text, relaying);
            let form = if name == "discord" { "aa".repeat(32) } else { "hush-a-test-secret".to_owned() };
            let no_files = |_: &Path| Err(std::io::Error::other("no files here"));
            let loaded = crate::config::load(&relaying, "block.yaml", &|_| Some(form.clone()), &no_files);
            assert!(loaded.is_ok(), "{:?}", loaded.err());
        }
    }

    #[test]
    fn an_unknown_name_is_told_the_nearest_one_and_what_is_unknown_is_not_made_up() {
        assert!(unknown("shopfy").contains("did you mean \"shopify\"?"));
        let heroku = block(preset("heroku").unwrap());
        assert!(heroku.contains("failures    not documented"), "{heroku}");
        assert!(block(preset("shopify").unwrap()).contains("deleted after 8 failures"));
        assert_eq!(facts(preset("slack").unwrap())["handshakes"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn the_page_in_the_documentation_is_the_one_that_is_made() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/providers.md");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == page::page(),
            "docs/providers.md is old: cargo run -- providers --markdown > docs/providers.md"
        );
    }
}
