//! Who is signed in: a random id in a cookie, never the token itself.
//!
//! A session is made by whoever knows the token, ends after [`LASTS`], at sign-out, or when the token changes, and is gone with the
//! process. Reading needs one, and so does every change, which needs the session's own word (against forged forms) besides.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, COOKIE, HeaderMap};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use rand::Rng as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Visit;
use crate::admin::problem::Problem;
use crate::admin::{Admin, Peer, connections, guard};
use crate::event::Mono;

/// A night's watch.
const LASTS: Duration = Duration::from_hours(12);

/// Sessions at a time; one more ends the oldest. Far more than people who watch one gateway.
const SESSIONS_MAX: usize = 64;

/// The cookie's name.
const COOKIE_NAME: &str = "fairlane-session";

/// Pages that need no session: they show nothing of the gateway.
const OPEN: [&str; 1] = ["/sign-in"];

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<VecDeque<Session>>,
}

struct Session {
    /// The digest of the cookie's value, so that looking it up tells nothing by its time.
    id: [u8; 32],
    word: Arc<str>,
    until: Mono,
    /// What the next page says once.
    notice: Option<String>,
}

/// A visitor's session, as a request carries it.
#[derive(Clone)]
pub(super) struct Seat {
    /// Tells sessions apart; nobody is let in by it.
    pub(super) id: [u8; 32],
    /// What every form of this session carries.
    pub(super) word: Arc<str>,
}

impl Seat {
    /// Whether a form carries this session's word.
    pub(super) fn signed(&self, word: &str) -> bool {
        bool::from(word.as_bytes().ct_eq(self.word.as_bytes()))
    }
}

impl Sessions {
    /// Opens a session; the answer is the cookie's value.
    fn open(&self, now: Mono) -> String {
        let cookie = random();
        let session = Session { id: digest(&cookie), word: random().into(), until: now.plus(LASTS), notice: None };
        let mut table = self.table.lock();
        table.retain(|session| session.until > now);
        if table.len() >= SESSIONS_MAX {
            table.pop_front();
        }
        table.push_back(session);
        cookie
    }

    fn find(&self, cookie: &str, now: Mono) -> Option<Seat> {
        let id = digest(cookie);
        let table = self.table.lock();
        let session = table.iter().find(|session| session.id == id && session.until > now)?;
        Some(Seat { id, word: Arc::clone(&session.word) })
    }

    /// Whether a session is still one.
    pub(super) fn holds(&self, seat: &Seat, now: Mono) -> bool {
        self.table.lock().iter().any(|session| session.id == seat.id && session.until > now)
    }

    /// Ends a session.
    pub(super) fn close(&self, seat: &Seat) {
        self.table.lock().retain(|session| session.id != seat.id);
    }

    /// Ends all of them.
    pub(super) fn clear(&self) {
        self.table.lock().clear();
    }

    /// Has the session's next page say this.
    pub(super) fn leave_notice(&self, seat: &Seat, notice: String) {
        if let Some(session) = self.table.lock().iter_mut().find(|session| session.id == seat.id) {
            session.notice = Some(notice);
        }
    }

    /// What this page is to say, once.
    pub(super) fn take_notice(&self, seat: &Seat) -> Option<String> {
        self.table.lock().iter_mut().find(|session| session.id == seat.id)?.notice.take()
    }
}

fn random() -> String {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn digest(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie.as_bytes()).into()
}

/// Lets a request on with its [`Visit`], or shows it the way in.
pub(super) async fn enter(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Response {
    let here = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let headers = request.headers();
    let seat = cookie(headers).and_then(|cookie| admin.dashboard.sessions.find(cookie, admin.handle.now().mono));
    let open = OPEN.contains(&request.uri().path());
    if seat.is_some() || guard::token(headers, admin.access().token.expose()).is_ok() {
        connections::known(request.extensions());
    } else if !open {
        return way_in(headers, request.method().is_safe(), &here);
    }
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let live = accepts(headers, "text/event-stream");
    request.extensions_mut().insert(Visit { admin, seat, here, live, peer });
    next.run(request).await
}

/// A person is led to the sign-in page and back; a program is told what it needs.
fn way_in(headers: &HeaderMap, reads: bool, here: &str) -> Response {
    if headers.contains_key(AUTHORIZATION) || !accepts(headers, "text/html") {
        return Problem::Token.into_response();
    }
    let back = if reads { here } else { "/" };
    Redirect::to(&format!("/sign-in?to={}", super::encoded(back))).into_response()
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains(kind))
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}

/// Opens a session for whoever gives the token; the answer is the `Set-Cookie` line.
pub(super) fn sign_in(admin: &Admin, token: &str, from: Option<IpAddr>) -> Option<String> {
    let from = from.map_or_else(String::new, |peer| peer.to_string());
    if !bool::from(token.trim().as_bytes().ct_eq(admin.access().token.expose())) {
        tracing::warn!(audit = true, from, "somebody tried to sign in to the dashboard with a wrong token");
        return None;
    }
    tracing::info!(audit = true, from, "somebody signed in to the dashboard");
    let cookie = admin.dashboard.sessions.open(admin.handle.now().mono);
    // Not `Secure`: the admin listener speaks plain HTTP, on the loopback by default.
    Some(format!("{COOKIE_NAME}={cookie}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict", LASTS.as_secs()))
}

/// The `Set-Cookie` line that forgets a session.
pub(super) fn forget() -> String {
    format!("{COOKIE_NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict")
}

/// Where to go after signing in: a page of ours, never another site.
pub(super) fn back_to(to: &str) -> &str {
    // Browsers read `//host`, and `\` as `/`, as another site's address, and strip tabs and line ends before they look.
    let ours = to.starts_with('/') && !to.starts_with("//") && !to.contains(['\\', '\r', '\n', '\t']);
    if ours && to.chars().all(|c| c.is_ascii_graphic()) && !OPEN.iter().any(|open| to.starts_with(open)) {
        to
    } else {
        "/"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_leads_to_no_other_site() {
        for ours in ["/", "/groups?sort=age", "/group?name=caf%C3%A9", "/events?status=dead&to=//x"] {
            assert_eq!(back_to(ours), ours);
        }
        for other in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "\\\\evil",
            "/a\r\nSet-Cookie: x",
            "/\t/evil",
            "/sign-in?to=/",
            "evil",
        ] {
            assert_eq!(back_to(other), "/", "{other:?}");
        }
    }

    #[test]
    fn sessions_are_bounded_expire_and_end() {
        let sessions = Sessions::default();
        let now = Mono(1);
        let first = sessions.open(now);
        let seat = sessions.find(&first, now).unwrap();
        assert!(sessions.find(&format!("{first}x"), now).is_none());
        assert!(sessions.find(&first, now.plus(LASTS)).is_none());
        assert!(seat.signed(&seat.word.clone()) && !seat.signed("") && !seat.signed(&first));

        sessions.leave_notice(&seat, "paused".to_owned());
        assert_eq!(sessions.take_notice(&seat).as_deref(), Some("paused"));
        assert_eq!(sessions.take_notice(&seat), None);

        let others: Vec<String> = (0..SESSIONS_MAX).map(|_| sessions.open(now)).collect();
        assert!(sessions.find(&first, now).is_none(), "the oldest made room");
        let last = sessions.find(others.last().unwrap(), now).unwrap();
        sessions.close(&last);
        assert!(sessions.find(others.last().unwrap(), now).is_none());
        sessions.clear();
        assert!(sessions.find(&others[0], now).is_none());
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=b; fairlane-session=x".parse().unwrap());
        assert_eq!(cookie(&headers), Some("x"));
        headers.clear();
        headers.append(COOKIE, "other-fairlane-session=x".parse().unwrap());
        assert_eq!(cookie(&headers), None);
    }
}
