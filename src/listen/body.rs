//! Reading a body: counted while it arrives, never trusting what was declared.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

use crate::clock::Clock;
use crate::driver::Charge;

/// A body may take this long whatever its rate: a short stall is no attack.
const GRACE: Duration = Duration::from_secs(5);

/// After the grace, at least this many bytes have to have come for each second. A 26 MiB body at this rate would take hours:
/// the limit on the whole body's time ends that.
const BYTES_PER_SECOND_MIN: u64 = 1024;

/// Memory taken ahead for a body whose length is declared: a false declaration costs no more than this.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

/// What is read and thrown away of a refused body, so that a client which writes everything before it reads still sees why.
const DISCARD_BYTES_MAX: usize = 1024 * 1024;

/// And for how long.
const DISCARD_FOR: Duration = Duration::from_millis(500);

/// What may be read, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Bytes.
    pub(super) bytes: usize,
    /// For the whole body.
    pub(super) timeout: Duration,
}

/// Why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFault {
    /// More bytes than the limit.
    TooLarge,
    /// Too slow, as a whole or in its rate; the count is what had come.
    TooSlow(usize),
    /// The memory for bodies is taken.
    Crowded,
    /// The client went away, or its framing is broken.
    Broken,
}

/// The declared length, where there is one that one can hold.
pub(super) fn declared<B: Body>(body: &B) -> Option<usize> {
    body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok())
}

/// Reads `body` to its end. What it takes of memory is in `charge`.
///
/// # Errors
/// Why it stopped; nothing of the body is kept then.
pub(super) async fn read<B>(
    body: &mut B,
    charge: &mut Charge,
    limits: BodyLimits,
    clock: &dyn Clock,
) -> Result<Bytes, BodyFault>
where
    B: Body<Data = Bytes> + Unpin,
{
    let declared = declared(body);
    if declared.is_some_and(|bytes| bytes > limits.bytes) {
        return Err(BodyFault::TooLarge);
    }
    let started = clock.now().mono;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut received = 0usize;
    loop {
        let left = deadline(received, limits.timeout).saturating_sub(clock.now().mono.since(started));
        let frame = match in_time(left, body.frame()).await {
            Err(_elapsed) => return Err(BodyFault::TooSlow(received)),
            Ok(None) => break,
            Ok(Some(Err(_broken))) => return Err(BodyFault::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers say nothing about an event; they are read and left.
        let Ok(data) = frame.into_data() else { continue };
        received = received.saturating_add(data.len());
        if received > limits.bytes {
            return Err(BodyFault::TooLarge);
        }
        charge.grow(data.len()).map_err(|_| BodyFault::Crowded)?;
        if first.is_empty() && rest.is_empty() {
            // Most bodies come in one piece and are never copied.
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(declared.unwrap_or(0).min(AHEAD_BYTES_MAX).max(received));
            rest.extend_from_slice(&first);
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// How long after its start a body of which `received` bytes have come has to have more, or end.
fn deadline(received: usize, whole: Duration) -> Duration {
    let paid = Duration::from_secs(u64::try_from(received).unwrap_or(u64::MAX) / BYTES_PER_SECOND_MIN);
    GRACE.saturating_add(paid).min(whole)
}

/// Reads and throws away a bounded part of a refused body.
pub(super) async fn discard<B>(body: &mut B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut left = DISCARD_BYTES_MAX;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    // Out of time is as good as out of bytes: the connection is closed next.
    drop(in_time(DISCARD_FOR, reading).await);
}

/// What `reading` gives, unless the time is over before. The clock is asked whatever the task has used up: a sender whose bytes are all framing
/// (a chunk's size of zeros without end) has the connection's reader take the whole of each turn, and a timer within the turn's budget would never ring.
async fn in_time<F: Future>(span: Duration, reading: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::task::unconstrained(tokio::time::timeout(span, reading)).await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use tokio::time::Sleep;

    use super::*;
    use crate::driver::Budget;
    use crate::event::{Mono, Now, Wall};

    /// Follows tokio's paused clock.
    struct Paused(tokio::time::Instant);

    impl Paused {
        fn new() -> Self {
            #[expect(clippy::disallowed_methods, reason = "the test's clock is tokio's paused one")]
            Self(tokio::time::Instant::now())
        }
    }

    impl Clock for Paused {
        fn now(&self) -> Now {
            let passed = self.0.elapsed();
            Now { mono: Mono(0).plus(passed), wall: Wall(0).plus(passed) }
        }
    }

    /// Pieces that come after a pause each; ends after the last, or never.
    struct Pieces {
        pieces: VecDeque<(Duration, Bytes)>,
        pause: Option<Pin<Box<Sleep>>>,
        ends: bool,
    }

    impl Pieces {
        fn new(pieces: impl IntoIterator<Item = (u64, &'static [u8])>, ends: bool) -> Self {
            let pieces = pieces.into_iter().map(|(ms, b)| (Duration::from_millis(ms), Bytes::from_static(b))).collect();
            Self { pieces, pause: None, ends }
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some((pause, piece)) = self.pieces.front().cloned() else {
                return if self.ends { Poll::Ready(None) } else { Poll::Pending };
            };
            let sleep = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            std::task::ready!(sleep.as_mut().poll(cx));
            self.pause = None;
            self.pieces.pop_front();
            Poll::Ready(Some(Ok(Frame::data(piece))))
        }
    }

    async fn read_pieces(mut body: Pieces, bytes: usize, budget: &Budget) -> Result<Bytes, BodyFault> {
        let mut charge = budget.open(Some(1)).unwrap();
        let limits = BodyLimits { bytes, timeout: Duration::from_secs(30) };
        read(&mut body, &mut charge, limits, &Paused::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_are_joined_and_counted() {
        let budget = Budget::new(1000);
        let body = Pieces::new([(0, b"ab".as_slice()), (10, b"cd"), (10, b"e")], true);
        assert_eq!(read_pieces(body, 5, &budget).await, Ok(Bytes::from_static(b"abcde")));
        let body = Pieces::new([(0, b"ab".as_slice()), (10, b"cd"), (10, b"ef")], true);
        assert_eq!(read_pieces(body, 5, &budget).await, Err(BodyFault::TooLarge));
        assert_eq!(read_pieces(Pieces::new([], true), 5, &budget).await, Ok(Bytes::new()));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_is_cut_after_the_grace_and_a_stall_too() {
        let budget = Budget::new(1_000_000);
        let drip = Pieces::new((0..100).map(|_| (1000, b"x".as_slice())), true);
        assert!(matches!(read_pieces(drip, 1000, &budget).await, Err(BodyFault::TooSlow(4 | 5))));
        assert_eq!(read_pieces(Pieces::new([], false), 1000, &budget).await, Err(BodyFault::TooSlow(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_body_passes_until_its_whole_time_is_over() {
        static PIECE: [u8; 2048] = [0; 2048];
        let budget = Budget::new(1_000_000);
        let steady = |n| Pieces::new((0..n).map(|_| (1000, PIECE.as_slice())), true);
        assert_eq!(read_pieces(steady(25), 1_000_000, &budget).await.map(|b| b.len()), Ok(25 * 2048));
        assert!(matches!(read_pieces(steady(40), 1_000_000, &budget).await, Err(BodyFault::TooSlow(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_shared_memory_is_a_limit_too() {
        let budget = Budget::new(3);
        let body = Pieces::new([(0, b"ab".as_slice()), (10, b"cd")], true);
        assert_eq!(read_pieces(body, 100, &budget).await, Err(BodyFault::Crowded));
        assert_eq!(budget.used(), 0);
    }
}
