//! Disk marks: what is refused, and what is given up, as the disk fills.
//!
//! Room is counted in *margins* of `min_free`: at 2 the oldest delivered history goes, at 1.5 the groups that hold most are
//! refused, at 1 everybody is. The last margin is for settlements, so that deliveries go on and free space. `max_bytes` is a
//! second disk of that size, whose margin is at most an eighth of it.

use std::collections::{BTreeMap, HashSet};

use super::core::Core;
use super::read;
use crate::event::{Group, Lane};
use crate::store::room::{self, MARGIN, REFUSE_LARGE_BELOW};
use crate::store::{Error, Refusal};

/// Lanes looked at in one read.
const PAGE: usize = 10_000;

/// What may not be stored now.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Why nobody may; the text says how much room there is.
    pub(super) full: Option<String>,
    /// The store's files are not where they were, or nothing can be learned of the disk: what would be written now might be found by
    /// nobody. In words.
    pub(super) lost: Option<String>,
    /// Memory is full of what the index does not take.
    pub(super) index_is_behind: bool,
    /// The last new events could not be written, and why. Those that come are tried all the same.
    pub(super) failing: Option<Refusal>,
    /// Groups that hold too much.
    refused: HashSet<Group>,
}

impl Admission {
    pub(super) fn admits(&self, group: &Group) -> Result<(), Refusal> {
        if self.lost.is_some() {
            return Err(Refusal::Unavailable);
        }
        if self.full.is_some() || self.index_is_behind {
            return Err(Refusal::Full);
        }
        if self.refused.contains(group) { Err(Refusal::GroupTooLarge) } else { Ok(()) }
    }

    /// Why new events cannot be kept just now, as far as is known without one that comes.
    pub(super) fn failing(&self) -> Option<Refusal> {
        self.lost.as_ref().map(|_| Refusal::Unavailable).or(self.failing)
    }

    /// Whether events may be appended at all; which groups may is asked before.
    pub(super) fn append(&self) -> Result<(), Error> {
        if let Some(reason) = &self.lost {
            return Err(Error::Unavailable(reason.clone()));
        }
        match &self.full {
            Some(reason) => Err(Error::Full(reason.clone())),
            None if self.index_is_behind => {
                Err(Error::Full("the index cannot be written, and memory has no room for more".into()))
            }
            None => Ok(()),
        }
    }
}

/// What the upkeep measured last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) free: u64,
    pub(super) index_bytes: u64,
}

/// Room in thousandths of a margin.
pub(super) fn room(core: &Core) -> u64 {
    let measured = *core.measured.lock();
    let settings = &core.settings;
    let on_disk = margins(measured.free, settings.min_free);
    let Some(max) = settings.max_bytes else { return on_disk };
    let used = core.segments.bytes().saturating_add(measured.index_bytes);
    on_disk.min(margins(max.saturating_sub(used), settings.min_free.min(max / 8)))
}

/// Bytes until everybody is refused, by what was measured last.
pub(super) fn room_bytes(core: &Core) -> u64 {
    let measured = *core.measured.lock();
    let settings = &core.settings;
    let on_disk = measured.free.saturating_sub(settings.min_free);
    let Some(max) = settings.max_bytes else { return on_disk };
    let used = core.segments.bytes().saturating_add(measured.index_bytes);
    on_disk.min(max.saturating_sub(used).saturating_sub(settings.min_free.min(max / 8)))
}

fn margins(free: u64, margin: u64) -> u64 {
    if margin == 0 {
        return if free == 0 { 0 } else { u64::MAX };
    }
    u64::try_from(u128::from(free) * u128::from(MARGIN) / u128::from(margin)).unwrap_or(u64::MAX)
}

/// Decides anew who is refused.
///
/// # Errors
///
/// Those of reading the lanes; who is refused stays as it was then.
pub(super) fn decide(core: &Core) -> Result<(), Error> {
    let room = room(core);
    let full = (room < MARGIN).then(|| {
        let Measured { free, index_bytes } = *core.measured.lock();
        let used = core.segments.bytes() + index_bytes;
        format!(
            "{free} bytes are free on the disk, the store takes {used}; new events need more than `min_free` of room"
        )
    });
    let refused = if room < REFUSE_LARGE_BELOW { largest(core, room)? } else { HashSet::new() };
    let mut admission = core.admission.write();
    if admission.full.is_none() && full.is_some() {
        tracing::warn!(reason = full, "new events are refused until there is room");
    }
    if admission.full.is_some() && full.is_none() {
        tracing::info!("new events are taken again");
    }
    if admission.refused.len() != refused.len() {
        tracing::warn!(groups = refused.len(), "room is short: the groups that hold most are refused");
    }
    admission.full = full;
    admission.refused = refused;
    Ok(())
}

/// The groups that hold most bytes.
fn largest(core: &Core, room: u64) -> Result<HashSet<Group>, Error> {
    let mut groups: BTreeMap<Group, u64> = BTreeMap::new();
    let mut after: Option<Lane> = None;
    loop {
        let page = read::lanes(core, after.as_ref(), PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.lane.clone());
        for summary in page {
            *groups.entry(summary.lane.group).or_default() += summary.bytes;
        }
    }
    Ok(room::largest(groups, room))
}
