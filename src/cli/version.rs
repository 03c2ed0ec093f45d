//! `fairlane version` and `--version`: which binary this is.

use std::sync::LazyLock;

use serde_json::json;

use super::print;
use crate::app::{Build, build};

/// Prints the facts, as text or as JSON; the answer is the exit code.
pub(super) fn run(json: bool) -> u8 {
    let Build { version, commit, target: (arch, os, libc), profile, durability, store_format } = build();
    if !json {
        return print(format!("fairlane {}\n", long()).as_bytes());
    }
    let facts = json!({
        "version": version, "commit": commit, "arch": arch, "os": os, "libc": libc, "profile": profile,
        "durability": durability, "store_format": store_format,
    });
    print(format!("{facts:#}\n").as_bytes())
}

/// The facts as `--version` shows them behind the name.
pub(super) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let Build { version, commit, target: (arch, os, libc), profile, durability, store_format } = build();
        format!(
            "{version}\ncommit:       {}\ntarget:       {arch}-{os}-{libc}\nprofile:      {profile}\n\
             durability:   {durability}, unless store.embedded.durability says otherwise\nstore format: {store_format}",
            commit.unwrap_or("not known")
        )
    });
    &TEXT
}
