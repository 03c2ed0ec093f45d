//! Names and numbers: every metric of the gateway, in one place.
//!
//! Each is registered here and nowhere else, with its name, its labels and what it counts. What a stage needs often it
//! takes once as a [`SourceMetrics`], so that counting an event looks nothing up. `docs/metrics.md` is written from the same table:
//!
//! ```sh
//! UPDATE_EXPECTED=1 cargo test --lib metrics
//! ```

mod addresses;
mod ages;
mod alerts;
mod cluster;
mod groups;
mod names;
mod numbers;
mod quiet;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;

use crate::event::{KeySource, Missing, WaitReason, WaitSplit};
pub use addresses::{AddressMetrics, AllAddresses};
use ages::Ages;
use alerts::AlertMetrics;
use cluster::ClusterMetrics;
use groups::GroupMetrics;
pub use groups::{GroupNumbers, TOP};
use names::Names;
pub use numbers::SourceNumbers;
use quiet::QuietWaits;

/// Seconds from 100 µs to 26 s, each bound 2.4 times the one before: a commit takes about a disk's `fdatasync`.
const COMMIT_SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 25.0];

/// Seconds from 1 ms to a day: a quiet store waits milliseconds, a flood's own tail hours.
const WAIT_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0, 3_600.0, 86_400.0];

/// Seconds from 1 ms to a minute: an attempt takes what the upstream's handler takes, at most `upstream.timeout`.
const ATTEMPT_SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    source: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabel {
    source: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecretLabel {
    source: String,
    index: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToLabel {
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabel {
    version: String,
    durability: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabel {
    reason: &'static str,
}

/// Every reason's counter, there from the first scrape on, with zeros.
fn reasons(family: Family<WaitLabel, Counter<f64, AtomicU64>>) -> Vec<Counter<f64, AtomicU64>> {
    let counter = |reason: WaitReason| family.get_or_create_owned(&WaitLabel { reason: reason.as_str() });
    WaitReason::ALL.into_iter().map(counter).collect()
}

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    names: Names,
    accepted: Family<SourceLabel, Counter>,
    rejected: Family<ReasonLabel, Counter>,
    shed: Family<ReasonLabel, Counter>,
    unverified: Family<ReasonLabel, Counter>,
    handshakes: Family<HandshakeLabel, Counter>,
    fetches: Family<OutcomeLabel, Counter>,
    fallback: Family<ReasonLabel, Counter>,
    secrets: Family<SecretLabel, Counter>,
    skew: Family<SourceLabel, Gauge<f64, AtomicU64>>,
    attempts: Family<OutcomeLabel, Counter>,
    attempt_seconds: Histogram,
    live: Family<OutcomeLabel, Counter>,
    /// In the order of [`WaitReason::ALL`].
    wait_reasons: Vec<Counter<f64, AtomicU64>>,
    delivered: Family<SourceLabel, Counter>,
    suppressed: Family<SourceLabel, Counter>,
    released: Family<SourceLabel, Counter>,
    unmarked: Family<ReasonLabel, Counter>,
    dead: Family<SourceLabel, Counter>,
    replayed: Family<SourceLabel, Counter>,
    discarded: Family<SourceLabel, Counter>,
    new_groups: Family<SourceLabel, Counter>,
    new_groups_per_minute: Family<SourceLabel, Gauge>,
    overflowed: Family<ReasonLabel, Counter>,
    /// Events that wait in overflow lanes.
    pub overflow_events: Gauge,
    wait_seconds: Histogram,
    quiet_wait_seconds: Histogram,
    quiet: QuietWaits,
    slots: Family<StateLabel, Gauge>,
    dedicated: Family<ToLabel, Counter>,
    breaker: Gauge,
    retries_overdue: Gauge,
    backlog_age: Ages,
    groups_over_age: Gauge,
    /// The upstream's addresses.
    pub addresses: AllAddresses,
    /// Alerts.
    pub alerts: AlertMetrics,
    /// Many nodes.
    pub cluster: ClusterMetrics,
    /// Seconds from the start of a batch's write to its durability.
    pub commit_seconds: Histogram,
    /// Events pending.
    pub backlog_events: Gauge,
    /// Age of the oldest pending event, seconds.
    pub backlog_oldest_age: Gauge<f64, AtomicU64>,
    /// Whether very many groups have turned slow at once.
    pub outbreak: Gauge,
    /// Lanes with pending events.
    pub lanes_active: Gauge,
    /// Bytes the store takes.
    pub store_bytes: Gauge,
    /// Bytes free where the store is.
    pub disk_free_bytes: Gauge,
    /// Seconds since the store last answered.
    pub store_poll_age: Gauge<f64, AtomicU64>,
    /// Events in the spool.
    pub spool_events: Gauge,
    /// Bytes that the spool takes.
    pub spool_bytes: Gauge,
    /// Events that went into the spool.
    pub spooled: Counter,
    /// Events that went on from the spool to the store.
    pub spool_moved: Counter,
    /// Open connections of senders.
    pub connections: Gauge<i64, AtomicI64>,
    /// Bytes of bodies in memory that are not stored yet.
    pub buffered_bytes: Gauge,
    /// 1 while the configuration file on disk is the one that runs.
    pub config_ok: Gauge,
    /// Pending events that the store has more than the scheduler; must stay 0.
    pub conservation_difference: Gauge,
    /// Invariants found broken; must stay 0.
    pub invariant_violations: Counter,
    /// Spans that the collector has.
    pub spans_exported: Counter,
    /// Spans that it does not get.
    pub spans_dropped: Counter,
}

impl Metrics {
    /// Registers everything; `durability` is the store's, for `fairlane_build_info`.
    #[must_use]
    pub fn new(durability: &str) -> Self {
        let mut names = Names::new();
        let build = BuildLabel { version: env!("CARGO_PKG_VERSION").to_owned(), durability: durability.to_owned() };
        // The crate appends `_info` to the name, as `_total` to those of counters.
        names.put("build", &["version", "durability"], "What runs", Info::new(build));
        let metrics = Self {
            accepted: names.add("events_accepted", &["source"], "Events that became durable, answered in time or not", Family::default()),
            rejected: names.add("events_rejected", &["source", "reason"], "Requests refused before they became events", Family::default()),
            shed: names.add("shed", &["source", "reason"], "Genuine requests refused for want of room", Family::default()),
            unverified: names.add("unverified_events", &["source", "reason"], "Requests that are not genuine and were let through (enforce: false)", Family::default()),
            handshakes: names.add("handshakes", &["source", "outcome"], "Handshakes of providers, by what they were answered", Family::default()),
            fetches: names.add("key_fetches", &["outcome"], "Keys of providers that were asked for, by outcome", Family::default()),
            fallback: names.add("fallback_events", &["source", "reason"], "Events without a fairness key", Family::default()),
            secrets: names.add("secret_matches", &["source", "index"], "Signatures by the place of the secret that matched", Family::default()),
            skew: names.add("clock_skew_seconds", &["source"], "The sender's clock minus ours, at its last signed time", Family::default()),
            new_groups: names.add("new_groups", &["source"], "Groups that a source had not had before, where the signature does not cover the key", Family::default()),
            new_groups_per_minute: names.add("new_groups_per_minute", &["source"], "The same in the last minute; one in overflow counts with each event", Family::default()),
            overflowed: names.add("overflowed_events", &["source", "reason"], "Events that went to an overflow lane: max_active, new_groups, within", Family::default()),
            overflow_events: names.add("overflow_events", &[], "Events that wait in the overflow lanes", Gauge::default()),
            delivered: names.add("events_delivered", &["source"], "Events that the upstream has, durably settled", Family::default()),
            suppressed: names.add("events_suppressed", &["source"], "Of the accepted events, those that repeat another one and were kept from delivery", Family::default()),
            released: names.add("events_released", &["source"], "Suppressed events that a person let go to the upstream after all", Family::default()),
            unmarked: names.add("dedupe_missing", &["source", "reason"], "Events of sources with dedupe in which its key was not found: they are never taken for a repeat", Family::default()),
            dead: names.add("events_dead", &["source"], "Events that went to the dead letters", Family::default()),
            replayed: names.add("events_replayed", &["source"], "Ended events that were made pending again", Family::default()),
            discarded: names.add("events_discarded", &["source"], "Events that a person threw away", Family::default()),
            attempts: names.add("attempts", &["outcome"], "Attempts to the upstream that ended, by outcome", Family::default()),
            attempt_seconds: names.add("attempt_seconds", &[], "From the start of an attempt to its end, the answer's body included", Histogram::new(ATTEMPT_SECONDS)),
            live: names.add("live_requests", &["outcome"], "Requests whose senders wait for the upstream's answer, by outcome", Family::default()),
            wait_seconds: names.add("wait_seconds", &[], "From the durable commit, or the due time, to the lease; replays apart", Histogram::new(WAIT_SECONDS)),
            wait_reasons: reasons(names.add("wait_reason_seconds", &["reason"], "Waits until the lease, of events and of live requests, by what they were for", Family::default())),
            quiet_wait_seconds: names.add("quiet_wait_seconds", &[], "The same for events that found their lane within its burst, but for those that their own group held meanwhile (a pause, its breaker, its rate, a Retry-After, an order key): the promise of fairness", Histogram::new(WAIT_SECONDS)),
            quiet: QuietWaits::default(),
            commit_seconds: names.add("commit_seconds", &[], "From the start of a batch's write to its durability", Histogram::new(COMMIT_SECONDS)),
            slots: names.add("slots", &["state"], "Attempts to the upstream that may be in flight: busy, of those slow, retry and replay, and free for any group; dedicated are taken out of the total for groups that have slots of their own", Family::default()),
            dedicated: names.add("dedicated_transitions", &["to"], "Groups that now stand so with slots of their own: steady, watching, promoted, cooling, no_lane_available", Family::default()),
            breaker: names.add("breaker_state", &[], "The upstream's breaker: 0 closed, 1 slow start, 2 half open, 3 open", Gauge::default()),
            outbreak: names.add("outbreak", &[], "1 while very many groups have turned slow at once and are being told from the others (docs/fairness.md), else 0", Gauge::default()),
            retries_overdue: names.add("retries_overdue", &[], "Retries whose time came more than 10 s ago although a slot is free and no pause, breaker, rate or cap holds them; 0", Gauge::default()),
            backlog_events: names.add("backlog_events", &[], "Events accepted and not settled", Gauge::default()),
            backlog_oldest_age: names.add("backlog_oldest_age_seconds", &[], "Age of the oldest of them", Gauge::default()),
            backlog_age: names.add("backlog_age_seconds", &[], "Groups by the age of their oldest pending event, as they stand at the scrape: not cumulative over time", Ages::default()),
            groups_over_age: names.add("groups_over_age", &[], "Groups whose oldest pending event is older than `alerts.backlog_age.group`", Gauge::default()),
            lanes_active: names.add("lanes_active", &[], "Lanes with events that are not settled", Gauge::default()),
            store_bytes: names.add("store_bytes", &[], "Bytes that the store takes", Gauge::default()),
            disk_free_bytes: names.add("disk_free_bytes", &[], "Bytes free on the store's file system", Gauge::default()),
            store_poll_age: names.add("store_poll_age_seconds", &[], "Since the store was last asked with success: since the driver's last turn or, where that is longer, since Redis last answered", Gauge::default()),
            spool_events: names.add("spool_events", &[], "Events in the spool, which Redis does not have yet; not in the backlog", Gauge::default()),
            spool_bytes: names.add("spool_bytes", &[], "Bytes that the spool takes, room that is set aside included", Gauge::default()),
            spooled: names.add("spooled", &[], "Events that went into the spool because Redis did not answer", Counter::default()),
            spool_moved: names.add("spool_moved", &[], "Events that went on from the spool to Redis", Counter::default()),
            connections: names.add("connections", &[], "Open connections of senders", Gauge::default()),
            buffered_bytes: names.add("buffered_bytes", &[], "Bytes of bodies in memory that are not stored yet", Gauge::default()),
            config_ok: names.add("config_ok", &[], "1 while the file on disk is the configuration that runs", Gauge::default()),
            conservation_difference: names.add("conservation_difference", &[], "Pending events that the store has more than the scheduler knows (fewer: below 0), but for what is on its way between them; must stay 0", Gauge::default()),
            invariant_violations: names.add("invariant_violations", &[], "Invariants found broken; must stay 0", Counter::default()),
            spans_exported: names.add("spans_exported", &[], "Spans that the collector took (otlp)", Counter::default()),
            spans_dropped: names.add("spans_dropped", &[], "Spans that were dropped, because the collector was away or too slow; events go on", Counter::default()),
            addresses: AllAddresses::new(&mut names),
            alerts: AlertMetrics::new(&mut names),
            cluster: ClusterMetrics::new(&mut names),
            names,
        };
        metrics.config_ok.set(1);
        for outcome in ["fetched", "not_there", "failed", "limited"] {
            drop(metrics.fetches.get_or_create(&OutcomeLabel { outcome }));
        }
        metrics
    }

    /// All metrics as `docs/metrics.md` lists them: two Markdown tables.
    #[must_use]
    pub fn reference() -> String {
        const HEAD: &str = "| name | kind | labels | what |\n| --- | --- | --- | --- |\n";
        let (all, groups) = (Self::new("fsync").names.rows(), GroupMetrics::new().rows());
        format!(
            "{HEAD}{all}\nWhere `admin.open_metrics` is false, also of the {TOP} groups with most pending events:\n\n{HEAD}{groups}"
        )
    }

    /// The counters of one source, to be kept with it.
    #[must_use]
    pub fn source(self: &Arc<Self>, name: &str) -> SourceMetrics {
        let label = SourceLabel { source: name.to_owned() };
        // Every source is there from its first scrape on, with zeros.
        drop(self.events_of(name));
        SourceMetrics {
            all: Arc::clone(self),
            name: name.to_owned(),
            skew: self.skew.get_or_create_owned(&label),
            secrets: parking_lot::Mutex::default(),
        }
    }

    /// The counters of one source's events, to be kept by who counts them.
    #[must_use]
    pub fn events_of(&self, source: &str) -> EventMetrics {
        let label = SourceLabel { source: source.to_owned() };
        let fallback = |reason: &str| {
            let label = ReasonLabel { source: source.to_owned(), reason: reason.to_owned() };
            self.fallback.get_or_create_owned(&label)
        };
        EventMetrics {
            accepted: self.accepted.get_or_create_owned(&label),
            delivered: self.delivered.get_or_create_owned(&label),
            suppressed: self.suppressed.get_or_create_owned(&label),
            released: self.released.get_or_create_owned(&label),
            dead: self.dead.get_or_create_owned(&label),
            replayed: self.replayed.get_or_create_owned(&label),
            discarded: self.discarded.get_or_create_owned(&label),
            fallback: Missing::ALL.into_iter().map(|m| (m, fallback(m.as_str()))).collect(),
            no_rule: fallback("no_rule"),
        }
    }

    /// These outcomes of attempts are there from the first scrape on, with zeros: a rate of what is not there cannot be asked for.
    pub fn begin_attempts(&self, outcomes: impl IntoIterator<Item = &'static str>) {
        for outcome in outcomes {
            drop(self.attempts.get_or_create(&OutcomeLabel { outcome }));
        }
    }

    /// These ends of live requests, in the same way.
    pub fn begin_live(&self, outcomes: impl IntoIterator<Item = &'static str>) {
        for outcome in outcomes {
            drop(self.live.get_or_create(&OutcomeLabel { outcome }));
        }
    }

    /// A request refused before any source was found for it.
    pub fn rejected_without_source(&self, reason: &'static str) {
        self.rejected.get_or_create(&ReasonLabel { source: String::new(), reason: reason.to_owned() }).inc();
    }

    /// A group came that the source had not had before.
    pub fn new_group(&self, source: &str) {
        self.new_groups.get_or_create(&SourceLabel { source: source.to_owned() }).inc();
    }

    /// So many of them came in a minute.
    pub fn new_groups_per_minute(&self, source: &str, count: u32) {
        self.new_groups_per_minute.get_or_create(&SourceLabel { source: source.to_owned() }).set(count.into());
    }

    /// An event goes to an overflow lane, for this reason.
    pub fn overflowed(&self, source: &str, reason: &'static str) {
        self.overflowed.get_or_create(&ReasonLabel { source: source.to_owned(), reason: reason.to_owned() }).inc();
    }

    /// An event got its lease after `wait`; `quiet` when it had found its lane within its burst and its own group did not stand still.
    pub fn waited(&self, wait: Duration, quiet: bool) {
        self.wait_seconds.observe(wait.as_secs_f64());
        if quiet {
            self.quiet_wait_seconds.observe(wait.as_secs_f64());
            self.quiet.add(wait);
        }
    }

    /// An event or a live request got its lease after it had waited for this.
    pub fn waited_for(&self, split: &WaitSplit) {
        for (reason, span) in split.iter() {
            if let Some(counter) = self.wait_reasons.get(reason as usize) {
                counter.inc_by(span.as_secs_f64());
            }
        }
    }

    /// What the scheduler stands at: slots by who holds them (names and counts), the breaker's position (0 to 3).
    pub fn scheduler(&self, slots: [(&'static str, u32); 6], breaker: i64) {
        for (state, count) in slots {
            self.slots.get_or_create(&StateLabel { state }).set(count.into());
        }
        self.breaker.set(breaker);
    }

    /// A group stands so with slots of its own now.
    pub fn dedicated(&self, to: &'static str) {
        self.dedicated.get_or_create(&ToLabel { to }).inc();
    }

    /// How old the oldest event of each group is, from which age on a group is late, and how many retries are overdue.
    pub fn backlog(&self, ages: impl Iterator<Item = Duration>, late: Duration, overdue: u64) {
        let mut old = 0;
        self.backlog_age.set(ages.inspect(|age| old += i64::from(*age > late)));
        self.groups_over_age.set(old);
        self.retries_overdue.set(i64::try_from(overdue).unwrap_or(i64::MAX));
    }

    /// An attempt to the upstream ended like this, after `took`.
    pub fn attempted(&self, outcome: &'static str, took: Duration) {
        self.attempts.get_or_create(&OutcomeLabel { outcome }).inc();
        self.attempt_seconds.observe(took.as_secs_f64());
    }

    /// A provider's key was asked for: `fetched`, `not_there`, `failed`, or there were too many (`limited`).
    pub fn fetched(&self, outcome: &'static str) {
        self.fetches.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A request whose sender waited for the upstream's answer ended like this.
    pub fn lived(&self, outcome: &'static str) {
        self.live.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// The text exposition format of Prometheus (version 0.0.4 with OpenMetrics names).
    ///
    /// # Errors
    /// When a value cannot be written, which formatting into memory does not do.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        self.encode_with(&[])
    }

    /// The same with metrics of these groups.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_with(&self, groups: &[GroupNumbers]) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode_registry(&mut text, self.names.registry())?;
        let of_groups = GroupMetrics::new();
        groups.iter().for_each(|group| of_groups.set(group));
        text::encode_registry(&mut text, of_groups.registry())?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }

    /// Events accepted so far, by source.
    #[must_use]
    pub fn accepted_of(&self, source: &str) -> u64 {
        self.accepted.get(&SourceLabel { source: source.to_owned() }).map_or(0, |counter| counter.get())
    }
}

/// The counters of one source's events: what became durable, and nothing before it (I7).
#[derive(Debug)]
pub struct EventMetrics {
    accepted: Counter,
    delivered: Counter,
    suppressed: Counter,
    released: Counter,
    dead: Counter,
    replayed: Counter,
    discarded: Counter,
    fallback: HashMap<Missing, Counter>,
    no_rule: Counter,
}

impl EventMetrics {
    /// An event is durable, whether or not its sender still waits for the answer.
    pub fn accepted(&self) {
        self.accepted.inc();
    }

    /// Of the accepted ones, an event was kept from delivery.
    pub fn suppressed(&self) {
        self.suppressed.inc();
    }

    /// Such an event goes to the upstream after all.
    pub fn released(&self) {
        self.released.inc();
    }

    /// A durable event is in the fallback lane, for this reason.
    pub fn fallback(&self, key_source: &KeySource) {
        match key_source {
            KeySource::Rule { .. } => {}
            KeySource::Missing(missing) => {
                self.fallback.get(missing).map(Counter::inc);
            }
            KeySource::NoRule => {
                self.no_rule.inc();
            }
        }
    }

    /// An event is delivered, durably.
    pub fn delivered(&self) {
        self.delivered.inc();
    }

    /// An event is discarded, durably.
    pub fn discarded(&self) {
        self.discarded.inc();
    }

    /// An event is dead, durably.
    pub fn dead(&self) {
        self.dead.inc();
    }

    /// An ended event is pending again, durably.
    pub fn replayed(&self) {
        self.replayed.inc();
    }
}

/// The counters of one source's requests.
#[derive(Debug)]
pub struct SourceMetrics {
    all: Arc<Metrics>,
    name: String,
    skew: Gauge<f64, AtomicU64>,
    secrets: parking_lot::Mutex<HashMap<usize, Counter>>,
}

impl SourceMetrics {
    /// The signature matched with the secret at this place of the list.
    pub fn secret_matched(&self, index: usize) {
        let mut secrets = self.secrets.lock();
        let counter = secrets.entry(index).or_insert_with(|| {
            let index = u64::try_from(index).unwrap_or(u64::MAX);
            self.all.secrets.get_or_create_owned(&SecretLabel { source: self.name.clone(), index })
        });
        counter.inc();
    }

    /// The sender signed a time that is this far from ours.
    pub fn skew(&self, seconds: i64) {
        // A skew that does not fit 52 bits is as wrong as one that does.
        #[expect(clippy::cast_precision_loss, reason = "shown, not computed with")]
        self.skew.set(seconds as f64);
    }

    /// These reasons of refusals, for what a request is and for want of room, are there from the first scrape on.
    pub fn begin(&self, rejected: &[&'static str], shed: &[&'static str]) {
        for reason in rejected {
            drop(self.all.rejected.get_or_create(&self.reason(reason)));
        }
        for reason in shed {
            drop(self.all.shed.get_or_create(&self.reason(reason)));
        }
    }

    /// The source answers handshakes: how they end is there from the first scrape on.
    pub fn begin_handshakes(&self) {
        for outcome in ["answered", "refused", "failed", "limited"] {
            drop(self.handshakes_that(outcome));
        }
    }

    fn handshakes_that(&self, outcome: &'static str) -> Counter {
        self.all.handshakes.get_or_create_owned(&HandshakeLabel { source: self.name.clone(), outcome })
    }

    /// A request was refused for what it is.
    pub fn rejected(&self, reason: &'static str) {
        self.all.rejected.get_or_create(&self.reason(reason)).inc();
    }

    /// A request that is not genuine was let through.
    pub fn unverified(&self, reason: &'static str) {
        self.all.unverified.get_or_create(&self.reason(reason)).inc();
    }

    /// An event has no dedupe key, for this reason.
    pub fn not_deduplicated(&self, missing: Missing) {
        self.all.unmarked.get_or_create(&self.reason(missing.as_str())).inc();
    }

    /// A handshake was `answered`, `refused`, could not be completed (`failed`), or there were too many (`limited`).
    pub fn handshake(&self, outcome: &'static str) {
        self.handshakes_that(outcome).inc();
    }

    /// A genuine request was refused for want of room.
    pub fn shed(&self, reason: &'static str) {
        self.all.shed.get_or_create(&self.reason(reason)).inc();
    }

    fn reason(&self, reason: &'static str) -> ReasonLabel {
        ReasonLabel { source: self.name.clone(), reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_exposed_under_its_documented_name() {
        let metrics = Arc::new(Metrics::new("fsync"));
        let source = metrics.source("/hooks");
        let events = metrics.events_of("/hooks");
        let rule = KeySource::Rule { rule: "body.id".into(), signed: true };
        for key_source in [rule, KeySource::Missing(Missing::NotJson), KeySource::NoRule] {
            events.accepted();
            events.fallback(&key_source);
        }
        events.delivered();
        source.rejected("bad_signature");
        source.shed("full");
        source.unverified("stale");
        source.handshake("answered");
        source.secret_matched(1);
        source.skew(-3);
        metrics.rejected_without_source("unknown_path");
        metrics.fetched("not_there");
        metrics.commit_seconds.observe(0.001);
        metrics.attempted("delivered", Duration::from_millis(3));
        metrics.lived("relayed");
        metrics.dedicated("promoted");
        let text = metrics.encode().unwrap();
        for line in [
            r#"fairlane_events_accepted_total{source="/hooks"} 3"#,
            r#"fairlane_events_delivered_total{source="/hooks"} 1"#,
            r#"fairlane_events_dead_total{source="/hooks"} 0"#,
            r#"fairlane_events_rejected_total{source="/hooks",reason="bad_signature"} 1"#,
            r#"fairlane_events_rejected_total{source="",reason="unknown_path"} 1"#,
            r#"fairlane_shed_total{source="/hooks",reason="full"} 1"#,
            r#"fairlane_unverified_events_total{source="/hooks",reason="stale"} 1"#,
            r#"fairlane_handshakes_total{source="/hooks",outcome="answered"} 1"#,
            r#"fairlane_fallback_events_total{source="/hooks",reason="not_json"} 1"#,
            r#"fairlane_fallback_events_total{source="/hooks",reason="no_rule"} 1"#,
            r#"fairlane_secret_matches_total{source="/hooks",index="1"} 1"#,
            r#"fairlane_clock_skew_seconds{source="/hooks"} -3.0"#,
            r#"fairlane_build_info{version="0.1.0",durability="fsync"} 1"#,
            r#"fairlane_key_fetches_total{outcome="not_there"} 1"#,
            r#"fairlane_key_fetches_total{outcome="fetched"} 0"#,
            r#"fairlane_dedicated_transitions_total{to="promoted"} 1"#,
            "fairlane_commit_seconds_count 1",
            r#"fairlane_attempts_total{outcome="delivered"} 1"#,
            r#"fairlane_live_requests_total{outcome="relayed"} 1"#,
            "fairlane_attempt_seconds_count 1",
            r#"fairlane_attempt_seconds_bucket{le="0.005"} 1"#,
            "fairlane_invariant_violations_total 0",
            "fairlane_config_ok 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(metrics.accepted_of("/hooks"), 3);
    }

    #[test]
    fn ages_stand_as_they_are_and_groups_are_named_only_where_they_are_given() {
        let metrics = Metrics::new("fsync");
        let ages = [0, 0, 30, 400, 1_000_000].map(Duration::from_secs);
        metrics.backlog(ages.into_iter(), Duration::from_mins(5), 2);
        metrics.backlog(ages.into_iter().skip(2), Duration::from_mins(5), 1);
        let text = metrics.encode().unwrap();
        for line in [
            r#"fairlane_backlog_age_seconds_bucket{le="15.0"} 0"#,
            r#"fairlane_backlog_age_seconds_bucket{le="60.0"} 1"#,
            r#"fairlane_backlog_age_seconds_bucket{le="900.0"} 2"#,
            r#"fairlane_backlog_age_seconds_bucket{le="+Inf"} 3"#,
            "fairlane_backlog_age_seconds_count 3",
            "fairlane_groups_over_age 2",
            "fairlane_retries_overdue 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("group="), "{text}");
        let noisy = GroupNumbers { group: "noisy".into(), backlog: 7, ..GroupNumbers::default() };
        let text = metrics.encode_with(&[noisy]).unwrap();
        assert!(text.lines().any(|l| l == r#"fairlane_group_backlog_events{group="noisy"} 7.0"#), "{text}");
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    }

    #[test]
    fn the_documented_list_is_the_one_that_is_registered() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once("| name |").expect("docs/metrics.md has lost its tables");
        let (_, after) = rest.rsplit_once("|\n").expect("docs/metrics.md has lost its tables");
        let wanted = format!("{before}{}{after}", Metrics::reference());
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(path, &wanted).unwrap();
        }
        let now = std::fs::read_to_string(path).unwrap();
        assert_eq!(now, wanted, "UPDATE_EXPECTED=1 cargo test --lib metrics writes the list again");
    }
}
