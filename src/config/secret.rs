//! Variables and files in scalar values: `${NAME}`, `${NAME:-default}`, `$$`, and `file:/path` for secrets. It works on values
//! that the YAML parser has delivered, so nothing that comes in this way can become a second value or a name.

use std::io;
use std::path::Path;

use zeroize::Zeroizing;

/// What the process gives us: its environment and its files, as functions, so that tests own both.
#[derive(Clone, Copy)]
pub(super) struct Outside<'a> {
    /// The value of an environment variable.
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// The content of a file.
    pub(super) files: &'a dyn Fn(&Path) -> io::Result<String>,
}

/// Why a value could not be completed: what was found, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incomplete {
    /// What was found; names variables and files, never their content.
    pub(super) found: String,
    /// What to do.
    pub(super) hint: String,
}

/// Replaces variables in `text`, once: what a variable holds is not looked at again.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Incomplete> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some(after) = from.strip_prefix("${") {
            let Some((inner, after)) = after.split_once('}') else {
                return Err(incomplete("a ${ without its }", "write ${NAME}; $$ is a literal $"));
            };
            out.push_str(&variable(inner, env)?);
            rest = after;
        } else {
            // `$[0].id` is a JSONPath and no variable.
            out.push('$');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(inner: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Incomplete> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let first_fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !first_fits || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let hint = "write ${NAME} or ${NAME:-default}, the name of letters, digits and _; $$ is a literal $";
        return Err(incomplete("a ${…} that is not a variable's name", hint));
    }
    match (env(name), default) {
        // As in a shell: `:-` also stands in for a variable that is set to nothing.
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(incomplete(
            &format!("the environment variable {name} is not set"),
            &format!("set it, or give a default: ${{{name}:-…}}"),
        )),
    }
}

/// The value of a secret: `text` itself, or for `file:/path` the file's content without one newline at its end.
pub(super) fn secret(text: &str, files: &dyn Fn(&Path) -> io::Result<String>) -> Result<String, Incomplete> {
    let Some(path) = text.strip_prefix("file:") else { return Ok(text.to_owned()) };
    match files(Path::new(path)) {
        Ok(content) => {
            let content = Zeroizing::new(content);
            let line = content.strip_suffix('\n').unwrap_or(&content);
            Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
        }
        Err(error) => Err(incomplete(
            &format!("the file {path:?} cannot be read: {error}"),
            "the user that runs fairlane must be able to read it",
        )),
    }
}

fn incomplete(found: &str, hint: &str) -> Incomplete {
    Incomplete { found: found.to_owned(), hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("one".to_owned()),
            "_B2" => Some("${A} $$ }".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, is) in [
            ("${A}", "one"),
            ("x${A}y${A}z", "xoneyonez"),
            ("${_B2}", "${A} $$ }"),
            ("$${A}", "${A}"),
            ("$$$$", "$$"),
            ("$", "$"),
            ("$[0].id", "$[0].id"),
            ("a$b", "a$b"),
            ("${NONE:-d:-e}", "d:-e"),
            ("${NONE:-}", ""),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("ä${A}ö", "äoneö"),
        ] {
            assert_eq!(expand(text, &env).as_deref(), Ok(is), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(expand("${NONE}", &env).unwrap_err().found.contains("NONE is not set"));
        for text in ["${A", "${}", "${A b}", "${A:?x}", "${1}", "${A-b}"] {
            assert!(expand(text, &env).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_gives_its_one_line() {
        let files = |path: &Path| match path.to_str() {
            Some("/run/s") => Ok("hush\n".to_owned()),
            Some("/run/w") => Ok("hush\r\n".to_owned()),
            Some("/run/n") => Ok("hush\n\n".to_owned()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        assert_eq!(secret("file:/run/s", &files).as_deref(), Ok("hush"));
        assert_eq!(secret("file:/run/w", &files).as_deref(), Ok("hush"));
        assert_eq!(secret("file:/run/n", &files).as_deref(), Ok("hush\n"));
        assert_eq!(secret("hush\n", &files).as_deref(), Ok("hush\n"));
        assert!(secret("file:/none", &files).unwrap_err().found.contains("/none"));
    }
}
