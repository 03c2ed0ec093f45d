//! The list of groups, and a group as any list shows it.

use askama::Template;
use axum::response::Response;

use super::samples::Samples;
use super::shell::{Shell, live_page};
use super::{Visit, chart, encoded};
use crate::admin::groups::{sorted_by, written};
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::{GroupView, Rate, Sort};
use crate::event::Group;

/// Groups on the page.
const ROWS_MAX: usize = 100;

/// Groups that a filter looks through.
const FILTERED_MAX: usize = 10_000;

/// Points of a spark: ten minutes of them.
const SPARK_POINTS: usize = 120;

/// A group in a list.
pub(super) struct Row {
    pub(super) name: String,
    /// As it stands in a query.
    pub(super) link: String,
    pub(super) state: &'static str,
    pub(super) state_words: &'static str,
    /// Why it does not run, in words; where it may, that it waits for its turn.
    pub(super) why: String,
    pub(super) share: String,
    /// The same as a width, 0 to 100.
    pub(super) share_width: f64,
    pub(super) arrives: String,
    pub(super) drains: String,
    pub(super) in_flight: u32,
    pub(super) cap: u32,
    pub(super) weight: f64,
    pub(super) rate: Option<String>,
    pub(super) backlog: String,
    pub(super) has_backlog: bool,
    pub(super) retrying: String,
    pub(super) oldest: String,
    pub(super) wait_p99: String,
    pub(super) eta: String,
    pub(super) paused: bool,
    /// Points of a polyline; empty for a group that is not among the largest.
    pub(super) spark: String,
}

/// Events of a group that are not ended, and its live requests.
pub(super) fn pending(view: &GroupView) -> u64 {
    view.queued + view.retrying + u64::from(view.in_flight) + u64::from(view.live)
}

impl Row {
    pub(super) fn of(view: &GroupView, samples: &Samples) -> Self {
        let points = samples.of(&view.group);
        let values: Vec<u64> = points.iter().rev().take(SPARK_POINTS).rev().map(|point| point.backlog).collect();
        let backlog = pending(view);
        let state = match view.state.as_str() {
            // Nothing of it could go: it all goes already, or waits for its time.
            "idle" if view.in_flight > 0 => "in_flight",
            "idle" if view.retrying > 0 => "retrying",
            state => state,
        };
        Self {
            name: view.group.to_string(),
            link: encoded(view.group.as_str()),
            state,
            state_words: state_words(state),
            why: why(view),
            share: words::percent(view.share),
            share_width: (view.share * 100.0).clamp(0.0, 100.0),
            arrives: words::per_second(view.arrival_rate),
            drains: words::per_second(view.drain_rate),
            in_flight: view.in_flight,
            cap: view.concurrency,
            weight: view.weight,
            rate: view.rate.map(|Rate { events, per }| written(events, per)),
            backlog: words::count(backlog),
            has_backlog: backlog > 0,
            retrying: words::count(view.retrying),
            oldest: if backlog > 0 { words::span(view.oldest) } else { "–".to_owned() },
            wait_p99: view.wait_p99.map_or_else(|| "–".to_owned(), words::span),
            eta: done_in(view, backlog),
            paused: view.paused,
            spark: chart::spark(&values),
        }
    }
}

/// When it is through with what waits, at its rates of the last minute.
fn done_in(view: &GroupView, backlog: u64) -> String {
    // What is all in flight is done with its attempts, at no rate.
    let waits = backlog > u64::from(view.in_flight);
    match view.eta {
        Some(eta) if waits => words::span(eta),
        _ if !waits => "–".to_owned(),
        None if view.arrival_rate > view.drain_rate => "grows".to_owned(),
        _ => "–".to_owned(),
    }
}

/// A group's state, short.
fn state_words(state: &'static str) -> &'static str {
    match state {
        "ready" => "runs",
        "capped" => "at its cap",
        "limited" => "at its rate",
        "held" => "held back",
        "slow" => "slow",
        "broken" => "breaker open",
        "retry_slots" | "retrying" => "retries wait",
        "in_flight" => "in flight",
        "dedicated" => "slots of its own",
        other => other,
    }
}

/// Why its events wait, in words.
pub(super) fn why(view: &GroupView) -> String {
    match (view.reason.is_empty(), view.queued + u64::from(view.live)) {
        (false, _) => view.reason.clone(),
        (true, 0) if view.in_flight > 0 => "all of it is in flight".to_owned(),
        (true, 0) => "nothing waits".to_owned(),
        (true, _) => "waits for its turn".to_owned(),
    }
}

#[derive(Template)]
#[template(path = "groups.html")]
struct Groups {
    shell: Shell,
    sort: &'static str,
    filter: String,
    /// The filter, where it is a group's name and no row has it.
    exact: Option<String>,
    rows: Vec<Row>,
    /// How many more there are.
    more: usize,
    active: usize,
}

/// The columns that lists can be sorted by: what stands in the query, and what the head says.
const SORTS: [(&str, &str); 4] = [("age", "Oldest"), ("depth", "Waiting"), ("seconds", "Share"), ("rate", "In")];

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    live_page(visit, ("groups", "Groups"), |visit, shell| async move { made(&visit, shell).await }).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Groups, Problem> {
    let query = visit.query();
    let sort = query.get("sort").unwrap_or("seconds");
    let by: Sort = sorted_by(Some(sort))?;
    let sort = SORTS.iter().find(|(name, _)| *name == sort).map_or("age", |(name, _)| name);
    let filter = query.get("filter").unwrap_or_default().to_owned();
    let wanted = if filter.is_empty() { ROWS_MAX } else { FILTERED_MAX };
    let views = visit.admin.handle.groups(by, wanted).await?;
    let active = visit.admin.handle.upstream().await?.active_groups;
    let lower = filter.to_lowercase();
    let matching: Vec<&GroupView> =
        views.iter().filter(|view| view.group.as_str().to_lowercase().contains(&lower)).collect();
    let more =
        if filter.is_empty() { active.saturating_sub(matching.len()) } else { matching.len().saturating_sub(ROWS_MAX) };
    let samples = &visit.admin.dashboard.samples;
    let rows: Vec<Row> = matching.into_iter().take(ROWS_MAX).map(|view| Row::of(view, samples)).collect();
    let exact = Group::from_written(&filter).filter(|group| rows.iter().all(|row| row.name != group.as_str()));
    Ok(Groups { shell, sort, exact: exact.map(|group| group.to_string()), filter, rows, more, active })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_sorted_by_what_the_api_sorts_by() {
        for (name, _) in SORTS {
            assert!(sorted_by(Some(name)).is_ok(), "{name}");
        }
    }
}
