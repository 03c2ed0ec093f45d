//! `fairlane simulate` through the real binary: the built-in scenarios and what they show, files, a store.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use support::{gateway, post};

fn simulate(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.arg("simulate").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that does not read it has said why.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    child.wait_with_output().unwrap()
}

fn report(arguments: &[&str], input: &str) -> Value {
    let output = simulate(&[arguments, &["--json"]].concat(), input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A row's wait in a run, in milliseconds; without end where that event was never served.
fn wait(run: &Value, who: &str, which: &str) -> f64 {
    let row = run["rows"].as_array().unwrap().iter().find(|row| row["who"] == who).unwrap();
    row.pointer(&format!("/wait_ms/{which}")).and_then(Value::as_f64).unwrap_or(f64::INFINITY)
}

/// The quiet wait no longer than one call beside each scenario's trouble, and far longer in one queue.
#[test]
fn in_every_scenario_the_quiet_wait_no_longer_than_a_call() {
    for (name, one_queue_ms) in [("flood", 10_000.0), ("500-floods", 20_000.0), ("hang", 10_000.0), ("import", 2_000.0)]
    {
        let report = report(&["--scenario", name, "--one-queue"], "");
        let [lanes, shared] = report["runs"].as_array().unwrap().as_slice() else { panic!("{report}") };
        assert_eq!((&lanes["name"], &shared["name"]), (&json!("defaults"), &json!("one queue")));
        let (p99, in_one) = (wait(lanes, "quiet", "p99"), wait(shared, "quiet", "p99"));
        assert!(p99 <= 35.0, "{name}: {p99} ms, more than the median of a call");
        assert!(in_one > one_queue_ms, "{name}: {in_one} ms in one queue");
        assert_eq!((&lanes["violations"], &shared["violations"]), (&json!(0), &json!(0)), "{name}");
        assert_eq!((&lanes["left"], &lanes["delivered"]), (&json!(0), &report["events"]), "{name}");
    }
}

#[test]
fn beside_groups_that_hang_the_steady_go_on() {
    let report = report(&["--scenario", "hang"], "");
    let run = &report["runs"][0];
    assert!(wait(run, "steady", "p99") <= 500.0, "{run:#}");
    assert!(wait(run, "those that hang", "p50") > 60_000.0, "{run:#}");
}

#[test]
fn an_importing_group_goes_on_selling() {
    let report = report(&["--scenario", "import"], "");
    let run = &report["runs"][0];
    assert!(wait(run, "its own orders", "p99") < 100.0, "{run:#}");
    assert!(wait(run, "the import", "p50") > 10_000.0, "{run:#}");
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_one_others() {
    let run = |seed: &str| report(&["--scenario", "import", "--seed", seed], "");
    let first = run("7");
    assert_eq!(first, run("7"));
    assert_ne!(first["runs"], run("8")["runs"]);
}

/// Two groups that send more than two slots take, all calls equal.
fn two_groups() -> String {
    let mut text = String::new();
    for number in 0..400 {
        writeln!(text, "{}", json!({ "at": 0, "group": if number % 2 == 0 { "a" } else { "b" }, "seconds": 0.1 }))
            .unwrap();
    }
    text
}

#[test]
fn weights_caps_and_slots_are_tried_side_by_side() {
    let arguments = ["-", "--concurrency", "8", "--weight", "a=3", "--cap", "a=64", "--cap", "b=64"];
    let report = report(&arguments, &two_groups());
    let runs = report["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["defaults", "8 slots", "as changed"]);
    // By default each has eight of 64 slots: 400 calls of 0.1 s through 16 slots.
    assert_eq!((&runs[0]["seconds"], &runs[0]["slot_use"]), (&json!(2.5), &json!(0.25)));
    assert_eq!(runs[0]["throughput"], 160.0);
    // Eight slots, one for each group.
    assert_eq!((&runs[1]["slots"], &runs[1]["seconds"]), (&json!(8), &json!(20.0)));
    // With caps that leave them to compete, three turns of a to one of b.
    assert_eq!(wait(&runs[0], "a", "p50"), wait(&runs[0], "b", "p50"));
    assert!(wait(&runs[2], "a", "max") < wait(&runs[2], "b", "max"), "{}", runs[2]);
    assert!(runs[2]["seconds"].as_f64().unwrap() < 1.0, "{}", runs[2]);
}

/// Ten events of one conversation at once take ten calls, one after another; without an order key all go at once.
#[test]
fn events_with_an_order_key_go_one_after_another() {
    let arrivals = |order: &dyn Fn(u32) -> Value| {
        let line = |number| json!({ "at": 0, "group": "a", "seconds": 1, "order": order(number) }).to_string() + "\n";
        (0..8).map(line).collect::<String>()
    };
    let took = |input: &str, arguments: &[&str]| report(arguments, input)["runs"][0]["seconds"].clone();
    assert_eq!(took(&arrivals(&|_| Value::Null), &["-"]), json!(1.0));
    assert_eq!(took(&arrivals(&|_| json!("one")), &["-"]), json!(8.0));
    assert_eq!(took(&arrivals(&|number| json!((number % 4).to_string())), &["-"]), json!(2.0));
    // Of captured requests a rule finds it.
    let captured =
        |key: u32| json!({ "at": 0, "url": "http://a/in", "headers": [["X-T", "a"], ["X-C", key.to_string()]] });
    let lines: String = (0..8).map(|number| captured(number % 2).to_string() + "\n").collect();
    let arguments = ["-", "--key", "headers.x-t", "--order", "headers.x-c", "--call", "50ms"];
    let with = took(&lines, &arguments).as_f64().unwrap();
    let without = took(&lines, &["-", "--key", "headers.x-t", "--call", "50ms"]).as_f64().unwrap();
    assert!(with > without, "{with} s in order, {without} s without");
}

#[test]
fn configurations_are_tried_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        let rest = "upstream: { url: 'http://127.0.0.1:9', concurrency: 16 }\nsources: [{ path: /in, verify: none, key: headers.x-tenant }]\n";
        std::fs::write(&path, format!("{text}{rest}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let one = file("a.yaml", "");
    let two = file("b.yaml", "groups: { overrides: [{ match: a, concurrency: 16 }] }\n");
    let out = folder.path().join("out");
    let arguments = ["-", "-c", &one, "-c", &two, "--out", out.to_str().unwrap()];
    let report = report(&arguments, &two_groups());
    let runs = report["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["name"], &runs[0]["slots"]), (&json!(one), &json!(16)));
    assert!(wait(&runs[1], "a", "max") < wait(&runs[0], "a", "max"), "{report:#}");
    for (name, start) in [("simulated.svg", &b"<svg"[..]), ("simulated.png", b"\x89PNG")] {
        assert!(std::fs::read(out.join(name)).unwrap().starts_with(start), "{name}");
    }

    // A capture goes by the sources of the first.
    let capture = json!({ "at": 5, "url": "http://a/in", "headers": [["X-Tenant", "t"]] }).to_string();
    let told = simulate(&["-", "-c", &one], &capture);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(text.contains("1 events of 1 groups") && text.contains("\nt "), "{text}");
}

#[test]
fn the_table_shows_who_waits_and_what_fails() {
    let lines = "{\"at\":0,\"group\":\"good\"}\n{\"at\":1,\"group\":\"gone\",\"status\":410}\n{\"at\":2,\"group\":\"down\",\"status\":0}\n";
    let output = simulate(&["-", "--drain", "60s"], lines);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["3 events of 3 groups within 2.0 s", "WHO", "good", "1 delivered in", "; 1 dead; 1 still waiting at the end"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn what_cannot_be_simulated_says_why() {
    for (arguments, input, code, part) in [
        (&["-"][..], "{\"at\":1,\"group\":\"a\"}\nno\n", 1, "-: line 2: "),
        (&["-"], "{\"headers\":[],\"at\":1}\n", 1, "--key EXPR, or -c FILE with sources"),
        (&["-", "--key", "headers.x"], "{\"headers\":[]}\n", 1, "1 requests have no time"),
        (&["-", "--weight", "a=0"], "", 64, "a weight is 0.01 to 1000"),
        (&["--scenario", "nothing"], "", 64, "500-floods"),
        (&["-", "--scenario", "flood"], "", 64, "cannot be used with"),
        (&["-", "-c", "/nowhere/a.yaml"], "", 78, "the configuration has problems"),
        (&[], "", 64, "required"),
    ] {
        let output = simulate(arguments, input);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn what_a_gateway_has_stored_can_be_replayed() {
    let yaml = "upstream: http://127.0.0.1:9\nsources: [{ path: /in, verify: none, key: body.a }]\n";
    let gateway = gateway(yaml).start();
    let mut client = gateway.client();
    for number in 0..12 {
        let body = json!({ "a": format!("t{}", number % 3) }).to_string();
        assert_eq!(client.send(&post("/in", body.as_bytes())).status, 200);
    }
    let store = gateway.dir().join("data");
    let report = report(&["--store", store.to_str().unwrap(), "--last", "1h"], "");
    assert_eq!((&report["events"], &report["groups"]), (&json!(12), &json!(3)));
    assert_eq!(report["runs"][0]["delivered"], 12);
}
