//! Short words to write a row with.

use std::time::Duration;

use http::HeaderName;

use super::Preset;
use crate::verify::encoding::{Enc, KeyForm};
use crate::verify::fetched::{Fetched, Of};
use crate::verify::form::{Form, FormText};
use crate::verify::inside::{Inside, Path, Proof};
use crate::verify::jwt::Jwt;
use crate::verify::mac::Hash;
use crate::verify::public::PublicAlg;
use crate::verify::scheme::{
    Alg, Basic, Before, Carrier, Items, List, Place, Prefix, Scheme, Signed, Time, Token, Unit, Window,
};
use crate::verify::template::{Piece, Template};

/// A row about which nothing is known but how it signs.
pub(super) fn row(name: &'static str, title: &'static str, scheme: impl Into<Scheme>, note: &'static str) -> Preset {
    Preset {
        name,
        title,
        scheme: scheme.into(),
        natural_key: &[],
        reserved_lane: None,
        namespace: None,
        key_signed: false,
        event_id: None,
        event_type: None,
        answer_limit: None,
        repeats: None,
        secret: None,
        failures: None,
        ack: None,
        note,
    }
}

impl Preset {
    /// What its secret is.
    pub(super) fn secret(self, words: &'static str) -> Self {
        Self { secret: Some(words), ..self }
    }

    /// What it repeats, and when it gives up.
    pub(super) fn failures(self, words: &'static str) -> Self {
        Self { failures: Some(words), ..self }
    }

    /// What it takes for an acknowledgement.
    pub(super) fn ack(self, words: &'static str) -> Self {
        Self { ack: Some(words), ..self }
    }
}

/// Whole seconds.
pub(super) const fn s(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// HMAC-SHA256 of the body in lower-case hex, in this header: what most providers do. The other
/// words change one knob each.
pub(super) fn hmac(header: &'static str) -> Signed {
    Signed {
        alg: Alg::Hmac(Hash::Sha256),
        carrier: Carrier::Header(names(&[header])),
        items: Items::Whole,
        prefix: None,
        enc: Enc::Hex,
        template: template("{body}"),
        key: KeyForm::Text,
        time: None,
        id: Vec::new(),
        fixed: Vec::new(),
    }
}

/// The Standard Webhooks construction under these header names.
pub(super) fn standard(id: &[&'static str], timestamp: &[&'static str], signature: &[&'static str]) -> Signed {
    let mut signed = hmac("webhook-signature").base64().over("{id}.{ts}.{body}").key(KeyForm::Whsec);
    signed.carrier = Carrier::Header(names(signature));
    signed.id = names(id);
    signed.pairs(" ", ",", "v1").time(Place::Header(names(timestamp)), Unit::Seconds).both(300)
}

/// Equality with a header.
pub(super) fn token(header: &'static str) -> Scheme {
    Scheme::Token(Token { headers: names(&[header]), before: Before::Nothing })
}

/// HTTP Basic with `user:password` as the secret.
pub(super) fn basic() -> Scheme {
    Scheme::Basic(Basic { user: None })
}

/// A signature over the address and the fields of a form.
pub(super) fn form(header: &'static str, hash: Hash, text: FormText) -> Scheme {
    Scheme::Form(Form { header: HeaderName::from_static(header), hash, text })
}

fn names(names: &[&'static str]) -> Vec<HeaderName> {
    names.iter().map(|name| HeaderName::from_static(name)).collect()
}

fn template(text: &str) -> Template {
    Template::parse(text).expect("the templates of presets are right; a test builds every row")
}

impl Signed {
    pub(super) fn sha1(self) -> Self {
        Self { alg: Alg::Hmac(Hash::Sha1), ..self }
    }

    pub(super) fn sha512(self) -> Self {
        Self { alg: Alg::Hmac(Hash::Sha512), ..self }
    }

    /// The hash that stands before the signature.
    pub(super) fn hash_named(self) -> Self {
        Self { alg: Alg::HmacNamed, ..self }
    }

    /// Method, address with some escapes undone, body, time.
    pub(super) fn over_hubspot_v3(self) -> Self {
        Self { template: Template::of(vec![Piece::Method, Piece::UrlDecoded, Piece::Body, Piece::Time]), ..self }
    }

    /// A plain SHA-256 whose text contains the secret.
    pub(super) fn digest(self) -> Self {
        Self { alg: Alg::Digest(Hash::Sha256), ..self }
    }

    /// A public key, written in this form.
    pub(super) fn public(self, alg: PublicAlg, key: KeyForm) -> Self {
        Self { alg: Alg::Public(alg), key, ..self }
    }

    /// A further name of the signature's header.
    pub(super) fn or_header(mut self, name: &'static str) -> Self {
        if let Carrier::Header(headers) = &mut self.carrier {
            headers.push(HeaderName::from_static(name));
        }
        self
    }

    /// One header for each active key, this name and a number.
    pub(super) fn numbered(self, before: &'static str) -> Self {
        Self { carrier: Carrier::Numbered(before), ..self }
    }

    /// A header of its own for each secret.
    pub(super) fn own_headers(self, headers: &[&'static str]) -> Self {
        Self { carrier: Carrier::Own(names(headers)), ..self }
    }

    /// A header that must say this.
    pub(super) fn fixed(mut self, header: &'static str, value: &'static str) -> Self {
        self.fixed.push((HeaderName::from_static(header), value));
        self
    }

    /// Method, target, the headers that this one lists, and body, a line each.
    pub(super) fn over_request(self, list: &'static str) -> Self {
        let newline = || Piece::Text("\n".into());
        let list = Piece::Listed(HeaderName::from_static(list));
        let pieces = vec![Piece::Method, newline(), Piece::Target, newline(), list, newline(), Piece::Body];
        Self { template: Template::of(pieces), ..self }
    }

    pub(super) fn prefix(self, text: &'static str) -> Self {
        Self { prefix: Some(Prefix { text: text.into(), optional: false }), ..self }
    }

    pub(super) fn maybe_prefix(self, text: &'static str) -> Self {
        Self { prefix: Some(Prefix { text: text.into(), optional: true }), ..self }
    }

    pub(super) fn base64(self) -> Self {
        Self { enc: Enc::Base64, ..self }
    }

    pub(super) fn base64url(self) -> Self {
        Self { enc: Enc::Base64Url, ..self }
    }

    pub(super) fn over(self, text: &str) -> Self {
        Self { template: template(text), ..self }
    }

    pub(super) fn key(self, key: KeyForm) -> Self {
        Self { key, ..self }
    }

    pub(super) fn id(self, header: &'static str) -> Self {
        Self { id: names(&[header]), ..self }
    }

    /// Items of name and value; `take` names those that are signatures.
    pub(super) fn pairs(self, separators: &str, pair: &str, take: &str) -> Self {
        let list = List { separators: separators.into(), trim: false };
        Self { items: Items::Pairs { list, pair: pair.into(), take: vec![take.into()] }, ..self }
    }

    /// Other items than those named before are the signatures.
    pub(super) fn take(mut self, name: &str) -> Self {
        if let Items::Pairs { take, .. } = &mut self.items {
            *take = vec![name.into()];
        }
        self
    }

    /// Blanks around items do not count.
    pub(super) fn trimmed(mut self) -> Self {
        if let Items::Pairs { list, .. } | Items::List(list) | Items::TimeFirst(list) = &mut self.items {
            list.trim = true;
        }
        self
    }

    /// The first item is the time, in this unit, the others are signatures.
    pub(super) fn time_first(self, separators: &str, unit: Unit) -> Self {
        let items = Items::TimeFirst(List { separators: separators.into(), trim: false });
        Self { items, ..self }.time(Place::FirstItem, unit)
    }

    pub(super) fn time_header(self, name: &'static str, unit: Unit) -> Self {
        self.time(Place::Header(names(&[name])), unit)
    }

    pub(super) fn time_item(self, name: &str, unit: Unit) -> Self {
        self.time(Place::Item(name.into()), unit)
    }

    pub(super) fn time_member(self, name: &str, unit: Unit) -> Self {
        self.time(Place::Body(vec![name.into()]), unit)
    }

    fn time(self, place: Place, unit: Unit) -> Self {
        Self { time: Some(Time { place, unit, window: None }), ..self }
    }

    /// The documented window, both ways.
    pub(super) fn both(self, seconds: u64) -> Self {
        self.window(Window::both(Duration::from_secs(seconds)))
    }

    /// The documented window for times gone by; those to come are not refused.
    pub(super) fn old(self, seconds: u64) -> Self {
        self.window(Window { old: Duration::from_secs(seconds), future: None })
    }

    fn window(mut self, window: Window) -> Self {
        if let Some(time) = &mut self.time {
            time.window = Some(window);
        }
        self
    }
}

/// A signature by a key that has to be fetched, at a time that may be so many seconds old, for the sender repeats what it
/// signed once.
pub(super) fn fetched(of: Of, place: Place, old: u64) -> Fetched {
    let window = Window { old: Duration::from_secs(old), future: Some(Duration::from_secs(300)) };
    Fetched { of, time: Time { place, unit: Unit::Rfc3339, window: Some(window) } }
}

/// HMAC-SHA256 inside a body that is the one item.
pub(super) fn inside(signature: Path, text: &'static [Path]) -> Inside {
    Inside {
        proof: Proof::Hmac(Hash::Sha256, Enc::Hex),
        key: KeyForm::Text,
        each: None,
        signature,
        text,
        between: "",
        time: None,
    }
}

/// A token in this header that says nothing yet about the request.
pub(super) fn jwt(header: &'static str, hashes: &'static [Hash]) -> Jwt {
    Jwt {
        header: HeaderName::from_static(header),
        hashes,
        issuer: None,
        id: None,
        body: None,
        url: None,
        audience: false,
        ends: false,
        slack_ms: 1_000,
    }
}

impl From<Fetched> for Scheme {
    fn from(fetched: Fetched) -> Self {
        Self::Fetched(Box::new(fetched))
    }
}

impl From<Jwt> for Scheme {
    fn from(jwt: Jwt) -> Self {
        Self::Jwt(Box::new(jwt))
    }
}

impl From<Inside> for Scheme {
    fn from(inside: Inside) -> Self {
        Self::Inside(Box::new(inside))
    }
}

impl From<Signed> for Scheme {
    fn from(signed: Signed) -> Self {
        Self::Signed(Box::new(signed))
    }
}
