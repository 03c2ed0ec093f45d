//! `fairlane events`: what was accepted, and what became of it.

use std::io::{IsTerminal as _, Write as _};

use base64::Engine as _;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, ask, encoded, fetch, only_for_the_list, shown};
use super::standing::waits;
use super::table::{Column, escaped, lines, table};
use super::{FAILED, USAGE, complain, print, removal};

/// The states of an event.
const STATES: [&str; 7] = ["queued", "in_flight", "retrying", "delivered", "dead", "suppressed", "discarded"];

/// `fairlane events …`.
#[derive(Debug, Args)]
pub(super) struct Events {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only of this group, as lists write it
    #[arg(long)]
    group: Option<String>,
    /// Only of this source
    #[arg(long)]
    source: Option<String>,
    /// Only in these states, several with commas
    #[arg(long, value_delimiter = ',', value_parser = STATES)]
    status: Vec<String>,
    /// Received at this time or later, e.g. 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Received before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only with this id of the provider's own
    #[arg(long, value_name = "ID")]
    provider_event_id: Option<String>,
    /// Where the page before ended, as it says itself
    #[arg(long)]
    cursor: Option<u64>,
    /// At most so many; 50 when left out
    #[arg(long)]
    limit: Option<usize>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One event: what is known of it, and every attempt that ended
    #[command(
        after_help = "Examples: fairlane events show evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab\n          fairlane events show evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab --body"
    )]
    Show(Show),
    /// Put an event that waits to the dead letters, so that what is behind its order key goes on
    #[command(after_help = "Example: fairlane events skip evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab")]
    Skip(removal::One),
    /// Throw an event that waits away; it cannot be replayed
    #[command(after_help = "Example: fairlane events discard evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab")]
    Discard(removal::One),
    /// Lets a suppressed event, a repeat of another one, go to the upstream after all
    #[command(after_help = "Example: fairlane events release evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab")]
    Release {
        /// Its id, `evt_…`
        id: String,
    },
}

#[derive(Debug, Args)]
struct Show {
    /// Its id, `evt_…`
    id: String,
    /// Its body too
    #[arg(long)]
    body: bool,
}

const COLUMNS: [Column; 8] = [
    ("ID", "id", false),
    ("RECEIVED", "received_at", false),
    ("GROUP", "group", false),
    ("SOURCE", "source", false),
    ("STATUS", "status", false),
    ("ATTEMPTS", "attempts", true),
    ("TYPE", "type", false),
    ("PROVIDER ID", "provider_event_id", false),
];

const ATTEMPT_COLUMNS: [Column; 9] = [
    ("ATTEMPT", "number", true),
    ("STARTED", "started_at", false),
    ("WAITED ms", "wait_ms", true),
    ("FOR", "waited", false),
    ("TOOK ms", "took_ms", true),
    ("OUTCOME", "outcome", false),
    ("STATUS", "status", true),
    ("ERROR", "error", false),
    ("ANSWER", "answer", false),
];

/// Runs it; the answer is the exit code.
pub(super) fn run(events: &Events) -> u8 {
    if events.action.is_some()
        && let Err(why) = only_for_the_list(&events.given())
    {
        return complain(&why, USAGE);
    }
    let done = match &events.action {
        None => list(events),
        Some(Action::Show(one)) => show(one, &events.remote),
        Some(Action::Skip(one)) => return removal::one(one, "skip", &events.remote),
        Some(Action::Discard(one)) => return removal::one(one, "discard", &events.remote),
        Some(Action::Release { id }) => {
            let path = format!("/api/v1/events/{}/release", encoded(id));
            return shown(&events.remote, Method::POST, &path, Some(json!({})), lines);
        }
    };
    match done {
        Ok(text) => print(&text),
        Err(message) => complain(&message, FAILED),
    }
}

impl Events {
    /// The options of the list, and which of them are there.
    fn given(&self) -> [(&'static str, bool); 8] {
        [
            ("--group", self.group.is_some()),
            ("--source", self.source.is_some()),
            ("--status", !self.status.is_empty()),
            ("--since", self.since.is_some()),
            ("--until", self.until.is_some()),
            ("--provider-event-id", self.provider_event_id.is_some()),
            ("--cursor", self.cursor.is_some()),
            ("--limit", self.limit.is_some()),
        ]
    }
}

fn list(events: &Events) -> Result<Vec<u8>, String> {
    let limit = events.limit.unwrap_or(50);
    let mut path = format!("/api/v1/events?limit={limit}");
    let status = Some(events.status.join(",")).filter(|status| !status.is_empty());
    let cursor = events.cursor.map(|cursor| cursor.to_string());
    for (name, value) in [
        ("group", &events.group),
        ("source", &events.source),
        ("status", &status),
        ("since", &events.since),
        ("until", &events.until),
        ("provider_event_id", &events.provider_event_id),
        ("cursor", &cursor),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    let answer = ask(&events.remote, Method::GET, &path, None)?;
    if events.remote.json {
        return Ok(format!("{answer:#}\n").into_bytes());
    }
    let text = table(&answer, "events", &COLUMNS);
    if let Some(next) = answer.get("next").and_then(Value::as_u64) {
        let shown = answer.get("events").and_then(Value::as_array).map_or(0, Vec::len);
        let why = if shown < limit { "the search is not through" } else { "there may be more" };
        // Not among the lines of the list, which another program may read.
        writeln!(std::io::stderr().lock(), "{why}: --cursor {next}").ok();
    }
    Ok(text.into_bytes())
}

fn show(one: &Show, remote: &Remote) -> Result<Vec<u8>, String> {
    let path = format!("/api/v1/events/{}", encoded(&one.id));
    let mut event = ask(remote, Method::GET, &path, None)?;
    let body = one.body.then(|| fetch(remote, Method::GET, &format!("{path}/body"), None)).transpose()?;
    if remote.json {
        if let (Some(body), Some(event)) = (&body, event.as_object_mut()) {
            event.insert("body".to_owned(), std::str::from_utf8(body).map_or(Value::Null, |text| json!(text)));
            event.insert("body_b64".to_owned(), json!(base64::engine::general_purpose::STANDARD.encode(body)));
        }
        return Ok(format!("{event:#}\n").into_bytes());
    }
    let mut tries = event.as_object_mut().and_then(|event| event.remove("tries")).unwrap_or_default();
    for one in tries.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let waited = one.get("waited_ms").map(waits).unwrap_or_default();
        one.insert("waited".to_owned(), json!(waited));
    }
    let tries = table(&json!({ "attempts that ended": tries }), "attempts that ended", &ATTEMPT_COLUMNS);
    let mut text = format!("{}\n{tries}", lines(&event)).into_bytes();
    if let Some(body) = body {
        text.push(b'\n');
        text.extend(shown_body(&body));
        text.push(b'\n');
    }
    Ok(text)
}

/// The body as it is, but for what could command a terminal where there is one.
fn shown_body(body: &[u8]) -> Vec<u8> {
    if !std::io::stdout().is_terminal() {
        return body.to_vec();
    }
    String::from_utf8_lossy(body).lines().map(escaped).collect::<Vec<_>>().join("\n").into_bytes()
}
