//! A source with what is made ready of it, and the judgement of its requests.

use std::net::IpAddr;
use std::ops::Deref;
use std::time::Duration;

use super::group::Rules;
use super::head;
use super::pace::{Pace, PaceByAddress};
use super::reply::Refused;
use super::{Fetch, NoKey, Sender, Source};
use crate::event::Now;
use crate::metrics::SourceMetrics;
use crate::verify::{Material, Rejection, Request, Verified, Verifier, When};

/// How often it is said that senders still sign with an old secret: a rotation takes hours, and one line an hour is read.
const OLD_SECRET_EVERY: Duration = Duration::from_hours(1);
/// Handshakes of one address that are answered at once, and one every so long after that. Providers ask once, or once an hour; whoever asks more
/// than ten times a second is none of them, and gets 429. A setup that checks many subscriptions of one address at once passes.
const HANDSHAKES_AT_ONCE: u32 = 100;
const HANDSHAKES_EVERY: Duration = Duration::from_millis(100);

/// A source with what is made ready of it.
pub(super) struct Served {
    source: Source,
    /// The rules of each sender.
    rules: Vec<Rules>,
    pub(super) metrics: SourceMetrics,
    pub(super) handshakes: PaceByAddress,
    old_secret: Pace,
}

impl Deref for Served {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

/// A genuine request.
pub(super) struct Judged<'s> {
    pub(super) rules: &'s Rules,
    pub(super) verified: Verified,
}

impl Served {
    pub(super) fn new(source: Source, metrics: SourceMetrics) -> Self {
        Self {
            rules: source.senders.iter().map(|sender| Rules::of(&source, sender)).collect(),
            handshakes: PaceByAddress::new(HANDSHAKES_AT_ONCE, HANDSHAKES_EVERY),
            old_secret: Pace::new(1, OLD_SECRET_EVERY),
            source,
            metrics,
        }
    }

    /// Who of the senders it is from: the first for whom it is genuine.
    ///
    /// # Errors
    /// Why it is from none: of several the refusal that says most.
    pub(super) async fn judge(&self, fetch: &Fetch, request: &Request<'_>, now: Now) -> Result<Judged<'_>, Refused> {
        let mut refusals = Vec::new();
        let mut secrets_before = 0;
        for (sender, rules) in self.senders.iter().zip(&self.rules) {
            match judge_one(&sender.verifier, fetch, request, now).await? {
                Ok(verified) => {
                    self.count(sender, &verified, secrets_before, now);
                    return Ok(Judged { rules, verified });
                }
                Err(rejection) => refusals.push((sender, rejection)),
            }
            secrets_before += sender.verifier.secret_count();
        }
        Err(most_telling(refusals))
    }

    /// Whether requests may come from `address`.
    ///
    /// # Errors
    /// They may not.
    pub(super) fn allows(&self, address: IpAddr) -> Result<(), Refused> {
        let allowed = self.allow_ips.is_empty() || head::is_in(address, &self.allow_ips);
        if allowed { Ok(()) } else { Err(Refused::Address(address)) }
    }

    /// Whether what is not genuine is refused.
    pub(super) fn enforces(&self) -> bool {
        self.senders.iter().all(|sender| sender.verifier.enforce())
    }

    /// Counts which secret matched, by its place among those of all senders, and how far the clocks are apart.
    fn count(&self, sender: &Sender, verified: &Verified, secrets_before: usize, now: Now) {
        if let Some(skew) = verified.skew_s {
            self.metrics.skew(skew);
        }
        let Some(index) = verified.secret else { return };
        self.metrics.secret_matched(secrets_before + index);
        // Box has two keys that are in use for good: each has its own header.
        if index > 0 && !sender.verifier.secrets_are_peers() && self.old_secret.take(now.mono) {
            tracing::warn!(
                source = %self.name,
                verified = %verified.label(),
                "events are still signed with another secret than the first; do not take it away yet"
            );
        }
    }
}

/// Judges a request, fetching the key that it names where that is one of the provider's own.
///
/// # Errors
/// The key could not be fetched, which says nothing about the request.
pub(super) async fn judge_one(
    verifier: &Verifier,
    fetch: &Fetch,
    request: &Request<'_>,
    now: Now,
) -> Result<Result<Verified, Rejection>, Refused> {
    let when = When::At(now.wall);
    let url = match aside(request.body.len(), || verifier.judge_when(request, when)) {
        Err(Rejection::KeyNeeded { url }) => url,
        judged => return Ok(judged),
    };
    match fetch(&url).await {
        Ok(pem) => {
            let material = Material { url: &url, pem: &pem };
            Ok(aside(request.body.len(), || verifier.judge_with(request, when, Some(material))))
        }
        Err(NoKey::NotThere(problem)) => Ok(Err(Rejection::UntrustedKey { problem })),
        Err(NoKey::Failed(problem)) => Err(Refused::NoKey(problem)),
    }
}

/// Bodies above this size are verified and read for their key aside, so that their cost (some 10 ms a megabyte at worst) holds up
/// nobody's small ones.
const ASIDE_BYTES: usize = 256 * 1024;

/// Runs `work` over a body of so many bytes, aside where it is large.
pub(super) fn aside<T>(body_bytes: usize, work: impl FnOnce() -> T) -> T {
    if body_bytes > ASIDE_BYTES { tokio::task::block_in_place(work) } else { work() }
}

/// A sender whose headers are there is the one that was meant.
fn most_telling(refusals: Vec<(&Sender, Rejection)>) -> Refused {
    let several = refusals.len() > 1;
    let meant = refusals.iter().position(|(_, rejection)| !matches!(rejection, Rejection::MissingHeader { .. }));
    let chosen = refusals.into_iter().nth(meant.unwrap_or(0));
    let (sender, rejection) = chosen.expect("invariant: a source has at least one sender");
    Refused::Unverified { sender: several.then(|| sender.verifier.name().to_owned()), rejection }
}
