//! `fairlane explain FILE`: what the gateway would do with one captured request, step by step.
//!
//! It decides nothing itself: the listener's own code does, through `app`. No header's value is shown, so no secret is.

mod config;
mod near;
mod story;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;

use self::story::Story;
use super::capture;
use super::{CONFIG, ConfigFile, FAILED, USAGE, complain, print};
use crate::config::Problem;
use crate::event::Wall;

/// A larger file is no single request.
const CAPTURE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The arguments of `fairlane explain`.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Raw HTTP/1.1 text, a HAR file or a curl command line; - is standard input
    file: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
    /// Which request of a HAR, counted from 0
    #[arg(long, value_name = "N")]
    entry: Option<usize>,
    /// Judge by the clock of this machine, not by the capture's own time
    #[arg(long, conflicts_with = "at")]
    now: bool,
    /// Judge as if it came then: 2026-01-31T08:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<Wall>,
    /// It came over TLS, where the capture does not say so
    #[arg(long)]
    https: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A moment on the command line.
fn moment(text: &str) -> Result<Wall, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Wall::from_unix_s(i64::from(seconds)));
    }
    Wall::read(text).ok_or_else(|| "expected 2026-01-31T08:00:00Z or seconds since 1970".to_owned())
}

/// Explains; the answer is the exit code: 0 where it would be accepted, 1 where it would be refused.
pub(super) fn run(explain: &Explain) -> u8 {
    let captured = match text(&explain.file).and_then(|text| capture::read(&text, explain.entry, &body_file)) {
        Ok(captured) => captured,
        Err(why) => return complain(&format!("{}: {why}", explain.file.display()), USAGE),
    };
    let loaded = match config::load(&explain.config.path, &|name| std::env::var(name).ok()) {
        Ok(loaded) => loaded,
        Err(problems) => return complain(&format!("the configuration has problems\n{}", listed(&problems)), CONFIG),
    };
    let story = Story::of(explain, &loaded.config, captured);
    let unset = story.source_undecided().map(|source| loaded.unset_of(source)).unwrap_or_default();
    if !unset.is_empty() {
        let why = "the source that takes this path needs a secret that is not there";
        return complain(&format!("{why}\n{}", listed(unset)), CONFIG);
    }
    let text = if explain.json { format!("{:#}\n", story.json()) } else { story.text() };
    let written = print(text.as_bytes());
    if story.is_accepted() { written } else { FAILED }
}

fn listed<'p>(problems: impl IntoIterator<Item = &'p Problem>) -> String {
    problems.into_iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(CAPTURE_BYTES_MAX + 1).read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(CAPTURE_BYTES_MAX + 1).read_to_end(&mut text))
    };
    match read {
        Ok(read) if u64::try_from(read).is_ok_and(|read| read <= CAPTURE_BYTES_MAX) => Ok(text),
        Ok(_) => Err("it is larger than 64 MiB: that is no single request".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A body that a curl command names.
fn body_file(path: &str) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    std::fs::File::open(path)?.take(CAPTURE_BYTES_MAX).read_to_end(&mut body)?;
    Ok(body)
}
