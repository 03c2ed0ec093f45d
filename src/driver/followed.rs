//! Replayed events whose first attempt another node makes: what became of them is read from the store.

use std::sync::Arc;

use super::delivery::Done;
use super::replay::{End, Out, Tracker};
use crate::event::Seq;
use crate::store::{LaneStore, Status, Story};

/// Events looked at in one go; a replay has no more than some hundred under way.
const LOOK_MAX: usize = 256;

/// Looks how events stand that a replay has under way elsewhere; those that have not ended are looked at again later.
pub(super) async fn look(store: Arc<dyn LaneStore>, out: Vec<(Arc<Tracker>, Out)>) -> Done {
    let mut ended = Vec::new();
    for (tracker, out) in out.into_iter().take(LOOK_MAX) {
        let Ok(found) = store.find(out.id).await else { continue };
        // Past its retention it has ended, and nobody knows how any more.
        let end = found.map_or(Some(End::Withdrawn), |Story { record, .. }| {
            end(record.status, record.attempts, (record.seq, out.seq))
        });
        ended.extend(end.map(|end| (tracker, out.seq, end)));
    }
    Done::Followed(ended)
}

/// How the first attempt of an event ended that was made pending as `seq`, where it has had so many attempts since; `None` while it has not.
fn end(status: Status, attempts: u32, (now_at, seq): (Seq, Seq)) -> Option<End> {
    match status {
        // It is another replay's by now.
        _ if now_at != seq => Some(End::Withdrawn),
        Status::Queued | Status::InFlight => None,
        // It was taken back before one, and stands as it had ended before.
        status if !status.is_pending() && attempts == 0 => Some(End::Withdrawn),
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
        let first = |status, attempts| end(status, attempts, (Seq(5), Seq(5)));
        assert_eq!(first(Status::Queued, 0), None);
        assert_eq!(first(Status::InFlight, 1), None);
        assert_eq!(first(Status::Retrying, 1), Some(End::Retrying));
        assert_eq!(first(Status::Delivered, 1), Some(End::Delivered));
        assert_eq!(first(Status::Dead, 1), Some(End::Dead));
        assert_eq!(first(Status::Dead, 0), Some(End::Withdrawn));
        assert_eq!(end(Status::Queued, 0, (Seq(9), Seq(5))), Some(End::Withdrawn));
    }
}
