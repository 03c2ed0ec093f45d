//! What senders are answered: the one place where statuses are chosen.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use super::{Answers, Source};
use crate::driver::{Answered, Shed, Unanswered};
use crate::event::{EventId, HOP_BY_HOP};
use crate::verify;

/// An answer.
pub(super) type Reply = Response<Full<Bytes>>;

const EVENT_ID: HeaderName = HeaderName::from_static("fairlane-event-id");
const DUPLICATE_OF: HeaderName = HeaderName::from_static("fairlane-duplicate-of");

/// What the names of our own header lines begin with.
const OURS: &str = "fairlane-";

/// Why a request did not become an event.
#[derive(Debug)]
pub(super) enum Refused {
    /// The head is not one that everybody reads alike; why, in words.
    Malformed(&'static str),
    /// The head is larger than this many bytes.
    HeadTooLarge(usize),
    /// No source takes this path.
    UnknownPath,
    /// The source that took this path was removed from the configuration not long ago.
    Removed,
    /// The source does not take requests from this address.
    Address(IpAddr),
    /// The provider's key that it names could not be fetched; why, in words.
    NoKey(String),
    /// A handshake that is answered with a no.
    Handshake(Box<verify::Reply>),
    /// More handshakes than any provider asks.
    Questions,
    /// The source does not take this method, but those.
    Method(Vec<Method>),
    /// The body is larger than this many bytes.
    TooLarge(usize),
    /// The body came too slowly; this many bytes had come.
    TooSlow(usize),
    /// The body broke off or its framing is broken.
    Broken,
    /// The memory for bodies is taken.
    Crowded,
    /// Not genuine.
    Unverified {
        /// Whose request it seemed to be, where several may send.
        sender: Option<String>,
        /// Why it is none of theirs.
        rejection: verify::Rejection,
    },
    /// Genuine, and there is no room for it.
    Shed(Shed),
}

/// Why most requests are refused: these are counted from the first scrape on, further ones from the first of their kind.
pub(super) const REJECTED: [&str; 8] =
    ["bad_signature", "missing_header", "malformed_header", "stale", "future", "method", "too_large", "too_slow"];

impl Refused {
    /// Its name in metrics and in rejection records.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_request",
            Self::HeadTooLarge(_) => "head_too_large",
            Self::UnknownPath => "unknown_path",
            Self::Removed => "removed_source",
            Self::Address(_) => "address",
            Self::NoKey(_) => "no_key",
            Self::Handshake(_) => "handshake",
            Self::Questions => "handshakes",
            Self::Method(_) => "method",
            Self::TooLarge(_) => "too_large",
            Self::TooSlow(_) => "too_slow",
            Self::Broken => "broken_body",
            Self::Crowded => "memory",
            Self::Unverified { rejection, .. } => rejection.reason(),
            Self::Shed(shed) => shed.as_str(),
        }
    }

    /// Whether this is our own trouble, so that the sender should repeat.
    pub(super) fn is_shed(&self) -> bool {
        matches!(self, Self::Removed | Self::Crowded | Self::NoKey(_) | Self::Shed(_))
    }

    /// What was expected and what was found, for a person who mends the sender.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Malformed(why) => (*why).to_owned(),
            Self::HeadTooLarge(limit) => {
                format!("the request's head is larger than the limit of {limit} bytes (listen.limits.headers)")
            }
            Self::UnknownPath => "no source takes this path".to_owned(),
            Self::Removed => "the source of this path was removed from the configuration".to_owned(),
            Self::Address(address) => format!("{address} is in none of the networks of verify.allow_ips"),
            Self::Handshake(answer) => format!(
                "a handshake was answered with {}: its word is not verify_token, or its topic none of verify.topics",
                answer.status
            ),
            Self::NoKey(problem) => format!("what the provider has for this could not be fetched: {problem}"),
            Self::Questions => "more handshakes than a provider asks".to_owned(),
            Self::Method(allowed) => format!("this source takes {}", listed(allowed)),
            Self::TooLarge(limit) => format!("the body is larger than the limit of {limit} bytes (listen.limits.body)"),
            Self::TooSlow(received) => {
                format!("the body came too slowly: {received} bytes so far (listen.limits.body_timeout)")
            }
            Self::Broken => "the body broke off or its framing is broken".to_owned(),
            Self::Crowded => {
                "the memory for bodies that are not stored yet is taken (listen.limits.buffered)".to_owned()
            }
            Self::Unverified { sender: None, rejection } => rejection.to_string(),
            Self::Unverified { sender: Some(name), rejection } => {
                format!("genuine for none of those who may send here; as {name}: {rejection}")
            }
            Self::Shed(shed) => shed.to_string(),
        }
    }
}

/// The answer to an accepted event; to one that repeats another, the same and of which.
pub(super) fn accepted(source: &Source, id: EventId, duplicate_of: Option<EventId>) -> Reply {
    let mut reply = Response::new(Full::new(source.ack.body.clone()));
    *reply.status_mut() = source.ack.status;
    reply.headers_mut().clone_from(&source.ack.headers);
    for (name, id) in [(EVENT_ID, Some(id)), (DUPLICATE_OF, duplicate_of)] {
        if let Some(Ok(value)) = id.map(|id| HeaderValue::try_from(id.to_string())) {
            reply.headers_mut().insert(name, value);
        }
    }
    reply
}

/// The answer to a handshake.
pub(super) fn handshake(answer: verify::Reply) -> Reply {
    let status = StatusCode::from_u16(answer.status).expect("invariant: the table of handshakes has statuses of HTTP");
    let mut reply = Response::new(Full::from(answer.body));
    *reply.status_mut() = status;
    *reply.headers_mut() = answer.headers;
    if let Some(content_type) = answer.content_type {
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    reply
}

/// The upstream's own answer: its status, its body and the header lines that are not of one connection (RFC 9110 §7.6.1), nor words
/// between the upstream and this gateway.
pub(super) fn relayed(answer: Answered) -> Reply {
    let Answered { status, mut headers, body } = answer;
    drop_hop_by_hop(&mut headers);
    drop_ours(&mut headers);
    // The length is that of the body as we have it, and is written with it.
    headers.remove(CONTENT_LENGTH);
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    reply
}

/// What begins with our name is said by us, or to us (`Fairlane-Retry-Scope`): a sender must be able to believe it.
fn drop_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(OURS)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The answer where there is none to relay: 504 when time ran out, 502 when the upstream is to blame, and 503 when it was not even
/// asked, so that whoever can repeats. `answers` are its source's.
pub(super) fn unanswered(why: Unanswered, answers: &Answers, jitter: f64) -> Reply {
    let (status, after) = match why {
        Unanswered::Waited | Unanswered::Timeout => (StatusCode::GATEWAY_TIMEOUT, None),
        Unanswered::TooLong | Unanswered::BrokeOff | Unanswered::NoStatus | Unanswered::Failed { .. } => {
            (StatusCode::BAD_GATEWAY, None)
        }
        // A second at least: zero would ask for a repeat at once.
        Unanswered::Broken(left) => {
            (answers.unavailable, Some(left.max(Duration::from_secs(1)).as_secs_f64().ceil() as u64))
        }
        Unanswered::Paused
        | Unanswered::Full
        | Unanswered::WouldWait(_)
        | Unanswered::Memory
        | Unanswered::Draining => (answers.unavailable, Some(return_after(jitter).as_secs())),
    };
    let mut reply = plain(status, format!("{why}; nothing was stored and nothing will be repeated\n"));
    if let Some(seconds) = after {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

/// A line for a person.
fn plain(status: StatusCode, text: String) -> Reply {
    let mut reply = Response::new(Full::from(text));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// The answer to a refused request. `answers` are its source's, where one was found; `jitter` (0 to 1) spreads the
/// returns of many senders.
pub(super) fn refused(refused: &Refused, answers: Option<&Answers>, jitter: f64) -> Reply {
    if let Refused::Handshake(answer) = refused {
        return handshake((**answer).clone());
    }
    let unavailable = answers.map_or(StatusCode::SERVICE_UNAVAILABLE, |a| a.unavailable);
    let (status, closes) = match refused {
        Refused::Malformed(_) | Refused::Broken => (StatusCode::BAD_REQUEST, true),
        Refused::HeadTooLarge(_) => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, true),
        Refused::UnknownPath => (StatusCode::NOT_FOUND, false),
        Refused::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, false),
        Refused::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, true),
        Refused::TooSlow(_) => (StatusCode::REQUEST_TIMEOUT, true),
        Refused::Unverified { .. } | Refused::Address(_) => {
            (answers.map_or(StatusCode::UNAUTHORIZED, |a| a.bad_signature), false)
        }
        Refused::Questions | Refused::Handshake(_) => (StatusCode::TOO_MANY_REQUESTS, false),
        Refused::Crowded => (unavailable, true),
        Refused::Removed | Refused::NoKey(_) => (unavailable, false),
        Refused::Shed(Shed::GroupTooLarge | Shed::Backlog(_) | Shed::Outgrown(_)) => {
            (answers.map_or(StatusCode::TOO_MANY_REQUESTS, |a| a.shed), false)
        }
        Refused::Shed(_) => (unavailable, false),
    };
    let mut reply = plain(status, text(refused));
    let headers = reply.headers_mut();
    if closes {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(after) = retry_after(refused, jitter) {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    if let Refused::Method(allowed) = refused
        && let Ok(value) = HeaderValue::from_str(&listed(allowed))
    {
        headers.insert(ALLOW, value);
    }
    reply
}

/// One line for whoever reads the sender's log. A bad signature is explained in the list of rejections, not to a stranger.
fn text(refused: &Refused) -> String {
    match refused {
        Refused::Unverified { rejection, .. } => format!(
            "not accepted ({}); nothing was stored. The gateway's list of rejections says more\n",
            rejection.reason()
        ),
        Refused::Shed(Shed::TooSlow) => "the event may or may not be stored; it is safe to send it again\n".to_owned(),
        Refused::NoKey(_) => {
            "the key of the sender's provider could not be fetched; nothing was stored, please send it again\n"
                .to_owned()
        }
        Refused::Address(_) => "not accepted (address); nothing was stored\n".to_owned(),
        other if other.is_shed() => format!("{}; nothing was stored, please send it again\n", other.message()),
        other => format!("{}; nothing was stored\n", other.message()),
    }
}

fn retry_after(refused: &Refused, jitter: f64) -> Option<Duration> {
    if matches!(refused, Refused::Questions) {
        return Some(Duration::from_secs(1));
    }
    if let Refused::Shed(Shed::Backlog(again) | Shed::Outgrown(again)) = refused {
        return Some(spread(*again, jitter));
    }
    refused.is_shed().then(|| return_after(jitter))
}

/// 20 % less to 20 % more, so that those refused together do not come back together; whole seconds, 1 to 3600.
fn spread(again: Duration, jitter: f64) -> Duration {
    let seconds = (again.as_secs_f64() * (0.8 + 0.4 * jitter.clamp(0.0, 1.0))).round().clamp(1.0, 3_600.0);
    Duration::from_secs(seconds as u64)
}

/// 5 to 15 s, so that those refused together do not come back together.
fn return_after(jitter: f64) -> Duration {
    Duration::from_secs(5).saturating_add(Duration::from_secs(10).mul_f64(jitter.clamp(0.0, 1.0)))
}

fn listed(methods: &[Method]) -> String {
    methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_trouble_is_never_a_4xx_but_for_a_group_that_is_too_large() {
        for shed in [Shed::Full, Shed::Busy, Shed::Unavailable, Shed::SpoolFull, Shed::Draining, Shed::TooSlow] {
            let reply = refused(&Refused::Shed(shed), None, 0.5);
            assert_eq!(reply.status(), 503, "{shed:?}");
            assert_eq!(reply.headers().get(RETRY_AFTER).unwrap(), "10");
        }
        assert_eq!(refused(&Refused::Crowded, None, 0.0).status(), 503);
        let reply = refused(&Refused::Shed(Shed::GroupTooLarge), None, 1.0);
        assert_eq!(reply.status(), 429);
        assert_eq!(reply.headers().get(RETRY_AFTER).unwrap(), "15");
    }

    const ANSWERS: Answers = Answers {
        bad_signature: StatusCode::UNAUTHORIZED,
        shed: StatusCode::TOO_MANY_REQUESTS,
        unavailable: StatusCode::SERVICE_UNAVAILABLE,
    };

    #[test]
    fn what_is_counted_from_the_start_has_the_names_that_it_is_counted_by() {
        let spans = [Shed::Backlog(Duration::ZERO), Shed::Outgrown(Duration::ZERO)];
        let plain = [Shed::Full, Shed::GroupTooLarge, Shed::Busy, Shed::Unavailable, Shed::Draining];
        let sources = [Shed::SourceDraining, Shed::SourcePaused, Shed::TooSlow, Shed::SpoolFull];
        let all: Vec<&str> = plain.into_iter().chain(sources).chain(spans).map(Shed::as_str).collect();
        assert_eq!(all.len(), Shed::NAMES.len());
        assert!(all.iter().all(|name| Shed::NAMES.contains(name)), "{all:?}");
        let spans = [Unanswered::Broken(Duration::ZERO), Unanswered::WouldWait(Duration::ZERO)];
        let before = [Unanswered::Paused, Unanswered::Full, Unanswered::Draining, Unanswered::Waited];
        let after = [Unanswered::Timeout, Unanswered::TooLong, Unanswered::Memory];
        let odd = [Unanswered::BrokeOff, Unanswered::NoStatus];
        let all: Vec<&str> = spans.into_iter().chain(before).chain(after).chain(odd).map(Unanswered::as_str).collect();
        assert_eq!(all.len(), Unanswered::NAMES.len());
        assert!(all.iter().all(|name| Unanswered::NAMES.contains(name)), "{all:?}");
        for refused in [Refused::Method(Vec::new()), Refused::TooLarge(1), Refused::TooSlow(1)] {
            assert!(REJECTED.contains(&refused.reason()), "{}", refused.reason());
        }
    }

    #[test]
    fn a_relayed_answer_keeps_what_is_end_to_end() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/xml"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("connection", "X-Hop , keep-alive"),
            ("x-hop", "gone"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let reply = relayed(Answered { status: StatusCode::IM_A_TEAPOT, headers, body: Bytes::from_static(b"<a/>") });
        assert_eq!(reply.status(), 418);
        let names: Vec<&str> = reply.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "set-cookie"]);
        assert_eq!(reply.headers().get_all("set-cookie").iter().count(), 2);
    }

    #[test]
    fn what_cannot_be_relayed_says_whose_fault_it_is_and_when_to_come_again() {
        let failed = Unanswered::Failed { outcome: "refused", words: "no connection" };
        for (why, status, after) in [
            (Unanswered::Timeout, 504, None),
            (Unanswered::Waited, 504, None),
            (Unanswered::TooLong, 502, None),
            (Unanswered::BrokeOff, 502, None),
            (failed, 502, None),
            (Unanswered::Paused, 503, Some("10")),
            (Unanswered::Full, 503, Some("10")),
            (Unanswered::Memory, 503, Some("10")),
            (Unanswered::Draining, 503, Some("10")),
            (Unanswered::WouldWait(Duration::from_secs(90)), 503, Some("10")),
            (Unanswered::Broken(Duration::from_millis(3_100)), 503, Some("4")),
            (Unanswered::Broken(Duration::from_millis(1)), 503, Some("1")),
        ] {
            let reply = unanswered(why, &ANSWERS, 0.5);
            assert_eq!(reply.status(), status, "{why:?}");
            assert_eq!(reply.headers().get(RETRY_AFTER).map(|after| after.to_str().unwrap()), after, "{why:?}");
        }
        let answers = Answers { unavailable: StatusCode::BAD_GATEWAY, ..ANSWERS };
        assert_eq!(unanswered(Unanswered::Paused, &answers, 0.5).status(), 502, "its source's choice");
    }

    #[test]
    fn a_group_over_its_backlog_is_told_when_there_is_room_again() {
        let again = |seconds| Refused::Shed(Shed::Backlog(Duration::from_secs(seconds)));
        for (seconds, jitter, after) in [
            (100, 0.0, "80"),
            (100, 0.5, "100"),
            (100, 1.0, "120"),
            (1, 0.0, "1"),
            (3_600, 1.0, "3600"),
            (3_600, 0.0, "2880"),
        ] {
            let reply = refused(&again(seconds), None, jitter);
            assert_eq!(reply.status(), 429);
            assert_eq!(reply.headers().get(RETRY_AFTER).unwrap(), after, "{seconds} s, {jitter}");
        }
        let answers = Answers { shed: StatusCode::SERVICE_UNAVAILABLE, ..ANSWERS };
        let reply = refused(&Refused::Shed(Shed::Outgrown(Duration::from_secs(10))), Some(&answers), 0.5);
        assert_eq!(reply.status(), answers.shed);
        assert_eq!(reply.headers().get(RETRY_AFTER).unwrap(), "10");
    }

    #[test]
    fn a_refused_method_names_those_that_are_taken() {
        let reply = refused(&Refused::Method(vec![Method::POST, Method::PUT]), None, 0.0);
        assert_eq!(reply.status(), 405);
        assert_eq!(reply.headers().get(ALLOW).unwrap(), "POST, PUT");
    }

    #[test]
    fn a_source_chooses_its_own_answers() {
        let answers = Answers {
            bad_signature: StatusCode::FORBIDDEN,
            shed: StatusCode::SERVICE_UNAVAILABLE,
            unavailable: StatusCode::BAD_GATEWAY,
        };
        assert_eq!(refused(&Refused::Shed(Shed::GroupTooLarge), Some(&answers), 0.0).status(), 503);
        assert_eq!(refused(&Refused::Shed(Shed::Full), Some(&answers), 0.0).status(), 502);
    }
}
