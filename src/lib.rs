//! Fairlane: a self-hosted webhook gateway that is fair between tenants.
//!
//! One event's road, in the order of the modules below: `listen → verify → group → admit → store →
//! schedule → deliver → settle`. ARCHITECTURE.md has the map, and which module may use which.

pub mod event;

pub mod engine;
pub mod key;
pub mod verify;

pub mod clock;
pub mod metrics;
pub mod spans;

pub mod store;

pub mod cluster;

pub mod deliver;

pub mod driver;

pub mod admin;
pub mod listen;

pub mod config;

pub mod app;

pub mod cli;
