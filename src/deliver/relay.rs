//! Requests to other nodes' admin sides: one try, one deadline, the whole answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::fetch::chain;

/// For all of a try. A node that is asked for what it holds in memory answers at once.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest answer, bytes: ten thousand groups, with the longest names.
const ANSWER_MAX: usize = 32 << 20;

/// Sends a request to a node, and gives its answer; an error is words.
pub type Relay = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, String>> + Send + Sync>;

/// A relay over plain HTTP: nodes reach each other inside one network.
#[must_use]
pub fn relay() -> Relay {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(TIMEOUT));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    Arc::new(move |request| {
        let client = client.clone();
        Box::pin(async move {
            match tokio::time::timeout(TIMEOUT, exchange(&client, request)).await {
                Ok(answer) => answer,
                Err(_elapsed) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
            }
        })
    })
}

#[expect(clippy::disallowed_methods, reason = "it is limited, by the line that collects it")]
async fn exchange(
    client: &Client<HttpConnector, Full<Bytes>>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, String> {
    let (head, body) = client.request(request.map(Full::new)).await.map_err(|error| chain(&error))?.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| error.to_string())?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
