//! A listener with nothing behind it but memory, whose sources and clock each request may choose.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlane::clock::{Clock, SystemClock, TestClock};
use fairlane::config::{self, Config};
use fairlane::deliver::{Attempt, Follows, Outcome};
use fairlane::driver::{self, FilePolicies, Handle, Parts};
use fairlane::engine::Settings;
use fairlane::event::Wall;
use fairlane::listen::{self, Bound, Fetch, Front, NoKey, Serving};
use fairlane::metrics::Metrics;
use fairlane::store::memory::Memory;
use fairlane::store::notebook::Notebook;
use fairlane::store::{Query, Record};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Longer than any answer takes; a listener that does not answer fails the test instead of hanging it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The listener and all that it needs.
pub(crate) struct Bench {
    clock: Arc<TestClock>,
    /// What is at the addresses that providers have keys at.
    keys: Keys,
    front: Arc<Front>,
    handle: Handle,
    address: SocketAddr,
    _serving: Serving,
    runtime: Runtime,
}

type Keys = Arc<Mutex<HashMap<String, String>>>;

/// A request as its sender writes it.
pub(crate) struct Raw<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) host: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Bench {
    #[expect(clippy::disallowed_methods, reason = "the runtime ends with the test")]
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _inside = runtime.enter();
        let clock = Arc::new(TestClock::at(Wall::from_unix_s(1_700_000_000)));
        let system: Arc<dyn Clock> = Arc::new(SystemClock);
        let (driver, handle) = driver::new(Parts {
            store: Arc::new(Memory::new(Arc::clone(&system))),
            clock: system,
            metrics: Arc::new(Metrics::new("none")),
            deliver: Arc::new(|job| Box::pin(async move { delivered(job.attempt) })),
            settings: Settings::default(),
            policies: FilePolicies::default(),
            notebook: Notebook::default(),
            seed: 1,
            cluster: None,
        })
        .unwrap();
        tokio::spawn(driver.run());
        let config = load(&json!([{ "path": "/", "verify": { "provider": "none" } }])).unwrap();
        let bound = Bound::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = bound.address().unwrap();
        let keys = Keys::default();
        let front = Front::new(config.listen, config.sources, handle.clone(), clock.clone(), fetch(&keys), [7; 32]);
        let front = Arc::new(front);
        let serving = listen::start(Arc::clone(&front), bound, false, None).unwrap();
        drop(_inside);
        Self { clock, keys, front, handle, address, _serving: serving, runtime }
    }

    /// Serves the sources of this configuration from the next request on.
    ///
    /// # Errors
    /// What the configuration says against it.
    pub(crate) fn serve(&self, sources: &Value) -> Result<(), String> {
        let config = load(sources)?;
        self.front.replace(config.listen, config.sources);
        Ok(())
    }

    /// Sets the clock that signatures are judged by.
    pub(crate) fn at(&self, unix_s: i64) {
        self.clock.set_wall(Wall::from_unix_s(unix_s));
    }

    /// Puts these at their addresses, and takes away what was at others.
    pub(crate) fn keys(&self, keys: impl Iterator<Item = (String, String)>) {
        *self.keys.lock().unwrap() = keys.collect();
    }

    /// Runs a future of the test's own.
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Sends the request on a connection of its own.
    pub(crate) fn send(&self, raw: &Raw<'_>) -> Answer {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", raw.method, raw.target, raw.host).into_bytes();
        for (name, value) in raw.headers {
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let own = |wanted: &str| raw.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        if !own("content-length") {
            text.extend_from_slice(format!("content-length: {}\r\n", raw.body.len()).as_bytes());
        }
        text.extend_from_slice(b"connection: close\r\n\r\n");
        text.extend_from_slice(raw.body);
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // It may answer and close before it has read all.
        let _sent = stream.write_all(&text);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.get(9..12).and_then(|code| code.parse().ok());
        Answer { status: status.unwrap_or_else(|| panic!("no answer: {read:?} {text:?}")), text }
    }

    /// The newest event as lists show it.
    pub(crate) fn newest(&self) -> Record {
        let page = self.run(self.handle.events(Query { limit: 1, ..Query::default() })).unwrap();
        page.records.into_iter().next().unwrap()
    }
}

fn fetch(keys: &Keys) -> Fetch {
    let keys = Arc::clone(keys);
    Arc::new(move |url| {
        let found = keys.lock().unwrap().get(url).cloned();
        let found = found.map(Into::into).ok_or_else(|| NoKey::NotThere(format!("nothing is at {url}")));
        Box::pin(std::future::ready(found))
    })
}

fn load(sources: &Value) -> Result<Config, String> {
    let text = json!({ "sources": sources }).to_string();
    let none = |_: &str| None;
    let no_file = |_: &std::path::Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    config::load(&text, "gateway.yaml", &none, &no_file)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// A text as the configuration takes it literally.
pub(crate) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn delivered(number: u32) -> Attempt {
    Attempt {
        number,
        started: Wall(0),
        took: Duration::ZERO,
        outcome: Outcome::of(http::StatusCode::OK),
        follows: Follows::Settled,
        error: "".into(),
        retry_after: None,
        retry_scope: None,
        answer: None,
    }
}
