//! From a group's name to its number. The name itself is where the group is, and is looked at when the hashes agree; where many are
//! looked up at once each step can be made for all of them ([`warm`](super::warm)).

use std::hash::{BuildHasher as _, RandomState};

use super::group::GroupState;
use super::index::Index;
use super::slab::Slab;
use crate::event::Group;

/// The names of active groups.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names come from outside: nobody can know which of them meet.
    hasher: RandomState,
    index: Index,
}

impl Names {
    pub(super) fn hash(&self, name: &Group) -> u64 {
        self.hasher.hash_one(name)
    }

    /// The first who could be meant: nearly always the group itself.
    pub(super) fn likely(&self, hash: u64) -> Option<u32> {
        self.index.numbers(hash).next()
    }

    pub(super) fn get(&self, name: &Group, groups: &Slab<GroupState>) -> Option<u32> {
        self.get_hashed(self.hash(name), name, groups)
    }

    pub(super) fn get_hashed(&self, hash: u64, name: &Group, groups: &Slab<GroupState>) -> Option<u32> {
        self.index.numbers(hash).find(|gid| groups.get(*gid).is_some_and(|group| group.name == *name))
    }

    /// A group came.
    pub(super) fn insert(&mut self, name: &Group, gid: u32, groups: &Slab<GroupState>) {
        let hasher = &self.hasher;
        self.index.insert(hasher.hash_one(name), gid, |gid| hash_of(hasher, gid, groups));
    }

    /// The group of this number left.
    pub(super) fn remove(&mut self, name: &Group, gid: u32, groups: &Slab<GroupState>) {
        let hasher = &self.hasher;
        self.index.remove(hasher.hash_one(name), gid, |gid| hash_of(hasher, gid, groups));
    }
}

fn hash_of(hasher: &RandomState, gid: u32, groups: &Slab<GroupState>) -> u64 {
    groups.get(gid).map_or(0, |group| hasher.hash_one(&group.name))
}
