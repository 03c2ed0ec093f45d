//! `fairlane nodes`: the nodes that share a store in Redis, and what each does.

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::remote::{Remote, shown};
use super::table::{Column, table};

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
    shown(&nodes.remote, Method::GET, "/api/v1/nodes", None, text)
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
    let (unowned, shards) = (list(&answer, "unowned"), answer.get("shards").and_then(Value::as_u64).unwrap_or(0));
    if unowned > 0 {
        text.push_str(&format!("{unowned} of {shards} shards have no owner now: their events wait\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
