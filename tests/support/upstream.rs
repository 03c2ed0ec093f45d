//! A receiver that answers as it is told and remembers what it was sent.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn group(&self) -> &str {
        self.header("fairlane-group").unwrap()
    }
}

/// What to answer, and after how long.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) after: Duration,
}

pub(crate) fn answer(status: u16) -> Answer {
    Answer { status, headers: Vec::new(), body: Vec::new(), after: Duration::ZERO }
}

impl Answer {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        self
    }

    /// A receiver's work takes its time; that is the subject here and no waiting for something.
    pub(crate) fn after(mut self, span: Duration) -> Self {
        self.after = span;
        self
    }
}

/// Which requests are worth remembering.
type Keep = Arc<dyn Fn(&Received) -> bool + Send + Sync>;

type Rule = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

struct Shared {
    rule: Mutex<Rule>,
    keep: Mutex<Keep>,
    received: Mutex<Vec<Received>>,
    came: Condvar,
    in_flight: AtomicUsize,
    most: AtomicUsize,
    /// By group: requests in work, and the most there were at one time.
    groups: Mutex<HashMap<String, (usize, usize)>>,
}

/// The receiver; it serves until the test's process ends.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

pub(crate) fn upstream(rule: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Upstream {
    upstream_at(SocketAddr::from(([127, 0, 0, 1], 0)), rule)
}

pub(crate) fn upstream_at(address: SocketAddr, rule: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Upstream {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared {
        rule: Mutex::new(Arc::new(rule)),
        keep: Mutex::new(Arc::new(|_| true)),
        received: Mutex::default(),
        came: Condvar::new(),
        in_flight: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        groups: Mutex::default(),
    });
    let serving = Arc::clone(&shared);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&serving);
            std::thread::spawn(move || serve(stream, &shared));
        }
    });
    Upstream { address, shared }
}

impl Upstream {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn rule(&self, rule: impl Fn(&Received) -> Answer + Send + Sync + 'static) {
        *self.shared.rule.lock().unwrap() = Arc::new(rule);
    }

    /// Remembers only these from now on: a flood of a hundred thousand is not to be searched.
    pub(crate) fn keeping(self, keep: impl Fn(&Received) -> bool + Send + Sync + 'static) -> Self {
        *self.shared.keep.lock().unwrap() = Arc::new(keep);
        self
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.received.lock().unwrap().len()
    }

    /// Waits until so many requests came, and gives all that did.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Received> {
        self.wait_until(|received| received.len() >= count)
    }

    pub(crate) fn wait_until(&self, what: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let received = self.shared.received.lock().unwrap();
        let patience = Duration::from_secs(120);
        let (received, timeout) = self.shared.came.wait_timeout_while(received, patience, |r| !what(r)).unwrap();
        assert!(!timeout.timed_out(), "what was waited for did not come; {} requests did", received.len());
        received.clone()
    }

    /// The most requests that were in work at one time.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }

    /// The most requests of one group that were in work at one time.
    pub(crate) fn most_of_a_group(&self) -> usize {
        self.shared.groups.lock().unwrap().values().map(|(_, most)| *most).max().unwrap_or(0)
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        let now = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most.fetch_max(now, Ordering::SeqCst);
        let group = request.header("fairlane-group").map(str::to_owned);
        if let Some(group) = &group {
            let mut groups = shared.groups.lock().unwrap();
            let (now, most) = groups.entry(group.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        let rule = Arc::clone(&shared.rule.lock().unwrap());
        let answer = rule(&request);
        let keep = Arc::clone(&shared.keep.lock().unwrap());
        if keep(&request) {
            shared.received.lock().unwrap().push(request);
            shared.came.notify_all();
        }
        if !answer.after.is_zero() {
            std::thread::park_timeout(answer.after);
        }
        shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(group) = group
            && let Some((now, _)) = shared.groups.lock().unwrap().get_mut(&group)
        {
            *now -= 1;
        }
        let mut out = format!("HTTP/1.1 {} Answer\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
        for (name, value) in &answer.headers {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        out.push_str("\r\n");
        let mut bytes = out.into_bytes();
        bytes.extend_from_slice(&answer.body);
        if stream.get_mut().write_all(&bytes).is_err() {
            return;
        }
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    if stream.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    let mut received = Received { method, target, headers, body: Vec::new() };
    let length = received.header("content-length").map_or(0, |length| length.parse().unwrap());
    received.body = vec![0; length];
    stream.read_exact(&mut received.body).ok()?;
    Some(received)
}
