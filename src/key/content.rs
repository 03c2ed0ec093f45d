//! What a body is, for finding a key in it: undoes `Content-Encoding`, tells forms from JSON.
//!
//! What is decoded here is thrown away with the key: verified, stored and delivered are the bytes that came.

use std::borrow::Cow;
use std::io::Read;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::Input;
use crate::event::Missing;

/// Most bytes that an encoded body may become.
pub(super) const INFLATED_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Most times that a body may grow. Text reaches 20; only a bomb comes near 1000.
pub(super) const INFLATED_RATIO_MAX: usize = 100;

/// Most codings on top of one another. Two happens, when a proxy compresses what the sender had compressed.
pub(super) const CODINGS_MAX: usize = 2;

/// A body, ready for looking things up.
#[derive(Debug)]
pub(super) enum Content<'a> {
    /// `application/x-www-form-urlencoded`.
    Form(Cow<'a, [u8]>),
    /// Anything else: perhaps JSON, perhaps not.
    Text(Cow<'a, str>),
}

/// Decodes the body of `input`.
///
/// # Errors
///
/// [`Missing::TooBig`] and [`Missing::BadEncoding`] for what an encoding hides; [`Missing::NotJson`] for multipart and for
/// what is not UTF-8 (RFC 8259 §8.1), for no document can be in there.
pub(super) fn content<'a>(input: &Input<'a>) -> Result<Content<'a>, Missing> {
    let kind = kind(input);
    if kind == Kind::Multipart {
        return Err(Missing::NotJson);
    }
    let bytes = plain(input)?;
    if kind == Kind::Form {
        return Ok(Content::Form(bytes));
    }
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).ok(),
    }
    .map(Content::Text)
    .ok_or(Missing::NotJson)
}

/// Whether what calls itself a form is a document: forms write `{` and `[` as `%7B` and `%5B`. That a field is not in it means nothing, then
/// (of Stripe it would mean that the event is the platform's own), and no signature covers the `Content-Type` that says so.
pub(super) fn is_no_form(pairs: &[u8]) -> bool {
    matches!(pairs.trim_ascii_start().first(), Some(b'{' | b'['))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Form,
    Multipart,
    Other,
}

fn kind(input: &Input<'_>) -> Kind {
    let Some(value) = input.headers.get(CONTENT_TYPE) else { return Kind::Other };
    let essence = value.as_bytes().split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        Kind::Form
    } else if essence.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
        Kind::Multipart
    } else {
        Kind::Other
    }
}

/// The body without its codings (RFC 9110 §8.4); the last one applied is the first one undone.
fn plain<'a>(input: &Input<'a>) -> Result<Cow<'a, [u8]>, Missing> {
    let mut codings = Vec::new();
    for value in input.headers.get_all(CONTENT_ENCODING) {
        for name in value.as_bytes().split(|b| *b == b',') {
            let coding = Coding::named(name.trim_ascii()).ok_or(Missing::BadEncoding)?;
            codings.extend(coding);
        }
    }
    if codings.len() > CODINGS_MAX {
        return Err(Missing::BadEncoding);
    }
    // The ratio is to what came over the wire, so that two codings gain nothing.
    let limit = input.body.len().saturating_mul(INFLATED_RATIO_MAX).min(INFLATED_BYTES_MAX);
    let mut bytes = Cow::Borrowed(input.body);
    for coding in codings.into_iter().rev() {
        bytes = Cow::Owned(coding.undo(&bytes, limit)?);
    }
    Ok(bytes)
}

#[derive(Clone, Copy)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

impl Coding {
    /// `Some(None)` for the names that change nothing, `None` for those not known here.
    #[expect(clippy::option_option, reason = "unknown, identity and a coding are three different things")]
    fn named(name: &[u8]) -> Option<Option<Self>> {
        match name.to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Some(None),
            b"gzip" | b"x-gzip" => Some(Some(Self::Gzip)),
            b"deflate" => Some(Some(Self::Deflate)),
            b"br" => Some(Some(Self::Brotli)),
            _ => None,
        }
    }

    fn undo(self, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Missing> {
        match self {
            Self::Gzip => read(flate2::read::MultiGzDecoder::new(bytes), limit),
            // RFC 9110 means zlib by "deflate"; some senders never wrapped it.
            Self::Deflate if is_zlib(bytes) => read(flate2::read::ZlibDecoder::new(bytes), limit),
            Self::Deflate => read(flate2::read::DeflateDecoder::new(bytes), limit),
            Self::Brotli if has_unused_window(bytes) => Err(Missing::BadEncoding),
            Self::Brotli => read(brotli_decompressor::Decompressor::new(bytes, BUFFER_BYTES), limit),
        }
    }
}

/// What the brotli reader takes in at a time.
const BUFFER_BYTES: usize = 4096;

/// RFC 7932 §9.1 leaves this pattern unused. The decoder takes it for "Large Window Brotli", which `br` does not mean: up to a gigabyte
/// that a body of a few bytes has it take, before anything comes out of it that could be counted.
fn has_unused_window(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0x7F == 0b001_0001)
}

/// RFC 1950 §2.2: method 8, and a check that makes both bytes a multiple of 31.
fn is_zlib(bytes: &[u8]) -> bool {
    bytes.first_chunk::<2>().is_some_and(|head| head[0] & 0x0F == 8 && u16::from_be_bytes(*head).is_multiple_of(31))
}

fn read(source: impl Read, limit: usize) -> Result<Vec<u8>, Missing> {
    let mut out = Vec::new();
    // One byte past the limit tells "just fits" from "goes on".
    let more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    source.take(more).read_to_end(&mut out).map_err(|_| Missing::BadEncoding)?;
    if out.len() > limit { Err(Missing::TooBig) } else { Ok(out) }
}

/// Which of several fields of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// In a query.
    First,
    /// In a form, as of a JSON document's duplicate members.
    Last,
}

/// The value of a field of `application/x-www-form-urlencoded` text (WHATWG URL §5.1), decoded.
///
/// # Errors
///
/// [`Missing::Absent`] without such a field, [`Missing::BadEncoding`] when its bytes are not UTF-8.
pub(super) fn field(pairs: &[u8], name: &str, pick: Pick) -> Result<String, Missing> {
    let mut values = pairs.split(|b| *b == b'&').filter_map(|pair| {
        let mut halves = pair.splitn(2, |b| *b == b'=');
        let named = decoded(halves.next().unwrap_or_default()) == name.as_bytes();
        named.then(|| halves.next().unwrap_or_default())
    });
    let value = match pick {
        Pick::First => values.next(),
        Pick::Last => values.next_back(),
    };
    String::from_utf8(decoded(value.ok_or(Missing::Absent)?).into_owned()).map_err(|_| Missing::BadEncoding)
}

fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'+', b'%', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    let spaced: Vec<u8> = bytes.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    Cow::Owned(percent_encoding::percent_decode(&spaced).collect())
}

/// A segment of a path, percent-decoded once.
///
/// # Errors
///
/// [`Missing::BadEncoding`] when its bytes are not UTF-8.
pub(super) fn segment(text: &str) -> Result<Cow<'_, str>, Missing> {
    percent_encoding::percent_decode_str(text).decode_utf8().map_err(|_| Missing::BadEncoding)
}
