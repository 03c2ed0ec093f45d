//! Events in a row, the first of them in place: most lanes of a million have one, and then it needs no memory of its own and is where the
//! lane is.

use std::collections::VecDeque;

use super::ev::Ev;
use crate::event::Seq;

#[derive(Debug, Default)]
pub(super) struct Fifo {
    /// One that came when there was no other.
    first: Option<Ev>,
    /// What came after it. Kept when it is empty, for who had two has two again.
    #[expect(
        clippy::box_collection,
        reason = "8 bytes in place of 32 in each of a million lanes that never have two events"
    )]
    rest: Option<Box<VecDeque<Ev>>>,
}

impl Fifo {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    pub(super) fn front(&self) -> Option<&Ev> {
        self.first.as_ref().or_else(|| self.rest.as_ref()?.front())
    }

    pub(super) fn push_back(&mut self, ev: Ev) {
        if self.is_empty() {
            self.first = Some(ev);
        } else {
            self.rest.get_or_insert_with(|| Box::new(VecDeque::with_capacity(1))).push_back(ev);
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Ev> {
        self.first.take().or_else(|| self.rest.as_mut()?.pop_front())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Ev> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }

    /// Takes the event with this seq out.
    pub(super) fn remove(&mut self, seq: Seq) -> Option<Ev> {
        if let Some(first) = self.first.take_if(|first| first.seq == seq) {
            return Some(first);
        }
        let rest = self.rest.as_mut()?;
        let at = rest.iter().position(|ev| ev.seq == seq)?;
        rest.remove(at)
    }

    /// A field of the cache line of the first one, for [`warm`](super::warm).
    pub(super) fn line(&self) -> u64 {
        self.front().map_or(0, |ev| ev.seq.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_in_the_order_in_which_they_came_and_any_can_be_taken_out() {
        let mut fifo = Fifo::default();
        for seq in 1..=5 {
            fifo.push_back(Ev::new(Seq(seq)));
        }
        assert_eq!((fifo.remove(Seq(1)).map(|ev| ev.seq), fifo.remove(Seq(9))), (Some(Seq(1)), None));
        assert_eq!((fifo.remove(Seq(4)).map(|ev| ev.seq), fifo.len()), (Some(Seq(4)), 3));
        assert_eq!(fifo.iter().map(|ev| ev.seq.0).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!(fifo.front().map(|ev| ev.seq), Some(Seq(2)));
        let left: Vec<u64> = std::iter::from_fn(|| fifo.pop_front()).map(|ev| ev.seq.0).collect();
        assert_eq!(left, [2, 3, 5]);
        assert!(fifo.is_empty());
        assert_eq!(fifo.len(), 0);
        fifo.push_back(Ev::new(Seq(6)));
        assert_eq!(fifo.len(), 1);
    }
}
