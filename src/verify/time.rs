//! Signed times: their forms, where they stand in a body, and the window they must lie in.
//!
//! The text of a time goes into the signed text as received; what is read here is only compared
//! with the clock that the caller brings.

use std::str::FromStr as _;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::member;
use super::reject::{Rejection, Skew};
use super::scheme::{Unit, Window};
use crate::event::Wall;

/// More digits are no time of this world, and would overflow as milliseconds.
const DIGITS_MAX: usize = 15;

impl Unit {
    /// The moment that `text` names, in milliseconds since 1970; `None` when it is not of this form.
    #[must_use]
    pub fn read(self, text: &[u8]) -> Option<i64> {
        let text = std::str::from_utf8(text).ok()?;
        match self {
            Self::Seconds => whole(text)?.checked_mul(1_000),
            Self::Millis => whole(text),
            Self::Rfc3339 if is_rfc3339(text) => Timestamp::from_str(text).ok().map(Timestamp::as_millisecond),
            Self::Rfc3339 => None,
            Self::HttpDate => rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(Timestamp::as_millisecond),
        }
    }

    /// `at` as a provider would write it.
    #[must_use]
    pub fn write(self, at: Wall) -> String {
        match self {
            Self::Seconds => at.unix_s().to_string(),
            Self::Millis => at.unix_ms().to_string(),
            Self::Rfc3339 => stamp(wall_ms(at)).to_string(),
            Self::HttpDate => http_date(at),
        }
    }

    /// What it looks like, for messages.
    #[must_use]
    pub fn looks_like(self) -> &'static str {
        match self {
            Self::Seconds => "whole seconds since 1970",
            Self::Millis => "whole milliseconds since 1970",
            Self::Rfc3339 => "a date of RFC 3339 with its offset",
            Self::HttpDate => "a date as in HTTP headers",
        }
    }
}

/// The date of an HTTP header (RFC 9110 §5.6.7).
pub(super) fn http_date(at: Wall) -> String {
    rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&stamp(wall_ms(at)))
        .expect("a moment since 1970 has a date in HTTP's form")
}

fn whole(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Exactly `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`: the parser behind takes more than that.
fn is_rfc3339(text: &str) -> bool {
    const SHAPE: &[u8; 19] = b"dddd-dd-ddTdd:dd:dd";
    let Some((date, rest)) = text.as_bytes().split_first_chunk::<19>() else { return false };
    let rest = match rest {
        [b'.', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            match rest.split_at_checked(digits) {
                Some((_, after)) if digits > 0 => after,
                _ => return false,
            }
        }
        rest => rest,
    };
    has_shape(date, SHAPE) && (rest == b"Z" || has_shape(rest, b"+dd:dd") || has_shape(rest, b"-dd:dd"))
}

fn has_shape(text: &[u8], shape: &[u8]) -> bool {
    text.len() == shape.len()
        && text.iter().zip(shape).all(|(byte, want)| if *want == b'd' { byte.is_ascii_digit() } else { byte == want })
}

/// A clock's reading in milliseconds.
pub(super) fn wall_ms(at: Wall) -> i64 {
    i64::try_from(at.unix_ms()).unwrap_or(i64::MAX)
}

fn stamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// A moment for people: RFC 3339 where it has a date, else its number.
pub(super) fn show_ms(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms since 1970"), |stamp| stamp.to_string())
}

/// Whether `sent_ms` lies in `window` around `now`.
pub(super) fn within(window: Window, sent_ms: i64, now: Wall) -> Result<(), Rejection> {
    let now_ms = wall_ms(now);
    let ms = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    if now_ms.saturating_sub(sent_ms) > ms(window.old) {
        return Err(Rejection::Stale(Skew { sent_ms, now_ms, limit: window.old }));
    }
    match window.future {
        Some(limit) if sent_ms.saturating_sub(now_ms) > ms(limit) => {
            Err(Rejection::Future(Skew { sent_ms, now_ms, limit }))
        }
        _ => Ok(()),
    }
}

/// The moment in the JSON body at `path`: a number for the numeric units, a string for the others.
pub(super) fn in_body(body: &[u8], path: &[Box<str>], unit: Unit) -> Result<i64, Rejection> {
    let malformed = |problem: String| Rejection::MalformedBody { problem };
    let document = member::document(body).ok_or_else(|| malformed("it is not a JSON document".to_owned()))?;
    let value = member::at(document, path).ok_or_else(|| malformed(format!("nothing stands at {}", path.join("."))))?;
    let text = value.get();
    let read = match unit {
        Unit::Seconds | Unit::Millis => unit.read(text.as_bytes()),
        Unit::Rfc3339 | Unit::HttpDate => member::scalar(value).and_then(|text| unit.read(text.as_bytes())),
    };
    read.ok_or_else(|| malformed(format!("what stands at {} is not {}", path.join("."), unit.looks_like())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_whole_and_nothing_else() {
        assert_eq!(Unit::Seconds.read(b"1700000000"), Some(1_700_000_000_000));
        assert_eq!(Unit::Seconds.read(b"01700000000"), Some(1_700_000_000_000));
        assert_eq!(Unit::Millis.read(b"1700000000123"), Some(1_700_000_000_123));
        for text in ["", "-1", "+1", "1.0", "1e3", " 1", "1234567890123456", "\u{661}"] {
            assert_eq!(Unit::Seconds.read(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn dates_need_their_offset() {
        let at = Some(1_573_899_072_123);
        assert_eq!(Unit::Rfc3339.read(b"2019-11-16T10:11:12.123Z"), at);
        assert_eq!(Unit::Rfc3339.read(b"2019-11-16T12:11:12.123456789+02:00"), at);
        for text in [
            "2019-11-16T10:11:12",
            "2019-11-16 10:11:12Z",
            "2019-11-16T10:11:12.Z",
            "2019-13-16T10:11:12Z",
            "2019-11-16t10:11:12z",
            "2019-11-16T10:11:12Z[UTC]",
        ] {
            assert_eq!(Unit::Rfc3339.read(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Unit::HttpDate.read(b"Tue, 14 Nov 2023 22:13:20 GMT"), Some(1_700_000_000_000));
        assert_eq!(Unit::HttpDate.read(b"yesterday"), None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let at = Wall::from_unix_s(1_700_000_000);
        for (name, unit) in Unit::NAMED {
            assert_eq!(unit.read(unit.write(at).as_bytes()), Some(1_700_000_000_000), "{name}");
        }
    }

    #[test]
    fn the_window_has_two_sides() {
        let now = Wall::from_unix_s(1_000);
        let window = Window { old: Duration::from_secs(5), future: Some(Duration::from_secs(2)) };
        assert_eq!(within(window, 995_000, now), Ok(()));
        assert_eq!(within(window, 1_002_000, now), Ok(()));
        assert_eq!(within(window, 994_999, now).unwrap_err().reason(), "stale");
        assert_eq!(within(window, 1_002_001, now).unwrap_err().reason(), "future");
        let past_only = Window { future: None, ..window };
        assert_eq!(within(past_only, i64::MAX, now), Ok(()));
    }

    #[test]
    fn a_time_in_the_body_is_found_without_trusting_the_body() {
        let path = |text: &str| text.split('.').map(Box::from).collect::<Vec<Box<str>>>();
        let at = |body: &str, unit| in_body(body.as_bytes(), &path("a.t"), unit);
        assert_eq!(at(r#" {"t":1,"a":{"x":[{"t":2}],"t":3}} "#, Unit::Millis), Ok(3));
        assert_eq!(at(r#"{"a":{"t":1,"t":2}}"#, Unit::Millis), Ok(2), "the last one, as receivers do");
        assert_eq!(at(r#"{"\u0061":{"t":5}}"#, Unit::Millis), Ok(5));
        assert_eq!(at(r#"{"a":{"t":"1970-01-01T00:00:01Z"}}"#, Unit::Rfc3339), Ok(1_000));
        for body in
            ["", "[]", "{}", "7", r#"{"a":7}"#, r#"{"a":{"t":"3"}}"#, r#"{"a":{"t":3.5}}"#, r#"{"a":{"t":3}} x"#]
        {
            assert_eq!(at(body, Unit::Millis).unwrap_err().reason(), "malformed_body", "{body}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(at(&format!(r#"{{"deep":{deep},"a":{{"t":1}}}}"#), Unit::Seconds), Ok(1_000));
        assert!(in_body(b"{\"a\":{\"t\":1},\"x\":\"\xff\"}", &path("a.t"), Unit::Millis).is_err());
    }
}
