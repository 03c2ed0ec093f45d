//! `fairlane alerts`: what fires, what to do about it, and whether messages arrive.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, ask, shown};
use super::table::escaped;
use super::{FAILED, complain, print};

/// Alerts that resolved and are shown; all of them with `--json`.
const RESOLVED_SHOWN: usize = 5;

/// `fairlane alerts …`.
#[derive(Debug, Args)]
pub(super) struct Alerts {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Post a test message to alerts.webhook and say whether it was taken
    #[command(after_help = "Example: fairlane alerts test")]
    Test,
}

pub(super) fn run(alerts: &Alerts) -> u8 {
    match alerts.action {
        None => shown(&alerts.remote, Method::GET, "/api/v1/alerts", None, text),
        Some(Action::Test) => test(&alerts.remote),
    }
}

fn test(remote: &Remote) -> u8 {
    let answer = match ask(remote, Method::POST, "/api/v1/alerts/test", Some(json!({}))) {
        Ok(answer) => answer,
        Err(message) => return complain(&message, FAILED),
    };
    let sent = answer.get("sent").and_then(Value::as_bool) == Some(true);
    match (remote.json, sent) {
        (true, _) => print(format!("{answer:#}\n").as_bytes()).max(if sent { 0 } else { FAILED }),
        (false, true) => print(b"a test message was posted, and taken\n"),
        (false, false) => complain(&escaped(field(&answer, "error")), FAILED),
    }
}

fn field<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What fires, each with what it means and what to do; and what resolved of late.
fn text(answer: &Value) -> String {
    let list = |name: &str| answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (firing, resolved) = (list("firing"), list("resolved"));
    let mut text = if firing.is_empty() { "nothing fires\n".to_owned() } else { String::new() };
    for alert in firing {
        let word = |name| escaped(field(alert, name));
        text.push_str(&format!(
            "{} {} since {}\n  {}\n  {}\n  {}\n  {}\n\n",
            word("severity"),
            word("alert"),
            word("since"),
            word("what"),
            word("means"),
            word("remedy"),
            word("command")
        ));
    }
    if !resolved.is_empty() {
        text.push_str("\nresolved of late:\n");
    }
    for alert in resolved.iter().take(RESOLVED_SHOWN) {
        let word = |name| escaped(field(alert, name));
        text.push_str(&format!("  {} {}: {}\n", word("resolved_at"), word("alert"), word("what")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fires_comes_with_what_to_do_and_strangers_command_no_terminal() {
        let answer = json!({
            "firing": [{ "alert": "backlog_age", "severity": "ticket", "since": "2026-01-31T08:00:00.000Z", "what": "a\u{1b}[2J waits",
                "means": "It waits.", "remedy": "Look.", "command": "fairlane groups why a" }],
            "resolved": [{ "alert": "capacity", "resolved_at": "2026-01-31T07:00:00.000Z", "what": "too much" }],
        });
        assert_eq!(
            text(&answer),
            "ticket backlog_age since 2026-01-31T08:00:00.000Z\n  a\\u{1b}[2J waits\n  It waits.\n  Look.\n  fairlane groups why a\n\n\n\
             resolved of late:\n  2026-01-31T07:00:00.000Z capacity: too much\n"
        );
        assert_eq!(text(&json!({ "firing": [], "resolved": [] })), "nothing fires\n");
    }
}
