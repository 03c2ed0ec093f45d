//! What fires, what fired, and what to do about it.

use askama::Template;
use axum::response::Response;

use super::shell::{Shell, live_page};
use super::{Visit, encoded};
use crate::admin::api::rfc3339;
use crate::admin::nodes::Wanted;
use crate::admin::nodes::whole::{self, Of};
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::Alert;
use crate::event::Wall;

#[derive(Template)]
#[template(path = "alerts.html")]
struct Page {
    shell: Shell,
    firing: Vec<Row>,
    resolved: Vec<Row>,
}

/// An alert.
pub(super) struct Row {
    pub(super) name: String,
    /// Which node says so, where there are several.
    pub(super) node: String,
    pub(super) severity: &'static str,
    pub(super) tone: &'static str,
    pub(super) what: String,
    pub(super) means: String,
    pub(super) remedy: String,
    pub(super) command: String,
    /// Names, and as they stand in a query.
    pub(super) groups: Vec<(String, String)>,
    pub(super) since: String,
    pub(super) lasts: String,
    pub(super) resolved: Option<String>,
}

impl Row {
    fn of(Of { node, it: alert }: Of<Alert>, now: Wall) -> Self {
        let severity = alert.severity.as_str();
        Self {
            name: alert.name.into(),
            node,
            severity,
            tone: if severity == "page" { "bad" } else { "warn" },
            what: words::safe(&alert.what),
            means: alert.means.into(),
            remedy: alert.remedy.into(),
            command: words::safe(&alert.command),
            groups: alert.groups.iter().map(|group| (group.clone(), encoded(group))).collect(),
            since: rfc3339(alert.since),
            lasts: words::span(alert.resolved.unwrap_or(now).since(alert.since)),
            resolved: alert.resolved.map(|at| words::ago(at, now)),
        }
    }
}

/// Alerts as lists show them.
pub(super) fn rows(alerts: Vec<Of<Alert>>, now: Wall) -> Vec<Row> {
    alerts.into_iter().map(|alert| Row::of(alert, now)).collect()
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    live_page(visit, ("alerts", "Alerts"), |visit, shell| async move { made(&visit, shell).await }).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let now = visit.admin.handle.now().wall;
    let whole = whole::ask(&visit.admin, Wanted { alerts: true, ..Wanted::default() }).await?;
    let (firing, resolved) = (rows(whole.firing(), now), rows(whole.resolved(), now));
    Ok(Page { shell: shell.of_all(&whole), firing, resolved })
}
