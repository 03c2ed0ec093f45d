//! Addresses and header lists in the form that some providers sign.
//!
//! HubSpot undoes some escapes of the address. Contentful signs method, encoded target, the headers
//! that the request lists, and body (contentful/node-apps-toolkit, src/requests). There the request itself says which headers are signed. What is relied on must be among them: the
//! list, and the time.

use http::{HeaderMap, HeaderName};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::found::one;
use super::reject::Rejection;
use super::scheme::{Place, Signed, Time};
use super::template::{Piece, Template};

/// Headers that a list may name.
const LISTED_MAX: usize = 64;

/// What ECMAScript's `encodeURIComponent` leaves as it is.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// What its `encodeURI` leaves as it is.
const WHOLE: &AsciiSet = &COMPONENT
    .remove(b';')
    .remove(b',')
    .remove(b'/')
    .remove(b'?')
    .remove(b':')
    .remove(b'@')
    .remove(b'&')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b'#');

/// Path and query behind the public address, encoded; empty where the text does not cover it.
pub(super) fn target(public_url: Option<&str>, target: &str, template: &Template) -> String {
    if !template.uses(&Piece::Target) {
        return String::new();
    }
    let prefix = public_url
        .and_then(|url| url.split_once("://"))
        .map_or("", |(_, rest)| rest.find('/').and_then(|at| rest.get(at..)).unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut out: String = utf8_percent_encode(prefix, WHOLE).chain(utf8_percent_encode(path, WHOLE)).collect();
    if !query.is_empty() {
        out.push('?');
        // The query is encoded as one component, and then again with the whole.
        let once = utf8_percent_encode(query, COMPONENT).to_string();
        out.extend(utf8_percent_encode(&once, WHOLE));
    }
    out
}

/// The address with those escapes undone that HubSpot undoes before it signs
/// (developers.hubspot.com, "Validate requests", v3).
pub(super) fn url_decoded(url: &str) -> String {
    const UNDONE: [(&str, char); 12] = [
        ("3A", ':'),
        ("2F", '/'),
        ("3F", '?'),
        ("40", '@'),
        ("21", '!'),
        ("24", '$'),
        ("27", '\''),
        ("28", '('),
        ("29", ')'),
        ("2A", '*'),
        ("2C", ','),
        ("3B", ';'),
    ];
    let mut parts = url.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let undone = part.split_at_checked(2).and_then(|(hex, rest)| {
            let (_, c) = UNDONE.iter().find(|(known, _)| known.eq_ignore_ascii_case(hex))?;
            Some((*c, rest))
        });
        match undone {
            Some((c, rest)) => {
                out.push(c);
                out.push_str(rest);
            }
            None => {
                out.push('%');
                out.push_str(part);
            }
        }
    }
    out
}

/// The listed headers, as they are signed; empty where the text covers no list.
pub(super) fn listed(signed: &Signed, headers: &HeaderMap) -> Result<Vec<u8>, Rejection> {
    let Some(list) = signed.template.list() else { return Ok(Vec::new()) };
    let value = one(headers, std::slice::from_ref(list), "the names of the signed headers")?;
    let names: Vec<_> = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).take(LISTED_MAX + 1).collect();
    if names.len() > LISTED_MAX {
        return Err(Rejection::malformed(list, format!("more than {LISTED_MAX} names")));
    }
    let names = names.into_iter().map(HeaderName::from_bytes).collect::<Result<Vec<_>, _>>();
    let names = names.map_err(|_| Rejection::malformed(list, "it lists what is not a header's name"))?;
    let needed = match &signed.time {
        Some(Time { place: Place::Header(time), .. }) => time.as_slice(),
        _ => &[],
    };
    if let Some(missing) = needed.iter().chain([list]).find(|name| !names.contains(name)) {
        return Err(Rejection::malformed(list, format!("it does not list {missing}, which anybody could then change")));
    }
    let mut out = Vec::new();
    for name in &names {
        let value = one(headers, std::slice::from_ref(name), "a signed header")?;
        if !out.is_empty() {
            out.push(b';');
        }
        out.extend([name.as_str().as_bytes(), b":", value].concat());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_escapes_are_undone_and_each_once() {
        assert_eq!(url_decoded("https://a/x%2fy?q=%3F%3a%20%252F%2B%"), "https://a/x/y?q=?:%20%252F%2B%");
        assert_eq!(url_decoded("https://a/%é%2"), "https://a/%é%2");
    }

    #[test]
    fn a_target_is_encoded_as_ecmascript_does() {
        let template = Template::of(vec![Piece::Target]);
        let encoded = |public, text| target(public, text, &template);
        assert_eq!(encoded(None, "/a b/é;x=1"), "/a%20b/%C3%A9;x=1");
        assert_eq!(encoded(None, "/a%20b"), "/a%2520b");
        assert_eq!(encoded(None, "/x?q=1&w=2"), "/x?q%253D1%2526w%253D2");
        assert_eq!(encoded(Some("https://a.example/base"), "/x?"), "/base/x");
        assert_eq!(encoded(Some("https://a.example"), "/x"), "/x");
        assert_eq!(target(None, "/x", &Template::parse("{body}").unwrap()), "");
    }
}
