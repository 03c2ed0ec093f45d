//! The figures as a table for people and as JSON for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::Report;
use super::figures::{Figures, Rows, Spread};
use crate::cli::table::{escaped, span, thousands};

const NAME_MIN: usize = 10;
const NAME_MAX: usize = 40;
const COUNT: usize = 12;
const TIME: usize = 9;

pub(super) fn as_text(report: &Report) -> String {
    let mut text = format!(
        "{} events of {} groups within {}; {}\n\n",
        thousands(report.events),
        thousands(report.groups as u64),
        span(report.span),
        escaped(&report.origin)
    );
    text.push_str(&table(report));
    text.push('\n');
    report.runs.iter().for_each(|run| text.push_str(&told(run)));
    text.push_str(
        "\nThe wait of an event is from its arrival to its first attempt: the scheduler's part, without network and disk.\n",
    );
    report.files.iter().for_each(|file| text.push_str(&format!("{}\n", escaped(file))));
    text
}

fn table(report: &Report) -> String {
    let Report { rows, runs, groups, .. } = report;
    let longest = rows.who.iter().map(|who| who.name.chars().count()).max().unwrap_or(0);
    let width = longest.clamp(NAME_MIN, NAME_MAX);
    let mut heads = " ".repeat(width + 2 * COUNT);
    let mut columns = format!("{:<width$}{:>COUNT$}{:>COUNT$}", "WHO", "GROUPS", "EVENTS");
    for run in runs {
        let name: String =
            escaped(&run.name).chars().rev().take(2 * TIME - 2).collect::<Vec<_>>().into_iter().rev().collect();
        heads.push_str(&format!("{name:>0$}", 2 * TIME));
        columns.push_str(&format!("{:>TIME$}{:>TIME$}", "p50", "p99"));
    }
    let mut text = format!("{heads}\n{columns}\n");
    let mut row = |name: &str, groups: usize, spreads: Vec<&Spread>| {
        let name: String = name.chars().take(width).collect();
        let events = spreads.first().map_or(0, |spread| spread.events);
        text.push_str(&format!("{name:<width$}{:>COUNT$}{:>COUNT$}", thousands(groups as u64), thousands(events)));
        for spread in spreads {
            text.push_str(&format!("{:>TIME$}{:>TIME$}", shown(spread, spread.p50), shown(spread, spread.p99)));
        }
        text.push('\n');
    };
    for (at, who) in rows.who.iter().enumerate() {
        row(&escaped(&who.name), who.groups, runs.iter().filter_map(|run| run.spreads.get(at)).collect());
    }
    row("all", *groups, runs.iter().map(|run| &run.all).collect());
    text
}

fn shown(spread: &Spread, time: Option<Duration>) -> String {
    match time {
        Some(time) => span(time),
        None if spread.events == 0 => "-".to_owned(),
        None => "never".to_owned(),
    }
}

fn told(run: &Figures) -> String {
    let totals = &run.outcome;
    let mut text = format!(
        "{}: {} slots, {:.0} % of them in use; {} delivered in {}, {:.0} a second",
        escaped(&run.name),
        run.slots,
        totals.slot_use * 100.0,
        thousands(totals.delivered),
        span(totals.took),
        totals.throughput,
    );
    for (count, what) in [(totals.dead, "dead"), (totals.left, "still waiting at the end")] {
        if count > 0 {
            text.push_str(&format!("; {} {what}", thousands(count)));
        }
    }
    if totals.violations > 0 {
        text.push_str(&format!("; THIS IS A FAULT: {} invariants of the scheduler did not hold", totals.violations));
    }
    text.push('\n');
    text
}

pub(super) fn as_json(report: &Report) -> Value {
    json!({
        "origin": report.origin,
        "events": report.events,
        "groups": report.groups,
        "span_s": report.span.as_secs_f64(),
        "seed": report.seed,
        "wait": "from an event's arrival to its first attempt, in milliseconds; null where there was none",
        "runs": report.runs.iter().map(|run| run_json(&report.rows, run)).collect::<Vec<_>>(),
        "files": report.files,
    })
}

fn run_json(rows: &Rows, run: &Figures) -> Value {
    let totals = &run.outcome;
    let each: Vec<Value> = rows
        .who
        .iter()
        .zip(&run.spreads)
        .map(|(who, spread)| {
            let mut row = spread_json(spread);
            row.as_object_mut().into_iter().for_each(|row| {
                row.insert("who".to_owned(), json!(who.name));
                row.insert("groups".to_owned(), json!(who.groups));
            });
            row
        })
        .collect();
    json!({
        "name": run.name,
        "slots": run.slots,
        "slot_use": totals.slot_use,
        "seconds": totals.took.as_secs_f64(),
        "throughput": totals.throughput,
        "attempts": totals.attempts,
        "delivered": totals.delivered,
        "dead": totals.dead,
        "left": totals.left,
        "violations": totals.violations,
        "rows": each,
        "all": spread_json(&run.all),
    })
}

fn spread_json(spread: &Spread) -> Value {
    let ms = |time: Option<Duration>| time.map(|time| time.as_micros() as f64 / 1e3);
    json!({
        "events": spread.events,
        "never": spread.never,
        "wait_ms": { "p50": ms(spread.p50), "p99": ms(spread.p99), "max": ms(spread.max) },
    })
}
