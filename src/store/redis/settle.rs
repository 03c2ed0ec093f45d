//! Settling, fenced by the epoch, and requeuing.
//!
//! A settlement is not idempotent by itself: two that begin an attempt count two. So each call has a number within its epoch, by which Redis
//! tells a repetition, and a call that was not answered in time is finished before the next one begins.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::Value;

use super::Redis;
use super::layout::{self, strange, written};
use super::local::{Local, Settling};
use super::moves;
use super::owner::Epoch;
use super::scripts::{REQUEUE, SETTLE};
use super::shard::Shard;
use crate::event::{Seq, Wall};
use crate::store::record;
use crate::store::{Error, Pending, Settlement, Verdict};

/// Settlements of one script at most.
const SETTLEMENTS_MAX: usize = 1_000;
/// Events that one script makes pending again at most: each is moved with all its parts.
const REQUEUE_MAX: usize = 100;

/// What one call to Redis settles: requeues go another way.
enum Run {
    Settle(Vec<Settlement>),
    Requeue(Settlement),
}

impl Redis {
    pub(super) async fn settle_batch(&self, batch: Vec<Settlement>) -> Result<usize, Error> {
        self.is_open()?;
        let mut ignored = 0;
        let mut shards: BTreeMap<Shard, Vec<Settlement>> = BTreeMap::new();
        for settlement in batch {
            match layout::place(settlement.seq, self.shards()) {
                Some((shard, _)) => shards.entry(shard).or_default().push(settlement),
                None => ignored += 1,
            }
        }
        let settled = join_all(shards.into_iter().map(|(shard, batch)| self.settle_shard(shard, batch))).await;
        let failed = settled.iter().find_map(|(_, _, settled)| settled.clone().err());
        for (shard, done, settled) in settled {
            match (&failed, self.local(shard)) {
                (Some(_), Some(local)) => local.settling.lock().await.done.extend(done),
                _ => ignored += settled.unwrap_or(0),
            }
        }
        failed.map_or(Ok(ignored), Err)
    }

    /// Settles for one shard; what was carried out of it, and how many settlements changed nothing.
    async fn settle_shard(
        &self,
        shard: Shard,
        mut batch: Vec<Settlement>,
    ) -> (Shard, Vec<Settlement>, Result<usize, Error>) {
        let Some(local) = self.local(shard) else { return (shard, Vec::new(), Ok(batch.len())) };
        let mut settling = local.settling.lock().await;
        // Whose shard it is not any more has nothing to say about its events.
        let Some(epoch) = local.epoch() else { return (shard, Vec::new(), Ok(batch.len())) };
        settling.of(epoch);
        let mut done = std::mem::take(&mut settling.done);
        let mut ignored = match self.finish(shard, local, &mut settling, epoch).await {
            Ok((before, ignored)) => {
                done.extend(before);
                ignored
            }
            Err(error) => return (shard, done, Err(error)),
        };
        // The caller repeats what failed; a part of it is done.
        for settlement in &done {
            if let Some(at) = batch.iter().position(|other| other == settlement) {
                batch.remove(at);
            }
        }
        for run in runs(batch) {
            let settled = match run {
                Run::Requeue(one) => self.requeue_one(shard, one).await,
                Run::Settle(run) => {
                    settling.begin(run);
                    self.finish(shard, local, &mut settling, epoch).await
                }
            };
            match settled {
                Ok((run, more)) => {
                    done.extend(run);
                    ignored += more;
                }
                Err(error) => return (shard, done, Err(error)),
            }
        }
        (shard, done, Ok(ignored))
    }

    /// Carries out what is begun and not answered, if anything is.
    async fn finish(
        &self,
        shard: Shard,
        local: &Local,
        settling: &mut Settling,
        epoch: Epoch,
    ) -> Result<(Vec<Settlement>, usize), Error> {
        let Some((number, run)) = &settling.unfinished else { return Ok((Vec::new(), 0)) };
        let ignored = self.send(shard, local, epoch, *number, run).await?;
        let run = settling.unfinished.take().map(|(_, run)| run);
        Ok((run.unwrap_or_default(), ignored))
    }

    async fn requeue_one(&self, shard: Shard, one: Settlement) -> Result<(Vec<Settlement>, usize), Error> {
        let answer = self.requeue_shard(shard, &[one.seq], one.at).await?;
        let ignored = answer.iter().filter(|pending| pending.is_none()).count();
        Ok((vec![one], ignored))
    }

    async fn send(
        &self,
        shard: Shard,
        local: &Local,
        epoch: Epoch,
        number: u64,
        run: &[Settlement],
    ) -> Result<usize, Error> {
        let (records, texts) = written_run(run);
        let mut call = self.script(shard, &SETTLE).durable().arg(epoch.0).arg(number).arg(records);
        for text in texts {
            call = call.arg(text);
        }
        let answer = layout::parts(self.one(call).await?)?;
        let [Value::Int(1), Value::Int(ignored), Value::Int(ended), Value::BulkString(told)] = &answer[..] else {
            if !matches!(answer[..], [Value::Int(0)]) {
                return Err(strange("a settlement"));
            }
            self.is_lost(shard, epoch);
            return Ok(run.len());
        };
        let mut sums = local.sums.lock();
        sums.learn(told)?;
        sums.history += u64::try_from(*ended).unwrap_or(0);
        usize::try_from(*ignored).map_err(|_| strange("a settlement"))
    }

    pub(super) async fn requeue_batch(&self, seqs: Vec<Seq>, at: Wall) -> Result<Vec<Option<Pending>>, Error> {
        self.is_open()?;
        let mut shards: BTreeMap<Shard, Vec<(usize, Seq)>> = BTreeMap::new();
        for (place, &seq) in seqs.iter().enumerate() {
            if let Some((shard, _)) = layout::place(seq, self.shards()) {
                shards.entry(shard).or_default().push((place, seq));
            }
        }
        let mut answers = vec![None; seqs.len()];
        for (shard, asked) in shards {
            for asked in asked.chunks(REQUEUE_MAX) {
                let seqs: Vec<Seq> = asked.iter().map(|(_, seq)| *seq).collect();
                for ((place, _), pending) in asked.iter().zip(self.requeue_shard(shard, &seqs, at).await?) {
                    if let Some(answer) = answers.get_mut(*place) {
                        *answer = pending;
                    }
                }
            }
        }
        Ok(answers)
    }

    async fn requeue_shard(&self, shard: Shard, seqs: &[Seq], at: Wall) -> Result<Vec<Option<Pending>>, Error> {
        let kept = self.kept_since().map(f64::to_le_bytes).concat();
        let numbers: Vec<u8> = seqs.iter().flat_map(|seq| written(Shard::of(*seq).1)).collect();
        let call = self
            .script(shard, &REQUEUE)
            .durable()
            .arg(self.receipt())
            .arg(&at.0.to_be_bytes()[..])
            .arg(&*self.channel)
            .arg(shard.0)
            .arg(kept)
            .arg(numbers);
        let [rows, told] = layout::exactly(self.one(call).await?, "a requeue")?;
        let rows = layout::parts(rows)?;
        let mut pending = Vec::with_capacity(seqs.len());
        for (seq, row) in seqs.iter().zip(rows.as_chunks::<3>().0) {
            pending.push(match row {
                // Its group has left the shard.
                [Value::BulkString(number), Value::BulkString(to), _] if number.is_empty() && !to.is_empty() => {
                    let to = moves::shard(layout::count(&Value::BulkString(to.clone()))?)?;
                    self.requeue_elsewhere(*seq, to, at).await?
                }
                row => {
                    let found = layout::rows(shard, Value::Array(row.to_vec()))?.pop().flatten();
                    found.map(|found| found.row.pending())
                }
            });
        }
        if let Some(local) = self.local(shard) {
            let mut sums = local.sums.lock();
            sums.learn(&layout::bytes(told)?)?;
            let done = pending.iter().flatten().count() as u64;
            sums.history = sums.history.saturating_sub(done);
            if done > 0 && local.epoch().is_some() {
                self.woken.tell(shard);
            }
        }
        Ok(pending)
    }
}

/// Settlements in their order, requeues apart.
fn runs(batch: Vec<Settlement>) -> Vec<Run> {
    let mut runs = Vec::new();
    for settlement in batch {
        if settlement.verdict == Verdict::Requeued {
            runs.push(Run::Requeue(settlement));
            continue;
        }
        match runs.last_mut() {
            Some(Run::Settle(run)) if run.len() < SETTLEMENTS_MAX => run.push(settlement),
            _ => runs.push(Run::Settle(vec![settlement])),
        }
    }
    runs
}

const REFUSED: u8 = 1;
const NOTE: u8 = 2;
const REASON: u8 = 4;

/// Settlements as the script reads them, and the texts that they have.
fn written_run(run: &[Settlement]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut records, mut texts) = (Vec::with_capacity(run.len() * 24), Vec::new());
    for settlement in run {
        let (verdict, due, reason) = match &settlement.verdict {
            Verdict::Begun => (1, 0, None),
            Verdict::Interrupted => (2, settlement.at.0, None),
            Verdict::RetryAt(due) => (3, due.0, None),
            // A requeue never comes here.
            Verdict::Released | Verdict::Requeued => (4, 0, None),
            Verdict::Delivered => (5, 0, None),
            Verdict::Dead(reason) => (6, 0, Some(reason)),
            Verdict::Discarded => (7, 0, None),
        };
        let mut flags = 0;
        if let Some(note) = &settlement.attempt {
            flags |= NOTE | if note.refused { REFUSED } else { 0 };
            let mut text = Vec::new();
            record::put_note(&mut text, note);
            texts.push(text);
        }
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            flags |= REASON;
            texts.push(reason.as_bytes().to_vec());
        }
        records.extend_from_slice(&written(Shard::of(settlement.seq).1));
        records.extend_from_slice(&[verdict, flags]);
        records.extend_from_slice(&settlement.at.0.to_be_bytes());
        records.extend_from_slice(&due.to_be_bytes());
    }
    (records, texts)
}
