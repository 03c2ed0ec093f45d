//! What a person should know about a configuration that is not wrong: consequences that are easy to miss.

use std::fmt;
use std::time::Duration;

use super::build::Builder;
use super::providers;
use super::scalar;
use super::settings::{Groups, Upstream};
use super::sources::is_signed;
use super::value::Slot;
use crate::listen;
use crate::store::Retention;
use crate::verify::scheme::Scheme;
use crate::verify::{Choice, SecretSpec, Verifier};

/// Shortest secret that does not get a note, in bytes: 128 bits of anything.
pub(super) const SECRET_BYTES: usize = 16;
/// What is said of a shorter one.
pub(super) const SHORT: &str = "shorter than 16 bytes, and so easy to guess";
/// The secret that stands in the documentation's `gateway.yaml`.
const EXAMPLE_SECRET: &[u8] = b"replace-this-example-secret";
/// So many groups should find a slot at one time: the default cap is an eighth of the slots.
const GROUPS_MIN: u32 = 8;

/// Two segments of the store's log, the one that is written and the next: what `store.embedded.min_free` should leave, bytes.
const ROOM: u64 = 128 << 20;

/// Something to know about a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The field, e.g. `sources[0].key`.
    pub path: String,
    /// What to know, one sentence.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl Builder<'_, '_> {
    /// Secrets that are easy to guess.
    pub(super) fn about_secrets(&mut self, path: &str, choice: &Choice, secrets: &[SecretSpec]) {
        // PayPal's is no secret.
        if matches!(choice, Choice::Preset(name) if [providers::NONE, "paypal"].contains(&name.as_str())) {
            return;
        }
        for (i, secret) in secrets.iter().enumerate() {
            let bytes = secret.value.expose();
            let which = if secrets.len() > 1 { format!("{path}.secrets[{i}]") } else { format!("{path}.secret") };
            if bytes == EXAMPLE_SECRET {
                self.note(&which, "this is the example of the documentation, which everybody knows: replace it");
            } else if (1..SECRET_BYTES).contains(&bytes.len()) {
                self.note(&which, SHORT);
            }
        }
    }

    /// What the way of verifying leaves open.
    pub(super) fn about_verifier(&mut self, path: &str, slot: &Slot, verifier: &Verifier) {
        if matches!(verifier.scheme(), Scheme::None) {
            self.note(path, "anybody who knows the address may send");
        }
        if verifier.wants_token() {
            let text = "without verify_token the provider's question whether this address is willing stays unanswered";
            self.note(path, text);
        }
        if verifier.scheme().covers_url() && slot.at("public_url").is_null() {
            let text = "the signature covers the public URL: without public_url it is put together from the Host header, \
                        which fails behind a proxy that changes it";
            self.note(path, text);
        }
    }

    /// What the slots and caps come to.
    pub(super) fn about_slots(&mut self, upstream: &Upstream, groups: &Groups) {
        let (slots, cap) = (upstream.concurrency, groups.defaults.concurrency);
        let timeout = scalar::show_duration(upstream.timeout);
        let mut caps = vec![("groups.defaults.concurrency".to_owned(), cap)];
        caps.extend(
            groups
                .overrides
                .iter()
                .enumerate()
                .map(|(i, o)| (format!("groups.overrides[{i}].concurrency"), o.policy.concurrency)),
        );
        caps.dedup_by_key(|(_, cap)| *cap);
        for (path, cap) in caps {
            let fit = slots / cap.max(1);
            if fit < GROUPS_MIN && cap > 1 {
                let text = format!(
                    "{cap} of {slots} slots: {} such groups take all of them, below eight others wait for them",
                    fit.max(1)
                );
                self.note(&path, text);
            }
        }
        let all = slots.div_ceil(cap.max(1));
        let text = format!(
            "K groups whose calls hang hold up to K × {cap} of the {slots} slots for {timeout} (upstream.timeout): {all} of them hold all"
        );
        self.note("upstream.concurrency", text);
        let dedicated = groups.dedicated;
        if dedicated.max > 0 {
            let taken = dedicated.max.saturating_mul(dedicated.concurrency);
            let (each, left) = (dedicated.concurrency, slots.saturating_sub(taken));
            let text = format!(
                "up to {} groups get {each} slots of their own, used or not: the others then share {left} of {slots}, and the slow of them {}",
                dedicated.max,
                (f64::from(left) * groups.slow.slots) as u32
            );
            self.note("groups.dedicated", text);
        }
        let weighted = |weight: f64| (weight - groups.defaults.weight).abs() > f64::EPSILON;
        if weighted(groups.fallback.weight) || groups.overrides.iter().any(|o| weighted(o.policy.weight)) {
            let text = format!(
                "weights act only while the busy groups' caps add up to more than {slots} slots: beyond {} groups",
                slots / cap.max(1)
            );
            self.note("groups", text);
        }
    }

    /// A disk that is too full for the log before it counts as full.
    pub(super) fn about_room(&mut self, min_free: u64) {
        if min_free < ROOM {
            let (free, room) = (scalar::show_size(min_free), scalar::show_size(ROOM));
            let text = format!(
                "{free} leaves no room for two segments of the log ({room}): on a full disk events may get 503 while /readyz says 200"
            );
            self.note("store.embedded.min_free", text);
        }
    }

    /// What it means that nothing is stored, and times that do not fit together.
    pub(super) fn about_relays(&mut self, sources: &[listen::Source], drain: Duration) {
        let mut longest = None;
        for (i, source) in sources.iter().enumerate() {
            let Some(held) = source.relay else { continue };
            longest = longest.max(Some(held));
            // Of several the one that waits the shortest.
            let presets = source.senders.iter().filter_map(|sender| sender.verifier.preset());
            let preset = presets.min_by_key(|preset| preset.answer_limit.unwrap_or(Duration::MAX));
            let sender = preset.map_or("its sender", |preset| preset.title);
            let text = format!(
                "its requests are not stored: one that the upstream does not answer in time is lost, unless {sender} repeats it"
            );
            self.note(&format!("sources[{i}].respond"), text);
            if let Some(limit) = preset.and_then(|preset| preset.answer_limit).filter(|limit| held >= *limit) {
                let (held, limit) = (scalar::show_duration(held), scalar::show_duration(limit));
                let text = format!("{sender} waits for {limit}: an answer after {held} comes too late");
                self.note(&format!("sources[{i}].respond_timeout"), text);
            }
        }
        if let Some(held) = longest.filter(|held| *held > drain) {
            let (held, drain) = (scalar::show_duration(held), scalar::show_duration(drain));
            let text = format!(
                "requests may be held for {held} (respond_timeout): what is held for {drain} after a SIGTERM is cut"
            );
            self.note("shutdown.drain", text);
        }
    }

    /// What a dedupe key can be trusted with, and windows that outlast what they need.
    pub(super) fn about_repeats(&mut self, sources: &[listen::Source], retention: &Retention) {
        for (i, source) in sources.iter().enumerate() {
            let Some(dedupe) = &source.dedupe else { continue };
            let path = format!("sources[{i}].dedupe");
            let mut senders = source.senders.iter();
            if !senders.all(|sender| is_signed(&dedupe.rule, sender.verifier.scheme().covers_body())) {
                let text = format!(
                    "{} is not covered by the signature: whoever holds one genuine request can send it under the key of another event, \
                     which is then suppressed",
                    dedupe.rule.text()
                );
                self.note(&format!("{path}.key"), text);
            }
            let window = scalar::show_duration(dedupe.window);
            let kept = [
                ("suppressed", retention.suppressed, "a suppressed event can be released only that long"),
                (
                    "delivered",
                    retention.delivered,
                    "if the index has to be built again, repeats of what is gone by then are delivered",
                ),
                ("dead", retention.dead, "a repeat of a dead event that is gone by then is suppressed"),
            ];
            for (name, kept, so) in kept.into_iter().filter(|(_, kept, _)| *kept < dedupe.window) {
                let text =
                    format!("{window} is longer than store.retention.{name} ({}): {so}", scalar::show_duration(kept));
                self.note(&format!("{path}.window"), text);
            }
        }
    }

    /// Caps and answers that refuse events which nobody sends again.
    pub(super) fn about_refusals(&mut self, groups: &Groups, sources: &[listen::Source]) {
        let capped = groups.shed
            || groups.defaults.backlog.is_some()
            || groups.overrides.iter().any(|o| o.policy.backlog.is_some());
        if !capped {
            return;
        }
        let what = if groups.shed { "groups.shed, or a backlog cap," } else { "a backlog cap" };
        // What is relayed is not stored, and no part of a backlog.
        for source in sources.iter().filter(|source| source.relay.is_none()) {
            let presets = source.senders.iter().filter_map(|sender| sender.verifier.preset());
            for preset in presets.filter(|preset| preset.repeats == Some(false)) {
                let text = format!(
                    "{what} refuses events of {}, and {} never repeats: they are lost",
                    source.name, preset.title
                );
                self.note("groups", text);
            }
        }
    }
}
