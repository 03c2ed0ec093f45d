//! Reports of nodes become a whole.

use super::*;
use crate::admin::nodes::report::Stands;
use crate::driver::{DedicatedInfo, Failure, LastAnswers, Live};
use crate::event::WaitReason;

fn group(name: &str, queued: u64, share: f64) -> GroupView {
    let none = Duration::ZERO;
    let view = serde_json::json!({
        "group": name, "state": "Ready", "reason": "", "weight": 1.0, "concurrency": 8, "rate": null, "paused": false,
        "backlog": null, "dedicated": null, "queued": queued, "retrying": 0, "live": 0, "in_flight": 0, "oldest": none,
        "worker_time": none, "share": share, "arrival_rate": 0.0, "drain_rate": 0.0, "wait_p99": null,
        "waited": WaitSplit::default(), "eta": null, "accepted": 0, "delivered": 0, "dead": 0, "counted": null, "overflow": null,
    });
    serde_json::from_value(view).unwrap()
}

fn upstream(busy: u32, worker_s: u64, breaker: BreakerState) -> UpstreamInfo {
    UpstreamInfo {
        paused: false,
        concurrency: 64,
        rate: None,
        replay_slots: 4,
        live: Live::default(),
        last: LastAnswers { success: Some(Wall(u64::from(busy))), failure: None },
        breaker,
        slots: Slots { busy, free: 1, ..Slots::default() },
        outbreak: false,
        median: Some(Duration::from_millis(u64::from(busy))),
        worker: Duration::from_secs(worker_s),
        active_groups: 2,
        dedicated: DedicatedInfo::default(),
    }
}

fn report(node: &str, groups: Vec<GroupView>, upstream: UpstreamInfo) -> Report {
    Report {
        node: node.to_owned(),
        now: Mono(1_000_000),
        stands: Stands {
            version: String::new(),
            started: Wall(0),
            up: Duration::ZERO,
            not_ready: None,
            draining: false,
            pending: 5,
            lanes: 2,
            overflow: 0,
            oldest: Some(Wall(groups.len() as u64)),
            bytes: 0,
            history: 0,
            silent: Some(Duration::from_secs(groups.len() as u64)),
            spool: Some(SpoolUsage { events: 3, bytes: 10, room_bytes: 100, oldest: None }),
            accepted: 0,
            delivered: 0,
            quiet: (Duration::ZERO, 0),
        },
        groups: vec![groups],
        group: None,
        held: (Vec::new(), 0),
        upstream: Some(upstream),
        addresses: Vec::new(),
        hung: Vec::new(),
        waited: None,
        sources: Vec::new(),
        replays: Vec::new(),
        jobs: Vec::new(),
        firing: Vec::new(),
        resolved: Vec::new(),
        rejections: Vec::new(),
    }
}

fn whole(reports: Vec<Report>) -> Whole {
    Whole { reports, missing: Vec::new() }
}

/// What a node says goes over the wire and comes back the same.
fn heard(report: &Report) -> Report {
    serde_json::from_str(&serde_json::to_string(report).unwrap()).unwrap()
}

#[test]
fn lists_become_one_list_in_its_order_and_length_and_shares_are_those_of_all() {
    let here = report("a", vec![group("x", 9, 0.5), group("y", 2, 0.5)], upstream(1, 30, BreakerState::Closed));
    let there = report("b", vec![group("z", 5, 1.0), group("y", 0, 0.0)], upstream(1, 10, BreakerState::Closed));
    let whole = whole(vec![heard(&here), heard(&there)]);
    let seen = |sort, limit| -> Vec<(String, u64, f64)> {
        let groups = whole.groups(0, sort, limit);
        groups.into_iter().map(|view| (view.group.to_string(), view.queued, view.share)).collect()
    };
    let (x, y, z) = (("x".into(), 9, 0.375), ("y".into(), 2, 0.375), ("z".into(), 5, 0.25));
    assert_eq!(seen(Sort::Depth, 9), [x.clone(), z.clone(), y.clone()]);
    assert_eq!(seen(Sort::Seconds, 9), [x.clone(), y, z], "equal ones by name");
    assert_eq!(seen(Sort::Depth, 1), [x]);
    assert_eq!((whole.backlog(), whole.oldest()), ((10, 4), Some(Wall(2))));
    assert_eq!(whole.spool().unwrap().events, 6);
}

#[test]
fn slots_add_up_and_the_worst_breaker_stands_for_all_by_our_clock() {
    let open = BreakerState::Open { until: Mono(1_000_500) };
    let (mut here, there) =
        (report("a", vec![], upstream(3, 1, BreakerState::Closed)), report("b", vec![], upstream(5, 1, open)));
    here.now = Mono(7_000_000);
    let mut late = report("c", vec![], upstream(4, 1, BreakerState::SlowStart { slots: 4 }));
    let failure = Failure { at: Wall(9), error: "refused".into() };
    late.upstream.as_mut().unwrap().last.failure = Some(failure.clone());
    let whole = whole(vec![here, heard(&there), heard(&late)]);
    let sum = whole.upstream().unwrap();
    assert_eq!((sum.slots.busy, sum.slots.free, sum.concurrency, sum.active_groups), (12, 3, 64, 6));
    assert_eq!(sum.breaker, BreakerState::Open { until: Mono(7_000_500) });
    assert_eq!((sum.last.success, sum.last.failure), (Some(Wall(5)), Some(failure)));
    assert_eq!(sum.median, Some(Duration::from_millis(4)));
    assert_eq!(whole.upstreams().len(), 3);
}

#[test]
fn what_came_through_a_source_adds_up_and_so_does_what_was_waited_for() {
    let source = |accepted, reason: &str| SourceReport {
        name: "/s".to_owned(),
        backlog: Some(1),
        accepted,
        fallback: vec![(reason.to_owned(), 1)],
        matches: vec![1, 0],
        ..SourceReport::default()
    };
    let waits = |reason| {
        let mut split = WaitSplit::default();
        split.add(reason, Duration::from_secs(1));
        Some(split)
    };
    let alone = || report("a", vec![], upstream(1, 1, BreakerState::Closed));
    let mut one = Report { sources: vec![source(3, "empty")], waited: waits(WaitReason::Slots), ..alone() };
    let two = Report { sources: vec![source(4, "absent")], waited: waits(WaitReason::Slots), ..alone() };
    let sum = whole(vec![heard(&one), heard(&two)]);
    assert_eq!((sum.source("/s").accepted, sum.source("/s").backlog), (7, Some(2)));
    assert_eq!((sum.source("/s").fallback.len(), &*sum.source("/s").matches), (2, &[2, 0][..]));
    assert_eq!(sum.waited().unwrap().parts(), [(WaitReason::Slots, Duration::from_secs(2))]);
    one.sources[0].backlog = None;
    assert_eq!(whole(vec![one, two]).source("/s").backlog, None, "a part that is not known makes no sum");
    assert_eq!(whole(vec![alone()]).source("/else"), SourceReport::default());
}
