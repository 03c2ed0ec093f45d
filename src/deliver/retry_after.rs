//! When and for whom the upstream wants to be left alone: `Retry-After` and `Fairlane-Retry-Scope`.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

use crate::event::Wall;

/// The three forms of a date that a recipient must read (RFC 9110 §5.6.7): the one in use and two old ones.
const DATES: [&str; 3] = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// What `Retry-After` asks for. How much of it is granted is the engine's to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Not before this much time has passed; zero where a date is past.
    After(Duration),
    /// `-1`: never, the event is dead at once.
    Never,
}

impl RetryAfter {
    /// Reads the first `Retry-After`: seconds, a date, or `-1`. `now` is what a date is relative to. What is none of these says
    /// nothing.
    pub(super) fn read(headers: &HeaderMap, now: Wall) -> Option<Self> {
        let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if text == "-1" {
            return Some(Self::Never);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // More digits than a number holds mean "very long", which the engine bounds.
            let seconds = text.parse().unwrap_or(u32::MAX);
            return Some(Self::After(Duration::from_secs(seconds.into())));
        }
        date(text).map(|at| Self::After(at.since(now)))
    }
}

/// A date in any of its three forms.
fn date(text: &str) -> Option<Wall> {
    let civil = DATES.iter().find_map(|form| jiff::civil::DateTime::strptime(form, text).ok())?;
    // The last days of the year 9999 are no moment of this calendar, and mean "never" all the same.
    let stamp = jiff::tz::Offset::UTC.to_timestamp(civil).unwrap_or(jiff::Timestamp::MAX);
    Some(Wall::from_unix_s(stamp.as_second()))
}

/// Whom a `Retry-After` holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryScope {
    /// The event's group alone.
    Group,
    /// Everybody.
    Upstream,
}

impl RetryScope {
    /// Reads `Fairlane-Retry-Scope: group|upstream`, in any case; anything else says nothing.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get("fairlane-retry-scope")?.to_str().ok()?.trim();
        let named = |name: &str| text.eq_ignore_ascii_case(name);
        if named("group") {
            Some(Self::Group)
        } else if named("upstream") {
            Some(Self::Upstream)
        } else {
            None
        }
    }
}
