//! What the driver holds of its node's membership: whether it may send, and how it answers and asks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};

use super::board::{Board, NodeView};
use super::feed::Places;
use super::permits::Permits;
use super::pins::{self, Pin};
use crate::clock::Clock;
use crate::event::{Group, Seq};
use crate::store::Error;
use crate::store::redis::{Caps, Epoch, NodeId, Redis, Shard};

/// What the driver says of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is taken over: its further events may come.
    Took(Shard),
    /// Nothing of it is in flight or in memory any more: it can be given back.
    Left(Shard),
    /// What is in flight did not end in time; it stays.
    Stayed(Shard),
    /// Nothing of a lost one is left.
    Gone(Shard),
}

/// A change that people made here and that all nodes are to know: a name, and its value or its end.
pub(super) type Put = (String, Option<String>);

/// A shard of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardStanding {
    /// Which.
    pub shard: Shard,
    /// As which owner.
    pub epoch: Epoch,
    /// Its pending events, as Redis last told.
    pub pending: u64,
    /// Events that are in it and that this node's driver was not told of yet.
    pub unread: u64,
}

/// This node's seat among the others; shared by whoever sends, decides or shows.
pub struct Seat {
    pub(super) node: NodeId,
    pub(super) store: Arc<Redis>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) permits: Permits,
    pub(super) reports: mpsc::Sender<Report>,
    /// Changes that are not on the board yet.
    pub(super) puts: Mutex<VecDeque<Put>>,
    /// Something is to be done before the next beat.
    pub(super) wake: Notify,
    pub(super) leaving: AtomicBool,
    pub(super) weight: AtomicU64,
    pub(super) busy: AtomicU32,
    pub(super) slots: AtomicU32,
    pub(super) nodes: RwLock<Arc<[NodeView]>>,
    pub(super) pins: RwLock<Arc<[Pin]>>,
    /// How far each shard of this node has been read.
    pub(super) places: Places,
    pub(super) board: Arc<Board>,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Seat {
    /// This node's name.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Whether an attempt for this event may begin now. Directly before it does.
    #[must_use]
    pub fn may_send(&self, seq: Seq) -> bool {
        self.permits.holds(Shard(seq.section()), self.clock.now().mono)
    }

    /// Whether any attempt may begin now: whether this node's slots are its own still.
    #[must_use]
    pub fn may_send_any(&self) -> bool {
        self.permits.node_holds(self.clock.now().mono)
    }

    /// The shard of a group.
    #[must_use]
    pub fn shard_of(&self, group: &Group) -> Shard {
        self.store.shard_of(group)
    }

    /// From now on appends refuse what would bring more than so many pending events of a group.
    pub fn set_caps(&self, caps: Caps) {
        self.store.set_caps(caps);
    }

    /// Whether the store reads and settles for a shard in this node's name.
    #[must_use]
    pub fn holds(&self, shard: Shard) -> bool {
        self.store.holds(shard)
    }

    /// The shard that a group hashes to.
    #[must_use]
    pub fn home_of(&self, group: &Group) -> Shard {
        self.store.home_of(group)
    }

    /// How the shards of this node stand, in their order.
    #[must_use]
    pub fn standings(&self) -> Vec<ShardStanding> {
        let standing = |shard| {
            let (epoch, pending, last) = self.store.standing(shard)?;
            // What is being taken over is not read yet.
            let read = self.places.of_shard(shard).unwrap_or(last);
            let (last, read) = (Shard::of(last).1, Shard::of(read).1);
            Some(ShardStanding { shard, epoch, pending, unread: last.saturating_sub(read) })
        };
        (0..self.shards()).map(Shard).filter_map(standing).collect()
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.store.shards()
    }

    /// What the member measures this node's part by: the weights of what waits (in thousandths), and attempts in flight.
    pub fn note(&self, weight: u64, busy: u32) {
        self.weight.store(weight, Ordering::Relaxed);
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// So many slots there are for all nodes together.
    pub fn set_slots(&self, slots: u32) {
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// Answers [`News`](super::News).
    pub fn report(&self, report: Report) {
        if self.reports.try_send(report).is_err() {
            // There is room for several of every shard. One that is lost leaves the shard as it is until its lease is over.
            tracing::error!(?report, "a report about a shard found no room");
        }
        self.wake.notify_one();
    }

    /// What people changed here; all nodes are told, this one too. Written to the board as soon as that can be, in order.
    pub fn put(&self, changes: impl IntoIterator<Item = Put>) {
        self.puts.lock().extend(changes);
        self.wake.notify_one();
    }

    /// The groups that are pinned, and those on their way home, by name.
    #[must_use]
    pub fn pins(&self) -> Arc<[Pin]> {
        Arc::clone(&self.pins.read())
    }

    /// Pins a group to a shard, or takes its pin away; all nodes know of it when this resolves, or are about to.
    ///
    /// # Errors
    /// Redis is away: nothing has changed, or it has and nobody said so.
    pub async fn pin(&self, group: &Group, shard: Option<Shard>) -> Result<(), Error> {
        self.board.put(&[pins::put(group, shard)]).await?;
        // Whoever asks this node next sees it; where it is by now is known with the next beat.
        let pin = Pin {
            group: group.clone(),
            shard,
            wanted: shard.unwrap_or_else(|| self.home_of(group)),
            at: self.shard_of(group),
        };
        let mut pins = self.pins.write();
        *pins = pins.iter().filter(|other| other.group != *group).cloned().chain([pin]).collect();
        drop(pins);
        self.wake.notify_one();
        Ok(())
    }

    /// Whether changes made here are not on the board yet.
    #[must_use]
    pub fn has_puts(&self) -> bool {
        !self.puts.lock().is_empty()
    }

    /// From now on this node takes nothing over, and the others plan without it.
    pub fn begin_leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// The nodes that live, as last seen.
    #[must_use]
    pub fn nodes(&self) -> Arc<[NodeView]> {
        Arc::clone(&self.nodes.read())
    }

    /// The node that holds the group's shard, as last seen; `None` where nobody says so.
    #[must_use]
    pub fn owner_of(&self, group: &Group) -> Option<NodeView> {
        let shard = self.shard_of(group).0;
        self.nodes.read().iter().find(|node| node.held.contains(&shard)).cloned()
    }

    /// Shows this node to the others' people, as text of their common form.
    ///
    /// # Errors
    /// Redis is away.
    pub async fn show(&self, view: &str) -> Result<(), Error> {
        self.board.show(self.node.as_str(), view).await
    }

    /// What all nodes show of themselves, by node; those that live no more with them.
    ///
    /// # Errors
    /// Redis is away.
    pub async fn views(&self) -> Result<Vec<(String, String)>, Error> {
        self.board.views().await
    }
}
