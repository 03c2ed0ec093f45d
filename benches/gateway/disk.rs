//! What the disk alone takes: appends of 1 KB, each made durable before the next.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};

use crate::load::Latencies;

/// What one append stands for: an event of the workload.
const APPEND_BYTES: usize = 1024;

/// Appends to a file in `folder` for `span`; the time of each append with its `fdatasync`.
pub(crate) fn measure(folder: &Path, span: Duration) -> anyhow::Result<Latencies> {
    let path = folder.join("fdatasync");
    let mut file = std::fs::File::create(&path)?;
    let block = [b'x'; APPEND_BYTES];
    let mut latencies = Latencies::default();
    let began = SystemClock.now().mono;
    loop {
        let before = SystemClock.now().mono;
        if before.since(began) > span {
            break;
        }
        file.write_all(&block)?;
        file.sync_data()?;
        latencies.add(SystemClock.now().mono.since(before));
    }
    std::fs::remove_file(&path)?;
    Ok(latencies)
}
