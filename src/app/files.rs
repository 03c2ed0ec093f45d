//! Reading the files that an operator names: never more than one can mean, and, while we serve, nothing that could make us wait.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::config::Problem;

/// The largest file that is taken. The configuration has its own, smaller limit; whatever is above both is some other file.
const BYTES_MAX: u64 = 16 << 20;

/// Files named where the one that was asked for is not there.
const OTHERS_MAX: usize = 3;

/// Reads a text, from a pipe too (`-c /dev/stdin`, a secret that a program hands over).
///
/// # Errors
/// The operating system's; that it is too large, or no UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if u64::try_from(read).is_ok_and(|read| read > BYTES_MAX) {
        return Err(invalid(format!("it is larger than {} MiB", BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes().iter().take(error.utf8_error().valid_up_to()).filter(|b| **b == b'\n').count() + 1;
        invalid(format!("expected UTF-8 text; line {line} is none"))
    })
}

/// [`read`] for what is read again while we serve: a pipe that nobody writes to would hold up even the signal that ends us.
///
/// # Errors
/// Those of [`read`], and that it is no regular file.
pub(super) fn read_again(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.is_file() {
        read(path)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file, which alone is read while running"))
    }
}

/// What a file was: its time, its size, which one it is and when that was last changed. Of a link, what it leads to.
type Stamp = (SystemTime, u64, u64, (i64, i64));

/// `None` for what is not there or no regular file: a pipe has no content that could be compared.
fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((file.modified().ok()?, file.len(), file.ino(), (file.ctime(), file.ctime_nsec())))
}

/// The files that a configuration was read from, its secrets' with it, and what each was before it was read.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<PathBuf, Option<Stamp>>);

impl Seen {
    /// Whether any of them is not what it was.
    pub(super) fn is_stale(&self) -> bool {
        self.0.iter().any(|(path, was)| stamp(path) != *was)
    }

    /// Watches those of `before` too, as they are now: a configuration with a fault may not have come to read them.
    pub(super) fn and(mut self, before: Self) -> Self {
        for path in before.0.into_keys() {
            self.0.entry(path).or_insert_with_key(|path| stamp(path));
        }
        self
    }
}

/// Runs `load` with `read`, and gives with its result which files it read.
pub(super) fn watched<T>(
    read: &dyn Fn(&Path) -> io::Result<String>,
    load: impl FnOnce(&dyn Fn(&Path) -> io::Result<String>) -> T,
) -> (T, Seen) {
    let seen = RefCell::new(Seen::default());
    let loaded = load(&|path| {
        // Before it is read: a change that comes meanwhile is seen afterwards.
        seen.borrow_mut().0.entry(path.to_owned()).or_insert_with(|| stamp(path));
        read(path)
    });
    (loaded, seen.into_inner())
}

/// What to say about a configuration that cannot be read: another one that may be meant, or how to begin.
#[must_use]
pub fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let name = path.display().to_string();
    if error.kind() != io::ErrorKind::NotFound {
        return Problem::unreadable(&name, error, "name another file with -c");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let yaml = |path: &Path| path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<String> =
        entries.filter(|path| yaml(path)).map(|path| format!("-c {}", path.display())).collect();
    others.sort();
    others.truncate(OTHERS_MAX);
    let hint = if others.is_empty() {
        "name another file with -c, or write one: `fairlane providers shopify` prints a source to begin with, gateway.yaml of the \
         documentation has every field"
            .to_owned()
    } else {
        format!("is it one of these: {}?", others.join(", "))
    };
    Problem::unreadable(&name, error, &hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_not_there_is_looked_for_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let told = || unreadable(&dir.path().join("gateway.yaml"), &missing()).to_string();
        assert!(told().contains("providers shopify"), "{}", told());
        std::fs::write(dir.path().join("fairlane.yml"), "").unwrap();
        assert!(told().contains("fairlane.yml?"), "{}", told());
        let other = unreadable(Path::new("gateway.yaml"), &io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(other.contains("name another file"), "{other}");
    }

    #[test]
    fn what_is_no_text_of_a_sane_size_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, b"a\nb\xff").unwrap();
        assert_eq!(read(&file).unwrap_err().to_string(), "expected UTF-8 text; line 2 is none");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_again(&file).unwrap(), "text");
        assert!(read(Path::new("/dev/zero")).unwrap_err().to_string().contains("larger than 16 MiB"));
        assert!(read_again(dir.path()).unwrap_err().to_string().contains("not a regular file"));
        assert!(read_again(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a regular file"));
    }
}
