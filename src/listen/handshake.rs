//! Handshakes: a provider asks whether this address is willing, and is answered here.
//!
//! What a question is and what its answer is made of, `verify` knows. Here stands when it is asked for: before the source's
//! methods are looked at, whatever the store does, and at a bounded pace.

use std::net::IpAddr;

use http::request::Parts;

use super::accept::{Found, Front, as_request};
use super::head::Seen;
use super::reply::Refused;
use super::served::judge_one;
use super::{NoKey, Sender};
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
/// More are asked than may be, the answer is no, or what has to be fetched for it could not be.
pub(super) async fn answer(
    front: &Front,
    found: &Found<'_, '_>,
    seen: &Seen,
    parts: &Parts,
    (from, body): (IpAddr, &[u8]),
) -> Result<Option<verify::Reply>, Refused> {
    if body.len() > BODY_BYTES_MAX {
        return Ok(None);
    }
    let (request, now) = (as_request(seen, parts, body), front.clock.now());
    for sender in found.source.senders.iter().filter(|sender| sender.verifier.asks(&request)) {
        let judged = judge_one(&sender.verifier, &front.fetch, &request, now).await?;
        if let Some(answer) = sender.verifier.answer(&request, judged.ok().as_ref(), When::At(now.wall)) {
            return give(front, found, sender, answer, (from, now)).await.map(Some);
        }
    }
    Ok(None)
}

/// Counts, logs, and does what an answer promises.
async fn give(
    front: &Front,
    found: &Found<'_, '_>,
    sender: &Sender,
    answer: verify::Reply,
    (from, now): (IpAddr, Now),
) -> Result<verify::Reply, Refused> {
    let (source, metrics) = (&found.source.name, &found.source.metrics);
    if !found.source.handshakes.take(from, now.mono) {
        metrics.handshake("limited");
        return Err(Refused::Questions);
    }
    let provider = sender.verifier.name();
    if answer.status >= 400 {
        metrics.handshake("refused");
        tracing::warn!(%source, provider, status = answer.status, "a handshake was refused");
        return Err(Refused::Handshake(Box::new(answer)));
    }
    if let Some(url) = &answer.visit
        && let Err(NoKey::NotThere(problem) | NoKey::Failed(problem)) = (front.fetch)(url).await
    {
        metrics.handshake("failed");
        return Err(Refused::NoKey(problem));
    }
    metrics.handshake("answered");
    tracing::info!(%source, provider, "a handshake was answered");
    Ok(answer)
}
