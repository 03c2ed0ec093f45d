//! What the driver says: groups that wait, breakers, slots.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::Settings;
use super::super::board::Finding;
use super::super::catalog::Kind;
use super::words::{count, percent, quoted, some, span};
use super::{Judgement, finding};
use crate::engine::{BreakerState, DedicatedView, Dedication, Found, GroupView, State, Survey};
use crate::event::{Group, Now, shard};

/// How many shards the groups of several nodes are laid out over.
const SHARDS: u16 = 64;

/// Groups that one message names.
const SHOWN: usize = 5;

/// An alert goes on until what it is about is this part of the mark.
const STILL: f64 = 0.8;

pub(super) fn judge(survey: &Survey, settings: &Settings, many: bool, now: Now, to: &mut Judgement) {
    late(survey, settings, many, to);
    breakers(survey, now, to);
    named(&survey.held, Kind::OrderKeys, held, to);
    to.findings
        .extend(survey.dedicated.groups.iter().filter_map(|(group, stands)| without_slots(group, stands, survey)));
    to.findings.extend(uneven(survey, settings));
    to.findings.extend(capacity(survey));
    if survey.overdue > 0 {
        let retries = count(survey.overdue, "retry could go and does", "retries could go and do");
        to.findings.push(finding(Kind::RetriesOverdue, format!("{retries} not"), "fairlane groups --sort age"));
    }
}

/// Groups whose events wait for too long: many together are one page, a few are a ticket each.
fn late(survey: &Survey, settings: &Settings, many: bool, to: &mut Judgement) {
    let Found { count: late, named: groups } = &survey.late;
    let limit = span(settings.group_age);
    if *late > settings.groups_over || (many && *late as f64 > settings.groups_over as f64 * STILL) {
        let names: Vec<String> = groups.iter().map(|view| view.group.to_string()).collect();
        let worst: Vec<String> =
            groups.iter().map(|view| format!("{} ({})", view.group, span(view.oldest))).take(SHOWN).collect();
        let what = format!("{late} groups have events older than {limit}: {}", some(&worst, SHOWN, *late));
        to.findings.push(Finding { groups: names, ..finding(Kind::BacklogAgeMany, what, "fairlane upstream") });
        // Their tickets would say nothing that the page does not; those there are stay.
        to.unknown.push(Kind::BacklogAge);
        return;
    }
    let words = |view: &GroupView| {
        let what =
            format!("{}'s oldest event is {} old (more than {limit}); {}", view.group, span(view.oldest), state(view));
        (what, unstick(view))
    };
    named(&survey.late, Kind::BacklogAge, words, to);
}

/// A finding for each of these groups. Where there are more than are named, those that are not are not known to be well.
fn named(found: &Found, kind: Kind, words: impl Fn(&GroupView) -> (String, String), to: &mut Judgement) {
    if found.count > found.named.len() as u64 {
        to.unknown.push(kind);
    }
    to.findings.extend(found.named.iter().map(|view| {
        let (what, command) = words(view);
        about(kind, view.group.as_str(), what, command)
    }));
}

/// A finding about one group.
fn about(kind: Kind, group: &str, what: String, command: String) -> Finding {
    Finding { subject: Some(group.into()), groups: vec![group.to_owned()], ..finding(kind, what, command) }
}

/// How many of a group's events wait, and why.
fn state(view: &GroupView) -> String {
    let pending = count(view.queued + view.retrying, "event waits", "events wait");
    let flight = count(view.in_flight.into(), "attempt is", "attempts are");
    let why = if view.reason.is_empty() { String::new() } else { format!(": {}", view.reason) };
    format!("{pending}, {flight} in flight; it is {}{why}", view.state.as_str())
}

/// What most likely lets a group go on.
fn unstick(view: &GroupView) -> String {
    let name = quoted(view.group.as_str());
    match view.state {
        State::Capped => format!("fairlane groups set {name} --concurrency {}", view.concurrency.saturating_mul(2)),
        State::Paused if view.paused => format!("fairlane groups resume {name}"),
        State::Paused => "fairlane upstream resume".to_owned(),
        _ => format!("fairlane groups why {name}"),
    }
}

fn held(view: &GroupView) -> (String, String) {
    let what = format!("{} has as many order keys under way as may be; {}", view.group, state(view));
    (what, format!("fairlane events --group {} --status retrying", quoted(view.group.as_str())))
}

/// A group that would have slots of its own, and there are none left.
fn without_slots(group: &Group, stands: &DedicatedView, survey: &Survey) -> Option<Finding> {
    if stands.state != Dedication::NoLane {
        return None;
    }
    let what = format!(
        "{group} demands {} of all slots and has waited for dedicated ones for {}; {} of {} slots are dedicated to others",
        percent(stands.demand),
        span(stands.since),
        survey.dedicated.taken,
        survey.slots
    );
    Some(about(Kind::DedicatedCeiling, group.as_str(), what, format!("fairlane groups why {}", quoted(group.as_str()))))
}

fn breakers(survey: &Survey, now: Now, to: &mut Judgement) {
    let upstream = match survey.breaker {
        BreakerState::Open { until } => Some(format!("open; it tries again in {}", span(until.since(now.mono)))),
        BreakerState::HalfOpen => Some("half open: one attempt at a time".to_owned()),
        BreakerState::SlowStart { .. } | BreakerState::Closed => None,
    };
    if let Some(how) = upstream {
        let what = format!("the upstream's breaker is {how}; {}", count(survey.pending, "event waits", "events wait"));
        to.findings.push(finding(Kind::UpstreamBreaker, what, "fairlane upstream"));
        // Whose fault it is cannot be told while nearly nothing goes.
        to.unknown.push(Kind::GroupBreaker);
        return;
    }
    let words = |view: &GroupView| {
        let what = format!("{}'s breaker is not closed; {}", view.group, state(view));
        (what, format!("fairlane events --group {} --status retrying", quoted(view.group.as_str())))
    };
    named(&survey.broken, Kind::GroupBreaker, words, to);
}

/// More arrives than the slots can take.
fn capacity(survey: &Survey) -> Option<Finding> {
    let slots = f64::from(survey.slots);
    if survey.demand <= slots * STILL {
        return None;
    }
    let what = format!(
        "what arrives takes {:.1} slots, and there are {}; {}",
        survey.demand,
        survey.slots,
        count(survey.pending, "event waits", "events wait")
    );
    let beyond = survey.demand > slots;
    Some(Finding { beyond, ..finding(Kind::Capacity, what, "fairlane groups --sort seconds") })
}

/// One group, or else one shard, that holds most of what waits.
fn uneven(survey: &Survey, settings: &Settings) -> Option<Finding> {
    let (largest, most, oldest) = survey.largest.first()?;
    let part = *most as f64 / survey.pending.max(1) as f64;
    let is_much = survey.pending >= settings.skew.max_lag;
    if is_much && part > 0.5 * STILL {
        let name = quoted(largest.as_str());
        let what = format!(
            "{largest} holds {} of all {} events that wait ({most}); its oldest is {} old",
            percent(part),
            survey.pending,
            span(*oldest)
        );
        let command = format!("fairlane groups pause {name} --expires 1h");
        return Some(Finding { beyond: part > 0.5, ..about(Kind::NoisyGroup, largest.as_str(), what, command) });
    }
    shards(survey, settings)
}

/// What lies in a shard.
#[derive(Clone, Debug, Default)]
struct Shard {
    events: u64,
    oldest: Duration,
    groups: Vec<String>,
}

/// A shard that holds far more than the others. Groups beyond those that are known one by one are spread as by chance.
fn shards(survey: &Survey, settings: &Settings) -> Option<Finding> {
    let skew = settings.skew;
    if survey.pending < skew.max_lag.min(u64::from(SHARDS)) {
        return None;
    }
    let mut all: BTreeMap<u16, Shard> = (0..SHARDS).map(|number| (number, Shard::default())).collect();
    for (group, events, oldest) in &survey.largest {
        let shard = all.entry(shard(group, SHARDS)).or_default();
        shard.events += events;
        shard.oldest = shard.oldest.max(*oldest);
        shard.groups.push(group.to_string());
    }
    let known: u64 = survey.largest.iter().map(|(_, events, _)| events).sum();
    let rest = survey.pending.saturating_sub(known) / u64::from(SHARDS);
    let mut sizes: Vec<u64> = all.values().map(|shard| shard.events + rest).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or_default();
    let (number, fullest) = all.iter().max_by_key(|(_, shard)| shard.events)?;
    let events = fullest.events + rest;
    let lag = events - median;
    let ratio = events as f64 / median.max(1) as f64;
    if ratio <= skew.ratio || (lag <= skew.max_lag && fullest.oldest <= skew.max_age) {
        return None;
    }
    let what = format!(
        "shard {number} of {SHARDS} holds {events} events, {ratio:.0} times the median ({median}); its oldest is {} old; its groups: {}",
        span(fullest.oldest),
        some(&fullest.groups, SHOWN, fullest.groups.len() as u64)
    );
    let groups = fullest.groups.iter().take(SHOWN).cloned().collect();
    Some(Finding { groups, ..finding(Kind::Skew, what, "fairlane groups --sort depth") })
}
