//! Tokens with claims (JSON Web Tokens, RFC 7519) that are signed with a shared secret: what the
//! token says about the request must be true of it.
//!
//! Strict: three parts in base64url without padding, an HMAC that the scheme allows and never
//! `none`, no critical extensions (RFC 7515 §4.1.11). The claims are read only after the signature
//! over them was right.

use std::slice;

use http::{HeaderMap, HeaderName};
use serde_json::value::RawValue;

use super::armed::Armed;
use super::encoding::Enc;
use super::found::one;
use super::judge::{Request, Verified, Verifier, When};
use super::mac::{Hash, sha256};
use super::member::{at, document, scalar};
use super::reject::{Rejection, shown, shown_url};
use super::sign::{Outgoing, SignError, put};
use super::time::{show_ms, wall_ms};
use crate::event::Wall;

/// How long a token that we make is good.
const LIFE_S: i64 = 60;

/// A signed token in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// Where it stands.
    pub header: HeaderName,
    /// The hashes of the HMAC that it may choose from.
    pub hashes: &'static [Hash],
    /// Who must have made it.
    pub issuer: Option<&'static str>,
    /// A claim that must be there, whatever it says.
    pub id: Option<&'static str>,
    /// The claim that holds the SHA-256 of the body in hex.
    pub body: Option<BodyClaim>,
    /// The claim that holds the SHA-256 of the public address in hex.
    pub url: Option<&'static str>,
    /// An audience that it names must be the public address.
    pub audience: bool,
    /// Whether it must say when it ends. Where it says when it begins or ends, that is judged.
    pub ends: bool,
    /// How far its clock may be from ours, in milliseconds.
    pub slack_ms: i64,
}

/// The claim that covers the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyClaim {
    /// Its name.
    pub name: &'static str,
    /// It is left out exactly where the body is empty.
    pub absent_when_empty: bool,
}

/// A token's parts, as far as they can be believed before its signature was judged.
struct Token<'t> {
    hash: Hash,
    /// What is signed: head, dot, claims.
    text: &'t [u8],
    claims: Vec<u8>,
    signature: Vec<u8>,
}

impl Verifier {
    /// Judges a token and what it says about the request.
    pub(super) fn jwt(&self, jwt: &Jwt, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        let value = one(request.headers, slice::from_ref(&jwt.header), "the signed token")?;
        let token = jwt.read(value)?;
        let matched = self.first_match(when, |armed| {
            armed.tag_with(token.hash, &[token.text]).is_some_and(|tag| tag.matches(&token.signature))
        })?;
        let verified = matched.ok_or_else(|| Rejection::BadSignature {
            place: jwt.header.to_string(),
            secrets: self.live_count(when),
            url: None,
        })?;
        let claims = document(&token.claims).filter(|claims| claims.get().starts_with('{'));
        let claims = claims.ok_or_else(|| Rejection::malformed(&jwt.header, "its claims are no JSON object"))?;
        if let When::At(now) = when {
            jwt.check_times(claims, now)?;
        }
        jwt.check_claims(claims)?;
        jwt.check_url(claims, || self.url(request))?;
        jwt.check_body(claims, request.body)?;
        Ok(verified)
    }
}

impl Jwt {
    /// Whether the signature covers the public address.
    pub(super) fn covers_url(&self) -> bool {
        self.url.is_some() || self.audience
    }

    fn read<'t>(&self, value: &'t [u8]) -> Result<Token<'t>, Rejection> {
        let no = |problem: &str| Rejection::malformed(&self.header, problem);
        let mut parts = value.split(|byte| *byte == b'.').map(decoded);
        let (Some(Some(head)), Some(Some(claims)), Some(Some(signature)), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(no("it is no token: three parts in base64url, joined by dots"));
        };
        let head = document(&head).ok_or_else(|| no("its first part is not JSON"))?;
        if at(head, &["crit"]).is_some() {
            return Err(no("it has critical extensions, of which none is known"));
        }
        let alg = at(head, &["alg"]).and_then(scalar).unwrap_or_default();
        let hash = self.hashes.iter().find(|hash| name(**hash) == alg).ok_or_else(|| {
            let known: Vec<_> = self.hashes.iter().map(|hash| name(*hash)).collect();
            no(&format!("its algorithm must be {}; found: {}", known.join(" or "), shown(alg.as_bytes())))
        })?;
        let end = value.iter().rposition(|byte| *byte == b'.').unwrap_or_default();
        Ok(Token { hash: *hash, text: value.get(..end).unwrap_or_default(), claims, signature })
    }

    fn check_times(&self, claims: &RawValue, now: Wall) -> Result<(), Rejection> {
        let now_ms = wall_ms(now);
        let moment = |name: &'static str| match at(claims, &[name]) {
            None => Ok(None),
            Some(value) => numeric_date(value).map(Some).ok_or_else(|| self.bad(format!("{name} is no time"))),
        };
        if let Some(begins) = moment("nbf")?
            && now_ms < begins.saturating_sub(self.slack_ms)
        {
            return Err(self.bad(format!("it begins at {}, it is {} now", show_ms(begins), show_ms(now_ms))));
        }
        match moment("exp")? {
            Some(ends) if now_ms > ends.saturating_add(self.slack_ms) => {
                Err(self.bad(format!("it ended at {}, it is {} now", show_ms(ends), show_ms(now_ms))))
            }
            None if self.ends => Err(self.bad("it does not say when it ends (exp)".to_owned())),
            _ => Ok(()),
        }
    }

    fn check_claims(&self, claims: &RawValue) -> Result<(), Rejection> {
        let says = |name: &str| at(claims, &[name]).and_then(scalar).unwrap_or_default();
        if let Some(issuer) = self.issuer
            && says("iss") != issuer
        {
            return Err(self.bad(format!("its issuer must be {issuer}; found: {}", shown(says("iss").as_bytes()))));
        }
        match self.id {
            Some(id) if says(id).is_empty() => Err(self.bad(format!("it has no {id}"))),
            _ => Ok(()),
        }
    }

    fn check_url(&self, claims: &RawValue, url: impl FnOnce() -> Result<String, Rejection>) -> Result<(), Rejection> {
        if let Some(name) = self.url {
            let url = url()?;
            return match hash_in(claims, name).is_some_and(|hash| sha256(url.as_bytes()).matches(&hash)) {
                true => Ok(()),
                false => Err(self.bad(format!("its {name} is not that of {}", shown_url(&url)))),
            };
        }
        let Some(audience) = at(claims, &["aud"]).filter(|_| self.audience) else { return Ok(()) };
        let audience = scalar(audience).ok_or_else(|| self.bad("its audience (aud) is no single text".to_owned()))?;
        if audience.is_empty() {
            return Ok(());
        }
        let url = url()?;
        match *audience == *url {
            true => Ok(()),
            false => Err(self.bad(format!(
                "it is for {}, and this address was taken as {}",
                shown_url(&audience),
                shown_url(&url)
            ))),
        }
    }

    fn check_body(&self, claims: &RawValue, body: &[u8]) -> Result<(), Rejection> {
        let Some(claim) = self.body else { return Ok(()) };
        let covered = match at(claims, &[claim.name]) {
            None => claim.absent_when_empty && body.is_empty(),
            Some(_) if claim.absent_when_empty && body.is_empty() => false,
            Some(_) => hash_in(claims, claim.name).is_some_and(|hash| sha256(body).matches(&hash)),
        };
        match covered {
            true => Ok(()),
            false => Err(Rejection::BodyHash { place: format!("{} in {}", claim.name, self.header) }),
        }
    }

    fn bad(&self, problem: String) -> Rejection {
        Rejection::BadClaim { header: self.header.clone(), problem }
    }

    /// Adds a token for `outgoing`, good for a minute.
    pub(super) fn sign(
        &self,
        secret: &Armed,
        outgoing: &Outgoing<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), SignError> {
        let hash = *self.hashes.first().expect("a token's scheme names at least one hash");
        let now = outgoing.now.unix_s();
        let mut claims = serde_json::Map::new();
        for (name, moment) in [("iat", now), ("nbf", now), ("exp", now + LIFE_S)] {
            claims.insert(name.to_owned(), moment.into());
        }
        let mut put_claim = |name: &str, value: String| claims.insert(name.to_owned(), value.into());
        if let Some(issuer) = self.issuer {
            put_claim("iss", issuer.to_owned());
        }
        if let Some(id) = self.id {
            put_claim(id, outgoing.id.to_owned());
        }
        if let Some(url) = self.url {
            put_claim(url, Enc::Hex.encode(sha256(outgoing.url.as_bytes()).as_bytes()));
        }
        if self.audience {
            put_claim("aud", outgoing.url.to_owned());
        }
        if let Some(claim) = self.body
            && !(claim.absent_when_empty && outgoing.body.is_empty())
        {
            put_claim(claim.name, Enc::Hex.encode(sha256(outgoing.body).as_bytes()));
        }
        let head = serde_json::json!({ "alg": name(hash), "typ": "JWT" });
        let part = |value: String| Enc::Base64Url.encode(value.as_bytes());
        let text = format!("{}.{}", part(head.to_string()), part(serde_json::Value::from(claims).to_string()));
        let tag = secret.tag_with(hash, &[text.as_bytes()]).ok_or(SignError::PublicKeyOnly)?;
        let value = format!("{text}.{}", Enc::Base64Url.encode(tag.as_bytes()));
        put(headers, &self.header, value.as_bytes(), "the token")
    }
}

/// The name of an HMAC in a token (RFC 7518 §3.1); SHA-1 has none.
fn name(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha1 => "",
        Hash::Sha256 => "HS256",
        Hash::Sha384 => "HS384",
        Hash::Sha512 => "HS512",
    }
}

/// One part of a token; padding is not allowed there (RFC 7515 §2).
fn decoded(part: &[u8]) -> Option<Vec<u8>> {
    Some(part).filter(|part| !part.contains(&b'=')).and_then(|part| Enc::Base64Url.decode(part))
}

fn hash_in(claims: &RawValue, name: &str) -> Option<Vec<u8>> {
    Enc::Hex.decode(scalar(at(claims, &[name])?)?.as_bytes())
}

/// Seconds since 1970, perhaps with a fraction (RFC 7519 §2), in milliseconds.
fn numeric_date(value: &RawValue) -> Option<i64> {
    /// The year 9999: beyond, no token means what it says.
    const SECONDS_MAX: f64 = 253_402_300_799.0;
    let seconds: f64 = serde_json::from_str(value.get()).ok()?;
    let whole = std::time::Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= SECONDS_MAX)?;
    i64::try_from(whole.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_perhaps_with_a_fraction() {
        let read = |text: &str| numeric_date(document(text.as_bytes()).unwrap());
        assert_eq!((read("1625479200"), read("1.5"), read("0")), (Some(1_625_479_200_000), Some(1_500), Some(0)));
        for text in ["-1", "1e300", "253402300800", "\"1\"", "null", "true", "[]"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_part_has_no_padding() {
        assert_eq!(decoded(b"e30"), Some(b"{}".to_vec()));
        for part in ["e30=", "", "e3+/", "e 30"] {
            assert_eq!(decoded(part.as_bytes()), None, "{part}");
        }
    }
}
