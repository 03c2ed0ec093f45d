//! A group that moves to another shard: nothing lost, nothing twice, in its order; whoever comes with an event, and wherever it is cut short.

use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::Clock as _;
use fairlane::event::{Event, EventId, Lane, Seq};
use fairlane::store::redis::{Claim, Epoch, Leaving, Move, NodeId, Places, Redis, Shard, Taken};
use fairlane::store::{Error, LaneStore as _, Refusal, Status, Verdict};

use crate::in_shards::Node;
use crate::on_redis::{LEASE, open, settings};
use crate::world::{everything, inner_lane, lane, run};

/// More than one script moves.
const MANY: usize = 450;

async fn claimed(store: &Redis, shard: Shard, node: &str, lease: Duration) -> Epoch {
    match store.claim(shard, &NodeId::new(node), lease).await.unwrap() {
        Claim::Held(epoch) => epoch,
        other => panic!("{node} should get {shard}: {other:?}"),
    }
}

/// Gives the group's shard back and takes it again, with the group on its way to the next one.
async fn begun(node: &Node, of: &Lane) -> ((Shard, Epoch), Leaving, Taken) {
    let home = node.store.shard_of(&of.group);
    let leaving = Leaving { group: of.group.clone(), to: Shard((home.0 + 1) % node.store.shards()) };
    let before = claimed(&node.store, home, "node", LEASE).await;
    assert!(node.store.release(home, before).await.unwrap());
    let held = (home, claimed(&node.store, home, "node", LEASE).await);
    assert_eq!(node.store.begin_move(held, &leaving.group, leaving.to).await, Ok(Move::Begun));
    let taken = node.store.take_over(held.0, held.1).await.unwrap().unwrap();
    (held, leaving, taken)
}

async fn appended(store: &Redis, events: &[Arc<Event>]) -> Vec<Seq> {
    let appended = store.append(events.to_vec()).await.unwrap();
    (0..events.len()).map(|number| appended.place(number).unwrap()).collect()
}

/// The ids of a lane's fresh events in a shard, in their order.
async fn waiting(store: &Redis, of: &Lane, shard: Shard) -> Vec<EventId> {
    let loaded = store.load(of.clone(), Seq::before(shard.0), 1_000).await.unwrap();
    assert!(loaded.iter().all(|pending| Shard::of(pending.seq).0 == shard));
    loaded.iter().map(|pending| pending.id).collect()
}

fn ids(events: &[Arc<Event>]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}

/// From now on the server serves the keys of this pattern alone.
fn serve_only(node: &Node, pattern: &str) {
    let _set: () = node.server.ask(&["ACL", "SETUSER", "default", "resetkeys", pattern]);
}

/// A lane's group is this far on its way to that shard.
fn mark(node: &Node, of: &Lane, (stage, to): (u8, Shard)) {
    let key = format!("{{test:{}}}:w", node.store.home_of(&of.group));
    let _set: i64 = node.server.ask(&["HSET", &key, of.group.as_str(), &format!("{stage} {to}")]);
}

#[test]
fn what_waits_moves_in_its_order_and_what_comes_meanwhile_stays_behind_it() {
    run(async {
        let mut node = Node::new(3).await;
        let (a, part, other) = (lane("a"), inner_lane("a", "carts"), lane("b"));
        let of = |number: usize| if number.is_multiple_of(3) { &part } else { &a };
        let events: Vec<Arc<Event>> = (0..MANY).map(|number| Arc::new(node.event(of(number)))).collect();
        let seqs = appended(&node.store, &events).await;
        let theirs = Arc::new(node.event(&other));
        node.store.append(vec![Arc::clone(&theirs)]).await.unwrap();
        // One has failed and would be retried later.
        node.store.settle(node.settlements(&seqs[1..2], &Verdict::Begun)).await.unwrap();
        let later = Verdict::RetryAt(node.clock.now().wall.plus(Duration::from_secs(600)));
        node.store.settle(node.settlements(&seqs[1..2], &later)).await.unwrap();

        let (held, leaving, taken) = begun(&node, &a).await;
        assert_eq!(taken.leaving, std::slice::from_ref(&leaving));
        assert!(taken.lanes.iter().all(|summary| summary.lane.group != a.group), "nobody delivers it from here");
        let stranger = open(settings(&node.server.url(), 3), Arc::clone(&node.clock)).await;
        let late: Vec<Arc<Event>> = (0..5).map(|_| Arc::new(node.event(&a))).collect();
        let places = appended(&stranger, &late).await;
        assert!(places.iter().all(|seq| Shard::of(*seq).0 == held.0), "it is still stored here, behind the others");
        let tailed = node.store.tail(&[(held.0, taken.last)], 10).await.remove(0).unwrap();
        assert_eq!((tailed.events.len(), tailed.looked), (0, *places.last().unwrap()));
        assert_eq!(node.store.due(None, 10).await.unwrap(), []);
        assert_eq!(waiting(&node.store, &a, held.0).await, []);

        assert_eq!(node.store.move_on(held, &leaving).await, Ok(true));
        let expected = |inner: bool| -> Vec<EventId> {
            let all = events.iter().chain(&late);
            all.filter(|event| event.lane.inner.is_some() == inner).map(|event| event.id).collect()
        };
        assert_eq!(waiting(&node.store, &a, leaving.to).await, expected(false));
        assert_eq!(waiting(&node.store, &part, leaving.to).await, expected(true));
        let story = node.store.find(events[1].id).await.unwrap().unwrap();
        assert_eq!((story.record.status, story.record.attempts), (Status::Queued, 1), "its attempt is remembered");
        node.store.look_after().await.unwrap();
        assert_eq!(node.store.usage().pending, (MANY + late.len() + 1) as u64);
        let listed = node.store.list(everything(1_000)).await.unwrap().records;
        assert_eq!(listed.len(), MANY + late.len() + 1, "each is there once");

        // Whoever knows of it or not.
        let next = vec![Arc::new(node.event(&a))];
        for store in [&*stranger, &node.store] {
            assert_eq!(Shard::of(appended(store, &next).await[0]).0, leaving.to);
            assert_eq!(store.shard_of(&a.group), leaving.to);
        }
        let again = appended(&stranger, &late[..1]).await;
        assert_eq!(Shard::of(again[0]).0, leaving.to, "an append that is repeated finds what has moved");
        assert_eq!(waiting(&node.store, &a, leaving.to).await.len(), expected(false).len() + 1);
        assert_eq!(node.store.begin_move(held, &a.group, Shard(9)).await, Ok(Move::Gone(leaving.to)));
    });
}

#[test]
fn a_group_comes_back_and_nodes_that_know_nothing_of_it_find_it() {
    run(async {
        let mut node = Node::new(3).await;
        let a = lane("a");
        let first = vec![Arc::new(node.event(&a))];
        appended(&node.store, &first).await;
        let (held, leaving, _) = begun(&node, &a).await;
        assert_eq!(node.store.move_on(held, &leaving).await, Ok(true));
        let stranger = open(settings(&node.server.url(), 3), Arc::clone(&node.clock)).await;
        stranger.set_places(Places::from([(a.group.clone(), leaving.to)]));

        let (held, back, _) = begun(&node, &a).await;
        assert_eq!(held.0, leaving.to);
        assert_eq!(node.store.move_on(held, &back).await, Ok(true));
        let (held, home, _) = begun(&node, &a).await;
        assert_eq!(node.store.move_on(held, &home).await, Ok(true));
        assert_eq!(home.to, node.store.home_of(&a.group));
        let second = vec![Arc::new(node.event(&a))];
        assert_eq!(Shard::of(appended(&stranger, &second).await[0]).0, home.to);
        assert_eq!(waiting(&node.store, &a, home.to).await, [first[0].id, second[0].id]);
    });
}

#[test]
fn a_move_that_is_cut_short_goes_on_and_one_that_is_fenced_does_not() {
    run(async {
        let mut node = Node::new(2).await;
        let a = lane("a");
        let events: Vec<Arc<Event>> = (0..MANY).map(|_| Arc::new(node.event(&a))).collect();
        appended(&node.store, &events).await;
        let (held, leaving, _) = begun(&node, &a).await;
        // The shard where it goes is away: nothing is struck out here.
        serve_only(&node, &format!("~{{test:{}}}:*", held.0));
        assert!(matches!(node.store.move_on(held, &leaving).await, Err(Error::Unavailable(_))));
        serve_only(&node, "~*");
        // Some had arrived and were not struck out.
        node.store.set_places(Places::from([(a.group.clone(), leaving.to)]));
        appended(&node.store, &events[..7]).await;
        node.store.set_places(Places::new());

        // Its next owner finds it on its way.
        let stranger = open(settings(&node.server.url(), 2), Arc::clone(&node.clock)).await;
        claimed(&node.store, held.0, "node", Duration::ZERO).await;
        let theirs = (held.0, claimed(&stranger, held.0, "stranger", LEASE).await);
        assert_eq!(node.store.move_on(held, &leaving).await, Ok(false), "it is another owner's");
        let taken = stranger.take_over(theirs.0, theirs.1).await.unwrap().unwrap();
        assert_eq!(taken.leaving, std::slice::from_ref(&leaving));
        assert_eq!(stranger.move_on(theirs, &leaving).await, Ok(true));
        assert_eq!(waiting(&node.store, &a, leaving.to).await, ids(&events));
    });
}

#[test]
fn nothing_begins_to_move_while_something_of_the_group_may_be_in_flight() {
    run(async {
        let mut node = Node::new(2).await;
        let a = lane("a");
        let event = Arc::new(node.event(&a));
        let seqs = appended(&node.store, &[event]).await;
        let home = node.store.shard_of(&a.group);
        let lost = claimed(&node.store, home, "node", Duration::ZERO).await;
        node.store.settle(node.settlements(&seqs, &Verdict::Begun)).await.unwrap();
        let to = Shard(1 - home.0);
        let held = (home, claimed(&node.store, home, "node", LEASE).await);
        assert!(held.1 > lost);
        assert_eq!(node.store.begin_move(held, &a.group, to).await, Ok(Move::NotNow), "the owner before was lost");
        node.store.release(home, held.1).await.unwrap();
        let held = (home, claimed(&node.store, home, "node", LEASE).await);
        assert_eq!(node.store.begin_move(held, &a.group, to).await, Ok(Move::NotNow), "it is open");
        node.store.settle(node.settlements(&seqs, &Verdict::Interrupted)).await.unwrap();
        assert_eq!(node.store.begin_move(held, &a.group, to).await, Ok(Move::Begun));
        assert_eq!(node.store.begin_move((home, lost), &a.group, to).await, Ok(Move::Lost));
    });
}

#[test]
fn what_comes_while_the_last_of_a_group_moves_waits_a_little_and_is_refused_then() {
    run(async {
        let mut node = Node::new(2).await;
        let (a, b) = (lane("a"), lane("b"));
        let home = node.store.shard_of(&a.group);
        let to = Shard(1 - home.0);
        mark(&node, &a, (2, to));
        let batch = vec![Arc::new(node.event(&a)), Arc::new(node.event(&b)), Arc::new(node.event(&a))];
        let appended = node.store.append(batch.clone()).await.unwrap();
        let fates: Vec<_> = (0..3).map(|number| appended.place(number).map(|_| ())).collect();
        assert_eq!(fates, [Err(Refusal::Moving), Ok(()), Err(Refusal::Moving)]);
        mark(&node, &a, (3, to));
        let appended = node.store.append(batch.clone()).await.unwrap();
        assert!(appended.place(0).unwrap() < appended.place(2).unwrap());
        assert_eq!(waiting(&node.store, &a, to).await, [batch[0].id, batch[2].id]);
    });
}

#[test]
fn an_event_that_ended_before_its_group_moved_is_replayed_where_the_group_is() {
    run(async {
        let mut node = Node::new(2).await;
        let a = lane("a");
        let event = Arc::new(node.event(&a));
        let seqs = appended(&node.store, &[Arc::clone(&event)]).await;
        node.store.settle(node.settlements(&seqs, &Verdict::Begun)).await.unwrap();
        node.store.settle(node.settlements(&seqs, &Verdict::Dead("it failed".into()))).await.unwrap();
        let (held, leaving, _) = begun(&node, &a).await;
        assert_eq!(node.store.move_on(held, &leaving).await, Ok(true));
        let story = node.store.find(event.id).await.unwrap().unwrap();
        assert_eq!((story.record.seq, story.record.status), (seqs[0], Status::Dead), "it stays where it ended");
        for _ in 0..2 {
            let now = node.clock.now().wall;
            let again = node.store.requeue(vec![seqs[0]], now).await.unwrap().remove(0);
            let Some(again) = again else { break };
            assert_eq!((Shard::of(again.seq).0, again.replays, again.attempts), (leaving.to, 1, 0));
        }
        assert_eq!(waiting(&node.store, &a, leaving.to).await, [event.id]);
        let listed = node.store.list(everything(10)).await.unwrap().records;
        assert_eq!((listed.len(), listed[0].status), (1, Status::Queued), "{listed:?}");
        let read = node.store.read(vec![listed[0].seq]).await.unwrap().remove(0).unwrap();
        assert_eq!(read.body, event.body);
    });
}
