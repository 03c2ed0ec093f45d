//! `fairlane sources`: what came through each, and holding one back as a whole.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, encoded, shown};
use super::table::{Column, cell, escaped, lines, table};

/// `fairlane sources …`.
#[derive(Debug, Args)]
pub(super) struct Sources {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The sources, how they stand, and what waits of each
    #[command(after_help = "Example: fairlane sources list")]
    List,
    /// Accept and keep its events, and deliver none of them until it is resumed
    #[command(after_help = "Example: fairlane sources pause /webhooks/shopify --for 2h")]
    Pause(Timed),
    /// Let it run again
    #[command(after_help = "Example: fairlane sources resume /webhooks/shopify")]
    Resume(One),
    /// Refuse its new requests with 503, which providers repeat, and deliver what is queued
    #[command(after_help = "Example: fairlane sources drain /webhooks/shopify --for 30m")]
    Drain(Timed),
}

#[derive(Debug, Args)]
struct One {
    /// The source, as lists write it: its name, or its path where it has none
    source: String,
}

#[derive(Debug, Args)]
struct Timed {
    #[command(flatten)]
    one: One,
    /// For how long: a time, a span such as 2h, or never; a day when left out
    #[arg(long = "for", value_name = "SPAN", visible_alias = "expires")]
    expires: Option<String>,
}

const COLUMNS: [Column; 9] = [
    ("SOURCE", "name", false),
    ("STATE", "state", false),
    ("UNTIL", "until", false),
    ("BY", "by", false),
    ("WAITING", "backlog", true),
    ("ACCEPTED", "accepted", true),
    ("PATH", "path", false),
    ("VERIFY", "verify", false),
    ("KEY", "key", false),
];

pub(super) fn run(sources: &Sources) -> u8 {
    let Sources { action, remote } = sources;
    let change = |one: &One, state: &str, expires: Option<&str>| {
        let change = match expires {
            Some(expires) => json!({ "state": state, "expires": expires }),
            None => json!({ "state": state }),
        };
        let path = format!("/api/v1/source?name={}", encoded(&one.source));
        shown(remote, Method::PATCH, &path, Some(change), in_words)
    };
    match action {
        None | Some(Action::List) => shown(remote, Method::GET, "/api/v1/sources", None, listed),
        Some(Action::Pause(timed)) => change(&timed.one, "paused", timed.expires.as_deref()),
        Some(Action::Drain(timed)) => change(&timed.one, "draining", timed.expires.as_deref()),
        Some(Action::Resume(one)) => change(one, "running", None),
    }
}

fn listed(answer: &Value) -> String {
    let mut answer = answer.clone();
    for source in answer.get_mut("sources").and_then(Value::as_array_mut).into_iter().flatten() {
        if let (Some(Value::Bool(true)), Some(source)) = (source.get("removed").cloned(), source.as_object_mut()) {
            source.insert("path".to_owned(), json!("(removed)"));
        }
        let held = source.get("held").filter(|held| held.is_object()).cloned();
        let (Some(source), Some(held)) = (source.as_object_mut(), held) else { continue };
        let until = held.get("expires").filter(|at| at.is_string()).cloned();
        source.insert("until".to_owned(), until.unwrap_or_else(|| json!("resumed")));
        source.insert("by".to_owned(), held.get("by").cloned().unwrap_or_default());
    }
    table(&answer, "sources", &COLUMNS)
}

/// What holds now, before the figures; and what whoever sends gets.
fn in_words(source: &Value) -> String {
    let mut rest = source.clone();
    let mut taken = |name: &str| rest.as_object_mut().and_then(|fields| fields.remove(name)).unwrap_or_default();
    let (held, note) = (taken("held"), taken("note"));
    let note = note.as_str().map(|note| format!("note: {}\n", escaped(note))).unwrap_or_default();
    let name = cell(source.get("name"));
    let until = match held.get("expires").and_then(Value::as_str) {
        Some(at) => format!("until {at}"),
        None => "until it is resumed".to_owned(),
    };
    let does = match source.get("state").and_then(Value::as_str) {
        Some("paused") => format!(
            "is paused {until}: its events are accepted (senders get 2xx), kept, and wait; a lane that other sources feed too waits from its first event on"
        ),
        Some("draining") => format!(
            "runs dry {until}: its requests are refused with 503 and Retry-After, its queued events go on; a provider that does not repeat (fairlane providers says which) loses what it sends meanwhile"
        ),
        _ => "runs".to_owned(),
    };
    format!("{note}{name} {does}\n\n{}", lines(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_listed_as_that() {
        let held = json!({ "since": "T0", "expires": null, "by": "api" });
        let gone = json!({ "name": "two", "removed": true, "path": "", "state": "paused", "held": held, "backlog": 3 });
        let text = listed(&json!({ "sources": [gone] }));
        let row = text.lines().find(|line| line.starts_with("two")).unwrap();
        assert!(row.contains("paused") && row.contains("(removed)") && row.contains(" 3 "), "{text}");
    }

    #[test]
    fn what_holds_is_said_first_and_until_when() {
        let held = json!({ "since": "T0", "expires": "T1", "by": "api, from 127.0.0.1" });
        let text = in_words(&json!({ "name": "shop", "state": "paused", "held": held, "backlog": 7 }));
        assert!(text.starts_with("shop is paused until T1: its events are accepted (senders get 2xx)"), "{text}");
        assert!(text.ends_with("\n\nbacklog: 7\nname: shop\nstate: paused\n"), "{text}");
        let text = in_words(&json!({ "name": "shop", "state": "draining", "held": { "expires": null } }));
        assert!(text.starts_with("shop runs dry until it is resumed: its requests are refused with 503"), "{text}");
        assert!(in_words(&json!({ "name": "shop", "state": "running", "held": null })).starts_with("shop runs\n"));
        let list = json!({ "sources": [{ "name": "shop", "state": "paused", "held": { "expires": "T1", "by": "api" }, "backlog": 7, "accepted": 9, "path": "/x" }] });
        let text = listed(&list);
        assert_eq!(
            text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>()[..6],
            ["shop", "paused", "T1", "api", "7", "9"]
        );
    }
}
