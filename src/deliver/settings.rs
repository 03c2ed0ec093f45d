//! The upstream's settings, and what is refused about them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::event::{Event, Secret, Wall};

/// Where and how to deliver (`upstream` in the configuration).
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Scheme, host, port, and a path that goes before each event's own.
    pub url: Uri,
    /// From the start of an attempt to the end of the answer's body, name lookup and connect included.
    pub timeout: Duration,
    /// How long a connection without a request is kept: less than the other side keeps it, or requests race with its close.
    pub idle: Duration,
    /// Header lines added to every attempt; they win over the event's lines of the same name, repeated ones keep their order.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Adds `Fairlane-Timestamp` and `Fairlane-Signature`: `whsec_` and base64, or the base64 alone.
    pub signing_secret: Option<Secret>,
    /// Signs some events again as their providers would.
    pub resign: Option<Resign>,
    /// Statuses after which an event is dead at once, e.g. 410.
    pub never: Vec<u16>,
}

/// Replaces the signature of an event, in the headers of an attempt that is sent at this moment, by a fresh one where its source
/// asks for that; else nothing. An error is words, and leaves the headers of no use.
#[derive(Clone)]
pub struct Resign(pub Arc<ResignFn>);

type ResignFn = dyn Fn(&Event, Wall, &mut HeaderMap) -> Result<(), String> + Send + Sync;

impl PartialEq for Resign {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Resign {}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values of headers may be credentials.
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Settings")
            .field("url", &self.url)
            .field("timeout", &self.timeout)
            .field("idle", &self.idle)
            .field("headers", &names)
            .field("signing_secret", &self.signing_secret)
            .field("never", &self.never)
            .finish()
    }
}

/// Why no client can be made of the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address is not one of a web server.
    #[error("the upstream's url is http:// or https:// and a host, e.g. http://127.0.0.1:3000; this one is {0:?}")]
    Url(String),
    /// The address holds a user and a password, which HTTP has no place for.
    #[error("the upstream's url holds credentials: put them into upstream.headers as Authorization instead")]
    Credentials,
    /// The address has a query; events bring their own.
    #[error("the upstream's url has a query (?…): events bring their own, so give the url without it")]
    Query,
    /// A header that only the gateway may write.
    #[error("upstream.headers may not hold {0}: the gateway writes it itself")]
    Header(HeaderName),
    /// The secret is not one that a Standard Webhooks library takes.
    #[error("upstream.signing_secret is whsec_ followed by base64, or the base64 alone; this one is neither")]
    SigningSecret,
    /// A rule that would throw away what was delivered, or that can never apply.
    #[error(
        "upstream.retry.never lists statuses of failures, 300 to 599; {0} is none (a 2xx is success, never retried)"
    )]
    Never(u16),
    /// An attempt needs some time.
    #[error("upstream.timeout is longer than 0")]
    Timeout,
    /// TLS needs certificates to trust, and the system has none.
    #[error(
        "the upstream is https and this system has no root certificates to trust: install its package ca-certificates, or \
         set SSL_CERT_FILE to a PEM file ({0})"
    )]
    NoRoots(String),
}
