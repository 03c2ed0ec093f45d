//! What an operator does with a stuck conversation and with a poisoned group, through the real binary: see why it waits, skip the one
//! event, move the whole queue aside; nothing is lost by `kill -9` in the middle.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::process::Command;

use serde_json::Value;
use support::upstream::{Received, Upstream, answer, upstream};
use support::{Gateway, gateway, post};

fn yaml(upstream: &Upstream) -> String {
    format!(
        "upstream:\n  url: {}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    key: headers.x-key\n    order: headers.x-order\n",
        upstream.url()
    )
}

/// Refuses what is poisoned with a 500, takes the rest.
fn receiver() -> Upstream {
    upstream(|received: &Received| answer(if received.body.starts_with(b"poison") { 500 } else { 200 }))
}

fn send(gateway: &Gateway, key: &str, order: Option<&str>, body: &str) -> String {
    let mut request = post("/any", body.as_bytes()).header("X-Key", key);
    if let Some(order) = order {
        request = request.header("X-Order", order);
    }
    let response = gateway.client().send(&request);
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// A change over the API: its status, and the answer.
fn change(gateway: &Gateway, method: &str, path: &str, body: &str) -> (u16, Value) {
    let response = gateway.change(method, path, body);
    (response.status, serde_json::from_slice(&response.body).unwrap())
}

fn pause(gateway: &Gateway, group: &str, paused: bool) {
    let body = format!("{{\"paused\": {paused}}}");
    assert_eq!(change(gateway, "PATCH", &format!("/api/v1/group?name={group}"), &body).0, 200);
}

/// The command line, asked about this gateway: whether it went well, its answer and what it said beside it.
fn fairlane(gateway: &Gateway, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(arguments)
        .args(["-c", gateway.config().to_str().unwrap(), "--admin", &gateway.admin.to_string()])
        .args(["--data", gateway.dir().join("data").to_str().unwrap()])
        .env("USER", "somebody")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// The job, as soon as it is so.
fn wait_for_job(gateway: &Gateway, id: u64, what: impl Fn(&Value) -> bool) -> Value {
    loop {
        let job = gateway.json(&format!("/api/v1/jobs/{id}"));
        if what(&job) {
            return job;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_stuck_conversation_is_seen_and_its_head_is_skipped() {
    let receiver = receiver();
    let gateway = gateway(&yaml(&receiver)).start();
    let head = send(&gateway, "shop", Some("c7"), "poison");
    gateway.wait_for_status(&head, "retrying");
    let next = send(&gateway, "shop", Some("c7"), "one");
    let last = send(&gateway, "shop", Some("c7"), "two");

    let group = gateway.json("/api/v1/group?name=shop");
    assert_eq!(group["held"][0]["event"], *head, "{group}");
    assert_eq!((&group["held"][0]["order"], &group["held_count"]), (&"c7".into(), &1.into()), "{group}");
    assert_eq!(group["top"]["order_keys"], serde_json::json!([{ "name": "c7", "count": 3 }]), "{group}");
    let (_, why, _) = fairlane(&gateway, &["groups", "why", "shop"]);
    let paste = format!("fairlane events skip {head}");
    assert!(why.contains(&paste), "{why}");

    let (done, text, beside) = fairlane(&gateway, &["events", "skip", &head]);
    assert!(done && text.contains("status: dead") && text.contains("skipped by an operator"), "{text}{beside}");
    gateway.wait_for_status(&next, "delivered");
    let event = gateway.wait_for_status(&last, "delivered");
    let tries = event["tries"].as_array().unwrap();
    assert!(tries[0]["waited_ms"].get("order").is_some() || tries[0]["wait_ms"] == 0, "{event}");
    assert_eq!(gateway.json(&format!("/api/v1/events/{last}/attempts"))["attempts"], event["tries"]);

    for (id, status) in [(&head, "dead"), (&next, "delivered")] {
        let (code, answer) = change(&gateway, "POST", &format!("/api/v1/events/{id}/discard"), "{}");
        let error = answer["error"].as_str().unwrap();
        assert!(code == 409 && error.contains(&format!("is {status} already")), "{answer}");
    }
    let (code, _) = change(&gateway, "POST", &format!("/api/v1/events/{}/skip", head.replace('0', "1")), "{}");
    assert_eq!(code, 404);
    assert_eq!(gateway.metric("fairlane_events_dead_total{source=\"/any\"} "), Some(1.0));
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
    assert!(gateway.stderr().contains("ended without a delivery: dead"));
}

#[test]
fn what_is_in_flight_is_not_ended_and_what_waits_is_discarded() {
    let receiver = upstream(|_| answer(200).after(std::time::Duration::from_secs(3_600)));
    let gateway = gateway(&yaml(&receiver)).start();
    let flying = send(&gateway, "shop", None, "a");
    receiver.wait_for(1);
    let (code, answer) = change(&gateway, "POST", &format!("/api/v1/events/{flying}/skip"), "{}");
    assert!(code == 409 && answer["error"].as_str().unwrap().contains("is in flight"), "{answer}");
    pause(&gateway, "shop", true);
    let queued = send(&gateway, "shop", None, "b");
    let (code, answer) = change(&gateway, "POST", &format!("/api/v1/events/{queued}/discard"), "{}");
    assert_eq!((code, answer["status"].as_str()), (200, Some("discarded")), "{answer}");
    assert_eq!(gateway.metric("fairlane_events_discarded_total{source=\"/any\"} "), Some(1.0));
}

#[test]
fn a_wait_is_split_and_its_parts_add_up() {
    let receiver = receiver();
    let gateway = gateway(&yaml(&receiver)).start();
    pause(&gateway, "shop", true);
    let id = send(&gateway, "shop", None, "a");
    // It is durable; until it has waited for a while that can be seen.
    let age = || gateway.json("/api/v1/group?name=shop")["oldest_age_s"].as_f64().unwrap();
    let durable = age();
    while age() < durable + 0.05 {
        std::thread::yield_now();
    }
    pause(&gateway, "shop", false);
    let received = receiver.wait_for(1).remove(0);
    let wait: u64 = received.header("fairlane-wait-ms").unwrap().parse().unwrap();
    let header = received.header("fairlane-wait-reason").unwrap();
    let parts: Vec<(&str, u64)> = header
        .split(", ")
        .map(|part| part.split_once('=').unwrap())
        .map(|(name, ms)| (name, ms.parse().unwrap()))
        .collect();
    assert_eq!((parts[0].0, parts.iter().map(|(_, ms)| ms).sum::<u64>()), ("group_paused", wait), "{header}");
    let paused = parts[0].1;
    let event = gateway.wait_for_status(&id, "delivered");
    assert_eq!(
        (&event["tries"][0]["wait_ms"], &event["tries"][0]["waited_ms"]["group_paused"]),
        (&wait.into(), &parts[0].1.into())
    );
    let all = gateway.json("/api/v1/status");
    assert!(all["waited_ms"]["group_paused"].as_u64().unwrap() >= paused, "{all}");
    assert!(gateway.json("/api/v1/group?name=shop")["waited_ms"]["group_paused"].as_u64().unwrap() >= paused);
    let seconds = gateway.metric("fairlane_wait_reason_seconds_total{reason=\"group_paused\"} ").unwrap();
    assert!(seconds >= 0.05, "{seconds}");
    let (_, shown, _) = fairlane(&gateway, &["events", "show", &id]);
    assert!(shown.contains("group_paused"), "{shown}");
}

#[test]
fn a_queue_is_diverted_over_a_kill_and_nothing_is_lost() {
    const EVENTS: usize = 1_500;
    let receiver = receiver();
    let yaml = yaml(&receiver);
    let gateway = gateway(&yaml).start();
    pause(&gateway, "bad", true);
    let mut client = gateway.client();
    for number in 0..EVENTS {
        let request = post("/any", b"poison").header("X-Key", "bad").header("X-Order", (number % 7).to_string());
        assert_eq!(client.send(&request).status, 200);
    }
    let (code, plan) = change(&gateway, "POST", "/api/v1/group/divert?name=bad", "{\"plan\": true}");
    assert_eq!((code, &plan["total"], &plan["reversible"]), (200, &EVENTS.into(), &true.into()), "{plan}");
    assert_eq!(gateway.json("/api/v1/jobs")["jobs"].as_array().unwrap().len(), 0, "a plan changes nothing");
    let (code, job) = change(&gateway, "POST", "/api/v1/group/divert?name=bad", "{\"by\": \"me\"}");
    assert_eq!((code, &job["total"], &job["by"]), (202, &EVENTS.into(), &"me".into()), "{job}");
    let id = job["id"].as_u64().unwrap();
    // More than the one batch that is noted at once.
    wait_for_job(&gateway, id, |job| job["done"].as_u64().unwrap() >= 600);
    let folder = gateway.kill();

    let gateway = support::gateway(&yaml).again_in(folder).start();
    let later = send(&gateway, "bad", None, "later");
    let job = wait_for_job(&gateway, id, |job| job["state"] != "running");
    assert_eq!((&job["state"], &job["done"], &job["skipped"]), (&"done".into(), &EVENTS.into(), &0.into()), "{job}");
    let dead = gateway.events("group=bad&status=dead");
    assert_eq!(dead.len(), EVENTS);
    assert!(dead.iter().all(|event| event["reason"] == "diverted by an operator"));
    assert_eq!(gateway.json(&format!("/api/v1/events/{later}"))["status"], "queued");
    assert_eq!(gateway.json("/api/v1/group?name=bad")["queued"], 1);
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
    let (code, answer) = change(&gateway, "DELETE", &format!("/api/v1/jobs/{id}"), "{}");
    assert_eq!(code, 409, "{answer}");

    // The command line: nobody is there to be asked, a wrong name is none, and a right one is enough.
    let (done, _, beside) = fairlane(&gateway, &["groups", "discard", "bad"]);
    assert!(!done && beside.contains("--confirm GROUP"), "{beside}");
    let (done, _, beside) = fairlane(&gateway, &["groups", "discard", "bad", "--confirm", "good"]);
    assert!(!done && beside.contains("nothing was changed"), "{beside}");
    let (code, answer) = change(&gateway, "POST", "/api/v1/group/discard?name=bad", "{}");
    assert!(code == 400 && answer["error"].as_str().unwrap().contains("confirm"), "{answer}");
    let (done, text, beside) = fairlane(&gateway, &["groups", "discard", "bad", "--confirm", "bad"]);
    assert!(done && text.contains("done: 1\n") && text.contains("by: somebody"), "{text}{beside}");
    assert_eq!(gateway.json(&format!("/api/v1/events/{later}"))["status"], "discarded");
    let (done, text, beside) = fairlane(&gateway, &["groups", "divert", "bad", "--yes"]);
    assert!(done && text.is_empty() && beside.contains("nothing of bad waits"), "{text}{beside}");
    let (_, text, _) = fairlane(&gateway, &["groups", "jobs"]);
    assert!(text.contains("divert") && text.contains("discard"), "{text}");
}
