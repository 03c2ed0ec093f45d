//! The forms of text that fields take: addresses, URLs, names, paths. Each form says what it expects, and for text that is not of
//! it what to do.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::{HeaderName, HeaderValue, Method, Uri};

use crate::event::Wall;
use crate::listen::route::Pattern;
use crate::store::redis::settings as redis;
use crate::verify;

/// A form of text.
pub(super) struct Text {
    /// What is expected, for people.
    pub(super) expected: &'static str,
    /// The text in its normal form, or what to do (may be empty).
    pub(super) read: fn(&str) -> Result<String, String>,
}

/// Longest text that names something, in bytes: it goes into header lines and metrics.
const NAME_BYTES_MAX: usize = 128;
/// Largest body of an answer of ours.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Header names that frame a message or mark it as ours; nobody else sets them.
const OURS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
    "x-forwarded-for",
];

/// A listener's address.
pub(super) static ADDRESS: Text =
    Text { expected: "an IP address and a port, e.g. 127.0.0.1:8080 or [::]:8080", read: address };
/// A network, or one address.
pub(super) static NETWORK: Text =
    Text { expected: "a network such as 10.0.0.0/8 or fd00::/8, or one address", read: network };
/// A host name without port.
pub(super) static HOST: Text =
    Text { expected: "a host name without scheme and port, e.g. hooks.example.com", read: host };
/// A bearer token.
pub(super) static TOKEN: Text = Text { expected: "visible ASCII characters", read: token };
/// A URL.
pub(super) static URL: Text =
    Text { expected: "a URL such as http://127.0.0.1:4317", read: |t| url(t, &["http", "https"]) };
/// Where spans go. Over TLS a collector of one's own, on this machine, goes before the one that is far away.
pub(super) static COLLECTOR: Text =
    Text { expected: "a URL such as http://127.0.0.1:4317", read: |t| url(t, &["http"]) };
/// A Redis URL.
pub(super) static REDIS_URL: Text =
    Text { expected: "a URL such as redis://127.0.0.1:6379", read: |t| t.parse::<redis::Url>().map(|_| as_is(t)) };
/// A server's host and port.
pub(super) static HOST_PORT: Text = Text {
    expected: "a host and a port, e.g. redis-2:6379",
    read: |t| t.parse::<redis::Address>().map(|address| address.to_string()),
};
/// What keys begin with. Braces would make a hash tag of their own.
pub(super) static REDIS_NAMESPACE: Text =
    Text { expected: "a name of letters, digits, -, _, . and :, at most 64", read: redis_namespace };
/// Where events are delivered to.
pub(super) static UPSTREAM_URL: Text =
    Text { expected: "an http or https URL with a host, e.g. http://127.0.0.1:3000", read: upstream_url };
/// Where the provider believes that we are.
pub(super) static PUBLIC_URL: Text =
    Text { expected: "an http or https URL with a host, e.g. https://hooks.example.com", read: public_url };
/// A secret that signs. Whether it may be empty depends on the scheme, which is not known here.
pub(super) static KEY: Text = Text { expected: "a secret: text, \"${NAME}\" or file:/path", read: |t| Ok(as_is(t)) };
/// A file or directory.
pub(super) static FILE: Text = Text { expected: "the path of a file", read: file };
/// A path of a request.
pub(super) static PATH: Text = Text { expected: "a path that begins with /, without ? and #", read: path };
/// The paths of a source.
pub(super) static PATTERN: Text = Text {
    expected: "a path such as /webhooks/shopify, /hooks/{store} or /all/*",
    read: |t| Pattern::parse(t).map(|_| t.to_owned()),
};
/// What names something of ours.
pub(super) static NAME: Text = Text { expected: "a name of visible ASCII characters, at most 128", read: name };
/// The first part of a group's name.
pub(super) static NAMESPACE: Text = Text { expected: "a short text, at most 64 bytes", read: namespace };
/// A request method.
pub(super) static METHOD: Text = Text { expected: "a request method such as POST", read: method };
/// A header line's name towards the upstream.
pub(super) static HEADER_NAME: Text =
    Text { expected: "a header name such as x-team", read: |t| header_name(t, &["host", "date"]) };
/// A header line's name towards the sender.
pub(super) static ANSWER_HEADER_NAME: Text =
    Text { expected: "a header name such as x-team", read: |t| header_name(t, &[]) };
/// A header line's value.
pub(super) static HEADER_VALUE: Text =
    Text { expected: "a header value: one line of visible ASCII characters and blanks", read: header_value };
/// A header line's name in what a sender brings.
pub(super) static HEADER: Text = Text {
    expected: "a header name such as x-signature",
    read: |t| HeaderName::from_str(t).map(|_| as_is(t)).map_err(|_| String::new()),
};
/// Text of a line.
pub(super) static SHORT: Text = Text { expected: "a short text, at most 1024 bytes", read: short };
/// How far ahead a signed time may be.
pub(super) static FUTURE: Text = Text {
    expected: "a duration such as 300s, or any",
    read: |t| if t == "any" { Ok(as_is(t)) } else { super::scalar::duration(t).map(super::scalar::show_duration) },
};
/// A pattern of groups.
pub(super) static GLOB: Text =
    Text { expected: "a pattern on the written form of groups, e.g. plus-*.myshopify.com or gh~77", read: glob };
/// A moment.
pub(super) static MOMENT: Text = Text {
    expected: "a moment such as 2027-01-31T12:00:00Z, or a date such as 2027-01-31",
    read: |t| moment(t).map(|_| t.to_owned()),
};
/// When an append to Redis counts as done.
pub(super) static REDIS_ACK: Text =
    Text { expected: "aof, memory or replicas(n)", read: |t| t.parse::<redis::Ack>().map(|ack| ack.to_string()) };
/// Any text that fits an answer's body.
pub(super) static ANY: Text = Text { expected: "text of at most 64 KiB", read: body };

fn as_is(text: &str) -> String {
    text.to_owned()
}

fn address(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.to_string());
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    Err(match (text.rsplit_once(':'), port) {
        (Some(("localhost", _)), Some(port)) => format!("names are not looked up here: write 127.0.0.1:{port}"),
        (Some(("" | "*", _)) | None, Some(port)) => format!("for all addresses write 0.0.0.0:{port}"),
        _ if text.parse::<IpAddr>().is_ok() => "the port is missing".to_owned(),
        _ => String::new(),
    })
}

fn network(text: &str) -> Result<String, String> {
    if let Ok(net) = text.parse::<ipnet::IpNet>() {
        return Ok(net.trunc().to_string());
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(ipnet::IpNet::from(address).to_string()),
        Err(_) => Err(String::new()),
    }
}

fn host(text: &str) -> Result<String, String> {
    let fits =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if text.len() <= 253 && text.split('.').all(fits) { Ok(text.to_ascii_lowercase()) } else { Err(String::new()) }
}

fn token(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    if fits { Ok(as_is(text)) } else { Err("openssl rand -hex 32 makes a good one".to_owned()) }
}

fn url(text: &str, schemes: &[&str]) -> Result<String, String> {
    let scheme = text.split_once("://").map(|(scheme, rest)| (scheme, !rest.is_empty()));
    match scheme {
        Some((scheme, true)) if schemes.contains(&scheme) && text.bytes().all(|b| b.is_ascii_graphic()) => {
            Ok(as_is(text))
        }
        _ => Err(format!("it begins with {}://", schemes.join(":// or "))),
    }
}

fn upstream_url(text: &str) -> Result<String, String> {
    if !text.contains("://") {
        return Err(format!("write the scheme: http://{}", text.split('@').next_back().unwrap_or_default()));
    }
    let uri = text.parse::<Uri>().map_err(|_| String::new())?;
    let authority = uri.authority().ok_or_else(|| "the host is missing".to_owned())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        Err("the scheme is http or https".to_owned())
    } else if authority.as_str().contains('@') {
        Err("without user and password; send them as a header line".to_owned())
    } else if authority.host().is_empty() {
        Err("the host is missing".to_owned())
    } else if authority.as_str().len() > authority.host().len() && authority.port_u16().is_none_or(|port| port == 0) {
        Err("the port is a number from 1 to 65535".to_owned())
    } else if uri.query().is_some() || text.contains('#') {
        Err("without ? and #: path and query come from the request".to_owned())
    } else {
        Ok(as_is(text))
    }
}

/// Some providers sign the address with the user and password that it was configured with.
fn public_url(text: &str) -> Result<String, String> {
    upstream_url(&verify::without_user(text)).map(|_| as_is(text))
}

fn file(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') { Err(String::new()) } else { Ok(as_is(text)) }
}

fn path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!("begin with /: /{text}"));
    }
    let fits = http::uri::PathAndQuery::from_str(text).is_ok() && !text.contains(['?', '#', '{', '}']);
    if fits { Ok(as_is(text)) } else { Err("other characters are written %XX".to_owned()) }
}

fn name(text: &str) -> Result<String, String> {
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fits { Ok(as_is(text)) } else { Err(String::new()) }
}

fn namespace(text: &str) -> Result<String, String> {
    if (1..=64).contains(&text.len()) { Ok(as_is(text)) } else { Err(String::new()) }
}

fn method(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    match Method::from_str(text) {
        Ok(Method::CONNECT) => Err("CONNECT asks for a tunnel; no webhook comes with it".to_owned()),
        Ok(_) if upper == text => Ok(upper),
        Ok(_) => Err(format!("methods are written in capitals: {upper}")),
        Err(_) => Err(String::new()),
    }
}

fn header_name(text: &str, allowed: &[&str]) -> Result<String, String> {
    let name = HeaderName::from_str(text).map_err(|_| String::new())?;
    let name = name.as_str();
    let ours = OURS.contains(&name) || name.starts_with("fairlane-") || name.starts_with("x-forwarded-");
    if ours && !allowed.contains(&name) {
        Err(format!("{name} is set by Fairlane itself"))
    } else {
        Ok(name.to_owned())
    }
}

fn header_value(text: &str) -> Result<String, String> {
    let fits = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && HeaderValue::from_str(text).is_ok();
    if fits { Ok(as_is(text)) } else { Err(String::new()) }
}

fn glob(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:@~%*?".contains(c);
    match text.chars().find(|c| !plain(*c)) {
        None if !text.is_empty() => Ok(as_is(text)),
        None => Err("* matches every group".to_owned()),
        Some(c) => {
            let mut bytes = [0; 4];
            let written: String = c.encode_utf8(&mut bytes).bytes().map(|b| format!("%{b:02X}")).collect();
            Err(format!("{c:?} is written {written} in a group's name"))
        }
    }
}

/// Microseconds since 1970 of a moment as people write it.
pub(super) fn moment(text: &str) -> Result<u64, String> {
    let midnight = || Wall::read(&format!("{text}T00:00:00Z"));
    match Wall::read(text).or_else(midnight) {
        Some(Wall(0)) => Err("that was before 1970".to_owned()),
        Some(moment) => Ok(moment.0),
        None => Err("with a T between date and time, and Z or an offset at the end".to_owned()),
    }
}

fn short(text: &str) -> Result<String, String> {
    if text.len() <= 1024 { Ok(as_is(text)) } else { Err(String::new()) }
}

fn redis_namespace(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    if (1..=64).contains(&text.len()) && text.bytes().all(fits) { Ok(as_is(text)) } else { Err(String::new()) }
}

fn body(text: &str) -> Result<String, String> {
    if text.len() <= BODY_BYTES_MAX { Ok(as_is(text)) } else { Err(String::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &Text, good: &[&str], bad: &[(&str, &str)]) {
        for sample in good {
            assert!((text.read)(sample).is_ok(), "{sample} is {}", text.expected);
        }
        for (sample, why) in bad {
            let hint = (text.read)(sample).expect_err(sample);
            assert!(hint.contains(why), "{sample}: {hint}");
        }
    }

    #[test]
    fn addresses_are_literal() {
        let bad =
            [("localhost:80", "127.0.0.1:80"), (":80", "0.0.0.0:80"), ("80", "0.0.0.0:80"), ("*:80", "0.0.0.0:80")];
        reads(&ADDRESS, &["0.0.0.0:8080", "[::1]:0"], &bad);
        reads(&ADDRESS, &[], &[("127.0.0.1", "port is missing"), ("127.0.0.1:99999", ""), ("a:b", ""), ("", "")]);
        assert_eq!((NETWORK.read)("10.1.2.3/8").as_deref(), Ok("10.0.0.0/8"));
        assert_eq!((NETWORK.read)("::1").as_deref(), Ok("::1/128"));
        reads(&NETWORK, &[], &[("10.0.0.0/33", ""), ("x", "")]);
    }

    #[test]
    fn urls_have_a_scheme_and_a_host() {
        reads(
            &UPSTREAM_URL,
            &["http://127.0.0.1:3000", "https://a.example/base", "http://[::1]:80/"],
            &[
                ("127.0.0.1:3000", "http://127.0.0.1:3000"),
                ("ftp://a", "http or https"),
                ("http://u:p@a", "user and password"),
                ("http://a:0", "1 to 65535"),
                ("http://a:99999", ""),
                ("http://a/?x=1", "query"),
                ("http://", ""),
                ("http:///x", ""),
            ],
        );
        reads(&REDIS_URL, &["redis://:secret@127.0.0.1:6379/0"], &[("http://a", "redis://")]);
    }

    #[test]
    fn names_of_header_lines_leave_ours_alone() {
        reads(
            &HEADER_NAME,
            &["X-Team", "host", "authorization"],
            &[("a b", ""), ("Content-Length", "itself"), ("Fairlane-X", "itself")],
        );
        reads(&ANSWER_HEADER_NAME, &["x-team", "content-type"], &[("Date", "itself")]);
        reads(&HEADER_VALUE, &["a b", ""], &[("a\nb", ""), ("é", "")]);
    }

    #[test]
    fn the_other_forms() {
        reads(&METHOD, &["POST", "PURGE"], &[("post", "POST"), ("CONNECT", "tunnel"), ("A B", "")]);
        reads(
            &GLOB,
            &["*", "plus-*.myshopify.com", "gh~77", "a%20?"],
            &[("a b", "%20"), ("a/b", "%2F"), ("é", "%C3%A9"), ("", "every")],
        );
        reads(
            &MOMENT,
            &["2027-01-31", "9999-12-31", "2027-01-31T12:00:00Z", "2027-01-31T12:00:00+02:00"],
            &[("31.1.2027", "T between"), ("1950-01-01", "1970")],
        );
        reads(&HOST, &["a.example", "A"], &[("a:80", ""), ("http://a", ""), ("a..b", ""), ("", "")]);
        reads(&PATH, &["/a/b"], &[("a", "/a"), ("/a?b", ""), ("/a b", "")]);
        reads(&TOKEN, &["0123456789abcdef"], &[("", "openssl"), ("0123456789abcde ", "")]);
        reads(&REDIS_ACK, &["aof", "memory", "replicas(2)"], &[("replicas(0)", ""), ("fsync", "")]);
        assert_eq!(moment("1970-01-02"), Ok(86_400_000_000));
    }
}
