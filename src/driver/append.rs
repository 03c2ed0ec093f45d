//! The way into the store: submissions gather while one batch is being made durable. Ended events that are made pending again go in
//! beside it: both get their seqs there, and the engine is told of neither before both are durable, in the order of their commits.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{OptionFuture, join};

use super::requeue::Requeue;
use super::{Shared, Shed, Submission};
use crate::clock::Seldom;
use crate::event::{Event, Mono, Seq, Wall};
use crate::store::{Error, LaneStore, Pending};

/// Events of one batch at most. Beyond some hundreds a batch's write outweighs its `fdatasync` and only adds latency.
const BATCH_EVENTS_MAX: usize = 1_000;

/// Bytes of bodies in one batch at most (one larger event goes alone).
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Events that are made pending again beside one batch. Each is read and written whole, so few of them are what others wait for.
pub(super) const REQUEUE_MAX: usize = 64;

type Append = Pin<Box<dyn Future<Output = Answers> + Send>>;

/// What the store says to a batch, and to what is requeued beside it; `None` where there was none.
type Answers = (Option<Result<Seq, Error>>, Option<Result<Vec<Option<Pending>>, Error>>);

/// A batch that the store is making durable.
struct Appending {
    batch: Vec<Submission>,
    requeue: Option<Requeue>,
    started: Mono,
    done: Append,
}

/// A batch that is done, and how.
pub(super) struct Appended {
    batch: Vec<Submission>,
    requeue: Option<Requeue>,
    started: Mono,
    answers: Answers,
}

/// Events that are durably pending from now on.
#[derive(Default)]
pub(super) struct Entered {
    /// The accepted ones, with the seq of the first.
    pub(super) accepted: Option<(Seq, Vec<Arc<Event>>)>,
    /// Those that were made pending again.
    pub(super) requeued: Option<Requeued>,
}

/// Events that were made pending again, each with what stands of it now; and who waits for the answer.
pub(super) struct Requeued {
    pub(super) requeue: Requeue,
    pub(super) pending: Vec<Option<Pending>>,
}

/// What waits for the store, and what is on its way in.
pub(super) struct Appends {
    shared: Arc<Shared>,
    gathered: Vec<Submission>,
    requeues: VecDeque<Requeue>,
    appending: Option<Appending>,
    failures_said: Seldom,
}

impl Appends {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            gathered: Vec::new(),
            requeues: VecDeque::new(),
            appending: None,
            failures_said: Seldom::default(),
        }
    }

    /// How many more may gather.
    pub(super) fn room(&self) -> usize {
        BATCH_EVENTS_MAX.saturating_sub(self.gathered.len())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.appending.is_none() && self.gathered.is_empty() && self.requeues.is_empty()
    }

    pub(super) fn gather(&mut self, submission: Submission) {
        self.gathered.push(submission);
    }

    /// Events that the store may have as pending already, before the engine is told.
    pub(super) fn under_way(&self) -> u64 {
        let requeued = |current: &Appending| current.requeue.as_ref().map_or(0, |requeue| requeue.events.len());
        self.appending.as_ref().map_or(0, |current| (current.batch.len() + requeued(current)) as u64)
    }

    pub(super) fn requeue(&mut self, requeue: Requeue) {
        self.requeues.push_back(requeue);
    }

    /// Begins the next batch, when none is under way and something waits.
    pub(super) fn start(&mut self, now: Mono) {
        if self.appending.is_some() || (self.gathered.is_empty() && self.requeues.is_empty()) {
            return;
        }
        let batch: Vec<Submission> = self.gathered.drain(..batch_len(&self.gathered)).collect();
        let requeue = self.requeues.pop_front();
        let events = batch.iter().map(|submission| Arc::clone(&submission.event)).collect();
        let seqs = requeue.as_ref().map(|requeue| requeue.events.iter().map(|record| record.seq).collect());
        let (store, at) = (Arc::clone(&self.shared.store), self.shared.clock.now().wall);
        let done: Append = Box::pin(async move { enter(&*store, events, seqs, at).await });
        self.appending = Some(Appending { batch, requeue, started: now, done });
    }

    /// Resolves when the batch under way is done; never while there is none.
    pub(super) async fn finished(&mut self) -> Appended {
        let Some(current) = &mut self.appending else {
            return std::future::pending().await;
        };
        let answers = (&mut current.done).await;
        let Appending { batch, requeue, started, .. } =
            self.appending.take().expect("it was there a line above, and nobody else holds it");
        Appended { batch, requeue, started, answers }
    }

    /// Answers a batch's senders; gives the events that are durable. `count` is told of each accepted one before its sender is.
    pub(super) fn answer(&mut self, appended: Appended, now: Mono, mut count: impl FnMut(&Event)) -> Entered {
        let Appended { batch, requeue, started, answers: (appended, requeued) } = appended;
        let accepted = match appended {
            None => None,
            Some(Ok(first)) => {
                self.shared.metrics.commit_seconds.observe(now.since(started).as_secs_f64());
                batch.iter().for_each(|submission| count(&submission.event));
                let answered = batch.into_iter().zip(first.0..);
                Some((first, answered.map(|(submission, seq)| submission.answer(Ok(Seq(seq)))).collect()))
            }
            Some(Err(error)) => {
                let shed = shed_for(&error);
                if let Some(left_out) = self.failures_said.pass(now) {
                    tracing::error!(%error, events = batch.len(), left_out, "events were not stored; their senders get 503");
                }
                for submission in batch {
                    submission.answer(Err(shed));
                }
                None
            }
        };
        let requeued = requeue.zip(requeued).and_then(|(requeue, result)| match result {
            Ok(pending) => Some(Requeued { requeue, pending }),
            Err(error) => {
                requeue.answer(Err(error));
                None
            }
        });
        Entered { accepted, requeued }
    }
}

impl Requeue {
    pub(super) fn answer(self, answer: Result<Vec<Option<Pending>>, Error>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("whoever asked for a replay has gone");
        }
    }
}

/// Has the store take both in. They are asked for at once, so that they share what a commit costs.
async fn enter(store: &dyn LaneStore, events: Vec<Arc<Event>>, seqs: Option<Vec<Seq>>, at: Wall) -> Answers {
    let append = (!events.is_empty()).then(|| store.append(events));
    let requeue = seqs.map(|seqs| store.requeue(seqs, at));
    join(OptionFuture::from(append), OptionFuture::from(requeue)).await
}

impl Submission {
    fn answer(self, answer: Result<Seq, Shed>) -> Arc<Event> {
        if self.reply.send(answer).is_err() {
            // The sender has gone or run out of patience; a stored event stays stored all the same.
            tracing::debug!(event = %self.event.id, "nobody waits for this answer any more");
        }
        self.event
    }
}

/// How many of the gathered ones make the next batch; at least one, where there is one.
fn batch_len(gathered: &[Submission]) -> usize {
    let mut bytes = 0usize;
    let fitting = gathered.iter().take(BATCH_EVENTS_MAX).take_while(|submission| {
        bytes = bytes.saturating_add(submission.event.body.len());
        bytes <= BATCH_BYTES_MAX
    });
    fitting.count().max(1).min(gathered.len())
}

fn shed_for(error: &Error) -> Shed {
    match error {
        Error::Full(_) => Shed::Full,
        Error::Unavailable(_) | Error::Corrupt(_) | Error::Poisoned(_) | Error::Locked(_) => Shed::Unavailable,
    }
}
