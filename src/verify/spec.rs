//! What a source's verifier is made of, and what can be wrong with it.

use std::time::Duration;

use super::preset;
use super::scheme::Scheme;
use crate::event::{Secret, Wall};

/// The settings of one verifier (`verify:` of a source, checked text turned into values).
#[derive(Clone, Debug)]
pub struct Spec {
    /// How senders sign.
    pub choice: Choice,
    /// Tried in this order. Empty for [`Scheme::None`] alone.
    pub secrets: Vec<SecretSpec>,
    /// How far a signed time may be from ours, in place of the provider's window; a provider that
    /// accepts any time to come still does.
    pub tolerance: Option<Duration>,
    /// Scheme, host, port and path prefix as configured at the provider, e.g.
    /// `https://hooks.example.com/in`.
    pub public_url: Option<String>,
    /// False: requests that fail are let through, marked.
    pub enforce: bool,
    /// What is agreed on with the provider besides secrets.
    pub agreed: Agreed,
}

/// What is agreed on with a provider besides secrets.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// The word for handshakes alone: Meta's verify token, eBay's verification token.
    pub token: Option<Secret>,
    /// The topics that may send: ARNs of SNS, addresses of WebSub.
    pub topics: Vec<Box<str>>,
    /// Which handshakes are answered.
    pub handshakes: Handshakes,
}

/// Which handshakes are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handshakes {
    /// None.
    Off,
    /// Those that give nothing away.
    #[default]
    Answer,
    /// Those too in which a provider hands its secret over (Asana, Notion), or asks to confirm a subscription (SNS).
    Open,
}

impl Handshakes {
    /// All of them, by the name that the configuration uses.
    pub const NAMED: [(&'static str, Self); 3] = [("off", Self::Off), ("answer", Self::Answer), ("open", Self::Open)];
}

impl Spec {
    /// A spec of this choice and these secrets, everything else at its default.
    #[must_use]
    pub fn new(choice: Choice, secrets: Vec<SecretSpec>) -> Self {
        Self { choice, secrets, tolerance: None, public_url: None, enforce: true, agreed: Agreed::default() }
    }
}

/// How senders sign: a provider by name, or an own scheme.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The name of a preset, or `none`.
    Preset(String),
    /// A scheme that the operator wrote (see [`super::generic`]).
    Scheme(Scheme),
}

impl Choice {
    /// The scheme; `None` where the name is no preset's.
    #[must_use]
    pub fn scheme(&self) -> Option<&Scheme> {
        match self {
            Self::Preset(name) => preset(name).map(|preset| &preset.scheme),
            Self::Scheme(scheme) => Some(scheme),
        }
    }
}

/// One secret and how long it is in use.
#[derive(Clone, Debug)]
pub struct SecretSpec {
    /// As pasted from the provider; the scheme knows whether to decode it.
    pub value: Secret,
    /// From this moment on it is not tried; `None`: it always is.
    pub until: Option<Wall>,
}

impl SecretSpec {
    /// A secret without an end.
    #[must_use]
    pub fn new(value: Secret) -> Self {
        Self { value, until: None }
    }
}

/// Why no verifier can be made of a [`Spec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no preset of this name.
    #[error("unknown provider {name:?}{}", did_you_mean(*nearest))]
    UnknownProvider {
        /// As configured.
        name: String,
        /// The known name that is most like it.
        nearest: Option<&'static str>,
    },
    /// The scheme needs a secret and has none.
    #[error("{scheme} needs at least one secret: without it nothing could be verified")]
    NoSecret {
        /// The scheme.
        scheme: String,
    },
    /// There are secrets and nothing uses them.
    #[error("a secret is configured, but provider none verifies nothing: name the provider, or remove the secret")]
    SecretUnused,
    /// A secret is not of the form that the scheme needs.
    #[error("secret {index} cannot be used: {scheme} expects {expected}")]
    SecretForm {
        /// Its place among the secrets, from 0.
        index: usize,
        /// The scheme.
        scheme: String,
        /// What it should look like.
        expected: &'static str,
    },
    /// A tolerance is configured and nothing uses it.
    #[error("{scheme} signs no time, so a tolerance has no effect: remove it")]
    ToleranceUnused {
        /// The scheme.
        scheme: String,
    },
    /// `public_url` is no base address.
    #[error("public_url {url:?} {problem}; expected e.g. https://hooks.example.com or https://example.com/prefix")]
    PublicUrl {
        /// As configured.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A knob of a generic scheme is wrong.
    #[error("{field}: {problem}")]
    Field {
        /// Its name in the configuration.
        field: &'static str,
        /// What is wrong, in words.
        problem: String,
    },
}

impl SpecError {
    /// The configuration field at fault, so that its line can be shown.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::UnknownProvider { .. } => "provider",
            Self::NoSecret { .. } | Self::SecretUnused | Self::SecretForm { .. } => "secrets",
            Self::ToleranceUnused { .. } => "tolerance",
            Self::PublicUrl { .. } => "public_url",
            Self::Field { field, .. } => field,
        }
    }

    pub(super) fn unknown_provider(name: &str) -> Self {
        let names = preset::presets().iter().map(|preset| preset.name).chain(["none"]);
        Self::UnknownProvider { name: name.to_owned(), nearest: nearest(name, names) }
    }
}

/// The known name most like `name`: what begins with it, else the nearest by edits.
fn nearest(name: &str, known: impl Iterator<Item = &'static str> + Clone) -> Option<&'static str> {
    /// Jaro-Winkler likeness below which a suggestion would only puzzle.
    const ALIKE: f64 = 0.75;
    let name = name.to_ascii_lowercase();
    let longer = known.clone().filter(|candidate| !name.is_empty() && candidate.starts_with(&name));
    longer.min_by_key(|candidate| candidate.len()).or_else(|| {
        known
            .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
            .filter(|(likeness, _)| *likeness >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, candidate)| candidate)
    })
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(
        || "; `fairlane providers` lists the known ones".to_owned(),
        |name| format!("; did you mean {name:?}?"),
    )
}

/// Checks a public address and takes a slash off its end, so that a target can follow.
pub(super) fn base_url(url: &str) -> Result<Box<str>, SpecError> {
    let wrong = |problem| SpecError::PublicUrl { url: url.to_owned(), problem };
    let parsed: http::Uri = url.parse().map_err(|_| wrong("is not an address"))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none_or(str::is_empty) {
        return Err(wrong("must begin with http:// or https:// and a host"));
    }
    if url.contains(['?', '#']) {
        return Err(wrong("must not have a query or a fragment: those come from each request"));
    }
    Ok(url.trim_end_matches('/').into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_provider_is_told_the_nearest_one() {
        for (name, nearest) in
            [("shopfy", Some("shopify")), ("Stripe", Some("stripe")), ("qqqq", None), ("nne", Some("none"))]
        {
            let SpecError::UnknownProvider { nearest: told, .. } = SpecError::unknown_provider(name) else { panic!() };
            assert_eq!(told, nearest, "{name}");
        }
        assert_eq!(
            SpecError::unknown_provider("shopfy").to_string(),
            "unknown provider \"shopfy\"; did you mean \"shopify\"?"
        );
    }

    #[test]
    fn a_public_url_is_a_base_without_a_query() {
        assert_eq!(base_url("https://a.example:8443/in/").as_deref(), Ok("https://a.example:8443/in"));
        assert_eq!(base_url("http://a.example").as_deref(), Ok("http://a.example"));
        for url in ["a.example", "/in", "ftp://a", "https://", "https://a/?x=1", "https://a/#x", "https://a b"] {
            assert_eq!(base_url(url).unwrap_err().field(), "public_url", "{url}");
        }
    }
}
