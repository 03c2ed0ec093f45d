//! The picture on a screen. Emphasis alone, no colour.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use serde_json::{Value, json};

use super::picture::{COLUMNS, Detail};
use super::state::{Mode, State};
use crate::cli::table::{Column, cell, escaped, lines, table};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Lines above the table: with what there always is, and with as many more as may be named of what is missing.
const HEAD_MIN: u16 = 4;
const HEAD_MAX: u16 = 8;

/// The widest that a group's name may be; the rest of it is on its own page.
const NAME_MAX: usize = 40;

/// The events of one group's page.
const EVENT_COLUMNS: [Column; 5] = [
    ("EVENT", "id", false),
    ("STATUS", "status", false),
    ("RECEIVED", "received_at", false),
    ("ATTEMPTS", "attempts", true),
    ("TYPE", "type", false),
];

/// The whole screen.
pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let mut above: Vec<Line<'_>> = state.picture.head().into_iter().map(Line::from).collect();
    let height = u16::try_from(above.len()).unwrap_or(u16::MAX).clamp(HEAD_MIN, HEAD_MAX);
    let areas = Layout::vertical([Constraint::Length(height), Constraint::Min(1), Constraint::Length(1)]);
    let [head, middle, foot] = areas.areas(frame.area());
    if let Some(first) = above.first_mut() {
        *first = first.clone().style(BOLD);
    }
    frame.render_widget(Paragraph::new(above), head);
    match (&state.open, &state.picture.detail) {
        (None, _) => groups(state, frame, middle),
        (Some(_), Some(detail)) => frame.render_widget(Paragraph::new(Text::from(page(detail))), middle),
        (Some(group), None) => frame.render_widget(format!("asking about {} …", escaped(group)), middle),
    }
    frame.render_widget(Line::from(footer(state)).style(BOLD), foot);
}

fn groups(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let rows = state.picture.rows(&state.filter);
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| COLUMNS.iter().map(|column| short(column.1, cell(row.get(column.1)))).collect())
        .collect();
    let width = |at: usize, head: &str| {
        let widest = cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        Constraint::Length(u16::try_from(widest.unwrap_or(0).max(head.len())).unwrap_or(u16::MAX))
    };
    let mut widths: Vec<Constraint> = COLUMNS.iter().enumerate().map(|(at, column)| width(at, column.0)).collect();
    // Why, the last one, has what is left.
    widths.pop();
    widths.push(Constraint::Min(10));
    let line = |row: Vec<String>| {
        let aligned = row.into_iter().zip(COLUMNS).map(|(text, (_, _, right))| {
            let line = Line::from(text);
            if right { line.right_aligned() } else { line }
        });
        Row::new(aligned.map(Text::from))
    };
    let heads = line(COLUMNS.iter().map(|column| column.0.to_owned()).collect()).style(BOLD);
    let table = Table::new(cells.into_iter().map(line), widths).header(heads).row_highlight_style(MARKED);
    let mut marked = TableState::new().with_selected((!rows.is_empty()).then_some(state.selected));
    frame.render_stateful_widget(table, area, &mut marked);
}

/// A cell that leaves room for the others.
fn short(field: &str, text: String) -> String {
    if field != "group" || text.chars().count() <= NAME_MAX {
        return text;
    }
    text.chars().take(NAME_MAX - 1).chain(['…']).collect()
}

/// One group: why it does not run, its attempts that are held, its last events.
fn page(detail: &Detail) -> String {
    let text = |name: &str| escaped(detail.group.get(name).and_then(Value::as_str).unwrap_or_default());
    let reason = match text("reason") {
        empty if empty.is_empty() => "nothing holds it back".to_owned(),
        reason => reason,
    };
    let events = |list: &[Value]| table(&json!({ "events": list }), "events", &EVENT_COLUMNS);
    let mut figures = detail.group.clone();
    if let Some(figures) = figures.as_object_mut() {
        figures.retain(|name, value| !matches!(name.as_str(), "group" | "state" | "reason") && !value.is_null());
    }
    format!(
        "{} is {}: {reason}\n\nwith the upstream now:\n{}\nits last events:\n{}\n{}",
        text("group"),
        text("state"),
        events(&detail.in_flight),
        events(&detail.events),
        lines(&figures)
    )
}

fn footer(state: &State) -> String {
    match &state.mode {
        Mode::Filter => format!("filter: {}_   (Enter keeps it, Esc drops it)", escaped(&state.filter)),
        Mode::Confirm(group, true) => format!("pause {} for 1 h? y/n", escaped(group)),
        Mode::Confirm(group, false) => format!("let {} go on? y/n", escaped(group)),
        Mode::Look => {
            let keys = if state.open.is_some() {
                "Esc back  p pause/resume  q quit"
            } else {
                "a age  d depth  s seconds  r rate  / filter  Enter more  p pause/resume  q quit"
            };
            let filter = if state.filter.is_empty() { String::new() } else { format!("  filter {:?}", state.filter) };
            let said = if state.said.is_empty() { String::new() } else { format!("  | {}", escaped(&state.said)) };
            format!("by {}{filter}  | {keys}{said}", state.sort.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::super::picture::{Picture, Sort};
    use super::*;

    fn picture() -> Picture {
        let group = |name: &str, state: &str, reason: &str| {
            json!({ "group": name, "state": state, "reason": reason, "paused": false, "queued": 12_000, "retrying": 345, "in_flight": 8,
                "oldest_age_s": 754.2, "arrival_rate": 100.25, "drain_rate": 8.0, "eta_s": null, "share": 0.125 })
        };
        Picture {
            status: json!({ "version": "0.1.0", "uptime_s": 7_300, "not_ready_reason": null, "backlog": { "events": 12_345, "oldest_age_s": 754.2 },
                "alerts": [{ "alert": "backlog_age", "severity": "ticket", "what": "noisy's oldest event is 13 min old" }] }),
            upstream: json!({ "concurrency": 64, "paused": false, "active_groups": 2, "attempt_median_ms": 51.7, "breaker": { "state": "closed" },
                "slots": { "busy": 16, "slow": 0, "retry": 2, "free": 48 } }),
            groups: vec![group("noisy", "capped", "8 attempts in flight, its cap"), group("x\u{202e}y", "ready", "")],
            detail: None,
        }
    }

    /// The lines of a screen of this size.
    fn drawn(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(state, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_screen_shows_the_node_its_slots_its_alerts_and_its_groups() {
        let mut state = State::new(Sort::Age);
        state.said.clear();
        state.show(picture());
        let lines = drawn(&state, 120, 9);
        let expected = [
            "fairlane 0.1.0, up 2.0 h, ready; 12,345 events wait in 2 groups, the oldest for 13 min",
            "slots [######..................] 16 of 64 busy, 0 slow, 2 retries; upstream: breaker closed, an attempt takes 52 ms",
            "ticket: backlog_age: noisy's oldest event is 13 min old",
            "",
            "GROUP      STATE   IN/s OUT/s IN FLIGHT BACKLOG OLDEST ETA  SHARE WHY",
            "noisy      capped 100.2   8.0         8  12,345 13 min   - 12.5 % 8 attempts in flight, its cap",
            "x\\u{202e}y ready  100.2   8.0         8  12,345 13 min   - 12.5 %",
            "",
            "by age  | a age  d depth  s seconds  r rate  / filter  Enter more  p pause/resume  q quit",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn one_group_has_a_page_and_questions_stand_below() {
        let mut state = State::new(Sort::Depth);
        let detail = Detail {
            group: json!({ "group": "noisy", "state": "held", "reason": "", "weight": 1.0 }),
            events: vec![
                json!({ "id": "evt_1", "status": "queued", "received_at": "2026-01-31T08:00:00.000Z", "attempts": 0 }),
            ],
            in_flight: Vec::new(),
        };
        state.open = Some("noisy".to_owned());
        state.show(Picture { detail: Some(detail), ..picture() });
        state.mode = Mode::Confirm("noisy".to_owned(), true);
        let text = drawn(&state, 100, 24).join("\n");
        for part in [
            "noisy is held: nothing holds it back",
            "with the upstream now:\nno events",
            "evt_1  queued  2026-01-31",
            "weight: 1.00",
            "pause noisy for 1 h? y/n",
        ] {
            assert!(text.contains(part), "{part:?} is not on\n{text}");
        }
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let mut state = State::new(Sort::Rate);
        state.show(picture());
        for (width, height) in [(1, 1), (5, 3), (20, 6), (300, 100)] {
            assert_eq!(drawn(&state, width, height).len(), usize::from(height));
        }
    }
}
