//! Who may ask at all.
//!
//! A token keeps strangers out; a browser in the operator's network does not need one to do harm. A page of another site can make
//! it send requests here (refused by `Origin` and `Sec-Fetch-Site`), and can point its own name at this address (DNS
//! rebinding; refused by `Host`).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use super::{Admin, Peer, connections, dashboard};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets a request through to its route, or answers it.
pub(super) async fn check(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match admit(&admin, &request) {
        Ok(()) => next.run(request).await,
        Err(Problem::Origin) if is_followed_link(&request) => {
            dashboard::stranger(request.uri().path_and_query().map_or("/", |path| path.as_str()))
        }
        Err(problem) => {
            // Without one nothing is guessed.
            if matches!(problem, Problem::Token) && request.headers().contains_key(AUTHORIZATION) {
                admin.hold_back(request.extensions().get::<Peer>().map(|peer| peer.0)).await;
            }
            problem.into_response()
        }
    }
}

fn admit(admin: &Admin, request: &Request) -> Result<(), Problem> {
    let path = request.uri().path();
    if matches!(path, "/healthz" | "/readyz") {
        return Ok(());
    }
    let headers = request.headers();
    let access = admin.access();
    host(headers, request.uri().authority().map(http::uri::Authority::as_str), &access.hosts)?;
    same_origin(headers)?;
    if dashboard::is_page(path) {
        // They have sessions and forms of their own, and say themselves what they need.
        return Ok(());
    }
    if !(path == "/metrics" && access.open_metrics) {
        token(headers, access.token.expose())?;
        connections::known(request.extensions());
    }
    let changes = !request.method().is_safe();
    if changes && !is_json(headers) {
        return Err(Problem::ContentType);
    }
    Ok(())
}

/// Whether a person followed a link to a page from elsewhere, such as a chat: refused, but in words.
fn is_followed_link(request: &Request) -> bool {
    let navigates = request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    request.method() == Method::GET && navigates && dashboard::is_page(request.uri().path())
}

fn host(headers: &HeaderMap, authority: Option<&str>, hosts: &[String]) -> Result<(), Problem> {
    let mut named = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default()).chain(authority);
    // Whoever reads another one than we do would be fooled, so each has to be ours.
    let Some(host) = named.next() else { return Err(Problem::Host(String::new())) };
    is_ours(host, hosts)?;
    named.try_for_each(|host| is_ours(host, hosts))
}

fn is_ours(host: &str, hosts: &[String]) -> Result<(), Problem> {
    let name = without_port(host);
    let ours = name.parse::<IpAddr>().is_ok()
        || name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).is_some_and(|n| n.parse::<Ipv6Addr>().is_ok())
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host));
    if ours { Ok(()) } else { Err(Problem::Host(host.to_owned())) }
}

/// `name:port` without the port. The colons of a bare IPv6 address are none before a port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (name.ends_with(']') || !name.contains(':')) =>
        {
            name
        }
        _ => host,
    }
}

fn same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        // `none`: a person typed the address or followed a bookmark.
        if site != "same-origin" && site != "none" {
            return Err(Problem::Origin);
        }
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let same = origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host));
        if !same {
            return Err(Problem::Origin);
        }
    }
    Ok(())
}

/// Whether a request carries the token.
pub(super) fn token(headers: &HeaderMap, expected: &[u8]) -> Result<(), Problem> {
    let given = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, given) = given.split_at_checked("bearer ".len()).ok_or(Problem::Token)?;
    if scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(given.trim_ascii().ct_eq(expected)) {
        Ok(())
    } else {
        Err(Problem::Token)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(n, v)| (HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_names() {
        let known = ["gateway.internal".to_owned()];
        for good in
            ["127.0.0.1", "127.0.0.1:8081", "[::1]:8081", "[::1]", "localhost", "LOCALHOST:1", "gateway.internal:8081"]
        {
            assert!(host(&headers(&[("host", good)]), None, &known).is_ok(), "{good}");
        }
        for bad in ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "", "localhost.evil.example"] {
            assert!(host(&headers(&[("host", bad)]), None, &known).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_name_that_a_request_carries_has_to_be_ours() {
        let mut two = headers(&[("host", "127.0.0.1")]);
        assert!(host(&two, Some("localhost:8081"), &[]).is_ok());
        assert!(host(&two, Some("evil.example"), &[]).is_err());
        two.append(HOST, "evil.example".parse().unwrap());
        assert!(host(&two, None, &[]).is_err());
        assert!(host(&HeaderMap::new(), None, &[]).is_err());
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let same = [("host", "127.0.0.1:8081"), ("origin", "http://127.0.0.1:8081"), ("sec-fetch-site", "same-origin")];
        assert!(same_origin(&headers(&same)).is_ok());
        assert!(same_origin(&headers(&[("host", "127.0.0.1:8081"), ("sec-fetch-site", "none")])).is_ok());
        for bad in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(same_origin(&headers(&[("host", "127.0.0.1:8081"), bad])).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_token_is_compared_whole() {
        for good in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "] {
            assert!(token(&headers(&[("authorization", good)]), b"s3cret").is_ok(), "{good}");
        }
        for bad in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"] {
            assert!(token(&headers(&[("authorization", bad)]), b"s3cret").is_err(), "{bad}");
        }
        assert!(token(&HeaderMap::new(), b"s3cret").is_err());
    }
}
