//! An event as a curl command, to send it by hand as the gateway sends it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::body::Telling;
use crate::event::Event;

/// Longer bodies make no command that anybody pastes.
const BODY_MAX: usize = 64 << 10;

/// Headers that curl makes itself.
const MADE: [&str; 2] = ["content-length", "host"];

/// The command, to `upstream` unless the person changes that. Headers that may be secrets are left out, and named.
pub(super) fn command(event: &Event, telling: &Telling, upstream: &str) -> String {
    let target = event.forward.as_deref().unwrap_or(&event.target);
    let mut lines = vec![format!("curl -X {} \"$UPSTREAM\"{}", event.method, quoted(target))];
    let mut left_out = Vec::new();
    for (name, value) in event.headers.iter().filter(|(name, _)| !MADE.contains(&name.as_str())) {
        match value.to_str() {
            Ok(value) if !telling.holds(name) => lines.push(format!("  -H {}", quoted(&format!("{name}: {value}")))),
            _ => left_out.push(name.as_str()),
        }
    }
    let text = std::str::from_utf8(&event.body).ok().filter(|text| !text.contains('\0'));
    let mut before = String::new();
    match text {
        _ if event.body.is_empty() => {}
        _ if event.body.len() > BODY_MAX => lines.push("  --data-binary @body".to_owned()),
        // An `@` would name a file.
        Some(text) if !text.starts_with('@') => lines.push(format!("  --data-binary {}", quoted(text))),
        _ => {
            before = format!("echo {} | base64 -d | ", STANDARD.encode(&event.body));
            lines.push("  --data-binary @-".to_owned());
        }
    }
    let mut text = format!("UPSTREAM={}\n{before}{}\n", quoted(upstream), lines.join(" \\\n"));
    if !left_out.is_empty() {
        text.push_str(&format!("# left out, for they may be secrets: {}\n", left_out.join(", ")));
    }
    if event.body.len() > BODY_MAX {
        text.push_str("# the body is long: download it as the file body\n");
    }
    text
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_quoted_text_for_one_word() {
        assert_eq!(quoted("it's $HOME `x`"), "'it'\\''s $HOME `x`'");
    }
}
