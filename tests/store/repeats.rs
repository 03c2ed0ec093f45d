//! Repeats: what is suppressed, for how long, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use fairlane::event::{Event, EventId, Fingerprint, Lane, Seq};
use fairlane::store::{Appended, Error, Repeat, Status, Verdict};

use crate::snapshot::Snapshot;
use crate::world::{RETENTION, Subject, World, lane};

const WINDOW: Duration = Duration::from_secs(3_600);

/// A further event of `lane` with this fingerprint, received now.
fn like<S: Subject>(world: &mut World<S>, lane: &Lane, hash: u8) -> Arc<Event> {
    let fingerprint = Some(Fingerprint { hash: [hash; 16], window: WINDOW });
    Arc::new(Event { fingerprint, ..world.event(lane) })
}

/// Appends such an event alone: its place, its id, and what it repeats.
async fn send<S: Subject>(world: &mut World<S>, hash: u8) -> (Seq, EventId, Option<EventId>) {
    let event = like(world, &lane("a"), hash);
    let appended = world.store().append(vec![Arc::clone(&event)]).await.unwrap();
    (appended.first, event.id, appended.repeat(0))
}

pub(crate) async fn a_repeat_is_suppressed_in_its_own_batch_and_later(mut world: World<impl Subject>) {
    let a = lane("a");
    let batch: Vec<_> = [1, 2, 1, 1].into_iter().map(|hash| like(&mut world, &a, hash)).collect();
    let plain = Arc::new(world.event(&a));
    let again = like(&mut world, &lane("other"), 2);
    let (one, two) = (batch[0].id, batch[1].id);
    let repeats = vec![Repeat { number: 2, of: one }, Repeat { number: 3, of: one }];
    assert_eq!(
        world.store().append(batch.clone()).await,
        Ok(Appended { repeats, ..Appended::from(Seq(1)) }),
        "the first one wins"
    );
    for _ in 0..2 {
        assert_eq!(world.fresh(&a).await, [Seq(1), Seq(2)], "repeats wait in no lane");
        for (seq, event) in [(3, &batch[2]), (4, &batch[3])] {
            let story = world.story(Seq(seq)).await;
            assert_eq!((story.record.status, story.record.duplicate_of), (Status::Suppressed, Some(one)));
            assert_eq!((story.record.id, story.record.attempts), (event.id, 0));
            assert_eq!(world.store().read(vec![Seq(seq)]).await.unwrap(), [Some(Arc::clone(event))], "with its body");
        }
        assert_eq!(world.story(Seq(1)).await.record.duplicate_of, None);
        let usage = world.store().usage();
        assert_eq!((usage.pending, usage.history, usage.lanes), (2, 2, 1), "a lane of repeats alone is none");
        Snapshot::take(world.store(), 10).await;
        world.crash().await;
    }
    let appended = world.store().append(vec![plain, again]).await.unwrap();
    assert_eq!((appended.first, appended.repeats), (Seq(5), vec![Repeat { number: 1, of: two }]));
}

pub(crate) async fn a_window_ends_and_outlives_every_kind_of_restart(mut world: World<impl Subject>) {
    let (_, first, none) = send(&mut world, 1).await;
    assert_eq!(none, None);
    let half = WINDOW / 2 - Duration::from_secs(1);
    for _ in 0..2 {
        world.clock.advance(half);
        // Enough for checkpoints, and for the first one to be in the index only.
        world.append(&lane("others"), 40).await;
        world.crash().await;
        assert_eq!(send(&mut world, 1).await.2, Some(first), "a suppressed repeat does not prolong the window");
        world.reopen().await;
        assert_eq!(send(&mut world, 1).await.2, Some(first));
    }
    world.clock.advance(Duration::from_secs(2));
    let (_, second, none) = send(&mut world, 1).await;
    assert_eq!(none, None, "the window is over");
    world.append(&lane("others"), 40).await;
    world.crash().await;
    assert_eq!(send(&mut world, 1).await.2, Some(second), "and begins anew");
}

pub(crate) async fn what_repeats_an_ended_event_is_suppressed_and_what_repeats_a_dead_one_is_new(
    mut world: World<impl Subject>,
) {
    for (hash, verdict) in [(1, Verdict::Delivered), (2, Verdict::Discarded)] {
        let (seq, id, _) = send(&mut world, hash).await;
        world.settle(seq, verdict).await;
        world.tick();
        assert_eq!(send(&mut world, hash).await.2, Some(id));
    }
    let (seq, dead, _) = send(&mut world, 3).await;
    world.settle(seq, Verdict::Dead("no".into())).await;
    world.append(&lane("others"), 40).await;
    world.crash().await;
    world.tick();
    let (_, second, none) = send(&mut world, 3).await;
    assert_eq!(none, None, "the dead one was never delivered");
    world.tick();
    assert_eq!(send(&mut world, 3).await.2, Some(second), "repeats are known by the one that was taken");
    world.settle(seq, Verdict::Requeued).await;
    world.append(&lane("others"), 40).await;
    world.crash().await;
    assert_eq!(send(&mut world, 3).await.2, Some(second), "whatever becomes of the dead one");

    let (seq, replayed, _) = send(&mut world, 4).await;
    world.settle(seq, Verdict::Dead("no".into())).await;
    world.settle(seq, Verdict::Requeued).await;
    assert_eq!(send(&mut world, 4).await.2, Some(replayed), "one that is replayed is dead no more");
    assert_eq!(world.store().find(dead).await.unwrap().unwrap().record.status, Status::Queued);
}

pub(crate) async fn a_repeat_that_is_released_goes_its_way_like_any_other(mut world: World<impl Subject>) {
    let a = lane("a");
    let (_, first, _) = send(&mut world, 1).await;
    world.tick();
    let (seq, id, _) = send(&mut world, 1).await;
    let more = world.append_one(&a).await;
    let at = world.tick();
    let released = world.store().requeue(vec![seq, Seq(1), Seq(999)], at).await.unwrap();
    let new = Seq(more.0 + 1);
    let pending = released[0].clone().unwrap();
    assert_eq!((pending.seq, pending.id, &pending.lane), (new, id, &a));
    assert_eq!((pending.replays, pending.attempts, pending.due), (0, 0, None), "it is no replay");
    assert_eq!(&released[1..], [None, None], "one that is pending, and none");
    for _ in 0..2 {
        assert_eq!(world.fresh(&a).await, [Seq(1), more, new]);
        assert_eq!(world.pending(new).await, pending);
        let record = world.story(new).await.record;
        assert_eq!((record.status, record.duplicate_of), (Status::Queued, Some(first)), "what it repeated stays known");
        world.crash().await;
    }
    assert_eq!(send(&mut world, 1).await.2, Some(first), "repeats are still known by the first one");
    world.settle(new, Verdict::Begun).await;
    world.settle(new, Verdict::Dead("no".into())).await;
    world.append(&lane("others"), 40).await;
    world.crash().await;
    assert_eq!(send(&mut world, 1).await.2, Some(first), "whatever becomes of the released one");
    let replayed = world.store().requeue(vec![new], at).await.unwrap();
    assert_eq!(replayed[0].as_ref().unwrap().replays, 1, "from the dead letters it is one");
}

pub(crate) async fn suppressed_events_are_kept_as_long_as_they_should_be(mut world: World<impl Subject>) {
    send(&mut world, 1).await;
    let (seq, id, _) = send(&mut world, 1).await;
    world.clock.advance(RETENTION.suppressed - Duration::from_secs(1));
    assert!(world.store().find(id).await.unwrap().is_some());
    world.tick();
    assert_eq!(world.store().find(id).await, Ok(None));
    let now = world.now();
    assert_eq!(world.store().requeue(vec![seq], now).await, Ok(vec![None]), "it is gone, and cannot be released");
}

pub(crate) async fn of_two_at_the_same_time_one_is_taken(mut world: World<impl Subject>) {
    for round in 0..20 {
        let a = lane("a");
        let (one, other) = (like(&mut world, &a, round), like(&mut world, &a, round));
        let (first, second) =
            tokio::join!(world.store().append(vec![one.clone()]), world.store().append(vec![other.clone()]));
        let (first, second): (Result<Appended, Error>, Result<Appended, Error>) = (first, second);
        let repeats = [first.unwrap().repeat(0), second.unwrap().repeat(0)];
        assert!(repeats == [None, Some(one.id)] || repeats == [Some(other.id), None], "{repeats:?}");
    }
    let statuses = Snapshot::take(world.store(), 100).await.records;
    assert_eq!(statuses.iter().filter(|record| record.status == Status::Suppressed).count(), 20);
}
