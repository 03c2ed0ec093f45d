//! Signing as a provider would: the inverse of the judgement, for test events and for requests
//! that go on with a fresh signature.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::armed::Armed;
use super::canonical;
use super::encoding::Enc;
use super::found::one;
use super::judge::{Request, Verifier, When};
use super::member::{self, Step};
use super::public::PublicAlg;
use super::scheme::{Alg, Basic, Carrier, Items, List, Place, Scheme, Signed, Time, Token, Unit};
use super::template::{Parts, Piece, Template};
use super::time;
use crate::event::Wall;

/// A request that is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The whole public address as the receiver knows it: scheme, host, path and query.
    pub url: &'a str,
    /// Its body.
    pub body: &'a [u8],
    /// When it is sent.
    pub now: Wall,
    /// The message id, for schemes that sign one.
    pub id: &'a str,
}

/// Why a request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The end of use of every secret has passed.
    #[error("the end of use (`until`) of every secret has passed")]
    NoSecret,
    /// The signature covers a header that is not there.
    #[error("the signature covers header {0}: add it")]
    MissingHeader(HeaderName),
    /// A value cannot stand in a header.
    #[error("{0} cannot stand in a header: it has characters that HTTP does not allow there")]
    NotAHeader(&'static str),
    /// What is configured is the public half of the key.
    #[error(
        "only the provider can sign: it keeps the private key, and the secret here is its public half; \
         give its private half where you have it (--secret file:key.pem), else a request that the provider itself sent"
    )]
    PublicKeyOnly,
    /// The signature stands in the body, and is not right.
    #[error("the signature stands in the body, which is sent as it is: {path} must be {example}")]
    BodySignature {
        /// Where.
        path: String,
        /// What would be right now.
        example: String,
    },
    /// The body, or the address, is not what the scheme signs.
    #[error("this cannot be signed: {0}")]
    Body(String),
    /// The signed time is a member of the body, and is not in it.
    #[error("the body must hold the signed time at {path}, e.g. {example}")]
    BodyTime {
        /// Where.
        path: String,
        /// What would do now.
        example: String,
    },
}

impl Verifier {
    /// Adds the headers that prove `outgoing` to this verifier, with its first secret in use.
    /// Nothing is added for [`Scheme::None`].
    ///
    /// # Errors
    /// What is missing, or cannot be written.
    pub fn sign(&self, outgoing: &Outgoing<'_>, headers: &mut HeaderMap) -> Result<(), SignError> {
        let secret = || self.first_secret(outgoing.now);
        match &self.scheme {
            Scheme::None => Ok(()),
            Scheme::Token(token) => write_token(token, secret()?, headers),
            Scheme::Basic(basic) => write_basic(basic, secret()?, headers),
            Scheme::Signed(signed) => {
                let secret = secret()?;
                write_signature(signed, secret.index, outgoing, headers, &|template, parts| {
                    let mut mac = secret.start().ok_or(SignError::PublicKeyOnly)?;
                    template.feed(parts, secret.value.expose(), &mut mac);
                    Ok(mac.finish().as_bytes().to_vec())
                })
            }
            Scheme::Form(form) => form.sign(secret()?, outgoing, headers),
            Scheme::Posted(posted) => self.sign_posted(posted, outgoing),
            Scheme::Inside(inside) => self.sign_inside(inside, outgoing),
            Scheme::Jwt(jwt) => jwt.sign(secret()?, outgoing, headers),
            Scheme::Fetched(_) => Err(SignError::PublicKeyOnly),
        }
    }

    /// The body of `outgoing` with what its own verifier wants to find in it: a signature, a signed time. `None` where nothing of it
    /// stands in the body.
    ///
    /// # Errors
    /// The body has no place for it.
    pub fn complete(&self, outgoing: &Outgoing<'_>) -> Result<Option<Vec<u8>>, SignError> {
        match &self.scheme {
            Scheme::Inside(inside) => self.complete_inside(inside, outgoing).map(|body| Some(body.into_bytes())),
            Scheme::Posted(posted) => self.complete_posted(posted, outgoing).map(|body| Some(body.into_bytes())),
            Scheme::Signed(signed) => match &signed.time {
                Some(Time { place: Place::Body(path), unit, .. }) => {
                    let text = match unit {
                        Unit::Seconds | Unit::Millis => unit.write(outgoing.now),
                        Unit::Rfc3339 | Unit::HttpDate => serde_json::Value::from(unit.write(outgoing.now)).to_string(),
                    };
                    let steps: Vec<Step<'_>> = path.iter().map(|name| Step::Member(name)).collect();
                    let body = member::document(outgoing.body).and_then(|body| member::with(body, &steps, &text));
                    let none = || SignError::BodyTime { path: path.join("."), example: text.clone() };
                    body.map(|body| Some(body.into_bytes())).ok_or_else(none)
                }
                _ => Ok(None),
            },
            Scheme::None
            | Scheme::Token(_)
            | Scheme::Basic(_)
            | Scheme::Form(_)
            | Scheme::Jwt(_)
            | Scheme::Fetched(_) => Ok(None),
        }
    }

    /// The secret to sign with.
    pub(super) fn first_secret(&self, now: Wall) -> Result<&Armed, SignError> {
        self.secrets.iter().find(|armed| armed.in_use(When::At(now))).ok_or(SignError::NoSecret)
    }
}

impl Scheme {
    /// The algorithm of a signature whose private half only the sender has.
    #[must_use]
    pub fn public_alg(&self) -> Option<PublicAlg> {
        match self {
            Self::Signed(signed) => match signed.alg {
                Alg::Public(alg) => Some(alg),
                Alg::Hmac(_) | Alg::HmacNamed | Alg::Digest(_) => None,
            },
            _ => None,
        }
    }

    /// Adds the headers of a signature by a public key, made with `seal`, which has the private half and gets the signed text.
    ///
    /// # Errors
    /// What is missing or cannot be written; [`SignError::PublicKeyOnly`] where the scheme is of another kind.
    pub fn sign_by(
        &self,
        outgoing: &Outgoing<'_>,
        headers: &mut HeaderMap,
        seal: &dyn Fn(&[u8]) -> Vec<u8>,
    ) -> Result<(), SignError> {
        match self {
            Self::Signed(signed) if self.public_alg().is_some() => {
                write_signature(signed, 0, outgoing, headers, &|template, parts| Ok(seal(&template.joined(parts))))
            }
            _ => Err(SignError::PublicKeyOnly),
        }
    }
}

impl Outgoing<'_> {
    /// As its receiver would see it, as far as schemes go whose signature stands in the body.
    pub(super) fn as_request<'r>(&'r self, headers: &'r HeaderMap) -> Request<'r> {
        Request { method: self.method, target: "", seen_url: Some(self.url), headers, body: self.body }
    }
}

fn write_token(token: &Token, secret: &Armed, headers: &mut HeaderMap) -> Result<(), SignError> {
    let value = [token.before.text().as_bytes(), secret.value.expose()].concat();
    put_secret(headers, first(&token.headers), &value)
}

fn write_basic(basic: &Basic, secret: &Armed, headers: &mut HeaderMap) -> Result<(), SignError> {
    let credentials = match &basic.user {
        Some(user) => [user.as_bytes(), b":", secret.value.expose()].concat(),
        None => secret.value.expose().to_vec(),
    };
    let value = format!("Basic {}", Enc::Base64.encode(&credentials));
    put_secret(headers, &http::header::AUTHORIZATION, value.as_bytes())
}

/// What makes a signature of a signed text.
type Seal<'s> = &'s dyn Fn(&Template, &Parts<'_>) -> Result<Vec<u8>, SignError>;

/// `index` is the place of the secret that signs among those configured.
fn write_signature(
    signed: &Signed,
    index: usize,
    outgoing: &Outgoing<'_>,
    headers: &mut HeaderMap,
    seal: Seal<'_>,
) -> Result<(), SignError> {
    let time_text = write_time(signed, outgoing, headers)?;
    if let Some(name) = signed.id.first() {
        put(headers, name, outgoing.id.as_bytes(), "the message id")?;
    }
    // A provider's own HTTP client would have set it.
    if signed.template.uses(&Piece::Header(http::header::DATE)) && !headers.contains_key(http::header::DATE) {
        put(headers, &http::header::DATE, time::http_date(outgoing.now).as_bytes(), "the date")?;
    }
    for (name, value) in &signed.fixed {
        put(headers, name, value.as_bytes(), "what is fixed")?;
    }
    if let Some(list) = signed.template.list() {
        let names = signed.headers().others.join(",");
        put(headers, list, names.as_bytes(), "the names of the signed headers")?;
    }
    let target = canonical::target(None, target_of(outgoing.url), &signed.template);
    let listed = canonical::listed(signed, headers).map_err(|no| SignError::Body(no.to_string()))?;
    let parts = Parts {
        body: outgoing.body,
        time: time_text.as_bytes(),
        id: outgoing.id.as_bytes(),
        url: outgoing.url,
        url_decoded: &canonical::url_decoded(outgoing.url),
        method: outgoing.method.as_str(),
        headers: signed
            .template
            .headers()
            .map(|name| {
                one(headers, std::slice::from_ref(name), "").map_err(|_| SignError::MissingHeader(name.clone()))
            })
            .collect::<Result<_, _>>()?,
        target: &target,
        listed: &listed,
    };
    let seal = seal(&signed.template, &parts)?;
    let prefix = match signed.alg {
        // The first of the keys signs.
        Alg::HmacNamed => "sha256=",
        Alg::Hmac(_) | Alg::Digest(_) | Alg::Public(_) => signed.prefix.as_ref().map_or("", |prefix| &*prefix.text),
    };
    let signature = format!("{prefix}{}", signed.enc.encode(&seal));
    let value = as_items(signed, &time_text, &signature);
    match &signed.carrier {
        Carrier::Own(names) => {
            let name = names.get(index).expect("a secret that is used has a header of its own");
            put(headers, name, value.as_bytes(), "the signature")
        }
        Carrier::Header(names) => put(headers, first(names), value.as_bytes(), "the signature"),
        Carrier::Numbered(before) => {
            let name = HeaderName::from_bytes(format!("{before}1").as_bytes())
                .expect("a numbered carrier is a header's name without its number");
            put(headers, &name, value.as_bytes(), "the signature")
        }
    }
}

/// Writes the signed time where it stands in a header of its own; gives its text.
fn write_time(signed: &Signed, outgoing: &Outgoing<'_>, headers: &mut HeaderMap) -> Result<String, SignError> {
    let Some(Time { place, unit, .. }) = &signed.time else { return Ok(String::new()) };
    let text = unit.write(outgoing.now);
    match place {
        Place::Header(names) => put(headers, first(names), text.as_bytes(), "the time")?,
        Place::Item(_) | Place::FirstItem => {}
        Place::Body(path) => {
            time::in_body(outgoing.body, path, *unit)
                .map_err(|_| SignError::BodyTime { path: path.join("."), example: text.clone() })?;
        }
    }
    Ok(text)
}

/// A signature as it stands among its header's items.
fn as_items(signed: &Signed, time_text: &str, signature: &str) -> String {
    let separator = |list: &List| list.separators.chars().next().unwrap_or(',');
    match &signed.items {
        Items::Whole | Items::List(_) => signature.to_owned(),
        Items::TimeFirst(list) => format!("{time_text}{}{signature}", separator(list)),
        Items::Pairs { list, pair, take } => {
            let name = take.first().map_or("", |name| &**name);
            match signed.time.as_ref().map(|time| &time.place) {
                Some(Place::Item(time_name)) => {
                    format!("{time_name}{pair}{time_text}{}{name}{pair}{signature}", separator(list))
                }
                _ => format!("{name}{pair}{signature}"),
            }
        }
    }
}

/// Path and query of an address.
fn target_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or("/")
}

fn first(names: &[HeaderName]) -> &HeaderName {
    names.first().expect("a checked scheme names at least one header")
}

pub(super) fn put(
    headers: &mut HeaderMap,
    name: &HeaderName,
    value: &[u8],
    what: &'static str,
) -> Result<(), SignError> {
    let value = HeaderValue::from_bytes(value).map_err(|_| SignError::NotAHeader(what))?;
    headers.insert(name.clone(), value);
    Ok(())
}

/// As [`put`], for a value that holds the secret itself: no log and no HPACK table keeps it.
fn put_secret(headers: &mut HeaderMap, name: &HeaderName, value: &[u8]) -> Result<(), SignError> {
    let mut value = HeaderValue::from_bytes(value).map_err(|_| SignError::NotAHeader("the secret"))?;
    value.set_sensitive(true);
    headers.insert(name.clone(), value);
    Ok(())
}
