//! A group moves to another shard, because a person pinned it there or took the pin away.
//!
//! The owner of the shard that it leaves moves it, after that shard was given back and taken again with nothing in flight. How far a group
//! has come stands in the shard itself (`:w`), in the step of every write that it concerns, so that no node has to know of it in time and
//! whoever takes the shard over goes on:
//!
//! 1. *Moving*: nobody delivers the group from here. What waits is stored in the other shard, in its order, and then struck out here; what
//!    comes is still stored here, behind it. The other shard's owner delivers what has arrived meanwhile.
//! 2. *Closing*: little is left. What comes now has to wait, for as long as that takes to move: a few round trips.
//! 3. *Gone*: nothing of it is left, and what comes is sent on.
//!
//! So an event is always behind those of its group that were stored before it, and in one shard at a time. A move that was cut short
//! stores events again that had arrived already; by their ids they are still there once.

use redis::Value;

use super::layout::{self, strange, written};
use super::link::Call;
use super::owner::Epoch;
use super::scripts::{ARRIVE, EVENTS, MOVE};
use super::shard::Shard;
use super::{Redis, only};
use crate::event::{Group, Seq, Wall};
use crate::store::{Error, Pending};

/// Events that move at once: one script stores so many in a few milliseconds.
const EVENTS_MAX: usize = 200;
/// Bytes of them, beyond which there are fewer.
const BYTES_MAX: usize = 1 << 20;
/// A group that is sent on from shard to shard this often is followed no further.
const HOPS_MAX: usize = 4;

/// What became of the wish to move a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It is on its way: [`Redis::move_on`] does the rest.
    Begun,
    /// Not now: something of it may be in flight still.
    NotNow,
    /// It has gone before, to there.
    Gone(Shard),
    /// The shard is another owner's.
    Lost,
}

/// A group that is on its way to another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Which.
    pub group: Group,
    /// Where it goes.
    pub to: Shard,
}

/// An event as it is stored: number, state, head, rest, notes.
type Stored = [Vec<u8>; 5];

impl Redis {
    /// Has a group begin to move from a shard that is held and was not taken over yet.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; it may have begun, and asking again tells.
    pub async fn begin_move(&self, held: (Shard, Epoch), group: &Group, to: Shard) -> Result<Move, Error> {
        let call = self.leaving(held, "begin").arg(group.as_str()).arg(to.0);
        match self.one(call).await? {
            Value::Int(1) => Ok(Move::Begun),
            Value::Int(0) => Ok(Move::NotNow),
            Value::Nil => Ok(Move::Lost),
            Value::Array(gone) => {
                let to = gone.first().ok_or_else(|| strange("a move"))?;
                Ok(Move::Gone(shard(layout::count(to)?)?))
            }
            _ => Err(strange("a move")),
        }
    }

    /// Moves all that waits of a group that has begun to; `false` where the shard is another owner's by now, or was emptied. May be called
    /// again whatever became of it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; what has moved is there, and the next call goes on.
    pub async fn move_on(&self, held: (Shard, Epoch), leaving: &Leaving) -> Result<bool, Error> {
        let Leaving { group, to } = leaving;
        let mut closed = false;
        loop {
            let Some(batch) = self.read_leaving(held, group).await? else { return Ok(false) };
            if batch.len() < EVENTS_MAX && !closed {
                // From here on it cannot become more.
                let close = self.leaving(held, "close").arg(group.as_str());
                closed = self.one(close).await? == Value::Int(1);
                if !closed {
                    return Ok(false);
                }
                continue;
            }
            if !batch.is_empty() {
                self.arrive(*to, "move", group, Wall(0), &batch).await?;
                let numbers: Vec<u8> = batch.iter().flat_map(|[number, ..]| number.iter().copied()).collect();
                if self.one(self.leaving(held, "strike").arg(numbers)).await? == Value::Nil {
                    return Ok(false);
                }
                continue;
            }
            // While nothing can be stored here: from then on there may be, and nothing is.
            self.one(self.arrival(*to, "open", group, Wall(0))).await?;
            match self.one(self.leaving(held, "finish").arg(group.as_str())).await? {
                Value::Int(1) => {
                    self.learn(group, *to);
                    return Ok(true);
                }
                Value::Nil => return Ok(false),
                _ => {}
            }
        }
    }

    /// The next events of a group that leaves; `None` where the shard is another owner's.
    async fn read_leaving(&self, held: (Shard, Epoch), group: &Group) -> Result<Option<Vec<Stored>>, Error> {
        let call = self.leaving(held, "read").arg(group.as_str()).arg(EVENTS_MAX).arg(BYTES_MAX);
        let answer = self.one(call).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        layout::parts(answer)?.into_iter().map(stored).collect::<Result<_, _>>().map(Some)
    }

    /// Has a shard store events that come from another one; the answer of the script.
    async fn arrive(&self, to: Shard, how: &str, group: &Group, at: Wall, events: &[Stored]) -> Result<Value, Error> {
        let mut call = self.arrival(to, how, group, at);
        for [_, state, head, rest, notes] in events {
            call = call.arg(&state[..]).arg(&head[..]).arg(&rest[..]).arg(&notes[..]);
        }
        let answer = self.one(call).await?;
        if self.holds(to) {
            self.woken.tell(to);
        }
        Ok(answer)
    }

    /// Makes an ended event of a group that has left its shard pending again where the group is now.
    pub(super) async fn requeue_elsewhere(&self, seq: Seq, mut to: Shard, at: Wall) -> Result<Option<Pending>, Error> {
        let Some((event, group)) = self.ended(seq).await? else { return Ok(None) };
        for _ in 0..HOPS_MAX {
            let answer = self.arrive(to, "requeue", &group, at, std::slice::from_ref(&event)).await?;
            let mut parts = layout::parts(answer)?;
            if let [Value::Int(next)] = parts[..] {
                to = shard(u64::try_from(next).map_err(|_| strange("a move"))?)?;
                continue;
            }
            let rows = layout::rows(to, parts.drain(..).next().ok_or_else(|| strange("an arrival"))?)?;
            let (from, _) = Shard::of(seq);
            let [number, ..] = &event;
            self.one(self.arrival(from, "forget", &group, at).arg(&number[..])).await?;
            return Ok(rows.into_iter().next().flatten().map(|found| found.row.pending()));
        }
        Err(Error::Unavailable(format!("{group} moves from shard to shard; ask again")))
    }

    /// An event as it is stored, and its group.
    async fn ended(&self, seq: Seq) -> Result<Option<(Stored, Group)>, Error> {
        let (shard, number) = Shard::of(seq);
        let number = written(number);
        let read = self.script(shard, &EVENTS).arg("read").arg(&number[..]);
        let [state, head, rest] = layout::exactly(only(self.run(vec![read]).await)?, "an event")?;
        let (state, head, rest) = (layout::bytes(state)?, layout::bytes(head)?, layout::bytes(rest)?);
        if state.is_empty() {
            return Ok(None);
        }
        let row = layout::found(shard, Shard::of(seq).1, &state, &head)?.row;
        let find = self.script(shard, &EVENTS).arg("find").arg(&row.id.0[..]);
        let mut notes = Vec::new();
        for note in layout::parts(self.one(find).await?)?.into_iter().skip(3) {
            let note = layout::bytes(note)?;
            notes.extend_from_slice(&u32::try_from(note.len()).unwrap_or(u32::MAX).to_le_bytes());
            notes.extend_from_slice(&note);
        }
        Ok(Some(([number.to_vec(), state, head, rest, notes], row.lane.group)))
    }

    fn leaving(&self, (shard, epoch): (Shard, Epoch), what: &str) -> Call {
        self.script(shard, &MOVE).durable().arg(epoch.0).arg(what)
    }

    fn arrival(&self, to: Shard, how: &str, group: &Group, at: Wall) -> Call {
        let call = self.script(to, &ARRIVE).durable().arg(how).arg(group.as_str());
        call.arg(&*self.channel).arg(to.0).arg(&at.0.to_be_bytes()[..])
    }
}

/// The shard of an answer.
pub(super) fn shard(number: u64) -> Result<Shard, Error> {
    u16::try_from(number).map(Shard).map_err(|_| strange("a shard"))
}

/// A group that leaves, as `take.lua` names it.
pub(super) fn read_leaving(value: Value) -> Result<Leaving, Error> {
    let [group, _stage, to] = layout::exactly(value, "a move")?;
    let name = String::from_utf8(layout::bytes(group)?).map_err(|_| strange("a move"))?;
    let group = Group::from_written(&name).ok_or_else(|| strange("a move"))?;
    Ok(Leaving { group, to: shard(layout::count(&to)?)? })
}

fn stored(value: Value) -> Result<Stored, Error> {
    let [number, state, head, rest, notes] = layout::exactly(value, "an event")?;
    Ok([
        layout::bytes(number)?,
        layout::bytes(state)?,
        layout::bytes(head)?,
        layout::bytes(rest)?,
        layout::bytes(notes)?,
    ])
}
