//! The admin API.

use std::net::SocketAddr;

/// The admin listener's settings (`admin` in the configuration).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Names that a `Host` header may carry besides IP literals and `localhost`.
    pub hosts: Vec<String>,
    /// The token; `None`: made at first start and kept in the data directory.
    pub token: Option<crate::event::Secret>,
    /// `/metrics` without the token, then without any `group` label.
    pub open_metrics: bool,
}
