//! What an event waited for: a closed set of reasons, and a wait split by them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What an event waits for at a moment. One reason holds at a time, so the parts of a wait add up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WaitReason {
    /// Other events of its own group went first.
    OwnLane,
    /// An earlier event of its order key.
    Order,
    /// Its group's attempts in flight were as many as its cap.
    GroupCap,
    /// Its group's rate had no token.
    GroupRate,
    /// Its group was paused.
    GroupPaused,
    /// Its group's breaker was open.
    GroupBreaker,
    /// The upstream had asked to wait (`Retry-After`).
    RetryAfter,
    /// Every slot was busy, and it was not yet its group's turn.
    Slots,
    /// Slow groups held all the slots they may, or its group held several of which none ended (R4b).
    Slow,
    /// Retries held all the slots they may.
    RetrySlots,
    /// Replays held all the slots they may.
    ReplaySlots,
    /// The upstream's rate had no token.
    UpstreamRate,
    /// The upstream was paused.
    UpstreamPaused,
    /// The upstream's breaker was open, let few attempts through, or gave slots back one after another.
    UpstreamBreaker,
    /// It was being read from the store.
    Store,
    /// It was accepted before this process began: what held it until then is not known.
    BeforeRestart,
    /// Nothing of these: the gateway had not come to it yet.
    Gateway,
}

impl WaitReason {
    /// Whether its own group, or its order key, stood still meanwhile, or may have. Such a wait says nothing of how fairly the slots are
    /// shared.
    #[must_use]
    pub fn is_own_standstill(self) -> bool {
        matches!(
            self,
            Self::Order
                | Self::GroupRate
                | Self::GroupPaused
                | Self::GroupBreaker
                | Self::RetryAfter
                | Self::BeforeRestart
        )
    }

    /// How many there are.
    pub const COUNT: usize = 17;

    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; Self::COUNT] = [
        Self::OwnLane,
        Self::Order,
        Self::GroupCap,
        Self::GroupRate,
        Self::GroupPaused,
        Self::GroupBreaker,
        Self::RetryAfter,
        Self::Slots,
        Self::Slow,
        Self::RetrySlots,
        Self::ReplaySlots,
        Self::UpstreamRate,
        Self::UpstreamPaused,
        Self::UpstreamBreaker,
        Self::Store,
        Self::BeforeRestart,
        Self::Gateway,
    ];

    /// Its name in `Fairlane-Wait-Reason`, in metrics and in the API; a key of a structured field (RFC 9651 §3.2).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OwnLane => "own_lane",
            Self::Order => "order",
            Self::GroupCap => "group_cap",
            Self::GroupRate => "group_rate",
            Self::GroupPaused => "group_paused",
            Self::GroupBreaker => "group_breaker",
            Self::RetryAfter => "retry_after",
            Self::Slots => "slots",
            Self::Slow => "slow",
            Self::RetrySlots => "retry_slots",
            Self::ReplaySlots => "replay_slots",
            Self::UpstreamRate => "upstream_rate",
            Self::UpstreamPaused => "upstream_paused",
            Self::UpstreamBreaker => "upstream_breaker",
            Self::Store => "store",
            Self::BeforeRestart => "before_restart",
            Self::Gateway => "gateway",
        }
    }
}

/// A wait, split by what it was for. The parts add up to the wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitSplit {
    /// Each reason once, none of them empty; most waits have one or two, and a wait of nothing takes no memory.
    parts: Vec<(WaitReason, Duration)>,
}

impl WaitSplit {
    /// Adds a part.
    pub fn add(&mut self, reason: WaitReason, span: Duration) {
        if span.is_zero() {
            return;
        }
        match self.parts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum = sum.saturating_add(span),
            None => self.parts.push((reason, span)),
        }
    }

    /// Its parts, the longest first; equal ones in the order of [`WaitReason::ALL`].
    #[must_use]
    pub fn parts(&self) -> Vec<(WaitReason, Duration)> {
        let mut parts = self.parts.clone();
        parts.sort_unstable_by(|(one, long), (other, short)| short.cmp(long).then(one.cmp(other)));
        parts
    }

    /// Its parts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (WaitReason, Duration)> + '_ {
        self.parts.iter().copied()
    }

    /// The whole wait.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.parts.iter().map(|(_, span)| *span).sum()
    }

    /// Whole milliseconds by reason, the longest first, those of none left out; they add up to the whole wait's.
    #[must_use]
    pub fn millis(&self) -> Vec<(WaitReason, u64)> {
        let whole = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let mut parts: Vec<(WaitReason, Duration, u64)> =
            self.parts().into_iter().map(|(reason, span)| (reason, span, whole(span))).collect();
        let sum: u64 = parts.iter().map(|(.., ms)| ms).sum();
        // What rounding down took goes to those that lost most by it.
        let left = usize::try_from(whole(self.total()).saturating_sub(sum)).unwrap_or(usize::MAX);
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|place| {
            std::cmp::Reverse(parts.get(*place).map_or(0, |(_, span, _)| span.subsec_nanos() % 1_000_000))
        });
        for place in order.into_iter().take(left) {
            if let Some((.., ms)) = parts.get_mut(place) {
                *ms += 1;
            }
        }
        let mut millis: Vec<(WaitReason, u64)> =
            parts.into_iter().map(|(reason, _, ms)| (reason, ms)).filter(|(_, ms)| *ms > 0).collect();
        millis.sort_by(|(_, one), (_, other)| other.cmp(one));
        millis
    }
}

impl FromIterator<(WaitReason, Duration)> for WaitSplit {
    fn from_iter<I: IntoIterator<Item = (WaitReason, Duration)>>(parts: I) -> Self {
        let mut split = Self::default();
        for (reason, span) in parts {
            split.add(reason, span);
        }
        split
    }
}

/// As `Fairlane-Wait-Reason` says it: a dictionary of milliseconds (RFC 9651 §3.2), e.g. `own_lane=1200, group_cap=300`; `none` for a
/// wait of less than a millisecond, since an empty dictionary is no field at all.
impl fmt::Display for WaitSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.millis();
        if millis.is_empty() {
            return f.write_str("none");
        }
        for (place, (reason, ms)) in millis.into_iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{}={ms}", reason.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn a_split_is_written_longest_first_and_adds_up() {
        let mut split = WaitSplit::default();
        assert_eq!(split.to_string(), "none");
        split.add(WaitReason::GroupCap, us(300_400));
        split.add(WaitReason::OwnLane, us(1_000_000));
        split.add(WaitReason::OwnLane, us(200_300));
        split.add(WaitReason::Gateway, us(400));
        split.add(WaitReason::Slots, Duration::ZERO);
        // 1,501.1 ms: the millisecond that rounding down took goes to who lost most.
        assert_eq!(split.to_string(), "own_lane=1200, group_cap=301");
        assert_eq!(split.total(), us(1_501_100));
        assert_eq!([(WaitReason::Store, us(999))].into_iter().collect::<WaitSplit>().to_string(), "none");
    }

    #[test]
    fn names_are_keys_of_a_structured_field_and_each_is_there_once() {
        let mut names: Vec<&str> = WaitReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WaitReason::COUNT);
        assert!(WaitReason::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
    }

    proptest! {
        #[test]
        fn milliseconds_add_up_to_the_whole(parts in prop::collection::vec((0usize..WaitReason::COUNT, 0u64..5_000_000), 0..12)) {
            let split: WaitSplit = parts.into_iter().map(|(place, span)| (WaitReason::ALL[place], us(span))).collect();
            let sum: u64 = split.millis().into_iter().map(|(_, ms)| ms).sum();
            prop_assert_eq!(u128::from(sum), split.total().as_millis());
            let millis = split.millis();
            prop_assert!(millis.is_sorted_by(|one, other| one.1 >= other.1));
        }
    }
}
