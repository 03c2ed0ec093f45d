//! Nodes that are killed: how long their shards have no owner, by the product's own count.

use std::time::Duration;

use crate::support::Gateway;
use crate::{CAP, LEASE, Load, SHARDS, SLOTS, addresses, check, name, settled, until, violations, world};

/// A shard finds its next owner this soon after the lease of a lost node is over.
const SOON: f64 = 2.0;

/// What a node that took over shards of a lost one says of them.
fn without_owner(node: &Gateway) -> f64 {
    until("all shards have an owner", || node.metric("fairlane_cluster_shards_unowned") == Some(0.0));
    assert_eq!(node.json("/api/v1/nodes")["unowned"], serde_json::json!([]));
    node.metric("fairlane_cluster_unowned_seconds").unwrap()
}

#[test]
fn every_shard_of_a_killed_node_has_an_owner_again_soon_after_its_lease() {
    let world = world(Duration::from_millis(5));
    let (first, second, third) = (world.node(), world.node(), world.node());
    let three = settled(&[&first, &second, &third]);
    let addresses = addresses(&[&first, &second, &third]);
    let load = Load::start(&addresses, 4, Duration::from_millis(10));
    load.more(50);

    *addresses.lock().unwrap() = vec![second.address, third.address];
    let lost = name(&first);
    let _dir = first.kill();
    let two = settled(&[&second, &third]);
    for node in [&second, &third] {
        let took = two[&name(node)].intersection(&three[&lost]).count();
        let span = without_owner(node);
        println!("{took} of {SHARDS} shards taken over, the last of them {span:.3} s after a lease of {LEASE:?}");
        assert_eq!(span > 0.0, took > 0, "it counts from the end of the lease");
        assert!(span <= SOON, "{span} s without an owner, beyond the lease");
    }
    load.more(50);

    *addresses.lock().unwrap() = vec![third.address];
    let _dir = second.kill();
    settled(&[&third]);
    let span = without_owner(&third);
    println!("all {SHARDS} shards are with one, the last of them {span:.3} s after a lease of {LEASE:?}");
    assert!(span <= SOON, "{span} s without an owner, beyond the lease");
    load.more(50);
    check(&world, &load.end(), 2);
    assert_eq!(violations(&third), 0.0, "{}", third.stderr());
}

/// The upstream goes on with what a killed node had begun, for longer than its lease: whoever gave its slots, or the caps of its groups, to
/// others by then would have it work on more than it may.
#[test]
fn slots_and_caps_of_a_killed_node_rest_until_its_attempts_must_be_over() {
    // Nearly the timeout of 3 s, and more than the lease.
    let world = world(LEASE + Duration::from_millis(700));
    let (first, second, third) = (world.node(), world.node(), world.node());
    settled(&[&first, &second, &third]);
    let addresses = addresses(&[&first, &second, &third]);
    let load = Load::start(&addresses, 6, Duration::from_millis(10));
    // More than all slots get through before the end.
    load.more(10 * SLOTS);
    let sent = load.end();
    let has_slots = |node: &Gateway| node.json("/api/v1/upstream")["slots"]["busy"].as_u64().unwrap() as usize == SLOTS;
    until("every slot is taken", || has_slots(&second));
    let dir = first.kill();
    settled(&[&second, &third]);
    // Another one, while slots of the first rest.
    let first = world.node_in(dir);
    let _dir = second.kill();
    settled(&[&first, &third]);
    until("every slot is taken again", || has_slots(&third));
    check(&world, &sent, 2);
    assert_eq!((world.upstream.most_in_flight(), world.upstream.most_of_a_group()), (SLOTS, CAP), "all was used");
    for node in [&first, &third] {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
}
