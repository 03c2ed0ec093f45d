//! The engine's rules (R1–R9, R11), each by a test that fails without it. `rig` is the world they run in, `model` its store;
//! `tests/sim` runs the whole with faults and crashes.

mod cold;
mod cost;
mod evidence;
mod fair;
mod live;
pub(super) mod model;
mod outage;
mod props;
mod rig;
mod rules;
mod views;

use crate::{engine, event};
