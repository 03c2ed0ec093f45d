//! Settlements: every verdict from wherever it may come, and what must not change.

use std::time::Duration;

use bytes::Bytes;
use fairlane::event::{Seq, WaitReason, WaitSplit, Wall};
use fairlane::store::{AttemptNote, EXCERPT_BYTES_MAX, Settlement, Status, Verdict};

use crate::snapshot::Snapshot;
use crate::world::{START, Subject, World, lane, note};

/// Every verdict that is about a pending event.
fn about_pending() -> [Verdict; 7] {
    [
        Verdict::Begun,
        Verdict::Interrupted,
        Verdict::RetryAt(START.plus(Duration::from_secs(60))),
        Verdict::Released,
        Verdict::Delivered,
        Verdict::Dead("too often".into()),
        Verdict::Discarded,
    ]
}

pub(crate) async fn a_settlement_about_no_event_is_counted_and_changes_nothing(mut world: World<impl Subject>) {
    world.append(&lane("a"), 2).await;
    let before = Snapshot::take(world.store(), 10).await;
    for seq in [Seq(0), Seq(3), Seq(1 << 40), Seq(u64::MAX)] {
        for verdict in about_pending().into_iter().chain([Verdict::Requeued]) {
            let mut settlement = world.settlement(seq, verdict);
            settlement.attempt = Some(note(1, world.now()));
            assert_eq!(world.store().settle(vec![settlement]).await, Ok(1), "about {seq}");
        }
    }
    Snapshot::take(world.store(), 10).await.assert_same(&before, "after settlements about no event");
    assert_eq!(world.append_one(&lane("a")).await, Seq(3), "no number was taken");
}

pub(crate) async fn a_settlement_may_be_repeated(mut world: World<impl Subject>) {
    for (i, end) in about_pending().into_iter().filter(Verdict::ends).enumerate() {
        let seq = world.append_one(&lane("a")).await;
        world.settle(seq, Verdict::Begun).await;
        let ended = Settlement { attempt: Some(note(1, world.now())), ..world.settlement(seq, end) };
        assert_eq!(world.store().settle(vec![ended.clone()]).await, Ok(0));
        let before = Snapshot::take(world.store(), 10).await;
        world.tick();
        for verdict in about_pending() {
            let again = Settlement { attempt: Some(note(2, world.now())), ..world.settlement(seq, verdict) };
            assert_eq!(world.store().settle(vec![again, ended.clone()]).await, Ok(2), "{i}");
        }
        Snapshot::take(world.store(), 10).await.assert_same(&before, "after settlements about an ended event");
        world.reopen().await;
        assert_eq!(world.store().settle(vec![ended.clone()]).await, Ok(1), "also in the next process");
        Snapshot::take(world.store(), 10).await.assert_same(&before, "after a repetition in the next process");
    }
}

pub(crate) async fn a_batch_of_settlements_counts_exactly_those_that_changed_nothing(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 4).await;
    world.settle(seqs[0], Verdict::Delivered).await;
    let batch = vec![
        world.settlement(seqs[0], Verdict::Discarded),
        world.settlement(seqs[1], Verdict::Delivered),
        world.settlement(seqs[1], Verdict::Dead("late".into())),
        world.settlement(Seq(99), Verdict::Begun),
        world.settlement(seqs[2], Verdict::Begun),
        world.settlement(seqs[3], Verdict::Requeued),
    ];
    assert_eq!(world.store().settle(batch).await, Ok(4));
    let mut statuses = Vec::new();
    for seq in seqs {
        statuses.push(world.story(seq).await.record.status);
    }
    assert_eq!(statuses, [Status::Delivered, Status::Delivered, Status::InFlight, Status::Queued]);
}

pub(crate) async fn settlements_of_one_batch_apply_in_their_order(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    let due = world.now().plus(Duration::from_secs(9));
    let batch = vec![
        world.settlement(seq, Verdict::Begun),
        world.settlement(seq, Verdict::RetryAt(due)),
        world.settlement(seq, Verdict::Begun),
        Settlement { attempt: Some(note(2, world.now())), ..world.settlement(seq, Verdict::Delivered) },
        world.settlement(seq, Verdict::Requeued),
        world.settlement(seq, Verdict::Delivered),
    ];
    assert_eq!(world.store().settle(batch).await, Ok(1), "the last one is about a seq that has gone on");
    let pending = world.pending(Seq(seq.0 + 1)).await;
    assert_eq!((pending.attempts, pending.due, pending.open, pending.replays), (0, None, false, 1));
    Snapshot::take(world.store(), 10).await;
}

pub(crate) async fn begun_counts_an_attempt_and_leaves_the_event_open(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 2).await;
    let first = world.tick();
    world.settle(seqs[0], Verdict::Begun).await;
    let open = world.pending(seqs[0]).await;
    assert_eq!((open.attempts, open.open, open.due, open.first_attempt), (1, true, None, Some(first)));
    assert_eq!(world.story(seqs[0]).await.record.status, Status::InFlight);
    assert_eq!(world.story(seqs[0]).await.record.settled, Some(first));
    assert_eq!(world.fresh(&lane("a")).await, [seqs[1]], "an open event is not fresh");
    assert_eq!(world.due().await, [], "nor retrying");
    assert_eq!(world.open().await, [seqs[0]]);
    let second = world.pending(seqs[1]).await;
    assert_eq!((second.attempts, second.open, second.first_attempt), (0, false, None), "the other one is untouched");

    world.settle(seqs[0], Verdict::RetryAt(world.now())).await;
    world.settle(seqs[0], Verdict::Begun).await;
    let open = world.pending(seqs[0]).await;
    assert_eq!((open.attempts, open.open, open.due), (2, true, None), "a due time ends with the next attempt");
    assert_eq!(world.due().await, []);
    assert_eq!(world.story(seqs[0]).await.record.due, None);
}

pub(crate) async fn a_retry_waits_for_its_due_time(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    for due in [world.now().plus(Duration::from_secs(5)), Wall(0), Wall(1 << 60)] {
        world.settle(seq, Verdict::Begun).await;
        let at = world.tick();
        world.settle(seq, Verdict::RetryAt(due)).await;
        let pending = world.pending(seq).await;
        assert_eq!((pending.due, pending.open), (Some(due), false));
        let record = world.story(seq).await.record;
        assert_eq!((record.status, record.due, record.settled), (Status::Retrying, Some(due), Some(at)));
        assert_eq!(world.fresh(&lane("a")).await, []);
        assert_eq!(world.due().await, [seq], "also before it is due: waiting is not the store's affair");
        assert_eq!(world.open().await, []);
    }
    assert_eq!(world.pending(seq).await.attempts, 3);
}

pub(crate) async fn a_released_event_is_fresh_at_its_old_place(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 3).await;
    world.settle(seqs[1], Verdict::Begun).await;
    assert_eq!(world.fresh(&lane("a")).await, [seqs[0], seqs[2]]);
    world.settle(seqs[1], Verdict::Released).await;
    assert_eq!(world.fresh(&lane("a")).await, seqs, "at its old place");
    let pending = world.pending(seqs[1]).await;
    assert_eq!((pending.open, pending.due), (false, None));
    assert_eq!(world.story(seqs[1]).await.record.status, Status::Queued);
    assert_eq!(world.open().await, []);
    world.reopen().await;
    assert_eq!(world.fresh(&lane("a")).await, seqs);
}

pub(crate) async fn ended_events_leave_their_lane_and_stay_readable(mut world: World<impl Subject>) {
    let ends = [
        (Verdict::Delivered, Status::Delivered, ""),
        (Verdict::Dead("12 attempts: \u{201e}503\u{201c}".into()), Status::Dead, "12 attempts: \u{201e}503\u{201c}"),
        (Verdict::Dead("".into()), Status::Dead, ""),
        (Verdict::Discarded, Status::Discarded, ""),
    ];
    for (verdict, status, reason) in ends {
        let seq = world.append_one(&lane("a")).await;
        let event = world.store().read(vec![seq]).await.unwrap();
        world.settle(seq, Verdict::Begun).await;
        let at = world.tick();
        world.settle(seq, verdict).await;
        for _ in 0..2 {
            assert_eq!(
                (world.fresh(&lane("a")).await, world.due().await, world.open().await),
                (vec![], vec![], vec![])
            );
            let record = world.story(seq).await.record;
            assert_eq!((record.status, &*record.reason, record.settled), (status, reason, Some(at)));
            assert_eq!((record.attempts, record.due), (1, None));
            assert_eq!(world.store().read(vec![seq]).await.unwrap(), event, "the body too");
            world.crash().await;
        }
    }
    assert_eq!(world.store().usage().pending, 0);
    assert_eq!(world.store().usage().history, 4);
}

pub(crate) async fn pending_ones_end_from_wherever_they_stand(mut world: World<impl Subject>) {
    for verdict in about_pending().into_iter().filter(Verdict::ends) {
        let seqs = world.append(&lane("a"), 3).await;
        world.settle(seqs[1], Verdict::Begun).await;
        world.settle(seqs[2], Verdict::Begun).await;
        world.settle(seqs[2], Verdict::RetryAt(world.now())).await;
        for seq in &seqs {
            world.settle(*seq, verdict.clone()).await;
            assert!(!world.story(*seq).await.record.status.is_pending());
        }
    }
    let snapshot = Snapshot::take(world.store(), 10).await;
    assert_eq!((snapshot.usage.pending, snapshot.usage.history), (0, 9));
}

pub(crate) async fn the_first_attempt_stays_the_first(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    let first = world.tick();
    for attempts in 1..=4 {
        world.settle(seq, Verdict::Begun).await;
        let pending = world.pending(seq).await;
        assert_eq!((pending.attempts, pending.first_attempt), (attempts, Some(first)));
        world.tick();
        world.settle(seq, if attempts % 2 == 0 { Verdict::Interrupted } else { Verdict::RetryAt(world.now()) }).await;
        world.crash().await;
    }
}

pub(crate) async fn interruptions_in_a_row_are_counted_and_another_end_resets_them(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    for in_a_row in 1..=3 {
        world.settle(seq, Verdict::Begun).await;
        assert_eq!(world.pending(seq).await.interrupted, in_a_row - 1, "an attempt that begins ends no row");
        let at = world.tick();
        world.settle(seq, Verdict::Interrupted).await;
        let pending = world.pending(seq).await;
        assert_eq!((pending.interrupted, pending.attempts), (in_a_row, in_a_row));
        assert_eq!((pending.due, pending.open), (Some(at), false), "due at once");
        assert_eq!(world.story(seq).await.record.status, Status::Retrying);
        world.reopen().await;
    }
    world.settle(seq, Verdict::Begun).await;
    world.settle(seq, Verdict::RetryAt(world.now())).await;
    assert_eq!(world.pending(seq).await.interrupted, 0);
    world.settle(seq, Verdict::Begun).await;
    world.settle(seq, Verdict::Interrupted).await;
    assert_eq!(world.pending(seq).await.interrupted, 1, "a new row");
    assert_eq!(world.pending(seq).await.attempts, 5);
}

pub(crate) async fn refused_attempts_are_counted_for_the_life_of_an_event(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    let attempt = async |world: &World<_>, refused: bool, verdict: Verdict| {
        world.settle(seq, Verdict::Begun).await;
        let note = AttemptNote { refused, ..note(1, world.now()) };
        let settlement = Settlement { attempt: Some(note), ..world.settlement(seq, verdict) };
        assert_eq!(world.store().settle(vec![settlement]).await, Ok(0));
    };
    let again = || Verdict::RetryAt(START);
    for (refused, sum) in [(true, 1), (false, 1), (true, 2)] {
        attempt(&world, refused, again()).await;
        assert_eq!(world.pending(seq).await.refused, sum);
        world.crash().await;
        assert_eq!(world.pending(seq).await.refused, sum, "after a crash");
    }
    world.settle(seq, Verdict::Begun).await;
    world.settle(seq, Verdict::Interrupted).await;
    world.settle(seq, Verdict::Begun).await;
    world.settle(seq, Verdict::Released).await;
    let pending = world.pending(seq).await;
    assert_eq!((pending.refused, pending.attempts, pending.interrupted), (2, 5, 0), "nothing of it was an answer");
    attempt(&world, true, Verdict::Dead("x".into())).await;
    world.reopen().await;
    world.settle(seq, Verdict::Requeued).await;
    let fresh = world.store().load(lane("a"), Seq(0), 1).await.unwrap().remove(0);
    assert_eq!((fresh.refused, fresh.attempts, fresh.replays), (0, 0, 1), "a replay begins anew");
}

pub(crate) async fn a_story_has_its_attempts_exactly_and_oldest_first(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let notes = [
        AttemptNote {
            number: 1,
            started: world.now(),
            took: Duration::ZERO,
            outcome: "refused".into(),
            status: None,
            error: "connection refused: 127.0.0.1:3000 \u{2014} is it up?\n".into(),
            excerpt: Bytes::new(),
            refused: false,
            waited: [(WaitReason::OwnLane, Duration::from_micros(7)), (WaitReason::Order, Duration::from_hours(9))]
                .into_iter()
                .collect(),
        },
        AttemptNote {
            number: 2,
            started: world.now().plus(Duration::from_secs(7)),
            took: Duration::from_micros(29_999_999),
            outcome: "status".into(),
            status: Some(999),
            error: "x".repeat(3_000).into(),
            excerpt: Bytes::from(every_byte.repeat(EXCERPT_BYTES_MAX / 256)),
            refused: true,
            waited: WaitSplit::default(),
        },
        AttemptNote {
            number: u32::MAX,
            started: Wall(0),
            took: Duration::from_secs(3_600),
            outcome: "delivered".into(),
            status: Some(204),
            error: "".into(),
            excerpt: Bytes::from_static(b"\xff"),
            refused: false,
            waited: WaitSplit::default(),
        },
    ];
    let verdicts = [Verdict::RetryAt(world.now()), Verdict::RetryAt(world.now()), Verdict::Delivered];
    for (i, (note, verdict)) in notes.iter().zip(verdicts).enumerate() {
        world.settle(seq, Verdict::Begun).await;
        assert_eq!(world.story(seq).await.attempts, notes[..i], "an attempt that has not ended is not told");
        let settlement = Settlement { attempt: Some(note.clone()), ..world.settlement(seq, verdict) };
        assert_eq!(world.store().settle(vec![settlement]).await, Ok(0));
        assert_eq!(world.story(seq).await.attempts, notes[..=i]);
    }
    world.crash().await;
    assert_eq!(world.story(seq).await.attempts, notes);
}

pub(crate) async fn ended_events_are_made_pending_in_the_order_given_and_others_are_not(
    mut world: World<impl Subject>,
) {
    let seqs = world.append(&lane("a"), 5).await;
    world.settle(seqs[0], Verdict::Dead("x".into())).await;
    world.settle(seqs[1], Verdict::Delivered).await;
    world.settle(seqs[2], Verdict::Discarded).await;
    world.settle(seqs[4], Verdict::Dead("y".into())).await;
    let at = world.tick();
    let asked = vec![seqs[4], seqs[0], seqs[3], Seq(99), seqs[0], seqs[2], seqs[1]];
    let answers = world.store().requeue(asked, at).await.unwrap();
    let new: Vec<Option<u64>> = answers.iter().map(|one| one.as_ref().map(|pending| pending.seq.0)).collect();
    assert_eq!(new, [Some(6), Some(7), None, None, None, Some(8), Some(9)], "pending, unknown and twice is none");
    for pending in answers.iter().flatten() {
        assert_eq!(*pending, world.pending(pending.seq).await);
        assert_eq!((pending.replays, pending.requeued), (1, Some(at)));
    }
    world.crash().await;
    let fresh: Vec<u64> = world.fresh(&lane("a")).await.iter().map(|seq| seq.0).collect();
    assert_eq!(fresh, [4, 6, 7, 8, 9]);
    world.settle(Seq(6), Verdict::Dead("again".into())).await;
    let again = world.store().requeue(vec![Seq(6)], world.now()).await.unwrap();
    assert_eq!(again[0].as_ref().map(|pending| (pending.seq, pending.replays)), Some((Seq(10), 2)));
}

pub(crate) async fn a_requeued_event_goes_to_the_end_of_its_lane_with_its_history(mut world: World<impl Subject>) {
    let a = lane("a");
    let seqs = world.append(&a, 3).await;
    world.settle(seqs[0], Verdict::Begun).await;
    world.settle(seqs[0], Verdict::Interrupted).await;
    let dead =
        Settlement { attempt: Some(note(1, world.now())), ..world.settlement(seqs[0], Verdict::Dead("x".into())) };
    assert_eq!(world.store().settle(vec![dead]).await, Ok(0));
    let (before, event) = (world.story(seqs[0]).await, world.store().read(vec![seqs[0]]).await.unwrap());

    let at = world.tick();
    world.settle(seqs[0], Verdict::Requeued).await;
    let new = Seq(seqs[2].0 + 1);
    for _ in 0..2 {
        assert_eq!(world.fresh(&a).await, [seqs[1], seqs[2], new], "a new seq at the end of its lane");
        let pending = world.pending(new).await;
        assert_eq!((pending.id, pending.received), (before.record.id, before.record.received));
        assert_eq!((pending.attempts, pending.first_attempt, pending.interrupted), (0, None, 0), "counted anew");
        assert_eq!((pending.due, pending.open, pending.replays), (None, false, 1));
        let story = world.store().find(before.record.id).await.unwrap().unwrap();
        assert_eq!((story.record.seq, story.record.status, story.record.settled), (new, Status::Queued, Some(at)));
        assert_eq!(&*story.record.reason, "");
        assert_eq!(story.attempts, before.attempts, "its history is kept");
        assert_eq!(world.store().read(vec![new]).await.unwrap(), event, "and its bytes");
        Snapshot::take(world.store(), 10).await;
        world.crash().await;
    }
    assert_eq!(world.append_one(&a).await, Seq(new.0 + 1), "appends follow");
    let about_old = vec![world.settlement(seqs[0], Verdict::Requeued), world.settlement(seqs[0], Verdict::Discarded)];
    assert_eq!(world.store().settle(about_old).await, Ok(2), "a repetition changes nothing");

    let first = world.tick();
    world.settle(new, Verdict::Begun).await;
    assert_eq!(world.pending(new).await.first_attempt, Some(first), "age is counted from the replay");
    let end = Settlement { attempt: Some(note(1, first)), ..world.settlement(new, Verdict::Delivered) };
    assert_eq!(world.store().settle(vec![end]).await, Ok(0));
    assert_eq!(world.story(new).await.attempts.len(), 2);
    let snapshot = Snapshot::take(world.store(), 10).await;
    assert_eq!(snapshot.records.len(), 4, "it is one event");
}

pub(crate) async fn an_event_may_be_requeued_again_and_again(mut world: World<impl Subject>) {
    let mut seq = world.append_one(&lane("a")).await;
    let id = world.story(seq).await.record.id;
    for round in 1..=5 {
        world.append_one(&lane("a")).await;
        world.settle(seq, Verdict::Begun).await;
        let end = Settlement { attempt: Some(note(1, world.now())), ..world.settlement(seq, Verdict::Discarded) };
        assert_eq!(world.store().settle(vec![end]).await, Ok(0));
        world.settle(seq, Verdict::Requeued).await;
        if round % 2 == 0 {
            world.crash().await;
        }
        let story = world.store().find(id).await.unwrap().unwrap();
        assert!(story.record.seq > seq, "{} after {seq}", story.record.seq);
        assert_eq!(story.attempts.len(), round, "every attempt is kept");
        seq = story.record.seq;
    }
    assert_eq!(Snapshot::take(world.store(), 3).await.records.len(), 6);
}

pub(crate) async fn only_ended_events_are_requeued(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 3).await;
    world.settle(seqs[1], Verdict::Begun).await;
    world.settle(seqs[2], Verdict::RetryAt(world.now())).await;
    let before = Snapshot::take(world.store(), 10).await;
    let batch = seqs.iter().map(|seq| world.settlement(*seq, Verdict::Requeued)).collect();
    assert_eq!(world.store().settle(batch).await, Ok(3));
    Snapshot::take(world.store(), 10).await.assert_same(&before, "after requeuing pending events");
}
