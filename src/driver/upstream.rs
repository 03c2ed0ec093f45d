//! How the upstream as a whole is treated: the file's numbers, and what a person said since.
//!
//! As with groups, a person's word wins over the file's until it expires, and it is written down before it is answered.

use std::time::Duration;

use super::change::{Expiry, InParts as _, Live, UpstreamChange};
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

    /// These changes are in force, in place of those before; whether that is another thing. All nodes remember them.
    pub(super) fn adopt(&mut self, live: Live<UpstreamChange>) -> bool {
        let changed = live != self.live;
        if changed {
            self.hold(live);
        }
        changed
    }

    /// Adds to what was changed before, whose ends stay; durable when this returns, but for a resume, which holds in any case.
    ///
    /// # Errors
    /// It could not be written down, in words; nothing changed.
    pub(super) fn change(&mut self, change: UpstreamChange, expiry: Expiry, now: Wall) -> Result<(), String> {
        let mut live = self.live.clone();
        // No file pauses the upstream.
        live.put(change, expiry, false, now);
        if change == UpstreamChange::pause(false) {
            self.hold(live);
            return Ok(());
        }
        self.keep(live)
    }

    /// Takes the change back, or only the parts of it that `only` gives; false when there is none. It holds also where it cannot be
    /// written: a disk may be full of what only this lets go on.
    pub(super) fn take_back(&mut self, only: Option<&UpstreamChange>) -> bool {
        let mut live = self.live.clone();
        let taken = live.take_back(only);
        self.hold(live);
        taken
    }

    /// Ends the parts of changes that have expired; whether one has.
    pub(super) fn expire(&mut self, now: Wall) -> bool {
        if !self.live.is_over(now) {
            return false;
        }
        // A restart finds their end past again.
        self.hold(self.live.clone().left(now));
        true
    }

    fn keep(&mut self, live: Live<UpstreamChange>) -> Result<(), String> {
        self.notebook.write(&noted(&live))?;
        self.live = live;
        Ok(())
    }

    /// The same for what holds also where it cannot be written yet.
    fn hold(&mut self, live: Live<UpstreamChange>) {
        self.notebook.write_when_possible(noted(&live));
        self.live = live;
    }
}

/// As the notebook has them.
fn noted(live: &Live<UpstreamChange>) -> Vec<u8> {
    serde_json::to_vec_pretty(live).expect("numbers have a form in JSON")
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
        assert!(again.take_back(None));
        assert_eq!(again.settings().slots, 100);
        assert_eq!(UpstreamTable::open(Settings::default(), notebook()).unwrap().live(), Live::default());
        assert!(!again.take_back(None));
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

    #[test]
    fn a_pause_ends_also_where_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("upstream.json"));
        let now = Wall::from_unix_s(1_000);
        let in_the_way = folder.path().join("upstream.new");
        let paused = |expiry| {
            let mut table = UpstreamTable::open(Settings::default(), notebook.clone()).unwrap();
            table.change(UpstreamChange::pause(true), expiry, now).unwrap();
            std::fs::create_dir(&in_the_way).unwrap();
            table
        };
        let ended = |table: &UpstreamTable| {
            assert!(!table.is_paused() && notebook.is_behind().unwrap().contains("cannot be written"));
            std::fs::remove_dir(&in_the_way).unwrap();
            notebook.catch_up();
            assert!(!UpstreamTable::open(Settings::default(), notebook.clone()).unwrap().is_paused());
        };
        let mut table = paused(Expiry::Never);
        table.change(UpstreamChange::pause(false), Expiry::Usual, now).unwrap();
        ended(&table);
        let mut table = paused(Expiry::Never);
        assert!(table.take_back(None));
        ended(&table);
        let mut table = paused(Expiry::Usual);
        assert!(table.expire(now.plus(Duration::from_hours(24))));
        ended(&table);
    }
}
