//! Records and rows with bytes, lengths and whole parts changed: the frame's checksum refuses each, and what is behind it is read without a
//! panic and without believing a length, should the checksum ever be right.
//!
//! `FUZZ_SECONDS=600` goes on for so long (`make fuzz`); otherwise a fixed number of records is tried, the same ones each time.

use std::time::Duration;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::tests::{records, write};
use super::*;
use crate::clock::{Clock as _, SystemClock};
use crate::store::log::Place;
use crate::store::row::Row;

/// Records in an ordinary run.
const ROUNDS: u64 = 20_000;

/// Address space that the process may take more. Tests that run beside this one take some of it too; a length of 32 bits that is believed
/// takes more.
const ROOM_KIB: u64 = 3 << 20;

/// What a length, a count or a number may be taken for.
const NASTY: [&[u8]; 8] = [
    &[0],
    &[0x7F],
    &[0xFF; 10],
    &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
    &[0xFF, 0xFF, 0xFF, 0x7F],
    &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
    &[0x80; 3],
    &[0xC3, 0x28],
];

#[test]
fn no_bytes_are_a_record_by_accident_and_none_make_it_panic_or_take_memory() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().map(|text| text.parse().expect("FUZZ_SECONDS is a whole number"));
    let end = seconds.map(|seconds| SystemClock.now().mono.plus(Duration::from_secs(seconds)));
    let goes_on = |done| end.map_or(done < ROUNDS, |end| SystemClock.now().mono < end);
    let (before, mut tried, mut read) = (peak_kib(), 0, 0_u64);
    let mut runner = TestRunner::deterministic();
    while goes_on(tried) {
        let frame = write(&records().new_tree(&mut runner).expect("a record").current());
        read += u64::from(round(&frame, &mut SmallRng::seed_from_u64(tried)));
        tried += 1;
    }
    println!("{tried} records, {read} of them read behind a checksum made right");
    assert!(read > tried / 100 && read < tried, "{read} of {tried}");
    let taken = peak_kib().saturating_sub(before);
    assert!(taken < ROOM_KIB, "{taken} KiB of address space");
}

/// Whether the payload is a record still.
fn round(frame: &Bytes, random: &mut SmallRng) -> bool {
    let mut changed = frame.to_vec();
    mutate(&mut changed, random);
    // Bytes behind a frame do not belong to it.
    let same = changed.starts_with(frame);
    let taken = frame_payload(&changed.into());
    assert!(same || taken.is_err(), "a frame that was changed passes its checksum");
    let mut payload = frame.slice(FRAME_BYTES..).to_vec();
    for _ in 0..random.random_range(1..4) {
        mutate(&mut payload, random);
    }
    let payload = Bytes::from(payload);
    let Ok(record) = decode(&payload) else {
        // Nothing but rows stands in the index, and they have no checksum of ours.
        return Row::read(&mut Reader::new(&payload)).is_ok();
    };
    if let Record::Accepted { seq, event } | Record::Copied { seq, event, .. } = &record {
        let mut row = Vec::new();
        Row::accepted(*seq, event, Place { segment: 1, offset: 2, length: 3 }).put(&mut row);
        mutate(&mut row, random);
        drop(Row::read(&mut Reader::new(&row)));
    }
    let again = write(&record);
    assert_eq!(
        decode(&frame_payload(&again).expect("a whole frame")),
        Ok(record),
        "what was read is written and read again"
    );
    true
}

fn mutate(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    let (a, b) = (random.random_range(0..=bytes.len()), random.random_range(0..=bytes.len()));
    let range = a.min(b)..a.max(b);
    let nasty = NASTY.choose(random).copied().unwrap_or_default();
    match random.random_range(0..5) {
        0 | 1 if a < bytes.len() => bytes[a] ^= 1 << random.random_range(0..8),
        2 => drop(bytes.drain(range)),
        3 => drop(bytes.splice(a..a, nasty.iter().copied())),
        _ => drop(bytes.splice(a..(a + nasty.len()).min(bytes.len()), nasty.iter().copied())),
    }
}

/// The most address space that the process ever had: memory that is asked for and never touched is in it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).expect("it has this line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
