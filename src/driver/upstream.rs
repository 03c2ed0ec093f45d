//! How the upstream as a whole is treated: the file's numbers, and what a person said since.
//!
//! As with groups, a person's word wins over the file's until it expires, and it is written down before it is answered.

use std::time::Duration;

use super::change::{Expiry, Live, UpstreamChange};
use crate::engine::{Rate, Settings};
use crate::event::Wall;
use crate::store::notebook::Notebook;

/// What holds for the upstream.
#[derive(Debug)]
pub(super) struct UpstreamTable {
    file: Settings,
    live: Live<UpstreamChange>,
    notebook: Notebook,
}

impl UpstreamTable {
    /// The numbers of `file`, with the change that `notebook` remembers.
    pub(super) fn open(file: Settings, notebook: Notebook) -> Result<Self, String> {
        let bytes = notebook.read()?;
        let live = if bytes.is_empty() {
            Live::default()
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{notebook}: {error}; remove the file to begin without it"))?
        };
        Ok(Self { file, live, notebook })
    }

    pub(super) fn replace(&mut self, file: Settings) {
        self.file = file;
    }

    /// The engine's numbers, the change put over those of the file.
    pub(super) fn settings(&self) -> Settings {
        let change = self.change_in_force();
        let rate = change.rate.map(|(events, micros)| Rate { events, per: Duration::from_micros(micros) });
        Settings {
            slots: change.concurrency.unwrap_or(self.file.slots),
            rate: rate.or(self.file.rate),
            ..self.file.clone()
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.change_in_force().paused.unwrap_or(false)
    }

    fn change_in_force(&self) -> UpstreamChange {
        self.live.change()
    }

    /// The changes in force.
    pub(super) fn live(&self) -> Live<UpstreamChange> {
        self.live.clone()
    }

    /// These changes are in force, in place of those before; whether that is another thing.
    ///
    /// # Errors
    /// It could not be written down, in words; nothing changed.
    pub(super) fn adopt(&mut self, live: Live<UpstreamChange>) -> Result<bool, String> {
        let changed = live != self.live;
        if changed {
            self.keep(live)?;
        }
        Ok(changed)
    }

    /// Adds to what was changed before, whose ends stay; durable when this returns.
    ///
    /// # Errors
    /// It could not be written down, in words; nothing changed.
    pub(super) fn change(&mut self, change: UpstreamChange, expiry: Expiry, now: Wall) -> Result<(), String> {
        let mut live = self.live.clone();
        // No file pauses the upstream.
        live.put(change, expiry, false, now);
        self.keep(live)
    }

    /// Takes the change back, or only the parts of it that `only` gives; false when there is none.
    ///
    /// # Errors
    /// It could not be written down, in words; nothing changed.
    pub(super) fn take_back(&mut self, only: Option<&UpstreamChange>) -> Result<bool, String> {
        let mut live = self.live.clone();
        let taken = live.take_back(only);
        self.keep(live)?;
        Ok(taken)
    }

    /// Ends the parts of changes that have expired; whether one has.
    pub(super) fn expire(&mut self, now: Wall) -> bool {
        if !self.live.is_over(now) {
            return false;
        }
        let struck = self.keep(self.live.clone().left(now));
        if let Err(error) = &struck {
            tracing::warn!(error, "an expired change of the upstream stays until it can be struck out");
        }
        struck.is_ok()
    }

    fn keep(&mut self, live: Live<UpstreamChange>) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(&live).map_err(|error| error.to_string())?;
        self.notebook.write(&bytes)?;
        self.live = live;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_adds_up_outlives_the_process_and_a_reload_and_expires() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = || Notebook::at(folder.path().join("overrides.json")).beside("upstream.json");
        let now = Wall::from_unix_s(1_000);
        let mut table = UpstreamTable::open(Settings::default(), notebook()).unwrap();
        let change = |paused, concurrency| UpstreamChange { paused, concurrency, ..UpstreamChange::default() };
        table.change(change(Some(true), None), Expiry::Usual, now).unwrap();
        table.change(change(None, Some(8)), Expiry::Never, now).unwrap();

        let mut again = UpstreamTable::open(Settings::default(), notebook()).unwrap();
        again.replace(Settings { slots: 100, timeout: Duration::from_secs(1), ..Settings::default() });
        assert!(again.is_paused());
        assert_eq!((again.settings().slots, again.settings().timeout), (8, Duration::from_secs(1)));
        assert!(!again.expire(now.plus(Duration::from_hours(23))));
        assert!(again.expire(now.plus(Duration::from_hours(24))));
        assert_eq!((again.settings().slots, again.is_paused()), (8, false), "each part ends by itself");
        assert_eq!(again.take_back(None), Ok(true));
        assert_eq!(again.settings().slots, 100);
        assert_eq!(UpstreamTable::open(Settings::default(), notebook()).unwrap().live(), Live::default());
        assert_eq!(again.take_back(None), Ok(false));
    }

    #[test]
    fn what_cannot_be_written_down_does_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("missing/upstream.json"));
        let mut table = UpstreamTable::open(Settings::default(), notebook).unwrap();
        let change = UpstreamChange { paused: Some(true), ..UpstreamChange::default() };
        assert!(table.change(change, Expiry::Never, Wall(0)).unwrap_err().contains("cannot be written"));
        assert!(!table.is_paused());
    }
}
