//! What a sender can do to a gateway, through the real binary: heads without end, requests that two readers would read differently, floods
//! of HTTP/2 frames, bodies that explode, leaving too early. (Slow ones, too many and too large ones: `tests/gateway.rs`.)
//!
//! All of it happens beside honest senders. Each of those is answered 200 and its event delivered once, as it was sent, and the memory of
//! the process never grows by more than [`ROOM_KIB`], which is less than each flood would take.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "senders/bombs.rs"]
mod bombs;
#[path = "senders/h2.rs"]
mod h2;
mod support;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};

use support::upstream::{Received, Upstream, answer, upstream};
use support::{Client, Gateway, gateway, post};

/// What the process may take more than after its first honest events: the store's own growth, and the largest window that brotli has.
const ROOM_KIB: u64 = 96 * 1024;

/// What is poured at most into a connection that a size ends. Much of it may lie in the kernel's buffers, on both sides.
const POURED_BYTES_MAX: usize = 30_000_000;

/// The honest events before anything hostile, and at least as many beside it.
const HONEST: usize = 100;

struct World {
    gateway: Gateway,
    upstream: Upstream,
    /// Events of honest senders.
    honest: usize,
}

/// Ends the honest senders, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Does it beside honest senders.
fn beside_honest(hostile: impl FnOnce(&Gateway, &Upstream)) -> World {
    let upstream = upstream(|_| answer(200));
    let yaml = format!(
        "listen: {{ h2c: true, limits: {{ body_timeout: 2s, answer_timeout: 60s }} }}\nupstream: {}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    \
         key: [headers.x-key, body.shop]\n",
        upstream.url()
    );
    let gateway = gateway(&yaml).start();
    let mut sent: Vec<String> = (0..HONEST).map(|number| send_honest(&gateway, number)).collect();
    let before = gateway.peak_kib();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let mut numbers = HONEST..;
            let more = numbers.by_ref().take_while(|number| !over.load(Ordering::SeqCst) || *number < 2 * HONEST);
            more.map(|number| send_honest(&gateway, number)).collect::<Vec<_>>()
        });
        let ends = Over(&over);
        hostile(&gateway, &upstream);
        drop(ends);
        sent.extend(honest.join().unwrap());
    });
    for (number, id) in sent.iter().enumerate() {
        gateway.wait_for_status(id, "delivered");
        assert_eq!(delivered(&upstream, id).body, body_of(number));
    }
    let grown = gateway.peak_kib().saturating_sub(before);
    assert!(grown < ROOM_KIB, "{grown} KiB more");
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
    World { gateway, upstream, honest: sent.len() }
}

fn body_of(number: usize) -> Vec<u8> {
    format!("{{\"shop\":\"honest-{}\",\"number\":{number}}}", number % 10).into_bytes()
}

fn send_honest(gateway: &Gateway, number: usize) -> String {
    let response = gateway.client().send(&post("/any", &body_of(number)));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// The one request with this event.
fn delivered(upstream: &Upstream, id: &str) -> Received {
    let all = upstream.wait_until(|received| received.iter().any(|one| one.header("fairlane-event-id") == Some(id)));
    let mut of_it = all.into_iter().filter(|one| one.header("fairlane-event-id") == Some(id));
    let first = of_it.next().unwrap();
    assert!(of_it.next().is_none(), "{id} was delivered twice");
    first
}

/// Says `opening`, and `piece` again and again until nobody takes it: how many bytes that were, and what is answered, unless the
/// connection just ends.
fn pour(gateway: &Gateway, opening: &str, piece: &str) -> (usize, Option<u16>) {
    let mut client = gateway.client();
    let mut poured = 0;
    let mut taken = client.write(opening.as_bytes());
    while taken.is_ok() {
        taken = client.write(piece.as_bytes());
        poured += piece.len();
    }
    (poured, client.receive().map(|response| response.status))
}

const LINE: &str = "POST /any HTTP/1.1\r\nHost: hooks.test\r\n";

#[test]
fn heads_and_framing_without_end_are_ended() {
    let long = "y".repeat(8_000);
    let chunked = format!("{LINE}Transfer-Encoding: chunked\r\n\r\n");
    let endless = [
        ("lines", LINE.to_owned(), format!("X: {long}\r\n"), 431),
        ("short lines", LINE.to_owned(), "a:\r\n".repeat(2_000), 431),
        ("one line", format!("{LINE}X: "), long.clone(), 431),
        ("a name", LINE.to_owned(), long.clone(), 431),
        ("a target", "POST /any".to_owned(), long.clone(), 431),
        ("a method", String::new(), "A".repeat(8_000), 431),
        ("empty lines", String::new(), "\r\n".repeat(4_000), 431),
        ("an extension of a chunk", format!("{chunked}2;x="), long.clone(), 400),
        ("extensions of many chunks", chunked.clone(), format!("1;x={}\r\na\r\n", &long[..1_000]), 400),
        ("trailers", format!("{chunked}0\r\n"), format!("X: {long}\r\n"), 400),
        ("short trailers", format!("{chunked}0\r\n"), "a:\r\n".repeat(2_000), 400),
    ];
    beside_honest(|gateway, _| {
        for (what, opening, piece, status) in endless.iter().cycle().take(endless.len() * 10) {
            let (poured, answered) = pour(gateway, opening, piece);
            assert!(answered.is_none_or(|answered| answered == *status), "{what}: {answered:?}");
            assert!(poured < POURED_BYTES_MAX, "{what}: {poured} bytes were taken");
        }
        // RFC 9112 §7.1 allows any number of zeros. Nothing of them is kept, so it is the body's time that ends them.
        let (_, answered) = pour(gateway, &chunked, &"0".repeat(8_000));
        assert!(answered.is_none_or(|answered| answered == 408), "{answered:?}");
        for lines in ["a: b\r\n".repeat(10_000), "a: b\r\n".repeat(257), format!("X: {}\r\n", "y".repeat(1_000_000))] {
            let mut client = gateway.client();
            // It may be refused before it is all said.
            drop(client.write(format!("{LINE}{lines}Content-Length: 0\r\n\r\n").as_bytes()));
            assert_eq!(client.receive().map(|response| response.status), Some(431));
            assert!(client.is_closed());
        }
    });
}

/// What must never be taken for a request.
const SMUGGLED: &str = "POST /any HTTP/1.1\r\nHost: hooks.test\r\nX-Key: smuggled\r\nContent-Length: 2\r\n\r\n{}";

/// Header lines and a body that nobody may read in two ways.
const REFUSED: &[(&str, &str)] = &[
    ("Content-Length: 2\r\nContent-Length: 3", "{} "),
    ("Content-Length: 2, 3", "{} "),
    ("Content-Length: +2", "{}"),
    ("Content-Length: -2", "{}"),
    ("Content-Length: 0x2", "{}"),
    ("Content-Length: 2 2", "{}"),
    ("Content-Length: 18446744073709551618", "{}"),
    ("Content-Length:", "{}"),
    ("X-Folded: a\r\n b\r\nContent-Length: 2", "{}"),
    ("X-Folded: a\r\n\tContent-Length: 78\r\nContent-Length: 2", "{}"),
    (" Content-Length: 78\r\nContent-Length: 2", "{}"),
    ("Content-Length : 2", "{}"),
    ("Content-Length\t: 2", "{}"),
    ("X: a\rContent-Length: 78\r\nContent-Length: 2", "{}"),
    ("X: a\0b\r\nContent-Length: 2", "{}"),
    ("X\0: a\r\nContent-Length: 2", "{}"),
    (": a\r\nContent-Length: 2", "{}"),
    ("no colon\r\nContent-Length: 2", "{}"),
    ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, identity", "0\r\n\r\n"),
    ("Transfer-Encoding: identity\r\nContent-Length: 2", "{}"),
    ("Transfer-Encoding: xchunked\r\nContent-Length: 2", "{}"),
    ("Transfer-Encoding: chunked;x=y", "0\r\n\r\n"),
    ("Transfer-Encoding: \u{b}chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
    ("Transfer-Encoding : chunked", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0x2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "-2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "10000000000000002\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "1\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "2\r\n{}0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "2;a\nb\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "\r\n{}\r\n0\r\n\r\n"),
];

/// Header lines, a body, the event's body, and whether it is the last request of its connection. What comes after that is no request.
const TAKEN: &[(&str, &str, &str, bool)] = &[
    // RFC 9112 §6.3: the transfer coding counts. §6.1: and then the connection ends.
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n", "", true),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n", "", true),
    ("Content-Length: 90\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", "{}", true),
    ("Transfer-Encoding: chunked\r\nContent-Length: no", "2\r\n{}\r\n0\r\n\r\n", "{}", true),
    ("Content-Length: 2\r\nContent-Length: 2", "{}", "{}", false),
    ("Content-Length: 002", "{}", "{}", false),
    ("Transfer_Encoding: chunked\r\nContent-Length: 2", "{}", "{}", false),
    ("Transfer-Encoding: chunked", "2;a=\"0\"\r\n{}\r\n0\r\n\r\n", "{}", false),
    (
        "Transfer-Encoding: chunked",
        "2\r\n{}\r\n0\r\nContent-Length: 78\r\nX-Key: smuggled\r\nFairlane-Group: smuggled\r\n\r\n",
        "{}",
        false,
    ),
    // RFC 9112 §2.2: a lone LF may end a line. Here it always does.
    ("X: a\nContent-Length: 2", "{}", "{}", false),
    ("Content-Length: 78", SMUGGLED, SMUGGLED, false),
];

#[test]
fn what_two_readers_could_read_differently_is_refused_or_framed_anew() {
    assert_eq!(SMUGGLED.len(), 78);
    let world = beside_honest(|gateway, upstream| {
        for (lines, body) in REFUSED.iter().cycle().take(REFUSED.len() * 3) {
            let mut client = gateway.client();
            let request = format!("{LINE}X-Key: refused\r\n{lines}\r\n\r\n{body}{SMUGGLED}");
            drop(client.write(request.as_bytes()));
            assert_eq!(client.receive().map(|response| response.status), Some(400), "{lines:?} {body:?}");
            assert!(client.is_closed(), "{lines:?} {body:?}: it goes on");
        }
        for (lines, body, event, is_last) in TAKEN.iter().cycle().take(TAKEN.len() * 3) {
            let mut client = gateway.client();
            let after = if *is_last { SMUGGLED } else { "" };
            client.write(format!("{LINE}X-Key: taken\r\n{lines}\r\n\r\n{body}{after}").as_bytes()).unwrap();
            let response = client.receive().unwrap();
            assert_eq!(response.status, 200, "{lines:?} {body:?}: {}", response.text());
            if *is_last {
                assert!(client.is_closed(), "{lines:?} {body:?}: it goes on");
            }
            let arrived = delivered(upstream, response.header("fairlane-event-id").unwrap());
            assert_eq!(arrived.body, event.as_bytes(), "{lines:?} {body:?}");
            assert_eq!(arrived.all("content-length"), [event.len().to_string()], "{lines:?}");
            assert_eq!((arrived.all("transfer-encoding"), arrived.group()), (vec![], "taken"), "{lines:?}");
        }
    });
    assert_eq!(world.upstream.count(), world.honest + TAKEN.len() * 3);
    assert_eq!(world.gateway.events("").len(), world.honest + TAKEN.len() * 3);
}

/// What is sent for the n-th time.
type Piece = fn(u32) -> Vec<u8>;

/// Enough to fill what the process may take, were it kept.
const FRAMES: u32 = 200_000;

fn stream(number: u32) -> u32 {
    2 * number + 1
}

fn opened(flags: u8, number: u32) -> Vec<u8> {
    h2::frame(h2::HEADERS, flags | h2::END_HEADERS, stream(number), &h2::head("/any", "flood"))
}

/// A head that goes on, then `piece` of it without end.
fn continued(opening: &[u8], piece: &[u8], number: u32) -> Vec<u8> {
    if number == 0 {
        let block = [h2::head("/any", "flood").as_slice(), opening].concat();
        h2::frame(h2::HEADERS, 0, 1, &block)
    } else {
        h2::frame(h2::CONTINUATION, 0, 1, piece)
    }
}

const FLOODS: &[(&str, Piece)] = &[
    ("requests that are taken back at once", |n| {
        [opened(h2::END_STREAM, n), h2::frame(h2::RST_STREAM, 0, stream(n), &8_u32.to_be_bytes())].concat()
    }),
    ("requests that are taken back in the middle", |n| {
        let half = h2::frame(h2::DATA, 0, stream(n), b"half of");
        [opened(0, n), half, h2::frame(h2::RST_STREAM, 0, stream(n), &8_u32.to_be_bytes())].concat()
    }),
    ("requests that we are made to reset", |n| {
        // A stream that depends on itself is a fault of that stream (RFC 9113 §5.3.1).
        let itself = [stream(n).to_be_bytes().as_slice(), &[0]].concat();
        [opened(0, n), h2::frame(h2::PRIORITY, 0, stream(n), &itself)].concat()
    }),
    ("a head that goes on with nothing", |n| continued(&[], &[], n)),
    ("a head that goes on with lines", |n| continued(&[], &h2::literal("x", &"y".repeat(16_000)), n)),
    ("a head that goes on with one line", |n| {
        let endless = [vec![0, 1, b'x'], h2::length(1 << 20)].concat();
        continued(&endless, &[b'y'; 16_000], n)
    }),
    ("a head of a byte for each long line", |n| {
        let kept = h2::kept("x", &"y".repeat(4_000));
        continued(&kept, &[h2::NEWEST; 16_000], n)
    }),
    ("a body of nothing without end", |n| if n == 0 { opened(0, 0) } else { h2::frame(h2::DATA, 0, 1, &[]) }),
];

#[test]
fn floods_of_http_2_frames_end_their_connection() {
    let world = beside_honest(|gateway, _| {
        for (what, piece) in FLOODS {
            for _ in 0..5 {
                // Many at a time, as whoever floods would.
                let batches = (0..FRAMES / 200).map(|batch| (batch * 200..(batch + 1) * 200).flat_map(piece).collect());
                let told = h2::flood(gateway.address, batches);
                let expected = [h2::ENHANCE_YOUR_CALM, h2::COMPRESSION_ERROR];
                assert!(told.is_some_and(|code| expected.contains(&code)), "{what}: {told:?}");
            }
        }
    });
    // Some may have been taken before they were taken back, and then as a whole: none that has only half a body.
    assert!(world.gateway.events("group=flood").iter().all(|event| event["body_bytes"] == 0));
}

#[test]
fn bodies_that_explode_are_events_without_a_key() {
    let bombs = bombs::all();
    let world = beside_honest(|gateway, upstream| {
        for bomb in bombs.iter().cycle().take(bombs.len() * 3) {
            let request = post("/any", &bomb.body).header("Content-Encoding", bomb.coding);
            let response = gateway.client().send(&request);
            assert_eq!(response.status, 200, "{}: {}", bomb.coding, response.text());
            let id = response.header("fairlane-event-id").unwrap();
            let event = gateway.json(&format!("/api/v1/events/{id}"));
            let found = (&event["group"], &event["key_source"]["missing"]);
            assert_eq!(found, (&"~fallback".into(), &bomb.missing.into()), "{}", bomb.coding);
            assert!(delivered(upstream, id).body == bomb.body, "{}: it arrives as it came", bomb.coding);
        }
    });
    let mut reasons = BTreeMap::<_, usize>::new();
    bombs.iter().for_each(|bomb| *reasons.entry(bomb.missing).or_default() += 3);
    for (reason, count) in reasons {
        let metric = format!(r#"fairlane_fallback_events_total{{source="/any",reason="{reason}"}}"#);
        assert_eq!(world.gateway.metric(&metric), Some(count as f64), "{reason}");
    }
}

/// How much is sent before the sender leaves.
#[derive(Clone, Copy, Debug)]
enum Cut {
    InTheHead,
    InTheBody,
    AtTheEnd,
}

/// Leaves in order, or so that the other side gets a reset.
fn leave(client: Client, resets: bool) {
    let stream = client.stream.into_inner();
    if resets {
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    } else {
        stream.shutdown(Shutdown::Both).unwrap();
    }
}

#[test]
fn who_leaves_before_the_answer_leaves_a_whole_event_or_none() {
    let body = format!("{{\"padding\":\"{}\"}}", "x".repeat(20_000));
    let world = beside_honest(|gateway, _| {
        for number in 0..600 {
            let cut = [Cut::InTheHead, Cut::InTheBody, Cut::AtTheEnd][number % 3];
            let request = post("/any", body.as_bytes()).header("X-Key", format!("{cut:?}-{number}"));
            let (head, whole) = (request.head().len(), request.bytes());
            let sent = match cut {
                Cut::InTheHead => &whole[..head - 2],
                Cut::InTheBody => &whole[..whole.len() - 1],
                Cut::AtTheEnd => &whole[..],
            };
            let mut client = gateway.client();
            client.stream.get_mut().write_all(sent).unwrap();
            leave(client, number % 2 == 0);
        }
    });
    while world.gateway.metric("fairlane_connections") != Some(0.0) {
        std::thread::yield_now();
    }
    let left = world.gateway.events("").into_iter().filter(|event| {
        let group = event["group"].as_str().unwrap();
        assert!(!group.starts_with("InThe"), "{event}");
        group.starts_with("AtTheEnd")
    });
    let left: Vec<_> = left.collect();
    for event in &left {
        let id = event["id"].as_str().unwrap();
        world.gateway.wait_for_status(id, "delivered");
        assert!(delivered(&world.upstream, id).body == body.as_bytes(), "{event}");
    }
    // What was counted as accepted is there, and nothing else is.
    let accepted = world.gateway.metric(r#"fairlane_events_accepted_total{source="/any"}"#);
    assert_eq!(accepted, Some((world.honest + left.len()) as f64));
    assert_eq!(world.upstream.count(), world.honest + left.len());
}
