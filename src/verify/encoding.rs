//! How a signature is written, and how a configured secret becomes a key.
//!
//! Signatures are read strictly: padding where the encoding has it, nothing after it, no blanks.
//! Libraries differ on everything looser, and a signature that only some of them accept is of use
//! to nobody. Secrets are read as people paste them, with or without padding.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use unicode_normalization::UnicodeNormalization as _;
use zeroize::Zeroizing;

/// URL-safe text with or without padding: senders of both kinds exist (RFC 4648 §5).
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
/// Secrets are copied from web pages, some of which leave the padding out.
const SECRET: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT.with_decode_allow_trailing_bits(true));
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// How a signature's bytes are written in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enc {
    /// Two hexadecimal digits a byte, of either case.
    Hex,
    /// RFC 4648 §4, padded.
    Base64,
    /// RFC 4648 §5; written without padding, read with or without.
    Base64Url,
    /// The base64 of a JSON object whose member `signature` is base64 in turn (eBay).
    Envelope,
}

/// What of an [`Enc::Envelope`] is read; which key and hash it names is the sender's word alone.
#[derive(Deserialize)]
struct Envelope {
    signature: String,
}

impl Enc {
    /// All of them, by the name that the configuration uses.
    pub const NAMED: [(&'static str, Self); 3] =
        [("hex", Self::Hex), ("base64", Self::Base64), ("base64url", Self::Base64Url)];

    /// The bytes that `text` stands for; `None` when it is empty or not written so.
    #[must_use]
    pub fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        let bytes = match self {
            Self::Hex => unhex(text)?,
            Self::Base64 => STANDARD.decode(text).ok()?,
            Self::Base64Url => URL_SAFE.decode(text).ok()?,
            Self::Envelope => {
                let envelope: Envelope = serde_json::from_slice(&STANDARD.decode(text).ok()?).ok()?;
                STANDARD.decode(envelope.signature).ok()?
            }
        };
        (!bytes.is_empty()).then_some(bytes)
    }

    /// `bytes` as a provider would write them.
    #[must_use]
    pub fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect(),
            Self::Base64 => STANDARD.encode(bytes),
            Self::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
            Self::Envelope => {
                let signature = STANDARD.encode(bytes);
                STANDARD.encode(format!(r#"{{"alg":"ecdsa","kid":"own","signature":"{signature}","digest":"SHA1"}}"#))
            }
        }
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
            Self::Base64Url => "base64url",
            Self::Envelope => "base64 of JSON with a signature in base64",
        }
    }
}

/// How the configured text of a secret becomes the key. Most providers use the text as it stands
/// even where it looks encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Its bytes.
    Text,
    /// Hexadecimal digits.
    Hex,
    /// Base64.
    Base64,
    /// `whsec_` and base64, or the base64 alone (Standard Webhooks).
    Whsec,
    /// `whsec_` and base64; without that prefix its bytes (OpenAI).
    WhsecOrText,
    /// `whpk_` and base64, or the base64 alone: a public key (Standard Webhooks).
    Whpk,
    /// The bytes of its text in Unicode's compatibility decomposition, NFKD (EasyPost).
    Nfkd,
    /// A public key as `-----BEGIN PUBLIC KEY-----` and so on (RFC 7468 §13), or the base64 alone.
    Pem,
}

impl KeyForm {
    /// Those that the configuration offers, by name.
    pub const NAMED: [(&'static str, Self); 4] =
        [("text", Self::Text), ("hex", Self::Hex), ("base64", Self::Base64), ("whsec", Self::Whsec)];

    /// The key of `secret`; `None` when it is not of this form, or is empty.
    #[must_use]
    pub fn key(self, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        match self {
            Self::Text => Some(Zeroizing::new(secret.to_vec())).filter(|key| !key.is_empty()),
            Self::Hex => unhex(secret).map(Zeroizing::new),
            Self::Base64 => unbase64(secret),
            Self::Whsec => whsec(secret),
            Self::WhsecOrText if secret.starts_with(WHSEC) => whsec(secret),
            Self::WhsecOrText => Self::Text.key(secret),
            Self::Nfkd => {
                let text: String = std::str::from_utf8(secret).ok()?.nfkd().collect();
                Self::Text.key(Zeroizing::new(text).as_bytes())
            }
            Self::Whpk => unbase64(secret.strip_prefix(WHPK).unwrap_or(secret)),
            Self::Pem => pem(secret),
        }
    }

    /// What a secret of this form looks like, for messages.
    #[must_use]
    pub fn looks_like(self) -> &'static str {
        match self {
            Self::Text => "text that is not empty",
            Self::Hex => "hexadecimal digits, two a byte",
            Self::Base64 => "base64",
            Self::Whsec => "whsec_ followed by base64",
            Self::WhsecOrText => "whsec_ followed by base64, or plain text",
            Self::Nfkd => "text in UTF-8 that is not empty",
            Self::Whpk => "whpk_ followed by base64",
            Self::Pem => "-----BEGIN PUBLIC KEY----- and so on, or the base64 in it alone",
        }
    }
}

const WHSEC: &[u8] = b"whsec_";
const WHPK: &[u8] = b"whpk_";
const PEM_BEGIN: &[u8] = b"-----BEGIN PUBLIC KEY-----";
const PEM_END: &[u8] = b"-----END PUBLIC KEY-----";

/// The key of a Standard Webhooks secret, with or without its prefix.
pub(super) fn whsec(secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    unbase64(secret.strip_prefix(WHSEC).unwrap_or(secret))
}

/// The bytes inside PEM, with its lines or pasted into one; or of base64 alone.
fn pem(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_ascii();
    let inside = match text.strip_prefix(PEM_BEGIN) {
        Some(rest) => rest.strip_suffix(PEM_END)?,
        None => text,
    };
    let one_line: Vec<u8> = inside.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    unbase64(&one_line)
}

fn unbase64(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    SECRET.decode(text).ok().map(Zeroizing::new).filter(|key| !key.is_empty())
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| Some(value(high)? << 4 | value(low)?)).collect()
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read_strictly() {
        assert_eq!(Enc::Hex.decode(b"00fF"), Some(vec![0, 255]));
        for text in ["", "0", "0g", "00 ", "+0", "0x00"] {
            assert_eq!(Enc::Hex.decode(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Enc::Base64.decode(b"AP8="), Some(vec![0, 255]));
        for text in ["", "AP8", "AP8=x", "AP8= ", "A-8=", "AP9="] {
            assert_eq!(Enc::Base64.decode(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Enc::Base64Url.decode(b"-_8"), Some(vec![251, 255]));
        assert_eq!(Enc::Base64Url.decode(b"-_8="), Some(vec![251, 255]));
        assert_eq!(Enc::Base64Url.decode(b"+/8"), None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (name, enc) in Enc::NAMED {
            assert_eq!(name, enc.name());
            let bytes = [0, 1, 127, 128, 251, 255];
            assert_eq!(enc.decode(enc.encode(&bytes).as_bytes()), Some(bytes.to_vec()));
        }
    }

    #[test]
    fn a_secret_becomes_the_key_its_provider_means() {
        let key = |form: KeyForm, text: &str| form.key(text.as_bytes()).map(|key| key.to_vec());
        assert_eq!(key(KeyForm::Text, "whsec_c2VjcmV0"), Some(b"whsec_c2VjcmV0".to_vec()));
        assert_eq!(key(KeyForm::Whsec, "whsec_c2VjcmV0"), Some(b"secret".to_vec()));
        assert_eq!(key(KeyForm::Whsec, "c2VjcmV0MQ"), Some(b"secret1".to_vec()), "padding left out");
        assert_eq!(key(KeyForm::WhsecOrText, "c2VjcmV0"), Some(b"c2VjcmV0".to_vec()));
        assert_eq!(key(KeyForm::WhsecOrText, "whsec_c2VjcmV0"), Some(b"secret".to_vec()));
        assert_eq!(key(KeyForm::Hex, "736563"), Some(b"sec".to_vec()));
        assert_eq!(key(KeyForm::Nfkd, "s\u{e9}\u{fb01}"), Some("se\u{301}fi".as_bytes().to_vec()));
        assert_eq!(KeyForm::Nfkd.key(b"\xff"), None);
        assert_eq!(key(KeyForm::Whpk, "whpk_c2VjcmV0"), Some(b"secret".to_vec()));
        for text in ["-----BEGIN PUBLIC KEY-----\r\nc2Vj\r\ncmV0\n-----END PUBLIC KEY-----\n", "c2Vj\ncmV0"] {
            assert_eq!(key(KeyForm::Pem, text), Some(b"secret".to_vec()), "{text}");
        }
        for (form, text) in [
            (KeyForm::Hex, "73656"),
            (KeyForm::Base64, "a b"),
            (KeyForm::Whsec, "whsec_"),
            (KeyForm::Text, ""),
            (KeyForm::Whpk, "whpk_"),
            (KeyForm::Pem, "-----BEGIN PUBLIC KEY-----c2VjcmV0"),
            (KeyForm::Pem, "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----"),
        ] {
            assert_eq!(key(form, text), None, "{form:?} {text:?}");
        }
    }
}
