//! Reading an answer's body: as much as lets its connection be used again, and no more.

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::outcome::{Answer, BodyEnd};
use super::wire::Deadline;

/// Longest body that is read to its end for the connection's sake, in bytes: reading more costs more than a new connection.
const DRAIN_BYTES_MAX: usize = 64 * 1024;

/// Reads `response`, keeping the first `keep` bytes of its body. What is slow, broken or too long is cut off, and the
/// connection with it: the status is known.
pub(super) async fn read(response: Response<Incoming>, keep: usize, deadline: Deadline) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut kept = BytesMut::new();
    let reading = read_body(&mut body, &mut kept, keep);
    let end = tokio::time::timeout_at(deadline.at, reading).await.unwrap_or(BodyEnd::Late);
    Answer { status: head.status, headers: head.headers, body: kept.freeze(), end }
}

/// Reads into `kept`; whether that is the whole body.
async fn read_body(body: &mut Incoming, kept: &mut BytesMut, keep: usize) -> BodyEnd {
    let most = DRAIN_BYTES_MAX.max(keep);
    let mut total = 0_usize;
    // What says how long it is need not be read only to find out.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let enough = if announced > most { keep } else { most };
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return BodyEnd::BrokeOff };
        let Some(data) = frame.data_ref() else { continue };
        total = total.saturating_add(data.len());
        kept.extend_from_slice(first(data, keep - kept.len()));
        if total > enough {
            return BodyEnd::TooLong;
        }
    }
    if total == kept.len() { BodyEnd::Whole } else { BodyEnd::TooLong }
}

fn first(data: &Bytes, most: usize) -> &[u8] {
    data.get(..most).unwrap_or(data)
}
