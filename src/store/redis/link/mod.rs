//! The way to Redis: calls go in, answers come out, whatever happens to servers and connections in between.
//!
//! A *call* is one command or script on the keys of one hash tag, and may be repeated. [`Link::run`] sends the calls of each server as one
//! pipeline and repeats those that have no answer, until it is there or the caller's time is over: after a lost connection or a silent
//! server, `LOADING`, `READONLY`, `CLUSTERDOWN`, `TRYAGAIN`, `MOVED`, `ASK` and `NOSCRIPT`. A call that nobody answered may have been
//! carried out all the same. Calls of one `run` may be carried out in any order.
//!
//! Who serves a key ([`map`]) is found out again at every failure, under Sentinels every second besides; a connection is asked who it
//! is before it is used ([`dial`]), so a master that was demoted, or whose disk does not keep what `ack` promises, is not written to.
//!
//! The crate's own cluster client and connection manager are not used: the one repeats on its own without an end that the caller
//! knows, the other does not repeat at all, and with neither can a write and its WAIT be kept on one connection.

mod call;
mod dial;
mod hear;
mod judge;
mod map;
mod node;
mod request;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use call::{Answer, Call, Script, Tag, Unanswered};
pub use hear::Hearing;

use self::dial::Live;
pub(super) use self::dial::{Append, Confirm, Version, on_disk};
use self::judge::Next;
pub(super) use self::judge::needs_a_person;
use self::map::{Map, Witness};
use self::node::Node;
use self::request::Request;
use self::work::{Group, Work};
use super::settings::{Ack, Address, Server, Topology};
use crate::clock::Clock;
use crate::event::Mono;

/// The longest that one attempt waits for a server while there is time for another one: it may be another server by then.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The first pause between attempts, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// How often Sentinels are asked whether the master is still the same: a demoted one says OK for a while.
const SENTINELS: Duration = Duration::from_secs(1);
/// How often a cluster is asked for its slots without need.
const CLUSTER: Duration = Duration::from_secs(2);

/// The way to Redis.
pub struct Link {
    inner: Arc<Inner>,
    /// Ends with the link.
    tasks: Mutex<JoinSet<()>>,
}

/// What its tasks share.
struct Inner {
    server: Server,
    ack: Ack,
    clock: Arc<dyn Clock>,
    /// Who serves what. A call that is under way to a server hears when it serves the key no more.
    map: watch::Sender<Map>,
    /// Grows with every look at who serves what.
    generation: AtomicU64,
    /// Who is asked for that, one caller at a time.
    witnesses: tokio::sync::Mutex<Vec<Witness>>,
    nodes: Mutex<BTreeMap<Address, Arc<Node>>>,
    last_answer: AtomicU64,
}

impl Link {
    /// A way to `server` that makes its connections when they are needed. Within a runtime.
    #[must_use]
    pub fn new(server: Server, ack: Ack, clock: Arc<dyn Clock>) -> Self {
        let map = match server.topology {
            Topology::Alone => Map::of_one(server.address.clone()),
            Topology::Sentinels { .. } | Topology::Cluster => Map::default(),
        };
        let witnesses = std::iter::once(&server.address).chain(&server.others).cloned().map(Witness::new).collect();
        let every = match server.topology {
            Topology::Alone => None,
            Topology::Sentinels { .. } => Some(SENTINELS),
            Topology::Cluster => Some(CLUSTER),
        };
        let last_answer = AtomicU64::new(clock.now().mono.0);
        let inner = Arc::new(Inner {
            server,
            ack,
            clock,
            map: watch::Sender::new(map),
            generation: AtomicU64::new(0),
            witnesses: tokio::sync::Mutex::new(witnesses),
            nodes: Mutex::default(),
            last_answer,
        });
        let mut tasks = JoinSet::new();
        if let Some(every) = every {
            tasks.spawn(watch(Arc::clone(&inner), every));
        }
        Self { inner, tasks: Mutex::new(tasks) }
    }

    /// One call; see [`Self::run`].
    ///
    /// # Errors
    ///
    /// [`Unanswered`].
    pub async fn call(&self, call: Call, within: Duration) -> Answer {
        let answer = self.run(vec![call], within).await.pop();
        answer.expect("invariant: there is an answer for each call")
    }

    /// Carries out calls, and repeats those without an answer for as long as `within` lasts; one answer a call, in their order.
    pub async fn run(&self, calls: Vec<Call>, within: Duration) -> Vec<Answer> {
        let inner = &self.inner;
        let deadline = inner.clock.now().mono.plus(within);
        let attempt = ATTEMPT.max(within / 3);
        let mut work = Work::new(&calls);
        let mut pause = PAUSE.0;
        loop {
            let left = deadline.since(inner.clock.now().mono);
            if work.open.is_empty() || left.is_zero() {
                return work.answers(&inner.server, within);
            }
            let generation = inner.generation();
            let look = inner.attempt(&mut work, left.min(attempt)).await;
            if work.open.is_empty() {
                continue;
            }
            if look {
                // Bounded like a wait: it must not take longer than the caller has.
                let left = deadline.since(inner.clock.now().mono);
                if let Ok(Err(why)) = tokio::time::timeout(left, inner.refresh(generation)).await {
                    work.why = why;
                }
            }
            if !work.at_once {
                let left = deadline.since(inner.clock.now().mono);
                tokio::time::sleep(pause.min(left)).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    /// What is published on `channel` from soon on, as long as the answer is held; after a lost connection again by itself.
    pub fn hear(&self, channel: &str) -> Hearing {
        let (hearing, task) = hear::hear(Arc::clone(&self.inner), channel.to_owned());
        let mut tasks = self.tasks.lock();
        // Those whose hearing was dropped have ended.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
        hearing
    }

    /// Every server that has keys, found out anew, and how many slots nobody has; an error in words.
    pub(super) async fn servers(&self, within: Duration) -> Result<(Vec<Address>, u16), String> {
        let found = tokio::time::timeout(within, self.inner.refresh(self.inner.generation())).await;
        found.unwrap_or_else(|_elapsed| Err(format!("no answer within {} ms", within.as_millis())))?;
        let map = self.inner.map.borrow();
        Ok((map.servers(), map.uncovered()))
    }

    /// A connection of its own to a server, whatever that is; an error in words.
    pub(super) async fn connect(&self, address: &Address) -> Result<Direct, String> {
        let server = &self.inner.server;
        Ok(Direct(dial::connect(server, address, &server.user, server.db).await?))
    }

    /// When a server answered last; the moment at which the link was made where none has.
    #[must_use]
    pub fn last_answer(&self) -> Mono {
        Mono(self.inner.last_answer.load(Ordering::Relaxed))
    }

    /// How it is reached.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.inner.server
    }
}

/// A connection to one server, for asking it about itself.
pub(super) struct Direct(MultiplexedConnection);

impl Direct {
    /// The answers to commands without keys; an error in words.
    pub(super) async fn ask(&mut self, questions: &Pipeline, within: Duration) -> Result<Vec<Value>, String> {
        let answers = self.0.send_packed_commands(questions, 0, questions.len());
        match tokio::time::timeout(within, answers).await {
            Ok(answers) => answers.map_err(|error| judge::words(&error)),
            Err(_elapsed) => Err(format!("no answer within {} ms", within.as_millis())),
        }
    }
}

/// Looks every so often who serves what.
async fn watch(inner: Arc<Inner>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Err(why) = inner.refresh(inner.generation()).await {
            tracing::debug!(why, "nobody says who serves Redis's keys");
        }
    }
}

impl Inner {
    /// One attempt at all open calls; whether it is time to look who serves what.
    async fn attempt(&self, work: &mut Work<'_>, within: Duration) -> bool {
        let (groups, homeless) = self.groups(work);
        let said = join_all(groups.iter().map(|group| self.send(group, work.calls, within))).await;
        let learned = work.learn(homeless, said.into_iter().flatten().collect());
        if !learned.moved.is_empty() {
            self.map.send_modify(|map| learned.moved.into_iter().for_each(|(slot, to)| map.moved(slot, to)));
        }
        learned.look
    }

    /// The open calls by where they go, and those of which nobody knows.
    fn groups(&self, work: &mut Work<'_>) -> (Vec<Group>, Vec<usize>) {
        let mut groups: Vec<Group> = Vec::new();
        let mut homeless = Vec::new();
        let ask = std::mem::take(&mut work.ask);
        let map = self.map.borrow();
        for &index in &work.open {
            let call = work.call(index);
            let aside = ask.get(&index);
            let Some(address) = aside.or_else(|| map.server(call.slot())) else {
                homeless.push(index);
                continue;
            };
            let entry = (index, aside.is_some(), work.load.contains(&index));
            let same = |group: &&mut Group| group.node.address() == address && group.durable == call.is_durable();
            match groups.iter_mut().find(same) {
                Some(group) => group.calls.push(entry),
                None => groups.push(Group { node: self.node(address), durable: call.is_durable(), calls: vec![entry] }),
            }
        }
        (groups, homeless)
    }

    fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        Arc::clone(nodes.entry(address.clone()).or_insert_with(|| Arc::new(Node::at(address.clone()))))
    }

    /// Sends a group's calls as one pipeline, and says of each what its reply means.
    async fn send(&self, group: &Group, calls: &[Call], within: Duration) -> Vec<(usize, Result<Value, Next>)> {
        let address = group.node.address();
        let failed = |next: Next| group.calls.iter().map(|(index, ..)| (*index, Err(next.clone()))).collect();
        let started = self.clock.now().mono;
        let live = match tokio::time::timeout(within, group.node.live(&self.server, self.ack, group.durable)).await {
            Ok(Ok(live)) => live,
            Ok(Err(why)) => return failed(Next::Elsewhere(format!("{address}: {why}"))),
            Err(_elapsed) => {
                return failed(Next::Silent(format!("{address}: no connection within {} ms", within.as_millis())));
            }
        };
        let within = within.saturating_sub(self.clock.now().mono.since(started));
        let confirm = if group.durable { live.confirm } else { Confirm::Answer };
        let request = Request::of(group, calls, confirm, within);
        let mut connection = live.connection.clone();
        let replies = connection.send_packed_commands(&request.pipeline, 0, request.pipeline.len());
        let replies = async {
            tokio::select! {
                replies = replies => Some(replies),
                () = self.replaced(group, calls) => None,
            }
        };
        let next = match tokio::time::timeout(within, replies).await {
            Ok(None) => Next::Elsewhere(format!("{address}: another server has taken its place")),
            Ok(Some(Ok(replies))) => {
                self.heard();
                let answers = request.read(replies, address);
                // A server that refuses writes may be another one by the time it is asked again.
                if answers.iter().any(|(_, answer)| matches!(answer, Err(Next::Elsewhere(_)))) {
                    self.lose(group, &live).await;
                }
                return answers;
            }
            Ok(Some(Err(error))) => Next::Elsewhere(format!("{address}: {}", judge::words(&error))),
            Err(_elapsed) => Next::Silent(format!("{address}: no answer within {} ms", within.as_millis())),
        };
        self.lose(group, &live).await;
        failed(next)
    }

    /// Resolves when a group's calls would go to other servers now: the one that was asked may be silent for long.
    async fn replaced(&self, group: &Group, calls: &[Call]) {
        let slots: Vec<u16> = group
            .calls
            .iter()
            .filter(|(_, aside, _)| !aside)
            .filter_map(|&(i, ..)| Some(calls.get(i)?.slot()))
            .collect();
        let elsewhere =
            |map: &Map, &slot: &u16| map.server(slot).is_some_and(|address| address != group.node.address());
        let mut map = self.map.subscribe();
        let gone =
            map.wait_for(|map| !slots.is_empty() && slots.iter().all(|slot| elsewhere(map, slot))).await.is_err();
        if gone {
            std::future::pending().await
        }
    }

    async fn lose(&self, group: &Group, live: &Live) {
        group.node.lose(live, self.ack, group.durable).await;
    }

    /// Finds out who serves what, unless somebody did since `seen`.
    async fn refresh(&self, seen: u64) -> Result<(), String> {
        let mut witnesses = self.witnesses.lock().await;
        if self.generation() != seen {
            return Ok(());
        }
        let map = match &self.server.topology {
            Topology::Alone => return Ok(()),
            Topology::Sentinels { master, user } => {
                Map::of_one(map::master(&self.server, &mut witnesses, master, user).await?)
            }
            Topology::Cluster => map::slots(&self.server, &mut witnesses).await?,
        };
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.adopt(map);
        Ok(())
    }

    fn adopt(&self, map: Map) {
        let before = self.map.send_replace(map.clone());
        if before == map {
            return;
        }
        let servers = map.servers();
        // Connections to those who serve nothing any more end with the calls that are under way on them.
        self.nodes.lock().retain(|address, _| servers.contains(address));
        if let Topology::Sentinels { master, .. } = &self.server.topology
            && let (Some(was), Some(is)) = (before.server(0), map.server(0))
        {
            tracing::warn!(%master, %was, %is, "the Sentinels name another master");
        }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Some server, for what any of them does.
    fn any(&self) -> Option<Address> {
        self.map.borrow().server(0).cloned()
    }

    /// A server said something.
    fn heard(&self) {
        self.last_answer.fetch_max(self.clock.now().mono.0, Ordering::Relaxed);
    }
}
