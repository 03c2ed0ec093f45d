//! Who changed what, of late: beside the lines in the log, a bounded list for the page and the call that show it. It is kept in a file beside
//! the changes that are in force, so that who comes after a restart sees who made them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api::rfc3339;
use super::nodes::FORWARDED;
use super::nodes::whole::Missing;
use super::{Admin, Peer};
use crate::driver::{Notebook, Seat};
use crate::event::Wall;

/// Changes that are remembered: a night's work of many hands. The log has all of them.
const KEPT_MAX: usize = 500;

/// So long the list that all nodes share is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How this binary's own commands begin their `User-Agent`. It is a courtesy of theirs and proves nothing: the token does.
pub(crate) const CLI: &str = "fairlane-cli/";

/// Who asks, as far as one token for all can tell: by which way, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) way: &'static str,
    pub(super) from: Option<IpAddr>,
    /// It was asked of another node, which passed it on: this one answers for itself alone.
    pub(super) is_relayed: bool,
}

/// The ways by which something is asked.
const WAYS: [&str; 3] = ["api", "cli", "dashboard"];

impl Who {
    /// Somebody who asks this node.
    pub(super) fn through(way: &'static str, from: Option<IpAddr>) -> Self {
        Self { way, from, is_relayed: false }
    }

    /// For the node that it is passed on to: the way, and the address where that is known.
    pub(super) fn as_header(self) -> String {
        self.from.map_or_else(|| self.way.to_owned(), |from| format!("{} {from}", self.way))
    }

    /// As another node wrote it.
    fn relayed(text: &str) -> Self {
        let (way, from) = text.split_once(' ').unwrap_or((text, ""));
        let way = WAYS.into_iter().find(|known| *known == way).unwrap_or("api");
        Self { way, from: from.parse().ok(), is_relayed: true }
    }

    /// `dashboard, from 10.0.0.1`.
    pub(super) fn in_words(self) -> String {
        self.from.map_or_else(|| self.way.to_owned(), |from| format!("{}, from {from}", self.way))
    }
}

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let relayed = parts.headers.get(FORWARDED).and_then(|value| value.to_str().ok()).map(Self::relayed);
        let agent = parts.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let way = if agent.is_some_and(|agent| agent.starts_with(CLI)) { "cli" } else { "api" };
        Ok(relayed.unwrap_or_else(|| Self::through(way, parts.extensions.get::<Peer>().map(|peer| peer.0))))
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Microseconds since 1970.
    at: u64,
    pub(super) way: Cow<'static, str>,
    pub(super) from: Option<IpAddr>,
    /// A group's name, or another thing's.
    pub(super) about: String,
    pub(super) what: String,
    /// The node that did it; none where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
}

impl Entry {
    pub(super) fn at(&self) -> Wall {
        Wall(self.at)
    }

    /// As all nodes are told of it.
    fn as_note(&self) -> Option<(u64, String)> {
        Some((self.at, serde_json::to_string(self).ok()?))
    }
}

/// The changes of late that were made here, and where there are several nodes the way to tell all of them.
pub(super) struct Audit {
    kept: Mutex<VecDeque<Entry>>,
    notebook: Notebook,
    shared: OnceLock<Arc<Seat>>,
}

impl Audit {
    /// The changes that `notebook` remembers. A list that cannot be read begins anew: nothing depends on it, and the log has all of them.
    pub(super) fn open(notebook: Notebook) -> Self {
        let read = notebook.read().and_then(|bytes| match bytes.is_empty() {
            true => Ok(VecDeque::new()),
            false => serde_json::from_slice(&bytes).map_err(|error| format!("{notebook}: {error}")),
        });
        let kept = read.unwrap_or_else(|error| {
            tracing::warn!(error, "the list of changes begins anew");
            VecDeque::new()
        });
        Self { kept: Mutex::new(kept), notebook, shared: OnceLock::new() }
    }

    /// From now on all nodes are told. What is remembered here is told again, for they may not have it: Redis was away, or was emptied.
    pub(super) fn share(&self, seat: &Arc<Seat>) {
        let seat = self.shared.get_or_init(|| Arc::clone(seat));
        seat.remember(self.kept.lock().iter().rev().filter_map(Entry::as_note));
    }

    /// The changes that were made on any node, newest first; and why those of other nodes are not among them.
    pub(super) async fn list(&self) -> (Vec<Entry>, Vec<Missing>) {
        let mut all: Vec<Entry> = self.kept.lock().iter().cloned().collect();
        let Some(seat) = self.shared.get() else { return (all, Vec::new()) };
        match tokio::time::timeout(PATIENCE, seat.noted()).await {
            Ok(Ok(noted)) => {
                let theirs = noted.iter().filter_map(|note| serde_json::from_str::<Entry>(note).ok());
                for entry in theirs {
                    if !all.contains(&entry) {
                        all.push(entry);
                    }
                }
                all.sort_by_key(|entry| std::cmp::Reverse(entry.at));
                all.truncate(KEPT_MAX);
                (all, Vec::new())
            }
            Ok(Err(_)) | Err(_) => {
                let why =
                    "Redis does not answer: changes that were made through other nodes are not in this".to_owned();
                (all, vec![Missing { node: None, why }])
            }
        }
    }

    /// The newest one about this.
    pub(super) async fn latest(&self, about: &str) -> Option<Entry> {
        self.list().await.0.into_iter().find(|entry| entry.about == about)
    }

    /// Written down when this returns, or said in the log that it is not: the change itself has been made.
    fn push(&self, entry: Entry) {
        let node = self.shared.get().map(|seat| seat.node().as_str().to_owned());
        let entry = Entry { node, ..entry };
        if let Some(seat) = self.shared.get() {
            seat.remember(entry.as_note());
        }
        let mut kept = self.kept.lock();
        kept.push_front(entry);
        kept.truncate(KEPT_MAX);
        let bytes = serde_json::to_vec(&*kept).map_err(|error| error.to_string());
        if let Err(error) = bytes.and_then(|bytes| self.notebook.write(&bytes)) {
            tracing::warn!(error, "the list of changes forgets this one at the next start");
        }
    }
}

impl Admin {
    /// Notes a change that was made, here and in the log.
    pub(super) fn audit(&self, who: Who, about: &str, what: &str) {
        let from = who.from.map_or_else(String::new, |peer| peer.to_string());
        tracing::info!(audit = true, about, what, way = who.way, from, "a person changed something");
        let at = self.handle.now().wall.0;
        let Who { way, from, .. } = who;
        let (about, what) = (about.to_owned(), what.to_owned());
        self.audit.push(Entry { at, way: way.into(), from, about, what, node: None });
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct AuditView {
    changes: Vec<ChangeView>,
    /// What is not in this, and why; left out where all of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Missing>,
}

#[derive(Serialize, ToSchema)]
struct ChangeView {
    at: String,
    /// `api`, `cli` or `dashboard`.
    way: String,
    /// The address that it came from; null: not known.
    from: Option<String>,
    /// A group's name, an event's, a replay's, or what else was changed.
    about: String,
    what: String,
    /// The node that did it; left out where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

/// Changes that people made, on any node, newest first: the last 500, those from before a restart with them.
#[utoipa::path(get, path = "/api/v1/audit", tag = "node", responses((status = 200, description = "All that are remembered", body = AuditView)))]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Json<AuditView> {
    let view = |entry: Entry| ChangeView {
        at: rfc3339(entry.at()),
        way: entry.way.into_owned(),
        from: entry.from.map(|peer| peer.to_string()),
        about: entry.about,
        what: entry.what,
        node: entry.node,
    };
    let (changes, missing) = admin.audit.list().await;
    Json(AuditView { changes: changes.into_iter().map(view).collect(), missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_list_is_bounded_newest_first_and_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = || Notebook::at(folder.path().join("audit.json"));
        let audit = Audit::open(notebook());
        let entry = |at: u64, about: &str| Entry {
            at,
            way: "api".into(),
            from: Some([10, 0, 0, 1].into()),
            about: about.to_owned(),
            what: at.to_string(),
            node: None,
        };
        (0..600).for_each(|at| audit.push(entry(at, if at % 2 == 0 { "even" } else { "odd" })));
        assert_eq!(audit.list().await.0.len(), KEPT_MAX);
        assert_eq!(audit.latest("even").await.unwrap().at(), Wall(598));
        assert!(audit.latest("none").await.is_none());
        assert_eq!(Audit::open(notebook()).list().await, audit.list().await);
        notebook().write(b"not json").unwrap();
        assert!(Audit::open(notebook()).list().await.0.is_empty());
    }
}
