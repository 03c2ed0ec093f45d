//! What would become of a request, without taking it: `fairlane explain`.
//!
//! Every decision here is made by the code that serves (the head's check, the router, the verifier, the rules); only their order is
//! written down a second time, and `tests/explain.rs` holds it against a gateway that serves. What comes after a refusal is
//! found out too where it can be: whose a forged request claims to be is what its owner wants to know.

use bytes::Bytes;
use http::request::Parts;

use super::group::Rules;
use super::head::{self, Malformed};
use super::reply::{self, Refused};
use super::route::Router;
use super::{Sender, Settings, Source};
use crate::event::{Group, KeySource, Lane, Wall};
use crate::key;
use crate::verify::{self, Rejection, Reply, Verified, When};

/// How a request came in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Via {
    /// Over TLS.
    pub tls: bool,
    /// From a proxy whose `X-Forwarded-*` headers count.
    pub trusted: bool,
}

/// What would become of a request.
#[derive(Debug)]
pub struct Examined<'s> {
    /// The first thing that speaks against it.
    pub refusal: Option<Refusal>,
    /// The source whose path it is.
    pub source: Option<&'s Source>,
    /// `{name}` segments of the path, percent-encoded as they came.
    pub names: Vec<(String, String)>,
    /// Bytes of its head, as they are counted against `listen.limits.headers`.
    pub head_bytes: usize,
    /// `scheme://host` as its sender used it.
    pub seen_url: Option<String>,
    /// The answer where it is a handshake; nothing is stored of one.
    pub handshake: Option<Reply>,
    /// Whose request it is, or whose it seems to be, of those who may send there.
    pub sender: Option<&'s Sender>,
    /// Whether it is genuine.
    pub verdict: Option<Result<Verified, Rejection>>,
    /// Whose it is.
    pub grouped: Option<Claimed>,
    /// Path and query that the upstream would see below its own address.
    pub forward: Option<String>,
}

/// Why it would not be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the sender would be answered.
    pub status: u16,
    /// Its code in metrics and in the list of rejections.
    pub reason: &'static str,
    /// What was expected and what was found.
    pub message: String,
}

/// Whose a request is, if it is genuine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Where it would wait.
    pub lane: Lane,
    /// Where its key came from.
    pub key_source: KeySource,
    /// Events of one group that share this go one after another.
    pub order: Option<Group>,
    /// The sender's own id for it.
    pub event_id: Option<Box<str>>,
    /// The sender's name for what happened.
    pub event_type: Option<Box<str>>,
}

/// Examines a request with this head and body, taken to come at `now`.
#[must_use]
pub fn examine<'s>(
    settings: &Settings,
    sources: &'s [Source],
    mut parts: Parts,
    body: &Bytes,
    via: Via,
    now: Wall,
) -> Examined<'s> {
    let limits = &settings.limits;
    let mut refused = Vec::new();
    let head_bytes = head::bytes(&parts);
    if head_bytes > limits.headers {
        refused.push(Refused::HeadTooLarge(limits.headers));
    }
    if let Err(Malformed(why)) = head::check(&parts) {
        refused.push(Refused::Malformed(why));
    }
    let seen = head::seen(&parts, via.tls, via.trusted);
    let mut examined = Examined {
        refusal: None,
        source: None,
        names: Vec::new(),
        head_bytes,
        seen_url: seen.url,
        handshake: None,
        sender: None,
        verdict: None,
        grouped: None,
        forward: None,
    };
    let router = Router::new(sources.iter().map(|source| &source.path));
    let path = parts.uri.path().to_owned();
    let found = router.find(&path).and_then(|found| Some((sources.get(found.index)?, found.names)));
    match found {
        None => refused.push(Refused::UnknownPath),
        Some((source, names)) => {
            examined.names = names.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            examined.of_source(source, &mut parts, &names, body, via, now);
            refused.extend(examined.refusals(source, &parts, body, limits.body));
            examined.source = Some(source);
        }
    }
    let answers = examined.source.map(|source| &source.answers);
    examined.refusal = refused.first().map(|refused| Refusal {
        status: reply::refused(refused, answers, 0.5).status().as_u16(),
        reason: refused.reason(),
        message: refused.message(),
    });
    examined
}

/// Whose of several a request is: the first for whom it is genuine, else the one whose headers are there.
fn seems<'s>(
    judged: impl Iterator<Item = (&'s Sender, Result<Verified, Rejection>)>,
) -> (&'s Sender, Result<Verified, Rejection>) {
    let rank = |verdict: &Result<Verified, Rejection>| match verdict {
        Ok(_) => 0,
        Err(Rejection::MissingHeader { .. }) => 2,
        Err(_) => 1,
    };
    judged.min_by_key(|(_, verdict)| rank(verdict)).expect("invariant: a source has at least one sender")
}

impl<'s> Examined<'s> {
    /// What its source makes of it.
    fn of_source(
        &mut self,
        source: &'s Source,
        parts: &mut Parts,
        names: &[(&str, &str)],
        body: &Bytes,
        via: Via,
        now: Wall,
    ) {
        let request = verify::Request {
            method: &parts.method,
            target: super::accept::target(parts),
            seen_url: self.seen_url.as_deref(),
            headers: &parts.headers,
            body,
        };
        let asked = source.senders.iter().find_map(|one| Some((one, one.verifier.handshake(&request, When::At(now))?)));
        let judged = source.senders.iter().map(|sender| (sender, sender.verifier.judge(&request, now)));
        let (mut sender, verdict) = seems(judged);
        self.handshake = asked.map(|(asking, reply)| {
            sender = asking;
            reply
        });
        (self.sender, self.verdict) = (Some(sender), Some(verdict));
        head::clean(parts, via.trusted);
        let grouped = Rules::of(source, sender).find(&key::Input {
            headers: &parts.headers,
            path: parts.uri.path(),
            names,
            query: parts.uri.query(),
            body,
        });
        self.grouped = Some(Claimed {
            lane: grouped.lane,
            key_source: grouped.key_source,
            order: grouped.order,
            event_id: grouped.event_id,
            event_type: grouped.event_type,
        });
        self.forward = Some(match source.forward_path.as_deref() {
            Some(path) => super::accept::forward(path, parts.uri.query()).into(),
            None => super::accept::target(parts).to_owned(),
        });
    }

    /// What speaks against it, in the order in which the listener looks.
    fn refusals(&self, source: &Source, parts: &Parts, body: &Bytes, body_limit: usize) -> Vec<Refused> {
        let mut refused = Vec::new();
        // A handshake is answered before methods are looked at.
        if self.handshake.is_some() {
            return refused;
        }
        if !source.methods.contains(&parts.method) {
            refused.push(Refused::Method(source.methods.clone()));
        }
        if body.len() > body_limit {
            refused.push(Refused::TooLarge(body_limit));
        }
        if let Some(Err(rejection)) = &self.verdict {
            refused.push(Refused::Unverified { sender: None, rejection: rejection.clone() });
        }
        refused
    }
}
