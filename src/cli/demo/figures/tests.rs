//! Figures and verdicts of made-up ledgers.

use super::*;
use crate::event::EventId;

const BEGAN: Mono = Mono(1_000_000);

/// An event posted `at_ms` into the phase, answered after 1 ms, delivered after `wait_ms`.
fn event(store: usize, order: u64, at_ms: u64, wait_ms: u64) -> Entry {
    let posted = Mono(BEGAN.0 + at_ms * 1_000);
    let id = Some(EventId([u8::try_from(store).unwrap(); 16]));
    Entry {
        phase: 0,
        store,
        order,
        posted,
        answered: Some(Mono(posted.0 + 1_000)),
        accepted_as: id,
        arrived: Some(Mono(posted.0 + wait_ms * 1_000)),
        arrived_as: id,
        deliveries: 1,
    }
}

fn figures(phase: Phase, entries: &[Entry]) -> Figures {
    Figures::of(phase, BEGAN, &entries.iter().collect::<Vec<_>>())
}

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A quiet phase, and one in which the flood waits up to `flood_ms` and the quiet stores up to `quiet_ms`.
fn phases(flood_ms: u64, quiet_ms: u64) -> Vec<Figures> {
    let quiet = [event(0, 0, 0, 3), event(1, 0, 5, 4)];
    let flood = [event(0, 0, 0, 3), event(1, 0, 5, quiet_ms), event(9, 0, 0, 2), event(9, 1, 10, flood_ms)];
    vec![figures(Phase::Quiet, &quiet), figures(Phase::Flood, &flood)]
}

#[test]
fn quantiles_are_those_of_the_nearest_rank() {
    let spread = Spread::of((1..=200).rev().map(ms).collect());
    assert_eq!((spread.count, spread.p50, spread.p99, spread.max), (200, ms(100), ms(198), ms(200)));
    let one = Spread::of(vec![ms(7)]);
    assert_eq!((one.p50, one.p99, one.max), (ms(7), ms(7), ms(7)));
    assert_eq!(Spread::of(Vec::new()), Spread::default());
}

#[test]
fn each_store_has_its_own_figures_and_the_flood_is_none_of_the_quiet() {
    let figures = figures(
        Phase::Flood,
        &[event(0, 0, 0, 3), event(0, 1, 100, 9), event(4, 0, 50, 6), event(9, 0, 20, 2), event(9, 1, 40, 8_000)],
    );
    assert_eq!(figures.stores.len(), 10);
    let fern = &figures.stores[0];
    assert_eq!(
        (fern.name, fern.floods, fern.wait.count, fern.wait.p50, fern.wait.max),
        ("fern", false, 2, ms(3), ms(9))
    );
    assert_eq!(fern.answer.max, ms(1));
    assert_eq!(figures.stores[1].wait.count, 0);
    let flooding = figures.flooding().unwrap();
    assert_eq!((flooding.name, flooding.wait.count, flooding.wait.max), ("megamart", 2, ms(8_000)));
    assert_eq!((figures.quiet.count, figures.quiet.max), (3, ms(9)));
    assert_eq!(figures.flood, Some(Flood { posted: ms(20), accepted: ms(41), delivered: ms(8_040) }));
    assert_eq!(figures.took, ms(8_040));
    assert!(self::figures(Phase::Quiet, &[event(0, 0, 0, 3)]).flooding().is_none());
}

#[test]
fn an_order_is_one_dot_at_its_first_post_with_its_longest_wait() {
    let entries = [event(0, 0, 10, 3), event(0, 0, 11, 7), event(0, 1, 500, 2), event(1, 0, 10, 4)];
    let dots = figures(Phase::Quiet, &entries).quiet_dots;
    let expected = [(0.010, 0.007), (0.5, 0.002), (0.010, 0.004)];
    assert_eq!(dots, expected.map(|(at_s, wait_s)| Dot { at_s, wait_s }));
    let flood: Vec<Entry> = (0..20_000).map(|order| event(9, order, order, 5)).collect();
    let dots = figures(Phase::Flood, &flood).flood_dots;
    assert_eq!((dots.len(), dots[249].at_s), (250, 19.92));
}

#[test]
fn the_verdict_of_a_fair_run_names_both_waits() {
    let said = verdict(&phases(11_200, 9), &Found::default());
    assert_eq!(
        said,
        [
            "The flood waited up to 11.2 s; nobody else waited longer than 9.0 ms.",
            "The quiet stores' p99: 4.0 ms without the flood, 9.0 ms with it.",
            "6 events accepted, 6 delivered; none lost, none twice.",
        ]
    );
    let mut compared = phases(11_200, 9);
    compared.push(figures(Phase::Shared, &[event(0, 0, 0, 10_500), event(9, 0, 0, 10_900)]));
    let said = verdict(&compared, &Found::default());
    assert_eq!(said[2], "Through one shared queue the same stores waited up to 10.5 s (p99 10.5 s).");
}

#[test]
fn quiet_stores_that_waited_with_the_flood_are_not_called_undisturbed() {
    let said = verdict(&phases(1_000, 900), &Found::default());
    assert!(
        said[0].starts_with("The flood waited up to 1.0 s, and the quiet stores felt it: up to 900 ms."),
        "{said:?}"
    );
}

#[test]
fn every_way_of_going_wrong_is_a_fault_with_its_count() {
    type Change = fn(&mut Entry);
    let fine = phases(1_000, 5);
    assert!(is_right(&fine, &Found::default()));
    let with = |change: Change| {
        let mut entry = event(0, 0, 0, 3);
        change(&mut entry);
        let phases = [figures(Phase::Quiet, &[entry, event(1, 0, 0, 3)])];
        (is_right(&phases, &Found::default()), verdict(&phases, &Found::default()).pop().unwrap())
    };
    let cases: [(Change, &str); 3] = [
        (|entry| (entry.arrived, entry.deliveries) = (None, 0), "1 accepted and not delivered"),
        (|entry| entry.deliveries = 3, "2 delivered again"),
        (|entry| entry.arrived_as = None, "1 delivered under another event id"),
    ];
    for (change, expected) in cases {
        let (right, said) = with(change);
        assert!(!right);
        assert_eq!(said, format!("THIS IS A FAULT: of 2 accepted events: {expected}."));
    }
    for (found, expected) in [
        (Found { unsigned: 2, ..Found::default() }, "2 delivered with a wrong Fairlane-Signature"),
        (Found { unknown: 1, ..Found::default() }, "1 delivered that nobody posted"),
    ] {
        assert!(!is_right(&fine, &found));
        assert!(verdict(&fine, &found).pop().unwrap().contains(expected));
    }
}

#[test]
fn refusals_are_said_and_are_no_loss() {
    let mut refused = event(0, 0, 0, 3);
    (refused.answered, refused.accepted_as, refused.arrived, refused.deliveries) = (None, None, None, 0);
    let phases = [figures(Phase::Quiet, &[refused, event(0, 1, 0, 3)])];
    assert_eq!((phases[0].accepted, phases[0].delivered, phases[0].lost), (1, 1, 0));
    let found = Found { refused: vec![503], ..Found::default() };
    assert!(is_right(&phases, &found));
    let said = verdict(&phases, &found).pop().unwrap();
    assert_eq!(said, "1 posts were refused (the first with 503) and are in no figure above.");
}

#[test]
fn times_and_numbers_are_written_for_people() {
    let said: Vec<String> = [0, 340, 9_940, 9_960, 640_000, 999_600, 11_240_000, 120_000_000]
        .map(|us| span(Duration::from_micros(us)))
        .into();
    assert_eq!(said, ["0.0 ms", "0.3 ms", "9.9 ms", "10 ms", "640 ms", "1.0 s", "11.2 s", "120 s"]);
    assert_eq!([0, 999, 1_000, 20_000, 1_234_567].map(thousands), ["0", "999", "1,000", "20,000", "1,234,567"]);
}
