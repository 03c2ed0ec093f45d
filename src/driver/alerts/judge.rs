//! From facts to findings: which conditions hold now, in words, with what to paste.

mod groups;
mod node;
mod sources;
mod words;

use super::Settings;
use super::board::Finding;
use super::catalog::Kind;
use super::facts::{Facts, History};
use crate::event::Now;

/// What may be said about this moment.
pub(super) struct Judgement {
    pub(super) findings: Vec<Finding>,
    /// Kinds of which it is not known whether what is not found holds: they stay as they are.
    pub(super) unknown: Vec<Kind>,
}

/// Everything that holds now. `many` says whether the page for many late groups fires.
pub(super) fn judge(facts: &Facts, history: &History, settings: &Settings, many: bool, now: Now) -> Judgement {
    let mut judgement = Judgement { findings: Vec::new(), unknown: Vec::new() };
    match &facts.survey {
        Some(survey) => groups::judge(survey, settings, many, now, &mut judgement),
        None => judgement.unknown.extend(Kind::ALL.iter().filter(|kind| kind.needs_survey())),
    }
    for source in &facts.sources {
        sources::judge(source, history, settings, now, &mut judgement.findings);
    }
    node::judge(facts, history, now, &mut judgement.findings);
    judgement
}

/// A finding about everything, beyond its mark.
fn finding(kind: Kind, what: String, command: impl Into<String>) -> Finding {
    Finding { kind, subject: None, beyond: true, groups: Vec::new(), what, command: command.into() }
}
