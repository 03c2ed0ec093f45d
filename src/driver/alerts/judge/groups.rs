//! What the driver says: groups that wait, breakers, slots.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::Settings;
use super::super::board::{Board, Finding};
use super::super::catalog::Kind;
use super::words::{count, percent, quoted, some, span};
use super::{Judgement, STILL, finding};
use crate::engine::{BreakerState, DedicatedView, Dedication, Found, GroupView, State, Survey};
use crate::event::{Group, Now, shard};

/// How many shards the groups of several nodes are laid out over.
const SHARDS: u16 = 64;

/// Groups that one message names.
const SHOWN: usize = 5;

/// A group that holds more than this part of a backlog is what the backlog is about.
const MOST: f64 = 0.5;

pub(super) fn judge(survey: &Survey, settings: &Settings, board: &Board, now: Now, to: &mut Judgement) {
    late(survey, settings, board, to);
    breakers(survey, now, to);
    named(&survey.held, Kind::OrderKeys, held, to);
    to.findings
        .extend(survey.dedicated.groups.iter().filter_map(|(group, stands)| without_slots(group, stands, survey)));
    to.findings.extend(noisy(survey, settings));
    to.findings.extend(skew(survey, settings));
    to.findings.extend(capacity(survey));
    if survey.overdue > 0 {
        let retries = count(survey.overdue, "retry could go and does", "retries could go and do");
        to.findings.push(finding(Kind::RetriesOverdue, format!("{retries} not"), "fairlane groups --sort age"));
    }
}

/// Groups whose events wait for too long: many together are one page, a few are a ticket each. While the page fires no ticket begins:
/// those that there are go on and end as the groups do.
fn late(survey: &Survey, settings: &Settings, board: &Board, to: &mut Judgement) {
    let fires = board.fires(Kind::BacklogAgeMany, None);
    let is_over = survey.late.count > settings.groups_over;
    to.findings.extend(many(survey, settings).filter(|_| is_over || fires));
    let limit = span(settings.group_age);
    let words = |view: &GroupView| {
        let (advice, command) = unstick(view, survey, is_noisy(view, survey, settings, board));
        let age = span(view.oldest);
        (format!("{}'s oldest event is {age} old (more than {limit}); {}{advice}", view.group, state(view)), command)
    };
    let first = to.findings.len();
    named(&survey.late, Kind::BacklogAge, words, to);
    for ticket in to.findings.iter_mut().skip(first) {
        ticket.beyond = !is_over && !fires;
    }
}

/// So many groups wait that the cause is not one of them.
fn many(survey: &Survey, settings: &Settings) -> Option<Finding> {
    let Found { count: late, named: groups } = &survey.late;
    let over = settings.groups_over;
    let ends_at = (over as f64 * STILL) as u64;
    if *late <= ends_at {
        return None;
    }
    let beyond = *late > over;
    let mark = if beyond {
        format!("more than {over} do")
    } else {
        format!("more than {over} did; this ends when {ends_at} or fewer do")
    };
    let limit = span(settings.group_age);
    let worst: Vec<String> =
        groups.iter().map(|view| format!("{} ({})", view.group, span(view.oldest))).take(SHOWN).collect();
    // Paused groups are not late: what is paused here is the upstream.
    let is_paused = groups.iter().any(|view| view.state == State::Paused);
    let why = if is_paused { "; the upstream is paused" } else { "" };
    let what = format!(
        "{} older than {limit} ({mark}): {}{why}",
        count(*late, "group has events", "groups have events"),
        some(&worst, SHOWN, *late)
    );
    let groups = groups.iter().map(|view| view.group.to_string()).collect();
    Some(Finding { groups, beyond, ..finding(Kind::BacklogAgeMany, what, "fairlane upstream") })
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

/// What most likely lets a group go on: what there is to say of it, and what to press. A larger cap only where it takes from nobody.
fn unstick(view: &GroupView, survey: &Survey, is_noisy: bool) -> (String, String) {
    let name = quoted(view.group.as_str());
    let why = format!("fairlane groups why {name}");
    let half = survey.slots / 2;
    let (advice, command) = match view.state {
        // Whoever paused it knows; what it says there is until when.
        State::Paused => ("", "fairlane upstream".to_owned()),
        State::Capped if is_noisy => {
            ("; it holds so much of the backlog that a larger cap would take from the others", why)
        }
        State::Capped if survey.free == 0 => (
            "; a larger cap would not help: no slot is free, the upstream's capacity is the limit",
            "fairlane upstream".to_owned(),
        ),
        State::Capped if view.concurrency >= half => (
            "; its cap is half of all slots or more: the upstream's capacity is the limit",
            "fairlane upstream".to_owned(),
        ),
        State::Capped => {
            let cap = view.concurrency.saturating_mul(2).min(half);
            ("", format!("fairlane groups set {name} --concurrency {cap}"))
        }
        _ => ("", why),
    };
    (advice.to_owned(), command)
}

/// Whether another ticket says, or is about to say, that this group is to be held back.
fn is_noisy(view: &GroupView, survey: &Survey, settings: &Settings, board: &Board) -> bool {
    let name = view.group.as_str();
    board.fires(Kind::NoisyGroup, Some(name))
        || noisy(survey, settings).is_some_and(|finding| finding.subject.as_deref() == Some(name))
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
    // Whose fault it is cannot be told while nearly nothing goes: no ticket begins, and those that there are say so.
    let doubt = if upstream.is_some() {
        "; the upstream's breaker is not closed either, so it need not be this tenant"
    } else {
        ""
    };
    if let Some(how) = &upstream {
        let what = format!("the upstream's breaker is {how}; {}", count(survey.pending, "event waits", "events wait"));
        to.findings.push(finding(Kind::UpstreamBreaker, what, "fairlane upstream"));
    }
    let words = |view: &GroupView| {
        let what = format!("{}'s breaker is not closed; {}{doubt}", view.group, state(view));
        (what, format!("fairlane events --group {} --status retrying", quoted(view.group.as_str())))
    };
    let first = to.findings.len();
    named(&survey.broken, Kind::GroupBreaker, words, to);
    for ticket in to.findings.iter_mut().skip(first) {
        ticket.beyond = upstream.is_none();
    }
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

/// One group that holds most of what waits.
fn noisy(survey: &Survey, settings: &Settings) -> Option<Finding> {
    let (largest, most, oldest) = survey.largest.first()?;
    let part = share(*most, survey.unpaused);
    if survey.unpaused < settings.skew.max_lag || part <= MOST * STILL {
        return None;
    }
    let aside = if survey.pending > survey.unpaused { " in groups that are not paused" } else { "" };
    let what = format!(
        "{largest} holds {} of all {} events that wait{aside} ({most}); its oldest is {} old",
        percent(part),
        survey.unpaused,
        span(*oldest)
    );
    let command = format!("fairlane groups pause {} --expires 1h", quoted(largest.as_str()));
    Some(Finding { beyond: part > MOST, ..about(Kind::NoisyGroup, largest.as_str(), what, command) })
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// What lies in a shard.
#[derive(Clone, Debug, Default)]
struct Shard {
    events: u64,
    /// Of the largest group in it.
    most: u64,
    oldest: Duration,
    groups: Vec<String>,
}

/// A shard that holds far more than the others, of several groups: one group's backlog is no matter of how groups are laid out. Where
/// most shards are empty there is nothing to be more than. Groups beyond those that are known one by one are spread as by chance.
fn skew(survey: &Survey, settings: &Settings) -> Option<Finding> {
    let skew = settings.skew;
    let (_, most, _) = survey.largest.first()?;
    if survey.unpaused < skew.max_lag || share(*most, survey.unpaused) > MOST {
        return None;
    }
    let all = shards(&survey.largest);
    let known: u64 = survey.largest.iter().map(|(_, events, _)| events).sum();
    let rest = survey.unpaused.saturating_sub(known) / u64::from(SHARDS);
    let mut sizes: Vec<u64> = all.values().map(|shard| shard.events + rest).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().filter(|median| *median > 0)?;
    let (number, fullest) = all.iter().max_by_key(|(_, shard)| shard.events)?;
    let events = fullest.events + rest;
    let ratio = share(events, median);
    let is_ahead = ratio > skew.ratio && events - median > skew.max_lag && fullest.oldest > skew.max_age;
    if !is_ahead || share(fullest.most, events) > MOST {
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

/// All shards, and what these groups put into each.
fn shards(largest: &[(Group, u64, Duration)]) -> BTreeMap<u16, Shard> {
    let mut all: BTreeMap<u16, Shard> = (0..SHARDS).map(|number| (number, Shard::default())).collect();
    for (group, events, oldest) in largest {
        let shard = all.entry(shard(group, SHARDS)).or_default();
        shard.events += events;
        shard.most = shard.most.max(*events);
        shard.oldest = shard.oldest.max(*oldest);
        shard.groups.push(group.to_string());
    }
    all
}
