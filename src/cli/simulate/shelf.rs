//! The store of a simulated gateway: what waits, and nothing else. Everything is durable at once.
//!
//! Seqs are dense from 1, so an event's state is a byte; only what was begun has a record.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::arrivals::{Arrival, Traffic};
use crate::engine::{Queued, Settle, Verdict};
use crate::event::{Group, Lane, Seq, Wall};

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

#[derive(Debug)]
pub(super) struct Shelf<'t> {
    traffic: &'t Traffic,
    /// What the wall clock says when the first event arrives.
    epoch: Wall,
    stages: Vec<Stage>,
    queues: Vec<Queue>,
    /// By the lane of the traffic: the queue that it waits in.
    queue_of: Vec<u32>,
    numbers: HashMap<Lane, u32>,
    /// The order keys' names, by their numbers.
    orders: Vec<Group>,
    tried: HashMap<u64, Tried>,
    due: BTreeSet<(Wall, Seq)>,
    pub(super) delivered: u64,
    pub(super) dead: u64,
}

impl<'t> Shelf<'t> {
    /// An empty one, to which events of `traffic` come; `waits_in` says where those of a lane wait.
    pub(super) fn new(traffic: &'t Traffic, epoch: Wall, waits_in: impl Fn(&Lane) -> Lane) -> Self {
        let mut shelf = Self {
            traffic,
            epoch,
            stages: Vec::with_capacity(traffic.arrivals.len()),
            queues: Vec::new(),
            queue_of: Vec::with_capacity(traffic.lanes.len()),
            numbers: HashMap::new(),
            orders: (0..=traffic.orders()).map(|number| Group::of(&[number.to_string()])).collect(),
            tried: HashMap::new(),
            due: BTreeSet::new(),
            delivered: 0,
            dead: 0,
        };
        for lane in &traffic.lanes {
            let queue = shelf.queue(&waits_in(lane));
            shelf.queue_of.push(queue);
        }
        shelf
    }

    /// The number of a lane's queue.
    fn queue(&mut self, lane: &Lane) -> u32 {
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

    /// When the next event arrives, on the wall clock; `None` after the last.
    pub(super) fn next(&self) -> Option<Wall> {
        Some(self.came(self.traffic.arrivals.get(self.len())?))
    }

    fn came(&self, arrival: &Arrival) -> Wall {
        Wall(self.epoch.0 + arrival.at_us)
    }

    /// The next event arrives.
    pub(super) fn append(&mut self) -> Option<Queued> {
        let arrival = self.traffic.arrivals.get(self.len())?;
        let queue = self.queue_of.get(arrival.lane as usize).and_then(|queue| self.queues.get_mut(*queue as usize))?;
        self.stages.push(Stage::Fresh);
        let seq = self.stages.len() as u32;
        queue.fresh.push_back(seq);
        self.queued(seq)
    }

    /// An event's arrival and its queue's number.
    fn of(&self, seq: Seq) -> Option<(&'t Arrival, u32)> {
        let arrival = self.traffic.arrivals.get(usize::try_from(seq.0).ok()?.checked_sub(1)?)?;
        Some((arrival, *self.queue_of.get(arrival.lane as usize)?))
    }

    /// A fresh event as the engine is told of it.
    fn queued(&self, seq: u32) -> Option<Queued> {
        let seq = Seq(u64::from(seq));
        let (arrival, queue) = self.of(seq)?;
        Some(Queued {
            seq,
            lane: self.queues.get(queue as usize)?.lane.clone(),
            owner: None,
            order: if arrival.order == 0 { None } else { self.orders.get(arrival.order as usize).cloned() },
            received: self.came(arrival),
            replays: 0,
            attempts: 0,
            refused: 0,
            first_attempt: None,
            due: None,
        })
    }

    /// A lane's fresh events behind `after`, and whether there are more than `n`.
    pub(super) fn load(&mut self, lane: &Lane, after: Seq, n: usize) -> (Vec<Queued>, bool) {
        let Self { queues, numbers, stages, .. } = self;
        let Some(number) = numbers.get(lane).copied() else { return (Vec::new(), false) };
        let is_fresh = |seq: u32| stages.get(seq as usize - 1) == Some(&Stage::Fresh);
        if let Some(queue) = queues.get_mut(number as usize) {
            while queue.fresh.pop_front_if(|seq| !is_fresh(*seq)).is_some() {}
        }
        let Some(queue) = self.queues.get(number as usize) else { return (Vec::new(), false) };
        let from = queue.fresh.partition_point(|seq| u64::from(*seq) <= after.0);
        let is_fresh = |seq: &u32| self.stages.get(*seq as usize - 1) == Some(&Stage::Fresh);
        let mut seqs = queue.fresh.range(from..).copied().filter(is_fresh);
        let events = seqs.by_ref().take(n).filter_map(|seq| self.queued(seq)).collect();
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
        Some(Queued {
            attempts: tried.attempts,
            refused: tried.refused,
            first_attempt: Some(tried.first),
            due: tried.due,
            ..self.queued(u32::try_from(seq.0).ok()?)?
        })
    }

    /// An attempt of this event was refused (a 4xx).
    pub(super) fn refused(&mut self, seq: Seq) {
        if let Some(tried) = self.tried.get_mut(&seq.0) {
            tried.refused += 1;
        }
    }

    /// Makes a settlement durable.
    pub(super) fn settle(&mut self, settle: &Settle) {
        let seq = settle.seq;
        let Some(stage) = usize::try_from(seq.0).ok().and_then(|at| self.stages.get_mut(at.checked_sub(1)?)) else {
            return;
        };
        match &settle.verdict {
            Verdict::Begun => {
                *stage = Stage::Begun;
                let new = Tried { attempts: 0, refused: 0, first: settle.at, due: None };
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
                if let Some(queue) = self.of(seq).and_then(|(_, queue)| self.queues.get_mut(queue as usize)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::simulate::arrivals::Answer;

    fn settle(shelf: &mut Shelf<'_>, seq: u64, verdict: Verdict) {
        shelf.settle(&Settle { seq: Seq(seq), at: Wall(9), verdict });
    }

    fn seqs(found: &(Vec<Queued>, bool)) -> (Vec<u64>, bool) {
        (found.0.iter().map(|queued| queued.seq.0).collect(), found.1)
    }

    #[test]
    fn what_waits_is_given_in_order_and_what_was_begun_is_not() {
        let mut traffic = Traffic::default();
        let number = traffic.lane_of("kind", "a", None);
        for at_us in 0..5 {
            let order = if at_us == 4 { traffic.order(number, Group::of(&["k"])) } else { 0 };
            traffic.add(Arrival { at_us, lane: number, call_us: 0, order, answer: Answer::Status(200) }).unwrap();
        }
        let mut shelf = Shelf::new(&traffic, Wall(1), Lane::clone);
        let lane = traffic.lanes[0].clone();
        assert_eq!(shelf.next(), Some(Wall(1)));
        let orders: Vec<bool> = (0..5).map(|_| shelf.append().unwrap().order.is_some()).collect();
        assert_eq!((orders, shelf.next()), (vec![false, false, false, false, true], None));
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
