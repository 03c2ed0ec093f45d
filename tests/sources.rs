//! Holding a source back, and closing breakers, by hand, through the real binary: what senders get, what is delivered and what waits, over a
//! restart, by the API and on the command line; and that who did it is remembered.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

mod support;

use std::process::Command;

use serde_json::Value;
use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, Response, gateway, post};

/// Orders and products of the same tenants, each tenant's events in one lane; parts of tenants, whose source has lanes of its own; and
/// requests that wait for the upstream's answer.
fn yaml(upstream: &Upstream) -> String {
    format!(
        r#"
upstream: {{ url: "{}", breaker: {{ group: {{ failures: 2, open: 1h, open_max: 1h }} }} }}
sources:
  - {{ path: /orders, name: orders, verify: {{ provider: none }}, key: headers.x-key }}
  - {{ path: /products, name: products, verify: {{ provider: none }}, key: headers.x-key }}
  - {{ path: /parts, name: parts, verify: {{ provider: none }}, key: headers.x-key, within: "const:parts" }}
  - {{ path: /ask, name: ask, verify: {{ provider: none }}, key: headers.x-key, respond: upstream }}
"#,
        upstream.url()
    )
}

fn send(gateway: &Gateway, path: &str, key: &str, body: &str) -> Response {
    gateway.client().send(&post(path, body.as_bytes()).header("X-Key", key))
}

fn accepted(gateway: &Gateway, path: &str, key: &str, body: &str) -> String {
    let response = send(gateway, path, key, body);
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

fn hold(gateway: &Gateway, source: &str, change: &str) -> Value {
    let response = gateway.change("PATCH", &format!("/api/v1/source?name={source}"), change);
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_slice(&response.body).unwrap()
}

fn cli(gateway: &Gateway, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(arguments).arg("-c").arg(gateway.config()).arg("--data").arg(gateway.dir().join("data"));
    let output = command.args(["--admin", &gateway.admin.to_string()]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The source as soon as its backlog is known and such.
fn wait_for_backlog(gateway: &Gateway, source: &str, backlog: u64) {
    loop {
        let sources = gateway.json("/api/v1/sources");
        let sources = sources["sources"].as_array().unwrap();
        if sources.iter().find(|found| found["name"] == source).unwrap()["backlog"] == backlog {
            return;
        }
        std::thread::yield_now();
    }
}

fn bodies(upstream: &Upstream) -> Vec<String> {
    upstream.received().iter().map(|received| String::from_utf8_lossy(&received.body).into_owned()).collect()
}

fn audit(gateway: &Gateway) -> Vec<(String, String)> {
    let changes = gateway.json("/api/v1/audit");
    let text = |change: &Value, name: &str| change[name].as_str().unwrap().to_owned();
    changes["changes"].as_array().unwrap().iter().map(|c| (text(c, "about"), text(c, "what"))).collect()
}

#[test]
fn a_paused_source_is_accepted_and_waits_over_a_kill_and_others_go_on() {
    let receiver = upstream(|_| answer(200));
    let first = gateway(&yaml(&receiver)).start();
    let paused = hold(&first, "products", r#"{"state":"paused","expires":"2h"}"#);
    assert_eq!(paused["state"], "paused");
    assert_eq!(paused["held"]["by"], "api, from 127.0.0.1");

    // The first one of each lane finds out; those behind it cost nothing more.
    let held: Vec<String> = (0..50).map(|n| accepted(&first, "/products", "a", &format!("product {n}"))).collect();
    accepted(&first, "/products", "b", "product of b");
    accepted(&first, "/orders", "c", "order of c");
    receiver.wait_until(|all| all.iter().any(|one| one.body == b"order of c"[..]));
    let why = loop {
        let group = first.json("/api/v1/group?name=a");
        if group["state"] == "paused" {
            break group;
        }
        std::thread::yield_now();
    };
    assert_eq!(why["reason"], "its next event is of the source products, which is paused");
    assert_eq!(why["paused"], false, "nobody paused the group");
    // A tenant is one lane, in the order in which its events came, unless its source has a lane of its own.
    accepted(&first, "/orders", "a", "order of a");
    accepted(&first, "/parts", "a", "part of a");
    receiver.wait_until(|all| all.iter().any(|one| one.body == b"part of a"[..]));
    assert!(!bodies(&receiver).iter().any(|body| body == "order of a"), "it stands behind a paused event");
    assert_eq!(send(&first, "/ask", "a", "?").status, 200, "live requests of the group are answered");
    wait_for_backlog(&first, "products", 51);
    wait_for_backlog(&first, "orders", 1);

    let again = gateway(&yaml(&receiver)).again_in(first.kill()).start();
    wait_for_backlog(&again, "products", 51);
    wait_for_backlog(&again, "orders", 1);
    accepted(&again, "/products", "new", "product of a new one");
    accepted(&again, "/orders", "d", "order of d");
    receiver.wait_until(|all| all.iter().any(|one| one.body == b"order of d"[..]));
    assert!(!bodies(&receiver).iter().any(|body| body.starts_with("product")), "{:?}", bodies(&receiver));
    let (_, text, _) = cli(&again, &["sources"]);
    let row = text.lines().find(|line| line.starts_with("products")).unwrap();
    assert!(row.contains("paused") && row.contains("api, from 127.0.0.1") && row.contains(" 52 "), "{text}");

    let (code, text, error) = cli(&again, &["sources", "resume", "products"]);
    assert_eq!((code, text.lines().next()), (0, Some("products runs")), "{error}");
    receiver.wait_until(|all| all.iter().any(|one| one.body == b"order of a"[..]) && all.len() >= 57);
    again.wait_for_status(&held[49], "delivered");
    wait_for_backlog(&again, "products", 0);
    let all = bodies(&receiver);
    let of_a: Vec<&String> = all.iter().filter(|body| body.starts_with("product ") && !body.contains("of")).collect();
    assert_eq!(of_a.len(), 50, "each once: {all:?}");
    // None of them was attempted meanwhile.
    let tries = again.json(&format!("/api/v1/events/{}/attempts", held[49]));
    assert_eq!(tries["attempts"].as_array().unwrap().len(), 1, "{tries}");
    assert_eq!(tries["attempts"][0]["number"], 1, "{tries}");
    assert_eq!(again.metric("fairlane_invariant_violations_total "), Some(0.0));
    assert_eq!(again.metric("fairlane_conservation_difference "), Some(0.0));
    let told = audit(&again);
    assert_eq!(told[0], ("source products".to_owned(), "runs again".to_owned()));
    assert_eq!(told[1], ("source products".to_owned(), "paused, for 2h".to_owned()), "from before the kill");
}

#[test]
fn a_source_that_runs_dry_refuses_new_requests_and_delivers_the_old() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver)).start();
    hold(&gateway, "orders", r#"{"state":"paused"}"#);
    let queued = accepted(&gateway, "/orders", "a", "queued before");
    wait_for_backlog(&gateway, "orders", 1);
    let (code, text, error) = cli(&gateway, &["sources", "drain", "orders", "--for", "30m"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.starts_with("orders runs dry until ") && text.contains("503 and Retry-After"), "{text}");
    gateway.wait_for_status(&queued, "delivered");
    let refused = send(&gateway, "/orders", "a", "too late");
    assert_eq!(refused.status, 503);
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((5..=15).contains(&after), "{after}");
    assert!(refused.text().contains("takes no requests for now; nothing was stored"), "{}", refused.text());
    accepted(&gateway, "/products", "a", "another source's");
    // What has not happened yet is counted, too: nobody can ask for the rate of what is not there.
    for line in [
        r#"fairlane_shed_total{source="parts",reason="source_draining"}"#,
        r#"fairlane_events_rejected_total{source="parts",reason="bad_signature"}"#,
        r#"fairlane_attempts_total{outcome="refused"}"#,
    ] {
        assert_eq!(gateway.metric(line), Some(0.0), "{line}");
    }
    let reason = r#"fairlane_shed_total{source="orders",reason="source_draining"}"#;
    assert_eq!(gateway.metric(reason), Some(1.0));

    // Refusals of a drain would push out all others, so they are not listed; that is said where they are looked for.
    let (_, text, error) = cli(&gateway, &["rejections", "--source", "orders"]);
    assert!(text == "no rejections\n" && error.contains("draining: orders; what comes gets 503"), "{text} {error}");

    hold(&gateway, "orders", r#"{"state":"running"}"#);
    accepted(&gateway, "/orders", "a", "again");
    // Of a request that waits for the upstream's answer nothing can be kept.
    hold(&gateway, "ask", r#"{"state":"paused","expires":"1s"}"#);
    let refused = send(&gateway, "/ask", "a", "?");
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (503, true), "{}", refused.text());
    // It ends by itself.
    while send(&gateway, "/ask", "a", "?").status != 200 {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_not_there_or_makes_no_sense_is_refused_with_words() {
    let gateway = gateway(&yaml(&upstream(|_| answer(200)))).start();
    let refused = |name: &str, change: &str| {
        let response = gateway.change("PATCH", &format!("/api/v1/source?name={name}"), change);
        (response.status, response.text())
    };
    for (name, change, status, why) in [
        ("order", r#"{"state":"paused"}"#, 404, "did you mean \\\"orders\\\"?"),
        ("nosuch", r#"{"state":"paused"}"#, 404, "there are: orders, products, parts, ask"),
        ("orders", r#"{"state":"stopped"}"#, 400, "expected running, paused or draining"),
        ("orders", r#"{"state":"running","expires":"2h"}"#, 400, "what runs has no end"),
        ("orders", r#"{"state":"paused","expires":"soon"}"#, 400, "or never"),
    ] {
        let (code, text) = refused(name, change);
        assert_eq!(code, status, "{text}");
        assert!(text.contains(why), "{text}");
    }
    // Names that nobody knows are said where they are asked for, too.
    accepted(&gateway, "/orders", "acme.example", "one");
    let (code, text, error) = cli(&gateway, &["events", "--source", "order"]);
    assert_eq!((code, text.as_str()), (0, "no events\n"));
    assert!(error.contains("note: no source is called \"order\"; did you mean \"orders\"?"), "{error}");
    let unknown = "no source is called \"order\"; did you mean \"orders\"?";
    let (code, text, error) = cli(&gateway, &["rejections", "--source", "order"]);
    assert_eq!((code, text.as_str()), (0, "no rejections\n"));
    assert!(error.contains(&format!("note: {unknown}")), "{error}");
    let (code, text, error) = cli(&gateway, &["events", "export", "--source", "order"]);
    assert_eq!((code, text.as_str()), (0, ""));
    assert!(error.contains(&format!("note: {unknown}")), "{error}");
    let (code, text, _) = cli(&gateway, &["replay", "--source", "order", "--plan"]);
    assert_eq!((code, text), (0, format!("no event fits: nothing to replay: {unknown}\n")));
    let (code, _, error) = cli(&gateway, &["replay", "--source", "order", "--yes"]);
    assert!(code == 1 && error.contains(unknown) && error.contains("nothing is changed"), "{code} {error}");
    let (code, _, error) = cli(&gateway, &["replay", "--group", "acme.exampel", "--yes"]);
    assert!(code == 1 && error.contains("did you mean \"acme.example\"?"), "{code} {error}");
    assert_eq!(gateway.json("/api/v1/replays")["replays"], serde_json::json!([]));
    let (code, text, _) = cli(&gateway, &["replay", "--source", "orders", "--status", "discarded", "--yes"]);
    assert_eq!((code, text.as_str()), (0, "no event fits: nothing to replay\n"));
    let (_, _, error) = cli(&gateway, &["events", "--group", "acme.exampel"]);
    assert!(error.contains("no event of this group was seen yet; did you mean \"acme.example\"?"), "{error}");
    let (_, text, _) = cli(&gateway, &["groups", "why", "acme.exampel"]);
    assert!(text.contains("note: no event of this group was seen yet; did you mean \"acme.example\"?"), "{text}");
    let (code, _, error) = cli(&gateway, &["sources", "pause", "order"]);
    assert!(code == 1 && error.contains("did you mean \"orders\"?"), "{error}");
}

#[test]
fn a_breaker_is_closed_by_hand_and_one_part_of_a_change_is_taken_back() {
    let receiver = upstream(|_| answer(500));
    let gateway = gateway(&yaml(&receiver)).start();
    for n in 0..4 {
        accepted(&gateway, "/orders", "a", &format!("{n}"));
    }
    while gateway.json("/api/v1/group?name=a")["state"] != "broken" {
        std::thread::yield_now();
    }
    receiver.rule(|_| answer(200));
    let (_, text, _) = cli(&gateway, &["groups", "close-breaker", "a"]);
    assert!(text.starts_with("the breaker of a is closed"), "{text}");
    let last = accepted(&gateway, "/orders", "a", "last");
    gateway.wait_for_status(&last, "delivered");
    let (_, text, _) = cli(&gateway, &["groups", "close-breaker", "a"]);
    assert!(text.starts_with("nothing held a back"), "{text}");
    let (_, text, _) = cli(&gateway, &["upstream", "close-breaker"]);
    assert!(text.starts_with("nothing held the upstream back"), "{text}");

    let (code, _, error) = cli(&gateway, &["groups", "set", "a", "--weight", "4", "--rate", "100/s", "--for", "2h"]);
    assert_eq!(code, 0, "{error}");
    let (_, text, _) = cli(&gateway, &["groups", "overrides"]);
    let row = text.lines().nth(1).unwrap();
    assert!(row.starts_with("a") && row.contains("at rate 100/s until") && row.contains("at weight 4.00"), "{text}");
    let (_, text, _) = cli(&gateway, &["groups", "reset", "a", "--only", "rate"]);
    assert!(text.starts_with("a is at weight 4.00 until") && !text.contains("at rate"), "{text}");
    let (code, _, error) = cli(&gateway, &["groups", "restore", "a", "--only", "wight"]);
    assert!(code == 1 && error.contains("expected one of paused, weight, concurrency, rate, backlog"), "{error}");
    let told: Vec<String> = audit(&gateway).into_iter().map(|(_, what)| what).collect();
    assert_eq!(told[0], "changes taken back: rate");
    assert_eq!(told[2], "breaker closed by hand");
}

#[test]
fn the_page_of_sources_has_the_buttons() {
    let gateway = gateway(&yaml(&upstream(|_| answer(200)))).start();
    hold(&gateway, "orders", r#"{"state":"paused","expires":"never"}"#);
    let page = gateway.get("/sources").text();
    assert!(page.contains("until it is resumed. Begun"), "{page}");
    assert!(page.contains("(api, from 127.0.0.1)"), "{page}");
}

#[test]
fn a_change_is_one_that_changes_something_and_says_by_which_way_it_came() {
    let gateway = gateway(&yaml(&upstream(|_| answer(200)))).start();
    for nothing in [&["groups", "resume", "nobody"][..], &["groups", "cancel", "nobody"], &["upstream", "resume"]] {
        let (code, _, error) = cli(&gateway, nothing);
        assert_eq!(code, 0, "{nothing:?}: {error}");
    }
    assert!(audit(&gateway).is_empty(), "nothing was changed: {:?}", audit(&gateway));
    assert_eq!(cli(&gateway, &["groups", "pause", "acme.example"]).0, 0);
    gateway.change("PATCH", "/api/v1/group?name=acme.example", r#"{"paused":false}"#);
    let changes = gateway.json("/api/v1/audit");
    let ways: Vec<&str> =
        changes["changes"].as_array().unwrap().iter().map(|change| change["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["api", "cli"], "{changes}");
}

/// Two sources of the same tenants; without the second one, a file from which it was removed.
fn pair(upstream: &Upstream, with_two: bool) -> String {
    let two = "  - { path: /two, name: two, verify: { provider: none }, key: headers.x-key }\n";
    format!(
        "upstream: {}\nsources:\n  - {{ path: /one, name: one, verify: {{ provider: none }}, key: headers.x-key }}\n{}",
        upstream.url(),
        if with_two { two } else { "" }
    )
}

#[test]
fn a_held_source_that_was_removed_is_listed_and_can_be_resumed() {
    let receiver = upstream(|_| answer(200));
    let first = gateway(&pair(&receiver, true)).start();
    hold(&first, "two", r#"{"state":"paused","expires":"never"}"#);
    for n in 0..5 {
        accepted(&first, "/two", "a", &format!("two {n}"));
    }
    let second = gateway(&pair(&receiver, false)).again_in(first.kill()).start();
    assert!(
        second.stderr().contains("a source that is held is not in the configuration any more"),
        "{}",
        second.stderr()
    );
    accepted(&second, "/one", "a", "one");
    wait_for_backlog(&second, "two", 5);
    let sources = second.json("/api/v1/sources");
    let of = |name: &str| sources["sources"].as_array().unwrap().iter().find(|source| source["name"] == name).unwrap();
    assert_eq!(of("one")["removed"], false);
    assert_eq!((&of("two")["removed"], of("two")["state"].as_str()), (&Value::Bool(true), Some("paused")));
    let (_, text, _) = cli(&second, &["sources"]);
    assert!(text.lines().any(|line| line.starts_with("two") && line.contains("(removed)")), "{text}");
    // The other source's event may have been leased beside them before the first of them turned out to be held.
    let bodies = bodies(&receiver);
    assert!(bodies.iter().all(|body| body == "one"), "what was held is held: {bodies:?}");
    let refused = second.change("PATCH", "/api/v1/source?name=two", r#"{"state":"draining"}"#);
    assert_eq!(refused.status, 400, "{}", refused.text());

    let (code, text, error) = cli(&second, &["sources", "resume", "two"]);
    assert_eq!((code, text.lines().next()), (0, Some("two runs")), "{error}");
    receiver.wait_until(|all| all.len() == 6);
    assert_eq!(audit(&second)[0], ("source two".to_owned(), "runs again".to_owned()));
    // With nothing left of it, it is gone.
    while second.json("/api/v1/sources")["sources"].as_array().unwrap().len() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(second.change("PATCH", "/api/v1/source?name=two", r#"{"state":"paused"}"#).status, 404);
}
