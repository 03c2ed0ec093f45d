//! A batch: what one write and one sync make durable.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0–3 | `FLB1`: the mark, and the version of this layout |
//! | 4–7 | CRC-32C of all that follows, payload included |
//! | 8–11 | length of the payload |
//! | 12–15 | records in it |
//! | 16–19 | the segment's number |
//! | 20–23 | the batch's offset in it |
//! | 24–31 | the batch's number, counted over all segments from 1 |
//! | 32–39 | the last batch that was known to be durable when this one was written |
//! | 40–47 | the next free seq after this batch |
//! | 48– | the payload: frames of records, and a last byte [`END`] |
//!
//! Numbers are little-endian. Segment, offset and number stand under the checksum, so that neither old bytes nor bytes
//! of another place pass for a batch. The checksum begins with the store's *salt*, so that nobody who only sends events can write
//! a batch into a body. Batches begin at multiples of [`ALIGN`], so that one can be looked for.

use std::ops::Range;

/// Bytes before the payload.
pub(in crate::store) const HEADER_BYTES: usize = 48;
/// Every batch begins at a multiple of this.
pub(in crate::store) const ALIGN: u32 = 64;
/// The last byte of every payload. It is not zero as the bytes behind the end of the log are, so a batch whose last bytes were never
/// written does not pass for a whole one.
pub(in crate::store) const END: u8 = 0xFF;
const MARK: [u8; 4] = *b"FLB1";

/// The numbers of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Header {
    /// Length of the payload.
    pub(in crate::store) length: u32,
    /// Records in the payload.
    pub(in crate::store) records: u32,
    /// The segment it stands in.
    pub(in crate::store) segment: u32,
    /// Where in the segment.
    pub(in crate::store) offset: u32,
    /// The how-manieth batch.
    pub(in crate::store) number: u64,
    /// The last batch known to be durable when this one was written.
    pub(in crate::store) durable: u64,
    /// The next free seq after it.
    pub(in crate::store) next_seq: u64,
}

impl Header {
    /// Where the next batch of the segment begins.
    #[must_use]
    pub(in crate::store) fn end(&self) -> u64 {
        align(u64::from(self.offset) + HEADER_BYTES as u64 + u64::from(self.length))
    }

    /// The same, of a batch of a segment, which is shorter than 4 GiB.
    #[must_use]
    pub(in crate::store) fn next_offset(&self) -> u32 {
        u32::try_from(self.end()).unwrap_or(u32::MAX)
    }

    /// Fills the first [`HEADER_BYTES`] of `batch`, whose payload is already in place.
    pub(super) fn seal(&self, batch: &mut [u8], salt: u32) {
        let Some(head) = batch.first_chunk_mut::<HEADER_BYTES>() else { return };
        put(head, 0..4, &MARK);
        put(head, 8..12, &self.length.to_le_bytes());
        put(head, 12..16, &self.records.to_le_bytes());
        put(head, 16..20, &self.segment.to_le_bytes());
        put(head, 20..24, &self.offset.to_le_bytes());
        put(head, 24..32, &self.number.to_le_bytes());
        put(head, 32..40, &self.durable.to_le_bytes());
        put(head, 40..48, &self.next_seq.to_le_bytes());
        let crc = crc32c::crc32c_append(salt, batch.get(8..).unwrap_or_default());
        if let Some(place) = batch.get_mut(4..8) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Reads a header; `None` when these bytes are not one of a batch at this place. The checksum is verified by
    /// [`Header::holds`].
    #[must_use]
    pub(in crate::store) fn read(bytes: &[u8; HEADER_BYTES], segment: u32, offset: u32) -> Option<Self> {
        let header = Self {
            length: u32_at(bytes, 8),
            records: u32_at(bytes, 12),
            segment: u32_at(bytes, 16),
            offset: u32_at(bytes, 20),
            number: u64_at(bytes, 24),
            durable: u64_at(bytes, 32),
            next_seq: u64_at(bytes, 40),
        };
        (bytes.starts_with(&MARK) && header.segment == segment && header.offset == offset).then_some(header)
    }

    /// Whether the checksum in `bytes` is that of `bytes` and `payload`.
    #[must_use]
    pub(in crate::store) fn holds(bytes: &[u8; HEADER_BYTES], payload: &[u8], salt: u32) -> bool {
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(salt, bytes.get(8..).unwrap_or_default()), payload);
        crc == u32_at(bytes, 4)
    }
}

pub(super) fn align(offset: u64) -> u64 {
    offset.next_multiple_of(u64::from(ALIGN))
}

fn put(head: &mut [u8; HEADER_BYTES], range: Range<usize>, bytes: &[u8]) {
    head.get_mut(range).expect("a range of the table above").copy_from_slice(bytes);
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut batch = vec![0; HEADER_BYTES];
        batch.extend_from_slice(payload);
        header.seal(&mut batch, 77);
        batch
    }

    proptest! {
        #[test]
        fn a_batch_is_read_back_at_its_place_alone(
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            (segment, offset, number) in any::<(u32, u32, u64)>(),
        ) {
            let length = u32::try_from(payload.len()).expect("short");
            let header = Header { length, records: 1, segment, offset, number, durable: 7, next_seq: 9 };
            let batch = sealed(&header, &payload);
            let head = batch.first_chunk::<HEADER_BYTES>().expect("whole");
            prop_assert_eq!(Header::read(head, segment, offset), Some(header));
            prop_assert!(Header::holds(head, &payload, 77));
            prop_assert!(!Header::holds(head, &payload, 78), "another store's");
            prop_assert_eq!(Header::read(head, segment.wrapping_add(1), offset), None);
            prop_assert_eq!(Header::read(head, segment, offset ^ 64), None);
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0_usize..80, change in 1_u8..) {
            let payload = [5; 32];
            let header = Header { length: 32, records: 1, segment: 1, offset: 64, number: 3, durable: 2, next_seq: 9 };
            let mut batch = sealed(&header, &payload);
            batch[at] ^= change;
            let (head, payload) = batch.split_first_chunk::<HEADER_BYTES>().expect("whole");
            let read = Header::read(head, 1, 64).is_some() && Header::holds(head, payload, 77);
            prop_assert!(!read, "byte {} changed by {}", at, change);
        }
    }
}
