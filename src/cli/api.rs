//! Commands about groups and the upstream of a running gateway.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::changed::{changed as in_words, in_force};
use super::remote::{Remote, ask, encoded, noted, only_for_the_list, shown};
use super::standing::{self, Slots};
use super::table::{Column, cell, escaped, lines, table};
use super::{USAGE, complain, removal};

/// `fairlane groups …`.
#[derive(Debug, Args)]
pub(super) struct Groups {
    #[command(subcommand)]
    action: Option<GroupAction>,
    #[command(flatten)]
    list: GroupList,
    #[command(flatten)]
    remote: Remote,
}

/// Which ones to list.
#[derive(Debug, Args)]
struct GroupList {
    /// By `age` of the oldest event (when left out), `depth`, worker `seconds` or arrival `rate`
    #[arg(long, value_parser = ["age", "depth", "seconds", "rate"])]
    sort: Option<String>,
    /// At most so many; 50 when left out
    #[arg(long)]
    limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum GroupAction {
    /// The same as `fairlane groups`
    #[command(after_help = "Example: fairlane groups list --sort depth")]
    List(GroupList),
    /// No further attempt of this group until it is resumed
    #[command(after_help = "Example: fairlane groups pause noisy.myshopify.com --expires 2h")]
    Pause(Timed),
    /// Attempts again: takes a pause back, and leaves other changes; against a file that pauses it, holds for `--expires`
    #[command(after_help = "Example: fairlane groups resume noisy.myshopify.com")]
    Resume(Timed),
    /// Change weight, caps or rate, on queued events too
    #[command(
        after_help = "Example: fairlane groups set plus-a.myshopify.com --weight 4 --concurrency 32 --rate 100/s"
    )]
    Set(Set),
    /// All changes that are in force, of every group, and when each part of them ends
    #[command(after_help = "Example: fairlane groups overrides")]
    Overrides,
    /// Take all changes of this group back, or some
    #[command(
        visible_alias = "reset",
        after_help = "Examples: fairlane groups restore noisy.myshopify.com\n          fairlane groups restore noisy.myshopify.com --only rate"
    )]
    Restore(Restored),
    /// Close its breaker, and end a Retry-After that holds it: its attempts go on at once
    #[command(after_help = "Example: fairlane groups close-breaker mended.myshopify.com")]
    CloseBreaker(One),
    /// End its attempts in flight; their events are retried
    #[command(after_help = "Example: fairlane groups cancel hung.myshopify.com")]
    Cancel(One),
    /// Put it into a shard of your choice, where nodes share a store in Redis; what waits of it moves there in its order
    #[command(after_help = "Example: fairlane groups pin noisy.myshopify.com --shard 7")]
    Pin(Pinned),
    /// Take its pin away: it goes back to the shard that it hashes to
    #[command(after_help = "Example: fairlane groups unpin noisy.myshopify.com")]
    Unpin(One),
    /// Print a link to a page that shows the group's tenant its backlog, and nothing of others
    #[command(after_help = "Example: fairlane groups link acme.myshopify.com --expires 30d")]
    Link(Linked),
    /// Put everything of it that waits to the dead letters, from where it can be replayed
    #[command(
        after_help = "Examples: fairlane groups divert poisoned.myshopify.com\n          fairlane groups divert poisoned.myshopify.com --yes"
    )]
    Divert(removal::Divert),
    /// Throw everything of it that waits away, for good
    #[command(after_help = "Example: fairlane groups discard test-store.myshopify.com")]
    Discard(removal::Discard),
    /// Queues that are being diverted or discarded, or were; call one off
    #[command(after_help = "Examples: fairlane groups jobs\n          fairlane groups jobs --cancel 7")]
    Jobs(removal::Jobs),
    /// Why it does not run, what its events wait for, and how it is treated
    #[command(after_help = "Example: fairlane groups why quiet.myshopify.com")]
    Why(One),
}

#[derive(Debug, Args)]
struct One {
    /// The group, as lists write it
    group: String,
}

#[derive(Debug, Args)]
struct Pinned {
    #[command(flatten)]
    one: One,
    /// The shard, from 0; `fairlane nodes` shows how full they are
    #[arg(long)]
    shard: u16,
}

#[derive(Debug, Args)]
struct Restored {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    only: Only,
}

#[derive(Debug, Args)]
struct Only {
    /// Only these parts, several with commas: paused, concurrency, rate; of a group weight and backlog, too
    #[arg(long, value_name = "PARTS")]
    only: Option<String>,
}

impl Only {
    /// As a parameter; `first`: with what it is put to the path.
    fn parameter(&self, first: char) -> String {
        self.only.as_ref().map_or_else(String::new, |only| format!("{first}only={}", encoded(only)))
    }
}

#[derive(Debug, Args)]
struct Timed {
    #[command(flatten)]
    one: One,
    /// For how long what is named here holds: a time, a span such as 2h, or never; a day when left out. Earlier changes of other things keep
    /// their ends
    #[arg(long, visible_alias = "for")]
    expires: Option<String>,
}

#[derive(Debug, Args)]
struct Linked {
    #[command(flatten)]
    one: One,
    /// Until when it is good: a time, or a span such as 30d; a year at most
    #[arg(long)]
    expires: String,
}

#[derive(Debug, Args)]
#[group(id = "changes", required = true, multiple = true, args = ["weight", "concurrency", "rate", "backlog"])]
struct Set {
    #[command(flatten)]
    timed: Timed,
    /// Its share relative to others
    #[arg(long)]
    weight: Option<f64>,
    /// Its attempts in flight
    #[arg(long)]
    concurrency: Option<u32>,
    /// Its attempts a time, e.g. 500/s
    #[arg(long)]
    rate: Option<String>,
    /// Its events that may wait; beyond it senders get 429
    #[arg(long)]
    backlog: Option<u32>,
}

/// `fairlane upstream …`.
#[derive(Debug, Args)]
pub(super) struct Upstream {
    #[command(subcommand)]
    action: Option<UpstreamAction>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum UpstreamAction {
    /// No attempt of anybody
    #[command(after_help = "Example: fairlane upstream pause --expires 2h")]
    Pause(Whole),
    /// Attempts again
    #[command(after_help = "Example: fairlane upstream resume")]
    Resume(Whole),
    /// Change slots or rate, on queued events too
    #[command(after_help = "Example: fairlane upstream set --concurrency 16 --rate 500/s --expires 2h")]
    Set(SetUpstream),
    /// Take all changes back, or some
    #[command(
        visible_alias = "reset",
        after_help = "Examples: fairlane upstream restore\n          fairlane upstream restore --only rate"
    )]
    Restore(Only),
    /// Close its breaker, and end a Retry-After that holds everybody: attempts go on, few at first
    #[command(after_help = "Example: fairlane upstream close-breaker")]
    CloseBreaker,
}

#[derive(Debug, Args)]
struct Whole {
    /// For how long what is named here holds: a time, a span such as 2h, or never; a day when left out. Earlier changes of other things keep
    /// their ends
    #[arg(long, visible_alias = "for")]
    expires: Option<String>,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = true, args = ["concurrency", "rate"])]
struct SetUpstream {
    #[command(flatten)]
    whole: Whole,
    /// Slots: attempts in flight
    #[arg(long)]
    concurrency: Option<u32>,
    /// Attempts a time, e.g. 500/s
    #[arg(long)]
    rate: Option<String>,
}

pub(super) fn groups(groups: &Groups) -> u8 {
    let Groups { action, list, remote } = groups;
    let Some(action) = action else { return list.run(remote) };
    if let Err(why) = only_for_the_list(&[("--sort", list.sort.is_some()), ("--limit", list.limit.is_some())]) {
        return complain(&why, USAGE);
    }
    let path = |one: &One| format!("/api/v1/group?name={}", encoded(&one.group));
    let changed = |timed: &Timed, change| {
        let change = until(change, timed.expires.as_deref());
        shown(remote, Method::PATCH, &path(&timed.one), Some(change), in_words)
    };
    match action {
        GroupAction::List(list) => list.run(remote),
        GroupAction::Pause(timed) => changed(timed, json!({ "paused": true })),
        GroupAction::Resume(timed) => changed(timed, json!({ "paused": false })),
        GroupAction::Set(set) => {
            let mut change = serde_json::Map::new();
            change.extend(set.weight.map(|weight| ("weight".to_owned(), json!(weight))));
            change.extend(set.concurrency.map(|slots| ("concurrency".to_owned(), json!(slots))));
            change.extend(set.rate.as_ref().map(|rate| ("rate".to_owned(), json!(rate))));
            change.extend(set.backlog.map(|events| ("backlog".to_owned(), json!(events))));
            changed(&set.timed, Value::Object(change))
        }
        GroupAction::Overrides => shown(remote, Method::GET, "/api/v1/overrides", None, overrides),
        GroupAction::Restore(Restored { one, only }) => {
            let path = path(one) + &only.parameter('&');
            shown(remote, Method::DELETE, &path, Some(json!({})), in_words)
        }
        GroupAction::CloseBreaker(one) => {
            let path = format!("/api/v1/group/close-breaker?name={}", encoded(&one.group));
            shown(remote, Method::POST, &path, Some(json!({})), |answer| closed(&one.group, answer))
        }
        GroupAction::Cancel(one) => {
            let path = format!("/api/v1/group/cancel?name={}", encoded(&one.group));
            shown(remote, Method::POST, &path, Some(json!({})), lines)
        }
        GroupAction::Link(linked) => {
            let path = format!("/api/v1/group/link?name={}", encoded(&linked.one.group));
            let asked = json!({ "expires": linked.expires });
            shown(remote, Method::POST, &path, Some(asked), |link| format!("{}\n", cell(link.get("url"))))
        }
        GroupAction::Pin(Pinned { one, shard }) => {
            let asked = json!({ "shard": shard });
            shown(remote, Method::POST, &pin(one), Some(asked), |pin| {
                format!("{}: {}\n", escaped(&one.group), pinned(pin))
            })
        }
        GroupAction::Unpin(one) => shown(remote, Method::DELETE, &pin(one), Some(json!({})), |pin| {
            format!("{}: {}\n", escaped(&one.group), pinned(pin))
        }),
        GroupAction::Divert(group) => removal::divert(group, remote),
        GroupAction::Discard(group) => removal::discard(group, remote),
        GroupAction::Jobs(jobs) => removal::jobs(jobs, remote),
        GroupAction::Why(one) => shown(remote, Method::GET, &path(one), None, |group| {
            standing::why(group, standing::is_capped(group).then(|| slots(remote)).flatten())
        }),
    }
}

impl GroupList {
    fn run(&self, remote: &Remote) -> u8 {
        let sort = self.sort.as_deref().unwrap_or("age");
        let path = format!("/api/v1/groups?sort={}&limit={}", encoded(sort), self.limit.unwrap_or(50));
        shown(remote, Method::GET, &path, None, |answer| listed(remote, answer))
    }
}

fn pin(one: &One) -> String {
    format!("/api/v1/group/pin?name={}", encoded(&one.group))
}

/// Where a group is pinned, and where it is.
pub(super) fn pinned(pin: &Value) -> String {
    let at = cell(pin.get("shard"));
    let moves = pin.get("moving").and_then(Value::as_bool) == Some(true);
    match (pin.get("pinned").and_then(Value::as_u64), moves) {
        (Some(shard), true) => format!("pinned to shard {shard}, on its way there from shard {at}"),
        (Some(shard), false) => format!("pinned to shard {shard}"),
        (None, true) => format!("not pinned, on its way back from shard {at}"),
        (None, false) => format!("not pinned, in shard {at}"),
    }
}

/// Every change in force, each part with its end.
fn overrides(answer: &Value) -> String {
    let mut answer = answer.clone();
    for change in answer.get_mut("overrides").and_then(Value::as_array_mut).into_iter().flatten() {
        let what = change.as_object().map(in_force);
        if let (Some(change), Some(what)) = (change.as_object_mut(), what) {
            change.insert("what".to_owned(), json!(what));
        }
    }
    let pins = answer.get("pins").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(changes) = answer.get_mut("overrides").and_then(Value::as_array_mut) {
        changes.extend(pins.iter().map(|pin| json!({ "group": pin.get("group"), "what": pinned(pin) })));
    }
    table(&answer, "overrides", &OVERRIDE_COLUMNS)
}

fn listed(remote: &Remote, answer: &Value) -> String {
    noted(answer);
    let mut answer = answer.clone();
    if let Some(groups) = answer.get_mut("groups").and_then(Value::as_array_mut) {
        let slots = groups.iter().any(standing::is_capped).then(|| slots(remote)).flatten();
        groups.iter_mut().for_each(|group| standing::put_in_words(group, slots));
    }
    table(&answer, "groups", &GROUP_COLUMNS)
}

/// What became of a breaker that somebody closes.
fn closed(whose: &str, answer: &Value) -> String {
    match answer.get("closed").and_then(Value::as_bool) {
        Some(true) => format!("the breaker of {} is closed; what fails again opens it again\n", escaped(whose)),
        _ => format!("nothing held {} back: no breaker of it is open, and no Retry-After runs\n", escaped(whose)),
    }
}

/// The upstream's slots; without them the list says less, and is a list all the same.
fn slots(remote: &Remote) -> Option<Slots> {
    ask(remote, Method::GET, UPSTREAM, None).ok().and_then(|upstream| Slots::of(&upstream))
}

/// A change with its end, where one is given.
fn until(mut change: Value, expires: Option<&str>) -> Value {
    if let (Some(expires), Some(change)) = (expires, change.as_object_mut()) {
        change.insert("expires".to_owned(), json!(expires));
    }
    change
}

const UPSTREAM: &str = "/api/v1/upstream";

pub(super) fn upstream(upstream: &Upstream) -> u8 {
    let Upstream { action, remote } = upstream;
    let patched = |whole: &Whole, change| {
        shown(remote, Method::PATCH, UPSTREAM, Some(until(change, whole.expires.as_deref())), in_words)
    };
    match action {
        None => shown(remote, Method::GET, UPSTREAM, None, whole),
        Some(UpstreamAction::Pause(whole)) => patched(whole, json!({ "paused": true })),
        Some(UpstreamAction::Resume(whole)) => patched(whole, json!({ "paused": false })),
        Some(UpstreamAction::Set(SetUpstream { whole, concurrency, rate })) => {
            let mut change = serde_json::Map::new();
            change.extend(concurrency.map(|slots| ("concurrency".to_owned(), json!(slots))));
            change.extend(rate.as_ref().map(|rate| ("rate".to_owned(), json!(rate))));
            patched(whole, Value::Object(change))
        }
        Some(UpstreamAction::Restore(only)) => {
            let path = format!("{UPSTREAM}{}", only.parameter('?'));
            shown(remote, Method::DELETE, &path, Some(json!({})), in_words)
        }
        Some(UpstreamAction::CloseBreaker) => {
            let path = format!("{UPSTREAM}/close-breaker");
            shown(remote, Method::POST, &path, Some(json!({})), |answer| closed("the upstream", answer))
        }
    }
}

/// The upstream as a whole, and below it its addresses, where there are several.
fn whole(upstream: &Value) -> String {
    let mut upstream = upstream.clone();
    let addresses = upstream.as_object_mut().and_then(|fields| fields.remove("addresses")).unwrap_or_default();
    match addresses.as_array() {
        Some(several) if several.len() > 1 => {
            let rows = table(&json!({ "addresses": addresses }), "addresses", &ADDRESS_COLUMNS);
            format!("{}\n{rows}", lines(&upstream))
        }
        _ => lines(&upstream),
    }
}

const GROUP_COLUMNS: [Column; 11] = [
    ("GROUP", "group", false),
    ("STATE", "state", false),
    ("QUEUED", "queued", true),
    ("RETRYING", "retrying", true),
    ("IN FLIGHT", "in_flight", true),
    ("OLDEST s", "oldest_age_s", true),
    ("P99 WAIT", "wait_p99", true),
    ("SHARE 1 min", "share", true),
    ("IN/s 1 min", "arrival_rate", true),
    ("OUT/s 1 min", "drain_rate", true),
    ("WHY", "reason", false),
];

const ADDRESS_COLUMNS: [Column; 8] = [
    ("ADDRESS", "address", false),
    ("STATE", "state", false),
    ("WEIGHT", "weight", true),
    ("SHARE NOW", "share", true),
    ("IN FLIGHT", "in_flight", true),
    ("FAILURES", "failures", true),
    ("CHECK", "check", false),
    ("LAST FAILURE", "last_failure", false),
];

const OVERRIDE_COLUMNS: [Column; 2] = [("GROUP", "group", false), ("WHAT A PERSON SAID", "what", false)];
