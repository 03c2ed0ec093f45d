//! THE DELIVERY PATH ON ONE SCREEN: the driver's loop.
//!
//! One owner, no decisions of its own: take the facts that wait → start the next append if none is under way → execute what the
//! engine asks for → sleep until a fact, a completion or the engine's time. Group commit appears by itself: while one batch is
//! being made durable, the next one gathers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, Sleep};

use super::admission::Admission;
use super::append::Appends;
use super::command::Command;
use super::dedicated::Promoted;
use super::delivery::Delivery;
use super::handover::Handover;
use super::job::{self, Job};
use super::live::Call;
use super::newcomers::{NewGroups, Newcomers};
use super::nodes::Nodes;
use super::nodes_turn::happens;
use super::policy::PolicyTable;
use super::replay::{Out, Replay, Tracker, Work};
use super::traced::traced;
use super::upstream::UpstreamTable;
use super::{Fact, Shared, Submission, recover, replay};
use crate::deliver::Deliver;
use crate::engine::{BreakerState, Engine, Was};
use crate::event::{Mono, Now, Seq};
use crate::store::notebook::Notebook;
use crate::store::{Error, Query, Status};

/// How often gauges are set, expired changes end and the beat is shown when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// A retry that could go and is this late is one too many.
pub(super) const OVERDUE: Duration = Duration::from_secs(10);

/// Facts and completions taken in one turn, so that neither keeps the other waiting.
const TURN_MAX: usize = 1_000;

/// The one task that owns the delivery path.
pub struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Engine,
    pub(super) policies: Arc<PolicyTable>,
    pub(super) delivery: Delivery,
    pub(super) upstream: UpstreamTable,
    promoted: Promoted,
    /// The other nodes; `None` on one that is alone.
    pub(super) nodes: Option<Nodes>,
    pub(super) admission: Admission,
    facts: mpsc::Receiver<Fact>,
    calls: mpsc::Receiver<Call>,
    /// For jobs and replays, which ask like everybody else.
    asking: mpsc::WeakSender<Fact>,
    jobs: JoinSet<()>,
    replays: JoinSet<()>,
    pub(super) appends: Appends,
    pub(super) stopping: bool,
    pub(super) handover: Handover,
}

impl Driver {
    pub(super) fn new(
        (facts, calls, asking): (mpsc::Receiver<Fact>, mpsc::Receiver<Call>, mpsc::WeakSender<Fact>),
        shared: Arc<Shared>,
        engine: Engine,
        (policies, upstream, promoted, newcomers): (Arc<PolicyTable>, UpstreamTable, Promoted, Newcomers),
        deliver: Deliver,
        nodes: Option<Nodes>,
    ) -> Self {
        let deliver = traced(deliver, Arc::clone(&shared.spans));
        let held = (Arc::clone(&shared.held), Arc::clone(&shared.backlogs));
        let mut delivery =
            Delivery::new(Arc::clone(&shared.store), deliver, Arc::clone(&policies), Arc::clone(&shared.metrics), held);
        if let Some(nodes) = &nodes {
            delivery.take_seat(Arc::clone(nodes.seat()));
        }
        let appends = Appends::new(Arc::clone(&shared));
        let (jobs, replays) = (JoinSet::new(), JoinSet::new());
        let admission = Admission::new(Arc::clone(&shared), newcomers);
        Self {
            shared,
            engine,
            policies,
            delivery,
            upstream,
            promoted,
            nodes,
            admission,
            facts,
            calls,
            asking,
            jobs,
            replays,
            appends,
            stopping: false,
            handover: Handover::default(),
        }
    }

    /// Takes up what the store holds from before. Called once, before [`Driver::run`].
    ///
    /// # Errors
    /// The store's.
    pub async fn recover(&mut self) -> Result<(), Error> {
        let now = self.shared.clock.now();
        // Among others nothing is this node's until a shard is given to it.
        if self.nodes.is_none() {
            let interrupted = recover::recover(&self.shared.store, &mut self.engine, now).await?;
            self.count_backlogs().await?;
            let totals = self.engine.totals();
            if totals.recovered > 0 {
                tracing::info!(pending = totals.recovered, interrupted, "events from before are taken up");
            }
        }
        for job in self.shared.replays.unfinished() {
            if self.nodes.is_some() {
                // A store that is elsewhere may be away now.
                self.replays.spawn(replay::take_up(job, Arc::clone(&self.shared.store), self.asking.clone()));
            } else {
                let out = job.resume(&*self.shared.store).await?;
                self.take_up(job, &out);
            }
        }
        for job in self.shared.jobs.unfinished() {
            tracing::info!(
                job = job.id,
                group = job.group,
                done = job.done,
                total = job.total,
                "a job from before goes on"
            );
            self.jobs.spawn(job::resume(job, self.asking.clone(), Arc::clone(&self.shared)));
        }
        Ok(())
    }

    /// Has what is pending counted by source, beside everything else.
    async fn count_backlogs(&mut self) -> Result<(), Error> {
        let newest = self.shared.store.list(Query { limit: 1, ..Query::default() }).await?;
        let last = newest.records.first().map(|record| record.seq).or(newest.next);
        self.shared.backlogs.begin(last.unwrap_or(Seq(0)));
        let shared = Arc::clone(&self.shared);
        self.jobs.spawn(async move { shared.backlogs.count(&*shared.store).await });
        Ok(())
    }

    /// A job that is written down is worked on from now on.
    pub(super) fn begin(&mut self, job: Job) {
        self.jobs.spawn(job::work(job, self.asking.clone(), Arc::clone(&self.shared)));
    }

    /// Runs until it is told to stop, everything submitted before is answered, and what was in flight has ended and is settled.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut facts = Vec::with_capacity(TURN_MAX);
        let mut calls = Vec::new();
        let mut alarm = Alarm::default();
        loop {
            // The store is set to work, and then whoever is ready goes first: what they bring is taken in one turn, and not in one for each.
            let finished = tokio::select! {
                biased;
                result = self.appends.finished() => Some(result),
                () = tokio::task::yield_now() => None,
            };
            if let Some(result) = finished {
                self.appended(result);
            } else {
                let room = self.appends.room();
                tokio::select! {
                    biased;
                    result = self.appends.finished() => self.appended(result),
                    done = self.delivery.next() => self.tell(done, self.shared.clock.now()),
                    happening = happens(&mut self.nodes) => self.happened(happening),
                    taken = self.calls.recv_many(&mut calls, TURN_MAX), if !self.stopping => self.stopping |= taken == 0,
                    taken = self.facts.recv_many(&mut facts, room), if room > 0 && !self.stopping => {
                        // Every handle is gone: nobody is left to submit or to say stop.
                        self.stopping |= taken == 0;
                    }
                    () = alarm.rings() => {}
                    Some(ended) = self.replays.join_next() => {
                        if let Err(error) = ended {
                            tracing::error!(%error, "the task of a replay had failed; a restart takes it up again");
                        }
                    }
                    _ = tick.tick() => self.upkeep(),
                }
            }
            // All of what came meanwhile goes into the next batch.
            let room = self.appends.room();
            while facts.len() < room
                && let Ok(fact) = self.facts.try_recv()
            {
                facts.push(fact);
            }
            let now = self.shared.clock.now();
            self.take(&mut facts, now);
            for call in calls.drain(..) {
                self.delivery.call(call, &mut self.engine, now);
            }
            self.execute(now);
            self.attend_nodes(now);
            self.delivery.watch.say(&mut self.engine, now.mono);
            if self.delivery.watch.has_promoted() && !self.handover.is_leaving() {
                self.promoted.keep(&self.engine.promoted());
            }
            alarm.set(self.engine.poll_timeout(), now.mono);
            self.shared.beat.store(now.mono.0, Ordering::Relaxed);
            if self.steps_on() {
                return;
            }
        }
    }

    /// Takes everything that waits, of every kind, before anything is decided.
    fn take(&mut self, facts: &mut Vec<Fact>, now: Now) {
        for fact in facts.drain(..) {
            match fact {
                Fact::Submitted(submission) => self.admit(submission, now),
                Fact::Requeue(requeue) => self.appends.gather_requeue(requeue),
                Fact::Release(release) => self.appends.gather_release(release),
                Fact::Command(command) => self.obey(*command, now),
                Fact::Step(step) => self.step(step, now),
                Fact::Stop => self.stopping = true,
            }
        }
        for _ in 0..TURN_MAX {
            let Some(done) = self.delivery.try_next() else { break };
            self.tell(done, now);
        }
        if self.stopping {
            self.stop(now);
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= now.mono) {
            self.engine.on_timeout(now);
        }
    }

    /// Takes a submission in, or refuses it where its group has as much as it may: before it is written, so that nothing refused is
    /// ever stored.
    fn admit(&mut self, mut submission: Submission, now: Now) {
        // Among others the store itself checks the cap: it knows the group wherever its owner is.
        if self.nodes.is_none() && (self.policies.caps_backlogs() || self.engine.counts_coming()) {
            match self.engine.admit(&submission.event.lane.group, now) {
                Ok(admitted) => submission.admitted = admitted,
                Err(excess) => return submission.refuse(excess.into()),
            }
        }
        self.appends.gather(submission);
    }

    fn execute(&mut self, now: Now) {
        self.appends.start(&mut self.admission, &mut self.engine, now);
        while let Some(request) = self.engine.poll_request(now) {
            let mark = self.mark(&request);
            self.delivery.begin(request, mark);
        }
        self.delivery.read();
    }

    /// The batch is durable, or was refused: only now are its senders answered, and only now may it be delivered (I7).
    fn appended(&mut self, result: super::append::Finished) {
        let now = self.shared.clock.now();
        for (group, admitted) in result.admitted() {
            self.engine.on_came(group, admitted);
        }
        let queued = self.appends.answer(result, &mut self.delivery, now.mono);
        match &self.nodes {
            None if queued.is_empty() => {}
            None => self.engine.on_appended(queued, now),
            // They come to their owner in the order of seqs, whoever that is.
            Some(nodes) => {
                let elsewhere = queued.iter().map(|event| event.seq).filter(|seq| !nodes.awaits(*seq));
                elsewhere.for_each(|seq| self.delivery.forget(seq));
            }
        }
    }

    /// Refuses further submissions and leases; what waits in the channel came before and is taken along.
    fn stop(&mut self, now: Now) {
        self.facts.close();
        self.calls.close();
        let leaving = self.handover.is_leaving();
        if !leaving {
            self.engine.begin_drain();
        }
        while let Ok(call) = self.calls.try_recv() {
            // Nobody of those who wait there will have a turn, unless only the store goes: dropping them says so.
            if leaving {
                self.delivery.call(call, &mut self.engine, now);
            }
        }
        while let Ok(fact) = self.facts.try_recv() {
            match fact {
                Fact::Submitted(submission) => self.admit(submission, now),
                Fact::Release(release) => self.appends.gather_release(release),
                // A replay that is not answered goes on after the next start.
                Fact::Requeue(_) | Fact::Command(_) | Fact::Step(_) | Fact::Stop => {}
            }
        }
    }

    fn upkeep(&mut self) {
        if self.handover.is_leaving() {
            // What is written down, and what is counted, is the successor's.
            return;
        }
        let now = self.shared.clock.now();
        self.shared.notebooks.iter().for_each(Notebook::catch_up);
        for group in self.policies.expire(now.wall) {
            tracing::info!(%group, "a change of a group has expired");
            let policy = self.policies.of(&group);
            self.engine.set_policy(&group, policy, now);
        }
        if self.upstream.expire(now.wall) {
            tracing::info!("a change of the upstream has expired");
            self.apply_upstream(now);
        }
        for source in self.shared.held.expire(&mut self.engine, now) {
            tracing::info!(source, "a source runs again: the end of its pause or drain has come");
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.keep_late(&mut self.engine, now);
            self.delivery.look_elsewhere(|seq, lane| nodes.is_here(seq, lane));
        }
        self.delivery.watch.tick();
        while self.jobs.try_join_next().is_some() {}
        if let Some((notebook, known)) = self.admission.newcomers.due(now.wall) {
            self.delivery.write(notebook, known);
        }
        self.show_sizes(now);
    }

    /// A replay from before goes on; `out`: what it has under way.
    pub(super) fn take_up(&mut self, job: Arc<Replay>, out: &[Out]) {
        for out in out {
            self.delivery.follow(out.seq, job.tracker(), Arc::default());
        }
        self.work_on(job);
    }

    /// Ends what works on the store beside the loop; it goes on where it is opened next.
    pub(super) fn end_jobs(&mut self) {
        self.jobs.abort_all();
        self.replays.abort_all();
    }

    /// Has a task work on a replay.
    pub(super) fn work_on(&mut self, job: Arc<Replay>) {
        let work = Work {
            replays: Arc::clone(&self.shared.replays),
            store: Arc::clone(&self.shared.store),
            clock: Arc::clone(&self.shared.clock),
            facts: self.asking.clone(),
        };
        self.replays.spawn(replay::run(job, work));
    }

    /// Takes back what a replay has in lanes and not in flight.
    pub(super) fn withdraw(&mut self, tracker: &Tracker, now: Now) {
        for Out { seq, lane, was, .. } in tracker.out() {
            self.engine.withdraw(&lane, seq, was_of(was), now);
        }
    }

    /// What holds for the upstream acts from the next lease on.
    pub(super) fn apply_upstream(&mut self, now: Now) {
        self.engine.set_settings(self.own_settings(), now);
        self.engine.set_upstream_paused(self.upstream.is_paused());
    }

    fn show_sizes(&mut self, now: Now) {
        let usage = self.shared.store.usage();
        let metrics = &self.shared.metrics;
        metrics.backlog_events.set(gauge(usage.pending));
        metrics.conservation_difference.set(self.conservation_difference(usage.pending));
        metrics.lanes_active.set(gauge(usage.lanes));
        metrics.store_bytes.set(gauge(usage.bytes));
        metrics.spool_events.set(gauge(usage.spool.map_or(0, |spool| spool.events)));
        metrics.spool_bytes.set(gauge(usage.spool.map_or(0, |spool| spool.bytes)));
        metrics.disk_free_bytes.set(gauge(usage.free));
        let age = usage.oldest.map_or(Duration::ZERO, |oldest| now.wall.since(oldest));
        metrics.backlog_oldest_age.set(age.as_secs_f64());
        let slots = self.engine.slots();
        let breaker = match self.engine.breaker() {
            BreakerState::Closed => 0,
            BreakerState::SlowStart { .. } => 1,
            BreakerState::HalfOpen => 2,
            BreakerState::Open { .. } => 3,
        };
        let slots = [
            ("busy", slots.busy),
            ("slow", slots.slow),
            ("retry", slots.retry),
            ("replay", slots.replay),
            ("free", slots.free),
            ("dedicated", slots.dedicated),
        ];
        metrics.scheduler(slots, breaker);
        metrics.outbreak.set(self.engine.in_outbreak().into());
        for NewGroups { source, per_minute, .. } in self.admission.newcomers.all(now) {
            metrics.new_groups_per_minute(&source, per_minute);
        }
        metrics.overflow_events.set(gauge(self.engine.overflow_events()));
        let counted = metrics.invariant_violations.get();
        metrics.invariant_violations.inc_by(self.engine.violations().saturating_sub(counted));
    }

    /// I1, between two books: pending events that the store has more than the engine (fewer: below zero), apart from what is on its way
    /// from one to the other.
    fn conservation_difference(&self, stored: u64) -> i64 {
        if self.nodes.is_some() {
            // The store has the events of all nodes, the engine those of this one.
            return 0;
        }
        let totals = self.engine.totals();
        let known = totals.queued + totals.retrying + totals.in_flight;
        let (least, most) = (known.saturating_sub(self.delivery.ending), known + self.appends.under_way());
        gauge(stored.saturating_sub(most)) - gauge(least.saturating_sub(stored))
    }

    /// Shows in the metrics what takes time in the number of groups; done when somebody asks, not every second.
    pub(super) fn show_backlog(&self, now: Now) {
        let late = self.shared.alerts.settings().group_age;
        self.shared.metrics.backlog(self.engine.ages(now.mono), late, self.engine.retries_overdue(OVERDUE));
    }

    fn obey(&mut self, command: Command, now: Now) {
        super::command::obey(self, command, now);
    }
}

/// Wakes the loop at a time of the engine's, or before it: armed anew only for an earlier time, since the engine's changes with nearly every
/// event and a turn too many costs less.
#[derive(Default)]
struct Alarm {
    at: Mono,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    fn set(&mut self, at: Option<Mono>, now: Mono) {
        let Some(at) = at else { return };
        if self.sleep.is_none() || at < self.at {
            self.at = at;
            self.sleep = Some(Box::pin(tokio::time::sleep(at.since(now))));
        }
    }

    async fn rings(&mut self) {
        match &mut self.sleep {
            Some(sleep) => {
                sleep.await;
                self.sleep = None;
            }
            None => std::future::pending().await,
        }
    }
}

/// How an event had ended that was requeued.
pub(super) fn was_of(status: Status) -> Was {
    match status {
        Status::Delivered => Was::Delivered,
        Status::Discarded => Was::Discarded,
        _ => Was::Dead,
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
