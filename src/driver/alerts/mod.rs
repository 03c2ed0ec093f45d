//! Alerts: what an operator is told without asking.
//!
//! *Deciding* is pure. [`facts`] are numbers of one moment and what is remembered of earlier ones; [`judge`] turns them into findings, each
//! a condition with its words; [`board`] makes alerts of them: one that holds long enough fires, once, and resolves, once, when it
//! has been gone long enough, so that nothing flaps. [`catalog`] is the table of all kinds. *Doing* is [`watch`]: a slow tick beside the
//! delivery path that gathers the facts, and a queue from which messages are posted one at a time.
//!
//! What fires and what resolved of late is written down whenever it changes ([`kept`]), so that a restart repeats and forgets none.

mod board;
mod catalog;
mod facts;
mod judge;
mod kept;
mod message;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::deliver::Post;
use crate::event::{Now, Secret, Wall};
use crate::metrics::Metrics;
use crate::store::notebook::Notebook;
use board::Board;
use catalog::Kind;
pub use catalog::reference;
pub use message::body;
pub use watch::watch;

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Somebody should look soon.
    Ticket,
    /// Somebody should look now.
    Page,
}

impl Severity {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ticket => "ticket",
            Self::Page => "page",
        }
    }
}

/// When alerts fire, and where they are posted to (`alerts` in the configuration).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where they are posted to.
    pub webhook: Option<Secret>,
    /// A group is late when its oldest event is older.
    pub group_age: Duration,
    /// More late groups than this are a page.
    pub groups_over: u64,
    /// The share (0 to 1) of a source's events without a key that is too many.
    pub fallback_share: f64,
    /// When the backlog is uneven.
    pub skew: Skew,
}

/// When the backlog is uneven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// Events that the fullest shard is ahead of the median.
    pub max_lag: u64,
    /// The age of its oldest event.
    pub max_age: Duration,
    /// How many times the median it holds.
    pub ratio: f64,
    /// For how long.
    pub window: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            webhook: None,
            group_age: Duration::from_mins(5),
            groups_over: 10,
            fallback_share: 0.05,
            skew: Skew { max_lag: 5_000, max_age: Duration::from_mins(5), ratio: 5.0, window: Duration::from_mins(2) },
        }
    }
}

impl Settings {
    /// How long the condition of a kind has to hold.
    fn after(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Skew | Kind::NoisyGroup => self.skew.window,
            _ => kind.row().after,
        }
    }

    /// How long the condition of a kind has to be gone.
    fn clear(&self, kind: Kind) -> Duration {
        match kind {
            // An age that hovers about its mark falls below it for seconds at a time.
            Kind::BacklogAge | Kind::BacklogAgeMany => (self.group_age / 10).min(kind.row().clear),
            _ => kind.row().clear,
        }
    }
}

/// An alert that fired.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Its kind's name.
    pub name: &'static str,
    /// How urgent it is.
    pub severity: Severity,
    /// Which group or source it is about, where there may be several alerts of the kind.
    pub subject: Option<Box<str>>,
    /// The groups that it names, written forms.
    pub groups: Vec<String>,
    /// Since when its condition holds.
    pub since: Wall,
    /// When it fired.
    pub fired: Wall,
    /// When it resolved; `None` while it fires.
    pub resolved: Option<Wall>,
    /// What is the case, with numbers; while it fires, of now.
    pub what: String,
    /// What that means.
    pub means: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// A command to paste.
    pub command: String,
}

/// What became of a test message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tested {
    /// The receiver took it.
    Sent,
    /// There is no address to post to.
    NoWebhook,
    /// The receiver did not take it, in words.
    Failed(String),
}

/// What fires and what fired, and by which settings; shared by whoever shows it.
pub struct Alerts {
    settings: RwLock<Arc<Settings>>,
    board: Mutex<Board>,
    notebook: Notebook,
    post: OnceLock<Post>,
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alerts").field("board", &self.board).finish_non_exhaustive()
    }
}

impl Alerts {
    /// What `notebook` remembers, with the usual settings.
    pub(super) fn open(notebook: Notebook, now: Now) -> Self {
        let board = Mutex::new(kept::read(&notebook, now));
        Self { settings: RwLock::default(), board, notebook, post: OnceLock::new() }
    }

    /// Writes down what fires and what resolved, or says in the log that it is not.
    async fn keep(&self) {
        let (bytes, notebook) = (kept::written(&self.board.lock()), self.notebook.clone());
        let written = tokio::task::spawn_blocking(move || notebook.write(&bytes)).await;
        if let Err(error) = written.unwrap_or_else(|ended| Err(ended.to_string())) {
            tracing::warn!(error, "alerts that fire now may be told once more after a restart");
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Other settings, from the next look on.
    pub fn replace(&self, settings: Settings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// What fires, pages first, then the latest first.
    #[must_use]
    pub fn firing(&self) -> Vec<Alert> {
        self.board.lock().firing()
    }

    /// What resolved of late, the latest first; a hundred at most.
    #[must_use]
    pub fn resolved(&self) -> Vec<Alert> {
        self.board.lock().resolved()
    }

    /// Posts a test message, once, and waits for what becomes of it.
    pub async fn test(&self, now: Wall, metrics: &Metrics) -> Tested {
        let webhook = self.settings().webhook.clone();
        let (Some(webhook), Some(post)) = (webhook, self.post.get()) else { return Tested::NoWebhook };
        let sent = post(webhook, message::test(now)).await;
        metrics.alerts.posted(if sent.is_ok() { "sent" } else { "failed" });
        sent.map_or_else(Tested::Failed, |()| Tested::Sent)
    }
}
