//! Redis loses its master under load, and another one takes its place: nobody does anything to the nodes.
//!
//! With `ack: replicas(1)` an acknowledged event is on two servers, so it survives the loss of either. For that promise to be given again
//! a replica has to be left afterwards: the second one of the Sentinels' master, or the lost server that its supervisor starts again.

use std::time::Duration;

use fairlane::store::redis::link::Tag;

use crate::support::redis::{Cluster, Guarded, MASTER, cluster, guarded_with, until as redis_until};
use crate::support::{Gateway, post};
use crate::{Load, Sent, World, addresses, check, settled, until, violations, world_on};

const EACH: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Events to every node that need no order, sent while no master is there.
const LOOSE: u64 = 5;

fn under_sentinels() -> World<Guarded> {
    let guarded = guarded_with(2, 3);
    let sentinels = guarded.addresses();
    let (first, others) = sentinels.split_first().unwrap();
    let others = others.join(", ");
    let place = format!("url: \"redis://{first}\", others: [{others}], sentinel: {MASTER}, ack: replicas(1)");
    world_on(guarded, place, EACH)
}

fn in_cluster() -> World<Cluster> {
    let cluster = cluster();
    let place = format!("url: \"{}\", cluster: true, ack: replicas(1)", cluster.url());
    world_on(cluster, place, EACH)
}

/// Events that may take the way through the spool: each is answered 200, whether Redis is there or not.
fn send_loose(nodes: &[&Gateway]) -> Sent {
    let mut sent = Sent::default();
    for (place, node) in nodes.iter().enumerate() {
        let mut client = node.client();
        for n in 0..LOOSE {
            let key = format!("loose-{place}-{n}");
            let body = format!(r#"{{"group":"g{n}","order":"{key}","n":{n}}}"#);
            let answer = client.send(&post("/loose", body.as_bytes()).header("content-type", "application/json"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            sent.accepted.push((answer.header("fairlane-event-id").unwrap().to_owned(), (key, n)));
        }
    }
    sent
}

/// What has to hold after one master was lost, and nothing is left to do.
#[expect(clippy::print_stdout, reason = "what was seen, for whoever runs it with --nocapture")]
fn check_after_failover<R>(world: &World<R>, nodes: &[&Gateway], mut sent: Sent, loose: Sent) {
    sent.accepted.extend(loose.accepted);
    let twice = check(world, &sent, 1);
    until("nothing is left", || nodes[0].json("/api/v1/status")["backlog"]["events"] == 0);
    let sum = |name: &str| nodes.iter().map(|node| node.metric(name).unwrap()).sum::<f64>();
    println!(
        "{} acknowledged and delivered, {twice} twice; {} refused, {} unanswered; {} through the spools; {} shards taken over, {} lost",
        sent.accepted.len(),
        sent.refused.len(),
        sent.unanswered.len(),
        sum("fairlane_spooled_total"),
        sum("fairlane_cluster_moves_total"),
        sum("fairlane_cluster_epoch_losses_total"),
    );
    for node in nodes {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
}

#[test]
fn sentinels_replace_a_master_that_was_killed_and_no_acknowledged_event_is_lost() {
    let mut world = under_sentinels();
    let nodes = [world.node(), world.node()];
    let both = [&nodes[0], &nodes[1]];
    settled(&both);
    let load = Load::start(&addresses(&both), 6, PAUSE);
    load.more(150);
    let lost = world.redis.master();
    world.redis.servers[lost].kill();
    let loose = send_loose(&both);
    redis_until("another server is the master", || world.redis.master() != lost);
    load.more(150);
    settled(&both);
    load.more(50);
    check_after_failover(&world, &both, load.end(), loose);
}

#[test]
fn a_redis_cluster_replaces_a_master_that_was_killed_and_no_acknowledged_event_is_lost() {
    let mut world = in_cluster();
    let nodes = [world.node(), world.node()];
    let both = [&nodes[0], &nodes[1]];
    settled(&both);
    let load = Load::start(&addresses(&both), 6, PAUSE);
    load.more(150);
    // The worst one: the one on which nodes say that they live.
    let lost = world.redis.master_of(&Tag::new("fairlane:nodes").key("nodes"));
    world.redis.servers[lost].kill();
    let loose = send_loose(&both);
    redis_until("its replica is a master", || {
        let masters = world.redis.masters();
        masters.len() == 3 && !masters.contains(&lost)
    });
    world.redis.servers[lost].revive();
    load.more(150);
    settled(&both);
    load.more(50);
    check_after_failover(&world, &both, load.end(), loose);
}
