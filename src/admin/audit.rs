//! Who changed what, of late: beside the lines in the log, a bounded list in memory for the page and the call that show it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use super::api::rfc3339;
use super::{Admin, Peer};
use crate::event::Wall;

/// Changes that are remembered: a night's work of many hands. The log has all of them.
const KEPT_MAX: usize = 500;

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
        Ok(Self { way: "api", from: parts.extensions.get::<Peer>().map(|peer| peer.0) })
    }
}

/// One change.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: Wall,
    pub(super) who: Who,
    /// A group's name, or another thing's.
    pub(super) about: String,
    pub(super) what: String,
}

/// The changes of late.
#[derive(Default)]
pub(super) struct Audit(Mutex<VecDeque<Entry>>);

impl Audit {
    /// The changes, newest first.
    pub(super) fn list(&self) -> Vec<Entry> {
        self.0.lock().iter().cloned().collect()
    }

    /// The newest one about this.
    pub(super) fn latest(&self, about: &str) -> Option<Entry> {
        self.0.lock().iter().find(|entry| entry.about == about).cloned()
    }

    fn push(&self, entry: Entry) {
        let mut kept = self.0.lock();
        kept.push_front(entry);
        kept.truncate(KEPT_MAX);
    }
}

impl Admin {
    /// Notes a change that was made, here and in the log.
    pub(super) fn audit(&self, who: Who, about: &str, what: &str) {
        let from = who.from.map_or_else(String::new, |peer| peer.to_string());
        tracing::info!(audit = true, about, what, way = who.way, from, "a person changed something");
        self.audit.push(Entry { at: self.handle.now().wall, who, about: about.to_owned(), what: what.to_owned() });
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct AuditView {
    changes: Vec<ChangeView>,
}

#[derive(Serialize, ToSchema)]
struct ChangeView {
    at: String,
    /// `api` or `dashboard`.
    way: &'static str,
    /// The address that it came from; null: not known.
    from: Option<String>,
    /// A group's name, an event's, a replay's, or what else was changed.
    about: String,
    what: String,
}

/// Changes that people made, newest first: the last 500 since the start.
#[utoipa::path(get, path = "/api/v1/audit", tag = "node", responses((status = 200, description = "All that are remembered", body = AuditView)))]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Json<AuditView> {
    let view = |entry: Entry| ChangeView {
        at: rfc3339(entry.at),
        way: entry.who.way,
        from: entry.who.from.map(|peer| peer.to_string()),
        about: entry.about,
        what: entry.what,
    };
    Json(AuditView { changes: admin.audit.list().into_iter().map(view).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_newest_first() {
        let audit = Audit::default();
        let entry = |at: u64, about: &str| Entry {
            at: Wall(at),
            who: Who { way: "api", from: None },
            about: about.to_owned(),
            what: at.to_string(),
        };
        (0..600).for_each(|at| audit.push(entry(at, if at % 2 == 0 { "even" } else { "odd" })));
        assert_eq!(audit.list().len(), KEPT_MAX);
        assert_eq!(audit.latest("even").unwrap().at, Wall(598));
        assert!(audit.latest("none").is_none());
    }
}
