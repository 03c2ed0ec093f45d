//! An upstream that has a name, and a name server that changes its mind, fails or falls silent. The gateway is the real binary in a mount
//! namespace of its own, in which `/etc/resolv.conf` names a server of this test's; where that cannot be had, the tests say so.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "it says what it leaves out")]

#[expect(dead_code, reason = "others use the rest of it")]
#[path = "deliver/upstream.rs"]
mod raw;
mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use raw::Upstream;
use serde_json::Value;
use support::{Gateway, gateway, post};
use tempfile::TempDir;

const NAME: &str = "receiver.fairlane.test";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// What is answered to a question for an IPv4 address.
#[derive(Clone)]
enum Says {
    Addresses(Vec<Ipv4Addr>),
    /// RCODE 2, RFC 1035 §4.1.1.
    Failure,
    /// RCODE 3.
    NoSuchName,
    Nothing,
}

/// A name server on a port 53 of the loopback's.
struct Names {
    address: Ipv4Addr,
    says: Arc<Mutex<Says>>,
}

/// Each test has an address of its own.
static NEXT: AtomicU8 = AtomicU8::new(101);

impl Names {
    /// `None`, loudly, where such ports are not to be had.
    fn start(says: Says) -> Option<Self> {
        let address = Ipv4Addr::new(127, 9, 53, NEXT.fetch_add(1, Ordering::SeqCst));
        let socket = match UdpSocket::bind((address, 53)) {
            Ok(socket) => socket,
            Err(error) => {
                println!("LEFT OUT: no port 53 for a name server ({error})");
                return None;
            }
        };
        let says = Arc::new(Mutex::new(says));
        let said = Arc::clone(&says);
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((read, peer)) = socket.recv_from(&mut question) {
                let says = said.lock().unwrap().clone();
                if let Some(answer) = answer(&question[..read], &says) {
                    drop(socket.send_to(&answer, peer));
                }
            }
        });
        Some(Self { address, says })
    }

    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }
}

/// The answer to a question of one name (RFC 1035 §4).
fn answer(question: &[u8], says: &Says) -> Option<Vec<u8>> {
    let name_end = 12 + question[12..].iter().position(|byte| *byte == 0)? + 1;
    let asked = question.get(12..name_end + 4)?;
    let wants_v4 = question[name_end..name_end + 2] == [0, 1];
    let (code, addresses) = match says {
        Says::Addresses(addresses) => (0, addresses.as_slice()),
        Says::Failure => (2, &[][..]),
        Says::NoSuchName => (3, &[][..]),
        Says::Nothing => return None,
    };
    let addresses = if wants_v4 { addresses } else { &[] };
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
    out.extend(asked);
    for address in addresses {
        // The name of the question, A, IN, good for an hour: nobody here keeps it.
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4]);
        out.extend(address.octets());
    }
    Some(out)
}

/// A gateway that asks this server, and the folder of its resolv.conf; `None`, loudly, where there are no namespaces.
fn start(names: &Names, upstream: &str) -> Option<(Gateway, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let resolv = folder.path().join("resolv.conf");
    std::fs::write(&resolv, format!("nameserver {}\noptions timeout:1 attempts:1\n", names.address)).unwrap();
    let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let script = format!("mount --bind '{}' /etc/resolv.conf && exec \"$@\"", resolv.display());
    let words = ["unshare", flags, "sh", "-c", &script, "sh"];
    if !Command::new(words[0]).args(&words[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        println!("LEFT OUT: /etc/resolv.conf cannot be another one for a process of its own");
        return None;
    }
    let yaml = format!(
        "upstream: {upstream}\nsources: [{{ path: /any, verify: {{ provider: none }}, key: const:a }}]\n\
         listen: {{ limits: {{ answer_timeout: 60s }} }}\n"
    );
    Some((gateway(&yaml).through(&words).start(), folder))
}

fn send(gateway: &Gateway) -> String {
    let response = gateway.client().send(&post("/any", b"{}"));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// The first attempt of an event, as soon as it has ended.
fn attempted(gateway: &Gateway, id: &str) -> Value {
    loop {
        let attempts = gateway.json(&format!("/api/v1/events/{id}/attempts"));
        if let Some(first) = attempts["attempts"].as_array().unwrap().first() {
            return first.clone();
        }
        std::thread::yield_now();
    }
}

/// Two receivers of one port at two addresses, and word of each connection that served and was closed.
fn receivers() -> (Upstream, Upstream, mpsc::Receiver<()>) {
    loop {
        let (closed, is_closed) = mpsc::sync_channel(16);
        let first = receiver("127.9.0.1:0", closed.clone()).unwrap();
        if let Ok(second) = receiver(&format!("127.9.0.2:{}", first.address.port()), closed) {
            return (first, second, is_closed);
        }
    }
}

fn receiver(address: &str, closed: mpsc::SyncSender<()>) -> std::io::Result<Upstream> {
    let closed = Mutex::new(closed);
    Upstream::on(address, None, move |talk| {
        while talk.hear() {
            talk.say(OK);
        }
        // The gateway also looks once whether somebody is there.
        if talk.heard() > 0 {
            closed.lock().unwrap().send(()).unwrap_or_default();
        }
    })
}

#[test]
fn a_name_whose_addresses_change_is_followed_as_soon_as_its_connection_is_idle() {
    let (first, second, is_closed) = receivers();
    let Some(names) = Names::start(Says::Addresses(vec![Ipv4Addr::new(127, 9, 0, 1)])) else { return };
    let upstream = format!("{{ url: \"http://{NAME}:{}\", idle: 100ms }}", first.address.port());
    let Some((gateway, _folder)) = start(&names, &upstream) else { return };
    assert_eq!(attempted(&gateway, &send(&gateway))["outcome"], "delivered");
    assert_eq!((first.seen().len(), second.seen().len()), (1, 0));
    names.say(Says::Addresses(vec![Ipv4Addr::new(127, 9, 0, 2)]));
    is_closed.recv().unwrap();
    assert_eq!(attempted(&gateway, &send(&gateway))["outcome"], "delivered");
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
    // One of several addresses that is dead costs no attempt.
    let dead = Ipv4Addr::new(127, 9, 0, 3);
    names.say(Says::Addresses(vec![dead, Ipv4Addr::new(127, 9, 0, 1)]));
    is_closed.recv().unwrap();
    assert_eq!(attempted(&gateway, &send(&gateway))["outcome"], "delivered");
    assert_eq!((first.seen().len(), second.seen().len()), (2, 1));
}

#[test]
fn a_name_that_cannot_be_looked_up_is_asked_for_again_until_it_can() {
    let (first, _, is_closed) = receivers();
    let Some(names) = Names::start(Says::Nothing) else { return };
    let backoff = "retry: { backoff: { initial: 100ms, max: 100ms } }";
    let upstream =
        format!("{{ url: \"http://{NAME}:{}\", idle: 50ms, timeout: 400ms, {backoff} }}", first.address.port());
    let Some((gateway, _folder)) = start(&names, &upstream) else { return };
    for (says, outcome) in [
        (Says::Nothing, "timeout_dns"),
        (Says::NoSuchName, "dns"),
        (Says::Failure, "dns"),
        (Says::Addresses(Vec::new()), "dns"),
    ] {
        names.say(says);
        let id = send(&gateway);
        let attempt = attempted(&gateway, &id);
        assert_eq!(attempt["outcome"], outcome, "{attempt}");
        assert!(attempt["error"].as_str().unwrap().contains(NAME), "{attempt}");
        names.say(Says::Addresses(vec![Ipv4Addr::new(127, 9, 0, 1)]));
        gateway.wait_for_status(&id, "delivered");
        is_closed.recv().unwrap();
    }
    assert_eq!(first.seen().len(), 4, "each came once");
}
