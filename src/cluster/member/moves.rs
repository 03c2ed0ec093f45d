//! Groups that move to another shard: begun as their shard is taken, carried on beside everything else.

use std::sync::Arc;
use std::time::Duration;

use super::{Done, Member};
use crate::cluster::board::Board;
use crate::cluster::pins::Pins;
use crate::event::Mono;
use crate::store::Error;
use crate::store::redis::{Epoch, Leaving, Move, Redis, Shard};

/// How soon a move goes on that the store did not let go on.
const AGAIN: Duration = Duration::from_millis(500);

/// A shard that a group could not leave yet is not given back for it again for this long: the other groups of the shard wait each time
/// until what is in flight has ended.
const LATER: Duration = Duration::from_secs(5);

impl Member {
    /// What people pinned, and where groups are, as the board has it now.
    pub(super) fn pinned(&mut self, entries: &[(String, String)]) {
        if self.seat.has_puts() {
            // What this node knows of places is newer; the board says it again when it has heard of that.
            return;
        }
        let store = Arc::clone(&self.seat.store);
        self.pins = Pins::read(entries, store.shards(), |group| store.home_of(group));
        store.set_places(self.pins.places());
        *self.seat.pins.write() = self.pins.views();
    }

    /// Shards of this node that are to be given back, and taken again, for a group to leave them.
    pub(super) fn due(&self) -> Vec<Shard> {
        self.pins.due().into_iter().filter(|shard| !self.moving.contains_key(shard)).collect()
    }

    /// Until when a shard that was just taken is not given back for a group that should leave it and could not.
    pub(super) fn leaves_later(&self, shard: Shard) -> Mono {
        let left_out = self.pins.leaving(shard).iter().any(|due| !self.is_moving(shard, due));
        if left_out { self.now().plus(LATER) } else { Mono(0) }
    }

    fn is_moving(&self, shard: Shard, due: &Leaving) -> bool {
        self.moving.get(&shard).is_some_and(|moving| moving.iter().any(|leaving| leaving.group == due.group))
    }

    /// Carries on what has begun to leave a shard.
    pub(super) fn move_on(&mut self, shard: Shard, epoch: Epoch, leaving: Vec<Leaving>) {
        for leaving in leaving {
            tracing::info!(group = %leaving.group, from = %shard, to = %leaving.to, "a group moves to another shard");
            self.moving.entry(shard).or_default().push(leaving.clone());
            let store = Arc::clone(&self.seat.store);
            self.work.spawn(async move {
                let moved = loop {
                    match store.move_on((shard, epoch), &leaving).await {
                        Ok(moved) => break moved,
                        Err(error) if store.holds(shard) => {
                            tracing::debug!(%shard, %error, "a move goes on in a while")
                        }
                        Err(_) => break false,
                    }
                    tokio::time::sleep(AGAIN).await;
                };
                Done::Moved(shard, leaving, moved)
            });
        }
    }

    /// A group has moved; or its shard is another node's, which goes on.
    pub(super) fn moved(&mut self, shard: Shard, leaving: &Leaving, moved: bool) {
        if let Some(moving) = self.moving.get_mut(&shard) {
            moving.retain(|other| other != leaving);
            if moving.is_empty() {
                self.moving.remove(&shard);
            }
        }
        if moved {
            tracing::info!(group = %leaving.group, from = %shard, to = %leaving.to, "a group has moved to another shard");
            self.metrics.cluster.group_moved();
            self.is_at(leaving);
        }
    }

    /// A group is there; all nodes are told.
    pub(super) fn is_at(&mut self, place: &Leaving) {
        let put = self.pins.moved(place, self.seat.store.home_of(&place.group));
        self.seat.store.set_places(self.pins.places());
        *self.seat.pins.write() = self.pins.views();
        self.seat.put([put]);
    }
}

/// Has groups begin to leave a shard that is claimed and not taken over yet. Gives those that had gone before without the board's knowing.
pub(super) async fn begin(
    store: &Redis,
    board: &Board,
    held: (Shard, Epoch),
    due: &[Leaving],
) -> Result<Vec<Leaving>, Error> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    // What a lost node may have at the upstream counts in the caps of its groups, and their owner has to know of it.
    let resting = board.rest(held, &[], Duration::ZERO).await?;
    let mut gone = Vec::new();
    for leaving in due.iter().filter(|due| resting.iter().all(|(group, _)| *group != due.group)) {
        if let Move::Gone(to) = store.begin_move(held, &leaving.group, leaving.to).await? {
            gone.push(Leaving { to, ..leaving.clone() });
        }
    }
    Ok(gone)
}
