//! A receiver that believes nothing: every byte that reaches it is part of a request that two readers could only read in one way, of an event
//! that its sender signed. Whatever is not goes into a list of faults.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What came, by event id and how often; and what was wrong.
#[derive(Default)]
pub(crate) struct Came {
    pub(crate) events: BTreeMap<String, usize>,
    pub(crate) faults: Vec<String>,
}

/// The receiver; it serves until the test's process ends.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) came: Arc<Mutex<Came>>,
}

/// Which bodies were signed.
pub(crate) type Signed = fn(&[u8]) -> bool;

impl Receiver {
    pub(crate) fn start(signed: Signed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), came: Arc::default() };
        let came = Arc::clone(&receiver.came);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let came = Arc::clone(&came);
                std::thread::spawn(move || serve(stream, &came, signed));
            }
        });
        receiver
    }
}

fn serve(stream: TcpStream, came: &Mutex<Came>, signed: Signed) {
    let mut stream = BufReader::new(stream);
    loop {
        match request(&mut stream, signed) {
            Ok(Some(event)) => *came.lock().unwrap().events.entry(event).or_default() += 1,
            Ok(None) => return,
            Err(fault) => return came.lock().unwrap().faults.push(fault),
        }
        if stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// One request's event id; `None` at the end of the connection, between two requests.
fn request(stream: &mut BufReader<TcpStream>, signed: Signed) -> Result<Option<String>, String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            // A gateway that is ended with the test may end in the middle.
            _ if head.is_empty() => return Ok(None),
            _ => return Err(format!("a head that ends: {}", shown(&head))),
        }
    }
    let lines =
        head[..head.len() - 4].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines: Vec<&[u8]> = lines.collect();
    let fault = |what: &str| Err(format!("{what}: {}", shown(&head)));
    if lines.iter().any(|line| line.iter().any(|byte| *byte < 0x20 && *byte != b'\t' || *byte == 0x7F)) {
        return fault("a control character");
    }
    if head.iter().filter(|byte| **byte == b'\n').count() != head.windows(2).filter(|two| two == b"\r\n").count() {
        return fault("a line that ends in LF alone");
    }
    let first: Vec<&[u8]> = lines[0].split(|byte| *byte == b' ').collect();
    let [b"POST", target, b"HTTP/1.1"] = first[..] else { return fault("a first line") };
    if !target.starts_with(b"/hooks/signed") || target.iter().any(|byte| !byte.is_ascii_graphic()) {
        return fault("a target");
    }
    let mut named = BTreeMap::<String, Vec<&[u8]>>::new();
    for line in &lines[1..] {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { return fault("a line without a colon") };
        let (name, value) = (&line[..at], &line[at + 1..]);
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return fault("a name");
        }
        named.entry(String::from_utf8_lossy(name).to_ascii_lowercase()).or_default().push(value.trim_ascii());
    }
    let one = |name: &str| match named.get(name).map(Vec::as_slice) {
        Some([value]) => Some(String::from_utf8_lossy(value).into_owned()),
        _ => None,
    };
    if ["transfer-encoding", "te", "trailer", "upgrade", "expect"].iter().any(|name| named.contains_key(*name)) {
        return fault("a header line of the sender's own connection");
    }
    if named.keys().any(|name| name.replace('_', "-").starts_with("fairlane-") && name.contains('_')) {
        return fault("a name that some read as ours");
    }
    let Some(length) = one("content-length").filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())) else {
        return fault("one Content-Length of digits");
    };
    let mut body = vec![0; length.parse().map_err(|_| shown(&head))?];
    if stream.read_exact(&mut body).is_err() {
        return fault("a body that ends before its length");
    }
    if !signed(&body) {
        return Err(format!("a body that nobody signed: {}\n{}", shown(&head), shown(&body)));
    }
    if one("fairlane-verified").is_none_or(|scheme| !scheme.starts_with("shopify ")) {
        return fault("one Fairlane-Verified of the scheme");
    }
    if one("x-forwarded-for").as_deref() != Some("127.0.0.1") {
        return fault("one X-Forwarded-For of the sender's address");
    }
    match one("fairlane-event-id") {
        Some(id) if id.starts_with("evt_") && id.len() == 40 => Ok(Some(id)),
        _ => fault("one Fairlane-Event-Id"),
    }
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
