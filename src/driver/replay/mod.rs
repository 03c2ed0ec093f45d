//! Replays: many ended events delivered once more, in bounded batches, over restarts.
//!
//! A replay is a filter and a place in the list of what it finds. Its task ([`job`]) takes the oldest events first, has a few of each group
//! made pending at a time, and writes down what it is about to do before it does it, so that after a crash nothing is replayed twice and
//! nothing is left out: what was requeued has a higher seq than the replay is about. The events themselves go like any others, as replays
//! (R6), in their lanes; those that fail come back to the dead letters with their history.

mod book;
mod filter;
mod job;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

pub use self::book::Standing;
use self::book::{Course, Noted, Place, Terms, Upto};
pub use self::filter::{Filter, Plan};
pub(super) use self::job::{Work, run};
pub(super) use self::tracker::{End, Out};
pub use self::tracker::{Tally, Tracker};
use super::command::Command;
use super::removal::Target;
use super::run::was_of;
use super::{Ended, Handle};
use crate::engine::Removal;
use crate::event::{Group, Mono, Now, Wall};
use crate::store::notebook::Notebook;
use crate::store::{Error, LaneStore, Record, Status};

/// Replays that are not over. Each has some events of many groups under way.
pub const UNFINISHED_MAX: usize = 4;

/// Replays that are over and still shown.
const FINISHED_MAX: usize = 100;

/// Groups of a replay that a view names as those with most events under way.
const NAMED_MAX: usize = 5;

/// All replays that are known.
pub(super) struct Replays {
    notebook: Notebook,
    jobs: Mutex<BTreeMap<u64, Arc<Replay>>>,
    writing: tokio::sync::Mutex<()>,
}

/// One replay.
pub(super) struct Replay {
    terms: Terms,
    course: Mutex<Course>,
    tracker: Arc<Tracker>,
    /// Since when this process works on it, and how many had ended by then.
    since: (Mono, u64),
    /// Events that were about to be requeued when the process died, and were not.
    again: Mutex<Vec<Record>>,
}

/// A replay as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayView {
    /// Its number.
    pub number: u64,
    /// Where it stands.
    pub standing: Standing,
    /// What it is about.
    pub filter: Filter,
    /// When it was begun, and when it was over.
    pub created: Wall,
    /// See `created`.
    pub ended: Option<Wall>,
    /// Events that it found when it was begun.
    pub planned: u64,
    /// What became of them so far.
    pub tally: Tally,
    /// Events in their lanes, or in flight for the first time since.
    pub under_way: usize,
    /// The groups with most of those.
    pub waiting: Vec<(Group, usize)>,
    /// Events of which it is not known yet what becomes of them, at most: some may not be there when their turn comes.
    pub left: u64,
    /// Events a second that had their attempt, since this process works on it.
    pub rate: f64,
}

/// Why there is no such replay, or it cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReplay {
    /// Too many are not over.
    #[error("{UNFINISHED_MAX} replays are not over: cancel one, or wait")]
    TooMany,
    /// It is not known.
    #[error("there is no replay {0}")]
    Unknown(u64),
    /// It is over.
    #[error("replay {number} is {} already", standing.as_str())]
    Over {
        /// Which.
        number: u64,
        /// How it ended.
        standing: Standing,
    },
    /// It could not be written down, or the store could not be read.
    #[error("{0}")]
    Failed(String),
    /// The driver has ended.
    #[error(transparent)]
    Gone(#[from] Ended),
}

impl From<Error> for NoReplay {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Replays {
    /// What `notebook` remembers.
    pub(super) fn open(notebook: Notebook, now: Mono) -> Result<Arc<Self>, String> {
        let bytes = notebook.read()?;
        let wrong = |what: &str| format!("{notebook}: {what}; remove the file to begin without them");
        let noted: Vec<Noted> = if bytes.is_empty() {
            Vec::new()
        } else {
            serde_json::from_slice(&bytes).map_err(|error| wrong(&error.to_string()))?
        };
        let jobs = noted.into_iter().map(|noted| {
            let number = noted.number;
            let (terms, course, tally) = noted.read()?;
            Some((number, Arc::new(Replay::new(terms, course, tally, now))))
        });
        let jobs = jobs.collect::<Option<_>>().ok_or_else(|| wrong("a replay in it cannot be read"))?;
        Ok(Arc::new(Self { notebook, jobs: Mutex::new(jobs), writing: tokio::sync::Mutex::new(()) }))
    }

    /// Those that something is left to do for.
    pub(super) fn unfinished(&self) -> Vec<Arc<Replay>> {
        self.jobs.lock().values().filter(|job| !job.is_finished()).cloned().collect()
    }

    fn get(&self, number: u64) -> Result<Arc<Replay>, NoReplay> {
        self.jobs.lock().get(&number).cloned().ok_or(NoReplay::Unknown(number))
    }

    /// Takes up a new one.
    fn add(
        &self,
        number: u64,
        filter: Filter,
        (upto, planned): (Upto, u64),
        now: Now,
    ) -> Result<Arc<Replay>, NoReplay> {
        let mut jobs = self.jobs.lock();
        if jobs.values().filter(|job| !job.standing().is_over()).count() >= UNFINISHED_MAX {
            return Err(NoReplay::TooMany);
        }
        // Of two that were begun at the same time the later one gives way.
        let next = jobs.keys().next_back().map_or(1, |last| last + 1);
        let number = if jobs.contains_key(&number) { next } else { number };
        let terms = Terms { number, filter, created: now.wall, upto, planned };
        let course = Course {
            standing: Standing::Running,
            ended: None,
            place: Place::default(),
            out: Vec::new(),
            next: Vec::new(),
        };
        let job = Arc::new(Replay::new(terms, course, Tally::default(), now.mono));
        jobs.insert(number, Arc::clone(&job));
        let over: Vec<u64> = jobs.iter().filter(|(_, job)| job.is_finished()).map(|(number, _)| *number).collect();
        for number in over.iter().take(over.len().saturating_sub(FINISHED_MAX)) {
            jobs.remove(number);
        }
        Ok(job)
    }

    /// The highest number that was ever given here.
    fn last(&self) -> u64 {
        self.jobs.lock().keys().next_back().copied().unwrap_or(0)
    }

    fn forget(&self, number: u64) {
        self.jobs.lock().remove(&number);
    }

    /// Writes all of them down; durable when this resolves.
    async fn note(&self) -> Result<(), String> {
        let _one_at_a_time = self.writing.lock().await;
        let noted: Vec<Noted> = self.jobs.lock().values().map(|job| job.noted()).collect();
        let notebook = self.notebook.clone();
        let written = spawn_blocking(move || {
            let bytes = serde_json::to_vec(&noted).map_err(|error| error.to_string())?;
            notebook.write(&bytes)
        });
        written.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl Replay {
    fn new(terms: Terms, course: Course, tally: Tally, now: Mono) -> Self {
        Self {
            terms,
            course: Mutex::new(course),
            tracker: Arc::new(Tracker::from(tally)),
            since: (now, tally.ended()),
            again: Mutex::default(),
        }
    }

    pub(super) fn tracker(&self) -> &Arc<Tracker> {
        &self.tracker
    }

    fn standing(&self) -> Standing {
        self.course.lock().standing
    }

    /// Whether nothing is left to do for it.
    fn is_finished(&self) -> bool {
        let course = self.course.lock();
        let left = course.out.len() + course.next.len() + self.tracker.len();
        course.standing.is_over() && left == 0
    }

    fn noted(&self) -> Noted {
        let mut course = self.course.lock().clone();
        course.out = self.tracker.out().iter().map(|out| (out.id, out.was)).collect();
        course.next.extend(self.again.lock().iter().map(|record| (record.id, record.status)));
        Noted::of(&self.terms, &course, self.tracker.tally())
    }

    fn view(&self, now: Mono) -> ReplayView {
        let course = self.course.lock();
        let tally = self.tracker.tally();
        let (since, before) = self.since;
        let elapsed = now.since(since).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "shown, not computed with")]
        let rate = if elapsed > 0.0 { (tally.ended() - before) as f64 / elapsed } else { 0.0 };
        let under_way = self.tracker.len();
        // The whole list has been looked at: what was not met in it never will be.
        let met = course.place.through && course.place.parked.is_empty() && course.next.is_empty();
        let left = match () {
            () if course.standing.is_over() || met && self.again.lock().is_empty() => under_way as u64,
            () => self.terms.planned.saturating_sub(tally.ended()),
        };
        ReplayView {
            number: self.terms.number,
            standing: course.standing,
            filter: self.terms.filter.clone(),
            created: self.terms.created,
            ended: course.ended,
            planned: self.terms.planned,
            tally,
            under_way,
            waiting: self.tracker.most(NAMED_MAX),
            left,
            rate,
        }
    }

    /// Finds out what became of the events that were under way when the process before this one ended. Gives those that still are, for the
    /// driver to follow.
    pub(super) async fn resume(&self, store: &dyn LaneStore) -> Result<Vec<Out>, Error> {
        let (out, next) = {
            let mut course = self.course.lock();
            (std::mem::take(&mut course.out), std::mem::take(&mut course.next))
        };
        let known = out.into_iter().map(|(id, was)| (id, was, true));
        for (id, was, counted) in known.chain(next.into_iter().map(|(id, was)| (id, was, false))) {
            let Some(record) = store.find(id).await?.map(|story| story.record) else {
                self.tracker.count(|tally| tally.missed += 1);
                continue;
            };
            if self.terms.upto.has(record.seq) {
                self.again.lock().push(record);
                continue;
            }
            self.tracker.count(|tally| {
                tally.requeued += u64::from(!counted);
                match record.status {
                    // Attempts count anew from its requeue: without one it was taken back, and stands as it had ended before.
                    status if !status.is_pending() && record.attempts == 0 => tally.withdrawn += 1,
                    Status::Delivered => tally.delivered += 1,
                    Status::Dead => tally.dead += 1,
                    Status::InFlight | Status::Retrying => tally.retrying += 1,
                    Status::Suppressed | Status::Discarded => tally.withdrawn += 1,
                    Status::Queued => {}
                }
            });
            if record.status == Status::Queued {
                let Record { seq, lane, source, reason, .. } = record;
                self.tracker.resume(Out { id, seq, lane, source, was, reason });
            }
        }
        Ok(self.tracker.out())
    }
}

impl Handle {
    /// Begins to replay what `filter` finds now. It is remembered before this resolves, and goes on over restarts.
    ///
    /// # Errors
    /// Why it was not begun.
    pub async fn start_replay(&self, filter: Filter) -> Result<ReplayView, NoReplay> {
        let upto = Upto(self.shared.store.newest().await?);
        let planned = self.count_replay(&filter, &upto).await?;
        let (now, replays) = (self.now(), &self.shared.replays);
        let number = self.shared.next_number("replays", replays.last()).await.map_err(NoReplay::Failed)?;
        let job = replays.add(number, filter, (upto, planned), now)?;
        if let Err(why) = replays.note().await {
            replays.forget(job.terms.number);
            return Err(NoReplay::Failed(why));
        }
        self.ask(|reply| Command::Replay(Arc::clone(&job), reply)).await?;
        Ok(job.view(now.mono))
    }

    /// All replays that are known, the newest first.
    #[must_use]
    pub fn replays(&self) -> Vec<ReplayView> {
        let now = self.now().mono;
        self.shared.replays.jobs.lock().values().rev().map(|job| job.view(now)).collect()
    }

    /// One replay.
    ///
    /// # Errors
    /// It is not known.
    pub fn replay_view(&self, number: u64) -> Result<ReplayView, NoReplay> {
        Ok(self.shared.replays.get(number)?.view(self.now().mono))
    }

    /// Lets a replay wait, or go on. What it has under way goes on in either case.
    ///
    /// # Errors
    /// It is not known, is over, or could not be written down.
    pub async fn pause_replay(&self, number: u64, paused: bool) -> Result<ReplayView, NoReplay> {
        let standing = if paused { Standing::Paused } else { Standing::Running };
        self.set_standing(number, standing).await
    }

    /// Ends a replay. Events that it has in lanes are taken back, on other nodes too; those in flight end as they end; all others stay as
    /// they are. With it, what could not be taken back, in words: those are delivered.
    ///
    /// # Errors
    /// It is not known, is over, or could not be written down.
    pub async fn cancel_replay(&self, number: u64) -> Result<(ReplayView, Option<String>), NoReplay> {
        let view = self.set_standing(number, Standing::Cancelled).await?;
        let job = self.shared.replays.get(number)?;
        self.ask(|reply| Command::Withdraw(Arc::clone(&job.tracker), reply)).await?;
        Ok((view, self.withdraw_there(&job.tracker).await))
    }

    /// Has other nodes take back what a replay has in lanes of theirs.
    async fn withdraw_there(&self, tracker: &Tracker) -> Option<String> {
        let mut left: Option<String> = None;
        for was in [Status::Delivered, Status::Dead, Status::Discarded] {
            let out = tracker.out().into_iter().filter(|out| out.was == was).map(Target::of_replay).collect();
            let (_here, there) = self.shared.sorted(out);
            for (section, targets) in there {
                let (shard, count) = (section, targets.len());
                let removal = Removal::Withdraw(was_of(was));
                if let Err(why) = self.shared.remove_there(section, targets, removal).await {
                    tracing::warn!(shard, count, why, "events of a replay that was cancelled could not be taken back");
                    left = Some(format!(
                        "events in lanes of another node could not be taken back and are delivered: {why}"
                    ));
                }
            }
        }
        left
    }

    async fn set_standing(&self, number: u64, standing: Standing) -> Result<ReplayView, NoReplay> {
        let job = self.shared.replays.get(number)?;
        let before = {
            let mut course = job.course.lock();
            if course.standing.is_over() {
                return Err(NoReplay::Over { number, standing: course.standing });
            }
            let before = (course.standing, course.ended);
            course.standing = standing;
            course.ended = standing.is_over().then(|| self.now().wall);
            before
        };
        if let Err(why) = self.shared.replays.note().await {
            let mut course = job.course.lock();
            (course.standing, course.ended) = before;
            return Err(NoReplay::Failed(why));
        }
        job.tracker.changed.notify_one();
        Ok(job.view(self.now().mono))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::driver::tests::event;
    use crate::event::Seq;
    use crate::store::memory::Memory;
    use crate::store::{Settlement, Verdict};

    async fn settle(store: &Memory, seq: u64, verdicts: &[Verdict]) {
        for verdict in verdicts {
            let settlement = Settlement { seq: Seq(seq), at: Wall(9), verdict: verdict.clone(), attempt: None };
            store.settle(vec![settlement]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_was_taken_back_before_a_kill_did_not_have_an_attempt() {
        let store = Memory::new(Arc::new(TestClock::at(Wall(1))));
        let dead = Verdict::Dead("gone".into());
        let ends = [(Status::Delivered, Verdict::Delivered), (Status::Dead, dead.clone())];
        let mut out = Vec::new();
        for number in 1..=4_u8 {
            let event = event(number, 1);
            let (was, verdict) = ends[usize::from(number) / 3].clone();
            out.push((event.id, was));
            store.append(vec![Arc::new(event)]).await.unwrap();
            settle(&store, number.into(), &[Verdict::Begun, verdict]).await;
        }
        store.requeue((1..=4).map(Seq).collect(), Wall(9)).await.unwrap();
        // Two had an attempt, and two were taken back: they stand as they had ended before.
        settle(&store, 5, &[Verdict::Begun, Verdict::Delivered]).await;
        settle(&store, 6, &[Verdict::Delivered]).await;
        settle(&store, 7, &[Verdict::Begun, dead.clone()]).await;
        settle(&store, 8, &[dead]).await;
        let terms =
            Terms { number: 1, filter: Filter::default(), created: Wall(9), upto: Upto(vec![Seq(4)]), planned: 4 };
        let course = Course { standing: Standing::Cancelled, ended: None, place: Place::default(), out, next: vec![] };
        let replay = Replay::new(terms, course, Tally { requeued: 4, ..Tally::default() }, Mono(0));
        assert_eq!(replay.resume(&store).await.unwrap().len(), 0);
        let tally = Tally { requeued: 4, delivered: 1, dead: 1, withdrawn: 2, ..Tally::default() };
        assert_eq!(replay.tracker.tally(), tally);
    }
}
