//! What people ask: lists with every filter, page by page to the end, and single events by id.

use std::sync::Arc;
use std::time::Duration;

use fairlane::event::{Event, EventId, Group, Seq};
use fairlane::store::{Query, Record, Status, Verdict};

use crate::snapshot::{Snapshot, all_records};
use crate::world::{START, Subject, World, everything, inner_lane, lane};

/// Ninety events over three groups (one of them in parts), two sources, a minute each, in every status that verdicts can reach.
async fn variety(world: &mut World<impl Subject>) -> Vec<Record> {
    let lanes = [lane("a"), lane("b"), inner_lane("c", "orders"), inner_lane("c", "products"), lane("c")];
    for i in 0..90_usize {
        world.clock.advance(Duration::from_secs(60));
        let mut event = world.event(&lanes[i % lanes.len()]);
        event.source = if i % 4 == 0 { "billing".into() } else { "shop".into() };
        event.provider_event_id = match i % 6 {
            0 => None,
            1 => Some("twice".into()),
            _ => Some(format!("id-{i}").into()),
        };
        let seq = world.append_batch(vec![Arc::new(event)]).await[0];
        match i % 7 {
            0 => {}
            1 => world.settle(seq, Verdict::Begun).await,
            2 => world.settle(seq, Verdict::RetryAt(world.now())).await,
            3 => world.settle(seq, Verdict::Delivered).await,
            4 => world.settle(seq, Verdict::Dead("x".into())).await,
            5 => world.settle(seq, Verdict::Discarded).await,
            _ => {
                world.settle(seq, Verdict::Delivered).await;
                world.settle(seq, Verdict::Requeued).await;
            }
        }
    }
    all_records(world.store(), everything(1_000)).await
}

/// The conditions of a query, as its documentation says them.
fn matches(query: &Query, record: &Record) -> bool {
    query.group.as_ref().is_none_or(|group| *group == record.lane.group)
        && query.source.as_ref().is_none_or(|source| *source == record.source)
        && (query.status.is_empty() || query.status.contains(&record.status))
        && query.since.is_none_or(|since| since <= record.received)
        && query.until.is_none_or(|until| record.received < until)
        && query.provider_event_id.as_ref().is_none_or(|id| record.provider_event_id.as_ref() == Some(id))
}

pub(crate) async fn a_list_is_newest_first_and_paged_to_its_end(mut world: World<impl Subject>) {
    let all = variety(&mut world).await;
    assert_eq!(all.len(), 90);
    assert!(all.is_sorted_by(|a, b| a.seq > b.seq), "highest seq first");
    for limit in [1, 7, 30, 90, 91, 1_000] {
        assert_eq!(all_records(world.store(), everything(limit)).await, all, "{limit} a page");
    }
    let before = Query { behind: Some(all[10].seq), ..everything(5) };
    assert_eq!(world.store().list(before).await.unwrap().records, all[11..16], "before, not from");
    let end = Query { behind: Some(Seq(1)), ..everything(5) };
    let end = world.store().list(end).await.unwrap();
    assert_eq!((end.records, end.next), (vec![], None));
    world.crash().await;
    assert_eq!(all_records(world.store(), everything(13)).await, all);
    let oldest_first = Query { oldest_first: true, behind: Some(all[80].seq), ..everything(3) };
    let wanted: Vec<Record> = all[..80].iter().rev().cloned().collect();
    assert_eq!(all_records(world.store(), oldest_first).await, wanted);
}

pub(crate) async fn every_filter_alone_and_together(mut world: World<impl Subject>) {
    let all = variety(&mut world).await;
    let minute = |minutes: u64| START.plus(Duration::from_secs(60 * minutes));
    let groups = [None, Some("a"), Some("c"), Some("nobody")];
    let sources = [None, Some("billing"), Some("nowhere")];
    let mut statuses: Vec<Vec<Status>> = Status::ALL.iter().map(|status| vec![*status]).collect();
    statuses.extend([vec![], vec![Status::Dead, Status::Queued], Status::ALL.to_vec()]);
    let spans = [
        (None, None),
        (Some(30), None),
        (None, Some(30)),
        (Some(20), Some(50)),
        (Some(7), Some(8)),
        (Some(9), Some(9)),
    ];
    let ids = [None, Some("twice"), Some("id-2"), Some("unknown")];
    let mut found_any = 0;
    for (round, reopen) in [false, true].into_iter().enumerate() {
        if reopen {
            world.crash().await;
        }
        for (group, source) in groups.iter().flat_map(|group| sources.iter().map(move |source| (group, source))) {
            for ((since, until), id) in spans.iter().flat_map(|span| ids.iter().map(move |id| (span, id))) {
                for status in &statuses {
                    let query = Query {
                        group: group.map(|key| Group::of(&[key])),
                        source: source.map(Into::into),
                        status: status.clone(),
                        since: since.map(minute),
                        until: until.map(minute),
                        provider_event_id: id.map(Into::into),
                        oldest_first: found_any % 2 == 1,
                        behind: None,
                        limit: 1 + (found_any + round) % 40,
                    };
                    let mut wanted: Vec<&Record> = all.iter().filter(|record| matches(&query, record)).collect();
                    if query.oldest_first {
                        wanted.reverse();
                    }
                    found_any += usize::from(!wanted.is_empty());
                    let found = all_records(world.store(), query.clone()).await;
                    assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{query:?}");
                }
            }
        }
    }
    assert!(found_any > 500, "the filters must find something to be a test: {found_any}");
}

pub(crate) async fn a_rare_event_is_found_behind_many_others(mut world: World<impl Subject>) {
    let rare = world.append_one(&lane("rare")).await;
    let dead = world.append_one(&lane("flood")).await;
    world.settle(dead, Verdict::Dead("x".into())).await;
    for _ in 0..24 {
        let seqs = world.append(&lane("flood"), 1_000).await;
        let batch = seqs.iter().map(|seq| world.settlement(*seq, Verdict::Delivered)).collect();
        assert_eq!(world.store().settle(batch).await, Ok(0));
    }
    let of_rare = Query { group: Some(lane("rare").group), ..everything(10) };
    assert_eq!(all_records(world.store(), of_rare).await.iter().map(|of| of.seq).collect::<Vec<_>>(), [rare]);
    let dead_ones = Query { status: vec![Status::Dead], ..everything(10) };
    assert_eq!(all_records(world.store(), dead_ones).await.iter().map(|of| of.seq).collect::<Vec<_>>(), [dead]);
    let by_id = world.story(rare).await.record.provider_event_id;
    let by_id = Query { provider_event_id: by_id, ..everything(1) };
    assert_eq!(all_records(world.store(), by_id).await.len(), 1);
    assert_eq!(all_records(world.store(), everything(1_000)).await.len(), 24_002);
}

pub(crate) async fn a_list_that_is_paged_while_events_end_misses_none(mut world: World<impl Subject>) {
    let seqs = world.append(&lane("a"), 60).await;
    let mut query = everything(7);
    let mut found = Vec::new();
    for round in 0.. {
        let page = world.store().list(query.clone()).await.unwrap();
        found.extend(page.records.iter().map(|record| record.seq));
        let Some(next) = page.next else { break };
        query.behind = Some(next);
        // Meanwhile: some of those to come end, and new ones arrive.
        if let Some(seq) = seqs.get(round * 3) {
            world.settle(*seq, Verdict::Delivered).await;
        }
        world.append_one(&lane("a")).await;
    }
    found.reverse();
    assert_eq!(found, seqs, "those that were there when the first page was asked for");
}

pub(crate) async fn unknown_ids_and_seqs_are_none(mut world: World<impl Subject>) {
    let seq = world.append_one(&lane("a")).await;
    let stranger = EventId::new(START, &[9; 10]);
    assert_eq!(world.store().find(stranger).await, Ok(None));
    assert_eq!(world.store().find(EventId([0; 16])).await, Ok(None));
    assert_eq!(world.store().find(EventId([0xff; 16])).await, Ok(None));
    let asked = vec![Seq(0), seq, Seq(2), seq, Seq(u64::MAX)];
    let found: Vec<Option<Arc<Event>>> = world.store().read(asked).await.unwrap();
    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(there, [false, true, false, true, false], "one answer a seq, in the order asked");
    assert_eq!(world.store().read(vec![]).await, Ok(vec![]));
    Snapshot::take(world.store(), 1).await;
}
