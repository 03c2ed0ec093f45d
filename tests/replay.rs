//! Dead letters and replays, through the real binary: one event, many by a filter, in order, over a kill, paused, cancelled, and from the
//! command line.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::upstream::{Received, Upstream, answer, upstream};
use support::{Gateway, gateway, post};

fn yaml(upstream: &Upstream, more: &str) -> String {
    format!(
        "upstream:\n  url: {}\n  concurrency: 16\n  retry: {{ never: [410] }}\n{more}\nsources:\n  - path: /any\n    verify: {{ provider: none \
         }}\n    key: headers.x-key\n    order: headers.x-order\n",
        upstream.url()
    )
}

fn send(gateway: &Gateway, key: &str, order: Option<&str>, body: &str) -> String {
    let request = post("/any", body.as_bytes()).header("X-Key", key);
    let request = if let Some(order) = order { request.header("X-Order", order) } else { request };
    let response = gateway.client().send(&request);
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// So many dead letters of each group.
fn dead_letters(gateway: &Gateway, groups: &[&str], count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count)
        .flat_map(|number| groups.iter().map(move |group| (group, number)))
        .map(|(group, number)| send(gateway, group, None, &format!("{group} {number}")))
        .collect();
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "dead")));
    ids
}

fn call(gateway: &Gateway, method: &str, path: &str, body: &str, status: u16) -> Value {
    let response = gateway.change(method, path, body);
    assert_eq!(response.status, status, "{method} {path}: {}", response.text());
    serde_json::from_slice(&response.body).unwrap()
}

/// The replay, as soon as it is like that.
fn wait_for_replay(gateway: &Gateway, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let replay = gateway.json(&format!("/api/v1/replays/{id}"));
        if wanted(&replay) {
            return replay;
        }
        std::thread::yield_now();
    }
}

/// I1: what came is what went and what is here, in cumulative counters and by what lists show.
fn counts_add_up(gateway: &Gateway) {
    let counter = |name: &str| gateway.metric(&format!("fairlane_events_{name}_total{{source=\"/any\"}} ")).unwrap();
    let pending = gateway.events("status=queued,in_flight,retrying").len() as f64;
    let came = counter("accepted") + counter("replayed");
    let went = counter("delivered") + counter("dead") + counter("discarded");
    assert!((came - went - pending).abs() < 0.5, "{came} came, {went} went, {pending} are here");
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
    assert_eq!(gateway.metric("fairlane_conservation_difference "), Some(0.0));
}

#[test]
fn one_dead_letter_goes_once_more_and_comes_back_with_its_history() {
    let receiver = upstream(|_| answer(410).body("no such order"));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let id = dead_letters(&gateway, &["a"], 1).remove(0);

    let again = call(&gateway, "POST", &format!("/api/v1/events/{id}/replay"), "{}", 200);
    assert_eq!((again["id"].as_str(), again["replays"].as_u64()), (Some(id.as_str()), Some(1)));
    let received = receiver.wait_for(2).remove(1);
    assert_eq!(
        (received.header("fairlane-event-id"), received.header("fairlane-replay")),
        (Some(id.as_str()), Some("1"))
    );
    assert_eq!(received.header("fairlane-attempt"), Some("1"), "attempts are counted anew");
    let dead = loop {
        let event = gateway.wait_for_status(&id, "dead");
        if event["tries"].as_array().unwrap().len() == 2 {
            break event;
        }
    };
    assert_eq!((dead["replays"].as_u64(), dead["attempts"].as_u64()), (Some(1), Some(1)), "{dead}");

    receiver.rule(|_| answer(200));
    call(&gateway, "POST", &format!("/api/v1/events/{id}/replay"), "{}", 200);
    let delivered = gateway.wait_for_status(&id, "delivered");
    assert_eq!(receiver.wait_for(3)[2].header("fairlane-replay"), Some("2"));
    let attempts = gateway.json(&format!("/api/v1/events/{id}/attempts"));
    assert_eq!(attempts["attempts"].as_array().unwrap().len(), 3, "{attempts}");
    assert_eq!(attempts["attempts"][0]["answer"], "no such order");
    assert_eq!(delivered["body_bytes"], 3);

    // What was delivered goes again by explicit choice; what is pending does not.
    gateway.change("PATCH", "/api/v1/group?name=a", r#"{"paused":true}"#);
    call(&gateway, "POST", &format!("/api/v1/events/{id}/replay"), "{}", 200);
    let refused = call(&gateway, "POST", &format!("/api/v1/events/{id}/replay"), "{}", 409);
    assert!(refused["error"].as_str().unwrap().contains("queued"), "{refused}");
    call(&gateway, "POST", "/api/v1/events/evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab/replay", "{}", 404);
    counts_add_up(&gateway);
}

#[test]
fn a_plan_changes_nothing_and_a_replay_delivers_what_it_counted() {
    let receiver = upstream(|_| answer(410));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let ids = dead_letters(&gateway, &["a", "b", "c"], 30);
    let plan = call(&gateway, "POST", "/api/v1/replays", r#"{"plan":true}"#, 200)["plan"].clone();
    assert_eq!(
        (plan["count"].as_u64(), plan["groups"].as_u64(), &plan["complete"]),
        (Some(90), Some(3), &Value::Bool(true))
    );
    assert_eq!(plan["largest"]["count"], 30);
    assert!(plan["span"]["from"].as_str() < plan["span"]["to"].as_str(), "{plan}");
    assert!(plan["expected_s"].as_f64().is_some(), "{plan}");
    assert_eq!((receiver.count(), gateway.events("status=dead").len()), (90, 90));

    receiver.rule(|request| answer(if request.group() == "b" { 410 } else { 200 }));
    let replay = call(&gateway, "POST", "/api/v1/replays", r#"{"status":"dead","plan":false}"#, 201);
    let id = replay["id"].as_str().unwrap().to_owned();
    let done = wait_for_replay(&gateway, &id, |replay| replay["state"] == "done");
    let numbers = ["planned", "requeued", "delivered", "dead", "missed"].map(|name| done[name].as_u64().unwrap());
    assert_eq!(numbers, [90, 90, 60, 30, 0], "{done}");
    assert_eq!(receiver.count(), 180, "each once more");
    let dead = gateway.events("status=dead");
    assert_eq!(dead.len(), 30);
    assert!(dead.iter().all(|event| event["group"] == "b" && event["replays"] == 1), "back in the dead letters");
    assert_eq!(gateway.json(&format!("/api/v1/events/{}", ids[0]))["status"], "delivered");
    counts_add_up(&gateway);

    call(&gateway, "DELETE", &format!("/api/v1/replays/{id}"), "{}", 409);
    call(&gateway, "GET", "/api/v1/replays/replay-99", "", 404);
    let unknown = call(&gateway, "POST", "/api/v1/replays", r#"{"status":"queued"}"#, 400);
    assert!(unknown["error"].as_str().unwrap().contains("delivered anyway"), "{unknown}");
}

#[test]
fn events_of_an_order_key_are_replayed_one_after_another_in_their_order() {
    let receiver = upstream(|_| answer(410));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let ids: Vec<String> =
        (0..40).map(|number| send(&gateway, "a", Some(["x", "y"][number % 2]), &format!("{number}"))).collect();
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "dead")));
    receiver.rule(|_| answer(200).after(Duration::from_millis(2)));
    call(&gateway, "POST", "/api/v1/replays", "{}", 201);
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
    let bodies: Vec<usize> =
        receiver.received()[40..].iter().map(|one| String::from_utf8_lossy(&one.body).parse().unwrap()).collect();
    for rest in [0, 1] {
        let of_key: Vec<usize> = bodies.iter().copied().filter(|number| number % 2 == rest).collect();
        assert_eq!(of_key, (0..20).map(|number| 2 * number + rest).collect::<Vec<_>>());
    }
}

#[test]
fn a_paused_group_holds_up_no_other_and_cancelling_leaves_its_events_as_they_were() {
    let receiver = upstream(|_| answer(410));
    let gateway = gateway(&yaml(&receiver, "")).start();
    dead_letters(&gateway, &["slow", "a"], 60);
    let reason = gateway.events("status=dead&group=slow")[0]["reason"].clone();
    receiver.rule(|_| answer(200));
    gateway.change("PATCH", "/api/v1/group?name=slow", r#"{"paused":true}"#);
    let id = call(&gateway, "POST", "/api/v1/replays", "{}", 201)["id"].as_str().unwrap().to_owned();
    let waiting = wait_for_replay(&gateway, &id, |replay| replay["delivered"] == 60);
    assert_eq!(waiting["state"], "running");
    let queued = wait_for_replay(&gateway, &id, |replay| replay["waiting"][0]["group"] == "slow");
    assert!(queued["under_way"].as_u64().unwrap() <= 16, "few of them wait in their lane: {queued}");

    let paused = call(&gateway, "PATCH", &format!("/api/v1/replays/{id}"), r#"{"paused":true}"#, 200);
    assert_eq!(paused["state"], "paused");
    call(&gateway, "DELETE", &format!("/api/v1/replays/{id}"), "{}", 200);
    let cancelled = wait_for_replay(&gateway, &id, |replay| replay["under_way"] == 0);
    assert_eq!(cancelled["state"], "cancelled");
    let dead = gateway.events("status=dead&group=slow");
    assert_eq!(dead.len(), 60, "all are dead letters again, {cancelled}");
    assert!(dead.iter().all(|event| event["reason"] == reason && reason != ""), "for what they died of: {dead:#?}");
    assert_eq!(receiver.count(), 120 + 60);
    counts_add_up(&gateway);
}

#[test]
fn a_replay_survives_a_kill_and_nothing_goes_twice_but_what_was_in_flight() {
    let receiver = upstream(|_| answer(410));
    let text = yaml(&receiver, "");
    let gateway = gateway(&text).start();
    let ids = dead_letters(&gateway, &["a", "b", "c", "d"], 100);
    receiver.rule(|_| answer(200).after(Duration::from_millis(2)));
    let id = call(&gateway, "POST", "/api/v1/replays", "{}", 201)["id"].as_str().unwrap().to_owned();
    let is_replay = |one: &&Received| one.header("fairlane-replay").is_some();
    receiver.wait_until(|all| all.iter().filter(is_replay).count() >= 100);
    let gateway = support::gateway(&text).again_in(gateway.kill()).start();

    let done = wait_for_replay(&gateway, &id, |replay| replay["state"] == "done");
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
    assert_eq!(done["requeued"], 400, "{done}");
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for one in receiver.received().iter().filter(is_replay) {
        *times.entry(one.header("fairlane-event-id").unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(times.len(), 400, "every one was replayed");
    let twice = times.values().filter(|count| **count > 1).count();
    // In flight, or delivered with the settlement not yet durable: of 16 slots replays hold one.
    assert!(twice <= 16 && times.values().all(|count| *count <= 2), "{twice} went twice");
    assert!(gateway.events("status=delivered").iter().all(|event| event["replays"] == 1), "none was requeued twice");
}

#[test]
fn two_replays_of_the_same_events_share_them_and_each_adds_up() {
    let receiver = upstream(|_| answer(410));
    let gateway = gateway(&yaml(&receiver, "")).start();
    dead_letters(&gateway, &["a", "b", "c"], 60);
    receiver.rule(|_| answer(200).after(Duration::from_millis(2)));
    let ids = [(); 2].map(|()| {
        let replay = call(&gateway, "POST", "/api/v1/replays", r#"{"status":"dead"}"#, 201);
        replay["id"].as_str().unwrap().to_owned()
    });
    let done = ids.map(|id| wait_for_replay(&gateway, &id, |replay| replay["state"] == "done"));
    let number = |replay: &Value, name: &str| replay[name].as_u64().unwrap();
    for replay in &done {
        let known = ["delivered", "dead", "retrying", "withdrawn", "missed"].map(|name| number(replay, name));
        assert_eq!(known.iter().sum::<u64>(), number(replay, "planned"), "{replay}");
        assert_eq!(replay["eta_s"], Value::Null, "{replay}");
    }
    assert_eq!(done.iter().map(|replay| number(replay, "delivered")).sum::<u64>(), 180, "each event once: {done:?}");
    counts_add_up(&gateway);
}

fn fairlane(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.current_dir(gateway.dir()).args(arguments).stdin(Stdio::null());
    let admin =
        ["-c".to_owned(), gateway.config().display().to_string(), "--admin".to_owned(), gateway.admin.to_string()];
    let data = ["--data".to_owned(), gateway.dir().join("data").display().to_string()];
    command.args(admin).args(data).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_command_line_shows_plans_asks_and_exports() {
    let receiver = upstream(|_| answer(410));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let ids = dead_letters(&gateway, &["a", "b"], 5);
    let listed = fairlane(&gateway, &["dead", "--group", "a"]);
    assert_eq!(said(&listed).lines().filter(|line| line.starts_with("evt_")).count(), 5, "{}", said(&listed));
    assert!(said(&fairlane(&gateway, &["dead", "show", &ids[0]])).contains("never again"));
    assert!(
        said(&listed).lines().next().unwrap().ends_with("WHY") && said(&listed).contains("never again"),
        "{}",
        said(&listed)
    );

    let plan = fairlane(&gateway, &["replay", "--group", "a", "--plan"]);
    assert!(said(&plan).contains("5 events of 1 group,"), "{}", said(&plan));
    let unasked = fairlane(&gateway, &["replay", "--group", "a"]);
    assert_eq!(unasked.status.code(), Some(64), "{}", said(&unasked));
    assert!(said(&unasked).contains("5 events of 1 group,") && said(&unasked).contains("--yes"), "{}", said(&unasked));
    assert_eq!(gateway.events("status=dead").len(), 10, "nothing was replayed");

    receiver.rule(|_| answer(200));
    let begun = fairlane(&gateway, &["dead", "replay", "--group", "a", "--yes"]);
    assert!(begun.status.success() && said(&begun).contains("replay-1"), "{}", said(&begun));
    wait_for_replay(&gateway, "replay-1", |replay| replay["state"] == "done");
    assert!(said(&fairlane(&gateway, &["replay", "list"])).contains("replay-1"));
    assert!(said(&fairlane(&gateway, &["replay", "show", "replay-1"])).contains("done"));
    let over = fairlane(&gateway, &["replay", "cancel", "replay-1"]);
    assert!(!over.status.success() && said(&over).contains("done already"), "{}", said(&over));
    assert!(fairlane(&gateway, &["dead", "replay", &ids[1]]).status.success());
    gateway.wait_for_status(&ids[1], "delivered");

    let binary = gateway.client().send(&post("/any", &[0xFF, 0x00, 0x01]).header("X-Key", "c"));
    gateway.wait_for_status(binary.header("fairlane-event-id").unwrap(), "delivered");
    let export = fairlane(&gateway, &["events", "export", "--body", "--oldest-first"]);
    let lines: Vec<Value> =
        String::from_utf8(export.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 11);
    assert!(lines.is_sorted_by_key(|line| line["seq"].as_u64()), "the oldest first");
    assert_eq!(lines.iter().filter(|line| line["body"].is_string()).count(), 10);
    assert_eq!(lines.iter().find_map(|line| line["body_b64"].as_str()), Some("/wAB"));
    let few = fairlane(&gateway, &["events", "--jsonl", "--status", "dead", "--limit", "3"]);
    assert_eq!(said(&few).lines().count(), 3, "{}", said(&few));
}
