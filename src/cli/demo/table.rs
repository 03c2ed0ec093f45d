//! The figures as a table for people and as JSON for programs.

use serde_json::{Value, json};

use super::figures::{Figures, Phase, Spread, Store, is_right, verdict};
use super::ledger::{FLOODING, Found};
use crate::cli::table::{span, thousands};

/// The name of a row's store stands in so many columns.
const NAME: usize = 10;
const COUNT: usize = 7;
const TIME: usize = 7;

/// Each store's waits in every phase, and its events in the one with the flood: at most 59 columns wide.
pub(super) fn table(phases: &[Figures]) -> Vec<String> {
    let mut heads = " ".repeat(NAME + COUNT);
    let mut columns = format!("{:<NAME$}{:>COUNT$}", "store", "events");
    for phase in phases {
        heads.push_str(&format!("{:>1$}", title(phase.phase), 2 * TIME));
        columns.push_str(&format!("{:>TIME$}{:>TIME$}", "p50", "p99"));
    }
    let mut lines = vec![heads, columns];
    let Some(fullest) = phases.iter().max_by_key(|phase| phase.stores.len()) else { return lines };
    lines.extend(fullest.stores.iter().filter(|store| !store.floods).map(|store| row(phases, store.name, own)));
    lines.push(row(phases, "all quiet", |phase, _| Some(phase.quiet)));
    if fullest.flooding().is_some() {
        lines.push(row(phases, FLOODING, own));
    }
    lines
}

fn title(phase: Phase) -> &'static str {
    match phase {
        Phase::Quiet => "without flood",
        Phase::Flood => "with flood",
        Phase::Shared => "shared queue",
    }
}

fn own(phase: &Figures, name: &str) -> Option<Spread> {
    phase.stores.iter().find(|store| store.name == name).map(|store| store.wait)
}

fn row(phases: &[Figures], name: &str, of: impl Fn(&Figures, &str) -> Option<Spread>) -> String {
    let spreads: Vec<Option<Spread>> = phases.iter().map(|phase| of(phase, name).filter(|s| s.count > 0)).collect();
    // The counts of the phases differ a little, as the flood takes longer or shorter; that of the flood is the one to know.
    let at_flood = phases.iter().zip(&spreads).find(|(phase, _)| phase.phase == Phase::Flood);
    let events = at_flood.and_then(|(_, spread)| *spread).map_or(0, |spread| spread.count);
    let mut line = format!("{name:<NAME$}{:>COUNT$}", thousands(events as u64));
    for spread in spreads {
        let cell =
            |time: fn(&Spread) -> std::time::Duration| spread.as_ref().map_or_else(|| "-".into(), |s| span(time(s)));
        line.push_str(&format!("{:>TIME$}{:>TIME$}", cell(|s| s.p50), cell(|s| s.p99)));
    }
    line
}

/// Everything, for `--json`.
pub(super) fn as_json(phases: &[Figures], found: &Found, run: &Value, files: &[String]) -> Value {
    json!({
        "ok": is_right(phases, found),
        "verdict": verdict(phases, found),
        "wait": "from the store's post to the whole event at the receiver, in milliseconds; the 2xx is in it",
        "run": run,
        "phases": phases.iter().map(phase_json).collect::<Vec<_>>(),
        "refused": found.refused.len(),
        "wrong_signature": found.unsigned,
        "unknown": found.unknown,
        "files": files,
    })
}

fn phase_json(phase: &Figures) -> Value {
    let flood = phase.flood.map(|flood| {
        json!({
            "posted_at_s": flood.posted.as_secs_f64(),
            "accepted_at_s": flood.accepted.as_secs_f64(),
            "delivered_at_s": flood.delivered.as_secs_f64(),
        })
    });
    json!({
        "phase": phase.phase.name(),
        "seconds": phase.took.as_secs_f64(),
        "accepted": phase.accepted,
        "delivered": phase.delivered,
        "lost": phase.lost,
        "duplicates": phase.duplicates,
        "renamed": phase.renamed,
        "quiet": { "events": phase.quiet.count, "wait_ms": times(phase.quiet), "answer_ms": times(phase.quiet_answer) },
        "flood": flood,
        "stores": phase.stores.iter().map(store_json).collect::<Vec<_>>(),
    })
}

fn store_json(store: &Store) -> Value {
    json!({
        "store": store.name,
        "floods": store.floods,
        "events": store.wait.count,
        "wait_ms": times(store.wait),
        "answer_ms": times(store.answer),
    })
}

fn times(spread: Spread) -> Value {
    let ms = |time: std::time::Duration| time.as_micros() as f64 / 1e3;
    json!({ "p50": ms(spread.p50), "p99": ms(spread.p99), "max": ms(spread.max) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spread(count: usize, p50: u64, p99: u64) -> Spread {
        let ms = Duration::from_millis;
        Spread { count, p50: ms(p50), p99: ms(p99), max: ms(p99) }
    }

    fn figures(phase: Phase, fern: Spread, flood: Option<Spread>) -> Figures {
        let store = |name, floods, wait| Store { name, floods, wait, answer: Spread::default() };
        let mut stores = vec![store("fern", false, fern)];
        stores.extend(flood.map(|wait| store(FLOODING, true, wait)));
        let mut figures = Figures::of(phase, crate::event::Mono(0), &[]);
        (figures.stores, figures.quiet) = (stores, fern);
        figures
    }

    #[test]
    fn the_table_lines_up_and_fits_a_narrow_terminal() {
        let phases = [
            figures(Phase::Quiet, spread(85, 2, 4), None),
            figures(Phase::Flood, spread(95, 3, 12), Some(spread(20_000, 5_200, 9_800))),
            figures(Phase::Shared, spread(101, 4_400, 11_900), Some(spread(100_000, 5_500, 123_000))),
        ];
        let lines = table(&phases);
        let expected = "                  without flood    with flood  shared queue
store      events    p50    p99    p50    p99    p50    p99
fern           95 2.0 ms 4.0 ms 3.0 ms  12 ms  4.4 s 11.9 s
all quiet      95 2.0 ms 4.0 ms 3.0 ms  12 ms  4.4 s 11.9 s
megamart   20,000      -      -  5.2 s  9.8 s  5.5 s  123 s";
        assert_eq!(lines.join("\n"), expected);
        assert!(lines.iter().all(|line| line.len() <= 59));
    }
}
