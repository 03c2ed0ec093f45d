//! A collector of traces: OTLP over gRPC as the specification has it, read by hand.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// A span as it came.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: HashMap<String, String>,
    /// 2 is an error.
    pub(crate) status: u64,
}

#[derive(Default)]
struct Shared {
    spans: Mutex<Vec<Span>>,
    came: Condvar,
}

/// The collector; it serves until the test's process ends.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

pub(crate) fn collector() -> Collector {
    let shared = Arc::new(Shared::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Arc::clone(&shared);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&serving);
                open.spawn(async move {
                    let service = service_fn(move |request| take(request, Arc::clone(&shared)));
                    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    serving.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
    });
    Collector { address, shared }
}

type Body = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

/// One call: a message behind its five bytes of framing; the answer is an empty message and a status in the trailers.
async fn take(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    let message = bytes.get(5..).unwrap();
    let resources = fields(message).filter_map(bytes_of(1));
    let scopes = resources.flat_map(|resource| fields(resource).filter_map(bytes_of(2)));
    let spans = scopes.flat_map(|scope| fields(scope).filter_map(bytes_of(2))).map(span);
    shared.spans.lock().unwrap().extend(spans);
    shared.came.notify_all();
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let frames = vec![Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    let answer = Response::builder().header("content-type", "application/grpc");
    Ok(answer.body(StreamBody::new(futures_util::stream::iter(frames))).unwrap())
}

impl Collector {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans, as soon as they are as wanted.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let mut spans = self.shared.spans.lock().unwrap();
        while !wanted(&spans) {
            spans = self.shared.came.wait(spans).unwrap();
        }
        spans.clone()
    }
}

/// A field of a message (protobuf encoding): its number and its value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => Value::Number(u64::from_le_bytes(take_bytes(&mut message, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                Value::Bytes(take_bytes(&mut message, length))
            }
            5 => Value::Number(u32::from_le_bytes(take_bytes(&mut message, 4).try_into().unwrap()).into()),
            other => panic!("wire type {other}"),
        };
        Some((tag >> 3, value))
    })
}

fn take_bytes<'a>(message: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = message.split_at(length);
    *message = rest;
    taken
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_bytes(message, 1)[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn bytes_of(number: u64) -> impl Fn((u64, Value<'_>)) -> Option<&[u8]> {
    move |field| match field {
        (found, Value::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    }
}

fn span(message: &[u8]) -> Span {
    let mut span = Span {
        trace: String::new(),
        id: String::new(),
        parent: String::new(),
        name: String::new(),
        kind: 0,
        start: 0,
        end: 0,
        attributes: HashMap::new(),
        status: 0,
    };
    for field in fields(message) {
        match field {
            (1, Value::Bytes(bytes)) => span.trace = super::hex(bytes),
            (2, Value::Bytes(bytes)) => span.id = super::hex(bytes),
            (4, Value::Bytes(bytes)) => span.parent = super::hex(bytes),
            (5, Value::Bytes(bytes)) => span.name = String::from_utf8(bytes.to_vec()).unwrap(),
            (6, Value::Number(kind)) => span.kind = kind,
            (7, Value::Number(start)) => span.start = start,
            (8, Value::Number(end)) => span.end = end,
            (9, Value::Bytes(bytes)) => {
                let (key, value) = attribute(bytes);
                span.attributes.insert(key, value);
            }
            (15, Value::Bytes(bytes)) => {
                span.status = fields(bytes)
                    .find_map(|f| if let (3, Value::Number(code)) = f { Some(code) } else { None })
                    .unwrap_or(0);
            }
            _ => {}
        }
    }
    span
}

fn attribute(message: &[u8]) -> (String, String) {
    let (mut key, mut value) = (String::new(), String::new());
    for field in fields(message) {
        match field {
            (1, Value::Bytes(bytes)) => key = String::from_utf8(bytes.to_vec()).unwrap(),
            (2, Value::Bytes(bytes)) => {
                for field in fields(bytes) {
                    value = match field {
                        (1, Value::Bytes(text)) => String::from_utf8(text.to_vec()).unwrap(),
                        (_, Value::Number(number)) => number.to_string(),
                        (other, Value::Bytes(_)) => panic!("an attribute of kind {other}"),
                    };
                }
            }
            _ => {}
        }
    }
    (key, value)
}
