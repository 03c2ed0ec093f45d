//! Right bytes made wrong, one mutation after another, and how many rounds of it there are.

use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

/// No mutated text grows beyond this.
const BYTES_MAX: usize = 1 << 16;

/// One mutation of some bytes: flipped, cut, repeated, replaced, something of `other`, something nasty.
pub(crate) fn bytes(text: &mut Vec<u8>, other: &[u8], nasty: &[&[u8]], random: &mut SmallRng) {
    let end = text.len();
    let (a, b) = (random.random_range(0..=end), random.random_range(0..=end));
    let range = a.min(b)..a.max(b);
    match random.random_range(0..8) {
        0 | 1 => {
            if let Some(byte) = text.get_mut(a.min(end.saturating_sub(1))) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        2 => drop(text.drain(range)),
        3 => {
            let part: Vec<u8> = text.iter().skip(range.start).take(range.len().min(64)).copied().collect();
            for _ in 0..random.random_range(1..40) {
                text.splice(a..a, part.iter().copied());
            }
        }
        4 => {
            let part = other.iter().take(random.random_range(0..=other.len()));
            drop(text.splice(range, part.copied()));
        }
        5 => text.extend(nasty.choose(random).copied().unwrap_or_default()),
        6 => {
            let filling: u8 = random.random();
            text.iter_mut().skip(range.start).take(range.len()).for_each(|byte| *byte = filling);
        }
        _ => {
            let part = nasty.choose(random).copied().unwrap_or_default();
            drop(text.splice(a..a, part.iter().copied()));
        }
    }
    text.truncate(BYTES_MAX);
}

/// One mutation of whole pieces, such as lines: left out, said twice, exchanged, followed or replaced by something nasty.
pub(crate) fn pieces(all: &mut Vec<Vec<u8>>, nasty: &[&[u8]], random: &mut SmallRng) {
    if all.is_empty() {
        return;
    }
    let (a, b) = (random.random_range(0..all.len()), random.random_range(0..all.len()));
    let something = nasty.choose(random).map(|piece| piece.to_vec()).unwrap_or_default();
    match random.random_range(0..6) {
        0 => drop(all.remove(a)),
        1 => all.extend_from_within(a..=a),
        2 => {
            let again = all.iter().skip(a).take(1).cloned().collect::<Vec<_>>();
            drop(all.splice(b..b, again));
        }
        3 => all.swap(a, b),
        4 => all.insert(a, something),
        _ => drop(all.splice(a..=a, [something])),
    }
}

/// Whether to go on after so many rounds: for `FUZZ_SECONDS`, or `FUZZ_ROUNDS` of them, or `usual`.
pub(crate) fn rounds(usual: u64) -> Box<dyn Fn(u64) -> bool + Sync> {
    if let Some(seconds) = number("FUZZ_SECONDS") {
        let end = SystemClock.now().mono.plus(Duration::from_secs(seconds));
        return Box::new(move |_| SystemClock.now().mono < end);
    }
    let rounds = number("FUZZ_ROUNDS").unwrap_or(usual);
    Box::new(move |done| done < rounds)
}

/// Where seeds begin.
pub(crate) fn first_seed() -> u64 {
    number("FUZZ_SEED").unwrap_or(0)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("FUZZ_SECONDS, FUZZ_SEED and FUZZ_ROUNDS are whole numbers"))
}
