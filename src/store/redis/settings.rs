//! How a store in Redis is reached and kept: `store.redis` of the configuration, as plain values.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};

use crate::event::Secret;
use crate::store::Retention;

/// How a store in Redis is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How Redis is reached.
    pub server: Server,
    /// What all its keys begin with.
    pub namespace: Box<str>,
    /// Shards, 1 to [`SHARDS_MAX`](super::SHARDS_MAX). Fixed once there are events.
    pub shards: u16,
    /// When a write counts as done.
    pub ack: Ack,
    /// How long a node that is silent keeps its shards.
    pub lease: Duration,
    /// How long ended events stay readable.
    pub retention: Retention,
    /// Bytes of Redis's memory that are used at most, `None`: as many as its own `maxmemory` allows.
    pub max_bytes: Option<u64>,
    /// How long a call may take, repetitions over new connections included.
    pub timeout: Duration,
    /// The node's own folder: its name, the admin token, the spool.
    pub folder: PathBuf,
    /// Whether events are kept in the folder while Redis is away.
    pub spool: bool,
    /// Bytes of the disk that they may take, `None`: all but what has to stay free.
    pub spool_max_bytes: Option<u64>,
    /// Where other nodes reach this one's admin side; `None`: at its own address.
    pub advertise: Option<Box<str>>,
}

/// How Redis is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where one begins to ask: the server itself, a node of the cluster, or a Sentinel.
    pub address: Address,
    /// Further nodes of the cluster, or further Sentinels.
    pub others: Vec<Address>,
    /// What stands there.
    pub topology: Topology,
    /// Who we are to the servers.
    pub user: User,
    /// The database's number; always 0 in a cluster.
    pub db: u16,
    /// TLS, to Sentinels as well; `None`: none.
    pub tls: Option<Tls>,
}

/// What stands at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Alone,
    /// Sentinels, which say which server is the master.
    Sentinels {
        /// What they call it.
        master: Box<str>,
        /// Who we are to them.
        user: User,
    },
    /// A cluster.
    Cluster,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// Host and port.
    Tcp(Arc<str>, u16),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// A user and a password; neither: whoever `default` is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Option<Box<str>>,
    /// The password.
    pub password: Option<Secret>,
}

/// Encrypted connections. The files are read anew at every connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that may have signed the server's certificate, PEM; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// When the server has answered: a crash of the server loses what it had not written.
    Memory,
    /// When so many replicas have it, too.
    Replicas(u8),
    /// When it is on the server's disk.
    Aof,
}

/// What a URL says of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Where it is.
    pub address: Address,
    /// Who we are.
    pub user: User,
    /// The database's number.
    pub db: u16,
    /// Whether over TLS.
    pub tls: bool,
}

/// The port of a server that names none.
const PORT: u16 = 6379;

impl FromStr for Url {
    type Err = String;

    /// `redis://[[user]:password@]host[:port][/db]`, `rediss://…` over TLS, or `unix:///path[?db=N]`. The error is what to do and quotes
    /// nothing, for there may be a password in it.
    fn from_str(text: &str) -> Result<Self, String> {
        // The crate would take `#insecure` for a wish not to look at certificates.
        if text.contains('#') {
            return Err("without #; a # in a password is written %23".to_owned());
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("redis" | "rediss" | "unix")) {
            return Err("it begins with redis://, rediss:// (TLS) or unix://".to_owned());
        }
        let info: ConnectionInfo =
            text.parse().map_err(|_| "special characters in a user or password are written %XX".to_owned())?;
        let (address, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (Address::tcp(host, *port), false),
            ConnectionAddr::TcpTls { host, port, .. } => (Address::tcp(host, *port), true),
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), false),
            _ => return Err("it begins with redis://, rediss:// (TLS) or unix://".to_owned()),
        };
        let known = info.redis_settings();
        let user = User {
            name: known.username().map(Into::into),
            password: known.password().map(|password| Secret::new(password.as_bytes())),
        };
        let db = u16::try_from(known.db()).map_err(|_| "the database is a number from 0".to_owned())?;
        Ok(Self { address, user, db, tls })
    }
}

impl Address {
    /// Host and port; an IPv6 address without its brackets.
    #[must_use]
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp(host.trim_start_matches('[').trim_end_matches(']').into(), port)
    }
}

impl FromStr for Address {
    type Err = String;

    /// `host`, `host:port`, `[v6]:port`. The error is what to do.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") || text.contains('@') || text.contains('/') {
            return Err("only host and port: scheme, user and password are those of url".to_owned());
        }
        let fits = |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic());
        if let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'))
        {
            let port = port.parse().map_err(|_| "the port is a number from 1 to 65535".to_owned())?;
            return if fits(host) && port > 0 {
                Ok(Self::tcp(host, port))
            } else {
                Err("the host is missing".to_owned())
            };
        }
        if fits(text) { Ok(Self::tcp(text, PORT)) } else { Err(String::new()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Ack {
    /// Its name, without the number.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Replicas(_) => "replicas",
            Self::Aof => "aof",
        }
    }
}

impl fmt::Display for Ack {
    /// As it is written in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas(n) => write!(f, "replicas({n})"),
            Self::Memory | Self::Aof => f.write_str(self.as_str()),
        }
    }
}

impl FromStr for Ack {
    type Err = String;

    /// `memory`, `replicas(n)` or `aof`; the error is empty.
    fn from_str(text: &str) -> Result<Self, String> {
        let replicas = text.strip_prefix("replicas(").and_then(|rest| rest.strip_suffix(')'));
        match (text, replicas.map(str::parse::<u8>)) {
            ("memory", _) => Ok(Self::Memory),
            ("aof", _) => Ok(Self::Aof),
            (_, Some(Ok(n))) if n > 0 => Ok(Self::Replicas(n)),
            _ => Err(String::new()),
        }
    }
}

impl Server {
    /// A server alone at `url`, e.g. `redis://127.0.0.1:6379`.
    ///
    /// # Errors
    ///
    /// What to do about a URL that is none.
    pub fn alone(url: &str) -> Result<Self, String> {
        let Url { address, user, db, tls } = url.parse()?;
        let tls = tls.then(Tls::default);
        Ok(Self { address, others: Vec::new(), topology: Topology::Alone, user, db, tls })
    }
}

impl fmt::Display for Server {
    /// For people: what stands where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = if self.tls.is_some() { " over TLS" } else { "" };
        match &self.topology {
            Topology::Alone => write!(f, "Redis at {}{with}", self.address)?,
            Topology::Sentinels { master, .. } => write!(f, "Redis ({master} of the Sentinels at {}", self.address)?,
            Topology::Cluster => write!(f, "the Redis cluster (at {}", self.address)?,
        }
        if self.topology == Topology::Alone {
            return Ok(());
        }
        for other in &self.others {
            write!(f, ", {other}")?;
        }
        write!(f, "{with})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let url: Url = "rediss://fair:p%40ss@cache.internal:6380/3".parse().unwrap();
        assert_eq!(url.address, Address::tcp("cache.internal", 6380));
        assert_eq!((url.user.name.as_deref(), url.db, url.tls), (Some("fair"), 3, true));
        assert_eq!(url.user.password, Some(Secret::new(*b"p@ss")));
        let url: Url = "redis://localhost".parse().unwrap();
        assert_eq!((url.address.to_string().as_str(), url.tls, url.db), ("localhost:6379", false, 0));
        assert_eq!(url.user, User::default());
        let url: Url = "unix:///run/redis/redis.sock".parse().unwrap();
        assert_eq!(url.address, Address::Unix("/run/redis/redis.sock".into()));
        let url: Url = "redis://[::1]:7000".parse().unwrap();
        assert_eq!(url.address.to_string(), "[::1]:7000");
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_quoting_it() {
        for (text, what) in [
            ("http://hunter2@a", "redis://"),
            ("redis", "redis://"),
            ("rediss://a/#insecure", "%23"),
            ("redis://a/hunter2", ""),
            ("redis://a/70000", "number"),
            ("redis://a:hunter2", ""),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(what) && !error.contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_are_host_and_port() {
        for (text, shown) in
            [("a", "a:6379"), ("a:1", "a:1"), ("[::1]:1", "[::1]:1"), ("10.0.0.1:26379", "10.0.0.1:26379")]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
        for text in ["redis://a", "user@a", "a:0", "a:b", ":1", "", "a b"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_ack_is_read_as_it_is_written() {
        for ack in [Ack::Memory, Ack::Aof, Ack::Replicas(2)] {
            assert_eq!(ack.to_string().parse(), Ok(ack));
        }
        for text in ["replicas(0)", "replicas", "replicas(256)", "fsync", ""] {
            assert!(text.parse::<Ack>().is_err(), "{text}");
        }
    }
}
