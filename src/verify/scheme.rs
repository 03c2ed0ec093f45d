//! A provider's way of signing, as data: one row of knowledge is one [`Scheme`] value.
//!
//! Nothing here computes; `judge.rs` reads these values to verify and `sign.rs` to sign, so that a
//! new provider is a new value. A family that these knobs cannot carry (public keys, tokens with
//! claims, signatures inside the body) is a further variant, and the compiler lists what is missing.

use std::time::Duration;

use http::HeaderName;

use super::encoding::{Enc, KeyForm};
use super::fetched::{self, Fetched, Of};
use super::form::{Form, FormText};
use super::inside::Inside;
use super::jwt::Jwt;
use super::mac::Hash;
use super::posted::Posted;
use super::public::PublicAlg;
use super::template::{Piece, Template};

/// How long a signed request stays good where its provider names no window, both ways: what
/// Standard Webhooks and Slack use, and what most documentation recommends.
pub const WINDOW_DEFAULT: Duration = Duration::from_secs(300);

/// How a sender proves that a request is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// It does not; the operator wrote that down.
    None,
    /// A header equals the secret.
    Token(Token),
    /// HTTP Basic (RFC 7617).
    Basic(Basic),
    /// A signature in a header over a text that is made of the request.
    Signed(Box<Signed>),
    /// A signature over the address and the fields of a form.
    Form(Form),
    /// Signature and signed text are fields of a form.
    Posted(Posted),
    /// A signature inside a JSON body, over some of its members.
    Inside(Box<Inside>),
    /// A signed token with claims about the request.
    Jwt(Box<Jwt>),
    /// A signature by a key that has to be fetched.
    Fetched(Box<Fetched>),
}

/// A header that equals the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Which; the first present one counts.
    pub headers: Vec<HeaderName>,
    /// What stands before the token.
    pub before: Before,
}

/// What stands before a token in its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// Exactly this text.
    Text(Box<str>),
    /// `Bearer` in any case, and blanks (RFC 6750 §2.1, RFC 9110 §11.1).
    Bearer,
}

/// HTTP Basic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basic {
    /// The user's name; without it a secret is the whole `user:password`.
    pub user: Option<Box<str>>,
}

/// A signature in a header over a text that is made of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// How it is made.
    pub alg: Alg,
    /// Where signatures stand.
    pub carrier: Carrier,
    /// How a header's value falls into signatures.
    pub items: Items,
    /// What stands before each signature.
    pub prefix: Option<Prefix>,
    /// How a signature is written.
    pub enc: Enc,
    /// The signed text.
    pub template: Template,
    /// How a secret becomes the key.
    pub key: KeyForm,
    /// The signed time, where there is one.
    pub time: Option<Time>,
    /// Headers that hold the message id; the first present one counts. Empty: no id is signed.
    pub id: Vec<HeaderName>,
    /// Headers that must say exactly this: the version and the algorithm that the rest is for.
    pub fixed: Vec<(HeaderName, &'static str)>,
}

/// How a text is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alg {
    /// HMAC (RFC 2104).
    Hmac(Hash),
    /// HMAC with the hash that stands before the signature: `sha256=…` (WebSub).
    HmacNamed,
    /// The plain hash of a text that contains the secret.
    Digest(Hash),
    /// With a private key, whose public half is what we have.
    Public(PublicAlg),
}

/// Where signatures stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// In one header; the first present one of these counts.
    Header(Vec<HeaderName>),
    /// In every header whose name is this, in lower case, and a number (`x-docusign-signature-1`,
    /// one for each active key).
    Numbered(&'static str),
    /// In headers of which each belongs to one secret, by its place in the configuration; one that
    /// is right suffices.
    Own(Vec<HeaderName>),
}

/// How a header's value falls into signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Items {
    /// It is one signature.
    Whole,
    /// A list of signatures.
    List(List),
    /// A list whose first item is the time and whose others are signatures.
    TimeFirst(List),
    /// A list of `name` `pair` `value`; those named in `take` are signatures, of the others a
    /// time may be one, the rest is ignored.
    Pairs {
        /// How the list is cut.
        list: List,
        /// Between name and value.
        pair: Box<str>,
        /// The names of signatures.
        take: Vec<Box<str>>,
    },
}

/// How a list is cut into items; empty items do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Any of these characters separates two items.
    pub separators: Box<str>,
    /// Blanks around items are not part of them.
    pub trim: bool,
}

/// What stands before each signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The text.
    pub text: Box<str>,
    /// It may be left out.
    pub optional: bool,
}

/// A signed time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// Where it stands.
    pub place: Place,
    /// How it is written.
    pub unit: Unit,
    /// The provider's window; `None`: it names none, and [`WINDOW_DEFAULT`] holds both ways.
    pub window: Option<Window>,
}

/// Where a signed time stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a header; the first present one of these counts.
    Header(Vec<HeaderName>),
    /// In the item of this name beside the signatures ([`Items::Pairs`]).
    Item(Box<str>),
    /// In the first item ([`Items::TimeFirst`]).
    FirstItem,
    /// In the JSON body: names of members, one inside the other. Read only after the signature
    /// over the body was found right.
    Body(Vec<Box<str>>),
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole seconds since 1970.
    Seconds,
    /// Whole milliseconds since 1970.
    Millis,
    /// RFC 3339 with an offset.
    Rfc3339,
    /// The date of an HTTP header (RFC 9110 §5.6.7).
    HttpDate,
}

impl Unit {
    /// All of them, by the name that the configuration uses.
    pub const NAMED: [(&'static str, Self); 4] =
        [("s", Self::Seconds), ("ms", Self::Millis), ("rfc3339", Self::Rfc3339), ("http-date", Self::HttpDate)];
}

/// How far a signed time may be from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Behind ours at most so far.
    pub old: Duration,
    /// Ahead of ours at most so far; `None`: any.
    pub future: Option<Duration>,
}

impl Window {
    /// The same both ways.
    #[must_use]
    pub const fn both(span: Duration) -> Self {
        Self { old: span, future: Some(span) }
    }
}

impl Scheme {
    /// The word for it in labels and messages where no preset gives it a name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Token(Token { before: Before::Bearer, .. }) => "bearer",
            Self::Token(_) => "token",
            Self::Basic(_) => "basic",
            Self::Signed(signed) => match signed.alg {
                Alg::Hmac(_) | Alg::HmacNamed => "hmac",
                Alg::Digest(_) => "digest",
                Alg::Public(_) => "public-key",
            },
            Self::Form(_) | Self::Posted(_) => "form",
            Self::Inside(_) => "body",
            Self::Jwt(_) => "jwt",
            Self::Fetched(_) => "fetched-key",
        }
    }

    /// The signed time, where there is one.
    #[must_use]
    pub fn time(&self) -> Option<&Time> {
        match self {
            Self::Signed(signed) => signed.time.as_ref(),
            Self::Inside(inside) => inside.time.as_ref(),
            Self::Fetched(fetched) => Some(&fetched.time),
            Self::None | Self::Token(_) | Self::Basic(_) | Self::Form(_) | Self::Posted(_) | Self::Jwt(_) => None,
        }
    }

    /// Whether the provider itself says how old a request may be.
    #[must_use]
    pub fn limits_age(&self) -> bool {
        matches!(self, Self::Jwt(_)) || self.time().is_some_and(|time| time.window.is_some())
    }

    /// Whether the signature covers the body; what stands anywhere else may then be believed only
    /// as far as the template names it.
    #[must_use]
    pub fn covers_body(&self) -> bool {
        match self {
            Self::Form(_) => true,
            // They cover parts of it.
            Self::Posted(_) | Self::Inside(_) => false,
            // Of SNS's body some members; of PayPal's a CRC-32, which anybody can keep while changing the rest.
            Self::Fetched(_) => false,
            Self::Signed(signed) => signed.template.uses(&Piece::Body),
            Self::Jwt(jwt) => jwt.body.is_some(),
            Self::None | Self::Token(_) | Self::Basic(_) => false,
        }
    }

    /// Whether the signature covers what stands at this key expression.
    #[must_use]
    pub fn covers(&self, rule: &str) -> bool {
        let in_body = rule.starts_with("body.") || rule.starts_with('$');
        match self {
            Self::Inside(inside) => in_body && inside.covers(rule),
            Self::Posted(_) => false,
            Self::Fetched(fetched) => fetched.of == Of::Sns && rule == "body.TopicArn",
            Self::Form(_) | Self::Signed(_) | Self::Jwt(_) | Self::None | Self::Token(_) | Self::Basic(_) => {
                in_body && self.covers_body()
            }
        }
    }

    /// Whether the signature covers the public address, so that `public_url` matters.
    #[must_use]
    pub fn covers_url(&self) -> bool {
        match self {
            Self::Form(_) => true,
            Self::Signed(signed) => signed.template.uses(&Piece::Url) || signed.template.uses(&Piece::UrlDecoded),
            Self::Jwt(jwt) => jwt.covers_url(),
            Self::None | Self::Token(_) | Self::Basic(_) | Self::Posted(_) | Self::Inside(_) | Self::Fetched(_) => {
                false
            }
        }
    }

    /// Whether each secret belongs to a header of its own, so that one may be left empty to say which the others are.
    #[must_use]
    pub fn has_a_header_for_each_secret(&self) -> bool {
        matches!(self, Self::Signed(signed) if matches!(signed.carrier, Carrier::Own(_)))
    }

    /// The headers that a request must have for it: those that carry the proof (the first present
    /// one counts; one that ends in `-` stands for itself and a number), then the others.
    #[must_use]
    pub fn headers(&self) -> Headers {
        match self {
            Self::None | Self::Posted(_) | Self::Inside(_) => Headers::default(),
            Self::Fetched(fetched) => match fetched.of {
                Of::Sns => Headers::default(),
                Of::PayPal => Headers {
                    carriers: vec![fetched::PAYPAL_SIGNATURE.as_str().to_owned()],
                    others: texts(&fetched::PAYPAL_OTHERS).collect(),
                },
            },
            Self::Form(form) => {
                let carriers = vec![form.header.as_str().to_owned()];
                let others = match &form.text {
                    FormText::Plivo { nonce } => vec![nonce.as_str().to_owned()],
                    FormText::Twilio | FormText::Mandrill => Vec::new(),
                };
                Headers { carriers, others }
            }
            Self::Token(token) => Headers::carriers(&token.headers),
            Self::Jwt(jwt) => Headers::carriers(std::slice::from_ref(&jwt.header)),
            Self::Basic(_) => Headers::carriers(&[http::header::AUTHORIZATION]),
            Self::Signed(signed) => signed.headers(),
        }
    }

    /// The headers in which a sender's secret itself stands, or what serves as one: whoever reads them can send in its name. A
    /// signature is none, for it fits one request only.
    #[must_use]
    pub fn secret_headers(&self) -> Vec<HeaderName> {
        match self {
            Self::Token(token) => token.headers.clone(),
            Self::Jwt(jwt) => vec![jwt.header.clone()],
            Self::Basic(_) => vec![http::header::AUTHORIZATION],
            Self::None | Self::Form(_) | Self::Posted(_) | Self::Inside(_) | Self::Fetched(_) | Self::Signed(_) => {
                Vec::new()
            }
        }
    }

    /// Whether the knobs fit each other. Every preset passes; a generic scheme may not.
    ///
    /// # Errors
    /// The knob at fault, by its name in the configuration, and what is wrong in words.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        match self {
            Self::None | Self::Form(_) | Self::Posted(_) | Self::Inside(_) | Self::Jwt(_) | Self::Fetched(_) => Ok(()),
            Self::Token(token) if token.headers.is_empty() => Err(("header", "the token's header is missing".into())),
            Self::Token(_) => Ok(()),
            Self::Basic(basic) => match &basic.user {
                Some(user) if user.contains(':') => {
                    Err(("user", "a user name cannot contain a colon (RFC 7617 §2): the first one ends it".into()))
                }
                _ => Ok(()),
            },
            Self::Signed(signed) => signed.check(),
        }
    }
}

/// The names of headers that a scheme reads, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Where the proof stands.
    pub carriers: Vec<String>,
    /// What else must be there.
    pub others: Vec<String>,
}

impl Headers {
    fn carriers(names: &[HeaderName]) -> Self {
        Self { carriers: texts(names).collect(), others: Vec::new() }
    }
}

fn texts(names: &[HeaderName]) -> impl Iterator<Item = String> {
    names.iter().map(|name| name.as_str().to_owned())
}

impl Signed {
    pub(super) fn headers(&self) -> Headers {
        let time = match self.time.as_ref().map(|time| &time.place) {
            Some(Place::Header(names)) => names.as_slice(),
            Some(Place::Item(_) | Place::FirstItem | Place::Body(_)) | None => &[],
        };
        let in_text = self.template.headers().chain(self.template.list()).map(|name| name.as_str().to_owned());
        let fixed = self.fixed.iter().map(|(name, _)| name.as_str().to_owned());
        Headers {
            carriers: match &self.carrier {
                Carrier::Header(names) | Carrier::Own(names) => texts(names).collect(),
                Carrier::Numbered(before) => vec![(*before).to_owned()],
            },
            others: texts(&self.id).chain(texts(time)).chain(in_text).chain(fixed).collect(),
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let wrong = |knob, problem: &str| Err((knob, problem.to_owned()));
        if let Carrier::Header(headers) | Carrier::Own(headers) = &self.carrier
            && headers.is_empty()
        {
            return wrong("header", "the signature's header is missing");
        }
        if matches!(self.alg, Alg::Digest(_)) && !self.template.uses(&Piece::Secret) {
            return wrong("template", "a plain hash without {secret} in its text is no proof: anybody can compute it");
        }
        if self.template.uses(&Piece::Id) == self.id.is_empty() {
            return match self.id.is_empty() {
                true => wrong("template", "it uses {id}, but `id` does not say which header holds it"),
                false => wrong("id", "an id is named, but the template does not use {id}"),
            };
        }
        self.check_items()?;
        self.check_time()
    }

    fn check_items(&self) -> Result<(), (&'static str, String)> {
        let wrong = |knob, problem: &str| Err((knob, problem.to_owned()));
        let list = match &self.items {
            Items::Whole => return Ok(()),
            Items::List(list) | Items::TimeFirst(list) => list,
            Items::Pairs { list, pair, take } => {
                if take.is_empty() {
                    return wrong("take", "it must name the items that are signatures, e.g. [v1]");
                }
                if pair.is_empty() {
                    return wrong("pair", "it must be the text between an item's name and its value, e.g. \"=\"");
                }
                list
            }
        };
        match list.separators.is_empty() {
            true => wrong("separator", "it must be the character between items, e.g. \",\""),
            false => Ok(()),
        }
    }

    fn check_time(&self) -> Result<(), (&'static str, String)> {
        let wrong = |knob, problem: &str| Err((knob, problem.to_owned()));
        let in_text = self.template.uses(&Piece::Time);
        let Some(time) = &self.time else {
            return match in_text {
                true => wrong("template", "it uses {ts}, but `timestamp` does not say where that stands"),
                false => Ok(()),
            };
        };
        match (&time.place, &self.items) {
            (Place::Body(_), _) if in_text => {
                wrong("template", "{ts} cannot be a member of the body: the body is read only after it was verified")
            }
            (Place::Body(_), _) if !self.template.uses(&Piece::Body) => {
                wrong("template", "the timestamp is in the body, but the signature does not cover {body}")
            }
            (Place::Body(path), _) if path.is_empty() => wrong("timestamp", "the path into the body is empty"),
            (Place::Header(headers), _) if headers.is_empty() => wrong("timestamp", "its header is missing"),
            // A list of signed headers must name it, which each request is asked for.
            (Place::Header(_), _) if !in_text && self.template.list().is_some() => Ok(()),
            (Place::Header(_) | Place::Item(_) | Place::FirstItem, _) if !in_text => {
                wrong("template", "the timestamp is not part of the signed text ({ts}): anybody could renew it")
            }
            (Place::Item(name), Items::Pairs { take, .. }) if take.contains(name) => {
                wrong("timestamp", "its item is one of the signatures in `take`")
            }
            (Place::Item(_), Items::Whole | Items::List(_) | Items::TimeFirst(_)) => {
                wrong("timestamp", "an item needs `separator`, `pair` and `take`")
            }
            (Place::FirstItem, Items::Whole | Items::List(_) | Items::Pairs { .. }) => {
                wrong("timestamp", "the first item needs `separator` and no `pair`")
            }
            (place, Items::TimeFirst(_)) if !matches!(place, Place::FirstItem) => {
                wrong("timestamp", "the list begins with the time, so it stands in the first item")
            }
            _ => Ok(()),
        }
    }
}
