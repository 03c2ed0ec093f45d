//! The admin listener: what an operator sees and asks, as JSON over HTTP, apart from the senders' listener.
//!
//! Everything but `/healthz`, `/readyz` and (where it is open) `/metrics` needs the token, on loopback too; [`guard`] says why
//! that alone is not enough.

mod alerts;
mod api;
mod audit;
mod connections;
mod dashboard;
mod dedicated;
mod expiry;
mod export;
mod groups;
mod guard;
mod guesses;
mod inside;
mod name;
mod nodes;
mod openapi;
mod problem;
mod release;
mod removal;
mod replays;
mod routes;
mod sources;
pub mod tenant;
mod unseen;
mod upstream;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::driver::{Handle, Notebook, Relay, Seat};
use crate::event::Secret;
use audit::Audit;
use connections::{GivesWay, Places};
use dashboard::Dashboard;
use guesses::Guesses;
use tenant::Tenants;

/// How long a head may take, and a pause between two requests. Between the usual intervals of probes, 5 s and 10 s, so that none meets the end.
const IDLE: Duration = Duration::from_secs(8);

/// After a failed accept (no file to be had): trying at once would only turn in circles.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Longest body of a change, bytes; a change has a handful of fields.
const BODY_MAX: usize = 64 << 10;

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
    dashboard: Dashboard,
    guesses: Guesses,
    audit: Audit,
    configuration: RwLock<Arc<Configuration>>,
    /// None where tenants have no pages.
    tenants: Option<Arc<Tenants>>,
    /// Empty on a node that is alone.
    others: nodes::Others,
    durability: &'static str,
    /// Brings gauges that others own up to date before they are read.
    refresh: Box<dyn Fn() + Send + Sync>,
}

/// The configuration in force, for people and for programs, secrets masked.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// As it could stand in a file.
    pub yaml: String,
    /// The same as JSON.
    pub json: serde_json::Value,
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
    /// An admin side over `handle`. `notebook` is for the list of changes; `refresh` is called before metrics are read.
    #[must_use]
    pub fn new(
        access: Access,
        durability: &'static str,
        (handle, notebook): (Handle, Notebook),
        tenants: Option<Arc<Tenants>>,
        refresh: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            handle,
            access: RwLock::new(Arc::new(access)),
            dashboard: Dashboard::default(),
            guesses: Guesses::default(),
            audit: Audit::open(notebook),
            configuration: RwLock::default(),
            tenants,
            others: nodes::Others::new(),
            durability,
            refresh,
        })
    }

    /// This node is one among others: what concerns them is asked of them, over `relay`.
    pub fn join(self: &Arc<Self>, seat: Arc<Seat>, relay: Relay) {
        self.handle.reach(Arc::clone(&seat), nodes::remover(Arc::downgrade(self)));
        self.audit.share(&seat);
        self.others.get_or_init(|| (seat, relay));
    }

    /// Shows this configuration from now on.
    pub fn show_configuration(&self, configuration: Configuration) {
        *self.configuration.write() = Arc::new(configuration);
    }

    fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&self.configuration.read())
    }

    /// Lets others in from the next request on. With another token, all have to sign in again.
    pub fn replace(&self, access: Access) {
        let before = std::mem::replace(&mut *self.access.write(), Arc::new(access.clone()));
        if before.token != access.token {
            self.dashboard.sign_all_out();
        }
    }

    /// A wrong token came from there: waits for as long as its answer is held back.
    async fn hold_back(&self, from: Option<IpAddr>) {
        tokio::time::sleep(self.guesses.wrong(from, self.handle.now().mono)).await;
    }

    /// Alerts that fire; where there are several nodes, those of all of them a few seconds ago.
    fn firing(&self) -> usize {
        match self.others.get() {
            Some(_) => self.dashboard.firing(),
            None => self.handle.alerts().firing().len(),
        }
    }

    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read())
    }
}

/// The other end of the connection that a request came on.
#[derive(Clone, Copy)]
struct Peer(IpAddr);

/// Serves until the future is dropped; its connections end with it.
pub async fn serve(admin: Arc<Admin>, listener: TcpListener) {
    let accept = accept(router(Arc::clone(&admin)), listener, &admin.handle);
    tokio::join!(dashboard::keep_samples(Arc::clone(&admin)), accept);
}

/// `handle` knows the time.
async fn accept(router: Router, listener: TcpListener, handle: &Handle) {
    let mut open = JoinSet::new();
    let mut places = Places::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // Without a place it is closed at once: senders need the process's files more than whoever opened so many.
                    if let Some((place, gives_way)) = places.enter(handle.now().mono) {
                        let router = router.clone().layer(Extension(Peer(peer.ip())));
                        let router = router.layer(from_fn_with_state(place, connections::noted));
                        open.spawn(converse(stream, router, gives_way));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection to the admin address could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            Some(ended) = open.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "an admin call had failed");
                }
            }
        }
    }
}

async fn converse(stream: TcpStream, router: Router, gives_way: GivesWay) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!(%error, "an admin connection ended with an error");
        },
        _ = gives_way => tracing::debug!("an admin connection gave way to a new one"),
    }
}

fn router(admin: Arc<Admin>) -> Router {
    routes::router()
        .route(nodes::REPORT, post(nodes::report))
        .route(nodes::REMOVE, post(nodes::remove).layer(DefaultBodyLimit::max(nodes::REMOVE_BYTES_MAX)))
        .route("/api", any(api::unknown))
        .route("/api/{*path}", any(api::unknown))
        .method_not_allowed_fallback(api::method_not_allowed)
        .merge(dashboard::router(&admin))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(from_fn_with_state(Arc::clone(&admin), nodes::answer))
        .layer(from_fn_with_state(Arc::clone(&admin), guard::check))
        .with_state(admin)
}
