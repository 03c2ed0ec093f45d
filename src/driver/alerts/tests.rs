//! Each alert in virtual time: it fires when its condition has held, once, and resolves when it is gone, once.

use std::time::Duration;

use super::board::Board;
use super::catalog::{Kind, reference};
use super::facts::{Facts, History, SourceFacts};
use super::judge::judge;
use super::*;
use crate::deliver::{AddressState, AddressView};
use crate::engine::{BreakerState, DedicatedInfo, DedicatedView, Dedication, Engine, Found, GroupView, Survey};
use crate::event::{Group, Mono, Now};
use crate::store::{SpoolUsage, Usage};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const MIN: u64 = 60;
const HOUR: u64 = 3_600;

/// A node on which all is well, and time that the test moves.
struct World {
    facts: Facts,
    settings: Settings,
    history: History,
    board: Board,
    now: Now,
    /// What fired (`+name`) and resolved (`-name`), in order.
    heard: Vec<String>,
}

fn world() -> World {
    let survey = Survey {
        late: Found::default(),
        broken: Found::default(),
        held: Found::default(),
        largest: Vec::new(),
        pending: 0,
        unpaused: 0,
        overdue: 0,
        demand: 0.0,
        slots: 64,
        free: 8,
        dedicated: DedicatedInfo::default(),
        breaker: BreakerState::Closed,
        violations: 0,
        last_violation: None,
    };
    let facts = Facts {
        survey: Some(survey),
        beat_age: Duration::ZERO,
        sources: Vec::new(),
        room: Usage::UNLIMITED,
        room_bytes: Usage::UNLIMITED,
        silent: Duration::ZERO,
        spool: None,
        config_ok: true,
        addresses: Vec::new(),
    };
    World {
        facts,
        settings: Settings::default(),
        history: History::default(),
        board: Board::default(),
        now: Now { mono: Mono(HOUR * 1_000_000), wall: Wall::from_unix_s(1_800_000_000) },
        heard: Vec::new(),
    }
}

impl World {
    fn survey(&mut self) -> &mut Survey {
        self.facts.survey.as_mut().unwrap()
    }

    /// One look.
    fn look(&mut self) {
        self.history.see(&self.facts, self.now);
        let judgement = judge(&self.facts, &self.history, &self.settings, &self.board, self.now);
        let judged = |kind| !judgement.unknown.contains(&kind);
        for alert in self.board.see(judgement.findings, judged, &self.settings, self.now) {
            let sign = if alert.resolved.is_some() { '-' } else { '+' };
            let subject = alert.subject.as_ref().map_or_else(String::new, |subject| format!(" {subject}"));
            self.heard.push(format!("{sign}{}{subject}", alert.name));
        }
    }

    /// Looks every two seconds for so long.
    fn run(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds.div_ceil(2) {
            self.now = Now { mono: self.now.mono.plus(s(2)), wall: self.now.wall.plus(s(2)) };
            self.look();
        }
        self
    }

    fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.heard)
    }

    fn source(&mut self) -> &mut SourceFacts {
        if self.facts.sources.is_empty() {
            self.facts.sources.push(SourceFacts { name: "shop".into(), has_key: true, ..SourceFacts::default() });
        }
        &mut self.facts.sources[0]
    }
}

fn view(name: &str, oldest: u64) -> GroupView {
    let engine = Engine::new(crate::engine::Settings::default(), Box::new(|_| crate::engine::Policy::default()), 1);
    GroupView { oldest: s(oldest), queued: 7, ..engine.group(&Group::from_written(name).unwrap(), Mono(1)) }
}

/// Addresses of the upstream, by whether each is left out.
fn addresses(out: &[bool]) -> Vec<AddressView> {
    let view = |(n, out): (usize, &bool)| AddressView {
        address: format!("http://10.0.0.{n}").into(),
        weight: 1,
        state: if *out { AddressState::Ejected(s(5)) } else { AddressState::Used },
        share: f64::from(!*out),
        in_flight: 0,
        failures: 0,
        check: None,
        last_failure: out.then(|| (Wall(0), "connection refused".into())),
    };
    out.iter().enumerate().map(view).collect()
}

fn found(views: Vec<GroupView>) -> Found {
    Found { count: views.len() as u64, named: views }
}

/// What waits: for each shard of 64 and number of events a group of its own, the largest first, as `event::shard` lays them out.
fn laid_out(w: &mut World, groups: Vec<(u16, u64)>) {
    let mut unused: Vec<Group> = (0..4_000).map(|n| Group::of(&[format!("s{n}")])).collect();
    let mut of_shard = |number| {
        let at = unused.iter().position(|group| crate::event::shard(group, 64) == number).unwrap();
        unused.swap_remove(at)
    };
    let survey = w.survey();
    survey.unpaused = groups.iter().map(|(_, events)| events).sum();
    survey.largest = groups.into_iter().map(|(shard, events)| (of_shard(shard), events, s(400))).collect();
}

fn spool(events: u64) -> SpoolUsage {
    SpoolUsage { events, room_bytes: 1 << 30, ..SpoolUsage::default() }
}

/// What makes an alert fire, and what ends it; by kind.
type Case = (Kind, fn(&mut World), fn(&mut World));

/// Whether a command is one of those that the documentation names: it is only one letter by letter but for what stands in the places of
/// `GROUP`, `SOURCE` and `N`.
fn is_one_of(command: &str, known: &[&str]) -> bool {
    let fits = |word: &str, pattern: &str| matches!(pattern, "GROUP" | "SOURCE" | "N") || word == pattern;
    known.iter().any(|pattern| {
        let (words, patterns): (Vec<&str>, Vec<&str>) = (command.split(' ').collect(), pattern.split(' ').collect());
        words.len() == patterns.len() && words.iter().zip(&patterns).all(|(word, pattern)| fits(word, pattern))
    })
}

/// One for each kind.
const CASES: &[Case] = &[
    (
        Kind::BacklogAgeMany,
        |w| w.survey().late = found((0..11).map(|n| view(&format!("g{n}"), 400)).collect()),
        |w| w.survey().late = Found::default(),
    ),
    (Kind::BacklogAge, |w| w.survey().late = found(vec![view("a", 400)]), |w| w.survey().late = Found::default()),
    (Kind::Capacity, |w| w.survey().demand = 65.0, |w| w.survey().demand = 40.0),
    (
        Kind::NoisyGroup,
        |w| {
            w.survey().unpaused = 10_000;
            w.survey().largest = vec![(Group::of(&["a"]), 6_000, s(9))];
        },
        |w| w.survey().unpaused = 0,
    ),
    (
        Kind::DedicatedCeiling,
        |w| {
            let view =
                DedicatedView { state: Dedication::NoLane, since: s(900), demand: 0.4, slots: 0, shed_above: None };
            w.survey().dedicated.groups = vec![(Group::of(&["a"]), view)];
        },
        |w| w.survey().dedicated.groups[0].1.state = Dedication::Watching,
    ),
    (
        Kind::Skew,
        |w| {
            let groups = (0..3).map(|_| (7, 4_000)).chain((0..64).map(|shard| (shard, 100)));
            laid_out(w, groups.collect());
        },
        |w| w.survey().unpaused = 0,
    ),
    (
        Kind::UpstreamBreaker,
        |w| w.survey().breaker = BreakerState::HalfOpen,
        |w| w.survey().breaker = BreakerState::Closed,
    ),
    (Kind::GroupBreaker, |w| w.survey().broken = found(vec![view("a", 1)]), |w| w.survey().broken = Found::default()),
    (Kind::RetriesOverdue, |w| w.survey().overdue = 3, |w| w.survey().overdue = 0),
    (Kind::OrderKeys, |w| w.survey().held = found(vec![view("a", 1)]), |w| w.survey().held = Found::default()),
    (
        Kind::FallbackShare,
        |w| {
            w.source();
            w.look();
            *w.source() = SourceFacts { accepted: 100, fallback: vec![("absent", 6)], ..w.source().clone() };
        },
        |w| {
            w.run(MIN);
            w.source().accepted += 10_000;
        },
    ),
    (
        Kind::SecretEnded,
        |w| {
            let until = w.now.wall.plus(s(10));
            w.source().secrets = vec![(Some(until), 0), (None, 0)];
            w.look();
            w.source().secrets[0].1 = 5;
            w.run(20);
            w.source().refused = 1;
        },
        |w| {
            w.run(HOUR);
        },
    ),
    (
        Kind::SecretEnding,
        |w| {
            let until = w.now.wall.plus(s(6 * 24 * HOUR));
            w.source().secrets = vec![(Some(until), 0)];
            w.look();
            w.source().secrets[0].1 = 1;
        },
        |w| w.source().secrets[0].0 = None,
    ),
    (
        Kind::ClockSkew,
        |w| {
            for _ in 0..21 {
                *w.source() = SourceFacts { accepted: w.source().accepted + 1, skew_s: -70.0, ..w.source().clone() };
                w.look();
            }
        },
        |w| {
            for _ in 0..21 {
                *w.source() = SourceFacts { accepted: w.source().accepted + 1, skew_s: 1.0, ..w.source().clone() };
                w.look();
            }
        },
    ),
    (Kind::DiskRefusing, |w| w.facts.room = 1_400, |w| w.facts.room = 1_600),
    (
        Kind::DiskFilling,
        |w| {
            for minute in 0..10 {
                w.facts.room_bytes = (60 - minute) << 30;
                w.run(MIN);
            }
        },
        |w| {
            w.run(15 * MIN);
        },
    ),
    (Kind::DiskLow, |w| w.facts.room = 1_900, |w| w.facts.room = 2_100),
    (Kind::StorePollAge, |w| w.facts.beat_age = s(11), |w| w.facts.beat_age = s(0)),
    (Kind::StoreAway, |w| w.facts.silent = s(11), |w| w.facts.silent = s(0)),
    (Kind::SpoolHeld, |w| w.facts.spool = Some(spool(3)), |w| w.facts.spool = Some(spool(0))),
    (
        Kind::InvariantViolated,
        |w| w.survey().violations = 1,
        |w| {
            w.run(HOUR);
        },
    ),
    (
        Kind::UpstreamAddress,
        |w| w.facts.addresses = addresses(&[true, false]),
        |w| w.facts.addresses = addresses(&[false; 2]),
    ),
    (Kind::ConfigurationRefused, |w| w.facts.config_ok = false, |w| w.facts.config_ok = true),
];

#[test]
fn each_kind_fires_once_when_its_condition_has_held_and_resolves_once_when_it_is_gone() {
    for kind in Kind::ALL {
        let (_, begin, end) =
            CASES.iter().find(|(other, ..)| other == kind).unwrap_or_else(|| panic!("no case for {kind:?}"));
        let mut w = world();
        w.run(10);
        begin(&mut w);
        w.look();
        let name = kind.name();
        let of_kind = |w: &mut World| -> Vec<String> {
            w.heard().into_iter().filter(|line| line[1..].split(' ').next() == Some(name)).collect()
        };
        let after = w.settings.after(*kind);
        let mut heard = of_kind(&mut w);
        if after > s(2) {
            assert!(heard.is_empty() || *kind == Kind::DiskFilling, "{name} fires before it has held: {heard:?}");
        }
        w.run(after.as_secs() + 2);
        heard.extend(of_kind(&mut w));
        assert_eq!(heard.len(), 1, "{name}: {heard:?}");
        assert!(heard[0].starts_with('+'), "{heard:?}");
        w.run(30);
        assert_eq!(of_kind(&mut w), Vec::<String>::new(), "{name} fires again and again");
        let alert = w.board.firing().into_iter().find(|alert| alert.name == name).unwrap();
        assert!(!alert.what.is_empty() && is_one_of(&alert.command, kind.row().press), "{alert:?}");

        end(&mut w);
        w.run(w.settings.clear(*kind).as_secs() + 4);
        let heard = of_kind(&mut w);
        assert_eq!(heard.len(), 1, "{name} resolves once: {heard:?}");
        assert!(heard[0].starts_with('-'), "{heard:?}");
        assert_eq!(w.board.count(*kind), 0);
        assert_eq!(w.board.resolved().iter().filter(|alert| alert.name == name).count(), 1);
    }
}

#[test]
fn a_restart_repeats_no_alert_and_forgets_none() {
    let folder = tempfile::tempdir().unwrap();
    let notebook = Notebook::at(folder.path().join("alerts.json"));
    let restart = |w: &mut World| {
        notebook.write(&kept::written(&w.board)).unwrap();
        w.history = History::default();
        w.now = Now { mono: Mono(5), wall: w.now.wall.plus(s(60)) };
        w.board = kept::read(&notebook, w.now);
    };
    let mut w = world();
    w.facts.config_ok = false;
    w.survey().broken = found(vec![view("a", 1), view("b", 1)]);
    w.run(2 * MIN);
    w.facts.config_ok = true;
    w.run(2 * MIN);
    assert_eq!(w.heard(), ["+configuration_refused", "+group_breaker a", "+group_breaker b", "-configuration_refused"]);
    let (firing, resolved) = (w.board.firing(), w.board.resolved());

    restart(&mut w);
    assert_eq!((w.board.firing(), w.board.resolved()), (firing, resolved));
    w.survey().broken = found(vec![view("b", 1)]);
    w.run(5 * MIN);
    assert_eq!(w.heard(), ["-group_breaker a"], "that was over when the node came back; b goes on");
    let names = |alerts: Vec<Alert>| -> Vec<_> { alerts.into_iter().map(|alert| alert.name).collect() };
    restart(&mut w);
    assert_eq!(names(w.board.resolved()), ["group_breaker", "configuration_refused"], "the latest first");

    // A file of another version, and one that somebody broke.
    let lines = String::from_utf8(kept::written(&w.board)).unwrap();
    notebook.write(lines.replace("configuration_refused", "of_a_later_version").as_bytes()).unwrap();
    assert_eq!(names(kept::read(&notebook, w.now).resolved()), ["group_breaker"]);
    notebook.write(b"[{").unwrap();
    assert!(kept::read(&notebook, w.now).firing().is_empty());
}

#[test]
fn a_condition_that_comes_and_goes_neither_fires_nor_resolves_each_time() {
    let mut w = world();
    for _ in 0..20 {
        w.survey().broken = found(vec![view("a", 1)]);
        w.run(50);
        w.survey().broken = Found::default();
        w.run(10);
    }
    assert_eq!(w.heard(), Vec::<String>::new(), "it never held for a minute");
    w.survey().broken = found(vec![view("a", 1)]);
    w.run(70);
    for _ in 0..20 {
        w.survey().broken = Found::default();
        w.run(100);
        w.survey().broken = found(vec![view("a", 1)]);
        w.run(10);
    }
    assert_eq!(w.heard(), ["+group_breaker a"], "it was never gone for two minutes");
}

#[test]
fn near_the_mark_an_alert_goes_on_and_none_begins() {
    let mut w = world();
    w.survey().demand = 60.0;
    w.run(HOUR);
    assert_eq!(w.heard(), Vec::<String>::new());
    w.survey().demand = 70.0;
    w.run(6 * MIN);
    w.survey().demand = 60.0;
    w.run(HOUR);
    assert_eq!(w.heard(), ["+capacity"]);
    w.survey().demand = 50.0;
    w.run(6 * MIN);
    assert_eq!(w.heard(), ["-capacity"]);
}

#[test]
fn a_late_group_comes_with_what_lets_it_go_on() {
    use crate::engine::State;
    for (state, command) in [
        (State::Capped, "fairlane groups set '~fallback' --concurrency 16"),
        (State::Paused, "fairlane upstream"),
        (State::Broken, "fairlane groups why '~fallback'"),
    ] {
        let mut w = world();
        w.survey().late = found(vec![GroupView { state, concurrency: 8, ..view("~fallback", 400) }]);
        w.look();
        let alert = w.board.firing().remove(0);
        assert_eq!(alert.command, command);
        assert!(is_one_of(&alert.command, Kind::BacklogAge.row().press), "{command}");
    }
}

#[test]
fn many_late_groups_are_one_page_and_a_few_are_a_ticket_each() {
    let mut w = world();
    let late = |range: std::ops::Range<u64>| found(range.map(|n| view(&format!("g{n}"), 400)).collect());
    w.survey().late = late(0..2);
    w.run(10);
    assert_eq!(w.heard(), ["+backlog_age g0", "+backlog_age g1"]);
    w.survey().late = late(2..20);
    w.run(10 * MIN);
    assert_eq!(
        w.heard(),
        ["+backlog_age_many", "-backlog_age g0", "-backlog_age g1"],
        "no ticket begins beside the page; those there were end as their groups are well"
    );
    let page = &w.board.firing()[0];
    assert_eq!((page.severity, page.groups.len()), (Severity::Page, 18));
    assert!(page.what.contains("18 groups") && page.what.contains("g2 (7 min)") && page.what.contains("and 13 more"));
    w.survey().late = Found::default();
    w.run(40);
    assert_eq!(w.heard(), ["-backlog_age_many"]);
}

#[test]
fn while_the_page_goes_on_below_its_number_it_says_so_and_no_ticket_begins() {
    let mut w = world();
    w.settings.groups_over = 3;
    let late = |range: std::ops::Range<u64>| found(range.map(|n| view(&format!("g{n}"), 400)).collect());
    w.survey().late = late(0..1);
    w.run(10);
    w.survey().late = late(0..4);
    w.run(10);
    assert_eq!(w.heard(), ["+backlog_age g0", "+backlog_age_many"]);
    assert!(w.board.firing()[0].what.contains("4 groups have events older than 5 min (more than 3 do)"));
    w.survey().late = found((0..3).map(|n| view(&format!("g{n}"), 800)).collect());
    w.run(10 * MIN);
    assert_eq!(w.heard(), Vec::<String>::new());
    let firing = w.board.firing();
    assert!(firing[0].what.contains("(more than 3 did; this ends when 2 or fewer do)"), "{}", firing[0].what);
    assert!(firing[1].what.contains("g0's oldest event is 13 min old"), "a ticket from before is of now: {firing:?}");
    w.survey().late = late(0..2);
    w.run(28);
    assert_eq!(w.heard(), Vec::<String>::new(), "not before the page is over");
    w.run(8);
    assert_eq!(w.heard(), ["-backlog_age_many", "+backlog_age g1"]);
}

#[test]
fn a_larger_cap_is_proposed_only_where_it_takes_from_nobody() {
    use crate::engine::State;
    let told = |slots, free, concurrency| {
        let mut w = world();
        (w.survey().slots, w.survey().free) = (slots, free);
        w.survey().late = found(vec![GroupView { state: State::Capped, concurrency, ..view("a", 400) }]);
        w.look();
        let alert = w.board.firing().remove(0);
        assert!(is_one_of(&alert.command, Kind::BacklogAge.row().press), "{}", alert.command);
        (alert.command, alert.what)
    };
    for (slots, free, cap, proposed) in [(64, 8, 8, 16), (16, 8, 6, 8), (16, 1, 7, 8)] {
        assert_eq!(told(slots, free, cap).0, format!("fairlane groups set a --concurrency {proposed}"));
    }
    for (slots, free, cap, words) in [
        (16, 0, 16, "no slot is free, the upstream's capacity is the limit"),
        (16, 0, 4, "no slot is free, the upstream's capacity is the limit"),
        (16, 8, 8, "its cap is half of all slots or more: the upstream's capacity is the limit"),
        (1, 1, 1, "its cap is half of all slots or more"),
    ] {
        let (command, what) = told(slots, free, cap);
        assert_eq!(command, "fairlane upstream", "{cap} of {slots}, {free} free");
        assert!(what.contains(words), "{what}");
    }
}

#[test]
fn a_group_that_is_to_be_held_back_is_not_to_get_a_larger_cap() {
    use crate::engine::State;
    let mut w = world();
    w.survey().late = found(vec![GroupView { state: State::Capped, concurrency: 8, ..view("a", 400) }]);
    w.survey().unpaused = 10_000;
    // Before the other ticket fires, while it does, and when it goes on near its mark.
    for (events, seconds) in [(6_000, 2), (6_000, 2 * MIN + 10), (4_500, HOUR), (3_000, 10)] {
        w.survey().largest = vec![(Group::of(&["a"]), events, s(400))];
        w.run(seconds);
        let firing = w.board.firing();
        let late = firing.iter().find(|alert| alert.name == "backlog_age").unwrap();
        assert_eq!(late.command, "fairlane groups why a", "{events}");
        assert!(late.what.contains("a larger cap would take from the others"), "{}", late.what);
    }
    assert_eq!(w.heard(), ["+backlog_age a", "+noisy_group a"]);
    w.run(2 * MIN);
    assert_eq!(w.heard(), ["-noisy_group a"]);
    assert_eq!(w.board.firing()[0].command, "fairlane groups set a --concurrency 16");
}

#[test]
fn a_shard_is_no_matter_where_one_group_is_or_nearly_all_are_empty() {
    let even = || (0..64).map(|shard| (shard, 100));
    for (what, groups, fires) in [
        ("two groups of a shard", [(7, 3_000), (7, 3_000)].into_iter().chain(even()).collect(), true),
        ("one group of a small install", vec![(51, 300), (3, 100), (4, 60)], false),
        ("a few groups", vec![(7, 3_000), (7, 3_000), (9, 500), (10, 500)], false),
        ("one group, less than half of all", [(7, 6_000)].into_iter().chain(even()).collect(), false),
        ("one group, half of all", [(7, 7_000), (7, 100)].into_iter().chain(even().take(40)).collect(), false),
        ("not far ahead", [(7, 2_400), (7, 2_400)].into_iter().chain(even()).collect(), false),
    ] {
        let mut w = world();
        laid_out(&mut w, groups);
        w.run(4 * MIN);
        assert_eq!(w.heard().contains(&"+skew".to_owned()), fires, "{what}");
        if fires {
            w.survey().largest.iter_mut().for_each(|(.., oldest)| *oldest = s(200));
            w.run(2 * MIN);
            assert_eq!(w.heard(), ["-skew"], "what is young is being worked off");
        }
    }
}

#[test]
fn the_words_say_of_every_kind_how_near_its_mark_it_goes_on() {
    for kind in [
        Kind::BacklogAgeMany,
        Kind::Capacity,
        Kind::NoisyGroup,
        Kind::FallbackShare,
        Kind::ClockSkew,
        Kind::DiskFilling,
    ] {
        assert!(kind.row().when.contains(", until ") || kind.row().when.contains("; until "), "{kind:?}");
    }
}

#[test]
fn while_the_driver_does_not_answer_what_only_it_knows_stays_as_it_is() {
    let mut w = world();
    w.survey().late = found(vec![view("a", 400)]);
    w.run(4);
    let survey = w.facts.survey.take();
    w.facts.beat_age = s(60);
    w.run(HOUR);
    assert_eq!(w.heard(), ["+backlog_age a", "+store_poll_age"]);
    w.facts.survey = survey;
    w.survey().late = Found::default();
    w.facts.beat_age = s(0);
    w.run(MIN);
    assert_eq!(w.heard(), ["-store_poll_age", "-backlog_age a"]);
}

#[test]
fn a_store_that_is_away_says_what_becomes_of_new_events() {
    let mut w = world();
    let mut said = |spool: Option<SpoolUsage>| {
        w.facts.spool = spool;
        w.facts.silent = s(60);
        w.run(4);
        let what = w.board.firing().into_iter().find(|alert| alert.name == "store_away").map(|alert| alert.what);
        what.unwrap_or_default()
    };
    assert_eq!(said(None), "Redis did not answer for 60 s; there is no spool, so new events get 503");
    assert_eq!(
        said(Some(spool(1))),
        "Redis did not answer for 60 s; 1 event is in the spool, which has room for 1.0 GiB more"
    );
    let full = SpoolUsage { room_bytes: 0, ..spool(7) };
    assert_eq!(said(Some(full)), "Redis did not answer for 60 s; the spool is full with 7 events: new events get 503");
    // What is in it is on its way as soon as the store is back.
    w.facts.silent = s(0);
    w.facts.spool = Some(spool(9));
    w.run(MIN);
    assert_eq!(w.heard(), ["+store_away", "-store_away"]);
}

#[test]
fn a_share_of_few_events_says_nothing_and_old_events_are_forgotten() {
    let mut w = world();
    w.source();
    w.look();
    let more = |w: &mut World, with_key: u64, without: u64| {
        let source = w.source();
        source.accepted += with_key + without;
        let before = source.fallback.first().map_or(0, |(_, count)| *count);
        source.fallback = vec![("absent", before + without)];
    };
    more(&mut w, 0, 99);
    w.run(HOUR);
    assert_eq!(w.heard(), Vec::<String>::new(), "99 events");
    more(&mut w, 1, 0);
    w.run(2);
    assert_eq!(w.heard(), ["+fallback_share shop"]);
    assert!(w.board.firing()[0].what.contains("99.0 %") && w.board.firing()[0].what.contains("absent 99"));
    for _ in 0..60 {
        more(&mut w, 10, 0);
        w.run(MIN);
    }
    assert_eq!(w.heard(), ["-fallback_share shop"], "the last hundred have keys");
    w.source().has_key = false;
    more(&mut w, 0, 1_000);
    w.run(HOUR);
    assert_eq!(w.heard(), Vec::<String>::new(), "a source without a rule has no keys to miss");
}

#[test]
fn a_secret_that_was_replaced_in_time_ends_unnoticed() {
    let mut w = world();
    let until = w.now.wall.plus(s(30 * 24 * HOUR));
    w.source().secrets = vec![(None, 0), (Some(until), 3)];
    w.run(10);
    w.now.wall = until.minus(s(2 * 24 * HOUR));
    w.source().secrets[0].1 = 9;
    w.run(10);
    w.now.wall = until.plus(s(10));
    w.source().refused = 4;
    w.source().secrets[0].1 = 12;
    w.run(10);
    assert_eq!(w.heard(), Vec::<String>::new());
}

#[test]
fn what_resolved_is_kept_in_bounds() {
    let mut w = world();
    for _ in 0..150 {
        w.facts.config_ok = false;
        w.run(2);
        w.facts.config_ok = true;
        w.run(2);
    }
    assert_eq!(w.board.resolved().len(), 100);
    let newest = w.board.resolved();
    assert!(newest[0].resolved > newest[99].resolved);
}

#[test]
fn a_message_has_words_for_people_and_fields_for_programs() {
    let mut w = world();
    w.survey().late = found(vec![view("noisy~7", 400)]);
    w.look();
    let alert = w.board.firing().remove(0);
    let message: serde_json::Value = serde_json::from_slice(&body(&alert)).unwrap();
    let text = message["text"].as_str().unwrap();
    for part in [
        "*ticket* backlog_age",
        "noisy~7's oldest event is 7 min old",
        "2027-01-15T08:00:00Z",
        "`fairlane groups why noisy~7`",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(message["state"], "firing");
    assert_eq!(message["groups"], serde_json::json!(["noisy~7"]));
    assert_eq!(message["resolved_at"], serde_json::Value::Null);
    let resolved = Alert { resolved: Some(w.now.wall), what: "<a> & b".into(), ..alert };
    let message: serde_json::Value = serde_json::from_slice(&body(&resolved)).unwrap();
    assert_eq!(message["state"], "resolved");
    assert!(message["text"].as_str().unwrap().contains("&lt;a&gt; &amp; b"), "{message}");
}

#[test]
fn names_are_those_of_metrics_and_each_its_own() {
    let mut names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Kind::ALL.len());
}

#[test]
fn the_documented_list_is_the_one_that_is_judged() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/alerts.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("| name |").expect("docs/alerts.md has lost its table");
    let (_, after) = rest.rsplit_once("|\n").expect("docs/alerts.md has lost its table");
    let wanted = format!("{before}{}{after}", reference());
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let now = std::fs::read_to_string(path).unwrap();
    assert_eq!(now, wanted, "UPDATE_EXPECTED=1 cargo test --lib alerts writes the list again");
}

#[test]
fn addresses_that_are_left_out_are_named_with_their_reason_and_what_that_means() {
    let mut w = world();
    let what = |w: &mut World, out: &[bool]| {
        w.facts.addresses = addresses(out);
        w.run(2);
        w.board.firing().into_iter().find(|alert| alert.name == "upstream_address").map(|alert| alert.what)
    };
    assert_eq!(what(&mut w, &[false, false]), None);
    let one = what(&mut w, &[true, false]).unwrap();
    assert_eq!(one, "1 of 2 addresses of the upstream are left out: http://10.0.0.0 (connection refused)");
    assert!(what(&mut w, &[true, true]).unwrap().ends_with("none is left, so all are used"));
}
