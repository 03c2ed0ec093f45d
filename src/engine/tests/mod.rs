//! The engine's rules (R1–R11), each by a test that fails without it. `rig` is the world they run in, `model` its store;
//! `tests/sim` runs the whole with faults and crashes.

mod bounds;
mod clock;
mod cold;
mod cost;
mod dedicated;
mod evidence;
mod fair;
mod handover;
mod live;
pub(super) mod model;
mod outage;
mod parked;
mod props;
mod rig;
mod rules;
mod sections;
mod views;
mod waits;

use crate::{engine, event};
