//! What is poured in. Each case makes what it needs first, and then does one unit at a time.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::senders::{bombs, h2};
use crate::support::{Client, Request, post};

/// One kind of hostility.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What is counted.
    pub(crate) unit: &'static str,
    /// Makes ready; what it gives does a little, and says how many units that was.
    pub(crate) start: fn(SocketAddr) -> Pour,
}

pub(crate) type Pour = Box<dyn FnMut() -> u32>;

pub(crate) fn named(name: &str) -> Option<&'static Case> {
    ALL.iter().find(|case| case.name == name)
}

/// Connections that are held open at one time.
const HELD: usize = 500;

const LINE: &str = "POST /any HTTP/1.1\r\nHost: hooks.test\r\n";

pub(crate) const ALL: &[Case] = &[
    Case { name: "connections opened and left silent", unit: "connections", start: |to| held(to, Vec::new()) },
    Case { name: "slow heads", unit: "bytes", start: dripped },
    Case { name: "connections that leave in a body", unit: "connections", start: left },
    Case {
        name: "heads without end",
        unit: "MB",
        start: |to| endless(to, LINE.into(), format!("X: {}\r\n", "y".repeat(8_000))),
    },
    Case {
        name: "chunk extensions without end",
        unit: "MB",
        start: |to| endless(to, format!("{LINE}Transfer-Encoding: chunked\r\n\r\n2;x="), "y".repeat(8_000)),
    },
    Case {
        name: "request smuggling",
        unit: "requests",
        start: |to| raw(to, format!("{LINE}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}")),
    },
    Case { name: "HTTP/2 rapid reset", unit: "streams", start: |to| frames(to, reset) },
    Case { name: "HTTP/2 CONTINUATION", unit: "frames", start: |to| frames(to, continued) },
    Case { name: "decompression bombs", unit: "bombs", start: exploding },
    Case { name: "paths with .. and %2f", unit: "requests", start: |to| kept(to, post("/any/..%2f..%2fetc", b"{}")) },
    Case {
        name: "bad signatures of 1 KB",
        unit: "requests",
        start: |to| kept(to, post("/webhooks/shopify", &[b'x'; 1_024]).header("X-Shopify-Hmac-Sha256", "bm8=")),
    },
    Case {
        name: "bad signatures of 1 MB",
        unit: "requests",
        start: |to| kept(to, post("/webhooks/shopify", &[b'x'; 1 << 20]).header("X-Shopify-Hmac-Sha256", "bm8=")),
    },
    Case { name: "unknown paths", unit: "requests", start: |to| kept(to, post("/nowhere", b"{}")) },
    Case {
        name: "genuine events that the receiver fails",
        unit: "requests",
        start: |to| kept(to, post("/any", b"{}").header("x-key", "hostile")),
    },
    Case { name: "genuine events of a new group each", unit: "requests", start: ever_new },
];

fn open(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the gateway listens");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("a socket takes a timeout");
    stream.set_write_timeout(patience).expect("a socket takes a timeout");
    stream
}

/// Opens one connection after another; the oldest goes when there are many.
fn held(to: SocketAddr, first: Vec<u8>) -> Pour {
    let mut all = VecDeque::new();
    Box::new(move || {
        let mut stream = open(to);
        // It may be refused.
        drop(stream.write_all(&first));
        all.push_back(stream);
        if all.len() > HELD {
            all.pop_front();
        }
        1
    })
}

/// A byte at a time to each of many heads.
fn dripped(to: SocketAddr) -> Pour {
    let mut all: VecDeque<TcpStream> = (0..HELD).map(|_| open(to)).collect();
    Box::new(move || {
        let Some(mut stream) = all.pop_front() else { return 0 };
        if stream.write_all(b"X").is_err() {
            stream = open(to);
        }
        all.push_back(stream);
        1
    })
}

fn left(to: SocketAddr) -> Pour {
    let request = post("/any", &[b'y'; 100_000]).header("x-key", "left").bytes();
    Box::new(move || {
        let mut stream = open(to);
        drop(stream.write_all(request.get(..50_000).unwrap_or_default()));
        drop(stream.shutdown(Shutdown::Both));
        1
    })
}

/// `piece` again and again until it is refused, about a megabyte a unit.
fn endless(to: SocketAddr, opening: String, piece: String) -> Pour {
    let pieces = piece.repeat(1_000_000 / piece.len());
    Box::new(move || {
        let mut stream = open(to);
        drop(stream.write_all(opening.as_bytes()));
        u32::from(stream.write_all(pieces.as_bytes()).is_err())
    })
}

/// One request a connection, and what is answered.
fn raw(to: SocketAddr, request: String) -> Pour {
    Box::new(move || {
        let mut stream = open(to);
        drop(stream.write_all(request.as_bytes()));
        drop(stream.read(&mut [0; 512]));
        1
    })
}

/// Over a kept connection, as long as it is kept.
fn kept(to: SocketAddr, request: Request) -> Pour {
    let mut client = Client::to(to);
    Box::new(move || {
        if client.try_send(&request).is_none() {
            client = Client::to(to);
        }
        1
    })
}

fn ever_new(to: SocketAddr) -> Pour {
    let (mut client, mut number) = (Client::to(to), 0_u64);
    Box::new(move || {
        number += 1;
        let request = post("/any", b"{}").header("x-key", format!("new-{number}"));
        if client.try_send(&request).is_none() {
            client = Client::to(to);
        }
        1
    })
}

fn exploding(to: SocketAddr) -> Pour {
    let all = bombs::all();
    let mut turn = all.into_iter().map(|bomb| post("/any", &bomb.body).header("Content-Encoding", bomb.coding));
    let requests: Vec<Request> = turn.by_ref().collect();
    let (mut client, mut number) = (Client::to(to), 0);
    Box::new(move || {
        number = (number + 1) % requests.len();
        if requests.get(number).is_none_or(|request| client.try_send(request).is_none()) {
            client = Client::to(to);
        }
        1
    })
}

/// Frames in batches until the connection is ended, then on another one.
fn frames(to: SocketAddr, frame: fn(u32) -> Vec<u8>) -> Pour {
    const BATCH: u32 = 200;
    Box::new(move || {
        let batches = (0..1_000).map(|batch| (batch * BATCH..(batch + 1) * BATCH).flat_map(frame).collect());
        let mut poured = 0;
        h2::flood(to, batches.inspect(|_: &Vec<u8>| poured += BATCH));
        poured
    })
}

fn reset(number: u32) -> Vec<u8> {
    let stream = 2 * number + 1;
    let head = h2::frame(h2::HEADERS, h2::END_HEADERS | h2::END_STREAM, stream, &h2::head("/any", "flood"));
    [head, h2::frame(h2::RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
}

fn continued(number: u32) -> Vec<u8> {
    if number == 0 {
        h2::frame(h2::HEADERS, 0, 1, &h2::head("/any", "flood"))
    } else {
        h2::frame(h2::CONTINUATION, 0, 1, &h2::literal("x", &"y".repeat(1_000)))
    }
}
