//! Single events: bodies by seq, and an event's story by its id.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Redis;
use super::layout::{self, written};
use super::scripts::EVENTS;
use super::shard::Shard;
use crate::event::{Event, EventId, Seq};
use crate::store::wire::Reader;
use crate::store::{AttemptNote, Error, Story, record};

/// Events that one script gives at most: bodies may be large.
const EVENTS_MAX: usize = 64;

impl Redis {
    pub(super) async fn read_events(&self, seqs: Vec<Seq>) -> Result<Vec<Option<Arc<Event>>>, Error> {
        self.is_open()?;
        let mut shards: BTreeMap<Shard, Vec<(usize, u64)>> = BTreeMap::new();
        for (place, &seq) in seqs.iter().enumerate() {
            if let Some((shard, number)) = layout::place(seq, self.shards()) {
                shards.entry(shard).or_default().push((place, number));
            }
        }
        let mut events = vec![None; seqs.len()];
        for (shard, asked) in shards {
            for asked in asked.chunks(EVENTS_MAX) {
                let numbers: Vec<u8> = asked.iter().flat_map(|(_, number)| written(*number)).collect();
                let answer = self.one(self.script(shard, &EVENTS).arg("read").arg(numbers)).await?;
                let mut parts = layout::parts(answer)?.into_iter();
                for (place, number) in asked {
                    let (Some(state), Some(head), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
                        break;
                    };
                    let (state, head, rest) = (layout::bytes(state)?, layout::bytes(head)?, layout::bytes(rest)?);
                    if state.is_empty() || !self.is_kept(&layout::found(shard, *number, &state, &head)?.row) {
                        continue;
                    }
                    if let Some(event) = events.get_mut(*place) {
                        *event = Some(Arc::new(layout::event(&head, rest)?));
                    }
                }
            }
        }
        Ok(events)
    }

    /// An id does not say where its event is: a pin may have moved its group since.
    pub(super) async fn find_event(&self, id: EventId) -> Result<Option<Story>, Error> {
        self.is_open()?;
        let shards = (0..self.shards()).map(Shard);
        let calls = shards.clone().map(|shard| self.script(shard, &EVENTS).arg("find").arg(&id.0[..])).collect();
        let mut failed = None;
        for (shard, answer) in shards.zip(self.run(calls).await) {
            match answer {
                Ok(answer) => {
                    if let Some(story) = self.story(shard, layout::parts(answer)?)? {
                        return Ok(Some(story));
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        // It may be in the one that did not answer.
        failed.map_or(Ok(None), Err)
    }

    fn story(&self, shard: Shard, parts: Vec<redis::Value>) -> Result<Option<Story>, Error> {
        let mut parts = parts.into_iter().map(layout::bytes);
        let (Some(number), Some(state), Some(head)) = (parts.next(), parts.next(), parts.next()) else {
            return Ok(None);
        };
        let row = layout::found(shard, layout::number(&number?)?, &state?, &head?)?.row;
        if !self.is_kept(&row) {
            return Ok(None);
        }
        let notes = parts.filter(|note| !matches!(note, Ok(bytes) if bytes.is_empty()));
        let attempts = notes.map(|note| read_note(&note?)).collect::<Result<_, _>>()?;
        Ok(Some(Story { record: row.record(), attempts }))
    }
}

fn read_note(bytes: &[u8]) -> Result<AttemptNote, Error> {
    record::read_note(&mut Reader::new(bytes), record::Form::Present).map_err(layout::damaged)
}
