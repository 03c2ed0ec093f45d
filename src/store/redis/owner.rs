//! Who owns a shard: claim, renewal, release, and what a new owner takes over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Redis;
use super::shard::Shard;
use crate::event::Seq;
use crate::store::{Error, LaneSummary, Pending};

/// How often a shard has changed hands. A settlement of an earlier epoch changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The name of a node, the same over its restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// A node of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What became of asking for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the asking node's, from now until the lease is over.
    Held(Epoch),
    /// It is another one's.
    HeldBy {
        /// Whose.
        node: NodeId,
        /// What is left of its lease.
        left: Duration,
    },
}

/// What a new owner finds: everything about a shard at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub shard: Shard,
    /// As which owner.
    pub epoch: Epoch,
    /// The last seq that had been given: [`Redis::tail`] goes on from here.
    pub last: Seq,
    /// Its lanes with pending events, in the order of their names.
    pub lanes: Vec<LaneSummary>,
    /// Its events with an open lease, in the order of their seqs: the owner before had them in flight.
    pub open: Vec<Pending>,
    /// The owner before; `None` where there was none.
    pub before: Option<Before>,
}

/// The owner that a shard had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Whose it was; the asking node itself after its own restart.
    pub node: NodeId,
    /// Since when it could not have sent anything for the shard, at the moment of [`Redis::take_over`]: since the end of its lease, or
    /// since it gave the shard back. Zero where it might send still, which is so for a node that restarted within its own lease.
    pub since: Duration,
    /// Whether it gave the shard back, which it does when nothing is in flight any more.
    pub released: bool,
}

/// What [`Redis::tail`] found in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tailed {
    /// Which.
    pub shard: Shard,
    /// Events behind the seq that was given which are pending and fresh, in the order of their seqs.
    pub events: Vec<Pending>,
    /// How far it looked: the next call goes on from here.
    pub looked: Seq,
    /// Whether there was more than the limit allowed for.
    pub more: bool,
}

impl Redis {
    /// Asks for a shard in the name of `node`: it gets it when nobody holds it, when the holder's lease has run out, or when it is
    /// its own. From then on this store settles for the shard with the epoch of the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; whether the shard is held then is unknown, and asking again tells.
    pub async fn claim(&self, _shard: Shard, _node: &NodeId, _lease: Duration) -> Result<Claim, Error> {
        Err(unreached())
    }

    /// Prolongs leases to `lease` from the moment at which Redis reads this; one answer a shard, `false` where it is not held as that
    /// epoch any more.
    pub async fn renew(&self, held: &[(Shard, Epoch)], _lease: Duration) -> Vec<Result<bool, Error>> {
        held.iter().map(|_| Err(unreached())).collect()
    }

    /// Gives a shard back; `false` where it was not held as that epoch any more.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; the lease then runs out by itself.
    pub async fn release(&self, _shard: Shard, _epoch: Epoch) -> Result<bool, Error> {
        Err(unreached())
    }

    /// This process settles and loads for a shard no more, whatever Redis says of it: its lease has run out here.
    pub fn let_go(&self, _shard: Shard, _epoch: Epoch) {}

    /// Everything about a shard at one moment, in one step with the check of the epoch; `None` where it is not held as that epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; nothing has changed.
    pub async fn take_over(&self, _shard: Shard, _epoch: Epoch) -> Result<Option<Taken>, Error> {
        Err(unreached())
    }

    /// What was appended to shards, and requeued in them, behind these seqs; one answer a shard, `limit` events each at most.
    pub async fn tail(&self, behind: &[(Shard, Seq)], _limit: usize) -> Vec<Result<Tailed, Error>> {
        behind.iter().map(|_| Err(unreached())).collect()
    }

    /// Resolves with held shards that may have news: at once after an append of this process, as good as at once after one of another
    /// node, and with all of them every 250 ms. For one caller.
    pub async fn woken(&self) -> Vec<Shard> {
        std::future::pending().await
    }

    /// Resolves with shards of which Redis said that they are another owner's now, as which epoch they were held here. Each is told once.
    /// For one caller.
    pub async fn lost(&self) -> Vec<(Shard, Epoch)> {
        std::future::pending().await
    }
}

fn unreached() -> Error {
    Error::Unavailable("there is no connection to Redis".into())
}
