//! What the store knows in memory: everything since the last checkpoint, and the sums over all events.
//!
//! A [`Delta`] has a row for every event that something happened to since a checkpoint, and lanes with their counts. There are at most two: the
//! *active* one, which the writer changes after each batch, and the *frozen* one, which a checkpoint is bringing
//! into the index. An event's row is looked for in the active delta, the frozen one and the index, in this order;
//! what is found first is the truth.
//!
//! A row has places (in queues, lanes, by id) and is counted in sums; it gets them all in [`State::attach`] and loses them all
//! in [`State::detach`]. The one shortcut is [`State::change`], the settlement of a pending event. Live batches and those that are read
//! again go the same way ([`State::apply`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::bucket::Bucket;
use super::log::Place;
use super::moments::Moments;
use super::repeats::{Hash, Known};
use super::row::{Noted, Row};
use super::{Retention, Status, Verdict};
use crate::event::{EventId, Lane, NumberMap, Seq, Wall};

/// How an event stands in the index, as far as its keys there depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Fresh,
    Open,
    Due(Wall),
    Ended(Bucket),
}

impl Base {
    pub(super) fn of(row: &Row) -> Self {
        match (row.bucket, row.status(), row.state.due) {
            (Some(bucket), _, _) => Self::Ended(bucket),
            (None, Status::InFlight, _) => Self::Open,
            (None, _, Some(due)) => Self::Due(due),
            (None, _, None) => Self::Fresh,
        }
    }
}

/// A row of a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) row: Row,
    /// How the index has it, once the frozen delta is in; `None`: not at all.
    pub(super) base: Option<Base>,
    /// The event is no more under this seq; the row says which keys to remove.
    pub(super) gone: bool,
}

impl Entry {
    /// The entry of an event that was just accepted.
    pub(super) fn accepted(row: Row) -> Box<Self> {
        Box::new(Self { row, base: None, gone: false })
    }
}

/// Pending events of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) fresh: u64,
    pub(super) retrying: u64,
    pub(super) open: u64,
    pub(super) bytes: u64,
    /// Since when they wait. A lane that waits takes some 100 bytes for it, a long one 1 KB.
    pub(super) received: Moments<32>,
}

impl Counts {
    pub(super) fn pending(&self) -> u64 {
        self.fresh + self.retrying + self.open
    }
}

/// A lane as a delta has it: the counts are those of all its events, the set only has those of the delta.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneEntry {
    pub(super) counts: Counts,
    pub(super) fresh: BTreeSet<u64>,
}

/// What happened since a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Delta {
    pub(super) rows: BTreeMap<u64, Box<Entry>>,
    pub(super) ids: NumberMap<EventId, Seq>,
    pub(super) lanes: HashMap<Lane, LaneEntry>,
    pub(super) due: BTreeSet<(Wall, u64)>,
    pub(super) open: BTreeSet<u64>,
    /// Fingerprints of events that were accepted.
    pub(super) known: HashMap<Hash, Known>,
}

impl Delta {
    pub(super) fn len(&self) -> usize {
        self.rows.len().max(self.lanes.len())
    }

    /// From now on an event is known by its fingerprint.
    pub(super) fn know(&mut self, hash: Hash, known: Known) {
        let there = self.known.entry(hash).or_insert(known);
        *there = known.max(*there);
    }

    /// Gives a row its places, the row itself apart. True when it is the first pending one of its lane.
    fn join(&mut self, row: &Row) -> bool {
        self.ids.insert(row.id, row.seq);
        if !row.is_pending() {
            return false;
        }
        let lane = lane_entry(&mut self.lanes, &row.lane);
        let first = lane.counts.pending() == 0;
        lane.counts.bytes += u64::from(row.state.bytes);
        lane.counts.received.add(row.waits_from().0);
        stand(lane, &mut self.due, &mut self.open, Base::of(row), row.seq.0);
        first
    }

    /// Takes its places away. True when it was the last pending one of its lane.
    fn leave(&mut self, row: &Row) -> bool {
        // A requeued event has its id under another seq already.
        if self.ids.get(&row.id) == Some(&row.seq) {
            self.ids.remove(&row.id);
        }
        row.is_pending() && self.stop_waiting(row, Base::of(row))
    }

    /// Takes the places of a pending event away, which stood as `before` says. True when it was the last of its lane.
    fn stop_waiting(&mut self, row: &Row, before: Base) -> bool {
        let lane = lane_entry(&mut self.lanes, &row.lane);
        let last = lane.counts.pending() == 1;
        lane.counts.bytes = lane.counts.bytes.saturating_sub(u64::from(row.state.bytes));
        lane.counts.received.remove(row.waits_from().0);
        unstand(lane, &mut self.due, &mut self.open, before, row.seq.0);
        last
    }
}

fn lane_entry<'a>(lanes: &'a mut HashMap<Lane, LaneEntry>, lane: &Lane) -> &'a mut LaneEntry {
    // Nearly always it is there; then its name is not copied.
    if !lanes.contains_key(lane) {
        lanes.insert(lane.clone(), LaneEntry::default());
    }
    lanes.get_mut(lane).expect("inserted just above")
}

fn stand(lane: &mut LaneEntry, due: &mut BTreeSet<(Wall, u64)>, open: &mut BTreeSet<u64>, base: Base, seq: u64) {
    match base {
        Base::Fresh => {
            lane.counts.fresh += 1;
            lane.fresh.insert(seq);
        }
        Base::Open => {
            lane.counts.open += 1;
            open.insert(seq);
        }
        Base::Due(at) => {
            lane.counts.retrying += 1;
            due.insert((at, seq));
        }
        Base::Ended(_) => {}
    }
}

fn unstand(lane: &mut LaneEntry, due: &mut BTreeSet<(Wall, u64)>, open: &mut BTreeSet<u64>, base: Base, seq: u64) {
    match base {
        Base::Fresh => {
            lane.counts.fresh = lane.counts.fresh.saturating_sub(1);
            lane.fresh.remove(&seq);
        }
        Base::Open => {
            lane.counts.open = lane.counts.open.saturating_sub(1);
            open.remove(&seq);
        }
        Base::Due(at) => {
            lane.counts.retrying = lane.counts.retrying.saturating_sub(1);
            due.remove(&(at, seq));
        }
        Base::Ended(_) => {}
    }
}

/// Sums over events of one fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) rows: u64,
    /// Bytes of records that these events need, by segment.
    pub(super) pins: BTreeMap<u32, u64>,
    /// When ended ones ended.
    pub(super) ends: Moments<256>,
}

/// Sums over all events. They go into each checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Lanes with pending events.
    pub(super) lanes: u64,
    /// Since when pending events wait. A backlog of three days is told apart by the minute.
    pub(super) received: Moments<4096>,
    /// Pending events (`None`), and ended ones by bucket.
    pub(super) held: BTreeMap<Option<Bucket>, Held>,
    /// For a segment, the older ones with a birth that a record of it is about.
    pub(super) refs: BTreeMap<u32, BTreeSet<u32>>,
}

impl Sums {
    pub(super) fn pending(&self) -> u64 {
        self.held.get(&None).map_or(0, |held| held.rows)
    }

    /// Ended events that are kept at `now`.
    pub(super) fn history(&self, retention: &Retention, now: Wall) -> u64 {
        let kept = |(bucket, held): (&Option<Bucket>, &Held)| {
            let bucket = bucket.as_ref()?;
            let since = now.0.checked_sub(micros(bucket.family.retention(retention)));
            // What ended at that moment or before is past retention.
            Some(match since {
                Some(since) if since >= bucket.start => held.ends.after(since - bucket.start),
                _ => held.rows,
            })
        };
        self.held.iter().filter_map(kept).sum()
    }

    /// Counts a row in.
    fn hold(&mut self, row: &Row) {
        let held = self.held.entry(row.bucket).or_default();
        held.rows += 1;
        match row.bucket {
            Some(bucket) => held.ends.add(row.ended().0.saturating_sub(bucket.start)),
            None => self.received.add(row.waits_from().0),
        }
        for (segment, bytes) in row.all_pins() {
            *held.pins.entry(segment).or_default() += bytes;
        }
    }

    /// Counts a row out.
    fn release(&mut self, row: &Row) {
        let Some(held) = self.held.get_mut(&row.bucket) else { return };
        held.rows = held.rows.saturating_sub(1);
        match row.bucket {
            Some(bucket) => held.ends.remove(row.ended().0.saturating_sub(bucket.start)),
            None => self.received.remove(row.waits_from().0),
        }
        for (segment, bytes) in row.all_pins() {
            if let Some(sum) = held.pins.get_mut(&segment) {
                *sum = sum.saturating_sub(bytes);
                if *sum == 0 {
                    held.pins.remove(&segment);
                }
            }
        }
        if held.rows == 0 {
            self.held.remove(&row.bucket);
        }
    }

    /// A row that is counted needs more bytes of a segment.
    fn pin(&mut self, bucket: Option<Bucket>, segment: u32, bytes: u64) {
        *self.held.entry(bucket).or_default().pins.entry(segment).or_default() += bytes;
    }

    /// Bytes of each segment that are needed.
    pub(super) fn live(&self) -> BTreeMap<u32, u64> {
        let mut live = BTreeMap::new();
        for (&segment, &bytes) in self.held.values().flat_map(|held| &held.pins) {
            *live.entry(segment).or_default() += bytes;
        }
        live
    }

    pub(super) fn refer(&mut self, segment: u32, births: &[u32]) {
        if !births.is_empty() {
            self.refs.entry(segment).or_default().extend(births.iter().filter(|&&birth| birth != segment));
        }
    }

    /// A segment is deleted: nothing can be born of it any more.
    pub(super) fn forget(&mut self, segment: u32) {
        self.refs.remove(&segment);
        self.refs.retain(|_, births| {
            births.remove(&segment);
            !births.is_empty()
        });
    }
}

/// A row that the active delta does not have, with how the index has it.
pub(super) type Fetched = Option<Box<(Row, Base)>>;

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// One change, as a record of the log says it.
pub(super) enum Step {
    /// Boxed as it will stand in the delta.
    Accept(Box<Entry>, Option<(Hash, Known)>),
    Settle(Settle),
    /// The row as it is after the copy; what it was is forgotten.
    Copy {
        row: Box<Row>,
        /// The seq that it was known by before: its own, or another one that was requeued.
        was: Seq,
        /// Segments with a birth of the event under its seq before.
        births: Vec<u32>,
        known: Option<(Hash, Known)>,
        fetched: Fetched,
    },
    Gone {
        seq: Seq,
        births: Vec<u32>,
        segment: u32,
        fetched: Fetched,
    },
}

/// A settlement with what applying it needs.
pub(super) struct Settle {
    pub(super) seq: Seq,
    pub(super) at: Wall,
    pub(super) verdict: Verdict,
    pub(super) place: Place,
    pub(super) noted: Option<Noted>,
    pub(super) births: Vec<u32>,
    /// The row, where the active delta does not have it.
    pub(super) fetched: Fetched,
}

/// What the memory says of a seq.
pub(super) enum Seen<'a> {
    /// It stands so.
    Row(&'a Row),
    /// There is no such event.
    Gone,
    /// The index knows.
    AskIndex,
}

/// All of it, behind one lock.
pub(super) struct State {
    retention: Retention,
    pub(super) active: Delta,
    pub(super) frozen: Option<Arc<Delta>>,
    /// Grows when a frozen delta has gone into the index: who read the index before must read again.
    pub(super) epoch: u64,
    pub(super) sums: Sums,
}

impl State {
    pub(super) fn new(retention: Retention, sums: Sums) -> Self {
        Self { retention, active: Delta::default(), frozen: None, epoch: 0, sums }
    }

    /// The deltas, the newer first.
    pub(super) fn deltas(&self) -> impl Iterator<Item = &Delta> {
        std::iter::once(&self.active).chain(self.frozen.as_deref())
    }

    pub(super) fn see(&self, seq: Seq) -> Seen<'_> {
        match self.deltas().find_map(|delta| delta.rows.get(&seq.0)) {
            Some(entry) if entry.gone => Seen::Gone,
            Some(entry) => Seen::Row(&entry.row),
            None => Seen::AskIndex,
        }
    }

    /// The row of the frozen delta with the base that it will have, for a change in the active one.
    pub(super) fn thawing(&self, seq: Seq) -> Option<Fetched> {
        let entry = self.frozen.as_ref()?.rows.get(&seq.0)?;
        Some((!entry.gone).then(|| Box::new((entry.row.clone(), Base::of(&entry.row)))))
    }

    /// The counts of a lane, where the memory has them.
    pub(super) fn counts(&self, lane: &Lane) -> Option<Counts> {
        self.deltas().find_map(|delta| delta.lanes.get(lane)).map(|entry| entry.counts.clone())
    }

    /// Tells the active delta what a lane's counts are, before one of its events changes.
    pub(super) fn learn_lane(&mut self, lane: &Lane, counts: Counts) {
        self.active.lanes.insert(lane.clone(), LaneEntry { counts, fresh: BTreeSet::new() });
    }

    /// Does one change. False when it was about an event that is not there.
    pub(super) fn apply(&mut self, step: Step) -> bool {
        match step {
            Step::Accept(entry, known) => {
                self.know(known);
                self.attach_entry(entry);
                true
            }
            Step::Settle(settle) => self.settle(settle),
            Step::Copy { mut row, was, births, known, fetched } => {
                self.know(known);
                self.sums.refer(row.place.segment, &births);
                row.file(&self.retention);
                let row_seq = row.seq;
                let buried = self.active.rows.get(&was.0).filter(|entry| entry.gone).and_then(|entry| entry.base);
                let before = self.take(was, fetched);
                match before {
                    Some((before, base)) if was != row.seq => {
                        self.bury(before, base);
                        self.attach(*row, None);
                    }
                    Some((_, base)) => self.attach(*row, base),
                    None => self.attach(*row, if was == row_seq { buried } else { None }),
                }
                true
            }
            Step::Gone { seq, births, segment, fetched } => {
                self.sums.refer(segment, &births);
                let born_there = |row: &Row| births.contains(&row.place.segment);
                let here = match self.active.rows.get(&seq.0) {
                    Some(entry) => !entry.gone && born_there(&entry.row),
                    None => fetched.as_ref().is_some_and(|fetched| born_there(&fetched.0)),
                };
                if here && let Some((row, base)) = self.take(seq, fetched) {
                    self.bury(row, base);
                }
                here
            }
        }
    }

    fn know(&mut self, known: Option<(Hash, Known)>) {
        if let Some((hash, known)) = known {
            self.active.know(hash, known);
        }
    }

    /// What memory knows of a fingerprint, `asked` being what the index does.
    pub(super) fn known(&self, hash: &Hash, asked: Option<Known>) -> Option<Known> {
        self.deltas().filter_map(|delta| delta.known.get(hash)).copied().chain(asked).max()
    }

    fn settle(&mut self, settle: Settle) -> bool {
        let Settle { seq, at, verdict, place, noted, births, fetched } = settle;
        self.sums.refer(place.segment, &births);
        // A row that is not here yet comes with all its places, and then changes in place like any other.
        if !self.active.rows.contains_key(&seq.0) {
            let Some((row, base)) = self.take(seq, fetched) else { return false };
            self.attach(row, base);
        }
        // Taken out for a moment, which is moving a pointer.
        let Some(mut entry) = self.active.rows.remove(&seq.0) else { return false };
        let changes = !entry.gone && entry.row.is_pending() && verdict != Verdict::Requeued;
        if changes {
            self.change(&mut entry.row, at, &verdict, place, noted);
        }
        self.active.rows.insert(seq.0, entry);
        changes
    }

    /// Changes a pending row, and those of its places that change with it.
    fn change(&mut self, row: &mut Row, at: Wall, verdict: &Verdict, place: Place, noted: Option<Noted>) {
        let before = Base::of(row);
        if verdict.ends() {
            self.sums.release(row);
            row.settle(at, verdict, place, noted);
            row.file(&self.retention);
            self.sums.lanes -= u64::from(self.active.stop_waiting(row, before));
            self.sums.hold(row);
            return;
        }
        row.settle(at, verdict, place, noted);
        self.sums.pin(row.bucket, place.segment, u64::from(place.length));
        let lane = lane_entry(&mut self.active.lanes, &row.lane);
        let (due, open) = (&mut self.active.due, &mut self.active.open);
        unstand(lane, due, open, before, row.seq.0);
        stand(lane, due, open, Base::of(row), row.seq.0);
    }

    /// Takes a row out of everything.
    fn take(&mut self, seq: Seq, fetched: Fetched) -> Option<(Row, Option<Base>)> {
        let (row, base) = match self.active.rows.remove(&seq.0) {
            Some(entry) if entry.gone => {
                self.active.rows.insert(seq.0, entry);
                return None;
            }
            Some(entry) => (entry.row, entry.base),
            None => fetched.map(|fetched| (fetched.0, Some(fetched.1)))?,
        };
        self.detach(&row);
        Some((row, base))
    }

    /// Leaves a mark where the index still has the event.
    fn bury(&mut self, row: Row, base: Option<Base>) {
        if base.is_some() {
            self.active.rows.insert(row.seq.0, Box::new(Entry { row, base, gone: true }));
        }
    }

    fn detach(&mut self, row: &Row) {
        self.sums.release(row);
        self.sums.lanes -= u64::from(self.active.leave(row));
    }

    fn attach(&mut self, row: Row, base: Option<Base>) {
        self.attach_entry(Box::new(Entry { row, base, gone: false }));
    }

    fn attach_entry(&mut self, entry: Box<Entry>) {
        self.sums.hold(&entry.row);
        self.sums.lanes += u64::from(self.active.join(&entry.row));
        self.active.rows.insert(entry.row.seq.0, entry);
    }

    /// Gives up a bucket: its events are past retention, or their room is needed.
    pub(super) fn drop_bucket(&mut self, bucket: Bucket) {
        self.sums.held.remove(&Some(bucket));
        // Rows of it that are still in memory would otherwise go into the index, and into a keyspace that nobody drops.
        let rows = self.active.rows.iter().filter(|(_, entry)| !entry.gone && entry.row.bucket == Some(bucket));
        let seqs: Vec<u64> = rows.map(|(&seq, _)| seq).collect();
        for seq in seqs {
            if let Some(entry) = self.active.rows.remove(&seq) {
                self.active.leave(&entry.row);
                self.bury(entry.row, entry.base);
            }
        }
    }

    /// Lets a checkpoint have all that happened so far.
    pub(super) fn freeze(&mut self) -> Arc<Delta> {
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// The index has the frozen delta.
    pub(super) fn thaw(&mut self) {
        self.frozen = None;
        self.epoch += 1;
    }
}
