//! The store of many nodes: lanes in Redis or Valkey, cut into shards that nodes own in turn.
//!
//! A [`Redis`] is one node's handle. Any node appends to any shard; the node that holds a shard settles for it, fenced by its
//! [`Epoch`], and learns of all that is appended to it, its own appends included, by [`Redis::tail`]. What lies where is written at the
//! top of `layout.rs`; every change is one script (`lua/`) on the keys of one shard, in the step in which it is checked.
//!
//! # What holds
//!
//! - Numbers of a shard have no gap, so a tail misses nothing; wake-ups are hints.
//! - Every call may be repeated: an append is known by the ids of its events, a settlement by its number in the epoch, a requeue and a
//!   claim by a receipt. What failed for lack of an answer may have been done, and its repetition does not do it again.
//! - Shards fail one by one: an append says for each event what became of it ([`Appended::places`]).
//! - `lanes`, `load`, `due`, `open` and `usage` speak of the shards that are held here; `read`, `find` and `list` of all.
//! - A lane is in the shard of its group's name, or in the one that its group was moved to (`moves.rs`), and in one at a time. Ended events
//!   stay where they ended. Repeats are known within a shard: what repeats an event is of the same group.

mod append;
mod checkup;
mod events;
mod layout;
pub mod link;
mod list;
mod local;
mod moves;
mod owner;
mod queues;
mod scripts;
pub mod settings;
mod settle;
mod shard;
mod upkeep;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use checkup::{checkup, is_away};
pub use moves::{Leaving, Move};
pub use owner::{Before, Claim, Epoch, NodeId, Tailed, Taken};
pub use settings::Settings;
pub use shard::{SHARDS_MAX, Shard};

use self::link::{Call, Link, Script};
use self::local::{Local, News};
use super::evenness::Evenness;
use super::{
    Appended, BoxFuture, Error, LaneStore, LaneSummary, Page, Pending, Query, Refusal, Settlement, Story, Usage,
};
use crate::clock::Clock;
use crate::event::{Event, EventId, Group, Lane, Mono, Seq, Wall};

/// The most events of a group that may be pending; `None`: any number.
pub type Caps = Box<dyn Fn(&Group) -> Option<u64> + Send + Sync>;

/// The shards of groups that are not in the one that they hash to.
pub type Places = HashMap<Group, Shard>;

/// One node's handle of a store in Redis.
pub struct Redis {
    settings: Settings,
    clock: Arc<dyn Clock>,
    link: Arc<Link>,
    locals: Vec<Local>,
    /// Where wake-ups are published.
    channel: Box<str>,
    /// As far as this node knows; a shard that a group has left says where it went.
    places: RwLock<Places>,
    caps: RwLock<Option<Caps>>,
    admission: upkeep::Admission,
    memory: Mutex<upkeep::Memory>,
    evenness: Mutex<Evenness>,
    woken: News<Shard>,
    lost: News<(Shard, Epoch)>,
    /// What receipts of this process begin with, and how many there were.
    receipts: (u64, AtomicU64),
    /// Whether it may be used: Redis was looked at, and has as many shards as we.
    begun: watch::Sender<bool>,
    closed: AtomicBool,
    /// Ends with the store.
    tasks: Mutex<JoinSet<()>>,
}

impl Redis {
    /// Looks at what is there and makes the store ready, over a link of its own. Within a runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis cannot be reached, [`Error::Corrupt`] when what lies there was made with another number of shards,
    /// or by a version of another layout.
    pub async fn open(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        let link = Arc::new(Link::new(settings.server.clone(), settings.ack, Arc::clone(&clock)));
        Self::open_over(link, settings, clock).await
    }

    /// The same over a link that others use, too. `clock` stamps and says what is past retention; deadlines are the link's.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub async fn open_over(link: Arc<Link>, settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        let store = Self::over(link, settings, clock)?;
        store.begin().await?;
        Ok(store)
    }

    /// A store that asks Redis nothing and is unavailable, whatever it is asked, until [`Self::begin`].
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] for a number of shards that there cannot be.
    pub fn over(link: Arc<Link>, settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        let shards = settings.shards;
        if shards == 0 || shards > SHARDS_MAX {
            return Err(Error::Unavailable(format!("{shards} shards; there may be 1 to {SHARDS_MAX}")));
        }
        let store = Arc::new(Self {
            locals: (0..shards).map(|number| Local::new(&settings.namespace, Shard(number))).collect(),
            channel: format!("{}:wake", settings.namespace).into(),
            places: RwLock::default(),
            caps: RwLock::default(),
            admission: upkeep::Admission::default(),
            memory: Mutex::default(),
            evenness: Mutex::default(),
            woken: News::default(),
            lost: News::default(),
            receipts: (rand::random(), AtomicU64::new(0)),
            begun: watch::Sender::new(false),
            closed: AtomicBool::new(false),
            tasks: Mutex::default(),
            settings,
            clock,
            link,
        });
        let hearing = store.link.hear(&store.channel);
        let mut tasks = store.tasks.lock();
        tasks.spawn(upkeep::hear(Arc::downgrade(&store), hearing));
        tasks.spawn(upkeep::run(Arc::downgrade(&store)));
        drop(tasks);
        Ok(store)
    }

    /// Takes it into use.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; it stays unavailable.
    pub async fn begin(&self) -> Result<(), Error> {
        self.agree_on_shards().await?;
        self.begun.send_replace(true);
        Ok(())
    }

    /// Whether it is in use.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Resolves when it is in use.
    pub async fn begun(&self) {
        let mut begun = self.begun.subscribe();
        // Its sender is ours: there is no end but this one.
        drop(begun.wait_for(|begun| *begun).await);
    }

    /// The number of shards decides where every group is, and the layout what each key means: the first node writes both down, in one
    /// step, and the others compare.
    async fn agree_on_shards(&self) -> Result<(), Error> {
        let Some(first) = self.local(Shard(0)) else { return Ok(()) };
        let (shards, form) = (first.tag.key("shards"), first.tag.key("layout"));
        let set = Call::command(&first.tag, "MSETNX").arg(&shards).arg(self.shards()).arg(&form).arg(layout::LAYOUT);
        let get = Call::command(&first.tag, "MGET").arg(&shards).arg(&form);
        // One after the other: calls of one run may be carried out in any order.
        only(self.carry_out(vec![set.durable()]).await)?;
        let there = only(self.carry_out(vec![get]).await)?;
        let [shards, form] = layout::exactly(there, "how a store is laid out")?;
        // The first stores did not say; theirs is the first layout.
        let form = if form == Value::Nil { 1 } else { layout::count(&form)? };
        self.agrees(layout::count(&shards)?, form).map_err(Error::Corrupt)
    }

    /// Whether what lies there is what we would have made.
    fn agrees(&self, shards: u64, form: u64) -> Result<(), String> {
        let namespace = &self.settings.namespace;
        if form != layout::LAYOUT {
            let whose = if form > layout::LAYOUT { "a newer" } else { "an older" };
            return Err(format!(
                "Redis has a store named {namespace} in layout {form}, which {whose} fairlane made; this version has layout {}. Nodes of two \
                 layouts cannot share a store. Nothing was changed: start the version that made it, or choose another \
                 store.redis.namespace (docs/upgrading.md)",
                layout::LAYOUT
            ));
        }
        if shards != u64::from(self.shards()) {
            return Err(format!(
                "Redis has a store named {namespace} in {shards} shards, expected {}: set store.redis.shards to {shards}, or choose \
                 another store.redis.namespace",
                self.shards()
            ));
        }
        Ok(())
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.settings.shards
    }

    /// The shard of a group's lanes: the one that it hashes to, unless it was moved.
    #[must_use]
    pub fn shard_of(&self, group: &Group) -> Shard {
        self.place_of(group).unwrap_or_else(|| self.home_of(group))
    }

    /// The shard that a group hashes to.
    #[must_use]
    pub fn home_of(&self, group: &Group) -> Shard {
        Shard(crate::event::shard(group, self.settings.shards))
    }

    fn place_of(&self, group: &Group) -> Option<Shard> {
        let places = self.places.read();
        if places.is_empty() { None } else { places.get(group).copied() }
    }

    /// A group was found to be there.
    fn learn(&self, group: &Group, shard: Shard) {
        self.places.write().insert(group.clone(), shard);
    }

    /// From now on appends refuse what would bring more than so many pending events of a group, in their own step.
    pub fn set_caps(&self, caps: Caps) {
        *self.caps.write() = Some(caps);
    }

    /// From now on groups are where these say; all others where they hash to.
    pub fn set_places(&self, places: Places) {
        let known = |shard: &Shard| shard.0 < self.settings.shards;
        *self.places.write() = places.into_iter().filter(|(_, shard)| known(shard)).collect();
    }

    /// When Redis answered last.
    #[must_use]
    pub fn last_answer(&self) -> Mono {
        self.link.last_answer()
    }

    /// The way to Redis, for whoever keeps something else there.
    #[must_use]
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn local(&self, shard: Shard) -> Option<&Local> {
        self.locals.get(usize::from(shard.0))
    }

    /// The shards that are held here, in their order.
    fn held(&self) -> Vec<Shard> {
        let held = (0..).map(Shard).zip(&self.locals).filter(|(_, local)| local.epoch().is_some());
        held.map(|(shard, _)| shard).collect()
    }

    /// A call of a script on the keys of a shard, which the store has.
    fn script(&self, shard: Shard, script: &'static Script) -> Call {
        let tag = &self.local(shard).expect("invariant: callers name shards that there are").tag;
        Call::script(tag, script, &[tag.key("m")])
    }

    fn is_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Unavailable("it is closed".into()));
        }
        if self.is_begun() {
            Ok(())
        } else {
            Err(Error::Unavailable("Redis was away at the start, and is so still".into()))
        }
    }

    /// Carries out calls; one answer each.
    async fn run(&self, calls: Vec<Call>) -> Vec<Result<Value, Error>> {
        if let Err(error) = self.is_open() {
            return calls.iter().map(|_| Err(error.clone())).collect();
        }
        self.carry_out(calls).await
    }

    /// The same, whether it is in use or not.
    async fn carry_out(&self, calls: Vec<Call>) -> Vec<Result<Value, Error>> {
        let answers = self.link.run(calls, self.settings.timeout).await;
        answers.into_iter().map(|answer| answer.map_err(link::Unanswered::into_error)).collect()
    }

    async fn one(&self, call: Call) -> Result<Value, Error> {
        only(self.run(vec![call]).await)
    }

    /// What a repetition of a call is known by; no other call has it.
    fn receipt(&self) -> String {
        format!("{:016x}{:x}", self.receipts.0, self.receipts.1.fetch_add(1, Ordering::Relaxed))
    }
}

/// The answer to one call.
fn only(mut answers: Vec<Result<Value, Error>>) -> Result<Value, Error> {
    answers.pop().expect("invariant: there is an answer for each call")
}

impl LaneStore for Redis {
    fn append(&self, batch: Vec<Arc<Event>>) -> BoxFuture<'_, Result<Appended, Error>> {
        Box::pin(self.append_batch(batch))
    }

    fn settle(&self, batch: Vec<Settlement>) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(self.settle_batch(batch))
    }

    fn requeue(&self, seqs: Vec<Seq>, at: Wall) -> BoxFuture<'_, Result<Vec<Option<Pending>>, Error>> {
        Box::pin(self.requeue_batch(seqs, at))
    }

    fn lanes(&self, after: Option<Lane>, limit: usize) -> BoxFuture<'_, Result<Vec<LaneSummary>, Error>> {
        Box::pin(self.lanes_after(after, limit))
    }

    fn load(&self, lane: Lane, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        Box::pin(self.load_lane(lane, after, limit))
    }

    fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        Box::pin(self.due_after(after, limit))
    }

    fn open(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        Box::pin(self.open_after(after, limit))
    }

    fn read(&self, seqs: Vec<Seq>) -> BoxFuture<'_, Result<Vec<Option<Arc<Event>>>, Error>> {
        Box::pin(self.read_events(seqs))
    }

    fn find(&self, id: EventId) -> BoxFuture<'_, Result<Option<Story>, Error>> {
        Box::pin(self.find_event(id))
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.list_events(query))
    }

    fn newest(&self) -> BoxFuture<'_, Result<Vec<Seq>, Error>> {
        Box::pin(self.newest_of_all())
    }

    fn admits(&self, group: &Group) -> Result<(), Refusal> {
        self.is_open().map_err(|_| Refusal::Unavailable)?;
        self.admission.admits(group)
    }

    fn usage(&self) -> Usage {
        match (self.closed.load(Ordering::Acquire), self.is_begun()) {
            (true, _) => Usage::default(),
            (false, true) => self.usage_now(),
            // Whoever looks whether Redis may be used hears from it, and nobody else does.
            (false, false) => Usage { answered: None, ..self.usage_now() },
        }
    }

    fn poisoned(&self) -> BoxFuture<'_, String> {
        // What this process writes is checked where it is stored; no write of it can leave the store in doubt.
        Box::pin(std::future::pending())
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.is_open()?;
            self.closed.store(true, Ordering::Release);
            self.tasks.lock().abort_all();
            Ok(())
        })
    }
}
