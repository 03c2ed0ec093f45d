//! Keyed and plain hashes, fed piece by piece and compared in constant time.
//!
//! The only place that names the hash crates. A body of 20 MB is hashed where it lies: callers feed
//! the parts of a signed text one after another and nothing is joined. The deliver layer uses this
//! module to sign what it sends; it must not read secrets from anywhere but its arguments.

use std::fmt;

use base64::Engine as _;
use hmac::digest::{FixedOutput, Update};
use hmac::{Hmac, KeyInit};
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

use super::encoding;
use crate::event::Secret;

/// The longest result of any [`Hash`], in bytes (SHA-512).
const TAG_BYTES_MAX: usize = 64;

/// A hash function. SHA-1 is here because providers still sign with it (FIPS 180-4; as an HMAC it
/// is not broken, RFC 6194 §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
    /// 48 bytes.
    Sha384,
    /// 64 bytes.
    Sha512,
}

impl Hash {
    /// All of them, by the name that the configuration uses.
    pub const NAMED: [(&'static str, Self); 4] =
        [("sha1", Self::Sha1), ("sha256", Self::Sha256), ("sha384", Self::Sha384), ("sha512", Self::Sha512)];
}

/// An HMAC key (RFC 2104), scheduled once and used for any number of messages.
#[derive(Clone)]
pub struct Key(Mac);

impl Key {
    /// The key of `secret`'s bytes, of any length.
    #[must_use]
    pub fn new(hash: Hash, secret: &[u8]) -> Self {
        const ANY_LENGTH: &str = "HMAC takes keys of any length (RFC 2104 §2)";
        Self(Mac(match hash {
            Hash::Sha1 => State::HmacSha1(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Hash::Sha256 => State::HmacSha256(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Hash::Sha384 => State::HmacSha384(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Hash::Sha512 => State::HmacSha512(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
        }))
    }

    /// Begins a message.
    #[must_use]
    pub fn start(&self) -> Mac {
        self.0.clone()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// A hash in the making: feed it, then finish it.
#[derive(Clone)]
pub struct Mac(State);

#[derive(Clone)]
enum State {
    HmacSha1(Hmac<Sha1>),
    HmacSha256(Hmac<Sha256>),
    HmacSha384(Hmac<Sha384>),
    HmacSha512(Hmac<Sha512>),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

/// The same expression for whichever state there is.
macro_rules! each {
    ($state:expr, $inner:ident => $do:expr) => {
        match $state {
            State::HmacSha1($inner) => $do,
            State::HmacSha256($inner) => $do,
            State::HmacSha384($inner) => $do,
            State::HmacSha512($inner) => $do,
            State::Sha1($inner) => $do,
            State::Sha256($inner) => $do,
            State::Sha384($inner) => $do,
            State::Sha512($inner) => $do,
        }
    };
}

impl Mac {
    /// Begins a plain hash without a key, for schemes that put the secret into the text.
    #[must_use]
    pub fn plain(hash: Hash) -> Self {
        Self(match hash {
            Hash::Sha1 => State::Sha1(Sha1::new()),
            Hash::Sha256 => State::Sha256(Sha256::new()),
            Hash::Sha384 => State::Sha384(Sha384::new()),
            Hash::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// Appends `bytes` to the message.
    pub fn update(&mut self, bytes: &[u8]) {
        each!(&mut self.0, state => Update::update(state, bytes));
    }

    /// Ends the message.
    #[must_use]
    pub fn finish(self) -> Tag {
        each!(self.0, state => Tag::of(&state.finalize_fixed()))
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mac(***)")
    }
}

/// A finished hash. It is as secret as the key while a forger can still ask: no `Display`, and a
/// `Debug` that tells nothing.
#[derive(Clone)]
pub struct Tag {
    bytes: [u8; TAG_BYTES_MAX],
    len: usize,
}

impl Tag {
    fn of(hash: &[u8]) -> Self {
        let mut bytes = [0; TAG_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(hash) {
            *to = *from;
        }
        Self { bytes, len: hash.len().min(TAG_BYTES_MAX) }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Whether `claimed` is this hash, whole; takes the same time wherever they differ.
    #[must_use]
    pub fn matches(&self, claimed: &[u8]) -> bool {
        self.as_bytes().ct_eq(claimed).into()
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(***)")
    }
}

/// Whether two texts are equal, without telling by the time taken where they differ or how long
/// `secret` is: their hashes are compared.
#[must_use]
pub fn same_text(claimed: &[u8], secret: &[u8]) -> bool {
    sha256(secret).matches(sha256(claimed).as_bytes())
}

/// The SHA-256 of a text.
#[must_use]
pub fn sha256(text: &[u8]) -> Tag {
    let mut mac = Mac::plain(Hash::Sha256);
    mac.update(text);
    mac.finish()
}

/// The key of a Standard Webhooks secret: `whsec_` and base64, or the base64 alone. `None` when it
/// is not base64, or is empty. (standard-webhooks spec, "Signature scheme")
#[must_use]
pub fn standard_key(secret: &Secret) -> Option<Key> {
    let bytes = encoding::whsec(secret.expose())?;
    Some(Key::new(Hash::Sha256, &bytes))
}

/// One item of a `webhook-signature` header: `v1,` and the base64 of HMAC-SHA256 over
/// `{id}.{timestamp}.{body}`; `timestamp` in seconds since 1970. (standard-webhooks spec)
#[must_use]
pub fn standard_signature(key: &Key, id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut mac = key.start();
    mac.update(id.as_bytes());
    mac.update(b".");
    mac.update(timestamp.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(mac.finish().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(tag: &Tag) -> String {
        encoding::Enc::Hex.encode(tag.as_bytes())
    }

    #[test]
    fn hmac_gives_the_results_of_rfc_2202_and_4231() {
        let text: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        let expected = [
            (Hash::Sha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            (Hash::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Hash::Sha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Hash::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd\
                 caeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        for (hash, tag) in expected {
            let mut mac = Key::new(hash, b"Jefe").start();
            for piece in text {
                mac.update(piece);
            }
            assert_eq!(hex(&mac.finish()), tag, "{hash:?}");
        }
    }

    #[test]
    fn a_plain_hash_is_the_hash() {
        let mut mac = Mac::plain(Hash::Sha256);
        mac.update(b"abc");
        assert_eq!(hex(&mac.finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_tag_matches_only_itself_whole() {
        let mut mac = Key::new(Hash::Sha256, b"k").start();
        mac.update(b"text");
        let tag = mac.finish();
        let bytes = tag.as_bytes().to_vec();
        assert!(tag.matches(&bytes));
        assert!(!tag.matches(&bytes[..31]));
        assert!(!tag.matches(&[]));
        assert!(!tag.matches(&[bytes.as_slice(), &[0]].concat()));
    }

    #[test]
    fn nothing_prints_a_key_or_a_tag() {
        let key = Key::new(Hash::Sha1, b"k");
        assert_eq!(format!("{key:?} {:?} {:?}", key.start(), key.start().finish()), "Key(***) Mac(***) Tag(***)");
    }

    #[test]
    fn a_standard_secret_is_base64_with_or_without_its_prefix() {
        for text in ["whsec_c2VjcmV0", "c2VjcmV0"] {
            let key = standard_key(&Secret::new(text)).unwrap();
            let ours = Key::new(Hash::Sha256, b"secret");
            assert_eq!(standard_signature(&key, "a", 1, b"b"), standard_signature(&ours, "a", 1, b"b"));
        }
        for text in ["", "whsec_", "whsec_%%"] {
            assert!(standard_key(&Secret::new(text)).is_none(), "{text}");
        }
    }
}
