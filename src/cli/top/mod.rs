//! `fairlane top`: groups as they stand, again and again; once where nobody looks (`--once`, a pipe, `--json`).
//!
//! [`picture`] is what the gateway says, [`state`] what a person does with it (keys in, wishes out; no terminal and no network), [`draw`]
//! puts both on a screen, [`screen`] is the loop with the terminal and with a thread that asks.

mod draw;
mod picture;
mod screen;
mod state;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use super::remote::Remote;
use super::{FAILED, complain, print};
use picture::{Sort, fetch, text};

/// `fairlane top …`.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// By `age` of the oldest event, `depth`, worker `seconds` or arrival `rate`; keys change it
    #[arg(long, value_enum, default_value_t = Sort::Age)]
    sort: Sort,
    /// Seconds between two looks, 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
    /// Print the table once and end; so it is, too, where the output is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(super) fn run(top: &Top) -> u8 {
    let looks_on = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if looks_on && !top.once && !top.remote.json {
        return screen::run(&top.remote, top.sort, Duration::from_secs(top.interval));
    }
    match fetch(&top.remote, top.sort) {
        Ok(picture) if top.remote.json => print(format!("{:#}\n", picture.json()).as_bytes()),
        Ok(picture) => print(text(&picture).as_bytes()),
        Err(message) => complain(&message, FAILED),
    }
}
