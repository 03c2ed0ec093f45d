//! Storing: at the remote while it takes events, else in the spool.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Spooled, outer};
use crate::event::{Event, Seq};
use crate::store::{Appended, Error, LaneStore as _, Refusal, Repeat};

/// Events of a batch with their numbers in it.
type Numbered = Vec<(usize, Arc<Event>)>;

/// What became of each event of a batch, by its number in it.
struct Answers {
    places: Vec<Result<Seq, Refusal>>,
    repeats: Vec<Repeat>,
}

impl Answers {
    fn put(&mut self, number: usize, place: Result<Seq, Refusal>) {
        if let Some(slot) = self.places.get_mut(number) {
            *slot = place;
        }
    }

    /// Takes over what the remote says of events; gives those of which it said nothing.
    fn take(&mut self, tried: Numbered, appended: &Appended) -> Numbered {
        let mut left = Vec::new();
        for (at, (number, event)) in tried.into_iter().enumerate() {
            let place = appended.place(at);
            self.put(number, place);
            self.repeats.extend(appended.repeat(at).map(|of| Repeat { number, of }));
            // What waits for its group to move is taken here as well.
            if is_unanswered(place) || place == Err(Refusal::Moving) {
                left.push((number, event));
            }
        }
        left
    }

    fn appended(mut self) -> Appended {
        self.repeats.sort_by_key(|repeat| repeat.number);
        let first = self.places.iter().find_map(|place| place.as_ref().ok().copied()).unwrap_or_default();
        Appended { first, repeats: self.repeats, places: self.places }
    }
}

impl Spooled {
    pub(super) async fn append_batch(&self, batch: Vec<Arc<Event>>) -> Result<Appended, Error> {
        if batch.is_empty() {
            return self.ask(self.settings.deadline, self.remote.append(batch)).await;
        }
        if *self.closed.borrow() {
            return Err(Error::Unavailable("it is closed".into()));
        }
        // Whatever is not answered below.
        let mut answers = Answers { places: vec![Err(Refusal::Unavailable); batch.len()], repeats: Vec::new() };
        let (tried, mut left) = self.split(batch);
        if !tried.is_empty() {
            let events: Vec<Arc<Event>> = tried.iter().map(|(_, event)| Arc::clone(event)).collect();
            let appended = self.append_there(&events, self.settings.deadline).await?;
            let is_answered =
                |at: usize| !is_unanswered(appended.place(at)) && appended.place(at) != Err(Refusal::Moving);
            if left.is_empty() && (0..events.len()).all(is_answered) {
                return Ok(appended);
            }
            left.extend(answers.take(tried, &appended));
            left.sort_by_key(|(number, _)| *number);
        }
        // With an order key it would come behind what another node takes meanwhile: such an event stays refused.
        left.retain(|(_, event)| event.order.is_none());
        if !left.is_empty() {
            self.store_here(left, &mut answers).await?;
        }
        Ok(answers.appended())
    }

    /// Events whose part of the remote is there, and the others.
    fn split(&self, batch: Vec<Arc<Event>>) -> (Numbered, Numbered) {
        let (standing, now) = (self.standing.lock(), self.now());
        batch.into_iter().enumerate().partition(|(_, event)| standing.takes(self.part(event), now))
    }

    /// Has the remote store events, which it may take `patience` for, and takes note of how its parts stand. What it says of the batch as
    /// a whole is said of each event.
    pub(super) async fn append_there(&self, events: &[Arc<Event>], patience: Duration) -> Result<Appended, Error> {
        let all = |refusal| Appended { places: vec![Err(refusal); events.len()], ..Appended::from(Seq(0)) };
        let appended = match tokio::time::timeout(patience, self.remote.append(events.to_vec())).await {
            Ok(Ok(appended)) => appended,
            Ok(Err(Error::Full(_))) => all(Refusal::Full),
            Ok(Err(Error::Unavailable(reason))) => {
                tracing::debug!(reason, "the store did not take a batch");
                all(Refusal::Unavailable)
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => all(Refusal::Unknown),
        };
        self.stand(events, &appended);
        Ok(appended)
    }

    fn stand(&self, events: &[Arc<Event>], appended: &Appended) {
        let (mut took, mut failed) = (BTreeSet::new(), BTreeSet::new());
        for (number, event) in events.iter().enumerate() {
            let parts = if is_unanswered(appended.place(number)) { &mut failed } else { &mut took };
            parts.insert(self.part(event));
        }
        if !took.is_empty() {
            self.heard();
        }
        let (silent, now) = (self.is_silent(self.settings.deadline), self.now());
        let mut standing = self.standing.lock();
        for part in took {
            standing.took(part);
        }
        for part in failed {
            // Longer than until the mover tries it, who comes first where it has events of that part.
            standing.failed(part, now, self.settings.pause * 2);
        }
        if silent {
            // One batch has waited in vain; those of other parts do not have to.
            standing.silent(now, self.settings.pause * 2);
        }
    }

    /// Stores events in the spool, where there is one.
    async fn store_here(&self, left: Numbered, answers: &mut Answers) -> Result<(), Error> {
        let Some(local) = &self.local else { return Ok(()) };
        let events: Vec<Arc<Event>> = left.iter().map(|(_, event)| Arc::clone(event)).collect();
        let count = events.len() as u64;
        let refusal = match local.append(events).await {
            Ok(appended) => {
                for (at, (number, _)) in left.into_iter().enumerate() {
                    answers.put(number, appended.place(at).map(outer));
                }
                self.spooled(count);
                return Ok(());
            }
            Err(Error::Full(_)) => Refusal::SpoolFull,
            Err(Error::Unavailable(_)) => Refusal::Unavailable,
            // The process ends; what the remote has taken of this batch is there.
            Err(error) => return Err(error),
        };
        for (number, _) in left {
            answers.put(number, Err(refusal));
        }
        Ok(())
    }

    fn spooled(&self, count: u64) {
        self.metrics.spooled.inc_by(count);
        if self.standing.lock().begins_to_spool() {
            tracing::warn!(
                "the store does not answer: events are kept in the spool of this node and go to it when it does"
            );
        }
    }

    /// The part of the remote that an event lies in.
    pub(super) fn part(&self, event: &Event) -> u16 {
        (self.part_of)(&event.lane.group)
    }
}

/// Whether the remote took no stand on an event.
fn is_unanswered(place: Result<Seq, Refusal>) -> bool {
    matches!(place, Err(Refusal::Unavailable | Refusal::Unknown))
}
