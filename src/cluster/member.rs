//! One node's membership: it says that it lives, asks for slots, and has shards come and go as the [plan](super::plan) says.
//!
//! One task. What may take long (claims, renewals, releases) runs beside it, so that one part of Redis that does not answer keeps nobody
//! from the rest.

mod moves;
mod take;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::board::{About, Beat, Board, NodeView, Seen};
use super::feed::{self, Places};
use super::permits::Permits;
use super::pins::Pins;
use super::seat::{Report, Seat};
use super::{Gained, News, plan};
use crate::clock::{Clock, Seldom};
use crate::event::{Mono, Seq};
use crate::metrics::Metrics;
use crate::store::Error;
use crate::store::redis::{Epoch, Leaving, NodeId, Redis, Shard, Taken};

/// How often a node says that it lives, at most: slots are split anew, and changes of people seen, as often.
const EVERY: Duration = Duration::from_millis(250);

/// Two beats are no closer than this, whatever happens.
const EVERY_MIN: Duration = Duration::from_millis(20);

/// A beat without an answer for this long is given up, to try the next one.
const WITHIN: Duration = Duration::from_secs(2);

/// A shard whose attempts did not end in time is not asked for again for this long.
const STAYS: Duration = Duration::from_mins(1);

/// How often a node looks whether the other process of its name is gone.
const TWIN: Duration = Duration::from_secs(10);

/// News that wait for the driver; beyond it reading waits.
const NEWS_MAX: usize = 256;

/// What a membership needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node.
    pub node: NodeId,
    /// A number of this process alone.
    pub boot: u64,
    /// What the keys of the cluster begin with.
    pub namespace: Box<str>,
    /// How long a node that is silent keeps its shards.
    pub lease: Duration,
    /// The longest that one attempt may take.
    pub timeout: Duration,
    /// Slots of all nodes together.
    pub slots: u32,
    /// Where other nodes reach this one's admin side.
    pub admin: String,
    /// A fingerprint of the admin token.
    pub token: String,
}

/// Where this node stands with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is being asked for.
    Asking,
    /// It is ours; not to be given up again before then.
    Held(Epoch, Mono),
    /// What is in flight of it ends.
    Leaving(Epoch, Option<Seq>),
    /// It is being given back.
    Releasing(Epoch),
    /// It is another one's; some of it is here still.
    Lost,
}

impl Standing {
    fn epoch(self) -> Option<Epoch> {
        match self {
            Self::Held(epoch, _) | Self::Leaving(epoch, _) | Self::Releasing(epoch) => Some(epoch),
            Self::Asking | Self::Lost => None,
        }
    }
}

/// Something that ran beside has ended.
enum Done {
    /// With groups that had left the shard before.
    Asked(Shard, Mono, Result<Option<(Gained, Vec<Leaving>)>, Error>),
    /// Whether the group is there.
    Moved(Shard, Leaving, bool),
    Renewed(Mono, Vec<(Shard, Epoch, Result<bool, Error>)>),
    Released(Shard, Epoch, Result<bool, Error>),
}

/// One node's membership.
pub struct Member {
    settings: Settings,
    life: String,
    seat: Arc<Seat>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    news: mpsc::Sender<News>,
    reports: mpsc::Receiver<Report>,
    places: Places,
    shards: BTreeMap<Shard, Standing>,
    /// What was taken over and is not known to the driver yet: from where it is to be read.
    taken: BTreeMap<Shard, Seq>,
    /// Groups that leave shards of this node.
    moving: BTreeMap<Shard, Vec<Leaving>>,
    pins: Pins,
    /// What was taken over and not told of yet.
    took: take::Took,
    seen: Seen,
    version: Option<u64>,
    /// Slots that the driver was told.
    applied: (u32, u32),
    weight: u64,
    renewed: Mono,
    renewing: bool,
    work: JoinSet<Done>,
    failures_said: Seldom,
}

impl Member {
    /// A membership that has not begun, the seat that goes with it, and what its driver is told.
    #[must_use]
    pub fn new(
        settings: Settings,
        store: Arc<Redis>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> (Self, Arc<Seat>, mpsc::Receiver<News>) {
        let (news, told) = mpsc::channel(NEWS_MAX);
        let (report, reports) = mpsc::channel(usize::from(store.shards()) * 8 + 64);
        let board = Arc::new(Board::new(Arc::clone(store.link()), &settings.namespace, WITHIN.min(settings.lease / 3)));
        let places = Places::default();
        let seat = Arc::new(Seat {
            node: settings.node.clone(),
            permits: Permits::new(store.shards()),
            store,
            clock,
            reports: report,
            puts: Mutex::default(),
            wake: Notify::new(),
            leaving: AtomicBool::new(false),
            weight: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            slots: AtomicU32::new(settings.slots),
            nodes: RwLock::new(Arc::from([])),
            pins: RwLock::new(Arc::from([])),
            places: places.clone(),
            board: Arc::clone(&board),
        });
        let life = format!("{}/{:016x}", settings.node, settings.boot);
        let member = Self {
            life,
            seat: Arc::clone(&seat),
            board,
            metrics,
            news,
            reports,
            places,
            shards: BTreeMap::new(),
            taken: BTreeMap::new(),
            moving: BTreeMap::new(),
            pins: Pins::default(),
            took: take::Took::default(),
            seen: Seen::default(),
            version: None,
            applied: (0, 0),
            weight: 0,
            renewed: Mono(0),
            renewing: false,
            work: JoinSet::new(),
            failures_said: Seldom::default(),
            settings,
        };
        (member, seat, told)
    }

    fn now(&self) -> Mono {
        self.seat.clock.now().mono
    }

    /// Looks whether another process lives under this node's name: two folders that are copies of each other. Where Redis is away that is
    /// seen to later, before anything is said there.
    ///
    /// # Errors
    /// It does, in words.
    pub async fn join(&mut self) -> Result<(), String> {
        if self.seat.store.is_begun() { self.seek_twin().await } else { Ok(()) }
    }

    async fn seek_twin(&self) -> Result<(), String> {
        let twin = |seen: &Seen| {
            let twins = seen.others.iter().filter(|other| other.about.node == self.settings.node.as_str());
            twins.map(|twin| (twin.life.clone(), twin.silent)).min_by_key(|(_, silent)| *silent)
        };
        let about = self.about();
        let beat = Beat { life: &self.life, rest: Duration::ZERO, total: 0, wants: 0, about: &about };
        let Ok(first) = self.board.beat(&beat).await else { return Ok(()) };
        let Some((life, silent)) = twin(&first).filter(|(_, silent)| *silent < EVERY * 4) else { return Ok(()) };
        tokio::time::sleep(EVERY * 4).await;
        let Ok(second) = self.board.beat(&beat).await else { return Ok(()) };
        match twin(&second) {
            Some((again, later)) if again == life && later < silent + EVERY * 3 => Err(format!(
                "another process lives as the node {}: its folder is a copy of this one; remove the file \"node\" from one of them",
                self.settings.node
            )),
            _ => Ok(()),
        }
    }

    /// Runs until `end` says so, and then gives everything back: at once where the answer is that nothing is in flight, else by
    /// letting the leases run out.
    pub async fn run(mut self, mut end: oneshot::Receiver<bool>) {
        tokio::select! {
            biased;
            // Nobody has heard of it: there is nothing to give back.
            _ = &mut end => return,
            () = self.arrive() => {}
        }
        let mut feed = JoinSet::new();
        feed.spawn(feed::run(Arc::clone(&self.seat.store), self.places.clone(), self.news.clone()));
        let seat = Arc::clone(&self.seat);
        loop {
            let began = self.now();
            self.turn().await;
            let next = EVERY.min(self.settings.lease / 5).saturating_sub(self.now().since(began));
            let mut pause = std::pin::pin!(tokio::time::sleep(next.max(EVERY_MIN)));
            loop {
                tokio::select! {
                    biased;
                    clean = &mut end => return self.end(clean.unwrap_or(false)).await,
                    Some(done) = self.work.join_next() => if let Ok(done) = done { self.done(done).await },
                    Some(report) = self.reports.recv() => self.reported(report),
                    lost = seat.store.lost() => for (shard, epoch) in lost { self.lost(shard, epoch).await },
                    () = seat.wake.notified() => {
                        tokio::time::sleep(EVERY_MIN).await;
                        break;
                    }
                    () = &mut pause => break,
                }
            }
        }
    }

    /// Waits for a Redis that was away at the start. Another process that lives under this name meanwhile keeps this one out.
    async fn arrive(&self) {
        if self.seat.store.is_begun() {
            return;
        }
        self.seat.store.begun().await;
        while let Err(why) = self.seek_twin().await {
            tracing::error!(why, "this node takes no part: its events stay in its spool, and go to Redis from there");
            tokio::time::sleep(TWIN).await;
        }
    }

    /// One beat, and what follows from what it found.
    async fn turn(&mut self) {
        self.publish().await;
        let (now, live) = (self.now(), self.live());
        self.weight = (self.weight + self.seat.weight.load(Ordering::Relaxed)).div_ceil(2);
        let total = self.seat.slots.load(Ordering::Relaxed);
        let wants = self.wants(total, &live);
        if wants < self.applied.0 {
            // Downwards first, and only what is in flight beyond it is held back from the others.
            self.share(wants, total).await;
        }
        let about = self.about();
        let rest = self.settings.lease.saturating_add(self.settings.timeout);
        let sent = self.now();
        match self.board.beat(&Beat { life: &self.life, rest, total, wants, about: &about }).await {
            Ok(seen) => self.saw(seen, (wants, total), sent).await,
            Err(error) => {
                if let Some(left_out) = self.failures_said.pass(now) {
                    tracing::warn!(%error, left_out, "this node cannot say that it lives; past its lease it sends nothing");
                }
            }
        }
        self.renew();
        self.plan().await;
        self.say_taken();
    }

    async fn saw(&mut self, seen: Seen, (wants, total): (u32, u32), sent: Mono) {
        self.seat.permits.renew_node(sent, self.settings.lease);
        self.seen = seen;
        let slots = self.seen.granted.min(wants);
        if (slots, total) != self.applied {
            self.share(slots, total).await;
        }
        if self.version != Some(self.seen.version) {
            let version = self.seen.version;
            if let Ok(changes) = self.board.changes().await {
                self.version = Some(version);
                self.pinned(&changes);
                self.tell(News::Changed(changes)).await;
            }
        }
        let ours = NodeView {
            about: self.about(),
            life: self.life.clone(),
            silent: Duration::ZERO,
            slots: self.seen.granted,
            held: self.held(),
        };
        let mut nodes = self.live();
        nodes.push(ours);
        nodes.sort_by(|one, other| one.about.node.cmp(&other.about.node));
        let unowned = usize::from(self.seat.shards()).saturating_sub(nodes.iter().map(|node| node.held.len()).sum());
        self.metrics.cluster.seen(nodes.len(), self.held().len(), unowned, slots);
        *self.seat.nodes.write() = nodes.into();
    }

    /// Has the driver use so many slots, and waits until it does; shows what is in flight then.
    async fn share(&mut self, slots: u32, of: u32) {
        let (applied, answer) = oneshot::channel();
        self.applied = (slots, of);
        self.tell(News::Share { slots, of, applied }).await;
        if let Ok(Ok(busy)) = tokio::time::timeout(WITHIN, answer).await {
            self.seat.busy.store(busy, Ordering::Relaxed);
        }
    }

    /// The slots that this node should have.
    fn wants(&self, total: u32, live: &[NodeView]) -> u32 {
        if self.is_leaving() {
            return 0;
        }
        let staying = live.iter().filter(|node| !node.about.leaving);
        let mut weights: BTreeMap<&str, u64> =
            staying.map(|node| (node.about.node.as_str(), node.about.weight)).collect();
        weights.insert(self.settings.node.as_str(), self.weight);
        plan::split(total, &weights).get(self.settings.node.as_str()).copied().unwrap_or(0)
    }

    fn is_leaving(&self) -> bool {
        self.seat.leaving.load(Ordering::Relaxed)
    }

    /// The other nodes that live, each once.
    fn live(&self) -> Vec<NodeView> {
        let mut live: BTreeMap<&str, &NodeView> = BTreeMap::new();
        let others = self.seen.others.iter().filter(|other| other.silent < self.settings.lease);
        for other in others.filter(|other| other.about.node != self.settings.node.as_str()) {
            let known = live.entry(&other.about.node).or_insert(other);
            if other.silent < known.silent {
                *known = other;
            }
        }
        live.into_values().cloned().collect()
    }

    fn held(&self) -> Vec<u16> {
        let ours = |(shard, standing): (&Shard, &Standing)| standing.epoch().map(|_| shard.0);
        self.shards.iter().filter_map(ours).collect()
    }

    fn about(&self) -> About {
        let moving = self.shards.iter().filter(|(_, standing)| matches!(standing, Standing::Leaving(..)));
        About {
            node: self.settings.node.as_str().to_owned(),
            admin: self.settings.admin.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leaving: self.is_leaving(),
            weight: self.weight,
            busy: self.seat.busy.load(Ordering::Relaxed),
            held: self.held(),
            moving: moving.map(|(shard, _)| shard.0).collect(),
            token: self.settings.token.clone(),
        }
    }

    /// Writes what people changed here to the board; what cannot be written stays for the next time.
    async fn publish(&mut self) {
        let puts: Vec<_> = self.seat.puts.lock().iter().cloned().collect();
        if puts.is_empty() {
            return;
        }
        match self.board.put(&puts).await {
            Ok(()) => drop(self.seat.puts.lock().drain(..puts.len())),
            Err(error) => tracing::warn!(%error, "a change holds on this node alone until Redis can be told of it"),
        }
    }

    /// Renews the leases of all shards, a few times within each.
    fn renew(&mut self) {
        let (now, lease) = (self.now(), self.settings.lease);
        if self.renewing || now.since(self.renewed) < lease / 5 {
            return;
        }
        let held: Vec<(Shard, Epoch)> =
            self.shards.iter().filter_map(|(shard, standing)| Some((*shard, standing.epoch()?))).collect();
        if held.is_empty() {
            return;
        }
        (self.renewing, self.renewed) = (true, now);
        let store = Arc::clone(&self.seat.store);
        self.work.spawn(async move {
            let answers = store.renew(&held, lease).await;
            let answers = held.into_iter().zip(answers).map(|((shard, epoch), answer)| (shard, epoch, answer));
            Done::Renewed(now, answers.collect())
        });
    }

    /// Asks for what should be ours, and begins to give up what should not.
    async fn plan(&mut self) {
        let now = self.now();
        if now.since(self.renewed) > self.settings.lease && !self.held().is_empty() {
            // Redis is away: whatever was seen is old.
            return;
        }
        let live = self.live();
        let mut staying: BTreeSet<&str> =
            live.iter().filter(|node| !node.about.leaving).map(|node| node.about.node.as_str()).collect();
        if !self.is_leaving() {
            staying.insert(self.settings.node.as_str());
        }
        let owners = plan::owners(&staying, self.seat.slots.load(Ordering::Relaxed));
        let held = self.held().into_iter().collect();
        let others = live.iter().flat_map(|node| node.held.iter().copied()).collect();
        let moves = plan::moves(self.settings.node.as_str(), self.seat.shards(), &owners, &held, &others);
        for shard in moves.claim.into_iter().map(Shard) {
            if !self.shards.contains_key(&shard) {
                self.ask(shard);
            }
        }
        let leave: BTreeSet<Shard> = moves.leave.into_iter().map(Shard).chain(self.due()).collect();
        for shard in leave {
            if let Some(Standing::Held(epoch, until)) = self.shards.get(&shard).copied()
                && until <= now
                && !self.taken.contains_key(&shard)
            {
                let place = self.places.end(shard);
                self.shards.insert(shard, Standing::Leaving(epoch, place));
                self.tell(News::Leave(shard)).await;
            }
        }
    }

    fn ask(&mut self, shard: Shard) {
        self.shards.insert(shard, Standing::Asking);
        let (store, board, settings) = (Arc::clone(&self.seat.store), Arc::clone(&self.board), self.settings.clone());
        let (sent, due) = (self.now(), self.pins.leaving(shard));
        self.work
            .spawn(async move { Done::Asked(shard, sent, take::take(&store, &board, &settings, (shard, due)).await) });
    }

    async fn done(&mut self, done: Done) {
        match done {
            Done::Asked(shard, sent, Ok(Some((gained, gone)))) => {
                gone.iter().for_each(|gone| self.is_at(gone));
                self.gained(shard, sent, gained).await;
            }
            Done::Moved(shard, leaving, moved) => self.moved(shard, &leaving, moved),
            Done::Asked(shard, _, answer) => {
                self.shards.remove(&shard);
                if let Err(error) = answer {
                    tracing::debug!(%shard, %error, "a shard could not be taken over; it is asked for again");
                }
            }
            Done::Renewed(sent, answers) => {
                self.renewing = false;
                for (shard, epoch, answer) in answers {
                    match answer {
                        Ok(true) if self.shards.get(&shard).and_then(|standing| standing.epoch()) == Some(epoch) => {
                            self.seat.permits.renew(shard, sent, self.settings.lease);
                        }
                        Ok(false) => self.lost(shard, epoch).await,
                        Ok(true) => {}
                        Err(error) => tracing::debug!(%shard, %error, "the lease of a shard could not be renewed"),
                    }
                }
            }
            Done::Released(shard, epoch, answer) => match answer {
                Ok(_) => {
                    self.shards.remove(&shard);
                    self.seat.wake.notify_one();
                }
                Err(_) => self.release(shard, epoch),
            },
        }
    }

    async fn gained(&mut self, shard: Shard, sent: Mono, gained: Gained) {
        let Taken { epoch, last, before, lanes, open, leaving, .. } = &gained.taken;
        let (pending, away) = (lanes.iter().map(|lane| lane.fresh + lane.retrying).sum::<u64>(), open.len());
        let from = before.as_ref().map_or_else(String::new, |before| before.node.to_string());
        let unowned = before.as_ref().filter(|before| !before.released).map(|before| before.since);
        tracing::debug!(%shard, from, pending, interrupted = away, unowned = take::in_words(unowned), "a shard is this node's now");
        self.took.add(pending, away, unowned);
        self.metrics.cluster.gained(unowned);
        self.taken.insert(shard, *last);
        self.move_on(shard, *epoch, leaving.clone());
        self.shards.insert(shard, Standing::Held(*epoch, self.leaves_later(shard)));
        self.seat.permits.renew(shard, sent, self.settings.lease);
        self.tell(News::Gained(gained)).await;
    }

    fn reported(&mut self, report: Report) {
        let standing = |shard: Shard| self.shards.get(&shard).copied();
        match report {
            Report::Took(shard) => {
                if let (Some(Standing::Held(epoch, _)), Some(last)) = (standing(shard), self.taken.remove(&shard)) {
                    self.places.begin(shard, epoch, last);
                }
            }
            Report::Left(shard) => {
                if let Some(Standing::Leaving(epoch, _)) = standing(shard) {
                    self.release(shard, epoch);
                }
            }
            Report::Stayed(shard) => {
                if let Some(Standing::Leaving(epoch, place)) = standing(shard) {
                    self.shards.insert(shard, Standing::Held(epoch, self.now().plus(STAYS)));
                    if let Some(place) = place {
                        self.places.begin(shard, epoch, place);
                    }
                }
            }
            Report::Gone(shard) => {
                if standing(shard) == Some(Standing::Lost) {
                    self.shards.remove(&shard);
                }
            }
        }
    }

    fn release(&mut self, shard: Shard, epoch: Epoch) {
        self.seat.permits.revoke(shard);
        self.shards.insert(shard, Standing::Releasing(epoch));
        let store = Arc::clone(&self.seat.store);
        self.work.spawn(async move { Done::Released(shard, epoch, store.release(shard, epoch).await) });
    }

    /// Another node has it.
    async fn lost(&mut self, shard: Shard, epoch: Epoch) {
        let standing = self.shards.get(&shard).copied();
        if standing.and_then(Standing::epoch) != Some(epoch) {
            return;
        }
        self.seat.permits.revoke(shard);
        self.seat.store.let_go(shard, epoch);
        self.places.end(shard);
        if matches!(standing, Some(Standing::Releasing(_))) {
            self.shards.remove(&shard);
            return;
        }
        self.taken.remove(&shard);
        self.shards.insert(shard, Standing::Lost);
        self.metrics.cluster.lost();
        tracing::warn!(%shard, "a shard was taken over by another node: this one was silent for longer than its lease");
        self.tell(News::Lost(shard)).await;
    }

    /// The driver is told; one that has ended need not be.
    async fn tell(&self, news: News) {
        if self.news.send(news).await.is_err() {
            tracing::debug!("the driver has ended");
        }
    }

    /// Gives everything back.
    async fn end(mut self, clean: bool) {
        self.work.abort_all();
        if !clean {
            tracing::warn!("attempts were under way: this node's shards and slots are free when its lease is over");
            return;
        }
        let held: Vec<(Shard, Epoch)> =
            self.shards.iter().filter_map(|(shard, standing)| Some((*shard, standing.epoch()?))).collect();
        let releasing = held.into_iter().map(|(shard, epoch)| self.seat.store.release(shard, epoch));
        let released = futures_util::future::join_all(releasing).await;
        let failed = released.iter().filter(|answer| answer.is_err()).count();
        if failed > 0 {
            tracing::warn!(shards = failed, "shards could not be given back; they are free when their leases are over");
        }
        if let Err(error) = self.board.farewell(&self.life).await {
            tracing::warn!(%error, "this node could not take its leave; its slots are free when its lease is over");
        }
    }
}
