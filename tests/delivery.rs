//! Through the lanes to the upstream, through the real binary: what arrives, what follows, and that nobody waits for another's
//! trouble.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use support::upstream::{Received, Upstream, answer, upstream};
use support::{Gateway, gateway, get, post};

const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn yaml(upstream: &Upstream, more: &str) -> String {
    format!(
        "upstream:\n  url: {}\n  signing_secret: {SIGNING}\n{more}\nsources:\n  - path: /any/*\n    verify: {{ provider: none }}\n    \
         key: headers.x-key\n",
        upstream.url()
    )
}

fn send(gateway: &Gateway, key: &str, body: &[u8]) -> String {
    let response = gateway.client().send(&post("/any/x", body).header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

fn status(gateway: &Gateway, id: &str) -> String {
    gateway.json(&format!("/api/v1/events/{id}"))["status"].as_str().unwrap().to_owned()
}

#[test]
fn what_arrives_is_what_was_sent_with_our_headers_and_nothing_that_could_pass_for_them() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let body: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let request = post("/any/a%20b/c?x=1&y=%2F..", &body)
        .header("X-Key", "café")
        .header("X-Multi", "1")
        .header("x-other", "o")
        .header("X-MULTI", "2")
        .header("Content-Type", "application/octet-stream")
        .header("Fairlane-Group", "forged")
        .header("fairlane_event_id", "forged")
        .header("X-Forwarded-For", "6.6.6.6")
        .header("Connection", "X-Hop")
        .header("X-Hop", "gone")
        .header("TE", "trailers")
        .chunked(7_000);
    let id = gateway.client().send(&request).header("fairlane-event-id").unwrap().to_owned();
    let received = receiver.wait_for(1).remove(0);

    assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", "/any/a%20b/c?x=1&y=%2F.."));
    assert_eq!(Sha256::digest(&received.body), Sha256::digest(&body));
    assert_eq!(received.all("content-length"), [body.len().to_string()]);
    assert_eq!(received.all("x-multi"), ["1", "2"]);
    assert_eq!(received.header("content-type"), Some("application/octet-stream"));
    for gone in ["transfer-encoding", "te", "x-hop", "fairlane_event_id"] {
        assert_eq!(received.header(gone), None, "{gone}");
    }
    assert_eq!(received.all("fairlane-event-id"), [id.as_str()]);
    assert_eq!(received.all("fairlane-group"), ["caf%C3%A9"]);
    assert_eq!(received.header("fairlane-source"), Some("/any/*"));
    assert_eq!(received.header("fairlane-attempt"), Some("1"));
    assert_eq!(received.header("fairlane-will-retry"), Some("true"));
    assert_eq!(received.header("fairlane-verified"), Some("none"));
    assert!(received.header("fairlane-received-at").unwrap().contains('T'));
    assert!(received.header("fairlane-wait-ms").unwrap().parse::<u64>().is_ok());
    assert!(received.header("fairlane-wait-reason").is_some());
    assert_eq!(received.header("fairlane-replay"), None);
    assert_eq!(received.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(received.header("x-forwarded-proto"), Some("http"));
    assert_eq!(received.header("x-forwarded-host"), Some("hooks.test"));
    assert_eq!(received.header("host"), Some(receiver.address.to_string().as_str()));
    gateway.wait_for_status(&id, "delivered");

    // The library takes text alone.
    send(&gateway, "a", "{\"name\":\"café\"}".as_bytes());
    verify_with_the_library(&receiver.wait_for(2).remove(1));
}

/// The signature is checked by the library that receivers use.
fn verify_with_the_library(received: &Received) {
    let webhook = standardwebhooks::Webhook::new(SIGNING).unwrap();
    let mut headers = http::HeaderMap::new();
    for (theirs, ours) in [
        ("webhook-id", "fairlane-event-id"),
        ("webhook-timestamp", "fairlane-timestamp"),
        ("webhook-signature", "fairlane-signature"),
    ] {
        headers.insert(theirs, received.header(ours).unwrap().parse().unwrap());
    }
    webhook.verify(&received.body, &headers).unwrap();
    let mut other = received.body.clone();
    other.push(b' ');
    assert!(webhook.verify(&other, &headers).is_err());
}

#[test]
fn a_failure_is_tried_again_a_refusal_is_dead_at_once_and_each_attempt_is_remembered() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let receiver = upstream(move |received| match received.group() {
        "flaky" if counted.fetch_add(1, Ordering::SeqCst) < 2 => answer(503).body("not now"),
        "gone" => answer(410).body("never"),
        "unwanted" => answer(500).header("Retry-After", "-1"),
        "moved" => answer(301).header("Location", "/elsewhere"),
        _ => answer(204),
    });
    let retry = "  retry: { attempts: 2, backoff: { initial: 10ms, max: 20ms } }";
    let gateway = gateway(&yaml(&receiver, retry)).start();
    let flaky = send(&gateway, "flaky", b"1");
    let event = gateway.wait_for_status(&flaky, "delivered");
    assert_eq!(event["attempts"], 3);
    let outcomes: Vec<_> = event["tries"].as_array().unwrap().iter().map(|t| t["status"].as_u64().unwrap()).collect();
    assert_eq!(outcomes, [503, 503, 204]);
    assert_eq!(event["tries"][0]["answer"], "not now");
    let attempts: Vec<_> =
        receiver.received().iter().map(|r| r.header("fairlane-attempt").unwrap().to_owned()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    let ids: std::collections::HashSet<_> =
        receiver.received().iter().map(|r| r.header("fairlane-event-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1, "the event id is the same on every attempt");

    for key in ["gone", "unwanted"] {
        let id = send(&gateway, key, b"1");
        let event = gateway.wait_for_status(&id, "dead");
        assert_eq!(event["attempts"], 1, "{key}");
        assert!(!event["reason"].as_str().unwrap().is_empty());
    }
    // Not followed, and tried again like any failure.
    let moved = send(&gateway, "moved", b"1");
    receiver.wait_until(|all| all.iter().filter(|r| r.group() == "moved").count() >= 2);
    assert!(receiver.received().iter().all(|r| r.target != "/elsewhere"));
    assert_ne!(status(&gateway, &moved), "dead");
    assert_eq!(gateway.metric(r#"fairlane_events_delivered_total{source="/any/*"}"#), Some(1.0));
    assert_eq!(gateway.metric(r#"fairlane_events_dead_total{source="/any/*"}"#), Some(2.0));
}

#[test]
fn an_upstream_that_is_away_loses_nothing() {
    // Bound and closed again: nobody listens there for now.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let yaml = format!(
        "upstream: {{ url: \"http://{address}\", retry: {{ backoff: {{ initial: 20ms, max: 50ms }} }} }}\n\
         sources: [{{ path: /any/*, verify: {{ provider: none }}, key: headers.x-key }}]\n"
    );
    let gateway = gateway(&yaml).start();
    let id = send(&gateway, "a", b"1");
    let event = loop {
        let event = gateway.json(&format!("/api/v1/events/{id}"));
        if !event["tries"].as_array().unwrap().is_empty() {
            break event;
        }
        std::thread::yield_now();
    };
    assert_eq!(event["tries"][0]["outcome"], "refused", "{event:#}");
    assert!(event["tries"][0]["error"].as_str().unwrap().contains(&address.to_string()), "{event:#}");
    assert_eq!(gateway.client().send(&post("/any/x", b"2").header("X-Key", "b")).status, 200);
    let receiver = support::upstream::upstream_at(address, |_| answer(200));
    receiver.wait_for(2);
    gateway.wait_for_status(&id, "delivered");
}

#[test]
fn a_receiver_that_is_dead_is_said_once_in_the_log_and_shown_with_its_error_until_it_answers() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let yaml = format!(
        "upstream: {{ url: \"http://{address}\" }}\n\
         sources: [{{ path: /any/*, verify: {{ provider: none }}, key: headers.x-key }}]\n"
    );
    let gateway = gateway(&yaml).start();
    assert_eq!(gateway.json("/api/v1/upstream")["last_failure"], serde_json::Value::Null);
    for number in 0..40 {
        send(&gateway, &format!("g{}", number % 4), b"1");
    }
    let lines = |text: &str| gateway.stderr().lines().filter(|line| line.contains(text)).count();
    while lines("the upstream's breaker opened: events wait; none is lost") == 0 {
        std::thread::yield_now();
    }
    let log = gateway.stderr();
    let line = log.lines().find(|line| line.contains("upstream's breaker opened")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["level"], line["groups"].as_u64() >= Some(3)), (&"WARN".into(), true), "{line}");
    assert!(line["last_error"].as_str().unwrap().contains(&address.to_string()), "{line}");
    assert!(line["failures"].as_u64().unwrap() >= 20, "{line}");

    let shown = gateway.json("/api/v1/upstream");
    assert_eq!(shown["last_success"], serde_json::Value::Null, "{shown:#}");
    assert!(shown["last_failure"]["error"].as_str().unwrap().contains("refused"), "{shown:#}");
    assert!(shown["last_failure"]["at"].as_str().unwrap().ends_with('Z'), "{shown:#}");

    let receiver = support::upstream::upstream_at(address, |_| answer(200));
    receiver.wait_for(40);
    while lines("the upstream answers again") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(
        (lines("upstream's breaker opened"), lines("the upstream answers again")),
        (1, 1),
        "{}",
        gateway.stderr()
    );
    assert!(gateway.json("/api/v1/upstream")["last_success"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn an_event_that_is_dead_is_named_in_the_log_with_its_group() {
    let receiver = upstream(|_| answer(410));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let id = send(&gateway, "shop é", b"1");
    gateway.wait_for_status(&id, "dead");
    let log = gateway.stderr();
    let line = log.lines().find(|line| line.contains("went to the dead letters")).unwrap_or_else(|| panic!("{log}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["id"], &line["group"]), (&id.into(), &"shop%20%C3%A9".into()), "{line}");
}

#[test]
fn a_group_that_was_never_seen_can_be_changed_and_the_answer_says_so() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let id = send(&gateway, "acme-store", b"1");
    gateway.wait_for_status(&id, "delivered");
    let patch = |name: &str| {
        let answer = gateway.change("PATCH", &format!("/api/v1/group?name={name}"), r#"{"weight":2,"expires":"2h"}"#);
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_str::<serde_json::Value>(&answer.text()).unwrap()
    };
    for near in ["Acme-Store", "acme-stroe"] {
        let note = patch(near)["note"].as_str().unwrap_or_default().to_owned();
        assert_eq!(note, "no event of this group was seen yet; did you mean \"acme-store\"?");
    }
    assert_eq!(patch("entirely-different")["note"], "no event of this group was seen yet");
    let known = patch("acme-store");
    assert_eq!(known["note"], serde_json::Value::Null, "{known:#}");
    assert_eq!(known["override"]["weight"], 2.0, "{known:#}");
    assert!(known["override"]["expires"].as_str().unwrap().ends_with('Z'), "{known:#}");
    assert_eq!(gateway.json("/api/v1/group?name=other")["override"], serde_json::Value::Null);
}

#[test]
fn each_part_of_a_change_ends_by_itself_and_a_resume_leaves_the_others() {
    let receiver = upstream(|_| answer(200));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let patch = |name: &str, change: &str| {
        let answer = gateway.change("PATCH", &format!("/api/v1/group?name={name}"), change);
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_str::<serde_json::Value>(&answer.text()).unwrap()["override"].clone()
    };
    let null = serde_json::Value::Null;
    patch("kept", r#"{"weight":4,"expires":"never"}"#);
    let change = patch("kept", r#"{"paused":true,"expires":"2s"}"#);
    assert_eq!((&change["weight"], &change["ends"]["weight"]), (&4.0.into(), &null), "{change:#}");
    assert!(change["ends"]["paused"].is_string() && change["ends"]["paused"] == change["expires"], "{change:#}");
    while gateway.json("/api/v1/group?name=kept")["paused"] == true {
        std::thread::yield_now();
    }
    let listed = &gateway.json("/api/v1/overrides")["overrides"][0];
    let left = serde_json::json!({ "group": "kept", "weight": 4.0, "expires": null, "ends": { "weight": null } });
    assert_eq!(*listed, left);

    patch("kept", r#"{"paused":true}"#);
    let change = patch("kept", r#"{"paused":false}"#);
    assert_eq!(change, serde_json::json!({ "weight": 4.0, "expires": null, "ends": { "weight": null } }));
    assert_eq!(patch("other", r#"{"paused":false}"#), null, "nothing paused it");

    let whole = |change: &str| assert_eq!(gateway.change("PATCH", "/api/v1/upstream", change).status, 200);
    whole(r#"{"concurrency":3,"expires":"never"}"#);
    whole(r#"{"paused":true}"#);
    assert!(gateway.json("/api/v1/upstream")["change"]["ends"]["paused"].is_string());
    whole(r#"{"paused":false}"#);
    let change = gateway.json("/api/v1/upstream")["change"].clone();
    assert_eq!(change, serde_json::json!({ "concurrency": 3, "expires": null, "ends": { "concurrency": null } }));
}

/// Waits of one group's events, as the receiver was told, in milliseconds, sorted.
/// How often the receiver was asked by all, and at which number each event of a quiet store came. A wait is counted by what was served
/// meanwhile and not by a clock: so it is the same on a machine that has other things to do.
#[derive(Clone, Default)]
struct Arrivals(Arc<(Mutex<Arrived>, Condvar)>);

#[derive(Default)]
struct Arrived {
    all: usize,
    quiet: HashMap<String, usize>,
}

impl Arrivals {
    fn note(&self, received: &Received) {
        let mut arrived = self.0.0.lock().unwrap();
        arrived.all += 1;
        if is_quiet(received) {
            let number = arrived.all;
            arrived.quiet.insert(received.header("fairlane-event-id").unwrap().to_owned(), number);
        }
        self.0.1.notify_all();
    }

    fn count(&self) -> usize {
        self.0.0.lock().unwrap().all
    }

    fn wait_until<T>(&self, what: impl Fn(&Arrived) -> Option<T>) -> T {
        let waited = self.0.1.wait_while(self.0.0.lock().unwrap(), |arrived| what(arrived).is_none()).unwrap();
        what(&waited).unwrap()
    }
}

fn is_quiet(received: &Received) -> bool {
    !["noisy", "hangs", "limited", "fails"].iter().any(|loud| received.group().starts_with(loud))
}

/// Connections of a flood: enough for batches that fill faster than the receiver empties them.
const FLOODERS: usize = 32;

/// Sends from several threads over kept connections.
fn flood(gateway: &Gateway, groups: usize, events: usize) {
    std::thread::scope(|scope| {
        for sender in 0..FLOODERS {
            let mut client = gateway.client();
            scope.spawn(move || {
                for number in (sender..events).step_by(FLOODERS) {
                    let key = format!("noisy-{}", number % groups);
                    let response = client.send(&post("/any/x", b"{\"flood\":true}").header("X-Key", key));
                    assert_eq!(response.status, 200, "{}", response.text());
                }
            });
        }
    });
}

/// Bursts of five of a quiet store, each after the one before has arrived whole and `apart` more were served. The answer is the most that
/// were served between the 2xx of an event and its own turn.
fn bursts(gateway: &Gateway, arrivals: &Arrivals, group: &str, bursts: usize, apart: usize) -> usize {
    let mut client = gateway.client();
    let (mut most, mut next) = (0, 0);
    for _ in 0..bursts {
        arrivals.wait_until(|arrived| (arrived.all >= next).then_some(()));
        next = arrivals.count() + apart;
        let sent: Vec<(String, usize)> = std::iter::repeat_with(|| {
            let response = client.send(&post("/any/x", b"{}").header("X-Key", group));
            assert_eq!(response.status, 200);
            (response.header("fairlane-event-id").unwrap().to_owned(), arrivals.count())
        })
        .take(5)
        .collect();
        for (id, accepted) in sent {
            let came = arrivals.wait_until(|arrived| arrived.quiet.get(&id).copied());
            most = most.max(came.saturating_sub(accepted));
        }
    }
    most
}

/// A number in the environment, for the full size of a test.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// 30 slots of 50 ms are 600 events a second.
const SLOTS: usize = 30;
const ATTEMPT: Duration = Duration::from_millis(50);

/// What a quiet store that sends `count` bursts of five waits for beside `groups` floods of `events` in all.
#[expect(clippy::print_stdout, reason = "the figures, shown with --nocapture")]
fn beside_floods(groups: usize, events: usize, count: usize) {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let receiver = upstream(move |received| {
        noted.note(received);
        answer(200).after(ATTEMPT)
    });
    let receiver = receiver.keeping(is_quiet);
    let gateway = gateway(&yaml(&receiver, &format!("  concurrency: {SLOTS}"))).start();
    flood(&gateway, groups, events);
    // It takes half of its share: while it is served five events, each of the others is served ten. Shares are of time, and the calls of
    // one may take longer than another's.
    let behind = bursts(&gateway, &arrivals, "quiet", count, 10 * (groups + 1));
    let backlog = gateway.json("/api/v1/status")["backlog"]["events"].as_u64().unwrap();
    let mut waits: Vec<u64> =
        receiver.received().iter().map(|r| r.header("fairlane-wait-ms").unwrap().parse().unwrap()).collect();
    waits.sort_unstable();
    let longest = waits.last().unwrap();
    println!("{groups} floods of {events} events: quiet at most behind {behind}, {longest} ms; {backlog} still wait");
    assert!(backlog > 100, "the flood was over before the quiet store was measured: {backlog} left");
    // One attempt of all slots; four for bursts of five where many others flood; and what was on its way.
    let allowed = SLOTS * if groups == 1 { 2 } else { 5 };
    assert!(behind <= allowed, "{groups} floods: behind {behind}, allowed {allowed}");
}

/// `FLOOD=100000 cargo test --release --test delivery` is the full size of this and the next; a debug build takes a part of it.
#[test]
fn a_flood_delays_only_its_own_store() {
    beside_floods(1, number("FLOOD", 50_000), 6);
}

/// While a quiet store sends a burst within its share, each of 500 floods is served five events too: so many have to wait.
#[test]
fn five_hundred_floods_delay_only_their_own_stores() {
    let groups = number("FLOODS", 500);
    beside_floods(groups, number("FLOOD", groups * 50), 3);
}

#[test]
fn groups_whose_calls_hang_or_fail_leave_the_others_alone() {
    let arrivals = Arrivals::default();
    let noted = arrivals.clone();
    let receiver = upstream(move |received| {
        noted.note(received);
        match received.group() {
            "hangs" => answer(200).after(Duration::from_hours(1)),
            "limited" => answer(429).header("Retry-After", "3600"),
            "fails" => answer(500),
            _ => answer(200).after(Duration::from_millis(20)),
        }
    });
    let gateway = gateway(&yaml(&receiver, "  concurrency: 16")).start();
    for number in 0..50 {
        for key in ["hangs", "limited", "fails"] {
            send(&gateway, key, number.to_string().as_bytes());
        }
    }
    // That they arrive at all, while calls hang for an hour, is the most of it.
    let behind = bursts(&gateway, &arrivals, "quiet", 20, 0);
    assert!(behind <= 16, "a quiet store waited behind {behind} attempts beside others that hang and fail");
    let upstream = gateway.json("/api/v1/upstream");
    assert_eq!(upstream["breaker"]["state"], "closed", "{upstream:#}");
    let groups = gateway.json("/api/v1/groups");
    let state = |name: &str| {
        let all = groups["groups"].as_array().unwrap();
        all.iter().find(|g| g["group"] == name).unwrap_or_else(|| panic!("{name} is not in {groups:#}"))["state"]
            .clone()
    };
    assert_eq!(state("limited"), "held", "{groups:#}");
    assert_eq!(state("fails"), "broken", "{groups:#}");
    // Asked once, and then left alone as it said.
    let limited = receiver.received().iter().filter(|r| r.group() == "limited").count();
    assert!(limited <= 2, "{limited} requests to a group that asked for an hour");
}

/// The slots are sixteen, slow groups may hold eight and one group two: more than ten that turn out to be slow are an outbreak.
#[test]
fn very_many_groups_that_turn_slow_at_once_are_shown_as_an_outbreak_until_it_is_over() {
    let receiver = upstream(|_| answer(200).after(Duration::from_secs(2)));
    let gateway = gateway(&yaml(&receiver, "  concurrency: 16\n  timeout: 3s")).start();
    assert_eq!(gateway.metric("fairlane_outbreak"), Some(0.0));
    let ids: Vec<String> = (0..16).map(|number| send(&gateway, &format!("store-{number}"), b"{}")).collect();
    let wait_for = |wanted: f64| {
        while gateway.metric("fairlane_outbreak") != Some(wanted) {
            std::thread::yield_now();
        }
    };
    wait_for(1.0);
    assert_eq!(gateway.json("/api/v1/upstream")["outbreak"], true);
    for id in ids {
        gateway.wait_for_status(&id, "delivered");
    }
    wait_for(0.0);
    assert_eq!(gateway.json("/api/v1/upstream")["outbreak"], false);
}

#[test]
fn a_group_is_paused_and_changed_live_on_queued_events() {
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(50)));
    let gateway = gateway(&yaml(&receiver, "  concurrency: 8")).start();
    let patch = |body: &str| gateway.change("PATCH", "/api/v1/group?name=a", body);
    let answer = patch(r#"{"paused":true}"#);
    assert_eq!(answer.status, 200, "{}", answer.text());
    for number in 0..20 {
        send(&gateway, "a", number.to_string().as_bytes());
    }
    let other = send(&gateway, "b", b"1");
    gateway.wait_for_status(&other, "delivered");
    assert!(receiver.received().iter().all(|r| r.group() == "b"), "a paused group was delivered");
    let group = gateway.json("/api/v1/group?name=a");
    assert_eq!((&group["state"], &group["queued"]), (&"paused".into(), &20.into()), "{group:#}");
    assert_eq!(patch(r#"{"paused":false,"concurrency":3}"#).status, 200);
    receiver.wait_until(|all| all.iter().filter(|r| r.group() == "a").count() == 20);
    assert!(receiver.most_in_flight() <= 3, "{} at a time, the cap is 3", receiver.most_in_flight());
    let all = receiver.received();
    let mut first = all.iter().filter(|r| r.group() == "a").take(3).map(|r| r.body.as_slice());
    // Three begin together, and it is the network's which of them is there first.
    assert!(first.any(|body| body == b"0"), "the lane's order is that of commits");

    for (bad, why) in [(r#"{"weigth":2}"#, "weigth"), (r#"{"weight":-1}"#, "weight"), ("{", "JSON")] {
        let refused = patch(bad);
        assert_eq!(refused.status, 400, "{bad}");
        assert!(refused.text().contains(why), "{bad}: {}", refused.text());
    }
    // It survives a restart.
    let (_, dir) = gateway.stop();
    let again = support::gateway(&yaml(&receiver, "  concurrency: 8")).again_in(dir).start();
    assert_eq!(again.json("/api/v1/group?name=a")["concurrency"], 3);
}

#[test]
fn a_change_of_the_upstream_acts_on_queued_events_outlives_a_restart_and_is_taken_back() {
    const PATH: &str = "/api/v1/upstream";
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(50)));
    let yaml = yaml(&receiver, "  concurrency: 8");
    let first = gateway(&yaml).start();
    assert_eq!(first.change("PATCH", PATH, r#"{"paused":true}"#).status, 200);
    for number in 0..24 {
        // Three groups with a cap of one each, which is an eighth of eight.
        send(&first, &format!("g{}", number % 3), b"1");
    }
    assert_eq!(first.json("/api/v1/group?name=g0")["accepted"], 8);
    assert!(first.stderr().lines().any(|line| line.contains("audit") && line.contains("paused")), "{}", first.stderr());
    let (_, dir) = first.stop();

    let again = gateway(&yaml).again_in(dir).start();
    let shown = again.json(PATH);
    assert_eq!((&shown["paused"], &shown["concurrency"]), (&true.into(), &8.into()), "{shown:#}");
    let group = again.json("/api/v1/group?name=g0");
    assert!(group["oldest_age_s"].as_f64().unwrap() > 0.0 && group["queued"] == 8, "nothing was read yet: {group:#}");
    assert_eq!(receiver.count(), 0);
    // All at once, and two at a time: not one event goes between the two.
    let answer = again.change("PATCH", PATH, r#"{"paused":false,"concurrency":2,"expires":"2h"}"#);
    assert_eq!(answer.status, 200, "{}", answer.text());
    receiver.wait_for(24);
    assert_eq!(receiver.most_in_flight(), 2);
    let group = again.json("/api/v1/group?name=g0");
    assert_eq!((&group["accepted"], &group["oldest_age_s"].as_f64().is_some()), (&0.into(), &true), "{group:#}");

    assert_eq!(again.change("PATCH", PATH, "{}").status, 400);
    assert_eq!(again.change("DELETE", PATH, "").status, 200);
    let shown = again.json(PATH);
    assert_eq!((&shown["concurrency"], &shown["change"]), (&8.into(), &serde_json::Value::Null), "{shown:#}");
}

#[test]
fn kill_9_with_a_failing_upstream_delivers_everything_and_repeats_only_what_was_under_way() {
    let rounds: usize = std::env::var("CRASH_ROUNDS").map_or(5, |text| text.parse().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let delivered: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let told = Arc::clone(&delivered);
    let receiver = upstream(move |received| {
        if counted.fetch_add(1, Ordering::SeqCst).is_multiple_of(5) {
            return answer(500);
        }
        *told.lock().unwrap().entry(received.header("fairlane-event-id").unwrap().to_owned()).or_default() += 1;
        answer(200).after(Duration::from_millis(2))
    });
    let slots = 8;
    let yaml =
        yaml(&receiver, &format!("  concurrency: {slots}\n  retry: {{ backoff: {{ initial: 10ms, max: 50ms }} }}"));
    let mut accepted = Vec::new();
    let mut dir = None;
    for _ in 0..rounds {
        let builder = gateway(&yaml);
        let gateway = match dir.take() {
            Some(dir) => builder.again_in(dir).start(),
            None => builder.start(),
        };
        let mut client = gateway.client();
        for number in 0..200 {
            let response = client.send(&post("/any/x", b"{}").header("X-Key", format!("g{}", number % 7)));
            assert_eq!(response.status, 200);
            accepted.push(response.header("fairlane-event-id").unwrap().to_owned());
        }
        dir = Some(gateway.kill());
    }
    let gateway = gateway(&yaml).again_in(dir.unwrap()).start();
    loop {
        let delivered = delivered.lock().unwrap();
        if accepted.iter().all(|id| delivered.contains_key(id)) {
            break;
        }
        drop(delivered);
        std::thread::yield_now();
    }
    while gateway.json("/api/v1/status")["backlog"]["events"] != 0 {
        std::thread::yield_now();
    }
    let repeated: usize = delivered.lock().unwrap().values().map(|count| count - 1).sum();
    println!("{} events, {rounds} kills, {repeated} delivered twice", accepted.len());
    // In flight, or delivered with the settlement not durable: at most the slots, and what one batch settles.
    assert!(repeated <= rounds * slots * 4, "{repeated} events were delivered twice");
    assert_eq!(support::Client::to(gateway.admin).send(&get("/healthz")).status, 200);
}
