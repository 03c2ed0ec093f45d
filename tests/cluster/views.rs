//! Any of three nodes shows the whole cluster, and takes what people ask of it.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::upstream::answer;
use crate::support::{Client, Gateway, get, post};
use crate::{World, name, settled, until, world};

const EACH: Duration = Duration::from_millis(5);
/// Groups that lie on all three nodes, the events of each, and all of them.
const GROUPS: usize = 12;
const EVENTS: usize = 3;
const ALL: usize = GROUPS * EVENTS;

fn three() -> (World, [Gateway; 3]) {
    started(world(EACH))
}

fn started(world: World) -> (World, [Gateway; 3]) {
    // Of nodes with these names each has shards, and groups of those below.
    let nodes = ["node-a", "node-b", "node-c"].map(|name| world.node_called(name));
    settled(&[&nodes[0], &nodes[1], &nodes[2]]);
    (world, nodes)
}

fn group(number: usize) -> String {
    format!("g{number}")
}

/// Events of every group, through all nodes in turn.
fn send(nodes: &[Gateway; 3]) {
    for number in 0..ALL {
        let body = format!(r#"{{"group":"{}","order":"o{number}","n":{number}}}"#, group(number % GROUPS));
        let request = post("/any", body.as_bytes()).header("content-type", "application/json");
        let response = nodes[number % 3].client().send(&request);
        assert_eq!(response.status, 200, "{}", response.text());
    }
}

fn changed(node: &Gateway, method: &str, path: &str, body: &str) -> Value {
    let response = node.change(method, path, body);
    assert!((200..300).contains(&response.status), "{method} {path}: {} {}", response.status, response.text());
    serde_json::from_slice(&response.body).unwrap()
}

fn pause_upstream(nodes: &[Gateway; 3], paused: bool) {
    changed(&nodes[0], "PATCH", "/api/v1/upstream", &json!({ "paused": paused }).to_string());
    for node in nodes {
        until("all nodes know", || node.json("/api/v1/upstream")["paused"] == paused);
    }
}

/// A page for people.
fn page(node: &Gateway, path: &str) -> String {
    let response = node.get(path);
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.text()
}

/// What a command prints.
fn command(node: &Gateway, words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(words)
        .arg("-c")
        .arg(node.config())
        .arg("--data")
        .arg(node.dir().join("data"))
        .args(["--admin", &node.admin.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn names(list: &Value, field: &str) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

#[test]
fn status_pages_lists_and_top_are_of_all_nodes_on_each_of_them() {
    let (_world, nodes) = three();
    pause_upstream(&nodes, true);
    send(&nodes);
    // Refused, and remembered by the one that refused it.
    assert_eq!(nodes[1].client().send(&get("/any")).status, 405);
    let all: BTreeSet<String> = nodes.iter().map(name).collect();
    for node in &nodes {
        until("all events are known", || node.json("/api/v1/status")["backlog"]["events"] == ALL);
        let status = node.json("/api/v1/status");
        assert_eq!((names(&status["nodes"], "node"), &status["missing"]), (all.clone(), &Value::Null));
        let of_each: Vec<u64> =
            status["nodes"].as_array().unwrap().iter().map(|node| node["events"].as_u64().unwrap()).collect();
        assert!(of_each.iter().all(|events| *events > 0) && of_each.iter().sum::<u64>() == ALL as u64, "{of_each:?}");
        assert_eq!(node.json("/api/v1/sources")["sources"][0]["accepted"], ALL);
        assert_eq!(node.json("/api/v1/upstream")["nodes"].as_array().unwrap().len(), 3);
        assert_eq!(node.events("status=queued").len(), ALL);
        let refused = node.json("/api/v1/rejections");
        assert_eq!(refused["rejections"][0]["node"], name(&nodes[1]));

        let listed = page(node, "/groups?sort=depth");
        let overview = page(node, "/");
        for number in 0..GROUPS {
            let link = format!("/group?name={}\"", group(number));
            assert!(listed.contains(&link), "{} is not on the page of {}", group(number), name(node));
            let one = page(node, &format!("/group?name={}", group(number)));
            assert!(one.contains("the upstream is paused") || one.contains("paused"), "{one}");
        }
        assert!(overview.contains(&format!(">{ALL}<")), "all that wait are on the first page");
        assert!(page(node, "/rejections").contains(&format!("to {}", name(&nodes[1]))));
        let top = command(node, &["top", "--once"]);
        assert!(top.contains(&format!("one of 3 nodes; {ALL} events wait in {GROUPS} groups")), "{top}");
        assert_eq!(top.lines().filter(|line| line.starts_with('g')).count(), GROUPS, "{top}");
    }
}

#[test]
fn a_node_that_does_not_answer_is_named_on_every_page() {
    // Until the lease is over it counts among those that live.
    let (_world, nodes) = started(World { lease: Duration::from_mins(2), ..world(EACH) });
    pause_upstream(&nodes, true);
    send(&nodes);
    let [asked, silent, _] = &nodes;
    silent.signal("STOP");
    let lost = name(silent);
    let is_named =
        |answer: &Value| answer["missing"].as_array().is_some_and(|all| all.iter().any(|one| one["node"] == *lost));
    for path in ["status", "groups", "upstream", "sources", "replays", "jobs", "alerts", "rejections", "events"] {
        let answer = asked.json(&format!("/api/v1/{path}"));
        assert!(is_named(&answer), "{path}: {}", answer["missing"]);
    }
    for path in ["/", "/groups", "/sources", "/replays", "/alerts", "/rejections", "/events", "/dead"] {
        assert!(page(asked, path).contains(&lost), "{path} does not name it");
    }
    let top = command(asked, &["top", "--once"]);
    assert!(top.contains(&format!("{lost} is not in this")), "{top}");
    assert!(command(asked, &["groups"]).contains(&format!("{lost} is not in this")));
    silent.signal("CONT");
    until("it is there again", || asked.json("/api/v1/status")["missing"].is_null());
}

#[test]
fn a_source_that_is_held_on_one_node_is_held_on_all_over_restarts_until_anybody_resumes_it() {
    let (world, nodes) = three();
    let hold = |node: &Gateway, state: &str| {
        changed(node, "PATCH", "/api/v1/source?name=%2Fany", &json!({ "state": state }).to_string());
    };
    let state = |node: &Gateway| node.json("/api/v1/sources")["sources"][0]["state"].clone();
    let known = |nodes: &[&Gateway], expected: &str| {
        for node in nodes {
            until(&format!("{expected} on {}", name(node)), || state(node) == expected);
        }
    };
    hold(&nodes[0], "paused");
    known(&[&nodes[0], &nodes[1], &nodes[2]], "paused");
    send(&nodes);
    let [first, second, third] = nodes;
    // One that is restarted knows it still, and one that comes anew is told.
    let third = world.node_in(third.kill());
    let (_, dir) = second.stop();
    let second = world.node_in(dir);
    let fourth = world.node();
    settled(&[&first, &second, &third, &fourth]);
    known(&[&first, &second, &third, &fourth], "paused");
    until("all wait", || first.json("/api/v1/status")["backlog"]["events"] == ALL);
    assert_eq!(world.upstream.count(), 0, "its source is paused");

    hold(&third, "draining");
    known(&[&first, &second, &third, &fourth], "draining");
    world.upstream.wait_for(ALL);
    let request = post("/any", br#"{"group":"g","order":"o","n":1}"#).header("content-type", "application/json");
    for node in [&first, &second, &third, &fourth] {
        assert_eq!(node.client().send(&request).status, 503, "{}", name(node));
    }
    hold(&second, "running");
    known(&[&first, &second, &third, &fourth], "running");
    for node in [&first, &second, &third, &fourth] {
        assert_eq!(node.client().send(&request).status, 200, "{}", name(node));
    }
}

#[test]
fn what_people_did_on_any_node_is_listed_on_all_also_when_that_one_is_gone() {
    let (world, nodes) = three();
    // Each on its own node; and one that its group's owner carries out for the node that was asked.
    for (number, node) in nodes.iter().enumerate() {
        changed(node, "PATCH", "/api/v1/upstream", &json!({ "concurrency": number + 5 }).to_string());
    }
    changed(&nodes[0], "PATCH", &format!("/api/v1/group?name={}", group(1)), r#"{"weight":2}"#);
    let lists_all = |node: &Gateway| {
        let listed = node.json("/api/v1/audit");
        let all = listed["changes"].as_array().unwrap().iter();
        let of_upstream: Vec<Value> = all.filter(|change| change["about"] == "the upstream").cloned().collect();
        names(&json!(of_upstream), "node").len() == 3 && names(&listed["changes"], "about").contains(&group(1))
    };
    let [first, second, third] = nodes;
    for node in [&first, &second, &third] {
        until("every change is listed", || lists_all(node));
        let of_all = page(node, "/audit");
        assert!(of_all.contains(&name(&first)) && of_all.contains(&name(&third)), "{of_all}");
    }
    let _dir = first.kill();
    let third = world.node_in(third.kill());
    for node in [&second, &third] {
        until("it is listed without the node that it was asked of", || lists_all(node));
    }
    // Who asked another node is remembered as having asked, and not as that node.
    let told = names(&second.json("/api/v1/audit")["changes"], "way");
    assert_eq!(told, BTreeSet::from(["api".to_owned()]));
}

/// All events die at their first attempt.
fn dead(world: &World, nodes: &[Gateway; 3]) {
    world.upstream.rule(|_| answer(410));
    send(nodes);
    for node in nodes {
        until("all are dead", || node.events("status=dead").len() == ALL);
    }
    world.upstream.rule(|_| answer(200).after(EACH));
}

#[test]
fn a_replay_begun_on_one_node_is_of_all_shards_and_is_seen_and_paused_from_any() {
    let (world, nodes) = three();
    dead(&world, &nodes);
    pause_upstream(&nodes, true);
    let begun = changed(&nodes[0], "POST", "/api/v1/replays", "{}");
    let (id, here) = (begun["id"].as_str().unwrap().to_owned(), name(&nodes[0]));
    assert_eq!(begun["planned"], ALL);
    let path = format!("/api/v1/replays/{id}");
    for node in &nodes {
        let listed = node.json("/api/v1/replays");
        assert_eq!((&listed["replays"][0]["id"], &listed["replays"][0]["node"]), (&json!(id), &json!(here)));
        assert_eq!(node.json(&path)["id"], id);
        assert!(page(node, "/replays").contains(&format!("on {here}")));
    }
    assert_eq!(changed(&nodes[1], "PATCH", &path, r#"{"paused":true}"#)["state"], "paused");
    assert_eq!(nodes[2].json(&path)["state"], "paused");
    changed(&nodes[2], "PATCH", &path, r#"{"paused":false}"#);
    let other = changed(&nodes[1], "POST", "/api/v1/replays", r#"{"status":"discarded"}"#);
    assert_ne!(other["id"], id, "numbers are those of all nodes");
    pause_upstream(&nodes, false);
    let replayed = |request: &crate::Received| request.header("fairlane-replay").is_some();
    world.upstream.wait_until(|received| received.iter().filter(|request| replayed(request)).count() == ALL);
    until("it is over", || nodes[1].json(&path)["state"] == "done");
    let over = nodes[1].json(&path);
    assert_eq!(
        (&over["delivered"], &over["missed"], &over["requeued"]),
        (&json!(ALL), &json!(0), &json!(ALL)),
        "{over}"
    );
    assert_eq!(nodes[2].events("status=delivered").len(), ALL);
    assert_eq!(nodes[0].change("GET", "/api/v1/replays/replay-999", "").status, 404);
}

#[test]
fn a_replay_that_is_called_off_on_another_node_takes_back_what_lies_on_all_of_them() {
    let (world, nodes) = three();
    dead(&world, &nodes);
    let before = world.upstream.count();
    let reasons = |node: &Gateway| names(&json!(node.events("status=dead")), "reason");
    let why = reasons(&nodes[0]);
    pause_upstream(&nodes, true);
    let id = changed(&nodes[0], "POST", "/api/v1/replays", "{}")["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/replays/{id}");
    until("all of it waits in lanes", || nodes[2].json("/api/v1/status")["backlog"]["events"] == ALL);
    let ended = changed(&nodes[2], "DELETE", &path, "{}");
    assert_eq!((&ended["state"], &ended["note"]), (&json!("cancelled"), &Value::Null), "{ended}");
    for node in &nodes {
        until("all of it is back among the dead letters", || node.events("status=dead").len() == ALL);
    }
    assert_eq!(reasons(&nodes[1]), why, "they stand as before, with what they died of");
    until("it is known what became of each", || nodes[1].json(&path)["withdrawn"] == ALL);
    pause_upstream(&nodes, false);
    until("nothing is left", || nodes[0].json("/api/v1/status")["backlog"]["events"] == 0);
    assert_eq!(world.upstream.count(), before, "nothing of it was sent");
}

#[test]
fn queues_of_any_groups_are_moved_aside_from_one_node_and_its_jobs_are_seen_from_all() {
    let (_world, nodes) = three();
    pause_upstream(&nodes, true);
    send(&nodes);
    until("all wait", || nodes[0].json("/api/v1/status")["backlog"]["events"] == ALL);
    let mut ids = BTreeSet::new();
    for number in 0..GROUPS {
        let path = format!("/api/v1/group/divert?name={}", group(number));
        ids.insert(changed(&nodes[0], "POST", &path, r#"{"by":"test"}"#)["id"].as_u64().unwrap());
    }
    assert_eq!(ids.len(), GROUPS, "numbers are those of all nodes");
    for node in &nodes {
        until("every job is done", || {
            let listed = node.json("/api/v1/jobs");
            let done =
                listed["jobs"].as_array().unwrap().iter().filter(|job| job["state"] == "done" && job["done"] == EVENTS);
            done.count() == GROUPS
        });
        for id in &ids {
            assert_eq!(node.json(&format!("/api/v1/jobs/{id}"))["id"], *id);
            let over = node.change("DELETE", &format!("/api/v1/jobs/{id}"), "{}");
            assert_eq!(over.status, 409, "whoever has it says that it is over: {}", over.text());
        }
        assert_eq!(node.events("status=dead").len(), ALL);
    }
    let workers = names(&nodes[1].json("/api/v1/jobs")["jobs"], "node");
    assert!(workers.len() > 1, "a queue is moved by its owner: {workers:?}");
    assert_eq!(nodes[0].change("DELETE", "/api/v1/jobs/999", "{}").status, 404);
}

#[test]
fn the_upstreams_breaker_is_closed_on_all_nodes_from_any() {
    let mut world = world(EACH);
    world.upstream_more = ", breaker: { upstream: { failures: 3, groups: 1, open: 10m, open_max: 10m } }".to_owned();
    world.upstream.rule(|_| answer(503));
    let (world, nodes) = started(world);
    send(&nodes);
    let breakers = |node: &Gateway| -> Vec<String> {
        let seen = node.json("/api/v1/upstream");
        let of_each = seen["nodes"].as_array().unwrap().iter();
        of_each.map(|node| node["breaker"]["state"].as_str().unwrap().to_owned()).collect()
    };
    until("all nodes have had enough", || breakers(&nodes[0]) == ["open", "open", "open"]);
    assert_eq!(nodes[1].json("/api/v1/upstream")["breaker"]["state"], "open");
    world.upstream.rule(|_| answer(200));
    let closed = changed(&nodes[1], "POST", "/api/v1/upstream/close-breaker", "{}");
    assert_eq!((&closed["closed"], &closed["missing"]), (&json!(true), &Value::Null));
    for node in &nodes {
        until("no breaker is open", || !breakers(node).contains(&"open".to_owned()));
    }
    let by_hand = || {
        let said = nodes[2].json("/api/v1/audit");
        said["changes"].as_array().unwrap().iter().filter(|change| change["what"] == "breaker closed by hand").count()
    };
    until("it is known who did it", || by_hand() > 0);
    assert_eq!(by_hand(), 1, "one person did it once");
}

#[test]
fn a_group_is_shown_to_its_tenant_as_its_owner_knows_it() {
    let mut world = world(EACH);
    world.more =
        "tenant_pages: { address: \"127.0.0.1:0\", secret: \"0123456789abcdef0123456789abcdef\" }\n".to_owned();
    let (_world, nodes) = started(world);
    pause_upstream(&nodes, true);
    send(&nodes);
    until("all wait", || nodes[0].json("/api/v1/status")["backlog"]["events"] == ALL);
    for node in &nodes {
        let path = format!("/api/v1/group/link?name={}", group(1));
        let url = changed(node, "POST", &path, r#"{"expires":"1h"}"#)["url"].as_str().unwrap().to_owned();
        let (address, rest) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let shown = Client::to(address.parse().unwrap()).send(&get(&format!("/{rest}"))).text();
        assert!(!shown.contains("Nothing waits"), "{} shows another group: {shown}", name(node));
    }
}
