//! `/events/export`: what a list finds, one JSON object a line, as long as it takes. Nothing of it is held in memory but one page.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::api::{EventView, EventsQuery, unreadable};
use super::problem::Problem;
use crate::driver::{self, Error, Record};

/// Records of one read.
const PAGE: usize = 500;

/// The parameters of the list, and whether bodies are wanted.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// Only of this group, in the written form.
    #[param(pattern = r"^([A-Za-z0-9._:@-]+|~[a-z0-9-]+)$", max_length = 769, example = "quiet-store.myshopify.com")]
    group: Option<String>,
    /// Only of this source.
    source: Option<String>,
    /// Only in these states; several with commas.
    #[param(
        pattern = r"^(queued|in_flight|retrying|delivered|dead|suppressed|discarded)(,(queued|in_flight|retrying|delivered|dead|suppressed|discarded))*$"
    )]
    status: Option<String>,
    /// Received at this time or later, RFC 3339.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Received before this time, RFC 3339.
    #[param(format = DateTime)]
    until: Option<String>,
    /// Only with this id of the provider's own.
    provider_event_id: Option<String>,
    /// `newest` (unless said) or `oldest` first.
    #[param(pattern = "^(newest|oldest)$")]
    order: Option<String>,
    /// Lines at most; all when left out.
    #[param(format = "uint64")]
    limit: Option<u64>,
    /// With bodies: `body` where it is text, else `body_b64`.
    #[serde(default)]
    body: bool,
}

#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    event: EventView,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// Where it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_b64: Option<String>,
    /// Why the body is not here.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_error: Option<String>,
}

/// What is left to write.
struct Export {
    admin: Arc<Admin>,
    query: driver::Query,
    bodies: bool,
    left: u64,
    page: VecDeque<Record>,
    through: bool,
}

/// Events that fit, one JSON object a line, as long as it takes; a last line with `error` says that it is not complete.
#[utoipa::path(get, path = "/api/v1/events/export", tag = "events", params(ExportQuery), responses(
    (status = 200, description = "All of them", body = String, content_type = "application/jsonl")))]
pub(super) async fn events(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<ExportQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| unreadable(&rejection))?;
    let (bodies, left) = (query.body, query.limit.unwrap_or(u64::MAX));
    let list = EventsQuery {
        group: query.group,
        source: query.source,
        status: query.status,
        since: query.since,
        until: query.until,
        provider_event_id: query.provider_event_id,
        order: query.order,
        cursor: None,
        limit: Some(PAGE),
    };
    let export = Export { admin, query: list.checked()?, bodies, left, page: VecDeque::new(), through: false };
    let lines = stream::unfold(Some(export), |export| async {
        let mut export = export?;
        match export.line().await {
            Ok(line) => line.map(|line| (Ok::<_, Infallible>(line), Some(export))),
            // The head has gone out long ago: the last line says that it is not the end.
            Err(error) => Some((Ok(failed(&error)), None)),
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], Body::from_stream(lines)).into_response())
}

fn failed(error: &Error) -> Bytes {
    let line = serde_json::json!({ "error": error.to_string(), "hint": "the export is not complete" });
    Bytes::from(format!("{line}\n"))
}

impl Export {
    /// The next line; `None` at the end.
    async fn line(&mut self) -> Result<Option<Bytes>, Error> {
        while self.page.is_empty() && !self.through {
            let page = self.admin.handle.events(self.query.clone()).await?;
            self.through = page.next.is_none();
            self.query.behind = page.next;
            self.page = page.records.into();
        }
        let Some(record) = self.page.pop_front().filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        let (mut body, mut body_b64, mut body_error) = (None, None, None);
        if self.bodies {
            match self.admin.handle.whole(record.id).await {
                Ok(Some(event)) => match std::str::from_utf8(&event.body) {
                    Ok(text) => body = Some(text.to_owned()),
                    Err(_) => body_b64 = Some(base64::engine::general_purpose::STANDARD.encode(&event.body)),
                },
                Ok(None) => body_error = Some("it is past its retention since it was listed".to_owned()),
                Err(error @ Error::Corrupt(_)) => body_error = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        let line = Line { event: record.into(), body, body_b64, body_error };
        let mut text = serde_json::to_vec(&line).map_err(|error| Error::Unavailable(error.to_string()))?;
        text.push(b'\n');
        Ok(Some(text.into()))
    }
}
