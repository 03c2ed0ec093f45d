//! Where a request of a source with `respond: upstream` leaves the ingest path: it waits for the upstream's own answer, and that is what
//! its sender gets. It is never stored; when its sender goes away, or its time is over, nothing of it is left.

use std::sync::Arc;

use bytes::Bytes;
use http::Version;

use super::Source;
use super::accept::Front;
use super::connection::Connection;
use super::reply::{self, Reply};
use crate::driver::{Answered, Charge, Crowded, Unanswered};
use crate::event::{Event, Mono};
use crate::metrics::Metrics;

/// A verified and grouped request whose sender waits.
pub(super) struct Call {
    pub(super) event: Event,
    /// Its body's share of the memory.
    pub(super) charge: Charge,
    /// When it has to be answered.
    pub(super) deadline: Mono,
}

/// Has it answered. `buffered` is the memory that all bodies share, relayed answers with them.
pub(super) async fn relay(
    front: &Front,
    buffered: usize,
    connection: &Connection,
    source: &Source,
    call: Call,
    version: Version,
) -> Reply {
    let mut count = Count { metrics: front.handle.metrics(), outcome: "gone" };
    // HTTP/2 says itself that a stream or a connection has ended.
    let _held = (version != Version::HTTP_2).then(|| connection.hold());
    let answered = front.handle.live(Arc::new(call.event), call.deadline).await;
    drop(call.charge);
    match answered.and_then(|answered| charged(answered, front, buffered)) {
        Ok(answered) => {
            count.outcome = "relayed";
            reply::relayed(answered)
        }
        Err(why) => {
            count.outcome = why.as_str();
            reply::unanswered(why, &source.answers, front.jitter())
        }
    }
}

/// Counts a live request however it ends, also when its sender goes away and the future is dropped.
struct Count<'m> {
    metrics: &'m Metrics,
    outcome: &'static str,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.metrics.lived(self.outcome);
    }
}

/// The answer, its body counted in the memory for bodies until its last byte has gone out: a sender may read slowly.
fn charged(answered: Answered, front: &Front, buffered: usize) -> Result<Answered, Unanswered> {
    let bytes = answered.body.len();
    let charge = front.budget.with_limit(buffered).open(Some(bytes)).and_then(|mut charge| {
        charge.grow(bytes)?;
        Ok(charge)
    });
    let charge = charge.map_err(|Crowded| Unanswered::Memory)?;
    let body = Bytes::from_owner(Body { bytes: answered.body, _charge: charge });
    Ok(Answered { body, ..answered })
}

struct Body {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
