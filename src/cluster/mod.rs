//! Many nodes that work as one: which node owns which shard, how many slots each may use, and what holds for all of them.
//!
//! A *node* is one process. It says that it lives on the [`board`], a few keys in Redis that all nodes share, and reads there who else
//! does; from that each computes the same [`plan`]. A [`member`] carries it out for one node: it claims shards that should be its own,
//! renews their leases, gives up what should be another's after everything in flight has ended, and tells the driver of all that in
//! [`News`]. What is appended to its shards it reads in the order of seqs and passes on ([`feed`]).
//!
//! # Promises
//!
//! 1. *One owner.* A shard has one owner at a time, by the epoch in Redis; whoever is not it changes nothing there.
//! 2. *Nothing is sent without a lease.* [`Seat::may_send`] is asked directly before the first byte of an attempt goes out. It
//!    answers by this machine's clock that does not stop in sleep, from the moment at which the renewal was *sent*, less a margin: a
//!    node that was stopped and wakes sends nothing that it had not begun.
//! 3. *Slots are never used twice.* What all nodes may use adds up to no more than there is, in every moment: a node's part shrinks before
//!    another's grows, and that of a lost node rests until its last attempt must be over.
//! 4. *Order.* An owner gives a shard up when nothing of it is in flight and all is settled; the next one begins after that. A group that
//!    is to be in another shard ([`Pin`]) leaves its own at such a moment, so its owner gives that one up and takes it again.

pub mod board;
mod feed;
mod member;
mod permits;
mod pins;
pub mod plan;
mod seat;

use std::time::Duration;

pub use member::{Member, Settings};
pub use pins::Pin;
pub use seat::{Report, Seat, ShardStanding};

use crate::event::{Group, Seq};
use crate::store::Pending;
use crate::store::redis::{Epoch, Shard, Taken};

/// What a node's driver is told.
#[derive(Debug)]
pub enum News {
    /// A shard is this node's. Answered with [`Report::Took`] when what was open is settled and its lanes are known, which is when its
    /// further events are read; or with [`Report::Gone`].
    Gained(Gained),
    /// What was appended to a shard that is this node's, in the order of seqs.
    Arrived {
        /// To which.
        shard: Shard,
        /// As its owner since then.
        epoch: Epoch,
        /// What is pending of it.
        events: Vec<Pending>,
        /// All up to here has been told.
        looked: Seq,
    },
    /// A shard is to be given up: answered with [`Report::Left`] when nothing of it is in flight, or with [`Report::Stayed`].
    Leave(Shard),
    /// A shard is another node's already: answered with [`Report::Gone`].
    Lost(Shard),
    /// So many slots are this node's from now on, of so many. Answered with the attempts in flight as soon as it holds.
    Share {
        /// Its own.
        slots: u32,
        /// Of all.
        of: u32,
        /// Where the answer goes.
        applied: tokio::sync::oneshot::Sender<u32>,
    },
    /// What people changed on any node, all of it: names and values as [`Seat::put`] was given them.
    Changed(Vec<(String, String)>),
}

/// A shard that was taken over.
#[derive(Debug)]
pub struct Gained {
    /// All that is in it.
    pub taken: Taken,
    /// Attempts of lost nodes for events of it which may be at the upstream still: whose, and for how much longer.
    pub resting: Vec<(Group, Duration)>,
}
