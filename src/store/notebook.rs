//! A small file that is replaced as a whole: what a person said that must outlive a restart.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// The file, or no file: then nothing is remembered.
#[derive(Clone, Debug, Default)]
pub struct Notebook(Option<PathBuf>);

impl Notebook {
    /// The notebook in this file, which need not exist.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(Some(path))
    }

    /// Another notebook in the same folder; where this one remembers nothing, neither does that one.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        Self(self.0.as_ref().map(|path| path.with_file_name(name)))
    }

    /// What stands in it; empty where nothing was ever written.
    ///
    /// # Errors
    /// It cannot be read, in words.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let Some(path) = &self.0 else { return Ok(Vec::new()) };
        match fs::read(path) {
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
        let Some(path) = &self.0 else { return Ok(()) };
        let beside = path.with_extension("new");
        let written = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        written().map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }
}

impl fmt::Display for Notebook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(path) => path.display().fmt(f),
            None => f.write_str("memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_replaced_whole_and_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let notebook = Notebook::at(folder.path().join("notes.json"));
        assert_eq!(notebook.read(), Ok(Vec::new()));
        notebook.write(b"one").unwrap();
        notebook.write(b"2").unwrap();
        assert_eq!(notebook.read(), Ok(b"2".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let nowhere = Notebook::at(folder.path().join("missing/notes.json"));
        assert!(nowhere.write(b"x").unwrap_err().contains("cannot be written"));
    }
}
