//! A disk and a wall clock that misbehave when a test says so, under the real binary: `faults.c`, compiled once and preloaded, and the file
//! that it reads its orders from.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

/// Input/output error.
pub(crate) const EIO: i64 = 5;
/// No space left on device.
pub(crate) const ENOSPC: i64 = 28;
/// Read-only file system.
pub(crate) const EROFS: i64 = 30;

/// The numbers of the control file, in the order of `struct control`.
#[derive(Clone, Copy)]
enum Word {
    WallOffset,
    SyncDelay,
    SyncError,
    WriteError,
    ReadError,
    OnlyLog,
    Syncs,
    Writes,
    Reads,
}

const WORDS: u64 = 9;

/// The faults of one gateway, over all its lives.
pub(crate) struct Faults {
    folder: TempDir,
    control: std::fs::File,
}

impl Faults {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let control = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
        control.set_len(WORDS * 8).unwrap();
        Self { folder, control }
    }

    /// What a gateway is to be started through, so that they are its own: [`GatewayBuilder::through`](super::GatewayBuilder::through).
    /// `data` is the folder whose files are meant.
    pub(crate) fn wrapper(&self, data: &Path) -> Vec<String> {
        let set = |name: &str, path: &Path| format!("{name}={}", path.display());
        vec![
            "env".to_owned(),
            set("LD_PRELOAD", shim()),
            set("FAULTS", &self.folder.path().join("control")),
            set("FAULTS_UNDER", data),
        ]
    }

    fn set(&self, word: Word, value: i64) {
        self.control.write_all_at(&value.to_le_bytes(), word as u64 * 8).unwrap();
    }

    fn get(&self, word: Word) -> i64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, word as u64 * 8).unwrap();
        i64::from_le_bytes(bytes)
    }

    /// The wall clock is so many seconds from the machine's.
    pub(crate) fn set_clock_by(&self, seconds: i64) {
        self.set(Word::WallOffset, seconds * 1_000_000);
    }

    /// Each sync takes this long more; those that wait already, as long as this says now.
    pub(crate) fn delay_syncs(&self, span: Duration) {
        self.set(Word::SyncDelay, span.as_millis().try_into().unwrap());
    }

    /// Each sync fails with this; `None`: none does.
    pub(crate) fn fail_syncs(&self, error: Option<i64>) {
        self.set(Word::SyncError, error.unwrap_or(0));
    }

    /// Each write fails with this after a half of it went through; `None`: none does.
    pub(crate) fn fail_writes(&self, error: Option<i64>) {
        self.set(Word::WriteError, error.unwrap_or(0));
    }

    /// Each read fails with this; `None`: none does.
    pub(crate) fn fail_reads(&self, error: Option<i64>) {
        self.set(Word::ReadError, error.unwrap_or(0));
    }

    /// Whether only segments of the log are meant, and not the index.
    pub(crate) fn only_in_the_log(&self, only: bool) {
        self.set(Word::OnlyLog, only.into());
    }

    /// The disk works again.
    pub(crate) fn mend(&self) {
        self.delay_syncs(Duration::ZERO);
        self.fail_syncs(None);
        self.fail_writes(None);
        self.fail_reads(None);
    }

    /// Syncs that were delayed or failed, writes and reads that failed.
    pub(crate) fn counts(&self) -> [i64; 3] {
        [Word::Syncs, Word::Writes, Word::Reads].map(|word| self.get(word))
    }
}

/// The compiled `faults.c`.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (own, all) = (folder.join(format!("faults-{}.so", std::process::id())), folder.join("faults.so"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/faults.c");
        let mut command = Command::new("cc");
        command
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&own)
            .arg(source)
            .arg("-ldl");
        let status = command.status().expect("cc, which also the build needs, is not there");
        assert!(status.success(), "cc: {status}");
        // Tests of other files do the same at the same time.
        std::fs::rename(own, &all).unwrap();
        all
    })
}
