//! Why events waited: each reason alone, several after one another, and that the parts add up whatever happens.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::rig::{Dice, Rig, inner, lane, ms};
use crate::engine::*;
use crate::event::{Group, Lane, Mono, Seq, WaitReason};

fn group(name: &str) -> Group {
    Group::of(&[name])
}

/// A rig that remembers every attempt.
fn rig(settings: Settings, policy: impl Fn(&Group) -> Policy + Send + 'static) -> Rig {
    let mut rig = Rig::with(settings, policy);
    rig.trace = Some(Vec::new());
    rig
}

fn plain(settings: Settings) -> Rig {
    rig(settings, |_| Policy::default())
}

/// No breaker of a group, and an upstream's that opens at the first failure.
fn one_failure_opens_the_upstreams() -> Settings {
    let mut settings = Settings::default();
    settings.breakers.group.failures = u32::MAX;
    settings.breakers.upstream.failures = 1;
    settings.breakers.upstream.groups = 1;
    settings
}

/// As the driver does it: the engine is told the time first.
fn pause_upstream(rig: &mut Rig, paused: bool) {
    let now = rig.at();
    rig.engine.on_timeout(now);
    rig.engine.set_upstream_paused(paused);
}

/// What the last attempt of this event had waited for.
fn split(rig: &Rig, seq: u64) -> String {
    let found = rig.trace.iter().flatten().rev().find(|(_, dispatch)| dispatch.seq == Seq(seq));
    found.map_or_else(|| "no attempt".to_owned(), |(_, dispatch)| dispatch.split.to_string())
}

/// That it waited for nothing else, and how long.
fn alone(rig: &Rig, seq: u64, reason: WaitReason) -> Duration {
    let all = rig.trace.iter().flatten().rev().find(|(_, dispatch)| dispatch.seq == Seq(seq)).unwrap();
    let parts = all.1.split.parts();
    assert!(matches!(&*parts, [(only, _)] if *only == reason), "{reason:?}: {parts:?}");
    parts[0].1
}

/// The first attempt of event 1 ends like this, all others are answered.
fn first(ending: Ending) -> impl FnMut(&Dispatch, Mono) -> (Duration, Ending) {
    move |dispatch, _| (ms(50), if dispatch.seq == Seq(1) && dispatch.attempt == 1 { ending } else { Ending::Success })
}

#[test]
fn an_event_that_goes_at_once_waited_for_nothing() {
    let mut rig = plain(Settings::default());
    rig.append(&lane("a"), 1);
    rig.drain();
    assert_eq!(split(&rig, 1), "none");
    assert!(rig.engine.waited(rig.now).parts().is_empty());
}

#[test]
fn behind_its_own_group_it_waits_for_its_lane_and_as_the_next_for_the_cap() {
    let mut rig = rig(Settings::default(), |_| Policy { concurrency: Some(1), ..Policy::default() });
    rig.append(&lane("a"), 4);
    rig.drain();
    assert_eq!(split(&rig, 2), "group_cap=50");
    assert_eq!(split(&rig, 3), "own_lane=50, group_cap=50");
    assert_eq!(split(&rig, 4), "own_lane=100, group_cap=50");
    assert_eq!(rig.view("a").waited.to_string(), "own_lane=150, group_cap=150");
    assert_eq!(rig.engine.waited(rig.now).to_string(), "own_lane=150, group_cap=150");
}

#[test]
fn lanes_of_one_group_are_its_own_lane_to_each_other() {
    let mut rig = rig(Settings::default(), |_| Policy { concurrency: Some(1), ..Policy::default() });
    rig.append(&inner("a", "products"), 1);
    rig.append(&inner("a", "carts"), 1);
    rig.append(&inner("a", "orders"), 1);
    rig.drain();
    assert_eq!(split(&rig, 3), "own_lane=50, group_cap=50");
}

#[test]
fn a_pause_holds_all_events_of_the_group_whatever_their_place() {
    let mut rig = rig(Settings::default(), |_| Policy { concurrency: Some(1), ..Policy::default() });
    let now = rig.at();
    rig.engine.pause(&group("a"), now);
    rig.append(&lane("a"), 3);
    rig.run(ms(500));
    let now = rig.at();
    rig.engine.resume(&group("a"), now);
    rig.drain();
    assert_eq!(split(&rig, 1), "group_paused=500");
    assert_eq!(split(&rig, 3), "group_paused=500, own_lane=50, group_cap=50");
}

#[test]
fn a_rate_a_retry_after_and_a_breaker_of_the_group() {
    let rate = Rate { events: 1, per: ms(1_000) };
    let mut limited = rig(Settings::default(), move |_| Policy { rate: Some(rate), ..Policy::default() });
    limited.append(&lane("a"), 2);
    limited.drain();
    assert!(alone(&limited, 2, WaitReason::GroupRate) >= ms(900));

    let asked = RetryAfter { delay: ms(2_000), scope: Scope::Group };
    let mut held =
        plain(Settings::default()).answering(first(Ending::Server { status: 429, retry_after: Some(asked) }));
    held.append(&lane("a"), 1);
    held.run(ms(60));
    held.append(&lane("a"), 1);
    held.drain();
    assert_eq!(alone(&held, 2, WaitReason::RetryAfter), ms(1_990));

    let mut settings = Settings::default();
    settings.breakers.group.failures = 1;
    let mut broken = plain(settings).answering(first(Ending::NoAnswer));
    broken.append(&lane("a"), 1);
    broken.run(ms(60));
    broken.append(&lane("a"), 1);
    broken.drain();
    assert_eq!(alone(&broken, 2, WaitReason::GroupBreaker), ms(4_990));
}

#[test]
fn slots_that_others_hold() {
    let mut rig = plain(Settings { slots: 1, ..Settings::default() });
    rig.append(&lane("a"), 1);
    rig.append(&lane("b"), 1);
    rig.append(&lane("c"), 1);
    rig.drain();
    assert_eq!(alone(&rig, 3, WaitReason::Slots), ms(100));
}

#[test]
fn a_group_whose_attempts_do_not_end_waits_as_a_slow_one() {
    let slots = Settings { slots: 4, ..Settings::default() };
    let mut rig = rig(slots, |_| Policy { concurrency: Some(4), ..Policy::default() })
        .answering(|_, _| (ms(10_000), Ending::Success));
    rig.append(&lane("a"), 3);
    rig.drain();
    assert_eq!(alone(&rig, 3, WaitReason::Slow), ms(10_000));
}

#[test]
fn a_retry_waits_from_its_due_time_and_for_a_slot_of_retries() {
    let mut settings = Settings { slots: 8, ..Settings::default() };
    settings.retry.concurrency = Some(1);
    settings.breakers.group.failures = u32::MAX;
    settings.breakers.upstream.failures = u32::MAX;
    let mut rig = plain(settings)
        .answering(|dispatch, _| (ms(5_000), if dispatch.attempt == 1 { Ending::NoAnswer } else { Ending::Success }));
    rig.append(&lane("a"), 1);
    rig.append(&lane("b"), 1);
    rig.drain();
    // Both fell due within 2.5 s, and the one that was first took 5 s.
    let retries: BTreeSet<String> = rig.trace.iter().flatten().skip(2).map(|(_, d)| d.split.to_string()).collect();
    assert!(retries.contains("none"), "{retries:?}");
    assert!(retries.iter().any(|text| text.starts_with("retry_slots=") && !text.contains(',')), "{retries:?}");
}

#[test]
fn the_upstreams_rate_pause_and_breaker() {
    let mut limited = plain(Settings { rate: Some(Rate { events: 1, per: ms(1_000) }), ..Settings::default() });
    limited.append(&lane("a"), 1);
    limited.append(&lane("b"), 1);
    limited.drain();
    assert_eq!(alone(&limited, 2, WaitReason::UpstreamRate), ms(900));

    let mut paused = plain(Settings::default());
    pause_upstream(&mut paused, true);
    paused.append(&lane("a"), 1);
    paused.run(ms(500));
    pause_upstream(&mut paused, false);
    paused.drain();
    assert_eq!(alone(&paused, 1, WaitReason::UpstreamPaused), ms(500));

    let mut broken = plain(one_failure_opens_the_upstreams()).answering(first(Ending::NoAnswer));
    broken.append(&lane("a"), 1);
    broken.run(ms(60));
    broken.append(&lane("a"), 1);
    broken.drain();
    assert_eq!(alone(&broken, 2, WaitReason::UpstreamBreaker), ms(4_990));
}

#[test]
fn an_earlier_event_of_its_order_key() {
    let mut rig = plain(Settings::default());
    rig.append_as(&lane("a"), 3, Some("conversation"), false);
    rig.drain();
    assert_eq!(alone(&rig, 2, WaitReason::Order), ms(50));
    assert_eq!(alone(&rig, 3, WaitReason::Order), ms(100));
}

#[test]
fn what_was_before_the_start_is_not_known_and_reading_takes_time() {
    let mut rig = plain(Settings::default());
    let now = rig.at();
    let event = rig.store.append(&lane("a"), None, None, false, now.wall);
    rig.now = rig.now.plus(ms(1_000));
    let now = rig.at();
    rig.engine.on_recovered(&lane("a"), 1, 0, event.received, now);
    let load = rig.engine.poll_request(now);
    assert!(matches!(load, Some(Request::Load { .. })), "{load:?}");
    assert_eq!(rig.engine.poll_request(now), None);
    rig.now = rig.now.plus(ms(200));
    let now = rig.at();
    rig.engine.on_loaded(&lane("a"), vec![event], false, now);
    rig.drain();
    assert_eq!(split(&rig, 1), "before_restart=1000, store=200");
}

#[test]
fn time_in_which_nobody_asked_the_engine_is_the_gateways_own() {
    let mut rig = plain(Settings::default());
    rig.append(&lane("a"), 1);
    rig.now = rig.now.plus(ms(5));
    rig.drain();
    assert_eq!(split(&rig, 1), "gateway=5");
}

#[test]
fn an_idle_group_keeps_nothing_and_what_it_stood_still_for_before_an_event_came_is_not_that_events() {
    let mut rig = rig(Settings::default(), |_| Policy { concurrency: Some(1), ..Policy::default() });
    rig.append(&lane("a"), 1);
    rig.run(ms(40));
    // The group is at its cap since 40 ms.
    rig.append(&lane("a"), 1);
    rig.drain();
    assert_eq!(split(&rig, 2), "group_cap=10");
}

#[test]
fn a_live_request_is_told_what_it_waited_for() {
    let mut rig = rig(Settings::default(), |_| Policy { concurrency: Some(1), ..Policy::default() });
    rig.append(&lane("a"), 1);
    rig.run(ms(10));
    rig.call("a", ms(60_000)).unwrap();
    rig.drain();
    rig.run(ms(100));
    assert_eq!(rig.engine.waited(rig.now).to_string(), "group_cap=40");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever fails, is paused, capped, limited, ordered, retried and held: the parts of each wait add up to it.
    #[test]
    fn the_parts_add_up_to_the_wait(
        events in prop::collection::vec((0usize..5, prop::option::weighted(0.4, 0u32..4), 0u64..200), 1..120),
        pauses in prop::collection::vec((0usize..4, 0u64..3_000), 0..12),
        slots in 1u32..6,
        window in 2usize..20,
        bad in 0u32..60,
        rated in any::<bool>(),
        seed in 1u64..1_000_000,
    ) {
        let mut settings = Settings { slots, window, ..Settings::default() };
        settings.rate = rated.then_some(Rate { events: 40, per: ms(1_000) });
        settings.breakers.group.failures = 4;
        settings.breakers.upstream.failures = 6;
        settings.retry.backoff.initial = ms(300);
        let mut dice = Dice(seed);
        let mut rig = rig(settings, |group| Policy {
            concurrency: (group.as_str() == "b").then_some(1),
            rate: (group.as_str() == "c").then_some(Rate { events: 5, per: ms(1_000) }),
            ..Policy::default()
        }).answering(move |_, _| {
            let asked = RetryAfter { delay: ms(700), scope: Scope::Auto };
            let ending = match dice.unit() * 100.0 {
                dice if dice >= f64::from(bad) => Ending::Success,
                dice if dice < 10.0 => Ending::Server { status: 503, retry_after: Some(asked) },
                _ => Ending::NoAnswer,
            };
            (dice.between(ms(1), ms(300)), ending)
        });
        let lanes: [Lane; 5] = [lane("a"), inner("a", "x"), lane("b"), lane("c"), lane("d")];
        for (place, (index, key, gap)) in events.iter().enumerate() {
            rig.append_as(&lanes[*index], 1, key.map(|key| format!("k{key}")).as_deref(), false);
            rig.run(ms(*gap + 1));
            if let Some((whose, long)) = pauses.get(place) {
                let (now, name) = (rig.at(), ["a", "b", "c", "the upstream"][*whose]);
                match *whose {
                    3 => pause_upstream(&mut rig, true),
                    _ => rig.engine.pause(&group(name), now),
                }
                rig.run(ms(*long + 1));
                let now = rig.at();
                match *whose {
                    3 => pause_upstream(&mut rig, false),
                    _ => rig.engine.resume(&group(name), now),
                }
            }
        }
        rig.drain();
        prop_assert!(rig.engine.check_invariants().is_ok());
        for (_, dispatch) in rig.trace.iter().flatten() {
            prop_assert_eq!(dispatch.split.total(), dispatch.wait, "{:?}", dispatch);
            prop_assert!(dispatch.split.iter().all(|(reason, _)| reason != WaitReason::BeforeRestart));
        }
    }
}
