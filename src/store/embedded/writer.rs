//! The one thread that writes the log.
//!
//! It takes everything that waits into one batch, makes it durable, lets memory know, and answers. While it does, the
//! next batch gathers. Nothing is visible to a read before it is durable.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use tokio::sync::oneshot;

use super::core::Core;
use super::stage::Stage;
use crate::event::{Event, Mono, Seq, Wall};
use crate::store::bucket::Bucket;
use crate::store::log::{Log, WriteError};
use crate::store::{Appended, Durability, Error, Pending, Refusal, Settlement};

/// Events and settlements of one batch; above, latency grows and the throughput does not.
const BATCH_ITEMS: usize = 1_000;
/// Bytes of one batch, unless a single request is larger.
const BATCH_BYTES: usize = 8 << 20;
/// A buffer that one large batch has made longer than this is let go.
const BUFFER_BYTES: usize = 16 << 20;
/// How long the writer sleeps when nothing comes; then it looks whether a checkpoint or a sync is due.
const IDLE: Duration = Duration::from_secs(1);

/// What the writer is asked.
pub(super) enum Request {
    Append {
        batch: Vec<Arc<Event>>,
        reply: oneshot::Sender<Result<Appended, Error>>,
    },
    Settle {
        batch: Vec<Settlement>,
        reply: oneshot::Sender<Result<usize, Error>>,
    },
    /// Make these ended events pending again.
    Requeue {
        seqs: Vec<Seq>,
        at: Wall,
        reply: oneshot::Sender<Result<Vec<Option<Pending>>, Error>>,
    },
    /// Copy these events out of a segment.
    Copy {
        seqs: Vec<Seq>,
        segment: u32,
        reply: SyncSender<Result<(), Error>>,
    },
    /// Write that these events are gone, as far as they were born in these segments.
    Gone {
        marks: Vec<(Seq, Vec<u32>)>,
        reply: SyncSender<Result<(), Error>>,
    },
    /// Give up a bucket.
    Drop {
        bucket: Bucket,
        reply: SyncSender<Result<(), Error>>,
    },
    /// Make a checkpoint now; answered when it has begun (`true`), or there is nothing for one.
    Checkpoint {
        reply: SyncSender<bool>,
    },
    /// Look whether the disk takes what it did not take last.
    Probe {
        reply: SyncSender<Result<(), Error>>,
    },
    Close {
        reply: oneshot::Sender<Result<(), Error>>,
    },
}

impl Request {
    fn items(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.len(),
            Self::Settle { batch, .. } => batch.len(),
            Self::Requeue { seqs, .. } | Self::Copy { seqs, .. } => seqs.len(),
            Self::Gone { marks, .. } => marks.len(),
            Self::Drop { .. } | Self::Checkpoint { .. } | Self::Probe { .. } | Self::Close { .. } => 0,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.iter().map(|event| event.body.len() + 512).sum(),
            other => other.items() * 64,
        }
    }

    /// Whether it writes records, and so shares a batch with others.
    fn writes(&self) -> bool {
        !matches!(self, Self::Drop { .. } | Self::Checkpoint { .. } | Self::Probe { .. } | Self::Close { .. })
    }

    /// Whether it brings events that are not pending yet, and needs room for them.
    fn is_append(&self) -> bool {
        matches!(self, Self::Append { .. } | Self::Requeue { .. })
    }

    fn fail(self, error: Error) {
        // Who does not wait for the answer any more does not miss it.
        match self {
            Self::Append { reply, .. } => drop(reply.send(Err(error))),
            Self::Settle { reply, .. } => drop(reply.send(Err(error))),
            Self::Requeue { reply, .. } => drop(reply.send(Err(error))),
            Self::Copy { reply, .. }
            | Self::Gone { reply, .. }
            | Self::Drop { reply, .. }
            | Self::Probe { reply, .. } => {
                drop(reply.try_send(Err(error)));
            }
            Self::Checkpoint { reply } => {
                reply.try_send(false).ok();
            }
            Self::Close { reply } => drop(reply.send(Err(error))),
        }
    }
}

/// What a request will be told.
enum Answer {
    Appended(Appended),
    Ignored(usize),
    Requeued(Vec<Option<Pending>>),
    Done,
}

fn answer(request: Request, answer: Answer) {
    match (request, answer) {
        (Request::Append { reply, .. }, Answer::Appended(appended)) => drop(reply.send(Ok(appended))),
        (Request::Settle { reply, .. }, Answer::Ignored(ignored)) => drop(reply.send(Ok(ignored))),
        (Request::Requeue { reply, .. }, Answer::Requeued(pending)) => drop(reply.send(Ok(pending))),
        (Request::Copy { reply, .. } | Request::Gone { reply, .. }, Answer::Done) => drop(reply.try_send(Ok(()))),
        (request, _) => request.fail(Error::Unavailable("an answer of another kind".into())),
    }
}

/// The writer's own state.
pub(super) struct Writer {
    core: Arc<Core>,
    log: Log,
    bytes: Vec<u8>,
    /// Bytes of log since the last checkpoint began.
    since_checkpoint: u64,
    checkpointed: Mono,
    synced: Mono,
    /// Bytes of the new events that the disk did not take last; `None`: it took them.
    untaken: Option<usize>,
}

impl Writer {
    pub(super) fn new(core: Arc<Core>, log: Log) -> Self {
        let now = core.clock.now().mono;
        Self { core, log, bytes: Vec::new(), since_checkpoint: 0, checkpointed: now, synced: now, untaken: None }
    }

    /// Serves requests until the store ends.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        let mut kept: Option<Request> = None;
        loop {
            let first = match kept.take() {
                Some(request) => Ok(request),
                None => requests.recv_timeout(IDLE),
            };
            if self.core.is_closed() {
                return;
            }
            match first {
                Ok(request) if request.writes() => {
                    let (batch, next) = gather(request, requests);
                    kept = next;
                    self.commit(batch);
                }
                Ok(Request::Close { reply }) => {
                    let closed = self.close();
                    self.core.end();
                    drop(reply.send(closed));
                    return;
                }
                Ok(request) => self.control(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.sync_in_time();
            self.checkpoint_in_time();
        }
    }

    fn control(&mut self, request: Request) {
        match request {
            Request::Drop { bucket, reply } => {
                self.core.state.lock().drop_bucket(bucket);
                drop(reply.try_send(Ok(())));
            }
            Request::Checkpoint { reply } => {
                let begun = self.checkpoint();
                reply.try_send(begun).ok();
            }
            Request::Probe { reply } => {
                let probed = self.probe();
                drop(reply.try_send(probed));
            }
            other => other.fail(self.core.ended()),
        }
    }

    /// Commits a batch. When there is no room for new events, the others go on without them.
    fn commit(&mut self, mut batch: Vec<Request>) {
        if let Some(reason) = self.core.poison() {
            return fail_all(batch, &Error::Poisoned(reason));
        }
        self.wait_for_memory(&batch);
        if let Err(refused) = self.core.admission.read().append() {
            batch = without_appends(batch, &refused);
        }
        while !batch.is_empty() {
            let appends: usize = batch.iter().filter(|request| request.is_append()).map(Request::bytes).sum();
            match self.try_commit(batch) {
                Ok(()) if appends > 0 => return self.taken(),
                Ok(()) => return,
                Err((rest, error)) => {
                    if appends > 0 {
                        self.not_taken(appends, &error);
                    }
                    match error {
                        Error::Full(_) if appends > 0 => batch = without_appends(rest, &error),
                        error => return fail_all(rest, &error),
                    }
                }
            }
        }
    }

    /// New events of so many bytes were not written. Said once; who sends them is told each time.
    fn not_taken(&mut self, bytes: usize, error: &Error) {
        let refusal = match error {
            Error::Full(_) => Refusal::Full,
            Error::Unavailable(_) => Refusal::Unavailable,
            // The process ends, or has nothing to say about the disk.
            Error::Corrupt(_) | Error::Poisoned(_) | Error::Locked(_) => return,
        };
        if self.untaken.replace(bytes).is_none() {
            tracing::warn!(%error, "new events cannot be written and are refused; it is tried again every second");
        }
        self.core.admission.write().failing = Some(refusal);
    }

    fn taken(&mut self) {
        if self.untaken.take().is_some() {
            self.core.admission.write().failing = None;
            tracing::info!("new events can be written again");
        }
    }

    /// Whether the disk takes as much as it did not take last, so that a node to which nobody sends while it is not ready gets ready.
    fn probe(&mut self) -> Result<(), Error> {
        let Some(bytes) = self.untaken else { return Ok(()) };
        if let Some(reason) = self.core.poison() {
            return Err(Error::Poisoned(reason));
        }
        let segment = self.log.cursor().segment;
        let probed = if self.log.fits(bytes) { self.log.probe() } else { self.log.roll(bytes, true) };
        probed.map_err(|error| self.told(error))?;
        let now = self.log.cursor().segment;
        if now != segment {
            self.core.tell_head(now);
        }
        self.taken();
        Ok(())
    }

    /// While the index cannot keep up, new events wait: memory has a bound.
    fn wait_for_memory(&mut self, batch: &[Request]) {
        let core = Arc::clone(&self.core);
        let entries = || core.state.lock().active.len();
        while batch.iter().any(Request::is_append)
            && entries() >= self.core.options.entries_max
            && !self.core.is_closed()
        {
            if !self.core.await_checkpoint() {
                // It fails again and again: the admission refuses new events until it does not.
                self.core.admission.write().index_is_behind = true;
                return;
            }
            if !self.checkpoint() {
                return;
            }
        }
        if self.core.admission.read().index_is_behind && entries() < self.core.options.entries_max {
            self.core.admission.write().index_is_behind = false;
        }
    }

    /// Makes a batch durable and answers it. On an error everybody is still to be told.
    fn try_commit(&mut self, batch: Vec<Request>) -> Result<(), (Vec<Request>, Error)> {
        let has_appends = batch.iter().any(Request::is_append);
        // A segment is deleted on the strength of these marks.
        let must_sync = batch.iter().any(|request| matches!(request, Request::Gone { .. }));
        let mut bytes = std::mem::take(&mut self.bytes);
        let core = Arc::clone(&self.core);
        let done = loop {
            let at = self.log.cursor();
            let mut stage = Stage::new(&core, at.segment, at.offset, at.next_seq, &mut bytes);
            let staged: Result<Vec<Answer>, Error> =
                batch.iter().map(|request| stage_one(&mut stage, request)).collect();
            let answers = match staged {
                Ok(answers) => answers,
                Err(error) => break Err(error),
            };
            if stage.records == 0 {
                break Ok((answers, Vec::new()));
            }
            let (payload, next_seq, records) = (stage.payload(), stage.next_seq, stage.records);
            if !self.log.fits(payload) {
                match self.log.roll(payload, has_appends) {
                    Ok(()) => {
                        self.core.tell_head(at.segment + 1);
                        continue;
                    }
                    Err(error) => break Err(self.told(error)),
                }
            }
            let steps = stage.steps;
            let written = self.log.write(&mut bytes, records, next_seq).and_then(|()| self.sync_if_asked(must_sync));
            break match written {
                Ok(()) => Ok((answers, steps)),
                Err(error) => Err(self.told(error)),
            };
        };
        self.since_checkpoint += bytes.len() as u64;
        if bytes.capacity() <= BUFFER_BYTES {
            self.bytes = bytes;
        }
        match done {
            Ok((answers, steps)) => {
                {
                    let mut state = self.core.state.lock();
                    for step in steps {
                        state.apply(step);
                    }
                }
                for (request, told) in batch.into_iter().zip(answers) {
                    answer(request, told);
                }
                Ok(())
            }
            Err(error) => Err((batch, error)),
        }
    }

    fn told(&self, error: WriteError) -> Error {
        match error {
            WriteError::Full(reason) => Error::Full(reason),
            WriteError::Later(reason) => Error::Unavailable(reason),
            WriteError::Broken(reason) => {
                self.core.set_poison(&reason);
                Error::Poisoned(reason)
            }
        }
    }

    fn sync_if_asked(&mut self, must: bool) -> Result<(), WriteError> {
        match self.core.settings.durability {
            Durability::Os if !must => Ok(()),
            Durability::Os | Durability::Fsync => self.log.sync(),
        }
    }

    /// With `durability: os` a sync every second bounds what a power cut takes.
    fn sync_in_time(&mut self) {
        let now = self.core.clock.now().mono;
        if self.core.poison().is_none() && now.since(self.synced) >= IDLE {
            self.synced = now;
            if let Err(error) = self.log.sync() {
                self.told(error);
            }
        }
    }

    fn checkpoint_in_time(&mut self) {
        let options = &self.core.options;
        let entries = self.core.state.lock().active.len();
        let now = self.core.clock.now().mono;
        let due = self.since_checkpoint >= options.checkpoint_bytes
            || entries >= options.checkpoint_entries
            || (entries > 0 && now.since(self.checkpointed) >= options.checkpoint_after);
        if due {
            self.checkpoint();
        }
    }

    fn checkpoint(&mut self) -> bool {
        if self.core.poison().is_some() {
            return false;
        }
        // The index must never be ahead of the durable log.
        if let Err(error) = self.log.sync() {
            self.told(error);
            return false;
        }
        let begun = self.core.begin_checkpoint(self.log.cursor());
        if begun {
            self.since_checkpoint = 0;
            self.checkpointed = self.core.clock.now().mono;
        }
        begun
    }

    /// Everything durable, and a last checkpoint so that the next opening has nothing to read again. When that does not come
    /// about, the log has it all.
    fn close(&mut self) -> Result<(), Error> {
        if let Some(reason) = self.core.poison() {
            return Err(Error::Poisoned(reason));
        }
        self.log.sync().map_err(|error| self.told(error))?;
        if self.core.await_checkpoint() && self.checkpoint() {
            self.core.await_checkpoint();
        }
        Ok(())
    }
}

fn stage_one(stage: &mut Stage<'_>, request: &Request) -> Result<Answer, Error> {
    match request {
        Request::Append { batch, .. } => stage.append(batch).map(Answer::Appended),
        Request::Settle { batch, .. } => stage.settle(batch).map(Answer::Ignored),
        Request::Requeue { seqs, at, .. } => stage.requeue_all(seqs, *at).map(Answer::Requeued),
        Request::Copy { seqs, segment, .. } => {
            for &seq in seqs {
                stage.copy_forward(seq, *segment)?;
            }
            Ok(Answer::Done)
        }
        Request::Gone { marks, .. } => {
            for (seq, births) in marks {
                stage.gone(*seq, births.clone())?;
            }
            Ok(Answer::Done)
        }
        Request::Drop { .. } | Request::Checkpoint { .. } | Request::Probe { .. } | Request::Close { .. } => {
            Ok(Answer::Done)
        }
    }
}

/// `first` and what waits behind it, up to the limits; and the request that did not fit.
fn gather(first: Request, requests: &Receiver<Request>) -> (Vec<Request>, Option<Request>) {
    let (mut items, mut bytes) = (first.items(), first.bytes());
    let mut batch = vec![first];
    while let Ok(request) = requests.try_recv() {
        items += request.items();
        bytes += request.bytes();
        if !request.writes() || items > BATCH_ITEMS || bytes > BATCH_BYTES {
            return (batch, Some(request));
        }
        batch.push(request);
    }
    (batch, None)
}

fn fail_all(batch: Vec<Request>, error: &Error) {
    batch.into_iter().for_each(|request| request.fail(error.clone()));
}

fn without_appends(batch: Vec<Request>, error: &Error) -> Vec<Request> {
    let (appends, rest) = batch.into_iter().partition(Request::is_append);
    fail_all(appends, error);
    rest
}
