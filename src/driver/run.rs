//! THE DELIVERY PATH ON ONE SCREEN: the driver's loop.
//!
//! One owner, no decisions of its own: take the facts that wait → start the next append if none is under way → sleep until
//! a fact or a completion. Group commit appears by itself: while one batch is being made durable, the next one gathers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{Fact, Shared, Shed, Submission};
use crate::event::{Mono, Seq};
use crate::store::Error;

/// Events of one batch at most. Beyond some hundreds a batch's write outweighs its `fdatasync` and only adds latency.
const BATCH_EVENTS_MAX: usize = 1_000;

/// Bytes of bodies in one batch at most (one larger event goes alone).
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How often gauges are set and the beat is shown when nothing happens.
const TICK: Duration = Duration::from_secs(1);

type Append = Pin<Box<dyn Future<Output = Result<Seq, Error>> + Send>>;

/// A batch that the store is making durable.
struct Appending {
    batch: Vec<Submission>,
    started: Mono,
    done: Append,
}

/// The one task that owns the delivery path.
pub struct Driver {
    facts: mpsc::Receiver<Fact>,
    shared: Arc<Shared>,
    gathered: Vec<Submission>,
    appending: Option<Appending>,
    stopping: bool,
}

impl Driver {
    pub(super) fn new(facts: mpsc::Receiver<Fact>, shared: Arc<Shared>) -> Self {
        Self { facts, shared, gathered: Vec::new(), appending: None, stopping: false }
    }

    /// Runs until it is told to stop and everything submitted before is answered.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut facts = Vec::with_capacity(BATCH_EVENTS_MAX);
        loop {
            let room = BATCH_EVENTS_MAX.saturating_sub(self.gathered.len());
            tokio::select! {
                biased;
                result = finished(&mut self.appending) => self.appended(result),
                taken = self.facts.recv_many(&mut facts, room), if room > 0 && !self.stopping => self.take(&mut facts, taken),
                _ = tick.tick() => self.show_sizes(),
            }
            self.beat();
            self.start_append();
            if self.stopping && self.appending.is_none() && self.gathered.is_empty() {
                return;
            }
        }
    }

    fn take(&mut self, facts: &mut Vec<Fact>, taken: usize) {
        // Every handle is gone: nobody is left to submit or to say stop.
        self.stopping |= taken == 0;
        for fact in facts.drain(..) {
            match fact {
                Fact::Submitted(submission) => self.gathered.push(submission),
                Fact::Stop => self.stop(),
            }
        }
    }

    /// Refuses further submissions; those that wait in the channel came before and are taken along.
    fn stop(&mut self) {
        self.stopping = true;
        self.facts.close();
        while let Ok(fact) = self.facts.try_recv() {
            if let Fact::Submitted(submission) = fact {
                self.gathered.push(submission);
            }
        }
    }

    fn start_append(&mut self) {
        if self.appending.is_some() || self.gathered.is_empty() {
            return;
        }
        let batch: Vec<Submission> = self.gathered.drain(..batch_len(&self.gathered)).collect();
        let events = batch.iter().map(|submission| Arc::clone(&submission.event)).collect();
        let store = Arc::clone(&self.shared.store);
        let done: Append = Box::pin(async move { store.append(events).await });
        self.appending = Some(Appending { batch, started: self.shared.clock.now().mono, done });
    }

    /// The batch is durable, or was refused: only now are its senders answered (I7).
    fn appended(&mut self, (appending, result): (Appending, Result<Seq, Error>)) {
        let took = self.shared.clock.now().mono.since(appending.started);
        match result {
            Ok(first) => {
                self.shared.metrics.commit_seconds.observe(took.as_secs_f64());
                for (submission, seq) in appending.batch.into_iter().zip(first.0..) {
                    submission.answer(Ok(Seq(seq)));
                }
            }
            Err(error) => {
                let shed = shed_for(&error);
                tracing::error!(%error, events = appending.batch.len(), "events were not stored; their senders get 503");
                for submission in appending.batch {
                    submission.answer(Err(shed));
                }
            }
        }
    }

    fn beat(&self) {
        self.shared.beat.store(self.shared.clock.now().mono.0, Ordering::Relaxed);
    }

    fn show_sizes(&self) {
        let usage = self.shared.store.usage();
        let metrics = &self.shared.metrics;
        metrics.backlog_events.set(gauge(usage.pending));
        metrics.lanes_active.set(gauge(usage.lanes));
        metrics.store_bytes.set(gauge(usage.bytes));
        metrics.disk_free_bytes.set(gauge(usage.free));
        let age = usage.oldest.map_or(Duration::ZERO, |oldest| self.shared.clock.now().wall.since(oldest));
        metrics.backlog_oldest_age.set(age.as_secs_f64());
    }
}

impl Submission {
    fn answer(self, answer: Result<Seq, Shed>) {
        if self.reply.send(answer).is_err() {
            // The sender has gone or run out of patience; a stored event stays stored all the same.
            tracing::debug!(event = %self.event.id, "nobody waits for this answer any more");
        }
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

/// Resolves when the batch under way is done; never while there is none.
async fn finished(appending: &mut Option<Appending>) -> (Appending, Result<Seq, Error>) {
    let Some(current) = appending else {
        return std::future::pending().await;
    };
    let result = (&mut current.done).await;
    let current = appending.take().expect("it was there a line above, and nobody else holds it");
    (current, result)
}

fn shed_for(error: &Error) -> Shed {
    match error {
        Error::Full(_) => Shed::Full,
        Error::Unavailable(_) | Error::Corrupt(_) | Error::Poisoned(_) | Error::Locked(_) => Shed::Unavailable,
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
