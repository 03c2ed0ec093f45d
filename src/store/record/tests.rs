//! What is written is read back, and nothing that is read can make the reader panic.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::*;
use crate::event::{Group, Lane};

fn texts() -> impl Strategy<Value = String> {
    "[ -~é]{0,12}"
}

fn groups() -> impl Strategy<Value = Group> {
    vec("[a-z~%/ é]{1,8}", 1..3).prop_map(|parts| Group::of(&parts))
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    vec(("[a-c]{1,2}", vec(32_u8..127, 0..8)), 0..6).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name of letters"),
                HeaderValue::from_bytes(&value).expect("a printable value"),
            );
        }
        headers
    })
}

fn key_sources() -> impl Strategy<Value = KeySource> {
    prop_oneof![
        (texts(), any::<bool>()).prop_map(|(rule, signed)| KeySource::Rule { rule: rule.into(), signed }),
        (0_usize..8).prop_map(|n| KeySource::Missing(Missing::ALL[n])),
        Just(KeySource::NoRule),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let names = (
        any::<[u8; 16]>(),
        any::<u64>(),
        texts(),
        groups(),
        option::of(groups()),
        option::of((groups(), option::of(groups()))),
        key_sources(),
    );
    let marks = (option::of((any::<[u8; 16]>(), any::<u32>())), option::of(any::<([u8; 16], [u8; 8], u8)>()));
    let found = (option::of(groups()), marks, texts(), option::of(texts()), option::of(texts()));
    let came = (0_usize..3, texts(), option::of(texts()), any::<IpAddr>(), any::<bool>(), headers(), any::<Vec<u8>>());
    (names, found, came).prop_map(|(names, found, came)| {
        let (id, received, source, group, inner, owner, key_source) = names;
        let (order, (fingerprint, trace), verified, provider_event_id, event_type) = found;
        let (method, target, forward, peer, https, headers, body) = came;
        Event {
            id: EventId(id),
            received: Wall(received),
            source: source.into(),
            lane: Lane { group, inner },
            owner: owner.map(|(group, inner)| Lane { group, inner }),
            key_source,
            order,
            fingerprint: fingerprint
                .map(|(hash, window)| Fingerprint { hash, window: Duration::from_micros(window.into()) }),
            trace: trace.map(|(id, span, flags)| Trace { id, span, flags }),
            verified: verified.into(),
            provider_event_id: provider_event_id.map(Into::into),
            event_type: event_type.map(Into::into),
            method: [Method::POST, Method::PUT, Method::from_bytes(b"PURGE").expect("a token")][method].clone(),
            target: target.into(),
            forward: forward.map(Into::into),
            peer,
            https,
            headers,
            body: body.into(),
        }
    })
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Begun),
        Just(Verdict::Interrupted),
        any::<u64>().prop_map(|due| Verdict::RetryAt(Wall(due))),
        Just(Verdict::Released),
        Just(Verdict::Delivered),
        texts().prop_map(|reason| Verdict::Dead(reason.into())),
        Just(Verdict::Discarded),
        Just(Verdict::Requeued),
    ]
}

fn notes() -> impl Strategy<Value = AttemptNote> {
    let numbers = (any::<u32>(), any::<u64>(), any::<u64>(), 0_u32..1_000_000_000, option::of(any::<u16>()));
    let waited = vec((0..WaitReason::COUNT, any::<u32>()), 0..4);
    (numbers, texts(), texts(), any::<Vec<u8>>(), waited).prop_map(|(numbers, outcome, error, excerpt, waited)| {
        AttemptNote {
            number: numbers.0,
            started: Wall(numbers.1),
            took: Duration::new(numbers.2, numbers.3),
            status: numbers.4,
            outcome: outcome.into(),
            error: error.into(),
            excerpt: excerpt.into(),
            refused: numbers.0 % 2 == 1,
            waited: waited
                .into_iter()
                .map(|(at, us)| (WaitReason::ALL[at], Duration::from_micros(us.into())))
                .collect(),
        }
    })
}

#[test]
fn a_note_without_waits_is_written_as_before_they_were_split_and_unknown_marks_are_damage() {
    let plain = AttemptNote {
        waited: WaitSplit::default(),
        ..notes().new_tree(&mut proptest::test_runner::TestRunner::deterministic()).expect("a note").current()
    };
    let mut bytes = Vec::new();
    put_note(&mut bytes, &plain);
    assert_eq!(bytes.last(), Some(&u8::from(plain.refused)));
    *bytes.last_mut().expect("a byte") = 4;
    assert!(read_note(&mut Reader::new(&bytes), Form::Present).is_err());
}

fn states() -> impl Strategy<Value = State> {
    let times = (option::of(any::<u64>()), option::of(any::<u64>()), option::of(any::<u64>()));
    (0_usize..7, times, any::<u32>(), any::<u32>(), any::<u32>(), texts()).prop_map(
        |(status, times, attempts, interrupted, replays, reason)| State {
            status: Status::ALL[status],
            due: times.0.map(Wall),
            first_attempt: times.1.map(Wall),
            settled: times.2.map(Wall),
            attempts,
            interrupted,
            replays,
            requeued: times.1.map(Wall),
            bytes: attempts,
            reason: reason.into(),
            refused: attempts / 2,
            duplicate_of: (attempts % 3 == 0).then_some(EventId([7; 16])),
        },
    )
}

pub(super) fn records() -> impl Strategy<Value = Record> {
    let births = || vec(any::<u32>(), 0..3);
    let seqs = || any::<u64>().prop_map(Seq);
    prop_oneof![
        (seqs(), events()).prop_map(|(seq, event)| Record::Accepted { seq, event }),
        (seqs(), any::<u64>(), verdicts(), option::of(notes()), births()).prop_map(
            |(seq, at, verdict, note, births)| {
                Record::Settled(Settled { seq, at: Wall(at), verdict, note, births })
            }
        ),
        ((seqs(), option::of(seqs())), events(), states(), vec(notes(), 0..3), births()).prop_map(
            |((seq, replaces), event, state, notes, births)| {
                Record::Copied { seq, replaces, event, state, notes, births }
            }
        ),
        (seqs(), births()).prop_map(|(seq, births)| Record::Gone { seq, births }),
    ]
}

pub(super) fn write(record: &Record) -> Bytes {
    let mut out = Vec::new();
    put_frame(&mut out, |out| match record {
        Record::Accepted { seq, event } => put_accepted(out, *seq, event),
        Record::Settled(settled) => put_settled(out, settled),
        Record::Copied { seq, replaces, event, state, notes, births } => {
            put_copied(out, &Copy { seq: *seq, replaces: *replaces, event, state, notes, births });
        }
        Record::Gone { seq, births } => put_gone(out, *seq, births),
    })
    .expect("a short record");
    out.into()
}

proptest! {
    #[test]
    fn every_record_is_read_back(record in records()) {
        let frame = write(&record);
        prop_assert_eq!(decode(&frame_payload(&frame).expect("a whole frame")), Ok(record));
    }

    #[test]
    fn a_changed_byte_is_noticed(record in records(), at: prop::sample::Index, change in 1_u8..) {
        let frame = write(&record);
        let mut bytes = frame.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(frame_payload(&bytes.into()).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, kind in 0_u8..8) {
        let whole = Bytes::from(bytes.clone());
        prop_assert!(frame_payload(&whole).is_err() || bytes.len() >= FRAME_BYTES);
        bytes.insert(0, kind);
        // Either answer is right; what counts is that there is one.
        let _either = decode(&bytes.into());
    }

    #[test]
    fn a_damaged_record_never_panics(record in records(), at: prop::sample::Index, change in 1_u8..) {
        let mut payload = frame_payload(&write(&record)).expect("a whole frame").to_vec();
        let at = at.index(payload.len());
        payload[at] ^= change;
        let _either = decode(&payload.into());
    }
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut event = events().new_tree(&mut runner).expect("an event").current();
    assert_eq!(check(&event), Ok(()));
    event.lane.group = Group::of(&["é".repeat(400)]);
    assert!(check(&event).is_err_and(|why| why.contains("2400 bytes")), "a key that is too long");
    event.lane.group = Group::of::<&str>(&[]);
    assert!(check(&event).is_err(), "an empty key");
}

/// An event without what came later.
fn plain_event() -> Event {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let event = events().new_tree(&mut runner).expect("an event").current();
    Event { fingerprint: None, trace: None, body: Bytes::from_static(b"{}"), ..event }
}

/// Without the marks for fingerprint and trace, which stand before the body and its length.
fn put_old_event(out: &mut Vec<u8>, event: &Event) {
    put_event(out, event);
    let at = out.len() - event.body.len() - 3;
    assert_eq!(out.drain(at..at + 2).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn records_of_before_there_were_fingerprints_are_read_as_without_any() {
    let event = plain_event();
    let mut accepted = vec![1, 9];
    put_old_event(&mut accepted, &event);
    assert_eq!(decode(&accepted.into()), Ok(Record::Accepted { seq: Seq(9), event: event.clone() }));
    // As below, and with no refusals counted in the state.
    let mut copied = vec![6, 9, 0, 3, 1, 0xD0, 0x0F, 2, 1, 0xE8, 0x07, 0, 0, 0, 0xAC, 0x02, 0, 4, 0, 0];
    put_old_event(&mut copied, &event);
    let Ok(Record::Copied { state, event: read, .. }) = decode(&copied.into()) else { panic!("a copy") };
    assert_eq!((read, state.refused, state.duplicate_of), (event, 4, None));
}

#[test]
fn records_of_before_refusals_were_counted_are_read_as_without_any() {
    // Seq, time, `RetryAt`, a note, one birth.
    let mut settled = vec![2, 7, 0xE8, 0x07, 3, 0xD0, 0x0F, 1];
    settled.extend_from_slice(b"\x03\x84\x07\x01\xFA\x01\x06status\x01\x94\x03\x00\x02no");
    settled.extend_from_slice(&[1, 5]);
    let note = AttemptNote {
        number: 3,
        started: Wall(900),
        took: Duration::new(1, 250),
        outcome: "status".into(),
        status: Some(404),
        error: "".into(),
        excerpt: Bytes::from_static(b"no"),
        refused: false,
        waited: WaitSplit::default(),
    };
    let verdict = Verdict::RetryAt(Wall(2_000));
    let expected = Settled { seq: Seq(7), at: Wall(1_000), verdict, note: Some(note), births: vec![5] };
    assert_eq!(decode(&settled.into()), Ok(Record::Settled(expected)));

    // Seq, no seq before, state, no births, no notes, the event.
    let mut copied = vec![3, 9, 0, 3, 1, 0xD0, 0x0F, 2, 1, 0xE8, 0x07, 0, 0, 0, 0xAC, 0x02, 0, 0, 0];
    let event = plain_event();
    put_old_event(&mut copied, &event);
    let Ok(Record::Copied { seq, state, event: read, .. }) = decode(&copied.into()) else { panic!("a copy") };
    assert_eq!((seq, read), (Seq(9), event));
    let due = (state.status, state.due, state.first_attempt);
    assert_eq!(due, (Status::Retrying, Some(Wall(2_000)), Some(Wall(1_000))));
    assert_eq!((state.attempts, state.bytes, state.refused), (2, 300, 0));
}
