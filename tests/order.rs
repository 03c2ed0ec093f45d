//! Order through the real binary: per key the receiver's first successes come in the order of arrival, over failures and `kill -9`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::upstream::{Answer, Received, Upstream, answer, upstream};
use support::{gateway, post};

/// What the receiver took for the first time, by key, in the order of its answers.
type Taken = Arc<Mutex<BTreeMap<String, Vec<u64>>>>;

/// A receiver that fails every so-manieth request, and what it took of each key.
fn receiver(fails_every: u64) -> (Upstream, Taken) {
    let taken = Taken::default();
    let (calls, told) = (AtomicU64::new(0), Arc::clone(&taken));
    let rule = move |received: &Received| -> Answer {
        let number = calls.fetch_add(1, Ordering::SeqCst);
        // No period that a round of keys could follow.
        if (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33).is_multiple_of(fails_every) {
            return answer(500);
        }
        let body: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
        let (key, number) = (body["key"].as_str().unwrap().to_owned(), body["number"].as_u64().unwrap());
        let mut all = told.lock().unwrap();
        let list = all.entry(key).or_default();
        if !list.contains(&number) {
            list.push(number);
        }
        answer(200).after(Duration::from_millis(1))
    };
    (upstream(rule).keeping(|_| false), taken)
}

fn yaml(upstream: &Upstream, order: &str) -> String {
    format!(
        "upstream:\n  url: {}\n  concurrency: 16\n  retry: {{ backoff: {{ initial: 5ms, max: 20ms }} }}\n\
         sources:\n  - path: /in\n    verify: {{ provider: none }}\n    key: headers.x-tenant\n    order: {order}\n",
        upstream.url()
    )
}

/// Sends one event of each key, from several connections; those of one key always come one after another.
fn round(gateway: &support::Gateway, number: u64, keys: usize, tenant: impl Fn(usize) -> String + Sync) {
    std::thread::scope(|scope| {
        for sender in 0..8 {
            let (mut client, tenant) = (gateway.client(), &tenant);
            scope.spawn(move || {
                for key in (sender..keys).step_by(8) {
                    let body = format!("{{\"key\":\"k{key}\",\"number\":{number}}}");
                    let sent = client.send(&post("/in", body.as_bytes()).header("X-Tenant", tenant(key)));
                    assert_eq!(sent.status, 200, "{}", sent.text());
                }
            });
        }
    });
}

/// Rounds with a `kill -9` after each, the last of which drains.
fn rounds(yaml: &str, taken: &Taken, keys: usize, tenant: impl Fn(usize) -> String + Sync) {
    const ROUNDS: u64 = 4;
    let mut dir = None;
    for number in 0..ROUNDS {
        let builder = gateway(yaml);
        let gateway = match dir.take() {
            Some(dir) => builder.again_in(dir).start(),
            None => builder.start(),
        };
        round(&gateway, number, keys, &tenant);
        if number + 1 == ROUNDS {
            while gateway.json("/api/v1/status")["backlog"]["events"] != 0 {
                std::thread::yield_now();
            }
            gateway.stop();
            break;
        }
        dir = Some(gateway.kill());
    }
    let taken = taken.lock().unwrap();
    assert_eq!(taken.len(), keys);
    let expected: Vec<u64> = (0..ROUNDS).collect();
    for (key, got) in taken.iter() {
        assert_eq!(*got, expected, "{key}: the receiver took its events in another order");
    }
}

#[test]
fn a_thousand_order_keys_keep_their_order_over_failures_and_kill_9() {
    let (upstream, taken) = receiver(7);
    rounds(&yaml(&upstream, "body.key"), &taken, 1_000, |key| format!("t{}", key % 5));
}

#[test]
fn a_group_in_order_is_delivered_one_by_one_over_failures_and_kill_9() {
    let (upstream, taken) = receiver(5);
    // A group a key: what the group's order keeps is what the key's list shows.
    rounds(&yaml(&upstream, "group"), &taken, 24, |key| format!("t{key}"));
    assert!(upstream.most_in_flight() > 1, "groups do not wait for each other");
}

#[test]
fn with_order_group_one_event_of_the_group_is_in_flight_at_a_time() {
    let taken: Arc<Mutex<Vec<u64>>> = Arc::default();
    let told = Arc::clone(&taken);
    let calls = AtomicU64::new(0);
    let upstream = upstream(move |received| {
        if calls.fetch_add(1, Ordering::SeqCst) % 3 == 1 {
            return answer(503);
        }
        let body: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
        told.lock().unwrap().push(body["number"].as_u64().unwrap());
        answer(200).after(Duration::from_millis(2))
    });
    let gateway = gateway(&yaml(&upstream, "group")).start();
    for number in 0..40 {
        round(&gateway, number, 1, |_| "one".to_owned());
    }
    while taken.lock().unwrap().len() < 40 {
        std::thread::yield_now();
    }
    assert_eq!(*taken.lock().unwrap(), (0..40).collect::<Vec<u64>>());
    assert_eq!(upstream.most_in_flight(), 1);
}

#[test]
fn a_start_refuses_what_a_reload_refuses_and_its_flag_accepts_it_once() {
    let upstream = upstream(|_| answer(200));
    let old = yaml(&upstream, "headers.x-key");
    let new = format!("{old}    within: headers.x-part\n");
    let first = gateway(&old).start();
    let changed = first.change("PATCH", "/api/v1/upstream", r#"{"paused":true}"#);
    assert_eq!(changed.status, 200, "{}", changed.text());
    for _ in 0..3 {
        let sent = first.client().send(&post("/in", b"{}").header("X-Tenant", "t").header("X-Key", "k"));
        assert_eq!(sent.status, 200, "{}", sent.text());
    }
    let said = "source /in has `order` and a backlog, so its key, within and order cannot change (within: none -> headers.x-part)";
    std::fs::write(first.config(), &new).unwrap();
    first.signal("HUP");
    while !first.stderr().contains(said) {
        std::thread::yield_now();
    }
    let dir = first.kill();

    // One that does not start leaves no folder behind, so it has a copy.
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-a").arg(dir.path().join("data")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let Err((status, error)) = gateway(&new).again_in(copy).try_start() else { panic!("it started, and reorders") };
    assert_eq!(status.code(), Some(78), "{error}");
    assert!(error.contains(said) && error.contains("drain it") && error.contains("--accept-reorder"), "{error}");
    // By its own rules it starts; and by others where somebody said so, once.
    let (_, dir) = gateway(&old).again_in(dir).start().stop();
    let dir = gateway(&new).again_in(dir).with(&["--accept-reorder"]).start().kill();
    let again = gateway(&new).again_in(dir).start();
    assert_eq!(again.change("PATCH", "/api/v1/upstream", r#"{"paused":false}"#).status, 200);
    while again.json("/api/v1/status")["backlog"]["events"] != 0 {
        std::thread::yield_now();
    }
    // With nothing queued the rules may change.
    let (_, dir) = again.stop();
    gateway(&old).again_in(dir).start().stop();
}
