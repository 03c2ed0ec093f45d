//! What this process and its machine say: room, the delivery loop, the configuration, the books.

use std::time::Duration;

use super::super::board::Finding;
use super::super::catalog::Kind;
use super::super::facts::{Facts, History};
use super::finding;
use super::words::{bytes, count, span};
use crate::deliver::AddressView;
use crate::event::Now;
use crate::store::Usage;

/// Thousandths of `min_free` below which history goes, the largest groups are refused, everybody is; see `store::Usage`.
const HISTORY_GOES: u64 = 2_000;
const LARGEST_REFUSED: u64 = 1_500;
const ALL_REFUSED: u64 = 1_000;

/// A disk that is full sooner is somebody's business now.
const FULL_SOON: Duration = Duration::from_hours(1);

/// A loop that made no turn for this long is stuck.
const STUCK: Duration = Duration::from_secs(10);

/// Addresses that are named; their number is told in any case.
const ADDRESSES_NAMED: usize = 3;

/// For how long a broken invariant is told of.
const VIOLATED: Duration = Duration::from_hours(1);

pub(super) fn judge(facts: &Facts, history: &History, now: Now, findings: &mut Vec<Finding>) {
    findings.extend(room(facts));
    findings.extend(filling(facts, history, now));
    if facts.beat_age > STUCK {
        let what = format!("the delivery loop made no turn for {}", span(facts.beat_age));
        findings.push(finding(Kind::StorePollAge, what, "fairlane doctor"));
    }
    findings.extend(away(facts));
    findings.extend(facts.unstored.clone().map(|why| finding(Kind::StoreFailing, why, "fairlane doctor")));
    if let Some((at, all)) = history.violated().filter(|(at, _)| now.mono.since(at.mono) < VIOLATED) {
        let which = facts.survey.as_ref().and_then(|survey| survey.last_violation).unwrap_or("the log says which");
        let ago = span(now.mono.since(at.mono));
        let what = format!(
            "{}, the last one {ago} ago: {which}",
            count(all, "invariant was broken", "invariants were broken")
        );
        findings.push(finding(Kind::InvariantViolated, what, "fairlane doctor"));
    }
    findings.extend(addresses(facts));
    if !facts.config_ok {
        let what = "the configuration on disk was refused; what ran before goes on".to_owned();
        findings.push(finding(Kind::ConfigurationRefused, what, "fairlane check"));
    }
}

/// The store that is elsewhere, and what waits for it here.
fn away(facts: &Facts) -> Option<Finding> {
    let waiting = facts.spool.map_or(0, |spool| spool.events);
    if facts.silent > STUCK {
        let silence = span(facts.silent);
        let here = match facts.spool {
            None => "there is no spool, so new events get 503".to_owned(),
            Some(spool) if spool.room_bytes == 0 => {
                format!("the spool is full with {}: new events get 503", count(waiting, "event", "events"))
            }
            Some(spool) => format!(
                "{} in the spool, which has room for {} more",
                count(waiting, "event is", "events are"),
                bytes(spool.room_bytes)
            ),
        };
        let what = format!("Redis did not answer for {silence}; {here}");
        return Some(finding(Kind::StoreAway, what, "fairlane doctor"));
    }
    (waiting > 0).then(|| {
        let what = format!("{} in the spool although Redis answers", count(waiting, "event is", "events are"));
        finding(Kind::SpoolHeld, what, "fairlane events --status queued --json")
    })
}

/// Addresses of the upstream that are left out.
fn addresses(facts: &Facts) -> Option<Finding> {
    let out: Vec<_> = facts.addresses.iter().filter(|view| view.state.is_out()).collect();
    if out.is_empty() {
        return None;
    }
    let named = |view: &&AddressView| match &view.last_failure {
        Some((_, words)) => format!("{} ({words})", view.address),
        None => view.address.to_string(),
    };
    let named: Vec<_> = out.iter().take(ADDRESSES_NAMED).map(named).collect();
    let (left, all) = (facts.addresses.len() - out.len(), facts.addresses.len());
    let rest = if left == 0 { "; none is left, so all are used" } else { "" };
    let what = format!("{} of {all} addresses of the upstream are left out: {}{rest}", out.len(), named.join(", "));
    Some(finding(Kind::UpstreamAddress, what, "fairlane upstream"))
}

/// The disk's marks. The two alerts are apart: history that goes early wakes nobody.
fn room(facts: &Facts) -> impl Iterator<Item = Finding> {
    let left = bytes(facts.room_bytes);
    let low = (facts.room < HISTORY_GOES).then(|| {
        let what = format!("{left} are left before events are refused; the oldest delivered history goes early");
        finding(Kind::DiskLow, what, "fairlane doctor")
    });
    let refusing = (facts.room < LARGEST_REFUSED).then(|| {
        let what = if facts.room < ALL_REFUSED {
            "there is no room: every new event is refused with 503".to_owned()
        } else {
            format!("{left} are left before every event is refused; the groups that hold most get 429 already")
        };
        finding(Kind::DiskRefusing, what, "fairlane groups --sort depth")
    });
    low.into_iter().chain(refusing)
}

/// The disk at the present rate.
fn filling(facts: &Facts, history: &History, now: Now) -> Option<Finding> {
    if facts.room_bytes == Usage::UNLIMITED {
        return None;
    }
    let full_in = history.full_in(facts.room_bytes, now.mono).filter(|left| *left < FULL_SOON * 2)?;
    let what = format!(
        "full in {} at the present rate: {} are left before events are refused",
        span(full_in),
        bytes(facts.room_bytes)
    );
    let beyond = full_in < FULL_SOON;
    Some(Finding { beyond, ..finding(Kind::DiskFilling, what, "fairlane groups --sort rate") })
}
