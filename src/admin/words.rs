//! Numbers, times and strangers' text, as the pages show them.

use std::time::Duration;

use crate::event::Wall;

/// A number with its thousands apart.
pub(super) fn count(number: u64) -> String {
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

/// A span in its largest unit, as a person says it: `0.4 s`, `12 s`, `3 min`, `2 h 05 min`, `3 d 4 h`.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match time.as_secs_f64() {
        ..0.000_05 => "0 s".to_owned(),
        ..0.095 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        ..9.95 => format!("{:.1} s", time.as_secs_f64()),
        ..120.0 => format!("{seconds} s"),
        ..7_200.0 => format!("{} min", seconds / 60),
        ..172_800.0 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A store that is elsewhere and has not answered for this long is said to be away; it is asked every second.
pub(super) const SILENT: Duration = Duration::from_secs(3);

/// That Redis is away, and so what is shown of other nodes is old; `None` where it answers, or the store is here.
pub(super) fn away(silence: Duration) -> Option<String> {
    (silence >= SILENT)
        .then(|| format!("Redis has not answered this node for {}: this is how the nodes stood then", span(silence)))
}

/// Events a second.
pub(super) fn per_second(rate: f64) -> String {
    match rate {
        ..0.005 => "0/s".to_owned(),
        ..9.95 => format!("{rate:.1}/s"),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown, and not negative")]
        _ => format!("{}/s", count(rate.round() as u64)),
    }
}

/// A part of a whole, 0 to 1; what is not quite nothing does not look like it.
pub(super) fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent > 0.0 && percent < 0.5 => "< 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// Bytes in their largest unit.
pub(super) fn bytes(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let size = number as f64;
    match size {
        ..1_024.0 => format!("{number} B"),
        ..1_048_576.0 => format!("{:.1} KiB", size / 1_024.0),
        ..1_073_741_824.0 => format!("{:.1} MiB", size / 1_048_576.0),
        _ => format!("{:.1} GiB", size / 1_073_741_824.0),
    }
}

/// `1 event`, `2 events`.
pub(super) fn events(number: u64) -> String {
    many(number, "event")
}

/// A number of things of this name, which takes an s.
pub(super) fn many(number: u64, name: &str) -> String {
    format!("{} {name}{}", count(number), if number == 1 { "" } else { "s" })
}

/// How long ago `then` was; `now` for the last second and for what lies ahead.
pub(super) fn ago(then: Wall, now: Wall) -> String {
    match now.since(then) {
        span if span < Duration::from_secs(1) => "now".to_owned(),
        time => format!("{} ago", span(time)),
    }
}

/// What a stranger wrote, with control characters and those that turn text round written out.
pub(super) fn safe(text: &str) -> String {
    visible(text, &[])
}

/// The same for text of several lines.
pub(super) fn safe_lines(text: &str) -> String {
    visible(text, &['\n', '\t'])
}

fn visible(text: &str, kept: &[char]) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\'' | '"' | '\\' => safe.push(character),
            other if kept.contains(&other) => safe.push(other),
            other => safe.extend(other.escape_debug()),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_keep_their_largest_unit() {
        let shown =
            [0, 12, 950, 9_900, 61_000, 125_000, 7_500_000, 200_000_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(shown, ["0 s", "12.0 ms", "0.9 s", "9.9 s", "61 s", "2 min", "2 h 05 min", "2 d 7 h"]);
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!([0, 999, 1_000, 30_000_000].map(count), ["0", "999", "1,000", "30,000,000"]);
        assert_eq!([0.0, 0.1, 12.4, 61_000.0].map(per_second), ["0/s", "0.1/s", "12/s", "61,000/s"]);
        assert_eq!([0.0, 0.001, 0.934, 1.0].map(percent), ["0 %", "< 1 %", "93 %", "100 %"]);
        assert_eq!([12, 2_048, 3 << 30].map(bytes), ["12 B", "2.0 KiB", "3.0 GiB"]);
        assert_eq!([events(1), events(2)], ["1 event", "2 events"]);
    }

    #[test]
    fn what_turns_text_round_is_written_out() {
        assert_eq!(safe("it's \"a\u{202e}b\u{7}\n\\"), "it's \"a\\u{202e}b\\u{7}\\n\\");
        assert_eq!(safe_lines("a\n\tb\u{1b}"), "a\n\tb\\u{1b}");
    }
}
