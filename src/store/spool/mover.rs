//! Moving: what is in the spool goes to the remote as soon as it answers, in order, and is struck out here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Spooled;
use super::course::Held;
use super::embedded::Embedded;
use crate::event::{Event, Seq};
use crate::store::{Appended, Error, LaneStore as _, Query, Refusal, Settlement, Status, Verdict};

/// Events, and bytes of bodies, that move at once. New events share the way with them, so they are few.
const EVENTS: usize = 500;
const BYTES: u64 = 4 << 20;

/// Held events that are tried at once.
const EVENTS_TRIED: usize = 64;

/// Nobody waits for a move; it may take as long as a slow failover.
const PATIENCE: Duration = Duration::from_secs(5);

/// When the remote has answered nobody for this long it is asked for something, so that it is known whether it does.
const SILENCE: Duration = Duration::from_secs(1);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another step, at once.
    Step,
    /// Nothing for so long.
    Rest(Duration),
}

/// An event of the spool, by its seq there.
type Spooling = (Seq, Arc<Event>);

impl Spooled {
    /// Moves what is in the spool, and watches whether the remote answers, until the store is closed.
    pub async fn run(self: Arc<Self>) {
        let mut closed = self.closed.subscribe();
        let work = async {
            loop {
                if let Next::Rest(pause) = self.step().await {
                    tokio::time::sleep(pause).await;
                }
            }
        };
        tokio::select! {
            // An error says that the store is gone.
            _ = closed.wait_for(|closed| *closed) => {}
            () = work => {}
        }
    }

    async fn step(&self) -> Next {
        let answers = self.probe().await;
        let Some(local) = &self.local else { return Next::Rest(SILENCE) };
        if local.usage().pending == 0 {
            self.course.lock().emptied();
            if self.standing.lock().ends_to_spool() {
                tracing::info!("the spool is empty: the store has every event that was in it");
            }
            return Next::Rest(SILENCE);
        }
        if !answers {
            return Next::Rest(self.settings.pause);
        }
        match self.move_some(local).await {
            Ok(next) => next,
            Err(error) => {
                tracing::debug!(%error, "events stay in the spool");
                Next::Rest(self.settings.pause)
            }
        }
    }

    /// Whether the remote is there; it is asked when it has answered nobody of late.
    async fn probe(&self) -> bool {
        if self.is_silent(SILENCE) {
            let read = self.ask(self.settings.deadline, self.remote.read(vec![Seq(1)])).await;
            if let Err(Error::Unavailable(_)) = read {
                // Until the next probe has failed too.
                self.standing.lock().silent(self.now(), (SILENCE + self.settings.pause + self.settings.deadline) * 2);
                return false;
            }
        }
        self.standing.lock().answers();
        true
    }

    async fn move_some(&self, local: &Embedded) -> Result<Next, Error> {
        let now = self.now();
        let due = self.course.lock().due(now, EVENTS_TRIED);
        if !due.is_empty() {
            return self.try_held(local, due).await;
        }
        let rest = Next::Rest(self.course.lock().rests(now).unwrap_or(SILENCE).min(SILENCE));
        let Some(behind) = self.course.lock().behind() else { return Ok(rest) };
        let (batch, came_to) = self.next_batch(local, behind).await?;
        if batch.is_empty() {
            let Some(came_to) = came_to else { return Ok(rest) };
            self.course.lock().came_to(came_to);
            return Ok(Next::Step);
        }
        self.move_batch(local, &batch).await?;
        if let Some(came_to) = came_to {
            self.course.lock().came_to(came_to);
        }
        Ok(Next::Step)
    }

    /// The next events that nothing holds, and up to where that is all; nothing where the spool ends.
    async fn next_batch(&self, local: &Embedded, behind: Seq) -> Result<(Vec<Spooling>, Option<Seq>), Error> {
        let query = Query {
            status: vec![Status::Queued],
            oldest_first: true,
            behind: Some(behind),
            limit: EVENTS,
            ..Query::default()
        };
        let page = local.list(query).await?;
        let (mut seqs, mut bytes, mut looked, mut whole) = (Vec::new(), 0, None, true);
        for record in &page.records {
            let group = &record.lane.group;
            if !self.course.lock().holds((self.part_of)(group), group, record.seq) {
                bytes += u64::from(record.body_bytes);
                if !seqs.is_empty() && bytes > BYTES {
                    whole = false;
                    break;
                }
                seqs.push(record.seq);
            }
            looked = Some(record.seq);
        }
        let came_to = if whole { looked.max(page.next) } else { looked };
        Ok((read(local, seqs).await?, came_to))
    }

    /// One event of each thing that is held; what is taken goes on.
    async fn try_held(&self, local: &Embedded, due: Vec<(Held, Seq)>) -> Result<Next, Error> {
        let seqs: BTreeSet<Seq> = due.iter().map(|(_, seq)| *seq).collect();
        let batch = read(local, seqs.into_iter().collect()).await?;
        let moved = self.move_batch(local, &batch).await?;
        let mut course = self.course.lock();
        for (what, seq) in due {
            // One that cannot be read holds nobody.
            if moved.contains(&seq) || !batch.iter().any(|(read, _)| *read == seq) {
                course.let_go(&what);
            }
        }
        Ok(Next::Step)
    }

    /// Has the remote store a batch, strikes out what it took and holds what it did not. Gives the former.
    async fn move_batch(&self, local: &Embedded, batch: &[Spooling]) -> Result<BTreeSet<Seq>, Error> {
        let events: Vec<Arc<Event>> = batch.iter().map(|(_, event)| Arc::clone(event)).collect();
        {
            let (mut standing, now) = (self.standing.lock(), self.now());
            for event in &events {
                standing.trying(self.part(event), now, PATIENCE + self.settings.pause);
            }
        }
        let appended = self.append_there(&events, PATIENCE).await?;
        let taken = self.sort_out(batch, &appended);
        self.strike_out(local, &taken).await?;
        Ok(taken)
    }

    /// What the remote took of a batch; the rest is held.
    fn sort_out(&self, batch: &[Spooling], appended: &Appended) -> BTreeSet<Seq> {
        let again = self.now().plus(self.settings.pause);
        let mut course = self.course.lock();
        let mut taken = BTreeSet::new();
        for (number, (seq, event)) in batch.iter().enumerate() {
            let what = match appended.place(number) {
                Ok(_) => {
                    taken.insert(*seq);
                    continue;
                }
                Err(Refusal::Backlog | Refusal::GroupTooLarge | Refusal::Moving) => {
                    Held::Group(event.lane.group.clone())
                }
                Err(Refusal::Full | Refusal::SpoolFull | Refusal::Unavailable | Refusal::Unknown) => {
                    Held::Part(self.part(event))
                }
            };
            course.hold(what, *seq, again);
        }
        taken
    }

    /// They are the remote's now.
    async fn strike_out(&self, local: &Embedded, taken: &BTreeSet<Seq>) -> Result<(), Error> {
        if taken.is_empty() {
            return Ok(());
        }
        let at = self.clock.now().wall;
        let settlement = |seq: &Seq| Settlement { seq: *seq, at, verdict: Verdict::Delivered, attempt: None };
        let again = local.settle(taken.iter().map(settlement).collect()).await?;
        self.metrics.spool_moved.inc_by((taken.len() - again) as u64);
        Ok(())
    }
}

/// Events by their seqs. One that cannot be read stays where it is: the embedded store says so in the log, with its place.
async fn read(local: &Embedded, seqs: Vec<Seq>) -> Result<Vec<Spooling>, Error> {
    let events = match local.read(seqs.clone()).await {
        Err(Error::Corrupt(_)) => one_by_one(local, &seqs).await?,
        read => read?,
    };
    Ok(seqs.into_iter().zip(events).filter_map(|(seq, event)| Some((seq, event?))).collect())
}

async fn one_by_one(local: &Embedded, seqs: &[Seq]) -> Result<Vec<Option<Arc<Event>>>, Error> {
    let mut events = Vec::with_capacity(seqs.len());
    for &seq in seqs {
        match local.read(vec![seq]).await {
            Err(Error::Corrupt(_)) => events.push(None),
            read => events.extend(read?),
        }
    }
    Ok(events)
}
