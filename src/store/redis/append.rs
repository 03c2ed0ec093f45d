//! Appending: a batch is taken apart by shards, and put together again as one answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::Redis;
use super::layout::{self, strange};
use super::scripts::APPEND;
use super::shard::Shard;
use crate::event::{Event, EventId, Seq};
use crate::store::record;
use crate::store::{Appended, Error, Refusal, Repeat};

/// Events of one script at most: so many are written in a millisecond or two, in which Redis does nothing else.
const EVENTS_MAX: usize = 1_000;
/// An event whose group is about to be in another shard is tried again after this long, which is about what the rest of a move takes …
const WAIT: Duration = Duration::from_millis(5);
/// … and so often, each step from shard to shard counted as well. Everybody's events of the batch wait with it.
const TURNS_MAX: usize = 12;
/// Longest body: Redis takes values of half a gigabyte.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Bytes of one answer about an event.
const ANSWER_BYTES: usize = 23;

/// What became of one event.
#[derive(Clone, Copy)]
enum Fate {
    Stored(Seq),
    Repeats(Seq, EventId),
    Refused(Refusal),
    /// Its group is in another shard.
    Moved(Shard),
    /// Its group will be in a moment.
    Moving,
}

impl Redis {
    pub(super) async fn append_batch(&self, batch: Vec<Arc<Event>>) -> Result<Appended, Error> {
        self.admission.append()?;
        batch.iter().try_for_each(|event| check(event)).map_err(Error::Unavailable)?;
        if batch.is_empty() {
            return self.next_seq().await.map(Appended::from);
        }
        let mut fates: Vec<Result<Fate, Error>> = Vec::new();
        fates.resize_with(batch.len(), || Err(Error::Unavailable("not tried".into())));
        let mut open: Vec<usize> = (0..batch.len()).collect();
        for _ in 0..TURNS_MAX {
            self.append_once(&open, &batch, &mut fates).await;
            let (moved, waits) = self.follow(&batch, &fates);
            if moved.is_empty() && waits.is_empty() {
                break;
            }
            if !waits.is_empty() {
                tokio::time::sleep(WAIT).await;
            }
            open = moved;
            open.extend(waits);
            open.sort_unstable();
        }
        answer(fates)
    }

    /// Events whose group has moved, each with where to known from now on; and those whose group is about to.
    fn follow(&self, batch: &[Arc<Event>], fates: &[Result<Fate, Error>]) -> (Vec<usize>, Vec<usize>) {
        let (mut moved, mut waits) = (Vec::new(), Vec::new());
        for (number, (event, fate)) in batch.iter().zip(fates).enumerate() {
            match fate {
                Ok(Fate::Moved(to)) => {
                    self.learn(&event.lane.group, *to);
                    moved.push(number);
                }
                Ok(Fate::Moving) => waits.push(number),
                _ => {}
            }
        }
        (moved, waits)
    }

    /// Has each shard store its events of these numbers, in their order, and notes what became of them.
    async fn append_once(&self, open: &[usize], batch: &[Arc<Event>], fates: &mut [Result<Fate, Error>]) {
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (number, event) in open.iter().filter_map(|number| Some((*number, batch.get(*number)?))) {
            shards.entry(self.shard_of(&event.lane.group)).or_default().push(number);
        }
        // Pieces of one shard go one after another, so that its events keep their order.
        let mut pieces: BTreeMap<Shard, _> =
            shards.iter().map(|(shard, all)| (*shard, all.chunks(EVENTS_MAX))).collect();
        loop {
            let round: Vec<(Shard, &[usize])> =
                pieces.iter_mut().filter_map(|(shard, chunks)| Some((*shard, chunks.next()?))).collect();
            if round.is_empty() {
                return;
            }
            let calls = round.iter().map(|(shard, numbers)| self.append_call(*shard, numbers, batch)).collect();
            for ((shard, numbers), answer) in round.iter().zip(self.run(calls).await) {
                let told = answer.and_then(|answer| self.fates(*shard, numbers.len(), answer));
                if told.is_err() {
                    // What comes after it may not overtake it.
                    pieces.remove(shard);
                }
                set(fates, shards.get(shard).map_or(numbers, Vec::as_slice), numbers, told);
            }
        }
    }

    fn append_call(&self, shard: Shard, numbers: &[usize], batch: &[Arc<Event>]) -> super::link::Call {
        let epoch = self.local(shard).and_then(super::local::Local::epoch).map_or(0, |epoch| epoch.0);
        let mut call = self.script(shard, &APPEND).durable().arg(epoch).arg(&*self.channel).arg(shard.0);
        for event in numbers.iter().filter_map(|number| batch.get(*number)) {
            let (head, rest) = (layout::head(event), layout::rest(event));
            call = call.arg(self.needed(event, head.len() + rest.len())).arg(head).arg(rest);
        }
        call
    }

    /// What the script needs of an event.
    fn needed(&self, event: &Event, bytes: usize) -> Vec<u8> {
        let cap = self.caps.read().as_ref().and_then(|caps| caps(&event.lane.group));
        let cap = cap.map_or(-1.0, |cap| layout::time(crate::event::Wall(cap)));
        let mut out = Vec::with_capacity(160);
        out.extend_from_slice(&event.id.0);
        out.extend_from_slice(&cap.to_le_bytes());
        match event.fingerprint {
            None => out.push(0),
            Some(fingerprint) => {
                out.push(1);
                out.extend_from_slice(&fingerprint.hash);
                out.extend_from_slice(&layout::time(event.received.plus(fingerprint.window)).to_le_bytes());
                // By Redis's own clock, from now: never earlier than the window's end.
                let lasts = fingerprint.window.as_secs_f64().mul_add(1_000.0, 1.0).ceil().min(MARK_MS_MAX);
                out.extend_from_slice(&lasts.to_le_bytes());
            }
        }
        layout::put_fresh(&mut out, event, u32::try_from(bytes).unwrap_or(u32::MAX));
        out
    }

    fn fates(&self, shard: Shard, count: usize, answer: Value) -> Result<Vec<Fate>, Error> {
        let [fates, last, told] = layout::exactly(answer, "an append")?;
        let (fates, told) = (layout::bytes(fates)?, layout::bytes(told)?);
        drop(last);
        let (answers, rest) = fates.as_chunks::<ANSWER_BYTES>();
        if answers.len() != count || !rest.is_empty() {
            return Err(strange("an append"));
        }
        let fates: Vec<Fate> = answers.iter().map(|answer| fate(shard, answer)).collect::<Result<_, _>>()?;
        if let Some(local) = self.local(shard) {
            let mut sums = local.sums.lock();
            sums.learn(&told)?;
            sums.history += fates.iter().filter(|fate| matches!(fate, Fate::Repeats(..))).count() as u64;
            if local.epoch().is_some() {
                self.woken.tell(shard);
            }
        }
        Ok(fates)
    }

    /// The next free seq of the first shard.
    async fn next_seq(&self) -> Result<Seq, Error> {
        let shard = Shard(0);
        let answer = self.one(self.append_call(shard, &[], &[])).await?;
        let [_, last, _] = layout::exactly(answer, "an append")?;
        Ok(shard.seq(layout::number(&layout::bytes(last)?)? + 1))
    }
}

/// A mark that is kept longer than a year by its window is kept for a year: nothing repeats after that.
const MARK_MS_MAX: f64 = 366.0 * 86_400_000.0;

fn check(event: &Event) -> Result<(), String> {
    record::check(event)?;
    if event.body.len() > BODY_BYTES_MAX {
        let length = event.body.len();
        return Err(format!("event {}: a body of {length} bytes; Redis takes up to {BODY_BYTES_MAX}", event.id));
    }
    Ok(())
}

fn fate(shard: Shard, answer: &[u8; ANSWER_BYTES]) -> Result<Fate, Error> {
    let (kind, rest) = answer.split_at(1);
    let (number, id) = rest.split_at(6);
    let seq = shard.seq(layout::number(number)?);
    match (kind, layout::id(id)) {
        (b"S", _) => Ok(Fate::Stored(seq)),
        (b"D", Some(of)) => Ok(Fate::Repeats(seq, of)),
        (b"B", _) => Ok(Fate::Refused(Refusal::Backlog)),
        (b"M", _) => super::moves::shard(Shard::of(seq).1).map(Fate::Moved),
        (b"W", _) => Ok(Fate::Moving),
        _ => Err(strange("an append")),
    }
}

/// Notes what became of a piece; where it failed, of all behind it in its shard as well.
fn set(fates: &mut [Result<Fate, Error>], all: &[usize], piece: &[usize], told: Result<Vec<Fate>, Error>) {
    match told {
        Ok(told) => {
            for (number, fate) in piece.iter().zip(told) {
                if let Some(place) = fates.get_mut(*number) {
                    *place = Ok(fate);
                }
            }
        }
        Err(error) => {
            let first = piece.first().copied().unwrap_or(0);
            for number in all.iter().filter(|number| **number >= first) {
                if let Some(place) = fates.get_mut(*number) {
                    *place = Err(error.clone());
                }
            }
        }
    }
}

/// The answer to a batch. One of which no shard took anything fails as a whole.
fn answer(fates: Vec<Result<Fate, Error>>) -> Result<Appended, Error> {
    if let Some(Err(error)) = fates.first()
        && fates.iter().all(Result::is_err)
    {
        return Err(error.clone());
    }
    let mut appended = Appended::from(Seq(0));
    for (number, fate) in fates.into_iter().enumerate() {
        appended.places.push(match fate {
            Ok(Fate::Stored(seq)) => Ok(seq),
            Ok(Fate::Repeats(seq, of)) => {
                appended.repeats.push(Repeat { number, of });
                Ok(seq)
            }
            Ok(Fate::Refused(refusal)) => Err(refusal),
            Ok(Fate::Moved(_) | Fate::Moving) => Err(Refusal::Moving),
            Err(Error::Full(_)) => Err(Refusal::Full),
            Err(_) => Err(Refusal::Unavailable),
        });
    }
    appended.first = appended.places.iter().find_map(|place| place.ok()).unwrap_or_default();
    let follow = |(place, seq): (&Result<Seq, Refusal>, u64)| *place == Ok(Seq(seq));
    if appended.places.iter().zip(appended.first.0..).all(follow) {
        appended.places.clear();
    }
    Ok(appended)
}
