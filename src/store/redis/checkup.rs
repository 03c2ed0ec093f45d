//! Whether a Redis is fit for events: asked before a store is opened on it, and by `fairlane doctor`. It writes one key of no meaning.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use redis::{Pipeline, Value};

use super::link::{Append, Call, Confirm, Link, Script, Tag, Unanswered, Version, needs_a_person, on_disk};
use super::settings::{Ack, Address, Settings, Topology};
use crate::clock::Clock;
use crate::store::doctor::{Finding, Standing};

/// The first version that is known to do.
const OLDEST: Version = Version(7, 0);
/// How long one question may take.
const WITHIN: Duration = Duration::from_secs(5);
/// Round trips that are measured.
const PINGS: usize = 5;
/// A round trip that is felt: every event waits for two of them.
const SLOW: Duration = Duration::from_millis(5);
/// How far clocks may be apart before due times and ages are visibly wrong, and before they are nonsense.
const CLOCKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Does what every write of the store does.
static PROBE: LazyLock<Script> = LazyLock::new(|| Script::new("return redis.call('SET', KEYS[1], ARGV[1])"));

/// One server's answers.
struct Told {
    address: Address,
    /// `INFO`, line by line.
    info: HashMap<String, String>,
    version: Option<Version>,
    append: Append,
    /// `min-replicas-to-write`, where it may be asked.
    replicas_min: Option<u64>,
    /// How far its clock is from ours.
    apart: Duration,
    /// The median round trip.
    trip: Duration,
}

/// Looks at all servers that have keys. Findings are named `redis`, `version`, `mode`, `eviction`, `memory`, `persistence`, `replicas`,
/// `slots`, `redis-clock`, `latency`, `tls` and `writes`; what is bad keeps a store from being opened.
pub async fn checkup(link: &Link, settings: &Settings, clock: &dyn Clock) -> Vec<Finding> {
    let server = &settings.server;
    let (servers, uncovered) = match link.servers(WITHIN).await {
        Ok(found) => found,
        Err(why) => {
            let hint = if why.contains("cluster support disabled") {
                "; it is no cluster: set store.redis.cluster to false"
            } else {
                ""
            };
            return vec![finding("redis", Standing::Bad, format!("{server} cannot be used: {why}{hint}"))];
        }
    };
    let mut told = Vec::new();
    for address in servers {
        match ask(link, &address, clock).await {
            Ok(answers) => told.push(answers),
            Err(why) => {
                return vec![finding("redis", Standing::Bad, format!("{server} cannot be used: {address}: {why}"))];
            }
        }
    }
    let mut findings = vec![finding("redis", Standing::Good, format!("{server} answers"))];
    if server.topology == Topology::Cluster {
        findings.push(slots(uncovered, told.len()));
    }
    findings.push(encryption(settings));
    let each = [version, eviction, memory, replicas, clocks, latency];
    findings.extend(each.iter().map(|look| worst(&told, settings, *look)));
    let (mode, persistence) = (worst(&told, settings, mode), worst(&told, settings, persistence));
    // What is set up so that no write is durable takes none, for the reason that is given already: trying would only wait.
    let tried = mode.standing == Standing::Good && persistence.standing != Standing::Bad;
    findings.push(persistence);
    if mode.standing != Standing::Good {
        findings.push(mode);
    }
    if tried {
        findings.push(writes(link, settings).await);
    }
    findings
}

/// Whether all that was found is that no server can be reached, or is not ready yet: what may pass by itself.
#[must_use]
pub fn is_away(findings: &[Finding]) -> bool {
    matches!(findings, [Finding { what: "redis", standing: Standing::Bad, text }] if !needs_a_person(text))
}

fn finding(what: &'static str, standing: Standing, text: impl Into<String>) -> Finding {
    Finding { what, standing, text: text.into() }
}

/// What one look says of all servers: the worst of them, which is named where there are several.
fn worst(told: &[Told], settings: &Settings, look: fn(&Told, &Settings) -> Finding) -> Finding {
    let findings = told.iter().map(|server| (server, look(server, settings)));
    let worst = findings.max_by_key(|(_, finding)| match finding.standing {
        Standing::Good => 0,
        Standing::Note => 1,
        Standing::Bad => 2,
    });
    let (server, mut finding) = worst.expect("invariant: a map names at least one server");
    if told.len() > 1 && finding.standing != Standing::Good {
        finding.text = format!("{}: {}", server.address, finding.text);
    }
    finding
}

async fn ask(link: &Link, address: &Address, clock: &dyn Clock) -> Result<Told, String> {
    let mut questions = Pipeline::new();
    questions.cmd("INFO").arg("everything");
    questions.cmd("CONFIG").arg("GET").arg("append*");
    questions.cmd("CONFIG").arg("GET").arg("min-replicas-to-write");
    questions.cmd("TIME");
    let mut connection = link.connect(address).await?;
    let mut trips = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let before = clock.now().mono;
        let _pong = connection.ask(Pipeline::new().cmd("PING"), WITHIN).await?;
        trips.push(clock.now().mono.since(before));
    }
    trips.sort_unstable();
    let answers = connection.ask(&questions, WITHIN).await?;
    let ours = clock.now().wall;
    let [info, append, replicas, time] =
        <[Value; 4]>::try_from(answers).map_err(|_| "answers are missing".to_owned())?;
    if let Value::ServerError(error) = &info {
        return Err(format!("INFO is needed and refused ({error}): allow it (ACL +info)"));
    }
    let version = Version::of(&info);
    let info = redis::from_redis_value::<String>(info).map_err(|error| error.to_string())?;
    if info.contains("redis_mode:sentinel") {
        return Err("a Sentinel answers here: set store.redis.sentinel to what it calls the master".into());
    }
    if info.contains("\nloading:1") {
        return Err("it is loading its data".into());
    }
    let info = info.lines().filter_map(|line| line.split_once(':'));
    let (s, us) = redis::from_redis_value::<(u64, u64)>(time).map_err(|error| error.to_string())?;
    let theirs = s.saturating_mul(1_000_000).saturating_add(us);
    let replicas: Option<HashMap<String, u64>> = redis::from_redis_value(replicas).ok();
    Ok(Told {
        address: address.clone(),
        info: info.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect(),
        version,
        append: Append::of(&append),
        replicas_min: replicas.and_then(|settings| settings.get("min-replicas-to-write").copied()),
        apart: Duration::from_micros(ours.0.abs_diff(theirs)),
        trip: trips.get(PINGS / 2).copied().unwrap_or_default(),
    })
}

impl Told {
    fn line(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.line(name).parse().unwrap_or(0)
    }

    /// What it calls itself.
    fn name(&self) -> String {
        match (self.line("valkey_version"), self.line("redis_version")) {
            ("", version) => format!("Redis {version}"),
            (valkey, version) => format!("Valkey {valkey} (as Redis {version})"),
        }
    }
}

fn version(told: &Told, _settings: &Settings) -> Finding {
    if told.version.is_some_and(|version| version >= OLDEST) {
        return finding("version", Standing::Good, told.name());
    }
    finding("version", Standing::Bad, format!("{}; expected Redis 7.0 or later, or Valkey: upgrade it", told.name()))
}

/// What answers is of another kind than was configured.
fn mode(told: &Told, settings: &Settings) -> Finding {
    if told.line("redis_mode") == "cluster" && settings.server.topology != Topology::Cluster {
        return finding("mode", Standing::Bad, "it is a node of a cluster: set store.redis.cluster to true");
    }
    finding("mode", Standing::Good, "it is what it should be")
}

fn eviction(told: &Told, _settings: &Settings) -> Finding {
    const DO: &str = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration";
    match told.line("maxmemory_policy") {
        "" => finding(
            "eviction",
            Standing::Note,
            "it does not say what it does when memory is full; only noeviction keeps events",
        ),
        "noeviction" => finding("eviction", Standing::Good, "nothing is thrown away when memory is full (noeviction)"),
        policy if policy.starts_with("allkeys") => {
            let text = format!(
                "maxmemory-policy is {policy}: when memory is full it throws events away; expected noeviction: {DO}"
            );
            finding("eviction", Standing::Bad, text)
        }
        policy => {
            let text = format!(
                "maxmemory-policy is {policy}: it throws away keys that expire, of which the store has only such as can be spared; \
                 better: {DO}"
            );
            finding("eviction", Standing::Note, text)
        }
    }
}

fn memory(told: &Told, settings: &Settings) -> Finding {
    let (used, own) = (told.number("used_memory"), told.number("maxmemory"));
    let most = [Some(own).filter(|&max| max > 0), settings.max_bytes].into_iter().flatten().min();
    let mib = |bytes: u64| bytes >> 20;
    let Some(most) = most else {
        let text = format!(
            "{} MiB used, and no maxmemory: it grows until the system ends it; set maxmemory, or store.redis.max_bytes",
            mib(used)
        );
        return finding("memory", Standing::Note, text);
    };
    let text = format!("{} of {} MiB used", mib(used), mib(most));
    if used >= most / 8 * 7 {
        let text = format!("{text}: new events get 503; give it more (maxmemory), or shorten store.retention");
        return finding("memory", Standing::Bad, text);
    }
    if used >= most / 4 * 3 {
        let text =
            format!("{text}: delivered history goes early; give it more (maxmemory), or shorten store.retention");
        return finding("memory", Standing::Note, text);
    }
    finding("memory", Standing::Good, format!("{text}; new events are refused from seven eighths on"))
}

fn persistence(told: &Told, settings: &Settings) -> Finding {
    let bad = |text: String| finding("persistence", Standing::Bad, text);
    if told.line("aof_enabled") == "1" && told.line("aof_last_write_status") == "err" {
        return bad("its last write to the append-only file failed; its log says why, usually a full disk".into());
    }
    if told.line("rdb_last_bgsave_status") == "err" {
        let text = "its last snapshot failed; its log says why. With stop-writes-on-bgsave-error it takes no writes";
        return finding("persistence", Standing::Note, text);
    }
    if settings.ack == Ack::Aof {
        return match on_disk(told.version, &told.append) {
            Err(why) => bad(why),
            Ok(Confirm::Answer) => finding(
                "persistence",
                Standing::Good,
                "a write is on the disk before it is answered (appendfsync always)",
            ),
            Ok(_) if told.append == Append::Lazy => {
                let text = "every write waits for the append-only file (WAITAOF); with appendfsync everysec that takes up to a second, \
                            with always it is as fast as the disk";
                finding("persistence", Standing::Note, text)
            }
            Ok(_) => finding("persistence", Standing::Good, "every write waits for the append-only file (WAITAOF)"),
        };
    }
    let (ack, kept) = (settings.ack, told.append != Append::Off);
    if kept {
        return finding(
            "persistence",
            Standing::Good,
            format!("ack is {ack}; the append-only file is written besides"),
        );
    }
    let text = format!(
        "ack is {ack} and no append-only file is written: a restart of Redis loses everything; set appendonly yes"
    );
    finding("persistence", Standing::Note, text)
}

fn replicas(told: &Told, settings: &Settings) -> Finding {
    let have = told.number("connected_slaves");
    if let Ack::Replicas(wanted) = settings.ack
        && have < u64::from(wanted)
    {
        let text = format!("{have} connected; store.redis.ack is replicas({wanted}): no event would be acknowledged");
        return finding("replicas", Standing::Bad, text);
    }
    let guarded = settings.server.topology != Topology::Alone;
    match (have, told.replicas_min) {
        (0, _) if guarded => finding("replicas", Standing::Note, "it has none: when it fails, nobody takes its place"),
        (0, _) => finding("replicas", Standing::Good, "none, and none are asked for"),
        (have, Some(0)) if !matches!(settings.ack, Ack::Replicas(_)) => {
            let text = format!(
                "{have} connected; min-replicas-to-write is 0: a master that is cut off goes on acknowledging what a failover throws \
                 away; set it to 1, or store.redis.ack to replicas(1)"
            );
            finding("replicas", Standing::Note, text)
        }
        (have, _) => finding("replicas", Standing::Good, format!("{have} connected")),
    }
}

fn slots(uncovered: u16, servers: usize) -> Finding {
    if uncovered == 0 {
        return finding("slots", Standing::Good, format!("all 16384 are served, by {servers} masters"));
    }
    let text = format!(
        "{uncovered} of 16384 are served by nobody: groups there have no store; redis-cli --cluster fix repairs it"
    );
    finding("slots", Standing::Bad, text)
}

fn clocks(told: &Told, _settings: &Settings) -> Finding {
    let text = format!("it differs from this machine's by {} ms", told.apart.as_millis());
    let remedy = "set both (timedatectl set-ntp true)";
    if told.apart >= CLOCKS.1 {
        finding("redis-clock", Standing::Bad, format!("{text}: ages and due times would be nonsense; {remedy}"))
    } else if told.apart >= CLOCKS.0 {
        finding("redis-clock", Standing::Note, format!("{text}; {remedy}"))
    } else {
        finding("redis-clock", Standing::Good, text)
    }
}

fn latency(told: &Told, _settings: &Settings) -> Finding {
    let text = format!("{} µs for a round trip", told.trip.as_micros());
    if told.trip >= SLOW {
        let text = format!(
            "{text}: an event waits for one before its 2xx and one before its delivery; put nodes and Redis together"
        );
        return finding("latency", Standing::Note, text);
    }
    finding("latency", Standing::Good, text)
}

fn encryption(settings: &Settings) -> Finding {
    let local = match &settings.server.address {
        Address::Unix(_) => true,
        Address::Tcp(host, _) => {
            &**host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    };
    match &settings.server.tls {
        Some(_) => finding("tls", Standing::Good, "connections are encrypted"),
        None if local => finding("tls", Standing::Good, "not encrypted, and on this machine"),
        None => {
            let text = "not encrypted: the password and every event travel in the clear; where others can listen write rediss://";
            finding("tls", Standing::Note, text)
        }
    }
}

/// Does once what every write does: script, key, wake-up, and waiting for as long as `ack` says.
async fn writes(link: &Link, settings: &Settings) -> Finding {
    let tag = Tag::new(&format!("{}:0", settings.namespace));
    let write = Call::script(&tag, &PROBE, &[tag.key("waited")]).arg(1).durable();
    let wake = Call::command(&tag, "PUBLISH").arg(format!("{}:checkup", settings.namespace)).arg("");
    let refused = link.run(vec![write, wake], WITHIN).await.into_iter().find_map(Result::err);
    match refused {
        None => finding("writes", Standing::Good, format!("a script's write is confirmed (ack: {})", settings.ack)),
        Some(Unanswered::Refused { code, detail }) if &*code == "NOPERM" => {
            let namespace = &settings.namespace;
            let text = format!(
                "the user may not do what the store does ({detail}): ACL SETUSER … +@all -@dangerous +info +role +config|get +script|load \
                 ~{{{namespace}:* &{namespace}:*"
            );
            finding("writes", Standing::Bad, text)
        }
        Some(why) => finding("writes", Standing::Bad, why.to_string()),
    }
}
