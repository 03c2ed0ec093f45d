//! The real binary on a history: what its senders wait for, and what who lists and searches waits for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::spread::Spread;

/// Senders, and how often each of them sends: 320 events a second altogether, which leaves two processors most of their time.
const SENDERS: u32 = 16;
const EVERY: Duration = Duration::from_millis(50);
const SPAN: Duration = Duration::from_secs(20);
const TOKEN: &str = "history-bench-token";

/// Prints a table of what senders waited on an empty store and on the full one, and one of lists through the API.
pub(crate) fn measure(full: &Path, empty: &Path) {
    let upstream = receiver();
    std::fs::create_dir_all(empty).unwrap();
    let mut rows = Vec::new();
    let gateway = Gateway::start(empty, upstream, "9d");
    rows.push(("empty store", gateway.send(SPAN)));
    gateway.stop();

    let gateway = Gateway::start(full, upstream, "9d");
    println!("history of the running gateway: {}", gateway.history());
    rows.push(("the history", gateway.send(SPAN)));
    let stop = Arc::new(AtomicBool::new(false));
    let (admin, done) = (gateway.admin, Arc::clone(&stop));
    let lists = thread::spawn(move || keep_listing(admin, &done));
    rows.push(("the history, and lists without a pause", gateway.send(SPAN)));
    stop.store(true, Ordering::Relaxed);
    let lists = lists.join().unwrap();
    gateway.stop();

    // Every delivered event of the history is past this retention.
    let gateway = Gateway::start(full, upstream, "1d");
    rows.push(("while the history is dropped", gateway.send(SPAN)));
    let left = gateway.history();
    gateway.stop();

    println!("| list, through the API | p50 | p95 | p99 | longest | times |\n| --- | --- | --- | --- | --- | --- |");
    for (name, times) in lists {
        println!("| {name} | {} |", Spread::of(times));
    }
    println!("| time to 2xx, {SENDERS} senders, one event each every {EVERY:?} | p50 | p95 | p99 | longest | events |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, times) in rows {
        println!("| {name} | {} |", Spread::of(times));
    }
    println!("left of the history after the drop: {left}");
}

struct Gateway {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    fn start(folder: &Path, upstream: SocketAddr, retention: &str) -> Self {
        let config = format!(
            "upstream: http://{upstream}\n\
             admin: {{ token: {TOKEN} }}\n\
             store: {{ retention: {{ delivered: {retention} }} }}\n\
             sources:\n\
             \x20 - path: /webhooks/shopify\n\
             \x20   verify: {{ provider: none }}\n\
             \x20   key: headers.x-shop\n"
        );
        let path = folder.join("gateway.yaml");
        std::fs::write(&path, config).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairlane"))
            .arg("run")
            .arg("-c")
            .arg(path)
            .args(["--admin", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let after = |mark: &str| -> SocketAddr {
            let rest = line.split_once(mark).and_then(|(_, rest)| rest.split_once("://")).unwrap().1;
            rest.split([',', ' ', '\n']).next().unwrap().parse().unwrap()
        };
        Self { address: after("listening on "), admin: after("admin on "), child }
    }

    /// Sends by schedule for `span`, whatever the answers take; how long each took from the time it was due.
    fn send(&self, span: Duration) -> Vec<Duration> {
        let began = Instant::now();
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let address = self.address;
                thread::spawn(move || {
                    let mut client = Client::open(address);
                    let body = vec![b'y'; 1_000];
                    let mut due = began + EVERY * sender / SENDERS;
                    let mut times = Vec::new();
                    while due < began + span {
                        let ahead = due.saturating_duration_since(Instant::now());
                        // One that found its connection busy counts from when it was due; a timer's lateness is ours.
                        let from = if ahead.is_zero() {
                            due
                        } else {
                            thread::sleep(ahead);
                            Instant::now()
                        };
                        let head = format!(
                            "POST /webhooks/shopify HTTP/1.1\r\nhost: gateway\r\nx-shop: fresh-{}\r\n",
                            times.len() % 50
                        );
                        let (status, _) = client.ask(&head, &body);
                        assert_eq!(status, 200);
                        times.push(from.elapsed());
                        due += EVERY;
                    }
                    times
                })
            })
            .collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    }

    /// Ended events that can be listed.
    fn history(&self) -> u64 {
        let (status, body) = Client::open(self.admin).ask(&get("/api/v1/status"), b"");
        assert_eq!(status, 200);
        let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
        status.pointer("/store/history_events").and_then(serde_json::Value::as_u64).unwrap()
    }

    fn stop(mut self) {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Of one that was stopped nothing is left to end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n")
}

/// Lists and searches as a person's page would, one after another.
fn keep_listing(admin: SocketAddr, done: &AtomicBool) -> Vec<(&'static str, Vec<Duration>)> {
    let mut client = Client::open(admin);
    let mut all: Vec<(&'static str, Vec<Duration>)> = Vec::new();
    let mut round = 0_u64;
    while !done.load(Ordering::Relaxed) {
        round += 1;
        let shop = format!("store-{}.myshopify.com", round * 31 % 1_000);
        let kinds = [
            ("newest", "limit=100".to_owned()),
            ("a group", format!("limit=100&group={shop}")),
            ("a group's dead letters", format!("limit=100&status=dead&group={shop}")),
            ("the provider's id", format!("provider_event_id=id-{}", round * 977 + 1)),
            ("dead letters, oldest first", "limit=100&status=dead&order=oldest".to_owned()),
            ("another source, one look", "limit=100&source=nowhere".to_owned()),
        ];
        all.resize_with(kinds.len(), || ("", Vec::new()));
        for ((name, times), (kind, query)) in all.iter_mut().zip(kinds) {
            let asked = Instant::now();
            let (status, _) = client.ask(&get(&format!("/api/v1/events?{query}")), b"");
            assert_eq!(status, 200);
            *name = kind;
            times.push(asked.elapsed());
        }
    }
    all
}

/// A receiver that takes everything at once.
fn receiver() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

fn serve(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        if stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}
