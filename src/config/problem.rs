//! What is wrong with a configuration, in words for the person who has to put it right.

use std::fmt;

/// A place in the file, both counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The character in it.
    pub column: u64,
}

impl Place {
    /// The beginning of the file.
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

/// One thing that is wrong. It never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named to us.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// The field, e.g. `sources[0].verify.secret`; empty for the file as a whole.
    pub path: String,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem that is complete with what was found.
    pub(super) fn new(file: &str, place: Place, path: &str, found: &str) -> Self {
        Self {
            file: file.to_owned(),
            place,
            path: path.to_owned(),
            found: found.to_owned(),
            expected: None,
            hint: None,
        }
    }

    /// The same with what was expected.
    pub(super) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    /// The same with what to do.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The file itself cannot be read; `hint` says what to do.
    #[must_use]
    pub fn unreadable(file: &str, error: &std::io::Error, hint: &str) -> Self {
        Self::new(file, Place::START, "", &format!("the configuration cannot be read: {error}")).hint(hint)
    }

    /// What the file says does not fit what is there already; `found` says what to do, too.
    #[must_use]
    pub fn unfit(file: &str, path: &str, found: &str) -> Self {
        Self::new(file, Place::START, path, found)
    }

    /// The problem for a person: one line, and a second one with what was expected and what to do.
    #[must_use]
    pub fn text(&self) -> String {
        self.to_string()
    }

    /// The problem for a program.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "file": self.file,
            "line": self.place.line,
            "column": self.place.column,
            "path": self.path,
            "problem": self.found,
            "expected": self.expected,
            "hint": self.hint,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.place.line, self.place.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.found)?;
        match (&self.expected, &self.hint) {
            (None, None) => Ok(()),
            (Some(expected), None) => write!(f, "\n  expected {expected}"),
            (None, Some(hint)) => write!(f, "\n  {hint}"),
            (Some(expected), Some(hint)) => write!(f, "\n  expected {expected}; {hint}"),
        }
    }
}
