//! The in-memory store: the contract in its simplest form, with faults on demand.
//!
//! It owns nothing but memory, so every answer is decided in one place ([`disk`]) by code that is short enough to be
//! believed. Tests hold the embedded store against it; driver tests and simulations use its faults.
//!
//! A [`Memory`] is a handle of one *process* on a *disk*. Handles of the same process are clones. [`Memory::crash`]
//! ends the process and gives a handle of the next one, which finds what was durable and nothing else;
//! [`Memory::reopen`] does so after a clean close. A call takes effect in one step, at the moment at which its future
//! resolves; what a crash finds is therefore exactly what was answered, unless a fault says otherwise.
//!
//! # Faults
//!
//! | fault | what the caller sees | what is durable |
//! | --- | --- | --- |
//! | [`Memory::fail_next`] | the error given | nothing of the batch |
//! | [`Memory::lose_answer_of_next`] | [`Error::Poisoned`] | the whole batch |
//! | [`Memory::hold_next`] | a call that waits until its [`Gate`] is opened, or made to fail there | by then: as said at the gate |
//! | [`Memory::poison`] | [`Error::Poisoned`] on every write, [`LaneStore::poisoned`] resolves | what was before |
//! | [`Memory::set_capacity`] | [`Error::Full`], [`Refusal::Full`] | what was before; settlements go on |
//! | [`Memory::refuse`] | [`Refusal::GroupTooLarge`] for one group | (`admits` alone: an append is not looked at) |
//! | [`Memory::cap`] | [`Refusal::Backlog`] for events of one group above it | the rest of the batch |
//! | [`Memory::crash`] | [`Error::Unavailable`] on the old handles, also for calls that wait at a gate | what was before |
//!
//! An error that leaves the outcome unknown ([`Error::Poisoned`], [`Error::Corrupt`], [`Error::Locked`]) poisons
//! the process, as the contract says. A new process starts without poison and without faults; limits stay.

mod disk;
mod fault;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::{
    Appended, BoxFuture, Error, LaneStore, LaneSummary, Page, Pending, Query, Refusal, Retention, Settlement, Story,
    Usage,
};
use crate::clock::Clock;
use crate::event::{Event, EventId, Group, Lane, Seq, Wall};
use disk::Disk;
pub use fault::{Call, Gate};
use fault::{Fault, Script};

/// The retention of the configuration's defaults: 7 days, 30 days, 24 hours.
const RETENTION: Retention = Retention {
    delivered: std::time::Duration::from_secs(7 * 86_400),
    dead: std::time::Duration::from_secs(30 * 86_400),
    suppressed: std::time::Duration::from_secs(86_400),
};

/// A handle of one process on the in-memory store. Clones share everything.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
    /// Which process this handle belongs to; calls are served only while it is the current one.
    process: u64,
}

struct Shared {
    clock: Arc<dyn Clock>,
    core: Mutex<Core>,
}

/// What outlives a process, and the process that runs now.
struct Core {
    disk: Disk,
    refused: BTreeSet<Group>,
    process: Process,
}

struct Process {
    number: u64,
    closed: bool,
    script: Script,
    poison: watch::Sender<Option<String>>,
}

impl Process {
    fn numbered(number: u64) -> Self {
        Self { number, closed: false, script: Script::default(), poison: watch::channel(None).0 }
    }
}

impl Core {
    /// Takes note of an error on its way to a caller: one that leaves the outcome unknown ends all writing.
    fn told(&mut self, error: Error) -> Error {
        match &error {
            Error::Unavailable(_) | Error::Full(_) => {}
            Error::Corrupt(_) | Error::Poisoned(_) | Error::Locked(_) => {
                self.process.poison.send_replace(Some(error.to_string()));
            }
        }
        error
    }

    fn poison(&self) -> Option<String> {
        self.process.poison.borrow().clone()
    }
}

impl Memory {
    /// An empty store without limits that keeps ended events as the configuration's defaults say. `clock` decides when
    /// their retention is over.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_retention(clock, RETENTION)
    }

    /// An empty store without limits that keeps ended events for `retention`.
    #[must_use]
    pub fn with_retention(clock: Arc<dyn Clock>, retention: Retention) -> Self {
        let core = Core { disk: Disk::new(retention), refused: BTreeSet::new(), process: Process::numbered(0) };
        Self { shared: Arc::new(Shared { clock, core: Mutex::new(core) }), process: 0 }
    }

    /// Ends this process as `kill -9` would and starts the next: the new handle finds what was durable. Every call on
    /// an old handle, also one that waits at a gate, fails with [`Error::Unavailable`] and changes nothing.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut core = self.shared.core.lock();
        self.next_process(&mut core)
    }

    /// Opens the store again after [`LaneStore::close`].
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] while it is not closed, as for a second process.
    pub fn reopen(&self) -> Result<Self, Error> {
        let mut core = self.shared.core.lock();
        if !core.process.closed {
            return Err(Error::Locked("the process before has not closed it; close it, or let it crash".into()));
        }
        Ok(self.next_process(&mut core))
    }

    fn next_process(&self, core: &mut Core) -> Self {
        let number = core.process.number + 1;
        core.process = Process::numbered(number);
        Self { shared: Arc::clone(&self.shared), process: number }
    }

    /// The next `call` that has no fault yet fails with `error` and nothing of it becomes durable.
    pub fn fail_next(&self, call: Call, error: Error) {
        self.plan(|script| script.add_fault(call, Fault::Refused(error)));
    }

    /// The next `call` that has no fault yet becomes durable, and its caller is told [`Error::Poisoned`] with `reason`:
    /// the outcome is unknown. (A read has nothing to make durable; it fails alike.)
    pub fn lose_answer_of_next(&self, call: Call, reason: &str) {
        self.plan(|script| script.add_fault(call, Fault::AnswerLost(reason.into())));
    }

    /// The next `call` that has no fault yet waits, with nothing of it durable or readable, until the test decides at
    /// the gate what becomes of it.
    #[must_use = "a gate that is dropped is open"]
    pub fn hold_next(&self, call: Call) -> Gate {
        self.plan(|script| script.add_gate(call))
    }

    /// Ends all writing of this process, as a failed fsync does; reads go on.
    pub fn poison(&self, reason: &str) {
        let mut core = self.shared.core.lock();
        if core.process.number == self.process {
            core.told(Error::Poisoned(reason.into()));
        }
    }

    /// From now on, events may take this many bytes (`None`: any number). Ended events are given up for pending ones, those
    /// whose retention ends first; an append for which that is not enough fails with [`Error::Full`]. `Some(0)` is a full disk.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.core.lock().disk.set_capacity(bytes);
    }

    /// [`LaneStore::admits`] answers [`Refusal::GroupTooLarge`] for `group` until [`Memory::allow`].
    pub fn refuse(&self, group: &Group) {
        self.shared.core.lock().refused.insert(group.clone());
    }

    /// From now on an append refuses what would bring more than so many pending events of `group`, and takes the rest of its batch.
    pub fn cap(&self, group: &Group, events: u64) {
        self.shared.core.lock().disk.set_cap(group.clone(), events);
    }

    /// Takes back [`Memory::refuse`].
    pub fn allow(&self, group: &Group) {
        self.shared.core.lock().refused.remove(group);
    }

    /// Changes what awaits this process's calls; of one that has crashed, none will come.
    fn plan<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        let mut core = self.shared.core.lock();
        if core.process.number == self.process {
            change(&mut core.process.script)
        } else {
            change(&mut Script::default())
        }
    }

    /// The core, with what is past retention gone, or why this handle is not served.
    fn core(&self) -> Result<MutexGuard<'_, Core>, Error> {
        let now = self.shared.clock.now().wall;
        let mut core = self.shared.core.lock();
        if core.process.number != self.process {
            return Err(Error::Unavailable("this process has crashed".into()));
        }
        if core.process.closed {
            return Err(Error::Unavailable("it is closed".into()));
        }
        core.disk.forget_until(now);
        Ok(core)
    }

    /// As [`Memory::core`], for a call that writes.
    fn core_for(&self, call: Call) -> Result<MutexGuard<'_, Core>, Error> {
        let core = self.core()?;
        match core.poison() {
            Some(reason) if call != Call::Read => Err(Error::Poisoned(reason)),
            _ => Ok(core),
        }
    }

    /// The one road of every call: is the store there, what does the script say, the effect in one step.
    async fn call<T>(&self, call: Call, effect: impl FnOnce(&mut Disk) -> Result<T, Error> + Send) -> Result<T, Error> {
        let step = self.core_for(call)?.process.script.next(call);
        let fault = match step {
            Some(step) => step.outcome().await,
            None => None,
        };
        // The store may have crashed, closed or been poisoned while the call stood at its gate.
        let mut core = self.core_for(call)?;
        match fault {
            None => effect(&mut core.disk),
            Some(Fault::Refused(error)) => Err(core.told(error)),
            Some(Fault::AnswerLost(reason)) => {
                effect(&mut core.disk)?;
                Err(core.told(Error::Poisoned(reason)))
            }
        }
    }

    fn read_with<'a, T: Send + 'a>(
        &'a self,
        answer: impl FnOnce(&mut Disk) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        Box::pin(self.call(Call::Read, |disk| Ok(answer(disk))))
    }
}

impl LaneStore for Memory {
    fn append(&self, batch: Vec<Arc<Event>>) -> BoxFuture<'_, Result<Appended, Error>> {
        Box::pin(self.call(Call::Append, |disk| disk.append(batch)))
    }

    fn settle(&self, batch: Vec<Settlement>) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(self.call(Call::Settle, |disk| Ok(disk.settle(batch))))
    }

    fn requeue(&self, seqs: Vec<Seq>, at: Wall) -> BoxFuture<'_, Result<Vec<Option<Pending>>, Error>> {
        Box::pin(self.call(Call::Settle, move |disk| Ok(disk.requeue(&seqs, at))))
    }

    fn lanes(&self, after: Option<Lane>, limit: usize) -> BoxFuture<'_, Result<Vec<LaneSummary>, Error>> {
        self.read_with(move |disk| disk.lanes(after.as_ref(), limit))
    }

    fn load(&self, lane: Lane, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.read_with(move |disk| disk.load(&lane, after, limit))
    }

    fn due(&self, after: Option<(Wall, Seq)>, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.read_with(move |disk| disk.due(after, limit))
    }

    fn open(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<Pending>, Error>> {
        self.read_with(move |disk| disk.open(after, limit))
    }

    fn read(&self, seqs: Vec<Seq>) -> BoxFuture<'_, Result<Vec<Option<Arc<Event>>>, Error>> {
        self.read_with(move |disk| disk.read(&seqs))
    }

    fn find(&self, id: EventId) -> BoxFuture<'_, Result<Option<Story>, Error>> {
        self.read_with(move |disk| disk.find(id))
    }

    fn list(&self, query: Query) -> BoxFuture<'_, Result<Page, Error>> {
        self.read_with(move |disk| disk.list(&query))
    }

    fn admits(&self, group: &Group) -> Result<(), Refusal> {
        let core = self.core_for(Call::Append).map_err(|_| Refusal::Unavailable)?;
        if core.disk.is_full() {
            return Err(Refusal::Full);
        }
        if core.refused.contains(group) {
            return Err(Refusal::GroupTooLarge);
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.core().map(|core| core.disk.usage()).unwrap_or_default()
    }

    fn poisoned(&self) -> BoxFuture<'_, String> {
        let core = self.shared.core.lock();
        let watched = (core.process.number == self.process).then(|| core.process.poison.subscribe());
        Box::pin(async move {
            if let Some(mut poison) = watched
                && let Ok(reason) = poison.wait_for(Option::is_some).await
                && let Some(reason) = reason.clone()
            {
                return reason;
            }
            // The process has crashed: nobody is left to be told.
            std::future::pending().await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.core()?.process.closed = true;
            Ok(())
        })
    }
}
