//! Durations, sizes and rates: how they are written, and written again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// So many events in so much time, e.g. `500/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub events: u64,
    /// In how long.
    pub per: Duration,
}

/// Units of time, longest first, in microseconds.
const TIME: [(&str, u64); 7] = [
    ("w", 604_800_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Units of size, largest first, in bytes; the first that divides a size evenly is the one it is written in.
const SIZE: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Reads `500ms`, `10s`, `1h30m`: whole numbers with a unit each. The error is what to do.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let mut micros: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_number(rest);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let Ok(number) = number.parse::<u64>() else { return Err(duration_hint(text)) };
        let Some((_, factor)) = TIME.iter().find(|(name, _)| *name == unit) else { return Err(duration_hint(text)) };
        let part = number.checked_mul(*factor).and_then(|part| micros.checked_add(part));
        micros = part.ok_or_else(|| "that is longer than a clock can count".to_owned())?;
        rest = after;
    }
    if text.is_empty() { Err(duration_hint(text)) } else { Ok(Duration::from_micros(micros)) }
}

fn duration_hint(text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        format!("a duration has a unit: {text}s or {text}ms")
    } else {
        "whole numbers with the units w, d, h, m, s, ms, us, without blanks".to_owned()
    }
}

/// A duration in the one largest unit that holds it evenly.
pub(super) fn show_duration(duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if micros == 0 {
        return "0s".to_owned();
    }
    let unit = TIME.iter().skip(1).find(|(_, factor)| micros.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{micros}us"), |(name, factor)| format!("{}{name}", micros / factor))
}

/// Reads `64KiB`, `2GiB`, `1GB` or plain bytes. The error is what to do.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text);
    let unit = if unit.is_empty() { "B" } else { unit };
    let factor = SIZE.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    match (number.parse::<u64>(), factor) {
        (Ok(number), Some(factor)) => {
            number.checked_mul(factor).ok_or_else(|| "that is more than can be counted".to_owned())
        }
        _ => {
            Err("a whole number with a unit: KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000), without blanks"
                .to_owned())
        }
    }
}

/// A size in the largest unit that holds it evenly.
pub(super) fn show_size(bytes: u64) -> String {
    let unit = SIZE.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    match unit {
        Some((name, factor)) if *factor > 1 => format!("{}{name}", bytes / factor),
        _ => bytes.to_string(),
    }
}

impl FromStr for Rate {
    /// What to do.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || "a whole number of at least 1 and a unit of time: /s, /m, /h or /d".to_owned();
        let (events, unit) = text.split_once('/').ok_or_else(hint)?;
        let events = events.parse().ok().filter(|n| *n > 0).ok_or_else(hint)?;
        let unit =
            TIME.iter().find(|(name, _)| *name == unit && ["s", "m", "h", "d"].contains(name)).ok_or_else(hint)?;
        Ok(Self { events, per: Duration::from_micros(unit.1) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = show_duration(self.per);
        write!(f, "{}/{}", self.events, unit.trim_start_matches(|c: char| c.is_ascii_digit()))
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        let ms = Duration::from_millis;
        for (text, is, again) in [
            ("500ms", ms(500), "500ms"),
            ("10s", ms(10_000), "10s"),
            ("75s", ms(75_000), "75s"),
            ("1h30m", ms(5_400_000), "90m"),
            ("3d", ms(259_200_000), "3d"),
            ("2w", ms(1_209_600_000), "14d"),
            ("0s", ms(0), "0s"),
            ("250us", Duration::from_micros(250), "250us"),
        ] {
            assert_eq!(duration(text), Ok(is), "{text}");
            assert_eq!(show_duration(is), again);
        }
        for text in ["", "10", "s", "1.5s", "10 s", "-1s", "10sec", "1h 30m", "99999999999w", "1M"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("30").unwrap_err().contains("30s"));
    }

    #[test]
    fn sizes_as_people_write_them() {
        for (text, is, again) in [
            ("26MiB", 27_262_976, "26MiB"),
            ("1GB", 1_000_000_000, "1GB"),
            ("65536", 65_536, "64KiB"),
            ("100B", 100, "100"),
            ("0", 0, "0"),
        ] {
            assert_eq!(size(text), Ok(is), "{text}");
            assert_eq!(show_size(is), again);
        }
        for text in ["", "MiB", "1.5GiB", "26 MiB", "26mib", "26M", "-1", "99999999999TiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_as_people_write_them() {
        for text in ["500/s", "10000/m", "3/h", "1/d"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["", "500", "/s", "0/s", "1.5/s", "500/ms", "500/sec", "500 / s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_as_the_same(n in any::<u64>(), text in ".{0,12}") {
            prop_assert_eq!(duration(&show_duration(Duration::from_micros(n))), Ok(Duration::from_micros(n)));
            prop_assert_eq!(size(&show_size(n)), Ok(n));
            let _ = (duration(&text).is_ok(), size(&text).is_ok(), text.parse::<Rate>().is_ok());
        }
    }
}
