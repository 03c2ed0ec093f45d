//! The way into the store: submissions gather while one batch is being made durable.
//!
//! Whatever gets a new seq goes this way, one batch at a time, for the engine is told of events in the order of their seqs.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::admission::Admission;
use super::delivery::{Delivery, queued};
use super::release::{Release, Released, Unreleased, release};
use super::requeue::Requeue;
use super::{Shared, Shed, Stored, Submission};
use crate::clock::Seldom;
use crate::engine::{Admitted, Engine, Queued};
use crate::event::{Event, Group, Lane, Mono, Now};
use crate::store::{Appended, Error, Pending};

/// Events of one batch at most. Beyond some hundreds a batch's write outweighs its `fdatasync` and only adds latency.
const BATCH_EVENTS_MAX: usize = 1_000;

/// Events that are made pending again in one batch. Each is read and written whole, so few of them are what others wait for.
pub(super) const REQUEUE_MAX: usize = 64;

/// Bytes of bodies in one batch at most (one larger event goes alone).
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What the store is making durable.
enum Batch {
    Submissions(Vec<Submission>),
    Release(Release),
    Requeue(Requeue),
}

/// How that went.
enum Outcome {
    Appended(Result<Appended, Error>),
    Released(Result<Released, Unreleased>),
    Requeued(Result<Vec<Option<Pending>>, Error>),
}

/// A batch that is under way.
struct Appending {
    batch: Batch,
    started: Mono,
    done: Work,
}

/// A batch that is done, and how.
pub(super) struct Finished {
    batch: Batch,
    started: Mono,
    outcome: Outcome,
}

/// What waits for the store, and what is on its way in.
pub(super) struct Appends {
    shared: Arc<Shared>,
    gathered: Vec<Submission>,
    releases: VecDeque<Release>,
    requeues: VecDeque<Requeue>,
    /// The batch before was a requeue: senders go first now.
    requeued: bool,
    appending: Option<Appending>,
    failures_said: Seldom,
}

impl Appends {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            gathered: Vec::new(),
            releases: VecDeque::new(),
            requeues: VecDeque::new(),
            requeued: false,
            appending: None,
            failures_said: Seldom::default(),
        }
    }

    /// How many more may gather.
    pub(super) fn room(&self) -> usize {
        BATCH_EVENTS_MAX.saturating_sub(self.gathered.len())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.appending.is_none() && self.gathered.is_empty() && self.releases.is_empty() && self.requeues.is_empty()
    }

    pub(super) fn gather(&mut self, submission: Submission) {
        self.gathered.push(submission);
    }

    pub(super) fn gather_release(&mut self, release: Release) {
        self.releases.push_back(release);
    }

    pub(super) fn gather_requeue(&mut self, requeue: Requeue) {
        self.requeues.push_back(requeue);
    }

    /// Events that the store may have as pending already, before the engine is told.
    pub(super) fn under_way(&self) -> u64 {
        self.appending.as_ref().map_or(0, |current| match &current.batch {
            Batch::Submissions(batch) => batch.len() as u64,
            Batch::Release(_) => 1,
            Batch::Requeue(requeue) => requeue.events.len() as u64,
        })
    }

    /// Begins the next batch, when none is under way and something waits.
    pub(super) fn start(&mut self, admission: &mut Admission, engine: &mut Engine, now: Now) {
        if self.appending.is_some() {
            return;
        }
        let store = Arc::clone(&self.shared.store);
        let (batch, done): (Batch, Work) = if let Some(asked) = self.releases.pop_front() {
            let id = asked.id;
            (Batch::Release(asked), Box::pin(async move { Outcome::Released(release(&*store, id, now.wall).await) }))
        } else if let Some(requeue) = self.next_requeue() {
            let seqs = requeue.events.iter().map(|record| record.seq).collect();
            (Batch::Requeue(requeue), Box::pin(async move { Outcome::Requeued(store.requeue(seqs, now.wall).await) }))
        } else if let Some(batch) = self.next_batch(admission, engine, now) {
            let events = batch.iter().map(|submission| Arc::clone(&submission.event)).collect();
            (Batch::Submissions(batch), Box::pin(async move { Outcome::Appended(store.append(events).await) }))
        } else {
            return;
        };
        self.requeued = matches!(batch, Batch::Requeue(_));
        self.shared.commits.begin(now.mono);
        self.appending = Some(Appending { batch, started: now.mono, done });
    }

    /// The next batch, each event in the place where it waits; those that find no room there are answered at once.
    fn next_batch(&mut self, admission: &mut Admission, engine: &mut Engine, now: Now) -> Option<Vec<Submission>> {
        while !self.gathered.is_empty() {
            let batch: Vec<Submission> = self.gathered.drain(..batch_len(&self.gathered)).collect();
            let places = admission.places(batch.iter().map(|submission| &*submission.event), engine, now);
            let places = places.into_iter().chain(std::iter::repeat(Ok(None)));
            let placed = batch.into_iter().zip(places).filter_map(|(submission, place)| match place {
                Ok(None) => Some(submission),
                Ok(Some(place)) => Some(submission.waits_in(place)),
                Err(shed) => {
                    engine.on_came(submission.event.group(), submission.admitted);
                    submission.refuse(shed);
                    None
                }
            });
            let placed: Vec<Submission> = placed.collect();
            if !placed.is_empty() {
                return Some(placed);
            }
        }
        None
    }

    /// What is to be requeued next; not twice in a row while senders wait.
    fn next_requeue(&mut self) -> Option<Requeue> {
        if self.requeued && !self.gathered.is_empty() { None } else { self.requeues.pop_front() }
    }

    /// Resolves when the batch under way is done; never while there is none.
    pub(super) async fn finished(&mut self) -> Finished {
        let Some(current) = &mut self.appending else {
            return std::future::pending().await;
        };
        let outcome = (&mut current.done).await;
        self.shared.commits.end();
        let Appending { batch, started, .. } =
            self.appending.take().expect("it was there a line above, and nobody else holds it");
        Finished { batch, started, outcome }
    }

    /// Answers whoever waits for a batch; gives the events that are pending now, in the order of their seqs. `delivery` is told of each
    /// durable event before its sender is.
    pub(super) fn answer(&mut self, finished: Finished, delivery: &mut Delivery, now: Mono) -> Vec<Queued> {
        let Finished { batch, started, outcome } = finished;
        match (batch, outcome) {
            (Batch::Submissions(batch), Outcome::Appended(Ok(appended))) => {
                self.shared.metrics.commit_seconds.observe(now.since(started).as_secs_f64());
                stored(batch, &appended, delivery)
            }
            (Batch::Submissions(batch), Outcome::Appended(Err(error))) => {
                self.refuse(batch, &error, now);
                Vec::new()
            }
            (Batch::Release(asked), Outcome::Released(released)) => {
                asked.answer(released.as_ref().map(|released| released.pending.seq).map_err(Clone::clone));
                let Ok(released) = released else { return Vec::new() };
                delivery.released(&released.source);
                vec![queued(released.pending)]
            }
            (Batch::Requeue(requeue), Outcome::Requeued(requeued)) => {
                let queued = requeued.as_ref().map(|pending| delivery.requeued(&requeue, pending)).unwrap_or_default();
                requeue.answer(requeued);
                queued
            }
            // Each batch was begun with the work that is its own.
            (Batch::Submissions(_) | Batch::Release(_) | Batch::Requeue(_), _) => Vec::new(),
        }
    }

    fn refuse(&mut self, batch: Vec<Submission>, error: &Error, now: Mono) {
        let shed = shed_for(error);
        if let Some(left_out) = self.failures_said.pass(now) {
            tracing::error!(%error, events = batch.len(), left_out, "events were not stored; their senders get 503");
        }
        for submission in batch {
            submission.answer(Err(shed));
        }
    }
}

impl Finished {
    /// Whose events these were, and what they were admitted with.
    pub(super) fn admitted(&self) -> impl Iterator<Item = (&Group, Admitted)> {
        let batch = if let Batch::Submissions(batch) = &self.batch { batch.as_slice() } else { &[] };
        batch.iter().map(|submission| (submission.event.group(), submission.admitted))
    }
}

/// Counts durable events and answers their senders, those of refused ones too; gives those that are to be delivered.
fn stored(batch: Vec<Submission>, appended: &Appended, delivery: &mut Delivery) -> Vec<Queued> {
    for (number, submission) in batch.iter().enumerate() {
        if appended.place(number).is_ok() {
            delivery.accepted(&submission.event, appended.repeat(number).is_some());
        }
    }
    let mut pending = Vec::with_capacity(batch.len());
    for (number, submission) in batch.into_iter().enumerate() {
        match appended.place(number) {
            Ok(seq) => {
                let stored = Stored { seq, duplicate_of: appended.repeat(number) };
                let event = submission.answer(Ok(stored));
                if stored.duplicate_of.is_none() {
                    pending.push(delivery.keep(seq, &event));
                }
            }
            Err(refusal) => submission.refuse(refusal.into()),
        }
    }
    pending
}

impl Submission {
    /// It is not stored.
    pub(super) fn refuse(self, shed: Shed) {
        self.answer(Err(shed));
    }

    /// Its event waits there, and not in the lane that it belongs to.
    fn waits_in(mut self, place: Lane) -> Self {
        let event = Arc::make_mut(&mut self.event);
        event.owner = Some(std::mem::replace(&mut event.lane, place));
        self
    }

    fn answer(self, answer: Result<Stored, Shed>) -> Arc<Event> {
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
        Error::Unavailable(_) | Error::Locked(_) => Shed::Unavailable,
        // The contract of the store: what became of this batch is unknown. A restart may find it.
        Error::Corrupt(_) | Error::Poisoned(_) => Shed::TooSlow,
    }
}
