//! Real Redis servers for tests: one alone, one with replicas under Sentinels, a cluster of six. Each has a port and a folder of its own and
//! syncs every write; all of them end with the test, also with one that panics.
//!
//! A fault is one word: [`Server::kill`], [`Server::restart`], [`Server::pause`], [`Server::resume`]. What only Redis can say or do is
//! asked with [`Server::ask`].

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use redis::FromRedisValue;
use tempfile::TempDir;

/// No server takes this long for anything; it only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// What can only be polled is asked this often.
const PAUSE: Duration = Duration::from_millis(10);
/// The name under which Sentinels know the master.
pub(crate) const MASTER: &str = "main";
/// The password of [`Builder::password`].
pub(crate) const PASSWORD: &str = "a-test-password";

/// A server to be.
#[derive(Clone)]
pub(crate) struct Builder {
    lines: Vec<String>,
    user: Option<(String, String)>,
    tls: bool,
    sentinel: bool,
}

/// A server in a child process; killed when dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
    tls_port: u16,
    dir: TempDir,
    built: Builder,
    said: Arc<Mutex<Vec<String>>>,
}

/// A server alone: every write is synced.
pub(crate) fn redis() -> Builder {
    Builder { lines: Vec::new(), user: None, tls: false, sentinel: false }
        .line("appendonly yes")
        .line("appendfsync always")
        .line("save \"\"")
}

impl Builder {
    /// A line of its configuration; a later one about the same thing wins.
    pub(crate) fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// The one user, who may do everything, with [`PASSWORD`]; `default` stands for a server that knows no names.
    pub(crate) fn user(mut self, name: &str) -> Self {
        self.user = Some((name.to_owned(), PASSWORD.to_owned()));
        if name != "default" {
            self.lines.push("user default off".to_owned());
        }
        self.line(format!("user {name} on >{PASSWORD} ~* &* +@all"))
    }

    /// Also speaks TLS, on [`Server::tls_url`]; `ask`: and wants the certificate of a client that does.
    pub(crate) fn tls(mut self, keys: &Keys, ask: bool) -> Self {
        self.tls = true;
        let file = |name: &str| keys.file(name).display().to_string();
        self.line(format!("tls-cert-file {}", file("server.crt")))
            .line(format!("tls-key-file {}", file("server.key")))
            .line(format!("tls-ca-cert-file {}", file("ca.crt")))
            .line(format!("tls-auth-clients {}", if ask { "yes" } else { "no" }))
    }

    /// Starts it and waits until it takes commands.
    pub(crate) fn start(self) -> Server {
        // Somebody may take the port between the look and the start.
        for _ in 0..20 {
            let (port, tls_port) = (free_port(), free_port());
            let dir = tempfile::tempdir().unwrap();
            write_configuration(&self, dir.path(), port, tls_port);
            let (child, said, ready) = spawn(dir.path(), self.sentinel);
            let mut server = Server { child, port, tls_port, dir, built: self.clone(), said };
            if server.is_ready(&ready) {
                return server;
            }
            assert!(server.log().contains("Address already in use"), "redis-server did not start:\n{}", server.log());
        }
        panic!("no port was free for redis-server");
    }
}

impl Server {
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where it is, with its user and password.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}", self.credentials(), self.port)
    }

    /// The same over TLS.
    pub(crate) fn tls_url(&self) -> String {
        format!("rediss://{}127.0.0.1:{}", self.credentials(), self.tls_port)
    }

    fn credentials(&self) -> String {
        self.built.user.as_ref().map_or_else(String::new, |(name, password)| format!("{name}:{password}@"))
    }

    /// The answer to one command, e.g. `["CONFIG", "GET", "save"]`.
    pub(crate) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", self.log()))
    }

    pub(crate) fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut connection)
    }

    /// Cuts every client's connection.
    pub(crate) fn cut(&self) {
        let _cut: i64 = self.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        let _cut: i64 = self.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    /// `kill -9`; it is gone when this returns.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends in order.
    pub(crate) fn stop(&mut self) {
        self.signal("CONT");
        self.signal("TERM");
        self.child.wait().unwrap();
    }

    /// Starts one that was killed or stopped again, on the same port and with what it had stored.
    pub(crate) fn revive(&mut self) {
        let ready = self.revive_soon();
        assert!(self.is_ready(&ready), "redis-server did not start again:\n{}", self.log());
    }

    /// The same without waiting until it takes commands: it may be loading for a while.
    pub(crate) fn revive_soon(&mut self) -> Receiver<()> {
        let (child, said, ready) = spawn(self.dir.path(), self.built.sentinel);
        (self.child, self.said) = (child, said);
        ready
    }

    /// `kill -9`, and up again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.revive();
    }

    /// It stands still (SIGSTOP): connections stay, answers do not come.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
    }

    /// It goes on (SIGCONT).
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill -{name}");
    }

    /// Its version as it says it in `INFO`, e.g. `7.0.15`; a Valkey says the Redis that it stands for.
    pub(crate) fn version(&self) -> String {
        let info: String = self.ask(&["INFO", "server"]);
        info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap().trim().to_owned()
    }

    /// What it wrote to its log.
    pub(crate) fn log(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    /// Whether it said so; `false` when it ended instead.
    fn is_ready(&mut self, ready: &Receiver<()>) -> bool {
        // The channel ends with its output, and so with it.
        let ready = ready.recv_timeout(PATIENCE).is_ok();
        if !ready {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
        ready
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A stopped process dies of this, too.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Below the ports that systems give to outgoing connections, so that one is still free when its server comes back to it.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run side by side begin at different places.
    let start = u16::try_from(std::process::id() % 400).unwrap() * 50;
    loop {
        let port = 10_500 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

fn write_configuration(built: &Builder, dir: &Path, port: u16, tls_port: u16) {
    let mut text = format!("port {port}\nbind 127.0.0.1\ndir {}\n", dir.display());
    if built.tls {
        text.push_str(&format!("tls-port {tls_port}\n"));
    }
    for line in &built.lines {
        text.push_str(&format!("{}\n", line.replace("<free port>", &free_port().to_string())));
    }
    std::fs::write(dir.join("redis.conf"), text).unwrap();
}

/// The program: another version, or Valkey, where `REDIS_SERVER` names it.
fn program() -> std::ffi::OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// Starts `redis-server`; the receiver hears when it takes commands.
fn spawn(dir: &Path, sentinel: bool) -> (Child, Arc<Mutex<Vec<String>>>, Receiver<()>) {
    let mut command = Command::new(program());
    command.arg(dir.join("redis.conf"));
    if sentinel {
        command.arg("--sentinel");
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is not there: .ci/setup installs it");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let (tell, ready) = sync_channel(1);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let is_ready = line.contains("Ready to accept connections") || line.contains("+monitor master");
            heard.lock().unwrap().push(line);
            if is_ready {
                tell.try_send(()).ok();
            }
        }
    });
    (child, said, ready)
}

/// Waits until something is so that nobody tells.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let rounds = PATIENCE.as_millis() / PAUSE.as_millis();
    for _ in 0..rounds {
        if is_so() {
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
    panic!("{what}: not so for {PATIENCE:?}");
}

/// A master, replicas of it, and Sentinels that watch them.
pub(crate) struct Guarded {
    pub(crate) servers: Vec<Server>,
    pub(crate) sentinels: Vec<Server>,
}

/// One replica, and as many Sentinels; more than half of them agree that a master is gone after half a second.
pub(crate) fn guarded(sentinels: usize) -> Guarded {
    guarded_with(1, sentinels)
}

/// The same with so many replicas.
pub(crate) fn guarded_with(replicas: usize, sentinels: usize) -> Guarded {
    let ours = || redis().line("repl-diskless-sync-delay 0").line("repl-ping-replica-period 1");
    let master = ours().start();
    let replica = |_| ours().line(format!("replicaof 127.0.0.1 {}", master.port())).start();
    let followers: Vec<Server> = (0..replicas).map(replica).collect();
    let follows = |replica: &Server| replica.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up");
    until("the replicas follow", || followers.iter().all(follows));
    let quorum = sentinels / 2 + 1;
    let watch = |_| {
        let built = Builder { lines: Vec::new(), user: None, tls: false, sentinel: true };
        built
            .line(format!("sentinel monitor {MASTER} 127.0.0.1 {} {quorum}", master.port()))
            .line(format!("sentinel down-after-milliseconds {MASTER} 500"))
            .line(format!("sentinel failover-timeout {MASTER} 3000"))
            .start()
    };
    let sentinels: Vec<Server> = (0..sentinels).map(watch).collect();
    let servers = std::iter::once(master).chain(followers).collect();
    let guarded = Guarded { servers, sentinels };
    until("the Sentinels know one another and the replicas", || {
        guarded.sentinels.iter().all(|sentinel| {
            let all: Vec<Vec<String>> = sentinel.ask(&["SENTINEL", "REPLICAS", MASTER]);
            let others: Vec<Vec<String>> = sentinel.ask(&["SENTINEL", "SENTINELS", MASTER]);
            all.len() == replicas && others.len() + 1 == guarded.sentinels.len()
        })
    });
    guarded
}

impl Guarded {
    /// Where the Sentinels are, as `host:port`.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect()
    }

    /// The server that the Sentinels hold for the master: its place in `servers`.
    pub(crate) fn master(&self) -> usize {
        let asked = self.sentinels.iter().find_map(|sentinel| {
            let found: Vec<String> = sentinel.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).ok()?;
            found.last()?.parse::<u16>().ok()
        });
        let port = asked.expect("no Sentinel answers");
        self.servers.iter().position(|server| server.port() == port).expect("the Sentinels watch these servers")
    }

    /// Has the replica take over while both live, and waits until it has.
    pub(crate) fn fail_over(&self) {
        let before = self.master();
        // The Sentinel refuses while it has not heard enough of the replica.
        until("a Sentinel begins a failover", || {
            self.sentinels.iter().any(|s| s.try_ask::<()>(&["SENTINEL", "FAILOVER", MASTER]).is_ok())
        });
        until("another server is the master", || self.master() != before);
    }
}

/// Three masters and a replica of each.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
}

/// A slot that is on its way from one server of a cluster to another.
pub(crate) struct Move {
    slot: String,
    from: usize,
    to: usize,
}

/// A cluster in which a node that is silent for two seconds is gone.
pub(crate) fn cluster() -> Cluster {
    cluster_of(&redis())
}

/// The same of servers like `one`.
pub(crate) fn cluster_of(one: &Builder) -> Cluster {
    let node = |_| {
        one.clone()
            .line("cluster-enabled yes")
            .line("cluster-node-timeout 2000")
            .line("cluster-port <free port>")
            .line("repl-diskless-sync-delay 0")
            .start()
    };
    let servers: Vec<Server> = (0..6).map(node).collect();
    let mut create = Command::new("redis-cli");
    if let Some((name, password)) = &one.user {
        create.args(["--user", name, "--pass", password, "--no-auth-warning"]);
    }
    create.args(["--cluster", "create"]);
    create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port())));
    create.args(["--cluster-replicas", "1", "--cluster-yes"]);
    let output = create.output().expect("redis-cli is not there: .ci/setup installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let cluster = Cluster { servers };
    cluster.settle();
    cluster
}

impl Cluster {
    /// Waits until every node that lives finds the cluster in order, and every replica follows.
    pub(crate) fn settle(&self) {
        let settled = |server: &Server| {
            let Ok(info) = server.try_ask::<String>(&["CLUSTER", "INFO"]) else { return true };
            let replication = server.try_ask::<String>(&["INFO", "replication"]).unwrap_or_default();
            info.contains("cluster_state:ok")
                && info.contains("cluster_known_nodes:6")
                && (replication.contains("role:master") || replication.contains("master_link_status:up"))
        };
        until("the cluster is in order", || self.servers.iter().all(settled));
    }

    /// The places in `servers` of those that are masters now, in the order of their slots.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let is_master = |server: &Server| {
            server.try_ask::<String>(&["INFO", "replication"]).is_ok_and(|info| info.contains("role:master"))
        };
        (0..self.servers.len()).filter(|&i| is_master(&self.servers[i])).collect()
    }

    /// The place in `servers` of the master that has a key.
    pub(crate) fn master_of(&self, key: &str) -> usize {
        let has = |&i: &usize| match self.servers[i].try_ask::<redis::Value>(&["GET", key]) {
            Ok(_) => true,
            Err(error) => error.code() == Some("WRONGTYPE"),
        };
        self.masters().into_iter().find(has).expect("some master has every key")
    }

    /// Waits until the replicas have all that their masters have.
    pub(crate) fn replicated(&self) {
        let offset = |info: &str, name: &str| {
            let found =
                info.lines().find_map(|line| line.split_once(name)?.1.split(',').next()?.trim().parse::<u64>().ok());
            found.unwrap_or_else(|| panic!("no {name} in {info}"))
        };
        let masters = self.masters();
        until("the replicas have all", || {
            masters.iter().all(|&master| {
                let info: String = self.servers[master].ask(&["INFO", "replication"]);
                offset(&info, "master_repl_offset:") == offset(&info, ",offset=")
            })
        });
    }

    /// Begins to move the slot of a key to another master: what is there stays, what is new goes there.
    pub(crate) fn begin_move(&self, key: &str) -> Move {
        let from = self.master_of(key);
        let to = self.masters().into_iter().find(|&master| master != from).unwrap();
        let id = |place: usize| self.servers[place].ask::<String>(&["CLUSTER", "MYID"]);
        let slot = self.servers[from].ask::<u16>(&["CLUSTER", "KEYSLOT", key]).to_string();
        let () = self.servers[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        let () = self.servers[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        Move { slot, from, to }
    }

    /// Moves a key of a slot that is being moved.
    pub(crate) fn migrate(&self, moving: &Move, key: &str) {
        let to = self.servers[moving.to].port().to_string();
        let moved: String = self.servers[moving.from].ask(&["MIGRATE", "127.0.0.1", &to, key, "0", "5000"]);
        assert_eq!(moved, "OK");
    }

    /// The slot is there now.
    pub(crate) fn end_move(&self, moving: Move) {
        let id: String = self.servers[moving.to].ask(&["CLUSTER", "MYID"]);
        for place in [moving.to, moving.from] {
            let () = self.servers[place].ask(&["CLUSTER", "SETSLOT", &moving.slot, "NODE", &id]);
        }
    }

    /// Where one may begin to ask.
    pub(crate) fn url(&self) -> String {
        self.servers[0].url()
    }
}

/// The certificates of a server and of a client, and of the authority that signed both, as files.
pub(crate) struct Keys {
    dir: TempDir,
}

impl Keys {
    /// For a server at 127.0.0.1.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the name that the others get by themselves it would pass for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.path().join("ca.crt"), authority.pem()).unwrap();
        let both = [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)];
        for (name, usage) in both {
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(dir.path().join(format!("{name}.crt")), certificate.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { dir }
    }

    /// `ca.crt`, `server.crt`, `server.key`, `client.crt` or `client.key`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
