//! What was waited for, in words.

use std::time::Duration;

use crate::admin::words;
use crate::event::{WaitReason, WaitSplit};

/// A part of a wait.
pub(super) struct Part {
    pub(super) words: &'static str,
    pub(super) time: String,
    /// Its part of the whole, 0 to 100.
    pub(super) width: f64,
    pub(super) share: String,
}

/// The parts of a wait, the longest first; none where nothing waited.
pub(super) fn parts(split: &WaitSplit) -> Vec<Part> {
    let millis = split.millis();
    let all = millis.iter().map(|(_, ms)| *ms).sum::<u64>().max(1);
    let part = |(reason, ms): (WaitReason, u64)| {
        #[expect(clippy::cast_precision_loss, reason = "drawn a hundred pixels wide")]
        let share = ms as f64 / all as f64;
        let time = words::span(Duration::from_millis(ms));
        Part { words: reason_words(reason), time, width: share * 100.0, share: words::percent(share) }
    };
    millis.into_iter().filter(|(_, ms)| *ms > 0).map(part).collect()
}

/// The same in a line.
pub(super) fn line(split: &WaitSplit) -> String {
    let part = |part: Part| format!("{} {}", part.time, part.words);
    parts(split).into_iter().map(part).collect::<Vec<_>>().join(", ")
}

fn reason_words(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::OwnLane => "behind others of its own group",
        WaitReason::Order => "behind its order key",
        WaitReason::GroupCap => "for its group's cap",
        WaitReason::GroupRate => "for its group's rate",
        WaitReason::GroupPaused => "while its group was paused",
        WaitReason::GroupBreaker => "for its group's breaker",
        WaitReason::RetryAfter => "as the upstream had asked (Retry-After)",
        WaitReason::Slots => "for a slot, in its turn",
        WaitReason::Slow => "because slow groups held all they may",
        WaitReason::RetrySlots => "because retries held all they may",
        WaitReason::ReplaySlots => "because replays held all they may",
        WaitReason::UpstreamRate => "for the upstream's rate",
        WaitReason::UpstreamPaused => "while the upstream was paused",
        WaitReason::UpstreamBreaker => "for the upstream's breaker",
        WaitReason::Store => "to be read from the store",
        WaitReason::BeforeRestart => "before this process began",
        WaitReason::Gateway => "for the gateway itself",
    }
}
