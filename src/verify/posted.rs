//! Signature and signed text as two fields of a form: Braintree.
//!
//! One field holds pairs of a public key and a signature, the other the text that was signed. A
//! secret is `public key:private key`; it is tried against the signatures that stand beside its
//! public key, and the HMAC's key is the SHA-1 of the private one
//! (braintree/braintree_python, webhook_notification_gateway).

use std::borrow::Cow;

use http::HeaderMap;

use super::encoding::Enc;
use super::form::fields;
use super::judge::{Request, Verified, Verifier, When};
use super::mac::{Hash, Key, Mac};
use super::reject::Rejection;
use super::scheme::Scheme;
use super::sign::{Outgoing, SignError};

/// What a secret looks like.
pub(super) const SECRET: &str = "public key:private key";
/// Signatures that are looked at: one for each active key.
const PAIRS_MAX: usize = 64;
/// Fields that are looked at: there are two.
const FIELDS_MAX: usize = 16;

/// Signature and signed text as two fields of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The field that holds `public key|hex` pairs, joined by `&`.
    pub signature: &'static str,
    /// The field that was signed, as it is or with a newline behind it.
    pub payload: &'static str,
}

/// The HMAC's key of a secret; `None` when it is no pair.
pub(super) fn key(secret: &[u8]) -> Option<Key> {
    let (_, private) = halves(secret)?;
    let mut hash = Mac::plain(Hash::Sha1);
    hash.update(private);
    Some(Key::new(Hash::Sha1, hash.finish().as_bytes()))
}

/// The public key of a secret; `None` when it is no pair.
pub(super) fn public_key(secret: &[u8]) -> Option<&[u8]> {
    halves(secret).map(|(public, _)| public)
}

/// The public and the private key.
fn halves(secret: &[u8]) -> Option<(&[u8], &[u8])> {
    let (public, private) = secret.split_at_checked(secret.iter().position(|byte| *byte == b':')?)?;
    let private = private.strip_prefix(b":")?;
    (!public.is_empty() && !private.is_empty()).then_some((public, private))
}

impl Verifier {
    /// The signed text of a form whose fields hold signature and text; `None` for other schemes, and where there is none.
    pub(super) fn posted_payload<'b>(&self, body: &'b [u8]) -> Option<Cow<'b, [u8]>> {
        match &self.scheme {
            Scheme::Posted(posted) => posted.payload(body).ok(),
            _ => None,
        }
    }

    /// Judges a form whose fields hold signature and text.
    pub(super) fn posted(&self, posted: &Posted, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        let payload = posted.payload(request.body)?;
        let list = field(request.body, posted.signature)
            .ok_or_else(|| malformed(format!("the field {} is missing", posted.signature)))?;
        let pairs: Vec<_> = list.split(|byte| *byte == b'&').take(PAIRS_MAX + 1).collect();
        if pairs.len() > PAIRS_MAX {
            return Err(malformed(format!("{} holds more than {PAIRS_MAX} signatures", posted.signature)));
        }
        let matched = self.first_match(when, |armed| {
            let Some((public, _)) = halves(armed.value.expose()) else { return false };
            let own = pairs.iter().filter_map(|pair| pair.strip_prefix(public)?.strip_prefix(b"|"));
            let claimed: Vec<_> = own.filter_map(|hex| Enc::Hex.decode(hex)).collect();
            armed.gives(&[&payload], &claimed) | armed.gives(&[&payload, b"\n"], &claimed)
        })?;
        matched.ok_or_else(|| Rejection::BadSignature {
            place: format!("the field {}", posted.signature),
            secrets: self.live_count(when),
            url: None,
        })
    }

    /// The form with the signature that makes it genuine; of two fields of one name the last one counts.
    pub(super) fn complete_posted(&self, posted: &Posted, outgoing: &Outgoing<'_>) -> Result<String, SignError> {
        match self.sign_posted(posted, outgoing) {
            Err(SignError::BodySignature { path, example }) => {
                let field = form_urlencoded::Serializer::new(String::new()).append_pair(&path, &example).finish();
                Ok(format!("{}&{field}", String::from_utf8_lossy(outgoing.body).trim_end_matches(['\n', '\r'])))
            }
            Ok(()) => Ok(String::from_utf8_lossy(outgoing.body).into_owned()),
            Err(other) => Err(other),
        }
    }

    /// The body is what it is: a wrong signature in it is told with the right one.
    pub(super) fn sign_posted(&self, posted: &Posted, outgoing: &Outgoing<'_>) -> Result<(), SignError> {
        let headers = HeaderMap::new();
        if self.posted(posted, &outgoing.as_request(&headers), When::At(outgoing.now)).is_ok() {
            return Ok(());
        }
        let secret = self.first_secret(outgoing.now)?;
        let payload = posted.payload(outgoing.body).map_err(|no| SignError::Body(no.to_string()))?;
        let (public, _) = halves(secret.value.expose()).ok_or(SignError::NoSecret)?;
        let tag = secret.tag(&[&payload]).ok_or(SignError::PublicKeyOnly)?;
        let example = format!("{}|{}", String::from_utf8_lossy(public), Enc::Hex.encode(tag.as_bytes()));
        Err(SignError::BodySignature { path: posted.signature.to_owned(), example })
    }
}

impl Posted {
    /// The signed text; only what base64 and its lines are made of, so that it means one thing to
    /// every reader.
    fn payload<'b>(&self, body: &'b [u8]) -> Result<Cow<'b, [u8]>, Rejection> {
        let payload = field(body, self.payload).filter(|payload| !payload.is_empty());
        let payload = payload.ok_or_else(|| malformed(format!("the field {} is missing", self.payload)))?;
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'=' | b'/' | b'\n');
        match payload.iter().all(plain) {
            true => Ok(payload),
            false => Err(malformed(format!("the field {} holds more than base64", self.payload))),
        }
    }
}

/// The last field of this name, as in the receivers' parsers.
fn field<'b>(body: &'b [u8], name: &str) -> Option<Cow<'b, [u8]>> {
    fields(body).take(FIELDS_MAX).filter(|[own, _]| **own == *name.as_bytes()).last().map(|[_, value]| value)
}

fn malformed(problem: String) -> Rejection {
    Rejection::MalformedBody { problem }
}
