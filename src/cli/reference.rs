//! The command line as pages: `docs/cli.md`, and manual pages for `man`. Both are made of what the parser itself knows.

use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, Command};

use super::{FAILED, complain};

const HEAD: &str = "\
# The command line

Written by `fairlane man --markdown` from what the parser knows; not to be edited by hand, and a test holds it (`UPDATE_EXPECTED=1 cargo test --test cli` writes it again). `--help` behind any command says the same, `make man` makes manual pages, and
`fairlane completions SHELL` completes.

Commands that ask a running gateway find it by its configuration (`-c`, `gateway.yaml` unless told otherwise): the admin address, and the token in the data directory. Secrets are named, never written out: `env:NAME`, `file:PATH`, or `-` for standard input.

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | it went wrong |
| 64 | the command line is wrong |
| 78 | the configuration is wrong |
";

/// The page for people.
#[must_use]
pub(super) fn page() -> String {
    let mut text = format!("{HEAD}\n| command | |\n| --- | --- |\n");
    let root = built();
    for command in visible(&root) {
        let name = command.get_name();
        text.push_str(&format!("| [`{name}`](#fairlane-{name}) | {} |\n", cell(&about(command))));
    }
    for command in visible(&root) {
        section(command, &format!("fairlane {}", command.get_name()), &mut text);
    }
    text
}

/// Writes a manual page for each command into a folder; the answer is the exit code.
pub(super) fn man(folder: &Path) -> u8 {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(super::command(), folder));
    match written {
        Ok(()) => 0,
        Err(error) => complain(&format!("cannot write into {}: {error}", folder.display()), FAILED),
    }
}

/// With what the parser adds by itself.
fn built() -> Command {
    let mut root = super::command().disable_help_subcommand(true);
    root.build();
    root
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set())
}

fn section(command: &Command, path: &str, text: &mut String) {
    let depth = path.split(' ').count();
    text.push_str(&format!("\n{} {path}\n\n{}\n\n", "#".repeat(depth.min(4)), about(command)));
    let usage = command.clone().render_usage().to_string();
    text.push_str(&format!("```text\n{}\n```\n", usage.trim_start_matches("Usage: ")));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| shown(arg)).collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | meaning |\n| --- | --- |\n");
        for argument in arguments {
            text.push_str(&format!("| `{}` | {} |\n", cell(&written(argument)), cell(&meaning(argument))));
        }
    }
    let examples = examples(command);
    if !examples.is_empty() {
        text.push_str(&format!("\n```sh\n{examples}\n```\n"));
    }
    for inner in visible(command) {
        section(inner, &format!("{path} {}", inner.get_name()), text);
    }
}

/// What every command has says nothing about this one.
fn shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

fn about(command: &Command) -> String {
    plain(command.get_long_about().or_else(|| command.get_about()))
}

/// As it is typed.
fn written(argument: &Arg) -> String {
    let flags = [argument.get_short().map(|c| format!("-{c}")), argument.get_long().map(|name| format!("--{name}"))];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    let takes = argument.get_action().takes_values();
    let names = argument.get_value_names().unwrap_or_default();
    let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
    match (flags.is_empty(), takes) {
        (true, _) if argument.is_required_set() => values.join(" "),
        (true, _) => format!("[{}]", values.join(" ").trim_matches(['<', '>'])),
        (false, true) => format!("{} {}", flags.join(", "), values.join(" ")),
        (false, false) => flags.join(", "),
    }
}

fn meaning(argument: &Arg) -> String {
    let mut text = plain(argument.get_help());
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|v| !v.is_hide_set())
        .map(|v| format!("`{}`", v.get_name()))
        .collect();
    if !values.is_empty() && argument.get_action().takes_values() {
        text.push_str(&format!(" ({})", values.join(", ")));
    }
    let defaults: Vec<String> = argument.get_default_values().iter().map(|v| format!("`{}`", v.display())).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        text.push_str(&format!("; {} unless told otherwise", defaults.join(", ")));
    }
    text
}

/// The examples below a command's help, one below the other.
fn examples(command: &Command) -> String {
    let help = plain(command.get_after_help());
    let lines = help.lines().map(|line| line.trim_start_matches("Examples:").trim_start_matches("Example:"));
    // Where a command goes on in the next line it stays indented.
    let mut goes_on = false;
    let indented = lines.map(|line| {
        let line = if goes_on { format!("  {}", line.trim()) } else { line.trim().to_owned() };
        goes_on = line.ends_with('\\');
        line
    });
    indented.collect::<Vec<_>>().join("\n")
}

fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
