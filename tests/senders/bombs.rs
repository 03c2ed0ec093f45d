//! Bodies that grow a thousand times and more when they are unpacked.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

/// More than a test's process may take.
const UNPACKED_BYTES: usize = 128 * 1024 * 1024;

/// A bomb: its `Content-Encoding`, and why no key is found in it.
pub(crate) struct Bomb {
    pub(crate) coding: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) missing: &'static str,
}

/// One of each kind. Spaces are valid JSON around a document.
pub(crate) fn all() -> Vec<Bomb> {
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::best());
    let spaces = vec![b' '; 1024 * 1024];
    for _ in 0..UNPACKED_BYTES / spaces.len() {
        raw.write_all(&spaces).unwrap();
    }
    let raw = raw.finish().unwrap();
    assert!(raw.len() * 1000 < UNPACKED_BYTES);
    // RFC 1952 and 1950 around it. Whoever gets as far as the checksum has unpacked it all.
    let gzip = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff".as_slice(), &raw, &[0; 8]].concat();
    let zlib = [b"\x78\xda".as_slice(), &raw, &[0; 4]].concat();
    let mut twice = GzEncoder::new(Vec::new(), Compression::best());
    twice.write_all(&gzip).unwrap();
    let bomb = |coding, body, missing| Bomb { coding, body, missing };
    vec![
        bomb("gzip, gzip", twice.finish().unwrap(), "too_big"),
        bomb("gzip", gzip, "too_big"),
        bomb("deflate", zlib, "too_big"),
        bomb("deflate", raw, "too_big"),
        bomb("br", brotli(&WINDOW_OF_16_MIB), "too_big"),
        bomb("br", brotli(&WINDOW_OF_1_GIB), "bad_encoding"),
    ]
}

/// The largest window of RFC 7932 §9.1, as bits from the lowest.
const WINDOW_OF_16_MIB: [(u32, u32); 1] = [(0b1111, 4)];

/// The pattern that RFC 7932 leaves unused. A later format takes it for a window whose size follows: decoders that know it too take
/// memory for all of that.
const WINDOW_OF_1_GIB: [(u32, u32); 2] = [(0b001_0001, 8), (30, 6)];

/// Meta-blocks of 16 MiB of spaces each, 13 bytes long.
fn brotli(window: &[(u32, u32)]) -> Vec<u8> {
    let is_large = window.len() > 1;
    let mut bits = Bits::default();
    bits.put_all(window);
    for _ in 0..UNPACKED_BYTES >> 24 {
        // Not the last, six nibbles of length, compressed.
        bits.put_all(&[(0, 1), (2, 2), ((1 << 24) - 1, 24), (0, 1)]);
        // One block type of each kind; no postfix, no direct distances; one context, one tree of each kind.
        bits.put_all(&[(0, 3), (0, 6), (0, 2), (0, 2)]);
        // Codes of one symbol each: a space, "insert very much", any distance.
        bits.put_all(&[(1, 4), (u32::from(b' '), 8), (1, 4), (504, 10), (1, 4), (0, if is_large { 8 } else { 6 })]);
        // So many literals.
        bits.put_all(&[((1 << 24) - 22_594, 24)]);
    }
    // The last, and empty.
    bits.put_all(&[(0b11, 2)]);
    bits.bytes
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn put_all(&mut self, values: &[(u32, u32)]) {
        for (value, width) in values {
            for bit in 0..*width {
                if self.count.is_multiple_of(8) {
                    self.bytes.push(0);
                }
                *self.bytes.last_mut().unwrap() |= u8::from(value >> bit & 1 == 1) << (self.count % 8);
                self.count += 1;
            }
        }
    }
}
