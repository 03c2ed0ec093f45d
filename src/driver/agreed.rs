//! Changes that hold on all nodes: between a node's tables and the board that the nodes share.
//!
//! Each part of a change is a name and a value of its own there, so that of two nodes that change two parts of one group at the same time
//! neither loses its word; of two that change the same part the later one holds. The notebooks of a node remember what it saw last, for
//! as long as Redis is away.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::change::{Change, Dated, InParts, Live, UpstreamChange};
use super::run::Driver;
use super::sources::SourceHold;
use crate::event::{Group, Now, Wall};

/// What the names of all parts of the upstream's changes begin with.
const UPSTREAM: &str = "upstream/";

/// And of groups', before the group.
const GROUP: &str = "group/";

/// And of holds of sources, before the source.
const SOURCE: &str = "source/";

/// A name, and its value; `None` where it ends.
type Put = (String, Option<String>);

/// What is in force of these parts, as the board is told it; a part that is not ends there.
fn puts<C: InParts + Serialize>(
    before: &str,
    live: &Live<C>,
    parts: impl IntoIterator<Item = &'static str>,
) -> Vec<Put> {
    let value = |part: &'static str| {
        let dated = live.dated().find(|dated| dated.change.given().contains(&part))?;
        let alone = Dated { change: dated.change.only(part), expires: dated.expires };
        serde_json::to_string(&alone).ok()
    };
    parts.into_iter().map(|part| (format!("{before}{part}"), value(part))).collect()
}

/// What all nodes have agreed on.
#[derive(Debug, Default, PartialEq)]
struct Agreed {
    groups: BTreeMap<Group, Live>,
    upstream: Live<UpstreamChange>,
    sources: BTreeMap<String, SourceHold>,
}

impl Agreed {
    /// From the board's names and values, without what has ended. A name or value that cannot be read is of a later version and is left
    /// alone.
    fn read(entries: &[(String, String)], now: Wall) -> Self {
        let mut agreed = Self::default();
        for (name, value) in entries {
            if let Some(source) = name.strip_prefix(SOURCE) {
                let hold = serde_json::from_str::<SourceHold>(value).ok().filter(|hold| !hold.is_over(now));
                agreed.sources.extend(hold.map(|hold| (source.to_owned(), hold)));
            } else if name.starts_with(UPSTREAM) {
                add(&mut agreed.upstream, value);
            } else if let Some((group, _part)) = name.strip_prefix(GROUP).and_then(|rest| rest.rsplit_once('/'))
                && let Some(group) = Group::from_written(group)
            {
                add(agreed.groups.entry(group).or_default(), value);
            }
        }
        agreed.upstream = agreed.upstream.left(now);
        agreed.groups = agreed.groups.into_iter().map(|(group, live)| (group, live.left(now))).collect();
        agreed.groups.retain(|_, live| !live.is_empty());
        agreed
    }
}

fn add<C: InParts + DeserializeOwned>(live: &mut Live<C>, value: &str) {
    if let Ok(Dated { change, expires }) = serde_json::from_str::<Dated<C>>(value) {
        live.add(change, expires);
    }
}

impl Driver {
    /// All nodes are told what is in force of these parts of a group's changes.
    pub(super) fn agree_on_group(&self, group: &Group, parts: impl IntoIterator<Item = &'static str>) {
        if let Some(nodes) = &self.nodes {
            let live = self.policies.live_of(group);
            nodes.seat().put(puts(&format!("{GROUP}{group}/"), &live, parts));
        }
    }

    /// The same of the upstream's.
    pub(super) fn agree_on_upstream(&self, parts: impl IntoIterator<Item = &'static str>) {
        if let Some(nodes) = &self.nodes {
            nodes.seat().put(puts(UPSTREAM, &self.upstream.live(), parts));
        }
    }

    /// All nodes are told how a source is held, or that it runs.
    pub(super) fn agree_on_source(&self, source: &str) {
        if let Some(nodes) = &self.nodes {
            let hold = self.shared.held.of(source).and_then(|hold| serde_json::to_string(&hold).ok());
            nodes.seat().put([(format!("{SOURCE}{source}"), hold)]);
        }
    }

    /// What people changed on any node holds here from now on.
    pub(super) fn adopt(&mut self, entries: &[(String, String)], now: Now) {
        let unsaid = self.nodes.as_ref().is_some_and(|nodes| nodes.seat().has_puts());
        if unsaid {
            // What was changed here is not among it; it comes again with that.
            return;
        }
        let Agreed { groups, upstream, sources } = Agreed::read(entries, now.wall);
        for group in self.policies.adopt(groups) {
            let policy = self.policies.of(&group);
            self.engine.set_policy(&group, policy, now);
        }
        self.shared.held.adopt(sources, &mut self.engine, now);
        if self.upstream.adopt(upstream) {
            self.apply_upstream(now);
        }
    }
}

/// Groups whose changes are not the same in both.
pub(super) fn differing(one: &BTreeMap<Group, Live>, other: &BTreeMap<Group, Live>) -> BTreeSet<Group> {
    let names = one.keys().chain(other.keys());
    names.filter(|group| one.get(*group) != other.get(*group)).cloned().collect()
}

/// The names of all parts of a group's changes.
pub(super) fn parts_of(live: &Live<Change>) -> Vec<&'static str> {
    live.ends().map(|(part, _)| part).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::driver::change::Expiry;
    use crate::driver::sources::Hold;

    const NOW: Wall = Wall(1_700_000_000_123_456);

    fn apply(board: &mut BTreeMap<String, String>, puts: Vec<Put>) {
        for (name, value) in puts {
            match value {
                Some(value) => drop(board.insert(name, value)),
                None => drop(board.remove(&name)),
            }
        }
    }

    fn read(board: &BTreeMap<String, String>, now: Wall) -> Agreed {
        Agreed::read(&board.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>(), now)
    }

    #[test]
    fn two_nodes_that_change_two_parts_of_a_group_both_have_their_word() {
        let (mut board, group) = (BTreeMap::new(), Group::of(&["a/b~c"]));
        let name = format!("{GROUP}{group}/");
        let (mut one, mut other) = (Live::default(), Live::default());
        one.put(Change { weight: Some(0.1), ..Change::default() }, Expiry::Never, false, NOW);
        other.put(
            Change { paused: Some(true), rate: Some((5, 60_000_001)), ..Change::default() },
            Expiry::Usual,
            false,
            NOW,
        );
        apply(&mut board, puts(&name, &one, ["weight"]));
        apply(&mut board, puts(&name, &other, ["paused", "rate"]));
        let agreed = read(&board, NOW);
        let expected =
            Change { paused: Some(true), weight: Some(0.1), rate: Some((5, 60_000_001)), ..Change::default() };
        assert_eq!(agreed.groups[&group].change(), expected);
        assert_eq!(
            agreed.groups[&group].ends().find(|(part, _)| *part == "paused").unwrap().1,
            Some(NOW.plus(Duration::from_hours(24)).0)
        );
        let later = read(&board, NOW.plus(Duration::from_hours(24)));
        assert_eq!(
            later.groups[&group].change(),
            Change { weight: Some(0.1), ..Change::default() },
            "each part ends by itself"
        );
        apply(&mut board, puts(&name, &Live::<Change>::default(), ["weight", "paused", "rate"]));
        assert_eq!(read(&board, NOW), Agreed::default());
    }

    #[test]
    fn a_source_is_held_by_its_whole_name_until_its_end() {
        let hold = |ends| SourceHold { held: Hold::Paused, since: NOW.0, ends, by: "api".to_owned() };
        let entry = |name: &str, hold: &SourceHold| (format!("{SOURCE}{name}"), serde_json::to_string(hold).unwrap());
        let entries =
            [entry("/hooks/a", &hold(None)), entry("b", &hold(Some(NOW.0))), ("source/c".to_owned(), "?".to_owned())];
        assert_eq!(Agreed::read(&entries, NOW).sources, BTreeMap::from([("/hooks/a".to_owned(), hold(None))]));
    }

    #[test]
    fn the_upstreams_changes_go_the_same_way_and_what_is_not_known_is_left_alone() {
        let mut board =
            BTreeMap::from([("group/a/colour".to_owned(), "red".to_owned()), ("else".to_owned(), "1".to_owned())]);
        let mut live = Live::default();
        live.put(UpstreamChange { concurrency: Some(8), ..UpstreamChange::default() }, Expiry::Never, false, NOW);
        apply(&mut board, puts(UPSTREAM, &live, ["concurrency"]));
        let agreed = read(&board, NOW);
        assert_eq!((agreed.upstream, agreed.groups.len()), (live, 0));
    }
}
