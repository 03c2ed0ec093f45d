//! How a group stands, in words for a terminal: what the API says of it, and what to do where something can be done.

use serde_json::{Value, json};

use super::table::{cell, escaped, lines, many};

/// Who has so much of all worker time while its own events wait is the noisy one, as on the dashboard.
const NOISY_SHARE: f64 = 0.3;

/// The upstream's slots: how many there are, and how many nobody holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    total: u64,
    free: u64,
}

impl Slots {
    /// Out of the answer about the upstream.
    pub(super) fn of(upstream: &Value) -> Option<Self> {
        let free = upstream.pointer("/slots/free").and_then(Value::as_u64)?;
        Some(Self { total: upstream.get("concurrency").and_then(Value::as_u64)?, free })
    }
}

/// Whether a group waits for its own attempts to end.
pub(super) fn is_capped(group: &Value) -> bool {
    group.get("state").and_then(Value::as_str) == Some("capped")
}

/// Puts words into a group of a list: why it does not run, and its longest waits without more figures than are known.
pub(super) fn put_in_words(group: &mut Value, slots: Option<Slots>) {
    let why = capped(group, slots);
    let wait = group.get("wait_p99_ms").and_then(Value::as_f64).map(waited);
    let state = busy(group);
    let Some(group) = group.as_object_mut() else { return };
    group.extend(state.map(|state| ("state".to_owned(), json!(state))));
    group.extend(why.map(|why| ("reason".to_owned(), json!(why))));
    group.extend(wait.map(|wait| ("wait_p99".to_owned(), json!(wait))));
}

/// What a group is doing of which nothing more could go: all of it goes already, or waits for its time.
fn busy(group: &Value) -> Option<&'static str> {
    let some = |name: &str| group.get(name).and_then(Value::as_u64).is_some_and(|count| count > 0);
    match group.get("state").and_then(Value::as_str) {
        Some("idle") if some("in_flight") => Some("in flight"),
        Some("idle") if some("retrying") => Some("retrying"),
        _ => None,
    }
}

/// What was waited for, the longest first: `own_lane 1200, group_cap 300`.
pub(super) fn waits(waited_ms: &Value) -> String {
    let parts = waited_ms.as_object().into_iter().flatten();
    let mut parts: Vec<(&str, u64)> = parts.filter_map(|(name, ms)| Some((&**name, ms.as_u64()?))).collect();
    parts.sort_by_key(|(_, ms)| std::cmp::Reverse(*ms));
    parts.into_iter().map(|(name, ms)| format!("{} {ms}", escaped(name))).collect::<Vec<_>>().join(", ")
}

/// `orders/create 300, carts/update 12`.
fn counts(list: Option<&Value>) -> Value {
    let counts = list.and_then(Value::as_array).into_iter().flatten();
    let one = |count: &Value| format!("{} {}", cell(count.get("name")), cell(count.get("count")));
    let text = counts.map(one).collect::<Vec<_>>().join(", ");
    if text.is_empty() { Value::Null } else { json!(text) }
}

/// Order keys that are held, each with what to do about it.
fn held(list: &Value, count: u64) -> String {
    let keys: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    if keys.is_empty() {
        return String::new();
    }
    let (keys_are, them) = if count == 1 { ("key is", "it") } else { ("keys are", "them") };
    let mut text = format!("\n{count} order {keys_are} held, events behind {them} wait:\n");
    for key in keys {
        let field = |name: &str| cell(key.get(name));
        let tries = many(key.get("attempts").and_then(Value::as_u64).unwrap_or_default(), "attempt");
        let next = key
            .get("next_attempt_s")
            .and_then(Value::as_f64)
            .map(|s| format!(", the next in {s:.0} s"))
            .unwrap_or_default();
        text.push_str(&format!("  {} since {}, {}{next}", field("order"), field("since"), tries));
        if let Some(id) = key.get("event").and_then(Value::as_str) {
            text.push_str(&format!(": fairlane events skip {}", escaped(id)));
        }
        text.push('\n');
    }
    text
}

/// Why one group does not run, and after that its figures.
pub(super) fn why(answer: &Value, slots: Option<Slots>) -> String {
    let mut group = answer.clone();
    put_in_words(&mut group, slots);
    let Some(fields) = group.as_object_mut() else { return lines(answer) };
    let mut taken = |name: &str| fields.remove(name).and_then(|value| value.as_str().map(escaped)).unwrap_or_default();
    let (name, state, reason, note) = (taken("group"), taken("state"), taken("reason"), taken("note"));
    if fields.remove("wait_p99_ms").is_some() {
        fields.entry("wait_p99").or_insert(Value::Null);
    }
    if let Some(waited) = fields.remove("waited_ms") {
        let waited = waits(&waited);
        let waited = if waited.is_empty() { Value::Null } else { json!(waited) };
        fields.insert("waited in the last minute, ms".to_owned(), waited);
    }
    if let Some(top) = fields.remove("top") {
        let scanned = top.get("scanned").and_then(Value::as_u64).unwrap_or_default();
        fields.insert(format!("types of the newest {scanned}"), counts(top.get("types")));
        fields.insert(format!("order keys of the newest {scanned}"), counts(top.get("order_keys")));
    }
    let count = fields.remove("held_count").and_then(|count| count.as_u64()).unwrap_or_default();
    let held = fields.remove("held").map(|list| held(&list, count)).unwrap_or_default();
    let reason = match (&*state, &*reason) {
        ("idle", "") => "nothing waits",
        ("in flight", "") => "nothing waits besides",
        (_, "") => "nothing holds it back",
        (_, reason) => reason,
    };
    let note = if note.is_empty() { note } else { format!("note: {note}\n") };
    let closing = if state == "broken" { closing(&name, reason) } else { String::new() };
    format!("{name} is {state}: {reason}\n{closing}{note}\n{}{held}", lines(&group))
}

/// What ends an open breaker before its time.
fn closing(name: &str, reason: &str) -> String {
    let what = match reason.starts_with("the upstream") {
        true => "fairlane upstream close-breaker".to_owned(),
        false => format!("fairlane groups close-breaker {}", quoted(name)),
    };
    format!("it tries again by itself; once what failed is mended, {what} ends the wait\n")
}

/// For a group at its cap, what there is besides, and how to change it.
fn capped(group: &Value, slots: Option<Slots>) -> Option<String> {
    let Slots { total, free } = slots.filter(|_| is_capped(group))?;
    let cap = group.get("concurrency").and_then(Value::as_u64)?;
    let name = group.get("group").and_then(Value::as_str)?;
    let are = if free == 1 { "is" } else { "are" };
    let cap_is = format!("its cap ({cap} of {total} slots; {free} {are} free)");
    if is_noisy(group, cap) {
        return Some(cap_is);
    }
    Some(format!("{cap_is}: fairlane groups set {} --concurrency N", quoted(name)))
}

/// Whether it takes much of all worker time and floods even so: the cap protects the others from it, and nobody is to be told to raise it.
fn is_noisy(group: &Value, cap: u64) -> bool {
    let share = group.get("share").and_then(Value::as_f64).unwrap_or_default();
    share >= NOISY_SHARE && group.get("queued").and_then(Value::as_u64).unwrap_or_default() > cap
}

/// As a shell takes it for one word; without a backslash, which would be escaped on its way to the terminal.
fn quoted(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&byte);
    if name.bytes().all(plain) && !name.is_empty() {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "'\"'\"'"))
    }
}

/// A wait is known by its bucket's edge, within a fifth or so: three figures, and a unit that fits.
fn waited(ms: f64) -> String {
    let short = |value: f64, unit: &str| match value {
        _ if value >= 100.0 => format!("{value:.0} {unit}"),
        _ if value >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    };
    if ms < 1_000.0 { short(ms, "ms") } else { short(ms / 1_000.0, "s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_three_figures_and_a_unit() {
        for (ms, text) in [(33_554.432, "33.6 s"), (8.388_608, "8.39 ms"), (131.072, "131 ms"), (1_048_576.0, "1049 s")]
        {
            assert_eq!(waited(ms), text);
        }
    }

    #[test]
    fn a_capped_group_is_told_what_is_free_and_what_to_do() {
        let slots = Slots::of(&json!({ "concurrency": 8, "slots": { "busy": 1, "free": 7 } }));
        let group = json!({ "concurrency": 1, "group": "it's ~a", "in_flight": 1, "reason": "1 attempt", "state": "capped", "wait_p99_ms": 33_554.432 });
        let text = why(&group, slots);
        let first = "it's ~a is capped: its cap (1 of 8 slots; 7 are free): fairlane groups set 'it'\"'\"'s ~a' --concurrency N";
        assert_eq!(text.lines().next(), Some(first));
        assert!(text.contains("in_flight: 1\n") && text.contains("wait_p99: 33.6 s\n"), "{text}");
        assert!(!text.contains("33554"), "{text}");
        // Somebody else may have taken the last one meanwhile, or the gateway does not say: its own words stay.
        assert!(why(&group, None).starts_with("it's ~a is capped: 1 attempt\n\n"));
        let mut noisy =
            json!({ "concurrency": 8, "group": "a", "state": "capped", "share": 0.9, "queued": 5_000, "reason": "" });
        let slots = Slots::of(&json!({ "concurrency": 64, "slots": { "free": 56 } }));
        put_in_words(&mut noisy, slots);
        assert_eq!(noisy["reason"], "its cap (8 of 64 slots; 56 are free)", "nobody is told to raise a flooder's cap");
        let broken = json!({ "group": "a b", "state": "broken", "reason": "its breaker is open for 5 s more; the last failure was answered with 500" });
        let text = why(&broken, slots);
        assert!(
            text.starts_with(
                "a b is broken: its breaker is open for 5 s more; the last failure was answered with 500\n"
            ),
            "{text}"
        );
        assert!(text.contains("fairlane groups close-breaker 'a b'"), "{text}");
        let broken =
            json!({ "group": "a", "state": "broken", "reason": "the upstream's breaker is open for 5 s more" });
        assert!(why(&broken, slots).contains("fairlane upstream close-breaker"));
        for (name, state) in [("in_flight", "in flight"), ("retrying", "retrying")] {
            let text = why(&json!({ "group": "a", "reason": "", "state": "idle", name: 1 }), slots);
            assert!(text.starts_with(&format!("a is {state}: nothing")), "{text}");
        }
        let group = json!({
            "group": "a", "state": "held", "reason": "", "waited_ms": { "group_cap": 300, "own_lane": 1_200 },
            "top": { "scanned": 3, "types": [{ "name": "orders/create", "count": 2 }], "order_keys": [] },
            "held": [{ "order": "c7", "event": "evt_1", "since": "T", "attempts": 3, "next_attempt_s": 4.2 }], "held_count": 1,
        });
        let text = why(&group, None);
        for part in [
            "waited in the last minute, ms: own_lane 1200, group_cap 300\n",
            "types of the newest 3: orders/create 2\n",
            "order keys of the newest 3: -\n",
            "1 order key is held, events behind it wait:\n  c7 since T, 3 attempts, the next in 4 s: fairlane events skip evt_1\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let idle = json!({ "group": "a", "reason": "", "state": "idle", "wait_p99_ms": null });
        assert_eq!(why(&idle, slots), "a is idle: nothing waits\n\nwait_p99: -\n");
    }
}
