//! What a test has in store for calls to come: faults, and gates at which a call waits.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::store::Error;

/// A kind of call that a fault is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`append`](crate::store::LaneStore::append).
    Append,
    /// [`settle`](crate::store::LaneStore::settle).
    Settle,
    /// Any of the reads that return a future.
    Read,
}

/// How a call goes wrong.
#[derive(Debug)]
pub(super) enum Fault {
    /// It has no effect and gives this error.
    Refused(Error),
    /// It has its effect, and its caller is told that the outcome is unknown.
    AnswerLost(String),
}

/// What awaits the next call of a kind.
pub(super) enum Step {
    Fault(Fault),
    Gate { arrived: oneshot::Sender<()>, outcome: oneshot::Receiver<Option<Fault>> },
}

impl Step {
    /// Waits where the step is a gate; what goes wrong, if anything.
    pub(super) async fn outcome(self) -> Option<Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Gate { arrived, outcome } => {
                // A test that does not ask whether the call has arrived has dropped nothing but its interest.
                arrived.send(()).ok();
                // A gate that was dropped is open.
                outcome.await.unwrap_or(None)
            }
        }
    }
}

/// The steps that await each kind of call, first come first served.
#[derive(Default)]
pub(super) struct Script {
    append: VecDeque<Step>,
    settle: VecDeque<Step>,
    read: VecDeque<Step>,
}

impl Script {
    pub(super) fn add_fault(&mut self, call: Call, fault: Fault) {
        self.of(call).push_back(Step::Fault(fault));
    }

    pub(super) fn add_gate(&mut self, call: Call) -> Gate {
        let (arrived, has_arrived) = oneshot::channel();
        let (decide, outcome) = oneshot::channel();
        self.of(call).push_back(Step::Gate { arrived, outcome });
        Gate { has_arrived, decide }
    }

    pub(super) fn next(&mut self, call: Call) -> Option<Step> {
        self.of(call).pop_front()
    }

    fn of(&mut self, call: Call) -> &mut VecDeque<Step> {
        match call {
            Call::Append => &mut self.append,
            Call::Settle => &mut self.settle,
            Call::Read => &mut self.read,
        }
    }
}

/// Where a call waits until a test lets it go on. Dropping it lets the call pass.
#[derive(Debug)]
pub struct Gate {
    has_arrived: oneshot::Receiver<()>,
    decide: oneshot::Sender<Option<Fault>>,
}

impl Gate {
    /// Resolves when the call stands at the gate, at once when it has been there before, and also when the process
    /// crashed, so that no call can come any more.
    pub async fn arrived(&mut self) {
        if !self.has_arrived.is_terminated() {
            // An error says that no call can come any more.
            (&mut self.has_arrived).await.ok();
        }
    }

    /// Lets the call succeed: its batch becomes durable now.
    pub fn open(self) {
        self.decide(None);
    }

    /// Lets the call fail with `error`, nothing of it durable.
    pub fn fail(self, error: Error) {
        self.decide(Some(Fault::Refused(error)));
    }

    /// Lets the call become durable while its caller is told that the outcome is unknown.
    pub fn lose_answer(self, reason: &str) {
        self.decide(Some(Fault::AnswerLost(reason.into())));
    }

    fn decide(self, fault: Option<Fault>) {
        // The call was given up by its caller, or its process crashed: nobody waits.
        self.decide.send(fault).ok();
    }
}
