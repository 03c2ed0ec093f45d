//! What the gateway says, at one look.

use http::Method;
use serde_json::{Value, json};

use crate::cli::remote::{Remote, ask, encoded};
use crate::cli::standing::{self, Slots};
use crate::cli::table::{Column, escaped, many, percent, table, thousands};

/// Groups that are asked for: more than a screen has, so that a filter finds something.
const GROUPS_MAX: usize = 500;

/// Events that one group's page shows.
const EVENTS_MAX: usize = 12;

/// The order of groups; each descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// By the age of the oldest event.
    Age,
    /// By events that wait.
    Depth,
    /// By worker time in the last minute.
    Seconds,
    /// By arrivals in the last minute.
    Rate,
}

impl Sort {
    /// As the API calls it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Depth => "depth",
            Self::Seconds => "seconds",
            Self::Rate => "rate",
        }
    }
}

/// What the gateway says, as it says it.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) status: Value,
    pub(super) upstream: Value,
    pub(super) groups: Vec<Value>,
    /// One group, looked at more closely.
    pub(super) detail: Option<Detail>,
}

/// One group: how it stands, its last events, and those that are with the upstream now.
#[derive(Clone, Debug, Default)]
pub(super) struct Detail {
    pub(super) group: Value,
    pub(super) events: Vec<Value>,
    pub(super) in_flight: Vec<Value>,
}

/// One look.
///
/// # Errors
/// Why there is none, in words.
pub(super) fn fetch(remote: &Remote, sort: Sort) -> Result<Picture, String> {
    let get = |path: &str| ask(remote, Method::GET, path, None);
    let path = format!("/api/v1/groups?sort={}&limit={GROUPS_MAX}", sort.as_str());
    Ok(Picture {
        status: get("/api/v1/status")?,
        upstream: get("/api/v1/upstream")?,
        groups: list(&get(&path)?, "groups"),
        detail: None,
    })
}

/// One group, looked at more closely.
///
/// # Errors
/// Why it cannot be, in words.
pub(super) fn detail(remote: &Remote, group: &str) -> Result<Detail, String> {
    let name = encoded(group);
    let get = |path: String| ask(remote, Method::GET, &path, None);
    let events = |more: &str| get(format!("/api/v1/events?group={name}&limit={EVENTS_MAX}{more}"));
    Ok(Detail {
        group: get(format!("/api/v1/group?name={name}"))?,
        events: list(&events("")?, "events"),
        in_flight: list(&events("&status=in_flight")?, "events"),
    })
}

fn list(answer: &Value, name: &str) -> Vec<Value> {
    answer.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// A store that is elsewhere and has not answered for this long is said to be away.
const SILENT_S: f64 = 3.0;

/// The columns of the table.
pub(super) const COLUMNS: [Column; 10] = [
    ("GROUP", "group", false),
    ("STATE", "state", false),
    ("IN/s", "in", true),
    ("OUT/s", "out", true),
    ("IN FLIGHT", "in_flight", true),
    ("BACKLOG", "backlog", true),
    ("OLDEST", "oldest", true),
    ("ETA", "eta", true),
    ("SHARE", "share", true),
    ("WHY", "reason", false),
];

impl Picture {
    /// For a program: the API's own answers.
    pub(super) fn json(&self) -> Value {
        json!({ "status": self.status, "upstream": self.upstream, "groups": self.groups })
    }

    /// What stands above the table: the node, its slots, its alerts.
    pub(super) fn head(&self) -> Vec<String> {
        let Self { status, upstream, .. } = self;
        let ready = match status.get("not_ready_reason").and_then(Value::as_str) {
            Some(why) => format!("not ready: {}", escaped(why)),
            None => "ready".to_owned(),
        };
        let node = format!(
            "fairlane {}, up {}, {ready}; {} events wait in {} groups, the oldest for {}{}",
            escaped(status.get("version").and_then(Value::as_str).unwrap_or("?")),
            age(number(status, "/uptime_s")),
            thousands(number(status, "/backlog/events") as u64),
            thousands(number(upstream, "/active_groups") as u64),
            age(number(status, "/backlog/oldest_age_s")),
            self.spooled(),
        );
        let store = self.store();
        [node, self.slots()].into_iter().chain(store).chain([self.alerts()]).collect()
    }

    /// What waits besides, in no group's queue yet.
    fn spooled(&self) -> String {
        match number(&self.status, "/store/spool/events") as u64 {
            0 => String::new(),
            n => format!("; besides, {} in this node's spool, until Redis answers", many(n, "event")),
        }
    }

    /// Where the store is elsewhere: whether it answers, and what waits for it here.
    fn store(&self) -> Option<String> {
        let silent = self.status.pointer("/store/silent_s").and_then(Value::as_f64)?;
        let answers =
            if silent < SILENT_S { "answers".to_owned() } else { format!("has not answered for {}", age(silent)) };
        let spool = match self.status.pointer("/store/spool").filter(|spool| !spool.is_null()) {
            None => "no spool".to_owned(),
            Some(spool) => format!("{} events in the spool", thousands(number(spool, "/events") as u64)),
        };
        Some(format!("store: Redis {answers}; {spool}"))
    }

    fn slots(&self) -> String {
        const CELLS: usize = 24;
        let at = |path| number(&self.upstream, path) as usize;
        let (all, busy) = (at("/concurrency"), at("/slots/busy"));
        let full = (busy * CELLS).div_ceil(all.max(1)).min(CELLS);
        let breaker = self.upstream.pointer("/breaker/state").and_then(Value::as_str).unwrap_or("?");
        let paused = if self.upstream.get("paused") == Some(&Value::Bool(true)) { ", PAUSED" } else { "" };
        let median = self.upstream.get("attempt_median_ms").and_then(Value::as_f64);
        let median = median.map_or_else(String::new, |ms| format!(", an attempt takes {ms:.0} ms"));
        format!(
            "slots [{}{}] {busy} of {all} busy, {} slow, {} retries; upstream: breaker {breaker}{paused}{median}",
            "#".repeat(full),
            ".".repeat(CELLS - full),
            at("/slots/slow"),
            at("/slots/retry"),
        )
    }

    fn alerts(&self) -> String {
        let alerts = list(&self.status, "alerts");
        let text = |alert: &Value, name: &str| escaped(alert.get(name).and_then(Value::as_str).unwrap_or_default());
        match alerts.as_slice() {
            [] => "no alert fires".to_owned(),
            [first, rest @ ..] => {
                let more = if rest.is_empty() { String::new() } else { format!(" (+ {} more)", rest.len()) };
                format!("{}{more}: {}: {}", text(first, "severity"), text(first, "alert"), text(first, "what"))
            }
        }
    }

    /// The groups as rows of the table: a JSON object each, with what its columns show.
    pub(super) fn rows(&self, filter: &str) -> Vec<Value> {
        let has = |group: &&Value| group.get("group").and_then(Value::as_str).is_some_and(|name| name.contains(filter));
        let slots = Slots::of(&self.upstream);
        self.groups.iter().filter(has).map(|group| row(group, slots)).collect()
    }
}

/// A group as its columns show it.
fn row(group: &Value, slots: Option<Slots>) -> Value {
    // In the words of the list of groups.
    let mut group = group.clone();
    standing::put_in_words(&mut group, slots);
    let group = &group;
    let at = |name: &str| number(group, name);
    let eta = group.get("eta_s").and_then(Value::as_f64).map(age);
    json!({
        "group": group.get("group"),
        "state": group.get("state"),
        "paused": group.get("paused"),
        "in": format!("{:.1}", at("/arrival_rate")),
        "out": format!("{:.1}", at("/drain_rate")),
        "in_flight": group.get("in_flight"),
        "backlog": thousands((at("/queued") + at("/retrying")) as u64),
        "oldest": age(at("/oldest_age_s")),
        "eta": eta,
        "share": percent(at("/share")),
        "reason": group.get("reason"),
    })
}

/// A number of an answer; 0 where there is none.
fn number(answer: &Value, path: &str) -> f64 {
    answer.pointer(path).and_then(Value::as_f64).unwrap_or_default()
}

/// Seconds as a column has room for them.
pub(super) fn age(seconds: f64) -> String {
    match seconds {
        ..99.5 => format!("{seconds:.0} s"),
        ..5_940.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

/// The whole picture once, as text.
pub(super) fn text(picture: &Picture) -> String {
    let rows = json!({ "groups": picture.rows("") });
    format!("{}\n\n{}", picture.head().join("\n"), table(&rows, "groups", &COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_the_spool_is_said_beside_what_waits_in_groups() {
        let status = |spooled: u64| json!({ "version": "1", "backlog": { "events": 0 }, "store": { "silent_s": 9.0, "spool": { "events": spooled } } });
        let head = |spooled: u64| Picture { status: status(spooled), ..Picture::default() }.head().join("\n");
        let first = "fairlane 1, up 0 s, ready; 0 events wait in 0 groups, the oldest for 0 s";
        assert!(
            head(16).starts_with(&format!("{first}; besides, 16 events in this node's spool, until Redis answers\n")),
            "{}",
            head(16)
        );
        assert!(head(0).starts_with(&format!("{first}\n")), "{}", head(0));
    }

    #[test]
    fn groups_are_told_in_the_words_of_their_list() {
        let group = json!({ "group": "a", "state": "capped", "reason": "8 attempts in flight, its cap", "concurrency": 8, "share": 0.9, "queued": 900 });
        let upstream = json!({ "concurrency": 64, "slots": { "free": 56 } });
        let rows = Picture { groups: vec![group], upstream, ..Picture::default() }.rows("");
        assert_eq!(rows[0]["reason"], "its cap (8 of 64 slots; 56 are free)");
    }
}
