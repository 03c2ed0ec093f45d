//! Executing what the engine asks for: attempts, settlements, reads. No decision is made here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::backlog::{self, Backlogs};
use super::followed;
use super::live::{Call, Calls};
use super::outcome;
use super::policy::PolicyTable;
use super::removal::Removals;
use super::replay::{End, Out, Tracker};
use super::requeue::Requeue;
use super::sources::{Hold, SourceTable};
use super::watch::Watch;
use crate::cluster::Seat;
use crate::deliver::{Attempt, Deliver, Job};
use crate::engine::{self, Batch, Dispatch, Ending, Engine, LiveId, Queued, Request, Settle, Ticket};
use crate::event::{Event, EventId, Group, Lane, Now, Seq, Trace, WaitSplit, Wall};
use crate::metrics::{EventMetrics, Metrics};
use crate::store::notebook::Notebook;
use crate::store::{AttemptNote, Error, LaneStore, Pending, Settlement, Verdict};

/// Bytes of bodies kept in memory between an event's commit and its first attempt. What does not fit is read from the store when
/// its turn comes.
const WINDOW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What an event costs in memory beside its body: head lines, names, the record itself.
const EVENT_BYTES: usize = 2048;

/// Something that was under way has ended.
pub(super) enum Done {
    /// An attempt, what its event waited for before it, and the event; `None` when that could not be read.
    Attempt(Ticket, Seq, Attempt, WaitSplit, Option<Arc<Event>>),
    /// An attempt was not begun: the source of its event is paused, and its lane is to wait.
    Parked(Ticket, Lane, Arc<Event>),
    /// A batch of settlements.
    Settled(Batch, Vec<Settle>, Result<usize, Error>),
    /// A lane's next events, and the mark under which they were asked for.
    Loaded(Lane, usize, u64, Result<Vec<Pending>, Error>),
    /// Retrying events; the same.
    DueLoaded(usize, u64, Result<Vec<Pending>, Error>),
    /// A live request was answered: its attempt, where there was one.
    Live(Option<LiveEnd>),
    /// Nobody waits for the answer of a live request any more.
    LiveGone(LiveId),
    /// Replayed events whose first attempt ended on another node.
    Followed(Vec<(Arc<Tracker>, Seq, End)>),
    /// A notebook was written, or not.
    Noted(Result<(), String>),
}

/// How the attempt of a live request ended.
pub(super) struct LiveEnd {
    pub(super) ticket: Ticket,
    pub(super) ending: Ending,
    pub(super) took: Duration,
    /// What went wrong, in words.
    pub(super) error: Box<str>,
}

/// An attempt that ended and whose settlement is not written yet.
struct Ended {
    note: AttemptNote,
    source: Arc<str>,
    /// Of which event, for the log; `None` when it could not be read.
    event: Option<(EventId, Group, Option<Trace>)>,
}

/// What is counted of a source's events.
struct Counters {
    metrics: EventMetrics,
    pending: backlog::Pending,
}

impl Counters {
    fn comes(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is under way, and what belongs to it.
pub(super) struct Delivery {
    store: Arc<dyn LaneStore>,
    deliver: Deliver,
    /// Asked directly before an attempt begins; `None` on a node that is alone.
    seat: Option<Arc<Seat>>,
    policies: Arc<PolicyTable>,
    metrics: Arc<Metrics>,
    /// By source, as many as there ever were in this process.
    counters: HashMap<Arc<str>, Counters>,
    sources: Arc<SourceTable>,
    backlogs: Arc<Backlogs>,
    work: JoinSet<Done>,
    cancels: HashMap<Ticket, oneshot::Sender<()>>,
    calls: Calls,
    window: Window,
    ended: HashMap<Seq, Ended>,
    /// Replayed events before the end of their first attempt: whose replay each is, and its source.
    followed: HashMap<Seq, (Arc<Tracker>, Arc<str>)>,
    /// How those stand that are elsewhere is being read.
    looking: bool,
    /// Ends of events that the store may have already, before the engine is told.
    pub(super) ending: u64,
    pub(super) removals: Removals,
    pub(super) watch: Watch,
}

impl Delivery {
    pub(super) fn new(
        store: Arc<dyn LaneStore>,
        deliver: Deliver,
        policies: Arc<PolicyTable>,
        metrics: Arc<Metrics>,
        (sources, backlogs): (Arc<SourceTable>, Arc<Backlogs>),
    ) -> Self {
        Self {
            store,
            deliver,
            seat: None,
            policies,
            sources,
            backlogs,
            watch: Watch::new(Arc::clone(&metrics)),
            metrics,
            counters: HashMap::new(),
            work: JoinSet::new(),
            cancels: HashMap::new(),
            calls: Calls::default(),
            window: Window::default(),
            ended: HashMap::new(),
            followed: HashMap::new(),
            looking: false,
            ending: 0,
            removals: Removals::default(),
        }
    }

    /// From now on attempts are made only while this node may.
    pub(super) fn take_seat(&mut self, seat: Arc<Seat>) {
        self.seat = Some(seat);
    }

    /// Attempts from now on go another way (a reload).
    pub(super) fn replace(&mut self, deliver: Deliver) {
        self.deliver = deliver;
    }

    /// Resolves when something has ended; never while nothing is under way.
    pub(super) async fn next(&mut self) -> Done {
        loop {
            match self.work.join_next().await {
                Some(Ok(done)) => return done,
                // A task that panicked is a fault of ours; its lease runs out and is counted as a violation.
                Some(Err(error)) => tracing::error!(%error, "a task of the driver ended without a result"),
                None => std::future::pending().await,
            }
        }
    }

    /// Something that has ended already.
    pub(super) fn try_next(&mut self) -> Option<Done> {
        self.work.try_join_next()?.ok()
    }

    fn counters(&mut self, source: &Arc<str>) -> &Counters {
        // Nearly always it is there; then its name is not copied.
        if !self.counters.contains_key(source) {
            let counters = Counters { metrics: self.metrics.events_of(source), pending: self.backlogs.of(source) };
            self.counters.insert(Arc::clone(source), counters);
        }
        self.counters.get(source).expect("inserted just above")
    }

    /// Counts an event that is durable, a repeat that is suppressed with them. Whether its sender still waits for the answer does not
    /// matter (I1).
    pub(super) fn accepted(&mut self, event: &Event, suppressed: bool) {
        let counters = self.counters(&event.source);
        counters.metrics.accepted();
        if suppressed {
            counters.metrics.suppressed();
        } else {
            counters.comes();
        }
        // Those that are not genuine have no key either, and a lane of their own.
        if event.group().is_fallback() {
            counters.metrics.fallback(&event.key_source);
        }
    }

    /// Counts an event that was suppressed and is pending now.
    pub(super) fn released(&mut self, source: &Arc<str>) {
        let counters = self.counters(source);
        counters.metrics.released();
        counters.comes();
    }

    /// An event that is durable now, as the engine needs it.
    pub(super) fn keep(&mut self, seq: Seq, event: &Arc<Event>) -> Queued {
        self.window.put(seq, event);
        Queued {
            seq,
            lane: event.lane.clone(),
            owner: event.owner.clone(),
            order: event.order.clone(),
            received: event.received,
            replays: 0,
            attempts: 0,
            refused: 0,
            first_attempt: None,
            due: None,
        }
    }

    /// Events that are durably pending again, in the order of their seqs, as the engine needs them.
    pub(super) fn requeued(&mut self, requeue: &Requeue, pending: &[Option<Pending>]) -> Vec<Queued> {
        for (record, pending) in requeue.events.iter().zip(pending) {
            if let Some(tracker) = &requeue.tracker {
                tracker.entered(record, pending.as_ref());
            }
            let Some(pending) = pending else { continue };
            let counters = self.counters(&record.source);
            counters.metrics.replayed();
            counters.comes();
            if let Some(tracker) = &requeue.tracker {
                self.follow(pending.seq, tracker, Arc::clone(&record.source));
            }
        }
        pending.iter().flatten().cloned().map(queued).collect()
    }

    /// What is kept of events of a section is of no use any more.
    pub(super) fn forget_section(&mut self, section: u16) {
        self.window.forget_section(section);
        self.ended.retain(|seq, _| seq.section() != section);
    }

    /// Looks after replayed events that are with another node now: nobody tells this one of them.
    pub(super) fn look_elsewhere(&mut self, is_here: impl Fn(Seq) -> bool) {
        if self.looking {
            return;
        }
        let away = self.followed.iter().filter(|(seq, _)| !is_here(**seq));
        let away = away.filter_map(|(seq, (tracker, _))| Some((Arc::clone(tracker), tracker.of_seq(*seq)?)));
        let away: Vec<(Arc<Tracker>, Out)> = away.collect();
        if !away.is_empty() {
            self.looking = true;
            self.work.spawn(followed::look(Arc::clone(&self.store), away));
        }
    }

    /// The body of an event need not be kept.
    pub(super) fn forget(&mut self, seq: Seq) {
        self.window.forget(seq);
    }

    /// A replay is told what becomes of this event.
    pub(super) fn follow(&mut self, seq: Seq, tracker: &Arc<Tracker>, source: Arc<str>) {
        self.followed.insert(seq, (Arc::clone(tracker), source));
    }

    /// Takes up a live request.
    pub(super) fn call(&mut self, call: Call, engine: &mut Engine, now: Now) {
        self.calls.take(call, &mut self.work, engine, now);
    }

    /// Begins what the engine asks for; reads under this mark.
    pub(super) fn begin(&mut self, request: Request, mark: u64) {
        match request {
            Request::Dispatch(dispatch) => self.dispatch(dispatch),
            Request::Live(dispatch) => {
                self.metrics.waited_for(&dispatch.split);
                let (cancel, cancelled) = oneshot::channel();
                self.cancels.insert(dispatch.ticket, cancel);
                self.calls.go(dispatch, Arc::clone(&self.deliver), cancelled, &mut self.work);
            }
            Request::Unserved { live, why } => self.calls.refuse(live, why),
            Request::Settle { batch, settlements } => self.settle(batch, settlements),
            Request::Load { lane, after, n } => {
                let store = Arc::clone(&self.store);
                self.work.spawn(async move {
                    let loaded = store.load(lane.clone(), after, n).await;
                    Done::Loaded(lane, n, mark, loaded)
                });
            }
            Request::LoadDue { after, n } => {
                let store = Arc::clone(&self.store);
                self.work.spawn(async move { Done::DueLoaded(n, mark, store.due(after, n).await) });
            }
            Request::Cancel { ticket } => {
                // Without a sender the attempt has ended, and its end is on the way.
                if self.cancels.remove(&ticket).is_some_and(|cancel| cancel.send(()).is_err()) {
                    tracing::debug!(ticket = ticket.0, "an attempt ended before it could be cancelled");
                }
            }
        }
    }

    /// Writes a notebook, without waiting for the disk.
    pub(super) fn write(&mut self, notebook: Notebook, bytes: Vec<u8>) {
        self.work.spawn_blocking(move || Done::Noted(notebook.write(&bytes)));
    }

    fn dispatch(&mut self, dispatch: Dispatch) {
        if dispatch.replays == 0 {
            let stood = dispatch.split.iter().any(|(reason, _)| reason.is_own_standstill());
            self.metrics.waited(dispatch.wait, dispatch.quiet && !stood);
        }
        self.metrics.waited_for(&dispatch.split);
        let kept = self.window.take(dispatch.seq);
        let (store, deliver) = (Arc::clone(&self.store), Arc::clone(&self.deliver));
        let (cancel, cancelled) = oneshot::channel();
        self.cancels.insert(dispatch.ticket, cancel);
        let (sources, seat) = (Arc::clone(&self.sources), self.seat.clone());
        self.work.spawn(async move {
            let (ticket, seq) = (dispatch.ticket, dispatch.seq);
            let event = match kept {
                Some(event) => Ok(event),
                None => read(&*store, seq, dispatch.attempt).await,
            };
            let event = match event {
                Ok(event) => event,
                Err(attempt) => return Done::Attempt(ticket, seq, attempt, dispatch.split, None),
            };
            if sources.is(&event.source, Hold::Paused) {
                return Done::Parked(ticket, dispatch.lane, event);
            }
            // Directly before it begins: a node that was stopped in between may have lost the event to another.
            let attempt = if seat.is_none_or(|seat| seat.may_send(seq)) {
                attempt(&deliver, job(&event, &dispatch), cancelled).await
            } else {
                Attempt::withheld(dispatch.attempt)
            };
            Done::Attempt(ticket, seq, attempt, dispatch.split, Some(event))
        });
    }

    fn settle(&mut self, batch: Batch, settlements: Vec<Settle>) {
        let store = Arc::clone(&self.store);
        let records: Vec<Settlement> = settlements.iter().map(|settle| self.record(settle)).collect();
        self.ending = records.iter().filter(|record| record.verdict.ends()).count() as u64;
        self.backlogs.begun();
        self.work.spawn(async move {
            let settled = store.settle(records).await;
            Done::Settled(batch, settlements, settled)
        });
    }

    /// A settlement as the store writes it, with the attempt that led to it.
    fn record(&self, settle: &Settle) -> Settlement {
        let verdict = match &settle.verdict {
            engine::Verdict::Begun => Verdict::Begun,
            engine::Verdict::RetryAt(due) => Verdict::RetryAt(*due),
            engine::Verdict::Released => Verdict::Released,
            engine::Verdict::Delivered => Verdict::Delivered,
            engine::Verdict::Dead(reason) => Verdict::Dead(self.before(settle.seq, reason)),
            engine::Verdict::Discarded => Verdict::Discarded,
        };
        let ends_attempt = !matches!(settle.verdict, engine::Verdict::Begun);
        let attempt = self.ended.get(&settle.seq).filter(|_| ends_attempt).map(|ended| ended.note.clone());
        Settlement { seq: settle.seq, at: settle.at, verdict, attempt }
    }

    /// Why an event is dead: one whose replay was taken back stands as before, with the reason of its own death.
    fn before(&self, seq: Seq, reason: &str) -> Box<str> {
        let tracker = self.followed.get(&seq).filter(|_| reason == engine::WITHDRAWN);
        let known = tracker.and_then(|(tracker, _)| tracker.reason(seq));
        known.or_else(|| self.removals.reason(seq)).unwrap_or_else(|| reason.into())
    }

    /// Tells the engine what ended.
    pub(super) fn tell(&mut self, done: Done, engine: &mut Engine, now: Now) {
        match done {
            Done::Attempt(ticket, seq, mut attempt, waited, event) => {
                self.cancels.remove(&ticket);
                let ending = outcome::ending(&attempt);
                if let Some(event) = &event
                    && event.order.is_some()
                    && let Some(max) = self.policies.order_max_hold(&event.source)
                {
                    engine.may_hold(ticket, max);
                }
                if event.is_none() {
                    attempt.started = now.wall;
                }
                // Of an event that could not be read the source is not known either.
                let source = event.as_ref().map_or_else(Arc::default, |event| Arc::clone(&event.source));
                let event = event.map(|event| (event.id, event.group().clone(), event.trace));
                self.ended.insert(seq, Ended { note: outcome::note(&attempt, waited), source, event });
                self.finished(ticket, ending, (attempt.took, &attempt.error), engine, now);
            }
            Done::Parked(ticket, lane, event) => {
                self.cancels.remove(&ticket);
                self.sources.park(&event.source, lane, engine, now);
                engine.on_finished(ticket, Ending::NotSent, Duration::ZERO, now);
            }
            Done::Followed(ended) => {
                self.looking = false;
                for (tracker, seq, end) in ended {
                    self.followed.remove(&seq);
                    tracker.ended(seq, end);
                }
            }
            Done::Live(None) | Done::Noted(Ok(())) => {}
            Done::Noted(Err(error)) => tracing::warn!(error, "it is written again later"),
            Done::Live(Some(LiveEnd { ticket, ending, took, error })) => {
                self.cancels.remove(&ticket);
                self.finished(ticket, ending, (took, &error), engine, now);
            }
            Done::LiveGone(live) => {
                self.calls.forget(live);
                engine.on_live_gone(live, now);
            }
            Done::Settled(batch, settlements, Ok(unknown)) => {
                self.ending = 0;
                if unknown > 0 {
                    tracing::warn!(unknown, "settlements were about events that are not pending any more");
                }
                for settle in settlements {
                    self.settled(&settle);
                }
                self.backlogs.known();
                engine.on_settled(batch, now);
            }
            Done::Settled(batch, settlements, Err(error)) => {
                tracing::error!(%error, count = settlements.len(), "settlements were not written; they are tried again");
                self.backlogs.known();
                engine.on_settle_failed(batch, now);
            }
            Done::Loaded(lane, n, _, Ok(pending)) => {
                let more = pending.len() >= n;
                engine.on_loaded(&lane, pending.into_iter().map(queued).collect(), more, now);
            }
            Done::Loaded(lane, _, _, Err(error)) => {
                tracing::warn!(%error, lane = %lane.group, "a lane's events could not be read; they are asked for again");
                engine.on_load_failed(&lane, now);
            }
            Done::DueLoaded(n, _, Ok(pending)) => {
                let more = pending.len() >= n;
                engine.on_due_loaded(pending.into_iter().map(queued).collect(), more, now);
            }
            Done::DueLoaded(_, _, Err(error)) => {
                tracing::warn!(%error, "due retries could not be read; they are asked for again");
                engine.on_due_load_failed(now);
            }
        }
    }

    /// Tells the engine, and the log what that changed: at once, while this error is the last one.
    fn finished(&mut self, ticket: Ticket, ending: Ending, said: (Duration, &str), engine: &mut Engine, now: Now) {
        let (took, error) = said;
        self.watch.ended(ending, error, now.wall);
        engine.on_finished(ticket, ending, took, now);
        self.watch.say(engine, now.mono);
    }

    /// A settlement is durable: its attempt is written down, and the event's end is counted.
    fn settled(&mut self, settle: &Settle) {
        if matches!(settle.verdict, engine::Verdict::Begun) {
            return;
        }
        let ended = self.ended.remove(&settle.seq);
        let followed = self.told_replay(settle, ended.is_some());
        let (mut source, mut event) =
            ended.map_or_else(|| (followed.unwrap_or_default(), None), |ended| (ended.source, ended.event));
        // One that a person ended had no attempt now that would say whose it is.
        if let Some(ending) = self.removals.ended(settle.seq) {
            (source, event) = (ending.source, Some((ending.id, ending.group, None)));
        }
        match &settle.verdict {
            engine::Verdict::Delivered => self.counters(&source).metrics.delivered(),
            engine::Verdict::Dead(reason) => {
                let trace_id = event.as_ref().and_then(|(_, _, trace)| trace.map(Trace::id_text));
                let (id, group) = event.map(|(id, group, _)| (id.to_string(), group.to_string())).unwrap_or_default();
                tracing::warn!(id, group, trace_id, seq = settle.seq.0, %source, %reason, "an event went to the dead letters");
                self.counters(&source).metrics.dead();
            }
            engine::Verdict::Discarded => self.counters(&source).metrics.discarded(),
            _ => return self.window.forget(settle.seq),
        }
        let pending = Arc::clone(&self.counters(&source).pending);
        self.backlogs.ended(&pending, settle.seq);
        self.window.forget(settle.seq);
    }
}

impl Delivery {
    /// Tells the replay that an event is of what became of it; gives the event's source.
    fn told_replay(&mut self, settle: &Settle, attempted: bool) -> Option<Arc<str>> {
        let end = match &settle.verdict {
            engine::Verdict::Begun | engine::Verdict::Released => return None,
            engine::Verdict::RetryAt(_) => End::Retrying,
            _ if !attempted => End::Withdrawn,
            engine::Verdict::Delivered => End::Delivered,
            engine::Verdict::Dead(_) | engine::Verdict::Discarded => End::Dead,
        };
        let (tracker, source) = self.followed.remove(&settle.seq)?;
        tracker.ended(settle.seq, end);
        Some(source)
    }
}

/// A pending event as the store has it, as the engine needs it.
pub(super) fn queued(pending: Pending) -> Queued {
    Queued {
        seq: pending.seq,
        lane: pending.lane,
        owner: pending.owner,
        order: pending.order,
        received: pending.requeued.unwrap_or(pending.received),
        replays: pending.replays,
        attempts: pending.attempts,
        refused: pending.refused,
        first_attempt: pending.first_attempt,
        due: pending.due,
    }
}

fn job(event: &Arc<Event>, dispatch: &Dispatch) -> Job {
    Job {
        attempt: dispatch.attempt,
        replays: dispatch.replays,
        will_retry: dispatch.will_retry,
        wait: dispatch.wait,
        waited: dispatch.split.clone(),
        ..Job::new(Arc::clone(event))
    }
}

/// The event, or how its attempt ends without it: what is damaged stays so, anything else may pass.
async fn read(store: &dyn LaneStore, seq: Seq, number: u32) -> Result<Arc<Event>, Attempt> {
    let why = match store.read(vec![seq]).await {
        Ok(found) => match found.into_iter().next().flatten() {
            Some(event) => return Ok(event),
            None => "the store no longer has the event".to_owned(),
        },
        Err(error @ Error::Corrupt(_)) => return Err(Attempt::unsendable(number, &error.to_string())),
        Err(error) => format!("the event could not be read: {error}"),
    };
    Err(Attempt::cancelled(number, Wall(0), Duration::ZERO, &why))
}

/// One attempt, unless it is cancelled before its end.
pub(super) fn attempt(deliver: &Deliver, job: Job, cancelled: oneshot::Receiver<()>) -> BoxFuture<'static, Attempt> {
    let number = job.attempt;
    let sending = deliver(job);
    Box::pin(async move {
        let cancelled = async {
            // A sender that was dropped cancels nothing.
            if cancelled.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            attempt = sending => attempt,
            () = cancelled => {
                Attempt::cancelled(number, Wall(0), Duration::ZERO, "cancelled: it outlived its deadline, or a person ended it")
            }
        }
    })
}

/// Events between commit and attempt, bounded in bytes.
#[derive(Default)]
struct Window {
    events: HashMap<Seq, Arc<Event>>,
    bytes: usize,
}

impl Window {
    fn put(&mut self, seq: Seq, event: &Arc<Event>) {
        let bytes = event.body.len() + EVENT_BYTES;
        if self.bytes + bytes <= WINDOW_BYTES_MAX {
            self.bytes += bytes;
            self.events.insert(seq, Arc::clone(event));
        }
    }

    fn take(&mut self, seq: Seq) -> Option<Arc<Event>> {
        let event = self.events.remove(&seq)?;
        self.bytes -= event.body.len() + EVENT_BYTES;
        Some(event)
    }

    fn forget_section(&mut self, section: u16) {
        let bytes = &mut self.bytes;
        self.events.retain(|seq, event| {
            let stays = seq.section() != section;
            *bytes -= if stays { 0 } else { event.body.len() + EVENT_BYTES };
            stays
        });
    }

    /// An event that ended without an attempt leaves too.
    fn forget(&mut self, seq: Seq) {
        drop(self.take(seq));
    }
}
