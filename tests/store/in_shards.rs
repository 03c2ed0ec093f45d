//! The store in Redis over several shards: lists over all of them, caps, memory, and what it costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlane::clock::{Clock as _, TestClock};
use fairlane::event::{Event, Group, Lane, Seq};
use fairlane::store::memory::Memory;
use fairlane::store::redis::{Redis, Settings, Shard};
use fairlane::store::{Error, LaneStore as _, LaneSummary, Query, Refusal, Settlement, Status, Verdict};

use crate::on_redis::{hold_all, open, settings};
use crate::redis_servers::{Server, redis};
use crate::world::{RETENTION, START, event, everything, inner_lane, lane, note, run};

/// One node on a server of its own, all shards held.
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) store: Arc<Redis>,
    made: u64,
}

impl Node {
    pub(crate) async fn new(shards: u16) -> Self {
        Self::with(|url| settings(url, shards)).await
    }

    async fn with(settings: impl Fn(&str) -> Settings) -> Self {
        let (server, clock) = (redis().start(), Arc::new(TestClock::at(START)));
        let store = open(settings(&server.url()), Arc::clone(&clock)).await;
        hold_all(&store, "node").await;
        Self { server, clock, store, made: 0 }
    }

    pub(crate) fn event(&mut self, lane: &Lane) -> Event {
        self.made += 1;
        event(self.made, lane, self.clock.now().wall)
    }

    async fn append(&mut self, lane: &Lane, count: usize) -> Vec<Result<Seq, Refusal>> {
        let batch: Vec<_> = (0..count).map(|_| Arc::new(self.event(lane))).collect();
        let appended = self.store.append(batch).await.unwrap();
        (0..count).map(|number| appended.place(number)).collect()
    }

    pub(crate) fn settlements(&self, seqs: &[Seq], verdict: &Verdict) -> Vec<Settlement> {
        let at = self.clock.now().wall;
        let attempt = verdict.ends().then(|| note(1, at));
        seqs.iter().map(|&seq| Settlement { seq, at, verdict: verdict.clone(), attempt: attempt.clone() }).collect()
    }

    async fn settle(&self, seqs: &[Seq], verdict: Verdict) {
        assert_eq!(self.store.settle(self.settlements(seqs, &verdict)).await, Ok(0), "{verdict:?}");
    }
}

/// All pages of a list.
async fn listed(store: &Redis, mut query: Query) -> Vec<Seq> {
    let mut all = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert!(page.records.len() <= query.limit);
        all.extend(page.records.iter().map(|record| record.seq));
        let Some(next) = page.next else { return all };
        query.behind = Some(next);
    }
}

#[test]
fn a_list_over_shards_is_in_the_order_of_commits() {
    run(async {
        let mut node = Node::new(7).await;
        let mut committed = Vec::new();
        for i in 0..120 {
            let seqs = node.append(&lane(&format!("store-{}", i % 13)), 1 + i % 3).await;
            committed.extend(seqs.into_iter().map(Result::unwrap));
        }
        let shards: std::collections::BTreeSet<Shard> = committed.iter().map(|seq| Shard::of(*seq).0).collect();
        assert_eq!(shards.len(), 7, "13 groups should be in all shards");
        let newest_first: Vec<Seq> = committed.iter().rev().copied().collect();
        for limit in [1, 7, 1_000] {
            assert_eq!(listed(&node.store, everything(limit)).await, newest_first, "{limit} a page");
            let up = Query { oldest_first: true, ..everything(limit) };
            assert_eq!(listed(&node.store, up).await, committed, "{limit} a page, oldest first");
        }
        let from_the_first = Query { oldest_first: true, behind: Some(Seq(0)), ..everything(7) };
        assert_eq!(listed(&node.store, from_the_first).await, committed, "before all is before those of every shard");
        let mut last: BTreeMap<Shard, Seq> = BTreeMap::new();
        last.extend(committed.iter().map(|seq| (Shard::of(*seq).0, *seq)));
        assert_eq!(node.store.newest().await.unwrap(), last.into_values().collect::<Vec<_>>());
        // A cursor in the middle, whose event goes away while its page is read.
        let behind = Query { behind: Some(newest_first[100]), ..everything(9) };
        assert_eq!(listed(&node.store, behind).await, newest_first[101..]);
        let of_group = Query { group: Some(Group::of(&["store-4"])), ..everything(5) };
        let found = listed(&node.store, of_group).await;
        let mut wanted = Vec::new();
        for seq in &newest_first {
            let event = node.store.read(vec![*seq]).await.unwrap().remove(0).unwrap();
            if event.lane == lane("store-4") {
                wanted.push(*seq);
            }
        }
        assert_eq!(found, wanted);
        node.settle(&committed[..50], Verdict::Delivered).await;
        node.settle(&committed[50..60], Verdict::Dead("x".into())).await;
        let of_sender = Query { provider_event_id: Some("evt-77".into()), ..everything(10) };
        assert_eq!(listed(&node.store, of_sender).await, [committed[76]]);
        let dead = Query { status: vec![Status::Dead], ..everything(4) };
        assert_eq!(listed(&node.store, dead).await, newest_first[committed.len() - 60..committed.len() - 50]);
    });
}

#[test]
fn a_batch_of_commits_of_one_moment_is_paged_without_loss() {
    run(async {
        let mut node = Node::new(3).await;
        let lanes: Vec<Lane> = (0..9).map(|i| lane(&format!("store-{i}"))).collect();
        let batch: Vec<_> = (0..900).map(|i| Arc::new(node.event(&lanes[i % 9]))).collect();
        node.store.append(batch).await.unwrap();
        for oldest_first in [false, true] {
            let found = listed(&node.store, Query { oldest_first, ..everything(70) }).await;
            let distinct: std::collections::BTreeSet<Seq> = found.iter().copied().collect();
            assert_eq!((found.len(), distinct.len()), (900, 900), "oldest first: {oldest_first}");
        }
    });
}

#[test]
fn a_cap_refuses_what_is_above_it_and_nothing_else() {
    run(async {
        let mut node = Node::new(7).await;
        let capped = Group::of(&["capped"]);
        node.store.set_caps(Box::new(move |group| (*group == capped).then_some(3)));
        let (a, b) = (lane("capped"), lane("other"));
        let batch: Vec<_> = [&a, &b, &a, &a, &a, &b].into_iter().map(|of| Arc::new(node.event(of))).collect();
        let appended = node.store.append(batch.clone()).await.unwrap();
        let stored: Vec<bool> = (0..6).map(|number| appended.place(number).is_ok()).collect();
        assert_eq!(stored, [true, true, true, true, false, true]);
        assert_eq!(appended.place(4), Err(Refusal::Backlog));
        assert_eq!(node.store.find(batch[4].id).await, Ok(None), "nothing of it was kept");
        // Parts of the group count for it, and the other way round.
        assert_eq!(node.append(&inner_lane("capped", "orders"), 1).await, [Err(Refusal::Backlog)]);
        node.settle(&[appended.place(0).unwrap()], Verdict::Delivered).await;
        let inner = node.append(&inner_lane("capped", "orders"), 2).await;
        assert!(inner[0].is_ok() && inner[1] == Err(Refusal::Backlog), "{inner:?}");
        assert_eq!(node.append(&a, 1).await, [Err(Refusal::Backlog)]);
        node.settle(&[inner[0].unwrap()], Verdict::Discarded).await;
        assert!(node.append(&a, 1).await[0].is_ok());
        // What is there already is answered as it was, however full its group is.
        assert_eq!(node.store.append(batch[..1].to_vec()).await.unwrap().place(0), appended.place(0));
    });
}

#[test]
fn a_store_whose_events_are_gone_keeps_nothing_of_their_lanes() {
    run(async {
        let mut node = Node::new(3).await;
        let mut seqs = Vec::new();
        for i in 0..40 {
            let of = if i % 4 == 0 { inner_lane("a", &format!("part-{i}")) } else { lane(&format!("store-{i}")) };
            seqs.extend(node.append(&of, 30).await.into_iter().map(Result::unwrap));
        }
        node.settle(&seqs, Verdict::Begun).await;
        node.settle(&seqs[..900], Verdict::Delivered).await;
        node.settle(&seqs[900..], Verdict::Dead("x".into())).await;
        let again = node.store.requeue(seqs[..10].to_vec(), node.clock.now().wall).await.unwrap();
        let again: Vec<Seq> = again.into_iter().map(|pending| pending.unwrap().seq).collect();
        node.settle(&again, Verdict::Delivered).await;
        node.clock.advance(RETENTION.delivered + Duration::from_secs(1));
        node.store.look_after().await.unwrap();
        assert_eq!(node.store.usage().history, 300, "the dead ones are kept longer");
        node.clock.advance(RETENTION.dead);
        node.store.look_after().await.unwrap();
        assert_eq!(node.store.usage().history, 0);
        let mut keys: Vec<String> = node.server.ask(&["KEYS", "*"]);
        keys.retain(|key| !key.contains("}:c:"));
        keys.sort();
        let mut wanted: Vec<String> =
            (0..3).flat_map(|shard| ["m", "owner"].map(|key| format!("{{test:{shard}}}:{key}"))).collect();
        wanted.extend(["{test:0}:shards", "{test:0}:layout"].map(str::to_owned));
        wanted.sort();
        assert_eq!(keys, wanted, "receipts of requeues expire by themselves");
    });
}

#[test]
fn history_goes_as_memory_fills_and_then_new_events_are_refused() {
    run(async {
        let mut node = Node::new(2).await;
        let large = |event: Event| Arc::new(Event { body: Bytes::from(vec![b'x'; 10_000]), ..event });
        let mut seqs = Vec::new();
        for i in 0..6 {
            let batch: Vec<_> = (0..100).map(|_| large(node.event(&lane(&format!("store-{i}"))))).collect();
            let appended = node.store.append(batch).await.unwrap();
            seqs.extend((0..100).map(|number| appended.place(number).unwrap()));
        }
        node.settle(&seqs[..500], Verdict::Delivered).await;
        node.settle(&seqs[500..510], Verdict::Dead("x".into())).await;
        node.store.look_after().await.unwrap();
        assert_eq!(node.store.usage().history, 510, "without a limit all of it is kept");
        let used = node.store.usage().bytes;
        // 1.5 to 2 margins are free: history goes, nobody is refused.
        let _set: () = node.server.ask(&["CONFIG", "SET", "maxmemory", &(used * 100 / 77).to_string()]);
        node.store.look_after().await.unwrap();
        node.store.look_after().await.unwrap();
        let usage = node.store.usage();
        assert_eq!((usage.history, usage.pending), (10, 90), "delivered events alone were given up");
        assert_eq!(node.store.admits(&Group::of(&["store-5"])), Ok(()));
        let used = node.store.usage().bytes;
        let _set: () = node.server.ask(&["CONFIG", "SET", "maxmemory", &(used * 100 / 90).to_string()]);
        node.store.look_after().await.unwrap();
        assert_eq!(node.store.admits(&Group::of(&["store-1"])), Err(Refusal::Full));
        let late = large(node.event(&lane("late")));
        assert!(matches!(node.store.append(vec![Arc::clone(&late)]).await, Err(Error::Full(_))));
        node.settle(&seqs[510..], Verdict::Begun).await;
        let _set: () = node.server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        node.store.look_after().await.unwrap();
        node.store.append(vec![late]).await.unwrap();
    });
}

#[test]
fn the_groups_that_hold_most_are_refused_first() {
    run(async {
        let mut node = Node::new(2).await;
        let big = Event { body: Bytes::from(vec![b'x'; 2_000_000]), ..node.event(&lane("big")) };
        node.store.append(vec![Arc::new(big)]).await.unwrap();
        node.append(&lane("small"), 1).await;
        node.store.look_after().await.unwrap();
        let used = node.store.usage().bytes;
        let _set: () = node.server.ask(&["CONFIG", "SET", "maxmemory", &(used * 1_000 / 845).to_string()]);
        node.store.look_after().await.unwrap();
        assert_eq!(node.store.admits(&Group::of(&["big"])), Err(Refusal::GroupTooLarge));
        assert_eq!(node.store.admits(&Group::of(&["small"])), Ok(()));
    });
}

/// Numbers that look random and are the same every time.
fn scattered(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// What comes out of a spool was received long before what was stored meanwhile.
#[test]
fn the_oldest_event_is_known_in_whatever_order_events_come() {
    run(async {
        let mut node = Node::new(1).await;
        let memory = Memory::with_retention(Arc::clone(&node.clock) as _, RETENTION);
        let lanes = [lane("a"), lane("b"), inner_lane("b", "part")];
        let (mut state, mut pending) = (7, Vec::new());
        for step in 0..300 {
            if scattered(&mut state, 5) < 3 || pending.is_empty() {
                let received = START.minus(Duration::from_secs(scattered(&mut state, 500)));
                let of = &lanes[usize::try_from(scattered(&mut state, 3)).unwrap()];
                let event = Arc::new(Event { received, ..node.event(of) });
                let appended = node.store.append(vec![Arc::clone(&event)]).await.unwrap();
                assert_eq!(memory.append(vec![event]).await, Ok(appended.clone()));
                pending.push(appended.first);
            } else {
                let place = usize::try_from(scattered(&mut state, pending.len() as u64)).unwrap();
                let seq = pending.swap_remove(place);
                let end = node.settlements(&[seq], &Verdict::Delivered);
                assert_eq!(memory.settle(end.clone()).await, node.store.settle(end).await);
                if scattered(&mut state, 4) == 0 {
                    let at = START.plus(Duration::from_secs(step));
                    let again = node.store.requeue(vec![seq], at).await.unwrap();
                    assert_eq!(
                        memory.requeue(vec![seq], at).await.unwrap()[0].as_ref().map(|of| of.seq),
                        again[0].as_ref().map(|of| of.seq)
                    );
                    pending.extend(again[0].as_ref().map(|of| of.seq));
                }
            }
            let oldest = |all: Vec<LaneSummary>| all.into_iter().map(|of| (of.lane, of.oldest)).collect::<Vec<_>>();
            let (here, there) = (node.store.lanes(None, 10).await.unwrap(), memory.lanes(None, 10).await.unwrap());
            assert_eq!(oldest(here), oldest(there), "step {step}");
            assert_eq!(node.store.usage().oldest, memory.usage().oldest, "step {step}");
        }
    });
}

#[test]
fn another_number_of_shards_is_refused() {
    run(async {
        let node = Node::new(3).await;
        let other = Redis::open(settings(&node.server.url(), 4), Arc::clone(&node.clock) as _).await;
        let Err(Error::Corrupt(why)) = other else { panic!("4 shards instead of 3") };
        assert!(why.contains("3 shards") && why.contains("store.redis.shards"), "{why}");
    });
}

/// Nodes of two versions that do not understand each other never share a store, whichever comes first.
#[test]
fn another_layout_is_refused_and_one_that_says_nothing_is_the_first() {
    run(async {
        let node = Node::new(3).await;
        let open = || Redis::open(settings(&node.server.url(), 3), Arc::clone(&node.clock) as _);
        for (number, whose) in [("2", "a newer"), ("0", "an older")] {
            let _set: () = node.server.ask(&["SET", "{test:0}:layout", number]);
            let Err(Error::Corrupt(why)) = open().await else { panic!("layout {number} is taken for ours") };
            assert!(why.contains(&format!("layout {number}, which {whose} fairlane made")), "{why}");
            assert_eq!(node.server.ask::<String>(&["GET", "{test:0}:layout"]), number, "nothing is changed");
        }
        let _gone: () = node.server.ask(&["DEL", "{test:0}:layout"]);
        assert!(open().await.is_ok());
    });
}

/// What servers say of themselves, by command: calls, and microseconds of their CPU.
fn stats(server: &Server) -> BTreeMap<String, (u64, f64)> {
    let text: String = server.ask(&["INFO", "commandstats"]);
    let number = |line: &str, name: &str| -> f64 {
        let rest = line.split_once(name).unwrap().1;
        rest.split(',').next().unwrap().parse().unwrap()
    };
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("cmdstat_"));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(':').unwrap();
            (name.to_owned(), (number(rest, "calls=") as u64, number(rest, "usec=")))
        })
        .collect()
}

/// At most three commands an event over its life, counted by the server; what they cost is printed (`-- --nocapture`).
#[test]
fn an_event_costs_three_commands_at_most() {
    run(async {
        for (batch, groups) in [(1, 1), (16, 4), (16, 16), (256, 16), (256, 256)] {
            let mut node = Node::new(1).await;
            let lanes: Vec<Lane> = (0..groups).map(|i| lane(&format!("store-{i}.example"))).collect();
            let events = 1_024.max(batch);
            let before = node.server.ask::<String>(&["INFO", "memory"]);
            let _reset: () = node.server.ask(&["CONFIG", "RESETSTAT"]);
            let mut seqs = Vec::new();
            for _ in 0..events / batch {
                let some: Vec<_> = (0..batch)
                    .map(|i| {
                        let event = node.event(&lanes[i % groups]);
                        Arc::new(Event { body: Bytes::from(vec![b'x'; 1_000]), ..event })
                    })
                    .collect();
                let appended = node.store.append(some).await.unwrap();
                seqs.extend((0..batch).map(|number| appended.place(number).unwrap()));
            }
            let appended = stats(&node.server)["evalsha"];
            let used = memory(&node.server.ask::<String>(&["INFO", "memory"])) - memory(&before);
            for some in seqs.chunks(batch) {
                node.settle(some, Verdict::Begun).await;
            }
            let begun = stats(&node.server)["evalsha"];
            for some in seqs.chunks(batch) {
                node.settle(some, Verdict::Delivered).await;
            }
            let all = stats(&node.server);
            let delivered = all["evalsha"];
            let calls = delivered.0 as f64 / events as f64;
            let each = |usec: f64| usec / events as f64;
            println!(
                "batches of {batch} over {groups} lanes: {calls:.3} commands an event; server CPU in us: append {:.1}, begun {:.1}, \
                 delivered {:.1}; {} bytes of memory an event of 1,000",
                each(appended.1),
                each(begun.1 - appended.1),
                each(delivered.1 - begun.1),
                used / events as u64
            );
            // Beside the calls of events: the upkeep of a second or two.
            assert!(delivered.0 <= (3 * events / batch) as u64 + 60, "{all:?}");
        }
    });
}

fn memory(info: &str) -> u64 {
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}
