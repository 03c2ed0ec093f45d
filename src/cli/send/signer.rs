//! Who signs a test event: a secret that both sides have, or a private key.

use http::HeaderMap;

use super::private_key::PrivateKey;
use crate::event::Secret;
use crate::verify::scheme::Scheme;
use crate::verify::{Choice, Outgoing, SecretSpec, SignError, Spec, Verifier, preset};

/// Signs as one provider does.
#[derive(Debug)]
pub(super) enum Signer {
    /// By the secret that the receiver has too.
    Shared(Box<Verifier>),
    /// By a private key, whose public half the receiver has.
    Private(&'static Scheme, PrivateKey),
}

impl Signer {
    /// A signer for the provider of this name.
    ///
    /// # Errors
    /// In words: no such provider, no secret, a secret of another form.
    pub(super) fn new(provider: &str, secret: Option<Secret>) -> Result<Self, String> {
        let public = preset(provider).and_then(|preset| Some((&preset.scheme, preset.scheme.public_alg()?)));
        match (public, &secret) {
            (Some((scheme, alg)), Some(secret)) => Ok(Self::Private(scheme, PrivateKey::read(alg, secret)?)),
            _ => {
                let secrets = secret.map(SecretSpec::new).into_iter().collect();
                let verifier = Verifier::new(Spec::new(Choice::Preset(provider.to_owned()), secrets));
                verifier.map(Box::new).map(Self::Shared).map_err(|error| error.to_string())
            }
        }
    }

    /// Adds the headers of the signature. The answer is the body to send where the signature, or the time that it covers, stands
    /// in it.
    ///
    /// # Errors
    /// What is missing, or cannot be written.
    pub(super) fn sign(&self, outgoing: &Outgoing<'_>, headers: &mut HeaderMap) -> Result<Option<Vec<u8>>, SignError> {
        match self {
            Self::Shared(verifier) => {
                let completed = verifier.complete(outgoing)?;
                let body = completed.as_deref().unwrap_or(outgoing.body);
                verifier.sign(&Outgoing { body, ..*outgoing }, headers)?;
                Ok(completed)
            }
            Self::Private(scheme, key) => scheme.sign_by(outgoing, headers, &|text| key.seal(text)).map(|()| None),
        }
    }

    /// What the body is, where nobody says it.
    pub(super) fn content_type(&self, body: &[u8]) -> &'static str {
        let form = match self {
            Self::Shared(verifier) => matches!(verifier.scheme(), Scheme::Form(_) | Scheme::Posted(_)),
            Self::Private(..) => false,
        };
        match body.first() {
            Some(b'{' | b'[') => "application/json",
            _ if form => "application/x-www-form-urlencoded",
            _ => "application/json",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use ring::signature::KeyPair as _;

    use super::*;
    use crate::event::Wall;
    use crate::verify::public::PublicAlg;
    use crate::verify::{Request, presets};

    const NOW: Wall = Wall(1_767_225_600_000_000);
    const URL: &str = "https://hooks.example/in?x=1";

    /// Signs a body as the provider does, and lets its own verifier judge it.
    fn passes(provider: &str, signer: &Signer, verifier: &Verifier) {
        let body: &[u8] = match &verifier.scheme() {
            Scheme::Form(_) => b"AccountSid=AC1&Body=hello",
            Scheme::Posted(_) => b"bt_payload=PGEvPg%3D%3D",
            _ => match provider {
                "adyen-payload" => br#"{"notificationItems":[{"NotificationRequestItem":{"pspReference":"1"}},{"NotificationRequestItem":{}}]}"#,
                "microsoft-graph" => br#"{"value":[{"tenantId":"t"}]}"#,
                _ => br#"{"id":1}"#,
            },
        };
        let mut headers = HeaderMap::new();
        let method = Method::POST;
        let outgoing = Outgoing { method: &method, url: URL, body, now: NOW, id: "msg_1" };
        let completed = signer.sign(&outgoing, &mut headers).unwrap_or_else(|error| panic!("{provider}: {error}"));
        let kind = signer.content_type(body).parse().unwrap();
        headers.insert("content-type", kind);
        let request = Request {
            method: &method,
            target: "/in?x=1",
            seen_url: Some("https://hooks.example"),
            headers: &headers,
            body: completed.as_deref().unwrap_or(body),
        };
        verifier.judge(&request, NOW).unwrap_or_else(|error| panic!("{provider}: {error}"));
    }

    fn is_private(scheme: &Scheme) -> bool {
        scheme.public_alg().is_some() || matches!(scheme, Scheme::Fetched(_))
    }

    #[test]
    fn every_provider_with_a_shared_secret_can_be_imitated() {
        let secrets =
            ["whsec_aHVzaC1hLXRlc3Qtc2VjcmV0", "user:hush", "68757368", "aHVzaC1hLXRlc3Q=", "hush-a-test-secret"];
        let mut imitated = 0;
        for preset in presets().iter().filter(|preset| !is_private(&preset.scheme)) {
            let specs = secrets.iter().map(|secret| (*secret, vec![SecretSpec::new(Secret::new(*secret))]));
            let verifiers = specs.map(|(secret, secrets)| {
                Some((secret, Verifier::new(Spec::new(Choice::Preset(preset.name.into()), secrets)).ok()?))
            });
            let (secret, verifier) = verifiers.flatten().next().unwrap();
            passes(preset.name, &Signer::new(preset.name, Some(Secret::new(secret))).unwrap(), &verifier);
            imitated += 1;
        }
        assert!(imitated > 80, "{imitated}");
    }

    #[test]
    fn a_private_key_imitates_those_with_public_ones() {
        use base64::Engine as _;
        let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let pem = |der: &[u8]| {
            Secret::new(format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", base64(der)))
        };
        let random = ring::rand::SystemRandom::new();
        let pkcs8 = ring::signature::Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let pair = ring::signature::Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let public = pair.public_key().as_ref();
        let hex: String = public.iter().map(|byte| format!("{byte:02x}")).collect();
        for (provider, secret) in [
            ("discord", hex),
            ("telnyx", base64(public)),
            ("standard-webhooks-ed25519", format!("whpk_{}", base64(public))),
        ] {
            let spec = Spec::new(Choice::Preset(provider.into()), vec![SecretSpec::new(Secret::new(secret))]);
            let signer = Signer::new(provider, Some(pem(pkcs8.as_ref()))).unwrap();
            passes(provider, &signer, &Verifier::new(spec).unwrap());
        }
        let curve = &ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let pkcs8 = ring::signature::EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        let pair = ring::signature::EcdsaKeyPair::from_pkcs8(curve, pkcs8.as_ref(), &random).unwrap();
        // RFC 5480: SubjectPublicKeyInfo of a point of P-256.
        let before =
            b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
        let spki = base64(&[&before[..], pair.public_key().as_ref()].concat());
        let spec = Spec::new(Choice::Preset("sendgrid".into()), vec![SecretSpec::new(Secret::new(spki))]);
        let signer = Signer::new("sendgrid", Some(pem(pkcs8.as_ref()))).unwrap();
        passes("sendgrid", &signer, &Verifier::new(spec).unwrap());
    }

    #[test]
    fn a_public_key_is_not_taken_for_a_private_one() {
        for (provider, kind) in [("discord", "Ed25519"), ("sendgrid", "P-256"), ("wise", "RSA")] {
            assert!(
                preset(provider)
                    .unwrap()
                    .scheme
                    .public_alg()
                    .is_some_and(|alg| alg != PublicAlg::Ed25519 || kind == "Ed25519")
            );
            let error =
                Signer::new(provider, Some(Secret::new("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----")))
                    .unwrap_err();
            assert!(error.contains(kind) && error.contains("file:key.pem"), "{error}");
        }
        assert!(Signer::new("shopfy", None).unwrap_err().contains("did you mean \"shopify\"?"));
        assert!(Signer::new("github", None).unwrap_err().contains("needs at least one secret"));
    }
}
