//! Pages for tenants: one group's backlog, age, rates and counts behind a signed link, read-only, on a listener of its own.
//!
//! A page shows numbers of one group and never an event, a body, a header, another group or a word about the upstream. Everything that is
//! not a good link gets the same answer, so that nothing is learned by asking; and there is a limit to asking with good ones, which strangers
//! cannot use up.

mod link;
mod page;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse as _, Response};
use parking_lot::{Mutex, RwLock};
use tokio::net::TcpListener;

use super::nodes::{Wanted, whole};
use super::{Admin, connections};
use crate::driver::Handle;
use crate::event::{Group, Mono, Now, Secret, Wall};

/// Pages a second at most, all tenants together, and at once after a pause. A page refreshes itself twice a minute.
const RATE: u32 = 50;

/// The listener's settings (`tenant_pages` in the configuration).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// The first signs links; each of them opens.
    pub secrets: Vec<Secret>,
    /// What links begin with; none: the address.
    pub base_url: Option<String>,
}

/// The tenants' side.
pub struct Tenants {
    handle: Handle,
    settings: RwLock<Settings>,
    allowance: Mutex<Allowance>,
}

/// Pages that may be asked for now.
struct Allowance {
    left: f64,
    at: Mono,
}

impl Tenants {
    /// Pages of what `handle` knows.
    #[must_use]
    pub fn new(settings: Settings, handle: Handle) -> Arc<Self> {
        let allowance = Mutex::new(Allowance { left: f64::from(RATE), at: handle.now().mono });
        Arc::new(Self { handle, settings: RwLock::new(settings), allowance })
    }

    /// Other secrets and another beginning, from the next request on; the address stays.
    pub fn replace(&self, settings: Settings) {
        let mut own = self.settings.write();
        // Port 0 has become a real one.
        *own = Settings { address: own.address, ..settings };
    }

    /// The link to the page of `group`, good until `until`.
    pub(super) fn link(&self, group: &Group, until: Wall) -> Option<String> {
        let settings = self.settings.read();
        let token = link::token(settings.secrets.first()?, group, until);
        let base = settings.base_url.clone().unwrap_or_else(|| format!("http://{}", settings.address));
        Some(format!("{}/t/{token}", base.trim_end_matches('/')))
    }

    /// Whether one more page may be asked for.
    fn allows(&self, now: Mono) -> bool {
        let mut allowance = self.allowance.lock();
        let since = now.since(allowance.at).as_secs_f64();
        allowance.left = (allowance.left + since * f64::from(RATE)).min(f64::from(RATE));
        allowance.at = now;
        let allowed = allowance.left >= 1.0;
        if allowed {
            allowance.left -= 1.0;
        }
        allowed
    }
}

/// Serves until the future is dropped.
pub async fn serve(tenants: Arc<Tenants>, admin: Arc<Admin>, listener: TcpListener) {
    // One answer to whatever is asked: routes would say which paths and methods there are.
    let router = Router::new().fallback(show).layer(from_fn(guarded)).with_state((tenants, Arc::clone(&admin)));
    super::accept(router, listener, &admin.handle).await;
}

/// Puts the headers on every answer.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let fixed: [(HeaderName, &'static str); 5] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("x-robots-tag"), "noindex"),
    ];
    let headers = response.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.insert(header::CONTENT_SECURITY_POLICY, page::policy());
    response
}

/// The page behind a good link; one answer to everything else. The limit is looked at after the link: to tell a bad one costs a hash, and
/// whoever has none must not take the pages from those who do.
async fn show(
    State((tenants, admin)): State<(Arc<Tenants>, Arc<Admin>)>,
    method: Method,
    uri: Uri,
    extensions: Extensions,
) -> Response {
    let Now { wall: now, mono } = tenants.handle.now();
    let token = uri.path().strip_prefix("/t/").filter(|_| matches!(method, Method::GET | Method::HEAD));
    let opened = token.and_then(|token| link::opened(&tenants.settings.read().secrets, token, now));
    let Some((group, left)) = opened else {
        return (StatusCode::NOT_FOUND, Html(page::NOTHING)).into_response();
    };
    connections::known(&extensions);
    if !tenants.allows(mono) {
        return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "5")], Html(page::BUSY)).into_response();
    }
    // Of several nodes the group's owner knows how it stands.
    let owner = whole::of_group(&admin, &group, Wanted::default()).await;
    let page = owner.ok().and_then(|owner| owner.group).and_then(|view| page::of(&view, left, now));
    page.map_or_else(|| StatusCode::SERVICE_UNAVAILABLE.into_response(), |page| Html(page).into_response())
}

/// The shortest time that a link is made for, and the longest: a link cannot be called back one by one.
pub(super) const LASTS: std::ops::RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24 * 366);
