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
    assert!(why.contains(&format!("c is idle: it has no lane of its own and shares {lane} with others")), "{why}");

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
