//! A request's head: what is refused before anything is looked up, and what is taken out of it before it is kept.

use std::net::{IpAddr, SocketAddr};

use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Version};

use crate::event::HOP_BY_HOP;

/// What is wrong with a head, in words for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Checks what the HTTP library lets pass: one `Host`, and a path that reads the same to everybody.
///
/// # Errors
/// What is wrong.
pub(super) fn check(parts: &Parts) -> Result<(), Malformed> {
    // RFC 9112 §3.2: a request with no Host, or more than one, is answered with 400.
    let hosts = parts.headers.get_all(HOST).iter().count();
    let authority = parts.uri.authority().is_some();
    match (hosts, parts.version) {
        (0, Version::HTTP_11) if !authority => return Err(Malformed("a request names one Host; this one names none")),
        (0 | 1, _) => {}
        _ => return Err(Malformed("a request names one Host; this one names several")),
    }
    // An empty one says that there is no authority (RFC 9112 §3.2). What stands here becomes part of a signed address and of
    // `X-Forwarded-Host`, so it has to be a name that everybody reads alike.
    let host = parts.headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_host = Authority::try_from(host).is_ok_and(|host| !host.as_str().contains('@'));
    if !host.is_empty() && !is_host {
        return Err(Malformed("the Host is not a host and a port"));
    }
    // RFC 9113 §8.3.1: on HTTP/2 both may be there, and then they say the same.
    let other = parts.uri.authority().is_some_and(|named| !named.as_str().as_bytes().eq_ignore_ascii_case(host));
    if parts.version == Version::HTTP_2 && hosts > 0 && other {
        return Err(Malformed("the Host and the :authority differ"));
    }
    // The library takes off what it knows, `chunked`, and leaves other codings in the body: the event would not be what was sent.
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let is_other = |coding: &HeaderValue| !coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(is_other) || codings.next().is_some() {
        return Err(Malformed("the one transfer coding that is taken is chunked"));
    }
    check_path(parts.uri.path())
}

/// Whether the head is longer than `limit` bytes. The HTTP library's own limit is one on its buffer and lets some more pass.
pub(super) fn is_too_large(parts: &Parts, limit: usize) -> bool {
    bytes(parts) > limit
}

/// Bytes of the head as HTTP/1.1 writes it, but for the empty line at its end.
pub(super) fn bytes(parts: &Parts) -> usize {
    const REQUEST_LINE: usize = "  HTTP/1.1\r\n".len();
    const LINE: usize = ": \r\n".len();
    let target = parts.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let lines = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE);
    parts.method.as_str().len() + target + REQUEST_LINE + lines.sum::<usize>()
}

/// Refuses paths that a router, a proxy and an application can read differently.
fn check_path(path: &str) -> Result<(), Malformed> {
    if !path.starts_with('/') {
        return Err(Malformed("the request target is not a path"));
    }
    if path.contains("//") {
        return Err(Malformed("the path has an empty segment (//)"));
    }
    if path.contains(['\\', '\0']) {
        return Err(Malformed("the path has a backslash or NUL"));
    }
    if path.split('/').any(|segment| segment == "." || segment == "..") {
        return Err(Malformed("the path has a . or .. segment"));
    }
    let mut rest = path.as_bytes();
    while let Some(at) = memchr::memchr(b'%', rest) {
        let code = rest.get(at + 1..at + 3).ok_or(Malformed("the path ends in an unfinished % code"))?;
        if !code.iter().all(u8::is_ascii_hexdigit) {
            return Err(Malformed("a % in the path is not followed by two hexadecimal digits"));
        }
        if [b"2f", b"5c", b"2e", b"00"].iter().any(|bad| code.eq_ignore_ascii_case(*bad)) {
            return Err(Malformed("the path hides a /, \\, . or NUL behind a % code"));
        }
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    Ok(())
}

/// The address a sender used, as far as we can see: scheme and host from the connection, or from the trusted proxy in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// `https` rather than `http`.
    pub(super) https: bool,
    /// `scheme://host`, where a host was named.
    pub(super) url: Option<String>,
}

/// Reads the address that the sender used.
pub(super) fn seen(parts: &Parts, tls: bool, trusted: bool) -> Seen {
    let forwarded = |name: &str| {
        let value = parts.headers.get(name).filter(|_| trusted)?.to_str().ok()?;
        // With several proxies in a row the first value is the one that met the sender.
        Some(value.split(',').next().unwrap_or_default().trim())
    };
    let https = forwarded("x-forwarded-proto").map_or(tls, |proto| proto.eq_ignore_ascii_case("https"));
    let host = forwarded("x-forwarded-host")
        .or_else(|| parts.headers.get(HOST).and_then(|host| host.to_str().ok()))
        .or_else(|| parts.uri.authority().map(Authority::as_str));
    let scheme = if https { "https" } else { "http" };
    Seen { https, url: host.map(|host| [scheme, "://", host].concat()) }
}

/// Takes out what is not the event's: hop-by-hop headers and those named in `Connection`, anything that could pass for ours, and
/// `X-Forwarded-*` of untrusted peers. On HTTP/2 the authority becomes the `Host` that applications look for.
pub(super) fn clean(parts: &mut Parts, trusted: bool) {
    let named: Vec<HeaderName> = parts
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // A sender must not have us drop what identifies the event.
        .filter(|name: &HeaderName| *name != HOST)
        .collect();
    let foreign: Vec<HeaderName> =
        parts.headers.keys().filter(|name| !keeps(name.as_str(), trusted)).cloned().collect();
    for name in named.iter().chain(&foreign) {
        parts.headers.remove(name);
    }
    if !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(value) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, value);
    }
}

fn keeps(name: &str, trusted: bool) -> bool {
    // Applications see `_` and `-` as the same, so `fairlane_group` would pass for our own.
    let starts = |prefix: &str| {
        name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(|(a, b)| a == b || (a == b'_' && b == b'-'))
    };
    !(HOP_BY_HOP.contains(&name) || starts("fairlane-") || (starts("x-forwarded-") && !trusted))
}

/// Bytes of a text from a stranger that a rejection record keeps.
const TEXT_BYTES_MAX: usize = 256;

/// Bytes of all header lines that a rejection record keeps. Anybody can leave records, and there are many of them: what one may
/// cost is what a person can still read.
const LINES_BYTES_MAX: usize = 4096;

/// Header lines for a rejection record: values that may hold a secret or a signature are masked, those of `carriers` (headers in
/// which some source expects its secret or its signature) always. What is long is cut, and what is too much is only counted.
pub(super) fn masked(headers: &HeaderMap, carriers: &[HeaderName]) -> Vec<(String, String)> {
    const TELLING: [&str; 14] = [
        "auth",
        "token",
        "secret",
        "signature",
        "hmac",
        "key",
        "cookie",
        "pass",
        "sig",
        "cred",
        "session",
        "jwt",
        "bearer",
        "verif-hash",
    ];
    let mut lines = Vec::new();
    let mut left = LINES_BYTES_MAX;
    for (number, (name, value)) in headers.iter().enumerate() {
        let masked = carriers.contains(name) || TELLING.iter().any(|word| name.as_str().contains(word));
        let value = if masked { format!("*** ({} bytes)", value.len()) } else { shown(value.as_bytes()) };
        let name = shown(name.as_str().as_bytes());
        let Some(after) = left.checked_sub(name.len() + value.len() + size_of::<(String, String)>()) else {
            lines.push(("…".to_owned(), format!("{} more lines", headers.len() - number)));
            break;
        };
        left = after;
        lines.push((name, value));
    }
    lines
}

/// A stranger's text as it is shown to people: escaped, and cut where it is long.
pub(super) fn shown(text: &[u8]) -> String {
    // An escape is never shorter than what it stands for, so nothing that is kept is cut off here.
    let start = String::from_utf8_lossy(text.get(..TEXT_BYTES_MAX).unwrap_or(text));
    let mut shown = String::new();
    for character in start.chars() {
        let before = shown.len();
        shown.extend(character.escape_debug());
        if shown.len() > TEXT_BYTES_MAX {
            shown.truncate(before);
            return format!("{shown}… ({} bytes)", text.len());
        }
    }
    if text.len() > TEXT_BYTES_MAX { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}

/// Whether `address` is in one of the `networks`: a proxy whose forwarded headers count, a sender that may send.
pub(super) fn is_in(address: IpAddr, networks: &[ipnet::IpNet]) -> bool {
    networks.iter().any(|network| network.contains(&address.to_canonical()))
}

/// The address that a request comes from: the peer, or whom the trusted proxies in front say that they had it from. What stands
/// left of the first address that is no trusted proxy, anybody may have written.
pub(super) fn sender(headers: &HeaderMap, peer: IpAddr, proxies: &[ipnet::IpNet]) -> IpAddr {
    if !is_in(peer, proxies) {
        return peer;
    }
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let chain = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    for hop in chain {
        let hop = std::str::from_utf8(hop).unwrap_or_default().trim();
        let with_port = || hop.parse::<SocketAddr>().ok().map(|hop| hop.ip());
        match hop.parse::<IpAddr>().ok().or_else(with_port) {
            Some(address) if is_in(address, proxies) => {}
            Some(address) => return address.to_canonical(),
            // Who that was, nobody knows.
            None => return peer,
        }
    }
    peer
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn paths_that_two_readers_could_read_differently_are_refused() {
        for path in [
            "/a/../b",
            "/..",
            "/.",
            "/a/.",
            "/a//b",
            "//",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/%2e%2e/a",
            "/a%00",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%2",
            "/%",
        ] {
            assert!(check(&parts(path, &[("host", "h")])).is_err(), "{path}");
        }
        for path in ["/", "/a", "/a/", "/a.b/..c/...", "/a%20b", "/caf%C3%A9", "/a?x=//..%2f"] {
            assert_eq!(check(&parts(path, &[("host", "h")])), Ok(()), "{path}");
        }
    }

    #[test]
    fn one_host_and_only_one() {
        assert!(check(&parts("/", &[])).is_err());
        assert!(check(&parts("/", &[("host", "a"), ("host", "a")])).is_err());
        assert!(check(&parts("http://a/", &[])).is_ok());
        for host in ["a", "a.example:8080", "a_b.example", "[::1]:80", "127.0.0.1", ""] {
            assert_eq!(check(&parts("/", &[("host", host)])), Ok(()), "{host}");
        }
        for host in ["a b", "a/b", "user@a", "a?b", "a#b"] {
            assert!(check(&parts("/", &[("host", host)])).is_err(), "{host}");
        }
    }

    #[test]
    fn on_http_2_two_names_of_the_host_agree() {
        let with = |host: &str| {
            let mut parts = parts("http://hooks.example/", &[("host", host)]);
            parts.version = Version::HTTP_2;
            check(&parts)
        };
        assert_eq!(with("Hooks.example"), Ok(()));
        assert!(with("other.example").is_err());
    }

    #[test]
    fn a_body_in_a_further_transfer_coding_is_refused() {
        let with = |codings: &[&str]| {
            let mut headers = vec![("host", "h")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            check(&parts("/", &headers))
        };
        assert_eq!(with(&["chunked"]), Ok(()));
        assert_eq!(with(&["Chunked"]), Ok(()));
        for codings in
            [&["gzip, chunked"] as &[_], &["chunked, chunked"], &["gzip", "chunked"], &["chunked", "chunked"]]
        {
            assert!(with(codings).is_err(), "{codings:?}");
        }
    }

    #[test]
    fn what_could_pass_for_ours_is_taken_out() {
        let mut parts = parts(
            "/",
            &[
                ("host", "h"),
                ("Fairlane-Group", "x"),
                ("fairlane_group", "x"),
                ("X_Forwarded-For", "1.2.3.4"),
                ("x-forwarded-proto", "https"),
                ("Connection", "close, X-Hop, host"),
                ("X-Hop", "1"),
                ("TE", "trailers"),
                ("X-Kept", "1"),
                ("X-Kept", "2"),
            ],
        );
        clean(&mut parts, false);
        let left: Vec<_> = parts.headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(left, [("host", "h"), ("x-kept", "1"), ("x-kept", "2")]);
    }

    #[test]
    fn forwarded_headers_count_only_from_trusted_proxies() {
        let p = parts(
            "/",
            &[("host", "inner:8080"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "hooks.example")],
        );
        assert_eq!(seen(&p, false, true), Seen { https: true, url: Some("https://hooks.example".into()) });
        assert_eq!(seen(&p, false, false), Seen { https: false, url: Some("http://inner:8080".into()) });
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        assert!(is_in("10.1.2.3".parse().unwrap(), &proxies));
        assert!(is_in("::ffff:10.1.2.3".parse().unwrap(), &proxies));
        assert!(!is_in("11.1.2.3".parse().unwrap(), &proxies));
    }

    #[test]
    fn a_sender_behind_trusted_proxies_is_the_last_address_that_is_none_of_them() {
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        let of = |peer: &str, lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            sender(&parts("/", &lines).headers, peer.parse().unwrap(), &proxies).to_string()
        };
        assert_eq!(of("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "a stranger's header says nothing");
        assert_eq!(of("10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.0.0.2"]), "203.0.113.9");
        assert_eq!(of("10.0.0.1", &["1.1.1.1", "203.0.113.9:4711"]), "203.0.113.9");
        assert_eq!(of("10.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(of("10.0.0.1", &["::ffff:203.0.113.9"]), "203.0.113.9");
        for lines in [&[][..], &["unknown"], &["203.0.113.9, unknown"], &[""]] {
            assert_eq!(of("10.0.0.1", lines), "10.0.0.1", "{lines:?}");
        }
    }

    #[test]
    fn a_record_masks_what_may_be_secret_and_escapes_the_rest() {
        let p =
            parts("/", &[("X-Shopify-Hmac-Sha256", "c2VjcmV0"), ("authorization", "Bearer x"), ("x-topic", "a\tb")]);
        let lines = masked(&p.headers, &[]);
        assert!(lines.contains(&("x-shopify-hmac-sha256".into(), "*** (8 bytes)".into())));
        assert!(lines.contains(&("authorization".into(), "*** (8 bytes)".into())));
        assert!(lines.contains(&("x-topic".into(), "a\\tb".into())));
    }

    #[test]
    fn a_record_masks_every_header_in_which_a_source_expects_its_secret() {
        let p = parts(
            "/",
            &[("X-Hook", "s3cret"), ("x-jwt", "s3cret"), ("x-passcode", "s3cret"), ("x-credential", "s3cret")],
        );
        let lines = masked(&p.headers, &[HeaderName::from_static("x-hook")]);
        assert!(lines.iter().all(|(_, value)| value == "*** (6 bytes)"), "{lines:?}");
    }

    #[test]
    fn a_record_stays_small_whatever_a_stranger_sends() {
        let mut p = parts("/", &[("x-short", "1")]);
        p.headers.insert("x-long", HeaderValue::from_bytes(&[0xff; 60_000]).unwrap());
        for number in 0..200 {
            let name: HeaderName = format!("x-{number}-{}", "a".repeat(300)).parse().unwrap();
            p.headers.insert(name, HeaderValue::from_bytes("\u{202e}".repeat(100).as_bytes()).unwrap());
        }
        let lines = masked(&p.headers, &[]);
        let bytes: usize = lines.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes < 5000, "{bytes}");
        assert!(lines.contains(&("x-short".into(), "1".into())));
        let long = &lines.iter().find(|(name, _)| name == "x-long").unwrap().1;
        assert!(long.ends_with("… (60000 bytes)") && long.len() < 300, "{long}");
        assert!(lines.last().unwrap().1.ends_with("more lines"), "{lines:?}");
    }
}
