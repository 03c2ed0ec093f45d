//! What the figures of a rule mean, in words.

use super::summary::Summary;
use crate::cli::table::{many, percent, thousands};

/// From here on events without a key are worth an alert (`alerts.fallback_share`).
const MISSING: f64 = 0.05;

/// A group with more than this part of all events is a flood, or the whole is one.
const LARGE: f64 = 0.5;

/// With this part of all groups having a single event each, the key hardly ever comes again.
const SINGLES: f64 = 0.9;

/// Below so many groups single events are a small capture rather than an unbounded key.
const GROUPS_MIN: u64 = 100;

/// Fewer requests than this say little about a rule.
const EVENTS_MIN: u64 = 100;

/// How a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Good,
    /// It may be right; somebody who knows the tenants should look.
    Look,
    Bad,
}

impl Standing {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Look => "look",
            Self::Bad => "bad",
        }
    }
}

/// How a rule stands, and what to do about it, in sentences.
pub(super) fn advice(rule: &Summary) -> (Standing, Vec<String>) {
    if rule.events == 0 {
        return (Standing::Look, vec!["No request is on its path.".to_owned()]);
    }
    let said: Vec<(Standing, String)> =
        [missing(rule), groups(rule), largest(rule), joined(rule)].into_iter().flatten().collect();
    let worst = said.iter().map(|(standing, _)| *standing).max().unwrap_or(Standing::Good);
    let mut words: Vec<String> = said.into_iter().map(|(_, words)| words).collect();
    if worst == Standing::Good {
        words.insert(
            0,
            match rule.events {
                ..EVENTS_MIN => {
                    format!("Nothing speaks against it, as far as {} can tell.", many(rule.events, "request"))
                }
                _ => "Nothing speaks against it.".to_owned(),
            },
        );
    }
    (worst, words)
}

fn missing(rule: &Summary) -> Option<(Standing, String)> {
    let share = rule.share(rule.missing());
    let (reason, _) = rule.missing.first()?;
    if share < MISSING {
        return None;
    }
    let what = match *reason {
        "absent" if rule.is_list => "None of the list's expressions finds anything in them: add one that does",
        "absent" => "Give a list of expressions, the first that finds something counts",
        "no_rule" => "Give the source a key",
        "not_json" => "Their bodies are no JSON: look for the tenant in a header, the query or the path",
        "not_scalar" => "The expression ends at an object or a list: go one member further",
        _ => "docs/keys.md says what each reason means",
    };
    let standing = if share >= LARGE { Standing::Bad } else { Standing::Look };
    let text = format!("{} of the events have no key ({reason}) and share one lane. {what}.", percent(share));
    Some((standing, text))
}

fn groups(rule: &Summary) -> Option<(Standing, String)> {
    if rule.is_over {
        let text = format!(
            "More than {} groups: the key is unbounded. It should name a tenant, not an order, a message or an event.",
            thousands(rule.groups)
        );
        return Some((Standing::Bad, text));
    }
    if rule.groups >= GROUPS_MIN && rule.single as f64 >= SINGLES * rule.groups as f64 {
        let text = format!(
            "{} of {} groups have a single event: the key looks unbounded (an order, a message, an event?). Then every event is a tenant of \
             its own, and a flood goes before the second event of a small one.",
            thousands(rule.single),
            thousands(rule.groups)
        );
        return Some((Standing::Bad, text));
    }
    let is_one = rule.groups == 1 && rule.missing.is_empty() && rule.events > 1;
    is_one.then(|| {
        let text =
            "All events have one key: one lane, first in first out. Good where it is one tenant's traffic alone.";
        (Standing::Bad, text.to_owned())
    })
}

fn largest(rule: &Summary) -> Option<(Standing, String)> {
    let share = rule.largest_share();
    let largest = rule.largest.first().filter(|_| rule.groups > 1 && share > LARGE)?;
    let waits = rule.in_lanes.is_some();
    let mut text = format!("{} has {} of the events", largest.group, percent(share));
    text.push_str(if waits { ": it queues behind itself, and small groups go before it." } else { "." });
    text.push_str(
        " With several nodes one shard carries it. If it is one tenant, keep the key and split its lane with `within`, e.g. by topic.",
    );
    Some((if waits { Standing::Good } else { Standing::Look }, text))
}

fn joined(rule: &Summary) -> Option<(Standing, String)> {
    // Few parts a tenant change little.
    if !rule.is_join || rule.groups < GROUPS_MIN {
        return None;
    }
    let text = "It spreads well, but each combination takes turns as a tenant of its own: who has many gets many turns. Take the tenant \
                alone as the key and the rest as `within` (or `order`), unless the combination is the tenant.";
    Some((Standing::Look, text.to_owned()))
}

/// The rule to take, where there are several for the same requests: the one that stands best, and of equal ones the one under which small
/// groups wait least.
pub(super) fn best(rules: &[Summary]) -> Option<&Summary> {
    let same = rules.len() > 1 && rules.iter().all(|rule| Some(rule.events) == rules.first().map(|first| first.events));
    let usable = rules.iter().filter(|rule| rule.events > 0 && advice(rule).0 < Standing::Bad);
    usable.filter(|_| same).min_by_key(|rule| {
        let wait = rule.in_lanes.unwrap_or(rule.one_queue);
        (advice(rule).0, wait)
    })
}
