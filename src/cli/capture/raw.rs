//! A request as it stood on the wire: a request line, headers, an empty line and the body.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, DATE, TRANSFER_ENCODING};

use super::{Captured, Form, Pieces, name, value};
use crate::verify::scheme::Unit;

/// Reads it. Lines may end in LF alone, as editors leave them; the body's bytes are taken as they are.
pub(super) fn read(text: &[u8]) -> Result<Captured, String> {
    let mut notes = Vec::new();
    let (line, mut rest) = next_line(text).ok_or("there is no request line")?;
    let line = std::str::from_utf8(line).map_err(|_| "the request line is not ASCII text")?;
    let [method, url, version] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("the request line is not `METHOD /path HTTP/1.1`: {line:?}"));
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(format!("{version} is not written as text; give it as HTTP/1.1"));
    }
    let mut headers = HeaderMap::new();
    for number in 2.. {
        let Some((line, after)) = next_line(rest) else {
            notes.push("the empty line after the headers is missing; the body is taken for empty".to_owned());
            rest = b"";
            break;
        };
        rest = after;
        if line.is_empty() {
            break;
        }
        let at =
            line.iter().position(|byte| *byte == b':').ok_or_else(|| format!("line {number} is no `Name: value`"))?;
        let (key, text) = line.split_at_checked(at).unwrap_or_default();
        let key = name(key).map_err(|error| format!("line {number}: {error}"))?;
        let text = text.get(1..).unwrap_or_default().trim_ascii();
        let text = value(key.as_str(), text).map_err(|error| format!("line {number}: {error}"))?;
        headers.append(key, text);
    }
    let body = body(&headers, rest, &mut notes)?;
    let at = headers.get(DATE).and_then(|date| Unit::HttpDate.read(date.as_bytes()));
    let at = at.map(|ms| (crate::event::Wall::from_unix_s(ms / 1_000), "its Date header"));
    let pieces = Pieces { method: method.to_owned(), url: url.to_owned(), headers, body };
    let (parts, body, https) = pieces.head()?;
    Ok(Captured { form: Form::Raw, parts, body, https, at, notes })
}

/// A line without its end, and what follows; `None` at the end of the text.
fn next_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'\n', text);
    let (line, rest) = match at {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?),
        None if text.is_empty() => return None,
        None => (text, &b""[..]),
    };
    Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
}

/// The body, its framing undone; a line end that an editor put after it goes where the length says so.
fn body(headers: &HeaderMap, rest: &[u8], notes: &mut Vec<String>) -> Result<Bytes, String> {
    if headers.get(TRANSFER_ENCODING).is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return match chunks(rest) {
            Some(body) => Ok(body.into()),
            None => {
                notes.push(
                    "it says `Transfer-Encoding: chunked`, and its body is not in chunks: taken as it stands"
                        .to_owned(),
                );
                Ok(Bytes::copy_from_slice(rest))
            }
        };
    }
    let Some(length) = headers.get(CONTENT_LENGTH) else {
        if !rest.is_empty() {
            notes.push(format!("without a Content-Length the body is all {} bytes after the empty line", rest.len()));
        }
        return Ok(Bytes::copy_from_slice(rest));
    };
    let length: usize =
        length.to_str().ok().and_then(|text| text.parse().ok()).ok_or("the Content-Length is no number")?;
    match (rest.get(..length), rest.get(length..)) {
        (Some(body), Some(after)) => {
            if !after.is_empty() {
                notes
                    .push(format!("{} bytes after the {length} of the Content-Length are not the body's", after.len()));
            }
            Ok(Bytes::copy_from_slice(body))
        }
        _ => Err(format!(
            "the Content-Length says {length} bytes and the body has {}: the capture is not whole",
            rest.len()
        )),
    }
}

/// A body in chunks (RFC 9112 §7.1); `None` where it is not one, whole.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let (line, after) = next_line(rest)?;
        let size = line.split(|byte| *byte == b';').next()?.trim_ascii();
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(after.get(..size)?);
        let (end, after) = next_line(after.get(size..)?)?;
        rest = Some(after).filter(|_| end.is_empty())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_s_line_end_is_not_the_body_s_and_a_cut_body_is_refused() {
        let got = read(b"POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\n{}\n").unwrap();
        assert_eq!(&got.body[..], b"{}");
        assert!(got.notes[0].contains("not the body's"));
        let short = read(b"POST / HTTP/1.1\nHost: a\nContent-Length: 3\n\n{}").unwrap_err();
        assert!(short.contains("not whole"), "{short}");
        let open = read(b"POST / HTTP/1.1\nHost: a\n\n{}\n").unwrap();
        assert_eq!((&open.body[..], open.notes.len()), (&b"{}\n"[..], 1));
    }

    #[test]
    fn chunks_are_put_together_and_what_is_none_stays() {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let with = |body: &[u8]| read(&[head, body].concat()).unwrap();
        assert_eq!(&with(b"3;x=y\r\nabc\r\n1\r\nd\r\n0\r\n\r\n").body[..], b"abcd");
        assert_eq!((&with(b"{}").body[..], with(b"{}").notes.len()), (&b"{}"[..], 1));
    }

    #[test]
    fn the_date_is_its_own_time_and_bad_lines_are_named() {
        let got = read(b"GET http://a.example/x HTTP/1.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n").unwrap();
        assert_eq!(got.at.unwrap().0.unix_s(), 784_111_777);
        assert_eq!((got.parts.headers["host"].to_str().unwrap(), got.parts.uri.path()), ("a.example", "/x"));
        for (text, why) in [
            ("POST / HTTP/2\n\n", "give it as HTTP/1.1"),
            ("POST / HTTP/1.1\nnothing\n\n", "line 2 is no"),
            ("POST / HTTP/1.1\na b: c\n\n", "line 2: \"a b\""),
            ("POST /a b HTTP/1.1\n\n", "request line"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
