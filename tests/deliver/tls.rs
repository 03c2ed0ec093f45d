//! TLS towards the upstream: whom it trusts, and that its failures are told apart.

use std::sync::Arc;

use fairlane::deliver::{Outcome, Settings};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{RootCertStore, ServerConfig};

use super::upstream::Upstream;
use super::world::{World, hurried, settings};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A server's configuration with a certificate of its own for `name`, and the store that trusts it.
pub(crate) fn certificate(name: &str) -> (ServerConfig, RootCertStore) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let certificate = made.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    (server, roots)
}

fn https(upstream: &Upstream, host: &str) -> Settings {
    settings(&format!("https://{host}:{}", upstream.address.port()))
}

fn serving(server: ServerConfig) -> Upstream {
    Upstream::tls(server, |talk| {
        while talk.hear() {
            talk.say(OK);
        }
    })
}

#[tokio::test]
async fn a_trusted_certificate_for_the_name_is_enough() {
    let (server, roots) = certificate("localhost");
    let upstream = serving(server);
    let world = World::trusting(https(&upstream, "localhost"), roots);
    for _ in 0..3 {
        let attempt = world.attempt().await;
        assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    }
    assert_eq!(upstream.connections(), [0; 3]);
}

#[tokio::test]
async fn an_unknown_issuer_is_a_failure_of_tls() {
    let (server, _) = certificate("localhost");
    let (_, other_roots) = certificate("localhost");
    let upstream = serving(server);
    let world = World::trusting(https(&upstream, "localhost"), other_roots);
    let attempt = world.attempt().await;
    assert_eq!(attempt.outcome, Outcome::Tls, "{}", attempt.error);
    assert!(attempt.error.contains("TLS with localhost:"), "{}", attempt.error);
    assert!(attempt.error.contains("certificate"), "{}", attempt.error);
    assert!(attempt.error.contains("SSL_CERT_FILE"), "{}", attempt.error);
    assert_eq!((upstream.seen().len(), world.counted("tls")), (0, 1));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_a_failure_of_tls() {
    let (server, roots) = certificate("other.example");
    let upstream = serving(server);
    for host in ["localhost", "127.0.0.1"] {
        let attempt = World::trusting(https(&upstream, host), roots.clone()).attempt().await;
        assert_eq!(attempt.outcome, Outcome::Tls, "{}", attempt.error);
        assert!(attempt.error.contains("certificate"), "{}", attempt.error);
    }
    assert_eq!(upstream.seen(), []);
}

#[tokio::test]
async fn a_plain_port_is_a_failure_of_tls() {
    let upstream = Upstream::new(|talk| {
        talk.say("HTTP/1.1 400 Bad Request\r\n\r\n");
        talk.wait_for_close();
    });
    let attempt = World::trusting(https(&upstream, "localhost"), RootCertStore::empty()).attempt().await;
    assert_eq!(attempt.outcome, Outcome::Tls, "{}", attempt.error);
}

#[tokio::test]
async fn a_handshake_that_hangs_is_a_timeout_of_connecting() {
    let upstream = Upstream::new(super::upstream::Talk::wait_for_close);
    let settings = hurried(&format!("https://localhost:{}", upstream.address.port()));
    let attempt = World::trusting(settings, RootCertStore::empty()).attempt().await;
    assert_eq!(attempt.outcome, Outcome::TimeoutConnect, "{}", attempt.error);
    assert!(attempt.error.contains("handshake"), "{}", attempt.error);
}

#[tokio::test]
async fn a_kept_tls_connection_that_closes_is_replaced() {
    let (server, roots) = certificate("localhost");
    let upstream = Upstream::tls(server, |talk| {
        while talk.hear() && !(talk.connection == 0 && talk.heard() == 2) {
            talk.say(OK);
        }
        talk.say_goodbye();
    });
    let world = World::trusting(https(&upstream, "localhost"), roots);
    world.attempt().await;
    let attempt = world.attempt().await;
    assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    assert_eq!(upstream.connections(), [0, 0, 1]);
}
