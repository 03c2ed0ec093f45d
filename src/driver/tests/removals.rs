//! Events that a person ends: told when it is durable and not before, one that is stuck and whole queues.

use super::*;
use crate::deliver::Limit;
use crate::store::Query;

/// An upstream that answers nothing to events whose body begins with 0, and takes all others.
fn poisoned() -> World {
    world_with(Arc::new(|job| {
        Box::pin(async move {
            let attempt = delivered(job.attempt);
            if job.event.body.first() != Some(&0) {
                return attempt;
            }
            Attempt { outcome: Outcome::Reset, follows: Follows::Retried(Limit::Age), answer: None, ..attempt }
        })
    }))
}

/// An upstream that never answers.
fn silent() -> World {
    world_with(Arc::new(|_| Box::pin(std::future::pending())))
}

fn numbered(number: u32, first: u8) -> Event {
    let mut random = [0; 10];
    // An id has marks of its own in the first ones.
    random[6..].copy_from_slice(&number.to_le_bytes());
    Event { id: EventId::new(Wall(1), &random), body: Bytes::from(vec![first]), ..event(1, 1) }
}

impl World {
    async fn store(&self, event: Event) -> EventId {
        let (id, charge) = (event.id, Budget::new(usize::MAX).open(Some(0)).unwrap());
        self.handle.submit(Arc::new(event), charge).await.unwrap();
        id
    }

    async fn record(&self, id: EventId) -> Record {
        self.handle.event(id).await.unwrap().unwrap().record
    }

    /// The event, as soon as it stands there.
    async fn becomes(&self, id: EventId, status: Status) -> Record {
        loop {
            let record = self.record(id).await;
            if record.status == status {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn remove(&self, record: &Record, removal: Removal) -> Removed {
        let target = Target::of(record).unwrap();
        self.handle.remove(vec![target], removal).await.unwrap()[0]
    }

    async fn pause(&self, paused: bool) {
        let change = Change { paused: Some(paused), ..Change::default() };
        self.handle.change(Group::of(&["g"]), change, Expiry::Never).await.unwrap().unwrap();
    }

    async fn count(&self, status: Status) -> usize {
        let (mut query, mut count) = (Query { status: vec![status], limit: 1_000, ..Query::default() }, 0);
        loop {
            let page = self.handle.events(query.clone()).await.unwrap();
            count += page.records.len();
            query.behind = page.next;
            if query.behind.is_none() {
                return count;
            }
        }
    }

    fn shows(&self, line: &str) -> bool {
        self.handle.metrics().encode().unwrap().lines().any(|l| l == line)
    }

    /// The job, as soon as it has ended.
    async fn ended(&self, id: u64) -> Job {
        loop {
            let job = self.handle.job(id).unwrap();
            if job.state != JobState::Running {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_head_is_skipped_and_its_order_key_goes_on_at_once() {
    let w = poisoned();
    let order = Some(Group::of(&["conversation"]));
    let head = w.store(Event { order: order.clone(), ..numbered(1, 0) }).await;
    let record = w.becomes(head, Status::Retrying).await;
    let next = w.store(Event { order: order.clone(), ..numbered(2, 1) }).await;
    let last = w.store(Event { order, ..numbered(3, 1) }).await;
    let (held, count) = w.handle.held(Group::of(&["g"]), 10).await.unwrap();
    assert_eq!((held[0].key.as_str(), held[0].seq, held[0].attempts, count), ("conversation", record.seq, 1, 1));
    let before = w.handle.now().mono;
    assert_eq!(w.remove(&record, Removal::Skip).await, Removed::Ended);
    let dead = w.record(head).await;
    assert_eq!((dead.status, &*dead.reason), (Status::Dead, "skipped by an operator"));
    w.becomes(next, Status::Delivered).await;
    w.becomes(last, Status::Delivered).await;
    // Its retry would have come after seconds.
    assert!(w.handle.now().mono.since(before) < Duration::from_secs(1));
    assert_eq!(w.handle.held(Group::of(&["g"]), 10).await.unwrap().1, 0);
    assert!(w.shows(r#"fairlane_events_dead_total{source="test"} 1"#));
    assert_eq!(Target::of(&dead).map(|_| ()), None, "what has ended cannot be ended");
    assert_eq!(w.remove(&record, Removal::Skip).await, Removed::Gone, "nor by what was known before");
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_when_it_is_durable_and_one_in_flight_is_none() {
    let w = silent();
    let flying = w.store(numbered(1, 1)).await;
    let record = w.becomes(flying, Status::InFlight).await;
    assert_eq!(w.remove(&Record { status: Status::Queued, ..record }, Removal::Discard).await, Removed::InFlight);
    w.pause(true).await;
    let queued = w.store(numbered(2, 1)).await;
    let target = Target::of(&w.record(queued).await).unwrap();
    let mut gate = w.memory.hold_next(Call::Settle);
    let handle = w.handle.clone();
    #[expect(clippy::disallowed_methods, reason = "the test ends what it begins")]
    let asked = tokio::spawn(async move { handle.remove(vec![target], Removal::Discard).await });
    gate.arrived().await;
    settle().await;
    assert!(!asked.is_finished());
    gate.open();
    assert_eq!(asked.await.unwrap(), Ok(vec![Removed::Ended]));
    assert_eq!(w.record(queued).await.status, Status::Discarded);
    assert!(w.shows(r#"fairlane_events_discarded_total{source="test"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_diverted_as_it_stood_and_what_comes_later_is_not() {
    let w = poisoned();
    w.pause(true).await;
    for number in 0..600 {
        w.store(numbered(number, 1)).await;
    }
    let group = Group::of(&["g"]);
    let mut gate = w.memory.hold_next(Call::Settle);
    let job = w.handle.begin_job(&group, Action::Divert, "me".into()).await.unwrap();
    assert_eq!((job.total, job.state, &*job.by), (600, JobState::Running, "me"));
    gate.arrived().await;
    assert_eq!(w.handle.begin_job(&group, Action::Discard, "me".into()).await, Err(JobRefusal::Running(job.id)));
    let later = w.store(numbered(600, 1)).await;
    gate.open();
    let job = w.ended(job.id).await;
    assert_eq!((job.state, job.done, job.skipped), (JobState::Done, 600, 0));
    assert_eq!((w.count(Status::Dead).await, w.record(later).await.status), (600, Status::Queued));
    let view = w.handle.group(group).await.unwrap();
    assert_eq!((view.queued, view.dead), (1, 600));
    w.pause(false).await;
    w.becomes(later, Status::Delivered).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_called_off_ends_after_the_batch_under_way() {
    let w = poisoned();
    w.pause(true).await;
    for number in 0..600 {
        w.store(numbered(number, 1)).await;
    }
    let mut gate = w.memory.hold_next(Call::Settle);
    let job = w.handle.begin_job(&Group::of(&["g"]), Action::Discard, "me".into()).await.unwrap();
    gate.arrived().await;
    let (handle, id) = (w.handle.clone(), job.id);
    #[expect(clippy::disallowed_methods, reason = "the test ends what it begins")]
    let asked = tokio::spawn(async move { handle.cancel_job(id).await });
    settle().await;
    assert!(!asked.is_finished(), "the batch under way still lands");
    gate.open();
    let job = asked.await.unwrap().unwrap();
    assert_eq!((job.state, job.done, job.ended.is_some()), (JobState::Cancelled, 256, true));
    settle().await;
    let left = w.count(Status::Queued).await;
    assert_eq!((w.count(Status::Discarded).await, left), (256, 344));
    assert_eq!(w.handle.cancel_job(job.id).await, Err(JobRefusal::Over));
    assert_eq!(w.handle.cancel_job(99).await, Err(JobRefusal::Unknown));
}

#[tokio::test(start_paused = true)]
async fn whoever_calls_a_job_off_waits_not_for_ever() {
    let w = poisoned();
    w.pause(true).await;
    w.store(numbered(1, 1)).await;
    let mut gate = w.memory.hold_next(Call::Settle);
    let job = w.handle.begin_job(&Group::of(&["g"]), Action::Divert, "me".into()).await.unwrap();
    gate.arrived().await;
    let job = w.handle.cancel_job(job.id).await.unwrap();
    assert_eq!((job.state, job.done, job.ended), (JobState::Cancelled, 0, None));
    gate.open();
    loop {
        let job = w.handle.job(job.id).unwrap();
        if job.ended.is_some() {
            assert_eq!((job.state, job.done), (JobState::Cancelled, 1));
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
