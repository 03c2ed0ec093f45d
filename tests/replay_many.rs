//! Very many dead letters replayed while traffic runs, through the real binary: fresh events hardly notice, calling it off stops it, and the
//! counts add up. In the suite it is 3,000 and asserts what must hold on any machine; `make bench-replay` makes it 100,000 and prints
//! what fresh events waited.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};
use serde_json::Value;
use support::upstream::{Received, Upstream, answer, upstream};
use support::{Client, Gateway, gateway, post};

/// What an attempt takes.
const ATTEMPT: Duration = Duration::from_millis(5);
/// Groups whose events died, and groups that send now.
const DEAD_GROUPS: usize = 100;
const QUIET_GROUPS: usize = 50;
/// Fresh events of each of the two measurements, and between two of them where it is measured.
const FRESH: usize = 1_000;
const EVERY: Duration = Duration::from_millis(10);

/// How much of it this is.
struct Scale {
    events: usize,
    /// It is measured: traffic is paced, and goes on for as long as the replay does.
    measured: bool,
}

fn scale() -> Scale {
    let events = std::env::var("REPLAY_EVENTS").ok().map(|text| text.parse().unwrap());
    Scale { events: events.unwrap_or(3_000), measured: events.is_some() }
}

fn yaml(upstream: &Upstream) -> String {
    format!(
        "upstream:\n  url: {}\n  retry: {{ never: [410] }}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    key: headers.x-key\n",
        upstream.url()
    )
}

/// Answers 410 to what is to die on its first time, and counts replays; remembers fresh events alone.
fn receiver() -> (Upstream, Arc<AtomicUsize>) {
    let replayed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&replayed);
    let receiver = upstream(move |request| {
        if request.header("fairlane-replay").is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            return answer(200).after(ATTEMPT);
        }
        if request.body == b"dies" { answer(410) } else { answer(200).after(ATTEMPT) }
    });
    (receiver.keeping(|one| one.body != b"dies" && one.header("fairlane-replay").is_none()), replayed)
}

fn send(client: &mut Client, key: &str, body: &str) {
    let response = client.send(&post("/any", body.as_bytes()).header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
}

/// So many dead letters, of many groups.
fn die(gateway: &Gateway, events: usize) {
    let senders: Vec<_> = (0..8)
        .map(|sender| {
            let address = gateway.address;
            thread::spawn(move || {
                let mut client = Client::to(address);
                (sender..events)
                    .step_by(8)
                    .for_each(|n| send(&mut client, &format!("dead-{}", n % DEAD_GROUPS), "dies"));
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    while counter(gateway, "dead") < events as f64 {
        thread::yield_now();
    }
}

fn counter(gateway: &Gateway, name: &str) -> f64 {
    gateway.metric(&format!("fairlane_events_{name}_total{{source=\"/any\"}} ")).unwrap()
}

/// Fresh events named `name`: `FRESH` of them, and as long as `going` says further ones. How many they were.
fn fresh(gateway: &Gateway, name: &str, paced: bool, going: &AtomicBool) -> usize {
    let mut client = gateway.client();
    let mut sent = 0;
    while sent < FRESH || going.load(Ordering::SeqCst) {
        send(&mut client, &format!("quiet-{}", sent % QUIET_GROUPS), name);
        sent += 1;
        if paced {
            thread::sleep(EVERY);
        }
    }
    sent
}

/// All of those that were sent under this name, as soon as they are there; what they waited at 50 and 99 %, milliseconds.
fn waits(receiver: &Upstream, name: &str, sent: usize) -> (u64, u64) {
    let of = |one: &&Received| one.body == name.as_bytes();
    let all = receiver.wait_until(|all| all.iter().filter(of).count() >= sent);
    let mut waits: Vec<u64> =
        all.iter().filter(of).map(|one| one.header("fairlane-wait-ms").unwrap().parse().unwrap()).collect();
    assert_eq!(waits.len(), sent, "each once");
    waits.sort_unstable();
    let at = |percent: usize| waits[(waits.len() * percent / 100).min(waits.len() - 1)];
    (at(50), at(99))
}

fn call(gateway: &Gateway, method: &str, path: &str, body: &str, status: u16) -> Value {
    let response = gateway.change(method, path, body);
    assert_eq!(response.status, status, "{method} {path}: {}", response.text());
    serde_json::from_slice(&response.body).unwrap()
}

fn begin(gateway: &Gateway) -> String {
    let begun = call(gateway, "POST", "/api/v1/replays", "{}", 201);
    format!("/api/v1/replays/{}", begun["id"].as_str().unwrap())
}

/// The replay as soon as it is like that.
fn wait_for(gateway: &Gateway, replay: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let found = gateway.json(replay);
        if wanted(&found) {
            return found;
        }
        thread::yield_now();
    }
}

fn number(replay: &Value, name: &str) -> usize {
    usize::try_from(replay[name].as_u64().unwrap()).unwrap()
}

#[test]
fn very_many_dead_letters_go_again_beside_traffic_stop_when_called_off_and_the_counts_add_up() {
    let Scale { events, measured } = scale();
    let (receiver, replayed) = receiver();
    let gateway = gateway(&yaml(&receiver)).start();
    die(&gateway, events);
    let over = AtomicBool::new(false);
    let sent = fresh(&gateway, "before", measured, &over);
    let before = waits(&receiver, "before", sent);

    // Called off early: what was in flight ends, and from then on none goes.
    let first = begin(&gateway);
    wait_for(&gateway, &first, |replay| number(replay, "delivered") >= events / 20);
    let asked = SystemClock.now().mono;
    call(&gateway, "DELETE", &first, "{}", 200);
    let cancelled = wait_for(&gateway, &first, |replay| number(replay, "under_way") == 0);
    let stopped = SystemClock.now().mono.since(asked);
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    let gone = replayed.load(Ordering::SeqCst);
    assert_eq!(gone, number(&cancelled, "delivered"), "{cancelled}");
    assert!(gone < events, "it was called off before its end: {cancelled}");
    let sent = fresh(&gateway, "after", measured, &over);
    waits(&receiver, "after", sent);
    assert_eq!(replayed.load(Ordering::SeqCst), gone, "none went after it had stopped");

    // The rest, with traffic beside it to its end.
    let second = begin(&gateway);
    let began = SystemClock.now().mono;
    let going = AtomicBool::new(true);
    let (sent, done, took) = thread::scope(|scope| {
        let traffic = scope.spawn(|| fresh(&gateway, "during", measured, &going));
        let done = wait_for(&gateway, &second, |replay| replay["state"] == "done");
        let took = SystemClock.now().mono.since(began);
        going.store(false, Ordering::SeqCst);
        (traffic.join().unwrap(), done, took)
    });
    let during = waits(&receiver, "during", sent);
    assert_eq!(number(&done, "planned"), events - gone, "all that had not gone: {done}");
    assert_eq!(number(&done, "delivered"), events - gone, "{done}");
    assert_eq!(replayed.load(Ordering::SeqCst), events, "each once");

    // The last ends are counted a moment after the receiver has the events.
    let books = || ["accepted", "replayed", "delivered", "dead"].map(|name| counter(&gateway, name));
    let add_up = |[accepted, again, delivered, dead]: [f64; 4]| accepted + again == delivered + dead;
    assert!((0..10_000).any(|_| add_up(books())), "{:?}", books());
    assert_eq!(gateway.events("status=queued,in_flight,retrying").len(), 0);
    assert_eq!(gateway.metric("fairlane_conservation_difference "), Some(0.0));
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
    println!(
        "| {events} dead letters | fresh events waited p50 | p99 | fresh events |\n| --- | --- | --- | --- |\n\
         | before | {} ms | {} ms | {FRESH} |\n| while they were replayed | {} ms | {} ms | {sent} |\n\
         replayed {} in {:.1} s; the first replay had stopped {} ms after it was called off; an attempt takes {} ms",
        before.0,
        before.1,
        during.0,
        during.1,
        events - gone,
        took.as_secs_f64(),
        stopped.as_millis(),
        ATTEMPT.as_millis()
    );
}
