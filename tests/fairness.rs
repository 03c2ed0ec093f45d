//! What `docs/fairness.md` says beyond the scheduler alone: the spread over shards, two levels and the metrics of the promise, through the
//! real binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::time::Duration;

use fairlane::event::Group;
use fairlane::key::shard;
use support::upstream::{answer, upstream};
use support::{gateway, post};

const SHARDS: u16 = 32;

/// 70,000 events of one tenant in 5,000 conversations, ten of another in the middle, in queues by a hash of the key.
#[test]
#[expect(clippy::print_stdout, reason = "the figures, shown with --nocapture")]
fn a_hash_of_the_tenant_piles_up_and_a_hash_of_the_conversation_still_puts_others_behind() {
    let events = |key: &dyn Fn(&str, usize) -> Group| {
        let mut counts = vec![0_u64; usize::from(SHARDS)];
        let mut behind = 0;
        for number in 0..70_000 {
            if number == 35_000 {
                let place = usize::from(shard(&key("small", 0), SHARDS));
                behind = counts[place];
                counts[place] += 10;
            }
            counts[usize::from(shard(&key("large", number % 5_000), SHARDS))] += 1;
        }
        counts.sort_unstable();
        (*counts.last().unwrap(), counts[counts.len() / 2], behind)
    };
    let (most, ..) = events(&|tenant, _| Group::of(&[tenant]));
    println!("| keyed by tenant over {SHARDS} queues: events of the fullest | {most} |");
    assert!(most > 60_000, "{most}");
    let (most, median, behind) =
        events(&|tenant, conversation| Group::of(&[tenant.to_owned(), conversation.to_string()]));
    let skew = most as f64 / median as f64;
    println!(
        "| keyed by tenant and conversation: fullest over median, events before the small tenant's first | {skew:.2}, {behind} |"
    );
    assert!(skew < 1.5 && behind < 3_000, "{skew:.2}, {behind}");
    assert!(behind > 500, "far more than the one lap of lanes");
}

/// A store's flood of one topic, `within` splitting its lane: its own orders and those of others go next.
#[test]
fn a_flood_of_one_topic_leaves_the_stores_own_orders_and_others_alone() {
    let upstream = upstream(|_| answer(200).after(Duration::from_millis(10)));
    let yaml = format!(
        "upstream: {{ url: '{}', concurrency: 4 }}\ngroups: {{ defaults: {{ concurrency: 2 }} }}\nsources:\n  - path: /in\n    \
         verify: {{ provider: none }}\n    key: headers.x-store\n    within: headers.x-topic\n",
        upstream.url()
    );
    let gateway = gateway(&yaml).start();
    let mut client = gateway.client();
    let mut send = |store: &str, topic: &str| {
        let sent = client.send(&post("/in", b"{}").header("X-Store", store).header("X-Topic", topic));
        assert_eq!(sent.status, 200, "{}", sent.text());
    };
    assert_eq!(gateway.change("PATCH", "/api/v1/upstream", "{\"paused\":true}").status, 200);
    (0..300).for_each(|_| send("a", "products/update"));
    (0..3).for_each(|_| send("b", "orders/create"));
    (0..3).for_each(|_| send("a", "orders/create"));
    assert_eq!(gateway.change("PATCH", "/api/v1/upstream", "{\"paused\":false}").status, 200);
    let all = upstream.wait_for(306);
    let is_order = |received: &&support::upstream::Received| received.header("x-topic") == Some("orders/create");
    let before = all.iter().rposition(|received| is_order(&received)).unwrap();
    assert_eq!(all.iter().filter(is_order).count(), 6);
    // Of 300 updates that came before, as many as two lanes in turn and four slots let pass.
    assert!(before <= 6 + 12, "the last order came after {before} others");
}

/// The metric of the promise counts those that found their group within its burst, and the ages are one of each group.
#[test]
fn the_metrics_of_quiet_waits_and_of_backlog_ages_say_what_is() {
    let upstream = upstream(|_| answer(200).after(Duration::from_millis(50)));
    let yaml = format!(
        "upstream: {{ url: '{}', concurrency: 4 }}\ngroups: {{ burst: 100ms }}\nsources:\n  - {{ path: /in, verify: {{ provider: none }}, key: headers.x-store }}\n",
        upstream.url()
    );
    let gateway = gateway(&yaml).start();
    let mut client = gateway.client();
    let mut send = |store: &str| {
        assert_eq!(client.send(&post("/in", b"{}").header("X-Store", store)).status, 200);
    };
    let metric = |line: &str| gateway.metric(line).unwrap_or_else(|| panic!("no {line}"));
    assert_eq!(metric("fairlane_quiet_wait_seconds_count "), 0.0);
    assert_eq!(gateway.change("PATCH", "/api/v1/upstream", "{\"paused\":true}").status, 200);
    // A guess of 50 ms an event and a burst of 100 ms: of a pile of fifty the first three are within it, of five single ones all.
    (0..50).for_each(|_| send("pile"));
    (0..5).for_each(|number| send(&format!("quiet-{number}")));
    assert_eq!(metric("fairlane_backlog_age_seconds_count "), 6.0);
    assert_eq!(metric("fairlane_backlog_age_seconds_bucket{le=\"+Inf\"} "), 6.0);
    // Set once a second.
    while metric("fairlane_backlog_events ") != 55.0 {
        std::thread::yield_now();
    }
    assert_eq!(gateway.change("PATCH", "/api/v1/upstream", "{\"paused\":false}").status, 200);
    upstream.wait_for(55);
    while gateway.json("/api/v1/status")["backlog"]["events"] != 0 {
        std::thread::yield_now();
    }
    assert_eq!(metric("fairlane_wait_seconds_count "), 55.0);
    assert_eq!(metric("fairlane_quiet_wait_seconds_count "), 8.0);
    while metric("fairlane_backlog_age_seconds_count ") != 0.0 {
        std::thread::yield_now();
    }
    // What waits in a pile is not counted as quiet, however long; what is, is.
    let sums = (metric("fairlane_quiet_wait_seconds_sum "), metric("fairlane_wait_seconds_sum "));
    assert!(sums.0 < sums.1, "{sums:?}");

    // A group that a person held waits by its own doing.
    assert_eq!(gateway.change("PATCH", "/api/v1/group?name=quiet-1", "{\"paused\":true}").status, 200);
    send("quiet-1");
    assert_eq!(gateway.change("PATCH", "/api/v1/group?name=quiet-1", "{\"paused\":false}").status, 200);
    upstream.wait_for(56);
    while metric("fairlane_wait_seconds_count ") != 56.0 {
        std::thread::yield_now();
    }
    assert_eq!(metric("fairlane_quiet_wait_seconds_count "), 8.0);
}
