//! The picture: each quiet store's wait over time, a panel a phase.

use std::path::Path;

use super::figures::{Figures, Phase};
use super::ledger::FLOODING;
use crate::cli::panels::{self, Axes, BOTTOM, Dot, HEIGHT, TOP};
use crate::cli::picture::{BLUE, Color as _, GREY, HPos, Picture, RGBColor, VERMILION};
use crate::cli::table::{span, thousands};

/// Behind the time in which the flood waits.
const SHADE: RGBColor = RGBColor(252, 243, 234);

/// Writes it into `folder`, as SVG and as PNG; the answer is their names.
pub(super) fn write(folder: &Path, phases: &[Figures]) -> anyhow::Result<Vec<String>> {
    let mut picture = panels::sheet(phases.len());
    heading(&mut picture, phases);
    let dots: Vec<Dot> =
        phases.iter().flat_map(|phase| phase.quiet_dots.iter().chain(&phase.flood_dots)).copied().collect();
    let axes = Axes::of(&dots);
    for (index, phase) in (0..).zip(phases) {
        let left = panels::left(index);
        shade(&mut picture, &axes, left, phase);
        panels::grid(&mut picture, &axes, left, index == 0, "posted at");
        panel(&mut picture, &axes, left, phase);
    }
    picture.write(folder, "wait")
}

fn heading(picture: &mut Picture, phases: &[Figures]) {
    let events = phases.iter().filter_map(Figures::flooding).map(|store| store.wait.count).max().unwrap_or(0);
    let title =
        format!("One store posts {} orders at once. How long do the other nine wait?", thousands(events as u64));
    picture.heading(&title, (16, 24), 19);
    let legend =
        "Each dot is an order: from its post to its arrival at the receiver, the slowest of its five webhooks.";
    picture.text(legend, (16, 48), 13, GREY, HPos::Left);
}

/// The time from the flood's first post to its last arrival.
fn shade(picture: &mut Picture, axes: &Axes, left: i32, phase: &Figures) {
    let Some(flood) = phase.flood else { return };
    let from = axes.column(left, flood.posted.as_secs_f64());
    let to = axes.column(left, flood.delivered.as_secs_f64());
    picture.area((from, TOP), (to, HEIGHT - BOTTOM), SHADE);
    picture.text("the flood waits", ((from + to) / 2, TOP + 12), 12, VERMILION, HPos::Center);
}

fn panel(picture: &mut Picture, axes: &Axes, left: i32, phase: &Figures) {
    let title = match phase.phase {
        Phase::Quiet => "Without the flood",
        Phase::Flood => "With the flood: a lane for each store",
        Phase::Shared => "With the flood: one shared queue",
    };
    picture.heading(title, (left, TOP - 50), 14);
    for dot in &phase.flood_dots {
        picture.dot(axes.place(left, *dot), 1.8, VERMILION.mix(0.55));
    }
    for dot in &phase.quiet_dots {
        picture.dot(axes.place(left, *dot), 2.6, BLUE.mix(0.6));
    }
    let quiet = format!("the quiet stores: p50 {}, p99 {}", span(phase.quiet.p50), span(phase.quiet.p99));
    picture.text(&quiet, (left, TOP - 29), 13, BLUE, HPos::Left);
    let Some(flooding) = phase.flooding() else { return };
    let own = format!("{FLOODING} itself: p50 {}, up to {}", span(flooding.wait.p50), span(flooding.wait.max));
    picture.text(&own, (left, TOP - 11), 13, VERMILION, HPos::Left);
}
