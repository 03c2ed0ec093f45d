//! The long faults, with the lease that is the default. They take minutes, so they are left to `make soak-nodes`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::Gateway;
use crate::support::redis::{Guarded, Server, guarded_with, until as redis_until};
use crate::{Load, Sent, World, addresses, check, settled, until, violations, world, world_on};

/// The default.
const LEASE: Duration = Duration::from_secs(10);
/// A shard finds its next owner this soon after the lease of a lost node is over.
const SOON: f64 = 2.0;
/// For so long a node stands still, and Redis is away.
const STILL: Duration = Duration::from_secs(30);
const AWAY: Duration = Duration::from_mins(1);

const EACH: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(25);
/// Senders; every third of them sends events without an order, which may take the way through a spool.
const SENDERS: usize = 9;

fn with_default_lease<R>(world: World<R>) -> World<R> {
    World { lease: LEASE, ..world }
}

/// Every replica has what was acknowledged: whichever the Sentinels promote, and whether or not the old master was back already.
fn under_sentinels() -> World<Guarded> {
    let guarded = guarded_with(2, 3);
    let sentinels = guarded.addresses();
    let (first, others) = sentinels.split_first().unwrap();
    let place = format!(
        "url: \"redis://{first}\", others: [{}], sentinel: {}, ack: replicas(2)",
        others.join(", "),
        crate::support::redis::MASTER
    );
    with_default_lease(world_on(guarded, place, EACH))
}

/// How long the last shard that a node took over had been without an owner, beyond the lease.
#[expect(clippy::print_stdout, reason = "what was seen, for docs/scaling.md")]
fn without_owner(what: &str, nodes: &[&Gateway]) -> f64 {
    let spans = nodes.iter().map(|node| {
        until("all shards have an owner", || node.metric("fairlane_cluster_shards_unowned") == Some(0.0));
        node.metric("fairlane_cluster_unowned_seconds").unwrap()
    });
    let longest = spans.fold(0.0, f64::max);
    println!("{what}: the last of its shards had an owner {longest:.2} s after the lease");
    assert!(longest <= SOON, "{longest} s without an owner, beyond the lease");
    longest
}

/// One fault at a time: the next one is for when both replicas follow again.
fn in_order(world: &World<Guarded>) {
    redis_until("both replicas have all", || {
        let info = world.redis.servers[world.redis.master()].try_ask::<String>(&["INFO", "replication"]);
        info.is_ok_and(|info| info.contains("role:master") && info.matches("state=online").count() == 2)
    });
}

/// What has to hold at the end: everything that was acknowledged has arrived, and Redis, the upstream and the senders count the same.
#[expect(clippy::print_stdout, reason = "likewise")]
fn count_up<R>(world: &World<R>, nodes: &[&Gateway], sent: &Sent, faults: usize) {
    let twice = check(world, sent, faults);
    until("no spool has anything", || nodes.iter().all(|node| node.metric("fairlane_spool_events") == Some(0.0)));
    until("nothing is left", || nodes[0].json("/api/v1/status")["backlog"]["events"] == 0);
    let ids = |query: &str| -> BTreeSet<String> {
        nodes[0].events(query).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    let received: BTreeSet<String> =
        world.upstream.received().iter().map(|request| crate::id(request).to_owned()).collect();
    let delivered = ids("status=delivered");
    assert_eq!(ids("status=dead"), BTreeSet::new());
    assert_eq!(delivered, received, "what Redis has as delivered is what came");
    let sum = |name: &str| nodes.iter().map(|node| node.metric(name).unwrap()).sum::<f64>();
    println!(
        "{} acknowledged, {} delivered, {twice} of them twice; {} refused with 503, {} without an answer; {} went through spools; at most {} \
         attempts at once of {} slots",
        sent.accepted.len(),
        delivered.len(),
        sent.refused.len(),
        sent.unanswered.len(),
        sum("fairlane_spooled_total"),
        world.upstream.most_in_flight(),
        crate::SLOTS,
    );
    assert!(sent.refused.iter().all(|status| *status == 503), "{:?}", sent.refused);
    for node in nodes {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
}

#[test]
#[ignore = "it takes minutes: make soak-nodes"]
fn nodes_and_servers_are_lost_one_after_another_and_nothing_else_is() {
    let mut world = under_sentinels();
    let (first, second, third) = (world.node(), world.node(), world.node());
    settled(&[&first, &second, &third]);
    let addresses = addresses(&[&first, &second, &third]);
    let load = Load::start_mixed(&addresses, SENDERS, PAUSE);
    load.more(500);

    // One is killed, then another: all is with the third. They are started again, and find their places.
    *addresses.lock().unwrap() = vec![second.address, third.address];
    let dir_of_first = first.kill();
    settled(&[&second, &third]);
    without_owner("a node was killed", &[&second, &third]);
    load.more(300);
    *addresses.lock().unwrap() = vec![third.address];
    let dir_of_second = second.kill();
    settled(&[&third]);
    without_owner("another node was killed", &[&third]);
    load.more(300);
    let (first, second) = (world.node_in(dir_of_first), world.node_in(dir_of_second));
    settled(&[&first, &second, &third]);
    *addresses.lock().unwrap() = vec![first.address, second.address, third.address];
    load.more(500);

    // One stands still, for three leases, and wakes.
    third.signal("STOP");
    *addresses.lock().unwrap() = vec![first.address, second.address];
    std::thread::park_timeout(STILL);
    settled(&[&first, &second]);
    without_owner("a node was stopped", &[&first, &second]);
    load.more(300);
    third.signal("CONT");
    settled(&[&first, &second, &third]);
    *addresses.lock().unwrap() = vec![first.address, second.address, third.address];
    load.more(500);

    // The master is killed and comes back at once with what it had written, before or after a replica took over. Then it is killed until one
    // has.
    in_order(&world);
    let master = world.redis.master();
    world.redis.servers[master].restart();
    load.more(500);
    in_order(&world);
    let master = world.redis.master();
    world.redis.servers[master].kill();
    redis_until("another server is the master", || world.redis.master() != master);
    world.redis.servers[master].revive();
    load.more(500);
    settled(&[&first, &second, &third]);
    count_up(&world, &[&first, &second, &third], &load.end(), 5);
}

fn alone() -> World<Server> {
    with_default_lease(world(EACH))
}

#[test]
#[ignore = "it takes minutes: make soak-nodes"]
fn redis_is_gone_for_a_minute_under_load_and_no_event_is() {
    let mut world = alone();
    let nodes = [world.node(), world.node(), world.node()];
    let all = [&nodes[0], &nodes[1], &nodes[2]];
    settled(&all);
    let load = Load::start_mixed(&addresses(&all), SENDERS, PAUSE);
    load.more(500);
    world.redis.kill();
    std::thread::park_timeout(AWAY);
    let ready = nodes.iter().filter(|node| node.get("/readyz").status == 200).count();
    assert_eq!(ready, nodes.len(), "a node with room in its spool takes events");
    world.redis.revive();
    load.more(500);
    settled(&all);
    load.more(500);
    count_up(&world, &all, &load.end(), 1);
}

#[test]
#[ignore = "it takes minutes: make soak-nodes"]
fn redis_stands_still_for_a_minute_under_load_and_no_event_is_lost() {
    let world = alone();
    let nodes = [world.node(), world.node(), world.node()];
    let all = [&nodes[0], &nodes[1], &nodes[2]];
    settled(&all);
    let load = Load::start_mixed(&addresses(&all), SENDERS, PAUSE);
    load.more(500);
    world.redis.pause();
    std::thread::park_timeout(AWAY);
    world.redis.resume();
    load.more(500);
    settled(&all);
    load.more(500);
    count_up(&world, &all, &load.end(), 1);
}
