//! The calls about alerts: what fires, what fired, and a message that tries the way to whoever is told.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::api::rfc3339;
use super::audit::Who;
use super::nodes::Wanted;
use super::nodes::whole::{self, Missing, Of, Whole};
use super::problem::Problem;
use crate::driver::{Alert, Tested};

type Shared = State<Arc<Admin>>;

/// What fires now, and what resolved of late.
#[derive(Serialize, ToSchema)]
pub(super) struct AlertsView {
    /// Pages first, then the latest first.
    firing: Vec<AlertJson>,
    /// The latest first; a hundred at most, since the start of the process.
    resolved: Vec<AlertJson>,
    /// Nodes whose part is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

/// An alert.
#[derive(Serialize, ToSchema)]
pub(super) struct AlertJson {
    /// Its kind; docs/alerts.md lists all.
    alert: String,
    /// The node that says so; left out where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    /// `page` or `ticket`.
    severity: &'static str,
    /// `firing` or `resolved`.
    state: &'static str,
    /// Which group or source it is about, where there may be several alerts of the kind.
    subject: Option<String>,
    /// The groups that it names.
    groups: Vec<String>,
    /// Since when its condition holds.
    since: String,
    /// When it fired.
    fired_at: String,
    /// When it resolved; null while it fires.
    resolved_at: Option<String>,
    /// What is the case, with numbers.
    what: String,
    /// What that means.
    means: String,
    /// What to do.
    remedy: String,
    /// A command to paste.
    command: String,
}

impl From<Of<Alert>> for AlertJson {
    fn from(of: Of<Alert>) -> Self {
        let Of { node, it: alert } = of;
        Self {
            alert: alert.name.into(),
            node,
            severity: alert.severity.as_str(),
            state: if alert.resolved.is_some() { "resolved" } else { "firing" },
            subject: alert.subject.map(Into::into),
            groups: alert.groups,
            since: rfc3339(alert.since),
            fired_at: rfc3339(alert.fired),
            resolved_at: alert.resolved.map(rfc3339),
            what: alert.what,
            means: alert.means.into(),
            remedy: alert.remedy.into(),
            command: alert.command,
        }
    }
}

/// An alert as the status shows it: enough to know whether to look.
#[derive(Serialize, ToSchema)]
pub(super) struct Firing {
    alert: String,
    /// The node that says so; left out where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    severity: &'static str,
    since: String,
    what: String,
}

/// What fires now, in short.
pub(super) fn firing(whole: &Whole) -> Vec<Firing> {
    let short = |Of { node, it: alert }: Of<Alert>| Firing {
        alert: alert.name.into(),
        node,
        severity: alert.severity.as_str(),
        since: rfc3339(alert.since),
        what: alert.what,
    };
    whole.firing().into_iter().map(short).collect()
}

/// What fires now, and what resolved of late.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "node", responses((status = 200, description = "Both lists", body = AlertsView)))]
pub(super) async fn list(State(admin): Shared) -> Result<Json<AlertsView>, Problem> {
    let whole = whole::ask(&admin, Wanted { alerts: true, ..Wanted::default() }).await?;
    let json = |list: Vec<Of<Alert>>| list.into_iter().map(AlertJson::from).collect();
    Ok(Json(AlertsView { firing: json(whole.firing()), resolved: json(whole.resolved()), missing: whole.missing }))
}

/// What became of a test message.
#[derive(Serialize, ToSchema)]
pub(super) struct TestedJson {
    /// Whether the receiver took it.
    sent: bool,
    /// Why not, in words; empty when it did.
    error: String,
}

/// Posts a test message to `alerts.webhook`, once, and waits for the receiver's answer.
#[utoipa::path(post, path = "/api/v1/alerts/test", tag = "node", responses((status = 200, description = "Whether it was taken", body = TestedJson)))]
pub(super) async fn test(State(admin): Shared, who: Who) -> Json<TestedJson> {
    let handle = &admin.handle;
    let tested = handle.alerts().test(handle.now().wall, handle.metrics()).await;
    let (sent, error) = match tested {
        Tested::Sent => (true, String::new()),
        Tested::NoWebhook => {
            (false, "alerts.webhook is not set, so nobody is told; set it to an address that takes JSON".to_owned())
        }
        Tested::Failed(error) => (false, format!("alerts.webhook did not take it: {error}")),
    };
    admin.audit(
        who,
        "alerts.webhook",
        if sent { "a test message was posted" } else { "a test message could not be posted" },
    );
    Json(TestedJson { sent, error })
}
