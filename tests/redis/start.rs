//! The real binary on a real Redis: it starts, or says why not and what to do; `fairlane doctor` shows what it looked at.

use std::process::Command;

use crate::support::redis::{Server, redis, until};
use crate::support::{Gateway, SHOPIFY, gateway, post};

fn on(server: &Server, more: &str) -> String {
    format!("{SHOPIFY}\nstore: {{ redis: {{ url: \"{}\", {more} }} }}\n", server.url())
}

fn body() -> &'static [u8] {
    br#"{"id":1}"#
}

#[test]
fn an_event_is_accepted_into_redis_and_found_there_after_a_restart() {
    let mut server = redis().start();
    let gateway = gateway(&on(&server, "shards: 4")).start();
    let answer = gateway.client().send(&post("/webhooks/shopify", body()).shopify("a.myshopify.com"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.header("fairlane-event-id").unwrap().to_owned();
    server.restart();
    // The upstream of this configuration does not exist.
    gateway.wait_for_status(&id, "retrying");
}

#[test]
fn a_start_on_a_redis_that_loses_events_is_refused_and_the_doctor_says_the_same() {
    let server = redis().line("maxmemory-policy allkeys-lru").line("appendfsync everysec").start();
    let yaml = on(&server, "shards: 4");
    let (status, error) = gateway(&yaml).try_start().err().expect("it started");
    assert!(!status.success());
    for part in ["eviction: maxmemory-policy is allkeys-lru", "persistence: ", "appendfsync always", "fairlane doctor"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    let output = doctor.args(["doctor", "--json", "-c"]).arg(&file).arg("--data").arg(dir.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let standing = |what: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["what"] == what).unwrap_or_else(|| panic!("no {what}"))["standing"]
            .clone()
    };
    assert_eq!((standing("eviction"), standing("persistence")), ("bad".into(), "bad".into()));
    assert_eq!((standing("version"), standing("latency")), ("ok".into(), "ok".into()));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn without_a_spool_a_redis_that_is_not_there_is_said() {
    let mut server = redis().start();
    let yaml = on(&server, "ack: memory, spool: null");
    server.kill();
    let (_, error) = gateway(&yaml).try_start().err().expect("it started");
    assert!(error.contains(&format!("Redis at 127.0.0.1:{}", server.port())), "{error}");
    assert!(error.contains("nothing listens there") && error.contains("store.redis.spool"), "{error}");
}

/// Sends one event, which has to be accepted; gives its id.
fn accepted(gateway: &Gateway) -> String {
    let answer = gateway.client().send(&post("/webhooks/shopify", body()).shopify("a.myshopify.com"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("fairlane-event-id").unwrap().to_owned()
}

#[test]
fn with_a_spool_a_node_starts_without_redis_says_so_and_goes_on_when_it_comes() {
    let mut server = redis().start();
    let yaml = on(&server, "shards: 4, lease: 2s");
    server.kill();
    let gateway = gateway(&yaml).start();
    assert!(gateway.stderr().contains("Redis is away: this node starts all the same"), "{}", gateway.stderr());
    let id = accepted(&gateway);
    let event = gateway.json(&format!("/api/v1/events/{id}"));
    assert_eq!((event["status"].as_str(), event["spooled"].as_bool()), (Some("queued"), Some(true)), "{event}");
    until("/readyz says where events go", || {
        let ready = gateway.get("/readyz");
        ready.status == 200 && ready.text().contains("kept in this node's spool (1 event so far)")
    });
    until("it is told of", || {
        let alerts = gateway.json("/api/v1/alerts");
        let firing: Vec<&str> =
            alerts["firing"].as_array().unwrap().iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
        firing == ["store_away"]
    });
    server.revive();
    // The upstream of this configuration does not exist: it was tried.
    gateway.wait_for_status(&id, "retrying");
    let at_once = accepted(&gateway);
    gateway.wait_for_status(&at_once, "retrying");
    assert_eq!(gateway.json("/api/v1/status")["store"]["spool"]["events"], 0);
    assert!(gateway.stderr().contains("Redis is there"), "{}", gateway.stderr());
    assert_eq!(gateway.json("/api/v1/nodes")["unowned"], serde_json::json!([]));
}

#[test]
fn a_spool_that_is_full_refuses_with_its_reason_and_what_is_in_it_is_ended_by_nobody() {
    let mut server = redis().start();
    let yaml = on(&server, "shards: 4, spool_max_bytes: 256MiB");
    server.kill();
    let gateway = gateway(&yaml).start();
    let first = accepted(&gateway);
    for path in ["skip", "discard"] {
        let refused = gateway.change("POST", &format!("/api/v1/events/{first}/{path}"), "{}");
        assert!(refused.status == 409 && refused.text().contains("in this node's spool"), "{}", refused.text());
    }
    let divert = r#"{"confirm":"a.myshopify.com"}"#;
    let refused = gateway.change("POST", "/api/v1/group/divert?name=a.myshopify.com", divert);
    assert!(refused.status == 409 && refused.text().contains("in this node's spool"), "{}", refused.text());

    let large = vec![b'x'; 4 << 20];
    let mut ids = vec![first];
    let refused = loop {
        // Of another shop each, for the one that holds most is refused before.
        let request = post("/webhooks/shopify", &large).shopify(&format!("shop-{}.myshopify.com", ids.len()));
        let answer = gateway.client().send(&request);
        if answer.status == 503 {
            break answer;
        }
        assert!([200, 429].contains(&answer.status), "{}", answer.text());
        ids.extend(answer.header("fairlane-event-id").map(str::to_owned));
        assert!(ids.len() < 65, "more went in than there may be");
    };
    assert!(refused.text().contains("spool is full (store.redis.spool_max_bytes"), "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let counted = gateway.get("/metrics").text();
    let refusals = counted.lines().filter(|line| line.contains(r#"reason="spool_full""#) && !line.ends_with(" 0"));
    assert_eq!(refusals.count(), 1, "{counted}");
    until("/readyz says so", || {
        let ready = gateway.get("/readyz");
        ready.status == 503 && ready.text().contains("spool is full")
    });
    server.revive();
    for id in &ids {
        gateway.wait_for_status(id, "retrying");
    }
    until("it takes events again", || gateway.get("/readyz").status == 200);
    let ended = gateway.change("POST", &format!("/api/v1/events/{}/skip", ids[0]), "{}");
    assert_eq!(ended.status, 200, "{}", ended.text());
}

#[test]
fn a_redis_that_comes_late_and_would_lose_events_is_not_used_before_that_is_mended() {
    let mut server = redis().line("maxmemory-policy allkeys-lru").start();
    let yaml = on(&server, "shards: 4");
    server.kill();
    let gateway = gateway(&yaml).start();
    let id = accepted(&gateway);
    server.revive();
    until("the log says why it is not used", || {
        gateway
            .stderr()
            .contains("Redis is there and cannot be used as it is: eviction: maxmemory-policy is allkeys-lru")
    });
    assert_eq!(server.ask::<i64>(&["EXISTS", "{fairlane:0}:shards", "{fairlane:nodes}:nodes"]), 0, "it is not used");
    assert_eq!(gateway.json(&format!("/api/v1/events/{id}"))["spooled"], true);
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    gateway.wait_for_status(&id, "retrying");
}

#[test]
fn a_wrong_password_is_refused_at_once_with_a_spool_too() {
    let server = redis().user("fair").start();
    let yaml =
        format!("{SHOPIFY}\nstore: {{ redis: {{ url: \"redis://fair:wrong@127.0.0.1:{}\" }} }}\n", server.port());
    let (_, error) = gateway(&yaml).try_start().err().expect("it started");
    assert!(error.contains("user or password is wrong"), "{error}");
}
