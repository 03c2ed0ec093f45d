//! A flood at one node and quiet groups at another: fairness is one for all nodes.

use std::time::Duration;

use crate::support::{Client, post};
use crate::{CAP, settled, violations, world};

/// An attempt takes this long, and its slot is held as long.
const EACH: Duration = Duration::from_millis(50);
/// Groups that flood, more than fill all slots, and the events of each.
const FLOODS: usize = 16;
const FLOOD: usize = 120;
/// Groups that are quiet, and the events of each.
const QUIET: usize = 20;
const ROUNDS: usize = 6;

fn send(client: &mut Client, group: &str, n: usize) -> String {
    let body = format!(r#"{{"group":"{group}","order":"{group}-{n}","n":{n}}}"#);
    let answer = client.send(&post("/loose", body.as_bytes()).header("content-type", "application/json"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("fairlane-event-id").unwrap().to_owned()
}

#[test]
fn quiet_groups_of_one_node_do_not_wait_behind_a_flood_at_another() {
    let world = world(EACH);
    let (loud, calm) = (world.node(), world.node());
    settled(&[&loud, &calm]);
    let flooding: Vec<_> = (0..FLOODS)
        .map(|number| {
            let mut client = loud.client();
            std::thread::spawn(move || {
                for n in 0..FLOOD {
                    send(&mut client, &format!("flood-{number}"), n);
                }
            })
        })
        .collect();
    flooding.into_iter().for_each(|thread| thread.join().unwrap());

    let mut client = calm.client();
    let mut sent = Vec::new();
    for n in 0..ROUNDS {
        for number in 0..QUIET {
            let id = send(&mut client, &format!("quiet-{number}"), n);
            sent.push((id, world.upstream.count()));
            std::thread::park_timeout(EACH / 4);
        }
    }
    let during = world.upstream.count();
    assert!(during < FLOODS * FLOOD, "the flood was over before the quiet events had come");
    let received = world.upstream.wait_for(FLOODS * FLOOD + sent.len());
    assert_eq!(received.len(), FLOODS * FLOOD + sent.len(), "each came once");

    let quiet = |at: usize| received[at].group().starts_with("quiet-");
    let mut waits: Vec<u64> = Vec::new();
    let mut most = 0;
    for (id, before) in &sent {
        let at = received.iter().position(|request| crate::id(request) == id).expect("every event arrives");
        waits.push(received[at].header("fairlane-wait-ms").unwrap().parse().unwrap());
        let passed = (*before..at).filter(|&other| !quiet(other)).count();
        most = most.max(passed);
    }
    waits.sort_unstable();
    let part = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
    println!(
        "{} quiet events beside {FLOODS} floods: waits p50 {} ms, p99 {} ms, longest {} ms; at most {most} events of floods came before one of them",
        waits.len(),
        part(50),
        part(99),
        part(100)
    );
    // Each flood's slots once. In one queue it would be what was left of the flood.
    assert!(most <= FLOODS * CAP, "{most} events of floods came before a quiet one: more than a lap");
    for node in [&loud, &calm] {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
}
