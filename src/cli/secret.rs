//! Secrets as the command line takes them: named, never written out.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::event::Secret;

/// A secret longer than this is some other file.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Where a secret argument says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `env:NAME`
    Env(String),
    /// `file:PATH`
    File(PathBuf),
    /// `-`: standard input.
    Stdin,
}

/// Why a secret argument cannot be used. No message repeats what was given as a plain secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The argument is none of the three forms.
    #[error(
        "a secret on the command line can be seen in process lists and stays in the shell's history; \
         give env:NAME, file:PATH or - (standard input)"
    )]
    Plain,
    /// Nothing follows `env:` or `file:`.
    #[error("{0} needs a name after it")]
    NoName(&'static str),
    /// The variable is not set.
    #[error("environment variable {0} is not set, or is not text")]
    NotSet(String),
    /// It cannot be read.
    #[error("cannot read the secret from {place}: {error}")]
    Read {
        /// Where it should be.
        place: Place,
        /// What the system says.
        error: io::Error,
    },
    /// There is nothing in it.
    #[error("the secret in {0} is empty")]
    Empty(Place),
    /// It is too long to be a secret.
    #[error("{0} holds more than 64 KiB: that is no secret")]
    TooLong(Place),
}

impl Place {
    /// Reads an argument: `env:NAME`, `file:PATH` or `-`.
    ///
    /// # Errors
    /// [`SecretError::Plain`] for anything else, with the reason.
    pub fn parse(argument: &str) -> Result<Self, SecretError> {
        if argument == "-" {
            Ok(Self::Stdin)
        } else if let Some(name) = argument.strip_prefix("env:") {
            if name.is_empty() { Err(SecretError::NoName("env:")) } else { Ok(Self::Env(name.to_owned())) }
        } else if let Some(path) = argument.strip_prefix("file:") {
            if path.is_empty() { Err(SecretError::NoName("file:")) } else { Ok(Self::File(path.into())) }
        } else {
            Err(SecretError::Plain)
        }
    }

    /// Fetches the secret; one line end after it is not part of it. `env` looks up a variable.
    ///
    /// # Errors
    /// It is not there, cannot be read, is empty or too long.
    pub fn read(&self, env: impl Fn(&str) -> Option<String>, stdin: impl Read) -> Result<Secret, SecretError> {
        let failed = |error| SecretError::Read { place: self.clone(), error };
        let text = match self {
            Self::Env(name) => Zeroizing::new(env(name).ok_or_else(|| SecretError::NotSet(name.clone()))?.into_bytes()),
            Self::File(path) => drain(std::fs::File::open(path).map_err(failed)?).map_err(failed)?,
            Self::Stdin => drain(stdin).map_err(failed)?,
        };
        if u64::try_from(text.len()).is_ok_and(|len| len > SECRET_BYTES_MAX) {
            return Err(SecretError::TooLong(self.clone()));
        }
        let text = text.strip_suffix(b"\n").map_or(&text[..], |line| line.strip_suffix(b"\r").unwrap_or(line));
        if text.is_empty() { Err(SecretError::Empty(self.clone())) } else { Ok(Secret::new(text)) }
    }
}

fn drain(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::new());
    from.take(SECRET_BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_secret_is_refused_and_not_repeated() {
        let error = Place::parse("hunter2").unwrap_err().to_string();
        assert!(error.contains("process lists") && !error.contains("hunter2"), "{error}");
        assert!(matches!(Place::parse("env:"), Err(SecretError::NoName("env:"))));
        assert!(matches!(Place::parse("file:"), Err(SecretError::NoName("file:"))));
    }

    #[test]
    fn each_place_gives_its_secret_without_the_line_end() {
        let env = |name: &str| (name == "S").then(|| "from env\n".to_owned());
        let read = |place: &str| Place::parse(place).unwrap().read(env, &b"from stdin\r\n"[..]);
        assert_eq!(read("env:S").unwrap().expose(), b"from env");
        assert_eq!(read("-").unwrap().expose(), b"from stdin");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, b"from file\n\n").unwrap();
        assert_eq!(read(&format!("file:{}", file.path().display())).unwrap().expose(), b"from file\n");
        assert!(matches!(read("env:T"), Err(SecretError::NotSet(_))));
        assert!(matches!(read("file:/nonexistent"), Err(SecretError::Read { .. })));
    }

    #[test]
    fn empty_and_endless_ones_are_refused() {
        let stdin = |bytes: &[u8]| Place::Stdin.read(|_| None, bytes);
        assert!(matches!(stdin(b"\n"), Err(SecretError::Empty(_))));
        assert!(matches!(stdin(&[b'x'; 70_000]), Err(SecretError::TooLong(_))));
    }
}
