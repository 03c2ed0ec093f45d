//! One event: what came, what was made of it, and what became of it.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;

use super::events::Line;
use super::shell::{Shell, page};
use super::{Visit, body, curl, waits};
use crate::admin::api::{event_id, rfc3339};
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::{AttemptNote, SourceInfo, Story};
use crate::event::{Event, KeySource};

#[derive(Template)]
#[template(path = "event.html")]
struct Page {
    shell: Shell,
    line: Line,
    facts: Vec<(&'static str, String)>,
    attempts: Vec<Attempt>,
    /// Why it was kept from delivery: the event that it repeats.
    duplicate_of: Option<String>,
    whole: Option<Whole>,
}

/// The event itself, where it is still kept.
struct Whole {
    headers: Vec<(String, String)>,
    body: body::Shown,
    curl: String,
}

struct Attempt {
    number: u32,
    at: String,
    took: String,
    waited: String,
    outcome: String,
    good: bool,
    status: Option<u16>,
    error: String,
    answer: String,
}

/// The page.
pub(super) async fn show(visit: Visit, Path(id): Path<String>) -> Response {
    page(visit, ("events", &id.clone()), async |visit, shell| made(visit, shell, id).await).await
}

async fn made(visit: &Visit, shell: Shell, id: String) -> Result<Page, Problem> {
    let handle = &visit.admin.handle;
    let event_id = event_id(&id)?;
    let Story { record, attempts } = handle.event(event_id).await?.ok_or(Problem::Unknown(id))?;
    let event = handle.whole(event_id).await?;
    let now = handle.now().wall;
    let mut facts = vec![
        ("Received", format!("{} ({})", rfc3339(record.received), words::ago(record.received, now))),
        ("Key", key_words(&record.key_source)),
    ];
    facts.extend(record.lane.inner.as_ref().map(|inner| ("Lane inside the group", inner.to_string())));
    facts.extend(
        record.due.map(|due| ("Next attempt", format!("{} (in {})", rfc3339(due), words::span(due.since(now))))),
    );
    facts.extend(record.settled.map(|at| ("Last settlement", format!("{} ({})", rfc3339(at), words::ago(at, now)))));
    facts.extend((record.replays > 0).then(|| ("Replayed", words::many(u64::from(record.replays), "time"))));
    facts.extend(event.as_ref().map(|event| ("Verified", words::safe(&event.verified))));
    facts.extend(event.as_ref().and_then(|event| event.order.as_ref()).map(|order| ("Order key", order.to_string())));
    facts.extend(event.as_ref().map(|event| ("Sent by", event.peer.to_string())));
    Ok(Page {
        shell,
        line: Line::of(&record, now),
        facts,
        attempts: attempts.iter().map(Attempt::of).collect(),
        duplicate_of: record.duplicate_of.map(|id| id.to_string()),
        whole: event.map(|event| Whole::of(&event, &handle.sources(), &upstream(visit))),
    })
}

/// Where events go by the configuration in force: the only address, or the first of several.
fn upstream(visit: &Visit) -> String {
    let configuration = visit.admin.configuration();
    let addresses =
        ["/upstream/url", "/upstream/urls/0/url"].into_iter().filter_map(|at| configuration.json.pointer(at));
    let address = addresses.filter_map(serde_json::Value::as_str).next().unwrap_or("http://127.0.0.1:3000");
    address.trim_end_matches('/').to_owned()
}

fn key_words(source: &KeySource) -> String {
    match source {
        KeySource::Rule { rule, signed: true } => format!("{rule}, covered by the signature"),
        KeySource::Rule { rule, signed: false } => format!("{rule}, not covered by the signature"),
        KeySource::Missing(missing) => format!("none: {}", missing.as_str()),
        KeySource::NoRule => "none: the source has no key rule".to_owned(),
    }
}

impl Whole {
    fn of(event: &Event, sources: &[SourceInfo], upstream: &str) -> Self {
        let telling = body::Telling::of(&event.source, sources);
        let headers =
            event.headers.iter().map(|(name, value)| (name.to_string(), telling.shown(name, value))).collect();
        let curl = curl::command(event, &telling, upstream);
        Self { headers, body: body::shown(&event.headers, &event.body), curl }
    }
}

impl Attempt {
    fn of(note: &AttemptNote) -> Self {
        Self {
            number: note.number,
            at: rfc3339(note.started),
            took: words::span(note.took),
            waited: waits::line(&note.waited),
            outcome: note.outcome.to_string(),
            good: &*note.outcome == "delivered",
            status: note.status,
            error: words::safe(&note.error),
            answer: words::safe_lines(&String::from_utf8_lossy(&note.excerpt)),
        }
    }
}
