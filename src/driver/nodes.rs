//! One node among others: shards that come and go, told by [`cluster`](crate::cluster) and carried out here.
//!
//! With shards the answer of an append does not reach the engine: of what is in a shard its owner learns by reading it, in the order of
//! seqs, whoever appended it. What is told of a shard counts for the ownership it belongs to; all else is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::delivery::{Delivery, queued};
use super::policy::PolicyTable;
use super::recover::interruption;
use crate::cluster::{Gained, News, Report, Seat};
use crate::engine::{Engine, Rate, Settings};
use crate::event::{Lane, Mono, Now, Seq};
use crate::store::redis::{Epoch, Shard};
use crate::store::{LaneStore, LaneSummary, Pending, Settlement};

/// Attempts in flight of a shard that is to move may take this long; then it stays.
const LEAVE_MAX: Duration = Duration::from_mins(2);

/// Open events of a shard that was taken over are settled again after this long, where that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// Where the driver stands with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What its last owner had open is being settled.
    Taking,
    /// Its events are delivered.
    Ours,
    /// Since then, what is in flight ends.
    Leaving(Mono),
    /// It is another node's, and something of it is here still.
    Lost,
}

/// A shard that is here.
struct Holding {
    epoch: Epoch,
    state: State,
    /// Up to here the engine knows of all events.
    told: Seq,
}

/// Something that concerns shards.
pub(super) enum Happening {
    News(News),
    /// What was open of a shard is settled.
    Settled(Box<Gained>),
}

/// This node among the others.
pub(super) struct Nodes {
    seat: Arc<Seat>,
    news: mpsc::Receiver<News>,
    store: Arc<dyn LaneStore>,
    holdings: BTreeMap<u16, Holding>,
    taking: JoinSet<Box<Gained>>,
    /// Shards that came so far: what was read of retrying events before the last one came does not say all.
    gains: u64,
    /// Slots of this node, and of all.
    share: (u32, u32),
}

impl Nodes {
    /// The seat of a node whose driver has not begun. Caps of backlogs are checked where events are appended, for their owner is not always
    /// here.
    pub(super) fn new(
        (seat, news): (Arc<Seat>, mpsc::Receiver<News>),
        store: Arc<dyn LaneStore>,
        policies: Arc<PolicyTable>,
    ) -> Self {
        seat.set_caps(Box::new(move |group| policies.of(group).backlog.map(u64::from)));
        Self { seat, news, store, holdings: BTreeMap::new(), taking: JoinSet::new(), gains: 0, share: (0, 0) }
    }

    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Resolves when something happens to a shard; never when the membership has ended.
    pub(super) async fn next(&mut self) -> Happening {
        loop {
            tokio::select! {
                Some(Ok(gained)) = self.taking.join_next() => return Happening::Settled(gained),
                news = self.news.recv() => match news {
                    Some(news) => return Happening::News(news),
                    None => std::future::pending().await,
                }
            }
        }
    }

    /// The numbers of all nodes, as far as they are this node's.
    pub(super) fn own(&self, all: Settings) -> Settings {
        let (slots, of) = (self.share.0, all.slots);
        Settings {
            slots,
            slots_of_all: Some(of),
            rate: all.rate.map(|rate| part(rate, slots, of)),
            retry: crate::engine::Retry {
                concurrency: all.retry.concurrency.map(|slots_of_all| scaled(slots_of_all, slots, of)),
                ..all.retry
            },
            // A new owner has to see what is in flight: it counts in the caps of its groups.
            begun_first: true,
            // The place of an event is decided where it is appended, which knows the lanes of its own shards alone.
            max_active: usize::MAX,
            inner_active: usize::MAX,
            ..all
        }
    }

    /// A shard was given to this node: what its last owner had in flight is over as far as we are concerned.
    pub(super) fn gain(&mut self, gained: Gained, now: Now) {
        let (section, epoch) = (gained.taken.shard.0, gained.taken.epoch);
        self.holdings.insert(section, Holding { epoch, state: State::Taking, told: gained.taken.last });
        let store = Arc::clone(&self.store);
        let ends: Vec<Settlement> = gained.taken.open.iter().map(|open| interruption(open, now)).collect();
        self.taking.spawn(async move {
            while !ends.is_empty() {
                match store.settle(ends.clone()).await {
                    Ok(_) => break,
                    Err(error) => tracing::debug!(%error, "open events of a shard are settled again"),
                }
                tokio::time::sleep(AGAIN).await;
            }
            Box::new(gained)
        });
    }

    /// Nothing is open any more: its lanes are the engine's, and its further events may come.
    pub(super) fn taken(&mut self, gained: Gained, engine: &mut Engine, now: Now) {
        let shard = gained.taken.shard;
        let Some(holding) = self.holdings.get_mut(&shard.0) else { return };
        if holding.state != State::Taking || holding.epoch != gained.taken.epoch {
            self.holdings.remove(&shard.0);
            return self.seat.report(Report::Gone(shard));
        }
        holding.state = State::Ours;
        self.gains += 1;
        for (group, left) in &gained.resting {
            engine.on_foreign(shard.0, group, 1, now.mono.plus(*left), now);
        }
        for lane in lanes(gained.taken.lanes, &gained.taken.open, now) {
            engine.on_gained(shard.0, &lane.lane, (lane.fresh, lane.retrying), lane.oldest, now);
        }
        self.seat.report(Report::Took(shard));
    }

    /// Events of a shard, behind those that were told before.
    pub(super) fn arrive(&mut self, told: (Shard, Epoch, Seq), events: Vec<Pending>, engine: &mut Engine, now: Now) {
        let (shard, epoch, looked) = told;
        let Some(holding) = self.holdings.get_mut(&shard.0) else { return };
        if holding.epoch == epoch && matches!(holding.state, State::Ours | State::Leaving(_)) {
            holding.told = looked;
            engine.on_appended(events.into_iter().map(queued).collect(), now);
        }
    }

    /// A shard is to be given up.
    pub(super) fn leave(&mut self, shard: Shard, engine: &mut Engine, now: Now) {
        let Some(holding) = self.holdings.get_mut(&shard.0) else { return };
        if holding.state == State::Ours {
            holding.state = State::Leaving(now.mono);
            engine.hold(shard.0, now);
        }
    }

    /// A shard is another node's: nothing of it goes on here.
    pub(super) fn lose(&mut self, shard: Shard, engine: &mut Engine, now: Now) {
        let Some(holding) = self.holdings.get_mut(&shard.0) else { return self.seat.report(Report::Gone(shard)) };
        let was = std::mem::replace(&mut holding.state, State::Lost);
        if was != State::Taking {
            engine.hold(shard.0, now);
            let cancelled = engine.cancel_section(shard.0, now);
            tracing::warn!(%shard, cancelled, "attempts of a shard that is another node's were ended");
        }
    }

    /// Shards of which nothing is under way any more leave memory.
    pub(super) fn let_go(&mut self, engine: &mut Engine, delivery: &mut Delivery, now: Now) {
        while let Some(section) = engine.poll_quiet() {
            if engine.forget(section, now).is_none() {
                return;
            }
            delivery.forget_section(section);
            let lost = self.holdings.remove(&section).is_some_and(|holding| holding.state == State::Lost);
            let shard = Shard(section);
            self.seat.report(if lost { Report::Gone(shard) } else { Report::Left(shard) });
        }
    }

    /// Shards that could not be given up in time stay.
    pub(super) fn keep_late(&mut self, engine: &mut Engine, now: Now) {
        for (section, holding) in &mut self.holdings {
            if let State::Leaving(since) = holding.state
                && now.mono.since(since) > LEAVE_MAX
            {
                tracing::warn!(
                    shard = section,
                    "a shard stays on this node for now: attempts in flight did not end within {LEAVE_MAX:?}"
                );
                holding.state = State::Ours;
                engine.release_hold(*section, now);
                self.seat.report(Report::Stayed(Shard(*section)));
            }
        }
    }

    /// So many slots of all are this node's.
    pub(super) fn set_share(&mut self, slots: u32, of: u32) {
        self.share = (slots, of);
    }

    /// Whether an event that was just appended is of a shard of this node, and not told yet: then its body is worth keeping.
    pub(super) fn awaits(&self, seq: Seq) -> bool {
        self.holdings.get(&seq.section()).is_some_and(|holding| holding.state == State::Ours && seq > holding.told)
    }

    /// Whether what becomes of an event is decided on this node.
    pub(super) fn is_here(&self, seq: Seq) -> bool {
        self.holdings.get(&seq.section()).is_some_and(|holding| holding.state != State::Lost)
    }

    /// Whether the engine has an event's shard, and this node settles for it.
    pub(super) fn has(&self, seq: Seq) -> bool {
        let holding = self.holdings.get(&seq.section());
        holding.is_some_and(|holding| matches!(holding.state, State::Ours | State::Leaving(_)))
    }

    /// What a read of a lane belongs to: the ownership of its shard.
    pub(super) fn mark(&self, lane: &Lane) -> u64 {
        let section = self.seat.shard_of(&lane.group).0;
        self.holdings.get(&section).map_or(0, |holding| holding.epoch.0)
    }

    /// What a read of retrying events belongs to: all shards that came before it.
    pub(super) fn mark_due(&self) -> u64 {
        self.gains
    }

    /// What was read of a lane, without what the engine has not been told of yet, for it is about to be; `None` where the lane has moved
    /// since. `more` is set back with what is left out: it comes by itself.
    pub(super) fn read(&self, lane: &Lane, mark: u64, events: &mut Vec<Pending>) -> Option<bool> {
        let shard = self.seat.shard_of(&lane.group);
        let holding = self.holdings.get(&shard.0)?;
        if holding.epoch.0 != mark || holding.state == State::Lost || !self.seat.holds(shard) {
            return None;
        }
        let before = events.len();
        events.retain(|event| event.seq <= holding.told);
        Some(events.len() == before)
    }
}

/// A rate of all nodes, as far as it is this node's.
fn part(rate: Rate, slots: u32, of: u32) -> Rate {
    // Longer instead of fewer: whole numbers of events would be too coarse.
    let per = rate.per.saturating_mul(of.max(1)) / slots.max(1);
    Rate { events: rate.events, per }
}

fn scaled(count: u32, slots: u32, of: u32) -> u32 {
    let scaled = u64::from(count) * u64::from(slots) / u64::from(of.max(1));
    u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
}

/// The lanes of a shard when what was open is settled.
fn lanes(found: Vec<LaneSummary>, open: &[Pending], now: Now) -> Vec<LaneSummary> {
    let mut lanes: BTreeMap<Lane, LaneSummary> = found.into_iter().map(|lane| (lane.lane.clone(), lane)).collect();
    for pending in open {
        let lane = lanes.entry(pending.lane.clone()).or_insert_with(|| LaneSummary {
            lane: pending.lane.clone(),
            fresh: 0,
            retrying: 0,
            bytes: 0,
            oldest: pending.received,
        });
        // One that killed its gateway too often is dead now and waits for nothing.
        lane.retrying += u64::from(!interruption(pending, now).verdict.ends());
        lane.oldest = lane.oldest.min(pending.received);
    }
    lanes.into_values().filter(|lane| lane.fresh + lane.retrying > 0).collect()
}
