//! Signatures over the public address and the decoded fields of a form: Twilio, Mandrill, Plivo.
//!
//! The fields are sorted and joined without separators, so the signature does not tell where a
//! name ends and its value begins: that is the providers' way, and nothing here can mend it.
//! Fields are decoded to bytes, not to text, so that no two bodies become the same by repair.

use std::borrow::Cow;
use std::slice;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode;

use super::armed::Armed;
use super::encoding::Enc;
use super::found::one;
use super::judge::{Request, Verified, Verifier, When};
use super::mac::{Hash, sha256};
use super::reject::{Rejection, shown_url};
use super::sign::{Outgoing, SignError, put};

/// Fields of one form that are looked at; providers send some dozens.
const FIELDS_MAX: usize = 1_000;
/// Signatures in one header: one for each active token.
const SIGNATURES_MAX: usize = 8;
/// The media type of a form's fields.
const FORM: &str = "application/x-www-form-urlencoded";
/// Where Twilio puts the hash of a body that is no form.
const BODY_HASH: &[u8] = b"bodySHA256";

/// A signature over the address and a form's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Where it stands, in base64.
    pub header: HeaderName,
    /// The hash of the HMAC.
    pub hash: Hash,
    /// What is signed.
    pub text: FormText,
}

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormText {
    /// The address with or without its port, and the fields sorted by name and value, equal ones
    /// once. A body that is no form is covered by its SHA-256 in the query's `bodySHA256`.
    Twilio,
    /// The address and the fields sorted by name and value.
    Mandrill,
    /// The address without its query, `?`, the query's fields sorted, `.`, the body's fields
    /// sorted, `.` and the nonce in this header. Several signatures may stand there.
    Plivo {
        /// Where the nonce stands.
        nonce: HeaderName,
    },
}

/// What may have been signed: one of `heads` with `tail` behind it.
struct Texts {
    heads: Vec<String>,
    tail: Vec<u8>,
    /// The hash that the body must have, as written.
    body_hash: Option<Vec<u8>>,
}

impl Verifier {
    /// Judges a form.
    pub(super) fn form(&self, form: &Form, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        let value = one(request.headers, slice::from_ref(&form.header), "the signature")?;
        let url = self.url(request)?;
        let texts = form.texts(&url, request.headers, request.body)?;
        let claimed: Vec<_> = value.split(|byte| *byte == b',').take(SIGNATURES_MAX + 1).collect();
        let claimed = match form.text {
            FormText::Plivo { .. } => claimed,
            FormText::Twilio | FormText::Mandrill => vec![value],
        };
        if claimed.len() > SIGNATURES_MAX {
            return Err(Rejection::malformed(&form.header, format!("more than {SIGNATURES_MAX} signatures")));
        }
        let claimed: Vec<_> = claimed.iter().filter_map(|text| Enc::Base64.decode(text.trim_ascii())).collect();
        if claimed.is_empty() {
            return Err(Rejection::malformed(&form.header, "its signature is not base64"));
        }
        let matched = self.first_match(when, |armed| {
            texts.heads.iter().fold(false, |hit, head| hit | armed.gives(&[head.as_bytes(), &texts.tail], &claimed))
        })?;
        let verified = matched.ok_or_else(|| Rejection::BadSignature {
            place: form.header.to_string(),
            secrets: self.live_count(when),
            url: Some(shown_url(&url)),
        })?;
        match &texts.body_hash {
            Some(hash) if !is_hash_of(hash, request.body) => {
                Err(Rejection::BodyHash { place: "bodySHA256 in the address".to_owned() })
            }
            _ => Ok(verified),
        }
    }
}

impl Form {
    fn texts(&self, url: &str, headers: &HeaderMap, body: &[u8]) -> Result<Texts, Rejection> {
        match &self.text {
            FormText::Twilio => twilio(url, headers, body),
            FormText::Mandrill => {
                let tail = sorted(body)?.concat().concat();
                Ok(Texts { heads: vec![url.to_owned()], tail, body_hash: None })
            }
            FormText::Plivo { nonce } => {
                let nonce = one(headers, slice::from_ref(nonce), "the nonce")?;
                let (base, query) = url.split_once('?').unwrap_or((url, ""));
                let (query, fields) = (sorted(query.as_bytes())?, sorted(body)?);
                let pairs: Vec<_> = query.iter().map(|pair| pair.join(&b'=')).collect();
                let mut tail = Vec::new();
                if !pairs.is_empty() || !fields.is_empty() {
                    tail.push(b'?');
                    tail.extend(pairs.join(&b'&'));
                }
                if !pairs.is_empty() && !fields.is_empty() {
                    tail.push(b'.');
                }
                tail.extend(fields.concat().concat());
                tail.push(b'.');
                tail.extend_from_slice(nonce);
                Ok(Texts { heads: vec![base.to_owned()], tail, body_hash: None })
            }
        }
    }

    /// Adds the signature, and what a provider's own client would have set.
    pub(super) fn sign(
        &self,
        secret: &Armed,
        outgoing: &Outgoing<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), SignError> {
        if query_field(outgoing.url, BODY_HASH).is_none() {
            headers.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static(FORM));
        }
        if let FormText::Plivo { nonce } = &self.text {
            put(headers, nonce, outgoing.id.as_bytes(), "the nonce")?;
        }
        let texts = self.texts(outgoing.url, headers, outgoing.body).map_err(|no| SignError::Body(no.to_string()))?;
        if texts.body_hash.is_some_and(|hash| !is_hash_of(&hash, outgoing.body)) {
            let hash = Enc::Hex.encode(sha256(outgoing.body).as_bytes());
            return Err(SignError::Body(format!("the address must say bodySHA256={hash}")));
        }
        let head = texts.heads.first().map_or("", String::as_str);
        let tag = secret.tag(&[head.as_bytes(), &texts.tail]).ok_or(SignError::PublicKeyOnly)?;
        put(headers, &self.header, Enc::Base64.encode(tag.as_bytes()).as_bytes(), "the signature")
    }
}

fn twilio(url: &str, headers: &HeaderMap, body: &[u8]) -> Result<Texts, Rejection> {
    let heads = with_and_without_port(url);
    if let Some(hash) = query_field(url, BODY_HASH) {
        return Ok(Texts { heads, tail: Vec::new(), body_hash: Some(hash.into_owned()) });
    }
    if !is_form(headers) && !body.is_empty() {
        let problem = "it is neither a form nor covered by bodySHA256 in the address".to_owned();
        return Err(Rejection::MalformedBody { problem });
    }
    let mut fields = sorted(body)?;
    fields.dedup();
    Ok(Texts { heads, tail: fields.concat().concat(), body_hash: None })
}

/// Whether the body is said to be a form's fields.
fn is_form(headers: &HeaderMap) -> bool {
    let value = headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let media = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(FORM.as_bytes())
}

/// The fields of a form, decoded, by name and then by value. Text that is no form has one field,
/// whose name is the text.
fn sorted(body: &[u8]) -> Result<Vec<[Cow<'_, [u8]>; 2]>, Rejection> {
    let mut fields: Vec<_> = fields(body).take(FIELDS_MAX + 1).collect();
    if fields.len() > FIELDS_MAX {
        return Err(Rejection::MalformedBody { problem: format!("it has more than {FIELDS_MAX} fields") });
    }
    fields.sort();
    Ok(fields)
}

/// Name and value of each field, decoded (URL Standard, "application/x-www-form-urlencoded parsing").
pub(super) fn fields(text: &[u8]) -> impl Iterator<Item = [Cow<'_, [u8]>; 2]> {
    text.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
        let at = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
        let (name, rest) = field.split_at_checked(at).unwrap_or((field, b""));
        [decoded(name), decoded(rest.strip_prefix(b"=").unwrap_or(rest))]
    })
}

fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if text.contains(&b'+') {
        let blanks: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        return Cow::Owned(percent_decode(&blanks).collect());
    }
    percent_decode(text).into()
}

/// The first field of this name in an address's query, decoded.
pub(super) fn query_field<'u>(url: &'u str, name: &[u8]) -> Option<Cow<'u, [u8]>> {
    let (_, query) = url.split_once('?')?;
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    fields(query.as_bytes()).find(|[own, _]| **own == *name).map(|[_, value]| value)
}

/// The address without its port, and with it or the one that its scheme stands for: Twilio signs
/// either. Everything else stays as it is, user and password too.
fn with_and_without_port(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let written = authority
        .rsplit_once(':')
        .filter(|(host, port)| is_port(port) && !host.rsplit('@').next().unwrap_or_default().is_empty());
    // `user:80@host` has no port: what follows the last colon is not a number there.
    let default = if scheme.eq_ignore_ascii_case("https") { "443" } else { "80" };
    let (bare, port) = written.unwrap_or((authority, default));
    vec![format!("{scheme}://{bare}{rest}"), format!("{scheme}://{bare}:{port}{rest}")]
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `hex` is the SHA-256 of `body`.
fn is_hash_of(hex: &[u8], body: &[u8]) -> bool {
    Enc::Hex.decode(hex).is_some_and(|claimed| sha256(body).matches(&claimed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_to_bytes() {
        let read = |text: &str| fields(text.as_bytes()).map(|[n, v]| (n.to_vec(), v.to_vec())).collect::<Vec<_>>();
        let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        assert_eq!(read("a=1&&b=x+y%2B=&c&=d"), [pair("a", b"1"), pair("b", b"x y+="), pair("c", b""), pair("", b"d")]);
        assert_eq!(read("a=%ff%zz%"), [pair("a", b"\xff%zz%")], "nothing is repaired");
        assert_eq!(read(""), []);
    }

    #[test]
    fn an_address_is_known_with_and_without_its_port() {
        for (url, without, with) in [
            ("https://a.example/x?y:1", "https://a.example/x?y:1", "https://a.example:443/x?y:1"),
            ("http://A.example", "http://A.example", "http://A.example:80"),
            ("https://a:8443/x", "https://a/x", "https://a:8443/x"),
            ("https://u:80@a.example/", "https://u:80@a.example/", "https://u:80@a.example:443/"),
            ("https://u:p@a:1/", "https://u:p@a/", "https://u:p@a:1/"),
            ("https://[::1]/", "https://[::1]/", "https://[::1]:443/"),
            ("https://[::1]:7/", "https://[::1]/", "https://[::1]:7/"),
        ] {
            assert_eq!(with_and_without_port(url), [without, with]);
        }
        assert_eq!(with_and_without_port("no address"), ["no address"]);
    }

    #[test]
    fn the_number_of_fields_is_bounded() {
        assert_eq!(sorted("b&a&".repeat(500).as_bytes()).unwrap().len(), 1_000);
        assert_eq!(sorted("a&".repeat(1_001).as_bytes()).unwrap_err().reason(), "malformed_body");
    }

    #[test]
    fn a_query_field_is_found_by_its_name() {
        let find = |url| query_field(url, b"k").map(Cow::into_owned);
        assert_eq!(find("https://a/?x=k&k=1%20&k=2#k=3").as_deref(), Some(&b"1 "[..]));
        assert_eq!(find("https://a/k=1"), None);
    }
}
