//! What is written to a connection: right requests of HTTP/1.1 and HTTP/2, several in a row, with lines, frames and bytes changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::{SHOPIFY_SECRET, hmac_sha256};
use crate::{h2, mutate};

/// What takes a reader of HTTP/1.1 to its edges.
const NASTY: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\0",
    b" ",
    b"\t",
    b"\r\n ",
    b":",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n",
    b"Content-Length: +2\r\n",
    b"Content-Length: 18446744073709551617\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"5;x=\"\r\n",
    b"1\r\na\r\n",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/1.1",
    b"CONNECT ",
    b"OPTIONS * ",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"Connection: close\r\n",
    b"Connection: x-shopify-hmac-sha256, fairlane-event-id\r\n",
    b"Host: a\r\nHost: b\r\n",
    b"Expect: 100-continue\r\n",
    b"Trailer: Fairlane-Group\r\n",
    b"TE: trailers\r\n",
    b"Fairlane-Event-Id: evt_forged\r\n",
    b"fairlane_group: forged\r\n",
    b"X-Forwarded-For: 6.6.6.6\r\n",
    b"X-Forwarded_For: 6.6.6.6\r\n",
    b"http://hooks.test",
    b"%00",
    b"%2e%2e/",
    b"/../",
    b"//",
    b"\\",
    b"#",
    b"\x80",
    b"\xff",
];

/// Frames that change what comes after them.
const FRAMES: &[&[u8]] = &[
    b"",
    b"\0\0\0\x04\x01\0\0\0\0",
    b"\0\0\0\x09\x04\0\0\0\x01",
    b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
    b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff",
    b"\0\0\x04\x08\0\0\0\0\x01\0\0\0\0",
    b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0",
    b"\0\0\x06\x04\0\0\0\0\0\0\x01\xff\xff\xff\xff",
    b"\0\0\x08\x06\0\0\0\0\0pingpong",
    b"\0\0\x01\0\x09\0\0\0\x01\xff",
    b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\xff\xff\xff\x01\x04\0\0\0\x01",
    b"\0\0\x01\x01\x04\0\0\0\x01\x80",
    b"\0\0\x03\x01\x05\0\0\0\x01\x3f\xe1\x1f",
    b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\x01\0",
];

/// A request that nobody sends: it stands in a body, signed as if it were one.
const INNER: &[u8] = b"{\"id\":1}";

/// Bodies that are signed, by their numbers.
const BODIES: u64 = 6;

fn body(number: u64) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        1 => INNER.to_vec(),
        2 => post("/hooks/signed?inner=1", &lines(INNER, "length")).into_iter().chain(INNER.iter().copied()).collect(),
        3 => b"0\r\n\r\nPOST /hooks/signed HTTP/1.1\r\nHost: hooks.test\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
        4 => vec![b'x'; 5_000],
        _ => (0..=255).collect(),
    }
}

/// Whether a body is one of those that are signed.
pub(crate) fn is_signed(bytes: &[u8]) -> bool {
    (0..BODIES).any(|number| body(number) == bytes)
}

fn signature(body: &[u8]) -> String {
    STANDARD.encode(hmac_sha256(SHOPIFY_SECRET, &[body]))
}

fn lines(body: &[u8], framing: &str) -> String {
    let framed = match framing {
        "length" => format!("Content-Length: {}\r\n", body.len()),
        "both" => format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", body.len()),
        _ => "Transfer-Encoding: chunked\r\n".to_owned(),
    };
    format!("X-Shopify-Hmac-Sha256: {}\r\nX-Shopify-Shop-Domain: a.myshopify.com\r\n{framed}", signature(body))
}

fn post(target: &str, lines: &str) -> Vec<u8> {
    format!("POST {target} HTTP/1.1\r\nHost: hooks.test\r\n{lines}\r\n").into_bytes()
}

/// Everything that a connection of this seed brings.
pub(crate) fn stream(seed: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let is_h2 = random.random_range(0..4) == 0;
    let requests = random.random_range(1..4);
    let mut pieces: Vec<Vec<u8>> = if is_h2 {
        (0..requests).flat_map(|number| frames(number, &mut random)).collect()
    } else {
        (0..requests).flat_map(|_| request(&mut random)).collect()
    };
    let nasty = if is_h2 { FRAMES } else { NASTY };
    for _ in 0..random.random_range(0..3) {
        mutate::pieces(&mut pieces, nasty, &mut random);
    }
    let mut whole = pieces.concat();
    if is_h2 {
        let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), b"\0\0\0\x04\0\0\0\0\0"].concat();
        whole.splice(0..0, opening);
    }
    let other = pieces.choose(&mut random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(0..3) {
        mutate::bytes(&mut whole, &other, nasty, &mut random);
    }
    whole
}

/// A request, line by line, its body chunk by chunk.
fn request(random: &mut SmallRng) -> Vec<Vec<u8>> {
    const TARGETS: [&str; 5] =
        ["/hooks/signed", "/hooks/signed/", "/hooks/signed?a=b%20c&d", "http://hooks.test/hooks/signed", "/hooks/none"];
    let body = body(random.random_range(0..BODIES));
    let framing = *["length", "chunked", "both", "length"].choose(random).unwrap();
    let head = post(TARGETS.choose(random).unwrap(), &lines(&body, framing));
    let mut pieces: Vec<Vec<u8>> = head.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if framing == "length" {
        pieces.push(body);
        return pieces;
    }
    let size = random.random_range(1..=body.len().max(1));
    let extension = *["", ";a", ";a=\"b;c\""].choose(random).unwrap();
    for chunk in body.chunks(size) {
        pieces.push([format!("{:x}{extension}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    pieces.push(b"0\r\n".to_vec());
    if random.random_range(0..3) == 0 {
        pieces.push(b"X-Trailer: a\r\n".to_vec());
    }
    pieces.push(b"\r\n".to_vec());
    pieces
}

/// A request, frame by frame.
fn frames(number: u32, random: &mut SmallRng) -> Vec<Vec<u8>> {
    let body = body(random.random_range(0..BODIES));
    let stream = 2 * number + 1;
    let mut block = h2::head("/hooks/signed", "k");
    block.extend(h2::literal("x-shopify-hmac-sha256", &signature(&body)));
    block.extend(h2::literal("x-shopify-shop-domain", "a.myshopify.com"));
    let cut = random.random_range(0..=block.len());
    let mut frames = match random.random_range(0..3) {
        0 => vec![
            h2::frame(h2::HEADERS, 0, stream, &block[..cut]),
            h2::frame(h2::CONTINUATION, h2::END_HEADERS, stream, &block[cut..]),
        ],
        _ => vec![h2::frame(h2::HEADERS, h2::END_HEADERS, stream, &block)],
    };
    let size = random.random_range(1..=body.len().max(1));
    frames.extend(body.chunks(size).map(|part| h2::frame(h2::DATA, 0, stream, part)));
    frames.push(h2::frame(h2::DATA, h2::END_STREAM, stream, &[]));
    frames
}
