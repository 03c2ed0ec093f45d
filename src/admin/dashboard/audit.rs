//! What people changed of late.

use askama::Template;
use axum::response::Response;

use super::shell::{Shell, page};
use super::{Visit, encoded};
use crate::admin::api::rfc3339;
use crate::admin::audit::Entry;
use crate::admin::{name, words};
use crate::event::Wall;

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    shell: Shell,
    rows: Vec<Row>,
}

struct Row {
    at: String,
    ago: String,
    who: String,
    about: String,
    /// Where more is said about it.
    link: Option<String>,
    what: String,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    page(visit, ("audit", "Changes"), async |visit, shell| {
        let now = visit.admin.handle.now().wall;
        Ok(Page { shell, rows: visit.admin.audit.list().iter().map(|entry| Row::of(entry, now)).collect() })
    })
    .await
}

/// Who made a change, in words.
pub(super) fn who(entry: &Entry) -> String {
    let from = entry.from.map_or_else(String::new, |peer| format!(" from {peer}"));
    let way = match &*entry.way {
        "api" => "API",
        "cli" => "command line",
        way => way,
    };
    format!("through the {way}{from}")
}

impl Row {
    fn of(entry: &Entry, now: Wall) -> Self {
        let group = name::group("about", &entry.about).ok();
        Self {
            at: rfc3339(entry.at()),
            ago: words::ago(entry.at(), now),
            who: who(entry),
            link: group.map(|group| format!("/group?name={}", encoded(group.as_str()))),
            about: words::safe(&entry.about),
            what: words::safe(&entry.what),
        }
    }
}
