//! The attempt's pure parts: what goes out, what a status leads to, when to come back.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use proptest::prelude::*;

use super::fault::Seen;
use super::request::{Maker, Unsendable};
use super::trace::{self, Phase, Trace};
use super::*;
use crate::event::{EventId, Group, KeySource, Lane, Secret, WaitReason, Wall};

const NOW: Wall = Wall(1_780_000_000_123_456);

fn settings(url: &str) -> Settings {
    Settings::to(url.parse().unwrap())
}

fn lines(pairs: &[(&str, &str)]) -> HeaderMap {
    let pairs =
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap()));
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let name: HeaderName = name;
        map.append(name, value);
    }
    map
}

fn event(target: &str, headers: &[(&str, &str)]) -> Event {
    Event {
        id: EventId::new(NOW, &[7; 10]),
        received: NOW,
        source: "/webhooks/shopify".into(),
        lane: Lane { group: Group::of(&["a.myshopify.com"]), inner: None },
        owner: None,
        key_source: KeySource::NoRule,
        order: None,
        fingerprint: None,
        trace: None,
        verified: "shopify secret=0".into(),
        provider_event_id: None,
        event_type: None,
        method: Method::POST,
        target: target.into(),
        forward: None,
        peer: IpAddr::from([203, 0, 113, 7]),
        https: true,
        headers: lines(headers),
        body: Bytes::from_static(b"{}"),
    }
}

fn place(settings: &Settings) -> Place {
    Place::new(&settings.addresses[0].url).unwrap()
}

fn made(settings: &Settings, job: &Job) -> Request<Full<Bytes>> {
    Maker::new(settings).unwrap().make(job, &place(settings), NOW).unwrap()
}

fn sent(settings: &Settings, job: &Job) -> Vec<(String, String)> {
    let request = made(settings, job);
    let mut lines: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    lines
}

fn value(settings: &Settings, job: &Job, name: &str) -> Option<String> {
    let values: Vec<_> = sent(settings, job).into_iter().filter(|(n, _)| n == name).map(|(_, value)| value).collect();
    assert!(values.len() <= 1, "{name} {values:?}");
    values.into_iter().next()
}

#[test]
fn the_upstream_sees_exactly_these_headers() {
    let event = event(
        "/webhooks/shopify?x=1",
        &[
            ("host", "hooks.example"),
            ("content-type", "application/json"),
            ("x-shopify-topic", "orders/create"),
            ("x-two", "1"),
            ("x-two", "2"),
            ("content-length", "999"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-hop, close"),
            ("x-hop", "1"),
            ("expect", "100-continue"),
            ("te", "trailers"),
            ("keep-alive", "5"),
            ("fairlane-group", "forged"),
            ("fairlane_event_id", "forged"),
        ],
    );
    let id = event.id.to_string();
    let job = Job {
        attempt: 3,
        will_retry: true,
        wait: Duration::from_micros(1_234_567),
        waited: [(WaitReason::Slots, 34_567), (WaitReason::OwnLane, 1_200_000)]
            .map(|(reason, us)| (reason, Duration::from_micros(us)))
            .into_iter()
            .collect(),
        ..Job::new(Arc::new(event))
    };
    let expected = [
        ("content-length", "2"),
        ("content-type", "application/json"),
        ("fairlane-attempt", "3"),
        ("fairlane-event-id", &*id),
        ("fairlane-group", "a.myshopify.com"),
        ("fairlane-received-at", "2026-05-28T20:26:40.123Z"),
        ("fairlane-source", "/webhooks/shopify"),
        ("fairlane-verified", "shopify secret=0"),
        ("fairlane-wait-ms", "1234"),
        ("fairlane-wait-reason", "own_lane=1200, slots=34"),
        ("fairlane-will-retry", "true"),
        ("host", "upstream:3000"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-host", "hooks.example"),
        ("x-forwarded-proto", "https"),
        ("x-shopify-topic", "orders/create"),
        ("x-two", "1"),
        ("x-two", "2"),
    ];
    let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(sent(&settings("http://upstream:3000"), &job), expected);
}

#[test]
fn values_from_outside_are_written_so_that_a_header_can_hold_them() {
    let mut event = event("/", &[]);
    event.source = "böse\r\nx: 1 %".into();
    event.provider_event_id = Some("evt 1".into());
    let job = Job { replays: 2, ..Job::new(Arc::new(event)) };
    let settings = settings("http://h");
    assert_eq!(value(&settings, &job, "fairlane-source").unwrap(), "b%C3%B6se%0D%0Ax:%201%20%25");
    assert_eq!(value(&settings, &job, "fairlane-provider-event-id").unwrap(), "evt 1");
    assert_eq!(value(&settings, &job, "fairlane-replay").unwrap(), "2");
    assert_eq!(value(&settings, &job, "x-forwarded-host"), None, "no Host came");
}

#[test]
fn a_trusted_proxys_chain_is_continued_and_its_words_are_kept() {
    let mut event = event(
        "/",
        &[
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "public.example"),
            ("host", "inner"),
        ],
    );
    event.peer = "::ffff:10.0.0.2".parse().unwrap();
    let job = Job::new(Arc::new(event));
    let settings = settings("http://h");
    assert_eq!(value(&settings, &job, "x-forwarded-for").unwrap(), "198.51.100.1, 10.0.0.1, 10.0.0.2");
    assert_eq!(value(&settings, &job, "x-forwarded-proto").unwrap(), "http");
    assert_eq!(value(&settings, &job, "x-forwarded-host").unwrap(), "public.example");
}

#[test]
fn configured_headers_win_and_keep_their_order() {
    let mut settings = settings("https://h");
    settings.headers = [("x-a", "1"), ("authorization", "Bearer ours"), ("x-a", "2"), ("host", "virtual")]
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .to_vec();
    let job = Job::new(Arc::new(event("/", &[("authorization", "Bearer theirs"), ("x-a", "0")])));
    let sent = sent(&settings, &job);
    let of = |name: &str| sent.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>();
    assert_eq!(of("authorization"), ["Bearer ours"]);
    assert_eq!(of("x-a"), ["1", "2"]);
    assert_eq!(of("host"), ["virtual"]);
    assert!(!format!("{settings:?}").contains("ours"), "values of headers may be credentials");
}

#[test]
fn the_target_goes_out_as_it_came_behind_the_urls_own_path() {
    for (url, target, forward, expected) in [
        ("http://h", "/", None, "/"),
        ("http://h/", "/a", None, "/a"),
        ("http://h", "/a/?", None, "/a/?"),
        ("http://h", "/a//b;c=d?x=%2F&y=[1]&x", None, "/a//b;c=d?x=%2F&y=[1]&x"),
        ("http://h", "/caf%c3%A9%20", None, "/caf%c3%A9%20"),
        ("http://h/base/", "/a?b", None, "/base/a?b"),
        ("http://h/base", "/", None, "/base/"),
        ("http://h/v1", "/in?x", Some("/out?x"), "/v1/out?x"),
    ] {
        let mut event = event(target, &[]);
        event.forward = forward.map(Into::into);
        let request = made(&settings(url), &Job::new(Arc::new(event)));
        assert_eq!(request.uri().path_and_query().unwrap().as_str(), expected, "{url} {target}");
    }
}

#[test]
fn what_cannot_be_written_as_a_request_is_not_bent_until_it_can() {
    let settings = settings("http://h/base");
    let (maker, place) = (Maker::new(&settings).unwrap(), place(&settings));
    let long = format!("/{}", "a".repeat(70_000));
    for target in ["", "a", "*", "?x", "/a#b", "/a b", "http://other/", "/\u{7f}", &long] {
        let made = maker.make(&Job::new(Arc::new(event(target, &[]))), &place, NOW);
        assert!(matches!(made, Err(Unsendable::Target(_))), "{target}");
    }
    let mut tunnel = event("/", &[]);
    tunnel.method = Method::CONNECT;
    assert_eq!(maker.make(&Job::new(Arc::new(tunnel)), &place, NOW).err(), Some(Unsendable::Connect));
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_way_out() {
    let error = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings("http://h");
        change(&mut settings);
        let place = Place::new(&settings.addresses[0].url).map(|_| ());
        let error = place.and_then(|()| Maker::new(&settings).map(|_| ())).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let url = |url: &'static str| error(&move |s| s.addresses[0].url = url.parse().unwrap());
    let header = |name: &'static str| {
        error(&move |s| s.headers = vec![(HeaderName::from_static(name), HeaderValue::from_static("x"))])
    };
    assert!(url("ftp://h").contains("http:// or https://"));
    assert!(url("/path").contains("e.g. http://127.0.0.1:3000"));
    assert!(url("http://user:secret@h/").contains("Authorization"));
    assert!(!url("http://user:secret@h/").contains("secret"));
    assert!(url("http://h/?a=b").contains("query"));
    assert!(header("content-length").contains("content-length"));
    assert!(header("fairlane_group").contains("fairlane_group"));
    assert!(header("transfer-encoding").contains("gateway writes it itself"));
    assert!(error(&|s| s.timeout = Duration::ZERO).contains("timeout"));
    assert!(error(&|s| s.never = vec![410, 200]).contains("200 is none"));
    for secret in ["", "whsec_", "not base64!"] {
        assert!(error(&|s| s.signing_secret = Some(Secret::new(secret))).contains("whsec_"), "{secret}");
    }
    assert_eq!(error(&|s| s.signing_secret = Some(Secret::new("c2VjcmV0"))), "");
}

fn retry_after(text: &str) -> Option<RetryAfter> {
    // Sun, 06 Nov 1994 08:49:37 GMT, less a minute.
    RetryAfter::read(&lines(&[("retry-after", text)]), Wall::from_unix_s(784_111_717))
}

#[test]
fn retry_after_is_seconds_or_a_date_or_never() {
    let after = |seconds| Some(RetryAfter::After(Duration::from_secs(seconds)));
    assert_eq!(retry_after("0"), after(0));
    assert_eq!(retry_after(" 120 "), after(120));
    assert_eq!(retry_after("99999999999999999999"), after(u32::MAX.into()));
    assert_eq!(retry_after("-1"), Some(RetryAfter::Never));
    assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), after(60));
    assert_eq!(retry_after("Sunday, 06-Nov-94 08:49:37 GMT"), after(60));
    assert_eq!(retry_after("Sun Nov  6 08:49:37 1994"), after(60));
    let RetryAfter::After(long) = retry_after("Fri, 31 Dec 9999 23:59:59 GMT").unwrap() else { panic!() };
    assert!(long > Duration::from_hours(24 * 365 * 8_000), "the end of time is far away: {long:?}");
    assert_eq!(retry_after("Sat, 05 Nov 1994 08:49:37 GMT"), after(0), "a date that is past");
    for nothing in ["", "-2", "1.5", "+1", "soon", "Sun, 99 Nov 1994 08:49:37 GMT", "1h"] {
        assert_eq!(retry_after(nothing), None, "{nothing}");
    }
}

#[test]
fn the_scope_is_one_of_two_words() {
    let scope = |text| RetryScope::read(&lines(&[("fairlane-retry-scope", text)]));
    assert_eq!(scope("group"), Some(RetryScope::Group));
    assert_eq!(scope("UPSTREAM"), Some(RetryScope::Upstream));
    assert_eq!(scope("all"), None);
    assert_eq!(RetryScope::read(&HeaderMap::new()), None);
}

#[test]
fn what_follows_from_each_outcome_is_one_table() {
    let rows = |never: &[u16]| -> Vec<String> {
        table(never).into_iter().map(|row| format!("{}: {}", row.outcome, row.follows)).collect()
    };
    let counted = "retried, at most retry.attempts times and retry.max_age long";
    let by_age = "retried, retry.max_age long";
    assert_eq!(
        rows(&[410]),
        [
            "200-299: settled".to_owned(),
            format!("300-399: {by_age}"),
            format!("400-407: {counted}"),
            format!("408: {by_age}"),
            format!("409: {counted}"),
            "410: dead letter at once".to_owned(),
            format!("411-424: {counted}"),
            format!("425: {by_age}"),
            format!("426-428: {counted}"),
            format!("429: {by_age}"),
            format!("430-499: {counted}"),
            format!("500-599: {by_age}"),
            "any failure with Retry-After: -1: dead letter at once".to_owned(),
            format!("refused: {by_age}"),
            format!("reset: {by_age}"),
            format!("timeout_dns: {by_age}"),
            format!("timeout_connect: {by_age}"),
            format!("timeout_head: {by_age}"),
            format!("tls: {by_age}"),
            format!("dns: {by_age}"),
            format!("malformed: {by_age}"),
            format!("cancelled: {by_age}"),
            "unsendable: dead letter at once".to_owned(),
            format!("withheld: {by_age}"),
        ]
    );
    assert!(rows(&[429, 500]).contains(&"429: dead letter at once".to_owned()));
}

#[test]
fn a_success_is_settled_whatever_the_rules_say() {
    let ok = Outcome::of(StatusCode::OK);
    assert_eq!(follows(ok, &[200], Some(RetryAfter::Never)), Follows::Settled);
}

/// The words of a deadline that passed in this phase, before any connection.
async fn late_in(phase: Phase) -> Fault {
    let place = place(&settings("https://upstream.example"));
    let trace = Trace::new();
    trace.scope(async { trace::enter(phase) }).await;
    Seen::new(place.target(), &trace, None).late(Duration::from_secs(30))
}

#[tokio::test]
async fn a_deadline_is_told_by_the_phase_it_passed_in() {
    for (phase, outcome, words) in [
        (Phase::Lookup, Outcome::TimeoutDns, "looking up the name upstream.example took longer than 30s"),
        (Phase::Connect, Outcome::TimeoutConnect, "no connection to upstream.example:443 within 30s"),
        (Phase::Tls, Outcome::TimeoutConnect, "TLS with upstream.example:443 was not ready"),
    ] {
        let fault = late_in(phase).await;
        assert_eq!(fault.outcome, outcome);
        assert!(fault.words.contains(words), "{}", fault.words);
    }
}

proptest! {
    #[test]
    fn a_target_goes_out_exactly_or_not_at_all(target in "\\PC*|/[!-~]*") {
        let settings = settings("http://h/p");
        let maker = Maker::new(&settings).unwrap();
        if let Ok(request) = maker.make(&Job::new(Arc::new(event(&target, &[]))), &place(&settings), NOW) {
            prop_assert_eq!(request.uri().path_and_query().unwrap().as_str(), format!("/p{target}"));
        }
    }

    #[test]
    fn any_text_from_outside_fits_a_header(text in ".*") {
        let mut event = event("/", &[]);
        event.source = text.as_str().into();
        event.provider_event_id = Some(text.into());
        let request = made(&settings("http://h"), &Job::new(Arc::new(event)));
        let source = request.headers().get("fairlane-source").unwrap();
        prop_assert!(source.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)));
    }

    #[test]
    fn any_retry_after_is_read_without_a_panic(text in "[ -~]*|[0-9A-Za-z ,:+-]{0,40}") {
        retry_after(&text);
    }
}
