//! What is written is read back, and nothing else is believed.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::event::{Fingerprint, KeySource, Trace};

fn event_with(group: &str, body: Vec<u8>, received: u64, odd: bool) -> Event {
    let lane = Lane { group: Group::of(&[group]), inner: odd.then(|| Group::of(&["inner"])) };
    Event {
        id: EventId([7; 16]),
        received: Wall(received),
        source: "shop".into(),
        owner: odd.then(|| Lane { group: Group::of(&["owner"]), inner: None }),
        lane,
        key_source: KeySource::NoRule,
        order: odd.then(|| Group::of(&["order"])),
        fingerprint: odd.then_some(Fingerprint { hash: [3; 16], window: Duration::from_secs(60) }),
        trace: odd.then_some(Trace { id: [1; 16], span: [2; 8], flags: 1 }),
        verified: "none".into(),
        provider_event_id: odd.then(|| "id".into()),
        event_type: None,
        method: http::Method::POST,
        target: "/".into(),
        forward: None,
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        https: odd,
        headers: http::HeaderMap::new(),
        body: Bytes::from(body),
    }
}

/// A state as it is stored: the time of its commit before what the script is given.
fn state(event: &Event, t: u64) -> Vec<u8> {
    let mut state = t.to_be_bytes().to_vec();
    put_fresh(&mut state, event, 99);
    state
}

proptest! {
    #[test]
    fn an_event_is_read_back(group in "[a-z~]{1,9}", body: Vec<u8>, received in 1_u64..1 << 53, odd: bool, t: u64) {
        let given = event_with(&group, body, received, odd);
        prop_assert_eq!(event(&head(&given), rest(&given)), Ok(given.clone()));
        let found = found(Shard(3), 77, &state(&given, t), &head(&given)).unwrap();
        let pending = found.row.pending();
        prop_assert_eq!((found.t, pending.seq, pending.id, pending.bytes), (t, Shard(3).seq(77), given.id, 99));
        prop_assert_eq!((&pending.lane, &pending.owner, &pending.order), (&given.lane, &given.owner, &given.order));
        prop_assert_eq!((pending.attempts, pending.due, pending.open, pending.requeued), (0, None, false, None));
        let record = found.row.record();
        prop_assert_eq!(record.body_bytes as usize, given.body.len());
        prop_assert_eq!(record.trace, given.trace.map(|trace| trace.id));
        prop_assert_eq!((record.status, record.settled, record.received), (Status::Queued, None, given.received));
    }

    #[test]
    fn arbitrary_bytes_are_damage_and_never_panic(bytes: Vec<u8>, cut in 0_usize..90) {
        let given = event_with("a", vec![1, 2, 3], 5, true);
        let whole = state(&given, 9);
        drop(found(Shard(0), 1, &bytes, &head(&given)));
        prop_assert!(found(Shard(0), 1, &whole, &bytes).is_err());
        drop(found(Shard(0), 1, whole.get(..cut).unwrap_or(&whole), &head(&given)));
        drop(event(&bytes, rest(&given)));
        drop(event(&head(&given), bytes));
    }

    #[test]
    fn a_lane_is_read_back(group in "[a-z~.]{1,9}", inner in proptest::option::of("[a-z~.]{1,9}")) {
        let given = Lane { group: Group::of(&[group]), inner: inner.map(|inner| Group::of(&[inner])) };
        prop_assert_eq!(lane(&lane_name(&given)), Ok(given));
    }

    #[test]
    fn a_number_is_read_back_and_in_order(a in 0_u64..1 << 43, b in 0_u64..1 << 43) {
        prop_assert_eq!(number(&written(a)), Ok(a));
        prop_assert_eq!(written(a).cmp(&written(b)), a.cmp(&b));
    }
}

#[test]
fn a_time_beyond_what_a_double_has_is_as_good_as_never() {
    assert_eq!(whole(time(Wall(u64::MAX))), Some(TIME_MAX));
    assert_eq!(whole(time(Wall(1_790_000_000_000_001))), Some(1_790_000_000_000_001));
    assert_eq!(whole(-1.0), None);
}

#[test]
fn seqs_of_no_shard_are_nowhere() {
    assert_eq!(place(Shard(3).seq(9), 4), Some((Shard(3), 9)));
    assert_eq!(place(Shard(4).seq(9), 4), None);
    assert_eq!(place(Seq(u64::MAX), u16::MAX), None);
}
