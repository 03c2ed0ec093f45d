//! The picture: each quiet store's wait over time, a panel a phase, as SVG and as PNG.
//!
//! One drawing for both. plotters gives shapes, text and the two ways out; the font comes along (Noto Sans, Open Font License), so
//! nothing has to be installed. The PNG is drawn four times as large and made half of that, which is what smooths its edges.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::element::{Drawable, PointCollection};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::figures::{Dot, Figures, Phase, span, thousands};
use super::ledger::FLOODING;

/// One panel's width, and the height of the whole, in the SVG's pixels.
const PANEL: i32 = 330;
const HEIGHT: i32 = 450;
const LEFT: i32 = 62;
const GAP: i32 = 22;
const TOP: i32 = 132;
const BOTTOM: i32 = 48;

/// Both are drawn this much larger, and shown smaller: the SVG as a whole, the PNG by [`SMOOTHING`].
const SCALE: i32 = 4;
const SMOOTHING: usize = 2;

// Blue and vermilion of Okabe and Ito's palette, which colour-blind eyes tell apart; they differ in lightness too.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const INK: RGBColor = RGBColor(34, 34, 34);
const GREY: RGBColor = RGBColor(105, 105, 105);
const GRID: RGBColor = RGBColor(226, 226, 222);
/// Behind the time in which the flood waits.
const SHADE: RGBColor = RGBColor(252, 243, 234);
const PAPER: RGBColor = RGBColor(253, 253, 251);

/// Writes both pictures into `folder`; the answer is their names.
pub(super) fn write(folder: &Path, phases: &[Figures]) -> anyhow::Result<Vec<String>> {
    for (style, font) in [(FontStyle::Normal, notosans::REGULAR_TTF), (FontStyle::Bold, notosans::BOLD_TTF)] {
        register_font("sans-serif", style, font).map_err(|_| anyhow!("the font that comes along cannot be read"))?;
    }
    let mut names = Vec::new();
    for (name, bytes) in [("wait.svg", svg(phases)?.into_bytes()), ("wait.png", png(phases)?)] {
        let path = folder.join(name);
        let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&bytes));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        names.push(path.display().to_string());
    }
    Ok(names)
}

fn width(phases: &[Figures]) -> i32 {
    let panels = i32::try_from(phases.len()).unwrap_or(1);
    LEFT + panels * (PANEL + GAP)
}

fn svg(phases: &[Figures]) -> anyhow::Result<String> {
    let mut text = String::new();
    let (width, height) = (width(phases), HEIGHT);
    let size = |scale: i32| ((width * scale).unsigned_abs(), (height * scale).unsigned_abs());
    draw(SVGBackend::with_string(&mut text, size(SCALE)), phases, SCALE)?;
    // Shown at its real size; the coordinates stay the fine ones, since plotters knows whole pixels alone.
    let fine = format!("width=\"{}\" height=\"{}\"", width * SCALE, height * SCALE);
    Ok(text.replacen(&fine, &format!("width=\"{width}\" height=\"{height}\""), 1))
}

fn png(phases: &[Figures]) -> anyhow::Result<Vec<u8>> {
    let (width, height) = ((width(phases) * SCALE).unsigned_abs(), (HEIGHT * SCALE).unsigned_abs());
    let mut pixels = vec![0; 3 * width as usize * height as usize];
    draw(BitMapBackend::with_buffer(&mut pixels, (width, height)), phases, SCALE)?;
    let smaller = smoothed(&pixels, width as usize, SMOOTHING);
    let mut bytes = Vec::new();
    let by = SMOOTHING as u32;
    let mut encoder = png::Encoder::new(&mut bytes, width / by, height / by);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&smaller)?;
    writer.finish()?;
    Ok(bytes)
}

/// RGB rows of `width` pixels, `by` times smaller, each pixel the mean of those it takes the place of.
fn smoothed(pixels: &[u8], width: usize, by: usize) -> Vec<u8> {
    let mut smaller = Vec::with_capacity(pixels.len() / (by * by));
    for rows in pixels.chunks_exact(3 * width * by) {
        let mut sums = vec![0_usize; 3 * width / by];
        for row in rows.chunks_exact(3 * width) {
            for (sum, cells) in sums.chunks_exact_mut(3).zip(row.chunks_exact(3 * by)) {
                for pixel in cells.chunks_exact(3) {
                    sum.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += usize::from(*value));
                }
            }
        }
        smaller.extend(sums.iter().map(|sum| u8::try_from(sum / (by * by)).unwrap_or(u8::MAX)));
    }
    smaller
}

/// A place to draw on, with its scale.
struct Sheet<DB: DrawingBackend> {
    area: DrawingArea<DB, Shift>,
    scale: i32,
}

type Drawn = anyhow::Result<()>;

impl<DB: DrawingBackend> Sheet<DB> {
    fn text(&self, text: &str, at: (i32, i32), size: i32, ink: RGBColor, anchor: HPos, style: FontStyle) -> Drawn {
        let font = FontDesc::new(FontFamily::SansSerif, f64::from(size * self.scale), style);
        let style = TextStyle::from(font).color(&ink).pos(Pos::new(anchor, VPos::Center));
        self.put(&Text::new(text.to_owned(), (at.0 * self.scale, at.1 * self.scale), style))
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), ink: RGBColor) -> Drawn {
        let scaled = |(x, y): (i32, i32)| (x * self.scale, y * self.scale);
        let style = ShapeStyle { color: ink.to_rgba(), filled: false, stroke_width: self.scale.unsigned_abs() };
        self.put(&PathElement::new(vec![scaled(from), scaled(to)], style))
    }

    fn area_of(&self, from: (i32, i32), to: (i32, i32), ink: RGBColor) -> Drawn {
        let scaled = |(x, y): (i32, i32)| (x * self.scale, y * self.scale);
        self.put(&Rectangle::new([scaled(from), scaled(to)], ink.filled()))
    }

    /// At a place given in fractions of the SVG's pixels.
    fn dot(&self, at: (f64, f64), radius: f64, ink: RGBAColor) -> Drawn {
        let scale = f64::from(self.scale);
        let at = ((at.0 * scale).round() as i32, (at.1 * scale).round() as i32);
        self.put(&Circle::new(at, (radius * scale).round() as i32, ink.filled()))
    }

    fn put<E>(&self, element: &E) -> Drawn
    where
        for<'a> &'a E: PointCollection<'a, (i32, i32)>,
        E: Drawable<DB>,
    {
        self.area.draw(element).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))
    }
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

fn draw<DB: DrawingBackend>(backend: DB, phases: &[Figures], scale: i32) -> Drawn {
    let sheet = Sheet { area: backend.into_drawing_area(), scale };
    sheet.area.fill(&PAPER).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    heading(&sheet, phases)?;
    let axes = Axes::of(phases);
    for (index, phase) in (0..).zip(phases) {
        let left = LEFT + index * (PANEL + GAP);
        shade(&sheet, &axes, left, phase)?;
        grid(&sheet, &axes, left, index == 0)?;
        panel(&sheet, &axes, left, phase)?;
    }
    sheet.area.present().map_err(|error| anyhow!("the plot cannot be drawn: {error}"))
}

fn heading<DB: DrawingBackend>(sheet: &Sheet<DB>, phases: &[Figures]) -> Drawn {
    let events = phases.iter().filter_map(Figures::flooding).map(|store| store.wait.count).max().unwrap_or(0);
    let title =
        format!("One store posts {} orders at once. How long do the other nine wait?", thousands(events as u64));
    sheet.text(&title, (16, 24), 19, INK, HPos::Left, FontStyle::Bold)?;
    let legend =
        "Each dot is an order: from its post to its arrival at the receiver, the slowest of its five webhooks.";
    sheet.text(legend, (16, 48), 13, GREY, HPos::Left, FontStyle::Normal)
}

/// The time from the flood's first post to its last arrival.
fn shade<DB: DrawingBackend>(sheet: &Sheet<DB>, axes: &Axes, left: i32, phase: &Figures) -> Drawn {
    let Some(flood) = phase.flood else { return Ok(()) };
    let from = axes.column(left, flood.posted.as_secs_f64());
    let to = axes.column(left, flood.delivered.as_secs_f64());
    sheet.area_of((from, TOP), (to, HEIGHT - BOTTOM), SHADE)?;
    sheet.text("the flood waits", ((from + to) / 2, TOP + 12), 12, VERMILION, HPos::Center, FontStyle::Normal)
}

fn grid<DB: DrawingBackend>(sheet: &Sheet<DB>, axes: &Axes, left: i32, first: bool) -> Drawn {
    for power in axes.low..=axes.high {
        let row = axes.row(10_f64.powi(power));
        sheet.line((left, row), (left + PANEL, row), GRID)?;
        if first {
            sheet.text(&decade(power), (left - 8, row), 12, GREY, HPos::Right, FontStyle::Normal)?;
        }
    }
    let floor = HEIGHT - BOTTOM;
    sheet.line((left, floor), (left + PANEL, floor), GREY)?;
    let step = [1, 2, 5, 10, 20, 50].into_iter().find(|step| axes.seconds / f64::from(*step) <= 7.0).unwrap_or(100);
    let mut at = 0;
    while f64::from(at) <= axes.seconds {
        let column = axes.column(left, f64::from(at));
        sheet.line((column, floor), (column, floor + 4), GREY)?;
        sheet.text(&format!("{at} s"), (column, floor + 15), 12, GREY, HPos::Center, FontStyle::Normal)?;
        at += step;
    }
    sheet.text("posted at", (left + PANEL / 2, floor + 35), 12, GREY, HPos::Center, FontStyle::Normal)
}

/// A power of ten, in seconds, as people write it.
fn decade(power: i32) -> String {
    if power >= 0 {
        return format!("{} s", thousands(10_u64.saturating_pow(power.unsigned_abs())));
    }
    if power >= -3 { format!("{} ms", 10_u64.pow((power + 3).unsigned_abs())) } else { "0.1 ms".to_owned() }
}

fn panel<DB: DrawingBackend>(sheet: &Sheet<DB>, axes: &Axes, left: i32, phase: &Figures) -> Drawn {
    let title = match phase.phase {
        Phase::Quiet => "Without the flood",
        Phase::Flood => "With the flood: a lane for each store",
        Phase::Shared => "With the flood: one shared queue",
    };
    sheet.text(title, (left, TOP - 50), 14, INK, HPos::Left, FontStyle::Bold)?;
    for dot in &phase.flood_dots {
        sheet.dot(axes.place(left, *dot), 1.8, VERMILION.mix(0.55))?;
    }
    for dot in &phase.quiet_dots {
        sheet.dot(axes.place(left, *dot), 2.6, BLUE.mix(0.6))?;
    }
    let quiet = format!("the quiet stores: p50 {}, p99 {}", span(phase.quiet.p50), span(phase.quiet.p99));
    sheet.text(&quiet, (left, TOP - 29), 13, BLUE, HPos::Left, FontStyle::Normal)?;
    let Some(flooding) = phase.flooding() else { return Ok(()) };
    let own = format!("{FLOODING} itself: p50 {}, up to {}", span(flooding.wait.p50), span(flooding.wait.max));
    sheet.text(&own, (left, TOP - 11), 13, VERMILION, HPos::Left, FontStyle::Normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_takes_the_mean_of_each_square() {
        let white_and_black = [255, 255, 255, 0, 0, 0, 100, 0, 0, 100, 0, 0].repeat(2);
        assert_eq!(smoothed(&white_and_black, 4, 2), [127, 127, 127, 100, 0, 0]);
    }

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
