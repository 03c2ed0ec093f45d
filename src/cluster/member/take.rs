//! Shards that are taken over: how, and what is said of it.

use std::time::Duration;

use super::{Member, Settings, Standing, moves};
use crate::cluster::Gained;
use crate::cluster::board::Board;
use crate::event::{Group, Seq};
use crate::store::redis::{Claim, Leaving, Redis, Shard};
use crate::store::{Error, Pending};

impl Member {
    /// What was taken over since it was last said, when nothing more is being asked for.
    pub(super) fn say_taken(&mut self) {
        if self.took.shards == 0 || self.shards.values().any(|standing| *standing == Standing::Asking) {
            return;
        }
        let Took { shards, pending, interrupted, unowned } = std::mem::take(&mut self.took);
        if unowned.is_some() {
            let longest = in_words(unowned);
            tracing::info!(
                shards,
                pending,
                interrupted,
                without_owner = longest,
                "shards are this node's now, after a loss"
            );
        } else {
            tracing::info!(shards, pending, interrupted, "shards are this node's now");
        }
    }
}

/// Shards that were taken over.
#[derive(Debug, Default)]
pub(super) struct Took {
    shards: u64,
    pending: u64,
    interrupted: usize,
    /// The longest that one had been without an owner.
    unowned: Option<Duration>,
}

impl Took {
    pub(super) fn add(&mut self, pending: u64, interrupted: usize, unowned: Option<Duration>) {
        self.shards += 1;
        self.pending += pending;
        self.interrupted += interrupted;
        self.unowned = self.unowned.max(unowned);
    }
}

/// A span for people; nothing where there is none.
pub(super) fn in_words(span: Option<Duration>) -> String {
    span.map_or_else(String::new, |span| format!("{} ms", span.as_millis()))
}

/// Claims a shard, has groups begin to leave it that should, and takes it over; `None` where it is another one's. With it groups that
/// had gone before.
pub(super) async fn take(
    store: &Redis,
    board: &Board,
    settings: &Settings,
    (shard, due): (Shard, Vec<Leaving>),
) -> Result<Option<(Gained, Vec<Leaving>)>, Error> {
    let Claim::Held(epoch) = store.claim(shard, &settings.node, settings.lease).await? else { return Ok(None) };
    let gone = moves::begin(store, board, (shard, epoch), &due).await?;
    let Some(taken) = store.take_over(shard, epoch).await? else { return Ok(None) };
    let quiet = taken.before.as_ref().map_or(Duration::ZERO, |before| before.since);
    let released = taken.before.as_ref().is_none_or(|before| before.released);
    let open: Vec<(Seq, Group)> = if released {
        Vec::new()
    } else {
        let whose = |pending: &Pending| pending.owner.as_ref().unwrap_or(&pending.lane).group.clone();
        taken.open.iter().map(|pending| (pending.seq, whose(pending))).collect()
    };
    // Before anything else is done about them: should this node be lost next, its successor knows of them, too.
    let rest = settings.timeout.saturating_sub(quiet);
    let resting = board.rest((shard, epoch), &open, rest).await?;
    Ok(Some((Gained { taken, resting }, gone)))
}
