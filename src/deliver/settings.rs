//! The upstream's settings, and what is refused about them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::tls::{Tls, Unusable};
use crate::event::{Event, Secret, Wall};

/// Where and how to deliver (`upstream` in the configuration).
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it is reached: one address or several, all of the same receiver.
    pub addresses: Vec<Address>,
    /// Whether a group's events go to one address as long as that is healthy.
    pub sticky: bool,
    /// How several addresses are asked whether they are well; `None`: they are not.
    pub health: Option<Health>,
    /// When one of several addresses is left out for failing.
    pub ejection: Ejection,
    /// Whom TLS trusts, and what it shows.
    pub tls: Tls,
    /// From the start of an attempt to the end of the answer's body, name lookup and connect included.
    pub timeout: Duration,
    /// How long a connection without a request is kept: less than the other side keeps it, or requests race with its close.
    pub idle: Duration,
    /// How long a connection is used for further requests, however busy it is: the name is looked up anew for each connection, so this is
    /// how long the addresses that a name had before are still used.
    pub renew: Duration,
    /// Header lines added to every attempt; they win over the event's lines of the same name, repeated ones keep their order.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Adds `Fairlane-Timestamp` and `Fairlane-Signature`: `whsec_` and base64, or the base64 alone.
    pub signing_secret: Option<Secret>,
    /// Signs some events again as their providers would.
    pub resign: Option<Resign>,
    /// Statuses after which an event is dead at once, e.g. 410.
    pub never: Vec<u16>,
}

/// The time to live that names in a cluster usually have, and twice what it takes a load balancer to take an address out. A handshake a
/// minute costs nothing that could be measured.
pub const RENEW: Duration = Duration::from_mins(1);

impl Settings {
    /// Settings for one address, with the defaults of the configuration.
    #[must_use]
    pub fn to(url: Uri) -> Self {
        Self {
            addresses: vec![Address { url, weight: 1 }],
            sticky: false,
            health: None,
            ejection: Ejection::default(),
            tls: Tls::default(),
            timeout: Duration::from_secs(30),
            idle: Duration::from_secs(4),
            renew: RENEW,
            headers: Vec::new(),
            signing_secret: None,
            resign: None,
            never: vec![410],
        }
    }
}

/// One address of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Scheme, host, port, and a path that goes before each event's own.
    pub url: Uri,
    /// Its share among the addresses.
    pub weight: u32,
}

/// How addresses are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What is asked for, from the root of the host; 2xx and 3xx are well.
    pub path: PathAndQuery,
    /// How long after one round of questions the next one begins.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many bad answers in a row, and the address is left out.
    pub failures: u32,
    /// So many good ones in a row, and it is used again.
    pub successes: u32,
}

/// When an address is left out for failing, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// At so many failures in a row.
    pub failures: u32,
    /// How long at first; doubles from there
    pub open: Duration,
    /// up to this.
    pub open_max: Duration,
    /// How long its share grows afterwards.
    pub slow_start: Duration,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            failures: 5,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            slow_start: Duration::from_secs(30),
        }
    }
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
            .field("addresses", &self.addresses)
            .field("sticky", &self.sticky)
            .field("health", &self.health)
            .field("ejection", &self.ejection)
            .field("tls", &self.tls)
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
    /// There is nowhere to go.
    #[error("upstream.urls holds at least one address")]
    NoAddress,
    /// An address that stands there twice would get twice its share and be judged twice.
    #[error("upstream.urls holds {0} twice: give it once, with the weight of both")]
    Twice(String),
    /// TLS cannot be set up from the files.
    #[error("upstream.tls: {0}")]
    Tls(String),
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

impl From<Unusable> for SettingsError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::NoRoots(error) => Self::NoRoots(error),
            Unusable::Given(error) => Self::Tls(error),
        }
    }
}
