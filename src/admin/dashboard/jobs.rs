//! Jobs over whole queues: how far they are, and calling them off.

use askama::Template;
use axum::response::Response;

use super::shell::{Shell, live_page};
use super::{Visit, encoded};
use crate::admin::api::rfc3339;
use crate::admin::problem::Problem;
use crate::admin::words;
use crate::driver::{Job, JobState};
use crate::event::Wall;

#[derive(Template)]
#[template(path = "jobs.html")]
struct Page {
    shell: Shell,
    jobs: Vec<Row>,
}

struct Row {
    id: u64,
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
    live_page(visit, ("jobs", "Jobs"), |visit, shell| async move { made(&visit, shell) }).await
}

fn made(visit: &Visit, shell: Shell) -> Result<Page, Problem> {
    let now = visit.admin.handle.now().wall;
    Ok(Page { shell, jobs: visit.admin.handle.jobs().into_iter().map(|job| Row::of(job, now)).collect() })
}

impl Row {
    fn of(job: Job, now: Wall) -> Self {
        let skipped =
            if job.skipped > 0 { format!(", {} had gone on", words::count(job.skipped)) } else { String::new() };
        Self {
            id: job.id,
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
