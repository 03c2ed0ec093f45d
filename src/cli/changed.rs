//! What a person has just changed, in words for a terminal: what to know, and what holds from now on and until when, before all the figures.

use serde_json::{Map, Value};

use super::table::{cell, escaped, lines};

/// The answer to a change of a group or of the upstream.
pub(super) fn changed(answer: &Value) -> String {
    let mut rest = answer.clone();
    let Some(fields) = rest.as_object_mut() else { return lines(answer) };
    let note = fields.remove("note").map(|note| format!("note: {}\n", cell(Some(&note)))).unwrap_or_default();
    let whose = fields.remove("group").map_or_else(|| "the upstream".to_owned(), |name| cell(Some(&name)));
    let change = fields.remove("override").or_else(|| fields.remove("change"));
    let holds = match change.as_ref().and_then(Value::as_object) {
        Some(change) => format!("is {}", in_force(change)),
        None => "is treated as the file says".to_owned(),
    };
    format!("{note}{whose} {holds}\n\n{}", lines(&rest))
}

/// Each part of the changes that hold, and until when: `paused until …; at weight 4.00 until it is restored`.
pub(super) fn in_force(change: &Map<String, Value>) -> String {
    let ends = change.get("ends").and_then(Value::as_object).into_iter().flatten();
    let part = |(name, end): (&String, &Value)| {
        let value = change.get(name);
        let what = match (name.as_str(), value.and_then(Value::as_bool)) {
            ("paused", Some(true)) => "paused".to_owned(),
            ("paused", _) => "not paused".to_owned(),
            (name, _) => format!("at {} {}", escaped(name), cell(value)),
        };
        let until =
            end.as_str().map_or_else(|| "until it is restored".to_owned(), |at| format!("until {}", escaped(at)));
        format!("{what} {until}")
    };
    let mut parts: Vec<(bool, String)> = ends.map(|end| (end.0 != "paused", part(end))).collect();
    // Whether it is paused is what most people want to see.
    parts.sort();
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_note_and_what_holds_stand_before_the_figures() {
        let answer = json!({
            "accepted": 3, "group": "noisy", "note": "did you mean \"noisy-store\"?",
            "override": {
                "paused": true, "weight": 4.0, "backlog": 7, "expires": "2030-01-01T00:00:00Z",
                "ends": { "backlog": "2030-01-02T00:00:00Z", "paused": "2030-01-01T00:00:00Z", "weight": null },
            },
        });
        let expected = "note: did you mean \"noisy-store\"?\nnoisy is paused until 2030-01-01T00:00:00Z; \
            at backlog 7 until 2030-01-02T00:00:00Z; at weight 4.00 until it is restored\n\naccepted: 3\n";
        assert_eq!(changed(&answer), expected);
    }

    #[test]
    fn without_a_change_the_file_holds() {
        let text = changed(&json!({ "group": "a", "override": null, "accepted": 1 }));
        assert_eq!(text, "a is treated as the file says\n\naccepted: 1\n");
        let text = changed(&json!({ "change": null, "paused": false }));
        assert!(text.starts_with("the upstream is treated as the file says\n"), "{text}");
    }
}
