//! One address of the upstream, taken apart: where requests go and what stands before each event's own path.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

use super::fault::Target;
use super::request::Unsendable;
use super::settings::SettingsError;

/// Where the requests to one address go.
#[derive(Clone, Debug)]
pub(super) struct Place {
    scheme: Scheme,
    authority: Authority,
    /// The path of the url, without a slash at its end.
    prefix: Box<str>,
    host: HeaderValue,
    target: Target,
}

impl Place {
    /// Checks the url.
    pub(super) fn new(url: &Uri) -> Result<Self, SettingsError> {
        let no_url = || SettingsError::Url(url.to_string());
        let scheme = url.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let scheme = scheme.ok_or_else(no_url)?.clone();
        let authority = url.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(no_url)?.clone();
        if authority.as_str().contains('@') {
            return Err(SettingsError::Credentials);
        }
        if url.query().is_some() {
            return Err(SettingsError::Query);
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| no_url())?;
        let target = Target::new(&scheme, &authority);
        Ok(Self { host, prefix: url.path().trim_end_matches('/').into(), scheme, authority, target })
    }

    /// What the `Host` line says.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Whether TLS is spoken there.
    pub(super) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Where the requests go, for messages.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// The address as lists, logs and metrics name it: without a slash at its end, and always the same for the same one.
    pub(super) fn label(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.prefix)
    }

    /// The address with its prefix and `target`, which goes out as it is or not at all.
    pub(super) fn uri(&self, target: &str) -> Result<Uri, Unsendable> {
        let unsendable = || Unsendable::Target(target.chars().take(200).collect());
        let whole = [&*self.prefix, target].concat();
        let path = PathAndQuery::try_from(whole.as_str()).map_err(|_| unsendable())?;
        // What the parser would change (it cuts off a fragment) is not what the sender sent.
        if !target.starts_with('/') || path.as_str() != whole {
            return Err(unsendable());
        }
        self.with_path(path).map_err(|_| unsendable())
    }

    /// The host with a path of its own, the prefix left out.
    pub(super) fn with_path(&self, path: PathAndQuery) -> Result<Uri, http::Error> {
        Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(path).build()
    }
}
