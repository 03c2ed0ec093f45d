//! A store that is elsewhere behind its spool: outages of every kind, and what is there afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::{Clock, SystemClock, TestClock};
use fairlane::event::{Event, EventId, Fingerprint, Group, Lane, Seq};
use fairlane::metrics::Metrics;
use fairlane::store::embedded::{self, Embedded};
use fairlane::store::memory::Memory;
use fairlane::store::spool::{self, Settings, Spooled};
use fairlane::store::{Durability, Error, LaneStore, Query, Refusal, Settlement, Status, Verdict};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::elsewhere::{Elsewhere, Way};
use crate::snapshot::all_records;
use crate::world::{RETENTION, START, Subject, event, everything, lane, run};

/// Where the seqs of the spool begin.
pub(crate) const FIRST: u64 = 1_023 << 43;

const SETTINGS: Settings = Settings { deadline: Duration::from_millis(100), pause: Duration::from_millis(10) };

/// The spool's own settings, in a folder.
fn on_disk(dir: &TempDir, max_bytes: Option<u64>) -> embedded::Settings {
    let path = dir.path().join("spool");
    embedded::Settings { path, durability: Durability::Fsync, max_bytes, min_free: 1 << 20, retention: RETENTION }
}

/// A node: its store, what is elsewhere, and the task that moves.
pub(crate) struct Node {
    pub(crate) remote: Elsewhere,
    pub(crate) store: Arc<Spooled>,
    metrics: Arc<Metrics>,
    dir: TempDir,
    mover: JoinSet<()>,
    events: u64,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(|dir| Some(spool::open(on_disk(dir, None), Arc::new(SystemClock)).unwrap()))
    }

    fn with(open: impl Fn(&TempDir) -> Option<Embedded>) -> Self {
        let (dir, remote) = (tempfile::tempdir().unwrap(), Elsewhere::new(Memory::new(Arc::new(TestClock::at(START)))));
        let (store, metrics) = start(&remote, open(&dir));
        let mut node = Self { remote, store, metrics, dir, mover: JoinSet::new(), events: 0 };
        node.mover.spawn(Arc::clone(&node.store).run());
        node
    }

    /// The process is killed, and the next one starts.
    pub(crate) async fn crash(&mut self) {
        self.mover.shutdown().await;
        self.remote = self.remote.again(Memory::crash);
        // The last handle goes, and with it the lock.
        self.store = start(&self.remote, None).0;
        let local = spool::open(on_disk(&self.dir, None), Arc::new(SystemClock)).unwrap();
        (self.store, self.metrics) = start(&self.remote, Some(local));
        self.mover.spawn(Arc::clone(&self.store).run());
    }

    /// So many events of a lane, one batch.
    pub(crate) fn events(&mut self, lane: &Lane, count: usize) -> Vec<Arc<Event>> {
        let mut next = || {
            self.events += 1;
            Arc::new(event(self.events, lane, START))
        };
        (0..count).map(|_| next()).collect()
    }

    async fn append(&mut self, lane: &Lane, count: usize) -> Vec<EventId> {
        let batch = self.events(lane, count);
        let ids = batch.iter().map(|event| event.id).collect();
        let appended = self.store.append(batch).await.unwrap();
        assert!((0..count).all(|number| appended.place(number).is_ok()), "{appended:?}");
        ids
    }

    pub(crate) fn spooled(&self) -> u64 {
        self.store.usage().spool.unwrap().events
    }

    /// Waits until everything has moved.
    pub(crate) async fn emptied(&self) {
        until(|| self.spooled() == 0, || format!("{} events are still in the spool", self.spooled())).await;
    }

    async fn status(&self, id: EventId) -> Option<Status> {
        self.store.find(id).await.unwrap().map(|story| story.record.status)
    }
}

fn start(remote: &Elsewhere, local: Option<Embedded>) -> (Arc<Spooled>, Arc<Metrics>) {
    behind(remote, local, Arc::new(SystemClock))
}

fn behind(remote: &Elsewhere, local: Option<Embedded>, clock: Arc<dyn Clock>) -> (Arc<Spooled>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("fsync"));
    // Every group is a part of its own, as far as numbers go.
    let part = |group: &Group| fairlane::event::shard(group, 64);
    let remote: (Arc<dyn LaneStore>, spool::PartOf) = (Arc::new(remote.clone()), Box::new(part));
    (Spooled::new(remote, local, clock, Arc::clone(&metrics), SETTINGS), metrics)
}

/// A store that is elsewhere and answers, as a subject of the contract.
pub(crate) struct BehindSpool {
    remote: Elsewhere,
    clock: Arc<TestClock>,
    dir: TempDir,
    store: Arc<Spooled>,
}

impl BehindSpool {
    fn new(clock: Arc<TestClock>, way: Way) -> Self {
        let (dir, remote) =
            (tempfile::tempdir().unwrap(), Elsewhere::new(Memory::with_retention(Arc::clone(&clock) as _, RETENTION)));
        remote.becomes(way);
        let local = spool::open(on_disk(&dir, None), Arc::clone(&clock) as _).unwrap();
        let store = behind(&remote, Some(local), Arc::clone(&clock) as _).0;
        Self { remote, clock, dir, store }
    }

    fn next(&mut self, memory: impl FnOnce(&Memory) -> Memory) {
        self.remote = self.remote.again(memory);
        // The last handle goes, and with it the lock.
        self.store = behind(&self.remote, None, Arc::clone(&self.clock) as _).0;
        let local = spool::open(on_disk(&self.dir, None), Arc::clone(&self.clock) as _).unwrap();
        self.store = behind(&self.remote, Some(local), Arc::clone(&self.clock) as _).0;
    }
}

impl Subject for BehindSpool {
    async fn create(clock: Arc<TestClock>) -> Self {
        Self::new(clock, Way::There)
    }

    fn store(&self) -> &dyn LaneStore {
        &*self.store
    }

    async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.next(|memory| memory.reopen().unwrap());
    }

    async fn crash(&mut self) {
        self.next(Memory::crash);
    }
}

/// The same, with a store that takes nothing.
pub(crate) struct Away(BehindSpool);

impl Subject for Away {
    async fn create(clock: Arc<TestClock>) -> Self {
        Self(BehindSpool::new(clock, Way::ReadOnly))
    }

    fn store(&self) -> &dyn LaneStore {
        self.0.store()
    }

    async fn reopen(&mut self) {
        self.0.reopen().await;
    }

    async fn crash(&mut self) {
        self.0.crash().await;
    }
}

/// Waits for something; no wait takes this long unless it is for ever.
async fn until(mut is_so: impl FnMut() -> bool, what: impl Fn() -> String) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(), "{}", what());
}

#[test]
fn while_the_store_answers_nothing_is_kept_here() {
    run(async {
        let mut node = Node::new();
        let ids = node.append(&lane("a"), 3).await;
        assert_eq!((node.remote.ids(&lane("a")), node.spooled()), (ids, 0));
        assert_eq!(node.store.admits(&lane("a").group), Ok(()));
        assert!(node.store.usage().answered.is_some());
    });
}

/// What is refused and what is not answered, and a store that did what it did not answer for.
#[test]
fn events_of_an_outage_are_kept_here_and_go_on_in_their_order_when_it_is_over() {
    run(async {
        for way in [Way::Refuses, Way::Hangs, Way::Mute, Way::ReadOnly] {
            let mut node = Node::new();
            let mut ids = node.append(&lane("a"), 2).await;
            node.remote.becomes(way);
            for _ in 0..3 {
                ids.extend(node.append(&lane("a"), 40).await);
            }
            assert_eq!(node.spooled(), 120, "{way:?}");
            node.remote.becomes(Way::There);
            node.emptied().await;
            let has = node.remote.ids(&lane("a"));
            assert_eq!(has.iter().collect::<BTreeSet<_>>(), ids.iter().collect(), "{way:?}");
            assert_eq!(has.len(), ids.len(), "{way:?}: each once");
            // What was stored and not answered was there before it was in the spool.
            let unsaid = node.remote.outside.lock().unsaid.clone();
            let in_order = |ids: &[EventId]| ids.iter().copied().filter(|id| !unsaid.contains(id)).collect::<Vec<_>>();
            assert!(in_order(&has) == in_order(&ids), "{way:?}: in their order");
            let counted = || (node.metrics.spooled.get(), node.metrics.spool_moved.get());
            until(|| counted() == (120, 120), || format!("{way:?}: {:?}", counted())).await;
            // And new ones go there again.
            let more = node.append(&lane("a"), 1).await;
            assert_eq!(node.remote.ids(&lane("a")).last(), more.last(), "{way:?}");
        }
    });
}

#[test]
fn what_is_kept_here_outlives_the_process_and_is_taken_up_by_the_next() {
    run(async {
        let mut node = Node::new();
        node.remote.becomes(Way::Refuses);
        let ids = node.append(&lane("a"), 30).await;
        node.crash().await;
        assert_eq!(node.spooled(), 30);
        node.remote.becomes(Way::There);
        node.emptied().await;
        assert_eq!(node.remote.ids(&lane("a")), ids);
    });
}

/// From the spool it would come behind what another node took meanwhile.
#[test]
fn an_event_with_an_order_key_is_refused_and_those_around_it_are_not() {
    run(async {
        let mut node = Node::new();
        for (way, refusal) in [(Way::Refuses, Refusal::Unavailable), (Way::Hangs, Refusal::Unknown)] {
            node.crash().await;
            node.remote.becomes(way);
            let mut batch = node.events(&lane("a"), 3);
            Arc::make_mut(&mut batch[1]).order = Some(Group::of(&["conversation"]));
            let before = node.spooled();
            let appended = node.store.append(batch.clone()).await.unwrap();
            assert_eq!(appended.place(1), Err(refusal), "{way:?}");
            assert!(appended.place(0).is_ok() && appended.place(2).is_ok(), "{way:?}");
            assert_eq!(node.spooled(), before + 2);
            assert_eq!(node.store.find(batch[1].id).await.ok(), None, "{way:?}: it is not known, and nobody can say");
        }
    });
}

#[test]
fn without_a_spool_events_are_refused_and_so_it_says_before() {
    run(async {
        let mut node = Node::with(|_| None);
        node.append(&lane("a"), 1).await;
        node.remote.becomes(Way::Refuses);
        let batch = node.events(&lane("a"), 1);
        assert_eq!(node.store.append(batch).await.unwrap().place(0), Err(Refusal::Unavailable));
        assert_eq!(node.store.admits(&lane("a").group), Err(Refusal::Unavailable));
        assert_eq!(node.store.usage().spool, None);
        node.remote.becomes(Way::There);
        until(|| node.store.admits(&lane("a").group).is_ok(), || "it is not ready again".into()).await;
        node.append(&lane("a"), 1).await;
    });
}

/// Nobody sends anything: what the node says of itself is true all the same.
#[test]
fn a_store_that_goes_away_in_silence_is_missed() {
    run(async {
        let node = Node::with(|_| None);
        node.remote.becomes(Way::Hangs);
        until(|| node.store.admits(&lane("a").group).is_err(), || "it is ready without a store".into()).await;
        let answered = node.store.usage().answered;
        node.remote.becomes(Way::There);
        until(|| node.store.admits(&lane("a").group).is_ok(), || "it is not ready again".into()).await;
        assert!(node.store.usage().answered > answered);
    });
}

#[test]
fn a_full_spool_refuses_and_what_is_in_it_still_goes_on() {
    run(async {
        let mut node = Node::with(|dir| {
            // The segments that exist from the beginning leave no room for new events.
            let settings = on_disk(dir, Some(1 << 20));
            Some(spool::open(settings, Arc::new(SystemClock)).unwrap())
        });
        until(|| node.store.usage().spool.unwrap().room_bytes == 0, || "there is room".into()).await;
        node.remote.becomes(Way::Refuses);
        let batch = node.events(&lane("a"), 2);
        until(|| node.store.admits(&lane("a").group) != Ok(()), || "it admits".into()).await;
        assert_eq!(node.store.append(batch).await.unwrap().place(1), Err(Refusal::SpoolFull));
        assert_eq!(node.store.admits(&lane("a").group), Err(Refusal::SpoolFull));
        node.remote.becomes(Way::There);
        until(|| node.store.admits(&lane("a").group).is_ok(), || "it is not ready again".into()).await;
    });
}

#[test]
fn a_part_that_is_away_costs_the_others_nothing() {
    run(async {
        let mut node = Node::new();
        node.remote.outside.lock().away.insert(lane("b").group);
        let mut batch = Vec::new();
        for _ in 0..20 {
            batch.extend(node.events(&lane("a"), 1));
            batch.extend(node.events(&lane("b"), 1));
        }
        let appended = node.store.append(batch.clone()).await.unwrap();
        let spooled = |number: usize| appended.place(number).unwrap().0 > FIRST;
        assert!((0..40).all(|number| spooled(number) == (number % 2 == 1)), "{appended:?}");
        let later = node.append(&lane("a"), 1).await;
        assert_eq!((node.spooled(), node.remote.ids(&lane("a")).last()), (20, later.last()));
        node.remote.outside.lock().away.clear();
        node.emptied().await;
        let ids: Vec<EventId> = batch.iter().skip(1).step_by(2).map(|event| event.id).collect();
        assert_eq!(node.remote.ids(&lane("b")), ids);
    });
}

/// It was answered as stored, so it stays until there is room for it, and nobody waits behind it.
#[test]
fn a_group_that_may_have_no_more_events_stays_and_the_others_go_past_it() {
    run(async {
        let mut node = Node::new();
        node.remote.becomes(Way::Refuses);
        node.remote.outside.lock().backlog.insert(lane("a").group, 5);
        let a = node.append(&lane("a"), 700).await;
        let b = node.append(&lane("b"), 700).await;
        node.remote.becomes(Way::There);
        until(|| node.spooled() == 695, || format!("{} are left", node.spooled())).await;
        assert_eq!((node.remote.ids(&lane("a")), node.remote.ids(&lane("b"))), (a[..5].to_vec(), b));
        node.remote.outside.lock().backlog.insert(lane("a").group, 6);
        until(|| node.spooled() == 694, || format!("{} are left", node.spooled())).await;
        node.remote.outside.lock().backlog.clear();
        node.emptied().await;
        assert_eq!(node.remote.ids(&lane("a")), a);
    });
}

#[test]
fn repeats_are_found_by_the_store_that_has_all_events() {
    run(async {
        let mut node = Node::new();
        let fingerprint = Fingerprint { hash: [7; 16], window: Duration::from_secs(3_600) };
        let mut batch = node.events(&lane("a"), 3);
        for event in &mut batch {
            Arc::make_mut(event).fingerprint = Some(fingerprint);
        }
        node.remote.becomes(Way::Refuses);
        let appended = node.store.append(batch.clone()).await.unwrap();
        assert_eq!(appended.repeats, [], "nobody here knows");
        node.remote.becomes(Way::There);
        node.emptied().await;
        let mut found = Vec::new();
        for event in &batch {
            found.push(node.status(event.id).await);
        }
        assert_eq!(found, [Some(Status::Queued), Some(Status::Suppressed), Some(Status::Suppressed)]);
    });
}

#[test]
fn a_person_finds_what_is_kept_here_while_the_store_is_away() {
    run(async {
        let mut node = Node::new();
        let there = node.append(&lane("a"), 2).await;
        node.remote.becomes(Way::Refuses);
        let here = node.append(&lane("a"), 3).await;
        let story = node.store.find(here[1]).await.unwrap().unwrap();
        assert_eq!((story.record.status, story.record.seq), (Status::Queued, Seq(FIRST + 2)));
        let read = node.store.read(vec![story.record.seq]).await.unwrap();
        assert_eq!(read[0].as_ref().unwrap().id, here[1]);
        assert!(node.store.find(there[0]).await.is_err(), "whether it is there, nobody can say now");
        let page = node.store.list(everything(100)).await.unwrap();
        let listed: Vec<EventId> = page.records.iter().rev().map(|record| record.id).collect();
        assert_eq!(listed, here);
        let behind = Query { behind: page.next, ..everything(100) };
        assert!(node.store.list(behind).await.is_err(), "a list that cannot go on says so");
        let of_others = Query { group: Some(lane("b").group), ..everything(5) };
        assert!(node.store.list(of_others).await.is_err());
        // A settlement is about what was leased, and nothing here was.
        let settlement = Settlement { seq: story.record.seq, at: START, verdict: Verdict::Discarded, attempt: None };
        node.remote.becomes(Way::ReadOnly);
        assert_eq!(node.store.find(there[0]).await.unwrap().unwrap().record.id, there[0]);
        node.remote.becomes(Way::There);
        node.emptied().await;
        assert_eq!(node.store.settle(vec![settlement]).await, Ok(1));
        assert_eq!(node.store.requeue(vec![story.record.seq], START).await, Ok(vec![None]));
        assert_eq!(node.status(here[1]).await, Some(Status::Queued));
        assert_eq!(node.store.find(here[1]).await.unwrap().unwrap().record.seq, Seq(4));
    });
}

#[test]
fn a_list_goes_on_from_the_one_to_the_other() {
    run(async {
        let mut node = Node::new();
        let mut ids = node.append(&lane("a"), 7).await;
        node.remote.becomes(Way::ReadOnly);
        ids.extend(node.append(&lane("a"), 6).await);
        for limit in [1, 2, 3, 6, 7, 12, 13, 14, 1_000] {
            let upwards = Query { oldest_first: true, ..everything(limit) };
            let found: Vec<EventId> = all_records(&*node.store, upwards).await.iter().map(|record| record.id).collect();
            assert_eq!(found, ids, "{limit} a page, the oldest first");
            let downwards = all_records(&*node.store, everything(limit)).await;
            assert!(downwards.is_sorted_by(|one, other| one.seq > other.seq));
            let found: Vec<EventId> = downwards.iter().rev().map(|record| record.id).collect();
            assert_eq!(found, ids, "{limit} a page");
        }
        let dead = Query { status: vec![Status::Dead], ..everything(5) };
        assert_eq!(all_records(&*node.store, dead).await, []);
        let queued = Query { status: vec![Status::Queued, Status::Dead], ..everything(5) };
        assert_eq!(all_records(&*node.store, queued).await.len(), 13);
        let events = node.store.read(vec![Seq(FIRST + 1), Seq(1), Seq(FIRST + 9), Seq(2)]).await.unwrap();
        let read: Vec<Option<EventId>> = events.iter().map(|event| event.as_ref().map(|event| event.id)).collect();
        assert_eq!(read, [Some(ids[7]), Some(ids[0]), None, Some(ids[1])]);
    });
}

#[test]
fn two_processes_on_one_spool_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = spool::open(on_disk(&dir, None), Arc::new(SystemClock)).unwrap();
    let second = spool::open(on_disk(&dir, None), Arc::new(SystemClock)).map(drop);
    assert!(matches!(second, Err(Error::Locked(_))), "{second:?}");
    drop(first);
    spool::open(on_disk(&dir, None), Arc::new(SystemClock)).unwrap();
}

#[test]
fn space_comes_back_after_events_have_moved() {
    run(async {
        let clock = Arc::new(TestClock::at(SystemClock.now().wall));
        let mut node = Node::with(|dir| Some(spool::open(on_disk(dir, None), Arc::clone(&clock) as _).unwrap()));
        let empty = node.store.usage().spool.unwrap().bytes;
        node.remote.becomes(Way::Refuses);
        for _ in 0..8 {
            let mut batch = node.events(&lane("a"), 8);
            for event in &mut batch {
                Arc::make_mut(event).body = vec![b'x'; 1 << 20].into();
            }
            node.store.append(batch).await.unwrap();
        }
        let bytes = || node.store.usage().spool.unwrap().bytes;
        until(|| bytes() > empty + (60 << 20), || format!("{} bytes", bytes())).await;
        node.remote.becomes(Way::There);
        node.emptied().await;
        clock.advance(Duration::from_secs(180));
        until(|| bytes() < empty + (20 << 20), || format!("{} bytes", bytes())).await;
        assert_eq!(node.remote.ids(&lane("a")).len(), 64);
    });
}

#[test]
fn a_closed_store_stops_moving_and_keeps_what_it_has() {
    run(async {
        let mut node = Node::new();
        node.remote.becomes(Way::Refuses);
        let ids = node.append(&lane("a"), 3).await;
        node.store.close().await.unwrap();
        node.mover.join_next().await.unwrap().unwrap();
        node.remote.becomes(Way::There);
        assert!(node.store.find(ids[0]).await.is_err());
        node.crash().await;
        node.emptied().await;
        assert_eq!(node.remote.ids(&lane("a")), ids);
    });
}
