//! Tags, and the ordered structure in which ready lanes stand (R1).
//!
//! A [`Tag`] is virtual time: what a lane was charged, divided by its weight. A [`Heap`] orders ids by a key; a second
//! table, [`Places`], knows where each id stands, so that a lane can be moved or taken out without a search. Every
//! operation takes O(log n) steps and counts them, so that a test can say so.

/// Parts of a microsecond in which tags are counted, so that dividing a short call by a large weight loses nothing.
const UNIT: i128 = 1 << 20;

/// A lane's weight, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight(u64);

impl Weight {
    /// The weight of a lane inside its group.
    pub(super) const ONE: Self = Self(1_000);

    /// As a number, of which the highest weight has the highest there is.
    pub(super) fn thousandths(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// Out of range values become the nearest possible; what is not a number becomes 1.
    pub(super) fn from_f64(weight: f64) -> Self {
        if weight.is_nan() {
            return Self::ONE;
        }
        Self((weight.clamp(0.001, 1_000_000.0) * 1_000.0).round() as u64)
    }
}

/// A moment in virtual time. 128 bits: a lane of the lowest weight that holds a thousand slots for a century fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag(i128);

impl Tag {
    /// Of a lane that was never charged: it is raised to its head start when it becomes ready, from the first moment on.
    pub(super) const LOWEST: Self = Self(i128::MIN / 4);

    /// What `micros` of worker time are to a lane of this weight.
    pub(super) fn of(micros: u64, weight: Weight) -> Self {
        Self(i128::from(micros) * UNIT * 1_000 / i128::from(weight.0.max(1)))
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// In microseconds, for people.
    pub(super) fn micros(self) -> i64 {
        i64::try_from(self.0 / UNIT).unwrap_or(i64::MAX)
    }
}

/// Where a lane stands among ready ones: lowest tag first, then ready longest, then by number (I9: no two are equal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) tag: Tag,
    /// The step of the engine in which it became ready.
    pub(super) since: u64,
}

/// Where each id stands in its heap. An id is in at most one heap of those that share a table (I2).
#[derive(Debug, Default)]
pub(super) struct Places(Vec<u32>);

impl Places {
    const NOWHERE: u32 = u32::MAX;

    fn at(&self, id: u32) -> Option<usize> {
        self.0.get(id as usize).copied().filter(|place| *place != Self::NOWHERE).map(|place| place as usize)
    }

    fn set(&mut self, id: u32, place: u32) {
        let index = id as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, Self::NOWHERE);
        }
        if let Some(slot) = self.0.get_mut(index) {
            *slot = place;
        }
    }
}

/// A heap of ids with four children a node: flat in memory, and half as deep as one with two.
#[derive(Debug)]
pub(super) struct Heap<K> {
    items: Vec<(K, u32)>,
    steps: u64,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { items: Vec::new(), steps: 0 }
    }
}

const ARITY: usize = 4;

impl<K: Ord + Copy> Heap<K> {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Comparisons made so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// The lowest key and its id. Equal keys go by id.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    /// Whether `id` stands here. The table alone cannot say in which heap.
    pub(super) fn holds(&self, places: &Places, id: u32) -> bool {
        places.at(id).and_then(|place| self.items.get(place)).is_some_and(|(_, found)| *found == id)
    }

    /// Puts `id` at `key`, whether or not it is here already.
    pub(super) fn set(&mut self, places: &mut Places, key: K, id: u32) {
        if self.holds(places, id) {
            let place = places.at(id).unwrap_or_default();
            if let Some(item) = self.items.get_mut(place) {
                item.0 = key;
            }
            let place = self.up(places, place);
            self.down(places, place);
        } else {
            self.items.push((key, id));
            let place = self.items.len() - 1;
            places.set(id, place as u32);
            self.up(places, place);
        }
    }

    /// Takes `id` out; does nothing when it is not here.
    pub(super) fn remove(&mut self, places: &mut Places, id: u32) {
        if !self.holds(places, id) {
            return;
        }
        let place = places.at(id).unwrap_or_default();
        self.items.swap_remove(place);
        places.set(id, Places::NOWHERE);
        if let Some((_, moved)) = self.items.get(place).copied() {
            places.set(moved, place as u32);
            let place = self.up(places, place);
            self.down(places, place);
        }
    }

    fn up(&mut self, places: &mut Places, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            self.steps += 1;
            if self.items.get(place) >= self.items.get(parent) {
                break;
            }
            self.swap(places, place, parent);
            place = parent;
        }
        place
    }

    fn down(&mut self, places: &mut Places, mut place: usize) {
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.items.len());
            self.steps += (first..last).len() as u64;
            let Some(lowest) = (first..last).min_by(|a, b| self.items.get(*a).cmp(&self.items.get(*b))) else {
                return;
            };
            if self.items.get(place) <= self.items.get(lowest) {
                return;
            }
            self.swap(places, place, lowest);
            place = lowest;
        }
    }

    fn swap(&mut self, places: &mut Places, a: usize, b: usize) {
        self.items.swap(a, b);
        for place in [a, b] {
            if let Some((_, id)) = self.items.get(place) {
                places.set(*id, place as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tag_is_cost_over_weight() {
        let second = 1_000_000;
        assert_eq!(Tag::of(second, Weight::from_f64(4.0)).micros(), 250_000);
        assert_eq!(Tag::of(second, Weight::from_f64(0.5)).micros(), 2_000_000);
        assert_eq!(Weight::from_f64(f64::NAN), Weight::ONE);
        assert_eq!(Weight::from_f64(-3.0), Weight(1));
    }

    proptest! {
        #[test]
        fn a_heap_gives_what_a_sorted_list_gives(ops in prop::collection::vec((0u32..40, 0u64..50, any::<bool>()), 0..200)) {
            let (mut heap, mut places) = (Heap::default(), Places::default());
            let mut model = std::collections::BTreeMap::new();
            for (id, key, put) in ops {
                if put {
                    heap.set(&mut places, key, id);
                    model.insert(id, key);
                } else {
                    heap.remove(&mut places, id);
                    model.remove(&id);
                }
                let lowest = model.iter().map(|(id, key)| (*key, *id)).min();
                prop_assert_eq!(heap.first(), lowest);
                prop_assert_eq!(heap.len(), model.len());
                prop_assert!((0..40).all(|id| heap.holds(&places, id) == model.contains_key(&id)));
            }
        }
    }
}
