//! A process that pours for as long as it may: a fifth of one core.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};
use rustix::time::{ClockId, clock_gettime};

use crate::cases::Case;

/// Its share of one core.
const SHARE: u32 = 5;

/// Pours until the standard input says that it is over, then says how much that was.
pub(crate) fn run(case: &Case, target: SocketAddr) -> anyhow::Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let mut line = String::new();
        // Whatever comes, or that nothing can come any more, is the end.
        drop(std::io::stdin().read_line(&mut line));
        told.store(true, Ordering::Relaxed);
    });
    let mut pour = (case.start)(target);
    println!("ready");
    std::io::stdout().flush()?;
    let (began, used) = (SystemClock.now().mono, cpu());
    let mut units = 0.0;
    while !over.load(Ordering::Relaxed) {
        units += f64::from(pour());
        while (cpu() - used) * SHARE > SystemClock.now().mono.since(began) && !over.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    println!("{units} {}", (cpu() - used).as_secs_f64());
    Ok(())
}

/// What this process has used so far, all its threads.
fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}
