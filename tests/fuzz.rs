//! What nobody would send, write, or find on a disk: right requests, configurations and stores, mutated byte by byte from a seed. Whatever
//! comes of it is a refusal in words or something right; never a panic. (What comes over a socket: `tests/fuzz_listener.rs`.)
//!
//! `FUZZ_SECONDS=600` goes on for so long (`make fuzz`); otherwise a fixed number of rounds is tried, the same ones each time.
//! `FUZZ_SEED=n` begins elsewhere. A failure prints its seed, which is tried alone with `FUZZ_SEED=n FUZZ_ROUNDS=1` and the test's name.
#![cfg(test)]

#[path = "fuzz/configuration.rs"]
mod configuration;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/requests.rs"]
mod requests;
#[path = "fuzz/store.rs"]
mod store;
#[path = "store/world.rs"]
#[expect(dead_code, reason = "subjects that are opened again and again are for the store's own suite")]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tries seed after seed until it is enough; what each gave is counted.
fn each_seed<T>(usual: u64, round: impl Fn(u64) -> T, mut count: impl FnMut(T)) -> u64 {
    let goes_on = mutate::rounds(usual);
    let first = mutate::first_seed();
    let mut tried = 0;
    while goes_on(tried) {
        let seed = first + tried;
        let outcome = catch_unwind(AssertUnwindSafe(|| round(seed)));
        count(outcome.unwrap_or_else(|_| panic!("FUZZ_SEED={seed} FUZZ_ROUNDS=1 fails: see above")));
        tried += 1;
    }
    tried
}
