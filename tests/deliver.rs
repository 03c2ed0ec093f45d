//! One attempt over real sockets: what the upstream sees, and what each of its answers leads to.
//!
//! Everything is on loopback. Nothing sleeps: a slow upstream passes its time waiting for the client to close.

#![cfg(test)]

#[path = "deliver/addresses.rs"]
mod addresses;
#[path = "deliver/connections.rs"]
mod connections;
#[path = "deliver/fetch.rs"]
mod fetch;
#[path = "deliver/tls.rs"]
mod tls;
#[path = "deliver/upstream.rs"]
mod upstream;
#[path = "deliver/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use fairlane::deliver::{BodyEnd, Follows, Job, Limit, Outcome, RetryAfter, RetryScope, Settings};
use fairlane::event::{Group, Lane, Secret, WaitReason};
use fairlane::verify::{Choice, Request, SecretSpec, Spec, Verifier};
use hmac::{KeyInit, Mac};
use http::{HeaderMap, Method, StatusCode};
use sha2::{Digest, Sha256};

use upstream::Upstream;
use world::{NOW, World, event, event_of, header, settings};

#[tokio::test]
async fn a_2xx_is_delivered_with_the_beginning_of_its_body() {
    for (answer, status, body) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, "ok"),
        ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, ""),
        ("HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 201, "abc"),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        ("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", 202, ""),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, ""),
        // Badly written, but a success: the event must not be sent for three days.
        ("HTTP/1.1 200 OK\r\nbad header\r\ncontent-length: 0\r\n\r\n", 200, ""),
        ("HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n", 200, ""),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, "ok"),
    ] {
        let upstream = Upstream::answering(answer);
        let world = World::new(&upstream.url());
        let attempt = world.attempt().await;
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(attempt.outcome, Outcome::Delivered(status), "{answer:?} {}", attempt.error);
        assert_eq!(attempt.follows, Follows::Settled);
        assert_eq!(&*attempt.error, "");
        let kept = attempt.answer.unwrap();
        assert_eq!((kept.status, kept.body.as_ref(), kept.end), (status, body.as_bytes(), BodyEnd::Whole));
        assert_eq!(world.counted("delivered"), 1);
        assert_eq!(upstream.seen().len(), 1);
    }
}

#[tokio::test]
async fn any_other_status_is_a_failure_with_words() {
    for (answer, status, follows, words) in [
        ("500 Internal Server Error", 500, Follows::Retried(Limit::Age), "answered 500 Internal Server Error"),
        ("503 Service Unavailable", 503, Follows::Retried(Limit::Age), "answered 503"),
        ("429 Too Many Requests", 429, Follows::Retried(Limit::Age), "answered 429"),
        ("400 Bad Request", 400, Follows::Retried(Limit::Attempts), "answered 400"),
        ("410 Gone", 410, Follows::Dead, "answered 410"),
        ("301 Moved\r\nlocation: http://127.0.0.1:1/\u{202e}x", 301, Follows::Retried(Limit::Age), "not followed"),
        ("304 Not Modified", 304, Follows::Retried(Limit::Age), "answered 304"),
        ("700 What", 700, Follows::Retried(Limit::Age), "answered 700"),
    ] {
        let upstream = Upstream::answering(format!("HTTP/1.1 {answer}\r\ncontent-length: 4\r\n\r\nwhy?"));
        let world = World::new(&upstream.url());
        let attempt = world.attempt().await;
        assert_eq!(attempt.outcome, Outcome::Status(StatusCode::from_u16(status).unwrap()), "{}", attempt.error);
        assert_eq!(attempt.follows, follows, "{answer}");
        assert!(attempt.error.contains(words), "{}", attempt.error);
        assert!(!attempt.error.contains('\u{202e}'), "{}", attempt.error);
        assert_eq!(world.counted("status"), 1);
        assert_eq!(upstream.seen().len(), 1, "nothing is repeated or followed");
    }
}

#[tokio::test]
async fn a_redirect_says_where_to_and_is_not_followed() {
    let elsewhere = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let location =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}/new\r\ncontent-length: 0\r\n\r\n", elsewhere.url());
    let upstream = Upstream::answering(location);
    let attempt = World::new(&upstream.url()).attempt().await;
    assert!(attempt.error.contains(&format!("{}/new", elsewhere.url())), "{}", attempt.error);
    assert!(attempt.error.contains("upstream.url"), "{}", attempt.error);
    assert_eq!(elsewhere.seen(), []);
}

#[tokio::test]
async fn the_upstream_says_when_to_come_back_and_who() {
    let after = |seconds| Some(RetryAfter::After(Duration::from_secs(seconds)));
    for (status, lines, retry_after, scope, follows) in [
        (429, "retry-after: 7", after(7), None, Follows::Retried(Limit::Age)),
        (
            503,
            "retry-after: Thu, 28 May 2026 20:27:40 GMT\r\nfairlane-retry-scope: upstream",
            after(60),
            Some(RetryScope::Upstream),
            Follows::Retried(Limit::Age),
        ),
        (503, "retry-after: Thu, 28 May 2026 20:25:40 GMT", after(0), None, Follows::Retried(Limit::Age)),
        (
            422,
            "Retry-After: -1\r\nFairlane-Retry-Scope: Group",
            Some(RetryAfter::Never),
            Some(RetryScope::Group),
            Follows::Dead,
        ),
        (503, "retry-after: later", None, None, Follows::Retried(Limit::Age)),
        (200, "retry-after: -1\r\nfairlane-retry-scope: group", None, None, Follows::Settled),
    ] {
        let upstream = Upstream::answering(format!("HTTP/1.1 {status} X\r\n{lines}\r\ncontent-length: 0\r\n\r\n"));
        let attempt = World::new(&upstream.url()).attempt().await;
        assert_eq!(
            (attempt.retry_after, attempt.retry_scope, attempt.follows),
            (retry_after, scope, follows),
            "{lines}"
        );
    }
}

#[tokio::test]
async fn every_body_arrives_byte_for_byte_with_one_length_of_ours() {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..300_000_u32).map(|i| u8::try_from(i.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let world = World::new(&upstream.url());
    let bodies: [(&str, &[u8]); 10] = [
        ("application/json", b"{ \"b\":1,\r\n\"a\": 1.10 , \"a\":2}"),
        ("application/x-www-form-urlencoded", b"payload=%7B%22a%22%3A1%7D&x=+%20"),
        ("multipart/form-data; boundary=X", b"--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X--\r\n"),
        ("application/xml", b"<?xml version=\"1.0\"?>\n<a>\xEF\xBB\xBF</a>"),
        ("text/plain; charset=latin1", b"caf\xE9"),
        ("application/octet-stream", &all_bytes),
        ("application/json", b"\xEF\xBB\xBF{}\n\n"),
        ("application/json", b""),
        ("application/grpc", b"0\r\n\r\n"),
        ("application/octet-stream", &large),
    ];
    for (content_type, body) in bodies {
        let mut event = event_of(content_type, body);
        // The sender used chunks and lied about the length: neither is forwarded.
        event.headers.extend([header("transfer-encoding", "chunked"), header("content-length", "7")]);
        let attempt = world.attempt_of(event).await;
        assert!(attempt.outcome.is_delivered(), "{content_type}: {}", attempt.error);
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(Sha256::digest(&seen.body), Sha256::digest(body), "{content_type}");
        assert_eq!(seen.all("content-length"), [body.len().to_string()]);
        assert_eq!(seen.all("content-type"), [content_type]);
        assert_eq!(seen.all("transfer-encoding"), [""; 0]);
    }
}

#[tokio::test]
async fn the_wire_has_exactly_these_lines() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let world = World::with(Settings { headers: vec![header("x-env", "prod")], ..settings(&upstream.url()) });
    let mut event = event();
    event.headers.extend([
        header("x-two", "1"),
        header("x-one", "é"),
        header("x-two", "2"),
        header("expect", "100-continue"),
    ]);
    let id = event.id.to_string();
    world.attempt_of(event).await;
    let seen = upstream.seen().pop().unwrap();
    assert_eq!(seen.line, "POST /hooks?a=%20b&c HTTP/1.1");
    let mut lines: Vec<_> = seen.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(seen.all("x-two"), ["1", "2"]);
    lines.sort();
    let mut expected = vec![
        format!("fairlane-event-id: {id}"),
        format!("host: {}", upstream.address),
        // Bytes above 127 pass as they are; the test reads them one by one.
        "x-one: Ã©".to_owned(),
    ];
    expected.extend(
        [
            "content-length: 8",
            "content-type: application/json",
            "fairlane-attempt: 1",
            "fairlane-group: a",
            "fairlane-received-at: 2026-05-28T20:26:40.000Z",
            "fairlane-source: /hooks",
            "fairlane-verified: none",
            "fairlane-wait-ms: 0",
            "fairlane-wait-reason: none",
            "fairlane-will-retry: false",
            "x-env: prod",
            "x-forwarded-for: 203.0.113.7",
            "x-forwarded-host: hooks.example",
            "x-forwarded-proto: http",
            "x-two: 1",
            "x-two: 2",
        ]
        .map(str::to_owned),
    );
    expected.sort();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn method_and_target_go_out_as_they_came() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let (plain, prefixed) = (World::new(&upstream.url()), World::new(&format!("{}/base/", upstream.url())));
    for (world, method, target, line) in [
        (&plain, Method::GET, "/", "GET / HTTP/1.1"),
        (&plain, Method::POST, "/?", "POST /? HTTP/1.1"),
        (&plain, Method::PUT, "/a//b/;x=1?q=%2f%zz&[]=1", "PUT /a//b/;x=1?q=%2f%zz&[]=1 HTTP/1.1"),
        (&plain, Method::DELETE, "/caf%C3%A9/", "DELETE /caf%C3%A9/ HTTP/1.1"),
        (&plain, Method::from_bytes(b"REPORT").unwrap(), "/r", "REPORT /r HTTP/1.1"),
        (&plain, Method::HEAD, "/h", "HEAD /h HTTP/1.1"),
        (&prefixed, Method::PATCH, "/in?x", "PATCH /base/in?x HTTP/1.1"),
        (&prefixed, Method::OPTIONS, "/", "OPTIONS /base/ HTTP/1.1"),
    ] {
        let mut event = event_of("text/plain", b"");
        (event.method, event.target) = (method, target.into());
        let attempt = world.attempt_of(event).await;
        assert!(attempt.outcome.is_delivered(), "{line}: {}", attempt.error);
        let seen = upstream.seen().pop().unwrap();
        assert_eq!((seen.line.as_str(), seen.all("content-length")), (line, vec!["0"]));
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_not_and_says_why() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let world = World::new(&upstream.url());
    let mut event = event();
    event.target = "/a b\u{202e}".into();
    let attempt = world.attempt_of(event).await;
    assert_eq!((attempt.outcome, attempt.follows), (Outcome::Unsendable, Follows::Dead));
    assert!(attempt.error.contains("cannot stand in a request"), "{}", attempt.error);
    assert!(!attempt.error.contains('\u{202e}'), "{}", attempt.error);
    assert_eq!((upstream.seen().len(), world.counted("unsendable")), (0, 1));
}

#[tokio::test]
async fn standard_webhooks_libraries_verify_our_signature() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let mut settings = settings(&upstream.url());
    settings.signing_secret = Some(Secret::new(secret));
    let world = World::with(settings);
    for body in [&b"{\"id\":1}"[..], b"", b"\xFF\x00"] {
        world.attempt_of(event_of("application/json", body)).await;
        let seen = upstream.seen().pop().unwrap();
        let one = |name: &str| seen.all(name).first().copied().unwrap().to_owned();
        let (id, at, signature) = (one("fairlane-event-id"), one("fairlane-timestamp"), one("fairlane-signature"));
        assert_eq!(at, "1780000000");

        // By the preset that judges such senders.
        let headers = [("webhook-id", &id), ("webhook-timestamp", &at), ("webhook-signature", &signature)];
        let headers: HeaderMap = headers.into_iter().map(|(name, value)| header(name, value)).collect();
        let secrets = vec![SecretSpec::new(Secret::new(secret))];
        let verifier = Verifier::new(Spec::new(Choice::Preset("standard-webhooks".into()), secrets)).unwrap();
        let request =
            Request { method: &Method::POST, target: "/", seen_url: None, headers: &headers, body: &seen.body };
        verifier.judge(&request, NOW).unwrap();
        let other = Request { body: b"other", ..request };
        assert!(verifier.judge(&other, NOW).is_err());

        // By hand.
        let base64 = base64::engine::general_purpose::STANDARD;
        let key = base64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = hmac::Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{id}.{at}.").as_bytes());
        mac.update(&seen.body);
        assert_eq!(signature, format!("v1,{}", base64.encode(mac.finalize().into_bytes())));
    }
}

#[tokio::test]
async fn the_job_says_what_the_upstream_learns_about_the_attempt() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let deliver = World::new(&upstream.url()).client.deliver();
    let mut event = event();
    event.lane = Lane { group: Group::of(&["gh", "7 7"]), inner: None };
    event.provider_event_id = Some("id\n1".into());
    let job = Job {
        attempt: 4,
        will_retry: true,
        wait: Duration::from_millis(1_500),
        waited: std::iter::once((WaitReason::GroupRate, Duration::from_millis(1_500))).collect(),
        replays: 2,
        ..Job::new(Arc::new(event))
    };
    let attempt = deliver(job).await;
    assert_eq!((attempt.number, attempt.started), (4, NOW));
    let seen = upstream.seen().pop().unwrap();
    for (name, value) in [
        ("fairlane-attempt", "4"),
        ("fairlane-will-retry", "true"),
        ("fairlane-wait-ms", "1500"),
        ("fairlane-wait-reason", "group_rate=1500"),
        ("fairlane-replay", "2"),
        ("fairlane-group", "gh~7%207"),
        ("fairlane-provider-event-id", "id%0A1"),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
}
