//! One captured request, however it was written down: raw HTTP/1.1 text, a HAR file, a curl command line.
//!
//! What cannot be read exactly is refused with the reason, never guessed: a byte more or less is another signature.

mod curl;
mod har;
pub(super) mod many;
mod raw;
mod words;

use std::fmt;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::event::Wall;

/// How a request was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A request line, headers, an empty line and the body.
    Raw,
    /// HTTP Archive, as browsers and proxies export it.
    Har,
    /// A command line, as documentation and browsers give it.
    Curl,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw HTTP",
            Self::Har => "HAR",
            Self::Curl => "a curl command",
        })
    }
}

/// A captured request.
#[derive(Debug)]
pub(super) struct Captured {
    /// How it was written down.
    pub(super) form: Form,
    /// Its head; the target is path and query, and the host stands in `Host`.
    pub(super) parts: Parts,
    /// Its body.
    pub(super) body: Bytes,
    /// Whether it went over TLS, where the capture says so.
    pub(super) https: Option<bool>,
    /// When it was sent and what says so, where the capture says so.
    pub(super) at: Option<(Wall, &'static str)>,
    /// What to know about how it was read.
    pub(super) notes: Vec<String>,
}

/// Reads a captured request. `entry` is which one of a HAR; `files` reads the files that a curl command names with `@`.
///
/// # Errors
/// Why it cannot be read, in words.
pub(super) fn read(
    text: &[u8],
    entry: Option<usize>,
    files: &dyn Fn(&str) -> std::io::Result<Vec<u8>>,
) -> Result<Captured, String> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let start = text.trim_ascii_start();
    let form = form(start)?;
    if entry.is_some() && form != Form::Har {
        return Err(format!("--entry chooses a request of a HAR; this is {form}"));
    }
    match form {
        Form::Har => har::read(start, entry.unwrap_or(0)),
        Form::Curl => curl::read(std::str::from_utf8(start).map_err(|_| "the command is not UTF-8 text")?, files),
        Form::Raw => raw::read(start),
    }
}

fn form(start: &[u8]) -> Result<Form, String> {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => Err("there is nothing in it".to_owned()),
        [b"curl", ..] | [b"$" | b"%" | b"#" | b">", b"curl", ..] => Ok(Form::Curl),
        _ if start.starts_with(b"{") => Ok(Form::Har),
        [_, _, version] if version.starts_with(b"HTTP/") => Ok(Form::Raw),
        _ => {
            Err("it begins as none of a raw request (POST /path HTTP/1.1), a HAR ({) or a curl command (curl …)"
                .to_owned())
        }
    }
}

/// What a form of capture found.
struct Pieces {
    method: String,
    /// Path and query, or a whole address.
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Pieces {
    /// The head as the listener would see it, and whether the address says `https`.
    fn head(mut self) -> Result<(Parts, Bytes, Option<bool>), String> {
        let method =
            Method::from_bytes(self.method.as_bytes()).map_err(|_| format!("{:?} is no method", self.method))?;
        let whole = self.url.split('#').next().unwrap_or_default();
        let uri: Uri = whole.parse().map_err(|error| format!("{whole:?} is no address: {error}"))?;
        let https = uri.scheme_str().map(|scheme| scheme.eq_ignore_ascii_case("https"));
        if let Some(authority) = uri.authority()
            && !self.headers.contains_key(http::header::HOST)
        {
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            self.headers.insert(http::header::HOST, value("Host", host.as_bytes())?);
        }
        let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let target: Uri = target.parse().map_err(|error| format!("{target:?} is no target: {error}"))?;
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.uri, parts.headers) = (method, target, self.headers);
        Ok((parts, self.body, https))
    }
}

fn name(text: &[u8]) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text).map_err(|_| format!("{:?} cannot be a header's name", String::from_utf8_lossy(text)))
}

/// The value of the header `name`; the message does not repeat it, for it may be a secret.
fn value(name: &str, text: &[u8]) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text).map_err(|_| format!("the value of {name} cannot stand in a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    fn told(text: &[u8]) -> String {
        read(text, None, &none).unwrap_err()
    }

    #[test]
    fn the_three_forms_of_one_request_are_told_apart_and_read_alike() {
        let raw = b"POST /in?x=1 HTTP/1.1\r\nHost: a.example\r\nX-Topic: t\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        let har = br#"{"log":{"entries":[{"startedDateTime":"2026-01-31T08:00:00Z","request":{"method":"POST",
            "url":"https://a.example/in?x=1","headers":[{"name":"X-Topic","value":"t"}],"postData":{"text":"{\"a\":1}"}}}]}}"#;
        let curl = b"$ curl 'https://a.example/in?x=1' -H 'X-Topic: t' --data-raw '{\"a\":1}'\n";
        for (text, form, https) in
            [(&raw[..], Form::Raw, None), (&har[..], Form::Har, Some(true)), (&curl[..], Form::Curl, Some(true))]
        {
            let got = read(text, None, &none).unwrap();
            assert_eq!((got.form, got.https), (form, https));
            assert_eq!((got.parts.method.as_str(), got.parts.uri.to_string().as_str()), ("POST", "/in?x=1"), "{form}");
            assert_eq!(got.parts.headers["host"], "a.example", "{form}");
            assert_eq!(got.parts.headers["x-topic"], "t", "{form}");
            assert_eq!(&got.body[..], b"{\"a\":1}", "{form}");
        }
    }

    #[test]
    fn what_is_none_of_them_is_said() {
        assert!(told(b"").contains("nothing in it"));
        assert!(told(b"hello").contains("none of a raw request"));
        assert!(told(b"\x00\xff").contains("none of a raw request"));
        let raw = b"GET / HTTP/1.1\n\n";
        assert!(read(raw, Some(1), &none).unwrap_err().contains("--entry"));
    }
}
