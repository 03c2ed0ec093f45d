//! The admin listener: what an operator sees and asks, as JSON over HTTP, apart from the senders' listener.
//!
//! Everything but `/healthz`, `/readyz` and (where it is open) `/metrics` needs the token, on loopback too; [`guard`] says why
//! that alone is not enough.

mod api;
mod groups;
mod guard;
mod problem;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use parking_lot::RwLock;
use tokio::net::TcpListener;

use crate::driver::Handle;
use crate::event::Secret;

/// The admin listener's settings (`admin` in the configuration).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Names that a `Host` header may carry besides IP literals and `localhost`.
    pub hosts: Vec<String>,
    /// The token; `None`: made at first start and kept in the data directory.
    pub token: Option<Secret>,
    /// `/metrics` without the token, then without any `group` label.
    pub open_metrics: bool,
}

/// What the pages and calls need.
pub struct Admin {
    handle: Handle,
    access: RwLock<Arc<Access>>,
    durability: &'static str,
    /// Brings gauges that others own up to date before they are read.
    refresh: Box<dyn Fn() + Send + Sync>,
}

/// Who may ask; exchanged as a whole.
#[derive(Clone, Debug)]
pub struct Access {
    /// Names that a `Host` header may carry besides IP literals and `localhost`.
    pub hosts: Vec<String>,
    /// The token that is asked for.
    pub token: Secret,
    /// `/metrics` without it.
    pub open_metrics: bool,
}

impl Admin {
    /// An admin side over `handle`. `refresh` is called before metrics are read.
    #[must_use]
    pub fn new(
        access: Access,
        durability: &'static str,
        handle: Handle,
        refresh: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self { handle, access: RwLock::new(Arc::new(access)), durability, refresh })
    }

    /// Lets others in from the next request on.
    pub fn replace(&self, access: Access) {
        *self.access.write() = Arc::new(access);
    }

    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read())
    }
}

/// Serves until the future is dropped.
///
/// # Errors
/// The listening socket's.
pub async fn serve(admin: Arc<Admin>, listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, router(admin)).await
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(api::healthz))
        .route("/readyz", get(api::readyz))
        .route("/metrics", get(api::metrics))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/sources", get(api::sources))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/events/{id}", get(api::event))
        .route("/api/v1/events/{id}/body", get(api::body))
        .route("/api/v1/rejections", get(api::rejections))
        .route("/api/v1/groups", get(groups::list))
        .route("/api/v1/group", get(groups::one).patch(groups::patch).delete(groups::restore))
        .route("/api/v1/group/cancel", post(groups::cancel))
        .route("/api/v1/overrides", get(groups::overrides))
        .route("/api/v1/upstream", get(groups::upstream).patch(groups::patch_upstream))
        .fallback(api::unknown)
        .method_not_allowed_fallback(api::method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&admin), guard::check))
        .with_state(admin)
}
