//! `expires`: until when a change holds, as a person writes it.

use std::time::Duration;

use super::problem::Problem;
use crate::driver::Expiry;
use crate::event::Wall;

const DAY_S: u64 = 86_400;
/// Whoever means longer means `never`.
const YEARS_MAX: u64 = 10;

/// When a change that is made `now` ends: an RFC 3339 time, a span (`30m`, `2h`, `7d`) or `never`; the usual day without `text`.
/// Refused are a moment that is not ahead and one more than ten years ahead.
pub(super) fn expiry(text: Option<&str>, now: Wall) -> Result<Expiry, Problem> {
    match text {
        None => Ok(Expiry::Usual),
        Some("never") => Ok(Expiry::Never),
        Some(text) => moment(text, now).map(Expiry::At),
    }
}

/// When something ends that has to: as [`expiry`], without `never`. The caller looks whether it lies ahead.
pub(super) fn end(text: &str, now: Wall) -> Result<Wall, Problem> {
    let expected = "expected a time such as 2026-01-31T08:00:00Z or a span such as 30m, 2h or 7d";
    read(text, now).ok_or_else(|| Problem::Parameter(format!("expires: {expected}, found {text:?}")))
}

fn moment(text: &str, now: Wall) -> Result<Wall, Problem> {
    let wrong = |what: &str| Problem::Parameter(format!("expires: {what}, found {text:?}"));
    let at = read(text, now)
        .ok_or_else(|| wrong("expected a time such as 2026-01-31T08:00:00Z, a span such as 30m, 2h or 7d, or never"))?;
    if at <= now {
        return Err(wrong("expected a moment that lies ahead (to end a change at once, take it back)"));
    }
    if at > now.plus(Duration::from_secs(YEARS_MAX * 366 * DAY_S)) {
        return Err(wrong(&format!("expected at most {YEARS_MAX} years ahead (use never for a change that stays)")));
    }
    Ok(at)
}

fn read(text: &str, now: Wall) -> Option<Wall> {
    if let Some(time) = Wall::read(text) {
        return Some(time);
    }
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => DAY_S,
        _ => return None,
    };
    let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
    Some(now.plus(Duration::from_secs(u64::from(number) * seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_lies_ahead_and_not_too_far() {
        let now = Wall::from_unix_s(1_800_000_000);
        let read = |text| expiry(Some(text), now).map_err(|problem| format!("{problem:?}"));
        assert_eq!(read("2h"), Ok(Expiry::At(now.plus(Duration::from_secs(7_200)))));
        assert_eq!(read("2030-01-31T08:00:00Z"), Ok(Expiry::At(Wall::from_unix_s(1_896_076_800))));
        assert_eq!(read("3650d"), Ok(Expiry::At(now.plus(Duration::from_secs(3_650 * DAY_S)))));
        for past in ["0s", "2020-01-01T00:00:00Z", "0001-01-01T00:00:00Z"] {
            assert!(read(past).is_err_and(|error| error.contains("lies ahead")), "{past}");
        }
        for far in ["4294967295d", "3700d", "9999-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
            assert!(read(far).is_err_and(|error| error.contains("use never")), "{far}");
        }
        for text in ["soon", "", "h", "-1h", "2 h"] {
            assert!(read(text).is_err_and(|error| error.contains("or never")), "{text}");
        }
    }
}
