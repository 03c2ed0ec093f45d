//! What a node knows of each shard by itself: whether it holds it, which settlements have no answer yet, and its sums as last told.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::layout::{doubles, whole};
use super::link::Tag;
use super::owner::Epoch;
use super::shard::Shard;
use crate::event::Wall;
use crate::store::{Error, Settlement};

/// A shard as one node knows it.
pub(super) struct Local {
    pub(super) tag: Tag,
    /// As which epoch it is held here; 0: it is not.
    epoch: AtomicU64,
    pub(super) settling: tokio::sync::Mutex<Settling>,
    pub(super) sums: Mutex<Sums>,
}

/// The settlements of one epoch, one call after another. The number of a call lets Redis tell a repetition.
#[derive(Default)]
pub(super) struct Settling {
    epoch: u64,
    last: u64,
    /// A call that was not answered: it is finished before anything else, since it may have been carried out.
    pub(super) unfinished: Option<(u64, Vec<Settlement>)>,
    /// What was carried out of a batch that failed elsewhere: its caller repeats all of it.
    pub(super) done: Vec<Settlement>,
}

impl Settling {
    /// Begins anew where the shard has changed hands since.
    pub(super) fn of(&mut self, epoch: Epoch) {
        if self.epoch != epoch.0 {
            *self = Self { epoch: epoch.0, ..Self::default() };
        }
    }

    /// Notes a call before it is sent, so that also a caller that stops waiting leaves it noted.
    pub(super) fn begin(&mut self, run: Vec<Settlement>) {
        self.last += 1;
        self.unfinished = Some((self.last, run));
    }
}

impl Local {
    pub(super) fn new(namespace: &str, shard: Shard) -> Self {
        Self {
            tag: Tag::new(&format!("{namespace}:{shard}")),
            epoch: AtomicU64::new(0),
            settling: tokio::sync::Mutex::default(),
            sums: Mutex::default(),
        }
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self.epoch.load(Ordering::Acquire) {
            0 => None,
            epoch => Some(Epoch(epoch)),
        }
    }

    pub(super) fn hold(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }

    /// Whether it was held as that epoch until now.
    pub(super) fn let_go(&self, epoch: Epoch) -> bool {
        self.epoch.compare_exchange(epoch.0, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The sums of a shard, as last told by Redis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) pending: u64,
    pub(super) lanes: u64,
    pub(super) bytes: u64,
    /// Ended events that are kept: counted now and then, and kept up in between.
    pub(super) history: u64,
    pub(super) oldest: Option<Wall>,
    /// The last number that was given.
    pub(super) last: u64,
}

impl Sums {
    /// Takes what a script told of the sums.
    pub(super) fn learn(&mut self, told: &[u8]) -> Result<(), Error> {
        let [pending, lanes, bytes, oldest] = doubles(told)?;
        let sum = |value| whole(value).unwrap_or(0);
        (self.pending, self.lanes, self.bytes) = (sum(pending), sum(lanes), sum(bytes));
        // -2: it was not looked at.
        if oldest > -2.0 {
            self.oldest = whole(oldest).map(Wall);
        }
        Ok(())
    }
}

/// Things that happened to shards, for one caller that waits for them.
pub(super) struct News<T> {
    found: Mutex<BTreeSet<T>>,
    notify: Notify,
}

impl<T> Default for News<T> {
    fn default() -> Self {
        Self { found: Mutex::default(), notify: Notify::new() }
    }
}

impl<T: Ord> News<T> {
    pub(super) fn tell(&self, news: T) {
        self.found.lock().insert(news);
        self.notify.notify_one();
    }

    /// What was told and not taken yet.
    pub(super) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.found.lock()).into_iter().collect()
    }

    /// Resolves when there is some, with all of it.
    pub(super) async fn next(&self) -> Vec<T> {
        loop {
            let notified = self.notify.notified();
            let news = self.take();
            if !news.is_empty() {
                return news;
            }
            notified.await;
        }
    }
}
