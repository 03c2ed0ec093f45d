//! Ending and beginning again under load: nobody who was accepted is left without an answer.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::upstream::{answer, upstream};
use support::{Client, gateway, post};

const ANY: &str = r#"
upstream: http://127.0.0.1:9
sources:
  - path: /any
    verify: { provider: none }
    key: body.id
"#;

/// Senders that post without a pause until they are told to end, each over connections as it gets them.
struct Load {
    ending: Arc<AtomicBool>,
    senders: Vec<std::thread::JoinHandle<Sent>>,
    answered: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Sent {
    accepted: Vec<String>,
    /// Requests that were written and got no answer.
    unanswered: Vec<String>,
    refused: Vec<u16>,
    longest: Duration,
}

impl Load {
    fn start(address: std::net::SocketAddr, senders: usize, keep_alive: bool) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let senders = (0..senders).map(|number| {
            let (ending, answered) = (Arc::clone(&ending), Arc::clone(&answered));
            std::thread::spawn(move || send(address, number, keep_alive, &ending, &answered))
        });
        Self { senders: senders.collect(), ending, answered }
    }

    fn wait_for(&self, count: usize) {
        while self.answered.load(Ordering::Relaxed) < count {
            std::thread::yield_now();
        }
    }

    fn end(self) -> Sent {
        self.ending.store(true, Ordering::Relaxed);
        let mut all = Sent::default();
        for sender in self.senders {
            let sent = sender.join().unwrap();
            all.accepted.extend(sent.accepted);
            all.unanswered.extend(sent.unanswered);
            all.refused.extend(sent.refused);
            all.longest = all.longest.max(sent.longest);
        }
        all
    }
}

fn send(
    address: std::net::SocketAddr,
    number: usize,
    keep_alive: bool,
    ending: &AtomicBool,
    answered: &AtomicUsize,
) -> Sent {
    let mut sent = Sent::default();
    let mut client: Option<Client> = None;
    for count in 0.. {
        if ending.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("{number}-{count}");
        let request = post("/any", format!(r#"{{"id":"{id}"}}"#).as_bytes());
        #[expect(clippy::disallowed_methods, reason = "the longest pause is printed, and nothing depends on it")]
        let began = Instant::now();
        // A fresh connection that is not taken is not an accepted request.
        let fresh = client.is_none();
        let Some(mut connection) = client.take().or_else(|| connect(address)) else { break };
        match connection.try_send(&request) {
            Some(response) => {
                if response.status == 200 {
                    sent.accepted.push(response.header("fairlane-event-id").unwrap().to_owned());
                } else {
                    sent.refused.push(response.status);
                }
                answered.fetch_add(1, Ordering::Relaxed);
                sent.longest = sent.longest.max(began.elapsed());
                if keep_alive && response.header("connection") != Some("close") {
                    client = Some(connection);
                }
            }
            None if fresh => sent.unanswered.push(id),
            // RFC 9112 §9.3.1: an idle connection may be closed while a request is on its way; the sender tries again.
            None => {}
        }
    }
    sent
}

fn connect(address: std::net::SocketAddr) -> Option<Client> {
    let stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    Some(Client { stream: std::io::BufReader::new(stream) })
}

#[test]
fn sigterm_under_load_answers_every_accepted_request_and_ends_in_time() {
    for keep_alive in [true, false] {
        let gateway = gateway(&format!("shutdown: {{ drain: 10s }}\n{ANY}")).start();
        let load = Load::start(gateway.address, 8, keep_alive);
        load.wait_for(500);
        let (status, dir) = gateway.stop();
        let sent = load.end();
        assert_eq!(status.code(), Some(0));
        assert!(sent.unanswered.is_empty(), "keep-alive {keep_alive}: no answer for {:?}", sent.unanswered);
        assert!(sent.refused.is_empty(), "keep-alive {keep_alive}: {:?}", sent.refused);
        let again = support::gateway(ANY).again_in(dir).start();
        assert_eq!(again.events("").len(), sent.accepted.len());
    }
}

#[test]
fn sigterm_while_it_delivers_loses_nothing_and_repeats_nothing() {
    // Four slots of 30 ms are 130 events a second, far less than what is accepted.
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(30)));
    let yaml = ANY.replace("http://127.0.0.1:9", &format!("{{ url: \"{}\", concurrency: 4 }}", receiver.url()));
    let gateway = gateway(&yaml).start();
    let load = Load::start(gateway.address, 8, true);
    load.wait_for(500);
    receiver.wait_for(20);
    let (status, dir) = gateway.stop();
    let sent = load.end();
    assert_eq!(status.code(), Some(0));
    assert!(
        receiver.count() < sent.accepted.len(),
        "nothing was left to deliver: it stopped too late to show anything"
    );

    let again = support::gateway(&yaml).again_in(dir).start();
    let all = receiver.wait_for(sent.accepted.len());
    while again.json("/api/v1/status")["backlog"]["events"] != 0 {
        std::thread::yield_now();
    }
    let mut ids: Vec<_> = all.iter().map(|request| request.header("fairlane-event-id").unwrap()).collect();
    ids.sort_unstable();
    let mut accepted: Vec<_> = sent.accepted.iter().map(String::as_str).collect();
    accepted.sort_unstable();
    assert_eq!(ids, accepted, "each once: what was in flight had ended and was settled");
    assert_eq!(receiver.count(), accepted.len());
}

#[test]
fn while_it_drains_it_is_not_ready_and_a_second_signal_ends_it_at_once() {
    let mut gateway = gateway(ANY).start();
    let mut open = gateway.client();
    // A body that never ends keeps the drain from ending by itself.
    open.write(b"POST /any HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345").unwrap();
    assert_eq!(Client::to(gateway.admin).send(&support::get("/readyz")).status, 200);
    gateway.signal("TERM");
    loop {
        let ready = Client::to(gateway.admin).send(&support::get("/readyz"));
        if ready.status == 503 {
            assert!(ready.text().contains("ending"), "{}", ready.text());
            break;
        }
        std::thread::yield_now();
    }
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(1));
}

#[test]
fn a_request_that_was_being_read_is_answered_with_connection_close() {
    let mut gateway = gateway(ANY).start();
    let mut open = gateway.client();
    open.write(b"POST /any HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345").unwrap();
    // Its head was surely read once a later request is answered.
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
    gateway.signal("TERM");
    while Client::to(gateway.admin).send(&support::get("/readyz")).status == 200 {
        std::thread::yield_now();
    }
    open.write(b"67890").unwrap();
    let answer = open.receive().unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(open.is_closed());
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn half_a_head_does_not_hold_up_the_end() {
    let timeouts = "shutdown: { drain: 5s }\nlisten: { limits: { header_timeout: 5m, idle_timeout: 10m } }";
    let mut gateway = gateway(&format!("{timeouts}\n{ANY}")).start();
    let mut first = gateway.client();
    first.write(b"POST /any HTTP/1.1\r\nHost: h\r\nContent-").unwrap();
    let mut second = gateway.client();
    assert_eq!(second.send(&post("/any", b"{}")).status, 200);
    second.write(b"POST /any HTTP/1.1\r\nHo").unwrap();
    // Once a later request is answered, both beginnings were surely read.
    assert_eq!(gateway.client().send(&post("/any", b"{}")).status, 200);
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0));
    let log = gateway.stderr();
    assert!(!log.contains("at the end of shutdown.drain"), "{log}");
    assert!(first.is_closed() && second.is_closed());
}

#[test]
fn signals_of_the_first_moments_neither_kill_nor_go_unheard() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_fairlane"));
    let mut child = run.arg("run").arg("--config").arg(&file).spawn().unwrap();
    // It reads its configuration, and will never have all of it.
    let _never_written = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    for signal in ["HUP", "TERM"] {
        let sent = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The shell hands the socket over as systemd does: as descriptor 3, with `LISTEN_FDS` and the process's own number.
fn through_inherited(listener: &TcpListener) -> Vec<String> {
    let fd = listener.as_raw_fd();
    let script = format!("exec env LISTEN_FDS=1 LISTEN_PID=$$ \"$@\" 3<&{fd}");
    vec!["sh".into(), "-c".into(), script, "sh".into()]
}

#[test]
fn a_restart_over_an_inherited_socket_refuses_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    keep_over_exec(&listener);
    let start = |dir| {
        let words = through_inherited(&listener);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let builder = gateway(ANY).through(&words);
        match dir {
            Some(dir) => builder.again_in(dir).start(),
            None => builder.start(),
        }
    };
    let mut gateway = start(None);
    assert_eq!(gateway.address, address);
    let load = Load::start(address, 8, false);
    let mut answered = 0;
    for _ in 0..3 {
        answered += 300;
        load.wait_for(answered);
        let (status, dir) = gateway.stop();
        assert_eq!(status.code(), Some(0));
        gateway = start(Some(dir));
    }
    load.wait_for(answered + 300);
    let sent = load.end();
    assert!(sent.unanswered.is_empty() && sent.refused.is_empty(), "{:?} {:?}", sent.unanswered, sent.refused);
    assert_eq!(gateway.events("").len(), sent.accepted.len());
    println!("3 restarts, {} requests, longest pause {:?}", sent.accepted.len(), sent.longest);
}

/// Rust opens sockets close-on-exec; this one is meant for the child.
fn keep_over_exec(listener: &TcpListener) {
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty()).unwrap();
}
