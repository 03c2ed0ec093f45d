//! A page as a stream of itself: written again every two seconds and sent when it changed.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use parking_lot::Mutex;

use super::Visit;
use crate::admin::problem::Problem;
use crate::event::Mono;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// A look at very many groups takes the driver's time; so much of it at most goes into one stream: a fiftieth.
const RESTS: u32 = 50;

/// But of several nodes, for which most of it is waiting, no longer than this.
const RESTS_MAX: Duration = Duration::from_secs(10);

/// Streams at a time; further ones are refused, and their pages say that they are not live. Each holds a connection, of far more.
const STREAMS_MAX: usize = 32;

/// Of them, of one session: windows that somebody looks at. Pages that are hidden have none.
const SESSION_STREAMS_MAX: usize = 16;

/// A stream ends after this; the browser asks again, and its session is looked at again.
const LASTS: Duration = Duration::from_mins(5);

/// A session; all that come with the token are one.
type Watcher = Option<[u8; 32]>;

/// Whose streams there are.
#[derive(Default)]
pub(super) struct Streams(Arc<Mutex<Vec<Watcher>>>);

/// One of them; ends on drop.
struct Permit {
    streams: Arc<Mutex<Vec<Watcher>>>,
    watcher: Watcher,
}

impl Streams {
    fn permit(&self, watcher: Watcher) -> Option<Permit> {
        let mut streams = self.0.lock();
        let own = streams.iter().filter(|other| **other == watcher).count();
        if streams.len() >= STREAMS_MAX || own >= SESSION_STREAMS_MAX {
            return None;
        }
        streams.push(watcher);
        Some(Permit { streams: Arc::clone(&self.0), watcher })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        if let Some(at) = streams.iter().position(|other| *other == self.watcher) {
            streams.swap_remove(at);
        }
    }
}

struct Watch<R> {
    visit: Visit,
    render: R,
    until: Mono,
    rest: Duration,
    last: String,
    _permit: Permit,
}

/// Streams what `render` writes.
pub(super) fn stream<R, F>(visit: &Visit, render: R) -> Response
where
    R: Fn() -> F + Send + 'static,
    F: Future<Output = Result<String, Problem>> + Send + 'static,
{
    let watcher = visit.seat.as_ref().map(|seat| seat.id);
    let Some(permit) = visit.admin.dashboard.streams.permit(watcher) else {
        return Problem::Watched.into_response();
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
            let rest = took * RESTS;
            let waits = self.visit.admin.others.get().is_some();
            self.rest = EVERY.max(if waits { rest.min(RESTS_MAX) } else { rest });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_leaves_streams_to_others() {
        let streams = Streams::default();
        let watch = |watcher: Watcher| (0..100).map_while(|_| streams.permit(watcher)).collect::<Vec<_>>();
        let first = watch(Some([1; 32]));
        let second = watch(None);
        assert_eq!((first.len(), second.len()), (SESSION_STREAMS_MAX, STREAMS_MAX - SESSION_STREAMS_MAX));
        assert!(streams.permit(Some([3; 32])).is_none(), "all together have an end, too");
        drop(first);
        assert_eq!(watch(Some([3; 32])).len(), SESSION_STREAMS_MAX);
        drop(second);
        assert!(streams.0.lock().is_empty());
    }
}
