//! HTTP/2 written by hand (RFC 9113, RFC 7541), for what no library would send: frames come out as they are told, and what comes back is
//! read only for how it ends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// It only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const COMPRESSION_ERROR: u32 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a POST to `path`, with a key.
pub(crate) fn head(path: &str, key: &str) -> Vec<u8> {
    // `:method: POST` and `:scheme: http` of the static table, then `:path` and `:authority` by their names there.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(0x04, path), (0x01, "hooks.test")] {
        block.push(name);
        block.extend(string(value));
    }
    block.extend(literal("x-key", key));
    block
}

/// A header line that no table keeps.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// A header line that the other side keeps as the newest entry of its table, which [`NEWEST`] then stands for.
pub(crate) fn kept(name: &str, value: &str) -> Vec<u8> {
    [vec![0x40], string(name), string(value)].concat()
}

/// A whole header line in one byte.
pub(crate) const NEWEST: u8 = 0x80 | 62;

fn string(text: &str) -> Vec<u8> {
    [length(text.len()), text.as_bytes().to_vec()].concat()
}

/// RFC 7541 §5.1, with a prefix of seven bits.
pub(crate) fn length(bytes: usize) -> Vec<u8> {
    if bytes < 127 {
        return vec![u8::try_from(bytes).unwrap()];
    }
    let (mut out, mut left) = (vec![127], bytes - 127);
    while left >= 128 {
        out.push(u8::try_from(left % 128).unwrap() | 128);
        left /= 128;
    }
    out.push(u8::try_from(left).unwrap());
    out
}

/// Writes all pieces, or as many as are taken, on a connection of its own, and reads until it ends: the code of the GOAWAY, if one came.
pub(crate) fn flood(address: SocketAddr, pieces: impl Iterator<Item = Vec<u8>>) -> Option<u32> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut reading = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let told = scope.spawn(move || farewell(&mut reading));
        let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        let mut taken = stream.write_all(&opening);
        for piece in pieces {
            if taken.is_err() {
                break;
            }
            taken = stream.write_all(&piece);
        }
        told.join().unwrap()
    })
}

/// Reads until the other side says goodbye or goes without.
fn farewell(stream: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]).try_into().unwrap()];
        stream.read_exact(&mut payload).ok()?;
        let code = payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().unwrap()));
        if head[3] == GOAWAY {
            return code;
        }
    }
}
