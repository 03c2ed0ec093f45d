//! `make bench-history`: what lists take while a history of millions is made, and what accepting waits for when it is let go.
//!
//! `HISTORY_EVENTS` events (1,000,000) of a thousand groups are accepted and delivered; lists of every kind run beside it. Then time goes on by
//! more than the retention, and all of it is dropped while accepting goes on.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on has failed, and prints what it found"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlane::clock::{Clock, SystemClock};
use fairlane::event::{Event, EventId, Group, KeySource, Lane, Now, Seq, Wall};
use fairlane::store::embedded::{Embedded, Settings};
use fairlane::store::{Durability, LaneStore, Query, Retention, Settlement, Status, Verdict};

const GROUPS: u64 = 1_000;
const BATCH: u64 = 500;

/// The machine's time, put forward.
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        Now { mono: now.mono, wall: Wall(now.wall.0 + self.0.load(Ordering::Relaxed)) }
    }
}

fn main() {
    let events: u64 = std::env::var("HISTORY_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run(events));
}

async fn run(events: u64) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Ahead(AtomicU64::new(0)));
    let settings = Settings {
        path: folder.path().join("data"),
        durability: Durability::Fsync,
        max_bytes: None,
        min_free: 64 << 20,
        retention: Retention {
            delivered: Duration::from_secs(7 * 86_400),
            dead: Duration::from_secs(30 * 86_400),
            suppressed: Duration::from_secs(86_400),
        },
    };
    let store = Arc::new(Embedded::open(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap());
    let began = clock.now().wall;
    let done = Arc::new(AtomicBool::new(false));
    let lists = tokio::spawn(keep_listing(Arc::clone(&store), began, Arc::clone(&clock), Arc::clone(&done)));
    let filled = Instant::now();
    let mut appends = Vec::new();
    let mut number = 0;
    while number < events {
        let mut seqs = Vec::new();
        append(&store, &*clock, &mut number, &mut appends, &mut seqs).await;
        let at = clock.now().wall;
        let end = |seq: Seq| {
            let verdict =
                if seq.0.is_multiple_of(1_000) { Verdict::Dead("refused".into()) } else { Verdict::Delivered };
            Settlement { seq, at, verdict, attempt: None }
        };
        assert_eq!(store.settle(seqs.into_iter().map(end).collect()).await, Ok(0));
    }
    let took = filled.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    println!("{events} events accepted and ended in {took:.0} s, {:.0} a second", events as f64 / took);
    println!("accept of {BATCH} meanwhile: {}", spread(&mut appends));
    for (name, mut times) in lists.await.unwrap() {
        println!("list, {name}, meanwhile: {}", spread(&mut times));
    }
    let quiet = Arc::new(AtomicBool::new(false));
    let lists = tokio::spawn(keep_listing(Arc::clone(&store), began, Arc::clone(&clock), Arc::clone(&quiet)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    quiet.store(true, Ordering::Relaxed);
    for (name, mut times) in lists.await.unwrap() {
        println!("list, {name}, at rest: {}", spread(&mut times));
    }
    // Everything is past its retention now; the upkeep drops it within the next seconds.
    clock.0.store(40 * 86_400 * 1_000_000, Ordering::Relaxed);
    let mut appends = Vec::new();
    let dropping = Instant::now();
    while dropping.elapsed() < Duration::from_secs(15) {
        append(&store, &*clock, &mut number, &mut appends, &mut Vec::new()).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!(
        "accept of {BATCH} while the history is dropped: {}; {} left of it",
        spread(&mut appends),
        store.usage().history
    );
    store.close().await.unwrap();
}

async fn append(store: &Embedded, clock: &Ahead, number: &mut u64, times: &mut Vec<Duration>, seqs: &mut Vec<Seq>) {
    let batch: Vec<Arc<Event>> = (0..BATCH).map(|_| Arc::new(event(number, clock.now().wall))).collect();
    let began = Instant::now();
    let first = store.append(batch).await.unwrap().first;
    times.push(began.elapsed());
    seqs.extend((first.0..first.0 + BATCH).map(Seq));
}

fn event(number: &mut u64, now: Wall) -> Event {
    *number += 1;
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    Event {
        id: EventId::new(now, &random),
        received: now,
        source: "shopify".into(),
        lane: Lane { group: group(*number), inner: None },
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
        body: Bytes::from(vec![b'x'; 1_000]),
    }
}

fn group(number: u64) -> Group {
    Group::of(&[format!("store-{}.myshopify.com", number % GROUPS)])
}

/// One list of every kind after another, until it is enough: how long each took.
async fn keep_listing(
    store: Arc<Embedded>,
    began: Wall,
    clock: Arc<Ahead>,
    done: Arc<AtomicBool>,
) -> Vec<(&'static str, Vec<Duration>)> {
    let mut all: Vec<(&'static str, Vec<Duration>)> = Vec::new();
    let mut round = 0_u64;
    while !done.load(Ordering::Relaxed) {
        round += 1;
        let part = |percent: u64| Wall(began.0 + (clock.now().wall.0 - began.0) * percent / 100);
        let (since, until) = (Some(part(round * 7 % 90)), Some(part(round * 7 % 90 + 5)));
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
        for (place, (name, query)) in kinds.into_iter().enumerate() {
            let asked = Instant::now();
            store.list(query).await.unwrap();
            if all.len() == place {
                all.push((name, Vec::new()));
            }
            all[place].1.push(asked.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    all
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |permille: usize| {
        times.get(times.len() * permille / 1_000).or(times.last()).map_or(0.0, |t| t.as_secs_f64() * 1e3)
    };
    let (p50, p95, p99, max) = (at(500), at(950), at(990), at(1_000));
    format!("p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms, longest {max:.1} ms ({} times)", times.len())
}
