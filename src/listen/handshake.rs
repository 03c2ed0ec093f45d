//! Handshakes: a provider asks whether this address is willing, and is answered here.
//!
//! What a question is and what its answer is made of, `verify` knows. Here stands when it is asked for: before the source's
//! methods are looked at, whatever the store does, and at a bounded pace.

use http::request::Parts;

use super::accept::{Found, as_request};
use super::head::Seen;
use super::reply::Refused;
use crate::event::Now;
use crate::verify::{self, When};

/// Larger bodies are no handshakes: those of providers are well below a kilobyte.
pub(super) const BODY_BYTES_MAX: usize = 16 * 1024;

/// Whether a request with this head may be a handshake.
pub(super) fn may_ask(found: &Found<'_, '_>, seen: &Seen, parts: &Parts) -> bool {
    let head = as_request(seen, parts, b"");
    found.source.senders.iter().any(|sender| sender.verifier.may_ask(&head))
}

/// The answer to a handshake; `None` where the request is none, and goes the ordinary way.
///
/// # Errors
/// More are asked than may be, or the answer is no.
pub(super) fn answer(
    found: &Found<'_, '_>,
    seen: &Seen,
    parts: &Parts,
    body: &[u8],
    now: Now,
) -> Result<Option<verify::Reply>, Refused> {
    if body.len() > BODY_BYTES_MAX {
        return Ok(None);
    }
    let request = as_request(seen, parts, body);
    let when = When::At(now.wall);
    let Some((sender, answer)) =
        found.source.senders.iter().find_map(|sender| Some((sender, sender.verifier.handshake(&request, when)?)))
    else {
        return Ok(None);
    };
    let metrics = &found.source.metrics;
    if !found.source.handshakes.take(now.mono) {
        metrics.handshake("limited");
        return Err(Refused::Questions);
    }
    let provider = sender.verifier.name();
    if answer.status >= 400 {
        metrics.handshake("refused");
        tracing::warn!(source = %found.source.name, provider, status = answer.status, "a handshake was refused");
        return Err(Refused::Handshake(answer));
    }
    metrics.handshake("answered");
    tracing::info!(source = %found.source.name, provider, "a handshake was answered");
    Ok(Some(answer))
}
