//! The segment files: their names, which there are, and open handles for reading.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Place;
use crate::store::disk::{Disk, DiskFile};
use crate::store::record::{self, Record};
use crate::store::{Error, wire::Damaged};

/// Files kept open for reading; a reader of many old segments opens others in passing.
const OPEN_MAX: usize = 64;

/// The files of the log. Readers, the writer and the upkeep share it.
pub(in crate::store) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Goes into every batch's checksum.
    pub(super) salt: u32,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sizes: BTreeMap<u32, u64>,
    open: BTreeMap<u32, Arc<dyn DiskFile>>,
}

impl Segments {
    /// Looks at what there is in `dir`, which is made when it is not there.
    ///
    /// # Errors
    ///
    /// Those of the file system, as [`Error::Unavailable`].
    pub(in crate::store) fn list(disk: Arc<dyn Disk>, dir: &Path, salt: u32) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Unavailable(format!("cannot list {}: {error}", dir.display()));
        disk.make_dir(dir).map_err(failed)?;
        let sizes = disk.list(dir).map_err(failed)?;
        let sizes = sizes.into_iter().filter_map(|(name, size)| Some((number_of(&name)?, size))).collect();
        let known = Mutex::new(Known { sizes, open: BTreeMap::new() });
        Ok(Self { disk, dir: dir.into(), salt, known })
    }

    /// The file of a segment.
    #[must_use]
    pub(in crate::store) fn path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number:08}.seg"))
    }

    /// Numbers of the segments there are, ascending.
    #[must_use]
    pub(in crate::store) fn numbers(&self) -> Vec<u32> {
        self.known.lock().sizes.keys().copied().collect()
    }

    /// Whether there is this segment.
    #[must_use]
    pub(in crate::store) fn has(&self, number: u32) -> bool {
        self.known.lock().sizes.contains_key(&number)
    }

    /// Bytes that all of them take.
    #[must_use]
    pub(in crate::store) fn bytes(&self) -> u64 {
        self.known.lock().sizes.values().sum()
    }

    /// Bytes that one takes; 0 when it is not there.
    #[must_use]
    pub(in crate::store) fn size(&self, number: u32) -> u64 {
        self.known.lock().sizes.get(&number).copied().unwrap_or(0)
    }

    /// Makes a segment of `size` bytes, its name durable.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn create(&self, number: u32, size: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path(number);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.disk.create(&path, size)?;
        self.disk.sync_dir(&self.dir)?;
        let mut known = self.known.lock();
        known.sizes.insert(number, size);
        known.open.insert(number, Arc::clone(&file));
        Ok(file)
    }

    /// A handle of a segment.
    ///
    /// # Errors
    ///
    /// Those of the file system; `NotFound` when it was deleted.
    pub(super) fn open(&self, number: u32) -> io::Result<Arc<dyn DiskFile>> {
        let mut known = self.known.lock();
        if let Some(file) = known.open.get(&number) {
            return Ok(Arc::clone(file));
        }
        if !known.sizes.contains_key(&number) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = self.disk.open(&self.path(number))?;
        while known.open.len() >= OPEN_MAX && known.open.pop_first().is_some() {}
        known.open.insert(number, Arc::clone(&file));
        Ok(file)
    }

    /// Whether a segment's file is still where it was made; what is no longer there nobody reads after this process.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(in crate::store) fn is_in_place(&self, number: u32) -> io::Result<bool> {
        let file = self.open(number)?;
        self.disk.is_at(&self.path(number), &*file)
    }

    /// The segment behind the present one, made or found: of `size` bytes, all zero.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn provide(&self, number: u32, size: u64) -> io::Result<Arc<dyn DiskFile>> {
        if !self.has(number) {
            return self.create(number, size);
        }
        if self.size(number) < size {
            self.lengthen(number, size)?;
        }
        self.open(number)
    }

    /// Takes the space of a segment that a power cut left shorter than it was made.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(super) fn lengthen(&self, number: u32, size: u64) -> io::Result<()> {
        let file = self.open(number)?;
        file.allocate(size)?;
        file.sync()?;
        self.known.lock().sizes.insert(number, size);
        Ok(())
    }

    /// Makes the names of all segments durable.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(in crate::store) fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.dir)
    }

    /// Deletes a segment, durably: what is deleted before it can come back neither alone nor later.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(in crate::store) fn delete(&self, number: u32) -> io::Result<()> {
        match self.disk.remove(&self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.disk.sync_dir(&self.dir)?;
        let mut known = self.known.lock();
        known.sizes.remove(&number);
        known.open.remove(&number);
        Ok(())
    }

    /// Reads the record at a place; `None` when its segment was deleted.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the bytes there are not a record, [`Error::Unavailable`] when they cannot be read.
    pub(in crate::store) fn read(&self, place: Place) -> Result<Option<Record>, Error> {
        let file = match self.open(place.segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| self.unreadable(place, &error))?,
        };
        // A length is not trusted before there is a file that is so long.
        let size = file.size().map_err(|error| self.unreadable(place, &error))?;
        if u64::from(place.offset) + u64::from(place.length) > size {
            return Err(self.damaged(place, "it ends"));
        }
        let mut frame = vec![0; place.length as usize];
        match file.read_at(&mut frame, u64::from(place.offset)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.damaged(place, "it ends")),
            other => other.map_err(|error| self.unreadable(place, &error))?,
        }
        let payload = record::frame_payload(&Bytes::from(frame));
        let record = payload.and_then(|payload| record::decode(&payload));
        record.map(Some).map_err(|Damaged(what)| self.damaged(place, what))
    }

    fn unreadable(&self, place: Place, error: &io::Error) -> Error {
        Error::Unavailable(format!("cannot read {} at {}: {error}", self.path(place.segment).display(), place.offset))
    }

    fn damaged(&self, place: Place, what: &str) -> Error {
        Error::Corrupt(format!("{} at offset {}: {what}", self.path(place.segment).display(), place.offset))
    }
}

fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".seg")?;
    if digits.len() < 8 { None } else { digits.parse().ok() }
}
