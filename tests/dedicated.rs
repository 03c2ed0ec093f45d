//! Caps of backlogs and slots of a group's own, through the real binary: what senders are answered, and what people see of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::upstream::{answer, upstream};
use support::{Gateway, Response, gateway, post};

fn send(gateway: &Gateway, path: &str, key: &str) -> Response {
    gateway.client().send(&post(path, b"{}").header("X-Key", key))
}

fn group(gateway: &Gateway, name: &str) -> Value {
    gateway.json(&format!("/api/v1/group?name={name}"))
}

/// Until it is so; what is waited for ends the test by the runner's own limit where it never comes.
fn wait_for(gateway: &Gateway, name: &str, what: impl Fn(&Value) -> bool) -> Value {
    loop {
        let group = group(gateway, name);
        if what(&group) {
            return group;
        }
        std::thread::yield_now();
    }
}

/// The command line of a person beside the gateway.
fn fairlane(gateway: &Gateway, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(words).arg("-c").arg(gateway.config()).args(["--admin", &gateway.admin.to_string()]);
    let output = command.arg("--data").arg(gateway.dir().join("data")).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_cap_of_the_backlog_lets_exactly_so_many_in_and_nobody_else_notices() {
    let receiver = upstream(|_| answer(200));
    let yaml = |cap: u32| {
        format!(
            "upstream: {{ url: \"{}\" }}\ngroups: {{ overrides: [{{ match: capped, backlog: {cap} }}] }}\nsources:\n  - {{ path: /a, \
             verify: none, key: headers.x-key }}\n  - {{ path: /b, verify: none, key: headers.x-key, answers: {{ shed: 503 }} }}\n",
            receiver.url()
        )
    };
    let gateway = gateway(&yaml(5)).start();
    gateway.change("PATCH", "/api/v1/group?name=capped", r#"{"paused": true}"#);
    assert_eq!(group(&gateway, "capped")["backlog"], 5);

    let (taken, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let answer = send(&gateway, "/a", "capped");
                    match answer.status {
                        200 => taken.fetch_add(1, Ordering::Relaxed),
                        429 => {
                            // It is paused, so nothing falls: an hour, give or take a fifth.
                            let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
                            assert!((2_880..=3_600).contains(&after), "{after}");
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        other => panic!("{other}: {}", answer.text()),
                    };
                    assert_eq!(send(&gateway, "/a", "other").status, 200);
                }
            });
        }
    });
    assert_eq!((taken.into_inner(), refused.into_inner()), (5, 35));
    assert_eq!(gateway.events("group=capped").len(), 5, "nothing that was refused is stored");
    assert_eq!(gateway.metric("fairlane_shed_total{source=\"/a\",reason=\"backlog\"}"), Some(35.0));
    assert_eq!(send(&gateway, "/b", "capped").status, 503, "its source's choice");

    // Live: by a person, taken back, and by the file.
    let fill = || (0..20).filter(|_| send(&gateway, "/a", "capped").status == 200).count();
    fairlane(&gateway, &["groups", "set", "capped", "--backlog", "7", "--expires", "2h"]);
    let shown = group(&gateway, "capped");
    assert_eq!((&shown["backlog"], &shown["override"]["backlog"]), (&Value::from(7), &Value::from(7)));
    assert_eq!(fill(), 2);
    fairlane(&gateway, &["groups", "restore", "capped"]);
    assert_eq!(group(&gateway, "capped")["backlog"], 5);
    gateway.change("PATCH", "/api/v1/group?name=capped", r#"{"paused": true}"#);
    std::fs::write(gateway.config(), yaml(100)).unwrap();
    gateway.signal("HUP");
    wait_for(&gateway, "capped", |group| group["backlog"] == 100);
    let waits = group(&gateway, "capped")["queued"].as_u64().unwrap();
    assert_eq!((0..120).filter(|_| send(&gateway, "/a", "capped").status == 200).count() as u64, 100 - waits);
    // Below its cap it is let in again.
    gateway.change("PATCH", "/api/v1/group?name=capped", r#"{"paused": false}"#);
    wait_for(&gateway, "capped", |group| group["queued"] == 0);
    assert_eq!(send(&gateway, "/a", "capped").status, 200);
    assert_eq!(gateway.metric("fairlane_invariant_violations_total"), Some(0.0));
}

const TIMES: &str = "promote_share: 0.3, demote_share: 0.1, promote_after: 2s, demote_after: 2s";

#[test]
fn a_flood_gets_slots_of_its_own_keeps_them_over_a_restart_is_shed_and_gives_them_back() {
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(200)));
    let yaml = format!(
        "upstream: {{ url: \"{}\", concurrency: 16 }}\ngroups: {{ shed: true, dedicated: {{ max: 1, concurrency: 2, {TIMES} }} }}\n\
         sources: [{{ path: /a, verify: none, key: headers.x-key }}]\n",
        receiver.url()
    );
    let first = gateway(&yaml).start();
    let stands = |gateway: &Gateway, name: &str, state: &str| {
        wait_for(gateway, name, |group| group["dedicated"]["state"] == state)
    };
    flooding(&first, &["hot"], || {
        stands(&first, "hot", "watching");
        let hot = wait_for(&first, "hot", |group| group["state"] == "dedicated" && group["in_flight"] == 2);
        assert_eq!(
            (&hot["dedicated"]["state"], &hot["dedicated"]["slots"]),
            (&Value::from("promoted"), &Value::from(2))
        );
        let status = first.json("/api/v1/status");
        assert_eq!(status["dedicated"]["groups"][0]["group"], "hot");
        assert_eq!(
            (&status["dedicated"]["slots_taken"], &status["dedicated"]["at_ceiling"]),
            (&2.into(), &true.into())
        );
        assert_eq!(first.json("/api/v1/upstream")["slots"]["dedicated"], 2);
        let why = fairlane(&first, &["groups", "why", "hot"]);
        assert!(why.starts_with("hot is dedicated:") && why.contains("promoted"), "{why}");
        // Others have what is left, and their turn.
        assert_eq!(send(&first, "/a", "quiet").status, 200);
        wait_for(&first, "quiet", |group| group["delivered"] == 1);
    });
    assert_eq!(first.metric("fairlane_dedicated_transitions_total{to=\"promoted\"}"), Some(1.0));
    assert!(first.stderr().contains("a group has slots of its own now"));

    let second = gateway(&yaml).again_in(first.kill()).start();
    assert_eq!(group(&second, "hot")["dedicated"]["state"], "promoted");
    let shed = flooding(&second, &["hot", "late"], || {
        stands(&second, "late", "no_lane_available");
        let refused = |name| wait_for(&second, name, |group| group["dedicated"]["shed_above"].is_u64());
        refused("late");
        refused("hot");
        while second.metric("fairlane_shed_total{source=\"/a\",reason=\"outgrown\"}").unwrap_or_default() < 50.0 {
            std::thread::yield_now();
        }
        assert_eq!(send(&second, "/a", "quiet").status, 200);
        let hot = group(&second, "hot");
        // What was on its way to the disk when the bound was set is within it.
        assert!(hot["queued"].as_u64().unwrap() <= hot["dedicated"]["shed_above"].as_u64().unwrap(), "{hot}");
    });
    assert!(shed >= 50, "{shed}");
    assert!(second.stderr().contains("all dedicated slots are taken"));

    // Nothing more comes.
    wait_for(&second, "hot", |group| group["dedicated"].is_null());
    wait_for(&second, "late", |group| group["dedicated"].is_null());
    assert_eq!(second.json("/api/v1/status")["dedicated"]["slots_taken"], 0);
    assert!(second.stderr().contains("a group gave its own slots back"));
    assert_eq!(second.metric("fairlane_invariant_violations_total"), Some(0.0));
    let third = gateway(&yaml).again_in(second.kill()).start();
    assert!(group(&third, "hot")["dedicated"].is_null(), "given back for good");
}

/// Events of these groups without a pause while `meanwhile` goes on; how many were refused, each with when to come again.
fn flooding(gateway: &Gateway, names: &[&str], meanwhile: impl FnOnce()) -> usize {
    let (stop, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for name in names {
            let (stop, refused) = (&stop, &refused);
            scope.spawn(move || {
                let mut client = gateway.client();
                let request = post("/a", b"{}").header("X-Key", name);
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.send(&request);
                    if answer.status == 429 {
                        assert!(answer.header("retry-after").unwrap().parse::<u64>().is_ok_and(|after| after >= 1));
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // A panic in it must not leave the others running.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    refused.into_inner()
}
