//! The rules of a connection: retries and repeats have a counterpart, the others are told.

use http::StatusCode;
use serde_json::Value;

use super::super::page::{Page, plain, quoted};
use super::Connection;
use super::fields::{Fields, shown};
use crate::key::{Rule, RuleSpec};

/// How an upstream that does not take an event is asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    exponential: bool,
    interval_ms: Option<u64>,
    count: Option<u64>,
    /// Statuses that are not retried.
    pub(super) never: Vec<u16>,
}

/// What the rules of a connection come to.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Where there is a rule for it.
    pub(super) retry: Option<Retry>,
}

/// Writes what has a counterpart in the source and a comment about all else.
pub(super) fn write(connection: &Connection, event_id: Option<&str>, depth: usize, page: &mut Page) -> Rules {
    let mut all = Rules::default();
    for rule in &connection.rules {
        let Some(mut fields) = Fields::of(rule.clone()) else {
            page.missing(depth, &format!("a rule that is no object: {}", shown("", rule)));
            continue;
        };
        match fields.text("type").as_deref() {
            Some("retry") => all.retry = Some(retry(&mut fields, depth, page)),
            Some("deduplicate") => dedupe(&mut fields, event_id, depth, page),
            Some("filter") => filter(rule, &mut fields, depth, page),
            Some("transform") => transform(&mut fields, depth, page),
            Some("delay") => {
                let delay = fields.whole("delay").map_or_else(|| "some time".to_owned(), duration);
                page.missing(depth, &format!("delay of {delay}: an event goes as soon as it is its turn. {TRANSFORM}"));
            }
            other => {
                let kind =
                    other.map_or_else(|| "without a type".to_owned(), |kind| format!("of type {}", quoted(kind)));
                page.missing(depth, &format!("a rule {kind}: {}", shown("rule", rule)));
                continue;
            }
        }
        for left in fields.left() {
            page.missing(depth, &format!("of a rule: {left}"));
        }
    }
    all
}

/// Where all that changes or chooses events goes.
const TRANSFORM: &str = "It is the receiver's to do";

fn filter(rule: &Value, fields: &mut Fields, depth: usize, page: &mut Page) {
    let parts = rule.as_object().into_iter().flatten().filter(|(name, value)| *name != "type" && !value.is_null());
    let parts: Vec<String> = parts.map(|(name, value)| format!("{} {}", plain(name), shown("filter", value))).collect();
    fields.drop(&["headers", "body", "query", "path", "$or", "$and", "$not"]);
    page.missing(
        depth,
        &format!(
            "filter on {}: every event is delivered. {TRANSFORM}: answer 2xx to what is not wanted",
            parts.join("; ")
        ),
    );
}

/// Neither the code nor its variables are shown: there may be secrets in both.
fn transform(fields: &mut Fields, depth: usize, page: &mut Page) {
    let id = fields.text("transformation_id");
    let mut inner = fields.object("transformation").unwrap_or_default();
    let name = inner.text("name").or(id).unwrap_or_else(|| "without a name".to_owned());
    let code = inner.text("code").map(|code| format!(", {} lines of code", code.lines().count())).unwrap_or_default();
    let env = inner
        .any("env")
        .and_then(|env| Some(env.as_object()?.keys().map(|name| plain(name)).collect::<Vec<_>>().join(", ")));
    let env = env.filter(|env| !env.is_empty()).map(|env| format!(", with the variables {env}")).unwrap_or_default();
    inner.drop(&["id", "team_id", "created_at", "updated_at", "encrypted_env", "iv"]);
    page.missing(
        depth,
        &format!("transformation {}{code}{env}: events are delivered byte for byte. {TRANSFORM}", quoted(&name)),
    );
    for left in inner.left() {
        page.missing(depth, &format!("of that transformation: {left}"));
    }
}

fn dedupe(fields: &mut Fields, event_id: Option<&str>, depth: usize, page: &mut Page) {
    let window = fields.whole("window").map_or_else(|| "24h".to_owned(), duration);
    let include = texts(fields.list("include_fields"));
    let exclude = texts(fields.list("exclude_fields"));
    if !include.is_empty() && exclude.is_empty() {
        let spec = match include.as_slice() {
            [one] => RuleSpec::Expr(one.clone()),
            several => RuleSpec::Join(several.iter().cloned().map(RuleSpec::Expr).collect()),
        };
        if Rule::parse(&spec).is_ok() {
            let keys: Vec<String> = include.iter().map(|key| quoted(key)).collect();
            let key = match keys.as_slice() {
                [one] => one.clone(),
                several => format!("{{ join: [{}] }}", several.join(", ")),
            };
            page.differs(
                depth,
                "an event in which one of these fields is missing or is no plain value is delivered every time",
            );
            page.line(depth, &format!("dedupe: {{ key: {key}, window: {window} }}"));
            return;
        }
    }
    let compared = match (include.as_slice(), exclude.as_slice()) {
        ([], []) => "the whole event".to_owned(),
        ([], exclude) => {
            format!("the whole event without {}", exclude.iter().map(|key| plain(key)).collect::<Vec<_>>().join(", "))
        }
        (include, _) => include.iter().map(|key| plain(key)).collect::<Vec<_>>().join(", "),
    };
    page.missing(
        depth,
        &format!("repeats within {window}, told by {compared}: here by a key. This provider's event id would be:"),
    );
    let id = event_id.unwrap_or("body.id");
    page.say(depth, &format!("dedupe: {{ key: {id}, window: {window} }}"));
}

fn texts(list: Option<Vec<Value>>) -> Vec<String> {
    list.unwrap_or_default().iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn retry(fields: &mut Fields, depth: usize, page: &mut Page) -> Retry {
    let strategy = fields.text("strategy").unwrap_or_else(|| "linear".to_owned());
    if !["linear", "exponential"].contains(&strategy.as_str()) {
        page.missing(depth, &format!("the retry strategy {}: exponential is used", quoted(&strategy)));
    }
    let statuses = fields.list("response_status_codes").unwrap_or_default();
    Retry {
        exponential: strategy != "linear",
        interval_ms: fields.whole("interval").filter(|ms| *ms > 0),
        count: fields.whole("count"),
        never: never(&statuses, depth, page),
    }
}

/// The statuses that no expression takes: `500-599`, `>400`, `404`, `!401`. A status is retried where one of them takes it (any, where
/// none takes) and none takes it out.
fn never(expressions: &[Value], depth: usize, page: &mut Page) -> Vec<u16> {
    let mut ranges = Vec::new();
    for expression in expressions {
        let text = expression.as_str().map_or_else(|| expression.to_string(), str::to_owned);
        match range(&text) {
            Some(range) => ranges.push(range),
            None => page.missing(depth, &format!("the statuses {} of a retry rule", quoted(&text))),
        }
    }
    let any_takes = ranges.iter().any(|(takes, ..)| *takes);
    let retried = |status: &u16| {
        let within = |(_, from, to): &&(bool, u16, u16)| (from..=to).contains(&status);
        let (mut takes, mut out) = (!any_takes, false);
        for (takes_it, ..) in ranges.iter().filter(within) {
            if *takes_it { takes = true } else { out = true }
        }
        takes && !out
    };
    if ranges.is_empty() {
        return Vec::new();
    }
    // A status without a name is no receiver's; all of them would fill the line.
    let named = |status: &u16| StatusCode::from_u16(*status).is_ok_and(|status| status.canonical_reason().is_some());
    (300..600).filter(named).filter(|status| !retried(status)).collect()
}

/// Whether it takes or excludes, and which statuses.
fn range(text: &str) -> Option<(bool, u16, u16)> {
    if let Some(rest) = text.strip_prefix('!') {
        return range(rest).map(|(_, from, to)| (false, from, to));
    }
    if let Some((from, to)) = text.split_once('-') {
        return Some((true, from.trim().parse().ok()?, to.trim().parse().ok()?));
    }
    let digits = text.trim_start_matches(['>', '<', '=']);
    let status: u16 = digits.trim().parse().ok()?;
    match text.get(..text.len() - digits.len())? {
        "" | "=" | "==" => Some((true, status, status)),
        ">" => Some((true, status + 1, 599)),
        ">=" => Some((true, status, 599)),
        "<" => Some((true, 200, status.saturating_sub(1))),
        "<=" => Some((true, 200, status)),
        _ => None,
    }
}

impl Retry {
    /// How long it goes on, in milliseconds: the sum of all waits.
    pub(super) fn lasts_ms(&self) -> u64 {
        let (interval, count) = (self.interval_ms.unwrap_or(60_000), self.count.unwrap_or(12).min(200));
        (0..count).map(|n| self.wait_ms(interval, n)).fold(0, u64::saturating_add)
    }

    fn wait_ms(&self, interval: u64, n: u64) -> u64 {
        let doubled = if self.exponential { 2_u64.saturating_pow(u32::try_from(n).unwrap_or(u32::MAX)) } else { 1 };
        interval.saturating_mul(doubled).min(BACKOFF_MAX_MS)
    }

    /// Writes `retry`.
    pub(super) fn write(&self, depth: usize, page: &mut Page) {
        page.line(depth, "retry:");
        let depth = depth + 1;
        if let Some(count) = self.count {
            page.differs(
                depth,
                "attempts counts answers of 4xx alone; all else is tried again until max_age, which is as long as the rule's tries take \
                 together. After that events are dead letters, kept for store.retention.dead, and can be delivered again",
            );
            page.line(depth, &format!("attempts: {}", (count + 1).min(1000)));
            page.line(depth, &format!("max_age: {}", duration(self.lasts_ms().clamp(1_000, AGE_MAX_MS))));
        }
        if let Some(interval) = self.interval_ms {
            let factor = if self.exponential { 2 } else { 1 };
            let longest =
                self.wait_ms(interval, self.count.unwrap_or(12).saturating_sub(1)).max(interval.min(BACKOFF_MAX_MS));
            page.differs(depth, "each wait is a random part, a half to the whole, of what is said here");
            page.line(
                depth,
                &format!(
                    "backoff: {{ initial: {}, factor: {factor}, max: {} }}",
                    duration(interval.min(INITIAL_MAX_MS)),
                    duration(longest)
                ),
            );
        }
        if !self.never.is_empty() {
            let never: Vec<String> = self.never.iter().map(ToString::to_string).collect();
            page.say(depth, "the statuses that response_status_codes does not take");
            page.line(depth, &format!("never: [{}]", never.join(", ")));
        }
    }
}

/// `upstream.retry.backoff.max` at most.
const BACKOFF_MAX_MS: u64 = 30 * 86_400_000;
/// `upstream.retry.backoff.initial` at most.
const INITIAL_MAX_MS: u64 = 86_400_000;
/// `upstream.retry.max_age` at most.
const AGE_MAX_MS: u64 = 365 * 86_400_000;

/// Milliseconds as the configuration writes a duration.
fn duration(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    match UNITS.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses_are_those_that_no_expression_takes() {
        let of = |expressions: Value| never(expressions.as_array().unwrap(), 0, &mut Page::default());
        assert!(of(json!(["500-599"])).contains(&404) && !of(json!(["500-599"])).contains(&503));
        assert_eq!(of(json!(["!410", "!404"])), [404, 410]);
        assert!(of(json!([">400", "!401"])).contains(&400) && of(json!([">400", "!401"])).contains(&401));
        assert!(!of(json!([">=400", 302])).contains(&302));
        let mut page = Page::default();
        assert!(never(&[json!("4xx")], 0, &mut page).is_empty());
        assert!(page.whole().contains("NOT CARRIED OVER: the statuses \"4xx\""));
    }

    #[test]
    fn the_waits_of_a_rule_add_up() {
        let rule = |exponential, interval_ms, count| Retry {
            exponential,
            interval_ms: Some(interval_ms),
            count: Some(count),
            never: Vec::new(),
        };
        assert_eq!(rule(false, 60_000, 5).lasts_ms(), 300_000);
        assert_eq!(rule(true, 60_000, 5).lasts_ms(), 60_000 * 31);
        let mut page = Page::default();
        rule(true, 60_000, 5).write(0, &mut page);
        let text = page.whole();
        for part in ["attempts: 6", "max_age: 31m", "backoff: { initial: 1m, factor: 2, max: 16m }"] {
            assert!(text.contains(part), "{text}");
        }
        // No rule of theirs is too long for a field of ours.
        assert!(rule(true, 3_600_000, 50).lasts_ms() > AGE_MAX_MS);
    }

    #[test]
    fn durations_are_written_in_their_largest_unit() {
        for (ms, text) in [(0, "0ms"), (1, "1ms"), (90_000, "90s"), (3_600_000, "1h"), (172_800_000, "2d")] {
            assert_eq!(duration(ms), text);
        }
    }
}
