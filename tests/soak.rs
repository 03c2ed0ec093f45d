//! A soak: traffic for a while, and everything that can go wrong meanwhile, from a seed. `make soak` goes on for ten minutes
//! (`SOAK_SECONDS`), `SOAK_SEED` repeats the order of what happened; in `make test` it is a short one.
//!
//! In the first two thirds the process is killed, stopped and started, and dies of its disk; in the last one only everything else happens,
//! so that its memory and its descriptors can be compared. Then all is mended, and the books have to balance: each event that was
//! answered 200 was taken by the receiver or is a dead letter, by the receiver's count and by the gateway's.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "what it took is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it goes on for a span of time")]

#[path = "soak/chaos.rs"]
mod chaos;
#[path = "soak/receiver.rs"]
mod receiver;
#[path = "soak/senders.rs"]
mod senders;
mod support;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use chaos::World;

/// Of the last third, the memory of its first quarter and of its last may differ by so much: what the store's index has before it is written.
const GROWTH_KIB: u64 = 48 * 1024;
/// Descriptors that come and go: segments and buckets of history that are open.
const GROWTH_DESCRIPTORS: usize = 64;

fn now() -> Instant {
    Instant::now()
}

/// What the process holds at a moment.
struct Sample {
    kib: u64,
    descriptors: usize,
}

impl Sample {
    fn take(world: &World) -> Self {
        let process = world.gateway().child.id();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib = line.trim().trim_end_matches(" kB").parse().unwrap();
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        Self { kib, descriptors }
    }
}

/// The medians of some samples.
fn medians(samples: &[Sample]) -> (u64, usize) {
    let (mut kib, mut descriptors): (Vec<u64>, Vec<usize>) =
        samples.iter().map(|one| (one.kib, one.descriptors)).unzip();
    kib.sort_unstable();
    descriptors.sort_unstable();
    (kib[kib.len() / 2], descriptors[descriptors.len() / 2])
}

#[test]
fn whatever_goes_wrong_for_a_while_loses_nothing_and_leaves_nothing_behind() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("SOAK_SECONDS").unwrap_or(20);
    let seed = number("SOAK_SEED").unwrap_or_else(rand::random);
    println!("SOAK_SECONDS={seconds} SOAK_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut world = World::new(SmallRng::seed_from_u64(seed.rotate_left(1)), seed);
    let began = now();
    let mut samples = Vec::new();
    while began.elapsed().as_secs() < seconds {
        let endings = began.elapsed().as_secs() * 3 < seconds * 2;
        world.next(endings);
        // What was done is left to act for a while; that is the subject, and no waiting for something.
        std::thread::park_timeout(Duration::from_millis(random.random_range(200..1_500)));
        assert!(world.is_alive(), "it ended by itself:\n{}", world.gateway().stderr());
        if !endings {
            samples.push(Sample::take(&world));
        }
    }
    world.calm();
    balance(&world, seed);
    world.kill_once_more();
    balance(&world, seed);
    report(&world, seconds, seed, &samples);
}

/// Waits until nothing is pending; then everything that was answered 200 is somewhere.
fn balance(world: &World, seed: u64) {
    let gateway = world.gateway();
    while gateway.json("/api/v1/status")["backlog"]["events"] != 0 {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0), "seed {seed}");
    assert_eq!(gateway.metric("fairlane_conservation_difference "), Some(0.0), "seed {seed}");
    let taken = world.receiver.taken();
    let dead: HashSet<String> =
        gateway.events("status=dead").iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    let accepted = world.senders.shared.accepted.lock().unwrap();
    let lost: Vec<&String> = accepted.iter().filter(|id| !taken.contains_key(*id) && !dead.contains(*id)).collect();
    assert!(lost.is_empty(), "seed {seed}: {} of {} are lost: {lost:?}", lost.len(), accepted.len());
}

fn report(world: &World, seconds: u64, seed: u64, samples: &[Sample]) {
    let shared = &world.senders.shared;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let taken = world.receiver.taken();
    let accepted = shared.accepted.lock().unwrap().len();
    let dead = world.gateway().events("status=dead").len();
    let again: u64 = taken.values().map(|times| u64::from(*times) - 1).sum();
    let unasked = taken.len() + dead - accepted;
    let quarter = samples.len().div_ceil(4);
    let (first, last) = (medians(&samples[..quarter]), medians(&samples[samples.len() - quarter..]));
    println!("| soak of {seconds} s, seed {seed} | |");
    println!("| --- | --- |");
    println!("| answered 200 | {accepted} |");
    println!("| of them lost | 0 |");
    println!(
        "| answered 503, nothing stored · nobody knows · cut off | {} · {} · {} |",
        count(&shared.refused),
        count(&shared.unknown),
        count(&shared.cut)
    );
    println!("| slow and broken requests | {} |", count(&shared.rough));
    println!("| taken by the receiver · dead letters | {} · {dead} |", taken.len());
    println!("| of them never answered 200 | {unasked} |");
    println!("| came again (at least once is the promise) | {again} |");
    println!("| memory, first and last quarter of the last third | {} → {} MiB |", first.0 / 1024, last.0 / 1024);
    println!("| descriptors, the same | {} → {} |", first.1, last.1);
    println!("| slowest start | {} ms |", world.slowest_start.as_millis());
    for (deed, times) in &world.done {
        println!("| {deed:?} | {times} |");
    }
    assert!(last.0 <= first.0 + GROWTH_KIB, "memory grew from {} to {} KiB", first.0, last.0);
    assert!(last.1 <= first.1 + GROWTH_DESCRIPTORS, "descriptors grew from {} to {}", first.1, last.1);
}
