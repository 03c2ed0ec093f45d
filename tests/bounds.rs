//! More groups than lanes, through the real binary: who shares, who stays, what people are told, and that nobody's order breaks.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::process::Command;

use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, gateway, post};

fn yaml(upstream: &Upstream) -> String {
    format!(
        "upstream:\n  url: {}\ngroups:\n  max_active: 2\n  overrides: [{{ match: vip, weight: 4 }}]\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    \
         key: headers.x-key\n    order: headers.x-order\n",
        upstream.url()
    )
}

fn send(gateway: &Gateway, key: &str, body: &str) -> String {
    let request = post("/any", body.as_bytes()).header("X-Key", key).header("X-Order", "one");
    let response = gateway.client().send(&request);
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

fn pause(gateway: &Gateway, paused: bool) {
    let answer = gateway.change("PATCH", "/api/v1/upstream", &format!(r#"{{"paused":{paused}}}"#));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn overflow(gateway: &Gateway, group: &str) -> Option<String> {
    gateway.json(&format!("/api/v1/group?name={group}"))["overflow"].as_str().map(str::to_owned)
}

#[test]
fn groups_beyond_max_active_share_lanes_stay_there_over_a_restart_and_keep_their_order() {
    let receiver = upstream(|_| answer(200));
    let text = yaml(&receiver);
    let gateway = gateway(&text).start();
    pause(&gateway, true);
    for (key, body) in [("a", "a1"), ("b", "b1"), ("c", "c1"), ("c", "c2"), ("d", "d1"), ("vip", "v1")] {
        send(&gateway, key, body);
    }
    let lane = overflow(&gateway, "c").unwrap();
    assert!(lane.starts_with("~overflow-"), "{lane}");
    assert_eq!(["a", "b", "vip"].map(|key| overflow(&gateway, key)), [None, None, None]);
    let listed = gateway.events("group=c");
    assert_eq!(listed.iter().filter(|event| event["overflow"] == lane.as_str() && event["group"] == "c").count(), 2);
    assert!(gateway.events("group=vip")[0]["overflow"].is_null());
    let counted = r#"fairlane_overflowed_events_total{source="/any",reason="max_active"}"#;
    assert_eq!(gateway.metric(counted), Some(3.0));

    let why = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(["groups", "why", "c", "--admin", &gateway.admin.to_string(), "--data"])
        .arg(gateway.dir().join("data"))
        .output()
        .unwrap();
    let why = String::from_utf8(why.stdout).unwrap();
    assert!(why.contains(&format!("c is paused: it has no lane of its own and shares {lane} with others")), "{why}");

    // The process dies with all of it waiting; who shared still does.
    let gateway = support::gateway(&text).again_in(gateway.kill()).start();
    send(&gateway, "c", "c3");
    assert_eq!(overflow(&gateway, "c").as_ref(), Some(&lane));
    assert!(receiver.received().is_empty(), "a pause outlives a restart");
    pause(&gateway, false);
    let arrived = receiver.wait_for(7);
    let of = |group: &str| -> Vec<String> {
        let own = arrived.iter().filter(|received| received.group() == group);
        own.map(|received| String::from_utf8(received.body.clone()).unwrap()).collect()
    };
    assert_eq!(
        (of("c"), of("d"), of("vip")),
        (vec!["c1".into(), "c2".into(), "c3".into()], vec!["d1".into()], vec!["v1".into()])
    );

    // All is delivered: it has a lane of its own again.
    let last = send(&gateway, "c", "c4");
    gateway.wait_for_status(&last, "delivered");
    pause(&gateway, true);
    send(&gateway, "c", "c5");
    assert_eq!(overflow(&gateway, "c"), None);
    assert!(gateway.events("group=c")[0]["overflow"].is_null());
}

fn fairlane(gateway: &Gateway, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(args).args(["--admin", &gateway.admin.to_string(), "--data"]).arg(gateway.dir().join("data"));
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_change_of_a_group_in_an_overflow_lane_says_what_it_does_not_do_yet() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver)).start();
    pause(&gateway, true);
    for (key, body) in [("a", "a1"), ("b", "b1"), ("c", "c1"), ("c", "c2")] {
        send(&gateway, key, body);
    }
    let lane = overflow(&gateway, "c").unwrap();
    // The whole upstream is paused, and so is the lane; the group is not held back by itself, whatever is changed of it.
    let state = |group: &str| gateway.json(&format!("/api/v1/group?name={group}"))["state"].clone();
    assert_eq!((state("c"), state(&lane)), ("paused".into(), "paused".into()));
    let (done, text) = fairlane(&gateway, &["groups", "pause", "c", "--expires", "2h"]);
    let first = text.lines().next().unwrap();
    let expected = format!("note: it has no lane of its own and shares {lane}, where 2 events wait: ");
    assert!(done && first.starts_with(&expected) && first.contains("act once it has one"), "{text}");
    assert!(text.lines().nth(1).unwrap().starts_with("c is paused until "), "{text}");

    for (action, sure) in [("divert", vec!["--yes"]), ("discard", vec!["--confirm", "c"])] {
        let (done, text) = fairlane(&gateway, &[&["groups", action, "c"], &*sure].concat());
        assert!(!done && text.contains("409") && text.contains(&lane), "{text}");
        let answer = gateway.change("POST", &format!("/api/v1/group/{action}?name=c"), r#"{"confirm":"c"}"#);
        assert_eq!(answer.status, 409, "{}", answer.text());
    }

    // It is delivered although it is paused, and the answers have not claimed anything else.
    assert_eq!(gateway.change("PATCH", &format!("/api/v1/group?name={lane}"), r#"{"paused":true}"#).status, 200);
    pause(&gateway, false);
    receiver.wait_for(2);
    assert_eq!((state("c"), state(&lane)), ("paused".into(), "paused".into()), "the lane is paused by itself");
    assert_eq!(gateway.change("DELETE", &format!("/api/v1/group?name={lane}"), "").status, 200);
    receiver.wait_for(4);
}
