//! Spans: what was done for an event and how long it took, for whoever collects traces.
//!
//! Who does something records it when it has ended, and knows nothing of where it goes: to a queue with a bound, or nowhere. Nothing
//! here ever waits; what the queue has no room for is dropped and counted. While nobody collects, [`Recorder::is_on`] is one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::event::{Now, Trace, Wall};

/// Something that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace, its own id, its flags.
    pub context: Trace,
    /// The span that it is a part of; `None` for the first of a trace.
    pub parent: Option<[u8; 8]>,
    /// What: `accept`, `deliver` …
    pub name: &'static str,
    /// Which side of a request it is.
    pub kind: Kind,
    /// When it began.
    pub start: Wall,
    /// When it ended.
    pub end: Wall,
    /// What is known of it. No bodies, no headers, no queries: they may hold secrets.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed; `None` when it did not.
    pub failure: Option<String>,
}

/// Which side of a request a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Neither.
    Internal,
    /// A request that came.
    Server,
    /// A request that was sent.
    Client,
}

/// What is known of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// In words.
    Text(Arc<str>),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Arc<str>> for Value {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(Arc::clone(text))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

/// Where spans go.
pub struct Recorder {
    clock: Arc<dyn Clock>,
    on: AtomicBool,
    queue: RwLock<Option<mpsc::Sender<Span>>>,
    dropped: Counter,
}

impl Recorder {
    /// One that records nothing yet. `dropped` counts what the queue has no room for.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, dropped: Counter) -> Self {
        Self { clock, on: AtomicBool::new(false), queue: RwLock::new(None), dropped }
    }

    /// From now on spans go there, or nowhere.
    pub fn send_to(&self, queue: Option<mpsc::Sender<Span>>) {
        let mut place = self.queue.write();
        self.on.store(queue.is_some(), Ordering::Relaxed);
        *place = queue;
    }

    /// Whether anybody collects. Ask before anything is done for a span.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// This moment, for a span's start or end.
    #[must_use]
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Hands a span over. Never waits.
    pub fn record(&self, span: Span) {
        if let Some(queue) = &*self.queue.read()
            && queue.try_send(span).is_err()
        {
            self.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn what_has_no_room_is_dropped_and_counted_and_nobody_waits() {
        let dropped = Counter::default();
        let recorder = Recorder::new(Arc::new(TestClock::at(Wall(1))), dropped.clone());
        let span = Span {
            context: Trace { id: [1; 16], span: [2; 8], flags: 1 },
            parent: None,
            name: "accept",
            kind: Kind::Server,
            start: Wall(1),
            end: Wall(2),
            attributes: Vec::new(),
            failure: None,
        };
        recorder.record(span.clone());
        assert_eq!((recorder.is_on(), dropped.get()), (false, 0), "nobody wants it");
        let (queue, mut waiting) = mpsc::channel(2);
        recorder.send_to(Some(queue));
        for _ in 0..5 {
            recorder.record(span.clone());
        }
        assert_eq!((recorder.is_on(), dropped.get()), (true, 3));
        assert_eq!(waiting.try_recv().ok(), Some(span));
        recorder.send_to(None);
        assert!(!recorder.is_on());
    }
}
