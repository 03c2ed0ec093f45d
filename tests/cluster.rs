//! Many nodes over one Redis: the real binary, a real server, and faults of nodes under load.
//!
//! What has to hold whatever happens: each acknowledged event is delivered; one is delivered twice only where it was in flight at a fault;
//! events of one order key go in their order; the upstream never sees more at once than is configured for all nodes together, nor more
//! of a group than its cap.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

#[path = "cluster/failover.rs"]
mod failover;
#[path = "cluster/loss.rs"]
mod loss;
#[path = "cluster/pins.rs"]
mod pins;
#[path = "cluster/quiet.rs"]
mod quiet;
mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlane::cluster::plan;
use support::redis::{Server, redis};
use support::upstream::{Received, Upstream, answer, upstream};
use support::{Client, Gateway, gateway, post};
use tempfile::TempDir;

/// Slots of all nodes together, and the cap of every group.
const SLOTS: usize = 12;
const CAP: usize = 2;
const SHARDS: u16 = 16;
const LEASE: Duration = Duration::from_secs(2);
const GROUPS: usize = 24;
const TOKEN: &str = "one-token-for-all-nodes";

/// What every node of a test is started with.
struct World<R = Server> {
    redis: R,
    /// Where Redis is, as `store.redis` says it.
    place: String,
    upstream: Upstream,
}

fn world(each: Duration) -> World {
    let redis = redis().start();
    let place = format!("url: \"{}\"", redis.url());
    world_on(redis, place, each)
}

/// Nodes over this Redis, and an upstream that takes so long for each event.
fn world_on<R>(redis: R, place: String, each: Duration) -> World<R> {
    World { redis, place, upstream: upstream(move |_| answer(200).after(each)) }
}

impl<R> World<R> {
    fn yaml(&self) -> String {
        format!(
            "upstream: {{ url: \"{}\", concurrency: {SLOTS}, timeout: 3s }}
groups: {{ defaults: {{ concurrency: {CAP} }} }}
sources:
  - path: /any
    verify: {{ provider: none }}
    key: body.group
    order: body.order
  - path: /loose
    verify: {{ provider: none }}
    key: body.group
store: {{ redis: {{ {}, shards: {SHARDS}, lease: {}s }} }}
shutdown: {{ drain: 20s }}
log: {{ level: info }}
",
            self.upstream.url(),
            self.place,
            LEASE.as_secs()
        )
    }

    fn node(&self) -> Gateway {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        std::fs::write(dir.path().join("data/admin-token"), TOKEN).unwrap();
        self.node_in(dir)
    }

    fn node_in(&self, dir: TempDir) -> Gateway {
        gateway(&self.yaml()).again_in(dir).start()
    }
}

/// The nodes that one of them sees, and what each owns.
fn owners(node: &Gateway) -> BTreeMap<String, BTreeSet<u16>> {
    let seen = node.json("/api/v1/nodes");
    let shards = |node: &serde_json::Value| {
        node["shards"].as_array().unwrap().iter().map(|s| s.as_u64().unwrap() as u16).collect()
    };
    seen["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (node["node"].as_str().unwrap().to_owned(), shards(node)))
        .collect()
}

fn name(node: &Gateway) -> String {
    std::fs::read_to_string(node.dir().join("data/node")).unwrap().trim().to_owned()
}

/// Waits until these nodes and no others own all shards, each those that the plan gives it.
fn settled(nodes: &[&Gateway]) -> BTreeMap<String, BTreeSet<u16>> {
    let names: Vec<String> = nodes.iter().map(|node| name(node)).collect();
    let mut expected: BTreeMap<String, BTreeSet<u16>> =
        names.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for shard in 0..SHARDS {
        let target = plan::target(shard, names.iter().map(String::as_str)).unwrap();
        expected.get_mut(target).unwrap().insert(shard);
    }
    for node in nodes {
        until(&format!("all shards are with {expected:?}, seen by {}", name(node)), || owners(node) == expected);
    }
    expected
}

fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2_400 {
        if holds() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("it did not come to pass: {what}");
}

/// What one sender was answered.
#[derive(Default)]
struct Sent {
    /// Event ids with order key and number.
    accepted: Vec<(String, (String, u64))>,
    refused: Vec<u16>,
    unanswered: Vec<(String, u64)>,
}

/// Senders that post without a pause to whichever node answers, each with order keys of its own.
struct Load {
    ending: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    senders: Vec<std::thread::JoinHandle<Sent>>,
}

type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

impl Load {
    fn start(addresses: &Addresses, senders: usize, pause: Duration) -> Self {
        let (ending, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let sender = |number: usize| {
            let (ending, accepted, addresses) = (Arc::clone(&ending), Arc::clone(&accepted), Arc::clone(addresses));
            std::thread::spawn(move || send(number, &addresses, pause, &ending, &accepted))
        };
        Self { senders: (0..senders).map(sender).collect(), ending, accepted }
    }

    fn more(&self, count: usize) {
        let goal = self.accepted.load(Ordering::SeqCst) + count;
        until("senders get their answers", || self.accepted.load(Ordering::SeqCst) >= goal);
    }

    fn end(self) -> Sent {
        self.ending.store(true, Ordering::SeqCst);
        let mut all = Sent::default();
        for sender in self.senders {
            let sent = sender.join().unwrap();
            all.accepted.extend(sent.accepted);
            all.refused.extend(sent.refused);
            all.unanswered.extend(sent.unanswered);
        }
        all
    }
}

fn send(number: usize, addresses: &Addresses, pause: Duration, ending: &AtomicBool, accepted: &AtomicUsize) -> Sent {
    let mut sent = Sent::default();
    let mut client: Option<Client> = None;
    for count in 0u64.. {
        if ending.load(Ordering::SeqCst) {
            break;
        }
        let group = (number + count as usize) % GROUPS;
        let key = format!("{number}-{group}");
        let body = format!(r#"{{"group":"g{group}","order":"{key}","n":{count}}}"#);
        let mut open = client.take().unwrap_or_else(|| connect(addresses, number + count as usize));
        match open.try_send(&post("/any", body.as_bytes()).header("content-type", "application/json")) {
            Some(response) if response.status == 200 => {
                let id = response.header("fairlane-event-id").unwrap().to_owned();
                sent.accepted.push((id, (key, count)));
                accepted.fetch_add(1, Ordering::SeqCst);
                // Now and then to another node.
                client = (count % 7 != 0).then_some(open);
            }
            Some(response) => sent.refused.push(response.status),
            None => sent.unanswered.push((key, count)),
        }
        if !pause.is_zero() {
            std::thread::park_timeout(pause);
        }
    }
    sent
}

fn connect(addresses: &Addresses, turn: usize) -> Client {
    loop {
        let known = addresses.lock().unwrap().clone();
        let address = known[turn % known.len()];
        if let Ok(stream) = std::net::TcpStream::connect(address) {
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            return Client { stream: std::io::BufReader::new(stream) };
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn id(request: &Received) -> &str {
    request.header("fairlane-event-id").unwrap()
}

/// Everything that has to hold at the end; `faults`: how often something was lost. Gives how many events came more than once.
fn check<R>(world: &World<R>, sent: &Sent, faults: usize) -> usize {
    let accepted: BTreeSet<&str> = sent.accepted.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(accepted.len(), sent.accepted.len(), "two events have one id");
    let received = world.upstream.wait_until(|received| {
        let got: BTreeSet<&str> = received.iter().map(id).collect();
        accepted.is_subset(&got)
    });
    let mut times: HashMap<&str, usize> = HashMap::new();
    let mut order: HashMap<String, Vec<u64>> = HashMap::new();
    for request in &received {
        let count = times.entry(id(request)).or_default();
        *count += 1;
        if *count > 1 {
            let attempt: u32 = request.header("fairlane-attempt").unwrap().parse().unwrap();
            assert!(attempt > 1, "{} came again as a first attempt", id(request));
            continue;
        }
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let (key, n) = (body["order"].as_str().unwrap().to_owned(), body["n"].as_u64().unwrap());
        if accepted.contains(id(request)) {
            order.entry(key).or_default().push(n);
        }
    }
    let twice = times.values().filter(|count| **count > 1).count();
    assert!(twice <= faults * SLOTS, "{twice} events came more than once in {faults} faults");
    for (key, numbers) in order {
        assert!(numbers.is_sorted(), "events of the order key {key} came in the order {numbers:?}");
    }
    assert!(world.upstream.most_in_flight() <= SLOTS, "{} attempts at once", world.upstream.most_in_flight());
    let most = world.upstream.most_of_a_group();
    assert!(most <= CAP, "{most} attempts of one group at once");
    twice
}

fn addresses(nodes: &[&Gateway]) -> Addresses {
    Arc::new(Mutex::new(nodes.iter().map(|node| node.address).collect()))
}

fn violations(node: &Gateway) -> f64 {
    node.metric("fairlane_invariant_violations_total").unwrap()
}

#[test]
fn one_node_alone_takes_all_shards_delivers_and_finds_its_backlog_again() {
    let world = world(Duration::from_millis(5));
    let node = world.node();
    settled(&[&node]);
    let load = Load::start(&addresses(&[&node]), 4, Duration::ZERO);
    load.more(200);
    let sent = load.end();
    assert_eq!(sent.refused, [0u16; 0]);
    check(&world, &sent, 0);
    let (id, _) = sent.accepted.first().unwrap();
    node.wait_for_status(id, "delivered");
    assert_eq!(violations(&node), 0.0);
    let dir = node.kill();
    let again = world.node_in(dir);
    settled(&[&again]);
    let status = again.json("/api/v1/status");
    assert_eq!(status["backlog"]["events"], 0);
    assert_eq!(status["store"]["free_bytes"], serde_json::Value::Null, "nothing limits it: {status:#}");
}

#[test]
fn nodes_that_come_and_go_move_only_the_shards_that_must_and_refuse_nothing() {
    let world = world(Duration::from_millis(10));
    let first = world.node();
    settled(&[&first]);
    let load = Load::start(&addresses(&[&first]), 6, Duration::from_millis(2));
    load.more(100);

    let second = world.node();
    let two = settled(&[&first, &second]);
    load.more(100);
    let third = world.node();
    let three = settled(&[&first, &second, &third]);
    let (a, b, c) = (name(&first), name(&second), name(&third));
    assert!(three[&a].is_subset(&two[&a]) && three[&b].is_subset(&two[&b]), "{two:?} {three:?}");
    load.more(100);

    let (status, _dir) = second.stop();
    assert!(status.success());
    let last = settled(&[&first, &third]);
    assert!(three[&a].is_subset(&last[&a]) && three[&c].is_subset(&last[&c]), "{three:?} {last:?}");
    load.more(100);
    let sent = load.end();
    assert_eq!(sent.refused, [0u16; 0]);
    assert!(sent.unanswered.is_empty());
    check(&world, &sent, 0);
    let moves = |node: &Gateway| node.metric("fairlane_cluster_moves_total").unwrap() as usize;
    assert_eq!(moves(&third), last[&c].len(), "it took over what is its own, each once");
    assert_eq!(moves(&first), usize::from(SHARDS) + last[&a].difference(&three[&a]).count());
    for node in [&first, &third] {
        assert_eq!(node.metric("fairlane_cluster_epoch_losses_total").unwrap(), 0.0);
        assert_eq!(violations(node), 0.0);
    }
}

#[test]
fn nodes_that_are_killed_or_stopped_lose_nothing_and_break_no_promise() {
    let world = world(Duration::from_millis(30));
    let (first, second, third) = (world.node(), world.node(), world.node());
    settled(&[&first, &second, &third]);
    let addresses = addresses(&[&first, &second, &third]);
    let load = Load::start(&addresses, 8, Duration::from_millis(10));
    load.more(150);

    // One dies, the others take over without a hand; then it comes back.
    *addresses.lock().unwrap() = vec![second.address, third.address];
    let dir = first.kill();
    settled(&[&second, &third]);
    load.more(100);
    let first = world.node_in(dir);
    settled(&[&first, &second, &third]);

    // Another one dies and comes back at once: it finds its shards within its own lease.
    *addresses.lock().unwrap() = vec![first.address, third.address];
    let dir = second.kill();
    let second = world.node_in(dir);
    settled(&[&first, &second, &third]);
    *addresses.lock().unwrap() = vec![first.address, second.address, third.address];
    load.more(100);

    // One is stopped for longer than its lease, and wakes.
    third.signal("STOP");
    *addresses.lock().unwrap() = vec![first.address, second.address];
    settled(&[&first, &second]);
    load.more(100);
    third.signal("CONT");
    settled(&[&first, &second, &third]);
    load.more(100);

    let sent = load.end();
    check(&world, &sent, 4);
    assert!(third.metric("fairlane_cluster_epoch_losses_total").unwrap() > 0.0, "it has lost what it held");
    for node in [&first, &second, &third] {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
    let left = || first.json("/api/v1/status")["backlog"]["events"] == 0;
    until("nothing is left", left);
}

#[test]
fn a_redis_that_is_killed_and_comes_back_costs_time_and_nothing_else() {
    let mut world = world(Duration::from_millis(10));
    let nodes = [world.node(), world.node(), world.node()];
    let all = [&nodes[0], &nodes[1], &nodes[2]];
    settled(&all);
    let load = Load::start(&addresses(&all), 6, Duration::from_millis(10));
    load.more(100);
    world.redis.restart();
    load.more(100);
    world.redis.pause();
    // What has no order goes to the spools meanwhile, what has is refused: senders of that repeat.
    std::thread::park_timeout(Duration::from_millis(3_000));
    world.redis.resume();
    load.more(100);
    settled(&all);
    let sent = load.end();
    // Redis was away for longer than the leases: what was in flight then may come again, once for each absence.
    check(&world, &sent, 2);
    for node in all {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
    until("nothing is left", || nodes[0].json("/api/v1/status")["backlog"]["events"] == 0);
}

#[test]
fn what_a_person_says_on_one_node_holds_on_all_and_any_of_them_shows_everything() {
    let world = world(Duration::from_millis(5));
    let nodes = [world.node(), world.node(), world.node()];
    settled(&[&nodes[0], &nodes[1], &nodes[2]]);
    let groups: Vec<String> = (0..9).map(|number| format!("g{number}")).collect();
    for group in &groups {
        let path = format!("/api/v1/group?name={group}");
        let patched = nodes[0].change("PATCH", &path, r#"{"paused":true,"weight":0.25}"#);
        assert_eq!(patched.status, 200, "{}", patched.text());
    }
    for node in &nodes {
        until("the pauses are known everywhere", || {
            node.json("/api/v1/overrides")["overrides"].as_array().unwrap().len() == groups.len()
        });
    }
    for (number, group) in groups.iter().enumerate() {
        let body = format!(r#"{{"group":"{group}","order":"o","n":{number}}}"#);
        let response =
            nodes[number % 3].client().send(&post("/any", body.as_bytes()).header("content-type", "application/json"));
        assert_eq!(response.status, 200);
    }
    for node in &nodes {
        until("every node lists all groups", || {
            let listed = node.json("/api/v1/groups?sort=depth&limit=100");
            let paused = |group: &serde_json::Value| {
                group["state"] == "paused" && group["queued"] == 1 && group["weight"] == 0.25
            };
            listed["missing"].is_null()
                && listed["groups"].as_array().unwrap().iter().filter(|group| paused(group)).count() == groups.len()
        });
        for group in &groups {
            assert_eq!(
                node.json(&format!("/api/v1/group?name={group}"))["queued"],
                1,
                "{group} as seen from {}",
                name(node)
            );
        }
        assert_eq!(node.json("/api/v1/upstream")["active_groups"], groups.len());
    }
    assert_eq!(world.upstream.count(), 0, "they are paused");

    let narrowed = nodes[1].change("PATCH", "/api/v1/upstream", r#"{"concurrency":3}"#);
    assert_eq!(narrowed.status, 200, "{}", narrowed.text());
    for node in &nodes {
        until("three slots are shared by three nodes", || {
            let seen = node.json("/api/v1/nodes");
            seen["nodes"].as_array().unwrap().iter().all(|node| node["slots"] == 1)
        });
    }
    for group in &groups {
        let path = format!("/api/v1/group?name={group}");
        assert_eq!(nodes[2].change("DELETE", &path, "{}").status, 200);
    }
    let received = world.upstream.wait_for(groups.len());
    assert_eq!(
        received.iter().map(|request| request.group().to_owned()).collect::<BTreeSet<_>>(),
        groups.iter().cloned().collect()
    );
    assert!(world.upstream.most_in_flight() <= 3, "{}", world.upstream.most_in_flight());
}
