//! Power cuts: the embedded store on a disk that forgets what was not synced, held against the in-memory one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlane::clock::{Clock as _, TestClock};
use fairlane::event::{Event, Fingerprint, Lane, Seq};
use fairlane::store::disk::sim::Sim;
use fairlane::store::embedded::{Embedded, Options, Settings};
use fairlane::store::memory::Memory;
use fairlane::store::{Durability, LaneStore, Settlement, Verdict};

use crate::snapshot::Snapshot;
use crate::world::{RETENTION, START, event, inner_lane, lane, note, run};

/// Cuts in a run; `POWER_CUTS` overrides it, `POWER_SEED` names the first.
const CUTS: u64 = 200;

/// Seeded numbers (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

pub(crate) fn settings(path: &Path, durability: Durability) -> Settings {
    Settings { path: path.to_owned(), durability, max_bytes: None, min_free: 0, retention: RETENTION }
}

pub(crate) fn tiny(disk: &Sim) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 4096,
        checkpoint_bytes: 4096,
        checkpoint_entries: 12,
        index_bulk: 40,
        upkeep_every: Some(Duration::from_millis(5)),
        ..Options::default()
    }
}

/// What is done to a store.
#[derive(Clone)]
enum Act {
    Append(Vec<Arc<Event>>),
    Settle(Vec<Settlement>),
}

async fn act(store: &dyn LaneStore, act: Act) -> Result<u64, fairlane::store::Error> {
    match act {
        Act::Append(batch) => {
            let appended = store.append(batch).await?;
            let repeats = (0..8).filter(|number| appended.repeat(*number).is_some());
            Ok(repeats.fold(appended.first.0, |answer, number| answer + (1 << (32 + number))))
        }
        Act::Settle(batch) => store.settle(batch).await.map(|ignored| ignored as u64),
    }
}

/// A generated life.
struct Life {
    dice: Dice,
    clock: Arc<TestClock>,
    model: Memory,
    made: u64,
    /// What was under way when the power went: it may be there or not.
    unknown: Option<Act>,
}

impl Life {
    fn next(&mut self) -> Act {
        if self.dice.below(12) == 0 {
            self.clock.advance(Duration::from_secs(self.dice.below(4 * 86_400)));
        }
        if self.dice.below(3) == 0 { Act::Append(self.events()) } else { Act::Settle(self.settlements()) }
    }

    fn events(&mut self) -> Vec<Arc<Event>> {
        let count = 1 + self.dice.below(4);
        (0..count)
            .map(|_| {
                self.made += 1;
                let lanes: [Lane; 3] = [lane("a"), inner_lane("a", "x"), lane("b")];
                let lane = &lanes[usize::try_from(self.dice.below(3)).expect("small")];
                let size = usize::try_from(self.dice.below(900)).expect("small");
                let plain = event(self.made, lane, self.clock.now().wall);
                let fingerprint = (self.dice.below(2) == 0).then(|| {
                    let hash = [u8::try_from(self.dice.below(6)).expect("small"); 16];
                    Fingerprint { hash, window: Duration::from_secs(2 * 86_400) }
                });
                Arc::new(Event { fingerprint, body: Bytes::from(vec![b'x'; size]), ..plain })
            })
            .collect()
    }

    fn settlements(&mut self) -> Vec<Settlement> {
        let at = self.clock.now().wall;
        let count = 1 + self.dice.below(6);
        (0..count)
            .map(|_| {
                let seq = Seq(1 + self.dice.below(self.made + 4));
                let verdict = match self.dice.below(10) {
                    0..3 => Verdict::Begun,
                    3 => Verdict::RetryAt(at.plus(Duration::from_secs(60))),
                    4 => Verdict::Interrupted,
                    5..8 => Verdict::Delivered,
                    8 => Verdict::Dead("no".into()),
                    _ => Verdict::Requeued,
                };
                let attempt = verdict.ends().then(|| note(1, at));
                Settlement { seq, at, verdict, attempt }
            })
            .collect()
    }

    /// The store has what was acknowledged, and what was under way wholly or not at all.
    async fn check(&mut self, store: &Embedded, when: &str) {
        let found = Snapshot::take(store, 50).await.without_sizes();
        let expected = Snapshot::take(&self.model, 50).await.without_sizes();
        if let Some(unknown) = self.unknown.take()
            && (found.records != expected.records || found.stories != expected.stories)
        {
            act(&self.model, unknown).await.expect("the model takes it");
            let expected = Snapshot::take(&self.model, 50).await.without_sizes();
            return expected.assert_same(&found, &format!("{when}, with what was under way"));
        }
        expected.assert_same(&found, when);
    }

    /// Does what comes until the power goes, or `acts` times.
    async fn live(&mut self, store: &Embedded, disk: &Sim, acts: u64) {
        for _ in 0..acts {
            let next = self.next();
            match act(store, next.clone()).await {
                Ok(answer) => {
                    let expected = act(&self.model, next).await.expect("the model takes it");
                    assert_eq!(answer, expected, "what an acknowledged call answered");
                }
                Err(_) if disk.is_out() => {
                    self.unknown = Some(next);
                    return;
                }
                Err(error) => panic!("the power is there: {error}"),
            }
        }
    }
}

#[test]
fn no_power_cut_loses_what_was_acknowledged_or_brings_back_what_was_settled() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("POWER_SEED").unwrap_or(1);
    let cuts = number("POWER_CUTS").unwrap_or(CUTS);
    let mut done = 0;
    let mut seed = first;
    while done < cuts {
        done += run_life(seed);
        seed += 1;
    }
}

/// Lives through a few power cuts; how many there were.
fn run_life(seed: u64) -> u64 {
    let mut cuts = 0;
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let clock = Arc::new(TestClock::at(START));
        let model = Memory::with_retention(Arc::clone(&clock) as _, RETENTION);
        let mut life = Life { dice: Dice(seed), clock: Arc::clone(&clock), model, made: 0, unknown: None };
        let mut disk = Sim::new();
        let open =
            |disk: &Sim| Embedded::open_with(settings(&path, Durability::Fsync), Arc::clone(&clock) as _, tiny(disk));
        for cut in 0..4 {
            let when = format!("seed {seed}, after cut {cut}");
            // Some lives end while the store opens.
            if life.dice.below(3) == 0 {
                disk.set_life(Some(life.dice.below(8)));
                drop(open(&disk));
                disk = disk.cut(life.dice.below(u64::MAX));
                cuts += 1;
            }
            let store = open(&disk).unwrap_or_else(|error| panic!("{when}: {error}"));
            life.check(&store, &when).await;
            disk.set_life(Some(life.dice.below(120)));
            life.live(&store, &disk, 60).await;
            disk = disk.cut(life.dice.below(u64::MAX));
            cuts += 1;
            drop(store);
            if life.dice.below(4) == 0 {
                std::fs::remove_dir_all(path.join("index")).unwrap();
            }
        }
        let store = open(&disk).unwrap_or_else(|error| panic!("seed {seed}, at the end: {error}"));
        life.check(&store, &format!("seed {seed}, at the end")).await;
    });
    cuts
}

#[test]
fn without_syncs_a_power_cut_takes_the_end_and_nothing_from_the_middle() {
    for seed in 0..12 {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data");
            let clock = Arc::new(TestClock::at(START));
            let disk = Sim::new();
            let options = Options { upkeep_every: None, ..tiny(&disk) };
            let store = Embedded::open_with(settings(&path, Durability::Os), Arc::clone(&clock) as _, options).unwrap();
            for number in 1..60 {
                store.append(vec![Arc::new(event(number, &lane("a"), START))]).await.unwrap();
            }
            let next = disk.cut(seed);
            drop(store);
            let options = Options { upkeep_every: None, ..tiny(&next) };
            let store = Embedded::open_with(settings(&path, Durability::Os), Arc::clone(&clock) as _, options).unwrap();
            let found = Snapshot::take(&store, 100).await;
            let seqs: Vec<u64> = found.records.iter().rev().map(|record| record.seq.0).collect();
            assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "a beginning of what was stored: {seqs:?}");
            store.append(vec![Arc::new(event(99, &lane("a"), START))]).await.unwrap();
        });
    }
}
