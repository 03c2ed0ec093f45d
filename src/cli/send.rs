//! `fairlane send`: signs a test event as a provider would, and posts it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::secret::Place;
use super::{FAILED, USAGE, complain, print, with_causes};
use crate::event::{EventId, Wall};
use crate::verify::{Choice, Outgoing, SecretSpec, SignError, Spec, Verifier};

/// How much of an answer is kept; receivers answer with a line or two.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Longer than any gateway takes to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A test event.
#[derive(Debug)]
pub struct Event<'a> {
    /// Signs it: a verifier with the provider's scheme and the secret.
    pub signer: &'a Verifier,
    /// Where it goes.
    pub to: &'a Uri,
    /// The address that the receiver takes for its own, where that is not `to`.
    pub signed_url: Option<&'a str>,
    /// Its method.
    pub method: Method,
    /// Headers beside those of the signature.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// When it is sent.
    pub now: Wall,
    /// The message id, for schemes that sign one.
    pub id: &'a str,
    /// How long connecting, sending and the whole answer may take.
    pub timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, up to 64 KiB of it.
    pub body: Bytes,
    /// The body went on after that.
    pub cut: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
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

/// The arguments of `fairlane send`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Who is imitated; `fairlane check` knows the same names
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// The provider's secret: env:NAME, file:PATH or - for standard input
    #[arg(long, value_name = "WHERE")]
    secret: Option<String>,
    /// Where to post
    #[arg(long, value_name = "URL")]
    to: Uri,
    /// The body; standard input where this is left out
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// A further header, `Name: value`; may be repeated
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The method
    #[arg(long, default_value = "POST")]
    method: Method,
    /// The address that is signed, where the receiver's `public_url` is not where it is posted to
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected `Name: value`")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is not a header's name"))?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is not a header's value"))?;
    Ok((name, value))
}

/// `fairlane send`; the answer is the exit code: 0 for a 2xx, 1 for another status or none.
pub(super) fn run(arguments: &Arguments) -> u8 {
    match post(arguments) {
        Ok(answer) => show(&answer),
        Err(Refused::Usage(message)) => complain(&message, USAGE),
        Err(Refused::Failed(message)) => complain(&message, FAILED),
    }
}

/// Why nothing was sent, or nothing came back.
enum Refused {
    Usage(String),
    Failed(String),
}

fn post(arguments: &Arguments) -> Result<Answer, Refused> {
    let usage = |error: &dyn std::fmt::Display| Refused::Usage(error.to_string());
    let failed = |error: &dyn std::fmt::Display| Refused::Failed(error.to_string());
    let place = arguments.secret.as_deref().map(Place::parse).transpose().map_err(|e| usage(&e))?;
    if place == Some(Place::Stdin) && arguments.body.is_none() {
        return Err(Refused::Usage(
            "standard input cannot be the secret and the body: name the body with --body FILE".into(),
        ));
    }
    let environment = |name: &str| std::env::var(name).ok();
    let secret = place.map(|place| place.read(environment, std::io::stdin())).transpose().map_err(|e| failed(&e))?;
    let secrets = secret.map(SecretSpec::new).into_iter().collect();
    let signer =
        Verifier::new(Spec::new(Choice::Preset(arguments.provider.clone()), secrets)).map_err(|e| usage(&e))?;
    let now = crate::app::wall();
    let event = Event {
        signer: &signer,
        to: &arguments.to,
        signed_url: arguments.public_url.as_deref(),
        method: arguments.method.clone(),
        headers: arguments.headers.iter().cloned().collect(),
        body: body(arguments.body.as_deref()).map_err(Refused::Failed)?,
        now,
        id: &format!("msg_{}", EventId::new(now, &rand::random())),
        timeout: TIMEOUT,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failed(&e))?;
    runtime.block_on(send(event)).map_err(|e| failed(&e))
}

fn body(path: Option<&Path>) -> Result<Bytes, String> {
    let mut body = Vec::new();
    let read = match path {
        Some(path) => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut body)),
        None => std::io::stdin().lock().read_to_end(&mut body),
    };
    let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    read.map_err(|error| format!("the body cannot be read from {name}: {error}"))?;
    Ok(body.into())
}

fn show(answer: &Answer) -> u8 {
    let mut text = format!("{}\n", answer.status);
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()).escape_debug()));
    }
    text.push('\n');
    // What the other side says may try to command the terminal.
    let body = String::from_utf8_lossy(&answer.body);
    text.extend(body.chars().map(|c| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c }));
    if answer.cut {
        text.push_str("\n(cut after 64 KiB)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let written = print(text.as_bytes());
    if answer.status.is_success() { written } else { FAILED }
}

/// Signs the event, posts it and reads the answer.
///
/// # Errors
/// It cannot be signed, or there is no answer. An answer of any status is none.
pub async fn send(event: Event<'_>) -> Result<Answer, SendError> {
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
    let outgoing = Outgoing {
        method: &event.method,
        url: event.signed_url.unwrap_or(&own_url),
        body: &event.body,
        now: event.now,
        id: event.id,
    };
    event.signer.sign(&outgoing, &mut headers)?;
    headers.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let mut request = http::Request::new(Full::new(event.body));
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

    use super::*;
    use crate::event::Secret;
    use crate::verify::{Choice, Request, SecretSpec, Spec};

    fn verifier(provider: &str) -> Verifier {
        let secrets = vec![SecretSpec::new(Secret::new("test"))];
        Verifier::new(Spec::new(Choice::Preset(provider.into()), secrets)).unwrap()
    }

    fn event<'a>(signer: &'a Verifier, to: &'a Uri) -> Event<'a> {
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
        let signer = verifier("square");
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
        assert_eq!(&**signer.judge(&request, Wall::from_unix_s(1_700_000_000)).unwrap().label(), "square secret=0");
    }

    #[tokio::test]
    async fn a_long_answer_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let signer = verifier("github");
        let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 70000\r\n\r\n".to_vec();
        answer.resize(answer.len() + 70_000, b'x');
        let (answer, got) = tokio::join!(send(event(&signer, &to)), receiver(listener, answer));
        assert!(got.starts_with(b"POST / HTTP/1.1\r\n"));
        let answer = answer.unwrap();
        assert_eq!((answer.body.len(), answer.cut), (ANSWER_BYTES_MAX, true));
    }

    #[tokio::test]
    async fn what_cannot_be_sent_is_said() {
        let signer = verifier("github");
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
