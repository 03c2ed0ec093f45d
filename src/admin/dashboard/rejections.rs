//! What was refused of late.

use askama::Template;
use axum::response::Response;

use super::Visit;
use super::shell::{Shell, page};
use crate::admin::api::rfc3339;
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::Rejection;

/// Rows on the page.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "rejections.html")]
struct Page {
    shell: Shell,
    source: String,
    sources: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    at: String,
    ago: String,
    source: String,
    peer: String,
    reason: &'static str,
    message: String,
    request: String,
    headers: Vec<(String, String)>,
    size: String,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    page(visit, ("rejections", "Rejections"), async |visit, shell| made(visit, shell)).await
}

fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let source = visit.query().get("source").map(str::to_owned);
    let now = visit.admin.handle.now().wall;
    let row = |rejection: Rejection| Row {
        at: rfc3339(rejection.at),
        ago: words::ago(rejection.at, now),
        source: rejection.source.to_string(),
        peer: rejection.peer.to_string(),
        reason: rejection.reason,
        message: words::safe(&rejection.message),
        request: words::safe(&format!("{} {}", rejection.method, rejection.path)),
        headers: rejection.headers.iter().map(|(name, value)| (words::safe(name), words::safe(value))).collect(),
        size: words::bytes(rejection.body_bytes as u64),
    };
    Ok(Page {
        shell,
        rows: visit.admin.handle.rejections().list(source.as_deref(), ROWS).into_iter().map(row).collect(),
        source: source.unwrap_or_default(),
        sources: visit.admin.handle.sources().iter().map(|source| source.name.to_string()).collect(),
    })
}
