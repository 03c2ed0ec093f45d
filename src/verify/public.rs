//! Signatures by public keys: the sender keeps the private half, and what stands in our
//! configuration can verify and cannot sign.
//!
//! The only place that names the crates behind them. A key is read once, strictly, when the
//! verifier is made; nothing here is secret, so nothing needs constant time.

use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::ecdsa::{DerSignature, VerifyingKey};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey,
};
use sha1::{Digest as _, Sha1};

/// A signature algorithm with a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicAlg {
    /// Ed25519 (RFC 8032 §5.1): a key of 32 bytes, a signature of 64.
    Ed25519,
    /// ECDSA over P-256 with SHA-256, the signature in DER (RFC 3279 §2.2.3).
    EcdsaP256,
    /// The same with SHA-1, which eBay signs with and the usual library does not offer.
    EcdsaP256Sha1,
    /// RSA with SHA-256 and PKCS #1 v1.5 padding (RFC 8017 §8.2), keys of 2048 to 8192 bits.
    RsaPkcs1,
    /// The same with SHA-1: SNS still signs so unless a topic is told to use version 2.
    RsaPkcs1Sha1,
}

/// A public key that was read.
#[derive(Clone, Debug)]
pub(super) enum PublicKey {
    Usual(UnparsedPublicKey<Box<[u8]>>),
    EcdsaP256Sha1(VerifyingKey),
}

/// `id-ecPublicKey` with the curve `prime256v1` (RFC 5480 §2.1.1).
const EC_P256: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
/// `rsaEncryption` with its NULL (RFC 3279 §2.3.1).
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
/// An uncompressed point of P-256: 04 and two coordinates (SEC 1 §2.3.3).
const POINT_BYTES: usize = 65;
const ED25519_BYTES: usize = 32;
/// Moduli of 2048 to 8192 bits: what the verification takes, and what providers use.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

pub(super) const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const INTEGER: u8 = 0x02;

impl PublicAlg {
    /// What a key of this kind is, for messages.
    #[must_use]
    pub fn looks_like(self) -> &'static str {
        match self {
            Self::Ed25519 => "an Ed25519 public key, 32 bytes in the form that the provider shows",
            Self::EcdsaP256 | Self::EcdsaP256Sha1 => "a P-256 public key, its SubjectPublicKeyInfo in base64 or PEM",
            Self::RsaPkcs1 | Self::RsaPkcs1Sha1 => {
                "an RSA public key of 2048 to 8192 bits, -----BEGIN PUBLIC KEY----- and so on"
            }
        }
    }
}

impl PublicKey {
    /// The key in `bytes`: for Ed25519 the key itself, for the others a DER `SubjectPublicKeyInfo`
    /// (RFC 5280 §4.1.2.7). `None` when it is another kind of key, or none.
    pub(super) fn read(alg: PublicAlg, bytes: &[u8]) -> Option<Self> {
        let point = || inside(bytes, EC_P256).filter(|point| point.len() == POINT_BYTES && point.starts_with(&[4]));
        let rsa = || inside(bytes, RSA).filter(|key| is_rsa(key));
        let usual =
            |key: Option<&[u8]>, verification| Some(Self::Usual(UnparsedPublicKey::new(verification, key?.into())));
        match alg {
            PublicAlg::Ed25519 => usual(Some(bytes).filter(|key| key.len() == ED25519_BYTES), &ED25519),
            PublicAlg::EcdsaP256 => usual(point(), &ECDSA_P256_SHA256_ASN1),
            PublicAlg::EcdsaP256Sha1 => VerifyingKey::from_sec1_bytes(point()?).ok().map(Self::EcdsaP256Sha1),
            PublicAlg::RsaPkcs1 => usual(rsa(), &RSA_PKCS1_2048_8192_SHA256),
            PublicAlg::RsaPkcs1Sha1 => usual(rsa(), &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY),
        }
    }

    /// Whether `signature` was made over `message` by the private half.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Usual(key) => key.verify(message, signature).is_ok(),
            Self::EcdsaP256Sha1(key) => DerSignature::from_bytes(signature)
                .is_ok_and(|signature| key.verify_prehash(&Sha1::digest(message), &signature).is_ok()),
        }
    }
}

/// The key bits of a `SubjectPublicKeyInfo` whose algorithm is exactly this.
fn inside<'a>(spki: &'a [u8], algorithm: &[u8]) -> Option<&'a [u8]> {
    let fields = whole(SEQUENCE, spki)?;
    let (found, rest) = value(SEQUENCE, fields)?;
    let bits = whole(BIT_STRING, rest)?;
    // The first byte counts unused bits, which a key does not have.
    bits.strip_prefix(&[0]).filter(|_| found == algorithm)
}

/// Whether this is an `RSAPublicKey` (RFC 8017 §A.1.1) of a size that can be used.
fn is_rsa(key: &[u8]) -> bool {
    let modulus = || {
        let (modulus, exponent) = value(INTEGER, whole(SEQUENCE, key)?)?;
        whole(INTEGER, exponent)?;
        // A leading zero keeps the number positive.
        Some(modulus.strip_prefix(&[0]).unwrap_or(modulus).len())
    };
    modulus().is_some_and(|bytes| MODULUS_BYTES.contains(&bytes))
}

/// The contents of the one DER value of this tag that `der` is.
pub(super) fn whole(tag: u8, der: &[u8]) -> Option<&[u8]> {
    value(tag, der).filter(|(_, rest)| rest.is_empty()).map(|(contents, _)| contents)
}

/// The contents of the DER value of this tag at the beginning, and what follows it.
pub(super) fn value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.strip_prefix(&[tag])?.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(&len, rest)| (usize::from(len), rest))?,
        0x82 => rest.split_first_chunk::<2>().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?,
        // Longer, or of unknown length: no key that anybody uses.
        _ => return None,
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};

    use super::*;

    /// The `SubjectPublicKeyInfo` around these key bits.
    fn spki(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
        fn tagged(tag: u8, contents: &[u8]) -> Vec<u8> {
            let len = u16::try_from(contents.len()).unwrap().to_be_bytes();
            [&[tag, 0x82, len[0], len[1]], contents].concat()
        }
        let bits = tagged(BIT_STRING, &[&[0], key].concat());
        tagged(SEQUENCE, &[tagged(SEQUENCE, algorithm), bits].concat())
    }

    #[test]
    fn ed25519_gives_the_result_of_rfc_8032() {
        // §7.1, test 2
        let unhex = |text: &str| crate::verify::Enc::Hex.decode(text.as_bytes()).unwrap();
        let key = unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = unhex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        );
        let key = PublicKey::read(PublicAlg::Ed25519, &key).unwrap();
        assert!(key.verifies(b"\x72", &signature));
        assert!(!key.verifies(b"\x73", &signature));
        assert!(!key.verifies(b"\x72", &signature[..63]));
        assert!(!key.verifies(b"\x72", b""));
    }

    #[test]
    fn a_key_verifies_what_its_other_half_signed() {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let key = PublicKey::read(PublicAlg::EcdsaP256, &spki(EC_P256, pair.public_key().as_ref())).unwrap();
        let signature = pair.sign(&random, b"text").unwrap();
        assert!(key.verifies(b"text", signature.as_ref()));
        assert!(!key.verifies(b"test", signature.as_ref()));

        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey::read(PublicAlg::Ed25519, pair.public_key().as_ref()).unwrap();
        assert!(key.verifies(b"text", pair.sign(b"text").as_ref()));
        assert!(!key.verifies(b"text", pair.sign(b"test").as_ref()));
    }

    #[test]
    fn what_is_no_key_of_its_kind_is_refused_at_once() {
        let point = [&[4][..], &[1; 64]].concat();
        let good = spki(EC_P256, &point);
        assert!(PublicKey::read(PublicAlg::EcdsaP256, &good).is_some());
        for bad in [
            spki(RSA, &point),
            spki(EC_P256, &point[..64]),
            spki(EC_P256, &[&[2][..], &[1; 64]].concat()),
            [&good[..], &[0]].concat(),
            good[..good.len() - 1].to_vec(),
            point.clone(),
            Vec::new(),
        ] {
            assert!(PublicKey::read(PublicAlg::EcdsaP256, &bad).is_none(), "{bad:02x?}");
        }
        assert!(PublicKey::read(PublicAlg::RsaPkcs1, &good).is_none());
        for len in [0, 31, 33, 64] {
            assert!(PublicKey::read(PublicAlg::Ed25519, &vec![1; len]).is_none(), "{len}");
        }
        let rsa = |modulus: usize| {
            let len = u16::try_from(modulus + 1).unwrap().to_be_bytes();
            let n = [&[INTEGER, 0x82, len[0], len[1], 0][..], &vec![0xff; modulus], &[INTEGER, 1, 3]].concat();
            let len = u16::try_from(n.len()).unwrap().to_be_bytes();
            PublicKey::read(PublicAlg::RsaPkcs1, &spki(RSA, &[&[SEQUENCE, 0x82, len[0], len[1]][..], &n].concat()))
        };
        assert!(rsa(256).is_some());
        assert!(rsa(128).is_none(), "1024 bits are too short");
        assert!(rsa(1025).is_none());
    }

    #[test]
    fn arbitrary_bytes_are_no_key_and_no_panic() {
        let good = spki(EC_P256, &[&[4][..], &[1; 64]].concat());
        for at in 0..good.len() {
            for byte in [0, 0x7f, 0x80, 0x81, 0x82, 0x83, 0xff] {
                let mut other = good.clone();
                other[at] = byte;
                if let Some(key) = PublicKey::read(PublicAlg::EcdsaP256, &other) {
                    assert!(!key.verifies(b"", &other));
                }
            }
        }
    }
}
