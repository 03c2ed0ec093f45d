//! The words of the road: an event, its group and lane, its place in time.
//!
//! Every other module speaks in these types. Nothing here does I/O, reads a clock or
//! decides anything; there are constructors, written forms and nothing else.

mod moment;
mod numbered;
mod shard;
mod trace;
mod wait;
pub mod written;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

pub use numbered::{NumberMap, Numbered};
pub use shard::shard;
pub use trace::{TRACEPARENT, TRACESTATE, Trace};
pub use wait::{WaitReason, WaitSplit};

/// A moment on the monotonic clock, in microseconds. Deadlines, leases, windows and
/// rates are computed on it; it is never stored and never shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mono(pub u64);

/// A moment on the wall clock, in microseconds since 1970-01-01T00:00:00Z. It stamps
/// events, judges signatures and writes due times; nothing waits on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wall(pub u64);

impl Mono {
    /// This moment and `span` later; saturates at the end of time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// How long after `earlier` this moment is; zero when it is before it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Wall {
    /// Whole seconds since 1970, as signatures state them.
    #[must_use]
    pub fn unix_s(self) -> i64 {
        i64::try_from(self.0 / 1_000_000).unwrap_or(i64::MAX)
    }

    /// Whole milliseconds since 1970.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        self.0 / 1_000
    }

    /// From whole seconds since 1970; negative ones become the epoch.
    #[must_use]
    pub fn from_unix_s(seconds: i64) -> Self {
        Self(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000))
    }

    /// This moment and `span` later; saturates at the end of time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// This moment and `span` earlier; saturates at the epoch.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// How long after `earlier` this moment is; zero when the clock was set back since.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// What a clock says at one instant: both readings of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For waiting and measuring.
    pub mono: Mono,
    /// For stamping.
    pub wall: Wall,
}

/// An accepted event's place in the store's order of commits. The first is 1; 0 stands
/// for "before all". Order is decided by it and never by an event's id or time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// Bits of a seq below its section.
    pub const SECTION_SHIFT: u32 = 43;

    /// What stands before all seqs of a section.
    #[must_use]
    pub fn before(section: u16) -> Self {
        Self(u64::from(section) << Self::SECTION_SHIFT)
    }

    /// The part of all events that it is numbered in by itself, and that moves between nodes as one; 0 in a store without such parts.
    #[must_use]
    pub fn section(self) -> u16 {
        u16::try_from(self.0 >> Self::SECTION_SHIFT).unwrap_or(u16::MAX)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of one accepted request, the same on every attempt and on a replay:
/// `evt_` and a UUID of version 7 (RFC 9562 §5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// An id for an event received at `wall`, with ten random bytes from the caller.
    #[must_use]
    pub fn new(wall: Wall, random: &[u8; 10]) -> Self {
        let uuid = uuid::Builder::from_unix_timestamp_millis(wall.unix_ms(), random).into_uuid();
        Self(uuid.into_bytes())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = *b"evt_00000000-0000-0000-0000-000000000000";
        let (_, digits) = text.split_at_mut(4);
        uuid::Uuid::from_bytes(self.0).as_hyphenated().encode_lower(digits);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The text was not an event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event id is evt_ followed by a UUID")]
pub struct NotAnEventId;

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uuid = text.strip_prefix("evt_").ok_or(NotAnEventId)?;
        let uuid = uuid::Uuid::try_parse(uuid).map_err(|_| NotAnEventId)?;
        Ok(Self(uuid.into_bytes()))
    }
}

/// Longest fairness key, in bytes of UTF-8, all its parts and the joints counted. Each byte
/// becomes at most three in the written form, so a group fits 768 bytes of a header.
pub const KEY_BYTES_MAX: usize = 256;

/// How the names of overflow lanes begin.
const OVERFLOW: &str = "~overflow-";

/// A group (one tenant) in its written form, the same in headers, URLs, API, metrics,
/// logs, terminal and globs. Letters, digits and `-._:@` stand for themselves, every other byte is
/// `%XX`; parts are joined by `~`, and reserved groups begin with it, so that no key can
/// imitate a part or a reserved group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(Arc<str>);

impl Group {
    /// The group of a key made of `parts` (a namespace, where there is one, is the first).
    #[must_use]
    pub fn of<S: AsRef<str>>(parts: &[S]) -> Self {
        Self(written(parts).into())
    }

    /// The lane that all events without a key share.
    #[must_use]
    pub fn fallback() -> Self {
        Self("~fallback".into())
    }

    /// The lane of events that a source lets through although their signature failed.
    #[must_use]
    pub fn unverified() -> Self {
        Self("~unverified".into())
    }

    /// A reserved group: `name` with `~` before it, e.g. `~platform`.
    #[must_use]
    pub fn reserved(name: &str) -> Self {
        Self(format!("~{}", written(&[name])).into())
    }

    /// The name of an overflow lane, which groups without a lane of their own share (R10): `~overflow-07`; one that belongs to `part`:
    /// `~overflow-07~part`.
    #[must_use]
    pub fn overflow(number: u16, part: Option<&Self>) -> Self {
        let part = part.map(|part| format!("~{part}")).unwrap_or_default();
        Self(format!("{OVERFLOW}{number:02}{part}").into())
    }

    /// The part in the name of an overflow lane; `None` for every other name.
    #[must_use]
    pub fn overflow_part(&self) -> Option<Self> {
        let (_number, part) = self.0.strip_prefix(OVERFLOW)?.split_once('~')?;
        Self::from_written(part)
    }

    /// Whether this names an overflow lane.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        self.0.starts_with(OVERFLOW)
    }

    /// The names of `parts`, one after another. A key in memory, never a name that is written anywhere: it may be longer than one.
    #[must_use]
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let parts: Vec<&str> = parts.into_iter().map(Self::as_str).collect();
        // No written form has a slash, so that no two lists of parts give the same.
        Self(parts.join("/").into())
    }

    /// From text that is a written form already (a header, a URL, the store); `None` when it
    /// is not one, is empty or too long.
    #[must_use]
    pub fn from_written(text: &str) -> Option<Self> {
        let mut rest = text.as_bytes();
        // 3 bytes a key byte, and a mark for reserved ones.
        if rest.is_empty() || rest.len() > 3 * KEY_BYTES_MAX + 1 {
            return None;
        }
        while let [first, tail @ ..] = rest {
            rest = match first {
                b'%' => match tail {
                    [a, b, tail @ ..] if upper_hex(*a) && upper_hex(*b) => tail,
                    _ => return None,
                },
                b'~' => tail,
                byte if plain(*byte) => tail,
                _ => return None,
            };
        }
        Some(Self(text.into()))
    }

    /// The written form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the lane of events without a key.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        &*self.0 == "~fallback"
    }

    /// Whether this is one of our own lanes rather than a tenant's.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with('~')
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The queue of one group, or of one part of it (`within`). Both names are written forms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// Whose.
    pub group: Group,
    /// Which part of it, where the source splits its groups.
    pub inner: Option<Group>,
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'@')
}

fn upper_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'F')
}

fn written<S: AsRef<str>>(parts: &[S]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(parts.iter().map(|p| p.as_ref().len() + 1).sum());
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            out.push('~');
        }
        for &byte in part.as_ref().as_bytes() {
            if plain(byte) {
                out.push(char::from(byte));
            } else {
                out.push('%');
                for nibble in [byte >> 4, byte & 15] {
                    out.push(char::from(HEX.get(usize::from(nibble)).copied().unwrap_or(b'0')));
                }
            }
        }
    }
    out
}

/// A secret: never printed, compared in a time that does not tell where two differ, erased when dropped.
#[derive(Clone)]
pub struct Secret(zeroize::Zeroizing<Vec<u8>>);

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl Secret {
    /// Takes over the bytes of a secret.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(zeroize::Zeroizing::new(bytes.into()))
    }

    /// The bytes, for computing with. They must not reach a log, an error or an answer.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Headers that speak of one connection and not of the event (RFC 9110 §7.6.1), with `Expect` and the sender's own transfer
/// coding: they are neither kept nor sent on.
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Why an event has no key and goes to the fallback lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Missing {
    /// Nothing stands at the place that the rule names.
    Absent,
    /// The value is empty text or null.
    Empty,
    /// The value is an object or an array.
    NotScalar,
    /// The body is not a JSON document.
    NotJson,
    /// The key is longer than [`KEY_BYTES_MAX`].
    TooLong,
    /// The document is nested deeper than a tree of it may be.
    TooDeep,
    /// The document is larger than a tree of it may be, or than an inflated body may be.
    TooBig,
    /// The value is not UTF-8, or the body's `Content-Encoding` could not be undone.
    BadEncoding,
}

impl Missing {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::Empty,
        Self::NotScalar,
        Self::NotJson,
        Self::TooLong,
        Self::TooDeep,
        Self::TooBig,
        Self::BadEncoding,
    ];

    /// Its name in metrics and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Empty => "empty",
            Self::NotScalar => "not_scalar",
            Self::NotJson => "not_json",
            Self::TooLong => "too_long",
            Self::TooDeep => "too_deep",
            Self::TooBig => "too_big",
            Self::BadEncoding => "bad_encoding",
        }
    }
}

/// Where an event's key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A rule found it; `rule` is its text, `signed` whether the signature covers that place.
    Rule {
        /// The expression, as written in the configuration or the preset.
        rule: Arc<str>,
        /// False where anybody who holds one valid request can choose the key.
        signed: bool,
    },
    /// There is a rule and it found nothing.
    Missing(Missing),
    /// No rule applies to the source.
    NoRule,
}

/// What an event has in common with its repeats, and how long a repeat counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Half of a SHA-256 over its source, its group where that is part of the scope, and its key.
    pub hash: [u8; 16],
    /// From the receipt of the first.
    pub window: Duration,
}

/// One accepted webhook, as it is stored: what came, and what was found out about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub id: EventId,
    /// When its last byte had arrived.
    pub received: Wall,
    /// The source that took it.
    pub source: Arc<str>,
    /// Where it waits.
    pub lane: Lane,
    /// The lane that it belongs to, where it waits in an overflow lane instead (R10).
    pub owner: Option<Lane>,
    /// Where its key came from.
    pub key_source: KeySource,
    /// Events of one group that share this go one after another.
    pub order: Option<Group>,
    /// What its repeats are known by; `None`: it is no repeat of anything, and nothing of it.
    pub fingerprint: Option<Fingerprint>,
    /// The trace that it belongs to; `None`: none is kept.
    pub trace: Option<Trace>,
    /// Scheme and which secret, as `Fairlane-Verified` says it, e.g. `shopify secret=0`.
    pub verified: Arc<str>,
    /// The sender's own id for it.
    pub provider_event_id: Option<Box<str>>,
    /// The sender's name for what happened, e.g. `orders/create`.
    pub event_type: Option<Box<str>>,
    /// The method it came with.
    pub method: http::Method,
    /// Path and query exactly as received.
    pub target: Box<str>,
    /// Path and query to deliver to, where that differs from `target`.
    pub forward: Option<Box<str>>,
    /// The other end of the connection; whom a trusted proxy spoke for is in its `X-Forwarded-For`.
    pub peer: IpAddr,
    /// `http` or `https`, as the sender saw it.
    pub https: bool,
    /// Header lines, repeated ones in their order.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
}

impl Event {
    /// The lane that it belongs to, wherever it waits.
    #[must_use]
    pub fn home(&self) -> &Lane {
        self.owner.as_ref().unwrap_or(&self.lane)
    }

    /// Whose it is.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.home().group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_written_so_that_nothing_can_imitate_a_part() {
        assert_eq!(Group::of(&["a.myshopify.com"]).as_str(), "a.myshopify.com");
        assert_eq!(Group::of(&["gh", "77"]).as_str(), "gh~77");
        assert_eq!(Group::of(&["~fallback"]).as_str(), "%7Efallback");
        assert_eq!(Group::of(&["a\r\nX: y"]).as_str(), "a%0D%0AX:%20y");
        assert_eq!(Group::of(&["café"]).as_str(), "caf%C3%A9");
        assert_eq!(Group::of(&["\u{1b}[2J"]).as_str(), "%1B%5B2J");
        assert_eq!(Group::of(&["%".repeat(256)]).as_str().len(), 768);
    }

    #[test]
    fn a_written_form_is_read_back_and_nothing_else_is() {
        for group in [Group::of(&["café", "~"]), Group::fallback(), Group::reserved("overflow-07")] {
            assert_eq!(Group::from_written(group.as_str()), Some(group));
        }
        for text in ["", "a b", "%", "%7", "%7e", "a/b", "caf\u{e9}"] {
            assert_eq!(Group::from_written(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_event_id_is_a_version_7_uuid_with_a_prefix() {
        let id = EventId::new(Wall::from_unix_s(1_700_000_000), &[0xAB; 10]);
        let text = id.to_string();
        assert_eq!(text.len(), 40);
        assert_eq!(text.get(18..19), Some("7"), "{text}");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!("evt_x".parse::<EventId>(), Err(NotAnEventId));
        assert_eq!("0".parse::<EventId>(), Err(NotAnEventId));
    }
}
