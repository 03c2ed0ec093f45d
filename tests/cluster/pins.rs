//! Groups that are pinned to shards of other nodes, and unpinned, under load.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use fairlane::event::{Group, shard};

use crate::support::Gateway;
use crate::{Load, SHARDS, addresses, check, name, owners, settled, until, violations, world};

/// Groups that are pinned; the others of the load stay where they are.
const PINNED: usize = 4;

fn group(number: usize) -> String {
    format!("g{number}")
}

/// A shard of another node than the one that owns the group now.
fn elsewhere(nodes: &[&Gateway], number: usize) -> u16 {
    let home = shard(&Group::of(&[group(number)]), SHARDS);
    let all = owners(nodes[0]);
    let others = all.values().filter(|held| !held.contains(&home));
    let shards: BTreeSet<u16> = others.flatten().copied().collect();
    *shards.iter().nth(number % shards.len()).unwrap()
}

fn fairlane(node: &Gateway, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    command.args(words).arg("-c").arg(node.config()).args(["--admin", &node.admin.to_string()]);
    let output = command.arg("--data").arg(node.dir().join("data")).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until all nodes list these groups as pinned there and arrived, and no others.
fn pinned(nodes: &[&Gateway], expected: &[(String, u16)]) {
    for node in nodes {
        until(&format!("{} lists {expected:?}", name(node)), || {
            let pins = node.json("/api/v1/overrides")["pins"].clone();
            let pins = pins.as_array().unwrap();
            let is = |(group, shard): &(String, u16)| {
                pins.iter().any(|pin| {
                    pin["group"] == **group
                        && pin["pinned"] == *shard
                        && pin["shard"] == *shard
                        && pin["moving"] == false
                })
            };
            pins.len() == expected.len() && expected.iter().all(is)
        });
    }
}

#[test]
fn a_group_is_pinned_and_unpinned_under_load_and_keeps_its_order() {
    let world = world(Duration::from_millis(5));
    let (first, second, third) = (world.node(), world.node(), world.node());
    let all = [&first, &second, &third];
    settled(&all);
    let addresses = addresses(&all);
    let load = Load::start(&addresses, 8, Duration::from_millis(1));
    load.more(200);

    let expected: Vec<(String, u16)> = (0..PINNED).map(|number| (group(number), elsewhere(&all, number))).collect();
    for (number, (group, shard)) in expected.iter().enumerate() {
        let said = fairlane(all[number % 3], &["groups", "pin", group, "--shard", &shard.to_string()]);
        assert!(said.contains(&format!("{group}: pinned to shard {shard}")), "{said}");
    }
    load.more(200);
    pinned(&all, &expected);
    load.more(300);
    let (group_0, shard_0) = &expected[0];
    for node in all {
        let shown = node.json(&format!("/api/v1/group?name={group_0}"));
        assert_eq!(shown["pin"]["shard"], *shard_0, "any node asks its owner: {shown}");
        let audit = node.json("/api/v1/audit").to_string();
        assert!(audit.contains("pinned to shard"), "{audit}");
    }
    assert!(fairlane(&second, &["groups", "overrides"]).contains(&format!("pinned to shard {shard_0}")));

    // A node that was killed and one that starts anew know of it.
    *addresses.lock().unwrap() = vec![second.address, third.address];
    let dir = first.kill();
    settled(&[&second, &third]);
    load.more(100);
    let first = world.node_in(dir);
    let all = [&first, &second, &third];
    settled(&all);
    pinned(&all, &expected);
    *addresses.lock().unwrap() = all.map(|node| node.address).to_vec();
    load.more(100);

    for (number, (group, _)) in expected.iter().enumerate() {
        let said = fairlane(all[number % 3], &["groups", "unpin", group]);
        assert!(said.contains("not pinned, on its way back"), "{said}");
    }
    pinned(&all, &[]);
    load.more(300);
    let refused = first.change("DELETE", &format!("/api/v1/group/pin?name={group_0}"), "{}");
    assert_eq!(refused.status, 409, "{}", refused.text());
    let refused = first.change("POST", "/api/v1/group/pin?name=g1", r#"{"shard":16}"#);
    assert!(refused.status == 400 && refused.text().contains("0 to 15"), "{}", refused.text());

    let sent = load.end();
    assert!(sent.refused.iter().all(|status| *status == 503), "{:?}", sent.refused);
    check(&world, &sent, 1);
    for node in all {
        assert_eq!(violations(node), 0.0, "{}", node.stderr());
    }
    until("nothing is left", || first.json("/api/v1/status")["backlog"]["events"] == 0);
}

#[test]
fn the_shards_are_shown_with_what_waits_in_them_and_the_skew() {
    let world = world(Duration::from_millis(5));
    let (first, second) = (world.node(), world.node());
    settled(&[&first, &second]);
    for group in ["g1", "g2"] {
        let paused = first.change("PATCH", &format!("/api/v1/group?name={group}"), r#"{"paused":true}"#);
        assert_eq!(paused.status, 200);
    }
    until("the pauses are known everywhere", || {
        second.json("/api/v1/overrides")["overrides"].as_array().unwrap().len() == 2
    });
    for number in 0..12 {
        let group = if number < 10 { "g1" } else { "g2" };
        let body = format!(r#"{{"group":"{group}","order":"o","n":{number}}}"#);
        let post = crate::support::post("/any", body.as_bytes()).header("content-type", "application/json");
        assert_eq!(second.client().send(&post).status, 200);
    }
    let full = shard(&Group::of(&["g1"]), SHARDS);
    let pin = first.change("POST", "/api/v1/group/pin?name=g2", &format!(r#"{{"shard":{full}}}"#));
    assert_eq!(pin.status, 200, "{}", pin.text());
    for node in [&first, &second] {
        until("both groups are in one shard, and every node shows it", || {
            let seen = node.json("/api/v1/nodes");
            let shards = seen["by_shard"].as_array().unwrap();
            // While it is given back and taken again it is nobody's.
            let Some(shown) = shards.iter().find(|shown| shown["shard"] == full) else { return false };
            shards.len() == usize::from(SHARDS)
                && seen["missing"].is_null()
                && (&shown["groups"], &shown["backlog"]) == (&2.into(), &12.into())
                && (&shown["largest"]["group"], &shown["largest"]["events"]) == (&"g1".into(), &10.into())
                && shown["unread"] == 0
                && owners(node)[shown["node"].as_str().unwrap()].contains(&full)
                && (&seen["skew"]["shard"], &seen["skew"]["max"], &seen["skew"]["median"])
                    == (&full.into(), &12.into(), &0.into())
        });
    }
    let text = fairlane(&second, &["nodes"]);
    assert!(text.contains("the fullest holds 12, the one in the middle 0") && text.contains("g1"), "{text}");
    assert!(text.contains(&format!("g2 pinned to shard {full}")), "{text}");
}
