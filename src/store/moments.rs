//! How many events there are by moment, without a row each: when those of a bucket ended, when those that wait were received.
//!
//! Moments are told apart exactly as long as there are few different ones; beyond that, neighbours are counted together. What
//! comes later is told apart again, so a count that shrinks gets exact with time.

use std::collections::VecDeque;

use super::wire::{Damaged, Reader, put_number};

/// Events that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
    count: u64,
}

/// Counts by moment in microseconds, of at most `MAX` spans of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moments<const MAX: usize> {
    /// In the order of time; they do not touch one another.
    spans: VecDeque<Span>,
}

impl<const MAX: usize> Moments<MAX> {
    pub(super) fn add(&mut self, moment: u64) {
        let at = self.behind(moment);
        match self.spans.get_mut(at) {
            Some(span) if span.first <= moment => span.count += 1,
            _ => {
                self.spans.insert(at, Span { first: moment, last: moment, count: 1 });
                if self.spans.len() > MAX {
                    self.join_neighbours();
                }
            }
        }
    }

    /// Counts one out that was counted in.
    pub(super) fn remove(&mut self, moment: u64) {
        let at = self.behind(moment);
        if let Some(span) = self.spans.get_mut(at).filter(|span| span.first <= moment) {
            span.count = span.count.saturating_sub(1);
            if span.count == 0 {
                self.spans.remove(at);
            }
        }
    }

    /// The span that `moment` is in, or the first one behind it.
    fn behind(&self, moment: u64) -> usize {
        self.spans.partition_point(|span| span.last < moment)
    }

    /// Leaves half of the spans or fewer. Doing it once for so many additions makes one of them cheap.
    fn join_neighbours(&mut self) {
        let (Some(first), Some(last)) = (self.spans.front(), self.spans.back()) else { return };
        let width = (last.last - first.first) / (MAX as u64 / 2);
        let mut joined: VecDeque<Span> = VecDeque::with_capacity(MAX + 1);
        for &span in &self.spans {
            match joined.back_mut() {
                Some(before) if span.last - before.first <= width => {
                    before.last = span.last;
                    before.count += span.count;
                }
                _ => joined.push_back(span),
            }
        }
        self.spans = joined;
    }

    /// The first moment, or one shortly before it.
    pub(super) fn first(&self) -> Option<u64> {
        self.spans.front().map(|span| span.first)
    }

    /// How many there are after `moment`, or shortly before it.
    pub(super) fn after(&self, moment: u64) -> u64 {
        self.spans.iter().filter(|span| span.last > moment).map(|span| span.count).sum()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.spans.len() as u64);
        let mut before = 0;
        for &Span { first, last, count } in &self.spans {
            put_number(out, first - before);
            put_number(out, last - first);
            put_number(out, count);
            before = last;
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        const WHAT: &str = "the moments";
        let mut before = 0_u64;
        let spans = reader.list(WHAT, |r| {
            let first = before.checked_add(r.number(WHAT)?).ok_or(Damaged(WHAT))?;
            let last = first.checked_add(r.number(WHAT)?).ok_or(Damaged(WHAT))?;
            before = last;
            Ok(Span { first, last, count: r.number(WHAT)? })
        })?;
        Ok(Self { spans: spans.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_moments_are_counted_exactly() {
        let mut ends = Moments::<256>::default();
        for moment in [5, 5, 9] {
            ends.add(moment);
        }
        assert_eq!([ends.after(4), ends.after(5), ends.after(9)], [3, 1, 0]);
        ends.remove(5);
        assert_eq!(ends.after(0), 2);
        let mut out = Vec::new();
        ends.put(&mut out);
        assert_eq!(Moments::read(&mut Reader::new(&out)), Ok(ends));
    }

    #[test]
    fn many_moments_take_bounded_room_and_none_is_lost() {
        let mut ends = Moments::<256>::default();
        (0..100_000).for_each(|moment| ends.add(moment));
        assert!(ends.spans.len() <= 256);
        assert_eq!(ends.after(0), 100_000);
        let late = ends.after(50_000);
        assert!((49_999..51_000).contains(&late), "{late}");
        let first = ends.first();
        (0..100_000).for_each(|moment| ends.remove(moment));
        assert_eq!((first, ends.after(0), ends.first()), (Some(0), 0, None));
        ends.add(77);
        assert_eq!(ends.first(), Some(77), "exact again");
    }

    #[test]
    fn a_long_past_leaves_nothing_behind_it() {
        const DAY: u64 = 86_400_000_000;
        let mut waiting = Moments::<32>::default();
        let old: Vec<u64> = (0..1_000).map(|number| number * 3 * DAY / 1_000).collect();
        old.iter().for_each(|&moment| waiting.add(moment));
        let (before, oldest) = (&old[..500], old[500]);
        before.iter().for_each(|&moment| waiting.remove(moment));
        let first = waiting.first().expect("half is left");
        assert!(first <= oldest && oldest - first <= 3 * DAY / 16, "{first} for {oldest}");
        // Never empty, but what is left is young.
        (0..10).for_each(|number| waiting.add(4 * DAY + number));
        old[500..].iter().for_each(|&moment| waiting.remove(moment));
        waiting.remove(4 * DAY);
        assert_eq!(waiting.first(), Some(4 * DAY + 1), "told apart exactly");
    }
}
