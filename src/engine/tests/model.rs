//! A store in its simplest form, for tests of the engine and for the simulation: what is durable, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::{Queued, Settle, Verdict};
use super::event::{Group, Lane, Seq, Wall};

/// How a pending event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) event: Queued,
    /// An attempt has begun and not ended.
    pub(crate) open: bool,
}

/// What is durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) pending: BTreeMap<Seq, Row>,
    fresh: BTreeMap<Lane, BTreeSet<Seq>>,
    due: BTreeSet<(Wall, Seq)>,
    pub(crate) ended: BTreeMap<Seq, Verdict>,
    last: u64,
}

impl Model {
    /// Makes an event durable that belongs to `home` and waits in `place`, where that is another lane.
    pub(crate) fn append(
        &mut self,
        home: &Lane,
        place: Option<Lane>,
        order: Option<Group>,
        replay: bool,
        received: Wall,
    ) -> Queued {
        self.append_in(0, home, place, order, replay, received)
    }

    /// The same, in a section of its own.
    pub(crate) fn append_in(
        &mut self,
        section: u64,
        home: &Lane,
        place: Option<Lane>,
        order: Option<Group>,
        replay: bool,
        received: Wall,
    ) -> Queued {
        self.last += 1;
        let owner = place.is_some().then(|| home.clone());
        let lane = place.unwrap_or_else(|| home.clone());
        let event = Queued {
            seq: Seq(section << Seq::SECTION_SHIFT | self.last),
            lane: lane.clone(),
            owner,
            order,
            received,
            replays: u32::from(replay),
            attempts: 0,
            refused: 0,
            first_attempt: None,
            due: None,
        };
        self.fresh.entry(lane).or_default().insert(event.seq);
        self.pending.insert(event.seq, Row { event: event.clone(), open: false });
        event
    }

    /// Makes a settlement durable. False when it is about an event that is not pending.
    pub(crate) fn settle(&mut self, settle: &Settle) -> bool {
        let Some(row) = self.pending.get_mut(&settle.seq) else { return false };
        let (lane, seq) = (row.event.lane.clone(), settle.seq);
        if settle.verdict == Verdict::Begun {
            row.open = true;
            row.event.attempts += 1;
            row.event.first_attempt.get_or_insert(settle.at);
            if let Some(fresh) = self.fresh.get_mut(&lane) {
                fresh.remove(&seq);
            }
            return true;
        }
        if let Some(due) = row.event.due.take() {
            self.due.remove(&(due, seq));
        }
        row.open = false;
        match &settle.verdict {
            Verdict::RetryAt(due) => {
                row.event.due = Some(*due);
                self.due.insert((*due, seq));
            }
            Verdict::Released => {
                row.event.attempts -= 1;
                self.fresh.entry(lane).or_default().insert(seq);
            }
            ended => {
                self.ended.insert(seq, ended.clone());
                self.pending.remove(&seq);
                if let Some(fresh) = self.fresh.get_mut(&lane) {
                    fresh.remove(&seq);
                }
            }
        }
        true
    }

    /// A lane's fresh events behind `after`, and whether there are more than `n`.
    pub(crate) fn load(&self, lane: &Lane, after: Seq, n: usize) -> (Vec<Queued>, bool) {
        let Some(fresh) = self.fresh.get(lane) else { return (Vec::new(), false) };
        let mut seqs = fresh.range(Seq(after.0 + 1)..);
        let events = seqs.by_ref().take(n).filter_map(|seq| self.event(*seq)).collect();
        (events, seqs.next().is_some())
    }

    /// Retrying events behind `after`, in order of their due times. One whose attempt is under way is still among them.
    pub(crate) fn due(&self, after: Option<(Wall, Seq)>, n: usize) -> (Vec<Queued>, bool) {
        let from = after.map_or((Wall(0), Seq(0)), |(due, seq)| (due, Seq(seq.0 + 1)));
        let mut keys = self.due.range(from..);
        let events = keys.by_ref().take(n).filter_map(|(_, seq)| self.event(*seq)).collect();
        (events, keys.next().is_some())
    }

    fn event(&self, seq: Seq) -> Option<Queued> {
        self.pending.get(&seq).map(|row| row.event.clone())
    }

    /// After a crash: attempts that were under way are interrupted and due at once.
    pub(crate) fn interrupt(&mut self, now: Wall) {
        let open: Vec<Seq> = self.pending.iter().filter(|(_, row)| row.open).map(|(seq, _)| *seq).collect();
        for seq in open {
            self.settle(&Settle { seq, at: now, verdict: Verdict::RetryAt(now) });
        }
    }

    /// Every lane with pending events: how many are fresh, how many retrying.
    pub(crate) fn lanes(&self) -> BTreeMap<Lane, (u64, u64, Wall)> {
        let mut lanes = BTreeMap::new();
        for row in self.pending.values() {
            let received = row.event.received;
            let counts = lanes.entry(row.event.lane.clone()).or_insert((0, 0, received));
            counts.2 = counts.2.min(received);
            if row.event.due.is_some() {
                counts.1 += 1;
            } else {
                counts.0 += 1;
            }
        }
        lanes
    }
}
