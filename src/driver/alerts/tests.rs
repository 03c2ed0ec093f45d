//! Each alert in virtual time: it fires when its condition has held, once, and resolves when it is gone, once.

use std::time::Duration;

use super::board::Board;
use super::catalog::{Kind, reference};
use super::facts::{Facts, History, SourceFacts};
use super::judge::judge;
use super::*;
use crate::engine::{BreakerState, DedicatedInfo, Engine, Found, GroupView, Survey};
use crate::event::{Group, Mono, Now};
use crate::store::Usage;

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
        overdue: 0,
        demand: 0.0,
        slots: 64,
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
        config_ok: true,
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
        let many = self.board.fires(Kind::BacklogAgeMany);
        let judgement = judge(&self.facts, &self.history, &self.settings, many, self.now);
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

fn found(views: Vec<GroupView>) -> Found {
    Found { count: views.len() as u64, named: views }
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
            w.survey().pending = 10_000;
            w.survey().largest = vec![(Group::of(&["a"]), 6_000, s(9))];
        },
        |w| w.survey().pending = 0,
    ),
    (
        Kind::Skew,
        |w| {
            w.survey().pending = 15_000;
            // Of one shard of 64, as `key::shard` lays them out.
            let first = Group::of(&["s0"]);
            let shard = crate::key::shard(&first, 64);
            let mates = (1..).map(|n| Group::of(&[format!("s{n}")])).filter(|g| crate::key::shard(g, 64) == shard);
            w.survey().largest = std::iter::once(first).chain(mates.take(2)).map(|g| (g, 4_000, s(9))).collect();
        },
        |w| w.survey().pending = 0,
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
    (
        Kind::InvariantViolated,
        |w| w.survey().violations = 1,
        |w| {
            w.run(HOUR);
        },
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
    for (state, paused, command) in [
        (State::Capped, false, "fairlane groups set '~fallback' --concurrency 16"),
        (State::Paused, true, "fairlane groups resume '~fallback'"),
        (State::Paused, false, "fairlane upstream resume"),
        (State::Broken, false, "fairlane groups why '~fallback'"),
    ] {
        let mut w = world();
        w.survey().late = found(vec![GroupView { state, paused, concurrency: 8, ..view("~fallback", 400) }]);
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
    assert_eq!(w.heard(), ["+backlog_age_many"], "no further tickets beside the page, and none resolves unseen");
    let page = &w.board.firing()[0];
    assert_eq!((page.severity, page.groups.len()), (Severity::Page, 18));
    assert!(page.what.contains("18 groups") && page.what.contains("g2 (7 min)") && page.what.contains("and 13 more"));
    w.survey().late = Found::default();
    w.run(40);
    let mut heard = w.heard();
    heard.sort();
    assert_eq!(heard, ["-backlog_age g0", "-backlog_age g1", "-backlog_age_many"]);
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
