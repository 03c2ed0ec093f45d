//! `fairlane keys` through the real binary: on a capture, on a HAR, on the store of a gateway that runs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use support::{gateway, post};

fn keys(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.arg("keys").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn report(arguments: &[&str]) -> Value {
    let output = keys(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn line(tenant: &str, conversation: u32) -> String {
    use base64::Engine as _;
    let body = json!({ "conversation": { "id": conversation } }).to_string();
    let body = base64::engine::general_purpose::STANDARD.encode(body);
    json!({ "method": "POST", "url": "https://in.example/hooks", "headers": [["X-Tenant", tenant]], "body_b64": body })
        .to_string()
}

/// 70,000 events of one tenant over 5,000 conversations, 10 of another in the middle.
fn flood(file: &Path) {
    let mut text = String::new();
    for number in 0..70_000 {
        if number == 35_000 {
            (0..10).for_each(|conversation| writeln!(text, "{}", line("quiet", conversation)).unwrap());
        }
        writeln!(text, "{}", line("busy", number % 5_000)).unwrap();
    }
    std::fs::write(file, text).unwrap();
}

#[test]
fn a_capture_that_says_nothing_is_told_apart_from_one_without_groups() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it");
    let said = |text: &str, arguments: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let output = keys(&[&[file.to_str().unwrap()], arguments].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{text}");
        String::from_utf8(output.stderr).unwrap()
    };
    let key = &["--key", "headers.x-tenant"];
    assert!(said("", key).contains("there is no request in it; expected JSON lines"));
    let text = said("POST /hooks HTTP/1.1\nX-Tenant: a\n", key);
    assert!(text.contains("line 1: ") && text.contains("expected JSON lines"), "{text}");
    let text = said(&line("a", 1), &["--key", "headers.x-tenant", "--path", "/elsewhere"]);
    assert!(text.contains("none of the 1 request in it is on a path that a rule is for: /elsewhere"), "{text}");
}

#[test]
fn a_flood_by_tenant_is_one_hot_shard_and_by_conversation_it_is_even() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("flood.jsonl"), folder.path().join("out"));
    flood(&file);
    let join = "{ join: [headers.x-tenant, body.conversation.id] }";
    let arguments = [file.to_str().unwrap(), "--key", "headers.x-tenant", "--key", join, "--key", "const:all"];
    let report = report(&[&arguments[..], &["--out", out.to_str().unwrap()]].concat());
    assert_eq!((&report["requests"], &report["unreadable"]), (&json!(70_010), &json!(0)));

    let tenant = &report["rules"][0];
    assert_eq!((&tenant["groups"], &tenant["standing"]), (&json!(2), &json!("good")));
    assert_eq!(tenant["largest"][0], json!({ "group": "busy", "events": 70_000, "share": 70_000.0 / 70_010.0 }));
    let fullest = tenant["shards"].as_array().unwrap().iter().map(|shard| shard["events"].as_u64().unwrap()).max();
    assert!(fullest.unwrap() > 60_000, "{fullest:?}");
    // 64 slots of 50 ms: half of 70,010 before it in one queue; two groups in turn in lanes.
    let wait = &tenant["wait_ms"];
    assert!((27_300.0..27_400.0).contains(&wait["one_queue"].as_f64().unwrap()), "{wait}");
    assert!(wait["lanes"].as_f64().unwrap() < 10.0, "{wait}");

    let both = &report["rules"][1];
    assert_eq!((&both["groups"], &both["single_event_groups"]), (&json!(5_010), &json!(10)));
    assert!(both["skew"].as_f64().unwrap() < 1.5, "{}", both["skew"]);
    // Spread, and worse for the quiet one: 5,000 conversations take turns with its own.
    assert!(both["wait_ms"]["lanes"].as_f64().unwrap() > 1_000.0, "{both}");
    assert_eq!((&both["standing"], &report["rules"][2]["standing"]), (&json!("look"), &json!("bad")));
    assert_eq!(report["best"], "headers.x-tenant");

    for (name, start) in [("keys.svg", &b"<svg"[..]), ("keys.png", b"\x89PNG")] {
        assert!(std::fs::read(out.join(name)).unwrap().starts_with(start), "{name}");
    }
}

#[test]
fn the_table_names_rules_reasons_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.jsonl");
    let lines: Vec<String> = (0..200).map(|number| line("a", number)).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let output = keys(&[file, "--key", "body.conversation.id", "--key", "body.tenant", "--within", "headers.x-tenant"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "200 requests in",
        "body.conversation.id     200     200     200",
        "bad: 200 of 200 groups have a single event: the key looks unbounded",
        "lanes within the groups: 200",
        "no key: absent 200",
        "bad: 100.0 % of the events have no key (absent)",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_line_that_cannot_be_read_is_told_and_ends_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.jsonl");
    std::fs::write(&file, format!("{}\n{{\"at\":1,\"group\":\"a\"}}\n", line("a", 1))).unwrap();
    let output = keys(&[file.to_str().unwrap(), "--key", "headers.x-tenant"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("1 requests could not be read\nline 2: missing field `headers`"), "{error}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("1 requests in"));
}

#[test]
fn a_wrong_command_line_says_what_is_wrong() {
    for (arguments, code, part) in [
        (&["x.jsonl", "--key", "boddy.a"][..], 64, "boddy"),
        (&["x.jsonl", "--provider", "nobody"], 64, "`fairlane providers` lists them"),
        (&["x.jsonl", "--provider", "shopify", "-c", "a.yaml"], 64, "cannot be used with"),
        (&["x.jsonl", "-c", "/nowhere/a.yaml"], 78, "the configuration has problems"),
        (&["/nowhere/x.jsonl", "--key", "body.a"], 1, "/nowhere/x.jsonl: No such file"),
        (&["--store", "/nowhere"], 1, "--store"),
        (&[], 64, "required"),
    ] {
        let output = keys(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn the_store_of_a_gateway_that_runs_can_be_tried() {
    let yaml = "upstream: http://127.0.0.1:9\nsources: [{ path: '/in/{shop}', verify: none, key: body.a, within: path.shop }]\n";
    let gateway = gateway(yaml).start();
    let mut client = gateway.client();
    for number in 0..30 {
        let body = json!({ "a": format!("t{}", number % 3), "b": number }).to_string();
        assert_eq!(client.send(&post(&format!("/in/s{}", number % 2), body.as_bytes())).status, 200);
    }
    client.send(&post("/in/s0", b"{}"));
    let store = gateway.dir().join("data");
    let store = store.to_str().unwrap();

    let stored = report(&["--store", store]);
    assert_eq!((&stored["requests"], &stored["rules"][0]["rule"]), (&json!(31), &json!("as stored")));
    assert_eq!((&stored["rules"][0]["groups"], &stored["rules"][0]["lanes"]), (&json!(3), &json!(6)));
    assert_eq!(stored["rules"][0]["missing"], json!({ "absent": 1 }));
    let other = report(&["--store", store, "--last", "1h", "--key", "path.shop", "--path", "/in/{shop}"]);
    assert_eq!((&other["rules"][0]["groups"], &other["rules"][0]["largest"][0]["events"]), (&json!(2), &json!(16)));
    let config = gateway.config();
    let sources = report(&["--store", store, "-c", config.to_str().unwrap()]);
    assert_eq!(sources["rules"][0]["groups"], 3);
    assert_eq!(client.send(&post("/in/s0", b"{}")).status, 200, "the gateway goes on");
}
