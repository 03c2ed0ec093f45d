//! `store.redis` to the settings of the store, and what has to fit together around it: where Redis is, what stands there, and what
//! many nodes cannot keep.

use std::path::PathBuf;
use std::time::Duration;

use super::build::{Builder, parsed};
use super::scalar;
use super::settings::{Groups, Store};
use super::value::{Slot, quoted};
use crate::admin;
use crate::store::Retention;
use crate::store::redis::settings::{Ack, Address, Server, Settings, Tls, Topology, Url, User};

/// How long a call of the store may take: longer than a failover by Sentinels, and within what providers wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(4);
/// A shorter lease is lost to pauses that nobody else would notice.
const LEASE_CALM: Duration = Duration::from_secs(5);
/// The node's folder where nothing is kept in it but the node's name and token.
const FOLDER: &str = "./fairlane-spool";

impl Builder<'_, '_> {
    /// A store in Redis.
    pub(super) fn redis(&mut self, redis: &Slot, retention: Retention) -> Settings {
        let server = self.server(redis);
        let ack = redis.at("ack").get::<String>().parse().expect("invariant: the field's form was checked");
        self.about_ack(ack);
        let lease = redis.at("lease").get();
        if lease < LEASE_CALM {
            let text = format!(
                "{}: a pause of that length, of Redis or of a node, moves shards; a failover of Redis takes longer",
                scalar::show_duration(lease)
            );
            self.note("store.redis.lease", text);
        }
        let spool = redis.at("spool").maybe::<String>();
        if spool.is_none() {
            let text = format!("nothing is kept here: 503 while Redis is away (the node's name is in {FOLDER})");
            self.meaning("store.redis.spool", text);
        }
        self.meaning("store.redis.spool_max_bytes", "all of its disk but 1GiB");
        self.meaning("store.redis.advertise", "admin.address");
        self.meaning("store.redis.max_bytes", "what Redis's maxmemory allows");
        Settings {
            server,
            namespace: redis.at("namespace").get::<String>().into(),
            shards: redis.at("shards").get(),
            ack,
            lease,
            retention,
            max_bytes: redis.at("max_bytes").maybe(),
            timeout: TIMEOUT,
            folder: folder(redis),
            spool: spool.is_some(),
            spool_max_bytes: redis.at("spool_max_bytes").maybe(),
            advertise: redis.at("advertise").maybe::<String>().map(Into::into),
        }
    }

    /// What stands where.
    fn server(&mut self, redis: &Slot) -> Server {
        let Url { address, user, db, tls } = url(redis);
        let (cluster, sentinel, others) = (redis.at("cluster"), redis.at("sentinel"), redis.at("others"));
        let topology = match (cluster.get(), sentinel.is_null()) {
            (true, _) => Topology::Cluster,
            (false, true) => Topology::Alone,
            (false, false) => Topology::Sentinels {
                master: sentinel.at("master").maybe::<String>().unwrap_or_default().into(),
                user: User {
                    name: sentinel.at("user").maybe::<String>().map(Into::into),
                    password: sentinel.at("password").maybe(),
                },
            },
        };
        if topology == Topology::Cluster && !sentinel.is_null() {
            let found = "given beside cluster: true, and a cluster has no Sentinels";
            self.checker.problem_at("store.redis.sentinel", sentinel.place, found).expected =
                Some("one of them".to_owned());
        }
        if topology == Topology::Alone && !others.items().is_empty() {
            let problem = self.checker.problem_at("store.redis.others", others.place, "one server alone has no others");
            problem.hint = Some("set cluster: true, or sentinel to what the Sentinels call the master".to_owned());
        }
        if matches!(address, Address::Unix(_)) && topology != Topology::Alone {
            let found = "a socket of this machine leads to one server alone";
            self.checker.problem_at("store.redis.url", redis.at("url").place, found).expected =
                Some("redis:// or rediss:// with a host".to_owned());
        }
        if topology == Topology::Cluster && db != 0 {
            let found = format!("database {db}: a cluster has only 0");
            self.checker.problem_at("store.redis.url", redis.at("url").place, &found);
        }
        let tls = self.redis_tls(redis.at("tls"), tls);
        Server { address, others: others.items().iter().map(parsed).collect(), topology, user, db, tls }
    }

    /// The files have to be readable now; at every connection they are read again.
    fn redis_tls(&mut self, tls: &Slot, encrypted: bool) -> Option<Tls> {
        if !encrypted {
            if !tls.is_null() {
                let found = "given, and url does not ask for TLS";
                self.checker.problem_at("store.redis.tls", tls.place, found).hint =
                    Some("begin the url with rediss://".to_owned());
            }
            return None;
        }
        if tls.is_null() {
            return Some(Tls::default());
        }
        let mut file = |name: &str| {
            let slot = tls.at(name);
            let path = PathBuf::from(slot.maybe::<String>()?);
            if let Err(error) = self.checker.read_file(&path) {
                let found = format!("{} cannot be read: {error}", quoted(&path.to_string_lossy()));
                let problem = self.checker.problem_at(&format!("store.redis.tls.{name}"), slot.place, &found);
                problem.hint = Some("the user that runs fairlane must be able to read it".to_owned());
            }
            Some(path)
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        if cert.is_some() != key.is_some() {
            let (given, missing) = if cert.is_some() { ("cert", "key") } else { ("key", "cert") };
            let problem = self.checker.problem_at("store.redis.tls", tls.place, &format!("{given} without {missing}"));
            problem.expected = Some("both, or neither".to_owned());
        }
        Some(Tls { ca, identity: cert.zip(key) })
    }

    fn about_ack(&mut self, ack: Ack) {
        let text = match ack {
            Ack::Aof => return,
            Ack::Memory => "memory: a crash of Redis loses events that were answered with 2xx".to_owned(),
            Ack::Replicas(n) => {
                format!(
                    "replicas({n}): a crash of the master and {n} replicas at once loses events that were answered with 2xx"
                )
            }
        };
        self.note("store.redis.ack", text);
    }

    /// What counts or promises over all groups of one process, and so cannot be kept by many.
    pub(super) fn about_nodes(&mut self, store: &Store, admin: &admin::Settings, groups: (&Slot, &Groups)) {
        let Store::Redis(settings) = store else { return };
        let (slot, groups) = groups;
        let mut refuse = |name: &str, slot: &Slot, found: &str, hint: &str| {
            self.checker.problem_at(name, slot.place, found).hint = Some(hint.to_owned());
        };
        if groups.new_groups.is_some() {
            let found = "cannot hold with store.redis: a node knows only the groups that came through it";
            refuse("groups.new_groups", slot.at("new_groups"), found, "leave it out; the alert about new groups stays");
        }
        if slot.at("max_active").given && groups.max_active != MAX_ACTIVE {
            let found = "cannot hold with store.redis: overflow lanes would differ from node to node";
            refuse("groups.max_active", slot.at("max_active"), found, "leave it out: shards bound what one node holds");
        }
        if groups.dedicated.max > 0 {
            let found = "cannot hold with store.redis: demand is measured on one node, and slots move between them";
            let hint = "leave it out; an override with a larger concurrency holds over all nodes";
            refuse("groups.dedicated.max", slot.at("dedicated").at("max"), found, hint);
        }
        let reachable = !admin.address.ip().is_loopback() && !admin.address.ip().is_unspecified();
        if settings.advertise.is_none() && !reachable {
            let text = format!(
                "other nodes do not reach this one's admin side at {}: what they show of the cluster has no part of it",
                admin.address
            );
            self.note("store.redis.advertise", text);
        }
    }
}

/// The default of `groups.max_active`.
const MAX_ACTIVE: usize = 1_000_000;

/// Where the node keeps what is its own.
pub(super) fn folder(redis: &Slot) -> PathBuf {
    redis.at("spool").maybe::<String>().unwrap_or_else(|| FOLDER.to_owned()).into()
}

fn url(redis: &Slot) -> Url {
    let secret: crate::event::Secret = redis.at("url").get();
    let text = String::from_utf8_lossy(secret.expose()).into_owned();
    text.parse().expect("invariant: the field's form was checked when it was read")
}
