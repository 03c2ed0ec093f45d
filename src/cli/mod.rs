//! The command line: arguments in, text and an exit code out.
//!
//! Exit codes: 0 done, 1 it went wrong, 64 the command line is wrong (`EX_USAGE`), 78 the configuration is (`EX_CONFIG`).

mod alerts;
mod api;
mod capture;
mod changed;
pub mod check;
mod completions;
mod demo;
mod detach;
mod doctor;
mod events;
mod explain;
mod import;
mod keys;
mod lines;
mod nodes;
mod panels;
mod picture;
mod providers;
mod reference;
mod rejections;
mod remote;
mod removal;
mod replay;
mod rules;
mod run;
pub mod secret;
mod selection;
mod send;
mod simulate;
mod sources;
mod standing;
mod table;
mod top;
mod traffic;
pub mod verify;
mod version;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

pub use check::CONFIG;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// It went wrong.
pub const FAILED: u8 = 1;

/// The command line is wrong (sysexits `EX_USAGE`).
pub const USAGE: u8 = 64;

/// A self-hosted webhook gateway that is fair between tenants.
#[derive(Debug, Parser)]
#[command(
    name = "fairlane",
    version,
    long_version = version::long(),
    arg_required_else_help = true,
    propagate_version = true,
    after_help = "Examples: fairlane demo      # one store floods, nine do not notice; there is nothing to set up\n          \
                  export SHOPIFY_SECRET='the secret of your app, as Shopify shows it'\n          \
                  fairlane providers shopify > gateway.yaml && fairlane check && fairlane run"
)]
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
        /// Print only problems and notes
        #[arg(short, long, conflicts_with = "json")]
        quiet: bool,
        /// Print problems or the effective configuration, and notes, as JSON
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
        after_help = "Examples: fairlane send --provider shopify --secret env:SHOPIFY_SECRET --to http://127.0.0.1:8080/webhooks/shopify \\\n           --header 'X-Shopify-Shop-Domain: a.myshopify.com' --event-type orders/create < order.json\n          echo '{}' | fairlane send --provider discord --secret file:key.pem --to http://127.0.0.1:8080/webhooks/discord --count 5"
    )]
    Send(send::Send),
    /// Judge captured requests offline: one JSON object a line in, one out
    #[command(after_help = "Example: fairlane verify captured.jsonl")]
    Verify {
        /// The file; - is standard input
        file: PathBuf,
    },
    /// Say what the gateway would do with one captured request, step by step
    #[command(
        after_help = "Examples: fairlane explain request.http\n          pbpaste | fairlane explain - -c gateway.yaml      # a copied curl command\n          fairlane explain session.har --entry 3 --json"
    )]
    Explain(explain::Explain),
    /// Providers known by name; with a name, a ready source block and what to know about it
    #[command(
        after_help = "Examples: fairlane providers\n          fairlane providers stripe >> gateway.yaml\n          fairlane providers github --item >> gateway.yaml      # a further source"
    )]
    Providers(providers::Providers),
    /// Try key rules on captured or stored traffic: how many groups, how even, who would wait
    #[command(
        after_help = "Examples: fairlane keys captured.jsonl --key headers.x-tenant --key '{ join: [headers.x-tenant, body.conversation.id] }'\n          fairlane keys session.har --provider shopify --within headers.x-shopify-topic --out keys\n          fairlane keys --store ./fairlane-data -c gateway.yaml --json"
    )]
    Keys(keys::Keys),
    /// Replay arrivals against the real scheduler in virtual time: what if weights, caps, slots were others
    #[command(
        after_help = "Examples: fairlane simulate --scenario flood --one-queue --out simulated\n          fairlane simulate arrivals.jsonl --concurrency 32 --concurrency 64\n          fairlane simulate --store ./fairlane-data --last 6h -c gateway.yaml --weight 'plus-*=4' --json"
    )]
    Simulate(simulate::Simulate),
    /// A live table of groups: rate, in flight, backlog, age, share, and why each does not run
    #[command(after_help = "Examples: fairlane top\n          fairlane top --once --sort depth")]
    Top(top::Top),
    /// Who is waiting, and why; pause, change or cancel a group
    #[command(
        after_help = "Examples: fairlane groups --sort depth\n          fairlane groups pause noisy.myshopify.com --expires 2h\n          fairlane groups divert noisy.myshopify.com"
    )]
    Groups(api::Groups),
    /// The upstream's breaker and slots; pause and resume
    #[command(after_help = "Example: fairlane upstream")]
    Upstream(api::Upstream),
    /// Events, newest first; one of them with its attempts and its body
    #[command(
        after_help = "Examples: fairlane events --group quiet-store.myshopify.com --status dead,retrying\n          fairlane events show evt_0190b5a0-7c1e-7a53-8f6e-0123456789ab --body"
    )]
    Events(events::Events),
    /// Dead letters: which there are, why, and delivering them once more
    #[command(
        after_help = "Examples: fairlane dead --group quiet-store.myshopify.com\n          fairlane dead replay --group quiet-store.myshopify.com"
    )]
    Dead(replay::Dead),
    /// Deliver ended events once more: a plan, then one replay with progress, pause and cancel
    #[command(
        after_help = "Examples: fairlane replay --group quiet-store.myshopify.com --since 2026-01-31T08:00:00Z --plan\n          fairlane replay --source /webhooks/shopify --status dead --yes\n          fairlane replay list"
    )]
    Replay(replay::Replay),
    /// The nodes that share a store in Redis: shards, slots, and who is about to end
    #[command(after_help = "Example: fairlane nodes")]
    Nodes(nodes::Nodes),
    /// Sources: how each stands and what waits of it; pause one, let one run dry
    #[command(
        after_help = "Examples: fairlane sources\n          fairlane sources pause /webhooks/shopify --for 2h\n          fairlane sources drain /webhooks/shopify"
    )]
    Sources(sources::Sources),
    /// Refused requests, newest first, and which part of each did not fit
    #[command(after_help = "Example: fairlane rejections --source /webhooks/shopify --limit 5")]
    Rejections(rejections::Rejections),
    /// What is wrong now, what it means and what to do about it; try the way to whoever is told
    #[command(after_help = "Examples: fairlane alerts\n          fairlane alerts test")]
    Alerts(alerts::Alerts),
    /// Look for what is wrong with this machine; with --store, with every checksum of a store
    #[command(
        after_help = "Examples: fairlane doctor -c gateway.yaml\n          fairlane doctor --store ./fairlane-data"
    )]
    Doctor(doctor::Doctor),
    /// Make a gateway.yaml of what another product is told; what has no counterpart stands in it as a comment
    #[command(after_help = "Example: fairlane import hookdeck connections.json > gateway.yaml")]
    Import(import::Import),
    /// Print completions for a shell
    #[command(
        after_help = "Examples: source <(fairlane completions bash)\n          fairlane completions zsh > ~/.zfunc/_fairlane\n          fairlane completions fish > ~/.config/fish/completions/fairlane.fish"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Which binary this is: version, commit, target, how durable it is unless told otherwise
    #[command(after_help = "Examples: fairlane version\n          fairlane version --json")]
    Version {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write manual pages into a folder, or the same as one page of Markdown
    #[command(hide = true, after_help = "Example: fairlane man target/man")]
    Man {
        /// The folder
        #[arg(required_unless_present = "markdown")]
        folder: Option<PathBuf>,
        /// Print a page of Markdown, as docs/cli.md has it
        #[arg(long, conflicts_with = "folder")]
        markdown: bool,
    },
    /// See it work: one store floods, nine do not notice; a table and a plot, in under a minute
    #[command(after_help = "Example: fairlane demo --compare")]
    Demo(demo::Arguments),
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
    with_examples_as_written(Cli::command())
}

/// Help whose examples are not wrapped: a command that is broken between its words is another one where it is pasted. Only the text
/// of a template is left alone, so the examples stand in the template.
fn with_examples_as_written(command: clap::Command) -> clap::Command {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let template =
        format!("{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{all-args}}\n\n{examples}\n");
    command.help_template(template).mut_subcommands(with_examples_as_written)
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    ExitCode::from(match cli.command {
        Command::Run(run) => run::run(run),
        Command::Check { config, quiet, json } => check::run(
            &config.path,
            match (quiet, json) {
                (true, _) => check::Shape::Quiet,
                (_, true) => check::Shape::Json,
                _ => check::Shape::Whole,
            },
        ),
        Command::Schema { markdown: true } => print(crate::config::page().as_bytes()),
        Command::Schema { markdown: false } => check::run_schema(),
        Command::Send(arguments) => send::run(&arguments),
        Command::Verify { file } => verify::run_file(&file),
        Command::Explain(explain) => explain::run(&explain),
        Command::Providers(arguments) => providers::run(&arguments),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Top(top) => top::run(&top),
        Command::Groups(groups) => api::groups(&groups),
        Command::Upstream(upstream) => api::upstream(&upstream),
        Command::Events(events) => events::run(&events),
        Command::Dead(arguments) => replay::dead(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Completions { shell } => completions::run(shell),
        Command::Nodes(nodes) => nodes::run(&nodes),
        Command::Sources(sources) => sources::run(&sources),
        Command::Rejections(rejections) => rejections::run(&rejections),
        Command::Alerts(alerts) => alerts::run(&alerts),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Version { json } => version::run(json),
        Command::Man { folder: Some(folder), .. } => reference::man(&folder),
        Command::Man { folder: None, .. } => print(reference::page().as_bytes()),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command, inner ones too.
    fn walk(command: &clap::Command, path: &str, see: &mut dyn FnMut(&clap::Command, &str)) {
        see(command, path);
        for inner in command.get_subcommands() {
            walk(inner, &format!("{path} {}", inner.get_name()), see);
        }
    }

    #[test]
    fn every_command_says_what_it_does_and_gives_an_example_that_can_be_read() {
        let mut count = 0;
        walk(&Cli::command(), "fairlane", &mut |command, path| {
            count += 1;
            assert!(command.get_about().is_some(), "{path} does not say what it does");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = help.split_once("Example").map(|(_, example)| example).unwrap_or_default();
            assert!(example.contains(path), "{path} has no example of itself: {help:?}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path}: {} is not explained", argument.get_id());
            }
        });
        assert!(count > 20, "{count}");
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_stand_in_the_help_as_they_are_written_however_narrow_the_terminal() {
        let mut whole = command().term_width(40);
        whole.build();
        let mut faults = Vec::new();
        walk(&whole, "fairlane", &mut |command, path| {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for help in [command.clone().render_help(), command.clone().render_long_help()] {
                let help = help.to_string();
                let broken = examples.lines().find(|line| !help.lines().any(|shown| shown == *line));
                faults.extend(broken.map(|line| format!("{path}: {line}\n{help}")));
                assert_eq!(help.matches("Example").count(), usize::from(!examples.is_empty()), "{path}: {help}");
            }
        });
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
