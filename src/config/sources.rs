//! Sources: who may send, whose an event is, what is answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::build::{Builder, parsed};
use super::scalar;
use super::value::{Key, Slot, quoted};
use crate::key::{self, Rule, RuleSpec};
use crate::listen::route::Pattern;
use crate::listen::{self, Ack, Answers, Dedupe, KeyRule, Order, Sender};
use crate::verify::scheme::Scheme;
use crate::verify::{Preset, Verifier};

/// How long a commit may take where the provider states no limit: the shortest stated ones are 3 to 5 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// What the way back to the provider may take out of its limit.
const ANSWER_WAY: Duration = Duration::from_millis(500);

/// The rule of `groups.key`, where it is read.
struct Common<'s> {
    key: Option<(Rule, &'s Slot)>,
    answer_timeout: Option<Duration>,
    upstream_timeout: Duration,
}

impl Builder<'_, '_> {
    /// All sources that can be made; problems keep the others from being so.
    pub(super) fn sources(&mut self, root: &Slot, upstream_timeout: Duration) -> Vec<listen::Source> {
        let list = root.at("sources").items();
        self.distinct(list);
        let key = root.at("groups").at("key");
        let common = Common {
            key: self.rule("groups.key", key).map(|rule| (rule, key)),
            answer_timeout: root.at("listen").at("limits").at("answer_timeout").maybe(),
            upstream_timeout,
        };
        list.iter().enumerate().filter_map(|(i, slot)| self.source(&format!("sources[{i}]"), slot, &common)).collect()
    }

    /// Names tell sources apart, and one path leads to one source.
    fn distinct(&mut self, list: &[Slot]) {
        let (mut names, mut paths) = (HashMap::new(), HashMap::new());
        for (i, source) in list.iter().enumerate() {
            let (Some(name), Some(pattern)) = (name(source), pattern(source)) else { continue };
            let given = source.at("name").given;
            let (first, also_given) = *names.entry(name.clone()).or_insert((i, given));
            // Two paths that are equal are equal names as well, and one problem.
            if first != i && (given || also_given) {
                let field = if given { "name" } else { "path" };
                let found = format!("{} is the name of sources[{first}] already", quoted(&name));
                let problem = self.checker.problem_at(&format!("sources[{i}].{field}"), source.at(field).place, &found);
                problem.expected = Some("a name of its own".to_owned());
            }
            let (first, other) = paths.entry(shape(&pattern)).or_insert_with(|| (i, pattern.clone()));
            if *first != i && pattern.conflicts(other) {
                let found = format!("{} takes the same requests as sources[{first}]", quoted(pattern.as_str()));
                let problem = self.checker.problem_at(&format!("sources[{i}].path"), source.at("path").place, &found);
                problem.hint = Some("neither would come first".to_owned());
            }
        }
    }

    fn source(&mut self, path: &str, slot: &Slot, common: &Common<'_>) -> Option<listen::Source> {
        let pattern = pattern(slot);
        let verify = slot.at("verify");
        let verifiers = self.verifiers(&format!("{path}.verify"), verify);
        let own_key = self.rule(&format!("{path}.key"), slot.at("key"));
        let within = self.rule(&format!("{path}.within"), slot.at("within"));
        let order = self.order(&format!("{path}.order"), slot.at("order"));
        self.order_within(path, slot, order.as_ref());
        let dedupe = self.dedupe(&format!("{path}.dedupe"), slot.at("dedupe"));
        let ack = self.ack(&format!("{path}.ack"), slot.at("ack"));
        if let Some(pattern) = &pattern {
            let ordered = if let Some(Order::Key(rule)) = &order { Some(rule) } else { None };
            for (name, rule) in [("key", own_key.as_ref()), ("within", within.as_ref()), ("order", ordered)] {
                self.path_names(&format!("{path}.{name}"), slot.at(name), rule, pattern);
            }
            let rule = dedupe.as_ref().map(|dedupe| &dedupe.rule);
            self.path_names(&format!("{path}.dedupe.key"), slot.at("dedupe").at("key"), rule, pattern);
        }
        let pattern = pattern?;
        if verifiers.is_empty() {
            return None;
        }
        let name = name(slot)?;
        self.meaning(&format!("{path}.name"), &name);
        let presets: Vec<_> = verifiers.iter().map(|(_, _, verifier)| verifier.preset()).collect();
        let senders = verifiers.into_iter().map(|(_, verify, verifier)| {
            let preset = verifier.preset();
            Sender {
                key: self.key(path, slot, own_key.clone(), &verifier, &pattern, common),
                event_id: preset.and_then(|p| p.event_id).and_then(stated).or_else(|| signed_id(verify)),
                event_type: preset.and_then(|p| p.event_type).and_then(stated),
                resign: verify.at("resign").get(),
                verifier: Arc::new(verifier),
            }
        });
        let senders: Vec<Sender> = senders.collect();
        // The one that waits the shortest decides.
        let limit = |preset: &&'static Preset| preset.answer_limit.unwrap_or(Duration::MAX);
        let hurried = presets.iter().flatten().copied().min_by_key(limit);
        let relay = self.relay(path, slot, &ack, hurried, common);
        Some(listen::Source {
            name: name.into(),
            senders,
            allow_ips: verify.at("allow_ips").items().iter().map(parsed).collect(),
            forward_handshakes: verify.at("forward_handshake").get(),
            path: pattern,
            methods: slot.at("methods").items().iter().map(parsed).collect(),
            within,
            order,
            dedupe,
            forward_path: slot.at("forward_path").maybe::<String>().map(Into::into),
            answer_timeout: answer_timeout(hurried, common),
            relay,
            ack,
            answers: answers(slot.at("answers")),
        })
    }

    /// Precedence: the source's own, the provider's natural key, `groups.key`, none.
    fn key(
        &mut self,
        path: &str,
        slot: &Slot,
        own: Option<Rule>,
        verifier: &Verifier,
        pattern: &Pattern,
        common: &Common<'_>,
    ) -> Option<KeyRule> {
        let field = format!("{path}.key");
        let own_namespace = slot.at("namespace").maybe::<String>().map(Arc::from);
        let covered = verifier.scheme().covers_body();
        if let Some(rule) = own {
            let signed = is_signed(&rule, covered);
            self.about_key(&field, rule.text(), signed, verifier);
            return Some(KeyRule { rule, namespace: own_namespace, reserved: None, signed });
        }
        if self.checker.is_broken(&field) {
            return None;
        }
        if let Some((preset, rule)) = verifier.preset().and_then(|preset| Some((preset, natural_key(preset)?))) {
            self.meaning(&field, format!("{}, {}'s own", rule.text(), preset.title));
            self.about_key(&field, rule.text(), preset.key_signed, verifier);
            let namespace = own_namespace.or_else(|| preset.namespace.map(Arc::from));
            if let (true, Some(namespace)) = (slot.at("namespace").is_null(), &namespace) {
                self.meaning(&format!("{path}.namespace"), format!("{namespace}, {}'s own", preset.title));
            }
            return Some(KeyRule { rule, namespace, reserved: preset.reserved_lane, signed: preset.key_signed });
        }
        let Some((rule, place)) = &common.key else {
            self.meaning(&field, "none");
            self.note(&field, "no key rule applies: all events of this source share the fallback lane");
            return None;
        };
        self.path_names("groups.key", place, Some(rule), pattern);
        self.meaning(&field, format!("{}, from groups.key", rule.text()));
        let signed = is_signed(rule, covered);
        self.about_key(&field, rule.text(), signed, verifier);
        Some(KeyRule { rule: rule.clone(), namespace: own_namespace, reserved: None, signed })
    }

    /// With `respond: upstream`, how long a request may be held. What is about stored events has no place beside it, nor what is about
    /// held requests without it.
    fn relay(
        &mut self,
        path: &str,
        slot: &Slot,
        ack: &Ack,
        preset: Option<&'static Preset>,
        common: &Common<'_>,
    ) -> Option<Duration> {
        let field = format!("{path}.respond_timeout");
        let own: Option<Duration> = slot.at("respond_timeout").maybe();
        if slot.at("respond").maybe::<String>()? != "upstream" {
            if own.is_some() {
                let problem =
                    self.checker.problem_at(&field, slot.at("respond_timeout").place, "no request is held here");
                problem.expected = Some("respond: upstream beside it".to_owned());
            }
            return None;
        }
        let plain_ack = ack.status == StatusCode::OK && ack.body.is_empty() && ack.headers.is_empty();
        for (name, given, why) in [
            ("within", !slot.at("within").is_null(), "its requests wait in one queue of their group"),
            (
                "order",
                !slot.at("order").is_null(),
                "its requests are not stored, so none of them is held back for another",
            ),
            ("dedupe", !slot.at("dedupe").is_null(), "its requests are not stored, so a repeat is not known as one"),
            ("ack", !plain_ack, "its senders get the upstream's own answer"),
        ] {
            let field = format!("{path}.{name}");
            if given && !self.checker.is_broken(&field) {
                let found = format!("has no meaning beside respond: upstream: {why}");
                self.checker.problem_at(&field, slot.at(name).place, &found).hint = Some("leave it out".to_owned());
            }
        }
        let limit = preset.and_then(|preset| Some((preset.title, within_limit(preset)?)));
        let (timeout, whose) = match limit {
            Some((title, left)) => (left, format!("{title}'s limit less half a second")),
            None => (common.upstream_timeout, "from upstream.timeout".to_owned()),
        };
        if own.is_none() {
            self.meaning(&field, format!("{}, {whose}", scalar::show_duration(timeout)));
        }
        Some(own.unwrap_or(timeout))
    }

    fn about_key(&mut self, field: &str, rule: &str, signed: bool, verifier: &Verifier) {
        // Without any signature the note about the verifier says it.
        if !signed
            && matches!(
                verifier.scheme(),
                Scheme::Signed(_) | Scheme::Form(_) | Scheme::Inside(_) | Scheme::Jwt(_) | Scheme::Fetched(_)
            )
        {
            let text = format!(
                "{rule} is not covered by the signature: whoever holds one genuine request can send it for another group"
            );
            self.note(field, text);
        }
    }

    /// A rule from its text; `None` for null, and where it has a problem.
    fn rule(&mut self, path: &str, slot: &Slot) -> Option<Rule> {
        let key: Key = slot.maybe()?;
        match Rule::parse(&spec(&key)) {
            Ok(rule) => Some(rule),
            Err(error) => {
                let found =
                    format!("{} at character {}: {}", quoted(&error.expression), characters(&error), error.message);
                self.checker.problem_at(path, slot.place, &found);
                None
            }
        }
    }

    fn dedupe(&mut self, path: &str, slot: &Slot) -> Option<Dedupe> {
        if slot.is_null() {
            return None;
        }
        let rule = self.rule(&format!("{path}.key"), slot.at("key"))?;
        Some(Dedupe { rule, window: slot.at("window").get() })
    }

    fn order(&mut self, path: &str, slot: &Slot) -> Option<Order> {
        if slot.maybe::<String>().is_some() { Some(Order::Group) } else { self.rule(path, slot).map(Order::Key) }
    }

    /// `within` splits a group's lane, and order holds in a lane.
    fn order_within(&mut self, path: &str, slot: &Slot, order: Option<&Order>) {
        let within = slot.at("within");
        // Of what is not stored `relay` says that neither has a meaning.
        if within.is_null() || slot.at("respond").maybe::<String>().as_deref() == Some("upstream") {
            return;
        }
        match order {
            None => {}
            Some(Order::Group) => {
                let found = "group does not go with within, which splits the group into lanes that run side by side";
                let problem =
                    self.checker.problem_at(&format!("{path}.order"), slot.at("order").place, found);
                problem.expected = Some("an order key, or no within".to_owned());
                problem.hint = Some(
                    "leave within out to have all events of a group go one after another, or order by what needs it, e.g. body.id".to_owned(),
                );
            }
            Some(Order::Key(_)) => self.note(
                &format!("{path}.order"),
                "order holds within each lane that within makes: events of one order key in two of them run side by side",
            ),
        }
    }

    /// `path.name` needs a `{name}` in the source's path.
    fn path_names(&mut self, path: &str, slot: &Slot, rule: Option<&Rule>, pattern: &Pattern) {
        for name in rule.map(Rule::path_names).unwrap_or_default() {
            if !pattern.names().any(|known| known == name) {
                let found = format!("path.{name}: the path {} has no segment {{{name}}}", quoted(pattern.as_str()));
                let names: Vec<&str> = pattern.names().collect();
                let problem = self.checker.problem_at(path, slot.place, &found);
                problem.expected = (!names.is_empty()).then(|| format!("one of {}", names.join(", ")));
                problem.hint = Some("name the segment in the source's path".to_owned());
            }
        }
    }

    fn ack(&mut self, path: &str, slot: &Slot) -> Ack {
        let body: String = slot.at("body").get();
        let status = status(slot.at("status"));
        if matches!(status.as_u16(), 204 | 205) && !body.is_empty() {
            let found = format!("an answer with status {} has no body", status.as_u16());
            self.checker.problem_at(&format!("{path}.body"), slot.at("body").place, &found).hint =
                Some("take another status, or leave the body out".to_owned());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in slot.at("headers").members() {
            let value = value.maybe::<String>().and_then(|text| HeaderValue::from_str(&text).ok());
            if let (Ok(name), Some(value)) = (name.parse::<HeaderName>(), value) {
                headers.insert(name, value);
            }
        }
        Ack { status, body: Bytes::from(body), headers }
    }
}

/// By a source's name: how long a failing event may hold its order key.
pub(super) fn holds(list: &[Slot]) -> HashMap<Arc<str>, Duration> {
    list.iter().filter_map(|source| Some((name(source)?.into(), source.at("order_max_hold").get()))).collect()
}

fn name(source: &Slot) -> Option<String> {
    source.at("name").maybe().or_else(|| source.at("path").maybe())
}

fn pattern(source: &Slot) -> Option<Pattern> {
    Pattern::parse(&source.at("path").maybe::<String>()?).ok()
}

/// What patterns that conflict have in common: all but the names of their segments and a slash at the end. It finds the
/// candidates among thousands of sources without comparing each with each.
fn shape(pattern: &Pattern) -> String {
    let segments = pattern.as_str().trim_end_matches('/').split('/');
    segments.map(|segment| if segment.starts_with('{') { "{}" } else { segment }).collect::<Vec<_>>().join("/")
}

/// The rule as the key module takes it.
fn spec(key: &Key) -> RuleSpec {
    match key {
        Key::One(text) => RuleSpec::Expr(text.clone()),
        Key::First(parts) => RuleSpec::First(parts.iter().map(spec).collect()),
        Key::Join(parts) => RuleSpec::Join(parts.iter().map(spec).collect()),
    }
}

/// Whether nobody but the provider can choose the key: the signature covers all that the rule reads.
pub(super) fn is_signed(rule: &Rule, covers_body: bool) -> bool {
    let mut places = rule.places().into_iter();
    places.all(|place| matches!(place, key::Place::Const) || (covers_body && place == key::Place::Body))
}

/// A preset's rule: one expression, or the first of several.
fn natural_key(preset: &Preset) -> Option<Rule> {
    let spec = RuleSpec::any_of(preset.natural_key)?;
    Some(Rule::parse(&spec).expect("invariant: the rules of presets can be read, a test reads them all"))
}

/// A preset's expression.
fn stated(text: &str) -> Option<Rule> {
    let rule = Rule::parse(&RuleSpec::Expr(text.to_owned()));
    Some(rule.expect("invariant: the rules of presets can be read, a test reads them all"))
}

/// The id that an own scheme signs is the sender's id of the event.
fn signed_id(verify: &Slot) -> Option<Rule> {
    let header: String = verify.at("hmac").at("id").at("header").maybe()?;
    Rule::parse(&RuleSpec::Expr(format!("headers.{header}"))).ok()
}

fn answer_timeout(preset: Option<&'static Preset>, common: &Common<'_>) -> Duration {
    common.answer_timeout.or_else(|| within_limit(preset?)).unwrap_or(ANSWER_TIMEOUT)
}

/// How long an answer may take for its provider, where that states a limit.
fn within_limit(preset: &Preset) -> Option<Duration> {
    let limit = preset.answer_limit?;
    // A limit below a second leaves half of it.
    Some(limit.checked_sub(ANSWER_WAY).filter(|left| *left >= ANSWER_WAY).unwrap_or(limit / 2))
}

fn answers(slot: &Slot) -> Answers {
    Answers {
        bad_signature: status(slot.at("bad_signature")),
        shed: status(slot.at("shed")),
        unavailable: status(slot.at("unavailable")),
    }
}

fn status(slot: &Slot) -> StatusCode {
    StatusCode::from_u16(slot.get()).expect("invariant: the table bounds it to three digits")
}

/// Where in the expression, counted in characters from 1.
fn characters(error: &key::ParseError) -> usize {
    error.expression.char_indices().take_while(|(at, _)| *at < error.offset).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify;

    #[test]
    fn the_rules_of_every_preset_can_be_read() {
        for preset in verify::presets() {
            assert_eq!(natural_key(preset).is_none(), preset.natural_key.is_empty(), "{}", preset.name);
            for text in [preset.event_id, preset.event_type].into_iter().flatten() {
                assert!(stated(text).is_some(), "{}: {text}", preset.name);
            }
        }
    }

    #[test]
    fn patterns_of_one_shape_are_those_that_conflict() {
        let texts = ["/", "/a", "/a/", "/{x}", "/{y}/", "/a/{x}", "/a/{y}", "/a/*", "/*", "/{x}/*", "/{x}/b", "/b/{x}"];
        let patterns: Vec<Pattern> = texts.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        for one in &patterns {
            for other in &patterns {
                assert_eq!(shape(one) == shape(other), one.conflicts(other), "{} {}", one.as_str(), other.as_str());
            }
        }
    }

    #[test]
    fn a_provider_s_limit_leaves_time_for_the_way_back() {
        let common = |answer_timeout| Common { key: None, answer_timeout, upstream_timeout: Duration::from_secs(30) };
        let of = |name: &str| answer_timeout(verify::preset(name), &common(None));
        assert_eq!(of("shopify"), Duration::from_millis(4_500));
        assert_eq!(of("nobody"), Duration::from_secs(4));
        let two = Duration::from_secs(2);
        assert_eq!(answer_timeout(verify::preset("shopify"), &common(Some(two))), two);
        for preset in verify::presets() {
            let timeout = answer_timeout(Some(preset), &common(None));
            assert!(preset.answer_limit.is_none_or(|limit| timeout < limit), "{}", preset.name);
        }
    }
}
