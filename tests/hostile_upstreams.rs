//! What an upstream can do to a gateway, through the real binary. Each case has a row in `docs/delivery.md` with the outcome that it
//! comes to, and this test reads the table: a row without a case fails, and so does a case without a row.
//!
//! Most cases share one upstream with honest groups, over the same kept connections. Each honest event has to be delivered at its first
//! attempt, with its own answer and nobody else's.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "likewise, with a word on what is missing")]
#![expect(clippy::print_stdout, reason = "it says what it leaves out")]

#[expect(dead_code, reason = "others use the rest of it")]
#[path = "deliver/upstream.rs"]
mod raw;
mod support;

use std::any::Any;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use raw::{Talk, Upstream};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{RootCertStore, ServerConfig};
use support::{Gateway, gateway, post};

/// The heading above the table.
const HEADING: &str = "## When the upstream misbehaves";

/// What would put the next event among the dead letters, were it taken for its answer.
const GONE: &str = "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Between two bytes of what drips.
const DRIP: Duration = Duration::from_millis(20);

/// Bytes that the last upstream without end got rid of.
static SAID: AtomicU64 = AtomicU64::new(0);

/// A case: the request is heard, and what follows is up to it. The connection is closed when it returns.
type Script = fn(&mut Talk);

const SCRIPTS: &[(&str, Script)] = &[
    ("closes without a word", |_| {}),
    ("closes in the middle of the head", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nconte");
    }),
    ("closes in the middle of the body", |talk| {
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
    }),
    ("never answers", Talk::wait_for_close),
    ("sends its head a byte at a time", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nx: ");
        drip(talk);
    }),
    ("sends its body a byte at a time", |talk| {
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
        drip(talk);
    }),
    ("sends 100, 103 and many more of them before its answer", |talk| {
        talk.say("HTTP/1.1 100 Continue\r\n\r\n");
        talk.say("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(500));
        talk.say("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        talk.wait_for_close();
    }),
    ("sends 103 without end", |talk| {
        without_end(talk, "", &format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "y".repeat(1_000)))
    }),
    ("switches protocols without being asked", |talk| {
        talk.say("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
        talk.wait_for_close();
    }),
    ("answers 204 with a body", |talk| {
        then_waits(talk, &format!("HTTP/1.1 204 No Content\r\ncontent-length: {}\r\n\r\n{GONE}", GONE.len()))
    }),
    ("answers 304 with a body", |talk| {
        then_waits(talk, &format!("HTTP/1.1 304 Not Modified\r\ncontent-length: {}\r\n\r\n{GONE}", GONE.len()))
    }),
    ("answers twice", |talk| then_waits(talk, &format!("{OK}{GONE}"))),
    ("says a length that is too short", |talk| {
        then_waits(talk, &format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{GONE}"))
    }),
    ("says a length that is too long", |talk| {
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nabc");
    }),
    ("says two lengths that differ", |talk| {
        then_waits(talk, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc")
    }),
    ("says a length and sends chunks", |talk| {
        then_waits(
            talk,
            &format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{GONE}"),
        );
    }),
    ("sends chunks that are none", |talk| {
        then_waits(talk, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nabc\r\n")
    }),
    ("sends 100 MB", |talk| {
        without_end(talk, "HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n", &"x".repeat(64 * 1024));
        let said = SAID.load(Ordering::SeqCst);
        // What the kernel's buffers hold on both sides is out of our hands.
        assert!(said < 30_000_000, "{said} bytes were taken");
    }),
    ("sends header lines without end", |talk| {
        without_end(talk, "HTTP/1.1 200 OK\r\n", &format!("x: {}\r\n", "y".repeat(8_000)))
    }),
    ("sends one header line without end", |talk| without_end(talk, "HTTP/1.1 200 OK\r\nx: ", &"y".repeat(8_000))),
    ("redirects", |talk| {
        then_waits(
            talk,
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        )
    }),
    ("sends a page without a head, as HTTP/0.9 did", |talk| {
        talk.say("<html>hello</html>\r\n");
    }),
    ("speaks another protocol", |talk| then_waits(talk, "SSH-2.0-OpenSSH_9.6\r\n")),
    ("answers in TLS where it was asked in plain text", |talk| {
        talk.say(b"\x15\x03\x01\x00\x02\x02\x46");
        talk.wait_for_close();
    }),
];

fn drip(talk: &mut Talk) {
    while !talk.closes_within(DRIP) && talk.say("y") {}
}

/// Says it all, and goes on until the other side closes. On a connection that were used again, nobody would answer.
fn then_waits(talk: &mut Talk, words: &str) {
    talk.say(words);
    talk.wait_for_close();
}

fn without_end(talk: &mut Talk, head: &str, piece: &str) {
    SAID.store(0, Ordering::SeqCst);
    talk.say(head);
    while talk.say(piece) {
        SAID.fetch_add(piece.len() as u64, Ordering::SeqCst);
    }
}

/// An upstream that is hostile before any request could be told apart, so that nobody else can share it.
struct Elsewhere {
    /// `upstream` in the configuration.
    upstream: String,
    _kept: Box<dyn Any>,
}

/// Begins one, with a folder for what it needs.
type Begin = fn(&Path) -> Elsewhere;

const ELSEWHERE: &[(&str, Begin)] = &[
    ("refuses connections", |_| {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        at(&format!("http://{address}"), "", ())
    }),
    ("has a name that does not exist", |_| at("http://nonexistent.invalid", "timeout: 30s", ())),
    ("takes no connection", |_| {
        let (address, queue) = full_queue();
        at(&format!("http://{address}"), "timeout: 300ms", queue)
    }),
    ("falls silent in the TLS handshake", |_| {
        let upstream = Upstream::new(Talk::wait_for_close);
        at(&format!("https://localhost:{}", upstream.address.port()), "timeout: 300ms", upstream)
    }),
    ("speaks plain text where TLS is expected", |_| {
        let upstream = Upstream::new(|talk| {
            talk.say("HTTP/1.1 400 Bad Request\r\n\r\n");
            talk.wait_for_close();
        });
        at(&format!("https://localhost:{}", upstream.address.port()), "", upstream)
    }),
    ("shows a certificate that nobody vouches for", |folder| shows("localhost", 2090, Trusted::Another, folder)),
    ("shows a certificate for another name", |folder| shows("other.example", 2090, Trusted::Its, folder)),
    ("shows an expired certificate", |folder| shows("localhost", 2020, Trusted::Its, folder)),
    ("has a name whose first address is IPv6 and closed", |_| {
        let upstream = Upstream::answering(OK);
        at(&format!("http://localhost:{}", upstream.address.port()), "", upstream)
    }),
    ("has an IPv6 address", |_| {
        match Upstream::on("[::1]:0", None, |talk| {
            while talk.hear() {
                talk.say(OK);
            }
        }) {
            Ok(upstream) => at(&upstream.url(), "", upstream),
            Err(_) => {
                println!("LEFT OUT: this machine has no IPv6 loopback, an IPv4 address stands in");
                let upstream = Upstream::answering(OK);
                at(&upstream.url(), "", upstream)
            }
        }
    }),
    ("closes a kept connection as the next request comes", |_| {
        // The second event finds the connection that the first one left; see `attempted`.
        let upstream = Upstream::new(|talk| {
            let answers = if talk.connection == 0 { 1 } else { usize::MAX };
            while talk.hear() && talk.heard() <= answers {
                talk.say(OK);
            }
        });
        at(&upstream.url(), "", upstream)
    }),
];

fn at(url: &str, more: &str, kept: impl Any) -> Elsewhere {
    let more = if more.is_empty() { String::new() } else { format!(", {more}") };
    Elsewhere { upstream: format!("{{ url: \"{url}\"{more}, {RETRY} }}"), _kept: Box::new(kept) }
}

/// Nothing is tried twice while the test looks.
const RETRY: &str = "retry: { backoff: { initial: 1h, max: 1h } }";

/// A listener whose queue is full: the next handshake is not answered.
fn full_queue() -> (SocketAddr, impl Any) {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(150)) {
        queue.push(stream);
        assert!(queue.len() < 100, "the queue never fills");
    }
    (address, (listener, queue))
}

/// Whose certificate the gateway trusts.
#[derive(Clone, Copy, PartialEq)]
enum Trusted {
    Its,
    Another,
}

/// An upstream that shows a certificate for `name` which is good until `year`.
fn shows(name: &str, year: i32, trusted: Trusted, folder: &Path) -> Elsewhere {
    let mint = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2010, 1, 1), date_time_ymd(year, 1, 1));
        (params.self_signed(&key).unwrap(), key)
    };
    let (certificate, key) = mint(name);
    let ca = if trusted == Trusted::Its { certificate.pem() } else { mint(name).0.pem() };
    let file = folder.join("ca.pem");
    std::fs::write(&file, ca).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let upstream = Upstream::tls(config, |talk| {
        while talk.hear() {
            talk.say(OK);
        }
    });
    let url = format!("https://localhost:{}", upstream.address.port());
    at(&url, &format!("tls: {{ ca: \"{}\" }}", file.display()), (upstream, RootCertStore::empty()))
}

/// The table: what the upstream does, and the outcome.
fn documented() -> BTreeMap<String, String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/delivery.md")).unwrap();
    let (_, below) = page.split_once(HEADING).expect("docs/delivery.md has the table");
    let section = below.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].to_owned(), cells[1].trim_matches('`').to_owned())
    })
    .collect()
}

fn yaml(upstream: &str) -> String {
    // The disk of a busy machine is not what is tried here.
    format!(
        "listen: {{ limits: {{ answer_timeout: 60s }} }}\nupstream: {upstream}\nsources:\n  - path: /any\n    verify: {{ provider: none }}\n    \
         key: headers.x-key\n"
    )
}

fn send(gateway: &Gateway, key: &str) -> String {
    let response = gateway.client().send(&post("/any", b"{\"a\":1}").header("X-Key", key));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

/// The first attempt of an event, as soon as it has ended.
fn attempted(gateway: &Gateway, id: &str) -> serde_json::Value {
    loop {
        let attempts = gateway.json(&format!("/api/v1/events/{id}/attempts"));
        if let Some(first) = attempts["attempts"].as_array().unwrap().first() {
            return first.clone();
        }
        std::thread::yield_now();
    }
}

#[test]
fn every_row_has_a_case_and_every_case_a_row() {
    let cases = SCRIPTS.iter().map(|(name, _)| *name).chain(ELSEWHERE.iter().map(|(name, _)| *name));
    let mut cases: Vec<String> = cases.map(str::to_owned).collect();
    cases.sort();
    assert_eq!(cases, documented().into_keys().collect::<Vec<_>>());
}

#[test]
fn each_comes_to_its_outcome_beside_honest_groups_that_do_not_notice() {
    let outcomes = documented();
    let upstream = Upstream::new(|talk| {
        while talk.hear() {
            let heard = talk.last();
            let group = heard.all("fairlane-group")[0];
            match group.strip_prefix("case-").map(|index| SCRIPTS[index.parse::<usize>().unwrap()].1) {
                Some(script) => return script(talk),
                None => {
                    let id = heard.all("fairlane-event-id")[0];
                    talk.say(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{id}", id.len()));
                }
            }
        }
    });
    let gateway = gateway(&yaml(&format!("{{ url: \"{}\", timeout: 5s, {RETRY} }}", upstream.url()))).start();
    // The honest ones are there first, so that what is kept and reused is theirs.
    let warm: Vec<String> = (0..50).map(|n| send(&gateway, &format!("honest-{}", n % 10))).collect();
    warm.iter().for_each(|id| drop(gateway.wait_for_status(id, "delivered")));
    let before = gateway.peak_kib();

    let over = AtomicBool::new(false);
    let honest = std::thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let mut sent = Vec::new();
            // Until the last hostile event is over, and always in greater numbers than those.
            while !over.load(Ordering::SeqCst) || sent.len() < SCRIPTS.len() * 10 {
                let id = send(&gateway, &format!("honest-{}", sent.len() % 10));
                attempted(&gateway, &id);
                sent.push(id);
            }
            sent
        });
        let hostile: Vec<(&str, String)> =
            (0..SCRIPTS.len()).map(|index| (SCRIPTS[index].0, send(&gateway, &format!("case-{index}")))).collect();
        let mut wrong = Vec::new();
        for (case, id) in hostile {
            let attempt = attempted(&gateway, &id);
            if attempt["outcome"] != *outcomes[case] {
                wrong.push(format!("{case}: {} and not {}: {}", attempt["outcome"], outcomes[case], attempt["error"]));
            }
        }
        over.store(true, Ordering::SeqCst);
        let honest = honest.join().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        honest
    });
    for id in warm.iter().chain(&honest) {
        let attempts = gateway.json(&format!("/api/v1/events/{id}/attempts"));
        let attempts = attempts["attempts"].as_array().unwrap();
        assert!(attempts.len() == 1 && attempts[0]["answer"] == **id, "{attempts:?}");
    }
    let grown = gateway.peak_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB more");
    let standing = gateway.json("/api/v1/upstream");
    assert_eq!(standing["breaker"]["state"], "closed", "{standing}");
    assert_eq!(gateway.metric("fairlane_invariant_violations_total "), Some(0.0));
}

#[test]
fn an_upstream_that_cannot_be_talked_to_has_its_outcome_too() {
    let outcomes = documented();
    for (case, make) in ELSEWHERE {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = make(folder.path());
        let gateway = gateway(&yaml(&elsewhere.upstream)).start();
        let mut attempt = attempted(&gateway, &send(&gateway, "a"));
        if attempt["outcome"] == "delivered" {
            // Over the connection that is kept from the first.
            attempt = attempted(&gateway, &send(&gateway, "a"));
        }
        assert_eq!(attempt["outcome"], *outcomes[*case], "{case}: {attempt}");
    }
}
