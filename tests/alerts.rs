//! What an operator is told, through the real binary: a receiver of messages hears of a group that waits, by its name, and that it is
//! over; and nobody's events wait for a receiver that is down or slow.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;
use support::upstream::{Received, Upstream, answer, upstream};
use support::{Gateway, gateway, post};

/// The part of the address that is a secret.
const HUSH: &str = "T000-hush-B000";

fn yaml(receiver: &Upstream, told: Option<&Upstream>) -> String {
    let webhook = told.map_or_else(|| "null".to_owned(), |told| format!("\"{}/services/{HUSH}\"", told.url()));
    format!(
        "upstream: {}\nsources:\n  - path: /any/*\n    verify: {{ provider: none }}\n    key: headers.x-key\n\
         alerts:\n  webhook: {webhook}\n  backlog_age: {{ group: 1s }}\n",
        receiver.url()
    )
}

fn send(gateway: &Gateway, key: &str) -> String {
    let response = gateway.client().send(&post("/any/x", b"{}").header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

fn fairlane(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(arguments).arg("-c").arg(gateway.config()).arg("--data").arg(gateway.dir().join("data"));
    command.arg("--admin").arg(gateway.admin.to_string());
    command.output().unwrap()
}

fn message(received: &Received) -> Value {
    serde_json::from_slice(&received.body).unwrap()
}

/// Waits for a message about this alert in this state.
fn heard(told: &Upstream, alert: &str, state: &str) -> Value {
    let is = |received: &Received| {
        let message = message(received);
        message["alert"] == alert && message["state"] == state
    };
    let all = told.wait_until(|received| received.iter().any(is));
    message(all.iter().find(|received| is(received)).unwrap())
}

/// Those of this kind: the machine that runs the tests may have alerts of its own, about its disk.
fn of_kind(list: &Value, kind: &str) -> Vec<Value> {
    list.as_array().unwrap().iter().filter(|alert| alert["alert"] == kind).cloned().collect()
}

fn pause(gateway: &Gateway, group: &str, paused: bool) {
    let path = format!("/api/v1/group?name={group}");
    assert_eq!(gateway.change("PATCH", &path, &format!("{{\"paused\":{paused}}}")).status, 200);
}

/// A receiver's door: what is marked to wait gets its answer when it is open.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn upstream(&self) -> Upstream {
        let gate = self.clone();
        upstream(move |received| {
            if received.header("x-waits").is_some() {
                drop(gate.0.1.wait_while(gate.0.0.lock().unwrap(), |open| !*open).unwrap());
            }
            answer(200)
        })
    }
}

/// Gives the group a cap of one and an attempt that lasts until the gate opens; the answer is its event that waits behind it.
fn stick(gateway: &Gateway, group: &str) -> String {
    let path = format!("/api/v1/group?name={group}");
    assert_eq!(gateway.change("PATCH", &path, r#"{"concurrency":1}"#).status, 200);
    let first = post("/any/x", b"{}").header("X-Key", group).header("X-Waits", "1");
    assert_eq!(gateway.client().send(&first).status, 200);
    send(gateway, group)
}

#[test]
fn a_group_that_waits_is_told_of_by_name_once_and_so_is_its_end() {
    let gate = Gate::default();
    let (receiver, told) = (gate.upstream(), upstream(|_| answer(200)));
    let gateway = gateway(&yaml(&receiver, Some(&told))).start();
    // Who paused it knows that it waits, and is told nothing; it waits for longer than the other.
    pause(&gateway, "paused-store", true);
    let paused = send(&gateway, "paused-store");
    let waiting = stick(&gateway, "quiet-store");

    let firing = heard(&told, "backlog_age", "firing");
    assert_eq!((&firing["severity"], &firing["subject"]), (&"ticket".into(), &"quiet-store".into()));
    assert_eq!(firing["groups"], serde_json::json!(["quiet-store"]));
    assert_eq!(firing["command"], "fairlane groups set quiet-store --concurrency 2");
    let text = firing["text"].as_str().unwrap();
    assert!(text.contains("quiet-store") && text.contains("fairlane groups set quiet-store --concurrency 2"), "{text}");
    let request = told.received().remove(0);
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", format!("/services/{HUSH}").as_str()));
    assert_eq!(request.header("content-type"), Some("application/json"));

    // The same over the API, in the status, as a metric and on the command line.
    let alerts = gateway.json("/api/v1/alerts");
    let listed = of_kind(&alerts["firing"], "backlog_age");
    assert_eq!(listed.len(), 1, "{alerts}");
    assert_eq!(listed[0]["groups"], serde_json::json!(["quiet-store"]), "{alerts}");
    assert_eq!(of_kind(&gateway.json("/api/v1/status")["alerts"], "backlog_age").len(), 1);
    assert_eq!(gateway.metric(r#"fairlane_alerts_firing{alert="backlog_age"}"#), Some(1.0));
    assert_eq!(
        gateway.metric("fairlane_groups_over_age"),
        Some(2.0),
        "the age is the setting's; the metric takes all groups"
    );
    let shown = fairlane(&gateway, &["alerts"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("ticket backlog_age") && shown.contains("\n  fairlane groups set quiet-store --concurrency 2\n"),
        "{shown}"
    );

    // What it says to press is what helps.
    let pressed = fairlane(&gateway, &["groups", "set", "quiet-store", "--concurrency", "2"]);
    assert!(pressed.status.success(), "{pressed:?}");
    gateway.wait_for_status(&waiting, "delivered");
    gate.open();
    let resolved = heard(&told, "backlog_age", "resolved");
    assert_eq!(resolved["fired_at"], firing["fired_at"]);
    assert!(resolved["resolved_at"].is_string(), "{resolved}");
    let messages = told.received().iter().map(message).collect();
    assert_eq!(of_kind(&messages, "backlog_age").len(), 2, "each once: {messages}");
    let alerts = gateway.json("/api/v1/alerts");
    assert!(of_kind(&alerts["firing"], "backlog_age").is_empty(), "{alerts}");
    assert_eq!(of_kind(&alerts["resolved"], "backlog_age")[0]["state"], "resolved");
    assert_eq!(gateway.metric(r#"fairlane_alerts_total{alert="backlog_age"}"#), Some(1.0));
    pause(&gateway, "paused-store", false);
    gateway.wait_for_status(&paused, "delivered");

    assert!(!gateway.stderr().contains(HUSH), "the address is a secret: {}", gateway.stderr());
    let checked = fairlane_check(&gateway.config());
    assert!(checked.contains("webhook: \"***\"") && !checked.contains(HUSH), "{checked}");
}

fn fairlane_check(config: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlane")).args(["check", "-c"]).arg(config).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_receiver_that_fails_is_tried_again_and_a_slow_one_delays_nobodys_events() {
    let gate = Gate::default();
    let receiver = gate.upstream();
    let tries = AtomicUsize::new(0);
    let told = upstream(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => answer(500).body("not now"),
        // The slowness is the subject; nothing is waited for.
        _ => answer(200).after(Duration::from_secs(3)),
    });
    let gateway = gateway(&yaml(&receiver, Some(&told))).start();
    stick(&gateway, "stuck");
    let received = told.wait_for(2);
    assert_eq!(message(&received[0]), message(&received[1]), "the same message again");

    // The second try is under way; events go on meanwhile.
    for _ in 0..20 {
        let id = send(&gateway, "other");
        gateway.wait_for_status(&id, "delivered");
    }
    assert_eq!(told.most_in_flight(), 1);
    assert_eq!(of_kind(&gateway.json("/api/v1/alerts")["firing"], "backlog_age")[0]["subject"], "stuck");
    while gateway.metric(r#"fairlane_alert_posts_total{outcome="sent"}"#).is_none_or(|sent| sent < 1.0) {
        std::thread::yield_now();
    }
}

/// A receiver that shows what fires would show it twice, or for ever.
#[test]
fn what_fires_is_not_told_again_after_a_crash_and_its_end_is() {
    let gate = Gate::default();
    let (receiver, told) = (gate.upstream(), upstream(|_| answer(200)));
    let yaml = yaml(&receiver, Some(&told));
    let before = gateway(&yaml).start();
    let waiting = stick(&before, "quiet-store");
    let firing = heard(&told, "backlog_age", "firing");
    let listed = |gateway: &Gateway| of_kind(&gateway.json("/api/v1/alerts")["firing"], "backlog_age");
    let fired_at = listed(&before)[0]["fired_at"].clone();
    let kept = before.dir().join("data/alerts.json");
    while !std::fs::read_to_string(&kept).is_ok_and(|lines| lines.contains("quiet-store")) {
        std::thread::yield_now();
    }

    let after = gateway(&yaml).again_in(before.kill()).start();
    assert_eq!(listed(&after)[0]["fired_at"], fired_at, "at once, and since when it was");
    while after.metric(r#"fairlane_alerts_firing{alert="backlog_age"}"#) != Some(1.0) {
        std::thread::yield_now();
    }
    gate.open();
    after.wait_for_status(&waiting, "delivered");
    assert_eq!(heard(&told, "backlog_age", "resolved")["fired_at"], firing["fired_at"]);
    let messages = told.received().iter().map(message).collect();
    assert_eq!(of_kind(&messages, "backlog_age").len(), 2, "each once: {messages}");
    assert_eq!(after.stop().0.code(), Some(0));
}

#[test]
fn a_test_message_says_whether_it_was_taken() {
    let (receiver, told) = (upstream(|_| answer(200)), upstream(|_| answer(200)));
    let mut gateway = gateway(&yaml(&receiver, None)).start();
    let output = fairlane(&gateway, &["alerts", "test"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("alerts.webhook is not set"), "{output:?}");

    // A reload gives it an address.
    std::fs::write(gateway.config(), yaml(&receiver, Some(&told))).unwrap();
    while !fairlane(&gateway, &["alerts", "test"]).status.success() {
        assert!(gateway.child.try_wait().unwrap().is_none(), "the gateway lives");
    }
    assert_eq!(message(&told.wait_for(1)[0])["state"], "test");

    told.rule(|_| answer(403).body("no_service"));
    let output = fairlane(&gateway, &["alerts", "test", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["sent"], false);
    let error = said["error"].as_str().unwrap();
    assert!(error.contains("403 no_service") && error.contains("127.0.0.1") && !error.contains(HUSH), "{error}");
}

#[test]
fn a_configuration_that_is_refused_is_told_of_until_it_is_mended() {
    let (receiver, told) = (upstream(|_| answer(200)), upstream(|_| answer(200)));
    let good = yaml(&receiver, Some(&told));
    let gateway = gateway(&good).start();
    std::fs::write(gateway.config(), "sources: nonsense\n").unwrap();
    assert_eq!(heard(&told, "configuration_refused", "firing")["command"], "fairlane check");
    std::fs::write(gateway.config(), good).unwrap();
    heard(&told, "configuration_refused", "resolved");
}

/// What the documentation says to press can be pressed.
#[test]
fn every_command_of_the_documented_table_is_one() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.md")).unwrap();
    let mut count = 0;
    for code in page.lines().filter(|line| line.starts_with("| `")).flat_map(|line| line.split('`').skip(1).step_by(2))
    {
        if !code.starts_with("fairlane ") {
            continue;
        }
        count += 1;
        let words =
            code.split(' ').map(|word| word.trim_matches('\'')).map(|word| if word == "N" { "4" } else { word });
        let parsed = fairlane::cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{code}: {}", parsed.unwrap_err());
    }
    assert!(count >= 19, "{count} commands");
}
