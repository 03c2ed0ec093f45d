//! What the counters of a source say: keys, secrets, clocks.

use std::time::Duration;

use super::super::Settings;
use super::super::board::Finding;
use super::super::catalog::Kind;
use super::super::facts::{History, SourceFacts};
use super::words::{percent, quoted, span};
use super::{STILL, finding};
use crate::event::{Now, Wall};

const DAY: Duration = Duration::from_hours(24);

/// A secret that ends sooner is worth a ticket: time to change it at the sender within working days.
const ENDING: Duration = Duration::from_hours(7 * 24);

/// A signed time this far from ours is on its way to being refused: the usual tolerance is five minutes.
const SKEW_S: f64 = 60.0;

/// No refusal for so long after a secret's end: its senders have another, or have gone.
const QUIET: Duration = Duration::from_hours(1);

pub(super) fn judge(
    source: &SourceFacts,
    history: &History,
    settings: &Settings,
    now: Now,
    findings: &mut Vec<Finding>,
) {
    findings.extend(fallback(source, history, settings));
    findings.extend(clock(source, history));
    for number in 0..source.secrets.len() {
        findings.extend(secret(source, number, history, now.wall));
    }
}

fn about(kind: Kind, subject: String, what: String, command: String) -> Finding {
    Finding { subject: Some(subject.into()), ..finding(kind, what, command) }
}

/// Too many events without a key.
fn fallback(source: &SourceFacts, history: &History, settings: &Settings) -> Option<Finding> {
    let recent = history.recent(source).filter(|_| source.has_key)?;
    let share = recent.without_key as f64 / recent.events as f64;
    if share <= settings.fallback_share * STILL {
        return None;
    }
    let reasons: Vec<String> = recent.reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let what = format!(
        "of the last {} events of {} {} had no key (more than {}): {}",
        recent.events,
        source.name,
        percent(share),
        percent(settings.fallback_share),
        reasons.join(", ")
    );
    let command = format!("fairlane events --group '~fallback' --source {} --limit 5", quoted(&source.name));
    let beyond = share > settings.fallback_share;
    Some(Finding { beyond, ..about(Kind::FallbackShare, source.name.to_string(), what, command) })
}

/// Clocks that are apart.
fn clock(source: &SourceFacts, history: &History) -> Option<Finding> {
    let skew = history.skew(&source.name).filter(|skew| skew.abs() > SKEW_S * STILL)?;
    let side = if skew > 0.0 { "ahead of" } else { "behind" };
    let apart = span(Duration::try_from_secs_f64(skew.abs()).ok()?);
    let what = format!("the times that {}'s sender signs are {apart} {side} this machine's clock", source.name);
    let command = format!("fairlane rejections --source {} --limit 5", quoted(&source.name));
    Some(Finding { beyond: skew.abs() > SKEW_S, ..about(Kind::ClockSkew, source.name.to_string(), what, command) })
}

/// A secret whose use ends, or has ended, while senders still have it.
fn secret(source: &SourceFacts, number: usize, history: &History, now: Wall) -> Option<Finding> {
    let until = source.secrets.get(number)?.0?;
    let matched = history.matched(&source.name, number);
    let which = match source.secrets.len() {
        1 => format!("the secret of {}", source.name),
        many => format!("secret {} of {many} of {}", number + 1, source.name),
    };
    let subject = format!("{} #{number}", source.name);
    let command = format!("fairlane rejections --source {} --limit 5", quoted(&source.name));
    if now < until {
        let matched = matched.filter(|at| now.since(*at) < DAY)?;
        let left = until.since(now);
        let what = format!("{which} ends in {}, and a request matched it {} ago", span(left), span(now.since(matched)));
        return (left < ENDING).then(|| about(Kind::SecretEnding, subject, what, "fairlane sources".to_owned()));
    }
    let refused = history.refused(&source.name).filter(|at| *at >= until && now.since(*at) < QUIET)?;
    let to_the_end = matched.is_some_and(|at| until.since(at) < DAY);
    let replaced = (0..source.secrets.len())
        .filter(|other| *other != number)
        .any(|other| history.matched(&source.name, other).is_some_and(|at| at >= until));
    // Without a memory of it (a restart), refusals and no other secret that matches are as telling.
    let was_needed = to_the_end || (matched.is_none() && !replaced);
    let what = format!(
        "{which} ended {} ago and senders still sign with it: a request was refused for its signature {} ago",
        span(now.since(until)),
        span(now.since(refused))
    );
    was_needed.then(|| about(Kind::SecretEnded, subject, what, command))
}
