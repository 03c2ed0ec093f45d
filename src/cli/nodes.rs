//! `fairlane nodes`: the nodes that share a store in Redis, and what each does.

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, noted, shown};
use super::table::{Column, cell, table};

/// `fairlane nodes`.
#[derive(Debug, Args)]
pub(super) struct Nodes {
    #[command(flatten)]
    remote: Remote,
}

const COLUMNS: [Column; 9] = [
    ("NODE", "node", false),
    ("ADMIN", "admin", false),
    ("VERSION", "version", false),
    ("SHARDS", "count", true),
    ("MOVING", "moves", true),
    ("SLOTS", "slots", true),
    ("BUSY", "busy", true),
    ("SILENT s", "silent_s", true),
    ("", "word", false),
];

pub(super) fn run(nodes: &Nodes) -> u8 {
    shown(&nodes.remote, Method::GET, "/api/v1/nodes", None, |answer| {
        noted(answer);
        text(answer)
    })
}

fn text(answer: &Value) -> String {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    if list(answer, "nodes") == 0 {
        return "this gateway is alone: its store is embedded\n".to_owned();
    }
    let mut answer = answer.clone();
    for node in answer.get_mut("nodes").and_then(Value::as_array_mut).into_iter().flatten() {
        let (count, moves) = (list(node, "shards"), list(node, "moving"));
        let is = |name: &str| node.get(name).and_then(Value::as_bool) == Some(true);
        let word = match (is("this"), is("leaving")) {
            (true, true) => "this one, ending",
            (true, false) => "this one",
            (false, true) => "ending",
            (false, false) => "",
        };
        if let Some(node) = node.as_object_mut() {
            node.insert("count".to_owned(), json!(count));
            node.insert("moves".to_owned(), json!(moves));
            node.insert("word".to_owned(), json!(word));
        }
    }
    let mut text = table(&answer, "nodes", &COLUMNS);
    text.push_str(&resting(&answer));
    text.push_str(&fullest(&answer));
    let (unowned, shards) = (list(&answer, "unowned"), answer.get("shards").and_then(Value::as_u64).unwrap_or(0));
    if unowned > 0 {
        text.push_str(&format!("{unowned} of {shards} shards have no owner now: their events wait\n"));
    }
    text
}

/// Why a node has shards and no slots: the table alone looks like a fault.
fn resting(answer: &Value) -> String {
    let nodes = answer.get("nodes").and_then(Value::as_array).into_iter().flatten();
    let number = |node: &Value, name: &str| node.get(name).and_then(Value::as_u64);
    let waits =
        |node: &&Value| number(node, "slots") == Some(0) && number(node, "count").is_some_and(|count| count > 0);
    let names: Vec<String> = nodes.filter(waits).map(|node| cell(node.get("node"))).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "{} without slots yet: those of a node that was lost rest for store.redis.lease and upstream.timeout, while its last attempts may \
         still be under way\n",
        names.join(", ")
    )
}

/// Shards that are shown: those with most that waits.
const FULLEST: usize = 5;

const SHARD_COLUMNS: [Column; 8] = [
    ("SHARD", "shard", true),
    ("NODE", "node", false),
    ("EPOCH", "epoch", true),
    ("GROUPS", "groups", true),
    ("BACKLOG", "backlog", true),
    ("UNREAD", "unread", true),
    ("LARGEST GROUP", "group", false),
    ("ITS SHARE", "share", true),
];

/// The fullest shards, how they stand to the one in the middle, and what is pinned.
fn fullest(answer: &Value) -> String {
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut shards: Vec<Value> = answer.get("by_shard").and_then(Value::as_array).cloned().unwrap_or_default();
    shards.retain(|shard| number(shard, "backlog") + number(shard, "unread") > 0);
    shards.sort_by_key(|shard| std::cmp::Reverse((number(shard, "backlog"), number(shard, "unread"))));
    let waiting = shards.len();
    shards.truncate(FULLEST);
    for shard in &mut shards {
        let largest = shard.get("largest").cloned().unwrap_or_default();
        if let Some(shard) = shard.as_object_mut() {
            shard.extend(
                ["group", "share"].map(|name| (name.to_owned(), largest.get(name).cloned().unwrap_or_default())),
            );
        }
    }
    let mut text = String::new();
    if waiting > 0 {
        let skew = answer.get("skew").unwrap_or(&Value::Null);
        text.push_str(&format!(
            "\nevents wait in {waiting} shards; the fullest holds {}, the one in the middle {}:\n",
            number(skew, "max"),
            number(skew, "median")
        ));
        text.push_str(&table(&json!({ "shards": shards }), "shards", &SHARD_COLUMNS));
    }
    for pin in answer.get("pins").and_then(Value::as_array).into_iter().flatten() {
        text.push_str(&format!("{} {}\n", cell(pin.get("group")), super::api::pinned(pin)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_shards_and_no_slots_says_what_it_waits_for() {
        let node = |name: &str, slots: u64| json!({ "node": name, "shards": [1, 2], "moving": [], "slots": slots });
        let shown = text(&json!({ "nodes": [node("a", 0), node("b", 32)], "shards": 64 }));
        assert!(
            shown.contains("\na without slots yet: those of a node that was lost rest for store.redis.lease"),
            "{shown}"
        );
        assert!(!text(&json!({ "nodes": [node("b", 32)], "shards": 64 })).contains("without slots"));
    }

    #[test]
    fn the_fullest_shards_and_the_pins_are_shown() {
        let shard = |number: u16, backlog: u64, largest: Value| json!({ "shard": number, "node": "a", "epoch": 3, "groups": 2, "backlog": backlog, "unread": 0, "largest": largest });
        let answer = json!({
            "by_shard": [shard(0, 0, Value::Null), shard(1, 9, json!({ "group": "noisy", "events": 8, "share": 0.8 })), shard(2, 3, Value::Null)],
            "skew": { "shard": 1, "max": 9, "median": 3, "ratio": 3.0 },
            "pins": [{ "group": "noisy", "pinned": 1, "shard": 0, "moving": true }],
        });
        let text = fullest(&answer);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.contains("events wait in 2 shards; the fullest holds 9, the one in the middle 3:"), "{text}");
        assert_eq!(lines[3], ["1", "a", "3", "2", "9", "0", "noisy", "0.80"], "{text}");
        assert!(text.ends_with("noisy pinned to shard 1, on its way there from shard 0\n"), "{text}");
    }

    #[test]
    fn nodes_and_shards_without_an_owner_are_shown() {
        let node = |name: &str, this: bool, shards: &[u16]| {
            json!({ "node": name, "this": this, "leaving": !this, "admin": "10.0.0.1:8081", "version": "1", "shards": shards,
                "moving": [], "slots": 32, "busy": 1, "silent_s": 0.1, "weight": 0.0 })
        };
        let answer =
            json!({ "nodes": [node("a", true, &[0, 1]), node("b", false, &[2])], "shards": 4, "unowned": [3] });
        let text = text(&answer);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["a", "10.0.0.1:8081", "1", "2", "0", "32", "1", "0.10", "this", "one"]);
        assert_eq!(words[2][8..], ["ending"]);
        assert_eq!(text.lines().last(), Some("1 of 4 shards have no owner now: their events wait"));
        assert!(super::text(&json!({ "nodes": [], "shards": 0, "unowned": [] })).contains("alone"));
    }
}
