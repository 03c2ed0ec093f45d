//! What is said of a real Redis before a store is opened on it, and by `fairlane doctor`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock, TestClock};
use fairlane::store::Retention;
use fairlane::store::doctor::{Finding, Standing};
use fairlane::store::redis::link::Link;
use fairlane::store::redis::settings::{Ack, Server, Tls, Topology};
use fairlane::store::redis::{Settings, checkup};

use crate::between::Between;
use crate::support::redis::{Keys, cluster, guarded, redis, until};

fn settings(server: Server, ack: Ack) -> Settings {
    let day = Duration::from_secs(86_400);
    Settings {
        server,
        namespace: "fairlane".into(),
        shards: 64,
        ack,
        lease: Duration::from_secs(10),
        retention: Retention { delivered: day, dead: day, suppressed: day },
        max_bytes: None,
        timeout: Duration::from_secs(4),
        folder: PathBuf::from("unused"),
        spool: false,
        spool_max_bytes: None,
        advertise: None,
    }
}

fn alone(url: &str) -> Settings {
    settings(Server::alone(url).unwrap(), Ack::Aof)
}

async fn look(settings: &Settings) -> Vec<Finding> {
    let link = Link::new(settings.server.clone(), settings.ack, Arc::new(SystemClock));
    checkup(&link, settings, &SystemClock).await
}

/// What is said of `what`, which has to stand like this.
#[track_caller]
fn said(findings: &[Finding], what: &str, standing: Standing) -> String {
    let found =
        findings.iter().find(|finding| finding.what == what).unwrap_or_else(|| panic!("no {what}: {findings:#?}"));
    assert_eq!(found.standing, standing, "{findings:#?}");
    found.text.clone()
}

#[tokio::test]
async fn a_redis_that_is_fit_has_nothing_bad() {
    let server = redis().line("maxmemory 512mb").line("maxmemory-policy noeviction").start();
    let findings = look(&alone(&server.url())).await;
    assert!(findings.iter().all(|finding| finding.standing == Standing::Good), "{findings:#?}");
    assert!(said(&findings, "version", Standing::Good).contains("Redis "));
    assert!(said(&findings, "writes", Standing::Good).contains("ack: aof"));
}

#[tokio::test]
async fn what_would_lose_events_is_refused_with_what_to_do() {
    let server = redis().start();
    let said_after = |setting: &'static str, value: &'static str, what: &'static str, standing| {
        let () = server.ask(&["CONFIG", "SET", setting, value]);
        let settings = alone(&server.url());
        async move { said(&look(&settings).await, what, standing) }
    };
    for policy in ["allkeys-lru", "allkeys-random"] {
        let text = said_after("maxmemory-policy", policy, "eviction", Standing::Bad).await;
        assert!(text.contains(policy) && text.contains("CONFIG SET maxmemory-policy noeviction"), "{text}");
    }
    let text = said_after("maxmemory-policy", "volatile-lru", "eviction", Standing::Note).await;
    assert!(text.contains("volatile-lru"), "{text}");
    let text = said_after("appendfsync", "everysec", "persistence", Standing::Bad).await;
    assert!(text.contains("appendfsync always") && text.contains("replicas(n) or memory"), "{text}");
    let text = said_after("appendonly", "no", "persistence", Standing::Bad).await;
    assert!(text.contains("set appendonly yes"), "{text}");
    // The one cause is said once, and no write is waited for that could not be durable.
    let findings = look(&alone(&server.url())).await;
    assert!(findings.iter().all(|finding| finding.what != "writes"), "{findings:#?}");
    let text = said_after("maxmemory", "1048576", "memory", Standing::Bad).await;
    assert!(text.contains("new events get 503"), "{text}");
    let text =
        said(&look(&settings(Server::alone(&server.url()).unwrap(), Ack::Memory)).await, "persistence", Standing::Note);
    assert!(text.contains("loses everything"), "{text}");
    let text = said(
        &look(&settings(Server::alone(&server.url()).unwrap(), Ack::Replicas(2))).await,
        "replicas",
        Standing::Bad,
    );
    assert!(text.contains("0 connected") && text.contains("replicas(2)"), "{text}");
}

#[tokio::test]
async fn a_redis_that_keeps_its_settings_to_itself_is_told_apart() {
    let server = redis().start();
    let user = |name: &str, rights: &[&str]| {
        let mut words = vec!["ACL", "SETUSER", name, "on", ">secret"];
        words.extend(rights);
        let () = server.ask(&words);
        format!("redis://{name}:secret@127.0.0.1:{}", server.port())
    };
    // Without CONFIG nothing tells whether the file is synced, before 7.2; a managed service forbids it.
    let managed = user("managed", &["~*", "&*", "+@all", "-config"]);
    let text = said(&look(&alone(&managed)).await, "persistence", Standing::Bad);
    assert!(text.contains("+config|get") && text.contains("replicas(n) or memory"), "{text}");
    let memory = look(&settings(Server::alone(&managed).unwrap(), Ack::Memory)).await;
    said(&memory, "writes", Standing::Good);

    let scriptless = user("scriptless", &["~*", "&*", "+@all", "-@scripting"]);
    let text = said(&look(&alone(&scriptless)).await, "writes", Standing::Bad);
    assert!(text.contains("evalsha") && text.contains("ACL SETUSER"), "{text}");
    let elsewhere = user("elsewhere", &["~other:*", "&*", "+@all"]);
    assert!(said(&look(&alone(&elsewhere)).await, "writes", Standing::Bad).contains("~{fairlane:*"));
    // The rights that are named are enough.
    let rights =
        ["~{fairlane:*", "&fairlane:*", "+@all", "-@dangerous", "+info", "+role", "+config|get", "+script|load"];
    let findings = look(&alone(&user("enough", &rights))).await;
    assert!(findings.iter().all(|finding| finding.standing != Standing::Bad), "{findings:#?}");
    let text =
        said(&look(&alone(&format!("redis://nobody:x@127.0.0.1:{}", server.port()))).await, "redis", Standing::Bad);
    assert!(text.contains("user or password is wrong"), "{text}");
}

#[tokio::test]
async fn what_stands_there_is_not_what_was_configured() {
    let mut guarded = guarded(1);
    let sentinel = alone(&guarded.sentinels[0].url());
    assert!(said(&look(&sentinel).await, "redis", Standing::Bad).contains("store.redis.sentinel"));
    let as_cluster = Server { topology: Topology::Cluster, ..Server::alone(&guarded.servers[0].url()).unwrap() };
    let text = said(&look(&settings(as_cluster, Ack::Memory)).await, "redis", Standing::Bad);
    assert!(text.contains("set store.redis.cluster to false"), "{text}");
    let replica = look(&alone(&guarded.servers[1].url())).await;
    assert!(said(&replica, "writes", Standing::Bad).contains("it is a replica"));
    let master = look(&settings(Server::alone(&guarded.servers[0].url()).unwrap(), Ack::Memory)).await;
    assert!(said(&master, "replicas", Standing::Note).contains("min-replicas-to-write"));
    guarded.servers[0].kill();
    let gone = look(&alone(&guarded.servers[0].url())).await;
    assert!(said(&gone, "redis", Standing::Bad).contains("nothing listens there"));
}

#[tokio::test]
async fn a_cluster_is_looked_at_as_a_whole() {
    let mut cluster = cluster();
    let in_cluster = Server { topology: Topology::Cluster, ..Server::alone(&cluster.url()).unwrap() };
    let findings = look(&settings(in_cluster.clone(), Ack::Aof)).await;
    assert_eq!(said(&findings, "slots", Standing::Good), "all 16384 are served, by 3 masters");
    said(&findings, "writes", Standing::Good);
    let text = said(&look(&alone(&cluster.url())).await, "mode", Standing::Bad);
    assert!(text.contains("store.redis.cluster to true"), "{text}");
    // The worst server is named.
    let lru = cluster.masters()[1];
    let () = cluster.servers[lru].ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]);
    let text = said(&look(&settings(in_cluster.clone(), Ack::Aof)).await, "eviction", Standing::Bad);
    assert!(text.starts_with(&format!("127.0.0.1:{}: ", cluster.servers[lru].port())), "{text}");
    let first = cluster.masters()[0];
    let () = cluster.servers[first].ask(&["CLUSTER", "DELSLOTS", "0"]);
    let mut findings = Vec::new();
    until("a node knows", || {
        cluster.servers[first].ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_slots_assigned:16383")
    });
    findings.extend(look(&settings(Server { others: Vec::new(), ..in_cluster }, Ack::Aof)).await);
    assert!(findings.iter().any(|finding| finding.standing == Standing::Bad), "{findings:#?}");
    cluster.servers.clear();
}

#[tokio::test]
async fn tls_is_said() {
    let keys = Keys::new();
    let server = redis().tls(&keys, false).start();
    let mut settings = alone(&server.tls_url());
    settings.server.tls = Some(Tls { ca: Some(keys.file("ca.crt")), identity: None });
    said(&look(&settings).await, "tls", Standing::Good);
    settings.server.tls = Some(Tls::default());
    assert!(said(&look(&settings).await, "redis", Standing::Bad).contains("certificate"));
}

/// A server that says it is of another version, of the same length: `as_version` are major and minor, as `6.2`.
fn posing(server: &crate::support::redis::Server, as_version: &str) -> Between {
    let own: String = server.version().chars().take(3).collect();
    Between::default().answered(&format!("redis_version:{own}."), &format!("redis_version:{as_version}."))
}

#[tokio::test]
async fn a_version_that_is_too_old_is_refused() {
    let server = redis().start();
    let old = posing(&server, "6.2").before(server.port());
    let text = said(&look(&alone(&format!("redis://{old}"))).await, "version", Standing::Bad);
    assert!(text.contains("Redis 6.2.") && text.contains("expected Redis 7.0 or later, or Valkey"), "{text}");
}

#[tokio::test]
async fn from_7_2_on_the_disk_is_waited_for_and_before_that_only_always_will_do() {
    let server = redis().line("appendfsync everysec").start();
    let old = posing(&server, "7.0").before(server.port());
    let text = said(&look(&alone(&format!("redis://{old}"))).await, "persistence", Standing::Bad);
    assert!(text.contains("below version 7.2 only appendfsync always"), "{text}");

    // Where the server cannot wait for its disk, a script stands for what can: both answer how many have it.
    let new = posing(&server, "7.2");
    let new = if server.try_ask::<::redis::Value>(&["WAITAOF", "0", "0", "0"]).is_err() {
        new.asked("$7\r\nWAITAOF\r\n$1\r\n1\r\n", "$4\r\nEVAL\r\n$12\r\nreturn {1,0}\r\n")
    } else {
        println!("the server itself waits for its disk");
        new
    };
    let findings = look(&alone(&format!("redis://{}", new.clone().before(server.port())))).await;
    assert!(
        said(&findings, "persistence", Standing::Note).contains("every write waits for the append-only file (WAITAOF)")
    );
    assert!(said(&findings, "writes", Standing::Good).contains("ack: aof"));

    // A disk that does not confirm is not taken for one that does.
    let full = posing(&server, "7.2").asked("$7\r\nWAITAOF\r\n$1\r\n1\r\n", "$4\r\nEVAL\r\n$12\r\nreturn {0,0}\r\n");
    let findings = look(&alone(&format!("redis://{}", full.before(server.port())))).await;
    let text = said(&findings, "writes", Standing::Bad);
    assert!(text.contains("the disk did not confirm the write"), "{text}");
}

#[tokio::test]
async fn clocks_that_differ_and_a_way_that_is_long_are_said() {
    let server = redis().start();
    for (apart, standing, words) in [
        (Duration::ZERO, Standing::Good, "it differs from this machine's by"),
        (Duration::from_secs(5), Standing::Note, "timedatectl"),
        (Duration::from_secs(90), Standing::Bad, "ages and due times would be nonsense"),
    ] {
        let settings = alone(&server.url());
        let link = Link::new(settings.server.clone(), settings.ack, Arc::new(SystemClock));
        let ahead = TestClock::at(SystemClock.now().wall.plus(apart));
        let text = said(&checkup(&link, &settings, &ahead).await, "redis-clock", standing);
        assert!(text.contains(words), "{text}");
    }
    let far = Between::default().late(Duration::from_millis(8)).before(server.port());
    let text = said(&look(&alone(&format!("redis://{far}"))).await, "latency", Standing::Note);
    assert!(text.contains("put nodes and Redis together"), "{text}");
}
