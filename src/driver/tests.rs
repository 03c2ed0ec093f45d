//! The loop over a store that the test holds still: what is answered, when, and in which batches.

mod handovers;
mod removals;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::task::JoinHandle;

use super::*;
use crate::clock::TestClock;
use crate::deliver::{Answer, Attempt, BodyEnd, Follows, Outcome};
use crate::event::{EventId, KeySource, Lane, Wall};
use crate::store::memory::{Call, Memory};

struct World {
    memory: Memory,
    clock: Arc<TestClock>,
    handle: Handle,
    driver: JoinHandle<()>,
}

fn world() -> World {
    // These tests are about the way in: the upstream takes everything at once.
    world_with(Arc::new(|job| Box::pin(async move { delivered(job.attempt) })))
}

fn world_with(deliver: Deliver) -> World {
    world_of(deliver, Settings::default(), FilePolicies::default())
}

#[expect(clippy::disallowed_methods, reason = "the test ends what it begins")]
fn world_of(deliver: Deliver, settings: Settings, policies: FilePolicies) -> World {
    let test_clock = Arc::new(TestClock::at(Wall::from_unix_s(1_700_000_000)));
    let clock: Arc<dyn Clock> = Arc::clone(&test_clock) as _;
    let memory = Memory::new(Arc::clone(&clock));
    let (driver, handle) = new(Parts {
        store: Arc::new(memory.clone()),
        clock,
        metrics: Arc::new(Metrics::new("none")),
        deliver,
        settings,
        policies,
        notebook: Notebook::default(),
        seed: 1,
        cluster: None,
    })
    .unwrap();
    World { memory, clock: test_clock, handle, driver: tokio::spawn(driver.run()) }
}

fn delivered(number: u32) -> Attempt {
    let outcome = Outcome::of(http::StatusCode::OK);
    Attempt {
        number,
        started: Wall(0),
        took: Duration::ZERO,
        outcome,
        follows: Follows::Settled,
        error: "".into(),
        retry_after: None,
        retry_scope: None,
        answer: Some(Answer {
            status: http::StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"yes"),
            end: BodyEnd::Whole,
        }),
    }
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "the test ends what it begins")]
    fn submit(&self, number: u8, bytes: usize) -> JoinHandle<Result<Seq, Shed>> {
        let handle = self.handle.clone();
        let charge = Budget::new(usize::MAX).open(Some(0)).unwrap();
        tokio::spawn(
            async move { handle.submit(Arc::new(event(number, bytes)), charge).await.map(|stored| stored.seq) },
        )
    }

    /// How many events can be read.
    async fn stored(&self) -> usize {
        self.handle.events(Query { limit: 1000, ..Query::default() }).await.unwrap().records.len()
    }
}

pub(super) fn event(number: u8, bytes: usize) -> Event {
    Event {
        id: EventId::new(Wall(u64::from(number)), &[number; 10]),
        received: Wall(u64::from(number)),
        source: "test".into(),
        lane: Lane { group: Group::of(&["g"]), inner: None },
        owner: None,
        key_source: KeySource::NoRule,
        order: None,
        fingerprint: None,
        trace: None,
        verified: "none".into(),
        provider_event_id: None,
        event_type: None,
        method: Method::POST,
        target: "/".into(),
        forward: None,
        peer: IpAddr::from([127, 0, 0, 1]),
        https: false,
        headers: HeaderMap::new(),
        body: Bytes::from(vec![number; bytes]),
    }
}

/// Lets every task that can go on do so.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_the_store_takes_in_part_each_sender_learns_its_own() {
    let world = world();
    world.memory.cap(&Group::of(&["g"]), 2);
    let gate = world.memory.hold_next(Call::Append);
    let first = world.submit(1, 1);
    settle().await;
    // These three gather while the first one is on its way, and go as one batch.
    let held = world.memory.hold_next(Call::Append);
    let later: Vec<_> = [2, 3, 4].map(|number| world.submit(number, 1)).into();
    settle().await;
    let begin = world.memory.hold_next(Call::Settle);
    gate.open();
    assert_eq!(first.await.unwrap(), Ok(Seq(1)));
    settle().await;
    held.open();
    let mut answers = Vec::new();
    for answer in later {
        answers.push(answer.await.unwrap());
    }
    let full = Err(Shed::Backlog(BACKLOG_AGAIN));
    assert_eq!(answers, [Ok(Seq(2)), full, full], "and an event that was refused is not there");
    assert_eq!(world.stored().await, 2);
    begin.open();
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_answered_before_the_commit_and_everybody_after_it() {
    let w = world();
    let mut gate = w.memory.hold_next(Call::Append);
    let first = w.submit(1, 10);
    gate.arrived().await;
    let others: Vec<_> = (2..10).map(|n| w.submit(n, 10)).collect();
    settle().await;
    assert!(!first.is_finished() && others.iter().all(|task| !task.is_finished()));
    let mut second = w.memory.hold_next(Call::Append);
    gate.open();
    assert_eq!(first.await.unwrap(), Ok(Seq(1)));
    second.arrived().await;
    assert!(others.iter().all(|task| !task.is_finished()), "the second batch is not durable yet");
    assert_eq!(w.stored().await, 1);
    second.open();
    for (place, task) in others.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), Ok(Seq(place as u64 + 2)), "all that gathered meanwhile went in one batch");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_bounded_in_bytes_and_a_larger_event_goes_alone() {
    let w = world();
    let mut gate = w.memory.hold_next(Call::Append);
    let first = w.submit(1, 1);
    gate.arrived().await;
    let tasks: Vec<_> = [3, 3, 3, 9, 1].iter().zip(2..).map(|(mib, n)| w.submit(n, mib << 20)).collect();
    settle().await;
    // 3 + 3 fit 8 MiB, the third does not; 9 is alone; 1 comes last.
    for (stored, batch) in [(1, 2), (3, 1), (4, 1), (5, 1)] {
        let mut next = w.memory.hold_next(Call::Append);
        gate.open();
        next.arrived().await;
        assert_eq!(w.stored().await, stored);
        assert_eq!(tasks.iter().filter(|task| task.is_finished()).count(), stored - 1, "before a batch of {batch}");
        gate = next;
    }
    gate.open();
    assert_eq!(first.await.unwrap(), Ok(Seq(1)));
    for task in tasks {
        assert!(task.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_is_told_as_what_it_is_and_the_next_one_goes_on() {
    let w = world();
    for (error, shed) in
        [(Error::Full("no space".into()), Shed::Full), (Error::Unavailable("away".into()), Shed::Unavailable)]
    {
        w.memory.fail_next(Call::Append, error);
        assert_eq!(w.submit(1, 1).await.unwrap(), Err(shed));
    }
    assert_eq!(w.submit(1, 1).await.unwrap(), Ok(Seq(1)));
    w.memory.refuse(&Group::of(&["g"]));
    assert_eq!(w.submit(2, 1).await.unwrap(), Err(Shed::GroupTooLarge));
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_commit_nobody_gets_a_2xx() {
    let w = world();
    w.memory.lose_answer_of_next(Call::Append, "EIO");
    // A restart may find it: nobody is told that nothing was stored.
    assert_eq!(w.submit(1, 1).await.unwrap(), Err(Shed::TooSlow));
    assert_eq!(w.submit(2, 1).await.unwrap(), Err(Shed::Unavailable));
    assert!(w.memory.poisoned().await.contains("EIO"));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_counted_at_its_commit_though_its_sender_has_given_up() {
    let w = world();
    let mut gate = w.memory.hold_next(Call::Append);
    let sender = w.submit(1, 1);
    gate.arrived().await;
    sender.abort();
    settle().await;
    let counted = |line: &str| w.handle.metrics().encode().unwrap().lines().any(|l| l == line);
    assert!(!counted(r#"fairlane_events_accepted_total{source="test"} 1"#), "nothing is durable yet");
    gate.open();
    // The next one comes after it.
    assert_eq!(w.submit(2, 1).await.unwrap(), Ok(Seq(2)));
    assert!(counted(r#"fairlane_events_accepted_total{source="test"} 2"#));
    // What is not stored is not counted.
    w.memory.fail_next(Call::Append, Error::Full("no space".into()));
    assert_eq!(w.submit(3, 1).await.unwrap(), Err(Shed::Full));
    assert!(counted(r#"fairlane_events_accepted_total{source="test"} 2"#));
    // It is in a lane of its own, rule or not: what counts is the lane.
    assert!(counted(r#"fairlane_fallback_events_total{source="test",reason="no_rule"} 0"#));
    let mut keyless = event(4, 1);
    keyless.lane.group = Group::fallback();
    let charge = Budget::new(usize::MAX).open(Some(0)).unwrap();
    assert!(w.handle.submit(Arc::new(keyless), charge).await.is_ok());
    assert!(counted(r#"fairlane_fallback_events_total{source="test",reason="no_rule"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn stopping_answers_what_came_before_and_refuses_what_comes_after() {
    let w = world();
    let mut gate = w.memory.hold_next(Call::Append);
    let first = w.submit(1, 1);
    gate.arrived().await;
    let second = w.submit(2, 1);
    settle().await;
    w.handle.stop().await;
    settle().await;
    assert!(!w.driver.is_finished());
    assert_eq!(w.submit(3, 1).await.unwrap(), Err(Shed::Draining));
    assert_eq!(w.handle.ready(), Err(Shed::Draining));
    gate.open();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(Seq(1)), Ok(Seq(2))));
    w.driver.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_known_before_a_body_is_read() {
    let w = world();
    assert_eq!(w.handle.ready(), Ok(()));
    w.memory.set_capacity(Some(0));
    assert_eq!(w.handle.ready(), Err(Shed::Full));
    w.memory.set_capacity(None);
    assert_eq!(w.handle.ready(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_lane_that_is_too_large_refuses_its_own_events_and_nobody_elses() {
    let w = world();
    w.memory.refuse(&Group::fallback());
    assert_eq!(w.handle.ready(), Ok(()), "there is room for others");
    assert_eq!(w.submit(1, 1).await.unwrap(), Ok(Seq(1)));
    w.memory.set_capacity(Some(0));
    assert_eq!(w.handle.ready(), Err(Shed::Full), "there is none for anybody");
}

// ---- live requests ----------------------------------------------------------------------------------------------

impl World {
    #[expect(clippy::disallowed_methods, reason = "the test ends what it begins")]
    fn call(&self, number: u8) -> JoinHandle<Result<Answered, Unanswered>> {
        let (handle, deadline) = (self.handle.clone(), self.handle.now().mono.plus(Duration::from_secs(2)));
        tokio::spawn(async move { handle.live(Arc::new(event(number, 10)), deadline).await })
    }

    async fn group(&self) -> GroupView {
        self.handle.group(Group::of(&["g"])).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_holds_up_no_live_request() {
    let w = world();
    let mut gate = w.memory.hold_next(Call::Append);
    let first = w.submit(1, 10);
    gate.arrived().await;
    // So many that the driver takes no further ones until the store is done.
    let others: Vec<_> = (0..1_100).map(|n| w.submit((n % 100) as u8, 10)).collect();
    settle().await;
    let answered = w.call(2).await.unwrap().unwrap();
    assert_eq!(answered.body.as_ref(), b"yes");
    assert!(!first.is_finished() && others.iter().all(|task| !task.is_finished()));
    gate.open();
    assert_eq!(first.await.unwrap(), Ok(Seq(1)));
    assert_eq!(w.stored().await, 1_000, "none of them is a live request");
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_waiting_leaves_no_lease_behind() {
    let (started, mut starts) = mpsc::channel(16);
    let w = world_with(Arc::new(move |_| {
        let started = started.clone();
        Box::pin(async move {
            started.send(()).await.unwrap();
            std::future::pending().await
        })
    }));
    // The default cap of a group is eight: two wait.
    let calls: Vec<_> = (0..10).map(|n| w.call(n)).collect();
    for _ in 0..8 {
        starts.recv().await.unwrap();
    }
    let view = w.group().await;
    assert_eq!((view.in_flight, view.live), (8, 2));
    for call in &calls {
        call.abort();
    }
    settle().await;
    let view = w.group().await;
    assert_eq!((view.live, view.in_flight), (0, 0), "nothing of it is left");
    assert_eq!(w.handle.upstream().await.unwrap().slots.busy, 0);
    // Its slots are there for others.
    let _next = w.call(20);
    starts.recv().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_live_request_is_refused_while_the_node_ends() {
    let (started, mut starts) = mpsc::channel(16);
    let mut w = world_with(Arc::new(move |job| {
        let started = started.clone();
        Box::pin(async move {
            started.send(()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            delivered(job.attempt)
        })
    }));
    let under_way = w.call(1);
    starts.recv().await.unwrap();
    w.handle.begin_drain();
    assert_eq!(w.call(2).await.unwrap(), Err(Unanswered::Draining));
    w.handle.stop().await;
    assert!(under_way.await.unwrap().is_ok(), "what is in flight is finished");
    (&mut w.driver).await.unwrap();
    assert_eq!(w.call(3).await.unwrap(), Err(Unanswered::Draining));
}

/// An event of a group that its signature does not cover.
fn unsigned(group: &str) -> Event {
    let key_source = KeySource::Rule { rule: "headers.x-shop".into(), signed: false };
    Event { lane: Lane { group: Group::of(&[group]), inner: None }, key_source, ..event(1, 1) }
}

async fn take(w: &World, event: Event) -> Result<Stored, Shed> {
    w.handle.submit(Arc::new(event), Budget::new(usize::MAX).open(Some(0)).unwrap()).await
}

/// Where each event waited, oldest first.
async fn lanes(w: &World) -> Vec<String> {
    let records = w.handle.events(Query { limit: 1000, ..Query::default() }).await.unwrap().records;
    records.iter().rev().map(|record| record.lane.group.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn unknown_groups_beyond_the_rate_go_to_their_sources_overflow_lanes_and_are_delivered() {
    let limit = Some(Rate { events: 2, per: Duration::from_mins(1) });
    let policies = FilePolicies { new_groups: limit, ..FilePolicies::default() };
    let everything = |job: crate::deliver::Job| Box::pin(async move { delivered(job.attempt) }) as _;
    let w = world_of(Arc::new(everything), Settings::default(), policies);
    for n in 0..5 {
        assert!(take(&w, unsigned(&format!("old-{n}"))).await.is_ok());
    }
    w.clock.advance(Duration::from_hours(25));
    for n in 0..4 {
        assert!(take(&w, unsigned(&format!("new-{n}"))).await.is_ok());
    }
    assert!(take(&w, unsigned("old-1")).await.is_ok());
    let found = lanes(&w).await;
    assert_eq!(found[5..7], ["new-0", "new-1"]);
    assert!(found[7..9].iter().all(|lane| lane.starts_with("~overflow-") && lane.ends_with("~test")), "{found:?}");
    assert_eq!(found[9], "old-1");
    let of_group = Query { group: Some(Group::of(&["new-3"])), limit: 10, ..Query::default() };
    let record = w.handle.events(of_group).await.unwrap().records.remove(0);
    assert_eq!((record.home().group.as_str(), record.status), ("new-3", Status::Delivered));
    let figures = w.handle.new_groups().await.unwrap();
    assert_eq!((figures[0].per_minute, figures[0].learned, &*figures[0].source), (4, true, "test"));
    let text = w.handle.metrics().encode().unwrap();
    assert!(text.contains(r#"fairlane_overflowed_events_total{source="test",reason="new_groups"} 2"#), "{text}");
    assert!(text.contains(r#"fairlane_new_groups_total{source="test"} 7"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_overflow_lane_that_holds_too_much_of_a_full_disk_is_refused_and_no_other() {
    let nothing = |_| Box::pin(std::future::pending()) as _;
    let w = world_of(Arc::new(nothing), Settings { max_active: 1, ..Settings::default() }, FilePolicies::default());
    let of = |group: &str| Event { lane: Lane { group: Group::of(&[group]), inner: None }, ..event(1, 1) };
    assert!(take(&w, of("a")).await.is_ok());
    assert!(take(&w, of("b")).await.is_ok());
    let shared = lanes(&w).await.remove(1);
    w.memory.refuse(&Group::from_written(&shared).unwrap());
    assert_eq!(take(&w, of("b")).await, Err(Shed::GroupTooLarge));
    assert!(take(&w, of("a")).await.is_ok());
    assert_eq!(w.handle.group(Group::of(&["b"])).await.unwrap().overflow.map(|lane| lane.to_string()), Some(shared));
}
