//! Something between a client and a server that changes what they say to each other: words of one side, each time they come, and how soon
//! the other hears them. What is replaced has to be followed by the rest of a message, which in the protocol of Redis it always is.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// What is changed.
#[derive(Clone, Default)]
pub(crate) struct Between {
    asked: Option<(Vec<u8>, Vec<u8>)>,
    answered: Option<(Vec<u8>, Vec<u8>)>,
    late: Duration,
}

impl Between {
    /// What clients say.
    pub(crate) fn asked(mut self, what: &str, with: &str) -> Self {
        self.asked = Some((what.into(), with.into()));
        self
    }

    /// What the server answers.
    pub(crate) fn answered(mut self, what: &str, with: &str) -> Self {
        self.answered = Some((what.into(), with.into()));
        self
    }

    /// Every answer comes so much later.
    pub(crate) fn late(mut self, span: Duration) -> Self {
        self.late = span;
        self
    }

    /// Listens on a free port, until the test's process ends.
    pub(crate) fn before(self, server: u16) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { continue };
                let ways = [
                    (client.try_clone(), server.try_clone(), self.asked.clone(), Duration::ZERO),
                    (Ok(server), Ok(client), self.answered.clone(), self.late),
                ];
                for (from, to, change, late) in ways {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    std::thread::spawn(move || pass_on(from, to, change.as_ref(), late));
                }
            }
        });
        address
    }
}

/// Until one of them ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream, change: Option<&(Vec<u8>, Vec<u8>)>, late: Duration) {
    let mut held = Vec::new();
    let mut buffer = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        held.extend_from_slice(&buffer[..count]);
        let said = match change {
            Some((what, with)) => changed(&mut held, what, with),
            None => std::mem::take(&mut held),
        };
        if !late.is_zero() {
            std::thread::park_timeout(late);
        }
        if to.write_all(&said).is_err() {
            break;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Both));
}

/// What may be passed on by now; what may be the beginning of `what` stays.
fn changed(held: &mut Vec<u8>, what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    while let Some(at) = held.windows(what.len()).position(|window| window == what) {
        said.extend_from_slice(&held[..at]);
        said.extend_from_slice(with);
        held.drain(..at + what.len());
    }
    let begun = (1..what.len().min(held.len() + 1)).rev().find(|length| held.ends_with(&what[..*length]));
    said.extend(held.drain(..held.len() - begun.unwrap_or(0)));
    said
}
