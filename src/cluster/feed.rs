//! What is appended to this node's shards, read in the order of seqs: how an owner learns of events, its own appends included.
//!
//! Seqs of a shard have no gaps, so a place in it is all there is to remember, and nothing can be missed; a wake-up is a hint.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::News;
use crate::event::Seq;
use crate::store::redis::{Epoch, Redis, Shard, Tailed};

/// Events of one shard in one answer.
const READ_MAX: usize = 1_000;

/// How far each shard has been read, as which owner; only those that are to be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<BTreeMap<Shard, (Epoch, Seq)>>>);

impl Places {
    /// From now on this shard is read behind `seq`.
    pub(super) fn begin(&self, shard: Shard, epoch: Epoch, seq: Seq) {
        self.0.lock().insert(shard, (epoch, seq));
    }

    /// It is read no more; up to where it was.
    pub(super) fn end(&self, shard: Shard) -> Option<Seq> {
        self.0.lock().remove(&shard).map(|(_, seq)| seq)
    }

    /// How far a shard has been read; `None` where it is not.
    pub(super) fn of_shard(&self, shard: Shard) -> Option<Seq> {
        self.0.lock().get(&shard).map(|(_, seq)| *seq)
    }

    fn of(&self, shards: &[Shard]) -> Vec<(Shard, Epoch, Seq)> {
        let places = self.0.lock();
        shards.iter().filter_map(|shard| places.get(shard).map(|(epoch, seq)| (*shard, *epoch, *seq))).collect()
    }

    /// What was read behind a place counts when the shard is still read from there.
    fn advance(&self, from: (Shard, Epoch, Seq), to: Seq) -> bool {
        let (shard, epoch, seq) = from;
        match self.0.lock().get_mut(&shard) {
            Some(place) if *place == (epoch, seq) => {
                place.1 = to;
                true
            }
            _ => false,
        }
    }
}

/// Reads for as long as somebody wants to know.
pub(super) async fn run(store: Arc<Redis>, places: Places, news: mpsc::Sender<News>) {
    while !news.is_closed() {
        let mut behind = places.of(&store.woken().await);
        while !behind.is_empty() {
            let asked: Vec<(Shard, Seq)> = behind.iter().map(|(shard, _, seq)| (*shard, *seq)).collect();
            let found = store.tail(&asked, READ_MAX).await;
            let mut further = Vec::new();
            for (from, tailed) in behind.iter().zip(found) {
                let Ok(tailed) = tailed else { continue };
                if tailed.more {
                    further.push(tailed.shard);
                }
                if !pass_on(&places, *from, tailed, &news).await {
                    return;
                }
            }
            behind = places.of(&further);
        }
    }
}

/// False when nobody wants to know any more.
async fn pass_on(places: &Places, from: (Shard, Epoch, Seq), tailed: Tailed, news: &mpsc::Sender<News>) -> bool {
    let Tailed { shard, events, looked, .. } = tailed;
    if looked == from.2 || !places.advance(from, looked) {
        return true;
    }
    news.send(News::Arrived { shard, epoch: from.1, events, looked }).await.is_ok()
}
