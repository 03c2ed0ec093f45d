//! The index fails while the store runs: what is answered meanwhile, and how it comes back or does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use fairlane::store::embedded::{Embedded, IndexFault, IndexFaults, IndexStep, Options};
use fairlane::store::{Error, LaneStore, Status, Verdict};
use parking_lot::Mutex;

use crate::site::{Site, populate};
use crate::snapshot::Snapshot;
use crate::world::{lane, run};

/// Checkpoints only when a test makes one; what fails is tried again without a pause.
fn options(site: &Site, faults: IndexFaults) -> Options {
    Options {
        checkpoint_bytes: u64::MAX,
        checkpoint_entries: usize::MAX,
        checkpoint_after: Duration::from_secs(1_000_000),
        checkpoint_pause: Duration::ZERO,
        index_faults: Some(faults),
        ..site.options()
    }
}

/// Once `armed`, the next commit fails, and then `open` says of each try of opening the index, numbered from 1, what becomes of it.
fn failing(armed: &Arc<AtomicBool>, open: impl Fn(u32) -> Option<IndexFault> + Send + Sync + 'static) -> IndexFaults {
    let (armed, opens) = (Arc::clone(armed), AtomicU32::new(0));
    Arc::new(move |step| match step {
        IndexStep::Commit => armed.swap(false, Ordering::Relaxed).then_some(IndexFault::Fails),
        IndexStep::Open => open(opens.fetch_add(1, Ordering::Relaxed) + 1),
    })
}

/// Where the checkpointer waits until the test lets it go on.
struct Halt {
    reached: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Halt {
    fn new() -> (Self, Receiver<()>, SyncSender<()>) {
        let (reached, arrival) = sync_channel(1);
        let (leave, go_on) = sync_channel(1);
        (Self { reached, go_on: Mutex::new(go_on) }, arrival, leave)
    }

    fn wait(&self) {
        self.reached.send(()).unwrap();
        self.go_on.lock().recv().unwrap();
    }
}

async fn in_order_again(site: &mut Site, store: &Embedded, before: &Snapshot) {
    while store.checkpoint().is_err() {
        std::thread::yield_now();
    }
    before.assert_same(&Snapshot::take(store, 50).await, "the index is open again");
    assert_eq!(store.admits(&lane("a").group), Ok(()));
    site.append(store, "a", 1).await;
}

#[test]
fn an_index_that_failed_is_read_until_it_is_opened_again() {
    run(async {
        let mut site = Site::new();
        let (halt, arrival, leave) = Halt::new();
        let armed = Arc::default();
        let faults = failing(&armed, move |_| {
            halt.wait();
            None
        });
        let store = site.open_with(options(&site, faults)).unwrap();
        populate(&mut site, &store).await;
        store.checkpoint().unwrap();
        let more = site.append(&store, "c", 3).await;
        site.settle(&store, &more[..1], Verdict::Begun).await;
        let before = Snapshot::take(&store, 50).await;
        armed.store(true, Ordering::Relaxed);
        store.checkpoint().unwrap_err();
        arrival.recv().unwrap();
        before.assert_same(&Snapshot::take(&store, 50).await, "the index has failed");
        leave.send(()).unwrap();
        in_order_again(&mut site, &store, &before).await;
    });
}

#[test]
fn what_memory_has_is_told_without_an_index() {
    run(async {
        let mut site = Site::new();
        let (halt, arrival, leave) = Halt::new();
        let armed = Arc::default();
        let faults = failing(&armed, move |attempt| {
            if attempt == 2 {
                halt.wait();
            }
            (attempt == 1).then_some(IndexFault::Fails)
        });
        let store = site.open_with(options(&site, faults)).unwrap();
        let old = site.append(&store, "old", 2).await;
        store.checkpoint().unwrap();
        let young = site.append(&store, "young", 3).await;
        site.append(&store, "old", 1).await;
        let before = Snapshot::take(&store, 50).await;
        let id = |seq| before.records.iter().find(|record| record.seq == seq).unwrap().id;
        armed.store(true, Ordering::Relaxed);
        store.checkpoint().unwrap_err();
        arrival.recv().unwrap();

        let loaded = store.load(lane("young"), young[0], 10).await.unwrap();
        assert_eq!(loaded.iter().map(|pending| pending.seq).collect::<Vec<_>>(), young[1..]);
        assert!(store.read(young.clone()).await.unwrap().iter().all(Option::is_some));
        assert_eq!(store.find(id(young[0])).await.unwrap().unwrap().record.status, Status::Queued);
        site.settle(&store, &young[..1], Verdict::Begun).await;
        site.settle(&store, &young[..1], Verdict::Released).await;
        site.append(&store, "young", 1).await;
        let loaded = store.load(lane("young"), young[0], 10).await.unwrap();
        assert_eq!(loaded.len(), 3, "with what came meanwhile");

        let unknown = |answered: Result<(), Error>| assert!(matches!(answered, Err(Error::Unavailable(_))));
        unknown(store.load(lane("old"), old[0], 10).await.map(drop));
        unknown(store.read(old.clone()).await.map(drop));
        unknown(store.find(id(old[0])).await.map(drop));
        leave.send(()).unwrap();
        let before = loop {
            match store.load(lane("old"), old[0], 10).await {
                Ok(loaded) => break loaded,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert_eq!(before.len(), 2);
        let before = Snapshot::take(&store, 50).await;
        in_order_again(&mut site, &store, &before).await;
    });
}

#[test]
fn an_index_is_opened_again_as_often_as_it_takes() {
    run(async {
        let mut site = Site::new();
        let armed = Arc::default();
        let faults = failing(&armed, |attempt| (attempt < 60).then_some(IndexFault::Fails));
        let store = site.open_with(options(&site, faults)).unwrap();
        populate(&mut site, &store).await;
        store.checkpoint().unwrap();
        populate(&mut site, &store).await;
        let before = Snapshot::take(&store, 50).await;
        armed.store(true, Ordering::Relaxed);
        store.checkpoint().unwrap_err();
        in_order_again(&mut site, &store, &before).await;
    });
}

#[test]
fn an_index_that_does_not_open_in_sixty_tries_ends_the_process_and_a_restart_has_everything() {
    run(async {
        let mut site = Site::new();
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let armed = Arc::default();
        let faults = failing(&armed, move |attempt| {
            counted.store(attempt, Ordering::Relaxed);
            Some(IndexFault::Fails)
        });
        let store = site.open_with(options(&site, faults)).unwrap();
        populate(&mut site, &store).await;
        store.checkpoint().unwrap();
        populate(&mut site, &store).await;
        let before = Snapshot::take(&store, 50).await;
        armed.store(true, Ordering::Relaxed);
        store.checkpoint().unwrap_err();
        let why = store.poisoned().await;
        assert!(why.contains("does not open again") && why.contains("a restart builds the index again"), "{why}");
        assert!(tries.load(Ordering::Relaxed) >= 60);
        let event = site.event("a", 10);
        assert!(matches!(store.append(vec![event]).await, Err(Error::Poisoned(_))));
        drop(store);
        before.assert_same(&Snapshot::take(&site.open(), 50).await, "after a restart");
    });
}

#[test]
fn an_index_that_is_another_one_when_it_opens_again_is_not_believed() {
    run(async {
        let mut site = Site::new();
        let index = site.path().join("index");
        let armed = Arc::default();
        let faults = failing(&armed, move |_| {
            std::fs::remove_dir_all(&index).unwrap();
            None
        });
        let store = site.open_with(options(&site, faults)).unwrap();
        populate(&mut site, &store).await;
        store.checkpoint().unwrap();
        populate(&mut site, &store).await;
        let before = Snapshot::take(&store, 50).await;
        armed.store(true, Ordering::Relaxed);
        store.checkpoint().unwrap_err();
        let why = store.poisoned().await;
        assert!(why.contains("at checkpoint 0 instead of 2"), "{why}");
        drop(store);
        before.assert_same(&Snapshot::take(&site.open(), 50).await, "built again from the log");
    });
}
