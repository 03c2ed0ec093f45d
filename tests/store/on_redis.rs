//! The store in Redis as a subject: a real server with a file of its own, killed where a case says crash.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::{SystemClock, TestClock};
use fairlane::store::LaneStore;
use fairlane::store::redis::link::Link;
use fairlane::store::redis::settings::{Ack, Server as Address};
use fairlane::store::redis::{Claim, Epoch, NodeId, Redis, Settings, Shard};

use crate::redis_servers::{Server, redis};
use crate::world::{RETENTION, Subject};

/// Long enough for everything that a test does meanwhile.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// How the stores of the tests are kept.
pub(crate) fn settings(url: &str, shards: u16) -> Settings {
    Settings {
        server: Address::alone(url).unwrap(),
        namespace: "test".into(),
        shards,
        ack: Ack::Memory,
        lease: LEASE,
        retention: RETENTION,
        max_bytes: None,
        timeout: Duration::from_secs(20),
        folder: PathBuf::from("unused"),
        spool: false,
        spool_max_bytes: None,
        advertise: None,
    }
}

/// A store that stamps by `clock`; its deadlines are real.
pub(crate) async fn open(settings: Settings, clock: Arc<TestClock>) -> Arc<Redis> {
    let link = Link::new(settings.server.clone(), settings.ack, Arc::new(SystemClock));
    Redis::open_over(Arc::new(link), settings, clock).await.unwrap()
}

/// Has `store` hold all shards as `node`; their epochs.
pub(crate) async fn hold_all(store: &Redis, node: &str) -> Vec<(Shard, Epoch)> {
    let mut held = Vec::new();
    for shard in (0..store.shards()).map(Shard) {
        match store.claim(shard, &NodeId::new(node), LEASE).await.unwrap() {
            Claim::Held(epoch) => held.push((shard, epoch)),
            other => panic!("{shard} should be free: {other:?}"),
        }
        store.look_after().await.unwrap();
    }
    held
}

/// [`Redis`] on `SHARDS` shards, all of them held.
pub(crate) struct OnRedis<const SHARDS: u16> {
    server: Server,
    clock: Arc<TestClock>,
    store: Arc<Redis>,
}

impl<const SHARDS: u16> OnRedis<SHARDS> {
    async fn connect(server: &Server, clock: Arc<TestClock>) -> Arc<Redis> {
        let store = open(settings(&server.url(), SHARDS), clock).await;
        hold_all(&store, "node").await;
        store
    }
}

impl<const SHARDS: u16> Subject for OnRedis<SHARDS> {
    async fn create(clock: Arc<TestClock>) -> Self {
        let server = redis().start();
        let store = Self::connect(&server, Arc::clone(&clock)).await;
        Self { server, clock, store }
    }

    fn store(&self) -> &dyn LaneStore {
        &*self.store
    }

    async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = Self::connect(&self.server, Arc::clone(&self.clock)).await;
    }

    async fn crash(&mut self) {
        self.server.restart();
        self.store = Self::connect(&self.server, Arc::clone(&self.clock)).await;
    }
}
