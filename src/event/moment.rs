//! A moment as people and programs write it.

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;

use super::Wall;

impl Wall {
    /// The moment that `text` names: date and time with an offset (RFC 3339 §5.6). One before 1970 becomes the epoch. `None` when it is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let moment = text.parse().ok().or_else(|| at_the_edge(text))?;
        Some(Self(u64::try_from(moment.as_microsecond()).unwrap_or(0)))
    }
}

/// The last hours of the year 9999, which people write for "for ever", lie beyond what is reckoned with: the last moment stands for them.
/// So does the first one for what is before it.
fn at_the_edge(text: &str) -> Option<Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    pieces.time().zip(pieces.offset())?;
    Some(if pieces.date().year() > 0 { Timestamp::MAX } else { Timestamp::MIN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_to_the_end_of_time() {
        assert_eq!(Wall::read("2030-01-31T08:00:00Z"), Some(Wall::from_unix_s(1_896_076_800)));
        assert_eq!(Wall::read("2030-01-31T10:00:00.5+02:00"), Some(Wall(1_896_076_800_500_000)));
        assert_eq!(Wall::read("0001-01-01T00:00:00Z"), Some(Wall(0)));
        let last = Wall::read("9999-12-30T00:00:00Z");
        for end in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999+00:00", "9999-12-31T23:59:59-08:00"] {
            assert!(Wall::read(end) > last, "{end}");
        }
        for wrong in ["", "soon", "9999-12-31", "9999-12-31T23:59:59", "9999-13-31T23:59:59Z", "10000-01-01T00:00:00Z"]
        {
            assert_eq!(Wall::read(wrong), None, "{wrong}");
        }
    }
}
