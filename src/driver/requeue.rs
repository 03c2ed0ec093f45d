//! Ended events on their way back into their lanes: single ones that a person asks for, and the batches of replays.
//!
//! They go the way of appends ([`Appends`](super::append::Appends)), so the engine hears of both in the order of their commits.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::replay::Tracker;
use super::{Ended, Fact, Handle};
use crate::event::{EventId, Seq};
use crate::store::{Error, Pending, Record, Status};

/// Ended events that are to be made pending, and who waits for the answer.
pub(super) struct Requeue {
    pub(super) events: Vec<Record>,
    /// Whose replay it is; `None` for an event that a person asked for by itself.
    pub(super) tracker: Option<Arc<Tracker>>,
    pub(super) reply: oneshot::Sender<Result<Vec<Option<Pending>>, Error>>,
}

impl Requeue {
    pub(super) fn answer(self, answer: Result<Vec<Option<Pending>>, Error>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("whoever asked for a replay has gone");
        }
    }
}

/// Why an event is not replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayed {
    /// It is unknown, or past its retention.
    #[error("there is no such event, or it is past its retention")]
    Unknown,
    /// It has not ended.
    #[error("the event is {} and will be delivered anyway: only one that has ended can be replayed", .0.as_str())]
    Pending(Status),
    /// It is a duplicate that was never accepted for delivery.
    #[error("the event is a suppressed duplicate: release it instead")]
    Suppressed,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] Error),
    /// The driver has ended.
    #[error(transparent)]
    Gone(#[from] Ended),
}

/// An event that was made pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Which.
    pub id: EventId,
    /// Its place from now on.
    pub seq: Seq,
    /// How often it was replayed, this time with them.
    pub replays: u32,
}

impl Handle {
    /// Makes one ended event pending again, whatever it ended as (a suppressed one excepted): attempts and age are counted anew, its id
    /// and history stay. Durable when this resolves.
    ///
    /// # Errors
    /// Why it was not.
    pub async fn replay(&self, id: EventId) -> Result<Replayed, NotReplayed> {
        let record = self.event(id).await?.ok_or(NotReplayed::Unknown)?.record;
        match record.status {
            Status::Delivered | Status::Dead | Status::Discarded => {}
            Status::Suppressed => return Err(NotReplayed::Suppressed),
            status if status.is_pending() => return Err(NotReplayed::Pending(status)),
            _ => return Err(NotReplayed::Unknown),
        }
        let requeued = requeue(&self.facts, vec![record], None).await??;
        // Whoever was faster has made it pending.
        let pending = requeued.into_iter().flatten().next().ok_or(NotReplayed::Pending(Status::Queued))?;
        Ok(Replayed { id, seq: pending.seq, replays: pending.replays })
    }
}

/// Has these made pending.
pub(super) async fn requeue(
    facts: &mpsc::Sender<Fact>,
    events: Vec<Record>,
    tracker: Option<Arc<Tracker>>,
) -> Result<Result<Vec<Option<Pending>>, Error>, Ended> {
    let (reply, answer) = oneshot::channel();
    facts.send(Fact::Requeue(Requeue { events, tracker, reply })).await.map_err(|_| Ended)?;
    answer.await.map_err(|_| Ended)
}
