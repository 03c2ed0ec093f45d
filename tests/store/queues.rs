//! What waits: a lane's fresh events, retries by due time, open leases, and the lanes themselves.

use std::sync::Arc;
use std::time::Duration;

use fairlane::event::{Event, Group, Lane, Seq};
use fairlane::store::Verdict;

use crate::snapshot::{Snapshot, all_due, all_fresh, all_lanes, all_open};
use crate::world::{Subject, World, inner_lane, lane, seqs};

pub(crate) async fn load_pages_through_a_lane_in_order(mut world: World<impl Subject>) {
    let mut of_a = Vec::new();
    for _ in 0..25 {
        of_a.extend(world.append(&lane("a"), 3).await);
        world.append(&lane("b"), 2).await;
    }
    for limit in [1, 7, 75, 1_000] {
        assert_eq!(seqs(&all_fresh(world.store(), &lane("a"), limit).await), of_a, "{limit} a page");
    }
    let store = world.store();
    assert_eq!(seqs(&store.load(lane("a"), of_a[10], 4).await.unwrap()), of_a[11..15], "after, not from");
    let between = Seq(of_a[2].0 + 1);
    assert_eq!(seqs(&store.load(lane("a"), between, 1).await.unwrap()), [of_a[3]], "after another lane's seq");
    assert_eq!(store.load(lane("a"), of_a[74], 10).await, Ok(vec![]));
    assert_eq!(store.load(lane("a"), Seq(u64::MAX), 10).await, Ok(vec![]));
    assert_eq!(store.load(lane("nobody"), Seq(0), 10).await, Ok(vec![]));
    assert_eq!(store.load(lane("a"), Seq(0), 0).await, Ok(vec![]), "at most none");
}

pub(crate) async fn load_gives_fresh_events_alone(mut world: World<impl Subject>) {
    let all = world.append(&lane("a"), 6).await;
    world.settle(all[0], Verdict::Begun).await;
    world.settle(all[1], Verdict::RetryAt(world.now())).await;
    world.settle(all[2], Verdict::Delivered).await;
    world.settle(all[4], Verdict::Begun).await;
    world.settle(all[4], Verdict::Released).await;
    assert_eq!(world.fresh(&lane("a")).await, [all[3], all[4], all[5]]);
    let page = world.store().load(lane("a"), Seq(0), 2).await.unwrap();
    assert_eq!(seqs(&page), [all[3], all[4]], "what is not fresh takes no place of a page");
    world.crash().await;
    assert_eq!(world.fresh(&lane("a")).await, [all[3], all[4], all[5]]);
}

pub(crate) async fn due_is_ordered_over_all_lanes_by_time_then_seq(mut world: World<impl Subject>) {
    let mut wanted = Vec::new();
    for i in 0..40_u64 {
        let seq = world.append_one(&lane(&format!("store-{}", i % 5))).await;
        world.settle(seq, Verdict::Begun).await;
        // Four different times, so that seqs decide among ten; in no order of arrival.
        let due = world.now().plus(Duration::from_secs(i * 7 % 4));
        world.settle(seq, Verdict::RetryAt(due)).await;
        wanted.push((due, seq));
    }
    wanted.sort_unstable();
    for limit in [1, 3, 10, 1_000] {
        let found = all_due(world.store(), limit).await;
        let found: Vec<_> = found.into_iter().map(|pending| (pending.due.unwrap(), pending.seq)).collect();
        assert_eq!(found, wanted, "{limit} a page");
    }
    // A new due time moves an event; an end takes it away.
    let (_, first) = wanted.remove(0);
    let later = world.now().plus(Duration::from_secs(3_600));
    world.settle(first, Verdict::Begun).await;
    world.settle(first, Verdict::RetryAt(later)).await;
    wanted.push((later, first));
    world.settle(wanted.remove(5).1, Verdict::Delivered).await;
    world.crash().await;
    assert_eq!(world.due().await, wanted.iter().map(|(_, seq)| *seq).collect::<Vec<_>>());
    let after = world.store().due(Some((wanted[3].0, Seq(0))), 1).await.unwrap();
    let next = wanted.iter().find(|(due, _)| *due == wanted[3].0).unwrap();
    assert_eq!(seqs(&after), [next.1], "a cursor need not name an event");
}

pub(crate) async fn open_pages_in_the_order_of_seqs(mut world: World<impl Subject>) {
    let mut open = Vec::new();
    for i in 0..30 {
        let seq = world.append_one(&lane(&format!("store-{}", i % 4))).await;
        if i % 3 != 0 {
            open.push(seq);
        }
    }
    for seq in open.iter().rev() {
        world.settle(*seq, Verdict::Begun).await;
    }
    world.settle(open.remove(7), Verdict::Delivered).await;
    world.settle(open.remove(3), Verdict::Released).await;
    for limit in [1, 7, 1_000] {
        assert_eq!(seqs(&all_open(world.store(), limit).await), open, "{limit} a page");
    }
    assert_eq!(world.store().open(*open.last().unwrap(), 10).await, Ok(vec![]));
}

pub(crate) async fn lanes_are_paged_in_the_order_of_their_names(mut world: World<impl Subject>) {
    let mut names = vec!["b", "a", "aa", "a-", "a.b", "Z", "~", "10", "9", "a:b", "\u{e9}", "_", "@"];
    for name in &names {
        world.append(&lane(name), 2).await;
    }
    let mut wanted: Vec<Lane> = names.drain(..).map(lane).collect();
    wanted.sort();
    for limit in [1, 4, 13, 100] {
        let found: Vec<Lane> = all_lanes(world.store(), limit).await.into_iter().map(|summary| summary.lane).collect();
        assert_eq!(found, wanted, "{limit} a page");
    }
    let after = world.store().lanes(Some(lane("a.")), 1).await.unwrap();
    assert_eq!(after[0].lane, lane("a.b"), "a cursor need not name a lane that is there");
}

pub(crate) async fn a_thousand_lanes_are_all_there(mut world: World<impl Subject>) {
    let lanes: Vec<Lane> = (0..1_000).map(|i| lane(&format!("store-{i}.example"))).collect();
    for chunk in lanes.chunks(250) {
        let batch = chunk.iter().map(|lane| Arc::new(world.event(lane))).collect();
        world.append_batch(batch).await;
    }
    for lane in &lanes {
        assert_eq!(world.fresh(lane).await.len(), 1, "{lane:?}");
    }
    let before = Snapshot::take(world.store(), 333).await;
    assert_eq!((before.lanes.len(), before.usage.lanes), (1_000, 1_000));
    world.crash().await;
    Snapshot::take(world.store(), 1_000).await.assert_same(&before, "after a crash");
}

pub(crate) async fn groups_in_odd_written_forms_stay_apart(mut world: World<impl Subject>) {
    let mut groups: Vec<Group> = [
        "~", "~~", "a~", "~a", "a~~b", "a~b", "a", "b", "%00", "a%00", "a%00b", "%7E", "%FF", "%2F..%2F", ":", "-", ".",
    ]
    .iter()
    .map(|written| Group::from_written(written).unwrap())
    .collect();
    groups.extend([Group::fallback(), Group::unverified(), Group::reserved("overflow-07"), Group::reserved("a b")]);
    let longest = "\u{1}".repeat(fairlane::event::KEY_BYTES_MAX);
    groups.extend([
        Group::of(&[&longest]),
        Group::of(&[&longest[1..]]),
        Group::of(&["gh", "77"]),
        Group::of(&["gh77"]),
    ]);
    // Every group alone, and as a part of some others, so that no pair can be written like another.
    let mut lanes: Vec<Lane> = groups.iter().map(|group| Lane { group: group.clone(), inner: None }).collect();
    for (i, group) in groups.iter().enumerate() {
        for inner in groups.iter().skip(i % 3).step_by(3) {
            lanes.push(Lane { group: group.clone(), inner: Some(inner.clone()) });
        }
    }
    let mut wanted = Vec::new();
    for lane in &lanes {
        let event = Event { order: lane.inner.clone(), ..world.event(lane) };
        wanted.push((lane, event.id));
        world.append_batch(vec![Arc::new(event)]).await;
    }
    world.crash().await;
    for (lane, id) in wanted {
        let found = world.store().load(lane.clone(), Seq(0), 10).await.unwrap();
        assert_eq!(found.len(), 1, "{lane:?}");
        assert_eq!((found[0].id, &found[0].lane, &found[0].order), (id, lane, &lane.inner));
    }
    lanes.sort();
    let found: Vec<Lane> = all_lanes(world.store(), 10).await.into_iter().map(|summary| summary.lane).collect();
    assert_eq!(found, lanes);
    Snapshot::take(world.store(), 50).await;
}

pub(crate) async fn parts_of_a_group_are_lanes_of_their_own(mut world: World<impl Subject>) {
    let (whole, orders, products) = (lane("a"), inner_lane("a", "orders"), inner_lane("a", "products"));
    let first = world.append(&orders, 2).await;
    let flood = world.append(&products, 50).await;
    let second = world.append(&orders, 2).await;
    let rest = world.append(&whole, 1).await;
    assert_eq!(world.fresh(&orders).await, [first, second].concat());
    assert_eq!(world.fresh(&products).await, flood);
    assert_eq!(world.fresh(&whole).await, rest, "the group's own lane is none of its parts");
    let lanes: Vec<Lane> = all_lanes(world.store(), 10).await.into_iter().map(|summary| summary.lane).collect();
    assert_eq!(lanes, [whole, orders, products]);
}

pub(crate) async fn a_lane_is_gone_with_its_last_pending_event_and_comes_back(mut world: World<impl Subject>) {
    let names = |lanes: Vec<fairlane::store::LaneSummary>| lanes.into_iter().map(|of| of.lane).collect::<Vec<_>>();
    let (a, b) = (world.append_one(&lane("a")).await, world.append_one(&lane("b")).await);
    world.settle(a, Verdict::Begun).await;
    let open = world.store().lanes(None, 10).await.unwrap();
    assert_eq!((open[0].fresh, open[0].retrying), (0, 0), "an open event is pending, neither fresh nor retrying");
    assert!(open[0].bytes > 0, "and its bytes count");
    world.settle(a, Verdict::Delivered).await;
    assert_eq!(names(all_lanes(world.store(), 10).await), [lane("b")]);
    assert_eq!(world.store().usage().lanes, 1);
    world.crash().await;
    assert_eq!(names(all_lanes(world.store(), 10).await), [lane("b")]);
    world.settle(a, Verdict::Requeued).await;
    world.settle(b, Verdict::Discarded).await;
    assert_eq!(names(all_lanes(world.store(), 10).await), [lane("a")]);
}

pub(crate) async fn summaries_add_up(mut world: World<impl Subject>) {
    let of_a = world.append(&lane("a"), 5).await;
    world.append(&lane("b"), 1).await;
    let full = world.store().lanes(None, 1).await.unwrap().remove(0);
    assert_eq!((full.fresh, full.retrying), (5, 0));
    assert!(full.bytes >= 5 * u64::from(world.story(of_a[0]).await.record.body_bytes));
    world.settle(of_a[0], Verdict::Begun).await;
    world.settle(of_a[1], Verdict::RetryAt(world.now())).await;
    world.settle(of_a[2], Verdict::Dead("x".into())).await;
    let rest = world.store().lanes(None, 1).await.unwrap().remove(0);
    assert_eq!((rest.fresh, rest.retrying), (2, 1));
    assert!(rest.bytes < full.bytes, "an ended event's bytes are no more its lane's");
    world.crash().await;
    assert_eq!(world.store().lanes(None, 1).await.unwrap().remove(0), rest);
    Snapshot::take(world.store(), 2).await;
}

pub(crate) async fn a_lane_says_when_its_oldest_pending_event_was_received(mut world: World<impl Subject>) {
    let mut seqs = Vec::new();
    let mut received = Vec::new();
    for _ in 0..4 {
        world.clock.advance(Duration::from_secs(60));
        received.push(world.now());
        seqs.extend(world.append(&lane("a"), 1).await);
        world.append(&lane("b"), 1).await;
    }
    let oldest = async |world: &World<_>| world.store().lanes(None, 1).await.unwrap()[0].oldest;
    assert_eq!(oldest(&world).await, received[0]);
    world.settle(seqs[1], Verdict::Delivered).await;
    assert_eq!(oldest(&world).await, received[0], "a younger one has ended");
    world.settle(seqs[0], Verdict::RetryAt(world.now().plus(Duration::from_secs(900)))).await;
    assert_eq!(oldest(&world).await, received[0], "one that retries still waits");
    world.crash().await;
    assert_eq!(oldest(&world).await, received[0], "after a crash");
    world.settle(seqs[0], Verdict::Dead("x".into())).await;
    assert_eq!(oldest(&world).await, received[2]);
    world.reopen().await;
    assert_eq!(oldest(&world).await, received[2], "after a clean close");
    let at = world.tick();
    world.settle(seqs[1], Verdict::Requeued).await;
    assert_eq!(oldest(&world).await, received[2], "a replay waits since it was made pending again");
    world.crash().await;
    world.settle(seqs[2], Verdict::Delivered).await;
    world.settle(seqs[3], Verdict::Delivered).await;
    assert_eq!(oldest(&world).await, at, "also in the next process");
    Snapshot::take(world.store(), 2).await;
}
