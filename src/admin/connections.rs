//! The open connections of one listener: how many there may be, and which one gives way to a further one.
//!
//! Anybody who reaches the address can open connections, without a token, and must not keep others out by that. So a new connection always
//! finds a place, unless all places are held by requests of those who may ask: first the connection gives way that has been without a request
//! for longest, then the one whose request, of somebody unknown, has gone on for longest.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::event::Mono;

/// Open connections at most: a scraper, probes, some browsers. More are a mistake or an attack on the files that we may open.
const CONNECTIONS_MAX: usize = 256;

/// The log says at most that often that there are too many.
const SAID_EVERY: Duration = Duration::from_mins(1);

/// The places of a listener.
pub(super) struct Places {
    table: Arc<Mutex<Table>>,
    /// When the log last said that there are too many, and how many it did not mention since.
    said: Option<Mono>,
    unsaid: u64,
}

#[derive(Default)]
struct Table {
    /// Counts what happens: the moment of everything here.
    turn: u64,
    open: HashMap<u64, Open>,
}

struct Open {
    busy: bool,
    /// A request over it has shown that it may ask.
    known: bool,
    /// Since which turn it has been as `busy` says.
    since: u64,
    /// Dropped with the entry: the connection ends.
    _stays: oneshot::Sender<Infallible>,
}

/// The place of one connection; given back on drop.
pub(super) struct Place {
    table: Arc<Mutex<Table>>,
    number: u64,
    /// A request of it was read.
    asked: watch::Sender<bool>,
}

/// Done when a connection has to give way.
pub(super) type GivesWay = oneshot::Receiver<Infallible>;

impl Places {
    /// All places are free.
    pub(super) fn new() -> Self {
        Self { table: Arc::default(), said: None, unsaid: 0 }
    }

    /// A place for a new connection, of the one that gives way where there are too many. `None` when none does.
    pub(super) fn enter(&mut self, now: Mono) -> Option<(Arc<Place>, GivesWay)> {
        let mut table = self.table.lock();
        let full = table.open.len() >= CONNECTIONS_MAX;
        let entered = (!full || table.make_room()).then(|| table.open());
        drop(table);
        if full {
            self.say(entered.is_some(), now);
        }
        let (number, gives_way) = entered?;
        let asked = watch::Sender::new(false);
        Some((Arc::new(Place { table: Arc::clone(&self.table), number, asked }), gives_way))
    }

    fn say(&mut self, entered: bool, now: Mono) {
        self.unsaid += 1;
        if self.said.is_some_and(|said| now.since(said) < SAID_EVERY) {
            return;
        }
        let (most, times) = (CONNECTIONS_MAX, std::mem::take(&mut self.unsaid));
        self.said = Some(now);
        if entered {
            tracing::warn!(
                most,
                times,
                "too many connections to the admin or tenants' address: the oldest without a request give way"
            );
        } else {
            tracing::warn!(
                most,
                times,
                "too many requests at the admin or tenants' address: further connections are closed"
            );
        }
    }
}

impl Table {
    fn turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn open(&mut self) -> (u64, GivesWay) {
        let (stays, gives_way) = oneshot::channel();
        let number = self.turn();
        self.open.insert(number, Open { busy: false, known: false, since: number, _stays: stays });
        (number, gives_way)
    }

    fn make_room(&mut self) -> bool {
        let able = self.open.iter().filter(|(_, open)| !(open.busy && open.known));
        let first = able.min_by_key(|(_, open)| (open.busy, open.since)).map(|(number, _)| *number);
        first.is_some_and(|number| self.open.remove(&number).is_some())
    }
}

impl Place {
    /// Resolves when a request of it was read.
    pub(super) async fn asked(&self) {
        if self.asked.subscribe().wait_for(|asked| *asked).await.is_err() {
            // Its sender is our own.
            std::future::pending::<()>().await;
        }
    }

    fn turn(&self, busy: bool) {
        if busy {
            self.asked.send_replace(true);
        }
        let mut table = self.table.lock();
        let since = table.turn();
        // Gone where it is giving way.
        if let Some(open) = table.open.get_mut(&self.number) {
            (open.busy, open.since) = (busy, since);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().open.remove(&self.number);
    }
}

/// Whoever sent this request may ask.
pub(super) fn known(extensions: &Extensions) {
    if let Some(place) = extensions.get::<Arc<Place>>()
        && let Some(open) = place.table.lock().open.get_mut(&place.number)
    {
        open.known = true;
    }
}

/// Notes that a connection has a request, from its head to the end of its answer.
pub(super) async fn noted(State(place): State<Arc<Place>>, mut request: Request, next: Next) -> Response {
    place.turn(true);
    let busy = Busy(Arc::clone(&place));
    request.extensions_mut().insert(place);
    next.run(request).await.map(|body| Body::new(Answer { body, _busy: busy }))
}

struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.turn(false);
    }
}

/// An answer's body, which keeps its connection busy.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(gives_way: &mut GivesWay) -> bool {
        gives_way.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_longest_at_rest_gives_way_then_the_longest_request_of_a_stranger() {
        let mut places = Places::new();
        let mut open: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.enter(Mono(0)).unwrap()).collect();
        open.iter().for_each(|(place, _)| place.turn(true));
        open[0].0.turn(false);
        open[3].0.turn(false);
        for first in [3, 0, 1] {
            // The first one has been at rest for longer than the others, but has just had a request.
            if first == 3 {
                open[0].0.turn(true);
                open[0].0.turn(false);
            }
            let further = places.enter(Mono(0)).unwrap();
            further.0.turn(true);
            assert!(gone(&mut open[first].1), "{first}");
            open.push(further);
        }
        assert_eq!(open.iter_mut().map(|(_, gives_way)| gone(gives_way)).filter(|gone| *gone).count(), 3);
        assert_eq!(places.table.lock().open.len(), CONNECTIONS_MAX);
    }

    #[test]
    fn requests_of_those_who_may_ask_are_not_cut() {
        let mut places = Places::new();
        let open: Vec<_> = (0..CONNECTIONS_MAX).map(|_| places.enter(Mono(0)).unwrap()).collect();
        for (place, _) in &open {
            place.turn(true);
            let mut extensions = Extensions::new();
            extensions.insert(Arc::clone(place));
            known(&extensions);
        }
        assert!(places.enter(Mono(0)).is_none());
        open[7].0.turn(false);
        assert!(places.enter(Mono(0)).is_some(), "that one is at rest");
        drop(open);
        assert!(places.table.lock().open.is_empty());
    }
}
