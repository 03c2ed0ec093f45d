//! A wall clock that is set by hours under a running gateway, back and forth, and dates beyond those that 32 bits can count. What waits
//! waits on the other clock; the wall clock stamps, judges signatures, and ends what was given an end by it.
//!
//! The clock is moved beneath the process (`tests/support/faults.c`); the machine's own stays.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "how far a given date is away")]

mod support;

use std::collections::BTreeSet;
use std::time::SystemTime;

use support::faults::Faults;
use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, Response, gateway, hex, hmac_sha256, post};
use tempfile::TempDir;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// More than a lane keeps in memory: the others wait in the store.
const EVENTS: usize = 150;

struct World {
    faults: Faults,
    receiver: Upstream,
    yaml: String,
    gateway: Option<Gateway>,
}

impl World {
    /// `retry` is the backoff of a receiver that answers `status`.
    fn new(status: u16, retry: &str, rest: &str) -> Self {
        let receiver = upstream(move |_| answer(status));
        let yaml = format!(
            "upstream: {{ url: \"{}\", retry: {{ backoff: {retry} }} }}\n\
             sources:\n  - {{ path: /any, verify: {{ provider: none }}, key: headers.x-key, \
             dedupe: {{ key: headers.x-id, window: 24h }} }}\n{rest}",
            receiver.url()
        );
        let mut world = Self { faults: Faults::new(), receiver, yaml, gateway: None };
        world.start(tempfile::tempdir().unwrap());
        world
    }

    fn start(&mut self, dir: TempDir) {
        let wrapper = self.faults.wrapper(&dir.path().canonicalize().unwrap().join("data"));
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        self.gateway = Some(gateway(&self.yaml).again_in(dir).through(&wrapper).start());
    }

    fn kill(&mut self) -> TempDir {
        self.gateway.take().unwrap().kill()
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().unwrap()
    }

    fn send(&self, key: &str, id: &str) -> Response {
        let request = post("/any", id.as_bytes()).header("x-key", key).header("x-id", id);
        self.gateway().client().send(&request)
    }

    fn accepted(&self, key: &str, id: &str) -> String {
        let response = self.send(key, id);
        assert_eq!(response.status, 200, "{}", response.text());
        response.header("fairlane-event-id").unwrap().to_owned()
    }

    fn accepted_many(&self, key: &str) -> Vec<String> {
        (0..EVENTS).map(|number| self.accepted(key, &format!("{key}-{number}"))).collect()
    }

    /// The machine's clock in seconds since 1970, as the gateway has it.
    fn now(&self, offset: i64) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        i64::try_from(now.as_secs()).unwrap() + offset
    }

    fn books_hold(&self) {
        for name in ["fairlane_invariant_violations_total ", "fairlane_retries_overdue "] {
            assert_eq!(self.gateway().metric(name), Some(0.0), "{name}");
        }
    }
}

#[test]
fn retries_go_on_in_their_time_whichever_way_the_clock_is_set() {
    for offset in [-6 * HOUR, 6 * HOUR] {
        // 429 opens no breaker: what waits waits for its time alone.
        let world = World::new(429, "{ initial: 2s, factor: 1, max: 2s }", "");
        let ids = world.accepted_many("a");
        world.receiver.wait_for(EVENTS);
        world.faults.set_clock_by(offset);
        let before = world.receiver.count();
        world.receiver.wait_for(before + 2 * EVENTS);
        world.receiver.rule(|_| answer(200));
        for id in &ids {
            world.gateway().wait_for_status(id, "delivered");
        }
        world.books_hold();
    }
}

#[test]
fn retries_do_not_come_early_when_the_clock_is_set_forth() {
    let world = World::new(429, "{ initial: 1h, factor: 1, max: 1h }", "");
    let waiting: Vec<String> = (0..20).map(|number| world.accepted("a", &number.to_string())).collect();
    for id in &waiting {
        world.gateway().wait_for_status(id, "retrying");
    }
    world.receiver.rule(|_| answer(200));
    for offset in [6 * HOUR, -6 * HOUR, 0] {
        world.faults.set_clock_by(offset);
        for number in 0..20 {
            let id = world.accepted("a", &format!("{offset}-{number}"));
            world.gateway().wait_for_status(&id, "delivered");
        }
    }
    assert_eq!(world.receiver.count(), 20 + 3 * 20, "none of those that wait came");
    world.books_hold();
}

#[test]
fn a_start_after_the_clock_was_set_back_finds_times_that_lie_ahead_and_goes_on() {
    let mut world = World::new(429, "{ initial: 2s, factor: 1, max: 2s }", "");
    let ids = world.accepted_many("a");
    world.receiver.wait_for(EVENTS);
    let dir = world.kill();
    world.faults.set_clock_by(-6 * HOUR);
    world.receiver.rule(|_| answer(200));
    world.start(dir);
    let age = world.gateway().json("/api/v1/status")["backlog"]["oldest_age_s"].as_f64().unwrap();
    assert!(age < 3_600.0, "{age}");
    let fresh = world.accepted("b", "fresh");
    for id in ids.iter().chain([&fresh]) {
        world.gateway().wait_for_status(id, "delivered");
    }
    assert_eq!(world.gateway().events("").len(), EVENTS + 1);
    world.books_hold();
}

#[test]
fn a_wrong_date_takes_no_history_with_it() {
    let world = World::new(410, "{}", "");
    let dead = world.accepted("a", "one");
    world.gateway().wait_for_status(&dead, "dead");
    // A dead letter is kept for 30 days.
    world.faults.set_clock_by(400 * DAY);
    while !world.gateway().stderr().contains("the clock was set") {
        std::thread::yield_now();
    }
    let later = world.accepted("a", "two");
    world.gateway().wait_for_status(&later, "dead");
    assert_eq!(world.gateway().get(&format!("/api/v1/events/{dead}")).status, 404, "by this date it is past retention");
    world.faults.set_clock_by(0);
    for id in [dead, later] {
        let event = world.gateway().json(&format!("/api/v1/events/{id}"));
        assert_eq!(event["status"], "dead", "{event}");
        assert_eq!(world.gateway().get(&format!("/api/v1/events/{id}/body")).status, 200);
    }
    world.books_hold();
}

#[test]
fn a_repeat_is_known_over_a_step_of_the_clock() {
    let world = World::new(200, "{}", "");
    let first = world.accepted("a", "the same");
    for offset in [-6 * HOUR, 6 * HOUR, -1, 0] {
        world.faults.set_clock_by(offset);
        let repeat = world.send("a", "the same");
        assert_eq!(repeat.header("fairlane-duplicate-of"), Some(first.as_str()), "{offset}");
    }
    world.gateway().wait_for_status(&first, "delivered");
    assert_eq!(world.receiver.count(), 1);
}

#[test]
fn what_was_given_an_end_ends_when_the_clock_says_so() {
    let world = World::new(200, "{}", "");
    let pause = |expires: &str| {
        let body = format!(r#"{{"paused":true,"expires":"{expires}"}}"#);
        let answer = world.gateway().change("PATCH", "/api/v1/group?name=a", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    pause("2h");
    let held = world.accepted("a", "held");
    world.faults.set_clock_by(6 * HOUR);
    world.gateway().wait_for_status(&held, "delivered");

    pause("2h");
    world.faults.set_clock_by(0);
    let held = world.accepted("a", "held again");
    let group = world.gateway().json("/api/v1/group?name=a");
    assert_eq!(group["paused"], true, "eight hours by this clock: {group}");
    assert_eq!(world.gateway().change("PATCH", "/api/v1/group?name=a", r#"{"paused":false}"#).status, 200);
    world.gateway().wait_for_status(&held, "delivered");
    world.books_hold();
}

const SECRET: &str = "whsec_of_this_test";

/// Signed as Stripe does, at that time.
fn signed(at: i64, body: &str) -> support::Request {
    let mac = hmac_sha256(SECRET, &[at.to_string().as_bytes(), b".", body.as_bytes()]);
    post("/stripe", body.as_bytes()).header("Stripe-Signature", format!("t={at},v1={}", hex(&mac)))
}

fn stripe() -> String {
    format!("  - {{ path: /stripe, verify: {{ provider: stripe, secret: \"{SECRET}\" }} }}\n")
}

#[test]
fn signatures_are_judged_by_the_clock_as_it_is() {
    let world = World::new(200, "{}", &stripe());
    let send = || world.gateway().client().send(&signed(world.now(0), r#"{"id":"evt_1","account":"acct_1"}"#));
    // Stripe judges how old it is, and not whether it lies ahead.
    for (offset, status, reason) in [(0, 200, ""), (6 * HOUR, 401, "stale"), (-6 * HOUR, 200, ""), (0, 200, "")] {
        world.faults.set_clock_by(offset);
        let answer = send();
        assert_eq!(answer.status, status, "{offset}: {}", answer.text());
        assert!(answer.text().contains(reason), "{offset}: {}", answer.text());
    }
}

/// Seconds since 1970 that 31 and 32 bits can count at most.
const LAST_SECONDS: [(i64, &str); 2] = [(i32::MAX as i64, "2038-01-19T03:14:"), (u32::MAX as i64, "2106-02-07T06:28:")];

#[test]
fn the_road_goes_on_beyond_the_last_second_of_31_and_of_32_bits() {
    for (last, written) in LAST_SECONDS {
        let mut world = World::new(429, "{ initial: 1s, factor: 1, max: 1s }", &stripe());
        let offset = last - 2 - world.now(0);
        world.faults.set_clock_by(offset);
        let dir = world.kill();
        world.start(dir);
        let mut ids = vec![world.accepted("a", "before")];
        while world.now(offset) <= last + 1 {
            let number = ids.len();
            ids.push(world.accepted("a", &number.to_string()));
            world.receiver.wait_until(|all| all.iter().any(|one| one.body == number.to_string().as_bytes()));
        }
        let signed = signed(world.now(offset), r#"{"id":"evt_1","account":"acct_1"}"#);
        let answered = world.gateway().client().send(&signed);
        assert_eq!(answered.status, 200, "{}", answered.text());
        ids.push(answered.header("fairlane-event-id").unwrap().to_owned());

        let dir = world.kill();
        world.start(dir);
        world.receiver.rule(|_| answer(200));
        for id in &ids {
            let event = world.gateway().wait_for_status(id, "delivered");
            assert!(event["received_at"].as_str().unwrap().starts_with(written), "{event}");
        }
        let listed: BTreeSet<String> = world.gateway().events("since=2030-01-01T00:00:00Z").iter().map(id_of).collect();
        assert_eq!(listed, ids.iter().cloned().collect());
        assert_eq!(world.gateway().events("until=2030-01-01T00:00:00Z"), Vec::<serde_json::Value>::new());
        let received = world.receiver.received();
        let at = received.last().unwrap().header("fairlane-received-at").unwrap();
        assert!(at.starts_with(written), "{at}");
        world.books_hold();
    }
}

fn id_of(event: &serde_json::Value) -> String {
    event["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_clock_that_hops_by_a_second_disturbs_nobody() {
    let world = World::new(429, "{ initial: 1s, factor: 1, max: 1s }", "");
    let mut ids = Vec::new();
    for number in 0..100 {
        // As a leap second is told to those who are not smeared over it.
        world.faults.set_clock_by(number % 3 - 1);
        ids.push(world.accepted("a", &number.to_string()));
    }
    world.receiver.rule(|_| answer(200));
    for id in &ids {
        world.gateway().wait_for_status(id, "delivered");
    }
    world.books_hold();
}
