//! The story of one request: every decision in words, and the same as JSON.

use serde_json::{Value, json};

use super::Explain;
use super::near::{Other, near};
use crate::app::{self, Explanation, Via};
use crate::cli::capture::Captured;
use crate::cli::table::escaped;
use crate::config::Config;
use crate::event::{KeySource, Wall};
use crate::verify::scheme::Scheme;
use crate::verify::{Rejection, Request, Verified, Verifier};

/// Paths named where none matched.
const NEAR_MAX: usize = 3;

/// One step of the road: its name, whether it went well, what there is to say.
struct Step {
    name: &'static str,
    ok: bool,
    text: String,
}

/// All that is known about the request.
pub(super) struct Story<'c> {
    config: &'c Config,
    method: String,
    path: String,
    has_query: bool,
    body_bytes: usize,
    form: String,
    explanation: Explanation<'c>,
    at: Wall,
    notes: Vec<String>,
    /// What a request with a wrong signature would have been genuine with.
    fits: Option<String>,
}

impl<'c> Story<'c> {
    pub(super) fn of(explain: &Explain, config: &'c Config, captured: Captured) -> Self {
        let Captured { form, parts, body, https, at: own_time, mut notes } = captured;
        let at = match (explain.at, own_time) {
            (Some(at), _) => at,
            (None, Some((at, place))) if !explain.now => {
                notes.push(format!(
                    "judged at the capture's own time, {} ({place}); --now takes this machine's clock",
                    shown(at)
                ));
                at
            }
            (None, _) => app::wall(),
        };
        // What a proxy added only a proxy of ours can have put there.
        let forwarded = parts.headers.keys().any(|name| name.as_str().starts_with("x-forwarded-"));
        let trusted = forwarded && !config.listen.trusted_proxies.is_empty();
        if trusted {
            notes.push("its X-Forwarded-* headers are taken to come from one of listen.trusted_proxies".to_owned());
        }
        let via = Via { tls: https.unwrap_or(explain.https), trusted };
        let (method, path) = (parts.method.to_string(), parts.uri.path().to_owned());
        let has_query = parts.uri.query().is_some();
        let body_bytes = body.len();
        let (verb, uri, headers) = (parts.method.clone(), parts.uri.clone(), parts.headers.clone());
        let explanation = app::explain(config, parts, &body, via, at);
        let request = Request {
            method: &verb,
            target: uri.path_and_query().map_or("/", |target| target.as_str()),
            seen_url: explanation.examined.seen_url.as_deref(),
            headers: &headers,
            body: &body,
        };
        let fits = fits(config, &request, &explanation);
        Self { config, method, path, has_query, body_bytes, form: form.to_string(), explanation, at, notes, fits }
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.explanation.examined.refusal.is_none()
    }

    /// The place in the file of the source whose path it is, unless one of its senders is known to have sent it.
    pub(super) fn source_undecided(&self) -> Option<usize> {
        let examined = &self.explanation.examined;
        let known = examined.handshake.is_none() && matches!(examined.verdict, Some(Ok(_)));
        let source = examined.source.filter(|_| !known)?;
        self.config.sources.iter().position(|one| one.name == source.name)
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut step = |name, ok, text: String| steps.push(Step { name, ok, text });
        let examined = &self.explanation.examined;
        let query = if self.has_query { " (and a query)" } else { "" };
        step(
            "request",
            true,
            format!("{} {}{query}, {} bytes of body, read as {}", self.method, self.path, self.body_bytes, self.form),
        );
        if let Some(refusal) = examined.refusal.as_ref().filter(|refusal| refusal.reason == "malformed_request") {
            step("head", false, refusal.message.clone());
        }
        let Some(source) = examined.source else {
            step("source", false, self.no_source());
            return steps;
        };
        step("source", true, format!("{}, whose path is {}", source.name, source.path.as_str()));
        if let Some(reply) = &examined.handshake {
            let text = format!(
                "this is {}'s question whether the address is willing: answered with {}, {} bytes; nothing is stored",
                examined.sender.map_or("a provider", |sender| sender.verifier.name()),
                reply.status,
                reply.body.len()
            );
            step("handshake", true, text);
            return steps;
        }
        let methods: Vec<&str> = source.methods.iter().map(http::Method::as_str).collect();
        step(
            "method",
            source.methods.iter().any(|method| *method == *self.method),
            format!("the source takes {}", methods.join(", ")),
        );
        let limits = &self.config.listen.limits;
        step(
            "limits",
            examined.head_bytes <= limits.headers && self.body_bytes <= limits.body,
            format!(
                "head {} of {} bytes, body {} of {}",
                examined.head_bytes, limits.headers, self.body_bytes, limits.body
            ),
        );
        if let (Some(sender), Some(verdict)) = (examined.sender, &examined.verdict) {
            step("verify", verdict.is_ok(), self.verdict(&sender.verifier, verdict));
        }
        if let Some(fits) = &self.fits {
            step("near miss", true, fits.clone());
        }
        if !self.is_accepted() {
            step("if", true, "it were accepted:".to_owned());
        }
        if let Some(claimed) = &examined.grouped {
            step(
                "key",
                !matches!(claimed.key_source, KeySource::Missing(_)),
                key(
                    examined.sender.and_then(|sender| sender.key.as_ref()).map(|key| key.rule.text()),
                    &claimed.key_source,
                ),
            );
            let inner = claimed.lane.inner.as_ref().map_or_else(String::new, |inner| format!(", in its part {inner}"));
            step("lane", true, format!("group {}{inner}", claimed.lane.group));
            if let Some(order) = &claimed.order {
                step("order", true, format!("after all earlier events of this group with order key {order}"));
            }
            let ids = [("the provider's event id", &claimed.event_id), ("the event's type", &claimed.event_type)];
            let ids: Vec<String> = ids
                .iter()
                .filter_map(|(what, value)| Some(format!("{what} is {}", escaped(value.as_ref()?))))
                .collect();
            if !ids.is_empty() {
                step("event", true, ids.join(", "));
            }
        }
        if let Some(treatment) = &self.explanation.treatment {
            let rate = treatment.rate.map_or_else(String::new, |(events, per)| {
                format!(", at most {events} attempts in {} s", per.as_secs_f64())
            });
            step(
                "treated",
                true,
                format!(
                    "weight {}, at most {} of {} slots{rate}, by {}",
                    treatment.weight, treatment.concurrency, treatment.slots, treatment.rule
                ),
            );
        }
        if let Some(to) = &self.explanation.forwarded_to {
            step("forward", true, format!("{} {to}{query}", self.method));
        }
        if self.is_accepted() {
            let body = if source.ack.body.is_empty() {
                "no body".to_owned()
            } else {
                format!("{} bytes of body", source.ack.body.len())
            };
            step(
                "ack",
                true,
                format!(
                    "{} with {body}, once it is durable (within {} s, else 503)",
                    source.ack.status.as_u16(),
                    source.answer_timeout.as_secs_f64()
                ),
            );
        }
        steps
    }

    fn no_source(&self) -> String {
        let near = self.near();
        let all = self.config.sources.len();
        match near.as_slice() {
            [] => format!("no source takes this path; there are {all}, and none is like it"),
            near => format!("no source takes this path; most like it: {}", near.join(", ")),
        }
    }

    /// The paths that are most like the request's.
    fn near(&self) -> Vec<&str> {
        /// Below this likeness a name would only puzzle.
        const ALIKE: f64 = 0.5;
        let paths = self.config.sources.iter().map(|source| source.path.as_str());
        let mut near: Vec<(f64, &str)> = paths
            .map(|path| (strsim::normalized_levenshtein(path, &self.path), path))
            .filter(|(likeness, _)| *likeness >= ALIKE)
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        near.into_iter().take(NEAR_MAX).map(|(_, path)| path).collect()
    }

    fn verdict(&self, verifier: &Verifier, verdict: &Result<Verified, Rejection>) -> String {
        let carriers = verifier.scheme().headers().carriers.join(" or ");
        let place = if carriers.is_empty() { String::new() } else { format!(", its proof in {carriers}") };
        let mut text = match verdict {
            Ok(verified) => {
                let secrets = verifier.secret_count();
                let which = verified.secret.map_or_else(String::new, |at| format!(", secret {at} of {secrets}"));
                format!("{}{which}{place}: genuine", verifier.name())
            }
            Err(rejection) => format!("{}{place}: {} ({rejection})", verifier.name(), rejection.reason()),
        };
        if matches!(verifier.scheme(), Scheme::None) {
            text = "none: anybody who knows the address may send".to_owned();
        }
        if let Ok(Verified { skew_s: Some(skew), .. }) = verdict {
            let way = if *skew > 0 { "ahead of" } else { "behind" };
            text.push_str(&format!("; its signed time is {} s {way} ours", skew.unsigned_abs()));
        }
        if let Err(Rejection::Stale(skew) | Rejection::Future(skew)) = verdict {
            let sent = Wall::from_unix_s(skew.sent_ms.div_euclid(1_000));
            text.push_str(&format!("; the signature itself is right: --at {} judges it by its own time", shown(sent)));
        }
        if verifier.scheme().covers_url() && verdict.is_ok() {
            text.push_str("; the signature covers the public address too");
        }
        text
    }

    pub(super) fn text(&self) -> String {
        let steps = self.steps();
        let mut text = String::new();
        for Step { name, ok, text: said } in &steps {
            text.push_str(&format!("{} {name:<10} {said}\n", if *ok { " " } else { "!" }));
        }
        for note in &self.notes {
            text.push_str(&format!("  {:<10} {note}\n", "note"));
        }
        text.push_str(&match &self.explanation.examined.refusal {
            None => "\nIt would be accepted.\n".to_owned(),
            Some(refusal) => format!("\nIt would be refused with {} ({}).\n", refusal.status, refusal.reason),
        });
        text
    }

    pub(super) fn json(&self) -> Value {
        let examined = &self.explanation.examined;
        let verdict = examined.verdict.as_ref().map(|verdict| match verdict {
            Ok(verified) => json!({ "valid": true, "label": &**verified.label(), "secret": verified.secret, "skew_s": verified.skew_s }),
            Err(rejection) => json!({ "valid": false, "reason": rejection.reason(), "message": rejection.to_string() }),
        });
        let claimed = examined.grouped.as_ref();
        let key = claimed.map(|claimed| match &claimed.key_source {
            KeySource::Rule { rule, signed } => json!({ "rule": &**rule, "signed": signed }),
            KeySource::Missing(missing) => json!({ "missing": missing.as_str() }),
            KeySource::NoRule => json!({ "missing": "no_rule" }),
        });
        let steps = self.steps();
        let steps: Vec<Value> =
            steps.iter().map(|step| json!({ "step": step.name, "ok": step.ok, "text": step.text })).collect();
        json!({
            "accepted": self.is_accepted(),
            "refusal": examined.refusal.as_ref().map(|r| json!({ "status": r.status, "reason": r.reason, "message": r.message })),
            "form": self.form,
            "at": shown(self.at),
            "method": self.method,
            "path": self.path,
            "body_bytes": self.body_bytes,
            "head_bytes": examined.head_bytes,
            "source": examined.source.map(|source| &*source.name),
            "near": if examined.source.is_none() { self.near() } else { Vec::new() },
            "handshake": examined.handshake.as_ref().map(|reply| json!({ "status": reply.status, "body_bytes": reply.body.len() })),
            "verdict": verdict,
            "near_miss": self.fits,
            "key": key,
            "group": claimed.map(|claimed| claimed.lane.group.as_str()),
            "within": claimed.and_then(|claimed| claimed.lane.inner.as_ref()).map(crate::event::Group::as_str),
            "order": claimed.and_then(|claimed| claimed.order.as_ref()).map(crate::event::Group::as_str),
            "provider_event_id": claimed.and_then(|claimed| claimed.event_id.as_deref()),
            "type": claimed.and_then(|claimed| claimed.event_type.as_deref()),
            "treatment": self.explanation.treatment.as_ref().map(|t| json!({
                "rule": t.rule, "weight": t.weight, "concurrency": t.concurrency, "slots": t.slots,
                "rate": t.rate.map(|(events, per)| json!({ "events": events, "per_s": per.as_secs_f64() })),
            })),
            "forwarded_to": self.explanation.forwarded_to,
            "ack": examined.source.filter(|_| self.is_accepted()).map(|source| source.ack.status.as_u16()),
            "notes": self.notes,
            "steps": steps,
        })
    }
}

/// What a request whose signature is wrong would have been genuine with.
fn fits(config: &Config, request: &Request<'_>, explanation: &Explanation<'_>) -> Option<String> {
    let (Some(sender), Some(Err(rejection))) = (explanation.examined.sender, &explanation.examined.verdict) else {
        return None;
    };
    let senders = config.sources.iter().flat_map(|source| source.senders.iter().map(|sender| (&*source.name, sender)));
    let others: Vec<Other<'_>> = senders.map(|(name, sender)| Other { name, verifier: &sender.verifier }).collect();
    near(request, &sender.verifier, rejection, &others)
}

fn key(rule: Option<&str>, found: &KeySource) -> String {
    let rule = rule.unwrap_or_default();
    match found {
        KeySource::Rule { rule, signed: true } => format!("{rule}, which the signature covers"),
        KeySource::Rule { rule, signed: false } => {
            format!("{rule}, which the signature does not cover: whoever holds one genuine request can choose it")
        }
        KeySource::Missing(missing) => format!("{rule} gives none ({}): the fallback lane", missing.as_str()),
        KeySource::NoRule => "no rule applies to this source: the fallback lane".to_owned(),
    }
}

fn shown(at: Wall) -> String {
    let seconds = jiff::Timestamp::from_second(at.unix_s());
    seconds.map_or_else(|_| at.unix_s().to_string(), |time| time.to_string())
}
