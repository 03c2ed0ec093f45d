//! Pictures: shapes that are drawn once as SVG and once as PNG.
//!
//! plotters gives shapes, text and the two ways out; the font comes along (Noto Sans, Open Font License), so nothing has to be
//! installed. The PNG is drawn four times as large and made half of that, which is what smooths its edges.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::element::{Drawable, PointCollection};
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{Pos, VPos};
pub(super) use plotters::style::{Color, FontStyle, RGBAColor, RGBColor, text_anchor::HPos};

/// Both are drawn this much larger, and shown smaller: the SVG as a whole, the PNG by [`SMOOTHING`].
const SCALE: i32 = 4;
const SMOOTHING: usize = 2;

// Blue and vermilion of Okabe and Ito's palette, which colour-blind eyes tell apart; they differ in lightness too.
pub(super) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(super) const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub(super) const INK: RGBColor = RGBColor(34, 34, 34);
pub(super) const GREY: RGBColor = RGBColor(105, 105, 105);
pub(super) const GRID: RGBColor = RGBColor(226, 226, 222);
const PAPER: RGBColor = RGBColor(253, 253, 251);

/// A picture: what is on it, in the SVG's pixels, in the order in which it is drawn.
pub(super) struct Picture {
    width: i32,
    height: i32,
    shapes: Vec<Shape>,
}

enum Shape {
    Text { text: String, at: (i32, i32), size: i32, ink: RGBColor, anchor: HPos, style: FontStyle },
    Line { from: (i32, i32), to: (i32, i32), ink: RGBColor },
    Area { from: (i32, i32), to: (i32, i32), ink: RGBColor },
    Dot { at: (f64, f64), radius: f64, ink: RGBAColor },
}

impl Picture {
    /// An empty one of this size.
    pub(super) fn new(width: i32, height: i32) -> Self {
        Self { width, height, shapes: Vec::new() }
    }

    /// Text that begins, ends or has its middle at `at`, by `anchor`.
    pub(super) fn text(&mut self, text: &str, at: (i32, i32), size: i32, ink: RGBColor, anchor: HPos) {
        self.shapes.push(Shape::Text { text: text.to_owned(), at, size, ink, anchor, style: FontStyle::Normal });
    }

    /// A heading that begins at `at`.
    pub(super) fn heading(&mut self, text: &str, at: (i32, i32), size: i32) {
        let (text, anchor) = (text.to_owned(), HPos::Left);
        self.shapes.push(Shape::Text { text, at, size, ink: INK, anchor, style: FontStyle::Bold });
    }

    pub(super) fn line(&mut self, from: (i32, i32), to: (i32, i32), ink: RGBColor) {
        self.shapes.push(Shape::Line { from, to, ink });
    }

    pub(super) fn area(&mut self, from: (i32, i32), to: (i32, i32), ink: RGBColor) {
        self.shapes.push(Shape::Area { from, to, ink });
    }

    /// At a place given in fractions of pixels.
    pub(super) fn dot(&mut self, at: (f64, f64), radius: f64, ink: RGBAColor) {
        self.shapes.push(Shape::Dot { at, radius, ink });
    }

    /// Writes it into `folder`, as `name.svg` and `name.png`; the answer is where they are.
    pub(super) fn write(&self, folder: &Path, name: &str) -> anyhow::Result<Vec<String>> {
        for (style, font) in [(FontStyle::Normal, notosans::REGULAR_TTF), (FontStyle::Bold, notosans::BOLD_TTF)] {
            register_font("sans-serif", style, font)
                .map_err(|_| anyhow!("the font that comes along cannot be read"))?;
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut names = Vec::new();
        for (end, bytes) in [("svg", self.svg()?.into_bytes()), ("png", self.png()?)] {
            let path = folder.join(format!("{name}.{end}"));
            let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&bytes));
            written.with_context(|| format!("cannot write {}", path.display()))?;
            names.push(path.display().to_string());
        }
        Ok(names)
    }

    fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        let (width, height) = (self.width, self.height);
        self.draw(SVGBackend::with_string(&mut text, self.size()))?;
        // Shown at its real size; the coordinates stay the fine ones, since plotters knows whole pixels alone.
        let fine = format!("width=\"{}\" height=\"{}\"", width * SCALE, height * SCALE);
        Ok(text.replacen(&fine, &format!("width=\"{width}\" height=\"{height}\""), 1))
    }

    fn png(&self) -> anyhow::Result<Vec<u8>> {
        let (width, height) = self.size();
        let mut pixels = vec![0; 3 * width as usize * height as usize];
        self.draw(BitMapBackend::with_buffer(&mut pixels, (width, height)))?;
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

    fn size(&self) -> (u32, u32) {
        ((self.width * SCALE).unsigned_abs(), (self.height * SCALE).unsigned_abs())
    }

    fn draw<DB: DrawingBackend>(&self, backend: DB) -> anyhow::Result<()> {
        let area = backend.into_drawing_area();
        let failed = |error: String| anyhow!("the plot cannot be drawn: {error}");
        area.fill(&PAPER).map_err(|error| failed(error.to_string()))?;
        for shape in &self.shapes {
            shape.draw(&area)?;
        }
        area.present().map_err(|error| failed(error.to_string()))
    }
}

impl Shape {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> anyhow::Result<()> {
        let scaled = |(x, y): (i32, i32)| (x * SCALE, y * SCALE);
        match self {
            Self::Text { text, at, size, ink, anchor, style } => {
                let font = FontDesc::new(FontFamily::SansSerif, f64::from(size * SCALE), *style);
                let style = TextStyle::from(font).color(ink).pos(Pos::new(*anchor, VPos::Center));
                put(area, &Text::new(text.clone(), scaled(*at), style))
            }
            Self::Line { from, to, ink } => {
                let style = ShapeStyle { color: ink.to_rgba(), filled: false, stroke_width: SCALE.unsigned_abs() };
                put(area, &PathElement::new(vec![scaled(*from), scaled(*to)], style))
            }
            Self::Area { from, to, ink } => put(area, &Rectangle::new([scaled(*from), scaled(*to)], ink.filled())),
            Self::Dot { at, radius, ink } => {
                let scale = f64::from(SCALE);
                let at = ((at.0 * scale).round() as i32, (at.1 * scale).round() as i32);
                put(area, &Circle::new(at, (radius * scale).round() as i32, ink.filled()))
            }
        }
    }
}

fn put<DB: DrawingBackend, E>(area: &DrawingArea<DB, Shift>, element: &E) -> anyhow::Result<()>
where
    for<'a> &'a E: PointCollection<'a, (i32, i32)>,
    E: Drawable<DB>,
{
    area.draw(element).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_takes_the_mean_of_each_square() {
        let white_and_black = [255, 255, 255, 0, 0, 0, 100, 0, 0, 100, 0, 0].repeat(2);
        assert_eq!(smoothed(&white_and_black, 4, 2), [127, 127, 127, 100, 0, 0]);
    }
}
