//! The sources: what came in through each, which secrets it was verified with, and why keys were missing.

use askama::Template;
use axum::response::Response;

use super::shell::{Shell, live_page};
use super::{Visit, encoded};
use crate::admin::nodes::whole;
use crate::admin::nodes::{SourceReport, Wanted};
use crate::admin::problem::Problem;
use crate::admin::{sources, words};
use crate::driver::{Hold, SourceHold, SourceInfo};
use crate::event::Wall;

#[derive(Template)]
#[template(path = "sources.html")]
struct Page {
    shell: Shell,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    /// It is in the configuration no more.
    gone: bool,
    link: String,
    /// How it stands, and what to say of that; none of it where it runs.
    state: &'static str,
    held: Option<String>,
    backlog: String,
    path: String,
    methods: String,
    verify: String,
    key: Option<String>,
    key_signed: bool,
    accepted: String,
    delivered: String,
    dead: String,
    /// The part of accepted events without a key, and the reasons.
    fallback: Option<(String, Vec<(String, String)>)>,
    suppressed: Option<String>,
    secrets: Vec<Secret>,
    skew: Option<String>,
}

struct Secret {
    index: usize,
    matches: String,
    /// When it ends, in words.
    ends: Option<String>,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    live_page(visit, ("sources", "Sources"), |visit, shell| async move { made(&visit, shell).await }).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let whole = whole::ask(&visit.admin, Wanted { sources: true, ..Wanted::default() }).await?;
    let row = |source: &SourceInfo| Row::of(visit, source, whole.source(&source.name));
    Ok(Page { shell: shell.of_all(&whole), rows: sources::all(&visit.admin).iter().map(row).collect() })
}

impl Row {
    fn of(visit: &Visit, source: &SourceInfo, numbers: SourceReport) -> Self {
        let now = visit.admin.handle.now().wall;
        let hold = visit.admin.handle.held_source(&source.name);
        let without_key: u64 = numbers.fallback.iter().map(|(_, count)| count).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let part = words::percent(without_key as f64 / numbers.accepted.max(1) as f64);
        let reasons = numbers.fallback.iter().filter(|(_, count)| *count > 0);
        let reasons = reasons.map(|(reason, count)| (reason.clone(), words::count(*count))).collect();
        let secret = |(index, (matches, until)): (usize, (&u64, &Option<Wall>))| Secret {
            index,
            matches: words::count(*matches),
            ends: until.map(|at| {
                if at <= now { "has ended".to_owned() } else { format!("ends in {}", words::span(at.since(now))) }
            }),
        };
        Self {
            name: source.name.to_string(),
            gone: source.is_gone(),
            state: sources::state(hold.as_ref()),
            held: hold.map(|hold| held(&hold, now)),
            backlog: numbers.backlog.map_or_else(|| uncounted(visit).to_owned(), words::count),
            link: encoded(&source.name),
            path: source.path.clone(),
            methods: source.methods.join(", "),
            verify: source.verify.clone(),
            key: source.key.clone(),
            key_signed: source.key_signed,
            accepted: words::count(numbers.accepted),
            delivered: words::count(numbers.delivered),
            dead: words::count(numbers.dead),
            fallback: (without_key > 0).then_some((part, reasons)),
            suppressed: (numbers.suppressed > 0).then(|| words::count(numbers.suppressed)),
            secrets: numbers.matches.iter().zip(&source.secrets).enumerate().map(secret).collect(),
            skew: (numbers.skew_s.abs() >= 1.0).then(|| format!("{:+.0} s", numbers.skew_s)),
        }
    }
}

/// Why it is not known how many of its events wait.
fn uncounted(visit: &Visit) -> &'static str {
    // Many nodes know their lanes, and sources feed lanes of all of them.
    if visit.admin.others.get().is_some() { "not counted" } else { "counting" }
}

/// What a person did with it, who, when and until when, in words.
fn held(hold: &SourceHold, now: Wall) -> String {
    let does = match hold.held {
        Hold::Paused => "Paused: its events are accepted, kept, and wait",
        Hold::Draining => "Runs dry: its requests are refused with 503, its events go on",
    };
    let ends = hold.ends.map_or_else(
        || "until it is resumed".to_owned(),
        |at| format!("for {} more", words::span(Wall(at).since(now))),
    );
    format!("{does}; {ends}. Begun {} ({}).", words::ago(Wall(hold.since), now), words::safe(&hold.by))
}
