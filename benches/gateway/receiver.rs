//! A receiver in this process: takes its time for each event, and lets somebody look at it.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Looks at the head of each event that arrives.
pub(crate) type Look = Arc<dyn Fn(&HeaderMap) + Send + Sync>;

/// Begins to receive in `tasks`, until they are dropped; where. Each event takes `takes`, as an application's handler would.
pub(crate) async fn receive(tasks: &mut JoinSet<()>, takes: Duration, look: Look) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let look = Arc::clone(&look);
            let service = service_fn(move |request| take(request, takes, Arc::clone(&look)));
            open.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            while open.try_join_next().is_some() {}
        }
    });
    Ok(address)
}

async fn take(
    mut request: http::Request<Incoming>,
    takes: Duration,
    look: Look,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    look(request.headers());
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    if !takes.is_zero() {
        tokio::time::sleep(takes).await;
    }
    Ok(http::Response::new(Full::default()))
}
