//! One group: its policy, its tag, its lanes and why it does or does not run.

use std::collections::BTreeMap;

use super::breaker::OfGroup;
use super::counts::Counts;
use super::field::Class;
use super::inside::{Inside, Kind};
use super::lazy::{Empty, Lazy};
use super::ledger::Ledger;
use super::live::Calls;
use super::own::{self, Own};
use super::price::Ewma;
use super::rate::Gcra;
use super::stats::LastSecond;
use super::tags::{Tag, Turn, Weight};
use super::wait::Stops;
use super::{Policy, Settings, Upstream};
use crate::event::{Group, Mono};

/// Where a group stands. It is in the field when and only when it is ready (I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Idle,
    Ready(Class),
    /// Ready on slots of its own: in no heap (R12).
    Own(Class),
    Capped,
    Limited,
    Paused,
    Broken,
    RetryAfter,
    RetrySlots,
}

/// A group. Its fields lie as they are written: what every step needs together in one cache line, and what few steps need at the end.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct GroupState {
    // Its turn.
    pub(super) tag: Tag,
    pub(super) v: Tag,
    pub(super) top: Tag,
    pub(super) weight: Weight,
    /// The step in which it became ready.
    pub(super) since: u64,

    // What it has to do.
    /// Sums over its lanes.
    pub(super) counts: Counts,
    pub(super) retry_in_flight: u32,
    /// Attempts in flight that are longer than `slow_after`.
    pub(super) long: u32,
    /// R11: its lane without a name.
    pub(super) plain: Option<u32>,
    /// Senders that wait for an answer; most groups never have one.
    pub(super) live: Lazy<Calls>,
    pub(super) breaker: Lazy<OfGroup>,
    /// Where its policy has a rate.
    pub(super) rate: Option<Box<Gcra>>,

    /// R11: those of its lanes that may go.
    pub(super) inside: Inside,
    /// A `Retry-After` holds it until then.
    pub(super) held_until: Mono,
    /// R12: what it has where it has slots of its own.
    pub(super) own: Option<Box<Own>>,
    /// The number of the outbreak in which an attempt of it ended quickly.
    pub(super) quick: u32,
    /// What it wants of the slots, in thousandths of weight.
    pub(super) wish: u32,

    /// I4: what its leases were charged, and what the ended ones were served; equal with nothing in flight.
    pub(super) charged_us: u64,
    pub(super) served_us: u64,
    pub(super) estimate: Ewma,
    /// When it last had a failure that the upstream's breaker counts.
    pub(super) failed: Option<Mono>,
    pub(super) name: Group,

    /// What it stood still for.
    pub(super) stops: Stops,
    pub(super) standing: Standing,
    /// Paused by command, whatever the policy says.
    pub(super) paused: bool,
    /// Its turn is another one than that in the field.
    pub(super) moved: bool,
    /// It has a time at which it is looked at again.
    pub(super) wakes: bool,
    /// Since it became ready, a gate was closed to it: I6 says nothing about it.
    pub(super) gated: bool,
    /// Its tag has charges of another policy, or of an earlier time of its life: I6 says nothing about it.
    pub(super) changed: bool,
    pub(super) slow: bool,
    pub(super) side: bool,
    /// How its last failed attempt was answered, `Some(None)` when it was not; for people.
    pub(super) last_failure: Option<Option<u16>>,
    /// Leases of lost nodes that count in its cap; a cap that is higher than this can hold knows no more of them.
    pub(super) foreign: u16,
    /// R11: its lanes with a name.
    pub(super) parts: Lazy<Parts>,
    /// Tags and estimates of empty inner lanes that still owe.
    pub(super) debts: Lazy<Debts>,

    /// What people are told of it.
    pub(super) ledger: Ledger,
    pub(super) policy: Policy,
    pub(super) ended: LastSecond,
}

/// Lanes by the name of their part.
type Parts = BTreeMap<Group, u32>;

impl Empty for Parts {
    const EMPTY: &'static Self = &Self::new();

    fn fresh() -> Self {
        Self::new()
    }
}

impl GroupState {
    pub(super) fn new(name: Group, policy: Policy) -> Self {
        Self {
            name,
            weight: Weight::from_f64(policy.weight),
            policy,
            paused: false,
            tag: Tag::LOWEST,
            standing: Standing::Idle,
            since: 0,
            moved: false,
            wakes: false,
            gated: false,
            changed: false,
            plain: None,
            parts: Lazy::default(),
            debts: Lazy::default(),
            v: Tag::default(),
            top: Tag::default(),
            inside: Inside::default(),
            counts: Counts::default(),
            live: Lazy::default(),
            retry_in_flight: 0,
            foreign: 0,
            wish: 0,
            estimate: Ewma::default(),
            long: 0,
            slow: false,
            quick: 0,
            ended: LastSecond::default(),
            rate: None,
            held_until: Mono(0),
            breaker: Lazy::default(),
            failed: None,
            last_failure: None,
            side: false,
            charged_us: 0,
            served_us: 0,
            own: None,
            ledger: Ledger::default(),
            stops: Stops::default(),
        }
    }

    pub(super) fn cap(&self, settings: &Settings) -> u32 {
        match &self.own {
            Some(own) => own.slots,
            None => self.policy.concurrency.unwrap_or_else(|| settings.default_cap()).max(1),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused || self.policy.paused
    }

    pub(super) fn lane(&self, inner: Option<&Group>) -> Option<u32> {
        match inner {
            None => self.plain,
            Some(name) => self.parts.get(name).copied(),
        }
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = u32> {
        self.plain.into_iter().chain(self.parts.values().copied())
    }

    /// Lanes inside it, those that are shared apart, and whether there are such (R10). No other name of a part begins as theirs do.
    pub(super) fn inside_lanes(&self) -> (usize, bool) {
        let shared = self.parts.keys().rev().take_while(|name| name.is_overflow()).count();
        (self.parts.len() - shared, shared > 0)
    }

    /// Nothing of it is pending, waits or is in flight.
    pub(super) fn is_done(&self) -> bool {
        let no_lanes = self.plain.is_none() && self.parts.is_empty();
        no_lanes && self.live.waiting.is_empty() && self.live.in_flight == 0
    }

    /// Attempts in flight, of events and of live requests.
    pub(super) fn in_flight(&self) -> u32 {
        self.counts.in_flight + self.live.in_flight
    }

    /// A field of each cache line, for [`warm`](super::warm).
    pub(super) fn lines(&self) -> u64 {
        let one = self.since.wrapping_add(self.counts.queued).wrapping_add(self.held_until.0);
        let other = self.charged_us.wrapping_add(self.ledger.accepted).wrapping_add(self.ended.tick());
        one.wrapping_add(other).wrapping_add(u64::from(self.slow))
    }

    /// The same of its statistics, where it has some.
    pub(super) fn lines_behind(&self) -> u64 {
        self.ledger.stats.as_ref().map_or(0, |stats| stats.lines())
    }

    /// And of its name.
    pub(super) fn line_of_name(&self) -> u64 {
        self.name.as_str().as_bytes().first().copied().unwrap_or_default().into()
    }

    pub(super) fn turn(&self) -> Turn {
        Turn { tag: self.tag, since: self.since }
    }

    /// Where it stands now, and when time alone will change that.
    pub(super) fn stand(&self, settings: &Settings, upstream: &Upstream, now: Mono) -> (Standing, Option<Mono>) {
        let live = !self.live.waiting.is_empty();
        if self.inside.is_empty() && !live {
            return (Standing::Idle, None);
        }
        self.gates(settings, upstream, if live { Kind::Open } else { self.inside.kind() }, now)
    }

    /// Where it stands with something to do.
    pub(super) fn gates(
        &self,
        settings: &Settings,
        upstream: &Upstream,
        kind: Kind,
        now: Mono,
    ) -> (Standing, Option<Mono>) {
        if self.is_paused() {
            return (Standing::Paused, None);
        }
        if let Err(until) = self.breaker.may_go(self.in_flight(), now) {
            return (Standing::Broken, until);
        }
        if self.held_until > now {
            return (Standing::RetryAfter, Some(self.held_until));
        }
        if self.in_flight() + u32::from(self.foreign) >= self.cap(settings) {
            return (Standing::Capped, None);
        }
        let full = self.retry_in_flight >= settings.group_retry_slots();
        let kind = match kind {
            Kind::Retry if full => return (Standing::RetrySlots, None),
            Kind::Either if full => Kind::Replay,
            other => other,
        };
        if let Some(at) = self.policy.rate.and_then(|rate| self.rate.as_ref()?.ready(rate, now).err()) {
            return (Standing::Limited, Some(at));
        }
        if self.own.is_some() {
            return (own::standing(self, settings, upstream, kind, now), None);
        }
        (Standing::Ready(self.class(settings, upstream, kind, now)), None)
    }

    /// One attempt of an unsuspected group may always go; a second one only when the breaker is closed.
    pub(super) fn is_suspect(&self, settings: &Settings, upstream: &Upstream, now: Mono) -> bool {
        self.in_flight() > 0 || upstream.breaker.suspects(&settings.breakers.upstream, self.failed, now)
    }

    fn class(&self, settings: &Settings, upstream: &Upstream, kind: Kind, now: Mono) -> Class {
        let suspect = self.is_suspect(settings, upstream, now);
        let unknown = !upstream.outbreak.is_quick(self.quick);
        // The count of the last second is only needed by those that hold more than two.
        let ramp = self.in_flight() >= 2 && self.in_flight() >= 2 + self.ended.count(now);
        Class::again(kind)
            .with(Class::SLOW, self.slow)
            .with(Class::RAMP, ramp)
            .with(Class::SUSPECT, suspect)
            .with(Class::SIDE, suspect && self.side)
            .with(Class::UNKNOWN, unknown)
    }
}

/// Empty inner lanes that were charged more than their group's virtual time has reached.
#[derive(Debug)]
pub(super) struct Debts {
    owed: BTreeMap<Group, (Tag, Ewma)>,
    /// At this size those that owe no more are dropped.
    sweep_at: usize,
}

impl Debts {
    const fn new() -> Self {
        Self { owed: BTreeMap::new(), sweep_at: 0 }
    }

    pub(super) fn put(&mut self, name: Group, tag: Tag, estimate: Ewma, v: Tag) {
        self.owed.insert(name, (tag, estimate));
        if self.owed.len() > self.sweep_at {
            self.owed.retain(|_, (tag, _)| *tag > v);
            self.sweep_at = self.owed.len() * 2 + 16;
        }
    }

    pub(super) fn take(&mut self, name: &Group) -> Option<(Tag, Ewma)> {
        self.owed.remove(name)
    }
}

impl Empty for Debts {
    const EMPTY: &'static Self = &Self::new();

    fn fresh() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::engine::ev::Ev;
    use crate::engine::lane::LaneState;

    /// What an event of a group costs that was not touched for long is how many cache lines it comes to, and a million groups must fit: who
    /// lets a record grow has to say so here.
    #[test]
    fn records_stay_small() {
        let sizes = [size_of::<Option<GroupState>>(), size_of::<Option<LaneState>>(), size_of::<Option<Ev>>()];
        assert_eq!(sizes, [448, 192, 56]);
        assert_eq!(size_of::<(Turn, u32)>(), 32, "two places of a heap in a cache line");
    }

    /// [`GroupState::lines`] reads one field of each line.
    #[test]
    fn reading_ahead_reads_every_line() {
        let read = [
            offset_of!(GroupState, since),
            offset_of!(GroupState, counts),
            offset_of!(GroupState, held_until),
            offset_of!(GroupState, charged_us),
            offset_of!(GroupState, slow),
            offset_of!(GroupState, ledger) + offset_of!(Ledger, accepted),
            offset_of!(GroupState, ended),
        ];
        assert_eq!(read.map(|place| place / 64), [0, 1, 2, 3, 4, 5, 6], "{read:?}");
    }
}
