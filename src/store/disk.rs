//! The one seam between the store's log and the file system.
//!
//! Segments and the checkpoint go through [`Disk`]; [`Real`] is the operating system, [`sim::Sim`] one in memory
//! that can lose power, fill up and fail. (fjall has its own files; they hold nothing that the log could not give back.)

pub mod sim;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

/// What the store needs of a file system. Paths are absolute or relative to the working directory; every call blocks.
pub trait Disk: Send + Sync + 'static {
    /// Makes a directory, if it is not there.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a file of `size` zero bytes whose space is taken now (where the file system can), and makes its content durable. Its
    /// name is durable only after [`Disk::sync_dir`].
    ///
    /// # Errors
    ///
    /// Those of the file system; `AlreadyExists`. After `StorageFull` no file is left.
    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Names and sizes of the files in a directory, in no order.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>>;

    /// Gives a file a new name; what had that name is gone. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a file's name away. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether what has this name is still this open file. A file that was deleted, moved away or replaced takes every write, and nobody
    /// will find them.
    ///
    /// # Errors
    ///
    /// Those of the file system, where it does not know; a name that is gone is no error.
    fn is_at(&self, path: &Path, file: &dyn DiskFile) -> io::Result<bool>;

    /// Bytes that may still be written below `dir`.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn free(&self, dir: &Path) -> io::Result<u64>;

    /// Writes a whole file so that after a power cut it has either its old content or the new one.
    ///
    /// # Errors
    ///
    /// Those of the file system; the old content is then still there.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(".tmp");
        let temporary = parent.join(name);
        match self.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.create(&temporary, bytes.len() as u64)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        self.rename(&temporary, path)?;
        self.sync_dir(parent)
    }
}

/// An open file. Calls may run beside each other.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the file ends before; those of the file system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    ///
    /// Those of the file system; a part may have been written then.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the content durable (`fdatasync`).
    ///
    /// # Errors
    ///
    /// Those of the file system. What was written since the last success is then in an unknown state, and a further call
    /// that succeeds proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Takes the space of the first `size` bytes and makes the file at least as long.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn allocate(&self, size: u64) -> io::Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn size(&self) -> io::Result<u64>;

    /// What no other open file of this file system has: device and inode.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn identity(&self) -> io::Result<(u64, u64)>;
}

/// The operating system's file system. Files are made with mode 0600, directories with 0700.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let made = file.allocate(size).and_then(|()| file.sync_all());
        if let Err(error) = made {
            // Nothing was promised about this file; the reason that counts is the first one.
            drop(fs::remove_file(path));
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                files.push((name, entry.metadata()?.len()));
            }
        }
        Ok(files)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn is_at(&self, path: &Path, file: &dyn DiskFile) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) == file.identity()?),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        let numbers = rustix::fs::statvfs(dir)?;
        Ok(numbers.f_bavail.saturating_mul(numbers.f_frsize))
    }
}

impl DiskFile for fs::File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        if size == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, size) {
            // Some file systems cannot take space ahead; zeros without space read alike.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                if self.metadata()?.len() < size {
                    self.set_len(size)?;
                }
                Ok(())
            }
            other => other.map_err(Into::into),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let found = self.metadata()?;
        Ok((found.dev(), found.ino()))
    }
}
