//! What a node says of itself to another one that puts all of them together. It goes between nodes of one version and is no part of the
//! API: one that does not understand it is named as missing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::shards::{self, ShardJson};
use crate::admin::problem::Problem;
use crate::admin::{Admin, api};
use crate::driver::{
    AddressView, Alert, GroupView, Held, HungAttempts, Job, Rejection, ReplayView, Sort, SpoolUsage, UpstreamInfo,
};
use crate::event::{Group, Mono, WaitSplit, Wall};

/// The driver is waited for so long where the rest comes without it, too.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is wanted; how the node stands as a whole comes with everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::admin) struct Wanted {
    /// Lists of active groups: in which order, and how many.
    pub(in crate::admin) groups: Vec<(Sort, usize)>,
    /// One group.
    pub(in crate::admin) group: Option<Group>,
    /// Its order keys that are held, so many.
    pub(in crate::admin) held: Option<usize>,
    /// How the upstream stands.
    pub(in crate::admin) upstream: bool,
    /// Groups with attempts that are under way for so long.
    pub(in crate::admin) hung: Option<Duration>,
    /// What was waited for.
    pub(in crate::admin) waited: bool,
    /// What came through each source.
    pub(in crate::admin) sources: bool,
    pub(in crate::admin) replays: bool,
    pub(in crate::admin) jobs: bool,
    pub(in crate::admin) alerts: bool,
    /// The shards that it owns.
    pub(in crate::admin) shards: bool,
    /// Requests that were refused, of one source or of all, so many.
    pub(in crate::admin) rejections: Option<(Option<String>, usize)>,
}

/// What was wanted, and how the node stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::admin) struct Report {
    /// Its name; empty for one that is alone.
    pub(in crate::admin) node: String,
    /// What its clock said: deadlines of its own count from there.
    pub(super) now: Mono,
    pub(in crate::admin) stands: Stands,
    pub(in crate::admin) groups: Vec<Vec<GroupView>>,
    pub(in crate::admin) group: Option<GroupView>,
    /// The first of them, and how many there are.
    pub(in crate::admin) held: (Vec<Held>, usize),
    pub(in crate::admin) upstream: Option<UpstreamInfo>,
    pub(in crate::admin) addresses: Vec<AddressView>,
    pub(in crate::admin) hung: Vec<HungAttempts>,
    /// None: the driver did not say in time.
    pub(in crate::admin) waited: Option<WaitSplit>,
    pub(in crate::admin) sources: Vec<SourceReport>,
    pub(in crate::admin) replays: Vec<ReplayView>,
    pub(in crate::admin) jobs: Vec<Job>,
    pub(in crate::admin) firing: Vec<Alert>,
    pub(in crate::admin) resolved: Vec<Alert>,
    pub(in crate::admin) rejections: Vec<Rejection>,
    pub(super) shards: Vec<ShardJson>,
}

/// How a node stands as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::admin) struct Stands {
    pub(in crate::admin) version: String,
    pub(in crate::admin) started: Wall,
    pub(in crate::admin) up: Duration,
    /// Why it takes no events; none: it does.
    pub(in crate::admin) not_ready: Option<String>,
    pub(in crate::admin) draining: bool,
    /// Pending events, of the shards that are its own.
    pub(in crate::admin) pending: u64,
    pub(in crate::admin) lanes: u64,
    pub(in crate::admin) overflow: i64,
    /// When the oldest of them was received.
    pub(in crate::admin) oldest: Option<Wall>,
    pub(in crate::admin) bytes: u64,
    pub(in crate::admin) history: u64,
    /// Since when its store, which is elsewhere, has not answered it.
    pub(in crate::admin) silent: Option<Duration>,
    pub(in crate::admin) spool: Option<SpoolUsage>,
    /// Events that it took and that it delivered since its start.
    pub(in crate::admin) accepted: u64,
    pub(in crate::admin) delivered: u64,
    /// Waits of quiet groups: their sum, and how many.
    pub(in crate::admin) quiet: (Duration, u64),
}

/// What came through a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::admin) struct SourceReport {
    pub(in crate::admin) name: String,
    /// None: it is not counted, or not yet.
    pub(in crate::admin) backlog: Option<u64>,
    pub(in crate::admin) accepted: u64,
    pub(in crate::admin) delivered: u64,
    pub(in crate::admin) dead: u64,
    pub(in crate::admin) suppressed: u64,
    /// Events without a key, by reason.
    pub(in crate::admin) fallback: Vec<(String, u64)>,
    /// By secret, how often it matched.
    pub(in crate::admin) matches: Vec<u64>,
    /// The sender's clock minus the node's, seconds.
    pub(in crate::admin) skew_s: f64,
    pub(in crate::admin) new_groups: Option<u32>,
}

impl Report {
    /// Of this node.
    ///
    /// # Errors
    /// The driver has ended.
    pub(super) async fn own(admin: &Admin, wanted: &Wanted) -> Result<Self, Problem> {
        let handle = &admin.handle;
        let mut groups = Vec::with_capacity(wanted.groups.len());
        for (sort, limit) in &wanted.groups {
            groups.push(handle.groups(*sort, *limit).await?);
        }
        let group = match &wanted.group {
            Some(group) => Some(handle.group(group.clone()).await?),
            None => None,
        };
        let held = match (&wanted.group, wanted.held) {
            (Some(group), Some(limit)) => handle.held(group.clone(), limit).await?,
            _ => (Vec::new(), 0),
        };
        // A group's share is one of all nodes' worker time, which comes with it.
        let upstream = if wanted.upstream || !groups.is_empty() { Some(handle.upstream().await?) } else { None };
        let hung = match wanted.hung {
            Some(older) => handle.hung_attempts(older).await?,
            None => Vec::new(),
        };
        let waited = match wanted.waited {
            true => tokio::time::timeout(PATIENCE, handle.waited()).await.ok().and_then(Result::ok),
            false => None,
        };
        let sources = if wanted.sources { sources(admin).await? } else { Vec::new() };
        let shards = match admin.others.get() {
            Some((seat, _)) if wanted.shards => shards::own(admin, seat).await?,
            _ => Vec::new(),
        };
        let alerts = handle.alerts();
        Ok(Self {
            node: admin.others.get().map(|(seat, _)| seat.node().as_str().to_owned()).unwrap_or_default(),
            now: handle.now().mono,
            stands: Stands::of(admin),
            groups,
            group,
            held,
            upstream,
            addresses: if wanted.upstream { handle.addresses() } else { Vec::new() },
            hung,
            waited,
            sources,
            replays: if wanted.replays { handle.replays() } else { Vec::new() },
            jobs: if wanted.jobs { handle.jobs() } else { Vec::new() },
            firing: if wanted.alerts { alerts.firing() } else { Vec::new() },
            resolved: if wanted.alerts { alerts.resolved() } else { Vec::new() },
            rejections: match &wanted.rejections {
                Some((source, limit)) => handle.rejections().list(source.as_deref(), *limit),
                None => Vec::new(),
            },
            shards,
        })
    }
}

impl Stands {
    fn of(admin: &Admin) -> Self {
        let (handle, usage) = (&admin.handle, admin.handle.usage());
        let (metrics, now, started) = (handle.metrics(), handle.now(), handle.started());
        let counts: Vec<_> = handle.sources().iter().map(|source| metrics.numbers_of(&source.name, 0)).collect();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.wall,
            up: now.mono.since(started.mono),
            not_ready: api::not_ready(admin),
            draining: handle.is_draining(),
            pending: usage.pending,
            lanes: usage.lanes,
            overflow: metrics.overflow_events.get(),
            oldest: usage.oldest,
            bytes: usage.bytes,
            history: usage.history,
            silent: usage.answered.map(|_| handle.store_silence(&usage)),
            spool: usage.spool,
            accepted: counts.iter().map(|counts| counts.accepted).sum(),
            delivered: counts.iter().map(|counts| counts.delivered).sum(),
            quiet: metrics.quiet_waits(),
        }
    }
}

async fn sources(admin: &Admin) -> Result<Vec<SourceReport>, Problem> {
    let (handle, new_groups) = (&admin.handle, admin.handle.new_groups().await?);
    let report = |source: &crate::driver::SourceInfo| {
        let numbers = handle.metrics().numbers_of(&source.name, source.secrets.len());
        SourceReport {
            name: source.name.to_string(),
            backlog: handle.backlog_of(&source.name),
            accepted: numbers.accepted,
            delivered: numbers.delivered,
            dead: numbers.dead,
            suppressed: numbers.suppressed,
            fallback: numbers.fallback.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect(),
            matches: numbers.matches,
            skew_s: numbers.skew_s,
            new_groups: new_groups.iter().find(|new| new.source == source.name).map(|new| new.per_minute),
        }
    };
    Ok(crate::admin::sources::all(admin).iter().map(report).collect())
}
