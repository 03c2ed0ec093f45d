//! The trace that an event belongs to, and its written form (W3C Trace Context, <https://www.w3.org/TR/trace-context/>).

use std::fmt;

use http::{HeaderMap, HeaderName};

/// The header that names a trace, the caller's span in it, and its flags.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header in which systems keep their own words about a trace.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A span of a trace: the parent of whatever happens further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub id: [u8; 16],
    /// The span. Of an event that is stored, it is our span of its acceptance.
    pub span: [u8; 8],
    /// Bit 0: it is recorded, as the sender decided it, or we where there was no decision.
    pub flags: u8,
}

impl Trace {
    /// Flags of a trace that is recorded.
    pub const SAMPLED: u8 = 1;
    /// The flags of version 00 that there are: sampled, and that the id is random (level 2). Others are sent as 0.
    const FLAGS: u8 = 3;

    /// What the sender's `traceparent` says; `None` where there is none, more than one, or one that is not as the specification has it,
    /// for then a new trace begins.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all(TRACEPARENT).iter();
        let (Some(value), None) = (all.next(), all.next()) else { return None };
        Self::parse(value.to_str().ok()?)
    }

    /// Version 00 is exactly four parts; of a later one the first four are read, whatever follows (§4.3).
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_matches([' ', '\t']).split('-');
        let [version] = hex(parts.next()?)?;
        let (id, span, [flags]) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
        let whole = version != 0 || parts.next().is_none();
        let named = id != [0; 16] && span != [0; 8];
        (version != 0xFF && whole && named).then_some(Self { id, span, flags: flags & Self::FLAGS })
    }

    /// Whether it is recorded.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & Self::SAMPLED != 0
    }

    /// The trace's id, as people look for it.
    #[must_use]
    pub fn id_text(self) -> String {
        Hex(&self.id).to_string()
    }
}

impl fmt::Display for Trace {
    /// As a `traceparent` has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", Hex(&self.id), Hex(&self.span), self.flags)
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Exactly `N` bytes in lower-case hex digits; others are not allowed.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let mut bytes = [0; N];
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn from(values: &[&str]) -> Option<Trace> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, value.parse().unwrap());
        }
        Trace::from_headers(&headers)
    }

    #[test]
    fn a_traceparent_is_read_and_written_as_the_specification_has_it() {
        let trace = from(&[GOOD]).unwrap();
        assert_eq!((trace.to_string().as_str(), trace.is_sampled()), (GOOD, true));
        assert_eq!(trace.id_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let at = |text: &str| from(&[text]).map(|trace| trace.to_string());
        assert_eq!(at(&GOOD.replace("-01", "-00")).as_deref(), Some(GOOD.replace("-01", "-00").as_str()));
        assert_eq!(at(&GOOD.replace("-01", "-ff")), Some(GOOD.replace("-01", "-03")), "unknown flags are not sent on");
        // A later version may say more behind.
        assert_eq!(at(&format!("cc{}-what-ever", &GOOD[2..])).as_deref(), Some(GOOD));
        assert_eq!(at(&format!("01{}", &GOOD[2..])).as_deref(), Some(GOOD));
    }

    #[test]
    fn anything_else_begins_a_new_trace() {
        assert_eq!(from(&[]), None);
        assert_eq!(from(&[GOOD, GOOD]), None);
        for bad in [
            String::new(),
            "00".to_owned(),
            GOOD.to_uppercase(),
            format!("ff{}", &GOOD[2..]),
            format!("{GOOD}-00"),
            format!("{GOOD}-"),
            GOOD.replace("-01", ""),
            GOOD.replace("-01", "-1"),
            GOOD.replace("-01", "-0x"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            GOOD.replace("00f067aa0ba902b7", "0000000000000000"),
            GOOD.replace("4bf9", "4bf"),
            GOOD.replace("4bf9", "4bf9a"),
            GOOD.replace("4bf9", "+bf9"),
            GOOD.replace('-', "_"),
        ] {
            assert_eq!(from(&[&bad]), None, "{bad:?}");
        }
    }
}
