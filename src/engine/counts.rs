//! Pending events by the stage they are in: the books of I1.

/// Where a pending event stands, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Fresh in the store.
    Queued,
    /// Retrying in the store.
    Retrying,
    /// Leased.
    InFlight,
    /// Its lease has ended and what follows is not durable yet.
    Settling,
}

/// Pending events by stage. Kept for each lane, each group and all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) queued: u64,
    pub(super) retrying: u64,
    pub(super) in_flight: u32,
    pub(super) settling: u32,
}

impl Counts {
    pub(super) fn at(&self, stage: Stage) -> u64 {
        match stage {
            Stage::Queued => self.queued,
            Stage::Retrying => self.retrying,
            Stage::InFlight => u64::from(self.in_flight),
            Stage::Settling => u64::from(self.settling),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        self.retrying += other.retrying;
        self.in_flight += other.in_flight;
        self.settling += other.settling;
    }

    /// What waits: the backlog, as caps count it.
    pub(super) fn waiting(&self) -> u64 {
        self.queued + self.retrying
    }

    pub(super) fn total(&self) -> u64 {
        self.queued + self.retrying + u64::from(self.in_flight) + u64::from(self.settling)
    }

    /// Moves `n` events; `None` stands for outside. False when there were not so many.
    pub(super) fn shift(&mut self, from: Option<Stage>, to: Option<Stage>, n: u64) -> bool {
        let small = u32::try_from(n).unwrap_or(u32::MAX);
        let enough = match from {
            None => true,
            Some(Stage::Queued) => take(&mut self.queued, n),
            Some(Stage::Retrying) => take(&mut self.retrying, n),
            Some(Stage::InFlight) => self.in_flight.checked_sub(small).map(|left| self.in_flight = left).is_some(),
            Some(Stage::Settling) => self.settling.checked_sub(small).map(|left| self.settling = left).is_some(),
        };
        match to {
            None => {}
            Some(Stage::Queued) => self.queued += n,
            Some(Stage::Retrying) => self.retrying += n,
            Some(Stage::InFlight) => self.in_flight += small,
            Some(Stage::Settling) => self.settling += small,
        }
        enough
    }
}

fn take(count: &mut u64, n: u64) -> bool {
    count.checked_sub(n).map(|left| *count = left).is_some()
}
