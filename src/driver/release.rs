//! Letting a suppressed event go to the upstream after all.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::event::{EventId, Seq, Wall};
use crate::store::{Error, LaneStore, Pending, Status};

/// What somebody asked, and who waits for the answer.
pub(super) struct Release {
    pub(super) id: EventId,
    pub(super) reply: oneshot::Sender<Result<Seq, Unreleased>>,
}

/// Why an event was not released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreleased {
    /// There is no such event, or it is past retention.
    #[error("there is no such event, or it is past store.retention.suppressed")]
    Unknown,
    /// It is not suppressed.
    #[error("only a suppressed event can be released; this one is {}", .0.as_str())]
    Not(Status),
    /// The store's trouble.
    #[error("{0}")]
    Store(Error),
    /// This node is ending.
    #[error("this node is ending")]
    Draining,
}

/// An event that is pending now.
pub(super) struct Released {
    pub(super) source: Arc<str>,
    pub(super) pending: Pending,
}

impl Release {
    pub(super) fn answer(self, answer: Result<Seq, Unreleased>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!(event = %self.id, "nobody waits for this answer any more");
        }
    }
}

/// Has it written. The status is asked again in that step: of two that release one event, the later one finds it pending.
pub(super) async fn release(store: &dyn LaneStore, id: EventId, now: Wall) -> Result<Released, Unreleased> {
    let story = store.find(id).await.map_err(Unreleased::Store)?;
    let record = story.ok_or(Unreleased::Unknown)?.record;
    if record.status != Status::Suppressed {
        return Err(Unreleased::Not(record.status));
    }
    let requeued = store.requeue(vec![record.seq], now).await.map_err(Unreleased::Store)?;
    let pending = requeued.into_iter().next().flatten().ok_or(Unreleased::Unknown)?;
    Ok(Released { source: record.source, pending })
}
