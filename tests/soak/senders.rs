//! The senders of a soak: honest ones, who remember what was answered 200, and those who are slow, or leave in the middle.

use std::collections::HashSet;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::receiver::POISON;
use crate::support::{Client, post};

/// Between two requests of one sender: a sender's pace is no waiting for something.
const PACE: Duration = Duration::from_millis(10);
const HONEST: u64 = 4;
const ROUGH: u64 = 2;
pub(crate) const GROUPS: u32 = 40;

/// What all senders share.
#[derive(Default)]
pub(crate) struct Shared {
    /// Where the gateway listens now.
    address: Mutex<Option<SocketAddr>>,
    over: AtomicBool,
    /// Event ids that were answered 200.
    pub(crate) accepted: Mutex<HashSet<String>>,
    /// Answered 503: nothing was stored; nobody knows.
    pub(crate) refused: AtomicU64,
    pub(crate) unknown: AtomicU64,
    /// Connections that ended without an answer.
    pub(crate) cut: AtomicU64,
    /// Requests that were meant to fail.
    pub(crate) rough: AtomicU64,
}

pub(crate) struct Senders {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    pub(crate) fn start(seed: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let honest = (0..HONEST).map(|number| spawn(&shared, seed ^ number, honest));
        let rough = (0..ROUGH).map(|number| spawn(&shared, seed ^ (number << 32), rough));
        let threads = honest.chain(rough).collect();
        Self { shared, threads }
    }

    /// The gateway listens there from now on; `None`: nowhere.
    pub(crate) fn send_to(&self, address: Option<SocketAddr>) {
        *self.shared.address.lock().unwrap() = address;
    }

    pub(crate) fn stop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn spawn(shared: &Arc<Shared>, seed: u64, run: fn(&Shared, SmallRng)) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || run(&shared, SmallRng::seed_from_u64(seed)))
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn connect(&self) -> Option<Client> {
        let address = (*self.address.lock().unwrap())?;
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Some(Client { stream: BufReader::new(stream) })
    }
}

fn honest(shared: &Shared, mut random: SmallRng) {
    let mut client = None;
    while !shared.is_over() {
        std::thread::park_timeout(PACE);
        let Some(open) = &mut client else {
            client = shared.connect();
            continue;
        };
        let key = format!("shop-{}", random.random_range(0..GROUPS));
        let word = if random.random_range(0..200) == 0 { POISON } else { "plain" };
        let length = if random.random_range(0..20) == 0 { 60_000 } else { random.random_range(0..2_000) };
        let body = format!("{{\"what\":\"{word}\",\"more\":\"{}\"}}", "x".repeat(length));
        let answer = open.try_send(&post("/any", body.as_bytes()).header("x-key", key));
        match answer {
            Some(answer) if answer.status == 200 => {
                let id = answer.header("fairlane-event-id").unwrap().to_owned();
                assert!(shared.accepted.lock().unwrap().insert(id), "an id was given twice");
            }
            Some(answer) => {
                assert_eq!(answer.status, 503, "{}", answer.text());
                assert!(answer.header("retry-after").is_some());
                let knows = answer.text().contains("nothing was stored");
                let count = if knows { &shared.refused } else { &shared.unknown };
                count.fetch_add(1, Ordering::Relaxed);
                if answer.header("connection") == Some("close") {
                    client = None;
                }
            }
            None => {
                shared.cut.fetch_add(1, Ordering::Relaxed);
                client = None;
            }
        }
    }
}

/// A part of a request, slowly or at once, and gone.
fn rough(shared: &Shared, mut random: SmallRng) {
    let whole = post("/any", &[b'y'; 3_000]).header("x-key", "rough").bytes();
    while !shared.is_over() {
        std::thread::park_timeout(PACE * 5);
        let Some(mut client) = shared.connect() else { continue };
        let part = &whole[..random.random_range(0..whole.len() - 1)];
        let stream = client.stream.get_mut();
        if random.random_range(0..10) == 0 {
            for byte in part.iter().take(20) {
                if stream.write_all(&[*byte]).is_err() || shared.is_over() {
                    break;
                }
                std::thread::park_timeout(PACE * 5);
            }
        } else {
            drop(stream.write_all(part));
        }
        shared.rough.fetch_add(1, Ordering::Relaxed);
    }
}
