//! Many captured requests in one file, read one after another: JSON lines with the fields of `fairlane verify`'s input, or a HAR.
//! Nothing of a request is kept, so the file may be of any size.

use std::io::{self, BufRead, Read as _};

use base64::Engine as _;
use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use serde::Deserialize;

use super::{Pieces, har, name, value};
use crate::cli::lines::Lines;
use crate::cli::verify::header_lines;
use crate::event::Wall;

/// So much of a file is looked at to see what it is.
const BEGINNING_BYTES: u64 = 256;

/// One request of many.
#[derive(Debug)]
pub(in crate::cli) struct Request {
    /// Its head; the target is path and query.
    pub(in crate::cli) parts: Parts,
    /// Its body.
    pub(in crate::cli) body: Bytes,
    /// When it was sent, where the capture says so.
    pub(in crate::cli) at: Option<Wall>,
}

/// A request as it is given to a visitor: where it stands in the file, and what could be read of it.
pub(in crate::cli) type Entry = Result<Request, String>;

/// Gives every request of the file to `see`, those that cannot be read as the reason why, with the line or entry.
///
/// # Errors
/// Reading failed, or the file is neither of the two.
pub(in crate::cli) fn each(mut reader: impl BufRead, see: &mut dyn FnMut(Entry)) -> Result<(), String> {
    let mut beginning = Vec::new();
    reader.by_ref().take(BEGINNING_BYTES).read_to_end(&mut beginning).map_err(|error| error.to_string())?;
    if beginning.starts_with(b"\xef\xbb\xbf") {
        beginning.drain(..3);
    }
    let is_har = is_har(&beginning);
    let whole = io::BufReader::new(io::Cursor::new(beginning).chain(reader));
    if is_har { har::each(whole, see) } else { lines(whole, see) }
}

/// A HAR is an object whose one member is `log`; a line has none of that name.
fn is_har(beginning: &[u8]) -> bool {
    beginning
        .trim_ascii_start()
        .strip_prefix(b"{")
        .is_some_and(|inside| inside.trim_ascii_start().starts_with(b"\"log\""))
}

/// One line. Fields that are not here are ignored.
#[derive(Deserialize)]
struct Line {
    method: Option<String>,
    url: Option<String>,
    #[serde(deserialize_with = "header_lines")]
    headers: Vec<(String, String)>,
    body_b64: Option<String>,
    /// When it came; `now` is what `fairlane verify` judges by.
    at: Option<Moment>,
    now: Option<Moment>,
}

/// A moment as JSON writes it: seconds since 1970, or RFC 3339.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(in crate::cli) enum Moment {
    Seconds(f64),
    Text(String),
}

impl Moment {
    /// In microseconds since 1970, or since whatever the file counts from.
    ///
    /// # Errors
    /// It is neither.
    pub(in crate::cli) fn micros(&self) -> Result<u64, String> {
        /// The year 2286 in seconds: what is larger was written in another unit.
        const SECONDS_MAX: f64 = 1e10;
        match self {
            Self::Seconds(seconds) if (0.0..SECONDS_MAX).contains(seconds) => Ok((seconds * 1e6).round() as u64),
            Self::Seconds(seconds) => Err(format!("{seconds} is no time in seconds")),
            Self::Text(text) => {
                let parsed: Result<jiff::Timestamp, _> = text.parse();
                let micros = parsed.ok().and_then(|time| u64::try_from(time.as_microsecond()).ok());
                micros.ok_or_else(|| format!("{text:?} is no time: expected seconds or 2026-01-31T08:00:00Z"))
            }
        }
    }
}

fn lines(reader: impl BufRead, see: &mut dyn FnMut(Entry)) -> Result<(), String> {
    let mut lines = Lines::of(reader);
    while let Some((number, text)) = lines.next().map_err(|error| error.to_string())? {
        see(line(text).map_err(|why| format!("line {number}: {why}")));
    }
    Ok(())
}

fn line(text: &[u8]) -> Entry {
    let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let body = base64::engine::general_purpose::STANDARD
        .decode(line.body_b64.unwrap_or_default())
        .map_err(|error| format!("body_b64 is not base64: {error}"))?;
    let mut headers = HeaderMap::new();
    for (key, text) in &line.headers {
        let key = name(key.as_bytes())?;
        let text = value(key.as_str(), text.as_bytes())?;
        headers.append(key, text);
    }
    let at = line.at.or(line.now).map(|at| at.micros()).transpose()?.map(Wall);
    let method = line.method.unwrap_or_else(|| "POST".to_owned());
    let url = line.url.unwrap_or_else(|| "/".to_owned());
    let (parts, body, _) = Pieces { method, url, headers, body: body.into() }.head()?;
    Ok(Request { parts, body, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Entry> {
        let mut seen = Vec::new();
        each(text, &mut |entry| seen.push(entry)).unwrap();
        seen
    }

    #[test]
    fn lines_are_read_and_a_bad_one_spoils_only_itself() {
        let text = b"{\"id\":\"x\",\"url\":\"https://a.example/in/7?x=1\",\"headers\":[[\"X-A\",\"1\"]],\"body_b64\":\"e30=\",\"now\":7}\n\nno\n\
            {\"at\":\"1970-01-01T00:00:01.5Z\",\"headers\":[],\"method\":\"PUT\"}\n{\"headers\":[],\"at\":-1}\n\
            {\"headers\":{\"X-A\":\"2\"}}\n";
        let seen = all(text);
        let first = seen[0].as_ref().unwrap();
        assert_eq!((first.parts.uri.to_string().as_str(), first.at), ("/in/7?x=1", Some(Wall(7_000_000))));
        assert_eq!((&first.body[..], first.parts.headers["x-a"].as_bytes()), (&b"{}"[..], &b"1"[..]));
        assert!(seen[1].as_ref().unwrap_err().starts_with("line 3: "), "{:?}", seen[1]);
        let third = seen[2].as_ref().unwrap();
        assert_eq!((third.parts.method.as_str(), third.at), ("PUT", Some(Wall(1_500_000))));
        assert!(seen[3].as_ref().unwrap_err().contains("no time"));
        assert_eq!(seen[4].as_ref().unwrap().parts.headers["x-a"], "2");
    }

    #[test]
    fn a_har_is_known_by_its_beginning_and_read_entry_by_entry() {
        let text = b"\xef\xbb\xbf {\n \"log\": {\"version\":\"1.2\",\"pages\":[{}],\"entries\":[\
            {\"startedDateTime\":\"1970-01-01T00:00:02Z\",\"request\":{\"method\":\"POST\",\"url\":\"http://a/x\",\"postData\":{\"text\":\"b\"}},\"response\":{\"big\":[1]}},\
            {\"request\":{\"method\":\"P OST\",\"url\":\"http://a/x\"}}],\"comment\":\"\"}}";
        let seen = all(text);
        let first = seen[0].as_ref().unwrap();
        assert_eq!((&first.body[..], first.at), (&b"b"[..], Some(Wall(2_000_000))));
        assert!(seen[1].as_ref().unwrap_err().starts_with("entry 1: "), "{:?}", seen[1]);
        assert_eq!(seen.len(), 2);
    }

    #[test]
    fn a_har_that_breaks_off_is_an_error() {
        let error = each(&b"{\"log\":{\"entries\":["[..], &mut |_| {}).unwrap_err();
        assert!(error.contains("no HAR"), "{error}");
    }
}
