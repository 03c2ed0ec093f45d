//! A private key of one's own, to sign as providers with public keys do.

use base64::Engine as _;
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::pkcs8::DecodePrivateKey as _;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use sha1::{Digest as _, Sha1};
use zeroize::Zeroizing;

use crate::event::Secret;
use crate::verify::public::PublicAlg;

/// A private key that was read.
pub(super) enum PrivateKey {
    Ed25519(Box<Ed25519KeyPair>),
    EcdsaP256(Box<EcdsaKeyPair>),
    EcdsaP256Sha1(Box<SigningKey>),
    Rsa(Box<RsaKeyPair>),
}

impl PrivateKey {
    /// The key in a PEM file (PKCS #8, or PKCS #1 for RSA).
    ///
    /// # Errors
    /// What was expected, in words.
    pub(super) fn read(alg: PublicAlg, pem: &Secret) -> Result<Self, String> {
        let (kind, how) = match alg {
            PublicAlg::Ed25519 => ("an Ed25519", "openssl genpkey -algorithm ed25519"),
            PublicAlg::EcdsaP256 | PublicAlg::EcdsaP256Sha1 => {
                ("a P-256", "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
            }
            PublicAlg::RsaPkcs1 | PublicAlg::RsaPkcs1Sha1 => {
                ("an RSA", "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048")
            }
        };
        let wrong = || {
            format!(
                "this provider signs with a private key, and the secret here is its public half; to send, give a private key in its \
                 place: --secret file:key.pem, {kind} key in PEM (PKCS #8, not encrypted), e.g. made with `{how}`; the source then \
                 needs its public half"
            )
        };
        let der = der(pem.expose()).ok_or_else(wrong)?;
        let key = match alg {
            PublicAlg::Ed25519 => {
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).ok().map(|key| Self::Ed25519(Box::new(key)))
            }
            PublicAlg::EcdsaP256 => {
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &SystemRandom::new())
                    .ok()
                    .map(|key| Self::EcdsaP256(Box::new(key)))
            }
            PublicAlg::EcdsaP256Sha1 => {
                SigningKey::from_pkcs8_der(&der).ok().map(|key| Self::EcdsaP256Sha1(Box::new(key)))
            }
            PublicAlg::RsaPkcs1 | PublicAlg::RsaPkcs1Sha1 => RsaKeyPair::from_pkcs8(&der)
                .or_else(|_| RsaKeyPair::from_der(&der))
                .ok()
                .map(|key| Self::Rsa(Box::new(key))),
        };
        key.ok_or_else(wrong)
    }

    /// The signature of `text`; empty where the system has no randomness, which no verifier takes for one.
    pub(super) fn seal(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Ed25519(key) => key.sign(text).as_ref().to_vec(),
            Self::EcdsaP256(key) => key
                .sign(&SystemRandom::new(), text)
                .map_or_else(|_| Vec::new(), |signature| signature.as_ref().to_vec()),
            Self::EcdsaP256Sha1(key) => key
                .sign_prehash(&Sha1::digest(text))
                .map_or_else(|_| Vec::new(), |signature: DerSignature| signature.as_bytes().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                match key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature) {
                    Ok(()) => signature,
                    Err(_) => Vec::new(),
                }
            }
        }
    }
}

/// The bytes inside the first PEM block that holds a private key (RFC 7468).
fn der(pem: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = std::str::from_utf8(pem).ok()?;
    let (label, rest) = text.split_once("-----BEGIN ")?.1.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    if !matches!(label, "PRIVATE KEY" | "RSA PRIVATE KEY") {
        return None;
    }
    let body: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    base64::engine::general_purpose::STANDARD.decode(body.as_bytes()).ok().map(Zeroizing::new)
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey(***)")
    }
}
