//! The receiver of the demo: works 5 ms on whatever it is given, checks the gateway's signature, and counts.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::ledger::{self, Ledger};
use crate::app;
use crate::event::Secret;
use crate::verify::mac;

/// How long it works on an event.
pub(super) const WORK: Duration = Duration::from_millis(5);

/// Our orders are below 8 KB; more than this is none of them.
const BODY_BYTES_MAX: usize = 64 << 10;

/// It runs until this is dropped.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    serving: JoinSet<()>,
}

impl Receiver {
    /// Listens on a free port of the loopback; what `secret` did not sign is counted as wrong.
    pub(super) async fn start(secret: &Secret, ledger: Arc<Ledger>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("the receiver cannot listen")?;
        let address = listener.local_addr()?;
        let key = mac::standard_key(secret).context("the demo's signing secret is none")?;
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, Arc::new(Desk { key, ledger })));
        Ok(Self { address, serving })
    }

    /// Whether it has ended, which it never should.
    pub(super) fn has_ended(&mut self) -> bool {
        self.serving.try_join_next().is_some()
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    loop {
        // Out of descriptors for a moment; the gateway tries again.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(WORK).await;
            continue;
        };
        connections.spawn(serve(stream, Arc::clone(&desk)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, desk: Arc<Desk>) {
    let service = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(desk.take(request).await) }
    });
    // A connection that breaks is repeated by the gateway, and the ledger sees what came twice or never.
    stream.set_nodelay(true).ok();
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

struct Desk {
    key: mac::Key,
    ledger: Arc<Ledger>,
}

impl Desk {
    async fn take(&self, request: Request<Incoming>) -> Response<Empty<Bytes>> {
        let (head, body) = request.into_parts();
        let Some(body) = read(body).await else { return answer(400) };
        let at = app::now().mono;
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let place = text("x-shopify-webhook-id").and_then(ledger::place);
        let id = text("fairlane-event-id").and_then(|id| id.parse().ok());
        self.ledger.arrived(place, id, is_signed(&self.key, &head.headers, &body), at);
        tokio::time::sleep(WORK).await;
        answer(200)
    }
}

/// The whole body, unless it breaks off or is too long.
async fn read(mut body: Incoming) -> Option<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if whole.len() + data.len() > BODY_BYTES_MAX {
            return None;
        }
        whole.extend_from_slice(&data);
    }
    Some(whole.freeze())
}

/// Whether `Fairlane-Signature` is the Standard Webhooks signature of id, time and body.
fn is_signed(key: &mac::Key, headers: &HeaderMap, body: &[u8]) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let signed = || {
        let timestamp = text("fairlane-timestamp")?.parse().ok()?;
        Some(mac::standard_signature(key, text("fairlane-event-id")?, timestamp, body))
    };
    signed().is_some_and(|signed| text("fairlane-signature") == Some(&signed))
}

fn answer(status: u16) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("our own statuses are statuses");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_gateway_signed_counts_as_signed() {
        let key = mac::standard_key(&Secret::new("whsec_ZGVtbw==")).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("fairlane-event-id", "evt_1".parse().unwrap());
        headers.insert("fairlane-timestamp", "1700000000".parse().unwrap());
        assert!(!is_signed(&key, &headers, b"{}"));
        let signature = mac::standard_signature(&key, "evt_1", 1_700_000_000, b"{}");
        headers.insert("fairlane-signature", signature.parse().unwrap());
        assert!(is_signed(&key, &headers, b"{}"));
        assert!(!is_signed(&key, &headers, b"{ }"));
        headers.insert("fairlane-timestamp", "1700000001".parse().unwrap());
        assert!(!is_signed(&key, &headers, b"{}"));
    }
}
