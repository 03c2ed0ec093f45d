//! The judgement: is this request genuine, now.
//!
//! Everything is decided over the bytes that came in, before anything is parsed. The order is:
//! gather what the scheme needs from the headers; try every secret against every signature; only
//! then look at the signed time, because a time means nothing until its signature was right. The
//! work is linear in the body, once for each secret; only a public key wants the text in one piece, and
//! then the body is copied once. Schemes with a file of their own (forms, bodies that hold their
//! signature, tokens) are judged there, by the same secrets and the same window.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method};

use super::armed::{Armed, arm, is_among};
use super::canonical;
use super::encoding::Enc;
use super::fetched::{Material, Of};
use super::found::{Found, one, present};
use super::mac::{self, Hash};
use super::preset::{self, Preset};
use super::reject::{Rejection, shown, shown_url};
use super::scheme::{Alg, Basic, Before, Carrier, Place, Scheme, Signed, Time, Token, WINDOW_DEFAULT, Window};
use super::spec::{Agreed, Choice, SecretSpec, Spec, SpecError, base_url};
use super::template::Parts;
use super::time;
use crate::event::{Secret, Wall};

/// A request as far as a signature can cover it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Path and query exactly as received.
    pub target: &'a str,
    /// `scheme://host` as the sender saw it, from `Host` or a trusted proxy's headers; used where
    /// no `public_url` is configured.
    pub seen_url: Option<&'a str>,
    /// Its header lines.
    pub headers: &'a HeaderMap,
    /// Its body, byte for byte.
    pub body: &'a [u8],
}

/// A request that is genuine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    label: Arc<str>,
    /// Which secret matched, by its place in [`Spec::secrets`]; `None` where there are none.
    pub secret: Option<usize>,
    /// The sender's clock minus ours in seconds, where a time is signed and was judged.
    pub skew_s: Option<i64>,
}

impl Verified {
    pub(super) fn with_skew(self, skew_s: Option<i64>) -> Self {
        Self { skew_s, ..self }
    }

    pub(super) fn without_secret(verifier: &Verifier) -> Self {
        Self { label: Arc::clone(&verifier.plain), secret: None, skew_s: None }
    }

    /// Scheme and which secret, e.g. `shopify secret=0`, as `Fairlane-Verified` says it.
    #[must_use]
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }
}

/// How a signed time is to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It must lie in the window around this moment.
    At(Wall),
    /// It must be a time, of any age: for captured requests.
    AnyAge,
    /// It is text like any other: for examples whose time is no date.
    Opaque,
}

/// A source's verifier: made once, used for every request.
pub struct Verifier {
    pub(super) name: Arc<str>,
    pub(super) scheme: Scheme,
    preset: Option<&'static Preset>,
    pub(super) secrets: Vec<Armed>,
    window: Window,
    public_url: Option<Box<str>>,
    enforce: bool,
    pub(super) agreed: Agreed,
    /// The label of what is not tied to a secret.
    plain: Arc<str>,
}

/// Signatures of one request that are tried against public keys: each costs as much as thousands
/// of bytes of HMAC, and passes over the whole text again. A rotation needs two.
const PUBLIC_TRIED_MAX: usize = 4;

impl Verifier {
    /// Makes a verifier.
    ///
    /// # Errors
    /// Whatever would make it accept anything, or nothing: an unknown provider, no secret, a
    /// secret that is not of the scheme's form, knobs that do not fit each other.
    pub fn new(spec: Spec) -> Result<Self, SpecError> {
        let (name, scheme, preset) = match spec.choice {
            Choice::Preset(name) if name == "none" => (name, Scheme::None, None),
            Choice::Preset(name) => {
                let preset = preset::preset(&name).ok_or_else(|| SpecError::unknown_provider(&name))?;
                (name, preset.scheme.clone(), Some(preset))
            }
            Choice::Scheme(scheme) => (scheme.kind().to_owned(), scheme, None),
        };
        scheme.check().map_err(|(field, problem)| SpecError::Field { field, problem })?;
        if spec.tolerance.is_some() && scheme.time().is_none() {
            return Err(SpecError::ToleranceUnused { scheme: name });
        }
        let needs_topics = matches!(&scheme, Scheme::Fetched(fetched) if fetched.of == Of::Sns);
        if needs_topics && spec.agreed.topics.is_empty() {
            let problem = format!(
                "{name} signs for everybody's topics, so which are yours must be written: topics: [\"arn:aws:sns:…\"]"
            );
            return Err(SpecError::Field { field: "topics", problem });
        }
        super::handshake::check(preset.map(|preset| preset.name), &spec.agreed)?;
        Ok(Self {
            secrets: arm(&name, &scheme, spec.secrets)?,
            window: window(&scheme, spec.tolerance),
            public_url: spec.public_url.as_deref().map(base_url).transpose()?,
            enforce: spec.enforce,
            agreed: spec.agreed,
            plain: name.as_str().into(),
            name: name.into(),
            preset,
            scheme,
        })
    }

    /// Whether `request` is genuine at `now`.
    ///
    /// # Errors
    /// The reason why not.
    pub fn judge(&self, request: &Request<'_>, now: Wall) -> Result<Verified, Rejection> {
        self.judge_when(request, When::At(now))
    }

    /// Whether `request` is genuine, its time judged as `when` says; without a moment, secrets do
    /// not end.
    ///
    /// # Errors
    /// The reason why not.
    pub fn judge_when(&self, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        self.judge_with(request, when, None)
    }

    /// As [`Verifier::judge_when`], with the key that a first judgement said it needs ([`Rejection::KeyNeeded`]).
    ///
    /// # Errors
    /// The reason why not.
    pub fn judge_with(
        &self,
        request: &Request<'_>,
        when: When,
        material: Option<Material<'_>>,
    ) -> Result<Verified, Rejection> {
        let verified = match &self.scheme {
            Scheme::None => Ok(Verified::without_secret(self)),
            Scheme::Fetched(fetched) => self.fetched(fetched, request, when, material),
            Scheme::Token(token) => self.token(token, request, when),
            Scheme::Basic(basic) => self.basic(basic, request, when),
            Scheme::Signed(signed) => self.signed(signed, request, when),
            Scheme::Form(form) => self.form(form, request, when),
            Scheme::Posted(posted) => self.posted(posted, request, when),
            Scheme::Inside(inside) => self.inside(inside, request, when),
            Scheme::Jwt(jwt) => self.jwt(jwt, request, when),
        }?;
        // After the signature, so that nobody learns anything by trying.
        match self.has_signed_on_demand(request) {
            true => Err(Rejection::MalformedBody {
                problem: "what is signed has the form of a handshake's token, and anybody can have such a token signed"
                    .to_owned(),
            }),
            false => Ok(verified),
        }
    }

    /// The provider's name, or the kind of a generic scheme.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scheme it judges by.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// What else is known about the provider.
    #[must_use]
    pub fn preset(&self) -> Option<&'static Preset> {
        self.preset
    }

    /// False: requests that fail are let through, marked.
    #[must_use]
    pub fn enforce(&self) -> bool {
        self.enforce
    }

    /// Scheme, host, port and prefix as configured at the provider.
    pub(super) fn public_url(&self) -> Option<&str> {
        self.public_url.as_deref()
    }

    /// How many secrets are configured, for metrics by index.
    #[must_use]
    pub fn secret_count(&self) -> usize {
        self.secrets.len()
    }

    /// When each configured secret ends; `None`: never.
    pub fn secret_ends(&self) -> impl Iterator<Item = Option<Wall>> {
        self.secrets.iter().map(|armed| armed.until)
    }

    /// The configured secrets, ended ones with them, for trying what a wrong one would have to be.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.secrets.iter().map(|armed| &armed.value)
    }

    /// This verifier with these secrets, none of which ends, in place of its own.
    ///
    /// # Errors
    /// The scheme cannot use one of them, or needs one and has none.
    pub fn with_secrets(&self, secrets: impl IntoIterator<Item = Secret>) -> Result<Self, SpecError> {
        let secrets = secrets.into_iter().map(SecretSpec::new).collect();
        Ok(Self {
            name: Arc::clone(&self.name),
            scheme: self.scheme.clone(),
            preset: self.preset,
            secrets: arm(&self.name, &self.scheme, secrets)?,
            window: self.window,
            public_url: self.public_url.clone(),
            enforce: self.enforce,
            agreed: self.agreed.clone(),
            plain: Arc::clone(&self.plain),
        })
    }

    /// Whether all secrets are in use side by side, as Box's two keys are, so that none of them is an old one.
    #[must_use]
    pub fn secrets_are_peers(&self) -> bool {
        matches!(&self.scheme, Scheme::Signed(signed) if matches!(signed.carrier, Carrier::Own(_)))
    }

    fn token(&self, token: &Token, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        let value = one(request.headers, &token.headers, "the token")?;
        let header = present(request.headers, &token.headers);
        let claimed = token.before.strip(value).ok_or_else(|| {
            // The value itself may be most of a secret: it is not shown.
            Rejection::malformed(header, format!("a token here begins with {:?}", token.before.text()))
        })?;
        self.first_match(when, |armed| mac::same_text(claimed, armed.value.expose()))?
            .ok_or_else(|| Rejection::BadToken { header: header.clone() })
    }

    fn basic(&self, basic: &Basic, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        const HEADER: HeaderName = http::header::AUTHORIZATION;
        let value = one(request.headers, &[HEADER], "user and password")?;
        let decoded = after_scheme(value, b"basic").and_then(|text| Enc::Base64.decode(text));
        let decoded = decoded.ok_or_else(|| Rejection::malformed(&HEADER, "it is not `Basic` and base64"))?;
        let at = decoded.iter().position(|byte| *byte == b':');
        let (user, password) = at
            .and_then(|at| Some((decoded.get(..at)?, decoded.get(at + 1..)?)))
            .ok_or_else(|| Rejection::malformed(&HEADER, "there is no colon between user and password"))?;
        self.first_match(when, |armed| match &basic.user {
            // Both are compared whatever the first one gives: the time taken tells nothing about the user.
            Some(known) => mac::same_text(user, known.as_bytes()) & mac::same_text(password, armed.value.expose()),
            None => mac::same_text(&decoded, armed.value.expose()),
        })?
        .ok_or(Rejection::BadToken { header: HEADER })
    }

    fn signed(&self, signed: &Signed, request: &Request<'_>, when: When) -> Result<Verified, Rejection> {
        signed.check_fixed(request.headers)?;
        let found = Found::find(signed, request.headers)?;
        let (time_text, sent_ms) = self.time_outside_body(signed, &found, request.headers, when)?;
        let url = match self.scheme.covers_url() {
            true => Some(self.url(request)?),
            false => None,
        };
        let url_decoded = canonical::url_decoded(url.as_deref().unwrap_or_default());
        let target = canonical::target(self.public_url.as_deref(), request.target, &signed.template);
        let listed = canonical::listed(signed, request.headers)?;
        let parts = Parts {
            body: request.body,
            time: time_text,
            id: if signed.id.is_empty() { b"" } else { one(request.headers, &signed.id, "the message id")? },
            url: url.as_deref().unwrap_or_default(),
            url_decoded: &url_decoded,
            method: request.method.as_str(),
            headers: signed
                .template
                .headers()
                .map(|name| one(request.headers, std::slice::from_ref(name), "a part of the signed text"))
                .collect::<Result<_, _>>()?,
            target: &target,
            listed: &listed,
        };
        let own = matches!(signed.carrier, Carrier::Own(_));
        let named = signed.alg == Alg::HmacNamed;
        let decoded = found.signatures.iter().map(|text| match named {
            true => hash_named(text).and_then(|(_, text)| signed.enc.decode(text)),
            false => signed.enc.decode(text),
        });
        // Where each belongs to a secret, what cannot be read keeps its place; no hash is empty.
        let claimed: Vec<_> = match own {
            true => decoded.map(Option::unwrap_or_default).collect(),
            false => decoded.flatten().collect(),
        };
        if claimed.iter().all(Vec::is_empty) {
            return Err(Rejection::malformed(&found.header, format!("its signature is not {}", signed.enc.name())));
        }
        let matched = match signed.alg {
            Alg::Hmac(_) | Alg::Digest(_) => self.first_match(when, |armed| {
                let Some(mut mac) = armed.start() else { return false };
                signed.template.feed(&parts, armed.value.expose(), &mut mac);
                match own {
                    true => claimed.get(armed.index).is_some_and(|claimed| mac.finish().matches(claimed)),
                    false => is_among(&mac.finish(), &claimed),
                }
            })?,
            Alg::HmacNamed => self.first_match(when, |armed| {
                found.signatures.iter().fold(false, |hit, text| hit | names_its_hash(signed, &parts, armed, text))
            })?,
            Alg::Public(_) if claimed.len() > PUBLIC_TRIED_MAX => {
                return Err(Rejection::malformed(&found.header, format!("more than {PUBLIC_TRIED_MAX} signatures")));
            }
            Alg::Public(_) => {
                let text = signed.template.joined(&parts);
                self.first_match(when, |armed| claimed.iter().any(|claimed| armed.verifies(&text, claimed)))?
            }
        };
        let verified = matched.ok_or_else(|| Rejection::BadSignature {
            place: found.header.to_string(),
            secrets: self.live_count(when),
            url: url.as_deref().map(shown_url),
        })?;
        self.judge_time(signed, request.body, sent_ms, when, verified)
    }

    /// The time's text, and what it says, unless it stands in the body.
    fn time_outside_body<'h>(
        &self,
        signed: &Signed,
        found: &Found<'h>,
        headers: &'h HeaderMap,
        when: When,
    ) -> Result<(&'h [u8], Option<i64>), Rejection> {
        let Some(Time { place, unit, .. }) = &signed.time else { return Ok((b"", None)) };
        let (header, text) = match place {
            Place::Body(_) => return Ok((b"", None)),
            Place::Header(names) => (present(headers, names), one(headers, names, "the signed time")?),
            Place::Item(_) | Place::FirstItem => {
                let text = found.time.filter(|text| !text.is_empty());
                (&found.header, text.ok_or_else(|| Rejection::malformed(&found.header, "the signed time is missing"))?)
            }
        };
        if when == When::Opaque {
            return Ok((text, None));
        }
        let sent_ms = unit.read(text).ok_or_else(|| {
            Rejection::malformed(header, format!("the time \"{}\" is not {}", shown(text), unit.looks_like()))
        })?;
        Ok((text, Some(sent_ms)))
    }

    /// Judges the time of a request whose signature was right.
    fn judge_time(
        &self,
        signed: &Signed,
        body: &[u8],
        sent_ms: Option<i64>,
        when: When,
        verified: Verified,
    ) -> Result<Verified, Rejection> {
        let sent_ms = match signed.time.as_ref() {
            Some(Time { place: Place::Body(path), unit, .. }) if when != When::Opaque => {
                Some(time::in_body(body, path, *unit)?)
            }
            _ => sent_ms,
        };
        match sent_ms {
            Some(sent_ms) => self.in_window(sent_ms, when, verified),
            None => Ok(verified),
        }
    }

    /// Whether a time, whose signature was right, is near enough.
    pub(super) fn in_window(&self, sent_ms: i64, when: When, verified: Verified) -> Result<Verified, Rejection> {
        let When::At(now) = when else { return Ok(verified) };
        time::within(self.window, sent_ms, now)?;
        let skew_s = sent_ms.saturating_sub(time::wall_ms(now)) / 1_000;
        Ok(Verified { skew_s: Some(skew_s), ..verified })
    }

    /// The first secret in use that fits; all are tried before it is said that none does.
    pub(super) fn first_match(&self, when: When, fits: impl Fn(&Armed) -> bool) -> Result<Option<Verified>, Rejection> {
        if self.live(when).next().is_none() {
            return Err(Rejection::SecretsExpired);
        }
        Ok(self.live(when).find(|(_, armed)| fits(armed)).map(|(index, armed)| Verified {
            label: Arc::clone(&armed.label),
            secret: Some(index),
            skew_s: None,
        }))
    }

    /// The secret of this index, else the first one in use.
    pub(super) fn in_use(&self, index: Option<usize>, when: When) -> Option<&Armed> {
        match index {
            Some(index) => self.secrets.get(index),
            None => self.live(when).next().map(|(_, armed)| armed),
        }
    }

    /// How many secrets are in use.
    pub(super) fn live_count(&self, when: When) -> usize {
        self.live(when).count()
    }

    fn live(&self, when: When) -> impl Iterator<Item = (usize, &Armed)> {
        self.secrets.iter().enumerate().filter(move |(_, armed)| armed.in_use(when))
    }

    /// The public address that was posted to.
    pub(super) fn url(&self, request: &Request<'_>) -> Result<String, Rejection> {
        let base = self.public_url.as_deref().or(request.seen_url).ok_or(Rejection::UnknownUrl)?;
        Ok(format!("{base}{}", request.target))
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("name", &self.name)
            .field("secrets", &self.secrets.len())
            .field("window", &self.window)
            .field("public_url", &self.public_url.as_deref().map(shown_url))
            .field("enforce", &self.enforce)
            .finish_non_exhaustive()
    }
}

/// The hash that stands before a signature, and the signature.
fn hash_named(text: &[u8]) -> Option<(Hash, &[u8])> {
    Hash::NAMED.iter().find_map(|(name, hash)| {
        let rest = text.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some((*hash, rest))
    })
}

/// Whether a signature is right by the hash that it names.
fn names_its_hash(signed: &Signed, parts: &Parts<'_>, armed: &Armed, text: &[u8]) -> bool {
    let right = || {
        let (hash, text) = hash_named(text)?;
        let claimed = signed.enc.decode(text)?;
        let mut mac = armed.start_with(hash)?;
        signed.template.feed(parts, armed.value.expose(), &mut mac);
        Some(mac.finish().matches(&claimed))
    };
    right().unwrap_or(false)
}

impl Signed {
    /// Whether the headers that must say one thing say it.
    fn check_fixed(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        for (name, wanted) in &self.fixed {
            let found = one(headers, std::slice::from_ref(name), "how the signature is made")?;
            if found != wanted.as_bytes() {
                return Err(Rejection::malformed(name, format!("it must be {wanted}; found: {}", shown(found))));
            }
        }
        Ok(())
    }
}

impl Before {
    fn strip<'h>(&self, value: &'h [u8]) -> Option<&'h [u8]> {
        match self {
            Self::Nothing => Some(value),
            Self::Text(text) => value.strip_prefix(text.as_bytes()),
            Self::Bearer => after_scheme(value, b"bearer"),
        }
    }

    /// What it is, as a sender writes it.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Nothing => "",
            Self::Text(text) => text,
            Self::Bearer => "Bearer ",
        }
    }
}

/// What follows an authentication scheme's name, in any case, and blanks (RFC 9110 §11.4).
fn after_scheme<'h>(value: &'h [u8], scheme: &[u8]) -> Option<&'h [u8]> {
    let (name, rest) = value.split_at_checked(scheme.len())?;
    let credentials = rest.trim_ascii_start();
    (name.eq_ignore_ascii_case(scheme) && credentials.len() < rest.len()).then_some(credentials)
}

/// The window that holds: the configured one, else the provider's, else the default.
fn window(scheme: &Scheme, tolerance: Option<Duration>) -> Window {
    let own = scheme.time().and_then(|time| time.window).unwrap_or(Window::both(WINDOW_DEFAULT));
    match tolerance {
        Some(span) => Window { old: span, future: own.future.map(|_| span) },
        None => own,
    }
}
