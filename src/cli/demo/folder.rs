//! The temporary folder of a demo. It goes with the demo; after a `kill -9` nobody is there to remove it, so the next demo does.
//!
//! A file in it is locked as long as its demo runs; the system lets go of the lock however the process ends. A folder whose lock is
//! free belongs to a demo that is dead. Folders without that file are somebody else's and stay.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};

const PREFIX: &str = "fairlane-demo-";
/// The file that says whose the folder is.
const LOCK: &str = ".demo-runs";

/// A folder that goes when it is dropped.
pub(super) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// A new one in `place`, from where it removes those of demos that are dead.
    ///
    /// # Errors
    ///
    /// Those of the file system about the new one.
    pub(super) fn make_in(place: &Path) -> io::Result<Self> {
        remove_dead(place);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        // It gets its name with the lock held, so that nobody sees it free.
        let lock = NamedTempFile::new_in(folder.path())?;
        lock.as_file().lock()?;
        let lock = lock.persist(folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes it, and says when that fails.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn close(self) -> io::Result<()> {
        self.folder.close()
    }
}

/// What cannot be removed stays: it is in nobody's way.
fn remove_dead(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_dead(&entry.path()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Whether it is a folder of ours whose demo does not run.
fn is_dead(folder: &Path) -> bool {
    let ours = std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
    ours && File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_demo_removes_what_a_dead_one_left_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let theirs = place.path().join("fairlane-demo-pictures");
        std::fs::create_dir(&theirs).unwrap();
        let running = Folder::make_in(place.path()).unwrap();
        let Folder { folder, _lock: lock } = Folder::make_in(place.path()).unwrap();
        // What a kill leaves: the folder, and no lock.
        let left = folder.keep();
        std::fs::write(left.join("log"), "x").unwrap();
        drop(lock);

        let next = Folder::make_in(place.path()).unwrap();
        assert!(!left.exists() && theirs.exists() && running.path().exists() && next.path().exists());
        next.close().unwrap();
        drop(running);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
