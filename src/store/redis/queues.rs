//! What waits: lanes, fresh, retrying and open events of the shards that are held here, and what was appended to them of late.

use std::collections::BTreeMap;

use redis::Value;

use super::Redis;
use super::layout::{self, strange, whole, written};
use super::owner::Tailed;
use super::scripts::{LANES, QUEUES};
use super::shard::Shard;
use crate::event::{Lane, Seq, Wall};
use crate::store::{Error, LaneSummary, Pending};

/// Lanes that one script sums up at most.
const LANES_MAX: usize = 2_000;
/// Rows that one script gives at most.
const ROWS_MAX: usize = 2_000;

/// What a look at a queue gave.
struct Looked {
    pending: Vec<Pending>,
    /// The number up to which it looked; `None`: to the end.
    to: Option<u64>,
    /// The last number of the shard.
    last: u64,
}

impl Redis {
    pub(super) async fn lanes_after(&self, after: Option<Lane>, limit: usize) -> Result<Vec<LaneSummary>, Error> {
        let held = self.held();
        self.count(&held).await?;
        let calls = held.iter().map(|shard| self.script(*shard, &LANES)).collect();
        let mut names: BTreeMap<Lane, Vec<Shard>> = BTreeMap::new();
        for (shard, answer) in held.iter().zip(self.run(calls).await) {
            let [all, _told] = layout::exactly(answer?, "lanes")?;
            for name in layout::parts(all)? {
                names.entry(layout::lane(&layout::bytes(name)?)?).or_default().push(*shard);
            }
        }
        let mut names = names.into_iter().filter(|(lane, _)| after.as_ref().is_none_or(|after| lane > after));
        let mut found = Vec::new();
        // A lane that ended meanwhile leaves its place to the next one: an empty page would be taken for the end.
        while found.len() < limit {
            let some: Vec<(Lane, Vec<Shard>)> = names.by_ref().take(limit - found.len()).collect();
            if some.is_empty() {
                break;
            }
            found.extend(self.sum_up(&some).await?);
        }
        Ok(found)
    }

    /// The summaries of lanes, in their order, without those that have ended.
    async fn sum_up(&self, lanes: &[(Lane, Vec<Shard>)]) -> Result<Vec<LaneSummary>, Error> {
        let mut found: BTreeMap<Lane, LaneSummary> = BTreeMap::new();
        for shard in self.held() {
            let own: Vec<&Lane> = lanes.iter().filter(|(_, of)| of.contains(&shard)).map(|(lane, _)| lane).collect();
            for some in own.chunks(LANES_MAX) {
                let call = some.iter().fold(self.script(shard, &LANES), |call, lane| call.arg(layout::lane_name(lane)));
                for (lane, sums) in some.iter().zip(layout::parts(self.one(call).await?)?) {
                    let Some(part) = summary((*lane).clone(), &layout::bytes(sums)?)? else { continue };
                    match found.get_mut(*lane) {
                        Some(whole) => add(whole, &part),
                        None => drop(found.insert(part.lane.clone(), part)),
                    }
                }
            }
        }
        Ok(found.into_values().collect())
    }

    pub(super) async fn load_lane(&self, lane: Lane, after: Seq, limit: usize) -> Result<Vec<Pending>, Error> {
        self.is_open()?;
        let mut found = Vec::new();
        for shard in self.held().into_iter().filter(|shard| self.may_have(*shard, &lane, after)) {
            if let Some(behind) = behind(shard, after).filter(|_| found.len() < limit) {
                self.load_from(shard, &lane, behind, limit, &mut found).await?;
            }
        }
        Ok(found)
    }

    /// Whether a lane may have events in a shard: in the one that the caller is in already, else in that of its group.
    fn may_have(&self, shard: Shard, lane: &Lane, after: Seq) -> bool {
        let at = if after > Seq(0) { Shard::of(after).0 } else { self.shard_of(&lane.group) };
        shard == at
    }

    async fn load_from(
        &self,
        shard: Shard,
        lane: &Lane,
        mut behind: u64,
        limit: usize,
        found: &mut Vec<Pending>,
    ) -> Result<(), Error> {
        while found.len() < limit {
            let wanted = (limit - found.len()).min(ROWS_MAX);
            let call = self.script(shard, &QUEUES).arg("load").arg(behind).arg(wanted).arg(layout::lane_name(lane));
            let looked = looked(shard, self.one(call).await?)?;
            let full = looked.pending.len() == wanted;
            let last = looked.pending.last().map(|pending| Shard::of(pending.seq).1);
            found.extend(looked.pending);
            behind = match (looked.to, last) {
                (_, Some(last)) if full => last,
                (Some(to), _) => to,
                _ => break,
            };
        }
        Ok(())
    }

    pub(super) async fn due_after(&self, mut after: Option<(Wall, Seq)>, limit: usize) -> Result<Vec<Pending>, Error> {
        self.is_open()?;
        let mut found = Vec::new();
        while found.len() < limit {
            let wanted = (limit - found.len()).min(ROWS_MAX);
            let page = self.due_page(after, wanted).await?;
            let full = page.len() == wanted;
            after = page.last().and_then(|last| Some((last.due?, last.seq)));
            found.extend(page);
            if !full {
                break;
            }
        }
        Ok(found)
    }

    async fn due_page(&self, after: Option<(Wall, Seq)>, limit: usize) -> Result<Vec<Pending>, Error> {
        let held = self.held();
        let bound = |shard| after.map_or_else(|| b"-".to_vec(), |(due, seq)| due_bound(shard, due, seq));
        let call = |shard: &Shard| self.script(*shard, &QUEUES).arg("due").arg(bound(*shard)).arg(limit);
        let mut found = Vec::new();
        for (shard, answer) in held.iter().zip(self.run(held.iter().map(call).collect()).await) {
            found.extend(looked(*shard, answer?)?.pending);
        }
        found.sort_unstable_by_key(|pending| (pending.due, pending.seq));
        found.truncate(limit);
        Ok(found)
    }

    pub(super) async fn open_after(&self, after: Seq, limit: usize) -> Result<Vec<Pending>, Error> {
        self.is_open()?;
        let mut found: Vec<Pending> = Vec::new();
        for shard in self.held() {
            let mut from = behind(shard, after);
            while let Some(number) = from.filter(|_| found.len() < limit) {
                let wanted = (limit - found.len()).min(ROWS_MAX);
                let call = self.script(shard, &QUEUES).arg("open").arg(number).arg(wanted);
                let page = looked(shard, self.one(call).await?)?.pending;
                from = page.last().filter(|_| page.len() == wanted).map(|last| Shard::of(last.seq).1);
                found.extend(page);
            }
        }
        Ok(found)
    }

    pub(super) async fn tail_shards(&self, behind: &[(Shard, Seq)], limit: usize) -> Vec<Result<Tailed, Error>> {
        let limit = limit.clamp(1, ROWS_MAX);
        let call =
            |(shard, seq): &(Shard, Seq)| self.script(*shard, &QUEUES).arg("tail").arg(Shard::of(*seq).1).arg(limit);
        let answers = self.run(behind.iter().map(call).collect()).await;
        let tailed = |((shard, _), answer): (&(Shard, Seq), Result<Value, Error>)| {
            let looked = looked(*shard, answer?)?;
            let to = looked.to.ok_or_else(|| strange("a tail"))?;
            let (shard, more) = (*shard, to < looked.last);
            Ok(Tailed { shard, events: looked.pending, looked: shard.seq(to), more })
        };
        behind.iter().zip(answers).map(tailed).collect()
    }
}

/// The number behind which a shard is looked at for what comes after `after`; `None` when nothing of it does.
fn behind(shard: Shard, after: Seq) -> Option<u64> {
    let (of, number) = Shard::of(after);
    match of.cmp(&shard) {
        std::cmp::Ordering::Less => Some(0),
        std::cmp::Ordering::Equal => Some(number),
        std::cmp::Ordering::Greater => None,
    }
}

/// Where a shard's retrying events begin behind a moment and a seq.
fn due_bound(shard: Shard, due: Wall, seq: Seq) -> Vec<u8> {
    let (of, number) = Shard::of(seq);
    let due = due.0.to_be_bytes();
    match of.cmp(&shard) {
        // The shard's seqs are higher than that one: its events of this very moment come after it.
        std::cmp::Ordering::Less => [b"[", &due[..]].concat(),
        std::cmp::Ordering::Equal => [b"(", &due[..], &written(number)].concat(),
        std::cmp::Ordering::Greater => [b"(", &due[..], &[0xFF; 7]].concat(),
    }
}

fn looked(shard: Shard, answer: Value) -> Result<Looked, Error> {
    let [to, rows, last] = layout::exactly(answer, "a queue")?;
    let (to, last) = (layout::bytes(to)?, layout::number(&layout::bytes(last)?)?);
    let rows = layout::rows(shard, rows)?;
    let pending = rows.into_iter().flatten().map(|found| found.row.pending()).collect();
    let to = if to.is_empty() { None } else { Some(layout::number(&to)?) };
    Ok(Looked { pending, to, last })
}

/// A lane's summary from its sums; `None` where it has ended.
pub(super) fn summary(lane: Lane, sums: &[u8]) -> Result<Option<LaneSummary>, Error> {
    if sums.is_empty() {
        return Ok(None);
    }
    let [fresh, retrying, bytes, oldest] = layout::doubles(sums)?;
    let sum = |value| whole(value).unwrap_or(0);
    let oldest = Wall(sum(oldest));
    Ok(Some(LaneSummary { lane, fresh: sum(fresh), retrying: sum(retrying), bytes: sum(bytes), oldest }))
}

/// One lane's sums in two shards.
fn add(whole: &mut LaneSummary, part: &LaneSummary) {
    whole.fresh += part.fresh;
    whole.retrying += part.retrying;
    whole.bytes += part.bytes;
    whole.oldest = whole.oldest.min(part.oldest);
}
