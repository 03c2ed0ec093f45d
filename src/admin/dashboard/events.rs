//! Events and dead letters: found by id, by the sender's id, by group, source, status and time.

use askama::Template;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::form::Fields;
use super::shell::{Shell, page};
use super::{Visit, encoded};
use crate::admin::api::{EventsQuery, rfc3339};
use crate::admin::nodes::whole::{self, Missing};
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::{Record, Status};
use crate::event::{EventId, Wall};

/// Events on a page.
const ROWS: usize = 50;

/// Short pages of the store that are read on for one page here: the store looks at a bounded number of entries each time.
const READS_MAX: usize = 20;

/// An event in a list.
pub(super) struct Line {
    pub(super) id: String,
    pub(super) group: String,
    pub(super) group_link: String,
    pub(super) source: String,
    pub(super) status: &'static str,
    pub(super) kind: String,
    pub(super) provider_id: String,
    pub(super) attempts: u32,
    pub(super) received: String,
    pub(super) ago: String,
    pub(super) reason: String,
}

impl Line {
    pub(super) fn of(record: &Record, now: Wall) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(words::safe).unwrap_or_default();
        Self {
            id: record.id.to_string(),
            group: record.lane.group.to_string(),
            group_link: encoded(record.lane.group.as_str()),
            source: record.source.to_string(),
            status: record.status.as_str(),
            kind: text(&record.event_type),
            provider_id: text(&record.provider_event_id),
            attempts: record.attempts,
            received: rfc3339(record.received),
            ago: words::ago(record.received, now),
            reason: words::safe(&record.reason),
        }
    }
}

/// What was asked for, to stand in the form again.
#[derive(Default)]
struct Asked {
    group: String,
    source: String,
    status: String,
    since: String,
    until: String,
    provider_event_id: String,
}

#[derive(Template)]
#[template(path = "events.html")]
struct Events {
    shell: Shell,
    dead: bool,
    asked: Asked,
    statuses: Vec<&'static str>,
    sources: Vec<String>,
    rows: Vec<Line>,
    /// The address of the next page; none on the last.
    next: Option<String>,
}

/// The page of all events.
pub(super) async fn show(visit: Visit) -> Response {
    // Whoever has an id wants the event.
    if let Some(id) = visit.query().get("id") {
        return match id.parse::<EventId>() {
            Ok(id) => Redirect::to(&format!("/events/{id}")).into_response(),
            Err(_) => Redirect::to(&format!("/events?provider_event_id={}", encoded(id))).into_response(),
        };
    }
    page(visit, ("events", "Events"), async |visit, shell| made(visit, shell, false).await).await
}

/// The page of those that were given up.
pub(super) async fn dead(visit: Visit) -> Response {
    page(visit, ("dead", "Dead letters"), async |visit, shell| made(visit, shell, true).await).await
}

async fn made(visit: &Visit, shell: Shell, dead: bool) -> Result<Events, Problem> {
    let fields = visit.query();
    let text = |name: &str| fields.get(name).map(str::to_owned);
    let query = EventsQuery {
        order: None,
        group: text("group"),
        source: text("source"),
        status: if dead { Some(Status::Dead.as_str().to_owned()) } else { text("status") },
        since: text("since"),
        until: text("until"),
        provider_event_id: text("provider_event_id"),
        cursor: fields.number("cursor")?,
        limit: Some(ROWS),
    };
    let mut query = query.checked()?;
    let (mut records, mut next) = (Vec::new(), None);
    for _ in 0..READS_MAX {
        let page = visit.admin.handle.events(query.clone()).await?;
        records.extend(page.records);
        next = page.next;
        query.behind = next;
        query.limit = ROWS.saturating_sub(records.len());
        if next.is_none() || query.limit == 0 {
            break;
        }
    }
    let missing = whole::spooled_elsewhere(&visit.admin).await?;
    let shell = Shell { missing: missing.iter().map(Missing::in_words).collect(), ..shell };
    let now = visit.admin.handle.now().wall;
    let again = |name: &str| text(name).unwrap_or_default();
    Ok(Events {
        shell,
        dead,
        asked: Asked {
            group: again("group"),
            source: again("source"),
            status: again("status"),
            since: again("since"),
            until: again("until"),
            provider_event_id: again("provider_event_id"),
        },
        statuses: Status::ALL.map(Status::as_str).to_vec(),
        sources: visit.admin.handle.sources().iter().map(|source| source.name.to_string()).collect(),
        rows: records.iter().map(|record| Line::of(record, now)).collect(),
        next: next.map(|seq| further(dead, &fields, seq.0)),
    })
}

/// The same question from `cursor` on.
fn further(dead: bool, fields: &Fields, cursor: u64) -> String {
    let path = if dead { "/dead" } else { "/events" };
    let mut query = format!("{path}?cursor={cursor}");
    for name in ["group", "source", "status", "since", "until", "provider_event_id"] {
        if let Some(value) = fields.get(name) {
            query.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    query
}
