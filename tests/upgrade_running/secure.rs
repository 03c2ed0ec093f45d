//! The same over TLS and HTTP/2: connections end with a GOAWAY, and no stream is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::upstream::{answer, upstream};
use crate::world::{Place, Process};

/// What became of the streams of one client.
#[derive(Default)]
struct Streams {
    accepted: usize,
    connections: usize,
    wrong: Vec<String>,
}

fn client(ca: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("gateway.test").unwrap();
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the connection's task ends with the test's runtime")]
    drop(tokio::spawn(connection));
    sender
}

/// Posts in fours over one connection until that ends, and then over the next.
async fn keep_posting(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    ending: &AtomicBool,
    answered: &AtomicUsize,
) -> Streams {
    let mut streams = Streams::default();
    while !ending.load(Ordering::SeqCst) {
        let mut sender = connect(address, &config).await;
        streams.connections += 1;
        while !ending.load(Ordering::SeqCst) && sender.ready().await.is_ok() {
            let four = (0..4).map(|_| {
                let request = Request::post("https://gateway.test/any").version(Version::HTTP_2);
                sender.send_request(request.body(Full::new(Bytes::from_static(b"{}"))).unwrap())
            });
            for response in futures_util::future::join_all(four.collect::<Vec<_>>()).await {
                match response {
                    Ok(response) if response.status() == StatusCode::OK => {
                        let mut body = response.into_body();
                        while let Some(frame) = body.frame().await {
                            frame.unwrap();
                        }
                        streams.accepted += 1;
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(response) => streams.wrong.push(response.status().to_string()),
                    // After a GOAWAY: the stream was never begun (RFC 9113 §6.8), and is begun again elsewhere.
                    Err(error) if error.is_canceled() => {}
                    Err(error) => streams.wrong.push(format!("{error:?}")),
                }
            }
        }
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_over_tls_go_on_through_replacements_with_new_certificates() {
    let receiver = upstream(|_| answer(200)).keeping(|_| false);
    let made = rcgen::generate_simple_self_signed(["gateway.test".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().display();
    std::fs::write(folder.path().join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    let place = Arc::new(Place::new(&format!(
        "listen: {{ tls: {{ cert: {files}/tls.crt, key: {files}/tls.key }}, limits: {{ answer_timeout: 60s }} }}\n\
         upstream: {}\nsources: [{{ path: /any, verify: {{ provider: none }} }}]\n",
        receiver.url()
    )));
    let mut running = place.start();
    let address = running.address;
    let (ending, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = (0..3).map(|_| {
        let (config, ending, answered) = (client(&made.cert.pem()), Arc::clone(&ending), Arc::clone(&answered));
        async move { keep_posting(address, config, &ending, &answered).await }
    });
    let replacing = async {
        for _ in 0..4 {
            let until = answered.load(Ordering::SeqCst) + 60;
            while answered.load(Ordering::SeqCst) < until {
                tokio::task::yield_now().await;
            }
            let place = Arc::clone(&place);
            let next: Process = tokio::task::spawn_blocking(move || place.replace()).await.unwrap();
            let before = std::mem::replace(&mut running, next);
            assert_eq!(tokio::task::spawn_blocking(move || before.ended()).await.unwrap().code(), Some(0));
        }
        ending.store(true, Ordering::SeqCst);
    };
    let (streams, ()) = tokio::join!(futures_util::future::join_all(clients.collect::<Vec<_>>()), replacing);
    let wrong: Vec<&String> = streams.iter().flat_map(|streams| &streams.wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(streams.iter().all(|streams| streams.connections >= 4), "no connection was ended");
    let accepted: usize = streams.iter().map(|streams| streams.accepted).sum();
    let counted = running.json("/api/v1/sources")["sources"][0].clone();
    println!("{accepted} streams were accepted; {counted}");
    let stored = tokio::task::spawn_blocking(move || events(&running)).await.unwrap();
    assert_eq!(stored, accepted, "each is there once");
}

/// How many events there are.
fn events(running: &Process) -> usize {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let page = running.json(&format!("/api/v1/events?limit=1000{cursor}"));
        count += page["events"].as_array().unwrap().len();
        match page["next"].as_u64() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return count,
        }
    }
}
