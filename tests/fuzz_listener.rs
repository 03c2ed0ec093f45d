//! Bytes that no sender would send, over real connections to the real binary: requests of HTTP/1.1 and HTTP/2 with lines, frames and bytes
//! changed, cut into pieces, ended in order, left open or broken off.
//!
//! Nothing ends the process. Every connection ends within the listener's own limits. What is answered 200 is an event, each event reaches
//! the receiver once, and every byte that reaches it is well-formed, was signed by its sender and is said to have been verified.
//!
//! `FUZZ_SECONDS=600` goes on for so long (`make fuzz`), `FUZZ_SEED=n` begins elsewhere; `FUZZ_SEED=n FUZZ_ROUNDS=1` tries one connection, and
//! prints what it says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]
#![expect(clippy::print_stdout, reason = "what was tried is told")]

#[path = "senders/h2.rs"]
#[expect(dead_code, reason = "floods are another test's")]
mod h2;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/receiver.rs"]
mod receiver;
#[path = "fuzz/streams.rs"]
mod streams;
mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use receiver::Receiver;
use support::{Gateway, gateway};

/// Connections in an ordinary run: some seconds of a debug build.
const ROUNDS: u64 = 2_500;

/// Connections at a time.
const THREADS: u64 = 4;

/// Connections that say nothing more and wait for the other side's limits, at a time.
const SILENT: usize = 64;

/// Far beyond the limits that are set below; it only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    gateway: Mutex<Gateway>,
    address: SocketAddr,
    silent: Mutex<Vec<(u64, TcpStream)>>,
    /// Statuses that were answered, of those that could be read.
    answers: Mutex<BTreeMap<String, u64>>,
}

/// How a sender leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It says that it is done, and reads on.
    Done,
    /// It says nothing more.
    Silent,
    /// It is gone.
    Broken,
}

#[test]
fn no_bytes_end_hang_or_pass_the_listener() {
    let receiver = Receiver::start(streams::is_signed);
    let gateway = gateway(&format!(
        "listen: {{ h2c: true, limits: {{ header_timeout: 1s, body_timeout: 1s, idle_timeout: 2s, body: 16KiB, answer_timeout: 60s }} }}\n\
         upstream: http://{}\nlog: {{ level: debug }}\nsources:\n  - path: /hooks/signed\n    verify: {{ provider: shopify, secret: {} }}\n",
        receiver.address,
        support::SHOPIFY_SECRET,
    ))
    .start();
    let world = World {
        address: gateway.address,
        gateway: Mutex::new(gateway),
        silent: Mutex::default(),
        answers: Mutex::default(),
    };
    let (first, goes_on, tried) = (mutate::first_seed(), mutate::rounds(ROUNDS), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = tried.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(number) {
                        return;
                    }
                    world.round(first + number);
                }
            });
        }
    });
    world.end_the_silent();
    world.check(&receiver, tried.into_inner() - THREADS);
}

/// Whether one connection alone is tried again.
fn is_repeated() -> bool {
    std::env::var_os("FUZZ_ROUNDS").is_some()
}

impl World {
    fn round(&self, seed: u64) {
        let bytes = streams::stream(seed);
        if is_repeated() {
            println!("{seed}: {}", bytes.escape_ascii());
        }
        let mut random = SmallRng::seed_from_u64(!seed);
        let end = match random.random_range(0..16) {
            0 => End::Silent,
            1 => End::Broken,
            _ => End::Done,
        };
        let mut stream = TcpStream::connect(self.address).unwrap_or_else(|error| panic!("before seed {seed}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = bytes.as_slice();
        for _ in 0..random.random_range(0..4) {
            let (piece, after) = rest.split_at(random.random_range(0..=rest.len()));
            // Whoever is refused early need not be heard out.
            drop(stream.write_all(piece));
            rest = after;
        }
        drop(stream.write_all(rest));
        match end {
            End::Done => {
                drop(stream.shutdown(Shutdown::Write));
                self.read_to_the_end(seed, stream, end);
            }
            End::Silent => {
                self.silent.lock().unwrap().push((seed, stream));
                if self.silent.lock().unwrap().len() >= SILENT {
                    self.end_the_silent();
                }
            }
            End::Broken => rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap(),
        }
    }

    fn end_the_silent(&self) {
        let silent = std::mem::take(&mut *self.silent.lock().unwrap());
        for (seed, stream) in silent {
            self.read_to_the_end(seed, stream, End::Silent);
        }
    }

    /// The other side ends the connection, and by itself.
    fn read_to_the_end(&self, seed: u64, mut stream: TcpStream, end: End) {
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                panic!(
                    "FUZZ_SEED={seed} FUZZ_ROUNDS=1: {end:?}, and the connection goes on; it said {}",
                    said.escape_ascii()
                );
            }
            // Closed with bytes of ours unread: what was said before is there.
            Ok(_) | Err(_) => {}
        }
        if is_repeated() {
            println!("{seed}: answered {}", said.escape_ascii());
        }
        let mut answers = self.answers.lock().unwrap();
        for status in statuses(&said) {
            *answers.entry(status).or_default() += 1;
        }
    }

    fn check(self, receiver: &Receiver, tried: u64) {
        let mut gateway = self.gateway.into_inner().unwrap();
        assert!(gateway.child.try_wait().unwrap().is_none(), "it has ended");
        while gateway.metric("fairlane_connections") != Some(0.0) {
            std::thread::yield_now();
        }
        let accepted = gateway.metric(r#"fairlane_events_accepted_total{source="/hooks/signed"}"#).unwrap_or(0.0);
        while gateway.metric(r#"fairlane_events_delivered_total{source="/hooks/signed"}"#).unwrap_or(0.0) < accepted {
            std::thread::yield_now();
        }
        let answers = self.answers.into_inner().unwrap();
        println!("{tried} connections, {accepted} events, answers over HTTP/1.1: {answers:?}");
        let came = receiver.came.lock().unwrap();
        assert!(came.faults.is_empty(), "{} faults:\n{}", came.faults.len(), came.faults.join("\n"));
        assert!(came.events.values().all(|times| *times == 1), "delivered more than once: {:?}", came.events);
        assert_eq!(came.events.len() as f64, accepted, "accepted and delivered");
        let ok = answers.get("200").copied().unwrap_or(0);
        assert!(ok as f64 <= accepted, "{ok} were answered 200, {accepted} accepted");
        let unknown: Vec<_> = answers.keys().filter(|status| !KNOWN.contains(&status.as_str())).collect();
        assert!(unknown.is_empty(), "nobody has said why: {unknown:?}");
        // If nothing were right any more, only the first check would be tried.
        assert!(tried < 1_000 || accepted > tried as f64 / 20.0, "{accepted} of {tried}");
        assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
        let log = gateway.stderr();
        assert!(!log.contains("panicked"), "{log}");
        assert!(!log.contains(support::SHOPIFY_SECRET), "the secret is in the log");
    }
}

/// What a request may be answered with here.
const KNOWN: [&str; 11] = ["100", "200", "400", "401", "404", "405", "408", "413", "431", "501", "505"];

/// Of what was said over HTTP/1.1: bodies of answers are short texts and have no such line in them.
fn statuses(said: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(said).into_owned();
    let lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
    lines.into_iter().filter_map(|line| Some(line.split_once("HTTP/1.1 ")?.1.get(..3)?.to_owned()))
}
