//! The fingerprint of an event: what it has in common with its repeats and with no other event.

use sha2::{Digest, Sha256};

use crate::event::Group;

/// Half of a SHA-256 over everything that makes a repeat: the source, the group where it is part of the scope, and the parts of the key.
/// Each has its length before it, so that `a`, `bc` and `ab`, `c` are two keys; a scope with a group and one without share nothing.
/// 128 bits of it leave no chance that two events are taken for one: 2^64 events would be needed.
#[must_use]
pub fn fingerprint(source: &str, group: Option<&Group>, parts: &[String]) -> [u8; 16] {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(source);
    add(if group.is_some() { "group" } else { "source" });
    add(group.map_or("", Group::as_str));
    parts.iter().for_each(|part| add(part));
    let whole = hash.finalize();
    *whole.first_chunk().expect("invariant: a SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_same_parts_in_the_same_scope_has_the_same_fingerprint() {
        let of = |source: &str, group: Option<&str>, parts: &[&str]| {
            let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            fingerprint(source, group.map(|name| Group::of(&[name])).as_ref(), &parts)
        };
        let all = [
            of("/a", Some("g"), &["1"]),
            of("/a", Some("g"), &["2"]),
            of("/a", Some("g1"), &[]),
            of("/a", Some("h"), &["1"]),
            of("/a", None, &["1"]),
            of("/a", None, &["g", "1"]),
            of("/ag", None, &["1"]),
            of("/a", Some("g"), &["1", ""]),
            of("/a", Some("g"), &["a", "bc"]),
            of("/a", Some("g"), &["ab", "c"]),
            of("/a", Some("group"), &["1"]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|other| other != one), "{i}");
        }
        assert_eq!(of("/a", Some("g"), &["1"]), of("/a", Some("g"), &["1"]));
    }
}
