//! What the tests of the real binary share: a gateway in a child process, and a client that says exactly what it is told to.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]
#![expect(clippy::expect_used, reason = "likewise, with a word on what is missing")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]
#![expect(dead_code, reason = "each test file uses its own part of this")]
#![expect(clippy::print_stderr, reason = "the log of a gateway in a failed test")]

pub(crate) mod collector;
pub(crate) mod faults;
pub(crate) mod redis;
pub(crate) mod upstream;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tempfile::TempDir;

/// No answer takes this long; it only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const SHOPIFY_SECRET: &str = "hush-a-test-secret";

/// The shortest useful configuration.
pub(crate) const SHOPIFY: &str = r#"
upstream: http://127.0.0.1:9
sources:
  - path: /webhooks/shopify
    verify: { provider: shopify, secret: "hush-a-test-secret" }
"#;

/// A gateway to be.
pub(crate) struct GatewayBuilder {
    yaml: String,
    dir: Option<TempDir>,
    wrapper: Vec<String>,
    arguments: Vec<String>,
}

/// A gateway in a child process; killed when dropped.
pub(crate) struct Gateway {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    dir: Option<TempDir>,
    _stdout: BufReader<ChildStdout>,
}

pub(crate) fn gateway(yaml: &str) -> GatewayBuilder {
    GatewayBuilder { yaml: yaml.to_owned(), dir: None, wrapper: Vec::new(), arguments: Vec::new() }
}

impl GatewayBuilder {
    /// In the folder of one that ran before.
    pub(crate) fn again_in(mut self, dir: TempDir) -> Self {
        self.dir = Some(dir);
        self
    }

    /// Started through another program, e.g. `strace -f`.
    pub(crate) fn through(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|&word| word.to_owned()).collect();
        self
    }

    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&word| word.to_owned()));
        self
    }

    /// Starts it and waits until it says where it listens.
    pub(crate) fn start(self) -> Gateway {
        self.try_start().unwrap_or_else(|(status, error)| panic!("the gateway did not start ({status}):\n{error}"))
    }

    /// The same, with the exit status and standard error of one that ends instead.
    pub(crate) fn try_start(self) -> Result<Gateway, (ExitStatus, String)> {
        let dir = self.dir.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let config = dir.path().join("gateway.yaml");
        std::fs::write(&config, &self.yaml).unwrap();
        let mut command = match self.wrapper.split_first() {
            Some((program, rest)) => {
                let mut command = Command::new(program);
                command.args(rest).arg(env!("CARGO_BIN_EXE_fairlane"));
                command
            }
            None => Command::new(env!("CARGO_BIN_EXE_fairlane")),
        };
        command.arg("run").arg("-c").arg(&config).args(["--listen", "127.0.0.1:0"]);
        if !self.arguments.iter().any(|argument| argument == "--admin") {
            command.args(["--admin", "127.0.0.1:0"]);
        }
        if !self.arguments.iter().any(|argument| argument == "--data") {
            command.arg("--data").arg(dir.path().join("data"));
        }
        let errors = std::fs::File::create(dir.path().join("stderr")).unwrap();
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let mut child = command.spawn().expect("the binary, or the program it is started through, is not there");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let status = child.wait().unwrap();
            return Err((status, std::fs::read_to_string(dir.path().join("stderr")).unwrap()));
        }
        let after = |mark: &str| -> SocketAddr {
            let rest = line.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in {line:?}")).1;
            let rest = rest.split_once("://").unwrap().1;
            rest.split([',', ' ', '\n']).next().unwrap().parse().unwrap()
        };
        Ok(Gateway {
            address: after("listening on "),
            admin: after("admin on "),
            child,
            dir: Some(dir),
            _stdout: stdout,
        })
    }
}

impl Gateway {
    pub(crate) fn dir(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir().join("gateway.yaml")
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.dir().join("stderr")).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        // The whole group: a wrapper must not keep the gateway alive.
        let status =
            Command::new("kill").args([&format!("-{name}"), "--", &format!("-{}", self.child.id())]).status().unwrap();
        assert!(status.success(), "kill -{name}");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for its end and gives its folder to a successor.
    pub(crate) fn ended(mut self) -> (ExitStatus, TempDir) {
        (self.wait(), self.dir.take().unwrap())
    }

    /// Ends it the hard way and gives its folder to a successor.
    pub(crate) fn kill(self) -> TempDir {
        self.signal("KILL");
        self.ended().1
    }

    /// Ends it in order and gives its folder to a successor.
    pub(crate) fn stop(self) -> (ExitStatus, TempDir) {
        self.signal("TERM");
        self.ended()
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.dir().join("data/admin-token")).unwrap().trim().to_owned()
    }

    /// A call of the admin API.
    pub(crate) fn get(&self, path: &str) -> Response {
        let token = format!("Bearer {}", self.token());
        Client::to(self.admin).send(&get(path).header("authorization", &token))
    }

    /// A change over the admin API.
    pub(crate) fn change(&self, method: &str, path: &str, body: &str) -> Response {
        let request = post(path, body.as_bytes())
            .method(method)
            .without("Host")
            .header("Host", "localhost")
            .header("Authorization", format!("Bearer {}", self.token()))
            .header("Content-Type", "application/json");
        Client::to(self.admin).send(&request)
    }

    pub(crate) fn json(&self, path: &str) -> serde_json::Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        serde_json::from_slice(&response.body).unwrap()
    }

    /// The event, as soon as this is its status.
    pub(crate) fn wait_for_status(&self, id: &str, wanted: &str) -> serde_json::Value {
        loop {
            let event = self.json(&format!("/api/v1/events/{id}"));
            if event["status"] == wanted {
                return event;
            }
            std::thread::yield_now();
        }
    }

    /// All events of a query, through all its pages.
    pub(crate) fn events(&self, query: &str) -> Vec<serde_json::Value> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.json(&format!("/api/v1/events?limit=1000&{query}{cursor}"));
            all.extend(page["events"].as_array().unwrap().iter().cloned());
            match page["next"].as_u64() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    }

    /// The most memory that the process ever had, KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let response = Client::to(self.admin).send(&get("/metrics"));
        assert_eq!(response.status, 200);
        let text = response.text();
        text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(Command::new("kill").args(["-KILL", "--", &format!("-{}", self.child.id())]).status());
            drop(self.child.wait());
        }
        if std::thread::panicking()
            && let Some(dir) = &self.dir
        {
            let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap_or_default();
            eprintln!("--- the gateway's log ---\n{log}");
        }
    }
}

/// A request, written as it is built.
#[derive(Clone)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    framing: Framing,
}

#[derive(Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunked(usize),
    None,
}

pub(crate) fn post(target: &str, body: &[u8]) -> Request {
    Request {
        method: "POST".into(),
        target: target.into(),
        headers: vec![("Host".into(), b"hooks.test".to_vec())],
        body: body.to_vec(),
        framing: Framing::Length,
    }
}

pub(crate) fn get(target: &str) -> Request {
    let mut request = post(target, b"").method("GET").without("Host").header("Host", "127.0.0.1");
    request.framing = Framing::None;
    request
}

impl Request {
    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn chunked(mut self, size: usize) -> Self {
        self.framing = Framing::Chunked(size);
        self
    }

    /// Signed as Shopify does, for `shop`.
    pub(crate) fn shopify(self, shop: &str) -> Self {
        let signature = STANDARD.encode(hmac_sha256(SHOPIFY_SECRET, &[&self.body]));
        self.header("X-Shopify-Shop-Domain", shop)
            .header("X-Shopify-Topic", "orders/create")
            .header("X-Shopify-Webhook-Id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043")
            .header("X-Shopify-Hmac-Sha256", &signature)
            .header("Content-Type", "application/json")
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        match self.framing {
            Framing::Length => out.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes()),
            Framing::Chunked(_) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framing::None => {}
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.head();
        match self.framing {
            Framing::Length => out.extend_from_slice(&self.body),
            Framing::Chunked(size) => {
                for chunk in self.body.chunks(size) {
                    out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    out.extend_from_slice(chunk);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
            }
            Framing::None => {}
        }
        out
    }
}

pub(crate) fn hmac_sha256(secret: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// `None` where nobody listens.
    pub(crate) fn try_to(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn send(&mut self, request: &Request) -> Response {
        self.try_send(request).expect("the connection ended without an answer")
    }

    /// `None` when the connection ends without an answer.
    pub(crate) fn try_send(&mut self, request: &Request) -> Option<Response> {
        // A peer that refuses early may close while we write; its answer is read all the same.
        drop(self.write(&request.bytes()));
        self.receive()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    pub(crate) fn receive(&mut self) -> Option<Response> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("no status in {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).ok()?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
                None => break,
            }
        }
        let mut response = Response { status, headers, body: Vec::new() };
        let length = response.header("content-length").map_or(0, |length| length.parse().unwrap());
        response.body = vec![0; length];
        self.stream.read_exact(&mut response.body).ok()?;
        Some(response)
    }

    /// Whether the other side closes, without having to wait for our patience to end.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(bytes) => bytes == 0,
            // Our patience ended, and the connection did not.
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}
