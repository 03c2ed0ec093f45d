//! Replayed events whose first attempt another node makes: what became of them is read from the store.

use std::sync::Arc;

use super::delivery::Done;
use super::replay::{End, Out, Tracker};
use crate::event::Seq;
use crate::store::{LaneStore, Status};

/// Events looked at in one go; a replay has no more than some hundred under way.
const LOOK_MAX: usize = 256;

/// Looks how events stand that a replay has under way elsewhere; those that have not ended are looked at again later.
pub(super) async fn look(store: Arc<dyn LaneStore>, out: Vec<(Arc<Tracker>, Out)>) -> Done {
    let mut ended = Vec::new();
    for (tracker, out) in out.into_iter().take(LOOK_MAX) {
        let Ok(found) = store.find(out.id).await else { continue };
        // Past its retention it has ended, and nobody knows how any more.
        let end = found.map_or(Some(End::Withdrawn), |story| end(story.record.status, story.record.seq, out.seq));
        ended.extend(end.map(|end| (tracker, out.seq, end)));
    }
    Done::Followed(ended)
}

/// How the first attempt of an event ended that was made pending as `seq`; `None` while it has not.
fn end(status: Status, now_at: Seq, seq: Seq) -> Option<End> {
    match status {
        // It is another replay's by now; unless its group has moved to another shard.
        _ if now_at != seq && now_at.section() == seq.section() => Some(End::Withdrawn),
        Status::Queued | Status::InFlight => None,
        Status::Retrying => Some(End::Retrying),
        Status::Delivered => Some(End::Delivered),
        Status::Dead | Status::Discarded | Status::Suppressed => Some(End::Dead),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_not_ended_and_what_was_replayed_again_is_not_ours() {
        assert_eq!(end(Status::Queued, Seq(5), Seq(5)), None);
        assert_eq!(end(Status::InFlight, Seq(5), Seq(5)), None);
        assert_eq!(end(Status::Retrying, Seq(5), Seq(5)), Some(End::Retrying));
        assert_eq!(end(Status::Delivered, Seq(5), Seq(5)), Some(End::Delivered));
        assert_eq!(end(Status::Dead, Seq(5), Seq(5)), Some(End::Dead));
        assert_eq!(end(Status::Queued, Seq(9), Seq(5)), Some(End::Withdrawn));
        let moved = Seq(Seq::before(3).0 + 9);
        assert_eq!((end(Status::Queued, moved, Seq(5)), end(Status::Dead, moved, Seq(5))), (None, Some(End::Dead)));
    }
}
