//! Reading what was accepted, in the order of commits, without changing anything: for dry runs on stored traffic.
//!
//! It reads the log, so the gateway may be running: what it adds meanwhile may be seen or not, and a segment that it gives up
//! meanwhile is left out. Damage is left out and counted; `doctor` says where it is.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, Real};
use super::embedded::salt;
use super::log::{Segments, scan};
use super::record::Record;
use super::{Error, Status};
use crate::event::{Event, Seq};

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Events that were given to the visitor.
    pub events: u64,
    /// Places where something is not as it was written.
    pub damaged: u64,
}

/// Gives every accepted event of the store in `path` to `visit`, once each; a replay is no arrival. Events whose record was copied
/// forward come where the copy stands. Blocks.
///
/// # Errors
///
/// [`Error::Unavailable`] when there is no store, or its files cannot be read.
pub fn arrivals(path: &Path, visit: &mut dyn FnMut(Event)) -> Result<Arrivals, Error> {
    let salt = salt(path)?;
    let disk: Arc<dyn Disk> = Arc::new(Real);
    let segments = Segments::list(disk, &path.join("log"), salt)?;
    let mut reader = Reader { seen: Seen::default(), found: Arrivals::default(), visit };
    for number in segments.numbers() {
        match reader.segment(&segments, number) {
            // Given up by the gateway since it was listed.
            Err(_) if !segments.path(number).exists() => {}
            other => other?,
        }
    }
    Ok(reader.found)
}

struct Reader<'v> {
    seen: Seen,
    found: Arrivals,
    visit: &'v mut dyn FnMut(Event),
}

impl Reader<'_> {
    fn segment(&mut self, segments: &Segments, number: u32) -> Result<(), Error> {
        let mut offset = 0;
        loop {
            let read = scan::batch(segments, number, offset, |record, _| {
                self.record(record);
                Ok(())
            });
            let header = match read {
                Err(Error::Corrupt(_)) => {
                    self.found.damaged += 1;
                    scan::header(segments, number, offset)?
                }
                other => other?,
            };
            offset = match header {
                Some(header) => header.next_offset(),
                None => match scan::next_batch(segments, number, offset)? {
                    // It may be the very batch that was being written a moment ago.
                    Some(next) => {
                        self.found.damaged += u64::from(next > offset);
                        next
                    }
                    None => return Ok(()),
                },
            };
        }
    }

    fn record(&mut self, record: Record) {
        let (seq, event) = match record {
            Record::Accepted { seq, event } => (seq, event),
            Record::Copied { seq, replaces: None, event, state, .. }
                if state.replays == 0 && state.status != Status::Suppressed =>
            {
                (seq, event)
            }
            _ => return,
        };
        if self.seen.add(seq) {
            self.found.events += 1;
            (self.visit)(event);
        }
    }
}

/// Seqs that were seen, as ranges: accepted ones come in one piece.
#[derive(Default)]
struct Seen {
    /// First and last of each range, none of which touch.
    ranges: BTreeSet<(u64, u64)>,
}

impl Seen {
    /// Adds one; false where it was there.
    fn add(&mut self, Seq(seq): Seq) -> bool {
        let before = self.ranges.range(..=(seq, u64::MAX)).next_back().copied();
        if before.is_some_and(|(_, last)| last >= seq) {
            return false;
        }
        let behind = self.ranges.range((seq, 0)..).next().copied();
        let (mut first, mut last) = (seq, seq);
        if let Some(range) = before.filter(|(_, last)| last + 1 == seq) {
            self.ranges.remove(&range);
            first = range.0;
        }
        if let Some(range) = behind.filter(|(first, _)| *first == seq + 1) {
            self.ranges.remove(&range);
            last = range.1;
        }
        self.ranges.insert((first, last));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seq_is_new_once_in_any_order() {
        let mut seen = Seen::default();
        let added: Vec<bool> = [5, 6, 9, 7, 8, 5, 9, 1, 7, 10].map(|seq| seen.add(Seq(seq))).into();
        assert_eq!(added, [true, true, true, true, true, false, false, true, false, true]);
        assert_eq!(seen.ranges.into_iter().collect::<Vec<_>>(), [(1, 1), (5, 10)]);
    }
}
