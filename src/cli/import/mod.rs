//! `fairlane import`: what another product is told becomes a `gateway.yaml`, and nothing of it gets lost unseen.
//!
//! The file goes to standard output. What has no counterpart here stands in it as a comment that begins with [`MISSING`], what
//! behaves otherwise as one that begins with [`DIFFERS`]; how many there are is said on standard error. Secrets are never
//! written into the file: it names environment variables, and `--env` puts the values that the export has into a file of its own.

mod hookdeck;
mod page;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use page::Page;

use super::{FAILED, USAGE, complain, print, with_causes};

/// How a comment begins about a thing that has no counterpart.
const MISSING: &str = "NOT CARRIED OVER:";
/// How a comment begins about a thing that is there, and behaves otherwise.
const DIFFERS: &str = "DIFFERS:";

/// Bytes of an export; a thousand connections are about 3 MiB.
const EXPORT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a file of secrets that is there; ten thousand of them are less.
const SECRETS_BYTES_MAX: u64 = 4 << 20;

/// The arguments of `fairlane import`.
#[derive(Debug, Args)]
pub(super) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// From Hookdeck: its connections, with sources, destinations and rules, as its API gives them in JSON
    #[command(
        after_help = "Examples: fairlane import hookdeck connections.json > gateway.yaml\n          fairlane import hookdeck connections.json --destination billing --env billing.env > billing.yaml"
    )]
    Hookdeck(Hookdeck),
}

/// The arguments of `fairlane import hookdeck`.
#[derive(Debug, Args)]
struct Hookdeck {
    /// The export: what `GET /connections` answers, or an object with sources, destinations and connections; - is standard input
    file: PathBuf,
    /// Which destination the gateway is to deliver to; left out: the address that most connections go to
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Write the secrets that the export has into this file, as NAME=value lines that its owner alone can read; where it is there already,
    /// what it sets stays, and what it lacks is added
    #[arg(long, value_name = "FILE")]
    env: Option<PathBuf>,
}

/// Writes the file to standard output; the answer is the exit code.
pub(super) fn run(import: &Import) -> u8 {
    let From::Hookdeck(arguments) = &import.from;
    let text = match read(&arguments.file) {
        Ok(text) => text,
        Err(why) => return complain(&why, FAILED),
    };
    let page = match hookdeck::page(&text, arguments.destination.as_deref()) {
        Ok(page) => page,
        Err(why) => return complain(&format!("{}: {why}", arguments.file.display()), USAGE),
    };
    if let Some(path) = &arguments.env {
        match write_secrets(path, &page) {
            Ok(0) => {}
            Ok(there) => {
                let stay = format!("{} was there: what its {there} lines set stays as it is", path.display());
                complain(&stay, 0);
            }
            Err(error) => return complain(&format!("cannot write {}: {error}", path.display()), FAILED),
        }
    }
    let code = print(page.whole().as_bytes());
    // What it came to; the exit code is that of the file.
    complain(&page.summary(), code);
    code
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(EXPORT_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(EXPORT_BYTES_MAX + 1).read_to_string(&mut text))
    };
    match read {
        Err(error) => Err(format!("cannot read {}: {}", path.display(), with_causes(&error))),
        Ok(bytes) if u64::try_from(bytes).is_ok_and(|bytes| bytes > EXPORT_BYTES_MAX) => {
            Err(format!("{} is longer than {} MiB: that is no export", path.display(), EXPORT_BYTES_MAX >> 20))
        }
        Ok(_) => Ok(text),
    }
}

/// Adds the secrets that the file does not have yet; how many lines it had. What is in it stays: it may have been filled in by hand, or be
/// in use.
fn write_secrets(path: &Path, page: &Page) -> std::io::Result<usize> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut there = String::new();
    Read::by_ref(&mut file).take(SECRETS_BYTES_MAX).read_to_string(&mut there)?;
    let end = if there.is_empty() || there.ends_with('\n') { "" } else { "\n" };
    file.write_all(format!("{end}{}", page.secrets(&there)).as_bytes())?;
    Ok(there.lines().count())
}
