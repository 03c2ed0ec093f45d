//! How many events of each source are pending.
//!
//! What comes and ends in this process is counted as it happens. What was pending before it is counted in the background, page by
//! page in the order of seqs: so that a start does not wait for it. An event of those that ends before the count has come to it was never on
//! the account, and is passed by if a page still shows it. Between the page and the count all ends are waited for that the page may know
//! of already and we do not.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::event::Seq;
use crate::store::{LaneStore, Query, Record, Status};

/// Rows of one page.
const PAGE: usize = 1_000;

/// Pending events of one source.
pub(super) type Pending = Arc<AtomicI64>;

/// The accounts of all sources.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    sources: RwLock<HashMap<Arc<str>, Pending>>,
    /// Everything from before has been counted.
    counted: AtomicBool,
    before: Mutex<Before>,
    /// Batches of settlements that were begun, and those whose ends we know.
    begun: AtomicU64,
    known: watch::Sender<u64>,
}

/// The count of what was pending at the start.
#[derive(Debug, Default)]
struct Before {
    /// It goes to here,
    last: Seq,
    /// and has come to here.
    counted: Seq,
    /// Events behind that which ended since the page under way was asked for.
    ended: BTreeSet<Seq>,
}

impl Backlogs {
    /// The account of a source.
    pub(super) fn of(&self, source: &Arc<str>) -> Pending {
        if let Some(pending) = self.sources.read().get(source) {
            return Arc::clone(pending);
        }
        Arc::clone(self.sources.write().entry(Arc::clone(source)).or_default())
    }

    /// Pending events of a source; `None` while they are being counted.
    pub(super) fn pending(&self, source: &str) -> Option<u64> {
        if !self.counted.load(Ordering::Acquire) {
            return None;
        }
        let pending = self.sources.read().get(source).map_or(0, |pending| pending.load(Ordering::Relaxed));
        Some(u64::try_from(pending).unwrap_or(0))
    }

    /// The sources that have pending events; none while they are being counted.
    pub(super) fn owing(&self) -> Vec<Arc<str>> {
        if !self.counted.load(Ordering::Acquire) {
            return Vec::new();
        }
        let sources = self.sources.read();
        let owing = sources.iter().filter(|(_, pending)| pending.load(Ordering::Relaxed) > 0);
        owing.map(|(source, _)| Arc::clone(source)).collect()
    }

    /// A batch of settlements goes to the store.
    pub(super) fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Release);
    }

    /// Everything that ended with it was told.
    pub(super) fn known(&self) {
        self.known.send_modify(|known| *known += 1);
    }

    /// An event has ended, durably.
    pub(super) fn ended(&self, pending: &Pending, seq: Seq) {
        if !self.counted.load(Ordering::Acquire) {
            let mut before = self.before.lock();
            if seq > before.counted && seq <= before.last {
                before.ended.insert(seq);
                return;
            }
        }
        pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Everything with a higher seq is of this process.
    pub(super) fn begin(&self, last: Seq) {
        self.before.lock().last = last;
    }

    /// Counts what is pending from before, in the background.
    pub(super) async fn count(&self, store: &dyn LaneStore) {
        let last = self.before.lock().last;
        let pending = vec![Status::Queued, Status::InFlight, Status::Retrying];
        let mut known = self.known.subscribe();
        let mut behind = None;
        loop {
            self.before.lock().ended.clear();
            let query = Query { status: pending.clone(), oldest_first: true, behind, limit: PAGE, ..Query::default() };
            let page = match store.list(query).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, "what is pending of each source could not be counted; the next start tries it again");
                    return;
                }
            };
            let begun = self.begun.load(Ordering::Acquire);
            if known.wait_for(|known| *known >= begun).await.is_err() {
                return;
            }
            self.add(page.records.iter().filter(|record| record.seq <= last), page.next.unwrap_or(last).min(last));
            behind = page.next.filter(|next| *next < last);
            if behind.is_none() {
                return self.counted.store(true, Ordering::Release);
            }
        }
    }

    fn add<'r>(&self, records: impl Iterator<Item = &'r Record>, upto: Seq) {
        let mut before = self.before.lock();
        for record in records.filter(|record| !before.ended.contains(&record.seq)) {
            self.of(&record.source).fetch_add(1, Ordering::Relaxed);
        }
        before.counted = upto;
    }
}
