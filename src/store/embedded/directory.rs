//! The data directory: whose it is, who has it open, which version it is.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::store::Error;
use crate::store::disk::{Disk, Real};

/// What may lie in a directory that has no store yet: ours, and what others put there before us.
const HARMLESS: [&str; 7] = ["lock", "FORMAT.tmp", "lost+found", "admin-token", "admin.token", "token", "upgrade.sock"];

/// The version of everything in a data directory. It grows when a version of this program writes what earlier ones cannot read;
/// what the ones before wrote is read for ever, or brought to the new form on opening (`docs/upgrading.md`).
pub const FORMAT: u32 = 1;

/// What the first line of `FORMAT` begins with; the version follows.
const NAME: &str = "fairlane store ";

/// The lock of a data directory, held as long as this lives. The system lets go of it when the process ends, however it ends.
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Whether the lock is still the one of this directory: it is not where the directory was deleted, moved away, or hidden by a mount.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn is_in_place(&self, dir: &Path) -> io::Result<bool> {
        Real.is_at(&dir.join("lock"), &self.file)
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}

/// Makes the directory where there is none, takes its lock and gives its salt.
///
/// # Errors
///
/// [`Error::Locked`] when another process has it, [`Error::Unavailable`] when it holds something that is not a store, or one of
/// another version.
pub(super) fn enter(dir: &Path) -> Result<(Lock, u32), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| failed(dir, &error))?;
    let format = dir.join("FORMAT");
    if !format.exists() {
        refuse_foreign(dir)?;
    }
    let lock = take_lock(dir)?;
    // Bodies and secrets of others lie here.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(|error| failed(dir, &error))?;
    if !format.exists() {
        let text = format!("{NAME}{FORMAT}\nsalt {}\n", new_salt());
        Real.replace(&format, text.as_bytes()).map_err(|error| failed(&format, &error))?;
    }
    Ok((lock, salt(dir)?))
}

/// The salt of the store in a directory.
///
/// # Errors
///
/// [`Error::Unavailable`] when there is no store, or one of another version.
pub(in crate::store) fn salt(dir: &Path) -> Result<u32, Error> {
    let path = dir.join("FORMAT");
    let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    let mut lines = text.lines();
    let (first, salt) = (lines.next().unwrap_or_default(), lines.next().and_then(|line| line.strip_prefix("salt ")));
    let version = first.strip_prefix(NAME).and_then(|version| version.parse::<u32>().ok());
    match (version, salt.and_then(|salt| salt.parse().ok())) {
        (Some(FORMAT), Some(salt)) => Ok(salt),
        (Some(version), _) if version > FORMAT => Err(Error::Unavailable(format!(
            "{}: it was written by a newer fairlane: its format is {version}, and this version reads formats up to {FORMAT}. \
             Nothing was changed; start the newer version again, or see docs/upgrading.md for going back",
            path.display(),
        ))),
        _ => Err(Error::Unavailable(format!(
            "{}: expected `{NAME}{FORMAT}` and a salt, found {first:?}",
            path.display(),
        ))),
    }
}

fn refuse_foreign(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(|error| failed(dir, &error))? {
        let name = entry.map_err(|error| failed(dir, &error))?.file_name();
        if !HARMLESS.iter().any(|harmless| name == *harmless) {
            return Err(Error::Unavailable(format!(
                "{} holds {} and no store; give the store a directory of its own",
                dir.display(),
                name.display(),
            )));
        }
    }
    Ok(())
}

fn take_lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join("lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = lock(dir, opened.map_err(|error| failed(&path, &error))?)?;
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
    // The number is a courtesy to the next one; on a full disk the lock holds without it.
    drop(written);
    Ok(Lock { file })
}

/// Whether nobody has the store in a directory open, if there is one. Changes nothing.
///
/// # Errors
///
/// [`Error::Locked`] names who has it.
pub(super) fn is_free(dir: &Path) -> Result<(), Error> {
    match File::open(dir.join("lock")) {
        Ok(file) => lock(dir, file).map(drop),
        // Nobody ever had it, or it is nobody's that we could ask.
        Err(_) => Ok(()),
    }
}

fn lock(dir: &Path, mut file: File) -> Result<File, Error> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let read = file.read_to_string(&mut pid);
            let pid = if read.is_ok() && !pid.trim().is_empty() { pid.trim() } else { "unknown" };
            Err(Error::Locked(format!("process {pid} has {} open; stop it, or use another directory", dir.display())))
        }
        Err(fs::TryLockError::Error(error)) => Err(failed(&dir.join("lock"), &error)),
    }
}

fn new_salt() -> u32 {
    // The standard library's hash keys are the one source of randomness that needs no crate.
    (RandomState::new().build_hasher().finish() & u64::from(u32::MAX)) as u32
}
