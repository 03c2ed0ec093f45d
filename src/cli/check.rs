//! `fairlane check` and `fairlane schema`: what is wrong with a configuration, or all that it means.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use super::{FAILED, complain, print};
use crate::app;
use crate::config::{self, Config, Problem};

/// Exit status: everything is right.
pub const OK: u8 = 0;
/// Exit status: the configuration is wrong (`EX_CONFIG` of sysexits.h).
pub const CONFIG: u8 = 78;

/// How much is written, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The whole effective configuration, and what to know about it.
    Whole,
    /// Problems and notes alone.
    Quiet,
    /// The same as [`Shape::Whole`], for programs.
    Json,
}

/// Checks the configuration `text` of `file` and writes to `out` what it comes to: every problem, or the effective
/// configuration, secrets masked, with what follows each outcome of an attempt, and notes. The text for people is YAML as well, the
/// rest in comments. The answer is the exit status.
///
/// # Errors
///
/// `out` does not take it.
pub fn check(
    text: &str,
    file: &str,
    env: &dyn Fn(&str) -> Option<String>,
    files: &dyn Fn(&Path) -> io::Result<String>,
    shape: Shape,
    out: &mut dyn Write,
) -> io::Result<u8> {
    match (config::load(text, file, env, files), shape) {
        (Ok(config), Shape::Whole) => write_config(&config, file, out)?,
        (Ok(config), Shape::Quiet) => write_notes(&config, "", out)?,
        (Ok(config), Shape::Json) => {
            let outcomes = config.outcomes().into_iter();
            let outcomes: Vec<_> =
                outcomes.map(|(outcome, follows)| json!({ "outcome": outcome, "follows": follows })).collect();
            let notes: Vec<_> = config.notes.iter().map(|n| json!({ "path": n.path, "text": n.text })).collect();
            writeln!(
                out,
                "{:#}",
                json!({ "ok": true, "notes": notes, "outcomes": outcomes, "effective": config.json() })
            )?;
        }
        (Err(problems), shape) => {
            write_problems(&problems, shape, out)?;
            return Ok(CONFIG);
        }
    }
    Ok(OK)
}

/// Writes the JSON Schema of the configuration.
///
/// # Errors
///
/// `out` does not take it.
pub fn schema(out: &mut dyn Write) -> io::Result<u8> {
    writeln!(out, "{:#}", config::schema())?;
    Ok(OK)
}

/// `fairlane schema`; the answer is the exit code.
pub(super) fn run_schema() -> u8 {
    let mut out = Vec::new();
    match schema(&mut out) {
        Ok(code) => code.max(print(&out)),
        Err(error) => complain(&format!("the schema cannot be written: {error}"), FAILED),
    }
}

/// `fairlane check`; the answer is the exit code.
pub(super) fn run(path: &Path, shape: Shape) -> u8 {
    let name = path.display().to_string();
    let environment = |name: &str| std::env::var(name).ok();
    let mut out = Vec::new();
    let checked = match app::read(path) {
        Ok(text) => check(&text, &name, &environment, &app::read, shape, &mut out),
        Err(error) => write_problems(&[app::unreadable(path, &error)], shape, &mut out).map(|()| CONFIG),
    };
    match checked {
        Ok(code) => code.max(print(&out)),
        Err(error) => complain(&format!("{name}: {error}"), FAILED),
    }
}

/// All of it is YAML: what is said about the configuration stands in comments, at its end, where it is still on the screen.
fn write_config(config: &Config, file: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# {file} has no problems. The effective configuration:")?;
    write!(out, "{}", config.effective)?;
    let outcomes = config.outcomes();
    let width = outcomes.iter().map(|(outcome, _)| outcome.len()).max().unwrap_or(0);
    writeln!(out, "\n# What follows an attempt:")?;
    for (outcome, follows) in &outcomes {
        writeln!(out, "#   {outcome:width$}  {follows}")?;
    }
    let sources = counted(config.sources.len(), "source");
    let (slots, cap) = (config.upstream.concurrency, config.groups.defaults.concurrency);
    let addresses: Vec<_> = config.upstream.addresses.iter().map(|address| address.url.to_string()).collect();
    let addresses = addresses.join(", ");
    writeln!(out, "\n# {file}: {sources}, delivered to {addresses} by {slots} slots, {cap} for one group")?;
    write_notes(config, "# ", out)
}

fn write_notes(config: &Config, before: &str, out: &mut dyn Write) -> io::Result<()> {
    if config.notes.is_empty() {
        return Ok(());
    }
    writeln!(out, "{before}{}:", counted(config.notes.len(), "note"))?;
    config.notes.iter().try_for_each(|note| writeln!(out, "{before}  {note}"))
}

fn write_problems(problems: &[Problem], shape: Shape, out: &mut dyn Write) -> io::Result<()> {
    if shape == Shape::Json {
        let problems: Vec<_> = problems.iter().map(Problem::json).collect();
        return writeln!(out, "{:#}", json!({ "ok": false, "problems": problems }));
    }
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    writeln!(out, "{}", counted(problems.len(), "problem"))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
