//! What this binary is: the facts that a report of a fault, an audit and an upgrade need.

use crate::store::{Durability, embedded};

/// How it was built, and what it does unless told otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version, as `Cargo.toml` has it.
    pub version: &'static str,
    /// The commit it was built from, where whoever built it said so (`FAIRLANE_COMMIT`, which `make dist` and the Dockerfile set).
    pub commit: Option<&'static str>,
    /// Architecture, operating system and C library.
    pub target: (&'static str, &'static str, &'static str),
    /// `release` or `debug`.
    pub profile: &'static str,
    /// When an event counts as durable unless the configuration says otherwise.
    pub durability: &'static str,
    /// The format of the data directory that it reads and writes.
    pub store_format: u32,
}

/// Of this binary.
#[must_use]
pub fn build() -> Build {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("FAIRLANE_COMMIT").filter(|commit| !commit.is_empty()),
        target: (std::env::consts::ARCH, std::env::consts::OS, libc),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        // A test holds it to what a configuration without a word about it comes to.
        durability: Durability::Fsync.as_str(),
        store_format: embedded::FORMAT,
    }
}
