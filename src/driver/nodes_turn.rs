//! A turn of the loop on one node among others: what happened to shards, and what the others are told.

use super::delivery::Done;
use super::nodes::{Happening, Mark, Nodes};
use super::run::Driver;
use crate::cluster::News;
use crate::engine::{Request, Settings};
use crate::event::Now;

/// Resolves when something happens to a shard; never on a node that is alone.
pub(super) async fn happens(nodes: &mut Option<Nodes>) -> Happening {
    match nodes {
        Some(nodes) => nodes.next().await,
        None => std::future::pending().await,
    }
}

impl Driver {
    pub(super) fn happened(&mut self, happening: Happening) {
        let now = self.shared.clock.now();
        let Some(nodes) = &mut self.nodes else { return };
        match happening {
            Happening::Settled(gained) => nodes.taken(*gained, &mut self.engine, now),
            Happening::News(News::Gained(gained)) => nodes.gain(gained, now),
            Happening::News(News::Arrived { shard, epoch, events, looked }) => {
                nodes.arrive((shard, epoch, looked), events, &mut self.engine, now);
            }
            Happening::News(News::Leave(shard)) => nodes.leave(shard, &mut self.engine, now),
            Happening::News(News::Lost(shard)) => nodes.lose(shard, &mut self.engine, now),
            Happening::News(News::Share { slots, of, applied }) => {
                nodes.set_share(slots, of);
                self.engine.set_share(self.own_settings());
                if applied.send(self.engine.slots().busy).is_err() {
                    tracing::debug!("nobody waits to hear of a share any more");
                }
            }
            Happening::News(News::Changed(entries)) => self.adopt(&entries, now),
        }
    }

    /// The engine's numbers: all nodes', as far as they are this one's.
    pub(super) fn own_settings(&self) -> Settings {
        let all = self.upstream.settings();
        match &self.nodes {
            Some(nodes) => {
                nodes.seat().set_slots(all.slots);
                nodes.own(all)
            }
            None => all,
        }
    }

    /// At the end of a turn: shards of which nothing is under way go, and the others see what is asked of this node.
    pub(super) fn attend_nodes(&mut self, now: Now) {
        if let Some(nodes) = &mut self.nodes {
            nodes.let_go(&mut self.engine, &mut self.delivery, now);
            nodes.seat().note(self.engine.wanted_weight(), self.engine.slots().busy);
        }
    }

    /// What a read belongs to that is asked for now.
    pub(super) fn mark(&self, request: &Request) -> Mark {
        match (&self.nodes, request) {
            (Some(nodes), Request::Load { after, .. }) => nodes.mark(*after),
            (Some(nodes), Request::LoadDue { .. }) => nodes.mark_due(),
            _ => Mark::default(),
        }
    }

    /// Something has ended. What was read counts as far as its shard is still this node's, and up to what the engine was told.
    pub(super) fn tell(&mut self, done: Done, now: Now) {
        let done = match (&self.nodes, done) {
            (Some(nodes), Done::Loaded(lane, n, mark, read)) => {
                let (mut events, error) = match read {
                    Ok(events) => (events, None),
                    Err(error) => (Vec::new(), Some(error)),
                };
                let Some(whole) = nodes.read(mark, &mut events) else { return self.engine.on_load_void() };
                // What was left out comes by itself: nothing more is to be read.
                let n = if whole { n } else { usize::MAX };
                Done::Loaded(lane, n, mark, error.map_or(Ok(events), Err))
            }
            (Some(nodes), Done::DueLoaded(_, mark, _)) if mark != nodes.mark_due() => {
                return self.engine.on_due_load_failed(now);
            }
            (_, done) => done,
        };
        self.delivery.tell(done, &mut self.engine, now);
    }
}
