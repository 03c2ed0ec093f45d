//! What fires, what fired, and what to do about it.

use askama::Template;
use axum::response::Response;

use super::shell::{Shell, live_page};
use super::{Visit, encoded};
use crate::admin::api::rfc3339;
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
    pub(super) name: &'static str,
    pub(super) severity: &'static str,
    pub(super) tone: &'static str,
    pub(super) what: String,
    pub(super) means: &'static str,
    pub(super) remedy: &'static str,
    pub(super) command: String,
    /// Names, and as they stand in a query.
    pub(super) groups: Vec<(String, String)>,
    pub(super) since: String,
    pub(super) lasts: String,
    pub(super) resolved: Option<String>,
}

impl Row {
    fn of(alert: Alert, now: Wall) -> Self {
        let severity = alert.severity.as_str();
        Self {
            name: alert.name,
            severity,
            tone: if severity == "page" { "bad" } else { "warn" },
            what: words::safe(&alert.what),
            means: alert.means,
            remedy: alert.remedy,
            command: words::safe(&alert.command),
            groups: alert.groups.iter().map(|group| (group.clone(), encoded(group))).collect(),
            since: rfc3339(alert.since),
            lasts: words::span(alert.resolved.unwrap_or(now).since(alert.since)),
            resolved: alert.resolved.map(|at| words::ago(at, now)),
        }
    }
}

/// What fires now, pages first.
pub(super) fn firing(visit: &Visit) -> Vec<Row> {
    let now = visit.admin.handle.now().wall;
    visit.admin.handle.alerts().firing().into_iter().map(|alert| Row::of(alert, now)).collect()
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    live_page(visit, ("alerts", "Alerts"), |visit, shell| async move { made(&visit, shell) }).await
}

fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let now = visit.admin.handle.now().wall;
    let resolved = visit.admin.handle.alerts().resolved().into_iter().map(|alert| Row::of(alert, now)).collect();
    Ok(Page { shell, firing: firing(visit), resolved })
}
