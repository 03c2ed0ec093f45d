//! One group: how it stands, why it waits, what a person changed of it, its events, and everything that can be done about it.

use std::time::Duration;

use askama::Template;
use axum::response::Response;

use super::events::Line;
use super::groups::Row;
use super::samples::GroupPoint;
use super::shell::{Shell, live_page};
use super::{Visit, chart, waits};
use crate::admin::audit::Entry;
use crate::admin::inside::{self, Inside};
use crate::admin::name;
use crate::admin::nodes::Wanted;
use crate::admin::nodes::whole;
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::{self, Dated, Ended, InParts as _, Live, Query};
use crate::event::{Group, Wall};

/// Events on the page; the rest is a link away.
const EVENTS: usize = 15;

#[derive(Template)]
#[template(path = "group.html")]
struct Page {
    shell: Shell,
    row: Row,
    facts: Vec<Fact>,
    /// What people changed, as words.
    change: Option<Change>,
    held: Option<String>,
    events: Vec<Line>,
    charts: Vec<(&'static str, String)>,
    waited: Vec<waits::Part>,
    inside: Inside,
    /// Events that may wait, where there is a cap.
    backlog_max: Option<String>,
    /// Where it stands with slots of its own, where it demands much.
    dedicated: Option<&'static str>,
}

struct Fact {
    name: &'static str,
    value: String,
}

struct Change {
    /// Each part with its end.
    what: String,
    made: String,
    /// The names of its parts, where there are several.
    parts: Vec<&'static str>,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    let title = visit.query().get("name").unwrap_or("Group").to_owned();
    live_page(visit, ("groups", &title), |visit, shell| async move { made(&visit, shell).await }).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let handle = &visit.admin.handle;
    let group = name::group("name", visit.query().need("name")?)?;
    let wanted = Wanted { held: Some(inside::HELD_MAX), hung: Some(Duration::ZERO), ..Wanted::default() };
    let owner = whole::of_group(&visit.admin, &group, wanted).await?;
    let view = owner.group.ok_or(Ended)?;
    let changes = handle.changes().await?;
    let change = changes.into_iter().find(|(whose, _)| *whose == group).map(|(_, live)| live);
    let held = owner.hung.into_iter().find(|held| held.group == group);
    let query = Query { group: Some(group.clone()), limit: EVENTS, ..Query::default() };
    let events = handle.events(query).await?.records;
    let now = handle.now().wall;
    let samples = &visit.admin.dashboard.samples;
    let counted = view.counted.map_or_else(String::new, |span| format!(" in {}", words::span(span)));
    let fact = |name, value| Fact { name, value };
    let facts = vec![
        fact("Accepted", format!("{}{counted}", words::count(view.accepted))),
        fact("Delivered", format!("{}{counted}", words::count(view.delivered))),
        fact("Dead letters", words::count(view.dead)),
        fact("Worker time", words::span(view.worker_time)),
    ];
    let made = visit.admin.audit.latest(group.as_str()).await;
    Ok(Page {
        shell,
        row: Row::of(&view, samples),
        backlog_max: view.backlog.map(|cap| words::events(cap.into())),
        dedicated: view.dedicated.as_ref().map(|own| own.state.as_str()),
        waited: waits::parts(&view.waited),
        inside: inside::with(&visit.admin, &group, owner.held).await?,
        facts,
        change: change.map(|live| Change::of(&live, made.as_ref(), now)),
        held: held.map(|held| {
            format!(
                "{} in flight, the oldest for {}",
                words::many(held.attempts.into(), "attempt"),
                words::span(held.oldest)
            )
        }),
        events: events.iter().map(|record| Line::of(record, now)).collect(),
        charts: charts(&group, &samples.of(&group), now),
    })
}

impl Change {
    fn of(live: &Live, made: Option<&Entry>, now: Wall) -> Self {
        let what: Vec<String> = live.dated().map(|dated| part(dated, now)).collect();
        let made = made.map_or_else(
            || "Who said so, and when, is in the log.".to_owned(),
            |entry| format!("Said {}, {}.", words::ago(entry.at(), now), super::audit::who(entry)),
        );
        let parts = live.change().given();
        Self { what: what.join("; "), made, parts: if parts.len() > 1 { parts } else { Vec::new() } }
    }
}

/// What ends at one time, and when.
fn part(dated: &Dated<driver::Change>, now: Wall) -> String {
    let change = dated.change;
    let mut what = Vec::new();
    what.extend(change.paused.map(|paused| if paused { "paused".to_owned() } else { "runs".to_owned() }));
    what.extend(change.weight.map(|weight| format!("weight {weight}")));
    what.extend(change.concurrency.map(|cap| format!("at most {}", words::many(cap.into(), "attempt"))));
    what.extend(change.rate.map(|(events, micros)| {
        format!("rate {}", crate::admin::groups::written(events, Duration::from_micros(micros)))
    }));
    what.extend(change.backlog.map(|cap| format!("at most {} waiting", words::events(cap.into()))));
    let until = dated.expires.map_or_else(
        || "until somebody takes it back".to_owned(),
        |at| format!("for {} more", words::span(Wall(at).since(now))),
    );
    format!("{}, {until}", what.join(", "))
}

fn charts(group: &Group, points: &[GroupPoint], now: Wall) -> Vec<(&'static str, String)> {
    if points.len() < 2 {
        return Vec::new();
    }
    let line = |of: &dyn Fn(&GroupPoint) -> f64| -> chart::Line {
        points.iter().map(|point| (-now.since(point.at).as_secs_f64() / 60.0, of(point))).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "drawn")]
    let backlog = line(&|point| point.backlog as f64);
    let wait = line(&|point| point.wait_s);
    let whole = |value: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a label, not negative")]
        words::count(value.round() as u64)
    };
    let seconds = |value: f64| words::span(Duration::from_secs_f64(value.max(0.0)));
    vec![
        ("Events that wait", chart::draw(&format!("Events of {group} that wait, last hour"), &[backlog], &whole)),
        ("Wait, 99th percentile", chart::draw(&format!("Wait of {group}, last hour"), &[wait], &seconds)),
    ]
}
