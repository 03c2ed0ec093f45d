//! Replays, and jobs over whole queues: how far they are; pausing them and calling them off.

use askama::Template;
use axum::response::Response;

use super::shell::{Shell, live_page};
use super::{Visit, encoded, plan};
use crate::admin::api::rfc3339;
use crate::admin::nodes::Wanted;
use crate::admin::nodes::whole::{self, Of};
use crate::admin::problem::Problem;
use crate::admin::replays::name_of;
use crate::admin::words;
use crate::driver::{Job, JobState, ReplayView, Standing};
use crate::event::Wall;

#[derive(Template)]
#[template(path = "jobs.html")]
struct Page {
    shell: Shell,
    replays: Vec<Replay>,
    jobs: Vec<Row>,
}

struct Replay {
    number: u64,
    /// Which node works on it, where there are several.
    node: String,
    name: String,
    state: &'static str,
    over: bool,
    paused: bool,
    about: String,
    done: u64,
    planned: u64,
    progress: String,
    rate: String,
    waiting: String,
    began: String,
    ago: String,
}

struct Row {
    id: u64,
    /// The same.
    node: String,
    what: String,
    group: String,
    link: String,
    state: &'static str,
    runs: bool,
    done: u64,
    total: u64,
    progress: String,
    began: String,
    ago: String,
    by: String,
}

/// The page.
pub(super) async fn show(visit: Visit) -> Response {
    live_page(visit, ("jobs", "Replays and jobs"), |visit, shell| async move { made(&visit, shell).await }).await
}

async fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let now = visit.admin.handle.now().wall;
    let whole = whole::ask(&visit.admin, Wanted { replays: true, jobs: true, ..Wanted::default() }).await?;
    Ok(Page {
        shell: shell.of_all(&whole),
        replays: whole.replays().into_iter().map(|replay| Replay::of(replay, now)).collect(),
        jobs: whole.jobs().into_iter().map(|job| Row::of(job, now)).collect(),
    })
}

impl Replay {
    fn of(Of { node, it: view }: Of<ReplayView>, now: Wall) -> Self {
        let (done, over) = (view.tally.ended(), view.standing.is_over());
        let waiting = view.waiting.iter().map(|(group, count)| format!("{group} ({})", words::count(*count as u64)));
        Self {
            number: view.number,
            node,
            name: name_of(&view),
            state: view.standing.as_str(),
            over,
            paused: view.standing == Standing::Paused,
            about: plan::about(&view.filter),
            done,
            planned: view.planned.max(done).max(1),
            progress: progress(&view),
            rate: if over { String::new() } else { words::per_second(view.rate) },
            waiting: waiting.collect::<Vec<_>>().join(", "),
            began: rfc3339(view.created),
            ago: words::ago(view.created, now),
        }
    }
}

/// What became of a replay's events so far; what did not happen is not named.
fn progress(view: &ReplayView) -> String {
    let tally = view.tally;
    let mut text = format!("{} of {} delivered", words::count(tally.delivered), words::count(view.planned));
    let others = [
        (tally.dead, "dead again"),
        (tally.retrying, "failed and retried"),
        (tally.withdrawn, "taken back"),
        (tally.missed, "no longer there"),
    ];
    for (number, what) in others.into_iter().filter(|(number, _)| *number > 0) {
        text.push_str(&format!(", {} {what}", words::count(number)));
    }
    text
}

impl Row {
    fn of(Of { node, it: job }: Of<Job>, now: Wall) -> Self {
        let skipped =
            if job.skipped > 0 { format!(", {} had gone on", words::count(job.skipped)) } else { String::new() };
        Self {
            id: job.id,
            node,
            what: job.action.as_str().to_owned(),
            link: encoded(&job.group),
            group: job.group,
            state: job.state.as_str(),
            runs: matches!(job.state, JobState::Running),
            done: job.done + job.skipped,
            total: job.total.max(job.done + job.skipped).max(1),
            progress: format!("{} of {}{skipped}", words::count(job.done), words::count(job.total)),
            began: rfc3339(Wall(job.began)),
            ago: words::ago(Wall(job.began), now),
            by: words::safe(&job.by),
        }
    }
}
