//! The log by itself: every way in which its end can be torn, and damage in its middle.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::event::Seq;
use crate::store::disk::sim::Sim;
use crate::store::record::{self, Record};

const DIR: &str = "/log";
const SALT: u32 = 0x5EED;
const SEGMENT_BYTES: u64 = 1024;

fn list(disk: &Sim) -> Arc<Segments> {
    Arc::new(Segments::list(Arc::new(disk.clone()), Path::new(DIR), SALT).expect("listed"))
}

fn open(disk: &Sim, at: Cursor) -> Log {
    Log::open(list(disk), Arc::new(Reserve::default()), SEGMENT_BYTES, at).expect("opened")
}

/// A batch of marks that have these seqs.
fn batch(seqs: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    for &seq in seqs {
        record::put_frame(&mut bytes, |out| record::put_gone(out, Seq(seq), &[])).expect("short");
    }
    bytes
}

fn write(log: &mut Log, seqs: &[u64]) {
    let mut bytes = batch(seqs);
    if !log.fits(bytes.len() - HEADER_BYTES) {
        log.roll(bytes.len() - HEADER_BYTES, true).expect("room");
    }
    let records = u32::try_from(seqs.len()).expect("few");
    log.write(&mut bytes, records, seqs.last().map_or(1, |last| last + 1)).expect("written");
    log.sync().expect("synced");
}

/// What is read: the seqs, and where the log ends.
fn read(disk: &Sim) -> Result<(Vec<u64>, Cursor), Error> {
    let segments = list(disk);
    let mut seqs = Vec::new();
    let visit = |record, _| {
        let Record::Gone { seq, .. } = record else { panic!("only marks were written") };
        seqs.push(seq.0);
        Ok(())
    };
    let end = scan::scan(&segments, Cursor::START, visit, |_| Ok(()))?;
    Ok((seqs, end))
}

fn segment(number: u32) -> std::path::PathBuf {
    Path::new(DIR).join(format!("{number:08}.seg"))
}

/// Three batches in the first segment; the log after the second.
fn three_batches() -> (Sim, Cursor) {
    let disk = Sim::new();
    let mut log = open(&disk, Cursor::START);
    write(&mut log, &[1, 2]);
    write(&mut log, &[3]);
    let at = log.cursor();
    write(&mut log, &[4, 5, 6]);
    (disk, at)
}

fn last_batch_bytes() -> usize {
    batch(&[4, 5, 6]).len() + 1
}

#[test]
fn what_was_written_is_read_in_order_over_segments() {
    let disk = Sim::new();
    let mut log = open(&disk, Cursor::START);
    for seq in 1..200 {
        write(&mut log, &[seq]);
    }
    let (seqs, end) = read(&disk).expect("whole");
    assert_eq!(seqs, (1..200).collect::<Vec<_>>());
    assert!(end.segment > 10, "{end:?}");
    assert_eq!((end.segment, end.offset, end.batch, end.next_seq), {
        let at = log.cursor();
        (at.segment, at.offset, at.batch, at.next_seq)
    });
}

#[test]
fn a_tail_that_is_cut_at_any_byte_loses_the_last_batch_and_nothing_else() {
    let (disk, before) = three_batches();
    let start = before.offset as usize;
    for kept in 0..last_batch_bytes() {
        for garbage in [0_u8, 0xA5] {
            let torn = disk.copy();
            torn.damage(&segment(1), |bytes| bytes[start + kept..start + last_batch_bytes()].fill(garbage));
            let whole = torn.bytes(&segment(1)) == disk.bytes(&segment(1));
            let (seqs, end) = read(&torn).expect("only torn");
            let expected: &[u64] = if whole { &[1, 2, 3, 4, 5, 6] } else { &[1, 2, 3] };
            assert_eq!(seqs, expected, "{kept} bytes kept, then {garbage}");
            scan::cut(&list(&torn), &end).expect("cut");
            let mut log = open(&torn, end);
            write(&mut log, &[7]);
            let (seqs, _) = read(&torn).expect("whole again");
            assert_eq!(seqs, [expected, &[7]].concat());
        }
    }
}

#[test]
fn a_flipped_bit_in_the_middle_is_damage_with_its_place() {
    let (disk, before) = three_batches();
    for at in 0..before.offset as usize {
        let damaged = disk.copy();
        damaged.damage(&segment(1), |bytes| bytes[at] ^= 0x10);
        match read(&damaged) {
            Err(Error::Corrupt(what)) => assert!(what.contains("00000001.seg at offset "), "{what}"),
            // Bytes between the end of a batch and the next multiple of 64 are nobody's.
            Ok((seqs, _)) => assert_eq!(seqs, [1, 2, 3, 4, 5, 6], "byte {at}"),
            Err(other) => panic!("byte {at}: {other}"),
        }
        let hit_batch = at < HEADER_BYTES + 8;
        assert!(!hit_batch || read(&damaged).is_err(), "byte {at} is part of the first batch");
    }
}

#[test]
fn a_segment_that_is_missing_in_the_middle_is_damage_unless_older_ones_are_missing_too() {
    let disk = Sim::new();
    let mut log = open(&disk, Cursor::START);
    for seq in 1..60 {
        write(&mut log, &[seq]);
    }
    // What was written before the second segment, and the batch that begins the third.
    let segments = list(&disk);
    let third = scan::first_number(&segments, 3).expect("read").expect("there");
    let second = scan::first_number(&segments, 2).expect("read").expect("there");
    disk.damage(&segment(2), |bytes| bytes.fill(0));
    assert!(matches!(read(&disk), Err(Error::Corrupt(_))), "zeros where batches were");
    segments.delete(2).expect("deleted");
    let (seqs, _) = read(&disk).expect("a segment that was given up");
    let expected: Vec<u64> = (1..second).chain(third..60).collect();
    assert_eq!(seqs, expected);
}

#[test]
fn batches_of_another_store_or_place_are_not_taken() {
    let (disk, before) = three_batches();
    let bytes = disk.bytes(&segment(1)).expect("there");
    let other = Arc::new(Segments::list(Arc::new(disk.clone()), Path::new(DIR), SALT + 1).expect("listed"));
    let end = scan::scan(&other, Cursor::START, |_, _| panic!("nothing is ours"), |_| Ok(())).expect("empty");
    assert_eq!(end, Cursor::START);
    // The first segment's content as the second segment, and a batch moved by a place.
    disk.damage(&segment(2), |second| second.copy_from_slice(&bytes));
    assert_eq!(read(&disk).expect("the second is not valid").0, [1, 2, 3, 4, 5, 6]);
    let start = before.offset as usize;
    disk.damage(&segment(1), |first| {
        first.copy_within(start..start + last_batch_bytes(), start + 256);
        first[start..start + last_batch_bytes()].fill(0);
    });
    assert_eq!(read(&disk).expect("it is not where it says").0, [1, 2, 3]);
}

#[test]
fn without_syncs_a_hole_before_later_batches_is_a_torn_end() {
    let disk = Sim::new();
    let mut log = open(&disk, Cursor::START);
    write(&mut log, &[1]);
    let hole = log.cursor();
    for seqs in [[2], [3]] {
        let mut bytes = batch(&seqs);
        log.write(&mut bytes, 1, seqs[0] + 1).expect("written");
    }
    disk.damage(&segment(1), |bytes| bytes[hole.offset as usize + 20] ^= 1);
    let (seqs, end) = read(&disk).expect("nobody was told that the second is durable");
    assert_eq!((seqs.as_slice(), end.offset), (&[1][..], hole.offset));
    assert!(scan::cut(&list(&disk), &end).expect("cut") > 0);
    write(&mut open(&disk, end), &[2]);
    assert_eq!(read(&disk).expect("whole").0, [1, 2]);
}

#[test]
fn a_write_on_a_full_disk_leaves_nothing_and_the_next_one_takes_its_place() {
    let (disk, _) = three_batches();
    let (_, end) = read(&disk).expect("whole");
    let mut log = open(&disk, end);
    for left in 0..last_batch_bytes() {
        disk.set_writes(Some(left as u64));
        let mut bytes = batch(&[7, 8, 9]);
        assert!(matches!(log.write(&mut bytes, 3, 10), Err(WriteError::Full(_))), "{left} bytes fit");
        assert_eq!(log.cursor(), Cursor { durable: log.cursor().durable, ..end });
        disk.set_writes(None);
        assert_eq!(read(&disk).expect("as it was").0, [1, 2, 3, 4, 5, 6], "{left} bytes fit");
    }
    write(&mut log, &[7]);
    assert_eq!(read(&disk).expect("whole").0, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_reserve_is_for_those_who_need_no_spare() {
    let disk = Sim::new();
    let mut log = open(&disk, Cursor::START);
    disk.set_space(Some(0));
    assert!(matches!(log.roll(64, true), Err(WriteError::Full(_))), "new events do not take the last segment");
    assert_eq!(log.cursor().segment, 1);
    log.roll(64, false).expect("settlements do");
    assert_eq!(log.cursor().segment, 2);
    assert!(matches!(log.roll(64, false), Err(WriteError::Full(_))), "then there is none");
    disk.set_space(None);
    log.roll(64, true).expect("until there is room again");
}

#[test]
fn an_event_larger_than_a_segment_gets_one_of_its_size() {
    let disk = Sim::new();
    let mut log = open(&disk, Cursor::START);
    write(&mut log, &[1]);
    let many: Vec<u64> = (2..400).collect();
    write(&mut log, &many);
    write(&mut log, &[400]);
    assert_eq!(read(&disk).expect("whole").0, (1..=400).collect::<Vec<_>>());
    assert!(list(&disk).size(2) > SEGMENT_BYTES);
}
