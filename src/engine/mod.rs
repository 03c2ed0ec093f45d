//! The scheduler: every decision after verification, and nothing else.
//!
//! [`Engine`] is a state machine without I/O, without a clock and without threads, in the manner of `quinn-proto`. Its
//! owner (the driver) tells it facts and asks it what to do. There are five kinds of method:
//!
//! - **Admission**: [`admit`](Engine::admit) says before an event is written whether its group has room for it.
//! - **Facts**, `on_*`: something happened. Events became durable ([`on_appended`](Engine::on_appended)) or were found
//!   ([`on_recovered`](Engine::on_recovered), [`on_loaded`](Engine::on_loaded), [`on_due_loaded`](Engine::on_due_loaded)), an attempt ended
//!   ([`on_finished`](Engine::on_finished)), a sender waits for an answer or has gone ([`on_live`](Engine::on_live),
//!   [`on_live_gone`](Engine::on_live_gone)), a batch became durable or did not ([`on_settled`](Engine::on_settled),
//!   [`on_settle_failed`](Engine::on_settle_failed)), time passed ([`on_timeout`](Engine::on_timeout)).
//! - **Commands**: a person or the configuration wants something (`pause`, `cancel`, `remove`, `set_policies`, `begin_drain` …).
//! - **Polls**: what to do now ([`poll_request`](Engine::poll_request), until it gives `None`) and when to come back by yourself
//!   ([`poll_timeout`](Engine::poll_timeout)). After any fact or command, poll both again.
//! - **Getters**: what stands.
//!
//! Time goes in with every call and never goes backwards inside (I8). The same seed and the same calls give the same
//! requests (I9). It holds names, numbers and times, never a body.
//!
//! # An event's way through it
//!
//! *Queued* (durable, fresh) → leased in its group's turn → *in flight* → its attempt ends → *settling* (what follows is decided and not
//! durable yet) → ended, or *retrying* until its due time, or handed back. Nothing is dispatched before it and the beginning of its
//! attempt are durable, and nothing is forgotten before its end is (I7); a settlement that failed is asked for again until it is.
//!
//! # The rules, and where they live
//!
//! R1 tags and turns: `tags`, `field`, `schedule` · R2 prices: `price`, `lease` · R3 head start: `schedule`, `dormant` · R4 caps and leases:
//! `group`, `lease` · R4b slow groups and ramp: `group`, `field`, `outbreak` · R5 policies: `command` · R6 fresh, retries, replays: `lane`, `inside` · R7 order:
//! `order` · R8 breakers: `breaker` · R10 bounds: `overflow` · R11 two levels: `schedule` · R12 dedicated slots: `dedication`,
//! `dedicated`, `own` · what follows an attempt: `retry` · senders that wait for an answer: `live` · why an event waited: `wait` · caps
//! of backlogs: `admit` · lanes that move between nodes: `section` · before the store goes to a successor: `handover` · I1–I9: `invariant`. An order key belongs to its
//! lane: where `within` splits a group, events of one key in two lanes are two keys.
//!
//! # Bounds
//!
//! Of each lane at most [`Settings::window`] fresh events are in memory, fewer when there are very many lanes; at most 64 retrying ones, or
//! one for each of at most 10,000 order keys. Lanes are at most [`Settings::max_active`], then shared. A lane without pending events leaves memory; what its group owes stays as a
//! small record until it is paid. Every step takes O(log n) in the number of ready groups and does not look at blocked, idle or
//! indebted ones.

mod active;
mod admit;
mod breaker;
mod command;
mod counts;
mod dedicated;
mod dedication;
mod dormant;
mod due;
mod ev;
mod fact;
mod field;
mod fifo;
mod group;
mod handover;
mod hung;
mod index;
mod inside;
mod invariant;
mod lane;
mod lazy;
mod lease;
mod ledger;
mod live;
mod names;
mod notice;
mod order;
mod outbreak;
mod overflow;
mod own;
mod price;
mod rate;
mod request;
mod retry;
mod rng;
mod schedule;
mod section;
mod settings;
mod settle;
mod shards;
mod slab;
mod snapshot;
mod stats;
mod survey;
mod tags;
#[cfg(test)]
mod tests;
mod wait;
mod warm;
mod working;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

pub use admit::{Admitted, Excess, Over};
pub use dedication::{DedicatedInfo, DedicatedView, Dedication};
pub use fact::{DIVERTED, Ending, Queued, Removal, RetryAfter, Scope, WITHDRAWN, Was};
pub use hung::HungAttempts;
pub use live::{LiveId, Unserved};
pub use notice::Notice;
pub use overflow::{OVERFLOW_LANES, Wanted};
pub use request::{
    Batch, BreakerState, Dispatch, GroupView, Held, LiveDispatch, Request, Settle, Slots, Sort, State, Ticket, Totals,
    Verdict,
};
pub use settings::{
    Backoff, Breakers, Charge, Dedicated, GroupBreaker, Policy, Rate, Retry, Settings, Slow, UpstreamBreaker,
};
pub use shards::SectionView;
pub use survey::{Found, Survey};

use crate::event::{Group, Lane, Mono, Now, Seq, Wall};
use admit::Coming;
use counts::{Counts, Stage};
use dedication::Dedications;
use dormant::{Dormant, Moment};
use due::Retries;
use ev::Ev;
use field::Field;
use group::GroupState;
use lane::{LaneState, Limits};
use lease::Leases;
use ledger::Ledgers;
use live::Live;
use names::Names;
use notice::Notices;
use overflow::Overflow;
use price::Durations;
use rate::Gcra;
use rng::Rng;
use section::Sections;
use settle::Outbox;
use slab::Slab;
use stats::Minute;
use tags::{Heap, Places, Tag};
use wait::{Conditions, RecentWaits};

/// Gives a group its policy. Asked when the group becomes active and after [`Engine::set_policies`]; it should be quick.
pub type Policies = Box<dyn Fn(&Group) -> Policy + Send>;

/// Reads of single lanes under way at once, so that a restart with a million lanes does not ask for all of them.
const LOADS_MAX: usize = 64;

/// A read that failed is asked for again after this long: the store's own trouble takes longer than a pause, shorter than a timeout.
const LOAD_AGAIN: Duration = Duration::from_millis(100);

/// Fresh events of all lanes in memory, roughly: beyond it every lane keeps fewer.
const EVENTS_MAX: usize = 1_000_000;

/// A lane keeps at least so many events in memory.
const WINDOW_MIN: usize = 2;

/// The scheduler. See the top of this module.
pub struct Engine {
    settings: Settings,
    policies: Policies,
    rng: Rng,
    /// The latest time it was told; I8.
    now: Mono,
    /// Counts every change of a group's standing: who became ready first, without a clock.
    step: u64,

    names: Names,
    overflow: Overflow,
    groups: Slab<GroupState>,
    lanes: Slab<LaneState>,
    dormant: Dormant,
    ledgers: Ledgers,
    coming: Coming,
    dedicated: Dedications,
    sections: Sections,
    /// Groups that a person paused, active or not.
    paused: BTreeSet<Group>,
    /// Lanes that wait with a source's pause: mostly none, and then nobody looks for one.
    parked: usize,

    // R1, R3.
    field: Field,
    inner_places: Places,
    v: Tag,
    top: Tag,
    /// When a group changes its standing by time alone.
    wakes: Heap<Mono>,
    wake_places: Places,

    leases: Leases,
    live: Live,
    upstream: Upstream,
    retries: Retries,
    outbox: Outbox,
    requests: VecDeque<Request>,
    notices: Notices,
    loads: usize,
    /// Lanes whose read failed, by when to ask again.
    reloads: VecDeque<(Mono, u32)>,
    draining: bool,
    /// The store is about to go to a successor.
    events_held: bool,

    counts: Counts,
    totals: Totals,
    /// The most that a lease was ever charged.
    longest_us: u64,
    violations: u64,
    last_violation: Option<&'static str>,
    minute: Minute,
    conditions: Conditions,
    waited: RecentWaits,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("now", &self.now).field("totals", &self.totals()).finish_non_exhaustive()
    }
}

/// What is known about the upstream as a whole.
#[derive(Debug, Default)]
struct Upstream {
    breaker: breaker::Upstream,
    durations: Durations,
    outbreak: outbreak::Outbreak,
    rate: Gcra,
    paused: bool,
    /// When a pick that was refused for time alone is worth another look.
    wake: Option<Mono>,
    /// The step of the last pick with a breaker that was not closed, or in an outbreak.
    unclosed: u64,
    /// The time that counts for [`Settings::order_max_hold`].
    working: working::Working,
}

impl Engine {
    /// An engine that knows no event. `policies` gives each group its policy; `seed` is its only randomness.
    #[must_use]
    pub fn new(settings: Settings, policies: Policies, seed: u64) -> Self {
        Self {
            settings,
            policies,
            rng: Rng::new(seed),
            now: Mono(0),
            step: 0,
            names: Names::default(),
            overflow: Overflow::default(),
            groups: Slab::default(),
            lanes: Slab::default(),
            dormant: Dormant::default(),
            ledgers: Ledgers::default(),
            coming: Coming::default(),
            dedicated: Dedications::default(),
            sections: Sections::default(),
            paused: BTreeSet::new(),
            parked: 0,
            field: Field::default(),
            inner_places: Places::default(),
            v: Tag::default(),
            top: Tag::default(),
            wakes: Heap::default(),
            wake_places: Places::default(),
            leases: Leases::default(),
            live: Live::default(),
            upstream: Upstream::default(),
            retries: Retries::default(),
            outbox: Outbox::default(),
            requests: VecDeque::new(),
            notices: Notices::default(),
            loads: 0,
            reloads: VecDeque::new(),
            draining: false,
            events_held: false,
            counts: Counts::default(),
            totals: Totals::default(),
            longest_us: 0,
            violations: 0,
            last_violation: None,
            minute: Minute::default(),
            conditions: Conditions::default(),
            waited: RecentWaits::default(),
        }
    }

    // ---- facts -------------------------------------------------------------------------------------------------

    /// Events that have just become durable, in the order of their seqs; all appends are told, in the order of commits.
    pub fn on_appended(&mut self, events: Vec<Queued>, now: Now) {
        let now = self.tick(now);
        let known = self.warm_batch(&events);
        for (event, known) in events.into_iter().zip(known) {
            let (name, mut ev) = Ev::from_queued(event, now);
            self.overflow.enter(ev.member(), &name);
            // It waits from its commit, however long that took.
            ev.since = ev::line(now.mono);
            let gid = known.unwrap_or_else(|| self.group_for(&name.group));
            let lid = self.lane_in(gid, &name);
            self.totals.appended += 1;
            self.note_arrival(gid, lid, &mut ev, now.mono);
            self.shift(lid, None, Some(Stage::Queued), 1);
            let limits = self.limits();
            if let Some(lane) = self.lanes.get_mut(lid) {
                lane.section = ev.seq.section();
                lane.held = self.sections.holds(lane.section);
                lane.append(ev, limits);
            }
            self.touch(lid, now.mono);
        }
    }

    /// A lane with pending events that was found at the start, with how many, and when the oldest was received. Told once a lane, before
    /// any event of it; its events are asked for when its turn comes.
    pub fn on_recovered(&mut self, lane: &Lane, fresh: u64, retrying: u64, oldest: Wall, now: Now) {
        let now = self.tick(now);
        let (_, lid) = self.lane_for(lane);
        self.totals.recovered += fresh + retrying;
        self.shift(lid, None, Some(Stage::Queued), fresh);
        self.shift(lid, None, Some(Stage::Retrying), retrying);
        if let Some(lane) = self.lanes.get_mut(lid) {
            lane.more |= fresh > 0;
            lane.unread |= fresh > 0;
            lane.unread_retries |= retrying > 0;
            lane.stored_from = ev::on_line(now, oldest);
        }
        if retrying > 0 {
            self.retries.recover(lid);
        }
        self.touch(lid, now.mono);
    }

    /// What [`Request::Load`] found, in the order of seqs; `more` when the store has further ones behind the last.
    pub fn on_loaded(&mut self, lane: &Lane, events: Vec<Queued>, more: bool, now: Now) {
        let now = self.tick(now);
        self.loads = self.loads.saturating_sub(1);
        let Some(lid) = self.find(lane) else { return };
        let events: Vec<Ev> = events.into_iter().map(|event| Ev::from_queued(event, now).1).collect();
        let under_way = |ev: &Ev| self.retries.place(ev.seq).is_some();
        let known = events.iter().filter(|ev| under_way(ev)).map(|ev| ev.seq).collect();
        let limits = self.limits();
        if let Some(lane) = self.lanes.get_mut(lid) {
            lane.loaded(events, more, known, limits, now.mono);
        }
        self.touch(lid, now.mono);
    }

    /// A [`Request::Load`] failed; it is asked for again a little later.
    pub fn on_load_failed(&mut self, lane: &Lane, now: Now) {
        let now = self.tick(now);
        self.loads = self.loads.saturating_sub(1);
        if let Some(lid) = self.find(lane) {
            self.reloads.push_back((now.mono.plus(LOAD_AGAIN), lid));
        }
    }

    /// Time has come to what [`poll_timeout`](Self::poll_timeout) said. Calling it early or late is harmless.
    pub fn on_timeout(&mut self, now: Now) {
        let now = self.tick(now);
        self.upstream.breaker.tick(now.mono);
        while let Some((at, gid)) = self.wakes.first() {
            if at > now.mono {
                break;
            }
            self.wakes.remove(&mut self.wake_places, gid);
            self.refresh(gid, now.mono);
        }
        self.outbreak_timer(now.mono);
        self.lease_timers(now);
        self.live_timers(now.mono);
        self.fall_due(now.mono);
        self.outbox.tick(now.mono);
        self.look_at_demands(now.mono);
        self.foreign_timers(now.mono);
        while let Some((_, lid)) = self.reloads.pop_front_if(|(at, _)| *at <= now.mono) {
            self.ask(lid);
        }
    }

    // ---- polls -------------------------------------------------------------------------------------------------

    /// The next thing to do, or `None` when there is nothing now. Leases are given here, not before: weights, caps, rates and
    /// pauses act on what they find (R5). Stop polling while there is no room to execute more.
    pub fn poll_request(&mut self, now: Now) -> Option<Request> {
        let now = self.tick(now);
        if let Some(request) = self.requests.pop_front() {
            return Some(request);
        }
        while self.lease_next(now) && self.requests.is_empty() {}
        if let Some(request) = self.requests.pop_front() {
            return Some(request);
        }
        self.outbox.next().or_else(|| self.next_due_load(now))
    }

    /// When to call [`on_timeout`](Self::on_timeout) and poll again, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        let upstream = if self.nobody_ready() { None } else { self.upstream.wake };
        let times = [
            self.wakes.first().map(|(at, _)| at),
            self.leases.wake(),
            self.live.wake(),
            self.retries.wake(),
            self.outbox.wake(),
            self.dedicated.wake,
            self.sections.wake(),
            self.reloads.front().map(|(at, _)| *at),
            self.upstream.outbreak.until(),
            upstream,
        ];
        times.into_iter().flatten().min()
    }

    // ---- inside ------------------------------------------------------------------------------------------------

    /// Takes over the time of a call, which may be a little older than one before (I8), and pays a step's part of the housekeeping.
    fn tick(&mut self, now: Now) -> Now {
        self.note_condition(now.mono);
        self.now = self.now.max(now.mono);
        self.dormant.sweep(self.moment());
        Now { mono: self.now, wall: now.wall }
    }

    fn moment(&self) -> Moment {
        let past = self.upstream.breaker.past(&self.settings.breakers, self.now);
        Moment { v: self.v, now: self.now, past }
    }

    fn limits(&self) -> Limits {
        let window = (EVENTS_MAX / self.lanes.len().max(1)).max(WINDOW_MIN).min(self.settings.window.max(WINDOW_MIN));
        Limits { window }
    }

    /// Moves `n` events of a lane from one stage to another, in all three books.
    fn shift(&mut self, lid: u32, from: Option<Stage>, to: Option<Stage>, n: u64) {
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        let gid = lane.group;
        if lane.held {
            self.sections.shift(lane.section, from, to, n);
        }
        let enough = lane.counts.shift(from, to, n);
        self.counts.shift(from, to, n);
        if let Some(group) = self.groups.get_mut(gid) {
            group.counts.shift(from, to, n);
        }
        if !enough {
            self.violation("I1: more events left a lane than were in it");
        }
    }

    /// A lane has changed: what follows for its place, for reading more, for its group, for memory.
    fn touch(&mut self, lid: u32, now: Mono) {
        self.read_on(lid);
        self.feed(lid);
        self.stand_lane(lid);
        let Some(gid) = self.lanes.get(lid).map(|lane| lane.group) else { return };
        self.heal(lid);
        self.retire(lid);
        self.touch_group(gid, now);
    }

    /// A group has changed: what follows for its place, for its live requests, for memory.
    fn touch_group(&mut self, gid: u32, now: Mono) {
        self.refresh(gid, now);
        if self.turn_away(gid, now) {
            self.refresh(gid, now);
        }
        self.check_group(gid);
        self.retire_group(gid);
    }

    /// Asks for the lane's next events, when few are left. A lane of which nothing is in memory waits for its turn.
    fn read_on(&mut self, lid: u32) {
        let limits = self.limits();
        let Some(lane) = self.lanes.get_mut(lid) else { return };
        let Some(load) = lane.wants(limits) else { return };
        if load == lane::Load::Fresh && !lane.was_read() {
            return;
        }
        lane.loading = Some(load);
        self.ask(lid);
    }

    /// Asks for what the lane is loading.
    fn ask(&mut self, lid: u32) {
        let n = self.limits().window;
        let Some(lane) = self.lanes.get(lid) else { return };
        let (Some(after), Some(group)) = (lane.loads_after(), self.groups.get(lane.group)) else { return };
        // One that was never read begins where its section does.
        let after = after.max(Seq::before(lane.section));
        let lane = Lane { group: group.name.clone(), inner: lane.inner.clone() };
        self.loads += 1;
        self.requests.push_back(Request::Load { lane, after, n });
    }

    /// A lane whose count says that there is more than can be found: the count is put right, for the lane must not stand in memory for
    /// ever, and it is a violation.
    fn heal(&mut self, lid: u32) {
        let Some(lane) = self.lanes.get(lid) else { return };
        if lane.is_lost() {
            let lost = lane.counts.queued;
            self.shift(lid, Some(Stage::Queued), None, lost);
            self.totals.recovered = self.totals.recovered.saturating_sub(lost);
            self.violation("I1: a lane has fewer events in the store than were counted");
        }
    }

    /// Counts the event, and says whether it finds its group within its head start.
    fn note_arrival(&mut self, gid: u32, lid: u32, ev: &mut Ev, now: Mono) {
        let guess = self.upstream.durations.guess_us();
        let (Some(group), Some(lane)) = (self.groups.get_mut(gid), self.lanes.get(lid)) else { return };
        if group.counts.total() + 1 >= ledger::STATS_EVENTS && group.ledger.stats.is_none() {
            group.ledger.stats.get_or_insert_default();
        }
        if let Some(stats) = &mut group.ledger.stats {
            stats.minute.arrived(now);
        }
        self.minute.arrived(now);
        group.ledger.accepted += u64::from(!ev.is_replay());
        let price = price::price(&self.settings, lane.estimate.micros().unwrap_or(guess));
        let ahead = Tag::of(price.saturating_mul(group.counts.queued), group.weight);
        let start = group.tag.max(self.v.minus(schedule::burst(&self.settings, group.weight)));
        // With slots of its own it is outside the rotation, whose promise this is about.
        ev.quiet = group.own.is_none() && start.plus(ahead) <= self.v;
        self.note_demand(gid, now);
    }

    /// An invariant does not hold: wrong in a test, counted in service.
    fn violation(&mut self, what: &'static str) {
        self.violations += 1;
        self.last_violation = Some(what);
    }
}

/// How long a duration is in whole microseconds.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
