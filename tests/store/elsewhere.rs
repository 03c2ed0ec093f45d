//! A store that is elsewhere: one in memory that can be away in every way there is, and is idempotent by event id.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fairlane::event::{Event, EventId, Group, Lane, Seq, Wall};
use fairlane::store::memory::Memory;
use fairlane::store::{
    Appended, BoxFuture, Error, LaneStore, LaneSummary, Page, Pending, Query, Refusal, Repeat, Settlement, Story, Usage,
};
use parking_lot::Mutex;

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is there.
    There,
    /// Nothing is done, and it says so.
    Refuses,
    /// Nothing is done and nothing said.
    Hangs,
    /// Everything is done and nothing said.
    Mute,
    /// It reads and does not write.
    ReadOnly,
}

/// What a test may change while it runs.
pub(crate) struct Outside {
    pub(crate) way: Way,
    /// Groups whose part is away.
    pub(crate) away: BTreeSet<Group>,
    /// Groups that may have so many events.
    pub(crate) backlog: BTreeMap<Group, usize>,
    ids: HashMap<EventId, Seq>,
    /// Events in the order in which they were stored.
    pub(crate) stored: Vec<Arc<Event>>,
    /// Those of them of which it said nothing at first.
    pub(crate) unsaid: BTreeSet<EventId>,
}

/// Clones are the same store.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    memory: Memory,
    pub(crate) outside: Arc<Mutex<Outside>>,
}

impl Elsewhere {
    pub(crate) fn new(memory: Memory) -> Self {
        let outside = Outside {
            way: Way::There,
            away: BTreeSet::new(),
            backlog: BTreeMap::new(),
            ids: HashMap::new(),
            stored: Vec::new(),
            unsaid: BTreeSet::new(),
        };
        Self { memory, outside: Arc::new(Mutex::new(outside)) }
    }

    /// As it is for the next process.
    pub(crate) fn again(&self, memory: impl FnOnce(&Memory) -> Memory) -> Self {
        Self { memory: memory(&self.memory), outside: Arc::clone(&self.outside) }
    }

    pub(crate) fn becomes(&self, way: Way) {
        self.outside.lock().way = way;
    }

    /// Ids of what it has of a lane, in its order.
    pub(crate) fn ids(&self, lane: &Lane) -> Vec<EventId> {
        let outside = self.outside.lock();
        outside.stored.iter().filter(|event| event.lane == *lane).map(|event| event.id).collect()
    }

    fn refusal(&self, event: &Event) -> Option<Refusal> {
        let outside = self.outside.lock();
        if outside.away.contains(&event.lane.group) {
            return Some(Refusal::Unavailable);
        }
        let most = *outside.backlog.get(&event.lane.group)?;
        let has = outside.stored.iter().filter(|stored| stored.lane.group == event.lane.group).count();
        (has >= most).then_some(Refusal::Backlog)
    }

    async fn store(&self, batch: Vec<Arc<Event>>) -> Result<Appended, Error> {
        if batch.is_empty() {
            return self.memory.append(batch).await;
        }
        let (mut places, mut repeats) = (Vec::new(), Vec::new());
        for (number, event) in batch.into_iter().enumerate() {
            let known = self.outside.lock().ids.get(&event.id).copied();
            if let Some(seq) = known {
                places.push(Ok(seq));
                continue;
            }
            if let Some(refusal) = self.refusal(&event) {
                places.push(Err(refusal));
                continue;
            }
            let appended = self.memory.append(vec![Arc::clone(&event)]).await?;
            repeats.extend(appended.repeat(0).map(|of| Repeat { number, of }));
            places.push(Ok(appended.first));
            let mut outside = self.outside.lock();
            if outside.way == Way::Mute {
                outside.unsaid.insert(event.id);
            }
            outside.ids.insert(event.id, appended.first);
            outside.stored.push(event);
        }
        let first = places.iter().find_map(|place| place.as_ref().ok().copied()).unwrap_or_default();
        let follow = places.iter().zip(first.0..).all(|(place, next)| *place == Ok(Seq(next)));
        Ok(Appended { first, repeats, places: if follow { Vec::new() } else { places } })
    }

    /// What becomes of a call that is made now.
    async fn there<T>(&self, writes: bool, call: BoxFuture<'_, Result<T, Error>>) -> Result<T, Error> {
        let way = self.outside.lock().way;
        match way {
            Way::There => call.await,
            Way::ReadOnly if !writes => call.await,
            Way::Refuses | Way::ReadOnly => Err(Error::Unavailable("it is away".into())),
            Way::Hangs => std::future::pending().await,
            Way::Mute => {
                drop(call.await);
                std::future::pending().await
            }
        }
    }
}

impl LaneStore for Elsewhere {
    fn append(&self, batch: Vec<Arc<Event>>) -> BoxFuture<'_, Result<Appended, Error>> {
        Box::pin(self.there(true, Box::pin(self.store(batch))))
    }

    fn settle(&self, batch: Vec<Settlement>) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(self.there(true, self.memory.settle(batch)))
    }

    fn requeue(&self, seqs: Vec<Seq>, at: Wall) -> BoxFuture<'_, Result<Vec<Option<Pending>>, Error>> {
        Box::pin(self.there(true, self.memory.requeue(seqs, at)))
    }

    fn lanes(&self, after: Option<Lane>, limit: usize) -> BoxFuture<'_, Result<Vec<LaneSummary>, Error>> {
        Box::pin(self.there(false, self.memory.lanes(after, limit)))
    }

    fn load(&self, lane: Lane, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        Box::pin(self.there(false, self.memory.load(lane, after, limit)))
    }

    fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        Box::pin(self.there(false, self.memory.due(after, limit)))
    }

    fn open(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        Box::pin(self.there(false, self.memory.open(after, limit)))
    }

    fn read(&self, seqs: Vec<Seq>) -> BoxFuture<'_, Result<Vec<Option<Arc<Event>>>, Error>> {
        Box::pin(self.there(false, self.memory.read(seqs)))
    }

    fn find(&self, id: EventId) -> BoxFuture<'_, Result<Option<Story>, Error>> {
        Box::pin(self.there(false, self.memory.find(id)))
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.there(false, self.memory.list(query)))
    }

    fn admits(&self, group: &Group) -> Result<(), Refusal> {
        self.memory.admits(group)
    }

    fn usage(&self) -> Usage {
        self.memory.usage()
    }

    fn poisoned(&self) -> BoxFuture<'_, String> {
        self.memory.poisoned()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.close()
    }
}
