//! Secrets made ready: what a scheme makes of each one, once, when the verifier is made.

use std::sync::Arc;

use super::fetched::Of;
use super::inside::Proof;
use super::judge::When;
use super::mac::{Hash, Key, Mac, Tag};
use super::public::PublicKey;
use super::scheme::{Alg, Basic, Carrier, Scheme};
use super::spec::{SecretSpec, SpecError};
use crate::event::{Secret, Wall};

/// A secret made ready.
pub(super) struct Armed {
    pub(super) value: Secret,
    pub(super) until: Option<Wall>,
    pub(super) label: Arc<str>,
    /// Its place in the configuration.
    pub(super) index: usize,
    key: Armament,
}

/// What a scheme made of a secret.
pub(super) enum Armament {
    /// Nothing: its text is compared.
    Text,
    /// There is none in this place.
    Absent,
    /// An HMAC's scheduled key.
    Hmac(Box<Key>),
    /// The scheduled keys of several HMACs, of which the request names one; the first one signs.
    Hmacs(Vec<(Hash, Key)>),
    /// The hash of a text that contains it.
    Digest(Hash),
    /// The public key that it is.
    Public(Box<PublicKey>),
}

impl Armed {
    /// Whether it is tried.
    pub(super) fn in_use(&self, when: When) -> bool {
        match (self.until, when) {
            _ if matches!(self.key, Armament::Absent) => false,
            (Some(until), When::At(now)) => now < until,
            (None, _) | (_, When::AnyAge | When::Opaque) => true,
        }
    }

    /// Begins a signed text; `None` where this secret cannot sign.
    pub(super) fn start(&self) -> Option<Mac> {
        match &self.key {
            Armament::Hmac(key) => Some(key.start()),
            Armament::Hmacs(keys) => keys.first().map(|(_, key)| key.start()),
            Armament::Digest(hash) => Some(Mac::plain(*hash)),
            Armament::Text | Armament::Absent | Armament::Public(_) => None,
        }
    }

    /// What it gives for the text of these pieces; `None` where it cannot sign.
    pub(super) fn tag(&self, pieces: &[&[u8]]) -> Option<Tag> {
        let mut mac = self.start()?;
        pieces.iter().for_each(|piece| mac.update(piece));
        Some(mac.finish())
    }

    /// Begins a signed text with the HMAC that a request names; `None` where it has no such key.
    pub(super) fn start_with(&self, named: Hash) -> Option<Mac> {
        match &self.key {
            Armament::Hmacs(keys) => keys.iter().find(|(hash, _)| *hash == named).map(|(_, key)| key.start()),
            _ => None,
        }
    }

    /// As [`Armed::tag`], with the HMAC that a request names.
    pub(super) fn tag_with(&self, named: Hash, pieces: &[&[u8]]) -> Option<Tag> {
        let mut mac = self.start_with(named)?;
        pieces.iter().for_each(|piece| mac.update(piece));
        Some(mac.finish())
    }

    /// Whether one of `claimed` is what it gives for the text of these pieces.
    pub(super) fn gives(&self, pieces: &[&[u8]], claimed: &[Vec<u8>]) -> bool {
        self.tag(pieces).is_some_and(|tag| is_among(&tag, claimed))
    }

    /// Whether `signature` was made over `text` by the other half of this public key.
    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        matches!(&self.key, Armament::Public(key) if key.verifies(text, signature))
    }
}

/// Not `any`: every candidate costs the same, wherever the right one stands.
pub(super) fn is_among(tag: &Tag, claimed: &[Vec<u8>]) -> bool {
    claimed.iter().fold(false, |hit, claimed| hit | tag.matches(claimed))
}

/// Makes the secrets of `scheme` ready.
pub(super) fn arm(name: &str, scheme: &Scheme, secrets: Vec<SecretSpec>) -> Result<Vec<Armed>, SpecError> {
    match (scheme, secrets.is_empty()) {
        (Scheme::None, true) => return Ok(Vec::new()),
        (Scheme::None, false) => return Err(SpecError::SecretUnused),
        (Scheme::Fetched(fetched), true) if fetched.of == Of::Sns => return Ok(Vec::new()),
        (Scheme::Fetched(fetched), false) if fetched.of == Of::Sns => {
            let problem = format!("{name} has no secret: its topics say who may send");
            return Err(SpecError::Field { field: "secrets", problem });
        }
        (_, true) => return Err(SpecError::NoSecret { scheme: name.to_owned() }),
        (_, false) => {}
    }
    let arm_one = |(index, secret): (usize, SecretSpec)| {
        let key = armament(scheme, index, secret.value.expose()).map_err(|expected| SpecError::SecretForm {
            index,
            scheme: name.to_owned(),
            expected,
        })?;
        let label = format!("{name} secret={index}").into();
        Ok(Armed { value: secret.value, until: secret.until, label, index, key })
    };
    let armed: Vec<_> = secrets.into_iter().enumerate().map(arm_one).collect::<Result<_, _>>()?;
    match armed.iter().all(|armed| matches!(armed.key, Armament::Absent)) {
        true => Err(SpecError::NoSecret { scheme: name.to_owned() }),
        false => Ok(armed),
    }
}

/// What `scheme` makes of a secret's text; else what the text should be.
fn armament(scheme: &Scheme, index: usize, text: &[u8]) -> Result<Armament, &'static str> {
    match scheme {
        Scheme::Signed(signed) if let Carrier::Own(headers) = &signed.carrier => match headers.len() {
            most if index >= most => return Err("no further secret: each one has a header of its own"),
            // Which place a key stands in says which header it belongs to, so a place may be empty.
            _ if text.is_empty() => return Ok(Armament::Absent),
            _ => {}
        },
        _ if text.is_empty() => return Err("text that is not empty"),
        _ => {}
    }
    match scheme {
        Scheme::Signed(signed) => {
            let key = signed.key.key(text).ok_or_else(|| signed.key.looks_like())?;
            match signed.alg {
                Alg::Hmac(hash) => Ok(hmac(Key::new(hash, &key))),
                Alg::HmacNamed => Ok(hmacs(&NAMED, &key)),
                Alg::Digest(hash) => Ok(Armament::Digest(hash)),
                Alg::Public(alg) => {
                    PublicKey::read(alg, &key).map(Box::new).map(Armament::Public).ok_or_else(|| alg.looks_like())
                }
            }
        }
        Scheme::Inside(inside) => {
            let key = inside.key.key(text).ok_or_else(|| inside.key.looks_like())?;
            match inside.proof {
                Proof::Hmac(hash, _) => Ok(hmac(Key::new(hash, &key))),
                Proof::Equal => Ok(Armament::Text),
            }
        }
        Scheme::Jwt(jwt) => Ok(hmacs(jwt.hashes, text)),
        Scheme::Form(form) => Ok(hmac(Key::new(form.hash, text))),
        Scheme::Posted(_) => super::posted::key(text).map(hmac).ok_or(super::posted::SECRET),
        Scheme::Basic(Basic { user: None }) if !text.contains(&b':') => {
            Err("user:password, or the password alone and `user` beside it")
        }
        Scheme::None | Scheme::Token(_) | Scheme::Basic(_) | Scheme::Fetched(_) => Ok(Armament::Text),
    }
}

fn hmac(key: Key) -> Armament {
    Armament::Hmac(Box::new(key))
}

/// The hashes that a prefix may name, the best of those that everybody has first.
const NAMED: [Hash; 4] = [Hash::Sha256, Hash::Sha512, Hash::Sha384, Hash::Sha1];

fn hmacs(hashes: &[Hash], key: &[u8]) -> Armament {
    Armament::Hmacs(hashes.iter().map(|hash| (*hash, Key::new(*hash, key))).collect())
}
