//! What survives: a clean close, a crash, many of both; and what ends with retention.

use std::sync::Arc;
use std::time::Duration;

use fairlane::event::{Event, Group, Seq};
use fairlane::store::{Error, Query, Refusal, Settlement, Status, Verdict};

use crate::snapshot::Snapshot;
use crate::world::{RETENTION, Subject, World, everything, inner_lane, lane, note};

/// A life with a bit of everything, over several processes.
async fn busy_life(world: &mut World<impl Subject>) {
    let lanes = [lane("a"), inner_lane("a", "orders"), lane("b"), lane("c.example")];
    for round in 0..12_usize {
        let mut batch: Vec<Event> = (0..9).map(|i| world.event(&lanes[(i + round) % lanes.len()])).collect();
        batch[0].order = Some(Group::of(&["order-17"]));
        batch[1].headers.append("x-twice", http::HeaderValue::from_static("1"));
        batch[1].headers.append("x-twice", http::HeaderValue::from_static("2"));
        let seqs = world.append_batch(batch.into_iter().map(Arc::new).collect()).await;
        for seq in &seqs[1..] {
            world.settle(*seq, Verdict::Begun).await;
        }
        let at = world.tick();
        let verdicts = [
            Verdict::Delivered,
            Verdict::RetryAt(at.plus(Duration::from_secs(round as u64 * 13 % 5))),
            Verdict::Dead("gone".into()),
            Verdict::Discarded,
            Verdict::Interrupted,
            Verdict::Released,
        ];
        for (seq, verdict) in seqs[2..].iter().zip(verdicts) {
            let attempt = (verdict != Verdict::Released).then(|| note(1, at));
            let settlement = Settlement { attempt, ..world.settlement(*seq, verdict) };
            assert_eq!(world.store().settle(vec![settlement]).await, Ok(0));
        }
        match round % 4 {
            1 => world.settle(seqs[2], Verdict::Requeued).await,
            2 => world.reopen().await,
            3 => world.crash().await,
            _ => {}
        }
    }
}

pub(crate) async fn an_empty_store_reopens_empty(mut world: World<impl Subject>) {
    for _ in 0..2 {
        let snapshot = Snapshot::take(world.store(), 10).await;
        assert!(snapshot.records.is_empty() && snapshot.lanes.is_empty());
        world.reopen().await;
        world.crash().await;
    }
    assert_eq!(world.append_one(&lane("a")).await, Seq(1));
}

pub(crate) async fn reopening_after_a_clean_close_gives_the_same_answers(mut world: World<impl Subject>) {
    busy_life(&mut world).await;
    let before = Snapshot::take(world.store(), 1_000).await;
    for limit in [1_000, 3] {
        world.reopen().await;
        Snapshot::take(world.store(), limit).await.assert_same(&before, "after a clean close");
    }
}

pub(crate) async fn reopening_after_a_crash_gives_the_same_answers(mut world: World<impl Subject>) {
    busy_life(&mut world).await;
    let before = Snapshot::take(world.store(), 1_000).await;
    for limit in [1_000, 3] {
        world.crash().await;
        Snapshot::take(world.store(), limit).await.assert_same(&before, "after a crash");
    }
    world.reopen().await;
    Snapshot::take(world.store(), 7).await.assert_same(&before, "after crashes and a clean close");
}

pub(crate) async fn numbering_goes_on_after_reopening(mut world: World<impl Subject>) {
    assert_eq!(world.append(&lane("a"), 3).await[0], Seq(1));
    world.reopen().await;
    assert_eq!(world.append(&lane("a"), 2).await[0], Seq(4));
    world.crash().await;
    assert_eq!(world.append(&lane("b"), 1).await[0], Seq(6));
    // Also when the newest events have ended, or have gone on under another seq.
    for seq in 1..=6 {
        world.settle(Seq(seq), Verdict::Delivered).await;
    }
    world.settle(Seq(6), Verdict::Requeued).await;
    world.settle(Seq(7), Verdict::Discarded).await;
    world.crash().await;
    assert_eq!(world.append(&lane("a"), 1).await, [Seq(8)]);
    world.reopen().await;
    assert_eq!(world.store().append(vec![]).await, Ok(Seq(9).into()));
}

/// Begins something and gives it up after at most `polls` steps, as a process that dies does.
async fn begin<T>(mut call: impl Future<Output = T> + Unpin, polls: usize) {
    for _ in 0..polls {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if std::pin::Pin::new(&mut call).poll(&mut context).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn a_batch_under_way_in_a_crash_is_there_whole_or_not_at_all(mut world: World<impl Subject>) {
    let (mut appended, mut begun) = (0, 0);
    for round in 0..12 {
        let polls = 1 << round;
        let batch = (0..50).map(|_| Arc::new(world.event(&lane("a")))).collect();
        begin(world.store().append(batch), polls).await;
        world.crash().await;
        let after = Snapshot::take(world.store(), 1_000).await;
        assert!([0, 50].contains(&(after.records.len() - appended)), "{} after {appended}", after.records.len());
        appended = after.records.len();

        let batch = after.fresh.iter().take(50).map(|fresh| world.settlement(fresh.seq, Verdict::Begun)).collect();
        begin(world.store().settle(batch), polls).await;
        world.crash().await;
        let after = Snapshot::take(world.store(), 1_000).await;
        assert_eq!(after.records.len(), appended, "a settlement makes no event");
        assert!([0, 50].contains(&(after.open.len() - begun)), "{} after {begun}", after.open.len());
        begun = after.open.len();
        assert_eq!(world.store().append(vec![]).await, Ok(Seq(appended as u64 + 1).into()), "no gap is left");
    }
}

pub(crate) async fn what_was_open_in_a_crash_is_open_after_it(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 5).await;
    let at = world.tick();
    world.settle(seqs[1], Verdict::Begun).await;
    world.settle(seqs[3], Verdict::RetryAt(at)).await;
    world.settle(seqs[3], Verdict::Begun).await;
    world.crash().await;
    assert_eq!(world.open().await, [seqs[1], seqs[3]]);
    assert_eq!(world.fresh(&lane("a")).await, [seqs[0], seqs[2], seqs[4]], "nobody else was in flight");
    assert_eq!(world.due().await, []);
    let open = world.pending(seqs[1]).await;
    assert_eq!((open.attempts, open.first_attempt, open.open), (1, Some(at), true), "its attempt is counted");
    for seq in [seqs[1], seqs[3]] {
        world.settle(seq, Verdict::Interrupted).await;
    }
    assert_eq!(world.open().await, []);
    assert_eq!(world.due().await, [seqs[1], seqs[3]]);
}

pub(crate) async fn interruptions_are_counted_over_crashes(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("poison")).await;
    for in_a_row in 1..=3 {
        world.settle(seq, Verdict::Begun).await;
        world.crash().await;
        let open = world.pending(seq).await;
        assert_eq!((open.attempts, open.interrupted, open.open), (in_a_row, in_a_row - 1, true));
        world.settle(seq, Verdict::Interrupted).await;
        world.crash().await;
        let retrying = world.pending(seq).await;
        assert_eq!((retrying.attempts, retrying.interrupted), (in_a_row, in_a_row));
    }
}

pub(crate) async fn a_closed_store_answers_nothing(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    let id = world.story(seq).await.record.id;
    let event = Arc::new(world.event(&lane("a")));
    let before = Snapshot::take(world.store(), 10).await;
    let store = world.store();
    store.close().await.unwrap();
    let unavailable = |answer: Option<Error>, call: &str| {
        assert!(matches!(answer, Some(Error::Unavailable(_))), "{call} on a closed store: {answer:?}");
    };
    unavailable(store.append(vec![event]).await.err(), "append");
    unavailable(store.settle(vec![world.settlement(seq, Verdict::Delivered)]).await.err(), "settle");
    unavailable(store.lanes(None, 10).await.err(), "lanes");
    unavailable(store.load(lane("a"), Seq(0), 10).await.err(), "load");
    unavailable(store.due(None, 10).await.err(), "due");
    unavailable(store.open(Seq(0), 10).await.err(), "open");
    unavailable(store.read(vec![seq]).await.err(), "read");
    unavailable(store.find(id).await.err(), "find");
    unavailable(store.list(everything(10)).await.err(), "list");
    assert_eq!(store.admits(&lane("a").group), Err(Refusal::Unavailable));
    world.crash().await;
    Snapshot::take(world.store(), 10).await.assert_same(&before, "after calls on a closed store");
}

pub(crate) async fn an_open_store_admits_every_group(mut world: World<impl Subject>) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(world.store().poisoned().as_mut().poll(&mut context).is_pending(), "nothing is wrong with it");
    for group in [lane("a").group, Group::fallback(), Group::of(&["\0"])] {
        assert_eq!(world.store().admits(&group), Ok(()));
    }
    world.append(&lane("a"), 1_000).await;
    assert_eq!(world.store().admits(&lane("a").group), Ok(()), "while there is room");
    world.reopen().await;
    assert_eq!(world.store().admits(&lane("a").group), Ok(()));
}

pub(crate) async fn ended_events_are_gone_after_their_retention_and_pending_ones_never(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 6).await;
    let mut ids = Vec::new();
    for seq in &seqs {
        ids.push(world.story(*seq).await.record.id);
    }
    world.settle(seqs[0], Verdict::Delivered).await;
    world.settle(seqs[1], Verdict::Discarded).await;
    world.settle(seqs[2], Verdict::Dead("x".into())).await;
    world.settle(seqs[3], Verdict::Begun).await;
    world.settle(seqs[4], Verdict::RetryAt(world.now())).await;
    let hour = Duration::from_secs(3_600);
    let mut passed = Duration::ZERO;
    let ends = [
        (RETENTION.delivered - hour, 6),
        (RETENTION.delivered + hour, 4),
        (RETENTION.dead - hour, 4),
        (RETENTION.dead + hour, 3),
        (RETENTION.dead * 100, 3),
    ];
    for (span, left) in ends {
        world.clock.advance(span - passed);
        passed = span;
        for _ in 0..2 {
            let mut found = Vec::new();
            for (seq, id) in seqs.iter().zip(&ids) {
                if let Some(story) = world.store().find(*id).await.unwrap() {
                    assert_eq!(story.record.seq, *seq);
                    assert!(
                        world.store().read(vec![*seq]).await.unwrap()[0].is_some(),
                        "{seq} after {span:?}: its body"
                    );
                    found.push(*seq);
                }
            }
            assert_eq!(found, seqs[6 - left..], "after {span:?}");
            let page = world.store().list(everything(100)).await.unwrap();
            assert_eq!(page.records.len(), left, "listed after {span:?}");
            world.crash().await;
        }
    }
    let late = vec![world.settlement(seqs[0], Verdict::Requeued), world.settlement(seqs[2], Verdict::Discarded)];
    assert_eq!(world.store().settle(late).await, Ok(2), "what is gone cannot be settled");
    world.settle(seqs[3], Verdict::Delivered).await;
    let delivered = Query { status: vec![Status::Delivered], ..everything(10) };
    assert_eq!(world.store().list(delivered).await.unwrap().records.len(), 1, "its retention begins with its end");
}

pub(crate) async fn usage_counts_what_is_there(mut world: World<impl Subject>) {
    let empty = world.store().usage();
    assert_eq!((empty.pending, empty.history, empty.lanes, empty.oldest), (0, 0, 0, None));
    let first = world.now();
    let of_a = world.append(&lane("a"), 2).await;
    let second = world.tick();
    world.append(&lane("b"), 1).await;
    let usage = world.store().usage();
    assert_eq!((usage.pending, usage.history, usage.lanes, usage.oldest), (3, 0, 2, Some(first)));
    assert!(usage.bytes > 0 && usage.free > 0, "{usage:?}");
    for seq in of_a {
        world.settle(seq, Verdict::Delivered).await;
    }
    let usage = world.store().usage();
    assert_eq!((usage.pending, usage.history, usage.lanes, usage.oldest), (1, 2, 1, Some(second)));
    world.settle(Seq(1), Verdict::Requeued).await;
    for _ in 0..2 {
        let usage = world.store().usage();
        assert_eq!((usage.pending, usage.history, usage.lanes, usage.oldest), (2, 1, 2, Some(second)));
        world.crash().await;
    }
    let body = bytes::Bytes::from(vec![7; 1 << 20]);
    let before = world.store().usage().bytes;
    let large = Event { body, ..world.event(&lane("c")) };
    world.append_batch(vec![Arc::new(large)]).await;
    assert!(world.store().usage().bytes >= before, "sizes count what is stored");
}
