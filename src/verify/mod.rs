//! Is it genuine: every provider's way of signing, one judgement.
//!
//! Pure: no clock, no I/O; the moment comes from the caller. A [`Scheme`] is a value that says how
//! a sender signs, a [`Preset`] is what is known about one provider, a [`Verifier`] is a scheme with
//! its secrets. Requests are judged over the bytes received, before any parsing; everything secret
//! is compared in constant time; a missing or empty header is a refusal; a time is believed only
//! after the signature over it was right.
//!
//! # In `gateway.yaml`
//!
//! A source names a provider, or says how it signs; exactly one of these:
//!
//! ```yaml
//! verify: { provider: shopify, secret: "${SHOPIFY_SECRET}" }
//! verify: { provider: none }                        # unsigned; must be written out
//! verify: { none: true }                            # the same
//! verify: { bearer: {}, secrets: [...] }            # Authorization: Bearer <secret>
//! verify: { token: { header: X-Api-Key, prefix: "" }, secrets: [...] }
//! verify: { basic: { user: hooks }, secret: ... }   # without user a secret is user:password
//! verify:
//!   hmac:                          # only `header` is needed
//!     header: X-Sig
//!     algorithm: sha256            # sha1, sha384, sha512; plain-sha256 … with {secret} in the template
//!     encoding: hex                # base64, base64url
//!     prefix: "sha256="            # before each signature
//!     template: "{body}"           # {body} {ts} {id} {url} {method} {secret} {hdr:Name}; {{ and }} are braces
//!     key: text                    # hex, base64, whsec
//!     separator: ","               # any of its characters cuts the value into items
//!     pair: "="                    # between an item's name and value; the separator is then "," unless written
//!     take: [v1]                   # items that are signatures; unknown ones are ignored
//!     timestamp:                   # header: X-Ts | item: t | item: first (of a list without pair) | body: a.b
//!       header: X-Ts
//!       unit: s                    # ms, rfc3339, http-date
//!       tolerance: 300s            # for times gone by
//!       future: 300s               # for times to come, or any; default: as tolerance
//!     id: { header: X-Id }
//!   secrets: [...]                 # tried in order; each may be { value, until }
//!   tolerance: null                # in place of the provider's window
//!   public_url: null               # scheme, host, port and prefix as configured at the provider, for {url}
//!   enforce: true
//! ```
//!
//! Where the signed time is in the body, the template must cover `{body}`; elsewhere it must use
//! `{ts}`. A provider without a documented window gets 300 s both ways.

mod armed;
mod canonical;
mod certificate;
mod describe;
mod encoding;
pub mod fetched;
pub mod form;
mod found;
pub mod generic;
pub mod handshake;
pub mod inside;
mod judge;
pub mod jwt;
pub mod mac;
mod member;
pub mod posted;
mod preset;
pub mod public;
mod reject;
mod resign;
pub mod scheme;
mod sign;
mod spec;
pub mod template;
mod time;

#[cfg(test)]
mod tests;

pub use encoding::{Enc, KeyForm};
pub use fetched::Material;
pub use generic::GenericSpec;
pub use handshake::Reply;
pub use judge::{Request, Verified, Verifier, When};
pub use preset::{Preset, preset, presets};
pub use reject::{Rejection, Skew, without_user};
pub use resign::Again;
pub use scheme::Scheme;
pub use sign::{Outgoing, SignError};
pub use spec::{Agreed, Choice, Handshakes, SecretSpec, Spec, SpecError};
