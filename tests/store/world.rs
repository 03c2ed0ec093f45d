//! A store under test with its clock, and short ways to put events into it and to settle them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlane::clock::{Clock as _, TestClock};
use fairlane::event::{Event, EventId, Group, KeySource, Lane, Seq, WaitSplit, Wall};
use fairlane::store::embedded::{Embedded, Options, Settings};
use fairlane::store::memory::Memory;
use fairlane::store::{AttemptNote, Durability, LaneStore, Pending, Query, Retention, Settlement, Story, Verdict};
use tempfile::TempDir;

/// When every test begins.
pub(crate) const START: Wall = Wall(1_790_000_000_000_000);

/// How long the stores under test keep ended events.
pub(crate) const RETENTION: Retention = Retention {
    delivered: Duration::from_secs(7 * 86_400),
    dead: Duration::from_secs(30 * 86_400),
    suppressed: Duration::from_secs(86_400),
};

/// A store that can be opened anew on what it left behind.
pub(crate) trait Subject: Sized {
    /// An empty one.
    async fn create(clock: Arc<TestClock>) -> Self;
    /// The process that runs now.
    fn store(&self) -> &dyn LaneStore;
    /// Closes it and opens it again.
    async fn reopen(&mut self);
    /// Lets the process die and opens what it left.
    async fn crash(&mut self);
}

/// [`Memory`] as a subject.
pub(crate) struct InMemory(Memory);

impl Subject for InMemory {
    async fn create(clock: Arc<TestClock>) -> Self {
        Self(Memory::with_retention(clock, RETENTION))
    }

    fn store(&self) -> &dyn LaneStore {
        &self.0
    }

    async fn reopen(&mut self) {
        self.0.close().await.unwrap();
        self.0 = self.0.reopen().unwrap();
    }

    async fn crash(&mut self) {
        self.0 = self.0.crash();
    }
}

/// [`Embedded`] as a subject.
pub(crate) struct OnDisk(Opened);

/// [`Embedded`] with segments of a few batches and checkpoints after a few events.
pub(crate) struct Restless(Opened);

/// [`Restless`], whose crash also takes everything but the log.
pub(crate) struct Forgetful(Opened);

struct Opened {
    dir: TempDir,
    clock: Arc<TestClock>,
    options: Options,
    store: Option<Embedded>,
}

impl Opened {
    fn create(clock: Arc<TestClock>, options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut new = Self { dir, clock, options, store: None };
        new.open();
        new
    }

    fn open(&mut self) {
        // What was open goes first: it holds the lock.
        self.store = None;
        let settings = Settings {
            path: self.dir.path().join("data"),
            durability: Durability::Fsync,
            max_bytes: None,
            min_free: 1 << 20,
            retention: RETENTION,
        };
        let clock = Arc::clone(&self.clock);
        self.store = Some(Embedded::open_with(settings, clock, self.options.clone()).unwrap());
    }

    fn store(&self) -> &Embedded {
        self.store.as_ref().unwrap()
    }
}

impl Subject for OnDisk {
    async fn create(clock: Arc<TestClock>) -> Self {
        Self(Opened::create(clock, Options { segment_bytes: 1 << 20, ..Options::default() }))
    }

    fn store(&self) -> &dyn LaneStore {
        self.0.store()
    }

    async fn reopen(&mut self) {
        self.0.store().close().await.unwrap();
        self.0.open();
    }

    async fn crash(&mut self) {
        self.0.open();
    }
}

fn restless() -> Options {
    Options {
        segment_bytes: 4096,
        checkpoint_bytes: 2048,
        checkpoint_entries: 5,
        index_bulk: 30,
        upkeep_every: Some(Duration::from_millis(10)),
        ..Options::default()
    }
}

impl Subject for Restless {
    async fn create(clock: Arc<TestClock>) -> Self {
        Self(Opened::create(clock, restless()))
    }

    fn store(&self) -> &dyn LaneStore {
        self.0.store()
    }

    async fn reopen(&mut self) {
        self.0.store().close().await.unwrap();
        self.0.open();
    }

    async fn crash(&mut self) {
        self.0.open();
    }
}

impl Subject for Forgetful {
    async fn create(clock: Arc<TestClock>) -> Self {
        Self(Opened::create(clock, restless()))
    }

    fn store(&self) -> &dyn LaneStore {
        self.0.store()
    }

    async fn reopen(&mut self) {
        self.0.store().close().await.unwrap();
        self.0.open();
    }

    async fn crash(&mut self) {
        self.0.store = None;
        let data = self.0.dir.path().join("data");
        std::fs::remove_dir_all(data.join("index")).unwrap();
        // Before the first checkpoint there is none.
        std::fs::remove_file(data.join("checkpoint")).ok();
        self.0.open();
    }
}

/// Runs a test on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// A store, its clock, and a counter that makes every event another one.
pub(crate) struct World<S> {
    pub(crate) clock: Arc<TestClock>,
    subject: S,
    events_made: u64,
}

impl<S: Subject> World<S> {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(TestClock::at(START));
        Self { subject: S::create(Arc::clone(&clock)).await, clock, events_made: 0 }
    }

    pub(crate) fn store(&self) -> &dyn LaneStore {
        self.subject.store()
    }

    pub(crate) async fn reopen(&mut self) {
        self.subject.reopen().await;
    }

    pub(crate) async fn crash(&mut self) {
        self.subject.crash().await;
    }

    pub(crate) fn now(&self) -> Wall {
        self.clock.now().wall
    }

    /// Lets a second pass, and says what time it is then.
    pub(crate) fn tick(&self) -> Wall {
        self.clock.advance(Duration::from_secs(1));
        self.now()
    }

    /// An event of `lane`, received now, unlike every other one of this world.
    pub(crate) fn event(&mut self, lane: &Lane) -> Event {
        self.events_made += 1;
        event(self.events_made, lane, self.now())
    }

    /// Appends `count` events to `lane` in one batch; their seqs.
    pub(crate) async fn append(&mut self, lane: &Lane, count: usize) -> Vec<Seq> {
        let batch = (0..count).map(|_| Arc::new(self.event(lane))).collect();
        self.append_batch(batch).await
    }

    /// Appends one event to `lane`; its seq.
    pub(crate) async fn append_one(&mut self, lane: &Lane) -> Seq {
        self.append(lane, 1).await[0]
    }

    /// Appends a batch; its seqs.
    pub(crate) async fn append_batch(&mut self, batch: Vec<Arc<Event>>) -> Vec<Seq> {
        let count = batch.len();
        let appended = self.store().append(batch).await.unwrap();
        (0..count).map(|number| appended.place(number).unwrap()).collect()
    }

    /// Settles one event now, which must change something.
    pub(crate) async fn settle(&self, seq: Seq, verdict: Verdict) {
        let ignored = self.store().settle(vec![self.settlement(seq, verdict.clone())]).await.unwrap();
        assert_eq!(ignored, 0, "{verdict:?} about {seq} changed nothing");
    }

    /// A settlement now, without an attempt.
    pub(crate) fn settlement(&self, seq: Seq, verdict: Verdict) -> Settlement {
        Settlement { seq, at: self.now(), verdict, attempt: None }
    }

    /// Everything about the event at `seq`, which must be there.
    pub(crate) async fn story(&self, seq: Seq) -> Story {
        let event = self.store().read(vec![seq]).await.unwrap().remove(0);
        let id = event.unwrap_or_else(|| panic!("no event at {seq}")).id;
        self.store().find(id).await.unwrap().unwrap_or_else(|| panic!("{id} at {seq} cannot be found"))
    }

    /// The event at `seq` as a scheduler sees it, which must be pending.
    pub(crate) async fn pending(&self, seq: Seq) -> Pending {
        let lane = self.story(seq).await.record.lane;
        let before = Seq(seq.0 - 1);
        let mut all = self.store().load(lane, before, 1).await.unwrap();
        all.extend(self.store().open(before, 1).await.unwrap());
        all.extend(self.store().due(None, usize::MAX).await.unwrap());
        all.retain(|pending| pending.seq == seq);
        assert_eq!(all.len(), 1, "{seq} should stand in one queue exactly: {all:?}");
        all.remove(0)
    }

    /// Seqs of the fresh events of a lane.
    pub(crate) async fn fresh(&self, lane: &Lane) -> Vec<Seq> {
        seqs(&self.store().load(lane.clone(), Seq(0), 10_000).await.unwrap())
    }

    /// Seqs of the retrying events in the order of their due times.
    pub(crate) async fn due(&self) -> Vec<Seq> {
        seqs(&self.store().due(None, 10_000).await.unwrap())
    }

    /// Seqs of the open events.
    pub(crate) async fn open(&self) -> Vec<Seq> {
        seqs(&self.store().open(Seq(0), 10_000).await.unwrap())
    }
}

pub(crate) fn seqs(pending: &[Pending]) -> Vec<Seq> {
    pending.iter().map(|pending| pending.seq).collect()
}

/// A lane of a group with this key.
pub(crate) fn lane(key: &str) -> Lane {
    Lane { group: Group::of(&[key]), inner: None }
}

/// A part of a group's lane.
pub(crate) fn inner_lane(key: &str, inner: &str) -> Lane {
    Lane { group: Group::of(&[key]), inner: Some(Group::of(&[inner])) }
}

/// A list of everything, `limit` a page.
pub(crate) fn everything(limit: usize) -> Query {
    Query { limit, ..Query::default() }
}

/// The `number`th event of a world.
pub(crate) fn event(number: u64, lane: &Lane, received: Wall) -> Event {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    let mut headers = http::HeaderMap::new();
    headers.insert("content-type", http::HeaderValue::from_static("application/json"));
    Event {
        id: EventId::new(received, &random),
        received,
        source: "shop".into(),
        lane: lane.clone(),
        owner: None,
        key_source: KeySource::Rule { rule: "headers.x-shop".into(), signed: true },
        order: None,
        fingerprint: None,
        trace: None,
        verified: "shopify secret=0".into(),
        provider_event_id: Some(format!("evt-{number}").into()),
        event_type: Some("orders/create".into()),
        method: http::Method::POST,
        target: "/webhooks/shopify".into(),
        forward: None,
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        https: false,
        headers,
        body: Bytes::from(format!("{{\"number\":{number}}}")),
    }
}

/// What the `number`th attempt gave, begun at `started`.
pub(crate) fn note(number: u32, started: Wall) -> AttemptNote {
    AttemptNote {
        number,
        started,
        took: Duration::from_millis(250),
        outcome: "status".into(),
        status: Some(503),
        error: "the upstream answered 503".into(),
        excerpt: Bytes::from_static(b"try later"),
        refused: number.is_multiple_of(2),
        waited: WaitSplit::default(),
    }
}
