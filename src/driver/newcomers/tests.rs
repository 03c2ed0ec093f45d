//! Known and unknown groups, without waiting for a day.

use super::*;
use crate::event::Lane;

const DAY: Duration = Duration::from_hours(24);

fn at(hours: u64) -> Now {
    let since = Duration::from_hours(hours);
    Now { mono: Mono(7_000_000).plus(since), wall: Wall::from_unix_s(1_700_000_000).plus(since) }
}

fn event(group: &str, signed: bool) -> Event {
    Event {
        lane: Lane { group: Group::of(&[group]), inner: None },
        key_source: KeySource::Rule { rule: "headers.x-shop".into(), signed },
        ..crate::driver::tests::event(1, 1)
    }
}

fn open(limit: Option<Rate>, notebook: &Notebook) -> Newcomers {
    Newcomers::open(limit, notebook.clone(), Arc::new(Metrics::new("none")), 5, at(0).wall)
}

fn rate(events: u32) -> Option<Rate> {
    Some(Rate { events, per: Duration::from_mins(1) })
}

#[test]
fn beyond_the_rate_unknown_groups_share_and_known_ones_do_not() {
    let mut newcomers = open(rate(3), &Notebook::default());
    let mut shares = |n: u32, now| newcomers.judge(&event(&format!("g{n}"), false), now).is_some();
    assert!((0..100).all(|n| !shares(n, at(0))), "on the first day all are new");
    assert!((0..100).all(|n| !shares(n, at(25))));
    let judged: Vec<bool> = (1_000..1_006).map(|n| shares(n, at(25))).collect();
    assert_eq!(judged, [false, false, false, true, true, true]);
    assert!(!shares(1_000, at(25)) && !shares(5, at(25)), "who came in is known");
    assert!(shares(1_004, at(25)), "who did not is as unknown as before");
    assert!(!shares(1_004, at(26)), "and comes in when there is room");
}

#[test]
fn signed_keys_and_our_own_lanes_are_never_judged() {
    let mut newcomers = open(rate(1), &Notebook::default());
    assert!(newcomers.judge(&event("first", false), at(0)).is_none());
    for n in 0..10 {
        assert!(newcomers.judge(&event(&format!("g{n}"), true), at(30)).is_none());
        let fallback = Event { lane: Lane { group: Group::fallback(), inner: None }, ..event("x", false) };
        assert!(newcomers.judge(&fallback, at(30)).is_none());
    }
    assert_eq!(newcomers.all(at(30)).len(), 1);
}

#[test]
fn without_a_rate_there_is_a_figure_and_nothing_else() {
    let mut newcomers = open(None, &Notebook::default());
    assert!((0..50).all(|n| newcomers.judge(&event(&format!("g{n}"), false), at(30)).is_none()));
    let figure = |newcomers: &mut Newcomers, now| newcomers.all(now).remove(0);
    let found = figure(&mut newcomers, at(30));
    assert_eq!((&*found.source, found.per_minute, found.learned), ("test", 50, false));
    let later = Now { mono: at(30).mono.plus(Duration::from_mins(1)), ..at(30) };
    assert_eq!(figure(&mut newcomers, later).per_minute, 50, "the last whole minute");
    assert_eq!(figure(&mut newcomers, at(55)).per_minute, 0);
    assert!(figure(&mut newcomers, at(55)).learned);
}

#[test]
fn what_is_known_outlives_a_restart_and_what_is_damaged_is_learned_anew() {
    let folder = tempfile::tempdir().unwrap();
    let notebook = Notebook::at(folder.path().join("known-groups"));
    let mut newcomers = open(rate(1), &notebook);
    for n in 0..500 {
        assert!(newcomers.judge(&event(&format!("g{n}"), false), at(0)).is_none());
    }
    newcomers.close();
    let mut again = open(rate(1), &notebook);
    assert!((0..500).all(|n| again.judge(&event(&format!("g{n}"), false), at(30)).is_none()));
    assert!(again.judge(&event("new", false), at(30)).is_none());
    assert!(again.judge(&event("newer", false), at(30)).is_some(), "the first day is over");

    let whole = notebook.read().unwrap();
    for damaged in [&whole[..whole.len() - 1], &whole[1..], b"x".as_slice()] {
        notebook.write(damaged).unwrap();
        let mut anew = open(rate(1), &notebook);
        assert!((0..9).all(|n| anew.judge(&event(&format!("n{n}"), false), at(30)).is_none()));
    }
}

#[test]
fn who_is_silent_for_two_weeks_is_new_again_and_who_is_not_stays_known() {
    let mut newcomers = open(rate(1), &Notebook::default());
    let knows = |newcomers: &mut Newcomers, group: &str, now: Now| {
        let hash = xxh3_64_with_seed(Group::of(&[group]).as_str().as_bytes(), newcomers.seed);
        newcomers.known(&"test".into(), now).unwrap().has(hash)
    };
    for (n, day) in (0..40_u64).enumerate() {
        let now = at(day * 24);
        if day == 0 {
            assert!(newcomers.judge(&event("silent", false), now).is_none());
        }
        assert!(newcomers.judge(&event("daily", false), now).is_none());
        // Something new comes every day: the filters go on by what is put in.
        assert!(newcomers.judge(&event(&format!("n{n}"), false), now).is_none());
    }
    assert!(knows(&mut newcomers, "daily", at(960)));
    assert!(!knows(&mut newcomers, "silent", at(960)));
    assert!(newcomers.due(at(960).wall).is_some() && newcomers.due(at(960).wall.plus(DAY)).is_none());
}

#[test]
fn a_filter_that_is_full_is_followed_by_a_larger_one_and_all_stay_within_their_memory() {
    let mut newcomers = open(None, &Notebook::default());
    let bytes = |newcomers: &Newcomers| newcomers.sources.values().map(Known::bytes).sum::<usize>();
    for n in 0..GROUPS_FIRST + 200 {
        newcomers.judge(&event(&format!("g{n}"), false), at(0));
    }
    assert_eq!(newcomers.sources["test"].young.room, 4 * GROUPS_FIRST);
    // Every source that may be watched, as large as it may become.
    for n in 0..SOURCES_MAX + 5 {
        let source: Arc<str> = format!("s{n}").into();
        let filled = Event { source: Arc::clone(&source), ..event("a", false) };
        newcomers.judge(&filled, at(0));
        for _ in 0..5 {
            if let Some(known) = newcomers.sources.get_mut(&source) {
                known.young.groups = known.young.room;
                newcomers.rotate(&source, at(0).wall);
            }
        }
    }
    assert_eq!(newcomers.sources.len(), SOURCES_MAX);
    let most = BYTES_MAX + SOURCES_MAX * 2 * Generation::bytes(GROUPS_FIRST);
    assert!(bytes(&newcomers) <= most, "{} bytes", bytes(&newcomers));
}
