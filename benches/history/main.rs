//! `make bench-history`: what a history of millions costs a gateway, and those who look into it.
//!
//! [`fill`]: `HISTORY_EVENTS` events (1,000,000) of a thousand groups are accepted and delivered over six days that have gone by, with a body of
//! `HISTORY_BODY` bytes (1,000), and lists of every kind are timed inside the process. [`running`]: the real binary is started on that folder, and on an empty one;
//! senders with a schedule time its answers alone, beside somebody who lists and searches through the API without a pause, and while the
//! whole of the history is dropped because its retention was shortened.
//!
//! All of it lies in a folder under `target/` that is gone afterwards, or in `HISTORY_DATA`, which stays and is filled only once (until the last step, which empties it).
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench that cannot go on has failed, prints what it found, times with the machine's clock and awaits its own tasks"
)]

mod client;
mod fill;
mod running;
mod spread;

use std::path::PathBuf;

use tempfile::TempDir;

fn main() {
    let events = number("HISTORY_EVENTS", 1_000_000);
    let body = number("HISTORY_BODY", 1_000) as usize;
    // Under target/, so on the disk that the project itself lies on: /tmp may be memory.
    let temporary = TempDir::with_prefix_in("history-", env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = std::env::var_os("HISTORY_DATA").map_or_else(|| temporary.path().join("full"), PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(fill::fill(&folder.join("data"), events, body));
    runtime.block_on(fill::look(&folder.join("data")));
    drop(runtime);
    running::measure(&folder, &temporary.path().join("empty"));
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}
