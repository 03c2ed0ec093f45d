//! A page as a stream of itself: written again every two seconds and sent when it changed.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Visit;
use crate::admin::problem::Problem;
use crate::event::Mono;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// A look at very many groups takes the driver's time; so much of it at most goes into one stream: a fiftieth.
const RESTS: u32 = 50;

/// Streams at a time; further ones are refused, and their pages say that they are not live.
const STREAMS_MAX: usize = 32;

/// A stream ends after this; the browser asks again, and its session is looked at again.
const LASTS: Duration = Duration::from_mins(5);

/// Who may stream.
pub(super) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS_MAX)))
    }
}

struct Watch<R> {
    visit: Visit,
    render: R,
    until: Mono,
    rest: Duration,
    last: String,
    _permit: OwnedSemaphorePermit,
}

/// Streams what `render` writes.
pub(super) fn stream<R, F>(visit: &Visit, render: R) -> Response
where
    R: Fn() -> F + Send + 'static,
    F: Future<Output = Result<String, Problem>> + Send + 'static,
{
    let Ok(permit) = Arc::clone(&visit.admin.dashboard.streams.0).try_acquire_owned() else {
        return Problem::Store("too many pages are watched live".to_owned()).into_response();
    };
    let until = visit.admin.handle.now().mono.plus(LASTS);
    let watch =
        Watch { visit: visit.clone(), render, until, rest: Duration::ZERO, last: String::new(), _permit: permit };
    let pages = stream::unfold(watch, |watch| watch.next());
    // Comments in between, so that both sides notice when the other one has gone.
    Sse::new(pages).keep_alive(KeepAlive::default()).into_response()
}

impl<R, F> Watch<R>
where
    R: Fn() -> F,
    F: Future<Output = Result<String, Problem>>,
{
    /// The page as soon as it differs from what was sent last; none when the stream is over, or the page cannot be shown.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            tokio::time::sleep(self.rest).await;
            let began = self.visit.admin.handle.now().mono;
            if began >= self.until || !self.may_read() {
                return None;
            }
            let page = (self.render)().await.ok()?;
            let took = self.visit.admin.handle.now().mono.since(began);
            self.rest = EVERY.max(took * RESTS);
            if page != self.last {
                self.last.clone_from(&page);
                return Some((Ok(Event::default().data(page)), self));
            }
        }
    }

    /// Whether the session is still one: it may have been signed out meanwhile.
    fn may_read(&self) -> bool {
        let sessions = &self.visit.admin.dashboard.sessions;
        self.visit.seat.as_ref().is_none_or(|seat| sessions.holds(seat, self.visit.admin.handle.now().mono))
    }
}
