//! What was refused of late.

use askama::Template;
use axum::response::Response;

use super::Visit;
use super::shell::{Shell, page};
use crate::admin::api::rfc3339;
use crate::admin::nodes::Wanted;
use crate::admin::nodes::whole::{self, Of};
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
    reason: String,
    /// Which node refused it, where there are several.
    node: String,
    message: String,
    request: String,
    headers: Vec<(String, String)>,
    size: String,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    page(visit, ("rejections", "Rejections"), async |visit, shell| made(visit, shell).await).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let source = visit.query().get("source").map(str::to_owned);
    let now = visit.admin.handle.now().wall;
    let row = |Of { node, it: rejection }: Of<Rejection>| Row {
        at: rfc3339(rejection.at),
        ago: words::ago(rejection.at, now),
        source: rejection.source.to_string(),
        peer: rejection.peer.to_string(),
        reason: rejection.reason.into(),
        node,
        message: words::safe(&rejection.message),
        request: words::safe(&format!("{} {}", rejection.method, rejection.path)),
        headers: rejection.headers.iter().map(|(name, value)| (words::safe(name), words::safe(value))).collect(),
        size: words::bytes(rejection.body_bytes as u64),
    };
    let wanted = Wanted { rejections: Some((source.clone(), ROWS)), ..Wanted::default() };
    let whole = whole::ask(&visit.admin, wanted).await?;
    Ok(Page {
        shell: shell.of_all(&whole),
        rows: whole.rejections(ROWS).into_iter().map(row).collect(),
        source: source.unwrap_or_default(),
        sources: visit.admin.handle.sources().iter().map(|source| source.name.to_string()).collect(),
    })
}
