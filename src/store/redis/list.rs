//! Lists over all shards, in the order of commits: by time of the commit, then shard, then number. With one shard that is the order of seqs.
//!
//! A cursor is a seq. In its own shard the walk goes on behind it; in the others behind the moment at which its event was committed.

use redis::Value;

use super::Redis;
use super::layout::{self, Found, strange, written};
use super::link::Call;
use super::local::Local;
use super::scripts::{MOMENT, SCAN};
use super::shard::Shard;
use crate::event::{Seq, Wall};
use crate::store::{Error, Page, Query};

/// Events that one call of `list` looks at in one shard, so that nobody waits for a scan; see [`Page::next`].
const LOOK_MAX: usize = 10_000;
/// Those that it looks at in all shards together.
const LOOK_ALL_MAX: usize = 20_000;

/// A place in the order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    t: u64,
    shard: Shard,
    number: u64,
}

impl Moment {
    fn of(found: &Found) -> Self {
        let (shard, number) = Shard::of(found.row.seq);
        Self { t: found.t, shard, number }
    }
}

/// What the walk through one shard gave.
struct Walked {
    found: Vec<Found>,
    /// Up to where it looked; `None`: to its end.
    edge: Option<(Moment, Wall)>,
}

impl Redis {
    pub(super) async fn list_events(&self, query: Query) -> Result<Page, Error> {
        self.is_open()?;
        let limit = query.limit.clamp(1, 1_000);
        let cursor = match query.behind {
            // Before all: of every shard, not of the first one.
            Some(Seq(0)) if query.oldest_first => None,
            Some(seq) => match self.moment(seq).await? {
                Some(moment) => Some(moment),
                None if query.oldest_first => return Ok(Page::default()),
                None => None,
            },
            None => None,
        };
        let budget = (LOOK_ALL_MAX / usize::from(self.shards())).clamp(limit + 1, LOOK_MAX);
        let shards = (0..self.shards()).map(Shard);
        let calls = shards.clone().map(|shard| self.scan(shard, &query, cursor, limit, budget)).collect();
        let mut walks = Vec::new();
        for (shard, answer) in shards.zip(self.run(calls).await) {
            walks.push(walked(shard, answer?)?);
        }
        Ok(self.merge(walks, &query, limit))
    }

    /// The last seq that each shard has given, of those that have given one.
    pub(super) async fn newest_of_all(&self) -> Result<Vec<Seq>, Error> {
        let shards = self.locals.iter().zip((0..).map(Shard));
        let call = |(local, _): (&Local, Shard)| {
            let first = Call::command(&local.tag, "GETRANGE").arg(local.tag.key("m"));
            first.arg(0).arg(7)
        };
        let calls = shards.clone().map(call).collect();
        let mut newest = Vec::new();
        for ((_, shard), answer) in shards.zip(self.run(calls).await) {
            let told = layout::bytes(answer?)?;
            // A shard without a first event has no sums.
            if !told.is_empty() {
                let [last] = layout::doubles(&told)?;
                newest.extend(layout::whole(last).filter(|last| *last > 0).map(|last| shard.seq(last)));
            }
        }
        Ok(newest)
    }

    /// When the event at a cursor was committed; `None` for a seq beyond everything.
    async fn moment(&self, seq: Seq) -> Result<Option<Moment>, Error> {
        let Some((shard, number)) = layout::place(seq, self.shards()) else { return Ok(None) };
        // With one shard the number says it all.
        if self.shards() == 1 {
            return Ok(Some(Moment { t: 0, shard, number }));
        }
        let t = layout::bytes(self.one(self.script(shard, &MOMENT).arg(number)).await?)?;
        let t = <[u8; 8]>::try_from(t.as_slice()).map_or(u64::MAX, u64::from_be_bytes);
        Ok(Some(Moment { t, shard, number }))
    }

    fn scan(&self, shard: Shard, query: &Query, cursor: Option<Moment>, limit: usize, budget: usize) -> Call {
        let (behind, bound, within) = match cursor {
            None => (Vec::new(), String::new(), 0),
            Some(cursor) if cursor.shard == shard => (written(cursor.number).to_vec(), String::new(), 0),
            Some(cursor) if cursor.t == u64::MAX => (Vec::new(), String::new(), 0),
            // Of one moment, shards come in the order of their numbers.
            Some(cursor) => {
                let within = if query.oldest_first { shard > cursor.shard } else { shard < cursor.shard };
                (Vec::new(), cursor.t.to_string(), u8::from(within))
            }
        };
        let statuses: Vec<u8> = query
            .status
            .iter()
            .flat_map(|status| {
                let mut byte = Vec::new();
                crate::store::record::put_status(&mut byte, *status);
                byte
            })
            .collect();
        let group = query.group.as_ref().map_or("", |group| group.as_str());
        let bound_of = |at: Option<Wall>| at.map_or_else(String::new, |at| at.0.to_string());
        let texts: Vec<&str> =
            [query.source.as_deref(), query.provider_event_id.as_deref()].into_iter().flatten().collect();
        self.script(shard, &SCAN)
            .arg(if query.oldest_first { "up" } else { "down" })
            .arg(behind)
            .arg(bound)
            .arg(within)
            .arg(statuses)
            .arg(group)
            .arg(limit + 1)
            .arg(budget)
            .arg(bound_of(query.since))
            .arg(bound_of(query.until))
            .arg(texts)
    }

    /// What all shards gave, as far as each of them was looked at.
    fn merge(&self, walks: Vec<Walked>, query: &Query, limit: usize) -> Page {
        let up = query.oldest_first;
        let before = |a: Moment, b: Moment| if up { a < b } else { a > b };
        // The walk of all is as far as that of the slowest shard which is not at its end.
        let edge = walks.iter().filter_map(|walk| walk.edge).reduce(|a, b| if before(a.0, b.0) { a } else { b });
        let mut found: Vec<(Moment, Found)> =
            walks.into_iter().flat_map(|walk| walk.found).map(|found| (Moment::of(&found), found)).collect();
        found.retain(|(moment, found)| {
            edge.is_none_or(|(edge, _)| !before(edge, *moment)) && found.row.matches(query) && self.is_kept(&found.row)
        });
        found.sort_unstable_by_key(|(moment, _)| *moment);
        if !up {
            found.reverse();
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().map(|(moment, found)| (*moment, found.row.received));
        let end = if more { last } else { edge };
        let records = found.iter().map(|(_, found)| found.row.record()).collect();
        let next = end.map(|(moment, _)| moment.shard.seq(moment.number));
        Page { records, next, reached: end.map(|(_, received)| received) }
    }
}

fn walked(shard: Shard, answer: Value) -> Result<Walked, Error> {
    let [edge, rows] = layout::exactly(answer, "a list")?;
    let edge = match edge {
        Value::Array(_) => {
            let found = layout::rows(shard, edge)?.into_iter().flatten().next().ok_or_else(|| strange("a list"))?;
            Some((Moment::of(&found), found.row.received))
        }
        _ => None,
    };
    Ok(Walked { found: layout::rows(shard, rows)?.into_iter().flatten().collect(), edge })
}
