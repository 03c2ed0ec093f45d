//! The store goes to a successor, in two steps: first no event is attempted any more while senders are still answered, then nothing
//! is taken in and the store is let go of. The first can be taken back.
//!
//! Senders that wait for the upstream's answer are served to the end, after the store has gone too: nothing of them is stored.

use tokio::sync::oneshot;

use super::run::Driver;
use super::{Ended, Fact, Handle};
use crate::event::Now;

/// What is asked for on the way.
pub(super) enum Step {
    /// No further attempt of any event; the answer is that nothing of any is under way.
    Hold(oneshot::Sender<()>),
    /// As before.
    Resume,
    /// The attempts of events that are under way end.
    Cut,
    /// Nothing is taken in any more; the answer is that the store is of no use here any more.
    LetGo(oneshot::Sender<()>),
}

/// Who waits for a step's end.
#[derive(Default)]
pub(super) struct Handover {
    holding: Option<oneshot::Sender<()>>,
    letting_go: Option<oneshot::Sender<()>>,
    leaving: bool,
}

impl Handover {
    /// Whether the store is, or is about to be, somebody else's.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }
}

impl Driver {
    pub(super) fn step(&mut self, step: Step, now: Now) {
        match step {
            Step::Hold(quiet) => {
                self.engine.hold_events(true);
                self.handover.holding = Some(quiet);
            }
            Step::Resume => {
                self.engine.hold_events(false);
                self.handover.holding = None;
            }
            Step::Cut => {
                let cut = self.engine.cancel_events(now);
                tracing::warn!(
                    attempts = cut,
                    "attempts were still under way and were ended; their events are tried again"
                );
            }
            Step::LetGo(gone) => {
                self.engine.hold_events(true);
                self.handover.letting_go = Some(gone);
                self.handover.leaving = true;
                self.stopping = true;
            }
        }
    }

    /// At the end of a turn: tells whoever waits for a step that it is done. True when the loop is over.
    pub(super) fn steps_on(&mut self) -> bool {
        if self.handover.holding.is_some() && self.engine.is_quiet() {
            tell(self.handover.holding.take());
        }
        if !self.stopping || !self.appends.is_idle() {
            return false;
        }
        if !self.handover.leaving {
            let drained = self.engine.is_drained();
            if drained {
                self.admission.newcomers.close();
            }
            return drained;
        }
        if self.handover.letting_go.is_some() && self.engine.is_quiet() {
            self.end_jobs();
            self.admission.newcomers.close();
            tell(self.handover.letting_go.take());
        }
        self.handover.letting_go.is_none() && self.engine.has_no_live()
    }
}

fn tell(waiting: Option<oneshot::Sender<()>>) {
    if waiting.is_some_and(|waiting| waiting.send(()).is_err()) {
        tracing::debug!("nobody waits for this step of a hand-over any more");
    }
}

impl Handle {
    /// No event is attempted from now on; resolves when no attempt is under way and every settlement is durable. Events are still
    /// taken in, and live requests served. [`Handle::resume_events`] takes it back.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn hold_events(&self) -> Result<(), Ended> {
        let (quiet, waits) = oneshot::channel();
        self.take_step(Step::Hold(quiet)).await?;
        waits.await.map_err(|_| Ended)
    }

    /// Events are attempted again.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn resume_events(&self) -> Result<(), Ended> {
        self.take_step(Step::Resume).await
    }

    /// Ends the attempts of events that are under way; they are retried.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn cut_attempts(&self) -> Result<(), Ended> {
        self.take_step(Step::Cut).await
    }

    /// Takes nothing in any more; resolves when everything submitted before is answered and the store is not used any more. The driver
    /// ends when the live requests have their answers.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn let_go(&self) -> Result<(), Ended> {
        let (gone, waits) = oneshot::channel();
        self.take_step(Step::LetGo(gone)).await?;
        waits.await.map_err(|_| Ended)
    }

    async fn take_step(&self, step: Step) -> Result<(), Ended> {
        self.facts.send(Fact::Step(step)).await.map_err(|_| Ended)
    }
}
