//! Several addresses of one upstream, through the real binary: who gets what, what is told when one is down, and that the list and the
//! certificates are exchanged while it runs.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::Value;
use support::upstream::{Upstream, answer, upstream};
use support::{Gateway, gateway, post};

fn yaml(upstream: &str) -> String {
    // The disk of a busy machine is not what is tried here.
    format!(
        "listen: {{ limits: {{ answer_timeout: 60s }} }}\nupstream: {upstream}\nsources:\n  - path: /any/*\n    verify: {{ provider: none }}\n    \
         key: headers.x-key\n"
    )
}

fn send(gateway: &Gateway, key: &str) -> String {
    let response = gateway.client().send(&post("/any/x", b"{}").header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// Sends an event and waits until it is delivered.
fn deliver(gateway: &Gateway, key: &str) -> Value {
    gateway.wait_for_status(&send(gateway, key), "delivered")
}

fn fairlane(gateway: &Gateway, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(arguments).arg("-c").arg(gateway.config()).arg("--data").arg(gateway.dir().join("data"));
    command.arg("--admin").arg(gateway.admin.to_string());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// An address where nobody listens.
fn closed() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

/// How the addresses stand, by url.
fn states(gateway: &Gateway) -> BTreeMap<String, String> {
    let upstream = gateway.json("/api/v1/upstream");
    let text = |address: &Value, name: &str| address[name].as_str().unwrap().to_owned();
    let addresses = upstream["addresses"].as_array().unwrap();
    addresses.iter().map(|address| (text(address, "address"), text(address, "state"))).collect()
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

fn paths(receiver: &Upstream) -> Vec<String> {
    receiver.received().into_iter().map(|received| received.target).collect()
}

#[test]
fn an_address_that_is_down_costs_no_attempt_and_is_told_everywhere() {
    let (receiver, down) = (upstream(|_| answer(200)), closed());
    let gateway = gateway(&yaml(&format!("{{ urls: [\"{down}\", \"{}\"] }}", receiver.url()))).start();
    for n in 0..20 {
        let event = deliver(&gateway, &format!("shop-{n}"));
        assert_eq!(event["attempts"], 1, "{event}");
    }
    assert_eq!(receiver.count(), 20);
    assert_eq!(states(&gateway)[&down], "ejected");
    assert_eq!(states(&gateway)[&receiver.url()], "used");

    let share = |url: &str| gateway.metric(&format!("fairlane_upstream_address_share{{address=\"{url}\"}} "));
    assert_eq!((share(&down), share(&receiver.url())), (Some(0.0), Some(1.0)));
    let ok = format!("fairlane_upstream_address_attempts_total{{address=\"{}\",result=\"ok\"}} ", receiver.url());
    assert_eq!(gateway.metric(&ok), Some(20.0));
    let left_out = format!("fairlane_upstream_address_left_out_total{{address=\"{down}\"}} ");
    assert!(gateway.metric(&left_out) >= Some(1.0));
    assert_eq!(gateway.metric("fairlane_attempts_total{outcome=\"delivered\"} "), Some(20.0));

    let shown = fairlane(&gateway, &["upstream"]);
    let row = shown.lines().find(|line| line.starts_with(&down)).unwrap();
    assert!(row.contains("ejected") && row.contains("refused"), "{shown}");
    let page = gateway.get("/").text();
    assert!(page.contains(&down) && page.contains("left out for"), "{page}");
    let alert = |name: &str| {
        let alerts = gateway.json("/api/v1/alerts");
        alerts["firing"].as_array().unwrap().iter().find(|alert| alert["alert"] == name).cloned()
    };
    until(|| alert("upstream_address").is_some());
    let what = alert("upstream_address").unwrap()["what"].as_str().unwrap().to_owned();
    assert!(what.starts_with(&format!("1 of 2 addresses of the upstream are left out: {down}")), "{what}");

    // A start looks at each, and so does the doctor.
    until(|| gateway.stderr().contains("an address of the upstream does not answer"));
    assert!(gateway.stderr().contains("an address of the upstream is left out"));
    let doctor = Command::new(env!("CARGO_BIN_EXE_fairlane")).args(["doctor", "-c"]).arg(gateway.config()).output();
    let doctor = String::from_utf8(doctor.unwrap().stdout).unwrap();
    assert!(doctor.contains(&down) && doctor.contains(&receiver.url()), "{doctor}");
}

#[test]
fn the_list_is_exchanged_while_it_runs() {
    let (one, other, third) = (upstream(|_| answer(200)), upstream(|_| answer(200)), upstream(|_| answer(200)));
    let both = |a: &Upstream, b: &Upstream| {
        yaml(&format!("{{ urls: [{{ url: \"{}\", weight: 3 }}, \"{}\"] }}", a.url(), b.url()))
    };
    let gateway = gateway(&both(&one, &other)).start();
    for n in 0..8 {
        deliver(&gateway, &format!("shop-{n}"));
    }
    assert_eq!((one.count(), other.count()), (6, 2), "by weight");
    std::fs::write(gateway.config(), both(&one, &third)).unwrap();
    until(|| states(&gateway).contains_key(&third.url()));
    assert!(!states(&gateway).contains_key(&other.url()));
    assert_eq!(states(&gateway)[&third.url()], "slow_start", "a new one is not thrown into it");
    until(|| {
        deliver(&gateway, "shop");
        third.count() > 0
    });
    assert_eq!(other.count(), 2);
}

#[test]
fn a_sticky_group_goes_to_one_address() {
    let receivers = [upstream(|_| answer(200)), upstream(|_| answer(200)), upstream(|_| answer(200))];
    let urls: Vec<String> = receivers.iter().map(|receiver| format!("\"{}\"", receiver.url())).collect();
    let gateway = gateway(&yaml(&format!("{{ sticky: group, urls: [{}] }}", urls.join(", ")))).start();
    let ids: Vec<String> = (0..120).map(|n| send(&gateway, &format!("shop-{}", n % 24))).collect();
    ids.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    for (index, receiver) in receivers.iter().enumerate() {
        assert!(receiver.count() > 0, "no group is at home at {index}");
        for received in receiver.received() {
            let home = *homes.entry(received.group().to_owned()).or_insert(index);
            assert_eq!(home, index, "{}", received.group());
        }
    }
}

#[test]
fn an_address_that_fails_its_checks_gets_no_events_until_it_passes_them() {
    let (well, ill) = (upstream(|_| answer(200)), upstream(|r| answer(if r.target == "/up" { 503 } else { 200 })));
    let health = "{ interval: 20ms, failures: 2 }";
    let gateway =
        gateway(&yaml(&format!("{{ health: {health}, urls: [\"{}\", \"{}\"] }}", well.url(), ill.url()))).start();
    until(|| states(&gateway)[&ill.url()] == "unwell");
    for n in 0..10 {
        deliver(&gateway, &format!("shop-{n}"));
    }
    assert!(paths(&ill).iter().all(|path| path == "/up"), "{:?}", paths(&ill));
    let address = &gateway.json("/api/v1/upstream")["addresses"][1];
    assert_eq!(address["check"], "/up answered 503 Service Unavailable", "{address}");
    ill.rule(|_| answer(200));
    until(|| states(&gateway)[&ill.url()] == "slow_start");
    until(|| {
        deliver(&gateway, "shop");
        paths(&ill).iter().any(|path| path == "/any/x")
    });
}

#[test]
fn certificates_to_trust_are_exchanged_while_it_runs() {
    let (made, another) = (minted(), minted());
    let address = tls_upstream(&made);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, another.cert.pem()).unwrap();
    let upstream = format!(
        "{{ url: \"https://localhost:{address}\", tls: {{ ca: \"{}\" }}, retry: {{ backoff: {{ initial: 50ms, max: 50ms }} }} }}",
        ca.display()
    );
    let gateway = gateway(&yaml(&upstream)).start();
    let id = send(&gateway, "shop");
    gateway.wait_for_status(&id, "retrying");
    let attempts = gateway.json(&format!("/api/v1/events/{id}/attempts"));
    assert_eq!(attempts["attempts"][0]["outcome"], "tls", "{attempts}");

    // What is no certificate changes nothing, and is said.
    std::fs::write(&ca, "no PEM").unwrap();
    until(|| gateway.stderr().contains("the configuration was not applied"));
    std::fs::write(&ca, made.cert.pem()).unwrap();
    gateway.wait_for_status(&id, "delivered");
    assert!(gateway.stderr().contains("upstream.tls: the files have changed"), "{}", gateway.stderr());
}

#[test]
fn what_is_shown_to_the_upstream_is_exchanged_while_it_runs() {
    let (made, ours, others) = (minted(), minted(), minted());
    let address = tls_upstream_for(&made, Some(&ours));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let show = |shown: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        std::fs::write(file("key.pem"), shown.signing_key.serialize_pem()).unwrap();
        std::fs::write(file("cert.pem"), shown.cert.pem()).unwrap();
    };
    std::fs::write(file("ca.pem"), made.cert.pem()).unwrap();
    show(&others);
    let at = folder.path().display();
    let gateway = gateway(&yaml(&format!(
        "{{ url: \"https://localhost:{address}\", tls: {{ ca: \"{at}/ca.pem\", cert: \"{at}/cert.pem\", key: \"{at}/key.pem\" }}, \
         retry: {{ backoff: {{ initial: 50ms, max: 50ms }} }} }}"
    )))
    .start();
    let id = send(&gateway, "shop");
    gateway.wait_for_status(&id, "retrying");
    let attempts = gateway.json(&format!("/api/v1/events/{id}/attempts"));
    assert_eq!(attempts["attempts"][0]["outcome"], "tls", "{attempts}");
    show(&ours);
    gateway.wait_for_status(&id, "delivered");
}

fn minted() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// An upstream that answers 200 by TLS to everybody who trusts it; its port.
fn tls_upstream(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    tls_upstream_for(made, None)
}

/// The same, to those alone who show this certificate.
fn tls_upstream_for(
    made: &rcgen::CertifiedKey<rcgen::KeyPair>,
    clients: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>,
) -> u16 {
    use std::io::{Read as _, Write as _};
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.cert.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, socket);
            // Whoever does not trust us goes away in the handshake.
            if stream.read(&mut [0; 16 * 1024]).is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap_or_default();
            }
        }
    });
    port
}
