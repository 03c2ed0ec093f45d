//! What a node sees to by itself: sums for metrics, ended events past retention, and marks as memory fills.
//!
//! Room is counted in *margins*, an eighth of what may be used: below 2 the oldest delivered history goes, below 1.5 the groups that hold
//! most are refused, below 1 everybody is, so that settlements still find room.

use std::collections::{BTreeMap, HashSet};
use std::sync::Weak;
use std::time::Duration;

use parking_lot::RwLock;
use redis::Value;

use super::Redis;
use super::layout::{self, time};
use super::link::Call;
use super::scripts::{FORGET, SUMS};
use super::settings::Topology;
use super::shard::Shard;
use crate::event::{Group, Lane, Wall};
use crate::store::bucket::Family;
use crate::store::room::{self, GIVE_UP_BELOW, MARGIN, REFUSE_LARGE_BELOW};
use crate::store::row::Row;
use crate::store::{Error, Refusal, Usage};

/// How often all of this is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Events that one script lets go at most: it takes a few milliseconds, in which Redis does nothing else.
const FORGET_MAX: usize = 500;
/// Such scripts for one shard in one turn.
const FORGET_ROUNDS: usize = 20;
/// Parts of what may be used that make one margin.
const MARGINS: u64 = 8;
/// Lanes looked at in one read.
const PAGE: usize = 10_000;

/// What may not be stored now.
#[derive(Default)]
pub(super) struct Admission {
    now: RwLock<Marks>,
}

#[derive(Default)]
struct Marks {
    /// Why nobody may.
    full: Option<String>,
    /// Groups that hold too much.
    refused: HashSet<Group>,
}

impl Admission {
    pub(super) fn admits(&self, group: &Group) -> Result<(), Refusal> {
        let marks = self.now.read();
        if marks.full.is_some() {
            return Err(Refusal::Full);
        }
        if marks.refused.contains(group) { Err(Refusal::GroupTooLarge) } else { Ok(()) }
    }

    pub(super) fn append(&self) -> Result<(), Error> {
        self.now.read().full.clone().map_or(Ok(()), |why| Err(Error::Full(why)))
    }
}

/// Memory of the fullest server, as last told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    used: u64,
    /// What may be used; 0: there is no limit.
    max: u64,
}

impl Memory {
    fn room(&self) -> u64 {
        let margin = self.max / MARGINS;
        if margin == 0 {
            return Usage::UNLIMITED;
        }
        let free = self.max.saturating_sub(self.used);
        u64::try_from(u128::from(free) * u128::from(MARGIN) / u128::from(margin)).unwrap_or(u64::MAX)
    }

    fn room_bytes(&self) -> u64 {
        if self.max == 0 {
            return Usage::UNLIMITED;
        }
        self.max.saturating_sub(self.used).saturating_sub(self.max / MARGINS)
    }
}

/// Runs for as long as the store is there.
pub(super) async fn run(store: Weak<Redis>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(store) = store.upgrade() else { return };
        if let Err(error) = store.look_after().await {
            tracing::debug!(%error, "Redis was not looked after this time");
        }
    }
}

impl Redis {
    /// One turn of upkeep.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]; the next turn begins where this one ended.
    pub async fn look_after(&self) -> Result<(), Error> {
        self.is_open()?;
        let held = self.held();
        self.count(&held).await?;
        let now = self.clock.now();
        let is_even = self.evenness.lock().holds(now);
        for family in Family::ALL.into_iter().filter(|_| is_even) {
            let kept = family.retention(&self.settings.retention);
            if let Some(until) = now.wall.0.checked_sub(u64::try_from(kept.as_micros()).unwrap_or(u64::MAX)) {
                self.forget(&held, family, &until.to_string(), FORGET_ROUNDS).await?;
            }
        }
        // What follows is about memory, and a server may keep from us how full it is.
        self.measure().await?;
        if self.memory.lock().room() < GIVE_UP_BELOW {
            self.forget(&held, Family::Delivered, "+inf", 1).await?;
        }
        self.decide().await
    }

    /// Asks for the sums of shards.
    pub(super) async fn count(&self, shards: &[Shard]) -> Result<(), Error> {
        let kept = self.kept_since().map(|since| format!("{since:.0}"));
        let call = |shard: &Shard| self.script(*shard, &SUMS).arg(&kept[..]);
        for (shard, answer) in shards.iter().zip(self.run(shards.iter().map(call).collect()).await) {
            let [told, history, last] = layout::exactly(answer?, "sums")?;
            if let Some(local) = self.local(*shard) {
                let mut sums = local.sums.lock();
                sums.learn(&layout::bytes(told)?)?;
                sums.history = layout::count(&history)?;
                sums.last = layout::number(&layout::bytes(last)?)?;
            }
        }
        Ok(())
    }

    /// Lets go of events of one family that ended until then, the oldest of each shard first.
    async fn forget(&self, shards: &[Shard], family: Family, until: &str, rounds: usize) -> Result<(), Error> {
        let number = match family {
            Family::Delivered => 4,
            Family::Dead => 5,
            Family::Suppressed => 6,
        };
        let mut full = shards.to_vec();
        for _ in 0..rounds {
            let call = |shard: &Shard| -> Option<Call> {
                let epoch = self.local(*shard)?.epoch()?;
                Some(self.script(*shard, &FORGET).arg(epoch.0).arg(number).arg(until).arg(FORGET_MAX))
            };
            full.retain(|shard| self.local(*shard).is_some_and(|local| local.epoch().is_some()));
            let calls: Vec<Call> = full.iter().filter_map(call).collect();
            if calls.len() != full.len() || full.is_empty() {
                return Ok(());
            }
            let answers = self.run(calls).await;
            let mut still = Vec::new();
            for (shard, answer) in full.iter().zip(answers) {
                if matches!(answer?, Value::Int(gone) if usize::try_from(gone) == Ok(FORGET_MAX)) {
                    still.push(*shard);
                }
            }
            full = still;
        }
        Ok(())
    }

    /// Asks the servers how full they are.
    async fn measure(&self) -> Result<(), Error> {
        // One server has all shards; in a cluster nobody says which server has which, so each shard's is asked.
        let asked = if self.settings.server.topology == Topology::Cluster { self.shards() } else { 1 };
        let tags = (0..asked).filter_map(|shard| self.local(Shard(shard))).map(|local| &local.tag);
        let calls = tags.map(|tag| Call::command(tag, "INFO").arg("memory")).collect();
        let mut fullest: Option<Memory> = None;
        for answer in self.run(calls).await {
            let text = layout::bytes(answer?)?;
            let memory = self.read_info(&String::from_utf8_lossy(&text));
            if fullest.is_none_or(|other| memory.room() < other.room() || memory.used > other.used) {
                fullest = Some(memory);
            }
        }
        *self.memory.lock() = fullest.unwrap_or_default();
        Ok(())
    }

    fn read_info(&self, text: &str) -> Memory {
        let field = |name: &str| -> u64 {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        let limits = [field("maxmemory"), self.settings.max_bytes.unwrap_or(0)];
        let max = limits.into_iter().filter(|max| *max > 0).min().unwrap_or(0);
        Memory { used: field("used_memory"), max }
    }

    /// Decides anew who is refused.
    async fn decide(&self) -> Result<(), Error> {
        let memory = *self.memory.lock();
        let room = memory.room();
        let full = (room < MARGIN).then(|| {
            let Memory { used, max } = memory;
            format!("Redis uses {used} of {max} bytes; new events need more than an eighth of it free")
        });
        let refused = if room < REFUSE_LARGE_BELOW { self.largest(room).await? } else { HashSet::new() };
        let mut marks = self.admission.now.write();
        if let (None, Some(reason)) = (&marks.full, &full) {
            tracing::warn!(reason, "new events are refused until there is room");
        }
        if marks.full.is_some() && full.is_none() {
            tracing::info!("new events are taken again");
        }
        if marks.refused.len() != refused.len() {
            tracing::warn!(groups = refused.len(), "room is short: the groups that hold most are refused");
        }
        *marks = Marks { full, refused };
        Ok(())
    }

    /// The groups of our shards that hold most bytes.
    async fn largest(&self, room: u64) -> Result<HashSet<Group>, Error> {
        let mut groups: BTreeMap<Group, u64> = BTreeMap::new();
        let mut after: Option<Lane> = None;
        loop {
            let page = self.lanes_after(after.take(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.lane.clone());
            for summary in page {
                *groups.entry(summary.lane.group).or_default() += summary.bytes;
            }
        }
        Ok(room::largest(groups, room))
    }

    /// The moments before which what ended is past retention: delivered, dead, suppressed.
    pub(super) fn kept_since(&self) -> [f64; 3] {
        let now = self.clock.now().wall;
        Family::ALL.map(|family| {
            let kept = family.retention(&self.settings.retention);
            time(now) - time(Wall(u64::try_from(kept.as_micros()).unwrap_or(u64::MAX)))
        })
    }

    pub(super) fn is_kept(&self, row: &Row) -> bool {
        row.is_kept(&self.settings.retention, self.clock.now().wall)
    }

    /// The sums of the shards that are held here, and how full Redis is.
    pub(super) fn usage_now(&self) -> Usage {
        let memory = *self.memory.lock();
        let mut usage = Usage {
            bytes: memory.used,
            free: if memory.max == 0 { u64::MAX } else { memory.max.saturating_sub(memory.used) },
            room: memory.room(),
            room_bytes: memory.room_bytes(),
            answered: Some(self.last_answer()),
            ..Usage::default()
        };
        for local in self.held().into_iter().filter_map(|shard| self.local(shard)) {
            let sums = *local.sums.lock();
            usage.pending += sums.pending;
            usage.lanes += sums.lanes;
            usage.history += sums.history;
            usage.oldest = [usage.oldest, sums.oldest].into_iter().flatten().min();
        }
        usage
    }
}

/// Hears of appends by other nodes.
pub(super) async fn hear(store: Weak<Redis>, mut hearing: super::link::Hearing) {
    loop {
        let said = hearing.next().await;
        let Some(store) = store.upgrade() else { return };
        let shard = std::str::from_utf8(&said).ok().and_then(|text| text.parse().ok()).map(Shard);
        if let Some(shard) = shard.filter(|shard| store.local(*shard).is_some_and(|local| local.epoch().is_some())) {
            store.woken.tell(shard);
        }
    }
}
