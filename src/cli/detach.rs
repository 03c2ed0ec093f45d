//! `fairlane run --detach`: the gateway in a process of its own, and an answer when it serves.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::{FAILED, complain};

/// What is left out of the arguments.
const FLAG: &str = "--detach";

/// Begins this very command without the flag; the exit code is 0 when it serves, else that process's.
pub(super) fn begin() -> u8 {
    match begun() {
        Ok(code) => code,
        Err(error) => complain(&format!("the gateway cannot be begun in the background: {error}"), FAILED),
    }
}

fn begun() -> std::io::Result<u8> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).filter(|argument| argument != FLAG).collect();
    // A signal for the terminal's foreground is not meant for it. Its log goes where ours would.
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.is_empty() {
        let status = child.wait()?;
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED));
    }
    writeln!(std::io::stdout(), "{} (process {})", line.trim_end(), child.id())?;
    Ok(0)
}
