//! Shards that change hands: fencing, takeover beside appends, calls whose answer was lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::{Clock as _, TestClock};
use fairlane::event::{EventId, Lane, Seq};
use fairlane::store::redis::{Claim, Epoch, NodeId, Redis, Shard, Taken};
use fairlane::store::{Error, LaneStore as _, Refusal, Settlement, Status, Verdict};

use crate::in_shards::Node;
use crate::on_redis::{LEASE, open, settings};
use crate::world::{START, event, everything, lane, run};

/// A lease that is over as soon as it begins.
const NONE: Duration = Duration::ZERO;

async fn held(store: &Redis, shard: Shard, node: &str, lease: Duration) -> Epoch {
    match store.claim(shard, &NodeId::new(node), lease).await.unwrap() {
        Claim::Held(epoch) => epoch,
        other => panic!("{node} should get {shard}: {other:?}"),
    }
}

/// A second node beside the first one.
async fn second(node: &Node) -> Arc<Redis> {
    open(settings(&node.server.url(), node.store.shards()), Arc::clone(&node.clock)).await
}

async fn append_one(node: &mut Node, of: &Lane) -> (Seq, EventId) {
    let event = Arc::new(node.event(of));
    let id = event.id;
    (node.store.append(vec![event]).await.unwrap().place(0).unwrap(), id)
}

#[test]
fn who_held_a_shard_settles_nothing_any_more() {
    run(async {
        let mut node = Node::new(1).await;
        let other = second(&node).await;
        let shard = Shard(0);
        let (seq, id) = append_one(&mut node, &lane("a")).await;
        let refused = other.claim(shard, &NodeId::new("other"), LEASE).await.unwrap();
        assert!(
            matches!(&refused, Claim::HeldBy { node, left } if node.as_str() == "node" && *left <= LEASE),
            "{refused:?}"
        );
        let begun = node.settlements(&[seq], &Verdict::Begun);
        assert_eq!(other.settle(begun.clone()).await, Ok(1), "it holds nothing");

        let first = held(&node.store, shard, "node", NONE).await;
        let epoch = held(&other, shard, "other", LEASE).await;
        assert!(epoch > first);
        assert_eq!(node.store.settle(begun.clone()).await, Ok(1), "fenced");
        assert_eq!(node.store.lost().await, [(shard, first)]);
        assert_eq!(node.store.settle(begun.clone()).await, Ok(1), "and so it stays");
        assert_eq!(node.store.renew(&[(shard, first)], LEASE).await, [Ok(false)]);
        assert_eq!(node.store.take_over(shard, first).await, Ok(None));
        assert_eq!(node.store.release(shard, first).await, Ok(false));
        let story = other.find(id).await.unwrap().unwrap();
        assert_eq!((story.record.status, story.record.attempts), (Status::Queued, 0), "nothing of it was done");
        assert_eq!(node.store.lanes(None, 10).await, Ok(vec![]), "it speaks of the shards that it holds");
        assert_eq!(other.settle(begun).await, Ok(0));
        assert_eq!(other.renew(&[(shard, epoch)], LEASE).await, [Ok(true)]);
    });
}

#[test]
fn a_new_owner_finds_what_was_open_and_who_had_it() {
    run(async {
        let mut node = Node::new(1).await;
        let other = second(&node).await;
        let shard = Shard(0);
        let (open, _) = append_one(&mut node, &lane("a")).await;
        let (retrying, _) = append_one(&mut node, &lane("a")).await;
        let (fresh, _) = append_one(&mut node, &lane("b")).await;
        let first = held(&node.store, shard, "node", LEASE).await;
        let begun = node.settlements(&[open, retrying], &Verdict::Begun);
        assert_eq!(node.store.settle(begun).await, Ok(0));
        let later = Verdict::RetryAt(START.plus(LEASE));
        assert_eq!(node.store.settle(node.settlements(&[retrying], &later)).await, Ok(0));
        assert_eq!(node.store.release(shard, first).await, Ok(true));

        let epoch = held(&other, shard, "other", LEASE).await;
        let taken: Taken = other.take_over(shard, epoch).await.unwrap().unwrap();
        let before = taken.before.clone().unwrap();
        assert_eq!((before.node.as_str(), before.released), ("node", true));
        assert_eq!((taken.last, taken.open.len(), taken.open[0].seq), (fresh, 1, open));
        assert!(taken.open[0].open && taken.open[0].attempts == 1);
        let lanes: Vec<_> = taken.lanes.iter().map(|of| (of.lane.clone(), of.fresh, of.retrying)).collect();
        assert_eq!(lanes, [(lane("a"), 0, 1), (lane("b"), 1, 0)]);
        assert_eq!(other.lanes(None, 10).await.unwrap(), taken.lanes);

        // What comes afterwards, from whatever node, is seen by its owner.
        let (late, _) = append_one(&mut node, &lane("c")).await;
        other.settle(node.settlements(&[fresh], &Verdict::Delivered)).await.unwrap();
        let again = node.store.requeue(vec![fresh], node.clock.now().wall).await.unwrap().remove(0).unwrap();
        let tailed = other.tail(&[(shard, taken.last)], 10).await.remove(0).unwrap();
        let seqs: Vec<Seq> = tailed.events.iter().map(|pending| pending.seq).collect();
        assert_eq!((seqs, tailed.looked, tailed.more), (vec![late, again.seq], again.seq, false));
        let tailed = other.tail(&[(shard, taken.last)], 1).await.remove(0).unwrap();
        assert_eq!((tailed.events.len(), tailed.looked, tailed.more), (1, late, true));
        assert!(other.woken().await.contains(&shard));
    });
}

/// What one owner saw of its shards until it loses them.
async fn serve(store: &Redis, node: &str, seen: &mut BTreeSet<Seq>, rounds: usize) {
    for shard in (0..store.shards()).map(Shard) {
        let epoch = held(store, shard, node, NONE).await;
        let taken = store.take_over(shard, epoch).await.unwrap().unwrap();
        let mut there = Vec::new();
        for summary in &taken.lanes {
            let mut all = store.load(summary.lane.clone(), Seq(0), usize::MAX).await.unwrap();
            all.retain(|pending| pending.seq <= taken.last);
            assert_eq!(all.len() as u64, summary.fresh, "the sums are those of the moment of the last seq");
            there.extend(all);
        }
        let mut last = taken.last;
        for _ in 0..rounds {
            let tailed = store.tail(&[(shard, last)], 1_000).await.remove(0).unwrap();
            last = tailed.looked;
            there.extend(tailed.events);
        }
        let at = START;
        for pending in there {
            assert!(seen.insert(pending.seq), "{} was seen twice", pending.seq);
            let done = Settlement { seq: pending.seq, at, verdict: Verdict::Delivered, attempt: None };
            assert_eq!(store.settle(vec![done]).await, Ok(0), "{}", pending.seq);
        }
    }
}

#[test]
fn every_event_is_seen_once_however_often_shards_change_hands() {
    run(async {
        let node = Node::new(3).await;
        let url = node.server.url();
        // Node::new holds them for longer than this test runs: the same name gets them at once.
        let (one, two) = (second(&node).await, second(&node).await);
        for shard in (0..3).map(Shard) {
            held(&one, shard, "node", NONE).await;
        }
        let hammer = async |from: u64| {
            let store = open(settings(&url, 3), Arc::new(TestClock::at(START))).await;
            let mut stored = Vec::new();
            for number in from..from + 300 {
                let event = event(number, &lane(&format!("store-{}", number % 11)), START);
                stored.push(store.append(vec![Arc::new(event)]).await.unwrap().place(0).unwrap());
            }
            stored
        };
        let mut seen = BTreeSet::new();
        let owners = async {
            for turn in 0..12 {
                let (store, name) = if turn % 2 == 0 { (&one, "one") } else { (&two, "two") };
                serve(store, name, &mut seen, 3).await;
            }
        };
        let (a, b, ()) = tokio::join!(hammer(1), hammer(100_001), owners);
        serve(&one, "one", &mut seen, 1).await;
        let stored: BTreeSet<Seq> = a.into_iter().chain(b).collect();
        assert_eq!(stored.len(), 600);
        assert_eq!(seen, stored);
    });
}

#[test]
fn appends_over_connections_that_are_cut_are_stored_once() {
    run(async {
        let mut node = Node::new(3).await;
        let mut ids = BTreeSet::new();
        for round in 0..30 {
            let batch: Vec<_> = (0..40).map(|i| Arc::new(node.event(&lane(&format!("store-{}", i % 5))))).collect();
            ids.extend(batch.iter().map(|event| event.id));
            let (appended, _cut) = tokio::join!(node.store.append(batch), async {
                tokio::task::yield_now().await;
                if round % 2 == 0 {
                    node.server.cut();
                }
            });
            let appended = appended.unwrap();
            assert!((0..40).all(|number| appended.place(number).is_ok()), "{appended:?}");
        }
        let mut found = Vec::new();
        let mut query = everything(1_000);
        loop {
            let page = node.store.list(query.clone()).await.unwrap();
            found.extend(page.records.iter().map(|record| record.id));
            let Some(next) = page.next else { break };
            query.behind = Some(next);
        }
        assert_eq!(found.len(), 1_200, "no event twice");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), ids);
    });
}

#[test]
fn what_was_not_answered_is_done_once_when_it_is_repeated() {
    run(async {
        let mut node = Node::new(1).await;
        let mut impatient = settings(&node.server.url(), 1);
        impatient.timeout = Duration::from_millis(200);
        let store = open(impatient, Arc::clone(&node.clock)).await;
        let shard = Shard(0);
        held(&store, shard, "node", LEASE).await;
        let batch = vec![Arc::new(node.event(&lane("a")))];

        node.server.pause();
        assert!(matches!(store.append(batch.clone()).await, Err(Error::Unavailable(_))));
        node.server.resume();
        let appended = store.append(batch.clone()).await.unwrap();
        let seq = appended.place(0).unwrap();
        assert_eq!(store.append(batch).await, Ok(appended), "a repetition has the same answer");
        assert_eq!(store.list(everything(10)).await.unwrap().records.len(), 1);

        let begun = node.settlements(&[seq], &Verdict::Begun);
        node.server.pause();
        assert!(matches!(store.settle(begun.clone()).await, Err(Error::Unavailable(_))));
        node.server.resume();
        assert_eq!(store.settle(begun.clone()).await, Ok(0));
        let open = store.open(Seq(0), 10).await.unwrap();
        assert_eq!((open.len(), open[0].attempts), (1, 1), "one attempt was begun, and one is counted");
        assert_eq!(store.settle(begun).await, Ok(0));
        assert_eq!(store.open(Seq(0), 10).await.unwrap()[0].attempts, 2, "another one is another one");
    });
}

#[test]
fn a_server_that_lost_everything_is_begun_with_anew() {
    run(async {
        let mut node = Node::new(2).await;
        let (seq, _) = append_one(&mut node, &lane("a")).await;
        let _flushed: () = node.server.ask(&["FLUSHALL"]);
        let _flushed: () = node.server.ask(&["SCRIPT", "FLUSH"]);
        assert_eq!(node.store.settle(node.settlements(&[seq], &Verdict::Begun)).await, Ok(1));
        let lost = node.store.lost().await;
        assert_eq!(lost.len(), 1);
        let shard = lost[0].0;
        held(&node.store, shard, "node", LEASE).await;
        let (seq, id) = append_one(&mut node, &lane("a")).await;
        assert_eq!(Shard::of(seq), (shard, 1), "numbers begin anew");
        assert_eq!(node.store.settle(node.settlements(&[seq], &Verdict::Begun)).await, Ok(0));
        assert_eq!(node.store.find(id).await.unwrap().unwrap().record.status, Status::InFlight);
    });
}

/// From now on the server serves the keys of these shards alone.
fn serve_only(node: &Node, patterns: &[&str]) {
    let words = [&["ACL", "SETUSER", "default", "resetkeys"][..], patterns].concat();
    let _set: () = node.server.ask(&words);
}

#[test]
fn shards_fail_one_by_one() {
    run(async {
        let mut node = Node::new(2).await;
        let lanes: Vec<Lane> = (0..8).map(|i| lane(&format!("store-{i}"))).collect();
        let shard = |node: &Node, i: usize| node.store.shard_of(&lanes[i].group);
        let batch: Vec<_> = lanes.iter().map(|of| Arc::new(node.event(of))).collect();
        serve_only(&node, &["~{test:0}:*"]);
        let appended = node.store.append(batch.clone()).await.unwrap();
        for number in 0..8 {
            let there = shard(&node, number) == Shard(0);
            assert_eq!(appended.place(number).is_ok(), there, "{number}: {appended:?}");
            assert!(there || appended.place(number) == Err(Refusal::Unavailable));
        }
        serve_only(&node, &["~*"]);
        let appended = node.store.append(batch).await.unwrap();
        let seqs: Vec<Seq> = (0..8).map(|number| appended.place(number).unwrap()).collect();
        assert_eq!(node.store.list(everything(100)).await.unwrap().records.len(), 8, "stored once");

        let begun = node.settlements(&seqs, &Verdict::Begun);
        serve_only(&node, &["~{test:1}:*"]);
        assert!(matches!(node.store.settle(begun.clone()).await, Err(Error::Unavailable(_))));
        assert!(matches!(node.store.settle(begun.clone()).await, Err(Error::Unavailable(_))));
        serve_only(&node, &["~*"]);
        assert_eq!(node.store.settle(begun).await, Ok(0));
        let open = node.store.open(Seq(0), 100).await.unwrap();
        let attempts: Vec<u32> = open.iter().map(|pending| pending.attempts).collect();
        assert_eq!(attempts, [1; 8], "what one shard had done before the other failed is not done again");

        serve_only(&node, &["~nothing"]);
        let late = vec![Arc::new(node.event(&lanes[0]))];
        assert!(matches!(node.store.append(late).await, Err(Error::Unavailable(_))), "none of it was stored");
    });
}
