//! Tables and lists for a terminal, made of the same JSON that `--json` prints. Values come from strangers: whatever could
//! command a terminal is escaped. No colour anywhere, so there is none to switch off.

use std::time::Duration;

use serde_json::Value;

/// A column: its head, the field it shows, and whether it stands to the right.
pub(super) type Column = (&'static str, &'static str, bool);

/// Which of several nodes a row is of.
const NODE: Column = ("NODE", "node", false);

/// The rows of `list` as a table; the last column is not padded. Rows that are of one node each say of which.
pub(super) fn table(answer: &Value, list: &str, columns: &[Column]) -> String {
    let rows: Vec<&Value> = answer.get(list).and_then(Value::as_array).into_iter().flatten().collect();
    if rows.is_empty() {
        return format!("no {list}\n");
    }
    let mut columns = columns.to_vec();
    if rows.iter().any(|row| row.get(NODE.1).is_some_and(Value::is_string)) && !columns.iter().any(|c| c.1 == NODE.1) {
        columns.insert(1.min(columns.len()), NODE);
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|row| columns.iter().map(|c| cell(row.get(c.1))).collect()).collect();
    let width = |at: usize, head: &str| {
        let widest = cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(head.chars().count())
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(at, column)| width(at, column.0)).collect();
    let mut text = String::new();
    let heads: Vec<String> = columns.iter().map(|column| column.0.to_owned()).collect();
    for row in std::iter::once(&heads).chain(&cells) {
        let mut line = String::new();
        for (((_, _, right), width), cell) in columns.iter().zip(&widths).zip(row) {
            line.push_str(&if *right { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What of several nodes is not in an answer, a line each.
pub(super) fn missing(answer: &Value) -> Vec<String> {
    let missing = answer.get("missing").and_then(Value::as_array).into_iter().flatten();
    let line = |one: &Value| match one.get("node").and_then(Value::as_str) {
        Some(node) => format!("{} is not in this: {}", escaped(node), cell(one.get("why"))),
        None => cell(one.get("why")),
    };
    missing.map(line).collect()
}

/// An object as lines of `name: value`.
pub(super) fn lines(answer: &Value) -> String {
    let Some(object) = answer.as_object() else { return format!("{answer}\n") };
    object.iter().map(|(name, value)| format!("{name}: {}\n", cell(Some(value)))).collect()
}

/// What stands in a table's cell.
pub(super) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => escaped(text),
        Some(Value::Number(number)) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        Some(Value::Object(object)) => {
            let parts: Vec<String> =
                object.iter().map(|(name, value)| format!("{name} {}", cell(Some(value)))).collect();
            parts.join(", ")
        }
        Some(Value::Array(items)) if items.is_empty() => "-".to_owned(),
        Some(Value::Array(items)) => items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(", "),
        Some(other) => other.to_string(),
    }
}

/// A stranger's text for a terminal: control characters and those that reorder what is shown are escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' => safe.push(character),
            other => safe.extend(other.escape_debug()),
        }
    }
    safe
}

/// A time as people read it: three digits at most, and its unit.
pub(super) fn span(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ..9.95 => format!("{ms:.1} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        ..99_950.0 => format!("{:.1} s", ms / 1e3),
        _ => format!("{:.0} s", ms / 1e3),
    }
}

/// A part of a whole, 0 to 1, as people read it; what is not quite all or nothing does not look like it.
pub(super) fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent > 0.0 && percent < 0.05 => "< 0.1 %".to_owned(),
        percent if (99.95..100.0).contains(&percent) => "> 99.9 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// So many of them: `1 event`, `2 events`.
pub(super) fn many(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A number with its thousands apart.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_lines_up_and_escapes_what_strangers_wrote() {
        let answer = json!({ "events": [
            { "id": "evt_1", "group": "a", "attempts": 3, "type": "\u{1b}[2J" },
            { "id": "evt_22", "group": "bb", "attempts": 10, "type": null },
        ]});
        let columns =
            [("ID", "id", false), ("GROUP", "group", false), ("ATTEMPTS", "attempts", true), ("TYPE", "type", false)];
        let expected =
            "ID      GROUP  ATTEMPTS  TYPE\nevt_1   a             3  \\u{1b}[2J\nevt_22  bb           10  -\n";
        assert_eq!(table(&answer, "events", &columns), expected);
        assert_eq!(table(&json!({ "events": [] }), "events", &columns), "no events\n");
    }

    #[test]
    fn rows_of_several_nodes_say_of_which_and_what_is_missing_is_named() {
        let answer = json!({
            "jobs": [{ "id": 1, "node": "node-a", "state": "running" }, { "id": 2, "node": "node-b", "state": "done" }],
            "missing": [{ "node": "node-c", "why": "no answer" }, { "node": null, "why": "5 of 64 shards have no owner" }],
        });
        let expected = "ID  NODE    STATE\n 1  node-a  running\n 2  node-b  done\n";
        assert_eq!(table(&answer, "jobs", &[("ID", "id", true), ("STATE", "state", false)]), expected);
        assert_eq!(missing(&answer), ["node-c is not in this: no answer", "5 of 64 shards have no owner"]);
        assert_eq!(missing(&json!({})), [""; 0]);
    }

    #[test]
    fn what_reorders_a_terminal_is_escaped_and_quotes_stay() {
        assert_eq!(escaped("it's \"a\u{202e}b\u{7}\n"), "it's \"a\\u{202e}b\\u{7}\\n");
    }

    #[test]
    fn nearly_all_is_not_all() {
        let shown = [0.0, 0.0001, 0.0005, 0.5, 0.9994, 0.9999, 1.0].map(percent);
        assert_eq!(shown, ["0.0 %", "< 0.1 %", "0.1 %", "50.0 %", "99.9 %", "> 99.9 %", "100.0 %"]);
    }

    #[test]
    fn nested_values_stay_on_one_line() {
        assert_eq!(lines(&json!({ "a": ["x", "y"], "b": { "c": 1.5 }, "d": [] })), "a: x, y\nb: c 1.50\nd: -\n");
    }
}
