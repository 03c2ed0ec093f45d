//! The command line.

pub mod secret;
pub mod send;
pub mod verify;

pub mod check;

use std::process::ExitCode;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
