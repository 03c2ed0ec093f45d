//! Verification through the real listener: sockets, HTTP, routing and the configuration's own text, with a clock that is set
//! to each request's moment and a store in memory.
//!
//! `FAIRLANE_SHARED` names the folder that holds the published vectors and bodies; without it `../shared`.
#![cfg(test)]

#[path = "listener/bench.rs"]
mod bench;
#[path = "listener/groups.rs"]
mod groups;
#[path = "listener/sent.rs"]
mod sent;
#[path = "listener/vectors.rs"]
mod vectors;

use std::path::PathBuf;

/// A folder of what comes from elsewhere; `None`, loudly, where it is not at hand.
fn shared(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("FAIRLANE_SHARED").map_or_else(|| PathBuf::from("../shared"), PathBuf::from);
    let path = shared.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("LEFT OUT: everything from {}, which does not exist (set FAIRLANE_SHARED)", path.display());
    None
}
