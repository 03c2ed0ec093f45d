//! A connection to one server: dialled, introduced, and asked who it is before anybody writes over it.

use std::path::Path;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, Pipeline,
    RedisConnectionInfo, TlsCertificates, Value,
};

use super::judge::words;
use crate::store::redis::settings::{Ack, Address, Server, Tls, Topology, User};

/// How long a connection may take to come about, its greeting included: a server of the same site is there in milliseconds.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// The first version with WAITAOF.
const WAITAOF: Version = Version(7, 2);

/// What makes what was written over a connection as durable as it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Confirm {
    /// The answer does.
    Answer,
    /// `WAIT`, for so many replicas.
    Replicas(u8),
    /// `WAITAOF`, for this server's disk.
    Disk,
}

/// A server's version, by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::redis) struct Version(pub(in crate::store::redis) u32, pub(in crate::store::redis) u32);

/// A connection that is ready.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) confirm: Confirm,
    /// Which of its line's, so that one that failed is told from its successor.
    pub(super) number: u64,
}

/// The way to `address`, as whoever `user` is.
fn client(server: &Server, address: &Address, user: &User, db: u16) -> Result<Client, String> {
    let mut known =
        RedisConnectionInfo::default().set_db(i64::from(db)).set_lib_name("fairlane", env!("CARGO_PKG_VERSION"));
    if let Some(name) = &user.name {
        known = known.set_username(name);
    }
    if let Some(password) = &user.password {
        let password = std::str::from_utf8(password.expose()).map_err(|_| "the password is not text".to_owned())?;
        known = known.set_password(password);
    }
    let info = |addr: ConnectionAddr| -> Result<ConnectionInfo, String> {
        let info = addr.into_connection_info().map_err(|error| words(&error))?;
        // A pipeline is one write, and its answer must not wait for the acknowledgement of the one before.
        Ok(info.set_redis_settings(known).set_tcp_settings(TcpSettings::default().set_nodelay(true)))
    };
    let client = match (address, &server.tls) {
        (Address::Unix(path), _) => Client::open(info(ConnectionAddr::Unix(path.clone()))?),
        (Address::Tcp(host, port), None) => Client::open(info(ConnectionAddr::Tcp(host.to_string(), *port))?),
        (Address::Tcp(host, port), Some(tls)) => {
            let addr =
                ConnectionAddr::TcpTls { host: host.to_string(), port: *port, insecure: false, tls_params: None };
            Client::build_with_tls(info(addr)?, certificates(tls)?)
        }
    };
    client.map_err(|error| words(&error))
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()));
    let client_tls = match &tls.identity {
        Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        None => None,
    };
    Ok(TlsCertificates { client_tls, root_cert: tls.ca.as_deref().map(read).transpose()? })
}

/// A connection to a server, without a word about what it is.
pub(super) async fn connect(
    server: &Server,
    address: &Address,
    user: &User,
    db: u16,
) -> Result<MultiplexedConnection, String> {
    let client = client(server, address, user, db)?;
    // The bounds are ours: the crate's own, half a second for every answer, would end what is only slow.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connected = tokio::time::timeout(CONNECT, client.get_multiplexed_async_connection_with_config(&config)).await;
    match connected {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(words(&error)),
        Err(_elapsed) => Err(format!("no connection within {} s", CONNECT.as_secs())),
    }
}

/// A connection for hearing.
pub(super) async fn ears(server: &Server, address: &Address) -> Result<PubSub, String> {
    let client = client(server, address, &server.user, server.db)?;
    match tokio::time::timeout(CONNECT, client.get_async_pubsub()).await {
        Ok(Ok(heard)) => Ok(heard),
        Ok(Err(error)) => Err(words(&error)),
        Err(_elapsed) => Err(format!("no connection within {} s", CONNECT.as_secs())),
    }
}

/// A connection to a server that may be written to; an error says in words why it may not.
pub(super) async fn live(server: &Server, address: &Address, ack: Ack, number: u64) -> Result<Live, String> {
    let mut connection = connect(server, address, &server.user, server.db).await?;
    let greeting = tokio::time::timeout(CONNECT, greet(&mut connection, &server.topology, ack));
    let confirm = greeting.await.unwrap_or_else(|_elapsed| Err(format!("no answer within {} s", CONNECT.as_secs())))?;
    Ok(Live { connection, confirm, number })
}

async fn greet(connection: &mut MultiplexedConnection, topology: &Topology, ack: Ack) -> Result<Confirm, String> {
    let mut questions = Pipeline::new();
    questions.cmd("ROLE").cmd("INFO").arg("server").cmd("CONFIG").arg("GET").arg("append*");
    let answers = connection.send_packed_commands(&questions, 0, 3).await.map_err(|error| words(&error))?;
    let [role, info, config] =
        <[Value; 3]>::try_from(answers).map_err(|_| "its answers are none of Redis".to_owned())?;
    if matches!(&role, Value::ServerError(error) if error.code() == "NOAUTH") {
        return Err("it asks for a user and a password; they stand in store.redis.url".to_owned());
    }
    // In a cluster a replica answers for itself, call by call.
    if *topology != Topology::Cluster && is_replica(&role) {
        return Err("it is a replica; writes go to its master".to_owned());
    }
    match ack {
        Ack::Memory => Ok(Confirm::Answer),
        Ack::Replicas(n) => Ok(Confirm::Replicas(n)),
        Ack::Aof => on_disk(Version::of(&info), &Append::of(&config)),
    }
}

/// Whether it follows another one. One that keeps this from us is taken for a master: a write tells.
fn is_replica(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(name)) if name == b"slave")
}

/// What makes a write durable on a server's disk: from 7.2 on it can be waited for, before that only a server that syncs each write
/// before it answers will do.
pub(in crate::store::redis) fn on_disk(version: Option<Version>, append: &Append) -> Result<Confirm, String> {
    const INSTEAD: &str = "or write store.redis.ack: replicas(n) or memory";
    let can_wait = version.is_some_and(|version| version >= WAITAOF);
    match append {
        Append::Off => Err(format!("it writes no append-only file: set appendonly yes on it, {INSTEAD}")),
        Append::Always => Ok(Confirm::Answer),
        Append::Lazy | Append::Unknown if can_wait => Ok(Confirm::Disk),
        Append::Lazy => {
            Err(format!("below version 7.2 only appendfsync always holds what ack: aof promises: set it, {INSTEAD}"))
        }
        Append::Unknown => Err(format!(
            "it does not show whether it syncs its append-only file (CONFIG GET is not allowed), and below version 7.2 \
             nothing else tells: allow it (ACL +config|get), {INSTEAD}"
        )),
    }
}

/// How a server keeps its append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Append {
    /// Not at all.
    Off,
    /// Synced before every answer.
    Always,
    /// Synced every second, or when the system likes to.
    Lazy,
    /// It does not say.
    Unknown,
}

impl Append {
    /// From the answer to `CONFIG GET append*`.
    pub(in crate::store::redis) fn of(config: &Value) -> Self {
        let Ok(settings) = redis::from_redis_value_ref::<std::collections::HashMap<String, String>>(config) else {
            return Self::Unknown;
        };
        match (settings.get("appendonly").map(String::as_str), settings.get("appendfsync").map(String::as_str)) {
            (Some("no"), _) => Self::Off,
            (Some("yes"), Some("always")) => Self::Always,
            (Some("yes"), Some(_)) => Self::Lazy,
            _ => Self::Unknown,
        }
    }
}

impl Version {
    /// From the answer to `INFO server`.
    pub(in crate::store::redis) fn of(info: &Value) -> Option<Self> {
        let info = redis::from_redis_value_ref::<String>(info).ok()?;
        let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
        let mut numbers = line.trim().split('.').map_while(|part| part.parse().ok());
        Some(Self(numbers.next()?, numbers.next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(appendonly: &str, appendfsync: &str) -> Value {
        let words = ["appendonly", appendonly, "appendfsync", appendfsync];
        Value::Array(words.map(|word| Value::BulkString(word.into())).to_vec())
    }

    #[test]
    fn a_disk_is_believed_only_where_it_can_be_checked() {
        let (old, new) = (Some(Version(7, 0)), Some(Version(7, 2)));
        let of = |version, config: &Value| on_disk(version, &Append::of(config));
        assert_eq!(of(old, &config("yes", "always")), Ok(Confirm::Answer));
        assert_eq!(of(new, &config("yes", "everysec")), Ok(Confirm::Disk));
        assert_eq!(of(new, &Value::Nil), Ok(Confirm::Disk), "it can be waited for, whatever it keeps from us");
        for (version, config, what) in [
            (old, config("yes", "everysec"), "appendfsync always"),
            (new, config("no", "always"), "appendonly yes"),
            (old, Value::Nil, "+config|get"),
            (None, Value::Nil, "+config|get"),
        ] {
            let error = of(version, &config).unwrap_err();
            assert!(error.contains(what) && error.contains("replicas(n) or memory"), "{error}");
        }
    }

    #[test]
    fn a_version_is_read_where_it_stands() {
        let info = |text: &str| Value::BulkString(text.into());
        assert_eq!(Version::of(&info("# Server\r\nredis_version:7.0.15\r\nredis_git:0\r\n")), Some(Version(7, 0)));
        assert_eq!(Version::of(&info("redis_version:255.255.255\r\n")), Some(Version(255, 255)));
        assert_eq!(Version::of(&info("nothing")), None);
        assert!(Version(7, 10) > Version(7, 2));
    }
}
