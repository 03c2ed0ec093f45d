//! From an event to the request that the upstream sees.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, Entry, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;

use super::Job;
use super::place::Place;
use super::settings::{Resign, Settings, SettingsError};
use crate::event::{Event, HOP_BY_HOP, TRACEPARENT, TRACESTATE, Trace, Wall};
use crate::verify::mac;

/// What frames one message or names its receiver, and is written by us. It is taken out here with [`HOP_BY_HOP`], although those went
/// when the event was accepted: what the store holds may be older than that rule, and a second `Content-Length` is a hole.
const FRAMING: [&str; 3] = ["content-length", "host", "http2-settings"];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Why an event cannot be written as a request to this upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsendable {
    #[error(
        "the target {0:?} cannot stand in a request: it must be a path, with or without a query, of at most 64 KiB"
    )]
    Target(String),
    #[error("method CONNECT asks for a tunnel and cannot be delivered")]
    Connect,
}

/// Makes requests to one upstream, whichever of its addresses they go to.
pub(super) struct Maker {
    added: Vec<(HeaderName, HeaderValue)>,
    key: Option<mac::Key>,
    resign: Option<Resign>,
    /// Whether it was said that an event could not be signed again.
    told: AtomicBool,
}

impl Maker {
    /// Checks the settings, but for the addresses.
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        if settings.timeout.is_zero() {
            return Err(SettingsError::Timeout);
        }
        if let Some((name, _)) = settings.headers.iter().find(|(name, _)| name != HOST && is_ours(name)) {
            return Err(SettingsError::Header(name.clone()));
        }
        if let Some(code) = settings.never.iter().find(|code| !(300..=599).contains(*code)) {
            return Err(SettingsError::Never(*code));
        }
        let key = settings.signing_secret.as_ref();
        let key = key.map(|secret| mac::standard_key(secret).ok_or(SettingsError::SigningSecret)).transpose()?;
        Ok(Self {
            added: settings.headers.iter().map(|(name, value)| (name.clone(), masked(value))).collect(),
            key,
            resign: settings.resign.clone(),
            told: AtomicBool::new(false),
        })
    }

    /// The request of `job`, sent to `place` at `now`.
    pub(super) fn make(&self, job: &Job, place: &Place, now: Wall) -> Result<Request<Full<Bytes>>, Unsendable> {
        let event = &*job.event;
        if event.method == Method::CONNECT {
            return Err(Unsendable::Connect);
        }
        let mut request = Request::new(Full::new(event.body.clone()));
        *request.method_mut() = event.method.clone();
        *request.uri_mut() = place.uri(event.forward.as_deref().unwrap_or(&event.target))?;
        *request.headers_mut() = self.headers(job, place, now);
        Ok(request)
    }

    /// A request that asks `place` how it is, with the lines that every attempt has.
    pub(super) fn check(&self, place: &Place, path: &PathAndQuery) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = place.with_path(path.clone())?;
        let headers = request.headers_mut();
        headers.insert(HOST, place.host().clone());
        headers.insert(USER_AGENT, HeaderValue::from_static("fairlane"));
        self.add(headers);
        Ok(request)
    }

    fn headers(&self, job: &Job, place: &Place, now: Wall) -> HeaderMap {
        let event = &*job.event;
        let mut headers = HeaderMap::with_capacity(event.headers.len() + 20);
        self.copy(event, now, &mut headers);
        add_forwarded(event, &mut headers);
        add_fairlane(job, &mut headers);
        if let Some(trace) = job.trace {
            add_trace(trace, event, &mut headers);
        }
        if let Some(key) = &self.key {
            add_signature(key, event, now, &mut headers);
        }
        headers.insert(HOST, place.host().clone());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(event.body.len()));
        self.add(&mut headers);
        headers
    }

    /// The configured lines, in the place of others of their names.
    fn add(&self, headers: &mut HeaderMap) {
        for (name, _) in &self.added {
            headers.remove(name);
        }
        for (name, value) in &self.added {
            headers.append(name, value.clone());
        }
    }
}

impl Maker {
    /// The event's own lines, with a fresh signature where its source asks for one. Where none can be made they go as they came.
    fn copy(&self, event: &Event, now: Wall, headers: &mut HeaderMap) {
        copy_end_to_end(&event.headers, headers);
        let Some(Resign(resign)) = &self.resign else { return };
        // The receiver's host, which a signature may cover, is still there: ours is written later.
        let mut signed = headers.clone();
        if let Some(host) = event.headers.get(HOST) {
            signed.insert(HOST, host.clone());
        }
        match resign(event, now, &mut signed) {
            Ok(()) => *headers = signed,
            Err(why) if !self.told.swap(true, Ordering::Relaxed) => {
                tracing::warn!(source = %event.source, why, "an event cannot be signed again and goes out as it came; said once");
            }
            Err(_) => {}
        }
    }
}

/// `value`, so that no log shows it: what an operator adds is often a credential.
fn masked(value: &HeaderValue) -> HeaderValue {
    let mut value = value.clone();
    value.set_sensitive(true);
    value
}

/// Whether only the gateway may write this header. Applications see `_` and `-` as the same, so both are ours.
fn is_ours(name: &HeaderName) -> bool {
    let ours = b"fairlane-";
    let starts = name.as_str().bytes().zip(ours).filter(|(a, b)| a == *b || (*a == b'_' && **b == b'-')).count();
    HOP_BY_HOP.contains(&name.as_str()) || FRAMING.contains(&name.as_str()) || starts == ours.len()
}

/// Copies the lines that are the event's, repeated ones in their order.
fn copy_end_to_end(from: &HeaderMap, to: &mut HeaderMap) {
    let named: Vec<&str> = from
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    for (name, value) in from {
        if !is_ours(name) && !named.iter().any(|other| name.as_str().eq_ignore_ascii_case(other)) {
            to.append(name, value.clone());
        }
    }
}

/// Says who sent it and how. What is there already came from a trusted proxy: the chain is continued, the rest is kept.
fn add_forwarded(event: &Event, headers: &mut HeaderMap) {
    let chain = headers.get_all(&FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    let peer = canonical(event.peer);
    let chain: Vec<&[u8]> = chain.filter(|part| !part.is_empty()).chain([peer.as_bytes()]).collect();
    let chain = HeaderValue::from_bytes(&chain.join(&b", "[..]));
    headers.insert(FORWARDED_FOR, chain.expect("header values and an address, joined, are a header value"));
    if let Entry::Vacant(proto) = headers.entry(FORWARDED_PROTO) {
        proto.insert(HeaderValue::from_static(if event.https { "https" } else { "http" }));
    }
    if let (Entry::Vacant(entry), Some(host)) = (headers.entry(FORWARDED_HOST), event.headers.get(HOST)) {
        entry.insert(host.clone());
    }
}

fn canonical(peer: IpAddr) -> String {
    peer.to_canonical().to_string()
}

/// Says what we know about the event and this attempt.
fn add_fairlane(job: &Job, headers: &mut HeaderMap) {
    let event = &*job.event;
    let mut put = |name: &'static str, value: HeaderValue| {
        headers.insert(HeaderName::from_static(name), value);
    };
    put("fairlane-event-id", ours(event.id.to_string()));
    put("fairlane-source", visible(&event.source));
    put("fairlane-group", visible(event.group().as_str()));
    put("fairlane-attempt", HeaderValue::from(job.attempt));
    put("fairlane-received-at", ours(rfc_3339(event.received)));
    put("fairlane-wait-ms", HeaderValue::from(u64::try_from(job.wait.as_millis()).unwrap_or(u64::MAX)));
    put("fairlane-wait-reason", ours(job.waited.to_string()));
    put("fairlane-verified", visible(&event.verified));
    put("fairlane-will-retry", HeaderValue::from_static(if job.will_retry { "true" } else { "false" }));
    if let Some(id) = &event.provider_event_id {
        put("fairlane-provider-event-id", visible(id));
    }
    if job.replays > 0 {
        put("fairlane-replay", HeaderValue::from(job.replays));
    }
}

/// Says which span this is a part of. Words about another trace do not go with it (W3C Trace Context §4.3).
fn add_trace(trace: Trace, event: &Event, headers: &mut HeaderMap) {
    if Trace::from_headers(&event.headers).is_none_or(|came| came.id != trace.id) {
        headers.remove(TRACESTATE);
    }
    headers.insert(TRACEPARENT, visible(&trace.to_string()));
}

fn add_signature(key: &mac::Key, event: &Event, now: Wall, headers: &mut HeaderMap) {
    let timestamp = now.unix_s();
    let signature = mac::standard_signature(key, &event.id.to_string(), timestamp, &event.body);
    headers.insert(HeaderName::from_static("fairlane-timestamp"), HeaderValue::from(timestamp));
    headers.insert(HeaderName::from_static("fairlane-signature"), visible(&signature));
}

/// A text that we wrote, as a header's value.
fn ours(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("ids, times and reasons are visible ASCII")
}

/// `text` as a header's value: as it is where it is visible ASCII; otherwise each other byte, and `%`, is written `%XX`.
fn visible(text: &str) -> HeaderValue {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte);
    let trimmed = text.trim_matches(' ').len() == text.len();
    if trimmed && text.bytes().all(plain) {
        return HeaderValue::from_str(text).expect("visible ASCII is a header value");
    }
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if plain(byte) && byte != b'%' && byte != b' ' {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
    HeaderValue::from_str(&out).expect("visible ASCII is a header value")
}

/// A moment as RFC 3339 writes it, in UTC, to the millisecond.
fn rfc_3339(at: Wall) -> String {
    let micros = i64::try_from(at.0).unwrap_or(i64::MAX);
    let stamp = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    format!("{stamp:.3}")
}
