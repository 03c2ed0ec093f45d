//! The picture: how each rule spreads the events over the shards, a panel a rule.

use std::path::Path;

use super::Report;
use super::summary::Summary;
use crate::cli::picture::{BLUE, GREY, GRID, HPos, Picture, VERMILION};
use crate::cli::table::{escaped, percent, span, thousands};

const WIDTH: i32 = 760;
const LEFT: i32 = 84;
const RIGHT: i32 = 20;
const TOP: i32 = 64;
/// Of one panel: its words, its bars, and what stands below them.
const WORDS: i32 = 48;
const BARS: i32 = 110;
const BELOW: i32 = 34;

/// More rules make no picture that anybody reads.
const PANELS_MAX: usize = 12;

/// A shard with so many times the median is drawn as one that stands out.
const STANDS_OUT: f64 = 2.0;

/// Writes it into `folder`; the answer is the files' names.
pub(super) fn write(folder: &Path, report: &Report) -> anyhow::Result<Vec<String>> {
    let shown = report.rules.len().min(PANELS_MAX);
    let height = TOP + i32::try_from(shown).unwrap_or(1) * (WORDS + BARS + BELOW);
    let mut picture = Picture::new(WIDTH, height);
    picture.heading("How each rule spreads the events over 32 shards", (16, 24), 18);
    let traffic = format!("{} requests; a bar is a shard", thousands(report.told.requests));
    picture.text(&traffic, (16, 46), 13, GREY, HPos::Left);
    for (number, rule) in (0..).zip(report.rules.iter().take(PANELS_MAX)) {
        panel(&mut picture, TOP + number * (WORDS + BARS + BELOW), rule);
    }
    picture.write(folder, "keys")
}

fn panel(picture: &mut Picture, top: i32, rule: &Summary) {
    let name: String = escaped(&rule.name).chars().take(90).collect();
    picture.heading(&name, (16, top + 10), 14);
    let lanes = rule.in_lanes.map_or_else(|| "-".to_owned(), span);
    let words = format!(
        "{}{} groups, the largest {}; small groups wait {} in one queue, {lanes} in lanes",
        if rule.is_over { "more than " } else { "" },
        thousands(rule.groups),
        percent(rule.largest_share()),
        span(rule.one_queue),
    );
    picture.text(&words, (16, top + 30), 13, GREY, HPos::Left);
    let (bars_top, floor) = (top + WORDS, top + WORDS + BARS);
    let most = rule.fullest().map_or(0, |(_, shard)| shard.events).max(1);
    for (events, row) in [(most, bars_top), (0, floor)] {
        picture.line((LEFT, row), (WIDTH - RIGHT, row), GRID);
        picture.text(&thousands(events), (LEFT - 8, row), 12, GREY, HPos::Right);
    }
    let median = rule.median();
    let step = (WIDTH - RIGHT - LEFT) / i32::try_from(rule.shards.len().max(1)).unwrap_or(1);
    for (number, shard) in (0..).zip(&rule.shards) {
        let left = LEFT + number * step;
        let up = (shard.events as f64 / most as f64 * f64::from(BARS)).round() as i32;
        let ink = if shard.events as f64 > STANDS_OUT * median { VERMILION } else { BLUE };
        if shard.events > 0 {
            picture.area((left + 2, floor - up.max(1)), (left + step - 2, floor), ink);
        }
        if number % 4 == 0 {
            picture.text(&number.to_string(), (left + step / 2, floor + 12), 11, GREY, HPos::Center);
        }
    }
}
