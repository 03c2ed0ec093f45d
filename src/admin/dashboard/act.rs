//! What a person presses. Each does what the API's call of the same meaning does, says so on the next page, and leaves the same line
//! in the log.

use axum::response::{IntoResponse as _, Redirect, Response};
use serde_json::{Value, json};

use super::form::{Fields, Form};
use super::{Visit, encoded, plan, session, shell};
use crate::admin::Admin;
use crate::admin::groups::{self, GroupPatch};
use crate::admin::name;
use crate::admin::problem::Problem;
use crate::admin::upstream::{self, UpstreamPatch};
use crate::admin::words;
use crate::admin::{nodes, release, removal, replays, sources};
use crate::driver::{Action, Removal};
use crate::event::Group;

/// Does it, and leads back to the page it came from.
async fn done(form: Form, back: &str, act: impl AsyncFnOnce(&Visit, &Fields) -> Result<String, Problem>) -> Response {
    let Form { visit, fields } = form;
    match act(&visit, &fields).await {
        Ok(notice) => {
            let unwritten = visit.admin.handle.unwritten().map(|said| format!(" But {said}."));
            let notice = notice + unwritten.as_deref().unwrap_or_default();
            if let Some(seat) = &visit.seat {
                visit.admin.dashboard.sessions.leave_notice(seat, notice);
            }
            Redirect::to(session::back_to(fields.get("back").unwrap_or(back))).into_response()
        }
        Err(problem) => shell::trouble(&visit, problem),
    }
}

/// `do` = pause, resume, set, restore or cancel, of the group `name`.
pub(super) async fn group(form: Form) -> Response {
    let back = format!("/group?name={}", encoded(form.fields.get("name").unwrap_or_default()));
    done(form, &back, async |visit, fields| {
        let (admin, who) = (&visit.admin, visit.who());
        let group = name::group("name", fields.need("name")?)?;
        let of_group = |what: &str| format!("POST /api/v1/group/{what}?name={}", encoded(group.as_str()));
        let patch = |paused| -> Result<GroupPatch, Problem> {
            let expires = fields.get("expires").map(str::to_owned);
            Ok(GroupPatch { paused: Some(paused), expires, ..GroupPatch::default() })
        };
        match fields.need("do")? {
            "pause" => {
                groups::change(admin, who, &group, patch(true)?).await?;
                noted(admin, &group, format!("{group} is paused: its events are kept and wait.")).await
            }
            "resume" => {
                groups::change(admin, who, &group, patch(false)?).await?;
                noted(admin, &group, format!("{group} runs again.")).await
            }
            "set" => {
                let patch = GroupPatch {
                    paused: None,
                    weight: fields.number("weight")?,
                    concurrency: fields.number("concurrency")?,
                    rate: fields.get("rate").map(str::to_owned),
                    backlog: fields.number("backlog")?,
                    expires: fields.get("expires").map(str::to_owned),
                };
                groups::change(admin, who, &group, patch).await?;
                noted(admin, &group, format!("{group} is treated differently from now on.")).await
            }
            "restore" => {
                groups::take_back(admin, who, &group, fields.get("only")).await?;
                Ok(match fields.get("only") {
                    None => format!("{group} is treated as the file says."),
                    Some(part) => format!("The {part} of {group} is as the file says."),
                })
            }
            "close-breaker" => {
                let closed = match elsewhere(visit, &of_group("close-breaker"), json!({})).await? {
                    Some(said) => said.get("closed") == Some(&Value::Bool(true)),
                    None => groups::close(admin, who, &group).await?,
                };
                Ok(match closed {
                    true => format!("The breaker of {group} is closed: its attempts go on."),
                    false => format!("Nothing held {group} back any more."),
                })
            }
            "cancel" => {
                let cancelled = match elsewhere(visit, &of_group("cancel"), json!({})).await? {
                    Some(said) => number(&said, "cancelled"),
                    None => groups::cancel_attempts(admin, who, &group).await? as u64,
                };
                Ok(format!("Attempts of {group} that were ended: {cancelled}. Their events are retried."))
            }
            "divert" => {
                let (id, total) = begun(visit, &group, Action::Divert).await?;
                Ok(format!("Job {id} moves {} to the dead letters.", words::events(total)))
            }
            "discard" if fields.get("confirm") != Some(group.as_str()) => Err(Problem::Parameter(format!(
                "confirm: expected the group's name, {:?}: what is thrown away is delivered again only by a replay that asks for discarded events",
                group.as_str()
            ))),
            "discard" => {
                let (id, total) = begun(visit, &group, Action::Discard).await?;
                Ok(format!("Job {id} throws {} away.", words::events(total)))
            }
            other => Err(unknown(other)),
        }
    })
    .await
}

/// `do` = begin, of a filter; pause, resume or cancel, of the replay `id`.
pub(super) async fn replay(form: Form) -> Response {
    done(form, "/replays", async |visit, fields| {
        let (admin, who) = (&visit.admin, visit.who());
        let number = || Ok::<u64, Problem>(fields.number("id")?.unwrap_or(0));
        let the_replay = |method: &str, number: u64| format!("{method} /api/v1/replays/{}", replays::named(number));
        match fields.need("do")? {
            "begin" => {
                let view = replays::begin(admin, who, plan::filter(fields)?).await?;
                Ok(format!("{} is begun: {}.", replays::name_of(&view), words::events(view.planned)))
            }
            "pause" => {
                let number = number()?;
                if told(visit, &the_replay("PATCH", number), json!({ "paused": true })).await? {
                    replays::pause(admin, who, number, true).await?;
                }
                Ok(format!("{} is paused; what it has under way ends as it ends.", replays::named(number)))
            }
            "resume" => {
                let number = number()?;
                if told(visit, &the_replay("PATCH", number), json!({ "paused": false })).await? {
                    replays::pause(admin, who, number, false).await?;
                }
                Ok(format!("{} goes on.", replays::named(number)))
            }
            "cancel" => {
                let number = number()?;
                let note = match elsewhere(visit, &the_replay("DELETE", number), json!({})).await? {
                    Some(said) => said.get("note").and_then(Value::as_str).map(str::to_owned),
                    None => replays::end(admin, who, number).await?.1,
                };
                let note = note.unwrap_or_else(|| "what was not attempted stands as before".to_owned());
                Ok(format!("{} is called off; {note}.", replays::named(number)))
            }
            other => Err(unknown(other)),
        }
    })
    .await
}

/// `do` = cancel, of the job `id`.
pub(super) async fn job(form: Form) -> Response {
    done(form, "/jobs", async |visit, fields| {
        let id = fields.number("id")?.unwrap_or(0);
        match fields.need("do")? {
            "cancel" => {
                if told(visit, &format!("DELETE /api/v1/jobs/{id}"), json!({})).await? {
                    removal::call_off(&visit.admin, visit.who(), id).await?;
                }
                Ok(format!("Job {id} is called off; what it has done stays done."))
            }
            other => Err(unknown(other)),
        }
    })
    .await
}

/// What the API's `call` (a method and a path) would do, asked of the node that it concerns; `None`: that is this one.
async fn elsewhere(visit: &Visit, call: &str, body: Value) -> Result<Option<Value>, Problem> {
    nodes::elsewhere(&visit.admin, visit.who(), call, body).await
}

/// The same where nothing of the answer is wanted: whether it is to be done here.
async fn told(visit: &Visit, call: &str, body: Value) -> Result<bool, Problem> {
    elsewhere(visit, call, body).await.map(|answer| answer.is_none())
}

/// Begins a job over a group's queue; its number, and how many events wait.
async fn begun(visit: &Visit, group: &Group, action: Action) -> Result<(u64, u64), Problem> {
    let (by, name) = ("dashboard", group.as_str());
    let call = format!("POST /api/v1/group/{}?name={}", action.as_str(), encoded(name));
    match elsewhere(visit, &call, json!({ "by": by, "confirm": name })).await? {
        Some(said) => Ok((number(&said, "id"), number(&said, "total"))),
        None => {
            let job = removal::begin(&visit.admin, visit.who(), group, action, by.to_owned()).await?;
            Ok((job.id, job.total))
        }
    }
}

fn number(said: &Value, name: &str) -> u64 {
    said.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// What was done; for a group that has no lane of its own, what of it acts and what does not yet.
async fn noted(admin: &Admin, group: &Group, done: String) -> Result<String, Problem> {
    let note = groups::shared_lane(admin, &admin.handle.group(group.clone()).await?).await?;
    Ok(note.map_or(done, |note| format!("The change of {group} is kept, but {note}.")))
}

/// `do` = replay, release, skip or discard, of the event `id`.
pub(super) async fn event(form: Form) -> Response {
    let back = format!("/events/{}", encoded(form.fields.get("id").unwrap_or_default()));
    done(form, &back, async |visit, fields| {
        let (admin, who, id) = (&visit.admin, visit.who(), fields.need("id")?);
        match fields.need("do")? {
            "replay" => {
                replays::again(admin, who, id).await?;
                Ok("The event is queued, to be delivered once more.".to_owned())
            }
            "release" => {
                release::released(admin, who, id).await?;
                Ok("The event is queued at the end of its lane.".to_owned())
            }
            "skip" => {
                if told(visit, &format!("POST /api/v1/events/{}/skip", encoded(id)), json!({})).await? {
                    removal::end(admin, who, id, Removal::Skip).await?;
                }
                Ok("The event is with the dead letters; what waited behind it goes on.".to_owned())
            }
            "discard" => {
                if told(visit, &format!("POST /api/v1/events/{}/discard", encoded(id)), json!({})).await? {
                    removal::end(admin, who, id, Removal::Discard).await?;
                }
                Ok("The event is thrown away; what waited behind it goes on.".to_owned())
            }
            other => Err(unknown(other)),
        }
    })
    .await
}

/// `do` = pause, resume, set or restore, of the upstream.
pub(super) async fn upstream(form: Form) -> Response {
    done(form, "/", async |visit, fields| {
        let (admin, who) = (&visit.admin, visit.who());
        let expires = fields.get("expires").map(str::to_owned);
        match fields.need("do")? {
            pressed @ ("pause" | "resume") => {
                let paused = Some(pressed == "pause");
                upstream::change(admin, who, UpstreamPatch { paused, expires, ..UpstreamPatch::default() }).await?;
                Ok(if paused == Some(true) {
                    "The upstream is paused: everything waits."
                } else {
                    "The upstream gets events again."
                }
                .to_owned())
            }
            "set" => {
                let rate = fields.get("rate").map(str::to_owned);
                let patch = UpstreamPatch { paused: None, concurrency: fields.number("concurrency")?, rate, expires };
                upstream::change(admin, who, patch).await?;
                Ok("The upstream is treated differently from now on.".to_owned())
            }
            "restore" => {
                upstream::take_back(admin, who, None).await?;
                Ok("The upstream is treated as the file says.".to_owned())
            }
            "close-breaker" => {
                let (closed, missing) = upstream::close(admin, who).await?;
                let done = if closed {
                    "The upstream's breaker is closed: attempts go on, few at first."
                } else {
                    "Nothing held the upstream back any more."
                };
                let missing = missing.iter().map(|one| format!(" {}.", one.in_words()));
                Ok(std::iter::once(done.to_owned()).chain(missing).collect())
            }
            other => Err(unknown(other)),
        }
    })
    .await
}

/// `do` = pause, drain or resume, of the source `name`.
pub(super) async fn source(form: Form) -> Response {
    done(form, "/sources", async |visit, fields| {
        let (admin, who, name) = (&visit.admin, visit.who(), fields.need("name")?);
        let expires = fields.get("expires");
        match fields.need("do")? {
            "pause" => {
                sources::change(admin, who, name, "paused", expires).await?;
                Ok(format!("{name} is paused: its events are accepted, kept, and wait."))
            }
            "drain" => {
                sources::change(admin, who, name, "draining", expires).await?;
                Ok(format!("{name} runs dry: its requests are refused with 503, its events go on."))
            }
            "resume" => {
                sources::change(admin, who, name, "running", None).await?;
                Ok(format!("{name} runs again."))
            }
            other => Err(unknown(other)),
        }
    })
    .await
}

fn unknown(what: &str) -> Problem {
    Problem::Parameter(format!("do: there is nothing called {what:?} to do here"))
}
