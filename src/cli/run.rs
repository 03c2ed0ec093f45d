//! `fairlane run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{CONFIG, ConfigFile, FAILED, complain, detach};
use crate::app::{self, Failure, Options};

/// The arguments of `fairlane run`.
#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    config: ConfigFile,
    /// Listen here instead of at `listen.address`; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = super::address)]
    listen: Option<SocketAddr>,
    /// Serve the admin API here instead of at `admin.address`
    #[arg(long, value_name = "ADDRESS", value_parser = super::address)]
    admin: Option<SocketAddr>,
    /// Keep the store here instead of in `store.embedded.path`
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Let a reload remove a source that has a backlog; its events are still delivered
    #[arg(long)]
    accept_removal: bool,
    /// Let a start or a reload change `key`, `within` or `order` of a source with `order` that has a backlog
    #[arg(long)]
    accept_reorder: bool,
    /// Take the place of the gateway that runs over the same data: it hands its sockets over and closes its store, and no sender is refused. Where none runs, start as usual
    #[arg(long)]
    upgrade: bool,
    /// Go on in the background, and end as soon as senders are served, or with the reason why not
    #[arg(long)]
    detach: bool,
    /// End as soon as this process, which started us, is gone
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<u32>,
}

/// Serves; the answer is the exit code.
pub(super) fn run(run: Run) -> u8 {
    if run.detach {
        return detach::begin();
    }
    if let Some(Err(error)) = run.end_with.map(app::end_with) {
        return complain(&format!("{error:#}"), FAILED);
    }
    let options = Options {
        config: run.config.path,
        listen: run.listen,
        admin: run.admin,
        data: run.data,
        accept_removal: run.accept_removal,
        accept_reorder: run.accept_reorder,
        upgrade: run.upgrade,
    };
    match app::run(options) {
        Ok(()) => 0,
        Err(Failure::Configuration(problems)) => {
            let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
            complain(&format!("the configuration has problems; nothing was started\n{}", list.join("\n")), CONFIG)
        }
        Err(Failure::Other(error)) => complain(&format!("{error:#}"), FAILED),
    }
}
