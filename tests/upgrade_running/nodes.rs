//! One of two nodes over a Redis is replaced while both take events.

use std::time::Duration;

use crate::support::redis::redis;
use crate::support::upstream::{answer, upstream};
use crate::world::{Load, Place};

#[test]
fn a_node_among_others_is_replaced_and_keeps_its_name_and_its_events() {
    let server = redis().start();
    let receiver = upstream(|_| answer(200).after(Duration::from_millis(2)));
    let store = format!("store: {{ redis: {{ url: \"{}\", shards: 16, lease: 4s }} }}\n", server.url());
    let text = crate::yaml(&receiver, &store);
    let (one, other) = (Place::new(&text), Place::new(&text));
    for place in [&one, &other] {
        std::fs::create_dir(place.data()).unwrap();
        std::fs::write(place.data().join("admin-token"), "one-token-for-all-nodes").unwrap();
    }
    let mut running = one.start();
    let beside = other.start();
    let node = std::fs::read_to_string(one.data().join("node")).unwrap();
    let load = Load::start(running.address, 4);
    for _ in 0..3 {
        load.go_on(50);
        let next = one.replace();
        assert_eq!(std::mem::replace(&mut running, next).ended().code(), Some(0));
    }
    load.go_on(50);
    let sent = load.end();
    let again = sent.came_to(&receiver);
    println!("three replacements of a node, {again} came again, {} crossed, longest {:?}", sent.crossed, sent.longest);
    assert_eq!(again, 0, "an attempt that had ended was made again");
    assert_eq!(std::fs::read_to_string(one.data().join("node")).unwrap(), node);
    let owns = || {
        let nodes = beside.json("/api/v1/nodes")["nodes"].clone();
        nodes.as_array().unwrap().iter().map(|node| node["shards"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    while owns().iter().sum::<usize>() != 16 || owns().len() != 2 {
        std::thread::yield_now();
    }
}
