//! Thousands of connections that say nothing, or nothing more, from two addresses: the limits hold, honest senders go on, and what such a
//! connection takes in memory is printed.
//!
//! 2,000 of them against a limit of 1,000; `IDLE_CONNECTIONS=20000` for the full size (10,000).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a connection takes is what it is for, and what is left out is said"
)]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use support::upstream::{answer, upstream};
use support::{Client, Gateway, gateway, post};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Connections that are opened at one time: more would not fit the kernel's queue.
const AT_ONCE: usize = 256;

/// Of those that were opened the closed ones are let go after so many.
const LET_GO_AFTER: usize = 1_000;

/// What the senders' side and the gateway have open beside the connections that stay: some wait in the kernel's queue.
const OTHERS: u64 = 6_144;

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// How many there are to be, as far as this process may open files.
fn count() -> usize {
    let asked = std::env::var("IDLE_CONNECTIONS").map_or(2_000, |text| text.parse().unwrap());
    let mut limits = getrlimit(Resource::Nofile);
    let wanted = asked as u64 / 2 + OTHERS;
    if limits.maximum.is_some_and(|maximum| maximum < wanted) {
        limits.maximum = Some(wanted);
    }
    limits.current = limits.maximum;
    if setrlimit(Resource::Nofile, limits).is_err() {
        let kept = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: kept.maximum, ..kept }).unwrap();
    }
    let files = getrlimit(Resource::Nofile).current;
    let allowed = files.map_or(asked, |files| usize::try_from(files.saturating_sub(OTHERS)).unwrap() * 2);
    if allowed < asked {
        eprintln!("LEFT OUT: {asked} connections: this process may open {allowed} (ulimit -n)");
    }
    asked.min(allowed) / 2 * 2
}

async fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Opens so many connections from two addresses, in turn; each says `first`. Those that were closed need not be among them.
async fn open(to: SocketAddr, count: usize, first: &'static [u8]) -> Vec<TcpStream> {
    let mut opening = JoinSet::new();
    let mut all = Vec::with_capacity(count);
    for number in 0..count {
        if opening.len() == AT_ONCE {
            all.push(opening.join_next().await.unwrap().unwrap());
        }
        if number % LET_GO_AFTER == 0 {
            all.retain(is_open);
        }
        opening.spawn(async move {
            let stream = connect(host(1 + u8::from(number % 2 == 0)), to).await;
            // It may have been closed already, which is the subject.
            drop(stream.try_write(first));
            stream
        });
    }
    while let Some(opened) = opening.join_next().await {
        all.push(opened.unwrap());
    }
    all
}

/// Whether the other side has not closed it; what it said is passed by.
fn is_open(stream: &TcpStream) -> bool {
    let mut bytes = [0; 1_024];
    loop {
        match stream.try_read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Waits until so many of them are open.
async fn wait_for_open(all: &[TcpStream], wanted: usize) {
    while all.iter().filter(|stream| is_open(stream)).count() != wanted {
        tokio::task::yield_now().await;
    }
}

fn connections(gateway: &Gateway) -> usize {
    gateway.metric("fairlane_connections ").unwrap() as usize
}

fn resident_kib(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends events over one connection, one after another, until it is over: how many were answered 200. Any other answer is a failure.
fn go_on(client: &mut Client, over: &AtomicBool) -> usize {
    let mut sent = 0;
    while !over.load(Ordering::SeqCst) || sent < 100 {
        let response = client.send(&post("/any", b"{}").header("x-key", "honest"));
        assert_eq!(response.status, 200, "{}", response.text());
        sent += 1;
        std::thread::park_timeout(Duration::from_millis(2));
    }
    sent
}

fn start(limit: usize, per_ip: usize, header_timeout: &str) -> Gateway {
    let receiver = upstream(|_| answer(200)).keeping(|_| false);
    let yaml = format!(
        "listen: {{ limits: {{ connections: {limit}, connections_per_ip: {per_ip}, header_timeout: {header_timeout}, answer_timeout: 60s }} }}\n\
         upstream: {}\nsources: [{{ path: /any, verify: {{ provider: none }}, key: headers.x-key }}]\n",
        receiver.url()
    );
    let gateway = gateway(&yaml).start();
    assert!(!gateway.stderr().contains("connections are taken"), "{}", gateway.stderr());
    gateway
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn strangers_of_two_addresses_take_two_shares_and_everybody_else_is_served() {
    let count = count();
    let (limit, share) = (count / 2, count / 20);
    let gateway = start(limit, share, "1h");
    runtime().block_on(async {
        let all = open(gateway.address, count, b"").await;
        wait_for_open(&all, 2 * share).await;
        assert_eq!(connections(&gateway), 2 * share, "of {count} that were opened");
        // From a third address: new connections, each served.
        for _ in 0..20 {
            let mut stream = connect(host(3), gateway.address).await.into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            std::io::Write::write_all(&mut stream, &post("/any", b"{}").bytes()).unwrap();
            let mut client = Client { stream: std::io::BufReader::new(stream) };
            assert_eq!(client.receive().unwrap().status, 200);
        }
    });
}

#[test]
fn the_limit_for_all_holds_honest_connections_go_on_and_new_ones_come_in_when_silent_ones_are_ended() {
    let count = count();
    let limit = count / 2;
    // Long enough to open them all before the first is ended.
    let gateway = start(limit, limit, if count > 5_000 { "60s" } else { "10s" });
    let mut honest = gateway.client();
    assert_eq!(honest.send(&post("/any", b"{}").header("x-key", "honest")).status, 200);
    let before = resident_kib(&gateway);
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| go_on(&mut honest, &over));
        runtime().block_on(async {
            let all = open(gateway.address, count, b"").await;
            wait_for_open(&all, limit - 1).await;
            assert_eq!(connections(&gateway), limit, "with the honest one");
            print_each("says nothing", before, resident_kib(&gateway), limit);
            let refused = gateway.client().try_send(&post("/any", b"{}"));
            assert!(refused.is_none(), "one more than the limit was served");
            // Nobody has to do anything for this.
            while gateway.client().try_send(&post("/any", b"{}")).is_none_or(|answer| answer.status != 200) {
                tokio::task::yield_now().await;
            }
        });
        over.store(true, Ordering::SeqCst);
        sending.join().unwrap()
    });
    println!("{sent} events over the connection that was open before");
}

#[test]
fn connections_that_said_something_and_nothing_more_are_as_many_as_the_limit() {
    let count = count();
    let limit = count / 2;
    let gateway = start(limit, limit, "60s");
    let mut honest = gateway.client();
    assert_eq!(honest.send(&post("/any", b"{}").header("x-key", "honest")).status, 200);
    let before = resident_kib(&gateway);
    runtime().block_on(async {
        let request = b"GET /nowhere HTTP/1.1\r\nHost: hooks.test\r\n\r\n";
        let all = open(gateway.address, count, request).await;
        wait_for_open(&all, limit - 1).await;
        print_each("was answered once", before, resident_kib(&gateway), limit);
        assert_eq!(connections(&gateway), limit);
        assert_eq!(honest.send(&post("/any", b"{}").header("x-key", "honest")).status, 200);
    });
}

fn print_each(what: &str, before: u64, after: u64, count: usize) {
    let each = after.saturating_sub(before) as f64 / count as f64;
    println!("| {count} connections, each of which {what} | {before} → {after} KiB | {each:.1} KiB each |");
}
