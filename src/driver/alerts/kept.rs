//! The board over a restart: what fired is not told again when its condition still holds, and what ended meanwhile is told to be over, or
//! the receiver would show it for ever.

use serde::{Deserialize, Serialize};

use super::Alert;
use super::board::Board;
use super::catalog::Kind;
use crate::event::{Now, Wall};
use crate::store::notebook::Notebook;

/// An alert as it is written down. What follows from its kind is not, so that a newer version's words hold.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    alert: String,
    subject: Option<Box<str>>,
    groups: Vec<String>,
    what: String,
    command: String,
    /// Microseconds since 1970, like those that follow.
    since: u64,
    fired: u64,
    resolved: Option<u64>,
}

impl From<Alert> for Line {
    fn from(alert: Alert) -> Self {
        Self {
            alert: alert.name.to_owned(),
            subject: alert.subject,
            groups: alert.groups,
            what: alert.what,
            command: alert.command,
            since: alert.since.0,
            fired: alert.fired.0,
            resolved: alert.resolved.map(|at| at.0),
        }
    }
}

impl Line {
    /// The alert, and its kind; `None` where this version has no such kind.
    fn alert(self) -> Option<(Kind, Alert)> {
        let kind = Kind::ALL.iter().copied().find(|kind| kind.name() == self.alert)?;
        let row = kind.row();
        let alert = Alert {
            name: row.name,
            severity: row.severity,
            subject: self.subject,
            groups: self.groups,
            since: Wall(self.since),
            fired: Wall(self.fired),
            resolved: self.resolved.map(Wall),
            what: self.what,
            means: row.means,
            remedy: row.remedy,
            command: self.command,
        };
        Some((kind, alert))
    }
}

/// The board that `notebook` remembers. One that cannot be read begins anew: then alerts that still hold fire once more.
pub(super) fn read(notebook: &Notebook, now: Now) -> Board {
    let lines = notebook.read().and_then(|bytes| match bytes.is_empty() {
        true => Ok(Vec::new()),
        false => serde_json::from_slice::<Vec<Line>>(&bytes).map_err(|error| format!("{notebook}: {error}")),
    });
    let lines = lines.unwrap_or_else(|error| {
        tracing::warn!(error, "alerts that fired before are not known: those that still hold fire once more");
        Vec::new()
    });
    let mut board = Board::default();
    for (kind, alert) in lines.into_iter().filter_map(Line::alert) {
        board.recall(kind, alert, now);
    }
    board
}

/// What [`read`] reads: all that fires, and all that resolved of late.
pub(super) fn written(board: &Board) -> Vec<u8> {
    let lines: Vec<Line> = board.firing().into_iter().chain(board.resolved()).map(Line::from).collect();
    serde_json::to_vec(&lines).expect("strings and numbers are always JSON")
}
