//! TLS and HTTP/2, through the real binary: ALPN, certificates exchanged while it runs, client certificates, limits.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use support::gateway;

const SOURCES: &str = "upstream: http://127.0.0.1:9\nsources: [{ path: /any, verify: { provider: none } }]\n";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

struct Identity {
    cert: rcgen::Certificate,
    key: KeyPair,
}

fn identity(authority: &Authority, name: &str, usage: ExtendedKeyUsagePurpose) -> Identity {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&key, authority).unwrap();
    Identity { cert, key }
}

fn write(dir: &Path, identity: &Identity) {
    std::fs::write(dir.join("tls.key"), identity.key.serialize_pem()).unwrap();
    std::fs::write(dir.join("tls.crt"), identity.cert.pem()).unwrap();
}

fn client_config(authority: &Authority, identity: Option<&Identity>, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match identity {
        Some(identity) => {
            let chain: Vec<CertificateDer<'static>> = vec![identity.cert.der().clone()];
            let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

async fn connect(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(config).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

fn request(version: Version, address: SocketAddr, body: Bytes) -> Request<Full<Bytes>> {
    let uri = if version == Version::HTTP_2 { format!("http://{address}/any") } else { "/any".to_owned() };
    let mut request = Request::post(uri).version(version).body(Full::new(body)).unwrap();
    if version != Version::HTTP_2 {
        request.headers_mut().insert("host", "hooks.test".parse().unwrap());
    }
    request
}

#[expect(clippy::disallowed_methods, reason = "the connection's task ends with the test's runtime")]
async fn post<S>(stream: S, version: Version, address: SocketAddr, body: Bytes) -> Result<(StatusCode, Version), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let words = |error: hyper::Error| format!("{error:?}");
    let io = TokioIo::new(stream);
    let request = request(version, address, body);
    let response = if version == Version::HTTP_2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(words)?;
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let (mut sender, connection) = http1::handshake(io).await.map_err(words)?;
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    let response = response.map_err(words)?;
    let answer = (response.status(), response.version());
    // The whole answer, so that nothing is cut by the end of the test.
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.map_err(words)?;
    }
    Ok(answer)
}

#[tokio::test]
async fn tls_offers_both_protocols_and_takes_new_certificates_while_it_runs() {
    let authority = authority();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(&authority, "first.test", ExtendedKeyUsagePurpose::ServerAuth));
    let files = dir.path().display();
    let yaml = format!("listen: {{ tls: {{ cert: {files}/tls.crt, key: {files}/tls.key }} }}\n{SOURCES}");
    let gateway = gateway(&yaml).start();
    let address = gateway.address;
    for (alpn, version) in [("h2", Version::HTTP_2), ("http/1.1", Version::HTTP_11)] {
        let stream = connect(address, "first.test", client_config(&authority, None, &[alpn])).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
        let answer = post(stream, version, address, Bytes::from_static(b"{}")).await;
        assert_eq!(answer, Ok((StatusCode::OK, version)));
    }
    let events = gateway.events("");
    assert_eq!(events.len(), 2);

    assert!(connect(address, "second.test", client_config(&authority, None, &["h2"])).await.is_err());
    write(dir.path(), &identity(&authority, "second.test", ExtendedKeyUsagePurpose::ServerAuth));
    while connect(address, "second.test", client_config(&authority, None, &["h2"])).await.is_err() {
        tokio::task::yield_now().await;
    }
    // A file that is no certificate leaves the one that works.
    std::fs::write(dir.path().join("tls.crt"), "no certificate").unwrap();
    while !gateway.stderr().contains("cannot be used") {
        tokio::task::yield_now().await;
    }
    assert!(connect(address, "second.test", client_config(&authority, None, &["h2"])).await.is_ok());
}

#[tokio::test]
async fn with_a_client_ca_only_its_clients_are_heard() {
    let (authority, stranger) = (authority(), authority());
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(&authority, "gateway.test", ExtendedKeyUsagePurpose::ServerAuth));
    std::fs::write(dir.path().join("ca.crt"), authority.pem()).unwrap();
    let files = dir.path().display();
    let tls = format!("{{ cert: {files}/tls.crt, key: {files}/tls.key, client_ca: {files}/ca.crt }}");
    let gateway = gateway(&format!("listen: {{ tls: {tls} }}\n{SOURCES}")).start();
    let known = identity(&authority, "client.test", ExtendedKeyUsagePurpose::ClientAuth);
    let unknown = identity(&stranger, "client.test", ExtendedKeyUsagePurpose::ClientAuth);
    for (identity, heard) in [(Some(&known), true), (Some(&unknown), false), (None, false)] {
        let config = client_config(&authority, identity, &["http/1.1"]);
        // TLS 1.3 tells a client that it was refused only after its handshake is done.
        let answer = match connect(gateway.address, "gateway.test", config).await {
            Ok(stream) => post(stream, Version::HTTP_11, gateway.address, Bytes::new()).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(answer, heard, "with a certificate: {}", identity.is_some());
    }
}

#[tokio::test]
async fn whose_clients_are_heard_is_exchanged_while_it_runs() {
    let (before, after) = (authority(), authority());
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(&before, "gateway.test", ExtendedKeyUsagePurpose::ServerAuth));
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, before.pem()).unwrap();
    let files = dir.path().display();
    let tls = format!("{{ cert: {files}/tls.crt, key: {files}/tls.key, client_ca: {files}/ca.crt }}");
    let gateway = gateway(&format!("listen: {{ tls: {tls} }}\n{SOURCES}")).start();
    let clients = [&before, &after].map(|ca| identity(ca, "client.test", ExtendedKeyUsagePurpose::ClientAuth));
    let address = gateway.address;
    let heard =
        async |identity| match connect(address, "gateway.test", client_config(&before, Some(identity), &[])).await {
            Ok(stream) => post(stream, Version::HTTP_11, address, Bytes::new()).await.is_ok(),
            Err(_) => false,
        };
    assert!(heard(&clients[0]).await && !heard(&clients[1]).await);
    std::fs::write(&ca, after.pem()).unwrap();
    while !heard(&clients[1]).await {
        tokio::task::yield_now().await;
    }
    assert!(!heard(&clients[0]).await, "the ones before are not heard any more");
    // What is no certificate leaves those who are heard.
    std::fs::write(&ca, "nobody").unwrap();
    while !gateway.stderr().contains("cannot be used") {
        tokio::task::yield_now().await;
    }
    assert!(heard(&clients[1]).await && !heard(&clients[0]).await);
}

/// The beginning of TLS 1.1, with suites that it had (RFC 4346 §7.4.1.2).
fn hello_of_tls_1_1() -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0x00, 0x2f, 0xc0, 0x13, 1, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    record
}

#[tokio::test]
async fn versions_of_tls_before_1_2_are_refused_and_1_2_and_1_3_are_spoken() {
    let authority = authority();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(&authority, "gateway.test", ExtendedKeyUsagePurpose::ServerAuth));
    let files = dir.path().display();
    let gateway =
        gateway(&format!("listen: {{ tls: {{ cert: {files}/tls.crt, key: {files}/tls.key }} }}\n{SOURCES}")).start();
    let mut old = TcpStream::connect(gateway.address).await.unwrap();
    old.write_all(&hello_of_tls_1_1()).await.unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).await.unwrap();
    // A fatal alert, protocol_version or handshake_failure (RFC 5246 §7.2), and no hello of the server's.
    assert!(answer.starts_with(&[21]) && (answer.ends_with(&[2, 70]) || answer.ends_with(&[2, 40])), "{answer:?}");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = connect(gateway.address, "gateway.test", Arc::new(config)).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
    }
}

#[tokio::test]
async fn h2c_is_taken_where_it_is_switched_on_and_has_the_same_limits() {
    let off = gateway(SOURCES).start();
    let stream = TcpStream::connect(off.address).await.unwrap();
    assert!(post(stream, Version::HTTP_2, off.address, Bytes::new()).await.is_err());

    let gateway = gateway(&format!("listen: {{ h2c: true, limits: {{ body: 10KiB }} }}\n{SOURCES}")).start();
    let send = async |version, bytes: usize| {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        post(stream, version, gateway.address, Bytes::from(vec![b'x'; bytes])).await
    };
    assert_eq!(send(Version::HTTP_2, 10 * 1024).await, Ok((StatusCode::OK, Version::HTTP_2)));
    assert_eq!(send(Version::HTTP_11, 10 * 1024).await, Ok((StatusCode::OK, Version::HTTP_11)));
    assert_eq!(send(Version::HTTP_2, 10 * 1024 + 1).await, Ok((StatusCode::PAYLOAD_TOO_LARGE, Version::HTTP_2)));
    assert_eq!(gateway.events("").len(), 2);
}

#[tokio::test]
async fn a_sender_that_leaves_over_tls_while_it_waits_for_a_relayed_answer_is_noticed() {
    // Takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = authority();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(&authority, "gateway.test", ExtendedKeyUsagePurpose::ServerAuth));
    let files = dir.path().display();
    let gateway = gateway(&format!(
        "listen: {{ tls: {{ cert: {files}/tls.crt, key: {files}/tls.key }} }}\nupstream: http://{}\n\
         sources: [{{ path: /any, verify: {{ provider: none }}, respond: upstream }}]\n",
        silent.local_addr().unwrap()
    ))
    .start();
    let busy = || gateway.json("/api/v1/upstream")["slots"]["busy"].clone();
    let mut stream = connect(gateway.address, "gateway.test", client_config(&authority, None, &[])).await.unwrap();
    stream.write_all(b"POST /any HTTP/1.1\r\nHost: hooks.test\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
    while busy() != 1 {
        tokio::task::yield_now().await;
    }
    stream.shutdown().await.unwrap();
    while busy() != 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(gateway.metric("fairlane_live_requests_total{outcome=\"gone\"} "), Some(1.0));
}
