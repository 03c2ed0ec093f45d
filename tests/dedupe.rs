//! Repeats through the real binary: one is delivered, the others are kept and can be released; nothing that was acknowledged is lost.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use support::upstream::{Upstream, answer, upstream};
use support::{Client, Gateway, Response, gateway, post};

fn yaml(upstream: &Upstream, more: &str) -> String {
    format!(
        "upstream: {{ url: {}, retry: {{ attempts: 1 }} }}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    key: \
         headers.x-key\n    dedupe: {{ key: body.id, window: 1h }}\n{more}\n",
        upstream.url()
    )
}

fn send(gateway: &Gateway, key: &str, body: &str) -> Response {
    let response = gateway.client().send(&post("/any", body.as_bytes()).header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

fn id(response: &Response) -> String {
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// I1, per source: whatever was accepted, and what was released, is somewhere.
fn balance(gateway: &Gateway) -> [f64; 4] {
    let of = |name: &str| gateway.metric(&format!("fairlane_events_{name}_total{{source=\"/any\"}}")).unwrap();
    let pending = gateway.json("/api/v1/status")["backlog"]["events"].as_f64().unwrap();
    let [accepted, released, suppressed, delivered] = ["accepted", "released", "suppressed", "delivered"].map(of);
    assert!((accepted + released - delivered - of("dead") - suppressed - pending).abs() < 0.5);
    [accepted, released, suppressed, delivered]
}

#[test]
fn a_repeat_gets_the_same_answer_is_kept_and_can_be_released() {
    let receiver = upstream(|_| answer(200));
    let ack = "    ack: { status: 202, body: \"[accepted]\", headers: { x-ours: a } }";
    let gateway = gateway(&yaml(&receiver, ack)).start();
    let send = |key: &str, body: &str| gateway.client().send(&post("/any", body.as_bytes()).header("X-Key", key));
    let (first, second) = (send("a", "{\"id\":7,\"n\":1}"), send("b", "{\"n\":2,\"id\":7}"));
    for response in [&first, &second] {
        assert_eq!((response.status, response.text()), (202, "[accepted]".to_owned()));
        assert_eq!(response.header("x-ours"), Some("a"));
    }
    assert_eq!(first.header("fairlane-duplicate-of"), None);
    // Another group in an unsigned place is no other event: whoever repeats a request could choose it.
    assert_eq!(second.header("fairlane-duplicate-of"), Some(id(&first).as_str()));
    // Without the key it is no repeat of anything.
    let missing = [send("a", "{\"n\":1}"), send("a", "{\"n\":1}"), send("a", "{\"id\":null}")];
    assert!(missing.iter().all(|response| response.header("fairlane-duplicate-of").is_none()));
    gateway.wait_for_status(&id(&first), "delivered");
    missing.iter().for_each(|response| drop(gateway.wait_for_status(&id(response), "delivered")));
    assert_eq!(gateway.metric("fairlane_dedupe_missing_total{source=\"/any\",reason=\"absent\"}"), Some(2.0));
    assert_eq!(gateway.metric("fairlane_dedupe_missing_total{source=\"/any\",reason=\"empty\"}"), Some(1.0));

    let suppressed = gateway.events("status=suppressed");
    assert_eq!(suppressed.len(), 1);
    assert_eq!((&suppressed[0]["id"], &suppressed[0]["duplicate_of"]), (&id(&second).into(), &id(&first).into()));
    assert_eq!(gateway.get(&format!("/api/v1/events/{}/body", id(&second))).text(), "{\"n\":2,\"id\":7}");
    assert_eq!(balance(&gateway), [5.0, 0.0, 1.0, 4.0]);
    assert_eq!(receiver.received().len(), 4, "the repeat was not delivered");

    // What was lost on the receiver's side can be let through, once.
    let release = |id: &str| gateway.change("POST", &format!("/api/v1/events/{id}/release"), "{}");
    let again = release(&id(&first));
    assert_eq!((again.status, again.text().contains("this one is delivered")), (409, true), "{}", again.text());
    assert_eq!(release("evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab").status, 404);
    let command = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(["events", "release", &id(&second), "--admin", &gateway.admin.to_string(), "--data"])
        .arg(gateway.dir().join("data"))
        .output()
        .unwrap();
    assert!(command.status.success(), "{}", String::from_utf8_lossy(&command.stderr));
    let event = gateway.wait_for_status(&id(&second), "delivered");
    assert_eq!((&event["duplicate_of"], &event["attempts"]), (&id(&first).into(), &1.into()));
    let released = receiver.wait_for(5).remove(4);
    assert_eq!((released.header("fairlane-event-id"), released.group()), (Some(id(&second).as_str()), "b"));
    assert_eq!(released.header("fairlane-replay"), None, "it goes for the first time");
    assert_eq!(release(&id(&second)).status, 409);
    assert_eq!(balance(&gateway), [5.0, 1.0, 1.0, 5.0]);
    assert_eq!(gateway.metric("fairlane_invariant_violations_total"), Some(0.0));
}

#[test]
fn a_repeat_of_a_dead_event_is_taken_and_a_restart_forgets_nothing() {
    let receiver = upstream(|request| answer(if request.body.ends_with(b"bad\"}") { 422 } else { 200 }));
    let first = gateway(&yaml(&receiver, "")).start();
    let dead = id(&send(&first, "a", "{\"id\":1,\"n\":\"bad\"}"));
    first.wait_for_status(&dead, "dead");
    let second = send(&first, "a", "{\"id\":1,\"n\":\"good\"}");
    assert_eq!(second.header("fairlane-duplicate-of"), None, "the dead one was never delivered");
    first.wait_for_status(&id(&second), "delivered");
    let kept = id(&send(&first, "a", "{\"id\":1}"));
    for ends in [Gateway::kill as fn(Gateway) -> tempfile::TempDir, |gateway| gateway.stop().1] {
        let before = gateway(&yaml(&receiver, "")).again_in(tempfile::tempdir().unwrap()).start();
        let one = id(&send(&before, "a", "{\"id\":\"x\"}"));
        let after = gateway(&yaml(&receiver, "")).again_in(ends(before)).start();
        assert_eq!(send(&after, "a", "{\"id\":\"x\"}").header("fairlane-duplicate-of"), Some(one.as_str()));
        std::fs::remove_dir_all(after.dir().join("data/index")).unwrap();
        let rebuilt = gateway(&yaml(&receiver, "")).again_in(after.kill()).start();
        assert_eq!(send(&rebuilt, "a", "{\"id\":\"x\"}").header("fairlane-duplicate-of"), Some(one.as_str()));
    }
    let again = gateway(&yaml(&receiver, "")).again_in(first.kill()).start();
    assert_eq!(send(&again, "b", "{\"id\":1}").header("fairlane-duplicate-of"), Some(id(&second).as_str()));
    let released = again.change("POST", &format!("/api/v1/events/{kept}/release"), "{}");
    assert_eq!(released.status, 200, "what was suppressed before a restart: {}", released.text());
    again.wait_for_status(&kept, "delivered");
}

#[test]
fn a_signed_key_keeps_groups_apart_and_what_is_not_genuine_is_known_by_nobody() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&format!(
        "upstream: {}\nsources:\n  - path: /signed\n    verify: {{ provider: github, secret: a-secret-of-enough-bytes, enforce: false }}\n    \
         key: body.shop\n    dedupe: {{ key: {{ join: [body.id, headers.x-github-event] }}, window: 1h }}\n",
        receiver.url()
    ))
    .start();
    let send = |shop: &str, id: &str, genuine: bool| {
        let body = format!("{{\"shop\":{shop:?},\"id\":{id}}}");
        let mac = support::hmac_sha256("a-secret-of-enough-bytes", &[body.as_bytes()]);
        let signature = format!("sha256={}", if genuine { support::hex(&mac) } else { "00".repeat(32) });
        let request = post("/signed", body.as_bytes()).header("X-Hub-Signature-256", signature);
        let response = gateway.client().send(&request.header("X-GitHub-Event", "push"));
        assert_eq!(response.status, 200, "{}", response.text());
        response.header("fairlane-duplicate-of").map(str::to_owned)
    };
    assert_eq!(send("a", "1", false), None);
    assert_eq!(send("a", "1", false), None, "nothing that a forged request says is believed");
    assert_eq!(send("a", "1", true), None, "least of all that the genuine one is a repeat");
    assert_eq!(send("b", "1", true), None, "another group's event of the same number");
    assert!(send("a", "1", true).is_some());
    assert!(send("b", "1", true).is_some());
    assert_eq!(send("a", "11", true), None);
}

/// Posts each key twice or more, from several connections at once, until the gateway is gone: ids that were acknowledged, with their keys.
fn flood(address: std::net::SocketAddr, seed: u64, answered: &AtomicUsize) -> Vec<(String, String)> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut acknowledged = Vec::new();
    let Ok(stream) = std::net::TcpStream::connect(address) else { return acknowledged };
    let mut client = Client { stream: std::io::BufReader::new(stream) };
    loop {
        let key = format!("k{}", random.random_range(0..60) + 20 * (answered.load(Ordering::Relaxed) / 40));
        let body = format!("{{\"id\":{key:?}}}");
        let Some(response) = client.try_send(&post("/any", body.as_bytes()).header("x-key", &key)) else {
            return acknowledged;
        };
        assert_eq!(response.status, 200, "{}", response.text());
        acknowledged.push((id(&response), key));
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn of_what_was_acknowledged_twice_one_survives_every_kill_9() {
    let nobody = "upstream: http://127.0.0.1:9\nsources: [{ path: /any, verify: none, key: headers.x-key, dedupe: { key: body.id } }]\n";
    let seed: u64 = std::env::var("CRASH_SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    println!("CRASH_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut acknowledged, mut dir) = (Vec::new(), tempfile::tempdir().unwrap());
    for round in 0..6 {
        let running = gateway(nobody).again_in(dir).start();
        let answered = Arc::new(AtomicUsize::new(0));
        let senders: Vec<_> = (0..6)
            .map(|sender| {
                let (address, answered) = (running.address, Arc::clone(&answered));
                let seed = seed ^ (round << 8) ^ sender;
                std::thread::spawn(move || flood(address, seed, &answered))
            })
            .collect();
        let until = random.random_range(1..200);
        while answered.load(Ordering::Relaxed) < until {
            std::thread::yield_now();
        }
        dir = running.kill();
        acknowledged.extend(senders.into_iter().flat_map(|sender| sender.join().unwrap()));
    }
    let last = gateway(nobody).again_in(dir).start();
    let events = last.events("");
    let by_id: HashMap<&str, &serde_json::Value> =
        events.iter().map(|event| (event["id"].as_str().unwrap(), event)).collect();
    let mut taken: HashMap<&str, &str> = HashMap::new();
    for event in events.iter().filter(|event| event["status"] != "suppressed") {
        let (key, id) = (event["group"].as_str().unwrap(), event["id"].as_str().unwrap());
        assert_eq!(taken.insert(key, id), None, "{key} was taken twice");
    }
    for (id, key) in &acknowledged {
        let event = by_id.get(id.as_str()).unwrap_or_else(|| panic!("{id} got a 2xx and is lost"));
        let first =
            taken.get(key.as_str()).unwrap_or_else(|| panic!("{key} got a 2xx, and none of it is to be delivered"));
        let of = event["duplicate_of"].as_str().unwrap_or(id);
        assert_eq!(of, *first, "{id}");
    }
    let suppressed = events.len() - taken.len();
    assert!(suppressed > 0, "{} events, no repeat among them", events.len());
    println!("{} were acknowledged, {suppressed} of {} stored events are repeats", acknowledged.len(), events.len());
}
