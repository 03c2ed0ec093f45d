//! The providers we know, one row each: how they sign, where the tenant stands, how long they wait.
//!
//! Rows are grouped by what the providers do, in files beside this one. A fact that no
//! documentation or official library states is left out rather than guessed. Time windows stand
//! here only where one of those names them.

mod code;
mod commerce;
mod money;
mod people;
mod row;
mod standard;

use std::sync::LazyLock;
use std::time::Duration;

use super::scheme::Scheme;

/// What is known about one provider. Key expressions are those of the configuration.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How it signs.
    pub scheme: Scheme,
    /// Where the tenant stands; tried in turn. Empty: the provider has no tenants, or one address each.
    pub natural_key: &'static [&'static str],
    /// The lane of events without a tenant where that has a meaning of its own (`platform`).
    pub reserved_lane: Option<&'static str>,
    /// Put before the key where it is a bare number that other providers could use too.
    pub namespace: Option<&'static str>,
    /// Whether the signature covers every place that `natural_key` names.
    pub key_signed: bool,
    /// Where the sender's own id for a delivery stands, the same on its repeats.
    pub event_id: Option<&'static str>,
    /// Where its name for what happened stands.
    pub event_type: Option<&'static str>,
    /// How long it waits for an answer.
    pub answer_limit: Option<Duration>,
    /// Whether it repeats what was not accepted; `None`: not documented.
    pub repeats: Option<bool>,
    /// What the secret is called at the provider, and in which form it stands there; `None`: not documented.
    pub secret: Option<&'static str>,
    /// What it repeats, and what it does about an address that keeps failing; `None`: not documented.
    pub failures: Option<&'static str>,
    /// What it takes for an acknowledgement; `None`: not documented beyond what HTTP says.
    pub ack: Option<&'static str>,
    /// What to mind; for people.
    pub note: &'static str,
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let mut all = [commerce::rows(), code::rows(), people::rows(), money::rows(), standard::rows()].concat();
    all.sort_by_key(|preset| preset.name);
    all
});

/// All presets, by name.
#[must_use]
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    let at = PRESETS.binary_search_by(|preset| preset.name.cmp(name)).ok()?;
    PRESETS.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_of_its_own_and_knobs_that_fit() {
        for pair in presets().windows(2) {
            assert!(pair[0].name < pair[1].name, "{} twice", pair[0].name);
        }
        for one in presets() {
            assert!(one.name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{}", one.name);
            assert_eq!(one.scheme.check(), Ok(()), "{}", one.name);
            assert_eq!(preset(one.name).unwrap().title, one.title);
            assert!(!one.note.is_empty(), "{}", one.name);
        }
        assert!(preset("nobody").is_none());
    }

    #[test]
    fn a_key_counts_as_signed_exactly_where_the_signature_covers_it() {
        for one in presets() {
            let covered = !one.natural_key.is_empty() && one.natural_key.iter().all(|rule| one.scheme.covers(rule));
            assert_eq!(one.key_signed, covered, "{}", one.name);
            assert!(one.namespace.is_none() || !one.natural_key.is_empty(), "{}", one.name);
        }
    }
}
