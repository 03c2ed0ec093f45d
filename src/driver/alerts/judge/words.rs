//! Numbers and names as people and shells read them.

use std::time::Duration;

/// A length of time: `45 s`, `12 min`, `3.5 h`, `6 d`.
pub(super) fn span(time: Duration) -> String {
    let s = time.as_secs_f64();
    let tenth = |value: f64| {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
    };
    match s {
        ..119.5 => format!("{s:.0} s"),
        ..7_199.5 => format!("{:.0} min", s / 60.0),
        ..172_799.5 => format!("{} h", tenth(s / 3_600.0)),
        _ => format!("{} d", tenth(s / 86_400.0)),
    }
}

/// A number of bytes: `512 B`, `1.5 GiB`.
pub(super) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 1_024.0
        && let Some(larger) = units.next()
    {
        value /= 1_024.0;
        unit = larger;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

/// A part of a whole, 0 to 1.
pub(super) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// One or many of something.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// The first few of a list.
pub(super) fn some(names: &[String], max: usize, all: u64) -> String {
    let shown = names.iter().take(max).cloned().collect::<Vec<_>>().join(", ");
    match all.saturating_sub(names.len().min(max) as u64) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// As a shell takes it for one word; without a backslash, which a terminal would be shown escaped.
pub(super) fn quoted(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,=~".contains(&byte);
    // A tilde that begins a word is somebody's home.
    if name.bytes().all(plain) && !name.is_empty() && !name.starts_with('~') {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r#"'"'"'"#))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_names_are_one_word() {
        let spans = [0, 59, 119, 120, 7_199, 7_200, 12_600, 172_800, 600_000].map(|s| span(Duration::from_secs(s)));
        assert_eq!(spans, ["0 s", "59 s", "119 s", "2 min", "120 min", "2 h", "3.5 h", "2 d", "6.9 d"]);
        assert_eq!([0, 1_023, 1_536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        let words = ["a.myshopify.com", "gh~77", "~fallback", "it's", ""].map(quoted);
        assert_eq!(words, ["a.myshopify.com", "gh~77", "'~fallback'", r#"'it'"'"'s'"#, "''"]);
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert_eq!(some(&names, 2, 12), "a, b and 10 more");
        assert_eq!(some(&names, 3, 3), "a, b, c");
    }
}
