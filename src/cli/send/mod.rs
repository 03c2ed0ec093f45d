//! `fairlane send`: signs test events as a provider would, and posts them.

mod command;
mod private_key;
mod signer;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use self::signer::Signer;
use super::with_causes;
use crate::event::Wall;
use crate::verify::{Outgoing, SignError};
pub(super) use command::{Send, run};

/// How much of an answer is kept; receivers answer with a line or two.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A test event.
#[derive(Clone, Debug)]
struct Event<'a> {
    /// Signs it.
    signer: &'a Signer,
    /// Where it goes.
    to: &'a Uri,
    /// The address that the receiver takes for its own, where that is not `to`.
    signed_url: Option<&'a str>,
    /// Its method.
    method: Method,
    /// Headers beside those of the signature.
    headers: HeaderMap,
    /// Its body.
    body: Bytes,
    /// When it is sent.
    now: Wall,
    /// The message id, for schemes that sign one.
    id: &'a str,
    /// How long connecting, sending and the whole answer may take.
    timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    /// The status.
    status: StatusCode,
    /// The headers.
    headers: HeaderMap,
    /// The body, up to 64 KiB of it.
    body: Bytes,
    /// The body went on after that.
    cut: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The address cannot be posted to.
    #[error("cannot send to {0}: expected http:// or https:// and a host")]
    Address(String),
    /// It cannot be signed.
    #[error("cannot sign the event: {0}")]
    Sign(#[from] SignError),
    /// The system's certificates cannot be read.
    #[error("cannot read the system's root certificates, which https needs: {0}")]
    Roots(std::io::Error),
    /// No connection, or none to the end.
    #[error("no answer from {to}: {error}")]
    Failed {
        /// Where it went.
        to: String,
        /// What happened, with its cause.
        error: String,
    },
    /// It took too long.
    #[error("no answer from {to} within {} s; the receiver may have accepted the event nevertheless", .after.as_secs())]
    TimedOut {
        /// Where it went.
        to: String,
        /// How long it was waited for.
        after: Duration,
    },
}

/// Signs the event, posts it and reads the answer.
///
/// # Errors
/// It cannot be signed, or there is no answer. An answer of any status is none.
async fn send(event: Event<'_>) -> Result<Answer, SendError> {
    let to = event.to.to_string();
    let timeout = event.timeout;
    let request = signed(event)?;
    match tokio::time::timeout(timeout, exchange(request)).await {
        Ok(done) => done,
        Err(_) => Err(SendError::TimedOut { to, after: timeout }),
    }
}

/// The signed request; `to` without a path means `/`, as HTTP sends it.
fn signed(event: Event<'_>) -> Result<http::Request<Full<Bytes>>, SendError> {
    let address = || SendError::Address(event.to.to_string());
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (event.to.scheme_str(), event.to.authority()) else {
        return Err(address());
    };
    let target = event.to.path_and_query().map_or("/", |target| target.as_str());
    let own_url = format!("{scheme}://{authority}{target}");
    let mut headers = event.headers;
    let url = event.signed_url.unwrap_or(&own_url);
    let outgoing = Outgoing { method: &event.method, url, body: &event.body, now: event.now, id: event.id };
    let kind = event.signer.content_type(&event.body);
    headers.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
    let completed = event.signer.sign(&outgoing, &mut headers)?.map(Bytes::from);
    let mut request = http::Request::new(Full::new(completed.unwrap_or(event.body)));
    *request.uri_mut() = own_url.parse().map_err(|_| SendError::Address(own_url))?;
    *request.method_mut() = event.method;
    *request.headers_mut() = headers;
    Ok(request)
}

async fn exchange(request: http::Request<Full<Bytes>>) -> Result<Answer, SendError> {
    let to = request.uri().to_string();
    let failed = |error: &dyn std::error::Error| SendError::Failed { to: to.clone(), error: with_causes(error) };
    let response = if request.uri().scheme_str() == Some("https") {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(SendError::Roots)?
            .https_only()
            .enable_http1()
            .build();
        Client::builder(TokioExecutor::new()).build(connector).request(request).await
    } else {
        Client::builder(TokioExecutor::new()).build(HttpConnector::new()).request(request).await
    };
    let (head, body) = response.map_err(|error| failed(&error))?.into_parts();
    let (body, cut) = start_of(body).await.map_err(|error| failed(&error))?;
    Ok(Answer { status: head.status, headers: head.headers, body, cut })
}

/// The first [`ANSWER_BYTES_MAX`] bytes, and whether there were more.
async fn start_of(mut body: Incoming) -> Result<(Bytes, bool), hyper::Error> {
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let room = ANSWER_BYTES_MAX - kept.len();
        kept.extend(data.iter().take(room));
        if data.len() > room {
            return Ok((kept.into(), true));
        }
    }
    Ok((kept.into(), false))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use http::HeaderName;

    use super::*;
    use crate::event::Secret;
    use crate::verify::{Choice, Request, SecretSpec, Spec, Verifier};

    fn verifier(provider: &str) -> Verifier {
        let secrets = vec![SecretSpec::new(Secret::new("test"))];
        Verifier::new(Spec::new(Choice::Preset(provider.into()), secrets)).unwrap()
    }

    fn signer(provider: &str) -> Signer {
        Signer::new(provider, Some(Secret::new("test"))).unwrap()
    }

    fn event<'a>(signer: &'a Signer, to: &'a Uri) -> Event<'a> {
        Event {
            signer,
            to,
            signed_url: None,
            method: Method::POST,
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"{\"a\":1}"),
            now: Wall::from_unix_s(1_700_000_000),
            id: "msg_1",
            timeout: Duration::from_secs(30),
        }
    }

    /// Takes one request, gives `answer`; returns what came.
    async fn receiver(listener: TcpListener, answer: Vec<u8>) -> Vec<u8> {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"{\"a\":1}") {
            assert_ne!(stream.read_buf(&mut got).await.unwrap(), 0, "closed early");
        }
        stream.write_all(&answer).await.unwrap();
        stream.shutdown().await.unwrap();
        got
    }

    #[tokio::test]
    async fn a_signed_event_arrives_and_its_own_verifier_takes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to: Uri = format!("http://{}/in?x=1", listener.local_addr().unwrap()).parse().unwrap();
        let (signer, verifier) = (signer("square"), verifier("square"));
        let answer = b"HTTP/1.1 202 Accepted\r\nx-a: b\r\ncontent-length: 2\r\n\r\nok".to_vec();
        let (answer, got) = tokio::join!(send(event(&signer, &to)), receiver(listener, answer));
        let answer = answer.unwrap();
        assert_eq!((answer.status, &answer.body[..], answer.cut), (StatusCode::ACCEPTED, &b"ok"[..], false));
        assert_eq!(answer.headers["x-a"], "b");

        let got = String::from_utf8(got).unwrap();
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /in?x=1 HTTP/1.1\r\n"), "{head}");
        let mut headers = HeaderMap::new();
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(": ").unwrap();
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let host = format!("http://{}", headers["host"].to_str().unwrap());
        let request = Request {
            method: &Method::POST,
            target: "/in?x=1",
            seen_url: Some(&host),
            headers: &headers,
            body: body.as_bytes(),
        };
        assert_eq!(&**verifier.judge(&request, Wall::from_unix_s(1_700_000_000)).unwrap().label(), "square secret=0");
    }

    #[tokio::test]
    async fn a_long_answer_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let signer = signer("github");
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 70000\r\n\r\n".to_vec();
        answer.resize(answer.len() + 70_000, b'x');
        let (answer, got) = tokio::join!(send(event(&signer, &to)), receiver(listener, answer));
        assert!(got.starts_with(b"POST / HTTP/1.1\r\n"));
        let answer = answer.unwrap();
        assert_eq!((answer.body.len(), answer.cut), (ANSWER_BYTES_MAX, true));
    }

    #[tokio::test]
    async fn what_cannot_be_sent_is_said() {
        let signer = signer("github");
        for to in ["/in", "ftp://a/", "localhost:1"] {
            let to: Uri = to.parse().unwrap();
            assert!(matches!(send(event(&signer, &to)).await, Err(SendError::Address(_))), "{to}");
        }
        // A port that nobody listens on: bound, so that nobody else gets it, and never accepted from.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let error = send(event(&signer, &closed)).await.unwrap_err();
        assert!(matches!(error, SendError::Failed { .. }), "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
