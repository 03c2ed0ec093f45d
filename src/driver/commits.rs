//! Whether new events get into the store in time. A disk that hangs tells nobody: what shows it is a batch that does not come back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Handle;
use crate::event::Mono;
use crate::store::{Refusal, Usage};

/// A batch that is on its way for so long keeps whoever comes now waiting longer than senders wait (`listen.limits.answer_timeout`, where
/// nothing else is known): they are refused at once, before anything of theirs is on its way.
const LATE: Duration = Duration::from_secs(4);

/// The batch that is being made durable.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// When it began, [`Mono`] microseconds; 0: there is none.
    began: AtomicU64,
}

impl Commits {
    pub(super) fn begin(&self, now: Mono) {
        self.began.store(now.0.max(1), Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }

    /// For how long it has been on its way.
    fn age(&self, now: Mono) -> Duration {
        match self.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => now.since(Mono(began)),
        }
    }

    pub(super) fn are_late(&self, now: Mono) -> bool {
        self.age(now) >= LATE
    }
}

impl Handle {
    /// Why new events cannot be stored just now, in words, as far as those before them show it; `None`: nothing says so.
    #[must_use]
    pub fn unstored(&self, usage: &Usage) -> Option<String> {
        // The same moment as `Handle::ready` judges by, which does not look at the clock for each request.
        let now = self.last_turn();
        if self.shared.commits.are_late(now) {
            let age = self.shared.commits.age(now).as_secs();
            return Some(format!("new events have been on their way to the disk for {age} s"));
        }
        usage.failing.map(|refusal| match refusal {
            Refusal::Full => "the disk has no room for new events".to_owned(),
            _ => {
                "new events cannot be written to the disk (the log says why); it is tried again every second".to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_late_after_as_long_as_senders_wait_and_until_it_is_done() {
        let commits = Commits::default();
        assert!(!commits.are_late(Mono(90_000_000)), "there is none");
        commits.begin(Mono(0));
        assert!(!commits.are_late(Mono(3_999_999)));
        assert!(commits.are_late(Mono(4_000_001)));
        commits.end();
        assert!(!commits.are_late(Mono(90_000_000)));
    }
}
