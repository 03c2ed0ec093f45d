//! From facts to findings: which conditions hold now, in words, with what to paste.

mod groups;
mod node;
mod sources;
mod words;

use super::Settings;
use super::board::{Board, Finding};
use super::catalog::Kind;
use super::facts::{Facts, History};
use crate::event::Now;

/// An alert goes on until what it is about is this part of its mark. `docs/alerts.md` says of which.
const STILL: f64 = 0.8;

/// What may be said about this moment.
pub(super) struct Judgement {
    pub(super) findings: Vec<Finding>,
    /// Kinds of which it is not known whether what is not found holds: they stay as they are.
    pub(super) unknown: Vec<Kind>,
}

/// Everything that holds now. What fires already is read from the `board`: one alert's words must not contradict another's.
pub(super) fn judge(facts: &Facts, history: &History, settings: &Settings, board: &Board, now: Now) -> Judgement {
    let mut judgement = Judgement { findings: Vec::new(), unknown: Vec::new() };
    match &facts.survey {
        Some(survey) => groups::judge(survey, settings, board, now, &mut judgement),
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
