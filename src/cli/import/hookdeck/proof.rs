//! How a source is verified there, and as what here.

use super::super::page::{Page, quoted};
use super::fields::Fields;
use crate::cli::providers;
use crate::verify::preset;

/// Source types that a provider here verifies in the same way. Types that are not here are verified there by schemes that have no
/// name here; guessing one would refuse genuine events or, worse, let others in.
const PROVIDERS: [(&str, &str); 53] = [
    ("ADYEN", "adyen-payload"),
    ("AIRTABLE", "airtable"),
    ("ASANA", "asana"),
    ("AWS_SNS", "aws-sns"),
    ("BIGCOMMERCE", "bigcommerce"),
    ("CHARGEBEE_BILLING", "chargebee"),
    ("DISCORD", "discord"),
    ("DOCUSIGN", "docusign"),
    ("EBAY", "ebay"),
    ("FACEBOOK", "meta"),
    ("GITHUB", "github"),
    ("GITLAB", "gitlab-token"),
    ("GOCARDLESS", "gocardless"),
    ("HUBSPOT", "hubspot-v3"),
    ("INTERCOM", "intercom"),
    ("LINEAR", "linear"),
    ("MAILGUN", "mailgun"),
    ("MICROSOFT_GRAPH", "microsoft-graph"),
    ("MONDAY", "monday"),
    ("OKTA", "okta"),
    ("OPENAI", "openai"),
    ("PADDLE", "paddle"),
    ("PAYPAL", "paypal"),
    ("PAYSTACK", "paystack"),
    ("POLAR", "polar"),
    ("POSTMARK", "postmark"),
    ("RAZORPAY", "razorpay"),
    ("RECURLY", "recurly"),
    ("REPLICATE", "replicate"),
    ("RESEND", "resend"),
    ("SANITY", "sanity"),
    ("SENDGRID", "sendgrid"),
    ("SHOPIFY", "shopify"),
    ("SLACK", "slack"),
    ("SQUARE", "square"),
    ("STRIPE", "stripe"),
    ("SVIX", "svix"),
    ("TELNYX", "telnyx"),
    ("TIKTOK", "tiktok"),
    ("TRELLO", "trello"),
    ("TWILIO", "twilio"),
    ("TWITCH", "twitch"),
    ("TWITTER", "x"),
    ("TYPEFORM", "typeform"),
    ("VERCEL", "vercel"),
    ("VERCEL_LOG_DRAINS", "vercel"),
    ("WHATSAPP", "meta"),
    ("WOOCOMMERCE", "woocommerce"),
    ("WORKOS", "workos"),
    ("XERO", "xero"),
    ("ZENDESK", "zendesk"),
    ("ZOOM", "zoom"),
    ("HOOKDECK", "hookdeck"),
];

/// Types that say nothing about who sends.
const GENERIC: [&str; 3] = ["HTTP", "WEBHOOK", ""];

/// A source's type, and what it is authenticated with.
#[derive(Debug)]
pub(super) struct Proof {
    /// In capital letters; empty where the export says none.
    kind: String,
    auth: Fields,
    /// Whether it is verified there at all, where the export says so.
    authenticated: Option<bool>,
}

impl Proof {
    /// Takes it out of a source and its `config`: `type` with `auth_type` and `auth` since 2025, `verification` before.
    pub(super) fn take(source: &mut Fields, config: &mut Fields) -> Self {
        let mut kind = source.text("type").unwrap_or_default();
        let mut auth = config.object("auth").unwrap_or_default();
        let generic = GENERIC.contains(&kind.to_ascii_uppercase().as_str());
        if let Some(auth_type) = config.text("auth_type")
            && generic
        {
            kind = auth_type;
        }
        if let Some(mut verification) = source.object("verification") {
            kind = verification.text("type").unwrap_or(kind);
            auth = verification.object("configs").unwrap_or_default();
        }
        Self { kind: kind.to_ascii_uppercase().replace('-', "_"), auth, authenticated: source.truth("authenticated") }
    }

    /// The provider here, where there is one.
    pub(super) fn provider(&self) -> Option<&'static str> {
        PROVIDERS.iter().find(|(kind, _)| *kind == self.kind).map(|(_, provider)| *provider)
    }

    /// Whether it is of no provider in particular.
    pub(super) fn is_generic(&self) -> bool {
        GENERIC.contains(&self.kind.as_str()) || matches!(self.kind.as_str(), "HMAC" | "BASIC_AUTH" | "API_KEY")
    }

    /// Writes the `verify` of the source of this name.
    pub(super) fn write(mut self, name: &str, depth: usize, page: &mut Page) {
        match self.provider() {
            Some(provider) => self.named(provider, name, depth, page),
            None => self.described(name, depth, page),
        }
        for left in self.auth.left() {
            page.missing(depth, &format!("authentication: {left}"));
        }
    }

    fn named(&mut self, provider: &str, name: &str, depth: usize, page: &mut Page) {
        let preset = preset(provider).expect("a test looks all of them up");
        let field = providers::proof(preset);
        let value = match (field, self.auth.text("username"), self.auth.text("password")) {
            ("secret", Some(user), Some(password)) => Some(format!("{user}:{password}")),
            ("webhook_id", ..) => self.auth.text("webhook_id"),
            ("topics", ..) => None,
            _ => {
                ["webhook_secret_key", "api_key", "public_key", "token"].iter().find_map(|field| self.auth.text(field))
            }
        };
        if self.authenticated == Some(false) {
            page.differs(depth, "it is not verified there, and is here: the secret has to be the provider's");
        }
        let variable = page.secret(&[name, if field == "topics" { "topic" } else { field }], value);
        let proof = if field == "topics" { format!("topics: [{variable}]") } else { format!("{field}: {variable}") };
        if !preset.scheme.covers_url() {
            let token = self.auth.text("verification_token").filter(|_| provider == "ebay");
            let more =
                token.map(|token| format!(", verify_token: {}", page.secret(&[name, "verify_token"], Some(token))));
            return page
                .line(depth, &format!("verify: {{ provider: {provider}, {proof}{} }}", more.unwrap_or_default()));
        }
        page.differs(
            depth,
            "the signature covers the address: public_url has to be the one that the provider is given",
        );
        page.line(depth, "verify:");
        page.line(depth + 1, &format!("provider: {provider}"));
        page.line(depth + 1, &proof);
        page.line(depth + 1, "public_url: https://hooks.example.com");
    }

    /// By a scheme of one's own.
    fn described(&mut self, name: &str, depth: usize, page: &mut Page) {
        match self.kind.as_str() {
            "HMAC" => self.hmac(name, depth, page),
            "BASIC_AUTH" | "BASIC-AUTH" => self.basic(name, depth, page),
            "API_KEY" => match self.auth.text("header_key") {
                Some(header) => {
                    let key = self.auth.text("api_key");
                    let secret = page.secret(&[name, "secret"], key);
                    page.line(
                        depth,
                        &format!("verify: {{ token: {{ header: {} }}, secret: {secret} }}", quoted(&header)),
                    );
                }
                None => refused(
                    name,
                    "an API key, and the export does not say in which header (ask for it with ?include=config.auth)",
                    depth,
                    page,
                ),
            },
            kind if GENERIC.contains(&kind) && self.authenticated != Some(true) => {
                page.say(depth, "anybody may send, as there");
                page.line(depth, "verify: none");
            }
            kind if GENERIC.contains(&kind) => {
                refused(
                    name,
                    "something that the export does not have (ask for it with ?include=config.auth)",
                    depth,
                    page,
                );
            }
            kind => {
                let kind = quoted(kind);
                refused(name, &format!("a scheme of its own for {kind}, which has no name here"), depth, page);
                let value = ["webhook_secret_key", "api_key", "public_key", "token"]
                    .iter()
                    .find_map(|field| self.auth.text(field));
                page.secret(&[name, "secret"], value);
            }
        }
    }

    fn hmac(&mut self, name: &str, depth: usize, page: &mut Page) {
        const ALGORITHMS: [&str; 3] = ["sha256", "sha1", "sha512"];
        let header = self.auth.text("header_key");
        let algorithm = self.auth.text("algorithm").unwrap_or_else(|| "sha256".to_owned());
        let encoding = self.auth.text("encoding").unwrap_or_else(|| "hex".to_owned());
        let value = self.auth.text("webhook_secret_key");
        let Some(header) = header else {
            return refused(
                name,
                "an HMAC, and the export does not say in which header (ask for it with ?include=config.auth)",
                depth,
                page,
            );
        };
        if !ALGORITHMS.contains(&algorithm.as_str()) {
            return refused(
                name,
                &format!("an HMAC with {}, which is not offered here", quoted(&algorithm)),
                depth,
                page,
            );
        }
        let secret = page.secret(&[name, "secret"], value);
        page.line(depth, "verify:");
        page.line(
            depth + 1,
            &format!(
                "hmac: {{ header: {}, algorithm: {algorithm}, encoding: {} }}",
                quoted(&header),
                quoted(&encoding)
            ),
        );
        page.line(depth + 1, &format!("secret: {secret}"));
    }

    fn basic(&mut self, name: &str, depth: usize, page: &mut Page) {
        let user = self.auth.text("username").or_else(|| self.auth.text("name"));
        let secret = page.secret(&[name, "password"], self.auth.text("password"));
        let user = user.map(|user| format!(" user: {} ", quoted(&user))).unwrap_or_default();
        page.line(depth, &format!("verify: {{ basic: {{{user}}}, secret: {secret} }}"));
    }
}

/// A source that refuses everything until somebody says how it is to be verified: nobody may come in because of a gap here.
fn refused(name: &str, by: &str, depth: usize, page: &mut Page) {
    page.missing(depth, &format!("it is verified there by {by}. Until the next line says how, everything is refused"));
    let secret = page.secret(&[name, "secret"], None);
    page.line(depth, &format!("verify: {{ hmac: {{ header: X-Say-How }}, secret: {secret} }}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(source: serde_json::Value) -> String {
        let mut source = Fields::of(source).unwrap();
        let mut config = source.object("config").unwrap_or_default();
        let mut page = Page::default();
        Proof::take(&mut source, &mut config).write("shop", 0, &mut page);
        format!("{}{}", page.whole(), page.secrets(""))
    }

    #[test]
    fn every_provider_of_the_table_is_known() {
        for (kind, provider) in PROVIDERS {
            assert!(preset(provider).is_some(), "{kind}: {provider}");
            let text = written(json!({ "type": kind }));
            assert!(text.contains(&format!("provider: {provider}")), "{text}");
        }
    }

    #[test]
    fn both_versions_of_the_api_say_the_same() {
        let new = written(json!({ "type": "STRIPE", "config": { "auth": { "webhook_secret_key": "whsec_hush" } } }));
        let old =
            written(json!({ "verification": { "type": "stripe", "configs": { "webhook_secret_key": "whsec_hush" } } }));
        assert_eq!(new, old);
        assert!(new.contains("verify: { provider: stripe, secret: \"${SHOP_SECRET}\" }"), "{new}");
        assert!(new.contains("SHOP_SECRET=whsec_hush\n") && new.matches("whsec").count() == 1, "{new}");
    }

    #[test]
    fn schemes_of_ones_own() {
        let auth =
            json!({ "header_key": "X-Sig", "algorithm": "sha1", "encoding": "base64", "webhook_secret_key": "hush" });
        let text = written(json!({ "type": "WEBHOOK", "config": { "auth_type": "HMAC", "auth": auth } }));
        assert!(text.contains("hmac: { header: \"X-Sig\", algorithm: sha1, encoding: \"base64\" }"), "{text}");
        let text = written(
            json!({ "type": "HTTP", "config": { "auth_type": "BASIC_AUTH", "auth": { "username": "u", "password": "p" } } }),
        );
        assert!(text.contains("verify: { basic: { user: \"u\" }, secret: \"${SHOP_PASSWORD}\" }"), "{text}");
        let text = written(
            json!({ "type": "HTTP", "config": { "auth_type": "API_KEY", "auth": { "header_key": "x-api-key", "api_key": "k" } } }),
        );
        assert!(text.contains("verify: { token: { header: \"x-api-key\" }, secret: \"${SHOP_SECRET}\" }"), "{text}");
        assert!(written(json!({ "type": "HTTP" })).contains("verify: none"));
    }

    /// What is verified there and cannot be here is refused: never let through.
    #[test]
    fn what_cannot_be_verified_is_refused() {
        for source in [
            json!({ "type": "FAVRO", "config": { "auth": { "webhook_secret_key": "hush" } } }),
            json!({ "type": "HTTP", "authenticated": true }),
            json!({ "type": "WEBHOOK", "config": { "auth_type": "HMAC" } }),
            json!({ "type": "HTTP", "config": { "auth_type": "HMAC", "auth": { "header_key": "X", "algorithm": "md5" } } }),
        ] {
            let text = written(source);
            assert!(text.contains("NOT CARRIED OVER: it is verified there by") && text.contains("X-Say-How"), "{text}");
        }
    }

    #[test]
    fn what_a_provider_needs_besides_a_secret() {
        assert!(written(json!({ "type": "TWILIO" })).contains("public_url: https://hooks.example.com"));
        assert!(written(json!({ "type": "AWS_SNS" })).contains("topics: [\"${SHOP_TOPIC}\"]"));
        assert!(
            written(json!({ "type": "PAYPAL", "config": { "auth": { "webhook_id": "1A" } } }))
                .contains("SHOP_WEBHOOK_ID=1A")
        );
        let ebay = json!({ "type": "EBAY", "config": { "auth": { "verification_token": "t", "client_id": "c" } } });
        let ebay = written(ebay);
        assert!(
            ebay.contains("verify_token: \"${SHOP_VERIFY_TOKEN}\"") && ebay.contains("authentication: client_id"),
            "{ebay}"
        );
        let postmark = json!({ "type": "POSTMARK", "config": { "auth": { "username": "u", "password": "p" } } });
        assert!(written(postmark).contains("SHOP_SECRET=u:p"));
        assert!(
            written(json!({ "type": "SHOPIFY", "authenticated": false })).contains("DIFFERS: it is not verified there")
        );
    }
}
