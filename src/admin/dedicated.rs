//! Dedicated slots as the API shows them: of one group, and as a whole in the status.

use serde::Serialize;

use super::api::rfc3339;
use crate::driver::{DedicatedInfo, DedicatedView};
use crate::event::Wall;

/// How a group stands that demands much.
#[derive(Serialize)]
pub(super) struct DedicatedJson {
    state: &'static str,
    since: String,
    /// As a part of all slots.
    demand: f64,
    slots: u32,
    /// Null: nothing of it is refused.
    shed_above: Option<u64>,
}

impl DedicatedJson {
    pub(super) fn of(view: &DedicatedView, now: Wall) -> Self {
        Self {
            state: view.state.as_str(),
            since: rfc3339(now.minus(view.since)),
            demand: view.demand,
            slots: view.slots,
            shed_above: view.shed_above,
        }
    }
}

/// Dedicated slots as a whole.
#[derive(Serialize)]
pub(super) struct StatusJson {
    max: u32,
    slots_each: u32,
    slots_taken: u32,
    at_ceiling: bool,
    groups: Vec<GroupJson>,
}

#[derive(Serialize)]
struct GroupJson {
    group: String,
    #[serde(flatten)]
    stands: DedicatedJson,
}

impl StatusJson {
    pub(super) fn of(info: &DedicatedInfo, now: Wall) -> Self {
        let group = |(name, view): &(crate::event::Group, DedicatedView)| GroupJson {
            group: name.to_string(),
            stands: DedicatedJson::of(view, now),
        };
        Self {
            max: info.max,
            slots_each: info.slots,
            slots_taken: info.taken,
            at_ceiling: info.at_ceiling,
            groups: info.groups.iter().map(group).collect(),
        }
    }
}
