//! R12: who gets slots of its own and when, what the others notice, and what is refused.

use std::collections::BTreeSet;
use std::time::Duration;

use super::rig::{Dice, Rig, inner, lane, ms, quantile};
use crate::engine::*;
use crate::event::Group;

const MINUTE: Duration = Duration::from_mins(1);

/// 64 slots, of which two groups may have eight each.
fn settings() -> Settings {
    let standard = Settings::default();
    Settings { dedicated: Dedicated { max: 2, ..standard.dedicated }, ..standard }
}

/// Who stood how, in order.
fn moves(rig: &mut Rig) -> Vec<(String, Dedication)> {
    let mut moves = Vec::new();
    while let Some(notice) = rig.engine.poll_notice() {
        if let Notice::Dedication { group, to, .. } = notice {
            moves.push((group.to_string(), to));
        }
    }
    moves
}

fn promotions(moves: &[(String, Dedication)]) -> usize {
    let pairs = moves.iter().scan(std::collections::BTreeMap::new(), |last, (group, to)| {
        let from = last.insert(group.clone(), *to).unwrap_or(Dedication::Steady);
        Some(!from.has_slots() && to.has_slots())
    });
    pairs.filter(|promoted| *promoted).count()
}

/// Lets events of `name` come for `span`, `demand` (of 64 slots, by the time since the beginning) in calls of 2 s.
fn flows(rig: &mut Rig, name: &str, span: Duration, demand: impl Fn(Duration) -> f64) {
    let (lane, begin) = (lane(name), rig.now);
    let mut dice = Dice(7);
    let mut at = Duration::ZERO;
    while at < span {
        let rate = demand(at) * 64.0 / 2.0;
        if rate > 0.0 {
            at += dice.exponential(Duration::from_secs_f64(1.0 / rate));
            rig.arrive_at(&lane, begin.plus(at));
        } else {
            at += Duration::from_secs(1);
        }
    }
}

fn calls_of_2_s(rig: Rig) -> Rig {
    let mut dice = Dice(3);
    rig.answering(move |_, _| (dice.between(ms(1_500), ms(2_500)), Ending::Success))
}

#[test]
fn a_group_that_goes_up_and_down_around_the_share_is_promoted_at_most_once_in_an_hour() {
    let mut rig = calls_of_2_s(Rig::new(settings()));
    let wave = |at: Duration| 0.3 + 0.1 * (at.as_secs_f64() / 240.0 * std::f64::consts::TAU).sin();
    flows(&mut rig, "hot", 60 * MINUTE, wave);
    rig.run(60 * MINUTE);
    let moves = moves(&mut rig);
    assert!(promotions(&moves) <= 1, "{moves:?}");
    assert!(moves.iter().any(|(_, to)| *to == Dedication::Watching), "it came near: {moves:?}");
}

#[test]
fn a_group_at_twice_the_share_with_a_growing_backlog_is_promoted_within_sixteen_minutes_and_not_before_fifteen() {
    let mut rig = calls_of_2_s(Rig::new(settings()));
    flows(&mut rig, "hot", 20 * MINUTE, |_| 0.6);
    rig.run(15 * MINUTE);
    let before = moves(&mut rig);
    assert_eq!(before, [("hot".to_owned(), Dedication::Watching)]);
    assert!(rig.view("hot").queued > 1_000, "{:?}", rig.view("hot"));
    rig.run(MINUTE);
    assert_eq!(moves(&mut rig), [("hot".to_owned(), Dedication::Promoted)]);
    let view = rig.view("hot");
    assert_eq!((view.state, view.concurrency, view.in_flight), (State::Dedicated, 8, 8));
    let dedicated = view.dedicated.unwrap();
    assert_eq!((dedicated.state, dedicated.slots, dedicated.shed_above), (Dedication::Promoted, 8, None));
    assert!((0.5..0.7).contains(&dedicated.demand), "{dedicated:?}");
    assert_eq!(rig.engine.slots().dedicated, 8);
    rig.engine.check_invariants().unwrap();
}

#[test]
fn without_a_growing_backlog_or_with_a_cap_that_somebody_chose_nobody_is_promoted() {
    // 0.4 of 64 slots fit into a cap of 32; the other one's is chosen for it, and it would grow.
    let policy = |group: &Group| match group.as_str() {
        "hot" => Policy { concurrency: Some(32), ..Policy::default() },
        _ => Policy { concurrency: Some(2), chosen: true, ..Policy::default() },
    };
    let mut rig = calls_of_2_s(Rig::with(settings(), policy));
    flows(&mut rig, "hot", 40 * MINUTE, |_| 0.4);
    flows(&mut rig, "chosen", 40 * MINUTE, |_| 0.4);
    rig.run(40 * MINUTE);
    let moves = moves(&mut rig);
    assert_eq!(promotions(&moves), 0, "{moves:?}");
    assert!(rig.view("chosen").dedicated.is_none());
    assert_eq!(rig.view("hot").dedicated.unwrap().state, Dedication::Watching);
}

#[test]
fn slots_are_given_back_an_hour_after_the_demand_fell_and_not_while_it_comes_back() {
    let mut rig = calls_of_2_s(Rig::new(settings()));
    // It falls to a tenth of what promotes for half an hour, comes back for a while, and then stays away.
    let demand = |at: Duration| match at.as_secs() / 60 {
        0..20 | 50..55 => 0.6,
        _ => 0.01,
    };
    flows(&mut rig, "hot", 130 * MINUTE, demand);
    rig.run(110 * MINUTE);
    let moves_before = moves(&mut rig);
    let states: Vec<_> = moves_before.iter().map(|(_, to)| *to).collect();
    use Dedication::{Cooling, Promoted, Steady, Watching};
    assert_eq!(states, [Watching, Promoted, Cooling, Promoted, Cooling]);
    rig.run(20 * MINUTE);
    assert_eq!(moves(&mut rig), [("hot".to_owned(), Steady)]);
    assert_eq!((rig.engine.slots().dedicated, rig.view("hot").dedicated), (0, None));
    rig.engine.check_invariants().unwrap();
}

/// Waits of fifty quiet groups and twelve busy ones beside one that demands more than half of the slots: five minutes before it is
/// promoted, and five after.
#[test]
fn others_do_not_notice_that_a_group_is_promoted() {
    let mut calls = Dice(3);
    let mut rig = Rig::new(settings()).answering(move |_, _| (calls.between(ms(375), ms(625)), Ending::Success));
    let (begin, mut dice) = (rig.now, Dice(5));
    // Of the 64 slots 35, 38 and 2.
    for (kind, groups, each) in [("busy", 12, ms(174)), ("hot", 1, ms(13)), ("quiet", 50, ms(12_000))] {
        for n in 0..groups {
            let mut at = begin;
            while at < begin.plus(12 * MINUTE) {
                at = at.plus(dice.exponential(each));
                rig.arrive_at(&lane(&format!("{kind}{n}")), at);
            }
        }
    }
    let waits = |rig: &mut Rig, kind: &str| {
        let all = rig.got.iter_mut().filter(|(group, _)| group.as_str().starts_with(kind));
        let mut waits: Vec<Duration> = all.flat_map(|(_, got)| std::mem::take(&mut got.waits)).collect();
        quantile(&mut waits, 0.99)
    };
    let all_waits = |rig: &mut Rig| ["quiet", "busy"].map(|kind| waits(rig, kind));
    rig.run(5 * MINUTE);
    let (before, delivered_before) = (all_waits(&mut rig), rig.got("hot0").delivered);
    rig.engine.restore_promoted(vec![Group::of(&["hot0"])], rig.at());
    rig.run(MINUTE);
    let (_between, delivered) = (all_waits(&mut rig), rig.got("hot0").delivered);
    rig.run(5 * MINUTE);
    let (after, delivered_after) = (all_waits(&mut rig), rig.got("hot0").delivered - delivered);
    super::rig::row(
        "p99 of quiet and busy groups before one was promoted, and after",
        &format!("{before:?} {after:?}"),
    );
    for (before, after) in before.into_iter().zip(after) {
        assert!(after <= before + ms(50), "longer by more than a tenth of a call: {before:?} {after:?}");
    }
    assert!(delivered_after as f64 >= delivered_before as f64 * 0.98, "{delivered_before} {delivered_after}");
}

#[test]
fn promoted_groups_keep_their_slots_under_a_flood_of_others_and_take_none_of_theirs() {
    let mut rig = calls_of_2_s(Rig::new(settings()));
    rig.engine.restore_promoted(vec![Group::of(&["hot"])], rig.at());
    rig.refill = Some(Box::new(|_| true));
    rig.append(&lane("hot"), 100);
    for n in 0..20 {
        rig.append(&lane(&format!("flood{n}")), 100);
    }
    rig.run(ms(60_000));
    rig.engine.check_invariants().unwrap();
    let slots = rig.engine.slots();
    assert_eq!((slots.busy, slots.dedicated, slots.free), (64, 8, 0));
    assert_eq!((rig.view("hot").in_flight, rig.got("hot").most_in_flight), (8, 8));
    // 8 slots for one, 56 for twenty: nobody of the twenty has less than its part of 56.
    let part = rig.got("hot").worker_us as f64 / 8.0;
    for n in 0..20 {
        let worked = rig.got(&format!("flood{n}")).worker_us as f64;
        assert!((worked / (part * 56.0 / 20.0) - 1.0).abs() < 0.05, "{n}: {worked} of {part}");
    }
}

#[test]
fn a_promoted_group_that_goes_back_owes_nothing_and_has_no_head_start_beyond_one_burst() {
    let mut rig = calls_of_2_s(Rig::new(settings()));
    rig.engine.restore_promoted(vec![Group::of(&["hot"])], rig.at());
    rig.refill = Some(Box::new(|_| true));
    for n in 0..20 {
        rig.append(&lane(&format!("flood{n}")), 100);
    }
    rig.append(&lane("hot"), 100);
    rig.run(5 * MINUTE);
    let off = Settings { dedicated: Dedicated { max: 0, ..settings().dedicated }, ..settings() };
    rig.engine.set_settings(off, rig.at());
    rig.engine.check_invariants().unwrap();
    let before = rig.got("hot").worker_us;
    rig.run(5 * MINUTE);
    rig.engine.check_invariants().unwrap();
    let share = (rig.got("hot").worker_us - before) as f64 / (300.0 * 64e6);
    assert!((share - 1.0 / 21.0).abs() < 0.004, "{share}");
}

#[test]
fn where_a_rate_binds_a_promoted_group_has_its_part_first_and_what_is_left_over_after_the_others() {
    let run = |floods: usize| {
        let settings = Settings { rate: Some(Rate { events: 64, per: Duration::from_secs(1) }), ..settings() };
        let mut rig = Rig::new(settings).answering(|_, _| (ms(20), Ending::Success));
        rig.engine.restore_promoted(vec![Group::of(&["hot"])], rig.at());
        rig.refill = Some(Box::new(|_| true));
        rig.append(&lane("hot"), 50);
        for n in 0..floods {
            rig.append(&lane(&format!("flood{n}")), 50);
        }
        rig.run(2 * MINUTE);
        rig.engine.check_invariants().unwrap();
        rig.got("hot").delivered as f64 / 120.0
    };
    assert!((7.5..8.5).contains(&run(20)), "an eighth of 64 a second: {}", run(20));
    assert!(run(0) > 60.0, "alone it has all of it: {}", run(0));
}

#[test]
fn a_third_group_waits_for_slots_that_are_given_back() {
    let mut rig = calls_of_2_s(Rig::new(Settings {
        dedicated: Dedicated { max: 1, demote_after: 5 * MINUTE, ..settings().dedicated },
        ..settings()
    }));
    flows(&mut rig, "first", 20 * MINUTE, |_| 0.6);
    flows(&mut rig, "second", 45 * MINUTE, |at| if at < 2 * MINUTE { 0.0 } else { 0.5 });
    rig.run(20 * MINUTE);
    assert_eq!(rig.view("first").dedicated.unwrap().state, Dedication::Promoted);
    assert_eq!(rig.view("second").dedicated.unwrap().state, Dedication::NoLane);
    assert_eq!(rig.view("second").state, State::Capped);
    let info = rig.engine.dedicated(rig.now);
    assert!(info.at_ceiling && info.taken == 8 && info.groups.len() == 2, "{info:?}");
    rig.run(10 * MINUTE);
    assert_eq!(rig.view("second").dedicated.unwrap().state, Dedication::Promoted);
    rig.engine.check_invariants().unwrap();
}

/// What comes while a group is not held up: 0.6 of the slots, each asked for first.
fn floods(rig: &mut Rig, name: &str, span: Duration) -> (u64, u64) {
    let (mut taken, mut refused) = (0, 0);
    let end = rig.now.plus(span);
    let group = Group::of(&[name]);
    while rig.now < end {
        for _ in 0..19 {
            match rig.engine.admit(&group, rig.at()) {
                Ok(admitted) => {
                    rig.engine.on_came(&group, admitted);
                    rig.append(&lane(name), 1);
                    taken += 1;
                }
                Err(excess) => {
                    assert_eq!(excess.over, Over::Outgrown);
                    assert!((1..=3_600).contains(&excess.again.as_secs()), "{excess:?}");
                    refused += 1;
                }
            }
        }
        rig.run(Duration::from_secs(1));
    }
    (taken, refused)
}

#[test]
fn with_shed_what_a_promoted_group_goes_on_growing_by_is_refused_and_no_more() {
    let mut rig = calls_of_2_s(Rig::new(Settings { shed: true, ..settings() }));
    let (_, refused) = floods(&mut rig, "hot", 30 * MINUTE);
    assert_eq!(refused, 0, "nothing before it has been promoted for as long again");
    let (taken, refused) = floods(&mut rig, "hot", 20 * MINUTE);
    let view = rig.view("hot");
    let above = view.dedicated.as_ref().unwrap().shed_above.unwrap();
    let waiting = view.queued + view.retrying;
    assert!((above - 20..=above).contains(&waiting), "as large as it was, and no larger: {waiting} of {above}");
    // 8 slots of calls of 2 s take 4 a second; 19 came.
    assert!((3_900..6_500).contains(&taken) && refused > 16_000, "{taken} {refused}");
    assert!(view.dedicated.unwrap().demand > 0.5, "what is refused is still demanded");
    // It stays away: at half of that nothing is refused any more.
    rig.run(Duration::from_secs(above / 2 / 4 + 120));
    assert_eq!(rig.view("hot").dedicated.unwrap().shed_above, None);
}

#[test]
fn what_is_on_its_way_to_the_disk_counts_when_the_bound_is_set() {
    let mut rig = calls_of_2_s(Rig::new(Settings { shed: true, ..settings() }));
    let group = Group::of(&["hot"]);
    let mut on_their_way: Vec<Admitted> = Vec::new();
    let mut bounded = 0;
    for _ in 0..60 * 60 {
        // A batch takes a second to become durable, while the next one gathers.
        let come: Vec<Admitted> = (0..19).filter_map(|_| rig.engine.admit(&group, rig.at()).ok()).collect();
        for admitted in std::mem::replace(&mut on_their_way, come) {
            rig.engine.on_came(&group, admitted);
            rig.append(&lane("hot"), 1);
        }
        rig.run(Duration::from_secs(1));
        let view = rig.view("hot");
        if let Some(above) = view.dedicated.and_then(|dedicated| dedicated.shed_above) {
            assert!(view.queued + view.retrying <= above, "{} of {above}", view.queued);
            bounded += 1;
        }
    }
    assert!(bounded > 600, "{bounded} s with a bound");
}

#[test]
fn with_shed_a_group_without_a_lane_is_refused_at_once_and_nobody_without_shed() {
    let one = Dedicated { max: 1, ..settings().dedicated };
    for shed in [true, false] {
        let mut rig = calls_of_2_s(Rig::new(Settings { shed, dedicated: one, ..settings() }));
        rig.engine.restore_promoted(vec![Group::of(&["other"])], rig.at());
        flows(&mut rig, "other", 30 * MINUTE, |_| 0.2);
        let (_, refused) = floods(&mut rig, "hot", 17 * MINUTE);
        let dedicated = rig.view("hot").dedicated.unwrap();
        assert_eq!(dedicated.state, Dedication::NoLane);
        assert_eq!((refused > 0, dedicated.shed_above.is_some()), (shed, shed));
        assert!(rig.engine.admit(&Group::of(&["quiet"]), rig.at()).is_ok());
    }
}

#[test]
fn a_group_that_is_paused_or_an_upstream_that_is_away_promotes_nobody() {
    for upstream in [false, true] {
        let mut rig = calls_of_2_s(Rig::new(Settings { shed: true, ..settings() }));
        flows(&mut rig, "hot", 40 * MINUTE, |_| 0.6);
        rig.run(5 * MINUTE);
        if upstream {
            rig.engine.set_upstream_paused(true);
        } else {
            rig.engine.pause(&Group::of(&["hot"]), rig.at());
        }
        rig.run(34 * MINUTE);
        assert_eq!(promotions(&moves(&mut rig)), 0);
    }
}

#[test]
fn fewer_slots_or_another_cap_take_dedicated_ones_back_at_once() {
    let mut rig = calls_of_2_s(Rig::with(settings(), |group| Policy {
        concurrency: (group.as_str() == "chosen").then_some(3),
        chosen: group.as_str() == "chosen",
        ..Policy::default()
    }));
    let names: Vec<Group> = ["a", "b", "c", "chosen"].iter().map(|name| Group::of(&[name])).collect();
    rig.engine.restore_promoted(names, rig.at());
    assert_eq!(rig.engine.promoted(), [Group::of(&["a"]), Group::of(&["b"])]);
    rig.refill = Some(Box::new(|_| true));
    for name in ["a", "b", "c"] {
        rig.append(&lane(name), 30);
    }
    rig.run(ms(5_000));
    for (slots, left) in [(32, 2), (31, 1), (15, 0)] {
        rig.engine.set_settings(Settings { slots, ..settings() }, rig.at());
        rig.engine.check_invariants().unwrap();
        assert_eq!(rig.engine.promoted().len(), left, "{slots}");
        rig.run(ms(2_000));
    }
    rig.engine.set_settings(settings(), rig.at());
    rig.engine.restore_promoted(vec![Group::of(&["c"])], rig.at());
    let group = Group::of(&["c"]);
    rig.engine.set_policies(Box::new(|_| Policy { concurrency: Some(2), chosen: true, ..Policy::default() }), rig.at());
    assert!(rig.engine.promoted().is_empty());
    assert_eq!(rig.view(group.as_str()).concurrency, 2);
    rig.refill = None;
    rig.drain();
}

/// The invariants in random schedules with promotions on: `SCHEDULES=10000` for as many.
#[test]
fn random_schedules_keep_the_invariants() {
    let schedules = std::env::var("SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let (mut promoted, mut demoted, mut none_free) = (0, 0, 0);
    for seed in 1..=schedules {
        let seen = schedule(seed);
        promoted += usize::from(seen.contains(&Dedication::Promoted));
        demoted += usize::from(seen.contains(&Dedication::Steady));
        none_free += usize::from(seen.contains(&Dedication::NoLane));
    }
    super::rig::row(
        "random schedules: promoted, given back, none free",
        &format!("{promoted} {demoted} {none_free} of {schedules}"),
    );
    let enough = schedules as usize / 10;
    assert!(promoted > enough && demoted > enough && none_free > enough / 4, "{promoted} {demoted} {none_free}");
}

fn schedule(seed: u64) -> BTreeSet<Dedication> {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut below = move |n: u64| (dice.unit() * n as f64) as u64;
    let slots = 4 + below(12) as u32;
    let each = (1 + below(2) as u32).min(slots / 2);
    let mut settings = Settings { slots, shed: below(2) == 0, window: 4 + below(8) as usize, ..Settings::default() };
    settings.dedicated = Dedicated {
        max: 1 + below(3) as u32,
        slots: each,
        promote_share: 0.2,
        demote_share: 0.1,
        promote_after: ms(1_000),
        demote_after: ms(1_000),
    };
    settings.slow.after = ms(200);
    settings.retry.backoff.initial = ms(300);
    if below(4) == 0 {
        settings.rate = Some(Rate { events: 40, per: Duration::from_secs(1) });
    }
    let bad = [0, 0, 5, 30][below(4) as usize];
    let mut outcomes = Dice(seed ^ 0xABCD);
    let mut rig = Rig::new(settings.clone()).answering(move |_, _| {
        let fails = outcomes.unit() * 100.0 < f64::from(bad);
        (outcomes.between(ms(20), ms(300)), if fails { Ending::NoAnswer } else { Ending::Success })
    });
    let mut seen = BTreeSet::new();
    let names = ["a", "b", "c", "d", "e"];
    let hot = [below(5) as usize, below(5) as usize];
    for step in 0..100 {
        match below(60) {
            0 => rig.engine.set_settings(Settings { slots: 4 + below(12) as u32, ..settings.clone() }, rig.at()),
            1 => rig.engine.pause(&Group::of(&[names[below(5) as usize]]), rig.at()),
            2..9 => names.iter().for_each(|name| rig.engine.resume(&Group::of(&[name]), rig.at())),
            9 => {
                let cap = Policy { concurrency: Some(1), chosen: true, ..Policy::default() };
                let policies = move |group: &Group| if group.as_str() == "a" { cap } else { Policy::default() };
                rig.engine.set_policies(Box::new(policies), rig.at());
            }
            10..13 => rig.engine.set_policies(Box::new(|_| Policy::default()), rig.at()),
            13 => {
                rig.engine.cancel(&Group::of(&[names[hot[0]]]), rig.at());
            }
            14..18 => {
                let _called = rig.call(names[below(5) as usize], ms(500));
            }
            _ => {}
        }
        // Two flood for the first two thirds, the others trickle.
        let flood = step < 65;
        for (name, most) in [(hot[0], 4), (hot[1], 3), (below(5) as usize, 1)] {
            let count = if flood || most == 1 { below(most + 1) } else { 0 };
            for _ in 0..count {
                comes(&mut rig, names[name], below(720), settings.shed);
            }
        }
        rig.run(ms(20 + below(60)));
        rig.engine.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let (now, held) = (rig.engine.slots(), rig.engine.dedicated(rig.now));
        assert!(held.taken <= 15 / 2 && now.dedicated == held.taken, "seed {seed}: {now:?}");
        seen.extend(moves(&mut rig).into_iter().map(|(_, to)| to));
    }
    names.iter().for_each(|name| rig.engine.resume(&Group::of(&[name]), rig.at()));
    rig.drain();
    rig.engine.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    seen.extend(moves(&mut rig).into_iter().map(|(_, to)| to));
    seen
}

/// One event where its group has room for it: of the group's own lane or of an inner one, with an order key or as a replay.
fn comes(rig: &mut Rig, name: &str, dice: u64, sheds: bool) {
    let group = Group::of(&[name]);
    let to = if dice.is_multiple_of(4) { inner(name, "x") } else { lane(name) };
    match rig.engine.admit(&group, rig.at()) {
        Ok(admitted) => {
            rig.engine.on_came(&group, admitted);
            rig.append_as(&to, 1, (dice.is_multiple_of(5)).then_some("k"), dice.is_multiple_of(9));
        }
        Err(excess) => assert!(sheds && excess.over == Over::Outgrown, "{excess:?}"),
    }
}

#[test]
fn the_same_schedule_gives_the_same_trace() {
    let run = || {
        let mut rig = calls_of_2_s(Rig::new(settings()));
        rig.trace = Some(Vec::new());
        flows(&mut rig, "hot", 17 * MINUTE, |_| 0.4);
        flows(&mut rig, "other", 17 * MINUTE, |_| 0.1);
        rig.run(17 * MINUTE);
        assert_eq!(promotions(&moves(&mut rig)), 1);
        rig.trace.take().unwrap()
    };
    assert!(run() == run());
}

#[test]
fn a_cap_of_the_backlog_is_exact_however_many_come_at_once() {
    let mut rig = Rig::with(Settings::default(), |group| Policy {
        backlog: (group.as_str() == "capped").then_some(10),
        paused: group.as_str() == "capped",
        ..Policy::default()
    });
    let (capped, free) = (Group::of(&["capped"]), Group::of(&["free"]));
    let now = rig.at();
    // Twenty-five at once, none of them durable yet.
    let mut admitted: Vec<Admitted> = (0..25).filter_map(|_| rig.engine.admit(&capped, now).ok()).collect();
    assert_eq!(admitted.len(), 10);
    let excess = rig.engine.admit(&capped, now).unwrap_err();
    // A paused group does not fall.
    assert_eq!((excess.over, excess.again), (Over::Backlog, Duration::from_secs(3_600)));
    assert!((0..1_000).all(|_| rig.engine.admit(&free, now).is_ok()));
    // Three could not be written: so many more may come.
    admitted.drain(..3).for_each(|admitted| rig.engine.on_came(&capped, admitted));
    assert_eq!((0..25).filter_map(|_| rig.engine.admit(&capped, now).ok()).count(), 3);
    admitted.into_iter().for_each(|admitted| rig.engine.on_came(&capped, admitted));
    rig.append(&lane("capped"), 7);
    assert!(rig.engine.admit(&capped, now).is_err(), "seven are here and three on their way");
    assert_eq!(rig.view("capped").backlog, Some(10));
    assert_eq!(rig.engine.admit(&capped, now).unwrap_err().again, Duration::from_secs(3_600));
}

#[test]
fn when_to_come_again_is_by_the_present_pace() {
    let mut rig = Rig::with(Settings::default(), |_| Policy { backlog: Some(500), ..Policy::default() })
        .answering(|_, _| (ms(400), Ending::Success));
    let group = Group::of(&["g"]);
    rig.append(&lane("g"), 3_000);
    // Nothing has ended: 8 slots of calls that are guessed at 50 ms.
    assert_eq!(rig.engine.admit(&group, rig.at()).unwrap_err().again.as_secs(), 15);
    rig.run(MINUTE);
    // 8 slots of calls of 400 ms: 20 a second, of some 1800 that wait.
    let again = rig.engine.admit(&group, rig.at()).unwrap_err().again.as_secs();
    assert!((60..75).contains(&again), "{again}");
    // Its pace of before says nothing of a group that is paused.
    let now = rig.at();
    rig.engine.pause(&group, now);
    assert_eq!(rig.engine.admit(&group, now).unwrap_err().again, Duration::from_secs(3_600));
    rig.engine.resume(&group, now);
    rig.run(Duration::from_secs(again + 2));
    assert!(rig.engine.admit(&group, rig.at()).is_ok());
}
