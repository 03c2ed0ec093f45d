//! A replay to be: what it would be about, before anything is begun.

use askama::Template;
use axum::response::Response;

use super::Visit;
use super::form::Fields;
use super::shell::{Shell, page};
use crate::admin::api::rfc3339;
use crate::admin::problem::Problem;
use crate::admin::replays::{Wish, planned};
use crate::admin::words;
use crate::driver::{Filter, Plan};

#[derive(Template)]
#[template(path = "plan.html")]
struct Page {
    shell: Shell,
    /// What it is about, in words.
    about: String,
    /// The same, as the form sends it again.
    fields: Vec<(&'static str, String)>,
    count: u64,
    events: String,
    complete: bool,
    /// Some of them have an order key.
    ordered: bool,
    facts: Vec<(&'static str, String)>,
}

/// The fields of a filter.
const FILTER: [&str; 6] = ["group", "source", "status", "since", "until", "provider_event_id"];

/// What a form, or a query, asks to be replayed: dead letters unless it says otherwise.
pub(super) fn filter(fields: &Fields) -> Result<Filter, Problem> {
    Wish::of(|name| fields.get(name)).filter()
}

/// A filter as a person says it.
pub(super) fn about(filter: &Filter) -> String {
    let statuses: Vec<&str> = filter.status.iter().map(|status| status.as_str()).collect();
    let mut text = format!("{} events", statuses.join(" and "));
    let conditions = [
        (" of ", filter.group.as_ref().map(ToString::to_string)),
        (" through ", filter.source.as_ref().map(|source| words::safe(source))),
        (" with the provider's id ", filter.provider_event_id.as_deref().map(words::safe)),
        (", received since ", filter.since.map(rfc3339)),
        (", received before ", filter.until.map(rfc3339)),
    ];
    for (what, value) in conditions {
        if let Some(value) = value {
            text.push_str(what);
            text.push_str(&value);
        }
    }
    text
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    page(visit, ("jobs", "Plan of a replay"), async |visit, shell| made(visit, shell).await).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let query = visit.query();
    let filter = filter(&query)?;
    let plan = planned(&visit.admin, &filter).await?;
    Ok(Page {
        shell,
        about: about(&filter),
        fields: FILTER.iter().filter_map(|name| Some((*name, query.get(name)?.to_owned()))).collect(),
        count: plan.count,
        events: words::events(plan.count),
        complete: plan.complete,
        ordered: plan.ordered > 0,
        facts: facts(plan),
    })
}

fn facts(plan: Plan) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Groups", words::count(plan.groups)), ("Bytes", words::bytes(plan.bytes))];
    facts
        .extend(plan.largest.map(|(group, count)| ("Largest group", format!("{group} with {}", words::events(count)))));
    facts.extend((plan.ordered > 0).then(|| ("With an order key", words::events(plan.ordered))));
    facts.extend(plan.span.map(|(from, to)| ("Received", format!("{} to {}", rfc3339(from), rfc3339(to)))));
    facts.extend(plan.expected.map(|span| ("Takes about", words::span(span))));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_said_in_words() {
        let said = |text: &str| filter(&Fields::read(text.as_bytes())).map(|filter| about(&filter)).unwrap();
        assert_eq!(said("group=&status="), "dead events");
        assert_eq!(
            said("group=a&source=/x&status=dead,delivered&since=2026-01-31T08:00:00Z&provider_event_id=p%07"),
            "dead and delivered events of a through /x with the provider's id p\\u{7}, received since 2026-01-31T08:00:00.000Z"
        );
        assert!(filter(&Fields::read(b"status=queued")).is_err());
    }
}
