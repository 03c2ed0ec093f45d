//! Messages to an operator's own address: alerts. One try, one deadline, no redirects; nothing of the address but its host is ever told,
//! for its path may be a secret.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;

use super::fetch::chain;
use super::tls;
use crate::event::Secret;

/// For all of a try, name lookup included. Whoever takes messages answers at once.
const TIMEOUT: Duration = Duration::from_secs(10);
/// As much of a refusal as is told.
const EXCERPT_BYTES: usize = 200;

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Posts a message to an address, once; an error is words without the address, whose path may be a secret.
pub type Post = Arc<dyn Fn(Secret, Bytes) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Posts JSON. Clones share what they were made of.
#[derive(Clone, Default)]
pub struct Poster(Arc<Clients>);

#[derive(Default)]
struct Clients {
    plain: OnceLock<Http>,
    /// Where the system has no certificates to trust, the words for that.
    tls: OnceLock<Result<Http, String>>,
}

impl Clients {
    fn of(&self, to: &Uri) -> Result<&Http, String> {
        if to.scheme() == Some(&Scheme::HTTPS) {
            self.tls.get_or_init(|| tls::of_the_system().map(client)).as_ref().map_err(Clone::clone)
        } else {
            Ok(self.plain.get_or_init(|| client(tls::with(rustls::RootCertStore::empty()))))
        }
    }
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}

impl Poster {
    /// A poster that trusts the operating system's root certificates, read at the first message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As a function: posts once; an error is words.
    #[must_use]
    pub fn post(self) -> Post {
        Arc::new(move |to, message| {
            let poster = self.clone();
            Box::pin(async move { poster.once(&to, message).await })
        })
    }

    async fn once(&self, to: &Secret, message: Bytes) -> Result<(), String> {
        let uri: Uri = Uri::try_from(to.expose()).map_err(|_| "the address cannot be read".to_owned())?;
        let host = uri.host().unwrap_or("it").to_owned();
        let http = self.0.of(&uri)?;
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("fairlane"));
        match tokio::time::timeout(TIMEOUT, exchange(http, request)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("{host}: {error}")),
            Err(_elapsed) => Err(format!("{host} gave no answer within {} s", TIMEOUT.as_secs())),
        }
    }
}

async fn exchange(http: &Http, request: Request<Full<Bytes>>) -> Result<(), String> {
    let (head, body) = http.request(request).await.map_err(|error| chain(&error))?.into_parts();
    if head.status.is_success() {
        return Ok(());
    }
    let words = excerpt(body).await;
    Err(format!("it answered {} {words}", head.status.as_u16()).trim_end().to_owned())
}

/// The beginning of a refusal, for people.
async fn excerpt(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT_BYTES
        && let Some(Ok(frame)) = body.frame().await
    {
        let data = frame.into_data().unwrap_or_default();
        bytes.extend(data.iter().take(EXCERPT_BYTES - bytes.len()));
    }
    String::from_utf8_lossy(&bytes).escape_debug().to_string()
}

fn client(tls: ClientConfig) -> Http {
    let mut http = HttpConnector::new();
    // The layer above decides about the scheme.
    http.enforce_http(false);
    http.set_connect_timeout(Some(TIMEOUT));
    let connector = HttpsConnector::from((http, Arc::new(tls)));
    // A few messages a day: a connection that is kept would be closed when it is needed.
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}
