//! `fairlane events`: what was accepted, and what became of it.

use std::io::{IsTerminal as _, Write as _};

use base64::Engine as _;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, ask, encoded, fetch, noted, only_for_the_list, shown as shown_call, stream};
use super::selection::Selection;
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
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    remote: Remote,
}

/// Which ones to list, and how.
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    selection: Selection,
    /// Only in these states, several with commas
    #[arg(long, value_delimiter = ',', value_parser = STATES)]
    status: Vec<String>,
    /// Where the page before ended, as it says itself
    #[arg(long)]
    cursor: Option<u64>,
    /// At most so many; 50 when left out
    #[arg(long)]
    limit: Option<usize>,
    /// One JSON object a line, all that fit; see `events export`
    #[arg(long, conflicts_with_all = ["cursor", "json"])]
    jsonl: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The same as `fairlane events`: the newest first
    #[command(after_help = "Example: fairlane events list --group quiet-store.myshopify.com")]
    List(List),
    /// One event: what is known of it, and every attempt that ended
    #[command(
        after_help = "Examples: fairlane events show evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab\n          fairlane events show evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab --body"
    )]
    Show(Show),
    /// All events that fit, one JSON object a line, as long as it takes
    #[command(
        after_help = "Examples: fairlane events export --status dead --body > dead.jsonl\n          fairlane events export --group quiet-store.myshopify.com --since 2026-01-31T08:00:00Z"
    )]
    Export(Export),
    /// Put an event that waits to the dead letters, so that what is behind its order key goes on
    #[command(after_help = "Example: fairlane events skip evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab")]
    Skip(removal::One),
    /// Throw an event that waits away; only `replay --status discarded` brings it back
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
struct Export {
    #[command(flatten)]
    selection: Selection,
    /// Only in these states, several with commas
    #[arg(long, value_delimiter = ',', value_parser = STATES)]
    status: Vec<String>,
    /// With bodies: `body` where it is text, else `body_b64`
    #[arg(long)]
    body: bool,
    /// At most so many; all when left out
    #[arg(long)]
    limit: Option<u64>,
    /// The oldest first
    #[arg(long)]
    oldest_first: bool,
}

#[derive(Debug, Args)]
pub(super) struct Show {
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

/// Of dead letters: why each is one.
pub(super) const DEAD_COLUMNS: [Column; 8] = [
    ("ID", "id", false),
    ("RECEIVED", "received_at", false),
    ("DIED", "settled_at", false),
    ("GROUP", "group", false),
    ("SOURCE", "source", false),
    ("ATTEMPTS", "attempts", true),
    ("TYPE", "type", false),
    ("WHY", "reason", false),
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
    let Events { action, list, remote } = events;
    let Some(action) = action else { return list.run(remote) };
    if let Err(why) = only_for_the_list(&list.given()) {
        return complain(&why, USAGE);
    }
    match action {
        Action::List(list) => list.run(remote),
        Action::Show(one) => shown(one, remote),
        Action::Skip(one) => removal::one(one, "skip", remote),
        Action::Discard(one) => removal::one(one, "discard", remote),
        Action::Release { id } => {
            let path = format!("/api/v1/events/{}/release", encoded(id));
            shown_call(remote, Method::POST, &path, Some(json!({})), lines)
        }
        Action::Export(export) => {
            let how = (export.body, export.limit, export.oldest_first);
            exported(remote, &export.selection, &export.status, how)
        }
    }
}

impl List {
    fn run(&self, remote: &Remote) -> u8 {
        let Self { selection, status, cursor, limit, jsonl } = self;
        if *jsonl {
            return exported(remote, selection, status, (false, limit.map(|limit| limit as u64), false));
        }
        listed(remote, (selection, status), *cursor, *limit, &COLUMNS)
    }

    /// The options of the list, and which of them are there.
    fn given(&self) -> Vec<(&'static str, bool)> {
        let more = [
            ("--status", !self.status.is_empty()),
            ("--cursor", self.cursor.is_some()),
            ("--limit", self.limit.is_some()),
            ("--jsonl", self.jsonl),
        ];
        self.selection.given().into_iter().chain(more).collect()
    }
}

/// Lists what fits.
pub(super) fn listed(
    remote: &Remote,
    wanted: (&Selection, &[String]),
    cursor: Option<u64>,
    limit: Option<usize>,
    columns: &[Column],
) -> u8 {
    match list(remote, wanted, cursor, limit.unwrap_or(50), columns) {
        Ok(text) => print(&text),
        Err(message) => complain(&message, FAILED),
    }
}

/// Shows one event.
pub(super) fn shown(one: &Show, remote: &Remote) -> u8 {
    match show(one, remote) {
        Ok(text) => print(&text),
        Err(message) => complain(&message, FAILED),
    }
}

/// Prints all that fit, line by line as they come.
fn exported(
    remote: &Remote,
    selection: &Selection,
    status: &[String],
    (body, limit, oldest_first): (bool, Option<u64>, bool),
) -> u8 {
    let order = if oldest_first { "oldest" } else { "newest" };
    let mut path = format!("/api/v1/events/export?order={order}&body={body}");
    if !status.is_empty() {
        path.push_str(&format!("&status={}", encoded(&status.join(","))));
    }
    if let Some(limit) = limit {
        path.push_str(&format!("&limit={limit}"));
    }
    selection.add_to(&mut path);
    let mut out = Counted { out: std::io::stdout().lock(), bytes: 0 };
    match stream(remote, &path, &mut out) {
        Ok(()) if out.bytes == 0 => nothing(remote, selection),
        Ok(()) => 0,
        Err(message) => complain(&message, FAILED),
    }
}

/// Nothing was written: the list, which has room for a word beside it, says why where it knows.
fn nothing(remote: &Remote, selection: &Selection) -> u8 {
    let mut path = "/api/v1/events?limit=1".to_owned();
    selection.add_to(&mut path);
    match ask(remote, Method::GET, &path, None) {
        Ok(answer) => noted(&answer),
        Err(message) => return complain(&message, FAILED),
    }
    0
}

/// Knows how much was written through it.
struct Counted<W> {
    out: W,
    bytes: usize,
}

impl<W: std::io::Write> std::io::Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn list(
    remote: &Remote,
    (selection, status): (&Selection, &[String]),
    cursor: Option<u64>,
    limit: usize,
    columns: &[Column],
) -> Result<Vec<u8>, String> {
    let mut path = format!("/api/v1/events?limit={limit}");
    if !status.is_empty() {
        path.push_str(&format!("&status={}", encoded(&status.join(","))));
    }
    if let Some(cursor) = cursor {
        path.push_str(&format!("&cursor={cursor}"));
    }
    selection.add_to(&mut path);
    let answer = ask(remote, Method::GET, &path, None)?;
    if remote.json {
        return Ok(format!("{answer:#}\n").into_bytes());
    }
    let text = table(&answer, "events", columns);
    noted(&answer);
    if let Some(next) = answer.get("next").and_then(Value::as_u64) {
        let shown = answer.get("events").and_then(Value::as_array).map_or(0, Vec::len);
        let reached = answer.get("searched_to").and_then(Value::as_str).unwrap_or_default();
        let why = match shown < limit {
            true => format!("the search has come to {reached} and is not through"),
            false => "there may be more".to_owned(),
        };
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
