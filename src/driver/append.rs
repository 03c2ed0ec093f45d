//! The way into the store: submissions gather while one batch is being made durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::admission::Admission;
use super::{Shared, Shed, Submission};
use crate::clock::Seldom;
use crate::engine::Engine;
use crate::event::{Event, Lane, Mono, Now, Seq};
use crate::store::Error;

/// Events of one batch at most. Beyond some hundreds a batch's write outweighs its `fdatasync` and only adds latency.
const BATCH_EVENTS_MAX: usize = 1_000;

/// Bytes of bodies in one batch at most (one larger event goes alone).
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

type Append = Pin<Box<dyn Future<Output = Result<Seq, Error>> + Send>>;

/// A batch that the store is making durable.
struct Appending {
    batch: Vec<Submission>,
    started: Mono,
    done: Append,
}

/// A batch that is done, and how.
pub(super) struct Appended {
    batch: Vec<Submission>,
    started: Mono,
    result: Result<Seq, Error>,
}

/// What waits for the store, and what is on its way in.
pub(super) struct Appends {
    shared: Arc<Shared>,
    gathered: Vec<Submission>,
    appending: Option<Appending>,
    failures_said: Seldom,
}

impl Appends {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, gathered: Vec::new(), appending: None, failures_said: Seldom::default() }
    }

    /// How many more may gather.
    pub(super) fn room(&self) -> usize {
        BATCH_EVENTS_MAX.saturating_sub(self.gathered.len())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.appending.is_none() && self.gathered.is_empty()
    }

    pub(super) fn gather(&mut self, submission: Submission) {
        self.gathered.push(submission);
    }

    /// Begins the next batch, when none is under way and something waits.
    pub(super) fn start(&mut self, admission: &mut Admission, engine: &mut Engine, now: Now) {
        while self.appending.is_none() && !self.gathered.is_empty() {
            let batch: Vec<Submission> = self.gathered.drain(..batch_len(&self.gathered)).collect();
            let places = admission.places(batch.iter().map(|submission| &*submission.event), engine, now);
            let places = places.into_iter().chain(std::iter::repeat(Ok(None)));
            let placed = batch.into_iter().zip(places).filter_map(|(submission, place)| match place {
                Ok(None) => Some(submission),
                Ok(Some(place)) => Some(submission.waits_in(place)),
                Err(shed) => {
                    drop(submission.answer(Err(shed)));
                    None
                }
            });
            self.append(placed.collect(), now.mono);
        }
    }

    fn append(&mut self, batch: Vec<Submission>, now: Mono) {
        if batch.is_empty() {
            return;
        }
        let events = batch.iter().map(|submission| Arc::clone(&submission.event)).collect();
        let store = Arc::clone(&self.shared.store);
        let done: Append = Box::pin(async move { store.append(events).await });
        self.appending = Some(Appending { batch, started: now, done });
    }

    /// Resolves when the batch under way is done; never while there is none.
    pub(super) async fn finished(&mut self) -> Appended {
        let Some(current) = &mut self.appending else {
            return std::future::pending().await;
        };
        let result = (&mut current.done).await;
        let Appending { batch, started, .. } =
            self.appending.take().expect("it was there a line above, and nobody else holds it");
        Appended { batch, started, result }
    }

    /// Answers a batch's senders; gives the events that are durable, and the seq of the first. `count` is told of each of them before its
    /// sender is.
    pub(super) fn answer(
        &mut self,
        appended: Appended,
        now: Mono,
        mut count: impl FnMut(&Event),
    ) -> Option<(Seq, Vec<Arc<Event>>)> {
        let Appended { batch, started, result } = appended;
        match result {
            Ok(first) => {
                self.shared.metrics.commit_seconds.observe(now.since(started).as_secs_f64());
                batch.iter().for_each(|submission| count(&submission.event));
                let answered = batch.into_iter().zip(first.0..);
                Some((first, answered.map(|(submission, seq)| submission.answer(Ok(Seq(seq)))).collect()))
            }
            Err(error) => {
                let shed = shed_for(&error);
                if let Some(left_out) = self.failures_said.pass(now) {
                    tracing::error!(%error, events = batch.len(), left_out, "events were not stored; their senders get 503");
                }
                for submission in batch {
                    submission.answer(Err(shed));
                }
                None
            }
        }
    }
}

impl Submission {
    /// Its event waits there, and not in the lane that it belongs to.
    fn waits_in(mut self, place: Lane) -> Self {
        let event = Arc::make_mut(&mut self.event);
        event.owner = Some(std::mem::replace(&mut event.lane, place));
        self
    }

    fn answer(self, answer: Result<Seq, Shed>) -> Arc<Event> {
        if self.reply.send(answer).is_err() {
            // The sender has gone or run out of patience; a stored event stays stored all the same.
            tracing::debug!(event = %self.event.id, "nobody waits for this answer any more");
        }
        self.event
    }
}

/// How many of the gathered ones make the next batch; at least one.
fn batch_len(gathered: &[Submission]) -> usize {
    let mut bytes = 0usize;
    let fitting = gathered.iter().take(BATCH_EVENTS_MAX).take_while(|submission| {
        bytes = bytes.saturating_add(submission.event.body.len());
        bytes <= BATCH_BYTES_MAX
    });
    fitting.count().max(1)
}

fn shed_for(error: &Error) -> Shed {
    match error {
        Error::Full(_) => Shed::Full,
        Error::Unavailable(_) | Error::Corrupt(_) | Error::Poisoned(_) | Error::Locked(_) => Shed::Unavailable,
    }
}
