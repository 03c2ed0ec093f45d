//! Two stores walk one generated life step by step and must give the same answers after each of its steps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlane::event::{Event, Fingerprint, Group, Lane, Seq, Wall};
use fairlane::store::{Settlement, Verdict};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};

use crate::snapshot::Snapshot;
use crate::world::{Subject, World, inner_lane, lane, note, run};

/// Lives in a run; `PROPTEST_CASES` overrides it.
const LIVES: u32 = 24;

/// What happens to both.
#[derive(Clone, Debug)]
enum Step {
    /// A batch is appended: for each event its lane, whether it has an order key, bytes of its body.
    Append(Vec<(usize, bool, usize)>),
    /// A batch of settlements, each about one of the events there are, or one that never was.
    Settle(Vec<(prop::sample::Index, Kind)>),
    /// Time passes, in seconds.
    Wait(u32),
    Reopen,
    Crash,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Begun,
    Interrupted,
    RetryIn(u16),
    Released,
    Delivered,
    Dead,
    Discarded,
    Requeued,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 0_usize..300, 1 => 0_usize..70_000];
    let event = (0_usize..6, any::<bool>(), size);
    let kind = prop_oneof![
        4 => Just(Kind::Begun),
        1 => Just(Kind::Interrupted),
        2 => (0_u16..600).prop_map(Kind::RetryIn),
        1 => Just(Kind::Released),
        2 => Just(Kind::Delivered),
        1 => Just(Kind::Dead),
        1 => Just(Kind::Discarded),
        2 => Just(Kind::Requeued),
    ];
    prop_oneof![
        4 => prop::collection::vec(event, 0..12).prop_map(Step::Append),
        8 => prop::collection::vec((any::<prop::sample::Index>(), kind), 0..10).prop_map(Step::Settle),
        1 => prop_oneof![0_u32..60, 0_u32..4_000_000].prop_map(Step::Wait),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

fn lanes() -> [Lane; 6] {
    [lane("a"), inner_lane("a", "orders"), inner_lane("a", "products"), lane("b"), lane("\u{e9}~"), lane("c")]
}

/// The settlements of a step, about every seq there ever was (those that have gone on as another one too) and one that
/// never was. Nothing keeps them from being nonsense: what follows from a settlement is the store's to say, not its caller's.
fn settlements(before: &Snapshot, wanted: &[(prop::sample::Index, Kind)], now: Wall) -> Vec<Settlement> {
    let last = before.records.first().map_or(0, |record| record.seq.0);
    let settlement = |(index, kind): &(prop::sample::Index, Kind)| {
        let seq = Seq(1 + index.index(usize::try_from(last).unwrap() + 1) as u64);
        let verdict = match kind {
            Kind::Begun => Verdict::Begun,
            Kind::Interrupted => Verdict::Interrupted,
            Kind::RetryIn(seconds) => Verdict::RetryAt(now.plus(Duration::from_secs(u64::from(*seconds)))),
            Kind::Released => Verdict::Released,
            Kind::Delivered => Verdict::Delivered,
            Kind::Dead => Verdict::Dead(format!("the upstream refused {seq}").into()),
            Kind::Discarded => Verdict::Discarded,
            Kind::Requeued => Verdict::Requeued,
        };
        let ends = matches!(kind, Kind::RetryIn(_) | Kind::Delivered | Kind::Dead);
        let attempt = ends.then(|| note(u32::try_from(seq.0).unwrap(), now));
        Settlement { seq, at: now, verdict, attempt }
    };
    wanted.iter().map(settlement).collect()
}

/// Both stores, and what they answered last.
struct Walk<A, B> {
    left: World<A>,
    right: World<B>,
    last: Snapshot,
}

impl<A: Subject, B: Subject> Walk<A, B> {
    async fn new() -> Self {
        let left = World::new().await;
        let last = Snapshot::take(left.store(), 10).await.without_sizes();
        Self { left, right: World::new().await, last }
    }

    async fn take(&mut self, step: &Step, limit: usize) {
        match step {
            Step::Append(events) => {
                let batch: Vec<_> = events.iter().map(|of| Arc::new(self.event(*of))).collect();
                let (a, b) = (self.left.store().append(batch.clone()).await, self.right.store().append(batch).await);
                assert_eq!(a, b, "the seq of {step:?}");
            }
            Step::Settle(wanted) => {
                let batch = settlements(&self.last, wanted, self.left.now());
                let (a, b) =
                    (self.left.store().settle(batch.clone()).await, self.right.store().settle(batch.clone()).await);
                assert_eq!(a, b, "settlements that changed nothing of {batch:?}");
            }
            Step::Wait(seconds) => {
                for clock in [&self.left.clock, &self.right.clock] {
                    clock.advance(Duration::from_secs(u64::from(*seconds)));
                }
            }
            Step::Reopen => {
                self.left.reopen().await;
                self.right.reopen().await;
            }
            Step::Crash => {
                self.left.crash().await;
                self.right.crash().await;
            }
        }
        let left = Snapshot::take(self.left.store(), limit).await.without_sizes();
        let right = Snapshot::take(self.right.store(), limit).await.without_sizes();
        left.assert_same(&right, &format!("after {step:?}"));
        self.last = left;
    }

    fn event(&mut self, (lane, ordered, body_bytes): (usize, bool, usize)) -> Event {
        let plain = self.left.event(&lanes()[lane]);
        let order = ordered.then(|| Group::of(&[format!("order-{}", body_bytes % 3)]));
        // Few enough hashes that many are repeats, and windows that a life sees the end of.
        let hash = [(body_bytes % 5) as u8; 16];
        let fingerprint = body_bytes.is_multiple_of(2).then_some(Fingerprint { hash, window: Duration::from_secs(90) });
        Event { order, fingerprint, body: Bytes::from(vec![b'x'; body_bytes]), ..plain }
    }
}

/// Walks generated lives; what fails is made small and kept beside this file.
pub(crate) fn walk<A: Subject, B: Subject>() {
    let config = Config {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(LIVES),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/store/lockstep.regressions"))),
        max_shrink_iters: 500,
        ..Config::default()
    };
    let lives = (prop::collection::vec(step(), 1..40), prop_oneof![Just(1_usize), Just(3), Just(100)]);
    let walked = TestRunner::new(config).run(&lives, |(steps, limit)| {
        let outcome = std::panic::catch_unwind(|| {
            run(async {
                let mut walk = Walk::<A, B>::new().await;
                for step in &steps {
                    walk.take(step, limit).await;
                }
            });
        });
        outcome.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            TestCaseError::fail(text.unwrap_or_else(|| "an assertion failed; its text is above".into()))
        })
    });
    if let Err(failure) = walked {
        panic!("two stores differ: {failure}");
    }
}
