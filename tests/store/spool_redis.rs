//! The spool before a real Redis, which is killed, stopped, paused and emptied under load.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};
use fairlane::event::{Event, EventId};
use fairlane::metrics::Metrics;
use fairlane::store::redis::{Redis, Settings};
use fairlane::store::spool::{self, Spooled};
use fairlane::store::{LaneStore, Status};
use tokio::task::JoinSet;

use crate::on_redis;
use crate::redis_servers::{Server, redis};
use crate::world::{event, everything, lane, run};

/// A node without deliveries, and what its senders were told.
struct Node {
    server: Server,
    store: Arc<Spooled>,
    metrics: Arc<Metrics>,
    _mover: JoinSet<()>,
    sent: u64,
    stored: BTreeSet<EventId>,
}

impl Node {
    async fn start(dir: &Path) -> Self {
        let server = redis().start();
        let settings = Settings { spool: true, folder: dir.to_owned(), ..on_redis::settings(&server.url(), 4) };
        let clock = Arc::new(SystemClock);
        let redis = Redis::open(settings.clone(), Arc::clone(&clock) as _).await.unwrap();
        let metrics = Arc::new(Metrics::new("aof"));
        let store = spool::before_redis(&redis, &settings, clock, Arc::clone(&metrics)).unwrap();
        let mut mover = JoinSet::new();
        mover.spawn(Arc::clone(&store).run());
        Self { server, store, metrics, _mover: mover, sent: 0, stored: BTreeSet::new() }
    }

    /// One batch over eight groups.
    async fn send(&mut self) {
        let received = SystemClock.now().wall;
        let mut next = |number| {
            self.sent += 1;
            Arc::new(event(self.sent, &lane(&format!("store-{}", number % 8)), received))
        };
        let batch: Vec<Arc<Event>> = (0..20).map(&mut next).collect();
        let appended = self.store.append(batch.clone()).await.unwrap();
        let taken = batch.iter().enumerate().filter(|(number, _)| appended.place(*number).is_ok());
        self.stored.extend(taken.map(|(_, event)| event.id));
    }

    fn spooled(&self) -> u64 {
        self.store.usage().spool.unwrap().events
    }

    /// Sends until so many more events are in the spool.
    async fn send_into_the_spool(&mut self, more: u64) {
        let until = self.metrics.spooled.get() + more;
        let sending = async {
            while self.metrics.spooled.get() < until {
                self.send().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), sending).await.expect("nothing goes into the spool");
    }

    /// Sends until the spool is empty, and new events go to Redis again.
    async fn send_until_it_is_empty(&mut self) {
        let sending = async {
            loop {
                let before = self.metrics.spooled.get();
                self.send().await;
                if self.spooled() == 0 && self.metrics.spooled.get() == before {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), sending).await.expect("the spool does not empty");
    }

    /// What is in Redis, each once.
    async fn has(&self) -> BTreeSet<EventId> {
        // Over several shards a list is in the order of commits, not in that of seqs.
        let (mut query, mut records) = (everything(1_000), Vec::new());
        loop {
            let page = self.store.list(query.clone()).await.unwrap();
            records.extend(page.records);
            let Some(next) = page.next else { break };
            query.behind = Some(next);
        }
        assert!(records.iter().all(|record| record.status == Status::Queued));
        let ids: BTreeSet<EventId> = records.iter().map(|record| record.id).collect();
        assert_eq!(ids.len(), records.len(), "an event is there twice");
        ids
    }
}

#[test]
fn a_redis_that_is_killed_stopped_or_paused_under_load_loses_nothing_that_was_answered_as_stored() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Node::start(dir.path()).await;
        node.send().await;
        let fail: [fn(&mut Server); 3] = [Server::kill, Server::stop, |server| server.pause()];
        let mend: [fn(&mut Server); 3] = [Server::revive, Server::revive, |server| server.resume()];
        for (fail, mend) in fail.into_iter().zip(mend) {
            fail(&mut node.server);
            node.send_into_the_spool(200).await;
            let waiting = *node.stored.last().unwrap();
            assert!(node.store.find(waiting).await.unwrap().is_some(), "a person finds it meanwhile");
            assert_eq!(node.store.admits(&lane("store-1").group), Ok(()), "it is ready");
            mend(&mut node.server);
            node.send_until_it_is_empty().await;
        }
        assert!(node.has().await == node.stored, "what was answered as stored, and nothing else");
        assert_eq!(node.metrics.spooled.get(), node.metrics.spool_moved.get());
        node.store.close().await.unwrap();
    });
}

/// What was there is gone; what comes is stored, and what is in the spool arrives.
#[test]
fn a_redis_that_was_emptied_takes_events_again() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Node::start(dir.path()).await;
        node.send().await;
        let _emptied: String = node.server.ask(&["FLUSHALL"]);
        node.stored.clear();
        node.send().await;
        node.server.kill();
        node.send_into_the_spool(40).await;
        node.server.revive();
        let _emptied: String = node.server.ask(&["FLUSHALL"]);
        let _emptied: String = node.server.ask(&["SCRIPT", "FLUSH"]);
        node.send_until_it_is_empty().await;
        let has = node.has().await;
        assert!(has.is_subset(&node.stored) && has.len() >= 60, "{} of {}", has.len(), node.stored.len());
    });
}
