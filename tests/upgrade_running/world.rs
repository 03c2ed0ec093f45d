//! Processes over one data folder, the senders that keep on sending, and the two sides of a replacement played by hand.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::upstream::{Received, Upstream};
use crate::support::{Client, Response, get, post};

/// No answer takes this long; it only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a configuration and the data of one gateway.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    started: AtomicUsize,
}

/// A gateway's process; killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    stderr: PathBuf,
    data: PathBuf,
    _stdout: BufReader<ChildStdout>,
}

impl Place {
    pub(crate) fn new(yaml: &str) -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap(), started: AtomicUsize::new(0) };
        place.configure(yaml);
        place
    }

    pub(crate) fn configure(&self, yaml: &str) {
        std::fs::write(self.dir.path().join("gateway.yaml"), yaml).unwrap();
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> (Command, PathBuf) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
        let given = |flag: &str| arguments.contains(&flag);
        command.arg("run");
        if !given("-c") {
            command.arg("-c").arg(self.dir.path().join("gateway.yaml"));
        }
        for (flag, value) in [("--listen", "127.0.0.1:0"), ("--admin", "127.0.0.1:0")] {
            if !given(flag) {
                command.args([flag, value]);
            }
        }
        command.arg("--data").arg(self.data()).args(arguments);
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let stderr = self.dir.path().join(format!("stderr-{number}"));
        let file = std::fs::File::create(&stderr).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).process_group(0);
        (command, stderr)
    }

    pub(crate) fn start(&self) -> Process {
        self.run(&[])
    }

    /// The process that takes over.
    pub(crate) fn replace(&self) -> Process {
        self.run(&["--upgrade"])
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Process {
        self.try_run(arguments).unwrap_or_else(|(status, log)| panic!("it did not start ({status}):\n{log}"))
    }

    /// Starts one and waits until it says where it listens, or how it ended instead.
    pub(crate) fn try_run(&self, arguments: &[&str]) -> Result<Process, (ExitStatus, String)> {
        let (mut command, stderr) = self.command(arguments);
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let status = child.wait().unwrap();
            return Err((status, std::fs::read_to_string(stderr).unwrap()));
        }
        let after = |mark: &str| -> SocketAddr {
            let rest = line.split_once(mark).unwrap().1.split_once("://").unwrap().1;
            rest.split([',', ' ', '\n']).next().unwrap().parse().unwrap()
        };
        let (address, admin) = (after("listening on "), after("admin on "));
        Ok(Process { child, address, admin, stderr, data: self.data(), _stdout: stdout })
    }

    /// What the process that takes over says when it cannot, and its exit code.
    pub(crate) fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        match self.try_run(&[&["--upgrade"], arguments].concat()) {
            Ok(_) => panic!("it was not refused"),
            Err((status, log)) => (status.code(), log),
        }
    }
}

impl Process {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap()
    }

    pub(crate) fn wait_for_log(&self, text: &str) {
        while !self.log().contains(text) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn ended(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        let token = std::fs::read_to_string(self.data.join("admin-token")).unwrap();
        Client::to(self.admin).send(&get(path).header("authorization", format!("Bearer {}", token.trim())))
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        serde_json::from_slice(&response.body).unwrap()
    }

    pub(crate) fn wait_for_status(&self, id: &str, wanted: &str) -> Value {
        loop {
            let event = self.json(&format!("/api/v1/events/{id}"));
            if event["status"] == wanted {
                return event;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            println!("--- the log of process {} ---\n{}", self.child.id(), self.log());
        }
    }
}

/// Posts one event and gives its id.
pub(crate) fn send(address: SocketAddr, key: &str, number: u64) -> String {
    let response = Client::to(address).send(&event(key, number));
    assert_eq!(response.status, 200, "{}", response.text());
    response.header("fairlane-event-id").unwrap().to_owned()
}

fn event(key: &str, number: u64) -> crate::support::Request {
    let shop = format!("{key}.myshopify.com");
    post("/webhooks/shopify", format!("{{\"key\":\"{key}\",\"number\":{number}}}").as_bytes()).shopify(&shop)
}

/// Senders that post one event after the other until they are told to end; each has an order key of its own.
pub(crate) struct Load {
    ending: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    senders: Vec<std::thread::JoinHandle<Sent>>,
}

#[derive(Default)]
pub(crate) struct Sent {
    /// Event ids in the order of their answers, by key.
    pub(crate) accepted: BTreeMap<String, Vec<String>>,
    /// Statuses other than 200.
    pub(crate) refused: Vec<u16>,
    /// Requests over a fresh connection that got no answer.
    pub(crate) unanswered: usize,
    /// Requests over a kept connection that was closed meanwhile; they were sent again (RFC 9112 §9.3.1).
    pub(crate) crossed: usize,
    pub(crate) longest: Duration,
}

impl Load {
    pub(crate) fn start(address: SocketAddr, senders: usize) -> Self {
        let (ending, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let senders = (0..senders).map(|number| {
            let (ending, answered) = (Arc::clone(&ending), Arc::clone(&answered));
            std::thread::spawn(move || keep_sending(address, number, number % 2 == 0, &ending, &answered))
        });
        Self { senders: senders.collect(), ending, answered }
    }

    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Waits until so many more are answered.
    pub(crate) fn go_on(&self, more: usize) {
        let until = self.answered() + more;
        while self.answered() < until {
            assert!(self.senders.iter().any(|sender| !sender.is_finished()), "all senders have ended");
            std::thread::yield_now();
        }
    }

    pub(crate) fn end(self) -> Sent {
        self.ending.store(true, Ordering::SeqCst);
        let mut all = Sent::default();
        for sender in self.senders {
            let sent = sender.join().unwrap();
            all.accepted.extend(sent.accepted);
            all.refused.extend(sent.refused);
            all.unanswered += sent.unanswered;
            all.crossed += sent.crossed;
            all.longest = all.longest.max(sent.longest);
        }
        all
    }
}

fn keep_sending(
    address: SocketAddr,
    number: usize,
    keep_alive: bool,
    ending: &AtomicBool,
    answered: &AtomicUsize,
) -> Sent {
    let mut sent = Sent::default();
    let key = format!("sender-{number}");
    let mut kept: Option<Client> = None;
    let mut ids = Vec::new();
    while !ending.load(Ordering::SeqCst) {
        #[expect(clippy::disallowed_methods, reason = "the longest pause is printed, and nothing depends on it")]
        let began = std::time::Instant::now();
        let fresh = kept.is_none();
        let mut client = kept.take().unwrap_or_else(|| Client::to(address));
        match client.try_send(&event(&key, ids.len() as u64)) {
            Some(response) => {
                if response.status == 200 {
                    ids.push(response.header("fairlane-event-id").unwrap().to_owned());
                } else {
                    sent.refused.push(response.status);
                }
                answered.fetch_add(1, Ordering::SeqCst);
                sent.longest = sent.longest.max(began.elapsed());
                if keep_alive && response.header("connection") != Some("close") {
                    kept = Some(client);
                }
            }
            None if fresh => sent.unanswered += 1,
            None => sent.crossed += 1,
        }
    }
    sent.accepted.insert(key, ids);
    sent
}

impl Sent {
    /// All were answered, all that were accepted came to the upstream, those of one key in their order; gives how many came again.
    pub(crate) fn came_to(&self, upstream: &Upstream) -> usize {
        assert!(self.refused.is_empty(), "refused: {:?}", self.refused);
        assert_eq!(self.unanswered, 0, "fresh connections without an answer");
        let total: usize = self.accepted.values().map(Vec::len).sum();
        let id = |received: &Received| received.header("fairlane-event-id").unwrap().to_owned();
        let all = upstream.wait_until(|received| {
            received.len() >= total && received.iter().map(id).collect::<std::collections::HashSet<_>>().len() >= total
        });
        let mut first: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut times: HashMap<String, usize> = HashMap::new();
        for received in &all {
            let body: Value = serde_json::from_slice(&received.body).unwrap();
            let times = times.entry(id(received)).or_default();
            *times += 1;
            if *times == 1 {
                first.entry(body["key"].as_str().unwrap().to_owned()).or_default().push(id(received));
            }
        }
        // A request that crossed with the end of its connection may have been stored without an answer: it is sent again under its number.
        for (key, accepted) in &self.accepted {
            let came: Vec<&String> = first[key].iter().filter(|id| accepted.contains(id)).collect();
            assert_eq!(came, accepted.iter().collect::<Vec<_>>(), "{key}");
        }
        all.len() - times.len()
    }
}

/// A process that would take over, played by hand.
pub(crate) struct Successor {
    stream: BufReader<UnixStream>,
}

impl Successor {
    pub(crate) fn to(place: &Place) -> Self {
        let stream = UnixStream::connect(place.data().join("upgrade.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn say(&mut self, word: &Value) {
        self.stream.get_mut().write_all(format!("{word}\n").as_bytes()).unwrap();
    }

    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// As far as the moment in which the store is nobody's.
    pub(crate) fn take(place: &Place) -> Self {
        let mut successor = Self::to(place);
        successor.say(&json!({ "word": "hello", "protocol": 1, "version": "99.0.0", "later": [1] }));
        assert_eq!(successor.hear()["word"], "offer");
        successor.say(&json!({ "word": "go" }));
        assert_eq!(successor.hear(), json!({ "word": "closed" }));
        successor
    }
}

/// A process that runs, played by hand: it offers this socket for senders.
pub(crate) struct Predecessor {
    listener: UnixListener,
}

impl Predecessor {
    pub(crate) fn in_folder(data: &Path) -> Self {
        std::fs::create_dir_all(data).unwrap();
        Self { listener: UnixListener::bind(data.join("upgrade.sock")).unwrap() }
    }

    /// Gives way to whoever comes; the answer is what it said at its hello.
    pub(crate) fn give_way(&self, socket: &TcpListener) -> (Value, BufReader<UnixStream>) {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = BufReader::new(stream);
        let hear = |stream: &mut BufReader<UnixStream>| -> Value {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
        };
        let hello = hear(&mut stream);
        let offer =
            json!({ "word": "offer", "version": "0.0.1", "sockets": [{ "role": "listen", "kept": false }], "mood": 1 });
        let line = format!("{offer}\n");
        let sockets: [BorrowedFd<'_>; 1] = [std::os::fd::AsFd::as_fd(socket)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        assert!(along.push(SendAncillaryMessage::ScmRights(&sockets)));
        sendmsg(stream.get_ref(), &[IoSlice::new(line.as_bytes())], &mut along, SendFlags::empty()).unwrap();
        assert_eq!(hear(&mut stream), json!({ "word": "go" }));
        stream.get_mut().write_all(b"{\"word\":\"closed\"}\n").unwrap();
        (hello, stream)
    }
}

/// A connection whose request waits in the kernel: it was made and written while nobody accepts.
pub(crate) fn waiting(address: SocketAddr, key: &str, number: u64) -> Client {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client { stream: BufReader::new(stream) };
    client.write(&event(key, number).bytes()).unwrap();
    client
}
