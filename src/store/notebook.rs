//! A small file that is replaced as a whole: what a person said that must outlive a restart.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// The file, or no file: then nothing is remembered.
#[derive(Clone, Debug, Default)]
pub struct Notebook {
    path: Option<PathBuf>,
    /// What ought to stand in it; all clones know it.
    behind: Arc<Mutex<Option<Behind>>>,
}

/// What holds and could not be written.
#[derive(Debug)]
struct Behind {
    bytes: Vec<u8>,
    why: String,
}

impl Notebook {
    /// The notebook in this file, which need not exist.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path: Some(path), behind: Arc::default() }
    }

    /// Another notebook in the same folder; where this one remembers nothing, neither does that one.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        self.path.as_ref().map_or_else(Self::default, |path| Self::at(path.with_file_name(name)))
    }

    /// What stands in it; empty where nothing was ever written.
    ///
    /// # Errors
    /// It cannot be read, in words; nor can one that is there and empty, for nobody writes such a one: what stood in it is lost.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let Some(path) = &self.path else { return Ok(Vec::new()) };
        match fs::read(path) {
            Ok(bytes) if bytes.is_empty() => Err(format!(
                "{} is empty, so what was remembered in it is lost: put a copy of it back, or remove the file to begin without it",
                path.display()
            )),
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    }

    /// Replaces it; durable when this returns, and a crash leaves the old or the new.
    ///
    /// # Errors
    /// It cannot be written, in words; what stood in it stands.
    pub fn write(&self, bytes: &[u8]) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let beside = path.with_extension("new");
        let written = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        written().map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        self.behind.lock().take();
        Ok(())
    }

    /// Replaces it now, or as soon as [`Notebook::catch_up`] can: for what must hold although it cannot be written, such as the end of a
    /// pause on a full disk, where only deliveries make room.
    pub fn write_when_possible(&self, bytes: Vec<u8>) {
        if let Err(why) = self.write(&bytes) {
            tracing::warn!(why, "what was taken back holds, and a restart brings it back until it is written");
            *self.behind.lock() = Some(Behind { bytes, why });
        }
    }

    /// Tries again what could not be written.
    pub fn catch_up(&self) {
        let owed = self.behind.lock().as_ref().map(|behind| behind.bytes.clone());
        if owed.is_some_and(|bytes| self.write(&bytes).is_ok()) {
            tracing::info!(notebook = %self, "what was taken back is written now");
        }
    }

    /// Why what holds does not stand in it yet; `None`: it does.
    #[must_use]
    pub fn is_behind(&self) -> Option<String> {
        self.behind.lock().as_ref().map(|behind| behind.why.clone())
    }
}

impl fmt::Display for Notebook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => path.display().fmt(f),
            None => f.write_str("memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_hold_is_written_as_soon_as_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("away/notes.json"));
        notebook.write_when_possible(b"one".to_vec());
        let driver = notebook.clone();
        assert!(driver.is_behind().unwrap().contains("away/notes.json cannot be written"));
        driver.catch_up();
        assert!(driver.is_behind().is_some());
        fs::create_dir(folder.path().join("away")).unwrap();
        driver.catch_up();
        assert_eq!((notebook.is_behind(), notebook.read()), (None, Ok(b"one".to_vec())));
    }

    #[test]
    fn it_is_replaced_whole_and_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("notes.json"));
        assert_eq!(notebook.read(), Ok(Vec::new()));
        notebook.write(b"one").unwrap();
        notebook.write(b"2").unwrap();
        assert_eq!(notebook.read(), Ok(b"2".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::write(folder.path().join("notes.json"), b"").unwrap();
        let error = notebook.read().unwrap_err();
        assert!(error.contains("notes.json is empty") && error.contains("remove the file to begin"), "{error}");
        let nowhere = Notebook::at(folder.path().join("missing/notes.json"));
        assert!(nowhere.write(b"x").unwrap_err().contains("cannot be written"));
    }
}
