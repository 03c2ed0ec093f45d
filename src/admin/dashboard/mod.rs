//! The dashboard: what the API says, as pages for people.
//!
//! Pages are written on the server and can be read without a script; a script (`assets/dashboard.js`) only keeps their live parts
//! fresh, with the same page sent again over server-sent events. Nothing comes from elsewhere, nothing is asked over HTTP: pages call what the
//! API's calls are made of. All that strangers wrote is text: templates escape it, no script stands in a page, and
//! [`shell::guarded`] says so to the browser, too.

mod act;
mod alerts;
mod assets;
mod audit;
mod body;
mod chart;
mod configuration;
mod curl;
mod event;
mod events;
mod form;
mod group;
mod groups;
mod jobs;
mod live;
mod overview;
mod plan;
mod rejections;
mod samples;
mod session;
mod shell;
mod sign;
mod sources;
mod waits;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::Admin;
use super::audit::Who;
use super::problem::Problem;
pub(super) use samples::keep as keep_samples;
pub(super) use shell::stranger;

/// What the pages keep between requests.
#[derive(Default)]
pub(super) struct Dashboard {
    sessions: session::Sessions,
    samples: samples::Samples,
    streams: live::Streams,
}

impl Dashboard {
    /// Alerts that fired on any node at the last look.
    pub(super) fn firing(&self) -> usize {
        self.samples.firing()
    }

    /// Everybody has to sign in again.
    pub(super) fn sign_all_out(&self) {
        self.sessions.clear();
    }
}

/// The pages. Everything that is asked for and is not the API's comes here.
pub(super) fn router(admin: &Arc<Admin>) -> Router<Arc<Admin>> {
    let pages = Router::new()
        .route("/", get(overview::show))
        .route("/groups", get(groups::show))
        .route("/group", get(group::show).post(act::group))
        .route("/upstream", post(act::upstream))
        .route("/events", get(events::show))
        .route("/dead", get(events::dead))
        .route("/event", post(act::event))
        .route("/events/{id}", get(event::show))
        .route("/events/{id}/body", get(super::api::body))
        .route("/replays", get(jobs::show).post(act::replay))
        .route("/replays/plan", get(plan::show))
        .route("/jobs", get(jobs::show).post(act::job))
        .route("/alerts", get(alerts::show))
        .route("/rejections", get(rejections::show))
        .route("/sources", get(sources::show).post(act::source))
        .route("/audit", get(audit::show))
        .route("/configuration", get(configuration::show))
        .route("/sign-in", get(sign::page).post(sign::enter))
        .route("/sign-out", post(sign::leave))
        .fallback(shell::unknown)
        .layer(from_fn_with_state(Arc::clone(admin), session::enter));
    // Without a session, too: the sign-in page needs them.
    pages.merge(assets::router()).layer(from_fn(shell::guarded))
}

/// Whether a path is the API's, or a probe's, and no page.
pub(super) fn is_page(path: &str) -> bool {
    !(path == "/api" || path.starts_with("/api/") || matches!(path, "/metrics" | "/healthz" | "/readyz"))
}

/// One request of somebody who may read.
#[derive(Clone)]
struct Visit {
    admin: Arc<Admin>,
    /// None for one that came with the bearer token, and on the sign-in page.
    seat: Option<session::Seat>,
    /// The page's own path and query.
    here: String,
    /// The page is asked for as a stream of itself.
    live: bool,
    peer: Option<IpAddr>,
}

impl FromRequestParts<Arc<Admin>> for Visit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &Arc<Admin>) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or(Problem::Token)
    }
}

impl Visit {
    /// Who changes something from a page.
    fn who(&self) -> Who {
        Who::through("dashboard", self.peer)
    }

    /// The fields of the page's query.
    fn query(&self) -> form::Fields {
        form::Fields::read(self.here.split_once('?').map_or("", |(_, query)| query).as_bytes())
    }
}

/// Text as it stands in a query.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
