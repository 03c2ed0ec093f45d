//! Putting the answers of nodes together.

use serde_json::Value;

use super::shards;

/// Groups of a list where nobody says how many, and as the call itself has it.
const LIMIT: usize = 100;

/// How answers are put together.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Merge {
    /// Lists of groups: by this number, descending, so many.
    Groups(&'static [&'static str], usize),
    /// What holds the slots.
    Upstream,
    /// What waits in the shards, each of which one node knows.
    Shards,
}

impl Merge {
    /// As a list of groups was asked for.
    pub(super) fn groups(sort: Option<&str>, limit: Option<&str>) -> Self {
        let keys: &[&str] = match sort {
            Some("depth") => &["queued", "retrying", "in_flight"],
            Some("seconds") => &["share"],
            Some("rate") => &["arrival_rate"],
            _ => &["oldest_age_s"],
        };
        Self::Groups(keys, limit.and_then(|limit| limit.parse().ok()).unwrap_or(LIMIT))
    }

    /// Another node's answer.
    pub(super) fn add(&self, sum: &mut Value, other: Value) {
        match self {
            Self::Groups(..) => {
                append(sum, other, "groups");
            }
            Self::Shards => append(sum, other, "by_shard"),
            Self::Upstream => {
                for pointer in
                    ["/slots/busy", "/slots/slow", "/slots/retry", "/slots/free", "/slots/dedicated", "/active_groups"]
                {
                    let more = other.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
                    if let Some(place) = sum.pointer_mut(pointer) {
                        *place = (place.as_u64().unwrap_or(0) + more).into();
                    }
                }
                latest(sum, &other, "last_success", |value| value.as_str().map(str::to_owned));
                latest(sum, &other, "last_failure", |value| value.get("at")?.as_str().map(str::to_owned));
            }
        }
    }

    /// All have answered.
    pub(super) fn finish(&self, sum: &mut Value) {
        if *self == Self::Shards {
            return shards::finish(sum);
        }
        let Self::Groups(keys, limit) = self else { return };
        let key = |group: &Value| keys.iter().filter_map(|key| group.get(key)?.as_f64()).sum::<f64>();
        let name = |group: &Value| group.get("group").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(groups) = list(sum, "groups") {
            groups.sort_by(|one, other| key(other).total_cmp(&key(one)).then_with(|| name(one).cmp(&name(other))));
            groups.truncate(*limit);
        }
    }
}

fn list<'a>(answer: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    answer.get_mut(name)?.as_array_mut()
}

/// Another node's list behind ours.
fn append(sum: &mut Value, mut other: Value, name: &str) {
    if let (Some(all), Some(more)) = (list(sum, name), list(&mut other, name)) {
        all.append(more);
    }
}

/// The later of two, by a moment in RFC 3339, which sorts as text.
fn latest(sum: &mut Value, other: &Value, name: &str, moment: impl Fn(&Value) -> Option<String>) {
    let (Some(ours), Some(theirs)) = (sum.get_mut(name), other.get(name)) else { return };
    if moment(theirs) > moment(ours) {
        *ours = theirs.clone();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_become_one_list_in_their_order_and_length() {
        let group = |name: &str, age: f64, queued: u64| json!({ "group": name, "oldest_age_s": age, "queued": queued });
        let merge = Merge::groups(None, Some("3"));
        let mut sum = json!({ "groups": [group("a", 9.0, 1), group("b", 2.0, 7)] });
        merge.add(&mut sum, json!({ "groups": [group("c", 5.0, 3), group("d", 1.0, 9)] }));
        merge.finish(&mut sum);
        let names = |sum: &Value| -> Vec<String> {
            sum["groups"].as_array().unwrap().iter().map(|group| group["group"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&sum), ["a", "c", "b"]);
        let merge = Merge::groups(Some("depth"), None);
        let mut sum = json!({ "groups": [group("a", 9.0, 1)] });
        merge.add(&mut sum, json!({ "groups": [group("c", 5.0, 3)] }));
        merge.finish(&mut sum);
        assert_eq!(names(&sum), ["c", "a"]);
    }

    #[test]
    fn slots_add_up_and_the_last_answer_is_the_last_of_all() {
        let upstream = |busy: u32, at: &str| {
            json!({ "concurrency": 64, "slots": { "busy": busy, "slow": 0, "retry": 1, "free": 2, "dedicated": 0 }, "active_groups": 4,
                "last_success": at, "last_failure": null })
        };
        let mut sum = upstream(3, "2026-01-01T00:00:00Z");
        Merge::Upstream.add(&mut sum, upstream(5, "2026-01-02T00:00:00Z"));
        assert_eq!(
            (&sum["slots"]["busy"], &sum["slots"]["free"], &sum["concurrency"]),
            (&json!(8), &json!(4), &json!(64))
        );
        assert_eq!((&sum["active_groups"], &sum["last_success"]), (&json!(8), &json!("2026-01-02T00:00:00Z")));
    }
}
