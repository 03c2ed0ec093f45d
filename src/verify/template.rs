//! The text that a signature covers, as a list of pieces read once from its written form.

use std::borrow::Cow;

use http::HeaderName;

use super::mac::Mac;

/// One piece of a signed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These characters.
    Text(Box<str>),
    /// The body, as received.
    Body,
    /// The timestamp's text, as received.
    Time,
    /// The message id's text, as received.
    Id,
    /// The public address that was posted to.
    Url,
    /// The same, some of its escapes undone as HubSpot does. Not for templates in text.
    UrlDecoded,
    /// The method.
    Method,
    /// The secret itself.
    Secret,
    /// A header's value, without the blanks around it.
    Header(HeaderName),
    /// Path and query of the address, encoded as Contentful does. Not for templates in text.
    Target,
    /// `name:value` of the headers that this header lists, joined by `;`. Not for templates in text.
    Listed(HeaderName),
}

/// A signed text: `{body}`, `v0:{ts}:{body}`, `{id}.{ts}.{body}` …
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

/// What the pieces stand for in one request. `headers` has one value for each
/// [`Piece::Header`], in order; what a template does not use stays empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) body: &'a [u8],
    pub(super) time: &'a [u8],
    pub(super) id: &'a [u8],
    pub(super) url: &'a str,
    pub(super) url_decoded: &'a str,
    pub(super) method: &'a str,
    pub(super) headers: Vec<&'a [u8]>,
    pub(super) target: &'a str,
    pub(super) listed: &'a [u8],
}

const KNOWN: &str = "{body} {ts} {id} {url} {method} {secret} {hdr:Name}";

impl Template {
    /// Reads a template; a literal brace is doubled.
    ///
    /// # Errors
    /// In words: an unknown variable (with the known ones), a lone brace, nothing at all.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = from.strip_prefix("{{") {
                literal.push('{');
                rest = after;
            } else if let Some(after) = from.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else {
                let (name, after) = from
                    .strip_prefix('{')
                    .and_then(|inner| inner.split_once('}'))
                    .ok_or("a brace without its other half; a literal one is written twice: {{ or }}")?;
                push_text(&mut pieces, &mut literal);
                pieces.push(variable(name)?);
                rest = after;
            }
        }
        literal.push_str(rest);
        push_text(&mut pieces, &mut literal);
        if pieces.is_empty() {
            return Err(format!("it is empty; the signed text is written with {KNOWN}"));
        }
        Ok(Self(pieces))
    }

    /// The template of these pieces.
    pub(super) fn of(pieces: Vec<Piece>) -> Self {
        Self(pieces)
    }

    /// The header that lists others, where the text covers such a list.
    pub(super) fn list(&self) -> Option<&HeaderName> {
        self.0.iter().find_map(|piece| match piece {
            Piece::Listed(name) => Some(name),
            _ => None,
        })
    }

    /// Its pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Whether it has this piece.
    #[must_use]
    pub fn uses(&self, piece: &Piece) -> bool {
        self.0.contains(piece)
    }

    /// The headers it reads, in order.
    pub(super) fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Header(name) => Some(name),
            _ => None,
        })
    }

    /// Feeds the signed text to `mac`, piece by piece.
    pub(super) fn feed(&self, parts: &Parts<'_>, secret: &[u8], mac: &mut Mac) {
        self.each(parts, secret, |bytes| mac.update(bytes));
    }

    /// The signed text in one piece, for signatures that are not made of a hash in the making;
    /// copied only where it is more than the body.
    pub(super) fn joined<'a>(&self, parts: &Parts<'a>) -> Cow<'a, [u8]> {
        if self.0 == [Piece::Body] {
            return Cow::Borrowed(parts.body);
        }
        let mut text = Vec::new();
        self.each(parts, b"", |bytes| text.extend_from_slice(bytes));
        Cow::Owned(text)
    }

    fn each(&self, parts: &Parts<'_>, secret: &[u8], mut take: impl FnMut(&[u8])) {
        let mut headers = parts.headers.iter();
        for piece in &self.0 {
            take(match piece {
                Piece::Text(text) => text.as_bytes(),
                Piece::Body => parts.body,
                Piece::Time => parts.time,
                Piece::Id => parts.id,
                Piece::Url => parts.url.as_bytes(),
                Piece::UrlDecoded => parts.url_decoded.as_bytes(),
                Piece::Method => parts.method.as_bytes(),
                Piece::Secret => secret,
                Piece::Target => parts.target.as_bytes(),
                Piece::Listed(_) => parts.listed,
                Piece::Header(_) => headers.next().expect("the parts have one value for each header of the template"),
            });
        }
    }
}

fn push_text(pieces: &mut Vec<Piece>, literal: &mut String) {
    if !literal.is_empty() {
        pieces.push(Piece::Text(std::mem::take(literal).into()));
    }
}

fn variable(name: &str) -> Result<Piece, String> {
    Ok(match name {
        "body" => Piece::Body,
        "ts" => Piece::Time,
        "id" => Piece::Id,
        "url" => Piece::Url,
        "method" => Piece::Method,
        "secret" => Piece::Secret,
        other => match other.strip_prefix("hdr:") {
            Some(header) => Piece::Header(
                HeaderName::from_bytes(header.as_bytes()).map_err(|_| format!("{header:?} is not a header's name"))?,
            ),
            None => return Err(format!("unknown variable {{{other}}}; known: {KNOWN}")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::encoding::Enc;
    use crate::verify::mac::{Hash, Mac};

    #[test]
    fn a_template_is_read_into_pieces() {
        let template = Template::parse("v0:{ts}:{body}{{x}}{hdr:X-Date}").unwrap();
        assert_eq!(
            template.pieces(),
            [
                Piece::Text("v0:".into()),
                Piece::Time,
                Piece::Text(":".into()),
                Piece::Body,
                Piece::Text("{x}".into()),
                Piece::Header(HeaderName::from_static("x-date")),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        for (text, words) in [
            ("{timestamp}.{body}", "unknown variable {timestamp}; known: {body} {ts} {id}"),
            ("{hdr:a b}", "\"a b\" is not a header's name"),
            ("{body", "a brace without its other half"),
            ("body}", "a brace without its other half"),
            ("", "it is empty"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.starts_with(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_pieces_are_hashed_in_their_order() {
        let template = Template::parse("{secret}|{method}|{url}|{hdr:a}|{ts}|{hdr:b}|{id}|{body}").unwrap();
        let parts = Parts {
            body: b"B",
            time: b"T",
            id: b"I",
            url: "U",
            method: "M",
            headers: vec![b"1", b"2"],
            ..Parts::default()
        };
        let mut fed = Mac::plain(Hash::Sha256);
        template.feed(&parts, b"S", &mut fed);
        let mut whole = Mac::plain(Hash::Sha256);
        whole.update(b"S|M|U|1|T|2|I|B");
        assert_eq!(Enc::Hex.encode(fed.finish().as_bytes()), Enc::Hex.encode(whole.finish().as_bytes()));

        let joined = |text: &str| Template::parse(text).unwrap().joined(&parts).into_owned();
        assert_eq!(joined("{ts}|{hdr:a}{body}"), b"T|1B");
        assert!(matches!(Template::parse("{body}").unwrap().joined(&parts), Cow::Borrowed(b"B")), "not copied");
    }
}
