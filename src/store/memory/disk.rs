//! What is durable, and every rule about it. Pure: no future, no clock, no fault.
//!
//! An event stands in `entries` once, under its seq, and in each index at most once. Everything that changes it takes it out with all
//! its index places, changes it alone and puts it back, so that no index can be forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::event::{Event, EventId, Group, Lane, Seq, Wall};
use crate::store::{
    Appended, AttemptNote, Error, LaneSummary, Page, Pending, Query, Record, Refusal, Repeat, Retention, Settlement,
    Status, Story, Usage, Verdict,
};

/// What an event stands on, apart from its own bytes: ids, times, numbers. It keeps empty events from being free.
const FRAME_BYTES: usize = 64;

/// Records that one call of `list` looks at, so that nobody waits for a scan; see [`Page::next`].
const SCAN_MAX: usize = 10_000;

pub(super) struct Disk {
    retention: Retention,
    capacity: Option<u64>,
    /// Pending events that these groups may have.
    caps: HashMap<Group, u64>,
    /// The last seq given.
    last: u64,
    entries: BTreeMap<Seq, Entry>,
    ids: HashMap<EventId, Seq>,
    lanes: BTreeMap<Lane, Waiting>,
    due: BTreeSet<(Wall, Seq)>,
    open: BTreeSet<Seq>,
    /// Pending events by the time since which they wait.
    received: BTreeSet<(Wall, Seq)>,
    /// Ended events by the time at which their retention is over.
    ended: BTreeSet<(Wall, Seq)>,
    /// By fingerprint, the event that repeats are known by, with the end of its window.
    known: HashMap<[u8; 16], (EventId, Wall)>,
    bytes: u64,
    bytes_pending: u64,
}

/// A lane with pending events.
#[derive(Default)]
struct Waiting {
    pending: u64,
    fresh: BTreeSet<Seq>,
    retrying: u64,
    bytes: u64,
    received: BTreeSet<(Wall, Seq)>,
}

/// An event and what became of it.
struct Entry {
    event: Arc<Event>,
    bytes: u32,
    stage: Stage,
    attempts: u32,
    first_attempt: Option<Wall>,
    interrupted: u32,
    refused: u32,
    replays: u32,
    requeued: Option<Wall>,
    settled: Option<Wall>,
    notes: Vec<AttemptNote>,
    duplicate_of: Option<EventId>,
}

enum Stage {
    Fresh,
    Open,
    Retrying { due: Wall },
    Delivered { at: Wall },
    Dead { at: Wall, reason: Box<str> },
    Discarded { at: Wall },
    Suppressed { at: Wall },
}

impl Stage {
    fn status(&self) -> Status {
        match self {
            Self::Fresh => Status::Queued,
            Self::Open => Status::InFlight,
            Self::Retrying { .. } => Status::Retrying,
            Self::Delivered { .. } => Status::Delivered,
            Self::Dead { .. } => Status::Dead,
            Self::Discarded { .. } => Status::Discarded,
            Self::Suppressed { .. } => Status::Suppressed,
        }
    }

    fn due(&self) -> Option<Wall> {
        match self {
            Self::Retrying { due } => Some(*due),
            _ => None,
        }
    }

    /// When the retention of an ended event is over; `None` for a pending one, which is always kept.
    fn kept_until(&self, retention: &Retention) -> Option<Wall> {
        match self {
            Self::Fresh | Self::Open | Self::Retrying { .. } => None,
            Self::Delivered { at } | Self::Discarded { at } => Some(at.plus(retention.delivered)),
            Self::Dead { at, .. } => Some(at.plus(retention.dead)),
            Self::Suppressed { at } => Some(at.plus(retention.suppressed)),
        }
    }
}

impl Entry {
    fn new(event: Arc<Event>) -> Self {
        let bytes = bytes_of(&event);
        Self {
            event,
            bytes,
            stage: Stage::Fresh,
            attempts: 0,
            first_attempt: None,
            interrupted: 0,
            refused: 0,
            replays: 0,
            requeued: None,
            settled: None,
            notes: Vec::new(),
            duplicate_of: None,
        }
    }

    /// It has ended as it begins: it repeats `of`.
    fn suppress(&mut self, of: EventId) {
        self.duplicate_of = Some(of);
        self.settled = Some(self.event.received);
        self.stage = Stage::Suppressed { at: self.event.received };
    }

    /// Whether `verdict` is about an event that stands where this one does.
    fn takes(&self, verdict: &Verdict) -> bool {
        self.stage.status().is_pending() != matches!(verdict, Verdict::Requeued)
    }

    fn settle(&mut self, at: Wall, verdict: Verdict, attempt: Option<AttemptNote>) {
        self.settled = Some(at);
        self.refused += u32::from(attempt.as_ref().is_some_and(|note| note.refused));
        self.notes.extend(attempt);
        // An interruption is the one end of an attempt that does not break the row.
        if !matches!(verdict, Verdict::Begun | Verdict::Interrupted) {
            self.interrupted = 0;
        }
        self.stage = match verdict {
            Verdict::Begun => {
                self.attempts = self.attempts.saturating_add(1);
                self.first_attempt = self.first_attempt.or(Some(at));
                Stage::Open
            }
            Verdict::Interrupted => {
                self.interrupted = self.interrupted.saturating_add(1);
                Stage::Retrying { due: at }
            }
            Verdict::RetryAt(due) => Stage::Retrying { due },
            Verdict::Released => Stage::Fresh,
            Verdict::Delivered => Stage::Delivered { at },
            Verdict::Dead(reason) => Stage::Dead { at, reason },
            Verdict::Discarded => Stage::Discarded { at },
            Verdict::Requeued => {
                self.attempts = 0;
                self.refused = 0;
                self.first_attempt = None;
                self.replays = self.replays.saturating_add(u32::from(!matches!(self.stage, Stage::Suppressed { .. })));
                self.requeued = Some(at);
                Stage::Fresh
            }
        };
    }

    fn waits_from(&self) -> Wall {
        self.requeued.unwrap_or(self.event.received)
    }

    fn pending(&self, seq: Seq) -> Pending {
        Pending {
            seq,
            id: self.event.id,
            lane: self.event.lane.clone(),
            owner: self.event.owner.clone(),
            order: self.event.order.clone(),
            received: self.event.received,
            attempts: self.attempts,
            first_attempt: self.first_attempt,
            due: self.stage.due(),
            open: matches!(self.stage, Stage::Open),
            interrupted: self.interrupted,
            refused: self.refused,
            bytes: self.bytes,
            replays: self.replays,
            requeued: self.requeued,
        }
    }

    fn record(&self, seq: Seq) -> Record {
        let event = &self.event;
        Record {
            seq,
            id: event.id,
            lane: event.lane.clone(),
            order: event.order.clone(),
            owner: event.owner.clone(),
            key_source: event.key_source.clone(),
            source: Arc::clone(&event.source),
            received: event.received,
            provider_event_id: event.provider_event_id.clone(),
            event_type: event.event_type.clone(),
            status: self.stage.status(),
            attempts: self.attempts,
            settled: self.settled,
            due: self.stage.due(),
            reason: match &self.stage {
                Stage::Dead { reason, .. } => reason.clone(),
                _ => Box::default(),
            },
            body_bytes: u32::try_from(event.body.len()).unwrap_or(u32::MAX),
            replays: self.replays,
            duplicate_of: self.duplicate_of,
            trace: event.trace.map(|trace| trace.id),
        }
    }

    fn matches(&self, query: &Query) -> bool {
        let event = &self.event;
        query.group.as_ref().is_none_or(|group| group == event.group())
            && query.source.as_ref().is_none_or(|source| *source == event.source)
            && (query.status.is_empty() || query.status.contains(&self.stage.status()))
            && query.since.is_none_or(|since| event.received >= since)
            && query.until.is_none_or(|until| event.received < until)
            && query.provider_event_id.as_ref().is_none_or(|id| event.provider_event_id.as_ref() == Some(id))
    }
}

impl Disk {
    pub(super) fn new(retention: Retention) -> Self {
        Self {
            retention,
            capacity: None,
            caps: HashMap::new(),
            last: 0,
            entries: BTreeMap::new(),
            ids: HashMap::new(),
            lanes: BTreeMap::new(),
            due: BTreeSet::new(),
            open: BTreeSet::new(),
            received: BTreeSet::new(),
            ended: BTreeSet::new(),
            known: HashMap::new(),
            bytes: 0,
            bytes_pending: 0,
        }
    }

    pub(super) fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    pub(super) fn set_cap(&mut self, group: Group, events: u64) {
        self.caps.insert(group, events);
    }

    /// Whether as many events of a group are pending as may be.
    fn is_capped(&self, group: &Group) -> bool {
        let pending =
            || self.lanes.iter().filter(|(lane, _)| lane.group == *group).map(|(_, of)| of.pending).sum::<u64>();
        self.caps.get(group).is_some_and(|cap| pending() >= *cap)
    }

    /// Whether pending events alone leave no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.bytes_pending >= capacity)
    }

    /// Lets go of ended events whose retention is over at `now`.
    pub(super) fn forget_until(&mut self, now: Wall) {
        while let Some(&(until, seq)) = self.ended.first()
            && until <= now
        {
            self.take(seq);
        }
        self.known.retain(|_, (_, until)| *until > now);
    }

    pub(super) fn append(&mut self, batch: Vec<Arc<Event>>) -> Result<Appended, Error> {
        let mut appended = Appended::from(Seq(self.last + 1));
        let batch: Vec<Entry> = batch.into_iter().map(Entry::new).collect();
        self.make_room(batch.iter().map(|entry| u64::from(entry.bytes)).sum())?;
        for (number, mut entry) in batch.into_iter().enumerate() {
            match self.repeated(&entry.event) {
                Some(of) => {
                    appended.repeats.push(Repeat { number, of });
                    entry.suppress(of);
                }
                None if self.is_capped(&entry.event.lane.group) => {
                    appended.places.push(Err(Refusal::Backlog));
                    continue;
                }
                None => self.know(&entry.event),
            }
            let seq = self.next_seq();
            appended.places.push(Ok(seq));
            self.put(seq, entry);
        }
        if appended.places.iter().all(Result::is_ok) {
            appended.places.clear();
        }
        Ok(appended)
    }

    /// The event that this one repeats.
    fn repeated(&self, event: &Event) -> Option<EventId> {
        let fingerprint = event.fingerprint?;
        let dead = |id: &EventId| {
            let entry = self.ids.get(id).and_then(|seq| self.entries.get(seq));
            entry.is_some_and(|entry| matches!(entry.stage, Stage::Dead { .. }))
        };
        let (id, until) = self.known.get(&fingerprint.hash)?;
        (event.received < *until && !dead(id)).then_some(*id)
    }

    /// From now on repeats are known by this event.
    fn know(&mut self, event: &Event) {
        if let Some(fingerprint) = event.fingerprint {
            self.known.insert(fingerprint.hash, (event.id, event.received.plus(fingerprint.window)));
        }
    }

    /// Gives up ended events until `more` bytes fit; none when that cannot help.
    fn make_room(&mut self, more: u64) -> Result<(), Error> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        if more > 0 && self.bytes_pending + more > capacity {
            let pending = self.bytes_pending;
            return Err(Error::Full(format!("{more} bytes do not fit: {pending} of {capacity} wait for delivery")));
        }
        while self.bytes + more > capacity
            && let Some(&(_, seq)) = self.ended.first()
        {
            self.take(seq);
        }
        Ok(())
    }

    /// How many settlements were about an event that does not stand where they apply.
    pub(super) fn settle(&mut self, batch: Vec<Settlement>) -> usize {
        batch.into_iter().map(|settlement| usize::from(!self.settle_one(settlement))).sum()
    }

    /// One answer a seq: how the event is pending now.
    pub(super) fn requeue(&mut self, seqs: &[Seq], at: Wall) -> Vec<Option<Pending>> {
        let mut answers = Vec::with_capacity(seqs.len());
        for &seq in seqs {
            let next = Seq(self.last + 1);
            let done = self.settle_one(Settlement { seq, at, verdict: Verdict::Requeued, attempt: None });
            answers.push(self.entries.get(&next).filter(|_| done).map(|entry| entry.pending(next)));
        }
        answers
    }

    fn settle_one(&mut self, settlement: Settlement) -> bool {
        let Settlement { seq, at, verdict, attempt } = settlement;
        if !self.entries.get(&seq).is_some_and(|entry| entry.takes(&verdict)) {
            return false;
        }
        let Some(mut entry) = self.take(seq) else { return false };
        let seq = if verdict == Verdict::Requeued { self.next_seq() } else { seq };
        entry.settle(at, verdict, attempt);
        self.put(seq, entry);
        true
    }

    fn next_seq(&mut self) -> Seq {
        self.last += 1;
        Seq(self.last)
    }

    /// Puts an entry in, with all its index places.
    fn put(&mut self, seq: Seq, entry: Entry) {
        self.ids.insert(entry.event.id, seq);
        self.bytes += u64::from(entry.bytes);
        if let Some(until) = entry.stage.kept_until(&self.retention) {
            self.ended.insert((until, seq));
        } else {
            self.received.insert((entry.waits_from(), seq));
            self.bytes_pending += u64::from(entry.bytes);
            let lane = self.lanes.entry(entry.event.lane.clone()).or_default();
            lane.pending += 1;
            lane.bytes += u64::from(entry.bytes);
            lane.received.insert((entry.waits_from(), seq));
            match entry.stage {
                Stage::Fresh => {
                    lane.fresh.insert(seq);
                }
                Stage::Retrying { due } => {
                    lane.retrying += 1;
                    self.due.insert((due, seq));
                }
                _ => {
                    self.open.insert(seq);
                }
            }
        }
        self.entries.insert(seq, entry);
    }

    /// Takes an entry out, with all its index places: the reverse of [`Disk::put`].
    fn take(&mut self, seq: Seq) -> Option<Entry> {
        let entry = self.entries.remove(&seq)?;
        self.ids.remove(&entry.event.id);
        self.bytes -= u64::from(entry.bytes);
        if let Some(until) = entry.stage.kept_until(&self.retention) {
            self.ended.remove(&(until, seq));
            return Some(entry);
        }
        self.received.remove(&(entry.waits_from(), seq));
        self.bytes_pending -= u64::from(entry.bytes);
        self.open.remove(&seq);
        let lane = self.lanes.get_mut(&entry.event.lane).expect("a pending entry's lane is indexed by put");
        lane.pending -= 1;
        lane.bytes -= u64::from(entry.bytes);
        lane.received.remove(&(entry.waits_from(), seq));
        lane.fresh.remove(&seq);
        if let Some(due) = entry.stage.due() {
            lane.retrying -= 1;
            self.due.remove(&(due, seq));
        }
        if lane.pending == 0 {
            self.lanes.remove(&entry.event.lane);
        }
        Some(entry)
    }

    pub(super) fn lanes(&self, after: Option<&Lane>, limit: usize) -> Vec<LaneSummary> {
        let from = after.map_or(Unbounded, Excluded);
        let lanes = self.lanes.range::<Lane, _>((from, Unbounded)).take(limit);
        lanes
            .map(|(lane, waiting)| LaneSummary {
                lane: lane.clone(),
                fresh: waiting.fresh.len() as u64,
                retrying: waiting.retrying,
                bytes: waiting.bytes,
                oldest: waiting.received.first().map_or(Wall(0), |(received, _)| *received),
            })
            .collect()
    }

    pub(super) fn load(&self, lane: &Lane, after: Seq, limit: usize) -> Vec<Pending> {
        let Some(waiting) = self.lanes.get(lane) else { return Vec::new() };
        self.pending(waiting.fresh.range((Excluded(after), Unbounded)).copied(), limit)
    }

    pub(super) fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> Vec<Pending> {
        let from = after.map_or(Unbounded, Excluded);
        self.pending(self.due.range((from, Unbounded)).map(|&(_, seq)| seq), limit)
    }

    pub(super) fn open(&self, after: Seq, limit: usize) -> Vec<Pending> {
        self.pending(self.open.range((Excluded(after), Unbounded)).copied(), limit)
    }

    fn pending(&self, seqs: impl Iterator<Item = Seq>, limit: usize) -> Vec<Pending> {
        seqs.take(limit).filter_map(|seq| Some(self.entries.get(&seq)?.pending(seq))).collect()
    }

    pub(super) fn read(&self, seqs: &[Seq]) -> Vec<Option<Arc<Event>>> {
        seqs.iter().map(|seq| Some(Arc::clone(&self.entries.get(seq)?.event))).collect()
    }

    pub(super) fn find(&self, id: EventId) -> Option<Story> {
        let seq = *self.ids.get(&id)?;
        let entry = self.entries.get(&seq)?;
        Some(Story { record: entry.record(seq), attempts: entry.notes.clone() })
    }

    pub(super) fn list(&self, query: &Query) -> Page {
        let behind = match query.behind {
            None => (Unbounded, Unbounded),
            Some(seq) if query.oldest_first => (Excluded(seq), Unbounded),
            Some(seq) => (Unbounded, Excluded(seq)),
        };
        let entries = self.entries.range(behind);
        if query.oldest_first { page(entries, query) } else { page(entries.rev(), query) }
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            pending: self.received.len() as u64,
            history: self.ended.len() as u64,
            lanes: self.lanes.len() as u64,
            bytes: self.bytes,
            free: self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.bytes)),
            oldest: self.received.first().map(|&(received, _)| received),
            room: Usage::UNLIMITED,
            room_bytes: Usage::UNLIMITED,
            ..Usage::default()
        }
    }
}

fn page<'a>(mut entries: impl Iterator<Item = (&'a Seq, &'a Entry)>, query: &Query) -> Page {
    let mut page = Page::default();
    for (&seq, entry) in entries.by_ref().take(SCAN_MAX) {
        (page.next, page.reached) = (Some(seq), Some(entry.event.received));
        if entry.matches(query) {
            page.records.push(entry.record(seq));
            if page.records.len() == query.limit {
                break;
            }
        }
    }
    if entries.next().is_none() {
        (page.next, page.reached) = (None, None);
    }
    page
}

fn bytes_of(event: &Event) -> u32 {
    let headers = event.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let texts = [event.target.len(), event.source.len(), event.lane.group.as_str().len(), event.verified.len()];
    let bytes = FRAME_BYTES + event.body.len() + headers.sum::<usize>() + texts.iter().sum::<usize>();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
