//! `fairlane replay` and `fairlane dead`: ended events delivered once more, by a plan that is shown before it is carried out.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, ask, encoded, only_for_the_list, shown};
use super::selection::Selection;
use super::table::{Column, escaped, lines, many, table};
use super::{FAILED, USAGE, complain, events};

/// The states that a replay may be about.
const STATES: [&str; 3] = ["dead", "delivered", "discarded"];

/// `fairlane replay …`.
#[derive(Debug, Args)]
pub(super) struct Replay {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    remote: Remote,
}

/// What to replay, and whether to ask before.
#[derive(Debug, Args)]
pub(super) struct Wish {
    #[command(flatten)]
    selection: Selection,
    /// Those that ended so, several with commas; dead when left out
    #[arg(long, value_delimiter = ',', value_parser = STATES)]
    status: Vec<String>,
    /// Show what it would be, and change nothing
    #[arg(long, conflicts_with = "yes")]
    plan: bool,
    /// Begin without being asked
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Replays, the newest first
    #[command(after_help = "Example: fairlane replay list")]
    List,
    /// One replay: how far it is, and what became of its events
    #[command(after_help = "Example: fairlane replay show replay-3")]
    Show(One),
    /// Let a replay wait; what it has under way goes on
    #[command(after_help = "Example: fairlane replay pause replay-3")]
    Pause(One),
    /// Let it go on
    #[command(after_help = "Example: fairlane replay resume replay-3")]
    Resume(One),
    /// End a replay; what it has not attempted stays as it was
    #[command(after_help = "Example: fairlane replay cancel replay-3")]
    Cancel(One),
}

#[derive(Debug, Args)]
struct One {
    /// Its name, as the list shows it
    id: String,
}

/// `fairlane dead …`.
#[derive(Debug, Args)]
pub(super) struct Dead {
    #[command(subcommand)]
    action: Option<DeadAction>,
    #[command(flatten)]
    list: DeadList,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
struct DeadList {
    #[command(flatten)]
    selection: Selection,
    /// Where the page before ended, as it says itself
    #[arg(long)]
    cursor: Option<u64>,
    /// At most so many; 50 when left out
    #[arg(long)]
    limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum DeadAction {
    /// Dead letters, newest first
    #[command(after_help = "Example: fairlane dead list --group quiet-store.myshopify.com")]
    List(DeadList),
    /// One of them: why it is dead, and every attempt
    #[command(after_help = "Example: fairlane dead show evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab --body")]
    Show(events::Show),
    /// Deliver one of them once more, or many
    #[command(
        after_help = "Examples: fairlane dead replay evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab\n          fairlane dead replay --group quiet-store.myshopify.com --since 2026-01-31T08:00:00Z"
    )]
    Replay(DeadReplay),
}

#[derive(Debug, Args)]
struct DeadReplay {
    /// Which, `evt_…`; those that the filters find when left out
    #[arg(conflicts_with_all = ["group", "source", "since", "until", "provider_event_id", "plan", "yes"])]
    ids: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Show what it would be, and change nothing
    #[arg(long, conflicts_with = "yes")]
    plan: bool,
    /// Begin without being asked
    #[arg(long)]
    yes: bool,
}

const REPLAY_COLUMNS: [Column; 9] = [
    ("REPLAY", "id", false),
    ("STATE", "state", false),
    ("BEGUN", "created_at", false),
    ("PLANNED", "planned", true),
    ("UNDER WAY", "under_way", true),
    ("DELIVERED", "delivered", true),
    ("DEAD", "dead", true),
    ("RETRYING", "retrying", true),
    ("LEFT s", "eta_s", true),
];

const REPLAYS: &str = "/api/v1/replays";

/// Runs `fairlane replay`.
pub(super) fn run(replay: &Replay) -> u8 {
    let Replay { action, wish, remote } = replay;
    let Some(action) = action else { return wish.run(remote) };
    if let Err(why) = only_for_the_list(&wish.given()) {
        return complain(&why.replace("is for the list", "is for a new replay"), USAGE);
    }
    let path = |one: &One| format!("{REPLAYS}/{}", encoded(&one.id));
    match action {
        Action::List => shown(remote, Method::GET, REPLAYS, None, |answer| table(answer, "replays", &REPLAY_COLUMNS)),
        Action::Show(one) => shown(remote, Method::GET, &path(one), None, lines),
        Action::Pause(one) => shown(remote, Method::PATCH, &path(one), Some(json!({ "paused": true })), lines),
        Action::Resume(one) => shown(remote, Method::PATCH, &path(one), Some(json!({ "paused": false })), lines),
        Action::Cancel(one) => shown(remote, Method::DELETE, &path(one), Some(json!({})), lines),
    }
}

/// Runs `fairlane dead`.
pub(super) fn dead(dead: &Dead) -> u8 {
    let Dead { action, list, remote } = dead;
    if action.is_some()
        && let Err(why) = only_for_the_list(&list.given())
    {
        return complain(&why, USAGE);
    }
    match action {
        None => list.run(remote),
        Some(DeadAction::List(list)) => list.run(remote),
        Some(DeadAction::Show(one)) => events::shown(one, remote),
        Some(DeadAction::Replay(replay)) if replay.ids.is_empty() => {
            begin(&replay.selection, &[], (replay.plan, replay.yes), remote)
        }
        Some(DeadAction::Replay(replay)) => {
            let one = |id: &String| {
                let path = format!("/api/v1/events/{}/replay", encoded(id));
                shown(remote, Method::POST, &path, Some(json!({})), lines)
            };
            replay.ids.iter().map(one).max().unwrap_or(0)
        }
    }
}

impl DeadList {
    fn run(&self, remote: &Remote) -> u8 {
        events::listed(remote, (&self.selection, &["dead".to_owned()]), self.cursor, self.limit, &events::DEAD_COLUMNS)
    }

    fn given(&self) -> Vec<(&'static str, bool)> {
        let more = [("--cursor", self.cursor.is_some()), ("--limit", self.limit.is_some())];
        self.selection.given().into_iter().chain(more).collect()
    }
}

impl Wish {
    fn run(&self, remote: &Remote) -> u8 {
        begin(&self.selection, &self.status, (self.plan, self.yes), remote)
    }

    fn given(&self) -> Vec<(&'static str, bool)> {
        let more = [("--status", !self.status.is_empty()), ("--plan", self.plan), ("--yes", self.yes)];
        self.selection.given().into_iter().chain(more).collect()
    }
}

/// Shows the plan and, where that is wanted, begins.
fn begin(selection: &Selection, status: &[String], (plan, yes): (bool, bool), remote: &Remote) -> u8 {
    let mut wish = selection.object();
    if !status.is_empty() {
        wish.insert("status".to_owned(), json!(status));
    }
    let with = |plan: bool| {
        let mut wish = wish.clone();
        wish.insert("plan".to_owned(), json!(plan));
        Some(Value::Object(wish))
    };
    if plan {
        return shown(remote, Method::POST, REPLAYS, with(true), in_words);
    }
    if !yes {
        match confirmed(remote, with(true)) {
            Ok(true) => {}
            Ok(false) => return complain("nothing is replayed", 0),
            Err((why, code)) => return complain(&why, code),
        }
    }
    shown(remote, Method::POST, REPLAYS, with(false), |answer| {
        if answer.get("planned").and_then(Value::as_u64) == Some(0) {
            return in_words(answer);
        }
        let id = answer.get("id").and_then(Value::as_str).unwrap_or_default();
        format!(
            "{}\nfairlane replay show {id} says how far it is; fairlane replay cancel {id} ends it\n",
            lines(answer)
        )
    })
}

/// Shows the plan and asks; a script has nobody to ask and must say `--yes`.
fn confirmed(remote: &Remote, wish: Option<Value>) -> Result<bool, (String, u8)> {
    let answer = ask(remote, Method::POST, REPLAYS, wish).map_err(|why| (why, FAILED))?;
    let mut out = std::io::stderr().lock();
    let plan = in_words(&answer);
    if !std::io::stdin().is_terminal() {
        return Err((format!("{plan}to begin, say --yes (or --plan to see this and no more)"), USAGE));
    }
    if answer.pointer("/plan/count").and_then(Value::as_u64) == Some(0) {
        return Err((plan.trim_end().to_owned(), 0));
    }
    let asked = write!(out, "{plan}Replay them? [y/N] ").and_then(|()| out.flush());
    asked.map_err(|error| (error.to_string(), FAILED))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| (error.to_string(), FAILED))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// A plan as a person reads it.
fn in_words(answer: &Value) -> String {
    let plan = answer.get("plan").unwrap_or(answer);
    let number = |name: &str| plan.get(name).and_then(Value::as_u64).unwrap_or(0);
    let text = |pointer: &str| plan.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (count, groups) = (number("count"), number("groups"));
    if count == 0 {
        let why = answer.get("note").and_then(Value::as_str);
        let why = why.map_or_else(String::new, |note| format!(": {}", escaped(note)));
        return format!("no event fits: nothing to replay{why}\n");
    }
    let at_least = if plan.get("complete") == Some(&Value::Bool(false)) { "at least " } else { "" };
    let mut said = format!(
        "{at_least}{} of {}, received {} to {}\n",
        many(count, "event"),
        many(groups, "group"),
        text("/span/from"),
        text("/span/to")
    );
    if groups > 1 {
        let most = plan.pointer("/largest/count").and_then(Value::as_u64).unwrap_or(0);
        said.push_str(&format!("most of them, {most}, of {}\n", text("/largest/group")));
    }
    let ordered = number("ordered");
    if ordered > 0 {
        said.push_str(&format!(
            "{} an order key: fresh events of the same keys go before what is not yet put back into its lane; to keep the order over the whole \
             replay, let their source run dry before it and until it is done (fairlane sources drain)\n",
            if ordered == 1 { "1 of them has".to_owned() } else { format!("{ordered} of them have") }
        ));
    }
    match plan.get("expected_s").and_then(Value::as_f64) {
        Some(seconds) => said.push_str(&format!("about {} with the slots that replays may hold\n", spoken(seconds))),
        None => said.push_str("how long it takes is not known before the first attempt of this process\n"),
    }
    said
}

fn spoken(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_said_in_words() {
        let plan = json!({ "plan": { "count": 1200, "complete": true, "groups": 3, "expected_s": 600.0,
            "largest": { "group": "a", "count": 900 },
            "span": { "from": "2026-01-31T08:00:00.000Z", "to": "2026-01-31T09:00:00.000Z" } } });
        let text = in_words(&plan);
        assert!(text.starts_with("1200 events of 3 groups, received 2026-01-31T08:00:00.000Z to"), "{text}");
        assert!(text.contains("most of them, 900, of a") && text.contains("about 10 min"), "{text}");
        assert!(!text.contains("order key"), "{text}");
        let ordered = in_words(&json!({ "plan": { "count": 7, "complete": true, "groups": 1, "ordered": 3 } }));
        assert!(
            ordered.contains("\n3 of them have an order key: fresh events of the same keys go before"),
            "{ordered}"
        );
        let one = in_words(&json!({ "plan": { "count": 1, "complete": true, "groups": 1 } }));
        assert!(one.starts_with("1 event of 1 group, received"), "{one}");
        assert_eq!(in_words(&json!({ "plan": { "count": 0 } })), "no event fits: nothing to replay\n");
        let why = in_words(&json!({ "note": "no source is called \"shop\"", "plan": { "count": 0 } }));
        assert_eq!(why, "no event fits: nothing to replay: no source is called \"shop\"\n");
    }
}
