//! What all pages have around them: head, navigation, foot, headers; and what stands there when a page cannot be shown.

use std::future::Future;

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};

use super::{Visit, assets, live};
use crate::admin::nodes::whole::Whole;
use crate::admin::problem::Problem;

/// Only what this address itself serves, and no script but the one file.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Headers of every page and file. Referrers stay at home: paths hold names of tenants. (None at all would have browsers post
/// forms with `Origin: null`, which [`crate::admin::guard`] refuses.)
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Puts them on every answer; what does not say otherwise is not kept by anybody.
pub(super) async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The frame of a page.
pub(super) struct Shell {
    pub(super) title: String,
    /// Which entry of the navigation is the current one.
    pub(super) section: &'static str,
    /// What forms carry; empty for one who cannot change anything.
    pub(super) word: String,
    /// Said once, above the page.
    pub(super) notice: Option<String>,
    /// The page's own path and query, to come back to.
    pub(super) here: String,
    /// Alerts that fire.
    pub(super) alerts: usize,
    /// Nodes, or shards, of which nothing is on the page, in words.
    pub(super) missing: Vec<String>,
    /// This node, where it is one of several.
    pub(super) node: Option<String>,
    pub(super) style: &'static str,
    pub(super) script: &'static str,
    /// Whether the page has parts that are sent again.
    pub(super) live: bool,
}

/// An entry of the navigation: its section, where it leads, what it says.
pub(super) struct Entry {
    pub(super) section: &'static str,
    pub(super) path: &'static str,
    pub(super) label: &'static str,
}

const fn entry(section: &'static str, path: &'static str, label: &'static str) -> Entry {
    Entry { section, path, label }
}

impl Shell {
    /// The navigation.
    pub(super) const ENTRIES: [Entry; 10] = [
        entry("overview", "/", "Overview"),
        entry("groups", "/groups", "Groups"),
        entry("events", "/events", "Events"),
        entry("dead", "/dead", "Dead letters"),
        entry("jobs", "/replays", "Replays"),
        entry("alerts", "/alerts", "Alerts"),
        entry("rejections", "/rejections", "Rejections"),
        entry("sources", "/sources", "Sources"),
        entry("configuration", "/configuration", "Configuration"),
        entry("audit", "/audit", "Changes"),
    ];

    pub(super) fn entries(&self) -> &'static [Entry] {
        const ENTRIES: &[Entry] = &Shell::ENTRIES;
        ENTRIES
    }

    pub(super) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Whether whoever looks may change something.
    pub(super) fn acts(&self) -> bool {
        !self.word.is_empty()
    }

    /// The same around a page of all nodes.
    pub(super) fn of_all(self, whole: &Whole) -> Self {
        Self { missing: whole.missing_words(), ..self }
    }

    fn of(visit: &Visit, section: &'static str, title: &str) -> Self {
        let sessions = &visit.admin.dashboard.sessions;
        Self {
            title: title.to_owned(),
            section,
            word: visit.seat.as_ref().map_or_else(String::new, |seat| seat.word.to_string()),
            // A stream renders the page again and again; what is said once is for the page itself.
            notice: visit.seat.as_ref().filter(|_| !visit.live).and_then(|seat| sessions.take_notice(seat)),
            here: visit.here.clone(),
            alerts: visit.admin.firing(),
            missing: Vec::new(),
            node: visit.admin.others.get().map(|(seat, _)| seat.node().as_str().to_owned()),
            style: assets::style(),
            script: assets::script(),
            live: false,
        }
    }
}

/// A page that is written once.
pub(super) async fn page<P: Template>(
    visit: Visit,
    (section, title): (&'static str, &str),
    make: impl AsyncFnOnce(&Visit, Shell) -> Result<P, Problem>,
) -> Response {
    let shell = Shell::of(&visit, section, title);
    match make(&visit, shell).await.and_then(|page| written(&page)) {
        Ok(text) => Html(text).into_response(),
        Err(problem) => trouble(&visit, problem),
    }
}

/// A page whose live parts are sent again while somebody looks.
pub(super) async fn live_page<P, F, M>(visit: Visit, frame: (&'static str, &str), make: M) -> Response
where
    P: Template + 'static,
    F: Future<Output = Result<P, Problem>> + Send + 'static,
    M: Fn(Visit, Shell) -> F + Send + 'static,
{
    let (section, title) = (frame.0, frame.1.to_owned());
    let render = {
        let visit = visit.clone();
        move || {
            let shell = Shell { live: true, ..Shell::of(&visit, section, &title) };
            let page = make(visit.clone(), shell);
            async move { written(&page.await?) }
        }
    };
    if visit.live {
        return live::stream(&visit, render);
    }
    match render().await {
        Ok(text) => Html(text).into_response(),
        Err(problem) => trouble(&visit, problem),
    }
}

fn written<P: Template>(page: &P) -> Result<String, Problem> {
    page.render().map_err(|error| Problem::Store(format!("the page could not be written: {error}")))
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct Trouble {
    shell: Shell,
    error: String,
    hint: String,
    back: &'static str,
}

/// What went wrong, as a page.
pub(super) fn trouble(visit: &Visit, problem: Problem) -> Response {
    let (status, error, hint) = problem.in_words();
    let back = if status == StatusCode::NOT_FOUND { "/" } else { "" };
    let page = Trouble { shell: Shell::of(visit, "", "Not done"), error, hint: hint.to_owned(), back };
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(_) => status.into_response(),
    }
}

#[derive(Template)]
#[template(path = "stranger.html")]
struct Stranger<'a> {
    style: &'static str,
    here: &'a str,
}

/// A link on another site was followed: refused as every request of another site's, but a person may go on.
pub(in crate::admin) fn stranger(here: &str) -> Response {
    let page = Stranger { style: assets::style(), here: super::session::back_to(here) }.render().unwrap_or_default();
    let mut response = (StatusCode::FORBIDDEN, Html(page)).into_response();
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// No page of ours.
pub(super) async fn unknown(visit: Visit) -> Response {
    let path = visit.here.split('?').next().unwrap_or_default().to_owned();
    trouble(&visit, Problem::Unknown(path))
}
