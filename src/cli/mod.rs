//! The command line: arguments in, text and an exit code out.
//!
//! Exit codes: 0 done, 1 it went wrong, 64 the command line is wrong (`EX_USAGE`), 78 the configuration is (`EX_CONFIG`).

mod api;
pub mod check;
mod doctor;
mod providers;
mod run;
pub mod secret;
pub mod send;
pub mod verify;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

pub use check::CONFIG;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// It went wrong.
pub const FAILED: u8 = 1;

/// The command line is wrong (sysexits `EX_USAGE`).
pub const USAGE: u8 = 64;

/// A self-hosted webhook gateway that is fair between tenants.
#[derive(Debug, Parser)]
#[command(name = "fairlane", version, arg_required_else_help = true, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve: take webhooks, verify and store them
    #[command(after_help = "Example: fairlane run -c gateway.yaml --listen 127.0.0.1:8080")]
    Run(run::Run),
    /// Check a configuration and print what is in effect, secrets masked
    #[command(after_help = "Example: fairlane check -c gateway.yaml")]
    Check {
        #[command(flatten)]
        config: ConfigFile,
        /// Print problems and notes as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration, for editors
    #[command(after_help = "Example: fairlane schema > gateway.schema.json")]
    Schema {
        /// Print a page for people instead, in Markdown
        #[arg(long)]
        markdown: bool,
    },
    /// Sign a test event as a provider would, and post it
    #[command(
        after_help = "Example: fairlane send --provider shopify --secret env:SHOPIFY_SECRET --to http://127.0.0.1:8080/webhooks/shopify \\\n           --header 'X-Shopify-Shop-Domain: a.myshopify.com' < order.json"
    )]
    Send(send::Arguments),
    /// Judge captured requests offline: one JSON object a line in, one out
    #[command(after_help = "Example: fairlane verify captured.jsonl")]
    Verify {
        /// The file; - is standard input
        file: PathBuf,
    },
    /// Providers known by name; with a name, a ready source block
    #[command(after_help = "Example: fairlane providers stripe")]
    Providers {
        /// Which one
        name: Option<String>,
    },
    /// Who is waiting, and why; pause, change or cancel a group
    #[command(
        after_help = "Examples: fairlane groups --sort depth\n          fairlane groups pause noisy.myshopify.com --expires 2h"
    )]
    Groups(api::Groups),
    /// The upstream's breaker and slots; pause and resume
    #[command(after_help = "Example: fairlane upstream")]
    Upstream(api::Upstream),
    /// Events, newest first
    #[command(after_help = "Example: fairlane events --group quiet-store.myshopify.com --status dead,retrying")]
    Events(api::Events),
    /// Sources, and how many events each has accepted
    #[command(after_help = "Example: fairlane sources")]
    Sources(api::Sources),
    /// Look for what is wrong with this machine or the store
    #[command(after_help = "Example: fairlane doctor --store ./fairlane-data")]
    Doctor {
        /// Check every checksum of the store in this folder; the gateway may be running
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Which configuration.
#[derive(Clone, Debug, Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "gateway.yaml")]
    path: PathBuf,
}

/// The command line as its parser knows it: every command, argument and default. Documentation is held to it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    ExitCode::from(match cli.command {
        Command::Run(run) => run::run(run),
        Command::Check { config, json } => check::run(&config.path, json),
        Command::Schema { markdown: true } => print(crate::config::page().as_bytes()),
        Command::Schema { markdown: false } => check::run_schema(),
        Command::Send(arguments) => send::run(&arguments),
        Command::Verify { file } => verify::run_file(&file),
        Command::Providers { name } => providers::run(name.as_deref()),
        Command::Groups(groups) => api::groups(&groups),
        Command::Upstream(upstream) => api::upstream(&upstream),
        Command::Events(events) => api::events(&events),
        Command::Sources(sources) => api::sources(&sources),
        Command::Doctor { store, json } => doctor::run(&store, json),
    })
}

/// An address to listen on or to ask.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:8081".to_owned())
}

/// Help and version are answers; everything else is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if error.print().is_err() {
        return ExitCode::from(FAILED);
    }
    ExitCode::from(if asked { 0 } else { USAGE })
}

/// Writes to standard output. Whoever reads it may stop before the end (`| head`): that is no failure.
fn print(text: &[u8]) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write: {error}"), FAILED)
        }
        _ => 0,
    }
}

/// Says on standard error what went wrong, and with which code the command ends.
fn complain(message: &str, code: u8) -> u8 {
    let written = writeln!(std::io::stderr().lock(), "fairlane: {message}");
    // Without a standard error the exit code has to do.
    if written.is_err() { code.max(FAILED) } else { code }
}

/// An error and what caused it, outermost first.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
