//! Who may send, through the real binary: handshakes, several senders of one path, networks, and what is let through.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use support::upstream::{Received, Upstream, answer, upstream};
use support::{Gateway, Request, gateway, get, hex, hmac_sha256, post};

const SECRET: &str = "hush-a-test-secret";

/// A source at `/h` with this `verify` block, delivered to `upstream`.
fn source(upstream: &str, verify: &str) -> String {
    format!("upstream: {upstream}\nsources:\n  - {{ path: /h, verify: {verify} }}\n")
}

/// The same, with nobody to deliver to.
fn alone(verify: &str) -> Gateway {
    gateway(&source("http://127.0.0.1:9", verify)).start()
}

fn github(request: Request, body: &[u8], secret: &str) -> Request {
    request.header("X-Hub-Signature-256", format!("sha256={}", hex(&hmac_sha256(secret, &[body]))))
}

fn slack(body: &[u8], secret: &str) -> Request {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().to_string();
    let signature = hex(&hmac_sha256(secret, &[b"v0:", now.as_bytes(), b":", body]));
    post("/h", body).header("X-Slack-Request-Timestamp", &now).header("X-Slack-Signature", format!("v0={signature}"))
}

/// The `n`-th request that came, from 1.
fn nth(upstream: &Upstream, n: usize) -> Received {
    upstream.wait_for(n).swap_remove(n - 1)
}

fn rejections(gateway: &Gateway) -> Vec<serde_json::Value> {
    gateway.json("/api/v1/rejections")["rejections"].as_array().unwrap().clone()
}

#[test]
fn handshakes_are_answered_before_methods_are_looked_at_and_never_stored() {
    let gateway = gateway(&format!(
        r#"
upstream: http://127.0.0.1:9
sources:
  - {{ path: /meta, verify: {{ provider: meta, secret: {SECRET}, verify_token: our-word }} }}
  - {{ path: /x, verify: {{ provider: x, secret: {SECRET} }} }}
  - {{ path: /trello, verify: {{ provider: trello, secret: {SECRET} }} }}
  - {{ path: /graph, methods: [PUT], verify: {{ provider: microsoft-graph, secret: {SECRET} }} }}
  - {{ path: /own, verify: {{ hmac: {{ header: X-Sig }}, secret: {SECRET} }} }}
  - {{ path: /shopify, verify: {{ provider: shopify, secret: {SECRET} }} }}
"#
    ))
    .start();
    let mut client = gateway.client();
    let meta = "/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    let answer = client.send(&get(&format!("{meta}our-word")));
    assert_eq!((answer.status, answer.text().as_str()), (200, "1158201444"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(client.send(&get(&format!("{meta}another"))).status, 403);
    assert!(client.send(&get("/x?crc_token=abc")).text().starts_with(r#"{"response_token":"sha256="#));
    assert_eq!(client.send(&get("/trello").method("HEAD")).status, 200);
    let answer = client.send(&post("/graph?validationToken=Validation%3a+a", b""));
    assert_eq!((answer.status, answer.text().as_str()), (200, "Validation: a"));
    let options = get("/own").method("OPTIONS").header("WebHook-Request-Origin", "events.example");
    assert_eq!(client.send(&options).header("webhook-allowed-origin"), Some("events.example"));

    // The ordinary way: no marker, or another provider's.
    for path in ["/meta", "/x", "/shopify?crc_token=abc", "/own"] {
        assert_eq!(client.send(&get(path)).status, 405, "{path}");
    }
    assert_eq!(client.send(&post("/graph", b"{}")).status, 405);

    assert!(gateway.events("").is_empty());
    assert_eq!(gateway.metric(r#"fairlane_handshakes_total{source="/meta",outcome="answered"}"#), Some(1.0));
    assert_eq!(gateway.metric(r#"fairlane_handshakes_total{source="/meta",outcome="refused"}"#), Some(1.0));
    let refused = &rejections(&gateway)[..];
    let refused = refused.iter().find(|one| one["reason"] == "handshake").unwrap();
    assert!(refused["message"].as_str().unwrap().contains("verify_token"), "{refused}");
    assert!(!refused.to_string().contains("our-word") && !refused.to_string().contains("another"), "{refused}");
}

#[test]
fn a_signed_handshake_is_answered_only_when_signed_right() {
    let gateway = alone(&format!("{{ provider: slack, secret: {SECRET} }}"));
    let question = br#"{"type":"url_verification","challenge":"3eZbrw1aBm2r"}"#;
    let answer = gateway.client().send(&slack(question, SECRET));
    assert_eq!((answer.status, answer.text().as_str()), (200, "3eZbrw1aBm2r"));
    let answer = gateway.client().send(&slack(question, "another"));
    assert_eq!(answer.status, 401);
    assert!(!answer.text().contains("3eZbrw1aBm2r"));
    // Larger than any handshake: an event like others.
    let padded = [&question[..question.len() - 1], br#","a":""#, "a".repeat(16 * 1024).as_bytes(), br#""}"#].concat();
    let answer = gateway.client().send(&slack(&padded, SECRET));
    assert!(answer.header("fairlane-event-id").is_some(), "{answer:?}");
}

#[test]
fn a_secret_is_acknowledged_only_while_the_handshake_is_open() {
    let ask = |gateway: &Gateway| gateway.client().send(&post("/h", b"{}").header("X-Hook-Secret", "b537207f"));
    let closed = alone(&format!("{{ provider: asana, secret: {SECRET} }}"));
    assert_eq!(ask(&closed).status, 401);
    let open = alone(&format!("{{ provider: asana, secret: {SECRET}, handshake: open }}"));
    let answer = ask(&open);
    assert_eq!((answer.status, answer.header("x-hook-secret")), (200, Some("b537207f")));
    // It was not taken for a key.
    let signed = post("/h", b"{}").header("X-Hook-Signature", hex(&hmac_sha256("b537207f", &[b"{}"])));
    assert_eq!(open.client().send(&signed).status, 401);
    assert!(!open.stderr().contains("b537207f"));
}

#[test]
fn xero_s_intent_to_receive_is_an_ordinary_signed_request() {
    let gateway = alone(&format!("{{ provider: xero, secret: {SECRET} }}"));
    let body = br#"{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4N0m3t3xt"}"#;
    let sign = |secret| {
        use base64::Engine as _;
        let signature = base64::engine::general_purpose::STANDARD.encode(hmac_sha256(secret, &[body]));
        post("/h", body).header("x-xero-signature", signature)
    };
    let right = gateway.client().send(&sign(SECRET));
    assert_eq!((right.status, right.body.as_slice(), right.header("set-cookie")), (200, &b""[..], None));
    assert_eq!(gateway.client().send(&sign("another")).status, 401);
}

#[test]
fn more_handshakes_than_a_provider_asks_are_refused_for_the_moment() {
    let gateway = alone(&format!("{{ provider: dropbox, secret: {SECRET} }}"));
    let mut client = gateway.client();
    // More are refilled while this runs on a slow machine, ten a second.
    let refused = (0..2_000).map(|_| client.send(&get("/h?challenge=a"))).find(|answer| answer.status != 200).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert!(gateway.metric(r#"fairlane_handshakes_total{source="/h",outcome="answered"}"#) >= Some(100.0));
    assert_eq!(gateway.metric(r#"fairlane_handshakes_total{source="/h",outcome="limited"}"#), Some(1.0));
    assert!(rejections(&gateway).is_empty(), "a flood must not push out what a person needs to see");
}

#[test]
fn a_handshake_is_delivered_too_where_that_is_asked_for() {
    let upstream = upstream(|_| answer(200));
    let verify = format!("{{ provider: notion, secret: {SECRET}, handshake: open, forward_handshake: true }}");
    let gateway = gateway(&source(&upstream.url(), &verify)).start();
    let body = br#"{"verification_token":"secret_tMrlL1qK5"}"#;
    assert_eq!(gateway.client().send(&post("/h", body)).status, 200);
    let request = nth(&upstream, 1);
    assert_eq!(request.body, body);
    assert_eq!(request.header("fairlane-group"), Some("~unverified"));
    assert_eq!(request.header("fairlane-verified"), Some("false: a handshake, answered already"));
}

#[test]
fn what_is_not_genuine_is_let_through_marked_where_that_is_asked_for() {
    let upstream = upstream(|_| answer(200));
    let gateway =
        gateway(&source(&upstream.url(), &format!("{{ provider: github, secret: {SECRET}, enforce: false }}"))).start();
    let body = br#"{"installation":{"id":7}}"#;
    assert_eq!(gateway.client().send(&github(post("/h", body), body, "another")).status, 200);
    let request = nth(&upstream, 1);
    assert_eq!(request.header("fairlane-group"), Some("~unverified"), "the body cannot choose a lane");
    let words = request.header("fairlane-verified").unwrap();
    assert!(words.starts_with("false: the signature in x-hub-signature-256 was not made with the secret"), "{words}");
    assert_eq!(gateway.metric(r#"fairlane_unverified_events_total{source="/h",reason="bad_signature"}"#), Some(1.0));
    let kept = &rejections(&gateway)[0];
    assert!(kept["message"].as_str().unwrap().starts_with("let through, for enforce is false: "), "{kept}");

    assert_eq!(gateway.client().send(&github(post("/h", body), body, SECRET)).status, 200);
    let request = nth(&upstream, 2);
    assert_eq!(
        (request.header("fairlane-group"), request.header("fairlane-verified")),
        (Some("github~7"), Some("github secret=0"))
    );
}

#[test]
fn of_several_senders_each_has_its_own_scheme_key_and_handshake() {
    let upstream = upstream(|_| answer(200));
    let verify = format!(
        "{{ any_of: [{{ provider: github, secret: {SECRET} }}, {{ provider: slack, secrets: [a-new-secret-of-slack, {SECRET}-slack] }}] }}"
    );
    let gateway = gateway(&source(&upstream.url(), &verify)).start();
    let mut client = gateway.client();
    let body = br#"{"installation":{"id":7},"team_id":"T1"}"#;
    assert_eq!(client.send(&github(post("/h", body), body, SECRET)).status, 200);
    assert_eq!(nth(&upstream, 1).header("fairlane-group"), Some("github~7"));
    for n in 2..5 {
        assert_eq!(client.send(&slack(body, &format!("{SECRET}-slack"))).status, 200);
        assert_eq!(nth(&upstream, n).header("fairlane-group"), Some("T1"));
    }
    let question = br#"{"type":"url_verification","challenge":"abc"}"#;
    assert_eq!(client.send(&slack(question, "a-new-secret-of-slack")).text(), "abc");

    // Secrets are counted through, and it is said once that an old one is in use.
    assert_eq!(gateway.metric(r#"fairlane_secret_matches_total{source="/h",index="0"}"#), Some(1.0));
    assert_eq!(gateway.metric(r#"fairlane_secret_matches_total{source="/h",index="2"}"#), Some(3.0));
    assert_eq!(gateway.stderr().matches("still signed with another secret").count(), 1, "{}", gateway.stderr());

    assert_eq!(client.send(&slack(body, "another")).status, 401);
    let told = rejections(&gateway)[0]["message"].as_str().unwrap().to_owned();
    assert!(told.contains("as slack: the signature in x-slack-signature"), "{told}");
    assert_eq!(client.send(&post("/h", body)).status, 401);
}

#[test]
fn only_from_its_networks() {
    let yaml = |networks: &str| {
        let verify = format!("{{ provider: github, secret: {SECRET}, enforce: false, allow_ips: {networks} }}");
        format!("listen: {{ trusted_proxies: [127.0.0.1] }}\n{}", source("http://127.0.0.1:9", &verify))
    };
    let gateway = gateway(&yaml("[192.0.2.0/24]")).start();
    let mut client = gateway.client();
    let from = |chain: &str| github(post("/h", b"{}"), b"{}", SECRET).header("X-Forwarded-For", chain);
    assert_eq!(client.send(&from("203.0.113.1, 192.0.2.7")).status, 200);
    for chain in ["192.0.2.7, 203.0.113.1", "", "unknown"] {
        assert_eq!(client.send(&from(chain)).status, 401, "{chain}: enforce does not open it");
    }
    let told = &rejections(&gateway)[2];
    assert_eq!(told["reason"], "address", "{told}");
    assert_eq!(told["message"], "203.0.113.1 is in none of the networks of verify.allow_ips");
}

#[test]
fn an_event_is_signed_again_where_that_is_asked_for_and_only_if_it_was_genuine() {
    let upstream = upstream(|_| answer(200));
    let yaml = |more: &str| {
        let verify = format!("{{ provider: slack, secrets: [a-new-secret-of-slack, {SECRET}], enforce: false{more} }}");
        source(&upstream.url(), &verify)
    };
    let body = br#"{"team_id":"T1"}"#;
    let is_signed_with = |request: &Received, secret: &str| {
        let time = request.header("x-slack-request-timestamp").unwrap();
        let signature = hex(&hmac_sha256(secret, &[b"v0:", time.as_bytes(), b":", body]));
        request.all("x-slack-signature") == [format!("v0={signature}")]
    };
    let plain = gateway(&yaml("")).start();
    assert_eq!(plain.client().send(&slack(body, SECRET)).status, 200);
    assert!(is_signed_with(&nth(&upstream, 1), SECRET), "as it came");
    drop(plain);
    let again = gateway(&yaml(", resign: true")).start();
    assert_eq!(again.client().send(&slack(body, SECRET).header("X-Own", "stays")).status, 200);
    let request = nth(&upstream, 2);
    assert!(is_signed_with(&request, "a-new-secret-of-slack"));
    assert_eq!((request.header("x-own"), request.header("fairlane-verified")), (Some("stays"), Some("slack secret=1")));
    assert_eq!(request.body, body);
    // Nobody vouches for what was only let through.
    assert_eq!(again.client().send(&slack(body, "another")).status, 200);
    assert!(is_signed_with(&nth(&upstream, 3), "another"));
}

/// A listener in this process whose clock stands where our own vectors were made, and whose keys come from `fetch`.
struct Inside {
    address: std::net::SocketAddr,
    driver: fairlane::driver::Handle,
    runtime: tokio::runtime::Runtime,
}

fn inside(verify: &str, fetch: fairlane::listen::Fetch) -> Inside {
    use std::sync::Arc;

    use fairlane::clock::{Clock, TestClock};
    use fairlane::driver::{self, FilePolicies, Parts};
    use fairlane::listen::{Bound, Front, start};

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (address, driver) = runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(TestClock::at(fairlane::event::Wall::from_unix_s(1_767_225_600)));
        let (loop_, handle) = driver::new(Parts {
            store: Arc::new(fairlane::store::memory::Memory::new(Arc::clone(&clock))),
            clock: Arc::clone(&clock),
            metrics: Arc::new(fairlane::metrics::Metrics::new("none")),
            deliver: Arc::new(|_| Box::pin(std::future::pending())),
            settings: fairlane::engine::Settings::default(),
            policies: FilePolicies::default(),
            notebook: fairlane::store::notebook::Notebook::default(),
            seed: 1,
            cluster: None,
        })
        .unwrap();
        drop(tokio::runtime::Handle::current().spawn(loop_.run()));
        let yaml = source("http://127.0.0.1:9", verify);
        let config = fairlane::config::load(&yaml, "gateway.yaml", &|_| None, &|_| unreachable!()).unwrap();
        let front = Front::new(config.listen, config.sources, handle.clone(), clock, fetch, [1; 32]);
        let bound = Bound::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = bound.address().unwrap();
        // It serves as long as the runtime lives.
        std::mem::forget(start(Arc::new(front), bound, false, None).unwrap());
        (address, handle)
    });
    Inside { address, driver, runtime }
}

impl Inside {
    fn send(&self, body: &[u8]) -> support::Response {
        support::Client::to(self.address).send(&post("/h", body))
    }

    fn events(&self) -> usize {
        let query = fairlane::driver::Query { limit: 100, ..Default::default() };
        self.runtime.block_on(self.driver.events(query)).unwrap().records.len()
    }
}

/// A message of SNS from our own vectors: its body, and the address and PEM of its certificate.
fn sns(case: &str) -> (Vec<u8>, String, String) {
    use base64::Engine as _;
    let lines = std::fs::read_to_string("tests/vectors/own.jsonl").unwrap();
    let id = format!("\"own-aws-sns/{case}\"");
    let line: serde_json::Value = serde_json::from_str(lines.lines().find(|line| line.contains(&id)).unwrap()).unwrap();
    let body = base64::engine::general_purpose::STANDARD.decode(line["body_b64"].as_str().unwrap()).unwrap();
    let text = |name: &str| line["keys"][0][name].as_str().unwrap().to_owned();
    (body, text("url"), text("pem"))
}

const TOPIC: &str = "arn:aws:sns:eu-central-1:123456789012:orders";

#[test]
fn sns_is_verified_by_the_key_it_names_and_its_topic_decides() {
    use std::sync::{Arc, Mutex};

    use fairlane::listen::NoKey;

    let (body, url, pem) = sns("version-2");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::new(Mutex::new(Err(NoKey::Failed("the network is away".to_owned()))));
    let (seen, given) = (Arc::clone(&asked), Arc::clone(&answer));
    let fetch: fairlane::listen::Fetch = Arc::new(move |url| {
        seen.lock().unwrap().push(url.to_owned());
        Box::pin(std::future::ready(given.lock().unwrap().clone()))
    });
    let gateway = inside(&format!("{{ provider: aws-sns, topics: [\"{TOPIC}\"], handshake: open }}"), fetch);

    // No key says nothing about the message: the sender is to come again.
    let refused = gateway.send(&body);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    *answer.lock().unwrap() = Err(NoKey::NotThere("404".to_owned()));
    assert_eq!(gateway.send(&body).status, 401);
    *answer.lock().unwrap() = Ok(pem.into());
    assert_eq!(gateway.send(&body).status, 200);
    assert_eq!(gateway.events(), 1);
    assert_eq!(*asked.lock().unwrap(), [url.as_str(); 3]);

    // Nothing is fetched for what is refused all the same.
    asked.lock().unwrap().clear();
    let text = String::from_utf8(body).unwrap();
    for (from, to) in [
        (TOPIC, "arn:aws:sns:eu-central-1:123456789012:others"),
        ("sns.eu-central-1.amazonaws.com", "169.254.169.254"),
        ("2026-01-01T", "2025-12-31T"),
        ("\"SignatureVersion\": \"2\"", "\"SignatureVersion\": \"9\""),
    ] {
        assert!(text.contains(from), "{from}");
        assert_eq!(gateway.send(text.replace(from, to).as_bytes()).status, 401, "{to}");
    }
    assert_eq!(*asked.lock().unwrap(), [""; 0]);

    // A subscription to one of our topics is confirmed, once its signature was right, and no other.
    let (confirmation, ..) = sns("confirmation");
    assert_eq!(gateway.send(&confirmation).status, 200);
    let confirmed = asked.lock().unwrap().pop().unwrap();
    assert!(
        confirmed.starts_with("https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&"),
        "{confirmed}"
    );
    asked.lock().unwrap().clear();
    let forged = String::from_utf8(confirmation).unwrap().replace("Token=abc", "Token=abd");
    assert_eq!(gateway.send(forged.as_bytes()).status, 401);
    assert_eq!(*asked.lock().unwrap(), [url.as_str(); 2], "only the key");
    assert_eq!(gateway.events(), 1, "a confirmation is no event");
}
