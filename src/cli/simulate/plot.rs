//! The picture: waits over time, a panel a configuration.

use std::path::Path;
use std::time::Duration;

use super::Report;
use super::figures::{Figures, Rows};
use crate::cli::panels::{self, Axes, Dot, TOP};
use crate::cli::picture::{BLUE, Color as _, GREY, HPos, Picture, VERMILION};
use crate::cli::table::{escaped, span, thousands};

/// Writes it into `folder`; the answer is the files' names.
pub(super) fn write(folder: &Path, report: &Report) -> anyhow::Result<Vec<String>> {
    let mut picture = panels::sheet(report.runs.len());
    let loud = loud(report);
    picture.heading("How long do events wait?", (16, 24), 19);
    let legend = format!(
        "{} events of {} groups. Each dot is an event: from its arrival to its first attempt.",
        thousands(report.events),
        thousands(report.groups as u64)
    );
    picture.text(&legend, (16, 48), 13, GREY, HPos::Left);
    let dots: Vec<Dot> = report.runs.iter().flat_map(|run| run.dots.iter().flatten()).copied().collect();
    let axes = Axes::of(&dots);
    for (number, run) in (0..).zip(&report.runs) {
        let left = panels::left(number);
        panels::grid(&mut picture, &axes, left, number == 0, "arrived at");
        panel(&mut picture, &axes, left, (&report.rows, run), loud);
    }
    picture.write(folder, "simulated")
}

/// The row that waits longest under the first configuration: what would make the others wait.
fn loud(report: &Report) -> Option<usize> {
    let first = report.runs.first()?;
    let (at, _) = first.spreads.iter().enumerate().max_by_key(|(_, spread)| spread.p50.unwrap_or(Duration::MAX))?;
    (first.spreads.len() > 1).then_some(at)
}

fn panel(picture: &mut Picture, axes: &Axes, left: i32, (rows, run): (&Rows, &Figures), loud: Option<usize>) {
    let name: String = escaped(&run.name).chars().take(44).collect();
    picture.heading(&name, (left, TOP - 50), 14);
    // The loud one first, so that it hides nobody.
    for dot in loud.and_then(|at| run.dots.get(at)).into_iter().flatten() {
        picture.dot(axes.place(left, *dot), 1.8, VERMILION.mix(0.55));
    }
    let quiet = |at: &usize| Some(*at) != loud;
    for dot in run.dots.iter().enumerate().filter(|(at, _)| quiet(at)).flat_map(|(_, dots)| dots) {
        picture.dot(axes.place(left, *dot), 2.2, BLUE.mix(0.6));
    }
    // Words for the loud one, and for the first of the others.
    let others = (0..rows.who.len()).find(quiet);
    for (at, row, ink) in [(others, TOP - 29, BLUE), (loud, TOP - 11, VERMILION)] {
        let Some((who, spread)) = at.and_then(|at| Some((rows.who.get(at)?, run.spreads.get(at)?))) else { continue };
        let time = |time: Option<Duration>| time.map_or_else(|| "never".to_owned(), span);
        let name: String = escaped(&who.name).chars().take(24).collect();
        let words = format!("{name}: p50 {}, p99 {}", time(spread.p50), time(spread.p99));
        picture.text(&words, (left, row), 13, ink, HPos::Left);
    }
}
