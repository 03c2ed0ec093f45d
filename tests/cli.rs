//! The command line's pages: the reference is the one that the parser makes, every example can be read, there is a manual page
//! for every command, and the binary says what it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "docs/shell.rs"]
mod shell;

use std::path::Path;
use std::process::{Command, Output};

fn fairlane(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fairlane")).args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = fairlane(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every command that is not hidden, as its words.
fn commands() -> Vec<(Vec<String>, clap::Command)> {
    let (mut all, mut open) = (Vec::new(), vec![(vec!["fairlane".to_owned()], fairlane::cli::command())]);
    while let Some((path, command)) = open.pop() {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            open.push(([path.clone(), vec![inner.get_name().to_owned()]].concat(), inner.clone()));
        }
        all.push((path, command));
    }
    all
}

#[test]
fn the_reference_is_the_one_that_is_made() {
    let made = said(&["man", "--markdown"]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(made == kept, "docs/cli.md is old: UPDATE_EXPECTED=1 cargo test --test cli writes it again");
    for (path, command) in commands() {
        let heading = format!("# {}\n", path.join(" "));
        assert!(path.len() == 1 || made.contains(&heading), "{heading}");
        for argument in command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(clap::Arg::get_long) {
            assert!(["help", "version"].contains(&argument) || made.contains(&format!("--{argument}")), "--{argument}");
        }
    }
}

/// What `--help` shows as an example is a command that the parser takes, and shows the command itself.
#[test]
fn every_example_of_the_help_can_be_typed() {
    let mut faults = Vec::new();
    for (path, command) in commands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: String = help.replace("Examples:", "").replace("Example:", "");
        let typed: Vec<_> = shell::commands(&examples).into_iter().filter(|words| words[0] == "fairlane").collect();
        if !typed.iter().any(|words| words.starts_with(&path)) {
            faults.push(format!("{} shows no example of itself", path.join(" ")));
        }
        for words in typed {
            if let Err(error) = fairlane::cli::command().try_get_matches_from(&words) {
                faults.push(format!("{}: {}\n{error}", path.join(" "), words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whoever has just installed it pastes the first thing that `--help` shows: it has to work as it stands, up to the gateway that would run.
#[test]
fn the_first_example_works_in_a_fresh_shell() {
    let folder = tempfile::tempdir().unwrap();
    let help = said(&["--help"]);
    let (_, examples) = help.split_once("Examples:").unwrap();
    let lines: Vec<&str> =
        examples.lines().filter(|line| line.contains("SHOPIFY") || line.contains("shopify")).collect();
    let script = lines.join("\n").replace("&& fairlane run", "");
    assert!(script.contains("fairlane check"), "{help}");
    let binaries = Path::new(env!("CARGO_BIN_EXE_fairlane")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-ec", &script]).current_dir(folder.path()).env("PATH", path).env_remove("SHOPIFY_SECRET");
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    assert!(fairlane(&["man", pages.to_str().unwrap()]).status.success());
    for (path, command) in commands() {
        let page = pages.join(format!("{}.1", path.join("-")));
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let first = about.split([' ', '\'', '-', '\\']).next().unwrap();
        assert!(text.contains(".TH ") && text.contains(first), "{}: {text}", page.display());
        // groff says what it cannot set.
        let Ok(set) = Command::new("groff").args(["-Kutf8", "-man", "-Tutf8", "-ww", "-z"]).arg(&page).output() else {
            continue;
        };
        assert!(set.status.success() && set.stderr.is_empty(), "{}", String::from_utf8_lossy(&set.stderr));
    }
    let elsewhere = fairlane(&["man", "/proc/nowhere"]);
    assert_eq!(elsewhere.status.code(), Some(1));
}

#[test]
fn the_binary_says_what_it_is() {
    assert_eq!(said(&["-V"]), format!("fairlane {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(said(&["--version"]), said(&["version"]));
    let facts: serde_json::Value = serde_json::from_str(&said(&["version", "--json"])).unwrap();
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("gateway.yaml");
    std::fs::write(&plain, "sources: [{ path: /in, verify: none }]\n").unwrap();
    let effective: serde_json::Value =
        serde_json::from_str(&said(&["check", "--json", "-c", plain.to_str().unwrap()])).unwrap();
    assert_eq!(facts["durability"], effective["effective"]["store"]["embedded"]["durability"], "{effective}");
    assert_eq!(facts["store_format"], fairlane::store::embedded::FORMAT);
    assert_eq!(facts["profile"], if cfg!(debug_assertions) { "debug" } else { "release" });
    assert!(facts["commit"].is_null() || facts["commit"].as_str().unwrap().len() >= 7);
    let shown = said(&["version"]);
    for fact in ["arch", "os", "libc", "profile", "durability"] {
        assert!(shown.contains(facts[fact].as_str().unwrap()), "{fact}: {shown}");
    }
}
