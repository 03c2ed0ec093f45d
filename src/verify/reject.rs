//! Why a request is refused: a code for metrics and the API, and words for the person who looks.
//!
//! No message holds a secret or a signature that would have been right. What came from outside is
//! shortened, and its control and bidirectional characters are escaped.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use http::HeaderName;

use super::time::show_ms;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A header that the scheme needs is not there, or is empty.
    MissingHeader {
        /// Which.
        header: HeaderName,
        /// What it would have carried.
        carries: &'static str,
    },
    /// A header is there and cannot be read.
    MalformedHeader {
        /// Which.
        header: HeaderName,
        /// What is wrong, in words; foreign text in it is escaped already.
        problem: String,
    },
    /// Everything is in its place and the signature is not right.
    BadSignature {
        /// Where the signature stands: a header's name, or a place in the body.
        place: String,
        /// How many secrets were tried.
        secrets: usize,
        /// The address that was taken for the signed one, escaped.
        url: Option<String>,
    },
    /// The token, or user and password, are not right.
    BadToken {
        /// Where it stands.
        header: HeaderName,
    },
    /// Signed right, too long ago.
    Stale(Skew),
    /// Signed right, at a time that is still to come.
    Future(Skew),
    /// The signature is right, and what the signed token says is not true of the request.
    BadClaim {
        /// Where the token stands.
        header: HeaderName,
        /// What is wrong, in words; foreign text in it is escaped already.
        problem: String,
    },
    /// The signature is right, and covers the body by a hash that is another body's.
    BodyHash {
        /// Where the hash stands.
        place: String,
    },
    /// The body does not hold what the scheme needs.
    MalformedBody {
        /// What is wrong, in words.
        problem: String,
    },
    /// The signature covers the public address, and it is not known.
    UnknownUrl,
    /// The key that the request names is not at hand; whoever fetches it asks again. Nothing is wrong so far.
    KeyNeeded {
        /// Where it is: an address of the provider's own.
        url: Box<str>,
    },
    /// The key that the request names is not one of the provider's, or not of this time.
    UntrustedKey {
        /// What is wrong, in words; foreign text in it is escaped already.
        problem: String,
    },
    /// It is from a topic that is not ours, whoever signed it.
    UnknownTopic {
        /// Which, escaped.
        topic: String,
    },
    /// The end of use of every configured secret has passed.
    SecretsExpired,
}

/// A signed time and ours, too far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// The sender's clock, in milliseconds since 1970.
    pub sent_ms: i64,
    /// Our clock.
    pub now_ms: i64,
    /// How far they may be apart.
    pub limit: Duration,
}

impl Rejection {
    /// Every code that [`Rejection::reason`] can give, for metrics that begin at zero.
    pub const REASONS: [&'static str; 14] = [
        "missing_header",
        "malformed_header",
        "bad_signature",
        "bad_token",
        "stale",
        "future",
        "bad_claim",
        "body_hash",
        "malformed_body",
        "unknown_url",
        "key_needed",
        "untrusted_key",
        "unknown_topic",
        "secrets_expired",
    ];

    /// Its code in metrics and in the API.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MissingHeader { .. } => "missing_header",
            Self::MalformedHeader { .. } => "malformed_header",
            Self::BadSignature { .. } => "bad_signature",
            Self::BadToken { .. } => "bad_token",
            Self::Stale(_) => "stale",
            Self::Future(_) => "future",
            Self::BadClaim { .. } => "bad_claim",
            Self::BodyHash { .. } => "body_hash",
            Self::MalformedBody { .. } => "malformed_body",
            Self::UnknownUrl => "unknown_url",
            Self::KeyNeeded { .. } => "key_needed",
            Self::UntrustedKey { .. } => "untrusted_key",
            Self::UnknownTopic { .. } => "unknown_topic",
            Self::SecretsExpired => "secrets_expired",
        }
    }

    pub(super) fn malformed(header: &HeaderName, problem: impl Into<String>) -> Self {
        Self::MalformedHeader { header: header.clone(), problem: problem.into() }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingHeader { header, carries } => write!(f, "header {header} is missing or empty; it carries {carries}"),
            Self::MalformedHeader { header, problem } => write!(f, "header {header}: {problem}"),
            Self::BadSignature { place, secrets: 0, .. } => {
                write!(f, "the signature in {place} was not made with the key that the request names over this request")
            }
            Self::BadSignature { place, secrets, url } => {
                let tried = if *secrets == 1 { "the secret".to_owned() } else { format!("any of the {secrets} secrets") };
                write!(f, "the signature in {place} was not made with {tried} over this request")?;
                match url {
                    Some(url) => write!(f, ", its address taken as {url}"),
                    None => Ok(()),
                }
            }
            Self::BadToken { header } => write!(f, "what {header} carries is not a configured secret"),
            Self::Stale(skew) => write!(f, "signed too long ago: {skew}"),
            Self::Future(skew) => write!(f, "signed at a time still to come: {skew}"),
            Self::BadClaim { header, problem } => write!(f, "the token in {header} is signed right and not for this request: {problem}"),
            Self::BodyHash { place } => write!(f, "the body is not the signed one: its SHA-256 is not the one of {place}"),
            Self::MalformedBody { problem } => write!(f, "the body does not hold what the signature needs: {problem}"),
            Self::UnknownUrl => f.write_str(
                "the signature covers the public address, which is not known: set `public_url`, or let the proxy pass `Host` on",
            ),
            Self::KeyNeeded { url } => write!(f, "the key at {url} is needed and not at hand"),
            Self::UntrustedKey { problem } => write!(f, "the key is not to be trusted: {problem}"),
            Self::UnknownTopic { topic } => write!(f, "the topic {topic} is none of `topics`; a signature says nothing about whose a topic is"),
            Self::SecretsExpired => f.write_str("the end of use (`until`) of every configured secret has passed"),
        }
    }
}

impl std::error::Error for Rejection {}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apart = self.sent_ms.abs_diff(self.now_ms);
        let way = if self.sent_ms > self.now_ms { "ahead" } else { "behind" };
        write!(
            f,
            "the sender's clock says {}, ours {}; it is {} s {way}, at most {} s are allowed",
            show_ms(self.sent_ms),
            show_ms(self.now_ms),
            apart / 1_000,
            self.limit.as_secs(),
        )
    }
}

/// How many characters of foreign text a message shows.
const SHOWN_MAX: usize = 80;

/// Foreign bytes as a message may show them: shortened; control, bidirectional and invalid ones
/// escaped.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut left = SHOWN_MAX;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if left == 0 {
                return out + "…";
            }
            left -= 1;
            if c.is_control() || is_bidi(c) {
                out.extend(c.escape_unicode());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            if left == 0 {
                return out + "…";
            }
            left -= 1;
            write!(out, "\\x{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    out
}

/// An address as a message may show it: as [`shown`], user and password taken out.
pub(super) fn shown_url(url: &str) -> String {
    match without_user(url) {
        Cow::Borrowed(url) => shown(url.as_bytes()),
        Cow::Owned(bare) => shown(bare.replacen("://", "://***@", 1).as_bytes()),
    }
}

/// An address without user and password (RFC 3986 §3.2.1): owned where it had them, else as it was.
#[must_use]
pub fn without_user(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return Cow::Borrowed(url) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let user_ends = rest.get(..end).and_then(|authority| authority.rfind('@'));
    match user_ends.and_then(|at| rest.get(at + 1..)) {
        Some(host) => Cow::Owned(format!("{scheme}://{host}")),
        None => Cow::Borrowed(url),
    }
}

/// Characters that reorder what a terminal shows (Unicode UAX #9 §2), and line separators.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_act_on_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}b\r\n".as_bytes()), "a\\u{1b}[2J\\u{202e}b\\u{d}\\u{a}");
        assert_eq!(shown(b"caf\xc3\xa9 \xff"), "café \\xff");
        assert_eq!(shown("x".repeat(500).as_bytes()).chars().count(), SHOWN_MAX + 1);
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, words) in [
            ("https://user:pass@a.example/x@y", "https://***@a.example/x@y"),
            ("https://a.example/x@y", "https://a.example/x@y"),
            ("no address", "no address"),
        ] {
            assert_eq!(shown_url(url), words);
        }
    }

    #[test]
    fn a_clock_difference_is_told_with_both_clocks() {
        let skew = Skew { sent_ms: 1_700_000_000_000, now_ms: 1_700_000_400_000, limit: Duration::from_secs(300) };
        assert_eq!(
            Rejection::Stale(skew).to_string(),
            "signed too long ago: the sender's clock says 2023-11-14T22:13:20Z, ours 2023-11-14T22:20:00Z; \
             it is 400 s behind, at most 300 s are allowed"
        );
    }

    #[test]
    fn every_reason_is_listed() {
        let header = HeaderName::from_static("x");
        let skew = Skew { sent_ms: 0, now_ms: 0, limit: Duration::ZERO };
        let all = [
            Rejection::MissingHeader { header: header.clone(), carries: "x" },
            Rejection::malformed(&header, "x"),
            Rejection::BadSignature { place: "x".to_owned(), secrets: 1, url: None },
            Rejection::BadToken { header: header.clone() },
            Rejection::Stale(skew),
            Rejection::Future(skew),
            Rejection::BadClaim { header, problem: String::new() },
            Rejection::BodyHash { place: String::new() },
            Rejection::MalformedBody { problem: String::new() },
            Rejection::UnknownUrl,
            Rejection::KeyNeeded { url: "x".into() },
            Rejection::UntrustedKey { problem: String::new() },
            Rejection::UnknownTopic { topic: String::new() },
            Rejection::SecretsExpired,
        ];
        assert_eq!(all.map(|one| one.reason()), Rejection::REASONS);
    }
}
