//! What a tenant sees.

use std::sync::LazyLock;
use std::time::Duration;

use askama::Template;
use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::admin::words;
use crate::driver::GroupView;
use crate::event::Wall;

const STYLE: &str = include_str!("page.css");

/// Neither says why: there is nothing to be learned from it.
pub(super) const NOTHING: &str = "<!doctype html><html lang=\"en\"><title>Not found</title><p>There is nothing here, or no longer. Ask whoever gave you the link for a new one.</p></html>\n";
pub(super) const BUSY: &str = "<!doctype html><html lang=\"en\"><title>Busy</title><p>Too many people ask at the moment. Try again in a few seconds.</p></html>\n";

/// Nothing may be loaded; the one style sheet in the page is named by its digest.
pub(super) fn policy() -> HeaderValue {
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        );
        HeaderValue::try_from(policy).expect("base64 and words are a header's value")
    });
    POLICY.clone()
}

#[derive(Template)]
#[template(path = "tenant.html")]
struct Page<'a> {
    style: &'a str,
    name: String,
    tone: &'static str,
    standing: String,
    waiting: String,
    retrying: String,
    oldest: String,
    done_in: Option<String>,
    arrives: String,
    drains: String,
    counted: Option<Counted>,
    now: String,
    left: String,
}

struct Counted {
    accepted: String,
    delivered: String,
    failed: String,
    since: String,
}

/// The page; `None` when it could not be written.
pub(super) fn of(view: &GroupView, left: Duration, now: Wall) -> Option<String> {
    let pending = view.queued + view.retrying + u64::from(view.in_flight);
    let (tone, standing) = standing(view, pending);
    let page = Page {
        style: STYLE,
        name: view.group.to_string(),
        tone,
        standing,
        waiting: if view.overflow.is_some() { "–".to_owned() } else { words::count(pending) },
        retrying: words::count(view.retrying),
        oldest: if pending > 0 { words::span(view.oldest) } else { "–".to_owned() },
        done_in: view.eta.filter(|_| pending > 0).map(words::span),
        arrives: words::per_second(view.arrival_rate),
        drains: words::per_second(view.drain_rate),
        counted: view.counted.map(|span| Counted {
            accepted: words::count(view.accepted),
            delivered: words::count(view.delivered),
            failed: words::count(view.dead),
            since: crate::admin::api::rfc3339(now.minus(span)),
        }),
        now: crate::admin::api::rfc3339(now),
        left: words::span(left),
    };
    page.render().ok()
}

/// How the group's events fare, in words that say nothing of anybody else.
fn standing(view: &GroupView, pending: u64) -> (&'static str, String) {
    let (tone, text) = match view.state.as_str() {
        "paused" => ("wait", "Delivery is paused by the operator. Your events are taken in and kept."),
        "limited" => ("wait", "Your events are delivered at an agreed pace; more arrive than it lets through."),
        "broken" | "held" => {
            ("wait", "The receiver does not take your events at the moment. They are kept, and tried again.")
        }
        "retry_slots" => {
            ("wait", "Some of your events were not taken by the receiver. They are kept, and tried again.")
        }
        _ if pending > 0 && view.arrival_rate > view.drain_rate && view.oldest > Duration::from_mins(1) => {
            ("wait", "Your events are delivered, but arrive faster than they are delivered.")
        }
        _ if view.retrying > 0 && view.queued == 0 => {
            ("wait", "Some of your events were not taken by the receiver. They are kept, and tried again.")
        }
        // Its events wait in a lane that it shares, where nobody counts whose they are.
        _ if view.overflow.is_some() => {
            ("good", "Your events are delivered in their turn. How many of them wait is not counted at the moment.")
        }
        _ if pending > 0 => ("good", "Your events are being delivered."),
        _ => ("good", "Nothing waits: all your events are delivered as they come."),
    };
    let pace = view.rate.map_or_else(String::new, |rate| {
        format!(" The pace is at most {}.", crate::admin::groups::written(rate.events, rate.per))
    });
    (tone, format!("{text}{pace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_the_style_that_is_in_the_page() {
        let policy = policy();
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        assert!(policy.to_str().unwrap().contains(&format!("'sha256-{digest}'")));
        assert!(!STYLE.contains('<'), "it stands in a page as it is");
    }
}
