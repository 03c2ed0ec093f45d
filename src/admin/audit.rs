//! Who changed what, of late: beside the lines in the log, a bounded list for the page and the call that show it. It is kept in a file beside
//! the changes that are in force, so that who comes after a restart sees who made them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api::rfc3339;
use super::{Admin, Peer};
use crate::driver::Notebook;
use crate::event::Wall;

/// Changes that are remembered: a night's work of many hands. The log has all of them.
const KEPT_MAX: usize = 500;

/// How this binary's own commands begin their `User-Agent`. It is a courtesy of theirs and proves nothing: the token does.
pub(crate) const CLI: &str = "fairlane-cli/";

/// Who asks, as far as one token for all can tell: by which way, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) way: &'static str,
    pub(super) from: Option<IpAddr>,
}

impl Who {
    /// `dashboard, from 10.0.0.1`.
    pub(super) fn in_words(self) -> String {
        self.from.map_or_else(|| self.way.to_owned(), |from| format!("{}, from {from}", self.way))
    }
}

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let agent = parts.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let way = if agent.is_some_and(|agent| agent.starts_with(CLI)) { "cli" } else { "api" };
        Ok(Self { way, from: parts.extensions.get::<Peer>().map(|peer| peer.0) })
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
}

impl Entry {
    pub(super) fn at(&self) -> Wall {
        Wall(self.at)
    }
}

/// The changes of late.
pub(super) struct Audit {
    kept: Mutex<VecDeque<Entry>>,
    notebook: Notebook,
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
        Self { kept: Mutex::new(kept), notebook }
    }

    /// The changes, newest first.
    pub(super) fn list(&self) -> Vec<Entry> {
        self.kept.lock().iter().cloned().collect()
    }

    /// The newest one about this.
    pub(super) fn latest(&self, about: &str) -> Option<Entry> {
        self.kept.lock().iter().find(|entry| entry.about == about).cloned()
    }

    /// Written down when this returns, or said in the log that it is not: the change itself has been made.
    fn push(&self, entry: Entry) {
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
        let Who { way, from } = who;
        self.audit.push(Entry { at, way: way.into(), from, about: about.to_owned(), what: what.to_owned() });
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct AuditView {
    changes: Vec<ChangeView>,
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
}

/// Changes that people made, newest first: the last 500, those from before a restart with them.
#[utoipa::path(get, path = "/api/v1/audit", tag = "node", responses((status = 200, description = "All that are remembered", body = AuditView)))]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Json<AuditView> {
    let view = |entry: Entry| ChangeView {
        at: rfc3339(entry.at()),
        way: entry.way.into_owned(),
        from: entry.from.map(|peer| peer.to_string()),
        about: entry.about,
        what: entry.what,
    };
    Json(AuditView { changes: admin.audit.list().into_iter().map(view).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_newest_first_and_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = || Notebook::at(folder.path().join("audit.json"));
        let audit = Audit::open(notebook());
        let entry = |at: u64, about: &str| Entry {
            at,
            way: "api".into(),
            from: Some([10, 0, 0, 1].into()),
            about: about.to_owned(),
            what: at.to_string(),
        };
        (0..600).for_each(|at| audit.push(entry(at, if at % 2 == 0 { "even" } else { "odd" })));
        assert_eq!(audit.list().len(), KEPT_MAX);
        assert_eq!(audit.latest("even").unwrap().at(), Wall(598));
        assert!(audit.latest("none").is_none());
        assert_eq!(Audit::open(notebook()).list(), audit.list());
        notebook().write(b"not json").unwrap();
        assert!(Audit::open(notebook()).list().is_empty());
    }
}
