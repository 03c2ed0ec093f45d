//! TLS towards the upstream: whom it trusts, and that its failures are told apart.

use std::sync::Arc;

use fairlane::deliver::{Identity, Outcome, Settings, Tls};
use fairlane::event::Secret;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::upstream::Upstream;
use super::world::{World, hurried, settings};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A certificate of its own for `name`.
pub(crate) fn minted(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// A server that shows it, to those whose certificate `clients` is; without them to everybody.
pub(crate) fn server(made: &rcgen::CertifiedKey<rcgen::KeyPair>, clients: Option<&str>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(pem) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)), provider).build().unwrap(),
        ),
    };
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    builder.with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap()
}

/// A server with a certificate of its own for `name`, and the PEM to trust.
pub(crate) fn certificate(name: &str) -> (ServerConfig, String) {
    let made = minted(name);
    (server(&made, None), made.cert.pem())
}

/// The store that trusts this PEM.
pub(crate) fn roots(pem: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    roots
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
    let (server, ca) = certificate("localhost");
    let upstream = serving(server);
    let world = World::trusting(https(&upstream, "localhost"), &ca);
    for _ in 0..3 {
        let attempt = world.attempt().await;
        assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    }
    assert_eq!(upstream.connections(), [0; 3]);
}

#[tokio::test]
async fn an_unknown_issuer_is_a_failure_of_tls() {
    let (server, _) = certificate("localhost");
    let (_, other) = certificate("localhost");
    let upstream = serving(server);
    let world = World::trusting(https(&upstream, "localhost"), &other);
    let attempt = world.attempt().await;
    assert_eq!(attempt.outcome, Outcome::Tls, "{}", attempt.error);
    assert!(attempt.error.contains("TLS with localhost:"), "{}", attempt.error);
    assert!(attempt.error.contains("certificate"), "{}", attempt.error);
    assert!(attempt.error.contains("upstream.tls.ca"), "{}", attempt.error);
    assert_eq!((upstream.seen().len(), world.counted("tls")), (0, 1));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_a_failure_of_tls() {
    let (server, ca) = certificate("other.example");
    let upstream = serving(server);
    for host in ["localhost", "127.0.0.1"] {
        let attempt = World::trusting(https(&upstream, host), &ca).attempt().await;
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
    let attempt = World::trusting(https(&upstream, "localhost"), &certificate("x").1).attempt().await;
    assert_eq!(attempt.outcome, Outcome::Tls, "{}", attempt.error);
}

#[tokio::test]
async fn a_handshake_that_hangs_is_a_timeout_of_connecting() {
    let upstream = Upstream::new(super::upstream::Talk::wait_for_close);
    let settings = hurried(&format!("https://localhost:{}", upstream.address.port()));
    let attempt = World::trusting(settings, &certificate("x").1).attempt().await;
    assert_eq!(attempt.outcome, Outcome::TimeoutConnect, "{}", attempt.error);
    assert!(attempt.error.contains("handshake"), "{}", attempt.error);
}

#[tokio::test]
async fn a_kept_tls_connection_that_closes_is_replaced() {
    let (server, ca) = certificate("localhost");
    let upstream = Upstream::tls(server, |talk| {
        while talk.hear() && !(talk.connection == 0 && talk.heard() == 2) {
            talk.say(OK);
        }
        talk.say_goodbye();
    });
    let world = World::trusting(https(&upstream, "localhost"), &ca);
    world.attempt().await;
    let attempt = world.attempt().await;
    assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
    assert_eq!(upstream.connections(), [0, 0, 1]);
}

#[tokio::test]
async fn an_upstream_that_asks_for_a_certificate_gets_ours_and_refuses_who_has_none_or_another() {
    let (ours, others, made) = (minted("fairlane"), minted("fairlane"), minted("localhost"));
    let upstream = serving(server(&made, Some(&ours.cert.pem())));
    let shown = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        Some(Identity { cert: made.cert.pem().into(), key: Secret::new(made.signing_key.serialize_pem()) })
    };
    for (identity, welcome) in [(shown(&ours), true), (shown(&others), false), (None, false)] {
        let tls = Tls { ca: Some(made.cert.pem().into()), identity };
        let attempt = World::with(Settings { tls, ..https(&upstream, "localhost") }).attempt().await;
        if welcome {
            assert!(attempt.outcome.is_delivered(), "{}", attempt.error);
        } else {
            assert_eq!(attempt.outcome, Outcome::Tls, "{}", attempt.error);
        }
    }
    assert_eq!(upstream.seen().len(), 1, "nothing of an event went to who was not let in");
}

#[test]
fn what_tls_cannot_be_made_of_is_told_by_its_place() {
    let (one, other) = (minted("a"), minted("b"));
    let key = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| Secret::new(made.signing_key.serialize_pem());
    let identity = |cert: String, key| Some(Identity { cert: cert.into(), key });
    let good = Tls { ca: Some(one.cert.pem().into()), identity: identity(one.cert.pem(), key(&one)) };
    assert_eq!(good.check(), Ok(()));
    for (tls, place, words) in [
        (Tls { ca: Some("PEM".into()), ..good.clone() }, "ca", "found none"),
        (Tls { identity: identity("no".to_owned(), key(&one)), ..good.clone() }, "cert", "found none"),
        (Tls { identity: identity(one.cert.pem(), Secret::new("no")), ..good.clone() }, "key", "private key in PEM"),
        (Tls { identity: identity(one.cert.pem(), key(&other)), ..good }, "key", "do not fit"),
    ] {
        let (at, error) = tls.check().unwrap_err();
        assert!(at == place && error.contains(words), "{at}: {error}");
    }
}
