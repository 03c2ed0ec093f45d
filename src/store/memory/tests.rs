//! The faults. That the store keeps the contract without them is shown by `tests/store.rs`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;

use super::{Call, Memory};
use crate::clock::TestClock;
use crate::event::{Event, EventId, Group, KeySource, Lane, Seq, Wall};
use crate::store::{Error, LaneStore, Query, Refusal, Settlement, Verdict};

const START: Wall = Wall(1_790_000_000_000_000);

fn memory() -> Memory {
    Memory::new(Arc::new(TestClock::at(START)))
}

fn lane() -> Lane {
    Lane { group: Group::of(&["a"]), inner: None }
}

fn event(number: u8) -> Arc<Event> {
    Arc::new(Event {
        id: EventId::new(START, &[number; 10]),
        received: START,
        source: "shop".into(),
        lane: lane(),
        owner: None,
        key_source: KeySource::NoRule,
        order: None,
        fingerprint: None,
        trace: None,
        verified: "none".into(),
        provider_event_id: None,
        event_type: None,
        method: http::Method::POST,
        target: "/".into(),
        forward: None,
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        https: false,
        headers: http::HeaderMap::new(),
        body: Bytes::from(vec![number; 1_000]),
    })
}

fn settlement(seq: Seq, verdict: Verdict) -> Settlement {
    Settlement { seq, at: START, verdict, attempt: None }
}

/// Seqs of the fresh events.
async fn fresh(memory: &Memory) -> Vec<Seq> {
    memory.load(lane(), Seq(0), 100).await.unwrap().into_iter().map(|pending| pending.seq).collect()
}

fn is_ready<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_ready()
}

#[tokio::test]
async fn a_call_that_fails_has_no_effect_and_the_next_one_succeeds() {
    let memory = memory();
    for error in [Error::Unavailable("away".into()), Error::Full("no room".into())] {
        memory.fail_next(Call::Append, error.clone());
        assert_eq!(memory.append(vec![event(1)]).await, Err(error));
        assert_eq!(memory.usage().pending, 0);
    }
    assert_eq!(memory.append(vec![event(1)]).await, Ok(Seq(1).into()), "a failed batch takes no number");
    memory.fail_next(Call::Settle, Error::Unavailable("away".into()));
    assert!(memory.settle(vec![settlement(Seq(1), Verdict::Delivered)]).await.is_err());
    assert_eq!(fresh(&memory).await, [Seq(1)]);
    memory.fail_next(Call::Read, Error::Unavailable("away".into()));
    assert!(memory.read(vec![Seq(1)]).await.is_err());
    assert!(memory.read(vec![Seq(1)]).await.is_ok());
    assert!(!is_ready(&mut memory.poisoned()), "nothing of this ends the process");
}

#[tokio::test]
async fn faults_are_for_their_kind_of_call_and_in_their_order() {
    let memory = memory();
    memory.fail_next(Call::Append, Error::Full("first".into()));
    memory.fail_next(Call::Append, Error::Full("second".into()));
    assert_eq!(memory.settle(vec![]).await, Ok(0));
    assert_eq!(fresh(&memory).await, []);
    assert_eq!(memory.append(vec![event(1)]).await, Err(Error::Full("first".into())));
    assert_eq!(memory.append(vec![event(1)]).await, Err(Error::Full("second".into())));
    assert_eq!(memory.append(vec![event(1)]).await, Ok(Seq(1).into()));
}

#[tokio::test]
async fn an_unknown_outcome_poisons_and_a_restart_reads_what_is_there() {
    for durable in [false, true] {
        let memory = memory();
        memory.append(vec![event(1)]).await.unwrap();
        if durable {
            memory.lose_answer_of_next(Call::Append, "fsync failed");
        } else {
            memory.fail_next(Call::Append, Error::Poisoned("fsync failed".into()));
        }
        assert_eq!(memory.append(vec![event(2)]).await, Err(Error::Poisoned("fsync failed".into())));
        assert!(memory.poisoned().await.contains("fsync failed"));
        assert!(matches!(memory.append(vec![event(3)]).await, Err(Error::Poisoned(_))), "no more writes");
        let settled = memory.settle(vec![settlement(Seq(1), Verdict::Begun)]).await;
        assert!(matches!(settled, Err(Error::Poisoned(_))), "no more writes");
        assert_eq!(memory.admits(&lane().group), Err(Refusal::Unavailable));

        let memory = memory.crash();
        let wanted: &[Seq] = if durable { &[Seq(1), Seq(2)] } else { &[Seq(1)] };
        assert_eq!(fresh(&memory).await, wanted);
        assert!(!is_ready(&mut memory.poisoned()), "the next process starts anew");
        assert_eq!(memory.append(vec![event(3)]).await, Ok(Seq(wanted.len() as u64 + 1).into()));
    }
}

#[tokio::test]
async fn an_answer_of_a_settlement_can_get_lost_too() {
    let memory = memory();
    memory.append(vec![event(1)]).await.unwrap();
    memory.lose_answer_of_next(Call::Settle, "fsync failed");
    assert!(memory.settle(vec![settlement(Seq(1), Verdict::Delivered)]).await.is_err());
    let memory = memory.crash();
    assert_eq!(memory.settle(vec![settlement(Seq(1), Verdict::Delivered)]).await, Ok(1), "it was durable");
}

#[tokio::test]
async fn a_held_commit_is_seen_by_nobody_until_its_gate_opens() {
    let memory = memory();
    let mut gate = memory.hold_next(Call::Append);
    let observer = memory.clone();
    let test = async {
        gate.arrived().await;
        gate.arrived().await;
        assert_eq!(fresh(&observer).await, [], "not durable, not readable");
        assert_eq!(observer.settle(vec![]).await, Ok(0), "other calls go on");
        gate.open();
    };
    let (first, ()) = tokio::join!(memory.append(vec![event(1)]), test);
    assert_eq!(first, Ok(Seq(1).into()));
    assert_eq!(fresh(&memory).await, [Seq(1)]);
    assert_eq!(memory.append(vec![event(2)]).await, Ok(Seq(2).into()), "one call a gate");
}

#[tokio::test]
async fn a_gate_decides_what_becomes_of_its_call() {
    let memory = memory();
    memory.append(vec![event(1)]).await.unwrap();

    let gate = memory.hold_next(Call::Append);
    let mut held = memory.append(vec![event(2)]);
    assert!(!is_ready(&mut held));
    gate.fail(Error::Full("meanwhile".into()));
    assert_eq!(held.await, Err(Error::Full("meanwhile".into())));

    let gate = memory.hold_next(Call::Settle);
    let mut held = memory.settle(vec![settlement(Seq(1), Verdict::Begun)]);
    assert!(!is_ready(&mut held));
    drop(gate);
    assert_eq!(held.await, Ok(0), "a gate that is dropped is open");

    let gate = memory.hold_next(Call::Append);
    let mut held = memory.append(vec![event(2)]);
    assert!(!is_ready(&mut held));
    gate.lose_answer("fsync failed");
    assert_eq!(held.await, Err(Error::Poisoned("fsync failed".into())));
    assert_eq!(memory.usage().pending, 2);
}

#[tokio::test]
async fn a_crash_ends_what_was_held_and_everything_of_the_old_process() {
    let memory = memory();
    memory.append(vec![event(1)]).await.unwrap();
    memory.fail_next(Call::Settle, Error::Full("for the old process".into()));
    let gate = memory.hold_next(Call::Append);
    let mut unheard_of = memory.hold_next(Call::Read);
    let mut held = memory.append(vec![event(2)]);
    assert!(!is_ready(&mut held));

    let next = memory.crash();
    gate.open();
    assert!(matches!(held.await, Err(Error::Unavailable(_))), "it was not durable when the process died");
    unheard_of.arrived().await;
    assert!(matches!(memory.append(vec![event(3)]).await, Err(Error::Unavailable(_))));
    assert!(matches!(memory.list(Query { limit: 1, ..Query::default() }).await, Err(Error::Unavailable(_))));
    assert_eq!(memory.admits(&lane().group), Err(Refusal::Unavailable));
    memory.poison("nobody is there to be poisoned");

    assert_eq!(fresh(&next).await, [Seq(1)]);
    assert_eq!(next.settle(vec![settlement(Seq(1), Verdict::Begun)]).await, Ok(0), "faults end with their process");
}

#[tokio::test]
async fn a_store_is_opened_again_only_after_it_was_closed() {
    let memory = memory();
    memory.append(vec![event(1)]).await.unwrap();
    assert!(matches!(memory.reopen(), Err(Error::Locked(_))));
    memory.close().await.unwrap();
    let next = memory.reopen().unwrap();
    assert_eq!(fresh(&next).await, [Seq(1)]);
    assert!(matches!(memory.read(vec![Seq(1)]).await, Err(Error::Unavailable(_))), "the old handle stays closed");
}

#[tokio::test]
async fn damage_that_is_found_by_a_read_ends_all_writing() {
    let memory = memory();
    memory.fail_next(Call::Read, Error::Corrupt("segment 3, byte 17".into()));
    assert!(matches!(memory.read(vec![Seq(1)]).await, Err(Error::Corrupt(_))));
    assert!(memory.poisoned().await.contains("segment 3, byte 17"));
    assert!(matches!(memory.append(vec![event(1)]).await, Err(Error::Poisoned(_))));
    assert_eq!(fresh(&memory).await, [], "reads go on");
}

#[tokio::test]
async fn those_who_wait_for_poison_are_told() {
    let memory = memory();
    let mut waiting = memory.poisoned();
    assert!(!is_ready(&mut waiting));
    memory.poison("fsync failed");
    assert!(waiting.await.contains("fsync failed"));
    assert!(memory.poisoned().await.contains("fsync failed"), "also those who ask later");
}

#[tokio::test]
async fn a_full_store_takes_settlements_alone_and_gives_up_history_never_pending_events() {
    let memory = memory();
    memory.append((1..=3).map(event).collect()).await.unwrap();
    let three = memory.usage().bytes;
    memory.set_capacity(Some(three));
    assert_eq!(memory.admits(&lane().group), Err(Refusal::Full));
    assert!(matches!(memory.append(vec![event(4)]).await, Err(Error::Full(_))));
    assert_eq!(memory.append(vec![]).await, Ok(Seq(4).into()), "nothing needs no room");
    assert_eq!(memory.settle(vec![settlement(Seq(1), Verdict::Delivered)]).await, Ok(0));
    assert_eq!(memory.usage().history, 1, "history stays while nobody needs its room");

    assert_eq!(memory.admits(&lane().group), Ok(()));
    assert!(matches!(memory.append(vec![event(4), event(5)]).await, Err(Error::Full(_))), "whole or not at all");
    assert_eq!(memory.usage().history, 1, "a batch that does not fit costs nobody his history");
    assert_eq!(memory.append(vec![event(4)]).await, Ok(Seq(4).into()));
    assert_eq!((memory.usage().history, memory.usage().pending), (0, 3));
    assert_eq!(memory.usage().free, 0);
    memory.set_capacity(None);
    assert_eq!(memory.append(vec![event(5)]).await, Ok(Seq(5).into()));
}

#[tokio::test]
async fn one_group_can_be_refused() {
    let memory = memory();
    let (noisy, quiet) = (Group::of(&["noisy"]), Group::of(&["quiet"]));
    memory.refuse(&noisy);
    assert_eq!(memory.admits(&noisy), Err(Refusal::GroupTooLarge));
    assert_eq!(memory.admits(&quiet), Ok(()));
    memory.set_capacity(Some(0));
    assert_eq!(memory.admits(&noisy), Err(Refusal::Full), "a full store is everybody's");
    memory.set_capacity(None);
    memory.allow(&noisy);
    assert_eq!(memory.admits(&noisy), Ok(()));
}
