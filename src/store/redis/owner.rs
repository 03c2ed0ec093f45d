//! Who owns a shard: claim, renewal, release, and what a new owner takes over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::Redis;
use super::layout::{self, strange};
use super::link::Call;
use super::moves::{self, Leaving};
use super::queues::summary;
use super::scripts::{OWN, TAKE};
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
    /// Groups that are on their way to other shards; their lanes are not among the lanes.
    pub leaving: Vec<Leaving>,
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
    pub async fn claim(&self, shard: Shard, node: &NodeId, lease: Duration) -> Result<Claim, Error> {
        let call = self.own(shard, "claim").arg(node.as_str()).arg(micros(lease)).arg(self.receipt());
        let mut parts = layout::parts(self.one(call).await?)?.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Value::Int(1)), Some(epoch), None) => {
                let epoch = Epoch(layout::count(&epoch)?);
                if let Some(local) = self.local(shard) {
                    local.hold(epoch);
                }
                Ok(Claim::Held(epoch))
            }
            (Some(Value::Int(0)), Some(holder), Some(left)) => {
                let holder = String::from_utf8(layout::bytes(holder)?).map_err(|_| strange("a claim"))?;
                Ok(Claim::HeldBy { node: NodeId::new(&holder), left: Duration::from_micros(layout::count(&left)?) })
            }
            _ => Err(strange("a claim")),
        }
    }

    /// Whether this process holds a shard, as far as it knows: what is read of one that it does not hold is empty and says nothing.
    #[must_use]
    pub fn holds(&self, shard: Shard) -> bool {
        self.local(shard).is_some_and(|local| local.epoch().is_some())
    }

    /// As which epoch a shard is held here, its pending events and the last seq that was given in it, as last told; `None` where it is not
    /// held.
    #[must_use]
    pub fn standing(&self, shard: Shard) -> Option<(Epoch, u64, Seq)> {
        let local = self.local(shard)?;
        let epoch = local.epoch()?;
        let sums = *local.sums.lock();
        Some((epoch, sums.pending, shard.seq(sums.last)))
    }

    /// Prolongs leases to `lease` from the moment at which Redis reads this; one answer a shard, `false` where it is not held as that
    /// epoch any more.
    pub async fn renew(&self, held: &[(Shard, Epoch)], lease: Duration) -> Vec<Result<bool, Error>> {
        let call = |(shard, epoch): &(Shard, Epoch)| self.own(*shard, "renew").arg(epoch.0).arg(micros(lease));
        let answers = self.run(held.iter().map(call).collect()).await;
        let renewed = |((shard, epoch), answer): (&(Shard, Epoch), Result<Value, Error>)| {
            let renewed = layout::count(&answer?)? == 1;
            if !renewed {
                self.is_lost(*shard, *epoch);
            }
            Ok(renewed)
        };
        held.iter().zip(answers).map(renewed).collect()
    }

    /// Gives a shard back; `false` where it was not held as that epoch any more.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; the lease then runs out by itself.
    pub async fn release(&self, shard: Shard, epoch: Epoch) -> Result<bool, Error> {
        self.let_go(shard, epoch);
        let answer = self.one(self.own(shard, "release").arg(epoch.0)).await?;
        Ok(layout::count(&answer)? == 1)
    }

    /// This process settles and loads for a shard no more, whatever Redis says of it: its lease has run out here.
    pub fn let_go(&self, shard: Shard, epoch: Epoch) {
        if let Some(local) = self.local(shard) {
            local.let_go(epoch);
        }
    }

    /// Everything about a shard at one moment, in one step with the check of the epoch; `None` where it is not held as that epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; nothing has changed.
    pub async fn take_over(&self, shard: Shard, epoch: Epoch) -> Result<Option<Taken>, Error> {
        let answer = self.one(self.script(shard, &TAKE).arg(epoch.0)).await?;
        if answer == Value::Nil {
            self.is_lost(shard, epoch);
            return Ok(None);
        }
        let [last, names, sums, open, before, told, leaving] = layout::exactly(answer, "a shard")?;
        let mut lanes = Vec::new();
        for (name, sums) in layout::parts(names)?.into_iter().zip(layout::parts(sums)?) {
            lanes.extend(summary(layout::lane(&layout::bytes(name)?)?, &layout::bytes(sums)?)?);
        }
        lanes.sort_unstable_by(|a, b| a.lane.cmp(&b.lane));
        let open = layout::rows(shard, open)?.into_iter().flatten().map(|found| found.row.pending()).collect();
        let last = shard.seq(layout::number(&layout::bytes(last)?)?);
        if let Some(local) = self.local(shard) {
            let mut sums = local.sums.lock();
            sums.learn(&layout::bytes(told)?)?;
            sums.last = Shard::of(last).1;
        }
        let leaving = layout::parts(leaving)?.into_iter().map(moves::read_leaving).collect::<Result<_, _>>()?;
        Ok(Some(Taken { shard, epoch, last, lanes, open, before: read_before(before)?, leaving }))
    }

    /// What was appended to shards, and requeued in them, behind these seqs; one answer a shard, `limit` events each at most.
    pub async fn tail(&self, behind: &[(Shard, Seq)], limit: usize) -> Vec<Result<Tailed, Error>> {
        self.tail_shards(behind, limit).await
    }

    /// Resolves with held shards that may have news: at once after an append of this process, as good as at once after one of another
    /// node, and with all of them every 250 ms. For one caller.
    pub async fn woken(&self) -> Vec<Shard> {
        tokio::time::timeout(POLL, self.woken.next()).await.unwrap_or_else(|_elapsed| self.held())
    }

    /// Resolves with shards of which Redis said that they are another owner's now, as which epoch they were held here. Each is told once.
    /// For one caller.
    pub async fn lost(&self) -> Vec<(Shard, Epoch)> {
        self.lost.next().await
    }

    /// Redis said so.
    pub(super) fn is_lost(&self, shard: Shard, epoch: Epoch) {
        if self.local(shard).is_some_and(|local| local.let_go(epoch)) {
            self.lost.tell((shard, epoch));
        }
    }

    fn own(&self, shard: Shard, what: &str) -> Call {
        self.script(shard, &OWN).durable().arg(what)
    }
}

/// Wake-ups are hints: what they miss is seen so soon.
const POLL: Duration = Duration::from_millis(250);

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn read_before(value: Value) -> Result<Option<Before>, Error> {
    let [node, since, released, now] = layout::exactly(value, "an owner")?;
    if node == Value::Nil {
        return Ok(None);
    }
    let node = String::from_utf8(layout::bytes(node)?).map_err(|_| strange("an owner"))?;
    let since = layout::count(&now)?.saturating_sub(layout::count(&since)?);
    let released = layout::count(&released)? == 1;
    Ok(Some(Before { node: NodeId::new(&node), since: Duration::from_micros(since), released }))
}
