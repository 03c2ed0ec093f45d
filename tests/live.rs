//! `respond: upstream` through the real binary: what is relayed, who goes first, what happens when time runs out, when somebody
//! goes away, and that nothing of it is kept.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlane::clock::{Clock as _, SystemClock};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use support::upstream::{Answer, Received, Upstream, answer, upstream};
use support::{Client, Gateway, Request, Response, gateway, get, hex, hmac_sha256, post};

const SECRET: &str = "a-secret-of-this-test";

/// Twilio, Slack commands, and two sources that anybody may use: one relays, one stores.
fn yaml(upstream: &Upstream, more: &str) -> String {
    format!(
        r#"
upstream:
  url: {}
  signing_secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
{more}
sources:
  - path: /twilio/voice
    verify: {{ provider: twilio, secret: "{SECRET}", public_url: "https://hooks.example.com" }}
    respond: upstream
  - path: /slack/commands
    verify: {{ provider: slack, secret: "{SECRET}" }}
    respond: upstream
  - path: /ask/*
    verify: {{ provider: none }}
    key: headers.x-key
    respond: upstream
  - path: /soon
    verify: {{ provider: none }}
    key: headers.x-key
    respond: upstream
    respond_timeout: 300ms
  - path: /store
    verify: {{ provider: none }}
    key: headers.x-key
"#,
        upstream.url()
    )
}

/// Holds the upstream's answers until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A gate, and an upstream whose answers wait at it.
    fn before(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> (Self, Upstream) {
        let gate = Self::default();
        let held = gate.clone();
        let receiver = upstream(move |received: &Received| {
            held.pass();
            answer(received)
        });
        (gate, receiver)
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(open, |open| !*open).unwrap());
    }
}

fn ask(path: &str, key: &str) -> Request {
    post(path, b"a=1").header("X-Key", key)
}

/// Sends without waiting for the answer.
fn begin(gateway: &Gateway, request: &Request) -> Client {
    let mut client = gateway.client();
    client.write(&request.bytes()).unwrap();
    client
}

fn lived(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!("fairlane_live_requests_total{{outcome=\"{outcome}\"}} ")).unwrap_or(0.0)
}

fn group(gateway: &Gateway, name: &str) -> serde_json::Value {
    gateway.json(&format!("/api/v1/group?name={name}"))
}

/// Waits until the gateway says so.
fn until(what: impl Fn() -> bool) {
    let begun = SystemClock.now().mono;
    while !what() {
        let waited = SystemClock.now().mono.since(begun);
        assert!(waited < Duration::from_secs(60), "what was waited for did not come");
        std::thread::yield_now();
    }
}

fn change(gateway: &Gateway, target: &str, body: &str) {
    let request = post(target, body.as_bytes()).method("PATCH").without("Host").header("Host", "127.0.0.1");
    let token = format!("Bearer {}", gateway.token());
    let request = request.header("Authorization", &token).header("Content-Type", "application/json");
    let response = Client::to(gateway.admin).send(&request);
    assert_eq!(response.status, 200, "{}", response.text());
}

/// No event, in no state.
fn nothing_is_stored(gateway: &Gateway) {
    assert!(gateway.events("").is_empty(), "{:?}", gateway.events(""));
    assert_eq!(gateway.metric("fairlane_backlog_events "), Some(0.0));
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
}

// ---- what is relayed --------------------------------------------------------------------------------------------

/// A form signed as Twilio does: the address, then the parameters by name (twilio.com/docs/usage/security).
fn twilio(from: &str) -> Request {
    let mut parameters = [("AccountSid", "AC123"), ("CallSid", "CA9"), ("From", from), ("To", "+1555")];
    parameters.sort_unstable();
    let encoded: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", value.replace('+', "%2B"))).collect();
    let signed: String = parameters.iter().map(|(name, value)| format!("{name}{value}")).collect();
    let mut mac = Hmac::<Sha1>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("https://hooks.example.com/twilio/voice{signed}").as_bytes());
    post("/twilio/voice", encoded.join("&").as_bytes())
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("X-Twilio-Signature", STANDARD.encode(mac.finalize().into_bytes()))
}

/// A command signed as Slack does (api.slack.com/authentication/verifying-requests-from-slack).
fn slack(text: &str) -> Request {
    let now = SystemClock.now().wall.unix_s().to_string();
    let body = format!("team_id=T0001&command=%2Fweather&text={text}");
    let signature = hmac_sha256(SECRET, &[b"v0:", now.as_bytes(), b":", body.as_bytes()]);
    post("/slack/commands", body.as_bytes())
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("X-Slack-Request-Timestamp", &now)
        .header("X-Slack-Signature", format!("v0={}", hex(&signature)))
}

const TWIML: &str = "<?xml version=\"1.0\"?><Response><Say>Hello</Say></Response>";

#[test]
fn twilio_and_slack_get_the_upstream_s_own_answer() {
    let receiver = upstream(|received: &Received| match received.target.as_str() {
        "/twilio/voice" => answer(200)
            .header("Content-Type", "text/xml")
            .header("Set-Cookie", "a=1")
            .header("Set-Cookie", "b=2")
            .header("Connection", "X-Hop")
            .header("X-Hop", "of one connection")
            .header("Keep-Alive", "timeout=5")
            .header("Fairlane-Event-Id", "evt_of_the_upstream")
            .header("Fairlane-Retry-Scope", "group")
            .body(TWIML),
        _ => answer(202).header("Content-Type", "application/json").body("{\"text\":\"It is fine.\"}"),
    });
    let gateway = gateway(&yaml(&receiver, "")).start();
    for series in [
        "live_requests_total{outcome=\"relayed\"}",
        "live_requests_total{outcome=\"would_wait\"}",
        "handshakes_total{source=\"/slack/commands\",outcome=\"answered\"}",
        "key_fetches_total{outcome=\"failed\"}",
    ] {
        let zero = gateway.metric(&format!("fairlane_{series} "));
        assert_eq!(zero, Some(0.0), "{series}: a rate of what is not there cannot be asked for");
    }

    let mut client = gateway.client();
    let response = client.send(&twilio("+15550001"));
    assert_eq!((response.status, response.text().as_str()), (200, TWIML));
    assert_eq!(response.header("content-type"), Some("text/xml"));
    let cookies: Vec<_> = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).collect();
    assert_eq!(cookies.len(), 2, "{:?}", response.headers);
    for gone in ["x-hop", "keep-alive", "connection", "fairlane-event-id", "fairlane-retry-scope"] {
        assert_eq!(response.header(gone), None, "{gone}");
    }
    // On the same connection, which stays open.
    let response = client.send(&slack("tomorrow"));
    assert_eq!((response.status, response.text().as_str()), (202, "{\"text\":\"It is fine.\"}"));
    let forged = client.send(&slack("x").without("X-Slack-Signature").header("X-Slack-Signature", "v0=00"));
    assert_eq!(forged.status, 401, "verified as any other");

    let received = receiver.received();
    assert_eq!(received.len(), 2);
    for (request, (group, source)) in received.iter().zip([("AC123", "/twilio/voice"), ("T0001", "/slack/commands")]) {
        assert_eq!(request.header("fairlane-group"), Some(group));
        assert_eq!(request.header("fairlane-source"), Some(source));
        assert_eq!(request.header("fairlane-attempt"), Some("1"));
        assert_eq!(request.header("fairlane-will-retry"), Some("false"));
        assert!(request.header("fairlane-event-id").unwrap().starts_with("evt_"));
        assert!(request.header("fairlane-signature").unwrap().starts_with("v1,"));
        assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    }
    assert!(received.first().unwrap().body.starts_with(b"AccountSid=AC123&"));
    assert_eq!(lived(&gateway, "relayed"), 2.0);
    nothing_is_stored(&gateway);
    assert_eq!(gateway.metric("fairlane_events_accepted_total{source=\"/twilio/voice\"} "), Some(0.0));
}

#[test]
fn any_status_is_relayed_and_none_is_repeated() {
    let receiver = upstream(|received: &Received| {
        answer(received.target.trim_start_matches("/ask/").parse().unwrap())
            .body("as it is")
            .header("Location", "/else")
    });
    let gateway = gateway(&yaml(&receiver, "")).start();
    let statuses = [200, 204, 301, 404, 410, 429, 500, 503];
    for status in statuses {
        // Each of its own group, for a failure may hold its group back.
        let response = gateway.client().send(&ask(&format!("/ask/{status}"), &format!("k{status}")));
        assert_eq!(response.status, status);
        let body = if status == 204 { "" } else { "as it is" };
        assert_eq!((response.header("location"), response.text().as_str()), (Some("/else"), body), "{status}");
    }
    assert_eq!(receiver.count(), statuses.len());
    assert_eq!(lived(&gateway, "relayed"), statuses.len() as f64);
    nothing_is_stored(&gateway);
}

#[test]
fn a_status_that_is_none_is_a_bad_gateway() {
    let receiver = upstream(|_| answer(799).body("what is this"));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let response = gateway.client().send(&ask("/ask/odd", "a"));
    assert_eq!(response.status, 502);
    assert!(response.text().contains("a status that is none"), "{}", response.text());
    assert_eq!((lived(&gateway, "relayed"), lived(&gateway, "answer_no_status")), (0.0, 1.0));
}

#[test]
fn an_answer_of_a_mebibyte_is_relayed_and_a_longer_one_is_not() {
    let receiver = upstream(|received: &Received| {
        let bytes = if received.target == "/ask/fits" { 1 << 20 } else { (1 << 20) + 1 };
        answer(200).body(&"x".repeat(bytes))
    });
    let gateway = gateway(&yaml(&receiver, "")).start();
    let fits = gateway.client().send(&ask("/ask/fits", "a"));
    assert_eq!((fits.status, fits.body.len()), (200, 1 << 20));
    let over = gateway.client().send(&ask("/ask/over", "a"));
    assert_eq!(over.status, 502);
    assert!(over.text().contains("longer than 1 MiB"), "{}", over.text());
    assert_eq!((lived(&gateway, "relayed"), lived(&gateway, "answer_too_long")), (1.0, 1.0));
    until(|| gateway.metric("fairlane_buffered_bytes ") == Some(0.0));
}

// ---- who goes first ---------------------------------------------------------------------------------------------

#[test]
fn a_live_request_goes_before_its_group_s_own_backlog() {
    let (gate, receiver) = Gate::before(|_| answer(200));
    let gateway = gateway(&yaml(&receiver, "groups: { defaults: { concurrency: 1 } }")).start();
    for _ in 0..5 {
        assert_eq!(gateway.client().send(&ask("/store", "a")).status, 200);
    }
    until(|| group(&gateway, "a")["in_flight"] == 1);
    let mut client = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["live"] == 1);
    gate.open();
    assert_eq!(client.receive().unwrap().status, 200);
    let received = receiver.wait_for(6);
    let order: Vec<&str> = received.iter().map(|request| request.target.as_str()).collect();
    assert_eq!(order, ["/store", "/ask/x", "/store", "/store", "/store", "/store"]);
    // What takes less than a millisecond is no wait, and an idle machine may not take longer.
    let reason = received.get(1).unwrap().header("fairlane-wait-reason");
    let waited: u64 = received.get(1).unwrap().header("fairlane-wait-ms").unwrap().parse().unwrap();
    let capped = format!("group_cap={waited}");
    assert!(reason == Some(&*capped) || (reason == Some("none") && waited == 0), "{reason:?} after {waited} ms");
    until(|| gateway.events("status=delivered").len() == 5);
    assert_eq!(gateway.events("").len(), 5, "the stored ones alone");
}

#[test]
fn a_flood_of_live_requests_holds_its_cap_and_nobody_else_s_slots() {
    let gate = Gate::default();
    let held = gate.clone();
    let receiver = upstream(move |received: &Received| {
        if received.group() == "flood" {
            held.pass();
        }
        answer(200)
    });
    let gateway = gateway(&yaml(&receiver, "  concurrency: 16")).start();
    // The default cap is two of sixteen slots; the rest waits, and what is too much is refused at once.
    let mut flood: Vec<Client> = (0..140).map(|_| begin(&gateway, &ask("/ask/x", "flood"))).collect();
    until(|| lived(&gateway, "full") >= 10.0 && group(&gateway, "flood")["in_flight"] == 2);
    assert_eq!(group(&gateway, "flood")["live"], 128);
    assert_eq!(group(&gateway, "flood")["state"], "capped");
    for n in 0..20 {
        assert_eq!(gateway.client().send(&ask("/ask/x", &format!("quiet{n}"))).status, 200);
        assert_eq!(gateway.client().send(&ask("/store", &format!("quiet{n}"))).status, 200);
    }
    // All of the quiet ones were served while the flood held what it may, and not one more.
    let received = receiver.wait_until(|all| all.iter().filter(|one| one.group().starts_with("quiet")).count() == 40);
    assert_eq!(received.iter().filter(|one| one.group() == "flood").count(), 0, "those are still in work");
    assert_eq!(group(&gateway, "flood")["in_flight"], 2);
    gate.open();
    let answers: Vec<Response> = flood.iter_mut().map(|client| client.receive().unwrap()).collect();
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(503)), (130, 10));
    let refused = answers.iter().find(|answer| answer.status == 503).unwrap();
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((5..=15).contains(&after), "{after}");
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
}

// ---- when it cannot be ------------------------------------------------------------------------------------------

#[test]
fn time_that_runs_out_is_504_whether_it_waited_or_was_under_way() {
    let (gate, receiver) = Gate::before(|_| answer(200));
    let gateway = gateway(&yaml(&receiver, "groups: { defaults: { concurrency: 1 } }")).start();
    let mut attempted = begin(&gateway, &ask("/soon", "a"));
    until(|| group(&gateway, "a")["in_flight"] == 1);
    let mut waited = begin(&gateway, &ask("/soon", "a"));
    let attempted = attempted.receive().unwrap();
    assert_eq!(attempted.status, 504);
    assert!(attempted.text().contains("did not answer in time"), "{}", attempted.text());
    // The second got the slot when the first gave it up, a moment before its own time was over, or was never begun.
    assert_eq!(waited.receive().unwrap().status, 504);
    assert_eq!(lived(&gateway, "timeout") + lived(&gateway, "waited"), 2.0);
    until(|| group(&gateway, "a")["in_flight"] == 0);
    gate.open();
    nothing_is_stored(&gateway);
}

#[test]
fn an_upstream_that_is_not_there_is_502_in_words_and_then_its_breaker_is_open() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let receiver = upstream(|_| answer(200));
    let yaml = yaml(&receiver, "").replace(&receiver.url(), &format!("http://{nobody}"));
    let gateway = gateway(&yaml).start();
    for n in 0..10 {
        let response = gateway.client().send(&ask("/ask/x", "a"));
        assert_eq!(response.status, 502, "{n}");
        assert!(response.text().contains("no connection to the application"), "{}", response.text());
        assert!(
            !response.text().contains(&nobody.port().to_string()),
            "where it is concerns nobody: {}",
            response.text()
        );
    }
    let response = gateway.client().send(&ask("/ask/x", "a"));
    assert_eq!(response.status, 503, "ten in a row open the group's breaker");
    let after: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&after), "{after}");
    assert_eq!((lived(&gateway, "refused"), lived(&gateway, "breaker")), (10.0, 1.0));
    nothing_is_stored(&gateway);
}

#[test]
fn a_paused_group_is_503_at_once_and_so_are_those_that_wait() {
    let (gate, receiver) = Gate::before(|_| answer(200));
    let gateway = gateway(&yaml(&receiver, "groups: { defaults: { concurrency: 1 } }")).start();
    let mut under_way = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["in_flight"] == 1);
    let mut waits = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["live"] == 1);
    change(&gateway, "/api/v1/group?name=a", "{\"paused\": true}");
    let response = waits.receive().unwrap();
    assert_eq!(response.status, 503);
    assert!(response.text().contains("paused"), "{}", response.text());
    assert!(response.header("retry-after").is_some());
    assert_eq!(gateway.client().send(&ask("/ask/x", "a")).status, 503);
    gate.open();
    assert_eq!(under_way.receive().unwrap().status, 200, "what is in flight goes on");
    assert_eq!(gateway.client().send(&ask("/ask/x", "b")).status, 200);
    change(&gateway, "/api/v1/group?name=a", "{\"paused\": false}");
    assert_eq!(gateway.client().send(&ask("/ask/x", "a")).status, 200);
    assert_eq!((lived(&gateway, "paused"), lived(&gateway, "relayed")), (2.0, 3.0));
}

#[test]
fn a_sender_that_goes_away_frees_its_place_and_its_slot() {
    let gate = Gate::default();
    let held = gate.clone();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let receiver = upstream(move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            held.pass();
        }
        answer(200)
    });
    let gateway = gateway(&yaml(&receiver, "groups: { defaults: { concurrency: 1 } }")).start();
    let first = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["in_flight"] == 1 && begun.load(Ordering::SeqCst) == 1);
    let second = begin(&gateway, &ask("/ask/x", "a"));
    let third = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["live"] == 2);
    // One closes; one begins another request and then closes its half: nobody hears an answer, or so it has to seem.
    drop(second);
    until(|| group(&gateway, "a")["live"] == 1);
    third.stream.get_ref().write_all(b"POST /ask/").unwrap();
    third.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    until(|| group(&gateway, "a")["live"] == 0);
    assert_eq!(group(&gateway, "a")["in_flight"], 1);
    drop(first);
    until(|| group(&gateway, "a")["in_flight"] == 0);
    assert_eq!(lived(&gateway, "gone"), 3.0);
    // The one slot of the group is free although the upstream still works on the first.
    assert_eq!(gateway.client().send(&ask("/ask/x", "a")).status, 200);
    assert_eq!(begun.load(Ordering::SeqCst), 2, "those that left the queue never went out");
    gate.open();
    nothing_is_stored(&gateway);
}

#[test]
fn a_sender_may_send_its_next_request_before_the_answer() {
    let (gate, receiver) = Gate::before(|received| answer(200).body(&received.target));
    let gateway = gateway(&yaml(&receiver, "")).start();
    let mut client = begin(&gateway, &ask("/ask/one", "a"));
    until(|| group(&gateway, "a")["in_flight"] == 1);
    client.write(&ask("/ask/two", "a").bytes()).unwrap();
    client.write(&get("/nowhere").bytes()).unwrap();
    gate.open();
    assert_eq!(client.receive().unwrap().text(), "/ask/one");
    assert_eq!(client.receive().unwrap().text(), "/ask/two");
    assert_eq!(client.receive().unwrap().status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_has_it_too_and_a_stream_that_is_reset_frees_its_slot() {
    let gate = Gate::default();
    let held = gate.clone();
    let receiver = upstream(move |received: &Received| {
        if received.target == "/ask/held" {
            held.pass();
        }
        answer(200).header("Connection", "X-Hop").header("X-Hop", "1").body(TWIML)
    });
    let gateway = gateway(&format!("listen: {{ h2c: true }}\n{}", yaml(&receiver, ""))).start();
    let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
    let serving = spawn(connection);
    let request = |path: &str| {
        let uri = format!("http://{}{path}", gateway.address);
        http::Request::post(uri)
            .header("x-key", "a")
            .body(http_body_util::Full::new(bytes::Bytes::from("a=1")))
            .unwrap()
    };
    let waits = spawn(sender.clone().send_request(request("/ask/held")));
    until(|| group(&gateway, "a")["in_flight"] == 1);
    let answered = sender.clone().send_request(request("/ask/x")).await.unwrap();
    assert_eq!((answered.status(), answered.headers().get("x-hop")), (http::StatusCode::OK, None));
    waits.abort();
    until(|| group(&gateway, "a")["in_flight"] == 0);
    assert_eq!((lived(&gateway, "gone"), lived(&gateway, "relayed")), (1.0, 1.0));
    gate.open();
    serving.abort();
}

#[expect(clippy::disallowed_methods, reason = "its task ends with the test's runtime")]
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}

// ---- the end ----------------------------------------------------------------------------------------------------

#[test]
fn a_drain_lets_what_was_read_finish() {
    let (gate, receiver) = Gate::before(|_| answer(200).body("at last"));
    let gateway = gateway(&yaml(&receiver, "groups: { defaults: { concurrency: 1 } }")).start();
    let mut open = gateway.client();
    assert_eq!(open.send(&post("/nowhere", b"")).status, 404);
    let mut first = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["in_flight"] == 1);
    let mut second = begin(&gateway, &ask("/ask/x", "a"));
    until(|| group(&gateway, "a")["live"] == 1);
    gateway.signal("TERM");
    until(|| gateway.stderr().contains("ending: no new connections"));
    let late = open.try_send(&ask("/ask/x", "b"));
    // Either it came in the short time in which open connections are still heard, or its connection had ended.
    assert!(late.is_none_or(|late| late.status == 503 && late.header("retry-after").is_some()));
    gate.open();
    for client in [&mut first, &mut second] {
        let response = client.receive().unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "at last"));
    }
    let (status, _dir) = gateway.ended();
    assert!(status.success());
    assert_eq!(receiver.count(), 2);
}

#[test]
fn a_crash_leaves_nothing_of_it() {
    let gate = Gate::default();
    let held = gate.clone();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let receiver = upstream(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        held.pass();
        answer(200)
    });
    let config = yaml(&receiver, "");
    let before = gateway(&config).start();
    let mut client = begin(&before, &ask("/ask/x", "a"));
    until(|| begun.load(Ordering::SeqCst) == 1);
    let dir = before.kill();
    assert!(client.receive().is_none());
    let after = gateway(&config).again_in(dir).start();
    gate.open();
    assert_eq!(after.client().send(&ask("/ask/x", "a")).status, 200);
    nothing_is_stored(&after);
    assert_eq!(begun.load(Ordering::SeqCst), 2, "the first of them was begun before, and is not repeated");
}

#[test]
fn a_store_that_takes_nothing_is_no_trouble_of_live_requests() {
    let receiver = upstream(|_| answer(200));
    let yaml = format!("{}\nstore: {{ embedded: {{ min_free: 1000TiB }} }}\n", yaml(&receiver, ""));
    let gateway = gateway(&yaml).start();
    until(|| gateway.client().send(&ask("/store", "a")).status == 503);
    assert_eq!(gateway.client().send(&ask("/ask/x", "a")).status, 200);
}
