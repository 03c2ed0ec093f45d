//! Random outages and crashes: every event that was answered as stored reaches the store that is elsewhere once, in the order of its lane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairlane::event::{Event, EventId, Group, Lane};
use fairlane::store::LaneStore as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::elsewhere::Way;
use crate::spool::{FIRST, Node};
use crate::world::{lane, run};

/// Lives in a run; `PROPTEST_CASES` overrides it.
const LIVES: u32 = 12;

/// Lanes that there are.
const LANES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// A batch: for each event its lane, and whether it has an order key.
    Append(Vec<(usize, bool)>),
    /// From now on the store answers so.
    Becomes(Way),
    /// The part of this lane's group goes away, or is there again.
    Part(usize, bool),
    /// This lane's group may have no more events, or as many as it likes.
    Backlog(usize, bool),
    /// The mover has a little time.
    Breathe(u8),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let way = prop_oneof![
        3 => Just(Way::There),
        1 => Just(Way::Refuses),
        1 => Just(Way::Hangs),
        1 => Just(Way::Mute),
        1 => Just(Way::ReadOnly),
    ];
    prop_oneof![
        8 => prop::collection::vec((0..LANES, prop::bool::weighted(0.2)), 1..30).prop_map(Step::Append),
        3 => way.prop_map(Step::Becomes),
        2 => (0..LANES, any::<bool>()).prop_map(|(lane, away)| Step::Part(lane, away)),
        1 => (0..LANES, any::<bool>()).prop_map(|(lane, full)| Step::Backlog(lane, full)),
        2 => (0_u8..30).prop_map(Step::Breathe),
        2 => Just(Step::Crash),
    ]
}

/// What was answered as stored, lane by lane in the order of the answers: by the store, or by the spool.
#[derive(Default)]
struct Promised {
    all: BTreeSet<EventId>,
    spooled: BTreeMap<Lane, Vec<EventId>>,
}

fn lane_of(number: usize) -> Lane {
    lane(&format!("store-{number}"))
}

async fn append(node: &mut Node, promised: &mut Promised, events: &[(usize, bool)]) -> Result<(), TestCaseError> {
    let mut batch: Vec<Arc<Event>> = Vec::new();
    for (number, ordered) in events {
        let mut event = node.events(&lane_of(*number), 1).remove(0);
        if *ordered {
            Arc::make_mut(&mut event).order = Some(Group::of(&["conversation"]));
        }
        batch.push(event);
    }
    let appended = node.store.append(batch.clone()).await.map_err(|error| TestCaseError::fail(error.to_string()))?;
    for (number, event) in batch.iter().enumerate() {
        let Ok(seq) = appended.place(number) else { continue };
        promised.all.insert(event.id);
        if seq.0 > FIRST {
            prop_assert!(event.order.is_none(), "an event with an order key is in the spool");
            promised.spooled.entry(event.lane.clone()).or_default().push(event.id);
        }
    }
    let stored = batch.iter().enumerate().find(|(number, _)| appended.place(*number).is_ok());
    if let Some((_, event)) = stored {
        let found = node.store.find(event.id).await;
        prop_assert!(!matches!(found, Ok(None)), "what was answered as stored cannot be found");
    }
    Ok(())
}

async fn live(steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut node, mut promised) = (Node::new(), Promised::default());
    for step in steps {
        match step {
            Step::Append(events) => append(&mut node, &mut promised, events).await?,
            Step::Becomes(way) => node.remote.becomes(*way),
            Step::Part(number, away) => {
                let (mut outside, group) = (node.remote.outside.lock(), lane_of(*number).group);
                if *away {
                    outside.away.insert(group)
                } else {
                    outside.away.remove(&group)
                };
            }
            Step::Backlog(number, full) => {
                let (mut outside, group) = (node.remote.outside.lock(), lane_of(*number).group);
                if *full {
                    outside.backlog.insert(group, 3)
                } else {
                    outside.backlog.remove(&group)
                };
            }
            Step::Breathe(times) => {
                for _ in 0..*times {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            Step::Crash => node.crash().await,
        }
    }
    node.remote.becomes(Way::There);
    node.remote.outside.lock().away.clear();
    node.remote.outside.lock().backlog.clear();
    node.emptied().await;
    for number in 0..LANES {
        let has = node.remote.ids(&lane_of(number));
        prop_assert_eq!(has.iter().collect::<BTreeSet<_>>().len(), has.len(), "an event is there twice");
        // What was stored and not answered was there before it was in the spool.
        let unsaid = &node.remote.outside.lock().unsaid;
        let mut spooled = promised.spooled.remove(&lane_of(number)).unwrap_or_default();
        spooled.retain(|id| !unsaid.contains(id));
        let in_order: Vec<EventId> = has.iter().copied().filter(|id| spooled.contains(id)).collect();
        prop_assert_eq!(in_order, spooled, "lane {}", number);
        for id in &has {
            promised.all.remove(id);
        }
    }
    prop_assert!(promised.all.is_empty(), "{} events were answered as stored and are lost", promised.all.len());
    Ok(())
}

#[test]
fn every_event_that_was_promised_arrives_once_whatever_happens() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(LIVES);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let lives = prop::collection::vec(step(), 1..40);
    let ended = runner.run(&lives, |steps| {
        let mut outcome = Ok(());
        run(async { outcome = live(&steps).await });
        outcome
    });
    if let Err(failure) = ended {
        panic!("{failure}");
    }
}
