//! What people are told of a group: counts, ages and reasons that are true.

use std::time::Duration;

use super::rig::{Rig, lane, ms};
use crate::engine::*;

const BAD: Ending = Ending::Server { status: 500, retry_after: None };

/// A store with these events and an engine that has just found them.
fn restarted(rig: &Rig) -> Rig {
    let mut after = Rig::new(Settings::default());
    after.store = rig.store.clone();
    after.now = rig.now;
    let now = after.at();
    for (lane, (fresh, retrying, oldest)) in after.store.lanes() {
        after.engine.on_recovered(&lane, fresh, retrying, oldest, now);
    }
    after
}

fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_group_keeps_its_counts_while_it_is_idle() {
    let mut rig = Rig::new(Settings::default());
    assert_eq!((rig.view("a").accepted, rig.view("a").counted), (0, None));
    rig.answer =
        Box::new(|dispatch, _| (ms(50), if dispatch.seq.0 == 1 { Ending::Never(Some(410)) } else { Ending::Success }));
    rig.append(&lane("a"), 1);
    rig.drain();
    rig.run(s(10));
    rig.append(&lane("a"), 4);
    rig.append_as(&lane("a"), 1, None, true);
    rig.drain();
    rig.run(s(5));
    assert_eq!(rig.engine.active_groups(), 0);
    let view = rig.view("a");
    assert_eq!((view.accepted, view.delivered, view.dead), (5, 5, 1), "a replay was delivered and not accepted again");
    assert_eq!(view.worker_time, ms(300));
    assert!(view.counted.is_some_and(|span| span >= s(15)), "{:?}", view.counted);
    assert_eq!((view.state, view.concurrency), (State::Idle, 8));
    assert!(
        view.arrival_rate > 0.0 && view.drain_rate > 0.0 && view.wait_p99.is_some() && view.share > 0.99,
        "{view:?}"
    );
}

#[test]
fn a_group_whose_attempts_hang_is_seen_before_they_end() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|_, _| (s(25), Ending::Success));
    rig.append(&lane("hangs"), 8);
    rig.run(s(10));
    let view = rig.view("hangs");
    assert!(view.worker_time > s(8 * 8) && view.worker_time <= s(8 * 10), "{:?}", view.worker_time);
    assert!(view.share > 0.99, "{view:?}");
    rig.drain();
    assert_eq!(rig.view("hangs").worker_time, s(8 * 25), "and nothing is counted twice");
}

#[test]
fn the_oldest_event_is_known_wherever_it_is() {
    let mut rig = Rig::new(Settings { window: 4, ..Settings::default() });
    rig.answer = Box::new(|_, _| (s(20), BAD));
    rig.append(&lane("a"), 1);
    rig.run(s(10));
    assert_eq!(rig.view("a").oldest, s(10), "in flight");
    let now = rig.at();
    rig.engine.pause(&Group::of(&["a"]), now);
    rig.append(&lane("a"), 30);
    rig.run(s(60));
    let view = rig.view("a");
    assert_eq!((view.retrying, view.queued, view.oldest), (1, 30, s(70)), "it waits for its next attempt");
    assert_eq!(rig.engine.ages(rig.now).collect::<Vec<_>>(), [s(70)]);

    let mut after = restarted(&rig);
    let now = after.at();
    after.engine.pause(&Group::of(&["a"]), now);
    assert_eq!(after.view("a").oldest, s(70), "nothing of it has been read");
    after.run(s(30));
    assert_eq!(after.view("a").oldest, s(100), "and it is paused");
    let now = after.at();
    after.engine.resume(&Group::of(&["a"]), now);
    after.answer = Box::new(|_, _| (ms(1_000), Ending::Success));
    after.run(ms(1_500));
    let view = after.view("a");
    assert!(view.queued > 0 && view.oldest < s(95), "the oldest is delivered: {view:?}");
    after.drain();
    assert_eq!(after.view("a").oldest, Duration::ZERO);
}

#[test]
fn more_retries_than_fit_into_memory_still_have_an_age() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|_, _| (ms(5), Ending::Client(404)));
    rig.append(&lane("a"), 500);
    rig.run(s(600));
    let view = rig.view("a");
    assert!(view.retrying > 64, "{view:?}");
    assert_eq!(view.oldest, s(600));
    assert_eq!(restarted(&rig).view("a").oldest, s(600));
}

#[test]
fn a_group_that_is_being_read_is_not_held() {
    let mut rig = Rig::new(Settings::default());
    let now = rig.at();
    rig.engine.pause(&Group::of(&["a"]), now);
    rig.append(&lane("a"), 600);
    let mut after = restarted(&rig);
    let now = after.at();
    // The read is asked for and not answered.
    assert!(matches!(after.engine.poll_request(now), Some(Request::Load { .. })));
    let view = after.view("a");
    assert_eq!(view.state, State::Ready);
    assert!(view.reason.contains("being read"), "{}", view.reason);
}

#[test]
fn a_time_to_finish_is_named_only_while_something_goes() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|_, _| (s(1), Ending::Success));
    rig.append(&lane("a"), 2_000);
    rig.append(&lane("b"), 2_000);
    rig.run(s(90));
    let view = rig.view("a");
    assert!(view.drain_rate > view.arrival_rate && view.eta.is_some(), "{view:?}");
    rig.answer = Box::new(|dispatch, _| (ms(5), if dispatch.lane == lane("a") { BAD } else { Ending::Success }));
    rig.run(s(2));
    let view = rig.view("a");
    assert_eq!(view.state, State::Broken, "{view:?}");
    assert!(view.drain_rate > view.arrival_rate, "as if it went on: {view:?}");
    assert_eq!(view.eta, None, "nothing of it goes");
    assert!(view.reason.starts_with("its breaker is open for "), "{}", view.reason);
    assert!(view.reason.ends_with("; the last failure was answered with 500"), "{}", view.reason);
    let (now, b) = (rig.at(), Group::of(&["b"]));
    assert!(rig.view("b").eta.is_some());
    rig.engine.pause(&b, now);
    rig.run(s(1));
    let view = rig.view("b");
    assert_eq!((view.state, view.eta), (State::Paused, None), "{view:?}");
    assert!(view.reason.contains("until it is resumed"), "{}", view.reason);
}

#[test]
fn a_paused_group_says_so_whatever_it_has() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|_, _| (ms(5), BAD));
    rig.append(&lane("a"), 1);
    rig.run(ms(100));
    let now = rig.at();
    for group in ["a", "idle"] {
        rig.engine.pause(&Group::of(&[group]), now);
        assert_eq!(rig.view(group).state, State::Paused, "{group}: {:?}", rig.view(group));
    }
}

#[test]
fn a_group_whose_events_wait_for_a_retry_says_when_and_why() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|_, _| (ms(5), BAD));
    rig.append(&lane("a"), 1);
    rig.append(&lane("b"), 3);
    rig.run(ms(200));
    let view = rig.view("a");
    assert_eq!(view.state, State::Idle);
    let (reason, ends) = (view.reason.as_str(), " s; the last failure was answered with 500");
    assert!(reason.starts_with("1 retry, in ") && reason.ends_with(ends), "{reason}");
    let listed = rig.engine.groups(Sort::Depth, 1, rig.now);
    assert!(listed[0].reason.starts_with("3 retries, the next in "), "{}", listed[0].reason);
    rig.answer = Box::new(|_, _| (ms(5), Ending::NoAnswer));
    rig.run(s(6));
    let reason = rig.view("a").reason;
    assert!(reason.ends_with("the last failure got no answer"), "{reason}");
}

#[test]
fn while_the_upstream_is_paused_nobody_is_ready() {
    let mut rig = Rig::new(Settings::default());
    rig.engine.set_upstream_paused(true);
    rig.append(&lane("a"), 2);
    rig.run(ms(100));
    let view = rig.view("a");
    assert_eq!((view.state, view.reason.as_str(), view.paused), (State::Paused, "the upstream is paused", false));
    rig.engine.set_upstream_paused(false);
    rig.drain();
    assert_eq!((rig.view("a").state, rig.delivered()), (State::Idle, 2));
}

#[test]
fn while_the_upstream_asks_to_be_left_alone_nobody_is_ready() {
    let mut rig = Rig::new(Settings::default());
    let asked = RetryAfter { delay: s(30), scope: Scope::Upstream };
    rig.answer = Box::new(move |_, _| (ms(5), Ending::Server { status: 503, retry_after: Some(asked) }));
    rig.append(&lane("a"), 1);
    rig.run(ms(100));
    rig.append(&lane("b"), 1);
    rig.run(ms(100));
    let view = rig.view("b");
    assert_eq!((view.state, view.queued), (State::Held, 1), "{view:?}");
    assert!(view.reason.ends_with("(Retry-After), 30 s more"), "{}", view.reason);
}

#[test]
fn retries_that_an_open_breaker_or_a_pause_keeps_are_not_overdue() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|_, _| (ms(5), Ending::NoAnswer));
    for group in ["a", "b", "c", "d"] {
        rig.append(&lane(group), 12);
    }
    for _ in 0..120 {
        rig.run(s(5));
        assert!(!matches!(rig.engine.breaker(), BreakerState::Closed), "it should be down");
        assert_eq!(rig.engine.retries_overdue(s(10)), 0, "{:?}", rig.engine.breaker());
    }
    rig.engine.set_upstream_paused(true);
    rig.run(s(3_600));
    assert_eq!(rig.engine.retries_overdue(s(10)), 0);
}

#[test]
fn a_breaker_that_opens_and_closes_is_noticed_once_each() {
    let mut rig = Rig::new(Settings::default());
    let notices = |rig: &mut Rig| std::iter::from_fn(|| rig.engine.poll_notice()).collect::<Vec<_>>();
    rig.answer = Box::new(|_, _| (ms(5), Ending::NoAnswer));
    for group in ["a", "b", "c", "d"] {
        rig.append(&lane(group), 6);
    }
    rig.run(s(300));
    let opened = notices(&mut rig);
    let [Notice::UpstreamOpened { failures, groups, .. }] = opened[..] else { panic!("{opened:?}") };
    assert!(failures >= 20 && (3..=4).contains(&groups), "{opened:?}");
    rig.answer = Box::new(|_, _| (ms(5), Ending::Success));
    rig.drain();
    let closed = notices(&mut rig);
    let [Notice::UpstreamClosed { after }] = closed[..] else { panic!("{closed:?}") };
    assert!(after >= s(295), "{after:?}");

    rig.answer = Box::new(|_, _| (ms(5), BAD));
    rig.append(&lane("alone"), 11);
    rig.run(s(2));
    let group = Group::of(&["alone"]);
    let opened = notices(&mut rig);
    assert!(
        matches!(&opened[..], [Notice::GroupOpened { group: whose, failures: 10, .. }] if *whose == group),
        "{opened:?}"
    );
    rig.answer = Box::new(|_, _| (ms(5), Ending::Success));
    rig.drain();
    let closed = notices(&mut rig);
    assert!(matches!(&closed[..], [Notice::GroupClosed { group: whose, .. }] if *whose == group), "{closed:?}");
}

#[test]
fn a_survey_calls_late_what_should_run_and_does_not() {
    let mut rig = Rig::new(Settings::default());
    rig.answer = Box::new(|dispatch, _| {
        let hangs = dispatch.lane.group.as_str() == "hangs";
        if hangs { (s(3_600), Ending::Success) } else { (ms(5), BAD) }
    });
    let now = rig.at();
    rig.engine.pause(&Group::of(&["paused"]), now);
    rig.append(&lane("paused"), 300);
    rig.append(&lane("fails"), 20);
    rig.append(&lane("hangs"), 12);
    rig.run(s(12));
    let survey = rig.engine.survey(s(10), s(60), rig.now);
    let names = |found: &Found| found.named.iter().map(|view| view.group.to_string()).collect::<Vec<_>>();
    assert_eq!((survey.late.count, names(&survey.late)), (1, vec!["hangs".to_owned()]));
    assert_eq!(names(&survey.broken), ["fails"]);
    let largest: Vec<_> = survey.largest.iter().map(|(group, events, _)| (group.to_string(), *events)).collect();
    assert_eq!(largest, [("fails".to_owned(), 20), ("hangs".to_owned(), 12)], "a paused group is none that holds much");
    assert_eq!((survey.pending, survey.unpaused), (332, 32));
    assert_eq!(survey.free, rig.engine.slots().free);
}
