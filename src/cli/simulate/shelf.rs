//! The store of a simulated gateway: what waits, and nothing else. Everything is durable at once.
//!
//! Seqs are dense from 1, so an event's state is a byte; only what was begun has a record.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::engine::{Queued, Settle, Verdict};
use crate::event::{Lane, Seq, Wall};

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fresh,
    /// Begun, or retrying.
    Begun,
    Ended,
}

/// What was tried of an event that is not fresh.
#[derive(Clone, Copy, Debug)]
struct Tried {
    queue: u32,
    attempts: u32,
    refused: u32,
    first: Wall,
    due: Option<Wall>,
}

/// A lane and its events in order; those that are not fresh any more are left out when they are met.
#[derive(Debug)]
struct Queue {
    lane: Lane,
    fresh: VecDeque<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Shelf {
    stages: Vec<Stage>,
    received: Vec<u64>,
    queues: Vec<Queue>,
    numbers: HashMap<Lane, u32>,
    tried: HashMap<u64, Tried>,
    due: BTreeSet<(Wall, Seq)>,
    pub(super) delivered: u64,
    pub(super) dead: u64,
}

impl Shelf {
    /// The number of a lane's queue.
    pub(super) fn queue(&mut self, lane: &Lane) -> u32 {
        if let Some(number) = self.numbers.get(lane) {
            return *number;
        }
        let number = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        self.numbers.insert(lane.clone(), number);
        self.queues.push(Queue { lane: lane.clone(), fresh: VecDeque::new() });
        number
    }

    /// Events that arrived so far.
    pub(super) fn len(&self) -> usize {
        self.stages.len()
    }

    /// Events that have not ended.
    pub(super) fn pending(&self) -> u64 {
        self.len() as u64 - self.delivered - self.dead
    }

    /// Adds an event; `None` where there is no such queue.
    pub(super) fn append(&mut self, queue: u32, received: Wall) -> Option<Queued> {
        let there = self.queues.get_mut(queue as usize)?;
        self.stages.push(Stage::Fresh);
        self.received.push(received.0);
        let seq = self.stages.len() as u64;
        there.fresh.push_back(seq as u32);
        Some(fresh(seq, there.lane.clone(), received))
    }

    /// A lane's fresh events behind `after`, and whether there are more than `n`.
    pub(super) fn load(&mut self, lane: &Lane, after: Seq, n: usize) -> (Vec<Queued>, bool) {
        let Self { queues, numbers, stages, received, .. } = self;
        let Some(queue) = numbers.get(lane).and_then(|number| queues.get_mut(*number as usize)) else {
            return (Vec::new(), false);
        };
        let is_fresh = |seq: u32| stages.get(seq as usize - 1) == Some(&Stage::Fresh);
        while queue.fresh.pop_front_if(|seq| !is_fresh(*seq)).is_some() {}
        let from = queue.fresh.partition_point(|seq| u64::from(*seq) <= after.0);
        let mut seqs = queue.fresh.range(from..).copied().filter(|seq| is_fresh(*seq));
        let event = |seq: u32| {
            let at = received.get(seq as usize - 1).copied().unwrap_or_default();
            fresh(u64::from(seq), queue.lane.clone(), Wall(at))
        };
        let events = seqs.by_ref().take(n).map(event).collect();
        (events, seqs.next().is_some())
    }

    /// Retrying events behind `after`, in the order of their due times, and whether there are more than `n`.
    pub(super) fn due(&self, after: Option<(Wall, Seq)>, n: usize) -> (Vec<Queued>, bool) {
        let from = after.map_or((Wall(0), Seq(0)), |(due, seq)| (due, Seq(seq.0 + 1)));
        let mut keys = self.due.range(from..);
        let events = keys.by_ref().take(n).filter_map(|(_, seq)| self.retrying(*seq)).collect();
        (events, keys.next().is_some())
    }

    fn retrying(&self, seq: Seq) -> Option<Queued> {
        let tried = self.tried.get(&seq.0)?;
        let lane = self.queues.get(tried.queue as usize)?.lane.clone();
        let received = self.received.get(usize::try_from(seq.0).ok()?.checked_sub(1)?).copied()?;
        Some(Queued {
            attempts: tried.attempts,
            refused: tried.refused,
            first_attempt: Some(tried.first),
            due: tried.due,
            ..fresh(seq.0, lane, Wall(received))
        })
    }

    /// An attempt of this event was refused (a 4xx).
    pub(super) fn refused(&mut self, seq: Seq) {
        if let Some(tried) = self.tried.get_mut(&seq.0) {
            tried.refused += 1;
        }
    }

    /// Makes a settlement durable. `lane` is asked for where an event is begun.
    pub(super) fn settle(&mut self, settle: &Settle, queue_of: impl Fn(Seq) -> u32) {
        let seq = settle.seq;
        let Some(stage) = usize::try_from(seq.0).ok().and_then(|at| self.stages.get_mut(at.checked_sub(1)?)) else {
            return;
        };
        match &settle.verdict {
            Verdict::Begun => {
                *stage = Stage::Begun;
                let new = Tried { queue: queue_of(seq), attempts: 0, refused: 0, first: settle.at, due: None };
                self.tried.entry(seq.0).or_insert(new).attempts += 1;
            }
            Verdict::RetryAt(at) => {
                if let Some(tried) = self.tried.get_mut(&seq.0) {
                    if let Some(due) = tried.due.replace(*at) {
                        self.due.remove(&(due, seq));
                    }
                    self.due.insert((*at, seq));
                }
            }
            Verdict::Released => {
                *stage = Stage::Fresh;
                self.forget(seq);
                if let Some(queue) = self.queues.get_mut(queue_of(seq) as usize) {
                    let number = seq.0 as u32;
                    let at = queue.fresh.partition_point(|other| *other < number);
                    if queue.fresh.get(at) != Some(&number) {
                        queue.fresh.insert(at, number);
                    }
                }
            }
            Verdict::Delivered | Verdict::Dead(_) | Verdict::Discarded => {
                *stage = Stage::Ended;
                let is_delivered = settle.verdict == Verdict::Delivered;
                self.delivered += u64::from(is_delivered);
                self.dead += u64::from(!is_delivered);
                self.forget(seq);
            }
        }
    }

    fn forget(&mut self, seq: Seq) {
        if let Some(due) = self.tried.remove(&seq.0).and_then(|tried| tried.due) {
            self.due.remove(&(due, seq));
        }
    }
}

fn fresh(seq: u64, lane: Lane, received: Wall) -> Queued {
    let seq = Seq(seq);
    Queued {
        seq,
        lane,
        owner: None,
        order: None,
        received,
        replay: false,
        attempts: 0,
        refused: 0,
        first_attempt: None,
        due: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Group;

    fn settle(shelf: &mut Shelf, seq: u64, verdict: Verdict) {
        shelf.settle(&Settle { seq: Seq(seq), at: Wall(9), verdict }, |_| 0);
    }

    fn seqs(found: &(Vec<Queued>, bool)) -> (Vec<u64>, bool) {
        (found.0.iter().map(|queued| queued.seq.0).collect(), found.1)
    }

    #[test]
    fn what_waits_is_given_in_order_and_what_was_begun_is_not() {
        let mut shelf = Shelf::default();
        let lane = Lane { group: Group::of(&["a"]), inner: None };
        let queue = shelf.queue(&lane);
        (1..=5).for_each(|at| drop(shelf.append(queue, Wall(at))));
        settle(&mut shelf, 1, Verdict::Begun);
        settle(&mut shelf, 3, Verdict::Begun);
        assert_eq!(seqs(&shelf.load(&lane, Seq(0), 2)), (vec![2, 4], true));
        settle(&mut shelf, 1, Verdict::Released);
        assert_eq!(seqs(&shelf.load(&lane, Seq(0), 9)), (vec![1, 2, 4, 5], false));

        settle(&mut shelf, 3, Verdict::RetryAt(Wall(50)));
        settle(&mut shelf, 3, Verdict::Begun);
        settle(&mut shelf, 3, Verdict::RetryAt(Wall(70)));
        let due = shelf.due(None, 9);
        assert_eq!(seqs(&due), (vec![3], false));
        assert_eq!((due.0[0].attempts, due.0[0].due, due.0[0].first_attempt), (2, Some(Wall(70)), Some(Wall(9))));
        settle(&mut shelf, 3, Verdict::Dead("given up".into()));
        settle(&mut shelf, 2, Verdict::Delivered);
        assert_eq!((shelf.due(None, 9).0.len(), shelf.pending(), shelf.dead, shelf.delivered), (0, 3, 1, 1));
    }
}
