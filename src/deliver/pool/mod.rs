//! The addresses of the upstream: which one an attempt goes to, and what its end says about the address.
//!
//! There is one upstream; its addresses are several ways to the same receiver. Turns, slots, rates and breakers are those of the
//! upstream as a whole and the engine's; what is decided here is only where an attempt that has its lease goes. [`standing`] says how one
//! address stands, [`choice`] which one is next, [`health`] asks them how they are.
//!
//! # What holds
//!
//! 1. **Never none.** With every address out all of them are used: a guess is better than a refusal, and the upstream's breaker is there
//!    for the rest.
//! 2. **A reload keeps what is known.** A client made after another takes over how the addresses stand that both have.
//! 3. **One address costs nothing**: no lock, no judgement.

mod choice;
mod health;
mod standing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::outcome::Outcome;
use super::place::Place;
use super::settings::{Ejection, Settings, SettingsError};
use crate::clock::Clock;
use crate::event::{Group, Mono, Wall};
use crate::metrics::{AddressMetrics, Metrics};
use choice::{Candidate, Ring};
pub(super) use health::watch;
use standing::{Says, Standing, State, Turn};

/// The addresses, as lists show them. Clones are of the same.
#[derive(Clone)]
pub struct Addresses(pub(super) Arc<Pool>);

impl Addresses {
    /// How each stands now, in the order of the configuration.
    #[must_use]
    pub fn views(&self) -> Vec<AddressView> {
        self.0.views()
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.members.iter().map(|member| &member.label)).finish()
    }
}

/// How one address stands.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressView {
    /// Its url, without a slash at its end.
    pub address: Arc<str>,
    /// Its share among all, by the configuration.
    pub weight: u32,
    /// Whether it is used.
    pub state: AddressState,
    /// How much of its weight counts now, 0 to 1.
    pub share: f64,
    /// Attempts that are under way to it.
    pub in_flight: u32,
    /// Failures in a row.
    pub failures: u32,
    /// What its checks come to; `None` where none are made, or before the first.
    pub check: Option<Result<(), Box<str>>>,
    /// Its last failure, and when that was.
    pub last_failure: Option<(Wall, Box<str>)>,
}

/// Whether an address is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// It is.
    Used,
    /// It is, with a share that grows.
    SlowStart,
    /// It failed too often in a row, and is left out for so long yet.
    Ejected(Duration),
    /// It is left out since its checks fail.
    Unwell,
}

impl AddressState {
    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::SlowStart => "slow_start",
            Self::Ejected(_) => "ejected",
            Self::Unwell => "unwell",
        }
    }

    /// Whether the address is left out.
    #[must_use]
    pub fn is_out(self) -> bool {
        matches!(self, Self::Ejected(_) | Self::Unwell)
    }
}

/// All addresses of one configuration.
pub(super) struct Pool {
    members: Vec<Member>,
    /// Where groups are at home, with `sticky: group`.
    ring: Option<Ring>,
    rules: Ejection,
    seats: Mutex<Vec<Seat>>,
    clock: Arc<dyn Clock>,
}

/// An address, as it is configured.
struct Member {
    place: Place,
    label: Arc<str>,
    weight: u32,
    /// Shared with the pools before and after this one: attempts outlast a reload.
    in_flight: Arc<AtomicU32>,
    counted: AddressMetrics,
}

/// An address, as it stands.
#[derive(Clone, Default)]
struct Seat {
    standing: Standing,
    check: Option<Result<(), Box<str>>>,
    last_failure: Option<(Wall, Box<str>)>,
}

impl Pool {
    /// The addresses of `settings`. What `before` knows of them is taken over.
    pub(super) fn new(
        settings: &Settings,
        before: Option<&Self>,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, SettingsError> {
        let now = clock.now().mono;
        let (mut members, mut seats): (Vec<Member>, Vec<Seat>) = (Vec::new(), Vec::new());
        for address in &settings.addresses {
            let place = Place::new(&address.url)?;
            let label: Arc<str> = place.label().into();
            if members.iter().any(|member| member.label == label) {
                return Err(SettingsError::Twice(label.to_string()));
            }
            let known = before.and_then(|before| before.known(&label));
            let (mut seat, in_flight) = known.unwrap_or_else(|| (Seat::new(before, now), Arc::default()));
            if settings.health.is_none() || settings.addresses.len() == 1 {
                seat.check = None;
                seat.standing.is_unwatched(now);
            }
            let counted = metrics.addresses.of(&label);
            members.push(Member { place, label, weight: address.weight.max(1), in_flight, counted });
            seats.push(seat);
        }
        if members.is_empty() {
            return Err(SettingsError::NoAddress);
        }
        let weights = members.iter().map(|member| (&*member.label, member.weight));
        let ring = (settings.sticky && members.len() > 1).then(|| Ring::new(weights));
        Ok(Self { ring, members, rules: settings.ejection, seats: Mutex::new(seats), clock })
    }

    fn known(&self, label: &str) -> Option<(Seat, Arc<AtomicU32>)> {
        let index = self.members.iter().position(|member| &*member.label == label)?;
        let in_flight = Arc::clone(&self.members.get(index)?.in_flight);
        // One that was alone was never judged.
        let seat = self.seats.lock().get(index)?.clone();
        Some((seat, in_flight))
    }

    /// Whether there is a choice.
    pub(super) fn is_plural(&self) -> bool {
        self.members.len() > 1
    }

    /// Whether TLS is spoken to any of them.
    pub(super) fn is_https(&self) -> bool {
        self.members.iter().any(|member| member.place.is_https())
    }

    /// The address for an attempt with an event of `group` that was not sent to the `tried` ones; `None` when there is no other that
    /// is worth it.
    pub(super) fn pick(&self, group: &Group, tried: &[usize]) -> Option<Pick<'_>> {
        if !self.is_plural() {
            return self.members.first().filter(|_| tried.is_empty()).map(|member| Pick::new(self, member, 0));
        }
        let now = self.clock.now().mono;
        let mut seats = self.seats.lock();
        self.bring_up(&mut seats, now);
        let none = seats.iter().all(|seat| seat.standing.is_out());
        let takes = |index: usize, standing: &Standing| !tried.contains(&index) && (none || !standing.is_out());
        let index = match &self.ring {
            Some(ring) => self.home(ring, group, &seats, now, takes),
            None => self.next(&mut seats, now, takes),
        }?;
        Some(Pick::new(self, self.members.get(index)?, index))
    }

    fn home(
        &self,
        ring: &Ring,
        group: &Group,
        seats: &[Seat],
        now: Mono,
        takes: impl Fn(usize, &Standing) -> bool,
    ) -> Option<usize> {
        let takes = |index| seats.get(index).is_some_and(|seat| takes(index, &seat.standing));
        let grown = |index: usize| {
            let (seat, member) = (seats.get(index), self.members.get(index));
            let share = seat.map_or(1.0, |seat| seat.standing.share(now, self.rules));
            share >= 1.0 || member.is_some_and(|member| choice::rank(group, &member.label) <= share)
        };
        ring.home(group, |index| takes(index) && grown(index)).or_else(|| ring.home(group, takes))
    }

    fn next(&self, seats: &mut [Seat], now: Mono, takes: impl Fn(usize, &Standing) -> bool) -> Option<usize> {
        let candidate = |(index, (seat, member)): (usize, (&Seat, &Member))| {
            takes(index, &seat.standing).then(|| Candidate {
                index,
                credit: seat.standing.credit,
                weight: f64::from(member.weight) * seat.standing.share(now, self.rules),
                in_flight: member.in_flight.load(Ordering::Relaxed),
            })
        };
        let mut candidates: Vec<_> = seats.iter().zip(&self.members).enumerate().filter_map(candidate).collect();
        let chosen = choice::by_turns(&mut candidates);
        for candidate in candidates {
            if let Some(seat) = seats.get_mut(candidate.index) {
                seat.standing.credit = candidate.credit;
            }
        }
        chosen
    }

    /// Lets time pass for all of them.
    fn bring_up(&self, seats: &mut [Seat], now: Mono) {
        for index in 0..seats.len() {
            let turn = seats.get_mut(index).and_then(|seat| seat.standing.at(now, self.rules));
            self.tell(seats, index, turn);
        }
    }

    /// An attempt with an event of `group` that went to this address ended so.
    fn ended(&self, index: usize, group: &Group, outcome: Outcome, words: &str) {
        let Some(member) = self.members.get(index) else { return };
        let says = Says::of(outcome);
        match says {
            Says::Well => member.counted.well(),
            Says::Unreachable | Says::Failed => member.counted.failed(),
            Says::Nothing => {}
        }
        if !self.is_plural() || says == Says::Nothing {
            return;
        }
        let now = self.clock.now();
        let mut seats = self.seats.lock();
        if says == Says::Well {
            for (other, seat) in seats.iter_mut().enumerate() {
                if other == index {
                    seat.standing.is_well();
                } else {
                    seat.standing.does_well_elsewhere(group);
                }
            }
            return;
        }
        let Some(seat) = seats.get_mut(index) else { return };
        seat.last_failure = Some((now.wall, words.into()));
        let turn = seat.standing.failed(says == Says::Unreachable, group, now.mono, self.rules);
        self.tell(&seats, index, turn);
    }

    /// What a check of an address found, and whether its checks as a whole are passed.
    fn checked(&self, index: usize, found: Result<(), Box<str>>, passes: bool) {
        let now = self.clock.now();
        let mut seats = self.seats.lock();
        let Some(seat) = seats.get_mut(index) else { return };
        // One that was left out before this process, or this configuration, began to ask comes back by an answer alone.
        let turn = if passes && found.is_err() { None } else { seat.standing.checked(passes, now.mono) };
        if let Err(words) = &found {
            seat.last_failure = Some((now.wall, words.clone()));
        }
        seat.check = Some(found);
        self.tell(&seats, index, turn);
    }

    /// Counts and logs what an operator would act on.
    fn tell(&self, seats: &[Seat], index: usize, turn: Option<Turn>) {
        let (Some(turn), Some(member), Some(seat)) = (turn, self.members.get(index), seats.get(index)) else { return };
        let (address, error) = (&*member.label, seat.last_failure.as_ref().map(|(_, words)| &**words));
        let left = seats.iter().filter(|seat| !seat.standing.is_out()).count();
        let means = if left == 0 { "no address is left: all are used" } else { "the others take its share" };
        match turn {
            Turn::Back => {
                tracing::info!(address, "an address of the upstream is used again; its share grows");
                return;
            }
            Turn::Ejected(time, failures) => {
                tracing::warn!(
                    address,
                    time_s = time.as_secs_f64(),
                    failures,
                    error,
                    left,
                    means,
                    "an address of the upstream is left out"
                );
            }
            Turn::Unwell => {
                tracing::warn!(address, error, left, means, "an address of the upstream fails its checks");
            }
        }
        member.counted.left_out();
    }

    fn views(&self) -> Vec<AddressView> {
        let now = self.clock.now().mono;
        let mut seats = self.seats.lock();
        self.bring_up(&mut seats, now);
        seats.iter().zip(&self.members).map(|(seat, member)| self.view(seat, member, now)).collect()
    }

    fn view(&self, seat: &Seat, member: &Member, now: Mono) -> AddressView {
        let state = match seat.standing.state() {
            State::Used => AddressState::Used,
            State::SlowStart => AddressState::SlowStart,
            State::Ejected(until) => AddressState::Ejected(until.since(now)),
            State::Unwell => AddressState::Unwell,
        };
        AddressView {
            address: Arc::clone(&member.label),
            weight: member.weight,
            state,
            share: if state.is_out() { 0.0 } else { seat.standing.share(now, self.rules) },
            in_flight: member.in_flight.load(Ordering::Relaxed),
            failures: seat.standing.failures(),
            check: seat.check.clone(),
            last_failure: seat.last_failure.clone(),
        }
    }
}

impl Seat {
    /// An address that was not there before, where there were others.
    fn new(before: Option<&Pool>, now: Mono) -> Self {
        let standing = before.map_or_else(Standing::default, |_| Standing::new_beside_others(now));
        Self { standing, ..Self::default() }
    }
}

/// An address that an attempt goes to; it counts as under way there until this is dropped.
pub(super) struct Pick<'a> {
    pool: &'a Pool,
    member: &'a Member,
    pub(super) index: usize,
}

impl<'a> Pick<'a> {
    fn new(pool: &'a Pool, member: &'a Member, index: usize) -> Self {
        member.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { pool, member, index }
    }

    pub(super) fn place(&self) -> &'a Place {
        &self.member.place
    }

    /// The attempt there ended so, or its answer began so.
    pub(super) fn ended(&self, group: &Group, outcome: Outcome, words: &str) {
        self.pool.ended(self.index, group, outcome, words);
    }
}

impl Drop for Pick<'_> {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
