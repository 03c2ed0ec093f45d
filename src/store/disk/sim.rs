//! A file system in memory that loses power, fills up and fails when a test says so.
//!
//! It keeps two worlds: what a running process sees, and what is durable. A file's bytes become durable with
//! [`DiskFile::sync`], names with [`Disk::sync_dir`]. [`Sim::cut`] ends one life: of what was not durable a
//! seeded part survives (each sector of each write on its own, a prefix of the changes of names), the rest never happened. After a
//! sync that failed, what it was about is seen as before and is not durable, and a later sync that succeeds does not change that: only
//! writing it again does. (So Linux: the pages count as clean.)

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// The file system. Clones share it.
#[derive(Clone, Default)]
pub struct Sim {
    world: Arc<Mutex<World>>,
}

#[derive(Default)]
struct World {
    dead: bool,
    files: Vec<Content>,
    seen: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    /// Changes of names since the directory was last synced, in their order.
    renames: Vec<Rename>,
    faults: Faults,
    syncs: u64,
}

#[derive(Clone)]
enum Rename {
    Made(PathBuf, usize),
    Moved(PathBuf, PathBuf),
    Removed(PathBuf),
}

#[derive(Clone, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync: where, how long.
    unsynced: Vec<(usize, usize)>,
}

#[derive(Default)]
struct Faults {
    /// Bytes that may still be given to new or longer files.
    space: Option<u64>,
    /// Bytes that may still be written.
    writes: Option<u64>,
    /// Syncs that may still succeed.
    syncs: Option<u64>,
    /// Nothing is written, made or named.
    read_only: bool,
    /// What [`Disk::free`] says.
    free: Option<u64>,
    /// Changes (writes, syncs, names) that still happen before the power goes.
    changes: Option<u64>,
}

impl Sim {
    /// An empty file system without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power: every call on this file system fails from now on. The answer is what the next life finds.
    #[must_use]
    pub fn cut(&self, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut world = self.world.lock();
        world.dead = true;
        let mut names = world.durable.clone();
        let survive = dice.below(world.renames.len() + 1);
        for rename in world.renames.iter().take(survive) {
            apply(&mut names, rename);
        }
        let files: Vec<Content> = world.files.iter().map(|content| content.after_cut(&mut dice)).collect();
        let next = World { files, seen: names.clone(), durable: names, ..World::default() };
        Self { world: Arc::new(Mutex::new(next)) }
    }

    /// From now on new and longer files may take this many bytes; `None`: any number.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.world.lock().faults.space = bytes;
    }

    /// From now on this many bytes can be written before a write fails, in its middle, with `StorageFull`.
    pub fn set_writes(&self, bytes: Option<u64>) {
        self.world.lock().faults.writes = bytes;
    }

    /// From now on this many syncs succeed; the next, and all after it, fail.
    pub fn set_syncs(&self, count: Option<u64>) {
        self.world.lock().faults.syncs = count;
    }

    /// From now on nothing can be written, made or named, or it can again.
    pub fn set_read_only(&self, is: bool) {
        self.world.lock().faults.read_only = is;
    }

    /// From now on this many changes (writes, syncs, changes of names) happen; then the power is out, and every call fails.
    /// [`Sim::cut`] gives what the next life finds.
    pub fn set_life(&self, changes: Option<u64>) {
        self.world.lock().faults.changes = changes;
    }

    /// Whether the power is out.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.world.lock().dead
    }

    /// What [`Disk::free`] says from now on; `None`: the truth, or `u64::MAX` without a limit.
    pub fn set_free(&self, bytes: Option<u64>) {
        self.world.lock().faults.free = bytes;
    }

    /// Syncs of files so far in this life.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.world.lock().syncs
    }

    /// The bytes of a file as a running process sees them; `None` where there is no such file.
    #[must_use]
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world.lock();
        world.seen.get(path).and_then(|&number| world.files.get(number)).map(|content| content.seen.clone())
    }

    /// Damages a file: `change` may do anything to its bytes, durably.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.world.lock();
        let number = world.seen.get(path).copied();
        if let Some(content) = number.and_then(|number| world.files.get_mut(number)) {
            change(&mut content.seen);
            content.durable = content.seen.clone();
            content.unsynced.clear();
        }
    }

    /// A second file system with the same content, all of it durable.
    #[must_use]
    pub fn copy(&self) -> Self {
        let world = self.world.lock();
        let whole = |content: &Content| Content {
            seen: content.seen.clone(),
            durable: content.seen.clone(),
            unsynced: Vec::new(),
        };
        let files = world.files.iter().map(whole).collect();
        let next = World { files, seen: world.seen.clone(), durable: world.seen.clone(), ..World::default() };
        Self { world: Arc::new(Mutex::new(next)) }
    }

    /// As [`Sim::with`], for a call that changes something.
    fn change<T>(&self, act: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        {
            let mut world = self.world.lock();
            match &mut world.faults.changes {
                Some(0) => world.dead = true,
                Some(left) => *left -= 1,
                None => {}
            }
            if world.faults.read_only {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
        }
        self.with(act)
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.world.lock();
        if world.dead { Err(io::Error::other("the power is out")) } else { act(&mut world) }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, rename: &Rename) {
    match rename {
        Rename::Made(path, number) => {
            names.insert(path.clone(), *number);
        }
        Rename::Moved(from, to) => {
            if let Some(number) = names.remove(from) {
                names.insert(to.clone(), number);
            }
        }
        Rename::Removed(path) => {
            names.remove(path);
        }
    }
}

impl Content {
    /// What is left of it: the durable bytes, and some sectors of each write that was not synced.
    fn after_cut(&self, dice: &mut Dice) -> Self {
        let mut bytes = self.durable.clone();
        for &(offset, length) in &self.unsynced {
            let end = offset + length;
            let mut at = offset;
            while at < end {
                let until = end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
                if dice.below(2) == 0
                    && let Some(written) = self.seen.get(at..until)
                {
                    if bytes.len() < until {
                        bytes.resize(until, 0);
                    }
                    bytes.get_mut(at..until).expect("resized just above").copy_from_slice(written);
                }
                at = until;
            }
        }
        Self { seen: bytes.clone(), durable: bytes, unsynced: Vec::new() }
    }
}

impl World {
    fn take_space(&mut self, bytes: u64) -> io::Result<()> {
        match &mut self.faults.space {
            Some(left) if *left < bytes => Err(io::ErrorKind::StorageFull.into()),
            Some(left) => {
                *left -= bytes;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn content(&mut self, number: usize) -> &mut Content {
        self.files.get_mut(number).expect("a file's number is its place, and files are never forgotten")
    }

    /// What there was of the bytes that are not allowed any more is not written.
    fn write(&mut self, number: usize, bytes: &[u8], offset: u64) -> io::Result<()> {
        let allowed = self.faults.writes.map_or(bytes.len(), |left| bytes.len().min(usize_of(left)));
        if let Some(left) = &mut self.faults.writes {
            *left -= allowed as u64;
        }
        let offset = usize_of(offset);
        let content = self.content(number);
        let end = offset + allowed;
        if content.seen.len() < end {
            content.seen.resize(end, 0);
        }
        let (written, rest) = bytes.split_at(allowed);
        content.seen.get_mut(offset..end).expect("resized just above").copy_from_slice(written);
        content.unsynced.push((offset, allowed));
        if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn sync(&mut self, number: usize) -> io::Result<()> {
        match &mut self.faults.syncs {
            Some(0) => {
                self.content(number).unsynced.clear();
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.syncs += 1;
        let content = self.content(number);
        let unsynced = std::mem::take(&mut content.unsynced);
        content.durable.resize(content.seen.len(), 0);
        for (offset, length) in unsynced {
            let range = offset..offset + length;
            if let (Some(to), Some(from)) = (content.durable.get_mut(range.clone()), content.seen.get(range)) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

struct SimFile {
    sim: Sim,
    number: usize,
}

impl Disk for Sim {
    fn make_dir(&self, _path: &Path) -> io::Result<()> {
        self.with(|_| Ok(()))
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.change(|world| {
            if world.seen.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            world.take_space(size)?;
            let zeros = vec![0; usize_of(size)];
            world.files.push(Content { seen: zeros.clone(), durable: zeros, unsynced: Vec::new() });
            let number = world.files.len() - 1;
            world.seen.insert(path.into(), number);
            world.renames.push(Rename::Made(path.into(), number));
            Ok(number)
        })?;
        Ok(Arc::new(SimFile { sim: self.clone(), number }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let number = self.with(|world| world.seen.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into()))?;
        Ok(Arc::new(SimFile { sim: self.clone(), number }))
    }

    fn is_at(&self, path: &Path, file: &dyn DiskFile) -> io::Result<bool> {
        let number = self.with(|world| Ok(world.seen.get(path).copied()))?;
        Ok(number.map(|number| (0, number as u64)) == Some(file.identity()?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        self.with(|world| {
            let inside = world.seen.iter().filter(|(path, _)| path.parent() == Some(dir));
            Ok(inside
                .filter_map(|(path, &number)| {
                    let size = world.files.get(number)?.seen.len() as u64;
                    Some((path.file_name()?.to_str()?.to_owned(), size))
                })
                .collect())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|world| {
            let number = world.seen.remove(from).ok_or(io::ErrorKind::NotFound)?;
            world.seen.insert(to.into(), number);
            world.renames.push(Rename::Moved(from.into(), to.into()));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|world| {
            let number = world.seen.remove(path).ok_or(io::ErrorKind::NotFound)?;
            world.renames.push(Rename::Removed(path.into()));
            let size = world.content(number).seen.len() as u64;
            if let Some(space) = &mut world.faults.space {
                *space += size;
            }
            Ok(())
        })
    }

    /// Every test uses one directory or waits for all of them: the names of all become durable.
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        self.change(|world| {
            world.renames.clear();
            world.durable = world.seen.clone();
            Ok(())
        })
    }

    fn free(&self, _dir: &Path) -> io::Result<u64> {
        self.with(|world| Ok(world.faults.free.or(world.faults.space).unwrap_or(u64::MAX)))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.sim.with(|world| {
            let offset = usize_of(offset);
            let end = offset.saturating_add(buffer.len());
            let bytes = world.content(self.number).seen.get(offset..end).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.sim.change(|world| world.write(self.number, bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.sim.change(|world| world.sync(self.number))
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.sim.with(|world| {
            let length = world.content(self.number).seen.len();
            let more = size.saturating_sub(length as u64);
            world.take_space(more)?;
            let content = world.content(self.number);
            content.seen.resize(length.max(usize_of(size)), 0);
            Ok(())
        })
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.number as u64))
    }

    fn size(&self) -> io::Result<u64> {
        self.sim.with(|world| Ok(world.content(self.number).seen.len() as u64))
    }
}

/// Seeded numbers (SplitMix64): the same seed gives the same cut.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize_of(mixed % (end.max(1) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_a_cut_and_the_rest_may_not() {
        let path = Path::new("/d/a");
        let mut kept = 0;
        for seed in 0..64 {
            let sim = Sim::new();
            let file = sim.create(path, 4).expect("made");
            file.write_at(b"durable", 0).expect("written");
            file.sync().expect("synced");
            sim.sync_dir(Path::new("/d")).expect("synced");
            file.write_at(b"D", 0).expect("written");
            let next = sim.cut(seed);
            assert!(file.sync().is_err(), "the old life is over");
            let bytes = next.bytes(path).expect("its name was durable");
            assert_eq!(bytes.get(1..), Some(&b"urable"[..]));
            kept += usize::from(bytes.first() == Some(&b'D'));
        }
        assert!((1..64).contains(&kept), "{kept} of 64 unsynced writes survived");
    }

    #[test]
    fn a_replaced_file_is_the_old_or_the_new_one() {
        let path = Path::new("/d/a");
        for seed in 0..64 {
            let sim = Sim::new();
            sim.replace(path, b"old").expect("written");
            let file = sim.create(Path::new("/d/a.new"), 0).expect("made");
            file.write_at(b"new", 0).expect("written");
            file.sync().expect("synced");
            sim.rename(Path::new("/d/a.new"), path).expect("renamed");
            let bytes = sim.cut(seed).bytes(path).expect("one of the two");
            assert!(bytes == b"old" || bytes == b"new", "{bytes:?}");
        }
    }

    #[test]
    fn a_write_on_a_full_disk_stops_in_its_middle() {
        let sim = Sim::new();
        let file = sim.create(Path::new("/d/a"), 0).expect("made");
        sim.set_writes(Some(2));
        let error = file.write_at(b"abcd", 0).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(sim.bytes(Path::new("/d/a")), Some(b"ab".to_vec()));
        sim.set_syncs(Some(1));
        assert!(file.sync().is_ok());
        assert!(file.sync().is_err());
    }
}
