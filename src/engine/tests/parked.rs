//! A lane whose next event is of a paused source waits, alone, and goes on where it was.

use super::rig::{Rig, inner, lane, ms};
use crate::engine::{Settings, State};
use crate::event::WaitReason;

#[test]
fn a_parked_lane_waits_alone_and_goes_on_where_it_was() {
    let mut rig = Rig::new(Settings::default());
    let (plain, part, other) = (lane("a"), inner("a", "part"), lane("b"));
    for lane in [&plain, &part, &other] {
        rig.append(lane, 5);
    }
    rig.engine.park(&plain, "orders".into(), rig.at());
    rig.run(ms(1_000));
    let view = |rig: &Rig| rig.engine.group(&plain.group, rig.now);
    assert_eq!((rig.got[&plain.group].delivered, rig.got[&other.group].delivered), (5, 5), "the part of it went on");
    assert_eq!((view(&rig).state, view(&rig).queued), (State::Paused, 5));
    assert_eq!(view(&rig).reason, "its next event is of the source orders, which is paused");
    assert!(!view(&rig).paused, "nobody paused the group");
    let survey = rig.engine.survey(ms(500), ms(500), rig.now);
    assert_eq!((survey.late.count, survey.pending, survey.unpaused), (0, 5, 0), "a pause alerts nobody");

    // What comes meanwhile stands behind it, in memory or not.
    rig.append(&plain, 2_000);
    rig.run(ms(1_000));
    assert_eq!(view(&rig).queued, 2_005);
    rig.engine.check_invariants().unwrap();
    rig.engine.unpark(&plain, rig.at());
    rig.drain();
    assert_eq!(rig.got[&plain.group].delivered, 2_010);
    let waited = view(&rig).waited;
    assert!(waited.iter().any(|(reason, _)| reason == WaitReason::GroupPaused), "{waited:?}");
    rig.engine.check_invariants().unwrap();
    assert_eq!(rig.engine.violations(), 0);

    // A lane that is emptied by hand takes its pause with it.
    rig.append(&plain, 1);
    rig.engine.park(&plain, "orders".into(), rig.at());
    rig.engine.unpark(&other, rig.at());
    let seq = *rig.store.pending.keys().next().unwrap();
    assert!(rig.engine.remove(&plain, seq, crate::engine::Removal::Discard, false, rig.at()));
    rig.drain();
    rig.append(&plain, 1);
    rig.drain();
    assert_eq!(rig.engine.violations(), 0);
}
