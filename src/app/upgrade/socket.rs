//! Where the two find each other: `upgrade.sock` in the data folder, which its owner alone may enter.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

/// Its name.
const NAME: &str = "upgrade.sock";

/// Its name before it is ready.
const NEW: &str = "upgrade.sock.new";

/// What the kernel takes of a path, without the zero at its end (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// A folder by a path that is short enough, as long as this lives.
struct Short {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl Short {
    fn of(folder: &Path) -> io::Result<Self> {
        if folder.join(NEW).as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path: folder.to_owned(), _folder: None });
        }
        let opened = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: format!("/proc/self/fd/{}", opened.as_raw_fd()).into(), _folder: Some(opened) })
    }
}

/// Listens in this folder from now on, in the place of whoever did before.
///
/// # Errors
/// The operating system's: the file system may not have sockets.
pub(super) fn bind(folder: &Path) -> io::Result<UnixListener> {
    let folder = Short::of(folder)?;
    let new = folder.path.join(NEW);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    // Under its name it is there at any moment: whoever asks meanwhile finds the one or the other.
    std::fs::rename(&new, folder.path.join(NAME))?;
    Ok(listener)
}

/// Whoever listens in this folder; `None`: nobody does.
///
/// # Errors
/// The operating system's: it may be somebody else's.
pub(super) async fn connect(folder: &Path) -> io::Result<Option<UnixStream>> {
    let folder = Short::of(folder)?;
    match UnixStream::connect(folder.path.join(NAME)).await {
        Ok(stream) => Ok(Some(stream)),
        // Nobody ever did, or whoever did is gone and left its file.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_path_will_do_and_a_file_of_the_dead_is_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a-name-of-a-folder".repeat(10));
        std::fs::create_dir(&folder).unwrap();
        assert!(connect(&folder).await.unwrap().is_none(), "there is none");
        let listener = bind(&folder).unwrap();
        assert!(connect(&folder).await.unwrap().is_some());
        let mode = std::fs::metadata(folder.join(NAME)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        drop(listener);
        assert!(connect(&folder).await.unwrap().is_none(), "its owner is gone");
        let _again = bind(&folder).unwrap();
        assert!(connect(&folder).await.unwrap().is_some());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
}
