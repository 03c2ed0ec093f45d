//! The written form of numbers, texts and lists in records, index rows and checkpoints.
//!
//! Whole numbers are LEB128 (seven bits a byte, low ones first), texts and bytes have their length before them, an optional
//! value has a byte 0 or 1 before it. Reading never panics and never allocates more than it was given.

use std::sync::Arc;

use crate::event::{Group, KEY_BYTES_MAX, Lane, Wall};

/// What was read is not what was written; the text says which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not as it was written")]
pub(super) struct Damaged(pub(super) &'static str);

/// Longest written form of a group: three bytes a key byte, and a mark for reserved ones.
pub(super) const GROUP_BYTES_MAX: usize = 3 * KEY_BYTES_MAX + 1;

pub(super) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    (value & 0x7F) as u8
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(super) fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(out, value);
        }
    }
}

pub(super) fn put_wall(out: &mut Vec<u8>, at: Wall) {
    put_number(out, at.0);
}

pub(super) fn put_lane(out: &mut Vec<u8>, lane: &Lane) {
    put_text(out, lane.group.as_str());
    put_option(out, lane.inner.as_ref(), |out, inner| put_text(out, inner.as_str()));
}

/// Where an event waits, and whose it is where that is another lane. Without an owner the same bytes as [`put_lane`]: the flag before the
/// inner lane has one bit for it, one for the owner.
pub(super) fn put_place(out: &mut Vec<u8>, lane: &Lane, owner: Option<&Lane>) {
    put_text(out, lane.group.as_str());
    out.push(u8::from(lane.inner.is_some()) | (u8::from(owner.is_some()) << 1));
    if let Some(inner) = &lane.inner {
        put_text(out, inner.as_str());
    }
    if let Some(owner) = owner {
        put_lane(out, owner);
    }
}

/// Reads what the functions above wrote, from front to back.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Everything has been read.
    pub(super) fn end(&self) -> Result<(), Damaged> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damaged("the end")) }
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, Damaged> {
        let (&first, rest) = self.rest.split_first().ok_or(Damaged(what))?;
        self.rest = rest;
        Ok(first)
    }

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, Damaged> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(Damaged(what));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged(what))
    }

    pub(super) fn number_u32(&mut self, what: &'static str) -> Result<u32, Damaged> {
        u32::try_from(self.number(what)?).map_err(|_| Damaged(what))
    }

    /// The count of a list whose members take at least one byte each, so that it can be trusted as a capacity.
    pub(super) fn count(&mut self, what: &'static str) -> Result<usize, Damaged> {
        let count = usize::try_from(self.number(what)?).map_err(|_| Damaged(what))?;
        if count > self.rest.len() { Err(Damaged(what)) } else { Ok(count) }
    }

    pub(super) fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Damaged(what))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Damaged> {
        let length = self.count(what)?;
        self.take(length, what)
    }

    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| Damaged(what))
    }

    pub(super) fn shared_text(&mut self, what: &'static str) -> Result<Arc<str>, Damaged> {
        Ok(self.text(what)?.into())
    }

    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool, Damaged> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged(what)),
        }
    }

    pub(super) fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, Damaged>,
    ) -> Result<Option<T>, Damaged> {
        if self.flag(what)? { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn list<T>(
        &mut self,
        what: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T, Damaged>,
    ) -> Result<Vec<T>, Damaged> {
        let count = self.count(what)?;
        // A member may be larger in memory than its bytes: the list grows as members are really there.
        let mut list = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    pub(super) fn wall(&mut self, what: &'static str) -> Result<Wall, Damaged> {
        self.number(what).map(Wall)
    }

    pub(super) fn group(&mut self, what: &'static str) -> Result<Group, Damaged> {
        Group::from_written(self.text(what)?).ok_or(Damaged(what))
    }

    /// What [`put_place`] wrote.
    pub(super) fn place(&mut self) -> Result<(Lane, Option<Lane>), Damaged> {
        let group = self.group("a group")?;
        let flags = self.byte("an inner lane")?;
        if flags > 3 {
            return Err(Damaged("an inner lane"));
        }
        let inner = (flags & 1 != 0).then(|| self.group("an inner lane")).transpose()?;
        let owner = (flags & 2 != 0).then(|| self.lane()).transpose()?;
        Ok((Lane { group, inner }, owner))
    }

    pub(super) fn lane(&mut self) -> Result<Lane, Damaged> {
        Ok(Lane { group: self.group("a group")?, inner: self.option("an inner lane", |r| r.group("an inner lane"))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_is_read_back(value: u64) {
            let mut out = Vec::new();
            put_number(&mut out, value);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.number("n"), Ok(value));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            let read = reader.list("a list", |r| r.text("a text").map(str::len));
            prop_assert!(read.map_or(0, |lengths| lengths.iter().sum::<usize>()) <= bytes.len());
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_damage() {
        assert_eq!(Reader::new(&[0xFF; 10]).number("n"), Err(Damaged("n")));
        assert_eq!(Reader::new(&[0x80]).number("n"), Err(Damaged("n")));
    }
}
