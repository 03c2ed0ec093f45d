//! Key material of providers, fetched on demand: the one thing besides events that is asked for outside.
//!
//! A stranger's request names the address, so whoever calls this has checked it against the provider's own, whole. Here stands
//! what keeps such a fetch harmless all the same: `https` on port 443, a host's name that leads to public addresses alone, no
//! redirects, 64 KiB, 3 s, a few new addresses a minute. What was fetched is kept, failures for a shorter time; those that ask for
//! one address at the same time share one request.

mod kept;
mod public;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tower::Service;

use super::tls;
use crate::clock::Clock;
use crate::metrics::Metrics;
use kept::{Asked, Kept};

/// Longest answer; a certificate has some kilobytes, with its chain ten.
const BYTES_MAX: usize = 64 * 1024;
/// For all of it, name lookup included: the senders that wait for it have 5 s and more.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Why there is no key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfetched {
    /// Whoever is asked says that there is none.
    #[error("{host} answered {status}: there is nothing at this address")]
    NotThere {
        /// Who was asked.
        host: String,
        /// With what it answered.
        status: u16,
    },
    /// It could not be found out; another time it may be.
    #[error("{0}")]
    Failed(String),
}

/// What comes of a fetch.
pub type Fetching = BoxFuture<'static, Result<Bytes, Unfetched>>;

/// Looks names up: from a host's name to its addresses. The port 0 stands for that of https.
pub type Resolve = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Fetches key material. Clones share what was fetched.
#[derive(Clone)]
pub struct Fetcher(Arc<Inner>);

struct Inner {
    resolve: Resolve,
    tls: Box<dyn Fn() -> Result<ClientConfig, String> + Send + Sync>,
    http: OnceLock<Result<Http, String>>,
    kept: Mutex<Kept>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

type Http = Client<HttpsConnector<HttpConnector<Resolver>>, Empty<Bytes>>;

impl Fetcher {
    /// A fetcher that trusts the operating system's root certificates, read at the first fetch, and reaches public addresses alone.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self::with(Arc::new(|host| Box::pin(public::addresses(host))), Box::new(tls::of_the_system), clock, metrics)
    }

    /// A fetcher that goes wherever `resolve` leads, and trusts `roots`.
    #[must_use]
    pub fn reaching(
        resolve: Resolve,
        roots: rustls::RootCertStore,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self::with(resolve, Box::new(move || Ok(tls::with(roots.clone()))), clock, metrics)
    }

    fn with(
        resolve: Resolve,
        tls: Box<dyn Fn() -> Result<ClientConfig, String> + Send + Sync>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self(Arc::new(Inner { resolve, tls, http: OnceLock::new(), kept: Mutex::default(), clock, metrics }))
    }

    /// What is at `url`, as it was fetched a while ago or as it is now.
    ///
    /// # Errors
    /// In the future: that there is nothing, or that it could not be fetched.
    #[must_use]
    pub fn fetch(&self, url: &str) -> Fetching {
        let now = self.0.clock.now().mono;
        let mut kept = self.0.kept.lock();
        match kept.ask(url, now) {
            Asked::Known(result) => Box::pin(std::future::ready(result)),
            Asked::OnItsWay(fetching) => Box::pin(fetching),
            Asked::TooMany => {
                self.0.metrics.fetched("limited");
                let words = "more new addresses of keys were named within a minute than providers have keys";
                Box::pin(std::future::ready(Err(Unfetched::Failed(words.to_owned()))))
            }
            Asked::New => {
                let (inner, address) = (Arc::clone(&self.0), url.to_owned());
                let fetching: Fetching = Box::pin(async move { inner.run(address).await });
                let fetching = fetching.shared();
                kept.on_its_way(url, fetching.clone());
                Box::pin(fetching)
            }
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl Inner {
    async fn run(self: Arc<Self>, url: String) -> Result<Bytes, Unfetched> {
        let result = match tokio::time::timeout(TIMEOUT, self.exchange(&url)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Unfetched::Failed(format!("{url} gave no whole answer within {TIMEOUT:?}"))),
        };
        match &result {
            Ok(bytes) => tracing::info!(url, bytes = bytes.len(), "a provider's key was fetched"),
            Err(error) => tracing::warn!(url, %error, "a provider's key could not be fetched"),
        }
        self.metrics.fetched(match &result {
            Ok(_) => "fetched",
            Err(Unfetched::NotThere { .. }) => "not_there",
            Err(Unfetched::Failed(_)) => "failed",
        });
        self.kept.lock().known(&url, result.clone(), self.clock.now().mono);
        result
    }

    async fn exchange(&self, url: &str) -> Result<Bytes, Unfetched> {
        let failed = |words: String| Unfetched::Failed(words);
        let (uri, host) = address(url).ok_or_else(|| failed(format!("{url} is no address of https on port 443")))?;
        let http = self.http.get_or_init(|| self.client()).as_ref().map_err(|error| failed(error.clone()))?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let response = http.request(request).await.map_err(|error| failed(format!("{host}: {}", chain(&error))))?;
        match response.status() {
            StatusCode::OK => {}
            // A store of files says 403 of one that is not there.
            status @ (StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN) => {
                return Err(Unfetched::NotThere { host, status: status.as_u16() });
            }
            status => return Err(failed(format!("{host} answered {}", status.as_u16()))),
        }
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failed(format!("{host}: {}", chain(&error))))?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > BYTES_MAX {
                return Err(failed(format!("{host} answered more than {BYTES_MAX} bytes")));
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes.freeze())
    }

    fn client(&self) -> Result<Http, String> {
        let mut http = HttpConnector::new_with_resolver(Resolver(Arc::clone(&self.resolve)));
        // The layer above decides about the scheme, and `address` let only https pass.
        http.enforce_http(false);
        http.set_connect_timeout(Some(TIMEOUT));
        let connector = HttpsConnector::from((http, Arc::new((self.tls)()?)));
        // A few requests a day: a connection that is kept would be closed when it is needed.
        Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
    }
}

/// The address and its host, if it is one of https with a host's name, on port 443.
fn address(url: &str) -> Option<(Uri, String)> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?;
    let host = authority.host();
    let plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    let named = host.rsplit('.').next().is_some_and(|last| last.bytes().any(|b| b.is_ascii_alphabetic()));
    let fits = uri.scheme_str() == Some("https") && authority.as_str() == host && plain && named && host.contains('.');
    fits.then(|| (uri.clone(), host.to_owned()))
}

/// An error with what is behind it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        words.push_str(": ");
        words.push_str(&behind.to_string());
        source = behind.source();
    }
    words
}

/// [`Resolve`] as the connector takes it.
#[derive(Clone)]
struct Resolver(Resolve);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let addresses = (self.0)(name.as_str().to_owned());
        Box::pin(async move { Ok(addresses.await?.into_iter()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_on_its_port_with_a_name_is_asked() {
        assert!(address("https://sns.eu-west-1.amazonaws.com/a.pem?x=1").is_some());
        for url in [
            "http://a.example/",
            "https://a.example:443/",
            "https://a.example:8443/",
            "https://user@a.example/",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://0x7f.1/",
            "https://localhost/",
            "/a",
            "",
        ] {
            assert!(address(url).is_none(), "{url}");
        }
    }
}
