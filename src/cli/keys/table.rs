//! The report as text for people and as JSON for programs.

use serde_json::{Value, json};

use super::advice::{advice, best};
use super::count::{GROUPS_MAX, SHARDS};
use super::summary::{Big, Shard, Summary};
use super::{Receiver, Report};
use crate::cli::table::{Column, escaped, percent, span, table, thousands};
use crate::event::Wall;

const COLUMNS: [Column; 9] = [
    ("RULE", "rule", false),
    ("EVENTS", "events", true),
    ("GROUPS", "groups", true),
    ("SINGLE", "single", true),
    ("NO KEY", "missing", true),
    ("LARGEST", "largest", true),
    ("SKEW", "skew", true),
    ("ONE QUEUE", "one_queue", true),
    ("LANES", "in_lanes", true),
];

pub(super) fn as_text(report: &Report) -> String {
    let mut text = format!("{} requests in {}", thousands(report.told.requests), escaped(&report.origin));
    if let Some((first, last)) = report.told.between {
        text.push_str(&format!(", {} to {}", moment(first), moment(last)));
    }
    text.push('\n');
    if report.elsewhere > 0 {
        text.push_str(&format!("{} of them on a path that no rule is for\n", thousands(report.elsewhere)));
    }
    text.push('\n');
    let rows: Vec<Value> = report.rules.iter().map(row).collect();
    text.push_str(&table(&json!({ "rules": rows }), "rules", &COLUMNS));
    for rule in &report.rules {
        text.push_str(&format!("\n{}\n", escaped(&rule.name)));
        details(rule).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text.push('\n');
    if let Some(best) = best(&report.rules) {
        text.push_str(&format!("Of these, take {}.\n\n", escaped(&best.name)));
    }
    text.push_str(&explained(report.receiver));
    report.files.iter().for_each(|file| text.push_str(&format!("{}\n", escaped(file))));
    text
}

fn moment(at: Wall) -> String {
    jiff::Timestamp::from_second(at.unix_s()).map_or_else(|_| at.unix_s().to_string(), |time| time.to_string())
}

fn row(rule: &Summary) -> Value {
    let over = if rule.is_over { "> " } else { "" };
    json!({
        "rule": rule.name,
        "events": thousands(rule.events),
        "groups": format!("{over}{}", thousands(rule.groups)),
        "single": thousands(rule.single),
        "missing": thousands(rule.missing()),
        "largest": percent(rule.largest_share()),
        "skew": rule.skew().map_or_else(|| "-".to_owned(), |skew| format!("{skew:.2}")),
        "one_queue": span(rule.one_queue),
        "in_lanes": rule.in_lanes.map_or_else(|| "-".to_owned(), span),
    })
}

fn details(rule: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(lanes) = rule.lanes {
        lines.push(format!("lanes within the groups: {}", thousands(lanes)));
    }
    if !rule.missing.is_empty() {
        let reasons: Vec<String> =
            rule.missing.iter().map(|(reason, events)| format!("{reason} {}", thousands(*events))).collect();
        lines.push(format!("no key: {}", reasons.join(", ")));
    }
    if !rule.largest.is_empty() {
        lines.push(format!("largest: {}", named(&rule.largest)));
    }
    if let Some((number, shard)) = rule.fullest().filter(|_| rule.events > 0) {
        let median = thousands(rule.median() as u64);
        let of = if shard.largest.is_empty() { String::new() } else { format!(": {}", named(&shard.largest)) };
        lines.push(format!(
            "shards: the fullest of {SHARDS} is {number} with {}, the median {median}{of}",
            thousands(shard.events)
        ));
    }
    let (standing, words) = advice(rule);
    lines.extend(words.into_iter().map(|words| format!("{}: {}", standing.as_str(), escaped(&words))));
    lines
}

fn named(groups: &[Big]) -> String {
    let each: Vec<String> =
        groups.iter().map(|big| format!("{} {}", shortened(big.group.as_str()), thousands(big.events))).collect();
    each.join(", ")
}

/// A written form is ASCII and up to 768 bytes long.
fn shortened(name: &str) -> String {
    const SHOWN: usize = 48;
    name.get(..SHOWN).filter(|_| name.len() > SHOWN + 1).map_or_else(|| name.to_owned(), |part| format!("{part}…"))
}

fn explained(receiver: Receiver) -> String {
    format!(
        "SKEW: the fullest of {SHARDS} shards against the median; it matters with several nodes.\n\
         ONE QUEUE and LANES: how long an event of a small group (up to {} events) would wait on average if all came at once and the\n\
         receiver took {} at a time, {} each. In one queue half of all events go before it; in lanes the k-th event of a group waits for\n\
         the first k of every other group. Groups are told apart up to {} a rule.\n",
        thousands(receiver.small),
        receiver.concurrency,
        span(receiver.call),
        thousands(GROUPS_MAX as u64),
    )
}

pub(super) fn as_json(report: &Report) -> Value {
    let between = report.told.between.map(|(first, last)| json!([moment(first), moment(last)]));
    json!({
        "origin": report.origin,
        "requests": report.told.requests,
        "unreadable": report.told.unreadable,
        "elsewhere": report.elsewhere,
        "between": between,
        "concurrency": report.receiver.concurrency,
        "call_ms": report.receiver.call.as_secs_f64() * 1e3,
        "small_group_events": report.receiver.small,
        "groups_max": GROUPS_MAX,
        "best": best(&report.rules).map(|rule| &rule.name),
        "rules": report.rules.iter().map(rule_json).collect::<Vec<_>>(),
        "files": report.files,
    })
}

fn rule_json(rule: &Summary) -> Value {
    let (standing, words) = advice(rule);
    let missing: serde_json::Map<String, Value> =
        rule.missing.iter().map(|(reason, events)| ((*reason).to_owned(), json!(events))).collect();
    let ms = |wait: std::time::Duration| wait.as_micros() as f64 / 1e3;
    json!({
        "rule": rule.name,
        "events": rule.events,
        "groups": rule.groups,
        "more_groups": rule.is_over,
        "single_event_groups": rule.single,
        "small_groups": rule.small,
        "lanes": rule.lanes,
        "missing": missing,
        "missing_share": rule.share(rule.missing()),
        "largest_share": rule.largest_share(),
        "largest": rule.largest.iter().map(|big| big_json(rule, big)).collect::<Vec<_>>(),
        "skew": rule.skew(),
        "shards": rule.shards.iter().enumerate().map(|(at, shard)| shard_json(rule, at, shard)).collect::<Vec<_>>(),
        "wait_ms": { "one_queue": ms(rule.one_queue), "lanes": rule.in_lanes.map(ms) },
        "standing": standing.as_str(),
        "advice": words,
    })
}

fn big_json(rule: &Summary, big: &Big) -> Value {
    json!({ "group": big.group.as_str(), "events": big.events, "share": rule.share(big.events) })
}

fn shard_json(rule: &Summary, number: usize, shard: &Shard) -> Value {
    let largest: Vec<Value> = shard.largest.iter().map(|big| big_json(rule, big)).collect();
    json!({ "shard": number, "events": shard.events, "largest": largest })
}
