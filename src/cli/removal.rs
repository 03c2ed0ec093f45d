//! Ending events without delivering them: one that is stuck, or a group's whole queue. What would happen is said first, and what cannot be
//! taken back asks for more than a yes.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, ask, encoded, shown};
use super::table::{Column, escaped, lines, many, table};
use super::{FAILED, USAGE, complain, print};

/// Between two looks at a job's progress.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `fairlane events skip|discard ID`.
#[derive(Debug, Args)]
pub(super) struct One {
    /// Its id, `evt_…`
    id: String,
}

/// `fairlane groups divert GROUP`.
#[derive(Debug, Args)]
pub(super) struct Divert {
    /// The group, as lists write it
    group: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// `fairlane groups discard GROUP`.
#[derive(Debug, Args)]
pub(super) struct Discard {
    /// The group, as lists write it
    group: String,
    /// Its name again, instead of being asked for it
    #[arg(long, value_name = "GROUP")]
    confirm: Option<String>,
}

/// `fairlane groups jobs`.
#[derive(Debug, Args)]
pub(super) struct Jobs {
    /// Call this one off; what it has done stays done
    #[arg(long, value_name = "ID")]
    cancel: Option<u64>,
}

const JOB_COLUMNS: [Column; 9] = [
    ("ID", "id", true),
    ("ACTION", "action", false),
    ("GROUP", "group", false),
    ("STATE", "state", false),
    ("TOTAL", "total", true),
    ("DONE", "done", true),
    ("SKIPPED", "skipped", true),
    ("BEGAN", "began_at", false),
    ("BY", "by", false),
];

/// Ends one event; `how` is `skip` or `discard`.
pub(super) fn one(one: &One, how: &str, remote: &Remote) -> u8 {
    let path = format!("/api/v1/events/{}/{how}", encoded(&one.id));
    shown(remote, Method::POST, &path, Some(json!({})), lines)
}

pub(super) fn jobs(jobs: &Jobs, remote: &Remote) -> u8 {
    match jobs.cancel {
        Some(id) => shown(remote, Method::DELETE, &format!("/api/v1/jobs/{id}"), Some(json!({})), lines),
        None => shown(remote, Method::GET, "/api/v1/jobs", None, |answer| table(answer, "jobs", &JOB_COLUMNS)),
    }
}

pub(super) fn divert(divert: &Divert, remote: &Remote) -> u8 {
    let sure = |_: &Value| match divert.yes {
        true => Ok(true),
        false => {
            asked("Go on? [y/N] ", "--yes goes on without being asked").map(|answer| answer == "y" || answer == "yes")
        }
    };
    all(&divert.group, "divert", remote, sure)
}

pub(super) fn discard(discard: &Discard, remote: &Remote) -> u8 {
    let sure = |_: &Value| {
        let name = match &discard.confirm {
            Some(name) => Ok(name.clone()),
            None => asked(
                "They are gone for good. The group's name again, to discard them: ",
                "--confirm GROUP names it again without being asked",
            ),
        };
        name.map(|name| name == discard.group)
    };
    all(&discard.group, "discard", remote, sure)
}

/// Says what would happen, asks, and follows it to its end.
fn all(group: &str, action: &str, remote: &Remote, sure: impl Fn(&Value) -> Result<bool, String>) -> u8 {
    let path = format!("/api/v1/group/{action}?name={}", encoded(group));
    let plan = match ask(remote, Method::POST, &path, Some(json!({ "plan": true }))) {
        Ok(plan) => plan,
        Err(message) => return complain(&message, FAILED),
    };
    note(&in_words(&plan));
    if plan.get("total").and_then(Value::as_u64) == Some(0) {
        return if remote.json { print(format!("{plan:#}\n").as_bytes()) } else { 0 };
    }
    match sure(&plan) {
        Ok(true) => {}
        Ok(false) => return complain("nothing was changed", FAILED),
        Err(why) => return complain(&why, USAGE),
    }
    let by = std::env::var("USER").ok().filter(|by| !by.is_empty()).unwrap_or_else(|| "cli".to_owned());
    let begun = ask(remote, Method::POST, &path, Some(json!({ "confirm": group, "by": by })));
    match begun.and_then(|job| follow(job, remote)) {
        Ok(job) if remote.json => print(format!("{job:#}\n").as_bytes()),
        Ok(job) => print(ended(&job).as_bytes()),
        Err(message) => complain(&message, FAILED),
    }
}

/// What became of a job, in a sentence whose numbers add up, and its figures.
fn ended(job: &Value) -> String {
    let number = |name: &str| job.get(name).and_then(Value::as_u64).unwrap_or_default();
    let (total, done, skipped) = (number("total"), number("done"), number("skipped"));
    let whither = match job.get("action").and_then(Value::as_str) {
        Some("divert") => "put to the dead letters",
        _ => "thrown away",
    };
    let mut text = format!("{done} of {} {whither}", many(total, "event"));
    if skipped > 0 {
        text.push_str(&format!(", {skipped} ended otherwise before their turn"));
    }
    let left = total.saturating_sub(done + skipped);
    if left > 0 {
        text.push_str(&format!(", {left} left as they were: it was called off"));
    }
    format!("{text}\n\n{}", lines(job))
}

/// What the plan says.
fn in_words(plan: &Value) -> String {
    let number = |name: &str| plan.get(name).and_then(Value::as_u64).unwrap_or_default();
    let group = plan.get("group").and_then(Value::as_str).map(escaped).unwrap_or_default();
    let (total, queued, retrying, in_flight) =
        (number("total"), number("queued"), number("retrying"), number("in_flight"));
    if total == 0 {
        return format!("nothing of {group} waits; {in_flight} in flight");
    }
    let (does, whither) = match plan.get("reversible").and_then(Value::as_bool) {
        Some(true) => ("diverts", "to the dead letters, from where it can be replayed"),
        _ => ("discards", "no replay takes it but one with --status discarded"),
    };
    format!(
        "{does} what waits of {group}, {} ({queued} queued, {retrying} waiting for a further attempt), {whither}; {} by itself, and what arrives from now on is delivered",
        many(total, "event"),
        if in_flight == 1 {
            "the attempt in flight ends".to_owned()
        } else {
            format!("each of the {in_flight} attempts in flight ends")
        },
    )
}

/// An answer from the terminal; without one nobody can be asked.
fn asked(question: &str, instead: &str) -> Result<String, String> {
    if !std::io::stdin().is_terminal() {
        return Err(format!("nobody is there to be asked: {instead}"));
    }
    let mut err = std::io::stderr().lock();
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).map_err(|error| error.to_string())?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| error.to_string())?;
    Ok(answer.trim().to_owned())
}

/// Looks at a job until it has ended; on a terminal its progress is shown. To stop looking does not stop the job.
fn follow(mut job: Value, remote: &Remote) -> Result<Value, String> {
    let id = job.get("id").and_then(Value::as_u64).ok_or("what answers there does not answer as a gateway does")?;
    let path = format!("/api/v1/jobs/{id}");
    let mut shown = None;
    while job.get("state").and_then(Value::as_str) == Some("running") {
        let number = |name: &str| job.get(name).and_then(Value::as_u64).unwrap_or_default();
        let progress = (number("done"), number("total"));
        if shown != Some(progress) && std::io::stderr().is_terminal() {
            note(&format!(
                "{} of {} (it goes on when this ends; fairlane groups jobs --cancel {id})",
                progress.0, progress.1
            ));
        }
        shown = Some(progress);
        std::thread::sleep(LOOK_EVERY);
        job = ask(remote, Method::GET, &path, None)?;
    }
    Ok(job)
}

/// Beside the answer, which another program may read.
fn note(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_job_add_up() {
        let job = |done, skipped| json!({ "action": "divert", "total": 7, "done": done, "skipped": skipped });
        assert!(ended(&job(7, 0)).starts_with("7 of 7 events put to the dead letters\n\n"));
        assert!(
            ended(&job(5, 2))
                .starts_with("5 of 7 events put to the dead letters, 2 ended otherwise before their turn\n")
        );
        assert!(
            ended(&job(4, 1)).contains(", 1 ended otherwise before their turn, 2 left as they were: it was called off")
        );
    }

    #[test]
    fn a_plan_says_what_would_happen_and_whether_it_can_be_taken_back() {
        let plan = json!({ "group": "a", "total": 7, "queued": 5, "retrying": 2, "in_flight": 1, "reversible": true });
        let text = in_words(&plan);
        assert!(text.starts_with("diverts what waits of a, 7 events (5 queued, 2 waiting"), "{text}");
        assert!(text.contains("can be replayed; the attempt in flight ends by itself"), "{text}");
        let text = in_words(&json!({ "group": "a", "total": 7, "reversible": false }));
        assert!(text.contains("discards") && text.contains("--status discarded"), "{text}");
        assert!(in_words(&json!({ "group": "a", "total": 0 })).starts_with("nothing of a waits"));
    }
}
