//! A body and headers as a person reads them: JSON indented, a form taken apart, text as it is, the rest as bytes.

use std::fmt::Write as _;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::IgnoredAny;

use crate::admin::words;
use crate::driver::SourceInfo;

/// Bytes of a body that a page shows; the rest is for the download.
const TEXT_MAX: usize = 256 << 10;

/// The same of one that is no text.
const BYTES_MAX: usize = 4 << 10;

/// Deeper is not indented any further: the beginning of each line would be off the screen.
const DEPTH_MAX: usize = 40;

/// A header whose name holds one of these carries what opens a door; a signature is of no use to anybody any more.
const TELLING: [&str; 6] = ["auth", "token", "secret", "cookie", "pass", "api-key"];

/// A body to show.
pub(super) struct Shown {
    /// What it was taken for.
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// Whether there is more.
    pub(super) cut: bool,
    pub(super) size: String,
}

/// Headers that hold no secret whatever a source expects; of a source that is gone no others are shown.
const PLAIN: [&str; 10] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "host",
    "user-agent",
    "fairlane-event-id",
];

/// Which headers of an event hold what opens a door.
pub(super) struct Telling {
    /// Where some source expects its secret. That of any counts: events outlive a change of their source.
    expected: Vec<HeaderName>,
    /// The event's source is not in the file any more, so nobody knows where it expected its secret.
    is_gone: bool,
}

impl Telling {
    /// Of events of `source`, where these are the sources.
    pub(super) fn of(source: &str, sources: &[SourceInfo]) -> Self {
        let expected = sources.iter().flat_map(|source| source.secret_headers.iter().cloned()).collect();
        Self { expected, is_gone: sources.iter().all(|there| *there.name != *source) }
    }

    /// Whether this header's value may be a secret.
    pub(super) fn holds(&self, name: &HeaderName) -> bool {
        let by_name = TELLING.iter().any(|word| name.as_str().contains(word));
        by_name || self.expected.contains(name) || (self.is_gone && !PLAIN.contains(&name.as_str()))
    }

    /// A header's value as pages show it: one that may be a secret is masked.
    pub(super) fn shown(&self, name: &HeaderName, value: &HeaderValue) -> String {
        if self.holds(name) {
            return format!("*** ({} bytes)", value.len());
        }
        words::safe(&String::from_utf8_lossy(value.as_bytes()))
    }
}

/// The body of a request with these headers.
pub(super) fn shown(headers: &HeaderMap, body: &[u8]) -> Shown {
    let size = words::bytes(body.len() as u64);
    let is_json = body.len() <= TEXT_MAX && serde_json::from_slice::<IgnoredAny>(body).is_ok();
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match std::str::from_utf8(body) {
        Ok("") => Shown { kind: "empty", text: String::new(), cut: false, size },
        Ok(text) if is_json => Shown { kind: "JSON", text: words::safe_lines(&indented(text)), cut: false, size },
        Ok(text) if kind.contains("x-www-form-urlencoded") => {
            let (text, cut) = cut_text(text);
            Shown { kind: "form", text: form(text), cut, size }
        }
        Ok(text) if !text.contains('\0') => {
            let (text, cut) = cut_text(text);
            Shown { kind: "text", text: words::safe_lines(text), cut, size }
        }
        _ => {
            let beginning = body.get(..BYTES_MAX).unwrap_or(body);
            Shown { kind: "bytes", text: hex(beginning), cut: beginning.len() < body.len(), size }
        }
    }
}

fn cut_text(text: &str) -> (&str, bool) {
    let end = text.floor_char_boundary(TEXT_MAX);
    (text.get(..end).unwrap_or(text), end < text.len())
}

/// A form's fields, one a line, those that hold JSON indented.
fn form(text: &str) -> String {
    let mut out = String::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let name = words::safe(&name);
        let is_json = value.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(&value).is_ok();
        let value = if is_json { words::safe_lines(&indented(&value)) } else { words::safe(&value) };
        out.push_str(&format!("{name} = {value}\n"));
    }
    out
}

/// JSON with a line for each member. The text stays what it is, digit by digit: no number is read and written again.
fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = rest.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth.min(DEPTH_MAX)));
}

/// Sixteen bytes a line: where, as numbers, as letters.
fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let numbers: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let letters: String =
            chunk.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        // Writing into a String cannot fail.
        let _unfailing = writeln!(out, "{:08x}  {:<47}  {letters}", line * 16, numbers.join(" "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, body: &[u8]) -> (&'static str, String) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        let shown = shown(&headers, body);
        (shown.kind, shown.text)
    }

    #[test]
    fn json_is_indented_and_otherwise_the_same() {
        let body = br#"{"id":12345678901234567890, "a":[1.0,{}, [ ]],"t":"x\"{,:\\","n":null}"#;
        let expected = "{\n  \"id\": 12345678901234567890,\n  \"a\": [\n    1.0,\n    {},\n    []\n  ],\n  \"t\": \"x\\\"{,:\\\\\",\n  \"n\": null\n}";
        assert_eq!(of("text/plain", body), ("JSON", expected.to_owned()));
        assert_eq!(of("application/json", b"{\"a\":"), ("text", "{\"a\":".to_owned()));
    }

    #[test]
    fn forms_are_taken_apart_and_bytes_are_numbers() {
        let form = of("application/x-www-form-urlencoded", b"payload=%7B%22a%22%3A1%7D&x=a+b");
        assert_eq!(form, ("form", "payload = {\n  \"a\": 1\n}\nx = a b\n".to_owned()));
        let (kind, text) = of("application/octet-stream", b"\x00\xffhello world, hello");
        assert_eq!(kind, "bytes");
        let line = "00000000  00 ff 68 65 6c 6c 6f 20 77 6f 72 6c 64 2c 20 68  ..hello.world,.h\n";
        assert!(text.starts_with(line), "{text}");
        assert_eq!(of("text/plain", b"").0, "empty");
    }

    #[test]
    fn what_turns_text_round_does_not() {
        assert_eq!(of("text/plain", "a\u{202e}b".as_bytes()).1, "a\\u{202e}b");
        assert_eq!(of("application/json", "\"a\u{202e}b\"".as_bytes()).1, "\"a\\u{202e}b\"");
    }

    fn source(name: &str, secret_headers: &[&'static str]) -> SourceInfo {
        SourceInfo {
            name: name.into(),
            path: name.to_owned(),
            methods: Vec::new(),
            verify: String::new(),
            key: None,
            key_signed: false,
            secrets: Vec::new(),
            secret_headers: secret_headers.iter().copied().map(HeaderName::from_static).collect(),
        }
    }

    #[test]
    fn a_header_that_opens_a_door_is_masked() {
        let sources = [source("shop", &[]), source("erp", &["x-api"])];
        let shown = |of: &str, name: &'static str| {
            Telling::of(of, &sources).shown(&HeaderName::from_static(name), &HeaderValue::from_static("x"))
        };
        assert_eq!(shown("shop", "authorization"), "*** (1 bytes)");
        assert_eq!(shown("shop", "x-gitlab-token"), "*** (1 bytes)");
        assert_eq!(shown("shop", "x-shopify-hmac-sha256"), "x");
        assert_eq!(shown("erp", "x-api"), "*** (1 bytes)", "the source expects its secret there");
        assert_eq!(shown("shop", "x-api"), "*** (1 bytes)", "the event came before its source was changed");
        assert_eq!(shown("erp", "x-group"), "x");
        assert_eq!(shown("gone", "x-group"), "*** (1 bytes)", "nobody knows where it expected its secret");
        assert_eq!(shown("gone", "content-type"), "x");
    }
}
