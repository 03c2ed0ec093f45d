//! The task of one replay: which events it takes next, and when.
//!
//! It goes through the list of what it is about once, oldest first. A group that has enough events under way is *parked*: the list goes on
//! without it, and its events are taken from a list of its own when there is room. So a group that is paused, or slow, holds up itself and
//! no other, and however many events there are, few of them wait in lanes at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::oneshot;

use super::book::{Place, Standing};
use super::filter::Filter;
use super::{Replay, Replays, Tally};
use crate::clock::Clock;
use crate::driver::Fact;
use crate::driver::append::REQUEUE_MAX;
use crate::driver::command::Command;
use crate::driver::requeue::requeue;
use crate::event::{Group, Seq};
use crate::store::{Error, LaneStore, Record};

/// Events of one group under way. They hide the time in which the next ones are fetched, and are what a group that waits keeps from others
/// of its replay.
const GROUP_MAX: usize = 16;

/// The same where the replay is about one group: nobody else of it waits.
const ONLY_GROUP_MAX: usize = 64;

/// Groups parked or with events under way; more wait in the list.
const GROUPS_MAX: usize = 128;

/// Records of one read.
const PAGE: usize = 500;

/// Bytes of bodies that one batch may have. One larger event goes alone.
const BATCH_BYTES: u64 = 4 << 20;

/// After something failed (the store is full, or was not there), it is tried again so much later.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// What a replay's task works with.
#[derive(Clone)]
pub(in crate::driver) struct Work {
    pub(in crate::driver) replays: Arc<Replays>,
    pub(in crate::driver) store: Arc<dyn LaneStore>,
    pub(in crate::driver) clock: Arc<dyn Clock>,
    /// Weak, for the driver ends when nobody else holds its channel.
    pub(in crate::driver) facts: mpsc::WeakSender<Fact>,
}

/// What a look at the replay gave.
enum Step {
    /// These are to be requeued; then the replay has come to this place.
    Take(Batch, Place),
    /// Nothing to requeue, but it has come to this place.
    Move(Place),
    /// Until something ends, or a person wants something.
    Wait,
    /// Nothing is left of it.
    Over,
}

/// Works on a replay until it is over or the driver ends.
pub(in crate::driver) async fn run(job: Arc<Replay>, work: Work) {
    loop {
        let done = match step(&job, &*work.store).await {
            Ok(Step::Wait) => {
                job.tracker.changed.notified().await;
                Ok(())
            }
            Ok(Step::Move(place)) => {
                job.course.lock().place = place;
                Ok(())
            }
            Ok(Step::Take(batch, place)) => match take(&job, &work, batch, place).await {
                Ok(true) => Ok(()),
                Ok(false) => return,
                Err(why) => Err(why),
            },
            Ok(Step::Over) => match finish(&job, &work).await {
                Ok(()) => return,
                Err(why) => Err(why),
            },
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = done {
            tracing::warn!(replay = job.terms.number, why, "a replay could not go on; it is tried again");
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// What is to be done next.
async fn step(job: &Replay, store: &dyn LaneStore) -> Result<Step, Error> {
    let (standing, place) = {
        let course = job.course.lock();
        (course.standing, course.place.clone())
    };
    match standing {
        Standing::Running => {}
        Standing::Paused => return Ok(Step::Wait),
        Standing::Cancelled | Standing::Done => return Ok(Step::Over),
    }
    let again = job.again.lock().clone();
    if !again.is_empty() {
        return Ok(Step::Take(Batch { records: again, ..Batch::default() }, place));
    }
    let mut look = Look { job, store, batch: Batch::default(), place: place.clone() };
    look.parked().await?;
    if look.batch.records.is_empty() {
        look.list().await?;
    }
    let Look { batch, place: reached, .. } = look;
    Ok(match () {
        () if !batch.records.is_empty() => Step::Take(batch, reached),
        () if reached != place => Step::Move(reached),
        () if reached.through && reached.parked.is_empty() && job.tracker.len() == 0 => Step::Over,
        () => Step::Wait,
    })
}

/// Events that are to be requeued together.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    bytes: u64,
    by_group: HashMap<Group, usize>,
}

impl Batch {
    /// Whether there is room for it.
    fn fits(&self, record: &Record) -> bool {
        let bytes = self.bytes + u64::from(record.body_bytes);
        self.records.is_empty() || (self.records.len() < REQUEUE_MAX && bytes <= BATCH_BYTES)
    }

    fn push(&mut self, record: Record) {
        self.bytes += u64::from(record.body_bytes);
        *self.by_group.entry(record.lane.group.clone()).or_default() += 1;
        self.records.push(record);
    }
}

/// One look for events to take.
struct Look<'a> {
    job: &'a Replay,
    store: &'a dyn LaneStore,
    batch: Batch,
    place: Place,
}

impl Look<'_> {
    /// From the parked groups that have room again.
    async fn parked(&mut self) -> Result<(), Error> {
        let parked: Vec<Group> = self.place.parked.keys().cloned().collect();
        for group in parked {
            // At half, so that a read is worth it.
            if self.under_way(&group) <= GROUP_MAX / 2 && self.batch.records.len() < REQUEUE_MAX {
                self.of_group(group).await?;
            }
        }
        Ok(())
    }

    async fn of_group(&mut self, group: Group) -> Result<(), Error> {
        let behind = self.place.parked.get(&group).copied().unwrap_or(0);
        let filter = Filter { group: Some(group.clone()), ..self.job.terms.filter.clone() };
        let page = self.store.list(filter.query(Seq(behind), GROUP_MAX)).await?;
        let mut reached = page.next.map(|next| next.0);
        for record in page.records {
            let seq = record.seq.0;
            if record.seq > self.job.terms.upto {
                reached = None;
                break;
            }
            if !self.is_meant(&record) {
                continue;
            }
            if self.under_way(&group) >= GROUP_MAX || !self.batch.fits(&record) {
                // From here on next time.
                reached = Some(seq - 1);
                break;
            }
            self.batch.push(record);
        }
        match reached {
            Some(seq) => self.place.parked.insert(group, seq),
            None => self.place.parked.remove(&group),
        };
        Ok(())
    }

    /// From the list of all.
    async fn list(&mut self) -> Result<(), Error> {
        if self.place.through || self.place.parked.len() + self.job.tracker.groups() >= GROUPS_MAX {
            return Ok(());
        }
        let filter = &self.job.terms.filter;
        let page = self.store.list(filter.query(Seq(self.place.behind), PAGE)).await?;
        let only_group = filter.group.is_some();
        let max = if only_group { ONLY_GROUP_MAX } else { GROUP_MAX };
        let mut through = page.next.is_none();
        let mut reached = page.next.map_or(self.place.behind, |next| next.0);
        for record in page.records {
            let seq = record.seq.0;
            if record.seq > self.job.terms.upto {
                through = true;
                break;
            }
            let group = &record.lane.group;
            if !self.is_meant(&record) || self.place.parked.contains_key(group) {
                continue;
            }
            let full = self.under_way(group) >= max;
            if full && !only_group {
                self.place.parked.insert(group.clone(), seq - 1);
            } else if full || !self.batch.fits(&record) {
                (through, reached) = (false, seq - 1);
                break;
            } else {
                self.batch.push(record);
            }
        }
        (self.place.through, self.place.behind) = (through, reached);
        Ok(())
    }

    /// Events of a group that are under way or will be.
    fn under_way(&self, group: &Group) -> usize {
        self.job.tracker.of(group) + self.batch.by_group.get(group).copied().unwrap_or(0)
    }

    /// Whether it had ended when the replay was begun.
    fn is_meant(&self, record: &Record) -> bool {
        record.settled.is_none_or(|at| at <= self.job.terms.created)
    }
}

/// Writes down what is about to happen, and has it happen. False when the driver has ended.
async fn take(job: &Arc<Replay>, work: &Work, batch: Batch, place: Place) -> Result<bool, String> {
    let records = batch.records;
    {
        let mut course = job.course.lock();
        course.next = records.iter().map(|record| (record.id, record.status)).collect();
        course.place = place;
        job.again.lock().clear();
    }
    let failed = |why: String| {
        job.course.lock().next.clear();
        job.again.lock().extend(records.clone());
        Err(why)
    };
    if let Err(why) = work.replays.note().await {
        return failed(why);
    }
    let Some(facts) = work.facts.upgrade() else { return Ok(false) };
    let done = requeue(&facts, records.clone(), Some(Arc::clone(&job.tracker))).await;
    drop(facts);
    match done {
        Err(_ended) => Ok(false),
        Ok(Ok(_)) => {
            job.course.lock().next.clear();
            Ok(true)
        }
        Ok(Err(error)) => failed(error.to_string()),
    }
}

/// Nothing more is taken: what is still in lanes of one that was cancelled is taken back, and the rest is waited for.
async fn finish(job: &Replay, work: &Work) -> Result<(), String> {
    while job.tracker.len() > 0 {
        let Some(facts) = work.facts.upgrade() else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        let asked = facts.send(Fact::Command(Box::new(Command::Withdraw(Arc::clone(&job.tracker), reply)))).await;
        drop(facts);
        if asked.is_err() || answer.await.is_err() {
            return Ok(());
        }
        if job.tracker.len() > 0 {
            job.tracker.changed.notified().await;
        }
    }
    {
        let mut course = job.course.lock();
        course.next.clear();
        if course.standing == Standing::Running {
            course.standing = Standing::Done;
            course.ended = Some(work.clock.now().wall);
            // What another replay or a person had requeued first has a new place that this list does not come to.
            job.tracker.count(|tally| tally.missed += job.terms.planned.saturating_sub(tally.ended()));
        }
    }
    work.replays.note().await?;
    let (number, standing) = (job.terms.number, job.standing().as_str());
    let Tally { requeued, delivered, dead, retrying, withdrawn, missed } = job.tracker.tally();
    tracing::info!(
        audit = true,
        replay = number,
        standing,
        requeued,
        delivered,
        dead,
        retrying,
        withdrawn,
        missed,
        "a replay is over"
    );
    Ok(())
}
