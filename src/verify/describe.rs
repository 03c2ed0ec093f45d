//! A scheme in words, for people: how it signs, what it covers, what it leaves open. Computed from the same values that judge,
//! so that no page says other than what the gateway does.

use super::fetched::Of;
use super::inside::{Inside, Proof};
use super::jwt::Jwt;
use super::mac::Hash;
use super::public::PublicAlg;
use super::scheme::{Alg, Before, Carrier, Scheme, Signed, WINDOW_DEFAULT};
use super::template::Piece;

/// What one request has, in the order in which pages name it.
const OPEN: [&str; 4] = ["body", "other headers", "address", "time"];

impl Scheme {
    /// How it signs and where the proof stands, e.g. `HMAC-SHA256 of {ts}.{body} in hex; header x-signature`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let header = || self.headers().carriers.join(" or ");
        match self {
            Self::None => "nothing".to_owned(),
            Self::Token(token) if token.before == Before::Bearer => {
                format!("the secret as a bearer token; header {}", header())
            }
            Self::Token(_) => format!("the secret itself; header {}", header()),
            Self::Basic(_) => format!("user and password (HTTP Basic); header {}", header()),
            Self::Signed(signed) => signed.in_words(),
            Self::Form(form) => {
                format!(
                    "HMAC-{} of the address and the form's fields, base64; header {}",
                    hash_name(form.hash),
                    header()
                )
            }
            Self::Posted(posted) => {
                format!("HMAC-SHA1 of the field {} in hex; field {}", posted.payload, posted.signature)
            }
            Self::Inside(inside) => inside.in_words(),
            Self::Jwt(_) => format!("a signed token (JWT, HMAC); header {}", header()),
            Self::Fetched(fetched) => match fetched.of {
                Of::Sns => "RSA of members of the body, base64, by a key that is fetched; body.Signature".to_owned(),
                Of::PayPal => format!(
                    "RSA-SHA256 of id, time, webhook id and the body's CRC-32, base64, by a key that is fetched; header {}",
                    header()
                ),
            },
        }
    }

    /// What a sender of one genuine request could change and send again, unnoticed; empty: nothing.
    #[must_use]
    pub fn leaves_open(&self) -> Vec<&'static str> {
        let has = |what: &str| match self {
            Self::None | Self::Token(_) | Self::Basic(_) => false,
            Self::Signed(signed) => signed.covers_part(what),
            Self::Form(_) => matches!(what, "body" | "address"),
            Self::Posted(_) => false,
            Self::Inside(inside) => what == "time" && inside.time.is_some(),
            Self::Jwt(jwt) => jwt.covers_part(what),
            Self::Fetched(_) => what == "time",
        };
        let named = |what: &'static str| match (self, what) {
            (Self::Inside(inside), "body") if inside.proof != Proof::Equal => "other members of the body",
            (Self::Posted(_), "body") => "other fields",
            (Self::Fetched(fetched), "body") if fetched.of == Of::Sns => "other members of the body",
            _ => what,
        };
        OPEN.into_iter().filter(|what| !has(what)).map(named).collect()
    }

    /// How old a signed request may be, in words; `None` where no time is signed.
    #[must_use]
    pub fn window_in_words(&self) -> Option<String> {
        if let Self::Jwt(jwt) = self {
            return jwt.ends.then(|| "until the token ends".to_owned());
        }
        let Some(window) = self.time()?.window else {
            return Some(format!("at most {} s away; the provider names none", WINDOW_DEFAULT.as_secs()));
        };
        Some(match window.future {
            Some(future) if future == window.old => format!("at most {} s away", window.old.as_secs()),
            Some(future) => format!("at most {} s old, {} s ahead", window.old.as_secs(), future.as_secs()),
            None => format!("at most {} s old", window.old.as_secs()),
        })
    }
}

impl Signed {
    fn in_words(&self) -> String {
        let alg = match self.alg {
            Alg::Hmac(hash) => format!("HMAC-{}", hash_name(hash)),
            Alg::HmacNamed => "HMAC with the hash that the header names".to_owned(),
            Alg::Digest(hash) => hash_name(hash).to_owned(),
            Alg::Public(PublicAlg::Ed25519) => "Ed25519".to_owned(),
            Alg::Public(PublicAlg::EcdsaP256) => "ECDSA P-256".to_owned(),
            Alg::Public(PublicAlg::EcdsaP256Sha1) => "ECDSA P-256 with SHA-1".to_owned(),
            Alg::Public(PublicAlg::RsaPkcs1) => "RSA-SHA256".to_owned(),
            Alg::Public(PublicAlg::RsaPkcs1Sha1) => "RSA-SHA1".to_owned(),
        };
        let text: String = self.template.pieces().iter().map(piece).collect();
        let header = match &self.carrier {
            Carrier::Header(_) => format!("header {}", self.headers().carriers.join(" or ")),
            Carrier::Numbered(before) => format!("headers {before}1, {before}2 …"),
            Carrier::Own(_) => format!("headers {}", self.headers().carriers.join(" and ")),
        };
        format!("{alg} of {text} in {}; {header}", self.enc.name())
    }

    fn covers_part(&self, what: &str) -> bool {
        let uses = |wanted: &[Piece]| self.template.pieces().iter().any(|piece| wanted.contains(piece));
        match what {
            "body" => uses(&[Piece::Body]),
            "address" => uses(&[Piece::Url, Piece::UrlDecoded, Piece::Target]),
            "time" => self.time.is_some(),
            _ => false,
        }
    }
}

impl Inside {
    fn in_words(&self) -> String {
        let place = self.signature.join(".");
        let item = if self.each.is_some() { " of every item" } else { "" };
        match self.proof {
            Proof::Equal => format!("the secret itself; member {place}{item}"),
            Proof::Hmac(hash, enc) => {
                let members: Vec<String> = self.text.iter().map(|path| path.join(".")).collect();
                format!("HMAC-{} of {} in {}; member {place}{item}", hash_name(hash), members.join(", "), enc.name())
            }
        }
    }
}

impl Jwt {
    fn covers_part(&self, what: &str) -> bool {
        match what {
            "body" => self.body.is_some(),
            "address" => self.covers_url(),
            "time" => self.ends,
            _ => false,
        }
    }
}

fn hash_name(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha1 => "SHA1",
        Hash::Sha256 => "SHA256",
        Hash::Sha384 => "SHA384",
        Hash::Sha512 => "SHA512",
    }
}

fn piece(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => text.replace('\n', "\\n"),
        Piece::Body => "{body}".to_owned(),
        Piece::Time => "{ts}".to_owned(),
        Piece::Id => "{id}".to_owned(),
        Piece::Url | Piece::UrlDecoded => "{url}".to_owned(),
        Piece::Method => "{method}".to_owned(),
        Piece::Secret => "{secret}".to_owned(),
        Piece::Header(name) => format!("{{hdr:{name}}}"),
        Piece::Target => "{target}".to_owned(),
        Piece::Listed(name) => format!("{{headers of {name}}}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::verify::preset;

    #[test]
    fn what_is_said_is_what_is_judged() {
        let words = |name: &str| preset(name).unwrap().scheme.in_words();
        assert_eq!(words("stripe"), "HMAC-SHA256 of {ts}.{body} in hex; header stripe-signature");
        assert_eq!(words("discord"), "Ed25519 of {ts}{body} in hex; header x-signature-ed25519");
        assert!(words("adyen-payload").ends_with("member additionalData.hmacSignature of every item"));
        for (name, open) in [
            ("shopify", &["other headers", "address", "time"][..]),
            ("stripe", &["other headers", "address"]),
            ("gitlab-token", &["body", "other headers", "address", "time"]),
            ("mailgun", &["other members of the body", "other headers", "address"]),
            ("microsoft-graph", &["body", "other headers", "address", "time"]),
            ("square", &["other headers", "time"]),
            ("monday", &["body", "other headers"]),
        ] {
            assert_eq!(preset(name).unwrap().scheme.leaves_open(), open, "{name}");
        }
        let window = |name: &str| preset(name).unwrap().scheme.window_in_words();
        assert_eq!(window("stripe").as_deref(), Some("at most 300 s old"));
        assert_eq!(window("slack").as_deref(), Some("at most 300 s away"));
        assert!(window("zoom").unwrap().contains("names none"));
        assert_eq!(window("shopify"), None);
    }
}
