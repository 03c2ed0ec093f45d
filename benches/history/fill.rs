//! A history as a gateway would have written it, made without the gateway: batches into the store, and each event's attempt and end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlane::clock::{Clock, SystemClock};
use fairlane::event::{Event, EventId, Group, KeySource, Lane, Now, Seq, WaitSplit, Wall};
use fairlane::store::embedded::{Embedded, Settings};
use fairlane::store::{AttemptNote, Durability, LaneStore, Query, Retention, Settlement, Status, Verdict};

use crate::spread::Spread;

const GROUPS: u64 = 1_000;
const BATCH: u64 = 500;
/// One of so many ends in the dead letters.
const DEAD_EVERY: u64 = 1_000;
const DAY: Duration = Duration::from_hours(24);
/// The events come this long ago, evenly over six days: within a retention of seven, and past one of one day to the last of them.
const FIRST_AGO: Duration = Duration::from_hours(8 * 24);
const LAST_AGO: Duration = Duration::from_hours(2 * 24 + 12);

/// A clock whose wall goes where it is put.
struct Past(AtomicU64);

impl Clock for Past {
    fn now(&self) -> Now {
        Now { mono: SystemClock.now().mono, wall: Wall(self.0.load(Ordering::Relaxed)) }
    }
}

fn open(data: &Path, clock: Arc<Past>) -> Arc<Embedded> {
    let settings = Settings {
        path: data.to_owned(),
        durability: Durability::Fsync,
        max_bytes: None,
        min_free: 64 << 20,
        retention: Retention { delivered: 9 * DAY, dead: 30 * DAY, suppressed: DAY },
    };
    Arc::new(Embedded::open(settings, clock).unwrap())
}

fn ago(span: Duration) -> u64 {
    SystemClock.now().wall.0 - u64::try_from(span.as_micros()).unwrap()
}

/// Fills the folder, unless it is there already.
pub(crate) async fn fill(data: &Path, events: u64, body: usize) {
    if data.exists() {
        println!("{} is there already and stays as it is", data.display());
        return;
    }
    std::fs::create_dir_all(data).unwrap();
    let (first, last) = (ago(FIRST_AGO), ago(LAST_AGO));
    let clock = Arc::new(Past(AtomicU64::new(first)));
    let store = open(data, Arc::clone(&clock));
    let body = Bytes::from(vec![b'x'; body]);
    let began = Instant::now();
    let mut number = 0;
    while number < events {
        let wall = first + (last - first) / events * number;
        clock.0.store(wall, Ordering::Relaxed);
        let now = Wall(wall);
        let batch = (number..number + BATCH).map(|number| Arc::new(event(number, now, body.clone()))).collect();
        let seq = store.append(batch).await.unwrap().first.0;
        let settlements = (seq..seq + BATCH).flat_map(|seq| ended(Seq(seq), now)).collect();
        assert_eq!(store.settle(settlements).await, Ok(0));
        number += BATCH;
        if number.is_multiple_of(1_000_000) {
            println!("{number} events in {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    let took = began.elapsed().as_secs_f64();
    store.close().await.unwrap();
    println!("{number} events accepted and ended in {took:.0} s, {:.0} a second", number as f64 / took);
}

fn ended(seq: Seq, at: Wall) -> [Settlement; 2] {
    let dead = seq.0.is_multiple_of(DEAD_EVERY);
    let note = AttemptNote {
        number: 1,
        started: at,
        took: Duration::from_millis(50),
        outcome: if dead { "status" } else { "delivered" }.into(),
        status: Some(if dead { 410 } else { 200 }),
        error: "".into(),
        excerpt: Bytes::from_static(b"ok"),
        refused: false,
        waited: WaitSplit::default(),
    };
    let verdict = if dead { Verdict::Dead("was answered with 410".into()) } else { Verdict::Delivered };
    let begun = Settlement { seq, at, verdict: Verdict::Begun, attempt: None };
    [begun, Settlement { seq, at, verdict, attempt: Some(note) }]
}

fn event(number: u64, now: Wall, body: Bytes) -> Event {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    Event {
        id: EventId::new(now, &random),
        received: now,
        source: "shopify".into(),
        lane: Lane { group: group(number), inner: None },
        owner: None,
        key_source: KeySource::NoRule,
        order: None,
        fingerprint: None,
        trace: None,
        verified: "none".into(),
        provider_event_id: Some(format!("id-{number}").into()),
        event_type: Some("orders/create".into()),
        method: http::Method::POST,
        target: "/webhooks/shopify".into(),
        forward: None,
        peer: [127, 0, 0, 1].into(),
        https: false,
        headers: http::HeaderMap::new(),
        body,
    }
}

fn group(number: u64) -> Group {
    Group::of(&[format!("store-{}.myshopify.com", number % GROUPS)])
}

/// Times lists of every kind in the process, with nothing beside them.
pub(crate) async fn look(data: &Path) {
    let clock = Arc::new(Past(AtomicU64::new(ago(LAST_AGO))));
    let opening = Instant::now();
    let store = open(data, Arc::clone(&clock));
    println!("opened in {:.1} s: {} events of history", opening.elapsed().as_secs_f64(), store.usage().history);
    let done = Arc::new(AtomicBool::new(false));
    let lists = tokio::spawn(keep_listing(Arc::clone(&store), Arc::clone(&done)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    done.store(true, Ordering::Relaxed);
    println!("| list, in the process | p50 | p95 | p99 | longest | times |\n| --- | --- | --- | --- | --- | --- |");
    for (name, times) in lists.await.unwrap() {
        println!("| {name} | {} |", Spread::of(times));
    }
    store.close().await.unwrap();
}

/// One list of every kind after another, until it is enough: how long each took.
async fn keep_listing(store: Arc<Embedded>, done: Arc<AtomicBool>) -> Vec<(&'static str, Vec<Duration>)> {
    let mut all: Vec<(&'static str, Vec<Duration>)> = Vec::new();
    let (first, last) = (ago(FIRST_AGO), ago(LAST_AGO));
    let mut round = 0_u64;
    while !done.load(Ordering::Relaxed) {
        round += 1;
        let part = |percent: u64| Some(Wall(first + (last - first) * percent / 100));
        let (since, until) = (part(round * 7 % 90), part(round * 7 % 90 + 5));
        let everything = || Query { limit: 100, ..Query::default() };
        let kinds = [
            ("newest", everything()),
            ("a span of time", Query { since, until, ..everything() }),
            ("a group", Query { group: Some(group(round * 31)), ..everything() }),
            ("a group in a span of time", Query { group: Some(group(round * 31)), since, until, ..everything() }),
            (
                "the provider's id",
                Query { provider_event_id: Some(format!("id-{}", round * 977 + 1).into()), ..everything() },
            ),
            ("dead letters, oldest first", Query { status: vec![Status::Dead], oldest_first: true, ..everything() }),
            ("another source, one look", Query { source: Some("nowhere".into()), ..everything() }),
        ];
        all.resize_with(kinds.len(), || ("", Vec::new()));
        for ((name, times), (kind, query)) in all.iter_mut().zip(kinds) {
            let asked = Instant::now();
            store.list(query).await.unwrap();
            *name = kind;
            times.push(asked.elapsed());
        }
    }
    all
}
