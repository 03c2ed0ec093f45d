//! The embedded store.

use std::path::PathBuf;

use super::{Durability, Retention};

/// The embedded store's settings (`store` in the configuration).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data directory; made when it does not exist.
    pub path: PathBuf,
    /// When an append counts as done.
    pub durability: Durability,
    /// Bytes that the store may take on disk; `None`: what the disk has.
    pub max_bytes: Option<u64>,
    /// Free bytes below which new events are refused.
    pub min_free: u64,
    /// How long ended events stay readable.
    pub retention: Retention,
}
