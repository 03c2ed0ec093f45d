//! Appending: numbers, whole batches, and every byte of an event.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use fairlane::event::{Event, Group, KeySource, Missing, Seq, Wall};
use fairlane::store::Verdict;
use http::{HeaderName, HeaderValue};

use crate::snapshot::Snapshot;
use crate::world::{Subject, World, everything, lane};

pub(crate) async fn seqs_start_at_1_and_follow_without_a_gap(mut world: World<impl Subject>) {
    let (a, b) = (lane("a"), lane("b"));
    assert_eq!(world.append(&a, 1).await, [Seq(1)]);
    let mixed = vec![Arc::new(world.event(&b)), Arc::new(world.event(&a)), Arc::new(world.event(&b))];
    let ids: Vec<_> = mixed.iter().map(|event| event.id).collect();
    assert_eq!(world.append_batch(mixed).await, [Seq(2), Seq(3), Seq(4)]);
    assert_eq!(world.append(&a, 300).await.last(), Some(&Seq(304)));
    let events = world.store().read(vec![Seq(2), Seq(3), Seq(4)]).await.unwrap();
    assert_eq!(events.into_iter().map(|event| event.unwrap().id).collect::<Vec<_>>(), ids, "in the order given");
}

pub(crate) async fn an_empty_batch_takes_nothing_and_names_the_next_seq(mut world: World<impl Subject>) {
    assert_eq!(world.store().append(Vec::new()).await, Ok(Seq(1).into()));
    world.append(&lane("a"), 2).await;
    assert_eq!(world.store().append(Vec::new()).await, Ok(Seq(3).into()));
    assert_eq!(world.append_one(&lane("a")).await, Seq(3));
    assert_eq!(world.store().settle(Vec::new()).await, Ok(0), "an empty batch of settlements changes nothing");
    assert_eq!(world.store().usage().pending, 3);
}

pub(crate) async fn a_batch_is_there_whole_and_in_order_after_a_crash(mut world: World<impl Subject>) {
    let batch: Vec<_> = (0..100).map(|i| Arc::new(world.event(&lane(&format!("store-{}", i % 7))))).collect();
    let seqs = world.append_batch(batch.clone()).await;
    world.crash().await;
    let found = world.store().read(seqs).await.unwrap();
    assert!(found.into_iter().map(Option::unwrap).eq(batch), "every event of the batch, in its order");
}

pub(crate) async fn a_batch_larger_than_a_segment_is_still_one_batch(mut world: World<impl Subject>) {
    let body = Bytes::from((0..26 << 20).map(|i: u32| i.to_le_bytes()[1]).collect::<Vec<u8>>());
    let batch: Vec<_> = (0..3).map(|_| Arc::new(Event { body: body.clone(), ..world.event(&lane("large")) })).collect();
    let seqs = world.append_batch(batch.clone()).await;
    world.append_one(&lane("small")).await;
    world.crash().await;
    let found = world.store().read(seqs).await.unwrap();
    assert!(found.into_iter().map(Option::unwrap).eq(batch), "78 MiB come back as they went");
    Snapshot::take(world.store(), 10).await;
}

pub(crate) async fn bodies_come_back_byte_for_byte(mut world: World<impl Subject>) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let bodies = [
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from_static(b"\r\n\r\n"),
        Bytes::from(every_byte.repeat(3)),
        Bytes::from_static("{\"name\":\"caf\u{e9}\"}".as_bytes()),
        Bytes::from_static(&[0xff, 0xfe, 0x00, 0xc3]),
        Bytes::from(every_byte.repeat(20 * 4096)),
    ];
    let batch = bodies.iter().map(|body| Arc::new(Event { body: body.clone(), ..world.event(&lane("a")) })).collect();
    let seqs = world.append_batch(batch).await;
    for reopened in [false, true] {
        let found = world.store().read(seqs.clone()).await.unwrap();
        for (event, body) in found.into_iter().zip(&bodies) {
            let event = event.unwrap();
            assert!(event.body == body, "a body of {} bytes, reopened: {reopened}", body.len());
            assert_eq!(event.headers.get("content-type"), Some(&HeaderValue::from_static("application/json")));
        }
        let page = world.store().list(everything(100)).await.unwrap();
        let sizes: Vec<usize> = page.records.iter().rev().map(|record| record.body_bytes as usize).collect();
        assert_eq!(sizes, bodies.iter().map(Bytes::len).collect::<Vec<_>>());
        world.crash().await;
    }
}

pub(crate) async fn every_field_of_an_event_comes_back(mut world: World<impl Subject>) {
    let mut key_sources = vec![
        KeySource::NoRule,
        KeySource::Rule { rule: "body.payload | json | team.id".into(), signed: true },
        KeySource::Rule { rule: "query.\u{e9}".into(), signed: false },
    ];
    key_sources.extend(Missing::ALL.map(KeySource::Missing));
    let mut batch = Vec::new();
    for (i, key_source) in key_sources.into_iter().enumerate() {
        let odd = i % 2 == 1;
        let plain = world.event(&lane("a"));
        batch.push(Arc::new(Event {
            received: Wall(plain.received.0 + i as u64),
            source: if odd { "/webhooks/{store}/*".into() } else { "shop".into() },
            key_source,
            order: odd.then(|| Group::of(&["order 17", "~"])),
            verified: if odd { "".into() } else { "stripe secret=11".into() },
            provider_event_id: odd.then(|| "\u{1f600}\n".into()),
            event_type: if i % 3 == 0 { None } else { Some("".into()) },
            method: if odd { http::Method::from_bytes(b"X-SYNC").unwrap() } else { http::Method::GET },
            target: format!("/a%00b/../?q={}#", "x".repeat(i * 700)).into(),
            forward: odd.then(|| "/?".into()),
            peer: if odd { "2001:db8::1".parse::<IpAddr>().unwrap() } else { "255.0.255.0".parse().unwrap() },
            https: odd,
            ..plain
        }));
    }
    let seqs = world.append_batch(batch.clone()).await;
    for _ in 0..2 {
        let found = world.store().read(seqs.clone()).await.unwrap();
        for (found, given) in found.into_iter().zip(&batch) {
            assert_eq!(found.unwrap(), *given);
        }
        for (seq, given) in seqs.iter().zip(&batch) {
            let pending = world.pending(*seq).await;
            assert_eq!((pending.id, &pending.order, pending.received), (given.id, &given.order, given.received));
            let record = world.story(*seq).await.record;
            assert_eq!(
                (&record.source, &record.lane, &record.key_source),
                (&given.source, &given.lane, &given.key_source)
            );
            assert_eq!((record.provider_event_id, record.event_type), {
                let given = Event::clone(given);
                (given.provider_event_id, given.event_type)
            });
        }
        world.crash().await;
    }
}

pub(crate) async fn header_lines_come_back_in_their_order(mut world: World<impl Subject>) {
    let mut event = world.event(&lane("a"));
    event.headers.clear();
    let repeated = [&b"1"[..], b"", b"two, three", b"caf\xe9", b"\xff\x80", b"\t x", b"1"];
    for value in repeated {
        event.headers.append("x-repeated", HeaderValue::from_bytes(value).unwrap());
    }
    event.headers.append("x-large", HeaderValue::from_str(&"v".repeat(60_000)).unwrap());
    for i in 0..200 {
        let name = HeaderName::from_bytes(format!("x-{i}").as_bytes()).unwrap();
        event.headers.append(name, HeaderValue::from_static("x"));
    }
    let bare = Event { headers: http::HeaderMap::new(), ..world.event(&lane("a")) };
    let seqs = world.append_batch(vec![Arc::new(event.clone()), Arc::new(bare)]).await;
    for _ in 0..2 {
        let mut found = world.store().read(seqs.clone()).await.unwrap();
        assert!(found.remove(1).unwrap().headers.is_empty(), "an event without headers has none");
        let headers = &found[0].as_ref().unwrap().headers;
        assert_eq!(*headers, event.headers);
        let values: Vec<&[u8]> = headers.get_all("x-repeated").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(values, repeated);
        world.crash().await;
    }
}

pub(crate) async fn an_append_a_settlement_and_reads_may_run_side_by_side(mut world: World<impl Subject>) {
    let old = world.append(&lane("a"), 50).await;
    for _ in 0..20 {
        let batch: Vec<_> = (0..20).map(|_| Arc::new(world.event(&lane("a")))).collect();
        let settlements = old.iter().map(|seq| world.settlement(*seq, Verdict::Begun)).collect();
        let store = world.store();
        let (first, ignored, page, open) = tokio::join!(
            store.append(batch),
            store.settle(settlements),
            store.list(everything(1_000)),
            store.open(Seq(0), 1_000)
        );
        let (first, page) = (first.unwrap().first, page.unwrap());
        assert_eq!(ignored, Ok(0));
        let newest = page.records.first().map_or(Seq(0), |record| record.seq);
        assert!(
            newest.0 == first.0 - 1 || newest.0 == first.0 + 19,
            "a reader sees a batch whole or not at all: {newest} while {first} and 19 more were appended"
        );
        assert!([0, 50].contains(&open.unwrap().len()), "the same for settlements");
    }
    let snapshot = Snapshot::take(world.store(), 100).await;
    assert_eq!((snapshot.open.len(), snapshot.fresh.len()), (50, 400));
    assert!(snapshot.open.iter().all(|pending| pending.attempts == 20), "no settlement was lost");
}
