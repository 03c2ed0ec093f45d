//! Small charts: lines over the last hour, as SVG in the page. Colours are the style sheet's, so that they fit light and dark.

use std::fmt::Write as _;
use std::sync::LazyLock;

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

const WIDTH: u32 = 440;
const HEIGHT: u32 = 160;

/// Less than this is no chart: it would show a minute as if it were an hour.
const MINUTES_MIN: f64 = 2.0;

/// Minutes below which the axis counts seconds.
const SECONDS_BELOW: f64 = 6.0;

/// The colours that the style sheet replaces, one a line of the chart.
const MARKS: [RGBColor; 2] = [RGBColor(1, 1, 1), RGBColor(2, 2, 2)];

/// A line: its points as (minutes, value), the present being 0 and an hour ago −60.
pub(super) type Line = Vec<(f64, f64)>;

/// Draws at most two lines; `label` says what a screen reader says, `unit` writes a value at the axis. Empty when nothing can be drawn.
pub(super) fn draw(label: &str, lines: &[Line], unit: &dyn Fn(f64) -> String) -> String {
    // What text measures is asked of the font that comes along; the browser shows its own.
    static FONT: LazyLock<bool> =
        LazyLock::new(|| register_font("sans-serif", FontStyle::Normal, notosans::REGULAR_TTF).is_ok());
    let mut svg = String::new();
    if !*FONT || plot(&mut svg, lines, unit).is_err() {
        return String::new();
    }
    let (label, body) = (escaped(label), svg.trim_start_matches("<svg "));
    format!("<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" {body}")
}

fn plot(svg: &mut String, lines: &[Line], unit: &dyn Fn(f64) -> String) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flatten();
    let from = points().map(|(minute, _)| *minute).fold(-MINUTES_MIN, f64::min);
    let top = points().map(|(_, value)| *value).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(6)
        .margin_right(18)
        .x_label_area_size(24)
        .y_label_area_size(62)
        .build_cartesian_2d(from..0.0, 0.0..top)?;
    let back = |minute: &f64| match *minute {
        -0.01.. => "now".to_owned(),
        minute if from > -SECONDS_BELOW => format!("{:.0} s", minute * 60.0),
        minute => format!("{minute:.0} min"),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 12))
        .x_labels(4)
        .y_labels(4)
        .x_label_formatter(&back)
        .y_label_formatter(&|value| unit(*value))
        .draw()?;
    for (line, mark) in lines.iter().zip(MARKS) {
        chart.draw_series([PathElement::new(line.clone(), mark.stroke_width(2))])?;
    }
    area.present()?;
    Ok(())
}

/// Values as the points of a polyline in a box of 100 by 20; empty for fewer than two.
pub(super) fn spark(values: &[u64]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "drawn twenty pixels high")]
    let values: Vec<f64> = values.iter().map(|value| *value as f64).collect();
    let top = values.iter().copied().fold(1.0, f64::max);
    let mut points = String::new();
    if values.len() < 2 {
        return points;
    }
    #[expect(clippy::cast_precision_loss, reason = "drawn a hundred pixels wide")]
    let step = 100.0 / (values.len() - 1) as f64;
    let mut x = 0.0;
    for value in values {
        // Writing into a String cannot fail.
        let _unfailing = write!(points, "{x:.1},{:.1} ", 19.0 - 18.0 * value / top);
        x += step;
    }
    points
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_an_image_with_a_name_and_without_styles_of_its_own() {
        let line = (0..60).map(|i| (f64::from(i) - 60.0, f64::from(i))).collect();
        let svg = draw("a \"b\" <c>", &[line], &|value| format!("{value:.0} s"));
        assert!(svg.starts_with("<svg class=\"chart\" role=\"img\" aria-label=\"a &quot;b&quot; &lt;c>\""), "{svg}");
        assert!(svg.contains("polyline") && svg.contains("#010101") && svg.contains("now"), "{svg}");
        // The pages' policy forbids them.
        assert!(!svg.contains("style="), "{svg}");
        assert!(!draw("none", &[], &|value| value.to_string()).is_empty());
    }

    #[test]
    fn a_spark_spans_its_box() {
        assert_eq!(spark(&[0, 5, 10]), "0.0,19.0 50.0,10.0 100.0,1.0 ");
        assert_eq!(spark(&[1]), "");
    }
}
