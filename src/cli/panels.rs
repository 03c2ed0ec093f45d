//! Panels side by side with the same axes: waits over time, a dot an event, as `demo` and `simulate` draw them.

use super::picture::{GREY, GRID, HPos, Picture};
use super::table::thousands;

/// One panel's width, and the height of the whole.
pub(super) const PANEL: i32 = 330;
pub(super) const HEIGHT: i32 = 450;
const LEFT: i32 = 62;
const GAP: i32 = 22;
/// Where the panels begin; their words stand above.
pub(super) const TOP: i32 = 132;
/// What stands below them.
pub(super) const BOTTOM: i32 = 48;

/// A point of the plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dot {
    /// Seconds from the beginning to the arrival.
    pub(super) at_s: f64,
    /// How long it waited, in seconds.
    pub(super) wait_s: f64,
}

/// An empty picture for so many panels.
pub(super) fn sheet(panels: usize) -> Picture {
    Picture::new(left(i32::try_from(panels).unwrap_or(1)), HEIGHT)
}

/// Where the panel of this number begins, from 0.
pub(super) fn left(panel: i32) -> i32 {
    LEFT + panel * (PANEL + GAP)
}

/// Seconds between the marks below a panel.
const STEPS: [i32; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 3_600, 10_800];

/// The axes, the same for all panels: seconds from left to right, waits from below on a logarithmic scale.
pub(super) struct Axes {
    seconds: f64,
    /// Powers of ten, in seconds.
    low: i32,
    high: i32,
}

impl Axes {
    /// Axes that hold all of `dots`.
    pub(super) fn of(dots: &[Dot]) -> Self {
        let dots = || dots.iter();
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
    pub(super) fn place(&self, left: i32, dot: Dot) -> (f64, f64) {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let up = (dot.wait_s.log10().clamp(low, high) - low) / (high - low);
        let plot = f64::from(HEIGHT - BOTTOM - TOP);
        (f64::from(left) + dot.at_s / self.seconds * f64::from(PANEL), f64::from(HEIGHT - BOTTOM) - up * plot)
    }

    /// Where a moment stands in a panel that begins at `left`.
    pub(super) fn column(&self, left: i32, at_s: f64) -> i32 {
        self.place(left, Dot { at_s: at_s.min(self.seconds), wait_s: 1.0 }).0.round() as i32
    }

    /// Where a wait stands.
    pub(super) fn row(&self, wait_s: f64) -> i32 {
        self.place(0, Dot { at_s: 0.0, wait_s }).1.round() as i32
    }
}

/// Lines and numbers of a panel; those of the waits only where it is the first. `below` says what the time is.
pub(super) fn grid(picture: &mut Picture, axes: &Axes, left: i32, first: bool, below: &str) {
    for power in axes.low..=axes.high {
        let row = axes.row(10_f64.powi(power));
        picture.line((left, row), (left + PANEL, row), GRID);
        if first {
            picture.text(&decade(power), (left - 8, row), 12, GREY, HPos::Right);
        }
    }
    let floor = HEIGHT - BOTTOM;
    picture.line((left, floor), (left + PANEL, floor), GREY);
    let step = STEPS.into_iter().find(|step| axes.seconds / f64::from(*step) <= 7.0).unwrap_or(86_400);
    let mut at = 0;
    while f64::from(at) <= axes.seconds {
        let column = axes.column(left, f64::from(at));
        picture.line((column, floor), (column, floor + 4), GREY);
        picture.text(&format!("{at} s"), (column, floor + 15), 12, GREY, HPos::Center);
        at += step;
    }
    picture.text(below, (left + PANEL / 2, floor + 35), 12, GREY, HPos::Center);
}

/// A power of ten, in seconds, as people write it.
fn decade(power: i32) -> String {
    if power >= 0 {
        return format!("{} s", thousands(10_u64.saturating_pow(power.unsigned_abs())));
    }
    if power >= -3 { format!("{} ms", 10_u64.pow((power + 3).unsigned_abs())) } else { "0.1 ms".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_every_dot_and_are_read_in_plain_units() {
        let dots = [Dot { at_s: 0.5, wait_s: 0.002 }, Dot { at_s: 9.9, wait_s: 11.0 }];
        let axes = Axes::of(&dots);
        assert_eq!((axes.seconds, axes.low, axes.high), (11.0, -3, 2));
        for dot in dots {
            let (x, y) = axes.place(100, dot);
            assert!((100.0..=f64::from(100 + PANEL)).contains(&x), "{x}");
            assert!((f64::from(TOP)..=f64::from(HEIGHT - BOTTOM)).contains(&y), "{y}");
        }
        assert_eq!([-4, -3, -1, 0, 2].map(decade), ["0.1 ms", "1 ms", "100 ms", "1 s", "100 s"]);
    }
}
