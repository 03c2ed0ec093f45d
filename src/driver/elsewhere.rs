//! What this node has others do: end events of shards that are theirs. And numbers of replays and jobs, which no two nodes give away.
//!
//! A job, or a replay that is called off, runs on one node and is about events of all of them. Who may end an event is the owner of its
//! shard alone; so the rest is asked of that one, and where it cannot be asked, nothing is passed by: it is asked again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::removal::{Removed, Target};
use super::{Handle, Shared};
use crate::cluster::Seat;
use crate::engine::Removal;
use crate::event::Seq;
use crate::store::redis::Shard;

/// Has the owner of a shard end events of it; one answer an event, or why it could not be asked.
pub type RemoveThere =
    Arc<dyn Fn(Shard, Vec<Target>, Removal) -> BoxFuture<'static, Result<Vec<Removed>, String>> + Send + Sync>;

/// The others.
pub(super) struct Others {
    pub(super) seat: Arc<Seat>,
    remove: RemoveThere,
}

impl Shared {
    /// Whether an event is of a shard that this node reads and settles for.
    fn is_here(&self, seq: Seq) -> bool {
        self.others.get().is_none_or(|others| others.seat.holds(Shard(seq.section())))
    }

    /// Those whose end is decided here, and by their shards those that are others' to end.
    pub(super) fn sorted(&self, targets: Vec<Target>) -> (Vec<Target>, BTreeMap<u16, Vec<Target>>) {
        let (here, away): (Vec<Target>, Vec<Target>) =
            targets.into_iter().partition(|target| self.is_here(target.seq()));
        let mut there: BTreeMap<u16, Vec<Target>> = BTreeMap::new();
        for target in away {
            there.entry(target.seq().section()).or_default().push(target);
        }
        (here, there)
    }

    /// Has the owner of a shard end these.
    ///
    /// # Errors
    /// It cannot be asked, in words.
    pub(super) async fn remove_there(
        &self,
        section: u16,
        targets: Vec<Target>,
        removal: Removal,
    ) -> Result<Vec<Removed>, String> {
        match self.others.get() {
            Some(others) => (others.remove)(Shard(section), targets, removal).await,
            None => Err("this node is alone".to_owned()),
        }
    }

    /// The next number of its kind, above `last`.
    ///
    /// # Errors
    /// Redis, which counts for all nodes, does not answer; in words.
    pub(super) async fn next_number(&self, kind: &'static str, last: u64) -> Result<u64, String> {
        match self.others.get() {
            Some(others) => others.seat.draw(kind, last).await.map_err(|error| error.to_string()),
            None => Ok(last + 1),
        }
    }
}

impl Handle {
    /// This node is one among others; `remove` asks one of them.
    pub fn reach(&self, seat: Arc<Seat>, remove: RemoveThere) {
        self.shared.others.get_or_init(|| Others { seat, remove });
    }
}
