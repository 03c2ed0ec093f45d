//! What went wrong, told apart by how far the attempt had come, and put into words for a person.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use http::header::LOCATION;
use http::uri::{Authority, Scheme};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, HttpInfo};
use tokio::time::Instant;

use super::connect::{Closed, Mark, TooMuch};
use super::outcome::{Answer, Outcome};
use super::request::Unsendable;
use super::trace::{Phase, Trace};

/// Longest text about one failure, in characters: it is stored with every attempt.
const WORDS_MAX: usize = 400;

/// An attempt without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) outcome: Outcome,
    pub(super) words: String,
}

impl Fault {
    fn new(outcome: Outcome, words: &str) -> Self {
        Self { outcome, words: shown(words) }
    }

    /// The last of the faults of one attempt, one for each address that it tried, with a word on the others.
    pub(super) fn last_of(mut faults: Vec<Self>) -> Self {
        let last = faults.pop().expect("an attempt tries one address at least");
        if faults.is_empty() {
            return last;
        }
        let others: Vec<&str> = faults.iter().map(|fault| fault.words.as_str()).collect();
        Self { words: cut(format!("{}; tried before it: {}", last.words, others.join("; "))), ..last }
    }
}

impl From<Unsendable> for Fault {
    fn from(unsendable: Unsendable) -> Self {
        Self::new(Outcome::Unsendable, &unsendable.to_string())
    }
}

/// Where requests go, for messages: `host:port`, the port always there.
#[derive(Clone, Debug)]
pub(super) struct Target {
    host: String,
    place: String,
}

impl Target {
    pub(super) fn new(scheme: &Scheme, authority: &Authority) -> Self {
        let port = authority.port_u16().unwrap_or(if *scheme == Scheme::HTTPS { 443 } else { 80 });
        Self { host: authority.host().to_owned(), place: format!("{}:{port}", authority.host()) }
    }
}

/// How far an attempt had come when it ended.
pub(super) struct Seen<'a> {
    target: &'a Target,
    trace: &'a Arc<Trace>,
    /// The connection that the request was given to.
    connection: Option<Used>,
}

struct Used {
    mark: Option<Mark>,
    remote: Option<SocketAddr>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(target: &'a Target, trace: &'a Arc<Trace>, connected: Option<&Connected>) -> Self {
        let connection = connected.map(|connected| {
            let mut extras = Extensions::new();
            connected.get_extras(&mut extras);
            Used { mark: extras.remove::<Mark>(), remote: extras.get::<HttpInfo>().map(HttpInfo::remote_addr) }
        });
        Self { target, trace, connection }
    }

    /// Whether the request went to a kept connection that closed without a byte of an answer.
    pub(super) fn is_stale(&self, error: &legacy::Error) -> bool {
        let mark = self.connection.as_ref().and_then(|used| used.mark.as_ref());
        mark.is_some_and(|mark| mark.is_reused_by(self.trace) && !mark.has_heard()) && !is_user(error)
    }

    /// Whether the connection had stood for this long at that moment.
    pub(super) fn is_older(&self, then: Instant, age: Duration) -> bool {
        let mark = self.connection.as_ref().and_then(|used| used.mark.as_ref());
        mark.is_some_and(|mark| then.saturating_duration_since(mark.since) >= age)
    }

    /// An answer that is none: we never ask for another protocol.
    pub(super) fn switched(&self) -> Fault {
        let words = format!("{} switched protocols (101) without having been asked to", self.place());
        Fault::new(Outcome::Malformed, &words)
    }

    /// The deadline passed.
    pub(super) fn late(&self, timeout: Duration) -> Fault {
        let (place, host) = (self.place(), &self.target.host);
        let (outcome, words) = match (&self.connection, self.trace.phase()) {
            (Some(_), _) => (
                Outcome::TimeoutHead,
                format!(
                    "no answer from {place} within {timeout:?}: the connection stood, the head of an answer did not come"
                ),
            ),
            (None, Phase::Lookup) => {
                (Outcome::TimeoutDns, format!("looking up the name {host} took longer than {timeout:?}"))
            }
            (None, Phase::Connect) => {
                (Outcome::TimeoutConnect, format!("no connection to {place} within {timeout:?}: nobody answers there"))
            }
            (None, Phase::Tls) => (
                Outcome::TimeoutConnect,
                format!(
                    "TLS with {place} was not ready within {timeout:?}: the port is open, the handshake did not end"
                ),
            ),
        };
        Fault::new(outcome, &words)
    }

    /// The request failed.
    pub(super) fn broken(&self, error: &legacy::Error, timeout: Duration) -> Fault {
        if has_cause::<Closed>(error) {
            Fault::new(Outcome::Withheld, &root(error))
        } else if !error.is_connect() {
            self.unanswered(error)
        } else if io_kind(error) == Some(io::ErrorKind::TimedOut) {
            // The kernel's patience, or the connector's own, ended a moment before ours.
            self.late(timeout)
        } else {
            self.unconnected(error)
        }
    }

    fn unconnected(&self, error: &legacy::Error) -> Fault {
        let (place, cause) = (self.place(), root(error));
        let (outcome, words) = match self.trace.phase() {
            Phase::Lookup => (Outcome::Dns, format!("the name {} could not be looked up: {cause}", self.target.host)),
            Phase::Connect => (
                Outcome::Refused,
                format!("no connection to {place}: {cause}; is the upstream running, and is this its address?"),
            ),
            Phase::Tls => (Outcome::Tls, format!("TLS with {place} failed: {cause}{}", advice(&cause))),
        };
        Fault::new(outcome, &words)
    }

    fn unanswered(&self, error: &legacy::Error) -> Fault {
        let (place, cause) = (self.place(), root(error));
        match http_error(error) {
            Some(http) if http.is_parse() => {
                Fault::new(Outcome::Malformed, &format!("{place} sent what is not an HTTP/1.1 answer: {cause}"))
            }
            Some(http) if http.is_user() => {
                Fault::new(Outcome::Unsendable, &format!("the request to {place} could not be written: {cause}"))
            }
            _ if has_cause::<TooMuch>(error) => {
                Fault::new(Outcome::Malformed, &format!("{place} sent no end of what is before an answer: {cause}"))
            }
            // With TLS 1.3 a server says only after the handshake that it does not like our certificate.
            _ if has_cause::<rustls::Error>(error) => {
                Fault::new(Outcome::Tls, &format!("TLS with {place} failed: {cause}{}", advice(&cause)))
            }
            _ => Fault::new(
                Outcome::Reset,
                &format!("the connection to {place} broke before the head of an answer was there: {cause}"),
            ),
        }
    }

    /// `host:port`, with the addresses where the host is a name.
    fn place(&self) -> String {
        let mut place = self.target.place.clone();
        let remote = self.connection.as_ref().and_then(|used| used.remote);
        let addresses = remote.map_or_else(|| self.trace.addresses(), |remote| vec![remote]);
        let addresses: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
        if !addresses.is_empty() && !addresses.iter().all(|address| self.target.host.contains(address)) {
            write!(place, " ({})", addresses.join(", ")).expect("writing to a string does not fail");
        }
        place
    }
}

/// What an answer says, where that is a failure; empty for a success.
pub(super) fn words_of(answer: &Answer) -> String {
    let status = answer.status;
    if status.is_success() {
        return String::new();
    }
    let location = answer.headers.get(LOCATION).filter(|_| status.is_redirection());
    shown(&match location {
        Some(to) => format!(
            "the upstream answered {status} to {}; redirects are not followed: give the final address as upstream.url",
            String::from_utf8_lossy(to.as_bytes())
        ),
        None => format!("the upstream answered {status}"),
    })
}

/// The innermost cause, which says what happened; the layers around it only say that something did.
fn root(error: &legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// What to do about a certificate that was refused.
fn advice(cause: &str) -> &'static str {
    if cause.contains("certificate") {
        "; trusted are the certificates of upstream.tls.ca, without it this system's, or those of the PEM file that SSL_CERT_FILE names"
    } else {
        ""
    }
}

fn chain(error: &legacy::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn io_kind(error: &legacy::Error) -> Option<io::ErrorKind> {
    chain(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}

/// Whether a connection failed for this reason.
fn has_cause<E: std::error::Error + 'static>(error: &legacy::Error) -> bool {
    let io = chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    io.filter_map(io::Error::get_ref).any(|inner| inner.is::<E>())
}

fn http_error(error: &legacy::Error) -> Option<&hyper::Error> {
    chain(error).find_map(|cause| cause.downcast_ref::<hyper::Error>())
}

fn is_user(error: &legacy::Error) -> bool {
    http_error(error).is_some_and(hyper::Error::is_user)
}

/// Already escaped words, of a bounded length.
fn cut(words: String) -> String {
    if words.chars().count() <= WORDS_MAX { words } else { words.chars().take(WORDS_MAX).chain(['…']).collect() }
}

/// `text` for a terminal or a log: control and bidi characters escaped, of a bounded length.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, char) in text.chars().enumerate() {
        match char {
            _ if at >= WORDS_MAX => {
                out.push('…');
                break;
            }
            '"' | '\'' | '\\' => out.push(char),
            _ => out.extend(char.escape_debug()),
        }
    }
    out
}
