//! The real binary on a real Redis: it starts, or says why not and what to do; `fairlane doctor` shows what it looked at.

use std::process::Command;

use crate::support::redis::{Server, redis};
use crate::support::{SHOPIFY, gateway, post};

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
fn a_redis_that_is_not_there_is_said() {
    let mut server = redis().start();
    let yaml = on(&server, "ack: memory");
    server.kill();
    let (_, error) = gateway(&yaml).try_start().err().expect("it started");
    assert!(error.contains(&format!("Redis at 127.0.0.1:{}", server.port())), "{error}");
    assert!(error.contains("nothing listens there"), "{error}");
}
