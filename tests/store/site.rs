//! One embedded store on a simulated disk, for tests of what goes wrong.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlane::clock::TestClock;
use fairlane::event::{Event, Seq};
use fairlane::store::disk::sim::Sim;
use fairlane::store::embedded::{Embedded, Options};
use fairlane::store::{Durability, Error, LaneStore as _, Settlement, Verdict};
use tempfile::TempDir;

use crate::power::{settings, tiny};
use crate::world::{START, event, lane, note};

/// A store on a simulated disk, its upkeep by hand.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) disk: Sim,
    made: u64,
}

impl Site {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, clock: Arc::new(TestClock::at(START)), disk: Sim::new(), made: 0 }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn options(&self) -> Options {
        Options { upkeep_every: None, ..tiny(&self.disk) }
    }

    pub(crate) fn open(&self) -> Embedded {
        self.open_with(self.options()).unwrap()
    }

    pub(crate) fn open_with(&self, options: Options) -> Result<Embedded, Error> {
        Embedded::open_with(settings(&self.path(), Durability::Fsync), Arc::clone(&self.clock) as _, options)
    }

    pub(crate) fn event(&mut self, group: &str, body: usize) -> Arc<Event> {
        self.made += 1;
        let plain = event(self.made, &lane(group), START);
        Arc::new(Event { body: Bytes::from(vec![b'x'; body]), ..plain })
    }

    pub(crate) async fn append(&mut self, store: &Embedded, group: &str, count: usize) -> Vec<Seq> {
        let mut seqs = Vec::new();
        for _ in 0..count {
            let event = self.event(group, 300);
            seqs.push(store.append(vec![event]).await.unwrap().first);
        }
        seqs
    }

    pub(crate) fn settlements(&self, seqs: &[Seq], verdict: &Verdict) -> Vec<Settlement> {
        use fairlane::clock::Clock as _;
        let at = self.clock.now().wall;
        let one = |&seq| Settlement { seq, at, verdict: verdict.clone(), attempt: verdict.ends().then(|| note(1, at)) };
        seqs.iter().map(one).collect()
    }

    pub(crate) async fn settle(&self, store: &Embedded, seqs: &[Seq], verdict: Verdict) {
        assert_eq!(store.settle(self.settlements(seqs, &verdict)).await, Ok(0), "{verdict:?}");
    }

    pub(crate) fn forget_all_but_the_log(&self) {
        std::fs::remove_dir_all(self.path().join("index")).unwrap();
        self.disk.damage(&self.path().join("checkpoint"), Vec::clear);
    }

    pub(crate) fn segment(&self, number: u32) -> PathBuf {
        self.path().join(format!("log/{number:08}.seg"))
    }
}

/// A life with all kinds of events in it.
pub(crate) async fn populate(site: &mut Site, store: &Embedded) {
    let seqs = site.append(store, "a", 12).await;
    site.append(store, "b", 3).await;
    site.settle(store, &seqs[..8], Verdict::Begun).await;
    site.settle(store, &seqs[..4], Verdict::Delivered).await;
    site.settle(store, &seqs[4..6], Verdict::Dead("no".into())).await;
    site.settle(store, &seqs[6..7], Verdict::RetryAt(START.plus(Duration::from_secs(5)))).await;
    site.settle(store, &seqs[..2], Verdict::Requeued).await;
}
