//! The picture: each quiet store's wait over time, a panel a phase.

use std::path::Path;

use super::figures::{Dot, Figures, Phase};
use super::ledger::FLOODING;
use crate::cli::picture::{BLUE, Color as _, GREY, GRID, HPos, Picture, RGBColor, VERMILION};
use crate::cli::table::{span, thousands};

/// One panel's width, and the height of the whole.
const PANEL: i32 = 330;
const HEIGHT: i32 = 450;
const LEFT: i32 = 62;
const GAP: i32 = 22;
const TOP: i32 = 132;
const BOTTOM: i32 = 48;

/// Behind the time in which the flood waits.
const SHADE: RGBColor = RGBColor(252, 243, 234);

/// Writes it into `folder`, as SVG and as PNG; the answer is their names.
pub(super) fn write(folder: &Path, phases: &[Figures]) -> anyhow::Result<Vec<String>> {
    let panels = i32::try_from(phases.len()).unwrap_or(1);
    let mut picture = Picture::new(LEFT + panels * (PANEL + GAP), HEIGHT);
    heading(&mut picture, phases);
    let axes = Axes::of(phases);
    for (index, phase) in (0..).zip(phases) {
        let left = LEFT + index * (PANEL + GAP);
        shade(&mut picture, &axes, left, phase);
        grid(&mut picture, &axes, left, index == 0);
        panel(&mut picture, &axes, left, phase);
    }
    picture.write(folder, "wait")
}

/// The axes, the same for all panels: seconds from left to right, waits from below on a logarithmic scale.
struct Axes {
    seconds: f64,
    /// Powers of ten, in seconds.
    low: i32,
    high: i32,
}

impl Axes {
    fn of(phases: &[Figures]) -> Self {
        let dots = || phases.iter().flat_map(|phase| phase.quiet_dots.iter().chain(&phase.flood_dots));
        let seconds = dots().map(|dot| dot.at_s).fold(1.0, f64::max);
        let longest = dots().map(|dot| dot.wait_s).fold(0.01, f64::max);
        let shortest = dots().map(|dot| dot.wait_s).fold(longest, f64::min).max(1e-4);
        // A little air above, where the flood's label stands.
        Self {
            seconds: (seconds * 1.02).ceil(),
            low: shortest.log10().floor() as i32,
            high: (longest * 1.6).log10().ceil() as i32,
        }
    }

    /// Where a dot stands in a panel that begins at `left`.
    fn place(&self, left: i32, dot: Dot) -> (f64, f64) {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let up = (dot.wait_s.log10().clamp(low, high) - low) / (high - low);
        let plot = f64::from(HEIGHT - BOTTOM - TOP);
        (f64::from(left) + dot.at_s / self.seconds * f64::from(PANEL), f64::from(HEIGHT - BOTTOM) - up * plot)
    }

    fn column(&self, left: i32, at_s: f64) -> i32 {
        self.place(left, Dot { at_s: at_s.min(self.seconds), wait_s: 1.0 }).0.round() as i32
    }

    fn row(&self, wait_s: f64) -> i32 {
        self.place(0, Dot { at_s: 0.0, wait_s }).1.round() as i32
    }
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

fn grid(picture: &mut Picture, axes: &Axes, left: i32, first: bool) {
    for power in axes.low..=axes.high {
        let row = axes.row(10_f64.powi(power));
        picture.line((left, row), (left + PANEL, row), GRID);
        if first {
            picture.text(&decade(power), (left - 8, row), 12, GREY, HPos::Right);
        }
    }
    let floor = HEIGHT - BOTTOM;
    picture.line((left, floor), (left + PANEL, floor), GREY);
    let step = [1, 2, 5, 10, 20, 50].into_iter().find(|step| axes.seconds / f64::from(*step) <= 7.0).unwrap_or(100);
    let mut at = 0;
    while f64::from(at) <= axes.seconds {
        let column = axes.column(left, f64::from(at));
        picture.line((column, floor), (column, floor + 4), GREY);
        picture.text(&format!("{at} s"), (column, floor + 15), 12, GREY, HPos::Center);
        at += step;
    }
    picture.text("posted at", (left + PANEL / 2, floor + 35), 12, GREY, HPos::Center);
}

/// A power of ten, in seconds, as people write it.
fn decade(power: i32) -> String {
    if power >= 0 {
        return format!("{} s", thousands(10_u64.saturating_pow(power.unsigned_abs())));
    }
    if power >= -3 { format!("{} ms", 10_u64.pow((power + 3).unsigned_abs())) } else { "0.1 ms".to_owned() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_every_dot_and_are_read_in_plain_units() {
        let mut phase = Figures::of(Phase::Quiet, crate::event::Mono(0), &[]);
        phase.quiet_dots = vec![Dot { at_s: 0.5, wait_s: 0.002 }, Dot { at_s: 9.9, wait_s: 11.0 }];
        let axes = Axes::of(&[phase.clone()]);
        assert_eq!((axes.seconds, axes.low, axes.high), (11.0, -3, 2));
        for dot in phase.quiet_dots {
            let (x, y) = axes.place(100, dot);
            assert!((100.0..=f64::from(100 + PANEL)).contains(&x), "{x}");
            assert!((f64::from(TOP)..=f64::from(HEIGHT - BOTTOM)).contains(&y), "{y}");
        }
        assert_eq!([-4, -3, -1, 0, 2].map(decade), ["0.1 ms", "1 ms", "100 ms", "1 s", "100 s"]);
    }
}
