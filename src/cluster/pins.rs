//! Pins: groups that people put into a shard of their choice, and groups that are not in the shard that they hash to.
//!
//! Both stand on the board, as changes of people do: `pin/<group>` → the shard wanted, `place/<group>` → the shard where the group is. The
//! latter is for finding it sooner: the shards themselves know where a group went (`store::redis::moves`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::seat::Put;
use crate::event::Group;
use crate::store::redis::{Leaving, Places, Shard};

/// What the names of pins begin with, before the group.
const PIN: &str = "pin/";
/// And those of places.
const PLACE: &str = "place/";

/// A group that is pinned, or on its way home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Which.
    pub group: Group,
    /// The shard that it is pinned to; `None`: its pin was taken away.
    pub shard: Option<Shard>,
    /// Where it should be: there, or where it hashes to.
    pub wanted: Shard,
    /// Where it is.
    pub at: Shard,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pins(BTreeMap<Group, Pin>);

impl Pins {
    /// From the board's names and values; `home` says where a group hashes to. A value that cannot be read, or names a shard that there is
    /// not, is of another version and left alone.
    pub(super) fn read(entries: &[(String, String)], shards: u16, home: impl Fn(&Group) -> Shard) -> Self {
        let mut pins = BTreeMap::new();
        for (name, value) in entries {
            let Some(shard) = value.parse().ok().filter(|shard| *shard < shards).map(Shard) else { continue };
            let (pinned, group) = match (name.strip_prefix(PIN), name.strip_prefix(PLACE)) {
                (Some(group), _) => (true, group),
                (_, Some(group)) => (false, group),
                _ => continue,
            };
            let Some(group) = Group::from_written(group) else { continue };
            let pin = pins.entry(group.clone()).or_insert_with(|| {
                let home = home(&group);
                Pin { group, shard: None, wanted: home, at: home }
            });
            if pinned {
                (pin.shard, pin.wanted) = (Some(shard), shard);
            } else {
                pin.at = shard;
            }
        }
        Self(pins)
    }

    /// Groups that should leave this shard.
    pub(super) fn leaving(&self, shard: Shard) -> Vec<Leaving> {
        let due = self.0.values().filter(|pin| pin.at == shard && pin.wanted != shard);
        due.map(|pin| Leaving { group: pin.group.clone(), to: pin.wanted }).collect()
    }

    /// Shards that a group should leave.
    pub(super) fn due(&self) -> BTreeSet<Shard> {
        self.0.values().filter(|pin| pin.at != pin.wanted).map(|pin| pin.at).collect()
    }

    /// A group is there now; what the board is told. `home`: where it hashes to.
    pub(super) fn moved(&mut self, Leaving { group, to }: &Leaving, home: Shard) -> Put {
        let new = || Pin { group: group.clone(), shard: None, wanted: home, at: *to };
        self.0.entry(group.clone()).or_insert_with(new).at = *to;
        self.0.retain(|_, pin| pin.shard.is_some() || pin.at != pin.wanted);
        (format!("{PLACE}{group}"), (*to != home).then(|| to.to_string()))
    }

    /// Where groups are that are not where they hash to, or may be.
    pub(super) fn places(&self) -> Places {
        self.0.values().map(|pin| (pin.group.clone(), pin.at)).collect()
    }

    /// For people.
    pub(super) fn views(&self) -> Arc<[Pin]> {
        self.0.values().cloned().collect()
    }
}

/// What the board is told of a pin; `None`: it is taken away.
pub(super) fn put(group: &Group, shard: Option<Shard>) -> Put {
    (format!("{PIN}{group}"), shard.map(|shard| shard.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> Group {
        Group::of(&[name])
    }

    #[test]
    fn a_pin_is_due_until_its_group_is_there_and_again_when_it_is_taken_away() {
        let mut board = BTreeMap::from([put(&group("a/b"), Some(Shard(3)))]);
        let read = |board: &BTreeMap<String, Option<String>>| {
            let entries: Vec<_> =
                board.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect();
            Pins::read(&entries, 8, |_| Shard(1))
        };
        let mut pins = read(&board);
        let away = Leaving { group: group("a/b"), to: Shard(3) };
        assert_eq!((pins.due(), pins.leaving(Shard(1))), (BTreeSet::from([Shard(1)]), vec![away.clone()]));
        board.extend([pins.moved(&away, Shard(1))]);
        assert_eq!((pins.due().len(), pins.places()[&group("a/b")]), (0, Shard(3)));
        assert_eq!(read(&board), pins);

        board.extend([put(&group("a/b"), None)]);
        let mut pins = read(&board);
        assert_eq!((pins.views()[0].shard, pins.views()[0].at), (None, Shard(3)), "on its way home");
        let home = Leaving { group: group("a/b"), to: Shard(1) };
        assert_eq!(pins.leaving(Shard(3)), std::slice::from_ref(&home));
        board.extend([pins.moved(&home, Shard(1))]);
        assert_eq!((read(&board), pins), (Pins::default(), Pins::default()), "nothing is kept of it");
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let entries = [entry("pin/a", "8"), entry("pin/b", "x"), entry("group/c/weight", "1"), entry("pin/a b", "1")];
        assert_eq!(Pins::read(&entries, 8, |_| Shard(1)), Pins::default());
    }
}
